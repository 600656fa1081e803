"""Rearranging, joining, taking and sampling against NumPy, on the CPU backend and on the fake GPU."""
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from client import NPY, NUMPY_DTYPES, OCTETS, npy_bytes

RNG = np.random.default_rng(4)
MODES = ("clamp", "wrap", "reflect", "symmetric")


def made(shape, dtype, rng=RNG):
    x = rng.integers(0, 100, shape)
    if np.dtype(dtype).kind in "if":
        x = x - 50
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.integers(-9, 9, shape)
    return (x % 3 == 0 if dtype == "bool" else x).astype(dtype)


# What a function is in NumPy: of a (4, 5), b (2, 3, 4), v (7,), all of one dtype; i (2, 3) in −4…3, j (4, 2) in 0…4.
EXACT = {
    "flip(a)": lambda a, b, v, i, j: np.flip(a),
    "flip(b, [0, -1])": lambda a, b, v, i, j: np.flip(b, (0, 2)),
    "permute_dims(b, [2, 0, -2])": lambda a, b, v, i, j: b.transpose(2, 0, 1),
    "expand_dims(a, [0, -1])": lambda a, b, v, i, j: a[None, ..., None],
    "expand_dims(v)": lambda a, b, v, i, j: v[None],
    "squeeze(a[:1], 0)": lambda a, b, v, i, j: a[0],
    "broadcast_to(a[:, :1], [2, 4, 3])": lambda a, b, v, i, j: np.broadcast_to(a[:, :1], (2, 4, 3)),
    "roll(b, 3)": lambda a, b, v, i, j: np.roll(b, 3),
    "roll(b, [1, -2], [0, 2])": lambda a, b, v, i, j: np.roll(b, (1, -2), (0, 2)),
    "roll(b, 9, (1, -1))": lambda a, b, v, i, j: np.roll(b, 9, (1, -1)),
    "roll(v, [3, 5], 0)": lambda a, b, v, i, j: np.roll(v, 8),
    "tril(a)": lambda a, b, v, i, j: np.tril(a),
    "triu(b, -1)": lambda a, b, v, i, j: np.triu(b, -1),
    "triu(a, k=2)": lambda a, b, v, i, j: np.triu(a, 2),
    "reshape(a, [2, -1])": lambda a, b, v, i, j: a.reshape(2, -1),
    "reshape(permute_dims(a, [1, 0]), 20)": lambda a, b, v, i, j: a.T.reshape(20),
    "reshape(b[:, ::-1], [4, 6])": lambda a, b, v, i, j: b[:, ::-1].reshape(4, 6),
    "reshape(reshape(flip(b), [-1]), [3, 8])[1]": lambda a, b, v, i, j: np.flip(b).reshape(3, 8)[1],
    "sliding_windows(v, 3)": lambda a, b, v, i, j: sliding_window_view(v, 3),
    "sliding_windows(a, [2, 3])": lambda a, b, v, i, j: sliding_window_view(a, (2, 3)),
    "sliding_windows(flip(b), [3, 2], [2, -2])": lambda a, b, v, i, j: sliding_window_view(np.flip(b), (3, 2), (2, 1)),
    "sliding_windows(b, (2, 3), (2, 2))": lambda a, b, v, i, j: sliding_window_view(b, (2, 3), (2, 2)),
    "sliding_windows(a + a, 2, 1)[1:, ::2]": lambda a, b, v, i, j: sliding_window_view(a + a, 2, 1)[1:, ::2],
    "sliding_windows(v[2:], 5)": lambda a, b, v, i, j: v[None, 2:],
    "concat([a, flip(a), a[:1]])": lambda a, b, v, i, j: np.concatenate([a, np.flip(a), a[:1]]),
    "concat((a, a[:, :0], a), axis=1)": lambda a, b, v, i, j: np.concatenate([a, a], 1),
    "concat([a, v], axis=None)": lambda a, b, v, i, j: np.concatenate([a, v], None),
    "concat([v[:0], v[7:]])": lambda a, b, v, i, j: v[:0],
    "stack([a, flip(a)], -1)": lambda a, b, v, i, j: np.stack([a, np.flip(a)], -1),
    "concat([stack([v, v]), stack([v, flip(v)])])[1:]": lambda a, b, v, i, j: np.stack([v, v, v[::-1]]),
    "repeat(a, 3, 0)": lambda a, b, v, i, j: np.repeat(a, 3, 0),
    "repeat(b, 2)": lambda a, b, v, i, j: np.repeat(b, 2),
    "repeat(v, [2, 0, 1, 0, 0, 3, 1])": lambda a, b, v, i, j: np.repeat(v, [2, 0, 1, 0, 0, 3, 1]),
    "tile(a, [2, 3])": lambda a, b, v, i, j: np.tile(a, (2, 3)),
    "tile(v, [2, 1, 3])": lambda a, b, v, i, j: np.tile(v, (2, 1, 3)),
    "tile(b, 2)[..., 1:]": lambda a, b, v, i, j: np.tile(b, 2)[..., 1:],
    "tile(a, 0)": lambda a, b, v, i, j: np.tile(a, 0),
    "take(a, i, axis=0)": lambda a, b, v, i, j: np.take(a, i, 0),
    "take(flip(b), i[0] + 1, -1)": lambda a, b, v, i, j: np.take(np.flip(b), i[0] + 1, -1) if (i[0] < 3).all() else None,
    "take(v, i)": lambda a, b, v, i, j: np.take(v, i),
    "take(v, 3)": lambda a, b, v, i, j: v[3],
    "take(a, -1, 1)": lambda a, b, v, i, j: a[:, -1],
    "take(a, [0, 2, -1], 1)": lambda a, b, v, i, j: a[:, [0, 2, -1]],
    "take(a, [4, 1, 2, 1], 1)": lambda a, b, v, i, j: a[:, [4, 1, 2, 1]],
    "take(a, [[0, 2], [3, 3]], 0)": lambda a, b, v, i, j: a[[[0, 2], [3, 3]]],
    "take(b, [2, 0, 1], 1)": lambda a, b, v, i, j: b[:, [2, 0, 1]],
    "take(v, [[[6, -7, 3], [0, 0, 1]]])": lambda a, b, v, i, j: v[[[[6, 0, 3], [0, 0, 1]]]],
    "take_along_axis(a, [[4], [-1], [0], [2]], 1)": lambda a, b, v, i, j: np.take_along_axis(a, np.array([[4], [-1], [0], [2]]), 1),
    "take_along_axis(a, [[3, 0, -4, 1, 1]], 0)": lambda a, b, v, i, j: np.take_along_axis(a, np.array([[3, 0, 0, 1, 1]]), 0),
    "repeat(a, [2, 0, 1, 4], 0)": lambda a, b, v, i, j: np.repeat(a, [2, 0, 1, 4], 0),
    "repeat(b, [0, 3, 1], axis=-2)": lambda a, b, v, i, j: np.repeat(b, [0, 3, 1], -2),
    "repeat(b + b, [5, 0], axis=0)": lambda a, b, v, i, j: np.repeat(b + b, [5, 0], 0),
    "repeat(v, [0, 0, 0, 0, 0, 0, 0])": lambda a, b, v, i, j: v[:0],
    "take(v, i*5, mode='clip')": lambda a, b, v, i, j: np.take(v, i * 5, mode="clip"),
    "take(v, i*5, mode='wrap')": lambda a, b, v, i, j: np.take(v, i * 5, mode="wrap"),
    "take_along_axis(a, j)": lambda a, b, v, i, j: np.take_along_axis(a, j, -1),
}


