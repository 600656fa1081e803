"""Reductions and scans."""
from __future__ import annotations

from typing import Any, Optional, Union

import numpy as np

from . import _dtypes as dt
from ._array import Array
from ._base import Axis, only
from ._ns_manipulation import Manipulation


class Statistics(Manipulation):
    def _reduce(self, op: str, x: Array, axis: Axis, keepdims: bool, dtype: dt.DType, /, **attrs: Any) -> Array:
        axes = self._axes(axis, self._check(x).ndim)
        shape = self._reduced(x.shape, axes, keepdims)
        if not axes and x.ndim:  # of each element by itself
            one = self.expand_dims(x, axis=0)
            return self._array(op, (one._node,), x.shape, dtype, axis=[0], keepdims=False, **attrs)
        if op in ("min", "max", "nanmin", "nanmax") and any(x.shape[k] == 0 for k in axes) and int(np.prod(shape)):
            raise ValueError(f"{op} of nothing")
        return self._array(op, (x._node,), shape, dtype, axis=axes if x.ndim else None, keepdims=bool(keepdims), **attrs)

    def _numbers(self, name: str, kinds: str, x: Array) -> None:
        only(kinds, name, self._check(x)._node)

    def _computed_in(self, name: str, x: Array, dtype: Any) -> Array:
        """x, in the dtype in which NumPy's functions may be told to compute."""
        self._numbers(name, "biufc", x)
        return x if dtype is None else self.astype(x, dtype, copy=False)

    def _sum(self, op: str, x: Array, axis: Axis, dtype: Any, keepdims: bool) -> Array:
        self._numbers(op, "biufc", x)
        if dtype is not None:
            t = dt.dtype_of(dtype)
            r = self._reduce(op, self.astype(x, t), axis, keepdims, dt.summed(t))
            return self.astype(r, t, copy=False)
        return self._reduce(op, x, axis, keepdims, dt.summed(x.dtype))

    def sum(self, x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
        """The sum; integers and bools in int64 or uint64."""
        return self._sum("sum", x, axis, dtype, keepdims)

    def prod(self, x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
        """The product; integers and bools in int64 or uint64."""
        return self._sum("prod", x, axis, dtype, keepdims)

    def mean(self, x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
        """The mean."""
        self._numbers("mean", "biufc", x)
        return self._reduce("mean", x, axis, keepdims, dt.floating(x.dtype))

    def min(self, x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
        """The least element; NaN where there is one."""
        self._numbers("min", "biuf", x)
        return self._reduce("min", x, axis, keepdims, x.dtype)

    def max(self, x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
        """The greatest element; NaN where there is one."""
        self._numbers("max", "biuf", x)
        return self._reduce("max", x, axis, keepdims, x.dtype)

    def var(self, x: Array, /, *, axis: Axis = None, correction: Union[int, float] = 0.0, keepdims: bool = False) -> Array:
        """The variance, divided by n - correction."""
        self._numbers("var", "biufc", x)
        return self._reduce("var", x, axis, keepdims, dt.real_of(dt.floating(x.dtype)), correction=correction)

    def std(self, x: Array, /, *, axis: Axis = None, correction: Union[int, float] = 0.0, keepdims: bool = False) -> Array:
        """The square root of the variance."""
        self._numbers("std", "biufc", x)
        return self._reduce("std", x, axis, keepdims, dt.real_of(dt.floating(x.dtype)), correction=correction)

    def all(self, x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
        """Every element is true."""
        return self._reduce("all", x, axis, keepdims, dt.BOOL)

    def any(self, x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
        """Some element is true."""
        return self._reduce("any", x, axis, keepdims, dt.BOOL)

    def count_nonzero(self, x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
        """How many elements are not 0."""
        return self._reduce("count_nonzero", x, axis, keepdims, dt.INT64)

    def norm(self, x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
        """The square root of the sum of squares."""
        self._numbers("norm", "biufc", x)
        return self._reduce("norm", x, axis, keepdims, dt.real_of(dt.floating(x.dtype)))

    def nansum(self, x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
        """The sum of what is not NaN."""
        return self._sum("nansum", x, axis, dtype, keepdims)

    def nanmean(self, x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
        """The mean of what is not NaN."""
        x = self._computed_in("nanmean", x, dtype)
        return self._reduce("nanmean", x, axis, keepdims, dt.floating(x.dtype))

    def nanmin(self, x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
        """The least element that is not NaN."""
        self._numbers("nanmin", "biuf", x)
        return self._reduce("nanmin", x, axis, keepdims, x.dtype)

    def nanmax(self, x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
        """The greatest element that is not NaN."""
        self._numbers("nanmax", "biuf", x)
        return self._reduce("nanmax", x, axis, keepdims, x.dtype)

    def nanvar(self, x: Array, /, *, axis: Axis = None, dtype: Any = None, ddof: float = 0.0, correction: Optional[float] = None,
               keepdims: bool = False) -> Array:
        """The variance of what is not NaN, divided by how many that are less the correction."""
        x = self._computed_in("nanvar", x, dtype)
        by = ddof if correction is None else correction
        return self._reduce("nanvar", x, axis, keepdims, dt.real_of(dt.floating(x.dtype)), correction=by)

    def nanstd(self, x: Array, /, *, axis: Axis = None, dtype: Any = None, ddof: float = 0.0, correction: Optional[float] = None,
               keepdims: bool = False) -> Array:
        """The square root of nanvar."""
        x = self._computed_in("nanstd", x, dtype)
        by = ddof if correction is None else correction
        return self._reduce("nanstd", x, axis, keepdims, dt.real_of(dt.floating(x.dtype)), correction=by)

    def logsumexp(self, x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
        """The logarithm of the sum of exponentials, none of which overflows."""
        self._numbers("logsumexp", "biuf", x)
        return self._reduce("logsumexp", x, axis, keepdims, dt.floating(x.dtype))

    def argmax(self, x: Array, /, *, axis: Optional[int] = None, keepdims: bool = False) -> Array:
        """Where the greatest element is: the first of several, the first NaN."""
        return self._arg("argmax", x, axis, keepdims)

    def argmin(self, x: Array, /, *, axis: Optional[int] = None, keepdims: bool = False) -> Array:
        """Where the least element is: the first of several, the first NaN."""
        return self._arg("argmin", x, axis, keepdims)

    def _arg(self, op: str, x: Array, axis: Optional[int], keepdims: bool) -> Array:
        self._numbers(op, "biuf", x)
        axes = self._axes(axis, x.ndim)
        if any(x.shape[k] == 0 for k in axes):
            raise ValueError(f"{op} of nothing")
        shape = self._reduced(x.shape, axes, keepdims)
        return self._array(op, (x._node,), shape, dt.INT64, axis=None if axis is None else axes[0], keepdims=bool(keepdims))

    def cumulative_sum(self, x: Array, /, *, axis: Optional[int] = None, dtype: Any = None, include_initial: bool = False) -> Array:
        """Sums up to each element; with a 0 in front if `include_initial`."""
        return self._scan("cumulative_sum", x, axis, dtype, 0 if include_initial else None)

    def cumulative_prod(self, x: Array, /, *, axis: Optional[int] = None, dtype: Any = None, include_initial: bool = False) -> Array:
        """Products up to each element; with a 1 in front if `include_initial`."""
        return self._scan("cumulative_prod", x, axis, dtype, 1 if include_initial else None)

    def _scan(self, op: str, x: Array, axis: Optional[int], dtype: Any, initial: Optional[int]) -> Array:
        self._numbers(op, "biufc", x)
        if axis is None:
            if x.ndim > 1:
                raise ValueError("which axis? There are several")
            axis = 0
        if x.ndim == 0:
            x = self.expand_dims(x, axis=0)
        k = self._axis(axis, x.ndim)
        t = dt.summed(x.dtype) if dtype is None else dt.dtype_of(dtype)
        if dtype is not None:
            x = self.astype(x, t)
        r = self.astype(self._array(op, (x._node,), x.shape, dt.summed(x.dtype), axis=k), t, copy=False)
        if initial is None:
            return r
        first = self._number(initial, t)
        shape = x.shape[:k] + (1,) + x.shape[k + 1:]
        return self.concat([self._array("broadcast_to", (first,), shape, t, shape=list(shape)), r], axis=k)

    def diff(self, x: Array, /, *, axis: int = -1, n: int = 1, prepend: Optional[Array] = None, append: Optional[Array] = None) -> Array:
        """Differences of neighbours along an axis, n times."""
        k = self._axis(axis, self._check(x).ndim)
        if n < 0:
            raise ValueError("n is not negative")
        parts = [a for a in (prepend, x, append) if a is not None]
        if len(parts) > 1:
            x = self.concat(parts, axis=k)
        for _ in range(n):
            if x.shape[k] < 1:
                break
            front = (slice(None),) * k
            a, b = x[(*front, slice(1, None))], x[(*front, slice(0, -1))]
            x = self._array("not_equal" if x.dtype == dt.BOOL else "subtract", (a._node, b._node), a.shape, x.dtype)
        return self._wrap(x._node)

    # --- sums of products ---

    def vecdot(self, x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
        """The sum of conj(x1)*x2 along an axis."""
        a, b = self._check(x1), self._check(x2)
        rank = max(a.ndim, b.ndim)
        if not a.ndim or not b.ndim or not -min(a.ndim, b.ndim) <= axis < 0:
            raise ValueError("the axis is negative, and one of both arrays")
        if a.shape[axis] != b.shape[axis]:
            raise ValueError(f"vecdot: the extents along the axis differ: {a.shape} and {b.shape}")
        self._numbers("vecdot", "iufc", a)
        self._numbers("vecdot", "iufc", b)
        t = dt.promote(a.dtype, b.dtype)
        p: Any = self.conj(a) * b if dt.is_complex(a.dtype) else a * b
        return self.sum(p, axis=rank + axis, dtype=t)
