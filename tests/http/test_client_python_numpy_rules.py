"""NumPy's rules on the Python client, beside the values: dtypes that arguments have together, what is refused, and which results share
memory with an argument."""
import pathlib
import sys
import warnings

import numpy
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
import arrayd.numpy  # noqa: E402
from test_client_python import requests, xp  # noqa: E402,F401
from test_client_python_numpy import GIVEN, OLD, cases, same  # noqa: E402

pytestmark = [pytest.mark.release_only, pytest.mark.filterwarnings("ignore")]  # it is the client that is tested here
new = pytest.mark.skipif(OLD, reason="NumPy before 2 has other rules")

# A function that changes nothing. (`all` are three times True, `t` holds everywhere.)
NOTHING = """
np.round(i, 2) | np.round(a) | np.around(i) | i.round() | i.round(1) | np.rint(a) | np.fix(i) | np.trunc(i) | np.floor(i) | np.ceil(i) | np.abs(i) | np.positive(a)
np.pad(a, 0) | np.pad(a, 0, "edge") | np.pad(a, 0, "linear_ramp") | np.pad(v, ((0, 0),)) | np.block(a) | np.block([a]) | np.block([[a]]) | np.tile(a, 1) | np.tile(a, ())
np.clip(a, None, 99) | np.clip(a, -99, 99) | a.clip(None, 9) | np.repeat(a, 1, 0) | v.repeat(1) | np.roll(a, 0) | np.roll(a, 0, 0) | np.roll(a, (), ())
np.nan_to_num(a) | np.nan_to_num(i) | np.nan_to_num(a, copy=False) | np.nan_to_num(i, copy=False) | np.nan_to_num(z, copy=False) | np.concatenate([a])
np.hstack([a]) | np.vstack([a]) | np.dstack([c]) | np.column_stack([a]) | np.concatenate([v], None) | np.stack([a])[0] | np.append(v, []) | np.take(a, [0, 1, 2], 0)
np.where(True, a, a) | np.where(t, a, b) | np.sort(np.sort(a)) | np.unique(v) | np.copy(a) | np.array(a) | np.array(a, "float64") | np.asarray(a) | np.asanyarray(a)
np.ascontiguousarray(a) | np.ascontiguousarray(a.T) | np.asfortranarray(a) | np.asfortranarray(v) | np.asarray(a, order="F") | np.asarray(a.T, order="C")
np.asanyarray(a, order="F") | np.array(a, order="F") | np.require(a) | np.require(a, None, ["F"]) | np.require(a.T, None, "C") | np.require(a, None, "O")
np.require(a[1:], None, "O") | np.tril(a, 9) | np.triu(a, -9) | np.delete(a, [], 0) | np.insert(a, [], 0, 0) | np.broadcast_to(a, (3, 4)) | np.compress(all, a, 0)
np.extract(t, a) | np.interp(v, v, v) | np.ravel(a) | np.reshape(a, (3, 4)) | np.transpose(v) | np.transpose(a) | np.swapaxes(a, 0, 0) | np.moveaxis(a, 0, 0)
np.rollaxis(a, 0) | np.squeeze(a) | np.expand_dims(a, 0) | np.expand_dims(a, ()) | np.flip(a, ()) | np.rot90(a, 0) | np.rot90(a, 2) | np.fliplr(a) | np.real(a) | np.real(z)
np.imag(a) | np.imag(z) | np.conj(a) | np.conj(z) | a.conj() | z.conj() | np.real_if_close(a) | np.real_if_close(z)
np.sum(a, ()) | np.max(a, axis=()) | np.mean(a, ()) | np.any(m, ()) | np.atleast_1d(a) | np.atleast_2d(a) | np.atleast_3d(c) | np.atleast_1d(a, a)[1]
np.broadcast_arrays(a, a)[0] | np.broadcast_arrays(a)[0] | np.meshgrid(v)[0] | np.meshgrid(v, copy=False)[0] | np.meshgrid(v, w, sparse=True, copy=False)[0]
np.meshgrid(v, w)[0] | np.split(v, 1)[0] | np.array_split(v, 1)[0] | np.hsplit(a, 1)[0] | np.vsplit(a, 1)[0] | np.diag(a) | np.diagonal(a) | np.resize(a, (3, 4))
np.partition(v, 0) | np.sort_complex(z) | np.unwrap(v) | np.select([t], [a]) | np.select([True], [a]) | np.piecewise(a, [m], [lambda x: x, lambda x: x])
np.choose(0, [a]) | np.einsum("ij", a) | np.einsum("ji", a) | np.einsum("ij->ji", a) | np.einsum("ii->i", s) | np.einsum("...->...", a) | np.fft.fftshift(a, ())
np.fft.fftshift(v[:1]) | np.dot(a, 1) | np.multiply(a, 1) | a.astype(a.dtype) | a.astype(a.dtype, copy=False) | a.copy() | a.flatten() | a.ravel() | a.reshape(3, 4)
a.T.ravel() | a.T.flatten() | a.ravel("F") | a.ravel("K") | a.T.ravel("F") | a.T.ravel("K") | a.T.ravel("A") | c.transpose(1, 0, 2).ravel("K") | a.T.flatten("K")
a.view() | a.real | z.real | z.imag | a.squeeze() | a.transpose() | a.take([0, 1, 2], 0) | a.swapaxes(0, 1) | a.diagonal() | a[...] | a[()] | a[None] | a[[0, 1, 2]]
a[t] | a[np.arange(3)] | v[::-1] | abs(i) | +a | a ** 1 | a + 0 | np.full_like(a, a) | np.full((3, 4), a) | np.r_[v] | np.c_[a] | np.average(a[None], 0)
np.lib.stride_tricks.sliding_window_view(v, 1).shape | np.maximum(a, a) | np.logical_or(m, m) | np.gradient(v) | np.cumsum(v[:1]) | np.vander(v, 1)
"""


