"""NumPy's interface over a daemon: `import arrayd.numpy as np`, and a NumPy program runs as it is.

Functions are those of the client of their arrays, else of the one that `arrayd.connect()` gives, which is made at the first use of
one that needs it. dtypes, constants and the like are NumPy's own. `np.sum`, `np.random`, … are looked up when they are used."""
from __future__ import annotations

import threading
from typing import Any, List

import numpy as _numpy

from ._hosted import OWN

newaxis = None
_OWN = (*OWN, "can_cast", "dtype", "emath", "exceptions", "finfo", "iinfo", "isdtype", "ma", "poly1d", "polynomial", "testing", "typing")
_CONSTANTS = ("e", "euler_gamma", "inf", "nan", "pi", "little_endian", "True_", "False_")
_OBJECTS = ("c_", "fft", "linalg", "mgrid", "ogrid", "r_", "random")  # have functions themselves
_lock = threading.RLock()
_default: Any = None


def _client() -> Any:
    global _default
    from .._client import connect

    with _lock:
        if _default is None or _default._transport.closed:
            _default = connect()
        return _default


def own_client() -> Any:
    """What arrays belong to that come from elsewhere: this process' client, which is the one that functions here use, or the last one
    that the program made, or a new one."""
    from .._client import last_made

    with _lock:
        used = None if _default is None or _default._transport.closed else _default
    return used or last_made() or _client()


def _client_of(values: Any) -> Any:
    """Of the first array among these; else None."""
    from .._array import Array

    for v in values:
        found = v._client if isinstance(v, Array) else _client_of(v) if isinstance(v, (list, tuple)) else None
        if found is not None:
            return found
    return None


class _Function:
    """A function of the client's, looked up when it is called."""

    def __init__(self, *path: str):
        self._path = path
        self.__name__ = path[-1]

    def _of(self, client: Any) -> Any:
        from ._protocols import MEANT

        for name in self._path:
            client = getattr(client, MEANT.get(name, name) if len(self._path) == 1 else name)
        return client

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self._of(_client_of(args) or _client_of(more.values()) or _client())(*args, **more)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(getattr(_numpy, self._path[0]), name) if name in ("nin", "nout", "nargs") else _Function(*self._path, name)

    def __repr__(self) -> str:
        return f"<arrayd function {'.'.join(self._path)!r}>"


class _Object:
    """What has functions or is indexed: looked up when it is used."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._name in ("linalg", "fft"):
            numpys = getattr(getattr(_numpy, self._name), name)  # AttributeError where there is none
            return _Function(self._name, name) if not isinstance(numpys, type) else numpys
        return getattr(getattr(_client(), self._name), name)

    def __getitem__(self, key: Any) -> Any:
        return getattr(_client(), self._name)[key]

    def __repr__(self) -> str:
        return f"<arrayd.numpy.{self._name}>"


class _NdarrayType(type):
    def __instancecheck__(cls, x: Any) -> bool:
        from .._array import Array

        return isinstance(x, Array)

    def __call__(cls, shape: Any, dtype: Any = None, **more: Any) -> Any:
        return _client().empty(shape, dtype, **more)


class ndarray(metaclass=_NdarrayType):
    """Stands for the arrays' type; called, it makes one."""


def _has(name: str) -> bool:
    from .._namespace import Namespace

    return hasattr(Namespace, name) or name in ("array", "delete")


def __getattr__(name: str) -> Any:
    value: Any = None
    if name.startswith("_"):
        raise AttributeError(name)
    numpys = getattr(_numpy, name, None)
    if name in _OBJECTS:
        value = _Object(name)
    elif name in _OWN or name in _CONSTANTS or (isinstance(numpys, type) and (issubclass(numpys, _numpy.generic) or name in ("bool", "ufunc"))):
        value = getattr(_numpy, name)
    elif name == "bool":  # NumPy before 2
        value = _numpy.bool_
    elif name in ("load", "save", "savez", "savez_compressed", "savetxt", "array2string", "array_repr", "array_str"):
        value = _asked(name)
    elif _has(name):
        value = _Function(name)
    else:
        own = "" if numpys is None else f": numpy.{name} is for values in this process, numpy.asarray(x)"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{own}")
    globals()[name] = value
    return value


def _asked(name: str) -> Any:
    """Of values that are asked for: NumPy's own, which fetches them."""
    return _Function(name) if name == "load" else getattr(_numpy, name)


def __dir__() -> List[str]:
    return sorted({*globals(), *(n for n in dir(_numpy) if not n.startswith("_") and _has(n)), *_OWN, *_CONSTANTS, *_OBJECTS})
