"""NumPy's names on the Python client: the same programs by NumPy, by the namespace, by `arrayd.numpy`, and by NumPy's own functions
called with arrays of the daemon's, which hand over to the namespace."""
import asyncio
import copy
import json
import pathlib
import pickle
import re
import sys
import warnings

import numpy
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
import arrayd.numpy  # noqa: E402
from test_client_python import requests, xp  # noqa: E402,F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here
OLD = numpy.lib.NumpyVersion(numpy.__version__) < "2.0.0"
RNG = numpy.random.default_rng(1)
A = RNG.normal(size=(3, 4))
B = RNG.normal(size=(3, 4))
C = RNG.normal(size=(2, 3, 4))
I = RNG.integers(-5, 9, (3, 4))  # noqa: E741
V = RNG.normal(size=5)
W = RNG.normal(size=5)
N = numpy.where(RNG.random((3, 4)) < 0.3, numpy.nan, A)
Z = A + 1j * B
M = A > 0
S = RNG.normal(size=(4, 4)) + 4 * numpy.eye(4)
F = A.astype("float32")
U = numpy.array([3, 1, 2, 3, 1], numpy.uint8)
GIVEN = {"a": A, "b": B, "c": C, "i": I, "v": V, "w": W, "n": N, "z": Z, "m": M, "s": S, "f": F, "u": U}

