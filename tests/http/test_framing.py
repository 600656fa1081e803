"""HTTP as bytes: what a well-made client never sends, and what must happen then.

Plain sockets, because a client library would refuse to send most of this. Every refusal must be a
complete problem+json reply with the documented status and code, followed by a close wherever the
end of the message is in doubt; nothing that was smuggled in may ever be answered. What libmicrohttpd
answers by itself, before it calls the daemon, has the status and the close; the rest is its own.
"""
import json
import os
import random
import re
import socket
import threading
import time

import pytest

HOST = b"Host: localhost\r\n"
CLOSE = b"Connection: close\r\n"


class Reply:
    def __init__(self, raw, closed):
        head, _, rest = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin1").split("\r\n")
        self.version, status, self.reason = (lines[0].split(" ", 2) + ["", ""])[:3]
        self.status = int(status or 0)
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.closed = closed
        length = int(self.headers.get("content-length", 0))
        self.body, self.rest = rest[:length], rest[length:]

    @property
    def code(self):
        return json.loads(self.body)["code"]


def talk(daemon, data, timeout=5, half_close=False):
    """Sends bytes on a connection of their own, and everything that comes back until the close."""
    with socket.create_connection((daemon.host, daemon.port), timeout) as s:
        try:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the reply may be there all the same
        raw = b""
        closed = False
        while True:
            try:
                part = s.recv(1 << 16)
            except TimeoutError:
                break
            except ConnectionResetError:
                closed = True
                break
            if not part:
                closed = True
                break
            raw += part
    return raw, closed


def ask(daemon, data, **kw):
    raw, closed = talk(daemon, data, **kw)
    return Reply(raw, closed)


def request(line, *headers, body=b""):
    return line + b"\r\n" + b"".join(h + b"\r\n" for h in headers) + b"\r\n" + body


def post(*headers, body=b"", path=b"/v1/evaluate"):
    return request(b"POST " + path + b" HTTP/1.1", b"Host: localhost",
                   b"Content-Type: application/json", *headers, body=body)


GET = b"GET /healthz HTTP/1.1"
SMUGGLED = b"GET /v1/info HTTP/1.1\r\n" + HOST + b"\r\n"

