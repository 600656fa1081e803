"""Memory of a GPU that another process has allocated, mapped into this one: a small part of the CUDA driver, by ctypes.

The driver's library is `libcuda.so.1`, or what the environment's ARRAYD_LIBCUDA names. It is loaded, and a device's primary context
retained, when the first array is taken, and both are kept: what other libraries do (PyTorch, CuPy and JAX use the same primary
context, and their streams belong to it) and what makes a second time cheap. The thread's current context is left as it was.
"""
from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Dict, List, Optional, Tuple

from ._errors import DeviceError

_int, _size, _p, _u64 = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_ulonglong
_out = ctypes.POINTER

LEGACY_STREAM = 1  # what DLPack calls the null stream, and CUDA CU_STREAM_LEGACY
_POSIX_FD, _ON_DEVICE, _READ_WRITE = 1, 1, 3


class _Access(ctypes.Structure):
    _fields_ = [("type", _int), ("id", _int), ("flags", _int)]


class _Uuid(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 16)]


_FUNCTIONS: Dict[str, Tuple[Tuple[str, ...], List[Any]]] = {
    "cuInit": (("cuInit",), [ctypes.c_uint]),
    "cuGetErrorName": (("cuGetErrorName",), [_int, _out(ctypes.c_char_p)]),
    "cuDeviceGetCount": (("cuDeviceGetCount",), [_out(_int)]),
    "cuDeviceGet": (("cuDeviceGet",), [_out(_int), _int]),
    "cuDeviceGetUuid": (("cuDeviceGetUuid_v2", "cuDeviceGetUuid"), [_out(_Uuid), _int]),
    "cuDevicePrimaryCtxRetain": (("cuDevicePrimaryCtxRetain",), [_out(_p), _int]),
    "cuCtxPushCurrent": (("cuCtxPushCurrent_v2",), [_p]),
    "cuCtxPopCurrent": (("cuCtxPopCurrent_v2",), [_out(_p)]),
    "cuCtxSynchronize": (("cuCtxSynchronize",), []),
    "cuStreamSynchronize": (("cuStreamSynchronize",), [_p]),
    "cuMemImportFromShareableHandle": (("cuMemImportFromShareableHandle",), [_out(_u64), _p, _int]),
    "cuMemAddressReserve": (("cuMemAddressReserve",), [_out(_u64), _size, _size, _u64, _u64]),
    "cuMemAddressFree": (("cuMemAddressFree",), [_u64, _size]),
    "cuMemMap": (("cuMemMap",), [_u64, _size, _size, _u64, _u64]),
    "cuMemUnmap": (("cuMemUnmap",), [_u64, _size]),
    "cuMemSetAccess": (("cuMemSetAccess",), [_u64, _size, _out(_Access), _size]),
    "cuMemRelease": (("cuMemRelease",), [_u64]),
    "cuMemcpyDtoDAsync": (("cuMemcpyDtoDAsync_v2",), [_u64, _u64, _size, _p]),
    "cuMemcpyDtoHAsync": (("cuMemcpyDtoHAsync_v2",), [_p, _u64, _size, _p]),
}


