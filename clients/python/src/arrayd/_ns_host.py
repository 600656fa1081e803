"""What the server does not have: NumPy computes it in this process, from values that are fetched, and the result is uploaded
when it is used. Sorting, sets, searching in sorted arrays, products of matrices, and whatever's shape depends on values."""
from __future__ import annotations

from typing import Any, List, Literal, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _dtypes as dt
from ._array import Array
from ._base import Base
from ._spelling import spelled
from ._transfers import guard, to_fetch


class UniqueAll(NamedTuple):
    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    values: Array
    inverse_indices: Array


class Host(Base):
    def _guard(self, name: str, *arrays: Array, result: int = 0) -> None:
        """What is to come here, and a result of so many bytes that is to go back."""
        guard(name, to_fetch(x._node for x in arrays) + result)

    @spelled
    def sort(self, x: Array, /, axis: Optional[int] = -1, kind: Any = None, order: None = None, *, descending: bool = False,
             stable: Optional[bool] = None) -> Array:
        """Sorted along an axis, or flattened (in this process). `stable`, or such a `kind`, takes many times as long, and can be seen only
        in zeros of both signs."""
        if axis is None:
            x, axis = x.reshape(-1), -1
        k = self._axis(axis, x.ndim)
        self._guard("sort", x, result=x.nbytes)
        v = np.sort(_plain(x), axis=k, kind="stable" if stable or kind in ("stable", "mergesort") else None)
        return self._from_host(np.flip(v, k).copy() if descending else v, x.dtype)

    @spelled
    def argsort(self, x: Array, /, axis: Optional[int] = -1, kind: Any = None, order: None = None, *, descending: bool = False,
                stable: Optional[bool] = True) -> Array:
        """The positions that sort along an axis, or what is flattened (in this process)."""
        if axis is None:
            x, axis = x.reshape(-1), -1
        k = self._axis(axis, x.ndim)
        self._guard("argsort", x, result=8 * x.size)
        v = _plain(x)
        if not descending:
            return self._from_host(np.argsort(v, axis=k, kind="stable").astype(np.int64))
        last = v.shape[k] - 1
        return self._from_host((last - np.flip(np.argsort(np.flip(v, k), axis=k, kind="stable"), k)).astype(np.int64))

    @spelled
    def searchsorted(self, x1: Array, /, v: Any, side: Literal["left", "right"] = "left", sorter: Any = None) -> Array:
        """Where x2 goes into the sorted x1 (in this process)."""
        x2, order = self._taken(v), [] if sorter is None else [self._taken(sorter)]
        self._guard("searchsorted", x1, x2, *order, result=8 * x2.size)
        at = np.searchsorted(_plain(x1), _plain(x2), side=side, sorter=order[0]._values() if order else None)
        return self._from_host(np.asarray(at, dtype=np.int64))

    @spelled
    def nonzero(self, x: Array, /) -> Tuple[Array, ...]:
        """The positions of what is not 0, an array an axis (in this process)."""
        if not x.ndim:
            raise ValueError("a number has no positions")
        self._guard("nonzero", x)
        return tuple(self._from_host(i.astype(np.int64)) for i in np.nonzero(_plain(x)))

    @spelled
    def unique_all(self, x: Array, /) -> UniqueAll:
        """Distinct values, where each is first, which each element is, and how often (in this process)."""
        self._guard("unique", x)
        v = _plain(x)
        values, first, inverse, counts = _unique(v)
        return UniqueAll(self._from_host(values, x.dtype), self._from_host(first), self._from_host(inverse.reshape(v.shape)),
                         self._from_host(counts))

    def unique_counts(self, x: Array, /) -> UniqueCounts:
        """Distinct values and how often each is there (in this process)."""
        u = self.unique_all(x)
        return UniqueCounts(u.values, u.counts)

    def unique_inverse(self, x: Array, /) -> UniqueInverse:
        """Distinct values and which of them each element is (in this process)."""
        u = self.unique_all(x)
        return UniqueInverse(u.values, u.inverse_indices)

    def unique_values(self, x: Array, /) -> Array:
        """Distinct values (in this process)."""
        return self.unique_all(x).values

    def matmul(self, x1: Array, x2: Array, /, out: Any = None) -> Array:
        """The product of matrices (in this process; that with a vector, a column or a row is an expression)."""
        x1, x2 = (self.asarray(x) if isinstance(x, (np.ndarray, list, tuple)) else self._check(x) for x in (x1, x2))
        t = dt.promote(x1.dtype, x2.dtype)
        if not x1.ndim or not x2.ndim:
            raise ValueError("matmul needs arrays of rank 1 or more, not numbers")
        if x1.ndim == 1 or x2.ndim == 1 or x1.shape[-2] == 1 or x2.shape[-1] == 1:  # the server has sums of products
            r = self._times_vector(x1, x2, t)
            return r if out is None else self._into(out, r)
        self._guard("matmul", x1, x2, result=x1.size // max(x1.shape[-1], 1) * x2.shape[-1] * t.itemsize)
        with np.errstate(all="ignore"):
            r = self._from_host(np.matmul(_as(x1, t), _as(x2, t)), t)
        return r if out is None else self._into(out, r)

    def _times_vector(self, x1: Array, x2: Array, t: dt.DType) -> Array:
        """Of what one is a vector, a column or a row."""
        if x1.shape[-1] != x2.shape[-min(x2.ndim, 2)]:
            raise ValueError(f"matmul: shapes {x1.shape} and {x2.shape} do not match")
        both = x1.ndim > 1 and x2.ndim > 1
        column, row = both and x2.shape[-1] == 1, both and x1.shape[-2] == 1
        if x2.ndim > 1:  # its columns are rows then, which lie beside those of the other
            x2 = x2.mT
        r = (x1 & x2).any(-1) if t == dt.BOOL else (x1 * x2).sum(-1, t)
        return r[..., None] if column else r[..., None, :] if row else r

    def tensordot(self, x1: Array, x2: Array, /, axes: Union[int, Tuple[Sequence[int], Sequence[int]]] = 2) -> Array:
        """Products summed over axes (in this process)."""
        x1, x2 = self._taken(x1), self._taken(x2)
        t = dt.promote(x1.dtype, x2.dtype)
        self._guard("tensordot", x1, x2)
        with np.errstate(all="ignore"):
            return self._from_host(np.tensordot(_as(x1, t), _as(x2, t), axes), t)

    def _mask_of(self, key: Any, x: Array) -> Optional[Array]:
        """The bool array that a key is, or None."""
        if isinstance(key, tuple) and len(key) == 1:
            key = key[0]
        if isinstance(key, (bool, np.bool_, np.ndarray, list)) and (there := dt.taken(key)).dtype == np.bool_:
            key = self._given(there, dt.BOOL)
        if not isinstance(key, Array) or key.dtype != dt.BOOL:
            return None
        if key.ndim > x.ndim or any(k not in (n, 0) for k, n in zip(key.shape, x.shape)):  # 0: the standard has it so
            raise IndexError(f"a mask of shape {key.shape} does not fit an array of shape {x.shape}")
        return key

    def _unmasked(self, key: Any, x: Array) -> Any:
        """A key in which masks beside other indices are the positions where they hold."""
        masks = [not isinstance(k, (bool, np.bool_)) and _is_mask(k) for k in key] if isinstance(key, tuple) else []
        if not any(masks):
            return key
        takes = [0 if k is None or k is Ellipsis else np.ndim(k) if m else 1 for k, m in zip(key, masks)]
        out: List[Any] = []
        axis = 0
        for i, (k, m) in enumerate(zip(key, masks)):
            if k is Ellipsis:
                axis = x.ndim - sum(takes[i:])
            elif m:
                mask = k._values() if isinstance(k, Array) else dt.taken(k)
                if mask.shape != x.shape[axis:axis + mask.ndim]:
                    raise IndexError(f"a mask of shape {mask.shape} does not fit the axes from {axis} of an array of shape {x.shape}")
                out += mask.nonzero()
                axis += mask.ndim
                continue
            axis += takes[i]
            out.append(k)
        return tuple(out)


def _is_mask(k: Any) -> bool:
    return (k.dtype if isinstance(k, Array) else np.asarray(k).dtype if isinstance(k, (np.ndarray, list)) else None) == np.bool_


def _plain(x: Array) -> "np.ndarray[Any, Any]":
    """Values that NumPy computes with."""
    value: "np.ndarray[Any, Any]" = dt.plain(x._values())
    return value


def _as(x: Array, t: dt.DType) -> "np.ndarray[Any, Any]":
    """Factors of products that are to be of the dtype t."""
    return dt.cast(_plain(x), dt.FLOAT32 if t == dt.bfloat16 else t)


def _unique(v: Any) -> Tuple[Any, Any, Any, Any]:
    """NumPy's, but each NaN by itself."""
    values, first, inverse, counts = np.unique(v.reshape(-1), return_index=True, return_inverse=True, return_counts=True,
                                               **({"equal_nan": False} if v.dtype.kind in "fc" else {}))
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)
