"""What is written on a command line: names, numbers, indices, and what is bound to a name."""
from __future__ import annotations

import argparse
import re
import shutil
from typing import Any, List, Optional, Tuple
from urllib.parse import quote

from .._errors import ArraydError, marked
from .._numbers import wire
from ._context import Context, Failure
from ._streams import upload

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


def name(text: str) -> str:
    """An argument that is to become an array's name."""
    if not NAME.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name: at most 64 letters, digits and _, not beginning with a digit")
    return text


def ref(text: str) -> str:
    """An argument that is an array's name or id."""
    if not re.match(r"a-[A-Za-z0-9]+\Z", text) and not NAME.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither an array's name nor its id")
    return text


def index(text: str) -> str:
    """A slice as NumPy writes it, with or without its brackets."""
    stripped = text.strip()
    if stripped.startswith("[") and stripped.endswith("]"):
        stripped = stripped[1:-1].strip()
    if not stripped:
        raise argparse.ArgumentTypeError("an empty slice: '...' is all of an array")
    return stripped


def pair(text: str) -> Tuple[str, str]:
    """NAME=SOMETHING."""
    before, sep, after = text.partition("=")
    before, after = before.strip(), after.strip()
    if not sep or not NAME.match(before) or not after:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return before, after


def counted(text: str) -> Tuple[str, int]:
    """NAME=N."""
    before, after = pair(text)
    return before, whole(after)


def whole(text: str) -> int:
    """A number of steps: 1000, 1_000_000 or 1e6."""
    try:
        n = int(text)
    except ValueError:
        try:
            x = float(text)
            n = int(x) if x == int(x) else 0
        except (ValueError, OverflowError):
            n = 0
    if n < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return n


def seconds(text: str) -> float:
    try:
        s = float(text)
    except ValueError:
        s = 0
    if not 0 < s < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return s


def extents(text: str) -> str:
    """A shape: 100,200 or (100, 200); () or nothing is that of a number."""
    parts = [p.strip() for p in text.strip().strip("()[]").split(",")]
    parts = [p for p in parts if p]
    if not all(p.isdigit() for p in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape such as 100,200")
    return ",".join(parts)


def number(text: str) -> Optional[Any]:
    """A bool, int, float or complex number as Python writes it; None where it is none."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float, complex):
        try:
            return kind(text)
        except ValueError:
            pass
    return None


def is_file(text: str) -> bool:
    return text == "-" or text.endswith(".npy") or "/" in text


def bound(context: Context, what: str, text: str) -> Any:
    """What --bind's VALUE is in a request: a number, an array's name or id, or a file, whose array goes when the command ends."""
    n = number(text)
    if n is not None:
        return wire(n)
    if is_file(text):
        return context.temporary(str(upload(context, text, None)["id"]))
    try:
        return ref(text)
    except argparse.ArgumentTypeError:
        raise Failure(f"--bind {what}={text}: neither a number nor an array nor a .npy file", 2) from None


def path_of(ref_: str, more: str = "", **query: Optional[str]) -> str:
    """A path of the API, with what is given of a query."""
    text = "&".join(f"{k}={quote(v, safe=',:')}" for k, v in query.items() if v is not None)
    return f"/v1/arrays/{quote(ref_, safe='')}{more}" + (f"?{text}" if text else "")


# --- mistakes in a text ---


def pointed(text: str, offset: Optional[int]) -> List[str]:
    """The text with a mark below its place, as wide as the terminal."""
    return marked(text, offset, max(20, shutil.get_terminal_size().columns - 8))


def explained(e: ArraydError, where: str = "", text: Optional[str] = None) -> str:
    """The daemon's refusal for the user; `where` and `text`: the place of his that it is about."""
    lines = [f"{where}: {e.detail}" if where else e.detail]
    if text is not None:
        lines += pointed(text, e.offset)
    elif e.expression:
        lines += pointed(e.expression, e.offset)
    return "\n".join(lines)