def store(api, x, name):
    reply = api.request("PUT", f"/v1/arrays/{name}", npy_bytes(x), content_type=NPY)
    assert reply.status in (200, 201), reply


def operands(dtype):
    rng = np.random.default_rng(7)
    return (made((4, 5), dtype, rng), made((2, 3, 4), dtype, rng), made(7, dtype, rng),
            rng.integers(-4, 3, (2, 3)).astype("int16"), rng.integers(0, 5, (4, 2)))


def upload(api, dtype):
    arrays = operands(dtype)
    for name, x in zip("abvij", arrays):
        store(api, x, name)
    return arrays


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_rearranging(api, dtype):
    arrays = upload(api, dtype)
    for expr, numpy in EXACT.items():
        got, want = api.evaluate(expr), numpy(*arrays)
        assert got.dtype == want.dtype, expr
        np.testing.assert_array_equal(got, want, err_msg=expr)


NESTED = {
    "sum(sliding_windows(a*2, [2, 2]), axis=[2, 3])": lambda a, b, v, i, j: sliding_window_view(a * 2, (2, 2)).sum((2, 3)),
    "max(sliding_windows(v, 4), axis=1) + min(v)": lambda a, b, v, i, j: sliding_window_view(v, 4).max(1) + v.min(),
    "reshape(sliding_windows(v*2, 3), -1)[2:]": lambda a, b, v, i, j: sliding_window_view(v * 2, 3).reshape(-1)[2:],
    "take(sliding_windows(v + 1, 2), i, 0)": lambda a, b, v, i, j: sliding_window_view(v + 1, 2)[i],
    "sliding_windows(sliding_windows(v, 3) + 1, 2, 0)":
        lambda a, b, v, i, j: sliding_window_view(sliding_window_view(v, 3) + 1, 2, 0),
    "shift(sliding_windows(a + 1, 2, 0), [1, 0, 1], 'clamp')":
        lambda a, b, v, i, j: sliding_window_view(a + 1, 2, 0)[[1, 2, 2]][..., [1, 1]],
    "sliding_windows(a*3, 2, 0)[:, :4] - sliding_windows(a*3, 2, 1)[:3]":
        lambda a, b, v, i, j: sliding_window_view(a * 3, 2, 0)[:, :4] - sliding_window_view(a * 3, 2, 1)[:3],
    "sum(reshape(a*2, [2, 10]), axis=1)": lambda a, b, v, i, j: (a * 2).reshape(2, 10).sum(1),
    "reshape(sum(b, axis=0), [6, 2])*2 + 1": lambda a, b, v, i, j: b.sum(0).reshape(6, 2) * 2 + 1,
    "roll(a + 1, 1) - a": lambda a, b, v, i, j: np.roll(a + 1, 1) - a,
    "shift(concat([v, v*v]), [3], 'wrap')": lambda a, b, v, i, j: np.roll(np.concatenate([v, v * v]), -3),
    "sum(stack([a, a + 1], 1), axis=1)": lambda a, b, v, i, j: np.stack([a, a + 1], 1).sum(1),
    "concat([sum(b, axis=0), b[0]*2, maximum(b[0], b[1])])":
        lambda a, b, v, i, j: np.concatenate([b.sum(0), b[0] * 2, np.maximum(b[0], b[1])]),
    "concat([concat([v, v + 1]), sum(a, axis=1)])":
        lambda a, b, v, i, j: np.concatenate([v, v + 1, a.sum(1)]),
    "take(a*a, i, 1) + 1": lambda a, b, v, i, j: np.take(a * a, i, 1) + 1,
    "take(sum(a, axis=1), i)*2": lambda a, b, v, i, j: np.take(a.sum(1), i) * 2,
    "take(v, take(i, [1], 0))[0]": lambda a, b, v, i, j: v[i[1]],
    "tril(index(0)*10 + a)": lambda a, b, v, i, j: np.tril(np.arange(4)[:, None] * 10 + a),
    "flip(a + index(1), 1) + index(1)": lambda a, b, v, i, j: np.flip(a + np.arange(5), 1) + np.arange(5),
    "sum(tile(a + 1, [2, 2]), axis=0)": lambda a, b, v, i, j: np.tile(a + 1, (2, 2)).sum(0),
    "take(v, v - v + 2)": lambda a, b, v, i, j: np.full(7, v[2]),
    "repeat(take(a, i[0], 0), 2, 1)": lambda a, b, v, i, j: np.repeat(a[i[0]], 2, 1),
}


