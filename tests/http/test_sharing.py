"""Arrays of one principal that another uses: what sharing lets him do, and what stays the owner's."""
import threading

import numpy as np
import pytest

from client import OCTETS
from streams import Stream

DATA = np.arange(6.).reshape(2, 3)
GRID = {"shape": [2, 3], "dtype": "float32", "ghost": [1, 1], "boundary": ["periodic"] * 2, "spacing": [1, 2], "alignment": 4096}


@pytest.fixture
def two(two_with):
    ann, bob = two_with()
    ids = {"u": ann.upload(DATA, "u")["id"], "g": ann.create(name="g", **GRID)["id"]}
    bob.upload(DATA, "own")
    yield ann, bob, ids
    ann.close()
    bob.close()


def share(ann, ref, access, status=201):
    ann.expect(status, ann.post(f"/v1/arrays/{ref}/shares", {"principal": "bob", "access": access}))


def give_back(ann, ref):
    ann.expect(204, ann.delete(f"/v1/arrays/{ref}/shares/bob"))


def the_owners(i):
    """What only the owner of array i may do with it."""
    return [("PATCH", f"/v1/arrays/{i}", {"name": "mine"}), ("PATCH", f"/v1/arrays/{i}", {"read_only": True}),
            ("PATCH", f"/v1/arrays/{i}", {"boundary": ["periodic", "periodic"]}),
            ("PATCH", f"/v1/arrays/{i}", {"location": "host"}), ("DELETE", f"/v1/arrays/{i}", None),
            ("POST", f"/v1/arrays/{i}/resize", {"shape": [7]}), ("POST", f"/v1/arrays/{i}/swap", {"with": "own"}),
            ("POST", "/v1/arrays/own/swap", {"with": i}), ("POST", f"/v1/arrays/{i}/views", {"index": "0"}),
            ("POST", f"/v1/arrays/{i}/shares", {"principal": "ann", "access": "read"}),
            ("GET", f"/v1/arrays/{i}/shares", None), ("DELETE", f"/v1/arrays/{i}/shares/bob", None)]


def test_what_is_not_shared_is_not_there(two):
    ann, bob, ids = two
    share(ann, "u", "read")
    give_back(ann, "u")
    for method, path, body in the_owners(ids["u"]):
        e = bob.fails(404, "not_found", bob.request(method, path, json_body=body))
        assert e.get("pointer") == ("/with" if path.endswith("own/swap") else None)
    for body in ({"like": ids["u"]}, {"shape": [2, 3], "congruent_to": ids["g"]}):
        bob.fails(404, "not_found", bob.post("/v1/arrays", body))
    for path in ("", "/data", "/lease", "/copy"):
        method = "GET" if path in ("", "/data") else "POST"
        bob.fails(404, "not_found", bob.request(method, f"/v1/arrays/{ids['u']}{path}", json_body=None if method == "GET" else {"mode": "read"} if path == "/lease" else {}))
    bob.fails(422, "unknown_name", bob.post("/v1/evaluate", {"expr": "u + 1"}))


@pytest.mark.parametrize("access", ["read", "write"])
def test_what_changes_the_handle_is_the_owners(two, access):
    ann, bob, ids = two
    share(ann, "u", access)
    before = ann.get("/v1/arrays/u").json()
    for method, path, body in the_owners(ids["u"]):
        e = bob.fails(403, "forbidden", bob.request(method, path, json_body=body))
        assert e.get("pointer") == ("/with" if path.endswith("own/swap") else None)
    assert ann.get("/v1/arrays/u").json() == before
    bob.fails(404, "not_found", bob.get("/v1/arrays/u"))  # a name is the session's own
    assert [a["name"] for a in bob.get("/v1/arrays").json()["arrays"]] == ["own"]


