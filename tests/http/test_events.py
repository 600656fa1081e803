"""Streams of events: of an array's changes and frames, of the lists of arrays and jobs; their limits, rights and ends."""
import base64
import json
import re
import socket
import time

import numpy as np
import pytest

from client import JSON
from conftest import until
from streams import Stream
from test_links import ann, bob, house, make, opened  # noqa: F401
from test_programs import start
from test_reductions import hold

PNG = "image/png"
LOOK = "cmap=magma&lo=-1&hi=1&width=20&height=10&pool=max&index=0:20,:"


def png(data):
    raw = base64.b64decode(data["png"], validate=True)
    assert len(raw) == data["bytes"]
    return raw


# --- an array ---

def test_changes_of_an_array(api):
    ref = api.upload(np.zeros((3, 4)), "u")["id"]
    with Stream(api, "/v1/arrays/u/events") as s:
        first = s.wait("changed")
        api.contract.validate({"$ref": "#/components/schemas/Array"}, first, "changed")
        assert first["id"] == ref and first["name"] == "u"
        time.sleep(0.5)
        assert len(s.events) == 1  # nothing has happened
        api.expect(200, api.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
        s.wait("changed", 2)
        api.expect(200, api.patch("/v1/arrays/u", {"name": "w"}))
        assert s.wait("changed", 3)["name"] == "w"
        api.expect(200, api.patch(f"/v1/arrays/{ref}", {"read_only": True, "units": "K"}))
        assert s.wait("changed", 4)["units"] == "K" and s.wait("changed", 4)["read_only"]
        api.expect(200, api.patch(f"/v1/arrays/{ref}", {"read_only": False}))
        s.wait("changed", 5)
        api.expect(200, api.post(f"/v1/arrays/{ref}/resize", {"shape": [2, 2]}))
        assert s.wait("changed", 6)["shape"] == [2, 2]
        ids = [e[1] for e in s.events]
        assert ids[1] == ids[2] == ids[3] != ids[0]  # the id names the contents
        api.expect(204, api.delete(f"/v1/arrays/{ref}"))
        assert s.ended() == "deleted"


def test_a_frame_is_the_picture(api):
    u = np.random.default_rng(1).normal(size=(40, 30))
    api.upload(u, "u")
    with Stream(api, f"/v1/arrays/u/events?frames=true&{LOOK}") as s:
        for n in (1, 2):
            data = s.wait("frame", n)
            r = api.expect(200, api.get(f"/v1/arrays/u/data?{LOOK}", accept=PNG))
            assert png(data) == r.body and data["range"] == [-1, 1]
            assert f'"{s.events[-1][1]}"' == r.headers["ETag"]
            api.expect(200, api.post("/v1/evaluate", {"expr": "-u", "out": "u"}))
    for query in ("percentiles=1,99", "bar=1&cmap=gray", "width=7", ""):
        frame = api.expect(200, api.get(f"/v1/arrays/u/events?frames=1&{query}"))
        r = api.expect(200, api.get(f"/v1/arrays/u/data?{query}", accept=PNG))
        data = json.loads(re.search(r"data: (.*)\n", frame.body.decode())[1])
        assert png(data) == r.body and data["range"] == [float(x) for x in r.headers["Arrayd-Range"].split()]


@pytest.mark.in_turn
def test_while_a_program_runs(api):
    """Frames come by themselves, each another; no more of them than the interval allows."""
    hold(api, "u", np.random.default_rng(2).normal(size=(64, 64)))
    with Stream(api, "/v1/arrays/u/events?frames=true&lo=-1&hi=1&interval=0.2") as s, Stream(api, "/v1/arrays/u/events") as changes:
        s.wait("frame")
        began = time.monotonic()
        ref = start(api, ["u = where(u > 1, u - 2, u + 0.0131)"])
        s.wait("frame", 6)
        took = time.monotonic() - began
        changes.wait("changed", 4)
        api.expect(200, api.delete(f"/v1/jobs/{ref}"))
        assert took > 4 * 0.2
        assert len({e[2]["png"] for e in s.named("frame")[1:6]}) == 5
        time.sleep(1)
        n = len(s.events)
        time.sleep(0.5)
        assert len(s.events) == n
        last = api.expect(200, api.get("/v1/arrays/u/data?lo=-1&hi=1", accept=PNG)).body
        assert png(s.named("frame")[-1][2]) == last  # the last state is shown, whatever came too fast before


def test_who_comes_back(api):
    api.upload(np.ones((3, 4)), "u")
    for query in ("", "?frames=true"):
        with Stream(api, f"/v1/arrays/u/events{query}") as s:
            name = "frame" if query else "changed"
            s.wait(name)
            last = s.events[0][1]
        with Stream(api, f"/v1/arrays/u/events{query}", **{"Last-Event-ID": last}) as s:
            time.sleep(0.5)
            assert not s.events
            api.expect(200, api.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
            s.wait(name)
        for unknown in (last, "x", "", "\"", "a" * 300, last + "0"):
            with Stream(api, f"/v1/arrays/u/events{query}", **{"Last-Event-ID": unknown}) as s:
                s.wait(name)


def test_bad_requests(api):
    hold(api, "u", np.ones((3, 4)))
    hold(api, "v", np.ones(3))
    for path, status, code in (("u/events?frames=maybe", 422, "bad_field"), ("u/events?interval=x", 422, "bad_field"), ("u/events?interval=-1", 422, "bad_field"),
                               ("u/events?interval=3601", 422, "bad_field"), ("u/events?cmap=gray", 422, "bad_field"), ("u/events?index=0", 422, "bad_field"),
                               ("u/events?frames=true&cmap=grey", 422, "bad_field"), ("u/events?frames=true&lo=1&hi=0", 422, "bad_field"),
                               ("u/events?frames=true&width=0", 422, "bad_field"), ("u/events?frames=true&index=0", 406, "not_acceptable"),
                               ("v/events?frames=true", 406, "not_acceptable"), ("u/events?dtype=int8", 400, "bad_query"), ("w/events", 404, "not_found"),
                               ("u/events?frames=true&index=9:7,7", 422, None), ("u/events?frames=true&index=,", 422, None)):
        r = api.get(f"/v1/arrays/{path}")
        assert r.status == status and code in (None, r.code), (path, r)
        assert path.startswith("w") or "interval" not in path or "interval" in r.json()["detail"]
    for path, status, code in (("?arrays=no", 422, "bad_field"), ("?arrays=false&jobs=0", 422, "bad_field"), ("?frames=true", 400, "bad_query")):
        api.fails(status, code, api.get(f"/v1/events{path}"))
    for path in ("/v1/events", "/v1/arrays/u/events"):
        api.fails(406, "not_acceptable", api.get(path, accept=JSON))
        api.fails(404, "not_found", api.get(path, headers={"Arrayd-Session": "s-" + "0" * 22}))
        assert api.expect(200, api.request("HEAD", path)).body == b""


@pytest.mark.in_turn
def test_a_frame_that_cannot_be_made(api):
    """Is said once; when it can be made again it comes."""
    api.upload(np.ones((6, 8)), "u")
    with Stream(api, "/v1/arrays/u/events?frames=true&index=3:,:") as s:
        s.wait("frame")
        api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [48]}))
        problem = s.wait("error")
        api.contract.validate({"$ref": "#/components/schemas/Problem"}, problem, "error")
        assert problem["status"] == 422
        time.sleep(1.5)
        assert len(s.named("error")) == 1
        api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [12, 4]}))
        s.wait("frame", 2)


