"""clients/python: dask arrays whose chunks are a daemon's, on one daemon and on a cluster of two workers with a daemon each. Skipped
where dask is not installed; tests/clients/with_libraries.py installs it. NumPy says what is right."""
import os
import pathlib
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from client import REPO  # noqa: E402
from conftest import Daemon, find_binary, until  # noqa: E402
from dasks import SOURCE, Cluster  # noqa: E402

sys.path.insert(0, str(SOURCE))
import dask  # noqa: E402
import arrayd  # noqa: E402
import arrayd.dask  # noqa: E402
import arrayd.numpy as anp  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here
LIMIT = 64 << 20
MIB = 1 << 20
SMALL = np.random.default_rng(1).random((400, 300))


# workers cannot import this file, and so get the code
neighbours = lambda b: (np.roll(b, 1, 0) + np.roll(b, -1, 0) + np.roll(b, 1, 1) + np.roll(b, -1, 1)) / 4  # noqa: E731


def with_boundary(boundary):
    return lambda d: d.map_overlap(neighbours, depth=1, boundary=boundary)


USES = {
    "mean": lambda d: d.mean(), "mean of an axis": lambda d: d.mean(axis=0), "std": lambda d: d.std(axis=1), "var": lambda d: d.var(ddof=1),
    "sum": lambda d: d.sum(axis=(0, 1)), "sums": lambda d: d.sum(axis=1, keepdims=True), "min": lambda d: da.maximum(d, 0.3).min(axis=0),
    "slices": lambda d: d[3:200:3, ::-2], "positions": lambda d: d[[3, 1, 200]], "new axes": lambda d: d[:, None] * 2, "turned": lambda d: d.T + 1,
    "rechunk": lambda d: d.rechunk((37, 300)), "reshape": lambda d: d.reshape(-1), "periodic": with_boundary("periodic"),
    "reflect": with_boundary("reflect"), "nearest": with_boundary("nearest"), "a constant": with_boundary(0.5),
    "concatenate": lambda d: da.concatenate([d, d + 1], axis=1), "stack": lambda d: da.stack([d, -d]), "where": lambda d: da.where(d > 0.5, d, 0),
    "any": lambda d: (d > 0.99).any(axis=0), "all": lambda d: (d >= 0).all(), "argmax": lambda d: d.argmax(axis=0), "argmin": lambda d: d.argmin(),
    "cumsum": lambda d: d.cumsum(axis=0), "ufuncs": lambda d: np.sin(d) + np.hypot(d, 2), "einsum": lambda d: da.einsum("ij,ij->j", d, d),
    "tensordot": lambda d: da.tensordot(d, d, axes=([0], [0])), "product": lambda d: d.T @ d, "pad": lambda d: da.pad(d, 2, mode="edge"),
    "roll": lambda d: da.roll(d, 5, axis=0), "diff": lambda d: da.diff(d, axis=0), "nanmean": lambda d: da.nanmean(da.where(d > 0.5, d, np.nan), axis=1),
    "zeros_like": lambda d: da.zeros_like(d) + 1, "astype": lambda d: d.astype("f4"), "count": lambda d: da.count_nonzero(d > 0.3),
    "clip": lambda d: d.clip(0.2, 0.5), "percentile": lambda d: da.percentile(d.ravel(), 50), "moment": lambda d: da.moment(d, 3, axis=0),
}


@pytest.fixture(scope="module", autouse=True)
def beside():
    """The daemon that this process uses."""
    d = Daemon("--backend", "cpu", "--memory-limit", str(2 * LIMIT))
    xp = arrayd.connect(f"http://127.0.0.1:{d.port}")
    before, anp._default = anp._default, xp
    yield xp
    anp._default = before
    xp.close()
    d.stop()


@pytest.fixture(scope="module")
def cluster(beside):
    c = Cluster(LIMIT)
    yield c
    c.close()


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster.address) as client:
        yield client
    until(lambda: sum(cluster.metric("arrayd_bytes_in_use")) == 0)


def numbers(n, chunk):
    return da.random.RandomState(3, RandomState=arrayd.dask.RandomState).random_sample((n, n), chunks=(chunk, chunk))


def here(x):
    """All values of a dask array, a row of chunks at a time."""
    ends = np.cumsum((0, *x.chunks[0]))
    return np.concatenate([x[a:b].to_backend("numpy").compute() for a, b in zip(ends, ends[1:])])


def same(use, d, **how):
    want = use(da.from_array(SMALL, chunks=(100, 100))).compute(scheduler="threads")
    got = use(d).compute(**how)
    assert isinstance(got, arrayd.Array) and got.dtype == want.dtype
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_two_workers_with_a_daemon_each(client, use):
    same(use, da.from_array(SMALL, chunks=(100, 100)).to_backend("arrayd"))


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_one_daemon(beside, use):
    same(use, da.from_array(beside.asarray(SMALL), chunks=(100, 100)), scheduler="threads")


