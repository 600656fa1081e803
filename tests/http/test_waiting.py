"""Requests that wait: their clients may go away, or give them only so much time."""
import json
import re
import socket
import ssl
import time

import numpy as np
import pytest

from client import NPY, OCTETS
from conftest import settle
from test_framing import GET, request
from test_guards import submitted
from test_http_front import connect, metric, read_reply, reset, settles
from test_tls import files, options, trusting  # noqa: F401 (a fixture)

IN_FLIGHT = "arrayd_http_requests_in_flight"
SLOW = {"body": ["u += 1"], "steps": 10**12, "bind": {"u": "u"}}


def started(daemon, accounts=None):
    c = daemon.client()
    c.create(name="u", shape=[4], dtype="float64")
    c.job = c.expect(202, c.post("/v1/programs", SLOW)).json()["id"]
    runs(c)
    return c


def runs(c):
    """Its job has left the queue."""
    while (state := c.expect(200, c.get(f"/v1/jobs/{c.job}")).json()["state"]) == "queued":
        time.sleep(0.001)
    assert state == "running"


def wait_for(job, *headers):
    return request(b"GET /v1/jobs/%s?wait=1 HTTP/1.1" % job.encode(), b"Host: localhost", *headers)


def ended(c):
    c.expect(200, c.delete(f"/v1/jobs/{c.job}"))
    c.close()


def descriptors(daemon):
    import os
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def reaped(daemon, n, want=0, seconds=20):
    """None of n requests is in flight any more, but for `want`; in time, while what they waited for goes on."""
    settles(daemon, IN_FLIGHT, want + 1, seconds)
    settles(daemon, "arrayd_http_connections", want + 1, seconds)


@pytest.mark.parametrize("how", [socket.socket.close, reset])
def test_closed_clients_give_up_their_slots(daemon_with, how):
    d = daemon_with()
    c = started(d)
    c.close()
    before = descriptors(d)
    held = [connect(d) for _ in range(300)]
    for s in held:
        s.sendall(wait_for(c.job))
    settles(d, IN_FLIGHT, 301)
    for s in held:
        how(s)
    reaped(d, 300)
    assert descriptors(d) <= before + 1
    assert c.expect(200, c.get(f"/v1/jobs/{c.job}")).json()["state"] == "running"
    ended(c)


def test_the_job_of_a_closed_client_goes_on(daemon_with):
    d = daemon_with()
    c = started(d)
    c.expect(200, c.delete(f"/v1/jobs/{c.job}"))
    body = b'{"body": ["u += 1"], "steps": 1000000000000}'
    s = connect(d)
    s.sendall(request(b"POST /v1/programs?wait=1 HTTP/1.1", b"Host: localhost", b"Content-Type: application/json",
                      b"Content-Length: %d" % len(body), body=body))
    settles(d, IN_FLIGHT, 2)
    while len(c.expect(200, c.get("/v1/jobs")).json()["jobs"]) < 2:
        time.sleep(0.01)
    s.close()
    c.close()
    reaped(d, 1)
    c.job = c.expect(200, c.get("/v1/jobs")).json()["jobs"][1]["id"]
    runs(c)
    ended(c)


def test_closed_clients_of_a_unix_socket(daemon_with, tmp_path):
    d = daemon_with("--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s")
    c = started(d)
    c.close()
    held = []
    for _ in range(2):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(10)
        s.connect(f"{tmp_path}/s")
        s.sendall(wait_for(c.job))
        held.append(s)
    settles(d, IN_FLIGHT, 3)
    held[0].close()
    reaped(d, 1, want=1)
    time.sleep(0.5)
    ended(c)
    assert read_reply(held[1]).status == 200


def test_closed_clients_over_tls(daemon_with, files):  # noqa: F811
    d = daemon_with("--admin-listen", "127.0.0.1:0", *options(files))
    c = d.client(tls=trusting(files[0]))
    c.create(name="u", shape=[4], dtype="float64")
    c.job = c.expect(202, c.post("/v1/programs", SLOW)).json()["id"]
    c.close()
    admin = type("Admin", (), {"host": d.host, "port": d.admin_port})
    for end in (ssl.SSLSocket.close, ssl.SSLSocket.unwrap):
        s = trusting(files[0]).wrap_socket(connect(d), server_hostname="localhost")
        s.sendall(wait_for(c.job))
        settles(admin, IN_FLIGHT, 2)
        try:
            s.settimeout(0.3)  # whether the daemon has answered or not
            end(s)
        except (OSError, ssl.SSLError):
            pass
        s.close()
        reaped(admin, 1)
    ended(c)


