"""What ends a program before its last step: until, a NaN, an index out of range. The arrays are those of the very step."""
import numpy as np

from test_programs import both, run  # noqa: F401
from test_reductions import hold


def test_until(both):
    hold(both, "x", np.float64(1))
    r = run(both, ["x = x*2"], 1000, until="x > 1000")
    assert 0 < r["device_s"] <= r["elapsed_s"]
    assert (r["state"], r["step"], r["stopped_by"]) == ("done", 10, "until")
    assert both.download("x") == 1024
    r = run(both, ["x = x*2"], 1000, until="x > 2**20", until_every=7, record={"x": "x"}, record_every=2)
    assert r["step"] == 14 and r["records"]["x"] == [2.0 ** (10 + k) for k in range(2, 15, 2)]
    r = run(both, ["x = x + 1"], 5, until={"op": "less", "args": ["x", 0]})
    assert r["step"] == 5 and "stopped_by" not in r


def test_values_need_no_plans_of_their_own(both):
    """Where a value goes is no part of a plan: hundreds of values leave the cache of plans as it was."""
    def misses():
        text = both.get("/metrics").body.decode()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith("arrayd_plan_cache_misses_total ")))

    hold(both, "x", np.zeros(3))
    before = misses()
    r = run(both, ["x = x + 1"], 700, record={"x": "x[1]", "odd": "x[0] % 2 == 1"}, until="x[2] > 650")
    assert r["records"]["x"] == list(range(1, 652)) and r["records"]["odd"][:4] == [True, False, True, False]
    assert misses() - before < 20


def test_stop_on_nan(both):
    hold(both, "u", np.array([16.0, 4.0]))
    hold(both, "k", np.arange(3))
    r = run(both, ["u = sqrt(u) - 1", "k += 1"], 100, stop_on_nan=True)
    assert r["state"] == "failed" and r["error"]["code"] == "not_a_number"
    u, good = np.array([16.0, 4.0]), 0
    while not np.isnan(np.sqrt(u) - 1).any():
        u, good = np.sqrt(u) - 1, good + 1
    assert r["step"] == good and r["failed_step"] == good + 1
    np.testing.assert_array_equal(both.download("u"), u)
    np.testing.assert_array_equal(both.download("k"), np.arange(3) + good)


def test_what_ends_it_is_found_in_the_midst_of_a_slice(both):
    """Thousands of steps are run at once: the arrays are those of the step that ends it all the same."""
    for every in (1, 7):
        hold(both, "x", np.array([1.0, 0.0]))
        r = run(both, ["x = x + 1"], 10**6, until="x[0] > 5000", until_every=every, record={"x": "x[1]"},
                record_every=1000)
        last = -(-5000 // every) * every
        assert (r["state"], r["step"], r["stopped_by"]) == ("done", last, "until")
        assert both.download("x").tolist() == [last + 1, last] and r["records"]["x"] == list(range(1000, last + 1, 1000))
    hold(both, "u", np.array([4321.0, 9.0]))
    r = run(both, ["u = u - 1 + 0*sqrt(u - 1)"], 10**6, stop_on_nan=True)
    assert (r["state"], r["step"], r["failed_step"]) == ("failed", 9, 10)
    assert both.download("u").tolist() == [4312, 0]
    hold(both, "n", np.array([0]))
    hold(both, "t", np.arange(3000.0))
    hold(both, "s", np.zeros(1))
    r = run(both, ["s += take(t, n)", "n += 1"], 10**6)
    assert (r["state"], r["step"], r["failed_step"], r["failed_statement"]) == ("failed", 3000, 3001, 0)
    assert both.download("n").tolist() == [3000] and both.download("s").tolist() == [sum(range(3000))]


def test_an_index_out_of_range_stops_it(both):
    """take's indices are looked at: the arrays are as they were after a whole step before."""
    hold(both, "u", np.arange(10.0))
    hold(both, "i", np.arange(5))
    r = run(both, ["u[:5] = take(u, i)", "i += 1"], 20)
    assert r["state"] == "failed" and r["error"]["code"] == "bad_index" and r["failed_statement"] == 0
    assert r["error"]["pointer"] == "/body/0" and r["failed_step"] == 7 and r["step"] <= 6
    assert both.download("i")[0] == r["step"]
