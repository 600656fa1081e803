"""Leases on arrays: what their holder may do, and what nobody else may."""
import threading
import time

import numpy as np
import pytest

from client import OCTETS

DATA = np.arange(6.).reshape(2, 3)


@pytest.fixture
def u(api):
    api.upload(DATA, "u")
    return api


def lease(c, mode="write", ref="u", ttl_s=30, status=201, token=None):
    headers = {"Arrayd-Lease": token} if token else {}
    reply = c.expect(status, c.post(f"/v1/arrays/{ref}/lease", {"mode": mode, "ttl_s": ttl_s}, headers=headers))
    return reply.json()["token"]


def give(c, token, ref="u"):
    c.expect(204, c.delete(f"/v1/arrays/{ref}/lease", headers={"Arrayd-Lease": token}))


READS = [
    ("GET", "/v1/arrays/u/data", None), ("GET", "/v1/arrays/u/data?index=0", None),
    ("GET", "/v1/arrays/w/data", None), ("POST", "/v1/arrays/u/copy", {}),
    ("POST", "/v1/arrays/u/views", {"index": "0"}),
    ("POST", "/v1/evaluate", {"expr": "sum(u)"}), ("POST", "/v1/evaluate", {"tree": "u"}),
    ("POST", "/v1/evaluate", {"expr": "sum(x)", "bind": {"x": "w"}}),
    ("POST", "/v1/evaluate", {"expr": "x", "let": [["x", "2*u"]]}),
]
WRITES = [
    ("PUT", "/v1/arrays/u/data", DATA.tobytes()), ("PUT", "/v1/arrays/w/data", DATA[0].tobytes()),
    ("POST", "/v1/evaluate", {"expr": "1", "out": "u"}), ("POST", "/v1/evaluate", {"expr": "1", "out": "w"}),
    ("POST", "/v1/arrays/u/fill_ghost", {}), ("PATCH", "/v1/arrays/u", {"read_only": False}),
]
UNDOES = [
    ("PUT", "/v1/arrays/u", {"shape": [2]}), ("POST", "/v1/evaluate", {"expr": "1+v", "name": "u"}),
    ("POST", "/v1/arrays/u/swap", {"with": "v"}), ("POST", "/v1/arrays/v/swap", {"with": "u"}),
]
DELETES = [("POST", "/v1/arrays/v/resize", {"shape": [7]}), ("DELETE", "/v1/arrays/v", None)]
FREE = [("GET", "/v1/arrays/u", None), ("GET", "/v1/arrays", None), ("PATCH", "/v1/arrays/w", {"name": "w"}),
        ("POST", "/v1/explain", {"expr": "u + 1"})]


def send(c, method, path, body, token=None):
    headers = {"Arrayd-Lease": token} if token else {}
    if isinstance(body, bytes):
        return c.request(method, path, body, headers, content_type=OCTETS)
    return c.request(method, path, json_body=body, headers=headers)


def prepare(c):
    c.expect(201, c.post("/v1/arrays/u/views", {"index": "1", "name": "w"}))
    c.upload(DATA, "v")


def test_a_write_lease_keeps_all_others_out(u):
    prepare(u)
    token = lease(u)
    for request in READS + WRITES + UNDOES:
        assert "lease" in u.fails(409, "locked", send(u, *request))["detail"], request
        u.fails(409, "locked", send(u, *request, token="l-0000000000000000000000"))
    for request in FREE:
        assert send(u, *request).status == 200, request
    u.fails(409, "locked", u.post("/v1/arrays/u/lease", {"mode": "read", "ttl_s": 1}))
    u.fails(409, "locked", u.post("/v1/arrays/w/lease", {"mode": "write", "ttl_s": 1}))
    u.fails(409, "locked", u.delete("/v1/arrays/u/lease"))
    u.fails(409, "locked", u.delete("/v1/arrays/u"))
    e = u.fails(409, "locked", u.post("/v1/evaluate", {"expr": "v + u"}))
    assert (e["pointer"], e["offset"]) == ("/expr", 4)
    assert u.fails(409, "locked", u.post("/v1/evaluate", {"expr": "1", "out": "w"}))["pointer"] == "/out"
    assert u.fails(409, "locked", u.post("/v1/evaluate", {"expr": "x", "bind": {"x": "w"}}))["pointer"] == "/bind/x"
    give(u, token)
    for request in READS + WRITES:
        assert send(u, *request).status < 300, request


