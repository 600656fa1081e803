"""Creation functions. What is filled with one number is an expression and takes no memory until it must."""
from __future__ import annotations

import math
import operator
import secrets
from typing import Any, List, Literal, Optional, Sequence, Tuple, Union

import numpy as np

from . import _dtypes as dt
from ._array import Array
from ._base import Base
from ._engine import SMALL
from ._graph import create
from ._indexing import broadcasts
from ._labels import SAME
from ._numbers import wire
from ._spelling import spelled

Number = Union[bool, int, float, complex]
Extents = Union[int, Tuple[int, ...]]


class Creation(Base):
    def asarray(self, a: Any, dtype: Any = None, order: Optional[str] = None, *, device: Any = None, copy: Optional[bool] = None,
                like: Any = None, attrs: Any = SAME, dims: Any = SAME, units: Any = SAME, coords: Any = SAME) -> Array:
        """An array of values of this process, or of an array. Small ones are uploaded when the server first needs them; with `attrs`, `dims`,
        `units` or `coords` (see `Array.patch`) at once."""
        if any(v is not SAME for v in (attrs, dims, units, coords)):
            labelled: Array = self._run(self.asarray(a, dtype, order, device=device, copy=copy)._labelling(attrs, dims, units, coords))
            return labelled
        self._check_device(device)
        t = None if dtype is None else dt.dtype_of(dtype)
        if isinstance(a, Array):
            if a._client is not self:
                here = self._here(a)
                if copy is False and here is not a:
                    raise ValueError("an array of another device needs a copy")
                a, copy = here, copy and here is a
            if t is None or t == a.dtype:
                x: Array = self._in_order(a, order)  # type: ignore[attr-defined]
                if copy is False and x is not a:
                    raise ValueError(f"another order than {order} needs a copy")
                return self._copied_in(a, order) if copy and x is a else x  # type: ignore[attr-defined]
            if copy is False:
                raise ValueError("another dtype needs a copy")
            return self._wrap(self._cast(self._check(a)._node, t))
        if copy is False:
            raise ValueError("values of this process are copied to the server")
        if _holds_arrays(a) and not _is_here(a):
            whole = self.stack([self.asarray(o) for o in a])  # type: ignore[attr-defined]
            return whole if t is None else self._wrap(self._cast(whole._node, t))
        return self._given(*self._values_of(a, t))

    def _values_of(self, obj: Any, t: Optional[dt.DType] = None) -> Tuple["np.ndarray[Any, Any]", dt.DType]:
        """Values of this process as NumPy's, in memory of theirs where that has them already, and their dtype: t, or their own."""
        if _holds_arrays(obj):
            obj = _fetched(obj)
        value = dt.taken(obj)
        if t is not None and value.dtype.kind == "c" and not dt.is_complex(t) and t != dt.BOOL:
            raise TypeError("complex numbers cannot be cast to real ones: use real(x) or imag(x)")
        if t is not None and t.kind in "iu" and value.dtype.kind == "f" and not isinstance(obj, (np.ndarray, float)):
            value = np.asarray(obj, dtype=t)  # NumPy takes integers on both sides of 2**63 for floats
        if value.dtype == object:
            wrong = [type(v).__name__ for v in value.flat if not isinstance(v, (int, float, complex))]
            if wrong:
                raise TypeError(f"{wrong[0]} is not a number" + (": use from_dlpack" if hasattr(obj, "__dlpack__") else ""))
            raise OverflowError("an integer is too large: more than 64 bits")
        if t is None:
            t = dt.dtype_of(value.dtype)
        elif not isinstance(obj, (np.ndarray, np.generic)) and value.size and value.dtype.kind in "iu" and dt.is_integer(t):
            for extreme in (value.min(), value.max()):
                self._number(int(extreme), t)
        return dt.cast(value, t), t

    def full(self, shape: Extents, fill_value: Number, dtype: Any = None, order: str = "C", *, device: Any = None) -> Array:
        """`fill_value` everywhere."""
        self._check_device(device)
        if isinstance(fill_value, (Array, np.ndarray, list, tuple)) and np.ndim(fill_value):
            of, s = self._taken(fill_value), self._shape(shape)
            node = of._node if dtype is None else self._cast(of._node, dt.dtype_of(dtype))
            if not broadcasts(of.shape, s):
                raise ValueError(f"full: values of shape {of.shape} do not fill shape {s}")
            return self._array("broadcast_to", (node,), s, node.dtype, shape=list(s))
        if dtype is None and isinstance(fill_value, (Array, np.generic, np.ndarray)):
            dtype = fill_value.dtype
        if isinstance(fill_value, (Array, np.generic, np.ndarray)):
            fill_value = (fill_value if isinstance(fill_value, Array) else dt.taken(fill_value)).item()
        t = dt.default_of(fill_value) if dtype is None else dt.dtype_of(dtype)
        s = self._shape(shape)
        node = self._number(fill_value, t)
        return self._array("broadcast_to", (node,), s, t, shape=list(s)) if s else self._wrap(node)

    def zeros(self, shape: Extents, dtype: Any = None, order: str = "C", *, device: Any = None) -> Array:
        """0 everywhere; float64 unless told otherwise."""
        return self.full(shape, 0, dtype=dt.FLOAT64 if dtype is None else dtype, device=device)

    def ones(self, shape: Extents, dtype: Any = None, order: str = "C", *, device: Any = None) -> Array:
        """1 everywhere; float64 unless told otherwise."""
        return self.full(shape, 1, dtype=dt.FLOAT64 if dtype is None else dtype, device=device)

    def empty(self, shape: Extents, dtype: Any = None, order: str = "C", *, device: Any = None) -> Array:
        """The same as zeros: nobody reads what was in memory before."""
        return self.zeros(shape, dtype=dtype, device=device)

    @spelled
    def full_like(self, x: Array, /, fill_value: Number, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
                  device: Any = None) -> Array:
        """`full` with the shape and dtype of x."""
        return self.full(x.shape if shape is None else shape, fill_value, x.dtype if dtype is None else dtype, device=device)

    @spelled
    def zeros_like(self, x: Array, /, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
                   device: Any = None) -> Array:
        """`zeros` with the shape and dtype of x."""
        return self.full_like(x, 0, dtype, shape=shape, device=device)

    @spelled
    def ones_like(self, x: Array, /, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
                  device: Any = None) -> Array:
        """`ones` with the shape and dtype of x."""
        return self.full_like(x, 1, dtype, shape=shape, device=device)

    @spelled
    def empty_like(self, x: Array, /, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
                   device: Any = None) -> Array:
        """The same as zeros_like."""
        return self.full_like(x, 0, dtype, shape=shape, device=device)

    def arange(self, start: Optional[Union[int, float]] = None, stop: Optional[Union[int, float]] = None, step: Union[int, float] = 1,
               dtype: Any = None, *, device: Any = None) -> Array:
        """start, start + step, … below stop; with one number, 0 to that."""
        self._check_device(device)
        if start is None and stop is None:
            raise TypeError("arange() wants an end")
        first: Any
        end: Any
        by: Any
        first, end, by = (v.item() if isinstance(v, (np.generic, Array)) else v
                          for v in ((0, start, step) if stop is None else (0 if start is None else start, stop, step)))
        if by == 0:
            raise ValueError("a step of 0 never arrives")
        exact = all(isinstance(v, int) for v in (first, end, by))
        t = (dt.INT64 if exact else dt.FLOAT64) if dtype is None else dt.dtype_of(dtype)
        n = max(0, -((first - end) // by) if exact else math.ceil((end - first) / by))
        if n * t.itemsize <= SMALL:
            here = dt.FLOAT64 if t == dt.bfloat16 else t
            return self._from_host(np.arange(first, end, by, dtype=here)[:n] if n else np.empty(0, t), t)
        return self._wrap(create({"arange": {"start": wire(first), "stop": wire(end), "step": wire(by)}}, (n,), t))

    def linspace(self, start: Number, stop: Number, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
                 axis: int = 0, *, device: Any = None) -> Any:
        """`num` numbers from start to stop, which is one of them if `endpoint`."""
        self._check_device(device)
        if retstep or np.ndim(start) or np.ndim(stop):
            return self._hosted("linspace", np.linspace)(start, stop, num, endpoint, retstep, dtype, axis)
        typed = [dt.dtype_of(v.dtype) for v in (start, stop) if isinstance(v, (Array, np.ndarray, np.generic))]
        plain = [v for v in (start, stop) if not isinstance(v, (Array, np.ndarray, np.generic))]
        start, stop = (v.item() if isinstance(v, (Array, np.ndarray, np.generic)) else v for v in (start, stop))
        if num < 0:
            raise ValueError("num is not negative")
        t = dt.floating(dt.result_type(typed, plain)) if dtype is None else dt.dtype_of(dtype)
        if num * t.itemsize <= SMALL or dt.is_complex(t):
            values = np.linspace(start, stop, num, endpoint=endpoint)
            return self._from_host(np.floor(values) if dt.is_integer(t) else values, t)
        spec = {"start": wire(start), "stop": wire(stop), "num": int(num), "endpoint": bool(endpoint)}
        return self._wrap(create({"linspace": spec}, (num,), t))

    def eye(self, N: int, M: Optional[int] = None, k: int = 0, dtype: Any = None, order: str = "C", *,
            device: Any = None) -> Array:
        """1 on the k-th diagonal, else 0."""
        self._check_device(device)
        t = dt.FLOAT64 if dtype is None else dt.dtype_of(dtype)
        n_rows = operator.index(N)
        m = n_rows if M is None else operator.index(M)
        if n_rows * m * t.itemsize <= SMALL:
            return self._from_host(np.eye(n_rows, m, k), t)
        return self._wrap(create({"eye": {"n": n_rows, "m": m, "k": k}}, (n_rows, m), t))

    def _random(self, shape: Extents, *, distribution: str = "uniform", seed: Optional[int] = None, low: Optional[Number] = None,
               high: Optional[Number] = None, dtype: Any = None) -> Array:
        """Philox4x32-10 numbers: uniform in [0, 1), normal, or integers in [low, high). The same for the same seed on every
        backend; without one, others each time."""
        t = dt.dtype_of(dtype) if dtype is not None else dt.INT64 if distribution == "integers" else dt.FLOAT64
        spec: Any = {"distribution": distribution, "seed": wire(secrets.randbits(64) if seed is None else seed)}
        spec.update({k: wire(v) for k, v in (("low", low), ("high", high)) if v is not None})
        s = self._shape(shape)
        return self._wrap(create({"shape": list(s), "random": spec}, s, t))

    def meshgrid(self, *arrays: Array, copy: bool = True, sparse: bool = False, indexing: Literal["xy", "ij"] = "xy") -> List[Array]:
        """Coordinates of a grid, from those along its axes; `sparse`: without their repetitions; without `copy`: views."""
        arrays = tuple(self._taken(a) for a in arrays)
        if indexing not in ("xy", "ij"):
            raise ValueError("indexing is 'xy' or 'ij'")
        n = len(arrays)
        turn = indexing == "xy" and n > 1
        order = [1, 0, *range(2, n)] if turn else list(range(n))
        shape = tuple(arrays[k].size for k in order)
        out = []
        for i, a in enumerate(arrays):
            s = [1] * n
            s[order.index(i)] = a.size
            column = self.reshape(a, tuple(s))  # type: ignore[attr-defined]
            whole = column if sparse or column.shape == shape else self.broadcast_to(column, shape)  # type: ignore[attr-defined]
            out.append(self._copied(whole) if copy else whole)
        return out

    @spelled
    def tril(self, x: Array, /, k: int = 0) -> Array:
        """x below and on the k-th diagonal of the last two axes, 0 above."""
        return self._triangle("tril", x, k)

    @spelled
    def triu(self, x: Array, /, k: int = 0) -> Array:
        """x above and on the k-th diagonal of the last two axes, 0 below."""
        return self._triangle("triu", x, k)

    def _triangle(self, op: str, x: Array, k: int) -> Array:
        if x.ndim == 1:  # NumPy makes it the rows of a matrix
            return self._triangle(op, self._array("broadcast_to", (x._node,), (x.size, x.size), x.dtype, shape=[x.size, x.size]), k)
        if not x.ndim:
            raise ValueError(f"{op} is of arrays of rank 1 and more")
        return self._array(op, (x._node,), x.shape, x.dtype, k=operator.index(k))


def _holds_arrays(obj: Any) -> bool:
    return isinstance(obj, (list, tuple)) and any(isinstance(o, Array) or _holds_arrays(o) for o in obj)


def _is_here(obj: Any) -> bool:
    """No request is needed for the values."""
    return all(_is_here(o) if isinstance(o, (list, tuple)) else not isinstance(o, Array) or o._node.value is not None for o in obj)


def _fetched(obj: Sequence[Any]) -> List[Any]:
    return [o._values() if isinstance(o, Array) else _fetched(o) if isinstance(o, (list, tuple)) else o for o in obj]
