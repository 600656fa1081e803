"""Reductions that leave NaN out, and logsumexp, beside NumPy: on the CPU backend and on the fake GPU."""
import numpy as np
import pytest

from test_reductions import COMPLEX, FLOATS, both, check, hold, numbers, spelled, value  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
nan, inf = np.nan, np.inf
AXES = [None, 0, 2, (0, 1), ()]


def holes(dtype, shape=(5, 40, 7), seed=3):
    """Numbers, of floats some of them NaN, and one column nothing else; of complex ones either part."""
    a = numbers(dtype, shape, seed)
    if a.dtype.kind in "fc":
        a[np.random.default_rng(seed + 1).random(shape) < 0.3] = nan
        a[:, 1, 2] = nan
    if a.dtype.kind == "c":
        a[0, 0, 0], a[1, 1, 1] = complex(1, nan), complex(nan, 2)
    return a


def wide(a):
    return a.astype({"e": "float64", "f": "float64", "F": "complex128"}.get(a.dtype.char, a.dtype))


def beside(api, expr, f, dtype, axes=AXES, result=None, **named):
    """The function of the array a beside NumPy's."""
    a = holes(dtype)
    hold(api, "a", a)
    for axis in axes if api.device == "cpu" else axes[:2]:
        want = f(wide(a), axis=axis, **named) if axis != () else f(wide(a)[None], axis=0, **named)
        check(api, expr.format(f"axis={spelled(axis)}"), np.asarray(want).astype(result or dtype), result or dtype)
    kept = f(wide(a), axis=1, keepdims=True, **named)
    check(api, expr.format("axis=1, keepdims=True"), kept.astype(result or dtype), result or dtype)


# On the fake GPU every kernel is compiled by the host's compiler: the types that differ are enough.
def enough(api, dtype, *types):
    if api.device == "gpu" and dtype not in types:
        pytest.skip("a type like another")


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", *FLOATS, *COMPLEX])
def test_nansum(both, dtype):
    enough(both, dtype, "int8", "float32", "complex128")
    result = {"b": "int64", "i": "int64", "u": "uint64"}.get(np.dtype(dtype).kind, dtype)
    beside(both, "nansum(a, {})", np.nansum, dtype, result=result)
    hold(both, "n", np.array([nan, nan]))
    check(both, "nansum(n)", 0, "float64")
    check(both, "nansum(n[:0])", 0, "float64")


def test_a_nansum_is_one_kernel(api):
    hold(api, "a", np.zeros((64, 64), "float32"))
    assert len(api.expect(200, api.post("/v1/explain", {"expr": "nansum(a*2)"})).json()["kernels"]) == 1


@pytest.mark.in_turn
@pytest.mark.parametrize("dtype", ["bool", "int16", *FLOATS, *COMPLEX])
def test_nanmean(both, dtype):
    enough(both, dtype, "int16", "float32", "complex64")
    beside(both, "nanmean(a, {})", np.nanmean, dtype, result="float64" if dtype in ("bool", "int16") else None)
    hold(both, "n", np.array([nan, nan, 3, inf]))
    for expr, want in (("nanmean(n[:2])", nan), ("nanmean(n[:0])", nan), ("nanmean(n[:3])", 3), ("nanmean(n)", inf)):
        check(both, expr, want, "float64")


@pytest.mark.parametrize("shape, axis", [((300_000,), None), ((60_000, 3), 0), ((300, 4000), 0), ((7, 30_000), 1)])
def test_a_long_nanmean_keeps_its_digits(both, shape, axis):
    """In units, threads and blocks that are merged; whole numbers, of which one left out or counted twice shows."""
    a = np.random.default_rng(5).integers(-1000, 1000, shape).astype("float64")
    a[np.random.default_rng(6).random(shape) < 0.5] = nan
    hold(both, "a", a)
    np.testing.assert_array_equal(value(both, f"nanmean(a, {axis})"), np.nansum(a, axis) / np.sum(~np.isnan(a), axis))
    a[0] = 1e16
    hold(both, "a", a)
    want = np.nansum(a.astype(np.longdouble), axis) / np.sum(~np.isnan(a), axis)
    check(both, f"nanmean(a, {axis})", want.astype("float64"), tolerance=1e-15)


def extreme_without_nan(api, name, dtype):
    enough(api, dtype, "uint8", "float32", "float64")
    beside(api, f"{name}(a, {{}})", getattr(np, name), dtype)
    hold(api, "n", np.array([nan, nan, -inf, 3, inf]))
    for part in (slice(2), slice(1, 3), slice(1, 4), slice(3, None), slice(None)):
        check(api, f"{name}(n[{part.start or 0}:{part.stop or 5}])",
              getattr(np, name)(np.array([nan, nan, -inf, 3, inf])[part]), "float64")
    hold(api, "z", np.array([0.0, nan, -0.0, 0.0]))
    for order in ("z", "z[::-1]"):
        check(api, f"signbit({name}({order}))", name == "nanmin", "bool")
    hold(api, "none", np.zeros((0, 3), dtype))
    api.fails(422, "empty_reduction", api.post("/v1/evaluate", {"expr": f"{name}(none)"}))
    api.fails(422, "dtype_mismatch", api.post("/v1/evaluate", {"expr": f"{name}(a*1j)"}))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", *FLOATS])
