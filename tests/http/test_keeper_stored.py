"""What the keeper holds outlives it, too, where a service manager stores descriptors."""
import array
import contextlib
import ctypes
import os
import re
import select
import signal
import socket
import subprocess
import sys

import pytest

from conftest import REPO, fake_gpu, find_binary
from exported import Export, dial
from test_keeper import kill


def is_same_file(a, b):
    """kcmp(2), as systemd asks."""
    return ctypes.CDLL(None).syscall(312 if os.uname().machine == "x86_64" else 272, os.getpid(), os.getpid(), 0, a, b) == 0


class Manager:
    """What a service manager does: takes notices and descriptors, and gives these to the next start.

    `stored` has them by the names that the keeper gave them, `called` says what they are called in the store."""

    def __init__(self, path, most=10000):
        self.path, self.most = str(path), most
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(20)
        self.said, self.stored, self.called = [], {}, {}

    def name_of(self, called):
        """Numbers stand for what the file "names" has in that place, until they are to leave the store."""
        if not called or not called.isdigit():
            return called
        return os.pread(self.stored["names"], 216, int(called) * 216).rstrip(b"\0").decode() or called

    def told(self):
        """LISTEN_FDNAMES and the descriptors, the last first, as systemd has them."""
        names = [*self.stored][::-1]
        return ":".join(self.called.get(name, name) for name in names), [self.stored[name] for name in names]

    def hear(self):
        text, control, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(4))
        fds = array.array("i", b"".join(data[:4] for _, _, data in control))
        lines = dict(line.split("=", 1) for line in text.decode().splitlines())
        called = lines.get("FDNAME")
        if "FDSTOREREMOVE" in lines:
            name = next((name for name, number in self.called.items() if number == called), called)
        else:
            name = self.name_of(called)
        if "FDSTORE" in lines and len(self.stored) == self.most:
            os.close(fds[0])
        elif "FDSTORE" in lines and any(is_same_file(fd, fds[0]) for fd in self.stored.values()):
            os.close(fds[0])  # systemd has it already, whatever its name is now
        elif "FDSTORE" in lines:
            assert lines["FDPOLL"] == "0" and name not in self.stored
            self.stored[name], self.called[name] = fds[0], called
        elif "FDSTOREREMOVE" in lines and name in self.stored:
            os.close(self.stored.pop(name))
            self.called.pop(name, None)
        self.said.append({**lines, "name": name})

    def until(self, key):
        while not any(key in lines for lines in self.said):
            self.hear()

    def hear_all(self):
        while select.select([self.socket], [], [], 0.3)[0]:
            self.hear()


START = """
import os, sys
fds = [int(n) for n in sys.argv[1].split(",")]
free = max(*fds, len(fds) + 3) + 1
for i, fd in enumerate(fds):
    os.dup2(fd, free + i)
for i, fd in enumerate(fds):
    os.dup2(free + i, 3 + i, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES=sys.argv[2])
os.execv(sys.argv[3], sys.argv[3:])
"""


def test_a_service_manager(tmp_path, daemon_with):
    manager = Manager(tmp_path / "notify")
    d = daemon_with(environment={"NOTIFY_SOCKET": manager.path})
    manager.until("READY")
    assert [name for name in manager.stored if name.startswith("listen.")] == ["listen.0.127.0.0.1@0"]
    d.proc.kill()  # the keeper itself
    d.proc.wait()
    d.expected = -signal.SIGKILL
    manager.said.clear()
    names, fds = manager.told()
    waits = socket.create_connection((d.host, d.port), timeout=20)
    waits.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    again = subprocess.Popen([sys.executable, "-c", START, ",".join(map(str, fds)), names, find_binary(), "--listen", "127.0.0.1:0"],
                             pass_fds=fds, env={**os.environ, "NOTIFY_SOCKET": manager.path}, stderr=subprocess.PIPE, text=True)
    try:
        assert waits.recv(4096).startswith(b"HTTP/1.1 200")
        manager.until("READY")
        assert d.client().get("/healthz").status == 200
    finally:
        again.terminate()
        said = again.communicate(timeout=20)[1]
    assert again.returncode == 0, said
    manager.until("STOPPING")