def tried(use, np, given):
    """What it gives; what writing to that changes; and whether a change of the arguments changes it."""
    def result():
        here = {k: np.asarray(v.copy()) for k, v in given.items()}
        return here, eval(use, {"np": np, "all": [True] * 3, "t": np.asarray(numpy.full((3, 4), True)), **here})  # noqa: S307

    here, r = result()
    if not hasattr(r, "dtype"):
        return r
    before = numpy.array(r)
    try:
        r[...] = ~r if r.dtype == bool else 1 - r
        written = [k for k, v in here.items() if not numpy.array_equal(numpy.asarray(v), given[k])]
    except ValueError:
        written = "it is not written to"
    here, r = result()
    for v in here.values():
        v[...] = ~v if v.dtype == bool else 1 - v
    return before, written, bool((numpy.asarray(r) != before).any())


@new
@pytest.mark.parametrize("use", cases(NOTHING))
def test_which_results_share_memory(xp, use, monkeypatch):  # noqa: F811
    monkeypatch.setattr(arrayd.numpy, "_default", xp)
    want = tried(use, numpy, GIVEN)
    got = tried(use, arrayd.numpy, GIVEN)
    if not isinstance(want[0], numpy.ndarray):
        assert got == want
        return
    assert got[1:] == want[1:]
    numpy.testing.assert_allclose(got[0], want[0], rtol=1e-11)