def test_read(two):
    ann, bob, ids = two
    share(ann, "u", "read")
    u = ids["u"]
    assert bob.expect(200, bob.get(f"/v1/arrays/{u}")).json()["read_only"]
    np.testing.assert_array_equal(bob.download(u), DATA)
    np.testing.assert_array_equal(bob.evaluate("x + own", bind={"x": u}), 2 * DATA)
    assert bob.expect(201, bob.post(f"/v1/arrays/{u}/copy", {"name": "c"})).json()["shape"] == [2, 3]
    for write in (bob.request("PUT", f"/v1/arrays/{u}/data", DATA.tobytes(), content_type=OCTETS),
                  bob.post("/v1/evaluate", {"expr": "1", "out": u}), bob.post(f"/v1/arrays/{u}/lease", {"mode": "write"}),
                  bob.post(f"/v1/arrays/{u}/fill_ghost"), bob.post("/v1/programs", {"body": ["x += 1"], "bind": {"x": u}}),
                  bob.post("/v1/evaluate", {"statements": ["x += 1"], "bind": {"x": u}})):
        assert "belongs to ann and is shared with you for reading only" in bob.fails(403, "forbidden", write)["detail"]
    np.testing.assert_array_equal(ann.download("u"), DATA)
    share(ann, "u", "write", status=200)
    bob.expect(204, bob.request("PUT", f"/v1/arrays/{u}/data", (DATA + 1).tobytes(), content_type=OCTETS))
    bob.expect(200, bob.post("/v1/evaluate", {"expr": "x*2", "bind": {"x": u}, "out": u}))
    np.testing.assert_array_equal(ann.download("u"), 2 * (DATA + 1))


def test_statements_beside_an_owner_who_writes_all_the_time(two):
    """A step that comes to nothing, since the owner has written meanwhile, is made anew."""
    ann, bob, ids = two
    u = ann.upload(np.zeros(100_000), "w")["id"]
    share(ann, u, "write")
    stop, owner = threading.Event(), ann.clone()

    def write():
        while not stop.is_set():
            owner.expect(200, owner.post("/v1/evaluate", {"expr": "w + 1", "out": "w"}))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        replies = [bob.post("/v1/evaluate", {"statements": ["u += 1"], "bind": {"u": u}}) for _ in range(30)]
    finally:
        stop.set()
        thread.join()
        owner.close()
    assert {r.status for r in replies} <= {200, 409}, [r for r in replies if r.status != 200][:1]


def test_others_arrays_as_models(two):
    ann, bob, ids = two
    share(ann, "g", "read")
    keys = ("shape", "dtype", "strides", "offset", "ghost", "boundary", "spacing")
    g = ann.get("/v1/arrays/g").json()
    like = bob.expect(201, bob.post("/v1/arrays", {"like": ids["g"]})).json()
    assert {k: like[k] for k in keys} == {k: g[k] for k in keys} and not like["read_only"]
    other = bob.expect(201, bob.post("/v1/arrays", {"shape": [3, 2], "ghost": [0, 1], "congruent_to": ids["g"]})).json()
    assert other["strides"] == g["strides"]
    data = bob.expect(201, bob.post("/v1/arrays", {"data": [[1, 2]], "congruent_to": ids["g"]})).json()
    assert data["strides"] == g["strides"]


def test_a_lease_outlives_neither_array_nor_session_against_its_holder(two):
    ann, bob, ids = two
    s = ann.expect(201, ann.post("/v1/sessions", {})).json()["id"]
    inside = ann.clone(session=s)
    v = inside.upload(DATA, "v")["id"]
    share(inside, v, "write")
    for mode in ("read", "write"):
        token = bob.expect(201, bob.post(f"/v1/arrays/{v}/lease", {"mode": mode, "ttl_s": 60})).json()["token"]
        ann.fails(409, "locked", ann.delete(f"/v1/arrays/{v}"))
        ann.fails(409, "locked", ann.delete(f"/v1/sessions/{s}"))
        held = {"Arrayd-Lease": token}
        assert bob.expect(200, bob.get(f"/v1/arrays/{v}/data", headers=held)).body == DATA.tobytes()
        bob.expect(204, bob.delete(f"/v1/arrays/{v}/lease", headers=held))
    ann.expect(204, ann.delete(f"/v1/sessions/{s}"))
    bob.fails(404, "not_found", bob.get(f"/v1/arrays/{v}"))
    inside.close()


def lease(c, ref, mode, status=201, token=None):
    headers = {"Arrayd-Lease": token} if token else {}
    return c.expect(status, c.post(f"/v1/arrays/{ref}/lease", {"mode": mode, "ttl_s": 600}, headers=headers)).json()["token"]


def writes(c, ref, status, **headers):
    r = c.post("/v1/evaluate", {"expr": "1", "out": ref}, headers=headers)
    return c.expect(200, r) if status == 200 else c.fails(status, "locked", r)


@pytest.mark.parametrize("access", ["read", "write"])
def test_who_loses_a_share_loses_his_leases(two, access):
    """Else one who may only read could keep the owner from writing as long as a lease can be renewed."""
    ann, bob, ids = two
    share(ann, "u", access)
    token = lease(bob, ids["u"], access)
    writes(ann, "u", 409)
    give_back(ann, "u")
    writes(ann, "u", 200)
    bob.fails(404, "not_found", bob.post(f"/v1/arrays/{ids['u']}/lease", {"mode": "read"}, headers={"Arrayd-Lease": token}))
    share(ann, "u", access)
    writes(ann, "u", 200, **{"Arrayd-Lease": token})
    assert lease(bob, ids["u"], "read", token=token) != token


