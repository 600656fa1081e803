"""eval: an expression's value on the terminal, in a file, or as an array of the daemon's."""
from __future__ import annotations

import json
import math
import shutil
import sys
from typing import Any, Dict, Tuple

from .._bar import human
from .._errors import ArraydError, place_of
from .._numbers import unwired
from .._replies import MADE, OBJECT, RESULT
from .._requests import Request, ask
from ._context import Context, Failure
from ._formats import check_npy
from ._streams import NPY, download
from ._values import bound, explained

WHOLE = 1000  # elements: of larger arrays the corners are printed

Places = Dict[str, Tuple[str, Any]]


def evaluate(context: Context) -> int:
    args = context.args
    if args.index is not None and args.out is None:
        raise Failure("eval: --index is the region of --out's array", 2)
    if args.output is not None:
        check_npy("eval", args.output)
    expr = sys.stdin.read().strip() if args.expr == "-" else args.expr
    body, places = requested(context, expr)
    for key in ("dtype", "name", "out", "index"):
        if getattr(args, key) is not None:
            body[key] = getattr(args, key)
    if args.fast_math:
        body["fast_math"] = True
    try:
        return _answer(context, body)
    except ArraydError as e:
        raise located(e, places) from e


def requested(context: Context, expr: str) -> Tuple[Dict[str, Any], Places]:
    """The request for the value of an expression with --let and --bind, and the places of the command line that are in it."""
    args = context.args
    body: Dict[str, Any] = {"expr": expr}
    places: Places = {"/expr": ("", expr)}
    if args.let:
        body["let"] = [[n, text] for n, text in args.let]
        places.update({f"/let/{k}/1": (f"--let {n}", text) for k, (n, text) in enumerate(args.let)})
    if args.bind:
        body["bind"] = {n: bound(context, n, text) for n, text in args.bind}
        places.update({f"/bind/{n}": (f"--bind {n}={text}", None) for n, text in args.bind})
    return body, places


def located(e: ArraydError, places: Places) -> Exception:
    """The refusal with the place of the command line that it is about."""
    place = place_of(e, places)
    return e if place is None else Failure(explained(e, *place))


def _answer(context: Context, body: Dict[str, Any]) -> int:
    args = context.args
    if args.output is not None:
        r = ask("POST", "/v1/evaluate", body, accept=NPY, headers=context.headers)
        n = download(context, Request(*r), args.output, args.output if args.output != "-" else "result")
        if args.output != "-":
            context.say(f"{args.output}: {human(n)}")
        return 0
    stays = "name" in body or "out" in body
    if args.json and not stays:
        body["inline"] = True
    m = context.ask("POST", "/v1/evaluate", MADE if stays else OBJECT if args.json else RESULT, body)
    if stays:
        print(json.dumps(m) if args.json else m.get("name") or m["id"])
        return 0
    if args.json or "id" not in m:
        print(json.dumps(m) if args.json else _scalar(m))
        return 0
    print(_text(context, context.temporary(m["id"]), math.prod(m["shape"]), args.full))
    return 0


def _scalar(m: Dict[str, Any]) -> str:
    value = unwired(m["value"])
    return str(value) if not isinstance(value, complex) else str(value).strip("()")


def _text(context: Context, id_: str, size: int, full: bool) -> str:
    import numpy as np

    from .._dtypes import FLOAT32, NAME_OF, bfloat16

    x = context.client.array(id_)
    if x.dtype == bfloat16:
        x = context.client.astype(x, FLOAT32)
    columns = max(20, shutil.get_terminal_size().columns - 1)
    if size > WHOLE and not full:
        head = f"{NAME_OF[context.client.array(id_).dtype]} {tuple(x.shape)}, the corners:"
        context.say(head)
        return np.array2string(context.client._ends(x), threshold=0, edgeitems=3, separator=" ", max_line_width=columns)
    return np.array2string(x.numpy(), threshold=sys.maxsize, separator=" ", max_line_width=columns,
                           floatmode="unique" if full else None)