BAD = {
    "two content-lengths": (post(b"Content-Length: 2", b"Content-Length: 3", body=b"{}"), 400),
    "two equal content-lengths": (post(b"Content-Length: 2", b"Content-Length: 2", body=b"{}"), 400),
    "length and chunked": (post(b"Content-Length: 5", b"Transfer-Encoding: chunked",
                                body=b"0\r\n\r\n"), 400),
    "chunked and length": (post(b"Transfer-Encoding: chunked", b"Content-Length: 5",
                                body=b"0\r\n\r\n"), 400),
    "two codings": (post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked",
                         body=b"0\r\n\r\n"), 400),
    "gzip, chunked": (post(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), 501),
    "identity": (post(b"Transfer-Encoding: identity", body=b""), 501),
    "xchunked": (post(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), 501),
    "chunked in 1.0": (request(b"POST /v1/evaluate HTTP/1.0", b"Host: localhost",
                               b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400),
    "negative length": (post(b"Content-Length: -1"), 400),
    "signed length": (post(b"Content-Length: +2", body=b"{}"), 400),
    "hex length": (post(b"Content-Length: 0x2", body=b"{}"), 400),
    "list length": (post(b"Content-Length: 2, 2", body=b"{}"), 400),
    "huge length": (post(b"Content-Length: 99999999999999999999999", body=b"{}"), 413),
    "10^18": (post(b"Content-Length: 1000000000000000000", body=b"{}"), 413),
    "2^63": (post(b"Content-Length: 9223372036854775808", body=b"{}"), 413),
    "huge and no number": (post(b"Content-Length: 9999999999999999999x", body=b"{}"), 400),
    "length and a blank": (post(b"Content-Length: 2 ", body=b"{}"), 400),
    "folded length": (post(b"Content-Length: 2", b" 3", body=b"{}"), 400),
    "folded length with LF": (post(b"Content-Length:2\n 3", body=b"{}"), 400),
    "folded coding": (post(b"Transfer-Encoding: chunked", b"\tx", body=b"0\r\n\r\n"), 400),
    "length made by folding": (post(b"Content-Leng: 2", b" th", body=b"{}"), 400),
    "coding made by folding": (post(b"T: chunked", b" ransfer-Encoding", body=b"0\r\n\r\n"), 400),
    "another folded header": (post(b"X: 1", b" 2", b"Content-Length: 2", body=b"{}"), 400),
    "chunked and a blank": (post(b"Transfer-Encoding: chunked ", body=b"0\r\n\r\n"), 501),
    "empty length": (post(b"Content-Length:", body=b"{}"), 400),
    "no host": (request(GET), 400),
    "two hosts": (request(GET, b"Host: localhost", b"Host: localhost"), 400),
    "host with a path": (request(GET, b"Host: localhost/x"), 400),
    "blank in a name": (request(GET, b"Host : localhost"), 400),
    "odd name": (request(GET, b"Host: localhost", b"X@Y: 1"), 400),
    "header without colon": (request(GET, b"Host: localhost", b"nonsense"), 400),
    "control character": (request(GET, b"Host: localhost", b"X: a\x01b"), 400),
    "NUL in the target of a body": (post(b"Content-Length: 2", path=b"/v1/evaluate\0x", body=b"{}"), 400),
    "two blanks before a body": (post(b"Content-Length: 2", path=b" /v1/evaluate", body=b"{}"), 400),
    "blank in the target": (request(b"GET /healthz x HTTP/1.1", b"Host: localhost"), 400),
    "fragment": (request(b"GET /healthz#x HTTP/1.1", b"Host: localhost"), 400),
    "bytes past ASCII": (request(b"GET /healthz\xff HTTP/1.1", b"Host: localhost"), 400),
    "HTTP/2.0": (request(b"GET /healthz HTTP/2.0", b"Host: localhost"), 505),
    "HTTP/1.2": (request(b"GET /healthz HTTP/1.2", b"Host: localhost"), 505),
    "HTTP/0.9": (request(b"GET /healthz HTTP/0.9", b"Host: localhost"), 505),
    "malformed version": (request(b"GET /healthz HTTQ/1.1", b"Host: localhost"), 400),
    "unknown method": (request(b"BREW /healthz HTTP/1.1", b"Host: localhost"), 501),
    "lower-case method": (request(b"get /healthz HTTP/1.1", b"Host: localhost"), 501),
    "bad chunk size": (post(b"Transfer-Encoding: chunked", body=b"xyz\r\n{}\r\n0\r\n\r\n"), 400),
    "bad chunk end": (post(b"Transfer-Encoding: chunked", body=b"2\r\n{}xx0\r\n\r\n"), 400),
}


# Answered by libmicrohttpd: bodies of its own, and a malformed length gets its head twice before 1.0.
LIBRARY = {"negative length", "signed length", "hex length", "list length", "huge length", "huge and no number",
           "length and a blank", "empty length", "header without colon", "HTTP/2.0", "HTTP/0.9", "malformed version",
           "bad chunk size", "bad chunk end"}


def check_library(r, status):
    """Nothing of ours, and no other answer, behind it."""
    assert r.status == status, r.body
    assert r.closed and "x-request-id" not in r.headers
    heads = re.findall(rb"HTTP/1\.1 (\d+)", r.body + r.rest)
    assert set(heads) <= {b"%d" % status} and len(heads) <= 1, r.rest
    assert b"X-Request-Id" not in r.body + r.rest, "something behind a message without a certain end was answered"


def check_problem(r, status):
    assert r.status == status, r.body
    assert r.headers["content-type"] == "application/problem+json"
    assert re.fullmatch(r"[0-9a-f]{32}", r.headers["x-request-id"])
    assert "dur=" in r.headers["server-timing"]
    problem = json.loads(r.body)
    assert problem["status"] == status
    assert problem["title"] and problem["detail"]
    return problem


