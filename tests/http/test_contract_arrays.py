"""The contract's section 4 (creating arrays, metadata, views, memory), rule by rule."""
import re

import numpy as np
import pytest

from client import JSON, NPY, NUMPY_DTYPES, OCTETS, npy_bytes


# --- creators ---


def test_create_replies_with_metadata_and_location(api):
    r = api.expect(201, api.post("/v1/arrays", {"shape": [2, 3], "dtype": "float32", "name": "u"}))
    meta = r.json()
    assert r.headers["Location"] == f"/v1/arrays/{meta['id']}"
    assert api.get(r.headers["Location"]).json()["id"] == meta["id"]
    want = {"name": "u", "dtype": "float32", "shape": [2, 3], "strides": [3, 1], "offset": 0, "size": 6,
            "nbytes": 24, "itemsize": 4, "ghost": [0, 0], "spacing": [1, 1], "references": 1,
            "read_only": False, "location": "device", "device": 0}
    assert {**{k: meta[k] for k in want}, "references": api.meta("u")["references"]} == want
    assert len(meta["boundary"]) == 2 and "view_of" not in meta
    assert re.match(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d", meta["created"])


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_nothing_is_zeros(api, dtype):
    api.create(name="u", shape=[3, 2], dtype=dtype)
    got = api.download("u")
    assert got.dtype == dtype and got.shape == (3, 2) and not got.any()


def test_plain_zeros_are_float64(api):
    assert api.create(shape=[2])["dtype"] == "float64"


@pytest.mark.parametrize("fill,dtype", [(3, "int64"), (1.5, "float64"), (True, "bool"), ("NaN", "float64"),
                                        (-0.0, "float64"), (2.0, "float64")])
def test_fill(api, fill, dtype):
    meta = api.create(name="u", shape=[2, 2], fill=fill)
    assert meta["dtype"] == dtype
    want = np.full((2, 2), float("nan") if fill == "NaN" else fill, dtype)
    np.testing.assert_array_equal(api.download("u"), want)


def test_fill_complex(api):
    api.create(name="u", shape=[2], fill=[1, -2], dtype="complex64")
    assert api.download("u").tolist() == [1 - 2j, 1 - 2j]


def test_fill_of_rank_0(api):
    meta = api.create(shape=[], fill=7, name="u")
    assert meta["shape"] == [] and meta["size"] == 1
    assert api.get("/v1/arrays/u/data", accept=JSON).json() == 7


@pytest.mark.parametrize("fill,dtype", [(300, "uint8"), (-1, "uint8"), (0.5, "int32"), (128, "int8"),
                                        ("NaN", "int32"), ("Infinity", "int64")])
def test_values_that_do_not_fit(api, fill, dtype):
    r = api.post("/v1/arrays", {"shape": [2], "fill": fill, "dtype": dtype})
    assert api.fails(422, "literal_range", r)["pointer"] == "/fill"
    r = api.post("/v1/arrays", {"data": [[0, 1], [1, fill]], "dtype": dtype})
    assert api.fails(422, "literal_range", r)["pointer"] == "/data/1/1"


DATA = [
    ([1, 2, 3], "int64"), ([1.0, 2], "float64"), ([1, 2.5], "float64"), ([True, False], "bool"),
    ([[1, 2], [3, 4]], "int64"), ([[[1]]], "int64"), (5, "int64"), (1e300, "float64"),
    ([-0.0, 0.1, 1e-310, 5e-324, 1.7976931348623157e308], "float64"), ([[], []], "float64"), ([], "float64"),
    ([2**63], "uint64"), ([2**63 - 1], "int64")]


@pytest.mark.parametrize("data,dtype", DATA)
def test_data_without_dtype(api, data, dtype):
    meta = api.create(name="u", data=data)
    want = np.array(data, dtype)
    assert (meta["dtype"], meta["shape"]) == (dtype, list(want.shape))
    assert api.download("u").tobytes() == want.tobytes()


def test_pairs_are_complex_only_where_the_dtype_says_so(api):
    assert api.create(data=[[1, 2], [3, 4]])["shape"] == [2, 2]
    meta = api.create(data=[[1, 2], [3, 4]], dtype="complex128")
    assert meta["shape"] == [2]
    assert api.download(meta["id"]).tolist() == [1 + 2j, 3 + 4j]


@pytest.mark.parametrize("data", [[[1, 2], [3]], [[1], 2], [1, [2]], [[1, 2], []]])
def test_ragged_data(api, data):
    r = api.post("/v1/arrays", {"data": data})
    assert r.status == 422 and r.code in ("bad_shape", "shape_mismatch"), r
    assert r.json()["pointer"].startswith("/data")


@pytest.mark.parametrize("data", [["x"], [None], [{"a": 1}], ["1"], [1, "nan"]])
def test_data_that_is_no_number(api, data):
    r = api.post("/v1/arrays", {"data": data})
    assert r.status == 422 and r.json()["pointer"].startswith("/data"), r


def test_data_with_another_shape(api):
    api.create(data=[[1, 2], [3, 4]], shape=[2, 2])
    r = api.post("/v1/arrays", {"data": [1, 2, 3], "shape": [2]})
    assert r.status == 422 and r.code in ("shape_mismatch", "length_mismatch"), r


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float16", "bfloat16", "float32", "complex64"])
def test_data_with_a_dtype(api, dtype):
    data = [[1, 0], [2, 0], [3, 0]] if dtype == "complex64" else [1, 2, 3]
    meta = api.create(data=data, dtype=dtype, name="u")
    assert (meta["dtype"], meta["shape"]) == (dtype, [3])
    assert api.evaluate("astype(real(u), 'float64')").tolist() == [1, 2, 3]


def test_members_in_any_order(api):
    for body in ('{"data":[1,2],"dtype":"float32","name":"u"}', '{"name":"v","dtype":"float32","data":[1,2]}',
                 '{"dtype":"float32","data":[1,2],"name":"w","shape":[2]}'):
        r = api.request("POST", "/v1/arrays", body, content_type=JSON)
        assert api.expect(201, r).json()["dtype"] == "float32"


ARANGE = [
    (dict(stop=5), None), (dict(start=2, stop=11, step=3), None), (dict(start=5, stop=0, step=-2), None),
    (dict(start=0, stop=1, step=0.1), None), (dict(start=3, stop=3), None), (dict(start=5, stop=1), None),
    (dict(stop=4), "float32"), (dict(start=0.5, stop=3), None), (dict(start=-3, stop=3), "int16")]


@pytest.mark.parametrize("spec,dtype", ARANGE)
def test_arange(api, spec, dtype):
    fields = {"dtype": dtype} if dtype else {}
    meta = api.create(name="u", arange=spec, **fields)
    want = np.arange(spec.get("start", 0), spec["stop"], spec.get("step", 1), dtype=dtype)
    assert meta["dtype"] == str(want.dtype)
    got = api.download("u")
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-15 if dtype != "float32" else 1e-6)


