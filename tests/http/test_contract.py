"""The contract's section 1 (conventions), rule by rule.

Every reply is also held against protocol/openapi.yaml by the client. The other sections follow in
test_contract_*.py; the last test of the run, here, checks that all tests together asked for every
route there is.
"""
import math
import re

import numpy as np
import pytest

from client import DTYPES, JSON, NPY, OCTETS, PROBLEM

ITEMSIZE = {"bool": 1, "bfloat16": 2}


def itemsize(dtype):
    return ITEMSIZE.get(dtype) or np.dtype(dtype).itemsize


# --- 1. conventions ---


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_on_the_wire(api, dtype):
    size = itemsize(dtype)
    raw = bytes([1, 0, 1, 1, 0, 1]) if dtype == "bool" else bytes(range(6 * size))
    r = api.request("POST", f"/v1/arrays?dtype={dtype}&shape=2,3", raw, content_type=OCTETS)
    meta = api.expect(201, r).json()
    assert (meta["dtype"], meta["shape"], meta["strides"]) == (dtype, [2, 3], [3, 1])
    assert (meta["size"], meta["nbytes"], meta["itemsize"]) == (6, 6 * size, size)
    assert api.get(f"/v1/arrays/{meta['id']}/data", accept=OCTETS).body == raw


def test_little_endian_and_c_order(api):
    meta = api.create(dtype="int32", data=[[1, 2], [3, 0x01020304]])
    r = api.get(f"/v1/arrays/{meta['id']}/data")
    assert r.type == OCTETS
    assert r.body == b"\1\0\0\0\2\0\0\0\3\0\0\0\4\3\2\1"


def test_complex_is_re_im(api):
    meta = api.create(dtype="complex64", data=[[1.5, -2], [0, 1]])
    assert meta["shape"] == [2]
    raw = api.get(f"/v1/arrays/{meta['id']}/data").body
    assert raw == np.array([1.5, -2, 0, 1], "<f4").tobytes()
    data = api.get(f"/v1/arrays/{meta['id']}/data", accept=JSON).json()
    assert data == [[1.5, -2], [0, 1]]


def test_bool_is_one_byte(api):
    meta = api.create(data=[True, False, True])
    assert meta["dtype"] == "bool"
    assert api.get(f"/v1/arrays/{meta['id']}/data").body == b"\1\0\1"


def test_bfloat16_as_npy(api):
    raw = np.array([1, 2, -3], "<f4").view("<u2")[1::2].tobytes()
    meta = api.expect(201, api.request("POST", "/v1/arrays?dtype=bfloat16&shape=3", raw,
                                       content_type=OCTETS)).json()
    r = api.get(f"/v1/arrays/{meta['id']}/data", accept=NPY)
    assert b"'|V2'" in r.body[:128]
    assert r.body.endswith(raw)
    again = api.request("POST", "/v1/arrays?dtype=bfloat16", r.body, content_type=NPY)
    assert api.expect(201, again).json()["dtype"] == "bfloat16"
    assert api.get(f"/v1/arrays/{again.json()['id']}/data").body == raw


@pytest.mark.parametrize("rank", [0, 1, 2, 16, 31, 32])
def test_ranks(api, rank):
    shape = ([2] * min(rank, 3) + [1] * rank)[:rank]
    meta = api.create(shape=shape, dtype="int16")
    assert meta["shape"] == shape and len(meta["strides"]) == rank
    assert meta["size"] == math.prod(shape)
    assert api.get(f"/v1/arrays/{meta['id']}/data").body == bytes(2 * meta["size"])


@pytest.mark.parametrize("shape", [[0], [3, 0], [0, 4, 5]])
def test_extents_may_be_zero(api, shape):
    meta = api.create(shape=shape)
    assert (meta["shape"], meta["size"], meta["nbytes"]) == (shape, 0, 0)
    assert api.get(f"/v1/arrays/{meta['id']}/data").body == b""
    assert api.download(meta["id"]).shape == tuple(shape)