@pytest.mark.parametrize("name", BAD)
def test_bad_framing_is_refused_and_closed(daemon, name):
    data, status = BAD[name]
    r = ask(daemon, data + SMUGGLED)
    if name in LIBRARY:
        check_library(r, status)
        return
    assert check_problem(r, status)["code"] == ("too_large" if status == 413 else "bad_framing")
    assert r.closed
    assert r.rest == b"", "something behind a message without a certain end was answered"


def test_absolute_form_is_refused(daemon):
    r = ask(daemon, request(b"GET http://localhost/healthz HTTP/1.1", b"Host: localhost",
                            b"Connection: close"))
    check_problem(r, 400)


@pytest.mark.parametrize("target", [b"/healthz%00", b"/health%7a", b"/v1/%61rrays", b"/%2e%2e/x"])
def test_escapes_in_a_path_are_refused(daemon, target):
    r = ask(daemon, request(b"GET " + target + b" HTTP/1.1", b"Host: localhost",
                            b"Connection: close"))
    check_problem(r, 400)


@pytest.mark.parametrize("query", [b"limit=1&limit=2", b"limit=%zz", b"limit=%4", b"limit=%", b"a%00=1",
                                   b"limit=%ff", b"after=%c3%28", b"limit=1&lim%69t=2"])
def test_bad_queries(daemon, query):
    r = ask(daemon, request(b"GET /v1/arrays?" + query + b" HTTP/1.1", b"Host: localhost",
                            b"Connection: close"))
    assert check_problem(r, 400)["code"] == "bad_query"


def test_unknown_query_key(daemon):
    r = ask(daemon, request(b"GET /healthz?x=1 HTTP/1.1", b"Host: localhost", b"Connection: close"))
    assert check_problem(r, 400)["code"] == "bad_query"


@pytest.mark.parametrize("host,status", [
    (b"localhost", 200), (b"LOCALHOST:1", 200), (b"127.0.0.1", 200), (b"[::1]:7411", 200),
    (b"localhost.", 200), (b"localhost \t", 200), (b"evil.example", 403), (b"localhost.evil.example", 403),
    (b"127.0.0.1.nip.io", 403), (b"", 400), (b"localhost:x", 400), (b"[::1", 400),
    (b"a b", 400), (b"localhost:123456", 400)])
def test_host_is_one_of_ours(daemon, host, status):
    r = ask(daemon, request(GET, b"Host: " + host, b"Connection: close"))
    assert r.status == status
    if status == 403:
        assert check_problem(r, 403)["code"] == "forbidden"


@pytest.mark.parametrize("origin,status", [
    (b"http://localhost:99", 200), (b"http://127.0.0.1:99", 200), (b"http://LOCALHOST:99", 200),
    (b"http://localhost", 403), (b"http://localhost:98", 403), (b"http://evil.example", 403),
    (b"http://evil.example:99", 403), (b"null", 403), (b"file://", 403),
    (b"http://localhost:99.evil.example", 403)])
def test_foreign_pages_are_refused(daemon, origin, status):
    r = ask(daemon, request(GET, b"Host: localhost:99", b"Origin: " + origin, b"Connection: close"))
    assert r.status == status
    if status == 403:
        assert check_problem(r, 403)["code"] == "forbidden"


