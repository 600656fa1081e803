"""Work that nobody wants any more ends on the CPU backend, and all that somebody may still want is done."""
import json
import threading

import numpy as np
import pytest

from conftest import until
from test_framing import request
from test_http_front import connect, metric, read_reply, reset, settles

LONG = "sum(sin(broadcast_to(v,[1000000000,1000])))"  # hours
WORK = "arrayd_jobs_in_flight"


@pytest.fixture
def d(daemon_with):
    return daemon_with("--backend", "cpu", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")


@pytest.fixture
def admin(d):
    return administrator(d)


def administrator(d):
    """Who sees the metrics, with and without accounts."""
    return type("Admin", (), {"host": d.host, "port": d.admin_port})


def busy(admin):
    until(lambda: metric(admin, WORK) > 0)


def held(daemon, body, *headers):
    """A request whose reply is not read."""
    s = connect(daemon)
    text = json.dumps(body).encode()
    s.sendall(request(b"POST /v1/evaluate HTTP/1.1", b"Host: localhost", b"Content-Type: application/json",
                      b"Content-Length: %d" % len(text), *headers, body=text))
    return s


def with_v(c):
    c.create(name="v", shape=[1000], dtype="float64", fill=1)
    c.quiet()
    return c


@pytest.mark.parametrize("how", ["close", "reset", "ends its sending side"])
def test_a_client_that_has_left(d, admin, how):
    c = with_v(d.client())
    s = held(d, {"expr": LONG})
    busy(admin)
    if how == "close":
        s.close()
    elif how == "reset":
        reset(s)
    else:
        s.shutdown(1)
    settles(admin, WORK, 0)
    assert c.expect(200, c.post("/v1/evaluate", {"expr": "sum(v)"})).json()["value"] == 1000  # of the same session
    s.close()
    c.close()


@pytest.mark.parametrize("expr", [
    "max(sum(sin(broadcast_to(w,[10000000,100000])),axis=0))", "argmax(sin(broadcast_to(v,[1000000000,1000])))",
    "max(argmax(sin(broadcast_to(w,[10000000,100000])),axis=0))", "max(prod(sin(broadcast_to(v,[1000,1000000,1000])),axis=1))"])
def test_every_kind_of_work(d, admin, expr):
    c = with_v(d.client())
    c.create(name="w", shape=[100000], dtype="float64", fill=1)
    c.quiet()
    s = held(d, {"expr": expr})
    busy(admin)
    s.close()
    settles(admin, WORK, 0)
    c.close()


def test_a_request_whose_time_is_over(d, admin):
    c = with_v(d.client())
    r = c.post("/v1/evaluate", {"expr": LONG}, headers={"Prefer": "wait=0"})
    c.fails(504, "deadline_exceeded", r)
    settles(admin, WORK, 0)
    c.close()


def test_an_array_that_is_deleted(d, admin):
    """And what was to come of it: nobody sees what is between."""
    c = with_v(d.client())
    c.expect(201, c.post("/v1/evaluate", {"expr": LONG + " + v", "name": "x"}))
    c.expect(201, c.post("/v1/evaluate", {"expr": "x * 2", "name": "y"}))
    c.expect(200, c.post("/v1/evaluate", {"expr": "y + x", "out": "x"}))
    c.expect(204, c.delete("/v1/arrays/x"))
    c.expect(204, c.delete("/v1/arrays/y"))
    settles(admin, WORK, 0)
    c.close()


def test_a_session_that_is_deleted_with_its_programs(d, admin):
    c = with_v(d.client())
    session = c.expect(201, c.post("/v1/sessions", {"name": "s"})).json()["id"]
    other = d.client(always={"Arrayd-Session": session})
    other.create(name="v", shape=[1000], dtype="float64", fill=1)
    for program in ({"body": [f"v = v + {LONG}"], "steps": 5},
                    {"body": ["w = v * 2", f"v = w + {LONG}"], "steps": 5, "record": {"m": "max(v)"}, "until": "sum(v) > 1e30"}):
        other.expect(202, other.post("/v1/programs", program))
    until(lambda: any(j["state"] == "running" for j in other.get("/v1/jobs").json()["jobs"]))
    other.close()
    c.expect(204, c.delete(f"/v1/sessions/{session}"))
    settles(admin, WORK, 0)
    c.close()


def test_what_is_told_of_a_program_whose_session_is_deleted(d, admin):
    c = d.client()
    session = c.expect(201, c.post("/v1/sessions", {"name": "s"})).json()["id"]
    other, watcher = (with_v(d.client(always={"Arrayd-Session": session})), d.client(always={"Arrayd-Session": session}))
    job = other.expect(202, other.post("/v1/programs", {"body": [f"v = v + {LONG}"], "steps": 5})).json()["id"]
    until(lambda: other.get(f"/v1/jobs/{job}").json()["state"] == "running")
    told = []
    waits = threading.Thread(target=lambda: told.append(watcher.get(f"/v1/jobs/{job}?wait=1").json()))
    waits.start()
    until(lambda: metric(admin, "arrayd_http_requests_waiting") == 1)
    c.expect(204, c.delete(f"/v1/sessions/{session}"))
    waits.join(20)
    assert told[0]["state"] == "failed" and "no session" in told[0]["error"]["detail"], told
    for x in (c, other, watcher):
        x.close()


def test_an_account_that_is_removed(daemon_with, accounts):
    for name in ("ann", "bob"):
        accounts.add(name)
    d = daemon_with("--backend", "cpu", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--accounts",
                    accounts.path)
    admin = administrator(d)
    ann, bob = (with_v(accounts.client(d, name)) for name in ("ann", "bob"))
    for _ in range(3):
        bob.expect(200, bob.post("/v1/evaluate", {"expr": f"v + {LONG}", "out": "v"}))
    bob.create(name="u", shape=[1000], dtype="float64", fill=1)
    bob.expect(202, bob.post("/v1/programs", {"body": [f"u = u + {LONG.replace('(v', '(u')}"], "steps": 5}))
    until(lambda: bob.get("/v1/jobs").json()["jobs"][0]["state"] == "running")
    kept = accounts.path.read_text()
    accounts.path.write_text(kept[:kept.index("[bob]")])
    accounts.reload(d)
    settles(admin, WORK, 0)
    assert ann.expect(200, ann.post("/v1/evaluate", {"expr": "sum(v)"})).json()["value"] == 1000
    ann.close()
    bob.close()


def test_what_is_still_to_be_had_is_done(d, admin):
    """By whoever asks later: an out, a name, an array that is read by what is wanted."""
    c = with_v(d.client())
    work = "sum(broadcast_to(v,[30000,1000]))"
    for body in ({"expr": f"v*0 + {work}", "out": "v"}, {"expr": f"v + {work}", "name": "x"}):
        s = held(d, body)
        until(lambda: s.recv(1))
        s.close()
    c.expect(201, c.post("/v1/evaluate", {"expr": "x * 2", "name": "y"}))
    c.expect(204, c.delete("/v1/arrays/x"))
    s = held(d, {"expr": LONG})
    s.close()
    assert np.all(c.download("y") == 2 * (3e7 + 3e7 * 3e7)) and np.all(c.download("v") == 3e7)
    settles(admin, WORK, 0)
    c.close()


def test_what_is_wanted_beside_what_is_not(d, admin):
    """Sessions that come and go do not disturb one that stays."""
    c = with_v(d.client())
    for i in range(10):
        left = [held(d, {"expr": LONG}) for _ in range(3)]
        stays = held(d, {"expr": "sum(sin(broadcast_to(v,[20000,1000])))"}, b"Arrayd-Session: " + session(c, i))
        for s in left:
            s.close()
        assert abs(json.loads(read_reply(stays).body)["value"] - 2e7 * np.sin(1)) < 1
        stays.close()
    settles(admin, WORK, 0)
    c.close()


def test_a_program_that_writes_no_array(d, admin):
    c = d.client()
    program = {"body": ["v = 1"], "steps": 10**12, "record": {"v": "v"}, "record_every": 10**6}
    job = c.expect(202, c.post("/v1/programs", program)).json()["id"]
    step = lambda: c.expect(200, c.get(f"/v1/jobs/{job}")).json()["step"]
    for _ in range(20):
        before = step()
        until(lambda: step() > before)
    c.expect(200, c.delete(f"/v1/jobs/{job}"))
    c.close()


def session(c, i):
    s = c.expect(201, c.post("/v1/sessions", {"name": f"s{i}"})).json()["id"]
    c.expect(201, c.request("POST", "/v1/arrays", json.dumps({"name": "v", "shape": [1000], "dtype": "float64", "fill": 1}).encode(),
                            content_type="application/json", headers={"Arrayd-Session": s}))
    return s.encode()
