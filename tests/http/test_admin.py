"""The operator's hands: everybody's things listed and ended. The record of who did what: test_audit.py. ann is the operator, bob and eve are users."""
import http.client
import json
import os
import re
import signal
import threading

import numpy as np
import pytest

from conftest import until
from exported import Export

LISTS = {"sessions": "sessions", "jobs": "jobs", "arrays": "arrays", "principals": "principals", "audit": "entries"}
LONG = {"body": ["u += 1"], "steps": 10 ** 9}


@pytest.fixture
def house(daemon_with, accounts):
    """The daemon, and a client of each."""
    accounts.add("ann", role="operator")
    accounts.add("bob")
    accounts.add("eve")

    def start(*args):
        d = daemon_with("--accounts", accounts.path, *args)
        clients = [accounts.client(d, name) for name in ("ann", "bob", "eve")]
        started.extend(clients)
        return [d, *clients]

    started = []
    yield start
    for c in started:
        c.close()


def everybodys(c, what):
    return c.list_all(f"/v1/admin/{what}", LISTS[what])


def principal(c, name):
    return next(p for p in everybodys(c, "principals") if p["name"] == name)


def bytes_of(c, name):
    return principal(c, name)["quotas"]["device_memory"]["used"]


def actions(c, without=("login", "forbidden")):
    return [(x["who"], x["action"], x["target"], x["result"]) for x in everybodys(c, "audit") if x["action"] not in without]


def lines_of(path):
    text = path.read_text()
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def operators_routes(contract):
    return [(method, path) for method, path in sorted(contract.operations()) if path.startswith("/v1/admin/")]


def test_what_everybody_has(house):
    d, ann, bob, eve = house()
    inside = bob.clone(session=bob.post("/v1/sessions", {"name": "lab", "ttl_s": 600}).json()["id"])
    u = inside.upload(np.ones(1000), "u")
    bob.upload(np.ones(3), "v")
    eve.upload(np.ones(5, "f4"), "w")
    assert inside.post("/v1/arrays/u/shares", {"principal": "eve", "access": "read"}).status == 201
    lease = inside.post("/v1/arrays/u/lease", {"mode": "write", "ttl_s": 60}).json()
    job = bob.post("/v1/programs", {"body": ["v += 1"], "steps": 3, "record": {"s": "sum(v)"}}).json()["id"]
    bob.get(f"/v1/jobs/{job}?wait=1")

    sessions = everybodys(ann, "sessions")
    assert sorted((s["owner"], s["session"]["name"]) for s in sessions) == [
        ("ann", "default"), ("bob", "default"), ("bob", "lab"), ("eve", "default")]
    lab = next(s for s in sessions if s["session"]["name"] == "lab")
    assert lab["session"]["bytes_in_use"] >= 8000 and lab["last_used"] >= lab["session"]["created"]

    arrays = {(a["owner"], a["array"]["name"]): a for a in everybodys(ann, "arrays")}
    assert sorted(arrays) == [("bob", "u"), ("bob", "v"), ("eve", "w")]
    a = arrays["bob", "u"]
    assert a["array"]["id"] == u["id"] and a["array"]["nbytes"] == 8000 and a["array"]["location"] in ("device", "host")
    assert a["shares"] == [{"principal": "eve", "access": "read"}] and a["last_used"]
    assert a["leases"] == [{"principal": "bob", "mode": "write", "expires": lease["expires"], "export": False}]
    assert arrays["eve", "w"]["leases"] == arrays["eve", "w"]["shares"] == []

    jobs = everybodys(ann, "jobs")
    assert [(j["owner"], j["job"]["id"], j["job"]["state"], j["job"]["step"]) for j in jobs] == [("bob", job, "done", 3)]
    assert "records" not in jobs[0]["job"] and jobs[0]["job"]["device_s"] >= 0

    who = {p["name"]: p for p in everybodys(ann, "principals")}
    assert sorted(who) == ["ann", "bob", "eve"] and (who["ann"]["role"], who["eve"]["role"]) == ("operator", "user")
    p = who["bob"]
    assert (p["jobs"], p["jobs_running"], p["leases"], p["shares"], p["exports"]) == (1, 0, 1, 1, 0)
    assert p["quotas"]["arrays"]["used"] == 2 and p["quotas"]["sessions"]["used"] == 1 and p["last_used"] and p["bytes_in"] > 8000
    assert lease["token"] not in json.dumps([everybodys(ann, what) for what in LISTS])


