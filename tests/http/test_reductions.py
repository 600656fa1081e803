"""Reductions and scans beside NumPy, on the CPU backend and on the CUDA backend's fake driver."""
import os

import numpy as np
import pytest

from client import NPY, npy_bytes

REALS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
FLOATS = ["float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
TOLERANCE = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14, "complex64": 1e-6, "complex128": 1e-14}


SAMPLE = ["int8", "float16", "float32", "complex64"]  # of the dtypes, on the fake GPU in the short run


# Under sanitizers what it would compile for the fake GPU is left to the golden tables of whole arrays.
@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.release_only)])
def both(request):
    if request.param == "cpu":
        yield request.getfixturevalue("api")
        return
    given = request.node.callspec.params
    left_out = given.get("dtype", SAMPLE[0]) not in SAMPLE or (given.get("shape", 0), given.get("axis", 0)) in LONG_SCANS[4:]
    if left_out and not os.environ.get("ARRAYD_LONG") and not os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("every kernel is compiled: this one in the long run (ARRAYD_LONG)")
    c = request.getfixturevalue("gpu_with")().client()
    yield c
    c.close()


def hold(api, name, a):
    """Makes the array, or replaces it."""
    r = api.request("PUT", f"/v1/arrays/{name}", npy_bytes(a), content_type=NPY)
    assert r.status in (200, 201), r


def value(api, expr, **fields):
    r = api.expect(200, api.post("/v1/evaluate", {"expr": expr, "inline": True, **fields})).json()
    got = r["data"] if "data" in r else r["value"]
    if r["dtype"].startswith("complex"):
        got = np.asarray(got, dtype="float64")
        got = got[..., 0] + 1j * got[..., 1]
    else:
        got = np.asarray(got, dtype="float64" if r["dtype"] == "bfloat16" else None)
        got = np.where(got == "NaN", "nan", got) if got.dtype.kind == "U" else got
    got = got.reshape(r["shape"]) if got.size == 0 else got
    assert list(got.shape) == r["shape"], (expr, r["shape"])
    return got.astype(r["dtype"] if r["dtype"] != "bfloat16" else "float64")


def check(api, expr, want, dtype=None, tolerance=None):
    got, want = value(api, expr), np.asarray(want)
    if dtype is not None:
        assert got.dtype == dtype, expr
    assert got.shape == want.shape, (expr, got.shape, want.shape)
    if got.dtype.kind in "fc":
        tolerance = tolerance or TOLERANCE[got.dtype.name]
        np.testing.assert_allclose(got, want, rtol=4 * tolerance, atol=4 * tolerance, err_msg=expr)
    else:
        np.testing.assert_array_equal(got, want, err_msg=expr)


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def numbers(dtype, shape, seed=7):
    rng = np.random.default_rng(seed)
    t = np.dtype(dtype)
    if t.kind == "b":
        return rng.random(shape) < 0.5
    if t.kind == "u":
        return rng.integers(0, 9, shape).astype(t)
    if t.kind == "i":
        return rng.integers(-8, 9, shape).astype(t)
    if t.kind == "c":
        return (rng.uniform(-2, 2, shape) + 1j * rng.uniform(-2, 2, shape)).astype(t)
    return rng.uniform(-2, 2, shape).astype(t)


def wide(a):
    """What NumPy is given so that it accumulates as the contract says."""
    return a.astype("float32") if a.dtype == "float16" else a


SHAPES = [((3, 4, 5), [None, 0, 1, 2, -1, (0, 2), (2, 0), ()]), ((40, 300), [None, 0, 1]), ((7,), [None, 0]),
          ((), [None, ()])]


def axes(shapes=SHAPES):
    return [(shape, axis) for shape, all_axes in shapes for axis in all_axes]


def spelled(axis):
    return "[" + ", ".join(map(str, axis)) + "]" if isinstance(axis, tuple) else str(axis)


# --- prod, count_nonzero, norm, dot ---

