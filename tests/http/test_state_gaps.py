"""Snapshots while work does not end: nobody's work keeps others' arrays out, nor takes away what was saved."""
import json

import numpy as np
import pytest

ENDLESS = "*0 + sum(sin(broadcast_to(s, [100000000, 1000])))"  # days, for what it is written to


@pytest.fixture
def two(daemon_with, accounts, tmp_path):
    """start() gives a daemon that keeps its state, with clients of ann and bob."""
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")

    def start(*args):
        d = daemon_with("--backend", "cpu", "--state-dir", tmp_path / "state", "--accounts", accounts.path, *args)  # a GPU is not busy for long
        ann, bob = (accounts.client(d, name) for name in ("ann", "bob"))
        if bob.get("/v1/arrays/s").status == 404:
            bob.upload(np.ones(1000), "s")
        return d, ann, bob

    return start


def killed(d, *clients):
    for c in clients:
        c.close()
    d.kill()


def snapshots(tmp_path):
    return sorted(p.name for p in tmp_path.glob("state/snapshot-*"))


def write_for_ever(c, *names):
    """The first does not end, and the others come behind it."""
    for name in names:
        c.expect(200, c.post("/v1/evaluate", {"expr": name + ENDLESS, "out": name}))


def test_what_is_not_ready_is_as_it_was(two, tmp_path):
    """Work without end writes to arrays: a snapshot has them as the last one did, linked or copied, and all else
    as it is now. Where it left one out, the snapshot before stays until there is a complete one."""
    d, ann, bob = two("--state-wait", "0.3")
    ann.upload(np.full(300, 41.0), "a")
    for n, name in ((1 << 17, "large"), (100, "small")):
        bob.upload(np.full(n, 7.0), name)
    first = ann.expect(200, ann.post("/v1/snapshot")).json()
    assert (first["earlier"], first["left_out"], first["gaps"]) == (0, 0, [])
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "a+1", "out": "a"}))
    bob.upload(np.zeros(10), "new")
    write_for_ever(bob, "large", "small")
    ids = {name: bob.meta(name)["id"] for name in ("large", "small", "new")}
    for _ in range(2):  # the second one is of what the first one was itself given
        r = ann.expect(200, ann.post("/v1/snapshot")).json()
        assert (r["arrays"], r["earlier"], r["left_out"], r["reused"]) == (5, 2, 0, 1 << 20)
        assert {(g["id"], g["principal"], g["contents"]) for g in r["gaps"]} == {(ids[x], "bob", "earlier") for x in ("large", "small")}
        assert {g["reason"] for g in r["gaps"]} == {"work is still writing to the array"} and len(snapshots(tmp_path)) == 1
    write_for_ever(bob, "new")
    bob.upload(np.zeros(10), "never")
    write_for_ever(bob, "never")
    before = snapshots(tmp_path)
    for _ in range(2):
        ann.expect(200, ann.post("/v1/evaluate", {"expr": "a+1", "out": "a"}))
        r = ann.expect(200, ann.post("/v1/snapshot")).json()
        assert (r["earlier"], r["left_out"]) == (3, 1) and bob.meta("never")["id"] in {g["id"] for g in r["gaps"] if g["contents"] == "none"}
        assert len(snapshots(tmp_path)) == 2 and set(before) < set(snapshots(tmp_path))
    figures = ann.get("/metrics").body.decode()
    assert "\narrayd_snapshot_earlier 3\n" in figures and "\narrayd_snapshot_left_out 1\n" in figures
    killed(d, ann, bob)

    d, ann, bob = two()
    assert (ann.download("a") == 44).all() and ann.meta("a")["restored_from"] == r["taken"]
    assert (bob.download("large") == 7).all() and (bob.download("small") == 7).all()
    assert bob.meta("large")["restored_from"] == bob.meta("small")["restored_from"] == first["taken"]
    bob.fails(404, "not_found", bob.get("/v1/arrays/never"))
    assert len(snapshots(tmp_path)) == 2 and set(before) < set(snapshots(tmp_path))
    r = ann.expect(200, ann.post("/v1/snapshot")).json()
    assert (r["earlier"], r["left_out"]) == (0, 0) and r["reused"] == 1 << 20 and len(snapshots(tmp_path)) == 1
    ann.close(), bob.close()


