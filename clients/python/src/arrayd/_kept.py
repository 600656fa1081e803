"""Which expressions' values are kept on the server though nobody has asked for them: what is met a second time.

A request gives the values of the expression that it was sent for, and of nothing in it. In a loop that looks at a number each step
what one step has computed is the next one's beginning, and would be computed again by each of the steps to come. So what has been in
a request before, and is in another one now, is computed for itself first and stays on the server: what can be asked for again
is computed twice at most, as part of others, and then for itself. Not kept are

- what nobody can ask for any more, once the request is answered: no variable has it, and no expression that is still to be computed;
- what only indexes, rearranges, repeats or casts values that are on the server: it is read through.

What is kept goes with its last user, as every array does. Here is no I/O, see `Engine.keep`.
"""
from __future__ import annotations

from typing import AbstractSet, List, Optional, Set

from ._graph import Node

THROUGH = frozenset(("getitem", "permute_dims", "expand_dims", "squeeze", "reshape", "broadcast_to", "flip", "roll", "tile", "repeat", "astype"))
STEPS = 3  # of these, one after the other: more cost more than to read the values themselves
MOST = 4  # expressions that one array is let go for


def met_again(order: List[Node], given: bool) -> List[Node]:
    """Of the nodes of an expression, in postorder, those that are to be kept, in that order. `given`: the last of them, the expression
    itself, has its values when it has been computed."""
    for n in order:
        if n.met and n.args:
            break
    else:
        return []
    inside = set(order)
    wanted: Set[Node] = set()
    found: List[Node] = []
    for n in reversed(order):  # what an expression is an argument of comes before it
        if not n.args or (given and n is order[-1]):
            continue
        if n in wanted or n.arrays() or any(later not in inside for later in n.dependents()):
            if n.met:
                found.append(n)
            else:  # it will be computed again some day, and then of these
                wanted.update(n.args)
    kept: Set[Node] = set()
    for n in reversed(found):
        if not _is_read_through(n, kept):
            kept.add(n)
    return [n for n in reversed(found) if n in kept]


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