def test_the_holder_works_on(u):
    prepare(u)
    token = lease(u)
    for request in READS + WRITES:
        assert send(u, *request, token=token).status < 300, request
        assert send(u, *request, token=f"l-0000000000000000000000, {token}").status < 300, request
    for request in UNDOES:  # nobody's to do
        u.fails(409, "locked", send(u, *request, token=token))
    give(u, token, "w")  # by any handle of the memory
    u.fails(404, "not_found", u.delete("/v1/arrays/u/lease", headers={"Arrayd-Lease": token}))
    token = lease(u, ref="v")
    for request in DELETES:
        u.fails(409, "locked", send(u, *request))
    assert send(u, *DELETES[0], token=token).json()["shape"] == [7]
    u.fails(409, "locked", u.get("/v1/arrays/v/data"))  # the new memory is leased too
    assert send(u, *DELETES[1], token=token).status == 204
    u.upload(DATA, "v")
    assert np.array_equal(u.download("v"), DATA)  # nothing of it is left


def test_read_leases_keep_writers_out(u):
    prepare(u)
    first, second = lease(u, "read"), lease(u, "read", "w")
    assert first != second
    for request in READS + FREE:
        assert send(u, *request).status < 300, request
    for request in WRITES + UNDOES:
        u.fails(409, "locked", send(u, *request))
        u.fails(409, "locked", send(u, *request, token=first))
    u.fails(409, "locked", u.post("/v1/arrays/u/lease", {"mode": "write", "ttl_s": 1}))
    u.fails(409, "locked", u.post("/v1/arrays/u/lease", {"mode": "write", "ttl_s": 1}, headers={"Arrayd-Lease": first}))
    give(u, second)
    for request in WRITES:  # alone
        assert send(u, *request, token=first).status < 300, request
    assert lease(u, "write", token=first, status=200) == first
    u.fails(409, "locked", u.get("/v1/arrays/u/data"))
    assert lease(u, "read", token=first, status=200) == first
    u.expect(200, u.get("/v1/arrays/u/data"))
    give(u, first)


def free_after(c, seconds, begun, path="/v1/arrays/u/data"):
    """Until then it is leased, whenever one looks, and not for long afterwards."""
    while (status := c.get(path).status) == 409:
        assert time.monotonic() - begun < seconds + 10
        time.sleep(0.01)
    assert status == 200 and time.monotonic() - begun >= seconds


def test_the_refusal_names_the_holder_and_the_end(u, two_with):
    """The account that holds the lease, which may be another than the owner's, and when it ends; never its token."""
    until = u.expect(201, u.post("/v1/arrays/u/lease", {"mode": "write", "ttl_s": 30})).json()
    detail = u.fails(409, "locked", u.get("/v1/arrays/u/data"))["detail"]
    assert f"for writing until {until['expires']}: send" in detail and until["token"] not in detail
    detail = u.fails(409, "locked", u.put("/v1/arrays/u", json_body={"shape": [2]}, headers={"Arrayd-Lease": until["token"]}))["detail"]
    assert f"until {until['expires']}: it cannot be replaced" in detail
    give(u, until["token"])
    ann, bob = two_with()
    made = u.expect(201, ann.put("/v1/arrays/u", json_body={"shape": [2]})).json()
    u.expect(201, ann.post("/v1/arrays/u/shares", {"principal": "bob", "access": "read"}))
    own = ann.expect(201, ann.post("/v1/arrays/u/lease", {"mode": "read", "ttl_s": 5})).json()
    shared = bob.expect(201, bob.post(f"/v1/arrays/{made['id']}/lease", {"mode": "read", "ttl_s": 50})).json()
    for token in None, own["token"]:
        detail = ann.fails(409, "locked", send(ann, "PUT", "/v1/arrays/u/data", bytes(16), token))["detail"]
        assert f"for reading by 'bob' until {shared['expires']}" in detail and shared["token"] not in detail


