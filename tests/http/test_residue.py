"""Reused memory never shows what another had in it: whatever way an array is made or changed, finished, refused or cut off,
nothing of what somebody else's array, temporary, upload or download held before is in it, beside it (ghosts, padding) or in the
snapshot on disk that has its whole memory."""
import http.client
import os
import pathlib
import re
import signal
import socket
import threading
import time

import numpy as np
import pytest

from client import JSON, NPY, OCTETS, npy_bytes
from conftest import until

BYTE = 0xA5  # what the fake driver has in memory that nobody has written
MARK = bytes([BYTE]) * 8
SIZES = [8, 100, 1000, 4096, 5000, 65536, 100_000, 1 << 20, 5 << 20]


@pytest.fixture(params=["cpu", "cpu-keeps", "cuda", "cuda-keeps"])
def two(request, daemon_with, accounts, tmp_path):
    accounts.add("ann", role="operator")
    accounts.add("bob", role="operator")
    backend, _, keeps = request.param.partition("-")
    args = ("--accounts", accounts.path, "--state-dir", tmp_path / "state", f"--keep-arrays={'yes' if keeps else 'no'}",
            "--restart-limit", 1000, "--restart-rate", 0, "--restart-wait", 0)
    d = (daemon_with("--backend", "cpu", *args) if backend == "cpu" else request.getfixturevalue("gpu_with")(*args))
    ann, bob = accounts.client(d, "ann"), accounts.client(d, "bob")
    two.daemon, two.state = d, tmp_path / "state"
    yield ann, bob
    for c in (ann, bob):
        c.close()


def fill(ann):
    """Ann's bytes everywhere: arrays of many sizes, temporaries, staging for both ways, then all of it given back."""
    for n in SIZES:
        for k in range(3):
            ann.expect(201, ann.request("POST", f"/v1/arrays?dtype=uint8&shape={n}&name=p{n}x{k}", bytes([BYTE]) * n, content_type=OCTETS))
        ann.expect(200, ann.get(f"/v1/arrays/p{n}x0/data", accept=OCTETS))
    n = 1 << 16
    ann.expect(201, ann.post("/v1/arrays", {"name": "q", "shape": [n], "dtype": "float64"}))
    ann.expect(204, ann.put("/v1/arrays/q/data", body=bytes([BYTE]) * (8 * n), content_type=OCTETS))
    for _ in range(3):
        ann.expect(200, ann.post("/v1/evaluate", {"statements": ["a = where(q == q, q, 0)", "b = cumulative_sum(a*0) + a", "q = b[::-1]"],
                                                  "results": []}))
    ann.expect(200, ann.get("/v1/arrays/q/data", accept=NPY))
    for a in ann.list_all("/v1/arrays", "arrays"):
        ann.expect(204, ann.delete(f"/v1/arrays/{a['id']}"))
    ann.quiet()


def clean_bytes(what, data):
    assert MARK not in data, f"{what}: another's bytes at {data.index(MARK)} of {len(data)}"


def look(c, what, after_a_death=False):
    """Every byte that can be asked for of every array."""
    seen = 0
    for a in c.list_all("/v1/arrays", "arrays"):
        for query in ("", "?ghost=1") if a.get("ghost") else ("",):
            r = c.get(f"/v1/arrays/{a['id']}/data{query}", accept=OCTETS)
            if after_a_death and r.status != 200:
                c.fails(409, "contents_lost", r)
                continue
            clean_bytes(f"{what} {a['name']}{query}", c.expect(200, r).body)
            seen += 1
    return seen


def cut(c, head, body):
    """A request whose body ends too early."""
    with socket.create_connection((two.daemon.host, two.daemon.port)) as s:
        s.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {c.always['Authorization']}\r\n".encode() + body)
        time.sleep(0.05)


