"""If-Match and If-None-Match where a request changes an array (RFC 9110, 13).

A condition that does not hold is 412 and nothing has changed; where the request would have failed
anyway, that failure is the answer.
"""
import socket
import threading

import numpy as np
import pytest

from client import JSON, NPY, OCTETS


def make(api, name="u", fill=1.0):
    r = api.put(f"/v1/arrays/{name}", {"shape": [4], "dtype": "float32", "fill": fill})
    assert r.status in (200, 201), r
    return r.json()["id"]


def tag(api, ref="u", accept=OCTETS, query=""):
    r = api.get(f"/v1/arrays/{ref}/data{query}", headers={"Accept": accept})
    assert r.status == 200, r
    return r.headers["ETag"]


def values(api, ref="u"):
    return np.frombuffer(api.get(f"/v1/arrays/{ref}/data").body, "<f4").tolist()


def put_data(api, query="", value=7.0, n=4, **headers):
    body = np.full(n, value, "<f4").tobytes()
    return api.request("PUT", f"/v1/arrays/u/data{query}", body,
                       {"Content-Type": OCTETS, **{k.replace("_", "-"): v for k, v in headers.items()}})


def refused(r):
    assert r.status == 412, r
    assert r.json()["code"] == "precondition_failed"
    return True


@pytest.mark.parametrize("accept", [OCTETS, NPY, JSON])
def test_data_if_match(api, accept):
    make(api)
    etag = tag(api, accept=accept)
    assert put_data(api, If_Match=etag).status == 204
    assert refused(put_data(api, value=8, If_Match=etag)), "the tag is of older contents"
    assert values(api) == [7] * 4
    assert put_data(api, value=9, If_Match=f'"other", {tag(api)}').status == 204
    assert put_data(api, value=10, If_Match="*").status == 204


@pytest.mark.parametrize("header", ['"nonsense"', "W/{}", "nonsense", '"unclosed', "", '"a" "b"', ","])
def test_data_if_match_that_does_not_hold(api, header):
    make(api)
    assert refused(put_data(api, If_Match=header.format(tag(api))))
    assert values(api) == [1] * 4


def test_data_if_none_match(api):
    make(api)
    etag = tag(api)
    for header in ("*", etag, f"W/{etag}", f'"x" , {etag}'):
        assert refused(put_data(api, If_None_Match=header))
    assert values(api) == [1] * 4
    assert put_data(api, If_None_Match='"x"').status == 204
    assert put_data(api, If_None_Match=etag).status == 204


def test_a_region_has_the_tags_of_both(api):
    make(api)
    for etag in (tag(api), tag(api, query="?index=1:3"), tag(api, query="?index=1:3")):
        r = put_data(api, "?index=1:3", n=2, If_Match=etag)
        assert r.status == 204 or refused(r)
    make(api)
    whole, part = tag(api), tag(api, query="?index=1:3")
    assert whole != part
    assert refused(put_data(api, If_Match=part)), "a region says nothing about the rest"
    assert put_data(api, "?index=1:3", n=2, If_Match=part).status == 204
    assert refused(put_data(api, "?index=1:3", n=2, If_Match=whole))
    assert put_data(api, "?index=1:3", n=2, If_Match=tag(api)).status == 204


def test_json_and_npy_bodies(api):
    make(api)
    old = tag(api)
    assert put_data(api).status == 204
    r = api.request("PUT", "/v1/arrays/u/data", b"[1, 2, 3, 4]", {"Content-Type": JSON, "If-Match": old})
    assert refused(r)
    assert values(api) == [7] * 4
    r = api.request("PUT", "/v1/arrays/u/data", b"[1, 2, 3, 4]", {"Content-Type": JSON, "If-Match": tag(api)})
    assert r.status == 204


def test_other_failures_come_first(api):
    ident = make(api)
    old = '"other"'
    assert api.request("PUT", "/v1/arrays/nobody/data", b"", {"If-Match": "*"}).status == 404
    assert api.request("DELETE", "/v1/arrays/nobody", headers={"If-Match": "*"}).status == 404
    assert api.request("PUT", "/v1/arrays/u/data", b"x", {"Content-Type": "text/html", "If-Match": old}).status == 415
    assert put_data(api, "?index=9", n=1, If_Match=old).status == 422
    assert api.patch(f"/v1/arrays/{ident}", {"read_only": True}).status == 200
    assert put_data(api, If_Match=old).json()["code"] == "read_only"
    assert api.request("DELETE", "/v1/arrays/u", headers={"If-Match": old}).json()["code"] == "read_only"


def put_array(api, fill, name="u", kind=JSON, **headers):
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    if kind == JSON:
        return api.request("PUT", f"/v1/arrays/{name}", b'{"shape": [4], "dtype": "float32", "fill": %g}' % fill,
                           {"Content-Type": JSON, **headers})
    return api.request("PUT", f"/v1/arrays/{name}?dtype=float32&shape=4",
                       np.full(4, fill, "<f4").tobytes(), {"Content-Type": OCTETS, **headers})


