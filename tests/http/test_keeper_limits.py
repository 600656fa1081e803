"""The keeper where the system has no descriptors left for it."""
import contextlib
import os
import re
import resource
import signal

from conftest import until
from test_keeper import kill, restarts


def limit_descriptors(d, more):
    """How many more descriptors the keeper may have than now."""
    hard = resource.prlimit(d.proc.pid, resource.RLIMIT_NOFILE)[1]
    n = max(int(fd) for fd in os.listdir(f"/proc/{d.proc.pid}/fd")) + 1 + more if more is not None else hard
    resource.prlimit(d.proc.pid, resource.RLIMIT_NOFILE, (n, hard))


def holds_address(d):
    """Whether the keeper has read what the daemon gave it before it was ready: last, the socket that listens."""
    with open("/proc/net/tcp") as f:
        rows = [line.split() for line in f][1:]
    inodes = {row[9] for row in rows if row[3] == "0A" and row[1].endswith(f":{d.port:04X}")}
    with contextlib.suppress(FileNotFoundError):
        links = [os.readlink(f"/proc/{d.proc.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{d.proc.pid}/fd")]
        return any(f"socket:[{inode}]" in links for inode in inodes)
    return False


def test_a_start_that_the_system_refuses(daemon_with):
    """It is tried again soon, not when somebody has lost patience."""
    d = daemon_with()
    until(lambda: holds_address(d))
    limit_descriptors(d, 0)
    os.kill(d.pid, signal.SIGKILL)
    until(lambda: d.log().count("cannot be started") > 1)
    limit_descriptors(d, None)
    until(lambda: d.log().count(" ready ") == 2, 5)
    assert restarts(d) == 1


def test_what_the_keeper_cannot_take(daemon_with):
    d = daemon_with("--keep-arrays")
    until(lambda: holds_address(d))
    limit_descriptors(d, 1)
    c = d.client()
    for k in range(6):
        c.create(name=f"x{k}", shape=[4 << 20], dtype="float64")
    until(lambda: re.search(r"cannot be held, and will not outlive it.* name=chunk\.\d", d.log()))
    limit_descriptors(d, None)
    c.close()
    kill(d)
    kept = len(d.client().list_all("/v1/arrays", "arrays"))
    assert kept < 6
