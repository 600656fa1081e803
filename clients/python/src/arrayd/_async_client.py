"""The client for asyncio: the same namespace, with `await` for everything that sends a request."""
from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
import time
from typing import Any, AsyncIterator, Callable, Coroutine, Dict, Generator, Generic, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np

from . import _dtypes as dt
from . import _events as events
from . import _looks as looks
from ._array import Array
from ._async_transport import AsyncReleaser, AsyncTransport, done
from ._calls import Calls
from ._client import again
from ._devices import Device, chosen, name_of, session_on
from ._endpoint import Moves
from ._engine import Engine
from ._errors import ArraydError, ConnectionLost, NotFound
from ._events import Events, Told
from ._export import Exported
from ._files import Arrays, File, is_file, name_alone, saving
from ._graph import Node
from ._jobs import JobFailed, JobStatus, StepsBar
from ._lease import Lease
from ._namespace import Bound, Ref
from ._replies import EVENT, INFO, JOB, SESSION
from ._requests import Response, Steps

T = TypeVar("T")


class Opening(Generic[T]):
    """What is awaited for something that also ends: `x = await f()`, or `async with f() as x:`."""

    def __init__(self, opening: Coroutine[Any, Any, T]):
        self._opening = opening
        self._opened: Any = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._opening.__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._opening
        return self._opened  # type: ignore[no-any-return]

    async def __aexit__(self, *error: Any) -> None:
        await self._opened.__aexit__(*error)


class AsyncArray(Array):
    """An array whose values are awaited: `await x.numpy()`, `await x.item()`, `await x.compute()`.

    Operators and functions build an expression, as with `Array`. `float(x)`, `np.asarray(x)` and the like work only for values that are
    in this process already (numbers and small arrays after `await x.compute()` or `numpy()`, if no other client writes to them) and raise RuntimeError
    otherwise. So does an assignment that needs the server: use `await x.assign(key, value)`.
    """

    __slots__ = ()

    @property
    def _mine(self) -> "AsyncClient":
        assert isinstance(self._client, AsyncClient)
        return self._client

    async def compute(self) -> "AsyncArray":  # type: ignore[override]
        """Evaluates the expression; the values stay on the server (a number comes here). Returns self."""
        await self._mine._await(self._client._engine.compute(self._node))
        return self

    async def numpy(self) -> "np.ndarray[Any, Any]":  # type: ignore[override]
        """The values; read-only if they are small and kept in this process."""
        value: "np.ndarray[Any, Any]" = await self._mine._await(self._client._engine.fetch(self._node))
        return value

    async def item(self) -> Any:
        """The value of an array of one element."""
        value = await self.numpy()
        if self.size != 1:
            raise ValueError(f"an array of {self.size} elements is not a single number")
        return dt.plain(value).item()

    async def tolist(self) -> Any:
        """The values as nested lists."""
        return dt.plain(await self.numpy()).tolist()

    async def assign(self, key: Any, value: Any) -> "AsyncArray":
        """`x[key] = value`. Returns self."""
        asked = self._assigning(key, value)
        if asked is not None:
            await self._mine._await(asked)
        return self

    async def summary(self, bins: Optional[int] = None, lo: Optional[float] = None,  # type: ignore[override]
                      hi: Optional[float] = None, percentiles: Optional[Sequence[float]] = None, exact: bool = False) -> looks.Summary:
        """Counts, extremes, moments, histogram and percentiles of the elements. See `Summary`."""
        found: looks.Summary = await self._mine._await(looks.summary(self, bins, lo, hi, percentiles, exact))
        return found

    async def image(self, cmap: Optional[str] = None, lo: Optional[float] = None, hi: Optional[float] = None, *,  # type: ignore[override]
                    percentiles: Optional[Tuple[float, float]] = None, width: Optional[int] = None, height: Optional[int] = None,
                    pool: Optional[str] = None, bar: bool = False) -> looks.Picture:
        """A picture of an array of two axes, or of three with 3 or 4 colours in the last. See `Array.image`."""
        made: looks.Picture = await self._mine._await(looks.image(self, cmap, lo, hi, percentiles, width, height, pool, bar))
        return made

    async def changes(self, interval: Optional[float] = None) -> AsyncIterator[Dict[str, Any]]:  # type: ignore[override]
        """The array's metadata, now and whenever it or the contents have changed. See `Array.changes`."""
        stream: Told = await self._mine._await(events.of_array(self, {"interval": interval}))
        async for _, event in stream.each(self._mine._transport):
            yield event

    async def frames(self, cmap: Optional[str] = None, lo: Optional[float] = None, hi: Optional[float] = None, *,  # type: ignore[override]
                     percentiles: Optional[Tuple[float, float]] = None, width: Optional[int] = None, height: Optional[int] = None,
                     pool: Optional[str] = None, bar: bool = False, interval: Optional[float] = None) -> AsyncIterator[looks.Picture]:
        """Pictures, now and whenever the contents have changed. See `Array.frames`."""
        query = looks.picture_query(cmap, lo, hi, percentiles, width, height, pool, bar)
        stream: Told = await self._mine._await(events.of_array(self, {**query, "frames": "true", "interval": interval}))
        async for _, event in stream.each(self._mine._transport):
            made = events.picture_of(stream, event)
            if made is not None:
                yield made

    def _repr_png_(self) -> None:
        """Notebooks do not wait: `await x.image()` is shown."""

    def exported(self, mode: str = "read") -> "AsyncExported":  # type: ignore[override]
        """Maps the array's memory into this process, without a copy: `async with x.exported() as m:`. See `Array.exported`."""
        return AsyncExported(self, mode)

    def leased(self, mode: str = "write", ttl_s: float = 60.0) -> "AsyncLease":
        """Exclusive use of the array or, with "read", an unchanged array, for some requests: `async with x.leased():`. See `Lease`."""
        return AsyncLease(self, mode, ttl_s)

    def __str__(self) -> str:
        return super().__str__() if self._node.value is not None else repr(self)

    def __repr__(self) -> str:
        if self._node.value is not None:
            return super().__repr__()
        return f"arrayd.array(…, shape={self.shape}, dtype={dt.name_of(self.dtype)})"


