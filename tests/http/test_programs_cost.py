"""What a program will cost, before it starts, and what a job took, afterwards."""
import datetime
import json
import socket
import time
from pathlib import Path

import pytest

from conftest import until
from test_explain_programs import explain
from test_programs import both  # noqa: F401 (a fixture)

STEP = ["u += 1"]
LONG = {"body": ["w += 0.1*laplacian(w)"], "steps": 10**12}


def array(c, name, shape, dtype="float32"):
    return c.expect(201, c.post("/v1/arrays", {"name": name, "shape": shape, "dtype": dtype})).json()["nbytes"]


def done(c, **program):
    j = c.expect(200, c.post("/v1/programs?wait=1", program)).json()
    assert j["state"] == "done", j
    return j


@pytest.mark.in_turn
def test_an_expectation(both):
    """From the memory's speed at first, then from what the same kernels took; and never more than it says."""
    if both.get("/v1/arrays/u").status == 200:
        both.delete("/v1/arrays/u")
    n = array(both, "u", [200, 300])
    x = explain(both, STEP, steps=50)
    assert x["bytes_held"] == 2 * n
    e, each = x["expected"], 2 * n / x["pass"]["steps"]  # bytes of a step
    assert e["bytes_moved"] == pytest.approx(50 * each) and e["copy_rate"] > 0 and e["by"] == "copy_rate"
    assert 50 * 2 * n / e["copy_rate"] < e["device_s"] < 50 * 2 * n / e["copy_rate"] + 50 * 1e-5
    assert 0 < e["share"] <= 1 and e["elapsed_s"] == pytest.approx(e["device_s"] / e["share"])
    ends = datetime.datetime.fromisoformat(e["ends"].replace("Z", "+00:00")).timestamp()
    assert abs(ends - e["elapsed_s"] - time.time()) < 30
    j = done(both, body=STEP, steps=50)
    assert j["bytes_moved"] == pytest.approx(50 * each, rel=0.3) and "memory_speed" not in j  # the last pass may be shorter
    assert set(j["forms"]) <= {"flat", "steps"} and j["forms"] and (each < 2 * n) == ("steps" in j["forms"])
    e = explain(both, STEP, steps=100)["expected"]
    assert e["by"] == "last_run" and e["device_s"] == pytest.approx(10 * explain(both, STEP, steps=10)["expected"]["device_s"])
    assert 0.05 < e["device_s"] / (2 * j["device_s"]) < 20  # what the last slice took may be far from the mean of all
    assert e["bytes_moved"] == pytest.approx(100 * each)


def test_what_is_held(both):
    """Two more of each assigned array, one of each temporary that is stored."""
    for name in ("u", "v"):
        if both.get(f"/v1/arrays/{name}").status == 200:
            both.delete(f"/v1/arrays/{name}")
    n = array(both, "u", [64, 64])
    array(both, "v", [64, 64])
    assert explain(both, ["u += v"])["bytes_held"] == 2 * n
    assert 2 * n <= explain(both, ["s = sum(u)", "u += s*v"])["bytes_held"] <= 2 * n + 64
    assert explain(both, ["t = cumulative_sum(u, axis=0)", "u = t + shift(t, [1, 0])", "v = t"])["bytes_held"] == 5 * n
    far = explain(both, ["u += v"], steps=10**15)["expected"]
    assert far["bytes_moved"] >= 10**14 * n and "ends" not in far  # that is years


