"""clients/python against a live daemon, beside NumPy. What is a mistake there must be one here, and the same program must give
the same numbers on both."""
import asyncio
import itertools
import operator
import os
import pathlib
import pickle
import runpy
import shutil
import subprocess
import sys
import threading
import time
import warnings
import zipfile

import numpy as np
import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = REPO / "clients" / "python"
sys.path.insert(0, str(PACKAGE / "src"))
import arrayd  # noqa: E402
import arrayd.numpy  # noqa: E402

from conftest import find_binary  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
          "complex64", "complex128"]


@pytest.fixture
def xp(api, daemon):
    with arrayd.connect(f"http://127.0.0.1:{daemon.port}") as client:
        yield client


def requests(api):
    """But for those that let go of what is collected, whenever that is."""
    text = api.get("/metrics").body.decode()
    return sum(float(line.split()[-1]) for line in text.splitlines()
               if line.startswith("arrayd_http_requests_total{") and 'route="/metrics"' not in line and 'method="DELETE"' not in line)


def same(got, want):
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, want.dtype, got.shape, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-6 if want.dtype.itemsize < 8 or want.dtype == "complex64" else 1e-13)


# --- dtypes and functions ---


def test_promotion_is_the_servers(xp):
    """Of each pair of dtypes: what the client says beforehand is what comes out."""
    names = DTYPES + ["bfloat16"]
    one = {name: xp.asarray([1, 1], dtype=name if name != "bfloat16" else "float32") for name in names}
    one["bfloat16"] = xp.astype(one["bfloat16"], "bfloat16")
    for a in names:
        one[a].compute()
    for a, b in itertools.combinations_with_replacement(names, 2):
        both = xp.multiply(one[a], one[b])
        got = xp.metadata(both.compute())
        assert got["dtype"] == arrayd._dtypes.name_of(both.dtype), (a, b, got["dtype"])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["nansum", "nanmean", "nanmin", "nanmax", "nanvar", "nanstd"])
def test_reductions_without_nan(xp, name):
    a = np.random.default_rng(1).random((3, 4, 5))
    a[0], a[1, 2] = np.nan, np.nan
    x = xp.asarray(a)
    for axis in (None, 1, (0, 2)):
        same(getattr(xp, name)(x, axis=axis, keepdims=True), getattr(np, name)(a, axis=axis, keepdims=True))
    same(getattr(xp, name)(xp.asarray([1, 2, 4])), getattr(np, name)([1, 2, 4]))


