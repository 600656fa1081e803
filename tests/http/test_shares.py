"""Shares of arrays, as far as one principal goes; test_sharing.py has two."""
import numpy as np
import pytest


def test_nobody_else_is_there(api):
    api.upload(np.ones(3), "u")
    assert api.expect(200, api.get("/v1/arrays/u/shares")).json() == {"shares": []}
    e = api.fails(404, "not_found", api.post("/v1/arrays/u/shares", {"principal": "ann", "access": "read"}))
    assert e["pointer"] == "/principal" and "ann" in e["detail"]
    e = api.fails(422, "bad_field", api.post("/v1/arrays/u/shares", {"principal": "local", "access": "read"}))
    assert e["pointer"] == "/principal"
    api.fails(404, "not_found", api.delete("/v1/arrays/u/shares/ann"))
    assert api.info()["limits"]["max_shares"] == 10000


@pytest.mark.parametrize("body,code,pointer", [
    ({"principal": "ann"}, "bad_field", "/access"), ({"access": "read"}, "bad_field", "/principal"),
    ({"principal": "ann", "access": "all"}, "bad_field", "/access"), ({"principal": 7, "access": "read"}, "bad_field", "/principal"),
    ({"principal": "ann", "access": "read", "until": 1}, "unknown_field", "/until")])
def test_what_is_no_share(api, body, code, pointer):
    api.upload(np.ones(3), "u")
    assert api.fails(422, code, api.post("/v1/arrays/u/shares", body))["pointer"] == pointer
    for method, path in (("POST", "nothing/shares"), ("GET", "nothing/shares"), ("DELETE", "nothing/shares/ann")):
        api.fails(404, "not_found", api.request(method, f"/v1/arrays/{path}", json_body=body if method == "POST" else None))
