"""The Python client's arrays in this process' memory, without a copy: on the CPU backend, and on CUDA by the fake driver, whose
device memory is the host's, so that what was mapped can be looked at."""
import asyncio
import contextlib
import ctypes
import gc
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
SOURCE = REPO / "clients" / "python" / "src"
sys.path.insert(0, str(SOURCE))
import arrayd  # noqa: E402
from arrayd import _cuda, _dlpack  # noqa: E402

from conftest import fake_gpu, settle, until  # noqa: E402

CONSUMER = REPO / "tests" / "bench" / "export_consumer.py"
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
          "complex64", "complex128"]
TORTURED = 60  # driver calls at most that an export takes


@pytest.fixture(params=["cpu", "cuda"])
def backend(request):
    return request.param


@pytest.fixture
def start(backend, daemon_with, tmp_path, monkeypatch, request):
    """A daemon that exports; its client over the Unix socket. `.daemon`, `.api` (over TCP)."""
    opened = []

    def begin(*args, token=None):
        args = ("--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/arrayd.sock", "--allow-export", *args)
        if backend == "cpu":
            d = daemon_with("--backend", "cpu", *args)
        else:
            d = request.getfixturevalue("gpu_with")(*args)
            if not os.environ.get("ARRAYD_REAL_GPU"):
                library = fake_gpu()["ARRAYD_LIBCUDA"]
                if re.search(rb"__(asan|tsan|ubsan)_", pathlib.Path(library).read_bytes()):
                    pytest.skip("this build's fake driver is not for a Python without its sanitizer")
                monkeypatch.setenv("ARRAYD_LIBCUDA", library)
        xp = arrayd.connect(f"unix:{d.unix}", token)
        xp.daemon, xp.api = d, d.client(always={"Authorization": f"Bearer {token}"} if token else {})
        exports(xp)  # connected from here on
        opened.append(xp)
        return xp

    yield begin
    for xp in opened:
        xp.api.close()
        xp.close()


@pytest.fixture
def xp(start):
    return start()


def view(m):
    """The memory as NumPy sees it; of the fake device's memory, too."""
    if m.device == "cpu":
        return m.array
    if os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("a real GPU's memory is not the host's")
    t = _dlpack.Tensor(m._address, m.shape, m.strides, m.dtype, (1, 0), False)
    return _dlpack.host_view(t)


def exports(xp):
    """How many are open, by the daemon's metrics."""
    text = xp.api.get("/metrics").body.decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if re.match(r"arrayd_exports[{ ]", line))


def descriptors(pid):
    """What a process has open, but for sockets: a client keeps connections."""
    names = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            names.append(os.readlink(f"/proc/{pid}/fd/{fd}").split(" ")[0])
        except FileNotFoundError:
            pass
    return sorted(n for n in names if not n.startswith("socket:"))


# --- the memory ---


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(xp, dtype):
    """What is there is seen here, and what is written here is there."""
    x = xp.astype(xp.reshape(xp.arange(60) % 2, (3, 20)), dtype)
    with x.exported() as m:
        assert m.shape == (3, 20) and m.dtype == x.dtype and m.nbytes == x.nbytes and m.mode == "read"
        assert np.array_equal(view(m).tobytes(), x.numpy().tobytes())
    with x.exported("write") as m:
        v = view(m)
        v[1] = v[0, ::-1]
        del v
    got = x.numpy()
    assert got[1].tobytes() == got[0, ::-1].tobytes() and got[2].tobytes() == got[0].tobytes() != got[1].tobytes()


def test_layouts(xp):
    """Ghosted arrays, views with steps and turned axes, numbers, nothing, and what is large from the beginning."""
    xp.request("POST", "/v1/arrays", {"name": "g", "shape": [5, 6], "ghost": [1, 2], "fill": 3.5, "dtype": "float32"})
    g = xp.array("g")
    with g.exported("write") as m:
        assert m.strides[0] > 6 * 4 and m.strides[1] == 4
        view(m)[2, 3] = 7
    want = np.full((5, 6), 3.5, "f4")
    want[2, 3] = 7
    assert np.array_equal(g.numpy(), want)
    a = np.arange(7 * 8 * 9, dtype="i4").reshape(7, 8, 9)
    xp.save("a", a)
    xp.request("POST", "/v1/arrays/a/views", {"index": "5:0:-2, :, ::4", "permute": [2, 0, 1], "name": "v"})
    part = a[5:0:-2, :, ::4].transpose(2, 0, 1)
    with xp.array("v").exported() as m:
        assert m.strides == part.strides and np.array_equal(view(m), part)
        t = _dlpack.take(m)
        assert t.tensor.strides == part.strides and np.array_equal(_dlpack.host_view(t.tensor), part)
        t.close()
    with xp.asarray(2.5).exported() as m:
        assert m.shape == () and view(m)[()] == 2.5
    large = xp.arange(5 << 20, dtype="int64")
    with large.exported() as m:
        assert np.array_equal(view(m)[::1 << 20], np.arange(5) << 20)
    xp.delete("v")
    xp.delete("a")
    xp.delete("g")