def test_nesting(api):
    arrays = upload(api, "int64")
    for expr, numpy in NESTED.items():
        np.testing.assert_array_equal(api.evaluate(expr), numpy(*arrays), err_msg=expr)


def test_nothing_to_turn(api):
    a = RNG.integers(0, 9, (3, 4))
    store(api, a, "a")
    for expr in ("roll(a, 1, axis=[])", "roll(a, [], axis=1)", "roll(a, [], axis=[])", "roll(a, [])", "flip(a, [])"):
        api.evaluate("roll(a, [1, 2], [1, 0])")
        np.testing.assert_array_equal(api.evaluate(expr), a, err_msg=expr)
    for expr in ("roll(a, [1, 2], axis=[])", "roll(a, [], axis=[0, 1])"):
        api.fails(422, "shape_mismatch", api.post("/v1/evaluate", {"expr": expr}))


def test_repetitions_in_the_highest_rank(api):
    """There is no room for an axis more, while they are made."""
    a = RNG.random((2,) + (1,) * 15 + (3,) + (1,) * 13 + (2, 2))
    store(api, a, "a")
    for axis in (0, 16, 31):
        np.testing.assert_array_equal(api.evaluate(f"repeat(a, 2, {axis})"), np.repeat(a, 2, axis))
    np.testing.assert_array_equal(api.evaluate("tile(a, [3, 1, 2])"), np.tile(a, (3, 1, 2)))
    np.testing.assert_array_equal(api.evaluate("tile(a[0], [2, 2, 2])"), np.tile(a[0], (2, 2, 2)))


def test_indices_of_a_large_result(api):
    """They are brought into range once, not once for each element."""
    a = RNG.integers(0, 1 << 30, (300, 301)).astype("int32")
    i = RNG.integers(-300, 300, (280,))
    store(api, a, "a")
    store(api, i, "i")
    np.testing.assert_array_equal(api.evaluate("take(a, i, 0)"), a[i])
    np.testing.assert_array_equal(api.evaluate("take(a + 1, i, 1, 'wrap')*2"), (a + 1)[:, i % 301] * 2)
    api.upload(np.array([2**64 - 1, 2**63, 5], "uint64"), name="far")
    want = (a + 1)[:, [(2**64 - 1) % 301, 2**63 % 301, 5]]
    np.testing.assert_array_equal(api.evaluate("take(a + 1, far, 1, 'wrap')"), want)
    np.testing.assert_array_equal(api.evaluate("take(a, [[5, 9], [-1, 7]], 1)[..., ::-1]"), a[:, [[5, 9], [-1, 7]]][..., ::-1])
    np.testing.assert_array_equal(api.evaluate("take(tile(a, 3), [7, 3, 5, 5], 0)"),
                                  np.tile(a, 3)[[7, 3, 5, 5]])
    explained = api.expect(200, api.post("/v1/explain", {"expr": "take(a, i, 0, 'clip')"})).json()
    assert [k["iteration"] for k in explained["kernels"]] == [[280], [280, 301]]


def test_promotion(api):
    upload(api, "int8")
    store(api, np.ones(3, "float32"), "f")
    assert api.evaluate("concat([v, f])").dtype == "float32"
    assert api.evaluate("concat([f, astype(v, 'int32')])").dtype == "float64"
    assert api.evaluate("stack([1, 2.5])").tolist() == [1, 2.5]
    assert api.evaluate("stack([f[0], 2.5])").dtype == "float32"