@pytest.mark.parametrize("shape", [
    [1] * 33, [-1], [1.5], ["3"], [True], "3", 3, [None], [[2]], [2**63], [2**40, 2**40],
    [2**62, 2], [2**61, 8]])
def test_bad_shapes(api, shape):
    r = api.post("/v1/arrays", {"shape": shape, "dtype": "float64"})
    assert r.status == 422 and r.code in ("bad_shape", "bad_field", "inexact_number"), r
    assert r.json()["pointer"].startswith("/shape")


def test_sizes_that_do_not_exist(api):
    """Not an overflow, but nobody has that much."""
    r = api.post("/v1/arrays", {"shape": [2**52], "dtype": "float64"})
    assert r.status in (422, 429, 507), r


def test_ids_are_opaque_and_random(api):
    ids = [api.create(shape=[1])["id"] for _ in range(20)]
    assert len(set(ids)) == 20
    for i in ids:
        assert re.fullmatch(r"a-[0-9A-Za-z_-]+", i)
        assert len(i) - 2 >= 22  # 128 bits in base 64
    assert max(len(set(column)) for column in zip(*ids)) > 5


@pytest.mark.parametrize("name", ["u", "_", "U_1", "a" * 64, "pi", "sum", "None_"])
def test_good_names(api, name):
    assert api.create(shape=[1], name=name)["name"] == name
    assert api.meta(name)["name"] == name


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", "ä", "a" * 65, "a.b", "-", "a\n"])
def test_bad_names(api, name):
    r = api.post("/v1/arrays", {"shape": [1], "name": name})
    assert api.fails(422, "bad_name", r)["pointer"] == "/name"


def test_name_of_another_type(api):
    r = api.post("/v1/arrays", {"shape": [1], "name": 3})
    assert r.status == 422 and r.code in ("bad_name", "bad_field")


def test_an_id_works_in_every_session_a_name_only_in_its_own(api):
    meta = api.create(name="u", data=[1, 2])
    s = api.expect(201, api.post("/v1/sessions")).json()
    other = api.clone(session=s["id"])
    assert other.meta(meta["id"])["session"] == meta["session"]
    api.fails(404, "not_found", other.get("/v1/arrays/u"))
    assert other.evaluate("x + 1", bind={"x": meta["id"]}).tolist() == [2, 3]
    other.fails(422, "unknown_name", other.post("/v1/evaluate", {"expr": "u + 1"}))
    assert other.create(name="u", shape=[7])["shape"] == [7]  # unique only within a session
    assert api.meta("u")["shape"] == [2]
    other.close()


EDGES = {"int64": [-2**63, 2**63 - 1, 2**53 + 1, -2**53 - 1], "uint64": [2**64 - 1, 2**63, 0]}


@pytest.mark.parametrize("dtype", EDGES)
def test_integers_are_exact_in_data(api, dtype):
    meta = api.create(dtype=dtype, data=EDGES[dtype])
    assert api.download(meta["id"]).tolist() == EDGES[dtype]
    assert api.get(f"/v1/arrays/{meta['id']}/data", accept=JSON).json() == EDGES[dtype]
    r = api.put(f"/v1/arrays/{meta['id']}/data", EDGES[dtype][::-1])
    api.expect(204, r)
    assert api.download(meta["id"]).tolist() == EDGES[dtype][::-1]


@pytest.mark.parametrize("value", [2**53 + 1, 2**63 - 1, -2**63, 2**64 - 1])
def test_integers_are_exact_in_infix_and_replies(api, value):
    r = api.post("/v1/evaluate", {"expr": str(value)})
    assert api.expect(200, r).json()["value"] == value
    dtype = "uint64" if value >= 2**63 else "int64"
    assert r.json()["dtype"] == dtype
    api.create(name="z", shape=[1], dtype=dtype)
    assert api.evaluate(f"z + {value}").tolist() == [value]