def test_what_stays_beside_stays_without_a_pointer_too(two, tmp_path):
    """'current' is lost: the snapshot that leaves one out still names the one before it, which a next such one keeps."""
    d, ann, bob = two("--state-wait", "0.2")
    ann.expect(200, ann.post("/v1/snapshot"))
    for lost in (False, True):
        bob.upload(np.zeros(10), "never")
        write_for_ever(bob, "never")
        whole = snapshots(tmp_path)[0]
        assert ann.expect(200, ann.post("/v1/snapshot")).json()["left_out"] == 1
        assert snapshots(tmp_path)[0] == whole and len(snapshots(tmp_path)) == 2
        killed(d, ann, bob)
        if not lost:
            (tmp_path / "state" / "current").unlink()
            d, ann, bob = two("--state-wait", "0.2")
            assert "'current' is missing" in d.log()


def test_the_last_one_does_not_wait_either(two, tmp_path):
    """At SIGTERM, too: whatever had been saved is there afterwards."""
    d, ann, bob = two("--state-wait", "0.2", "--drain-timeout", "0.2")
    ann.upload(np.full(1 << 17, 1.0), "a")
    bob.upload(np.full(100, 7.0), "v")
    ann.expect(200, ann.post("/v1/snapshot"))
    before = snapshots(tmp_path)
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "a+1", "out": "a"}))
    bob.upload(np.zeros(10), "new")
    write_for_ever(bob, "v", "new")
    new = bob.meta("new")["id"]
    ann.close(), bob.close()
    d.expected = 1
    d.stop()
    assert any(new in line and "an array is missing from the snapshot" in line for line in d.log().splitlines())
    assert set(before) < set(snapshots(tmp_path))
    d, ann, bob = two()
    assert (ann.download("a") == 2).all() and (bob.download("v") == 7).all()
    bob.fails(404, "not_found", bob.get("/v1/arrays/new"))
    ann.close(), bob.close()


def test_only_the_same_memory_stands_in(two, tmp_path):
    """What has been reshaped since has its elements; what takes an array's place, or its name, has none of that."""
    d, ann, bob = two("--state-wait", "0.2")
    bob.upload(np.arange(6.0).reshape(2, 3), "v")
    bob.create(shape=[6, 4], dtype="float64", fill=1, ghost=[1, 0], name="g")
    bob.upload(np.arange(5.0), "w")
    ann.expect(200, ann.post("/v1/snapshot"))
    bob.expect(200, bob.post("/v1/arrays/v/resize", {"shape": [3, 2]}))
    bob.expect(200, bob.post("/v1/arrays/g/resize", {"shape": [2, 8]}))  # as many bytes with its ghosts
    bob.expect(204, bob.delete("/v1/arrays/w"))
    bob.upload(np.zeros(5), "w")
    write_for_ever(bob, "v", "g", "w")
    r = ann.expect(200, ann.post("/v1/snapshot")).json()
    assert (r["earlier"], r["left_out"]) == (1, 2) and len(snapshots(tmp_path)) == 2
    killed(d, ann, bob)
    d, ann, bob = two()
    assert bob.download("v").tolist() == [[0, 1], [2, 3], [4, 5]]
    assert [a["name"] for a in bob.list_all("/v1/arrays", "arrays")] == ["s", "v"]
    ann.close(), bob.close()


def test_principals_take_turns(two, tmp_path):
    """In the file of small memories is what is written first, first: one array of ann's is not behind all of bob's."""
    d, ann, bob = two()
    for k in range(60):
        bob.create(shape=[100], name=f"b{k}")
    ann.create(shape=[60000], dtype="float64", name="a")
    bob.create(shape=[60000], dtype="float64", name="as_large")
    ann.expect(200, ann.post("/v1/snapshot"))
    manifest = json.loads(next(tmp_path.glob("state/snapshot-*/manifest.json")).read_text())
    at = {a["name"]: manifest["memories"][a["memory"]]["at"] for p in manifest["principals"] for a in p["arrays"]}
    by = sorted(at, key=at.get)
    assert 1 <= by.index("a") <= 20 and by[-1] == "as_large"
    ann.close(), bob.close()


def test_what_is_ready_needs_no_waiting(gpu_with, tmp_path):
    """Its bytes are a moment on their way from a device, which is no work's."""
    d = gpu_with("--state-dir", tmp_path / "state", "--state-wait", "0")
    c = d.client()
    for k in range(10):
        c.upload(np.full(300000, float(k)), f"a{k}")
    c.quiet()
    r = c.expect(200, c.post("/v1/snapshot")).json()
    assert (r["arrays"], r["gaps"]) == (10, [])
    c.close()
