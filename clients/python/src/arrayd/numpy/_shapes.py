"""NumPy's functions of shapes, and those that make and join arrays: expressions, but for what their text calls otherwise."""
from __future__ import annotations

import builtins
import operator
from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np

from .. import _dtypes as dt
from .._array import Array
from .._graph import Node
from .._ns_statistics import Statistics
from .._spelling import spelled
from .._views import View, memory_order
from ._hosted import Hosting

BY_PLACES = ("edge", "reflect", "symmetric", "wrap")  # of `pad`: each element is one of the array's


class Grid:
    """`mgrid` and `ogrid`."""

    def __init__(self, client: "Shapes", sparse: bool):
        self._client, self._sparse = client, sparse

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, tuple):
            return self._client._from_host(np.mgrid[key])
        return self._client._grid(np.ogrid[key], self._sparse)


class Indexed:
    """`r_` and `c_`, by NumPy."""

    def __init__(self, client: "Shapes", name: str):
        self._client, self._name = client, name

    def __getitem__(self, key: Any) -> Any:
        return self._client._hosted(self._name, getattr(np, self._name).__getitem__)(key)


class Ndarray:
    """Stands for the type: `isinstance(x, xp.ndarray)`, annotations, and `xp.ndarray(shape, dtype)`."""

    def __init__(self, client: Any):
        self._client = client

    def __call__(self, shape: Any, dtype: Any = float, *, order: str = "C") -> Array:
        made: Array = self._client.empty(shape, dtype, order)
        return made

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, Array)

    def __getitem__(self, _: Any) -> "Ndarray":
        return self