@pytest.mark.parametrize("dtype", ["bool", *REALS, *COMPLEX])
def test_prod_and_count(both, dtype):
    if both.device == "gpu" and dtype in ("int16", "int32", "int64", "uint16", "uint32", "uint64"):
        pytest.skip("compiled by the host's compiler: the types that differ are enough")
    a = numbers(dtype, (3, 4, 5))
    hold(both, "a", a)
    result = {"b": "int64", "i": "int64", "u": "uint64"}.get(a.dtype.kind, dtype)
    for axis in (None, 0, 2, (0, 1)):
        check(both, f"prod(a, axis={spelled(axis)})",
              np.prod(wide(a), axis=axis, dtype=result if dtype != "float16" else "float32").astype(result),
              result, tolerance=TOLERANCE.get(result, 0) * 8)
        check(both, f"count_nonzero(a, axis={spelled(axis)}, keepdims=True)",
              np.count_nonzero(a, axis=axis, keepdims=True), "int64")


def test_prod_wraps_and_of_nothing(both):
    hold(both, "a", np.full(70, 3, dtype="int8"))
    check(both, "prod(a)", np.prod(np.full(70, 3, dtype="int64")), "int64")
    check(both, "prod(a[:0])", 1, "int64")
    check(both, "prod(astype(a[:0], 'complex64'))", 1, "complex64")
    check(both, "sum(a[:0]*0.5)", 0, "float64")
    check(both, "count_nonzero(a[:0])", 0, "int64")
    hold(both, "f", np.array([1e30, 1e30, 1e-30, 1e-30], dtype="float32"))
    check(both, "prod(f)", 1.0, "float32")  # the way there leaves the range of float32


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", *FLOATS, *COMPLEX])
def test_norm_var_std(both, dtype):
    if both.device == "gpu" and dtype not in ("bool", "float16", "float32", "complex128"):
        pytest.skip("compiled by the host's compiler: the types that differ are enough")
    a = numbers(dtype, (6, 4, 5))
    hold(both, "a", a)
    f = wide(a) if a.dtype.kind in "fc" else a.astype("float64")
    result = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype if a.dtype.kind == "f" else "float64")
    for axis in (None, 0, (1, 2), ()):
        n = f"axis={spelled(axis)}"
        check(both, f"var(a, {n})", np.var(f, axis=axis).astype(result), result)
        check(both, f"std(a, {n}, keepdims=True)", np.std(f, axis=axis, keepdims=True).astype(result), result)
        check(both, f"norm(a, {n})", np.sqrt(np.sum(np.abs(f) ** 2, axis=axis)).astype(result), result)
        if axis != ():
            check(both, f"var(a, {n}, correction=1)", np.var(f, axis=axis, ddof=1).astype(result), result)
    check(both, "std(a, axis=0, correction=2.5)", np.std(f, axis=0, ddof=2.5).astype(result), result)


def test_var_is_stable(both):
    a = (1e6 + np.random.default_rng(1).random(20000)).astype("float32")
    hold(both, "a", a)
    check(both, "var(a)", np.var(a.astype("float64")), "float32", tolerance=1e-4)


def test_a_variance_that_begins_far_away(both):
    a = np.random.default_rng(3).standard_normal((40000, 3))
    a[0] = 1e6
    hold(both, "a", a)
    for expr, axis in (("var(a)", None), ("var(a, 0)", 0)):
        check(both, expr, np.var(a.astype(np.longdouble), axis=axis).astype("float64"), "float64", tolerance=3e-14)


def test_a_variance_between_walls_far_away(both):
    a = np.random.default_rng(4).standard_normal((3000, 5, 40))
    a[0] = a[-1] = 1e6
    a[:, :, 0] = a[:, :, -1] = -1e5
    hold(both, "a", a)
    for axis in (None, 0, 2, (0, 2)):
        check(both, f"var(a, {spelled(axis)})", np.var(a.astype(np.longdouble), axis=axis).astype("float64"), "float64",
              tolerance=3e-14)


@pytest.mark.parametrize("shape, axis", [((2_300_000,), None), ((60_000, 3), 0), ((5000, 41), 0), ((7, 30_000), 1),
                                         ((3, 201, 500), (0, 2)), ((70_000, 2), None), ((300, 4000), 0)])
