"""Requests and replies in an asyncio event loop.

HTTP/1.1 is spoken here (its heads by `_wire.py`), over asyncio's own transports, rather than by a pool of threads: a request that
is cancelled takes its connection with it, at once, whereupon the daemon drops the work (a thread would have gone on), and a
thousand evaluations in flight are a thousand small objects. Bodies go from the socket straight to where they are wanted.

A client has at most `connections` of them; who comes when all are busy waits for his turn. What is uploaded is written as fast as it
is taken. One event loop; not thread-safe, but for `AsyncReleaser.add`.
"""
from __future__ import annotations

import asyncio
import collections
import os
import socket
import ssl
import time
from typing import Any, AsyncIterator, Deque, List, Optional, Tuple, TypeVar, Union, cast

from ._errors import ConnectionLost, error_of
from ._releases import EXIT_S, PAUSE_S, Releases
from ._transport import IDLE_S, Endpoint, Request, Response, Steps
from ._wire import BadReply, Gone, Head, chunk_length, forsake, head_of

BUFFER = 1 << 16  # bytes: a reply's head is no longer
PIECE = 1 << 18  # bytes that are written before it is looked whether they go

T = TypeVar("T")


class Wire(asyncio.BufferedProtocol):
    """One connection, used by one task at a time. `timeout`: seconds in which not a byte moves."""

    def __init__(self, timeout: Optional[float]):
        self.timeout = timeout
        self._transport: Any = None
        self._buffer = bytearray(BUFFER)
        self._start = self._end = 0  # what was received and not yet read
        self._into: Optional[memoryview] = None  # where to receive to, instead
        self._waiter: Optional["asyncio.Future[None]"] = None
        self._held = self._full = self._eof = self._lost = False  # reading is paused; writing is; nothing more comes; it is closed
        self._moved = 0
        self._error: Optional[Exception] = None

    # --- called by the transport ---

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> Union[bytearray, memoryview]:
        if self._into is not None:
            return self._into
        if self._start:
            self._buffer[:self._end - self._start] = self._buffer[self._start:self._end]
            self._start, self._end = 0, self._end - self._start
        if self._end == len(self._buffer):  # TLS of Python 3.9 and 3.10 goes on although reading is paused
            self._buffer = self._buffer + bytearray(BUFFER)
        return memoryview(self._buffer)[self._end:]

    def buffer_updated(self, nbytes: int) -> None:
        self._moved += nbytes
        if self._into is not None:
            self._into = self._into[nbytes:]
            if len(self._into):
                return
            self._into = None
        else:
            self._end += nbytes
            if self._end - self._start >= BUFFER and not self._held:
                self._held = True
                self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._eof = True
        self._wake()
        return False

    def connection_lost(self, exc: Optional[Exception]) -> None:
        if exc is not None and not self._transport.get_extra_info("sslcontext"):
            self._drain()
        self._eof, self._error, self._lost = True, exc, True
        self._wake()

    def _drain(self) -> None:
        """What came before a write failed: asyncio forgets to look, and it may say why."""
        try:
            while self._end - self._start < BUFFER:
                n = os.readv(self._transport.get_extra_info("socket").fileno(), [self.get_buffer(-1)])
                if not n:
                    return
                self.buffer_updated(n)
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
        return not self._eof and self._start == self._end and self._transport is not None and not self._transport.is_closing()

    def forsake(self) -> None:
        if self._transport is not None and not self._lost:
            sock = self._transport.get_extra_info("socket")
            if sock.fileno() >= 0:
                forsake(sock)

    def abort(self) -> None:
        self._into = None
        if self._transport is not None and not self._lost:
            self._transport.abort()

    async def close(self) -> None:
        """With TLS's farewell, where there is one."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            await asyncio.sleep(0)

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

    def _check(self) -> None:
        if self._eof:
            raise Gone(str(self._error or "the daemon closed the connection"))

    async def write(self, data: Any) -> None:
        """All of it, in pieces; or less, where the reply has begun before (as it does when a body is refused)."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        for at in range(0, len(view), PIECE):
            if self._over():
                return
            self._transport.write(view[at:at + PIECE])
            while (self._full or self._transport.is_closing()) and not self._over():
                await self._wait()

    def _over(self) -> bool:
        """A reply has begun. Gone where none can come any more."""
        if self._start == self._end:
            self._check()
        return self._start != self._end

    async def _some(self) -> bool:
        """Something is in the buffer; False at the end of what comes."""
        while self._start == self._end:
            if self._eof:
                return False
            self._go_on()
            await self._wait()
        return True

    def _go_on(self) -> None:
        if self._held:
            self._held = False
            self._transport.resume_reading()

    async def until(self, mark: bytes) -> bytes:
        """What comes up to the mark and with it."""
        while True:
            at = self._buffer.find(mark, self._start, self._end)
            if at >= 0:
                out = bytes(memoryview(self._buffer)[self._start:at + len(mark)])
                self._start = at + len(mark)
                return out
            if self._end - self._start >= BUFFER:
                raise BadReply("a line or head of the reply is too long")
            if self._eof:
                if self._start == self._end:
                    self._check()
                raise BadReply("the reply ended before its time")
            self._go_on()
            await self._wait()

    async def exactly(self, view: memoryview) -> None:
        """Fills the view."""
        at = min(self._end - self._start, len(view))
        view[:at] = memoryview(self._buffer)[self._start:self._start + at]
        self._start += at
        if at == len(view):
            return
        self._into = view[at:]
        self._go_on()
        try:
            while self._into is not None:
                if self._eof:
                    raise BadReply("the reply ended before its time")
                await self._wait()
        finally:
            self._into = None

    async def piece(self, most: int) -> bytes:
        """Some bytes, b"" at the end."""
        if not await self._some():
            return b""
        n = min(most, self._end - self._start)
        out = bytes(memoryview(self._buffer)[self._start:self._start + n])
        self._start += n
        return out


