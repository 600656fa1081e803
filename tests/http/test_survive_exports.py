"""Exports and arrays in host memory that outlive the daemon: consumers keep what they have mapped, and nobody else gets it."""
import contextlib
import http.client
import multiprocessing
import os
import random
import re
import select
import signal
import threading
import time

import numpy as np
import pytest

from conftest import until
from exported import Export, descriptors, dial, figures, present
from test_survive import idle, keeping, kill, same

BIG = np.arange(1 << 18, dtype="float64")  # past export-threshold
SMALL = np.arange(35, dtype="float32").reshape(5, 7)


@pytest.fixture(params=["cpu", "gpu"])
def d(request, tmp_path):
    if request.param == "gpu" and os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("mmap maps the fake driver's memory alone")
    start = request.getfixturevalue("daemon_with" if request.param == "cpu" else "gpu_with")
    backend = ["--backend", "cpu"] if request.param == "cpu" else []
    return keeping(start, *backend, "--allow-export", "--export-threshold", "1MiB", "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s")


@pytest.fixture
def c(d):
    c = d.client(unix=d.unix)
    yield c
    c.quiet()
    until(lambda: figures(c)[""] == 0)


def dies(d, c, sig=signal.SIGKILL):
    idle(c)
    c.close()
    kill(d, sig)
    c.info()  # it answers


@contextlib.contextmanager
def no_daemon(d, c):
    """While the keeper sleeps, nobody starts the next one."""
    idle(c)
    c.close()
    before = d.pid
    os.kill(d.proc.pid, signal.SIGSTOP)
    os.kill(before, signal.SIGKILL)
    until(lambda: open(f"/proc/{before}/stat").read().rsplit(")", 1)[1].split()[0] == "Z")
    try:
        yield
    finally:
        os.kill(d.proc.pid, signal.SIGCONT)
    until(lambda: d.pid not in (before, d.proc.pid))


def is_open(export):
    return not select.select([export.socket], [], [], 0)[0]


def test_consumers_keep_their_memory(d, c):
    c.upload(SMALL, "small")
    c.upload(BIG, "big")
    reader, writer = Export(c, "small", "read"), Export(c, "big", "write")
    seen, own = reader.array(), writer.array()
    for k, sig in enumerate([signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR2, signal.SIGKILL]):
        own[k::100] = -k  # before the death, not told to anybody
        if sig == signal.SIGUSR2:
            idle(c)
            c.close()
            before = d.pid
            d.proc.send_signal(sig)
            until(lambda: d.pid not in (before, d.proc.pid))  # noqa: B023
        else:
            dies(d, c, sig)
        assert is_open(reader) and is_open(writer)
        assert np.array_equal(seen, SMALL)
        assert figures(c)[""] == 2
        # the leases go on
        c.fails(409, "locked", c.post("/v1/evaluate", {"expr": "small + 1", "out": "small"}))
        c.fails(409, "locked", c.get("/v1/arrays/big/data"))
        c.fails(409, "locked", c.post("/v1/arrays/small/export", {"mode": "write"}))
        # one memory still, both ways
        own[7 + k] = 1000 + k
        got = c.expect(200, c.get("/v1/arrays/big/data", accept="application/x-npy", headers=writer.lease)).npy()
        assert np.array_equal(got, own)
        c.expect(200, c.post("/v1/evaluate", {"expr": "big * 2", "out": "big"}, headers=writer.lease))
        assert np.array_equal(c.expect(200, c.get("/v1/arrays/big/data", accept="application/x-npy", headers=writer.lease)).npy(), 2 * got)
        assert np.array_equal(own, 2 * got)
        with Export(c, "small") as another:
            assert np.array_equal(another.array(), SMALL)
    want = own.copy()
    assert writer.finish() == b""
    same(c, "big", want)
    reader.finish()
    c.expect(200, c.post("/v1/evaluate", {"expr": "small + 1", "out": "small"}))
    same(c, "small", SMALL + np.float32(1))


