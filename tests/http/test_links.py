"""Read-only links: what one who opens it sees, that it is good for nothing else, and when it ends."""
import re
import socket
import time

import numpy as np
import pytest

from client import JSON
from conftest import until
from test_login import SAME, browser, log_in, watched

URL = re.compile(r"/#link=([A-Za-z0-9_-]{43})")


@pytest.fixture
def house(daemon_with, accounts):
    accounts.add("ann", role="operator")
    accounts.add("bob")
    return daemon_with("--accounts", accounts.path, "--log-json", "--log-requests")


@pytest.fixture
def ann(house, accounts):
    c = accounts.client(house, "ann")
    yield c
    c.close()


@pytest.fixture
def bob(house, accounts):
    c = accounts.client(house, "bob")
    yield c
    c.close()


@pytest.fixture
def opened(house):
    """Opens a link as a browser does: its key becomes a cookie."""
    clients = []

    def open_it(link):
        c = house.client()
        clients.append(c)
        c.always = {"Cookie": log_in(c, URL.fullmatch(link["url"])[1], "link"), **SAME}
        return c

    yield open_it
    for c in clients:
        c.close()


def make(c, **fields):
    return c.expect(201, c.post("/v1/links", {"expires_s": 60, **fields})).json()


def test_some_arrays(ann, bob, opened):
    u, v = (ann.upload(np.arange(12.).reshape(3, 4), name)["id"] for name in "uv")
    others = bob.upload(np.ones(3), "u")["id"]
    link = make(ann, arrays=["u"])
    assert link["arrays"] == [u] and link["jobs"] == [] and link["id"][:2] == "v-"
    c = opened(link)
    who = c.expect(200, c.get("/v1/login")).json()
    assert (who["principal"], who["role"], who["arrays"], who["jobs"]) == ("ann", "viewer", [u], []) and who["expires"] == link["expires"]
    assert c.get(f"/v1/arrays/{u}").json()["name"] == "u"
    np.testing.assert_array_equal(c.download(u), np.arange(12.).reshape(3, 4))
    assert c.get(f"/v1/arrays/{u}/data?index=1,2", accept=JSON).json() == 6.0
    assert c.get(f"/v1/arrays/{u}/data", accept="image/png").body[:4] == b"\x89PNG"
    assert c.get(f"/v1/arrays/{u}/summary").json()["max"] == 11
    assert c.request("HEAD", f"/v1/arrays/{u}").status == 200
    replies = []
    for ref in (v, others, "a-" + "0" * 22, "u", "v", u + "x"):
        for path in (f"/v1/arrays/{ref}", f"/v1/arrays/{ref}/data", f"/v1/arrays/{ref}/summary"):
            r = c.get(path)
            c.fails(404, "not_found", r)
            replies.append(r.body.replace(f"'{ref}'".encode(), b"'ID'"))
    assert len(set(replies)) == 1  # what is there, and what is not, looks the same
    c.fails(404, "not_found", c.get(f"/v1/jobs/{u}"))
    for path in ("/v1/arrays", "/v1/info", "/v1/jobs", "/v1/sessions", "/v1/functions"):
        c.fails(403, "forbidden", c.get(path))


def test_some_jobs(ann, opened):
    ann.upload(np.ones(3), "u")
    jobs = [ann.post("/v1/programs?wait=1", {"bind": {"u": "u"}, "body": ["u += 1"], "steps": 3, "record": {"s": "sum(u)"}}).json()["id"]
            for _ in range(2)]
    c = opened(make(ann, jobs=jobs[:1]))
    assert c.get("/v1/login").json()["jobs"] == jobs[:1]
    assert c.get(f"/v1/jobs/{jobs[0]}").json()["state"] == "done"
    assert b'"done"' in c.get(f"/v1/jobs/{jobs[0]}/events").body
    c.fails(404, "not_found", c.get(f"/v1/jobs/{jobs[1]}"))
    c.fails(404, "not_found", c.get(f"/v1/jobs/{jobs[1]}/events"))
    for method, path in (("DELETE", f"/v1/jobs/{jobs[0]}"), ("POST", f"/v1/jobs/{jobs[0]}/resume")):
        c.fails(403, "forbidden", c.request(method, path))


