"""DLPack (https://dmlc.github.io/dlpack): capsules made of memory we know, and others' capsules read.

Written with ctypes, as NumPy's own gives no bfloat16, no device and (before 2.1) nothing that is read-only. A capsule of ours is a
`DLManagedTensorVersioned` where the consumer says that it knows one (`max_version` of 1.0 or more), else a `DLManagedTensor`. The
structure, and whatever `owner` it was made with, live until the consumer calls its deleter, which it may do on any thread, with or
without the GIL, and as late as when the interpreter ends.

A capsule that nobody takes has no destructor: a consumer that refuses a tensor drops the capsule while its exception is on the way,
which such a function would have to put aside, and ctypes, which calls none with an exception pending, cannot. `sweep` finds it instead.
"""
from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from ._dtypes import BY_NAME, DType, bfloat16, kind

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
VERSION = (1, 0)
READ_ONLY, COPIED = 1, 2

_CODES = {"i": 0, "u": 1, "f": 2, "bf": 4, "c": 5, "b": 6}
_NAMES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex"}


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _DataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


_NAME, _NAME_VERSIONED = b"dltensor", b"dltensor_versioned"
_USED, _USED_VERSIONED = b"used_dltensor", b"used_dltensor_versioned"

_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # of a tensor: takes the GIL

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))

_live: Dict[int, List[Any]] = {}  # by address: a structure that a consumer may still use, its extents, its owner, and the capsule


# It is called until the very end of the interpreter, when names of modules are gone: what it uses are its defaults.
def _delete(address: int, live: Dict[int, List[Any]] = _live) -> None:
    live.pop(address, None)


_delete_c = _Deleter(_delete)
_delete_address = ctypes.cast(_delete_c, ctypes.c_void_p).value
for _kept in (_delete_c, _NAME, _NAME_VERSIONED, _USED, _USED_VERSIONED):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))  # capsules point to them, and may outlive this module


def _references(entry: List[Any]) -> int:
    return sys.getrefcount(entry[3])


_ALONE = _references([None, None, None, object()])  # of what nobody but its entry has: another number in some versions of Python


def sweep() -> None:
    """Lets go of the capsules that nobody has taken and nobody has any more, and of what they were made of."""
    for where, entry in list(_live.items()):
        if entry[3] is None:
            continue
        if _is(id(entry[3]), _USED) or _is(id(entry[3]), _USED_VERSIONED):
            entry[3] = None  # the deleter comes, or has come
        elif _references(entry) == _ALONE:
            _live.pop(where, None)


def dtype_to(t: DType) -> Tuple[int, int]:
    """Code and bits."""
    return _CODES["bf" if t == bfloat16 else kind(t)], t.itemsize * 8


def dtype_from(code: int, bits: int, lanes: int) -> DType:
    """BufferError for what arrayd has no dtype for."""
    name = "bool" if (code, bits) == (6, 8) else f"{_NAMES.get(code, '?')}{bits}"
    if lanes != 1 or name not in BY_NAME:
        raise BufferError(f"arrayd has no dtype for DLPack's code {code} with {bits} bits and {lanes} lanes")
    return BY_NAME[name]


def wants_version(max_version: Optional[Tuple[int, int]]) -> bool:
    return max_version is not None and max_version[0] >= 1


def capsule(address: int, shape: Tuple[int, ...], strides: Tuple[int, ...], dtype: DType, device: Tuple[int, int], owner: Any, *,
            versioned: bool, read_only: bool = False, copied: bool = False) -> Any:
    """A capsule of memory at `address`, of element 0…0; strides are in elements. `owner` lives as long as a consumer does."""
    rank = len(shape)
    extents = (ctypes.c_int64 * (2 * rank or 1))(*shape, *strides)
    at = ctypes.addressof(extents)
    tensor = _Tensor(address, _Device(*device), rank, _DataType(*dtype_to(dtype), 1),
                     ctypes.cast(at, ctypes.POINTER(ctypes.c_int64)), ctypes.cast(at + 8 * rank, ctypes.POINTER(ctypes.c_int64)), 0)
    managed: Any
    if versioned:
        flags = (READ_ONLY if read_only else 0) | (COPIED if copied else 0)
        managed = _Versioned(*VERSION, None, _delete_address, flags, tensor)
    else:
        managed = _Managed(tensor, None, _delete_address)
    where = ctypes.addressof(managed)
    made = _new(where, _NAME_VERSIONED if versioned else _NAME, None)
    sweep()
    _live[where] = [managed, extents, owner, made]
    return made


class Tensor(NamedTuple):
    """What a capsule says. Strides in bytes; `address` is of element 0…0."""
    address: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    dtype: DType
    device: Tuple[int, int]
    read_only: bool

    def span(self) -> Tuple[int, int]:
        """The first byte and the one behind the last, beside element 0…0's."""
        if 0 in self.shape:
            return 0, 0
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides)]
        return sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps) + self.dtype.itemsize


class Taken:
    """The tensor of a capsule, ours until `close` (or until nobody refers to this)."""

    def __init__(self, capsule_: Any):
        at = id(capsule_)
        versioned = bool(_is(at, _NAME_VERSIONED))
        if not versioned and not _is(at, _NAME):
            raise BufferError("this is not a DLPack capsule, or it was consumed before")
        where = _pointer(at, _NAME_VERSIONED if versioned else _NAME)
        managed: Any = (_Versioned if versioned else _Managed).from_address(where)
        if versioned and managed.major > VERSION[0]:
            raise BufferError(f"a DLPack capsule of version {managed.major}.{managed.minor} is not understood")
        t = managed.tensor
        dtype = dtype_from(t.dtype.code, t.dtype.bits, t.dtype.lanes)
        shape = tuple(t.shape[i] for i in range(t.ndim))
        strides: List[int] = []
        if t.strides:
            strides = [t.strides[i] * dtype.itemsize for i in range(t.ndim)]
        else:
            step = dtype.itemsize
            for n in reversed(shape):
                strides.insert(0, step)
                step *= n
        self.tensor = Tensor((t.data or 0) + t.byte_offset, shape, tuple(strides), dtype, (t.device.type, t.device.id),
                             versioned and bool(managed.flags & READ_ONLY))
        _rename(at, _USED_VERSIONED if versioned else _USED)
        self._finalizer = weakref.finalize(self, _give_back, where, managed.deleter)

    def close(self) -> None:
        """Gives it back to its producer."""
        self._finalizer()

    def view(self) -> "np.ndarray[Any, Any]":
        """Of memory that this process can read: valid until close."""
        return host_view(self.tensor)


def _give_back(where: int, deleter: Optional[int]) -> None:
    if deleter:
        _Deleter(deleter)(where)


def host_view(t: Tensor, memory: Any = None) -> "np.ndarray[Any, Any]":
    """The array over the tensor's own memory, or over a copy of its span."""
    low, high = t.span()
    if high == low:
        return np.empty(t.shape, t.dtype)
    if memory is None:
        memory = (ctypes.c_ubyte * (high - low)).from_address(t.address + low)
    view: "np.ndarray[Any, Any]" = np.ndarray(t.shape, t.dtype, memory, -low, t.strides)
    return view


def take(x: Any, stream: Optional[int] = None) -> Taken:
    """The tensor of an object that has `__dlpack__`, after all work on it so far as `stream` sees it."""
    more = {} if stream is None else {"stream": stream}
    try:
        return Taken(x.__dlpack__(max_version=VERSION, **more))
    except TypeError:  # from before the standard's 2023.12
        return Taken(x.__dlpack__(**more))
