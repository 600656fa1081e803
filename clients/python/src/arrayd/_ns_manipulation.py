"""Manipulation, indexing and stencils: all of them expressions."""
from __future__ import annotations

import math
import operator
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import _dtypes as dt
from ._array import Array
from ._base import Axis, refusal
from ._engine import SMALL
from ._graph import Node, Shape, host
from ._indexing import INDICES, KNOWN, broadcasts
from ._ns_creation import Creation, Number
from ._ns_elementwise import Elementwise
from ._spelling import spelled
from ._views import View, ghost_of, memory_order, reshaped

TOGETHER = 16  # arrays of one concat or stack

_turns: Dict[Tuple[int, int, Shape], Dict[str, Any]] = {}  # attributes of what has been rolled: loops do it again and again


def _node_of(op: str, to: Sequence[int], **attrs: Any) -> Callable[[Node], Node]:
    return lambda node: Node(op, (node,), tuple(to), node.dtype, attrs)


def _in_shape(shape: Sequence[int]) -> Callable[[Node], Node]:
    def make(node: Node) -> Node:
        if node.shape == tuple(shape):
            return node
        if node.value is not None:
            return host(node.value.reshape(tuple(shape)).copy(), node.dtype)
        return Node("reshape", (node,), tuple(shape), node.dtype, {"shape": list(shape)})

    return make


