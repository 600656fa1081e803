"""NumPy's own functions called with a namespace's arrays: the functions of their names, or NumPy's in this process."""
from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Iterable, Tuple

import numpy as np

from .._array import Array
from .._ufunc import Bound
from ._hosted import ASKED, Hosted
from ._products import Products

MEANT = {"array": "_array_of", "broadcast_arrays": "_np_broadcast_arrays", "delete": "_np_delete", "gradient": "_np_gradient"}  # NumPy's meaning of what a namespace has another one of
SPECIAL = {"erf": "erf", "gamma": "gamma", "gammaln": "lgamma", "expit": "sigmoid"}  # SciPy's
KNOWN = (Array, np.ndarray, np.generic, bool, int, float, complex, list, tuple)
INTO = ("place", "put", "putmask", "put_along_axis", "fill_diagonal", "copyto")  # write to their first argument
SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/", "floor_divide": "//", "remainder": "%", "power": "**",
         "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>"}


class Protocols(Products):
    def _meant(self, name: str) -> Any:
        """The namespace's own function of NumPy's name, with NumPy's meaning; None: it has none."""
        f = getattr(self, MEANT.get(name, name), None)
        return f if callable(f) and not isinstance(f, Hosted) else None

    def _for_ufunc(self, ufunc: Any, method: str, inputs: Tuple[Any, ...], more: Dict[str, Any]) -> Any:
        if not all(isinstance(x, KNOWN) for x in inputs):
            return NotImplemented
        outs = more.pop("out", ())
        if len(outs) == 1:
            sign = SIGNS.get(ufunc.__name__)
            if sign and len(inputs) == 2 and outs[0] is inputs[0] and isinstance(outs[0], np.ndarray):  # nobody wrote `out`
                raise TypeError(f"{ufunc.__name__} in place: h is NumPy's array and x is arrayd's: write h = h {sign} x, which is arrayd's, "
                                f"or h {sign}= np.asarray(x)")
            more["out"] = outs[0]
        elif any(o is not None for o in outs):
            raise TypeError(f"{ufunc.__name__}: `out` of several results")
        if method == "at":
            self._changing(f"{ufunc.__name__}.at", ufunc.at, *inputs, **more)
            return None
        name: str = ufunc.__name__
        f: Any = self._meant(name) if getattr(np, name, None) is ufunc else None
        if f is None and name in SPECIAL and not hasattr(np, name):
            f = getattr(self, SPECIAL[name])
        if method != "__call__":
            f = getattr(f, method, None) if isinstance(f, Bound) else None
        host = Hosted(self, name if method == "__call__" else f"{name}.{method}", getattr(ufunc, method))
        return host(*inputs, **more) if f is None else _called(f, host, inputs, more)

    def _for_function(self, function: Any, types: Iterable[type], args: Tuple[Any, ...], more: Dict[str, Any]) -> Any:
        if not all(issubclass(t, (Array, np.ndarray)) for t in types):
            return NotImplemented
        name, module = function.__name__, function.__module__ or ""
        here = module in ("numpy", "numpy.lib.stride_tricks", "numpy.lib._stride_tricks_impl")
        f: Any
        if module in ("numpy.linalg", "numpy.fft"):
            f = getattr(getattr(self, module[6:]), name, None)
        else:
            f = self._meant(name) if here and (name not in ASKED or name == "copyto") else None
        if f is function:  # NumPy's, which would ask again
            f = None
        if f is None and name in INTO:
            raise TypeError(f"{name} writes to its first argument, which cannot be fetched")
        host = Hosted(self, f"{module[6:]}.{name}".lstrip("."), function)
        return host(*args, **more) if f is None else _called(f, host, args, more)


def _called(f: Callable[..., Any], host: Hosted, args: Tuple[Any, ...], more: Dict[str, Any]) -> Any:
    """By NumPy in this process where the namespace's function has not these arguments."""
    try:
        return f(*args, **more)
    except TypeError:
        if isinstance(f, Hosted) or _takes(f, args, more):
            raise
    return host(*args, **more)


def _takes(f: Callable[..., Any], args: Tuple[Any, ...], more: Dict[str, Any]) -> bool:
    try:
        inspect.signature(f).bind(*args, **more)
    except TypeError:
        return False
    return True
