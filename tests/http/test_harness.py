"""The harness can fail: replies that break the contract are refused, good ones are not."""
import json

import pytest

from client import JSON, PROBLEM, Contract, ContractError, Reply, Headers

META = {"id": "a-0123456789abcdef0123456789", "name": None, "dtype": "int8", "shape": [2], "strides": [1], "offset": 0,
        "size": 2, "nbytes": 2, "itemsize": 1, "alignment": 64, "ghost": [0], "boundary": [[{"type": "none"}] * 2], "spacing": [1],
        "references": 1, "session": "s-0123456789abcdef0123456789", "created": "2025-01-02T03:04:05Z",
        "read_only": False, "location": "device", "device": 0}
PROBLEM_BODY = {"type": "about:blank", "title": "Not found", "status": 404, "code": "not_found", "detail": "no such array"}
ALWAYS = {"X-Request-Id": "0123456789abcdef", "Server-Timing": "parse;dur=0.1"}


@pytest.fixture
def own():
    """A contract of its own, so that nothing here counts as a route that was hit."""
    return Contract()


def check(own, method, path, status, headers, body, request=None):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    own.check(method, path, {"Content-Type": JSON} if request else {}, request, Reply(status, headers.items(), body))


def good(kind=JSON, **more):
    return {**ALWAYS, "Content-Type": kind, **more}


def test_good_replies_pass(own):
    check(own, "GET", "/v1/arrays/u", 200, good(), META)
    check(own, "GET", "/v1/arrays/u", 404, good(PROBLEM), PROBLEM_BODY)
    check(own, "POST", "/v1/arrays", 201, good(Location="/v1/arrays/a-1"), META, b'{"shape":[2]}')
    check(own, "DELETE", "/v1/arrays/u", 204, ALWAYS, b"")
    check(own, "HEAD", "/v1/arrays/u", 200, good(), b"")
    check(own, "OPTIONS", "/v1/arrays/u", 204, {**ALWAYS, "Allow": "GET"}, b"")
    check(own, "GET", "/nothing", 404, good(PROBLEM), PROBLEM_BODY)
    assert own.hits == {("GET", "/v1/arrays/{ref}"), ("POST", "/v1/arrays"), ("DELETE", "/v1/arrays/{ref}")}


BAD = {
    "status not listed": ("GET", "/v1/arrays/u", 202, good(), META),
    "no request id": ("GET", "/v1/arrays/u", 200, {"Content-Type": JSON, "Server-Timing": "parse;dur=1"}, META),
    "no timing": ("GET", "/v1/arrays/u", 200, {"Content-Type": JSON, "X-Request-Id": "0123456789"}, META),
    "no location": ("POST", "/v1/arrays", 201, good(), META),
    "no retry-after": ("POST", "/v1/arrays", 429, good(PROBLEM), {**PROBLEM_BODY, "status": 429, "code": "quota_exceeded"}),
    "media type": ("GET", "/v1/arrays/u", 200, good("text/plain"), META),
    "unknown member": ("GET", "/v1/arrays/u", 200, good(), {**META, "colour": 1}),
    "missing member": ("GET", "/v1/arrays/u", 200, good(), {k: v for k, v in META.items() if k != "size"}),
    "bad member": ("GET", "/v1/arrays/u", 200, good(), {**META, "dtype": "float31"}),
    "bad id": ("GET", "/v1/arrays/u", 200, good(), {**META, "id": "7"}),
    "code of another status": ("GET", "/v1/arrays/u", 404, good(PROBLEM), {**PROBLEM_BODY, "code": "conflict"}),
    "unknown code": ("GET", "/v1/arrays/u", 404, good(PROBLEM), {**PROBLEM_BODY, "code": "oops"}),
    "status in the body": ("GET", "/v1/arrays/u", 404, good(PROBLEM), {**PROBLEM_BODY, "status": 409}),
    "error as plain json": ("GET", "/v1/arrays/u", 404, good(), PROBLEM_BODY),
    "body with 204": ("DELETE", "/v1/arrays/u", 204, ALWAYS, b"x"),
    "405 without allow": ("PUT", "/v1/info", 405, good(PROBLEM), {**PROBLEM_BODY, "status": 405, "code": "method_not_allowed"}),
    "404 for a method": ("PUT", "/v1/info", 404, good(PROBLEM), PROBLEM_BODY),
    "an undocumented route": ("GET", "/v1/secret", 200, good(), {}),
    "an undocumented parameter": ("GET", "/v1/arrays?colour=red", 200, good(), {"arrays": []}),
    "NaN in JSON": ("POST", "/v1/evaluate", 200, good(), b'{"dtype":"float64","shape":[],"value":NaN}'),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_replies_are_refused(own, name):
    with pytest.raises((ContractError, ValueError)):
        check(own, *BAD[name])


def test_an_undocumented_request_is_refused(own):
    with pytest.raises(ContractError):
        check(own, "POST", "/v1/arrays", 201, good(Location="/v1/arrays/a-1"), META, b'{"shape":[2],"colour":1}')


def test_headers():
    h = Headers([("A", "1"), ("a", "2"), ("B", "3")])
    assert h["A"] == "1, 2" and h["b"] == "3" and "C" not in h
