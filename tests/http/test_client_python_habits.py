"""What NumPy programs do without a thought, by NumPy and by `arrayd.numpy`: the same values, and the same array written to."""
import concurrent.futures
import math
import pathlib
import sys

import numpy
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
import arrayd.numpy  # noqa: E402
from test_client_python import requests, same, xp  # noqa: E402,F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here

# each leaves what is compared in `r`
PROGRAMS = {
    "an element of another kind": """
x = np.zeros(4, bool); x[1] = 1; x[2] = 2.5
y = np.zeros(4, int); y[1] = 1.7; y[2] = -1.7
z = np.zeros((2, 2), int); z[[1], [0]] = 3.7; z[np.array([[True, False], [False, True]])] = 1.9
r = [x, y, z]""",
    "values of another kind": """
x = np.zeros(4, int); x[:] = np.array([1.5, 2.5, -3.5, 4])
y = np.zeros(2000, np.int32); y[1:] = np.linspace(0, 5, 1999); y[::2] = 7.9
z = np.ones(5000, bool); z[1:] = (np.arange(5000) % 3)[1:]; z[7:9] = 0.5
w = np.zeros((2, 2), int); w[np.array([[True, False], [False, True]])] = [5.5, 6.5]
r = [x, y, z, w]""",
    "a part of complex numbers": """
x = np.array([1+2j, 3-1j, complex(1, np.inf), complex(2, np.nan), complex(5, -np.inf), complex(np.inf, 3)])
x.real = 5; x.imag[0] = 7; x.real[1:3] += x.imag[:2]
y = x.reshape(6, 1)[1:]; y.real *= 2
z = np.zeros(3, np.complex64); z.real += np.arange(3.); z.imag -= 1
r = [x, y, z]""",
    "the real part of a result": """
f = np.exp(1j * np.arange(8.)); v = np.real(f); v += 1; v[0] = 5
w = np.real(np.exp(1j * np.arange(8.))); w *= 2
r = [v, f, w]""",
    "the diagonal by einsum": "a = np.arange(9.).reshape(3, 3); np.einsum('ii->i', a)[:] = 0; r = [a]",
    "the transposed array by einsum": """
a = np.arange(9.).reshape(3, 3); np.einsum('ij->ji', a)[0] += 5
m = np.zeros((2, 3), bool); np.einsum('ij->ji', m)[0] = True
r = [a, m]""",
    "a diagonal after a write": """
a = np.arange(9.).reshape(3, 3); d = [np.diagonal(a, 1), np.diag(a.T), np.diagonal(a[:, :2], -1)]; a[...] = -a
r = d""",
    "arrays broadcast to their own shape": """
a, b = np.broadcast_arrays(np.zeros((2, 2)), 1.0); r = [a, b]""",
    "Fortran's order": "a = np.arange(4.).reshape(2, 2); np.asfortranarray(a)[0, 0] = 9; np.asfortranarray(a.T)[1, 1] = 8; r = [a]",
    "a mask beside other indices": """
x = np.arange(24).reshape(2, 3, 4); m = np.array([True, False, True]); n = np.array([[1, 0, 0, 1]] * 3, bool)
r = [x[:, m, 1], x[0, m], x[..., m, :], x[:, m, None], x[[0, 1], m], x[1, m, ::-1], x[:, [True, False, True], 0], x[0, n], x[..., n]]""",
    "no number is None, or text": """
x = np.arange(3.); y = np.zeros((2, 0))
r = [x == None, x != None, None == x, x[x != None], x == 'a', 'a' != x, y == None, x[0] == None, x[0] != 'a', None in x]""",
    "flags by name": "f = np.arange(6).reshape(2, 3).T.flags; r = [f['C_CONTIGUOUS'], f['F'], f['WRITEABLE'], f['OWNDATA']]",
    "a list of as many as a number says": "n = np.arange(4).max(); r = [[0] * n, n * [1, 2], [len((1,) * n)], [len('ab' * n)]]",
    "a shape that is an array": "r = [np.zeros(np.array([3, 4]) // 2), np.ones(np.array([2])), np.zeros(np.arange(3)[2])]",
    "ranges": "r = [np.sum(range(3)), *np.meshgrid(range(3), range(2))]",
    "what has values": "r = [np.sum(given), np.sqrt(given)]",
    "a sum that is added to": """
x = np.arange(4.); t = x[1]; h = []
for i in range(3): h.append(t); t += 0.5
n = np.arange(4).sum(); m = n; n += 1; n /= 2; k = np.arange(3).max(); k += np.arange(3)
r = [*h, t, m, n, k, x]""",
    "a number that is a key": """
d = {}
for i, k in enumerate(np.array([3, 1, 3])): d[k] = i
r = [d[3], d[1], d[np.arange(4)[3]], len(set(np.array([1., 2., 1.]))), len(d)]""",
    "an index of nothing": "x = np.arange(6.).reshape(2, 3); r = [x[:, ()], x[:, []], np.prod(x[:, ()], axis=1)]",
    "casting": "x = np.arange(5); np.multiply(x, 2.5, out=x, casting='unsafe'); r = [x]",
    "the truth of one element": "x = np.array([[1.5]]); r = [bool(x), bool(x > 2), 1 if x > 1 else 0]",
}


