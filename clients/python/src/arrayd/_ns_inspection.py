"""dtypes, constants and what the namespace can do."""
from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from . import _dtypes as dt
from ._array import Array
from ._base import Base

VERSION = "2024.12"


class FInfo(NamedTuple):
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


class IInfo(NamedTuple):
    bits: int
    max: int
    min: int
    dtype: Any


class Inspection(Base):
    bool, int8, int16, int32, int64 = (dt.BY_NAME[n] for n in ("bool", "int8", "int16", "int32", "int64"))
    uint8, uint16, uint32, uint64 = (dt.BY_NAME[n] for n in ("uint8", "uint16", "uint32", "uint64"))
    float16, bfloat16, float32, float64 = (dt.BY_NAME[n] for n in ("float16", "bfloat16", "float32", "float64"))
    complex64, complex128 = dt.COMPLEX64, dt.COMPLEX128
    pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
    __array_api_version__ = VERSION

    def _check_version(self, version: Optional[str]) -> None:
        if version is not None and version not in ("2021.12", "2022.12", "2023.12", VERSION):
            raise ValueError(f"the namespace follows the standard {VERSION}, not {version}")

    def result_type(self, *arrays_and_dtypes: Any) -> dt.DType:
        """The dtype that arrays, dtypes and Python numbers have together."""
        arrays = [a.dtype if isinstance(a, Array) else dt.dtype_of(a) for a in arrays_and_dtypes if not _is_number(a)]
        return dt.result_type(arrays, [a for a in arrays_and_dtypes if _is_number(a)])

    def can_cast(self, from_: Union[dt.DType, Array], to: dt.DType, /) -> Any:
        """Whether promotion leads from one dtype to the other."""
        return dt.can_cast(from_.dtype if isinstance(from_, Array) else dt.dtype_of(from_), dt.dtype_of(to))

    def isdtype(self, dtype: Any, kind: Any) -> Any:
        """Whether a dtype is of a kind: 'bool', 'signed integer', 'integral', 'real floating', 'numeric', …"""
        return dt.isdtype(dtype, kind)

    def finfo(self, type: Union[dt.DType, Array], /) -> FInfo:
        """Limits of a floating dtype."""
        t = dt.real_of(type.dtype if isinstance(type, Array) else dt.dtype_of(type))
        if t == dt.bfloat16:
            return FInfo(16, 2.0**-7, float.fromhex("0x1.fep127"), -float.fromhex("0x1.fep127"), 2.0**-126, t)
        f = np.finfo(t)
        return FInfo(f.bits, float(f.eps), float(f.max), float(f.min), float(f.smallest_normal), t)

    def iinfo(self, type: Union[dt.DType, Array], /) -> IInfo:
        """Limits of an integer dtype."""
        t = type.dtype if isinstance(type, Array) else dt.dtype_of(type)
        i = np.iinfo(t)
        return IInfo(i.bits, int(i.max), int(i.min), t)

    def __array_namespace_info__(self) -> "Info":
        return Info(self.device)


class Info:
    """What the namespace has."""

    def __init__(self, device: str):
        self._device = device

    def capabilities(self) -> Dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self) -> str:
        return self._device

    def devices(self) -> List[Any]:
        return [self._device]

    def default_dtypes(self, *, device: Any = None) -> Dict[str, Any]:
        self._check(device)
        return {"real floating": dt.FLOAT64, "complex floating": dt.COMPLEX128, "integral": dt.INT64, "indexing": dt.INT64}

    def dtypes(self, *, device: Any = None, kind: Union[None, str, Tuple[str, ...]] = None) -> Dict[str, Any]:
        self._check(device)
        standard = {n: t for n, t in dt.BY_NAME.items() if n not in ("float16", "bfloat16")}
        if kind is None:
            return standard
        return {n: t for n, t in standard.items() if dt.isdtype(t, kind)}

    def _check(self, device: Any) -> None:
        if device is not None and device != self._device:
            raise ValueError(f"there is no device {device!r}")


def _is_number(x: Any) -> Any:
    return isinstance(x, (int, float, complex)) and not isinstance(x, np.generic)