def test_a_field_larger_than_either_daemon(client, cluster):
    """No daemon has all of it, and nothing but results and edges moves: what is read by reductions stays where it is."""
    client.run(lambda: __import__("arrayd.numpy").numpy.zeros(1) + 1)  # a worker that still starts would get few of the chunks
    x = numbers(3072, 512).persist()
    distributed.wait(x)
    used = cluster.metric("arrayd_bytes_in_use")
    assert x.nbytes > LIMIT and sum(used) >= x.nbytes and max(used) < LIMIT, used
    before = cluster.metric("arrayd_http_bytes_out_total")
    mean, std, profile = float(x.mean().compute()), float(x.std().compute()), np.asarray(x.var(axis=0).compute())
    most, low = np.asarray(x.max(axis=1).compute()), bool((x < 0).any().compute())
    moved = [b - a for a, b in zip(before, cluster.metric("arrayd_http_bytes_out_total"))]
    assert sum(moved) < 4 * MIB, moved
    smooth = float(x.map_overlap(neighbours, depth=1, boundary="periodic").std().compute())
    moved = [b - a for a, b in zip(before, cluster.metric("arrayd_http_bytes_out_total"))]
    assert sum(moved) < x.nbytes / 2, moved  # two of three chunks' neighbours, and the edges of the others
    a = here(x)
    np.testing.assert_allclose([mean, std, smooth], [a.mean(), a.std(), neighbours(a).std()], rtol=1e-10)
    np.testing.assert_allclose(profile, a.var(axis=0), rtol=1e-10)
    assert np.array_equal(most, a.max(axis=1)) and not low
    del x  # all of it and a copy are more than they have
    rows = numbers(3072, 512).rechunk((384, 3072))
    np.testing.assert_allclose(np.asarray(rows.sum(axis=1).compute()), a.sum(axis=1), rtol=1e-10)


def test_more_than_all_daemons_together(client):
    """Chunk after chunk."""
    x = numbers(5120, 512)
    assert x.nbytes > 2 * LIMIT
    assert abs(float((x * 2).map_overlap(neighbours, depth=1, boundary="reflect").mean().compute()) - 1) < 1e-3


def test_what_the_daemons_have_no_room_for_is_in_files():
    """Where workers know their daemons' limits."""
    cluster = Cluster(LIMIT, spills=0.6)
    with distributed.Client(cluster.address):
        x = numbers(5120, 512)
        p = x.persist()
        distributed.wait(p)
        assert p.nbytes > 2 * LIMIT > sum(cluster.metric("arrayd_bytes_in_use")) > LIMIT
        np.testing.assert_allclose(float(p.sum().compute()), float(x.sum().compute()), rtol=1e-12)
    cluster.close()


def test_one_daemon_and_more_than_it_has(beside):
    x = numbers(5000, 250)
    assert x.nbytes > 2 * LIMIT
    assert abs(float(x.mean().compute(scheduler="threads")) - 0.5) < 1e-3
    rows = x.rechunk((50, 5000))
    assert abs(float(rows.map_overlap(neighbours, depth=1, boundary="reflect").mean().compute(scheduler="threads")) - 0.5) < 1e-3


def test_what_does_not_fit_is_said(client):
    """One chunk larger than a daemon: the error comes to the one who asks, at once or with the values; nobody waits for ever."""
    with pytest.raises(arrayd.OutOfMemory):
        np.asarray(numbers(3000, 3000).sum(axis=0).compute())


def test_arrays_of_this_process(client, beside):
    """In a graph they travel with their values, through a scheduler that has no daemon."""
    x = beside.asarray(SMALL) * 2  # not computed
    d = da.from_array(x, chunks=(200, 150))
    np.testing.assert_allclose(float((d - d.mean()).std().compute()), (2 * SMALL).std())
    large = beside.random((600, 600), seed=1)  # which is uploaded where it arrives
    np.testing.assert_allclose(np.asarray(da.from_array(large, chunks=300).sum(axis=0).compute()), np.asarray(large).sum(axis=0))
    future = client.scatter(x)
    got = client.submit(lambda a: {"it": (a, a.sum())}, future).result()["it"]
    assert np.array_equal(np.asarray(got[0]), 2 * SMALL) and got[0]._client is beside
    np.testing.assert_allclose(np.asarray(client.submit(anp.sin, future).result()), np.sin(2 * SMALL))


def test_pickles(client, beside):
    for x in (beside.asarray(3.5), beside.zeros((0, 3), dtype="f4"), beside.random((3, 4), seed=1)[1:], beside.asarray([1, 2], dtype="bfloat16"),
              beside.random((400, 400), seed=1)):
        for protocol in (2, 5):
            y = pickle.loads(pickle.dumps(x, protocol))
            assert y.shape == x.shape and y.dtype == x.dtype and np.asarray(y).tobytes() == np.asarray(x).tobytes() and not y._shared
    assert not [m for m in beside.arrays() if m["name"]]


def test_a_pickle_is_a_reference_without_a_cluster(beside):
    y = pickle.loads(pickle.dumps(x := beside.random((3, 4), seed=1)))
    assert y._shared and y.id == x.id
    beside.delete(y)