@pytest.mark.parametrize("value", [2**53 + 1, -2**53 - 1, 2**63, 10**30])
def test_inexact_json_numbers_are_refused(api, value):
    api.create(name="a", shape=[1], dtype="int64")
    problem = api.fails(422, "inexact_number",
                        api.post("/v1/evaluate", {"tree": {"op": "add", "args": ["a", value]}}))
    assert problem["pointer"] == "/tree/args/1"
    assert "const" in problem["detail"]
    api.fails(422, "inexact_number", api.post("/v1/arrays", {"shape": [1], "fill": value}))
    api.fails(422, "inexact_number",
              api.post("/v1/evaluate", {"expr": "a + b", "bind": {"b": value}}))


@pytest.mark.parametrize("value", [2**53, -2**53])
def test_exact_json_numbers_are_taken(api, value):
    assert api.evaluate({"op": "add", "args": [value, 0]}) == value
    api.create(name="f", shape=[1], dtype="int64", fill=value)
    assert api.download("f").tolist() == [value]


def test_the_way_out_of_inexact_numbers(api):
    tree = {"op": "const", "value": "9007199254740993", "dtype": "int64"}
    r = api.post("/v1/evaluate", {"tree": tree})
    assert api.expect(200, r).json() == {"dtype": "int64", "shape": [], "value": 9007199254740993}


def test_nan_and_infinity_are_strings(api):
    meta = api.create(data=["NaN", "Infinity", "-Infinity", 1.5])
    assert meta["dtype"] == "float64"
    got = api.download(meta["id"])
    assert np.isnan(got[0]) and got[1] == np.inf and got[2] == -np.inf
    data = api.get(f"/v1/arrays/{meta['id']}/data", accept=JSON).json()
    assert data == ["NaN", "Infinity", "-Infinity", 1.5]
    assert api.post("/v1/evaluate", {"expr": "-inf"}).json()["value"] == "-Infinity"
    assert api.post("/v1/evaluate", {"expr": "nan"}).json()["value"] == "NaN"


def test_complex_in_replies(api):
    r = api.expect(200, api.post("/v1/evaluate", {"expr": "2j + 1"}))
    assert r.json() == {"dtype": "complex128", "shape": [], "value": [1, 2]}


# Errors


def test_problem_details(api):
    r = api.get("/v1/arrays/a-nothing")
    assert (r.status, r.type) == (404, PROBLEM)
    problem = r.json()
    assert problem["status"] == 404 and problem["code"] == "not_found"
    assert problem["title"] and problem["detail"] and problem["type"]


def test_pointer_and_offset(api):
    api.create(name="a", data=[1.0, 2.0])
    r = api.fails(422, "unknown_name", api.post("/v1/evaluate", {"expr": "a + bb * 2"}))
    assert r["pointer"] == "/expr" and r["offset"] == 4
    r = api.fails(422, "bad_expression", api.post("/v1/evaluate", {"expr": "a + * 2"}))
    assert r["pointer"] == "/expr" and r["offset"] == 4
    r = api.fails(422, "unknown_name",
                  api.post("/v1/evaluate", {"tree": {"op": "add", "args": [1, {"op": "sin", "args": ["q"]}]}}))
    assert r["pointer"] == "/tree/args/1/args/0"
    r = api.fails(422, "unknown_name",
                  api.post("/v1/evaluate", {"expr": "m", "let": [["k", "1"], ["m", "k + q"]]}))
    assert r["pointer"] == "/let/1/1" and r["offset"] == 4


def test_offsets_count_characters(api):
    r = api.post("/v1/evaluate", {"expr": "'äöü' + q"})
    assert r.status == 422 and r.json().get("offset") in (0, 6, 8)
    r = api.fails(422, "unknown_operation", api.post("/v1/evaluate", {"expr": "1 + foo(2)"}))
    assert r["offset"] == 4


