"""Data in and out, beyond the contract's own rules: odd chunks, odd files, limits, conditions."""
import json
import re
import socket
import struct
import threading

import numpy as np
import pytest

from client import JSON, NPY, OCTETS, npy_bytes
from conftest import settle


def pieces(data, sizes):
    """The bytes in chunks of the given sizes, over and over."""
    at, k = 0, 0
    while at < len(data):
        n = sizes[k % len(sizes)]
        yield data[at:at + n]
        at, k = at + n, k + 1


def send(api, method, path, body, kind, sizes):
    return api.request(method, path, pieces(body, sizes), content_type=kind, chunked=True)


SPLITS = [[1], [3, 5], [7, 1, 13], [4096], [70000]]


@pytest.mark.parametrize("sizes", SPLITS, ids=str)
@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">i2", ">f8", ">c8", ">c16", "|u1", "|b1"])
def test_npy_in_chunks_of_any_size(api, dtype, sizes):
    n = 40 if sizes == [1] else 3000
    a = (np.arange(n) * 37 % 251).astype(dtype).reshape(2, -1)
    for b in (a, np.asfortranarray(a)):
        r = send(api, "POST", "/v1/arrays", npy_bytes(b), NPY, sizes)
        meta = api.expect(201, r).json()
        got = api.download(meta["id"])
        assert meta["dtype"] == a.dtype.name
        np.testing.assert_array_equal(got, a)
        assert api.get(f"/v1/arrays/{meta['id']}/data").body == a.astype(a.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize("sizes", SPLITS, ids=str)
def test_sniffed_in_chunks_of_any_size(api, sizes):
    a = np.arange(30 if sizes == [1] else 2000, dtype="int16")
    r = send(api, "POST", "/v1/arrays", npy_bytes(a), None, sizes)
    np.testing.assert_array_equal(api.download(api.expect(201, r).json()["id"]), a)
    path = f"/v1/arrays?dtype=int16&shape={a.size}"
    r = send(api, "POST", path, a.tobytes(), None, sizes)
    np.testing.assert_array_equal(api.download(api.expect(201, r).json()["id"]), a)


@pytest.mark.parametrize("body", [b"", b"\x93", b"\x93NUMP", b"abc"])
def test_sniffed_bodies_shorter_than_the_magic(api, body):
    r = api.request("POST", f"/v1/arrays?dtype=uint8&shape={len(body)}", body)
    assert api.get(f"/v1/arrays/{api.expect(201, r).json()['id']}/data").body == body


def test_a_magic_that_breaks_off_is_octets(api):
    body = b"\x93NUMPX" + bytes(100)
    r = api.request("POST", f"/v1/arrays?dtype=uint8&shape={len(body)}", body)
    assert api.get(f"/v1/arrays/{api.expect(201, r).json()['id']}/data").body == body


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions(api, version):
    a = np.arange(6.0).reshape(2, 3)
    r = api.request("POST", "/v1/arrays", npy_bytes(a, version=version), content_type=NPY)
    np.testing.assert_array_equal(api.download(api.expect(201, r).json()["id"]), a)


def test_npy_of_rank_0_and_without_elements(api):
    for a in (np.float32(2.5), np.zeros((0, 3), "int8"), np.zeros((2, 0, 5), ">f8")):
        meta = api.expect(201, api.request("POST", "/v1/arrays", npy_bytes(a), content_type=NPY)).json()
        assert meta["shape"] == list(np.shape(a))
        got = api.download(meta["id"])
        assert got.shape == np.shape(a)
        np.testing.assert_array_equal(got, a)


def header(text, version=(1, 0)):
    text = text.encode("latin1") + b"\n"
    n = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + n + text


@pytest.mark.parametrize("body", [
    header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }") + bytes(8),
    header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }") + bytes(4),
    header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }") + bytes(4),
    header("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }"),
    header("{'descr': '<f4', 'shape': (1,), }") + bytes(4),
    header("{'descr': '<f16', 'fortran_order': False, 'shape': (1,), }") + bytes(16),
    header("nonsense"), header("{"), b"\x93NUMPY\x09\x00\x10\x00" + bytes(16),
    b"\x93NUMPY\x01\x00\xff\xff" + b" " * 20, b"\x93NUMPY"])
