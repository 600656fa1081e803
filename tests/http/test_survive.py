"""Arrays that outlive the daemon: whatever kills it, the next one has them, under the same ids and with every byte."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from client import REPO, Client
from conftest import fake_gpu, find_binary, until
from test_keeper_stored import START, Manager


# A sanitizer would take the signal for itself, and end with a status of its own.
DEADLY = {"ASAN_OPTIONS": "detect_stack_use_after_return=0:handle_segv=0"}


def kill(d, sig=signal.SIGKILL):
    before = d.pid
    os.kill(before, sig)
    until(lambda: d.pid not in (before, d.proc.pid))


def keeping(start, *args):
    """However many deaths there are, none puts the next daemon off."""
    return start("--keep-arrays", "--restart-limit", 1000, "--restart-rate", 0, "--restart-wait", 0, *args, environment=DEADLY)


def same(c, name, want):
    got = c.download(name)
    assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes(), name


def idle(c):
    """What was asked is done: nothing is being written."""
    c.expect(200, c.post("/v1/sessions/default/sync"))


@pytest.mark.in_turn
def test_ten_deaths(daemon_with):
    d, rng = keeping(daemon_with), np.random.default_rng(1)
    c = d.client()
    want = {}
    for k, (n, dtype) in enumerate([(3, "float64"), (1000, "int16"), (100_000, "float32"), (1 << 20, "float32"), (5000, "complex64"), (700, "bool")]):
        a = (rng.standard_normal(n) * 100).astype(dtype)
        c.upload(a, f"a{k}")
        want[f"a{k}"] = a
    ids = {name: c.meta(name)["id"] for name in want}
    session = c.expect(201, c.post("/v1/sessions", {"name": "mine"})).json()["id"]
    inside = d.client(session=session)
    inside.upload(np.arange(10.0), "inside")
    c.expect(201, c.post("/v1/arrays/a2/views", {"index": "10:20:3", "name": "part"}))
    want["part"] = want["a2"][10:20:3]
    for k in range(10):
        idle(c)
        c.close()
        inside.close()
        kill(d, random.Random(k).choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT]))
        for name, a in want.items():
            same(c, name, a)
        assert {name: c.meta(name)["id"] for name in ids} == ids
        same(inside, "inside", np.arange(10.0))
        # what is written and made in this life is there in the next one
        c.expect(200, c.post("/v1/evaluate", {"expr": "a2 + 1", "out": "a2"}))
        want["a2"] = want["a2"] + np.float32(1)
        want["part"] = want["a2"][10:20:3]
        new = rng.standard_normal(20_000)
        c.upload(new, f"new{k}")
        want[f"new{k}"] = new
        if k % 3 == 2:
            c.expect(204, c.delete(f"/v1/arrays/{ids.pop(f'a{k // 3 * 2 + 1}')}"))
            del want[f"a{k // 3 * 2 + 1}"]
        time.sleep(1.01)
    assert len(c.list_all("/v1/arrays", "arrays")) == len(want)
    assert c.info()["process"]["restarts"] == 10
    c.close()
    inside.close()


def test_what_was_being_written(daemon_with):
    """An array that work was writing to has lost its contents until it is written as a whole; all else is whole."""
    d = keeping(daemon_with)
    c = d.client()
    c.upload(np.arange(1 << 20, dtype="float32"), "a")
    c.upload(np.arange(1 << 20, dtype="float32"), "u")
    idle(c)
    heavy = "u" + "".join(f" + sin(u*{k})" for k in range(60))
    for _ in range(6):
        r = c.post("/v1/evaluate", {"expr": heavy, "out": "u"})
        assert r.status in (200, 202)
    c.close()
    kill(d)
    same(c, "a", np.arange(1 << 20, dtype="float32"))
    r = c.get("/v1/arrays/u/data")
    if r.status != 200:  # it may have been done by then
        c.fails(409, "contents_lost", r)
    c.expect(200, c.post("/v1/evaluate", {"expr": "a*2", "out": "u"}))
    same(c, "u", np.arange(1 << 20, dtype="float32") * 2)
    c.close()


def test_an_upgrade_needs_no_state(daemon_with):
    d = keeping(daemon_with)
    c = d.client()
    c.upload(np.arange(5000.0), "a")
    idle(c)
    c.close()
    before = d.pid
    d.proc.send_signal(signal.SIGUSR2)
    until(lambda: d.pid not in (before, d.proc.pid) and "upgraded" in d.log())
    same(c, "a", np.arange(5000.0))
    c.close()


def test_a_restart_by_the_service_manager(daemon_with, tmp_path):
    """Keeper and daemon end as asked; what they had is in the manager's hands, and the next ones find it there."""
    manager = Manager(tmp_path / "notify")
    d = daemon_with("--keep-arrays", environment={"NOTIFY_SOCKET": manager.path})
    c = d.client()
    big = np.random.default_rng(2).standard_normal(1 << 20)
    c.upload(np.arange(5000.0), "small")
    c.upload(big, "big")
    c.expect(201, c.post("/v1/arrays/big/views", {"index": "::1000", "name": "part"}))
    c.close()
    manager.until("READY")
    d.stop()
    manager.until("STOPPING")
    manager.said.clear()
    names, fds = ":".join(manager.stored), [*manager.stored.values()]
    again = subprocess.Popen([sys.executable, "-c", START, ",".join(map(str, fds)), names, find_binary(), "--keep-arrays", "--listen", "127.0.0.1:0"],
                             pass_fds=fds, env={**os.environ, "NOTIFY_SOCKET": manager.path}, stderr=subprocess.PIPE, text=True)
    try:
        manager.until("READY")
        c = d.client()
        same(c, "small", np.arange(5000.0))
        same(c, "big", big)
        same(c, "part", big[::1000])
        c.close()
    finally:
        again.terminate()
        said = again.communicate(timeout=20)[1]
    assert again.returncode == 0, said