class Given:
    """As a column of a table is: it has values, and is no array."""

    def __array__(self, dtype=None, copy=None):
        return numpy.array([1.0, 4.0, 9.0])


def run(np, program):
    names = {"np": np, "given": Given()}
    exec(program, names)
    return names["r"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_numpy_does_it(xp, name):  # noqa: F811
    if name == "no number is None, or text" and numpy.lib.NumpyVersion(numpy.__version__) < "1.25.0":
        pytest.skip("NumPy compares element by element with text since 1.25")
    wanted, got = run(numpy, PROGRAMS[name]), run(xp, PROGRAMS[name])
    assert len(wanted) == len(got)
    for a, b in zip(wanted, got):
        assert isinstance(a, list) == isinstance(b, list)
        a, b = numpy.asarray(a), numpy.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape
        numpy.testing.assert_allclose(b, a, rtol=1e-6)


@pytest.mark.parametrize("program", ["np.diagonal(a)[0] = 1", "np.diag(a)[0] = 1", "np.broadcast_to(a, a.shape)[0] = 1"])
def test_what_is_read_only(xp, program):  # noqa: F811
    for np in (numpy, xp):
        with pytest.raises(ValueError, match="read-only"):
            exec(program, {"np": np, "a": np.ones((3, 3))})


def test_values_that_do_not_go(xp):  # noqa: F811
    x = xp.arange(3)
    for wrong in (math.nan, math.inf, numpy.float32("nan")):
        with pytest.raises(ValueError, match="is not an integer"):
            x[1] = wrong
    with pytest.raises(TypeError, match="complex128 do not go into int64"):
        x[1] = 1j
    with pytest.raises(ValueError, match="an array of 3 elements is not a truth value"):
        bool(x)
    with pytest.raises(IndexError, match=r"a mask of shape \(2,\) does not fit the axes from 1 of an array of shape \(3, 4\)"):
        xp.ones((3, 4))[0, xp.asarray([True, False])]
    assert x.tolist() == [0, 1, 2]


@pytest.mark.parametrize("shape", [(50, 4), (400, 400)])
def test_several_threads_write_to_one_array(xp, shape):  # noqa: F811
    """To elements of their own: of a pool whose functions put their results there, none gets lost."""
    x = xp.zeros(shape)
    columns = [x[:, k] for k in range(4)]

    def fill(k):
        for i in range(0, 48, 3):
            x[i, k] = i + k + 1
            x[i + 1, k] += i + k + 2
            columns[k][i + 2] = i + k + 3

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(fill, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert numpy.array_equal(numpy.asarray(x)[:48, :4], numpy.arange(48)[:, None] + numpy.arange(4) + 1)


def test_text(xp):  # noqa: F811
    a = numpy.arange(6.0).reshape(2, 3) / 3
    for value in (a, a[0, 1], a > 1, numpy.arange(3), numpy.ones(2) * 1j, a.mean(), numpy.zeros((0, 3))):
        assert str(xp.asarray(value)) == f"{xp.asarray(value)}" == str(value)
    with numpy.printoptions(threshold=3000):
        assert str(xp.arange(2000)) == str(numpy.arange(2000))
    assert str(xp.arange(2000.0)) == str(numpy.arange(2000.0))
    assert repr(xp.arange(2)) == "arrayd.array([0, 1], shape=(2,), dtype=int64)"


def test_masked_arrays_and_polynomials_are_numpys(xp):  # noqa: F811
    x = xp.arange(5.0)
    m = arrayd.numpy.ma.array(x, mask=x > 2)
    assert isinstance(m, numpy.ma.MaskedArray) and m.sum() == 3 and (m * x).sum() == 5
    assert arrayd.numpy.ma.masked_where(x > 2, x).filled(9).tolist() == [0, 1, 2, 9, 9]
    assert numpy.asarray(arrayd.numpy.poly1d([1, 2])(x)).tolist() == [2, 3, 4, 5, 6]


def test_flags_that_are_set(xp):  # noqa: F811
    """It would be forgotten: a write to what was to be read-only would succeed."""
    with pytest.raises(AttributeError):
        xp.zeros(3).flags.writeable = False


def test_to_a_file(xp, tmp_path):  # noqa: F811
    (xp.arange(3.0) + 1).tofile(tmp_path / "values")
    assert numpy.fromfile(tmp_path / "values").tolist() == [1, 2, 3]


def test_names_that_are_numpys_alone():
    with pytest.raises(AttributeError, match=r"has no attribute 'asmatrix': numpy\.asmatrix is for values in this process"):
        arrayd.numpy.asmatrix  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'nothing'$"):
        arrayd.numpy.nothing  # noqa: B018


def test_numpys_assertions(xp):  # noqa: F811
    np = arrayd.numpy
    x = xp.asarray([1.0, 2.0, numpy.nan])
    for t in (np.testing, __import__("importlib").import_module("arrayd.numpy.testing")):
        t.assert_equal(x, [1, 2, numpy.nan])
        t.assert_equal({"x": [x, 3]}, {"x": [x + 0, 3]})
        t.assert_almost_equal(x[:2], numpy.array([1.0, 2.0]))
        t.assert_almost_equal(x[0], 1.0)
        t.assert_allclose(x, x)
        for wrong in (t.assert_equal, t.assert_almost_equal, t.assert_array_equal):
            with pytest.raises(AssertionError):
                wrong(x, x + 1)
        given = []
        t.assert_raises(TypeError, lambda y: given.append(y) or hash(y), x)
        assert given[0] is x


def test_columns_and_rows_are_expressions(xp, api):  # noqa: F811
    """A product with one of these is a sum of products, as with a vector: nothing is downloaded."""
    rng = numpy.random.default_rng(0)
    for left, right in (((30, 20), (20, 1)), ((1, 20), (20, 30)), ((1, 20), (20, 1)), ((4, 30, 20), (20, 1)), ((4, 1, 1, 20), (3, 20, 30)), ((3, 0), (0, 1))):
        a, b = rng.random(left), rng.random(right)
        x, y = xp.asarray(a).compute(), xp.asarray(b).compute()
        before = requests(api)
        z = x @ y + 1
        assert requests(api) == before
        same(z, a @ b + 1)
        assert requests(api) == before + 1
    for left, right in (((3, 4), (3, 1)), ((1, 4), (3, 3))):
        with pytest.raises(ValueError, match="do not match"):
            xp.ones(left) @ xp.ones(right)