def test_a_condition_is_not_of_the_stream(api):
    api.upload(np.ones((6, 8)), "u")
    for match in ('"of-what-was"', "*"):
        with Stream(api, "/v1/arrays/u/events?frames=true", **{"If-Match": match}) as s:
            s.wait("frame")
    api.fails(412, "precondition_failed", api.get("/v1/arrays/u/data", accept=PNG, headers={"If-Match": '"of-what-was"'}))


# --- limits ---

def slow(c, path):
    """A client that has asked and does not read."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(30)
    s.connect((c.host, c.port))
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return s


def figure(c, name):
    return float(re.search(rf"^{re.escape(name)} (.*)$|\Z", c.get("/metrics").body.decode(), re.M)[1] or 0)


def made(c):
    """How many pictures have been made so far."""
    return figure(c, 'arrayd_http_requests_total{route="/v1/arrays/{ref}/data",method="GET",status="200"}')


@pytest.mark.in_turn
def test_a_slow_reader(daemon_with):
    """For one that does not read one frame is kept, and no other is made, though the array changes all the time."""
    d = daemon_with("--event-interval", "0.02", "--event-bandwidth", "0", "--frame-time", "1")
    api = d.client()
    u = np.random.default_rng(3).integers(0, 255, size=(1200, 1200, 3)).astype(np.uint8)
    api.upload(u, "u")
    size = len(api.get("/v1/arrays/u/data?width=1200", accept=PNG).body)
    assert size > 3 << 20  # more than the sockets take
    ref = start(api, ["u = u + 1"])
    before = made(api)
    s = slow(api, "/v1/arrays/u/events?frames=true&width=1200")
    until(lambda: made(api) > before)
    time.sleep(2)
    assert made(api) <= before + 2, "frames are made that nobody reads"
    assert figure(api, "arrayd_request_memory_bytes") < 3 * size  # in base64, in a block that grows by doubling
    got = b""
    while got.count(b"event: frame") < 3:
        got += s.recv(1 << 20)
    until(lambda: made(api) >= before + 2)
    s.close()
    n = made(api)
    time.sleep(1)
    assert made(api) <= n + 1
    api.expect(200, api.delete(f"/v1/jobs/{ref}"))
    api.close()


def rate(api, query="", seconds=2.0):
    """Frames a second, and bytes of pictures a second."""
    with Stream(api, f"/v1/arrays/u/events?frames=true&{query}") as s:
        s.wait("frame")
        began, n = time.monotonic(), len(s.events)
        time.sleep(seconds)
        found = s.named("frame")[n:]
        took = time.monotonic() - began
    return len(found) / took, sum(e[2]["bytes"] for e in found) / took


@pytest.mark.in_turn
@pytest.mark.release_only
def test_limits(daemon_with):
    """Of time between events, of bytes a second, of what frames cost: each can be set, and /v1/info tells it."""
    c = daemon_with().client()
    limits = c.info()["limits"]
    assert (limits["event_interval"], limits["event_bandwidth"], limits["frame_time"]) == (0.1, 8 << 20, 0.02)
    c.close()
    for setting, value, most in (("--event-interval", "0.4", lambda f, b: 0 < f <= 3.5), ("--event-bandwidth", "100000", lambda f, b: 0 < b <= 120000),
                                 ("--frame-time", "0.001", lambda f, b: f <= 2)):
        settings = {"--event-interval": "0.02", "--event-bandwidth": "0", "--frame-time": "1", setting: value}
        d = daemon_with(*[x for pair in settings.items() for x in pair])
        api = d.client()
        api.upload(np.random.default_rng(4).normal(size=(200, 200)), "u")
        ref = start(api, ["u = u + 1"])
        frames, sent = rate(api)
        assert most(frames, sent), (setting, frames, sent)
        assert rate(api, "interval=1.5")[0] <= 1
        api.expect(200, api.delete(f"/v1/jobs/{ref}"))
        api.close()
        d.stop()


def test_a_frame_that_does_not_fit(daemon_with):
    """Its event takes 4 MiB beside the file's 2, where the pixels took 1.6: that is told as any frame that cannot be made, and the stream goes on."""
    d = daemon_with("--max-request-memory", "5800KiB", "--request-memory", "64MiB", "--event-bandwidth", 0)
    api = d.client()
    api.upload(np.random.default_rng(3).random((1265, 1265), dtype="float32"), "u")
    query = "width=1265&height=1265"
    assert api.get(f"/v1/arrays/u/data?{query}", headers={"Accept": "image/png"}).status == 200
    with Stream(api, f"/v1/arrays/u/events?frames=true&{query}") as s:
        assert s.wait("error")["code"] == "out_of_memory"
        api.expect(204, api.delete("/v1/arrays/u"))
        assert s.wait("end")["reason"] == "deleted"
    api.close()


