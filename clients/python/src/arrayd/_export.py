"""An array's memory in this process, without a copy: the daemon's own, by a file descriptor over its Unix socket.

    with x.exported() as m:             # other clients can read meanwhile, none can write
        total = np.asarray(m).sum()     # on the CPU backend
        t = torch.from_dlpack(m)        # on CUDA; CuPy and JAX likewise

`Exported` sends one request for the export, receives the descriptor on the daemon's descriptor socket, and maps it; the
lease lasts as long as that connection. When the daemon replies, its own work on the memory has finished, so no stream
needs to wait for it. At the end, this process's work on the device is waited for, then the memory is unmapped (unless a
view, or a tensor of another library, still holds it), and the daemon is told; after its answer other clients see what was written.
A view of host memory that is used later refers to a copy. After a fork the export belongs to the parent: the child has the
memory, but not the lease, and cannot end the export.
"""
from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import socket
import sys
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

import numpy as np

from . import _cuda
from . import _dlpack as dl
from . import _dtypes as dt
from ._errors import ArraydError, BadReply, Conflict, ConnectionLost, error_of
from ._replies import EXPORT, HANDED_OVER, parsed
from ._requests import Steps

if TYPE_CHECKING:
    from ._array import Array

WAIT_S = 30.0  # for the daemon to hand a descriptor over, or to end an export


OUTLIVED = "views or tensors of its memory are still in use: they keep the memory, which is no longer the array's"
COPIED = "views or tensors of its memory are still in use: they now have a copy, and writes to them do not reach the array"
HELD = ("the export is still referenced: objects made from its __cuda_array_interface__ seem to be in use, and keep the memory, which is no longer "
        "the array's")

_MREMAP_MAYMOVE, _MREMAP_FIXED = 1, 2  # <sys/mman.h> of Linux
_MAP_FAILED = ctypes.c_void_p(-1).value


def _libc() -> ctypes.CDLL:
    """What Python's mmap has not: it can put no memory at a given address."""
    libc = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes, libc.mmap.restype = (address, size, number, number, number, ctypes.c_long), address
    libc.mremap.argtypes, libc.mremap.restype = (address, size, size, number, address), address
    libc.mprotect.argtypes = (address, size, number)
    libc.munmap.argtypes = (address, size)
    return libc


def _ended(s: socket.socket) -> bool:
    """Whether the daemon has closed its side already."""
    wait = s.gettimeout()
    s.setblocking(False)
    try:
        while s.recv(4096):  # that it is shutting down
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        s.settimeout(wait)


class _Loan:
    """What a consumer's tensor holds of the memory."""

    __slots__ = ("memory", "__weakref__")

    def __init__(self, memory: Any):
        self.memory = memory


class HostMemory:
    """A memfd, mapped. NumPy keeps the map, but does not keep it from being closed: all arrays in it are views of one."""

    device = (dl.CPU, 0)
    _root: Any = None

    def __init__(self, fd: int, size: int, read_only: bool):
        protection = mmap.PROT_READ if read_only else mmap.PROT_READ | mmap.PROT_WRITE
        self.map = mmap.mmap(fd, size, mmap.MAP_SHARED, protection)
        self.address = np.frombuffer(self.map, np.uint8, 1).ctypes.data
        self._protection, self._span = protection, (0, 0)

    def root(self, t: dl.Tensor) -> "np.ndarray[Any, Any]":
        """The tensor, whose address is in this memory, as NumPy's."""
        at = t.address - self.address
        low, high = t.span()
        root: "np.ndarray[Any, Any]" = np.ndarray(t.shape, t.dtype, self.map, at, t.strides)
        self._root, self._span = weakref.ref(root), (at + low, at + high)
        return root

    def synchronize(self) -> None:
        pass

    def let_go(self, held: bool) -> str:
        """Unmapped; where somebody still uses it, when the last of them goes, and then: what he has of it meanwhile. `held`: others have
        the export itself, which tells nothing here."""
        if self._root is not None and self._root() is not None:
            try:
                self._put_copy_below()
            except (OSError, AttributeError):  # no memory for it, or another system than Linux
                return OUTLIVED
            return COPIED
        self.map.close()
        return ""

    def _put_copy_below(self) -> None:
        """A copy of the root's pages, of this process alone, in their place: at every moment there is one or the other."""
        low = self._span[0] // mmap.PAGESIZE * mmap.PAGESIZE
        size = -(-self._span[1] // mmap.PAGESIZE) * mmap.PAGESIZE - low
        libc = _libc()
        at = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if at == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), "mmap")
        ctypes.memmove(at + self._span[0] - low, self.address + self._span[0], self._span[1] - self._span[0])
        if (libc.mprotect(at, size, self._protection)
                or libc.mremap(at, size, size, _MREMAP_MAYMOVE | _MREMAP_FIXED, self.address + low) == _MAP_FAILED):
            number = ctypes.get_errno()
            libc.munmap(at, size)
            raise OSError(number, "mremap")


