"""What is said of arrays on the server: attributes, names of axes, a unit, coordinates; and the same of xarray's.

The daemon keeps them with an array and computes nothing from them: expressions have none.
"""
from __future__ import annotations

import types
import warnings
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ._dtypes import name_of
from ._errors import Denied, NotFound
from ._numbers import wire
from ._replies import LABELLED, LABELS
from ._requests import Steps

NONE: Mapping[str, Any] = types.MappingProxyType({})
OF_DURATIONS = "dtype"  # the attribute that says of numbers that they are durations, as xarray writes it to files
SAME: Any = ...  # of a change: it stays as it is; None removes it


class Labels:
    """A part of `Array`. With an asynchronous client all of it is awaited."""

    __slots__ = ()
    _client: Any
    _view: Any
    if TYPE_CHECKING:
        _node: Any
        _shared: bool

        @property
        def _base(self) -> Any: ...
        def _asked(self, method: str, path: str = "", value: Any = None) -> Any: ...

    @property
    def attrs(self) -> Any:
        """Attributes, to be read; `x.patch(attrs={"a": 1, "b": None})` sets and removes some, `attrs=None` all."""
        return self._client._carry(self._saying("attrs"))

    @property
    def dims(self) -> Any:
        """Names of the axes, None for an axis without one; None: no axis has one. Set by `x.patch(dims=("lat", "lon"))`."""
        return self._client._carry(self._saying("dims"))

    @property
    def units(self) -> Any:
        """The unit of the elements, or None. Set by `x.patch(units="K")`."""
        return self._client._carry(self._saying("units"))

    @property
    def coords(self) -> Any:
        """By name `{"array": id, "dims": […]}`; `xp.array(id)` is that array, and keeps this one, with which the server may delete it. Set by
        `x.patch(coords={"lat": lat})`, with an array or what makes one."""
        return self._client._carry(self._saying("coords"))

    def to_xarray(self) -> Any:
        """An `xarray.DataArray` of the values here, with names, attributes and the coordinates that are still there and
        still fit; the unit is its attribute `units`."""
        return self._client._carry(self._to_xarray())

    def _saying(self, what: str) -> Steps[Any]:
        said = yield from self._said()
        if what in ("attrs", "coords"):
            return types.MappingProxyType(said[what]) if what in said else NONE
        return tuple(said["dims"]) if what == "dims" and "dims" in said else said.get(what)

    def _said(self) -> Steps[Dict[str, Any]]:
        """Of what is only here, or an expression's, nothing is said; of a part what is said of the whole, as far as it holds."""
        base = self._base
        handle = base._node.handle
        if handle is None:
            return {}
        m = (yield base._asked("GET")).json(LABELS)
        self._client._engine.note_coords(handle, m)
        said = {k: m[k] for k in ("attrs", "coords", "dims", "units") if k in m}
        if self._view is not None:
            said.pop("coords", None)
            names = self._dims_of(said.pop("dims", None))
            if names is not None and any(names):
                said["dims"] = names
        return said

    def _dims_of(self, dims: Optional[List[Optional[str]]]) -> Optional[List[Optional[str]]]:
        """Names along the parts that this is of the array with those names; None where axes are rearranged."""
        view = self._view
        if view is None or dims is None:
            return dims
        of = view.parent._dims_of(dims)
        if of is None or view.index is None:
            return None
        left = iter(of)
        names: List[Optional[str]] = []
        for k in view.index.key:
            if k is None:
                names.append(None)
                continue
            name = next(left)
            if isinstance(k, slice):
                names.append(name)
        return names + list(left)

    def _to_xarray(self) -> Steps[Any]:
        import xarray  # type: ignore[import-not-found,import-untyped,unused-ignore]

        held: List[Any] = []  # of a part: those of the coordinates that belong to it
        part = (yield from part_of(self._client, self, held, coords=True)) if self._view is not None else None
        said = part or (yield from self._said())
        engine = self._client._engine
        names = _xarray_dims(said.get("dims"), len(self._node.shape))
        data = yield from engine.fetch(self._node)
        extents = dict(zip(names, self._node.shape))
        coords = {}
        for name, c in said.get("coords", {}).items():
            try:
                of = yield from self._client._finding(c["array"])
            except NotFound:  # it has been deleted, or is not shared
                continue
            if tuple(of._node.shape) != tuple(extents.get(axis) for axis in c["dims"]):  # it has been resized
                continue
            its = yield from of._said()
            coords[name] = _decoded(str(name), xarray, c["dims"], (yield from engine.fetch(of._node)), _xarray_attrs(its))
        return xarray.DataArray(np.array(data), coords, names, name=self._node.handle.name if self._node.handle else None, attrs=_xarray_attrs(said))

    def _labelling(self, attrs: Any = SAME, dims: Any = SAME, units: Any = SAME, coords: Any = SAME, changes: Mapping[str, Any] = NONE) -> Steps[Any]:
        """Changes these, and with them others."""
        x: Any = self
        held: List[Any] = []  # what is referred to, until it is
        return (yield from x._patching({**changes, **(yield from self._changes_of(attrs, dims, units, coords, held))}))

    def _changes_of(self, attrs: Any, dims: Any, units: Any, coords: Any, held: List[Any]) -> Steps[Dict[str, Any]]:
        """As the daemon takes them."""
        changes: Dict[str, Any] = {}
        if attrs is not SAME:
            changes["attrs"] = None if attrs is None else {str(k): plain(v) for k, v in dict(attrs).items()}
        if dims is not SAME:
            changes["dims"] = None if dims is None else [dims] if isinstance(dims, str) else list(dims)
        if units is not SAME:
            changes["units"] = None if units is None else str(units)
        if coords is not SAME:
            if coords is not None and not isinstance(coords, Mapping):
                raise TypeError(f"coords: a dictionary of coordinates by name is wanted, not {type(coords).__name__}")
            given = None if coords is None else {name: self._coordinate(name, c) for name, c in coords.items()}
            if given is not None:
                held.extend(given.values())
                for name, c in given.items():
                    if isinstance(c, dict) and "attrs" in c:
                        yield from self._describing_coordinate(name, c)
                    given[name] = (yield from c._referred()) if isinstance(c, Labels) else c
                    if isinstance(c, dict) and isinstance(c.get("array"), Labels):
                        given[name] = {**c, "array": (yield from c["array"]._referred())}
            changes["coords"] = given
        return changes

    def _describing_coordinate(self, name: str, c: Dict[str, Any]) -> Steps[None]:
        attrs = dict(c.pop("attrs"))
        units = attrs.pop("units", SAME)
        yield from c["array"]._labelling(attrs or SAME, SAME, units)

    def _coordinate(self, name: str, c: Any) -> Any:
        """An array, a name or an id, values of this process or None, or any of these with the names of its axes: a pair (dims, array), or
        with its attributes (dims, array, attrs), as xarray has it, or what the daemon tells. As the daemon takes it, but for the arrays."""
        if isinstance(c, tuple) and (len(c) == 2 or (len(c) == 3 and isinstance(c[2], Mapping))) and (
                isinstance(c[0], str) or (isinstance(c[0], (tuple, list)) and all(isinstance(d, str) for d in c[0]))):
            c = {"dims": c[0], "array": c[1], **({"attrs": c[2]} if len(c) == 3 else {})}
        if isinstance(c, Mapping):
            dims = c.get("dims")
            if "attrs" in c and (not isinstance(c["attrs"], Mapping) or isinstance(c.get("array"), (Labels, str, type(None)))):
                raise TypeError(f"the coordinate {name}: attributes, a dictionary, are given with values; an array has its own")
            return {**c, **({"dims": [dims] if isinstance(dims, str) else list(dims)} if dims is not None else {}),
                    **({"array": self._coordinate(name, c["array"])} if "array" in c else {})}
        meant = self._client._engine.living.get(c) if isinstance(c, str) else None
        if meant is not None:
            meant.bind()
        if c is None or isinstance(c, (Labels, str)):
            return c
        try:
            return self._client._taken(c)
        except (TypeError, ValueError, OverflowError) as e:
            raise type(e)(f"the coordinate {name}: {e}") from None

    def _referred(self) -> Steps[str]:
        """Its id, for what refers to it: from now on it is shared, and goes when neither this process nor an array has it."""
        x: Any = self
        if x._view is not None:
            raise ValueError("a coordinate is an array of its own, not a view: xp.asarray(x, copy=True)")
        if not x._shared:
            yield from x._owning(True)
        handle = yield from x._client._engine.place(x._node)
        handle.bind()
        x._node.share()
        x._shared = True
        return str(handle.id)


