"""Reductions and scans: what NumPy gives when it computes in extended precision, rounded once.

A sum or a product of 60 numbers is right to a few units; var subtracts a mean that is rounded."""

import math

import numpy as np
from common import COMPLEX, DT, FLOATS, INTS
from mpmath import mp
from table import name_of, put_array, put_error, put_expr, rng, wide, whole

AXES = [None, 0, 1, -1, (0, 2), (1, 2), (0, 1, -1), ()]
NAMES = "sum prod mean min max any all count_nonzero var std norm argmax argmin".split()
NAN_NAMES = "nansum nanmean nanmin nanmax nanvar nanstd".split()
ORDERED = ("min", "max", "argmin", "argmax", "nanmin", "nanmax")
REAL = ORDERED + ("logsumexp",)
ULPS = {"sum": 2, "mean": 2, "prod": 24, "var": 16, "std": 16, "norm": 4, "logsumexp": 16}  # which is cancelled where it is near 0


def sum_type(t):
    return np.dtype({"b": "int64", "i": "int64", "u": "uint64"}.get(t.kind, t))


def float_type(t):
    return t if name_of(t) in FLOATS + COMPLEX else np.dtype("float64")


def real_type(t):
    return np.dtype({"c8": "float32", "c16": "float64"}.get(t.str[1:], float_type(t)))


def as_float(x):
    """Integers become float64 before they are added."""
    return wide(x.astype(float_type(x.dtype)))


def as_rows(x, axis):
    """The reduced axes as one, the last, in C order."""
    axes = range(x.ndim) if axis is None else np.atleast_1d(np.array(axis, int)) % x.ndim
    kept = [k for k in range(x.ndim) if k not in axes]
    rows = x.transpose(kept + sorted(axes)).reshape([x.shape[k] for k in kept] + [math.prod(x.shape[k] for k in axes)])
    return rows, [1 if k in axes else n for k, n in enumerate(x.shape)]


def order(f, x, axis, keepdims):
    """argmin and argmax over several axes: those as one, in C order; bfloat16 by its float32."""
    rows, shape = as_rows(x.astype("float32") if x.dtype == DT["bfloat16"] else x, axis)
    got = f(rows, axis=-1)
    return got.reshape(shape) if keepdims else got


def count(x, axis):
    return x.size if axis is None else math.prod(x.shape[k] for k in np.atleast_1d(np.array(axis, int)))


def without_nan(name, x, axis, keepdims, correction):
    """Each row without its NaN; of one that has nothing else what is not a number, but the sum 0."""
    rows, shape = as_rows(x, axis)
    flat = rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])
    flat = [row[~np.isnan(row.astype("float32") if row.dtype == DT["bfloat16"] else row)] for row in flat]
    got = [np.array(np.nan, x.dtype) if row.size == 0 and name in ORDERED else reduced(name, row, correction=correction) for row in flat]
    dtype = reduced(name, np.ones(1, x.dtype)).dtype
    return np.array(got, dtype).reshape(shape if keepdims else rows.shape[:-1])


def logsumexp(x, axis, keepdims):
    x = as_float(x)
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis)


def reduced(name, x, axis=None, keepdims=False, correction=0):
    t, kw = x.dtype, {"axis": axis, "keepdims": keepdims}
    if name == "logsumexp":
        return np.asarray(logsumexp(x, axis, keepdims)).astype(float_type(t))
    if name in NAN_NAMES:
        return without_nan(name[3:], x, axis, keepdims, correction)
    if name in ("sum", "prod"):
        f, r = getattr(np, name), sum_type(t)
        return f(x, dtype=r, **kw) if r.kind in "iu" else np.asarray(f(wide(x), **kw)).astype(t)
    if name == "mean":
        total, n = np.sum(as_float(x), **kw), count(x, axis)
        parts = [np.divide(p(total), n) for p in (np.real, np.imag)]  # divided by a real number
        return np.asarray(parts[0] + 1j * parts[1] if t.kind == "c" else parts[0]).astype(float_type(t))
    if name in ("min", "max"):
        f, narrow = getattr(np, name), x.astype("float32") if t == DT["bfloat16"] else x
        return np.asarray(f(narrow, **kw)).astype(t)
    if name in ("any", "all"):
        return getattr(np, name)(x != 0, **kw)
    if name == "count_nonzero":
        return np.sum(x != 0, dtype="int64", **kw)
    if name in ("argmax", "argmin"):
        return np.asarray(order(getattr(np, name), x, axis, keepdims)).astype("int64")
    f = as_float(x)
    if name == "norm":
        return np.asarray(np.sqrt(np.sum(np.abs(f) ** 2, **kw))).astype(real_type(t))
    far = np.abs(f - np.divide(np.sum(f, axis=axis, keepdims=True), count(x, axis))) ** 2
    total = np.sum(far, **kw)
    n = count(x, axis)
    got = total / (n - correction) if n > correction else np.full_like(total, np.nan)
    return np.asarray(np.sqrt(got) if name == "std" else got).astype(real_type(t))


