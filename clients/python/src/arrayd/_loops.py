"""Loops: what a stream of operations repeats becomes a program, which the daemon runs step by step by itself. Without I/O.

A loop that a program has written in Python makes the same operations again and again, each time of the results of the time before.
`Stream` finds that: a period, and where it begins. Between two steps lies what one leaves to the next (what is
`carried`); where a step begins is chosen so that this is the least. A step becomes the program's body, each carried value an array
that the body assigns; values from before the loop are bound to names.

The operations and their order are the user's: nothing is inferred but that operations are equal. (Sums of floats may differ in the last
digit from those of other requests, as always where other operations are fused with them.) Numbers may differ from step to step
(`0.1*i`): they go as an array from which each step takes its own. What else differs (an array made anew at random) is no loop, and is
sent as it is.
"""
from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

import numpy as np

from ._dtypes import name_of
from ._graph import Node, detached
from ._statements import call_text
from ._stream import Writer

LEAST = 4  # steps of a program: of fewer, statements are as quick
WORTH = 48  # operations in which loops are looked for, and that a loop has
NEARLY = 0.9  # of a stream: if one loop is that much, no other is looked for
LONGEST = 1500  # operations of a step
PERIODS = 12  # that are tried
BACK = 64  # steps that a value is carried, at most: of a list that is gone through, each step has an element that was made long before
LATELY = 500  # operations in which periods are looked for first
TEXTS = 4096

STENCILS = frozenset(("laplacian", "gradient", "divergence", "curl"))  # of operations whose attributes do not tell that they read neighbours

Places = Dict[Node, int]


class Carried(NamedTuple):
    """A value that later steps use: of operation `at` in a step, `back` steps before the one that uses it."""
    at: int
    back: int


class Loop(NamedTuple):
    start: int  # in the stream
    period: int
    steps: int
    before: Dict[Carried, Node]  # the first step's

    @property
    def end(self) -> int:
        return self.start + self.period * self.steps


def is_number(n: Node) -> bool:
    return n.op == "const" and n.value is not None and not n.shape


def leaf_key(n: Node) -> Any:
    """The same for leaves that have the same values."""
    if n.handle is not None:
        return n.handle.id, n.shape, n.dtype
    if n.value is not None and n.value.nbytes <= 64:
        return n.value.tobytes(), n.shape, n.dtype
    return repr(n.attrs) if n.op == "create" else n.number


def are_alike(a: Node, b: Node) -> bool:
    """Leaves that may be the same one in two steps."""
    if is_number(a):
        return is_number(b) and a.dtype == b.dtype
    return not is_number(b) and bool(leaf_key(a) == leaf_key(b))


def text_of(attrs: Dict[str, Any]) -> str:
    """The same for attributes that are the same. Those that many nodes share are written once."""
    if not attrs:
        return ""
    found = _texts.get(id(attrs))
    if found is not None and found[0] is attrs:
        return found[1]
    if len(_texts) >= TEXTS:
        _texts.clear()
    text = repr(attrs)
    _texts[id(attrs)] = attrs, text
    return text


_texts: Dict[int, Tuple[Dict[str, Any], str]] = {}