def test_arange_of_step_0(api):
    r = api.post("/v1/arrays", {"arange": {"start": 0, "stop": 3, "step": 0}})
    api.fails(422, "bad_field", r)


@pytest.mark.parametrize("spec", [dict(start=0, stop=1, num=11), dict(start=0, stop=1, num=4, endpoint=False),
                                  dict(start=2, stop=-2), dict(start=1, stop=2, num=1), dict(start=1, stop=2, num=0)])
def test_linspace(api, spec):
    meta = api.create(name="u", linspace=spec)
    want = np.linspace(**spec)
    assert (meta["dtype"], meta["shape"]) == ("float64", list(want.shape))
    np.testing.assert_allclose(api.download("u"), want, rtol=1e-15, atol=1e-16)


@pytest.mark.parametrize("spec", [dict(n=3), dict(n=2, m=4), dict(n=3, m=3, k=1), dict(n=3, m=2, k=-1)])
def test_eye(api, spec):
    meta = api.create(name="u", eye=spec)
    want = np.eye(spec["n"], spec.get("m"), spec.get("k", 0))
    assert meta["dtype"] == "float64"
    np.testing.assert_array_equal(api.download("u"), want)


def philox(n, seed):
    """Words of Philox4x32-10 for counters (i low, i high, 0, 0), as uint64 arrays."""
    i = np.arange(n, dtype=np.uint64)
    m = np.uint64(0xFFFFFFFF)
    c = [i & m, i >> np.uint64(32), np.zeros_like(i), np.zeros_like(i)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & m,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & m]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


