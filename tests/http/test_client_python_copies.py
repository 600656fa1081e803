"""Of every function that may give a view: the same write with NumPy and with the client, by `arrayd.numpy` and by NumPy's own functions.

What is a view with NumPy changes its base here, what is a copy there is one here, and what cannot be (`REFUSED`) raises an error."""
import copy
import pathlib
import sys
import warnings

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
from test_client_python import xp  # noqa: E402,F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here


def two():
    return np.arange(12.).reshape(3, 4)


def sq():
    return np.arange(9.).reshape(3, 3)


def one():
    return np.arange(6.)


def cub():
    return np.arange(24.).reshape(2,3,4)


def ints():
    return np.arange(12).reshape(3,4)


def cplx():
    return (np.arange(6.)+1j*np.arange(6.)).reshape(2,3)


def cplx0():
    return np.arange(6.).astype(complex)


def ones1():
    return np.arange(4.).reshape(1,4,1)


def rank0():
    return np.array(3.0)


def nans():
    return np.array([1., np.nan, np.inf])


def _later(v, a):
    a[1] = 50
    return v


def own(np, a):
    """The namespace: of NumPy's own functions these copy, and nobody can know."""
    return getattr(a, "_client", np)


def each(np, a):
    with np.nditer(a, op_flags=["readwrite"]) as it:
        for v in it:
            v[...] = 2 * v


def each_into(np, a):
    it = np.nditer([a, None])
    for v, w in it:
        w[...] = 2 * v
    return it.operands[1]


def nested(np, a):
    i, j = np.nested_iters(a, [[1], [0]], op_flags=["readwrite"])
    for _ in i:
        for y in j:
            y[...] = 7


