"""How a node gets a value or memory on the server. Written without I/O: generators of requests (see `_requests.py`)."""
from __future__ import annotations

import contextlib
import re
import time
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, FrozenSet, List, Optional, Sequence, Set, Tuple

import numpy as np

from . import _config, _flow
from ._ahead import Ahead, Next, Ran, Start, is_few, together
from ._dtypes import DType, bytes_of, cast, from_bytes, name_of
from ._endpoint import Endpoint
from ._errors import ENDED, ArraydError, BadValue, ConnectionLost, ended_early
from ._flow import Flow
from ._graph import Handle, Node, Shape, Written, describe, forget_the_dead, number_of, postorder, stored, union
from ._keeping import keep, place_together
from ._kept import picked_again
from ._known import follows, take_numbers
from ._loops import WORTH, Body, Carried, Loop, Segment, Stream, apart, explained, last_step, may_repeat, numbers_of, operations, segments
from ._numbers import unwired
from ._releases import Releases
from ._replies import JOB, MADE, VALUE
from ._requests import OCTETS, Request, Response, Steps, ask
from ._stream import Packed, Piece, Writer, beside, halves, kept, of_use, packs, pieces, stream, wants
from ._transfers import code_of_user
from ._turns import turns

SMALL = 1 << 16  # bytes: such results come with the reply and are kept here
BRIEF = 1 << 28  # bytes that the operations of a program make in all: of fewer its end is waited for with its beginning
TINY = 1 << 12  # bytes: of such an array all elements are fetched where one is asked for, of a small one where a second is


