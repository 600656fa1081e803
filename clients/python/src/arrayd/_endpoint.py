"""A daemon as both clients see it: where it is, what each request carries, and what becomes of it. Without I/O.

What is done with connections is written once, as `Moves`: generators that yield a function of the client's (to connect, to write, to
read) with its arguments, and are sent what it gives, or thrown what it raises. The synchronous client calls it, the asynchronous one
awaits it; neither decides anything.
"""
from __future__ import annotations

import collections
import contextlib
import os
import secrets
import ssl
import time
import urllib.parse
import weakref
from typing import Any, Callable, Deque, Dict, Generator, Iterator, List, NamedTuple, Optional, Tuple, TypeVar

from ._errors import ArraydError, ConnectionLost, NotFound, after_restart, error_of
from ._http import Body, Garbled, Gone, Head, Inbox, Reading, head_from, length_of
from ._replies import PROCESS
from ._requests import Request, Response, Steps
from ._turns import Writing, turns
from ._version import __version__

IDLE_S = 30.0  # a connection unused for longer is not used again: the server closes them after 75 s

T = TypeVar("T")

Move = Tuple[Any, ...]  # a function, and its arguments
Moves = Generator[Move, Any, T]


class Address(NamedTuple):
    host: str
    port: int
    tls: bool
    path: Optional[str]  # of a Unix socket
    prefix: str = ""  # of every request's path, where a proxy serves the daemon below it


def address_of(url: str) -> Address:
    """http://host:port, https://host:port (without a port: HTTP's own, 80 and 443), host:port (without: arrayd's own, 7411), each
    with the path below which a proxy serves the daemon, unix:/path, or a socket's path."""
    if url.startswith("unix:"):
        return Address("localhost", 0, False, url[5:])
    if url.startswith("/"):
        return Address("localhost", 0, False, url)
    bare = "//" not in url
    u = urllib.parse.urlsplit("http://" + url if bare else url)
    if "@" in u.netloc:  # which is not repeated: there is a password in it
        raise ValueError("an address with a user or a password: arrayd has tokens, connect(…, token=…)")
    if u.scheme not in ("http", "https") or not u.hostname:
        raise ValueError(f"neither http://host:port nor https://host:port nor unix:path: {url!r}")
    prefix = u.path.rstrip("/")
    if u.query or u.fragment or not prefix.isascii() or not prefix.isprintable() or " " in prefix:
        raise ValueError(f"an address has a host, a port and a path, of ASCII and without spaces: {url!r}")
    tls = u.scheme == "https"
    return Address(u.hostname, u.port or (7411 if bare else 443 if tls else 80), tls, None, prefix)


