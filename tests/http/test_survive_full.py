"""Arrays that outlive the daemon, where there is hardly any memory left that does."""
import re
import socket

import numpy as np
import pytest

from conftest import until
from test_survive import idle, keeping, kill, same

N = 100_000


# Each writes to "a", and returns what is there then.


def put(c, a):
    c.expect(204, c.request("PUT", "/v1/arrays/a/data", (a + 1).tobytes(), content_type="application/octet-stream"))
    return a + 1


def evaluate(c, a):
    c.expect(200, c.post("/v1/evaluate", {"expr": "roll(a, 1, 0)", "out": "a"}))
    return np.roll(a, 1)


def statements(c, a):
    c.expect(200, c.post("/v1/evaluate", {"statements": ["a += 1"]}))
    return a + 1


def program(c, a):
    c.expect(200, c.post("/v1/programs?wait=1", {"body": ["a += 1"], "steps": 1}))
    return a + 1


WAYS = [put, evaluate, statements, program]


@pytest.fixture(params=["cpu", "cuda"])
def start(request, daemon_with):
    if request.param == "cpu":
        return lambda *args: keeping(daemon_with, "--backend", "cpu", *args)
    return lambda *args: request.getfixturevalue("gpu_with")("--keep-arrays", "--restart-limit", 1000, "--restart-rate", 0, "--restart-wait", 0, *args)


def fill(c):
    """Until not even a page is left; gives back what the largest of a test's writes needs."""
    made = []
    for n in (500_000, 50_000, 5_000, 500):
        while (r := c.post("/v1/arrays", {"shape": [n], "fill": 2})).status == 201:
            made.append((r.json()["id"], 8 * n))
        c.expect(507, r)
    back = 0
    while back < 2_600_000:
        name, size = made.pop()
        c.expect(204, c.delete(f"/v1/arrays/{name}"))
        back += size


@pytest.mark.parametrize("write", WAYS)
def test_a_write_where_a_device_is_almost_full(start, write):
    d = start("--memory-limit", "40MiB")
    c, a = d.client(), np.arange(float(N))
    c.upload(a, "a")
    fill(c)
    a = write(c, a)
    idle(c)
    same(c, "a", a)
    kill(d)
    same(c, "a", a)
    c.close()


def test_a_new_array_where_a_device_is_almost_full(daemon_with):
    d = keeping(daemon_with, "--backend", "cpu", "--memory-limit", "41MiB")
    c, a = d.client(), np.arange(float(N))
    for _ in range(10):
        c.expect(201, c.post("/v1/arrays", {"shape": [500_000], "fill": 2}))
    c.upload(a, "a")
    c.upload(a[:3], "b")
    kill(d)
    same(c, "a", a)
    same(c, "b", a[:3])
    c.close()


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("limit", ["--max-chunks", "--max-kept-arrays"])
def test_a_write_where_no_more_arrays_are_kept(start, write, limit):
    d = start(limit, 1)
    c, a = d.client(), np.arange(20.0 * N)
    c.upload(a, "a")
    c.upload(a[1:], "b")
    a = write(c, a)
    idle(c)
    same(c, "a", a)
    kill(d)
    same(c, "a", a)
    c.expect(404, c.get("/v1/arrays/b"))  # it was one too many
    c.close()


# --- limits that were lowered for a while ---


def test_lowered_limits(daemon_with, tmp_path):
    """What does not fit any more is still there, and a session's own limit is as it was asked for."""
    config = tmp_path / "config"
    config.write_text("")
    d = keeping(daemon_with, "--config", config)
    c, a = d.client(), np.arange(20.0 * N)
    c.upload(a, "a")
    for limit in (5 * 10**8, 1000):
        c.expect(201, c.post("/v1/sessions", {"name": f"s{limit}", "memory_limit": limit}))
    limits = lambda: [s.get("memory_limit") for s in c.list_all("/v1/sessions", "sessions")]
    assert limits() == [None, 5 * 10**8, 1000]
    config.write_text("memory-limit = 10MiB\nsession-memory = 1MiB\n")
    kill(d)
    same(c, "a", a)
    assert limits() == [2**20, 2**20, 1000]
    config.write_text("")
    kill(d)
    same(c, "a", a)
    assert limits() == [None, 5 * 10**8, 1000]
    c.close()