# on the server
SERVER = """
np.sum(a, 0) | np.sum(a, axis=1, keepdims=True) | np.sum(f) | np.sum(i) | np.sum(u) | np.sum(m, 1) | np.sum(a, 0, initial=2.0)
np.sum(a, where=m) | np.prod(a, 1) | np.mean(a, 0) | np.mean(i) | np.mean(f, 1, keepdims=True) | np.mean(a, 0, where=m) | np.std(a, 0, ddof=1)
np.var(f, 1) | np.var(a, (0, 1)) | np.max(a, 0) | np.min(a) | np.amax(i, 1) | np.amin(a, -1) | np.max(a, 0, initial=1.0) | np.ptp(a, 0)
np.max(a, initial=0.0, where=m) | np.all(m, 0) | np.any(m) | np.count_nonzero(i, 0) | np.argmax(a) | np.argmin(a, 0) | np.argmax(f, 1)
np.nansum(n, 0) | np.nanmean(n, 1) | np.nanmax(n) | np.nanmin(n, 0) | np.nanstd(n) | np.nanvar(n, 0) | np.nanprod(n, 1) | np.nancumsum(n, 0)
np.nancumprod(n) | np.cumsum(a) | np.cumsum(a, 0) | np.cumprod(f, 1) | np.cumsum(i, axis=1, dtype="float64") | np.diff(a) | np.diff(a, 1, 0)
np.diff(a, 2) | np.diff(v, prepend=0.0) | np.average(a, 0) | np.average(a, 1, weights=[1, 2, 3, 4]) | np.average(a, weights=b)
np.absolute(a) | np.power(a, 2) | np.arctan2(a, b) | np.arcsin(np.clip(a, -1, 1)) | np.arctan(a) | np.conjugate(z) | np.conj(z) | np.real(z)
np.imag(z) | np.imag(a) | np.angle(z) | np.exp2(a) | np.rint(a) | np.round(a) | np.round(a, 2) | np.around(a, 1) | np.round(i, 2) | np.fix(a)
np.trunc(a) | np.floor(f) | np.sign(a) | np.mod(a, 2) | np.fmod(a, 2) | np.remainder(i, 3) | np.divmod(i, 3) | np.deg2rad(a) | np.degrees(f)
np.hypot(a, b) | np.square(i) | np.cbrt(a) | np.fabs(i) | np.maximum(a, 0) | np.fmax(n, a) | np.fmin(a, n) | np.heaviside(a, 0.5) | np.sinc(a)
np.logaddexp(a, b) | np.invert(m) | np.left_shift(i, 1) | np.bitwise_not(i) | np.true_divide(i, 2) | np.copysign(a, b) | np.modf(a)
np.float_power(i * i, 0.5) | np.nan_to_num(n) | np.nan_to_num(n, nan=7.0) | np.isclose(a, b) | np.isclose(n, n, equal_nan=True) | np.allclose(a, a)
np.allclose(a, b) | np.array_equal(a, a) | np.array_equal(a, v) | np.isposinf(a) | np.isreal(z) | np.iscomplexobj(z) | np.logical_and(m, a > 1)
np.where(m, a, b) | np.where(i, 1.0, b) | np.where(m, f, 0) | np.clip(a, -1, 1) | np.clip(a, None, 0.5) | np.clip(a, a_min=0, a_max=1)
np.select([a > 1, a > 0], [a, b], 0.0) | np.piecewise(a, [a < 0, a >= 1], [-1, 1, 0])
np.concatenate([a, b]) | np.concatenate((a, b), 1) | np.concatenate([a, i]) | np.concatenate([a, b], axis=None) | np.stack([a, b], 1)
np.hstack([a, b]) | np.hstack([v, w]) | np.vstack([a, b]) | np.vstack([v, w]) | np.dstack([a, b]) | np.column_stack([v, w]) | np.append(v, w)
np.append(a, b, 0) | np.block([[a, b], [b, a]]) | np.split(a, 2, 1) | np.array_split(v, 3) | np.hsplit(a, 2) | np.vsplit(a, [1]) | np.split(v, [1, 3])
np.ravel(a) | np.ravel(a, "F") | np.reshape(a, (4, 3)) | np.reshape(a, -1) | np.reshape(a, (2, 6), "F") | np.transpose(a) | np.transpose(c, (1, 0, 2))
np.swapaxes(c, 0, 2) | np.moveaxis(c, 0, -1) | np.rollaxis(c, 2) | np.rollaxis(c, 0, 3) | np.squeeze(a[None, :, None]) | np.expand_dims(a, (0, 2))
np.flip(a) | np.flip(a, 0) | np.fliplr(a) | np.flipud(a) | np.rot90(a) | np.rot90(a, 2) | np.rot90(a, 3) | np.rot90(a, -1) | np.roll(a, 1)
np.roll(a, 1, 0) | np.roll(c, (1, 2), (0, 1)) | np.tile(a, 2) | np.tile(a, (2, 1)) | np.repeat(a, 2) | np.repeat(a, [1, 2, 0], 0) | np.atleast_2d(v)
np.atleast_1d(v) | np.atleast_3d(a) | np.broadcast_to(v, (2, 5)) | np.pad(a, 1) | np.pad(a, ((1, 2), (0, 1)), constant_values=3) | np.pad(a, 2, "edge")
np.pad(a, 2, mode="reflect") | np.pad(v, (1, 3), "wrap") | np.pad(a, 1, "symmetric") | np.pad(i, ((1, 0), (0, 1)), constant_values=((1, 2), (3, 4)))
np.diag(v) | np.diag(v, 1) | np.diag(v, -2) | np.diag(a) | np.diag(a, 1) | np.diagonal(c, 0, 1, 2) | np.diagonal(a, -1) | np.trace(a) | np.trace(c, 1, 1, 2)
np.diagflat(v) | np.tril(a) | np.triu(a, 1) | np.tri(3, 4, 1) + 0 * a | np.outer(v, w) | np.dot(v, w) | np.dot(a, a[0]) | np.dot(a, 2) | np.inner(v, w)
np.vdot(z, z) | np.dot(v, s[:, :1].reshape(-1)[[0, 1, 2, 3, 0]]) | a @ a[0] | a[:, 0] @ a | np.matmul(a, a[1]) | np.take(a, [0, 2], 1) | np.take(a, [1, 5])
np.take(v, i % 5) | np.take(v, [7, -9], mode="wrap") | np.take_along_axis(a, np.argmax(a, 1)[:, None], 1) | np.full_like(a, 3) | np.zeros_like(i)
np.ones_like(f, dtype="int32") | np.empty_like(a, shape=(0, 2)) | np.shape(a) | np.ndim(c) | np.size(a, 1) | np.copy(a) | np.sin(a) | np.add(a, b)
np.subtract(f, 1) | np.add(a, b, dtype="float32") | np.add.outer(v, w) | np.subtract.outer(v, w) | np.minimum.reduce(a) | np.add.reduce(a, 1)
np.multiply.reduce(a, axis=None) | np.add.accumulate(a) | np.maximum.reduce(a, axis=0) | np.logical_or.reduce(m) | np.multiply.outer(v, [1, 2])
np.linalg.norm(a) | np.linalg.norm(a, axis=0) | np.linalg.norm(v, 2) | np.broadcast_arrays(a, 1.0) | np.meshgrid(v, w) | np.meshgrid(v, w[:2], indexing="ij")
np.meshgrid(v, u, sparse=True) | np.array_equiv(a, a) | np.result_type(a, f) | np.isnan(n) | np.compress([True, False, True], a, 0)
np.gradient(a, axis=0) | np.gradient(a) | np.gradient(v, 0.5) | np.gradient(v, [0.0, 1, 1.5, 3, 7]) | np.gradient(f, axis=1)
np.gradient(a, 2.0, axis=1) | np.gradient(c, [0.0, 1, 3], axis=1) | np.einsum("ij,ij->j", a, b) | np.einsum("ij,ij->", a, b) | np.einsum("ij->ji", a)
np.einsum("...j,j->...", a, b[0]) | np.einsum("ij,i->ij", i, u[:3]) | np.isin(u, [1, 2]) | np.isin(i, [1.0, 7], invert=True) | np.nanargmax(n, 1) | np.nanargmin(n)
np.tensordot(a, b, ((0, 1), (0, 1))) | np.tensordot(c, a, 2) | np.tensordot(c, v[:4], 1)
np.fft.fftshift(v) | np.fft.ifftshift(a, 1) | np.fft.fftshift(a)
np.lib.stride_tricks.sliding_window_view(v, 3) | np.lib.stride_tricks.sliding_window_view(a, (2, 2))
"""
# by NumPy in this process, or with values that are looked at
HERE = """
np.piecewise(a, [a < 0, a >= 0], [lambda x: -x, lambda x: x * 2])
np.where(m) | np.nonzero(i) | np.argwhere(m) | np.flatnonzero(m) | np.sort(a) | np.sort(a, 0) | np.sort(a, None) | np.argsort(a, 1) | np.unique(i)
np.unique(u, return_counts=True) | np.searchsorted(np.sort(v), w) | np.median(a) | np.median(a, 0) | np.percentile(a, 30) | np.quantile(a, [0.1, 0.5], 0)
np.nanmedian(n) | np.nanquantile(n, 0.3) | np.histogram(a, 5) | np.histogram(v, bins=4, range=(-1, 1)) | np.histogram2d(v, w, 3) | np.bincount(u)
np.bincount(u, weights=v) | np.digitize(v, [0.0, 1.0]) | np.interp(v, [-1, 0, 1], [1, 2, 4]) | np.cov(a) | np.corrcoef(a) | np.einsum("ij,kj->ik", a, b)
np.kron(v, w) | np.cross(a[:, :3], b[:, :3]) | np.convolve(v, w) | np.correlate(v, w) | np.dot(a, s) | np.dot(a[0], s) | np.dot(c, s) | np.inner(a, b)
np.tensordot(c, s, 1) | np.matmul(a, s) | a @ s | np.linalg.inv(s) | np.linalg.solve(s, a[0]) | np.linalg.det(s)
np.linalg.eigvals(s + s.T) | np.linalg.svd(a) | np.linalg.qr(a) | np.linalg.cholesky(s @ s.T) | np.linalg.norm(a, 1) | np.linalg.lstsq(a.T, v[:4], None)
np.linalg.matrix_power(s, 3) | np.fft.fft(v) | np.fft.rfft(a, axis=0) | np.fft.ifft2(z) | np.fft.fftn(c) | np.partition(v, 2)
np.isin(u, np.arange(40)) | np.intersect1d(u, [1, 3, 5]) | np.delete(a, 1, 0) | np.insert(v, 1, 7.0) | np.trim_zeros(u) | np.extract(m, a) | np.polyfit(v, w, 2)
np.polyval([1.0, 2.0], v) | np.gradient(a, edge_order=2) | np.unwrap(v) | np.resize(v, (2, 4))
np.choose(u % 2, [v, w]) | np.apply_along_axis(lambda r: r[::-1], 1, a) | np.linalg.eigh(s + s.T) | np.einsum("ii", s) | np.lexsort((v, w)) | np.packbits(m)
np.linalg.slogdet(s) | np.ediff1d(v) | np.pad(v, 2, "linear_ramp") | np.round(i, -1) | np.union1d(u, [9]) | np.vander(v, 3) | np.gcd(i, 4)
np.frexp(a) | np.ldexp(a, 2) | np.bitwise_xor.reduce(i) | np.add.reduceat(v, [0, 2]) | np.unravel_index(i % 4, (2, 2)) | a[m] | a[[0, 2], [1, 3]]
"""
# what makes arrays, of no other: not by NumPy's own functions
MAKING = """
np.array([1, 2.5]) | np.array([[1, 2], [3, 4]], "float32") | np.array(a) | np.array([a, b]) | np.array([v[0], 1.0]) | np.array(3, ndmin=2) | np.asarray([1, 2], "int8")
np.zeros(3) | np.zeros((2, 3), "int32") | np.ones(2, np.float32) | np.full((2, 2), 7) | np.full((2, 5), v) | np.empty((0, 2)) | np.eye(3) | np.eye(3, 4, 1)
np.identity(3, "int64") | np.arange(5) | np.arange(1, 7, 2) | np.arange(0, 1, 0.25) | np.arange(1, 4, 1, "float32") | np.linspace(0, 1, 5) | np.linspace(0, 1)
np.linspace(0, 1, 4, False) | np.linspace(v, w, 3) | np.logspace(0, 2, 4) | np.geomspace(1, 8, 4) | np.tri(3) | np.mgrid[0:3, 0:4] | np.mgrid[0:1:5j]
np.ogrid[0:3, 0:2] | np.mgrid[0:2:0.5, 1:3] | np.indices((2, 3)) | np.fromfunction(lambda i, j: i * 10 + j, (2, 3)) | np.r_[1:4, 0, 4] | np.c_[v, w] | np.hanning(5)
np.fft.fftfreq(6) | np.tril_indices(3) | np.vander([1, 2, 3]) | np.diag([1, 2]) | np.sum([1, 2]) | np.hstack([[1, 2], [3]]) | np.meshgrid([1, 2], [3.0])
np.sqrt(2.0) | np.add(1, 2) | np.maximum(1, 2.5) | np.trapz(v) if hasattr(np, "trapz") else np.trapezoid(v)
"""
METHODS = """
a.sum(0) | a.mean(axis=1) | a.std(ddof=1) | a.var(0) | a.max() | a.min(1) | a.prod(0) | m.any(0) | m.all() | a.argmax() | a.argmin(0) | a.copy() | a.flatten()
a.flatten("F") | a.ravel() | a.dot(s) | v.dot(w) | a.cumsum() | a.cumsum(0) | a.cumprod(1) | a.clip(-1, 1) | a.clip(0) | a.round(1) | a.transpose()
c.transpose(2, 0, 1) | c.transpose((2, 0, 1)) | c.T | v.T | a[None].squeeze() | v.repeat(2) | a.take([0, 1], 1) | z.conj() | z.real | z.imag | a.real | a.imag
i.nonzero() | a.tobytes() | a.view() | a.swapaxes(0, 1) | a.diagonal() | a.trace() | v.argsort()
a.astype("float32") | a.astype(np.int64) | a.reshape(4, 3) | a.reshape((2, -1)) | a.reshape(2, 6, order="F") | a.itemsize | a.item(3) | a.item(1, 2) | a.flat[5]
a.compress([True, False, True], 0) | divmod(i, 3) | a[0, 0] in a | 99.0 in a | list(v.flat) | abs(a) | -a | ~m | a.sum(axis=(0, 1)) | a.mean(dtype="float32")
"""
KEYWORDS = """
np.sum(a=a) | np.mean(a=a, axis=0) | np.zeros(shape=(2,)) | np.full(shape=3, fill_value=2.0) | np.linspace(start=0, stop=1, num=3) | np.arange(start=0, stop=3)
np.arange(stop=3) | np.repeat(a, repeats=2, axis=0) | np.roll(a, shift=1, axis=0) | np.eye(N=3, M=2) | np.tile(A=a, reps=2) | np.take(a, indices=[0], axis=1)
np.moveaxis(a, source=0, destination=1) | np.stack(arrays=[a, b], axis=0) | np.array(object=[1, 2]) | np.asarray(a=[1, 2]) | np.outer(a=v, b=w)
np.dot(a=v, b=w) | np.sort(a=a) | np.transpose(a=a, axes=(1, 0)) | np.expand_dims(a=a, axis=0) | np.diff(a=a) | np.full_like(a, fill_value=3)
np.zeros_like(a=a) | np.triu(m=a, k=1) | np.diag(v=v, k=0) | np.argmax(a=a, axis=0) | np.percentile(a=a, q=20) | np.concatenate((a, b), axis=0, dtype="float32")
np.hstack(tup=(a, b)) | np.pad(array=a, pad_width=1) | np.clip(a=a, a_min=0, a_max=1) | np.searchsorted(np.sort(v), v=w)
"""
IDIOMS = """
x + [1, 2, 3, 4] | x ** 0.5 | 1 / (x + 1) | (x + 1) ** -1 | x[np.array([0, 2])] | x[np.arange(3), np.array([0, 1, 2])] | x[np.ix_([0, 2], [1, 3])] | x[:, np.newaxis, :]
x[np.nonzero(x > 3)] | x[np.where(x > 3)] | sum([x, x]) | float(max(x[0])) | [float(v) for v in sorted(x[0], reverse=True)] | (lambda a, b, c: a + b + c)(*x)
float(sum(p * q for p, q in zip(x[0], x[1]))) | f"{x[0, 1]:.2f}" | len(range(int(x[0, 3]))) | len(x) | x.dtype == np.float64 | x.dtype.name | x.strides | x.T.strides
bool(x.flags.c_contiguous) | bool(x.T.flags.f_contiguous) | x.base is None | x[1:].base is None | x.astype(int) | x.astype("bool") | np.isscalar(3) | np.add.nin
np.array(x, dtype="float32") | np.random.default_rng(1).random(3) | (np.random.seed(0), np.random.randint(0, 5, (2, 2)))[1] | np.random.default_rng(1).permutation(x)
(np.random.default_rng(1).shuffle(x), x)[1] | np.random.default_rng(2).uniform(0, x) | np.sum([1, 2, 3]) | np.mean([x, x], axis=0) | np.max([x[0], x[1]])
np.dot([1, 2], [3, 4]) | x[0][np.argsort(-x[0])] | x[:, np.cumsum([0, 1, 1])] | np.einsum("ij,kj", x, x) | np.einsum("ij->i", x) | np.einsum(x, [0, 1], [1, 0])
float(sum(v for v in np.nditer(x))) | len(list(np.ndindex(*x.shape))) | x[np.s_[1:, 0]] | np.fromiter(range(3), float) | np.frombuffer(bytes(8), dtype="int64")
(np.maximum.at(x, (0, 0), 9), x)[1] | (x.__setitem__(np.where(x > 3), 1), x)[1] | (x.__setitem__(x > 3, 0), x)[1] | np.unique(x > 3, return_counts=True)
"""
WRITES = """
np.add(a, b, out=a) | np.sin(a, a) | np.multiply(a, 2, out=a) | np.sum(a, 0, out=b[0]) | np.add(a, 1, out=a, where=m) | np.copyto(a, b) | np.copyto(a, 0, where=m)
np.putmask(a, m, 0) | np.putmask(a, m, b) | np.put(a, [0, 5], 9) | np.place(a, m, [1, 2]) | np.fill_diagonal(a, 1) | np.fill_diagonal(a, v[:3]) | a.fill(3)
a.sort(0) | v.sort() | v.partition(2) | np.clip(a, 0, 1, out=a) | np.matmul(a, s, out=b) | np.dot(a, s, out=b) | np.concatenate([a[:1], b[1:]], out=a)
np.add.at(v, [0, 0, 1], 1) | np.cumsum(a, 1, out=b) | np.maximum(a, 0, a) | a.put([1], 5) | np.mean(a, 0, out=b[1]) | np.put_along_axis(a, np.zeros((3, 1), "int64"), 5, 1)
np.round(a, 1, out=b) | np.exp(a[0], out=a[1]) | a.clip(0, 1, out=b) | np.median(a, 0, out=b[2]) | np.stack([v, w], out=np.zeros((2, 5)))
"""