def test_everything_that_the_owner_sees(ann, bob, opened):
    u = ann.upload(np.ones(3), "u")["id"]
    mine = bob.upload(np.ones(3), "mine")["id"]
    bob.expect(201, bob.post(f"/v1/arrays/{mine}/shares", {"principal": "ann", "access": "read"}))
    ann.expect(200, ann.get(f"/v1/arrays/{mine}"))
    c = opened(make(ann))
    assert c.get("/v1/login").json()["arrays"] is None and c.get("/v1/login").json()["role"] == "viewer"
    assert [a["id"] for a in c.get("/v1/arrays").json()["arrays"]] == [u]
    for ref in (u, "u"):
        c.expect(200, c.get(f"/v1/arrays/{ref}"))
        c.expect(200, c.get(f"/v1/arrays/{ref}/data"))
        c.expect(200, c.get(f"/v1/arrays/{ref}/summary"))
    for path in ("/v1/info", "/v1/jobs", "/v1/sessions", "/v1/sessions/default", "/v1/functions"):
        assert c.get(path).status == 200, path
    for path in ("", "/data", "/summary"):  # bob has shared it with ann, not with her guests
        c.fails(404, "not_found", c.get(f"/v1/arrays/{mine}{path}"))


def requests_of(contract, ids):
    """One request for each route, with what makes it succeed where it is allowed."""
    bodies = {"/v1/arrays": {"shape": [1]}, "/v1/arrays/{ref}": {"name": "w"}, "/v1/arrays/{ref}/resize": {"shape": [5]},
              "/v1/arrays/{ref}/swap": {"with": "v"}, "/v1/arrays/{ref}/shares": {"principal": "bob", "access": "read"},
              "/v1/arrays/{ref}/lease": {"mode": "read"}, "/v1/arrays/{ref}/export": {"mode": "read"}, "/v1/evaluate": {"expr": "1+1"},
              "/v1/explain": {"expr": "1+1"}, "/v1/layouts": {"shapes": [[1]], "ghosts": [[1]]}, "/v1/links": {"expires_s": 9},
              "/v1/programs": {"bind": {"u": "u"}, "body": ["u += 1"], "steps": 1}, "/v1/functions": {"name": "g", "params": ["x"], "expr": "x"},
              "/v1/functions/{name}": {"params": ["x"], "expr": "x"}, "/v1/admin/principals/{principal}": {"weight": 5}}
    for method, path in sorted(contract.operations()):
        target = path
        for name, value in ids.items():
            target = target.replace("{%s}" % name, value)
        if "{id}" in target:
            target = target.replace("{id}", ids["job" if "jobs" in path else "session" if "sessions" in path else "link" if "links" in path
                                                else "ref"])
        body = bodies.get(path, {}) if method in ("POST", "PUT", "PATCH") else None
        yield method, path, target, body


OPEN = {"/", "/page/{file}", "/healthz", "/readyz", "/openapi.json"}
LOGINS = {("GET", "/v1/login"), ("POST", "/v1/login"), ("POST", "/v1/logout")}
ONE = {("GET", p) for p in ("/v1/arrays/{ref}", "/v1/arrays/{ref}/data", "/v1/arrays/{ref}/summary", "/v1/arrays/{ref}/events", "/v1/jobs/{id}", "/v1/jobs/{id}/events")}
WHOLE = ONE | {("GET", p) for p in ("/v1/info", "/v1/arrays", "/v1/jobs", "/v1/events", "/v1/sessions", "/v1/sessions/{id}", "/v1/functions", "/v1/functions/{name}")}


@pytest.mark.parametrize("whole", [False, True])
def test_a_link_can_do_nothing_else(ann, opened, contract, whole):
    """Each route of the contract with an operator's link: those that only look answer, all others refuse, and nothing has changed."""
    ids = {"ref": ann.upload(np.ones(3), "u")["id"], "file": "page.js", "name": "f", "principal": "bob", "which": "x"}
    ann.upload(np.ones(3), "v")
    ann.expect(201, ann.post("/v1/functions", {"name": "f", "params": ["x"], "expr": "x + 1"}))
    ids["job"] = ann.post("/v1/programs?wait=1", {"bind": {"u": "v"}, "body": ["u += 1"], "steps": 1}).json()["id"]
    ids["session"] = ann.post("/v1/sessions", {}).json()["id"]
    link = make(ann) if whole else make(ann, arrays=["u"], jobs=[ids["job"]])
    ids["link"] = link["id"]

    def state():
        return [ann.get(path).json() for path in ("/v1/arrays", "/v1/sessions", "/v1/functions", "/v1/links", "/v1/admin/principals")]

    before, asked = state(), 0
    for method, path, target, body in requests_of(contract, ids):
        if path in OPEN or (method, path) in LOGINS:
            continue
        c = opened(link)
        r = c.request(method, target, json_body=body)
        if (method, path) in (WHOLE if whole else ONE):
            assert r.status == 200, (method, path, r)
        else:
            c.fails(403, "forbidden", r)
        asked += 1
    assert asked > 50
    after = state()
    for a, b in zip(before, after):
        for row in (*a.get("sessions", ()), *a.get("principals", ()), *b.get("sessions", ()), *b.get("principals", ())):
            for name in ("device_s", "requests_total", "used", "last_request", "quotas"):
                row.pop(name, None)
    assert before[:4] == after[:4] and [p["name"] for p in after[4]["principals"]] == [p["name"] for p in before[4]["principals"]]