def test_gradient_and_correlate(api):
    a = RNG.standard_normal((6, 7))
    n = RNG.integers(-9, 9, (2, 5)).astype("int32")
    for x, dtype in ((a, "float64"), (a, "float32"), (n, "int32")):
        x = x.astype(dtype)
        store(api, x, "x")
        for axis in (0, 1):
            want = np.gradient(x, 0.5, axis=axis)
            got = api.evaluate(f"gradient(x, {axis}, 0.5)")
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
    weights = np.array([[1, 2, 3], [0, 0.5, -1]])
    for mode, pad in (("wrap", "wrap"), ("clamp", "edge"), ("reflect", "reflect"), ("symmetric", "symmetric"),
                      ("constant", "constant")):
        store(api, a, "x")
        p = np.pad(a, ((1, 0), (1, 1)), mode=pad)
        want = sum(weights[i, j] * p[i:i + 6, j:j + 7] for i in range(2) for j in range(3) if weights[i, j])
        np.testing.assert_allclose(api.evaluate(f"correlate(x, {weights.tolist()}, '{mode}')"), want, rtol=1e-12)
    a[2, 3] = np.nan
    store(api, a, "x")
    assert not np.isnan(api.evaluate("correlate(x, [[0, 0, 0], [1, 0, 1], [0, 0, 0]])")[2, 3])
    assert (api.evaluate("correlate(x, [[0]])") == 0).all()
    store(api, n, "n")
    assert api.evaluate("correlate(n, [[1, 1]])").dtype == "int32"
    assert api.evaluate("correlate(n, [[1, 0.0]])").dtype == "float64"


# sample, point by point

def brought_in(c, n, mode):
    if mode == "clamp":
        return np.clip(c, 0, n - 1)
    if mode == "wrap":
        return np.mod(c, n)
    if mode == "reflect":
        if n == 1:
            return c * 0
        c = np.mod(c, 2 * n - 2)
        return np.where(c > n - 1, 2 * n - 2 - c, c)
    c = np.mod(c, 2 * n)
    return np.clip(np.where(c > n - 0.5, 2 * n - 1 - c, c), 0, n - 1)


def mix(a, b, w):
    return a if w == 0 else b if w == 1 else a * (1 - w) + b * w


def sampled(x, points, mode, nearest):
    t = x.dtype if x.dtype.kind in "fc" else np.dtype("float64")
    calc = np.dtype("float32") if t == "float16" else t
    x, real = x.astype(calc), np.zeros(0, calc).real.dtype
    want = []
    for p in points:
        if nearest:
            p = np.floor(p) + (p - np.floor(p) >= 0.5)
        c = [float(brought_in(q, n, mode)) for q, n in zip(p, x.shape)]
        if any(q != q for q in c):
            want.append(np.nan)
            continue
        if nearest:
            want.append(x[tuple(int(q) for q in c)])
            continue
        cells, weights = [], []
        for q, n in zip(c, x.shape):
            lo = int(np.floor(q)) % n
            cells.append((lo, (lo + 1) % n if mode == "wrap" else min(lo + 1, n - 1)))
            weights.append(real.type(q - np.floor(q)))
        values = {k: x[tuple(cell[k >> a & 1] for a, cell in enumerate(cells))] for k in range(1 << x.ndim)}
        for a in reversed(range(x.ndim)):
            values = {k: mix(values[k], values[k | 1 << a], weights[a]) for k in range(1 << a)}
        want.append(values[0])
    return np.array(want).astype(t)