def test_logsumexp(xp):
    a = np.random.default_rng(1).uniform(-3, 3, (4, 5))
    same(xp.logsumexp(xp.asarray(a), axis=0), np.log(np.exp(a).sum(0)))
    same(xp.logsumexp(xp.asarray(a) + 1e3), np.log(np.exp(a).sum()) + 1e3)


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "float32", "float64", "complex128", "bool"])
def test_functions_beside_numpy(xp, dtype):
    rng = np.random.default_rng(1)
    a = (rng.random((3, 4)) * 3 + 0.5).astype(dtype)
    b = (rng.random((4,)) * 2 + 1).astype(dtype)
    x, y = xp.asarray(a), xp.asarray(b)
    kind = np.dtype(dtype).kind
    cases = [(x + y, a + b), (x * y, a * b), (x == y, a == b), (xp.where(x == y, x, y), np.where(a == b, a, b)),
             (xp.concat([x, xp.expand_dims(y, axis=0)]), np.concatenate([a, b[None]])), (xp.stack([y, y], axis=1), np.stack([b, b], 1)),
             (x.T, a.T), (xp.flip(x, axis=0), np.flip(a, 0)), (xp.roll(x, (1, -2), axis=(0, 1)), np.roll(a, (1, -2), (0, 1))),
             (xp.roll(x, 5), np.roll(a, 5)), (xp.tile(y, (2, 2)), np.tile(b, (2, 2))), (xp.repeat(x, 2, axis=1), np.repeat(a, 2, 1)),
             (xp.repeat(y, xp.asarray([0, 1, 2, 3])), np.repeat(b, [0, 1, 2, 3])), (xp.reshape(x, (2, -1)), a.reshape(2, -1)),
             (xp.moveaxis(xp.reshape(x, (3, 2, 2)), 0, 2), np.moveaxis(a.reshape(3, 2, 2), 0, 2)), (xp.tril(x, k=-1), np.tril(a, -1)),
             (xp.take(x, xp.asarray([3, 0, 0]), axis=1), a[:, [3, 0, 0]]), (xp.any(x, axis=1), a.any(1)), (xp.all(x), a.all()),
             (xp.count_nonzero(x, axis=0), np.count_nonzero(a, axis=0)), (xp.unique_values(y), np.unique(b)),
             (xp.broadcast_to(y, (2, 4)), np.broadcast_to(b, (2, 4))), (xp.squeeze(x[:1, :], axis=0), a[0])]
    if kind != "b":
        cases += [(x - y, a - b), (-x, -a), (xp.sum(x, axis=0), a.sum(0)), (xp.prod(y), b.prod()), (xp.cumulative_sum(x, axis=1), a.cumsum(1)),
                  (xp.diff(x, axis=1), np.diff(a, axis=1)), (xp.square(x), a * a), (x @ y, a @ b), (xp.vecdot(x, y), (a.conj() * b).sum(-1, dtype=dtype))]
    if kind in "iuf":
        cases += [(x // y, a // b), (x % y, a % b), (x < y, a < b), (xp.maximum(x, y), np.maximum(a, b)), (xp.max(x, axis=1), a.max(1)),
                  (xp.argmin(x, axis=0), a.argmin(0)), (xp.sort(x, axis=0, descending=True), -np.sort(-a, 0) if kind != "u" else np.sort(a, 0)[::-1]),
                  (xp.clip(x, 1, 2), np.clip(a, 1, 2))]
    if kind in "fc":
        cases += [(x / y, a / b), (xp.exp(x), np.exp(a)), (xp.mean(x, axis=0), a.mean(0)), (xp.abs(x), np.abs(a)), (xp.std(x, correction=1).astype("float64"), a.std(ddof=1).astype("float64"))]
    for i, (got, want) in enumerate(cases):
        try:
            same(got, want)
        except AssertionError as e:
            raise AssertionError(f"case {i}: {e}") from e


def test_numbers_take_the_dtype_beside_them(xp):
    for dtype in DTYPES[1:]:
        x = xp.ones((2,), dtype=dtype)
        assert (x + 1).dtype == x.dtype and (1 - x).dtype == x.dtype
    assert (xp.ones((2,), dtype="float32") * 2.5).dtype == xp.float32
    assert (xp.ones((2,), dtype="int8") * 2.5).dtype == xp.float64
    assert (xp.ones((2,), dtype="float32") * 2j).dtype == xp.complex64
    with pytest.raises(OverflowError):
        xp.ones((2,), dtype="int8") + 300
    x = xp.asarray(2**63 + 5, dtype="uint64")
    assert int(x + 2**62) == 2**63 + 2**62 + 5
    assert xp.asarray([[2**63 + 5], [0]], dtype="uint64").tolist() == [[2**63 + 5], [0]]
    nan = xp.asarray(-float("nan"), dtype="float64")
    assert bool(xp.signbit(nan)) and not bool(xp.signbit(-nan))


def test_negative_powers_of_integers(xp):
    x = xp.asarray([1, -1, 2, 3])
    for exponent in (-1, -3, np.int64(-1), np.int8(-2)):
        for power in (lambda: x ** exponent, lambda: xp.pow(x, exponent), lambda: operator.ipow(x, exponent)):
            with pytest.raises(ValueError, match="negative integer powers"):
                power()
    with pytest.raises(OverflowError):
        xp.asarray([1], dtype="uint8") ** -1
    assert x.tolist() == [1, -1, 2, 3] and (x ** 2).tolist() == [1, 1, 4, 9] and (x ** 0).tolist() == [1, 1, 1, 1]
    assert (x ** -1.0).tolist() == [1, -1, 0.5, 1 / 3] and (xp.asarray([2.0, 4.0]) ** -1).tolist() == [0.5, 0.25]
    assert ((-2) ** xp.abs(x)).tolist() == [-2, -2, 4, -8]
    with pytest.raises(ValueError, match="negative integer powers"):
        x ** xp.asarray([-1, -1, -1, -1])
    assert (x ** -(x ** 0)).tolist() == [1, -1, 0, 0]  # nobody looks at what is on the server


# --- indexing ---


def test_reading(xp):
    a = np.arange(2 * 30 * 40, dtype=np.int32).reshape(2, 30, 40)
    for x in (xp.asarray(a), xp.asarray(a).compute(), xp.asarray(a) + 0):
        for key in (0, -1, slice(1, None), (0, slice(3, -2, 2)), (..., 5), (None, 1, ..., slice(None, None, -1)), (1, 2, 3),
                    (slice(2, 1), ...), (..., slice(-2, -40, -3)), ()):
            same(x[key], a[key])
        same(x[x > 100], a[a > 100])
        i, j, k = np.array([0, 1, -1]), np.array([[5], [-3]]), 7
        same(x[xp.asarray(i), xp.asarray(j), k], a[i, j, k])
        for shape in ((0,), (2, 0), (0, 30, 40)):  # of no elements: it fits whatever there is
            assert x[xp.zeros(shape, dtype="bool")].shape == (0,) + a.shape[len(shape):]
        with pytest.raises(IndexError):
            x[xp.zeros((2, 29), dtype="bool")]
    for key in (2, (0, 30), (0, 0, 0, 0), (..., ...)):
        with pytest.raises(IndexError):
            xp.asarray(a)[key]
    with pytest.raises(IndexError):
        np.asarray(xp.asarray(a)[xp.asarray([0]), xp.asarray([30]), xp.asarray([0])])


@pytest.mark.parametrize("n", [6, 300])
def test_writing(xp, n):
    """Whatever the key and wherever the values are; and nothing but views sees it."""
    a = np.arange(n * n, dtype=np.float64).reshape(n, n)
    for start in (lambda: xp.asarray(a), lambda: xp.asarray(a).compute(), lambda: xp.asarray(a) + 0, lambda: xp.reshape(xp.arange(n * n, dtype="float64"), (n, n))):
        for key, value in ((0, 5), ((slice(1, 3), -1), [7.0, 8.0]), (slice(None), 3), ((..., slice(None, None, 2)), 1), ((2, 3), 9),
                           (slice(4, 2), 5), (slice(0, 2), np.arange(n) * 1.0)):
            want, x = a.copy(), start()
            kept, view, later = x + 1, x[1:, :], x * 2
            want[key] = value
            x[key] = xp.asarray(value) if isinstance(value, np.ndarray) else value
            same(x, want)
            same(kept, a + 1)
            same(view, want[1:])
            same(later, a * 2)
            x += 1
            same(x, want + 1)
        x, want = start(), a.copy()
        x[x > 5] = -1
        want[want > 5] = -1
        same(x, want)
        x[0, :] = x[1, :]
        want[0] = want[1]
        same(x, want)
    x = xp.zeros((2, 2), dtype="int32")
    with pytest.raises(TypeError):
        x[0, 0] = 1.5j
    with pytest.raises(ValueError):
        x[0, :] = [1, 2, 3]
    with pytest.raises(TypeError):
        x += 0.5


def test_arguments_as_numpys(xp):
    """What xarray hands over, axes by name, and positions of any rank."""
    a = np.array([[1, np.nan, 3], [4, 5, 6.5]], np.float32)
    x = xp.asarray(a)
    for name in ("nanmean", "nanvar", "nanstd"):
        got, want = getattr(xp, name)(x, axis=0, dtype=xp.float64), getattr(np, name)(a, axis=0, dtype=np.float64)
        assert got.dtype == xp.float64
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(xp.nanvar(x, axis=1, ddof=1)), np.nanvar(a, axis=1, ddof=1), rtol=1e-6)
    i = np.array([[0, 2], [1, 1]])
    same(xp.take(x, xp.asarray(i), axis=1), np.take(a, i, axis=1))
    b = np.arange(12.0).reshape(3, 4) ** 2
    y = xp.asarray(b)
    same(xp.gradient(y, axis=0), np.gradient(b, axis=0))
    for f in (xp.forward_diff, xp.back_diff, xp.central_diff):
        same(f(y, axis=1), np.asarray(f(y, 1)))


