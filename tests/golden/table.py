"""The output file of make_arrays.py, its records, and numbers to fill arrays with."""

import numpy as np
from common import BF16, COMPLEX, DT, INTS

out = None  # the file being written, set by open_table
rng = np.random.default_rng(20)


def open_table(path):
    global out
    out = open(path, "wb")
    put("arrays 2")


def put(line, a=None):
    out.write(line.encode() + b"\n" + (b"" if a is None else np.ascontiguousarray(a).tobytes()))


def extents(a):
    return " ".join(map(str, [a.ndim, *a.shape]))


def put_array(name, dtype, a):
    assert a.dtype == DT[dtype], (name, a.dtype)
    put(f"array {name} {dtype} {extents(a)}", a)


def put_grid(name, dtype, a, ghost, spacing, faces):
    """faces: [low, high] an axis, each (type, value)."""
    ends = " ".join(f"{t} {complex(v).real!r} {complex(v).imag!r}" for pair in faces for t, v in pair)
    put(f"grid {name} {dtype} {extents(a)} {' '.join(map(str, ghost))} {' '.join(map(repr, spacing))} {ends}", a)


def put_expr(text, dtype, a, ulps=0):
    a = np.asarray(a)
    assert a.dtype == DT[dtype], (text, a.dtype, dtype)
    put(f"expr {dtype} {ulps} {extents(a)} {text}", a)


def put_error(text, code):
    put(f"error {code} {text}")


def name_of(t):
    return "bfloat16" if t == BF16 else str(np.dtype(t))


def made(dtype, *shape):
    """Elements of all kinds, the extremes and NaN among them."""
    n = int(np.prod(shape))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == "bfloat16":
        return rng.integers(0, 1 << 16, shape).astype("uint16").view(BF16)
    t = DT[dtype]
    if dtype in INTS:
        info = np.iinfo(t)
        a = rng.integers(info.min, info.max, n, dtype=t, endpoint=True)
        a[:3] = info.min, info.max, 0
    else:
        real = t.type(0).real.dtype
        a = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)).astype(real)
        a[:5] = np.nan, np.inf, -np.inf, -0.0, np.finfo(real).tiny
        if dtype in COMPLEX:
            a = (a + 1j * rng.permutation(a)).astype(t)
    return rng.permutation(a).reshape(shape)


def whole(dtype, low, high, *shape):
    """Whole numbers of [low, high), unsigned ones from 0; exact in every type that has them."""
    a = rng.integers(0 if dtype[0] == "u" else low, high, shape)
    if dtype == "bool":
        return a % 2 == 1
    return (a + 1j * rng.integers(low, high, shape) if dtype in COMPLEX else a).astype(DT[dtype])


def wide(a):
    """The same values in a type that loses nothing to speak of when it computes with them."""
    if a.dtype.kind == "c":
        return a.astype(np.clongdouble)
    return a.astype(np.float64).astype(np.longdouble)


def saturated(x, t):
    """astype as the contract has it: to integers it truncates and saturates, and NaN is 0."""
    if t.kind not in "iu" or x.dtype.kind != "f":
        return x.astype(t)
    info = np.iinfo(t)
    x = np.trunc(np.nan_to_num(x, nan=0, posinf=np.inf, neginf=-np.inf))
    low, high = x <= info.min, x >= info.max
    got = np.where(low | high, 0, x).astype(t)
    got[low], got[high] = info.min, info.max
    return got