def points_for(shape, rng):
    p = rng.uniform(-9, 12, (200, len(shape)))
    p[:40] = rng.integers(-9, 12, (40, len(shape)))
    p[40:60] = rng.integers(-9, 12, (20, len(shape))) + 0.5
    p[60, 0], p[61, -1], p[62, 0], p[63, -1] = np.nan, np.nan, np.inf, -np.inf
    p[64:70, 0] = 1e300, -1e300, 2.0**53, -2.0**62, 1e-300, -1e-20
    p[70, :] = 0.49999999999999994
    return p


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("shape", [(5,), (1,), (4, 5), (1, 3), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_sample(api, mode, shape):
    rng = np.random.default_rng(len(shape))
    p = points_for(shape, rng)
    store(api, p, "p")
    for dtype in ("float32", "float64", "float16", "int32", "complex64"):
        x = made(shape, dtype, rng)
        store(api, x, "x")
        for nearest in (False, True):
            got = api.evaluate(f"sample(x, p, '{'nearest' if nearest else 'linear'}', boundary='{mode}')")
            want = sampled(x, p, mode, nearest)
            assert got.dtype == want.dtype
            if nearest:
                np.testing.assert_array_equal(got, want)
            else:
                np.testing.assert_allclose(got, want, rtol=1e-3 if dtype == "float16" else 1e-5, atol=1e-4)
                whole = (p == np.floor(p)).all(axis=1) & (abs(p) < 1e10).all(axis=1)
                np.testing.assert_array_equal(got[whole], want[whole])


def contracted(x, p, mode, value=0.0):
    """One point between the cells, axis by axis from the first."""
    for q in p:
        n = x.shape[0]
        if mode == "constant":
            x = np.concatenate([np.full((1, *x.shape[1:]), value), x, np.full((1, *x.shape[1:]), value)])
            q, n = np.clip(q, -1, n) + 1, n + 2
        c = float(brought_in(q, n, "clamp" if mode == "constant" else mode))
        if c != c:
            return np.nan
        lo = int(np.floor(c)) % n
        hi = (lo + 1) % n if mode == "wrap" else min(lo + 1, n - 1)
        x = mix(x[lo], x[hi], c - np.floor(c))
    return x


@pytest.mark.parametrize("shape", [(2, 3, 2, 3, 2), (1,) * 9 + (3, 1, 2), (3, 1, 2, 2, 2, 1, 3, 2), (2,) * 17, (1, 2) * 8 + (1,) * 16, (1,) * 32], ids=str)
def test_sample_of_many_axes(api, shape):
    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape)
    p = np.concatenate([rng.uniform(-2, 4, (12, len(shape))), rng.integers(-3, 5, (6, len(shape))), rng.uniform(0, 1, (2, len(shape)))])
    p[3, -1], p[4, 0] = np.nan, np.inf
    store(api, x, "x")
    store(api, p, "p")
    for mode in (*MODES, "constant"):
        if mode == "constant" and len(shape) > 17:
            continue  # 2**32 corners
        with np.errstate(invalid="ignore"):
            want = [contracted(x, q, mode, 0.75) for q in p]
        got = api.evaluate(f"sample(x, p, boundary='{mode}'{', value=0.75' if mode == 'constant' else ''})")
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9, err_msg=mode)
        whole = (p == np.floor(p)).all(axis=1)
        np.testing.assert_array_equal(got[whole], np.array(want)[whole])


def test_sample_beside_the_infinite(api):
    x = np.zeros((3, 3))
    x[1, 1], x[0, 0] = np.inf, np.nan
    store(api, x, "x")
    store(api, np.array([[0.0, 1], [1, 0], [2, 1], [1, 1], [0.5, 1], [0, 0.5]]), "p")
    np.testing.assert_array_equal(api.evaluate("sample(x, p)"), [0, 0, 0, np.inf, np.inf, np.nan])
    x = np.ones((2,) * 6)
    x[1, 1, 1, 1, 1, 0], x[0, 0, 0, 0, 0, 1] = np.inf, np.nan
    store(api, x, "x")
    store(api, np.array([[1.0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0.5], [1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0.5, 1]]), "p")
    np.testing.assert_array_equal(api.evaluate("sample(x, p)"), [1, 1, np.inf, np.inf, np.nan])


def test_sample_constant(api):
    x = np.arange(1.0, 5)
    store(api, x, "x")
    q = [-2, -1, -0.5, 0, 2.5, 3, 3.25, 4, np.inf, -np.inf, np.nan, 1e300]
    store(api, np.array(q)[:, None], "p")
    np.testing.assert_array_equal(api.evaluate("sample(x, p, boundary='constant', value=9)"),
                                  [9, 9, 5, 1, 3.5, 4, 5.25, 9, 9, 9, np.nan, 9])
    np.testing.assert_array_equal(api.evaluate("sample(x, p, 'nearest', 'constant')"),
                                  [0, 0, 1, 1, 4, 4, 4, 0, 0, 0, np.nan, 0])
    assert api.evaluate("sample(x[0], p[:, :0])").tolist() == [1.0] * len(q)
    assert api.evaluate("sample(x, p[:0])").shape == (0,)


# indices that only the arrays know

def refused(api, body, offset=None, **kw):
    reply = api.post("/v1/evaluate", body, **kw)
    api.expect(422, reply)
    problem = reply.json()
    assert problem["code"] == "bad_index", problem
    if offset is not None:
        assert (problem["pointer"], problem["offset"]) == ("/expr", offset), problem
    return problem


def guarded(api):
    a = np.arange(20.0).reshape(4, 5)
    arrays = {"a": a, "i": np.array([0, 1, 4]), "k": np.array([-4, 3]), "o": np.zeros((3, 5)),
              "m": np.array([-5], "int8"), "big": np.array([2**64 - 1], "uint64")}
    for name, x in arrays.items():
        store(api, x, name)
    return a