class Endpoint:
    """Where a daemon is, who asks it, and the connections to it that wait for the next request: `kept` at most.

    A connection has `inbox`, `usable`, `close()` (orderly) and `abort()`, and the functions of moves `write(head, body)` and
    `read(reading)`."""

    def __init__(self, url: str, token: Optional[str], timeout: Optional[float], context: Optional[ssl.SSLContext], kept: int):
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
        self.started: Optional[str] = None  # when the daemon was, as it said at the first `connect`
        self.closed = False
        self.daemon: Any = None  # where it is this process' own
        self.open: "weakref.WeakSet[Any]" = weakref.WeakSet()  # its connections, idle or in use, and those of exports
        # a lock of whoever assigns to arrays; None: nothing is written in place, so that what two ask for at once is computed twice, and right
        # both times
        self.alone: Any = None
        self.writing: Optional[Writing] = None  # what is being written in place, where that is done
        self.leases: Dict[str, None] = {}  # of exports, and taken: each request is their holder's; any thread puts in and takes out
        self._kept = kept
        self._idle: Deque[Tuple[Any, float]] = collections.deque()  # and since when
        _endpoints[self.key] = self

    def in_child(self) -> None:
        """After a fork: the connections and the leases are the parent's. They end here without a word, and none is used again."""
        for wire in self.open:
            wire.forsake()
        self.open = weakref.WeakSet()
        self.leases = {}
        self._idle = collections.deque()

    @property
    def host(self) -> str:
        """The Host header."""
        a = self.address
        return a.host if a.path is not None else f"[{a.host}]:{a.port}" if ":" in a.host else f"{a.host}:{a.port}"

    def head_of(self, r: Request) -> bytes:
        """The request up to its body."""
        if not r.path.isascii() or not r.path.isprintable() or " " in r.path:
            raise ValueError(f"a path has neither spaces nor control characters nor what is not ASCII: {r.path!r}")
        text = f"{r.method} {self.address.prefix}{r.path} HTTP/1.1\r\n{self._fixed}"
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

    # --- connections ---

    def _connect(self) -> Any:
        """A move: a new connection, or ConnectionLost."""
        raise NotImplementedError

    def _used(self) -> Any:
        """A connection that has been used before; None where there is none."""
        while True:
            try:
                wire, since = self._idle.pop()
            except IndexError:
                return None
            if wire.usable and time.monotonic() - since < IDLE_S:
                return wire
            wire.abort()

    def give(self, wire: Any, stays: bool = True) -> None:
        """Back for the next request, if it stays."""
        if not stays or self.closed or len(self._idle) >= self._kept:
            wire.close()
        else:
            self._idle.append((wire, time.monotonic()))

    def _close_all(self) -> None:
        self.closed = True
        while self._idle:
            self._idle.pop()[0].close()

    # --- requests ---

    def _check_open(self) -> None:
        if self.closed:
            raise ConnectionLost(0, "client_closed", f"the client of {self.url} is closed")

    def sending(self, r: Request, last: bool = False) -> Moves[Response]:
        """The reply; an ArraydError where it is none of success. `last`: also where the client is closed."""
        try:
            return (yield from self._exchanging(r, last))
        except NotFound as e:
            raise (yield from self._explained(e)) from None

    def _explained(self, e: NotFound) -> Moves[NotFound]:
        """With the cause, where the daemon was restarted since this client connected."""
        if self.started is None or after_restart(e, "") is None:
            return e
        try:
            info = (yield from self._exchanging(Request("GET", "/v1/info"), False)).json(PROCESS)
        except ArraydError:
            return e
        now = info["process"]["started"]
        return (after_restart(e, now) or e) if now != self.started else e

    def _exchanging(self, r: Request, last: bool) -> Moves[Response]:
        if not last:
            self._check_open()
        while True:
            used = self._used()
            wire = used or (yield (self._connect,))
            try:
                yield wire.write, self.head_of(r), r.body
                response, stays = yield wire.read, answer(wire.inbox, r)
            except (OSError, Garbled) as e:
                wire.abort()
                if not (used and r.again and isinstance(e, (BrokenPipeError, ConnectionResetError))):
                    raise lost(e) from e
            except BaseException:  # also where a task was cancelled: the daemon sees it by the connection's end
                wire.abort()
                raise
            else:
                self.give(wire, stays)
                return succeeded(response)

    def receiving(self, wire: Any, r: Request) -> Moves[Response]:
        """The reply to a request that has been written there, which is not made again."""
        try:
            response, stays = yield wire.read, answer(wire.inbox, r)
        except BaseException as e:
            wire.abort()
            if isinstance(e, (OSError, Garbled)):
                raise lost(e) from e
            raise
        self.give(wire, stays)
        return succeeded(response)

    def running(self, steps: Steps[T], send: Callable[..., Any], *more: Any) -> Moves[T]:
        """What the steps come to, each request made by `send`, a move."""
        run = turns.begin().started()
        try:
            with turns.lock:
                turns.run = run
                r = next(steps)
            while True:
                try:
                    response = yield send, r, *more
                except Exception as e:
                    with turns.lock:
                        turns.run = run
                        r = steps.throw(e)
                else:
                    with turns.lock:
                        turns.run = run
                        r = steps.send(response)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            with turns.lock:
                turns.run = run
                steps.close()
                run.end()

    def opening(self, r: Request) -> Moves[Tuple[Any, Head, Body]]:
        """A connection on which the body of a successful reply is next: one of its own."""
        self._check_open()
        wire = yield (self._connect,)
        try:
            with told():
                yield wire.write, self.head_of(r), r.body
                head: Head = yield wire.read, head_from(wire.inbox, r.method)
                body = Body(wire.inbox, head)
                if head.status >= 300:
                    raise error_of(head.status, head.headers, (yield wire.read, body.whole()))
        except BaseException:
            wire.abort()
            raise
        return wire, head, body

    def deleting(self, paths: List[str]) -> Moves[None]:
        """DELETEs on one connection, written at once and answered one after the other; what is not there any more is fine. Of more
        than some dozens the replies could fill the connection."""
        data = b"".join(self.head_of(Request("DELETE", p)) for p in paths)
        while True:
            used = self._used()
            wire = used or (yield (self._connect,))
            try:
                yield wire.write, data
                stays = yield wire.read, deleted(wire.inbox, len(paths))
            except (OSError, Garbled):  # a connection that the daemon had closed meanwhile, or the daemon has gone
                wire.abort()
                if not used:
                    return
            except BaseException:
                wire.abort()
                raise
            else:
                self.give(wire, stays)
                return


def answer(inbox: Inbox, r: Request) -> Reading[Tuple[Response, bool]]:
    """The reply to a request, and whether the connection stays."""
    head = yield from head_from(inbox, r.method)
    into = r.into if head.status < 300 else None
    body = inbox.next(head.length) if into is None and head.length >= 0 else None
    if body is None:  # it has not come yet, or goes elsewhere
        body = yield from Body(inbox, head).whole(into)
    return Response(head.status, head.headers, body, r), head.stays


def deleted(inbox: Inbox, n: int) -> Reading[bool]:
    """So many replies to DELETE; whether the connection stays."""
    for _ in range(n):
        head = yield from head_from(inbox, "DELETE")
        yield from Body(inbox, head).whole()
        if not head.stays:
            return False
    return True


def succeeded(response: Response) -> Response:
    if response.status >= 300:
        raise error_of(response.status, response.headers, response.body)
    return response


def lost(e: Exception) -> ConnectionLost:
    """What went wrong with a connection, as the exception that says so."""
    if isinstance(e, Gone):  # which says this itself
        return ConnectionLost(0, "connection_lost", str(e))
    if isinstance(e, (BrokenPipeError, ConnectionResetError)):
        return ConnectionLost(0, "connection_lost", f"the daemon closed the connection: {e}")
    return ConnectionLost(0, "connection_lost", f"{type(e).__name__}: {e}")


@contextlib.contextmanager
def told() -> Iterator[None]:
    """What goes wrong with a connection inside is a ConnectionLost."""
    try:
        yield
    except ArraydError:
        raise
    except (OSError, Garbled) as e:
        raise lost(e) from e


_endpoints: "weakref.WeakValueDictionary[str, Endpoint]" = weakref.WeakValueDictionary()


def _in_child() -> None:
    for endpoint in list(_endpoints.values()):
        endpoint.in_child()


def endpoint_of(key: str) -> Optional[Endpoint]:
    """This process' own, where it is there still."""
    return _endpoints.get(key)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
