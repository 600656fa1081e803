"""Small promises that no other file is about: limits, defaults spelled out, headers, raw halves."""
import json

import numpy as np
import pytest

from client import JSON, NPY, OCTETS, npy_bytes


def void_npy(n):
    return npy_bytes(np.zeros(n, "V2"))


def test_dtype_of_written_data_is_the_arrays_own(api):
    api.create(name="b", shape=[3], dtype="bfloat16")
    api.create(name="u", shape=[3], dtype="float32")
    put = lambda target, body, kind: api.request("PUT", f"/v1/arrays/{target}", body, content_type=kind)  # noqa: E731
    api.expect(204, put("b/data?dtype=bfloat16", void_npy(3), NPY))
    api.expect(204, put("u/data?dtype=float32&index=1:", bytes(8), OCTETS))
    api.fails(422, "dtype_mismatch", put("u/data?dtype=bfloat16", void_npy(3), NPY))
    api.fails(422, "dtype_mismatch", put("u/data?dtype=int32", bytes(12), OCTETS))
    api.fails(422, "bad_dtype", put("u/data?dtype=float31", bytes(12), OCTETS))
    api.fails(400, "bad_query", api.get("/v1/arrays/u/data?dtype=float32"))


def test_json_limits_hold_for_every_body(daemon_with):
    d = daemon_with("--max-json-values", 100, "--max-json-depth", 10)
    c = d.client()
    limits = c.info()["limits"]
    assert limits["max_json_values"] == 100 and limits["max_json_depth"] == 10
    c.create(name="u", shape=[2])
    many, deep = [0] * 200, json.loads("[" * 12 + "]" * 12)
    for method, path, member in (("POST", "/v1/evaluate", "bind"), ("POST", "/v1/explain", "bind"),
                                 ("POST", "/v1/arrays", "fill"), ("POST", "/v1/arrays/u/views", "permute"),
                                 ("POST", "/v1/arrays/u/resize", "shape"), ("PATCH", "/v1/arrays/u", "name"),
                                 ("POST", "/v1/sessions", "name"), ("POST", "/v1/arrays/u/copy", "name")):
        c.fails(413, "too_large", c.request(method, path, json_body={member: many}))
        c.fails(400, "bad_json", c.request(method, path, json_body={member: deep}))
    c.expect(201, c.post("/v1/arrays", {"data": many}))  # elements are not counted
    c.close()


@pytest.mark.parametrize("method,path,body,kind", [
    ("POST", "/v1/evaluate", b'{"expr":"1"}', JSON), ("PUT", "/v1/arrays/u/data", bytes(16), OCTETS),
    ("POST", "/v1/arrays", b'{"shape":[2]}', JSON)])
def test_coded_bodies_are_refused(api, method, path, body, kind):
    api.create(name="u", shape=[2])
    send = lambda coding: api.request(method, path, body, {"Content-Encoding": coding}, content_type=kind)  # noqa: E731
    for coding in ("gzip", "br", "identity, gzip"):
        api.fails(415, "unsupported_media_type", send(coding))
    assert send("Identity").status < 300


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_probes_take_what_they_get(api, path):
    assert api.get(path, accept="text/html", check=False).status == 200


def test_empty_lists_stand_for_what_they_cannot_spell(api):
    assert api.create(data=[], shape=[0, 3])["shape"] == [0, 3]
    assert api.create(data=[[], []], shape=[2, 0, 3], dtype="int8")["shape"] == [2, 0, 3]
    for shape in ([3, 0], [1, 0, 3], [2]):
        api.fails(422, "shape_mismatch", api.post("/v1/arrays", {"data": [], "shape": shape}))


def test_no_ghosts_may_be_said(api):
    api.create(name="u", shape=[2, 3], ghost=[0, 0])
    api.expect(201, api.post("/v1/arrays/u/views", {"index": "0", "ghost": False}))
    api.fails(422, "bad_field", api.post("/v1/arrays", {"shape": [2], "ghost": 0}))
    api.fails(422, "bad_field", api.post("/v1/arrays/u/views", {"ghost": 0}))


def test_literals_past_127_bits_say_what_to_do(api):
    problem = api.fails(422, "bad_expression", api.post("/v1/evaluate", {"expr": "2**200"}))
    assert "exactly up to 127 bits" in problem["detail"]
    assert api.evaluate("2.0**200") == 2.0**200