U = numpy.array([0, 1, 2, 250], "uint8")
I8 = numpy.array([-3, 0, 1, 3], "int8")
I = numpy.arange(4)  # noqa: E741
F = numpy.array([0.5, -1, 2, numpy.nan], "float32")
ARRAYS = {"u": U, "i8": I8, "i": I, "f": F, "m": I > 1, "a": numpy.arange(12.0).reshape(3, 4), "k": numpy.arange(12, dtype="uint8").reshape(3, 4) + 240}
RULES = """
np.clip(i, .5, 2.5) | np.clip(u, .5, 2.5) | np.clip(u, -1, 300) | np.clip(u, 3, None) | np.clip(u, None, 2.5) | np.clip(i8, i8 - 1, 2.0) | np.clip(f, 0, 1.5)
np.clip(f, i, None) | np.clip(i, f, 3) | np.clip(m, False, True) | np.clip(m, 0, 1) | i.clip(.5, 2.5) | u.clip(1) | i.clip(max=1.5) | np.clip(u, 300, None)
np.clip(i8, np.int64(-1), np.float32(1)) | np.clip(u, [0.5], [2, 1, 1, 1]) | np.clip(m, None, None) | np.clip(i, 3, 1) | np.clip(i, 0.5, 2.5, out=np.zeros(4))
np.clip(i, 0.5, 2.5, out=np.zeros(4, "int64")) | np.clip(i, i - 1, np.zeros((2, 1)) + 1.5)
np.average(u, weights=u) | np.average(k, 0, u[:3] + 1) | np.average(k, weights=k, returned=True) | np.average(u, weights=[1, 2, 1, 200]) | np.average(f[:3], weights=i[:3])
np.average(f[:3], weights=f[:3]) | np.average(m, weights=u) | np.average(a, 1, [1, 2, 3, 4], True) | np.average(a, -1, [1, 2, 3, 4], keepdims=True)
np.average(a, (0, 1), a) | np.average(a, (1, 0), a.T) | np.average(a, 0, a, True, keepdims=True) | np.average(i, weights=[1, -1, 0, 0])
np.average(a, 0, [[0, 1, 1, 1]] * 3) | np.average(a, 0, [1, -1, 0]) | np.average(a, 1, [1, 2, 3]) | np.average(a, weights=[1, 2, 3]) | np.average(a, 0, returned=True)
np.piecewise(a, [a < 5, a >= 5], [lambda x: x - x.mean(), lambda x: x / x.max()]) | np.piecewise(a, [a > 99], [lambda x: x.max(), -1]) | np.piecewise(i, i > 1, [7, 8])
np.piecewise(i, [i > 1, i < 1], [1, 2, 3, 4]) | np.piecewise(a, [a > 1], [lambda x, y, z=0: x + y + z, 0], 2, z=3) | np.piecewise(i, [i > 1], [0.5, lambda x: x / 2])
np.power(2, i8) | 2 ** i8 | i ** i8 | i ** -1 | np.power(i, i8) | 2.0 ** i8 | f ** i8 | u ** u | np.power(i, np.int8(-2)) | i ** [1, -1, 0, 2] | i8 ** np.array([2, 0, 1, 3])
np.select([i > 1], [i, i]) | np.select([], []) | np.select([i > 1, i > 0], [f, 2.0]) | np.select([i], [i]) | np.select([i > 1], [u], 3) | np.select([i > 1], [u], 0.5)
np.select([True, False], [1, 2]) | np.select([i > 1], [np.zeros((2, 1))], 1)
np.copyto(i, 1.5) | np.copyto(i, f) | np.copyto(f, a[0]) | np.copyto(f, a[0], casting="safe") | np.copyto(i8, i, "equiv") | np.copyto(i8, 300) | np.copyto(u, 300, where=i > 1)
np.copyto(f, 1.5, casting="no") | np.copyto(m, 1) | np.copyto(i8, True) | np.copyto(i, f[:1], casting="unsafe") | np.copyto(i, 1, "nonsense") | np.copyto(i8, i, where=m)
np.add(f, 1, out=f, casting="safe") | np.add(a, 1, out=a[0]) | np.add(i, 1, out=f, casting="safe") | np.concatenate([f, f], dtype="int8") | np.concatenate([f[:2]], dtype="int8", casting="unsafe")
np.hstack([f, f], dtype="int8") | np.vstack([f, f], dtype="float32", casting="no") | np.stack([f, f], dtype="int8") | f.astype("int8", casting="safe") | np.add(f, 1, dtype="int8")
np.sum(x=a) | np.sum(arr=a) | np.clip(arr=a, a_min=0, a_max=1) | np.sort(x=a) | np.round(x=a) | np.fix(z=a) | np.reshape(b=a, shape=3) | np.take(arr=a, indices=[0]) | np.tile(a=a, reps=2)
np.max(b=a) | np.mean(axis=0) | np.roll(x=a, shift=1) | np.isclose(x=a, b=a) | np.diag(k=1) | np.lib.stride_tricks.sliding_window_view(v=a, window_shape=2) | np.nan_to_num(a=a)
np.lib.stride_tricks.sliding_window_view(i, 2, nonsense=True) | np.ndarray((2,), float, nonsense=1) | np.reshape(a, 12, "X") | np.compress(cond=m, a=i) | np.cumsum(b=i)
u == -1 | u > -1 | u < 300 | u != 10**30 | i < 2**63 | -1 < u | u / -1 | u / 300 | np.equal(u, -1) | u + 300 | np.maximum(u, -1)
np.rint(i) | np.rint(m).astype(int) | np.round(i) | np.round(f) | np.round(a, 1.5) | np.sinc(f.astype("float16")) | np.deg2rad(a * 1j) | np.fabs(a * 1j)
np.max(i, initial=3.5) | np.max(i, initial=9.5) | np.max(m, initial=3) | np.max(u, initial=300) | np.sum(i8, initial=1.5) | np.sum(f[:3], initial=np.float64(1)) | np.max(i8, initial=2, where=i8 < 0)
np.sum(i[2], axis=0) | np.sum(np.array(3), axis=0) | np.max(np.array(3), axis=-1) | np.argmax(np.array(3), axis=0) | np.all(np.array(3), axis=0) | np.argmax(a, (0, 1)) | np.sum(np.array(3), axis=1)
np.asarray([1 + 2j], float) | np.array(1 + 2j, dtype=int) | np.array([1j], bool) | np.zeros(2.5) | np.zeros((2.0, 3)) | np.eye(2.5) | np.identity(3.0) | np.sqrt(i, dtype="int64") | np.add(i, 1, dtype="int8", casting="unsafe")
np.take(a, [True, False], 1) | np.take(a, []) | np.permute_dims(a) | np.block((a, a)) | np.asfortranarray(3.0) | np.gradient(m) | np.gradient(u, u[:4]) | np.gradient(u[::-1])
np.add(i[1], 1, out=np.zeros(())) | np.sum(u, out=np.zeros(())) | np.sum(i, out=np.array(0))
np.isposinf(a * 1j) | np.putmask(a, [True], 1) | np.reshape(a, (3.0, 4)) | np.tile(i, 1.5) | np.tile(i, -1) | np.repeat(i, 1.5) | np.repeat(i, [1, 0, 2.0, 1]) | np.repeat(i, [True, False, True, True]) | np.repeat(i, f)
np.take_along_axis(i, m, 0) | np.tril(a, None) | np.indices((2.5,)) | np.indices((-1,)) | np.split(i, [1.5]) | np.transpose(i, 0) | np.pad(i, 0.5) | np.heaviside(a * 1j, 1)
np.heaviside(f, 2) | np.heaviside(u, f[:1]) | np.logaddexp2(m, f) | np.logaddexp2(f, 300) | np.trapezoid(a, a * 2, axis=0) | np.trapezoid([1, 2, 3, 4], a) | np.compress(a > 1, a)
np.mean(i8, dtype=int) | np.mean(a, 0, "int8") | np.mean(f[:3], dtype="int64") | np.mean(i, dtype=int, where=m) | np.nanmean(i, dtype=int) | np.nanmean(f, dtype=int)
np.var(i, dtype=int) | np.var(a, 0, int) | np.var(i, dtype=int, where=m) | np.nanvar(f, dtype=int) | np.var(a, 0, complex) | np.std(i, dtype="int8") | np.std(a, 0, int)
np.var(a, 0, ddof=3) | np.std(a[:1], 0, ddof=1) | np.var(i, ddof=9) | np.nanvar(i, ddof=4) | np.nanvar(a, 0, ddof=3) | np.var(i[:0]) | np.std(np.zeros(2), ddof=2)
np.linspace(-1, 1, 4, dtype=int) | np.linspace(-3.7, 2.2, 9, dtype="int8") | np.linspace(np.float32(0), np.float32(1), 5) | np.linspace(np.float32(0), 1, 5)
np.linspace(np.float32(0), np.float64(1), 5) | np.linspace(-1, 0, 3, False, dtype="int64") | np.add(i, u.astype("uint64"), out=i, where=m) | np.add(f, 1, out=i, where=m)
np.sum(np.full(3, 2.0**24 + 2, "float32"), out=np.zeros(())) | np.cumsum(np.full(3, 2.0**24 + 2, "float32"), 0, None, np.zeros(3)) | np.sum(f[:3], 0, None, np.array(0))
np.mean(np.full(3, 2.0**24 + 2, "float32") + f[:3], 0, None, np.zeros(())) | np.prod(i8, out=np.zeros(())) | np.sum(u.astype("uint64"), out=np.array(0, "int8"))
np.pad(i, (1, 0), "reflect", reflect_type="odd") | np.pad(a, 2, "symmetric", reflect_type="odd") | np.pad(i, 3, "reflect", reflect_type="even")
np.tensordot(a=a, b=a, axes=2) | np.heaviside(a, 1, out=a) | np.tensordot(a, b=a.T, axes=1)
"""