def test_bad_npy(api, body):
    r = api.request("POST", "/v1/arrays", body, content_type=NPY)
    assert r.status == 422 and r.code in ("bad_npy", "bad_shape"), r
    r = api.request("POST", "/v1/arrays?dtype=uint8&shape=1", body)  # sniffed
    assert r.status == 422, r
    assert api.list_all("/v1/arrays", "arrays") == []


def test_bfloat16(api):
    bits = np.array([0x3F80, 0x4000, 0x7FC0], "<u2")
    r = api.request("POST", "/v1/arrays?dtype=bfloat16&shape=3&name=u", bits.tobytes(), content_type=OCTETS)
    assert api.expect(201, r).json()["dtype"] == "bfloat16"
    assert api.get("/v1/arrays/u/data", accept=JSON).json() == [1, 2, "NaN"]
    npy = api.get("/v1/arrays/u/data", accept=NPY)
    assert b"V2" in npy.body[:128] and npy.body.endswith(bits.tobytes())
    r = api.request("POST", "/v1/arrays?dtype=bfloat16", npy.body, content_type=NPY)
    assert api.expect(201, r).json()["dtype"] == "bfloat16"
    api.expect(204, api.request("PUT", "/v1/arrays/u/data", npy.body, content_type=NPY))
    assert api.request("POST", "/v1/arrays", npy.body, content_type=NPY).status == 422
    assert api.get("/v1/arrays/u/data").body == bits.tobytes()


def test_bools_are_0_or_1(api):
    raw = bytes([0, 1, 2, 255, 128, 0])
    r = api.request("POST", "/v1/arrays?dtype=bool&shape=6&name=b", raw, content_type=OCTETS)
    api.expect(201, r)
    assert api.get("/v1/arrays/b/data").body == bytes([0, 1, 1, 1, 1, 0])
    assert api.evaluate("sum(b)") == 4


@pytest.mark.parametrize("query,code", [
    ("dtype=float32", "bad_shape"), ("shape=2", "bad_dtype"), ("", "bad_dtype"),
    ("dtype=float31&shape=2", "bad_dtype"), ("dtype=float32&shape=2,", "bad_shape"),
    ("dtype=float32&shape=,2", "bad_shape"), ("dtype=float32&shape=-1", "bad_shape"),
    ("dtype=float32&shape=2x3", "bad_shape"), ("dtype=float32&shape=+2", "bad_shape"),
    ("dtype=float32&shape=99999999999999999999", "bad_shape"),
    ("dtype=float32&shape=4294967296,4294967296", "bad_shape"),
    ("dtype=float32&shape=" + ",".join(["1"] * 33), "bad_shape")])
def test_bad_queries(api, query, code):
    for kind in (OCTETS, None):
        api.fails(422, code, api.request("POST", f"/v1/arrays?{query}", bytes(8), content_type=kind))


def test_npy_against_the_query(api):
    a = np.zeros((2, 3), "float32")
    for query, status in (("dtype=float32&shape=2,3", 201), ("dtype=float64", 422), ("shape=3,2", 422)):
        assert api.request("POST", f"/v1/arrays?{query}", npy_bytes(a), content_type=NPY).status == status


def test_rank_32(api):
    shape = [1] * 30 + [2, 3]
    a = np.arange(6, dtype="int32").reshape(shape)
    query = ",".join(map(str, shape))
    r = api.request("POST", f"/v1/arrays?dtype=int32&shape={query}&name=u", a.tobytes(), content_type=OCTETS)
    api.expect(201, r)
    got = api.get("/v1/arrays/u/data", accept=NPY)
    np.testing.assert_array_equal(got.npy(), a)
    assert api.get("/v1/arrays/u/data", accept=JSON).json() == a.tolist()
    api.expect(204, api.put("/v1/arrays/u/data", (a + 1).tolist()))
    np.testing.assert_array_equal(api.download("u"), a + 1)


