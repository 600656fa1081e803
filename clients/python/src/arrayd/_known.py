"""Numbers that follow from numbers that are known here: they are computed here, without a request, where that gives the same bits.

That is for loops over single elements of small arrays, whose values are here. Only what is asked for is computed so; expressions remain
what they are.
"""
from __future__ import annotations

from typing import Any, Dict, List, Optional

import numpy as np

from ._graph import Node
from ._turns import turns

MOST = 64  # operations

# rounded once, or not at all, so that there is one right result
EXACT: Dict[str, Any] = {name: getattr(np, name) for name in (
    "add", "subtract", "multiply", "divide", "negative", "positive", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "bitwise_and", "bitwise_or", "bitwise_xor")}
SHIFTS = {"bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift}  # by fewer bits than there are
FUNCTIONS = {**EXACT, **SHIFTS}


def follows(n: Node) -> bool:
    """Whether the number is known, or could be computed: then it has been."""
    if n.value is not None:
        return True
    if n.shape or n.op not in FUNCTIONS:  # nearly always
        return False
    with turns.take():
        return _follows(n)


def take_numbers(nodes: List[Node]) -> bool:
    """Of these, takes the numbers that have come. Whether there were any."""
    come = [n for n in nodes if n.came is not None and n.came is not True and n.args]
    for n in come:
        if n.args:  # may be there twice
            n.set_value(n.came)
        n.came = None
    return bool(come)


def _follows(n: Node) -> bool:
    if n.value is not None:
        return True
    order = _operations(n)
    if order is None:
        return False
    with np.errstate(all="ignore"):
        values: Dict[Node, Any] = {}
        for m in order:
            args = [values[a] if a.value is None else a.value for a in m.args]
            if m.op in SHIFTS and not 0 <= args[1] < 8 * m.dtype.itemsize:
                return False
            value = FUNCTIONS[m.op](*args)
            if value.dtype != m.dtype:
                return False
            values[m] = np.asarray(value)
    for m in order:
        m.set_value(values[m])
    return True


def _operations(n: Node) -> Optional[List[Node]]:
    """Arguments first; None where one is not known."""
    found, left = {n}, [n]
    while left:
        m = left.pop()
        for a in m.args:
            if a.shape or a.dtype.kind not in ("f" if m.op == "divide" else "iuf") or a.dtype.itemsize == 2 or a.dtype != m.args[0].dtype:
                return None
            if a.value is None and a not in found:
                if a.op not in FUNCTIONS or len(found) > MOST:
                    return None
                found.add(a)
                left.append(a)
    return sorted(found, key=lambda m: m.number)