def cases(table):
    return [c.strip() for line in table.strip().splitlines() for c in line.split(" | ") if c.strip()]


def run(case, np, given):
    return eval(case, {"np": np, **given})  # noqa: S307


def same(got, want, case):
    """Type, shape, dtype and values; what NumPy gives as a number may be an array of rank 0."""
    if want is None:
        return  # of what only writes; some give the array
    if isinstance(want, (list, tuple)):
        assert isinstance(got, (list, tuple)) and len(got) == len(want), case
        for g, w in zip(got, want):
            same(g, w, case)
        return
    if isinstance(want, (numpy.ndarray, numpy.generic)) and not isinstance(got, numpy.generic):
        assert isinstance(got, arrayd.Array), f"{case}: {type(got)}"
        assert got.shape == want.shape, f"{case}: {got.shape}, not {want.shape}"
        assert got.dtype == want.dtype, f"{case}: {got.dtype}, not {want.dtype}"
    elif not isinstance(want, (numpy.ndarray, numpy.generic)):
        assert type(got) is type(want), f"{case}: {type(got)}"
    if isinstance(want, (bytes, str, numpy.dtype)):
        assert got == want, case
        return
    tolerance = 1e-5 if getattr(want, "dtype", None) == numpy.float32 else 1e-11
    numpy.testing.assert_allclose(numpy.asarray(got), numpy.asarray(want), rtol=tolerance, atol=tolerance, err_msg=case)