# --- laziness ---


def test_one_request(xp, api):
    a = xp.asarray(np.random.default_rng(1).random((500, 500))).compute()
    before = requests(api)
    z = (a - a.mean()) / a.std()
    assert z.shape == (500, 500) and requests(api) == before
    z.compute()
    assert requests(api) == before + 1
    v = np.asarray(a)
    np.testing.assert_allclose(np.asarray(z), (v - v.mean()) / v.std(), rtol=1e-12)
    before = requests(api)
    s = xp.sum(z * z)
    assert float(s) == float(s) == pytest.approx(250000)
    assert requests(api) == before + 1


def test_elements_one_by_one(xp, api):
    """Are not each computed with all of the array that they are of."""
    out = xp.take(xp.asarray(np.arange(12.0)).compute(), xp.asarray([3, 4, 5]).compute()) * 2
    assert float(out[0] + out[1] + 0) == 14.0 and out._node.value is None
    before = requests(api)
    assert [float(out[i] + 1) for i in range(3)] == [7.0, 9.0, 11.0]
    assert requests(api) - before == 2 and out._node.value is not None
    large = (xp.arange(4000.0) + 0).compute()
    for x in (large, large * 2):  # 32 KiB: the first element by itself, all with the second
        before = requests(api)
        assert [float(x[i]) / float(x[1]) for i in (0, 7, 3999)] == [0.0, 7.0, 3999.0] and requests(api) - before <= 3
        assert requests(api) - before >= 2
    before = requests(api)
    assert bool(x[3] == large[6]) and bool(x[3] < x[4]) and not bool(x[3] != x[3]) and not bool(xp.asarray(np.nan) == xp.asarray(np.nan))
    assert requests(api) == before  # numbers that are known here