def part_of(c: Any, x: Any, held: List[Any], coords: bool = False) -> Steps[Optional[Dict[str, Any]]]:
    """The metadata of an array that something may be said of; of a part of one, that of a view on the server, which keeps what is true of the
    part, with `coords` also those parts of coordinates that belong to it. The view goes with what is added to `held`. None: nothing is said."""
    view, handle = x._view, x._node.handle
    if view is None:
        return (yield c._engine.ask("GET", f"/v1/arrays/{handle.id}")).json(LABELLED) if handle is not None and x._stays else None
    of = (yield from part_of(c, view.parent, held, coords)) if view.index is not None else None
    if of is None or view.index.is_all:
        return of
    try:
        made = yield from _viewed(c, of["id"], view.index.text, held)
    except (Denied, NotFound):  # another user's, of whose arrays there are no views
        return None
    cut = (yield from _cut(c, of, made, view.index.text, held)) if coords else {}
    return (yield c._engine.ask("PATCH", f"/v1/arrays/{made['id']}", {"coords": cut})).json(LABELLED) if cut else made


def _viewed(c: Any, of: str, index: str, held: List[Any]) -> Steps[Dict[str, Any]]:
    made: Dict[str, Any] = (yield c._engine.ask("POST", f"/v1/arrays/{of}/views", {"index": index})).json(LABELLED)
    held.append(c._engine.own(made))
    return made