@pytest.mark.in_turn
def test_limits_can_be_raised(daemon_with):
    """The most that the settings allow is also survived: the deepest recursion there is."""
    n = 4000
    c = daemon_with("--max-nesting", n, "--max-json-depth", 100_000, "--max-nodes", 50_000,
                    "--max-header", "1MiB").client()
    limits = c.info()["limits"]
    assert (limits["max_nesting"], limits["max_json_depth"], limits["max_header"]) == (n, 100_000, 1 << 20)
    c.create(name="u", data=[1.0])
    for deep in ("(" * n + "u" + ")" * n, "-" * n + "u", "abs(" * n + "u" + ")" * n, "u" + "**1" * n,
                 "where(u," * n + "u" + ",u)" * n, "u" + "[0:1]" * n):
        assert c.evaluate(deep).tolist() == [1]
        c.expect(200, c.post("/v1/explain", {"expr": deep}))
        if deep[0] in "(-":
            c.fails(422, "expression_too_large", c.post("/v1/evaluate", {"expr": f"-({deep})"}))
    tree = '{"op":"abs","args":[' * (n - 1) + '"u"' + "]}" * (n - 1)
    r = c.request("POST", "/v1/evaluate", f'{{"inline":true,"tree":{tree}}}'.encode(), content_type=JSON,
                  check=False)  # too deep for the checking
    assert r.status == 200 and r.json()["data"] == [1]
    lists = "[" * 99_999 + "]" * 99_999
    c.fails(422, "bad_shape", c.request("POST", "/v1/arrays", f'{{"data":{lists}}}'.encode(), content_type=JSON))
    assert c.get("/v1/info", headers={"X-Long": "a" * 900_000}).status == 200
    r = c.get("/v1/info", headers={"X-Long": "a" * (1 << 20)}, check=False)
    assert r.status == 431
    c.close()


def test_fixed_limits_are_listed(api):
    limits = api.info()["limits"]
    for name, value in (("max_rank", 32), ("max_name", 64), ("max_page", 1000), ("max_query_parameters", 64),
                        ("max_npy_header", 65536), ("max_ignored_body", 65536), ("max_unread_body", 64 << 20),
                        ("unread_body_timeout", 2), ("max_number_length", 4096), ("max_empty_lists", 1 << 24),
                        ("max_alignment", 4096), ("max_operations", 1 << 18), ("max_parameters", 16)):
        assert limits[name] == value
    longest = "0." + "1" * (limits["max_number_length"] - 2)
    assert api.post("/v1/evaluate", {"expr": longest}).json()["value"] == pytest.approx(1 / 9)
    r = api.post("/v1/evaluate", {"expr": longest + "1"})
    assert "too long" in api.fails(422, "bad_expression", r)["detail"]
    body = {"name": "f", "params": [f"p{i}" for i in range(limits["max_parameters"] + 1)], "expr": "1"}
    assert "up to 16" in api.fails(422, "bad_field", api.post("/v1/functions", body))["detail"]
    body = {"shape": [4], "ghost": [1], "alignment": 2*limits["max_alignment"]}
    assert "to 4096" in api.fails(422, "bad_field", api.post("/v1/arrays", body))["detail"]
    many = "&".join(f"k{i}=1" for i in range(limits["max_query_parameters"] + 1))
    assert "more than 64" in api.fails(400, "bad_query", api.get(f"/v1/info?{many}"))["detail"]
    api.fails(422, "bad_name", api.post("/v1/arrays", {"shape": [1], "name": "n" * (limits["max_name"] + 1)}))


def test_ignored_and_unread_bodies_have_limits(daemon_with):
    c = daemon_with("--max-ignored-body", 10, "--max-unread-body", 1000).client()
    assert c.request("GET", "/v1/info", b"x" * 10).status == 200
    c.fails(413, "too_large", c.request("GET", "/v1/info", b"x" * 11))
    r = c.request("POST", "/v1/arrays", b"x" * 900, content_type="text/html")  # read, kept open
    assert r.status == 415 and r.headers.get("Connection") != "close"
    r = c.request("POST", "/v1/arrays", b"x" * 1100, content_type="text/html")
    assert r.status == 415 and r.headers.get("Connection") == "close"
    c.close()