def test_the_share(daemon_with, accounts):
    """What one gets beside others, by the weights, and beside one's own jobs."""
    accounts.add("ann")
    accounts.add("bob", weight=3)
    d = daemon_with("--accounts", accounts.path)
    ann, bob = (accounts.client(d, name) for name in ("ann", "bob"))

    def share():
        return explain(ann, STEP, steps=10)["expected"]["share"]

    for c in (ann, bob):
        array(c, "u", [300, 300])
        array(c, "w", [300, 300])
    time.sleep(0.5)
    assert share() == 1
    jobs = [c.expect(202, c.post("/v1/programs", LONG)).json()["id"] for c in (bob, ann)]
    until(lambda: all(c.get(f"/v1/jobs/{j}").json()["step"] > 0 for c, j in zip((bob, ann), jobs)))
    until(lambda: share() == pytest.approx(1 / 4 / 2))
    e = explain(ann, STEP, steps=10)["expected"]
    assert e["elapsed_s"] == pytest.approx(8 * e["device_s"])
    bob.expect(200, bob.delete(f"/v1/jobs/{jobs[0]}"))
    until(lambda: share() == 1 / 2)
    ann.expect(200, ann.delete(f"/v1/jobs/{jobs[1]}"))
    until(lambda: share() == 1)


@pytest.mark.in_turn
def test_a_slow_device_does_not_keep_the_daemon(gpu_with):
    """The memory's speed, which an expectation asks for, is not measured to the end."""
    d = gpu_with("--no-keeper", "--drain-timeout", 1, environment={"ARRAYD_FAKE_DELAY": "500000"})
    c = d.client()
    array(c, "u", [10])
    asked = socket.create_connection((d.host, d.port))
    body = json.dumps({"body": STEP, "steps": 1}).encode()
    asked.sendall(b"POST /v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    until(lambda: "arrayd-copies\n" in [(t / "comm").read_text() for t in Path(f"/proc/{d.pid}/task").iterdir()])
    begun = time.monotonic()
    asked.close()
    d.stop()
    took = time.monotonic() - begun
    assert took < 8, took


def test_a_step_that_ends_too_late_ends_nothing_else(gpu_with):
    """It ends after drain-timeout, while the parts of the daemon are taken down: that is no reason to die."""
    d = gpu_with("--no-keeper", "--drain-timeout", 1, environment={"ARRAYD_FAKE_DELAY": "200000"})
    c = d.client()
    array(c, "u", [10])
    job = c.expect(202, c.post("/v1/programs", {"body": ["u = u*2"], "steps": 20})).json()["id"]  # one slice, of some 4 s
    until(lambda: c.get(f"/v1/jobs/{job}").json()["state"] == "running")
    d.stop()  # asserts that it ends with 0
    assert "still running" in d.log()


@pytest.mark.release_only  # it moves a gigabyte
def test_how_near_the_memorys_speed(daemon_with):
    c = daemon_with("--backend", "cpu").client()
    n = array(c, "u", [4 << 20])
    body = ["u = cumulative_sum(u, axis=0)"]  # one step in a pass
    j = done(c, body=body, steps=33)
    assert j["bytes_moved"] == 33 * 2 * n >= 1 << 30
    until(lambda: "memory_speed" in c.get(f"/v1/jobs/{j['id']}").json())  # measured once one has asked
    speed = c.get(f"/v1/jobs/{j['id']}").json()["memory_speed"]
    rate = explain(c, body, steps=1)["expected"]["copy_rate"]
    assert speed == pytest.approx(j["bytes_moved"] / j["device_s"] / rate)
    assert 0.02 < speed < 50
    short = done(c, body=body, steps=2)
    assert "memory_speed" not in c.get(f"/v1/jobs/{short['id']}").json()


def test_what_a_job_took_is_charged(daemon_with):
    """All of it where nobody else works, however short its pieces are: an end that is told late costs the next piece nothing."""
    d = daemon_with("--backend", "cpu")
    c = d.client()
    c.create(name="u", shape=[256, 256], dtype="float32")
    for record in ({}, {"record": {"e": "sum(u*u)"}}):
        before = c.get("/v1/sessions/default").json()["device_s"]
        took = c.post("/v1/programs?wait=1", {"body": ["u += 0.1*laplacian(u)"], "steps": 3000, **record}).json()["device_s"]
        assert c.get("/v1/sessions/default").json()["device_s"] - before == pytest.approx(took, rel=0.01)
    c.close()
