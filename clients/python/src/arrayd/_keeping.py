"""How several values become one request: what is kept with what is asked for, and what a program begins with. Steps of requests, as in
`_engine.py`; which values are kept is said in `_kept.py`."""
from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, List, Sequence

from ._dtypes import from_bytes
from ._errors import ArraydError, BadValue, Busy, ConnectionLost, OutOfMemory
from ._graph import Node, number_of, union
from ._kept import Habits, met_again, numbers_beside, settled_by
from ._loops import WORTH, Stream, may_repeat
from ._replies import MADE
from ._requests import OCTETS, Steps
from ._stream import share, stream, wants

if TYPE_CHECKING:
    from ._engine import Engine

TOGETHER = 4 << 20  # bytes of arrays that share nothing, in one request at most: its reply waits for them, theirs do not
LOOKED_AT = 32  # kept arrays, whether they can go, at a time


def keep(engine: "Engine", order: List[Node], given: bool) -> Steps[bool]:
    """Computes what is met again in an expression, given as its nodes in postorder (see `_kept.py`), and what lets go of what was
    kept so. Whether it has changed."""
    number = given and not order[-1].shape
    if number:
        Habits.note_used(order)
    nodes = met_again(order, given)
    beside = numbers_beside(order, nodes) if number else []
    if not nodes and not beside:
        return False
    try:
        inside = set(order)
        for ref in _oldest(engine):
            kept = ref()
            ends = [] if kept is None else settled_by(kept, inside, set(nodes))
            if ends is None:
                engine.kept.append(ref)
            else:
                nodes += [end for end in ends if end not in nodes]
            del kept
        yield from _give(engine, [*nodes, order[-1]] if number else nodes, beside)
        if number:
            Habits.note_kept(nodes)
    except ConnectionLost:
        raise
    except ArraydError:  # no memory for it, say: then it is computed again, and what is wrong with the expression itself is said of that
        pass
    return True


def _oldest(engine: "Engine") -> "List[weakref.ref[Node]]":
    """Some of what was kept, which is looked at."""
    some: "List[weakref.ref[Node]]" = []
    with contextlib.suppress(IndexError):  # another thread may take them, too
        while len(some) < LOOKED_AT:
            some.append(engine.kept.popleft())
    return some


def _give(engine: "Engine", nodes: List[Node], beside: Sequence[Node]) -> Steps[None]:
    """Computes each of them, in this order, and nothing in them; and numbers `beside`, where they can come in the same request."""
    of_arrays = [n for n in nodes if n.args and n.shape]
    with contextlib.suppress(BadValue, Busy, OutOfMemory):  # some of it may go, and what is wrong is said of its own place
        for n in beside:
            n.came = True
        yield from _together(engine, sorted([*beside, *nodes], key=number_of))
    for n in beside:
        if n.came is True:
            n.came = None
    for n in nodes:
        if not n.args:  # done
            continue
        written = yield from engine.request_of(n, keeps=False)
        if n.args and n.shape:
            n.set_handle(engine.own((yield from engine.evaluate(written)).json(MADE)))
        elif n.args:
            n.set_value(from_bytes((yield from engine.evaluate(written, OCTETS)), n.shape, n.dtype))
    engine.kept.extend(weakref.ref(n) for n in of_arrays)


def place_together(engine: "Engine", nodes: List[Node]) -> Steps[None]:
    """Computes these arrays by as few requests as there can be; what needs more is left as it is."""
    order = union(nodes)
    while engine.waited_for(order):
        order = union(nodes)
    if wants(order) or (engine.loops and len(order) >= WORTH and may_repeat(Stream(stream(nodes), engine.period))):
        return
    with contextlib.suppress(BadValue, Busy, OutOfMemory):
        yield from _together(engine, nodes)


def _together(engine: "Engine", nodes: List[Node]) -> Steps[None]:
    """Computes them by one request, if they are several, whose reply comes when all is there: what they share is computed once.
    Leaves them as they are where that gains nothing, or they are more than a request takes."""
    nodes = [n for n in nodes if n.args]
    if len(nodes) < 2:
        return
    of = stream(nodes)
    if all(n.shape for n in nodes) and sum(n.nbytes for n in nodes) > TOGETHER and not share(of, set(nodes)):
        return
    yield from engine.settle_pieces(of, set(nodes), set(), False)
