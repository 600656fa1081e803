"""clients/python: what is written to shared arrays, NumPy's arrays and numbers beside arrayd's, numbers that are hard to write,
and indices. NumPy says what is right."""
import asyncio
import copy
import math
import operator
import os
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

from conftest import until  # noqa: E402
from test_client_python import PACKAGE, arrayd, requests, same, xp  # noqa: F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here

N = np.arange(12.0).reshape(3, 4)


# --- shared arrays ---


def region(f, xp):
    f[1:, ::2] = 7


def element(f, xp):
    f[2, -1] = 7


def everything(f, xp):
    f[...] = xp.asarray(N[::-1])


def mask(f, xp):
    f[f > 5] = 0


def mask_of_rows(f, xp):
    f[xp.asarray([True, False, True])] = 5


def mask_with_values(f, xp):
    f[f > 9] = xp.asarray([50.0, 60.0])


def places(f, xp):
    f[xp.asarray([0, 2]), xp.asarray([1, 3])] = 9


def some_rows(f, xp):
    f[[0, 2]] = 4


def added(f, xp):
    f += 1


def of_itself(f, xp):
    f *= xp.flip(f, axis=0) - f


def product(f, xp):
    f @= xp.asarray(np.ones((4, 4)))


@pytest.mark.parametrize("write", [region, element, everything, mask, mask_of_rows, mask_with_values, places, some_rows, added,
                                   of_itself, product])
@pytest.mark.parametrize("by", ["name", "id", "pickle"])
def test_writing_to_a_shared_array(xp, write, by):  # noqa: F811
    saved = xp.save("shared", N)
    ref = saved.id
    f = {"name": lambda: xp.array("shared"), "id": lambda: xp.array(ref), "pickle": lambda: pickle.loads(pickle.dumps(saved))}[by]()
    before, doubled, view, same_here, copied = xp.array("shared"), f * 2, f[1], f[...], copy.deepcopy(f)
    assert np.asarray(f).tolist() == np.asarray(before).tolist() == N.tolist()
    want = N.copy()
    write(f, xp)
    if write in (mask_of_rows, mask_with_values, places):
        write_numpy = {mask_of_rows: lambda: want.__setitem__([0, 2], 5), mask_with_values: lambda: want.__setitem__(want > 9, [50, 60]),
                       places: lambda: want.__setitem__(([0, 2], [1, 3]), 9)}[write]
        write_numpy()
    elif write is product:
        want = want @ np.ones((4, 4))
    else:
        write(want, np)
    same(f, want)
    same(xp.array("shared"), want)  # who asks now
    same(before, want)  # and who had it already, and had looked at it
    assert xp.array("shared").id == f.id == ref
    for kept, value in ((doubled, N * 2), (view, want[1]), (same_here, want), (copied, N)):
        same(kept, value)
    same_here[0] = 3  # a view of it
    want[0] = 3
    copied += 1
    same(xp.array("shared"), want)
    xp.delete("shared")


@pytest.mark.parametrize("n", [3, 20000])
def test_a_pickle_is_a_reference_and_nothing_else_is(xp, n):  # noqa: F811
    """Neither copies and expressions of what is pickled, nor what a pickled view is of."""
    x = (xp.zeros(n) + 0).compute()
    copied, made, view = x.copy(), x + 1, x[...]
    of_view = pickle.loads(pickle.dumps(view))
    of_view[0] = 4
    assert (float(x[0]), float(view[0]), float(of_view[0])) == (0, 0, 4)
    again = pickle.loads(pickle.dumps(x))
    again[0] = 5
    assert [float(v[0]) for v in (x, again, view, copied, made, of_view)] == [5, 5, 5, 0, 1, 4]
    x[1] = 6
    assert (float(again[1]), float(copied[1])) == (6, 0)
    xp.delete(x), xp.delete(of_view)


