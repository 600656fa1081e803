"""Operations of the daemon's that neither the standard nor NumPy has, or has with another meaning."""
from __future__ import annotations

from typing import Any, Optional, Union

import numpy as np

from . import _dtypes as dt
from ._array import Array
from ._base import Base
from ._ns_creation import Number
from ._ns_manipulation import outside

ONE = {"b": True, "i": 1, "u": 1, "f": 1.0}


class Own(Base):
    def correlate(self, a: Any, v: Any, mode: str = "valid", *, boundary: Optional[str] = None, value: Number = 0) -> Any:
        """numpy.correlate; and with a `boundary`, which says as in `shift` what is outside, the stencil with the weights v, numbers nested
        as deep as a has axes: the sum of v[j]*a[i + j - n//2], where n are the extents of v."""
        if boundary is None:
            return self._hosted("correlate", np.correlate)(a, v, mode)
        x, w = self._taken(a), dt.taken(v)
        if w.ndim != x.ndim or not w.size:
            raise ValueError(f"correlate: weights are nested as deep as x has axes, {x.ndim}, not of shape {w.shape}")
        if w.dtype.kind not in ONE:
            raise TypeError(f"correlate: weights are real numbers, not {w.dtype}")
        t = dt.scalar_with(ONE[w.dtype.kind], x.dtype)
        if w.dtype.kind in "iu":
            for extreme in (w.min(), w.max()):
                self._number(int(extreme), t)
        return self._array("correlate", (x._node,), x.shape, t, weights=w.tolist(), **outside(boundary, value))

    def addcmul(self, t: Union[Array, Number], v: Union[Array, Number], x: Union[Array, Number], y: Union[Array, Number], /) -> Array:
        """t + v*x*y."""
        return self._combined("addcmul", t, v, x, y)

    def addcdiv(self, t: Union[Array, Number], v: Union[Array, Number], x: Union[Array, Number], y: Union[Array, Number], /) -> Array:
        """t + v*x/y."""
        return self._combined("addcdiv", t, v, x, y)

    def _combined(self, name: str, *given: Union[Array, Number]) -> Array:
        nodes = self._operands(name, *given)
        together = dt.result_type([n.dtype for n in nodes], [])
        return self._array(name, nodes, self._broadcast(name, *nodes), together if name == "addcmul" else dt.floating(together))
