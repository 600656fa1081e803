"""The contract's section 4, data: whole arrays and regions, in and out."""
import http.client
import json
import socket
import threading

import numpy as np
import pytest

from client import JSON, NPY, NUMPY_DTYPES, OCTETS, npy_bytes


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_the_three_types(api, dtype):
    a = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    api.upload(a, name="u")
    r = api.get("/v1/arrays/u/data")
    assert r.type == OCTETS and r.body == a.tobytes()
    assert int(r.headers["Content-Length"]) == len(r.body)
    r = api.get("/v1/arrays/u/data", accept=NPY)
    assert r.npy().dtype == dtype and (r.npy() == a).all()
    assert int(r.headers["Content-Length"]) == len(r.body)
    r = api.get("/v1/arrays/u/data", accept=JSON)
    assert int(r.headers["Content-Length"]) == len(r.body)
    want = [[[x.real, x.imag] for x in row] for row in a] if a.dtype.kind == "c" else a.tolist()
    assert r.json() == want
    assert api.meta("u")["id"]
    for body, kind in ((a.tobytes(), OCTETS), (npy_bytes(a), NPY), (r.body, JSON)):
        api.create(name="v", shape=[3, 4], dtype=dtype)
        api.expect(204, api.request("PUT", "/v1/arrays/v/data", body, content_type=kind))
        assert api.get("/v1/arrays/v/data").body == a.tobytes()
        api.delete("/v1/arrays/v")


def test_put_without_a_content_type(api):
    api.create(name="u", shape=[3], dtype="int64")
    api.expect(204, api.request("PUT", "/v1/arrays/u/data", npy_bytes(np.array([1, 2, 3]))))
    assert api.download("u").tolist() == [1, 2, 3]
    api.expect(204, api.request("PUT", "/v1/arrays/u/data", np.array([4, 5, 6]).tobytes()))
    assert api.download("u").tolist() == [4, 5, 6]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_floats_in_json_round_trip(api, dtype):
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**63, 2000, dtype=np.uint64) * 2 + 1
    a = bits.astype({2: "u2", 4: "u4", 8: "u8"}[np.dtype(dtype).itemsize]).view(dtype)
    a = np.concatenate([a[~np.isnan(a)], np.array([0.0, -0.0, 1, 0.1, np.finfo(dtype).max,
                                                   np.finfo(dtype).tiny]).astype(dtype)])
    api.upload(a, name="u")
    r = api.get("/v1/arrays/u/data", accept=JSON)
    api.create(name="v", shape=[a.size], dtype=dtype)
    api.expect(204, api.request("PUT", "/v1/arrays/v/data", r.body, content_type=JSON))
    assert api.get("/v1/arrays/v/data").body == a.tobytes()
    back = np.array([float(x) for x in r.json()]).astype(dtype)
    assert back.tobytes() == a.tobytes()


INDICES = ["0", "1:3", "::2, ::-1", "..., 0", "2, 3", "-1, -1", "None, 1", "0:0", ":, 1:-1"]


@pytest.mark.parametrize("index", INDICES)
def test_regions(api, index):
    a = np.arange(12, dtype="int32").reshape(3, 4)
    api.upload(a, name="u")
    want = eval(f"a[{index}]", {"a": a})
    query = "?index=" + index.replace(" ", "%20")
    assert api.get("/v1/arrays/u/data" + query).body == want.tobytes()
    np.testing.assert_array_equal(api.download("u", index=index), want)
    assert api.get("/v1/arrays/u/data" + query, accept=JSON).json() == want.tolist()
    new = np.arange(100, 100 + want.size, dtype="int32").reshape(want.shape)
    for body, kind in ((new.tobytes(), OCTETS), (npy_bytes(new), NPY), (json.dumps(new.tolist()), JSON)):
        api.expect(204, api.put("/v1/arrays/u/data", a.tolist()))
        api.expect(204, api.request("PUT", "/v1/arrays/u/data" + query, body, content_type=kind))
        b = a.copy()
        exec(f"b[{index}] = new", {"b": b, "new": new})
        np.testing.assert_array_equal(api.download("u"), b)


