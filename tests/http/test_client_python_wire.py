"""The Python client's connections, against servers that reply as they should not, or as they seldom do."""
import asyncio
import contextlib
import io
import pathlib
import select
import socket
import sys
import threading
import time

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
from arrayd._async_transport import AsyncTransport  # noqa: E402
from arrayd._errors import error_of  # noqa: E402
from arrayd._http import JOINED, ROOM  # noqa: E402
from arrayd._requests import Request  # noqa: E402
from arrayd._transport import Transport  # noqa: E402
from arrayd._wire import AT_ONCE, Wire  # noqa: E402

from cli import cli  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here


class Server:
    """Gives each connection its list of replies, one a request, and closes it. `asked` is what came."""

    def __init__(self, *connections, whole=True):
        self.asked, self.whole = [], whole
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(10)
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, args=(connections,))
        self.thread.start()

    def serve(self, connections):
        for replies in connections:
            s, _ = self.listener.accept()
            with s:
                s.settimeout(10)
                for pieces in replies:
                    if not self.request(s):
                        break
                    with contextlib.suppress(ConnectionError):  # a client that does not want all of it
                        for piece in pieces if isinstance(pieces, list) else [pieces]:
                            s.sendall(piece)

    def request(self, s):
        data = b""
        while b"\r\n\r\n" not in data:
            more = s.recv(1 << 16)
            if not more:
                return False
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        n = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        while self.whole and n and len(body) < n[0]:
            body += s.recv(1 << 20)
        self.asked.append((head, body))
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.thread.join(10)
        self.listener.close()


def heard(transport):
    """Something has come on connections that are kept: bytes or their end."""
    for wire, _ in transport._idle:
        assert select.select([wire.sock], [], [], 10)[0]


def reply(body, *lines, status=200, length=True):
    lines = [*lines, f"Content-Length: {len(body)}"] if length else lines
    return "\r\n".join([f"HTTP/1.1 {status} X", *lines, "", ""]).encode("latin-1") + body