@contextlib.contextmanager
def started_stored(manager, *args, environment=()):
    """A keeper that gets what a manager has stored; its log is in the list in the end."""
    names, fds = manager.told()
    again = subprocess.Popen([sys.executable, "-c", START, ",".join(map(str, fds)), names, find_binary(), *map(str, args)],
                             pass_fds=fds, env={**os.environ, "NOTIFY_SOCKET": manager.path, **dict(environment)}, stderr=subprocess.PIPE, text=True)
    manager.said.clear()
    log = []
    try:
        yield log
        manager.until("READY")
    finally:
        again.terminate()
        log.append(again.communicate(timeout=20)[1])


def start_stored(manager, *args, **kw):
    """The same; its log, once it was ready."""
    with started_stored(manager, *args, **kw) as log:
        pass
    return log[0]


def test_the_store_is_never_without_a_journal(tmp_path, daemon_with):
    """What replaces something is stored before that is removed; of both, the newer one counts."""
    manager = Manager(tmp_path / "notify")
    d = daemon_with("--keep-arrays", environment={"NOTIFY_SOCKET": manager.path})
    c = d.client()
    c.create(name="a", data=[1.0, 2.0])
    c.close()
    manager.until("READY")
    first = os.dup(manager.stored["journal"])
    kill(d)
    manager.said.clear()
    manager.until("READY")
    assert [name for name in manager.stored if name.startswith("journal")] == ["journal#1"]
    about = [lines["name"] for lines in manager.said if (lines["name"] or "").startswith("journal")]
    assert about == ["journal#1", "journal"]
    assert {name.split("#")[0] for name in manager.stored} >= {"faults", "cells"}, "what was taken over is stored still"
    c = d.client()
    c.create(name="b", data=[3.0])
    c.expect(200, c.post("/v1/sessions/default/sync"))
    c.close()
    d.proc.kill()
    d.proc.wait()
    d.expected = -signal.SIGKILL
    manager.stored["journal"] = first  # as if it had died between the two
    assert re.search("arrays=2 sessions=1 .*passed_over=0", start_stored(manager, "--keep-arrays", "--listen", f"unix:{tmp_path}/s"))


def test_the_process_before_ends_first(tmp_path):
    """Nothing is taken over from a process that is still there, whatever became of its keeper."""
    manager = Manager(tmp_path / "notify")
    with subprocess.Popen(["sleep", "60"]) as before:
        manager.stored[f"daemon.{before.pid}"] = os.pidfd_open(before.pid)
        with started_stored(manager, "--keep-arrays", "--listen", "127.0.0.1:0"):
            manager.socket.settimeout(1)
            with pytest.raises(TimeoutError):
                manager.until("READY")
            manager.socket.settimeout(20)
            before.kill()
    while f"daemon.{before.pid}" in manager.stored:
        manager.hear()


@pytest.mark.skipif(not fake_gpu() or "ARRAYD_REAL_GPU" in os.environ, reason="no fake driver in this build, or no g++")
def test_a_number_that_is_another_process_s_by_now(tmp_path):
    """A GPU is not waited for because somebody else has it."""
    manager, there = Manager(tmp_path / "notify"), tmp_path / "there"
    environment = {**fake_gpu(), "ARRAYD_FAKE_NVML_THERE": str(there)}
    with subprocess.Popen(["true"]) as before:
        manager.stored[f"daemon.{os.getpid()}"] = os.pidfd_open(before.pid)
    there.write_text(f"1 {os.getpid()}\n")
    assert " ready " in start_stored(manager, "--backend", "cuda", "--keep-arrays", "--listen", "127.0.0.1:0", environment=environment)


def test_a_service_manager_that_does_not_listen(tmp_path, daemon_with):
    """Its queue is full after some messages: the keeper does not wait for it, and forgets none."""
    manager = Manager(tmp_path / "notify")
    d = daemon_with("--keep-arrays", environment={"NOTIFY_SOCKET": manager.path})
    c = d.client()
    for k in range(300):
        c.create(name=f"x{k}", shape=[1 << 19], dtype="float64")
    c.close()
    kill(d)
    c = d.client()
    assert len(c.list_all("/v1/arrays", "arrays")) == 300
    c.close()
    manager.until("READY")
    while len([name for name in manager.stored if name.startswith("chunk.")]) < 300:
        manager.hear()


