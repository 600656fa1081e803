"""The expression behind an array: a graph of nodes, evaluated when a value is needed.

A node is one of
- an operation on other nodes (`op`, `args`, `attrs`), which becomes a node of the request's tree; of these "setitem" is the first
  argument with the second written to a part of it (see `_stream.py`);
- a number (`op` "const"), or values known here (`op` "host"): `value`, a read-only NumPy array;
- values on the server (`op` "stored"): `handle`;
- values that the server is to make (`op` "create"): `attrs` is the body of its POST /v1/arrays;
- values that are lost (`op` "failed"): `attrs` has the `error`.
Once evaluated a node becomes one of the middle two and lets its arguments go. Shapes and dtypes are known from the start.
"""
from __future__ import annotations

import itertools
import operator
import os
import threading
import weakref
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import numpy as np

from ._dtypes import DType, cast, name_of, plain
from ._numbers import wire
from ._releases import Releases

Shape = Tuple[int, ...]

DEEP = 40  # levels of one JSON tree: what is deeper goes into a `let`
MANY = 4000  # nodes of one request
INPUTS = 48  # arrays of one request


_forks = 0  # of this process, so far


def _forked() -> None:
    global _forks
    _forks += 1


_forgetting = threading.Lock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forgetting.acquire, after_in_parent=_forgetting.release, after_in_child=_forgetting.release)
    os.register_at_fork(after_in_parent=_forked)


class Handle:
    """An array of the server, deleted when nobody refers to it any more (if it is ours)."""

    __slots__ = ("id", "name", "lent", "writer", "stays", "goes_with", "_releases", "_forks", "__weakref__")

    def __init__(self, id_: str, name: Optional[str] = None, releases: Optional[Releases] = None):
        self.id, self.name, self._releases = id_, name, releases
        self.lent = False  # to the server, which may write to it
        self.stays = False  # assignments are written to it: it has ghost cells, say, which other memory would not have
        self.writer: Any = None  # the array whose memory this process has, or has leased, and may write to
        self.goes_with: Optional[Handle] = None  # of a coordinate: an array of ours with which the server would delete it
        self._forks = _forks
        if releases is not None:
            releases.watch(self, self._path)

    @property
    def _path(self) -> str:
        return f"/v1/arrays/{self.id}"

    @property
    def _bound(self) -> str:
        return f"{self._path}?coordinate=keep"

    @property
    def ours(self) -> bool:
        """Nobody else counts on it: it goes when we let it go."""
        return self._releases is not None and self._releases.owns(self._path)

    @property
    def unseen(self) -> bool:
        """Ours, and a write to it is seen nowhere else: no forked child has expressions of it, of values before."""
        return self.ours and self._forks == _forks

    @property
    def steady(self) -> bool:
        """Nobody writes to it: a new value of an array's is elsewhere, and what came here is good."""
        return self.ours and not self.lent and not self.stays and self.writer is None

    @property
    def bound(self) -> bool:
        return self._releases is not None and self._releases.owns(self._bound)

    def own(self, releases: Releases) -> None:
        """It is deleted by us, unless somebody else wants it."""
        self._releases = releases
        releases.watch(self, self._bound)

    def bind(self) -> None:
        """Others may want it: let go by us, it stays if it has got a name, and where others have it as a coordinate, until none has."""
        if self.ours and self._releases is not None:
            self._releases.keep(self._path)
            self.own(self._releases)

    def keep(self) -> None:
        """It is not deleted by us."""
        if self._releases is not None:
            self._releases.keep(self._path)
            self._releases.keep(self._bound)
            self._releases = None


NONE: Dict[str, Any] = {}
UNCOUNTED: Tuple[Any, ...] = ()  # as users: of a number that is many expressions', no array's, and never written to

_numbers = itertools.count()