class DeviceMemory:
    """A CUDA allocation, mapped. `lent` are the capsules' loans; who read `__cuda_array_interface__` holds the export itself."""

    def __init__(self, fd: int, size: int, uuid: str):
        device = _cuda.device_of(uuid)
        self.map: Optional[_cuda.Mapping] = _cuda.Mapping(device, fd, size)
        self.address = self.map.address
        self.device = (dl.CUDA, device.ordinal)
        self.on = device
        self.lent: "weakref.WeakSet[_Loan]" = weakref.WeakSet()
        self.held = False

    def synchronize(self) -> None:
        self.on.synchronize()

    def let_go(self, held: bool) -> str:
        """As above. Who has read the interface, and has the export no more, has gone."""
        if self.lent:
            return OUTLIVED
        if self.held:
            return HELD if held else ""
        if self.map is not None:
            self.map.close()
            self.map = None
        return ""


class Exported:
    """An array's memory, for as long as the `with` lasts.

    `mode` is "read" (other clients can read too) or "write" (no other client can use the array). `shape`, `dtype`, `strides` (in bytes)
    and `nbytes` describe the array. A program that writes to it, or with "write" also one that reads it, pauses meanwhile.
    `lease` is the lease's token while the export lasts. This client sends it with its requests, so that they can use the array. In mode "write"
    what they write is in this memory after `client.sync()` (in mode "read" only if no other array of this client shares the values;
    otherwise x gets its own memory), and they see what is written here, on a GPU after this process has waited for its own
    work. A second export of the array is requested without the token.
    On the CPU backend `array`, or `np.asarray(m)`, is a NumPy view, read-only in mode "read". On CUDA the export has `__dlpack__`
    and `__cuda_array_interface__`, for torch.from_dlpack, cupy.from_dlpack, cupy.asarray and jax.dlpack.from_dlpack. CUDA
    cannot protect memory from writes, so there the daemon exports an array only to users who may write to it.

    Errors: PermissionError (`Denied`) if the daemon does not export, or not over this connection; `Conflict` if the array is
    leased, or another client has changed its shape; `DeviceError` if the driver refuses, or this process does not see the daemon's GPU;
    `ConnectionLost` at the end of mode "write" if the daemon ended the export first.
    """

    def __init__(self, x: "Array", mode: str = "read"):
        if mode not in ("read", "write"):
            raise ValueError(f"the mode is 'read' or 'write', not {mode!r}")
        self._x, self.mode = x, mode
        self.shape, self.dtype, self.nbytes = x.shape, x.dtype, x.nbytes
        self.strides: Tuple[int, ...] = ()
        self._memory: Any = None
        self._socket: Optional[socket.socket] = None
        self._root: Optional["np.ndarray[Any, Any]"] = None
        self._address = 0
        self._handle: Any = None
        self._pid = os.getpid()
        self.lease: Optional[str] = None

    def __repr__(self) -> str:
        state = "ended or not begun" if self._memory is None else "on " + self.device
        return f"<arrayd.Exported for {self.mode}, shape={self.shape}, dtype={dt.name_of(self.dtype)}, {state}>"

    # --- the beginning and the end ---

    def _asking(self) -> Steps[Dict[str, Any]]:
        """The request, once the array is on the server (and, for writing, nobody else's)."""
        engine = self._x._client._engine
        if self._memory is not None:
            raise ValueError("it is exported already: x.exported() makes another one")
        if self.mode == "write":
            yield from self._x._owning()
        self._handle = handle = yield from engine.place(self._x._node)
        reply: Dict[str, Any] = (yield engine.ask("POST", f"/v1/arrays/{handle.id}/export", {"mode": self.mode}, leased=False)).json(EXPORT)
        return reply

    def _take(self, reply: Dict[str, Any]) -> None:
        """The descriptor that a reply promises, mapped."""
        self._pid = os.getpid()
        fd, size = self._fetch(reply)
        try:
            t = self._laid_out(reply, size)
            if reply["kind"] == "cuda":
                memory: Any = DeviceMemory(fd, size, reply["uuid"])
            else:
                memory = HostMemory(fd, size, self.mode == "read")
            t = t._replace(address=memory.address + t.address)
            if isinstance(memory, HostMemory):
                self._root = memory.root(t)
        except BaseException:  # nothing here has used it
            with contextlib.suppress(ConnectionLost):
                self._tell()
            raise
        finally:
            os.close(fd)
        self.strides, self._address, self._memory = t.strides, t.address, memory
        self.lease = str(reply["lease"])
        self._x._client._transport.leases[self.lease] = None
        if self.mode == "write":
            self._handle.writer = self._x

    def _laid_out(self, reply: Dict[str, Any], size: int) -> dl.Tensor:
        """Where the elements are, beside the beginning of memory of `size` bytes. Others may have changed the array since it was
        seen here."""
        shape, dtype = tuple(reply["shape"]), str(reply["dtype"])
        if shape != self.shape or dtype != dt.name_of(self.dtype):
            raise Conflict(409, "conflict", f"the array is {dtype} of shape {shape} by now, not {dt.name_of(self.dtype)} of shape {self.shape}: "
                                            "another client has changed it")
        step = self.dtype.itemsize
        t = dl.Tensor(step * int(reply["offset"]), shape, tuple(step * int(s) for s in reply["strides"]), self.dtype, (dl.CPU, 0), False)
        low, high = t.span()
        if len(t.strides) != len(shape) or t.address + low < 0 or t.address + high > size:
            raise BadReply(0, "bad_reply", f"the array is said to be in bytes {t.address + low} to {t.address + high} of memory of {size}")
        return t

    def _fetch(self, reply: Dict[str, Any]) -> Tuple[int, int]:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        fds: List[int] = []
        self._socket = s
        self._x._client._transport.open.add(self)
        try:
            s.settimeout(WAIT_S)
            try:
                s.connect(reply["socket"])
            except OSError:  # the daemon's path is not ours: it lies beside the one that we know
                beside = self._x._client._transport.address.path
                if beside is None or reply["socket"] == beside + ".fd":
                    raise
                s.connect(beside + ".fd")
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has closed, and has said why
                s.sendall(reply["token"].encode() + b"\n")
            line, fds, _, _ = socket.recv_fds(s, 4096, 1, socket.MSG_CMSG_CLOEXEC)
            while line and not line.endswith(b"\n"):
                more = s.recv(4096)
                line += more or b"\n"
            if not line.strip():
                raise ConnectionLost(0, "connection_lost", "the daemon closed the connection before it had handed the memory over")
            said = parsed(line, HANDED_OVER, f"the daemon's socket {reply['socket']}")
            if "status" in said or not fds:
                raise error_of(said.get("status", 0), {}, line)
        except BaseException as e:
            self._hang_up()
            for fd in fds:
                os.close(fd)
            if isinstance(e, OSError) and not isinstance(e, ArraydError):
                raise ConnectionLost(0, "connection_lost", f"the memory was not handed over: {type(e).__name__}: {e}") from e
            raise
        return fds[0], int(said["size"])

    def _hang_up(self) -> None:
        """Without the orderly end: the daemon cannot know that nothing uses the memory any more, and waits for the process' end."""
        s, self._socket = self._socket, None
        if s is not None:
            s.close()

    def forsake(self) -> None:
        """After a fork, in the child: the connection is the parent's, and the daemon is not told of the child's end of it."""
        self._hang_up()
        self.lease = None

    def _tell(self) -> None:
        """The orderly end: back when the daemon has ended the export. ConnectionLost where it does not say so in time: it may go on, and
        others may have to wait."""
        s, self._socket = self._socket, None
        if s is None:
            return
        early = _ended(s)
        try:
            s.shutdown(socket.SHUT_WR)
            while s.recv(4096):
                pass
        except socket.timeout as e:
            raise ConnectionLost(0, "connection_lost", f"the daemon has not said within {s.gettimeout():g} s that the export has ended") from e
        except OSError:  # it has ended the export already
            pass
        finally:
            s.close()
        if early and self.mode == "write":
            raise ConnectionLost(0, "connection_lost", "the daemon closed the export before its end here (it stopped, or the array was taken "
                                                       "back): what was written to the memory may be lost")

    def _end(self, held: bool = False) -> None:
        """Waits for the device, unmaps, and tells the daemon; others may go on when it has answered. `held`: others than the `with` have
        this object."""
        if self._pid != os.getpid():
            self._hang_up()
            return
        memory, self._memory, self._root = self._memory, None, None
        if memory is None:
            return
        try:
            memory.synchronize()
            dl.sweep()
            left = memory.let_go(held)
            self._tell()
        except BaseException:
            self._hang_up()
            raise
        finally:
            self._forget()
        if left:
            warnings.warn(f"the export of an array of shape {self.shape} has ended, but {left}", RuntimeWarning, stacklevel=3)

    def _forget(self) -> None:
        """The lease, and values that came here before others were written."""
        lease, self.lease = self.lease, None
        if lease is not None:
            self._x._client._transport.leases.pop(lease, None)
        self._x._written_no_more(self._handle)

    def __enter__(self) -> "Exported":
        self._take(self._x._client._run(self._asking()))
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        references = sys.getrefcount(self)  # by itself, as in _Counted: a call under way would have another one
        try:
            self._end(references > _references())
        except ConnectionLost:
            if kind is None:  # what went wrong inside says more
                raise

    # --- what others take ---

    def _open(self) -> Any:
        if self._memory is None:
            raise ValueError("the array is exported within `with x.exported() as m:` only")
        return self._memory

    @property
    def device(self) -> str:
        """ "cpu", or "cuda:0" with the number that the device has in this process."""
        kind, k = self._open().device
        return "cpu" if kind == dl.CPU else f"cuda:{k}"

    @property
    def array(self) -> "np.ndarray[Any, Any]":
        """The memory as a NumPy array, on the CPU backend."""
        self._open()
        if self._root is None:
            raise TypeError("the memory is a GPU's: torch.from_dlpack(m), cupy.asarray(m); or x.numpy() for a copy")
        return self._root.view()

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> "np.ndarray[Any, Any]":
        a = self.array
        if dtype is not None and np.dtype(dtype) != a.dtype:
            if copy is False:
                raise ValueError("another dtype needs a copy")
            return a.astype(dtype)
        return a.copy() if copy else a

    def __dlpack_device__(self) -> Tuple[int, int]:
        device: Tuple[int, int] = self._open().device
        return device

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """A capsule of the memory; a copy of it in this process' own memory for `dl_device=(1, 0)` or, on the CPU, `copy=True`.
        No stream needs to wait: the daemon's work on it is done."""
        memory = self._open()
        if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int)):
            raise TypeError(f"stream is an integer or None, not {stream!r}")
        if stream is not None and memory.device[0] == dl.CPU:
            raise BufferError("memory of the CPU has no stream")
        to = memory.device if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        if to not in (memory.device, (dl.CPU, 0)):
            raise BufferError(f"the memory is on {self.device}: dl_device can be {memory.device} or (1, 0)")
        versioned = dl.wants_version(max_version)
        if to != memory.device or copy:
            if to != (dl.CPU, 0):
                raise BufferError("no copy is made on the device: ask for one by the other library")
            if copy is False:
                raise BufferError("from a GPU into this process' memory is a copy")
            a = self._copied()
            return dl.capsule(a.ctypes.data, a.shape, _elements(a.strides, a.dtype), a.dtype, to, a, versioned=versioned, copied=True)
        read_only = self.mode == "read"
        if read_only and not versioned and memory.device[0] == dl.CPU:
            raise BufferError("the memory is read-only, which DLPack can say from version 1.0 on: ask for max_version=(1, 0), take "
                              "np.asarray(m), or export it for writing")
        owner: Any = self._root
        if owner is None:
            owner = _Loan(memory.map)
            memory.lent.add(owner)
        return dl.capsule(self._address, self.shape, _elements(self.strides, self.dtype), self.dtype, to, owner, versioned=versioned,
                          read_only=read_only)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        """Version 3. Who takes it holds this object, and so the mapping, which then lasts as long as this object does."""
        memory = self._open()
        if self._root is not None:
            raise AttributeError("__cuda_array_interface__: the memory is the CPU's")
        if self.dtype == dt.bfloat16:
            raise AttributeError("__cuda_array_interface__ knows no bfloat16; __dlpack__ does")
        memory.held = True
        self._held = memory  # beyond the `with`
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self._address, self.mode == "read"), "version": 3,
                "strides": None if self._contiguous() else self.strides, "stream": None}

    def _contiguous(self) -> bool:
        step = self.dtype.itemsize
        for n, s in zip(reversed(self.shape), reversed(self.strides)):
            if n != 1 and s != step:
                return False
            step *= n
        return True

    def _copied(self) -> "np.ndarray[Any, Any]":
        if self._root is not None:
            return self._root.copy()
        t = dl.Tensor(self._address, self.shape, self.strides, self.dtype, self._memory.device, False)
        return device_values(t, self._memory.on)


class _Counted:
    """Counts the references that the end of a `with` sees."""

    references = 0

    def __enter__(self) -> "_Counted":
        return self

    def __exit__(self, *_: Any) -> None:
        self.references = sys.getrefcount(self)


def _references() -> int:
    """To what only a `with` and the variable behind its `as` have: another number in each version of Python."""
    with _Counted() as counted:
        pass
    return counted.references


def _elements(strides: Tuple[int, ...], dtype: dt.DType) -> Tuple[int, ...]:
    return tuple(s // dtype.itemsize for s in strides)


def device_values(t: dl.Tensor, device: _cuda.Device) -> "np.ndarray[Any, Any]":
    """A device tensor's values, in memory of this process."""
    low, high = t.span()
    return dl.host_view(t, device.read(t.address + low, high - low) if high > low else None)


def dense_order(t: dl.Tensor) -> Optional[Tuple[int, ...]]:
    """The axes from slowest to fastest, where the elements lie in memory one behind the other in that order; else None."""
    order = sorted(range(len(t.shape)), key=lambda k: (-t.strides[k], k))
    step = t.dtype.itemsize
    for k in reversed(order):
        if t.shape[k] != 1:
            if t.strides[k] != step:
                return None
            step *= t.shape[k]
    return tuple(order)