def test_data_past_the_quota(api):
    s = api.expect(201, api.post("/v1/sessions", {"memory_limit": 100000})).json()["id"]
    c = api.clone(session=s)
    a = np.zeros(20000, "float64")
    r = c.request("POST", "/v1/arrays", npy_bytes(a), content_type=NPY)
    c.fails(429, "quota_exceeded", r)
    assert "Retry-After" in r.headers
    r = c.request("POST", "/v1/arrays?dtype=float64&shape=20000", bytes(160000), content_type=OCTETS)
    c.fails(429, "quota_exceeded", r)
    c.fails(429, "quota_exceeded", send(c, "POST", "/v1/arrays", npy_bytes(a), None, [5000]))
    c.upload(a[:5000], name="u")  # 40 kB, and as much again while it is replaced
    c.expect(204, c.request("PUT", "/v1/arrays/u/data", a[:5000].tobytes(), content_type=OCTETS))
    c.close()


@pytest.mark.parametrize("kind", [OCTETS, NPY])
@pytest.mark.parametrize("extra", [-1, 1, 100000])
def test_wrong_lengths_in_chunks(api, kind, extra):
    a = np.arange(5000, dtype="float32")
    api.upload(a, name="u")
    body = npy_bytes(a) if kind == NPY else a.tobytes()
    body = body[:extra] if extra < 0 else body + bytes(extra)
    for chunked in (False, True):
        r = api.request("PUT", "/v1/arrays/u/data", body, content_type=kind, chunked=chunked)
        api.fails(422, "length_mismatch", r)
        r = api.request("POST", "/v1/arrays?dtype=float32&shape=5000" if kind == OCTETS else "/v1/arrays",
                        body, content_type=kind, chunked=chunked)
        api.fails(422, "length_mismatch", r)
    np.testing.assert_array_equal(api.download("u"), a)


def test_read_only(api):
    api.create(name="u", data=[1, 2])
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": True}))
    for body, kind in ((bytes(16), OCTETS), (b"[3,4]", JSON), (npy_bytes(np.array([3, 4])), NPY)):
        api.fails(409, "read_only", api.request("PUT", "/v1/arrays/u/data", body, content_type=kind))
    assert api.download("u").tolist() == [1, 2]


def test_made_read_only_while_data_are_on_their_way(api, daemon):
    api.create(name="u", shape=[1000], dtype="uint8")
    with socket.create_connection((daemon.host, daemon.port)) as s:
        s.sendall(b"PUT /v1/arrays/u/data HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
                  b"Content-Type: application/octet-stream\r\nConnection: close\r\n\r\n" + b"\1" * 500)
        settle_upload(api)
        api.expect(200, api.patch("/v1/arrays/u", {"read_only": True}))
        s.sendall(b"\1" * 500)
        reply = s.makefile("rb").read()
    assert reply.startswith(b"HTTP/1.1 409") and b'"read_only"' in reply
    assert not any(api.get("/v1/arrays/u/data").body)


def test_deleted_while_data_are_on_their_way(api, daemon):
    before = api.info()["bytes_in_use"]
    api.create(name="u", shape=[1000], dtype="uint8")
    with socket.create_connection((daemon.host, daemon.port)) as s:
        s.sendall(b"PUT /v1/arrays/u/data HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
                  b"Content-Type: application/octet-stream\r\nConnection: close\r\n\r\n" + b"\1" * 500)
        settle_upload(api)
        api.expect(204, api.delete("/v1/arrays/u"))
        s.sendall(b"\1" * 500)
        reply = s.makefile("rb").read()
    assert reply.startswith(b"HTTP/1.1 404")
    assert settle(api, before) == before


