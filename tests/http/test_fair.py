"""Fair time: users have the device in the proportion of their weights, and nobody waits for another's crowd."""
import contextlib
import json
import re
import socket
import threading
import time

import numpy as np
import pytest

from client import JSON
from conftest import until

FIELD = {"shape": [512, 512], "dtype": "float32", "random": {"distribution": "uniform", "seed": 1}}
HEAT = "u += 0.1*laplacian(u, boundary='wrap')"
LONG = 10**9  # steps


@pytest.fixture
def users(daemon_with, accounts):
    """users(options): ann of weight 1 and bob of weight 3, each with a field u."""
    def start(*args):
        accounts.add("ann", role="operator")
        accounts.add("bob", role="operator", weight=3)
        start.daemon = d = daemon_with("--backend", "cpu", "--accounts", accounts.path, *args)
        both = [accounts.client(d, name) for name in ("ann", "bob")]
        for c in both:
            c.expect(201, c.put("/v1/arrays/u", FIELD))
        return both

    return start


def figures(c, name):
    """By principal."""
    text = c.expect(200, c.get("/metrics")).body.decode()
    return {who: float(v) for who, v in re.findall(rf'^arrayd_{name}{{principal="(\w+)"}} (\S+)$', text, re.M)}


class Crowd:
    """n connections of a client that ask for the same again and again. With `out` they are answered before it is done,
    and so always have as much of it waiting as is taken."""

    def __init__(self, c, n, fields):
        self.ending, self.done, self.statuses = False, 0, set()
        self.threads = [threading.Thread(target=self.run, args=(c.clone(), fields)) for _ in range(n)]

    def run(self, c, fields):
        while not self.ending:
            self.statuses.add(c.post("/v1/evaluate", fields).status)
            self.done += 1
        c.close()

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        for t in self.threads:
            t.join()


def job(c, steps=LONG):
    return c.expect(202, c.post("/v1/programs", {"body": [HEAT], "steps": steps})).json()["id"]


def shares(c, low, high):
    """bob's time on the device over ann's comes to be between these: since the beginning, at the end of a second at the
    soonest, or over the last four. A busy machine takes longer, for its slices are then as long as many, and what it did
    meanwhile stays in the sum."""
    seen, got = [figures(c, "principal_device_seconds_total")], []
    for _ in range(12):
        time.sleep(1)
        seen.append(figures(c, "principal_device_seconds_total"))
        for before in (seen[0], *seen[-5:-4]):
            bob, ann = (seen[-1][name] - before[name] for name in ("bob", "ann"))
            got.append(bob / ann if ann else 0)
            if low < got[-1] < high:
                return
    raise AssertionError(got)


@pytest.mark.alone
def test_two_programs_share_by_weight(users):
    ann, bob = users()
    jobs = [(c, job(c)) for c in (ann, bob)]
    time.sleep(0.3)
    shares(ann, 2.7, 3.3)
    for c, j in jobs:
        c.expect(200, c.delete(f"/v1/jobs/{j}"))


@pytest.mark.alone
def test_a_program_and_a_crowd_share_by_weight(users):
    ann, bob = users()
    j = job(bob)
    for name in "vw":  # large enough that eight connections ask for more than many cores do
        ann.expect(201, ann.put(f"/v1/arrays/{name}", {**FIELD, "shape": [3072, 3072]}))
    with Crowd(ann, 8, {"expr": "sin(v)*cos(v)", "out": "w"}) as crowd:
        time.sleep(0.3)
        shares(ann, 2.6, 3.4)
    bob.expect(200, bob.delete(f"/v1/jobs/{j}"))
    assert crowd.statuses == {200}


@pytest.mark.alone
def test_weights_are_read_again(users, accounts):
    ann, bob = users()
    jobs = [(c, job(c)) for c in (ann, bob)]
    text = accounts.path.read_text()
    assert text.count("weight = 3") == 1
    accounts.write(text.replace("weight = 3", "weight = 1"))
    accounts.reload(users.daemon)
    time.sleep(0.3)
    shares(ann, 0.85, 1.18)
    for c, j in jobs:
        c.expect(200, c.delete(f"/v1/jobs/{j}"))