def test_nobody_else_gets_that_memory(d, c):
    """Neither what is exported now, nor what a process may still have mapped although its export has ended."""
    for name in ("ended", "goes on", "deleted"):
        c.upload(BIG, name.replace(" ", "_"))
    exports = {name: Export(c, name.replace(" ", "_"), "write") for name in ("ended", "goes on", "deleted")}
    mine = {name: x.array() for name, x in exports.items()}
    c.expect(204, c.delete("/v1/arrays/deleted", headers=exports["deleted"].lease))
    exports["ended"].finish()
    for _ in range(2):
        dies(d, c)
        assert c.info()["bytes_in_use"] == 3 * BIG.nbytes, "what is exported stays, and is paid for, without an array"
        c.fails(404, "not_found", c.get("/v1/arrays/deleted"))
    c.expect(204, c.delete("/v1/arrays/ended"))
    exports["goes on"].finish()
    c.expect(204, c.delete("/v1/arrays/goes_on"))
    exports["deleted"].finish()
    until(lambda: c.info()["bytes_in_use"] == 0)
    for _ in range(4):
        new = [c.upload(BIG)["id"] for _ in range(4)]
        for a in mine.values():
            a[...] = 13  # still mapped
        for ref in new:
            same(c, ref, BIG)
            c.expect(204, c.delete(f"/v1/arrays/{ref}"))


def test_who_ends_while_no_daemon_lives(d, c):
    c.upload(SMALL, "a")
    c.upload(BIG, "b")
    orderly, gone, stays = Export(c, "a"), Export(c, "b"), Export(c, "a")
    with no_daemon(d, c):
        orderly.socket.shutdown(1)
        gone.drop()
    assert figures(c)[""] == 1
    assert orderly.socket.recv(1) == b""
    c.expect(200, c.post("/v1/evaluate", {"expr": "b * 2", "out": "b"}))
    c.fails(409, "locked", c.post("/v1/evaluate", {"expr": "a * 2", "out": "a"}))
    assert np.array_equal(stays.array(), SMALL)
    stays.finish()
    c.expect(200, c.post("/v1/evaluate", {"expr": "a * 2", "out": "a"}))


def test_nobody_is_refused_meanwhile(d):
    """Whoever comes to PATH.fd waits for the next daemon. A token that nobody had presented is of the last one."""
    c = d.client(unix=d.unix)
    c.upload(SMALL, "a")
    never = Export(c, "a", take=False)
    with no_daemon(d, c):
        waiting = dial(never.reply["socket"])
        waiting.sendall(never.reply["token"].encode() + b"\n")
    assert b"there is no export with this token" in waiting.recv(4096)
    c.expect(200, c.post("/v1/evaluate", {"expr": "a * 2", "out": "a"}))
    with Export(c, "a") as x:
        assert np.array_equal(x.array(), SMALL * 2)
    path = never.reply["socket"]
    c.close()
    d.stop()
    assert not os.path.exists(path)


def consume(path, token, size, mode, order, answer):
    """A process of its own: says what it sees, until it is told to end."""
    import mmap
    s, _, (fd,) = present(path, token)
    memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | (mmap.PROT_WRITE if mode == "write" else 0))
    os.close(fd)
    for value in iter(order.get, None):
        if value >= 0:
            memory[0] = value
        answer.put(memory[0])
    s.close()


@pytest.mark.in_turn
def test_processes_that_end(d, c):
    """A lease ends with the process that has it, though another daemon gave it the memory."""
    ctx = multiprocessing.get_context("spawn")
    for size, mode in ((1000, "read"), (1 << 20, "write")):
        c.upload(np.zeros(size, "uint8"), mode)
        x = Export(c, mode, mode, take=False)
        order, answer = ctx.Queue(), ctx.Queue()
        p = ctx.Process(target=consume, args=(x.reply["socket"], x.reply["token"], x.reply["size"], mode, order, answer))
        p.start()
        order.put(9 if mode == "write" else -1)
        assert answer.get(timeout=30) == (9 if mode == "write" else 0)
        dies(d, c)
        order.put(-1)
        assert answer.get(timeout=30) == (9 if mode == "write" else 0)
        body = {"expr": f"{mode} + 1", "out": mode}
        c.fails(409, "locked", c.post("/v1/evaluate", body))
        p.kill() if mode == "write" else order.put(None)
        p.join()
        until(lambda: c.post("/v1/evaluate", body).status == 200)  # noqa: B023
        assert c.download(mode)[0] == (10 if mode == "write" else 1)


