"""The client: a session of a daemon, and the array namespace over it."""
from __future__ import annotations

import contextlib
import os
import ssl
import weakref
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ._array import Array
from ._endpoint import Moves, endpoint_of
from ._engine import Engine
from ._errors import ArraydError, NotFound
from ._jobs import Job
from ._namespace import Bound, Namespace, Ref
from ._releases import Releaser
from ._replies import INFO, JOB, SESSION
from ._requests import Steps
from ._transport import Transport, done

LARGE = 1 << 20  # bytes: values that are not kept here until they are needed

T = TypeVar("T")


class Client(Namespace):
    """An array namespace (Python Array API standard 2024.12) whose arrays are in a daemon.

    `connect` makes one. It can be used by several threads. As a context manager it ends its session if it has one of its own,
    and closes its connections if it was made by `connect`.
    """

    _transport: Transport

    def __init__(self, transport: Transport, session: Optional[str] = None, owns: str = ""):
        self._transport = transport
        self._releaser = Releaser(transport)
        self._engine = Engine(session, self._releaser, transport.url)
        self._owns = owns
        self._device: Optional[str] = None
        _clients[transport.key, session] = self

    def _run(self, steps: Steps[Any]) -> Any:
        return self._transport.run(steps)

    def _given(self, value: Any, dtype: Any) -> Array:
        """Large ones are uploaded at once, out of the memory where they are."""
        if value.nbytes < LARGE:
            return super()._given(value, dtype)
        uploaded: Array = self._run(self._uploading(value, dtype))
        return uploaded

    def _made(self, moves: Moves[T]) -> T:
        return done(moves)

    def _carry(self, steps: Steps[T]) -> T:
        return self._transport.run(steps)

    def _aside(self, function: Callable[..., Any], *args: Any) -> None:
        function(*args)

    def _borrowing(self, x: Array) -> Tuple[Any, Any]:
        exported = x.exported("write")
        return exported.__enter__, exported.__exit__

    def _settled(self, x: Array) -> Array:
        return x.compute()

    def _ask(self, method: str, path: str, value: Any = None, **more: Any) -> Any:
        return self._transport.send(self._engine.ask(method, path, value, **more))

    # --- the daemon ---

    def info(self) -> Dict[str, Any]:
        """Version, backend, devices, limits and operations."""
        info: Dict[str, Any] = self._ask("GET", "/v1/info").json(INFO)
        return info

    @property
    def device(self) -> str:  # type: ignore[override]
        """Where the arrays are: "cpu", "cuda:0", …"""
        if self._device is None:
            session = self._engine.session
            self._device = self._device_of(self.info(), self._ask("GET", f"/v1/sessions/{session}").json(SESSION) if session else None)
        return self._device

    def request(self, method: str, path: str, value: Any = None) -> Any:
        """Any request of the HTTP API: a JSON body, the JSON reply (None where there is none)."""
        return self._run(self._requesting(method, path, value))

    # --- sessions ---

    def session(self, *, name: Optional[str] = None, ttl_s: Optional[float] = None, memory_limit: Optional[int] = None,
                device: Optional[int] = None) -> "Client":
        """A session of its own, deleted with all its arrays at the end of a `with`, or by close()."""
        made = self._run(self._beginning_session(name, ttl_s, memory_limit, device))
        return Client(self._transport, made["id"], "session")

    def sync(self) -> None:
        """Waits until all work sent so far is done."""
        self._ask("POST", f"/v1/sessions/{self._engine.session or 'default'}/sync")

    def release(self) -> None:
        """Deletes what nobody refers to any more, now rather than in a moment."""
        self._releaser.flush()

    def close(self) -> None:
        """Ends a session of its own, if it has not expired; of a client that connect() made, deletes its arrays without a name and
        closes the connections: what then asks the daemon for something, its arrays' and its sessions' as well, is a ConnectionLost. In
        a forked child the session is the parent's."""
        owns, self._owns = self._owns, ""
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

    def array(self, ref: str) -> Array:
        """The array of a name or an id; it stays when nobody here refers to it any more."""
        found: Array = self._run(self._finding(ref))
        return found

    def arrays(self) -> Iterator[Dict[str, Any]]:
        """The metadata of all arrays of the session, in the order of their making."""
        arrays, after = self._run(self._page(""))
        yield from arrays
        while after:
            arrays, after = self._run(self._page(after))
            yield from arrays

    def save(self, name: str, x: Union[Array, Any]) -> Array:
        """Gives values a name on the server; a taken one is replaced. Named arrays stay until they are deleted."""
        saved: Array = self._run(self._saving(name, x))
        return saved

    def delete(self, ref: Ref) -> None:
        """Deletes an array by name or id."""
        self._run(self._deleting(ref))

    def metadata(self, x: Ref) -> Dict[str, Any]:
        """What the server says of an array."""
        m: Dict[str, Any] = self._run(self._describing(x))
        return m

    # --- expressions as text ---

    def evaluate(self, expr: str, /, *, bind: Optional[Mapping[str, Bound]] = None, dtype: Any = None, fast_math: bool = False,
                 **named: Bound) -> Array:
        """Evaluates an infix expression over the session's named arrays and what is bound here:
        `client.evaluate("u + dt*laplacian(u)", u=u, dt=0.1)`. A mistake in it is shown with a mark below its place."""
        result: Array = self._run(self._evaluating(expr, {**(bind or {}), **named}, dtype, fast_math))
        return result

    def define(self, name: str, params: Sequence[str], expr: str) -> None:
        """A function of the user's own, for expressions as text; a taken name is replaced."""
        self._run(self._defining(name, params, expr))

    def program(self, body: Union[str, Sequence[str]], *, steps: int, bind: Optional[Mapping[str, Bound]] = None,
                record: Optional[Mapping[str, str]] = None, record_every: Optional[int] = None,
                snapshot: Optional[Mapping[str, int]] = None, until: Optional[str] = None, until_every: Optional[int] = None,
                stop_on_nan: bool = False, fast_math: bool = False, **named: Bound) -> Job:
        """Begins a time loop on the server: statements, or one, that are done `steps` times.

        `client.program(["u += 0.1*laplacian(u)"], steps=1000, u=u).wait()` changes u's memory: an array that is bound to an
        assigned name is written to. `record` collects values of expressions, `until` ends it. A mistake in a statement or an
        expression is shown with a mark below its place.
        """
        optional = {"record": record, "record_every": record_every, "snapshot": snapshot, "until": until, "until_every": until_every,
                    "stop_on_nan": stop_on_nan, "fast_math": fast_math}
        return Job(self, *self._run(self._beginning_program(body, steps, {**(bind or {}), **named}, optional)))

    def job(self, id_: str) -> Job:
        """A job of this user's, by its id."""
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
        client = connect(url)
        return client if session is None else Client(client._transport, session)
    if isinstance(endpoint, Transport) and not endpoint.closed:
        client = _clients.get((endpoint.key, session))
        return client or Client(endpoint, session)
    transport = Transport(endpoint.url, endpoint.token, endpoint.timeout, endpoint.context)
    client = _clients[key, session] = Client(transport, session, "transport")
    return client


def connect(url: str = "http://127.0.0.1:7411", token: Optional[str] = None, *, timeout: Optional[float] = None,
            context: Optional[ssl.SSLContext] = None) -> Client:
    """A client of the daemon at http://host:port, https://host:port or unix:/path.

    `token` is the bearer token of an account (else the environment's ARRAYD_TOKEN, else none); `timeout` how many seconds a
    request may take without a byte moving (none by itself); `context` what TLS is to trust. ConnectionLost where nobody is there, Denied
    where the token is none of the daemon's, BadReply where it is something else than arrayd.
    """
    client = Client(Transport(url, token or os.environ.get("ARRAYD_TOKEN"), timeout, context), None, "transport")
    try:
        client._device = client._device_of(client.info(), None)
    except BaseException:
        client._transport.close()
        raise
    return client
