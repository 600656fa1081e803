"""Expressions that are long, or that write to parts of arrays, as requests of statements. Without I/O.

What a program has built since it was last looked at is a stream of operations in the order in which it made them. It is sent as
statements in that order, in pieces that each fit into one request. A piece ends where the least is carried on to the next: between two
steps of a loop, so that the pieces of a long loop have the same text, and the server has the plan of the second already. The time is
linear in the number of operations.

`setitem` is the value of an array after an assignment to a part of it. It becomes an assignment to the part of

- the array itself, where nobody else has its memory or sees its old values;
- a temporary of this request that nobody reads any more;
- a temporary that is a copy, else.
"""
from __future__ import annotations

import itertools
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import numpy as np

from ._errors import ArraydError, ConnectionLost
from ._graph import DEEP, INPUTS, Node, const_json, describe, host, signed, union
from ._kept import THROUGH
from ._statements import NAMES, call_text
from ._transfers import line_of

STATEMENTS = 200  # of one request: the daemon's own limit is 256
NODES = 1500  # of one request, where there are more: so many that its plan is kept
PACKED = 1 << 13  # bytes: smaller values from this process travel together


NOBODY: Any = object()


class Piece(NamedTuple):
    request: Dict[str, Any]
    results: Dict[str, Node]  # by name: what is needed afterwards
    written: List[Tuple[Node, Any]]  # what is afterwards in the memory of a handle that was there before
    places: List[Node]  # of each statement the node
    order: List[Tuple[Node, Any]]  # nodes, and their handles, which must be held until the reply

    def said(self, e: ArraydError, at: Optional[int]) -> ArraydError:
        """The refusal, with the expression of that statement, and the line of the assignment that it is for, or of the only one there is."""
        if at is not None:
            e = e.with_expression(describe(self.places[at]))
        writes = [n for n in self.places[at or 0:] if n.op == "setitem" and (at is None or self.places[at] in union([n]))]
        return e.with_line(line_of(*writes[0].line)) if writes and (at is not None or len({n.line for n in writes}) == 1) else e

    def lose(self) -> None:
        """There is no reply. Nobody knows whether what it writes to has been written to, and a second time could add a second time."""
        for n, handle in self.order:
            if handle is not None and any(handle is written for _, written in self.written):
                n.lose(ConnectionLost(0, "contents_unknown", "a request that writes to this array had no reply: whether it has been written to is "
                                      "not known; make it anew"))


def wants(order: List[Node]) -> bool:
    """Whether an expression, given in postorder, has to be sent so."""
    n_leaves = 0
    for n in order:
        if n.op == "setitem":
            return True
        n_leaves += not n.args and n.op != "const"
    return len(order) > NODES or n_leaves > INPUTS


def stream(roots: List[Node]) -> List[Node]:
    """What has to be computed for them, in the order in which it was made."""
    return [n for n in union(roots) if n.args]


def beside(order: List[Node], period: int) -> List[Node]:
    """What else has been made with an expression's last step, of so many operations, and is there: a loop that is looked at leaves half of its
    last step to the next look, else."""
    if not period:
        return []
    inside = set(order)
    found: List[Node] = []
    for n in itertools.chain(order[-2 * period:], found):
        for other in itertools.chain((ref() for ref in n.users), n.args):
            if other.__class__ is Node and other not in inside and other.args:
                inside.add(other)
                found.append(other)
    return found if len(found) <= period else []


def of_use(nodes: List[Node], needed: Set[Node]) -> List[Node]:
    """Those that what is needed afterwards is made of."""
    used = set(needed)
    for n in reversed(nodes):
        if n in used:
            used.update(n.args)
    return [n for n in nodes if n in used]


def share(nodes: List[Node], wanted: Set[Node]) -> bool:
    """Whether two of those that are wanted are made of the same operation, of these, that is not wanted itself."""
    of: Dict[Node, Node] = {}
    for n in reversed(nodes):
        whose = n if n in wanted else of.get(n, n)
        for a in n.args:
            if a.args and a not in wanted and of.setdefault(a, whose) is not whose:
                return True
    return False


def kept(nodes: List[Node], root: Node) -> Tuple[Set[Node], Set[Node]]:
    """Of a stream: what is to be kept when it has been computed, and what else may be asked for again, and is then computed anew. Kept
    are the root, and what would be computed again although it is no mere rearrangement: arrays that were written to, and what has
    been computed before."""
    inside, wanted = set(nodes), {root}
    again: Set[Node] = set()
    for n in reversed(nodes):
        for ref in n.users:
            user = ref()
            if user is not None and (user.__class__ is not Node or user not in inside or user in again):
                break
        else:  # nearly always: arguments of what is computed with it
            continue
        if n is not root and n.is_asked_for(inside, again):
            (wanted if n.op == "setitem" or n.met and n.op not in THROUGH else again).add(n)
    return wanted, again


