"""The expression behind an array: a graph of nodes, evaluated when a value is needed.

A node is one of
- an operation on other nodes (`op`, `args`, `attrs`), which becomes a node of the request's tree;
- a number (`op` "const"), or values known here (`op` "host"): `value`, a read-only NumPy array;
- values on the server (`op` "stored"): `handle`;
- values that the server is to make (`op` "create"): `attrs` is the body of its POST /v1/arrays.
Once evaluated a node becomes one of the middle two and lets its arguments go. Shapes and dtypes are known from the start.
"""
from __future__ import annotations

import weakref
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np

from ._dtypes import DType, name_of

Shape = Tuple[int, ...]

DEEP = 40  # levels of one JSON tree: what is deeper goes into a `let`
MANY = 4000  # nodes of one request
INPUTS = 48  # arrays of one request


class Handle:
    """An array of the server, deleted when nobody refers to it any more (if it is ours)."""

    __slots__ = ("id", "name", "finalizer", "__weakref__")

    def __init__(self, id_: str, name: Optional[str] = None, release: Any = None):
        self.id, self.name = id_, name
        self.finalizer = weakref.finalize(self, release, f"/v1/arrays/{id_}") if release else None
        if self.finalizer:
            self.finalizer.atexit = False

    def keep(self) -> None:
        """It is not deleted by us."""
        if self.finalizer:
            self.finalizer.detach()
            self.finalizer = None


class Node:
    __slots__ = ("op", "args", "attrs", "shape", "dtype", "value", "handle", "users", "key", "__weakref__")

    op: str
    value: Optional["np.ndarray[Any, Any]"]
    handle: Optional[Handle]

    def __init__(self, op: str, args: Tuple["Node", ...], shape: Shape, dtype: DType, attrs: Optional[Dict[str, Any]] = None):
        self.op, self.args, self.shape, self.dtype = op, args, shape, dtype
        self.attrs = attrs or {}
        self.value, self.handle = None, None
        self.key: Any = None  # of a getitem, for NumPy
        self.users: List["weakref.ref[Any]"] = []
        for a in args:
            a.used_by(self)

    def used_by(self, user: Any) -> None:
        n = len(self.users)
        if n >= 8 and n & (n - 1) == 0:
            self.users = [r for r in self.users if r() is not None]
        self.users.append(weakref.ref(user))

    def dependents(self) -> List["Node"]:
        """Nodes whose values are still to be made of this one's."""
        users = [r() for r in self.users]
        return [u for u in users if isinstance(u, Node) and any(a is self for a in u.args)]

    def is_only_of(self, user: Any) -> bool:
        """Nothing but `user`, an array, would see a change of the memory."""
        arrays = [u for u in (r() for r in self.users) if u is not None and u is not user and not isinstance(u, Node)]
        return not self.dependents() and not any(a._node is self for a in arrays)

    @property
    def size(self) -> int:
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def is_leaf(self) -> bool:
        return not self.args

    def set_value(self, value: "np.ndarray[Any, Any]") -> None:
        """It is known here from now on."""
        value.flags.writeable = False
        self.value = value
        if self.handle is None:
            self.op = "host" if self.shape else "const"
        self.args, self.attrs = (), {}

    def set_handle(self, handle: Handle) -> None:
        """It is on the server from now on; where two have asked at once, the first answer stays."""
        if self.handle is None:
            self.handle = handle
        self.op = "stored"
        self.args, self.attrs = (), {}


def host(value: "np.ndarray[Any, Any]", dtype: DType) -> Node:
    """Takes the array: it must not be written to afterwards."""
    node = Node("host" if value.ndim else "const", (), value.shape, dtype)
    node.set_value(value)
    return node


def const(value: Any, dtype: DType) -> Node:
    return host(np.asarray(value, dtype=dtype), dtype)


def stored(handle: Handle, shape: Shape, dtype: DType) -> Node:
    node = Node("stored", (), shape, dtype)
    node.handle = handle
    return node


def create(body: Dict[str, Any], shape: Shape, dtype: DType) -> Node:
    return Node("create", (), shape, dtype, {**body, "dtype": name_of(dtype)})


