"""Requests and replies, and how they get there.

What there is to ask for is written without I/O: generators that yield a `Request` and are sent its `Response` (`_engine.py`).
`Transport.run` drives them over connections of `_wire.py`. Thread-safe: a connection serves one thread at a time, idle ones
wait for the next.
"""
from __future__ import annotations

import collections
import contextlib
import json
import os
import secrets
import ssl
import time
import urllib.parse
import weakref
from typing import Any, Deque, Dict, Generator, Iterator, List, NamedTuple, Optional, Tuple, TypeVar

from ._errors import ArraydError, ConnectionLost, error_of
from ._replies import ANY, parsed
from ._version import __version__
from ._wire import BadReply, Head, Wire, length_of, lines_of

IDLE_S = 30.0  # a connection unused for longer is not used again: the server closes them after 75 s
KEPT = 8  # idle connections
JSON = "application/json"
OCTETS = "application/octet-stream"

T = TypeVar("T")

_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class Request(NamedTuple):
    method: str
    path: str
    body: Any = None  # bytes, anything with the buffer protocol, or what yields such and has a length in bytes
    content_type: Optional[str] = None
    accept: Optional[str] = None
    into: Optional[memoryview] = None  # where a successful reply's body goes
    safe: bool = False  # may be sent again where the connection broke before the reply began
    headers: Tuple[Tuple[str, str], ...] = ()
    leased: bool = True  # with the leases that the client holds


class Response(NamedTuple):
    status: int
    headers: Dict[str, str]  # names in lower case
    body: bytes
    request: Request

    def json(self, form: Any = ANY) -> Any:
        """Of a form (see `_replies.py`), or it is a BadReply."""
        return parsed(self.body, form, f"{self.request.method} {self.request.path}", self.status)


Steps = Generator[Request, Response, T]


def ask(method: str, path: str, value: Any = None, **more: Any) -> Request:
    """A request with a JSON body, or none."""
    if value is None:
        return Request(method, path, **more)
    return Request(method, path, _json(value).encode(), JSON, **more)


class Address(NamedTuple):
    host: str
    port: int
    tls: bool
    path: Optional[str]  # of a Unix socket


def address_of(url: str) -> Address:
    """http://host:port, https://host:port (without a port: HTTP's own, 80 and 443), host:port (without: arrayd's own, 7411),
    unix:/path, or a socket's path."""
    if url.startswith("unix:"):
        return Address("localhost", 0, False, url[5:])
    if url.startswith("/"):
        return Address("localhost", 0, False, url)
    bare = "//" not in url
    u = urllib.parse.urlsplit("http://" + url if bare else url)
    if u.scheme not in ("http", "https") or not u.hostname:
        raise ValueError(f"neither http://host:port nor https://host:port nor unix:path: {url!r}")
    if u.path.strip("/") or u.query:
        raise ValueError(f"the address has a path: {url!r}")
    tls = u.scheme == "https"
    return Address(u.hostname, u.port or (7411 if bare else 443 if tls else 80), tls, None)


class Endpoint:
    """Where a daemon is, and who asks it."""

    def __init__(self, url: str, token: Optional[str] = None, timeout: Optional[float] = None,
                 context: Optional[ssl.SSLContext] = None):
        self.url, self.token, self.timeout = url, token, timeout
        self.key = secrets.token_hex(8)  # a reference to it, in pickles
        self.address = address_of(url)
        self.context = context or (ssl.create_default_context() if self.address.tls else None)
        self.always = {"User-Agent": f"arrayd-python/{__version__}", "Accept-Encoding": "identity"}
        if token:
            if not token.isascii() or not token.isprintable():
                raise ValueError("a token is printable ASCII")
            self.always["Authorization"] = f"Bearer {token}"
        self._fixed = "".join(f"{k}: {v}\r\n" for k, v in (("Host", self.host), *self.always.items()))
        self.closed = False
        self.open: "weakref.WeakSet[Any]" = weakref.WeakSet()  # its connections, idle or in use, and those of exports
        self.leases: Dict[str, None] = {}  # of exports: each request is their holder's; any thread puts in and takes out
        _endpoints[self.key] = self

    def in_child(self) -> None:
        """After a fork: the connections and the leases are the parent's. They end here without a word, and none is used again."""
        for wire in self.open:
            wire.forsake()
        self.open = weakref.WeakSet()
        self.leases = {}

    @property
    def host(self) -> str:
        """The Host header."""
        a = self.address
        return a.host if a.path is not None else f"[{a.host}]:{a.port}" if ":" in a.host else f"{a.host}:{a.port}"

    def head_of(self, r: Request) -> bytes:
        """The request up to its body."""
        if not r.path.isascii() or not r.path.isprintable() or " " in r.path:
            raise ValueError(f"a path has neither spaces nor control characters nor what is not ASCII: {r.path!r}")
        text = f"{r.method} {r.path} HTTP/1.1\r\n{self._fixed}"
        if r.content_type:
            text += f"Content-Type: {r.content_type}\r\n"
        if r.accept:
            text += f"Accept: {r.accept}\r\n"
        if r.leased and self.leases:
            text += f"Arrayd-Lease: {', '.join(list(self.leases))}\r\n"
        for name, value in r.headers:
            text += f"{name}: {value}\r\n"
        if r.body is not None:
            text += f"Content-Length: {length_of(r.body)}\r\n"
        elif r.method not in ("GET", "DELETE"):
            text += "Content-Length: 0\r\n"
        return (text + "\r\n").encode("latin-1")