def test_names_of_any_length_can_be_given_back(tmp_path, daemon_with):
    """systemd gives all names in one string, and no program is started with one of 128 KiB: thousands get numbers."""
    manager = Manager(tmp_path / "notify")
    d = daemon_with("--keep-arrays", environment={"NOTIFY_SOCKET": manager.path})
    c = d.client()
    for k in range(100):
        c.create(name=f"x{k}", shape=[1 << 19], dtype="float64")
    for k in range(0, 100, 2):  # their numbers are used again
        c.delete(f"/v1/arrays/x{k}")
    for k in range(100, 150):
        c.create(name=f"x{k}", shape=[(1 << 19) + k], dtype="float64")
    c.close()
    manager.hear_all()
    d.proc.kill()
    d.proc.wait()
    d.expected = -signal.SIGKILL
    manager.hear_all()
    names, _ = manager.told()
    most = int(re.search(r"#define NAMES_MOST (\d+)", (REPO / "server/keeper/names.h").read_text())[1])
    numbers = {int(name) for name in names.split(":") if name != "names"}
    assert max(numbers) < most and sum(len(f"{n}:") for n in range(most)) < 120 << 10
    for _ in range(2):
        assert "arrays=100 sessions=1 passed_over=0" in start_stored(manager, "--keep-arrays", "--listen", f"unix:{tmp_path}/s",
                                                                     environment={"FDSTORE": "1000"})
        manager.hear_all()
    assert {int(name) for name in manager.told()[0].split(":") if name != "names"} <= numbers


def test_a_store_that_is_full(tmp_path, daemon_with):
    """The log says so once, and what is in the store is what can be used."""
    manager = Manager(tmp_path / "notify", most=60)
    d = daemon_with("--keep-arrays", environment={"NOTIFY_SOCKET": manager.path, "FDSTORE": "60"})
    c = d.client()
    for k in range(100):
        c.create(name=f"x{k}", shape=[1 << 19], dtype="float64")
    c.close()
    pid = kill(d)["pid"]
    manager.hear_all()
    d.proc.kill()
    d.proc.wait()
    d.expected = -signal.SIGKILL
    manager.hear_all()
    assert 40 < len(manager.stored) < 60 and any(name.startswith("journal#") for name in manager.stored)
    assert d.log().count("the service manager's store is full") == 1
    assert f"daemon.{pid}" in manager.stored, "there is room for what the next process must know"
    n = sum(name.startswith("chunk.") for name in manager.stored)
    assert f"arrays={n} sessions=1 passed_over={100 - n}" in start_stored(manager, "--keep-arrays", "--listen", f"unix:{tmp_path}/s")


def test_a_unix_socket_is_not_stored_without_its_path(tmp_path, daemon_with):
    manager = Manager(tmp_path / "notify")
    d = daemon_with("--listen", f"unix:{tmp_path}/s", environment={"NOTIFY_SOCKET": manager.path})
    manager.until("READY")
    listening = lambda: [name for name in manager.stored if name.startswith("listen.")]
    assert len(listening()) == 1
    d.stop()
    manager.until("STOPPING")
    while listening():
        manager.hear()


def test_what_a_restart_leaves(tmp_path, daemon_with):
    """SIGTERM where descriptors are stored: sockets, exports and jobs are the next process's."""
    manager = Manager(tmp_path / "notify")
    args = ("--backend", "cpu", "--keep-arrays", "--allow-export", "--listen", f"unix:{tmp_path}/s")  # a GPU's memory cannot be mapped here
    d = daemon_with(*args, environment={"NOTIFY_SOCKET": manager.path, "FDSTORE": "100"})
    manager.until("READY")
    c = d.client(unix=f"{tmp_path}/s")
    made = c.create(name="a", data=[1.0, 2.0])
    export = Export(c, "a", "write")
    sockets = [tmp_path / "s", tmp_path / "s.fd"]
    before = [path.stat().st_ino for path in sockets]
    c.close()
    d.stop()
    manager.until("STOPPING")
    manager.hear_all()
    assert [path.stat().st_ino for path in sockets] == before
    waits = dial(str(sockets[0]))
    waits.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    for _ in range(2):  # the next one has been left the same
        with started_stored(manager, *args, environment={"FDSTORE": "100"}):
            manager.until("READY")
            c.fails(409, "locked", c.delete("/v1/arrays/a"))
            c.close()
    assert waits.recv(4096).startswith(b"HTTP/1.1 200")
    with started_stored(manager, *args):
        manager.until("READY")
        export.array()[0] = 5
        assert export.finish() == b""
        assert c.download("a").tolist() == [5, 2] and c.get("/v1/arrays/a").json()["id"] == made["id"]
        c.close()
    assert not any(path.exists() for path in sockets)