def test_outputs_that_blocks_share(both, shape, axis):
    """Whole numbers: an element that is left out or counted twice shows. Again and again, for what the blocks count
    has to be as it was."""
    a = np.random.default_rng(5).integers(-1000, 1000, shape).astype("float64")
    hold(both, "a", a)
    expr = f"sum(a, {spelled(axis)})"
    for _ in range(2):
        np.testing.assert_array_equal(value(both, expr), a.sum(axis=axis))
    if axis is None or isinstance(axis, int):
        np.testing.assert_array_equal(value(both, f"argmin(a, {axis})"), np.argmin(a, axis=axis))
    np.testing.assert_array_equal(value(both, f"max(a, {spelled(axis)})"), a.max(axis=axis))
    check(both, f"var(a, {spelled(axis)})", a.var(axis=axis), "float64")


def test_blocks_of_two_sessions_count_apart(both):
    a = np.arange(70_000, dtype="float64")
    hold(both, "a", a)
    ref = both.get("/v1/arrays/a").json()["id"]
    other = {"Arrayd-Session": both.expect(201, both.post("/v1/sessions")).json()["id"]}
    for i in range(8):
        for headers in ({}, other):
            both.expect(201, both.post("/v1/evaluate", {"expr": "sum(x*n)", "bind": {"x": ref, "n": i}, "name": f"r{i}"},
                                       headers=headers))
    for i in range(8):
        for headers in ({}, other):
            got = both.expect(200, both.post("/v1/evaluate", {"expr": f"r{i}", "inline": True}, headers=headers)).json()
            assert got["value"] == i * a.sum()


def test_arrays_without_elements(both):
    """They have no memory of their own, unlike an empty part of another array."""
    for name, shape in (("a", (0,)), ("b", (0, 3)), ("c", (3, 0)), ("d", (3, 0, 2))):
        hold(both, name, np.zeros(shape, "float32"))
    check(both, "sum(a)", 0, "float32")
    check(both, "prod(b, axis=0)", np.ones(3), "float32")
    check(both, "logsumexp(c, axis=1)", np.full(3, -np.inf), "float32")
    check(both, "count_nonzero(d, axis=1)", np.zeros((3, 2)), "int64")
    check(both, "sum(d, axis=0)", np.zeros((0, 2)), "float32")
    body = {"statements": ["t = a + 1", "s = sum(t)", "n = sum(b, axis=0)"], "results": ["s", "n"], "inline": True}
    both.expect(200, both.post("/v1/evaluate", body))


def test_too_few_for_a_variance(both):
    hold(both, "a", np.array([1.0, 2.0, 4.0]))
    for expr in ("var(a, correction=3)", "std(a, correction=5)", "var(a[:1], correction=1)", "var(a[:0])",
                 "mean(a[:0])", "std(a[:0])"):
        assert np.isnan(value(both, expr)), expr


def test_dot(both):
    rng = np.random.default_rng(3)
    x, y = rng.random(5000).astype("float32"), rng.random(5000)
    z = (rng.random(5000) + 1j * rng.random(5000)).astype("complex64")
    for name, a in {"x": x, "y": y, "z": z, "i": np.arange(100, dtype="int8"), "h": np.ones(3000, "float16"),
                    "m": x > 0.5}.items():
        hold(both, name, a)
    check(both, "dot(x, x)", np.dot(x.astype("float64"), x), "float32")
    check(both, "dot(x, y)", np.dot(x, y), "float64")
    check(both, "dot(z, z)", np.dot(z.astype("complex128"), z), "complex64")  # not conjugated
    check(both, "dot(i, i)", np.sum(np.arange(100) ** 2), "int64")
    check(both, "dot(h, h)", 3000, "float16")
    check(both, "dot(m, m)", np.sum(x > 0.5), "int64")
    check(both, "dot(x[::-2], x[1::2]*2)", np.dot(x[::-2].astype("float64"), x[1::2] * 2), "float32")
    check(both, "dot(i, index(0))", np.sum(np.arange(100) ** 2), "int64")
    both.fails(422, "shape_mismatch", both.post("/v1/evaluate", {"expr": "dot(x, i)"}))
    both.fails(422, "shape_mismatch", both.post("/v1/evaluate", {"expr": "dot(x, 2)"}))
    both.fails(422, "shape_mismatch", both.post("/v1/evaluate", {"expr": "dot(x[None], x)"}))