def check_guards(api):
    a = guarded(api)
    for _ in range(2):  # also when the plan is known
        refused(api, {"expr": "1 + take(a,  i, axis=0)"}, 13)
        refused(api, {"expr": "1 + take(a, i, axis=0)"}, 12)
    refused(api, {"expr": "take(a, i, axis=0)", "name": "result"})
    assert api.get("/v1/arrays/result").status == 404
    refused(api, {"expr": "take(a, k, axis=0)[:1] + take(a, i, axis=0)", "out": "o"}, 33)
    refused(api, {"expr": "take(a, i, axis=0)[0]", "out": "o", "index": "1"})
    assert not api.evaluate("o").any()
    refused(api, {"expr": "take(a, big, axis=0)"}, 8)
    refused(api, {"expr": "take(a, m, axis=0)"}, 8)
    refused(api, {"expr": "take_along_axis(a, i[None] + 1, 1)", "inline": True}, 27)
    refused(api, {"expr": "sum(take(a, i + 1, axis=0))"}, 14)
    refused(api, {"expr": "take(a, i, axis=0)"}, headers={"Accept": OCTETS})
    refused(api, {"let": [["t", "take(a, i, axis=0)"]], "expr": "t*2"})
    tree = {"op": "add", "args": [1, {"op": "take", "args": ["a", "i"], "axis": 0}]}
    assert refused(api, {"tree": tree})["pointer"] == "/tree/args/1/args/1"
    refused(api, {"expr": "take(a, [0, 4], axis=0)"}, 12)
    refused(api, {"expr": "take(a, n, axis=0)", "bind": {"n": 4}}, 8)
    for _ in range(2):
        want = a[:, [0, 1, 4]] + a[[-4, 3]][:1, :1]
        np.testing.assert_array_equal(api.evaluate("take(a, i, axis=1) + take(a, k, axis=0)[:1, :1]"), want)
    api.expect(200, api.post("/v1/evaluate", {"expr": "take(a, i, axis=0, mode='clip')", "out": "o"}))
    np.testing.assert_array_equal(api.evaluate("o"), a[[0, 1, 3]])
    # an array that becomes right
    api.expect(200, api.post("/v1/evaluate", {"expr": "i - 1", "out": "i"}))
    np.testing.assert_array_equal(api.evaluate("take(a, i, axis=0)"), a[[-1, 0, 3]])
    # what nobody asks for is not looked at
    assert api.evaluate("a[0, 1]").tolist() == 1
    assert api.expect(200, api.post("/v1/evaluate", {"let": [["t", "take(a, big, axis=0)"]], "expr": "sum(a)"})).json()["value"] == 190


def test_guards(api):
    check_guards(api)


def check_guards_time(api):
    """A reply that waited for the indices says what for."""
    store(api, np.arange(6.0), "x")
    store(api, np.arange(6), "i")
    for body, status in (({"expr": "take(x, i)"}, 201), ({"expr": "take(x, i)", "name": "named"}, 201),
                         ({"expr": "take(x, i)", "out": "x"}, 200), ({"expr": "take(x, i + 1)"}, 422),
                         ({"expr": "take(x, i + 1)", "out": "x"}, 422)):
        r = api.expect(status, api.post("/v1/evaluate", body))
        assert f" {api.device};dur=" in r.headers["Server-Timing"], (body, r.headers["Server-Timing"])
        assert " copy;dur=" in r.headers["Server-Timing"]


def test_guards_time(api):
    check_guards_time(api)


def test_the_way_to_indices_that_are_computed(api):
    store(api, np.arange(6.0), "x")
    for expr in ("x[argmax(x)]", "x[x > 1]"):
        assert "take(x, i)" in api.fails(422, "bad_index", api.post("/v1/evaluate", {"expr": expr}))["detail"]


def check_long_lists(api, every=1):
    """As long as expressions may be; short results and ones that use the list again and again."""
    n = 4000
    rng = np.random.default_rng(8)
    x, wide = rng.standard_normal(3 * n), rng.integers(0, 99, (3, n)).astype("float32")
    store(api, x, "x")
    store(api, wide, "wide")
    at = rng.integers(-3 * n, 3 * n, n)
    along = rng.integers(-n, n, 700)
    times = rng.integers(0, 4, n)
    few = [0, 400, 3]
    cases = ((f"take(x, {at.tolist()})", x[at]), (f"take(x*2, {at.reshape(40, 100).tolist()}) + 1", x[at].reshape(40, 100) * 2 + 1),
             (f"take(wide, {along.tolist()}, 1)", wide[:, along]), (f"take_along_axis(wide, [{along.tolist()}], 1)", wide[:, along]),
             (f"repeat(wide, {times.tolist()}, 1)", np.repeat(wide, times, 1)), (f"repeat(wide, {few}, 0)[:, :3]", np.repeat(wide, few, 0)[:, :3]),
             (f"take(tile(wide, [40, 1]), {along[:300].tolist()}, 1)", np.tile(wide, (40, 1))[:, along[:300]]))
    for expr, want in cases[::every]:
        np.testing.assert_array_equal(api.evaluate(expr), want, err_msg=expr[:40])
    at[3210] = 3 * n
    expr = f"take(x, {at.tolist()})"
    refused(api, {"expr": expr}, expr.index(f" {3 * n},") + 1)


def test_long_lists(api):
    check_long_lists(api)


