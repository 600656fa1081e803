"""Views: arrays that are a part of another array, or show its elements in another shape or order, as NumPy's are. Without I/O.

A view has no values of its own. Its node is made from its parent's whenever that has changed, and a write to it is a write to the
parent, up to the array that has the memory. What of an array is a view, and what a copy, is NumPy's rule: it is asked, with an
array without memory (`ghost`) that has the same shape and strides.
"""
from __future__ import annotations

from typing import Any, Callable, List, Optional

import numpy as np

from . import _dtypes as dt
from ._graph import Node, Shape, const, host
from ._indexing import Basic, composed

DEEP = 16  # views of views: each look and each write goes through all of them


class View:
    """Of `parent`, an array: the part `index` of it, or else what `make` makes of its node; `put` gives the parent's node from what
    the view is to be, None: it cannot be written to. The ghost of a part is made when it is asked for."""

    __slots__ = ("parent", "make", "put", "index", "of", "depth", "_ghost")

    def __init__(self, parent: Any, ghost: "Optional[np.ndarray[Any, Any]]", make: Optional[Callable[[Node], Node]] = None,
                 put: Optional[Callable[[Node], Node]] = None, index: Optional[Basic] = None):
        self.parent, self.make, self.put, self.index = parent, make, put, index
        self.of: Optional[Node] = None  # the parent's node that the view's was made from
        self.depth: int = 1 if parent._view is None else parent._view.depth + 1  # views, up to the array that is none
        self._ghost = ghost

    @property
    def ghost(self) -> "np.ndarray[Any, Any]":
        if self._ghost is None:
            assert self.index is not None
            self._ghost = self.parent._ghost[self.index.key]
        return self._ghost

    def node_of(self, node: Node) -> Node:
        """The view's node, from the parent's."""
        if self.make is not None:
            return self.make(node)
        assert self.index is not None
        return part(self.index, node)

    @property
    def is_read_only(self) -> bool:
        return self.put is None and self.index is None

    def back(self, node: Node) -> Node:
        """The parent's node, where this view is to be `node`."""
        assert self.put is not None
        return self.put(node)


def within(x: Any, index: Basic) -> View:
    """A part of the array. Of a part of a part, and so on, it is one of what they are parts of, so that a loop may do `x = x[1:]` as often as
    it likes."""
    view = x._view
    if view is not None and view.depth >= DEEP and view.index is not None:
        inner = composed(view.index, index, view.parent.shape)
        if inner is not None:
            return View(view.parent, None, index=inner)
    return View(x, None, index=index)


class PartView(View):
    """The real or imaginary part of complex numbers, which has half of what the parent has."""

    def __init__(self, parent: Any, op: str, dtype: Any):
        def make(node: Node) -> Node:
            return Node(op, (node,), node.shape, dtype)

        super().__init__(parent, ghost_of(parent.shape), make, make)
        self.op = op

    def back(self, node: Node) -> Node:
        other = Node("imag" if self.op == "real" else "real", (self.parent._node,), node.shape, node.dtype)
        return _complex(*((node, other) if self.op == "real" else (other, node)), self.parent.dtype)


def _complex(real: Node, imag: Node, dtype: Any) -> Node:
    """The numbers that have these parts. Infinity times 1j would have NaN for its real part."""
    def made(op: str, *args: Node, of: Any = dtype) -> Node:
        return Node(op, args, real.shape, of)

    turned = made("multiply", imag, const(1j, dtype))
    for value in (np.inf, -np.inf):
        turned = made("where", made("equal", imag, const(value, imag.dtype), of=dt.BOOL), const(complex(0, value), dtype), turned)
    turned = made("where", made("isnan", imag, of=dt.BOOL), const(complex(0, np.nan), dtype), turned)
    return made("add", real, turned)


def ghost_of(shape: Shape) -> "np.ndarray[Any, Any]":
    """An array of that shape, in C order, whose elements must not be looked at."""
    strides, n = [], 1
    for extent in reversed(shape):
        strides.append(n)
        n *= max(extent, 1)
    return np.lib.stride_tricks.as_strided(np.empty(1, np.int8), shape, strides[::-1], writeable=False)


def memory_order(ghost: "np.ndarray[Any, Any]") -> List[int]:
    """Its axes as NumPy goes through the memory: those whose elements are farthest from each other first."""
    strides = [abs(s) for s in ghost.strides]
    order: List[int] = []
    for k in reversed(range(ghost.ndim)):
        place = len(order)
        for i in reversed(range(len(order))):
            if strides[k] and strides[order[i]]:  # those of repetitions stay where they are
                if strides[order[i]] <= strides[k]:
                    break
                place = i
        order.insert(place, k)
    return order[::-1]


def reshaped(ghost: "np.ndarray[Any, Any]", shape: Shape) -> "Optional[np.ndarray[Any, Any]]":
    """The same memory in another shape, or None where NumPy would copy."""
    if ghost.flags.c_contiguous or ghost.size == 0:
        return ghost_of(shape)
    try:
        return ghost.reshape(shape, copy=False)  # type: ignore[call-overload,no-any-return,unused-ignore]
    except TypeError:  # NumPy before 2.1
        view = ghost.view()
        try:
            view.shape = shape
        except AttributeError:
            return None
        return view
    except ValueError:
        return None


def part(index: Basic, node: Node) -> Node:
    if node.value is not None and (node.handle is None or not index.shape):
        return host(np.array(node.value[index.key]), node.dtype)
    if index.is_all:
        return node
    made = Node("getitem", (node,), index.shape, node.dtype, index.attrs)
    made.key = index.key
    return made


def with_part(node: Node, index: Basic, v: Node) -> Node:
    """The values of `node` with `v` in a part of them."""
    if index.is_all and v.shape == node.shape:  # of rank 0, too, where no text is an index
        return v if v.dtype == node.dtype else Node("astype", (v,), v.shape, node.dtype, {"dtype": dt.name_of(node.dtype)})
    made = Node("setitem", (node, v), node.shape, node.dtype, index.attrs)
    made.picked = node.picked  # whose elements are read will be read again
    return made


def check_writable(view: Optional[View]) -> None:
    """ValueError where it, or what it is a view of, is read-only."""
    while view is not None:
        if view.is_read_only:
            raise ValueError("an assignment: this is a view that is read-only (by broadcast_to, diagonal or the like)")
        view = view.parent._view