# --- argmax, argmin ---

@pytest.mark.in_turn
@pytest.mark.parametrize("dtype", ["bool", *REALS])
def test_argmax(both, dtype):
    if both.device == "gpu" and dtype in ("int16", "int32", "int64", "uint8", "uint16"):
        pytest.skip("compiled by the host's compiler: the types that differ are enough")
    for shape, axis in axes() if both.device == "cpu" else axes(SHAPES[:1]):
        a = numbers(dtype, shape)
        hold(both, "a", a)
        for name, f in (("argmax", np.argmax), ("argmin", np.argmin)):
            if isinstance(axis, tuple) and len(axis) == 0:
                want = np.zeros(shape, "int64")
            elif isinstance(axis, tuple):
                kept = [k for k in range(len(shape)) if k not in axis]
                want = f(np.transpose(a, kept + sorted(axis)).reshape([shape[k] for k in kept] + [-1]), axis=-1)
            else:
                want = f(a, axis=axis)
            check(both, f"{name}(a, axis={spelled(axis)})", want, "int64")


def test_argmax_keeps_axes_and_nests(both):
    a = numbers("float32", (5, 6, 7))
    hold(both, "a", a)
    check(both, "argmax(a, axis=1, keepdims=True)", np.argmax(a, axis=1, keepdims=True))
    check(both, "argmax(a, keepdims=True)", np.argmax(a, keepdims=True))
    check(both, "argmin(abs(a - mean(a)))", np.argmin(np.abs(a - np.mean(a))))
    check(both, "argmax(a[::-1, 1:, ::2], axis=(0, 2))",
          np.argmax(a[::-1, 1:, ::2].transpose(1, 0, 2).reshape(5, -1), axis=1))
    check(both, "argmax(shift(a, (1, 0, -2), 'wrap'))", np.argmax(np.roll(a, (-1, 0, 2), (0, 1, 2))))
    check(both, "argmax(a, axis=0) + 1", np.argmax(a, axis=0) + 1)
    check(both, "argmax(index(0) - a*0, axis=(0, 1, 2))", 4 * 42)


def test_argmax_of_ties_nans_and_extremes(both):
    nan, inf = np.nan, np.inf
    for k, row in enumerate([[1, 3, 3, 2], [nan, 1, nan, 2], [1, nan, inf, nan], [-inf, -inf, -inf], [-0.0, 0.0, -0.0],
                             [0.0, -0.0], [inf, inf], [-1, -2, -1, -2]]):
        for dtype in FLOATS if k < 2 else FLOATS[k % 3:k % 3 + 1]:
            a = np.array(row, dtype=dtype)
            hold(both, f"a{k}{dtype}", a)
            check(both, f"argmax(a{k}{dtype})", np.argmax(a))
            check(both, f"argmin(a{k}{dtype})", np.argmin(a))
    for dtype in REALS[:8]:
        info = np.iinfo(dtype)
        for row in ([info.min] * 3, [info.max] * 3, [info.min, info.max, info.min, info.max]):
            hold(both, "i", np.array(row, dtype=dtype))
            check(both, "argmax(i)", np.argmax(np.array(row, dtype=dtype)))
            check(both, "argmin(i)", np.argmin(np.array(row, dtype=dtype)))
    many = np.zeros((300, 1000), "float32")
    hold(both, "many", many)
    check(both, "argmax(many)", 0)
    check(both, "argmax(many[::-1])", 0)
    check(both, "argmin(many, axis=0)", np.zeros(1000, "int64"))
    many[170, 3] = many[20, 999] = many[20, 5] = nan
    hold(both, "nans", many)
    check(both, "argmax(nans)", 20005)
    check(both, "argmin(nans, axis=1)", np.argmin(many, axis=1))