class Node:
    __slots__ = ("op", "args", "attrs", "shape", "dtype", "value", "handle", "users", "key", "picked", "look", "at_look", "met", "came", "number", "line", "__weakref__")
    # compared and hashed by identity

    op: str
    value: Optional["np.ndarray[Any, Any]"]
    handle: Optional[Handle]
    line: Any  # of an assignment: where the user has written it

    def __init__(self, op: str, args: Tuple["Node", ...], shape: Shape, dtype: DType, attrs: Optional[Dict[str, Any]] = None):
        self.op, self.args, self.shape, self.dtype = op, args, shape, dtype
        self.number = next(_numbers)  # in the order in which they are made: arguments first
        self.attrs = attrs or NONE  # which are not changed: nodes share them
        self.value = self.handle = None
        self.key: Any = None  # of a getitem, for NumPy
        self.picked = 0  # requests in which single elements of it were wanted
        self.look: Any = None  # that it was made for, and where in that: see `_ahead.py`
        self.at_look = 0
        self.met = False  # it has been computed, as a part of others: see `_kept.py`
        self.came: Any = None  # a number's value, which came with another's: it is taken when it is needed; True: it is to come
        self.users: Any = []  # weak references
        me = weakref.ref(self)
        for a in args:
            users = a.users
            if users is not UNCOUNTED:
                users.append(me)
                if len(users) > 8:
                    forget_the_dead(users)

    def used_by(self, user: Any) -> None:
        users = self.users
        users.append(weakref.ref(user))
        if len(users) > 8:
            forget_the_dead(users)

    def dependents(self) -> List["Node"]:
        """Nodes whose values are still to be made of this one's."""
        users = [r() for r in self.users]
        return [u for u in users if isinstance(u, Node) and any(a is self for a in u.args)]

    def arrays(self) -> List[Any]:
        """Arrays whose values these are."""
        users = [r() for r in self.users]
        return [u for u in users if u is not None and not isinstance(u, Node) and u._own is self]

    def is_asked_for(self, inside: "Set[Node]", again: "Set[Node]") -> bool:
        """Whether it is an array's, or an argument of what is not computed with it, or is again."""
        for r in self.users:
            u = r()
            if u.__class__ is Node:
                if (u not in inside or u in again) and self in u.args:
                    return True
            elif u is not None and u._own is self:
                return True
        return False

    def is_only_of(self, user: Any) -> bool:
        """Nothing but `user`, an array, would see a change of the memory."""
        return not self.dependents() and all(a is user for a in self.arrays())

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
        self.args, self.attrs = (), NONE

    def share(self) -> None:
        """Others may write to its memory from now on: values that came here are not kept."""
        if self.handle is not None:
            self.value, self.op = None, "stored"

    def lose(self, error: Exception) -> None:
        """Who asks for its values gets the error, unless they are known here."""
        self.handle = None
        if self.value is None:
            self.op, self.args, self.attrs = "failed", (), {"error": error}
        else:
            self.op = "host" if self.shape else "const"

    def set_handle(self, handle: Handle) -> None:
        """It is on the server from now on; where two have asked at once, the first answer stays."""
        if self.handle is None:
            self.handle = handle
        self.op = "stored"
        self.args, self.attrs = (), NONE


def forget_the_dead(references: "List[weakref.ref[Any]]") -> None:
    """Now and then, so that there are never many more than are alive."""
    n = len(references) - 1
    if n & (n - 1) == 0 and _forgetting.acquire(False):
        try:  # another thread adds to the end meanwhile
            references[:n] = [r for r in references[:n] if r() is not None]
        finally:
            _forgetting.release()


def host(value: "np.ndarray[Any, Any]", dtype: DType) -> Node:
    """Takes the array: it must not be written to afterwards."""
    node = Node("host" if value.ndim else "const", (), value.shape, dtype)
    node.set_value(value)
    return node


def const(value: Any, dtype: DType) -> Node:
    return host(cast(value, dtype), dtype)


def stored(handle: Handle, shape: Shape, dtype: DType) -> Node:
    node = Node("stored", (), shape, dtype)
    node.handle = handle
    return node