class Shapes(Statistics, Hosting):
    # --- making ---

    def _array_of(self, object: Any, dtype: Any = None, *, copy: Optional[bool] = True, order: str = "K", subok: bool = False, ndmin: int = 0,
                  like: Any = None) -> Array:
        x = self.asarray(object, dtype, order)
        if copy and x is object:
            x = self._copied_in(x, order)
        return self.reshape(x, (1,) * (ndmin - x.ndim) + x.shape) if ndmin > x.ndim else x

    def asanyarray(self, a: Any, dtype: Any = None, order: Optional[str] = None, *, device: Any = None, copy: Optional[bool] = None,
                   like: Any = None) -> Array:
        """The same as asarray."""
        return self.asarray(a, dtype, order, device=device, copy=copy)

    def ascontiguousarray(self, a: Any, dtype: Any = None, *, like: Any = None) -> Array:
        """The same as asarray, with an axis or more. A copy where NumPy's is one: of what is not in C order."""
        return self.atleast_1d(self.asarray(a, dtype, "C"))  # type: ignore[no-any-return]

    def asfortranarray(self, a: Any, dtype: Any = None, *, like: Any = None) -> Array:
        """The same as asarray, with an axis or more. A copy where NumPy's is one: of what is not in Fortran's order."""
        return self.atleast_1d(self.asarray(a, dtype, "F"))  # type: ignore[no-any-return]

    def require(self, a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Array:
        """The same as asarray. A copy where NumPy's is one."""
        wanted = {str(r).upper()[0] for r in ([requirements] if isinstance(requirements, str) else requirements or ())}
        x = self.asarray(a, dtype, "F" if "F" in wanted else "C" if "C" in wanted else None)
        return self._copied(x) if ("O" in wanted and x._view is not None) or ("W" in wanted and not x.flags.writeable) else x

    def copy(self, a: Any, order: str = "K", subok: bool = False) -> Array:
        """An independent array with the current values."""
        return self._copied_in(a, order) if isinstance(a, Array) else self.asarray(a)

    def copyto(self, dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
        """Writes src to dst, where the condition holds."""
        if not isinstance(dst, Array):
            self._hosted("copyto", np.copyto)(dst, src, casting=casting, where=where)
            return
        plain = type(src) in (bool, int, float, complex)
        t = dt.scalar_with(src, dst.dtype) if plain else self._taken(src).dtype
        dt.check_cast("copyto:", t, dst.dtype, casting)
        dst[...] = src if where is True else self.astype(self.where(where, src, dst), dst.dtype)

    def identity(self, n: int, dtype: Any = None, *, like: Any = None) -> Array:
        """1 on the diagonal of a square matrix, else 0."""
        return self.eye(n, n, 0, dtype)

    def tri(self, N: int, M: Optional[int] = None, k: int = 0, dtype: Any = float, *, like: Any = None) -> Array:
        """1 on and below the k-th diagonal, else 0."""
        return self.tril(self.ones((N, N if M is None else M), dtype), k)

    @property
    def ndarray(self) -> Ndarray:
        return Ndarray(self)

    @property
    def mgrid(self) -> Grid:
        """numpy.mgrid."""
        return Grid(self, False)

    @property
    def ogrid(self) -> Grid:
        """numpy.ogrid."""
        return Grid(self, True)

    @property
    def r_(self) -> Indexed:
        return Indexed(self, "r_")

    @property
    def c_(self) -> Indexed:
        return Indexed(self, "c_")

    def _grid(self, columns: Any, sparse: bool) -> Any:
        if not len(columns):
            return self.zeros((0,), dt.INT64)
        parts = [self._from_host(c) for c in columns]
        return tuple(parts) if sparse else self.stack(self.broadcast_arrays(*parts))

    def indices(self, dimensions: Sequence[int], dtype: Any = int, sparse: bool = False) -> Any:
        """The positions of the elements of an array of that shape, an array an axis."""
        extents = list(self._shape(tuple(dimensions)))
        rank = len(extents)
        columns = [np.arange(n, dtype=dtype).reshape((1,) * k + (n,) + (1,) * (rank - k - 1)) for k, n in enumerate(extents)]
        return self._grid(columns, sparse) if rank else self.zeros((0,), dtype)

    def fromfunction(self, function: Callable[..., Any], shape: Any, *, dtype: Any = float, like: Any = None, **more: Any) -> Any:
        """The function of the positions."""
        return function(*self.indices(shape, dtype), **more)

    @spelled
    def diag(self, v: Array, /, k: int = 0) -> Array:
        """The k-th diagonal of a matrix, or a matrix that has this one."""
        if v.ndim == 2:
            return self.diagonal(v, k)
        if v.ndim != 1:
            raise ValueError("diag is of one or two axes")
        n = v.size + abs(k)
        beside = self.zeros((abs(k),), v.dtype)
        row = self.concat([beside, v] if k > 0 else [v, beside])
        return self.where(self.eye(n, n, k, dt.BOOL), row, self.zeros((), v.dtype))  # type: ignore[no-any-return]

    @spelled
    def diagflat(self, v: Array, /, k: int = 0) -> Array:
        """A matrix with these elements on its k-th diagonal."""
        return self.diag(self.ravel(v), k)

    @spelled
    def diagonal(self, a: Array, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
        """The elements at (i, i + offset) of two axes, in a last axis."""
        if a.ndim < 2:
            raise ValueError("a diagonal is of two axes or more")
        return Array._of_view(View(a, a._ghost.diagonal(offset, axis1, axis2), lambda node: self._diagonal_of(self._wrap(node), offset, axis1, axis2)))

    def _diagonal_of(self, a: Array, offset: int, axis1: int, axis2: int) -> Node:
        x = self.moveaxis(a, (axis1, axis2), (-2, -1))
        rows, columns = x.shape[-2:]
        n = builtins.max(0, builtins.min(rows + builtins.min(offset, 0), columns - builtins.max(offset, 0)))
        first = offset if offset >= 0 else -offset * columns
        flat = self.reshape(x, (*x.shape[:-2], rows * columns))
        return self.take(flat, self._from_host(first + np.arange(n) * (columns + 1)), axis=-1)._node

    @spelled
    def trace(self, a: Array, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Array:
        """The sum of a diagonal."""
        return self.sum(self.diagonal(a, offset, axis1, axis2), -1, dtype)

    # --- shapes and axes ---

    def shape(self, a: Any) -> Tuple[int, ...]:
        """The extents."""
        return a.shape if isinstance(a, Array) else np.shape(a)

    def ndim(self, a: Any) -> int:
        """The number of axes."""
        return len(self.shape(a))

    def size(self, a: Any, axis: Optional[int] = None) -> int:
        """The number of elements, or the extent of an axis."""
        return int(np.prod(self.shape(a), dtype=np.int64)) if axis is None else self.shape(a)[axis]

    @spelled
    def ravel(self, a: Array, /, order: str = "C") -> Array:
        """The elements in one axis: a view where NumPy's is one."""
        if order == "K":
            a = self.permute_dims(a, tuple(memory_order(a._ghost)))
        elif order == "F" or (order == "A" and a._ghost.flags.fnc):
            a = self._turned(a)
        return self.reshape(a, (a.size,), copy=None if a._ghost.flags.c_contiguous else True)

    @spelled
    def transpose(self, a: Array, /, axes: Any = None) -> Array:
        """The axes in another order: in reverse, if no other is named."""
        return self._turned(a) if axes is None else self.permute_dims(a, (axes,) if isinstance(axes, int) else tuple(axes))

    @spelled
    def swapaxes(self, a: Array, /, axis1: int, axis2: int) -> Array:
        """Two axes exchanged."""
        order = list(range(a.ndim))
        i, k = self._axis(axis1, a.ndim), self._axis(axis2, a.ndim)
        order[i], order[k] = k, i
        return self.permute_dims(a, tuple(order))

    @spelled
    def rollaxis(self, a: Array, /, axis: int, start: int = 0) -> Array:
        """An axis moved in front of another one."""
        axis = self._axis(axis, a.ndim)
        start = start + a.ndim if start < 0 else start
        return self.moveaxis(a, axis, start - 1 if axis < start else start)

    def _np_broadcast_arrays(self, *args: Any, subok: bool = False) -> Any:
        """numpy.broadcast_arrays; matplotlib has None and text among the arrays, which remain NumPy's."""
        numbers = [isinstance(a, Array) or np.asarray(a).dtype in dt.NAME_OF for a in args]
        shape = np.broadcast_shapes(*(self.shape(a) for a in args))
        made = tuple(a if isinstance(a, Array) and a.shape == shape else self.broadcast_to(a, shape) if n else np.broadcast_to(a, shape)
                     for a, n in zip(args, numbers))
        return made if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else list(made)

    def _least(self, arrays: Tuple[Any, ...], key: Callable[[Array], Any]) -> Any:
        made = tuple(key(self._taken(a)) for a in arrays)
        return made[0] if len(made) == 1 else made

    def atleast_1d(self, *arrays: Any) -> Any:
        """With one axis or more."""
        return self._least(arrays, lambda x: x if x.ndim else x.reshape(1))

    def atleast_2d(self, *arrays: Any) -> Any:
        """With two axes or more."""
        return self._least(arrays, lambda x: x if x.ndim > 1 else x.reshape(1, -1 if x.size else 0))

    def atleast_3d(self, *arrays: Any) -> Any:
        """With three axes or more."""
        return self._least(arrays, lambda x: x if x.ndim > 2 else x[:, :, None] if x.ndim == 2 else x.reshape(1, x.size, 1))

    @spelled
    def rot90(self, m: Array, /, k: int = 1, axes: Tuple[int, int] = (0, 1)) -> Array:
        """Turned by k right angles in the plane of two axes."""
        i, j = self._axes(tuple(axes), m.ndim)
        k %= 4
        turned = self.flip(m, (i, j)) if k == 2 else self.swapaxes(self.flip(m, j), i, j) if k == 1 else m
        return self.flip(self.swapaxes(m, i, j), j) if k == 3 else turned

    @spelled
    def fliplr(self, m: Array, /) -> Array:
        """The second axis in reverse."""
        return self.flip(m, 1)

    @spelled
    def flipud(self, m: Array, /) -> Array:
        """The first axis in reverse."""
        return self.flip(m, 0)

    @spelled
    def sliding_window_view(self, x: Array, /, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False) -> Array:
        """The windows at each position, in new last axes: a view that cannot be written to, because windows overlap."""
        if writeable:
            raise NotImplementedError("sliding_window_view: windows cannot be written to, because they overlap")
        windows = [int(n) for n in np.atleast_1d(window_shape)]
        axes = list(range(x.ndim)) if axis is None else [self._axis(k, x.ndim) for k in np.atleast_1d(axis)]
        if len(axes) != len(windows):
            raise ValueError("as many windows as axes")
        if any(not 0 < w <= x.shape[k] for k, w in zip(axes, windows)):
            raise ValueError(f"windows of {windows} in axes {axes} of an array of shape {x.shape}")

        ghost = np.lib.stride_tricks.sliding_window_view(x._ghost, windows, tuple(axes))

        def make(node: Node) -> Node:
            return Node("sliding_windows", (node,), ghost.shape, node.dtype, {"window": windows, "axis": axes}) if axes else node

        return Array._of_view(View(x, ghost, make))

    # --- joining and splitting ---

    def hstack(self, tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Array:
        """Arrays side by side: along the second axis, of one axis along that."""
        arrays = [self.atleast_1d(a) for a in tup]
        return self.concat(arrays, 0 if arrays and arrays[0].ndim == 1 else 1, dtype=dtype, casting=casting)

    def vstack(self, tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Array:
        """Arrays one below the other."""
        return self.concat([self.atleast_2d(a) for a in tup], 0, dtype=dtype, casting=casting)

    row_stack = vstack

    def dstack(self, tup: Any) -> Array:
        """Arrays along the third axis."""
        return self.concat([self.atleast_3d(a) for a in tup], 2)

    def column_stack(self, tup: Any) -> Array:
        """Arrays of one axis as columns, beside others."""
        arrays = [self._taken(a) for a in tup]
        return self.concat([a if a.ndim > 1 else a.reshape(a.size, 1) for a in arrays], 1)

    def append(self, arr: Any, values: Any, axis: Optional[int] = None) -> Array:
        """One array behind the other; without an axis, flattened."""
        return self.concat([self._taken(arr), self._taken(values)], axis)

    def _np_delete(self, arr: Any, obj: Any, axis: Optional[int] = None) -> Array:
        """numpy.delete."""
        rest: Array = self._hosted("delete", np.delete)(arr, obj, axis)
        return rest

    def block(self, arrays: Any) -> Array:
        """An array of blocks, as nested lists have them."""
        if isinstance(arrays, tuple):
            raise TypeError("block: blocks are arranged in lists, not tuples")
        if not isinstance(arrays, list):
            return self.copy(arrays, "A")

        def depth(a: Any) -> int:
            return 1 + depth(a[0]) if isinstance(a, list) else 0

        deep = depth(arrays)
        rank = builtins.max(deep, *(a.ndim for a in self._blocks(arrays)))

        def joined(a: Any, level: int) -> Array:
            if not isinstance(a, list):
                x = self._taken(a)
                return x.reshape((1,) * (rank - x.ndim) + x.shape)
            return self.concat([joined(b, level + 1) for b in a], rank - deep + level)

        return joined(arrays, 0) if deep else self._copied(self._taken(arrays))

    def _blocks(self, arrays: Any) -> List[Array]:
        return [b for a in arrays for b in self._blocks(a)] if isinstance(arrays, list) else [self._taken(arrays)]

    @spelled
    def array_split(self, ary: Array, /, indices_or_sections: Any, axis: int = 0) -> List[Array]:
        """Parts along an axis: so many, or between these positions."""
        k = self._axis(axis, ary.ndim)
        n = ary.shape[k]
        if np.ndim(indices_or_sections):
            ends = [operator.index(i) for i in indices_or_sections]
        else:
            sections = int(indices_or_sections)
            if sections < 1:
                raise ValueError("at least one part")
            ends = [int(e) for e in np.cumsum([n // sections + (i < n % sections) for i in range(sections)])[:-1]]
        front = (slice(None),) * k
        return [ary[(*front, slice(a, b))] for a, b in zip([0, *ends], [*ends, None])]

    @spelled
    def split(self, ary: Array, /, indices_or_sections: Any, axis: int = 0) -> List[Array]:
        """Parts of one size along an axis, or between these positions."""
        if not np.ndim(indices_or_sections) and ary.shape[self._axis(axis, ary.ndim)] % int(indices_or_sections):
            raise ValueError("array split does not result in an equal division")
        return self.array_split(ary, indices_or_sections, axis)

    @spelled
    def hsplit(self, ary: Array, /, indices_or_sections: Any) -> List[Array]:
        """Parts along the second axis, of one axis along that."""
        return self.split(ary, indices_or_sections, 1 if ary.ndim > 1 else 0)

    @spelled
    def vsplit(self, ary: Array, /, indices_or_sections: Any) -> List[Array]:
        """Parts along the first axis."""
        return self.split(ary, indices_or_sections, 0)

    @spelled
    def dsplit(self, ary: Array, /, indices_or_sections: Any) -> List[Array]:
        """Parts along the third axis."""
        return self.split(ary, indices_or_sections, 2)

    @spelled
    def pad(self, array: Array, /, pad_width: Any, mode: Any = "constant", **more: Any) -> Array:
        """The array with more around it. The modes constant, edge, reflect, symmetric, wrap and empty are expressions."""
        if isinstance(pad_width, dict):
            axes = {self._axis(k, array.ndim): v for k, v in pad_width.items()}
            pad_width = [np.broadcast_to(axes.get(k, 0), 2) for k in range(array.ndim)]
        if np.asarray(pad_width).dtype.kind not in "iu":
            raise TypeError("pad: widths are integers")
        widths = [(int(a), int(b)) for a, b in np.broadcast_to(np.asarray(pad_width), (array.ndim, 2))]
        if any(n < 0 for w in widths for n in w):
            raise ValueError("nothing is padded by less than 0")
        if not any(map(any, widths)):
            return self._copied_in(array, "A")
        if mode in BY_PLACES and more.get("reflect_type", "even") == "even":
            for k, w in enumerate(widths):
                if w != (0, 0):
                    array = self.take(array, self._from_host(np.pad(np.arange(array.shape[k]), w, mode, **more)), axis=k)
            return array
        if mode not in ("constant", "empty"):
            padded: Array = self._hosted("pad", np.pad)(array, pad_width, mode, **more)
            return padded
        values = more.get("constant_values", 0)
        values = np.broadcast_to(np.asarray(values), (array.ndim, 2))
        for k, w in enumerate(widths):
            parts = [self.full((*array.shape[:k], n, *array.shape[k + 1:]), values[k, i].astype(array.dtype)) for i, n in enumerate(w)]
            around = [p for p in (parts[0], array, parts[1]) if p is array or p.shape[k]]
            array = self.concat(around, k) if len(around) > 1 else array
        return array