def test_leases_of_others_outlive_a_share(two):
    ann, bob, ids = two
    share(ann, "u", "read")
    ann.expect(201, ann.post("/v1/arrays/u/views", {"index": "0", "name": "w"}))
    mine, his = lease(ann, "w", "read"), lease(bob, ids["u"], "read")
    writes(ann, "u", 409, **{"Arrayd-Lease": mine})
    give_back(ann, "u")
    writes(ann, "u", 409)
    writes(ann, "u", 200, **{"Arrayd-Lease": mine})
    assert lease(ann, "u", "read", 200, token=mine) == mine
    assert his != mine


def test_who_may_only_read_any_more_loses_his_leases_for_writing(two):
    ann, bob, ids = two
    share(ann, "u", "write")
    share(ann, "g", "write")
    writing, reading = lease(bob, ids["u"], "write"), lease(bob, ids["g"], "read")
    share(ann, "u", "read", status=200)
    share(ann, "g", "read", status=200)
    writes(ann, "u", 200)
    writes(ann, "g", 409)
    bob.fails(403, "forbidden", bob.post(f"/v1/arrays/{ids['u']}/lease", {"mode": "write"}, headers={"Arrayd-Lease": writing}))
    assert lease(bob, ids["g"], "read", 200, token=reading) == reading


def test_who_loses_his_account_loses_his_leases(daemon_with, accounts):
    for name in ("ann", "bob"):
        accounts.add(name)
    daemon = daemon_with("--accounts", accounts.path)
    ann, bob = (accounts.client(daemon, name) for name in ("ann", "bob"))
    u = ann.upload(DATA, "u")["id"]
    share(ann, "u", "read")
    lease(bob, u, "read")
    writes(ann, "u", 409)
    bob.close()
    text = accounts.path.read_text()
    accounts.write(text[:text.index("[bob]")])
    accounts.reload(daemon)
    writes(ann, "u", 200)
    ann.close()



def test_those_shared_with_me_are_listed(two):
    """In order of the shares, page by page, with their owner and what one may do; and no longer than that lasts."""
    ann, bob, ids = two
    assert bob.expect(200, bob.get("/v1/arrays?shared=true")).json() == {"arrays": []}
    share(ann, "g", "write")
    share(ann, "u", "read")
    listed = bob.expect(200, bob.get("/v1/arrays?shared=true")).json()["arrays"]
    assert [(a["id"], a["name"], a["owner"], a["read_only"]) for a in listed] == [(ids["g"], "g", "ann", False), (ids["u"], "u", "ann", True)]
    assert listed[1] == bob.meta(ids["u"])
    first = bob.expect(200, bob.get("/v1/arrays?shared=true&limit=1")).json()
    assert [a["id"] for a in first["arrays"]] == [ids["g"]]
    rest = bob.expect(200, bob.get(f"/v1/arrays?shared=1&limit=1&after={first['next']}")).json()
    assert [a["id"] for a in rest["arrays"]] == [ids["u"]] and "next" not in rest
    for c in (ann, bob):
        own = c.expect(200, c.get("/v1/arrays?shared=false")).json()
        assert own == c.get("/v1/arrays").json() and not any("owner" in a for a in own["arrays"])
    assert ann.get("/v1/arrays?shared=true").json() == {"arrays": []} and "owner" not in ann.meta("u")
    give_back(ann, "g")
    assert [a["id"] for a in bob.get("/v1/arrays?shared=true").json()["arrays"]] == [ids["u"]]
    share(ann, "u", "write", 200)
    assert not bob.get("/v1/arrays?shared=true").json()["arrays"][0]["read_only"]
    ann.expect(204, ann.delete("/v1/arrays/u"))
    assert bob.get("/v1/arrays?shared=true").json() == {"arrays": []}
    bob.fails(422, "bad_field", bob.get("/v1/arrays?shared=yes"))
    bob.fails(400, "bad_query", bob.get("/v1/jobs?shared=true"))


def test_events_of_one_tell_its_owner(two):
    ann, bob, ids = two
    share(ann, "u", "read")
    with Stream(bob, f"/v1/arrays/{ids['u']}/events") as events:
        assert events.wait("changed")["owner"] == "ann"
