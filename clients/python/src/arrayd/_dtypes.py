"""Data types and how they promote: the server's rules, so that the dtype of a result is known before it is asked for.

A dtype is NumPy's. bfloat16 is ml_dtypes' where that package is installed, else a stand-in whose elements are raw bytes.
"""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Dict, List, Tuple, Union

import numpy as np

from ._errors import BadReply
from ._numbers import DTYPES

if TYPE_CHECKING:
    from ._requests import Response

DType = np.dtype[Any]
Scalar = Union[bool, int, float, complex]

try:
    import ml_dtypes  # type: ignore[import-not-found,import-untyped,unused-ignore]

    bfloat16: DType = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    bfloat16 = np.dtype([("bfloat16", "<u2")])

BY_NAME: Dict[str, DType] = {name: bfloat16 if name == "bfloat16" else np.dtype(name) for name in DTYPES}
NAME_OF: Dict[DType, str] = {t: name for name, t in BY_NAME.items()}

BOOL, INT64, UINT64 = BY_NAME["bool"], BY_NAME["int64"], BY_NAME["uint64"]
FLOAT32, FLOAT64 = BY_NAME["float32"], BY_NAME["float64"]
COMPLEX64, COMPLEX128 = BY_NAME["complex64"], BY_NAME["complex128"]


def dtype_of(x: Any) -> DType:
    """A dtype, its name, or a type that stands for one (`bool`, `float`)."""
    if isinstance(x, str) and x in BY_NAME:
        return BY_NAME[x]
    t = x if isinstance(x, np.dtype) else np.dtype(x)
    if t.byteorder == ">":
        t = t.newbyteorder("<")
    if t not in NAME_OF:
        raise TypeError(f"arrayd has no dtype {x}: its arrays are of numbers; text, dates, objects and records are NumPy's own, by `import numpy`")
    return BY_NAME[NAME_OF[t]]


def name_of(t: DType) -> str:
    return NAME_OF[t]


def kind(t: DType) -> str:
    """b, i, u, f or c."""
    k = t.kind
    return "f" if k == "V" else k


def is_integer(t: DType) -> bool:
    return kind(t) in "iu"


def is_real_floating(t: DType) -> bool:
    return kind(t) == "f"


def is_complex(t: DType) -> bool:
    return kind(t) == "c"


def goes_into(a: DType, b: DType) -> bool:
    """As results of NumPy's operators in place do: its casting "same_kind"."""
    order = "buifc"
    return order.index(kind(a)) <= order.index(kind(b))


def check_cast(what: str, a: DType, b: DType, casting: str) -> None:
    """TypeError where NumPy's rule of that name does not let a become b."""
    if casting not in ("no", "equiv", "safe", "same_kind", "unsafe"):
        raise ValueError(f"casting is one of 'no', 'equiv', 'safe', 'same_kind' and 'unsafe', not {casting!r}")
    if not (a == b or casting == "unsafe" or (casting == "same_kind" and goes_into(a, b)) or (casting == "safe" and can_cast(a, b))):
        raise TypeError(f"{what} {name_of(a)} does not go into {name_of(b)}" + ("" if casting == "same_kind" else f" by the rule {casting!r}"))


def is_floating(t: DType) -> bool:
    return kind(t) in "fc"


def read_only(value: Any) -> Any:
    """Values that NumPy takes for the array's own: what was written there would be lost."""
    value.flags.writeable = False
    return value


def plain(value: Any) -> Any:
    """An array that NumPy can compute with and show: bfloat16 as float32."""
    if value.dtype != bfloat16:
        return value
    bits = value.reshape(-1).view(np.uint16).astype(np.uint32)
    return (bits << np.uint32(16)).view(np.float32).reshape(value.shape)


def _narrowed(value: Any) -> Any:
    """An array of real numbers as the stand-in of bfloat16, to the nearest, halves to even. By way of float32 rounded to odd: so
    what is rounded twice is what would be rounded once."""
    x = np.asarray(value, np.float64).reshape(-1)
    with np.errstate(all="ignore"):
        f = x.astype(np.float32)
        bits = f.view(np.uint32)
        bits = np.where(np.abs(f) > np.abs(x), bits - np.uint32(1), bits) | (f != x).astype(np.uint32)
    bits = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    bits = np.where(np.isnan(x), np.where(np.signbit(x), 0xFFC0, 0x7FC0), bits)
    return bits.astype(np.uint16).view(bfloat16).reshape(np.shape(value))


def taken(value: Any) -> "np.ndarray[Any, Any]":
    """An array of NumPy's, of what somebody gives as values: of a subclass only the elements. ValueError for masked ones: what is under a mask
    (often 1e20) is no data, and arrays on the server have no mask."""
    _check_masks(value)
    return np.asarray(value)