def test_deep_and_wide(xp):
    """More than one request takes: nodes, levels, arrays; and shared parts stay shared."""
    x = xp.asarray([1.0, 2.0])
    deep = x
    for _ in range(9000):
        deep = deep + 1
    assert np.asarray(deep).tolist() == [9001, 9002]
    doubled = x
    for _ in range(60):  # 2**60 nodes, if it were a tree
        doubled = doubled + doubled
    assert np.asarray(doubled).tolist() == [2.0**60, 2.0**61]
    many = [xp.asarray(np.full(3, i)).compute() for i in range(150)]
    total = many[0]
    for m in many[1:]:
        total = total + m
    assert np.asarray(total).tolist() == [150 * 149 // 2] * 3
    assert np.asarray(xp.concat(many)).tolist() == np.repeat(np.arange(150), 3).tolist()
    assert np.asarray(xp.stack(many)).shape == (150, 3)


def test_what_nobody_refers_to_goes(xp, api):
    kept = xp.asarray(np.arange(3)).compute()
    for _ in range(300):
        (kept + 1).compute()
    deadline = time.monotonic() + 10
    while len(list(xp.arrays())) > 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [m["id"] for m in xp.arrays()] == [kept.id]
    named = xp.save("field", kept * 2)
    assert np.asarray(xp.array("field")).tolist() == [0, 2, 4] and named.name == "field"
    del named
    xp.release()
    field = xp.array("field")
    twice, view = field * 2, field[1:]
    field[0] = 7  # a named array is the server's: others see what is written to it
    assert np.asarray(xp.array("field")).tolist() == [7, 2, 4]
    assert np.asarray(twice).tolist() == [0, 4, 8] and np.asarray(view).tolist() == [2, 4]
    field[...] = xp.asarray([1, 2, 3])
    field += 1
    assert np.asarray(xp.array("field")).tolist() == np.asarray(field).tolist() == [2, 3, 4]
    xp.delete("field")


# --- beside the standard ---


def test_text_and_its_mistakes(xp):
    u = xp.asarray(np.ones((4, 4)))
    same(xp.evaluate("u + k*2", u=u, k=0.5), np.full((4, 4), 2.0))
    assert int(xp.evaluate("9007199254740993 + 0")) == 9007199254740993
    with pytest.raises(arrayd.BadValue) as e:
        xp.evaluate("u + nobody", u=u)
    assert e.value.code == "unknown_name" and str(e.value).splitlines()[1:] == ["    u + nobody", "        ^"]
    with pytest.raises(ValueError):
        xp.asarray([1, 2]) + xp.asarray([1, 2, 3])
    with pytest.raises(IndexError) as bad:
        np.asarray(xp.take(xp.asarray([1.0, 2.0]), xp.asarray([5])) * 2)
    assert bad.value.code == "bad_index" and "take(" in str(bad.value)
    x = xp.asarray([1.0, 2.0]).compute()
    ours = xp.take(x, xp.asarray([0, 5]))  # whose place is found among others of the same operation, in `let` as well
    for wrong in (xp.take(x, xp.asarray([0])) + ours, ours + xp.take(x, xp.asarray([1])), xp.exp(ours) * xp.sin(ours) + 1):
        with pytest.raises(IndexError) as bad:
            np.asarray(wrong)
        assert str(bad.value).splitlines()[1] == "    take(array(2; float64), array(2; int64), axis=0)", bad.value
    assert isinstance(pickle.loads(pickle.dumps(e.value)), arrayd.BadValue)
    with pytest.raises(arrayd.BadValue) as e:
        xp.evaluate("u +\n\t漢字() + 1", u=u)
    assert "^" in str(e.value).splitlines()[2], e.value
    with pytest.raises(arrayd.NotFound):
        xp.array("nobody")


@pytest.mark.parametrize("text, marked", [
    ({"body": ["v = u*2", "u = v + nobody"]}, ["    u = v + nobody", "            ^"]),
    ({"body": ["u += 1", "u = where(u > 0,\n  oh(u), 0)"]}, ["      oh(u), 0)", "      ^"]),
    ({"record": {"most": "max(w)"}}, ["    max(w)", "        ^"]),
    ({"until": "u[0, 0] > = 1"}, ["    u[0, 0] > = 1", "              ^"])])
def test_mistakes_in_programs(xp, daemon, text, marked):
    """Are pointed at as those in expressions are, by both clients."""
    async def asynchronously():
        async with arrayd.aconnect(f"http://127.0.0.1:{daemon.port}") as axp:
            await axp.program(**{"body": ["u += 1"], "steps": 1, "u": axp.ones((4, 4)), **text})

    for begin in (lambda: xp.program(**{"body": ["u += 1"], "steps": 1, "u": xp.ones((4, 4)), **text}), lambda: asyncio.run(asynchronously())):
        with pytest.raises(arrayd.BadValue) as e:
            begin()
        assert str(e.value).splitlines()[1:] == marked and e.value.pointer, e.value


def test_what_is_bound_and_named(xp):
    """Is named where it cannot be."""
    for wrong in (object(), None, {1}, len):
        for ask in (lambda: xp.evaluate("u", u=wrong), lambda: xp.program(["u += 1"], steps=1, bind={"u": wrong})):
            with pytest.raises(TypeError, match="^u: an array, a number, or the name or id of an array is bound, not"):
                ask()
    xp.save("v", xp.ones(2))
    assert xp.evaluate("u + v", u="v").tolist() == [2, 2]
    for name in ("f g", "f/g", "f?a=b", "", "\u00e4", "a\nb", "%20"):
        for ask, said in ((lambda: xp.define(name, ["x"], "x"), "not a name: "), (lambda: xp.save(name, xp.ones(2)), "not a name: "),
                          (lambda: xp.array(name), "neither an array's name nor its id"), (lambda: xp.delete(name), "neither an array's")):
            with pytest.raises(ValueError, match=said) as e:
                ask()
            assert repr(name) in str(e.value)
    xp.delete("v")


def test_mistakes_in_names_of_records(xp):
    with pytest.raises(arrayd.BadValue, match=r"at /record/a~1b$"):
        xp.program(["u += 1"], steps=1, u=xp.ones(3), record={"a/b": "sum(u)"})


def test_mistakes_in_functions(xp):
    with pytest.raises(arrayd.BadValue) as e:
        xp.define("twice", ["x"], "2*x + )")
    assert str(e.value).splitlines()[1:] == ["    2*x + )", "          ^"]


def test_programs(xp):
    a = np.random.default_rng(2).random((32, 32))
    u = xp.asarray(a)
    kept = u + 0
    job = xp.program(["u += 0.1*laplacian(u)"], steps=50, u=u, record={"total": "sum(u)"}, record_every=10)
    assert job.wait(30).ended and job.step == 50 and len(job.records["total"]) == 5
    want = a.copy()
    for _ in range(50):
        p = np.pad(want, 1, mode="edge")
        want = want + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * want)
    np.testing.assert_allclose(np.asarray(u), want, rtol=1e-9)
    np.testing.assert_array_equal(np.asarray(kept), a)
    events = list(xp.program(["u += 1"], steps=1000, u=u).events())
    assert events[-1]["state"] == "done"
    endless = xp.program(["u += 1"], steps=10**12, u=u)
    with pytest.raises(TimeoutError):
        endless.wait(0.2)
    assert endless.cancel().wait().state == "cancelled"


