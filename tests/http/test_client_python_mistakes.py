"""clients/python: what is said of mistakes that the client finds by itself, and of arrays that are not there any more."""
import asyncio
import pickle
import re
import traceback

import numpy as np
import pytest

from test_client_python import xp  # noqa: F401

import arrayd
import arrayd.numpy

pytestmark = pytest.mark.release_only  # it is the client that is tested here


@pytest.mark.parametrize("mistake, kind, said", [
    (lambda xp, a, b: (a*2 + xp.sin(b)) / 3, ValueError,
     "add: shapes (4, 5) and (5, 4) do not broadcast together\n    ((array(4, 5; float64) * 2.0) + sin(array(5, 4; float64)))"),
    (lambda xp, a, b: b - a, ValueError, "subtract: shapes (5, 4) and (4, 5) do not"),
    (lambda xp, a, b: xp.where(a > 0, 1.0, b), ValueError, "where: shapes (4, 5) and () and (5, 4) do not"),
    (lambda xp, a, b: xp.clip(a, 0, b), ValueError, "clip: shapes (4, 5) and (5, 4) do not"),
    (lambda xp, a, b: xp.lerp(a, b, 0.5), ValueError, "lerp: shapes (4, 5) and (5, 4) and () do not"),
    (lambda xp, a, b: xp.broadcast_arrays(b, a), ValueError, "broadcast_arrays: shapes (5, 4) and (4, 5) do not"),
    (lambda xp, a, b: xp.broadcast_to(a, (4, 1)), ValueError, "broadcast_to: shape (4, 5) does not broadcast to (4, 1)"),
    (lambda xp, a, b: xp.concat([a, b]), ValueError, "concat: shapes differ elsewhere than along axis 0: [(4, 5), (5, 4)]"),
    (lambda xp, a, b: xp.take_along_axis(a, xp.ones((2, 2), dtype="int64"), axis=1), ValueError, "take_along_axis: shapes (4, 5) and (2, 2) do"),
    (lambda xp, a, b: a & (b.T > 0), TypeError, "bitwise_and: not defined for float64 and bool\n    (array(4, 5; float64) & "),
    (lambda xp, a, b: xp.sin(a) > 1j, TypeError, "greater: not defined for float64 and complex128"),
    (lambda xp, a, b: xp.signbit(xp.astype(a, "int8")), TypeError, "signbit: not defined for int8"),
    (lambda xp, a, b: xp.vecdot(a > 0, a), TypeError, "vecdot: not defined for bool"),
    (lambda xp, a, b: a.view(np.int64), TypeError, "a view has the array's dtype, float64, not int64: x.astype(dtype) converts the values, and "
                                                   "xp.asarray(numpy.asarray(x).view(dtype)) is a copy with the same bits"),
    (lambda xp, a, b: a.view(dtype="f4"), TypeError, "a view has the array's dtype, float64, not float32: "),
    (lambda xp, a, b: a.__setitem__((0, slice(None)), b), ValueError, "an assignment: values of shape (5, 4) do not fit a region of shape (5,)"),
    (lambda xp, a, b: a.__setitem__(0, np.ones(3)), ValueError, "an assignment: values of shape (3,) do not fit a region of shape (5,)"),
    (lambda xp, a, b: a.__setitem__(0, 1j), TypeError, "an assignment: values of complex128 do not go into float64"),
    (lambda xp, a, b: a[0].__iadd__(b.T), ValueError, "add in place: a result of shape (4, 5) does not fit into shape (5,)"),
    (lambda xp, a, b: xp.astype(a, "int32").__imul__(0.5), TypeError,
     "multiply in place: a result of float64 does not go into int32\n    (astype(array(4, 5; float64), dtype='int32') * 0.5)"),
])
def test_the_operation_and_its_operands_are_named(xp, mistake, kind, said):  # noqa: F811
    """In the order in which they were given."""
    a, b = xp.random((4, 5)), xp.random((5, 4))
    with pytest.raises(kind, match="^" + re.escape(said)):
        mistake(xp, a, b)


def test_what_cannot_be_done_in_place(xp):  # noqa: F811
    """What to write instead is said, in the words of who wrote it."""
    x, h = xp.asarray([1.0, 2.0]), np.ones(2)
    for name, sign in (("add", "+"), ("multiply", "*"), ("power", "**"), ("divide", "/"), ("floor_divide", "//")):
        said = f"{name} in place: h is NumPy's array and x is arrayd's: write h = h {sign} x, which is arrayd's, or h {sign}= np.asarray(x)"
        with pytest.raises(TypeError, match="^" + re.escape(said) + "$"):
            exec(f"h {sign}= x", {"h": h, "x": x})
    with pytest.raises(TypeError, match="^out: an array of arrayd's is wanted, not ndarray"):
        np.maximum(x, h, out=h)
    h = h + x
    assert h.tolist() == [2, 3] and isinstance(h, arrayd.Array)
    a = xp.zeros((5, 5))
    with pytest.raises(AttributeError, match="^strides cannot be set: take a slice, as " + re.escape("x.reshape(-1)[::n+1] for the diagonal")):
        a[0].strides = (48,)
    a.reshape(-1)[::6] = 1
    assert (a.numpy() == np.eye(5)).all()