def test_element_access(api):
    api.create(name="u", data=[[1, 2, 3, 4]] * 4)
    assert api.get("/v1/arrays/u/data?index=3,3", accept=JSON).json() == 4
    api.expect(204, api.put("/v1/arrays/u/data?index=0,0", 42))
    assert api.get("/v1/arrays/u/data?index=0,0", accept=JSON).json() == 42


@pytest.mark.parametrize("index", ["4", "0,4", "-5", "x", "0,0,0", "1:2:0"])
def test_bad_index(api, index):
    api.create(name="u", shape=[4, 4])
    api.fails(422, "bad_index", api.get(f"/v1/arrays/u/data?index={index}"))
    api.fails(422, "bad_index", api.request("PUT", f"/v1/arrays/u/data?index={index}", bytes(8), content_type=OCTETS))


@pytest.mark.parametrize("body,kind,code", [
    (bytes(7), OCTETS, "length_mismatch"), (bytes(9), OCTETS, "length_mismatch"), (b"", OCTETS, "length_mismatch"),
    (npy_bytes(np.zeros(3, "f4")), NPY, "shape_mismatch"), (npy_bytes(np.zeros((1, 2), "f4")), NPY, "shape_mismatch"),
    (npy_bytes(np.zeros(2, "i4")), NPY, "dtype_mismatch"), (npy_bytes(np.zeros(2, "f8")), NPY, "dtype_mismatch"),
    (npy_bytes(np.zeros(2, "f4"))[:-1], NPY, "length_mismatch"), (b"[1]", JSON, "shape_mismatch"),
    (b"[1,2,3]", JSON, "shape_mismatch"), (b"[[1,2]]", JSON, "shape_mismatch"), (b"1", JSON, "shape_mismatch")])
@pytest.mark.parametrize("chunked", [False, True])
def test_put_checks_before_it_writes(api, body, kind, code, chunked):
    api.create(name="u", data=[5, 6], dtype="float32")
    r = api.request("PUT", "/v1/arrays/u/data", body, content_type=kind, chunked=chunked)
    assert r.status == 422 and r.code in {code, "length_mismatch" if kind == JSON else code}, r
    assert api.download("u").tolist() == [5, 6]


@pytest.mark.parametrize("body", [b"[1,2", b"[1,,2]", b"[01,2]", b"[1,2]x", b"", b"[NaN,1]"])
def test_put_of_text_that_is_not_json(api, body):
    api.create(name="u", data=[5, 6], dtype="float32")
    api.fails(400, "bad_json", api.request("PUT", "/v1/arrays/u/data", body, content_type=JSON))
    assert api.download("u").tolist() == [5, 6]


def test_put_of_values_that_do_not_fit(api):
    api.create(name="u", shape=[2], dtype="uint8")
    for body in ([1, 256], [0.5, 1], [-1, 0]):
        problem = api.fails(422, "literal_range", api.put("/v1/arrays/u/data", body))
        assert problem["pointer"].startswith("/")
    assert api.download("u").tolist() == [0, 0]


def test_put_of_another_type(api):
    api.create(name="u", shape=[2])
    api.fails(415, "unsupported_media_type", api.request("PUT", "/v1/arrays/u/data", b"1,2", content_type="text/csv"))


def test_put_into_a_view_that_overlaps_itself(api):
    api.create(name="u", data=[1, 2])
    api.expect(201, api.post("/v1/arrays/u/views", {"broadcast_to": [3, 2], "name": "v"}))
    api.fails(422, "overlap", api.put("/v1/arrays/v/data", [[1, 2]] * 3))


def test_npy_in_fortran_order_and_big_endian(api):
    a = np.arange(6, dtype=">i4").reshape(2, 3)
    api.create(name="u", shape=[2, 3], dtype="int32")
    api.expect(204, api.request("PUT", "/v1/arrays/u/data", npy_bytes(np.asfortranarray(a)), content_type=NPY))
    np.testing.assert_array_equal(api.download("u"), a)


@pytest.mark.parametrize("value,first,last", [
    ("bytes=0-3", 0, 3), ("bytes=4-", 4, 39), ("bytes=-5", 35, 39), ("bytes=10-1000", 10, 39), ("bytes=39-39", 39, 39),
    ("bytes=-1000", 0, 39), ("BYTES=1-2", 1, 2)])