def test_pages_across_principals(house):
    d, ann, bob, eve = house()
    wanted = []
    for c, name in ((bob, "bob"), (ann, "ann"), (eve, "eve")):
        for i in range(5):
            wanted.append((name, c.upload(np.ones(1), f"x{i}")["id"]))
    for limit in (1, 2, 3, 5, 7, 15, 1000):
        found, after, pages = [], "", 0
        while after is not None:
            page = ann.get(f"/v1/admin/arrays?limit={limit}" + (f"&after={after}" if after else "")).json()
            assert len(page["arrays"]) <= limit
            found += [(a["owner"], a["array"]["id"]) for a in page["arrays"]]
            after, pages = page.get("next"), pages + 1
        assert sorted(found) == sorted(wanted) and len(set(found)) == 15 and pages == -(-15 // limit)
        assert [x for x in found if x[0] == "bob"] == wanted[:5]
        names = [p["name"] for p in ann.get(f"/v1/admin/principals?limit={limit}").json()["principals"]]
        assert len(names) == min(limit, 3)
    first = ann.get("/v1/admin/sessions?limit=1").json()
    assert "next" in first and "next" not in ann.get("/v1/admin/sessions?limit=3").json()
    for bad in ("limit=0", "limit=1001", "after=x", "owner=bob"):
        assert ann.get(f"/v1/admin/arrays?{bad}").status in (400, 422)


def test_users_see_nothing(house, contract, tmp_path):
    """Every route, as a user, with ids that are, one's own among them, and ids that are not: one reply, and nothing happens."""
    d, ann, bob, eve = house("--audit-log", tmp_path / "audit")
    mine, theirs = bob.upload(np.ones(5), "mine")["id"], eve.upload(np.ones(5), "theirs")["id"]
    session = eve.post("/v1/sessions", {}).json()["id"]
    job = eve.post("/v1/programs", {"bind": {"u": theirs}, **LONG}).json()["id"]
    bobs = bob.post("/v1/programs", {"bind": {"u": mine}, "body": ["u += 1"], "steps": 1}).json()["id"]
    asked = set()
    for method, path in operators_routes(contract):
        replies = set()
        for which in (mine, theirs, session, job, bobs, "a-" + "0" * 22, "bob", "eve", "nobody", "..", "default", '"},{'):
            target = re.sub(r"\{\w+\}", which, path)
            body = {"weight": 1000} if method == "PATCH" else None
            replies.add(bob.fails(403, "forbidden", bob.request(method, target, json_body=body))["detail"])
            bob.fails(403, "forbidden", bob.request(method, target + "?limit=7&owner=eve", json_body=body))
        assert replies == {"only operators may do this, and 'bob' is not one"}
        asked.add(path)
    assert len(asked) >= 9
    assert [a["name"] for a in bob.get("/v1/arrays").json()["arrays"]] == ["mine"]
    assert eve.get(f"/v1/jobs/{job}").json()["state"] in ("queued", "running") and eve.get(f"/v1/sessions/{session}").status == 200
    eve.delete(f"/v1/jobs/{job}")
    d.stop()
    refused = [x for x in lines_of(tmp_path / "audit") if x["action"] == "forbidden"]
    assert {x["who"] for x in refused} == {"bob"} and sum(x["count"] for x in refused) > 100 and len(refused) <= 3


def test_nobody_without_a_token(daemon_with, accounts, contract):
    """Nor on the listener that asks for none."""
    accounts.add("ann", role="operator")
    d = daemon_with("--accounts", accounts.path, "--admin-listen", "127.0.0.1:0")
    for port, status in ((d.port, 401), (d.admin_port, 404)):
        c = http.client.HTTPConnection(d.host, port, timeout=30)
        for method, path in operators_routes(contract):
            for bearer in (None, f"Bearer {accounts.token['ann']}"):
                if status == 401 and bearer:
                    continue
                c.request(method, re.sub(r"\{\w+\}", "ann", path), headers={"Authorization": bearer} if bearer else {})
                r = c.getresponse()
                body = r.read()
                assert r.status == status and b"ann" not in body, (method, path, body)
        c.close()


def test_without_accounts_everybody_is_the_operator(api):
    a = api.upload(np.ones(3), "u")["id"]
    assert [p["name"] for p in everybodys(api, "principals")] == ["local"]
    assert [x["array"]["id"] for x in everybodys(api, "arrays")] == [a]
    api.fails(409, "conflict", api.delete("/v1/admin/principals/local"))
    assert api.delete(f"/v1/admin/arrays/{a}").status == 204
    api.fails(404, "not_found", api.delete(f"/v1/admin/arrays/{a}"))


# --- ends ---

def test_an_array_is_freed(house):
    """Read-only, leased, shared and in use."""
    d, ann, bob, eve = house()
    before = bytes_of(ann, "bob")
    a = bob.upload(np.ones(100000), "u")["id"]
    bob.post("/v1/arrays/u/shares", {"principal": "eve", "access": "write"})
    token = bob.post("/v1/arrays/u/lease", {"mode": "write"}).json()["token"]
    bob.patch("/v1/arrays/u", {"read_only": True})
    assert bob.delete("/v1/arrays/u").status in (409, 423)
    ann.fails(404, "not_found", ann.delete("/v1/admin/arrays/u"))  # a name is not enough
    assert ann.delete(f"/v1/admin/arrays/{a}").status == 204
    for c in (bob, eve):
        c.fails(404, "not_found", c.get(f"/v1/arrays/{a}"))
    until(lambda: bytes_of(ann, "bob") == before)
    p = principal(ann, "bob")
    assert (p["leases"], p["shares"], p["quotas"]["arrays"]["used"]) == (0, 0, 0)
    bob.upload(np.ones(3), "u")  # the name is free
    assert actions(ann) == [("ann", "delete_array", "u", "not_found"), ("ann", "delete_array", f"bob/{a}", "ok")]
    assert token not in json.dumps(everybodys(ann, "audit"))


def test_a_view_keeps_its_memory(house):
    d, ann, bob, eve = house()
    a = bob.upload(np.arange(10.0), "u")["id"]
    bob.post("/v1/arrays/u/views", {"index": "2:4", "name": "v"})
    lease = bob.post("/v1/arrays/v/lease", {"mode": "write"}).json()
    assert ann.delete(f"/v1/admin/arrays/{a}").status == 204
    np.testing.assert_array_equal(bob.download("v"), [2, 3])
    assert bob.get("/v1/arrays/v").json().get("view_of") is None
    assert bob.post("/v1/evaluate", {"expr": "v + 1", "out": "v"}, headers={"Arrayd-Lease": lease["token"]}).status == 200


def test_a_session_ends(house):
    d, ann, bob, eve = house()
    before = bytes_of(ann, "bob")
    s = bob.post("/v1/sessions", {"name": "lab"}).json()["id"]
    inside = bob.clone(session=s)
    inside.upload(np.ones(100000), "u")
    job = inside.post("/v1/programs", {"bind": {"u": "u"}, **LONG}).json()["id"]
    inside.upload(np.ones(10), "v")
    inside.post("/v1/arrays/v/lease", {"mode": "read"})
    ann.fails(404, "not_found", ann.delete("/v1/admin/sessions/default"))
    assert ann.delete(f"/v1/admin/sessions/{s}").status == 204
    inside.fails(404, "not_found", inside.get("/v1/arrays/u"))
    bob.fails(404, "not_found", bob.get(f"/v1/jobs/{job}"))
    until(lambda: bytes_of(ann, "bob") == before and principal(ann, "bob")["jobs"] == 0)
    default = next(x["session"] for x in everybodys(ann, "sessions") if x["owner"] == "bob")
    bob.upload(np.ones(3), "v")
    assert default["default"] and ann.delete(f"/v1/admin/sessions/{default['id']}").status == 204
    assert bob.get("/v1/arrays").json()["arrays"] == []  # a new, empty one
    assert actions(ann)[-2:] == [("ann", "delete_session", f"bob/{s}", "ok"), ("ann", "delete_session", f"bob/{default['id']}", "ok")]
    inside.close()


def test_a_job_is_cancelled(house):
    d, ann, bob, eve = house()
    bob.upload(np.ones(10), "u")
    job = bob.post("/v1/programs", {"bind": {"u": "u"}, **LONG}).json()["id"]
    until(lambda: bob.get(f"/v1/jobs/{job}").json()["step"] > 0)
    assert principal(ann, "bob")["jobs_running"] == 1
    eve.fails(404, "not_found", eve.delete(f"/v1/jobs/{job}"))
    r = ann.delete(f"/v1/admin/jobs/{job}")
    assert r.status == 200 and r.json()["state"] == "cancelled" and bob.get(f"/v1/jobs/{job}").json()["state"] == "cancelled"
    assert bob.post(f"/v1/jobs/{job}/resume").status == 202 and ann.delete(f"/v1/admin/jobs/{job}").status == 200
    assert ann.delete(f"/v1/admin/jobs/{job}").status == 204
    ann.fails(404, "not_found", ann.delete(f"/v1/admin/jobs/{job}"))
    bob.fails(404, "not_found", bob.get(f"/v1/jobs/{job}"))
    assert [x[1:] for x in actions(ann)] == [("cancel_job", f"bob/{job}", "ok")] * 2 + [
        ("delete_job", f"bob/{job}", "ok"), ("delete_job", job, "not_found")]


def test_a_principal_ends(house, accounts):
    d, ann, bob, eve = house()
    baseline = ann.info()["bytes_in_use"]
    u = bob.upload(np.ones(100000), "u")["id"]
    w = eve.upload(np.ones(1000), "w")["id"]
    bob.post("/v1/sessions", {"name": "lab"})
    bob.put("/v1/functions/f", {"expr": "x + 1", "params": ["x"]})
    bob.post("/v1/arrays/u/shares", {"principal": "eve", "access": "write"})
    eve.post("/v1/arrays/w/shares", {"principal": "bob", "access": "write"})
    assert bob.post(f"/v1/arrays/{w}/lease", {"mode": "write"}).status == 201
    bob.post("/v1/programs", {"bind": {"u": "u"}, **LONG})
    theirs = eve.post("/v1/programs", {"bind": {"u": u}, "body": ["u += 1"], "steps": 10 ** 9}).json()["id"]
    ann.fails(409, "conflict", ann.delete("/v1/admin/principals/ann"))
    ann.fails(404, "not_found", ann.delete("/v1/admin/principals/nobody"))
    assert ann.delete("/v1/admin/principals/bob").status == 204
    bob.fails(401, "unauthorized", bob.get("/v1/info"))
    ann.fails(404, "not_found", ann.delete("/v1/admin/principals/bob"))
    eve.fails(404, "not_found", eve.get(f"/v1/arrays/{u}"))
    assert eve.get(f"/v1/jobs/{theirs}?wait=1").json()["state"] == "failed"
    assert eve.post("/v1/evaluate", {"expr": "w + 1", "out": "w"}).status == 200  # bob's lease is over
    assert eve.get("/v1/arrays/w/shares").json()["shares"] == []
    eve.delete("/v1/arrays/w")
    until(lambda: ann.info()["bytes_in_use"] == baseline)
    assert [p["name"] for p in everybodys(ann, "principals") if p["name"] == "bob"] == []
    assert all(x["owner"] != "bob" for what in ("sessions", "jobs", "arrays") for x in everybodys(ann, what))
    accounts.reload(d)  # the file still has the account: somebody new
    again = accounts.client(d, "bob")
    assert again.get("/v1/arrays").json()["arrays"] == [] and again.get("/v1/functions").json()["functions"] == []
    assert again.get("/v1/jobs").json()["jobs"] == [] and len(again.get("/v1/sessions").json()["sessions"]) == 1
    again.close()
    assert actions(ann) == [("ann", "delete_principal", "ann", "conflict"), ("ann", "delete_principal", "nobody", "not_found"),
                            ("ann", "delete_principal", "bob", "ok"), ("ann", "delete_principal", "bob", "not_found"),
                            (None, "reload_accounts", str(accounts.path), "ok")]


def test_exports_end(house, tmp_path):
    """Of an array, and of a principal: the socket is closed, and the memory is free."""
    path = tmp_path / "s"
    d, ann, bob, eve = house("--listen", f"unix:{path}", "--allow-export")
    for end in ("array", "principal"):
        a = bob.upload(np.ones(1 << 19), "u")["id"]
        mapped = Export(bob, "u")
        assert principal(ann, "bob")["exports"] == 1
        leases = next(x for x in everybodys(ann, "arrays") if x["array"]["id"] == a)["leases"]
        assert [(x["principal"], x["export"], x["expires"]) for x in leases] == [("bob", True, None)]
        assert ann.delete(f"/v1/admin/{'arrays/' + a if end == 'array' else 'principals/bob'}").status == 204
        until(lambda: ann.info()["bytes_in_use"] == 0)
        mapped.drop()
        assert end == "principal" or principal(ann, "bob")["exports"] == 0


@pytest.mark.in_turn
def test_ends_while_everything_runs(house, accounts):
    """Users work and are ended again and again; nothing of them is left."""
    d, ann, bob, eve = house()
    ending, failures = threading.Event(), []

    def work(name):
        c = accounts.client(d, name)
        try:
            while not ending.is_set():
                for r in (c.post("/v1/arrays", {"shape": [1000], "name": "u"}), c.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}),
                          c.post("/v1/programs", {"body": ["u += 1"], "steps": 1000}), c.post("/v1/sessions", {}),
                          c.post("/v1/arrays/u/shares", {"principal": "ann", "access": "read"}), c.get("/v1/arrays")):
                    if r.status >= 500:
                        failures.append(r)
        finally:
            c.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("bob", "eve") for _ in range(2)]
    for t in threads:
        t.start()
    ended = 0
    for i in range(25):
        for what in ("arrays", "sessions", "jobs"):
            for x in ann.get(f"/v1/admin/{what}?limit=20").json()[what]:
                r = ann.delete(f"/v1/admin/{what}/{x[what[:-1]]['id']}")
                assert r.status in (200, 204, 404)
                ended += r.status != 404
        if i % 5 == 4:
            assert ann.delete(f"/v1/admin/principals/{('bob', 'eve')[i // 5 % 2]}").status == 204
            accounts.reload(d)
    ending.set()
    for t in threads:
        t.join()
    assert not failures and ended > 10
    for name in ("bob", "eve"):
        ann.delete(f"/v1/admin/principals/{name}")
    until(lambda: ann.info()["bytes_in_use"] == 0 and not everybodys(ann, "jobs"))
    assert [p["name"] for p in everybodys(ann, "principals")] == ["ann"]