@pytest.mark.in_turn
def test_memory_of_the_dead_is_not_leaked(daemon_with):
    d = keeping(daemon_with)
    c = d.client()
    held = lambda: len(os.listdir(f"/proc/{d.proc.pid}/fd"))
    kill(d)
    before = held()
    for _ in range(3):
        for k in range(4):
            c.upload(np.zeros(1 << 20), f"x{k}")
        c.close()
        time.sleep(1.01)
        kill(d)
        for k in range(4):
            c.expect(204, c.delete(f"/v1/arrays/x{k}"))
        c.close()
        time.sleep(1.01)
        kill(d)  # freed memory that was kept for reuse has no owner now
        until(lambda: held() <= before + 2)
    assert c.info()["bytes_in_use"] == 0
    c.close()


def test_what_else_is_kept(daemon_with, accounts):
    """Functions, shares and leases of two users, and a share that was taken back."""
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    d = keeping(daemon_with, "--accounts", accounts.path)
    ann, bob = [accounts.client(d, name) for name in ("ann", "bob")]
    ids = {}
    for name in ("lent", "back", "held"):
        ann.upload(np.arange(2000.0), name)
        ids[name] = ann.meta(name)["id"]
    ann.expect(201, ann.post("/v1/functions", {"name": "twice", "params": ["x"], "expr": "2*x"}))
    for name in ("lent", "back"):
        r = ann.post(f"/v1/arrays/{name}/shares", {"principal": "bob", "access": "read"})
        assert r.status in (200, 201), r
    ann.expect(204, ann.delete("/v1/arrays/back/shares/bob"))
    lease = ann.expect(201, ann.post("/v1/arrays/held/lease", {"mode": "write", "ttl_s": 600})).json()
    idle(ann)
    for c in (ann, bob):
        c.close()
    kill(d)
    assert ann.evaluate("twice(lent)").tolist() == (2 * np.arange(2000.0)).tolist()
    assert bob.download(ids["lent"]).tolist() == np.arange(2000.0).tolist()
    bob.fails(404, "not_found", bob.get(f"/v1/arrays/{ids['back']}"))
    ann.fails(409, "locked", ann.post("/v1/evaluate", {"expr": "held*2", "out": "held"}))
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "held*2", "out": "held"}, headers={"Arrayd-Lease": lease["token"]}))
    for c in (ann, bob):
        c.close()


