"""Functions as NumPy's are called: what NumPy would make an array of, for their first argument, and `out=`."""
from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, TypeVar, cast

from ._array import Array

F = TypeVar("F", bound=Callable[..., Any])
UNSAFE = frozenset("all any cumprod cumsum cumulative_prod cumulative_sum max mean min nanmax nanmin nanprod nansum prod sum trace var".split())  # into `out`


def spelled(f: F) -> F:
    """A function of a namespace, of an array. Where it names `out`, that is seen to here. NumPy calls first arguments a, m, arr, …: a
    keyword that is no other argument's stands for the first."""
    names = list(inspect.signature(f).parameters)
    casting = "unsafe" if f.__name__ in UNSAFE else "same_kind"  # as NumPy's ufuncs reduce
    at = names.index("out") - 2 if "out" in names else None  # behind the namespace and the array

    @functools.wraps(f)
    def g(self: Any, /, *args: Any, **more: Any) -> Any:
        if not args:
            args = tuple(more.pop(name) for name in [*more] if name not in names[2:])
            if len(args) != 1:
                raise TypeError(f"{f.__name__}() wants an array")
        x, args = args[0], args[1:]
        if not isinstance(x, Array):
            x = self._taken(x)
        if at is None:
            return f(self, x, *args, **more)
        out = more.pop("out", None)
        if len(args) > at:
            out, args = args[at], (*args[:at], None, *args[at + 1:])
        r = f(self, x, *args, **more)
        return r if out is None else self._into(out, r, casting)

    return cast(F, g)