@pytest.mark.in_turn
def test_a_visitor_keeps_no_session_alive(ann, opened):
    def session():
        return ann.expect(201, ann.post("/v1/sessions", {"ttl_s": 1.5})).json()["id"]

    c, lost = opened(make(ann)), session()
    own, mine = ann.clone(session=session()), c.clone(session=lost)
    for _ in range(5):
        own.expect(200, own.get("/v1/arrays"))
        mine.get("/v1/arrays")
        time.sleep(0.5)
    own.expect(200, own.get("/v1/arrays"))
    mine.fails(404, "not_found", mine.get("/v1/arrays"))
    own.close()
    mine.close()


def test_opening_one_ends_the_login_that_it_replaces(house, accounts, ann, bob):
    """Of the browser that opens it, whose cookie is another one then; nothing else ends."""
    login, other = (browser(house, log_in(house.client(), accounts.token["ann"])) for _ in range(2))
    first, second = (URL.fullmatch(make(bob)["url"])[1] for _ in range(2))
    login.fails(401, "unauthorized", login.post("/v1/login", {"link": "A" * 43}))
    login = browser(house, login.always["Cookie"])
    assert login.get("/v1/login").json()["principal"] == "ann"
    cookie = log_in(login, first, "link")
    login.fails(401, "unauthorized", login.get("/v1/arrays"))
    assert other.get("/v1/login").json()["principal"] == "ann"
    visitor = browser(house, cookie)
    log_in(visitor, second, "link")
    assert visitor.get("/v1/login").json()["principal"] == "bob"  # others may have opened that link, too
    for c in (login, other, visitor):
        c.close()


def test_other_sites_do_not_use_it(ann, opened):
    u = ann.upload(np.ones(3), "u")["id"]
    c = opened(make(ann, arrays=["u"]))
    c.fails(403, "forbidden", c.get(f"/v1/arrays/{u}", headers={"Sec-Fetch-Site": "cross-site"}))
    c.always.pop("Sec-Fetch-Site")
    c.expect(200, c.get(f"/v1/arrays/{u}"))


def test_its_key_is_nowhere(house, ann, opened):
    """Neither in what the daemon tells of links, nor in the log."""
    ann.upload(np.ones(3), "u")
    link = make(ann, arrays=["u"])
    c = opened(link)
    key = URL.fullmatch(link["url"])[1]
    listed = ann.get("/v1/links")
    assert key not in listed.body.decode() and listed.json()["links"] == [{k: v for k, v in link.items() if k != "url"}]
    assert key not in ann.get("/v1/admin/audit").body.decode() + ann.get("/v1/admin/principals").body.decode()
    ann.fails(401, "unauthorized", ann.clone(always={"Authorization": f"Bearer {key}"}).get("/v1/arrays"))
    c.get("/v1/login")
    until(lambda: house.log().count("/v1/login") >= 2)
    assert key not in house.log()


def test_each_sees_ones_own_links(ann, bob):
    link = make(ann)
    assert bob.get("/v1/links").json() == {"links": []}
    for i in (link["id"], "v-" + "0" * 22, "nothing"):
        bob.fails(404, "not_found", bob.delete(f"/v1/links/{i}"))
    assert len(ann.get("/v1/links").json()["links"]) == 1


# --- the end ---