class Body:
    """What follows a reply's head."""

    def __init__(self, wire: Wire, head: Head):
        self.wire, self.chunked = wire, head.chunked
        self.left = 0 if head.chunked else head.length  # of a chunk, or of the whole; -1: to the end of the connection
        self.ended = not self.chunked and not self.left
        self.first = True

    async def read(self) -> bytes:
        """Some of it; b"" at its end."""
        if self.chunked and not self.left and not self.ended:
            if not self.first:
                await self.wire.until(b"\r\n")
            self.first = False
            self.left = chunk_length(await self.wire.until(b"\r\n"))
            if not self.left:
                while await self.wire.until(b"\r\n") != b"\r\n":
                    pass
                self.ended = True
        if self.ended:
            return b""
        data = await self.wire.piece(self.left if self.left > 0 else BUFFER)
        if self.left > 0:
            if not data:
                raise BadReply("the reply ended before its time")
            self.left -= len(data)
            self.ended = not self.left and not self.chunked
        elif not data:
            self.ended = True
        return data

    async def whole(self, into: Optional[memoryview]) -> bytes:
        if into is not None and (self.chunked or self.left != len(into)):
            raise BadReply(f"the reply has {self.left} bytes where the array has {len(into)}")
        if not self.chunked and self.left > 0:
            view = into if into is not None else memoryview(bytearray(self.left))
            await self.wire.exactly(view)
            self.ended = True
            return b"" if into is not None else bytes(view)
        parts: List[bytes] = []
        while True:
            data = await self.read()
            if not data:
                return b"".join(parts)
            parts.append(data)


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