def test_argmax_of_turned_arrays(both):
    a = numbers("int16", (300, 40, 11))
    hold(both, "a", a)
    for permute in ([2, 1, 0], [1, 0, 2], [1, 2, 0]):
        t = a.transpose(permute)
        r = both.expect(201, both.post("/v1/arrays/a/views", {"permute": permute})).json()
        for axis in (None, 0, 1, 2, (0, 1), (0, 2), (1, 2)):
            kept = [] if axis is None else [k for k in range(3) if k not in np.atleast_1d(axis)]
            gone = [k for k in range(3) if k not in kept]
            want = np.argmax(t.transpose(kept + gone).reshape([t.shape[k] for k in kept] + [-1]), axis=-1)
            got = value(both, f"argmax(t, axis={spelled(axis)})", bind={"t": r["id"]})
            np.testing.assert_array_equal(got, want, err_msg=f"{permute} {axis}")


def test_argmax_of_nothing_and_of_complex(both):
    hold(both, "a", np.zeros((0, 3), "float32"))
    hold(both, "z", np.zeros(3, "complex64"))
    for name in ("argmax", "argmin"):
        both.fails(422, "empty_reduction", both.post("/v1/evaluate", {"expr": f"{name}(a)"}))
        both.fails(422, "empty_reduction", both.post("/v1/evaluate", {"expr": f"{name}(a, axis=0)"}))
        hold(both, "none", np.zeros((0, 0)))  # as NumPy: also where the result has no element
        both.fails(422, "empty_reduction", both.post("/v1/evaluate", {"expr": f"{name}(none, axis=0)"}))
        both.fails(422, "dtype_mismatch", both.post("/v1/evaluate", {"expr": f"{name}(z)"}))
        check(both, f"{name}(a, axis=1)", np.zeros(0, "int64"), "int64")


# --- cumulative_sum, cumulative_prod ---

@pytest.mark.parametrize("dtype", ["bool", *REALS, *COMPLEX])
def test_scans(both, dtype):
    if both.device == "gpu" and dtype not in ("bool", "uint8", "float16", "float32", "float64", *COMPLEX):
        pytest.skip("compiled by the host's compiler: the types that differ are enough")
    result = {"b": "int64", "i": "int64", "u": "uint64"}.get(np.dtype(dtype).kind, dtype)
    inner = "float32" if dtype == "float16" else result
    for shape, axes in [((7,), [None, -1]), ((5, 40, 3), [0, 1, 2]), ((3, 1500), [0, 1])]:
        a = numbers(dtype, shape)
        if np.dtype(dtype).kind in "fc":
            a = (1 + a * 2.0 ** -9).astype(dtype)  # products that stay in range
        hold(both, "a", a)
        for axis in axes:
            for name, f in (("sum", np.cumsum), ("prod", np.cumprod)):
                want = f(a.astype(inner), axis=-1 if axis is None else axis, dtype=inner)
                if inner in ("float32", "complex64"):
                    want = f(a.astype("complex128" if inner == "complex64" else "float64"),
                             axis=-1 if axis is None else axis)
                check(both, f"cumulative_{name}(a, axis={axis})", want.astype(result), result,
                      tolerance=4 * TOLERANCE.get(result, 0))


def test_scans_are_fused_and_nest(both):
    a = numbers("float32", (20, 30, 8))
    hold(both, "a", a)
    a = a.astype("float64")
    check(both, "cumulative_sum((a - 1)**2, 1)", np.cumsum((a - 1) ** 2, 1), "float32")
    check(both, "cumulative_sum(cumulative_sum(a, 0), 1)", np.cumsum(np.cumsum(a, 0), 1), tolerance=1e-5)
    check(both, "cumulative_sum(a[::-1, 1:, ::2], 2)*2", np.cumsum(a[::-1, 1:, ::2], 2) * 2)
    check(both, "max(cumulative_sum(a, 2)) - a[0, 0, 0]", np.max(np.cumsum(a, 2)) - a[0, 0, 0])
    check(both, "shift(cumulative_sum(a, 0), (1, 0, 0), 'wrap')", np.roll(np.cumsum(a, 0), -1, 0))
    check(both, "cumulative_sum(shift(a, (0, 2, -1), 'clamp'), 1)",
          np.cumsum(np.pad(a, ((0, 0), (0, 2), (1, 0)), "edge")[:, 2:, :-1], 1))
    check(both, "cumulative_sum(index(1) + a*0, 1)[0, :, 0]", np.cumsum(np.arange(30)), "float64")
    check(both, "cumulative_sum(a - mean(a, axis=1, keepdims=True), 1)", np.cumsum(a - a.mean(1, keepdims=True), 1),
          tolerance=1e-5)
    kernels = both.expect(200, both.post("/v1/explain", {"expr": "cumulative_sum((a - 1)**2, 1)"})).json()["kernels"]
    assert len(kernels) == 1 and kernels[0]["shape"].startswith("scan-")


