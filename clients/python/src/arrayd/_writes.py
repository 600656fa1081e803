"""Assignments to arrays that others share, by name say: they wait for the next request, whatever it is for, some milliseconds at most,
and go together, in their order and in place.
"""
from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple

from ._errors import ArraydError, ConnectionLost
from ._graph import Node, stored, stream_of
from ._indexing import Basic
from ._requests import Steps
from ._stream import Packed, Piece, Writer, pieces, stream
from ._transfers import code_of_user, line_of
from ._turns import again

if TYPE_CHECKING:
    from ._engine import Engine

Waiting = Tuple["Engine", Node, "List[weakref.ref[Node]]"]  # whose, the assignment, and what is to have the values before it

PAUSE_S = 0.005  # that they wait
MOST = 64  # that wait
OPERATIONS = 16  # of a value: a longer one is computed at once

_all: "weakref.WeakSet[Writes]" = weakref.WeakSet()
waiting: "Set[Writes]" = set()  # those that have something to send


@atexit.register
def finish() -> None:
    """At the interpreter's end, before what is this process' is deleted, and before its daemons end."""
    for writes in list(_all):
        try:
            writes.send()
        except ArraydError as e:
            print(f"arrayd: an assignment may not have been made: {e}", file=sys.stderr)


def send_waiting() -> None:
    """Those of all this process' connections. What goes wrong is said when one of theirs asks for something."""
    for writes in list(waiting):
        writes.in_time()


_at_worker_exit = 0  # the process that sends at its end as a worker


def _at_exit_of_worker() -> None:
    """The same in a child of multiprocessing's, which ends without exit hooks."""
    global _at_worker_exit
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None and _at_worker_exit != os.getpid():
        _at_worker_exit = os.getpid()
        if sys.modules["multiprocessing.process"].parent_process() is not None:
            util.Finalize(None, finish, exitpriority=0)


def _in_child() -> None:
    waiting.clear()
    for writes in list(_all):
        writes.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class InPlace(Writer):
    """Makes `writes` to the arrays themselves, whoever sees it. Other assignments, to arrays that have a part of the old values, are to
    copies."""

    def __init__(self, part: List[Node], needed: Set[Node], writes: Set[Node], packed: Dict[Node, Packed]):
        super().__init__(part, needed, set(), False, packed)
        self._writes = writes

    def may_write(self, n: Node, name: str) -> bool:
        if n not in self._writes:
            return super().may_write(n, name)
        self.written[name] = n.args[0].handle
        return True

    def piece(self) -> Optional[Piece]:
        """What is written to is no node's memory afterwards: the array's own node, made before, is that."""
        piece = super().piece()
        return None if piece is None else piece._replace(written=[])


def _steps(engine: "Engine", writes: List[Node], before: List[Node]) -> Steps[None]:
    """Makes the assignments; what else is made of the arrays' values keeps those that they had before: some of it is in `before`."""
    nodes = stream([*writes, *before])
    inside, made, written = set(nodes), set(writes), {w.args[0].handle for w in writes}
    wanted, of_them = set(writes), set()
    for n in nodes:
        if n not in made and any(a in of_them or a.handle in written for a in n.args):
            of_them.add(n)
            if _is_asked_for(n) or any(d not in inside for d in n.dependents()):
                wanted.add(n)
    for whole, needed in pieces(nodes, wanted):
        part, packed = yield from engine.placed_for(whole)
        piece = InPlace(part, needed, made, packed).piece()
        if piece is not None:
            yield from engine.settle_piece(piece)
            continue
        for n in part:  # which no text can say
            if n not in made:
                yield from (engine.settle_one(n) if n.op == "setitem" else engine.compute(n) if n in needed else ())
                continue
            base, value = n.args
            assert base.handle is not None
            yield from engine.evaluate((yield from engine.request_of(value, False)), out=base.handle.id, index=n.attrs["index"])
            n.met = True


def _is_asked_for(n: Node) -> bool:
    """By an array that has it of its own: views are made anew."""
    return any(a._view is None for a in n.arrays())