def test_it_is_ended(ann, bob, opened):
    u = ann.upload(np.ones(3), "u")["id"]
    first, second = (make(ann, arrays=["u"]) for _ in range(2))
    a, b = opened(first), opened(second)
    ann.expect(204, ann.delete(f"/v1/links/{first['id']}"))
    ann.fails(404, "not_found", ann.delete(f"/v1/links/{first['id']}"))
    a.fails(401, "unauthorized", a.get(f"/v1/arrays/{u}"))
    assert a.get("/v1/login").json()["principal"] is None
    a.fails(401, "unauthorized", a.post("/v1/login", {"link": URL.fullmatch(first["url"])[1]}))
    b.expect(200, b.get(f"/v1/arrays/{u}"))
    assert [x["id"] for x in ann.get("/v1/links").json()["links"]] == [second["id"]]


def test_logging_out_forgets_it_here_only(ann, opened):
    u = ann.upload(np.ones(3), "u")["id"]
    link = make(ann, arrays=["u"])
    a, b = opened(link), opened(link)
    r = a.expect(204, a.post("/v1/logout"))
    assert "Max-Age=0" in r.headers["Set-Cookie"]
    b.expect(200, b.get(f"/v1/arrays/{u}"))


def test_it_ends_by_itself(ann, opened):
    u = ann.upload(np.ones(3), "u")["id"]
    c = opened(make(ann, arrays=["u"], expires_s=1.5))
    c.expect(200, c.get(f"/v1/arrays/{u}"))
    until(lambda: c.get(f"/v1/arrays/{u}").status == 401)
    assert ann.get("/v1/links").json()["links"] == []


