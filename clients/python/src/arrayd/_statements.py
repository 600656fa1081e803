"""Several expressions as one request: the statements of `POST /v1/evaluate`, whose text is infix. Without I/O."""
from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from ._graph import DEEP, INPUTS, MANY, Node, const_json, signed, union

# What is assigned must be no array's name: that array would be written to.
NAMES = f"_{os.urandom(6).hex()}_"


class Statements:
    """`request`, and the nodes of its `results`, by name. `order` are all nodes, whose handles are there as long as this is."""

    __slots__ = ("request", "results", "order")

    def __init__(self, request: Dict[str, Any], results: Dict[str, Node], order: List[Any]):
        self.request, self.results, self.order = request, results, order

    @classmethod
    def of(cls, nodes: List[Node]) -> "Optional[Statements]":
        """Of expressions all of whose leaves are numbers or have handles. None where the text cannot say them (an attribute that is no
        plain number), or they are more than a request takes."""
        order = union(nodes)
        if not nodes or len(order) > MANY or sum(n.handle is not None for n in order) > INPUTS:
            return None
        held = [(n, n.handle) for n in order]
        uses: Dict[Node, int] = {}
        for n in order:
            for a in n.args:
                uses[a] = uses.get(a, 0) + 1
        bind: Dict[str, Any] = {}
        body: List[str] = []
        texts: Dict[Node, str] = {}
        depth: Dict[Node, int] = {}
        wanted = set(nodes)
        for k, n in enumerate(order):
            name, d = f"{NAMES}{k}", 0
            if n.handle is not None:
                bind[name], text = n.handle.id, name
            elif not n.args:
                if n.value is None or n.shape:  # fetched meanwhile, say
                    return None
                text = name
                bind[name] = const_json(n.value, n.dtype)
                if signed(n.value, n.dtype) != bind[name]:
                    text = f"negative({name})"
            else:
                called = call_text(n, [texts[a] for a in n.args])
                if called is None:
                    return None
                text, d = called, 1 + max([depth[a] for a in n.args])
                if n in wanted or uses[n] > 1 or d > DEEP:
                    body.append(f"{name} = {text}")
                    text, d = name, 0
            texts[n], depth[n] = text, d
        results = {texts[n]: n for n in nodes}
        return cls({"statements": body, "results": list(results), "bind": bind}, results, held)


def call_text(n: Node, args: List[str]) -> Optional[str]:
    """The operation as infix text, of its arguments' texts; None where an attribute is no plain number."""
    if n.op == "getitem":
        return f"{args[0]}[{n.attrs['index']}]"
    if n.op in ("concat", "stack"):
        args = [f"[{', '.join(args)}]"]
    for name, value in n.attrs.items():
        text = _literal(value)
        if text is None:
            return None
        args.append(f"{name}={text}")
    return f"{n.op}({', '.join(args)})"


def _literal(v: Any) -> Optional[str]:
    """As Python writes it, which the daemon reads."""
    if isinstance(v, list):
        texts = [_literal(x) for x in v]
        return None if None in texts else f"[{', '.join(map(str, texts))}]"
    if isinstance(v, str):
        return f"'{v}'" if v.isidentifier() else None
    return repr(v) if v is None or isinstance(v, (bool, int, float)) else None