def test_a_boundary_changed_while_data_are_on_their_way(api, daemon):
    """The memory is the same: nothing speaks against the data."""
    api.create(name="u", shape=[1000], dtype="uint8")
    with socket.create_connection((daemon.host, daemon.port)) as s:
        s.sendall(b"PUT /v1/arrays/u/data HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
                  b"Content-Type: application/octet-stream\r\nConnection: close\r\n\r\n" + b"\1" * 500)
        settle_upload(api)
        api.expect(200, api.patch("/v1/arrays/u", {"boundary": ["periodic"], "spacing": [2]}))
        s.sendall(b"\1" * 500)
        reply = s.makefile("rb").read()
    assert reply.startswith(b"HTTP/1.1 204")
    assert all(api.get("/v1/arrays/u/data").body) and api.get("/v1/arrays/u").json()["spacing"] == [2]


@pytest.mark.parametrize("shape", [[500], [10, 100]])
def test_resized_while_data_are_on_their_way(api, daemon, shape):
    api.create(name="u", shape=[1000], dtype="uint8")
    with socket.create_connection((daemon.host, daemon.port)) as s:
        s.sendall(b"PUT /v1/arrays/u/data HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
                  b"Content-Type: application/octet-stream\r\nConnection: close\r\n\r\n" + b"\1" * 500)
        settle_upload(api)
        api.expect(200, api.post("/v1/arrays/u/resize", {"shape": shape}))
        s.sendall(b"\1" * 500)
        reply = s.makefile("rb").read()
    assert reply.startswith(b"HTTP/1.1 409") and b'"conflict"' in reply
    assert not any(api.get("/v1/arrays/u/data").body)


def settle_upload(api):
    """The half upload has surely been seen after a few round trips."""
    for _ in range(5):
        api.info()


# --- JSON ---


def test_json_without_elements(api):
    for shape in ([0], [0, 3], [2, 0], [2, 0, 4], [0, 0]):
        api.create(name="u", shape=shape)
        text = api.get("/v1/arrays/u/data", accept=JSON)
        assert text.json() == np.zeros(shape).tolist()
        api.expect(204, api.request("PUT", "/v1/arrays/u/data", text.body, content_type=JSON))
        api.delete("/v1/arrays/u")


def test_json_numbers_are_exact(api):
    values = [2**63 - 1, -2**63, 2**53 + 1, 0]
    api.create(name="u", shape=[4], dtype="int64")
    api.expect(204, api.put("/v1/arrays/u/data", values))
    assert api.get("/v1/arrays/u/data", accept=JSON).json() == values
    api.create(name="v", shape=[1], dtype="uint64")
    api.expect(204, api.put("/v1/arrays/v/data", [2**64 - 1]))
    assert api.get("/v1/arrays/v/data?index=0", accept=JSON).json() == 2**64 - 1


def test_json_specials(api):
    api.create(name="u", shape=[3])
    api.expect(204, api.put("/v1/arrays/u/data", ["NaN", "Infinity", "-Infinity"]))
    assert api.get("/v1/arrays/u/data", accept=JSON).json() == ["NaN", "Infinity", "-Infinity"]
    api.create(name="c", shape=[2], dtype="complex64")
    api.expect(204, api.put("/v1/arrays/c/data", [[1, -2], ["NaN", 0]]))
    assert api.get("/v1/arrays/c/data", accept=JSON).json() == [[1, -2], ["NaN", 0]]
    api.create(name="b", shape=[2], dtype="bool")
    api.expect(204, api.put("/v1/arrays/b/data", [True, False]))
    assert api.get("/v1/arrays/b/data", accept=JSON).json() == [True, False]


@pytest.mark.parametrize("dtype,shape", [("float64", (300, 401)), ("uint8", (7, 60000)), ("bool", (500000,)),
                                         ("complex64", (100, 3, 300)), ("float16", (90000, 1)), ("int64", (1, 50000, 2))])