def test_writes_in_place_go_together(xp, api, daemon):  # noqa: F811
    """With the next request, or after some milliseconds, and before anything is read by whoever in this process."""
    xp.save("shared", np.zeros(100000))
    f, want = xp.array("shared"), np.zeros(100000)
    before = requests(api)
    for x in (f, want):
        for i in range(50):
            x[i] = i
        x += 1
        x[5:10] = x[1:6] * 2
    same(xp.array("shared"), want)
    assert requests(api) < before + 12  # on a slow machine they may go in parts
    old, element, view, kept = f + 1, f[3], f[:4], f[:3] * 2
    f[2:5] = kept  # which keeps its values, as the others do
    f[3] = element
    for x, value in ((old, want + 1), (element, 4.0), (view, [1, 2, 2, 4]), (kept, [2, 4, 6])):
        same(x, np.asarray(value, np.float64))
    with arrayd.connect(f"http://127.0.0.1:{daemon.port}") as other:
        theirs = other.array("shared")
        f[0] = 70
        assert float(theirs[0]) == 70
        theirs[0] = 71
        assert float(f[0]) == 71
    f[0] = 5
    until(lambda: api.post("/v1/evaluate", {"expr": "shared[0]", "inline": True}).json()["value"] == 5)
    xp.delete("shared")


def test_an_error_of_a_write_in_place_is_told_at_the_next_call(xp):  # noqa: F811
    """The writes before and after it are made."""
    xp.save("shared", np.zeros(10))
    f = xp.array("shared")
    for pause in (0, 0.1):
        f[0] = 1 + pause
        f[1:] = xp.take(f, xp.asarray(np.full(9, 500)))
        f[2] = 3 + pause
        time.sleep(pause)
        with pytest.raises(IndexError, match=rf"in the assignment at .*test_client_python_values.py:"):
            xp.info()
        same(f, np.array([1 + pause, 0, 3 + pause, *[0] * 7], np.float64))
    xp.delete("shared")


def settled(job):
    """A step further."""
    was = job.refresh().step
    while job.refresh().step == was:
        time.sleep(0.001)


def test_what_others_write_is_seen(xp, daemon):  # noqa: F811
    """Of small arrays, too, whose values are kept elsewhere; and a copy is of its own moment."""
    with arrayd.connect(f"http://127.0.0.1:{daemon.port}") as other:
        pickled, number = xp.asarray([1.0, 2.0]), xp.asarray(3.0)  # whose values are here
        there = pickle.loads(pickle.dumps(pickled)), pickle.loads(pickle.dumps(number))
        named = xp.save("shared", [1.0, 2.0])
        for mine, others in ((xp.array("shared"), other.array("shared")), (xp.array(named.id), other.array(named.id)),
                             (pickled, there[0]), (there[0], pickled)):
            same(mine, [1.0, 2.0]), same(mine[0], 1.0)
            copies = [copy.copy(mine), copy.deepcopy({"x": mine})["x"], xp.asarray(mine, copy=True)]
            others[0] = 7
            same(mine, [7.0, 2.0]), same(mine[0], 7.0)
            assert float(mine[0]) == 7 and "7." in repr(mine)
            for x in copies:
                same(x, [1.0, 2.0])
                x[1] = 9
                same(mine, [7.0, 2.0]), same(x, [1.0, 9.0])
            others[0] = 1
        there[1][...] = 4
        assert float(number) == 4 and int(number + 1) == 5
        xp.delete("shared"), xp.delete(pickled), xp.delete(number)
    u = xp.asarray([0.0, 0.0])
    job = xp.program(["u += 1"], steps=10**12, u=u)
    seen = []
    for _ in range(3):
        settled(job)
        copied = copy.copy(u)
        seen.append(float(u[0]))
    job.cancel()
    assert seen == sorted(set(seen)) and float(copied[0]) < float(u[0]) and np.asarray(copied)[1] == float(copied[1])


def test_copies_go_with_their_users(xp, api):  # noqa: F811
    before = len(list(xp.arrays()))
    x = xp.arange(100000).compute()
    copies = [copy.copy(x), copy.deepcopy(x), copy.deepcopy([x, x])]
    assert copies[2][0] is copies[2][1] and len(list(xp.arrays())) == before + 1
    copies[1][0] = 5
    assert int(x[0]) == 0 and int(copies[0][0]) == 0 and int(copies[1][0]) == 5
    del x, copies
    xp.release()
    assert len(list(xp.arrays())) == before

    async def steps():
        async with arrayd.aconnect(xp._transport.url) as axp:
            f = await axp.save("shared", [1.0, 2.0])
            x = copy.deepcopy(f)
            await x.compute()
            await f.assign(0, 7.0)
            assert await x.tolist() == [1, 2] and await f.tolist() == [7, 2] and await f[0].item() == 7
            await axp.delete("shared")

    asyncio.run(steps())


