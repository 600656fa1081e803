"""show: an array, or an expression's value, as a picture on the terminal or in a file."""
from __future__ import annotations

import sys
from typing import Any, Dict, List, Optional, Tuple

from .._bar import at_terminal
from .._errors import ArraydError, Denied
from .._replies import OBJECT, RESULT
from ._arrays import picture, picture_options, save_picture, shape_text
from ._context import Context, Failure, shown
from ._eval import located, requested
from ._formats import suffix_of
from ._pixels import blocks, decoded, kitty, sixel
from ._screen import Screen, screen, true_colours
from ._values import path_of

BAR = 24  # pixels of a colour bar
MOST = {"kitty": 4096, "sixel": 1024, "blocks": 4096}  # pixels of a side, by itself: the daemon's limit, and what is quickly encoded here


def show(context: Context) -> int:
    args = context.args
    if (args.ref is None) == (args.expr is None):
        raise Failure("show: either REF, an array's name or id, or --expr EXPR", 2)
    if args.expr is None and (args.bind or args.let):
        raise Failure("show: --bind and --let are for --expr", 2)
    if args.output is not None:
        if args.drawn != "auto":
            raise Failure("show: --as is for the terminal, and -o writes a .png file", 2)
        if args.output != "-" and suffix_of(args.output) != ".png":
            raise Failure(f"show: {args.output}: show writes .png files; `get` writes .npy and .csv files", 2)
    title, m, index = _found(context)
    shape: List[int] = m["shape"]
    if not (len(shape) == 2 or len(shape) == 3 and shape[2] in (3, 4)):
        raise Failure(f"{title} has the shape {shape_text(shape)}: a picture is of two axes, or of three with 3 or 4 colours in the last"
                      + ("; select two axes, as with --slice " + ", ".join(["0"] * (len(shape) - 2)) if len(shape) > 2 else ""))
    asked = picture_options(args)
    if len(shape) == 2:
        asked.setdefault("cmap", "viridis")
    if args.output is not None:
        save_picture(context, args.output, picture(context, m["id"], asked, index))
        return 0
    where = screen(args.drawn)
    if where.how == "blocks":
        _check_letters()
    if args.width is None and args.height is None:
        asked["width"], asked["height"] = map(str, fitted(shape, _room(where, args.bar)))
    r = picture(context, m["id"], asked, index)
    sys.stdout.write(_drawn(where, r.body))
    if not args.quiet:
        print(_line(title, m, r.headers.get("arrayd-range", "").split()))
    return 0


def _found(context: Context) -> Tuple[str, Dict[str, Any], Optional[str]]:
    """What is shown: what it is called, its metadata, and which part of the array that is. Values, and parts of one's own arrays, are
    arrays that go when the command ends."""
    args = context.args
    if args.expr is not None:
        expr = sys.stdin.read().strip() if args.expr == "-" else args.expr
        body, places = requested(context, expr)
        try:
            m = context.ask("POST", "/v1/evaluate", RESULT, body)
        except ArraydError as e:
            raise located(e, places) from e
        if "id" not in m:
            raise Failure(f"{expr} is a number, {m['value']}: a picture is of two axes")
        context.temporary(m["id"])
        title, ref = " ".join(expr.split()), m["id"]
    else:
        title = ref = args.ref
    if args.slice is None:
        return title, context.ask("GET", path_of(ref), OBJECT), None
    title = (title if args.expr is None else f"({title})") + f"[{args.slice}]"
    try:
        m = context.ask("POST", path_of(ref, "/views"), OBJECT, {"index": args.slice})
    except Denied as e:
        if e.status != 403:
            raise
        # another user's array, on whichever device, which may be looked at; which names the axes of the part have is not said
        m = context.ask("GET", path_of(ref), OBJECT)
        part = context.ask("GET", path_of(ref, "/summary", index=args.slice), OBJECT)
        if not part["shape"]:
            raise Failure(f"{title} is a number: a picture is of two axes") from None
        return title, {"id": ref, "shape": part["shape"], "dtype": m["dtype"], "units": m.get("units")}, args.slice
    context.temporary(m["id"])
    return title, m, None


def _check_letters() -> None:
    try:
        "▀▄".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        raise Failure(f"standard output is {sys.stdout.encoding}, which has no half blocks: write a file with -o FILE.png", 2) from None


def _room(where: Screen, bar: bool) -> Tuple[int, int]:
    """Pixels that there are for a picture, with a line below it and one for the prompt."""
    columns, lines = max(1, where.columns), max(1, where.lines - 2)
    across, down = (columns, 2 * lines) if where.how == "blocks" else (columns * where.cell[0], lines * where.cell[1])
    most = MOST[where.how]
    return max(1, min(across - (BAR if bar else 0), most)), min(down, most)


def fitted(shape: List[int], room: Tuple[int, int]) -> Tuple[int, int]:
    """Width and height of a picture that fills the room; elements that are enlarged are all of one size."""
    down, across = max(1, shape[0]), max(1, shape[1])
    scale = min(room[0] / across, room[1] / down)
    scale = int(scale) if scale >= 1 else scale
    return max(1, min(room[0], round(across * scale))), max(1, min(room[1], round(down * scale)))


def _drawn(where: Screen, png: bytes) -> str:
    if where.how == "kitty":
        return kitty(png) + "\n"
    pixels = decoded(png)
    if where.how == "sixel":
        return sixel(pixels) + "\n"
    if pixels.width > where.columns and at_terminal(sys.stdout):
        raise Failure(f"the picture has {pixels.width} pixels across, and the terminal {where.columns} columns: give a smaller --width")
    return blocks(pixels, true_colours())


def _line(title: str, m: Dict[str, Any], ends: List[str]) -> str:
    shape = shape_text(m["shape"])
    if m.get("dims"):
        shape += " (" + ", ".join("-" if name is None else shown(name) for name in m["dims"]) + ")"
    text = f"{title}: {shape} {m['dtype']}"
    if len(ends) == 2:
        text += f", {float(ends[0]):.6g} … {float(ends[1]):.6g}"
    return text + (f" {shown(m['units'])}" if m.get("units") else "")
