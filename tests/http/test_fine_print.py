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
    api.fails(422, "bad_field", api.post("/v1/arrays", {"shape": [2], "ghost": [1]}))
    api.fails(422, "bad_field", api.post("/v1/arrays", {"shape": [2], "ghost": 0}))
    api.fails(422, "bad_field", api.post("/v1/arrays/u/views", {"ghost": 0}))


def test_literals_past_127_bits_say_what_to_do(api):
    problem = api.fails(422, "bad_expression", api.post("/v1/evaluate", {"expr": "2**200"}))
    assert "exact to 127 bits" in problem["detail"]
    assert api.evaluate("2.0**200") == 2.0**200