def postorder(root: Node) -> Iterator[Node]:
    """Each node once, its arguments before it; without recursion, as graphs may be deep."""
    seen = set()
    stack: List[Tuple[Node, int]] = [(root, 0)]
    while stack:
        node, i = stack.pop()
        if i == 0:
            if id(node) in seen:
                continue
            seen.add(id(node))
        if i < len(node.args):
            stack.append((node, i + 1))
            if id(node.args[i]) not in seen:
                stack.append((node.args[i], 0))
        else:
            yield node


def too_large(root: Node) -> Optional[Node]:
    """The first node whose own expression is more than one request takes, or None."""
    order = list(postorder(root))
    if len(order) <= min(MANY, INPUTS):
        return None
    leaves: Dict[int, frozenset[int]] = {}
    counts: Dict[int, int] = {}
    for n in order:
        if n.is_leaf:
            leaves[id(n)] = frozenset() if n.op == "const" else frozenset((id(n),))
            counts[id(n)] = 1
            continue
        mine: frozenset[int] = frozenset().union(*(leaves[id(a)] for a in n.args))
        counts[id(n)] = 1 + sum(counts[id(a)] for a in n.args)  # shared ones more often: an upper bound
        leaves[id(n)] = mine
        if len(mine) > INPUTS:
            return n
        if counts[id(n)] > MANY:
            if sum(1 for _ in postorder(n)) > MANY:
                return n
            counts[id(n)] = sum(1 for _ in postorder(n))
    return None


# --- as JSON ---


def _number(x: Any) -> Any:
    f = float(x)
    return f if f - f == 0 else "NaN" if f != f else "Infinity" if f > 0 else "-Infinity"


def const_json(value: Any, dtype: DType) -> Dict[str, Any]:
    """A typed number."""
    kind = dtype.kind
    v: Any
    if kind == "f" and value != value and np.signbit(value):
        return {"op": "negative", "args": [const_json(abs(value), dtype)]}
    if kind == "b":
        v = bool(value)
    elif kind in "iu":
        v = int(value)
        v = v if -(2**53) <= v <= 2**53 else str(v)
    elif kind == "c":
        v = [_number(value.real), _number(value.imag)]
    else:
        v = _number(value)
    return {"op": "const", "value": v, "dtype": name_of(dtype)}


def to_json(root: Node) -> Dict[str, Any]:
    """`tree` and `let` of a request. Every leaf is a number or has a handle."""
    order = list(postorder(root))
    uses: Dict[int, int] = {}
    for n in order:
        for a in n.args:
            uses[id(a)] = uses.get(id(a), 0) + 1
    written: Dict[int, Any] = {}
    depth: Dict[int, int] = {}
    let: List[Any] = []
    for n in order:
        json: Any
        if n.handle is not None:
            json, d = n.handle.id, 0
        elif n.is_leaf:
            assert n.value is not None
            json, d = const_json(n.value[()], n.dtype), 1
        else:
            json = {"op": n.op, "args": [written[id(a)] for a in n.args], **n.attrs}
            if n.op in ("concat", "stack"):
                json["args"] = [json["args"]]
            d = 1 + max(depth[id(a)] for a in n.args)
            if n is not root and (uses[id(n)] > 1 or d > DEEP):
                name = f"t{len(let)}"
                let.append([name, json])
                json, d = name, 0
        written[id(n)], depth[id(n)] = json, d
    request: Dict[str, Any] = {"tree": written[id(root)]}
    if let:
        request["let"] = let
    return request


# --- for people ---

_INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%", "pow": "**",
          "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
          "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "bitwise_left_shift": "<<", "bitwise_right_shift": ">>"}


def describe(node: Node, most: int = 6) -> str:
    """The expression, for messages; what is deeper than `most` is an ellipsis."""
    if node.op == "const" and node.value is not None:
        return repr(node.value[()].item())
    if node.op in ("stored", "host", "create") or node.is_leaf:
        extents = ", ".join(map(str, node.shape))
        return (node.handle.name if node.handle and node.handle.name else "array") + f"({extents}; {name_of(node.dtype)})"
    if most == 0:
        return "…"
    args = [describe(a, most - 1) for a in node.args]
    if node.op in _INFIX:
        return "(" + f" {_INFIX[node.op]} ".join(args) + ")"
    if node.op == "getitem":
        return f"{args[0]}[{node.attrs['index']}]"
    return f"{node.op}({', '.join(args + [f'{k}={v!r}' for k, v in node.attrs.items()])})"