def test_the_end_of_a_task(beside):
    """It is computed then, and holds nothing but itself."""
    x = beside.random((1000, 1000), seed=1).compute()
    d = da.from_array(x, chunks=500)
    part = (d + 1)[:100, :100].compute(scheduler="threads")
    assert part._node.handle is not None and part._view is None
    before = np.asarray(part)
    x[:20, :20] = 0
    assert np.array_equal(np.asarray(part), before)
    v = beside.random((10, 10), seed=1)[2:4]
    dask.sizeof.sizeof(v)  # somebody's own: nothing happens to it
    assert v._view is not None


@pytest.mark.parametrize("before", [True, False])
def test_it_registers_itself(beside, before):
    imports = "import dask.array as da", f"import arrayd; xp = arrayd.connect({beside.url!r}); x = xp.random((100, 100), seed=1)"
    text = "\n".join(["import sys", *(imports if before else imports[::-1]), "d = da.from_array(x, chunks=50)", "assert 'arrayd.dask' in sys.modules",
                      "print(float(d.mean().compute()))"])
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)}, timeout=60)
    assert done.returncode == 0, done.stderr
    assert abs(float(done.stdout) - 0.5) < 0.02


def test_tokens(beside, monkeypatch):
    """Of an array, without its values: another one when they are others."""
    x = beside.random((300, 300), seed=1)
    with monkeypatch.context() as m:
        m.setattr(type(beside._transport), "send", lambda *_: pytest.fail("a request"))
        token = dask.base.tokenize(x)
        assert token == dask.base.tokenize(x) != dask.base.tokenize(x + 0)
        assert dask.base.tokenize(beside.asarray([1, 2])) == dask.base.tokenize(beside.asarray([1, 2])) != dask.base.tokenize(beside.asarray([1, 3]))
        x[0, 0] = 1
        assert dask.base.tokenize(x) != token
        da.from_array(x, chunks=100)
    beside.save("shared", x)
    assert dask.base.tokenize(s := beside.array("shared")) != dask.base.tokenize(s)
    beside.delete("shared")


def test_array_backend(client):
    """dask's own functions make the chunks."""
    with dask.config.set({"array.backend": "arrayd"}):
        made = {"zeros": da.zeros((6, 6), chunks=3), "ones": da.ones((6, 6), chunks=3, dtype="f4"), "full": da.full((6, 6), 3.5, chunks=3),
                "arange": da.arange(6, chunks=3), "empty": da.empty((4,), chunks=2) * 0}
        random = da.random.RandomState(1)
        drawn = [random.random_sample(size=(90, 90), chunks=30), random.uniform(2, 4, size=(90, 90), chunks=30),
                 random.normal(2, 3, size=(90, 90), chunks=30), random.randint(3, 6, size=(90, 90), chunks=30)]
        with pytest.raises(NotImplementedError, match="RandomState"):
            da.random.default_rng(1)
    for name, x in made.items():
        got = x.compute()
        want = {"full": lambda: np.full((6, 6), 3.5), "arange": lambda: np.arange(6), "empty": lambda: np.zeros(4)}.get(
            name, lambda: getattr(np, name)((6, 6), x.dtype))()
        assert isinstance(x._meta, arrayd.Array) and isinstance(got, arrayd.Array) and got.dtype == want.dtype and np.array_equal(np.asarray(got), want)
    means = [float(x.mean().compute()) for x in drawn]
    np.testing.assert_allclose(means, [0.5, 3, 2, 4], atol=0.1)
    assert np.array_equal(*[np.asarray(drawn[0].compute(scheduler=s)) for s in ("threads", client)])  # wherever they are drawn
    there = da.ones((6, 6), chunks=3).to_backend("arrayd")
    assert type(there.to_backend("numpy").compute()) is np.ndarray and there.to_backend("arrayd") is there


def test_the_count_on_the_page():
    assert f"\n{len(USES)} operations of dask arrays" in (REPO / "docs" / "dask.md").read_text()


def test_the_page(beside):
    """docs/dask.md: its ```python blocks are one program."""
    cluster = Cluster(4 * LIMIT)
    text = "".join(re.findall(r"^```python\n(.*?)^```$", (REPO / "docs" / "dask.md").read_text(), re.M | re.S))
    assert "tcp://scheduler:8786" in text
    names = {}
    try:
        exec(text.replace("http://127.0.0.1:7411", beside.url).replace("tcp://scheduler:8786", cluster.address), names)
    finally:
        if "client" in names:
            names["client"].close()
        cluster.close()


def test_the_example(tmp_path):
    (tmp_path / "arrayd").symlink_to(pathlib.Path(find_binary()).resolve())
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCE)}
    environment.pop("ARRAYD_URL", None)
    done = subprocess.run([sys.executable, REPO / "clients" / "python" / "examples" / "dask_field.py"], capture_output=True, text=True, env=environment,
                          timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "69 MiB of Array in 36 chunks on 2 workers\nmean 0.004842, std 0.521469\nroughness 6.095e-03\nthe highest row is 2120, with 1.000000" in done.stdout
