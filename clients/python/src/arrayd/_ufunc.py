"""Functions of elements as objects, as NumPy's are: they are called, and have `reduce`, `accumulate`, `outer` and `at`."""
from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable, Optional, Union, overload

import numpy as np

from . import _dtypes as dt
from ._array import Array

if TYPE_CHECKING:
    from ._base import Base

REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any"}
SCANS = {"add": "cumsum", "multiply": "cumprod"}
NUMPYS = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atan2": "arctan2",
          "atanh": "arctanh", "pow": "power", "bitwise_invert": "invert", "bitwise_left_shift": "left_shift",
          "bitwise_right_shift": "right_shift"}  # what NumPy before 2 calls them
PLAIN = (bool, int, float, complex, np.generic)


class Ufunc:
    """A function of elements in a class of namespaces. Of a client it is one bound to that."""

    def __init__(self, name: str, core: Callable[..., Array], nin: int, text: str):
        self.name, self.core, self.nin, self.__doc__ = name, core, nin, text
        numpys = getattr(np, name, None) or getattr(np, NUMPYS.get(name, name), None)
        self.numpy: Optional["np.ufunc"] = numpys if isinstance(numpys, np.ufunc) else None
        one = inspect.Parameter.POSITIONAL_ONLY
        operands = [inspect.Parameter(n, one) for n in (["x"] if nin == 1 else ["x1", "x2"])]
        named = [p for p in inspect.signature(Bound.__call__).parameters.values() if p.name in ("out", "where", "dtype")]
        self.signature = inspect.Signature(operands + named)

    @overload
    def __get__(self, client: None, owner: Any = None) -> "Ufunc": ...
    @overload
    def __get__(self, client: "Base", owner: Any = None) -> "Bound": ...

    def __get__(self, client: Optional["Base"], owner: Any = None) -> Union["Ufunc", "Bound"]:
        return self if client is None else Bound(self, client)


class Bound:
    """A function of elements: of arrays, an expression; of numbers alone, what NumPy gives."""

    __slots__ = ("_of", "_client")
    nout = 1

    def __init__(self, of: Ufunc, client: "Base"):
        self._of, self._client = of, client

    def __call__(self, *args: Any, out: Any = None, where: Any = True, dtype: Any = None, casting: str = "same_kind", order: str = "K",
                 subok: bool = True) -> Any:
        of, c = self._of, self._client
        if len(args) == of.nin and out is None and where is True and dtype is None and (isinstance(args[0], Array) or isinstance(args[-1], Array)):
            return of.core(c, *args)
        if len(args) == of.nin + 1 and out is None:
            args, out = args[:-1], args[-1]
        if not any(isinstance(a, Array) for a in args):
            if of.numpy is not None and out is None and where is True and dtype is None and all(isinstance(a, PLAIN) for a in args):
                return of.numpy(*args)
            args = tuple(c._taken(a) for a in args)
        if dtype is not None:
            t = dt.dtype_of(dtype)
            for a in args:
                dt.check_cast(f"{of.name}:", dt.scalar_with(a, t) if isinstance(a, (bool, int, float, complex)) else c._taken(a).dtype, t, casting)
            args = tuple(c._taken(a).astype(t) if not isinstance(a, PLAIN) else a for a in args)
        r = of.core(c, *args)
        if dtype is not None and dt.is_integer(t) and not dt.is_integer(r.dtype) and r.dtype != dt.BOOL:
            raise TypeError(f"{of.name}: not defined for results of {dt.name_of(t)}")
        if where is not True:
            base: Any = 0 if out is None else out[0] if isinstance(out, tuple) else out
            if isinstance(base, Array):
                dt.check_cast("out: a result of", r.dtype, base.dtype, casting)
                r = c._wrap(c._cast(r._node, base.dtype))
            r = c.where(c._taken(where), r, base)  # type: ignore[attr-defined]
        return r if out is None else c._into(out, r, casting)

    @property
    def __name__(self) -> str:
        return self._of.name

    @property
    def __doc__(self) -> Optional[str]:  # type: ignore[override]
        return self._of.__doc__

    @property
    def __signature__(self) -> inspect.Signature:
        return self._of.signature

    @property
    def nin(self) -> int:
        return self._of.nin

    def __repr__(self) -> str:
        return f"<arrayd function {self._of.name!r}>"

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None,
               where: Any = None) -> Any:
        """The elements along an axis, taken together by the function."""
        c, name = self._client, REDUCTIONS.get(self._of.name)
        more = {k: v for k, v in (("dtype", dtype), ("initial", initial), ("where", where)) if v is not None}
        if name is None:
            return self._by_numpy("reduce", array, axis=axis, keepdims=keepdims, out=out, **more)
        return getattr(c, name)(c._taken(array), axis=axis, out=out, keepdims=keepdims, **more)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """The same up to each element."""
        c, name = self._client, SCANS.get(self._of.name)
        if name is None:
            return self._by_numpy("accumulate", array, axis=axis, out=out, **({} if dtype is None else {"dtype": dtype}))
        return getattr(c, name)(c._taken(array), axis=axis, dtype=dtype, out=out)

    def reduceat(self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """The elements from each index to the next, taken together."""
        return self._by_numpy("reduceat", array, indices, axis=axis, out=out, **({} if dtype is None else {"dtype": dtype}))

    def outer(self, a: Any, b: Any, **more: Any) -> Any:
        """The function of each element of a with each of b."""
        a, b = self._client._taken(a), self._client._taken(b)
        return self(a.reshape(a.shape + (1,) * b.ndim), b, **more)

    def at(self, a: Array, indices: Any, *b: Any) -> None:
        """a[indices] = f(a[indices], b), of an index that is there twice twice."""
        self._client._changing(f"{self._of.name}.at", self._numpys().at, a, indices, *b)

    def _numpys(self) -> Any:
        if self._of.numpy is None:
            raise TypeError(f"{self._of.name} is no function of NumPy's")
        return self._of.numpy

    def _by_numpy(self, method: str, *args: Any, **more: Any) -> Any:
        return self._client._hosted(f"{self._of.name}.{method}", getattr(self._numpys(), method))(*args, **more)