SEEDS = [0, 7, 2**53, 0x123456789AB]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_uniform(api, seed):
    w = philox(1000, seed)
    api.create(name="f", shape=[10, 100], dtype="float32", random={"distribution": "uniform", "seed": seed})
    want = ((w[0] >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)).reshape(10, 100)
    np.testing.assert_array_equal(api.download("f"), want)
    meta = api.create(name="d", shape=[1000], random={"distribution": "uniform", "seed": seed})
    assert meta["dtype"] == "float64"
    x = ((w[0] << np.uint64(32)) + w[1]) >> np.uint64(11)
    np.testing.assert_array_equal(api.download("d"), x.astype(np.float64) * 2.0**-53)


@pytest.mark.parametrize("low,high", [(0, 10), (-5, 5), (0, 2**40), (-100, -50)])
def test_random_integers(api, low, high):
    w = philox(1000, 42)
    meta = api.create(name="i", shape=[1000], random={"distribution": "integers", "seed": 42,
                                                      "low": low, "high": high})
    assert meta["dtype"] == "int64"
    wide = [(int(a) << 32) + int(b) for a, b in zip(w[0], w[1])]
    assert api.download("i").tolist() == [low + (x * (high - low) >> 64) for x in wide]


def test_random_normal(api):
    w = philox(1000, 3)
    api.create(name="n", shape=[1000], random={"distribution": "normal", "seed": 3})

    def unit(a, b):
        return ((((a << np.uint64(32)) + b) >> np.uint64(11)).astype(np.float64) + 1) * 2.0**-53

    radius = np.sqrt(-2 * np.log(unit(w[0], w[1])))
    np.testing.assert_allclose(api.download("n"), radius * np.cos(2 * np.pi * unit(w[2], w[3])),
                               rtol=1e-14, atol=1e-15)


def test_like(api):
    api.create(name="u", shape=[3, 4], dtype="int16", fill=5)
    meta = api.create(name="v", like="u")
    assert (meta["shape"], meta["dtype"]) == ([3, 4], "int16")
    assert not api.download("v").any()
    api.fails(404, "not_found", api.post("/v1/arrays", {"like": "nothing"}))


@pytest.mark.parametrize("body", [
    {}, {"dtype": "int8"}, {"shape": [2], "fill": 1, "data": [1, 2]}, {"eye": {"n": 2}, "arange": {"stop": 3}},
    {"shape": [2], "random": {"distribution": "cauchy", "seed": 1}}, {"random": {"distribution": "uniform", "seed": 1}},
    {"fill": 1}, {"linspace": {"start": 0}}, {"eye": {}}, {"arange": {}}, {"arange": 5},
    {"shape": [2], "alignment": 3}, {"shape": [2], "alignment": 0}, {"shape": [2], "alignment": "big"},
    {"arange": {"stop": 3, "bogus": 1}}, {"shape": [4], "arange": {"stop": 3}}, {"linspace": {"start": 0, "stop": 1, "num": -1}}])
def test_creators_that_make_no_sense(api, body):
    r = api.post("/v1/arrays", body)
    assert r.status == 422, r
    assert api.list_all("/v1/arrays", "arrays") == []


@pytest.mark.parametrize("dtype", ["float31", "f4", "", "object", "FLOAT32", "complex256", 3])
def test_unknown_dtypes(api, dtype):
    r = api.post("/v1/arrays", {"shape": [2], "dtype": dtype})
    assert r.status == 422 and r.code in ("bad_dtype", "bad_field"), r
    assert r.json()["pointer"] == "/dtype"
    if isinstance(dtype, str):
        assert r.code == "bad_dtype"


@pytest.mark.parametrize("alignment", [1, 64, 128, 4096])
def test_alignment(api, alignment):
    api.create(shape=[3], alignment=alignment)


# --- bytes ---


def test_octets_with_a_name(api):
    r = api.request("POST", "/v1/arrays?dtype=int16&shape=2,2&name=u", bytes(8), content_type=OCTETS)
    assert api.expect(201, r).json()["name"] == "u"
    assert r.headers["Location"].startswith("/v1/arrays/a-")