class AsyncLease(Lease):
    """`async with` instead of `with`, and `await lease.renew()`."""

    __enter__ = __exit__ = None  # type: ignore[assignment]

    async def renew(self) -> None:  # type: ignore[override]
        if self.token is None:
            raise ValueError("the array is leased within `async with x.leased():` only")
        await self._x._mine._await(self._taking())  # type: ignore[attr-defined]

    async def __aenter__(self) -> "AsyncLease":
        if self.token is not None:
            raise ValueError("it is held already: x.leased() makes another one")
        await self._x._mine._await(self._taking())  # type: ignore[attr-defined]
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self._x._mine._await(self._giving())  # type: ignore[attr-defined]


class AsyncExported:
    """`async with` around an `Exported`: what waits for the daemon's socket or for the device does so in a thread."""

    def __init__(self, x: Array, mode: str):
        assert isinstance(x, AsyncArray)
        self._client, self._memory = x._mine, Exported(x, mode)

    async def __aenter__(self) -> Exported:
        reply = await self._client._await(self._memory._asking())
        await _in_thread(_call, [self._memory], "_take", reply, undo=self._memory._end)
        return self._memory

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        held = sys.getrefcount(self._memory) > 3  # besides this object, the variable behind `as` and the counting
        try:
            await _in_thread(self._memory._end, held)
        except ConnectionLost:
            if kind is None:
                raise


def _call(of: List[Any], method: str, *args: Any) -> None:
    """A method of what the list has, and has no more: a pool's thread forgets its arguments some time later only."""
    getattr(of.pop(), method)(*args)