def test_nanmin(both, dtype):
    extreme_without_nan(both, "nanmin", dtype)


@pytest.mark.in_turn
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", *FLOATS])
def test_nanmax(both, dtype):
    extreme_without_nan(both, "nanmax", dtype)


REAL_OF = {"bool": "float64", "int16": "float64", "complex64": "float32", "complex128": "float64"}


def variance_without_nan(api, name, dtype):
    enough(api, dtype, "int16", "float32", "complex128")
    f, result = getattr(np, name), REAL_OF.get(dtype, dtype)
    beside(api, f"{name}(a, {{}})", f, dtype, result=result)
    beside(api, f"{name}(a, {{}}, correction=1)", f, dtype, axes=AXES[:-1], result=result, ddof=1)
    hold(api, "n", np.array([nan, nan, 3, 5, inf]))
    for expr, want in (("n[:2]", nan), ("n[:0]", nan), ("n[:3]", 0), ("n[:3], correction=1", nan), ("n", nan),
                       ("n[:4], correction=1", f([3, 5], ddof=1)), ("n[:3], axis=[]", np.array([nan, nan, 0]))):
        check(api, f"{name}({expr})", want, "float64")


@pytest.mark.in_turn
@pytest.mark.parametrize("dtype", ["bool", "int16", *FLOATS, *COMPLEX])
def test_nanvar(both, dtype):
    variance_without_nan(both, "nanvar", dtype)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), 2])
def test_a_nanvar_keeps_its_digits(both, axis):
    """Far from 0, and with what lies far from all others first."""
    a = np.random.default_rng(3).standard_normal((37, 300, 41)) + 1e5
    a[np.random.default_rng(4).random(a.shape) < 0.2] = nan
    hold(both, "a", a)
    check(both, f"nanvar(a, {spelled(axis)})", np.nanvar(a.astype(np.longdouble), axis).astype("float64"), tolerance=1e-9)
    a -= 1e5
    a[0] = 1e6
    hold(both, "a", a)
    check(both, f"nanvar(a, {spelled(axis)})", np.nanvar(a.astype(np.longdouble), axis).astype("float64"), tolerance=1e-13)


@pytest.mark.parametrize("dtype", ["bool", "int16", *FLOATS, *COMPLEX])
def test_nanstd(both, dtype):
    variance_without_nan(both, "nanstd", dtype)


def logsumexp(a, axis=None, keepdims=False):
    a = np.asarray(a, "float64")
    most = np.max(a, axis=axis, keepdims=True, initial=-inf)
    most = np.where(np.isfinite(most), most, 0)
    return np.log(np.sum(np.exp(a - most), axis=axis, keepdims=keepdims)) + (most if keepdims else np.squeeze(most, axis))


@pytest.mark.parametrize("dtype", ["bool", "int16", *FLOATS])
def test_logsumexp(both, dtype):
    enough(both, dtype, "int16", "float32")
    a, result = numbers(dtype, (5, 40, 7)), "float64" if dtype in ("bool", "int16") else dtype
    hold(both, "a", a)
    for axis in AXES[:-1] if both.device == "cpu" else AXES[:2]:
        check(both, f"logsumexp(a, axis={spelled(axis)})", logsumexp(a, axis).astype(result), result)
    check(both, "logsumexp(a, axis=1, keepdims=True)", logsumexp(a, 1, True).astype(result), result)
    check(both, "logsumexp(a, axis=[])", a.astype(result), result)


def test_logsumexp_at_the_extremes(both):
    for k, row in enumerate([[1e300, 1, -1e300], [-1e4, -1e4], [1e4] * 500, [-inf, -inf], [-inf, 3, -inf], [3, inf, inf, -inf],
                             [nan, 1], [1, nan, inf], [0.0] * 200, [-745.5, -746, 800]]):
        hold(both, "a", np.array(row))
        check(both, "logsumexp(a)", logsumexp(row), "float64")
        check(both, "logsumexp(stack([a, a], 1), 0)", np.stack([logsumexp(row)] * 2), "float64")
    check(both, "logsumexp(a[:0])", -inf, "float64")
    both.fails(422, "dtype_mismatch", both.post("/v1/evaluate", {"expr": "logsumexp(a*1j)"}))


@pytest.mark.parametrize("shape, axis", [((300_000,), None), ((60_000, 3), 0), ((300, 4000), 0), ((7, 30_000), 1)])
def test_a_long_logsumexp(both, shape, axis):
    a = np.random.default_rng(5).uniform(-50, 50, shape)
    hold(both, "a", a)
    check(both, f"logsumexp(a, {axis})", logsumexp(a, axis), "float64")