@pytest.mark.parametrize("kind", [JSON, OCTETS])
def test_put_creates_only(api, kind):
    assert put_array(api, 1, kind=kind, If_None_Match="*").status == 201
    assert refused(put_array(api, 2, kind=kind, If_None_Match="*"))
    assert values(api) == [1] * 4
    assert put_array(api, 2, kind=kind, If_None_Match='"x"').status == 200


@pytest.mark.parametrize("kind", [JSON, OCTETS])
def test_put_replaces_only(api, kind):
    assert refused(put_array(api, 1, kind=kind, If_Match="*"))
    assert refused(put_array(api, 1, kind=kind, If_Match='"x"'))
    assert api.get("/v1/arrays/u").status == 404
    make(api)
    etag = tag(api)
    assert put_array(api, 2, kind=kind, If_Match=etag).status == 200
    assert refused(put_array(api, 3, kind=kind, If_Match=etag))
    assert values(api) == [2] * 4


def test_patch(api):
    make(api)
    etag = tag(api)
    assert refused(api.request("PATCH", "/v1/arrays/u", b'{"name": "v"}', {"Content-Type": JSON, "If-Match": '"x"'}))
    assert refused(api.request("PATCH", "/v1/arrays/u", b'{"name": "v"}', {"Content-Type": JSON, "If-None-Match": "*"}))
    assert api.get("/v1/arrays/u").status == 200
    r = api.request("PATCH", "/v1/arrays/u", b'{"name": "v"}', {"Content-Type": JSON, "If-Match": etag})
    assert r.status == 200 and r.json()["name"] == "v"


def test_delete(api):
    make(api)
    etag = tag(api)
    assert put_data(api).status == 204
    assert refused(api.request("DELETE", "/v1/arrays/u", headers={"If-Match": etag}))
    assert refused(api.request("DELETE", "/v1/arrays/u", headers={"If-None-Match": "*"}))
    assert api.get("/v1/arrays/u").status == 200
    assert api.request("DELETE", "/v1/arrays/u", headers={"If-Match": tag(api)}).status == 204


def test_get_if_match(api):
    make(api)
    etag = tag(api)
    assert api.request("GET", "/v1/arrays/u/data", headers={"If-Match": etag}).status == 200
    assert refused(api.request("GET", "/v1/arrays/u/data", headers={"If-Match": "W/" + etag}))
    r = api.request("GET", "/v1/arrays/u/data", headers={"If-Match": '"x"', "Range": "bytes=0-3"})
    assert refused(r)


def test_the_condition_is_asked_again_when_the_body_is_there(api, daemon):
    """Somebody else writes while the body is on its way: 412, and their values stay."""
    make(api)
    etag = tag(api)
    body = np.full(4, 5, "<f4").tobytes()
    with socket.create_connection((daemon.host, daemon.port), 10) as s:
        s.sendall(b"PUT /v1/arrays/u/data HTTP/1.1\r\nHost: localhost\r\nIf-Match: " + etag.encode() +
                  b"\r\nContent-Length: 16\r\nConnection: close\r\n\r\n" + body[:8])
        assert put_data(api, value=6).status == 204
        s.sendall(body[8:])
        reply = b"".join(iter(lambda: s.recv(4096), b""))
    assert reply.startswith(b"HTTP/1.1 412 ") and b"precondition_failed" in reply
    assert values(api) == [6] * 4


def test_create_only_is_asked_again_when_the_body_is_there(api, daemon):
    with socket.create_connection((daemon.host, daemon.port), 10) as s:
        s.sendall(b"PUT /v1/arrays/u?dtype=float32&shape=4 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: *"
                  b"\r\nContent-Length: 16\r\nConnection: close\r\n\r\n12345678")
        make(api)
        s.sendall(b"12345678")
        reply = b"".join(iter(lambda: s.recv(4096), b""))
    assert reply.startswith(b"HTTP/1.1 412 ")
    assert values(api) == [1] * 4


def race(daemon, ask, n=8):
    """The statuses of n clients that ask at once."""
    start, seen = threading.Barrier(n), []

    def one(i):
        c = daemon.client()
        start.wait()
        seen.append(ask(c, i).status)
        c.close()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sorted(seen)


def test_one_of_many_writers_wins(api, daemon):
    make(api)
    for _ in range(5):
        etag = tag(api)
        assert race(daemon, lambda c, i: put_data(c, value=i, If_Match=etag)) == [204] + [412] * 7


def test_one_of_many_creators_wins(api, daemon):
    for k in range(5):
        seen = race(daemon, lambda c, i: put_array(c, i, name=f"w{k}", If_None_Match="*"))
        assert seen == [201] + [412] * 7
