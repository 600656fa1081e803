"""State on disk when things go wrong: kill -9, damaged and foreign files, full disks, no time, a lost device.
test_state.py has what goes well."""
import contextlib
import os
import random
import resource
import shutil
import subprocess
import threading
import time

import numpy as np
import pytest

from conftest import find_binary

LONG = bool(os.environ.get("ARRAYD_LONG"))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def kept(daemon_with, folder):
    def start(*args, **kw):
        d = daemon_with("--state-dir", folder, *args, **kw)
        return d, d.client()

    return start


def killed(d, c=None):
    if c:
        c.close()
    d.kill()


def refused(folder, *args, status=1):
    """Starts a daemon that must not come up; what it says."""
    done = subprocess.run([find_binary(), "--listen", "127.0.0.1:0", "--state-dir", str(folder), *args],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done
    assert "AddressSanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr
    assert " ready" not in done.stderr
    return done.stderr


def names(c):
    return [a["name"] for a in c.list_all("/v1/arrays", "arrays")]


@pytest.fixture
def sound(kept, folder, tmp_path):
    """A folder with a snapshot of some of everything; copy() puts it back as it was."""
    d, c = kept()
    c.upload(np.arange(300, dtype="int16"), "a")
    c.expect(201, c.post("/v1/arrays/a/views", {"index": "::2", "name": "v"}))
    c.create(shape=[4, 4], ghost=[1, 1], name="g", boundary=["periodic", "periodic"])
    c.create(shape=[1 << 17], name="large", fill=1)
    c.expect(201, c.post("/v1/functions", {"name": "f", "params": ["x"], "expr": "x+1"}))
    c.expect(201, c.post("/v1/sessions", {"name": "s"}))
    c.close()
    d.stop()
    saved = tmp_path / "saved"
    shutil.copytree(folder, saved)

    def copy():
        shutil.rmtree(folder)
        shutil.copytree(saved, folder)
        return next(folder.glob("snapshot-*"))

    return copy


@pytest.mark.in_turn
def test_every_byte_of_the_manifest(sound, folder):
    """One process a byte would take minutes in the short run: there each 16th is flipped, in the long all."""
    snapshot = sound()
    for name, step in (("manifest.json", 1 if LONG else 24), ("current", 1 if LONG else 4)):
        path = folder / name if name == "current" else snapshot / name
        good = path.read_bytes()
        for i in range(0, len(good), step):
            bad = bytearray(good)
            bad[i] ^= 1 << random.Random(i).randrange(8)
            path.write_bytes(bad)
            said = refused(folder)
            assert "cannot be restored" in said and str(folder) in said, (i, said)
        path.write_bytes(good)


@pytest.mark.parametrize("file", ["manifest.json", "data", "memory-1-0", "current"])
def test_cut_files(sound, folder, kept, file):
    for keep in (0, 1, 0.5, -1):
        snapshot = sound()
        path = folder / file if file == "current" else snapshot / file
        good = path.read_bytes()
        path.write_bytes(good[:int(len(good) * keep) if isinstance(keep, float) else keep])
        assert "cannot be restored" in refused(folder), keep
    sound()
    path = next(folder.glob("snapshot-*")) / file if file != "current" else folder / file
    path.unlink()
    if file != "current":
        assert "No such file" in refused(folder)
    sound()
    d, c = kept()
    assert names(c) == ["a", "v", "g", "large"]
    c.close()


def test_damaged_data(sound, folder):
    snapshot = sound()
    for name, step in (("data", 1 if LONG else 150), ("memory-1-0", 90001 if LONG else 400001)):
        good = (snapshot / name).read_bytes()
        for i in range(0, len(good), step):
            bad = bytearray(good)
            bad[i] ^= 0x10
            (snapshot / name).write_bytes(bad)
            assert "SHA-256" in refused(folder), i
        (snapshot / name).write_bytes(good)


def test_foreign_and_newer(sound, folder):
    sound()
    pointer = folder / "current"
    text = pointer.read_text()
    pointer.write_text(text.replace("state 1", "state 2"))
    assert "newer" in refused(folder)
    pointer.write_text("something else\n")
    assert "not a pointer" in refused(folder)
    pointer.write_text(text.replace("snapshot-", "../state/snapshot-"))
    assert "damaged" in refused(folder)
    pointer.write_bytes(b"\0" * 100000)
    assert "cannot be restored" in refused(folder)
    pointer.unlink()
    pointer.mkdir()
    assert "cannot be restored" in refused(folder)
    pointer.rmdir()
    os.mkfifo(pointer)
    assert "not a file" in refused(folder)
    data = sound() / "data"
    data.unlink()
    os.mkfifo(data)
    assert "not a file" in refused(folder)


def test_without_current(sound, folder, kept):
    """The last whole snapshot has a pointer of its own, and is taken, with a word; one that never counted is not."""
    snapshot = sound()
    torn = folder / "snapshot-7"
    shutil.copytree(snapshot, torn)
    (torn / "manifest.json").write_bytes((snapshot / "manifest.json").read_bytes()[:-1])
    shutil.copytree(snapshot, folder / "snapshot-5")  # whose pointer is another's
    (folder / "current").unlink()
    d, c = kept()
    assert names(c) == ["a", "v", "g", "large"] and "'current' is missing" in d.log()
    assert (folder / "snapshot-1").exists()
    assert c.expect(200, c.post("/v1/snapshot")).json()["reused"] == 1 << 20
    assert [p.name for p in folder.glob("snapshot-*")] == ["snapshot-8"]
    killed(d, c)
    d, c = kept()
    assert names(c) == ["a", "v", "g", "large"] and "missing" not in d.log()
    killed(d, c)
    # an older version's has none: whether it is whole nobody can say
    snapshot = sound()
    (folder / "current").unlink()
    (snapshot / "current").unlink()
    assert "current is missing, but there is snapshot-1" in refused(folder) and snapshot.exists()
    d, c = kept("--state-ignore")
    assert names(c) == [] and (folder / "refused-1" / "manifest.json").exists()
    c.close()


def test_a_first_snapshot_that_was_not_finished(folder, kept):
    """It is nothing to start with, and no reason not to start."""
    (folder / "snapshot-1").mkdir(parents=True)
    (folder / "snapshot-1" / "data").write_bytes(b"some")
    (folder / "current.new").write_text("arrayd")
    d, c = kept()
    c.upload(np.arange(3), "a")
    c.expect(200, c.post("/v1/snapshot"))
    assert [p.name for p in folder.glob("snapshot-*")] == ["snapshot-2"]
    c.close()


def test_put_aside(sound, folder, kept):
    """--state-ignore starts empty and keeps what it could not use; where it can be used it is."""
    for damage in ("data", "current"):
        snapshot = sound()
        path = folder / "current" if damage == "current" else snapshot / "data"
        path.write_bytes(b"x" + path.read_bytes()[1:])
        bad = path.read_bytes()
        d, c = kept("--state-ignore")
        assert "moved aside" in d.log() and names(c) == []
        assert len(c.list_all("/v1/sessions", "sessions")) == 1 and c.list_all("/v1/functions", "functions") == []
        assert c.info()["bytes_in_use"] == 0 and c.info()["state"]["restored_from"] is None
        c.upload(np.arange(3), "new")
        c.close()
        d.stop()
        d, c = kept("--state-ignore")
        assert names(c) == ["new"] and "moved aside" not in d.log()
        c.close()
        d.stop()
        aside = folder / "current.refused" if damage == "current" else next(folder.glob("refused-*")) / "data"
        assert aside.read_bytes() == bad and (next(folder.glob("refused-*")) / "manifest.json").exists()


def test_put_aside_again(sound, folder, kept):
    """What was moved aside is not overwritten by what is moved aside later."""
    sound()
    for k in ("", "-2", "-3"):
        (next(folder.glob("snapshot-*")) / "manifest.json").write_text("damaged")
        bad = (folder / "current").read_bytes()
        d, c = kept("--state-ignore")
        c.close()
        d.stop()
        assert (folder / f"current.refused{k}").read_bytes() == bad
    assert len(list(folder.glob("refused-*"))) == 3 and len({p.read_bytes() for p in folder.glob("current*")}) == 4


@pytest.mark.in_turn
def test_one_process_at_a_time(kept, folder):
    d, c = kept()
    assert "another process" in refused(folder, status=2)
    c.upload(np.arange(3), "a")
    c.close()
    d.stop()
    d, c = kept()
    assert names(c) == ["a"]
    c.close()


def test_no_folder(daemon_with, tmp_path):
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused(tmp_path / "file")
    assert "No such file" in refused(tmp_path / "none" / "state")


@pytest.mark.in_turn
def test_killed_at_any_moment(kept, folder):
    """Every restart has a snapshot that was complete: all arrays of one generation or a later one, each whole.
    a2 has a file of its own, which is linked into every second snapshot."""
    rounds = 100 if LONG else 20
    rng = random.Random(11)
    acknowledged = even = 0
    sizes = 3000, 3000, 1 << 17
    d, c = kept()
    for k, n in enumerate(sizes):
        c.create(shape=[n], dtype="int64", name=f"a{k}")
    c.expect(200, c.post("/v1/snapshot"))
    ids = {a["name"]: a["id"] for a in c.list_all("/v1/arrays", "arrays")}
    for turn in range(rounds):
        state = {"written": None}
        stop = threading.Event()

        def load(base):
            mine = d.client()
            value = base
            try:
                while not stop.is_set():
                    value += 1
                    for k, n in enumerate(sizes):
                        if k == 2 and value % 2:
                            continue
                        r = mine.request("PUT", f"/v1/arrays/a{k}/data", np.full(n, value, "int64").tobytes(),
                                         content_type="application/octet-stream")
                        assert r.status == 204, r
                    r = mine.post("/v1/snapshot")
                    assert r.status == 200, r
                    state["written"] = value
                    if value % 2 == 0:
                        state["even"] = value
            except (ConnectionError, OSError, EOFError):
                pass
            except Exception as e:  # http.client's, of a reply cut off
                if "http.client" not in type(e).__module__:
                    state["failed"] = e

        t = threading.Thread(target=load, args=(acknowledged + 10,))
        t.start()
        time.sleep(rng.random() * (1.0 if LONG else 0.25))
        killed(d, c)
        stop.set()
        t.join()
        assert "failed" not in state, state
        d, c = kept()
        acknowledged, even = state["written"] or acknowledged, state.get("even", even)
        assert {a["name"]: a["id"] for a in c.list_all("/v1/arrays", "arrays")} == ids
        for k in range(3):
            a = c.download(f"a{k}")
            assert (a == a[0]).all() and a[0] >= (even if k == 2 else acknowledged), (turn, k, a, acknowledged)
        assert len(list(folder.glob("snapshot-*"))) == 1
    c.close()


def test_full_disk(kept, folder):
    """A file that may not grow (RLIMIT_FSIZE): 507, and the snapshot before stays."""
    d, c = kept()
    c.upload(np.arange(100.0), "a")
    first = c.expect(200, c.post("/v1/snapshot")).json()
    files = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    c.upload(np.zeros(1 << 20), "large")
    _, hard = resource.prlimit(d.pid, resource.RLIMIT_FSIZE)
    for most in (1 << 20, 4096, 100, 0):
        resource.prlimit(d.pid, resource.RLIMIT_FSIZE, (most, hard))
        e = c.fails(507, "disk_full", c.post("/v1/snapshot"))
        assert "File too large" in e["detail"]
        assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == files
    resource.prlimit(d.pid, resource.RLIMIT_FSIZE, (hard, hard))
    c.expect(200, c.post("/v1/snapshot"))
    assert names(c) == ["a", "large"] and len(list(folder.glob("snapshot-*"))) == 1
    resource.prlimit(d.pid, resource.RLIMIT_FSIZE, (100000, hard))  # the log may grow
    c.upload(np.arange(30000.0), "b")
    c.close()
    d.expected = 1
    d.stop()
    assert "the state could not be saved" in d.log()
    d, c = kept()
    assert names(c) == ["a", "large"] and c.get("/v1/arrays/a").json()["restored_from"] > first["taken"]
    c.close()


def test_a_small_file_system(kept, folder, tmp_path):
    """The same with a real ENOSPC, where this machine lets us mount one."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        d, c = kept()
        c.upload(np.arange(1000.0), "a")
        c.expect(200, c.post("/v1/snapshot"))
        c.upload(np.zeros(1 << 18), "large")
        assert "No space left" in c.fails(507, "disk_full", c.post("/v1/snapshot"))["detail"]
        c.expect(204, c.delete("/v1/arrays/large"))
        c.expect(200, c.post("/v1/snapshot"))
        killed(d, c)
        d, c = kept()
        assert (c.download("a") == np.arange(1000.0)).all()
        c.close()
        d.stop()
    finally:
        subprocess.run(["umount", folder], check=True)


def test_no_time(kept):
    """What does not fit --state-timeout is left out, and named, and the exit status says so; what has not changed
    fits always, and what the last snapshot has stays."""
    d, c = kept("--state-timeout", "0.000001")
    d.expected = 1
    a = c.create(shape=[10], name="a")
    v = c.expect(201, c.post("/v1/arrays/a/views", {"index": "1:", "name": "v"})).json()
    c.close()
    d.stop()
    log = d.log()
    for x in (a, v):
        assert any("missing from the snapshot" in line and x["id"] in line and "no time" in line for line in log.splitlines()), log
    assert "left_out=2" in log
    d, c = kept("--state-timeout", "0")
    assert names(c) == [] and c.info()["limits"]["state_timeout"] == 0
    c.create(shape=[1 << 20], name="large")
    c.create(shape=[1 << 20], name="changed")
    c.create(shape=[10], name="small")
    c.close()
    d.stop()
    d, c = kept("--state-timeout", "0.000001")
    assert names(c) == ["large", "changed", "small"]
    was = c.info()["state"]["restored_from"]
    for name in ("changed", "small"):
        c.expect(200, c.post("/v1/evaluate", {"expr": f"{name} + 1", "out": name}))
    c.create(shape=[10], name="new")
    c.close()
    d.expected = 1
    d.stop()
    assert "earlier=2 left_out=1" in d.log() and d.log().count('reason="no time"') == 3
    d, c = kept()
    assert names(c) == ["large", "changed", "small"]
    assert c.meta("large")["restored_from"] > was == c.meta("changed")["restored_from"] == c.meta("small")["restored_from"]
    assert not c.download("changed").any() and not c.download("small").any()
    c.close()


def test_link_or_copy(kept, folder):
    """What stands in is held against its sum where it is copied: damaged meanwhile, it does not, and the snapshot
    that had it stays."""
    d, c = kept("--state-timeout", "0.000001")
    c.create(shape=[10], name="a", fill=1)
    c.expect(200, c.post("/v1/snapshot"))
    c.expect(200, c.post("/v1/evaluate", {"expr": "a + 1", "out": "a"}))
    data = folder / "snapshot-1" / "data"
    data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])
    c.close()
    d.expected = 1
    d.stop()
    assert "left_out=1" in d.log() and data.exists()
    d, c = kept()
    assert names(c) == [] and data.exists()
    c.expect(200, c.post("/v1/snapshot"))
    assert not data.exists()
    c.close()


def test_ended_while_a_snapshot_is_taken(kept):
    """SIGTERM gives up the one under way, whose client hears of it, and takes the last one."""
    d, c = kept()
    c.create(shape=[1 << 22], name="a", fill=3)
    got = []

    def ask():
        mine = d.client()
        try:
            while True:
                got.append(mine.post("/v1/snapshot").status)
                if got[-1] != 200:
                    break
        except Exception:
            got.append(None)

    t = threading.Thread(target=ask)
    t.start()
    time.sleep(0.3)
    c.close()
    d.stop()
    t.join()
    assert got[-1] in (503, None) and set(got[:-1]) <= {200}
    d, c = kept()
    assert (c.download("a") == 3).all()
    c.close()


def test_lost_device(gpu_with, folder):
    """Exit status 75 writes nothing; the next start has what there was."""
    d = gpu_with("--state-dir", folder, "--no-keeper", "--lost-exit-delay", "0.2")
    c = d.client()
    c.upload(np.arange(50.0), "a")
    c.expect(200, c.post("/v1/snapshot"))
    c.upload(np.arange(60.0), "b")
    before = sorted(folder.rglob("*"))
    c.close()  # on a new connection it is asked once
    d.fail("700")
    with contextlib.suppress(ConnectionError):  # the end may come before the reply
        c.post("/v1/evaluate", {"expr": "a+1", "name": "x"})
    c.close()
    d.expected = 75
    assert d.proc.wait(20) == 75
    assert sorted(folder.rglob("*")) == before
    d = gpu_with("--state-dir", folder)
    c = d.client()
    assert names(c) == ["a"] and (c.download("a") == np.arange(50.0)).all()
    c.close()


def test_what_cannot_be_read_is_left_out(gpu_with, folder):
    """Work that failed after its reply leaves an array nobody can read: the others are kept."""
    d = gpu_with("--state-dir", folder)
    c = d.client()
    c.upload(np.arange(50.0), "a")
    d.fail("2")
    r = c.post("/v1/evaluate", {"expr": "a*13 + 17", "name": "b"})
    lost = r.status == 201
    if lost:
        c.expect(201, c.post("/v1/arrays/b/views", {"index": "1:", "name": "c"}))
    r = c.expect(200, c.post("/v1/snapshot")).json()
    assert (r["arrays"], r["left_out"]) == (1, 2 if lost else 0)
    assert d.log().count("the array's contents cannot be read") == r["left_out"]
    killed(d, c)
    d = gpu_with("--state-dir", folder)
    c = d.client()
    assert names(c) == ["a"] and (c.download("a") == np.arange(50.0)).all()
    c.close()


def test_moves_between_backends(kept, gpu_with, folder):
    d, c = kept()
    c.upload(np.arange(50.0), "a")
    c.close()
    d.stop()
    d = gpu_with("--state-dir", folder)
    c = d.client()
    assert c.evaluate("sum(a)") == 49 * 25
    c.close()
    d.stop()
    d, c = kept()
    assert (c.download("a") == np.arange(50.0)).all()
    c.close()


def test_account_gone(daemon_with, accounts, folder):
    """What somebody without an account had is passed over, with a word; quotas lowered keep nothing out."""
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    start = lambda: daemon_with("--state-dir", folder, "--accounts", accounts.path)
    d = start()
    ann, bob = (accounts.client(d, n) for n in ("ann", "bob"))
    ann.upload(np.arange(1000.0), "u")
    bob.upload(np.arange(1000.0), "u")
    ann.close(), bob.close()
    d.stop()
    text = accounts.path.read_text()
    i, j = text.index("[ann]"), text.index("[bob]")
    kept_text = (text[:j] if i < j else text[i:]) .replace("[ann]\n", "[ann]\ndevice-memory = 100\narrays = 1\n")
    accounts.write(kept_text)
    d = start()
    assert "principal=bob" in d.log()
    ann = accounts.client(d, "ann")
    assert (ann.download("u") == np.arange(1000.0)).all()
    ann.fails(429, "quota_exceeded", ann.post("/v1/arrays", {"shape": [1]}))
    ann.close()


def test_shares_that_are_void_stay_so(daemon_with, accounts, folder):
    """Who lost his account meanwhile has not, after a restart, what was shared with him before; the others have
    it, and if that is more than may be, there are no more."""
    for name in ("ann", "bob", "carl"):
        accounts.add(name, role="operator")
    start = lambda *args: daemon_with("--state-dir", folder, "--accounts", accounts.path, *args)
    d = start()
    ann = accounts.client(d, "ann")
    u, v = (ann.upload(np.arange(3.0), name)["id"] for name in "uv")
    for ref, who in ((u, "bob"), (u, "carl"), (v, "carl")):
        ann.expect(201, ann.post(f"/v1/arrays/{ref}/shares", {"principal": who, "access": "read"}))
    text = accounts.path.read_text()
    accounts.write(text.replace("[bob]", "[other]"))
    accounts.reload(d)
    accounts.write(text)
    accounts.reload(d)
    ann.close()
    d.stop()
    d = start("--max-shares", "1")
    bob, carl = (accounts.client(d, name) for name in ("bob", "carl"))
    bob.fails(404, "not_found", bob.get(f"/v1/arrays/{u}"))
    assert carl.get(f"/v1/arrays/{u}").status == 200
    assert carl.get(f"/v1/arrays/{v}").status == 200  # beyond the limit
    ann = accounts.client(d, "ann")
    ann.fails(429, "quota_exceeded", ann.post(f"/v1/arrays/{v}/shares", {"principal": "bob", "access": "read"}))
    ann.close(), bob.close(), carl.close()