def test_expiry_frees(u):
    begun = time.monotonic()
    token = lease(u, ttl_s=0.15)
    free_after(u, 0.15, begun)
    u.fails(404, "not_found", u.delete("/v1/arrays/u/lease", headers={"Arrayd-Lease": token}))


def test_renewal(u):
    """Time runs anew from it, be it longer or shorter."""
    token, begun = lease(u, ttl_s=2), time.monotonic()
    for _ in range(4):
        assert lease(u, ttl_s=30, token=token, status=200) == token
    assert lease(u, ttl_s=0.3, token=token, status=200) == token
    free_after(u, 0.3, begun)
    for _ in range(5):
        token, begun = lease(u, ttl_s=0.3), time.monotonic()
        r = u.post("/v1/arrays/u/lease", {"mode": "write", "ttl_s": 30}, headers={"Arrayd-Lease": token})
        if r.status == 201:  # too late: it is another
            give(u, r.json()["token"])
            continue
        assert u.expect(200, r).json()["token"] == token
        time.sleep(max(0, begun + 0.4 - time.monotonic()))
        u.fails(409, "locked", u.get("/v1/arrays/u/data"))
        give(u, token)
        return
    raise AssertionError("no lease lasts until it is renewed")


def test_a_lease_taken_during_an_upload_counts(u):
    """What arrives after the lease was taken is not written."""
    other = u.clone()
    taken = []

    def body():
        yield DATA.tobytes()[:20]
        time.sleep(0.05)
        taken.append(lease(other))
        yield DATA.tobytes()[20:]

    r = u.request("PUT", "/v1/arrays/u/data", body(), {"Content-Length": str(DATA.nbytes)}, content_type=OCTETS)
    u.fails(409, "locked", r)
    give(other, taken[0])
    other.close()
    assert np.array_equal(u.download("u"), DATA)


@pytest.mark.parametrize("body,code,pointer", [
    ({}, "bad_field", "/mode"), ({"mode": "both"}, "bad_field", "/mode"), ({"mode": "read", "ttl_s": 0}, "bad_field", "/ttl_s"),
    ({"mode": "read", "ttl_s": 1e6}, "bad_field", "/ttl_s"), ({"mode": "read", "ttl_s": "x"}, "bad_field", "/ttl_s"),
    ({"mode": "read", "for": 1}, "unknown_field", "/for")])
def test_what_is_no_lease(u, body, code, pointer):
    assert u.fails(422, code, u.post("/v1/arrays/u/lease", body))["pointer"] == pointer
    u.fails(404, "not_found", u.delete("/v1/arrays/u/lease"))
    u.fails(404, "not_found", u.post("/v1/arrays/nothing/lease", {"mode": "read"}))
    u.expect(200, u.get("/v1/arrays/u/data"))


