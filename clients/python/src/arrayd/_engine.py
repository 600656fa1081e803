"""How a node gets a value or memory on the server. Written without I/O: generators of requests (see `_transport.py`)."""
from __future__ import annotations

from typing import Any, Dict, Optional, Set

import numpy as np

from ._dtypes import DType, dtype_of, name_of
from ._errors import ArraydError
from ._graph import Handle, Node, Shape, Written, describe, postorder, stored, too_large
from ._releases import Releases
from ._transport import OCTETS, Request, Response, Steps, ask

SMALL = 1 << 16  # bytes: such results come with the reply and are kept here
TINY = 1 << 12  # bytes: of such an array all elements are fetched where one is asked for, of a small one where a second is


class Engine:
    """One session's view of a daemon: what is yielded here carries the session's header."""

    def __init__(self, session: Optional[str], releaser: Releases, url: str):
        self.session, self.releaser, self.url = session, releaser, url
        self.headers = (("Arrayd-Session", session),) if session else ()

    def ask(self, method: str, path: str, value: Any = None, **more: Any) -> Request:
        return ask(method, path, value, headers=self.headers, **more)

    # --- memory on the server ---

    def own(self, metadata: Dict[str, Any]) -> Handle:
        """A handle that goes when its last user here goes, unless it has a name: then others may count on it."""
        name = metadata.get("name")
        return Handle(metadata["id"], name, None if name else self.releaser)

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
        metadata: Dict[str, Any] = r.json()
        return metadata

    def make(self, body: Dict[str, Any]) -> Steps[Handle]:
        """An array of the server's own making."""
        return self.own((yield self.ask("POST", "/v1/arrays", body)).json())

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
        elif not node.shape:  # a number is no array on the server
            yield from self.fetch(node)
            return (yield from self.place(node))
        else:
            written = yield from self.request_of(node)
            node.set_handle(self.own((yield from self.evaluate(written)).json()))
        assert node.handle is not None
        return node.handle

    # --- expressions ---

    def request_of(self, node: Node) -> Steps[Written]:
        """The expression, with every leaf on the server; what is more than a request takes is evaluated in parts."""
        counted: Set[Node] = set()
        while True:
            order = postorder(node)
            picks = [n for n in order if n.op == "getitem" and not n.shape and n.args and n.args[0].args and n.args[0].nbytes <= SMALL]
            for of in {n.args[0] for n in picks} - counted:
                counted.add(of)
                of.picked += 1
            again = [n for n in picks if n.args[0].picked > 1]
            for n in filter(lambda n: n.args, again):  # whoever goes through its elements does not have it computed for each of them
                n.set_value(np.array((yield from self.fetch(n.args[0]))[n.key]))
            if again:
                continue
            much = too_large(order)
            parts = [a for a in much.args if not a.is_leaf] if much is not None else []  # without any, the server says what is too much
            if parts:
                yield from self.place(max(parts, key=lambda a: len(postorder(a))))
                continue
            missing = [n for n in order if not n.args and n.handle is None and n.op != "const"]
            if not missing:
                return Written(order)
            for leaf in missing:
                yield from self.place(leaf)

    def evaluate(self, written: Written, accept: Optional[str] = None, **more: Any) -> Steps[Response]:
        """`more`: further members of the request."""
        body = {**written.request, **more} if more else written.request
        try:
            return (yield self.ask("POST", "/v1/evaluate", body, accept=accept, safe=accept is not None))
        except ArraydError as e:
            if e.pointer and e.pointer.startswith(("/tree", "/let")):
                raise e.with_expression(describe(written.node_at(e.pointer))) from None
            raise

    def fetch(self, node: Node) -> Steps["np.ndarray[Any, Any]"]:
        """The values, in memory of this process (read-only where they are kept)."""
        if node.value is not None:
            return node.value
        if node.op == "getitem" and not node.shape:
            of = node.args[0]
            if of.nbytes <= (SMALL if of.picked else TINY):
                node.set_value(np.array((yield from self.fetch(of))[node.key]))
                assert node.value is not None
                return node.value
            of.picked += not of.args  # else it is counted below
        if node.handle is None and node.nbytes <= SMALL and node.op != "create":
            written = yield from self.request_of(node)
            if node.handle is None:
                r = yield from self.evaluate(written, OCTETS)
                node.set_value(from_bytes(r.body, node.shape, node.dtype))
                assert node.value is not None
                return node.value
        handle = yield from self.place(node)
        value = np.empty(node.shape, node.dtype)
        if node.size:
            yield Request("GET", f"/v1/arrays/{handle.id}/data", accept=OCTETS, into=bytes_of(value), headers=self.headers)
        if node.nbytes <= SMALL:
            node.set_value(value)
        return value

    def compute(self, node: Node) -> Steps[None]:
        """Evaluated; of numbers, the value comes here."""
        if node.shape:
            yield from self.place(node)
        else:
            yield from self.fetch(node)

    def own_memory(self, node: Node, user: Any) -> Steps[Node]:
        """A node of the same values whose memory may be written to by others than us: `user`, an array, is the only one here that
        sees it change. A named one is written to itself, once what was made of it is known; else it is copied where it must be."""
        handle = yield from self.place(node)
        if handle.name:
            for later in node.dependents():
                yield from self.place(later)
        elif not node.is_only_of(user):
            handle = self.own((yield self.ask("POST", f"/v1/arrays/{handle.id}/copy", {})).json())
        return stored(handle, node.shape, node.dtype)

    def assign(self, node: Node, exclusive: bool, index: str, value: Node) -> Steps[Node]:
        """The node with `value` in the region `index`: written in place where nobody else sees it, else a copy."""
        handle = yield from self.place(node)
        if not exclusive:
            handle = self.own((yield self.ask("POST", f"/v1/arrays/{handle.id}/copy", {})).json())
        yield from self.evaluate((yield from self.request_of(value)), out=handle.id, index=index)
        return stored(handle, node.shape, node.dtype)


def bytes_of(value: "np.ndarray[Any, Any]") -> memoryview:
    """The memory of an array that is contiguous and not empty."""
    return memoryview(value.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def from_bytes(body: bytes, shape: Shape, dtype: DType) -> "np.ndarray[Any, Any]":
    return np.frombuffer(body, dtype).reshape(shape)


def described(metadata: Dict[str, Any]) -> Any:
    """Shape and dtype of metadata."""
    return tuple(metadata["shape"]), dtype_of(metadata["dtype"])