def test_too_much_that_waits(users):
    """Work of a user past max-waiting is refused, of another it is not; what waits is done in the end."""
    ann, bob = users("--device-window", "0", "--max-waiting", "4", "--inline-elements", "0")
    with Crowd(ann, 16, {"expr": "sum(sin(u)*cos(u)*exp(u))"}) as crowd:
        for _ in range(20):
            bob.expect(200, bob.post("/v1/evaluate", {"expr": "1 + 1"}))
        deadline = time.monotonic() + 20
        while 429 not in crowd.statuses and time.monotonic() < deadline:
            time.sleep(0.01)
    assert crowd.statuses == {200, 429}
    assert figures(ann, "principal_turns_waiting") == {"ann": 0, "bob": 0}
    assert figures(ann, "principal_turn_wait_seconds_total")["ann"] > 0


def test_refusal_says_what_and_when(users):
    ann, bob = users("--device-window", "0", "--max-waiting", "0", "--inline-elements", "0")
    refused = None
    with Crowd(bob, 4, {"expr": "sum(sin(u)*cos(u)*exp(u))"}):
        with Crowd(ann, 4, {"expr": "sum(sin(u)*cos(u)*exp(u))"}):
            while refused is None:
                r = ann.post("/v1/evaluate", {"expr": "sum(sin(u))"})
                refused = r if r.status != 200 else None
    e = ann.fails(429, "quota_exceeded", refused)
    assert "wait" in e["detail"] and int(refused.headers["Retry-After"]) >= 1
    assert ann.info()["limits"]["max_waiting"] == 0


def test_too_much_of_all(users):
    ann, bob = users("--device-window", "0", "--max-waiting-all", "1", "--inline-elements", "0")
    with Crowd(ann, 8, {"expr": "sum(sin(u)*cos(u)*exp(u))"}) as crowd:
        deadline = time.monotonic() + 20
        while 503 not in crowd.statuses and time.monotonic() < deadline:
            time.sleep(0.01)
    assert crowd.statuses == {200, 503}


def test_work_that_waits_is_in_order_and_ends(users):
    """A session's requests wait in the order sent, and what was asked for is what one gets."""
    ann, bob = users("--device-window", "0", "--inline-elements", "0")
    ann.expect(201, ann.put("/v1/arrays/n", {"shape": [1 << 16], "dtype": "int64", "fill": 0}))
    j = job(bob)
    with Crowd(ann, 6, {"expr": "n + 1", "out": "n"}) as crowd:
        time.sleep(1)
    bob.expect(200, bob.delete(f"/v1/jobs/{j}"))
    np.testing.assert_array_equal(ann.download("n"), np.full(1 << 16, crowd.done))


def test_a_slow_upload_keeps_nobody_back(users):
    """Bodies that are long in coming have no turn yet: neither bytes nor JSON."""
    ann, bob = users()
    heads = ["POST /v1/arrays?dtype=uint8&shape=1000000", "PUT /v1/arrays/slow?dtype=uint8&shape=1000000", "POST /v1/arrays"]
    with contextlib.ExitStack() as open_ones:
        for head in heads * 2:
            kind = "application/octet-stream" if "?" in head else "application/json"
            s = open_ones.enter_context(socket.create_connection(("127.0.0.1", users.daemon.port)))
            s.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {ann.always['Authorization']}\r\nContent-Type: {kind}\r\n"
                      f"Content-Length: 1000000\r\n\r\n ".encode())
        time.sleep(0.3)
        begun = time.monotonic()
        for _ in range(200):
            bob.expect(200, bob.post("/v1/evaluate", {"expr": "sum(sin(u)*cos(u)*exp(u))"}))
        assert figures(bob, "principal_device_seconds_total")["bob"] > 0.03  # far more than the window
        assert time.monotonic() - begun < 20  # and not when the uploads were cut


def test_a_job_that_waits_for_its_turn_is_cancelled(users):
    """While work of another's that others' long work waits for is on the device."""
    ann, bob = users()
    bob.expect(201, bob.put("/v1/arrays/w", {"shape": [1 << 23], "dtype": "float32", "fill": 0.5}))
    heavy = "w"
    for _ in range(12):
        heavy = f"exp(sin({heavy}))"
    bob.expect(200, bob.post("/v1/evaluate", {"expr": f"sum({heavy})"}))  # what it takes is known from here on
    ending = threading.Event()
    other = bob.clone()

    def ask():
        while not ending.is_set():
            other.expect(200, other.post("/v1/evaluate", {"expr": f"sum({heavy})"}))

    t = threading.Thread(target=ask)
    t.start()
    time.sleep(0.1)
    for _ in range(8):
        j = job(ann)
        ann.expect(200, ann.delete(f"/v1/jobs/{j}"))
        assert ann.expect(200, ann.get(f"/v1/jobs/{j}")).json()["state"] == "cancelled"
    assert t.is_alive()
    ending.set()
    t.join()
    other.close()


