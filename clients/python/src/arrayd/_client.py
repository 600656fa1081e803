"""The client: a session of a daemon, and the array namespace over it."""
from __future__ import annotations

import contextlib
import importlib
import os
import ssl
import sys
import weakref
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np

from . import _events as events
from ._array import Array
from ._calls import Calls
from ._devices import Device, chosen, name_of, session_on
from ._endpoint import Moves, endpoint_of
from ._engine import Engine
from ._errors import ArraydError, NotFound, OutOfMemory
from ._files import Arrays, File, is_file, name_alone, saving
from ._flow import Flow
from ._graph import Handle, Node, detached, postorder, stored
from ._jobs import Job
from ._loops import Stream
from ._namespace import Bound, Ref
from ._releases import Releaser
from ._replies import INFO, JOB, SESSION
from ._requests import Request, Response, Steps
from ._stream import stream
from ._transport import Transport, done
from ._turns import turns
from ._writes import Writes

MANY = 20000  # operations that are not sent yet: then they are, so that their graph does not grow without end
LARGE = 1 << 20  # bytes: values that are not kept here until they are needed

T = TypeVar("T")


class Client(Calls):
    """An array namespace (Python Array API standard 2024.12) whose arrays are in a daemon.

    `connect` makes one. It can be used by several threads. As a context manager it ends its session if it has one of its own,
    and closes its connections if it was made by `connect`.
    """

    _transport: Transport

    def __init__(self, transport: Transport, session: Optional[str] = None, owns: str = ""):
        self._transport = transport
        if transport.writes is None:
            transport.writes = Writes(transport.run)
        self._releaser = Releaser(transport)
        self._engine = Engine(session, self._releaser, transport)
        self._owns = owns
        self._engine.flow = Flow(transport)
        self._due = self._many = 0  # the numbers of the nodes at which what was built is looked at, for loops and because it is much
        self._device: Optional[str] = None
        _clients[transport.key, session] = self

    def _run(self, steps: Steps[Any]) -> Any:
        self._transport.send_writes()
        return done(self._transport.running(steps, self._send))

    def _send(self, r: Request) -> Response:
        """Where there is no memory, again when what nobody has any more is gone: that is deleted some moments later."""
        try:
            return self._transport.send(r)
        except OutOfMemory:
            if not isinstance(r.body, (bytes, memoryview)):  # it has been read
                raise
        if self._engine.flow is not None:
            self._engine.flow.leave()
        self._releaser.flush()
        return self._transport.send(r)

    def _wrap(self, node: Node, shared: bool = False) -> Array:
        if node.number >= self._due and not turns.are_taken:
            self._send_some(node)
        return Array._of(node, self, shared)

    def _fetched(self, node: Node) -> "np.ndarray[Any, Any]":
        ahead = self._engine.ahead
        assert ahead is not None
        if node.value is not None:
            return node.value
        if turns.are_taken:
            return self._fetched_within(node)
        with turns.take(turns.begin()):
            looked = self._engine.is_look(node) and not ahead.look(node)
        if node.value is not None:
            return node.value
        value: "np.ndarray[Any, Any]" = self._run(self._engine.looked(node, ahead) if looked else self._engine.fetch(node))
        return value

    def _fetched_within(self, node: Node) -> "np.ndarray[Any, Any]":
        """For a signal handler or a finalizer that interrupts its thread as that reads and notes expressions (see `_turns.py`)."""
        order = postorder(node)
        copies: Dict[Node, Node] = {}
        assert self._transport.writing is not None
        self._transport.writing.check(order)
        for n in order:
            copy = copies[n] = detached(n.op, tuple(copies[a] for a in n.args), n.shape, n.dtype, n.attrs, n.value)
            copy.key, copy.handle = n.key, None if n.handle is None else Handle(n.handle.id)  # nobody's, so that it is not written to
        with turns.interrupted():
            value: "np.ndarray[Any, Any]" = self._transport.run(self._engine.fetched(copies[node]))
        return value

    def _send_some(self, node: Node) -> None:
        flow = self._engine.flow
        assert flow is not None
        with turns.take():
            self._due = node.number + self._engine.under_way(node, flow)
        if node.number < self._many:
            return
        self._many = node.number + MANY
        nodes = stream([node])
        if len(nodes) >= MANY // 2:
            with contextlib.suppress(ArraydError):  # it is said of the value that somebody asks for
                self._run(self._engine.settle(node, Stream(nodes, self._engine.period)))

    def _given(self, value: Any, dtype: Any) -> Array:
        """Large arrays are uploaded at once, without a copy; not within a request's steps, which need them as part of it."""
        if value.nbytes < LARGE or turns.are_taken:
            return super()._given(value, dtype)
        uploaded: Array = self._run(self._uploading(value, dtype))
        return uploaded

    def _made(self, moves: Moves[T]) -> T:
        return done(moves)

    def _carry(self, steps: Steps[T]) -> T:
        self._transport.send_writes()
        return self._transport.run(steps)

    def _moved(self, moves: Moves[T]) -> T:
        self._transport.send_writes()
        return done(moves)

    def _aside(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def _job_of(self, status: Dict[str, Any]) -> Job:
        return Job(self, status, [])

    def _borrowing(self, x: Array) -> Tuple[Any, Any]:
        exported = x.exported("write")
        return exported.__enter__, exported.__exit__

    def _here(self, x: Array) -> Array:
        """A copy by the daemon, where the other client works on another of its devices."""
        home: Any = x._client
        if home._engine.url != self._engine.url or home.device == self.device:
            return x
        return self._wrap(stored(self._run(self._engine.copy(x.compute()._place())), x.shape, x.dtype))

    def _settled(self, x: Array) -> Array:
        return x.compute()

    def _ask(self, method: str, path: str, value: Any = None, **more: Any) -> Any:
        self._transport.send_writes()
        return self._transport.send(self._engine.ask(method, path, value, **more))

    # --- the daemon ---

    @property
    def url(self) -> str:
        """Its address: for other processes, which may pass it to `connect`."""
        return self._transport.url

    def info(self) -> Dict[str, Any]:
        """Version, backend, devices, limits and operations."""
        info: Dict[str, Any] = self._ask("GET", "/v1/info").json(INFO)
        return info

    @property
    def device(self) -> str:  # type: ignore[override]
        """Where the arrays are: "cpu", "cuda:0", …, or "mesh", several GPUs as one."""
        if self._device is None:
            self._look_where(self.info())
        assert self._device is not None
        return self._device

    def _look_where(self, info: Dict[str, Any]) -> None:
        session = self._engine.session or ("default" if len(info.get("devices", ())) > 1 else None)
        self._device = name_of(info, self._ask("GET", f"/v1/sessions/{session}").json(SESSION).get("device", 0) if session else 0)

    def request(self, method: str, path: str, value: Any = None) -> Any:
        """Sends any request of the HTTP API: a JSON body in, the JSON reply out (None if it has none)."""
        return self._run(self._requesting(method, path, value))

    # --- sessions ---

    def session(self, *, name: Optional[str] = None, ttl_s: Optional[float] = None, memory_limit: Optional[int] = None,
                device: Optional[Device] = None) -> "Client":
        """Creates a session, which is deleted with all its arrays at the end of a `with`, or by close(). It is on `device`, a number or
        "mesh"; else on this client's if that has a session, or on the one that has most memory free."""
        made = self._run(self._beginning_session(name, ttl_s, memory_limit, device))
        return Client(self._transport, made["id"], "session")

    def sync(self) -> None:
        """Sends the assignments that wait, and waits until all work has finished."""
        self._run(self._engine.write())
        self._ask("POST", f"/v1/sessions/{self._engine.session or 'default'}/sync")

    def release(self) -> None:
        """Deletes arrays without references now rather than shortly."""
        self._releaser.flush()

    def close(self) -> None:
        """Deletes the session, if session() made this client. If connect() made it, deletes its arrays without a name and
        closes the connections; later requests, including those for its arrays and of its sessions, raise ConnectionLost. In
        a forked child the session is the parent's and remains."""
        owns, self._owns = self._owns, ""
        try:
            if self._transport.writes.is_due:
                self._transport.writes.send()
        finally:
            self._close(owns)

    def _close(self, owns: str) -> None:
        if self._engine.flow is not None:
            self._engine.flow.leave()
        if owns == "session":
            self._releaser.forget()
            if not self._releaser.inherited:
                with contextlib.suppress(NotFound):
                    self._transport.send(self._engine.ask("DELETE", f"/v1/sessions/{self._engine.session}"), last=True)
        elif owns:
            self._releaser.finish()
            self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            self.close()
        except ArraydError:
            if kind is None:  # what went wrong inside says more
                raise

    # --- arrays of the server ---

    def array(self, object: Any, dtype: Any = None, **more: Any) -> Array:
        """Of text: the array with this name or id; it remains on the server when this process no longer refers to it. Of values: an
        array of them, as numpy.array makes one."""
        if not isinstance(object, str):
            return self._array_of(object, dtype, **more)
        found: Array = self._run(self._finding(object))
        return found

    def arrays(self, shared: bool = False) -> Iterator[Dict[str, Any]]:
        """The metadata of all arrays of the session, in order of creation; with `shared` of those that other users share with this one,
        each with its "owner"."""
        arrays, after = self._run(self._page("", shared))
        yield from arrays
        while after:
            arrays, after = self._run(self._page(after, shared))
            yield from arrays

    def save(self, name: File, x: Arrays, *, attrs: Optional[Mapping[str, Any]] = None, deflate: Optional[int] = None,
             coords: Optional[bool] = None, ghosts: Optional[str] = None, unlimited: Optional[Sequence[str]] = None) -> Any:
        """Stores values as an array with a name, which is returned; an existing array with this name is replaced. Named arrays remain until they
        are deleted.

        With the path of a file: writes an array, or a dictionary of arrays by the names of variables, to a file of this machine, in the
        format that its suffix says (.npy, .npz, .nc, .h5, .tif, .png). The daemon makes it, with attributes, names of axes, units and coordinates
        (not those with `coords=False`), and with `ghosts="keep"` the ghost cells of grids; `attrs` are the file's own, `deflate` from 1 to 9
        makes it smaller, and `unlimited` names axes that may grow in it."""
        if is_file(name):
            return self._moved(saving(self, name, x, {"attrs": attrs, "deflate": deflate, "coords": coords, "ghosts": ghosts, "unlimited": unlimited}))
        return self._run(self._saving(name_alone(name, attrs, deflate, coords, ghosts, unlimited), x))

    def delete(self, ref: Ref) -> None:
        """Deletes an array by name or id."""
        self._run(self._deleting(ref))

    def metadata(self, x: Ref) -> Dict[str, Any]:
        """An array's metadata from the server."""
        m: Dict[str, Any] = self._run(self._describing(x))
        return m

    # --- expressions as text ---

    def evaluate(self, expr: str, /, *, bind: Optional[Mapping[str, Bound]] = None, dtype: Any = None, fast_math: bool = False,
                 **named: Bound) -> Array:
        """Evaluates an infix expression over the session's named arrays and the values bound here:
        `client.evaluate("u + dt*laplacian(u)", u=u, dt=0.1)`. The message for an error marks its place in the expression."""
        result: Array = self._run(self._evaluating(expr, {**(bind or {}), **named}, dtype, fast_math))
        return result

    def define(self, name: str, params: Sequence[str], expr: str) -> None:
        """Defines a function for use in expressions; an existing function with this name is replaced."""
        self._run(self._defining(name, params, expr))

    def program(self, body: Union[str, Sequence[str]], *, steps: int, bind: Optional[Mapping[str, Bound]] = None,
                record: Optional[Mapping[str, str]] = None, record_every: Optional[int] = None,
                snapshot: Optional[Mapping[str, int]] = None, until: Optional[str] = None, until_every: Optional[int] = None,
                stop_on_nan: bool = False, fast_math: bool = False, **named: Bound) -> Job:
        """Starts a time loop on the server: one or more statements that are run `steps` times.

        `client.program(["u += 0.1*laplacian(u)"], steps=1000, u=u).wait()` writes to u: an array that is bound to an
        assigned name is changed in place. `record` collects values of expressions, `until` ends the program. The message for an error
        marks its place in the statement or expression.
        """
        optional = {"record": record, "record_every": record_every, "snapshot": snapshot, "until": until, "until_every": until_every,
                    "stop_on_nan": stop_on_nan, "fast_math": fast_math}
        return Job(self, *self._run(self._beginning_program(body, steps, {**(bind or {}), **named}, optional)))

    def changes(self, interval: Optional[float] = None) -> Iterator[Tuple[str, Dict[str, Any]]]:
        """What changes in the lists of the session's arrays and of the user's jobs, until the session ends: "arrays" and "jobs" with what is
        new or another, `gone`, and `written` (ids). First comes all there is. The end of the login is an error."""
        return events.of_lists(self._engine.headers, interval).all(self._transport)

    def job(self, id_: str) -> Job:
        """One of the user's jobs, by its id."""
        return Job(self, self._ask("GET", f"/v1/jobs/{id_}").json(JOB), [])

    def __reduce__(self) -> Any:
        return again, (self._transport.url, self._engine.session, self._transport.key)


_clients: "weakref.WeakValueDictionary[Tuple[str, Optional[str]], Client]" = weakref.WeakValueDictionary()  # in the order of their making


def again(url: str, session: Optional[str], key: str) -> Client:
    """Of an unpickled reference. In the process that pickled it, and in its forks: the client that it was, or, where that has gone or
    was an asynchronous one, one with its token, its timeout and its TLS context. Elsewhere: of this process' clients of that URL the
    last one made, or a new one with ARRAYD_TOKEN."""
    client = _clients.get((key, session))
    if client is not None and not client._transport.closed:
        return client
    same = [c._transport for c in list(_clients.values()) if c._transport.url == url and not c._transport.closed]
    endpoint = endpoint_of(key) or (same[-1] if same else None)
    if endpoint is None:
        client = opened(Transport(url, os.environ.get("ARRAYD_TOKEN")))
        return client if session is None else Client(client._transport, session)
    if isinstance(endpoint, Transport) and not endpoint.closed:
        client = _clients.get((endpoint.key, session))
        return client or Client(endpoint, session)
    transport = Transport(endpoint.url, endpoint.token, endpoint.timeout, endpoint.context)
    if endpoint.daemon is not None:
        transport.daemon = endpoint.daemon
        endpoint.daemon.users.add(transport)
    client = _clients[key, session] = Client(transport, session, "transport")
    return client


def last_made() -> Optional[Client]:
    """Of this process' clients."""
    open_ones = [c for c in list(_clients.values()) if not c._transport.closed]
    return open_ones[-1] if open_ones else None


def connect(url: Optional[str] = None, token: Optional[str] = None, *, timeout: Optional[float] = None,
            context: Optional[ssl.SSLContext] = None, session: Optional[str] = None, device: Optional[Device] = None) -> Client:
    """Connects to the daemon at http://host:port, https://host:port or unix:/path. Without an address: to that of the environment's
    ARRAYD_URL, or else the one that answers at http://127.0.0.1:7411 or unix:/run/arrayd/arrayd.sock, or else, if no token is given,
    to one of this process' own (`local`).

    `token` is the bearer token of an account (by default that of the environment's ARRAYD_TOKEN, if set). `timeout` is the number of seconds that
    a request may take without any byte being transferred (by default unlimited). `context` sets what TLS trusts. `session` is the id of
    a session that there is, which close() leaves; without it the one named default is used. `device`, a number or "mesh" (by default that of
    the environment's ARRAYD_DEVICE, if set and no `session` is given), is for your session on that device, which is made at the first use,
    and stays. Raises ConnectionLost if the daemon cannot be reached, Denied if it does not accept the token, NotFound if there is no such
    session, BadValue if there is no such device, BadReply if the server is not arrayd.
    """
    device = chosen(session, device)

    def make(url: str) -> Transport:
        return Transport(url, token or os.environ.get("ARRAYD_TOKEN"), timeout, context)

    if url is not None:
        return opened(make(url), session, device)
    from ._local import reached
    return opened(reached(make, token), session, device)


def opened(transport: Transport, session: Optional[str] = None, device: Optional[Device] = None) -> Client:
    """Its client, once the daemon has answered."""
    try:
        client = Client(transport, session if device is None else transport.run(session_on(device)), "transport")
        info = client.info()
        client._look_where(info)
        transport.started = info.get("process", {}).get("started")
    except BaseException:
        transport.close()
        raise
    return client


if "dask.array" in sys.modules or "distributed" in sys.modules:
    with contextlib.suppress(ImportError):  # of a version that has not what is wanted
        importlib.import_module("arrayd.dask")