def test_what_is_no_number(xp):  # noqa: F811
    for wrong, name in ((None, "NoneType"), ([1, None], "NoneType"), (object(), "object"), ([{}], "dict")):
        with pytest.raises(TypeError, match=f"^{name} is not a number$"):
            xp.asarray(wrong)
    with pytest.raises(TypeError, match="not a number: use from_dlpack"):
        xp.asarray(type("Theirs", (), {"__dlpack__": None})())
    with pytest.raises(OverflowError, match="an integer is too large"):
        xp.asarray([2**64])


def test_a_program_of_one_statement(xp):  # noqa: F811
    u = xp.zeros(3)
    xp.program("u += 1", steps=4, u=u).wait(60)
    assert u.tolist() == [4] * 3
    with pytest.raises(arrayd.BadValue, match=r"\n    u \+= who\n         \^"):
        xp.program("u += who", steps=4, u=u)


@pytest.mark.parametrize("use, error, said", [
    (lambda xp, x: x["a"], IndexError, "only integers, slices .*, None, and arrays of integers or a mask are valid indices, not 'a'"),
    (lambda xp, x: x[1, "b"], IndexError, "not 'b'"), (lambda xp, x: x[{}], IndexError, "not {}"), (lambda xp, x: x[1.5], IndexError, "not float64"),
    (lambda xp, x: x.sum(axis="x"), TypeError, "an axis is an integer, or None; not 'x'"), (lambda xp, x: x.sum(axis=1.5), TypeError, "not 1.5"),
    (lambda xp, x: xp.max(x, axis=(0, "y")), TypeError, "not 'y'"), (lambda xp, x: xp.concat([x, x], axis="z"), TypeError, "not 'z'")])
def test_what_is_not_an_index_or_an_axis(xp, use, error, said):  # noqa: F811
    with pytest.raises(error, match=said):
        use(xp, xp.ones((2, 3)))


@pytest.mark.parametrize("use", [
    lambda xp, x, y, job: np.asarray(y), lambda xp, x, y, job: x.numpy(), lambda xp, x, y, job: x.exported().__enter__(),
    lambda xp, x, y, job: job.wait(30), lambda xp, x, y, job: job.resume()], ids=["expression", "array", "export", "wait", "resume"])
def test_a_restart_is_named(daemon_with, tmp_path, use):
    """What the daemon had before it was restarted; and nothing of a restart where an array was only deleted."""
    args = ["--listen", f"unix:{tmp_path}/s"]
    daemon = daemon_with(*args)
    with arrayd.connect(f"unix:{tmp_path}/s") as xp:  # noqa: F811
        x = xp.random((4, 5)).compute()
        job = xp.program("u += 1", steps=1 << 40, u=xp.zeros(3))
        y, gone = xp.sin(x), xp.ones(3).compute()
        xp.delete(gone.id)
        with pytest.raises(arrayd.NotFound) as e:
            gone.numpy()
        assert "restarted" not in str(e.value)
        daemon.stop()
        daemon_with(*args)
        started = arrayd.connect(f"unix:{tmp_path}/s").info()["process"]["started"]
        with pytest.raises(arrayd.NotFound, match=f"there is no [a-z]+ '[aj]-.*' any more: the daemon was restarted at {started}"):
            use(xp, x, y, job)


def test_a_restart_is_named_asynchronously(daemon_with, tmp_path):
    args = ["--listen", f"unix:{tmp_path}/s"]
    daemon = daemon_with(*args)

    async def steps():
        async with arrayd.aconnect(f"unix:{tmp_path}/s") as xp:  # noqa: F811
            x = await xp.random((4, 5)).compute()
            daemon.stop()
            daemon_with(*args)
            with pytest.raises(arrayd.NotFound, match="the daemon was restarted at"):
                await xp.sum(x).item()

    asyncio.run(steps())


def test_one_element_goes_anywhere(xp):  # noqa: F811
    x = xp.zeros((2, 3))
    x[0] = np.full((1, 1, 1), 7.0)
    x[1] = [4.0]
    assert x.tolist() == [[7] * 3, [4] * 3]