def test_octets_of_rank_0(api):
    r = api.request("POST", "/v1/arrays?dtype=int16&shape=", b"\7\0", content_type=OCTETS)
    assert api.expect(201, r).json()["shape"] == []


@pytest.mark.parametrize("query,status", [
    ("?shape=2", 422), ("?dtype=int8", 422), ("?dtype=int9&shape=2", 422), ("?dtype=int8&shape=x", 422),
    ("?dtype=int8&shape=-2", 422), ("?dtype=int8&shape=2&name=1x", 422), ("?dtype=int8&shape=2&colour=1", 400),
    ("?dtype=int8&dtype=int8&shape=2", 400), ("", 422)])
def test_octets_with_a_bad_query(api, query, status):
    r = api.request("POST", "/v1/arrays" + query, b"ab", content_type=OCTETS)
    assert r.status == status, r


@pytest.mark.parametrize("n", [0, 1, 7, 9, 1000])
@pytest.mark.parametrize("chunked", [False, True])
def test_octets_of_the_wrong_length(api, n, chunked):
    r = api.request("POST", "/v1/arrays?dtype=int16&shape=4", bytes(n), content_type=OCTETS, chunked=chunked)
    api.fails(422, "length_mismatch", r)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("endian", ["<", ">"])
def test_npy(api, dtype, order, endian):
    a = np.arange(24).reshape(2, 3, 4).astype(np.dtype(dtype).newbyteorder(endian), order=order)
    meta = api.upload(a, name="u")
    assert (meta["shape"], meta["dtype"], meta["strides"]) == ([2, 3, 4], dtype, [12, 4, 1])
    got = api.download("u")
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, a)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("chunked", [False, True])
def test_npy_versions(api, version, chunked):
    a = np.arange(5.0)
    r = api.request("POST", "/v1/arrays", npy_bytes(a, version=version), content_type=NPY, chunked=chunked)
    assert api.download(api.expect(201, r).json()["id"]).tolist() == a.tolist()


def test_npy_of_rank_0(api):
    meta = api.upload(np.float32(3.5))
    assert meta["shape"] == [] and api.download(meta["id"]) == np.float32(3.5)


def test_bytes_without_a_content_type_are_sniffed(api):
    r = api.request("POST", "/v1/arrays?name=u", npy_bytes(np.arange(3)))
    assert api.expect(201, r).json()["shape"] == [3]
    r = api.request("POST", "/v1/arrays?dtype=int8&shape=3", b"abc")
    assert api.expect(201, r).json()["dtype"] == "int8"


def object_npy():
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    header += b" " * (64 - 10 - len(header) - 1) + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + b"\x80\4K\1."


@pytest.mark.parametrize("body,code", [
    (object_npy(), "bad_npy"), (b"\x93NUMPY\x09\0v\0", "bad_npy"), (b"\x93NUMPY", "bad_npy"), (b"nonsense", "bad_npy"),
    (b"", "bad_npy"), (npy_bytes(np.zeros(2, [("a", "i4"), ("b", "f4")])), "bad_npy"),
    (npy_bytes(np.array(["ab"])), "bad_npy"), (npy_bytes(np.arange(4))[:-3], "length_mismatch"),
    (npy_bytes(np.arange(4)) + b"x", "length_mismatch")])
def test_bad_npy(api, body, code):
    r = api.request("POST", "/v1/arrays", body, content_type=NPY)
    assert r.status == 422 and r.code in (code, "bad_npy"), r
    assert api.list_all("/v1/arrays", "arrays") == []


# --- names, PUT, PATCH, DELETE, lists ---


def test_a_taken_name_is_409(api):
    api.create(name="u", shape=[1])
    api.fails(409, "conflict", api.post("/v1/arrays", {"name": "u", "shape": [2]}))
    api.fails(409, "conflict", api.request("POST", "/v1/arrays?name=u", npy_bytes(np.zeros(2)), content_type=NPY))
    assert api.meta("u")["shape"] == [1]


