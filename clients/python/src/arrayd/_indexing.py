"""Indices: what NumPy calls basic ones as the server's index strings, the rest as positions."""
from __future__ import annotations

import operator
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from ._graph import Shape


INDICES = "integers, slices (`:`), an ellipsis (`...`), None, and arrays of integers or a mask"


class Basic(NamedTuple):
    key: Tuple[Any, ...]  # for NumPy
    text: str  # for the server
    shape: Shape  # of the result
    is_all: bool  # it selects everything, as it is
    is_view: bool  # else an element
    attrs: Dict[str, Any]  # of nodes


_known: Dict[Any, Basic] = {}  # of indices of slices and integers, and shapes: loops have the same ones again and again
KNOWN = 4096


def _is_integer(k: Any) -> bool:
    if isinstance(k, (bool, np.bool_)):
        return False
    if isinstance(k, (int, np.integer)):
        return True
    return hasattr(k, "__index__") and getattr(k, "ndim", 0) == 0 and not isinstance(k, np.ndarray)


def expand(key: Any, rank: int) -> List[Any]:
    """The key with its ellipsis written out and missing axes added."""
    keys = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, k in enumerate(keys) if k is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index has one ellipsis at most")
    taken = sum(1 for k in keys if k is not None and k is not Ellipsis)
    if taken > rank:
        raise IndexError(f"{taken} indices for an array of rank {rank}")
    at = dots[0] if dots else len(keys)
    return keys[:at] + [slice(None)] * (rank - taken) + keys[at + 1:]


def _told(k: Any) -> Any:
    """What stands for a part of an index, where that is simple (Python 3.11's slices have no hash)."""
    kind = k.__class__
    if kind is int:
        return k
    if kind is slice:
        start, stop, step = k.start, k.stop, k.step
        if (start is None or start.__class__ is int) and (stop is None or stop.__class__ is int) and (step is None or step.__class__ is int):
            return start, stop, step
    raise TypeError


def simple_index(key: Any, shape: Shape) -> Optional[Basic]:
    """That of Python's integers and slices; None where there is more to it."""
    try:
        whole = (*map(_told, key),) if key.__class__ is tuple else _told(key), shape
    except TypeError:
        return None
    found = _known.get(whole)
    if found is None:
        found = basic_index(key, shape)
        assert found is not None
        if len(_known) >= KNOWN:
            _known.clear()
        _known[whole] = found
    return found


def basic_index(key: Any, shape: Shape) -> Optional[Basic]:
    """None where there is more to it than integers, slices, None and an ellipsis."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if not all(k is None or k is Ellipsis or isinstance(k, slice) or _is_integer(k) for k in keys):
        return None
    out: List[Any] = []
    text: List[str] = []
    extents: List[int] = []
    axis, whole = 0, True
    for k in expand(key, len(shape)):
        if k is None:
            text.append("None")
            extents.append(1)
            out.append(None)
            whole = False
            continue
        n = shape[axis]
        axis += 1
        if isinstance(k, slice):
            start, stop, step = k.indices(n)
            count = len(range(start, stop, step))
            if count == 0:
                text.append("0:0")
                out.append(slice(0, 0))
            else:
                end = "" if stop < 0 else str(stop)
                text.append(f"{start}:{end}:{step}" if step != 1 else f"{start}:{end}")
                out.append(slice(start, None if stop < 0 else stop, step))
            extents.append(count)
            whole = whole and count == n and (step > 0 or n <= 1)
        else:
            i = operator.index(k)
            if not -n <= i < n:
                raise IndexError(f"index {i} is out of range: axis {axis - 1} has {n} elements")
            i += n if i < 0 else 0
            text.append(str(i))
            out.append(i)
            whole = False
    is_view = len(keys) < len(shape) or any(k is None or k is Ellipsis or isinstance(k, slice) for k in keys)
    whole_text = ", ".join(text)
    return Basic(tuple(out), whole_text, tuple(extents), whole, is_view, {"index": whole_text})


def composed(outer: Basic, inner: Basic, shape: Shape) -> Optional[Basic]:
    """The index that picks from an array of that shape what `inner` picks from what `outer` picks. None where an axis that `outer` has
    added is more than kept."""
    keys = list(inner.key)
    out: List[Any] = []
    axis = 0
    for k in outer.key:
        n = shape[axis] if k is not None else 1
        if isinstance(k, int):
            out.append(k)
            axis += 1
            continue
        while keys and keys[0] is None:
            out.append(keys.pop(0))
        own = keys.pop(0)
        if k is None:
            if isinstance(own, int):  # the axis goes again
                continue
            if not isinstance(own, slice) or len(range(*own.indices(1))) != 1:
                return None
            out.append(None)
            continue
        places = range(*k.indices(n))
        if isinstance(own, slice):
            picked = places[own]
            if not len(picked):
                out.append(slice(0, 0))
            else:
                stop = picked.stop
                out.append(slice(picked.start, None if stop < 0 else stop, picked.step))
        else:
            out.append(places[own])
        axis += 1
    return basic_index((*out, *keys), shape)


def with_places(key: Any, shape: Shape) -> List[Any]:
    """A key that has integer arrays among what is basic: slices and None as they are, else what stands for one axis."""
    keys = expand(key, len(shape))
    if any(getattr(k, "dtype", None) == np.bool_ or isinstance(k, (bool, np.bool_)) for k in keys):
        raise IndexError("a mask is an index by itself: beside others, nonzero(mask) has its positions")
    return keys


def broadcasts(shape: Shape, to: Shape) -> bool:
    """Whether values of one shape fill another."""
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to)))