def test_half_closed_clients(daemon_with):
    """They get what can be had at once; who waits has gone."""
    d = daemon_with()
    c = started(d)
    c.close()
    with connect(d) as s:
        s.sendall(request(b"GET /v1/jobs/%s HTTP/1.1" % c.job.encode(), b"Host: localhost"))
        s.shutdown(socket.SHUT_WR)
        assert read_reply(s).status == 200
    with connect(d) as s:
        s.sendall(wait_for(c.job))
        s.shutdown(socket.SHUT_WR)
        assert s.recv(100) == b""
    reaped(d, 1)
    ended(c)


def test_a_stream_of_events(daemon_with):
    """Whether its client has closed or only ended its side, a comment tells."""
    d = daemon_with()
    c = started(d)
    c.close()
    held = [connect(d) for _ in range(20)]
    for s in held:
        s.sendall(request(b"GET /v1/jobs/%s/events HTTP/1.1" % c.job.encode(), b"Host: localhost"))
        assert s.recv(100).startswith(b"HTTP/1.1 200")
    settles(d, IN_FLIGHT, 21)
    kept = held.pop()
    kept.shutdown(socket.SHUT_WR)
    for s in held:
        s.close()
    reaped(d, 19, want=1)
    ended(c)
    got = b""
    while piece := kept.recv(65536):
        got += piece
    assert b"event: end" in got
    kept.close()


@pytest.mark.in_turn
def test_streams_that_break_off_behind_an_idle_connection(daemon_with):
    """An older connection on which nothing happens keeps nobody's place taken."""
    d = daemon_with("--admin-listen", "127.0.0.1:0")
    admin = type("Admin", (), {"host": d.host, "port": d.admin_port})
    c = started(d)
    with connect(d) as idle:
        idle.sendall(request(GET, b"Host: localhost"))
        assert read_reply(idle).status == 200
        c.close()
        for how in (reset, socket.socket.close) * 4:
            held = [connect(d) for _ in range(30)]
            for s in held:
                s.sendall(request(b"GET /v1/jobs/%s/events HTTP/1.1" % c.job.encode(), b"Host: localhost"))
                assert s.recv(100).startswith(b"HTTP/1.1 200")
            for s in held:
                how(s)
            settles(admin, "arrayd_http_connections", 2)
        ended(c)


# --- evaluations ---

OLD_OR_NEW = [0, 1, 2, 3, 4, 5], [0, 1, 2, 0, 1, 5]  # an `out`: whether its work had been queued by then or not

@pytest.fixture
def slow(daemon_with):
    """What its session is asked for comes after some seconds of work."""
    d = daemon_with("--backend", "cpu", "--threads", "1")
    c = d.client()
    c.daemon = d
    c.create(random={"distribution": "uniform", "seed": 1}, shape=[2000000], dtype="float64", name="x")
    c.upload(np.array([0, 1, 5]), "i")
    c.upload(np.arange(6.), "v")
    c.quiet()
    c.held = c.info()["bytes_in_use"]

    def work(times=4):
        for _ in range(times):
            c.expect(201, c.post("/v1/evaluate", {"expr": "lgamma(x + lgamma(x))*lgamma(x*3)", "name": "busy"}))
        c.close()

    c.work = work
    yield c
    c.close()


def ask_and_close(d, body, accept=b"application/json"):
    s = connect(d)
    s.sendall(request(b"POST /v1/evaluate HTTP/1.1", b"Host: localhost", b"Content-Type: application/json",
                      b"Accept: " + accept, b"Content-Length: %d" % len(body), body=body))
    return s


MORE_AND_MORE = 4, 16, 64  # work, until it is not over before the test has done what it does meanwhile


