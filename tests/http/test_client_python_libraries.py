"""Calls of other libraries with arrays of the Python client: they give the same as with NumPy's, and download nothing but what is looked
at, except where the guard of transfers says so. docs/python.md has the counts, and what each of the others is for."""
import pathlib
import re
import sys
import warnings

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
from client import REPO  # noqa: E402
from test_client_python import xp  # noqa: E402,F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here
FEW = 20 * 1024  # bytes: less than any of the arrays
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
XARRAY_HERE = {  # sorting and interpolation
    "median": lambda d, xr: d.median("t"), "quantile": lambda d, xr: d.quantile(0.3, "t"), "interp": lambda d, xr: d.interp(x=[1.5, 2.5]),
    "interpolate_na": lambda d, xr: d.interpolate_na("t")}
XARRAY_REFUSES = {"vectorized": lambda d, xr: d.isel(x=xr.DataArray([1, 2], dims="p"), y=xr.DataArray([3, 4], dims="p")),
                  "idxmax": lambda d, xr: d.idxmax("x")}

DASK = {
    "sum": lambda d, da: d.sum(0), "mean": lambda d, da: d.mean(), "std": lambda d, da: d.std(axis=1), "var": lambda d, da: d.var(),
    "arithmetic": lambda d, da: d * 2 + 1, "T": lambda d, da: d.T, "sin": lambda d, da: np.sin(d), "exp": lambda d, da: da.exp(d),
    "overlap": lambda d, da: d.map_overlap(lambda b: b * 2, depth=1, boundary="periodic"), "rechunk": lambda d, da: d.rechunk((60, 10)),
    "where": lambda d, da: da.where(d > 0, d, 0), "max": lambda d, da: d.max(axis=0), "argmax": lambda d, da: d.argmax(axis=0),
    "cumsum": lambda d, da: d.cumsum(axis=0), "slice": lambda d, da: d[3:50, ::2], "concatenate": lambda d, da: da.concatenate([d, d]),
    "stack": lambda d, da: da.stack([d, d]), "nanmean": lambda d, da: da.nanmean(d, axis=0), "pad": lambda d, da: da.pad(d, 1),
    "roll": lambda d, da: da.roll(d, 3, axis=0), "diff": lambda d, da: da.diff(d, axis=0), "clip": lambda d, da: da.clip(d, 0, 1),
    "any": lambda d, da: (d > 2).any(), "take": lambda d, da: d[[1, 5, 50]], "reshape": lambda d, da: d.reshape(d.size),
    "coarsen": lambda d, da: da.coarsen(np.sum, d, {0: 2})}
DASK_HERE = {"median": lambda d, da: da.median(d, axis=0), "matmul": lambda d, da: d.T @ d, "topk": lambda d, da: da.topk(d, 3, axis=0),
             "mask": lambda d, da: d[d > 0], "histogram": lambda d, da: da.histogram(d, bins=4, range=(-1, 1))[0],
             "percentile": lambda d, da: da.percentile(d.ravel(), 30)}
DASK_NUMBERS = {
    "sum": lambda d: (d + d).sum(), "rechunk": lambda d: d.rechunk((60, 10)).mean(axis=0).max(), "rows": lambda d: d.rechunk((37, 400)).std(),
    "overlap": lambda d: d.map_overlap(lambda b: (np.roll(b, 1, 0) + np.roll(b, -1, 1)) / 2, depth=1, boundary="periodic").std(),
    "slice": lambda d: d[::2].std(), "argmax": lambda d: d.argmax(), "axis": lambda d: d.mean(axis=0).max()}