def makers(c):
    """Ways to make and to change arrays; each leaves what it makes."""
    big = [300, 210]
    g = {"ghost": [2, 3], "boundary": ["periodic", [{"type": "dirichlet", "value": 1}, {"type": "neumann", "value": 2}]]}
    for k, spec in enumerate([
            {"shape": [8]}, {"shape": big}, {"shape": big, "dtype": "uint8"}, {"shape": [5 << 20], "dtype": "uint8"}, {"shape": big, "fill": 1.5},
            {"arange": {"stop": 1000}}, {"linspace": {"start": 0, "stop": 1, "num": 777}}, {"eye": {"n": 100, "m": 70}},
            {"shape": [1000], "random": {"distribution": "uniform", "seed": 1}}, {"data": [[1, 2, 3], [4, 5, 6]], "dtype": "float64"},
            {"shape": [30, 17], **g}, {"shape": [30, 17], "fill": 2, **g}, {"data": np.ones((30, 17)).tolist(), **g},
            {"shape": [100, 33], "alignment": 4096, "ghost": [1, 1]}, {"shape": [7, 5], "alignment": 4096, "fill": 3, "ghost": [0, 1]}]):
        c.expect(201, c.post("/v1/arrays", {**spec, "name": f"m{k}"}))
    c.expect(201, c.post("/v1/arrays", {"like": "m10", "name": "like"}))
    c.expect(201, c.post("/v1/arrays", {"shape": [30, 17], "congruent_to": "m10", "fill": 4.0, "name": "congruent"}))
    c.expect(201, c.post("/v1/arrays/m11/copy", {"name": "copied"}))
    c.expect(200, c.post("/v1/arrays/m0/resize", {"shape": [70_000]}))
    c.expect(200, c.post("/v1/arrays/m10/resize", {"shape": [50, 40]}))
    c.expect(201, c.post("/v1/evaluate", {"expr": "m1[:3]*2", "name": "part"}))
    c.upload(np.ones((3, 4)), "npy")


def expressions(c):
    for k, expr in enumerate([
            "m1 + m4", "shift(m1, [5, -7], 'constant', 3)", "concat([m1[1:], m4[:2]])", "sum(m4, axis=0)", "cumulative_sum(m4, axis=1)",
            "laplacian(m4, boundary='wrap')", "take(m8, [3, 1, 2])", "reshape(m4, [-1])", "where(m4 > 1, m4, 0)", "m4[::7, ::-3]", "pad(m4, 2)",
            "transpose(m4)", "laplacian(m11, boundary='ghost')", "m11 + m12", "max(m8)"]):
        r = c.post("/v1/evaluate", {"expr": expr, "name": f"e{k}"})
        assert r.status in (201, 422), r
        inline = c.post("/v1/evaluate", {"expr": expr}, accept=OCTETS)
        assert inline.status == r.status - (1 if r.status == 201 else 0)
        clean_bytes(expr, inline.body)
    r = c.expect(200, c.post("/v1/evaluate", {"statements": ["t = m4*2", "s = t[1:] - t[:-1]", "r = s[:99] + 1"], "results": ["r"], "inline": True}))
    clean_bytes("statements", r.body)


def failures(c):
    """What is refused or cut off in the middle leaves what there was."""
    c.create(name="kept", shape=[1 << 17], dtype="float64", fill=1)
    c.fails(422, "bad_index", c.post("/v1/evaluate", {"expr": "take(m8, astype(m8*0, 'int64') + 100000)", "name": "bad"}))
    c.fails(422, "bad_index", c.post("/v1/evaluate", {"expr": "take(m8, astype(kept, 'int64') + 100000)", "out": "kept"}))
    c.fails(404, "not_found", c.get("/v1/arrays/bad"))
    upload = f"Content-Type: {OCTETS}\r\nContent-Length: 1048576\r\n\r\n".encode() + bytes(500_000)
    cut(c, "POST /v1/arrays?dtype=uint8&shape=1048576&name=half", upload)
    cut(c, "PUT /v1/arrays/kept/data", upload)
    cut(c, "PUT /v1/arrays/kept/data?index=:131072:1", upload)
    npy = npy_bytes(np.zeros(1 << 17))
    cut(c, "POST /v1/arrays?name=halfnpy", f"Content-Type: {NPY}\r\nContent-Length: {len(npy)}\r\n\r\n".encode() + npy[:500_000])
    cut(c, "POST /v1/arrays", f"Content-Type: {JSON}\r\nContent-Length: 100\r\n\r\n".encode() + b'{"name": "halfjson", "data": [1, 2')
    short = c.request("POST", "/v1/arrays?dtype=uint8&shape=1000&name=short", bytes(10), content_type=OCTETS)
    assert short.status in (400, 422), short
    for name in ("half", "halfnpy", "halfjson", "short"):
        for _ in range(200):
            if c.get(f"/v1/arrays/{name}").status == 404:
                break
            time.sleep(0.01)
        c.fails(404, "not_found", c.get(f"/v1/arrays/{name}"))
    np.testing.assert_array_equal(c.download("kept"), np.ones(1 << 17))
    r = c.post("/v1/programs?wait=1", {"body": ["kept = kept + 1", "t = kept*2", "kept = take(kept, astype(kept, 'int64') + 131070)"], "steps": 5})
    c.expect(200, r)
    c.expect(200, c.post("/v1/programs?wait=1", {"body": ["m4 = m4 + laplacian(m4, boundary='wrap')"], "steps": 7, "snapshot": {"m4": 2},
                                                 "record": {"s": "sum(m4)"}}))