CALLS = {
    "trim_zeros": (one, lambda np, a: np.trim_zeros(a)),
    "trim_zeros b": (one, lambda np, a: np.trim_zeros(a, "b")),
    "trim_zeros2d": (two, lambda np, a: np.trim_zeros(a)),
    "einsum ij": (two, lambda np, a: np.einsum("ij", a)),
    "einsum ji": (two, lambda np, a: np.einsum("ji", a)),
    "einsum ij->ji": (two, lambda np, a: np.einsum("ij->ji", a)),
    "einsum ii->i": (sq, lambda np, a: np.einsum("ii->i", a)),
    "einsum ii->i, T": (sq, lambda np, a: np.einsum("ii->i", a.T)),
    "einsum ...": (two, lambda np, a: np.einsum("...", a)),
    "einsum i...->...i": (cub, lambda np, a: np.einsum("i...->...i", a)),
    "einsum iij->ij": (lambda: np.arange(18.).reshape(3,3,2), lambda np, a: np.einsum("iij->ij", a)),
    "einsum list": (two, lambda np, a: np.einsum(a, [0,1])),
    "einsum list ii->i": (sq, lambda np, a: np.einsum(a, [0,0],[0])),
    "einsum list 10": (two, lambda np, a: np.einsum(a, [0,1],[1,0])),
    "einsum optimize": (two, lambda np, a: np.einsum("ij->ji", a, optimize=True)),
    "ravel K": (two, lambda np, a: np.ravel(a, "K")),
    "ravel A": (two, lambda np, a: np.ravel(a, "A")),
    "ravel F": (two, lambda np, a: np.ravel(a, "F")),
    "a.ravel K": (two, lambda np, a: a.ravel("K")),
    "a.ravel A": (two, lambda np, a: a.ravel("A")),
    "a.T.ravel K": (two, lambda np, a: a.T.ravel("K")),
    "a.T.ravel A": (two, lambda np, a: a.T.ravel("A")),
    "a.T.ravel": (two, lambda np, a: a.T.ravel()),
    "a.T.ravel F": (two, lambda np, a: a.T.ravel("F")),
    "turned ravel K": (cub, lambda np, a: np.ravel(np.transpose(a, (1,2,0)), "K")),
    "turned ravel A": (cub, lambda np, a: np.ravel(np.transpose(a, (1,2,0)), "A")),
    "part ravel K": (two, lambda np, a: a[:, 1:3].ravel("K")),
    "flipped ravel K": (two, lambda np, a: a[::-1].ravel("K")),
    "reshape A": (two, lambda np, a: np.reshape(a.T, (2, 6), order="A")),
    "reshape F": (two, lambda np, a: np.reshape(a.T, (2, 6), order="F")),
    "flatten K": (two, lambda np, a: a.T.flatten("K")),
    "flatten A": (two, lambda np, a: a.T.flatten("A")),
    "diff0": (two, lambda np, a: np.diff(a, n=0)),
    "diff0 of prepend": (two, lambda np, a: np.diff(a, n=0, prepend=0)),
    "diff": (two, lambda np, a: np.diff(a)),
    "real_if_close real": (two, lambda np, a: np.real_if_close(a)),
    "real_if_close complex": (cplx, lambda np, a: np.real_if_close(a)),
    "real_if_close of zero imag": (cplx0, lambda np, a: np.real_if_close(a)),
    "meshgrid": (one, lambda np, a: np.meshgrid(a, a[:3])),
    "meshgrid view": (one, lambda np, a: np.meshgrid(a, a[:3], copy=False)[0]),
    "meshgrid view 1": (one, lambda np, a: np.meshgrid(a, a[:3], copy=False)[1]),
    "meshgrid sparse view": (one, lambda np, a: np.meshgrid(a, a[:3], copy=False, sparse=True)),
    "meshgrid sparse": (one, lambda np, a: np.meshgrid(a, a[:3], sparse=True)),
    "meshgrid one view": (one, lambda np, a: np.meshgrid(a, copy=False)),
    "meshgrid one": (one, lambda np, a: np.meshgrid(a)),
    "meshgrid ij view": (one, lambda np, a: np.meshgrid(a, a[:1], copy=False, indexing="ij")[1]),
    "conj": (two, lambda np, a: np.conj(a)),
    "conjugate": (two, lambda np, a: np.conjugate(a)),
    "a.conj": (two, lambda np, a: a.conj()),
    "a.conjugate": (two, lambda np, a: a.conjugate()),
    "a.conj complex": (cplx, lambda np, a: a.conj()),
    "conj complex": (cplx, lambda np, a: np.conj(a)),
    "nan_to_num": (nans, lambda np, a: np.nan_to_num(a)),
    "nan_to_num in place": (nans, lambda np, a: np.nan_to_num(a, copy=False)),
    "nan_to_num ints in place": (ints, lambda np, a: np.nan_to_num(a, copy=False)),
    "nan_to_num ints": (ints, lambda np, a: np.nan_to_num(a)),
    "nan_to_num complex in place": (lambda: np.array([1+2j, complex(np.nan, 1)]), lambda np, a: np.nan_to_num(a, copy=False)),
    "nan_to_num of a view": (nans, lambda np, a: np.nan_to_num(a[1:], copy=False)),
    "real": (two, lambda np, a: np.real(a)),
    "imag": (two, lambda np, a: np.imag(a)),
    "a.real": (two, lambda np, a: a.real),
    "a.imag": (two, lambda np, a: a.imag),
    "real complex": (cplx, lambda np, a: np.real(a)),
    "imag complex": (cplx, lambda np, a: np.imag(a)),
    "diagonal": (two, lambda np, a: np.diagonal(a)),
    "a.diagonal": (two, lambda np, a: a.diagonal()),
    "diag": (two, lambda np, a: np.diag(a)),
    "diag of 1": (one, lambda np, a: np.diag(a)),
    "linalg.diagonal": (two, lambda np, a: np.linalg.diagonal(a)),
    "linalg.matrix_transpose": (two, lambda np, a: np.linalg.matrix_transpose(a)),
    "matrix_transpose": (two, lambda np, a: np.matrix_transpose(a)),
    "permute_dims": (two, lambda np, a: np.permute_dims(a, (1,0))),
    "broadcast_to": (one, lambda np, a: np.broadcast_to(a, (2, 6))),
    "broadcast_to same": (one, lambda np, a: np.broadcast_to(a, (6,))),
    "swapaxes": (two, lambda np, a: np.swapaxes(a, 0, 1)),
    "a.swapaxes": (two, lambda np, a: a.swapaxes(0, 1)),
    "moveaxis": (two, lambda np, a: np.moveaxis(a, 0, 1)),
    "rollaxis": (two, lambda np, a: np.rollaxis(a, 1)),
    "transpose": (two, lambda np, a: np.transpose(a)),
    "atleast_1d": (rank0, lambda np, a: np.atleast_1d(a)),
    "atleast_1d same": (one, lambda np, a: np.atleast_1d(a)),
    "atleast_2d": (one, lambda np, a: np.atleast_2d(a)),
    "atleast_3d": (one, lambda np, a: np.atleast_3d(a)),
    "atleast_3d of 2": (two, lambda np, a: np.atleast_3d(a)),
    "atleast several": (one, lambda np, a: np.atleast_2d(a, a[1:])),
    "expand_dims": (two, lambda np, a: np.expand_dims(a, (0, 2))),
    "squeeze": (ones1, lambda np, a: np.squeeze(a)),
    "squeeze axis": (ones1, lambda np, a: a.squeeze(0)),
    "squeeze none": (two, lambda np, a: np.squeeze(a)),
    "split": (two, lambda np, a: np.split(a, 2, axis=1)),
    "array_split": (two, lambda np, a: np.array_split(a, 2)),
    "hsplit": (two, lambda np, a: np.hsplit(a, 2)),
    "vsplit": (two, lambda np, a: np.vsplit(a, [1])),
    "dsplit": (cub, lambda np, a: np.dsplit(a, 2)),
    "unstack": (two, lambda np, a: np.unstack(a)),
    "flat": (two, lambda np, a: a.T.flat),
    "flip": (two, lambda np, a: np.flip(a)),
    "flip 1": (two, lambda np, a: np.flip(a, 1)),
    "fliplr": (two, lambda np, a: np.fliplr(a)),
    "flipud": (two, lambda np, a: np.flipud(a)),
    "rot90": (two, lambda np, a: np.rot90(a)),
    "rot90 0": (two, lambda np, a: np.rot90(a, 0)),
    "rot90 2": (two, lambda np, a: np.rot90(a, 2)),
    "rot90 3": (two, lambda np, a: np.rot90(a, 3)),
    "broadcast_arrays": (one, lambda np, a: np.broadcast_arrays(a, a[:1])[0]),
    "broadcast_arrays 1": (one, lambda np, a: np.broadcast_arrays(a, a[:1])[1]),
    "broadcast_arrays same": (one, lambda np, a: np.broadcast_arrays(a, a)),
    "asarray": (one, lambda np, a: np.asarray(a)),
    "asarray copy": (one, lambda np, a: np.asarray(a, copy=True)),
    "asarray dtype": (one, lambda np, a: np.asarray(a, dtype="float64")),
    "asarray other": (one, lambda np, a: np.asarray(a, dtype="int64")),
    "asanyarray": (one, lambda np, a: np.asanyarray(a)),
    "ascontiguousarray": (two, lambda np, a: np.ascontiguousarray(a)),
    "ascontiguousarray T": (two, lambda np, a: np.ascontiguousarray(a.T)),
    "ascontiguousarray part": (two, lambda np, a: np.ascontiguousarray(a[:, 1:])),
    "ascontiguousarray rank0": (rank0, lambda np, a: np.ascontiguousarray(a)),
    "asfortranarray": (two, lambda np, a: np.asfortranarray(a)),
    "asfortranarray T": (two, lambda np, a: own(np, a).asfortranarray(a.T)),
    "asarray F": (two, lambda np, a: np.asarray(a, order="F")),
    "asarray C of T": (two, lambda np, a: np.asarray(a.T, order="C")),
    "asarray C": (two, lambda np, a: np.asarray(a, order="C")),
    "require": (two, lambda np, a: np.require(a)),
    "require C of T": (two, lambda np, a: np.require(a.T, requirements="C")),
    "require C": (two, lambda np, a: own(np, a).require(a, requirements=["C", "W"])),
    "require F": (two, lambda np, a: np.require(a, requirements="F")),
    "require O": (two, lambda np, a: np.require(a[1:], requirements="O")),
    "require E": (two, lambda np, a: np.require(a[1:], requirements="E")),
    "require W": (two, lambda np, a: np.require(np.broadcast_to(a, (2, 3, 4)), requirements="W")),
    "array": (one, lambda np, a: np.array(a)),
    "array copy=False": (one, lambda np, a: np.array(a, copy=False)),
    "array copy=None": (one, lambda np, a: np.array(a, copy=None)),
    "array copy=None ndmin": (one, lambda np, a: np.array(a, copy=None, ndmin=2)),
    "array ndmin": (one, lambda np, a: np.array(a, ndmin=2)),
    "array copy=None F": (two, lambda np, a: np.array(a, copy=None, order="F")),
    "array copy=None C of T": (two, lambda np, a: np.array(a.T, copy=None, order="C")),
    "array copy=None dtype": (one, lambda np, a: np.array(a, dtype="f4", copy=None)),
    "copy": (one, lambda np, a: np.copy(a)),
    "astype": (one, lambda np, a: a.astype("f8")),
    "astype no copy": (one, lambda np, a: a.astype("f8", copy=False)),
    "np.astype no copy": (one, lambda np, a: np.astype(a, "f8", copy=False)),
    "astype F": (two, lambda np, a: a.astype("f8", order="F", copy=False)),
    "view": (two, lambda np, a: a.view()),
    "view same": (two, lambda np, a: a.view("f8")),
    "view i8": (two, lambda np, a: a.view("i8")),
    "view i4": (two, lambda np, a: a.view("i4")),
    "view complex": (two, lambda np, a: a.view("c16")),
    "view of complex": (cplx, lambda np, a: a.view("f8")),
    "a[...]": (two, lambda np, a: a[...]),
    "a[()]": (two, lambda np, a: a[()]),
    "rank0[()]": (rank0, lambda np, a: a[()]),
    "rank0[...]": (rank0, lambda np, a: a[...]),
    "a[0, ...]": (two, lambda np, a: a[0, 1, ...]),
    "a[:, None]": (two, lambda np, a: a[:, None, 1:]),
    "a[[0]]": (two, lambda np, a: a[[0]]),
    "a[mask]": (two, lambda np, a: a[a > 3]),
    "take": (two, lambda np, a: np.take(a, [0, 1])),
    "compress": (two, lambda np, a: np.compress([True, False, True], a, 0)),
    "sliding": (one, lambda np, a: np.lib.stride_tricks.sliding_window_view(a, 3)),
    "sliding w": (one, lambda np, a: np.lib.stride_tricks.sliding_window_view(a, 3, writeable=True)),
    "sliding w2": (two, lambda np, a: np.lib.stride_tricks.sliding_window_view(a, (2, 2), writeable=True)),
    "as_strided": (one, lambda np, a: np.lib.stride_tricks.as_strided(a, (4, 3), (8, 8))),
    "as_strided r": (one, lambda np, a: np.lib.stride_tricks.as_strided(a, (4, 3), (8, 8), writeable=False)),
    "resize": (one, lambda np, a: np.resize(a, (2, 3))),
    "resize same": (one, lambda np, a: np.resize(a, (6,))),
    "repeat": (one, lambda np, a: np.repeat(a, 1)),
    "tile": (one, lambda np, a: np.tile(a, 1)),
    "roll": (one, lambda np, a: np.roll(a, 0)),
    "fftshift": (one, lambda np, a: np.fft.fftshift(a)),
    "around": (two, lambda np, a: np.round(a, 1)),
    "around ints": (ints, lambda np, a: np.round(a, 1)),
    "a.round ints": (ints, lambda np, a: a.round(1)),
    "floor ints": (ints, lambda np, a: np.floor(a)),
    "positive": (two, lambda np, a: +a),
    "fabs": (two, lambda np, a: np.fabs(a)),
    "fix": (two, lambda np, a: np.fix(a)),
    "clip": (two, lambda np, a: np.clip(a, None, None)),
    "tril": (two, lambda np, a: np.tril(a, 9)),
    "concatenate": (two, lambda np, a: np.concatenate([a])),
    "concatenate None": (two, lambda np, a: np.concatenate([a], None)),
    "stack": (two, lambda np, a: np.stack([a])),
    "hstack": (two, lambda np, a: np.hstack([a])),
    "vstack": (two, lambda np, a: np.vstack([a])),
    "column_stack": (two, lambda np, a: np.column_stack([a])),
    "dstack": (two, lambda np, a: np.dstack([a])),
    "block": (two, lambda np, a: np.block([[a]])),
    "block alone": (two, lambda np, a: np.block(a)),
    "append": (two, lambda np, a: np.append(a, [])),
    "delete": (two, lambda np, a: np.delete(a, [])),
    "insert": (one, lambda np, a: np.insert(a, [], [])),
    "pad 0": (one, lambda np, a: np.pad(a, 0)),
    "pad 0 edge": (one, lambda np, a: np.pad(a, 0, "edge")),
    "sort": (one, lambda np, a: np.sort(a)),
    "unique": (one, lambda np, a: np.unique(a)),
    "sum of nothing": (two, lambda np, a: np.sum(a, axis=())),
    "max of nothing": (two, lambda np, a: np.max(a, axis=())),
    "cumsum": (one, lambda np, a: np.cumsum(a)),
    "ptp": (two, lambda np, a: np.ptp(a, axis=())),
    "unwrap": (one, lambda np, a: np.unwrap(a)),
    "where": (two, lambda np, a: np.where(True, a, a)),
    "select": (two, lambda np, a: np.select([a >= 0], [a])),
    "piecewise": (two, lambda np, a: np.piecewise(a, [a >= 0], [lambda x: x])),
    "choose": (two, lambda np, a: np.choose(0, [a])),
    "apply_over_axes": (two, lambda np, a: np.apply_over_axes(lambda a, k: a, a, [0])),
    "ix_": (lambda: np.arange(3), lambda np, a: np.ix_(a, [0, 1])[0]),
    "r_": (one, lambda np, a: np.r_[a]),
    "c_": (one, lambda np, a: np.c_[a]),
    "ediff1d": (one, lambda np, a: np.ediff1d(a)),
    "angle": (one, lambda np, a: np.angle(a)),
    "vander": (one, lambda np, a: np.vander(a, 2)),
    "fill_diagonal": (sq, lambda np, a: np.fill_diagonal(a, 5)),
    "apply_along_axis": (two, lambda np, a: np.apply_along_axis(lambda v: v, 0, a)),
    "apply_along_axis w": (two, lambda np, a: np.apply_along_axis(lambda v: v.sort(), 0, a[::-1])),
    "vectorize": (two, lambda np, a: np.vectorize(lambda v: v)(a)),
    "iter rows": (two, lambda np, a: [row for row in a]),
    "T": (two, lambda np, a: a.T), "mT": (two, lambda np, a: a.mT),
    "partition": (one, lambda np, a: np.partition(a, 1)),
    "nditer rw": (two, lambda np, a: each(np, a)),
    "nditer rw slot": (two, lambda np, a: each_into(np, a)),
    "nditer ro": (two, lambda np, a: [v.copy() for v in np.nditer(a)]),
    "nditer operands": (two, lambda np, a: np.nditer(a, op_flags=["readwrite"]).operands[0]),
    "nditer itviews": (two, lambda np, a: np.nditer(a, op_flags=["readwrite"]).itviews[0]),
    "nested_iters": (two, lambda np, a: nested(np, a)),
    "put": (two, lambda np, a: np.put(a, [0, 1], 9)),
    "place": (two, lambda np, a: np.place(a, a > 3, 9)),
    "putmask": (two, lambda np, a: np.putmask(a, a > 3, 9)),
    "copyto": (two, lambda np, a: np.copyto(a, 3)),
    "copyto of part": (two, lambda np, a: np.copyto(a[1:], a[:-1])),
    "put_along": (two, lambda np, a: np.put_along_axis(a, np.asarray([[0], [1], [2]]), 9., 1)),
    "add.at": (two, lambda np, a: np.add.at(a, [0, 0], 1)),
    "add out": (two, lambda np, a: np.add(a, 1, out=a[...])),
    "add out tuple": (two, lambda np, a: np.add(a, 1, out=(a,))),
    "sum out": (two, lambda np, a: np.sum(a, 0, out=a[0])),
    "cumsum out": (two, lambda np, a: np.cumsum(a, 0, out=a)),
    "clip out": (two, lambda np, a: np.clip(a, 2, 5, out=a)),
    "a.clip out": (two, lambda np, a: a.clip(2, 5, out=a)),
    "take out": (two, lambda np, a: np.take(a, [0, 1, 2, 3], out=a[0])),
    "compress out": (two, lambda np, a: np.compress([True, True, False, False], a[1], out=a[0, :2])),
    "choose out": (two, lambda np, a: np.choose([0, 0, 0, 0], [a[1]], out=a[0])),
    "concatenate out": (two, lambda np, a: np.concatenate([a[0, :2], a[1, :2]], out=a[2])),
    "stack out": (two, lambda np, a: np.stack([a[0, :2], a[1, :2]], out=a[1:, 2:])),
    "mean out": (two, lambda np, a: np.mean(a, 0, out=a[0])),
    "median out": (two, lambda np, a: np.median(a, 0, out=a[0])),
    "percentile out": (two, lambda np, a: np.percentile(a, 50, 0, out=a[0])),
    "quantile out": (two, lambda np, a: np.quantile(a, .5, 0, out=a[0])),
    "nanmedian out": (two, lambda np, a: np.nanmedian(a, 0, out=a[0])),
    "median overwrite": (two, lambda np, a: np.median(a, 0, overwrite_input=True)),
    "std out": (two, lambda np, a: np.std(a, 0, out=a[0])),
    "ptp out": (two, lambda np, a: np.ptp(a, 0, out=a[0])),
    "trace out": (sq, lambda np, a: np.trace(a, out=a[0, 0, ...])),
    "round out": (two, lambda np, a: np.round(a / 3, 1, out=a)),
    "fix out": (two, lambda np, a: np.fix(a / 3, out=a)),
    "dot out": (sq, lambda np, a: np.dot(a, a, out=a[...].copy())),
    "matmul out": (sq, lambda np, a: np.matmul(a, a, out=a)),
    "einsum out": (sq, lambda np, a: np.einsum("ij,ij->ij", a, a, out=a)),
    "outer out": (sq, lambda np, a: np.outer(a[0], a[1], out=a)),
    "isposinf out": (two, lambda np, a: np.isposinf(a, a > 0)),
    "argmax out": (ints, lambda np, a: np.argmax(a, 0, out=a[0])),
    "any out": (lambda: np.array([[True, False], [False, False]]), lambda np, a: np.any(a, 0, out=a[1])),
    "add.reduce out": (two, lambda np, a: np.add.reduce(a, 0, out=a[0])),
    "add.accumulate out": (two, lambda np, a: np.add.accumulate(a, 0, out=a)),
    "add.reduceat out": (one, lambda np, a: np.add.reduceat(a, [0, 3], out=a[:2])),
    "add.outer out": (sq, lambda np, a: np.add.outer(a[0], a[1], out=a)),
    "where=": (two, lambda np, a: np.add(a, 1, out=a, where=a > 3)),
    "sort()": (two, lambda np, a: a[:, ::-1].sort(0)),
    "partition()": (two, lambda np, a: a[:, ::-1].partition(1)),
    "fill": (two, lambda np, a: a[1].fill(3)),
    "a.put": (two, lambda np, a: a.T.put([1, 2], 5)),
    "a.itemset": (two, lambda np, a: a.flat.__setitem__(slice(2, 5), 5)),
    "a.flat=": (two, lambda np, a: setattr(a.T, "flat", [1, 2])),
    "a.real=": (cplx, lambda np, a: setattr(a, "real", [1, 2, 3])),
    "a.imag=": (cplx, lambda np, a: setattr(a, "imag", 3)),
    "shape=": (two, lambda np, a: setattr(a, "shape", (4, 3))),
    "dtype=": (two, lambda np, a: setattr(a, "dtype", "i8")),
    "shuffle": (one, lambda np, a: np.random.default_rng(1).shuffle(a[::-1])),
    "permuted": (two, lambda np, a: np.random.default_rng(1).permuted(a, axis=0)),
    "permuted out": (two, lambda np, a: np.random.default_rng(1).permuted(a, axis=0, out=a)),
    "random out": (two, lambda np, a: np.random.default_rng(1).random(out=a)),
    "frombuffer": (one, lambda np, a: np.frombuffer(a)),
    "from_dlpack": (one, lambda np, a: np.from_dlpack(a)),
    "ndarray buffer": (one, lambda np, a: np.ndarray((6,), "f8", buffer=a)),
    "broadcast": (one, lambda np, a: np.broadcast(a, a).iters[0]),
    "ndenumerate": (two, lambda np, a: np.ndenumerate(a).iter),
    "flatiter": (two, lambda np, a: a.flat),
    "flatiter next": (two, lambda np, a: list(a.flat)[0]),
    "ma": (two, lambda np, a: np.ma.masked_array(a, copy=False)),
    "ravel of every other": (one, lambda np, a: a[::2].ravel()),
    "ravel of a part": (two, lambda np, a: a[:, 1:3].ravel()),
    "ravel of rows": (two, lambda np, a: a[1:].ravel()),
    "ravel A of rows": (two, lambda np, a: a[1:].ravel("A")),
    "ravel K of every other": (one, lambda np, a: a[::2].ravel("K")),
    "reshape of every other": (one, lambda np, a: a[::2].reshape(3, 1)),
    "sliding window, then the base": (one, lambda np, a: _later(np.lib.stride_tricks.sliding_window_view(a, 2), a)),
    "real_if_close, tol": (cplx, lambda np, a: np.real_if_close(a, 1e20)),
    "trim_zeros of zeros": (lambda: np.zeros(3), lambda np, a: np.trim_zeros(a)),
    "trim_zeros f": (lambda: np.array([0, 0, 1, 0, 2, 0]), lambda np, a: np.trim_zeros(a, "f")),
    "einsum diagonal of a part": (cub, lambda np, a: np.einsum("iji->ji", a[:, :, 1:3])),
    "einsum diagonal of three": (lambda: np.arange(27.).reshape(3, 3, 3), lambda np, a: np.einsum("iii->i", a)),
    "a copy in Fortran's order": (two, lambda np, a: np.asfortranarray(a).ravel("K")),
    "view of a copy in Fortran's order": (two, lambda np, a: [f := np.asfortranarray(a), f.reshape(-1), f.T.reshape(-1)]),
    "view of a copy of a transposed one": (cub, lambda np, a: [c := np.copy(a.transpose(1, 2, 0)), c.reshape(-1), c.ravel("K")]),
    "view of a copy in C's order": (two, lambda np, a: [c := a.T.copy(), c.reshape(-1), c.ravel("F")]),
    "ravel K of what is repeated": (one, lambda np, a: np.broadcast_to(a, (2, 1, 6)).ravel("K")),
    "more axes of 1": (two, lambda np, a: a[0].__setitem__(..., a[None, 1:2])),
    "copy.copy": (two, lambda np, a: copy.copy(a[1:])),
    "copy.deepcopy": (two, lambda np, a: copy.deepcopy(a[1:])),
}
# Overlapping views, views of another dtype, NumPy's own iterators, and what comes into this process by NumPy's own functions.
REFUSED = {
    "meshgrid view", "meshgrid view 1", "meshgrid ij view", "broadcast_arrays 1", "sliding w", "sliding w2", "as_strided",
    "view i8", "view i4", "view complex", "view of complex", "dtype=", "apply_over_axes", "ix_", "apply_along_axis w", "nditer rw", "nditer operands",
    "nditer itviews", "nested_iters", "broadcast", "ndenumerate", "frombuffer", "ndarray buffer", "random out", "ma",
    *(("numpy", name) for name in ("asarray", "asarray dtype", "asanyarray", "ascontiguousarray", "ascontiguousarray T", "ascontiguousarray part",
                                   "ascontiguousarray rank0", "asarray C of T", "asarray C", "require", "require C of T", "require O", "require E",
                                   "array copy=False", "array copy=None", "array copy=None ndmin", "array copy=None C of T", "from_dlpack",
                                   "permuted out")),
}
NEW = ("trim_zeros2d", "array copy=", "around ints", "a.round ints", "clip", "from_dlpack")
SCALARS = {"rank0[()]", "flatiter next"}  # of NumPy's, which cannot be written to
ITERATORS = {"flat", "flatiter"}  # of NumPy's, which are arrays here


