"""The Python client takes arrays of others: by DLPack, of memory that this process can read and of a GPU's. On the CPU backend, and on
CUDA by the fake driver, whose device memory is the host's."""
import asyncio
import threading

import numpy as np
import pytest

from test_client_python_export import backend, exports, start, xp  # noqa: F401

import arrayd
from arrayd import _cuda, _dlpack


class Elsewhere:
    """A producer of a later standard, or of an earlier; of memory of any kind that this process can read."""

    def __init__(self, a, kind=1, old=False):
        self.a, self.kind, self.old, self.asked = a, kind, old, []

    def __dlpack_device__(self):
        return (self.kind, 0)

    def __dlpack__(self, **kw):
        if self.old and "max_version" in kw:
            raise TypeError("max_version")
        self.asked.append(kw)
        a = self.a
        return _dlpack.capsule(a.ctypes.data, a.shape, tuple(s // a.itemsize for s in a.strides), a.dtype, (self.kind, 0), a,
                               versioned=not self.old, read_only=not a.flags.writeable)


def test_from_host_memory(xp):  # noqa: F811
    a = np.arange(30, dtype="i4").reshape(5, 6)
    frozen = a.copy()
    frozen.flags.writeable = False
    bf = np.arange(6, dtype="u2").view(arrayd._dtypes.bfloat16)
    live = len(_dlpack._live)
    for source, want in ((a, a), (frozen, frozen), (a[::-2, ::3].T, a[::-2, ::3].T), (Elsewhere(a[1:, ::-1]), a[1:, ::-1]),
                         (Elsewhere(frozen, old=True), frozen), (Elsewhere(a, kind=3), a), (Elsewhere(bf), bf),
                         (Elsewhere(np.zeros((0, 3))), np.zeros((0, 3))), (Elsewhere(np.asarray(2.5)), np.asarray(2.5)),
                         (Elsewhere(a > 3), a > 3), (Elsewhere(a * 1j), a * 1j)):
        got = xp.from_dlpack(source)
        assert got.dtype == want.dtype and got.shape == want.shape and got.numpy().tobytes() == want.tobytes()
    assert len(_dlpack._live) == live
    x = xp.from_dlpack(a)
    a[0, 0] = 99
    assert int(x[0, 0]) == 0  # its values are those of then
    with pytest.raises(BufferError):
        xp.from_dlpack(Elsewhere(a, kind=10))
    with pytest.raises(ValueError):
        xp.from_dlpack(a, copy=False)
    with pytest.raises(TypeError):
        xp.from_dlpack([1, 2])


def test_from_an_export(xp, backend, monkeypatch):  # noqa: F811
    """Of the same daemon: on the device, from device memory to device memory; what is small or has gaps through the host."""
    x = xp.random((300, 1000), seed=4).compute()
    went = []
    copy = _cuda.Device.copy
    monkeypatch.setattr(_cuda.Device, "copy", lambda self, *a: (went.append(a[2]), copy(self, *a)))
    with x.exported() as m:
        y = xp.from_dlpack(m)
        small = xp.from_dlpack(Part(m, (10, 10), m.strides))
        turned = xp.from_dlpack(Part(m, (1000, 300), m.strides[::-1]))
    assert np.array_equal(y.numpy(), x.numpy()) and np.array_equal(small.numpy(), x.numpy()[:10, :10])
    assert np.array_equal(turned.numpy(), x.numpy().T)
    assert went == ([] if backend == "cpu" else [x.nbytes, x.nbytes]) and exports(xp) == 0
    if backend == "cuda":
        off = arrayd.connect(f"http://127.0.0.1:{xp.daemon.port}")
        with x.exported() as m:  # over TCP nothing is exported: through the host
            y = off.from_dlpack(m)
        assert np.array_equal(y.numpy(), x.numpy()) and len(went) == 2
        off.close()


def test_from_an_export_asynchronously(xp, backend, monkeypatch):  # noqa: F811
    """`upload` does as the synchronous client; `from_dlpack`, which waits for nothing, goes through the host."""
    x = xp.random((300, 1000), seed=4).compute()
    want, went = x.numpy(), []
    copy = _cuda.Device.copy
    monkeypatch.setattr(_cuda.Device, "copy", lambda self, *a: (went.append(threading.current_thread()), copy(self, *a)))

    async def steps():
        async with arrayd.aconnect(f"unix:{xp.daemon.unix}") as own:
            with x.exported() as m:
                y = await own.upload(m)
                turned = await own.upload(Part(m, (1000, 300), m.strides[::-1]))
                there = len(went)
                copied = own.from_dlpack(m)
            assert y._node.handle and (backend == "cpu" or y._node.value is None)
            for got, values in ((y, want), (turned, want.T), (copied, want)):
                assert np.array_equal(await got.numpy(), values)
            assert there == len(went) == (0 if backend == "cpu" else 2) and threading.main_thread() not in went
            a = np.arange(1 << 18, dtype="f8")
            z = await own.upload(a)
            assert z._node.handle and z._node.value is None and np.array_equal(await z.numpy(), a)
            assert (await (await own.upload([[1, 2], [3, 4]])).tolist(), (await own.upload(2.5)).shape) == ([[1, 2], [3, 4]], ())
            assert (await own.upload(z)) is z and (await own.upload(z + 1))._node.handle
        if backend == "cuda":
            async with arrayd.aconnect(f"http://127.0.0.1:{xp.daemon.port}") as off:
                with x.exported() as m:
                    y = await off.upload(m)
                assert np.array_equal(await y.numpy(), want) and len(went) == 2

    asyncio.run(steps())
    assert exports(xp) == 0


class Part:
    """A part of an export, as a library's view of it would be."""

    def __init__(self, m, shape, strides):
        self.m, self.shape, self.strides = m, shape, strides

    def __dlpack_device__(self):
        return self.m.__dlpack_device__()

    def __dlpack__(self, **kw):
        m = self.m
        return _dlpack.capsule(m._address, self.shape, tuple(s // m.dtype.itemsize for s in self.strides), m.dtype,
                               m.__dlpack_device__(), m, versioned=True)