def _cut(c: Any, of: Dict[str, Any], made: Dict[str, Any], index: str, held: List[Any]) -> Steps[Dict[str, Any]]:
    """The coordinates of a part along axes of which it has not all: the server's view has only those that are whole."""
    names = of.get("dims", [])
    extents, at = dict(zip(names, of["shape"])), dict(zip(names, (k for k in index.split(", ") if k != "None")))
    cut = {}
    for name, its in of.get("coords", {}).items():
        if name in made.get("coords", {}):
            continue
        try:
            whole = yield from c._finding(its["array"])
            if [*whole._node.shape] == [extents[d] for d in its["dims"]]:  # else it has been resized
                part = yield from _viewed(c, its["array"], ", ".join(at[d] for d in its["dims"]), held)
                cut[name] = {"array": part["id"], "dims": [d for d in its["dims"] if ":" in at[d]]}
        except (Denied, NotFound):  # it has been deleted, or is not shared
            continue
    return cut


def plain(v: Any) -> Any:
    """A value of an attribute as JSON has it, of Python's and NumPy's. Numbers that are none are the daemon's texts, "NaN"."""
    if isinstance(v, np.ndarray):
        return plain(v.tolist())
    if isinstance(v, np.generic):
        return plain(v.item())
    if isinstance(v, Mapping):
        return {str(k): plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    if isinstance(v, bytes):
        return v.decode()
    if v is None or isinstance(v, (str, bool)):
        return v
    if isinstance(v, int):
        return int(v)
    if isinstance(v, (float, complex)):
        return wire(v)
    raise TypeError(f"an attribute cannot be of type {type(v).__name__}: numbers, text, lists and dictionaries are kept")


def _xarray_dims(dims: Optional[List[Optional[str]]], rank: int) -> Tuple[str, ...]:
    """xarray names every axis."""
    return tuple(name or f"dim_{k}" for k, name in enumerate(dims or [None] * rank))


def _xarray_attrs(said: Dict[str, Any]) -> Dict[str, Any]:
    """But for what names variables of a file: xarray would write that instead of its own."""
    attrs = {k: v for k, v in said.get("attrs", {}).items() if k != "coordinates"}
    return {**attrs, **({"units": said["units"]} if "units" in said else {})}


def _decoded(name: str, xarray: Any, dims: Any, values: Any, attrs: Dict[str, Any]) -> Any:
    """A coordinate; one of times or durations, numbers with a unit as files have them ("hours since 1900-01-01"), as xarray has these."""
    lasts = str(attrs.get(OF_DURATIONS)).startswith("timedelta64")
    if lasts or " since " in str(attrs.get("units")):
        try:
            of = xarray.conventions.decode_cf_variable(name, xarray.Variable(dims, values, attrs), mask_and_scale=False, decode_timedelta=lasts)
            if lasts:
                of.attrs.pop(OF_DURATIONS, None)
            return of
        except (ValueError, OverflowError, ImportError):  # of no calendar that is known here
            pass
    return dims, values, attrs


def _encoded(c: Any) -> Any:
    """A coordinate of times or durations as numbers with a unit. Those that are not known are NaN, which needs no fill value."""
    if c.dtype.kind not in "mMO":
        return c
    import xarray

    times = c.variable.copy(deep=False)
    times.encoding = {k: v for k, v in times.encoding.items() if k in ("units", "calendar")}
    try:
        of = xarray.conventions.encode_cf_variable(times)
    except (TypeError, ValueError, AttributeError):  # others of Python's objects
        return c
    of.attrs.pop("_FillValue", None)
    if c.dtype.kind == "m":
        of.attrs[OF_DURATIONS] = str(c.dtype)
    return of


def of_xarray(client: Any, a: Any, name: Optional[str]) -> Steps[Any]:
    """An array of the daemon's with all that an `xarray.DataArray` has, its coordinates as arrays of their own."""
    if hasattr(a, "data_vars") or not hasattr(a, "coords"):
        raise TypeError(f"from_xarray takes one DataArray, not a {type(a).__name__}" + (": ds[name] is one" if hasattr(a, "data_vars") else ""))
    x = yield from _labelled(client, a)
    coords = {}
    for key, of in a.coords.items():
        c = _encoded(of)
        if c.dtype.kind in "biufc":
            coords[str(key)] = (tuple(map(str, c.dims)), (yield from _labelled(client, c)))
        else:
            warnings.warn(f"the coordinate {key} is left out: arrays are of numbers or times, not of {c.dtype}")
    return (yield from x._labelling(coords=coords or SAME, changes={} if name is None else {"name": name, "replace": True}))


def _labelled(client: Any, a: Any) -> Steps[Any]:
    of = a.data
    if isinstance(of, Labels) and of._client is client:  # a copy that is made there: what is said of the array itself stays
        node = of._node
        x = client._array("astype", (node,), node.shape, node.dtype, dtype=name_of(node.dtype))
    else:
        x = client.asarray(of if isinstance(of, np.ndarray) else a.values)
    attrs = dict(a.attrs)
    units = attrs.pop("units", SAME)
    return (yield from x._labelling(attrs or SAME, tuple(map(str, a.dims)) or SAME, units))
