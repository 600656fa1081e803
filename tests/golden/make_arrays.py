#!/usr/bin/env python3
"""Makes the golden tables of functions on whole arrays, arrays.bin: what an expression must give.

Run by hand when a function is added (needs numpy >= 2); the result is committed, so that tests need
none of it:  python3 make_arrays.py arrays.bin

Format: records of one text line and raw little-endian bytes, C order, behind it:
  arrays 1
  array <name> <dtype> <rank> <extents…>            an operand of the expressions behind it
  expr <dtype> <ulps> <rank> <extents…> <text>      the result; ulps 0: the same bits, any NaN is any NaN
  end
bfloat16 is only moved about here, as its 16 bits."""

import sys

import numpy as np

DTYPES = ("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
          " complex64 complex128").split()
rng = np.random.default_rng(20)
out = open(sys.argv[1], "wb")


def put(line, a=None):
    out.write(line.encode() + b"\n" + (b"" if a is None else np.ascontiguousarray(a).tobytes()))


def put_array(name, dtype, a):
    put(" ".join(["array", name, dtype, str(a.ndim), *map(str, a.shape)]), a)


def put_expr(text, dtype, a, ulps=0):
    a = np.asarray(a)
    assert dtype == "bfloat16" or a.dtype == dtype, (text, a.dtype, dtype)
    put(" ".join(["expr", dtype, str(ulps), str(a.ndim), *map(str, a.shape), text]), a)


def made(dtype, *shape):
    """Elements of all kinds, the extremes and NaN among them."""
    n = int(np.prod(shape))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == "bfloat16":
        return rng.integers(0, 1 << 16, shape).astype("uint16")
    t = np.dtype(dtype)
    if t.kind in "iu":
        info = np.iinfo(t)
        a = rng.integers(info.min, info.max, n, dtype=t, endpoint=True)
        a[:3] = info.min, info.max, 0
    else:
        real = t.type(0).real.dtype
        a = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)).astype(real)
        a[:5] = np.nan, np.inf, -np.inf, -0.0, np.finfo(real).tiny
        if t.kind == "c":
            a = (a + 1j * rng.permutation(a)).astype(t)
    return rng.permutation(a).reshape(shape)


def moved(a, b, v, i, j):
    """Functions that only put elements elsewhere: the same bits for every type."""
    yield "flip(a)", np.flip(a)
    yield "flip(b, [0, -1])", np.flip(b, (0, 2))
    yield "permute_dims(b, [2, 0, 1])", b.transpose(2, 0, 1)
    yield "expand_dims(a, [0, -1])", a[None, ..., None]
    yield "squeeze(a[:1], 0)", a[0]
    yield "broadcast_to(a[:, :1], [2, 4, 3])", np.broadcast_to(a[:, :1], (2, 4, 3))
    yield "roll(b, 3)", np.roll(b, 3)
    yield "roll(b, [1, -2], [0, 2])", np.roll(b, (1, -2), (0, 2))
    yield "tril(a)", np.tril(a)
    yield "triu(b, 1)", np.triu(b, 1)
    yield "reshape(a, [2, 10])", a.reshape(2, 10)
    yield "reshape(permute_dims(b, [1, 2, 0]), [-1, 4])", b.transpose(1, 2, 0).reshape(-1, 4)
    yield "concat([a, flip(a), a[:1]])", np.concatenate([a, np.flip(a), a[:1]])
    yield "concat([a, v], axis=None)", np.concatenate([a, v], None)
    yield "stack([a, flip(a, 0)], 1)", np.stack([a, np.flip(a, 0)], 1)
    yield "repeat(b, 2, 1)", np.repeat(b, 2, 1)
    yield "repeat(a, 3)", np.repeat(a, 3)
    yield "repeat(v, [2, 0, 1, 0, 0, 3, 1])", np.repeat(v, [2, 0, 1, 0, 0, 3, 1])
    yield "tile(a, [2, 1, 3])", np.tile(a, (2, 1, 3))
    yield "take(a, i, axis=0)", np.take(a, i, 0)
    yield "take(flip(b), i, 2)", np.take(np.flip(b), i, 2)
    yield "take(v, [4, 1, -2, 1])", v[[4, 1, -2, 1]]
    yield "take(v, i*9, mode='clip')", np.take(v, i * 9, mode="clip")
    yield "take(v, i*9, mode='wrap')", np.take(v, i * 9, mode="wrap")
    yield "take_along_axis(a, j, 1)", np.take_along_axis(a, j, 1)
    yield "take_along_axis(permute_dims(a, [1, 0]), permute_dims(j, [1, 0]), 0)", np.take_along_axis(a.T, j.T, 0)