def test_scans_into_arrays(both):
    a = numbers("float64", (50, 60))
    hold(both, "a", a)
    both.expect(200, both.post("/v1/evaluate", {"expr": "cumulative_sum(a, 0)", "out": "a"}))
    np.testing.assert_allclose(both.download("a"), np.cumsum(a, 0), atol=1e-12)
    a = both.download("a")
    both.expect(200, both.post("/v1/evaluate", {"expr": "cumulative_sum(a[10:20], 1)", "out": "a", "index": "12:22"}))
    a[12:22] = np.cumsum(a[10:20], 1)
    np.testing.assert_allclose(both.download("a"), a, atol=1e-10)
    both.expect(200, both.post("/v1/evaluate", {"expr": "cumulative_sum(a[0])", "out": "a"}))
    np.testing.assert_allclose(both.download("a"), np.broadcast_to(np.cumsum(a[0]), (50, 60)), atol=1e-10)


LONG_SCANS = [((300_000,), 0), ((3, 150_000), 1), ((100_000, 3), 0), ((2, 50_000, 5), 1), ((70_001,), 0),
        ((40_000, 2, 2), 0), ((1, 9, 30_000), 2), ((20_000, 16), 0), ((9_000, 17), 0), ((3, 5_000, 40), 1)]


@pytest.mark.in_turn
@pytest.mark.parametrize("shape,axis", LONG_SCANS)
def test_long_scans(both, shape, axis):
    """Rows and columns that are cut: exact for whole numbers, and to a few units for floats."""
    i = np.random.default_rng(4).integers(-2**40, 2**40, shape)
    hold(both, "i", i)
    r = both.expect(201, both.post("/v1/evaluate", {"expr": f"cumulative_sum(i, {axis})", "name": "r"})).json()
    assert r["dtype"] == "int64" and r["shape"] == list(shape)
    np.testing.assert_array_equal(both.download("r"), np.cumsum(i, axis))
    f = np.random.default_rng(5).random(shape)
    hold(both, "f", f)
    both.expect(201, both.post("/v1/evaluate", {"expr": f"cumulative_sum(f, {axis})", "name": "r"}))
    want = np.cumsum(f.astype(np.longdouble), axis)
    assert np.max(np.abs(both.download("r") / want - 1)) < 1e-15
    hold(both, "f", f.astype("float32"))
    want = np.cumsum(f.astype("float32").astype("float64"), axis)
    both.expect(201, both.post("/v1/evaluate", {"expr": f"cumulative_sum(f, {axis})", "name": "r"}))
    first = both.download("r")
    assert np.max(np.abs(first / want - 1)) < 1.3e-7
    both.expect(201, both.post("/v1/evaluate", {"expr": f"cumulative_sum(f, {axis})", "name": "s"}))
    assert both.download("s").tobytes() == first.tobytes()
    if both.device == "cpu":
        both.expect(201, both.post("/v1/evaluate", {"expr": f"cumulative_prod(1 + (f - 0.5)*1e-3, {axis})", "name": "r"}))
        np.testing.assert_allclose(both.download("r"), np.cumprod(
            (1 + (f.astype("float32") - np.float32(0.5)) * np.float32(1e-3)).astype("float64"), axis), rtol=1e-6)


@pytest.mark.in_turn
@pytest.mark.release_only  # the fake GPU takes seconds for each, and shorter scans run under sanitizers
@pytest.mark.parametrize("shape", [(3_000_000,), (270_000, 17), (600_000, 3)])
def test_scans_in_several_groups(both, shape):
    """So long that on a GPU what blocks add up meets in groups, and in groups of groups."""
    i = np.random.default_rng(6).integers(-2**40, 2**40, shape)
    hold(both, "i", i)
    both.expect(201, both.post("/v1/evaluate", {"expr": "cumulative_sum(i, 0)", "name": "r"}))
    np.testing.assert_array_equal(both.download("r"), np.cumsum(i, 0))