def test_out_that_is_read(api):
    """Pieces written one after the other must not be read as they were before."""
    u = np.arange(12.0).reshape(4, 3)
    for expr, numpy in (("concat([u[1:], u[:1]])", lambda x: np.roll(x, -1, 0)),
                        ("concat([u[2:]*2, u[:2]])", lambda x: np.concatenate([x[2:] * 2, x[:2]])),
                        ("concat([u[:2] + 1, u[2:] - 1])", lambda x: np.concatenate([x[:2] + 1, x[2:] - 1])),
                        ("take(u, [3, 1, 0, 2], 0)", lambda x: x[[3, 1, 0, 2]]),
                        ("reshape(permute_dims(u, [1, 0]), [4, 3])", lambda x: x.T.reshape(4, 3)),
                        ("take(u, 3 + k, 0)", lambda x: x[::-1])):
        store(api, u, "u")
        store(api, np.array([0, -1, -2, -3]), "k")
        api.expect(200, api.post("/v1/evaluate", {"expr": expr, "out": "u"}))
        np.testing.assert_array_equal(api.evaluate("u"), numpy(u), err_msg=expr)
        big = np.zeros((6, 4))
        big[1:5, :3] = u
        store(api, big, "w")
        api.expect(200, api.post("/v1/evaluate", {"expr": expr.replace("u", "w[1:5, :3]").replace("perm" + "w[1:5, :3]" + "te", "permute"),
                                                  "out": "w", "index": "1:5, :3"}))
        want = big.copy()
        want[1:5, :3] = numpy(u)
        np.testing.assert_array_equal(api.evaluate("w"), want, err_msg=expr)


def test_results_cast_and_broadcast(api):
    store(api, np.arange(4, dtype="int32"), "v")
    store(api, np.zeros((3, 8)), "o")
    api.expect(200, api.post("/v1/evaluate", {"expr": "concat([v, v*2])", "out": "o"}))
    np.testing.assert_array_equal(api.evaluate("o"), np.tile([0, 1, 2, 3, 0, 2, 4, 6], (3, 1)))
    got = api.evaluate("stack([v, v], 1)", dtype="float32")
    assert got.dtype == "float32" and got[2].tolist() == [2, 2]


MISTAKES = [
    ("flip(a, 2)", "bad_axis", 8), ("flip(a, [0, 0])", "bad_axis", 12), ("permute_dims(a, [0])", "bad_axis", 16),
    ("permute_dims(a, [0, 0])", "bad_axis", 20), ("permute_dims(a, [0, 2])", "bad_axis", 20), ("expand_dims(a, 3)", "bad_axis", 15),
    ("squeeze(a, 0)", "shape_mismatch", 11), ("squeeze(a)", "bad_arity", 0), ("broadcast_to(a, [3, 5])", "shape_mismatch", 0),
    ("broadcast_to(a, [-1])", "bad_shape", 17), ("broadcast_to(v, [1099511627776, 1099511627776, 7])", "bad_shape", 16),
    ("roll(a, 1, 5)", "bad_axis", 11), ("roll(a, 0.5)", "bad_expression", 8), ("roll(a, [1, 2], [0, 1, 0])", "shape_mismatch", 16),
    ("tril(v)", "shape_mismatch", 5), ("triu(a, 0.5)", "bad_expression", 8), ("reshape(a, [3, -1])", "shape_mismatch", 11),
    ("reshape(a, [-1, -1])", "bad_shape", 16), ("reshape(a, [7, 3])", "shape_mismatch", 11), ("reshape(a[:0], [0, -1])", "shape_mismatch", 15),
    ("reshape(a[:0], [-1, 2**62])", "bad_shape", 15), ("reshape(a[:0], [0, 2**62])", "bad_shape", 15),
    ("reshape(a, v)", "bad_shape", 11),
    ("sliding_windows(a, [2, 2, 2])", "bad_shape", 19), ("sliding_windows(a, 2)", "bad_shape", 19), ("sliding_windows(v, 0)", "bad_shape", 19),
    ("sliding_windows(v, 8)", "bad_shape", 19), ("sliding_windows(v, [4, 5], [0, 0])", "bad_shape", 19), ("sliding_windows(a, 2, 5)", "bad_axis", 22),
    ("sliding_windows(v, 0.5)", "bad_shape", 19), ("sliding_windows(v[0], 1)", "bad_shape", 22), ("gradient(a[:1], 0)", "shape_mismatch", 10), ("gradient(a, 2)", "bad_axis", 12),
    ("gradient(a, 0, 0)", "bad_expression", 15), ("correlate(a, [1, 2])", "shape_mismatch", 14),
    ("correlate(a, [[1, 2], [3]])", "shape_mismatch", 22), ("correlate(v, [a])", "bad_expression", 14), ("correlate(v, [])", "shape_mismatch", 13),
    ("take(a, 7, 0)", "bad_index", 8), ("take(a, [0, 9], 1)", "bad_index", 12), ("take(a, i)", "bad_axis", 0),
    ("take(v, 0.5)", "dtype_mismatch", 8), ("take(v, v > 0)", "dtype_mismatch", 10), ("take(v[:0], i)", "bad_index", 12), ("take(v, i, mode='x')", "bad_expression", 16),
    ("take(v, [[0, 1], [2]])", "shape_mismatch", 17), ("take_along_axis(a, [[0, 5]], 1)", "bad_index", 24),
    ("take_along_axis(a, [0, 1], 1)", "shape_mismatch", 19), ("take(v, [0, 1, 3, 7])", "bad_index", 18), ("take(v, [0, 5, -8])", "bad_index", 15),
    ("take(v, [0, 5, 0.5])", "bad_index", 15), ("repeat(v, [1, 2, 3, 4, 5, 6, -1])", "bad_expression", 29), ("take(v, [0, 5, a])", "bad_index", 15), ("take(v[0], 0)", "shape_mismatch", 6), ("take_along_axis(a, i)", "shape_mismatch", 19),
    ("concat([a, b])", "shape_mismatch", 11), ("concat([a, v], 1)", "shape_mismatch", 11), ("concat([a], 2)", "bad_axis", 12), ("concat([])", "bad_expression", 7),
    ("concat(a)", "bad_expression", 7), ("concat([1, 2])", "shape_mismatch", 7), ("stack([a, v])", "shape_mismatch", 10), ("stack([a], 3)", "bad_axis", 11),
    ("repeat(v, [1, 2])", "shape_mismatch", 10), ("repeat(v, -1)", "bad_expression", 10), ("repeat(v, 0.5)", "bad_expression", 10), ("tile(v, -1)", "bad_expression", 8),
    ("tile(v, [4611686018427387904, 4])", "bad_shape", 0), ("sample(a, v)", "shape_mismatch", 10), ("sample(a, p, 'cubic')", "bad_expression", 13), ("sample(a, p, boundary='self')", "bad_boundary", 22),
    ("sample(a, p > 0)", "dtype_mismatch", 12), ("sample(a[:0], p)", "shape_mismatch", 8), ("index(0) + take(index(0), i)", "bad_expression", 16),
]


