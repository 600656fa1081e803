"""correlate() with fast_math, whose weights are an outer product: on the GPU (the fake one) sums of sums in one kernel, on the CPU
passes along the axes. Within the bound of docs/expressions.md, wherever the sum itself is in range; without fast_math the bits of
the plain sum."""
import itertools
import json
import math

import numpy as np
import pytest

from client import NPY, npy_bytes
from test_random_expr import MODES, shifted

# by type: the distance from 1 to the next number
SPACING = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7, "complex64": 2.0**-23,
           "complex128": 2.0**-52}
BINOMIAL, SHORT = ([math.comb(n, k) for k in range(n + 1)] for n in (6, 4))


@pytest.fixture
def cpu(api):
    return api


@pytest.fixture
def gpu(gpu_with):
    c = gpu_with("--interpreter=no").client()
    yield c
    c.close()


def outer(*rows):
    w = np.ones(())
    for row in rows:
        w = np.multiply.outer(w, np.asarray(row, float))
    return w


def call(w, mode, of="x", value=3):
    return f"correlate({of}, {json.dumps(np.asarray(w).tolist())}, '{mode}', {value})"


def store(client, x, name="x"):
    assert client.request("PUT", f"/v1/arrays/{name}", npy_bytes(x), content_type=NPY).status in (200, 201)


def explained(client, expr, **more):
    return client.expect(200, client.post("/v1/explain", {"expr": expr, **more})).json()


def factored(client, expr):
    return [f["as"] for f in explained(client, expr, fast_math=True).get("factored", [])]