def test_memory_that_is_sealed(daemon_with, accounts, tmp_path):
    """A memfd that another user reads cannot be mapped for writing any more: it is read where it is, and left by the first write."""
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    d = keeping(daemon_with, "--backend", "cpu", "--accounts", accounts.path, "--allow-export", "--export-threshold", "1MiB",
                "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s")
    ann, bob = [accounts.client(d, name) for name in ("ann", "bob")]
    for c in (ann, bob):
        c.unix = d.unix
    ids = {}
    for name in ("whole", "part", "swapped", "read"):
        ids[name] = ann.upload(BIG, name)["id"]
        ann.expect(201, ann.post(f"/v1/arrays/{name}/shares", {"principal": "bob", "access": "read"}))
    exports = {name: Export(bob, ref) for name, ref in ids.items()}
    mine = {name: x.array() for name, x in exports.items()}

    def sealed():
        with open(f"/proc/{d.pid}/maps") as f:
            return len(re.findall(r" r--s .*memfd:arrayd", f.read()))

    bob.close()
    dies(d, ann)
    assert sealed() == 4
    for name in ids:
        same(ann, name, BIG)
        assert is_open(exports[name]) and np.array_equal(mine[name], BIG)
        ann.fails(409, "locked", ann.post("/v1/evaluate", {"expr": f"{name} + 1", "out": name}))
    assert sealed() == 4
    token = exports["read"].lease["Arrayd-Lease"]
    assert "for reading only" in ann.fails(409, "conflict", ann.post("/v1/evaluate", {"expr": "read + 1", "out": "read"},
                                                                     headers={"Arrayd-Lease": token}))["detail"]
    for name in ("whole", "part", "swapped"):
        exports[name].finish()
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "whole + 1", "out": "whole"}))
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "-1", "out": "part", "index": "5:7"}))
    ann.upload(-BIG, "other")
    ann.expect(200, ann.post("/v1/arrays/swapped/swap", {"with": "other"}))
    want = BIG.copy()
    want[5:7] = -1
    same(ann, "whole", BIG + 1)
    same(ann, "part", want)
    same(ann, "swapped", -BIG)
    same(ann, "other", BIG)
    same(ann, "read", BIG)
    until(lambda: sealed() == 1)
    for name in ids:
        assert np.array_equal(mine[name], BIG), "what bob still has mapped is as it was"
    exports["read"].finish()
    with Export(ann, "read", "write") as x:
        x.array()[0] = 5
    assert ann.download("read")[0] == 5
    ann.expect(204, ann.delete("/v1/arrays/part/shares/bob"))
    bob.close()
    dies(d, ann)
    for name, value in (("whole", BIG + 1), ("part", want), ("swapped", -BIG)):
        same(ann, name, value)
    ann.close()


