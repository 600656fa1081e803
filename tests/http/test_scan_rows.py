"""Running sums and products along rows of many lengths, beside NumPy, and that a row's bits are its own."""
import os

import numpy as np
import pytest

from client import NPY, npy_bytes

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
          "complex64", "complex128"]
SAMPLE = {"uint8": [1, 2, 5], "float32": [3, 64, 65, 511, 4999], "float64": [7, 1000], "complex64": [130], "complex128": [33]}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.release_only)])
def both(request):
    if request.param == "cpu":
        yield request.getfixturevalue("api")
        return
    c = request.getfixturevalue("gpu_with")().client()
    yield c
    c.close()


def hold(api, name, a):
    assert api.request("PUT", f"/v1/arrays/{name}", npy_bytes(a), content_type=NPY).status in (200, 201)


def scanned(api, expr):
    api.expect(201, api.post("/v1/evaluate", {"expr": expr, "name": "r"}))
    return api.download("r")


def operand(rng, dtype, shape):
    kind = np.dtype(dtype).kind
    if kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    if kind == "b":
        return rng.random(shape) < 0.5
    x = rng.random(shape) + (1j * rng.random(shape) if kind == "c" else 0)
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_any_length(both, dtype):
    long = both.device == "cpu" or os.environ.get("ARRAYD_LONG") or os.environ.get("ARRAYD_REAL_GPU")
    if not long and dtype not in SAMPLE:
        pytest.skip("every kernel is compiled by the host's compiler: this one in the long run (ARRAYD_LONG)")
    rng = np.random.default_rng(DTYPES.index(dtype) + 30)
    lengths = [1, 2, 3, 7, 64, 65, 512, 2049, 4097, *rng.integers(1, 5001, 6).tolist()] if long else SAMPLE[dtype]
    kind = np.dtype(dtype).kind
    result = {"b": "int64", "i": "int64", "u": "uint64"}.get(kind, dtype)
    exact = {"f": np.longdouble, "c": np.clongdouble}.get(kind, result)
    eps = {"float16": 1e-3, "float32": 1.2e-7, "complex64": 1.2e-7, "float64": 1e-15, "complex128": 1e-15}.get(result)
    for n in lengths:
        a = operand(rng, dtype, (int(rng.integers(2, 9)), n))
        if dtype == "float16":
            a = (a / 64).astype(dtype)
        hold(both, "a", a)
        want = np.cumsum(a.astype(exact), axis=1, dtype=exact)
        got = scanned(both, "cumulative_sum(a, 1)")
        assert got.dtype == result and got.shape == a.shape
        if eps is None:
            np.testing.assert_array_equal(got, want, err_msg=str(n))
        else:
            assert np.max(np.abs(got - want) / np.abs(want)) < 4 * eps, n
        if kind in "iub":
            np.testing.assert_array_equal(scanned(both, "cumulative_prod(a, 1)"), np.cumprod(a, axis=1, dtype=result))


@pytest.mark.parametrize("n", [65, 5000])
def test_the_bits_of_a_row_are_its_own(both, n):
    """Whatever the number of rows, where they begin, and whether they follow each other in memory."""
    rng = np.random.default_rng(n)
    a = (rng.random((7, n + 3)) - 0.5).astype("float32") * 10 ** rng.integers(-6, 6, (7, n + 3)).astype("float32")
    hold(both, "a", a)
    hold(both, "b", a[:, 2:n + 2].copy())
    together = scanned(both, "cumulative_sum(b, 1)")
    assert scanned(both, "cumulative_sum(a[:, 2:-1], 1)").tobytes() == together.tobytes()
    assert scanned(both, "cumulative_sum(b[3])").tobytes() == together[3].tobytes()
    assert scanned(both, "cumulative_sum(a[5, 2:-1])").tobytes() == together[5].tobytes()
    both.expect(200, both.post("/v1/evaluate", {"expr": "cumulative_sum(b, 1)", "out": "b"}))
    assert both.download("b").tobytes() == together.tobytes()


def test_few_long_rows_have_the_bits_of_many(both):
    """A row's parts are then done by blocks side by side, not by one."""
    if both.device == "cpu":
        pytest.skip("there the order depends on the number of rows, too")
    a = (np.random.default_rng(1).random((530, 2100)) - 0.5) * 10.0 ** np.random.default_rng(2).integers(-8, 8, (530, 2100))
    hold(both, "a", a)
    together = scanned(both, "cumulative_sum(a, 1)")
    np.testing.assert_allclose(together, np.cumsum(a, 1), rtol=1e-9, atol=1e-5)
    assert scanned(both, "cumulative_sum(a[:3], 1)").tobytes() == together[:3].tobytes()
    assert scanned(both, "cumulative_sum(a[528])").tobytes() == together[528].tobytes()


def test_what_is_fused_into_rows(both):
    """Operands that are the same along rows or columns, indices, neighbours: rows are then accessed one by one."""
    a = np.random.default_rng(8).random((6, 75))
    c, r = np.arange(6.0).reshape(6, 1), np.arange(75.0)
    for name, x in (("a", a), ("c", c), ("w", r)):
        hold(both, name, x)
    for expr, x in (("a + c", a + c), ("a*w", a * r), ("a*index(1)", a * np.arange(75)), ("a[:, ::-1]", a[:, ::-1]),
                    ("a[::2, 1:]", a[::2, 1:]), ("shift(a, (0, 1), 'wrap')", np.roll(a, -1, 1)), ("a*2 + 3", a * 2 + 3)):
        np.testing.assert_allclose(scanned(both, f"cumulative_sum({expr}, 1)*0.5"), np.cumsum(x, 1) * 0.5, rtol=1e-13)
    if both.device == "gpu":
        kernel, = both.expect(200, both.post("/v1/explain", {"expr": "cumulative_sum(a*2 + 3, 1)"})).json()["kernels"]
        assert kernel["shape"] == "scan-rows"


def test_one_row_read_apart_ends_where_it_ends(both):
    """Backwards, in steps, shifted or by its place: what lies behind the result's last element stays as it is."""
    n = 1001
    a = np.arange(2 * n, dtype="float32") % 7
    hold(both, "a", a)
    index, shifted = np.arange(n, dtype="float32"), np.concatenate([a[:1], a[:n - 1]])
    for expr, x in (("a[1000::-1]", a[n - 1::-1]), ("a[::2]", a[::2]), ("shift(a[:1001], -1, 'clamp')", shifted), ("a[:1001] * index(0)", a[:n] * index)):
        hold(both, "u", np.full(n + 30, -5, "float64" if "index" in expr else "float32"))
        both.expect(200, both.post("/v1/evaluate", {"statements": [f"u[:1001] = cumulative_sum({expr})"], "results": []}))
        got = both.download("u")
        np.testing.assert_array_equal(got[:n], np.cumsum(x, dtype=got.dtype), err_msg=expr)
        assert (got[n:] == -5).all(), expr