class Writes:
    """Those of one connection's clients. `run` makes the requests."""

    def __init__(self, run: Callable[[Any], Any]):
        self._run = run
        self.in_child()
        _all.add(self)

    def in_child(self) -> None:
        """What waits is the parent's."""
        self._waiting: List[Waiting] = []
        self._lock: Any = threading.RLock()
        self._late: Optional[ArraydError] = None  # of what was sent when nobody asked for anything
        self.is_due = False  # something waits, or is to be said

    def take(self, x: Any, v: Node, index: Basic, engine: "Engine") -> bool:
        """`v` is to be written to a part of the array. False where that cannot wait: something else is made of its values now."""
        node: Node = x._node
        handle = node.handle
        if engine._endpoint.leases or not x._shared or handle is None or handle.stays or handle.writer is not None or handle.lent or not node.shape:
            return False
        inside = set(stream_of(v, OPERATIONS))
        before = [d for d in node.dependents() if d not in inside and (_is_asked_for(d) or d.dependents())]
        if (v.args and not inside) or any(a is not x and a._view is None for a in node.arrays()) or len(before) > OPERATIONS \
                or any(n.op in ("setitem", "failed") for n in inside) or not all(stream_of(d, OPERATIONS) for d in before):
            return False
        self._send_others()  # which come before: either may read what the other writes
        made = Node("setitem", (node, v), node.shape, node.dtype, index.attrs)
        made.line = code_of_user()
        with self._lock:
            self._waiting.append((engine, made, [weakref.ref(d) for d in before]))
            many, first, self.is_due = len(self._waiting) >= MOST, len(self._waiting) == 1, True
            waiting.add(self)
        x._set(stored(handle, node.shape, node.dtype))
        if many:
            self.send()
        elif first:
            _at_exit_of_worker()
            timer = threading.Timer(PAUSE_S, self.in_time)
            timer.daemon = True
            timer.start()
        return True

    def in_time(self) -> None:
        """When nobody of this connection's has asked for anything; what goes wrong is said when he does."""
        try:
            self.send()
        except ArraydError as e:
            self._late, self.is_due = e, True

    def send_all(self) -> None:
        """If any wait: also those of this process' other connections, whose arrays may be the same."""
        self._send_others()
        if self.is_due:
            self.send()

    def _send_others(self) -> None:
        for others in [*waiting] if waiting else ():
            if others is not self:
                others.in_time()

    def send(self) -> None:
        """Now. What went wrong is said here, also of what has been sent meanwhile."""
        if self._lock._is_owned():  # this interrupts it
            raise again()
        with self._lock:
            some: List[Any] = []
            try:
                while self._waiting:
                    engine = self._waiting[0][0]
                    n = next((k for k, w in enumerate(self._waiting) if w[0] is not engine), len(self._waiting))
                    some, self._waiting = self._waiting[:n], self._waiting[n:]
                    self._late = self._made(engine, some) or self._late
                    some = []
            finally:
                if some:
                    self._late = ConnectionLost(0, "contents_unknown", "assignments to shared arrays were interrupted: whether they have been made is not "
                                                f"known, the first at {line_of(*some[0][1].line)}")
                self.is_due = bool(self._waiting) or self._late is not None
                if not self._waiting:
                    waiting.discard(self)
            if self._late is not None:
                late, self._late, self.is_due = self._late, None, bool(self._waiting)
                raise late

    def _made(self, engine: "Engine", some: List[Waiting]) -> Optional[ArraydError]:
        """What is wrong with one of them: then those that have not been made with others are made each by itself."""
        try:
            self._run(_steps(engine, [made for _, made, _ in some], [d for d in (ref() for _, _, refs in some for ref in refs) if d is not None]))
        except ArraydError as e:
            if len(some) == 1 or not e.status:
                return e
            wrong = [self._made(engine, [one]) for one in some if not one[1].met]
            return next((w for w in wrong if w is not None), None)
        return None