def give_up(slow, times):
    """Whether clients that closed were given up while the work before theirs went on."""
    d = slow.daemon
    slow.work(times)
    held = [ask_and_close(d, b'{"expr": "sum(x*2)"}') for _ in range(10)]
    held += [ask_and_close(d, b'{"expr": "x*2"}', b"application/octet-stream") for _ in range(10)]
    held += [ask_and_close(d, b'{"expr": "take(v, i)", "inline": true}') for _ in range(10)]
    held += [ask_and_close(d, b'{"expr": "take(v, i)", "out": "v", "index": "3:"}') for _ in range(10)]
    s = connect(d)
    s.sendall(request(b"POST /v1/sessions/default/sync HTTP/1.1", b"Host: localhost"))
    held.append(s)
    while metric(d, IN_FLIGHT) < 42 and metric(d, "arrayd_jobs_in_flight") > 0:
        pass
    for s in held:
        s.close()
    reaped(d, 40)
    return metric(d, "arrayd_jobs_in_flight") > 0


def test_evaluations_of_closed_clients(slow):
    assert any(give_up(slow, times) for times in MORE_AND_MORE)
    assert list(slow.download("v")) in OLD_OR_NEW
    slow.expect(204, slow.delete("/v1/arrays/busy"))
    assert settle(slow, slow.held, 20) == slow.held


@pytest.mark.in_turn
def test_work_in_small_pieces_is_given_up(slow):
    """Sums of one term each: no piece of this work is long enough to look whether it is wanted."""
    slow.create(shape=[1, 100000], fill=0.3, dtype="float64", name="y")
    slow.upload(np.zeros((200, 1), "i8"), "z")
    held = slow.info()["bytes_in_use"]
    body = {"expr": "sum(lgamma(lgamma(take(y, z, axis=0))*2), axis=1)"}
    begun = time.monotonic()
    slow.expect(200, slow.post("/v1/evaluate", body, accept=OCTETS))
    whole = time.monotonic() - begun
    s = ask_and_close(slow.daemon, json.dumps(body).encode(), OCTETS.encode())
    while metric(slow.daemon, "arrayd_jobs_in_flight") == 0:
        time.sleep(0.001)
    time.sleep(whole / 10)
    s.close()
    begun = time.monotonic()
    assert settle(slow, held, 20) == held
    assert time.monotonic() - begun < whole / 3


def test_a_name_is_given_though_the_client_has_gone(slow):
    """Once its work has been queued."""
    slow.work(2)
    before = submitted(slow)
    s = ask_and_close(slow.daemon, b'{"expr": "take(v, i)", "name": "r"}')
    while submitted(slow) == before:
        time.sleep(0.001)
    s.close()
    settles(slow.daemon, IN_FLIGHT, 1)
    np.testing.assert_array_equal(slow.download("r"), [0, 1, 5])


def test_quotas_come_back(daemon_with, accounts):
    accounts.add("ann", requests=3)
    d = daemon_with("--backend", "cpu", "--accounts", accounts.path, "--admin-listen", "127.0.0.1:0")
    ann = accounts.client(d, "ann")
    ann.create(name="u", shape=[4], dtype="float64")
    ann.job = ann.expect(202, ann.post("/v1/programs", SLOW)).json()["id"]
    ann.close()
    token = b"Authorization: Bearer " + accounts.token["ann"].encode()
    held = [connect(d) for _ in range(3)]
    for s in held:
        s.sendall(wait_for(ann.job, token))
    admin = type("Admin", (), {"host": d.host, "port": d.admin_port})
    settles(admin, IN_FLIGHT, 4)
    ann.fails(429, "quota_exceeded", ann.get("/v1/info"))
    for s in held:
        s.close()
    settles(admin, IN_FLIGHT, 1)
    ended(ann)


# --- so much time ---

def test_a_job_as_it_is(daemon_with):
    d = daemon_with()
    c = started(d)
    path = f"/v1/jobs/{c.job}"
    for prefer, applied in (("wait=0", "wait=0"), ("respond-async, Wait=1; x", "wait=1")):
        begin = time.monotonic()
        r = c.expect(200, c.get(path + "?wait=1", headers={"Prefer": prefer}))
        assert r.json()["state"] == "running" and r.headers["Preference-Applied"] == applied
        assert int(applied[5:]) <= time.monotonic() - begin < int(applied[5:]) + 5
    c.expect(200, c.delete(path))
    r = c.expect(202, c.post(path + "/resume?wait=1", headers={"Prefer": "wait=0"}))
    assert r.json()["state"] in ("queued", "running") and r.headers["Preference-Applied"] == "wait=0"
    c.expect(200, c.delete(path))
    r = c.expect(202, c.post("/v1/programs?wait=1", SLOW, headers={"Prefer": "wait=0"}))
    assert r.headers["Location"] == f"/v1/jobs/{r.json()['id']}"
    c.job = r.json()["id"]
    ended(c)