def spelled(case):
    """As this NumPy has it: what it has not is not compared."""
    try:
        return run(case, numpy, {k: v.copy() for k, v in GIVEN.items()})
    except AttributeError:
        pytest.skip("not in this NumPy")


def ours(xp):
    return {k: xp.asarray(v) for k, v in GIVEN.items()}


@pytest.mark.parametrize("case", cases(SERVER + HERE))
def test_functions(xp, case, monkeypatch):  # noqa: F811
    monkeypatch.setattr(arrayd.numpy, "_default", xp)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        want = spelled(case)
        for np in (xp, arrayd.numpy, numpy):
            if "np.lib." in case and np is arrayd.numpy or np is xp and "np.delete" in case:
                continue  # the namespace has another one
            same(run(case, np, ours(xp)), want, f"{case} by {getattr(np, '__name__', np)}")


@pytest.mark.parametrize("case", cases(MAKING))
def test_what_makes_arrays(xp, case, monkeypatch):  # noqa: F811
    monkeypatch.setattr(arrayd.numpy, "_default", xp)
    want = spelled(case)
    for np in (xp, arrayd.numpy):
        same(run(case, np, ours(xp)), want, case)


@pytest.mark.parametrize("case", cases(KEYWORDS + IDIOMS))
def test_programs(xp, case, monkeypatch):  # noqa: F811
    """Keywords by NumPy's names, and what people write."""
    monkeypatch.setattr(arrayd.numpy, "_default", xp)
    x = numpy.arange(12.0).reshape(3, 4)
    want = run(case, numpy, {**GIVEN, "x": x.copy()})
    for np in (xp, arrayd.numpy):
        same(run(case, np, {**ours(xp), "x": xp.asarray(x)}), want, case)