def test_scans_at_the_extremes(both):
    inf, nan = np.inf, np.nan
    for dtype in ("float32", "float64"):
        for k, row in enumerate([[1, inf, 2, -inf, 3], [nan, 1], [1, nan, 2], [-inf, 1, 2]]):
            a = np.array([0.5] * 70 + row + [1.0] * 70, dtype=dtype)
            hold(both, "a", a)
            got = value(both, "astype(isnan(cumulative_sum(a)), 'int8')")
            np.testing.assert_array_equal(got, np.isnan(np.cumsum(a)))
            np.testing.assert_array_equal(value(both, "astype(isinf(cumulative_sum(a)), 'int8')"), np.isinf(np.cumsum(a)))
    least = np.iinfo("int64").min
    hold(both, "i", np.array([least, least, 1]))
    check(both, "cumulative_sum(i)", np.array([least, 0, 1]), "int64")
    for shape in ((0,), (0, 3), (3, 0), (1,), (1, 1)):
        hold(both, "e", np.ones(shape))
        for axis in range(len(shape)):
            check(both, f"cumulative_sum(e, {axis})", np.cumsum(np.ones(shape), axis))


@pytest.mark.parametrize("expr,code", [
    ("cumulative_sum(a)", "bad_axis"), ("cumulative_sum(a, 2)", "bad_axis"), ("cumulative_prod(a, [0])", "bad_axis"),
    ("cumulative_sum(2.0)", "bad_axis"), ("cumulative_sum(a, 0, 1)", "bad_arity")])
def test_mistakes_of_scans(api, expr, code):
    hold(api, "a", np.zeros((3, 4)))
    api.fails(422, code, api.post("/v1/evaluate", {"expr": expr}))


# --- bfloat16, which NumPy lacks: small whole numbers are exact in it ---

def test_bfloat16(both):
    a = np.random.default_rng(8).integers(-5, 6, (4, 6)).astype("float64")
    hold(both, "a", a)
    for name, want in (("sum", a.sum(1)), ("prod", np.sign(a).prod(1)), ("max", a.max(1)), ("mean", a.mean(1)),
                       ("var", a.var(1)), ("std", a.std(1)), ("norm", np.sqrt((a * a).sum(1)))):
        x = "sign(a)" if name == "prod" else "a"
        got = both.expect(200, both.post("/v1/evaluate", {
            "expr": f"{name}(astype({x}, 'bfloat16'), 1)", "inline": True})).json()
        assert got["dtype"] == "bfloat16"
        np.testing.assert_allclose(got["data"], want, rtol=2**-7, err_msg=name)  # printed short, too
    np.testing.assert_array_equal(value(both, "argmin(astype(a, 'bfloat16'), 0)"), a.argmin(0))
    got = both.expect(200, both.post("/v1/evaluate", {
        "expr": "cumulative_sum(astype(a, 'bfloat16'), 1)", "inline": True})).json()
    assert got["dtype"] == "bfloat16" and got["data"] == a.cumsum(1).tolist()


# --- what holds for all of them ---

def test_extremes(both):
    inf = np.inf
    hold(both, "low", np.array([-inf, -inf]))
    hold(both, "n", np.array([1.0, np.nan, 2.0], dtype="float32"))
    check(both, "max(low)", -inf)
    check(both, "mean(low)", -inf)
    for f in ("max", "min", "sum", "prod", "mean", "var", "std", "norm"):
        assert np.isnan(value(both, f"{f}(n)")), f
    assert value(both, "count_nonzero(n)") == 3 and value(both, "any(n)")
    for dtype in ("int8", "int16", "int32", "int64"):
        least = np.iinfo(dtype).min
        hold(both, dtype, np.array([least, least], dtype=dtype))
        check(both, f"max({dtype})", least, dtype)
        check(both, f"min({dtype})", least, dtype)