async def _in_thread(function: Callable[..., Any], *args: Any, undo: Optional[Callable[[], Any]] = None) -> Any:
    """To its end, also where the task is cancelled meanwhile; then what it began is undone."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if undo is not None and not work.exception():
            with contextlib.suppress(ConnectionLost):
                await asyncio.to_thread(undo)
        raise


class AsyncJob(JobStatus):
    """A program on its way: `await job.wait()`, or `async for status in job:` for its progress."""

    def __init__(self, client: "AsyncClient", status: Dict[str, Any], arrays: List[Array], texts: Optional[Mapping[str, str]] = None):
        super().__init__(client, status, arrays, texts)
        self._client = client

    async def refresh(self) -> "AsyncJob":
        self.status = (await self._client._transport.send(self._request("GET"))).json(JOB)
        return self

    async def wait(self, timeout: Optional[float] = None, *, progress: bool = False) -> "AsyncJob":
        """Until it ends, also if the daemon is restarted meanwhile, or TimeoutError; JobFailed if it failed. With `progress` a bar is shown on standard error: tqdm's, where that is
        installed, else one of this package's own."""
        until = None if timeout is None else time.monotonic() + timeout
        if progress and not self.ended:
            with contextlib.suppress(asyncio.TimeoutError, ConnectionLost):  # as in `Job._show`
                await asyncio.wait_for(self._show(), timeout)
        absence = self._absence()
        while not self.ended:
            request, pause = self._waiting(until)
            await asyncio.sleep(pause)
            try:
                self.status = (await self._client._transport.send(request, beside=True)).json(JOB)
            except ArraydError as e:
                await asyncio.sleep(absence.pause(e, until))
            else:
                absence.over()
        if self.state == "failed":
            raise JobFailed(self)
        return self

    async def _show(self) -> None:
        with StepsBar(self) as bar:
            async for status in self.events():
                bar.show(status)

    async def events(self) -> AsyncIterator[Dict[str, Any]]:
        """The job's status each time it changes, until it ends (Server-Sent Events)."""
        events, absence = Events(self._listening(), EVENT), self._absence()
        while not events.ended:
            lost: Optional[ArraydError] = None
            try:
                async for line in self._client._transport.stream(self._listening(events.last)):
                    event = events.line(line)
                    if event is not None:
                        absence.over()
                        self._said(event)
                        yield self.status
            except ArraydError as e:
                lost = e
            if not events.ended:
                events.cut()
                await asyncio.sleep(absence.pause(lost))
        await self.refresh()

    def __aiter__(self) -> AsyncIterator[Dict[str, Any]]:
        return self.events()

    async def cancel(self) -> "AsyncJob":
        """Ends it after a whole step. One that has ended stays as it is."""
        await self._client._transport.run(self._cancelling(), beside=True)
        return self

    async def resume(self) -> "AsyncJob":
        """Continues from the last whole step."""
        self.status = (await self._client._transport.send(self._request("POST", "/resume"))).json(JOB)
        return self


