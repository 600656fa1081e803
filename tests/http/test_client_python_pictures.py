"""What the Python client shows of an array without fetching it."""
import asyncio
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
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
