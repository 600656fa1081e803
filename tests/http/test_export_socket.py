"""PATH.fd: tokens, clients that are killed, slow or hostile, and the daemon's own end with exports open."""
import os
import random
import resource
import signal
import socket
import stat
import tempfile
import threading
import time

import numpy as np
import pytest

from conftest import find_binary, settle, until
from exported import Export, descriptors, dial, figures, hear, present

DATA = np.arange(1000.)
LONG = bool(os.environ.get("ARRAYD_LONG"))


@pytest.fixture
def local(daemon_with, gpu_with_or_not, tmp_path):
    def start(*args, backend="cpu"):
        daemon = daemon_with if backend == "cpu" else gpu_with_or_not()
        more = ["--backend", "cpu"] if backend == "cpu" else []
        d = daemon(*more, "--allow-export", *args, "--listen", f"unix:{tmp_path}/s")
        d.fd = f"{tmp_path}/s.fd"
        return d

    return start


@pytest.fixture
def gpu_with_or_not(request):
    return lambda: request.getfixturevalue("gpu_with")


def quiet(c, d, open_files):
    """Nothing is left of exports, and no descriptor."""
    until(lambda: figures(c)[""] == 0)
    until(lambda: descriptors(d.pid) <= open_files)


# --- the socket ---

def test_where_it_is(daemon_with, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(f"{one}.fd")  # a daemon was killed there
    stale.close()
    args = ["--backend", "cpu", "--allow-export", "--unix-mode", "0640", "--listen", f"unix:{one}", "--listen", f"unix:{two}"]
    d = daemon_with(*args)
    for path in (one, two):
        mode = os.stat(f"{path}.fd").st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o640
        c = d.client(unix=str(path))
        c.put("/v1/arrays/u", {"shape": [3]})
        with Export(c, "u") as x:
            assert x.reply["socket"] == f"{path}.fd"
        c.close()
    with pytest.raises(RuntimeError, match="another daemon is listening there"):
        daemon_with(*args)
    d.stop()
    assert not list(tmp_path.glob("one*")) and not list(tmp_path.glob("two*"))
    (tmp_path / "one.fd").write_text("somebody's")
    with pytest.raises(RuntimeError, match="not a socket"):
        daemon_with(*args)
    long = f"unix:{tmp_path}/{'x' * (105 - len(str(tmp_path)))}"
    with pytest.raises(RuntimeError, match="1 to 107 bytes"):
        daemon_with("--backend", "cpu", "--allow-export", "--listen", long)


def test_the_path_is_absolute(daemon_with, tmp_path):
    os.symlink(tmp_path, tmp_path / "link")
    d = daemon_with("--backend", "cpu", "--allow-export", "--listen", f"unix:{tmp_path}/link/s")
    c = d.client()
    c.create(name="u", shape=[3])
    with Export(c, "u") as x:
        assert x.reply["socket"] == f"{tmp_path}/s.fd"


def test_a_token_opens_once(local):
    d = local()
    c = d.client()
    c.upload(DATA, "u")
    x = Export(c, "u")
    for token in (x.reply["token"], x.reply["lease"], "x-0000000000000000000000", "", "x-", "a" * 25):
        s, said, fds = present(d.fd, token)
        assert (said["status"], said["code"], fds) == (404, "not_found", []), token
        assert s.recv(1) == b""
        s.close()
    x.finish()
    assert present(d.fd, x.reply["token"])[1]["status"] == 404
    # many at once for one token: one gets it
    y = Export(c, "u", take=False)
    got = []
    sockets = [dial(d.fd) for _ in range(16)]
    threads = [threading.Thread(target=lambda s=s: (s.sendall(y.reply["token"].encode() + b"\n"), got.append(hear(s)))) for s in sockets]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    fds = [fd for _, fds in got for fd in fds]
    assert len(fds) == 1 and sorted("kind" in said for said, _ in got) == [False] * 15 + [True]
    os.close(fds[0])
    for s in sockets:
        s.close()


def test_another_system_users_token(daemon_with):
    """Who may connect is not yet whose export it is."""
    if os.geteuid() != 0:
        pytest.skip("only root is several users")
    folder = tempfile.TemporaryDirectory()
    os.chmod(folder.name, 0o755)
    d = daemon_with("--backend", "cpu", "--allow-export", "--unix-mode", "0666", "--listen", f"unix:{folder.name}/s")
    d.fd = f"{folder.name}/s.fd"
    c = d.client()
    c.upload(DATA, "u")
    x = Export(c, "u", take=False)
    os.setegid(65534), os.seteuid(65534)
    try:
        s, said, _ = present(d.fd, x.reply["token"])
        assert said["status"] == 404
        s.close()
    finally:
        os.seteuid(0), os.setegid(0)
    x.take().finish()  # it has not cost him his token
    d.stop()
    folder.cleanup()


@pytest.mark.in_turn
def test_a_token_races_with_its_leases_end(local):
    """Who presents a token gets his memory or hears that there is no export, never nothing and never another's descriptor: the
    one that the daemon is about to send is not closed, and its number not given to somebody else, by who ends the lease."""
    d = local()
    c = d.client(unix=d.unix)
    c.upload(DATA, "u")
    r, got, raw = random.Random(7), [], dial(d.unix)
    for _ in range(2000):
        x = Export(c, "u", "write", take=False)
        s = dial(d.fd)
        end = f"DELETE /v1/arrays/u/lease HTTP/1.1\r\nHost: x\r\nArrayd-Lease: {x.reply['lease']}\r\n\r\n".encode()
        token = x.reply["token"].encode() + b"\n"
        one, two = r.sample([(raw, end), (s, token)], 2)
        until = time.perf_counter() + r.random() * 1e-4
        one[0].sendall(one[1])
        while time.perf_counter() < until:
            pass
        two[0].sendall(two[1])
        said, fds = hear(s)
        assert raw.recv(4096).startswith(b"HTTP/1.1 204")
        s.close()
        assert said, "the connection was closed without a word"
        got.append(len(fds))
        for fd in fds:
            assert os.pread(fd, 16, 8 * x.reply["offset"] + 8) == DATA[1:3].tobytes()
            os.close(fd)
    raw.close()
    assert 0 < sum(got) < len(got)  # both happened


def test_in_pieces(local):
    d = local()
    c = d.client()
    c.upload(DATA, "u")
    x = Export(c, "u", take=False)
    s = dial(d.fd)
    for k in x.reply["token"] + "\n":
        s.sendall(k.encode())
        time.sleep(0.002)
    said, fds = hear(s)
    assert said["kind"] == "memfd" and len(fds) == 1
    os.close(fds[0])
    s.shutdown(socket.SHUT_WR)
    assert s.recv(1) == b""
    s.close()
    # all of it at once, with the end
    x = Export(c, "u", take=False)
    s = dial(d.fd)
    s.sendall(x.reply["token"].encode() + b"\n")
    s.shutdown(socket.SHUT_WR)
    said, fds = hear(s)
    assert len(fds) == 1 and s.recv(1) == b""
    os.close(fds[0])
    s.close()
    assert figures(c)['_ended_total{how="released"}'] == 2


def test_time_runs_out(local):
    d = local("--export-timeout", 0.3)
    c = d.client()
    c.upload(DATA, "u")
    silent, half = dial(d.fd), dial(d.fd)
    half.sendall(b"x-")
    begun = time.monotonic()
    x = Export(c, "u", "write", take=False)
    assert x.reply["expires_s"] == 0.3
    until(lambda: c.get("/v1/arrays/u/data").status == 200)
    assert 0.25 < time.monotonic() - begun < 5
    assert present(d.fd, x.reply["token"])[1]["status"] == 404
    for s in (silent, half):
        assert s.recv(1) == b""
        s.close()
    for expired in range(1, 10):
        y = Export(c, "u", take=False)
        s, _, fds = present(d.fd, y.reply["token"])
        if fds:
            break
        s.close()  # too late
    y.socket, y.fd = s, fds[0]
    time.sleep(0.6)  # what is held lasts
    assert y.array()[5] == 5
    y.finish()
    ended = figures(c)
    assert (ended['_ended_total{how="expired"}'], ended['_ended_total{how="released"}']) == (expired, 1)


def test_more_connections_than_may_be(local):
    d = local("--max-export-connections", 4, "--max-exports", 10)
    c = d.client()
    c.upload(DATA, "u")
    silent = [dial(d.fd) for _ in range(10)]
    held = [Export(c, "u") for _ in range(4)]  # silent ones give way
    for s in silent:
        assert s.recv(1) == b""
        s.close()
    x = Export(c, "u", take=False)
    s, said, fds = present(d.fd, x.reply["token"])
    assert (said["status"], said["code"], fds) == (503, "overloaded", [])
    held.pop().finish()
    x.take().finish()
    for h in held:
        h.finish()


def test_silent_connections_leave_descriptors(daemon_with, tmp_path):
    """Who only connects to PATH.fd keeps nobody from being served."""
    few = tmp_path / "few"
    few.write_text(f'#!/bin/sh\nulimit -n 128\nexec "{find_binary()}" "$@"\n')
    few.chmod(0o755)
    d = daemon_with("--backend", "cpu", "--allow-export", "--listen", f"unix:{tmp_path}/s", binary=str(few))
    silent = [dial(f"{tmp_path}/s.fd") for _ in range(150)]
    until(lambda: descriptors(d.pid) >= 32)
    began = time.monotonic()
    for _ in range(20):
        c = d.client(unix=d.unix)
        c.expect(200, c.get("/v1/info"))
        c.close()
    assert time.monotonic() - began < 5  # not when their time is over, after 10 s
    for s in silent:
        s.close()


def test_hostile_bytes(local):
    d = local("--export-timeout", 60, "--max-exports", 10000)
    c = d.client()
    c.upload(DATA, "u")
    Export(c, "u").finish()
    before = descriptors(d.pid)
    rng = random.Random(7)
    x = Export(c, "u", take=False)
    token = x.reply["token"].encode()
    lines = [b"\n", b"\0\n", b"x" * 63, b"x" * 64, b"x" * 65, b"x" * 100000, token, token[:-1] + b"\n", token + b" \n", token + b"\r\n",
             b" " + token + b"\n", token + b"\n\n", token + b"\n" + token + b"\n", token + b"\0\n", token.upper() + b"\n",
             b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "x-ünï\n".encode(), *(rng.randbytes(rng.randrange(200)) for _ in range(200))]
    for line in lines:
        s = dial(d.fd)
        try:
            s.sendall(line)
            if rng.random() < 0.5:
                s.shutdown(socket.SHUT_WR)
            elif line == token or b"\n" not in line:
                s.close()
                continue
            said, fds = hear(s)
            assert not fds and (said is None or said["status"] in (400, 404)), (line, said)
        except (BrokenPipeError, ConnectionResetError):
            pass
        s.close()
    # descriptors that nobody asked for are not kept
    for _ in range(20):
        s = dial(d.fd)
        with open("/dev/null") as f:
            socket.send_fds(s, [b"x" * 10], [f.fileno()] * 50)
        s.close()
    # what comes after the token ends the export
    x.take()
    x.socket.sendall(b"m")
    assert x.socket.recv(1) == b""
    x.drop()
    quiet(c, d, before)
    Export(c, "u").finish()


def test_who_does_not_read(local):
    """Exports whose clients never look at what is sent are ended like others."""
    d = local("--max-exports", 1000)
    c = d.client()
    c.upload(DATA, "u")
    Export(c, "u").finish()  # it has a descriptor of its own from now on
    before = descriptors(d.pid)
    for _ in range(50):
        x = Export(c, "u", take=False)
        s = dial(d.fd)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        s.sendall(x.reply["token"].encode() + b"\n")
        s.close()
    quiet(c, d, before)


def test_no_descriptors(local):
    """Where the daemon has none left exports are refused or wait, and all is well when there are some again."""
    d = local("--export-timeout", 20)
    c = d.client()
    c.upload(DATA, "u")
    Export(c, "u").finish()
    before = descriptors(d.pid)
    was = resource.prlimit(d.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(d.pid, resource.RLIMIT_NOFILE, (max(map(int, os.listdir(f"/proc/{d.pid}/fd"))) + 4, was[1]))
    kept, said = [], []
    for _ in range(8):
        r = c.post("/v1/arrays/u/export", {"mode": "read"})
        said.append(r.status)
        if r.status == 201:
            s = dial(d.fd)
            s.settimeout(0.2)
            s.sendall(r.json()["token"].encode() + b"\n")
            kept.append(s)
    assert said[0] == 201 and 503 in said, said
    c.expect(200, c.post("/v1/evaluate", {"expr": "sum(u)"}))
    resource.prlimit(d.pid, resource.RLIMIT_NOFILE, was)
    heard = 0
    for s in kept:
        s.settimeout(10)
        _, fds = hear(s)
        heard += len(fds)
        for fd in fds:
            os.close(fd)
        s.close()
    assert heard == len(kept)  # who waited to be taken has his memory in the end
    quiet(c, d, before)
    Export(c, "u", "write").finish()


# --- clients that go ---

@pytest.fixture
def child():
    """A function: the id of a process that has done what it is told, and waits with that to be killed."""
    pids = []

    def start(work):
        hears, says = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                kept = work()
                os.write(says, b".")
                signal.pause()
                del kept
            finally:
                os._exit(1)
        pids.append(pid)
        os.close(says)
        said = os.read(hears, 1)
        os.close(hears)
        assert said == b"."
        return pid

    def kill(pid):
        pids.remove(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    start.kill = kill
    yield start
    for pid in list(pids):
        kill(pid)


@pytest.mark.in_turn
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_killed(local, child, backend):
    """kill -9 at any stage leaves nothing: no lease, no memory, no descriptor."""
    if backend == "gpu" and os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("mmap maps the fake driver's memory alone; a real one's: bench_export.py --kills")
    d = local("--max-exports", 5000, "--export-timeout", 2, backend=backend)
    c = d.client()
    c.upload(DATA, "u")
    Export(c, "u").finish()
    c.quiet()
    bytes_before, before = c.info()["bytes_in_use"], descriptors(d.pid)
    rng = random.Random(1)

    def holds():
        x = Export(mine, ref, mode)
        x.array()[:1].sum()
        return x

    def presents():
        x = Export(mine, ref, take=False)
        s = dial(x.reply["socket"])
        s.sendall(x.reply["token"].encode()[:rng.randrange(24)])
        return s

    for k in range(1000 if LONG else 60 if backend == "cpu" else 20):
        mine = c.clone()  # whose connection goes with the child
        mode, ref = rng.choice(["read", "write"]), "u"
        if k % 20 == 19:
            ref = c.upload(DATA)["id"]
            child.kill(child(presents))
            c.expect(409, c.delete(f"/v1/arrays/{ref}"))  # until export-timeout
            c.expect(200, c.patch(f"/v1/arrays/{ref}", {"name": f"left{k}"}))
        else:
            pid = child(holds)
            if mode == "write":
                c.fails(409, "locked", c.get("/v1/arrays/u/data"))
            child.kill(pid)
            until(lambda: c.patch("/v1/arrays/u", {"read_only": False}).status == 200)  # nobody has a lease, readers either
        mine.close()
    for a in c.list_all("/v1/arrays", "arrays"):
        if a["name"] != "u":
            until(lambda: c.delete(f"/v1/arrays/{a['id']}").status == 204)
    quiet(c, d, before)
    assert settle(c, bytes_before) == bytes_before
    c.expect(204, c.delete("/v1/arrays/u"))


def test_a_crowd_is_killed(local, child):
    """Many hold at once, and go at once."""
    n = 1000 if LONG else 200
    d = local("--max-exports", 2 * n, "--max-export-connections", 2 * n)
    c = d.client()
    before = c.info()["bytes_in_use"]
    c.upload(DATA, "u")
    Export(c, "u").finish()
    used, files = settle(c, -1, 0.05), descriptors(d.pid)

    def work():
        mine = c.clone()
        return mine, [Export(mine, "u") for _ in range(n // 5)]

    pids = [child(work) for _ in range(5)]
    assert figures(c)[""] == n
    c.fails(409, "locked", c.post("/v1/arrays/u/export", {"mode": "write"}))
    assert settle(c, -1, 0.05) <= used + 4096  # one memory, however many have it
    for pid in pids:
        child.kill(pid)
    quiet(c, d, files)
    Export(c, "u", "write").finish()
    c.expect(204, c.delete("/v1/arrays/u"))
    assert settle(c, before) == before


@pytest.mark.in_turn
def test_a_gpus_writer_that_lives_on(local):
    """Who closes the connection of an export for writing without its end, and lives, may have kernels under way: he is waited for,
    but not for ever."""
    d = local(backend="gpu")
    c = d.client()
    c.upload(DATA, "u")
    x = Export(c, "u", "write")
    begun = time.monotonic()
    x.drop()
    c.fails(409, "locked", c.get("/v1/arrays/u/data"))
    until(lambda: c.get("/v1/arrays/u/data").status == 200)
    assert 3 < time.monotonic() - begun < 15
    y = Export(c, "u")  # a reader does no harm
    y.drop()
    until(lambda: figures(c)[""] == 0, 2)
    assert figures(c)['_ended_total{how="lost"}'] == 2


def test_a_session_that_expires(local):
    d = local()
    c = d.client()
    before = settle(c, -1, 0.05)
    s = c.expect(201, c.post("/v1/sessions", {"ttl_s": 1})).json()["id"]
    mine = c.clone(session=s)
    mine.upload(DATA, "u")
    x = Export(mine, "u", "write")
    mine.close()
    until(lambda: c.get(f"/v1/sessions/{s}").status == 404)
    x.array()[...] = 1  # the memory is there
    assert settle(c, -1, 0.05) >= before + DATA.nbytes
    x.finish()
    assert settle(c, before) == before


# --- the daemon's end ---

def kept(d, ref="u"):
    c = d.client()
    try:
        return c.download(ref)
    finally:
        c.close()


def test_the_end_waits_for_writers(local, tmp_path):
    """SIGTERM: readers' exports end at once; a writer is told, and what he has written when he ends is what is kept."""
    args = ["--state-dir", tmp_path / "state", "--drain-timeout", 20]
    d = local(*args)
    c = d.client()
    for name in "ruw":
        c.upload(DATA, name)
    reader, writer, offer = Export(c, "r"), Export(c, "u", "write"), Export(c, "w", "write", take=False)
    late = dial(d.fd)  # its name soon goes
    c.close()
    d.proc.send_signal(signal.SIGTERM)
    assert reader.socket.recv(1) == b""
    said, fds = hear(writer.socket)
    assert (said["status"], said["code"], fds) == (503, "draining", [])
    late.sendall(offer.reply["token"].encode() + b"\n")
    assert hear(late)[0]["status"] == 404
    late.close()
    writer.array()[...] = 2
    assert d.proc.poll() is None
    writer.finish()
    d.proc.wait(60)
    d.stop()
    assert not os.path.exists(d.fd)
    d = local(*args)
    assert np.all(kept(d) == 2) and np.array_equal(kept(d, "w"), DATA)
    d.stop()


@pytest.mark.parametrize("how", ["timeout", "signal"])
def test_the_end_does_not_wait_for_ever(local, tmp_path, how):
    args = ["--state-dir", tmp_path / "state", "--drain-timeout", 0.5 if how == "timeout" else 60]
    d = local(*args)
    c = d.client()
    c.upload(DATA, "u")
    x = Export(c, "u", "write")
    x.array()[:500] = -1
    c.close()
    begun = time.monotonic()
    d.proc.send_signal(signal.SIGTERM)
    hear(x.socket)
    if how == "signal":
        d.proc.send_signal(signal.SIGTERM)
    d.proc.wait(60)  # another signal would end it at once
    d.stop()
    assert time.monotonic() - begun < 20 and x.socket.recv(1) == b""
    x.drop()
    d = local(*args)
    a = kept(d)  # as it was then
    assert np.all(a[:500] == -1) and np.array_equal(a[500:], DATA[500:])
    d.stop()


def test_a_snapshot_meanwhile(local, tmp_path):
    """What is exported for writing is kept as it is just then, each time anew; kill -9 of the daemon loses no more than ever."""
    d = local("--state-dir", tmp_path / "state")
    c = d.client()
    c.upload(np.zeros(1 << 18), "u")  # a file of its own
    c.expect(200, c.post("/v1/snapshot"))
    with Export(c, "u", "write") as x:
        for k in (1, 2):
            x.array()[...] = k
            taken = c.expect(200, c.post("/v1/snapshot")).json()
            assert (taken["left_out"], taken["reused"]) == (0, 0)
        x.array()[...] = 3
        d.kill()
        x.drop()
    again = local("--state-dir", tmp_path / "state")
    assert np.all(kept(again) == 2)
    again.stop()