def exact(x, w, mode, value):
    """The sum, and that of the terms' magnitudes, with more digits than any of the types."""
    x = x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
    total, size = np.zeros_like(x), np.zeros(x.shape, np.longdouble)
    for j in itertools.product(*map(range, w.shape)):
        term = w[j] * shifted(x, [k - n // 2 for k, n in zip(j, w.shape)], mode, value)
        total, size = total + term, size + abs(term)
    return total, size


def random_row(rng, n):
    row = rng.standard_normal(n) if rng.random() < 0.5 else rng.random(n) + 0.1
    if n > 3 and rng.random() < 0.5:
        row[rng.integers(n)] = 0
    return row


def numbers(rng, shape, dtype):
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x


@pytest.mark.in_turn
@pytest.mark.parametrize("mode", MODES)
def test_within_the_bound(cpu, gpu, mode):
    rng = np.random.default_rng(MODES.index(mode))
    for extents, shape in (((5, 5), (37, 61)), ((7, 6), (3, 90)), ((5, 5, 5), (11, 21, 45)), ((4, 3, 6), (2, 30, 3)),
                           ((1, 5, 7), (3, 20, 33)), ((17, 19), (35, 30)), ((3, 4, 1, 3), (4, 5, 3, 17)), ((5, 9), (1, 1))):
        dtype = str(rng.choice([*SPACING]))
        w = outer(*(random_row(rng, n) for n in extents))
        while np.count_nonzero(w) < 16:
            w = outer(*(random_row(rng, n) for n in extents))
        stored = "float32" if dtype == "bfloat16" else dtype
        x = numbers(rng, shape, dtype).astype(stored)
        expr = call(w, mode)
        if dtype == "bfloat16":
            x = (x.view("uint32") & 0xffff0000).view("float32")
            expr = f"astype({call(w, mode, 'astype(x, ' + repr(dtype) + ')')}, 'float32')"
        want, size = exact(x, w, mode, 3)
        bound = (sum(extents) + 4 * len(extents)) * SPACING[dtype] / 2 * size
        rows = sum(np.count_nonzero(w.any(axis=tuple(a for a in range(w.ndim) if a != k))) for k in range(w.ndim) if extents[k] > 1)
        passes = [] if mode == "self" else ["passes"]
        sums = ["sums"] if w.size <= (90 if sum(n > 1 for n in extents) == 2 else 180) else passes
        for c, how in ((cpu, passes), (gpu, passes if w.ndim == 4 else sums)):
            store(c, x)
            how = how if np.count_nonzero(w) >= max(2 * rows, 36 if how == ["passes"] else 16) else []
            assert factored(c, expr) == how, (extents, w)
            got = c.evaluate(expr, fast_math=True)
            assert got.dtype == stored and got.shape == x.shape
            if not how:  # the plain sum
                bound = np.maximum(bound, w.size * SPACING[dtype] * size)
            assert (abs(got - want) <= bound).all(), (how, dtype, expr, (abs(got - want) / bound).max())


@pytest.mark.in_turn
@pytest.mark.parametrize("mode", MODES)
def test_infinities_and_nan(cpu, gpu, mode):
    """They are where the plain sum has them: elements under weights of 0 are read by neither."""
    rng = np.random.default_rng(10 + MODES.index(mode))
    for rows in (([1, -2, 3, 0, 2, 1, 1], [2, 1, 0, 1, -1, 1, 2]), (BINOMIAL, BINOMIAL), ([1, -1, 2, 1], [1, 0.5, 1], [-1, 2, 1])):
        w = outer(*rows)
        x = rng.standard_normal((31, 47) if len(rows) == 2 else (7, 15, 33)).astype("float32")
        for special in (np.nan, np.inf, -np.inf):
            for _ in range(4):
                x[tuple(rng.integers(n) for n in x.shape)] = special
        for c in (cpu, gpu):
            store(c, x)
            plain, got = c.evaluate(call(w, mode)), c.evaluate(call(w, mode), fast_math=True)
            assert np.isfinite(plain).any() and not np.isfinite(plain).all()
            np.testing.assert_array_equal(np.isnan(got), np.isnan(plain))
            np.testing.assert_array_equal(got[np.isinf(plain)], plain[np.isinf(plain)])
            np.testing.assert_allclose(got, plain, rtol=1e-3, atol=1e-4)
    x = numbers(rng, (20, 31), "complex64").astype("complex64")
    x[3, 4], x[15, 20], x[9, 9] = np.inf, complex(1, -np.inf), np.nan
    for c in (cpu, gpu):
        store(c, x)
        plain, got = (c.evaluate(call(outer(BINOMIAL, BINOMIAL), mode), fast_math=fast) for fast in (False, True))
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(plain))
        np.testing.assert_allclose(got[np.isfinite(got)], plain[np.isfinite(got)], rtol=1e-4)
    store(cpu, np.ones((9, 9), "float32"))  # an infinity outside: no passes
    assert factored(cpu, call(outer(BINOMIAL, BINOMIAL), "constant", value="inf")) == []
    assert factored(cpu, call(outer(BINOMIAL, BINOMIAL), "constant", value=2)) == ["passes"]


@pytest.mark.in_turn
@pytest.mark.parametrize("dtype", ("float32", "float64", "float16"))
def test_sums_on_the_way_do_not_overflow(cpu, gpu, dtype):
    """One row's weights are large, the other's small: the sum is in range, that along the first row alone would not be."""
    most = float(np.finfo(dtype).max)
    x = (np.where(np.random.default_rng(1).random((40, 50)) < 0.5, -0.9, 0.9) * most).astype(dtype)
    for large, small in (([100.0] * 8, [1 / 6400] * 8), ([1 / 6400] * 8, [100.0] * 8), ([-100.0, 100, 100, 100, -100, 100], [1 / 6400] * 7)):
        w = outer(large, small)
        want = exact(x, w, "clamp", 0)[0]
        for c, how in ((cpu, ["passes"]), (gpu, ["sums"])):
            store(c, x)
            assert factored(c, call(w, "clamp")) == how
            got = c.evaluate(call(w, "clamp"), fast_math=True)
            assert np.isfinite(got).all()
            np.testing.assert_allclose(got / most, (want / most).astype(dtype), atol=50 * np.finfo(dtype).eps)


def test_whole_numbers_of_boxes_and_binomials_are_exact(cpu, gpu):
    x = np.random.default_rng(2).integers(-9, 9, (50, 60)).astype("float32")
    for c in (cpu, gpu):
        store(c, x)
        for w in (outer(BINOMIAL, BINOMIAL), np.ones((6, 6)), outer(BINOMIAL, [2, 0, -4, 2, 1, 3, 1])):
            assert factored(c, call(w, "wrap"))
            np.testing.assert_array_equal(c.evaluate(call(w, "wrap"), fast_math=True), c.evaluate(call(w, "wrap")))


def test_what_is_left_as_it_is(cpu, gpu):
    """The bits are the plain sum's where nothing may be, can be or need be factored."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 50)).astype("float32")
    gauss = outer(*[np.exp(-0.5 * (np.arange(-3, 4) / s) ** 2) for s in (1.5, 2)])
    off = gauss.copy()
    off[1, 2] *= 1 + 1e-6
    hole = gauss.copy()
    hole[2, 2] = 0
    for c in (cpu, gpu):
        store(c, x)
        store(c, x > 0, "b")
        store(c, (x * 20).astype("int32"), "n")
        assert factored(c, call(gauss, "clamp"))
        assert "factored" not in explained(c, call(gauss, "clamp"))
        for w in (off, hole, np.round(gauss, 4), np.zeros((7, 7)), np.ones((3, 3)), np.ones((1, 40)), gauss.astype(np.float32) * 1e39):
            assert factored(c, call(w, "clamp")) == [], w
        for of, w in (("n", outer(BINOMIAL, BINOMIAL)), ("b", np.ones((6, 6)))):
            expr = call(w.astype(int), "clamp", of, 1)
            assert factored(c, expr) == [], expr
            np.testing.assert_array_equal(c.evaluate(expr, fast_math=True), c.evaluate(expr))
        assert factored(c, "correlate(x, %s, 'wrap')" % str([[1j] * 6] * 6)) == []
        # numbers as float32 has them are an outer product to its last places, though not to float64's
        narrow = gauss.astype("float32").astype(float)
        assert factored(c, call(narrow, "clamp")) and factored(c, call(narrow, "clamp", "astype(x, 'float64')")) == []
    assert factored(cpu, call(gauss, "self")) == [] and factored(gpu, call(gauss, "self")) == ["sums"]
    assert gpu.post("/v1/arrays", {"name": "g", "shape": [9, 20], "dtype": "float32", "ghost": [3, 3], "boundary": ["periodic", "periodic"]}).status == 201
    for mode in ("ghost", "array"):
        assert factored(gpu, f"correlate(g, {json.dumps(gauss.tolist())}, '{mode}')") == []
    small = call(outer(SHORT, SHORT), "clamp")
    assert factored(cpu, small) == [] and factored(gpu, small) == ["sums"]
    assert cpu.evaluate(call(gauss, "self"), fast_math=True).tobytes() == cpu.evaluate(call(gauss, "self")).tobytes()


def test_weights_of_nothing_but_zero(cpu):
    """Nothing is read: a value that x's type does not have is refused no more than without fast_math."""
    store(cpu, np.arange(12, dtype="int8").reshape(3, 4), "few")
    expr = "correlate(few, [[0, 0], [0, 0]], 'constant', -2.5)"
    np.testing.assert_array_equal(cpu.evaluate(expr, fast_math=True), cpu.evaluate(expr))


def test_explain(cpu, gpu):
    for c in (cpu, gpu):
        store(c, np.ones((12, 40, 64), "float32"))
    w = call(outer(SHORT, SHORT, SHORT), "reflect")
    e = explained(gpu, w, fast_math=True)
    assert e["factored"] == [{"weights": [5, 5, 5], "terms": 15, "as": "sums"}]
    assert [k["shape"] for k in e["kernels"]] == ["window"]
    e = explained(cpu, w, fast_math=True)
    assert e["factored"] == [{"weights": [5, 5, 5], "terms": 15, "as": "passes"}]
    assert len(e["kernels"]) == 3
    large = call(outer(SHORT, [1] * 9, [1] * 9), "reflect")
    assert factored(gpu, large) == ["passes"] and len(explained(gpu, large, fast_math=True)["kernels"]) == 3
    assert factored(gpu, large.replace("reflect", "self")) == ["sums"]
    assert factored(gpu, f"{w} + {large} - correlate(x, [[[1]]])") == ["sums", "passes"]


def test_around_other_operations(cpu, gpu):
    """Of an expression, in one, of nothing, in a program, and to a target."""
    x = np.random.default_rng(4).standard_normal((30, 70)).astype("float32")
    w = outer([0.05, 0.2, 0.15, 0.2, 0.15, 0.2, 0.05], [0.05, 0.1, 0.2, 0.3, 0.2, 0.1, 0.05])
    for c in (cpu, gpu):
        store(c, x)
        store(c, np.zeros((0, 5), "float32"), "none")
        for expr in (f"x - 0.5*{call(w, 'clamp', 'x*x + index(0)')}", call(w, "wrap", call(w, "wrap")), call(w, "constant", "x > 0", 1),
                     f"sum({call(w, 'symmetric')}, axis=1)", call(w, "reflect", "x[3, ::-1] + x[:3]")):
            np.testing.assert_allclose(c.evaluate(expr, fast_math=True), c.evaluate(expr), rtol=2e-5, atol=2e-5)
        assert c.evaluate(call(w, "clamp", "none"), fast_math=True).shape == (0, 5)
        results = []
        for fast in (False, True):
            c.post("/v1/evaluate", {"expr": "x + 0", "name": "u"})
            r = c.post("/v1/programs?wait=1", {"body": [f"u = {call(w, 'clamp', 'u')}", f"u = u - 0.5*{call(w, 'wrap', 'u')}"], "steps": 5,
                                               "fast_math": fast})
            assert c.expect(200, r).json()["state"] == "done", r
            results.append(c.evaluate("u"))
        np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)