@pytest.mark.parametrize("case", cases(METHODS))
def test_methods(xp, case):  # noqa: F811
    same(run(case, numpy, ours(xp)), run(case, numpy, GIVEN), case)


@pytest.mark.parametrize("case", cases(WRITES))
def test_what_writes(xp, case, monkeypatch):  # noqa: F811
    """The result, and all arrays afterwards."""
    monkeypatch.setattr(arrayd.numpy, "_default", xp)
    theirs = {k: v.copy() for k, v in GIVEN.items()}
    want = run(case, numpy, theirs)
    for np in (xp, arrayd.numpy):
        here = ours(xp)
        same(run(case, np, here), want, case)
        for k in here:
            same(here[k], theirs[k], f"{case}: {k}")


@pytest.mark.parametrize("case", cases(SERVER))
def test_no_value_comes(xp, api, case):  # noqa: F811
    """What the server has is computed there: of large arrays nothing is fetched. (Numbers that are looked at are.)"""
    if any(s in case for s in ("allclose", "array_equ", "compress", "nanarg", "s[:, :1]")):
        pytest.skip("looks at values")
    here = {k: v.compute() for k, v in ours(xp).items()}
    before = requests(api)
    run(case, xp, here)
    assert requests(api) == before, case


DTYPES = "bool int8 uint8 int16 uint32 int64 uint64 float32 float64 complex64 complex128".split()
REDUCTIONS = """sum prod mean std var max min all any count_nonzero nansum nanmean nanmax nanmin nanstd nanvar nanprod ptp average cumsum
cumprod nancumsum nancumprod argmax argmin nanargmax flip diff sort""".split()
PAIRS = """add subtract multiply divide floor_divide remainder power maximum minimum fmax fmin equal less greater_equal logical_and
logical_xor bitwise_and bitwise_or bitwise_xor fmod isclose divmod dot inner outer kron hstack concatenate where matmul""".split()
UNORDERED = {"max", "min", "nanmax", "nanmin", "ptp", "argmax", "argmin", "nanargmax", "maximum", "minimum", "fmax", "fmin", "less",
             "greater_equal"}  # complex numbers are not, here


def values_of(dtype, shape, rng):
    a = rng.integers(0 if dtype[0] == "u" else -4, 5, shape).astype(dtype)
    if dtype[0] in "fc":
        a += rng.normal(size=shape).astype(dtype)
    return a + (1j * rng.normal(size=shape)).astype(dtype) if dtype[0] == "c" else a