@pytest.mark.in_turn
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("how", ["taken back", "lowered", "account removed", "removed and reloaded"])
def test_permission_lost_before_a_death(request, accounts, tmp_path, backend, how):
    """The array leaves the memory that its former user has mapped, though the daemon died before it could."""
    if backend == "gpu" and os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("mmap maps the fake driver's memory alone")
    for name in ("ann", "carol", "bob"):
        accounts.add(name, role="operator")
    d = keeping(request.getfixturevalue("daemon_with" if backend == "cpu" else "gpu_with"), *["--backend", "cpu"] * (backend == "cpu"),
                "--accounts", accounts.path, "--allow-export", "--export-threshold", "1MiB", "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s")
    ann, bob, carol = [accounts.client(d, name) for name in ("ann", "bob", "carol")]
    for c in (ann, bob, carol):
        c.unix = d.unix
    a = np.zeros(1 << 23)  # takes some time to copy
    ids = {name: ann.upload(a, name)["id"] for name in ("lost", "kept")}
    ann.expect(201, ann.post("/v1/arrays/lost/shares", {"principal": "bob", "access": "write"}))
    ann.expect(201, ann.post("/v1/arrays/kept/shares", {"principal": "carol", "access": "write"}))
    lost, kept = Export(bob, ids["lost"], "write"), Export(carol, ids["kept"])
    mapped, seen = lost.array(), kept.array()
    mapped[1] = 5
    idle(ann)
    bob.close()
    carol.close()
    if how == "taken back":
        ann.expect(204, ann.delete("/v1/arrays/lost/shares/bob"))
    elif how == "lowered":
        ann.expect(200, ann.post("/v1/arrays/lost/shares", {"principal": "bob", "access": "read"}))
    else:
        text = accounts.path.read_text()
        accounts.write(text[:text.index("[bob]")])
        if how == "removed and reloaded":
            accounts.reload(d)
    ann.close()
    kill(d)
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "lost + 7", "out": "lost"}))
    idle(ann)
    assert mapped[0] == 0 and mapped[1] == 5
    mapped[:] = 666
    a[1] = 5
    same(ann, "lost", a + 7)
    # nobody else's export is affected
    assert is_open(kept)
    ann.fails(409, "locked", ann.post("/v1/evaluate", {"expr": "1", "out": "kept", "index": "2:3"}))
    kept.finish()
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "1", "out": "kept", "index": "2:3"}))
    idle(ann)
    if backend == "gpu":
        assert seen[2] == 1, "it is still in the same memory"
    ann.close()
    dies(d, ann)
    same(ann, "lost", a + 7)
    ann.close()


def location(c, name):
    return c.meta(name)["location"]


def test_arrays_in_host_memory(d, c):
    for name in ("small", "big", "back"):
        c.upload(BIG if name == "big" else SMALL, name)
        c.expect(200, c.patch(f"/v1/arrays/{name}", {"location": "host"}))
    moved = {name: location(c, name) for name in ("small", "big", "back")}
    for k in range(3):
        dies(d, c)
        assert {name: location(c, name) for name in moved} == moved
        metrics = c.get("/metrics").body.decode()
        host = int(re.search(r"^arrayd_host_bytes_in_use (\d+)", metrics, re.M)[1])
        assert host == BIG.nbytes + SMALL.nbytes * (2 if k == 0 else 1)
        if k == 0:
            c.expect(200, c.post("/v1/evaluate", {"expr": "back + 0", "out": "back"}))
            moved["back"] = "device"
    assert {name: location(c, name) for name in moved} == moved
    same(c, "small", SMALL)
    same(c, "big", BIG)
    same(c, "back", SMALL)
    c.expect(200, c.post("/v1/evaluate", {"expr": "big[:3] + 1", "out": "big", "index": "0:3"}))
    dies(d, c)
    want = BIG.copy()
    want[:3] += 1
    same(c, "big", want)
    for name in moved:
        c.expect(204, c.delete(f"/v1/arrays/{name}"))
    until(lambda: "\narrayd_host_bytes_in_use 0\n" in c.get("/metrics").body.decode())


@pytest.mark.in_turn
def test_evicted_arrays(gpu_with):
    if os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("of a device of 64 MiB")
    d = gpu_with("--keep-arrays", "--restart-limit", 1000, "--evict", environment={"ARRAYD_FAKE_MEMORY": str(64 << 20)})
    c = d.client()
    arrays = {f"a{k}": np.full(1 << 20, k, "float64") for k in range(12)}  # 96 MiB
    for name, a in arrays.items():
        c.upload(a, name)
    assert sum(location(c, name) == "host" for name in arrays) >= 4
    dies(d, c)
    assert sum(location(c, name) == "host" for name in arrays) >= 4
    for name, a in arrays.items():
        same(c, name, a)
        assert c.evaluate(f"sum({name})") == a.sum()
    c.close()


