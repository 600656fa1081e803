"""Windows, which are weighted sums of many neighbours, of random extents, boundaries, types and layouts: on the fake GPU, where
they have a form of their own, against the CPU's bits and NumPy's sum of shifts."""
import itertools
import json

import numpy as np
import pytest

from client import NPY, npy_bytes
from test_random_expr import MODES, shifted

TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint16", "int32", "int64", "uint64", "complex64", "complex128", "bool")


@pytest.fixture
def cpu(api):
    return api


@pytest.fixture
def gpu(gpu_with):
    c = gpu_with("--interpreter=no").client()
    yield c
    c.close()


def store(client, x, name):
    assert client.request("PUT", f"/v1/arrays/{name}", npy_bytes(x), content_type=NPY).status in (200, 201)


def forms(client, expr):
    plan = client.expect(200, client.post("/v1/explain", {"expr": expr})).json()
    for k in plan["kernels"]:
        assert "not compiled" not in k["source"], k["source"][:4000]
    return [k["shape"] for k in plan["kernels"]]


def same(cpu, gpu, expr):
    got, want = gpu.evaluate(expr), cpu.evaluate(expr)
    assert got.dtype == want.dtype and got.shape == want.shape
    assert got.tobytes() == want.tobytes(), (expr, np.argwhere(got != want)[:4].tolist())
    return got


def numbers(rng, shape, dtype):
    if dtype == "bool":
        return rng.random(shape) < 0.4
    if dtype.startswith(("int", "uint")):
        return rng.integers(0, 100, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape)).astype(dtype) if dtype.startswith("complex") else x.astype(dtype)


def weights(rng, extents, dtype):
    """Some alike, some 0, so that nothing is read there."""
    w = rng.integers(1, 9, extents) if dtype.startswith(("int", "uint", "bool")) else np.round(rng.standard_normal(extents), 2)
    kind = rng.random()
    if kind < 0.2:
        w = np.full_like(w, w.flat[0])
    elif kind < 0.4:
        w[rng.random(extents) < 0.2] = 0
    return w


