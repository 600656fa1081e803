"""The keeper: the daemon comes back after whatever kills it, with the same sockets; upgrades."""
import contextlib
import fcntl
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import find_binary, until


def restarts(d):
    return d.client().info()["process"]["restarts"]


def kill(d, sig=signal.SIGKILL):
    """Kills the daemon proper, and returns when another one answers."""
    before = d.pid
    os.kill(before, sig)
    until(lambda: d.pid not in (before, d.proc.pid))
    process = d.client().info()["process"]
    assert process["pid"] == d.pid != before and process["keeper"]
    return process


# A sanitizer would take these signals for itself, and end with a status of its own.
DEADLY = {"ASAN_OPTIONS": "detect_stack_use_after_return=0:handle_segv=0:handle_sigbus=0"}


def kill_at_sight(d, done):
    """Kills the daemon proper again and again."""
    while not done():
        try:
            pid = d.pid
            with open(f"/proc/{pid}/comm") as f:
                name = f.read().strip()
            # else there is none, or a sanitizer looks at the keeper's end through a child of its own
            if pid != d.proc.pid and name != "arrayd-keeper":
                os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, FileNotFoundError):
            pass
        time.sleep(0.01)


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_whatever_kills_it(daemon_with, sig):
    d = daemon_with(environment=DEADLY)
    first = d.client().info()["process"]
    assert first["restarts"] == 0 and first["pid"] == d.pid != d.proc.pid
    again = kill(d, sig)
    assert again["restarts"] == 1 and again["started"] > first["started"]
    assert re.search(rf"started again how=\"signal {int(sig)} ", d.log())
    metrics = d.client().get("/metrics").body.decode()
    assert f"arrayd_process_id {d.pid}\n" in metrics and "arrayd_restarts_total 1\n" in metrics


@pytest.mark.in_turn
def test_no_connection_is_refused(daemon_with, tmp_path):
    path = tmp_path / "s"
    d = daemon_with("--listen", "127.0.0.1:0", "--listen", f"unix:{path}")
    stop, refused, answered = threading.Event(), [], [0, 0]

    def ask(i, connect):
        while not stop.is_set():
            with connect() as s:
                try:
                    s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    answered[i] += s.recv(4096).startswith(b"HTTP/1.1 200")
                except ConnectionError:
                    pass  # it was being answered

    def tcp():
        return socket.create_connection((d.host, d.port), timeout=20)

    def unix():
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)
        s.connect(str(path))
        return s

    def run(i, connect):
        try:
            ask(i, connect)
        except OSError as e:
            refused.append(e)

    threads = [threading.Thread(target=run, args=x) for x in enumerate((tcp, unix))]
    for t in threads:
        t.start()
    for _ in range(5):
        before = min(answered)
        kill(d)
        until(lambda: refused or min(answered) > before + 20)  # noqa: B023
        time.sleep(1.1)  # it lasted: the next start is not put off
    stop.set()
    for t in threads:
        t.join()
    assert not refused
    assert restarts(d) == 5 and len(set(re.findall(r"ready listen=(\S+)", d.log()))) == 1
    d.stop()
    assert not path.exists()


def test_a_daemon_that_does_not_stay_alive(daemon_with):
    d = daemon_with("--restart-limit", 3)
    d.expected = 75
    kill_at_sight(d, lambda: d.proc.poll() is not None)
    log = d.log()
    delays = re.findall(r"delay_s=(\S+)", log)[-3:]  # before these it may have lasted, where the machine is busy
    assert "keeps failing; giving up" in log and delays == ["0.0", "0.1", "0.2"]


def test_the_keeper_stays_while_it_holds_arrays(daemon_with, tmp_path):
    config, path = tmp_path / "config", tmp_path / "s"
    right = f"restart-limit = 1\nlisten = unix:{path}\n"
    config.write_text(right)
    d = daemon_with("--config", config, listen=None)
    c = d.client()
    c.create(name="u", shape=[1000], fill=7.0)
    c.close()
    config.write_text(right + "listen = nowhere\n")
    os.kill(d.pid, signal.SIGKILL)
    until(lambda: "delay_s=30.0" in d.log())
    assert "keeps trying" in d.log() and "pieces_of_memory=1" in d.log()
    config.write_text(right)
    d.proc.send_signal(signal.SIGHUP)
    until(lambda: d.log().count(" ready ") == 2)
    assert d.client().download("u").tolist() == [7.0] * 1000
    d.client().expect(204, d.client().delete("/v1/arrays/u"))