def _check_masks(value: Any) -> None:
    if isinstance(value, (list, tuple)):
        for v in value:
            if isinstance(v, (list, tuple, np.ndarray)):
                _check_masks(v)
    elif isinstance(value, np.ndarray) and type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        masked = int(np.count_nonzero(np.ma.getmaskarray(value)))
        fill = {"f": "m.filled(numpy.nan)", "c": "m.filled(numpy.nan)", "b": "m.filled(False)"}.get(
            value.dtype.kind, "m.astype(float).filled(numpy.nan), or m.filled(0)")
        raise ValueError(f"{masked} of {value.size} elements {'is' if masked == 1 else 'are'} masked, and arrays on the server have no mask: {fill} is an array without one")


def cast(value: Any, t: DType) -> "np.ndarray[Any, Any]":
    """NumPy's cast, also to and from bfloat16's stand-in; a new array only where it must be."""
    v = np.asarray(value)
    if v.dtype == t:
        return v
    if bfloat16.names is not None:
        v = plain(v)
        if t == bfloat16:
            narrowed: "np.ndarray[Any, Any]" = _narrowed(v)
            return narrowed
    return v.astype(t)


def promote(a: DType, b: DType) -> DType:
    """NumPy 2's table; bfloat16 promotes as float16 does, and the two together give float32."""
    if a is b or a == b:
        return a
    brains = (a == bfloat16) + (b == bfloat16)
    if not brains:
        return np.promote_types(a, b)
    half = BY_NAME["float16"]
    other = b if a == bfloat16 else a
    if other == half:
        return FLOAT32
    t = np.promote_types(half, other)
    return bfloat16 if t == half else t


def scalar_with(value: Scalar, t: DType) -> DType:
    """The dtype of a Python scalar with an array of dtype t: t within the kind, else the default of the scalar's."""
    if isinstance(value, (bool, np.bool_)):
        return t
    if isinstance(value, (int, np.integer)):
        return INT64 if t == BOOL else t
    if isinstance(value, (float, np.floating)):
        return t if is_floating(t) else FLOAT64
    return t if is_complex(t) else COMPLEX64 if is_real_floating(t) and t != FLOAT64 else COMPLEX128


def default_of(value: Scalar) -> DType:
    if isinstance(value, (bool, np.bool_)):
        return BOOL
    if isinstance(value, (int, np.integer)):
        return INT64 if value < 2**63 else UINT64
    return FLOAT64 if isinstance(value, (float, np.floating)) else COMPLEX128


def real_of(t: DType) -> DType:
    return FLOAT32 if t == COMPLEX64 else FLOAT64 if t == COMPLEX128 else t


def floating(t: DType) -> DType:
    """What sqrt and its like give."""
    return t if is_floating(t) else FLOAT64


def summed(t: DType) -> DType:
    """What sum and prod give."""
    return INT64 if kind(t) in "bi" else UINT64 if kind(t) == "u" else t


KINDS: Dict[str, str] = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu",
                         "real floating": "f", "complex floating": "c", "numeric": "iufc"}


def isdtype(dtype: Any, kind_: Union[str, Any, Tuple[Any, ...]]) -> bool:
    t = dtype_of(dtype)
    if isinstance(kind_, tuple):
        return any(isdtype(t, k) for k in kind_)
    if isinstance(kind_, str):
        if kind_ not in KINDS:
            raise ValueError(f"no kind of dtypes is called {kind_!r}: there are {', '.join(KINDS)}")
        return kind(t) in KINDS[kind_]
    return t == dtype_of(kind_)


def can_cast(from_: DType, to: DType) -> bool:
    try:
        return promote(from_, to) == to
    except TypeError:
        return False


def result_type(arrays: List[DType], scalars: List[Scalar]) -> DType:
    if not arrays:
        if not scalars:
            raise ValueError("result_type of nothing")
        arrays, scalars = [default_of(scalars[0])], scalars[1:]
    if bfloat16 in arrays:
        t = arrays[0]
        for other in arrays[1:]:
            t = promote(t, other)
    else:  # of several it is not that of one after the other: int16, uint16 and float32 give float32
        t = BY_NAME[NAME_OF[np.result_type(*arrays)]]
    for s in scalars:
        t = scalar_with(s, t)
    return t


def bytes_of(value: np.ndarray[Any, Any]) -> memoryview:
    """The memory of an array that is contiguous and not empty."""
    return memoryview(value.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def from_bytes(r: Response, shape: Tuple[int, ...], dtype: DType) -> "np.ndarray[Any, Any]":
    if len(r.body) != math.prod(shape) * dtype.itemsize:
        raise BadReply(r.status, "bad_reply", f"{r.request.method} {r.request.path}: the reply has {len(r.body)} bytes, not {name_of(dtype)} of shape {shape}")
    return np.frombuffer(r.body, dtype).reshape(shape)


def described(metadata: Dict[str, Any]) -> Any:
    """Shape and dtype of metadata (of the form LAID)."""
    return tuple(metadata["shape"]), dtype_of(metadata["dtype"])
