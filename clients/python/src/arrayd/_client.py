"""The client: a session of a daemon, and the array namespace over it."""
from __future__ import annotations

import os
import ssl
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

import numpy as np

from . import _dtypes as dt
from ._array import Array
from ._engine import Engine, described
from ._errors import ArraydError
from ._graph import Handle, const, stored
from ._jobs import Job
from ._ns_host import Host
from ._ns_inspection import Inspection
from ._ns_statistics import Statistics
from ._transport import Releaser, Steps, Transport

Ref = Union[Array, str]
Bound = Union[Array, bool, int, float, complex]


class Client(Statistics, Host, Inspection):
    """An array namespace (Python Array API standard 2024.12) whose arrays are in a daemon.

    `connect` makes one. It can be used by several threads. As a context manager it ends its session if it has one of its own,
    and closes its connections if it was made by `connect`.
    """

    def __init__(self, transport: Transport, session: Optional[str] = None, owns: str = ""):
        self._transport = transport
        self._engine = Engine(session, Releaser(transport))
        self._owns = owns
        self._info: Optional[Dict[str, Any]] = None
        self._device: Optional[str] = None

    def __repr__(self) -> str:
        session = f", session {self._engine.session}" if self._engine.session else ""
        return f"<arrayd.Client {self._transport.url}{session}>"

    @property
    def __name__(self) -> str:
        return "arrayd"

    def _run(self, steps: Steps[Any]) -> Any:
        return self._transport.run(steps)

    def _ask(self, method: str, path: str, value: Any = None, **more: Any) -> Any:
        return self._transport.send(self._engine.ask(method, path, value, **more))

    # --- the daemon ---

    def info(self) -> Dict[str, Any]:
        """Version, backend, devices, limits and operations."""
        info: Dict[str, Any] = self._ask("GET", "/v1/info").json()
        return info

    @property
    def device(self) -> str:  # type: ignore[override]
        """Where the arrays are: "cpu", "cuda:0", …"""
        if self._device is None:
            info = self.info()
            of = self._ask("GET", f"/v1/sessions/{self._engine.session}").json().get("device", 0) if self._engine.session else 0
            self._device = "cpu" if info["backend"] == "cpu" else f"{info['backend']}:{of}"
        return self._device

    def request(self, method: str, path: str, value: Any = None) -> Any:
        """Any request of the HTTP API: a JSON body, the JSON reply (None where there is none)."""
        r = self._ask(method, path, value)
        return r.json() if r.body and "json" in r.headers.get("content-type", "") else None

    # --- sessions ---

    def session(self, *, name: Optional[str] = None, ttl_s: Optional[float] = None, memory_limit: Optional[int] = None,
                device: Optional[int] = None) -> "Client":
        """A session of its own, deleted with all its arrays at the end of a `with`, or by close()."""
        spec = {"name": name, "ttl_s": ttl_s, "memory_limit": memory_limit, "device": device}
        made = self._ask("POST", "/v1/sessions", {k: v for k, v in spec.items() if v is not None}).json()
        return Client(self._transport, made["id"], "session")

    def sync(self) -> None:
        """Waits until all work sent so far is done."""
        self._ask("POST", f"/v1/sessions/{self._engine.session or 'default'}/sync")

    def release(self) -> None:
        """Deletes what nobody refers to any more, now rather than in a moment."""
        self._engine.releaser.flush()

    def close(self) -> None:
        """Ends a session of its own; of a client that connect() made, closes the connections."""
        owns, self._owns = self._owns, ""
        if not owns:
            return
        self._engine.releaser.stop()
        if owns == "session":
            self._ask("DELETE", f"/v1/sessions/{self._engine.session}")
        else:
            self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # --- arrays of the server ---

    def array(self, ref: str) -> Array:
        """The array of a name or an id; it stays when nobody here refers to it any more."""
        m = self._ask("GET", f"/v1/arrays/{ref}").json()
        shape, dtype = described(m)
        return self._wrap(stored(Handle(m["id"], m.get("name")), shape, dtype))

    def arrays(self) -> Iterator[Dict[str, Any]]:
        """The metadata of all arrays of the session, in the order of their making."""
        after = ""
        while True:
            page = self._ask("GET", "/v1/arrays?limit=1000" + after).json()
            yield from page["arrays"]
            if not page.get("next"):
                return
            after = f"&after={page['next']}"

    def save(self, name: str, x: Union[Array, Any]) -> Array:
        """Gives values a name on the server; a taken one is replaced. Named arrays stay until they are deleted."""
        if not isinstance(x, Array):
            x = self.asarray(x)
        node = self._check(x)._node
        if node.handle is None and node.value is not None:
            m = self._run(self._engine.upload(node.value, node.dtype, name))
        else:
            body = self._run(self._engine.request_of(node)) if node.op != "stored" else {"tree": node.handle and node.handle.id}
            m = self._ask("POST", "/v1/evaluate", {**body, "name": name}).json()
        return self._wrap(stored(Handle(m["id"], name), node.shape, node.dtype))

    def delete(self, ref: Ref) -> None:
        """Deletes an array by name or id."""
        self._ask("DELETE", f"/v1/arrays/{ref.id if isinstance(ref, Array) else ref}")

    def metadata(self, x: Ref) -> Dict[str, Any]:
        """What the server says of an array."""
        m: Dict[str, Any] = self._ask("GET", f"/v1/arrays/{x.id if isinstance(x, Array) else x}").json()
        return m

    # --- expressions as text ---

    def _bind(self, bind: Optional[Mapping[str, Bound]], named: Mapping[str, Bound]) -> Dict[str, Any]:
        out: Dict[str, Any] = {}
        for k, v in {**(bind or {}), **named}.items():
            if isinstance(v, Array):
                out[k] = v.id if v.ndim else _wire(v.item())
            else:
                out[k] = _wire(v)
        return out

    def evaluate(self, expr: str, /, *, bind: Optional[Mapping[str, Bound]] = None, dtype: Any = None, fast_math: bool = False,
                 **named: Bound) -> Array:
        """Evaluates an infix expression over the session's named arrays and what is bound here:
        `client.evaluate("u + dt*laplacian(u)", u=u, dt=0.1)`. A mistake in it is shown with a mark below its place."""
        body: Dict[str, Any] = {"expr": expr, "bind": self._bind(bind, named)}
        if dtype is not None:
            body["dtype"] = dt.name_of(dt.dtype_of(dtype))
        if fast_math:
            body["fast_math"] = True
        try:
            m = self._ask("POST", "/v1/evaluate", body).json()
        except ArraydError as e:
            raise e.with_expression(expr) if e.pointer == "/expr" else e from None
        shape, t = described(m)
        if "id" in m:
            return self._wrap(stored(self._engine.own(m), shape, t))
        return self._wrap(const(_read(m["value"]), t))

    def define(self, name: str, params: Sequence[str], expr: str) -> None:
        """A function of the user's own, for expressions as text; a taken name is replaced."""
        self._ask("PUT", f"/v1/functions/{name}", {"params": list(params), "expr": expr})

    def program(self, body: Sequence[str], *, steps: int, bind: Optional[Mapping[str, Bound]] = None,
                record: Optional[Mapping[str, str]] = None, record_every: Optional[int] = None,
                snapshot: Optional[Mapping[str, int]] = None, until: Optional[str] = None, until_every: Optional[int] = None,
                stop_on_nan: bool = False, fast_math: bool = False, **named: Bound) -> Job:
        """Begins a time loop on the server: statements that are done `steps` times.

        `client.program(["u += 0.1*laplacian(u)"], steps=1000, u=u).wait()` changes u's memory: an array that is bound to an
        assigned name is written to. `record` collects values of expressions, `until` ends it.
        """
        assigned: List[Array] = [v for v in {**(bind or {}), **named}.values() if isinstance(v, Array) and v.ndim]
        for v in assigned:
            _own(v)
        spec: Dict[str, Any] = {"body": list(body), "steps": steps, "bind": self._bind(bind, named)}
        optional = {"record": dict(record) if record else None, "record_every": record_every,
                    "snapshot": dict(snapshot) if snapshot else None, "until": until, "until_every": until_every,
                    "stop_on_nan": stop_on_nan or None, "fast_math": fast_math or None}
        spec.update({k: v for k, v in optional.items() if v is not None})
        return Job(self, self._ask("POST", "/v1/programs", spec).json(), assigned)

    def job(self, id_: str) -> Job:
        """A job of this user's, by its id."""
        return Job(self, self._ask("GET", f"/v1/jobs/{id_}").json(), [])

    # --- values ---

    def _ends(self, x: Array) -> "np.ndarray[Any, Any]":
        """The corners that a printed array shows, three elements deep, in an array that prints as the whole one would."""
        deep = 3
        picked = [list(range(n)) if n <= 2 * deep + 1 else [*range(deep + 1), *range(n - deep, n)] for n in x.shape]
        small = x
        for k, p in enumerate(picked):
            if len(p) == x.shape[k]:
                continue
            front = (slice(None),) * k
            small = self.concat([small[(*front, slice(0, deep + 1))], small[(*front, slice(x.shape[k] - deep, None))]], axis=k)
        return small.numpy()

    def _by_reference(self, id_: str, shape: Any, dtype: str) -> Array:
        return self._wrap(stored(Handle(id_), tuple(shape), dt.dtype_of(dtype)))

    def __reduce__(self) -> Any:
        return _again, (self._transport.url, self._engine.session)


