"""Connections to one daemon in an asyncio event loop.

They are asyncio's own transports, rather than a pool of threads: a request that is cancelled takes its connection with it, at once,
whereupon the daemon drops the work (a thread would have gone on), and a thousand evaluations in flight are a thousand small objects.
Bodies go from the socket straight to where they are wanted. What is done with connections is decided in `_endpoint.py`.

A client has at most `connections` of them; who comes when all are busy waits for his turn. What is uploaded is written as fast as it
is taken. One event loop; not thread-safe, but for `AsyncReleaser.add`.
"""
from __future__ import annotations

import asyncio
import collections
import os
import socket
import ssl
from typing import Any, AsyncIterator, Deque, List, Optional, TypeVar, cast

from ._endpoint import Endpoint, Moves, told
from ._errors import ConnectionLost
from ._http import Inbox, Lines, Reading, pieces_of
from ._releases import EXIT_S, PAUSE_S, Releases
from ._requests import Request, Response, Steps
from ._wire import forsake
from ._writes import send_waiting, waiting

PIECE = 1 << 18  # bytes that are written before it is looked whether they go

T = TypeVar("T")


class Wire(asyncio.BufferedProtocol):
    """One connection, used by one task at a time. `timeout`: seconds in which not a byte moves."""

    def __init__(self, timeout: Optional[float]):
        self.timeout, self.inbox = timeout, Inbox()
        self._transport: Any = None
        self._waiter: Optional["asyncio.Future[None]"] = None
        self._held = self._full = self._lost = False  # reading is paused; writing is; it is closed
        self._moved = 0

    # --- called by the transport ---

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.inbox.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._moved += nbytes
        if not self.inbox.received(nbytes):
            return
        if self.inbox.full and not self._held:
            self._held = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self.inbox.end()
        self._wake()
        return False

    def connection_lost(self, exc: Optional[Exception]) -> None:
        if exc is not None and not self._transport.get_extra_info("sslcontext"):
            self._drain()
        self.inbox.end(exc)
        self._lost = True
        self._wake()

    def _drain(self) -> None:
        """What came before a write failed: asyncio forgets to look, and it may say why."""
        try:
            while not self.inbox.full and not self.inbox.ended:
                self.buffer_updated(os.readv(self._transport.get_extra_info("socket").fileno(), [self.inbox.room()]))
        except OSError:
            pass

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._moved += 1
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # --- called by its user ---

    @property
    def usable(self) -> bool:
        """Open, with nothing in it that nobody asked for."""
        return not self.inbox.ended and self.inbox.empty and self._transport is not None and not self._transport.is_closing()

    def forsake(self) -> None:
        if self._transport is not None and not self._lost:
            sock = self._transport.get_extra_info("socket")
            if sock.fileno() >= 0:
                forsake(sock)

    def abort(self) -> None:
        if self._transport is not None and not self._lost:
            self._transport.abort()

    def close(self) -> None:
        """With TLS's farewell, where there is one."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    async def _wait(self) -> None:
        """Until something has changed."""
        while True:
            before = self._moved
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                if self.timeout is None:
                    await self._waiter
                else:
                    await asyncio.wait_for(self._waiter, self.timeout)
                return
            except asyncio.TimeoutError:
                if self._moved == before:
                    raise TimeoutError(f"nothing has moved for {self.timeout} seconds") from None
            finally:
                self._waiter = None

    async def write(self, head: bytes, body: Any = None) -> None:
        """A request, or several in one piece; or less, where the reply has begun before (as it does when a body is refused)."""
        for piece in pieces_of(head, body):
            view = memoryview(piece)
            for at in range(0, len(view), PIECE):
                if self._answered():
                    return
                self._transport.write(view[at:at + PIECE])
                while (self._full or self._transport.is_closing()) and not self._answered():
                    await self._wait()

    def _answered(self) -> bool:
        """A reply has begun. Gone where none can come any more."""
        if self.inbox.empty and self.inbox.ended:
            raise self.inbox.gone()
        return not self.inbox.empty

    async def read(self, reading: Reading[T]) -> T:
        """What the reading comes to, by as much as it needs."""
        try:
            while True:
                next(reading)
                if self._held:
                    self._held = False
                    self._transport.resume_reading()
                await self._wait()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            reading.close()


class Turns:
    """At most so many at a time, in the order in which they came. (Before Python 3.11 a turn that asyncio.Semaphore gave to somebody
    just cancelled was lost.)"""

    def __init__(self, most: int):
        self._free = most
        self._waiting: Deque["asyncio.Future[None]"] = collections.deque()

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(turn)
            else:  # it was given in the same moment
                self._pass_on()
            raise

    async def __aexit__(self, *_: Any) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        for turn in self._waiting:
            if not turn.done():
                self._waiting.remove(turn)
                turn.set_result(None)
                return
        self._free += 1


async def done(moves: Moves[T]) -> T:
    """What the moves come to, each awaited."""
    try:
        move = next(moves)
        while True:
            try:
                got = await move[0](*move[1:])
            except BaseException as e:
                move = moves.throw(e)
            else:
                move = moves.send(got)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        moves.close()


class AsyncTransport(Endpoint):
    """Connections to one daemon, in one event loop."""

    def __init__(self, url: str, token: Optional[str] = None, timeout: Optional[float] = None,
                 context: Optional[ssl.SSLContext] = None, connections: int = 16):
        if connections < 1:
            raise ValueError("connections is at least 1")
        super().__init__(url, token, timeout, context, connections)
        self._turns = Turns(connections)

    def in_child(self) -> None:
        super().in_child()
        self._turns = Turns(self._kept)  # the tasks that had a turn are the parent's

    async def _connect(self) -> Wire:
        loop, a = asyncio.get_running_loop(), self.address
        made: Any
        try:
            if a.path is not None:
                made = loop.create_unix_connection(lambda: Wire(self.timeout), a.path)
            else:
                made = loop.create_connection(lambda: Wire(self.timeout), a.host, a.port, ssl=self.context if a.tls else None)
            transport, protocol = await (made if self.timeout is None else asyncio.wait_for(made, self.timeout))
        except (OSError, asyncio.TimeoutError) as e:
            raise ConnectionLost(0, "unreachable", f"cannot connect to {self.url}: {e}") from e
        if a.path is None:
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.open.add(protocol)
        return cast(Wire, protocol)

    async def close(self) -> None:
        self._close_all()
        await asyncio.sleep(0)  # the loop closes them
        if self.daemon is not None:
            await asyncio.to_thread(self.daemon.leave, self)

    async def send(self, r: Request, beside: bool = False, last: bool = False) -> Response:
        """The reply; an ArraydError where it is none of success. `beside` the others, without a turn, goes what waits for something
        that they may have to bring about; `last`: also where this is closed."""
        if waiting:  # assignments of the process' synchronous clients
            await asyncio.to_thread(send_waiting)
        if beside:
            return await done(self.sending(r, last))
        async with self._turns:
            return await done(self.sending(r, last))

    async def run(self, steps: Steps[T], beside: bool = False) -> T:
        """What the steps come to, each request made and awaited."""
        return await done(self.running(steps, self.send, beside))

    async def stream(self, r: Request) -> AsyncIterator[bytes]:
        """The lines of a reply, as they come, on a connection of its own."""
        wire, _, body = await done(self.opening(r))
        lines = Lines()
        try:
            while True:
                with told():
                    data = await wire.read(body.some())
                if not data:
                    return
                for line in lines.of(data):
                    yield line
        finally:
            wire.abort()

    async def delete_all(self, paths: List[str]) -> None:
        """See `Endpoint.deleting`."""
        async with self._turns:
            await done(self.deleting(paths))


class AsyncReleaser(Releases):
    """Deletes many at a time, in the event loop."""

    def __init__(self, transport: AsyncTransport):
        self.transport = transport
        super().__init__(transport)

    def _reset(self) -> None:
        super()._reset()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._woken = False
        self._task: Optional["asyncio.Task[None]"] = None

    def _here(self) -> None:
        """In this loop from now on."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._woken, self._flushing = loop, False, asyncio.Lock()

    def watch(self, user: object, path: str) -> None:
        self._here()
        super().watch(user, path)

    def add(self, path: str) -> None:
        super().add(path)
        if not self._woken and self._loop is not None:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._loop.call_later, PAUSE_S, self._begin)
            except RuntimeError:  # the loop has ended: it goes at the interpreter's end
                pass

    def _begin(self) -> None:
        self._woken = False
        if not self.transport.closed and self._loop is not None:
            self._task = self._loop.create_task(self.flush())

    async def close(self) -> None:
        """Deletes everything that is ours, used or not, in bounded time."""
        self.add_all()
        try:
            await asyncio.wait_for(self.flush(), EXIT_S)
        except asyncio.TimeoutError:
            pass

    async def flush(self) -> None:
        """Now; what another task is just releasing is gone, too, on return."""
        self._here()
        async with self._flushing:
            while not self.transport.closed:
                paths = self.batch()
                if not paths:
                    return
                try:
                    await self.transport.delete_all(paths)
                except ConnectionLost:
                    return