def test_put_creates_then_replaces(api):
    first = api.expect(201, api.put("/v1/arrays/u", {"data": [1, 2, 3]}))
    view = api.expect(201, api.post("/v1/arrays/u/views", {"index": "1:", "name": "v"})).json()
    second = api.expect(200, api.put("/v1/arrays/u", {"shape": [5], "dtype": "int8"}))
    assert first.json()["id"] != second.json()["id"]
    assert api.meta("u")["id"] == second.json()["id"]
    api.fails(404, "not_found", api.get(f"/v1/arrays/{first.json()['id']}"))
    assert api.download("v").tolist() == [2, 3]  # views keep the old memory
    assert "view_of" not in api.meta(view["id"])
    api.expect(200, api.request("PUT", "/v1/arrays/u", npy_bytes(np.arange(4)), content_type=NPY))
    api.expect(200, api.request("PUT", "/v1/arrays/u?dtype=int8&shape=2", b"ab", content_type=OCTETS))
    assert api.meta("u")["shape"] == [2]


@pytest.mark.parametrize("name", ["1x", "a-b", "x" * 65])
def test_put_of_a_bad_name(api, name):
    api.fails(422, "bad_name", api.put(f"/v1/arrays/{name}", {"shape": [1]}))


def test_put_with_a_name_elsewhere(api):
    r = api.request("PUT", "/v1/arrays/u?name=v", npy_bytes(np.zeros(1)), content_type=NPY)
    assert r.status == 422, r


def test_put_over_a_read_only_array(api):
    api.create(name="u", shape=[1])
    api.patch("/v1/arrays/u", {"read_only": True})
    api.fails(409, "read_only", api.put("/v1/arrays/u", {"shape": [2]}))
    api.fails(409, "read_only", api.post("/v1/evaluate", {"expr": "1.0", "name": "u"}))


def test_a_failed_put_keeps_the_old_array(api):
    meta = api.create(name="u", data=[1, 2])
    assert api.put("/v1/arrays/u", {"shape": [-1]}).status == 422
    api.fails(422, "length_mismatch", api.request("PUT", "/v1/arrays/u?dtype=int8&shape=9", b"ab", content_type=OCTETS))
    assert api.meta("u")["id"] == meta["id"] and api.download("u").tolist() == [1, 2]


def test_patch(api):
    meta = api.create(name="u", shape=[1])
    r = api.expect(200, api.patch("/v1/arrays/u", {"name": "v"}))
    assert r.json()["name"] == "v" and r.json()["id"] == meta["id"]
    api.fails(404, "not_found", api.get("/v1/arrays/u"))
    api.create(name="u", shape=[1])
    api.fails(409, "conflict", api.patch("/v1/arrays/u", {"name": "v"}))
    api.fails(422, "bad_field", api.patch("/v1/arrays/u", {"replace": True}))
    api.fails(422, "bad_field", api.patch("/v1/arrays/u", {"name": None, "replace": True}))
    api.fails(422, "bad_name", api.patch("/v1/arrays/u", {"name": "a b"}))
    r = api.patch("/v1/arrays/u", {"read_only": 1})
    assert r.status == 422 and r.code == "bad_field"
    api.fails(404, "not_found", api.patch("/v1/arrays/nothing", {"name": "w"}))


def test_read_only(api):
    api.create(name="u", data=[1.0, 2.0])
    assert api.patch("/v1/arrays/u", {"read_only": True}).json()["read_only"] is True
    api.fails(409, "read_only", api.put("/v1/arrays/u/data", [3, 4]))
    api.fails(409, "read_only", api.post("/v1/evaluate", {"expr": "u*2", "out": "u"}))
    api.fails(409, "read_only", api.delete("/v1/arrays/u"))
    assert api.evaluate("u*2").tolist() == [2, 4]
    assert api.patch("/v1/arrays/u", {"read_only": False}).json()["read_only"] is False
    api.expect(204, api.put("/v1/arrays/u/data", [3, 4]))
    api.expect(204, api.delete("/v1/arrays/u"))


def test_delete(api):
    meta = api.create(name="u", shape=[1])
    api.expect(204, api.delete("/v1/arrays/u"))
    for ref in ("u", meta["id"]):
        api.fails(404, "not_found", api.get(f"/v1/arrays/{ref}"))
        api.fails(404, "not_found", api.delete(f"/v1/arrays/{ref}"))
        api.fails(404, "not_found", api.get(f"/v1/arrays/{ref}/data"))