class Stream:
    """A stream of operations, as what repeats is looked for in it. `period`: what a step was before, perhaps."""

    def __init__(self, nodes: List[Node], period: int = 0):
        self.nodes, self._period = nodes, period
        self._loops: Optional[List[Loop]] = None
        self._keys: "Optional[np.ndarray[Any, Any]]" = None  # of all, once they are known
        self.place: Places = {n: k for k, n in enumerate(nodes)}
        self.last = [*range(len(nodes))]  # where each is used for the last time
        for k, n in enumerate(nodes):
            for a in n.args:
                at = self.place.get(a)
                if at is not None:
                    self.last[at] = k

    def _keys_from(self, begin: int) -> List[int]:
        """From there on: equal for what may be the same operation in another step (`again`)."""
        numbers: Dict[Any, int] = {}
        leaves: Dict[Node, int] = {}
        keys = []
        for n in self.nodes[begin:]:
            of = []
            for a in n.args:
                if a in self.place:
                    of.append(-1)
                else:
                    key = leaves.get(a)
                    if key is None:
                        key = leaves[a] = numbers.setdefault(a.dtype if is_number(a) else leaf_key(a), len(numbers))
                    of.append(key)
            whole = n.op, n.shape, n.dtype, (*of,), text_of(n.attrs)
            keys.append(numbers.setdefault(whole, len(numbers)))
        if begin == 0:
            self._keys = np.array(keys, np.int64)
        return keys

    def again(self, k: int, p: int) -> bool:
        """Whether operation `k` is that of `p` before: of what is as far before, or of the same from before both."""
        n, m = self.nodes[k], self.nodes[k - p]
        if n.op != m.op or n.shape != m.shape or (n.dtype is not m.dtype and n.dtype != m.dtype) \
                or (n.attrs is not m.attrs and text_of(n.attrs) != text_of(m.attrs)):
            return False
        for a, b in zip(n.args, m.args):
            if a is not b:
                place = self.place
                at, other = place.get(a), place.get(b)
                if at is None or other is None:
                    if at is not other or not are_alike(a, b):
                        return False
                elif at - other != p:
                    return False
        return True

    def periods(self) -> Iterator[int]:
        """Distances at which much seems to come again: first lately, then in all of it."""
        found: List[int] = []
        for begin in (len(self.nodes) - LATELY, 0) if len(self.nodes) > 2 * LATELY else (0,):
            for p in self._periods(begin):
                if p not in found:
                    found.append(p)
                    yield p

    def _periods(self, begin: int) -> List[int]:
        seen: Dict[Tuple[int, ...], int] = {}
        found: "Counter[int]" = Counter()
        keys = self._keys_from(begin)
        for k in range(2, len(keys)):
            three = (keys[k - 2], keys[k - 1], keys[k])
            before = seen.get(three)
            if before is not None and k - before <= LONGEST:
                found[k - before] += 1
            seen[three] = k
        return [p for p, n in found.most_common(PERIODS) if n >= LEAST - 1]

    def _likely(self, p: int) -> Iterator[Tuple[int, int]]:
        """Where `runs` may be, as far as the keys tell: all of it where they are not known yet."""
        if self._keys is None:
            yield p, len(self.nodes)
            return
        others = np.flatnonzero(self._keys[p:] != self._keys[:-p]) + p
        begins, ends = np.concatenate(([p], others + 1)), np.concatenate((others, [len(self.nodes)]))
        for i in np.flatnonzero(ends - begins >= max(1, p * (LEAST - 2))):
            yield int(begins[i]), int(ends[i])

    def runs(self, p: int) -> List[Tuple[int, int]]:
        """Where the stream is the same as `p` before it, for several steps."""
        runs = []
        again, least = self.again, max(1, p * (LEAST - 2))
        for begin, end in self._likely(p):
            for k in range(begin, end):
                if not again(k, p):
                    if k - begin >= least:
                        runs.append((begin, k))
                    begin = k + 1
            if end - begin >= least:
                runs.append((begin, end))
        return runs

    def carried_bytes(self, begin: int, end: int) -> List[int]:
        """Of each place from `begin` to `end`, how much is needed on both of its sides."""
        change = [0] * (end - begin + 2)
        for k in range(max(0, begin - 2 * (end - begin)), end):
            if self.last[k] > k and self.last[k] >= begin:
                change[max(k + 1 - begin, 0)] += self.nodes[k].nbytes + 1
                if self.last[k] < end:
                    change[self.last[k] + 1 - begin] -= self.nodes[k].nbytes + 1
        for k in range(1, len(change)):
            change[k] += change[k - 1]
        return change[:end - begin]

    def loop(self, p: int, run: Tuple[int, int]) -> Optional[Loop]:
        """The loop of that period whose steps lie in what is the same as before, and in the step before that."""
        begin, end = run[0] - p, run[1]
        mid = begin + p * ((end - begin) // p // 2)
        costs = self.carried_bytes(mid, min(mid + p, end))
        least = min(costs)
        cuts = [(mid + k - begin) % p for k, cost in enumerate(costs) if cost == least]
        cut = min(cuts, key=lambda c: (end - begin - c) % p)  # so that its last step is the last there
        start = begin + cut
        steps = (end - start) // p
        while steps >= 2:
            loop = self._whole(start, p, steps)
            if loop is not None:
                earlier = self._with_first(loop)
                return earlier or loop
            start, steps = start + p, steps - 1
        return None

    def _whole(self, start: int, p: int, steps: int) -> Optional[Loop]:
        """None where a step needs what was made in another one, and is the same for all."""
        before: Dict[Carried, Node] = {}
        for k in range(start, start + p):
            n, later = self.nodes[k], self.nodes[k + p]
            for a, b in zip(n.args, later.args):
                at = self.place.get(a)
                if at is None:
                    if b in self.place:
                        return None
                    continue
                if a is b:
                    if at >= start:
                        return None
                elif at < start:
                    if self.place.get(b, -1) - at != p:
                        return None
                    back = (start - at + p - 1) // p
                    if back > BACK:
                        return None
                    for i in range(1, back + 1):
                        place = start - i * p + (at + back * p - start)
                        if place < 0:
                            return None
                        before[Carried(at + back * p - start, i)] = self.nodes[place]
        for k in range(start + p, start + 2 * p):  # nothing of the first step is used by all
            for a, b in zip(self.nodes[k].args, self.nodes[k - p].args):
                if a is b and self.place.get(a, -1) >= start:
                    return None
        if any(c.back > 1 and not self._is_there(start, p, c) for c in before):
            return None
        return Loop(start, p, steps, before)

    def _is_there(self, start: int, p: int, c: Carried) -> bool:
        """Whether what was there before the loop's first step is what the steps make."""
        k = start - c.back * p + c.at
        if k < 0:
            return False
        n, m, place = self.nodes[k], self.nodes[start + c.at], self.place
        return n.op == m.op and n.shape == m.shape and n.dtype == m.dtype and text_of(n.attrs) == text_of(m.attrs) and all(
            (a in place) == (b in place) and (a in place or are_alike(a, b)) for a, b in zip(n.args, m.args))

    def _with_first(self, loop: Loop) -> Optional[Loop]:
        """With the step before, whose operations are of what there was before the loop."""
        start, p = loop.start - loop.period, loop.period
        if start < 0 or any(c.back > 1 for c in loop.before):
            return None
        before: Dict[Carried, Node] = {}
        for k in range(start, loop.start):
            n, later = self.nodes[k], self.nodes[k + p]
            if n.op != later.op or n.shape != later.shape or n.dtype != later.dtype or text_of(n.attrs) != text_of(later.attrs):
                return None
            for a, b in zip(n.args, later.args):
                at, then = self.place.get(a, -1), self.place.get(b, -1)
                if then < 0:
                    if at >= 0 or (leaf_key(a) != leaf_key(b) and not (is_number(a) and is_number(b) and a.dtype == b.dtype)):
                        return None
                elif a is b:
                    if at >= start:
                        return None
                elif at >= start:
                    if then - at != p:
                        return None
                elif start <= then < loop.start:
                    if a.shape != b.shape or a.dtype != b.dtype or before.setdefault(Carried(then - start, 1), a) is not a:
                        return None
                else:
                    return None
        if before.keys() != loop.before.keys():
            return None
        return Loop(start, p, loop.steps + 1, before)

    @property
    def loops(self) -> List[Loop]:
        """What repeats, in its order; parts do not overlap."""
        if self._loops is None:
            self._loops = self._found() if len(self.nodes) >= WORTH else []
        return self._loops

    def _found(self) -> List[Loop]:
        nodes, period = self.nodes, self._period
        found: List[Loop] = []
        for p in itertools.chain([period] if period else [], (p for p in self.periods() if p != period)):
            if any(p % loop.period == 0 and p <= loop.period * loop.steps for loop in found):  # several steps of one
                continue
            found += [loop for loop in (self.loop(p, run) for run in self.runs(p)) if loop is not None and loop.steps >= LEAST and p * loop.steps >= WORTH]
            if any(loop.period * loop.steps > NEARLY * len(nodes) for loop in found):
                break
        found.sort(key=lambda loop: (-loop.period * loop.steps, bool(numbers_of(loop, nodes)), loop.period))
        taken: List[Loop] = []
        for loop in found:
            if all(loop.end <= t.start or t.end <= loop.start for t in taken):
                taken.append(loop)
        return sorted(taken)


def numbers_of(loop: Loop, nodes: List[Node]) -> Dict[Tuple[int, int], List[Node]]:
    """Those that are not the same in all steps: of operation and argument."""
    found = {}
    for at in range(loop.period):
        for k, a in enumerate(nodes[loop.start + at].args):
            if is_number(a):
                all_steps = [nodes[j].args[k] for j in range(loop.start + at, loop.end, loop.period)]
                if any(n is not a for n in all_steps) and len({n.value.tobytes() for n in all_steps if n.value is not None}) > 1:
                    found[at, k] = all_steps
    return found


def may_repeat(s: Stream) -> bool:
    """Whether an expression that would go as a whole, given as its operations, is worth to go in steps."""
    return any(not is_elementwise(s.nodes[loop.start:loop.start + loop.period]) for loop in s.loops)


def is_elementwise(step: List[Node]) -> bool:
    """Whether one kernel can do many such steps without memory between them."""
    return all(not n.attrs and n.op not in STENCILS and n.shape == step[-1].shape for n in step)


def cut(loop: Loop, nodes: List[Node], wanted: Set[Node]) -> List[Loop]:
    """The loop in parts that end where values of steps are wanted as such. What is wanted must then be what is carried; a step of which
    anything else is wanted is left out."""
    p, most = loop.period, max([c.back for c in loop.before], default=0)
    named = [[k for k in range(p) if nodes[loop.start + s * p + k] in wanted] for s in range(loop.steps)]
    parts = []
    begin = 0
    while begin < loop.steps:
        first = next((s for s in range(begin, loop.steps) if named[s]), None)
        if first is None:
            parts.append((begin, loop.steps))
            break
        for end in range(min(first + most, loop.steps), first, -1):
            if all(Carried(k, end - s) in loop.before for s in range(first, end) for k in named[s]):
                break
        else:
            end = first
        parts.append((begin, end))
        begin = max(end, first + 1)
    return [_part(loop, nodes, a, b) for a, b in parts if b - a >= LEAST]


def _part(loop: Loop, nodes: List[Node], begin: int, end: int) -> Loop:
    start = loop.start + begin * loop.period
    before = loop.before if begin == 0 else \
        {c: nodes[start - c.back * loop.period + c.at] if c.back <= begin else loop.before[Carried(c.at, c.back - begin)] for c in loop.before}
    return Loop(start, loop.period, end - begin, before)


def _of_step(step: List[Node], made_of_it: Iterable[Node]) -> Set[Node]:
    """What of a step goes into expressions that are made of it."""
    inside, found = set(step), set()
    left = [*made_of_it]
    while left:
        n = left.pop()
        if n in inside:
            found.add(n)
        else:
            left += n.args
    return found


class Body(Writer):
    """A step as a program's body. `reads`: what of earlier steps it uses, as its operations have it."""

    def __init__(self, step: List[Node], reads: Dict[Carried, Node], recorded: Iterable[Node] = ()):
        super().__init__(step, {*_of_step(step, recorded), *(step[c.at] for c in reads)}, set(), False)
        self.states: Dict[Carried, str] = {}
        for c, n in reads.items():
            name = self.states[c] = self.fresh()
            self.bind[name] = None
            self.texts[n], self.depth[n], self.named[name], self.mentions[n] = name, 0, n, {name}
            if Carried(c.at, c.back + 1) in reads:  # it is read once more, when the step ends
                self.left[n] = self.left.get(n, 0) + 1
        self.tables: Dict[str, List[Node]] = {}  # of names, the numbers of all steps
        self.counter: Optional[str] = None  # the name of the step's number

    def take_numbers(self, numbers: Dict[Tuple[int, int], List[Node]]) -> None:
        """Numbers that are not the same in all steps (`numbers_of`), each with a node of its own (`apart`)."""
        names: Dict[Any, str] = {}  # of those that are the same in each step
        if numbers:
            self.counter = self.fresh()
            self.bind[self.counter] = None
        for (at, k), values in numbers.items():
            n = self.part[at].args[k]
            column = n.dtype, b"".join(v.value.tobytes() for v in values if v.value is not None)
            if column not in names:
                table = self.fresh()
                self.bind[table], self.tables[table] = None, values
                names[column] = self.fresh()
                self.body.append(f"{names[column]} = take({table}, {self.counter})")
                self.places.append(n)
            self.texts[n], self.depth[n], self.mentions[n] = names[column], 0, set()

    def may_write(self, n: Node, name: str) -> bool:
        base = n.args[0]
        ours = base in self.inside or name in self.states.values()
        return ours and self.named.get(name) is base and self.left[base] <= 1 and base not in self.needed

    def expression(self, n: Node) -> Optional[str]:
        """The text of what is made of a finished step; None where there is none."""
        if n in self.texts:
            return self.texts[n]
        if not n.args:
            return self.leaf(n)
        args = [self.expression(a) for a in n.args]
        return None if None in args else call_text(n, [str(a) for a in args])

    def finished(self) -> bool:
        """Writes it; False where the text cannot say it."""
        if not self.write():
            return False
        names = set(self.states.values())
        new = {c: self.texts[self.part[c.at]] for c in self.states if c.back == 1}
        for c, text in new.items():
            if text in names and text != self.states[c]:  # a state whose place another one has taken
                name = self.fresh()
                self.body.append(f"{name} = {text}")
                new[c] = name
        for c in sorted(self.states, key=lambda c: -c.back):
            text = new[c] if c.back == 1 else self.states[Carried(c.at, c.back - 1)]
            if text != self.states[c]:
                self.body.append(f"{self.states[c]} = {text}")
        if self.counter:
            self.body.append(f"{self.counter} += 1")
        return True


def apart(step: List[Node], numbers: Dict[Tuple[int, int], List[Node]]) -> List[Node]:
    """The step with a node of its own for each of these: what is one number in this step may be several in others."""
    if not numbers:
        return step
    copies: Dict[Node, Node] = {}
    for at, n in enumerate(step):
        args = tuple(detached(a.op, (), a.shape, a.dtype, {}, a.value) if (at, k) in numbers else copies.get(a, a) for k, a in enumerate(n.args))
        copies[n] = detached(n.op, args, n.shape, n.dtype, n.attrs)
    return [*copies.values()]


def last_step(loop: Loop, nodes: List[Node]) -> Tuple[List[Node], Dict[Carried, Node], List[Node]]:
    """Its operations, what they use of earlier steps, and what of other things."""
    start = loop.end - loop.period
    step = nodes[start:loop.end]
    reads = {c: nodes[start - c.back * loop.period + c.at] for c in loop.before}
    inside = {*nodes[loop.start:loop.end], *reads.values()}
    return step, reads, list(dict.fromkeys(a for n in step for a in n.args if a not in inside))


class Segment(NamedTuple):
    begin: int
    end: int
    needed: Set[Node]  # of its nodes, what is used after it
    loop: Optional[Loop]


def segments(s: Stream, wanted: Set[Node], loops: bool = True, keeps: bool = False) -> Iterator[Segment]:
    """A stream, in parts that are sent one after the other: loops, where these are wanted, and what lies between them. `keeps`: what
    steps carry and some array has is wanted, too."""
    nodes = s.nodes
    last = [len(nodes) if n in wanted else k for n, k in zip(nodes, s.last)]

    def segment(begin: int, end: int, loop: Optional[Loop] = None) -> Segment:
        return Segment(begin, end, {nodes[k] for k in range(begin, end) if last[k] >= end}, loop)

    at = 0
    for whole in s.loops if loops else ():
        inside = {nodes[k] for k in range(whole.start, whole.end) if last[k] >= whole.end}
        if keeps:
            inside.update(nodes[k] for c in whole.before for k in range(whole.start + c.at, whole.end, whole.period) if nodes[k].arrays())
        for loop in cut(whole, nodes, inside):
            if at < loop.start:
                yield segment(at, loop.start)
            yield segment(loop.start, loop.end, loop)
            at = loop.end
    if at < len(nodes):
        yield segment(at, len(nodes))


# --- for people ---


def operations(n: int) -> str:
    return "1 operation" if n == 1 else f"{n} operations"


def explained(s: Segment, nodes: List[Node]) -> str:
    if s.loop is None:
        return f"statements: {operations(s.end - s.begin)}"
    carried = [nodes[s.loop.start + c.at] for c in sorted(s.loop.before)]
    what = ", ".join(f"({', '.join(map(str, n.shape))}; {name_of(n.dtype)})" for n in carried)
    differing = len(numbers_of(s.loop, nodes))
    numbers = f", {differing} numbers of its own each" if differing > 1 else ", a number of its own each" if differing else ""
    return f"a program: {s.loop.steps} steps of {operations(s.loop.period)}{numbers}, from one to the next {what or 'nothing'}"