@pytest.mark.in_turn
def test_deaths_that_are_too_many_are_put_off(daemon_with):
    d = daemon_with("--restart-rate", 2)
    for _ in range(5):
        before, since = d.pid, time.monotonic()
        time.sleep(1.3)  # it lasted: this is no start that failed
        os.kill(before, signal.SIGKILL)
        until(lambda: d.pid not in (before, d.proc.pid), 20)
        c = d.client()
        until(lambda: c.get("/healthz").status == 200)
        c.close()
        assert time.monotonic() - since < 10
    delays = [float(s) for s in re.findall(r"delay_s=(\S+)", d.log())]
    assert delays[:2] == [0, 0] and len(delays) == 5
    assert delays[2] == 0.1 <= delays[3] <= 0.2 and 0.3 <= delays[4] <= 0.4, delays


def test_the_end_of_the_keeper_is_the_daemons(daemon_with):
    daemon_with().kill()


def test_exit_statuses(daemon_with):
    def status(*options, **environment):
        done = subprocess.run([find_binary(), *options], capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
        return done.returncode, done.stderr
    assert status("--listen", "nowhere")[0] == 2
    d = daemon_with()
    taken, said = status("--listen", f"127.0.0.1:{d.port}")
    assert taken == 2 and said.count("Address already in use") == 1
    assert status("--backend", "cuda", "--listen", "127.0.0.1:0", ARRAYD_LIBCUDA="/nowhere/libcuda.so.1")[0] == 1, "no GPU, on any machine"
    kill(d)
    d.stop(signal.SIGINT)


def test_without_a_keeper(daemon_with):
    d = daemon_with("--no-keeper")
    process = d.client().info()["process"]
    assert process["pid"] == d.proc.pid and not process["keeper"] and process["restarts"] == 0
    d.kill()


def test_a_changed_configuration(daemon_with, tmp_path):
    """Each start takes the file as it is then: other sockets, and a mistake that is mended in time."""
    config, path = tmp_path / "config", tmp_path / "s"

    def listen(*where):
        config.write_text("restart-limit = 50\n" + "".join(f"listen = {x}\n" for x in where))

    listen("127.0.0.1:0", f"unix:{path}")
    d = daemon_with("--config", config, listen=None)
    listen(f"unix:{path}", "localhost:0", f"localhost:{d.port}")
    os.kill(d.pid, signal.SIGKILL)
    until(lambda: d.log().count(" ready ") == 2)
    assert restarts(d) == 1
    listen(f"unix:{path}", "nowhere")
    os.kill(d.pid, signal.SIGKILL)
    until(lambda: d.log().count("exit status 2") > 1)
    assert path.is_socket(), "the next start may go on with it"
    listen(f"unix:{path}", f"localhost:{d.port}")
    until(lambda: d.log().count(" ready ") == 3)
    assert d.client().get("/healthz").status == 200
    assert d.client(unix=str(path)).get("/healthz").status == 200
    path.unlink()
    kill(d)
    assert d.client(unix=str(path)).get("/healthz").status == 200, "a path that is gone is made again"


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(x) for x in f.read().split()]


@pytest.mark.parametrize("journal", [True, False])
def test_priorities_for_the_journal(tmp_path, journal):
    """systemd names its stream by device and inode; output that goes elsewhere is not the journal's."""
    with open(tmp_path / "log", "wb") as log:
        st = os.fstat(log.fileno())
        environment = {**os.environ, "JOURNAL_STREAM": f"{st.st_dev}:{st.st_ino + (not journal)}"}
        keeper = subprocess.Popen([find_binary(), "--listen", "127.0.0.1:0"], stderr=log, env=environment)
        try:
            until(lambda: b" ready " in (tmp_path / "log").read_bytes())
            os.kill(children(keeper.pid)[0], signal.SIGKILL)
            until(lambda: (tmp_path / "log").read_bytes().count(b" ready ") == 2)
        finally:
            keeper.terminate()
            assert keeper.wait(20) == 0
        subprocess.run([find_binary(), "--no-such"], stderr=log, env=environment)
    lines = (tmp_path / "log").read_text().splitlines()
    levels = {line[:3] if journal else line.split()[1] for line in lines[:-1]}
    assert levels == ({"<4>", "<6>"} if journal else {"info", "warn"})
    assert lines[-1].startswith("<3>arrayd: " if journal else "arrayd: ")


