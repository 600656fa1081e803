"""Loops that are sent while they are built: the daemon computes their first steps as Python builds the next ones.

What a thread has under way are steps (see `_requests.py`) whose requests are sent and not waited for. Now and then, as operations are
made, it is seen whether a reply has come; then the steps go on to their next request. They compute what the program has built, and
nothing else, on copies: when they end, the last step's arrays have their values. Whoever needs values before waits for that end.
"""
from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Any, Callable, List, Optional, Set

from ._errors import ArraydError
from ._graph import Node
from ._loops import Loop
from ._requests import Steps
from ._transport import Sent, Transport
from ._turns import Run, turns

OFTEN = 128  # operations after which it is seen what has come
FIRST = 250  # operations in which a loop is looked for
STEPS = 8  # that are sent at once, at least
WORTH = 1 << 28  # bytes that these make in all, at least: the requests take some time, too
MANY = 20000  # operations until a loop is looked for again, where one could not be sent
LEAVE_S = 3.0  # for the reply to what is not wanted any more
SECONDS = 0.004  # that the daemon takes for them, at least, where that is known

_all: "weakref.WeakSet[Flow]" = weakref.WeakSet()
_forsaken: List[Any] = []


@atexit.register
def _at_exit() -> None:
    """Before what is this process' is deleted: that is known then."""
    for flow in list(_all):
        flow.leave()


class Flow(threading.local):
    """What one thread has under way, and when more is to be sent."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        _all.add(self)
        self._steps: Optional[Steps[None]] = None
        self._sent: Optional[Sent] = None
        self._run = Run()
        self._what: List[Node] = []
        self._nodes: Set[Node] = set()
        self._is_left = False
        self._process = 0
        self._goes_on = False  # just now: what the steps themselves need does not wait for them
        self.period = 0  # operations of a step, of the last loop
        self.per_step = 0.0  # seconds, of the daemon's
        self.begins = 0  # the number of the first node that has not been sent
        self.least = FIRST  # operations from there to what is sent next

    # --- when ---

    def rests(self, node: Node) -> int:
        """After how many operations a loop is to be looked for; 0: now."""
        if self.is_under_way or node.nbytes * OFTEN < WORTH:
            return OFTEN
        return max(self.least - (node.number - self.begins), 0)

    def finds(self, node: Node, nodes: List[Node], loop: Optional[Loop]) -> int:
        """The loop that was found, if any: after how many operations it is worth to be sent; 0: now."""
        if loop is None:  # it is looked for again when there is as much again
            self.begins, self.least = node.number, max(FIRST, len(nodes))
            return self.least
        if loop.period != self.period:  # another one
            self.period, self.per_step = loop.period, 0.0
        made = sum(n.nbytes for n in nodes[loop.start:loop.start + loop.period])
        least = max(STEPS, int(SECONDS / self.per_step) if self.per_step else WORTH // made if made else STEPS)
        if loop.steps < least:
            return max((least - loop.steps) * loop.period, OFTEN)
        self.begins, self.least = nodes[loop.end - 1].number, least * loop.period
        return 0

    def refuse(self) -> None:
        """It was no program."""
        self.least = MANY

    # --- what is under way ---

    def has(self, nodes: List[Node]) -> bool:
        """Whether some of it is being computed."""
        return self._steps is not None and not self._goes_on and not self._nodes.isdisjoint(nodes)

    @property
    def is_under_way(self) -> bool:
        """Goes on with what has come. Whether there is more to come."""
        while self._sent is not None and not self._goes_on and self._sent.has_come:
            self._next()
        return self._steps is not None

    def begin(self, steps: Steps[None], nodes: List[Node]) -> None:
        """`nodes`: what they compute."""
        with turns.apart():
            self._transport.send_writes()
        self._steps, self._run, self._what, self._nodes, self._process = steps, Run().started(), nodes, set(nodes), os.getpid()
        self._next()

    def wait(self, enough: Callable[[], bool] = lambda: False) -> None:
        """Until all that is under way has ended, or enough of it."""
        while self._sent is not None and not self._goes_on and not enough():
            self._next()

    def leave(self, what: Optional[List[Node]] = None) -> None:
        """It ends here and now, if it computes that."""
        if what is not None and what is not self._what:
            return
        if self._goes_on:  # this is some finalizer's
            self._is_left = True
            return
        steps, sent, run, self._steps, self._sent = self._steps, self._sent, self._run, None, None
        self._what, self._nodes, self._is_left = [], set(), False
        if steps is None:
            return
        if self._process != os.getpid():
            _forsaken.append(steps)  # the parent's: to close it would stop its job
            return
        with turns.take(run):
            if sent is not None:
                try:
                    if sent.makes_nothing:
                        sent.abort()
                    else:  # what it makes is to be known, so that it can go
                        steps.send(sent.reply(LEAVE_S))
                except (StopIteration, ArraydError):
                    pass
            steps.close()
        run.end()

    def _next(self) -> None:
        """Takes a reply, and sends what is asked for then. What goes wrong is said of the values that somebody asks for."""
        if self._process != os.getpid():
            self.leave()
            return
        steps, sent, self._sent = self._steps, self._sent, None
        assert steps is not None
        self._goes_on = True
        try:
            with turns.take(self._run):
                try:
                    with turns.apart():
                        reply = None if sent is None else sent.reply()
                except ArraydError as e:
                    request = steps.throw(e)
                else:
                    request = steps.send(reply)  # type: ignore[arg-type]
                with turns.apart():
                    self._sent = self._transport.begin(request)
        except (StopIteration, ArraydError):
            self._is_left = True
        except BaseException:
            self._is_left = True
            raise
        finally:
            self._goes_on = False
            if self._is_left:
                self.leave()