def test_sessions_pickles_threads(xp, daemon):
    with xp.session(name="mine") as s:
        x = s.asarray(np.arange(5.0))
        assert float((x + 1).sum()) == 15
        again = pickle.loads(pickle.dumps(x))
        assert np.asarray(again).tolist() == [0, 1, 2, 3, 4]
        other = subprocess.run([sys.executable, "-c", "import sys, pickle, numpy as np\nx = pickle.loads(sys.stdin.buffer.read())\nprint(float((x * 2).sum()))"],
                               input=pickle.dumps(x), capture_output=True, check=True, env={**os.environ, "PYTHONPATH": str(PACKAGE / "src")})
        assert other.stdout == b"20.0\n"
    assert [m["name"] for m in xp.request("GET", "/v1/sessions")["sessions"]] == ["default"]
    shared, wrong = xp.asarray(np.arange(1000.0)), []

    def work(k):
        for i in range(50):
            if float(xp.sum(shared * k + i)) != 499500.0 * k + 1000 * i:
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_transfers(xp, tmp_path, daemon_with):
    rng = np.random.default_rng(3)
    for dtype in DTYPES:
        a = rng.integers(0, 2 if dtype == "bool" else 100, (257, 33)).astype(dtype)
        for given in (a, a.T, a[::2, ::-1], np.asfortranarray(a), a.astype(a.dtype.newbyteorder(">")), a[:0], a[3, 4]):
            back = np.asarray(xp.asarray(given).compute())
            assert back.dtype == a.dtype and np.array_equal(back, given)
    big = rng.random(2_000_000)
    assert np.array_equal(np.asarray(xp.asarray(big) + 0), big)
    assert np.array_equal(np.from_dlpack(xp.asarray(big[:10])), big[:10])
    socket = tmp_path / "a.sock"
    daemon_with("--listen", f"unix:{socket}")
    with arrayd.connect(f"unix:{socket}") as u:
        assert float(u.sum(u.asarray(big))) == pytest.approx(big.sum())
    with pytest.raises(arrayd.ConnectionLost):
        arrayd.connect("http://127.0.0.1:1")