def correlated(x, w, mode, value):
    total = None
    with np.errstate(all="ignore"):
        for j in itertools.product(*map(range, w.shape)):
            if not w[j]:
                continue
            term = w[j].astype(x.dtype) * shifted(x, [k - n // 2 for k, n in zip(j, w.shape)], mode, value)
            total = term if total is None else total + term
    return np.zeros_like(x) if total is None else total


@pytest.mark.in_turn
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rank", (1, 2, 3))
def test_random_windows(cpu, gpu, mode, rank):
    rng = np.random.default_rng(100 * rank + MODES.index(mode))
    served = 0
    for dtype in rng.permutation(TYPES)[:4]:
        extents = [int(rng.integers(12, 30))] if rank == 1 else [int(n) for n in rng.integers(3, 8 if rank == 2 else 6, rank)]
        shape = [int(rng.integers(1, n)) for n in ([3000], [150, 200], [25, 40, 70])[rank - 1]]
        if rng.random() < 0.3:  # less than the window reaches
            shape[rng.integers(rank)] = int(rng.integers(1, 4))
        x, w = numbers(rng, shape, "float32" if dtype == "bfloat16" else dtype), weights(rng, extents, dtype)
        for c in (cpu, gpu):
            store(c, x, "x")
        value = 1 if dtype == "bool" else 3
        of = "astype(x, 'bfloat16')" if dtype == "bfloat16" else "x"
        expr = f"correlate({of}, {json.dumps(w.tolist())}, '{mode}', {value})"
        if dtype == "bfloat16":
            expr = f"astype({expr}, 'float32')"
        got = same(cpu, gpu, expr)
        if dtype not in ("bfloat16", "bool") and not dtype.startswith("complex"):
            np.testing.assert_array_equal(got, correlated(x, w, mode, value), err_msg=expr)
        served += "window" in forms(gpu, expr)
    assert served >= 2


@pytest.mark.in_turn
@pytest.mark.parametrize("extents, shape", [((21, 21), (300, 400)), ((1, 45), (90, 3000)), ((3, 34), (70, 600)), ((12, 13), (40, 50))])
@pytest.mark.parametrize("mode", ("self", "wrap"))
def test_wide_windows(cpu, mode, extents, shape):
    """On the CPU each column near an edge is a program of its own: more than a thread has bound at a time."""
    rng = np.random.default_rng(8)
    x, w = numbers(rng, shape, "float64"), weights(rng, extents, "float64")
    store(cpu, x, "x")
    for expr, want in ((f"correlate(x, {json.dumps(w.tolist())}, '{mode}')", correlated(x, w, mode, 0)),
                       (f"x - correlate(x, {json.dumps(w.tolist())}, '{mode}')", x - correlated(x, w, mode, 0))):
        np.testing.assert_array_equal(cpu.evaluate(expr), want)


@pytest.mark.in_turn
@pytest.mark.parametrize("mode", MODES)
def test_what_is_summed_and_what_is_done_with_the_sum(cpu, gpu, mode):
    """A tile holds what is computed alike at every place; what differs is left to the points."""
    rng = np.random.default_rng(MODES.index(mode))
    for c in (cpu, gpu):
        store(c, np.random.default_rng(1).standard_normal((37, 45)).astype("float32"), "x")
        store(c, np.random.default_rng(2).standard_normal((37, 45)), "y")
    w = json.dumps(np.round(rng.standard_normal((5, 5)), 2).tolist())
    for expr in (f"correlate(x*2 + 1, {w}, '{mode}', 4)", f"y - 0.1*correlate(x, {w}, '{mode}')*index(1)",
                 f"correlate(x*y, {w}, '{mode}', 2) + x", f"correlate(x, {w}, '{mode}') - correlate(y, {w}, '{mode}')",
                 f"correlate(x + index(0), {w}, '{mode}', 1)", f"correlate(x, {w}, 'wrap') * correlate(x, {w}, '{mode}')"):
        same(cpu, gpu, expr)
        assert forms(gpu, expr) == ["window"], expr


@pytest.mark.in_turn
def test_layouts(cpu, gpu):
    """Views that are strided, turned or broadcast; batches of windows; axes in another order in memory."""
    for c in (cpu, gpu):
        store(c, np.random.default_rng(3).standard_normal((9, 33, 70)).astype("float32"), "x")
        store(c, np.random.default_rng(4).standard_normal((3, 2, 6, 20, 40)), "five")
    w = json.dumps(np.round(np.random.default_rng(5).standard_normal((4, 4)), 2).tolist())
    deep = json.dumps(np.round(np.random.default_rng(6).standard_normal((3, 3, 3)), 2).tolist())
    for of, weight in (("x[4]", w), ("x[:, 5]", w), ("x[2, ::2, ::-3]", w), ("permute_dims(x[1], [1, 0])", w),
                       ("permute_dims(x, [2, 0, 1])", deep), ("x[1:, 1:-1, 3:]", deep), ("x[:, :1] + x", deep),
                       ("x", f"[{w}]"), ("five", f"[[[{w}]]]"), ("five", f"[[{deep}]]"), ("five[:, 0]", f"[{deep}]")):
        for mode in ("self", "constant", "symmetric"):
            same(cpu, gpu, f"correlate({of}, {weight}, '{mode}', 2)")
    assert forms(gpu, f"correlate(five, [[{deep}]], 'wrap')") == ["window"]


@pytest.mark.in_turn
@pytest.mark.parametrize("dtype", ("float32", "float64", "float16", "uint8", "complex64"))
def test_blocks_that_reach_no_edge(cpu, gpu, dtype):
    """They read by vectors where rows begin at multiples of one; results that do not end with a vector are stored singly."""
    rng = np.random.default_rng(TYPES.index(dtype) if dtype in TYPES else 99)
    x = numbers(rng, (61, 524), dtype)
    for c in (cpu, gpu):
        store(c, x, "x")
    small, w = (json.dumps(rng.integers(1, 9, n).tolist()) for n in ((3, 3), (5, 6)))
    for of in ("x", "x[:, 1:]", "x[:, :-3]", "x[::2, ::-1]", "x + 1")[:5 if dtype == "float32" else 2]:
        for mode in rng.permutation(MODES)[:2]:
            same(cpu, gpu, f"correlate({of}, {w}, '{mode}', 2)")
        expr = f"correlate({of}, {small}, '{rng.choice(['self', 'constant'])}', 2)"
        same(cpu, gpu, expr)
        assert forms(gpu, expr) == ["window"]


@pytest.mark.in_turn
def test_more_planes_than_a_grid_has(cpu, gpu):
    x = np.random.default_rng(10).standard_normal((70000, 2, 6)).astype("float32")
    for c in (cpu, gpu):
        store(c, x, "x")
    for mode in ("self", "wrap"):
        same(cpu, gpu, f"correlate(x, [[[1, 2, 3, 4], [5, 6, 7, 8], [9, 8, 7, 6]]], '{mode}')")


def test_several_results_of_one_window(cpu, gpu):
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((40, 50)).astype("float32"), json.dumps(np.round(rng.standard_normal((5, 5)), 2).tolist())
    got = []
    for c in (cpu, gpu):
        store(c, x, "x")
        store(c, x, "p")
        store(c, x, "q")
        statements = [f"p = correlate(x, {w}, 'clamp')", f"q = 2*correlate(x, {w}, 'clamp') + x"]
        c.expect(200, c.post("/v1/evaluate", {"statements": statements}))
        got.append([c.download("p").tobytes(), c.download("q").tobytes()])
    assert got[0] == got[1]


def test_sums_of_shifts_in_any_order(cpu, gpu):
    """Not as correlate() would add them: what a plane needs of another is carried, or the form is left."""
    rng = np.random.default_rng(8)
    for c in (cpu, gpu):
        store(c, np.random.default_rng(9).standard_normal((20, 21, 40)), "x")
    offsets = list(itertools.product((-1, 0, 1), repeat=3))
    for _ in range(4):
        rng.shuffle(offsets)
        terms = [f"{n + 2}*shift(x, {list(map(int, o))}, 'reflect')" for n, o in enumerate(offsets)]
        same(cpu, gpu, " + ".join(terms))
    terms = [f"max(0.5, shift(x, {list(map(int, o))}))" for o in sorted(map(tuple, offsets))]
    expr = terms[0].replace("max(", "maximum(")
    for t in terms[1:]:
        expr = f"maximum({expr}, {t.replace('max(', 'maximum(')})"
    same(cpu, gpu, expr)
    assert forms(gpu, expr) == ["window"]
