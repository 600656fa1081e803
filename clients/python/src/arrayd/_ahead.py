"""Loops that are looked at: their next steps are computed before they are asked for. Without I/O.

A program that looks at numbers in each step of a loop (`while float(error) > 1e-6:`), or at small arrays, waits for each step. When its looks have come with
the same new operations several times, some steps more are run on the server at once, on copies, and their numbers recorded. Each look
after that is compared, operation by operation, with what was foreseen: as long as it is the same, its number is known. The arrays of
the program remain expressions of what there was before those steps; when all of them have been seen, the copies are their values.
Where the program does something else, its arrays are computed from the state that there was, by the steps that it has made: no
state is seen that it has not reached.

The operations of a look are those of no look before that the number depends on, or that are alive, were made since the look before and
depend on these or on what that one has made. (A look at an old array comes before one at the new array, which may have been made before
both.)
"""
from __future__ import annotations

import math
import weakref
from collections import deque
from threading import get_ident, local
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from ._dtypes import cast, kind
from ._flow import Flow
from ._graph import Node, detached, number_of, stored
from ._kept import Habits
from ._loops import LONGEST, Carried, Stream, last_step, leaf_key, numbers_of, text_of
from ._numbers import unwired

CYCLE = 16  # looks of one step
BACK = 6  # looks that a look may refer back to, at least
LOOKS = 4 * CYCLE + 1
FEW = 16  # numbers of a look
FIRST = 4  # steps ahead, at first
MOST = 128
MANY = 3000  # operations of a look: of more the request is the least
HABITS = 256  # looks of one thread's that these are remembered of
TAIL = 16  # operations of a look that come after its steps
SECONDS = 0.1  # that steps ahead may take: perhaps nobody wants them
LONG = 1000  # looks after which steps are run ahead again, at most, where they were in vain
SLOW = 0.5  # seconds that a look takes of a loop whose steps are not run ahead

Form = Tuple[Any, ...]
Ran = Tuple[Dict[Carried, Any], Dict[str, Any]]  # of a program, its memory and its job's status


class Look:
    """The operations that were made for a look."""

    __slots__ = ("number", "at", "form", "attrs", "args", "refs", "has")

    def __init__(self, among: "Deque[Look]", number: int, at: int, form: Form, nodes: List[Node], args: List[List[Any]],
                 attrs: List[Dict[str, Any]], habits: Habits):
        self.number = number
        self.at, self.form = at, form  # equal for looks that are the same: where the number is, and what the operations are
        self.attrs = attrs
        self.args = args  # of each operation: a place in the look; looks back, and a place there; or what else it is of, which may go
        self.refs = [weakref.ref(n) for n in nodes]
        have = Have(among, number, habits)
        self.has = weakref.ref(have)
        for k, n in enumerate(nodes):
            n.look, n.at_look = have, k


class Have:
    """What the operations of a look have, as long as there are any: whose look it is, and the run that foresaw it."""

    __slots__ = ("among", "number", "habits", "what", "__weakref__")

    def __init__(self, among: "Deque[Look]", number: int, habits: Habits):
        self.among, self.number = among, number  # one thread's looks, and which of them
        self.habits = habits
        self.what: Any = None


class Start(NamedTuple):
    """A program to be run. Its operations are copies of the user's, which remain as they are."""

    step: List[Node]
    reads: Dict[Carried, Node]
    others: List[Node]
    before: Dict[Carried, Node]
    steps: int  # of the loop that is looked at
    every: int  # of the program's body, from look to look
    looks: List[Node]  # what is recorded of a step
    forms: List[Tuple[int, Form]]
    first: int  # where in the look's operations the body's begin


class Next:
    """The steps after those that have been run ahead, while the program looks at these. `ran`: what they came to, if anything."""

    def __init__(self, start: Start, flow: Flow):
        self.start, self.flow = start, flow
        self.is_due = False  # those before it have all been seen
        self.has_copies = False  # of what it begins with, which the program may write to when it is its
        self.ran: Optional[Ran] = None