@pytest.mark.parametrize("closed", [(), (0, 1, 2)], ids=["reader gone", "closed"])
def test_no_log(tmp_path, closed):
    """Nobody reads the log, or there are no standard files: that is no reason to end."""
    path, (reads, writes) = str(tmp_path / "s"), os.pipe()
    keeper = subprocess.Popen([find_binary(), "--listen", f"unix:{path}"], stderr=writes,
                              preexec_fn=lambda: [os.close(fd) for fd in closed])
    os.close(reads)
    os.close(writes)

    def answers():
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            try:
                s.connect(path)
                s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return s.recv(4096).startswith(b"HTTP/1.1 200")
            except (FileNotFoundError, ConnectionError):
                return False

    try:
        until(answers)
        standard = {os.readlink(f"/proc/{keeper.pid}/fd/{fd}") for fd in closed}
        assert standard <= {"/dev/null"}
        before = children(keeper.pid)
        os.kill(before[0], signal.SIGKILL)
        until(lambda: children(keeper.pid) not in ([], before))
        until(answers)
    finally:
        keeper.terminate()
        assert keeper.wait(20) == 0


def test_who_asks_three_times(daemon_with):
    """The third signal ends everything at once, even a daemon that does not take signals."""
    d = daemon_with()
    d.expected = 1
    os.kill(d.pid, signal.SIGSTOP)
    for _ in range(3):
        d.proc.send_signal(signal.SIGTERM)
        until(lambda: d.proc.poll() is not None or not is_pending(d.proc.pid, signal.SIGTERM))
    assert d.proc.wait(20) == 1


def is_pending(pid, sig):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"^ShdPnd:\s+(\w+)", f.read(), re.M)[1], 16) >> (sig - 1) & 1


@pytest.fixture
def installed(tmp_path):
    return shutil.copy(find_binary(), tmp_path / "arrayd")


def install(what, where):
    """As a package manager does it: a new file takes the name."""
    shutil.copy(what, f"{where}.new")
    os.chmod(f"{where}.new", 0o755)
    os.rename(f"{where}.new", where)


def upgrade(d):
    return subprocess.run([find_binary(), "upgrade", str(d.proc.pid)], capture_output=True, text=True, timeout=60)