SCIPY = {
    "special.logsumexp": lambda a, sp: sp.special.logsumexp(a, axis=0), "special.softmax": lambda a, sp: sp.special.softmax(a, axis=1),
    "special.log_softmax": lambda a, sp: sp.special.log_softmax(a, axis=1), "stats.zscore": lambda a, sp: sp.stats.zscore(a),
    "stats.skew": lambda a, sp: sp.stats.skew(a), "stats.kurtosis": lambda a, sp: sp.stats.kurtosis(a, axis=1),
    "stats.ttest_1samp": lambda a, sp: sp.stats.ttest_1samp(a, 0.0).statistic, "stats.sem": lambda a, sp: sp.stats.sem(a),
    "stats.pearsonr": lambda a, sp: sp.stats.pearsonr(a[:, 0], a[:, 1]).statistic, "stats.gmean": lambda a, sp: sp.stats.gmean(abs(a)),
    "stats.moment": lambda a, sp: sp.stats.moment(a, 3), "stats.describe": lambda a, sp: sp.stats.describe(a).variance,
    "stats.variation": lambda a, sp: sp.stats.variation(a), "stats.tmean": lambda a, sp: sp.stats.tmean(a),
    "integrate.trapezoid": lambda a, sp: sp.integrate.trapezoid(a, axis=0),
    "integrate.cumulative_trapezoid": lambda a, sp: sp.integrate.cumulative_trapezoid(a, axis=0), "fft.fftshift": lambda a, sp: sp.fft.fftshift(a),
    "integrate.simpson": lambda a, sp: sp.integrate.simpson(a, axis=0)}
SCIPY_SINCE = {"integrate.simpson": (1, 18)}  # before, in this process
SCIPY_HERE = {
    "special.erf": lambda a, sp: sp.special.erf(a), "special.j0": lambda a, sp: sp.special.j0(a), "stats.entropy": lambda a, sp: sp.stats.entropy(abs(a)),
    "stats.iqr": lambda a, sp: sp.stats.iqr(a), "ndimage.gaussian_filter": lambda a, sp: sp.ndimage.gaussian_filter(a, 1),
    "ndimage.laplace": lambda a, sp: sp.ndimage.laplace(a), "signal.detrend": lambda a, sp: sp.signal.detrend(a, axis=0),
    "fft.fft": lambda a, sp: sp.fft.fft(a, axis=0), "fft.dct": lambda a, sp: sp.fft.dct(a), "linalg.norm": lambda a, sp: sp.linalg.norm(a), "linalg.svdvals": lambda a, sp: sp.linalg.svdvals(a)}
SCIPY_REFUSES = {"signal.lfilter": lambda a, sp: sp.signal.lfilter(np.ones(1), np.ones(2), a)}

SKLEARN = {
    "StandardScaler": lambda a, sk: sk.preprocessing.StandardScaler().fit_transform(a),
    "MinMaxScaler": lambda a, sk: sk.preprocessing.MinMaxScaler().fit_transform(a),
    "MaxAbsScaler": lambda a, sk: sk.preprocessing.MaxAbsScaler().fit_transform(a), "normalize": lambda a, sk: sk.preprocessing.normalize(a),
    "Binarizer": lambda a, sk: sk.preprocessing.Binarizer().fit_transform(a), "KernelCenterer": lambda a, sk: sk.preprocessing.KernelCenterer().fit_transform(a[:, :100]),
    "mean_squared_error": lambda a, sk: sk.metrics.mean_squared_error(a[:, 0], a[:, 1]), "r2_score": lambda a, sk: sk.metrics.r2_score(a[:, 0], a[:, 1]),
    "mean_absolute_error": lambda a, sk: sk.metrics.mean_absolute_error(a[:, 0], a[:, 1])}
SKLEARN_HERE = {
    "PCA": lambda a, sk: abs(sk.decomposition.PCA(2, svd_solver="full").fit_transform(a)), "euclidean": lambda a, sk: sk.metrics.pairwise.euclidean_distances(a),
    "cosine": lambda a, sk: sk.metrics.pairwise.cosine_similarity(a), "Ridge": lambda a, sk: sk.linear_model.Ridge(solver="svd").fit(a[:, :50], a[:, 60]).coef_}

EINOPS = {"rearrange": lambda a, e: e.rearrange(a, "(a b) c -> a c b", a=10), "reduce": lambda a, e: e.reduce(a, "(a b) c -> a c", "mean", a=10),
          "repeat": lambda a, e: e.repeat(a, "a b -> a c b", c=2), "pack": lambda a, e: e.pack([a, a], "* b")[0]}