@new
@pytest.mark.parametrize("case", cases(RULES))
def test_rules(xp, case, monkeypatch):  # noqa: F811
    """NumPy's value, of its dtype, or its error; and what is written to has NumPy's values then."""
    monkeypatch.setattr(arrayd.numpy, "_default", xp)
    theirs, ours = {k: v.copy() for k, v in ARRAYS.items()}, {k: xp.asarray(v.copy()) for k, v in ARRAYS.items()}
    try:
        with numpy.errstate(all="ignore"):
            want = eval(case, {"np": numpy, **theirs})  # noqa: S307
    except (TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError) as e:
        kind = next(k for k in (OverflowError, ZeroDivisionError, IndexError, ValueError, TypeError) if isinstance(e, k))
        with pytest.raises(kind):
            eval(case, {"np": arrayd.numpy, **ours})  # noqa: S307
    else:
        same(eval(case, {"np": arrayd.numpy, **ours}), want, case)  # noqa: S307
    for k, v in theirs.items():
        numpy.testing.assert_array_equal(numpy.asarray(ours[k]), v, err_msg=f"{case}: {k}")


def test_what_is_not_waited_for(xp, api):  # noqa: F811
    """Exponents and weights on the server are not looked at: what NumPy refuses then gives 0, and NaN or an infinity."""
    i = xp.asarray([2, 1, -1, 5]).compute()
    exponents, weights = (xp.asarray(v).compute() - 3 for v in ([2, 1, 0, 4], [2.0, 4, 2, 4]))
    before = requests(api)
    power, mean = i ** exponents, xp.average(i, weights=weights)
    assert requests(api) == before
    assert power.tolist() == [0, 1, -1, 5]
    assert not numpy.isfinite(mean.item())


@pytest.mark.parametrize("how", [{"all": "raise"}, {"divide": "raise"}, {"over": "call"}, {"invalid": "print"}, {"under": "log"}])
def test_floating_point_errors_are_not_told(xp, how, monkeypatch):  # noqa: F811
    monkeypatch.setattr(arrayd.numpy, "_default", xp)
    for np in (xp, arrayd.numpy):
        with pytest.raises(NotImplementedError, match="does not tell of divisions by 0"):
            np.errstate(**how)
        with pytest.raises(NotImplementedError):
            np.seterr(**how)
        with np.errstate(all="ignore"), np.errstate(divide="warn"):
            assert (1 / np.asarray([0.0])).tolist() == [numpy.inf]
    with warnings.catch_warnings(), numpy.errstate(all="warn"):
        assert arrayd.numpy.seterr(all="ignore")["divide"] == "warn"
        arrayd.numpy.seterr(all="warn")
