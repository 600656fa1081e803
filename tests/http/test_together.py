"""Many clients at once on the same arrays: two principals, sessions of their own, shares, programs, views, moves, deletions. What
is read is always what some order of whole writes made; what ThreadSanitizer is to watch is here."""
import random
import threading
import time

import numpy as np
import pytest

from client import NPY, OCTETS

SHAPE = (64, 64)
FINE = {200, 201, 202, 204, 404, 409, 422, 429}


@pytest.fixture(params=["cpu", "cuda"])
def start(request, daemon_with, accounts, tmp_path):
    def run():
        for name in ("ann", "bob"):
            accounts.add(name, role="operator")
        args = ("--accounts", accounts.path, "--state-dir", tmp_path / "state", "--memory-limit", "64MiB", "--evict")
        run.daemon = daemon_with("--backend", "cpu", *args) if request.param == "cpu" else request.getfixturevalue("gpu_with")(*args)
        return lambda name: accounts.client(run.daemon, name)

    return run


def even(c, ref):
    """All elements are one and the same number: every write was whole."""
    r = c.get(f"/v1/arrays/{ref}/data", accept=NPY)
    if r.status == 200:
        a = r.npy()
        assert a.min() == a.max(), (ref, a.min(), a.max())
    assert r.status in FINE, r


def write(c, ref, rng):
    value = float(rng.randrange(1000))
    way = rng.randrange(4)
    if way == 0:
        r = c.put(f"/v1/arrays/{ref}/data", body=np.full(SHAPE, value).tobytes(), content_type=OCTETS)
    elif way == 1:
        r = c.post("/v1/evaluate", {"expr": "x*0 + v", "bind": {"x": ref, "v": value}, "out": ref})
    elif way == 2:
        r = c.post("/v1/evaluate", {"statements": ["x = x + 1", "x = x*0.5"], "bind": {"x": ref}, "results": []})
    else:
        r = c.post("/v1/programs?wait=1", {"body": ["x = x + 1"], "bind": {"x": ref}, "steps": 20, "record": {"m": "max(x) - min(x)"}})
        assert r.status != 200 or not any(r.json()["records"]["m"]), r
    assert r.status in FINE, r


def look(c, ref, rng):
    way = rng.randrange(5)
    if way == 0:
        r = c.post("/v1/evaluate", {"expr": "max(x) - min(x)", "bind": {"x": ref}, "inline": True})
        assert r.status != 200 or r.json()["value"] == 0, r
    elif way == 1:
        r = c.get(f"/v1/arrays/{ref}")
    elif way == 2:
        r = c.patch(f"/v1/arrays/{ref}", {"location": rng.choice(["host", "device"])})
        assert r.status in FINE | {403}, r
        return
    elif way == 3:
        r = c.post(f"/v1/arrays/{ref}/copy")
        if r.status == 201:
            even(c, r.json()["id"])
            c.delete(f"/v1/arrays/{r.json()['id']}")
    else:
        return even(c, ref)
    assert r.status in FINE, r


def things(c, ref, rng):
    """Sessions, functions, leases, jobs that are stopped: what else changes tables meanwhile."""
    s = c.post("/v1/sessions", {}).json()["id"]
    inside = c.clone(session=s)
    inside.create(name="own", shape=SHAPE, dtype="float64", fill=3)
    job = inside.post("/v1/programs", {"body": ["own = own + 1"], "steps": 10**9})
    assert inside.post("/v1/evaluate", {"expr": "sum(own + x)", "bind": {"x": ref}}).status in FINE
    lease = c.post(f"/v1/arrays/{ref}/lease", {"mode": "read", "ttl_s": 0.1})
    assert lease.status in FINE, lease
    if lease.status == 201:
        c.delete(f"/v1/arrays/{ref}/lease", headers={"Arrayd-Lease": lease.json()["token"]})
    if job.status == 202 and rng.random() < 0.5:
        inside.delete(f"/v1/jobs/{job.json()['id']}")
    c.put("/v1/functions/f", {"params": ["x"], "expr": f"x + {rng.randrange(9)}"})
    for path in ("/v1/info", "/metrics", "/v1/arrays", "/v1/jobs"):
        c.expect(200, c.get(path))
    inside.close()
    c.expect(204, c.delete(f"/v1/sessions/{s}"))


@pytest.mark.in_turn
def test_everybody_at_once(start):
    client = start()
    ann = client("ann")
    refs = [ann.create(shape=SHAPE, dtype="float64", fill=k)["id"] for k in range(2)]
    for ref in refs:
        ann.expect(201, ann.post(f"/v1/arrays/{ref}/shares", {"principal": "bob", "access": "write"}))
    failures, until = [], time.monotonic() + 4

    def one(name, work, seed):
        rng, c = random.Random(seed), client(name)
        try:
            while time.monotonic() < until and not failures:
                work(c, rng.choice(refs), rng)
        except BaseException as e:
            failures.append(repr(e)[:1000])
        finally:
            c.close()

    threads = [threading.Thread(target=one, args=(name, work, k)) for k, (name, work) in enumerate(
        [(n, w) for n in ("ann", "bob") for w in (write, write, look, look, things)])]
    for t in threads:
        t.start()
    while time.monotonic() < until:
        ann.expect(200, ann.post("/v1/snapshot")) if not failures else None
        ann.post(f"/v1/arrays/{refs[0]}/shares", {"principal": "bob", "access": "write"})
        time.sleep(0.2)
    for t in threads:
        t.join()
    assert not failures, failures
    for ref in refs:
        even(ann, ref)
        ann.expect(204, ann.delete(f"/v1/arrays/{ref}"))
    ann.close()