# --- settings ---

def settings_of(c, name):
    p = principal(c, name)
    return p["weight"], p["quotas"]["arrays"]["limit"], p["accounts"]["weight"], p["accounts"]["arrays"], p["changed"]


def test_settings_are_changed(house, accounts):
    d, ann, bob, eve = house()
    r = ann.patch("/v1/admin/principals/bob", {"weight": 7, "quotas": {"arrays": 2, "device_memory": 100000}})
    assert r.status == 200 and r.json()["changed"] == {"weight": 7, "device_memory": 100000, "arrays": 2}
    assert settings_of(ann, "bob") == (7, 2, 1, None, {"weight": 7, "device_memory": 100000, "arrays": 2})
    assert bob.info()["principal"]["weight"] == 7
    bob.upload(np.ones(3), "u")
    bob.upload(np.ones(3), "v")
    bob.fails(429, "quota_exceeded", bob.post("/v1/arrays", {"shape": [3]}))
    bob.delete("/v1/arrays/v")
    bob.fails(429, "quota_exceeded", bob.post("/v1/arrays", {"shape": [1000000]}))
    ann.patch("/v1/admin/principals/bob", {"weight": None, "quotas": {"device_memory": None}})
    assert settings_of(ann, "bob") == (1, 2, 1, None, {"arrays": 2})
    assert bob.post("/v1/arrays", {"shape": [1000000]}).status == 201
    assert ann.patch("/v1/admin/principals/bob", {"quotas": {"arrays": None}}).json()["changed"] == {}
    assert [x[1:3] for x in actions(ann)][0] == ("set_principal", "bob weight=7 device_memory=100000 arrays=2")
    assert [x[1:3] for x in actions(ann)][1] == ("set_principal", "bob weight=accounts device_memory=accounts")