def test_tokens(accounts, daemon_with):
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path)
    with pytest.raises(arrayd.Denied):
        arrayd.connect(f"http://127.0.0.1:{d.port}", token="A" * 43)
    token = accounts.client(d, "ann").always["Authorization"].split()[1]
    with arrayd.connect(f"http://127.0.0.1:{d.port}", token=token) as c:
        assert float(c.sum(c.ones((3,)))) == 3


# --- the same program on both ---


def numpys():
    """NumPy's arrays with `__array_namespace__`: NumPy 2's own, before that numpy.array_api's."""
    if hasattr(np.ndarray, "__array_namespace__"):
        return np
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it is experimental
        return pytest.importorskip("numpy.array_api")


def test_the_same_numbers(xp, daemon, monkeypatch, capsys):
    """The examples' functions on arrays of either kind; and the examples as they are."""
    programs = {name: runpy.run_path(str(PACKAGE / "examples" / f"{name}.py")) for name in ("membrane", "k_means")}
    waves, k_means, points = programs["membrane"]["waves"], programs["k_means"]["k_means"], programs["k_means"]["cloud"]()
    theirs = np.asarray(waves(numpys().linspace(0.0, 1.0, 64), 40))
    ours = np.asarray(waves(xp.linspace(0.0, 1.0, 64), 40))
    assert np.max(np.abs(theirs)) > 0.05
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)
    centres, nearest = map(np.asarray, k_means(numpys().asarray(points), 4))
    got, which = map(np.asarray, k_means(xp.asarray(points), 4))
    assert len(set(nearest.tolist())) == 4 and which.dtype == nearest.dtype
    np.testing.assert_allclose(got, centres, rtol=1e-12)
    assert np.array_equal(which, nearest)
    monkeypatch.setattr(sys, "argv", ["example", f"http://127.0.0.1:{daemon.port}"])
    for program in programs.values():
        program["main"]()
    assert capsys.readouterr().out.count("points around (") == 4