def test_who_may_what(xp):
    """Read: others read. Write: nobody else; expressions made before keep the old values, whoever asks afterwards sees the new."""
    x = xp.asarray(np.arange(1000.0))
    later = x + 1
    copy = +x
    id_ = x.id
    with x.exported() as m:
        assert xp.api.get(f"/v1/arrays/{id_}/data").status == 200
        assert xp.api.put(f"/v1/arrays/{id_}/data", body=bytes(8000)).status == 409
        assert float(xp.sum(x)) == 499500 and view(m)[999] == 999
    with x.exported("write") as m:
        mine = x._node.handle.id
        assert xp.api.get(f"/v1/arrays/{mine}/data").status == 409
        with pytest.raises(arrayd.Conflict):
            x.exported().__enter__()
        view(m)[:] = -1
    assert (x.numpy() == -1).all() and later.numpy()[5] == 6 and copy.numpy()[7] == 7
    named = xp.save("named", x)
    doubled = named * 2
    with named.exported("write") as m:
        view(m)[0] = 50
    assert doubled.numpy()[0] == -2 and xp.array("named").numpy()[0] == 50 and x.numpy()[0] == -1
    xp.delete("named")


def test_turn_by_turn(xp):
    """Each side goes on from what the other has just written, with nothing else between them."""
    x = xp.zeros(200_000)
    for k in range(20):
        with x.exported("write") as m:
            v = view(m)
            v += 1
            del v
        x += 1
        x.compute()
    assert (x.numpy() == 40).all()


def test_what_is_refused(xp, start, backend, daemon_with, tmp_path):
    x = xp.ones(100).compute()
    with pytest.raises(ValueError):
        x.exported("append")
    over_tcp = arrayd.connect(f"http://127.0.0.1:{xp.daemon.port}")
    with pytest.raises(arrayd.Denied):
        over_tcp.array(x.id).exported().__enter__()
    over_tcp.close()
    xp.request("PATCH", f"/v1/arrays/{x.id}", {"read_only": True})
    with pytest.raises((arrayd.Conflict, arrayd.Denied)):
        xp.array(x.id).exported("write").__enter__()
    xp.request("PATCH", f"/v1/arrays/{x.id}", {"read_only": False})
    m = x.exported()
    for use in (lambda: m.device, lambda: m.__dlpack__(), lambda: m.__dlpack_device__(), lambda: np.asarray(m)):
        with pytest.raises(ValueError, match="with"):
            use()
    with m:
        assert "on " in repr(m)
        with pytest.raises(ValueError, match="already"):
            m.__enter__()
        with x.exported() as other:  # another one may
            assert other.shape == m.shape
    assert "ended" in repr(m)
    with pytest.raises(ValueError):
        m.__dlpack__()
    if backend == "cpu":
        (tmp_path / "other").mkdir()
        d = daemon_with("--listen", f"unix:{tmp_path}/other/s")
        with arrayd.connect(f"unix:{d.unix}") as off, pytest.raises(arrayd.Denied):
            off.ones(10).exported().__enter__()
        moved = x.exported()
        reply = xp._run(moved._asking())
        with pytest.raises(arrayd.NotFound):  # a token that is none
            moved._take({**reply, "token": "x-0000"})
        moved._take({**reply, "socket": "/nonexistent/arrayd.fd"})  # the daemon's path is not ours: it lies beside the one we know
        assert view(moved)[3] == 1
        moved._end()


def test_an_exception_inside(xp):
    x = xp.zeros(10)
    with pytest.raises(KeyError):
        with x.exported("write") as m:
            view(m)[3] = 5
            raise KeyError
    assert x.numpy()[3] == 5 and exports(xp) == 0


# --- NumPy's views, on the CPU ---


