"""NumPy's interface over a daemon: `import arrayd.numpy as np`, and a NumPy program runs as it is.

Functions are those of the client of their arrays, else of the one that `arrayd.connect()` gives, which is made at the first use of
one that needs it. dtypes, constants and the like are NumPy's own. `np.sum`, `np.random`, … are looked up when they are used."""
from __future__ import annotations

import functools
import importlib
import sys
import threading
import types
from typing import Any, List

import numpy as _numpy

from .._errors import no_attribute
from ._hosted import OWN, TOLD, told

newaxis = None
_OWN = (*OWN, "can_cast", "dtype", "emath", "exceptions", "finfo", "iinfo", "isdtype", "ma", "poly1d", "polynomial", "typing", "version")
_CONSTANTS = ("e", "euler_gamma", "inf", "nan", "pi", "little_endian", "True_", "False_", "ScalarType", "sctypeDict", "typecodes", "__version__")
_OBJECTS = ("c_", "mgrid", "ogrid", "r_")  # are indexed
_PARTS = ("fft", "lib", "lib.stride_tricks", "linalg", "random")  # modules whose functions are a client's
_NUMPYS = ("exceptions", "ma", "polynomial", "testing", "typing", "version")  # modules of NumPy's, which may be imported from here
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
    """What is indexed: looked up when it is used."""

    def __init__(self, name: str):
        self._name = name

    def __getitem__(self, key: Any) -> Any:
        return getattr(_client(), self._name)[key]

    def __repr__(self) -> str:
        return f"<arrayd.numpy.{self._name}>"


def _values_of(x: Any) -> Any:
    from .._array import Array

    if type(x) in (list, tuple):
        return type(x)(_values_of(v) for v in x)
    if type(x) is dict:
        return {k: _values_of(v) for k, v in x.items()}
    return _numpy.asarray(x)[()] if isinstance(x, Array) else x


def _asserting(function: Any) -> Any:
    """A function of `testing`, of values: some take only NumPy's own arrays for arrays. What calls something gets the arrays."""
    @functools.wraps(function)
    def f(*args: Any, **more: Any) -> Any:
        calls = [a for a in args if callable(a)]  # `any` may be NumPy's here
        return function(*args, **more) if calls else function(*_values_of(args), **_values_of(more))

    return f


class _Part(types.ModuleType):
    """A module of NumPy's, with a client's functions."""

    def __init__(self, name: str):
        super().__init__(f"{__name__}.{name}", f"numpy.{name}, with arrays of a daemon's.")
        self._path = name.split(".")
        if name == "lib":
            self.__path__: List[str] = []  # a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        numpys = importlib.import_module(".".join(["numpy", *self._path]))
        if name == "__all__":
            return [n for n in getattr(numpys, name) if hasattr(self, n)]
        if f"{self.__name__}.{name}" in sys.modules:
            return sys.modules[f"{self.__name__}.{name}"]
        if self._path == ["lib"]:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if not hasattr(numpys, name):
            raise no_attribute(f"module {self.__name__!r}", name, lambda: dir(numpys))
        value = getattr(numpys, name)
        if name == "as_strided":  # of a copy here, which cannot be written to
            return value
        if self._path == ["testing"] and name.startswith("assert_"):
            return _asserting(value)
        ours = self._path[0] not in _NUMPYS and callable(value) and (name == "RandomState" or not isinstance(value, type))
        return _Function(*self._path, name) if ours else value

    def __dir__(self) -> List[str]:
        return sorted({*object.__dir__(self), *getattr(self, "__all__", ())})

    def __repr__(self) -> str:
        return f"<module {self.__name__!r}>"


for _name in (*_PARTS, *_NUMPYS):
    sys.modules[f"{__name__}.{_name}"] = _Part(_name)


class _NdarrayType(type):
    def __instancecheck__(cls, x: Any) -> bool:
        from .._array import Array

        return isinstance(x, Array)

    def __call__(cls, shape: Any, dtype: Any = float, *, order: str = "C") -> Any:
        return _client().empty(shape, dtype, order)


class ndarray(metaclass=_NdarrayType):
    """Stands for the arrays' type; called, it makes one."""


def _has(name: str) -> bool:
    from .._namespace import Namespace

    return hasattr(Namespace, name) or name in ("array", "delete")


def _own() -> List[str]:
    from .._namespace import Namespace

    return dir(Namespace)


def __getattr__(name: str) -> Any:
    value: Any = None
    if name == "__all__":
        return [n for n in _numpy.__all__ if n in __dir__()]
    if name.startswith("_") and name != "__version__":
        raise AttributeError(name)
    numpys = getattr(_numpy, name, None)
    if name in _OBJECTS:
        value = _Object(name)
    elif name in _PARTS or name == "testing":
        value = sys.modules[f"{__name__}.{name}"]
    elif name in _OWN or name in _CONSTANTS or (isinstance(numpys, type) and (issubclass(numpys, _numpy.generic) or name in ("bool", "ufunc"))):
        value = getattr(_numpy, name)
    elif name in TOLD:
        value = told(getattr(_numpy, name))
    elif name == "bool":  # NumPy before 2
        value = _numpy.bool_
    elif name in ("load", "save", "savez", "savez_compressed", "savetxt", "array2string", "array_repr", "array_str"):
        value = _asked(name)
    elif _has(name):
        value = _Function(name)
    else:
        if numpys is None:
            raise no_attribute(f"module {__name__!r}", name, lambda: filter(_has, (*dir(_numpy), *_own())))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: numpy.{name} is for values in this process, numpy.asarray(x)")
    globals()[name] = value
    return value


def _asked(name: str) -> Any:
    """Of values that are asked for: NumPy's own, which fetches them."""
    return _Function(name) if name == "load" else getattr(_numpy, name)


def __dir__() -> List[str]:
    return sorted({*globals(), *(n for n in dir(_numpy) if n == "__version__" or (not n.startswith("_") and hasattr(sys.modules[__name__], n)))})