def test_range(api, value, first, last):
    api.create(name="u", arange={"stop": 10}, dtype="int32")
    whole = api.get("/v1/arrays/u/data").body
    r = api.expect(206, api.get("/v1/arrays/u/data", headers={"Range": value}))
    assert r.body == whole[first:last + 1]
    assert r.headers["Content-Range"] == f"bytes {first}-{last}/40"
    assert int(r.headers["Content-Length"]) == last - first + 1


@pytest.mark.parametrize("value", ["bytes=40-", "bytes=100-200", "bytes=-0"])
def test_range_outside(api, value):
    api.create(name="u", arange={"stop": 10}, dtype="int32")
    r = api.get("/v1/arrays/u/data", headers={"Range": value})
    api.fails(416, "range_not_satisfiable", r)
    assert r.headers["Content-Range"] == "bytes */40"


@pytest.mark.parametrize("value", ["bytes=5-2", "lines=1-2", "bytes=x-y", "bytes", "bytes=1"])
def test_ranges_that_are_none_are_ignored(api, value):
    api.create(name="u", arange={"stop": 10}, dtype="int32")
    assert len(api.expect(200, api.get("/v1/arrays/u/data", headers={"Range": value})).body) == 40


def test_range_is_for_octets(api):
    api.create(name="u", arange={"stop": 10}, dtype="int32")
    r = api.get("/v1/arrays/u/data", accept=JSON, headers={"Range": "bytes=0-3"})
    assert api.expect(200, r).json() == list(range(10))