def both(xp, case, use, *arrays):  # noqa: F811
    """The same result, or no result from either."""
    try:
        with numpy.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = use(numpy, *arrays)
    except (TypeError, ValueError, IndexError) as e:
        with pytest.raises((TypeError, ValueError, IndexError)):
            use(xp, *(xp.asarray(a) for a in arrays))
        return repr(e)
    got = use(xp, *(xp.asarray(a) for a in arrays))
    for w, g in zip(want, got) if isinstance(want, tuple) else [(want, got)]:
        w = numpy.asarray(w)
        assert g.shape == w.shape and g.dtype == w.dtype, f"{case}: {g.dtype}{g.shape}, not {w.dtype}{w.shape}"
        numpy.testing.assert_allclose(numpy.asarray(g), w, rtol=1e-4, atol=1e-4, err_msg=case)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_and_shapes_of_reductions(xp, dtype):  # noqa: F811
    rng = numpy.random.default_rng(2)
    for shape in ((3, 4), (4,), (), (0, 3), (1, 1)):
        a = values_of(dtype, shape, rng)
        for name in REDUCTIONS:
            if (dtype[0] == "c" and name in UNORDERED) or (name == "average" and not a.size) or (name.startswith("nanarg") and not a.size):
                continue
            for axis in [None, 0, -1] if name not in ("diff", "flip", "sort") else [0, -1]:
                if axis is not None and not shape:
                    continue
                both(xp, f"{name} {dtype} {shape} {axis}", lambda np, x: getattr(np, name)(x, axis=axis), a)
        if len(shape) == 2:
            for name in ("sum", "mean", "var", "any", "nansum"):
                both(xp, name, lambda np, x: getattr(np, name)(x, axis=(0, 1), keepdims=True), a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_of_pairs(xp, dtype):  # noqa: F811
    rng = numpy.random.default_rng(3)
    for other in DTYPES:
        a, b = values_of(dtype, (3, 4), rng), values_of(other, (3, 4), rng)
        if other[0] in "iu":
            b = abs(b) + b.dtype.type(1)
        for name in PAIRS:
            if "c" in (dtype[0], other[0]) and (name in UNORDERED or OLD and name == "power"):  # old NumPy: 0 to such a power is NaN
                continue
            case = f"{name} {dtype} {other}"
            if name in ("hstack", "concatenate"):
                both(xp, case, lambda np, x, y: getattr(np, name)([x, y]), a, b)
            elif name == "where":
                both(xp, case, lambda np, x, y: np.where(x, x, y), a, b)
            elif name in ("dot", "matmul"):
                both(xp, case, lambda np, x, y: getattr(np, name)(x, y.T), a, b)
                both(xp, case, lambda np, x, y: getattr(np, name)(x, y[0]), a, b)
                both(xp, case, lambda np, x, y: getattr(np, name)(x[:, 0], y), a, b)
                both(xp, case, lambda np, x, y: getattr(np, name)(x, y[:1].T), a, b)
                both(xp, case, lambda np, x, y: getattr(np, name)(x[:1], y.T), a, b)
                both(xp, case, lambda np, x, y: getattr(np, name)(x[:1], y[:1].T), a, b)
            else:
                both(xp, case, lambda np, x, y: getattr(np, name)(x, y), a, b)


def test_dtypes_and_constants(xp, monkeypatch):  # noqa: F811
    np = arrayd.numpy
    monkeypatch.setattr(np, "_default", xp)
    assert np.pi == numpy.pi and np.newaxis is None and np.inf == numpy.inf and np.float32 is numpy.float32
    assert np.int64(3) == 3 and np.dtype("float32") == np.float32 and np.iinfo(np.uint8).max == 255 and np.finfo(np.float32).eps == 2**-23
    x = np.zeros((2, 3), np.uint8)
    assert isinstance(x, arrayd.Array) and isinstance(x, np.ndarray) and x.dtype == np.uint8 and not isinstance(3, np.ndarray)
    assert np.ndarray((2, 2), dtype=np.float32).shape == (2, 2) and xp.ndarray((2, 2)).dtype == numpy.float64 and isinstance(x, xp.ndarray)
    assert np.issubdtype(x.dtype, np.integer) and not hasattr(np, "no_such_function")
    with pytest.raises(AttributeError):
        xp.no_such_function
    assert "hstack" in dir(np) and "median" in dir(xp)
    r = np.random.default_rng(3).normal(size=(2, 2))
    assert isinstance(r, arrayd.Array) and numpy.array_equal(r, numpy.random.default_rng(3).normal(size=(2, 2)))
    assert np.random.rand(2, 3).shape == (2, 3) and xp.random((2, 2), seed=1).shape == (2, 2)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.inv(np.zeros((2, 2)))


def test_the_default_connection(daemon, monkeypatch):
    """The module's own client is made at the first use that needs one."""
    monkeypatch.setattr(arrayd.numpy, "_default", None)
    monkeypatch.delenv("ARRAYD_URL", raising=False)
    made = []

    def connect():
        made.append(arrayd.connect(f"http://{daemon.host}:{daemon.port}"))
        return made[-1]

    import arrayd._client as client
    real = client.connect
    monkeypatch.setattr(client, "connect", lambda *args: real(*args) if args else connect())
    monkeypatch.setattr(arrayd, "connect", real)
    f = arrayd.numpy.zeros
    assert not made
    assert float(f(3).sum() + arrayd.numpy.ones(2).sum()) == 2 and len(made) == 1
    made[0].close()
    assert arrayd.numpy.ones(2).shape == (2,) and len(made) == 2
    made[1].close()


def test_the_shape_is_set(xp):  # noqa: F811
    x = xp.arange(6)
    row = x[2:4]
    x.shape = 2, 3
    assert x.shape == (2, 3) and x.tolist() == [[0, 1, 2], [3, 4, 5]]
    x[0, 2] = 9
    row[1] = 7
    assert row.tolist() == [9, 7] and x.tolist() == [[0, 1, 9], [7, 4, 5]]
    y = x[:, 1]
    y.shape = -1, 1
    y[...] = 0
    assert x.tolist() == [[0, 0, 9], [7, 0, 5]] and y.shape == (2, 1)
    with pytest.raises(AttributeError, match="without a copy"):
        x.T.shape = 6
    with pytest.raises(ValueError, match="do not go into"):
        x.shape = 5


def test_views_of_elements_and_parts(xp):  # noqa: F811
    x, want = xp.asarray(A), A.copy()
    for a in (x, want):
        a.flat[5] = 9
        a.T.flat[1] = 7
        a.T[1:].flat[...] = 0
        a.flat = [1, 2]
        a[0].flat = 5
    same(x, want, "flat")
    z = xp.asarray(Z)
    part = z.real
    z[0, 0] = 3 + 4j
    assert float(part[0, 0]) == 3 and float(z.imag[0, 0]) == 4
    for view, value in ((z.real, 1), (xp.imag(z), 2), (part, 5)):
        view[0, 0] = value
    assert complex(z[0, 0]) == 5 + 2j
    x.real[0, 0] = 8
    assert float(x[0, 0]) == 8


def test_asynchronously(daemon):
    """The same names; what NumPy computes in this process is for `xp.call`."""
    async def run():
        async with arrayd.aconnect(f"http://127.0.0.1:{daemon.port}") as xp:  # noqa: F811
            x = await xp.upload(A)
            y = numpy.concatenate([x, xp.hstack([x[:, :2], x[:, 2:]])]) + numpy.sin(x[0])
            assert isinstance(y, arrayd.AsyncArray) and isinstance(x.copy(), arrayd.AsyncArray)
            numpy.testing.assert_allclose(await y.numpy(), numpy.concatenate([A, A]) + numpy.sin(A[0]))
            numpy.testing.assert_allclose(await (await xp.call(xp.median, x, 0)).numpy(), numpy.median(A, 0))
            numpy.testing.assert_allclose(await xp.array([1, 2]).numpy(), [1, 2])
            with pytest.raises(RuntimeError, match="needs the server"):
                xp.median(x * 1)
            await xp.save("named", x)
            assert (await xp.array("named")).shape == (3, 4)
            await xp.delete("named")

    asyncio.run(run())


def test_out_that_cannot_be(xp):  # noqa: F811
    x = xp.ones((2, 3))
    with pytest.raises(TypeError, match="an array of arrayd's is wanted, not ndarray"):
        numpy.add(x, 1, out=numpy.ones((2, 3)))
    with pytest.raises(TypeError, match="an array of arrayd's is wanted, not ndarray"):
        xp.sum(x, 0, out=numpy.ones(3))
    with pytest.raises(ValueError, match=r"out: a result of shape \(2, 3\) does not fit into shape \(3,\)"):
        xp.add(x, 1, out=xp.ones(3))
    with pytest.raises(TypeError, match="out: a result of float64 does not go into int64"):
        xp.add(x, 1, out=xp.ones((2, 3), "int64"))
    with pytest.raises(ValueError, match="read-only"):
        xp.add(x, 1, out=xp.broadcast_to(xp.ones(3), (2, 3)))
    n = numpy.ones(3)
    with pytest.raises(TypeError):
        n += xp.ones(3)


def test_operators_beside_numpy(xp):  # noqa: F811
    n, x = numpy.arange(3.0), xp.arange(3.0)
    for got in (n + x, x + n, n * x, numpy.float32(2) * x, n @ x, n < x, numpy.add(n, x), numpy.hypot(x, n)):
        assert isinstance(got, arrayd.Array)
    assert (numpy.float64(2) * xp.ones(2, "float32")).dtype == numpy.float64

    class Foreign:
        __array_ufunc__ = None

        def __radd__(self, other):
            return "theirs"

    assert x + Foreign() == "theirs"


def test_functions_of_another_argument_go_to_numpy(xp):  # noqa: F811
    """What the namespace's function does not know is NumPy's."""
    x = xp.asarray(A)
    same(numpy.var(x, 0, where=xp.asarray(M)), numpy.var(A, 0, where=M), "var")
    same(numpy.sort(x, kind="heapsort"), numpy.sort(A), "sort")
    with pytest.raises(TypeError):
        numpy.sum(x, nonsense=1)


@pytest.mark.filterwarnings("ignore")
def test_every_function_of_numpys():
    """All but these are there: they are not about arrays of numbers, or NumPy 2 has them no more (the last ones)."""
    public = {n for n in {*dir(numpy)} & {*numpy.__all__, "abs", "max", "min", "round"} if not n.startswith("_") and callable(getattr(numpy, n)) and not isinstance(getattr(numpy, n), type)}
    assert len(public) > 350
    assert not {n for n in public if not hasattr(arrayd.numpy, n)} - set(ABSENT.split())
    for part in ("linalg", "fft"):
        names = {n for n in dir(getattr(numpy, part)) if not n.startswith("_") and callable(getattr(getattr(numpy, part), n))}
        assert not {n for n in names - {"test"} if not hasattr(getattr(arrayd.numpy, part), n)}


@pytest.mark.in_turn
def test_its_modules_and_names(xp, monkeypatch):  # noqa: F811
    """As programs import them; nothing is connected to for that."""
    monkeypatch.setattr(arrayd.numpy, "_default", None)
    monkeypatch.setattr(arrayd.numpy, "_client", lambda: pytest.fail("a client"))
    names = {}
    exec("""
import arrayd.numpy.random as random, arrayd.numpy.fft, arrayd.numpy.testing as testing, arrayd.numpy as np
from arrayd.numpy.linalg import norm, LinAlgError
from arrayd.numpy.random import default_rng, Generator
from arrayd.numpy.lib.stride_tricks import sliding_window_view
import arrayd.numpy.lib.stride_tricks as tricks
from arrayd.numpy.polynomial import Polynomial
from arrayd.numpy.typing import NDArray
from arrayd.numpy.fft import *
from arrayd.numpy import *""", names)
    assert names["Generator"] is numpy.random.Generator and names["LinAlgError"] is numpy.linalg.LinAlgError and names["random"] is arrayd.numpy.random
    assert names["__version__"] == arrayd.numpy.__version__ == numpy.__version__ and names["arrayd"].numpy.fft is arrayd.numpy.fft
    assert {n for n in numpy.__all__ if hasattr(arrayd.numpy, n)} <= {*names} and "zeros" in names and "fft2" in names and "OWN" not in names
    assert {*numpy.linalg.__all__} == {*arrayd.numpy.linalg.__all__} and "norm" in dir(arrayd.numpy.linalg)
    monkeypatch.undo()
    x = xp.asarray(A)
    same(names["norm"](x), numpy.linalg.norm(A), "norm")
    same(names["sliding_window_view"](x, 2, 0), numpy.lib.stride_tricks.sliding_window_view(A, 2, 0), "windows")
    assert names["tricks"] is arrayd.numpy.lib.stride_tricks
    strided = arrayd.numpy.lib.stride_tricks.as_strided(x, (2, 2), (8, 8))
    assert numpy.array_equal(strided, numpy.lib.stride_tricks.as_strided(A, (2, 2), (8, 8)))
    with pytest.raises(ValueError, match="read-only"):
        strided[0] = 1
    names["testing"].assert_allclose(x, A)
    for name in ("nonsense", "lib"):
        with pytest.raises(ImportError):
            exec(f"from arrayd.numpy.linalg import {name}")


def test_random_numbers_into_an_array(xp):  # noqa: F811
    for name, place in {"random": 2, "standard_normal": 2, "standard_exponential": 3, "standard_gamma": 3}.items():
        for t in ("float64", "float32"):
            first = (2.0,) if name == "standard_gamma" else ()
            rng, numpys = xp.random.default_rng(3), numpy.random.default_rng(3)
            out, want = xp.zeros((2, 3), dtype=t), numpy.zeros((2, 3), t)
            assert getattr(rng, name)(*first, out=out, dtype=t) is out
            getattr(numpys, name)(*first, out=want, dtype=t)
            same(out, want, name)
            middle = first + ((None, t, "inv") if name == "standard_exponential" else (None, t))
            assert len(middle) == place
            getattr(rng, name)(*middle, out)
            getattr(numpys, name)(*middle, want)
            same(out, want, name)
    out, want = xp.asarray(A) * 1, A.copy()
    assert rng.permuted(out, axis=0, out=out) is out
    same(out, numpys.permuted(want, axis=0, out=want), "permuted")
    same(xp.random.default_rng(rng).random(3), numpys.random(3), "the generator itself")
    for again in (copy.deepcopy(rng), pickle.loads(pickle.dumps(rng))):
        assert isinstance(again, numpy.random.Generator)
        same(again.random(3), copy.deepcopy(numpys).random(3), "a copy")
    rows, want = [1, 2, 3], [1, 2, 3]
    rng.shuffle(rows)
    numpys.shuffle(want)
    assert rows == want
    for how in ({"out": xp.zeros(3, dtype="float32")}, {"out": numpy.zeros(3)}):
        with pytest.raises(TypeError):
            rng.random(**how)
    with pytest.raises(ValueError, match="size"):
        rng.random(4, out=xp.zeros(3))


def test_numpys_functions_of_values_here(xp):  # noqa: F811
    """What NumPy computes is written to what is given for it by its place, too, or refused; and asks no namespace again."""
    out = xp.zeros(3, dtype=xp.int64)
    same(xp.gcd(xp.asarray([4, 6, 9]), 2, out), numpy.gcd([4, 6, 9], 2), "gcd")
    assert out.tolist() == [2, 2, 1]
    with pytest.raises(ValueError, match="read-only"):
        xp.choose(xp.zeros(20000, dtype=xp.int64), [1, 2], xp.zeros(20000, dtype=xp.int64))
    for f in (numpy.min_scalar_type, arrayd.numpy.min_scalar_type):
        assert [f(xp.asarray(v)) for v in (3, 300, [1, 2], -1.5)] == [numpy.min_scalar_type(numpy.asarray(v)) for v in (3, 300, [1, 2], -1.5)]
    same(xp.permute_dims(xp.asarray(A)), A.T, "permute_dims")
    assert json.dumps([xp.mean(xp.asarray(A))], default=float) == json.dumps([float(xp.mean(xp.asarray(A)))])


ABSENT = """
asarray_chkfinite asmatrix base_repr binary_repr bmat busday_count busday_offset common_type datetime_as_string datetime_data frompyfunc
fromregex get_include getbufsize geterrcall info is_busday isfortran isnat mintypecode nested_iters setbufsize seterrcall show_config
show_runtime test
add_docstring add_newdoc add_newdoc_ufunc alltrue asfarray byte_bounds compare_chararrays cumproduct deprecate deprecate_with_doc disp
fastCopyAndTranspose find_common_type get_array_wrap geterrobj issctype issubclass_ issubsctype lookfor mat maximum_sctype msort obj2sctype
product recfromcsv recfromtxt round_ safe_eval sctype2char set_numeric_ops set_string_function seterrobj sometrue source who"""


def test_sliding_windows_upload_nothing(xp, api):
    """The server computes where their elements are."""
    a = numpy.random.default_rng(3).random(20_000)
    x = xp.asarray(a)
    assert abs(float(x.sum()) - a.sum()) < 1e-6  # so it is there

    def received():
        return int(re.search(r"^arrayd_http_bytes_in_total (\d+)$", api.get("/metrics").body.decode(), re.M)[1])

    before = received()
    means = numpy.asarray(arrayd.numpy.lib.stride_tricks.sliding_window_view(x, 50).mean(-1))
    assert received() - before < 10_000
    assert numpy.allclose(means, numpy.lib.stride_tricks.sliding_window_view(a, 50).mean(-1))
