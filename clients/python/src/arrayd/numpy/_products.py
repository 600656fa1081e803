"""NumPy's products and derivatives: expressions where the server has sums for them, else by NumPy in this process."""
from __future__ import annotations

import string
import types
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from .. import _dtypes as dt
from .._array import Array
from .._base import only
from .._spelling import spelled
from ._numbers import Numbers

LETTERS = string.ascii_uppercase + string.ascii_lowercase  # NumPy's, of numbers
FEW = 32  # elements that each are compared with


class Products(Numbers):
    def dot(self, a: Any, b: Any, out: Any = None) -> Any:
        """numpy.dot: of vectors the sum of products, of matrices their product."""
        x, y = self._taken(a), self._taken(b)
        if not x.ndim or not y.ndim:
            r = self.multiply(x, y)
        elif y.ndim == 1:
            r = self._times_vector(x, y, dt.promote(x.dtype, y.dtype))
        else:
            r = self.matmul(x, y) if x.ndim < 3 and y.ndim == 2 else self.tensordot(x, y, ((x.ndim - 1,), (y.ndim - 2,)))
        return r if out is None else self._into(out, r)

    def vdot(self, a: Any, b: Any, /) -> Any:
        """The sum of conj(a)*b of the flattened arrays."""
        return self.dot(self.conj(self.ravel(a)), self.ravel(b))

    def inner(self, a: Any, b: Any, /) -> Any:
        """Sums of products over the last axes."""
        x, y = self._taken(a), self._taken(b)
        if not x.ndim or not y.ndim or x.ndim == 1 or y.ndim == 1:
            return self.dot(x, y) if y.ndim == 1 or not x.ndim else self.dot(y, x)
        return self.tensordot(x, y, ((-1,), (-1,)))

    def outer(self, a: Any, b: Any, out: Any = None) -> Any:
        """The products of each element of a with each of b."""
        r = self.multiply(self.ravel(a).reshape(-1, 1), self.ravel(b))
        return r if out is None else self._into(out, r)

    def einsum(self, *operands: Any, out: Any = None, **more: Any) -> Any:
        """numpy.einsum. On the server where the products are no more than the largest operand has elements; else in this process."""
        if out is None and not set(more) - {"optimize"} and (view := self._rearranged(*operands)) is not None:
            return view
        there = self._einsum(operands) if not more or set(more) == {"optimize"} else None
        if there is None:
            return self._hosted("einsum", np.einsum)(*operands, out=out, **more)
        return there if out is None else self._into(out, there)

    def _rearranged(self, *operands: Any) -> Optional[Array]:
        """Of one array, where nothing is summed: a view, as NumPy's. None for the rest."""
        x, *axes = operands if isinstance(operands[0], Array) else operands[1:]
        if not isinstance(x, Array) or len(axes) not in ((1, 2) if x is operands[0] else (0,)):
            return None
        subscripts = operands[0] if x is not operands[0] else "->".join("".join("..." if k is Ellipsis else LETTERS[k] for k in part) for part in axes)
        letters, arrow, to = subscripts.replace(" ", "").partition("->")
        if "..." in letters:
            rest = "".join(c for c in LETTERS if c not in letters)[:max(x.ndim - len(letters) + 3, 0)]
            letters, to = letters.replace("...", rest), to.replace("...", rest) if arrow else rest + "..."
        if not arrow:  # in alphabetical order, those that are there once
            to = to.replace("...", "") + "".join(c for c in sorted(subscripts) if c.isalpha() and subscripts.count(c) == 1)
        if len(letters) != x.ndim or set(letters) != set(to) or len(set(to)) != len(to) or not to.isalpha():
            return None
        for c in to:
            at = [k for k, name in enumerate(letters) if name == c]
            n, times = x.shape[at[0]], len(at)
            if any(x.shape[k] != n for k in at):
                return None
            if times > 1:  # elements of a diagonal are as far from each other
                front = self.moveaxis(x, tuple(at), tuple(range(times)))
                step = sum(n**k for k in range(times))
                x = self.moveaxis(self._reshaped_whole(front, (n**times, *front.shape[times:]))[::step], 0, at[0])
                letters = letters[:at[0] + 1] + letters[at[0] + 1:].replace(c, "")
        return self.permute_dims(x, tuple(letters.index(c) for c in to))

    def _einsum(self, operands: Tuple[Any, ...]) -> Optional[Array]:
        if not isinstance(operands[0], str):
            return None
        terms = _terms(operands[0].replace(" ", ""), [self.ndim(x) for x in operands[1:]])
        if terms is None:
            return None
        of, to = terms
        extents: Dict[str, int] = {}
        arrays = [self._taken(x) for x in operands[1:]]
        for letters, x in zip(of, arrays):
            for name, n in zip(letters, x.shape):
                if extents.setdefault(name, n) != n:
                    return None  # where one is 1, and mistakes
        inner = [name for name in extents if name not in to]
        order = to + "".join(inner)
        size = int(np.prod([extents[name] for name in order], dtype=object))
        t = arrays[0].dtype
        for x in arrays[1:]:
            t = dt.promote(t, x.dtype)
        if size > max(x.size for x in arrays) or t == dt.BOOL:
            return None
        product: Any = None
        for letters, x in zip(of, arrays):
            x = self.permute_dims(x, tuple(letters.index(name) for name in order if name in letters))
            x = x.reshape(tuple(extents[name] if name in letters else 1 for name in order))
            product = x if product is None else product * x
        product = self.broadcast_to(product, tuple(extents[name] for name in order))
        return self.sum(product, tuple(range(len(to), len(order))), t) if inner else self.astype(product, t, copy=False)

    def tensordot(self, a: Any, b: Any, axes: Any = 2) -> Array:
        """Products summed over axes: where einsum computes them."""
        x, y = self._taken(a), self._taken(b)
        mine_at, theirs_at = (range(x.ndim - axes, x.ndim), range(axes)) if isinstance(axes, int) else (np.atleast_1d(k).tolist() for k in axes)
        if len(mine_at) == len(theirs_at) and all(-x.ndim <= k < x.ndim for k in mine_at) and all(-y.ndim <= k < y.ndim for k in theirs_at):
            mine = [chr(97 + k) for k in range(x.ndim)]
            theirs = [chr(97 + x.ndim + k) for k in range(y.ndim)]
            for i, k in zip(mine_at, theirs_at):
                theirs[k] = mine[i]
            to = [c for c in mine if c not in theirs] + [c for c in theirs if c not in mine]
            there = self._einsum((f"{''.join(mine)},{''.join(theirs)}->{''.join(to)}", x, y)) if x.ndim + y.ndim <= 26 else None
            if there is not None:
                return there
        return super().tensordot(x, y, axes)

    def isin(self, element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None) -> Array:
        """Whether each element is among others. On the server where these are few."""
        x, others = self._taken(element), test_elements
        if isinstance(others, Array) or np.size(others) > FEW:
            found: Array = self._hosted("isin", np.isin)(x, others, assume_unique, invert)
            return found
        r: Any = self.zeros(x.shape, dt.BOOL)
        for value in np.ravel(others):
            r = self.logical_or(r, self.equal(x, value))
        return self.logical_not(r) if invert else r  # type: ignore[no-any-return]

    # --- derivatives ---

    def gradient(self, f: Any, /, *varargs: Any, axis: Any = None, spacing: Any = None, edge_order: int = 1) -> Any:
        """numpy.gradient; and along one axis, of this spacing: gradient(x, 0, spacing=0.1)."""
        x = self._taken(f)
        if axis is None and len(varargs) == 1 and isinstance(varargs[0], int):
            axis, varargs = varargs[0], ()
        return self._np_gradient(x, *(varargs if spacing is None else (spacing,)), axis=axis, edge_order=edge_order)

    @spelled
    def _np_gradient(self, f: Array, /, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
        only("iufc", "gradient", f._node)
        f = self.astype(f, dt.floating(f.dtype), copy=False)
        axes = self._axes(axis, f.ndim)
        steps: List[Any] = list(varargs) * len(axes) if len(varargs) == 1 else list(varargs) or [1.0] * len(axes)
        if edge_order != 1 or any(self.ndim(s) > 1 for s in steps) or len(steps) != len(axes) or any(f.shape[k] < 2 for k in axes):
            return self._hosted("gradient", np.gradient)(f, *varargs, axis=axis, edge_order=edge_order)
        r = tuple(self._gradient_over(f, k, np.asarray(s)) if self.ndim(s) else self._gradient_along(f, k, spacing=float(s))
                  for k, s in zip(axes, steps))
        return r[0] if len(r) == 1 else r if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else list(r)

    def _gradient_over(self, f: Array, k: int, at: "np.ndarray[Any, Any]") -> Array:
        """Between coordinates."""
        if at.shape != (f.shape[k],):
            raise ValueError("when 1d, distances must match the length of the corresponding dimension")
        step = np.diff(np.asarray(at, np.float64) if at.dtype.kind in "iu" else at)
        if (step == step[0]).all():
            return self._gradient_along(f, k, spacing=float(step[0]))
        x = self.moveaxis(f, k, -1)
        a, b = step[:-1], step[1:]
        inner = -b / (a * (a + b)) * x[..., :-2] + (b - a) / (a * b) * x[..., 1:-1] + a / (b * (a + b)) * x[..., 2:]
        first, last = (x[..., 1:2] - x[..., :1]) / step[0], (x[..., -1:] - x[..., -2:-1]) / step[-1]
        return self.moveaxis(self.concat([first, inner, last], -1), -1, k)

    @property
    def lib(self) -> Any:
        """Where xarray looks for `lib.stride_tricks.sliding_window_view`."""
        return types.SimpleNamespace(stride_tricks=types.SimpleNamespace(sliding_window_view=self.sliding_window_view))


def _terms(subscripts: str, ranks: List[int]) -> Optional[Tuple[List[str], str]]:
    """The letters of each operand, and of the result; those of `...` are capital. None where it is not as simple."""
    inputs, arrow, to = subscripts.partition("->")
    of = inputs.split(",")
    if not arrow or len(of) != len(ranks) or any(c.isupper() for c in subscripts):
        return None
    most = max([n - len(s.replace("...", "")) for s, n in zip(of, ranks) if "..." in s] or [0])
    rest = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:most]
    of = [s.replace("...", rest[most - (n - len(s) + 3):]) if "..." in s else s for s, n in zip(of, ranks)]
    to = to.replace("...", rest)
    plain = all(s.isalpha() and s.isascii() and len(set(s)) == len(s) for s in (*of, to or "a"))
    return (of, to) if plain and all(len(s) == n for s, n in zip(of, ranks)) and set(to) <= set("".join(of)) else None