def test_the_file_counts_again_once_its_line_changes(house, accounts):
    d, ann, bob, eve = house()
    text = accounts.path.read_text()
    ann.patch("/v1/admin/principals/bob", {"weight": 7, "quotas": {"arrays": 20}})
    accounts.reload(d)  # it says what it said
    assert settings_of(ann, "bob") == (7, 20, 1, None, {"weight": 7, "arrays": 20})
    accounts.write(text.replace("[bob]\n", "[bob]\narrays = 5\n"))
    accounts.reload(d)
    assert settings_of(ann, "bob") == (7, 5, 1, 5, {"weight": 7})
    assert ann.patch("/v1/admin/principals/bob", {"quotas": {"arrays": 0}}).json()["changed"] == {"weight": 7, "arrays": None}
    assert settings_of(ann, "bob")[1] == 100000  # no quota of its own, but the daemon's limit
    accounts.write(text)
    accounts.reload(d)
    assert settings_of(ann, "bob") == (7, 100000, 1, None, {"weight": 7})
    assert accounts.path.read_text() == text
    ann.delete("/v1/admin/principals/bob")
    accounts.reload(d)
    assert settings_of(ann, "bob") == (1, 100000, 1, None, {})  # somebody new


def test_what_no_setting_can_be(house):
    d, ann, bob, eve = house()
    for body, code, pointer in (({"weight": 0}, "bad_field", "/weight"), ({"weight": 1001}, "bad_field", "/weight"),
                                ({"weight": 1.5}, "bad_field", "/weight"), ({"role": "operator"}, "unknown_field", "/role"),
                                ({"quotas": {"arrays": -1}}, "bad_field", "/quotas/arrays"), ({"quotas": 3}, None, "/quotas"),
                                ({"quotas": {"arrays": 10 ** 10}}, "bad_field", "/quotas/arrays"),
                                ({"quotas": {"names": 1}}, "unknown_field", "/quotas/names")):
        r = ann.patch("/v1/admin/principals/bob", body)
        assert r.status == 422 and r.json()["pointer"] == pointer and code in (None, r.code), (body, r)
    ann.fails(404, "not_found", ann.patch("/v1/admin/principals/nobody", {"weight": 1}))
    assert settings_of(ann, "bob") == (1, 100000, 1, None, {})


