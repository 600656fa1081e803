"""Sessions in depth: the default one, isolation, limits, expiry, order of work, many clients."""
import threading

import pytest

from conftest import settle, until


def new_session(api, **fields):
    r = api.expect(201, api.post("/v1/sessions", fields)).json()
    return r, api.clone(session=r["id"])


def test_default_stands_for_the_default_session(api):
    mine = api.expect(200, api.get("/v1/sessions/default")).json()
    assert mine["default"] is True and mine["name"] == "default"
    named = api.clone(session="default")
    meta = named.create(name="u", shape=[2])
    assert meta["session"] == mine["id"] and api.meta("u")["id"] == meta["id"]
    assert api.get("/v1/sessions/default").json()["arrays"] == 1
    api.expect(200, api.post("/v1/sessions/default/sync"))
    named.close()


def test_time_on_the_device_is_told_of_each_session_and_of_the_user(api):
    """Of the session that worked, programs included, and of nobody else."""
    before, was = api.info()["principal"], api.get("/v1/sessions/default").json()["device_s"]
    s, c = new_session(api)
    assert s["device_s"] == 0
    c.create(name="u", shape=[500, 500])
    c.evaluate("sum(exp(u))")
    once = api.get(f"/v1/sessions/{s['id']}").json()["device_s"]
    assert 0 < once < 60
    job = c.expect(200, c.post("/v1/programs?wait=1", {"body": ["u += sin(u) + 1"], "steps": 20})).json()
    api.expect(200, api.post(f"/v1/sessions/{s['id']}/sync"))
    now = next(x for x in api.list_all("/v1/sessions", "sessions") if x["id"] == s["id"])["device_s"]
    assert job["device_s"] > 0 and now > once
    after = api.info()["principal"]
    assert after["device_s"] - before["device_s"] >= (now - once) * 0.999
    assert after["requests_total"] >= before["requests_total"] + 5
    assert api.get("/v1/sessions/default").json()["device_s"] == was
    c.close()


def test_deleting_the_default_session_makes_a_new_one(daemon_with):
    api = daemon_with().client()
    old = api.get("/v1/sessions/default").json()["id"]
    meta = api.create(name="u", shape=[1000])
    assert api.info()["bytes_in_use"] > 0
    api.expect(204, api.delete("/v1/sessions/default"))
    assert settle(api, 0) == 0
    new = api.get("/v1/sessions/default").json()
    assert new["id"] != old and new["arrays"] == 0
    api.fails(404, "not_found", api.get(f"/v1/sessions/{old}"))
    api.fails(404, "not_found", api.get(f"/v1/arrays/{meta['id']}"))
    api.create(name="u", shape=[1])
    assert len(api.list_all("/v1/sessions", "sessions")) == 1
    api.close()


def test_names_are_a_session_s_own_and_ids_are_not(api):
    _, a = new_session(api)
    _, b = new_session(api)
    ua, ub = a.create(name="u", shape=[1]), b.create(name="u", shape=[2])
    assert a.meta("u")["shape"] == [1] and b.meta("u")["shape"] == [2]
    assert b.meta(ua["id"])["shape"] == [1] and b.meta(ua["id"])["session"] == ua["session"]
    assert [x["id"] for x in b.list_all("/v1/arrays", "arrays")] == [ub["id"]]
    # what is made from another session's array belongs to the session that asked
    view = b.expect(201, b.post(f"/v1/arrays/{ua['id']}/views", {"name": "v"})).json()
    assert view["session"] == ub["session"] and view["view_of"] == ua["id"]
    copy = b.expect(201, b.post(f"/v1/arrays/{ua['id']}/copy")).json()
    assert copy["session"] == ub["session"]
    # a new name is one of the session that owns the array
    b.expect(200, b.patch(f"/v1/arrays/{ua['id']}", {"name": "w"}))
    assert a.meta("w")["id"] == ua["id"]
    b.fails(404, "not_found", b.get("/v1/arrays/w"))
    b.expect(204, b.delete(f"/v1/arrays/{ua['id']}"))
    assert b.meta("v")["shape"] == [1]
    a.close()
    b.close()


def test_a_deleted_session_takes_its_arrays_but_not_views_elsewhere(api):
    s, a = new_session(api)
    before = api.info()["bytes_in_use"]
    u = a.create(shape=[1000], dtype="uint8", fill=3)
    view = api.expect(201, api.post(f"/v1/arrays/{u['id']}/views", {"index": "5:8"})).json()
    api.expect(204, api.delete(f"/v1/sessions/{s['id']}"))
    assert api.info()["bytes_in_use"] > before
    assert api.get(f"/v1/arrays/{view['id']}/data").body == b"\3\3\3"
    assert "view_of" not in api.meta(view["id"])
    api.expect(204, api.delete(f"/v1/arrays/{view['id']}"))
    assert settle(api, before) == before
    a.close()


@pytest.mark.parametrize("body", [
    {"fill": 1, "dtype": "uint8"}, {"dtype": "uint8"}, {"random": {"distribution": "uniform", "seed": 1},
                                                         "dtype": "float16"}])