def moves(c):
    for a in c.list_all("/v1/arrays", "arrays"):
        if not a.get("view_of"):
            r = c.patch(f"/v1/arrays/{a['id']}", {"location": "host"})
            assert r.status in (200, 409), r


def snapshot(c):
    """The memories as a whole: with what no request reads."""
    c.expect(200, c.post("/v1/snapshot"))
    files = [f for f in pathlib.Path(two.state).rglob("*") if f.is_file() and re.match(r"data|memory-", f.name)]
    assert files
    for f in files:
        clean_bytes(f"snapshot {f.name}", f.read_bytes())


@pytest.mark.in_turn
@pytest.mark.parametrize("way", [makers, expressions, failures, moves])
def test_nothing_of_anothers(two, way):
    ann, bob = two
    if way is not makers:
        makers(bob)
    fill(ann)
    way(bob)
    look(bob, way.__name__)
    snapshot(bob)


def busy(c, dying):
    """Makes arrays and writes to them, until the daemon dies."""
    k = 0
    try:
        while not dying.is_set():
            c.post("/v1/arrays", {"shape": [SIZES[k % len(SIZES)]], "dtype": "uint8", "fill": 1, "name": f"b{k % 30}"})
            c.request("POST", f"/v1/arrays?dtype=uint8&shape={SIZES[k % 7]}&name=u{k % 30}", bytes(SIZES[k % 7]), content_type=OCTETS)
            c.post("/v1/evaluate", {"expr": "m1 + m4", "out": "m1"})
            c.post("/v1/evaluate", {"expr": f"m4[:100]*{k}", "name": f"r{k % 10}"})
            if k % 3 == 0:
                c.patch("/v1/arrays/m1", {"location": "host"})
            k += 1
    except (OSError, http.client.HTTPException):
        pass


def die(thread, dying, clients):
    before = two.daemon.pid
    os.kill(before, signal.SIGKILL)
    dying.set()
    thread.join()
    for c in clients:
        c.close()
    until(lambda: two.daemon.pid not in (before, two.daemon.proc.pid))


@pytest.mark.in_turn
def test_nothing_of_anothers_after_deaths(two):
    """The next daemon has pieces of memory that another's arrays have left, and arrays that were just being made."""
    ann, bob = two
    if not bob.info()["process"]["keeps_arrays"]:
        pytest.skip("no array outlives the daemon")
    makers(bob)
    for k in range(3):
        fill(ann)
        worker, dying = bob.clone(), threading.Event()
        thread = threading.Thread(target=busy, args=(worker, dying))
        thread.start()
        time.sleep(0.02 + 0.1 * k)
        die(thread, dying, (ann, bob, worker))
        assert look(bob, f"death {k}", after_a_death=True) > 10
        for a in bob.list_all("/v1/arrays", "arrays"):
            if a["name"][0] in "bur":
                bob.expect(204, bob.delete(f"/v1/arrays/{a['id']}"))
        for name in ("m1", "m4"):
            assert bob.put(f"/v1/arrays/{name}", {"shape": [300, 210], "fill": 1}).status in (200, 201)
        expressions(bob)
        look(bob, f"after death {k}", after_a_death=True)


def test_the_pattern_would_be_found(two):
    """Ann's own arrays have it, in replies and on disk."""
    ann, _ = two
    ann.expect(201, ann.request("POST", "/v1/arrays?dtype=uint8&shape=100000&name=p", bytes([BYTE]) * 100_000, content_type=OCTETS))
    with pytest.raises(AssertionError, match="another's bytes"):
        look(ann, "it")
    with pytest.raises(AssertionError, match="another's bytes"):
        snapshot(ann)