def test_a_lost_device(gpu_with, tmp_path):
    if os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("only the fake driver does that")
    d = keeping(gpu_with, "--allow-export", "--export-threshold", "1MiB", "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s")
    c = d.client(unix=d.unix)
    c.upload(BIG, "a")
    c.upload(SMALL, "b")
    idle(c)
    with Export(c, "a", "write") as x:
        m, before = x.array(), d.pid
        d.fail("719 async")
        c.post("/v1/evaluate", {"expr": "b + 1"}, check=False)
        c.close()
        until(lambda: d.pid not in (before, d.proc.pid))
        m[3] = 77
        c.fails(409, "locked", c.get("/v1/arrays/a/data"))
    assert c.download("a")[3] == 77
    c.close()


def test_exports_that_are_off_by_now(daemon_with, tmp_path):
    """The client's lease ends, and the log warns of what the client still has."""
    config = tmp_path / "config"
    right = f"restart-limit = 1000\nlisten = 127.0.0.1:0\nlisten = unix:{tmp_path}/s\n"
    config.write_text(right + "allow-export = yes\n")
    d = daemon_with("--backend", "cpu", "--config", config, listen=None)
    c = d.client(unix=d.unix)
    c.upload(BIG, "a")
    with Export(c, "a", "write") as x:
        m, before = x.array(), d.pid
        c.close()
        config.write_text(right)
        os.kill(before, signal.SIGKILL)
        until(lambda: d.pid not in (before, d.proc.pid) and d.log().count(" ready ") == 2)
        assert "exports are off" in d.log()
        assert c.meta("a")["id"] and m[3] == BIG[3]
        c.expect(201, c.post("/v1/arrays/a/lease", {"mode": "write", "ttl_s": 1}))
        c.close()


@pytest.mark.in_turn
def test_nothing_is_left_over(d, c):
    """Descriptors and memory, in keeper and daemon, through many deaths."""
    dies(d, c)
    c.upload(BIG, "stays")
    idle(c)
    before = descriptors(d.proc.pid), descriptors(d.pid)
    for _ in range(3):
        c.upload(BIG, "a")
        c.upload(SMALL, "b")
        c.expect(200, c.patch("/v1/arrays/b", {"location": "host"}))
        exports = [Export(c, "a") for _ in range(5)]
        dies(d, c)
        for x in exports:
            assert is_open(x)
            x.finish()
        for name in ("a", "b"):
            c.expect(204, c.delete(f"/v1/arrays/{name}"))
        until(lambda: c.info()["bytes_in_use"] == BIG.nbytes)
        dies(d, c)
    assert figures(c)["_total"] == 0
    c.close()
    until(lambda: descriptors(d.proc.pid) <= before[0] and descriptors(d.pid) <= before[1] + 2)


@pytest.mark.in_turn
def test_killed_while_arrays_move(d, c):
    """A copy that was not made is not believed, and what was to be copied is still there."""
    big = np.arange(1 << 21, dtype="float64")
    c.upload(big, "a")
    rng = random.Random(5)
    for _ in range(6):
        idle(c)
        c.close()
        mover, died = d.client(), threading.Event()

        def move(mover=mover, died=died):
            k = 0
            while not died.is_set():
                k += 1
                with contextlib.suppress(OSError, http.client.HTTPException):
                    mover.patch("/v1/arrays/a", {"location": "host" if k % 2 else "device"})

        t = threading.Thread(target=move)
        t.start()
        time.sleep(rng.uniform(0.02, 0.2))
        os.kill(d.pid, signal.SIGKILL)
        died.set()
        t.join()
        mover.close()
        same(c, "a", big)
        time.sleep(1.01)  # it lasted: the next start is not put off