def spelled(axis):
    return str(list(axis)) if isinstance(axis, tuple) else str(axis)


def put_reduced(name, operand, x, axis=None, keepdims=False, correction=0):
    """operand: the array's name or an expression of it that has the elements x."""
    text = f"{name}({operand}" + (f", axis={spelled(axis)}" if axis is not None else "")
    text += (", keepdims=True" if keepdims else "") + (f", correction={correction}" if correction else "") + ")"
    if name in REAL and x.dtype.kind == "c":
        return put_error(text, "dtype_mismatch")
    axes = range(x.ndim) if axis is None else np.atleast_1d(np.array(axis, int))
    empty = any(x.shape[k] == 0 for k in axes) and 0 not in [n for k, n in enumerate(x.shape) if k not in axes]
    if empty and name in ORDERED:
        return put_error(text, "empty_reduction")
    want = np.asarray(reduced(name, x, axis, keepdims, correction))
    plain = name.removeprefix("nan")
    exact = want.dtype.kind in "biu" or plain in ("min", "max")
    return put_expr(text, name_of(want.dtype), want, 0 if exact else ULPS[plain])


def spread(dtype, *shape):
    """Numbers of both signs whose sums are exact, whatever the order, and whose products stay in
    range."""
    if dtype == "bool" or dtype in INTS:
        return whole(dtype, -9, 10, *shape)
    a, b = (rng.integers(16, 128, shape) * rng.choice([-1, 1], shape) / 64 for _ in range(2))
    return (a + 1j * b if dtype in COMPLEX else a).astype(DT[dtype])


def rows(dtype):
    """Ties, NaN, infinities, the least and greatest integers, nothing but zeros."""
    if dtype == "bool":
        return np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1], [1, 0, 1, 0]], bool)
    if dtype in INTS:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return np.array([[low] * 4, [high] * 4, [low, high, low, high], [0] * 4, [3, 7, 7, 3]], dtype)
    inf, nan = np.inf, np.nan
    a = np.array([[1, nan, 2, nan], [inf, 1, inf, 2], [-inf, 1, -inf, 2], [inf, -inf, 1, 2], [-inf] * 4,
                  [0] * 4, [2, 5, 5, 2], [nan, -inf, inf, 1]])
    if dtype in COMPLEX:  # products of infinities depend on their order
        a = np.array([[1, nan, 2, 3], [0] * 4, [2j, 5, 5, 2j], [1 - 2j, 3, 1j, -1]])
    return a.astype(DT[dtype])


def put_scans(dtype, x, e):
    for name, f in (("sum", np.cumsum), ("prod", np.cumprod)):
        r = sum_type(x.dtype)
        for operand, a, axis in (("r", x, 0), ("r", x, 1), ("r", x, -1), ("e", e, 1), ("r[0, 0]", x[0, 0], None),
                                 ("r[:, :0]", x[:, :0], 1), ("r[:0]", x[:0], 2), ("r[:, 1:2]", x[:, 1:2], 1)):
            want = f(a, axis, dtype=r) if r.kind in "iu" else f(wide(a), axis).astype(r)
            text = f"cumulative_{name}({operand}" + (f", {axis})" if axis is not None else ")")
            put_expr(text, name_of(r), want, 0 if r.kind in "iu" else 4)


