"""GET /v1/arrays/{ref}/summary, beside NumPy."""
import re
import threading

import numpy as np
import pytest

from client import NUMPY_DTYPES
from conftest import until

rng = np.random.default_rng(22)


@pytest.fixture(autouse=True)
def seeded():
    """The same numbers, whatever other tests have run."""
    global rng
    rng = np.random.default_rng(22)


ON_A_GPU = ["int64", "float32"]  # every kernel is compiled there


def some(dtype, shape=(37, 41)):
    t = np.dtype(dtype)
    if t == bool:
        return rng.random(shape) < 0.3
    if t.kind in "iu":
        return rng.integers(np.iinfo(t).min, np.iinfo(t).max, shape, dtype=t, endpoint=True)
    a = rng.normal(size=shape)
    a = (a + 1j * rng.normal(size=shape) if t.kind == "c" else a).astype(t)
    a.flat[5], a.flat[6], a.flat[7] = np.nan, np.inf, -np.inf
    return a


def values(a):
    return np.abs(a) if a.dtype.kind == "c" else a


def summary(api, ref="u", query=""):
    return api.expect(200, api.get(f"/v1/arrays/{ref}/summary{query}")).json()


def beside(s, a):
    """Holds the figures against NumPy's of the same elements; returns the finite ones as float64."""
    x = values(a)
    finite = x[np.isfinite(x)]
    assert s["dtype"] == str(a.dtype) and s["shape"] == list(a.shape) and s["of"] == ("abs" if a.dtype.kind == "c" else "elements")
    assert (s["count"], s["finite"], s["nan"]) == (a.size, finite.size, np.isnan(x).sum())
    assert (s["inf"], s["minus_inf"]) == ((x == np.inf).sum(), (x == -np.inf).sum())
    if a.dtype.kind == "c":  # hypot is not that of NumPy to the last bit
        assert np.allclose([s["min"], s["max"]], [finite.min(), finite.max()], rtol=1e-6)
    else:
        assert [finite.dtype.type(s["min"]), finite.dtype.type(s["max"])] == [finite.min(), finite.max()]
    f = finite.astype("float64")
    assert np.allclose([s["mean"], s["std"]], [f.mean(), f.std()], rtol=1e-6 if a.dtype.kind == "c" else 1e-11, atol=0)
    return f


def counts(s, f):
    h = s["histogram"]
    want = np.histogram(f, len(h["counts"]), (h["lo"], h["hi"]))[0]
    return h["counts"] == want.tolist() and h["below"] == (f < h["lo"]).sum() and h["above"] == (f > h["hi"]).sum()


def off(s, f, slack=1e-9):
    """By how much the percentiles are off, in units of their error, at most."""
    want = np.percentile(f, [p["percent"] for p in s["percentiles"]])
    scale = np.abs(f).max()
    for p, w in zip(s["percentiles"], want):
        assert abs(p["value"] - w) <= p["error"] * (1 + slack) + slack * scale, (p, w)
    return True


def as_numpy(api, dtype):
    a = some(dtype)
    api.upload(a, name="u")
    s = summary(api)
    f = beside(s, a)
    if a.dtype.kind != "c":
        assert counts(s, f) and [s["histogram"]["lo"], s["histogram"]["hi"]] == [float(f.min()), float(f.max())]
    assert len(s["histogram"]["counts"]) == 64 and sum(s["histogram"]["counts"]) == f.size
    assert off(s, f)
    api.delete("/v1/arrays/u")


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_beside_numpy(api, dtype):
    as_numpy(api, dtype)


@pytest.mark.release_only
def test_on_a_gpu(gpu_with):
    api = gpu_with().client()
    for dtype in ON_A_GPU:
        as_numpy(api, dtype)
    api.close()


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint64", "float16", "float32", "float64"])
def test_exact_percentiles(api, dtype):
    a = some(dtype)
    api.upload(a, name="u")
    s = summary(api, query="?exact=true&percentiles=0,0.1,12.5,50,99.99,100")
    x = values(a)
    f = np.sort(x[np.isfinite(x)])
    for p in s["percentiles"]:
        at = p["percent"] / 100 * (f.size - 1)
        k = int(at)
        low, high = float(f[k]), float(f[min(k + 1, f.size - 1)])
        assert p["error"] == 0 and p["value"] == pytest.approx(low + (at - k) * (high - low), rel=1e-15)


def turns(api):
    return int(re.search(r"^arrayd_device_turns_total (\d+)$", api.expect(200, api.get("/metrics")).body.decode(), re.M)[1])