def test_a_forked_child_writes_to_a_copy(xp):  # noqa: F811
    x = (xp.zeros((2000,)) + 1).compute()
    child = os.fork()
    if child == 0:
        try:
            x[0] = 5.0
            os._exit(0 if float(x[0]) == 5 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert float(x[0]) == 1


def test_what_a_program_writes_is_seen(xp):  # noqa: F811
    """Also by who looked at it meanwhile; and numbers are written to as well."""
    u, k = xp.zeros((3,)), xp.asarray(0.0)
    kept = k + 0
    job = xp.program(["u += 1", "k += 2"], steps=10**9, u=u, k=k)
    while not float(k):
        np.asarray(u)
    job.cancel().wait()
    assert np.asarray(u).tolist() == [job.step] * 3 and float(k) == 2 * job.step > 0 and float(kept) == 0


# --- NumPy's arrays and numbers ---


def test_numpy_arrays_beside(xp, api):  # noqa: F811
    a = np.arange(3)
    x = xp.arange(3).compute()
    for op in ("__add__", "__sub__", "__mul__", "__truediv__", "__floordiv__", "__mod__", "__pow__", "__and__", "__or__", "__xor__",
               "__lshift__", "__rshift__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
        f = getattr(__import__("operator"), op)
        for got, want in ((f(x, a + 1), f(a, a + 1)), (f(a, x + 1), f(a, a + 1)), (f(x, (a + 1).tolist()), f(a, a + 1)),
                          (f(np.int64(2), x + 1), f(np.int64(2), a + 1)), (f(x, np.int64(2)), f(a, np.int64(2)))):
            assert isinstance(got, arrayd.Array), op
            same(got, want)
    m = np.arange(4.0).reshape(2, 2)
    for got in (xp.asarray(m) @ m, m @ xp.asarray(m)):
        assert isinstance(got, arrayd.Array)
        same(got, m @ m)
    y = x
    y += a
    assert y is x
    same(y, a + a)
    with pytest.raises(TypeError):  # into this process' memory: only by np.asarray(x)
        a += x
    z = xp.zeros((3,), dtype="int64")
    w = xp.arange(3) + a
    z[...] = a
    a[0] = 77  # it is the caller's still, and what was made of it has the values of then
    same(w, np.array([0, 2, 4]))
    same(z, np.array([0, 1, 2]))
    big = xp.zeros((100000,)).compute()
    before = requests(api)
    z = big + np.ones(100000)
    assert requests(api) == before  # nothing has come, nothing has gone
    assert float(z.sum()) == 100000
    for f in (np.sin, np.add):
        assert isinstance(f(big, *[big] * (f.nin - 1)), arrayd.Array)
    assert requests(api) == before + 2  # z, and its sum


def test_numpy_functions_that_call_methods(xp):  # noqa: F811
    x = xp.asarray(N)
    for f in (np.sum, np.prod, np.max, np.min, np.mean, np.std, np.var, np.any, np.all):
        for more in ({}, {"axis": 1}):
            got = f(x, **more)
            assert isinstance(got, arrayd.Array), f
            same(got, f(N, **more))
    same(np.std(x, ddof=1), np.std(N, ddof=1))
    with pytest.raises(TypeError):
        np.sum(x, out=np.empty(()))


def test_numpy_functions_do_not_download(xp, api):  # noqa: F811
    x = xp.random((200, 100)).compute()
    before = requests(api)
    for f in (lambda: np.clip(x, 0, 1), lambda: np.where(x > 0, x, 0), lambda: np.concatenate([x, x]), lambda: np.cumsum(x),
              lambda: np.zeros_like(x), lambda: np.linalg.norm(x), lambda: np.argmax(x), lambda: np.sin(x), lambda: np.isnan(x)):
        assert isinstance(f(), arrayd.Array)
    assert requests(api) == before
    for f in (np.clip, xp.clip):
        same(f(x, 0.25, 0.75), np.clip(x.numpy(), 0.25, 0.75))
    assert isinstance(np.median(x, 0), arrayd.Array)
    assert requests(api) > before


def test_numbers_as_text(xp):  # noqa: F811
    x = xp.mean(xp.asarray(N))
    assert f"{x:.3f}" == "5.500" and round(x, 2) == 5.5 and round(x) == 6 and f"{x:>8}" == "     5.5" and f"{x}" == str(x)
    assert f"{xp.asarray(7):05d}" == "00007"
    with pytest.raises(TypeError):
        f"{xp.asarray(N):.3f}"
    with pytest.raises(TypeError):
        round(xp.asarray(N))


def test_integers_that_json_has_not(xp):  # noqa: F811
    big = 2**60 + 1
    u = xp.asarray([0, 1])
    assert np.asarray(xp.evaluate("k + 0*u", u=u, k=big)).tolist() == [big, big]
    assert int(xp.evaluate("k", k=-big)) == -big and int(xp.evaluate("k", k=np.uint64(2**64 - 1))) == 2**64 - 1
    a = xp.arange(2**60, 2**60 + 20000)
    assert a.shape == (20000,) and int(a[1]) == big and int(a[-1]) == 2**60 + 19999
    assert xp.arange(np.int64(3)).dtype == xp.int64 and xp.arange(2**62, -2**62, -2**61).shape == (4,)
    assert np.array_equal(xp.random((3,), seed=big), xp.random((3,), seed=np.int64(big)))
    low = np.asarray(xp.random((8,), distribution="integers", seed=1, low=big, high=big + 2, dtype="int64"))
    assert set(low.tolist()) <= {big, big + 1}
    assert np.asarray(xp.shift(u, [1], boundary="constant", value=big)).tolist() == [1, big]
    assert np.asarray(xp.full((2,), np.int64(big))).tolist() == [big, big]
    assert int(xp.evaluate("u + 0", u=xp.asarray(big))) == big


def test_attributes_of_every_kind(xp):  # noqa: F811
    x = xp.asarray(N)
    same(xp.shift(x, (0, 1), boundary="constant", value=math.nan), np.concatenate([N[:, 1:], np.full((3, 1), np.nan)], axis=1))
    for edge in (math.inf, np.float32(-math.inf)):
        same(xp.shift(x, [0, 1], boundary="constant", value=edge)[:, -1], np.full(3, float(edge)))
    same(xp.std(x, correction=np.int64(1)), N.std(ddof=1))
    same(xp.std(x, correction=np.float32(1)), N.std(ddof=1))
    padded = np.pad(N, 1, constant_values=7.0)
    inner = (slice(1, -1), slice(1, -1))
    row = (padded[2:, 1:-1] - 2 * N + padded[:-2, 1:-1]) / 4
    column = (padded[1:-1, 2:] - 2 * N + padded[1:-1, :-2]) / 9
    for h in (np.array([2.0, 3.0]), (2, 3), [np.float64(2), 3], xp.asarray([2.0, 3.0])):
        same(xp.laplacian(x, spacing=h, boundary="constant", value=7), row + column)
    assert padded[inner].shape == N.shape
    same(xp.forward_diff(x, 1, boundary="constant", value=7.0), padded[1:-1, 2:] - N)
    same(xp.back_diff(x, 1, boundary="constant", value=7.0), N - padded[1:-1, :-2])
    same(xp.central_diff(x, 1, boundary="constant", value=7.0, spacing=np.float64(0.5)), padded[1:-1, 2:] - padded[1:-1, :-2])
    same(xp.laplacian(x, spacing="array"), np.asarray(xp.laplacian(x)))
    same(xp.evaluate("u + v", u=np.ones(3), v=[1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0]))
    same(xp.lerp(0.0, x, 0.5), N / 2)
    same(xp.lerp(0.0, 1.0, x), N)
    with pytest.raises(TypeError):
        xp.lerp(0.0, 1.0, 0.5)


def test_values_that_do_not_fit(xp):  # noqa: F811
    for values, dtype in (([300], "uint8"), ([[0], [-1]], "uint64"), ((2**31,), "int32"), (-129, "int8")):
        with pytest.raises(OverflowError):
            xp.asarray(values, dtype=dtype)
    same(xp.asarray([255, 0], dtype="uint8"), np.array([255, 0], np.uint8))
    same(xp.asarray(np.array([300]), dtype="uint8"), np.array([300]).astype(np.uint8))  # as astype


@pytest.mark.parametrize("more", [{}, {"distribution": "normal"}, {"distribution": "integers", "low": 0, "high": 2**62}])
def test_random_numbers(xp, more):  # noqa: F811
    fresh = [xp.random(8, **more) for _ in range(3)]
    assert len({tuple(x.tolist()) for x in fresh}) == 3
    assert fresh[0].tolist() == fresh[0].tolist()
    for seed in (0, 7, 2**64 - 1):
        assert xp.random(8, seed=seed, **more).tolist() == xp.random((8,), seed=seed, **more).tolist()


def test_numbers_that_are_bound_keep_their_dtype(xp):  # noqa: F811
    f = xp.ones((2,), dtype="float32")
    assert xp.evaluate("f*k", f=f, k=xp.asarray(2.0)).dtype == xp.float64
    assert xp.evaluate("f*k", f=f, k=2.0).dtype == xp.float32
    assert xp.evaluate("k", k=xp.asarray(3, dtype="int8")).dtype == xp.int8
    assert np.isnan(float(xp.evaluate("k", k=xp.asarray(-math.nan))))
    assert complex(xp.evaluate("k", k=xp.asarray(1 + 2j))) == 1 + 2j


REAL = ["int8", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", [*REAL, "complex64", "complex128"])
def test_numpy_scalars_have_a_dtype(xp, dtype):  # noqa: F811
    """As in NumPy 2, of whatever version is beside it here: what an array of one element would give."""
    a = np.array([1, 2, 3], dtype)
    for other in (*REAL, "complex64", "complex128"):
        k = np.dtype(other).type(2)
        one = np.array([2], other)
        for f in (operator.add, operator.mul, operator.truediv, operator.eq, np.ndarray.__pow__):
            g = operator.pow if f is np.ndarray.__pow__ else f
            same(g(xp.asarray(a), k), g(a, one))
            same(g(k, xp.asarray(a)), g(one, a))
        condition = np.array([True, False, True])
        same(xp.where(xp.asarray(condition), xp.asarray(a), k), np.where(condition, a, one))
        same(xp.where(xp.asarray(condition), k, 1), np.where(condition, one, np.array([1], other)))
        assert xp.full((2,), k).dtype == np.dtype(other) and xp.evaluate("x*k", x=xp.asarray(a), k=k).dtype == np.result_type(a, one)
        if dtype in REAL and other in REAL:
            same(xp.maximum(xp.asarray(a), k), np.maximum(a, one))
            same(xp.clip(xp.asarray(a), k, np.dtype(other).type(3)), np.clip(a, one, one + one.dtype.type(1)))
        x = xp.asarray(a)
        if np.can_cast(np.result_type(a, one), dtype, "same_kind"):
            x += k
            same(x, (a + one).astype(dtype))
            x[1:] = k
            assert x.dtype == a.dtype and x[1:].tolist() == [2, 2]
        else:
            with pytest.raises(TypeError):
                x += k
            assert x.tolist() == a.tolist()


def test_scalars_that_do_not_fit(xp):  # noqa: F811
    x = xp.asarray([1, 200], dtype="uint8")
    same(x + np.int64(300), np.array([301, 500]))
    same(xp.clip(x, np.int64(0), np.int64(300)), np.array([1, 200]))
    same(xp.lerp(xp.asarray([0.0], dtype="float32"), np.float64(1), 0.1), np.array([0.1]))
    same(x + np.True_, np.array([2, 201], np.uint8))
    assert xp.sum(xp.asarray([0.1], dtype="float32") == np.float64(0.1)).item() == 0
    assert xp.sum(xp.asarray([0.1], dtype="float32") == 0.1).item() == 1
    for bad in (np.longdouble(1), np.str_("a"), np.datetime64("2020-01-01")):
        with pytest.raises(TypeError):
            x + bad


BRAINS = """
import sys
sys.modules["ml_dtypes"] = None  # it is not there
import numpy as np
import arrayd
xp = arrayd.connect(sys.argv[1])
b = xp.bfloat16
f32 = lambda x: np.asarray(xp.astype(x, "float32")).tolist()
assert b.names, "the stand-in"
assert f32(xp.ones((3,), dtype=b)) == [1, 1, 1] and f32(xp.zeros((2,), dtype="bfloat16")) == [0, 0]
x = xp.asarray([1.0, 2.5, -3.0])
y = xp.astype(x, b) * 2
assert y.dtype == b and f32(y) == [2, 5, -6] and np.asarray(y).dtype == b
assert (y + 0.1).dtype == b and (1 - y).dtype == b
# whatever is rounded here is what the server rounds
v = np.concatenate([np.random.default_rng(1).standard_normal(2000) * 10.0 ** np.arange(-40, 40).repeat(25), [np.inf, -np.inf, 3.4e38, -0.0,
                    1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-40, 1e-45, 1e300]])
with np.errstate(over="ignore"):
    here, there = xp.asarray(v, dtype=b), xp.astype(xp.asarray(v), b)
assert np.array_equal(np.asarray(here).view(np.uint16), np.asarray(there.compute()).view(np.uint16))
assert np.isnan(float(xp.full((), np.nan, dtype=b))) and float(xp.full((), 1e300, dtype=b)) == np.inf
assert float(xp.asarray(2.5, dtype=b)) == 2.5 and xp.asarray(2.5, dtype=b).item() == 2.5 and y.tolist() == [2, 5, -6]
assert f"{xp.asarray(2.5, dtype=b):.1f}" == "2.5" and "2.," in repr(y) and bool(xp.asarray(1, dtype=b))
y[0] = 0.5
y[y > 4] = 1
assert f32(y) == [0.5, 1, -6] and f32(xp.sort(y)) == [-6, 0.5, 1] and f32(y[xp.asarray([2, 0])]) == [-6, 0.5]
assert f32(xp.arange(3, dtype=b)) == [0, 1, 2] and f32(xp.eye(2, dtype=b)) == [[1, 0], [0, 1]] and f32(xp.linspace(0, 1, 3, dtype=b)) == [0, .5, 1]
assert f32(xp.ones((2, 2), dtype=b) @ xp.ones((2, 2), dtype=b)) == [[2, 2], [2, 2]]
assert float(xp.evaluate("k", k=xp.asarray(1.5, dtype=b))) == 1.5 and f32(xp.evaluate("y*k", y=y, k=3)) == [1.5, 3, -18]
print("fine")
"""


def test_casts_of_numbers_are_the_servers(xp):  # noqa: F811
    for value, dtype, want in ((-1.5, "uint8", 0), (math.nan, "int32", 0), (1e30, "int32", 2**31 - 1), (-math.inf, "int64", -2**63)):
        t = getattr(xp, dtype)
        for x in (xp.asarray(value), xp.asarray([value]), xp.full((2,), value)):
            assert np.all(np.asarray(xp.astype(x, t)) == want), (value, dtype, x.shape)


def test_several_dtypes_promote_together(xp):  # noqa: F811
    assert xp.result_type(xp.int16, xp.uint16, xp.float32) == np.result_type("int16", "uint16", "float32") == np.float32
    parts = [np.ones(2, t) for t in ("int16", "uint16", "float32")]
    same(xp.concat([xp.asarray(a) for a in parts]), np.concatenate(parts))


def test_bfloat16_without_ml_dtypes(xp, daemon):  # noqa: F811
    done = subprocess.run([sys.executable, "-c", BRAINS, f"http://127.0.0.1:{daemon.port}"], capture_output=True, text=True,
                          env={"PYTHONPATH": str(PACKAGE / "src")}, timeout=60)
    assert done.stdout == "fine\n", done.stderr[-2000:]


# --- indices ---


def test_indices_of_arrays(xp, api):  # noqa: F811
    a = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    x = xp.asarray(a).compute()
    i, j = np.array([0, -1, 1]), np.array([[2], [0]])
    keys = [i, [0, 1, -1], j % 2, (slice(None), i), (..., i), (0, i), (i, 0), (i, i), (i, i, i, i), (slice(None), i, j), (i, slice(None), j),
            (i, slice(None), 0), (slice(None), i, slice(1, None), j), (None, i), (i, None, j), (slice(1), slice(None, None, -1), i), (0, ..., i),
            [[0, 1], [1, 0]], (np.array(1), i), [], (slice(None), [], 1), np.array(1)]
    before = requests(api)
    got = []
    for key in keys:
        ours = tuple(xp.asarray(k) if isinstance(k, np.ndarray) else k for k in key) if isinstance(key, tuple) else \
            xp.asarray(key) if isinstance(key, np.ndarray) else key
        got += [(x[ours], a[np.asarray(key) if isinstance(key, list) and key else key]), (x[key], a[np.asarray(key) if isinstance(key, list) and key else key])]
    assert requests(api) == before  # the server does it
    for k, (ours, theirs) in enumerate(got):
        assert ours.shape == theirs.shape, (keys[k // 2], ours.shape, theirs.shape)
        same(ours, theirs)
    for key in ((i, 9), ([7],), (slice(None), xp.asarray([3])), (slice(None), [-4]), (i, i, i, [9, 0, 0])):
        with pytest.raises(IndexError):
            np.asarray(x[key])
    for key in (np.array([0.5]), (xp.asarray([True] * 99), 0), "a"):
        with pytest.raises((IndexError, TypeError)):
            x[key]


def test_masks_of_every_kind(xp):  # noqa: F811
    x, m = xp.asarray(N), [True, False, True]
    for key in (m, np.array(m), (m,), (np.array(m),), N > 5, (N > 5).tolist()):
        same(x[key], N[np.asarray(key[0] if isinstance(key, tuple) else key)])
        y, want = xp.asarray(N), N.copy()
        y[key] = 1
        want[np.asarray(key[0] if isinstance(key, tuple) else key)] = 1
        same(y, want)
    with pytest.raises(IndexError):
        x[[True, False]]


# --- numbers that follow from numbers that are known ---


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64"])
def test_numbers_that_follow_are_the_servers(xp, dtype):  # noqa: F811
    """They are computed here, with the same bits."""
    from arrayd._known import FUNCTIONS, follows
    kind = np.dtype(dtype).kind
    edges = [0.0, -0.0, 1.5, -2.0, 1e-40, 3e38, np.inf, -np.inf, np.nan, 0.1] if kind == "f" else [0, 1, 3, 7, np.iinfo(dtype).min, np.iinfo(dtype).max]
    values = np.array(edges, dtype)
    found = set()
    for op in FUNCTIONS:
        if op.startswith("bitwise") and kind == "f" or (op == "negative" and kind == "u"):
            continue
        operands = (values,) if op in ("negative", "positive") else (values[:, None], values[None, :])
        with np.errstate(all="ignore"):
            want = np.asarray(getattr(xp, op)(*map(xp.asarray, operands)))
        for at in np.ndindex(want.shape):
            x = getattr(xp, op)(*[xp.asarray(values[k]) for k in at])
            if x._node.args and follows(x._node):
                found.add(op)
                got = np.asarray(x)
                assert got.dtype == want.dtype and (got.tobytes() == want[at].tobytes() or got != got and want[at] != want[at]), (op, [values[k] for k in at])
    assert "add" in found and "multiply" in found


def test_samples_outside(xp):  # noqa: F811
    a, points = xp.asarray(np.arange(12.0).reshape(3, 4)), xp.asarray(np.array([[0.5, 1.0], [-7.0, 0.0], [1.0, 9.0]]))
    same(xp.sample(a, points), np.array([3.0, 0.0, 7.0]))
    same(xp.sample(a, points, boundary="constant"), np.array([3.0, 0.0, 0.0]))
    same(xp.sample(a, points, boundary="constant", value=-2.5), np.array([3.0, -2.5, -2.5]))


@pytest.mark.parametrize("elements", [1000, 300_000])
def test_numpy_s_arrays_are_bound_whatever_their_size(xp, elements):
    """Large ones are uploaded as part of the request that needs them."""
    values = np.arange(float(elements))
    x = xp.zeros(elements)
    assert float(xp.evaluate("sum(a)", a=values)) == values.sum()
    assert xp.explain("a + 1", a=values)["kernels"]
    xp.program(["u = u + b"], steps=2, u=x, b=values).wait(30)
    np.testing.assert_array_equal(np.asarray(x), 2 * values)
    x.write(values, ":")
    np.testing.assert_array_equal(np.asarray(xp.save("kept", values)), np.asarray(x))
    xp.delete("kept")


def test_sort_is_stable_where_that_is_asked_for(xp):
    zeros = np.tile([0.0, -0.0, 1.0], 300)
    for more in ({"stable": True}, {"kind": "stable"}):
        got = np.asarray(xp.sort(xp.asarray(zeros), **more))
        np.testing.assert_array_equal(np.signbit(got), np.signbit(np.sort(zeros, kind="stable")))
    np.testing.assert_array_equal(np.asarray(xp.sort(xp.asarray(zeros))), np.sort(zeros))
