"""Handles in depth: names, replacing, protection, lists, resize, copy, swap; nothing leaks."""
import pytest

from client import JSON, OCTETS


def view(api, ref, **body):
    return api.expect(201, api.post(f"/v1/arrays/{ref}/views", body)).json()


def ints(api, ref):
    """The contents of a one-dimensional int64 array."""
    return api.get(f"/v1/arrays/{ref}/data").array("int64", -1).tolist()


def test_metadata_is_complete(api):
    m = api.create(name="u", shape=[2, 0, 3], dtype="complex64")
    session = api.get("/v1/sessions/default").json()["id"]
    del m["created"], m["id"]
    none = [{"type": "none"}, {"type": "none"}]
    assert m == {"name": "u", "dtype": "complex64", "shape": [2, 0, 3], "strides": m["strides"], "offset": 0,
                 "size": 0, "nbytes": 0, "itemsize": 8, "alignment": 64, "ghost": [0, 0, 0], "boundary": [none] * 3,
                 "spacing": [1, 1, 1], "references": 1, "session": session, "read_only": False,
                 "location": "device", "device": 0}


def test_ids_are_not_repeated_and_not_names(api):
    ids = set()
    for _ in range(50):
        m = api.create(name="u", shape=[1])
        ids.add(m["id"])
        api.expect(204, api.delete("/v1/arrays/u"))
    assert len(ids) == 50
    api.fails(422, "bad_name", api.post("/v1/arrays", {"shape": [1], "name": next(iter(ids))}))


def test_a_name_can_be_taken_away_and_given_again(api):
    m = api.create(name="u", shape=[1])
    assert api.expect(200, api.patch("/v1/arrays/u", {"name": None})).json()["name"] is None
    api.fails(404, "not_found", api.get("/v1/arrays/u"))
    api.create(name="u", shape=[2])
    assert api.meta(m["id"])["shape"] == [1]
    api.fails(409, "conflict", api.patch(f"/v1/arrays/{m['id']}", {"name": "u"}))
    assert api.expect(200, api.patch("/v1/arrays/u", {"name": "u"})).json()["name"] == "u"
    assert api.expect(200, api.patch("/v1/arrays/u", {})).json()["read_only"] is False


@pytest.mark.parametrize("body,code,pointer", [
    ({"name": "a b"}, "bad_name", "/name"), ({"name": 3}, "bad_field", "/name"), ({"name": ""}, "bad_name", "/name"),
    ({"read_only": "yes"}, "bad_field", "/read_only"), ({"read_only": None}, "bad_field", "/read_only"),
    ({"location": None}, "bad_field", "/location"), ({"location": "moon"}, "bad_field", "/location"),
    ({"boundary": "periodic"}, "bad_boundary", "/boundary"), ({"spacing": [0]}, "bad_field", "/spacing/0"),
    ({"dtype": "int8"}, "unknown_field", "/dtype"),
    ({"read_only": True, "name": "1"}, "bad_name", "/name"), ({"read_only": True, "name": "v"}, "conflict", "/name")])
def test_a_bad_patch_changes_nothing(api, body, code, pointer):
    before = api.create(name="u", shape=[1])
    api.create(name="v", shape=[1])
    r = api.patch("/v1/arrays/u", body)
    assert (r.code, r.json()["pointer"]) == (code, pointer), r
    assert api.meta("u") == before


def test_a_patch_with_location_device_is_fine(api):
    api.create(name="u", shape=[1])
    assert api.expect(200, api.patch("/v1/arrays/u", {"location": "device"})).json()["location"] == "device"


def test_protection_reaches_views(api):
    api.create(name="u", data=[1, 2, 3, 4])
    view(api, "u", index="1:", name="v")
    view(api, "v", index="1:", name="w")
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": True}))
    for ref in "uvw":
        assert api.meta(ref)["read_only"] is True
        n = api.meta(ref)["size"]
        r = api.request("PUT", f"/v1/arrays/{ref}/data", bytes(8 * n), content_type=OCTETS)
        api.fails(409, "read_only", r)
        api.fails(409, "read_only", api.post(f"/v1/arrays/{ref}/resize", {"shape": [2]}))
    api.create(name="x", data=[9, 9, 9, 9])
    api.fails(409, "read_only", api.post("/v1/arrays/u/swap", {"with": "x"}))
    r = api.post("/v1/arrays/x/swap", {"with": "u"})
    assert api.fails(409, "read_only", r)["pointer"] == "/with"
    # the handle of a view is no content: it can go
    api.expect(204, api.delete("/v1/arrays/v"))
    assert api.meta("w")["read_only"] is True
    api.fails(409, "read_only", api.delete("/v1/arrays/u"))
    assert ints(api, "u") == [1, 2, 3, 4]
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": False}))
    assert api.meta("w")["read_only"] is False