@pytest.mark.parametrize("pieces, want", [
    ([reply(b"abc")], b"abc"), ([bytes([b]) for b in reply(b"abc", "A:b", "X-Long: " + "y" * 300)], b"abc"),
    ([b"HTTP/1.1 100 Continue\r\n\r\n" + reply(b"abc")], b"abc"), ([reply(b"", status=200)], b""),
    ([reply(b"", status=204, length=False)], b""), ([reply(b"z" * 200_000)], b"z" * 200_000),
    ([reply(b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: 1\r\n\r\n", "Transfer-Encoding: chunked", length=False)], b"abcde"),
    ([bytes([b]) for b in reply(b"10\r\n" + b"q" * 16 + b"\r\n0\r\n\r\n", "transfer-encoding: CHUNKED", length=False)], b"q" * 16)])
def test_replies(pieces, want):
    """Twice on one connection: what the first leaves is the second's."""
    with Server([pieces, pieces]) as server:
        t = Transport(server.url)
        for _ in range(2):
            assert t.send(Request("GET", "/x")).body == want
        t.close()
        assert len(server.asked) == 2


def test_to_the_end_of_the_connection():
    end = reply(b"until the end", "Connection: close", length=False)
    with Server([end], [reply(b"k", "connection: close")], [reply(b"l")]) as server:
        t = Transport(server.url)
        assert [t.send(Request("GET", "/x")).body for _ in range(3)] == [b"until the end", b"k", b"l"]
        t.close()


@pytest.mark.parametrize("raw", [
    b"SMTP ready\r\n\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 2x0 X\r\n\r\n", reply(b"abc")[:-1], b"HTTP/1.1 200 X\r\nA: ",
    b"HTTP/1.1 200 X\r\nA: " + b"y" * (ROOM + 10), b"", reply(b"5\r\nab", "Transfer-Encoding: chunked", length=False),
    *(reply(size + b"\r\nabcde\r\n0\r\n\r\n", "Transfer-Encoding: chunked", length=False)
      for size in (b"five", b"-5", b"+5", b"0x5", b"5_0", b"", b"f" * 17)),
    *(reply(b"abc", f"Content-Length: {n}", length=False) for n in ("-3", "+3", "3_0", "x", "", "\u00b2", "9" * 16, "9" * 30, "9" * 5000)),
    reply(b"abc", "Content-Length: 2"), b"HTTP/1.1 2\xb20 X\r\n\r\n", b"HTTP/1.1 100 X\r\n\r\n" * 1000])
def test_replies_that_are_none(raw):
    with Server([raw]) as server:
        t = Transport(server.url, timeout=10)
        with pytest.raises(arrayd.ConnectionLost):
            t.send(Request("GET", "/x"))
        assert not t._idle


def test_a_greeting_of_another_service():
    """It waits for an answer; nobody waits with it."""
    with Server([[b"SS", b"H-2.0-OpenSSH_9.2\r\n"], reply(b"late")]) as server:
        t = Transport(server.url)
        with pytest.raises(arrayd.ConnectionLost, match="not an HTTP/1.1 reply: 'SS"):
            t.send(Request("GET", "/x"))


def test_into_memory():
    """A body goes where it is wanted if it has the right size, and nowhere else."""
    data = np.arange(100_000, dtype=np.uint8)
    for n, fits in ((100_000, True), (99_999, False), (100_001, False)):
        with Server([reply(bytes(data))]) as server:
            t, into = Transport(server.url), np.zeros(n, np.uint8)
            if fits:
                assert t.send(Request("GET", "/x", into=memoryview(into))).body == b"" and np.array_equal(into, data)
            else:
                with pytest.raises(arrayd.ConnectionLost):
                    t.send(Request("GET", "/x", into=memoryview(into)))
                assert not into.any()
            t.close()


def chunks(body, *sizes, end=b"0\r\n\r\n"):
    """A reply as a proxy may hand it on: without its length. The last chunk has what is left."""
    out, at = [], 0
    for n in (*sizes, len(body) - sum(sizes)):
        out.append(b"%x\r\n%b\r\n" % (n, body[at:at + n]) if n else b"")
        at += n
    return reply(b"".join(out) + end, "Transfer-Encoding: chunked", length=False)


@pytest.mark.parametrize("sizes", [(), (1,), (1, 400_000, 3), (1 << 20, 2)])
def test_into_memory_by_chunks(sizes):
    """Both clients take an array whose length nobody said; it is waited for no more than what is sure to come, and never too much."""
    data = np.random.default_rng(2).integers(0, 255, 3 << 20, np.uint8)
    raw, began = chunks(data.tobytes(), *sizes), time.monotonic()
    for n, said in ((data.size, None), (data.size + 1, f"has {data.size} bytes"), (data.size - 1, "more than")):
        into = np.zeros(n, np.uint8)
        with Slow([raw]) if said is None else Server([raw]) as server:
            t = Transport(server.url, timeout=10)
            if said is None:
                assert t.send(Request("GET", "/x", into=memoryview(into))).body == b"" and np.array_equal(into, data) and len(t._idle) == 1
            else:
                with pytest.raises(arrayd.ConnectionLost, match=said):
                    t.send(Request("GET", "/x", into=memoryview(into)))
            t.close()

    async def asynchronously(url):
        t, into = AsyncTransport(url, timeout=10), np.zeros_like(data)
        await t.send(Request("GET", "/x", into=memoryview(into)))
        await t.close()
        return into

    with Server([raw]) as server:
        assert np.array_equal(asyncio.run(asynchronously(server.url)), data)
    assert time.monotonic() - began < 5


def test_into_memory_to_the_end_of_the_connection():
    data = np.arange(200_000, dtype=np.uint8)
    for n, said in ((data.size, None), (data.size + 1, f"has {data.size} bytes"), (data.size - 1, "more than")):
        into = np.zeros(n, np.uint8)
        with Server([reply(data.tobytes(), length=False)]) as server:
            with contextlib.nullcontext() if said is None else pytest.raises(arrayd.ConnectionLost, match=said):
                assert Transport(server.url).send(Request("GET", "/x", into=memoryview(into))).body == b"" and np.array_equal(into, data)


def npy(a):
    f = io.BytesIO()
    np.save(f, a)
    return f.getvalue()


FILE = npy(np.arange(300_000.0))
HALF = FILE[:1_000_000]


@pytest.mark.parametrize("raw, said", [
    (reply(FILE), ""), (chunks(FILE), ""), (chunks(FILE, 3, 70, 1_000_000), ""), (reply(FILE, length=False), ""),
    (reply(FILE)[:1_000_000], "closed the connection after"), (chunks(FILE, 1_000_000)[:1_100_000], "which are not all"),
    (chunks(FILE, end=b""), "closed the connection"), (chunks(HALF), "the reply has 1000000 bytes where the array has 2400128"),
    (reply(HALF, length=False), "the reply has 1000000 bytes where"), (reply(b"", length=False), "not an .npy file"),
    (chunks(b"<html>all is well</html>"), "not an .npy file"), (reply(b""), "not an .npy file")], ids=lambda x: x if isinstance(x, str) else "reply")
@pytest.mark.parametrize("words", [["get", "f", "out"], ["eval", "f+1", "-o", "out"]])
def test_files_of_the_command(tmp_path, monkeypatch, words, raw, said):
    """Are whole, whether the reply says its length or not, or are what they were before."""
    monkeypatch.chdir(tmp_path)
    pathlib.Path("out").write_bytes(b"before")
    with Server([raw]) as server:
        done = cli(server.url)(*words)
    assert done.status == bool(said) and said in done.err and "Traceback" not in done.err, done
    assert pathlib.Path("out").read_bytes() == (b"before" if said else FILE) and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("raw, whole", [(chunks(b"z" * 24), True), (chunks(b"z" * 24, 8, end=b""), False), (chunks(b"z" * 24, 8, 2), True),
                                        (reply(b"z" * 24, length=False), True), (reply(b"z" * 16, length=False), False)])
def test_bytes_of_the_command(tmp_path, raw, whole):
    """Where they could end anywhere, the daemon is asked how many there are."""
    metadata = reply(b'{"id": "a-1", "name": "f", "shape": [3], "dtype": "float64"}')
    (tmp_path / "out").write_bytes(b"before")
    with Server([raw], *[[metadata]] * (b"chunked" not in raw)) as server:
        done = cli(server.url)("get", "--raw", "f", tmp_path / "out")
    assert done.status == (not whole) and (tmp_path / "out").read_bytes() == (b"z" * 24 if whole else b"before"), done


class Slow(Server):
    """One connection, which stays open. Between the pieces of a reply some time passes."""

    def __init__(self, *replies, pause=0.0):
        self.done, self.pause = threading.Event(), pause
        super().__init__(*replies)

    def serve(self, replies):
        s, _ = self.listener.accept()
        with s:
            s.settimeout(10)
            for pieces in replies:
                self.request(s)
                for k, piece in enumerate(pieces):
                    time.sleep(self.pause if k else 0)
                    s.sendall(piece)
            self.done.wait(10)

    def __exit__(self, *_):
        self.done.set()
        super().__exit__()


@pytest.mark.parametrize("timeout, pause", [(None, 0.02), (0.9, 0.25)])
def test_a_large_body_that_comes_slowly(monkeypatch, timeout, pause):
    """Its reader sleeps until there is much of it, but no longer than the timeout, and not where the rest is small."""
    data = np.random.default_rng(1).integers(0, 255, 3 * AT_ONCE, np.uint8)
    raw, step, woken, wake_at = reply(bytes(data)), AT_ONCE // 16, [], Wire._wake_at
    slowly = [raw[:step], raw[step:2 * step], raw[2 * step:3 * step], raw[3 * step:4 * step], raw[4 * step:5 * step], raw[5 * step:-1], raw[-1:]]
    monkeypatch.setattr(Wire, "_wake_at", lambda self, n: (wake_at(self, n), woken.append(n)))
    with Slow(slowly, [reply(b"next")], [raw], pause=pause) as server:
        t = Transport(server.url, timeout=timeout)
        for k in range(3):
            into = np.zeros(data.size, np.uint8)
            r = t.send(Request("GET", "/x", into=None if k == 1 else memoryview(into)))
            assert r.body == b"next" if k == 1 else np.array_equal(into, data)
            assert all(w.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1 for w in t.open)
        t.close()
    assert len(server.asked) == 3 and (woken.count(1) == 2 if timeout is None else woken.count(1) > 2)


@pytest.mark.parametrize("sent", [10, AT_ONCE // 2, 2 * AT_ONCE])
def test_a_large_body_that_does_not_come(sent):
    """Neither silence nor an end is waited for."""
    raw = reply(bytes(3 * AT_ONCE))[:sent + 100]
    into = memoryview(bytearray(3 * AT_ONCE))
    began = time.monotonic()
    with Slow([raw]) as server:
        t = Transport(server.url, timeout=0.2)
        with pytest.raises(arrayd.ConnectionLost) as e:
            t.send(Request("GET", "/x", into=into))
        assert isinstance(e.value.__cause__, TimeoutError) and time.monotonic() - began < 5
    with Server([raw]) as server:
        with pytest.raises(arrayd.ConnectionLost, match="before its time"):
            Transport(server.url).send(Request("GET", "/x", into=into))


def test_a_refusal_before_the_body_is_through():
    """What the server says of it is what is raised, not that it hung up."""
    no = reply(b'{"code":"too_large","detail":"too much","title":"x","status":413}', "Content-Type: application/problem+json", status=413)
    with Server([no], whole=False) as server:
        with pytest.raises(arrayd.ArraydError) as e:
            Transport(server.url).send(Request("POST", "/x", bytes(64 << 20)))
    assert e.value.code == "too_large"


def test_a_connection_that_was_closed_meanwhile():
    """Is replaced, but nothing is done twice that may not be."""
    with Server([reply(b"1")], [reply(b"2"), b""], [reply(b"3"), b""], [reply(b"4")]) as server:
        t = Transport(server.url)
        assert t.send(Request("GET", "/x")).body == b"1"
        heard(t)  # it is closed
        assert t.send(Request("POST", "/x", b"{}")).body == b"2"
        assert t.send(Request("GET", "/x")).body == b"3"  # and not this one: it ends when it is used
        with pytest.raises(arrayd.ConnectionLost):
            t.send(Request("POST", "/x", b"{}"))
        t.delete_all(["/v1/arrays/a"])
        t.close()
    assert [head.split(b" ")[0] for head, _ in server.asked] == [b"GET", b"POST", b"GET", b"GET", b"POST", b"DELETE"]


@pytest.mark.parametrize("more", [reply(b"not yours"), reply(b"", status=408)])
def test_what_nobody_asked_for(more):
    """Is not taken for the next request's reply, whether it comes with the last one or behind it."""
    with Server([[reply(b"1"), more]], [reply(b"y" * 300_000) + more], [reply(b"3")]) as server:
        t = Transport(server.url)
        assert t.send(Request("GET", "/x")).body == b"1"
        heard(t)
        view = memoryview(bytearray(300_000))
        assert t.send(Request("GET", "/x", into=view)).body == b"" and bytes(view[-2:]) == b"yy"
        assert t.send(Request("GET", "/x")).body == b"3"
        t.close()


@pytest.mark.parametrize("raw", [reply(b"", "Location: /", status=302), reply(b"moved", status=300), reply(b"", status=304)])
def test_what_is_neither_success_nor_a_mistake(raw):
    with Server([raw]) as server:
        t = Transport(server.url, timeout=10)
        with pytest.raises(arrayd.ArraydError):
            t.send(Request("GET", "/x"))
        t.close()


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[" * 100_000])
def test_json_that_is_none(body):
    with Server([reply(body), reply(body, "Retry-After: \u00b2", status=503)]) as server:
        t = Transport(server.url, timeout=10)
        with pytest.raises(arrayd.ArraydError, match="not JSON"):
            t.send(Request("GET", "/x")).json()
        with pytest.raises(arrayd.Busy):
            t.send(Request("GET", "/x"))
        t.close()
    for p in (b'{"code":"x","detail":"y","pointer":["/expr"],"offset":1e300}', b'{"code":[],"detail":{},"pointer":"/expr","offset":1' + b"0" * 30 + b"}"):
        assert "1 +" in str(error_of(422, {}, p).with_expression("1 +"))


def test_what_is_sent():
    """Small bodies with their heads, large ones behind them; and nobody puts lines into a head."""
    bodies = [None, b"", b"x" * 10, memoryview(np.ones(JOINED // 8 + 5)), bytearray(JOINED)]
    with Server([reply(b"")] * 5) as server:
        t = Transport(server.url, token="secret")
        for body in bodies:
            t.send(Request("PUT", "/v1/x?a=b", body, "a/b", "c/d", headers=(("Arrayd-Session", "s-1"),)))
        for path in ("/v1/a b", "/v1/a\r\nX: y", "/v1/\x00", "/v1/ä"):
            with pytest.raises(ValueError):
                t.send(Request("GET", path))
        t.close()
    for (head, body), sent in zip(server.asked, bodies):
        assert body == bytes(sent or b"")
        lines = head.decode().split("\r\n")
        assert lines[0] == "PUT /v1/x?a=b HTTP/1.1"
        got = dict(line.split(": ", 1) for line in lines[1:])
        assert got["Content-Length"] == str(len(body)) and got["Host"] == server.url[7:] and got["Authorization"] == "Bearer secret"
        assert (got["Content-Type"], got["Accept"], got["Arrayd-Session"]) == ("a/b", "c/d", "s-1")
    with pytest.raises(ValueError):
        Transport(server.url, token="a\r\nX: y")
