"""Reductions and scans."""
from __future__ import annotations

from typing import Any, Optional, Union

import numpy as np

from . import _dtypes as dt
from ._array import Array
from ._base import Axis, only
from ._ns_manipulation import Manipulation
from ._spelling import spelled


class Statistics(Manipulation):
    def _reduce(self, op: str, x: Array, axis: Axis, keepdims: bool, dtype: dt.DType, /, **attrs: Any) -> Array:
        axes = [] if not x.ndim and axis in (0, -1) else self._axes(axis, self._check(x).ndim)  # NumPy: a number has an axis here
        shape = self._reduced(x.shape, axes, keepdims)
        if not axes and x.ndim:  # of each element by itself
            one = self.expand_dims(x, axis=0)
            return self._array(op, (one._node,), x.shape, dtype, axis=[0], keepdims=False, **attrs)
        if op in ("min", "max", "nanmin", "nanmax") and any(x.shape[k] == 0 for k in axes) and int(np.prod(shape)):
            raise ValueError(f"{op} of nothing")
        return self._array(op, (x._node,), shape, dtype, axis=axes if x.ndim else None, keepdims=bool(keepdims), **attrs)

    def _where(self, x: Array, where: Any, neutral: Any) -> Array:
        """x with a number that does not count, where it is not to count."""
        return x if where is None or where is True else self.where(self._taken(where), x, neutral)

    def _initial(self, value: Any, dtype: dt.DType) -> Array:
        """What is there before the elements, in their dtype."""
        return self.astype(value, dtype, copy=False) if isinstance(value, Array) else self.full((), value, dtype)

    def _numbers(self, name: str, kinds: str, x: Array) -> None:
        only(kinds, name, self._check(x)._node)

    def _computed_in(self, name: str, x: Array, dtype: Any) -> Array:
        """x, in the dtype in which NumPy's functions may be told to compute."""
        self._numbers(name, "biufc", x)
        return x if dtype is None else self.astype(x, dtype, copy=False)

    def _sum(self, op: str, x: Array, axis: Axis, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Array:
        self._numbers(op, "biufc", x)
        x = self._where(x, where, 1 if op == "prod" else 0)
        if initial is not None:
            then = self.multiply if op == "prod" else self.add
            r = self._sum(op, x, axis, dtype, keepdims, None, None)
            return then(r, self._initial(initial, r.dtype))  # type: ignore[no-any-return]
        if dtype is not None:
            t = dt.dtype_of(dtype)
            r = self._reduce(op, self.astype(x, t), axis, keepdims, dt.summed(t))
            return self.astype(r, t, copy=False)
        return self._reduce(op, x, axis, keepdims, dt.summed(x.dtype))

    @spelled
    def sum(self, x: Array, /, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None,
            where: Any = None) -> Array:
        """The sum; integers and bools in int64 or uint64."""
        return self._sum("sum", x, axis, dtype, keepdims, initial, where)

    @spelled
    def prod(self, x: Array, /, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None,
             where: Any = None) -> Array:
        """The product; integers and bools in int64 or uint64."""
        return self._sum("prod", x, axis, dtype, keepdims, initial, where)

    @spelled
    def mean(self, x: Array, /, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *,
             where: Any = None) -> Array:
        """The mean."""
        if dtype is not None and not dt.is_floating(t := dt.dtype_of(dtype)):
            return self._whole_mean(x, axis, t, keepdims, where)
        x = self._computed_in("mean", x, dtype)
        if where is not None and where is not True:
            mask = self.broadcast_to(self._taken(where), x.shape)
            t = dt.floating(x.dtype)
            total, count = self.sum(x, axis, t, keepdims=keepdims, where=mask), self.count_nonzero(mask, axis, keepdims=keepdims)
            return total / self.astype(count, t)
        return self._reduce("mean", x, axis, keepdims, dt.floating(x.dtype))

    def _counted_in(self, x: Array, axis: Axis, keepdims: bool, where: Any) -> Any:
        """How many elements go into each number of the result: an int, or with `where` an array."""
        if where is None or where is True:
            axes = [] if not x.ndim else self._axes(axis, x.ndim)
            return int(np.prod([x.shape[k] for k in axes], dtype=np.int64))
        return self.count_nonzero(self.broadcast_to(self._taken(where), x.shape), axis, keepdims=keepdims)

    def _whole_mean(self, x: Array, axis: Axis, t: dt.DType, keepdims: bool, where: Any) -> Array:
        """In integers or bools, as NumPy computes when it is told to: their sum, which is divided and cast again."""
        total = self.sum(x, axis, t, keepdims=keepdims, where=where)
        return self.astype(self.divide(total, self._counted_in(x, axis, keepdims, where)), t)

    def _whole_spread(self, op: str, x: Array, axis: Axis, t: dt.DType, keepdims: bool, correction: float, where: Any) -> Array:
        away = x - self._whole_mean(x, axis, t, True, where)
        count = self._counted_in(x, axis, keepdims, where) - correction
        count = max(count, 0) if isinstance(count, (int, float)) else self.maximum(count, 0)
        r = self.astype(self.divide(self.sum(self.square(away), axis, t, keepdims=keepdims, where=where), count), t)
        if op == "var":
            return r
        if r.ndim:
            raise TypeError(f"std: square roots are no numbers of {dt.name_of(t)}")
        return self.astype(self.sqrt(r), t)

    def _extreme(self, op: str, x: Array, axis: Axis, keepdims: bool, initial: Any, where: Any) -> Array:
        self._numbers(op, "biuf", x)
        if initial is None:
            if where is not None and where is not True:
                raise ValueError(f"{op}: `where` wants an `initial`, of which the result is where nothing counts")
            return self._reduce(op, x, axis, keepdims, x.dtype)
        initial = self._initial(initial, x.dtype)
        x = self._where(x, where, initial)
        axes = self._axes(axis, x.ndim)
        if any(x.shape[k] == 0 for k in axes):
            return self.full(self._reduced(x.shape, axes, keepdims), initial, dtype=x.dtype)
        then = self.minimum if op.endswith("min") else self.maximum
        return then(self._reduce(op, x, axis, keepdims, x.dtype), initial)  # type: ignore[no-any-return]

    @spelled
    def min(self, x: Array, /, axis: Axis = None, out: Any = None, keepdims: bool = False, initial: Any = None,
            where: Any = None) -> Array:
        """The least element; NaN where there is one."""
        return self._extreme("min", x, axis, keepdims, initial, where)

    @spelled
    def max(self, x: Array, /, axis: Axis = None, out: Any = None, keepdims: bool = False, initial: Any = None,
            where: Any = None) -> Array:
        """The greatest element; NaN where there is one."""
        return self._extreme("max", x, axis, keepdims, initial, where)

    def _spread(self, op: str, x: Array, axis: Axis, dtype: Any, keepdims: bool, correction: float, where: Any) -> Array:
        t = None if dtype is None else dt.dtype_of(dtype)
        if op.startswith("nan") and not dt.is_floating(x.dtype):
            op = op[3:]
        if t is not None and not dt.is_floating(t):
            self._not_in(op, t)
            return self._whole_spread(op, x, axis, t, keepdims, correction, where)
        if t is not None and dt.is_complex(t):
            return self.astype(self._spread(op, self.astype(x, t), axis, None, keepdims, correction, where), t)
        x = self._computed_in(op, x, dtype)
        if where is not None and where is not True:
            if not op.startswith("nan"):
                away = self.abs(x - self.mean(x, axis, keepdims=True, where=where))
                t, mask = dt.real_of(dt.floating(x.dtype)), self.broadcast_to(self._taken(where), x.shape)
                count = self.astype(self.count_nonzero(mask, axis, keepdims=keepdims), t) - correction
                r = self.sum(away * away, axis, t, keepdims=keepdims, where=mask) / self.maximum(count, 0.0)
                return r if op == "var" else self.sqrt(r)  # type: ignore[no-any-return]
            x = self._where(x, where, float("nan"))
        whole = not op.startswith("nan") and self._counted_in(x, axis, keepdims, None) <= correction  # then it is divided by 0
        r = self._reduce(op, x, axis, keepdims, dt.real_of(dt.floating(x.dtype)), correction=0 if whole else correction)
        return self.divide(r, 0.0) if whole else r

    def _not_in(self, op: str, t: dt.DType) -> None:
        if op.startswith("nan"):
            raise TypeError(f"{op}: of floating numbers it is not computed in {dt.name_of(t)}")

    @spelled
    def var(self, x: Array, /, axis: Axis = None, dtype: Any = None, out: Any = None, ddof: Union[int, float] = 0.0,
            keepdims: bool = False, *, correction: Union[None, int, float] = None, where: Any = None) -> Array:
        """The variance, divided by n - correction."""
        return self._spread("var", x, axis, dtype, keepdims, ddof if correction is None else correction, where)

    @spelled
    def std(self, x: Array, /, axis: Axis = None, dtype: Any = None, out: Any = None, ddof: Union[int, float] = 0.0,
            keepdims: bool = False, *, correction: Union[None, int, float] = None, where: Any = None) -> Array:
        """The square root of the variance."""
        return self._spread("std", x, axis, dtype, keepdims, ddof if correction is None else correction, where)

    @spelled
    def all(self, x: Array, /, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None) -> Array:
        """Every element is true."""
        return self._reduce("all", self._where(x, where, True), axis, keepdims, dt.BOOL)

    @spelled
    def any(self, x: Array, /, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None) -> Array:
        """Some element is true."""
        return self._reduce("any", self._where(x, where, False), axis, keepdims, dt.BOOL)

    @spelled
    def count_nonzero(self, x: Array, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """How many elements are not 0."""
        return self._reduce("count_nonzero", x, axis, keepdims, dt.INT64)

    @spelled
    def norm(self, x: Array, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """The square root of the sum of squares."""
        self._numbers("norm", "biufc", x)
        return self._reduce("norm", x, axis, keepdims, dt.real_of(dt.floating(x.dtype)))

    @spelled
    def nansum(self, x: Array, /, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None,
               where: Any = None) -> Array:
        """The sum of what is not NaN."""
        return self._sum("nansum", x, axis, dtype, keepdims, initial, where)

    @spelled
    def nanmean(self, x: Array, /, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *,
                where: Any = None) -> Array:
        """The mean of what is not NaN."""
        if not dt.is_floating(x.dtype):
            return self.mean(x, axis, dtype, keepdims=keepdims, where=where)
        if dtype is not None and not dt.is_floating(t := dt.dtype_of(dtype)):
            self._not_in("nanmean", t)
        x = self._where(self._computed_in("nanmean", x, dtype), where, float("nan"))
        return self._reduce("nanmean", x, axis, keepdims, dt.floating(x.dtype))

    @spelled
    def nanmin(self, x: Array, /, axis: Axis = None, out: Any = None, keepdims: bool = False, initial: Any = None,
               where: Any = None) -> Array:
        """The least element that is not NaN."""
        return self._extreme("nanmin", x, axis, keepdims, initial, where)

    @spelled
    def nanmax(self, x: Array, /, axis: Axis = None, out: Any = None, keepdims: bool = False, initial: Any = None,
               where: Any = None) -> Array:
        """The greatest element that is not NaN."""
        return self._extreme("nanmax", x, axis, keepdims, initial, where)

    @spelled
    def nanvar(self, x: Array, /, axis: Axis = None, dtype: Any = None, out: Any = None, ddof: float = 0.0, keepdims: bool = False, *,
               correction: Optional[float] = None, where: Any = None) -> Array:
        """The variance of what is not NaN, divided by how many that are less the correction."""
        return self._spread("nanvar", x, axis, dtype, keepdims, ddof if correction is None else correction, where)

    @spelled
    def nanstd(self, x: Array, /, axis: Axis = None, dtype: Any = None, out: Any = None, ddof: float = 0.0, keepdims: bool = False, *,
               correction: Optional[float] = None, where: Any = None) -> Array:
        """The square root of nanvar."""
        return self._spread("nanstd", x, axis, dtype, keepdims, ddof if correction is None else correction, where)

    @spelled
    def logsumexp(self, x: Array, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """The logarithm of the sum of exponentials, none of which overflows."""
        self._numbers("logsumexp", "biuf", x)
        return self._reduce("logsumexp", x, axis, keepdims, dt.floating(x.dtype))

    @spelled
    def argmax(self, x: Array, /, axis: Optional[int] = None, out: Any = None, *, keepdims: bool = False) -> Array:
        """Where the greatest element is: the first of several, the first NaN."""
        return self._arg("argmax", x, axis, keepdims)

    @spelled
    def argmin(self, x: Array, /, axis: Optional[int] = None, out: Any = None, *, keepdims: bool = False) -> Array:
        """Where the least element is: the first of several, the first NaN."""
        return self._arg("argmin", x, axis, keepdims)

    def _arg(self, op: str, x: Array, axis: Optional[int], keepdims: bool) -> Array:
        self._numbers(op, "biuf", x)
        axes = [] if axis is None or not x.ndim and axis in (0, -1) else [self._axis(axis, x.ndim)]
        axes = list(range(x.ndim)) if axis is None else axes
        if any(x.shape[k] == 0 for k in axes):
            raise ValueError(f"{op} of nothing")
        shape = self._reduced(x.shape, axes, keepdims)
        return self._array(op, (x._node,), shape, dt.INT64, axis=axes[0] if axis is not None and axes else None, keepdims=bool(keepdims))

    @spelled
    def cumulative_sum(self, x: Array, /, *, axis: Optional[int] = None, dtype: Any = None, out: Any = None, include_initial: bool = False) -> Array:
        """Sums up to each element; with a 0 in front if `include_initial`."""
        return self._scan("cumulative_sum", x, axis, dtype, 0 if include_initial else None)

    @spelled
    def cumulative_prod(self, x: Array, /, *, axis: Optional[int] = None, dtype: Any = None, out: Any = None, include_initial: bool = False) -> Array:
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

    @spelled
    def diff(self, x: Array, /, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
        """Differences of neighbours along an axis, n times."""
        k = self._axis(axis, self._check(x).ndim)
        if n < 0:
            raise ValueError("n is not negative")
        if n == 0:
            return x
        one = (*x.shape[:k], 1, *x.shape[k + 1:])
        parts = [a if a is x else self._taken(a) for a in (prepend, x, append) if a is not None]
        if len(parts) > 1:
            x = self.concat([a if a.ndim else self.broadcast_to(a, one) for a in parts], axis=k)
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
        a, b = self._taken(x1), self._taken(x2)
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