def test_shares_beyond_a_lowered_limit(daemon_with, tmp_path, accounts):
    """Also of an array that the keeper does not hold, which is there as the last snapshot has it."""
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    config = tmp_path / "config"
    config.write_text("")
    d = keeping(daemon_with, "--config", config, "--accounts", accounts.path, "--state-dir", tmp_path / "state", "--max-kept-arrays", 2)
    ann, bob = [accounts.client(d, name) for name in ("ann", "bob")]
    ids = [ann.upload(np.arange(1000.0) + k, f"a{k}")["id"] for k in range(3)]
    for i in ids:
        ann.expect(201, ann.post(f"/v1/arrays/{i}/shares", {"principal": "bob", "access": "read"}))
    ann.expect(200, ann.post("/v1/snapshot"))
    config.write_text("max-shares = 1\n")
    kill(d)
    assert ann.meta("a2")["restored_from"]
    for k, i in enumerate(ids):
        same(bob, i, np.arange(1000.0) + k)
    ann.close(), bob.close()


@pytest.mark.parametrize("state", [True, False])
def test_one_line_says_what_is_gone(daemon_with, tmp_path, state):
    d = keeping(daemon_with, "--max-kept-arrays", 1, *(["--state-dir", tmp_path / "state"] if state else []))
    c = d.client()
    for k in range(4):
        c.upload(np.arange(1000.0), f"a{k}")
    if state:
        c.expect(200, c.post("/v1/snapshot"))
    for k in range(4, 6):
        c.upload(np.arange(1000.0), f"a{k}")
    gone = ["a4", "a5"] if state else ["a1", "a2", "a3", "a4", "a5"]
    for _ in range(2):  # what is gone is told once
        kill(d)
        c.expect(200, c.get("/v1/info"))
    assert sorted(a["name"] for a in c.list_all("/v1/arrays", "arrays")) == sorted({f"a{k}" for k in range(6)} - set(gone))
    warnings = [line for line in d.log().splitlines() if " warn " in line and not re.search("ended and is started again|a limit is reached", line)]
    lost = [line for line in warnings if "arrays are gone" in line]
    assert len(lost) == 1 and f"arrays={len(gone)}" in lost[0], warnings
    assert [line for line in warnings if line not in lost and "taken over" not in line] == []
    if state:
        assert warnings == lost and "left_to_state=5" in d.log()
    c.close()


@pytest.mark.in_turn
def test_a_write_that_is_refused(daemon_with):
    """A download reads the only memory that outlives the daemon: a write neither disturbs it nor goes elsewhere."""
    d = keeping(daemon_with, "--max-chunks", 1)
    c, a = d.client(), np.arange(80.0 * N)
    c.upload(a, "a")
    with socket.create_connection((d.host, d.port)) as s:
        s.sendall(b"GET /v1/arrays/a/data HTTP/1.1\r\nHost: localhost\r\nAccept: application/octet-stream\r\n\r\n")
        assert s.recv(12) == b"HTTP/1.1 200"
        c.fails(507, "out_of_memory", c.request("PUT", "/v1/arrays/a/data", (a + 1).tobytes(), content_type="application/octet-stream"))
        c.fails(507, "out_of_memory", c.post("/v1/evaluate", {"expr": "roll(a, 1, 0)", "out": "a"}))
    until(lambda: c.post("/v1/evaluate", {"expr": "a + 2", "out": "a"}).status == 200)
    idle(c)
    kill(d)
    same(c, "a", a + 2)
    c.close()


# --- small arrays, few of which hold much memory ---


@pytest.mark.in_turn
def test_small_arrays_move_together(start):
    """Many come and most go: what they leave can be had, also by memory that work takes for itself; and what stays survives."""
    d = start("--memory-limit", "40MiB")
    c, a, n = d.client(), np.arange(60_000.0), 0  # four of them to a piece of memory
    while c.post("/v1/arrays", {"name": f"a{n}", "shape": [60_000], "fill": 2.0}).status == 201:
        n += 1
    assert n > 60
    stays = range(0, n, 4)
    for k in set(range(n)) - set(stays):
        c.expect(204, c.delete(f"/v1/arrays/a{k}"))
    for k in stays:
        c.expect(204, c.request("PUT", f"/v1/arrays/a{k}/data", (a + k).tobytes(), content_type="application/octet-stream"))
    for k in stays:
        assert c.evaluate(f"sum(a{k})") == (a + k).sum()
    for _ in range(6):
        c.expect(201, c.post("/v1/arrays", {"shape": [500_000], "fill": 2}))
    c.upload(a[:1], "one")
    idle(c)
    for k in stays:
        same(c, f"a{k}", a + k)
    kill(d)
    same(c, "one", a[:1])
    for k in stays[:12]:  # a GPU's last ones are not in memory that survives
        same(c, f"a{k}", a + k)
    c.close()


