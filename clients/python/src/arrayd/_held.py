"""An array as the daemon holds it: its ghost cells, its shape, its place, its bytes, and who else may use it.

Each method is written as steps (see `_requests.py`): the client's `_carry` takes them and gives what they come to, or, with an
asynchronous client, what is awaited for it. What they change is the array's own memory: expressions made before keep the old values.
"""
from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any, Dict, Optional, TypeVar
from urllib.parse import quote

import numpy as np

from . import _dtypes as dt
from ._errors import BadReply
from ._graph import Node, stored
from ._indexing import Basic, basic_index
from ._labels import SAME, Labels
from ._numbers import wire
from ._replies import PLACE
from ._requests import OCTETS, Request, Steps

NPY = "application/x-npy"
ORDER = "buifc"  # of kinds of dtypes: values go into those of the same kind and later ones

Self = TypeVar("Self", bound="Held")


class Held(Labels):
    """A part of `Array`. With an asynchronous client all of it is awaited, `location` too."""

    __slots__ = ()
    _client: Any
    _view: Any
    _views: Any
    _shared: bool
    _owning: Any
    _set: Any

    if TYPE_CHECKING:

        @property
        def _node(self) -> Node: ...

    # --- ghost cells and bytes ---

    def fill_ghost(self) -> Any:
        """Fills the ghost cells from the boundary (see `xp.grid`). Returns self."""
        return self._client._carry(self._filling_ghost())

    def _filling_ghost(self: Self) -> Steps[Self]:
        yield from self._owning(True)
        yield self._asked("POST", "/fill_ghost")
        return self._anew()

    def read(self, index: Optional[str] = None, *, ghost: bool = False) -> Any:
        """The values now, or those of a region, as NumPy's. `index` is text, "1:-1, ::2"; with `ghost` it counts from the interior's
        first cell, so that -1 is the ghost cell before it, and without an index all ghost cells are there."""
        return self._client._carry(self._reading(index, ghost))

    def _reading(self, index: Optional[str], ghost: bool) -> Steps["np.ndarray[Any, Any]"]:
        engine, t = self._client._engine, self._node.dtype
        handle = yield from engine.place(self._node)
        r = yield Request("GET", f"/v1/arrays/{handle.id}/data{_region(index, ghost)}", accept=NPY, headers=engine.headers)
        try:
            value: "np.ndarray[Any, Any]" = np.lib.format.read_array(io.BytesIO(r.body))
            return value if value.dtype == t else value.view(t)  # bfloat16, which .npy files do not know
        except ValueError as e:
            raise BadReply(r.status, "bad_reply", f"{r.request.method} {r.request.path}: the reply is not an array: {e}") from e

    def write(self, values: Any, index: Optional[str] = None, *, ghost: bool = False) -> Any:
        """Writes all of it or, as `read` has it, a region, with `ghost` also ghost cells: values of just that shape. Returns self."""
        return self._client._carry(self._writing(values, index, ghost))

    def _writing(self: Self, values: Any, index: Optional[str], ghost: bool) -> Steps[Self]:
        engine, t = self._client._engine, self._node.dtype
        v = self._client._operand(values, t)
        if ORDER.index(dt.kind(v.dtype)) > ORDER.index(dt.kind(t)):
            raise TypeError(f"values of {dt.name_of(v.dtype)} do not go into {dt.name_of(t)}")
        data = np.ascontiguousarray(dt.cast((yield from engine.fetch(v)), t))
        yield from self._owning(True)
        assert self._node.handle is not None
        yield Request("PUT", f"/v1/arrays/{self._node.handle.id}/data{_region(index, ghost)}", dt.bytes_of(data) if data.size else b"", OCTETS,
                      headers=engine.headers)
        return self._anew()

    # --- shape and place ---

    def resize(self, *shape: Any, refcheck: bool = True) -> Any:
        """Another shape in place, as NumPy's: the first elements stay, what is new is 0. The array keeps its id; while there are views of
        it, it is a ValueError."""
        to = shape[0] if len(shape) == 1 else shape
        return self._client._carry(self._resizing(self._client._shape(to)))

    def _resizing(self, shape: Any) -> Steps[None]:
        c, n = self._client, math.prod(shape)
        if any(r() is not None for r in self._views):
            raise ValueError("resize: there are views of this array")
        yield from self._owning(True)
        node, size, kept = self._node, self._node.size, None
        if n != size and n and size:
            flat = c.reshape(c._wrap(node), (size,))
            kept = c.reshape(flat[:n] if n < size else c.concat([flat, c.zeros((n - size,), node.dtype)]), shape)._node
            del flat
            yield from c._engine.place(kept)
        yield self._asked("POST", "/resize", {"shape": list(shape)})
        assert node.handle is not None
        node.handle.stays = True
        self._set(stored(node.handle, tuple(shape), node.dtype))
        if kept is not None:
            yield from c._engine.evaluate((yield from c._engine.request_of(kept, False)), out=node.handle.id)
            self._anew()

    @property
    def location(self) -> Any:
        """Where its contents are: "device", or "host", the host's memory."""
        return self._client._carry(self._locating())

    def _locating(self) -> Steps[str]:
        yield from self._client._engine.place(self._base._node)
        return str((yield self._base._asked("GET")).json(PLACE)["location"])

    def move_to(self, location: str) -> Any:
        """Moves the contents to "host" memory, or back to the "device"; a computation that uses the array moves them back, too.
        Returns self."""
        return self._client._carry(self._moving(location))

    def _moving(self: Self, location: str) -> Steps[Self]:
        yield from self._client._engine.place(self._base._node)
        yield self._base._asked("PATCH", "", {"location": location})
        return self

    def patch(self, *, name: Any = SAME, replace: bool = False, read_only: Optional[bool] = None, boundary: Any = None, spacing: Any = None,
              attrs: Any = SAME, dims: Any = SAME, units: Any = SAME, coords: Any = SAME) -> Any:
        """Gives it a name, which no other array may have; with `replace` that array is deleted. None takes the name away: it then goes
        when this is not used any more, unless another array has it as a coordinate. Refuses writes to it (or allows them again), sets its
        boundary and spacing, and what is said of it: `attrs` and `coords` by name, names of axes and a unit, of which None removes one or
        all. A coordinate is an array, its name or id, or values of this process, or, where its axes have not its name, (dims, one of these)
        or `{"array": one of these, "dims": dims}`; with values also (dims, values, attrs). It is shared from then on, as an array with a
        name is: see `save`, which makes a copy. Returns self."""
        changes = {"replace": replace or None, "read_only": read_only, "boundary": boundary, "spacing": spacing}
        given = {k: json_of(v) for k, v in changes.items() if v is not None}
        if name is not SAME:
            given["name"] = name
        return self._client._carry(self._labelling(attrs, dims, units, coords, given))

    def _patching(self: Self, changes: Dict[str, Any]) -> Steps[Self]:
        yield from self._owning(True)
        handle = self._node.handle
        assert handle is not None
        if changes.get("name"):
            handle.bind()  # whether it has got it or the reply is lost, it stays
        yield self._asked("PATCH", "", changes)
        if "name" in changes:
            handle.keep()
            handle.name, handle.goes_with, self._shared = changes["name"], None, True
            if handle.name is None:
                self._client._engine.alive(handle).own(self._client._engine.releaser)
        return self._anew()

    # --- who else may use it ---

    def share(self, principal: str, access: str = "read") -> Any:
        """Lets another account read the array, by its id, or with "write" also write to it, as long as it exists. From now on every
        assignment writes in place, so that both see it."""
        return self._client.share(self, principal, access)

    def shares(self) -> Any:
        """Whom it is shared with: `[{"principal": "ann", "access": "read"}]`."""
        return self._client.shares(self)

    def unshare(self, principal: str) -> Any:
        """Takes a share back, which also ends that account's leases and programs on it."""
        return self._client.unshare(self, principal)

    # --- in common ---

    def _written(self, node: Node, index: Optional[Basic] = None) -> Optional[Steps[None]]:
        """In place: what there is to ask for it now, if anything."""
        writes = getattr(self._client._transport, "writes", None)  # None: of a client that does not wait
        if writes is not None and writes.take(self, node, index or basic_index((), self._node.shape), self._client._engine):
            return None
        return self._written_now(node, None if index is None else index.text)

    def _written_now(self, node: Node, index: Optional[str]) -> Steps[None]:
        self._set((yield from self._client._engine.assign(self, node, index)))

    @property
    def _base(self) -> Any:
        """What has the memory: of a view, the array that it is of."""
        x = self
        while x._view is not None:
            x = x._view.parent
        return x

    def _asked(self, method: str, path: str = "", value: Any = None) -> Request:
        """About the array, which is on the server."""
        assert self._node.handle is not None
        request: Request = self._client._engine.ask(method, f"/v1/arrays/{self._node.handle.id}{path}", value)
        return request

    def _anew(self: Self) -> Self:
        """Its memory has changed: what came here is not its values any more. From now on assignments are written to it, too: it is the
        memory that counts."""
        node = self._node
        assert node.handle is not None
        node.handle.stays = True
        self._set(stored(node.handle, node.shape, node.dtype))
        return self


def _region(index: Optional[str], ghost: bool) -> str:
    parts = ([] if index is None else [f"index={quote(index)}"]) + ["ghost=1"] * ghost
    return "?" * bool(parts) + "&".join(parts)


def json_of(v: Any) -> Any:
    """Members of a request, of Python's and NumPy's numbers."""
    if isinstance(v, dict):
        return {k: json_of(x) for k, x in v.items()}
    if isinstance(v, (list, tuple, np.ndarray)):
        return [json_of(x) for x in v]
    return wire(v.item() if isinstance(v, np.generic) else v)