BAD_JSON = [b"", b"{", b"{]", b"{'a':1}", b'{"a":01}', b'{"a":1,}', b'{"a":+1}', b'{"a":.5}',
            b'{"a":NaN}', b'{"a":1} x', b'{"a":"\x01"}', b'{"a":"\xff"}', b'{"shape":[1],"shape":[2]}',
            b'\xef\xbb\xbf{"shape":[1]}', b'{"a":tru}', b'{"a":"\\x"}', b'{"a":1.}', b'{"a":1e}',
            b'// c\n{}', b'{"a" 1}', b'{"fill":{"x":1,"x":2},"shape":[1]}']


@pytest.mark.parametrize("body", BAD_JSON)
@pytest.mark.parametrize("path", ["/v1/arrays", "/v1/evaluate"])
def test_text_that_is_not_json_is_400(api, path, body):
    api.fails(400, "bad_json", api.request("POST", path, body, content_type=JSON))


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"null", b"true"])
@pytest.mark.parametrize("path", ["/v1/arrays", "/v1/evaluate", "/v1/explain", "/v1/sessions"])
def test_json_that_is_no_object_is_422(api, path, body):
    api.fails(422, "bad_field", api.request("POST", path, body, content_type=JSON))


def test_depth_of_json(api):
    deep = b'{"x":' + b"[" * 1001 + b"]" * 1001 + b"}"
    api.fails(400, "bad_json", api.request("POST", "/v1/evaluate", deep, content_type=JSON))


UNKNOWN_FIELDS = [
    ("POST", "/v1/arrays", {"shape": [1], "colour": 1}),
    ("POST", "/v1/sessions", {"colour": 1}),
    ("POST", "/v1/evaluate", {"expr": "1", "colour": 1}),
    ("POST", "/v1/explain", {"expr": "1", "colour": 1}),
    ("PATCH", "/v1/arrays/u", {"colour": 1}),
    ("POST", "/v1/arrays/u/views", {"colour": 1}),
    ("POST", "/v1/arrays/u/resize", {"shape": [1], "colour": 1}),
    ("POST", "/v1/arrays/u/copy", {"colour": 1}),
    ("POST", "/v1/arrays/u/swap", {"with": "u", "colour": 1}),
    ("PUT", "/v1/arrays/v", {"shape": [1], "colour": 1})]


@pytest.mark.parametrize("method,path,body", UNKNOWN_FIELDS)
def test_unknown_members(api, method, path, body):
    api.create(name="u", shape=[1])
    problem = api.fails(422, "unknown_field", api.request(method, path, json_body=body))
    assert problem["pointer"] == "/colour"


def test_members_are_case_sensitive(api):
    api.fails(422, "unknown_field", api.post("/v1/arrays", {"Shape": [1]}))