class Busy:
    """Two connections that evaluate the same all the while."""

    def __init__(self, api, **fields):
        self.ending, self.statuses = False, set()
        self.threads = [threading.Thread(target=self.run, args=(api.clone(), fields)) for _ in range(2)]

    def run(self, api, fields):
        while not self.ending:
            self.statuses.add(api.post("/v1/evaluate", fields).status)
        api.close()

    def __enter__(self):
        for t in self.threads:
            t.start()
        until(lambda: self.statuses)

    def __exit__(self, *_):
        self.ending = True
        for t in self.threads:
            t.join()
        assert self.statuses == {200}


def test_each_pass_of_a_search_has_its_turn(daemon_with):
    """So that others' work goes between them; waiting for it changes nothing."""
    api = daemon_with("--device-window", "0", "--inline-elements", "0").client()
    api.upload(rng.normal(size=5000), name="u")
    before = turns(api)
    plain = summary(api)
    assert turns(api) - before == 1
    before, exact = turns(api), summary(api, query="?exact=true")
    assert turns(api) - before > 40 and exact["histogram"] == plain["histogram"]
    with Busy(api, expr="sum(sin(u)*cos(u))"):
        for _ in range(3):
            assert summary(api, query="?exact=true") == exact


def test_written_while_it_is_searched(api):
    api.upload(rng.normal(size=5000), name="u")
    with Busy(api, expr="-u", out="u"):
        replies = []
        until(lambda: replies.append(api.get("/v1/arrays/u/summary?exact=true")) or replies[-1].status != 200)
    assert "the array was written to while" in api.fails(409, "conflict", replies[-1])["detail"]
    api.expect(200, api.get("/v1/arrays/u/summary?exact=true"))


@pytest.mark.parametrize("size", [254, 255, 256, 510, 100_003])
@pytest.mark.parametrize("bins", [1, 8, 9, 200])
def test_bins_that_fill_up(api, size, bins):
    """Many elements in one bin beside few in others, in whole rows of those that are counted together and in parts of one."""
    a = np.full(size, 3.25, "float32")
    a[::7], a[1::1000] = rng.normal(3, 0.01, a[::7].size), [0, 5][size % 2]
    api.expect(201, api.post("/v1/arrays", {"name": "u", "data": a.tolist(), "dtype": "float32"}))
    h = summary(api, query=f"?bins={bins}&lo=0&hi=5")["histogram"]
    assert h["counts"] == np.histogram(a.astype("float64"), bins, (0, 5))[0].tolist()
    steps = api.expect(200, api.get("/v1/arrays/u/summary")).json()
    assert sum(steps["histogram"]["counts"]) == size


def test_numbers_of_every_size(api):
    """Exponents from end to end: the bins are all empty but two, and the search finds what they hide."""
    a = np.concatenate([np.array([-1.7e308, 1.7e308, 0.0, -0.0, 5e-324]), rng.normal(size=500), 10.0 ** rng.uniform(-300, 300, 500)])
    api.upload(a, name="u")
    s = summary(api, query="?exact=1&percentiles=3,50,97&bins=7")
    assert np.allclose([p["value"] for p in s["percentiles"]], np.percentile(a, [3, 50, 97]), rtol=1e-12)
    assert sum(s["histogram"]["counts"]) == a.size and (s["min"], s["max"]) == (-1.7e308, 1.7e308)


def test_wide_integers_are_exact(api):
    api.upload(np.array([-2**63, 2**63 - 1, 5], "int64"), name="u")
    api.upload(np.array([2**64 - 1, 2**63 + 1], "uint64"), name="v")
    assert (summary(api)["min"], summary(api)["max"]) == (-2**63, 2**63 - 1)
    assert (summary(api, "v")["min"], summary(api, "v")["max"]) == (2**63 + 1, 2**64 - 1)


def test_a_region_and_a_range(api):
    a = some("float32", (20, 30))
    api.upload(a, name="u")
    s = summary(api, query="?index=2:18:3,::-1&bins=9&lo=-0.5&hi=0.75&percentiles=1,30,60,99")
    f = beside(s, a[2:18:3, ::-1])
    assert counts(s, f) and len(s["histogram"]["counts"]) == 9 and off(s, f)
    for query in ("?lo=0.25", "?hi=0.25", "?lo=99", "?hi=-99"):
        s = summary(api, query=query)
        h = s["histogram"]
        f = a[np.isfinite(a)].astype("float64")
        assert h["below"] + h["above"] + sum(h["counts"]) == f.size and h["lo"] < h["hi"] and counts(s, f) and off(s, f)