@pytest.mark.parametrize("backend", ["cpu"], indirect=True)
def test_views_of_it(xp):
    x = xp.asarray(np.arange(12, dtype="f4").reshape(3, 4))
    with x.exported():
        pass  # moved: from here on it has a descriptor in the daemon
    before, here = descriptors(xp.daemon.pid), descriptors(os.getpid())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with x.exported() as m:
            a = np.asarray(m)
            assert not a.flags.writeable and a.base is not None and np.shares_memory(a, m.array)
            with pytest.raises(ValueError):
                a[0, 0] = 1
            with pytest.raises(ValueError):
                np.asarray(m).flags.writeable = True
            assert np.array(m, dtype="f8").dtype == "f8" and m.__array__(copy=True).flags.owndata
            with pytest.raises(AttributeError):
                m.__cuda_array_interface__
            del a
        until(lambda: (descriptors(xp.daemon.pid), descriptors(os.getpid())) == (before, here))
    with pytest.warns(RuntimeWarning, match="in use"):
        with x.exported("write") as m:
            kept = m.array[1:, ::2]
            kept[...] = 9
    assert (kept == 9).all() and exports(xp) == 0  # the lease has ended; the memory stays for who holds it
    assert x.numpy()[1, 0] == 9
    here = descriptors(os.getpid())
    del kept
    assert len(descriptors(os.getpid())) == len(here) - 1


# --- DLPack ---


def test_capsules(xp, backend):
    x = xp.reshape(xp.arange(24, dtype="int16"), (4, 6))
    live = len(_dlpack._live)
    with x.exported("write") as m:
        kind, ordinal = m.__dlpack_device__()
        assert kind == (1 if backend == "cpu" else 2) and m.device == ("cpu" if backend == "cpu" else f"cuda:{ordinal}")
        for versioned in (False, True):
            capsule = m.__dlpack__(max_version=(1, 1)) if versioned else m.__dlpack__()
            assert ("dltensor_versioned" in repr(capsule)) == versioned
            t = _dlpack.Taken(capsule)
            assert t.tensor.address == m._address and t.tensor[1:] == ((4, 6), (12, 2), np.dtype("i2"), (kind, ordinal), False)
            assert "used_dltensor" in repr(capsule)
            with pytest.raises(BufferError):
                _dlpack.Taken(capsule)
            del capsule
            assert len(_dlpack._live) == live + 1
            giver = threading.Thread(target=t.close)  # any thread may
            giver.start()
            giver.join()
            assert len(_dlpack._live) == live
        m.__dlpack__()  # nobody takes it
        _dlpack.sweep()
        assert len(_dlpack._live) == live
        copied = _dlpack.Taken(m.__dlpack__(dl_device=(1, 0), copy=True, max_version=(1, 0)))
        assert copied.tensor.address != m._address and np.array_equal(copied.view(), np.arange(24).reshape(4, 6))
        copied.close()
        for wrong in ({"dl_device": (10, 0)}, {"dl_device": (2, 99)}):
            with pytest.raises(BufferError):
                m.__dlpack__(**wrong)
        if backend == "cpu":
            with pytest.raises(BufferError):
                m.__dlpack__(stream=1)
            assert np.shares_memory(np.from_dlpack(m), m.array)
        else:
            for stream in (None, -1, 1, 2, 12345):
                m.__dlpack__(stream=stream)
            with pytest.raises(BufferError):
                m.__dlpack__(dl_device=(1, 0), copy=False)
            with pytest.raises(TypeError):
                np.asarray(m)
        with pytest.raises(TypeError):
            m.__dlpack__(stream="0")
    with x.exported() as m:
        t = _dlpack.take(m)
        assert t.tensor.read_only
        t.close()
        if backend == "cpu":
            with pytest.raises(BufferError, match="read-only"):
                m.__dlpack__()
        else:
            m.__dlpack__()
    assert len(_dlpack._live) == live


def test_a_consumer_that_refuses(xp):
    """NumPy knows neither bfloat16 nor a GPU's memory. It says so, and what it was handed goes."""
    x = xp.ones((10, 10), dtype="bfloat16")
    live = len(_dlpack._live)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that somebody uses the memory still
        for _ in range(3):
            with pytest.raises((RuntimeError, BufferError), match="Unsupported (dtype|device)"):
                with x.exported("write") as m:
                    np.from_dlpack(m)
            assert len(_dlpack._live) == live
    with x.exported("write") as m:
        held = m.__dlpack__()  # for later: it stays as it is
        for _ in range(3):
            with pytest.raises((RuntimeError, BufferError), match="Unsupported (dtype|device)"):
                np.from_dlpack(m)
        _dlpack.sweep()
        assert len(_dlpack._live) == live + 1
        t = _dlpack.Taken(held)
        assert t.tensor.address == m._address
        t.close()
        assert len(_dlpack._live) == live