def test_quota_of_creators(api, body):
    s, c = new_session(api, memory_limit=4096)
    c.create(shape=[4000], dtype="uint8", name="u")
    for _ in range(3):
        r = c.post("/v1/arrays", {**body, "shape": [200]})
        c.fails(429, "quota_exceeded", r)
        assert "Retry-After" in r.headers
    c.fails(429, "quota_exceeded", c.post("/v1/arrays/u/copy"))
    c.fails(429, "quota_exceeded", c.post("/v1/arrays/u/resize", {"shape": [8000]}))
    assert c.meta("u")["shape"] == [4000] and len(c.list_all("/v1/arrays", "arrays")) == 1
    used = api.get(f"/v1/sessions/{s['id']}").json()["bytes_in_use"]
    assert 4000 <= used <= 4096
    c.expect(201, c.post("/v1/arrays/u/views", {"index": "::2"}))  # costs nothing
    c.close()


def test_quota_of_json_data(api):
    _, c = new_session(api, memory_limit=1000)
    r = c.post("/v1/arrays", {"data": list(range(1000))})
    c.fails(429, "quota_exceeded", r)
    c.create(data=list(range(100)))
    c.fails(429, "quota_exceeded", c.post("/v1/arrays", {"data": list(range(100))}))
    c.close()


def test_number_of_sessions(daemon_with):
    api = daemon_with("--max-sessions", 3).client()
    made = [api.expect(201, api.post("/v1/sessions", {})).json()["id"] for _ in range(3)]
    api.fails(429, "quota_exceeded", api.post("/v1/sessions", {}))
    api.expect(204, api.delete(f"/v1/sessions/{made[0]}"))
    api.expect(201, api.post("/v1/sessions", {}))
    api.close()


def test_number_of_arrays(daemon_with):
    api = daemon_with("--max-arrays", 3).client()
    for i in range(3):
        api.create(name=f"u{i}", shape=[1])
    api.fails(429, "quota_exceeded", api.post("/v1/arrays", {"shape": [1]}))
    api.fails(429, "quota_exceeded", api.post("/v1/arrays/u0/views", {}))
    api.fails(429, "quota_exceeded", api.post("/v1/arrays/u0/copy"))
    api.expect(200, api.put("/v1/arrays/u0", {"shape": [2]}))  # one goes, one comes
    api.expect(204, api.delete("/v1/arrays/u1"))
    api.create(shape=[1])
    api.close()


def test_expiry_frees_memory_by_itself(api):
    before = api.info()["bytes_in_use"]
    s, c = new_session(api, ttl_s=1)
    c.create(shape=[100000])
    assert api.info()["bytes_in_use"] > before
    assert settle(api, before, 8) == before
    api.fails(404, "not_found", api.get(f"/v1/sessions/{s['id']}"))
    c.fails(404, "not_found", c.get("/v1/arrays"))
    c.close()


def test_looking_at_a_session_does_not_keep_it_alive(api):
    s, c = new_session(api, ttl_s=0.5)
    until(lambda: api.get(f"/v1/sessions/{s['id']}").status != 200)
    c.close()


@pytest.mark.parametrize("body,pointer", [
    ({"ttl_s": "NaN"}, "/ttl_s"), ({"ttl_s": "Infinity"}, "/ttl_s"), ({"ttl_s": None}, "/ttl_s"),
    ({"memory_limit": 0}, "/memory_limit"), ({"memory_limit": 2**53 + 2}, "/memory_limit"),
    ({"device": 0.5}, "/device"), ({"name": ""}, "/name"), ({"name": "x" * 65}, "/name"),
    ({"colour": 1}, "/colour")])
def test_bad_bodies_have_a_place(api, body, pointer):
    before = len(api.list_all("/v1/sessions", "sessions"))
    r = api.post("/v1/sessions", body)
    assert r.status == 422 and r.json()["pointer"] == pointer, r
    assert len(api.list_all("/v1/sessions", "sessions")) == before


def test_a_page_cursor_outlives_its_session(api):
    made = [new_session(api)[0]["id"] for _ in range(4)]
    page = api.get("/v1/sessions?limit=2").json()
    api.expect(204, api.delete(f"/v1/sessions/{page['sessions'][-1]['id']}"))
    rest = api.get(f"/v1/sessions?limit=10&after={page['next']}").json()
    assert [s["id"] for s in rest["sessions"]] == made[1:]
    for query in ("after=x", "after=-1", "after=", "after=99999999999999999999"):
        assert api.get("/v1/sessions?" + query).status == 422


def test_many_clients_at_once(api):
    """Threads making, renaming, viewing and dropping arrays in shared and own sessions."""
    errors = []

    def work(n):
        c = api.clone()
        own = api.clone(session=api_sessions[n])
        try:
            for i in range(30):
                u = own.create(name="u" if i == 0 else f"u{i}", shape=[10], dtype="uint8", fill=n)
                v = c.expect(201, c.post(f"/v1/arrays/{u['id']}/views", {"index": "::3"})).json()
                r = c.put("/v1/arrays/shared", {"shape": [i]})
                assert r.status in (200, 201), r
                r = c.patch("/v1/arrays/shared", {"name": "renamed"})
                assert r.status in (200, 404, 409), r
                assert c.get(f"/v1/arrays/{v['id']}/data").body == bytes([n] * 4)
                own.expect(204, own.delete(f"/v1/arrays/{u['id']}"))
                c.expect(204, c.delete(f"/v1/arrays/{v['id']}"))
        except Exception as e:  # reported by the main thread
            errors.append(e)
        finally:
            c.close()
            own.close()

    api_sessions = [new_session(api)[0]["id"] for _ in range(4)]
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[0]
    assert {a["name"] for a in api.list_all("/v1/arrays", "arrays")} <= {"shared", "renamed"}
