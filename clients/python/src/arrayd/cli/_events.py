"""events: what changes, a line each."""
from __future__ import annotations

import json
import sys
from typing import Any, Dict, Iterator

from .._events import STREAM, Told, path_of
from .._replies import OBJECT
from .._requests import Request
from ._arrays import shape_text
from ._context import Context
from ._values import path_of as array_path


def events(context: Context) -> int:
    args = context.args
    path = "/v1/events" if args.ref is None else array_path(args.ref, "/events")
    told = Told(Request("GET", path_of(path, {"interval": args.interval}), accept=STREAM, headers=context.headers), OBJECT)
    left = args.count
    for name, event in told.all(context.transport):
        lines = ([json.dumps({"event": name, **event})] if args.json else list(_lines(name, event)))[:left]
        sys.stdout.writelines(line + "\n" for line in lines)
        sys.stdout.flush()
        left = None if left is None else left - len(lines)
        if left == 0:
            return 0
    if not args.quiet and args.ref is not None:
        context.say(f"{args.ref} is gone")
    return 0


def _lines(name: str, event: Dict[str, Any]) -> Iterator[str]:
    if name == "changed":
        yield f"changed {_array(event)}"
    for a in event.get("arrays", ()):
        yield f"array {_array(a)}"
    for id_ in event.get("written", ()):
        yield f"written {id_}"
    for job in event.get("jobs", ()):
        yield f"job {job['id']} {job['state']} {job['step']}/{job['steps']}"
    for id_ in event.get("gone", ()):
        yield f"gone {id_}"


def _array(a: Dict[str, Any]) -> str:
    return f"{a['id']} {a['name'] or '-'} {a['dtype']} {shape_text(a['shape'])}"