@pytest.mark.parametrize("use", [
    lambda xp, x: (x + 1).compute(), lambda xp, x: float(xp.sum(x)), lambda xp, x: xp.stack([x, x]).numpy(), lambda xp, x: x.numpy(),
    lambda xp, x: xp.save("kept", x), lambda xp, x: xp.evaluate("x + 1", x=x), lambda xp, x: (x.__setitem__(0, 1.0), x.numpy())])
def test_an_array_that_has_gone(xp, use):  # noqa: F811
    """In an expression as elsewhere."""
    x = xp.random((100, 200)).compute()
    id_ = x.id
    xp.delete(id_)
    with pytest.raises(arrayd.NotFound, match=f"there is no array '{id_}'"):
        use(xp, x)
    with pytest.raises(arrayd.BadValue, match="called 'nobody'"):
        xp.evaluate("nobody + 1")


@pytest.mark.parametrize("of, name, said", [
    (lambda xp: xp, "lapalcian", "'Client' object has no attribute 'lapalcian'; did you mean 'laplacian'?"),
    (lambda xp: xp, "nothing_like_it", "'Client' object has no attribute 'nothing_like_it'"),
    (lambda xp: xp, "_engin", "'Client' object has no attribute '_engin'"),
    (lambda xp: arrayd.numpy, "meen", "module 'arrayd.numpy' has no attribute 'meen'; did you mean 'mean'?"),
    (lambda xp: arrayd.numpy, "lapalcian", "module 'arrayd.numpy' has no attribute 'lapalcian'; did you mean 'laplacian'?"),
    (lambda xp: xp.linalg, "slove", "'Linalg' object has no attribute 'slove'; did you mean 'solve' or 'slogdet'?"),
    (lambda xp: arrayd.numpy.linalg, "slove", "module 'arrayd.numpy.linalg' has no attribute 'slove'; did you mean 'solve' or 'slogdet'?"),
])
def test_the_nearest_names_are_told(xp, of, name, said):  # noqa: F811
    with pytest.raises(AttributeError) as e:
        getattr(of(xp), name)
    assert str(e.value) == said and str(pickle.loads(pickle.dumps(e.value))) == said
    assert traceback.format_exception_only(e.type, e.value)[-1] == f"AttributeError: {said}\n"  # Python does not tell them again


def test_nearest_names_that_nobody_reads(xp, monkeypatch):  # noqa: F811
    """Libraries ask for one attribute after the other."""
    monkeypatch.setattr("difflib.get_close_matches", None)
    assert not any(hasattr(of, "lapalcian") for of in (xp, xp.linalg, arrayd.numpy, arrayd.numpy.linalg))


def test_a_property_s_own_error_remains(xp, monkeypatch):  # noqa: F811
    monkeypatch.setattr(type(xp), "url", property(lambda self: self._transport.nothing))
    with pytest.raises(AttributeError, match="'Transport' object has no attribute 'nothing'"):
        xp.url


def test_masked_values_are_no_data(xp):  # noqa: F811
    """What is under a mask, a fill value of 1e20 as NetCDF files have it, must not be computed with unasked."""
    m = np.ma.masked_greater(np.array([[1.0, 1e20], [3.0, 4.0]]), 1e19)
    z = xp.zeros((2, 2))
    for wrong in (lambda: xp.asarray(m), lambda: xp.asarray([m[0], m[1]]), lambda: z + m, lambda: np.add(z, m),
                  lambda: xp.where(z > 1, m, z), lambda: z.__setitem__(..., m), lambda: z.__setitem__((0, 1), m[0, 1]), lambda: xp.from_dlpack(m),
                  lambda: xp.full((2, 2), m), lambda: xp.full(2, np.ma.masked), lambda: xp.evaluate("m + 1", m=m), lambda: xp.save("masked", m),
                  lambda: xp.asarray([1.0, 2.0], dims="x", coords={"x": m[0]})):
        with pytest.raises(ValueError, match=r"[12] of [124] elements (are|is) masked.*m\.filled\(numpy\.nan\)"):
            wrong()
    with pytest.raises(ValueError, match=r"m\.astype\(float\)\.filled\(numpy\.nan\), or m\.filled\(0\)"):
        xp.asarray(np.ma.array([1, 2], mask=[False, True]))
    with pytest.raises(ValueError, match=r"m\.filled\(False\)"):
        z[m > 2]
    assert not z.numpy().any()
    assert xp.asarray(np.ma.array([1.0, 2.0])).tolist() == [1, 2] == xp.asarray(np.ma.array([1.0, 2.0], mask=False)).tolist()
    assert (z + np.ma.array([1.0, 2.0])).tolist() == [[1, 2]] * 2 and np.isnan(xp.asarray(m.filled(np.nan))).sum() == 1