# --- lists ---

@pytest.mark.in_turn
def test_lists_that_do_not_fit(daemon_with):
    """A stream that knows more than its user may hold says so, and is over."""
    d = daemon_with("--request-memory", "256KiB", "--max-request-memory", "128KiB")
    api = d.client()
    for i in range(2600):
        api.create(shape=[1])
    with Stream(api, "/v1/events") as s:
        assert s.wait("end")["reason"] == "out_of_memory"
    api.close()


@pytest.mark.in_turn
def test_the_lists(api):
    """All there is at first; then what is made, renamed, written, deleted, begun and ended, and nothing else."""
    hold(api, "old", np.ones(3))
    job_before = start(api, ["old += 1"], steps=1)
    with Stream(api, "/v1/events") as s:
        arrays, jobs = s.wait("arrays"), s.wait("jobs")
        assert arrays["first"] and "old" in {a["name"] for a in arrays["arrays"]} and arrays["gone"] == arrays["written"] == []
        assert jobs["first"] and job_before in {j["id"] for j in jobs["jobs"]}
        for found, schema in ((arrays["arrays"], "ArrayList"), (jobs["jobs"], "JobList")):
            api.contract.validate({"$ref": f"#/components/schemas/{schema}"}, {schema[:-4].lower() + "s": found}, schema)
        u = api.upload(np.ones((2, 3)), "u")["id"]

        def told(test):
            until(lambda: any(e[0] == "arrays" and test(e[2]) for e in list(s.events)))

        told(lambda d: any(a["id"] == u and a["name"] == "u" for a in d["arrays"]))
        api.expect(200, api.patch(f"/v1/arrays/{u}", {"name": "renamed_by_it"}))
        told(lambda d: any(a["id"] == u and a["name"] == "renamed_by_it" for a in d["arrays"]))
        api.expect(200, api.post("/v1/evaluate", {"expr": "renamed_by_it + 1", "out": "renamed_by_it"}))
        told(lambda d: u in d["written"])
        api.expect(204, api.delete(f"/v1/arrays/{u}"))
        told(lambda d: d["gone"] == [u])
        ref = start(api, ["old += 1"])
        until(lambda: any(j["id"] == ref and j["state"] == "running" for e in s.named("jobs") for j in e[2]["jobs"]))
        api.expect(200, api.delete(f"/v1/jobs/{ref}"))
        until(lambda: any(j["id"] == ref and j["state"] == "cancelled" for e in s.named("jobs") for j in e[2]["jobs"]))
        api.expect(204, api.delete(f"/v1/jobs/{ref}"))
        until(lambda: any(ref in e[2]["gone"] for e in s.named("jobs")))
        time.sleep(0.5)
        n = len(s.events)
        time.sleep(0.7)
        assert len(s.events) == n
    for query, names in (("jobs=false", {"arrays"}), ("arrays=0", {"jobs"})):
        with Stream(api, f"/v1/events?{query}") as s:
            s.wait(*names)
            time.sleep(0.3)
            assert {e[0] for e in s.events} == names