def test_http10(daemon):
    r = ask(daemon, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert r.status == 200 and r.closed
    raw, closed = talk(daemon, b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", timeout=0.5)
    assert Reply(raw, closed).status == 200 and not closed


def test_half_close_still_gets_the_reply(daemon):
    assert ask(daemon, request(GET, b"Host: localhost"), half_close=True).status == 200


def test_pipelined_requests_are_answered_in_order(daemon):
    paths = [b"/healthz", b"/nothing", b"/readyz", b"/v1/info"]
    data = b"".join(request(b"GET " + p + b" HTTP/1.1", b"Host: localhost", b"X-Request-Id: n%d" % i)
                    for i, p in enumerate(paths))
    raw, _ = talk(daemon, data + request(GET, b"Host: localhost", b"Connection: close"))
    ids, statuses = [], []
    while raw:
        r = Reply(raw, True)
        ids.append(r.headers["x-request-id"])
        statuses.append(r.status)
        raw = r.rest
    assert ids[:4] == ["n0", "n1", "n2", "n3"] and len(ids) == 5
    assert statuses == [200, 404, 200, 200, 200]


def test_head_has_the_length_and_no_body(daemon):
    get = ask(daemon, request(b"GET /openapi.json HTTP/1.1", b"Host: localhost", b"Connection: close"))
    raw, _ = talk(daemon, request(b"HEAD /openapi.json HTTP/1.1", b"Host: localhost",
                                  b"Connection: close"))
    head = Reply(raw, True)
    assert head.status == 200 and head.body == b"" and raw.endswith(b"\r\n\r\n")
    assert head.headers["content-length"] == get.headers["content-length"]
    assert head.headers["content-type"] == get.headers["content-type"]
    raw, _ = talk(daemon, request(b"HEAD /nothing HTTP/1.1", b"Host: localhost", b"Connection: close"))
    assert Reply(raw, True).status == 404 and raw.endswith(b"\r\n\r\n")


def test_options_and_405_tell_the_methods(daemon):
    r = ask(daemon, request(b"OPTIONS /v1/arrays HTTP/1.1", b"Host: localhost", b"Connection: close"))
    assert r.status == 204 and r.body == b""
    assert set(r.headers["allow"].split(", ")) == {"GET", "HEAD", "POST", "OPTIONS"}
    r = ask(daemon, request(b"DELETE /v1/arrays HTTP/1.1", b"Host: localhost", b"Connection: close"))
    assert check_problem(r, 405)["code"] == "method_not_allowed"
    assert set(r.headers["allow"].split(", ")) == {"GET", "HEAD", "POST", "OPTIONS"}
    assert ask(daemon, request(b"OPTIONS * HTTP/1.1", b"Host: localhost",
                               b"Connection: close")).status == 204
    r = ask(daemon, request(b"OPTIONS /nothing HTTP/1.1", b"Host: localhost", b"Connection: close"))
    assert check_problem(r, 404)["code"] == "not_found"


@pytest.mark.parametrize("path", [b"/v1", b"/v1/", b"/v1/arrays/", b"/v1/arrays//data", b"//healthz",
                                  b"/healthz/", b"/HEALTHZ", b"/v1/arrays/a/data/b", b"/..", b"/page"])
def test_paths_are_compared_exactly(daemon, path):
    r = ask(daemon, request(b"GET " + path + b" HTTP/1.1", b"Host: localhost", b"Connection: close"))
    assert check_problem(r, 404)["code"] == "not_found"


def test_expect_continue(daemon):
    body = b'{"expr": "1 + 1"}'
    head = post(b"Expect: 100-continue", b"Content-Length: %d" % len(body), b"Connection: close")
    with socket.create_connection((daemon.host, daemon.port), 20) as s:
        s.sendall(head)
        assert s.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(body)
        assert s.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_expect_continue_is_refused_without_reading_the_body(daemon):
    r = ask(daemon, post(b"Expect: 100-continue", b"Content-Length: 99999999999"))
    assert check_problem(r, 413)["code"] == "too_large"
    r = ask(daemon, request(b"PUT /v1/nothing HTTP/1.1", b"Host: localhost", b"Expect: 100-continue",
                            b"Content-Length: 10"))
    assert check_problem(r, 404)["code"] == "not_found"
    r = ask(daemon, post(b"Expect: 200-ok", b"Content-Length: 2", b"Connection: close", body=b"{}"))
    assert check_problem(r, 417)["code"] == "expectation_failed"


@pytest.mark.parametrize("line, headers, status", [
    (GET, [], 200), (GET, [b"Content-Length: 0"], 200), (b"POST /v1/arrays/none/copy HTTP/1.1", [], 404),
    (b"POST /v1/evaluate HTTP/1.1", [b"Content-Type: application/json", b"Content-Length: 0"], 400),
    (b"PUT /v1/arrays/none/data HTTP/1.1", [b"Content-Length: 0"], 404),
    (b"PUT /v1/arrays/void?dtype=uint8&shape=0 HTTP/1.1",
     [b"Content-Type: application/octet-stream", b"Content-Length: 0"], 201),
    (b"POST /v1/sessions/default/sync HTTP/1.1", [], 200)])
def test_an_expectation_without_a_body_is_answered_behind_which_more_comes(daemon, api, line, headers, status):
    r = ask(daemon, request(line, b"Host: localhost", b"Expect: 100-continue", *headers) +
            request(b"GET /readyz HTTP/1.1", b"Host: localhost", b"Connection: close"), timeout=2)
    assert r.status == 100 and r.rest.startswith(b"HTTP/1.1 %d " % status) or r.status == status, r.status


def test_chunked_body(daemon):
    chunks = b"7;ext=1\r\n{\"expr\"\r\n9\r\n: \"1 + 1\"\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n"
    r = ask(daemon, post(b"Transfer-Encoding: chunked", b"Connection: close", body=chunks))
    assert r.status == 200 and json.loads(r.body)["value"] == 2


def test_header_limits(daemon):
    fits = b"X: " + b"a" * 60000
    assert ask(daemon, request(GET, b"Host: localhost", b"Connection: close", fits)).status == 200
    r = ask(daemon, request(GET, b"Host: localhost", b"X: " + b"a" * 66000))
    assert check_problem(r, 431)["code"] == "headers_too_large"
    assert r.closed
    for extra in ([b"X: " + b"a" * 1000000], [b"X: 1"] * 20000):
        check_library(ask(daemon, request(GET, b"Host: localhost", *extra)), 431)
    check_library(ask(daemon, request(b"GET /" + b"a" * 300000 + b" HTTP/1.1", b"Host: localhost")), 414)


def test_request_id(daemon):
    def sent(value):
        return ask(daemon, request(GET, b"Host: localhost", b"Connection: close",
                                   b"X-Request-Id: " + value)).headers["x-request-id"]

    assert sent(b"abc-123.x_Y") == "abc-123.x_Y"
    for unfit in (b"", b"a" * 40, b"a b", b"a,b", b"a;b"):
        assert re.fullmatch(r"[0-9a-f]{32}", sent(unfit))
    ids = {sent(b"") for _ in range(20)}
    assert len(ids) == 20


def test_body_on_a_route_that_takes_none(daemon):
    r = ask(daemon, request(GET, b"Host: localhost", b"Connection: close", b"Content-Length: 5",
                            body=b"hello"))
    assert r.status == 200
    big = b"x" * 70000
    r = ask(daemon, request(GET, b"Host: localhost", b"Content-Length: %d" % len(big),
                            b"Connection: close", body=big))
    assert check_problem(r, 413)["code"] == "too_large"
    r = ask(daemon, request(GET, b"Host: localhost", b"Transfer-Encoding: chunked",
                            b"Connection: close", body=b"%x\r\n" % len(big) + big + b"\r\n0\r\n\r\n"))
    assert check_problem(r, 413)["code"] == "too_large"


def test_garbage_is_closed_and_harms_nobody(daemon):
    for junk in (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n", b"hello\r\n\r\n", b"GET\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        raw, closed = talk(daemon, junk)
        assert closed and (not raw or raw.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")))
    assert ask(daemon, request(GET, b"Host: localhost", b"Connection: close")).status == 200


SEEDS = [
    request(GET, b"Host: localhost"),
    post(b"Content-Length: 14", body=b'{"expr":"1+1"}'),
    post(b"Transfer-Encoding: chunked", body=b'7;a=b\r\n{"expr"\r\n7\r\n:"1+1"}\r\n0\r\nT: x\r\n\r\n'),
    request(b"PUT /v1/arrays/mutant?dtype=uint8&shape=3 HTTP/1.1", b"Host: localhost",
            b"Content-Type: application/octet-stream", b"Content-Length: 3", b"Expect: 100-continue",
            body=b"abc"),
    request(b"GET /v1/arrays?limit=1&after=%32 HTTP/1.1", b"Host: localhost",
            b"Accept: application/json;q=0.5, */*", b"Origin: http://localhost"),
    request(b"GET /v1/arrays/mutant/data?index=1:2 HTTP/1.1", b"Host: localhost",
            b"Range: bytes=0-1"),
]
TOKENS = [b"\r\n", b"\n", b"\0", b" ", b"\t", b":", b"Content-Length: 3\r\n", b"%00", b"%", b"&",
          b"Transfer-Encoding: chunked\r\n", b"a" * 5000, b"\xff", b"0\r\n\r\n", b";", b"-1",
          b"Expect: 100-continue\r\n", b"Connection: close\r\n", HOST, b"HTTP/1.0", b"HEAD ",
          b"OPTIONS ", b"9" * 21]


def mutant(r):
    d = bytearray(b"".join(r.choice(SEEDS) for _ in range(r.randrange(1, 4))))
    for _ in range(r.randrange(6)):
        at = r.randrange(len(d) + 1)
        kind = r.randrange(4)
        if kind == 0:
            d[at:at] = r.choice(TOKENS)
        elif kind == 1:
            del d[at:at + r.randrange(1, 10)]
        elif kind == 2 and at < len(d):
            d[at] = r.randrange(256)
        else:
            there = r.randrange(len(d) + 1)
            d[at:at] = d[there:there + r.randrange(40)]
    return bytes(d)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_requests(daemon, api, seed):
    """Whatever comes in, what goes out are whole replies with known statuses, and the daemon lives."""
    r = random.Random(seed)
    for _ in range(int(os.environ.get("ARRAYD_MUTANTS", "60"))):
        data = mutant(r)
        raw, _ = talk(daemon, data, timeout=0.02, half_close=r.random() < 0.5)
        if b"HEAD " in data:
            continue  # its replies have lengths without bodies
        while raw:
            if raw.startswith(b"HTTP/1.1 100 Continue\r\n\r\n"):
                raw = raw[25:]
                continue
            reply = Reply(raw, True)
            assert reply.version == "HTTP/1.1" and 200 <= reply.status <= 505, (data, raw)
            if "x-request-id" not in reply.headers:
                check_library(reply, reply.status)
                assert reply.status in (400, 413, 414, 431, 505), (data, raw)
                break
            assert reply.status != 500, (data, raw)
            assert "x-request-id" in reply.headers and "server-timing" in reply.headers, (data, raw)
            assert len(reply.body) == int(reply.headers.get("content-length", 0)), (data, raw)
            raw = reply.rest
    assert ask(daemon, request(GET, b"Host: localhost", b"Connection: close")).status == 200


# --- what only a close look finds ---

NOT_SHOWN = {
    "NUL in a value": b"X: a\0b",
    "NUL at a value's end": b"X: a\0",
    "NUL alone": b"X: \0",
    "no name": b": a",
    "no name, no value": b":",
    "NUL before a known header": b"X: a\0\r\nContent-Length: 5",
    "a line that begins with NUL": b"\0X: a\r\nGET /v1/info?: HTTP/1.1",
    "continued": b"X: a\r\n b",
    "continued by nothing": b"X: a\r\n ",
}


@pytest.mark.parametrize("name", NOT_SHOWN)
@pytest.mark.parametrize("last", [False, True])
def test_nothing_follows_what_libmicrohttpd_does_not_show(daemon, name, last):
    headers = [b"Host: localhost", NOT_SHOWN[name]]
    headers = headers if last else headers[::-1]
    r = ask(daemon, request(GET, *headers) + SMUGGLED)
    assert r.status in (200, 400)  # answered without what is hidden before libmicrohttpd 1.0, and the last
    assert r.closed and r.rest == b""
    r = ask(daemon, post(*headers[headers.index(NOT_SHOWN[name]):], b"Content-Length: 2", body=b"{}") + SMUGGLED)
    assert r.status in (400, 411)  # the length behind a line that ends the header is not seen
    assert r.closed and r.rest == b""


@pytest.mark.parametrize("line", [b"GET /healthz\0/x HTTP/1.1", b"GET  /healthz HTTP/1.1"])
def test_a_request_line_that_hides_something_is_the_last(daemon, line):
    r = ask(daemon, request(line, b"Host: localhost") + SMUGGLED)
    assert r.status in (200, 400)
    assert r.closed and r.rest == b""


def test_several_blanks_before_a_value(daemon):
    """They may be there, and the value has none of them."""
    r = ask(daemon, request(GET, b"Host: \t  localhost", b"X-Request-Id:   n1"))
    assert r.status == 200 and r.headers["x-request-id"] == "n1"


@pytest.mark.parametrize("data", [
    b"GET /healthz HTTP/1.1\nHost: localhost\nConnection: close\n\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\nConnection: close\r\n\n",
    b"\r\nGET /healthz HTTP/1.1\r\nHost:localhost\r\nX:\r\nConnection: \t close\r\n\r\n",
    b"GET /healthz HTTP/1.0\r\n\r\n",
    b"GET /healthz HTTP/1.0\n\n",
])
def test_odd_but_allowed_line_ends(daemon, data):
    assert ask(daemon, data).status == 200


@pytest.mark.parametrize("data", [
    b"HELLO\r\n", b"HELLO\r\n\r\n", b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03abc\nd", b"\xff\xfe\n",
    b" GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"{\"expr\":\"a\"}\n",
])
def test_no_http_at_all_is_refused_and_closed(daemon, data):
    r = ask(daemon, data)
    assert check_problem(r, 400)["code"] == "bad_framing"
    assert r.closed


def test_a_silent_close_gets_no_reply(daemon):
    assert talk(daemon, b"", half_close=True) == (b"", True)


@pytest.mark.parametrize("data, status, code", [  # no code: libmicrohttpd's own reply; before 1.0 those to a chunk's line are ours
    (post(b"Transfer-Encoding: chunked", body=b"2;x=" + b"a" * 300_000 + b"\r\n{}\r\n0\r\n\r\n"), (413,), None),
    (post(b"Transfer-Encoding: chunked", body=b"0" * 300_000 + b"2\r\n{}\r\n0\r\n\r\n"), (413,), None),
    (post(b"Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\nX: " + b"a" * 300_000 + b"\r\n\r\n"), (431,), None),
    (post(b"Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n" + b"X-Y: abcdefgh\r\n" * 20_000 + b"\r\n"), (431,),
     None),
    (request(b"GET /" + b"a" * 70_000 + b" HTTP/1.1", b"Host: localhost"), (414,), "uri_too_long"),
    (request(b"GET /" + b"a" * 300_000 + b" HTTP/1.1", b"Host: localhost"), (414,), None),
    (request(GET, b"Host: localhost", b"X: " + b"a" * 70_000), (431,), "headers_too_large"),
    (request(GET, b"Host: localhost", b"X: " + b"a" * 300_000), (431,), None),
], ids=["extension", "size", "trailer", "trailers", "target", "long target", "header", "long header"])
def test_too_long(daemon, data, status, code):
    r = ask(daemon, data)
    assert r.status in status
    if code or "x-request-id" in r.headers:
        assert check_problem(r, r.status)["code"] == (code or "too_large")
    else:
        check_library(r, r.status)
    assert r.closed


@pytest.mark.in_turn
def test_chunks_now_and_then(daemon):
    """On a listener that is busy with others: bytes that have just arrived are not taken for some that nobody reads."""
    end = threading.Event()

    def ask_on():
        with socket.create_connection((daemon.host, daemon.port), 20) as s:
            while not end.is_set():
                s.sendall(request(GET, b"Host: localhost"))
                assert s.recv(65536)

    crowd = [threading.Thread(target=ask_on) for _ in range(4)]
    for t in crowd:
        t.start()
    head = request(b"PUT /v1/arrays/%s HTTP/1.1", b"Host: localhost", b"Content-Type: application/octet-stream", b"Transfer-Encoding: chunked")
    uploads = [socket.create_connection((daemon.host, daemon.port), 20) for _ in range(60)]
    for k, s in enumerate(uploads):
        s.sendall(head % b"now_and_then_%d?dtype=uint8&shape=8192000" % k)
    due = {s: time.monotonic() + 0.005 * k for k, s in enumerate(uploads)}
    stop = time.monotonic() + 6
    while time.monotonic() < stop:
        for s, at in due.items():
            if time.monotonic() >= at:
                s.sendall(b"2000\r\n" + b"x" * 8192 + b"\r\n")
                due[s] = at + 0.3
        time.sleep(0.001)
    end.set()
    for t in crowd:
        t.join()
    for s in uploads:
        s.setblocking(False)
        with pytest.raises(BlockingIOError):
            s.recv(1)
        s.close()


@pytest.mark.parametrize("line", [b"TRACE /healthz HTTP/1.1", b"CONNECT /healthz HTTP/1.1",
                                  b"CONNECT localhost:80 HTTP/1.1", b"PATCH /healthz HTTP/1.1"])
def test_known_methods_are_405(daemon, line):
    r = ask(daemon, request(line, b"Host: localhost", b"Connection: close"))
    assert check_problem(r, 405)["code"] == "method_not_allowed"
    assert "GET" in r.headers["allow"]


def test_unknown_expectation_is_answered_at_once(daemon):
    begun = time.monotonic()
    r = ask(daemon, post(b"Expect: 200-maybe", b"Content-Length: 10"))
    assert check_problem(r, 417)["code"] == "expectation_failed"
    assert r.closed
    with socket.create_connection((daemon.host, daemon.port), 20) as s:
        s.sendall(post(b"Expect: 200-maybe", b"Content-Length: 1000000"))
        assert s.recv(4096).startswith(b"HTTP/1.1 417 ")
        assert time.monotonic() - begun < 5
        s.sendall(b"x" * 1_000_000)  # whoever sends it all the same keeps the reply
    # the answer to a body that came along
    r = ask(daemon, post(b"Expect: 200-maybe", b"Content-Length: 2", body=b"{}"))
    check_problem(r, 417)


@pytest.mark.parametrize("line", [b"POST /v1/evaluate", b"POST /v1/explain", b"POST /v1/arrays", b"PUT /v1/arrays/u",
                                  b"PATCH /v1/arrays/u", b"POST /v1/arrays/u/views", b"POST /v1/arrays/u/swap",
                                  b"POST /v1/arrays/u/resize", b"PUT /v1/arrays/u/data"])
def test_a_body_without_length_is_411(daemon, line):
    r = ask(daemon, request(line + b" HTTP/1.1", b"Host: localhost", b"Content-Type: application/json") + SMUGGLED)
    assert check_problem(r, 411)["code"] == "length_required"
    assert r.closed and r.rest == b""


def test_an_empty_body_is_not_a_missing_one(daemon):
    r = ask(daemon, post(b"Content-Length: 0", b"Connection: close"))
    assert check_problem(r, 400)["code"] == "bad_json"
    r = ask(daemon, post(b"Transfer-Encoding: chunked", b"Connection: close", body=b"0\r\n\r\n"))
    assert check_problem(r, 400)["code"] == "bad_json"
    r = ask(daemon, request(b"POST /v1/arrays/nobody/copy HTTP/1.1", b"Host: localhost", b"Connection: close"))
    assert r.status == 404  # its body is optional


@pytest.mark.parametrize("fields,size", [(1, 65000), (100, 640), (300, 205)])
def test_a_header_as_large_as_it_may_be(api, fields, size):
    """Its table has room beside it, and a body behind it."""
    c = api.clone()
    r = c.post("/v1/evaluate", {"expr": "1 + 1"}, headers={f"X-{i:04}": "a" * (size - 10) for i in range(fields)})
    assert api.expect(200, r).json()["value"] == 2
    c.close()