def test_visitors_leave_the_owner_a_request_and_a_connection(house, accounts, opened):
    accounts.add("eve", requests=3, connections=6)
    accounts.reload(house)
    eve = accounts.client(house, "eve")
    eve.upload(np.zeros(4), "u")
    job = eve.expect(202, eve.post("/v1/programs", {"body": ["u += 1"], "steps": 10**9})).json()["id"]
    link = make(eve, jobs=[job])
    cookie = opened(link).always["Cookie"]
    streams = []
    try:
        for k in range(4):
            s = socket.create_connection((house.host, house.port), timeout=20)
            streams.append(s)
            s.sendall(f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
            assert s.recv(12) == (b"HTTP/1.1 200" if k < 2 else b"HTTP/1.1 429")
        eve.expect(204, eve.delete(f"/v1/links/{link['id']}"))
    finally:
        for s in streams:
            s.close()
    until(lambda: eve.delete(f"/v1/jobs/{job}").status == 204)
    eve.close()


def test_it_ends_with_the_account_not_with_a_token(house, accounts, ann, bob, opened):
    u = bob.upload(np.ones(3), "u")["id"]
    c = opened(make(bob, arrays=["u"]))
    accounts.command("remove", "bob")
    accounts.add("bob")
    accounts.reload(house)
    bob.fails(401, "unauthorized", bob.get("/v1/arrays"))
    c.expect(200, c.get(f"/v1/arrays/{u}"))
    text = accounts.path.read_text()
    accounts.write(text[:text.index("[bob]")])
    accounts.reload(house)
    c.fails(401, "unauthorized", c.get(f"/v1/arrays/{u}"))
    accounts.write(text)
    accounts.reload(house)
    c.fails(401, "unauthorized", c.get(f"/v1/arrays/{u}"))
    again = accounts.client(house, "bob")
    assert again.get("/v1/links").json()["links"] == []
    again.close()


def test_it_does_not_follow_the_name(ann, opened):
    old = ann.upload(np.ones(3), "u")["id"]
    c = opened(make(ann, arrays=["u"]))
    new = ann.expect(200, ann.put("/v1/arrays/u", {"data": [1, 2]})).json()["id"]
    c.fails(404, "not_found", c.get(f"/v1/arrays/{old}"))
    c.fails(404, "not_found", c.get(f"/v1/arrays/{new}"))


def test_what_is_being_read_ends_with_it(house, ann, opened):
    job = ann.upload(np.ones(10), "u") and ann.post("/v1/programs", {"bind": {"u": "u"}, "body": ["u += 1"], "steps": 10**9}).json()["id"]
    link = make(ann, jobs=[job])
    c = opened(link)
    t, seen = watched(house, job, c.always["Cookie"])
    ann.expect(204, ann.delete(f"/v1/links/{link['id']}"))
    t.join(20)
    assert not t.is_alive()
    ann.expect(200, ann.delete(f"/v1/jobs/{job}"))


# --- what is refused ---

@pytest.mark.parametrize("body,status,code,pointer", [
    ({}, 422, "bad_field", "/expires_s"), ({"expires_s": 0}, 422, "bad_field", "/expires_s"), ({"expires_s": -1}, 422, "bad_field", "/expires_s"),
    ({"expires_s": "NaN"}, 422, "bad_field", "/expires_s"), ({"expires_s": 1e9}, 422, "bad_field", "/expires_s"),
    ({"expires_s": "Infinity"}, 422, "bad_field", "/expires_s"), ({"expires_s": 5, "arrays": "u"}, 422, "bad_field", "/arrays"),
    ({"expires_s": 5, "arrays": [1]}, 422, "bad_field", "/arrays/0"), ({"expires_s": 5, "arrays": []}, 422, "bad_field", None),
    ({"expires_s": 5, "jobs": [], "arrays": []}, 422, "bad_field", None), ({"expires_s": 5, "arrays": ["u", "nothing"]}, 404, "not_found", "/arrays/1"),
    ({"expires_s": 5, "jobs": ["j-" + "0" * 22]}, 404, "not_found", "/jobs/0"), ({"expires_s": 5, "write": True}, 422, "unknown_field", "/write"),
    ({"expires_s": 5, "arrays": ["u"] * 65}, 422, "bad_field", "/arrays/64")])
def test_mistakes(ann, body, status, code, pointer):
    ann.upload(np.ones(3), "u")
    told = ann.fails(status, code, ann.post("/v1/links", body))
    assert pointer is None or told["pointer"] == pointer
    assert ann.get("/v1/links").json()["links"] == []


def test_what_is_anothers_is_not_ones_own_to_show(ann, bob):
    u = bob.upload(np.ones(3), "u")["id"]
    job = bob.post("/v1/programs?wait=1", {"bind": {"u": "u"}, "body": ["u += 1"], "steps": 1}).json()["id"]
    ann.fails(404, "not_found", ann.post("/v1/links", {"expires_s": 5, "arrays": [u]}))
    ann.fails(404, "not_found", ann.post("/v1/links", {"expires_s": 5, "jobs": [job]}))
    bob.expect(201, bob.post(f"/v1/arrays/{u}/shares", {"principal": "ann", "access": "write"}))
    ann.fails(403, "forbidden", ann.post("/v1/links", {"expires_s": 5, "arrays": [u]}))


def test_so_many(daemon_with, accounts):
    accounts.add("ann")
    accounts.add("bob")
    d = daemon_with("--accounts", accounts.path, "--max-links", "2", "--max-link-lifetime", "100", "--max-logins", "1")
    ann, bob = (accounts.client(d, name) for name in ("ann", "bob"))
    first, _ = make(ann, expires_s=100), make(ann, expires_s=0.5)
    assert "max_links" in ann.fails(429, "quota_exceeded", ann.post("/v1/links", {"expires_s": 5}))["detail"]
    make(bob)  # of each user
    cookie = log_in(ann, accounts.token["ann"])  # logins are counted by themselves
    until(lambda: ann.post("/v1/links", {"expires_s": 5}).status == 201)  # one has come to its end
    ann.fails(429, "quota_exceeded", ann.post("/v1/links", {"expires_s": 5}))
    ann.expect(204, ann.delete(f"/v1/links/{first['id']}"))
    make(ann)
    ann.fails(422, "bad_field", ann.post("/v1/links", {"expires_s": 101}))
    x = browser(d, cookie)
    x.expect(200, x.get("/v1/links"))
    for c in (ann, bob, x):
        c.close()


def test_without_accounts_it_narrows_what_its_browser_does(daemon_with):
    d = daemon_with()
    c = d.client()
    u = c.upload(np.ones(3), "u")["id"]
    link = make(c, arrays=["u"])
    x = browser(d, log_in(c, URL.fullmatch(link["url"])[1], "link"))
    x.expect(200, x.get(f"/v1/arrays/{u}"))
    x.fails(403, "forbidden", x.delete(f"/v1/arrays/{u}"))
    assert x.get("/v1/login").json()["role"] == "viewer"
    c.expect(204, c.delete(f"/v1/links/{link['id']}"))
    assert x.get("/v1/login").json()["role"] == "operator"
    c.close()
    x.close()


def test_what_others_share_is_not_listed(ann, bob, opened):
    ref = bob.upload(np.ones(3), "u")["id"]
    bob.expect(201, bob.post(f"/v1/arrays/{ref}/shares", {"principal": "ann", "access": "read"}))
    c = opened(make(ann))
    assert len(ann.get("/v1/arrays?shared=true").json()["arrays"]) == 1 and c.get("/v1/arrays?shared=true").json() == {"arrays": []}
