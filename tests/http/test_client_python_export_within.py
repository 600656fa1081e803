"""The Python client's exports: what it may do with an array inside its own `with`, what forks and views that outlive it do, and replies
that are not as they were expected. On the CPU backend, and on CUDA by the fake driver."""
import asyncio
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

from conftest import until
from test_client_python_export import SOURCE, backend, exports, start, view, xp  # noqa: F401

import arrayd
from arrayd import _export

pytestmark = pytest.mark.release_only  # it is the client that is tested here
on_cpu = pytest.mark.parametrize("backend", ["cpu"], indirect=True)


def written(xp, id_):  # noqa: F811
    """What somebody else gets who writes to it: the status."""
    return xp.api.put(f"/v1/arrays/{id_}/data", body=bytes(8000)).status


# --- forks ---


def test_a_forked_child_leaves_the_export_alone(xp):
    """It leaves the `with` by sys.exit, as a worker does; the parent's goes on, and ends when the parent says so."""
    x = xp.asarray(np.arange(1000.0))
    try:
        with x.exported("write") as m:
            id_ = x.id
            pid = os.fork()
            if not pid:
                signal.alarm(30)
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            assert m.lease and exports(xp) == 1 and written(xp, id_) == 409
            view(m)[3] = -3
    except SystemExit as e:
        os._exit(e.code)
    assert exports(xp) == 0 and x.numpy()[3] == -3


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_child_does_not_keep_the_export(start, backend, mode):  # noqa: F811
    """The parent is killed; its child lives on, but not the lease."""
    xp = start()
    x = xp.zeros(1000).compute()
    program = f"""
import os, signal, sys, time
sys.path.insert(0, {str(SOURCE)!r})
import arrayd
xp = arrayd.connect("unix:{xp.daemon.unix}")
with xp.array({x.id!r}).exported({mode!r}):
    pid = os.fork()
    if not pid:
        time.sleep(30)
        os._exit(0)
    print(pid, flush=True)
    time.sleep(30)
"""
    p = subprocess.Popen([sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{program}"], stdout=subprocess.PIPE)
    child = int(p.stdout.readline())
    try:
        assert exports(xp) == 1
        p.kill()
        p.wait()
        until(lambda: exports(xp) == 0, seconds=15)
        os.kill(child, 0)  # it is there still
    finally:
        os.kill(child, signal.SIGKILL)
        p.stdout.close()


# --- inside its own `with` ---


def test_its_own_requests_use_the_array(xp):
    x, y = xp.asarray(np.arange(1000.0)), xp.ones(1000).compute()
    with x.exported("write") as m, y.exported() as n:
        assert m.lease != n.lease and m.lease.startswith("l-")
        assert float(xp.sum(x)) == 499500 and written(xp, x.id) == 409
        view(m)[0] = 7
        assert float(xp.sum(x)) == 499507 and x.numpy()[0] == 7 and float(x[0]) == 7
        view(m)[0] = 8  # what came here is not kept
        assert x.numpy()[0] == 8 and float(x[0]) == 8
        later = x + 1
        x[1] = 50  # in place, whoever sees it
        xp.sync()
        assert view(m)[1] == 50 and later.numpy()[1] == 2
        x += 100
        y[5] = 5  # the only reader writes
        xp.sync()
        assert view(m)[0] == 108
        assert view(n)[5] == 5 and float(xp.sum(x * y)) == float((view(m) * view(n)).sum())
        assert xp.request("POST", "/v1/evaluate", {"expr": "sum(x)", "bind": {"x": x.id}})["value"] == view(m).sum()
        with pytest.raises(arrayd.Conflict):  # one at a time writes, in this process, too
            x.exported("write").__enter__()
        view(m)[2] = 9
    assert m.lease is None and not xp._transport.leases and exports(xp) == 0
    assert x.numpy()[2] == 9 and x.numpy()[1] == 150 and y.numpy()[5] == 5
    with x.exported("write") as m:
        xp.delete(x)
        view(m)[0] = 1
    with pytest.raises(arrayd.NotFound):
        xp.metadata(x.id)
    assert exports(xp) == 0


def test_expressions_beside_host_writes(xp):
    """Inside, nobody sees when something is written: what is evaluated after it has the new values."""
    x = xp.zeros((5,)).compute()
    before = x + 1
    with x.exported("write") as m:
        inside = x + 2
        view(m)[:] = 7
        assert inside.tolist() == [9] * 5 and before.tolist() == [1] * 5
    assert x.tolist() == [7] * 5 and before.tolist() == [1] * 5


def test_asynchronously_inside(start):  # noqa: F811
    xp = start()

    async def steps():
        async with arrayd.aconnect(f"unix:{xp.daemon.unix}") as own:
            x = own.asarray(np.arange(1000.0))
            async with x.exported("write") as m:
                assert await own.sum(x).item() == 499500
                view(m)[0] = 7
                assert (await x.numpy())[0] == 7
                view(m)[0] = 8
                await x.assign(1, 50)
                await own.sync()
                assert view(m)[1] == 50
            assert (await x.numpy())[:2].tolist() == [8, 50] and not own._transport.leases
        until(lambda: exports(xp) == 0)

    asyncio.run(steps())


# --- replies ---


def test_an_array_that_others_have_changed(xp):
    """Resized meanwhile: what is mapped is not taken for what it was."""
    xp.request("POST", "/v1/arrays", {"name": "r", "shape": [1000], "dtype": "float64"})
    x = xp.array("r")
    xp.request("POST", "/v1/arrays/r/resize", {"shape": [10]})
    for mode in ("read", "write"):
        with pytest.raises(arrayd.Conflict, match="another client"):
            x.exported(mode).__enter__()
        assert exports(xp) == 0 and not xp._transport.leases
    with xp.array("r").exported() as m:
        assert m.shape == (10,) and view(m).shape == (10,)
    xp.delete("r")


@pytest.mark.parametrize("wrong", [{"offset": 1 << 40}, {"offset": -1}, {"strides": [1 << 30]}, {"strides": [-1]}, {"strides": []}])
def test_a_layout_outside_the_memory(xp, wrong):
    x = xp.arange(100).compute()
    m = x.exported()
    reply = xp._run(m._asking())
    with pytest.raises(arrayd.ArraydError) as e:
        m._take({**reply, **wrong})
    assert e.value.code == "bad_reply" and exports(xp) == 0 and not xp._transport.leases


@on_cpu
def test_a_refusal_on_the_second_socket(xp, tmp_path, monkeypatch):
    """Said and closed before the token was sent: it is told as it was said."""
    path = str(tmp_path / "full.fd")
    said = threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()

        def refuse():
            c = listener.accept()[0]
            c.sendall(json.dumps({"status": 503, "code": "overloaded", "detail": "there are too many"}).encode() + b"\n")
            c.close()
            said.set()

        class Slow(socket.socket):
            def connect(self, to):
                super().connect(to)
                assert said.wait(20)

        refuser = threading.Thread(target=refuse)
        refuser.start()
        m = xp.ones(10).compute().exported()
        reply = xp._run(m._asking())
        monkeypatch.setattr(_export.socket, "socket", Slow)
        with pytest.raises(arrayd.Busy, match="too many"):
            m._take({**reply, "socket": path})
        refuser.join()


# --- views that outlive it ---


@on_cpu
@pytest.mark.parametrize("n", [10, 100_001, 5 << 20])
def test_late_views_are_copies(xp, n):
    """They see the values of the end, and what is written to them stays here."""
    x = xp.arange(n, dtype="int64").compute()
    with pytest.warns(RuntimeWarning, match="in use.*copy"):
        with x.exported("write") as m:
            a = m.array
            a[1] = 50
    assert exports(xp) == 0
    x[2] = 60
    a[3] = 70
    assert x.numpy()[1:4].tolist() == [50, 60, 3] and a[1:4].tolist() == [50, 2, 70] and a[-1] == n - 1
    with pytest.warns(RuntimeWarning, match="in use.*copy"):
        with x.exported() as m:
            b = m.array[::2]
    x[2] = 80
    assert b[1] == 60 and b[-1] == (n - 1) // 2 * 2 and not b.flags.writeable
    where = a.ctypes.data
    del a, b, m
    mapped = [line.split("-") for line in pathlib.Path("/proc/self/maps").read_text().splitlines()]
    shared = [line for line in mapped if int(line[0], 16) <= where < int(line[1].split()[0], 16) and "memfd" in line[-1]]
    assert not shared


@on_cpu
def test_late_views_are_told_by_default(start):  # noqa: F811
    xp = start()
    program = f"""
import arrayd
xp = arrayd.connect("unix:{xp.daemon.unix}")
with xp.zeros(10).exported("write") as m:
    a = m.array
a[0] = 1
"""
    p = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{program}"], capture_output=True, text=True, timeout=30)
    assert p.returncode == 0 and "in use" in p.stderr


@on_cpu
def test_an_end_that_is_not_answered(start):  # noqa: F811
    """Is told, unless something went wrong inside; with both clients."""
    xp = start()
    x = xp.zeros(10).compute()

    def silent(m):
        """In the place of the daemon's socket."""
        theirs, (ours, other) = m._socket, socket.socketpair()
        ours.settimeout(0.1)
        m._socket = ours
        kept.append(other)
        theirs.close()

    async def asynchronously(error):
        async with arrayd.aconnect(f"unix:{xp.daemon.unix}") as axp:
            y = await axp.zeros(10).compute()
            async with y.exported() as m:
                silent(m)
                if error:
                    raise error

    kept = []
    try:
        with pytest.raises(arrayd.ConnectionLost, match="within 0.1 s that the export has ended"):
            with x.exported() as m:
                silent(m)
        assert m.lease is None and m._memory is None
        with pytest.raises(KeyError):
            with x.exported() as m:
                silent(m)
                raise KeyError
        with pytest.raises(arrayd.ConnectionLost, match="within 0.1 s"):
            asyncio.run(asynchronously(None))
        with pytest.raises(KeyError):
            asyncio.run(asynchronously(KeyError()))
    finally:
        for other in kept:
            other.close()


@on_cpu
def test_no_memory_for_a_copy(xp, monkeypatch):
    """Then it is said what they are."""
    def refused(self):
        raise OSError(12, "no memory")
    monkeypatch.setattr(_export.HostMemory, "_put_copy_below", refused)
    x = xp.zeros(10).compute()
    with pytest.warns(RuntimeWarning, match="no longer the array"):
        with x.exported("write") as m:
            a = m.array
            a[0] = 4
    assert x.numpy()[0] == 4 and exports(xp) == 0
