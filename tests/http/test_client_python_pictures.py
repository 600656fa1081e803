"""What the Python client shows of an array without fetching it."""
import asyncio
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
from cli import cli  # noqa: E402
from test_client_python import xp  # noqa: E402,F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here


def test_summary(xp, api):  # noqa: F811
    a = np.random.default_rng(1).normal(size=(30, 40))
    a[0, 0] = np.nan
    x = xp.asarray(a)
    s = x.summary()
    f = a[np.isfinite(a)]
    assert (s.size, s.finite, s.nan, s.inf, s.minus_inf) == (1200, 1199, 1, 0, 0)
    assert (s.min, s.max) == (f.min(), f.max()) and np.allclose([s.mean, s.std], [f.mean(), f.std()])
    assert (s.counts == np.histogram(f, s.edges)[0]).all() and len(s.counts) == 64
    assert all(abs(s.percentiles[p] - np.percentile(f, p)) <= s.errors[p] for p in (1, 5, 25, 50, 75, 95, 99))
    s = (2 * x[3:9]).summary(bins=5, lo=-1, hi=2, percentiles=[50, 90], exact=True)  # an expression gets a place for it
    assert np.allclose([s.percentiles[50], s.percentiles[90]], np.percentile(2 * a[3:9], [50, 90])) and s.errors == {50: 0, 90: 0}
    assert s.counts.shape == (5,) and s.below + s.above + s.counts.sum() == 240 and (s.lo, s.hi) == (-1, 2)
    assert xp.asarray([True, False]).summary().max in (True, 1)
    with pytest.raises(arrayd.BadValue):
        x.summary(bins=0)


def test_summary_awaited(daemon):
    async def look():
        async with arrayd.aconnect(f"http://{daemon.host}:{daemon.port}") as c:
            return await c.arange(5).summary(bins=5)

    s = asyncio.run(look())
    assert s.counts.tolist() == [1] * 5 and isinstance(s, arrayd.Summary)


def test_pictures(xp, tmp_path):  # noqa: F811
    a = np.random.default_rng(2).normal(size=(40, 60))
    x = xp.asarray(a)
    p = x.image("viridis", width=30, pool="max", bar=True)
    assert p.png[:8] == b"\x89PNG\r\n\x1a\n" and "54 × 20 pixels" in repr(p) and p._repr_png_() is p.png and p.hi == a.max()
    p.save(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes() == p.png
    assert ((x * 2)[:, ::-1].image(lo=-1, hi=2).lo, x.image(percentiles=(10, 90)).hi) == (-1, pytest.approx(np.percentile(a, 90, method="lower"), abs=0.01))
    assert xp.asarray(np.zeros((5, 6, 3))).image().hi == 1
    with pytest.raises(arrayd.ArraydError):
        x[0].image()
    with pytest.raises(arrayd.BadValue):
        x.image("no such map")


def test_what_a_notebook_shows(xp):  # noqa: F811
    assert xp.zeros((20, 30))._repr_png_()[16:24] == bytes((0, 0, 0, 30, 0, 0, 0, 20))
    assert xp.zeros((3000, 300))._repr_png_()[16:24] == bytes((0, 0, 0, 32, 0, 0, 1, 64))
    assert xp.zeros((20, 20, 3))._repr_png_() is not None
    for shape in ((), (100,), (3, 3), (20, 20, 20), (20, 0)):
        assert xp.zeros(shape)._repr_png_() is None
    assert xp.zeros((20, 30), dtype="complex64")._repr_png_() is not None


def test_a_notebook_shows_the_text_where_there_is_no_picture(xp, monkeypatch):  # noqa: F811
    for dtype in ("complex64", "complex128"):
        x = xp.zeros((20, 20, 3), dtype=dtype)
        with monkeypatch.context() as m:
            m.setattr(type(x), "image", None)  # nothing is asked
            assert x._repr_png_() is None
    x = xp.zeros((20, 30))
    with monkeypatch.context() as m:
        m.setattr(arrayd._looks, "PNG", "image/webp")  # the daemon answers 406
        with pytest.raises(arrayd.ArraydError):
            x.image()
        assert x._repr_png_() is None
    assert x._repr_png_() is not None


def test_pictures_awaited(daemon):
    async def look():
        async with arrayd.aconnect(f"http://{daemon.host}:{daemon.port}") as c:
            x = c.zeros((20, 30))
            return x._repr_png_(), await x.image("magma")

    nothing, p = asyncio.run(look())
    assert nothing is None and isinstance(p, arrayd.Picture) and "30 × 20" in repr(p)


def test_pictures_by_the_command(daemon, api, tmp_path, monkeypatch):
    """By the suffix; a picture's options are errors with another."""
    monkeypatch.chdir(tmp_path)
    run = cli(daemon)
    api.create(name="u", shape=[20, 30], fill=1)
    done = run("get", "u", "u.png", "--slice", ":10", "--cmap", "viridis", "--lo", "0.5", "--width", "15", "--pool", "max", "--bar")
    assert done.status == 0 and done.err.startswith("u.png: "), done
    assert (tmp_path / "u.png").read_bytes()[16:24] == bytes((0, 0, 0, 39, 0, 0, 0, 5))
    assert run("get", "u", "u.png", "--height", "10", "--percentiles", "5,95").status == 0
    assert (tmp_path / "u.png").read_bytes()[16:24] == bytes((0, 0, 0, 15, 0, 0, 0, 10))
    for words, status, text in ((("u.npy", "--cmap", "gray"), 2, "--cmap is for pictures"), (("u.npy", "--height", "3"), 2, "--height is for pictures"),
                                (("v.png", "--percentiles", "95,5"), 1, "percentiles must be two numbers"), (("v.png", "--cmap", "none"), 1, "cmap must be one of"),
                                (("v.png", "--slice", "0"), 1, "a picture is of two axes"), (("u.jpg",), 2, ".npy, .npz, .nc, .h5, .csv and .png")):
        done = run("get", "u", *words)
        assert done.status == status and text in done.err and not list(tmp_path.glob("v*")), done