def test_long_lists_stream(api, dtype, shape):
    """Past the first block: counted, then made again in pieces."""
    rng = np.random.default_rng(3)
    a = rng.integers(0, 100 if dtype != "bool" else 2, shape).astype(dtype)
    if a.dtype.kind in "fc":
        a /= np.asarray(7, a.dtype)
    api.upload(a, name="u")
    r = api.get("/v1/arrays/u/data", accept=JSON, check=False)  # the schema of so many takes minutes
    assert r.status == 200 and int(r.headers["Content-Length"]) == len(r.body)
    got = np.array(r.json())
    if dtype.startswith("complex"):
        got = got[..., 0] + 1j * got[..., 1]
    np.testing.assert_array_equal(got.astype(dtype), a)
    assert api.request("HEAD", "/v1/arrays/u/data", accept=JSON).headers["Content-Length"] == str(len(r.body))
    api.create(name="v", shape=list(shape), dtype=dtype)
    api.expect(204, send(api, "PUT", "/v1/arrays/v/data", r.body, JSON, [9973]))
    assert api.get("/v1/arrays/v/data").body == a.tobytes()


def test_json_of_a_region(api):
    a = np.arange(200000, dtype="int32").reshape(400, 500)
    api.upload(a, name="u")
    got = api.get("/v1/arrays/u/data?index=::-1,::2", accept=JSON, check=False).json()
    np.testing.assert_array_equal(got, a[::-1, ::2])
    api.expect(204, api.put("/v1/arrays/u/data?index=1:3,::-250", [[1, 2], [3, 4]]))
    a[1:3, ::-250] = [[1, 2], [3, 4]]
    np.testing.assert_array_equal(api.download("u"), a)


def test_bad_json_has_a_pointer(api):
    api.create(name="u", shape=[2, 2])
    problem = api.fails(422, "bad_field", api.put("/v1/arrays/u/data", [[1, 2], [3, None]]))
    assert problem["pointer"] == "/1/1"
    problem = api.put("/v1/arrays/u/data", [[1, 2], [3]])
    assert problem.status == 422 and problem.json()["pointer"].startswith("/1")


# --- ranges and conditions on more than one block ---


def test_ranges_of_a_large_array(api):
    a = np.random.default_rng(5).integers(0, 256, 1 << 20, dtype="uint8")
    api.upload(a, name="u")
    raw = a.tobytes()
    for first, last in ((0, 0), (65535, 65536), (0, 65535), (0, 65536), (100, 900000), (1 << 19, (1 << 20) - 1)):
        r = api.get("/v1/arrays/u/data", headers={"Range": f"bytes={first}-{last}"})
        assert api.expect(206, r).body == raw[first:last + 1]
    r = api.get("/v1/arrays/u/data?index=::-3", headers={"Range": "bytes=1000-200000"})
    assert api.expect(206, r).body == np.ascontiguousarray(a[::-3]).tobytes()[1000:200001]


def test_ranges_put_a_download_together(api):
    a = np.random.default_rng(6).standard_normal(50000)
    api.upload(a, name="u")
    tag, got = None, b""
    while len(got) < a.nbytes:
        headers = {"Range": f"bytes={len(got)}-{len(got) + 77776}"}
        if tag:
            headers["If-Range"] = tag
        r = api.expect(206, api.get("/v1/arrays/u/data", headers=headers))
        tag = r.headers["ETag"]
        got += r.body
    assert got == a.tobytes()


def test_several_ranges_give_the_whole(api):
    api.create(name="u", data=[1, 2, 3])
    r = api.get("/v1/arrays/u/data", headers={"Range": "bytes=0-1,4-5"})
    assert len(api.expect(200, r).body) == 24


def test_a_range_of_nothing(api):
    api.create(name="u", shape=[0])
    api.expect(200, api.get("/v1/arrays/u/data"))
    r = api.get("/v1/arrays/u/data", headers={"Range": "bytes=0-"})
    api.fails(416, "range_not_satisfiable", r)
    assert r.headers["Content-Range"] == "bytes */0"


def test_etag_of_a_name_that_moves_on(api):
    api.create(name="u", data=[1, 2, 3, 4])
    api.expect(201, api.post("/v1/arrays/u/views", {"index": "::-1", "name": "v"}))
    tags = {api.get(f"/v1/arrays/{x}/data").headers["ETag"] for x in "uv"}
    assert len(tags) == 2  # the same memory, other elements first
    api.expect(204, api.delete("/v1/arrays/v"))
    api.expect(201, api.post("/v1/arrays/u/views", {"name": "v"}))
    for x in "uv":
        tags.add(api.get(f"/v1/arrays/{x}/data").headers["ETag"])
    assert len(tags) == 2