def test_axes_of_one_and_none(both):
    a = numbers("float32", (1, 4, 1))
    hold(both, "a", a)
    for axis in (None, 0, 2, (0, 2), 1, ()):
        for name, f in (("sum", np.sum), ("mean", np.mean), ("var", np.var), ("prod", np.prod), ("max", np.max)):
            if axis == () and name in ("max",):
                continue
            check(both, f"{name}(a, axis={spelled(axis)})", f(a, axis=axis), "float32")


@pytest.mark.parametrize("expr,code", [
    ("prod(a, axis=2)", "bad_axis"), ("argmax(a, axis=[0, 0])", "bad_axis"), ("var(a, axis='x')", "bad_axis"),
    ("var(a, correction='x')", "bad_expression"), ("var(a, correction=a)", "bad_expression"),
    ("std(a, correction=1j)", "bad_expression"), ("norm(a, keepdims=2)", "bad_expression"),
    ("argmax(a, 0, True, 1)", "bad_arity"), ("dot(a)", "bad_arity"), ("var(a, ddof=1)", "unknown_field"),
    ("cumsum(a)", "unknown_operation")])
def test_mistakes(api, expr, code):
    hold(api, "a", np.zeros((3, 4)))
    api.fails(422, code, api.post("/v1/evaluate", {"expr": expr}))


def test_kernels(api):
    """A mean and a variance are one kernel that reads the array once; a complex variance is two."""
    hold(api, "a", np.zeros((64, 64), "float32"))
    hold(api, "h", np.zeros((64, 32), "complex64"))
    for expr, n in (("mean(a)", 1), ("mean(a, axis=0)", 1), ("var(a)", 1), ("var(a, axis=1, correction=1)", 1),
                    ("var(h)", 2), ("argmax(a)", 1), ("count_nonzero(a)", 1)):
        kernels = api.expect(200, api.post("/v1/explain", {"expr": expr})).json()["kernels"]
        assert len(kernels) == n, expr
        assert sum(k["bytes_read"] for k in kernels) < n * (a_bytes := 64 * 64 * 4) + a_bytes / 2, expr


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), 2])
def test_a_variance_far_from_zero(api, axis):
    """One pass, and no digit lost to a mean of 10^5 standard deviations."""
    x = (np.random.default_rng(3).standard_normal((37, 300, 41)) + 1e5).astype("float32")
    hold(api, "x", x)
    wanted = np.var(x.astype("float64"), axis=axis)
    r = api.expect(200, api.post("/v1/evaluate", {"expr": f"var(x, axis={spelled(axis)})", "inline": True})).json()
    np.testing.assert_allclose(r["data"] if axis is not None else r["value"], wanted, rtol=2e-7)


@pytest.mark.in_turn
def test_a_large_float32_sum(api):
    """10^8 uniform numbers to 1e-6, and the same bits each time."""
    r = api.expect(201, api.post("/v1/arrays", {"name": "u", "shape": [100_000_000], "dtype": "float32",
                                                "random": {"distribution": "uniform", "seed": 5}})).json()
    assert r["size"] == 100_000_000
    exact = value(api, "sum(astype(u, 'float64'))")
    for f in ("sum(u)", "sum(u, axis=0)"):
        first = value(api, f)
        assert abs(float(first) / exact - 1) < 1e-6
        assert all(value(api, f) == first for _ in range(2))
    assert abs(float(value(api, "mean(u)")) / (exact / 1e8) - 1) < 1e-6
    api.delete("/v1/arrays/u")


def test_the_same_bits_for_any_number_of_threads(daemon_with):
    a = np.random.default_rng(2).uniform(-1, 1, (700, 900)).astype("float32")
    seen = set()
    for threads in (1, 2, 3, 5):
        c = daemon_with("--threads", threads).client()
        hold(c, "a", a)
        seen.add(tuple(value(c, e).tobytes() for e in (
            "sum(a)", "sum(a, axis=0)", "mean(a, axis=1)", "var(a)", "prod(1 + a*1e-3)", "norm(a)",
            "sum(a*(1 + 1j))", "argmax(a)", "sum(cumulative_sum(a, 0)**2)", "sum(cumulative_sum(a[0]))",
            "sum(cumulative_sum(a, 1)*a)", "cumulative_sum(a[:, :2], 0)[-3:]")))
        c.close()
    assert len(seen) == 1