MATPLOTLIB = {  # they draw values, which are downloaded
    "plot": lambda a, p: p.plot(a[:, 0], a[:, 1]), "scatter": lambda a, p: p.scatter(a[0], a[1], c=a[2], s=abs(a[3])), "imshow": lambda a, p: p.imshow(a),
    "hist": lambda a, p: p.hist(a[0], bins=20), "hist2d": lambda a, p: p.hist2d(a[0], a[1]), "contour": lambda a, p: p.contour(a),
    "contourf": lambda a, p: p.contourf(a), "pcolormesh": lambda a, p: p.pcolormesh(a), "bar": lambda a, p: p.bar(a[0, :5], a[1, :5]),
    "errorbar": lambda a, p: p.errorbar(a[0], a[1], yerr=abs(a[2])), "fill_between": lambda a, p: p.fill_between(a[0], a[1], a[2], where=a[1] > 0),
    "step": lambda a, p: p.step(a[0], a[1]), "boxplot": lambda a, p: p.boxplot(a[0]), "violinplot": lambda a, p: p.violinplot(a[0]),
    "quiver": lambda a, p: p.quiver(a[:5, :5], a[5:10, :5]), "stem": lambda a, p: p.stem(a[0, :9], a[1, :9]), "hexbin": lambda a, p: p.hexbin(a[0], a[1]),
    "stackplot": lambda a, p: p.stackplot(a[0], a[1], a[2]), "set_xlim": lambda a, p: p.set_xlim(a[0].min(), a[0].max()), "spy": lambda a, p: p.spy(a > 0),
    "ecdf": lambda a, p: p.ecdf(a[0])}

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


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings(), arrayd.config(transfers="forbid", above=FEW):
        warnings.simplefilter("ignore")
        yield


def check(xp, received, use, here, values, to=lambda v: v):  # noqa: F811
    """With values of NumPy's, and with an array that is on the server."""
    want = use(to(values.copy()))
    x = to((xp.asarray(values) * 1).compute())
    received.clear()
    if here:
        with pytest.raises(arrayd.TransferForbidden):
            use(x)
        return
    got = use(x)
    got, want = (v.data if type(v).__name__ == "DataArray" else v for v in (got, want))
    if isinstance(got, (arrayd.Array, np.ndarray)):
        assert isinstance(got, arrayd.Array) and got.dtype == want.dtype
    assert sum(received) < FEW, received
    with arrayd.config(transfers="allow"):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-7, atol=1e-10)


def of_xarray(values):
    xr = pytest.importorskip("xarray", minversion="2024.1")
    return xr.DataArray(values, dims=("x", "y", "t"), coords={"x": np.arange(60.0), "y": np.linspace(0, 1, 80)}, name="d")


@pytest.mark.parametrize("what", [*XARRAY, *XARRAY_HERE])
def test_xarray(xp, received, what):  # noqa: F811
    xr = pytest.importorskip("xarray", minversion="2024.1")
    if what.startswith("interp"):
        pytest.importorskip("scipy")
    check(xp, received, lambda d: {**XARRAY, **XARRAY_HERE}[what](d, xr), what in XARRAY_HERE, NAN, of_xarray)


@pytest.mark.parametrize("what", XARRAY_REFUSES)
def test_xarray_refuses(xp, what):  # noqa: F811
    """Indices that are arrays, for any array of the standard."""
    xr = pytest.importorskip("xarray", minversion="2024.1")
    with pytest.raises(TypeError, match="Vectorized indexing is not supported"):
        XARRAY_REFUSES[what](of_xarray(xp.asarray(NAN)), xr)


@pytest.mark.parametrize("what", [*DASK, *DASK_HERE])
def test_dask(xp, received, what):  # noqa: F811
    da = pytest.importorskip("dask.array")
    use = {**DASK, **DASK_HERE}[what]
    check(xp, received, lambda a: use(da.from_array(a, chunks=(30, 320), asarray=False), da).compute(scheduler="synchronous"), what in DASK_HERE,
          np.nan_to_num(NAN.reshape(60, 640)))