def upgrade_meanwhile(d):
    """An upgrade while a request has begun, the rest of which comes when the daemon is leaving: it is answered."""
    left, body = d.log().count("stopping signal="), b'{"expr": "1+2"}'
    with socket.create_connection((d.host, d.port), timeout=60) as s:
        s.sendall(b"POST /v1/evaluate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(body))
        assert s.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        done = []
        t = threading.Thread(target=lambda: done.append(upgrade(d)))
        t.start()
        until(lambda: done or d.log().count("stopping signal=") > left)
        s.sendall(body)
        assert s.recv(4096).startswith(b"HTTP/1.1 20")
        t.join()
    return done[0]


def test_upgrade(daemon_with, installed):
    d = daemon_with(binary=installed)
    before = d.pid
    install(find_binary(), installed)
    done = upgrade_meanwhile(d)
    assert done.returncode == 0 and not done.stderr
    assert d.pid != before and os.stat(f"/proc/{d.pid}/exe").st_ino == os.stat(installed).st_ino
    assert "the daemon was upgraded" in d.log() and restarts(d) == 1
    kill(d)
    assert os.stat(f"/proc/{d.pid}/exe").st_ino == os.stat(installed).st_ino


@pytest.mark.parametrize("holds", ["all", "some"])
def test_an_upgrade_and_the_state(daemon_with, tmp_path, holds):
    """It is written only if the keeper does not have everything."""
    d = daemon_with("--state-dir", tmp_path / "state", "--max-kept-arrays", 100 if holds == "all" else 1)
    c = d.client()
    c.create(name="u", data=[1.0, 2.0])
    c.expect(200, c.post("/v1/snapshot"))
    c.create(name="v", data=[3.0])
    c.expect(200, c.post("/v1/evaluate", {"expr": "u+1", "out": "u"}))
    c.close()
    assert upgrade(d).returncode == 0, d.log()
    assert len(re.findall(r" (info|warn) snapshot ", d.log())) == (1 if holds == "all" else 2)
    c = d.client()
    assert c.download("u").tolist() == [2, 3] and c.download("v").tolist() == [3]
    c.close()


@pytest.mark.in_turn
def test_an_end_during_an_upgrade_that_fails(daemon_with, tmp_path):
    """The old program is started once more, since nothing has written the state."""
    config, path = tmp_path / "config", tmp_path / "s"
    right = f"listen = unix:{path}\nstate-dir = {tmp_path}/state\n"
    config.write_text(right)
    d = daemon_with("--config", config, listen=None)
    c = d.client()
    c.create(name="u", data=[1.0, 2.0])
    c.close()
    before = d.pid
    other = tmp_path / "other"
    other.mkdir()
    lock = open(other / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # the new program waits for a moment
    config.write_text(right.replace("/state", "/other"))
    d.proc.send_signal(signal.SIGUSR2)
    until(lambda: d.pid not in (before, d.proc.pid))
    until(lambda: len(os.listdir(f"/proc/{d.pid}/task")) > 1)  # it has read its configuration
    config.write_text(right)
    d.stop()
    assert "the new program did not become ready" in d.log()
    c = daemon_with("--config", config, listen=None).client()
    assert c.download("u").tolist() == [1, 2]
    c.close()
    lock.close()


def test_an_upgrade_costs_no_request(daemon_with):
    """Clients that go on asking, on open connections and new ones, notice nothing."""
    d = daemon_with()
    stop, wrong, answered = threading.Event(), [], [0, 0, 0]

    def ask(i):
        c = None
        try:
            while not stop.is_set():
                c = c or http.client.HTTPConnection(d.host, d.port, timeout=20)
                c.request("POST", "/v1/evaluate", '{"expr": "1+2"}', {"Content-Type": "application/json"})
                r = c.getresponse()
                if r.status not in (200, 201):
                    wrong.append(r.status)
                r.read()
                answered[i] += 1
                if r.getheader("Connection") == "close":
                    c = None
                time.sleep(0.002)
        except (OSError, http.client.HTTPException) as e:
            wrong.append(e)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for _ in range(5):
        before = min(answered)
        assert upgrade_meanwhile(d).returncode == 0
        until(lambda: wrong or min(answered) > before + 5)  # noqa: B023
    stop.set()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.in_turn
def test_an_upgrade_that_cannot_be(daemon_with, installed, tmp_path):
    d = daemon_with(binary=installed)
    before = d.pid
    wrong = tmp_path / "wrong"
    for text in ("nothing", "#!/bin/sh\nexit 1\n", ""):
        wrong.write_text(text)
        install(wrong, installed)
        done = upgrade(d)
        assert done.returncode == 1 and "was not replaced" in done.stderr
        assert d.pid == before and restarts(d) == 0
    # what is started again after a crash is what ran before it, whatever is installed by now
    kill(d)
    os.remove(installed)
    assert upgrade(d).returncode == 1
    kill(d)
    assert subprocess.run([find_binary(), "upgrade", "1x"], capture_output=True, timeout=60).returncode == 2
    assert subprocess.run([find_binary(), "upgrade", str(os.getpid())], capture_output=True, timeout=60).returncode == 1


def test_a_link_to_the_program(daemon_with, tmp_path):
    """A package manager may change where a link leads: the upgrade follows it."""
    link, both = tmp_path / "arrayd", [shutil.copy(find_binary(), tmp_path / name) for name in ("one", "two")]
    link.symlink_to(both[0])
    d = daemon_with(binary=str(link))
    link.unlink()
    link.symlink_to(both[1])
    kill(d)
    assert os.readlink(f"/proc/{d.pid}/exe") == str(both[0]), "a crash is no upgrade"
    done = upgrade(d)
    assert done.returncode == 0 and not done.stderr, d.log()
    assert os.readlink(f"/proc/{d.pid}/exe") == str(both[1])


def test_an_upgrade_that_was_taken_back(daemon_with, tmp_path):
    """The new program, the same file as the old one, understands its options but does not become ready."""
    config, path = tmp_path / "config", tmp_path / "s"
    right = f"restart-limit = 50\nlisten = unix:{path}\n"
    config.write_text(right)
    d = daemon_with("--config", config, listen=None)
    config.write_text(right + "backend = none\n")
    done = upgrade(d)
    assert done.returncode == 1 and "did not become ready" in done.stderr
    config.write_text(right)
    until(lambda: d.log().count(" ready ") == 2)
    assert "the old one keeps running" in d.log()


@pytest.mark.release_only  # a sanitizer itself reads /proc, and says so when it cannot
def test_without_proc(tmp_path):
    path, inside = tmp_path / "s", ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("may not mount here")
    keeper = subprocess.Popen([*inside, find_binary(), "--keep-arrays=no", "--listen", f"unix:{path}"], stderr=subprocess.PIPE, text=True)
    try:
        assert " ready " in keeper.stderr.readline()
        os.kill(children(keeper.pid)[0], signal.SIGKILL)
        assert "started again" in keeper.stderr.readline() and " ready " in keeper.stderr.readline()
    finally:
        keeper.terminate()
        assert keeper.wait(20) == 0


def test_a_terminal_stops_both(daemon_with):
    d = daemon_with()

    def states():
        texts = [open(f"/proc/{pid}/stat").read() for pid in (d.proc.pid, d.pid)]
        return [text.rsplit(")", 1)[1].split()[0] for text in texts]

    d.proc.send_signal(signal.SIGTSTP)
    until(lambda: states() == ["T", "T"])
    d.proc.send_signal(signal.SIGCONT)
    until(lambda: "T" not in states())
    assert d.client().get("/healthz").status == 200


def test_ending_while_it_is_down(daemon_with):
    """SIGTERM finds no daemon: one is started that ends as any other does."""
    d = daemon_with("--restart-limit", 100)
    kill_at_sight(d, lambda: d.log().count("delay_s=0.4"))
    d.stop()


@pytest.mark.parametrize("keeps", ["no", "yes"])
def test_a_lost_device(gpu_with, tmp_path, keeps):
    """What is there again: the last snapshot, or all that was not being written."""
    d = gpu_with(f"--keep-arrays={keeps}", "--state-dir", tmp_path / "state", "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s")
    c = d.client()
    c.create(name="u", data=[1.0, 2.0])
    c.expect(200, c.post("/v1/snapshot"))
    c.close()  # on a new connection it is asked once
    d.fail("700")
    answered = None
    with contextlib.suppress(ConnectionError):  # the end may come before the reply
        answered = c.post("/v1/evaluate", {"expr": "u+1", "name": "v"}).status
    assert answered in (201, 503, None)
    c.close()
    until(lambda: d.log().count(" ready ") == 2)
    assert restarts(d) == 1
    local = d.client(unix=f"{tmp_path}/s")
    assert local.download("u").tolist() == [1, 2]
    if keeps == "yes":
        r = local.get("/v1/arrays/v/data")
        if answered == 201 or r.status != 404:  # else it may not have come to be
            local.fails(409, "contents_lost", r)
    else:
        local.fails(404, "not_found", local.get("/v1/arrays/v"))
    local.evaluate("u+1")
    local.close()


@pytest.mark.in_turn
def test_only_the_keeper_asks_the_daemon_to_leave(daemon_with):
    d = daemon_with("--keep-arrays")
    c = d.client()
    c.create(name="x", shape=[300_000], dtype="float64", fill=5)
    os.kill(d.pid, signal.SIGUSR2)
    with pytest.raises(AssertionError):
        until(lambda: "stopping" in d.log() or d.proc.poll() is not None, 2)
    assert c.evaluate("max(x)") == 5.0 and restarts(d) == 0
    c.close()


@pytest.mark.in_turn
def test_a_keeper_that_is_stopped(daemon_with):
    """Requests wait for it once and for a bounded time; when it runs again, it holds what the daemon believes."""
    d = daemon_with("--keep-arrays", "--restart-limit", 1000)
    c = d.client()
    os.kill(d.proc.pid, signal.SIGSTOP)
    try:
        for k, most in enumerate((15, 3, 3)):
            began = time.monotonic()
            c.create(name=f"x{k}", shape=[1 << 19], dtype="float64", fill=k)
            assert time.monotonic() - began < most
        for _ in range(3000):  # the journal would be rewritten
            c.expect(200, c.patch("/v1/arrays/x0", {"read_only": True}))
        assert c.get("/healthz").status == 200
    finally:
        os.kill(d.proc.pid, signal.SIGCONT)
    until(lambda: "the keeper does not answer" in d.log())
    time.sleep(2)  # for its late answers
    c.create(name="y", shape=[1 << 19], dtype="float64", fill=7)
    c.expect(200, c.post("/v1/sessions/default/sync"))
    c.close()
    kill(d)
    assert c.evaluate("max(y)") == 7.0
    assert [a["name"] for a in c.list_all("/v1/arrays", "arrays")] == ["y"]
    c.close()