class Driver:
    """The functions, each of which raises DeviceError where the driver's would return another code than 0."""

    def __init__(self, name: str):
        self.name, self.pid = name, os.getpid()
        try:
            self._library = ctypes.CDLL(name)
        except OSError as e:
            raise DeviceError(0, "no_driver", f"the CUDA driver cannot be loaded: {e}") from e
        self._functions: Dict[str, Any] = {}
        self._names = self._find("cuGetErrorName")
        self.call("cuInit", 0)

    def _find(self, name: str) -> Any:
        symbols, arguments = _FUNCTIONS[name]
        for s in symbols:
            f = getattr(self._library, s, None)
            if f is not None:
                f.restype, f.argtypes = _int, arguments
                self._functions[name] = f
                return f
        raise DeviceError(0, "no_driver", f"{self.name} has no {symbols[0]}: the driver is too old")

    def call(self, name: str, *arguments: Any) -> None:
        f = self._functions.get(name) or self._find(name)
        code = f(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._names(code, ctypes.byref(text))
            raise DeviceError(0, "device_error", f"{name}: {(text.value or b'unknown error').decode()} ({code})")

    def undo(self, steps: List[Tuple[Any, ...]]) -> None:
        """All of the calls, last to first, whatever the others say; then the first error."""
        failed: Optional[DeviceError] = None
        for name, *arguments in reversed(steps):
            try:
                self.call(name, *arguments)
            except DeviceError as e:
                failed = failed or e
        if failed is not None:
            raise failed

    def devices(self) -> List[Tuple[int, str]]:
        """(ordinal, UUID as "GPU-…") of what this process sees."""
        n = _int()
        self.call("cuDeviceGetCount", ctypes.byref(n))
        out = []
        for i in range(n.value):
            device, uuid = _int(), _Uuid()
            self.call("cuDeviceGet", ctypes.byref(device), i)
            self.call("cuDeviceGetUuid", ctypes.byref(uuid), device)
            h = bytes(uuid.bytes).hex()
            out.append((device.value, f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"))
        return out


class Device:
    """A GPU with its primary context. `with device:` makes that the thread's. Copies are made in the null stream."""

    def __init__(self, driver: Driver, ordinal: int, uuid: str):
        self.driver, self.ordinal, self.uuid = driver, ordinal, uuid
        self._context = _p()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), ordinal)

    def __enter__(self) -> Driver:
        self.driver.call("cuCtxPushCurrent", self._context)
        return self.driver

    def __exit__(self, *_: Any) -> None:
        self.driver.call("cuCtxPopCurrent", ctypes.byref(_p()))

    def synchronize(self) -> None:
        """Waits until whatever this process has queued on the device, in any stream, is done."""
        with self as driver:
            driver.call("cuCtxSynchronize")

    def copy(self, to: int, from_: int, size: int) -> None:
        """Bytes from device to device memory. They are there on return."""
        with self as driver:
            driver.call("cuMemcpyDtoDAsync", to, from_, size, None)
            driver.call("cuStreamSynchronize", None)

    def read(self, from_: int, size: int) -> ctypes.Array[ctypes.c_ubyte]:
        """Bytes of device memory."""
        memory = (ctypes.c_ubyte * size)()
        with self as driver:
            driver.call("cuMemcpyDtoHAsync", ctypes.addressof(memory), from_, size, None)
            driver.call("cuStreamSynchronize", None)
        return memory


class Mapping:
    """An allocation of `size` bytes that a descriptor stands for, at `address` in this process until `close`, or until nobody
    refers to this. Throws nothing away that work still queued here may use: it waits for the device first."""

    def __init__(self, device: Device, fd: int, size: int):
        self.device, self.size, self.address = device, size, 0
        handle, address = _u64(), _u64()
        with device as driver:
            driver.call("cuMemImportFromShareableHandle", ctypes.byref(handle), fd, _POSIX_FD)
            undo: List[Tuple[Any, ...]] = [("cuMemRelease", handle)]
            try:
                driver.call("cuMemAddressReserve", ctypes.byref(address), size, 0, 0, 0)
                undo.append(("cuMemAddressFree", address, size))
                driver.call("cuMemMap", address, size, 0, handle, 0)
                undo.append(("cuMemUnmap", address, size))
                access = _Access(_ON_DEVICE, device.ordinal, _READ_WRITE)
                driver.call("cuMemSetAccess", address, size, ctypes.byref(access), 1)
                driver.call(*undo.pop(0))  # the handle: what is mapped stays
            except BaseException:
                try:
                    driver.undo(undo)
                except DeviceError:  # the first one is told
                    pass
                raise
            self.address = address.value

    def close(self) -> None:
        if not self.address or os.getpid() != self.device.driver.pid:  # after a fork it is the parent's
            return
        with self.device as driver:
            address, self.address = self.address, 0
            driver.undo([("cuMemAddressFree", address, self.size), ("cuMemUnmap", address, self.size), ("cuCtxSynchronize",)])

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the process ends, or the device is lost: there is nobody to tell
            pass


_lock = threading.Lock()
_drivers: Dict[str, Driver] = {}
_devices: Dict[Tuple[str, str], Device] = {}


def device_of(uuid: str) -> Device:
    """The device with a UUID ("GPU-…"); DeviceError where this process does not see it."""
    name = os.environ.get("ARRAYD_LIBCUDA") or "libcuda.so.1"
    device = _devices.get((name, uuid))
    if device is not None and device.driver.pid == os.getpid():
        return device
    with _lock:
        driver = _drivers.get(name)
        if driver is None:
            driver = _drivers[name] = Driver(name)
        if driver.pid != os.getpid():
            raise DeviceError(0, "device_error", "CUDA was begun in the process that this one was forked from: use spawn")
        device = _devices.get((name, uuid))
        for ordinal, other in driver.devices() if device is None else ():
            if other == uuid:
                device = _devices[(name, uuid)] = Device(driver, ordinal, uuid)
    if device is None:
        raise DeviceError(0, "no_device", f"the daemon's {uuid} is not among this process' GPUs (CUDA_VISIBLE_DEVICES?)")
    return device


def ordinal_device(ordinal: int) -> Optional[Device]:
    """The device that DLPack calls (kDLCUDA, ordinal), or None."""
    name = os.environ.get("ARRAYD_LIBCUDA") or "libcuda.so.1"
    with _lock:
        driver = _drivers.get(name)
        if driver is None:
            driver = _drivers[name] = Driver(name)
    found = [uuid for k, uuid in driver.devices() if k == ordinal]
    return device_of(found[0]) if found else None
