"""Arrays between the processes of a dask cluster. A pickle of an array is a reference, which is right where all processes use one
daemon. On a cluster each worker has a daemon of its own, which others need not reach: there the values travel, and become an array of
the daemon that the receiving process uses. Needs no dask.
"""
from __future__ import annotations

import importlib
import pickle
import secrets
import sys
from os import getpid
from typing import Any, Callable, Tuple

import numpy as np

from . import _dtypes as dt
from ._errors import ArraydError, OutOfMemory
from ._graph import Node

_salt = secrets.token_hex(8)


def _cluster() -> Any:
    return sys.modules.get("distributed")


def is_member() -> bool:
    """Whether this process computes on a cluster, or has it compute: it has a worker, or a client of dask's."""
    d = _cluster()
    return d is not None and any(getattr(x.status, "name", x.status) != "closed" for x in (*d.Worker._instances, *d.Client._instances))


def in_task() -> bool:
    """Whether a worker runs a task in this thread."""
    d = _cluster()
    try:
        return d is not None and d.get_worker() is not None
    except ValueError:
        return False


def packed(x: Any, protocol: Any) -> Tuple[Callable[..., Any], Tuple[Any, ...]]:
    """What a pickle has of it. dask does not expect that one fails, and would wait: the error is that of who wants the values."""
    dtype, shape = dt.name_of(x.dtype), x.shape
    try:
        values = np.ascontiguousarray(x._values()) if x.size else np.empty(0, x.dtype)
    except ArraydError as e:
        return failed, (dtype, shape, e)
    data = values.reshape(-1).view(np.uint8)
    return arrived, (dtype, shape, pickle.PickleBuffer(data) if protocol >= 5 else data.tobytes())  # type: ignore[arg-type]


def arrived(dtype: str, shape: Tuple[int, ...], data: Any) -> Any:
    """An array of this process' own daemon; on dask's scheduler, which only passes it on, what it came as."""
    d = _cluster()
    if d is not None and d.Scheduler._instances and not is_member():
        return Parcel(dtype, shape, data)
    t = dt.BY_NAME[dtype]
    values = np.frombuffer(data, t).reshape(shape) if 0 not in shape else np.empty(shape, t)
    client = own_client()
    try:
        return client._given(values, t)
    except OutOfMemory:  # there may be when it is needed
        return client._from_host(values, t)


def failed(dtype: str, shape: Tuple[int, ...], error: ArraydError) -> Any:
    """An array whose values could not be computed."""
    return own_client()._wrap(Node("failed", (), shape, dt.BY_NAME[dtype], {"error": error}))


def own_client() -> Any:  # of the modules that make arrays, which import this one
    return importlib.import_module("arrayd.numpy").own_client()


class Parcel:
    """An array on its way."""

    def __init__(self, dtype: str, shape: Tuple[int, ...], data: Any):
        self._dtype, self.shape, self._data = dtype, shape, data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return arrived, (self._dtype, self.shape, pickle.PickleBuffer(self._data) if protocol >= 5 else bytes(self._data))


def token(x: Any) -> Any:
    """For dask, which names what it computes by what it is made of: the values, where they are here; else whose they are, as long as they
    are these."""
    if "dask.array" in sys.modules:  # which meets it here first
        importlib.import_module("arrayd.dask")
    node = x._node
    if node.value is not None or not node.size:
        return "arrayd", dt.name_of(node.dtype), node.shape, node.value
    if x._shared:  # others may write to it
        return "arrayd", secrets.token_hex(16)
    return "arrayd", _salt, getpid(), node.number


def sizes(sizeof: Any) -> None:
    """dask's entry point: the rest is loaded when there is an array."""
    sizeof.register_lazy("arrayd", lambda: importlib.import_module("arrayd.dask"))