def test_etag(api):
    api.create(name="u", data=[1, 2, 3])
    r = api.get("/v1/arrays/u/data")
    tag = r.headers["ETag"]
    assert api.get("/v1/arrays/u/data").headers["ETag"] == tag
    for match in (tag, f'"x", {tag}', "*", f"W/{tag}"):
        same = api.expect(304, api.get("/v1/arrays/u/data", headers={"If-None-Match": match}))
        assert same.body == b"" and same.headers["ETag"] == tag
    api.expect(200, api.get("/v1/arrays/u/data", headers={"If-None-Match": '"x"'}))
    tags = {tag, api.get("/v1/arrays/u/data", accept=JSON).headers["ETag"],
            api.get("/v1/arrays/u/data", accept=NPY).headers["ETag"],
            api.get("/v1/arrays/u/data?index=1:").headers["ETag"]}
    assert len(tags) == 4  # one a representation and region
    api.expect(204, api.put("/v1/arrays/u/data?index=0", 5))
    r = api.expect(200, api.get("/v1/arrays/u/data", headers={"If-None-Match": tag}))
    assert r.headers["ETag"] != tag
    tag = r.headers["ETag"]
    api.expect(200, api.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
    assert api.get("/v1/arrays/u/data").headers["ETag"] != tag


def test_etag_changes_with_writes_through_views(api):
    api.create(name="u", data=[1, 2, 3])
    api.expect(201, api.post("/v1/arrays/u/views", {"index": "1:", "name": "v"}))
    tag = api.get("/v1/arrays/u/data").headers["ETag"]
    api.expect(204, api.put("/v1/arrays/v/data", [8, 9]))
    r = api.get("/v1/arrays/u/data", headers={"If-None-Match": tag})
    assert api.expect(200, r).array("int64", (3,)).tolist() == [1, 8, 9]


def test_if_range(api):
    api.create(name="u", data=[1, 2, 3])
    tag = api.get("/v1/arrays/u/data").headers["ETag"]
    r = api.get("/v1/arrays/u/data", headers={"Range": "bytes=0-7", "If-Range": tag})
    assert api.expect(206, r).body == b"\1" + bytes(7)
    r = api.get("/v1/arrays/u/data", headers={"Range": "bytes=0-7", "If-Range": '"old"'})
    assert len(api.expect(200, r).body) == 24


@pytest.mark.parametrize("accept", [OCTETS, NPY, JSON])
def test_head(api, accept):
    api.create(name="u", data=[1, 2, 3])
    get, head = (api.request(m, "/v1/arrays/u/data", accept=accept) for m in ("GET", "HEAD"))
    assert head.status == 200 and head.body == b""
    for name in ("Content-Length", "Content-Type", "ETag"):
        assert head.headers[name] == get.headers[name]


def test_an_upload_cut_off_keeps_the_old_contents(api, daemon):
    n = 1 << 20
    api.create(name="u", shape=[n], dtype="uint8", fill=7)
    before = api.info()["bytes_in_use"]
    for head in (b"Content-Length: %d\r\n" % n, b"Transfer-Encoding: chunked\r\n"):
        with socket.create_connection((daemon.host, daemon.port)) as s:
            s.sendall(b"PUT /v1/arrays/u/data HTTP/1.1\r\nHost: localhost\r\n"
                      b"Content-Type: application/octet-stream\r\n" + head + b"\r\n")
            s.sendall((b"80000\r\n" if b"chunked" in head else b"") + bytes(n // 2))
    from conftest import settle
    assert settle(api, before) == before
    data = api.get("/v1/arrays/u/data").body
    assert data == bytes([7]) * n


def test_a_creation_cut_off_leaves_nothing(api, daemon):
    before = api.info()["bytes_in_use"]
    with socket.create_connection((daemon.host, daemon.port)) as s:
        s.sendall(b"POST /v1/arrays?dtype=uint8&shape=1000000&name=w HTTP/1.1\r\nHost: localhost\r\n"
                  b"Content-Type: application/octet-stream\r\nContent-Length: 1000000\r\n\r\n" + bytes(5000))
    from conftest import settle
    assert settle(api, before) == before
    assert api.list_all("/v1/arrays", "arrays") == []


def test_a_download_is_a_snapshot(api, daemon):
    n = 32 << 20
    api.create(name="u", shape=[n], dtype="uint8", fill=1)
    conn = http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)
    conn.request("GET", "/v1/arrays/u/data")
    r = conn.getresponse()
    first = r.read(1000)
    api.expect(200, api.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
    api.expect(204, api.delete("/v1/arrays/u"))
    rest = r.read()
    assert len(first) + len(rest) == n
    assert set(first) | set(rest[::4097]) | set(rest[-10:]) == {1}
    conn.close()


def test_a_download_given_up_leaks_nothing(api, daemon):
    before = api.info()["bytes_in_use"]
    api.create(name="u", shape=[16 << 20], dtype="uint8")
    conn = http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)
    conn.request("GET", "/v1/arrays/u/data")
    conn.getresponse().read(1000)
    conn.sock.close()
    conn.close()
    api.expect(204, api.delete("/v1/arrays/u"))
    from conftest import settle
    assert settle(api, before) == before


def test_memory_is_zeroed_before_anybody_sees_it(api):
    for _ in range(4):
        api.create(name="u", shape=[300000], dtype="uint8", fill=255)
        api.delete("/v1/arrays/u")
        api.create(name="v", shape=[300000], dtype="uint8")
        assert not any(api.get("/v1/arrays/v/data").body)
        api.delete("/v1/arrays/v")


@pytest.mark.in_turn
def test_streams_of_several_megabytes(api):
    a = np.random.default_rng(0).standard_normal((1000, 1000)).astype("float32")
    api.upload(a, name="u")
    assert api.get("/v1/arrays/u/data").body == a.tobytes()
    raw = api.get("/v1/arrays/u/data?index=::-1,::3").body
    assert raw == np.ascontiguousarray(a[::-1, ::3]).tobytes()
    api.expect(204, api.request("PUT", "/v1/arrays/u/data", a[::-1].tobytes(), content_type=OCTETS, chunked=True))
    assert api.get("/v1/arrays/u/data").body == a[::-1].tobytes()
    text = api.get("/v1/arrays/u/data", accept=JSON).body
    api.create(name="v", shape=[1000, 1000], dtype="float32")
    api.expect(204, api.request("PUT", "/v1/arrays/v/data", text, content_type=JSON, chunked=True))
    assert api.get("/v1/arrays/v/data").body == a[::-1].tobytes()


def test_concurrent_clients(api):
    """Big and small requests side by side; each session's work stays in order."""
    failures = []

    def work(k):
        c = api.clone()
        try:
            s = c.expect(201, c.post("/v1/sessions")).json()["id"]
            c.session = s
            a = np.full(200000, k, "float32")
            c.upload(a, name="u")
            for _ in range(5):
                c.expect(200, c.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
            if not (c.download("u") == k + 5).all():
                failures.append(k)
        except Exception as e:  # reported by the test's own thread
            failures.append(repr(e))
        finally:
            c.close()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
