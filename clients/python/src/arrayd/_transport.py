"""Connections to one daemon for the synchronous client. Thread-safe: a connection serves one thread at a time, idle ones wait for the
next. What is done with them is decided in `_endpoint.py`."""
from __future__ import annotations

import ssl
import threading
from typing import Any, Iterator, List, Optional, TypeVar

from ._endpoint import Endpoint, Moves, lost, told
from ._errors import ConnectionLost
from ._http import Body, Garbled, Head, Lines
from ._requests import Request, Response, Steps
from ._turns import Writing
from ._wire import Wire

KEPT = 8  # idle connections

T = TypeVar("T")


def done(moves: Moves[T]) -> T:
    """What the moves come to, each made."""
    try:
        move = next(moves)
        while True:
            try:
                got = move[0](*move[1:])
            except BaseException as e:
                move = moves.throw(e)
            else:
                move = moves.send(got)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class Reply:
    """A reply that is read as it comes. `close()`, or the end of a `with`, closes its connection. `length` in bytes, -1 where it is not
    known before; `ends`: it says itself where it ends, else the end of the connection may be that of half of it."""

    def __init__(self, wire: Wire, head: Head, body: Body):
        self._wire, self._body, self._done = wire, body, 0
        self.length, self.ends = head.length, head.chunked or head.length >= 0

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
        with told():
            return self._wire.read(self._body.whole())

    def readinto(self, view: memoryview) -> int:
        """Some of it: how many bytes, 0 at its end."""
        with told():
            left = self._wire.read(self._body.left())
            if not left:
                return 0
            n = self._wire.readinto(view[:left] if left > 0 else view)
        if not n and left > 0:
            of = f"{self._done} of {self.length} bytes" if self.length >= 0 else f"{self._done} bytes, which are not all"
            raise ConnectionLost(0, "connection_lost", f"the daemon closed the connection after {of}")
        self._body.took(n)
        self._done += n
        return n

    def lines(self) -> Iterator[bytes]:
        """Its lines, without their ends."""
        lines = Lines()
        while True:
            with told():
                data = self._wire.read(self._body.some())
            if not data:
                return
            yield from lines.of(data)


class Sent:
    """A request whose reply is not waited for yet."""

    def __init__(self, transport: "Transport", wire: Wire, request: Request):
        self._transport, self._wire, self._request = transport, wire, request
        self.abort = wire.abort
        self.makes_nothing = request.method == "GET"

    @property
    def has_come(self) -> bool:
        """The reply, or some of it."""
        return self._wire.has_come

    def reply(self, seconds: Optional[float] = None) -> Response:
        """Waits for it, so many seconds for anything to come at most, if that is less than usual."""
        sock, usual = self._wire.sock, self._transport.timeout
        if seconds is None or (usual is not None and usual <= seconds):
            return done(self._transport.receiving(self._wire, self._request))
        sock.settimeout(seconds)
        return done(self._transport.receiving(self._wire, self._request))


class Transport(Endpoint):
    """Connections to one daemon."""

    writes: Any = None  # that wait for the next request (see `_writes.py`)

    def __init__(self, url: str, token: Optional[str] = None, timeout: Optional[float] = None,
                 context: Optional[ssl.SSLContext] = None):
        super().__init__(url, token, timeout, context, KEPT)
        self.alone, self.writing = threading.RLock(), Writing()

    def _connect(self) -> Wire:
        a = self.address
        try:
            wire = Wire.to(a.host, a.port, a.path, self.context if a.tls else None, self.timeout)
        except OSError as e:
            raise ConnectionLost(0, "unreachable", f"cannot connect to {self.url}: {e}") from e
        self.open.add(wire)
        return wire

    def in_child(self) -> None:
        idle = list(self._idle)
        self.alone, self.writing = threading.RLock(), Writing()  # a thread that the child has not may have the parent's
        super().in_child()
        for wire, _ in idle:
            wire.close()

    def give(self, wire: Any, stays: bool = True) -> None:
        if wire.sock.gettimeout() != self.timeout:  # of a reply that was not to be waited for as long
            wire.sock.settimeout(self.timeout)
        super().give(wire, stays)

    def close(self) -> None:
        self._close_all()
        if self.daemon is not None:
            self.daemon.leave(self)

    def send_writes(self) -> None:
        """Those that wait, before a run: within one their thread may hold up what they wait for."""
        if self.writes is not None:
            self.writes.send_all()

    def send(self, r: Request, last: bool = False) -> Response:
        """The reply; an ArraydError where it is none of success. `last`: also where this is closed."""
        return done(self.sending(r, last))

    def begin(self, r: Request) -> Sent:
        """Sends it, and does not wait."""
        self._check_open()
        wire: Wire = self._used() or self._connect()
        try:
            wire.write(self.head_of(r), r.body)
        except BaseException as e:
            wire.abort()
            if isinstance(e, (OSError, Garbled)):
                raise lost(e) from e
            raise
        return Sent(self, wire, r)

    def run(self, steps: Steps[T]) -> T:
        """What the steps come to, each request made and waited for."""
        return done(self.running(steps, self.send))

    def stream(self, r: Request) -> Reply:
        """A reply that is read as it comes, on a connection of its own."""
        self.send_writes()
        return Reply(*done(self.opening(r)))

    def delete_all(self, paths: List[str]) -> None:
        """See `Endpoint.deleting`."""
        done(self.deleting(paths))