def test_lists_page(api):
    made = [api.create(shape=[i])["id"] for i in range(7)]
    seen, query, pages = [], "?limit=3", 0
    while True:
        page = api.expect(200, api.get("/v1/arrays" + query)).json()
        seen += [a["id"] for a in page["arrays"]]
        pages += 1
        if "next" not in page:
            break
        assert len(page["arrays"]) == 3
        query = f"?limit=3&after={page['next']}"
    assert seen == made and pages == 3
    assert len(api.get("/v1/arrays").json()["arrays"]) == 7


def test_a_page_is_100_by_default(api):
    for _ in range(101):
        api.create(shape=[0], dtype="int8")
    page = api.get("/v1/arrays").json()
    assert len(page["arrays"]) == 100 and page["next"]
    assert len(api.get("/v1/arrays?limit=1000").json()["arrays"]) == 101


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "limit=1.5", "colour=1", "limit="])
def test_bad_list_queries(api, query):
    r = api.get("/v1/arrays?" + query)
    assert r.status in (400, 422), r


@pytest.mark.parametrize("path", ["/v1/arrays/nothing", "/v1/arrays/a-0000000000000000000000", "/v1/arrays/nothing/data"])
def test_no_such_array(api, path):
    api.fails(404, "not_found", api.get(path))


# --- resize, copy, swap ---


def test_resize(api):
    api.create(name="u", data=[[1, 2, 3], [4, 5, 6]])
    r = api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [3, 2]}))
    assert r.json()["shape"] == [3, 2] and r.json()["strides"] == [2, 1]
    assert api.download("u").tolist() == [[1, 2], [3, 4], [5, 6]]
    api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [4]}))
    assert api.download("u").tolist() == [0, 0, 0, 0]
    view = api.expect(201, api.post("/v1/arrays/u/views", {"index": ":2"})).json()
    api.fails(409, "conflict", api.post("/v1/arrays/u/resize", {"shape": [8]}))
    api.expect(204, api.delete(f"/v1/arrays/{view['id']}"))
    api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [8]}))
    assert api.post("/v1/arrays/u/resize", {"shape": [-8]}).status == 422
    assert api.post("/v1/arrays/u/resize", {}).status == 422


def test_copy(api):
    api.create(name="u", arange={"stop": 10})
    view = api.expect(201, api.post("/v1/arrays/u/views", {"index": "::-2"})).json()
    r = api.expect(201, api.post(f"/v1/arrays/{view['id']}/copy", {"name": "c"}))
    assert r.json()["strides"] == [1] and "view_of" not in r.json()
    assert r.headers["Location"] == f"/v1/arrays/{r.json()['id']}"
    api.put("/v1/arrays/u/data", [0] * 10)
    assert api.download("c").tolist() == [9, 7, 5, 3, 1]
    assert api.expect(201, api.post("/v1/arrays/u/copy")).json()["name"] is None
    api.fails(409, "conflict", api.post("/v1/arrays/u/copy", {"name": "c"}))


def test_swap(api):
    a, b = api.create(name="a", data=[1, 2]), api.create(name="b", data=[3, 4])
    api.expect(201, api.post("/v1/arrays/a/views", {"index": "0", "name": "a0"}))
    r = api.expect(200, api.post("/v1/arrays/a/swap", {"with": "b"}))
    assert r.json()["id"] == a["id"]
    assert api.download("a").tolist() == [3, 4] and api.download("b").tolist() == [1, 2]
    assert api.download("a0") == 3  # views follow their array
    api.expect(200, api.post("/v1/arrays/a/swap", {"with": b["id"]}))
    assert api.download("a").tolist() == [1, 2]


@pytest.mark.parametrize("other", [dict(shape=[3], dtype="int64"), dict(shape=[2], dtype="int32"), dict(shape=[2, 1], dtype="int64")])
def test_swap_of_unlike_arrays(api, other):
    api.create(name="a", data=[1, 2])
    api.create(name="b", **other)
    api.fails(409, "conflict", api.post("/v1/arrays/a/swap", {"with": "b"}))
    api.fails(404, "not_found", api.post("/v1/arrays/a/swap", {"with": "nothing"}))
    assert api.post("/v1/arrays/a/swap", {}).status == 422
    assert api.download("a").tolist() == [1, 2]
