"""What ends a program before its last step: until, a NaN, an index out of range, a copy that cannot be made. The arrays
are those of the very step."""
import threading
import time

import numpy as np
import pytest

from conftest import until
from test_programs import both, job, jobs, run  # noqa: F401
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


@pytest.mark.in_turn
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


@pytest.mark.parametrize("body, statement, offset", [
    (["u += 0", "i = astype(u, 'int64') + 6", "u = u + take(u, i)"], 2, 8),  # i is written out there
    (["v = u*2", "w = take(u, astype(u, 'int64') + 6)", "u = v + w"], 1, 31),  # w is, and what is wrong stands in it
    (["i = astype(u, 'int64') + 6", "u = u + take(u, i) + 0*i"], 1, 8),
    (["u += 1", "u = u + take(u, astype(u, 'int64') + 6)"], 1, 35),
])
def test_the_statement_is_that_of_the_place(both, body, statement, offset):
    """Of temporaries that are written out where they are used, too."""
    hold(both, "u", np.ones(5))
    r = run(both, body, 20)
    assert (r["state"], r["error"]["code"], r["failed_statement"]) == ("failed", "bad_index", statement)
    assert (r["error"]["pointer"], r["error"]["offset"]) == (f"/body/{statement}", offset)


def test_a_copy_that_cannot_be_made_stops_it_before_its_step(daemon_with):
    """And is made when the job goes on: none is left out."""
    api = daemon_with("--max-arrays", 4).client()
    hold(api, "u", np.zeros(4))
    r = run(api, ["u += 1"], 13, snapshot={"u": 2}, record={"u": "u[0]"})
    assert (r["state"], r["step"], r["failed_step"], r["error"]["code"]) == ("failed", 7, 8, "quota_exceeded")
    assert [s["step"] for s in r["snapshots"]] == [2, 4, 6] and r["records"]["u"] == list(range(1, 8))
    assert api.download("u").tolist() == [7] * 4
    for s in r["snapshots"]:
        assert api.download(s["id"]).tolist() == [s["step"]] * 4
        api.expect(204, api.delete(f"/v1/arrays/{s['id']}"))
    api.expect(202, api.post(f"/v1/jobs/{r['id']}/resume"))
    until(lambda: job(api, r["id"])["state"] == "done")
    r = job(api, r["id"])
    assert [s["step"] for s in r["snapshots"]] == [2, 4, 6, 8, 10, 12] and r["records"]["u"] == list(range(1, 14))
    for s in r["snapshots"][3:]:
        assert api.download(s["id"]).tolist() == [s["step"]] * 4
    api.close()


def test_a_program_that_rests_keeps_no_daemon(daemon_with):
    d = daemon_with("--backend", "cpu")
    api, other, replies = d.client(), d.client(), []
    hold(api, "u", np.zeros(4))
    t = threading.Thread(target=lambda: replies.append(other.post("/v1/programs?wait=1", {"body": ["u += 1"], "steps": 10**12})))
    t.start()
    until(lambda: [j for j in jobs(api) if j["state"] == "running"])
    api.expect(201, api.post("/v1/arrays/u/lease", {"mode": "read", "ttl_s": 60}))
    until(lambda: "waiting" in jobs(api)[0])
    begun = time.monotonic()
    d.stop()
    t.join(20)
    assert time.monotonic() - begun < 10 and replies[0].json()["state"] == "cancelled"


def test_a_step_that_does_not_end_keeps_no_daemon(daemon_with):
    """Who waits for the job is answered, and the process ends."""
    d = daemon_with("--backend", "cpu", "--drain-timeout", 1)
    api, other, replies = d.client(), d.client(), []
    hold(api, "x", np.ones(2))
    body = {"body": ["x[0] = sum(broadcast_to(x[1], [2**36]))"], "steps": 10}
    t = threading.Thread(target=lambda: replies.append(other.post("/v1/programs?wait=1", body)))
    t.start()
    until(lambda: [j for j in jobs(api) if j["state"] == "running"])
    begun = time.monotonic()
    d.stop()
    t.join(20)
    assert time.monotonic() - begun < 30 and replies[0].json()["state"] == "cancelled"