@pytest.mark.parametrize("a", [np.zeros((0, 3)), np.full(4, np.nan), np.array([np.inf, -np.inf, np.nan], "float16")])
def test_nothing_finite(api, a):
    api.upload(a, name="u")
    for query in ("?bins=3", "?bins=3&exact=true", "?bins=3&lo=2", "?bins=3&hi=-2"):
        s = summary(api, query=query)
        assert (s["count"], s["finite"], s["nan"]) == (a.size, 0, np.isnan(a).sum())
        assert s["min"] is s["max"] is s["mean"] is s["std"] is None
        assert s["histogram"]["counts"] == [0, 0, 0] and s["histogram"]["lo"] < s["histogram"]["hi"]
        assert all(p["value"] is p["error"] is None for p in s["percentiles"])


@pytest.mark.parametrize("value", [0, 5, -7e9, 1e300, 2**62])
def test_one_value(api, value):
    for a in (np.array(value), np.full((3, 3), value)):
        m = api.upload(a)
        s = summary(api, m["id"], "?bins=5")
        assert s["min"] == s["max"] == value and s["std"] == 0 and sum(s["histogram"]["counts"]) == a.size
        assert all(p["value"] == pytest.approx(value) for p in s["percentiles"])


def test_conditions(api):
    api.upload(np.arange(5.0), name="u")
    r = api.get("/v1/arrays/u/summary")
    tag = r.headers["ETag"]
    again = {"If-None-Match": tag}
    api.expect(304, api.get("/v1/arrays/u/summary", headers=again))
    api.expect(200, api.get("/v1/arrays/u/summary?bins=3", headers=again))
    api.expect(200, api.get("/v1/arrays/u/summary?percentiles=7", headers=again))
    api.expect(412, api.get("/v1/arrays/u/summary?bins=3", headers={"If-Match": tag}))
    api.expect(200, api.get("/v1/arrays/u/summary", headers={"If-Match": tag}))
    api.expect(200, api.post("/v1/evaluate", {"expr": "u+1", "out": "u"}))
    api.expect(200, api.get("/v1/arrays/u/summary", headers=again))


@pytest.mark.parametrize("query", ["bins=0", "bins=257", "bins=1.5", "bins=", "lo=nan", "lo=x", "lo=1e999", "lo=2&hi=2", "lo=3&hi=1", "lo=1e20&hi=1.0000000000000001e20",
                                   "exact=maybe", "percentiles=", "percentiles=1,,2", "percentiles=101", "percentiles=-1", "percentiles=" + ",".join(["1"] * 33),
                                   "ghost=2"])
def test_bad_queries(api, query):
    api.create(name="u", shape=[3])
    api.fails(422, "bad_field", api.get(f"/v1/arrays/u/summary?{query}", check=False))


def test_other_errors(api):
    api.create(name="u", shape=[3])
    api.fails(400, "bad_query", api.get("/v1/arrays/u/summary?colour=red", check=False))
    api.fails(422, "bad_index", api.get("/v1/arrays/u/summary?index=0,0"))
    api.fails(404, "not_found", api.get("/v1/arrays/none/summary"))
    api.fails(406, "not_acceptable", api.get("/v1/arrays/u/summary", accept="image/png"))
    limits = api.info()["limits"]
    assert (limits["max_bins"], limits["max_percentiles"]) == (256, 32)
    s = summary(api, query="?bins=256&percentiles=" + ",".join(["50"] * 32))
    assert len(s["histogram"]["counts"]) == 256 and len(s["percentiles"]) == 32


def test_limits_are_options(daemon_with):
    api = daemon_with("--max-bins", "20", "--max-percentiles", "2").client()
    api.create(name="u", shape=[3])
    s = summary(api)
    assert len(s["histogram"]["counts"]) == 20 and s["percentiles"] == []
    api.fails(422, "bad_field", api.get("/v1/arrays/u/summary?bins=21"))
    api.fails(422, "bad_field", api.get("/v1/arrays/u/summary?percentiles=1,2,3"))


def test_others_arrays(two_with):
    ann, bob = two_with()
    m = ann.create(name="u", shape=[3])
    bob.fails(404, "not_found", bob.get(f"/v1/arrays/{m['id']}/summary"))
    ann.expect(201, ann.post("/v1/arrays/u/shares", {"principal": "bob", "access": "read"}))
    assert summary(bob, m["id"])["count"] == 3
    ann.delete("/v1/arrays/u/shares/bob")
    bob.fails(404, "not_found", bob.get(f"/v1/arrays/{m['id']}/summary"))
    ann.expect(201, ann.post("/v1/arrays/u/lease", {"mode": "write", "ttl_s": 60}))
    ann.fails(409, "locked", ann.get("/v1/arrays/u/summary", check=False))
