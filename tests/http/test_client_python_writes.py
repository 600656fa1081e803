"""clients/python: assignments to arrays that others share, which wait for the next request. NumPy says what is right."""
import asyncio
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from conftest import find_binary  # noqa: E402
from test_client_python import PACKAGE, arrayd, same, xp  # noqa: F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here


@pytest.fixture
def shared(xp):  # noqa: F811
    """Arrays with these names, which are deleted."""
    names = []

    def make(name, values):
        names.append(name)
        return xp.save(name, values)

    yield make
    for name in names:
        try:
            xp.delete(name)
        except arrayd.NotFound:
            pass


@pytest.fixture
def late(monkeypatch):
    """Assignments wait until something is asked for."""
    monkeypatch.setattr("arrayd._writes.PAUSE_S", 60.0)


def test_what_was_written_elsewhere_before(xp, shared):  # noqa: F811
    """Arrays to parts of which a shared array was assigned have the values that it had then."""
    x = shared("shared", np.zeros(3))
    table, want = xp.asarray(np.ones((40, 3))).compute(), np.ones((40, 3))
    made_before = table + 1
    for k in range(40):
        table[k] = x
        want[k] = k
        x += 1
        table[k, 1] = 7
        want[k, 1] = 7
    whole = xp.zeros(3)
    whole[...] = x
    whole[0] = -1
    x[1] = -5
    same(table, want)
    same(made_before, np.full((40, 3), 2.0))
    same(whole, np.array([-1.0, 40, 40]))
    same(x, np.array([40.0, -5, 40]))


def test_none_is_made_twice(xp, shared, api, late):  # noqa: F811
    """Of more than go into a request, where one of the last is refused."""
    arrays = [shared(f"shared{k}", np.zeros(3)) for k in range(60)]
    for x in arrays:
        x += 1
    seen = arrays[0] + 0
    arrays[0][0] = 5
    assert api.request("DELETE", "/v1/arrays/shared59").status < 300
    with pytest.raises(arrayd.NotFound, match="in the assignment at .*test_client_python_writes.py"):
        xp.info()
    assert [float(x[1]) for x in arrays[:-1]] == [1.0] * 59
    same(seen, np.ones(3)), same(arrays[0], np.array([5.0, 1, 1]))


def test_several_connections(xp, shared, daemon, late):  # noqa: F811
    """What one has written another one reads, whichever is asked first."""
    with arrayd.connect(f"http://127.0.0.1:{daemon.port}") as other:
        a, b = shared("mine", np.zeros(3)), other.save("theirs", np.arange(3.0))
        for first in (a, b):
            b += 1
            a[...] = b
            b[1] = 9
            first.numpy()
            same(a, np.arange(3.0) + 1), same(b, np.array([1.0, 9, 3]))
            b[...] = xp.asarray(np.arange(3.0))
        other.delete("theirs")


def test_an_asynchronous_client_sees_them(xp, shared, daemon, late):  # noqa: F811
    async def main():
        async with arrayd.aconnect(f"http://127.0.0.1:{daemon.port}") as other:
            theirs = await other.array("shared")
            x[0] = 7
            return (await theirs.numpy()).tolist()

    x = shared("shared", np.zeros(3))
    assert asyncio.run(main()) == [7, 0, 0]


def test_an_interrupt_is_not_forgotten(xp, shared, late, monkeypatch):  # noqa: F811
    def interrupted(*_):
        raise KeyboardInterrupt

    x = shared("shared", np.zeros(3))
    x[0] = 7
    with monkeypatch.context() as m:
        m.setattr("arrayd._writes._steps", interrupted)
        with pytest.raises(KeyboardInterrupt):
            xp.info()
    with pytest.raises(arrayd.ConnectionLost, match="interrupted"):
        xp.info()
    x[1] = 8
    assert float(x[1]) == 8


def test_a_view_that_is_copied(xp, shared, daemon):  # noqa: F811
    """It is of its own moment, whoever writes to the array."""
    x = shared("shared", np.zeros(3))
    copies = [x[1:].copy(), x[::-1].copy(), x.reshape(3, 1).copy()]
    with arrayd.connect(f"http://127.0.0.1:{daemon.port}") as other:
        other.array("shared")[...] = 9.0
    for c in copies:
        assert not np.asarray(c).any()


ENDS = """
import os, signal, sys, time, numpy as np, arrayd
xp = arrayd.connect(sys.argv[1])
x = xp.save("shared", np.zeros(3))
x[0] = 7
{}
"""


@pytest.mark.parametrize("gone", ["", "os.kill(int(sys.argv[2]), signal.SIGKILL)", "os.kill(int(sys.argv[2]), signal.SIGKILL); time.sleep(0.1)"])
def test_the_end_of_a_script(daemon_with, gone):
    """The last assignment is made. Where the daemon has gone that is said, in a line."""
    d = daemon_with("--no-keeper")
    d.expected = -signal.SIGKILL if gone else 0
    r = subprocess.run([sys.executable, "-c", ENDS.format(gone), f"http://127.0.0.1:{d.port}", str(d.pid)], capture_output=True, text=True,
                       env={**os.environ, "PYTHONPATH": str(PACKAGE / "src")})
    assert r.returncode == 0 and "Traceback" not in r.stderr and len(r.stderr.splitlines()) == (1 if gone else 0), r.stderr
    if gone:
        assert r.stderr.startswith("arrayd: an assignment may not have been made: ")
    else:
        with arrayd.connect(f"http://127.0.0.1:{d.port}") as xp:  # noqa: F811
            assert xp.array("shared").tolist() == [7, 0, 0]


def test_the_end_of_a_script_with_a_daemon_of_its_own(tmp_path):
    """It ends after the last assignment."""
    script = "import sys, numpy as np, arrayd\nxp = arrayd.local(program=sys.argv[1], state_dir=sys.argv[2])\n"
    for text in ("x = xp.save('shared', np.zeros(3))\nx[0] = 7", "x = xp.array('shared')\nx[1] = 8\ndel x, xp", "print(xp.array('shared').tolist())"):
        r = subprocess.run([sys.executable, "-c", script + text, find_binary(), str(tmp_path)], capture_output=True, text=True,
                           env={**os.environ, "PYTHONPATH": str(PACKAGE / "src")})
        assert not r.returncode and not r.stderr, r.stderr
    assert r.stdout == "[7.0, 8.0, 0.0]\n"
