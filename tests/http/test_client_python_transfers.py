"""The guard of transfers: what the Python client says when much is moved though nobody asked for values."""
import inspect
import pathlib
import sys
import threading
import warnings

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
import arrayd._transfers as transfers  # noqa: E402
from test_client_python import xp  # noqa: E402,F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here
KIB = 1024


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(transfers, "_told", set())
    with arrayd.config(transfers="warn", above="64 KiB"):
        yield


@pytest.fixture
def big(xp):  # noqa: F811
    """128 KiB, on the server alone."""
    return xp.random((128, 128), seed=1).compute()


def here():
    return inspect.currentframe().f_back.f_lineno


def test_a_warning_names_the_function_the_bytes_and_the_line(xp, big):  # noqa: F811
    with pytest.warns(arrayd.TransferWarning) as told:
        line = here() + 1
        xp.median(big, 0)
    assert len(told) == 1 and told[0].filename == __file__ and told[0].lineno == line
    assert str(told[0].message).startswith(f"median is computed in this process: it moves 128 KiB (at {__file__}:{line}); ")


@pytest.mark.parametrize("use", [
    lambda xp, x: xp.sort(x), lambda xp, x: xp.argsort(x, axis=0), lambda xp, x: x @ x, lambda xp, x: xp.linalg.inv(x), lambda xp, x: x[x > 0.5],
    lambda xp, x: xp.nonzero(x > 0.5) and xp.unique(x), lambda xp, x: xp.fft.fft(x), lambda xp, x: np.median(x), lambda xp, x: np.linalg.svd(x),
    lambda xp, x: x.sort(), lambda xp, x: xp.einsum("ij,jk->ik", x, x), lambda xp, x: np.histogram(x), lambda xp, x: x.__setitem__([1, 2], 0),
    lambda xp, x: xp.searchsorted(x[0], x), lambda xp, x: np.add.reduceat(x, [0, 3]), lambda xp, x: xp.random.rand(200, 200) + 1,
    lambda xp, x: xp.put(x, [1], 2), lambda xp, x: xp.where(x > 0.5)[0] if xp.nonzero(x) else 0, lambda xp, x: x.partition(3)])
def test_what_is_computed_here(xp, big, use):  # noqa: F811
    """Warned of; allowed; forbidden, and then nothing has moved or changed."""
    with pytest.warns(arrayd.TransferWarning):
        use(xp, xp.asarray(big, copy=True))
    with arrayd.config(transfers="forbid"):
        with pytest.raises(arrayd.TransferForbidden, match=r"is computed in this process: it moves .* KiB \(at .*test_client_python_transfers.py:"):
            use(xp, big)
    before = float(big.sum())
    with warnings.catch_warnings(), arrayd.config(transfers="allow"):
        warnings.simplefilter("error")
        use(xp, xp.asarray(big, copy=True))
    assert float(big.sum()) == before


def test_once_a_line(xp, big):  # noqa: F811
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            xp.median(big)
        xp.median(big)
    assert len(told) == 2
    for _ in range(2):  # a line of which a filter makes an error is told of again
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(arrayd.TransferWarning):
                raised(xp, big)


def raised(xp, big):  # noqa: F811
    xp.median(big)


def test_what_is_small_or_here_already(xp):  # noqa: F811
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = xp.random((20, 20), seed=1).compute()
        xp.sort(x), xp.median(x), x @ x
        y = xp.asarray(np.ones((100, 50)))  # 40 KB, which are here
        xp.median(y)
        assert float(xp.sum(xp.random((1000, 1000), seed=1))) > 0


def test_the_result_counts(xp):  # noqa: F811
    """Of what comes and what goes back, the sum."""
    x = xp.random((60, 60), seed=1).compute()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        xp.kron(x[:10, :10], x[:5, :5])
        assert not told
        xp.kron(x, x[:5, :5])
    assert "kron is computed in this process: it moves 731.4 KiB" in str(told[0].message)


def test_values_that_are_asked_for(xp, big, tmp_path):  # noqa: F811
    with warnings.catch_warnings(), arrayd.config(transfers="forbid"):
        warnings.simplefilter("error")
        assert np.asarray(big).shape == np.array(big).shape == big.numpy().shape == (128, 128)
        assert len(big.tolist()) == 128 and len(big.tobytes()) == 128 * KIB
        np.save(tmp_path / "x.npy", big)
        there = np.empty((128, 128))
        there[...] = big
        np.copyto(there, big)
        assert np.array_equal(np.load(tmp_path / "x.npy"), there)
        str(big), repr(big)


def library(folder, text):
    """A module that lies where installed packages lie."""
    package = folder / "site-packages" / "theirs"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text)
    namespace = {"__name__": "theirs"}
    exec(compile(text, str(package / "__init__.py"), "exec"), namespace)  # noqa: S102
    return namespace["f"]


def test_values_that_a_library_takes(xp, big, tmp_path):  # noqa: F811
    """Nobody has asked it to: the line is the one that called the library."""
    f = library(tmp_path, "import numpy as np\ndef f(x): return np.asarray(x).sum()\n")
    with pytest.warns(arrayd.TransferWarning) as told:
        line = here() + 1
        f(big)
    assert told[0].lineno == line and str(told[0].message).startswith("np.asarray(x) by theirs is computed in this process: it moves 128 KiB")
    with arrayd.config(transfers="forbid"), pytest.raises(arrayd.TransferForbidden):
        f(big)
    g = library(tmp_path / "2", "import numpy as np\ndef f(x): return np.median(x)\n")
    with pytest.warns(arrayd.TransferWarning) as told:
        line = here() + 1
        g(big)
    assert told[0].lineno == line and told[0].filename == __file__


def test_settings():
    assert arrayd.config(transfers="allow", above="1 GiB", loops=False).above == 1 << 30
    c = arrayd.config()
    assert (c.transfers, c.above, c.loops) == ("allow", 1 << 30, False)
    with arrayd.config(above=0, loops=True):
        assert (c.transfers, c.above, c.loops) == ("allow", 0, True)
        with arrayd.config(transfers="forbid"):
            assert repr(c) == "arrayd.config(transfers='forbid', above=0, loops=True)"
    assert (c.transfers, c.above, c.loops) == ("allow", 1 << 30, False)
    for text, n in (("64 MiB", 64 << 20), ("1.5kB", 1500), ("2 GB", 2 * 10**9), ("0", 0), (7, 7), ("3KiB", 3072)):
        assert arrayd.config(above=text).above == n
    for wrong in ({"transfers": "maybe"}, {"above": "much"}, {"above": -1}, {"above": True}):
        with pytest.raises(ValueError):
            arrayd.config(**wrong)
    arrayd.config(transfers="warn", above="64 MiB", loops=True)


def test_settings_of_several_threads():
    """Each change is whole."""
    def change():
        for k in range(200):
            arrayd.config(above=k, loops=bool(k % 2))

    threads = [threading.Thread(target=change) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert (arrayd.config().above, arrayd.config().loops) == (199, True)
    arrayd.config(above="64 MiB")