@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_the_cuda_array_interface(xp):
    x = xp.reshape(xp.arange(24, dtype="float32"), (4, 6))
    with x.exported() as m:
        i = m.__cuda_array_interface__
        assert i == {"shape": (4, 6), "typestr": "<f4", "data": (m._address, True), "version": 3, "strides": None, "stream": None}
        mapping = weakref.ref(m._memory.map)
    assert mapping() is not None and mapping().address == i["data"][0]  # who took it holds m
    del m
    gc.collect()
    assert mapping() is None and exports(xp) == 0
    with xp.astype(x, "bfloat16").exported("write") as m:
        assert not hasattr(m, "__cuda_array_interface__")
        t = _dlpack.take(m)
        assert t.tensor.dtype == arrayd._dtypes.bfloat16
        t.close()


class Taker:
    """Holds what it read `__cuda_array_interface__` of, as CuPy, PyTorch and Numba do."""

    def __init__(self, m):
        self.interface, self.owner = m.__cuda_array_interface__, m


@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_who_took_the_interface_outlives_the_export(xp):
    """Which is told; who has gone by then, or never was, is not."""
    x = xp.arange(1000, dtype="float64").compute()

    def ended(keeps):
        with x.exported() as m:
            taker = Taker(m)
            if not keeps:
                del taker
        return locals().get("taker")

    def from_a_stack():
        with contextlib.ExitStack() as stack:
            Taker(stack.enter_context(x.exported()))

    async def asynchronously(keeps):
        async with arrayd.aconnect(f"unix:{xp.daemon.unix}") as own:
            async with (await own.array(x.id)).exported() as m:
                taker = Taker(m)
                if not keeps:
                    del taker
            return locals().get("taker")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ended(False)
        from_a_stack()
        asyncio.run(asynchronously(False))
        with x.exported():  # without a name, and without a taker
            pass
    for f in (lambda: ended(True), lambda: asyncio.run(asynchronously(True))):
        with pytest.warns(RuntimeWarning, match="__cuda_array_interface__ seem to be in use"):
            taker = f()
        mapping = weakref.ref(taker.owner._held.map)
        assert mapping().address == taker.interface["data"][0] and exports(xp) == 0
        del taker
        gc.collect()
        assert mapping() is None


@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_a_tensor_outlives_the_export(xp):
    """Its memory is there as long as it is, the lease is not; then the mapping goes."""
    x = xp.asarray(np.arange(1000.0))
    with pytest.warns(RuntimeWarning, match="in use"):
        with x.exported("write") as m:
            t = _dlpack.take(m)
            mapping = weakref.ref(m._memory.map)
            view(m)[1] = 77
    assert exports(xp) == 0 and x.numpy()[1] == 77
    assert _dlpack.host_view(t.tensor)[1] == 77 and mapping() is not None
    t.close()
    gc.collect()
    assert mapping() is None


@pytest.mark.in_turn
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_the_driver_refuses(xp):
    """Each driver call of an export fails once: an error, and nothing is left of it here or in the daemon."""
    if os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("only the fake driver does that")
    fake = ctypes.CDLL(os.environ["ARRAYD_LIBCUDA"])
    x = xp.ones(1000).compute()
    with x.exported():
        pass  # initialised, and moved
    gc.collect()  # what earlier tests left is closed now, not in between
    before = descriptors(xp.daemon.pid), descriptors(os.getpid())
    failed = 0
    for nth in range(1, TORTURED):
        fake.fake_cuda_fail(nth, 2)
        try:
            with x.exported() as m:  # for writing, the daemon would wait for this process' end each time
                _dlpack.take(m).close()
        except arrayd.DeviceError as e:
            assert "(2)" in str(e)
            failed += 1
        else:
            fake.fake_cuda_fail(0, 0)
            break
        m = None
        gc.collect()
        until(lambda: exports(xp) == 0)
        until(lambda: (descriptors(xp.daemon.pid), descriptors(os.getpid())) == before)
    assert 8 <= failed < TORTURED - 1
    with x.exported("write") as m:
        view(m)[0] = 4
    assert x.numpy()[0] == 4


def test_the_gpu_is_another(xp, backend, monkeypatch):
    if backend == "cpu":
        monkeypatch.setenv("ARRAYD_LIBCUDA", "/nonexistent/libcuda.so.1")
        with pytest.raises(arrayd.DeviceError, match="cannot be loaded"):
            _cuda.device_of("GPU-0")
    else:
        with pytest.raises(arrayd.DeviceError, match="CUDA_VISIBLE_DEVICES"):
            _cuda.device_of("GPU-00000000-0000-0000-0000-000000000000")


