"""What survives a restart (--state-dir): server/state, docs/state.md. test_state_faults.py has what
goes wrong."""
import threading
import time

import numpy as np
import pytest

from client import DTYPES, OCTETS
from conftest import until

BACKENDS = ("cpu", "cuda")
WIDTH = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4,
         "uint32": 4, "float32": 4, "complex128": 16}


@pytest.fixture
def kept(daemon_with, gpu_with, tmp_path):
    """start(*options, backend=) gives a daemon whose state is in tmp_path/state, and a client."""

    def start(*args, backend="cpu", **kw):
        d = (gpu_with if backend == "cuda" else daemon_with)("--state-dir", tmp_path / "state", *args, **kw)
        return d, d.client()

    return start


def again(start, d, c, *args, **kw):
    c.close()
    d.stop()
    return start(*args, **kw)


def raw(c, ref):
    return c.expect(200, c.get(f"/v1/arrays/{ref}/data")).body


def everything(c):
    """All that a client can see of its arrays, sessions and functions."""
    seen = {}
    sessions = c.list_all("/v1/sessions", "sessions")
    for s in sessions:
        mine = c.clone(session=s["id"])
        for a in mine.list_all("/v1/arrays", "arrays"):
            a.pop("restored_from", None)
            seen[a["id"]] = a, raw(c, a["id"])
        mine.close()
    for s in sessions:
        del s["device_s"]  # of this process alone
    return seen, sessions, c.list_all("/v1/functions", "functions")


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_type(kept, backend):
    d, c = kept(backend=backend)
    rng = np.random.default_rng(5)
    for t in DTYPES:
        body = rng.integers(0, 2 if t == "bool" else 256, 80 * WIDTH.get(t, 8), dtype=np.uint8).tobytes()
        c.expect(201, c.request("POST", f"/v1/arrays?dtype={t}&shape=16,5&name=x_{t}", body, content_type=OCTETS))
        assert raw(c, f"x_{t}") == body
    c.create(shape=[0, 3], name="empty")
    c.create(data=7, name="scalar")
    c.create(shape=[1200000], dtype="float64", name="large", random={"distribution": "uniform", "seed": 4})
    before = everything(c)
    assert len(before[0]) == len(DTYPES) + 3
    d, c = again(kept, d, c, backend=backend)
    assert everything(c) == before
    # they are arrays like any other
    assert c.evaluate("sum(large*2)") == pytest.approx(2 * c.download("large").sum())
    assert c.expect(200, c.post("/v1/evaluate", {"expr": "x_float32 + 1", "out": "x_float32"}))
    assert [a["name"] for a in c.list_all("/v1/arrays", "arrays")][:2] == ["x_bool", "x_int8"]
    assert raw(c, "x_bool") == before[0][c.get("/v1/arrays/x_bool").json()["id"]][1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_ghosts_and_marks(kept, backend):
    d, c = kept(backend=backend)
    c.upload(np.arange(24, dtype="float32").reshape(4, 6), "u")
    view = lambda ref, **f: c.expect(201, c.post(f"/v1/arrays/{ref}/views", f)).json()
    view("u", index="::-1, 1:5:2", name="v")
    view("v", permute=[1, 0], name="w")
    view("u", dtype="int32", name="bits")
    view("u", name="same")
    c.create(shape=[5, 7], dtype="float64", ghost=[2, 1], spacing=[0.5, 1e-3], fill=2.5, name="g",
             boundary=["periodic", [{"type": "dirichlet", "value": 1.5}, {"type": "neumann", "value": "NaN"}]])
    view("g", ghost=True, name="whole")
    c.create(shape=[3, 17], dtype="complex64", fill=[1, -2], name="z", spacing=[1, 2],
             boundary=["periodic", [{"type": "dirichlet", "value": [1, 2]}, {"type": "none"}]])
    c.create(shape=[4, 4], congruent_to="g", name="congruent")
    c.create(data=[True, False, True], name="b")
    view("b", dtype="uint8", name="b_bits")
    c.expect(200, c.patch("/v1/arrays/u", {"read_only": True}))
    gone = view("same", index="0:2", name="child")
    view("child", index="1:", name="orphan")
    c.expect(204, c.delete("/v1/arrays/child"))
    c.expect(200, c.post("/v1/arrays/g/fill_ghost"))
    c.expect(200, c.patch("/v1/arrays/congruent", {"location": "host"}))
    c.quiet()
    before = everything(c)
    d, c = again(kept, d, c, backend=backend)
    c.quiet()
    assert everything(c) == before
    assert c.meta("congruent")["location"] == "host"
    assert c.meta("w")["view_of"] == c.meta("v")["id"] and "view_of" not in c.meta("orphan")
    assert c.meta("u")["references"] == 6
    c.fails(409, "read_only", c.put("/v1/arrays/v/data", 3))
    c.fails(409, "read_only", c.put("/v1/arrays/orphan/data", 3))
    c.expect(200, c.patch("/v1/arrays/u", {"read_only": False}))
    c.expect(204, c.request("PUT", "/v1/arrays/bits/data", json_body=[[0] * 6] * 4))
    assert not c.download("u").any() and not c.download("orphan").any()
    # a bool that was written as something else is still read as 0 or 1
    c.expect(204, c.request("PUT", "/v1/arrays/b_bits/data", json_body=[0, 2, 255]))
    assert raw(c, "b") == b"\0\1\1"
    c.expect(200, c.post("/v1/evaluate", {"expr": "shift(g, [1, 1], boundary='ghost')", "out": "g"}))
    c.expect(204, c.delete("/v1/arrays/b_bits"))
    d, c = again(kept, d, c, backend=backend)
    assert raw(c, "b") == b"\0\1\1"
    assert gone["id"] not in everything(c)[0]


@pytest.mark.in_turn
def test_sessions(kept):
    d, c = kept("--session-memory", "1MiB")
    default = c.get("/v1/sessions/default").json()
    del default["device_s"]
    made = [c.expect(201, c.post("/v1/sessions", body)).json()
            for body in ({"name": "one", "ttl_s": 3}, {"memory_limit": 4096}, {})]
    for s in made:
        mine = c.clone(session=s["id"])
        mine.create(shape=[16], name="u", dtype="float64", fill=made.index(s))
        mine.close()
    before = everything(c)
    d, c = again(kept, d, c, "--session-memory", "1MiB", "--max-sessions", "1", "--max-arrays", "1")
    after = everything(c)
    assert after == before and after[1][0] == default | {"bytes_in_use": 0}
    mine = c.clone(session=made[1]["id"])
    e = mine.fails(429, "quota_exceeded", mine.post("/v1/arrays", {"shape": [4096], "name": "large"}))
    mine.close()
    c.fails(429, "quota_exceeded", c.post("/v1/sessions", {}))
    until(lambda: c.get(f"/v1/sessions/{made[0]['id']}").status == 404)
    assert c.get(f"/v1/sessions/{made[1]['id']}").status == 200


def test_a_limit_lowered_for_a_while(kept):
    limits = lambda: [s.get("memory_limit") for s in c.list_all("/v1/sessions", "sessions")]
    d, c = kept()
    c.expect(201, c.post("/v1/sessions", {"memory_limit": 5 * 10**8}))
    assert limits() == [None, 5 * 10**8]
    d, c = again(kept, d, c, "--session-memory", "1MiB")
    assert limits() == [2**20, 2**20]
    d, c = again(kept, d, c)
    assert limits() == [None, 5 * 10**8]


def test_functions(kept):
    d, c = kept()
    define = lambda name, params, **what: c.expect(201, c.post("/v1/functions", {"name": name, "params": params, **what}))
    define("f", ["x"], expr="x*2")
    define("g", ["x", "y"], expr="x + y")
    define("h", ["x"], tree={"op": "multiply", "args": ["x", "k"]})
    c.expect(200, c.put("/v1/functions/f", {"params": ["x"], "expr": "g(x, 3)"}))
    define("gone", ["x"], expr="x")
    define("caller", ["x"], expr="gone(x)")
    c.expect(204, c.delete("/v1/functions/gone"))
    c.create(data=[1.0, 2.0], name="k")
    before = everything(c)
    d, c = again(kept, d, c)
    assert everything(c) == before
    assert c.evaluate("f(h(k))").tolist() == [4.0, 7.0]
    c.fails(422, "unknown_operation", c.post("/v1/evaluate", {"expr": "caller(k)"}))
    c.fails(422, "recursion", c.put("/v1/functions/g", {"params": ["x", "y"], "expr": "f(x)+y"}))
    define("new", ["x"], expr="x")
    assert [f["name"] for f in c.list_all("/v1/functions", "functions")] == ["f", "g", "h", "caller", "new"]


def test_shares(daemon_with, accounts, tmp_path):
    for name in ("ann", "bob", "carl"):
        accounts.add(name, role="operator" if name == "ann" else "user")

    def start():
        d = daemon_with("--state-dir", tmp_path / "state", "--accounts", accounts.path)
        return d, *(accounts.client(d, name) for name in ("ann", "bob"))

    d, ann, bob = start()
    u, v, w = (ann.upload(np.arange(4.0), name)["id"] for name in "uvw")
    bob.upload(np.arange(9), "u")
    ann.expect(201, ann.post("/v1/arrays/u/shares", {"principal": "bob", "access": "read"}))
    ann.expect(201, ann.post("/v1/arrays/v/shares", {"principal": "bob", "access": "write"}))
    ann.expect(201, ann.post("/v1/arrays/w/shares", {"principal": "bob", "access": "write"}))
    ann.expect(204, ann.delete("/v1/arrays/w"))
    before = everything(ann), everything(bob)
    ann.close(), bob.close()
    d.stop()
    d, ann, bob = start()
    assert (everything(ann), everything(bob)) == before
    assert bob.download(u).tolist() == [0, 1, 2, 3]
    bob.fails(403, "forbidden", bob.put(f"/v1/arrays/{u}/data", [1.0] * 4))
    bob.expect(204, bob.put(f"/v1/arrays/{v}/data", [1.0] * 4))
    bob.fails(404, "not_found", bob.get(f"/v1/arrays/{w}"))
    bob.fails(404, "not_found", bob.get("/v1/arrays/v"))
    assert ann.get("/v1/arrays/v/shares").json() == {"shares": [{"principal": "bob", "access": "write"}]}
    bob.fails(403, "forbidden", bob.post("/v1/snapshot"))
    assert ann.expect(200, ann.post("/v1/snapshot")).json()["arrays"] == 3
    ann.close(), bob.close()


def test_where_it_is_from(kept):
    d, c = kept()
    a = c.upload(np.arange(3.0), "a")
    assert "restored_from" not in a and c.info()["state"] == {"kept": True, "restored_from": None}
    tag = c.get("/v1/arrays/a/data").headers["ETag"]
    assert c.get("/v1/arrays/a/data", headers={"If-None-Match": tag}).status == 304
    d, c = again(kept, d, c)
    a = c.get("/v1/arrays/a").json()
    assert a["restored_from"] > a["created"]
    assert c.info()["state"]["restored_from"] == a["restored_from"]
    # another process's tags say nothing about these contents
    assert c.get("/v1/arrays/a/data", headers={"If-None-Match": tag}).status == 200
    r = c.request("PUT", "/v1/arrays/a/data", json_body=[1.0] * 3, headers={"If-Match": tag})
    c.fails(412, "precondition_failed", r)
    assert "restored_from" not in c.create(shape=[2], name="new")
    d, c = again(kept, d, c)
    b = c.get("/v1/arrays/a").json()
    assert b["restored_from"] == c.get("/v1/arrays/new").json()["restored_from"] > a["restored_from"]


def test_on_demand(kept, daemon_with):
    d, c = kept()
    c.upload(np.arange(1000.0), "a")
    r = c.expect(200, c.post("/v1/snapshot")).json()
    assert (r["arrays"], r["left_out"]) == (1, 0) and 8000 < r["bytes"] < 20000 and 0 < r["seconds"] < 30
    figures = c.get("/metrics").body.decode()
    assert '\narrayd_snapshots_total{result="taken"} 1\n' in figures and f"\narrayd_snapshot_bytes {r['bytes']}\n" in figures
    c.upload(np.arange(10.0), "b")
    c.close()
    d.kill()
    d, c = kept()
    assert [a["name"] for a in c.list_all("/v1/arrays", "arrays")] == ["a"]
    assert c.get("/v1/arrays/a").json()["restored_from"] == r["taken"]
    assert (c.download("a") == np.arange(1000.0)).all()
    c.fails(400, "bad_query", c.post("/v1/snapshot?now=1"))
    c.close()
    none = daemon_with().client()
    e = none.fails(409, "conflict", none.post("/v1/snapshot"))
    assert "--state-dir" in e["detail"] and none.info()["state"] == {"kept": False, "restored_from": None}
    none.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_while_others_write(kept, backend):
    """Every array is as it was at one moment: here each write makes all its elements the same."""
    d, c = kept(backend=backend)
    n = 1 << 18 if backend == "cpu" else 1 << 13
    for k in range(4):
        c.create(shape=[n], dtype="int64", name=f"a{k}")
    stop = threading.Event()
    taken = []

    def write(k):
        mine = c.clone()
        while not stop.is_set():
            mine.expect(200, mine.post("/v1/evaluate", {"expr": f"a{k} + 1", "out": f"a{k}"}))
        mine.close()

    def snap():
        mine = c.clone()
        while not stop.is_set():
            r = mine.post("/v1/snapshot")
            assert r.status in (200, 409), r
            taken.append(r.status)
        mine.close()

    threads = [threading.Thread(target=write, args=(k,)) for k in range(4)] + [threading.Thread(target=snap) for _ in range(2)]
    for t in threads:
        t.start()
    time.sleep(1)
    until(lambda: {200, 409} <= set(taken))
    stop.set()
    for t in threads:
        t.join()
    c.close()
    d.kill()
    d, c = kept(backend=backend)
    for k in range(4):
        a = c.download(f"a{k}")
        assert (a == a[0]).all() and a[0] > 0
    c.close()


def test_jobs_end_first(kept):
    """The last snapshot is of a whole step of a program."""
    d, c = kept()
    c.create(shape=[2000], dtype="int64", name="u")
    c.create(shape=[2000], dtype="int64", name="v")
    ref = c.expect(202, c.post("/v1/programs", {"bind": {}, "body": ["u += 1", "v += 1"], "steps": 100000000})).json()["id"]
    until(lambda: c.get(f"/v1/jobs/{ref}").json()["step"] > 0)
    d, c = again(kept, d, c)
    u, v = c.download("u"), c.download("v")
    assert u[0] > 0 and (u == u[0]).all() and (v == u).all()
    assert c.get("/v1/jobs").json() == {"jobs": []}
    c.close()


@pytest.mark.in_turn
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_has_not_changed_is_not_written_again(kept, tmp_path, backend):
    """Large memories of unchanged contents are linked into the next snapshot, over restarts too; whatever
    changes one, it is written."""
    d, c = kept(backend=backend)
    n, size = 1 << 17, 1 << 20
    for name in "abcde":
        c.create(shape=[n], dtype="int64", name=name, random={"distribution": "integers", "seed": ord(name), "low": 0, "high": 1 << 40})
    c.expect(201, c.post("/v1/arrays/a/views", {"index": "5:10", "name": "part"}))
    c.create(shape=[10], name="small")
    reused = lambda: c.expect(200, c.post("/v1/snapshot")).json()["reused"] // size
    same = lambda: {x: c.download(x).tolist() for x in "abcde"}
    assert reused() == 0 and reused() == 5 and reused() == 5
    changes = [
        (1, lambda: c.expect(204, c.put("/v1/arrays/part/data", [1, 2, 3, 4, 5]))),
        (1, lambda: c.expect(200, c.post("/v1/evaluate", {"expr": "b + 1", "out": "b"}))),
        (1, lambda: c.expect(200, c.post("/v1/evaluate", {"expr": "7", "out": "b", "index": "3"}))),
        (1, lambda: c.expect(204, c.request("PUT", "/v1/arrays/c/data", bytes(size), content_type=OCTETS))),
        (2, lambda: c.expect(200, c.post("/v1/arrays/d/swap", {"with": "e"}))),
        (1, lambda: c.expect(200, c.post("/v1/programs?wait=1", {"body": ["a += 1"], "steps": 5}))),
        (2, lambda: c.expect(200, c.post("/v1/programs?wait=1", {"body": ["a[1:] = b[:-1]", "b = b*3"], "steps": 3}))),
        (1, lambda: c.expect(200, c.post("/v1/evaluate", {"statements": ["c += 2"]}))),
        (0, lambda: c.expect(200, c.patch("/v1/arrays/d", {"location": "host"}))),
        (0, lambda: c.expect(200, c.patch("/v1/arrays/d", {"location": "device"}))),
        (0, lambda: c.fails(422, "bad_index", c.post("/v1/evaluate", {"expr": "take(a, b)", "out": "e"}))),
    ]
    for turn, (written, change) in enumerate(changes):
        change()
        want = same()
        assert reused() == 5 - written, turn
        if turn % 3 == 2 or turn == len(changes) - 1:  # as by kill -9: nothing is written at the end
            d.kill()
            c.close()
            d, c = kept(backend=backend)
            assert same() == want, turn
    before = same()
    d, c = again(kept, d, c, backend=backend)
    assert same() == before and reused() == 5
    c.expect(204, c.delete("/v1/arrays/e"))
    assert reused() == 4
    assert len(list(tmp_path.glob("state/*/memory-*"))) == 4
    c.close()
