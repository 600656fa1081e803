"""Functions as NumPy's are called: what NumPy would make an array of, for their first argument, which has NumPy's name, and `out=`."""
from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Optional, TypeVar, cast

import numpy as np

from . import _dtypes as dt
from ._array import Array

F = TypeVar("F", bound=Callable[..., Any])
UNSAFE = frozenset("all any cumprod cumsum cumulative_prod cumulative_sum max mean min nanmax nanmin nanprod nansum prod sum trace var".split())  # into `out`
MEANS = ("mean", "nanmean")
SUMS = frozenset(("cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "nansum", "prod", "sum", "trace", *MEANS))  # computed in the dtype that x and `out` have together


def spelled(f: F) -> F:
    """A function of a namespace, of an array. Where it names `out`, that is seen to here. The first one may be named
    where NumPy's may, by NumPy's name: a, m, arr, …"""
    names = list(inspect.signature(f).parameters)
    casting = "unsafe" if f.__name__ in UNSAFE else "same_kind"  # as NumPy's ufuncs reduce
    at = names.index("out") - 2 if "out" in names else None  # behind the namespace and the array
    dtype_at = names.index("dtype") - 2 if f.__name__ in SUMS else None

    @functools.wraps(f)
    def g(self: Any, /, *args: Any, **more: Any) -> Any:
        if not args:
            first = _first(f.__name__.replace("_np_", ""))
            if first not in more:
                raise TypeError(f"{f.__name__}() wants an array" + (f", {first}" if first else ""))
            args = (more.pop(first),)
        x, args = args[0], args[1:]
        if not isinstance(x, Array):
            x = self._taken(x)
        if at is None:
            return f(self, x, *args, **more)
        out = more.pop("out", None)
        if len(args) > at:
            out, args = args[at], (*args[:at], None, *args[at + 1:])
        if dtype_at is not None and isinstance(out, Array) and (dt.is_floating(x.dtype) or (dt.is_floating(out.dtype) and f.__name__ not in MEANS)):
            t = dt.promote(x.dtype, out.dtype)
            if len(args) > dtype_at:
                args = (*args[:dtype_at], t if args[dtype_at] is None else args[dtype_at], *args[dtype_at + 1:])
            elif more.get("dtype") is None:
                more["dtype"] = t
        r = f(self, x, *args, **more)
        return r if out is None else self._into(out, r, casting)

    return cast(F, g)


def _first(name: str) -> Optional[str]:
    """The name of the first argument of NumPy's function; None where it has none."""
    numpys = getattr(np, name, None) or getattr(np.lib.stride_tricks, name, None)
    try:
        p = next(iter(inspect.signature(cast(Any, numpys)).parameters.values()))
    except (TypeError, ValueError):  # there is no such function, or it is not said
        return None
    return p.name if p.kind is p.POSITIONAL_OR_KEYWORD else None