@pytest.mark.parametrize("kept", ["journal", "state"])
def test_settings_outlive_the_daemon(daemon_with, accounts, tmp_path, kept):
    for name, role in (("ann", "operator"), ("bob", "user"), ("eve", "user")):
        accounts.add(name, role=role)
    options = ["--accounts", accounts.path, *(["--state-dir", tmp_path / "state", "--no-keeper"] if kept == "state" else [])]
    d = daemon_with(*options)
    ann, bob = (accounts.client(d, name) for name in ("ann", "bob"))
    bob.upload(np.ones(100000), "u")
    for name in ("bob", "eve"):  # eve has not used the daemon
        assert ann.patch(f"/v1/admin/principals/{name}", {"weight": 7, "quotas": {"arrays": 1, "device_memory": 1000}}).status == 200
    ann.patch("/v1/admin/principals/ann", {"weight": 3})
    ann.patch("/v1/admin/principals/ann", {"weight": None})
    if kept == "journal":
        before = d.pid
        os.kill(before, signal.SIGKILL)
        until(lambda: d.log().count(" ready ") == 2)
        d.parse_ready([line for line in d.log().splitlines() if " ready " in line][-1].split(" ready ", 1)[1])
    else:
        d.stop()
        accounts.write(accounts.path.read_text().replace("[eve]\n", "[eve]\nweight = 2\n"))
        d = daemon_with(*options)
    for c in (ann, bob):
        c.close()
    ann, bob = (accounts.client(d, name) for name in ("ann", "bob"))
    changed = {"weight": 7, "arrays": 1, "device_memory": 1000}
    assert settings_of(ann, "bob") == (7, 1, 1, None, changed) and settings_of(ann, "ann")[4] == {}
    assert settings_of(ann, "eve")[4] == (changed if kept == "journal" else {"arrays": 1, "device_memory": 1000})
    np.testing.assert_array_equal(bob.download("u"), np.ones(100000))  # what exists is kept
    bob.fails(429, "quota_exceeded", bob.post("/v1/arrays", {"shape": [3]}))
    for c in (ann, bob):
        c.close()