def pieces(nodes: List[Node], wanted: Set[Node]) -> List[Tuple[List[Node], Set[Node]]]:
    """The stream in parts that fit into a request each, and of each part what is needed after it."""
    place = {n: k for k, n in enumerate(nodes)}
    last = [len(nodes) if n in wanted else k for k, n in enumerate(nodes)]
    for k, n in enumerate(nodes):
        for a in n.args:
            if a in place and last[place[a]] < k:
                last[place[a]] = k
    carried = [0] * (len(nodes) + 1)  # bytes that are needed on both sides of each place
    for k, n in enumerate(nodes):
        if last[k] > k:
            carried[k + 1] += n.nbytes + 1
            carried[min(last[k], len(nodes) - 1) + 1] -= n.nbytes + 1
    for k in range(1, len(nodes) + 1):
        carried[k] += carried[k - 1]
    parts = []
    begin = 0
    while begin < len(nodes):
        end = min(_fitting(nodes, begin), len(nodes))
        if end < len(nodes):
            least = begin + max(1, (end - begin) // 3)
            end = min(range(least, end + 1), key=lambda k: (carried[k], -k))
        part = nodes[begin:end]
        parts.append((part, {n for k, n in zip(range(begin, end), part) if last[k] >= end}))
        begin = end
    return parts


def halves(nodes: List[Node], wanted: Set[Node]) -> List[Tuple[List[Node], Set[Node]]]:
    """Two parts of what is too much for a request, and of each what is needed after it."""
    middle = len(nodes) // 2
    first, then = nodes[:middle], nodes[middle:]
    used = {a for n in then for a in n.args}
    return [(first, {n for n in first if n in wanted or n in used}), (then, {n for n in then if n in wanted})]


def _fitting(nodes: List[Node], begin: int) -> int:
    """Where a request that begins there has to end at the latest."""
    leaves: Set[Node] = set()
    used: Set[Node] = set()
    statements = 0
    first = nodes[begin].number
    for k in range(begin, len(nodes)):
        n = nodes[k]
        leaves.update(a for a in n.args if (a.number < first or not a.args) and a.op != "const" and not _is_packed(a))
        statements += 2 if n.op == "setitem" else 0
        for a in n.args:
            if a in used and a.args:  # used twice: a statement of its own
                statements += 1
            used.add(a)
        if k > begin and (len(leaves) > INPUTS or statements > STATEMENTS or k - begin >= NODES):
            return k
    return len(nodes)


class Packed(NamedTuple):
    pack: Node  # an array of rank 1
    part: str  # where in it the values are: an index


def _is_packed(n: Node) -> bool:
    return n.op == "host" and n.handle is None and not n.met and 0 < n.nbytes <= PACKED


def packs(leaves: List[Node]) -> Dict[Node, Packed]:
    """Values of this process' that are few, each used for the first time, such as the columns that a loop takes from a small array: one
    array of all that have a dtype, so that they are one upload. What is used again is worth an array of its own, as is what is alone."""
    found: Dict[Any, List[Node]] = {}
    for n in leaves:
        if _is_packed(n):
            found.setdefault(n.dtype, []).append(n)
    packed: Dict[Node, Packed] = {}
    for dtype, nodes in found.items():
        if len(nodes) > 1:
            pack, begin = host(np.concatenate([np.ravel(n.value) for n in nodes if n.value is not None]), dtype), 0
            for n in nodes:
                packed[n] = Packed(pack, f"{begin}:{begin + n.size}")
                begin += n.size
    return packed


class Writer:
    """Writes one piece."""

    def __init__(self, part: List[Node], needed: Set[Node], again: Set[Node], in_place: bool, packed: Dict[Node, Packed] = {}):
        self.part, self.needed, self.again, self.in_place, self.packed = part, needed, again, in_place, packed
        self.inside = set(part)
        self.left: Dict[Node, int] = {}  # uses that are still to come
        for n in part:
            for a in n.args:
                self.left[a] = self.left.get(a, 0) + 1
        self.bind: Dict[str, Any] = {}
        self.by_handle: Dict[str, str] = {}
        self.body: List[str] = []
        self.places: List[Node] = []
        self.texts: Dict[Node, str] = {}
        self.named: Dict[str, Node] = {}  # what is the value of each name now
        self.mentions: Dict[Node, Set[str]] = {}  # names that can be written to, in texts that are not statements
        self.depth: Dict[Node, int] = {}
        self.written: Dict[str, Any] = {}  # names of arrays that are written to, and their handles
        self.order: List[Tuple[Node, Any]] = []

    def fresh(self) -> str:
        return f"{NAMES}{len(self.body)}_{len(self.bind)}"

    def state(self, n: Node, text: str) -> str:
        """A statement of its own; its name."""
        name = self.fresh()
        self.body.append(f"{name} = {text}")
        self.places.append(n)
        self.texts[n], self.depth[n], self.named[name] = name, 0, n
        self.mentions[n] = {name}
        return name

    def leaf(self, n: Node) -> Optional[str]:
        if n.handle is not None:
            name = self.by_handle.get(n.handle.id)
            if name is None:
                name = self.by_handle[n.handle.id] = self.fresh()
                self.bind[name] = n.handle.id
            self.named[name] = n if self.named.get(name, n) is n else NOBODY  # two read one memory: it is not written to
            self.mentions[n] = {name}
            self.order.append((n, n.handle))
        elif n.value is not None and not n.shape:
            name = self.fresh()
            self.bind[name] = const_json(n.value, n.dtype)
            self.mentions[n] = set()
            if signed(n.value, n.dtype) != self.bind[name]:
                name = f"negative({name})"
        elif n in self.packed:
            pack, part = self.packed[n]
            of = self.texts.get(pack) or self.leaf(pack)
            name = f"{of}[{part}]" if len(n.shape) == 1 else f"reshape({of}[{part}], shape={list(n.shape)})"
            self.mentions[n] = self.mentions[pack]
            self.order.append((n, pack.handle))
        else:
            return None
        self.texts[n], self.depth[n] = name, 0
        return name

    def write(self) -> bool:
        """False where the text cannot say it."""
        for n in self.part:
            for a in n.args:
                if a not in self.texts and self.leaf(a) is None:
                    return False
            if n.op == "setitem":
                self.assign(n)
            else:
                text = call_text(n, [self.texts[a] for a in n.args])
                if text is None:
                    return False
                d = 1 + max([self.depth[a] for a in n.args])
                self.texts[n], self.depth[n] = text, d
                self.mentions[n] = set().union(*(self.mentions[a] for a in n.args))
                if n in self.needed or self.left.get(n, 0) > 1 or d > DEEP:
                    self.state(n, text)
            for a in n.args:
                self.left[a] -= 1
            self.order.append((n, None))
        return True

    def piece(self) -> Optional[Piece]:
        """None where the text cannot say it."""
        if not self.write():
            return None
        results: Dict[str, Node] = {}
        for n in self.part:
            if n in self.needed:
                name = self.texts[n]
                if name not in self.written:
                    results[name] = n
        written = [(self.named[name], handle) for name, handle in self.written.items()]
        request = {"statements": self.body, "results": list(results), "bind": self.bind}
        return Piece(request, results, written, self.places, self.order)

    def assign(self, n: Node) -> None:
        base, value = n.args
        target = self.texts[base]
        if not self.may_write(n, target):
            target = self.fresh()
            self.body.append(f"{target} = {self.texts[base]}")
            self.places.append(base)
        self.settle_what_mentions(target, {base, value})
        self.body.append(f"{target}[{n.attrs['index']}] = {self.texts[value]}")
        self.places.append(n)
        self.texts[n], self.depth[n], self.named[target] = target, 0, n
        self.mentions[n] = {target}

    def may_write(self, n: Node, name: str) -> bool:
        """Whether nobody but the assignment `n` reads the name's memory as it is now."""
        base = n.args[0]
        if self.named.get(name) is not base or self.left[base] > 1 or base in self.needed:
            return False
        if base in self.inside:
            return True
        handle = base.handle
        if not self.in_place or handle is None or not handle.unseen or not handle.steady or base.arrays() or \
                any(d not in self.inside or d in self.again for d in base.dependents()):
            return False
        self.written[name] = handle
        return True

    def settle_what_mentions(self, name: str, but: Set[Node]) -> None:
        """Texts that would read the name later on become statements now."""
        for m, names in list(self.mentions.items()):
            if name in names and m not in but and self.left.get(m, 0) > 0 and self.texts[m] != name:
                self.state(m, self.texts[m])
