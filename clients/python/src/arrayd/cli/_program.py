"""What `run` runs: a program of the HTTP API as JSON, or the same as text that people write.

    # Heat in a plate, until nothing moves any more.
    @steps 10000
    @bind k = 0.1
    @record warmest = max(u)
    @record_every 100
    @until residual < 1e-6
    @snapshot u = 1000
    lap = laplacian(u, boundary="clamp")
    residual = max(abs(k*lap))
    u += k*lap

A line is a statement; one with an open bracket goes on in the next. `#` begins a comment. What begins with `@` is about the
whole; options on the command line come before it.
"""
from __future__ import annotations

import argparse
import json
import re
from typing import Any, Dict, List, Tuple

from .._numbers import wire
from ._context import Failure
from ._values import counted, name, pair, whole

OPEN, CLOSED = "([{", ")]}"


class Program:
    """A request's body, and where in the file each part of it is."""

    def __init__(self) -> None:
        self.body: Dict[str, Any] = {"body": []}
        self.bind: List[Tuple[str, str]] = []  # as text: arrays, numbers, files
        self.places: Dict[str, Tuple[str, Any]] = {}


def read(text: str, where: str) -> Program:
    if text.lstrip().startswith("{"):
        return _json(text, where)
    return _lines(text, where)


def _json(text: str, where: str) -> Program:
    p = Program()
    try:
        value = json.loads(text, parse_constant=str)  # NaN and the infinities are text in the API
    except ValueError as e:
        raise Failure(f"{where}: {e}") from e
    except RecursionError as e:
        raise Failure(f"{where}: it is nested too deeply") from e
    for key, kind, what in (("body", list, "a list"), ("bind", dict, "an object"), ("record", dict, "an object"),
                            ("snapshot", dict, "an object")):
        if not isinstance(value.get(key, kind()), kind):
            raise Failure(f"{where}: {key} is not {what}")
    p.body = value
    if "bind" in value:
        value["bind"] = {n: wire(v) if isinstance(v, (int, float)) else v for n, v in value["bind"].items()}
    for k, statement in enumerate(value.get("body", [])):
        p.places[f"/body/{k}"] = (f"{where}: statement {k + 1}", statement if isinstance(statement, str) else None)
    for key, series in value.get("record", {}).items():
        p.places[f"/record/{key}"] = (f"{where}: record {key}", series if isinstance(series, str) else None)
    if isinstance(value.get("until"), str):
        p.places["/until"] = (f"{where}: until", value["until"])
    p.places.update({f"/bind/{n}": (f"{where}: bind {n}", None) for n in value.get("bind", {})})
    p.places.update({f"/{key}": (f"{where}: {key}", None) for key in value if key != "until"})
    return p


def _bare(line: str) -> Tuple[str, int]:
    """Without its comment; by how many brackets it opens more than it closes. Quotes are seen."""
    quote, depth, k = "", 0, 0
    while k < len(line):
        c = line[k]
        if quote:
            if c == "\\":
                k += 1
            elif c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c == "#":
            return line[:k].rstrip(), depth
        else:
            depth += (c in OPEN) - (c in CLOSED)
        k += 1
    return line.rstrip(), depth


def _lines(text: str, where: str) -> Program:
    p = Program()
    statement, first, depth = "", 0, 0
    for number, raw in enumerate(text.splitlines(), 1):
        line, opened = _bare(raw)
        if depth > 0:
            statement += "\n" + line
            depth += opened
        elif line.strip().startswith("@"):
            _about(p, line.strip()[1:], f"{where}:{number}")
        elif line.strip():
            statement, first, depth = line.strip(), number, opened
        else:
            continue
        if statement and depth <= 0:
            p.places[f"/body/{len(p.body['body'])}"] = (f"{where}:{first}", statement)
            p.body["body"].append(statement)
            statement = ""
    if statement:
        raise Failure(f"{where}:{first}: a bracket is not closed before the end")
    return p


def _about(p: Program, text: str, where: str) -> None:
    found = re.match(r"(\w+)\s*(.*)\Z", text, re.S)
    key, value = (found[1], found[2].strip()) if found else ("", text)
    body = p.body
    try:
        if key in ("steps", "record_every", "until_every"):
            body[key] = whole(value)
        elif key == "bind":
            p.bind.append(pair(value))
        elif key == "record":
            series, expression = pair(value)
            body.setdefault("record", {})[series] = expression
            p.places[f"/record/{series}"] = (where, expression)
        elif key == "snapshot":
            of, every = counted(value)
            body.setdefault("snapshot", {})[name(of)] = every
            p.places[f"/snapshot/{of}"] = (where, None)
        elif key == "until":
            if not value:
                raise argparse.ArgumentTypeError("@until wants an expression")
            body["until"] = value
            p.places["/until"] = (where, value)
        elif key in ("stop_on_nan", "fast_math"):
            if value:
                raise argparse.ArgumentTypeError(f"@{key} stands alone")
            body[key] = True
        else:
            raise argparse.ArgumentTypeError(f"there is no @{key}: steps, bind, record, record_every, until, until_every, snapshot, "
                                             "stop_on_nan, fast_math")
    except argparse.ArgumentTypeError as e:
        raise Failure(f"{where}: {e}") from e