def parts(r):
    return [p for p in (r if isinstance(r, (tuple, list)) else [r]) if hasattr(p, "dtype") or hasattr(p, "base")]


def written(call, m, a):
    """The results, after a write to each; or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            r = parts(call(m, a))
            for p in r:
                p[...] = 7
        except Exception as e:
            return e
        return [np.asarray(p) for p in r if hasattr(p, "dtype")]


@pytest.mark.parametrize("how", ["arrayd.numpy", "numpy"])
@pytest.mark.parametrize("name", CALLS)
def test_writes_to_what_a_function_gives(xp, name, how, monkeypatch):  # noqa: F811
    import arrayd.numpy as anp

    monkeypatch.setattr(anp, "_default", xp)
    if name.startswith(NEW) and np.lib.NumpyVersion(np.__version__) < "2.2.0":
        pytest.skip("NumPy had it otherwise")
    make, call = CALLS[name]
    base, a = make(), xp.asarray(make())
    wanted = written(call, np, base)
    if isinstance(wanted, (AttributeError, TypeError)) and name not in SCALARS:
        pytest.skip("this NumPy has it not")
    got = written(call, anp if how == "arrayd.numpy" else np, a)
    after = np.asarray(a)
    if isinstance(got, Exception):
        assert isinstance(wanted, Exception) or name in REFUSED or (how, name) in REFUSED, got
        assert np.array_equal(after, make(), equal_nan=True) or isinstance(wanted, Exception)
        return
    assert after.dtype == base.dtype and np.array_equal(after, base, equal_nan=True)
    if name not in ITERATORS | SCALARS:
        assert not isinstance(wanted, Exception), wanted
        assert len(got) == len(wanted) and all(g.shape == w.shape and np.allclose(g, w, equal_nan=True) for g, w in zip(got, wanted)), (got, wanted)


INTO_NUMBERS = {
    "acc[...] = x.sum()": lambda m, acc, x: acc.__setitem__(..., x.sum()),
    "acc[()] = x[0]": lambda m, acc, x: acc.__setitem__((), x[0]),
    "a view": lambda m, acc, x: acc.reshape(1).reshape(()).__setitem__(..., x[0]),
    "sum": lambda m, acc, x: m.sum(x, out=acc),
    "mean": lambda m, acc, x: m.mean(x, out=acc),
    "max": lambda m, acc, x: m.max(x, out=acc),
    "add": lambda m, acc, x: m.add(x[0], x[1], out=acc),
    "add.reduce": lambda m, acc, x: m.add.reduce(x, out=acc),
    "copyto": lambda m, acc, x: m.copyto(acc, x[1]),
}


@pytest.mark.parametrize("to", ["float64", "float32", "int64", "int8", "bool"])
@pytest.mark.parametrize("name", INTO_NUMBERS)
def test_writes_to_numbers_of_another_dtype(xp, name, to):  # noqa: F811
    for of in ("float64", "float32", "int64", "uint8", "bool"):
        got = []
        for m, asarray in ((np, np.asarray), (np, xp.asarray), (xp, xp.asarray)):
            acc = asarray(np.zeros((), to))
            try:
                INTO_NUMBERS[name](m, acc, asarray(np.array([1.6, 3]).astype(of)))
                got.append(np.asarray(acc))
            except TypeError:
                got.append(None)
        assert all((g is None) == (got[0] is None) and (g is None or (g.dtype == to and np.allclose(g, got[0]))) for g in got), (of, got)