# --- the package ---


@pytest.mark.in_turn
@pytest.mark.parametrize("page, count", [(PACKAGE / "README.md", 10), (REPO / "docs" / "python.md", 4)], ids=["README", "docs"])
def test_pages(page, count, daemon_with, tmp_path, monkeypatch):
    """Their examples, one after the other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "arrayd").symlink_to(pathlib.Path(find_binary()).resolve())
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    d = daemon_with("--backend", "cpu", "--allow-export", "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/arrayd.sock")
    blocks = [b.split("```")[0] for b in page.read_text().split("```python\n")[1:]]
    assert len(blocks) >= count
    names = {}
    for b in blocks:
        monkeypatch.setattr(arrayd.numpy, "_default", names.get("xp"))  # the pages' own daemon has another port
        exec(b.replace("http://127.0.0.1:7411", f"http://127.0.0.1:{d.port}").replace("/run/arrayd/arrayd.sock", d.unix), names)
    names["xp"].close()


@pytest.mark.in_turn
def test_a_wheel_is_built(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "python", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    stale = tmp_path / "python" / "build" / "lib" / "arrayd" / "_gone.py"  # of an earlier build
    stale.parent.mkdir(parents=True)
    stale.touch()
    tool = subprocess.run([sys.executable, "-c", "import setuptools, wheel, pip; assert int(setuptools.__version__.split('.')[0]) >= 61"], capture_output=True)
    if tool.returncode:
        pytest.skip("pip, setuptools >= 61 and wheel are not here (Debian: python3-pip)")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", tmp_path, tmp_path / "python"],
                   check=True, capture_output=True)
    wheel, = tmp_path.glob("arrayd-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "arrayd/__init__.py" in names and "arrayd/py.typed" in names and "arrayd/_gone.py" not in names
    licence, = (n for n in names if n.startswith("arrayd-") and n.endswith("/LICENSE"))
    assert zipfile.ZipFile(wheel).read(licence) == (REPO / "LICENSE").read_bytes()
    subprocess.run([sys.executable, "-c", "import arrayd; print(arrayd.__version__)"], check=True, env={**os.environ, "PYTHONPATH": str(wheel)})


def test_types():
    """mypy --strict, where it is installed."""
    if subprocess.run([sys.executable, "-m", "mypy", "--version"], capture_output=True).returncode:
        pytest.skip("mypy is not here")
    r = subprocess.run([sys.executable, "-m", "mypy"], cwd=PACKAGE, capture_output=True, text=True)
    assert r.returncode == 0, r.stdout
