"""Which expressions' values are kept on the server though nobody has asked for them: what is met a second time.

A request gives the values of the expression that it was sent for, and of nothing in it. In a loop that looks at a number each step
what one step has computed is the next one's beginning, and would be computed again by each of the steps to come. So what has been in
a request before, and is in another one now, is computed for itself first and stays on the server: what can be asked for again
is computed twice at most, as part of others, and then for itself. In a loop that is looked at, steps
are much the same: what was kept in those before is kept in the first request that it is in, and what was kept in vain is not any more.
A number that an expression is made of comes with another that is asked for: it is no memory. Not kept are

- what nobody can ask for any more, once the request is answered: no variable has it, and no expression that is still to be computed;
- what only indexes, rearranges, repeats or casts values that are on the server: it is read through.

What is kept goes with its last user, as every array does. Here is no I/O, see `Engine.keep`.
"""
from __future__ import annotations

from typing import AbstractSet, Dict, List, Optional, Set

from ._graph import Node

THROUGH = frozenset(("getitem", "permute_dims", "expand_dims", "squeeze", "reshape", "broadcast_to", "flip", "roll", "tile", "repeat", "astype"))
STEPS = 3  # of these, one after the other: more cost more than to read the values themselves
TRIES = 2  # times that values are kept which nobody uses
MOST = 4  # expressions that one array is let go for


class Habits:
    """What came of it that values were kept: of looks that are much the same (see `_ahead.py`), by their places in these."""

    __slots__ = ("kept", "used")

    def __init__(self) -> None:
        self.kept: Dict[int, int] = {}  # how many times
        self.used: Set[int] = set()  # by an expression after the one that they were kept for

    @staticmethod
    def note_used(order: List[Node]) -> None:
        for n in order:
            if n.look is not None and n.handle is not None:
                n.look.habits.used.add(n.at_look)

    @staticmethod
    def note_kept(nodes: List[Node]) -> None:
        for n in nodes:
            if n.look is not None and n.handle is not None:
                kept = n.look.habits.kept
                kept[n.at_look] = kept.get(n.at_look, 0) + 1


def _is_to_be_kept(n: Node) -> bool:
    """What has been met, or would be in the looks to come as in those before; but not what was never used."""
    look = n.look
    if look is not None and n.at_look in look.habits.kept:
        return n.at_look in look.habits.used or (n.met and look.habits.kept[n.at_look] < TRIES)
    return n.met


def met_again(order: List[Node], given: bool) -> List[Node]:
    """Of the nodes of an expression, in postorder, those that are to be kept, in that order. `given`: the last of them, the expression
    itself, has its values when it has been computed."""
    if not any(n.args and _is_to_be_kept(n) for n in order):
        return []
    inside = set(order)
    wanted: Set[Node] = set()
    found: List[Node] = []
    for n in reversed(order):  # what an expression is an argument of comes before it
        if not n.args or (given and n is order[-1]):
            continue
        if n in wanted or n.arrays() or any(later not in inside for later in n.dependents()):
            if _is_to_be_kept(n):
                found.append(n)
            else:  # it will be computed again some day, and then of these
                wanted.update(n.args)
    kept: Set[Node] = set()
    for n in reversed(found):
        if not _is_read_through(n, kept):
            kept.add(n)
    return [n for n in reversed(found) if n in kept]


def numbers_beside(order: List[Node], nodes: List[Node]) -> List[Node]:
    """Of an expression, given so, numbers that variables have, besides these nodes: they can come with it."""
    return [n for n in order[:-1] if n.args and not n.shape and n.op not in THROUGH and n not in nodes and n.arrays()]


def _is_read_through(n: Node, kept: AbstractSet[Node]) -> bool:
    for _ in range(STEPS):
        if n.op not in THROUGH:
            return False
        n = n.args[0]
        if n.is_leaf or n in kept:
            return True
    return False


def settled_by(n: Node, inside: Set[Node], kept: AbstractSet[Node]) -> Optional[List[Node]]:
    """Of a kept node that no variable has any more, and only expressions still to be computed refer to, those of them to compute so that
    it can go: nothing but values, and what is just being `kept`, goes into them, and they take no more memory than it. None while a
    variable, or an expression that is being computed (`inside`), has it."""
    if n.arrays():
        return None
    later = n.dependents()
    if any(d in inside for d in later):
        return None
    ends = [end for end in (_end_of_chain(n, d, kept) for d in later[:MOST]) if end is not None]
    return [end for end in dict.fromkeys(ends) if end.nbytes <= n.nbytes]


def _end_of_chain(below: Node, d: Node, kept: AbstractSet[Node]) -> Optional[Node]:
    """The last expression of values alone, from `d` upwards, that is an argument of one only."""
    end = None
    while all(a is below or a.is_leaf or a in kept or _is_read_through(a, kept) for a in d.args):
        end = below = d
        later = d.dependents()
        if len(later) != 1 or d.arrays():
            break
        d = later[0]
    return end


def picked_again(order: List[Node], counted: Set[Node], small: int) -> Optional[Node]:
    """Of an expression, an array of so many bytes at most that is to be computed, and of which single elements were wanted before and are
    again: whoever goes through its elements does not have it computed for each of them. `counted`: arrays whose elements this request
    has been seen to want."""
    picked = {n.args[0] for n in order if n.op == "getitem" and not n.shape and n.args and n.args[0].args and n.args[0].nbytes <= small}
    for of in picked - counted:
        counted.add(of)
        of.picked += 1
    again = next((of for of in picked if of.picked > 1), None)
    return again if len(picked) == 1 or not any(n.op == "setitem" for n in order) else None