@pytest.mark.parametrize("what", DASK_NUMBERS)
def test_a_number_of_dasks(xp, received, what):  # noqa: F811
    """Partial results of a few numbers come here, and no part of an array, however small."""
    da = pytest.importorskip("dask.array")
    values = np.random.default_rng(1).random((400, 400))
    d = da.from_array((xp.asarray(values) * 1).compute(), chunks=100)
    received.clear()
    got = float(DASK_NUMBERS[what](d).compute(scheduler="threads"))
    assert sum(received) <= 4096 and max(received) <= 64, received
    np.testing.assert_allclose(got, float(DASK_NUMBERS[what](da.from_array(values, chunks=100)).compute()), rtol=1e-12)


@pytest.mark.parametrize("what", [*SCIPY, *SCIPY_HERE])
def test_scipy(xp, received, what):  # noqa: F811
    version = pytest.importorskip("scipy", "1.15").__version__
    import scipy.fft
    import scipy.integrate
    import scipy.linalg
    import scipy.ndimage
    import scipy.signal
    import scipy.special
    import scipy.stats
    here = what in SCIPY_HERE or tuple(map(int, version.split(".")[:2])) < SCIPY_SINCE.get(what, (1, 15))
    check(xp, received, lambda a: {**SCIPY, **SCIPY_HERE}[what](a, scipy), here, np.nan_to_num(NAN.reshape(120, 320)))


def test_what_scipy_refuses(xp):  # noqa: F811
    scipy = pytest.importorskip("scipy", "1.15")
    import scipy.signal
    x = (xp.asarray(np.nan_to_num(NAN[:, :, 0])) * 1).compute()
    for use in SCIPY_REFUSES.values():
        with pytest.raises(TypeError, match="Multiple namespaces"):
            use(x, scipy)


@pytest.mark.parametrize("what", [*SKLEARN, *SKLEARN_HERE])
def test_scikit_learn(xp, received, what):  # noqa: F811
    sklearn = pytest.importorskip("sklearn", "1.6")
    import sklearn.decomposition
    import sklearn.linear_model
    import sklearn.metrics
    import sklearn.preprocessing
    with sklearn.config_context(array_api_dispatch=True):
        check(xp, received, lambda a: {**SKLEARN, **SKLEARN_HERE}[what](a, sklearn), what in SKLEARN_HERE, np.nan_to_num(NAN.reshape(100, 384)))


@pytest.mark.parametrize("what", EINOPS)
def test_einops(xp, received, what):  # noqa: F811
    """Its functions for the standard's arrays, `einops.array_api`."""
    einops = pytest.importorskip("einops.array_api")
    check(xp, received, lambda a: EINOPS[what](a, einops), False, NAN[:, :, 0])


@pytest.mark.parametrize("what", MATPLOTLIB)
def test_matplotlib(xp, what):  # noqa: F811
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots()
    try:
        with arrayd.config(transfers="allow"):
            MATPLOTLIB[what]((xp.asarray(abs(np.nan_to_num(NAN[:, :, 0]))) + 0.1).compute(), axes)
            figure.canvas.draw()
    finally:
        plt.close(figure)


def test_the_counts_in_the_documentation():
    said = dict(re.findall(r"^\| ([a-z-]+) \| (\d+ \| \d+ \| \d+) \|", (REPO / "docs" / "python.md").read_text(), re.M))
    counts = {"xarray": (XARRAY, XARRAY_HERE, XARRAY_REFUSES), "dask": (DASK, DASK_HERE, ()), "scipy": (SCIPY, SCIPY_HERE, SCIPY_REFUSES),
              "scikit-learn": (SKLEARN, SKLEARN_HERE, ()), "einops": (EINOPS, (), ()), "matplotlib": ((), MATPLOTLIB, ())}
    assert said == {name: " | ".join(str(len(t)) for t in tables) for name, tables in counts.items()}
