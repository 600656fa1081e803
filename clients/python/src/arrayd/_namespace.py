"""What a client asks of a daemon, without I/O: the array namespace over a session, and its requests as generators of them
(see `_requests.py`). `_client.py` waits for the replies, `_async_client.py` awaits them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _dtypes as dt
from ._array import Array
from ._devices import Device, asked
from ._endpoint import Endpoint
from ._engine import Engine
from ._errors import ArraydError, Conflict, NotFound, no_attribute, place_of
from ._graph import Handle, const, const_json, stored
from ._ns_exchange import Exchange
from ._ns_host import Host
from ._ns_inspection import Inspection
from ._ns_own import Own
from ._labels import of_xarray, part_of
from ._numbers import unwired, wire
from ._replies import ARRAY, ARRAYS, JOB, LABELS, MADE, RESULT, SESSION
from ._requests import Response, Steps, segment
from .numpy._protocols import Protocols

Ref = Union[Array, str]
Bound = Union[Array, bool, int, float, complex, "np.generic", "np.ndarray[Any, Any]", Sequence[Any]]


class Namespace(Own, Protocols, Inspection, Exchange):
    _cores = {**Protocols._cores, "matmul": Host.matmul}
    _transport: Endpoint
    _engine: Engine

    def __repr__(self) -> str:
        session = f", session {self._engine.session}" if self._engine.session else ""
        return f"<arrayd.{type(self).__name__} {self._transport.url}{session}>"

    @property
    def __name__(self) -> str:
        return "arrayd"

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property, whose own error this is
                return object.__getattribute__(self, name)
            raise no_attribute(f"{type(self).__name__!r} object", name, lambda: dir(type(self)))

    def from_xarray(self, a: Any, name: Optional[str] = None) -> Any:
        """The array of an `xarray.DataArray`: values, names of axes, attributes, the unit, and coordinates that are numbers or times, as arrays
        that remain on the server. `x.to_xarray()` makes one again. Waits for the server."""
        return self._carry(of_xarray(self, a, name))

    # --- requests ---

    def _asking(self, method: str, path: str, value: Any = None, **more: Any) -> Steps[Response]:
        return (yield self._engine.ask(method, path, value, **more))

    def _asking_about(self, method: str, path: str, value: Any, texts: Mapping[str, Any]) -> Steps[Response]:
        """A refusal shows the one of these texts that it is about, with a mark below its place; by JSON pointers into the request."""
        try:
            return (yield from self._asking(method, path, value))
        except ArraydError as e:
            text = place_of(e, texts)
            raise e.with_expression(text) if isinstance(text, str) else e from None

    def _requesting(self, method: str, path: str, value: Any = None) -> Steps[Any]:
        r = yield from self._asking(method, path, value)
        return r.json() if r.body and "json" in r.headers.get("content-type", "") else None

    def _beginning_session(self, name: Optional[str], ttl_s: Optional[float], memory_limit: Optional[int],
                           device: Optional[Device]) -> Steps[Dict[str, Any]]:
        """On the device that is asked for, or on this client's if that has a session: their arrays can be used together."""
        if device is None and self._engine.session is not None:
            device = (yield from self._asking("GET", f"/v1/sessions/{self._engine.session}")).json(SESSION).get("device")
        spec = {"name": name, "ttl_s": ttl_s, "memory_limit": memory_limit, "device": None if device is None else asked(device)}
        made: Dict[str, Any] = (yield from self._asking("POST", "/v1/sessions", {k: v for k, v in spec.items() if v is not None})).json(SESSION)
        return made

    # --- arrays of the server ---

    def _finding(self, ref: str) -> Steps[Array]:
        m = (yield from self._asking("GET", (yield from self._path(ref)))).json(ARRAY)
        shape, dtype = dt.described(m)
        return self._wrap(stored(self._engine.refer(m["id"], m.get("name")), shape, dtype), shared=True)

    def _page(self, after: str, shared: bool) -> Steps[Tuple[List[Dict[str, Any]], str]]:
        """Metadata of some arrays of the session, or of those that others share, and where the next page begins ("" behind the last)."""
        page = (yield from self._asking("GET", "/v1/arrays?limit=1000" + (f"&after={after}" if after else "")
                                         + ("&shared=true" if shared else ""))).json(ARRAYS)
        return page["arrays"], page.get("next") or ""

    def _saving(self, name: str, x: Any) -> Steps[Array]:
        if not isinstance(x, Array):
            x = self.asarray(x)
        segment(name)
        node = self._check(x)._node
        held: List[Any] = []
        part = yield from part_of(self, x, held)
        said = {k: part[k] for k in LABELS if k in part} if part is not None else {}
        first = None if said else name  # it gets the name when it is complete
        if node.handle is None and node.value is not None:
            m = yield from self._engine.upload(node.value, node.dtype, first)
        else:
            more = {} if first is None else {"name": first}
            m = (yield from self._engine.evaluate((yield from self._engine.request_of(node, False)), **more)).json(MADE)
        if said:
            made = self._engine.own(m)
            made.bind()
            yield from self._naming(made, name, said)
            made.keep()
        return self._wrap(stored(Handle(m["id"], name), node.shape, node.dtype), shared=True)

    def _naming(self, made: Handle, name: str, said: Dict[str, Any]) -> Steps[None]:
        """With all that is said of it. Coordinates that have been deleted meanwhile are left out."""
        while True:
            try:
                yield from self._asking("PATCH", f"/v1/arrays/{made.id}", {**said, "name": name, "replace": True})
                return
            except NotFound as e:
                where = (e.pointer or "").split("/")
                gone = where[2].replace("~1", "/").replace("~0", "~") if len(where) > 2 and where[1] == "coords" else None
                if gone not in said.get("coords", {}):
                    raise
                said = {**said, "coords": {k: v for k, v in said["coords"].items() if k != gone}}

    def _uploading(self, value: "np.ndarray[Any, Any]", dtype: dt.DType) -> Steps[Array]:
        """At once, out of the memory where they are."""
        made = yield from self._engine.upload(value, dtype)
        return self._wrap(stored(self._engine.own(made), value.shape, dtype))

    def _path(self, x: Ref) -> Steps[str]:
        ref = (yield from self._engine.place(x._node)).id if isinstance(x, Array) else segment(x, "is neither an array's name nor its id")
        return f"/v1/arrays/{ref}"

    def _deleting(self, x: Ref) -> Steps[None]:
        yield self._engine.ask("DELETE", (yield from self._path(x)))

    def _describing(self, x: Ref) -> Steps[Dict[str, Any]]:
        m: Dict[str, Any] = (yield self._engine.ask("GET", (yield from self._path(x)))).json(LABELS)
        if isinstance(x, Array) and x._node.handle is not None:
            self._engine.note_coords(x._node.handle, m)
        return m

    # --- expressions as text ---

    def _to_bind(self, bind: Mapping[str, Bound]) -> Dict[str, Any]:
        """What is to be bound: arrays, which must be held until the server has done with them, and numbers."""
        for k, v in bind.items():
            if not isinstance(v, (Array, bool, int, float, complex, str, list, tuple, dict)) and not hasattr(v, "dtype"):
                raise TypeError(f"{k}: an array, a number, or the name or id of an array is bound, not {type(v).__name__}")
        return {k: self.asarray(v) if isinstance(v, (np.ndarray, list, tuple)) else v for k, v in bind.items()}

    def _binding(self, bind: Mapping[str, Any], written: bool) -> Steps[Dict[str, Any]]:
        """`written`: the server may write to arrays; else those of rank 0 are constants."""
        out: Dict[str, Any] = {}
        for k, v in bind.items():
            if isinstance(v, np.generic) and not isinstance(v, np.bool_):
                out[k] = const_json(np.asarray(v), dt.dtype_of(v.dtype))
            elif not isinstance(v, Array):
                out[k] = wire(v)
            elif v.ndim or written:
                out[k] = (yield from self._engine.place(self._check(v)._node)).id
            else:
                out[k] = const_json((yield from self._engine.fetch(self._check(v)._node)), v.dtype)
        return out

    def _evaluating(self, expr: str, bind: Mapping[str, Bound], dtype: Any, fast_math: bool) -> Steps[Array]:
        given = self._to_bind(bind)
        body: Dict[str, Any] = {"expr": expr, "bind": (yield from self._binding(given, False))}
        if dtype is not None:
            body["dtype"] = dt.name_of(dt.dtype_of(dtype))
        if fast_math:
            body["fast_math"] = True
        m = (yield from self._asking_about("POST", "/v1/evaluate", body, {"/expr": expr})).json(RESULT)
        shape, t = dt.described(m)
        if "id" in m:
            return self._wrap(stored(self._engine.own(m), shape, t))
        return self._wrap(const(unwired(m["value"]), t))

    def _defining(self, name: str, params: Sequence[str], expr: str) -> Steps[None]:
        yield from self._asking_about("PUT", f"/v1/functions/{segment(name)}", {"params": list(params), "expr": expr}, {"/expr": expr})

    def _beginning_program(self, body: Union[str, Sequence[str]], steps: int, bind: Mapping[str, Bound],
                           optional: Mapping[str, Any]) -> Steps[Tuple[Dict[str, Any], List[Array], Dict[str, str]]]:
        """The job's status, the arrays that it may write to, and its texts by JSON pointers."""
        if isinstance(body, str):
            body = [body]
        given = self._to_bind(bind)
        assigned: List[Array] = [v for v in given.values() if isinstance(v, Array)]
        for v in assigned:
            yield from v._owning()
            assert v._node.handle is not None
            v._node.handle.lent = True
        spec: Dict[str, Any] = {"body": list(body), "steps": steps, "bind": (yield from self._binding(given, True))}
        spec.update({k: dict(v) if isinstance(v, Mapping) else v for k, v in optional.items()
                     if v is not None and v is not False and v != {}})
        texts = {f"/body/{k}": text for k, text in enumerate(spec["body"])}
        texts.update({f"/record/{series}": text for series, text in spec.get("record", {}).items() if series.isidentifier()})
        texts["/until"] = spec.get("until")
        texts = {place: text for place, text in texts.items() if isinstance(text, str)}
        return (yield from self._asking_about("POST", "/v1/programs", spec, texts)).json(JOB), assigned, texts

    # --- values ---

    def _ends(self, x: Array) -> "np.ndarray[Any, Any]":
        """The corners that a printed array shows, three elements deep, in an array that prints as the whole one would."""
        deep = 3
        picked = [list(range(n)) if n <= 2 * deep + 1 else [*range(deep + 1), *range(n - deep, n)] for n in x.shape]
        if x._node.value is not None:
            return x._node.value[np.ix_(*picked)]
        small = x
        for k, p in enumerate(picked):
            if len(p) == x.shape[k]:
                continue
            front = (slice(None),) * k
            small = self.concat([small[(*front, slice(0, deep + 1))], small[(*front, slice(x.shape[k] - deep, None))]], axis=k)
        try:
            return small._values()
        except Conflict:  # of another device, on which this session does not compute: one corner after the other
            if x._node.handle is None:
                raise
        parts = [[":"] if len(p) == n else [f":{deep + 1}", f"{n - deep}:"] for p, n in zip(picked, x.shape)]

        def corners(index: List[str]) -> "np.ndarray[Any, Any]":
            k = len(index)
            if k == x.ndim:
                return x.read(", ".join(index))  # type: ignore[no-any-return]
            return np.concatenate([corners([*index, part]) for part in parts[k]], axis=k)

        return corners([])

    def _by_reference(self, id_: str, shape: Any, dtype: str) -> Array:
        return self._wrap(stored(self._engine.refer(id_), tuple(shape), dt.dtype_of(dtype)), shared=True)