class Run:
    """Steps that have been run ahead. `values`: for each look of a step, its numbers in each step."""

    def __init__(self, start: Start, values: List[List[Any]], states: Dict[Carried, Any]):
        self.forms, self.values = start.forms, values
        self.states = {Carried(start.first + c.at, c.back): handle for c, handle in states.items()}
        self.seen = 0  # looks
        self.following: Optional[Next] = None

    def explained(self) -> str:
        return f"ahead: {self.seen // len(self.forms)} of {len(self.values[0])} steps that were run ahead have been looked at"

    @property
    def is_over(self) -> bool:
        return self.seen == len(self.forms) * len(self.values[0])


class Ahead(local):
    """One thread's looks."""

    def __init__(self) -> None:
        self.looks: Deque[Look] = deque(maxlen=LOOKS)
        self.last = -1  # the number of the last operation of all looks so far
        self._run: "Optional[weakref.ref[Run]]" = None  # the last steps' operations have it: it goes with them
        self._next: "Optional[weakref.ref[Next]]" = None
        self.forms: List[Tuple[int, Form]] = []  # of the last run
        self._habits: Dict[int, Habits] = {}
        self.refused: Optional[Form] = None  # of whose steps none is run ahead any more
        self.steps = FIRST
        self.run_ahead, self.unseen = 0, 0  # looks of the last run, and how many of them have not been made; the run itself may have gone
        self.pause = 0  # looks until steps are run ahead again, where the program leaves them
        self.paused = 0  # of these, how many are to come
        self.took = 0.0  # seconds, the last look that was not foreseen

    @property
    def run(self) -> Optional[Run]:
        return None if self._run is None else self._run()

    def explained(self, nodes: List[Node]) -> List[str]:
        """What there is to say of these operations."""
        run = self.run
        return [run.explained()] if run is not None and any(n.look is not None and n.look.what is run for n in nodes) else []

    def is_looking(self, node: Node) -> bool:
        """Whether a look may be the next that comes after this operation, and be the same as those before."""
        return bool(self.looks) and node.number <= self.last + MANY

    def leave(self) -> None:
        """The program does something else than to look: perhaps it has ended its loop."""
        run, self._run = self.run, None
        if run is not None:
            run.states.clear()
            run.following = None
        self._next = None

    def _reckon(self) -> None:
        """What comes of it that the last run was left, if it was."""
        if self.unseen:
            self.steps = max(2, (self.run_ahead - self.unseen) // len(self.forms))  # as many as such a loop makes, it seems
            if 4 * self.unseen > self.run_ahead:
                self.pause = self.paused = min(4 * self.pause + 4, LONG)
            self.unseen = 0

    def look(self, node: Node) -> bool:
        """A number is wanted. Whether it was foreseen: then the node has it."""
        try:
            return self._looking(node)
        except BaseException:  # an interrupt: it is not known which look would be the next
            self._forget()
            raise

    def _forget(self) -> None:
        self.looks = deque(maxlen=LOOKS)
        self.leave()

    def _looking(self, node: Node) -> bool:
        nodes = self._operations(node)
        self.last = max(nodes[-1].number if nodes else node.number, self.last)
        if not nodes:
            self._forget()
            return False
        self.looks.append(self._look(node, nodes))
        return self._foreseen(node)

    def _foreseen(self, node: Node) -> bool:
        run = self.run
        if run is None:
            return False
        step, k = divmod(run.seen, len(run.forms))
        if _what(self.looks[-1]) != run.forms[k]:
            self.leave()
            return False
        self._hold(run)
        values = [cast(unwired(v), node.dtype) for v in run.values[k][step]]
        node.set_value(np.stack(values).reshape(node.shape) if node.shape else values[0])
        run.seen += 1
        self.unseen -= 1
        if run.is_over:
            self._hand_over(run)
        return True

    def _hold(self, run: Run) -> None:
        self._run = weakref.ref(run)
        self._have(run, len(run.forms))

    def _have(self, what: Any, looks: int) -> None:
        for look in [*self.looks][-looks:]:
            have = look.has()
            if have is not None:
                have.what = what

    def _operations(self, node: Node) -> List[Node]:
        """In the order of their making; [] where they are too many to be looked through for what a look is worth."""
        last = self.last
        if node.number - last > MANY and last >= 0:
            return []
        found, left = {node}, [node]
        before = [n for n in (ref() for ref in self.looks[-1].refs) if n is not None] if self.looks else []
        for n in before:
            for ref in n.users:
                u = ref()
                if u.__class__ is Node and u.number > last and u.args and u not in found:
                    found.add(u)
                    left.append(u)
        while left and len(found) <= MANY:
            n = left.pop()
            for a in n.args:
                if (a.number > last or a.look is None) and a.args and a not in found:
                    found.add(a)
                    left.append(a)
            for ref in n.users:
                u = ref()
                if u.__class__ is Node and u.number > last and u.args and u not in found:
                    found.add(u)
                    left.append(u)
        return sorted(found, key=number_of) if not left else []

    def _look(self, node: Node, nodes: List[Node]) -> Look:
        looks = self.looks
        number = looks[-1].number + 1 if looks else 0
        for before in list(looks)[:-CYCLE - 1:-1]:
            if len(before.form) == len(nodes) and nodes[before.at] is node and self._is_again(before, nodes, number):
                return Look(looks, number, before.at, before.form, nodes, before.args, before.attrs, self._habits_of(nodes))
        place = {n: k for k, n in enumerate(nodes)}
        reach = self._reach(len(nodes))
        form: List[Any] = []
        args: List[List[Any]] = []
        for n in nodes:
            keys: List[Any] = [n.op, n.shape, n.dtype, text_of(n.attrs)]
            of: List[Any] = []
            for a in n.args:
                at: Any = place.get(a)
                if at is None:
                    look = a.look
                    if look is not None and look.among is looks and number - look.number <= reach and _is_steady(a):
                        at = number - look.number, a.at_look
                if at is not None:
                    keys.append(at)
                    of.append(at)
                else:
                    keys.append(_key(a))
                    of.append(a if a.op == "const" else weakref.ref(a))
            form.append(tuple(keys))
            args.append(of)
        return Look(looks, number, place[node], tuple(form), nodes, args, [n.attrs for n in nodes], self._habits_of(nodes))

    def _habits_of(self, nodes: List[Node]) -> Habits:
        """The same for looks that are much the same: it need not be of the same arrays."""
        if len(self._habits) >= HABITS:
            self._habits.clear()
        return self._habits.setdefault(hash(tuple([(n.op, n.shape) for n in nodes])), Habits())

    def _reach(self, operations: int) -> int:
        """How far back what a step uses may be: two steps, as far as one can tell by the looks of many operations."""
        counts = [*(len(look.form) for look in [*self.looks][-2 * CYCLE:]), operations]
        many = [k for k, n in enumerate(counts) if 2 * n > max(counts)]
        return max([BACK, *(2 * (b - a) for a, b in zip(many, many[1:]))])

    def _is_again(self, look: Look, nodes: List[Node], number: int) -> bool:
        """Whether the operations of this number's look are the same, and of the same."""
        for n, form, attrs, of in zip(nodes, look.form, look.attrs, look.args):
            if n.op != form[0] or n.shape != form[1] or n.dtype != form[2] or len(n.args) != len(of) \
                    or (n.attrs is not attrs and text_of(n.attrs) != form[3]):
                return False
            for k, a in enumerate(n.args):
                where = of[k]
                if where.__class__ is int:
                    if nodes[where] is not a:
                        return False
                elif where.__class__ is tuple:
                    have = a.look
                    if have is None or have.among is not self.looks or (number - have.number, a.at_look) != where or not _is_steady(a):
                        return False
                elif (a.op != "const" and (where.__class__ is Node or where() is not a)) or _key(a) != form[4 + k]:
                    return False
        return True

    # --- the beginning ---

    def start(self, node: Node) -> Optional[Start]:
        """What to run where looks, the last of them at `node`, have been the same for some time: that look is the first step's first."""
        looks = list(self.looks)
        if not looks:
            return None
        self._reckon()
        if self.paused:
            self.paused -= 1
            return None
        now = looks[-1]
        if now.form == self.refused or self.took > SLOW or kind(node.dtype) not in "biuf":
            return None
        for cycle in range(1, CYCLE + 1):
            if len(looks) > 2 * cycle and all(_what(looks[-1 - i]) == _what(looks[-1 - i - cycle]) for i in range(cycle + 1)):
                return self._program([now, *looks[len(looks) - cycle:-1]], looks)
        return None

    def _program(self, step: List[Look], looks: List[Look]) -> Optional[Start]:
        """`step`: its looks. None where something of it is not there any more, or others may write to what it reads."""
        cycle = len(step)
        made: List[List[Node]] = []
        firsts = _offsets([look.form for look in step])
        reads: Dict[Carried, Node] = {}
        before: Dict[Carried, Node] = {}
        others: Dict[Node, None] = {}
        def carried(i: int, at: int, back: int) -> Optional[Node]:
            """Of look `i`, so many steps back; and so that it can be, what is fewer steps back."""
            for b in range(1, back + 1):
                c = Carried(firsts[i] + at, b)
                if c not in reads:
                    ago = b * cycle - i
                    refs = looks[-1 - ago].refs if ago < len(looks) else []
                    was = refs[at]() if at < len(refs) else None
                    later = reads.get(c._replace(back=b - 1), was)
                    if was is None or later is None or not _is_steady(was) or (was.shape, was.dtype) != (later.shape, later.dtype):
                        return None
                    before[c], reads[c] = was, detached("stored", (), was.shape, was.dtype, {})
            return reads[Carried(firsts[i] + at, back)]

        for j, look in enumerate(step):
            made.append([])
            for (op, shape, dtype, *_), attrs, of in zip(look.form, look.attrs, look.args):
                args: List[Node] = []
                for a in of:
                    n: Optional[Node]
                    if isinstance(a, int):
                        n = made[j][a]
                    elif isinstance(a, tuple):
                        i, at = j - a[0], a[1]
                        n = made[i][at] if i >= 0 else carried(i % cycle, at, -(i // cycle))
                    else:
                        n = a if isinstance(a, Node) else a()
                        if n is None or not _is_steady(n):
                            return None
                        others[n] = None
                    if n is None:
                        return None
                    args.append(n)
                made[j].append(detached(op, tuple(args), shape, dtype, attrs))
        forms = [_what(look) for look in step]
        if forms != self.forms:
            self.forms, self.steps = forms, FIRST
        whole = Start([n for nodes in made for n in nodes], reads, list(others), before, self.steps, 1,
                      [n for nodes, look in zip(made, step) for n in _numbers(nodes[look.at])], forms, 0)
        return _inner(whole) or (whole if firsts[-1] <= LONGEST else None)

    def begun(self, node: Node, start: Start, states: Dict[Carried, Any], status: Dict[str, Any]) -> bool:
        """It has been run: whether the number is known now."""
        records = status.get("records", {})
        series = [records.get(f"r{k}", []) for k in range(len(start.looks))]
        if status["state"] != "done" or any(len(v) != start.steps for v in series):
            self.refuse()
            return False
        left = iter(series)
        values = [[*zip(*(next(left) for _ in range(math.prod(form[at][1]))))] for at, form in start.forms]
        per_step = status["device_s"] / start.steps  # without what was compiled for it
        self.steps = min(MOST, 2 * start.steps, int(SECONDS / per_step) if per_step else MOST)
        if self.steps < 2:
            self.refuse()
        try:
            self._hold(Run(start, values, states))
            self.run_ahead = self.unseen = len(values) * start.steps
            return self._foreseen(node)
        except BaseException:
            self._forget()
            raise

    def next(self, start: Start, states: Dict[Carried, Any], flow: Flow) -> Optional[Next]:
        """What is to be run after these steps, whose looks the program makes meanwhile. It goes with their run, and then with the arrays."""
        run = self.run
        if self.pause or self.refused == self.looks[-1].form or run is None or flow.is_under_way:
            return None
        before = {c: stored(handle, start.reads[c].shape, start.reads[c].dtype) for c, handle in states.items()}
        run.following = following = Next(start._replace(before=before, steps=self.steps), flow)
        thread, step = get_ident(), following.start.step

        def gone(_: Any) -> None:
            if get_ident() == thread:  # else it is seen to later
                flow.leave(step)

        self._next = weakref.ref(following, gone)
        return following

    def was_next(self, flow: Flow) -> Optional[Next]:
        """What has been run for the looks from the last one on."""
        found, self._next = None if self._next is None else self._next(), None
        if found is None:
            return None
        if found.is_due:
            flow.wait()
            return found if found.ran is not None else None
        flow.leave(found.start.step)
        return None

    def refuse(self) -> None:
        """Of the last look's loop no step is run ahead any more."""
        self.refused, self.steps = self.looks[-1].form, FIRST

    # --- the end ---

    def _hand_over(self, run: Run) -> None:
        """All that was foreseen has been made: the arrays have the values that were computed."""
        self.pause //= 2
        following = run.following
        if following is not None:
            following.flow.wait(lambda: following.has_copies)
        looks, cycle = list(self.looks), len(run.forms)
        firsts = _offsets([form for _, form in run.forms])
        for c, handle in run.states.items():
            j = next(k for k in reversed(range(cycle)) if firsts[k] <= c.at)
            n = looks[j - c.back * cycle].refs[c.at - firsts[j]]()
            if n is not None and n.args:
                n.set_handle(handle)
        if following is not None:
            following.is_due = True
        self._have(following, cycle)
        self._run = run.following = None
        run.states.clear()


def _inner(whole: Start) -> Optional[Start]:
    """Where there are several steps of a loop from look to look: a program of such a step."""
    step = whole.step
    loop = next((loop for loop in Stream(step).loops if loop.start == 0), None)
    if loop is None or len(step) - loop.end > TAIL or numbers_of(loop, step):
        return None
    first = loop.end - loop.period
    last, reads, _ = last_step(loop, step)
    begins = {c: whole.reads.get(Carried(first + c.at, c.back)) for c in loop.before}
    if begins != loop.before or len(begins) != len(whole.reads):
        return None
    there = {*last, *step[loop.end:]}
    if any(a.args and a not in there for n in step[loop.end:] for a in n.args):
        return None
    before = {c: whole.before[Carried(first + c.at, c.back)] for c in begins}
    return whole._replace(step=last, reads=reads, before=before, every=loop.steps, first=first)


def is_few(n: Node) -> bool:
    """Whether an array that is to be computed has so few numbers that it may be looked at."""
    return bool(n.args) and 0 < n.size <= FEW and (n.op != "getitem" or n.args[0].value is None)


def together(n: Node) -> bool:
    """Whether it is a number of such an array, whose numbers are looked at together."""
    return n.op == "getitem" and not n.shape and bool(n.args) and is_few(n.args[0])


def _numbers(n: Node) -> List[Node]:
    """Of a look, each of which is recorded by itself."""
    return [detached("getitem", (n,), (), n.dtype, {"index": ", ".join(map(str, at))}) for at in np.ndindex(n.shape)] if n.shape else [n]


def _what(look: Look) -> Tuple[int, Form]:
    return look.at, look.form


def _key(n: Node) -> Any:
    """The same for leaves that have the same values, also after others: memory that is written to is another node's then, or not steady
    from then on."""
    return leaf_key(n) if n.handle is None else (n.number, n.handle.steady)


def _is_steady(n: Node) -> bool:
    return n.handle is None or n.handle.steady


def _offsets(forms: List[Form]) -> List[int]:
    """Where in a step each look's operations begin, and how many there are."""
    offsets = [0]
    for form in forms:
        offsets.append(offsets[-1] + len(form))
    return offsets