# --- ends ---


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_killed_consumer(xp, backend, mode):
    """Nothing is left of it, wherever it was."""
    x = xp.asarray(np.arange(3000.0))
    with x.exported():
        pass  # moved
    xp.api.quiet()  # what it was moved from has gone
    used, before = xp.info()["bytes_in_use"], descriptors(xp.daemon.pid)
    command = [sys.executable, "-S", str(CONSUMER), xp.daemon.unix, x.id, mode]
    for _ in range(4):
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3 if mode == "read" else 1)]
        for p in processes:
            assert p.stdout.readline() == b"mapped\n"
        assert exports(xp) >= 1
        for p in processes:
            p.send_signal(signal.SIGKILL)
            p.communicate()
        until(lambda: exports(xp) == 0)
    assert float(xp.sum(x + 0)) == 4498500.0
    until(lambda: descriptors(xp.daemon.pid) == before)
    assert settle(xp.api, used) == used


def test_the_daemon_ends_first(start):
    """A `with` that it does not live to see the end of."""
    xp = start()
    x = xp.asarray(np.arange(10.0))
    with x.exported() as m:
        xp.daemon.stop()
        assert view(m)[3] == 3  # the memory is ours, too


@pytest.mark.in_turn
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_what_was_written_may_be_lost(start, how):
    """The daemon has gone before a `with` for writing has ended, and nobody has the memory."""
    xp = start("--keep-arrays=no")
    x = xp.asarray(np.arange(10.0))
    with pytest.raises(arrayd.ConnectionLost, match="what was written to the memory may be lost"):
        with x.exported("write") as m:
            if how == "killed":
                before = xp.info()["process"]["pid"]
                os.kill(before, signal.SIGKILL)
                until(lambda: xp.info()["process"]["pid"] != before)  # its keeper starts another one
            else:
                xp.daemon.stop()
            assert view(m)[3] == 3


def test_what_was_written_is_there_after_a_death(start):
    """The next daemon has the memory, and the export."""
    xp = start("--keep-arrays")
    x = xp.asarray(np.arange(10.0))
    with x.exported("write") as m:
        before = xp.info()["process"]["pid"]
        os.kill(before, signal.SIGKILL)
        until(lambda: xp.info()["process"]["pid"] != before)
        view(m)[3] = 30
    assert np.asarray(x).tolist() == [0, 1, 2, 30, 4, 5, 6, 7, 8, 9]


@pytest.mark.in_turn
def test_what_goes_wrong_inside_says_more(start):
    xp = start()
    with pytest.raises(ZeroDivisionError):
        with xp.ones(10).exported("write"):
            xp.daemon.stop()
            1 / 0


def test_asynchronously(start):
    xp = start("--export-timeout", "0.5")  # who is cancelled before he has seen his token does not present it

    async def steps():
        async with arrayd.aconnect(f"unix:{xp.daemon.unix}") as own:
            x = own.asarray(np.arange(100_000.0))
            async with x.exported("write") as m:
                view(m)[5] = -5
            assert await own.min(x).item() == -5
            async with x.exported() as m:
                y = own.from_dlpack(m)
            assert np.array_equal(await y.numpy(), await x.numpy())
            for delay in (0, 0.001, 0.003):
                async def cancelled():
                    async with x.exported() as m:
                        await asyncio.sleep(10)
                        return m
                task = asyncio.ensure_future(cancelled())
                await asyncio.sleep(delay)
                task.cancel()
                await asyncio.wait([task])
        until(lambda: exports(xp) == 0)

    asyncio.run(steps())


@pytest.mark.parametrize("backend", ["cpu"], indirect=True)
def test_sessions_and_accounts(start, accounts):
    """Of a session of its own; another's array is not there, also to be exported."""
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    xp = start("--accounts", accounts.path, token=accounts.add("eve", role="operator"))
    ann, bob = (arrayd.connect(xp._transport.url, accounts.token[name]) for name in ("ann", "bob"))
    with ann.session() as own:
        x = own.save("x", np.arange(5.0))
        with x.exported("write") as m:
            m.array[0] = 50
        assert own.array("x").numpy()[0] == 50
        with pytest.raises(arrayd.NotFound):
            ann.array("x")
        with pytest.raises(arrayd.NotFound):
            bob._run(bob._requesting("POST", f"/v1/arrays/{x.id}/export", {"mode": "read"}))
    ann.close()
    bob.close()
