"""The guard of transfers: what the Python client says when much is moved though nobody asked for values; and that other libraries,
which call NumPy's functions, move nothing but their results."""
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


@pytest.fixture
def received(monkeypatch, xp):  # noqa: F811
    """How many bytes of values have come to this process, and the largest lot."""
    sizes = []
    real = type(xp._transport).send

    def send(self, request, *args, **more):
        reply = real(self, request, *args, **more)
        if request.accept:
            sizes.append(len(request.into) if request.into is not None else len(reply.body))
        return reply

    monkeypatch.setattr(type(xp._transport), "send", send)
    return sizes


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


# --- other libraries ---

NAN = np.where(np.random.default_rng(1).random((60, 80, 8)) < 0.1, np.nan, np.random.default_rng(2).normal(size=(60, 80, 8)))

XARRAY = {
    "mean": lambda d, xr: d.mean("x"), "mean of all": lambda d, xr: d.mean(), "sum": lambda d, xr: d.sum("t"), "std": lambda d, xr: d.std("x"),
    "var": lambda d, xr: d.var(("x", "y")), "min": lambda d, xr: d.min("x"), "max": lambda d, xr: d.max(), "count": lambda d, xr: d.count("x"),
    "prod": lambda d, xr: d.prod("t"), "any": lambda d, xr: (d > 1).any("x"), "argmax": lambda d, xr: d.argmax("x"), "+": lambda d, xr: d * 2 - d / 3,
    "aligned": lambda d, xr: d.isel(x=slice(0, 30)) + d, "np.sin": lambda d, xr: np.sin(d), "sqrt": lambda d, xr: np.sqrt(abs(d)),
    "isel": lambda d, xr: d.isel(x=slice(2, 10), t=[0, 3]), "sel": lambda d, xr: d.sel(x=3.0), "near": lambda d, xr: d.sel(y=0.5, method="nearest"),
    "where": lambda d, xr: d.where(d > 0, 0), "fillna": lambda d, xr: d.fillna(0), "isnull": lambda d, xr: d.isnull(), "clip": lambda d, xr: d.clip(-1, 1),
    "rolling mean": lambda d, xr: d.rolling(x=3).mean(), "rolling sum": lambda d, xr: d.rolling(y=5, center=True).sum(),
    "rolling max": lambda d, xr: d.rolling(t=2).max(), "coarsen": lambda d, xr: d.coarsen(x=4).mean(), "groupby": lambda d, xr: d.groupby(d.x // 10).mean(),
    "diff": lambda d, xr: d.diff("x"), "shift": lambda d, xr: d.shift(x=2), "roll": lambda d, xr: d.roll(x=2), "cumsum": lambda d, xr: d.cumsum("x"),
    "differentiate": lambda d, xr: d.differentiate("x"), "integrate": lambda d, xr: d.integrate("x"), "transpose": lambda d, xr: d.transpose("t", ...),
    "stack": lambda d, xr: d.stack(z=("x", "y")), "unstack": lambda d, xr: d.stack(z=("x", "y")).unstack("z"), "pad": lambda d, xr: d.pad(x=1, mode="edge"),
    "concat": lambda d, xr: xr.concat([d, d], "n"), "dot": lambda d, xr: xr.dot(d.fillna(0), d.fillna(0), dim="x"), "cov": lambda d, xr: xr.cov(d, d, "x"),
    "weighted": lambda d, xr: d.weighted(d.x).mean("x"), "reindex": lambda d, xr: d.reindex(x=[1.0, 2.0, 99.0]), "round": lambda d, xr: d.round(1),
    "set": lambda d, xr: (d.__setitem__({"x": 0}, 5.0), d)[1], "dataset": lambda d, xr: (d.to_dataset() + 1)["d"], "repr": lambda d, xr: repr(d) and d,
    "reduce": lambda d, xr: d.reduce(np.sum, "x"), "corr": lambda d, xr: xr.corr(d, d + 1, "x"), "sortby": lambda d, xr: d.sortby("x", ascending=False)}
XARRAY_HERE = {  # sorting and interpolation are NumPy's and SciPy's, in this process
    "median": lambda d, xr: d.median("t"), "quantile": lambda d, xr: d.quantile(0.3, "t")}


def of_xarray(xr, values):
    return xr.DataArray(values, dims=("x", "y", "t"), coords={"x": np.arange(60.0), "y": np.linspace(0, 1, 80)}, name="d")


@pytest.mark.parametrize("what", [*XARRAY, *XARRAY_HERE])
def test_xarray(xp, received, what):  # noqa: F811
    xr = pytest.importorskip("xarray")
    use = {**XARRAY, **XARRAY_HERE}[what]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = use(of_xarray(xr, NAN.copy()), xr)
        x = of_xarray(xr, (xp.asarray(NAN) * 1).compute())
        if what in XARRAY_HERE:
            with arrayd.config(transfers="forbid"), pytest.raises(arrayd.TransferForbidden):
                use(x, xr)
            return
        with arrayd.config(transfers="forbid", above=20 * KIB):
            got = use(x, xr)
            assert isinstance(got.data, arrayd.Array) and sum(received) < 20 * KIB, received
        np.testing.assert_allclose(np.asarray(got.data), want.data)
        assert got.dtype == want.dtype


@pytest.mark.parametrize("what", ["sum", "std", "arithmetic", "overlap", "rechunk", "where", "slice", "nanmean", "argmax", "concatenate"])
def test_dask(xp, received, what):  # noqa: F811
    da = pytest.importorskip("dask.array")
    use = {"sum": lambda d: d.sum(0), "std": lambda d: d.std(axis=1), "arithmetic": lambda d: d * 2 + 1, "where": lambda d: da.where(d > 0, d, 0),
           "overlap": lambda d: d.map_overlap(lambda b: b * 2, depth=1, boundary="periodic"), "rechunk": lambda d: d.rechunk((60, 10)),
           "slice": lambda d: d[3:50, ::2], "nanmean": lambda d: da.nanmean(d, axis=0), "argmax": lambda d: d.argmax(axis=0),
           "concatenate": lambda d: da.concatenate([d, d])}[what]
    a = np.nan_to_num(NAN.reshape(60, 640))
    want = use(da.from_array(a, chunks=(30, 320))).compute()
    with arrayd.config(transfers="forbid", above=20 * KIB):
        got = use(da.from_array((xp.asarray(a) * 1).compute(), chunks=(30, 320), asarray=False)).compute(scheduler="synchronous")
        assert isinstance(got, arrayd.Array) and sum(received) < 20 * KIB
    np.testing.assert_allclose(np.asarray(got), want)
