"""NumPy's functions of numbers: arithmetic, sums, products and comparisons, as expressions."""
from __future__ import annotations

import builtins
import math
import operator
from typing import Any, List, Optional, Tuple

import numpy as np

from .. import _dtypes as dt
from .._array import Array
from .._base import only
from .._spelling import spelled
from ._shapes import Shapes


class Numbers(Shapes):
    # --- elements ---

    @spelled
    def round(self, x: Array, /, decimals: int = 0, out: Any = None) -> Array:
        """To so many decimals, halves to even."""
        decimals = operator.index(decimals)
        if not dt.is_floating(x.dtype):
            return self._hosted("round", np.round)(x, decimals) if decimals < 0 else self._copied(x)
        if decimals == 0:
            return self.rint(x)  # type: ignore[no-any-return]
        by = 10.0 ** abs(decimals)
        return self.rint(x * by) / by if decimals > 0 else self.rint(x / by) * by  # type: ignore[no-any-return]

    around = round

    @spelled
    def fix(self, x: Array, /, out: Any = None) -> Array:
        """The integer towards zero."""
        return self.trunc(x)  # type: ignore[no-any-return]

    @spelled
    def deg2rad(self, x: Array, /, out: Any = None) -> Array:
        """Degrees in radians."""
        only("biuf", "deg2rad", x._node)
        return self.multiply(x, math.pi / 180)  # type: ignore[no-any-return]

    @spelled
    def rad2deg(self, x: Array, /, out: Any = None) -> Array:
        """Radians in degrees."""
        only("biuf", "rad2deg", x._node)
        return self.multiply(x, 180 / math.pi)  # type: ignore[no-any-return]

    radians, degrees = deg2rad, rad2deg

    @spelled
    def exp2(self, x: Array, /, out: Any = None) -> Array:
        """2 to the power of x."""
        return self.pow(2.0, x)  # type: ignore[no-any-return]

    def logaddexp2(self, x1: Any, x2: Any, /, out: Any = None) -> Array:
        """log2(2**x1 + 2**x2)."""
        two = math.log(2)
        x1, x2 = self._real_floating("logaddexp2", x1, x2)
        r: Array = self.logaddexp(x1 * two, x2 * two) / two
        return r if out is None else self._into(out, r)

    def _real_floating(self, name: str, *given: Any) -> List[Array]:
        """Real numbers as functions of floating ones take them, of the dtype that they have together."""
        given = tuple(float(x) if type(x) is int else x for x in given)
        nodes = self._beside(*given) if any(isinstance(x, Array) for x in given) else [self._taken(x)._node for x in given]
        only("biuf", name, *nodes)
        t = dt.floating(dt.result_type([n.dtype for n in nodes], []))
        return [self._wrap(self._cast(n, t)) for n in nodes]

    @spelled
    def fabs(self, x: Array, /, out: Any = None) -> Array:
        """Absolute value, as a floating number."""
        only("biuf", "fabs", x._node)
        return self.abs(self.astype(x, dt.floating(x.dtype), copy=False))  # type: ignore[no-any-return]

    @spelled
    def float_power(self, x1: Array, x2: Any, /, out: Any = None) -> Array:
        """x1 ** x2, in float64 at least."""
        t = dt.promote(x1.dtype, dt.FLOAT64)
        return self.pow(self.astype(x1, t), x2)  # type: ignore[no-any-return]

    def fmax(self, x1: Any, x2: Any, /, out: Any = None) -> Any:
        """The larger of the two; where one is NaN, the other."""
        return self._known("maximum", x1, x2, out)

    def fmin(self, x1: Any, x2: Any, /, out: Any = None) -> Any:
        """The smaller of the two; where one is NaN, the other."""
        return self._known("minimum", x1, x2, out)

    def _known(self, name: str, x1: Any, x2: Any, out: Any) -> Any:
        a, b = (x if isinstance(x, (int, float)) else self._taken(x) for x in (x1, x2))
        r = getattr(self, name)(a, b)
        for x, other in ((a, b), (b, a)):
            if isinstance(x, Array) and dt.is_real_floating(x.dtype):
                r = self.where(self.isnan(x), other, r)
            elif isinstance(x, float) and x != x:
                r = other
        return r if out is None else self._into(out, r)

    def heaviside(self, x1: Any, x2: Any, /, out: Any = None) -> Array:
        """0 below 0, x2 at 0, else 1."""
        x, y = self._real_floating("heaviside", x1, x2)
        r: Array = self.where(x < 0, 0.0, self.where(x == 0, y, self.where(x > 0, 1.0, x)))
        return r if out is None else self._into(out, r)

    def divmod(self, x1: Any, x2: Any, /) -> Tuple[Any, Any]:
        """(x1 // x2, x1 % x2)."""
        return self.floor_divide(x1, x2), self.remainder(x1, x2)

    @spelled
    def modf(self, x: Array, /) -> Tuple[Array, Array]:
        """The parts behind and before the decimal point, both with x's sign."""
        x = self.astype(x, dt.floating(x.dtype), copy=False)
        return self.copysign(self.where(self.isinf(x), 0.0, self.frac(x)), x), self.trunc(x)

    @spelled
    def sinc(self, x: Array, /) -> Array:
        """sin(pi x)/(pi x)."""
        y = math.pi * x
        return self.where(x == 0, 1.0, self.sin(y) / y)  # type: ignore[no-any-return]

    @spelled
    def angle(self, z: Array, /, deg: bool = False) -> Array:
        """The angle of complex numbers, in radians."""
        a: Array = self.atan2(self.imag(z), self.real(z))
        return a * (180 / math.pi) if deg else a

    @spelled
    def nan_to_num(self, x: Array, /, copy: bool = True, nan: float = 0.0, posinf: Optional[float] = None,
                   neginf: Optional[float] = None) -> Array:
        """x with numbers in place of NaN and the infinities."""
        if dt.is_complex(x.dtype):
            made: Array = self._hosted("nan_to_num", np.nan_to_num)(x, True, nan, posinf, neginf)
            return made if copy else self._into(x, made)
        if not dt.is_real_floating(x.dtype):
            return self._copied(x) if copy else x
        limits = np.finfo(x.dtype)
        r = self.where(self.isnan(x), nan, x)
        r = self.where(x == math.inf, float(limits.max) if posinf is None else posinf, r)
        r = self.where(x == -math.inf, float(limits.min) if neginf is None else neginf, r)
        return r if copy else self._into(x, r)

    @spelled
    def isposinf(self, x: Array, /, out: Any = None) -> Array:
        """Infinite, and positive."""
        only("biuf", "isposinf", x._node)
        return self.equal(x, math.inf)  # type: ignore[no-any-return]

    @spelled
    def isneginf(self, x: Array, /, out: Any = None) -> Array:
        """Infinite, and negative."""
        only("biuf", "isneginf", x._node)
        return self.equal(x, -math.inf)  # type: ignore[no-any-return]

    @spelled
    def iscomplex(self, x: Array, /) -> Array:
        """The imaginary part is not 0."""
        return self.not_equal(self.imag(x), 0)  # type: ignore[no-any-return]

    @spelled
    def isreal(self, x: Array, /) -> Array:
        """The imaginary part is 0."""
        return self.equal(self.imag(x), 0)  # type: ignore[no-any-return]

    def iscomplexobj(self, x: Any) -> bool:
        """The dtype is complex."""
        return dt.is_complex(x.dtype) if isinstance(x, Array) else builtins.bool(np.iscomplexobj(x))

    def isrealobj(self, x: Any) -> bool:
        """The dtype is not complex."""
        return not self.iscomplexobj(x)

    def may_share_memory(self, a: Any, b: Any, max_work: Any = None) -> bool:
        """Of arrays that are written to: one is the other, or a view of it."""
        return isinstance(a, Array) and isinstance(b, Array) and _owner(a) is _owner(b)

    shares_memory = may_share_memory

    @spelled
    def real_if_close(self, a: Array, /, tol: float = 100) -> Array:
        """The real parts, where the imaginary ones are as good as 0, which is waited for."""
        if not dt.is_complex(a.dtype):
            return a
        tol = tol * float(np.finfo(a.dtype).eps) if tol > 1 else tol
        return self.real(a) if builtins.bool(self.all(self.abs(self.imag(a)) < tol)) else a

    @spelled
    def trim_zeros(self, filt: Array, /, trim: str = "fb", axis: Any = None) -> Array:
        """A view of what lies between zeros at the ends, which are looked for in this process."""
        taken = self._hosted("trim_zeros", lambda v: [[int(k.min()), int(k.max()) + 1] if k.size else [0, 0] for k in np.nonzero(v)])(filt)
        axes = self._axes(axis, filt.ndim)
        key = [slice(None)] * filt.ndim
        for k in axes:
            key[k] = slice(taken[k][0] if "f" in trim.lower() or taken[k][1] == 0 else None, taken[k][1] if "b" in trim.lower() else None)
        return filt[tuple(key)]

    # --- comparisons ---

    def isclose(self, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
        """|a - b| <= atol + rtol*|b|, or equal."""
        x, y = self._taken(a), self._taken(b)
        x, y = (v if dt.is_floating(v.dtype) else self.astype(v, dt.FLOAT64) for v in (x, y))
        near = self.logical_and(self.less_equal(self.abs(x - y), atol + rtol * self.abs(y)), self.isfinite(y))
        near = self.logical_or(near, self.equal(x, y))
        if equal_nan:
            near = self.logical_or(near, self.logical_and(self.isnan(x), self.isnan(y)))
        return near  # type: ignore[no-any-return]

    def allclose(self, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
        """All of isclose: a bool, which is waited for."""
        return builtins.bool(self.all(self.isclose(a, b, rtol, atol, equal_nan)))

    def array_equal(self, a1: Any, a2: Any, equal_nan: bool = False) -> Any:
        """One shape and the same elements: a bool, which is waited for."""
        x, y = self._taken(a1), self._taken(a2)
        if x.shape != y.shape:
            return False
        same: Any = self.equal(x, y)
        if equal_nan:
            same = self.logical_or(same, self.logical_and(self.not_equal(x, x), self.not_equal(y, y)))
        return builtins.bool(self.all(same))

    def array_equiv(self, a1: Any, a2: Any) -> Any:
        """The same elements once they are broadcast: a bool, which is waited for."""
        try:
            return builtins.bool(self.all(self.equal(self._taken(a1), self._taken(a2))))
        except ValueError:
            return False

    # --- choosing ---

    @spelled
    def argwhere(self, a: Array, /) -> Array:
        """The positions of what is not 0, one a row (in this process)."""
        return self.stack(self.nonzero(a), 1) if a.ndim else self.stack(self.nonzero(a.reshape(1)), 1)[:, :0]

    @spelled
    def flatnonzero(self, a: Array, /) -> Array:
        """The positions of what is not 0 in the flattened array (in this process)."""
        return self.nonzero(self.ravel(a))[0]

    @spelled
    def compress(self, condition: Array, /, a: Any, axis: Optional[int] = None, out: Any = None) -> Array:
        """The parts along an axis for which the condition holds (in this process)."""
        if condition.ndim != 1:
            raise ValueError("compress: the condition has one axis")
        return self.take(self._taken(a), self.nonzero(condition)[0], axis)

    @spelled
    def extract(self, condition: Array, /, arr: Any) -> Array:
        """The elements for which the condition holds (in this process)."""
        return self.take(self.ravel(arr), self.flatnonzero(condition), 0)

    def select(self, condlist: Any, choicelist: Any, default: Any = 0) -> Any:
        """Of the first condition that holds, its choice."""
        if len(condlist) != len(choicelist) or not len(condlist):
            raise ValueError(f"select: {len(condlist)} conditions, and {len(choicelist)} choices: as many are wanted, and one or more")
        conditions = [self._taken(c) for c in condlist]
        if any(c.dtype != dt.BOOL for c in conditions):
            raise TypeError("select: conditions are arrays of bools")
        *choices, last = self._beside(*choicelist, default)
        t = dt.result_type([n.dtype for n in (*choices, last)], [])
        r: Any = self._wrap(self._cast(last, t))
        for c, x in zip(conditions[::-1], choices[::-1]):
            r = self.where(c, self._wrap(self._cast(x, t)), r)
        return r

    def piecewise(self, x: Any, condlist: Any, funclist: Any, *args: Any, **more: Any) -> Array:
        """Of the last condition that holds, its function of those elements (in this process), or its number."""
        x = self._taken(x)
        one = not isinstance(condlist, (list, tuple)) or not isinstance(condlist[0], (list, tuple, Array, np.ndarray)) and x.ndim
        conditions = [self.astype(self._taken(c), dt.BOOL) for c in ([condlist] if one else condlist)]
        if len(funclist) not in (len(conditions), len(conditions) + 1):
            raise ValueError(f"piecewise: {len(conditions)} conditions, and {len(funclist)} functions: as many are wanted, or one more")
        if len(funclist) == len(conditions) + 1:
            anywhere = conditions[0]
            for c in conditions[1:]:
                anywhere = self.logical_or(anywhere, c)
            conditions.append(self.logical_not(anywhere))
        r: Array = self.zeros_like(x)
        for c, f in zip(conditions, funclist):
            if not callable(f):
                r[c] = f
            elif (part := x[c]).size:
                r[c] = f(part, *args, **more)
        return r

    def put(self, a: Array, ind: Any, v: Any, mode: str = "raise") -> None:
        """a.flat[ind] = v (in this process)."""
        self._changing("put", np.put, a, ind, v, mode)

    def place(self, arr: Array, mask: Any, vals: Any) -> None:
        """Writes the values, one after the other, where the mask holds (in this process)."""
        self._changing("place", np.place, arr, mask, vals)

    def putmask(self, a: Array, mask: Any, values: Any) -> None:
        """Writes values where the mask holds."""
        values = self._taken(values)
        if self.size(mask) != a.size:
            raise ValueError(f"putmask: a mask of {self.size(mask)} elements for an array of {a.size}")
        if values.shape not in ((), (1,), a.shape):
            self._changing("putmask", np.putmask, a, mask, values)
            return
        a[...] = self.astype(self.where(mask, values, a), a.dtype)

    def put_along_axis(self, arr: Array, indices: Any, values: Any, axis: Optional[int] = -1) -> None:
        """Writes to positions that differ from row to row (in this process)."""
        self._changing("put_along_axis", np.put_along_axis, arr, indices, values, axis)

    def fill_diagonal(self, a: Array, val: Any, wrap: bool = False) -> None:
        """Writes to the diagonal."""
        if a.ndim == 2 and not np.ndim(val) and not wrap:
            a[...] = self.astype(self.where(self.eye(a.shape[0], a.shape[1], 0, dt.BOOL), val, a), a.dtype)
        else:
            self._changing("fill_diagonal", np.fill_diagonal, a, val, wrap)

    # --- sums and what is like them ---

    amax = Shapes.max
    amin = Shapes.min

    @spelled
    def ptp(self, a: Array, /, axis: Any = None, out: Any = None, keepdims: bool = False) -> Array:
        """The greatest element less the least."""
        return self.max(a, axis, keepdims=keepdims) - self.min(a, axis, keepdims=keepdims)

    @spelled
    def cumsum(self, a: Array, /, axis: Optional[int] = None, dtype: Any = None, out: Any = None) -> Array:
        """Sums up to each element; without an axis, of the flattened array."""
        return self.cumulative_sum(self.ravel(a) if axis is None else a, axis=0 if axis is None else axis, dtype=dtype)

    @spelled
    def cumprod(self, a: Array, /, axis: Optional[int] = None, dtype: Any = None, out: Any = None) -> Array:
        """Products up to each element; without an axis, of the flattened array."""
        return self.cumulative_prod(self.ravel(a) if axis is None else a, axis=0 if axis is None else axis, dtype=dtype)

    def _without_nan(self, a: Any, instead: int) -> Array:
        x = self._taken(a)
        return self.where(self.isnan(x), instead, x) if dt.is_floating(x.dtype) else x

    def nancumsum(self, a: Any, axis: Optional[int] = None, dtype: Any = None, out: Any = None) -> Array:
        """cumsum, with 0 for NaN."""
        return self.cumsum(self._without_nan(a, 0), axis, dtype, out)

    def nancumprod(self, a: Any, axis: Optional[int] = None, dtype: Any = None, out: Any = None) -> Array:
        """cumprod, with 1 for NaN."""
        return self.cumprod(self._without_nan(a, 1), axis, dtype, out)

    def nanprod(self, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, **more: Any) -> Array:
        """The product of what is not NaN."""
        return self.prod(self._without_nan(a, 1), axis, dtype, out, keepdims, **more)

    @spelled
    def nanargmax(self, a: Array, /, axis: Optional[int] = None, out: Any = None, *, keepdims: bool = False) -> Array:
        """argmax of what is not NaN; whether there is any is waited for."""
        return self.argmax(self._some(a, axis, -math.inf), axis, keepdims=keepdims)

    @spelled
    def nanargmin(self, a: Array, /, axis: Optional[int] = None, out: Any = None, *, keepdims: bool = False) -> Array:
        """argmin of what is not NaN; whether there is any is waited for."""
        return self.argmin(self._some(a, axis, math.inf), axis, keepdims=keepdims)

    def _some(self, a: Array, axis: Optional[int], instead: float) -> Array:
        if not dt.is_real_floating(a.dtype):
            return a
        nan = self.isnan(a)
        if a.size and builtins.bool(self.any(self.all(nan, axis))):
            raise ValueError("All-NaN slice encountered")
        return self.where(nan, instead, a)  # type: ignore[no-any-return]

    @spelled
    def average(self, a: Array, /, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
        """The mean, with weights."""
        if weights is None:
            r = self.mean(a, axis, keepdims=keepdims)
            count = a.size // builtins.max(r.size, 1)
            return (r, self.full(r.shape, count, r.dtype)) if returned else r
        w = self._taken(weights)
        known, along = w._node.value, axis
        if w.shape != a.shape:
            if axis is None:
                raise TypeError("Axis must be specified when shapes of a and weights differ.")
            axes, along = self._axes(axis, a.ndim), None
            if w.shape != tuple(a.shape[k] for k in axes):
                raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
            w = self.permute_dims(w, tuple(int(k) for k in np.argsort(axes))).reshape(tuple(n if k in axes else 1 for k, n in enumerate(a.shape)))
        t = dt.promote(a.dtype, w.dtype)
        t = t if dt.is_floating(a.dtype) else dt.promote(t, dt.FLOAT64)
        total = self.sum(w, axis, t, keepdims=keepdims)
        if known is not None and not np.sum(dt.plain(known), tuple(self._axes(along, known.ndim))).all():
            raise ZeroDivisionError("average: weights sum to 0")
        r = self.sum(self.multiply(self.astype(a, t, copy=False), w), axis, t, keepdims=keepdims) / total
        return (r, self._copied(self.broadcast_to(total, r.shape))) if returned else r

    @spelled
    def trapezoid(self, y: Array, /, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
        """The integral along an axis, by the trapezoidal rule."""
        k = self._axis(axis, y.ndim)
        step: Any = dx
        if x is not None:
            step = self.diff(x, axis=-1 if self.ndim(x) == 1 else axis)
            if step.ndim == 1:
                step = step.reshape((-1,) + (1,) * (y.ndim - k - 1))
        front = (slice(None),) * k
        return self.sum(step * (y[(*front, slice(1, None))] + y[(*front, slice(0, -1))]) / 2.0, axis)

    trapz = trapezoid


def _owner(x: Array) -> Array:
    """What has the memory."""
    while x._view is not None:
        x = x._view.parent
    return x