def test_a_job_that_ends_in_time(daemon_with):
    c = daemon_with().client()
    c.create(name="u", shape=[4], dtype="float64")
    r = c.expect(200, c.post("/v1/programs?wait=1", {**SLOW, "steps": 10}, headers={"Prefer": "wait=30"}))
    assert r.json()["state"] == "done" and r.headers["Preference-Applied"] == "wait=30"
    r = c.expect(200, c.post("/v1/programs?wait=1", {**SLOW, "steps": 10}))
    assert "Preference-Applied" not in r.headers
    c.close()


@pytest.mark.parametrize("prefer", ["wait", "wait=soon", "wait=-1", "wait=1.5", ";;=,", "handling=strict"])
def test_what_cannot_be_read_is_ignored(daemon_with, prefer):
    c = daemon_with().client()
    r = c.expect(200, c.post("/v1/evaluate", {"expr": "1 + 1"}, headers={"Prefer": prefer}))
    assert "Preference-Applied" not in r.headers
    c.close()


def test_evaluations_are_late(slow):
    late = {"Prefer": "wait=0"}
    ask = [("/v1/evaluate", {"json_body": {"expr": "sum(x)"}}),
           ("/v1/evaluate", {"json_body": {"expr": "x*2"}, "accept": OCTETS}),
           ("/v1/evaluate", {"json_body": {"expr": "take(v, i)", "name": "r"}}),
           ("/v1/evaluate", {"json_body": {"expr": "take(v, i)", "out": "v", "index": "3:"}}),
           ("/v1/sessions/default/sync", {})]
    for times in MORE_AND_MORE:
        slow.work(times)
        replies = [slow.post(path, headers=late, **kw) for path, kw in ask]
        replies.append(slow.get("/v1/arrays/busy/data", headers=late, accept=NPY))
        if {r.status for r in replies} == {504}:
            break
        slow.delete("/v1/arrays/r")
    for r in replies:
        slow.fails(504, "deadline_exceeded", r)
    assert {r.headers["Preference-Applied"] for r in replies[:-1]} == {"wait=0"}
    assert list(slow.download("v")) in OLD_OR_NEW
    slow.fails(404, "not_found", slow.get("/v1/arrays/r"))
    slow.expect(204, slow.delete("/v1/arrays/busy"))
    assert settle(slow, slow.held, 20) == slow.held


@pytest.mark.in_turn
def test_the_most(daemon_with):
    d = daemon_with("--max-wait", "1")
    c = started(d)
    assert c.info()["limits"]["max_wait"] == 1
    for headers in ({}, {"Prefer": "wait=100"}):
        begin = time.monotonic()
        r = c.expect(200, c.get(f"/v1/jobs/{c.job}?wait=1", headers=headers))
        assert 0.9 < time.monotonic() - begin < 6 and r.json()["state"] == "running"
        assert r.headers.get("Preference-Applied") == ("wait=1" if headers else None)
    assert re.search(r"state", str(r.json()))
    ended(c)


def test_on_a_device(gpu_with):
    d = gpu_with()
    c = started(d)
    c.close()
    held = [connect(d) for _ in range(20)]
    for s in held:
        s.sendall(wait_for(c.job))
    settles(d, IN_FLIGHT, 21)
    for s in held:
        s.close()
    reaped(d, 20)
    c.expect(200, c.get(f"/v1/jobs/{c.job}?wait=1", headers={"Prefer": "wait=0"}))
    ended(c)


def test_connections_that_wait_for_nothing_stay(daemon):
    """The watch does not take a client that is there for one that is not."""
    with connect(daemon) as s:
        for _ in range(3):
            s.sendall(request(GET, b"Host: localhost"))
            assert read_reply(s).status == 200
            time.sleep(0.3)