def test_replacing_again_and_again(api):
    before = api.info()["bytes_in_use"]
    ids = []
    for n in range(20):
        r = api.put("/v1/arrays/u", {"shape": [n * 100], "dtype": "uint8"})
        assert r.status == (200 if n else 201)
        ids.append(r.json()["id"])
    assert len(set(ids)) == 20
    api.quiet()
    assert api.info()["bytes_in_use"] - before <= 1900 + 64
    assert len(api.list_all("/v1/arrays", "arrays")) == 1
    for old in ids[:-1]:
        api.fails(404, "not_found", api.delete(f"/v1/arrays/{old}"))


def test_put_with_the_same_name_in_the_body(api):
    api.expect(201, api.put("/v1/arrays/u", {"shape": [1], "name": "u"}))
    r = api.put("/v1/arrays/u", {"shape": [1], "name": "v"})
    assert api.fails(422, "bad_field", r)["pointer"] == "/name"
    r = api.request("PUT", "/v1/arrays/u?name=u", b'{"shape":[1]}', content_type=JSON)
    assert r.status == 422


def test_post_takes_the_name_from_the_query_too(api):
    r = api.request("POST", "/v1/arrays?name=u", b'{"shape":[1]}', content_type=JSON)
    assert api.expect(201, r).json()["name"] == "u"
    r = api.request("POST", "/v1/arrays?name=u", b'{"shape":[1]}', content_type=JSON)
    assert "pointer" not in api.fails(409, "conflict", r)
    r = api.request("POST", "/v1/arrays?shape=1", b'{"shape":[1]}', content_type=JSON)
    api.fails(400, "bad_query", r)


def test_a_page_cursor_outlives_its_array(api):
    made = [api.create(shape=[0])["id"] for _ in range(6)]
    page = api.get("/v1/arrays?limit=3").json()
    for i in (1, 2, 3):
        api.expect(204, api.delete(f"/v1/arrays/{made[i]}"))
    rest = api.get(f"/v1/arrays?limit=3&after={page['next']}").json()
    assert [a["id"] for a in rest["arrays"]] == made[4:] and "next" not in rest


def test_an_exact_page_has_no_next(api):
    for _ in range(3):
        api.create(shape=[0])
    assert "next" not in api.get("/v1/arrays?limit=3").json()
    assert "next" in api.get("/v1/arrays?limit=2").json()


def test_resize_keeps_or_zeroes(api):
    api.create(name="u", data=[1, 2, 3, 4, 5, 6])
    before = api.meta("u")
    m = api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [2, 3]})).json()
    assert (m["id"], m["shape"], m["strides"], m["references"]) == (before["id"], [2, 3], [3, 1], 1)
    assert ints(api, "u") == [1, 2, 3, 4, 5, 6]
    m = api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [3]})).json()
    assert ints(api, "u") == [0, 0, 0]
    m = api.expect(200, api.post("/v1/arrays/u/resize", {"shape": []})).json()
    assert (m["shape"], m["size"]) == ([], 1) and ints(api, "u") == [0]
    m = api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [0, 5]})).json()
    assert m["size"] == 0


def test_resize_of_what_was_a_view(api):
    """The base is gone, so the view is an array like any other; its elements stay in C order."""
    api.create(name="u", data=[[1, 2, 3], [4, 5, 6]])
    v = view(api, "u", permute=[1, 0])
    api.fails(409, "conflict", api.post(f"/v1/arrays/{v['id']}/resize", {"shape": [6]}))
    api.expect(204, api.delete("/v1/arrays/u"))
    m = api.expect(200, api.post(f"/v1/arrays/{v['id']}/resize", {"shape": [6]})).json()
    assert m["strides"] == [1] and m["offset"] == 0
    assert ints(api, v["id"]) == [1, 4, 2, 5, 3, 6]


@pytest.mark.parametrize("shape,code", [
    ([-1], "bad_shape"), ([1.5], None), ("2", None), ([2**52, 2**52], "bad_shape"), ([1] * 33, "bad_shape"),
    ([2**53 + 2], "inexact_number"), (None, None)])
def test_a_bad_resize_changes_nothing(api, shape, code):
    before = api.create(name="u", data=[1, 2])
    r = api.post("/v1/arrays/u/resize", {"shape": shape})
    assert r.status == 422 and r.json()["pointer"].startswith("/shape"), r
    assert code in (None, r.code)
    assert api.meta("u") == before and ints(api, "u") == [1, 2]