def test_mistakes(api):
    a = np.ones((4, 5))
    for name, x in {"a": a, "b": np.ones((2, 3, 4)), "v": np.ones(7), "i": np.zeros((2, 3), int), "p": np.ones((3, 2))}.items():
        store(api, x, name)
    wrong = []
    for expr, code, offset in MISTAKES:
        reply = api.post("/v1/evaluate", {"expr": expr})
        problem = reply.json()
        if (reply.status, problem.get("code"), problem.get("offset")) != (422, code, offset):
            wrong.append((expr, code, offset, reply.status, problem))
    assert not wrong


@pytest.mark.parametrize("name, meant", [("concatenate", "concat"), ("transpose", "permute_dims"), ("ravel", "reshape")])
def test_hints(api, name, meant):
    store(api, np.ones(3), "x")
    detail = api.expect(422, api.post("/v1/evaluate", {"expr": f"{name}(x)"})).json()["detail"]
    assert f"'{meant}'" in detail


def test_explain(api):
    """How many kernels: none of its own for what is only read otherwise, one for each piece."""
    store(api, np.ones((4, 5)), "a")
    store(api, np.zeros(3, int), "i")
    store(api, np.ones((9, 2)), "p")
    for expr, kernels in (("flip(a) + roll(a, 1, 0) + tril(a)", 1), ("reshape(permute_dims(a, [1, 0]), [20])", 1), ("reshape(a, [20])*2", 1),
                          ("reshape(a*2, [20]) + 1", 2), ("concat([a + 1, a*2])", 2), ("concat([a, concat([a, a])])", 3), ("stack([a, a])*2", 3),
                          ("tile(a + 1, [2, 2])", 1), ("repeat(a, 3)", 1), ("take(a, i, 0, mode='clip')*2", 1), ("take(a*2, i, 0, mode='clip')", 2),
                          ("take(a, i, 0)", 2), ("take(a, [0, 1], 0)", 1), ("take(a, [0, 3, 1], 0)", 1), ("repeat(a, [1, 0, 3, 2], 0)*2", 1),
                          ("repeat(a, [0, 9, 20000, 20000], 0)", 2), ("sample(a, p)", 1), ("concat([sum(a, axis=1), max(a, axis=1)])", 2),
                          ("sum(sliding_windows(a, 2, 1), axis=2)", 1), ("sliding_windows(a*2, 2, 1)", 2), ("sliding_windows(i, 1)", 1)):
        reply = api.expect(200, api.post("/v1/explain", {"expr": expr})).json()
        assert len(reply["kernels"]) == kernels, expr
    assert reply["bytes_written"] == 24


@pytest.mark.filterwarnings("ignore:invalid value")
def test_on_a_device(gpu_with):
    api = gpu_with().client()
    arrays = upload(api, "float32")
    for expr, numpy in list(EXACT.items())[::5] + list(NESTED.items())[::6]:
        np.testing.assert_array_equal(api.evaluate(expr), numpy(*arrays), err_msg=expr)
    p = points_for((4, 5), RNG)
    store(api, p, "p")
    np.testing.assert_array_equal(api.evaluate("sample(a, p, 'nearest', 'reflect')"), sampled(arrays[0], p, "reflect", True))
    np.testing.assert_allclose(api.evaluate("sample(a, p)"), sampled(arrays[0], p, "clamp", False), rtol=1e-5, atol=1e-4)
    x, p = RNG.standard_normal((2, 3, 2, 2, 2)), RNG.uniform(-1, 3, (9, 5))
    store(api, x, "x")
    store(api, p, "p")
    np.testing.assert_allclose(api.evaluate("sample(x, p)"), [contracted(x, q, "clamp") for q in p], rtol=1e-9, atol=1e-9)
    check_guards(api)
    check_guards_time(api)
    check_long_lists(api, every=3)