def test_memory_without_a_journal(daemon_with, tmp_path, contract):
    """What is left under a name that new memory gets, too, takes nothing of that with it when it goes."""
    d = daemon_with("--state-dir", tmp_path / "state")
    c = d.client()
    c.upload(np.arange(500.0), "a")
    c.close()
    d.stop()
    fd = os.memfd_create("left")
    os.ftruncate(fd, 2 << 20)
    log = tmp_path / "log"
    with open(log, "wb") as f:
        p = subprocess.Popen([sys.executable, "-c", START, str(fd), "chunk.1.0.2097152", find_binary(), "--keep-arrays", "--backend", "cpu",
                              "--state-dir", tmp_path / "state", "--listen", f"unix:{tmp_path}/s"], pass_fds=[fd], stderr=f)
    try:
        until(lambda: log.read_text().count(" ready ") == 1)
        with open(f"/proc/{p.pid}/task/{p.pid}/children") as f:
            os.kill(int(f.read().split()[0]), signal.SIGKILL)
        until(lambda: log.read_text().count(" ready ") == 2)
        assert 'arrays=1 sessions=1 passed_over=0' in log.read_text()
        c = Client(None, None, contract, unix=f"{tmp_path}/s")
        assert c.download("a").tolist() == np.arange(500.0).tolist()
        c.close()
    finally:
        p.terminate()
        assert p.wait(20) == 0, log.read_text()


def test_cells_that_are_damaged(daemon_with):
    """What the dying process wrote over them by mistake refuses no start; of its arrays the next one has what is not in doubt."""
    d = keeping(daemon_with)
    c = d.client()
    for k in range(5):
        c.upload(np.arange(1000.0) + k, f"a{k}")
    idle(c)
    c.close()
    folder = pathlib.Path(f"/proc/{d.proc.pid}/fd")
    cells = next(x for x in folder.iterdir() if "arrayd-cells" in os.readlink(x))
    with open(cells, "r+b") as f:
        f.write(b"\xff" * (40 * 3 + 8))
    kill(d)
    until(lambda: d.log().count(" ready ") == 2)
    assert "what the previous process noted of arrays is damaged" in d.log()
    lost = [c.get(f"/v1/arrays/a{k}/data").status == 409 for k in range(5)]
    assert lost == [True, True, True, False, False]
    for k in (3, 4):
        same(c, f"a{k}", np.arange(1000.0) + k)
    said = c.fails(409, "contents_lost", c.get("/v1/arrays/a0/data"))
    assert re.search(r"daemon died of signal 9 \(Killed\) at 20\d\d-", said["detail"])
    c.close()


def test_a_device_whose_memory_cannot_be_kept(gpu_with, tmp_path):
    """It is said, and the state on disk is what the next daemon has."""
    d = gpu_with("--keep-arrays", "--state-dir", tmp_path / "state", environment={"ARRAYD_FAKE_VMM": "0"})
    c = d.client()
    process = c.info()["process"]
    assert not process["keeps_arrays"] and process["keeps_arrays_problem"] in d.log()
    assert "arrays do not outlive the process" in d.log() and "arrayd_journal" not in c.get("/metrics").body.decode()
    c.upload(np.arange(500.0), "a")
    c.expect(200, c.post("/v1/snapshot"))
    c.close()
    kill(d)
    same(c, "a", np.arange(500.0))
    assert "cannot be used" not in d.log()
    c.close()