def correlated(x, weights, mode):
    w = np.array(weights)
    p = np.pad(x, [(n // 2, n - 1 - n // 2) for n in w.shape], mode={"clamp": "edge"}.get(mode, mode))
    total = None
    for at in np.ndindex(w.shape):
        if w[at]:
            term = weights[at[0]][at[1]] * p[tuple(slice(o, o + n) for o, n in zip(at, x.shape))]
            total = term if total is None else total + term
    return total


def computed(x):
    yield "gradient(x, 0)", np.gradient(x, axis=0)
    yield "gradient(x, 1, 0.5)", np.gradient(x, 0.5, axis=1)
    if x.dtype != bool:
        for mode in ("wrap", "clamp", "reflect", "symmetric", "constant"):
            yield f"correlate(x, [[1, 2, 3], [0, 4, 0]], '{mode}')", correlated(x, [[1, 2, 3], [0, 4, 0]], mode)


def mix(a, b, w):
    return np.where(w == 0, a, np.where(w == 1, b, a * (1 - w) + b * w))


def sampled(x, p, nearest):
    """boundary clamp; in the type of x, integers in float64."""
    t = x.dtype if x.dtype.kind in "fc" else np.dtype("float64")
    x = x.astype(np.float32 if t == "float16" else t)
    if nearest:
        p = np.floor(p) + (p - np.floor(p) >= 0.5)
    c = [np.clip(p[:, k], 0, n - 1) for k, n in enumerate(x.shape)]
    lo = [np.nan_to_num(np.floor(k)).astype(int) for k in c]
    if nearest:
        got = x[tuple(lo)].copy()
        got[np.isnan(p).any(axis=1)] = np.nan
        return got.astype(t)
    hi = [np.minimum(k + 1, n - 1) for k, n in zip(lo, x.shape)]
    w = [(k - np.floor(k)).astype(x.dtype.type(0).real.dtype) for k in c]
    rows = [mix(x[r, lo[1]], x[r, hi[1]], w[1]) for r in (lo[0], hi[0])]
    return mix(rows[0], rows[1], w[0]).astype(t)


np.seterr(all="ignore")
put("arrays 1")
i = rng.integers(-4, 4, (2, 3)).astype("int16")
j = rng.integers(-5, 5, (4, 2))
points = rng.uniform(-2, 8, (40, 2))
points[:12] = np.round(points[:12])
points[12:16] = [[np.nan, 1], [0, np.nan], [np.inf, 2.5], [0.49999999999999994, -np.inf]]
put_array("i", "int16", i)
put_array("j", "int64", j)
put_array("p", "float64", points)
for dtype in DTYPES:
    a, b, v = made(dtype, 4, 5), made(dtype, 2, 3, 4), made(dtype, 7)
    for name, x in zip("abv", (a, b, v)):
        put_array(name, dtype, x)
    for text, want in moved(a, b, v, i, j):
        put_expr(text, dtype, want)
    if dtype == "bfloat16":
        continue
    x = rng.integers(0, 100, (6, 5)).astype(dtype)
    if np.dtype(dtype).kind == "c":
        x = (x + 1j * rng.integers(-9, 9, x.shape)).astype(dtype)
    put_array("x", dtype, x)
    if dtype != "bool":
        for text, want in computed(x):
            put_expr(text, str(want.dtype), want, 4)
    for method in ("linear", "nearest"):
        want = sampled(x, points, method == "nearest")
        put_expr(f"sample(x, p, '{method}')", str(want.dtype), want, 0 if method == "nearest" else 4)
put("end")