class Engine:
    """One session's view of a daemon: what is yielded here carries the session's header."""

    def __init__(self, session: Optional[str], releaser: Releases, endpoint: Endpoint):
        self.session, self.releaser, self.url, self._endpoint = session, releaser, endpoint.url, endpoint
        self.headers = (("Arrayd-Session", session),) if session else ()
        self.ahead = None if endpoint.alone is None else Ahead()
        self.period = 0  # operations of a step of the last loop: the next is the same one, perhaps
        self.flow: Optional[Flow] = None  # of a client whose threads wait
        self.kept: "Deque[weakref.ref[Node]]" = deque()  # whose memory may have to go by computing others
        self.living: "weakref.WeakValueDictionary[str, Handle]" = weakref.WeakValueDictionary()  # our arrays that have no name, by id
        self._unwritten: "List[weakref.ref[Node]]" = []  # assignments to parts of arrays that have not been sent
        self._coords: "weakref.WeakKeyDictionary[Handle, FrozenSet[str]]" = weakref.WeakKeyDictionary()  # ids by our arrays, last told last

    @property
    def loops(self) -> bool:
        """Whether loops become programs: their end is waited for, and whole seconds are the least that HTTP can say."""
        timeout = self._endpoint.timeout
        return _config.settings.loops and (timeout is None or timeout >= 2)

    def ask(self, method: str, path: str, value: Any = None, **more: Any) -> Request:
        return ask(method, path, value, headers=self.headers, **more)

    # --- memory on the server ---

    def own(self, metadata: Dict[str, Any]) -> Handle:
        """A handle that goes when its last user here goes, unless it has a name: then others may count on it."""
        name = metadata.get("name")
        handle = Handle(metadata["id"], name, None if name else self.releaser)
        return handle if name else self.alive(handle)

    def alive(self, handle: Handle) -> Handle:
        self.living[handle.id] = handle
        return handle

    def note_coords(self, handle: Handle, metadata: Dict[str, Any]) -> None:
        """The server deletes coordinates that nobody made for themselves with the last array that has them: whoever refers to one keeps that array."""
        if (handle.ours or handle.bound) and "coords" in metadata:
            self._coords.pop(handle, None)
            self._coords[handle] = frozenset(c["array"] for c in metadata["coords"].values())

    def refer(self, id_: str, name: Optional[str] = None) -> Handle:
        """A handle of an array by its id; with a name it goes with no other."""
        handle = Handle(id_, name)
        if name is None:
            handle.goes_with = self.living.get(id_)
        if name is None and handle.goes_with is None:
            for ref in reversed(self._coords.keyrefs()):  # a list: other threads may note more meanwhile
                of = ref()
                if of is not None and id_ in self._coords.get(of, ()):
                    handle.goes_with = of
                    break
        return handle

    def upload(self, value: "np.ndarray[Any, Any]", dtype: DType, name: Optional[str] = None) -> Steps[Dict[str, Any]]:
        """POST (or, with a name, PUT) of the array's bytes; the metadata."""
        data = np.ascontiguousarray(value).reshape(value.shape)
        if data.dtype.byteorder == ">":
            data = data.astype(data.dtype.newbyteorder("<"))
        body = bytes_of(data) if data.size else b""
        extents = ",".join(map(str, value.shape))
        path = f"/v1/arrays/{name}" if name else "/v1/arrays"
        r = yield Request("PUT" if name else "POST", f"{path}?dtype={name_of(dtype)}&shape={extents}", body, OCTETS,
                          headers=self.headers)
        metadata: Dict[str, Any] = r.json(MADE)
        return metadata

    def make(self, body: Dict[str, Any]) -> Steps[Handle]:
        """An array of the server's own making."""
        return self.own((yield self.ask("POST", "/v1/arrays", body)).json(MADE))

    def place(self, node: Node) -> Steps[Handle]:
        """The node's memory on the server: uploaded, made or evaluated where it has none."""
        if node.handle is not None:
            return node.handle
        if node.op in ("host", "const"):
            assert node.value is not None
            made = self.own((yield from self.upload(node.value, node.dtype)))
            node.handle = node.handle or made
        elif node.op == "create":
            node.set_handle((yield from self.make(node.attrs)))
        elif node.op == "failed":  # where it was to be computed
            raise node.attrs["error"]
        elif not node.shape:  # a number is no array on the server
            yield from self.fetched(node)
            return (yield from self.place(node))
        else:
            written = yield from self.request_of(node)
            if node.handle is None:
                node.set_handle(self.own((yield from self.evaluate(written)).json(MADE)))
        assert node.handle is not None
        return node.handle

    # --- expressions ---

    def request_of(self, node: Node, given: bool = True, keeps: bool = True) -> Steps[Written]:
        """The expression, with every leaf on the server; what is more than a request takes is evaluated in parts, and with `keeps`
        what is met again before it. `given`: the request gives the node's own values."""
        counted: Set[Node] = set()
        while True:
            order = postorder(node)
            if self.waited_for(order):
                continue
            if take_numbers(order):
                follows(node)
                continue
            of = picked_again(order, counted, SMALL)
            if of is not None:
                yield from self.fetched(of)
                for n in order:
                    if n.op == "getitem" and not n.shape and n.args and n.args[0] is of and of.value is not None:
                        n.set_value(np.array(of.value[n.key]))
                continue
            if wants(order) or (self.loops and len(order) >= WORTH):
                s = Stream(sorted([n for n in order if n.args] + beside(order, self.period), key=number_of), self.period)
                if wants(order) or may_repeat(s):
                    yield from self.settle(node, s)
                    continue
            if keeps:
                keeps = False
                if (yield from keep(self, order, given)):  # a number itself comes with it
                    continue
            missing = [n for n in order if not n.args and n.handle is None and n.op != "const"]
            if not missing:
                return Written(order)
            for leaf in missing:
                yield from self.place(leaf)

    def waited_for(self, order: List[Node]) -> bool:
        """Whether some of an expression was being computed elsewhere, and now has been."""
        if self.flow is not None and self.flow.has(order):
            self.flow.wait()
            return True
        return self._endpoint.writing is not None and self._endpoint.writing.waits_for(order)

    def explain(self, node: Node) -> str:
        """How it would be computed, for people."""
        self._wait()
        if node.value is not None or node.handle is not None or not node.args:
            return "nothing is to be computed"
        s = Stream(stream([node]), self.period)
        if not wants(postorder(node)) and not (self.loops and may_repeat(s)):
            return f"one expression of {operations(len(s.nodes))}"
        lines = [explained(part, s.nodes) for part in segments(s, kept(s.nodes, node)[0], self.loops)]
        return "\n".join(lines + (self.ahead.explained(s.nodes) if self.ahead is not None else []))

    def _wait(self) -> None:
        if self.flow is not None:
            self.flow.wait()

    def assigned(self, node: Node) -> Node:
        """An assignment, which is sent with the next value that is wanted, or by `write`."""
        if node.op == "setitem":
            node.line = code_of_user()
            self._unwritten.append(weakref.ref(node))
            if len(self._unwritten) > 8:
                forget_the_dead(self._unwritten)
        return node

    def write(self) -> Steps[None]:
        """Sends the assignments that arrays still have."""
        for ref in [*self._unwritten]:
            node = ref()
            if node is not None and node.args and node.arrays():
                yield from self.place(node)
        self._unwritten.clear()

    def settle(self, node: Node, s: Stream) -> Steps[None]:
        """Computes a long expression, or one that writes to parts of arrays (see `_stream.py`), of these operations."""
        writing = self._endpoint.writing
        if writing is None:
            yield from self._settling(node, s)
            return
        writing.wait()
        if not all(n.args for n in s.nodes):  # another thread has done some of it meanwhile
            s = Stream(stream([node]), self.period)
        with writing.of(s.nodes):
            yield from self._settling(node, s)

    def _settling(self, node: Node, s: Stream) -> Steps[None]:
        wanted, again = kept(s.nodes, node)
        for part in segments(s, wanted, self.loops):
            if part.loop is not None:
                self.period = part.loop.period
            if part.loop is None or (yield from self.settle_loop(part.loop, s.nodes)) is None:
                yield from self.settle_pieces(of_use(s.nodes[part.begin:part.end], part.needed), part.needed | wanted, again)

    def under_way(self, node: Node, flow: Flow) -> int:
        """Where a loop is built, what there is of it is sent (see `_flow.py`). After how many operations that is to be seen to again."""
        rests = flow.rests(node)
        if rests or not self.loops or (self.ahead is not None and self.ahead.is_looking(node)):
            return rests or _flow.OFTEN
        nodes = stream([node])
        wanted, again = kept(nodes, node)
        parts = [*segments(Stream(nodes, self.period), wanted, True, True)]
        while parts and parts[-1].loop is None:
            parts.pop()
        loop = parts[-1].loop if parts else None
        if loop is not None:
            self.period = loop.period
        rests = flow.finds(node, nodes, loop)
        if not rests:
            flow.begin(self._sending(parts, nodes, again, flow), nodes)
        return rests or _flow.OFTEN

    def _sending(self, parts: List[Segment], nodes: List[Node], again: Set[Node], flow: Flow) -> Steps[None]:
        """Writes nothing in place, so that other threads may write meanwhile."""
        for s in parts:
            if s.loop is None:
                yield from self.settle_pieces(nodes[s.begin:s.end], s.needed, again, False)
                continue
            status = yield from self.settle_loop(s.loop, nodes)
            if status is None:
                flow.refuse()
                return
            flow.per_step = status["device_s"] / s.loop.steps

    def settle_pieces(self, nodes: List[Node], wanted: Set[Node], again: Set[Node], in_place: bool = True) -> Steps[None]:
        for whole, needed in pieces(nodes, wanted):
            part, packed = yield from self.placed_for(whole)
            piece = Writer(part, needed | wanted, again, in_place and self._endpoint.alone is not None and turns.have_no_others, packed).piece()
            try:
                if piece is not None:
                    yield from self.settle_piece(piece)
                    continue
            except BadValue as e:
                if e.code != "expression_too_large" or len(part) < 2:
                    raise
                for half, kept_of_it in halves(part, needed):
                    yield from self.settle_pieces(half, kept_of_it | wanted, again, in_place)
                continue
            for n in part:
                if n.args:
                    yield from self.settle_one(n)

    def placed_for(self, nodes: List[Node]) -> Steps[Tuple[List[Node], Dict[Node, Packed]]]:
        """Those that are still to be computed, now that what they are computed of is on the server, some of it packed."""
        packed: Dict[Node, Packed] = {}
        while True:  # other threads compute some of it meanwhile
            take_numbers([a for n in nodes for a in n.args])
            part = [n for n in nodes if n.args]
            leaves = {a: None for n in part for a in n.args if not a.args and a.handle is None and a.op != "const" and a not in packed}
            if not leaves:
                return part, packed
            packed.update(packs([*leaves]))
            for a in dict.fromkeys(packed[a].pack if a in packed else a for a in leaves):
                yield from self.place(a)

    def settle_piece(self, piece: Piece) -> Steps[None]:
        if not piece.request["statements"]:  # another thread has computed all of it
            return
        form = {"results": {name: {"value": VALUE} if n.shape == () else MADE for name, n in piece.results.items()}}
        try:
            results = (yield self.ask("POST", "/v1/evaluate", piece.request)).json(form)["results"]
            for n, handle in piece.written:
                n.set_handle(handle)
            for name, n in piece.results.items():
                if n.shape:
                    n.set_handle(self.own(results[name]))
                elif n.came is True:
                    n.came = cast(unwired(results[name]["value"]), n.dtype)
                else:
                    n.set_value(cast(unwired(results[name]["value"]), n.dtype))
            for n, _ in piece.order:
                n.met = True
        except ArraydError as e:
            if e.status < 400 or e.code == "unknown":  # not the daemon's refusal
                piece.lose()
            at = re.match(r"/statements/(\d+)", e.pointer or "")
            raise piece.said(e, int(at[1]) if at else None) from None
        except BaseException:
            piece.lose()
            raise

    def settle_loop(self, loop: Loop, nodes: List[Node]) -> Steps[Optional[Dict[str, Any]]]:
        """Runs it as a program, on copies of what it begins with: its job's status. None where that cannot be, and nothing has changed then."""
        if not all(n.args for n in nodes[loop.start:loop.end]):  # another thread has computed some of it meanwhile
            return None
        step, reads, others = last_step(loop, nodes)
        try:
            numbers = numbers_of(loop, nodes)
            ran = yield from self.run(apart(step, numbers), reads, others, loop.before, loop.steps, numbers=numbers)
        except ConnectionLost:
            raise
        except ArraydError:  # what is wrong with an expression itself is said of that
            return None
        if ran is None:
            return None
        states: Dict[Carried, Handle] = ran[0]
        status: Dict[str, Any] = ran[1]
        for n in nodes[loop.start:loop.end]:
            n.met = True
        for c, handle in states.items():
            k = loop.start + (status["step"] - c.back) * loop.period + c.at
            if k >= loop.start:
                nodes[k].set_handle(handle)
        if status["state"] != "done":
            raise ended_early(status)
        return status

    def run(self, step: List[Node], reads: Dict[Carried, Node], others: List[Node], before: Dict[Carried, Node], steps: int,
            record: Sequence[Node] = (), every: int = 1, numbers: Dict[Tuple[int, int], List[Node]] = {},
            copied: Callable[[], None] = lambda: None) -> Steps[Optional[Tuple[Dict[Carried, Handle], Dict[str, Any]]]]:
        """A program whose body are the operations of `step`, which begins with what was `before`: the memory of what it carries, and its
        job, which has ended. The values of `record`, of `every` so many steps, are the job's records of the same order. `numbers`: see
        `numbers_of`. None where there is no such program."""
        yield from place_together(self, [n for n in (*others, *before.values()) if n.shape])
        for n in others:
            yield from (self.place(n) if n.shape else self.fetched(n))
        if any(not n.args for n in step):
            return None
        body = Body(step, reads, record)
        body.take_numbers(numbers)
        if not body.finished():
            return None
        records = {f"r{k}": body.expression(n) for k, n in enumerate(record)}
        if None in records.values():
            return None
        states = yield from self.beginning({body.states[c]: n for c, n in before.items()})
        copied()
        made = dict(states)
        for name, values in body.tables.items():
            made[name] = self.own((yield from self.upload(np.concatenate([n.value.reshape(1) for n in values if n.value is not None]), values[0].dtype)))
        if body.counter:
            made[body.counter] = self.own((yield from self.upload(np.zeros((), np.int64), np.dtype(np.int64))))
        request = {"body": body.body, "steps": steps, "bind": {**body.bind, **{name: handle.id for name, handle in made.items()}}}
        if records:
            request.update(record=records, record_every=every)
        status = yield from self.run_program(request, steps * sum(n.nbytes for n in step) < BRIEF)
        return {c: states[name] for c, name in body.states.items()}, status

    def beginning(self, values: Dict[str, Node]) -> Steps[Dict[str, Handle]]:
        """Arrays of their own with these values, by name."""
        made: Dict[str, Handle] = {}
        copied: Dict[str, Handle] = {}
        for name, n in values.items():
            if n.value is not None or not n.shape:
                made[name] = self.own((yield from self.upload((yield from self.fetched(n)), n.dtype)))
            elif n.handle is None and n.op == "create":
                made[name] = yield from self.make(n.attrs)
            else:
                copied[name] = yield from self.place(n)
        if copied:
            names = {f"{name}b": name for name in copied}
            request = {"statements": [f"{name} = {of}" for of, name in names.items()], "results": [*copied],
                       "bind": {of: copied[name].id for of, name in names.items()}}
            results = (yield self.ask("POST", "/v1/evaluate", request)).json({"results": {name: MADE for name in copied}})["results"]
            made.update((name, self.own(results[name])) for name in copied)
        return made

    def run_program(self, request: Dict[str, Any], brief: bool) -> Steps[Dict[str, Any]]:
        """The job's status when it has ended, however. It is not left behind where somebody interrupts the waiting, but for a `brief`
        one that has not been answered yet."""
        timeout = self._endpoint.timeout
        longest = 30 if timeout is None else min(30, int(timeout / 2))

        def waiting(r: Request, seconds: int) -> Request:
            return r._replace(headers=(*r.headers, ("Prefer", f"wait={seconds}")))

        begin = waiting(self.ask("POST", "/v1/programs?wait=1", request), 1) if brief else self.ask("POST", "/v1/programs", request)
        status: Dict[str, Any] = (yield begin).json(JOB)
        path = f"/v1/jobs/{status['id']}"
        try:
            while status["state"] not in ENDED:
                status = (yield waiting(self.ask("GET", f"{path}?wait=1"), longest)).json(JOB)
        finally:
            if status["state"] not in ENDED:
                self.releaser.add(path)  # stops it
            self.releaser.add(path)
        return status

    def settle_one(self, n: Node) -> Steps[None]:
        """What the text of a statement cannot say, as a request of its own."""
        if n.op == "setitem":
            base, value = n.args
            handle = yield from self.place(base)
            handle = yield from self.copy(handle)
            yield from self.evaluate((yield from self.request_of(value)), out=handle.id, index=n.attrs["index"])
            n.set_handle(handle)
        elif n.shape:
            n.set_handle(self.own((yield from self.evaluate((yield from self.request_of(n, keeps=False)))).json(MADE)))
        else:
            n.set_value(from_bytes((yield from self.evaluate((yield from self.request_of(n, keeps=False)), OCTETS)), n.shape, n.dtype))

    def evaluate(self, written: Written, accept: Optional[str] = None, **more: Any) -> Steps[Response]:
        """`more`: further members of the request."""
        body = {**written.request, **more} if more else written.request
        try:
            r: Response = yield self.ask("POST", "/v1/evaluate", body, accept=accept, safe=accept is not None)
        except ArraydError as e:
            if e.pointer and e.pointer.startswith(("/tree", "/let")):
                raise e.with_expression(describe(written.node_at(e.pointer))) from None
            raise
        for n, _ in written.order:
            n.met = True
        return r

    def fetch(self, node: Node) -> Steps["np.ndarray[Any, Any]"]:
        """The values, in memory of this process (read-only where they are kept)."""
        if node.value is not None or (not node.shape and follows(node)):
            assert node.value is not None
            return node.value
        if self.is_look(node):
            assert self.ahead is not None
            return node.value if self.ahead.look(node) else (yield from self.looked(node, self.ahead))  # type: ignore[return-value]
        if self.ahead is not None and self.loops and together(node):
            yield from self.fetch(node.args[0])
        elif node.args and self.ahead is not None:
            self.ahead.leave()
        return (yield from self.fetched(node))

    def is_look(self, node: Node) -> bool:
        """A number, or a few, that are to be computed, and may have been foreseen (see `_ahead.py`)."""
        return self.ahead is not None and self.loops and (is_few(node) if node.shape else not follows(node) and bool(node.args) and not together(node))

    def looked(self, node: Node, ahead: Ahead) -> Steps["np.ndarray[Any, Any]"]:
        """It was not."""
        following = None if self.flow is None else ahead.was_next(self.flow)
        start = ahead.start(node) if following is None else following.start
        if start is not None:
            ran = (yield from self.run_ahead(start)) if following is None else following.ran
            if ran is None:
                ahead.refuse()
            elif ahead.begun(node, start, *ran):
                following = None if self.flow is None else ahead.next(start, ran[0], self.flow)
                if following is not None and self.flow is not None:
                    self.flow.begin(self._following(following.start, weakref.ref(following)), following.start.step)
                assert node.value is not None
                return node.value
        since = time.monotonic()
        value = yield from self.fetched(node)
        if node.value is None and not node.shape:
            node.set_value(value)
        ahead.took = time.monotonic() - since
        return value

    def run_ahead(self, start: Start, copied: Callable[[], None] = lambda: None) -> Steps[Optional[Ran]]:
        try:
            return (yield from self.run(start.step, start.reads, start.others, start.before, start.steps * start.every, start.looks, start.every,
                                        copied=copied))
        except ConnectionLost:
            raise
        except ArraydError:
            return None

    def _following(self, start: Start, of: "weakref.ref[Next]") -> Steps[None]:
        def copied() -> None:
            following = of()
            if following is not None:
                following.has_copies = True

        ran = yield from self.run_ahead(start, copied)
        following = of()
        if following is not None:
            following.ran = ran

    def fetched(self, node: Node) -> Steps["np.ndarray[Any, Any]"]:
        """The same, of what nobody looks at, or has not been foreseen."""
        if node.value is not None:
            return node.value
        if node.op == "getitem" and node.args[0].value is not None:
            node.set_value(np.array(node.args[0].value[node.key]))
            assert node.value is not None
            return node.value
        if node.op == "getitem" and not node.shape:
            of = node.args[0]
            if of.nbytes <= (SMALL if of.picked else TINY) and (of.handle is None or of.handle.steady):
                node.set_value(np.array((yield from self.fetched(of))[node.key]))
                assert node.value is not None
                return node.value
            of.picked += not of.args  # else it is counted below
        if node.handle is None and node.nbytes <= SMALL and node.op not in ("create", "failed"):
            written = yield from self.request_of(node)
            if node.value is not None:
                return node.value
            if node.handle is None:
                r = yield from self.evaluate(written, OCTETS)
                node.set_value(from_bytes(r, node.shape, node.dtype))
                assert node.value is not None
                return node.value
        handle = yield from self.place(node)
        value = np.empty(node.shape, node.dtype)
        if node.size:
            yield Request("GET", f"/v1/arrays/{handle.id}/data", accept=OCTETS, into=bytes_of(value), headers=self.headers)
        if node.nbytes <= SMALL and handle.steady:  # else it is asked for again
            node.set_value(value)
        return value

    def compute(self, node: Node) -> Steps[None]:
        """Evaluated; of numbers, the value comes here."""
        if node.shape:
            if node.args and self.ahead is not None:
                self.ahead.leave()
            yield from self.place(node)
        else:
            yield from self.fetch(node)

    def own_memory(self, user: Any, value: Optional[Node] = None, keeps: bool = False) -> Steps[Node]:
        """A node of the values of `user`, an array, whose memory may be written to: he is the only one here that sees it change. A
        shared array, and one that is exported for writing, is written to itself, once what was made of it here, but for `value`, which is what will be written, is known,
        and what is the same here has a copy; of others' memory, and where somebody here sees it, the copy is his. `keeps`: his own memory
        stays his, too."""
        self._wait()  # what is under way reads what others are
        node: Node = user._node
        handle = yield from self.place(node)
        if user._stays or (keeps and handle.ours):
            for later in node.dependents():
                if later is not value or later.dependents() or later.arrays():
                    yield from self.compute(later)
            same = [a for a in node.arrays() if a is not user]
            if same:
                kept = stored((yield from self.copy(handle)), node.shape, node.dtype)
                for a in same:
                    a._set(kept)
        elif not node.is_only_of(user) or not handle.unseen:
            handle = yield from self.copy(handle)
        return stored(handle, node.shape, node.dtype)

    def copy(self, handle: Handle) -> Steps[Handle]:
        made = self.own((yield self.ask("POST", f"/v1/arrays/{handle.id}/copy", {})).json(MADE))
        made.stays = handle.stays
        return made

    def assign(self, user: Any, value: Node, index: Optional[str] = None) -> Steps[Node]:
        """The node of `user`, an array, with `value` in the region `index`, or everywhere: written in place where he shares or exports it, or
        nobody else sees it, else to a copy."""
        target = yield from self.own_memory(user, value)
        assert target.handle is not None
        region = {} if index is None else {"index": index}
        yield from self.evaluate((yield from self.request_of(value, False)), out=target.handle.id, **region)
        return target