# --- the Python client ---

def test_python(house, accounts):
    from test_client_python import arrayd
    d, ann, bob, eve = house()
    xp, theirs = (arrayd.connect(f"http://{d.host}:{d.port}", token=accounts.token[name]) for name in ("ann", "bob"))
    theirs.save("u", np.ones(5))
    job = theirs.program(["u += 1"], steps=10 ** 9, u="u")
    a, = xp.admin("arrays")
    assert (a["owner"], a["array"]["name"]) == ("bob", "u") and {p["name"] for p in xp.admin("principals")} == {"ann", "bob", "eve"}
    xp.admin_end("job", job.id)
    assert bob.get(f"/v1/jobs/{job.id}").json()["state"] == "cancelled"
    xp.admin_end("array", a["array"]["id"])
    session = next(s for s in xp.admin("sessions") if s["owner"] == "bob")["session"]["id"]
    xp.admin_end("session", session)
    assert xp.admin_set("bob", weight=5, quotas={"arrays": 9})["changed"] == {"weight": 5, "arrays": 9}
    assert xp.admin_set("bob", reset=["weight"])["changed"] == {"arrays": 9}
    with pytest.raises(ValueError, match="nothing to change"):
        xp.admin_set("bob", weight=None)
    xp.admin_end("principal", "eve")
    assert [x["action"] for x in xp.admin("audit")] == ["cancel_job", "delete_array", "delete_session", "set_principal", "set_principal",
                                                    "delete_principal"]
    for wrong in ((xp.admin, "names"), (xp.admin_end, "function", "f"), (xp.admin_end, "array", "")):
        with pytest.raises(ValueError):
            wrong[0](*wrong[1:])
    with pytest.raises(arrayd.ArraydError, match="only operators"):
        theirs.admin("audit")
    for client in (xp, theirs):
        client.close()