class Manipulation(Elementwise, Creation):
    @spelled
    def astype(self, x: Array, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
        """x with its values cast: floats truncate to integers, saturate, and NaN is 0."""
        self._check_device(device)
        t = dt.dtype_of(dtype)
        if dt.is_complex(self._check(x).dtype) and not dt.is_complex(t) and t != dt.BOOL:
            raise TypeError("complex numbers cannot be cast to real ones: use real(x) or imag(x)")
        if t == x.dtype:
            return self._wrap(x._node) if copy else x
        return self._wrap(self._cast(x._node, t))

    @spelled
    def reshape(self, x: Array, /, shape: Tuple[int, ...], order: str = "C", *, copy: Optional[bool] = None) -> Array:
        """x's elements in another shape; one extent may be -1. A view where NumPy's is one."""
        s = self._extents(x, shape)
        if order not in ("C", "F", "A"):
            raise ValueError(f"an order is 'C', 'F' or 'A', not {order!r}")
        if order == "F" or order == "A" and x._ghost.flags.fnc:
            return self._turned(self.reshape(self._turned(x), tuple(s[::-1]), copy=copy))
        ghost = reshaped(x._ghost, tuple(s)) if copy is not True else None
        if ghost is not None:
            return Array._of_view(View(x, ghost, _in_shape(s), _in_shape(x.shape)))
        if copy is False:
            raise ValueError(f"an array of shape {x.shape} and these strides has no view of shape {tuple(s)}")
        return self._wrap(_in_shape(s)(x._node))

    def _extents(self, x: Array, shape: Any) -> List[int]:
        """A shape that may have one extent of -1, for x's elements."""
        s = [operator.index(n) for n in (shape if isinstance(shape, (tuple, list)) else np.atleast_1d(shape))]
        if s.count(-1) == 1:
            rest = int(np.prod([n for n in s if n != -1], dtype=object))
            if rest == 0 or x.size % rest:
                raise ValueError(f"{x.size} elements do not go into {tuple(s)}")
            s[s.index(-1)] = x.size // rest
        if any(n < 0 for n in s) or int(np.prod(s, dtype=object)) != x.size:
            raise ValueError(f"{x.size} elements do not go into {tuple(s)}")
        return s

    def _reshaped_view(self, x: Array, shape: Any) -> View:
        s = self._extents(x, shape)
        ghost = reshaped(x._ghost, tuple(s))
        if ghost is None:
            raise AttributeError(f"the shape of this view cannot become {tuple(s)} without a copy: use reshape")
        return View(x, ghost, _in_shape(s), _in_shape(x.shape))

    def _in_order(self, x: Array, order: Optional[str]) -> Array:
        """x, or a copy where NumPy makes one: of what is not in that order."""
        flags = x._ghost.flags if order in ("C", "F") else None
        return x if flags is None or (flags.c_contiguous if order == "C" else flags.f_contiguous) else self._copied_in(x, order)

    def _copied_in(self, x: Array, order: Optional[str] = "K") -> Array:
        """A copy in that order, which is NumPy's for what is a view of it; "K": x's own."""
        axes = list(range(x.ndim))
        if order == "F" or (order == "A" and x._ghost.flags.fnc):
            axes.reverse()
        elif order in ("K", None) and x._view is not None:
            axes = memory_order(x._ghost)
        if axes == sorted(axes):
            return self._copied(x)
        return self.permute_dims(self._copied(self.permute_dims(x, tuple(axes))), tuple(int(k) for k in np.argsort(axes)))

    def _elements(self, x: Array) -> Array:
        """The elements in C order, in one axis: a view, also where `ravel` copies."""
        return self._reshaped_whole(x, (x.size,))

    def _reshaped_whole(self, x: Array, shape: Shape) -> Array:
        return Array._of_view(View(x, ghost_of(shape), _in_shape(shape), _in_shape(x.shape)))

    def _turned(self, x: Array) -> Array:
        return self.permute_dims(x, tuple(range(x.ndim - 1, -1, -1)))

    @spelled
    def broadcast_to(self, x: Array, /, shape: Tuple[int, ...], subok: bool = False) -> Array:
        """x repeated along axes of extent 1 and new ones in front."""
        s = self._shape(shape)
        if not broadcasts(self._check(x).shape, s):
            raise ValueError(refusal("broadcast_to", (x._node,), f"shape {x.shape} does not broadcast to {s}"))
        make = _node_of("broadcast_to", s, shape=list(s)) if s != x.shape else lambda node: node
        return Array._of_view(View(x, np.broadcast_to(x._ghost, s), make))

    def broadcast_arrays(self, *arrays: Array, subok: bool = False) -> List[Array]:
        """The arrays, broadcast together."""
        taken = [self._taken(a) for a in arrays]
        shape = self._broadcast("broadcast_arrays", *(a._node for a in taken))
        return [a if a.shape == shape else self.broadcast_to(a, shape) for a in taken]

    @spelled
    def permute_dims(self, x: Array, /, axes: Optional[Tuple[int, ...]] = None) -> Array:
        """x with its axes in another order: in reverse, if no other is named."""
        if axes is None:
            return self._turned(x)
        order = self._axes(tuple(axes), self._check(x).ndim)
        if len(order) != x.ndim:
            raise ValueError(f"{x.ndim} axes are to be named, not {len(order)}")
        back = [order.index(k) for k in range(x.ndim)]
        return Array._of_view(View(x, x._ghost.transpose(order), _node_of("permute_dims", [x.shape[k] for k in order], axes=order),
                                   _node_of("permute_dims", x.shape, axes=back)))

    @spelled
    def matrix_transpose(self, x: Array, /) -> Array:
        """The last two axes exchanged."""
        if self._check(x).ndim < 2:
            raise ValueError("matrices have two axes")
        return self.permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))

    @spelled
    def moveaxis(self, x: Array, /, source: Union[int, Tuple[int, ...]], destination: Union[int, Tuple[int, ...]]) -> Array:
        """Axes at other places; the rest stay in their order."""
        a, b = self._axes(source, self._check(x).ndim), self._axes(destination, x.ndim)
        if len(a) != len(b):
            raise ValueError("as many axes go as come")
        order = [k for k in range(x.ndim) if k not in a]
        for to, k in sorted(zip(b, a)):
            order.insert(to, k)
        return self.permute_dims(x, tuple(order))

    @spelled
    def expand_dims(self, x: Array, /, axis: Union[int, Tuple[int, ...]] = 0) -> Array:
        """A new axis of extent 1, or several."""
        if isinstance(axis, (tuple, list)):
            for k in sorted(self._axes(tuple(axis), x.ndim + len(axis))):
                x = self.expand_dims(x, k)
            return x
        k = self._axis(axis, self._check(x).ndim + 1)
        shape = x.shape[:k] + (1,) + x.shape[k:]
        return Array._of_view(View(x, np.expand_dims(x._ghost, k), _node_of("expand_dims", shape, axis=k), _in_shape(x.shape)))

    @spelled
    def squeeze(self, x: Array, /, axis: Axis = None) -> Array:
        """Axes of extent 1 left out (all)."""
        axes = [k for k, n in enumerate(x.shape) if n == 1] if axis is None else self._axes(axis, self._check(x).ndim)
        if any(x.shape[k] != 1 for k in axes):
            raise ValueError(f"an axis of {x.shape} that is left out has another extent than 1")
        if not axes:
            return Array._of_view(View(x, x._ghost, _in_shape(x.shape), _in_shape(x.shape)))
        shape = self._reduced(x.shape, axes, False)
        return Array._of_view(View(x, x._ghost.squeeze(tuple(axes)), _node_of("squeeze", shape, axis=axes), _in_shape(x.shape)))

    @spelled
    def flip(self, x: Array, /, axis: Axis = None) -> Array:
        """Elements in reverse order along axes (all)."""
        axes = self._axes(axis, self._check(x).ndim)
        if not axes:
            return Array._of_view(View(x, x._ghost, _in_shape(x.shape), _in_shape(x.shape)))
        turned = _node_of("flip", x.shape, axis=axes)
        return Array._of_view(View(x, np.flip(x._ghost, tuple(axes)), turned, turned))

    @spelled
    def roll(self, x: Array, /, shift: Union[int, Tuple[int, ...]], axis: Axis = None) -> Array:
        """Elements moved along axes, those that leave coming in again; without axes, in C order of the whole."""
        self._check(x)
        if axis is None:
            flat = self.reshape(x, (x.size,))
            by = sum(shift) if isinstance(shift, tuple) else int(shift)
            return self.reshape(self._array("roll", (flat._node,), flat.shape, x.dtype, shift=_within(by, x.size), axis=0), x.shape) \
                if x.ndim else self._wrap(x._node)
        attrs = _turns.get((shift, axis, x.shape)) if shift.__class__ is axis.__class__ is int else None
        if attrs is None:
            attrs = self._turn(shift, axis, x.shape)
            if shift.__class__ is axis.__class__ is int:
                if len(_turns) >= KNOWN:
                    _turns.clear()
                _turns[shift, axis, x.shape] = attrs
        node = x._node
        return self._wrap(Node("roll", (node,), node.shape, node.dtype, attrs) if attrs else node)

    def _turn(self, shift: Any, axis: Any, shape: Shape) -> Dict[str, Any]:
        """The attributes of a roll along axes; {}: nothing is moved."""
        rank = len(shape)
        axes = [self._axis(k, rank) for k in (axis if isinstance(axis, tuple) else (axis,))]
        shifts = [int(s) for s in shift] if isinstance(shift, tuple) else [int(shift)] * len(axes)
        if len(shifts) == 1:
            shifts *= len(axes)
        if len(axes) == 1:
            axes *= len(shifts)
        if len(shifts) != len(axes):
            raise ValueError("as many shifts as axes")
        total = [0] * rank
        for k, s in zip(axes, shifts):
            total[k] += s
        moved = [k for k in range(rank) if total[k]]
        return {"shift": [_within(total[k], shape[k]) for k in moved], "axis": moved} if moved else {}

    def _several(self, arrays: Any) -> List[Array]:
        return [self._taken(a) for a in arrays]

    def concat(self, arrays: Union[Tuple[Array, ...], List[Array]], axis: Optional[int] = 0, out: Any = None, *, dtype: Any = None,
               casting: str = "same_kind") -> Array:
        """Arrays one after the other along an axis; None: flattened first."""
        arrays = self._several(arrays)
        if out is not None:
            return self._into(out, self.concat(arrays, axis), casting)
        if axis is None:
            arrays, axis = [self.reshape(a, (-1 if a.size else 0,)) for a in arrays], 0
        if not arrays:
            raise ValueError("concat of nothing")
        k = self._axis(axis, self._check(arrays[0]).ndim)
        first = arrays[0].shape
        if any(self._check(a).ndim != len(first) or a.shape[:k] + a.shape[k + 1:] != first[:k] + first[k + 1:] for a in arrays):
            raise ValueError(f"concat: shapes differ elsewhere than along axis {k}: {[a.shape for a in arrays]}")
        t = dt.result_type([a.dtype for a in arrays], []) if dtype is None else dt.dtype_of(dtype)
        if dtype is not None:
            for a in arrays:
                dt.check_cast("concat:", a.dtype, t, casting)
        nodes = [self._cast(a._node, t) for a in arrays]
        return self._wrap(_joined("concat", nodes, k, t))

    concatenate = concat

    def stack(self, arrays: Union[Tuple[Array, ...], List[Array]], axis: int = 0, out: Any = None, *, dtype: Any = None,
              casting: str = "same_kind") -> Array:
        """Arrays of one shape along a new axis."""
        arrays = self._several(arrays)
        if not arrays:
            raise ValueError("stack of nothing")
        k = self._axis(axis, self._check(arrays[0]).ndim + 1)
        if any(self._check(a).shape != arrays[0].shape for a in arrays):
            raise ValueError(f"stack: shapes differ: {[a.shape for a in arrays]}")
        return self.concat([self.expand_dims(a, axis=k) for a in arrays], k, out, dtype=dtype, casting=casting)

    def unstack(self, x: Array, /, axis: int = 0) -> Tuple[Array, ...]:
        """The arrays along an axis."""
        k = self._axis(axis, self._check(x).ndim)
        return tuple(x[(slice(None),) * k + (i,)] for i in range(x.shape[k]))

    @spelled
    def repeat(self, x: Array, /, repeats: Union[int, Array], axis: Optional[int] = None) -> Array:
        """Each element several times; without an axis, of the flattened array."""
        if axis is None:
            x, axis = self.reshape(x, (x.size,)), 0
        k = self._axis(axis, self._check(x).ndim)
        given = np.ravel(repeats._values() if isinstance(repeats, Array) else np.asarray(repeats))
        if given.dtype.kind not in "biu" and isinstance(repeats, (Array, np.ndarray)):
            raise TypeError(f"repeat: counts are integers, not {given.dtype}")
        counts = [int(n) for n in given]
        if len(counts) not in (1, x.shape[k]):
            raise ValueError(f"{len(counts)} repeats for {x.shape[k]} elements")
        if any(n < 0 for n in counts):
            raise ValueError("nothing is repeated less than 0 times")
        if len(counts) == 1:
            counts *= x.shape[k]
        shape = x.shape[:k] + (sum(counts),) + x.shape[k + 1:]
        if len(set(counts)) <= 1:
            return self._array("repeat", (x._node,), shape, x.dtype, repeats=counts[0] if counts else 1, axis=k)
        places = np.repeat(np.arange(x.shape[k]), counts)
        return self.take(x, self._from_host(places), axis=k)

    @spelled
    def tile(self, x: Array, /, reps: Union[int, Tuple[int, ...]]) -> Array:
        """The array side by side with itself."""
        r = [operator.index(n) for n in np.atleast_1d(np.asarray(reps, int if np.size(reps) == 0 else None))]
        if any(n < 0 for n in r):
            raise ValueError("nothing is repeated less than 0 times")
        rank = max(len(r), self._check(x).ndim)
        r = [1] * (rank - len(r)) + r
        s = (1,) * (rank - x.ndim) + x.shape
        return self._array("tile", (x._node,), tuple(n * m for n, m in zip(s, r)), x.dtype, repetitions=r) if rank \
            else self._wrap(x._node)

    # --- indexing ---

    @spelled
    def take(self, x: Array, /, indices: Array, axis: Optional[int] = None, out: Any = None, mode: str = "raise") -> Array:
        """x's elements along an axis at positions; without an axis, of the flattened array. A position outside is an IndexError, or as
        `mode` says."""
        if axis is None:
            x, axis = self.reshape(x, (x.size,)), 0
        k = self._axis(axis, x.ndim)
        indices = self._taken(indices)
        if indices.dtype == dt.BOOL or not indices.size:
            indices = self.astype(indices, dt.INT64)
        if not dt.is_integer(indices.dtype):
            raise TypeError("indices are integers")
        how = {} if mode == "raise" else {"mode": mode}
        return self._array("take", (x._node, indices._node), x.shape[:k] + indices.shape + x.shape[k + 1:], x.dtype, axis=k, **how)

    @spelled
    def take_along_axis(self, x: Array, /, indices: Array, axis: Optional[int] = -1) -> Array:
        """x's elements at positions that differ from row to row."""
        indices = self._taken(indices)
        if axis is None:
            x, indices, axis = self.reshape(x, (x.size,)), self.reshape(indices, (indices.size,)), 0
        k = self._axis(axis, self._check(x).ndim)
        if self._check(indices).ndim != x.ndim:
            raise ValueError(f"take_along_axis: indices have the rank of x: {x.shape} and {indices.shape}")
        if not dt.is_integer(indices.dtype):
            raise IndexError("take_along_axis: indices are integers")
        a, b = list(x.shape), list(indices.shape)
        a[k] = b[k] = 1
        try:
            shape = list(np.broadcast_shapes(tuple(a), tuple(b)))
        except ValueError:
            both = (x._node, indices._node)
            text = f"shapes {x.shape} and {indices.shape} do not broadcast together beside axis {k}"
            raise ValueError(refusal("take_along_axis", both, text)) from None
        shape[k] = indices.shape[k]
        return self._array("take_along_axis", (x._node, indices._node), tuple(shape), x.dtype, axis=k)

    def _gather(self, x: Array, keys: Sequence[Any]) -> Array:
        """x[keys] with integer arrays among them. What is basic comes first; then the axes that arrays and integers are for are
        made one, of which elements are taken. Where they are not beside each other the result's come first, as NumPy has it."""
        rest = tuple(k if k is None or isinstance(k, slice) else slice(None) for k in keys)
        y = x[rest]
        at = [i for i, k in enumerate(keys) if not (k is None or isinstance(k, slice))]
        first = at[0]
        if at[-1] - first + 1 > len(at):
            y = self.permute_dims(y, (*at, *(i for i in range(y.ndim) if i not in at)))
            first = 0
        front, extents, behind = y.shape[:first], y.shape[first:first + len(at)], y.shape[first + len(at):]
        places = [self._places(keys[i]) for i in at]
        known = [p._node.value for p in places]
        value = y._node.value if y._node.handle is None else None
        if value is not None and not any(v is None for v in known) and \
                math.prod(p.size for p in places) * y.nbytes <= SMALL * max(math.prod(extents), 1):
            found = value[(*[slice(None)] * first, *known)]  # all of it is here, and so is what is wrong with it
            return self._wrap(host(np.array(found), x.dtype))
        if len(at) == 1:
            return self._array("take", (y._node, places[0]._node), front + places[0].shape + behind, x.dtype, axis=first)
        size = int(np.prod(extents, dtype=object))
        p = self._flat(places, extents, size)
        flat = self.reshape(y, (*front, size, *behind))
        return self._array("take", (flat._node, p._node), front + p.shape + behind, x.dtype, axis=first)

    def _places(self, key: Any) -> Array:
        try:
            i = key if isinstance(key, Array) else self.asarray(key)
        except (TypeError, ValueError):  # not numbers, or lists of different lengths
            raise IndexError(f"only {INDICES} are valid indices, not {key!r}") from None
        if not i.size and isinstance(key, (list, tuple)):  # NumPy has no dtype for nothing
            i = self._from_host(np.empty(i.shape, np.int64))
        if not dt.is_integer(i.dtype):
            raise IndexError(f"only {INDICES} are valid indices, not {dt.name_of(i.dtype)}")
        return self.astype(i, dt.INT64)

    def _flat(self, places: List[Array], extents: Sequence[int], size: int) -> Array:
        """Positions in axes that are made one; one that is outside of its axis is outside of that."""
        flat: Optional[Array] = None
        outside: Optional[Array] = None
        for i, n in zip(places, extents):
            i = self.where(self.less(i, 0), i + n, i)
            bad = self.logical_or(self.less(i, 0), self.greater_equal(i, n))
            outside = bad if outside is None else self.logical_or(outside, bad)
            flat = i if flat is None else flat * n + i
        assert flat is not None and outside is not None
        return self.where(outside, size, flat)  # type: ignore[no-any-return]

    # --- stencils ---

    def shift(self, x: Array, offsets: Sequence[int], /, *, boundary: str = "self", value: Number = 0) -> Array:
        """result[i] = x[i + offset]; `boundary` says what is outside: self, clamp, wrap, reflect, symmetric, constant (`value`),
        ghost, array."""
        if len(offsets) != self._check(x).ndim:
            raise ValueError(f"{x.ndim} offsets, one an axis")
        return self._array("shift", (x._node,), x.shape, x.dtype, offsets=[int(o) for o in offsets], **outside(boundary, value))

    def forward_diff(self, x: Array, /, axis: int, *, boundary: str = "self", value: Number = 0) -> Array:
        """x[i + 1] - x[i] along an axis."""
        k = self._axis(axis, self._check(x).ndim)
        return self._array("forward_diff", (x._node,), x.shape, x.dtype, axis=k, **outside(boundary, value))

    def back_diff(self, x: Array, /, axis: int, *, boundary: str = "self", value: Number = 0) -> Array:
        """x[i] - x[i - 1] along an axis."""
        k = self._axis(axis, self._check(x).ndim)
        return self._array("back_diff", (x._node,), x.shape, x.dtype, axis=k, **outside(boundary, value))

    def central_diff(self, x: Array, /, axis: int, *, spacing: Union[float, str] = 1, boundary: str = "self",
                     value: Number = 0) -> Array:
        """(x[i + 1] - x[i - 1]) / (2 spacing) along an axis; "array": with x's own spacing."""
        k = self._axis(axis, self._check(x).ndim)
        return self._array("central_diff", (x._node,), x.shape, dt.floating(x.dtype), axis=k, spacing=spacing,
                           **outside(boundary, value))

    def laplacian(self, x: Array, /, *, spacing: Union[float, Sequence[float], str] = 1, boundary: str = "self",
                  value: Number = 0) -> Array:
        """The sum over the axes of (x[i + 1] - 2 x[i] + x[i - 1]) / spacing²; "array": with x's own spacing."""
        return self._array("laplacian", (self._check(x)._node,), x.shape, dt.floating(x.dtype), spacing=spacing,
                           **outside(boundary, value))

    def _gradient_along(self, x: Array, /, axis: int, *, spacing: float = 1) -> Array:
        """numpy.gradient along one axis."""
        k = self._axis(axis, self._check(x).ndim)
        return self._array("gradient", (x._node,), x.shape, dt.floating(x.dtype), axis=k, spacing=spacing)

    def sample(self, x: Array, points: Any, /, *, method: str = "linear", boundary: str = "clamp", value: Number = 0) -> Array:
        """x between its cells: points is (m, rank), in index units; the result (m,). `boundary` says what is outside: clamp, wrap, reflect,
        symmetric, constant (`value`), array."""
        x, at = self._taken(x), self._taken(points)
        if at.ndim != 2 or at.shape[1] != x.ndim:
            raise ValueError(f"points are (m, {x.ndim}), not {at.shape}")
        return self._array("sample", (x._node, at._node), at.shape[:1], dt.floating(x.dtype), method=method,
                           **outside(boundary, value))


def outside(boundary: str, value: Number) -> Dict[str, Any]:
    return {"boundary": boundary, "value": value} if boundary == "constant" else {"boundary": boundary}


def _within(shift: int, n: int) -> int:
    return shift % n if n else 0


def _joined(op: str, nodes: List[Node], k: int, t: dt.DType) -> Node:
    """Some at a time: an expression takes so many arrays and no more."""
    while True:
        joined = []
        for i in range(0, len(nodes), TOGETHER):
            part = nodes[i:i + TOGETHER]
            extent = sum(n.shape[k] for n in part)
            shape = part[0].shape[:k] + (extent,) + part[0].shape[k + 1:]
            joined.append(part[0] if len(part) == 1 else Node(op, tuple(part), shape, t, {"axis": k}))
        nodes = joined
        if len(nodes) == 1:
            return nodes[0]
