"""Arrays of other libraries', by DLPack."""
from __future__ import annotations

from typing import Any, Callable, Optional, Tuple, TypeVar

import numpy as np

from . import _cuda
from . import _dlpack as dl
from . import _dtypes as dt
from ._array import Array
from ._endpoint import Moves
from ._errors import Conflict, Denied, DeviceError
from ._export import Exported, dense_order, device_values
from ._graph import stored
from ._ns_manipulation import Manipulation
from ._requests import Steps

WORTH = 1 << 20  # bytes: less goes through this process' memory sooner than an export begins and ends

T = TypeVar("T")


class Exchange(Manipulation):
    """What waits is written as moves (see `_endpoint.py`), with functions of each client's own."""

    _lends = True  # the daemon's memory may be had: until it said no
    _waits = True  # `from_dlpack` itself

    def _made(self, moves: Moves[T]) -> T:
        """What the moves come to, where they may be waited for."""
        raise NotImplementedError

    def _carry(self, steps: Steps[T]) -> Any:
        """A move: what the steps come to."""
        raise NotImplementedError

    def _moved(self, moves: Moves[T]) -> Any:
        """What the moves come to, waited for, or what is awaited for it."""
        raise NotImplementedError

    def _aside(self, function: Callable[..., Any], *args: Any) -> Any:
        """A move: calls what may take a while; what that gives."""
        raise NotImplementedError

    def _borrowing(self, x: Array) -> Tuple[Any, Any]:
        """Moves that begin and end an export for writing."""
        raise NotImplementedError

    def from_dlpack(self, x: object, /, *, device: Any = None, copy: Optional[bool] = None) -> Array:
        """An array of another library's: of memory that this process can read, the values, uploaded when the server first needs
        them; of a GPU (PyTorch, CuPy, JAX), at once and on the device alone, where the daemon exports its memory (`--allow-export`,
        over its Unix socket), has it on that GPU, and the elements lie without gaps; else through this process' memory. Work that
        its library has queued on it is waited for."""
        if isinstance(x, Array):
            return self.asarray(x, device=device, copy=copy)
        self._check_device(device)
        if copy is False:
            raise ValueError("values of this process are copied to the server")
        if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
            raise TypeError(f"{type(x).__name__} has no __dlpack__")
        if isinstance(x, np.ndarray):  # NumPy's own gives no read-only ones before 2.1
            return self._from_host(dt.taken(x).copy())
        return self._made(self._taking(x, self._waits))

    def _taking(self, x: Any, waits: bool) -> Moves[Array]:
        """The array of what has `__dlpack__`; without a move where it does not wait."""
        kind, ordinal = x.__dlpack_device__()
        kind = int(kind)  # some have an enumeration
        if kind in (dl.CPU, dl.CUDA_HOST):
            taken = dl.take(x)
            try:
                return self._from_host(np.array(taken.view()), taken.tensor.dtype)
            finally:
                taken.close()
        if kind not in (dl.CUDA, dl.CUDA_MANAGED):
            raise BufferError(f"DLPack's device type {kind} is neither the CPU's memory nor CUDA's")
        on = _cuda.ordinal_device(int(ordinal))
        if on is None:
            raise BufferError(f"this process sees no GPU {ordinal}")
        taken = dl.take(x, _cuda.LEGACY_STREAM)  # the copies are behind the producer's work in that stream
        try:
            there = (yield from self._on_device(taken.tensor, on)) if waits else None
            return there if there is not None else self._from_host(device_values(taken.tensor, on), taken.tensor.dtype)
        finally:
            taken.close()

    def _on_device(self, t: dl.Tensor, on: _cuda.Device) -> Moves[Optional[Array]]:
        """Copied from device to device, or None where that cannot be."""
        order = dense_order(t)
        if order is None or t.dtype.itemsize * int(np.prod(t.shape, dtype=np.int64)) < WORTH:
            return None
        if not self._lends or self.device == "cpu":
            return None
        extents = tuple(t.shape[k] for k in order)
        made = yield self._carry, self._engine.make({"shape": list(extents), "dtype": dt.name_of(t.dtype)})
        laid = self._wrap(stored(made, extents, t.dtype))
        begin, end = self._borrowing(laid)
        try:
            m: Exported = yield (begin,)
            try:
                if m._memory.on is not on or not m._contiguous():
                    return None
                yield self._aside, on.copy, m._address, t.address, m.nbytes
            finally:
                yield end, None, None, None
        except (Denied, DeviceError, Conflict) as e:
            self._lends = not isinstance(e, Denied) and e.code != "no_device"
            return None
        back = sorted(range(len(order)), key=lambda k: order[k])
        return laid if back == list(range(len(order))) else self.permute_dims(laid, tuple(back))