def test_what_is_known_is_not_sent_again(daemon_with):
    """A page of everybody's arrays has a tag; of the metrics one may ask for some."""
    d = daemon_with()
    c = d.client()
    c.create(name="u", shape=[3])
    first = c.expect(200, c.get("/v1/admin/arrays"))
    tag = first.headers["ETag"]
    again = c.get("/v1/admin/arrays", headers={"If-None-Match": f'"other", {tag}'})
    assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
    other = c.expect(200, c.get("/v1/admin/arrays?limit=1000", headers={"If-None-Match": '"other"'}))
    assert other.json() == first.json()
    c.create(name="v", shape=[3])
    assert c.expect(200, c.get("/v1/admin/arrays", headers={"If-None-Match": tag})).headers["ETag"] != tag

    names = "arrayd_arrays,nothing,arrayd_sessions,arrayd_http_request_seconds"
    lines = c.expect(200, c.get(f"/metrics?names={names}")).body.decode().splitlines()
    told = {f"# {kind} {name}" for kind in ("HELP", "TYPE") for name in names.split(",") if name != "nothing"}
    samples = {"arrayd_arrays", "arrayd_sessions", *(f"arrayd_http_request_seconds_{part}" for part in ("bucket", "sum", "count"))}
    assert {" ".join(line.split()[:3]) if line[0] == "#" else line.split("{")[0].split(" ")[0] for line in lines} == told | samples
    assert "arrayd_arrays 2" in lines
    every = c.get("/metrics").body.decode().splitlines()
    families = [line.split()[2] for line in every if line.startswith("# TYPE ")]
    for name in families:
        some = c.get(f"/metrics?names={name}").body.decode().splitlines()
        assert some[0].startswith(f"# HELP {name} ") and some[1].startswith(f"# TYPE {name} ") and all(line.startswith(name) for line in some[2:])
    assert c.get("/metrics?names=").body == b"" and c.get("/metrics?names=arrayd_array,arrayd_http_request_seconds_bucket").body == b""
    c.fails(400, "bad_query", c.get("/metrics?name=x"))
    c.close()