def test_etag_follows_swap(api):
    api.create(name="u", data=[1, 2])
    api.create(name="v", data=[3, 4])
    tag = api.get("/v1/arrays/u/data").headers["ETag"]
    api.expect(200, api.post("/v1/arrays/u/swap", {"with": "v"}))
    r = api.get("/v1/arrays/u/data", headers={"If-None-Match": tag})
    assert api.expect(200, r).array("int64", (2,)).tolist() == [3, 4]


def test_accept(api):
    api.create(name="u", data=[1, 2])
    for accept, kind in (("*/*", OCTETS), ("application/*", OCTETS), ("application/json;q=0.5, application/x-npy", NPY),
                         ("application/json, application/octet-stream;q=0", JSON), ("text/html, */*;q=0.1", OCTETS)):
        assert api.expect(200, api.get("/v1/arrays/u/data", accept=accept)).type == kind
    api.fails(406, "not_acceptable", api.get("/v1/arrays/u/data", accept="text/html"))
    assert "accept" in api.get("/v1/arrays/u/data").headers["Vary"].lower()


def test_unknown_query(api):
    api.create(name="u", data=[1, 2])
    for method in ("GET", "PUT"):
        assert api.request(method, "/v1/arrays/u/data?indx=0", bytes(8) if method == "PUT" else None,
                           content_type=OCTETS).status == 400


def test_no_such_array(api):
    for ref in ("nothing", "a-0000000000000000000000", "..."):
        api.fails(404, "not_found", api.get(f"/v1/arrays/{ref}/data"))
        api.fails(404, "not_found", api.request("PUT", f"/v1/arrays/{ref}/data", bytes(8), content_type=OCTETS))


def test_readers_see_whole_writes(api, daemon):
    """Uploads replace the contents at once: no reader sees half of one."""
    n = 300000
    api.create(name="u", shape=[n], dtype="uint8")
    stop, seen = threading.Event(), []

    def read():
        c = daemon.client()
        while not stop.is_set():
            body = c.get("/v1/arrays/u/data").body
            seen.append(len(set(body)) == 1 and len(body) == n)
        c.close()

    threads = [threading.Thread(target=read) for _ in range(2)]
    for t in threads:
        t.start()
    for k in range(1, 20):
        body = bytes([k]) * n
        api.expect(204, api.request("PUT", "/v1/arrays/u/data", body, content_type=OCTETS, chunked=k % 2 == 0))
    stop.set()
    for t in threads:
        t.join()
    assert seen and all(seen)


def test_server_timing_tells_about_the_work(api):
    api.create(name="u", shape=[100000])
    api.expect(201, api.post("/v1/evaluate", {"expr": "exp(u)", "name": "v"}))
    assert api.device in api.get("/v1/arrays/v/data").headers["Server-Timing"]
    big = api.request("PUT", "/v1/arrays/u/data", bytes(800000), content_type=OCTETS)
    for r in (big, api.get("/v1/arrays/v/data"), api.post("/v1/evaluate", {"expr": "u[:60000]", "inline": True}),
              api.request("PUT", "/v1/arrays/u/data?index=:50000", json.dumps([1] * 50000).encode(), content_type=JSON)):
        assert float(re.search(r"\bcopy;dur=([\d.]+)", r.headers["Server-Timing"])[1]) > 0, r
    assert "copy" not in api.get("/v1/arrays/v").headers["Server-Timing"]


def test_json_body_text_is_not_kept(api):
    """A list far longer than what a JSON body may have is read as it arrives."""
    n = 1500000
    body = json.dumps([0.123456789] * n).encode()
    api.create(name="u", shape=[n], dtype="float32")
    api.expect(204, api.request("PUT", "/v1/arrays/u/data", body, content_type=JSON))
    assert api.evaluate("min(u) == max(u)")
