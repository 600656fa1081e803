"""Numbers as JSON has them, and the names of their types. Needs no NumPy."""
from __future__ import annotations

import math
from typing import Any

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
          "complex64", "complex128")
EXACT = 2**53  # JSON's numbers are exact up to that; what is beyond goes as text


def wire(v: Any) -> Any:
    """Of a Python or NumPy number."""
    if hasattr(v, "dtype"):
        v = v.item()
    if isinstance(v, int) and not -EXACT <= v <= EXACT:
        return str(v)
    if isinstance(v, complex):
        return [wire(v.real), wire(v.imag)]
    if isinstance(v, float) and not math.isfinite(v):
        return "NaN" if v != v else "Infinity" if v > 0 else "-Infinity"
    return v


def unwired(v: Any) -> Any:
    """The number of a reply."""
    if isinstance(v, list):
        return complex(float(v[0]), float(v[1]))
    return float(v) if isinstance(v, str) else v
