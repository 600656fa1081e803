"""How long jobs that have ended are kept, and how much of them."""
import numpy as np

from conftest import until
from test_programs import jobs, run, start
from test_reductions import hold


def test_retention_and_limits(daemon_with):
    d = daemon_with("--job-retention", "100", "--max-jobs", 2, "--max-statements", 3, "--max-records", 10)
    api = d.client()
    limits = api.info()["limits"]
    assert (limits["max_jobs"], limits["max_statements"], limits["max_records"], limits["job_retention"]) == (2, 3, 10, 100)
    hold(api, "x", np.zeros(3))
    api.fails(422, "expression_too_large", api.post("/v1/programs", {"body": ["x += 1"] * 4}))
    api.fails(422, "bad_field", api.post("/v1/programs", {"body": ["x += 1"], "steps": 11, "record": {"x": "x[0]"}}))
    first = run(api, ["x += 1"], 10, record={"x": "x[0]"})["id"]
    second = run(api, ["x += 1"])["id"]
    third = start(api, ["x += 1"])  # the one that ended first gives way
    api.fails(404, "not_found", api.get(f"/v1/jobs/{first}"))
    assert {j["id"] for j in jobs(api)} == {second, third}
    hold(api, "y", np.zeros(3))  # of two that write one array, one gives up in time
    start(api, ["y += 1"])
    api.fails(429, "quota_exceeded", api.post("/v1/programs", {"body": ["x += 1"]}))
    api.close()


def test_what_jobs_record_has_a_limit(daemon_with):
    """Of a user's jobs together: those that ended give way, those under way do not."""
    api = daemon_with("--record-memory", "4KiB").client()
    assert api.info()["limits"]["record_memory"] == 4096
    hold(api, "x", np.zeros(3))
    record = {"record": {"x": "x[0]", "y": "x[1]"}}
    ended = [run(api, ["x += 1"], 100, **record)["id"] for _ in range(2)]  # 1,600 bytes each
    short = run(api, ["x += 1"], 1000, until="x[0] > 0", **{**record, "record_every": 10})["id"]  # 1,600, then none
    assert {j["id"] for j in jobs(api)} == {*ended[1:], short}
    running = start(api, ["x += 1"], 10**12, record={"x": "x[0]"}, record_every=10**10)  # 800
    api.fails(429, "quota_exceeded", api.post("/v1/programs", {"body": ["x += 1"], "steps": 250, **record}))
    assert {j["id"] for j in jobs(api)} == {*ended[1:], short, running}
    last = run(api, ["x += 1"], 200, **record)["id"]
    assert {j["id"] for j in jobs(api)} == {short, running, last}
    api.close()


def test_retention_while_others_run(daemon_with):
    """Jobs that always have something to do do not keep the ended ones."""
    api = daemon_with("--job-retention", "0").client()
    for name in "abc":
        hold(api, name, np.zeros(3))
    refs = [start(api, [f"{name} += 1"]) for name in "ab"]
    ended = run(api, ["c += 1"])["id"]
    until(lambda: api.get(f"/v1/jobs/{ended}").status == 404, 40)
    for ref in refs:
        api.expect(200, api.delete(f"/v1/jobs/{ref}"))
    api.close()