# --- of several users ---


def names(c):
    return sorted(a["name"] for a in c.list_all("/v1/arrays", "arrays"))


@pytest.mark.parametrize("option, n, at_once", [("max-chunks", 300_000, 1), ("max-chunks", 30_000, 8), ("max-kept-arrays", 5, 1)])
def test_nobody_takes_what_outlives_the_daemon_from_all(daemon_with, accounts, option, n, at_once):
    """As of the journal, a user may have as much of a limit as is free: new arrays beyond that are made all the same, but are gone then.
    Small arrays fill the pieces of memory that a user has, so many of them each."""
    for name in ("ann", "bob", "cid"):
        accounts.add(name, role="operator")
    d = keeping(daemon_with, "--accounts", accounts.path, f"--{option}", 8)
    everyone = ann, bob, cid = [accounts.client(d, name) for name in ("ann", "bob", "cid")]
    process = lambda c: c.info()["process"]
    figure = "chunks" if option == "max-chunks" else "kept_arrays"
    for c, share in zip(everyone, (4, 2, 1)):
        for k in range(9 * at_once):
            assert at_once > 1 or process(c)["keeps_arrays"] == (k < share)
            c.upload(np.arange(float(n)) + k, f"a{k}")
        assert f"a user may have as much of {option} as is free" in process(c)["keeps_arrays_problem"]
    metrics = ann.get("/metrics").body.decode()
    assert "arrayd_keep_limit_reached 0" in metrics and "a limit is reached" not in d.log()
    assert [int(re.search(rf'arrayd_principal_{figure}{{principal="{name}"}} (\d+)', metrics)[1]) for name in ("ann", "bob", "cid")] == [4, 2, 1]
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "a1 + 1", "out": "a1"}))  # no new array: it survives as before
    for c in everyone:
        idle(c)
    kill(d)
    for c, share in zip(everyone, (4, 2, 1)):
        assert names(c) == sorted(f"a{k}" for k in range(share * at_once))
        for k in range(share * at_once):
            same(c, f"a{k}", np.arange(float(n)) + k + (c is ann and k == 1))
        assert not process(c)["keeps_arrays"]  # the shares are what they were
    for k in range(4 * at_once):
        ann.expect(204, ann.delete(f"/v1/arrays/a{k}"))
    until(lambda: all(process(c)["keeps_arrays"] for c in everyone))
    for c in everyone:
        c.upload(np.arange(float(n)), "more")
        idle(c)
    kill(d)
    assert [len(names(c)) for c in everyone] == [1, 2 * at_once + 1, at_once + 1] and all("more" in names(c) for c in everyone)
    for c in everyone:
        c.close()


@pytest.mark.parametrize("n", [1000, 300_000])
def test_memory_that_a_program_exchanges_counts_for_the_arrays_owner(daemon_with, accounts, n):
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    d = keeping(daemon_with, "--accounts", accounts.path)
    ann, bob = [accounts.client(d, name) for name in ("ann", "bob")]
    has = lambda who, what: re.search(rf'arrayd_principal_{what}{{principal="{who}"}} (\d+)', ann.get("/metrics").body.decode())[1]
    shared = ann.upload(np.arange(float(n)), "a")["id"]
    ann.expect(201, ann.post(f"/v1/arrays/{shared}/shares", {"principal": "bob", "access": "write"}))
    for k in range(3):
        bob.expect(200, bob.post("/v1/programs?wait=1", {"body": ["x = roll(x, 1, 0)"], "bind": {"x": shared}, "steps": 2 * k + 1}))
        until(lambda: [has(who, "kept_arrays") for who in ("ann", "bob")] == ["1", "0"])
        assert has("ann", "chunks") == "1"
    same(ann, "a", np.roll(np.arange(float(n)), 9))
    ann.expect(204, ann.delete(f"/v1/arrays/{shared}"))
    until(lambda: [has(who, what) for who in ("ann", "bob") for what in ("kept_arrays", "chunks")] == ["0"] * 4)
    ann.close(), bob.close()
