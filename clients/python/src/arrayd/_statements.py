"""Operations as infix text, of which the statements of `POST /v1/evaluate` are. Without I/O."""
from __future__ import annotations

import os
from typing import Any, List, Optional

from ._graph import Node

# What is assigned must be no array's name: that array would be written to.
NAMES = f"_{os.urandom(6).hex()}_"


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