def test_etag_follows_a_resize(api):
    api.create(name="u", data=[1, 2, 3, 4])
    npy = "application/x-npy"
    first = api.get("/v1/arrays/u/data", accept=npy).headers["ETag"]
    api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [2, 2]}))
    r = api.get("/v1/arrays/u/data", accept=npy, headers={"If-None-Match": first})
    assert r.status == 200 and r.npy().shape == (2, 2)


def test_copies_are_independent(api):
    api.create(name="u", data=[1, 2, 3])
    c = api.meta(api.expect(201, api.post("/v1/arrays/u/copy", {"name": "c"})).json()["id"])
    assert (c["references"], c["read_only"]) == (1, False)
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": True}))
    c2 = api.expect(201, api.post("/v1/arrays/u/copy")).json()
    assert c2["read_only"] is False
    api.expect(204, api.request("PUT", "/v1/arrays/c/data", bytes(24), content_type=OCTETS))
    assert ints(api, "u") == [1, 2, 3] and ints(api, "c") == [0, 0, 0]
    r = api.post("/v1/arrays/u/copy", {"name": "c"})
    assert api.fails(409, "conflict", r)["pointer"] == "/name"
    api.fails(422, "bad_name", api.post("/v1/arrays/u/copy", {"name": "c-"}))
    api.fails(422, "unknown_field", api.post("/v1/arrays/u/copy", {"dtype": "int8"}))


def test_a_copy_of_a_broadcast_view_is_as_large_as_it_looks(api):
    api.create(name="u", data=[7])
    v = view(api, "u", broadcast_to=[1000])
    assert v["strides"] == [0] and v["nbytes"] == 8000
    c = api.expect(201, api.post(f"/v1/arrays/{v['id']}/copy")).json()
    assert c["strides"] == [1] and ints(api, c["id"]) == [7] * 1000


def test_swap_moves_memory_under_views(api):
    api.create(name="a", data=[1, 2, 3])
    api.create(name="b", data=[4, 5, 6])
    view(api, "a", index="::-1", name="va")
    view(api, "b", index="0:2", name="vb")
    etag = api.get("/v1/arrays/a/data").headers["ETag"]
    api.expect(200, api.post("/v1/arrays/a/swap", {"with": "b"}))
    assert [ints(api, r) for r in ("a", "b", "va", "vb")] == [[4, 5, 6], [1, 2, 3], [6, 5, 4], [1, 2]]
    assert api.get("/v1/arrays/a/data", headers={"If-None-Match": etag}).status == 200
    api.expect(200, api.post("/v1/arrays/b/swap", {"with": "a"}))
    assert ints(api, "a") == [1, 2, 3] and ints(api, "vb") == [4, 5]


def test_swap_with_itself_is_nothing(api):
    m = api.create(name="a", data=[1, 2, 3])
    api.expect(200, api.post("/v1/arrays/a/swap", {"with": "a"}))
    api.expect(200, api.post("/v1/arrays/a/swap", {"with": m["id"]}))
    assert ints(api, "a") == [1, 2, 3]


def test_swap_of_views_that_differ(api):
    api.create(name="a", data=[1, 2, 3, 4])
    api.create(name="b", data=[5, 6, 7, 8])
    view(api, "a", index=":2", name="a0")
    view(api, "b", index="2:", name="b2")
    r = api.post("/v1/arrays/a0/swap", {"with": "b2"})
    assert api.fails(409, "conflict", r)["pointer"] == "/with"
    assert ints(api, "a") == [1, 2, 3, 4]


@pytest.mark.parametrize("route", ["resize", "views", "swap"])
@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"3", b'{"colour":1}', b"\xff"])
def test_bad_bodies(api, route, body):
    api.create(name="u", shape=[1])
    r = api.request("POST", f"/v1/arrays/u/{route}", body, content_type=JSON)
    assert r.status in (400, 422), r
    assert r.code in ("bad_json", "bad_field", "unknown_field"), r


def test_unacceptable_replies(api):
    api.create(name="u", shape=[1])
    for method, path in (("GET", "/v1/arrays/u"), ("GET", "/v1/arrays"), ("POST", "/v1/arrays/u/copy"),
                         ("GET", "/v1/sessions"), ("GET", "/v1/info"), ("GET", "/openapi.json")):
        api.fails(406, "not_acceptable", api.request(method, path, accept="text/html"))
        assert api.request(method, path, accept="text/html, */*;q=0.1").status in (200, 201)
    assert len(api.list_all("/v1/arrays", "arrays")) == 2