def replay(events):
    """The list of arrays that a client has after these events: id and name, in order of their coming."""
    held = {}
    for name, _, d in events:
        if name == "arrays":
            for a in d["arrays"]:
                held[a["id"]] = a["name"]
            for ref in d["gone"]:
                held.pop(ref, None)
    return held


def test_long_lists(daemon_with):
    """More than one event tells: in parts, and many that go at once; what a client puts together is the list."""
    api = daemon_with("--event-interval", "0.05").client()
    c = api.clone(session=api.expect(201, api.post("/v1/sessions", {})).json()["id"])
    other = api.clone(session=api.expect(201, api.post("/v1/sessions", {})).json()["id"])
    for k in range(300):
        c.create(name=f"a{k}", shape=[1])
    with Stream(c, "/v1/events?jobs=false") as s:
        until(lambda: s.named("arrays") and not s.named("arrays")[-1][2]["more"])
        parts = [e[2] for e in s.events]
        assert len(parts) > 2 and [p["first"] for p in parts] == [True] + [False] * (len(parts) - 1)
        assert [p["more"] for p in parts] == [True] * (len(parts) - 1) + [False]
        assert len(replay(s.events)) == 300
        other.create(name="elsewhere", shape=[1])
        rng = np.random.default_rng(5)
        for k in range(200):  # as it comes: what is made, renamed and deleted while passes are under way
            what = rng.integers(3)
            names = [a["name"] for a in c.list_all("/v1/arrays", "arrays")] if k % 50 == 0 else names
            victim = names.pop(rng.integers(len(names)))
            if what == 0:
                c.expect(204, c.delete(f"/v1/arrays/{victim}"))
            elif what == 1:
                c.expect(200, c.patch(f"/v1/arrays/{victim}", {"name": f"r{k}"}))
                names.append(f"r{k}")
            else:
                c.create(name=f"n{k}", shape=[1])
                names.append(victim)
        until(lambda: replay(list(s.events)) == {a["id"]: a["name"] for a in c.list_all("/v1/arrays", "arrays")})
        api.expect(204, api.delete(f"/v1/sessions/{c.session}"))
        assert s.ended() == "session_ended"
    for x in (other, c, api):
        x.close()