_endpoints: "weakref.WeakValueDictionary[str, Endpoint]" = weakref.WeakValueDictionary()


def _in_child() -> None:
    for endpoint in list(_endpoints.values()):
        endpoint.in_child()


def endpoint_of(key: str) -> Optional[Endpoint]:
    """This process' own, where it is there still."""
    return _endpoints.get(key)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What goes wrong with a connection, as the exception that says so."""
    try:
        yield
    except ArraydError:
        raise
    except (OSError, BadReply) as e:
        raise ConnectionLost(0, "connection_lost", f"{type(e).__name__}: {e}") from e


class Reply:
    """A reply that is read as it comes. `close()`, or the end of a `with`, closes its connection."""

    def __init__(self, wire: Wire, head: Head):
        self._wire, self._head, self._left = wire, head, head.length
        self.headers = head.headers

    def __enter__(self) -> "Reply":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        self._wire.close()

    def within(self, seconds: float) -> None:
        """What comes next comes within so many seconds, or it is a ConnectionLost."""
        self._wire.sock.settimeout(max(seconds, 0.001))

    def read(self) -> bytes:
        """All of it."""
        with _told():
            return self._wire.body(self._head)

    def readinto(self, view: memoryview) -> int:
        """Some of a reply whose length is known: how many bytes, 0 at its end."""
        if not self._left:
            return 0
        with _told():
            n = self._wire.some(view[:self._left])
        if not n:
            whole = self._head.length
            raise ConnectionLost(0, "connection_lost", f"the daemon closed the connection after {whole - self._left} of {whole} bytes")
        self._left -= n
        return n

    def lines(self) -> Iterator[bytes]:
        """Its lines, without their ends."""
        with _told():
            yield from lines_of(self._wire.pieces(self._head))


class Transport(Endpoint):
    """Connections to one daemon."""

    def __init__(self, url: str, token: Optional[str] = None, timeout: Optional[float] = None,
                 context: Optional[ssl.SSLContext] = None):
        super().__init__(url, token, timeout, context)
        self._idle: Deque[Tuple[Wire, float]] = collections.deque()

    # --- connections ---

    def _connect(self) -> Wire:
        a = self.address
        try:
            wire = Wire.to(a.host, a.port, a.path, self.context if a.tls else None, self.timeout)
        except OSError as e:
            raise ConnectionLost(0, "unreachable", f"cannot connect to {self.url}: {e}") from e
        self.open.add(wire)
        return wire

    def in_child(self) -> None:
        super().in_child()
        idle, self._idle = self._idle, collections.deque()
        for wire, _ in idle:
            wire.close()

    def take(self) -> Tuple[Wire, bool]:
        """A connection, and whether it has been used before."""
        while True:
            try:
                c, since = self._idle.pop()
            except IndexError:
                return self._connect(), False
            if c.usable and time.monotonic() - since < IDLE_S:
                return c, True
            c.close()

    def give(self, c: Wire) -> None:
        if self.closed or len(self._idle) >= KEPT:
            c.close()
        else:
            self._idle.append((c, time.monotonic()))

    def close(self) -> None:
        self.closed = True
        while self._idle:
            self._idle.pop()[0].close()

    # --- requests ---

    def send(self, r: Request) -> Response:
        """The reply; an ArraydError where it is none of success."""
        while True:
            c, used = self.take()
            try:
                response = self._exchange(c, r)
            except (BrokenPipeError, ConnectionResetError) as e:
                c.close()
                if used and (r.safe or r.method in ("GET", "PUT", "DELETE")):
                    continue
                raise ConnectionLost(0, "connection_lost", f"the daemon closed the connection: {e}") from e
            except (OSError, BadReply) as e:
                c.close()
                raise ConnectionLost(0, "connection_lost", f"{type(e).__name__}: {e}") from e
            except BaseException:
                c.close()
                raise
            if response.status >= 300:
                raise error_of(response.status, response.headers, response.body)
            return response

    def _exchange(self, c: Wire, r: Request) -> Response:
        c.write(self.head_of(r), r.body)
        h = c.head(r.method)
        body = c.body(h, r.into if h.status < 300 else None)
        if h.stays:
            self.give(c)
        else:
            c.close()
        return Response(h.status, h.headers, body, r)

    def run(self, steps: Steps[T]) -> T:
        """What the steps come to, each request made and waited for."""
        try:
            r = next(steps)
            while True:
                try:
                    response = self.send(r)
                except Exception as e:
                    r = steps.throw(e)
                else:
                    r = steps.send(response)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def stream(self, r: Request) -> Reply:
        """A reply that is read as it comes, on a connection of its own."""
        c = self._connect()
        try:
            with _told():
                c.write(self.head_of(r), r.body)
                h = c.head(r.method)
                if h.status >= 300:
                    raise error_of(h.status, h.headers, c.body(h))
        except BaseException:
            c.close()
            raise
        return Reply(c, h)

    def delete_all(self, paths: List[str]) -> None:
        """DELETEs on one connection, written at once and answered one after the other; what is not there any more is fine. Of more
        than some dozens the replies could fill the connection."""
        data = b"".join(self.head_of(Request("DELETE", p)) for p in paths)
        used = True
        while used:
            c, used = self.take()
            try:
                c.write(data)
                for _ in paths:
                    h = c.head("DELETE")
                    c.body(h)
                    if not h.stays:
                        c.close()
                        return
                self.give(c)
                return
            except (OSError, BadReply):  # a connection that the daemon had closed meanwhile, or the daemon has gone
                c.close()
