"""The keeper where the system has no descriptors left for it."""
import contextlib
import os
import re
import resource
import signal
import time

import pytest

from conftest import until
from test_keeper import kill, restarts

RESERVE = 80  # keeper.c


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
    """Its last descriptors are not for arrays, which are made without its help then."""
    d = daemon_with("--keep-arrays")
    until(lambda: holds_address(d))
    limit_descriptors(d, RESERVE + 2)
    c = d.client()
    for k in range(6):
        c.create(name=f"x{k}", shape=[4 << 20], dtype="float64")
    until(lambda: "the keeper did not take an array's memory" in d.log())
    assert d.log().count("the keeper did not take") == 1
    c.close()
    kill(d)  # with no more descriptors than before: those for a start are left
    c = d.client()
    assert sorted(a["name"] for a in c.list_all("/v1/arrays", "arrays")) == ["x0", "x1"]
    c.close()


@pytest.mark.in_turn
@pytest.mark.parametrize("more", [0, 2], ids=["none", "the reserve"])
def test_a_journal_that_the_keeper_cannot_take(daemon_with, more):
    """What is rewritten replaces nothing before the keeper has it, and it has a descriptor left for that."""
    d = daemon_with("--keep-arrays")
    until(lambda: holds_address(d))
    c = d.client()
    made = c.create(name="a", data=[1.0, 2.0])
    c.create(name="b", data=[3.0])
    limit_descriptors(d, more)
    for k in range(9000):
        c.expect(200, c.patch(f"/v1/arrays/{made['id']}", {"name": f"a{k}" + "x" * 50}))
    rewrites = int(re.search(r"arrayd_journal_rewrites_total (\d+)", c.get("/metrics").body.decode())[1])
    assert (rewrites > 1) == (more > 0), rewrites
    assert ("did not take the journal" in d.log()) == (more == 0)
    c.close()
    limit_descriptors(d, None)
    kill(d)
    c = d.client()
    assert sorted(a["name"][:5] for a in c.list_all("/v1/arrays", "arrays")) == ["a8999", "b"]
    c.close()


def test_a_keeper_that_cannot_be_watched(daemon_with):
    """It is there all the same: that is no reason to end."""
    d = daemon_with("--restart-limit", 100)
    before, limits = d.pid, resource.prlimit(d.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(before, resource.RLIMIT_NOFILE, (0, limits[1]))  # poll fails, when it begins anew
    os.kill(before, signal.SIGSTOP)
    until(lambda: open(f"/proc/{before}/stat").read().rsplit(")", 1)[1].split()[0] == "T")
    os.kill(before, signal.SIGCONT)
    time.sleep(0.1)
    resource.prlimit(before, resource.RLIMIT_NOFILE, limits)
    assert d.pid == before and d.client().get("/healthz").status == 200
    d.proc.kill()
    d.proc.wait()
    d.expected = -signal.SIGKILL
    until(lambda: not os.path.exists(f"/proc/{before}"))


@pytest.mark.in_turn
def test_a_journal_that_was_larger(daemon_with, tmp_path):
    """What was left is read where it is, however small the new one may be: what it has no room for is here all the same."""
    config = tmp_path / "config"
    text = "listen = 127.0.0.1:0\nmax-arrays = 20000\njournal-size = "
    config.write_text(text + "64MiB\n")
    d = daemon_with("--config", config, listen=None)
    c = d.client()
    for k in range(7000):
        c.create(name=f"a{k:063d}", data=[1])
    live = int(re.search(r"arrayd_journal_live_bytes (\d+)", c.get("/metrics").body.decode())[1])
    c.close()
    config.write_text(text + "4MiB\n")
    assert live > 4 << 20
    kill(d)
    c = d.client()
    assert len(c.list_all("/v1/arrays", "arrays")) == 7000
    c.close()
