"""Threads take turns with expressions: what a run reads of them, and notes of what has been computed, between one of its requests and the
next, it does alone. So threads are to each other what an event loop's tasks are: what another has done is seen after a request, and at no
other time. While a request is waited for it is anybody's turn.

A signal handler and a finalizer interrupt their thread at any moment. Where that has its turn, they get values by copies of expressions, so
that it finds its own as they were; what is being written in place, and whatever else they ask for, is an error then, as they cannot wait.
"""
from __future__ import annotations

import contextlib
import os
import threading
from typing import Any, Collection, FrozenSet, Iterator, List, NamedTuple, Optional, Set


PAUSE_S = 1.0  # after which it is seen whether what an interrupt has ended is gone


class Run:
    """Some steps that one thread takes."""

    __slots__ = ("has_ended",)

    def __init__(self) -> None:
        self.has_ended = False

    def started(self) -> "Run":
        turns.under_way.add(self)
        return self

    def end(self) -> None:
        self.has_ended = True
        turns.under_way.discard(self)


class Turns:
    """The turns of this process' threads. `run`: whose turn it is, where `lock` is held."""

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self.run: Optional[Run] = None
        self.under_way: Set[Run] = set()  # those that have not ended
        self.is_interrupted = False

    def in_child(self) -> None:
        self.under_way.clear()  # the parent's
        self.lock.release()

    @property
    def have_no_others(self) -> bool:
        """No run but that whose turn it is: no request of another one, which may read memory that this one would write to in place."""
        return all(run is self.run for run in [*self.under_way])

    @property
    def are_taken(self) -> bool:
        """By this thread."""
        return bool(self.lock._is_owned())

    def begin(self) -> "Run":
        """Another run, outside all others."""
        if self.are_taken and not self.is_interrupted:
            raise again()
        return Run()

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """For a run within another's turn, which changes nothing that the other sees."""
        run, before, self.is_interrupted = self.run, self.is_interrupted, True
        try:
            yield
        finally:
            self.run, self.is_interrupted = run, before

    @contextlib.contextmanager
    def take(self, run: "Optional[Run]" = None) -> Iterator[None]:
        """A turn, of the run whose turn it is here already or else of this one."""
        held = self.are_taken
        with self.lock:
            if not held:
                self.run = run
            yield

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """For what waits: others take their turns meanwhile."""
        run, held = self.run, self.lock._release_save() if self.are_taken else None
        try:
            yield
        finally:
            if held is not None:
                self.lock._acquire_restore(held)
                self.run = run

    def wait(self) -> None:
        """For another's `changed`, some time."""
        if self.is_interrupted:
            raise again()
        run = self.run
        self._changed.wait(PAUSE_S)
        self.run = run

    def changed(self) -> None:
        with self.lock:
            self._changed.notify_all()


def again() -> RuntimeError:
    return RuntimeError("a signal handler, or a finalizer, asks for values while its thread is computing: it can only leave a note, and the thread ask later")


turns = Turns()

if hasattr(os, "register_at_fork"):  # a child has the expressions as no other thread is just changing them
    os.register_at_fork(before=turns.lock.acquire, after_in_parent=turns.lock.release, after_in_child=turns.in_child)


class Written(NamedTuple):
    """What one run computes in pieces; `nodes`: of it, if some is written in place."""

    run: Run
    thread: int
    nodes: FrozenSet[Any]


class Writing:
    """What is being computed in pieces on one daemon, of which some may be written in place: one thread's at a time. Called in turns."""

    def __init__(self) -> None:
        self._now: List[Written] = []  # of several each interrupts the one before, or is a part of it

    def wait(self) -> None:
        """Until no other thread has any."""
        while any(w.thread != threading.get_ident() and not w.run.has_ended for w in self._now):
            turns.wait()

    def check(self, nodes: Collection[Any]) -> None:
        """For who cannot wait: none of these nodes is being computed where something is written in place."""
        if any(not w.run.has_ended and any(n in w.nodes and n.args for n in nodes) for w in self._now):
            raise again()

    def waits_for(self, nodes: Collection[Any]) -> bool:
        """Where some of these nodes are another run's: until something has changed. What was computed of them meanwhile would be of memory
        before it is written to, or after."""
        for w in self._now:
            if w.run is not turns.run and not w.run.has_ended and any(n in w.nodes and n.args for n in nodes):
                if w.thread == threading.get_ident():
                    raise again()
                turns.wait()
                return True
        return False

    @contextlib.contextmanager
    def of(self, nodes: Collection[Any]) -> Iterator[None]:
        """What is computed inside."""
        self.waits_for(nodes)
        assert turns.run is not None
        mine = Written(turns.run, threading.get_ident(), frozenset(nodes if any(n.op == "setitem" for n in nodes) else ()))
        self._now.append(mine)
        try:
            yield
        finally:
            self._now[:] = [w for w in self._now if w is not mine and not w.run.has_ended]
            turns.changed()