_known: Dict[str, Client] = {}


def _again(url: str, session: Optional[str]) -> Client:
    """Of an unpickled reference: this process' own client where it has one, else a new one with ARRAYD_TOKEN."""
    client = _known.get(url)
    if client is None or client._transport.closed:
        client = connect(url)
    return client if session == client._engine.session else Client(client._transport, session)


def _own(x: Array) -> None:
    """Its memory is its own: nobody else's values change when it is written to."""
    node = x.compute()._node
    if not node.is_only_of(x):
        m = x._client.request("POST", f"/v1/arrays/{node.handle.id if node.handle else ''}/copy", {})
        x._set(stored(x._client._engine.own(m), node.shape, node.dtype))
    else:
        node.value = None
        node.op = "stored"


def _wire(v: Any) -> Any:
    if isinstance(v, np.generic):
        v = v.item()
    if isinstance(v, complex):
        return [_wire(v.real), _wire(v.imag)]
    if isinstance(v, float) and v - v != 0:
        return "NaN" if v != v else "Infinity" if v > 0 else "-Infinity"
    return v


def _read(v: Any) -> Any:
    if isinstance(v, list):
        return complex(float(v[0]), float(v[1]))
    return float(v) if isinstance(v, str) else v


def connect(url: str = "http://127.0.0.1:7411", token: Optional[str] = None, *, timeout: Optional[float] = None,
            context: Optional[ssl.SSLContext] = None) -> Client:
    """A client of the daemon at http://host:port, https://host:port or unix:/path.

    `token` is the bearer token of an account (else the environment's ARRAYD_TOKEN, else none); `timeout` how many seconds a
    request may take without a byte moving (none by itself); `context` what TLS is to trust.
    """
    client = Client(Transport(url, token or os.environ.get("ARRAYD_TOKEN"), timeout, context), None, "transport")
    client._ask("GET", "/healthz")
    _known[url] = client
    return client