def test_a_long_list_is_told_soon(daemon_with):
    """What changes at its end comes when the few pages before it have been looked at, not one look at the clock for each of them."""
    c = daemon_with("--event-interval", "0.01").client()
    ids = [c.create(shape=[1])["id"] for _ in range(1000)]
    with Stream(c, "/v1/events?jobs=false") as s:
        until(lambda: len(replay(s.events)) == 1000)
        began = time.monotonic()
        for k in range(10):
            c.expect(200, c.patch(f"/v1/arrays/{ids[-1]}", {"name": f"r{k}"}))
            until(lambda k=k: replay(s.events)[ids[-1]] == f"r{k}")
        assert time.monotonic() - began < 2
    c.close()


# --- rights ---

def test_what_is_anothers(ann, bob):  # noqa: F811
    """Not an operator either sees another's arrays and jobs; a shared array can be watched until that ends."""
    ref = bob.upload(np.ones((3, 4)), "u")["id"]
    with Stream(ann, "/v1/events") as s:
        s.wait("jobs")
        job = start(bob, ["u += 1"])
        for query in ("", "?frames=true"):
            ann.fails(404, "not_found", ann.get(f"/v1/arrays/{ref}/events{query}"))
        bob.expect(201, bob.post(f"/v1/arrays/{ref}/shares", {"principal": "ann", "access": "read"}))
        with Stream(ann, f"/v1/arrays/{ref}/events?frames=true") as frames, Stream(ann, f"/v1/arrays/{ref}/events") as changes:
            frames.wait("frame", 2)
            changes.wait("changed", 2)
            assert all(e[2]["read_only"] for e in changes.events) and ann.get(f"/v1/arrays/{ref}").json()["read_only"]
            bob.expect(204, bob.delete(f"/v1/arrays/{ref}/shares/ann"))
            assert frames.ended() == changes.ended() == "not_shared"
        bob.expect(200, bob.delete(f"/v1/jobs/{job}"))
        ann.fails(404, "not_found", ann.get(f"/v1/arrays/{ref}/events"))
        mine = ann.upload(np.ones(3), "mine")["id"]
        until(lambda: any(a["id"] == mine for e in s.named("arrays") for a in e[2]["arrays"]))
        said = json.dumps(s.events)
        assert ref not in said and job not in said
    bob.expect(201, bob.post(f"/v1/arrays/{ref}/shares", {"principal": "ann", "access": "read"}))
    with Stream(ann, f"/v1/arrays/{ref}/events") as s:
        assert s.wait("changed")["read_only"]
        for n, access in enumerate(("write", "read"), 2):
            bob.expect(200, bob.post(f"/v1/arrays/{ref}/shares", {"principal": "ann", "access": access}))
            assert s.wait("changed", n)["read_only"] == (access == "read")
        bob.expect(204, bob.delete(f"/v1/arrays/{ref}"))
        assert s.ended() in ("deleted", "not_shared")