ALLOWED = {
    "/healthz": {"GET"}, "/readyz": {"GET"}, "/metrics": {"GET"}, "/openapi.json": {"GET"},
    "/": {"GET"}, "/page/main.js": {"GET"}, "/v1/info": {"GET"}, "/v1/login": {"GET", "POST"}, "/v1/logout": {"POST"}, "/v1/logins": {"DELETE"}, "/v1/links": {"GET", "POST"}, "/v1/links/v": {"DELETE"},
    "/v1/sessions": {"GET", "POST"}, "/v1/sessions/s": {"GET", "DELETE"},
    "/v1/arrays/u/events": {"GET"}, "/v1/events": {"GET"},
    "/v1/files": {"GET"}, "/v1/files/data": {"GET"},
    **{f"/v1/files/{x}": {"GET", "POST"} for x in ("import", "export", "bundle")},  # a folder may be called so
    "/v1/programs": {"POST"}, "/v1/jobs": {"GET"}, "/v1/jobs/j": {"GET", "DELETE"},
    "/v1/jobs/j/events": {"GET"}, "/v1/jobs/j/resume": {"POST"},
    "/v1/functions": {"GET", "POST"}, "/v1/functions/f": {"GET", "PUT", "DELETE"},
    "/v1/sessions/s/sync": {"POST"}, "/v1/arrays": {"GET", "POST"},
    "/v1/arrays/u": {"GET", "PUT", "PATCH", "DELETE"}, "/v1/arrays/u/resize": {"POST"},
    "/v1/arrays/u/views": {"POST"}, "/v1/arrays/u/copy": {"POST"}, "/v1/arrays/u/swap": {"POST"},
    "/v1/arrays/u/shares": {"GET", "POST"}, "/v1/arrays/u/shares/p": {"DELETE"},
    "/v1/arrays/u/lease": {"POST", "DELETE"}, "/v1/arrays/u/export": {"POST"}, "/v1/arrays/u/fill_ghost": {"POST"}, "/v1/layouts": {"POST"}, "/v1/snapshot": {"POST"},
    "/v1/faults": {"GET", "DELETE"}, "/v1/faults/u": {"DELETE"},
    "/v1/arrays/u/data": {"GET", "PUT"}, "/v1/arrays/u/summary": {"GET"},
    "/v1/admin/sessions": {"GET"}, "/v1/admin/sessions/s": {"DELETE"}, "/v1/admin/jobs": {"GET"}, "/v1/admin/jobs/j": {"DELETE"},
    "/v1/admin/arrays": {"GET"}, "/v1/admin/arrays/a": {"DELETE"}, "/v1/admin/principals": {"GET"},
    "/v1/admin/principals/p": {"PATCH", "DELETE"}, "/v1/admin/principals/p/logins": {"DELETE"}, "/v1/admin/audit": {"GET"}, "/v1/evaluate": {"POST"}, "/v1/explain": {"POST"}}


@pytest.mark.parametrize("path", ALLOWED)
def test_405_with_allow(api, path):
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - ALLOWED[path]:
        r = api.request(method, path)
        api.fails(405, "method_not_allowed", r)
        allow = set(re.split(r",\s*", r.headers["Allow"]))
        assert allow - {"HEAD", "OPTIONS"} == ALLOWED[path]


def test_every_path_is_in_the_table(contract):
    assert {contract.template(p) for p in ALLOWED} == set(contract.doc["paths"])


@pytest.mark.parametrize("path", ["/nothing", "/v1", "/v1/", "/v1/array", "/v1/arrays/", "/v2/arrays",
                                  "/v1/arrays/u/nothing", "/v1/arrays/u/data/x", "//v1/info"])
def test_404(api, path):
    for method in ("GET", "POST", "DELETE"):
        api.fails(404, "not_found", api.request(method, path))


@pytest.mark.parametrize("path", ["/v1/arrays", "/v1/evaluate", "/v1/explain"])
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded",
                                  "multipart/form-data; boundary=x", "application/jsonx"])
def test_415_suggests_curl_json(api, path, kind):
    problem = api.fails(415, "unsupported_media_type",
                        api.request("POST", path, b'{"expr":"1"}', content_type=kind))
    assert "curl --json" in problem["detail"]


def test_json_routes_want_a_json_content_type(api):
    api.fails(415, "unsupported_media_type", api.request("POST", "/v1/evaluate", b'{"expr":"1"}'))


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8",
                                  "Application/JSON;charset=UTF-8", "application/json ; x=y",
                                  'application/json; charset="utf-8"'])
def test_content_type_is_parsed(api, kind):
    r = api.request("POST", "/v1/evaluate", b'{"expr":"1+1"}', content_type=kind)
    assert api.expect(200, r).json()["value"] == 2


@pytest.mark.parametrize("path", ["/v1/info", "/v1/arrays", "/v1/sessions", "/v1/arrays/u",
                                  "/v1/arrays/u/data"])
def test_406(api, path):
    api.create(name="u", shape=[1])
    api.fails(406, "not_acceptable", api.get(path, accept="image/png"))