def put_dots(dtype, x, e):
    for text, a, b in (("r[0, 0], r[1, 2]", x[0, 0], x[1, 2]), ("r[:, 0, 0], r[::-1, 2, 1]", x[:, 0, 0], x[::-1, 2, 1]),
                       ("r[0, 0, :0], r[0, 1, :0]", x[0, 0, :0], x[0, 1, :0]), ("e[0], r[0, 1, :4]", e[0], x[0, 1, :4])):
        r = sum_type(x.dtype)
        a, b = (k.astype(r) if r.kind in "iu" else wide(k) for k in (a, b))
        put_expr(f"dot({text})", name_of(r), np.asarray(np.sum(a * b)).astype(r), 0 if r.kind in "iu" else 4)


def put_far_products(dtype):
    """Factors of all magnitudes: parts of them have products far outside the type's range, the whole
    of them, and of each row, does not."""
    if dtype not in ("float32", "float64"):
        return
    reach = 900 if dtype == "float64" else 110
    exponent = rng.integers(-reach // 2, reach // 2 + 1, (70, 4))
    exponent[:35] = np.abs(exponent[:35])
    exponent[35:] = -exponent[:35]
    exponent[:, 3] -= exponent.sum(1) // 2  # a row's does not go far
    x = np.ldexp(rng.uniform(0.5, 1, (70, 4)) * rng.choice([-1, 1], (70, 4)), exponent)
    x[35:] = np.copysign(2 - np.abs(x[35:] / 2.0 ** exponent[35:]), x[35:]) * 2.0 ** exponent[35:]
    if dtype == "float64":  # beside the least number there is
        x[40:43, 0] = 5e-324
        x[60:70, 0] *= 2.0 ** -np.round(np.log2(np.abs(x[:, 0])).sum() / 10)
        x[60:70, 2] *= 2.0 ** -np.round(np.log2(np.abs(x[:, 2])).sum() / 10)
    x = x.astype(dtype)
    put_array("w", dtype, x)
    for text, a, axis in (("w", x, None), ("w[::-1]", x[::-1], None), ("w", x, 1), ("w", x, 0), ("w[20:60]", x[20:60], None),
                          ("w[:, ::-1]", x[:, ::-1], 0), ("w[3:9]", x[3:9], 1)):
        rows = a.reshape(1, -1) if axis is None else np.moveaxis(a, axis, -1)
        want = np.array([float(mp.fprod(map(float, row))) for row in rows]).astype(dtype)
        want = want[0] if axis is None else want
        put_expr(f"prod({text}" + (f", {axis})" if axis is not None else ")"), dtype, want, 24)


def put_reductions(dtype):
    x, e = spread(dtype, 3, 3, 5), rows(dtype)
    put_array("r", dtype, x)
    put_array("e", dtype, e)
    for name in NAMES + NAN_NAMES + ["logsumexp"]:
        for axis in AXES:
            put_reduced(name, "r", x, axis)
        for axis in (None, 1, (0, 2)):
            put_reduced(name, "r", x, axis, keepdims=True)
        put_reduced(name, "e", e, 1)
        if name not in NAMES:
            put_reduced(name, "e", e, 0)
            if dtype not in INTS:  # whose greatest and least, in float64, leave nothing of the rest
                put_reduced(name, "e", e, keepdims=True)
        put_reduced(name, "r[:0]", x[:0])
        put_reduced(name, "r[:, :0]", x[:, :0], 1)
        put_reduced(name, "r[:, :0]", x[:, :0], 0, keepdims=True)
        put_reduced(name, "r[:, 1:2, 2:3]", x[:, 1:2, 2:3], 1)
        put_reduced(name, "r[:, 1:2, 2:3]", x[:, 1:2, 2:3], (1, 2))
        put_reduced(name, "r[1, 2, 3]", np.asarray(x[1, 2, 3]))
        if name in ("var", "std", "nanvar", "nanstd"):
            for axis, correction in ((None, 1), (2, 1), ((0, 1), 0.5), (0, 3), (1, 7)):
                put_reduced(name, "r", x, axis, correction=correction)
    put_scans(dtype, x, e)
    put_dots(dtype, x, e)
    put_far_products(dtype)