def detached(op: str, args: Tuple[Node, ...], shape: Shape, dtype: DType, attrs: Dict[str, Any],
             value: "Optional[np.ndarray[Any, Any]]" = None) -> Node:
    """A node that its arguments do not know of."""
    node = Node(op, (), shape, dtype, attrs)
    node.args, node.value = args, value
    return node


def create(body: Dict[str, Any], shape: Shape, dtype: DType) -> Node:
    return Node("create", (), shape, dtype, {**body, "dtype": name_of(dtype)})


def postorder(root: Node) -> List[Node]:
    """Each node once, its arguments before it."""
    return union([root])


def union(roots: Sequence[Node]) -> List[Node]:
    """All nodes of several expressions, so: in the order of their making."""
    seen: Set[Node] = set()
    left = [*roots]
    while left:
        n = left.pop()
        if n not in seen:
            seen.add(n)
            left += n.args
    return sorted(seen, key=number_of)


number_of = operator.attrgetter("number")


def stream_of(root: Node, most: int) -> List[Node]:
    """Its operations; [] where they are more than so many."""
    found: List[Node] = [root] if root.args else []
    for n in found:
        found += [a for a in n.args if a.args and a not in found]
        if len(found) > most:
            return []
    return found


# --- as JSON ---


def const_json(value: "np.ndarray[Any, Any]", dtype: DType) -> Dict[str, Any]:
    """A typed number, of an array of rank 0. A NaN has no sign."""
    return {"op": "const", "value": wire(plain(value)), "dtype": name_of(dtype)}


def signed(value: "np.ndarray[Any, Any]", dtype: DType) -> Dict[str, Any]:
    json = const_json(value, dtype)
    if json["value"] == "NaN" and np.signbit(plain(value)):
        return {"op": "negative", "args": [json]}
    return json


class Written:
    """An expression as a request has it: `request` with `tree` and `let`. `order` are its nodes, whose handles are there as long as
    this is. Every leaf must be a number or have a handle."""

    __slots__ = ("request", "order", "_written")

    def __init__(self, order: List[Node]):
        self.order = [(n, n.handle) for n in order]
        uses: Dict[Node, int] = {}
        for n in order:
            for a in n.args:
                uses[a] = uses.get(a, 0) + 1
        self._written: Dict[Node, Any] = {}  # what each was written as, a name where that is in `let`
        written = self._written
        depth: Dict[Node, int] = {}
        let: List[Any] = []
        root = order[-1]
        json: Any
        for n in order:
            if n.handle is not None:
                json, d = n.handle.id, 0
            elif not n.args:
                assert n.value is not None
                json, d = signed(n.value, n.dtype), 1
            else:
                args: List[Any] = [written[a] for a in n.args]
                json = {"op": n.op, "args": [args] if n.op in ("concat", "stack") else args, **n.attrs}
                d = 1 + max([depth[a] for a in n.args])
                if n is not root and (uses[n] > 1 or d > DEEP):
                    let.append([f"t{len(let)}", json])
                    json, d = let[-1][0], 0
            written[n], depth[n] = json, d
        self.request: Dict[str, Any] = {"tree": written[root]}
        if let:
            self.request["let"] = let

    def node_at(self, pointer: str) -> Node:
        """The node that a place in the request was written for: the innermost one around it, else the whole."""
        root = self.order[-1][0]
        names = {name: tree for name, tree in self.request.get("let", ())}
        whose = {id(names[w] if isinstance(w, str) and w in names else w): n for n, w in self._written.items() if n.handle is None}
        place: Any = self.request
        found = root
        for key in pointer.split("/")[1:]:
            try:
                place = place[int(key)] if isinstance(place, list) else place[key]
            except (KeyError, IndexError, ValueError, TypeError):
                break
            found = whose.get(id(place), found)
        return found


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
    attrs = {k: v["value"] if isinstance(v, dict) else v for k, v in node.attrs.items()}
    return f"{node.op}({', '.join(args + [f'{k}={v!r}' for k, v in attrs.items()])})"