def test_read_only_arrays_and_limits(daemon_with):
    c = daemon_with("--max-leases", 2, "--max-lease-ttl", 5).client()
    limits = c.info()["limits"]
    assert limits["max_leases"] == 2 and limits["max_lease_ttl"] == 5
    for name in "abc":
        c.upload(DATA, name)
    c.patch("/v1/arrays/c", {"read_only": True})
    c.fails(409, "read_only", c.post("/v1/arrays/c/lease", {"mode": "write"}))
    first = lease(c, ref="a", ttl_s=5)
    lease(c, "read", "b", ttl_s=5)
    c.fails(429, "quota_exceeded", c.post("/v1/arrays/c/lease", {"mode": "read"}))
    c.fails(422, "bad_field", c.post("/v1/arrays/b/lease", {"mode": "read", "ttl_s": 5.5}))
    begun = time.monotonic()
    lease(c, ref="a", ttl_s=0.1, token=first, status=200)
    while (r := c.post("/v1/arrays/c/lease", {"mode": "read"})).status == 429:
        assert time.monotonic() - begun < 4
        time.sleep(0.01)
    token = c.expect(201, r).json()["token"]  # the first has expired
    give(c, token, "c")
    c.close()


def test_a_session_does_not_go_with_what_others_lease(u):
    s = u.expect(201, u.post("/v1/sessions", {})).json()["id"]
    inside = u.clone(session=s)
    inside.upload(DATA, "v")
    inside.expect(201, inside.post("/v1/arrays/v/views", {"index": "0", "name": "w"}))
    inside.upload(DATA, "z")
    first, second = lease(inside, "read", "w"), lease(inside, "read", "w")
    for token in (None, first):
        u.fails(409, "locked", send(u, "DELETE", f"/v1/sessions/{s}", None, token))
    assert len(inside.get("/v1/arrays").json()["arrays"]) == 3
    give(inside, second, "w")
    third = lease(inside, ref="z")
    u.fails(409, "locked", send(u, "DELETE", f"/v1/sessions/{s}", None, first))
    u.expect(204, send(u, "DELETE", f"/v1/sessions/{s}", None, f"{first}, {third}"))
    u.fails(404, "not_found", inside.get("/v1/arrays"))
    token = lease(u)
    before = u.get("/v1/sessions/default").json()["id"]
    u.fails(409, "locked", u.delete("/v1/sessions/default"))
    assert u.get("/v1/sessions/default").json()["id"] == before and u.get("/v1/arrays/u").status == 200
    u.expect(204, send(u, "DELETE", "/v1/sessions/default", None, token))
    assert u.get("/v1/sessions/default").json()["id"] != before


@pytest.mark.in_turn
def test_a_session_that_expires_takes_what_is_leased_along(u):
    s = u.expect(201, u.post("/v1/sessions", {"ttl_s": 2})).json()["id"]
    inside = u.clone(session=s)
    i = inside.upload(DATA, "v")["id"]
    lease(u, ref=i)
    deadline = time.monotonic() + 10
    while u.get(f"/v1/sessions/{s}").status == 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    while u.get(f"/v1/arrays/{i}").status == 200 and time.monotonic() < deadline:
        time.sleep(0.05)  # the session is not served any more; what it had goes a moment later
    u.fails(404, "not_found", u.get(f"/v1/arrays/{i}"))


@pytest.mark.parametrize("mode", ["read", "write"])
def test_who_looked_before_has_written(u, mode):
    """Requests that found no lease and are still being planned have sent their work when one is given."""
    over, said = threading.Event(), set()

    def crowd(k):
        mine = u.clone()
        while not over.is_set():
            body = {"expr": "+".join(f"0*u*{i}" for i in range(1500)) + f"+{k}", "out": "u"}
            said.add(mine.post("/v1/evaluate", body).status)
            k += 2
        mine.close()

    threads = [threading.Thread(target=crowd, args=(k,)) for k in range(2)]
    for t in threads:
        t.start()
    changed = 0
    for _ in range(40):
        token = lease(u, mode)
        had = [u.get("/v1/arrays/u/data", headers={"Arrayd-Lease": token}, accept=OCTETS).body]
        time.sleep(0.02)
        had.append(u.get("/v1/arrays/u/data", headers={"Arrayd-Lease": token}, accept=OCTETS).body)
        changed += had[0] != had[1]
        give(u, token)
    over.set()
    for t in threads:
        t.join()
    assert changed == 0 and said == {200, 409}