def test_whether_arrays_are_kept_is_told(daemon_with):
    for option, problem in (("--keep-arrays=yes", ""), ("--keep-arrays=no", "keep-arrays is no"), ("--no-keeper", "there is no keeper")):
        d = daemon_with(option)
        c = d.client()
        process = c.info()["process"]
        assert process["keeps_arrays"] == (not problem) and process["keeps_arrays_problem"] == problem
        assert ("arrayd_chunks 0" in c.get("/metrics").body.decode()) == (not problem)
        c.close()
        d.stop()


@pytest.mark.parametrize("option, size, most", [("max-chunks", 1 << 19, 8), ("max-kept-arrays", 1, 40)])
def test_that_no_more_arrays_are_kept_is_told(daemon_with, option, size, most):
    d = daemon_with("--keep-arrays", f"--{option}", most, "--reuse-time", "1")
    c = d.client()
    process = lambda: c.info()["process"]
    reached = lambda: "arrayd_keep_limit_reached 1" in c.get("/metrics").body.decode()
    for k in range(most):
        c.create(name=f"x{k}", shape=[size], dtype="float64")
    assert process()["keeps_arrays"] and not reached() and option not in d.log()
    for k in range(3):
        c.create(name=f"more{k}", shape=[size], dtype="float64")
    assert not process()["keeps_arrays"] and option in process()["keeps_arrays_problem"] and reached()
    assert d.log().count("new or moved arrays end with this process") == 1
    for k in range(most // 2):
        c.expect(204, c.delete(f"/v1/arrays/x{k}"))
    until(lambda: process()["keeps_arrays"])
    assert not reached() and d.log().count("new arrays outlive this process again") == 1
    c.close()


@pytest.mark.in_turn
def test_memory_that_was_let_go(daemon_with):
    """It is kept for the next array of its size, within limits of its amount and time."""
    d = daemon_with("--keep-arrays", "--reuse-memory", "20MiB", "--reuse-time", "2")
    c = d.client()
    figure = lambda name: int(re.search(rf"^{name} (\d+)", c.get("/metrics").body.decode(), re.M)[1])
    for name in "ab":
        c.upload(np.zeros(2 << 20), name)
    assert figure("arrayd_chunks") == 2 and figure("arrayd_shareable_kept_bytes") == 0
    for name in "ab":
        c.expect(204, c.delete(f"/v1/arrays/{name}"))
    until(lambda: figure("arrayd_chunk_bytes") == 16 << 20)
    assert figure("arrayd_shareable_kept_bytes") == 16 << 20
    c.upload(np.ones(2 << 20), "a")
    assert figure("arrayd_shareable_kept_bytes") == 0 and figure("arrayd_chunks") == 1
    c.expect(204, c.delete("/v1/arrays/a"))
    until(lambda: figure("arrayd_chunks") == 0)
    assert c.info()["limits"]["reuse_memory"] == 20 << 20
    c.close()


@pytest.mark.in_turn
def test_what_only_the_state_has(daemon_with, tmp_path):
    """An array that does not outlive the daemon is there as the last snapshot has it; once deleted it stays so."""
    d = keeping(daemon_with, "--max-kept-arrays", 2, "--state-dir", tmp_path / "state")
    c = d.client()
    for k, name in enumerate(("a", "b", "beyond")):
        c.upload(np.arange(1000.0) + k, name)
    c.expect(201, c.post("/v1/arrays/beyond/views", {"index": "10:20", "name": "part"}))
    ids = {name: c.meta(name)["id"] for name in ("a", "b", "beyond", "part")}
    c.expect(200, c.post("/v1/snapshot"))
    c.expect(200, c.post("/v1/evaluate", {"expr": "a + 1", "out": "a"}))
    c.expect(200, c.post("/v1/evaluate", {"expr": "beyond + 1", "out": "beyond"}))
    for _ in range(2):
        idle(c)
        c.close()
        kill(d)
        same(c, "a", np.arange(1000.0) + 1)
        same(c, "b", np.arange(1000.0) + 1)
        same(c, "beyond", np.arange(1000.0) + 2)
        same(c, "part", np.arange(10.0, 20) + 2)
        assert {name: c.meta(name)["id"] for name in ids} == ids and c.meta("beyond")["restored_from"]
        time.sleep(1.01)
    # what ends as it is asked to has saved it
    c.expect(200, c.post("/v1/evaluate", {"expr": "beyond + 5", "out": "beyond"}))
    c.close()
    before = d.pid
    d.proc.send_signal(signal.SIGUSR2)
    until(lambda: d.pid not in (before, d.proc.pid) and "upgraded" in d.log())
    same(c, "beyond", np.arange(1000.0) + 7)
    for name in ("part", "beyond"):
        c.expect(204, c.delete(f"/v1/arrays/{ids[name]}"))
    c.close()
    kill(d)
    assert sorted(a["name"] for a in c.list_all("/v1/arrays", "arrays")) == ["a", "b"]
    c.close()


def dies(d):
    pid = d.pid
    os.kill(pid, signal.SIGKILL)
    return pid


@pytest.mark.in_turn
@pytest.mark.parametrize("backend", ["cuda", "auto"])
def test_a_process_that_is_still_on_the_gpu(gpu_with, tmp_path, backend):
    """Nothing is mapped before the driver says that it has left, and no other backend is used."""
    there = tmp_path / "there"
    there.write_text("")
    d = gpu_with("--keep-arrays", "--restart-limit", 1000, "--backend", backend, environment={"ARRAYD_FAKE_NVML_THERE": str(there)})
    c = d.client()
    c.upload(np.arange(5000.0), "a")
    idle(c)
    c.close()
    there.write_text(f"1 {d.pid}\n")
    before = dies(d)
    until(lambda: f"process {before}, whose memory is to be taken over, is still on a GPU" in d.log(), 30)
    assert "taken over from" not in d.log() and d.log().count(" ready ") == 1
    there.write_text("1\n")
    until(lambda: d.log().count(" ready ") == 2)
    same(c, "a", np.arange(5000.0))
    c.close()
    time.sleep(1.05)
    there.write_text(f"{before} {d.pid}\n")
    dies(d)
    time.sleep(0.7)
    assert d.log().count("taken over from") == 1
    there.write_text("")  # it leaves in time
    until(lambda: d.log().count("taken over from") == 2)
    assert d.log().count("still on a GPU") == 1
    same(c, "a", np.arange(5000.0))
    c.close()


def test_a_gpu_that_knows_processes_by_other_numbers(gpu_with, tmp_path):
    """In a container: a number that is the same by chance says nothing."""
    there = tmp_path / "there"
    there.write_text("")
    d = gpu_with("--keep-arrays", environment={"ARRAYD_FAKE_NVML_THERE": str(there), "ARRAYD_FAKE_NVML": "apart"})
    c = d.client()
    c.upload(np.arange(50.0), "a")
    idle(c)
    c.close()
    there.write_text(str(d.pid))
    dies(d)
    until(lambda: d.log().count(" ready ") == 2, 4)
    same(c, "a", np.arange(50.0))
    c.close()


def test_memory_of_another_backend(daemon_with, tmp_path):
    """It is not given up because an option does not fit it, unless that option says so."""
    fake = fake_gpu()
    if fake is None or os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("for the fake driver")
    config = tmp_path / "config"
    config.write_text("backend = auto\n")
    d = daemon_with("--config", config, "--kernel-cache", "none", "--restart-limit", 1000, environment=fake)
    c = d.client()
    for k, n in enumerate((5000, 1 << 20)):
        c.upload(np.arange(float(n)), f"a{k}")
    idle(c)
    c.close()
    config.write_text("backend = cpu\n")
    dies(d)
    until(lambda: "memory of the backend cuda, but the option backend is cpu" in d.log(), 30)
    assert d.log().count(" ready ") == 1
    config.write_text("backend = auto\n")
    until(lambda: d.log().count(" ready ") == 2, 30)
    for k, n in enumerate((5000, 1 << 20)):
        same(c, f"a{k}", np.arange(float(n)))
    c.close()
    config.write_text("backend = cpu\nkeep-arrays = no\n")
    dies(d)
    until(lambda: d.log().count(" ready ") == 3, 30)
    c.fails(404, "not_found", c.get("/v1/arrays/a0"))
    assert c.info()["backend"] == "cpu"
    c.close()


def test_what_cannot_be_mapped_now(daemon_with, tmp_path, contract):
    """Nothing is given up for a start with fewer devices, or with one that cannot share memory for once."""
    fake = fake_gpu()
    if fake is None or os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("for the fake driver")
    manager = Manager(tmp_path / "notify")
    fake["NOTIFY_SOCKET"] = manager.path
    options = ["--kernel-cache", "none", "--memory-limit"]
    d = daemon_with(*options, "200MiB", environment={**fake, "ARRAYD_FAKE_DEVICES": "2"})
    c = d.client()
    session = c.expect(201, c.post("/v1/sessions", {"device": 1})).json()["id"]
    inside = d.client(session=session)
    want = {f"a{k}": np.arange(float(n)) for k, n in enumerate((5000, 1 << 20, 1 << 20))}
    for name, a in want.items():
        c.upload(a, name)
        inside.upload(a, name)
    for x in (c, inside):
        idle(x)
        x.close()
    manager.until("READY")
    d.stop()
    manager.until("STOPPING")

    def again(**environment):
        names, fds = ":".join(manager.stored), [*manager.stored.values()]
        return subprocess.Popen([sys.executable, "-c", START, ",".join(map(str, fds)), names, find_binary(), *options, "1MiB", "--listen", f"unix:{tmp_path}/s"],
                                pass_fds=fds, env={**os.environ, **fake, **environment}, stderr=subprocess.PIPE, text=True)

    def ended(p):
        try:
            return p.communicate(timeout=60)[1]
        finally:
            p.kill()

    stored = {name for name in manager.stored if not name.startswith("faults")}
    for why, environment in (("there is no device 1 now", {}), ("has no virtual memory management", {"ARRAYD_FAKE_VMM": "0"})):
        p = again(**environment)
        said = ended(p)
        assert p.returncode == 1 and "memory of the previous process" in said and why in said, said
        manager.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                manager.hear()
        manager.socket.settimeout(20)
        assert stored <= set(manager.stored)
    manager.said.clear()
    p = again(ARRAYD_FAKE_DEVICES="2")
    try:
        manager.until("READY")
        for x in (Client(None, None, contract, unix=f"{tmp_path}/s"), Client(None, None, contract, unix=f"{tmp_path}/s", session=session)):
            for name, a in want.items():
                same(x, name, a)
            x.close()
    finally:
        p.terminate()
        said = ended(p)
    assert p.returncode == 0, said


@pytest.mark.in_turn
def test_what_happened_is_told(gpu_with):
    """By the error of an array whose contents are lost, also if another process ended since; until it is written as a whole."""
    d = gpu_with("--keep-arrays", "--restart-limit", 1000)
    c = d.client()
    for name in "abc":
        c.upload(np.arange(1000.0), name)
    idle(c)
    d.fail("700")
    c.post("/v1/evaluate", {"expr": "a + 1", "out": "a"})
    c.close()
    until(lambda: d.log().count(" ready ") == 2)
    lost = c.fails(409, "contents_lost", c.get("/v1/arrays/a/data"))["detail"]
    assert re.search(r"was being written when the daemon lost its device at 20\d\d-", lost)
    same(c, "b", np.arange(1000.0))
    c.close()
    time.sleep(1.1)
    kill(d)
    assert c.fails(409, "contents_lost", c.get("/v1/arrays/a/data"))["detail"] == lost
    c.expect(200, c.post("/v1/evaluate", {"expr": "b*2", "out": "a"}))
    idle(c)
    same(c, "a", np.arange(1000.0) * 2)
    c.close()
    time.sleep(1.1)
    kill(d)
    same(c, "a", np.arange(1000.0) * 2)
    c.close()


# --- everything at once: tests/bench/bench_survive.py ---


def bench(*args, environment=()):
    command = [sys.executable, REPO / "tests/bench/bench_survive.py", find_binary(), *map(str, args)]
    done = subprocess.run(command, env={**os.environ, **DEADLY, **dict(environment)}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]
    return json.loads(done.stdout.splitlines()[0])


@pytest.mark.in_turn
@pytest.mark.release_only
def test_ten_ends_while_four_users_work():
    seen = bench("--backend", "cpu", "--arrays", 60, "--bytes", "40MiB", "--rounds", 3, "--elements", 1 << 16, "--midst", 1)
    assert seen["different"] == 0 and seen["rounds"] == 9 and seen["midst_s"] >= 1
    assert seen["users"]["evaluations"] > 100 and seen["users"]["whole"] > 10


@pytest.mark.in_turn
@pytest.mark.release_only
def test_a_fault_while_four_users_work(tmp_path):
    fake = fake_gpu()
    if fake is None or os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("for the fake driver")
    fuse = tmp_path / "fuse"
    seen = bench("--backend", "cuda", "--fault", fuse, "--kinds", "fault,kill,upgrade", "--arrays", 24, "--bytes", "4MiB", "--rounds", 1,
                 "--elements", 4096, "--midst", 0, environment={**fake, "ARRAYD_FAKE_FAIL_FILE": str(fuse)})
    assert seen["different"] == 0 and seen["rounds"] == 3


def test_only_a_build_for_it_can_be_made_to_fault():
    """-Dfault_hook=true adds a kernel that faults; of that nothing is in any other program."""
    binary, source = pathlib.Path(find_binary()), (REPO / "compute/gpu/cuda/fault_hook.c").read_text()
    options = json.loads((binary.parents[1] / "meson-info/intro-buildoptions.json").read_text())
    hooked = next(o["value"] for o in options if o["name"] == "fault_hook")
    for name in ("arrayd_fault_hook", "arrayd-faults", "cuda_fault_hook"):
        assert name in source and (name.encode() in binary.read_bytes()) == hooked, name


def test_arrays_without_elements(daemon_with, tmp_path):
    d = keeping(daemon_with, "--state-dir", tmp_path)
    c = d.client()
    want = {f"e{k}": np.empty(shape, dtype) for k, (shape, dtype) in enumerate([((0,), "float64"), ((0, 7), "int16"), ((3, 0), "bool")])}
    for name, a in want.items():
        c.upload(a, name)
    c.expect(201, c.post("/v1/arrays/e1/views", {"index": ":, 2:4", "name": "part"}))
    want["part"] = want["e1"][:, 2:4]
    ids = {name: c.meta(name)["id"] for name in want}
    for _ in range(2):
        kill(d)
        for name, a in want.items():
            same(c, name, a)
        assert {name: c.meta(name)["id"] for name in want} == ids
    c.expect(204, c.request("PUT", "/v1/arrays/e0/data", b"", content_type="application/octet-stream"))
    c.expect(200, c.post("/v1/evaluate", {"expr": "e1 + 1", "out": "e1"}))
    kill(d)
    same(c, "e1", want["e1"])
    assert "passed_over=0 left_to_state=0" in d.log() and "arrays are" not in d.log()
    c.close()
