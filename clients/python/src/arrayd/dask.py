"""dask arrays whose chunks are arrays of a daemon's: what dask asks of an array library is registered by importing this.

Workers, and programs that have imported dask before they connect or that give dask an array, import it by themselves.

- What a task of dask's leaves is computed at its end: then its chunk has the memory that dask reckons with, and what it was made of can
  go. Within a task, which dask makes of several operations, expressions are as lazy as ever.
- `dask.config.set({"array.backend": "arrayd"})`: `da.zeros`, `da.ones`, `da.full`, `da.arange` and `da.random.RandomState` make their
  chunks on the workers' daemons. `x.to_backend("arrayd")` and `x.to_backend("numpy")` move those of a dask array there and back.
"""
from __future__ import annotations

import time
from typing import Any, Callable, Optional

import numpy as np
from dask import config as _config  # type: ignore[import-not-found,import-untyped,unused-ignore]
from dask.array import backends as _backends  # type: ignore[import-not-found,import-untyped,unused-ignore]
from dask.array import dispatch as _dispatch  # type: ignore[import-not-found,import-untyped,unused-ignore]
from dask.callbacks import Callback as _Callback  # type: ignore[import-not-found,import-untyped,unused-ignore]
from dask.sizeof import sizeof as _sizeof  # type: ignore[import-not-found,import-untyped,unused-ignore]

from ._array import Array
from ._carried import in_task
from ._dtypes import plain
from ._errors import OutOfMemory
from .numpy import own_client

__all__ = ["Backend", "RandomState", "to_arrayd", "to_numpy"]
PATIENCE_S = 5.0  # for which the end of a task waits for memory
PAUSE_S = 0.5  # at most, between two attempts
_patience_s = PATIENCE_S


def to_arrayd(values: Any, **_: Any) -> Any:
    """A chunk, as an array of the daemon that this process uses."""
    return values if isinstance(values, Array) else own_client().asarray(values)


def to_numpy(x: Any, **_: Any) -> Any:
    """A chunk's values."""
    return plain(x.numpy()) if isinstance(x, Array) else x


class RandomState:
    """Random numbers that the daemon draws, for `da.random.RandomState(seed, RandomState=arrayd.dask.RandomState)`: uniform and
    normal ones, and integers; the same for the same seed and chunks on every daemon."""

    def __init__(self, seed: Any = None):
        self._seeds = np.random.RandomState(seed)

    def _drawn(self, size: Any, distribution: str, low: Any = None, high: Any = None, dtype: Any = None) -> Any:
        seed = int(self._seeds.randint(0, 1 << 62))
        return own_client().random(() if size is None else size, distribution=distribution, seed=seed, low=low, high=high, dtype=dtype)

    def random_sample(self, size: Any = None) -> Any:
        """In [0, 1)."""
        return self._drawn(size, "uniform")

    random = random_sample

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """In [low, high)."""
        return low + (high - low) * self._drawn(size, "uniform")

    def standard_normal(self, size: Any = None) -> Any:
        """Of mean 0 and standard deviation 1."""
        return self._drawn(size, "normal")

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Of mean `loc` and standard deviation `scale`."""
        return loc + scale * self._drawn(size, "normal")

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = None) -> Any:
        """Integers in [low, high), or in [0, low)."""
        low, high = (0, low) if high is None else (low, high)
        return self._drawn(size, "integers", int(low), int(high), dtype)


def _made(name: str) -> Callable[..., Any]:
    def make(*args: Any, meta: Any = None, **more: Any) -> Any:
        import dask.array as da  # type: ignore[import-not-found,import-untyped,unused-ignore]

        with _config.set({"array.backend": "numpy"}):
            made = getattr(da, name)(*args, **more)
            return made.map_blocks(to_arrayd, meta=own_client().empty((0,) * made.ndim, made.dtype)) if name == "arange" else getattr(da, name)(
                *args, meta=own_client().empty((0,) * made.ndim, made.dtype) if meta is None else meta, **more)

    make.__name__ = name
    return make


class Backend(_backends.ArrayBackendEntrypoint):  # type: ignore[misc,unused-ignore]
    """dask's "array.backend" of the name "arrayd"."""

    zeros, ones, empty, full, arange = (staticmethod(_made(name)) for name in ("zeros", "ones", "empty", "full", "arange"))

    @classmethod
    def to_backend_dispatch(cls) -> Any:
        return to_arrayd

    @classmethod
    def to_backend(cls, data: Any, **more: Any) -> Any:
        return data if isinstance(data._meta, Array) else data.map_blocks(to_arrayd, meta=own_client().empty((0,) * data.ndim, data.dtype), **more)

    @property
    def RandomState(self) -> Any:
        return RandomState

    @property
    def default_bit_generator(self) -> Any:
        raise NotImplementedError("arrayd has no bit generators: da.random.RandomState(seed) has random numbers of the daemon's")


# --- the ends of tasks ---


def _settle(result: Any) -> None:
    if isinstance(result, Array):
        result._ended()
    elif isinstance(result, (list, tuple)):
        for x in result:
            _settle(x)
    elif isinstance(result, dict):
        for x in result.values():
            _settle(x)


class _Settling(_Callback):  # type: ignore[misc,unused-ignore]
    """On dask's schedulers of one process."""

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker: Any) -> None:
        _settle(result)


def _size_of(x: Array) -> int:
    """A worker asks for it when a task has ended, in the task's thread. Where there is no memory, what other tasks have may go."""
    global _patience_s
    until, pause = time.monotonic() + _patience_s, 0.02
    while in_task():
        try:
            x._ended()
            _patience_s = PATIENCE_S
            break
        except OutOfMemory:
            if time.monotonic() > until:
                _patience_s = 0.0  # the next ones do not wait, until there is some
                raise
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_S)
    return x.nbytes


def _numel(x: Array, **more: Any) -> Any:
    return _backends._numel_arraylike(x, **more)


def _empty(shape: Any, dtype: Any = None, order: str = "C") -> Any:
    return own_client().empty(shape, dtype)


def _divide(a: Any, b: Any, out: Any = None, dtype: Optional[Any] = None) -> Any:
    r = a / b
    return r if dtype is None else r.astype(dtype)


def _register() -> None:
    _sizeof.register(Array, _size_of)
    _dispatch.numel_lookup.register(Array, _numel)
    _dispatch.empty_lookup.register(Array, _empty)
    _dispatch.divide_lookup.register(Array, _divide)
    _dispatch.percentile_lookup.register(Array, _backends.percentile)
    _dispatch.to_numpy_dispatch.register(Array, to_numpy)
    _backends.array_creation_dispatch.register_backend("arrayd", Backend())
    _Settling().register()


_register()