@pytest.mark.in_turn
@pytest.mark.release_only  # work of seconds, six times, would be of minutes
@pytest.mark.parametrize("removed", [False, True])
def test_what_waits_behind_long_work(users, accounts, removed):
    """While bob's work takes seconds a session of ann's does not expire before its request has been served; where her
    account goes, nothing is done in her name."""
    ann, bob = users("--device-window", "0", "--inline-elements", "0")
    bob.expect(201, bob.put("/v1/arrays/v", {**FIELD, "shape": [1 << 23], "dtype": "float64"}))
    long = {"expr": "sum(" + " + ".join(f"sin(v*{i})*cos(v + {i})" for i in range(80)) + ")"}
    for _ in range(4):  # so that it is known to be: long work waits for others'
        bob.expect(200, bob.post("/v1/evaluate", long))
    j = job(ann)
    done = []

    def work():
        c = bob.clone()
        done.append(c.post("/v1/evaluate", long).status)
        c.close()

    def ask():
        c = ann.clone()
        if not removed:
            c.session = c.expect(201, c.post("/v1/sessions", {"ttl_s": 1})).json()["id"]
        done.append(c.put("/v1/arrays/v", FIELD).status)
        c.close()

    def waiting(n):
        while not done and figures(ann, "principal_turns_waiting") != {"ann": n, "bob": 0}:
            pass

    threads = [threading.Thread(target=f) for f in (work, ask)]
    threads[0].start()
    waiting(1)
    threads[1].start()
    waiting(2)
    if removed:
        text = accounts.path.read_text()
        accounts.write(text[text.index("[bob]"):])
        accounts.reload(users.daemon)
    else:
        ann.expect(200, ann.delete(f"/v1/jobs/{j}"))
    waited = not done
    for t in threads:
        t.join()
    if not waited and removed:
        pytest.skip("bob's work was over too soon")
    assert sorted(done) == [200, 401 if removed else 201]


def test_the_end_does_not_wait_for_turns(users):
    """SIGTERM while work waits: it is answered, and the daemon ends."""
    ann, bob = users("--device-window", "0", "--inline-elements", "0", "--drain-timeout", "30")
    daemon = users.daemon
    job(bob)
    statuses = []
    connected = threading.Barrier(13)

    def ask():
        c = ann.clone()
        c.expect(200, c.get("/healthz"))
        connected.wait()
        statuses.append(c.post("/v1/evaluate", {"expr": "sum(sin(u)*cos(u)*exp(u))"}).status)
        c.close()

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for t in threads:
        t.start()
    connected.wait()
    until(lambda: b"\narrayd_http_requests_in_flight %d\n" % (13 - len(statuses)) in ann.get("/metrics").body)  # all have asked
    begun = time.monotonic()
    daemon.stop()
    assert time.monotonic() - begun < 25
    for t in threads:
        t.join()
    assert set(statuses) <= {200, 503} and len(statuses) == 12


@pytest.mark.alone
def test_large_bodies_of_one_keep_the_other_waiting_for_one_at_most(users):
    """Workers take turns between users, too."""
    ann, bob = users()
    large = json.dumps({"expr": "1", "let": {"a": [i * 0.37 for i in range(400000)]}}).encode()
    small = json.dumps({"data": [i * 0.37 for i in range(40000)]}).encode()
    ending = threading.Event()
    statuses = set()

    def flood():
        c = ann.clone()
        while not ending.is_set():
            statuses.add(c.request("POST", "/v1/evaluate", large, content_type=JSON, check=False).status)
        c.close()

    def slowest(n):
        took = []
        for _ in range(n):
            begun = time.monotonic()
            r = bob.expect(201, bob.request("POST", "/v1/arrays", small, content_type=JSON, check=False))
            took.append(time.monotonic() - begun)
            bob.expect(204, bob.delete(r.headers["Location"]))
        return sorted(took)[n // 2]

    alone = slowest(9)
    threads = [threading.Thread(target=flood) for _ in range(12)]
    for t in threads:
        t.start()
    time.sleep(0.5)
    beside = slowest(9)
    ending.set()
    for t in threads:
        t.join()
    assert statuses == {422}
    assert beside < 12 * alone + 0.15, (alone, beside)