def test_links(ann, bob, opened):  # noqa: F811
    """One that shows an array shows its frames, and no list; its end is told, and so is that of one that shows all."""
    u, v = (bob.upload(np.ones((3, 4)), name)["id"] for name in "uv")
    lent = ann.upload(np.ones((3, 4)), "lent")["id"]
    ann.expect(201, ann.post(f"/v1/arrays/{lent}/shares", {"principal": "bob", "access": "read"}))
    some, whole = make(bob, arrays=["u"]), make(bob)
    c, all_of_it = opened(some), opened(whole)
    for x in (c, all_of_it):
        x.fails(404, "not_found", x.get(f"/v1/arrays/{lent}/events"))
    for path in ("/v1/events", f"/v1/arrays/{v}/events", "/v1/arrays/u/events"):
        assert c.get(path).status in (403, 404), path
    with Stream(c, f"/v1/arrays/{u}/events?frames=true") as one, Stream(all_of_it, "/v1/events") as lists, Stream(bob, "/v1/events") as own:
        one.wait("frame")
        bob.expect(200, bob.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
        one.wait("frame", 2)
        assert {a["id"] for a in lists.wait("arrays")["arrays"]} == {u, v}
        for link in (some, whole):
            bob.expect(204, bob.delete(f"/v1/links/{link['id']}"))
        assert one.ended() == lists.ended() == "login_ended"
        own.wait("jobs")
        assert not own.over and not own.cut


# --- how they end ---

def test_accounts_that_end(house, accounts, bob):  # noqa: F811
    bob.upload(np.ones((3, 4)), "u")
    streams = [Stream(bob, p) for p in ("/v1/arrays/u/events?frames=true", "/v1/arrays/u/events", "/v1/events")]
    for s in streams:
        until(lambda s=s: s.events)
    accounts.write(re.sub(r"(?ms)^\[bob\].*?(?=^\[|\Z)", "", accounts.path.read_text()))
    accounts.reload(house)
    assert [s.ended() for s in streams] == ["login_ended"] * 3
    for s in streams:
        s.close()


def test_sessions_that_end(api):
    c = api.clone(session=api.expect(201, api.post("/v1/sessions", {})).json()["id"])
    c.upload(np.ones((3, 4)), "u")
    streams = [Stream(c, p) for p in ("/v1/arrays/u/events?frames=true", "/v1/arrays/u/events", "/v1/events")]
    for s in streams:
        until(lambda s=s: s.events)
    api.expect(204, api.delete(f"/v1/sessions/{c.session}"))
    assert [s.ended() for s in streams] == ["session_ended"] * 3
    for s in streams:
        s.close()
    c.close()


def test_a_daemon_that_stops(daemon_with):
    d = daemon_with()
    c = d.client()
    c.upload(np.ones((3, 4)), "u")
    start(c, ["u += 1"])
    streams = [Stream(c, p) for p in ("/v1/arrays/u/events?frames=true", "/v1/arrays/u/events", "/v1/events")]
    for s in streams:
        until(lambda s=s: s.events)
    began = time.monotonic()
    d.stop()
    assert time.monotonic() - began < 10
    assert [s.ended() for s in streams] == ["stopping"] * 3
    for s in streams:
        s.close()


def test_nothing_stays(daemon_with):
    """Streams that come, break off anywhere and go leave nothing behind: no memory, no references, no requests under way."""
    d = daemon_with("--event-interval", "0.01", "--frame-time", "1")
    c = d.client()
    ref = c.upload(np.random.default_rng(6).normal(size=(80, 90)), "u")["id"]
    job = start(c, ["u = u * 0.5 + 1"])
    rng = np.random.default_rng(7)
    for k in range(60):
        path = ["/v1/arrays/u/events?frames=true", "/v1/arrays/u/events", "/v1/events", "/v1/arrays/u/events?frames=true&percentiles=1,99"][k % 4]
        s = slow(c, path)
        if k % 3:
            s.recv(int(rng.integers(1, 5000)))
        time.sleep(float(rng.random()) * 0.02)
        s.close()
    c.expect(200, c.delete(f"/v1/jobs/{job}"))
    c.expect(204, c.delete(f"/v1/jobs/{job}"))
    until(lambda: figure(c, "arrayd_http_connections") == figure(c, "arrayd_http_requests_in_flight") == 1)
    until(lambda: figure(c, "arrayd_request_memory_bytes") == 0)
    assert c.meta(ref)["references"] == 1
    c.close()