class AsyncClient(Calls):
    """The array namespace of `Client`, in an asyncio event loop.

    `aconnect` makes one. The namespace's functions build expressions without waiting; every call that sends a request is awaited.
    Many tasks can use a client at the same time: each request has its own connection, up to `connections`. If a task is cancelled,
    the daemon drops its work.
    """

    _transport: AsyncTransport
    _waits = False  # from_dlpack of device memory goes through this process' memory: only `upload` waits

    def __init__(self, transport: AsyncTransport, device: str, session: Optional[str] = None, owns: str = ""):
        self._transport = transport
        self._releaser = AsyncReleaser(transport)
        self._engine = Engine(session, self._releaser, transport)
        self._owns = owns
        self._lent: Dict[Node, int] = {}  # whose values are here for so many calls only
        self.device = device

    def _wrap(self, node: Node, shared: bool = False) -> AsyncArray:
        x = AsyncArray._of(node, self, shared)
        assert isinstance(x, AsyncArray)
        return x

    def _run(self, steps: Generator[Any, Any, Any]) -> Any:
        """What needs no request, and no other move, is done."""
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        steps.close()
        raise RuntimeError("that needs the server, and nothing is waited for here: await x.compute(), x.numpy(), x.item(), "
                           "x.patch(dims=…) or x.assign(key, value), or await xp.call(function, x, …)")

    async def _await(self, steps: Steps[Any]) -> Any:
        return await self._transport.run(steps)

    _carry = _await

    def _made(self, moves: Moves[T]) -> T:
        result: T = self._run(moves)
        return result

    async def _moved(self, moves: Moves[T]) -> T:
        return await done(moves)

    async def _aside(self, function: Callable[..., Any], *args: Any) -> Any:
        return await _in_thread(function, *args)

    def _job_of(self, status: Dict[str, Any]) -> AsyncJob:
        return AsyncJob(self, status, [])

    def _borrowing(self, x: Array) -> Tuple[Any, Any]:
        exported = AsyncExported(x, "write")
        return exported.__aenter__, exported.__aexit__

    async def _ask(self, method: str, path: str, value: Any = None) -> Response:
        return await self._transport.send(self._engine.ask(method, path, value))

    # --- the daemon ---

    @property
    def url(self) -> str:
        """Its address: for other processes, which may pass it to `connect`."""
        return self._transport.url

    async def info(self) -> Dict[str, Any]:
        """Version, backend, devices, limits and operations."""
        info: Dict[str, Any] = (await self._ask("GET", "/v1/info")).json(INFO)
        return info

    async def request(self, method: str, path: str, value: Any = None) -> Any:
        """Sends any request of the HTTP API: a JSON body in, the JSON reply out (None if it has none)."""
        return await self._await(self._requesting(method, path, value))

    # --- sessions ---

    def session(self, *, name: Optional[str] = None, ttl_s: Optional[float] = None, memory_limit: Optional[int] = None,
                device: Optional[Device] = None) -> "Opening[AsyncClient]":
        """Creates a session, which is deleted with all its arrays at the end of an `async with`, or by close(). See `Client.session`."""
        async def begin() -> AsyncClient:
            made = await self._await(self._beginning_session(name, ttl_s, memory_limit, device))
            return AsyncClient(self._transport, name_of(await self.info(), made.get("device", 0)), made["id"], "session")

        return Opening(begin())

    async def sync(self) -> None:
        """Sends the assignments that wait, and waits until all work has finished."""
        await self._transport.run(self._engine.write())
        await self.request("POST", f"/v1/sessions/{self._engine.session or 'default'}/sync")

    async def release(self) -> None:
        """Deletes arrays without references now rather than shortly."""
        await self._releaser.flush()

    async def close(self) -> None:
        """Deletes the session, if session() made this client. If aconnect() made it, deletes its arrays without a name and
        closes the connections; later requests, including those for its arrays and of its sessions, raise ConnectionLost. In
        a forked child the session is the parent's and remains."""
        owns, self._owns = self._owns, ""
        if owns == "session":
            self._releaser.forget()
            if not self._releaser.inherited:
                with contextlib.suppress(NotFound):
                    await self._transport.send(self._engine.ask("DELETE", f"/v1/sessions/{self._engine.session}"), last=True)
        elif owns:
            await self._releaser.close()
            await self._transport.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        try:
            await self.close()
        except ArraydError:
            if kind is None:  # what went wrong inside says more
                raise

    # --- arrays of the server ---

    def array(self, object: Any, dtype: Any = None, **more: Any) -> Any:
        """Of text, and awaited: the array with this name or id; it remains on the server when this process no longer refers to it. Of
        values: an array of them, as numpy.array makes one."""
        return self._await(self._finding(object)) if isinstance(object, str) else self._array_of(object, dtype, **more)

    async def arrays(self, shared: bool = False) -> AsyncIterator[Dict[str, Any]]:
        """The metadata of all arrays of the session, in order of creation, or with `shared` of those that other users share with this
        one: `async for m in xp.arrays()`."""
        after: Optional[str] = ""
        while after is not None:
            arrays, following = await self._await(self._page(after, shared))
            for m in arrays:
                yield m
            after = following or None

    async def upload(self, x: Any, /) -> AsyncArray:
        """Creates an array on the server, as `asarray` and `from_dlpack` of `Client` do. Values of this process are uploaded without a copy,
        and must not change meanwhile. GPU memory (of any object with `__dlpack__`) is copied on the device if
        the daemon exports its memory. (This client's own `asarray` and `from_dlpack` do not wait, and so copy the values.)"""
        if isinstance(x, Array):
            made = self.asarray(x)
        elif isinstance(x, (np.ndarray, np.generic)) or not hasattr(x, "__dlpack_device__"):
            made = await self._await(self._uploading(*self._values_of(x)))
        else:
            made = await done(self._taking(x, True))
        assert isinstance(made, AsyncArray)
        return await made.compute()

    async def save(self, name: File, x: Arrays, *, attrs: Optional[Mapping[str, Any]] = None, deflate: Optional[int] = None,
                   coords: Optional[bool] = None, ghosts: Optional[str] = None, unlimited: Optional[Sequence[str]] = None) -> Any:
        """Stores values as an array with a name, or writes them to a file of this machine. See `Client.save`."""
        if is_file(name):
            return await done(saving(self, name, x, {"attrs": attrs, "deflate": deflate, "coords": coords, "ghosts": ghosts, "unlimited": unlimited}))
        return await self._await(self._saving(name_alone(name, attrs, deflate, coords, ghosts, unlimited), x))

    async def delete(self, ref: Ref) -> None:
        """Deletes an array by name or id."""
        await self._await(self._deleting(ref))

    async def metadata(self, x: Ref) -> Dict[str, Any]:
        """An array's metadata from the server."""
        m: Dict[str, Any] = await self._await(self._describing(x))
        return m

    # --- expressions as text ---

    async def evaluate(self, expr: str, /, *, bind: Optional[Mapping[str, Bound]] = None, dtype: Any = None, fast_math: bool = False,
                       **named: Bound) -> AsyncArray:
        """Evaluates an infix expression over the session's named arrays and the values bound here. See `Client.evaluate`."""
        result: AsyncArray = await self._await(self._evaluating(expr, {**(bind or {}), **named}, dtype, fast_math))
        return result

    async def define(self, name: str, params: Sequence[str], expr: str) -> None:
        """Defines a function for use in expressions; an existing function with this name is replaced."""
        await self._await(self._defining(name, params, expr))

    async def program(self, body: Union[str, Sequence[str]], *, steps: int, bind: Optional[Mapping[str, Bound]] = None,
                      record: Optional[Mapping[str, str]] = None, record_every: Optional[int] = None,
                      snapshot: Optional[Mapping[str, int]] = None, until: Optional[str] = None, until_every: Optional[int] = None,
                      stop_on_nan: bool = False, fast_math: bool = False, **named: Bound) -> AsyncJob:
        """Starts a time loop on the server: statements that are run `steps` times. See `Client.program`."""
        optional = {"record": record, "record_every": record_every, "snapshot": snapshot, "until": until, "until_every": until_every,
                    "stop_on_nan": stop_on_nan, "fast_math": fast_math}
        return AsyncJob(self, *await self._await(self._beginning_program(body, steps, {**(bind or {}), **named}, optional)))

    async def changes(self, interval: Optional[float] = None) -> AsyncIterator[Tuple[str, Dict[str, Any]]]:
        """What changes in the lists of the session's arrays and of the user's jobs. See `Client.changes`."""
        async for told in events.of_lists(self._engine.headers, interval).each(self._transport):
            yield told

    async def job(self, id_: str) -> AsyncJob:
        """A job of this user's, by its id."""
        return AsyncJob(self, (await self._ask("GET", f"/v1/jobs/{id_}")).json(JOB), [])

    # --- what is computed here ---

    async def call(self, function: Callable[..., T], /, *args: Any, **named: Any) -> T:
        """A function that needs its arrays' values in this process (`xp.sort`, `xp.matmul`, `lambda x, m: x[m]`, …): they are
        fetched, then it is called in a thread. `await xp.call(xp.sort, x, axis=0)`."""
        nodes = {a._node for a in (*args, *named.values()) if isinstance(a, Array)}
        values = await asyncio.gather(*(self._await(self._engine.fetch(n)) for n in nodes))
        lent = [n for n in nodes if n in self._lent or n.value is None]
        for n, v in zip(nodes, values):
            if n.value is None:
                v.flags.writeable = False
                n.value = v
        for n in lent:
            self._lent[n] = self._lent.get(n, 0) + 1
        try:
            return await asyncio.to_thread(function, *args, **named)
        finally:
            for n in lent:
                self._lent[n] -= 1
                if not self._lent[n]:
                    del self._lent[n]
                    n.value = None

    def __reduce__(self) -> Any:
        return again, (self._transport.url, self._engine.session, self._transport.key)