ACCEPTS = [
    (None, OCTETS), ("*/*", OCTETS), ("application/*", OCTETS), (OCTETS, OCTETS), (NPY, NPY),
    (JSON, JSON), (f"{JSON};q=0.5, {NPY}", NPY), (f"{JSON}, {OCTETS};q=0.9", JSON),
    (f"{NPY};q=0.1, {JSON};q=0.2, {OCTETS};q=0", JSON), (f"image/png, {NPY};q=0.3", NPY),
    (f"{OCTETS};q=0, {JSON};q=0, */*;q=0.5", NPY), ("APPLICATION/JSON", JSON),
    (f"image/png,,{JSON} ; q=1.0", JSON), (f"*/*;q=0.1,{NPY}", NPY),
    (f"{JSON};charset=utf-8", JSON)]


@pytest.mark.parametrize("accept,kind", ACCEPTS)
def test_accept_is_negotiated(api, accept, kind):
    api.create(name="u", data=[1.0, 2.0])
    r = api.get("/v1/arrays/u/data", accept=accept)
    assert api.expect(200, r).type == kind


@pytest.mark.parametrize("accept", [f"{JSON};q=0", "image/png;q=0.9, text/*", f"{OCTETS};q=0, {NPY};q=0, {JSON};q=0"])
def test_accept_that_excludes(api, accept):
    api.create(name="u", data=[1.0, 2.0])
    api.fails(406, "not_acceptable", api.get("/v1/arrays/u/data", accept=accept))


def test_request_ids_differ(api):
    ids = {api.get("/healthz").headers["X-Request-Id"] for _ in range(5)}
    assert len(ids) == 5


def metrics_of(header):
    timing = {}
    for entry in header.split(","):
        name, *params = entry.strip().split(";")
        durations = [p.strip()[4:] for p in params if p.strip().startswith("dur=")]
        timing[name] = float(durations[0])
    return timing


def test_server_timing(api):
    api.create(name="u", shape=[1000])
    timing = metrics_of(api.post("/v1/evaluate", {"expr": "u + 1", "name": "v"}).headers["Server-Timing"])
    assert {"parse", "plan", "compile"} <= set(timing)
    waited = metrics_of(api.post("/v1/evaluate", {"expr": "sum(u)"}).headers["Server-Timing"])
    assert {"parse", "plan", "compile"} <= set(waited)
    assert {"cpu", "gpu"} & set(waited)
    assert all(0 <= t < 60000 for t in waited.values())


def test_traceparent_is_accepted(api):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    api.expect(200, api.get("/v1/info", headers={"traceparent": trace}))
    api.expect(200, api.get("/v1/info", headers={"traceparent": "nonsense"}))


def test_a_failed_request_changes_nothing(api):
    meta = api.create(name="u", data=[1.0, 2.0, 3.0])
    before = api.info()["bytes_in_use"]
    for body in ({"expr": "u + q", "out": "u"}, {"expr": "u[5]", "out": "u"},
                 {"expr": "1j * u", "out": "u"}, {"expr": "u + u[:2]", "name": "w"}):
        assert api.post("/v1/evaluate", body).status == 422
    api.fails(409, "conflict", api.post("/v1/arrays", {"shape": [5], "name": "u"}))
    assert api.download("u").tolist() == [1, 2, 3]
    assert [a["id"] for a in api.list_all("/v1/arrays", "arrays")] == [meta["id"]]
    assert api.info()["bytes_in_use"] == before


@pytest.mark.parametrize("path", ["/v1/arrays?limit=1&limit=2", "/v1/arrays/%75", "/v1/ar%72ays"])
def test_400_of_the_target(api, path):
    r = api.get(path, check=False)
    assert r.status == 400 and r.type == PROBLEM, r


# --- the end ---


@pytest.mark.last
def test_every_route_was_hit(contract):
    missed = contract.operations() - contract.hits
    assert not missed, f"no test asked for {sorted(missed)}"