class AsyncTransport(Endpoint):
    """Connections to one daemon, in one event loop."""

    def __init__(self, url: str, token: Optional[str] = None, timeout: Optional[float] = None,
                 context: Optional[ssl.SSLContext] = None, connections: int = 16):
        super().__init__(url, token, timeout, context)
        if connections < 1:
            raise ValueError("connections is at least 1")
        self._most = connections
        self._begin()

    def _begin(self) -> None:
        self._turns = Turns(self._most)
        self._idle: Deque[Tuple[Wire, float]] = collections.deque()

    def in_child(self) -> None:
        super().in_child()
        self._begin()  # the tasks that had a turn are the parent's

    # --- connections ---

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

    async def _take(self) -> Tuple[Wire, bool]:
        """A connection, and whether it has been used before."""
        while self._idle:
            wire, since = self._idle.pop()
            if wire.usable and time.monotonic() - since < IDLE_S:
                return wire, True
            wire.abort()
        return await self._connect(), False

    async def _give(self, wire: Wire) -> None:
        if self.closed or len(self._idle) >= self._most:
            await wire.close()
        else:
            self._idle.append((wire, time.monotonic()))

    async def close(self) -> None:
        self.closed = True
        while self._idle:
            await self._idle.pop()[0].close()

    # --- requests ---

    async def _asked(self, wire: Wire, r: Request) -> None:
        head = self.head_of(r)
        body = memoryview(r.body).cast("B") if r.body else memoryview(b"")
        if len(body) <= PIECE:
            await wire.write(head + bytes(body))
        else:
            await wire.write(head)
            await wire.write(body)

    async def _answered(self, wire: Wire, method: str) -> Tuple[Head, Body]:
        while True:
            head = head_of((await wire.until(b"\r\n\r\n"))[:-4], method)
            if head.status >= 200:
                return head, Body(wire, head)

    async def _exchange(self, wire: Wire, r: Request) -> Response:
        await self._asked(wire, r)
        head, body = await self._answered(wire, r.method)
        content = await body.whole(r.into if head.status < 300 else None)
        if head.stays and wire.usable:
            await self._give(wire)
        else:
            await wire.close()
        return Response(head.status, head.headers, content, r)

    async def send(self, r: Request, beside: bool = False) -> Response:
        """The reply; an ArraydError where it is none of success. `beside` the others, without a turn, goes what waits for something
        that they may have to bring about."""
        if beside:
            response = await self._sent(r)
        else:
            async with self._turns:
                response = await self._sent(r)
        if response.status >= 300:
            raise error_of(response.status, response.headers, response.body)
        return response

    async def _sent(self, r: Request) -> Response:
        while True:
            wire, used = await self._take()
            try:
                return await self._exchange(wire, r)
            except Gone as e:
                wire.abort()
                if used and (r.safe or r.method in ("GET", "PUT", "DELETE")):
                    continue
                raise ConnectionLost(0, "connection_lost", f"the daemon closed the connection: {e}") from e
            except (OSError, BadReply) as e:
                wire.abort()
                raise ConnectionLost(0, "connection_lost", f"{type(e).__name__}: {e}") from e
            except BaseException:  # cancelled: the daemon sees it by the connection's end
                wire.abort()
                raise

    async def run(self, steps: Steps[T], beside: bool = False) -> T:
        """What the steps come to, each request made and awaited."""
        try:
            r = next(steps)
            while True:
                try:
                    response = await self.send(r, beside)
                except Exception as e:
                    r = steps.throw(e)
                else:
                    r = steps.send(response)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            steps.close()

    async def stream(self, r: Request) -> AsyncIterator[bytes]:
        """The lines of a reply, as they come, on a connection of its own."""
        wire = await self._connect()
        try:
            await self._asked(wire, r)
            head, body = await self._answered(wire, r.method)
            if head.status >= 300:
                raise error_of(head.status, head.headers, await body.whole(None))
            rest = b""
            while True:
                data = await body.read()
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    yield line
                if not data:
                    return
        except (OSError, BadReply) as e:
            if isinstance(e, ConnectionLost):
                raise
            raise ConnectionLost(0, "connection_lost", f"{type(e).__name__}: {e}") from e
        finally:
            wire.abort()

    async def delete_all(self, paths: List[str]) -> None:
        """DELETEs on one connection, written at once and answered one after the other; what is not there any more is fine."""
        data, used = b"".join(self.head_of(Request("DELETE", p)) for p in paths), True
        async with self._turns:
            while used:
                wire, used = await self._take()
                try:
                    await wire.write(data)
                    for _ in paths:
                        head, body = await self._answered(wire, "DELETE")
                        await body.whole(None)
                        if not head.stays:
                            await wire.close()
                            return
                    await self._give(wire)
                    return
                except (OSError, BadReply):  # a connection that the daemon had closed meanwhile, or the daemon has gone
                    wire.abort()
                except BaseException:
                    wire.abort()
                    raise


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