def aconnect(url: Optional[str] = None, token: Optional[str] = None, *, timeout: Optional[float] = None,
             context: Optional[ssl.SSLContext] = None, session: Optional[str] = None, device: Optional[Device] = None,
             connections: int = 16) -> "Opening[AsyncClient]":
    """An asynchronous client: `async with arrayd.aconnect(url) as xp:`, or `xp = await arrayd.aconnect(url)`.

    The arguments are those of `connect`; `connections` is the number of requests that can be under way at the same time; further ones wait.
    """
    on = chosen(session, device)

    def make(url: str) -> AsyncTransport:
        return AsyncTransport(url, token or os.environ.get("ARRAYD_TOKEN"), timeout, context, connections)

    async def connecting() -> AsyncClient:
        if url is not None:
            transport = make(url)
        else:
            from ._local import reached
            transport = await asyncio.to_thread(reached, make, token)
        try:
            place = session if on is None else await transport.run(session_on(on))
            client = AsyncClient(transport, "", place, "transport")
            info = await client.info()
            where = place or ("default" if len(info.get("devices", ())) > 1 else None)
            client.device = name_of(info, (await client._ask("GET", f"/v1/sessions/{where}")).json(SESSION).get("device", 0) if where else 0)
            transport.started = info.get("process", {}).get("started")
        except BaseException:
            await transport.close()
            raise
        return client

    return Opening(connecting())
