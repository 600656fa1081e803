"""Which pictures a terminal draws, and how large it is: by the environment, and where that does not tell by asking it.

A terminal is asked three things at once: for a picture by kitty's protocol, for a cell's pixels, and for what it is ("DA1"), which
nearly all terminals answer and which therefore comes last. One that says nothing is waited for a moment, and gets half blocks.
"""
from __future__ import annotations

import os
import re
import select
import shutil
import struct
import sys
import time
from typing import Any, NamedTuple, Tuple

from .._bar import at_terminal

try:
    import fcntl
    import termios
except ImportError:  # no Unix: terminals are not asked
    pass

PATIENCE_S = 1.0  # for an answer of the terminal's
CELL = (10, 20)  # pixels of a cell, where nobody says how many there are
ASKED = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[16t\x1b[c\r\x1b[K"  # what a terminal does not know, and shows, is wiped away
KITTYS, SIXELS = ("xterm-kitty", "xterm-ghostty"), ("foot", "mlterm", "yaft")
PLAIN = ("", "dumb", "linux", "cons25", "vt52", "vt100", "eterm", "emacs")  # they draw no pictures, and some show what they are asked


class Screen(NamedTuple):
    how: str  # kitty, sixel or blocks
    columns: int
    lines: int
    cell: Tuple[int, int]  # pixels, across and down


def screen(wanted: str) -> Screen:
    """Standard output's; `wanted`: one of its ways, or auto."""
    size = shutil.get_terminal_size()
    how, cell = wanted, (0, 0)
    if how == "auto":
        how = _by_environment() if at_terminal(sys.stdout) else "blocks"
    if how != "blocks" and at_terminal(sys.stdout):
        cell = _cell()
        if how == "ask" or not all(cell):
            answer = _answer()
            if how == "ask":
                how = _understood(answer)
            found = re.search(rb"\x1b\[6;(\d{1,4});(\d{1,4})t", answer)
            if found and not all(cell):
                cell = (int(found[2]), int(found[1]))
    return Screen("blocks" if how == "ask" else how, size.columns, size.lines, cell if all(cell) else CELL)


def true_colours() -> bool:
    return os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit") or os.environ.get("TERM", "").endswith("-direct")


def _by_environment() -> str:
    """TERM alone: variables like KITTY_WINDOW_ID are also seen by what runs in a tmux in that window."""
    term = os.environ.get("TERM", "")
    if term in KITTYS:
        return "kitty"
    if term.split("-")[0] in SIXELS:
        return "sixel"
    if term.split("-")[0] in PLAIN or os.environ.get("TERM_PROGRAM") == "Apple_Terminal":
        return "blocks"
    if term.startswith("screen") and "TMUX" not in os.environ:  # GNU screen takes the question for its status line
        return "blocks"
    return "ask"


def _cell() -> Tuple[int, int]:
    """As the terminal's driver knows it: zeros where it does not."""
    try:
        lines, columns, width, height = struct.unpack("HHHH", fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8)))
        return (width // columns, height // lines) if columns and lines else (0, 0)
    except (NameError, OSError, ValueError):
        return 0, 0


def _understood(answer: bytes) -> str:
    if b"\x1b_Gi=31;OK\x1b\\" in answer:
        return "kitty"
    found = re.search(rb"\x1b\[\?([\d;]*)c", answer)
    return "sixel" if found and b"4" in found[1].split(b";")[1:] else "blocks"


def _answer() -> bytes:
    """What the terminal says; nothing where it cannot be asked. Its modes are afterwards as they were."""
    try:
        out = sys.stdout.fileno()
        if os.tcgetpgrp(out) != os.getpgrp():  # in the background a change of modes would stop this process
            return b""
        # of its own: others' use of the terminal must not become one that does not wait
        tty = os.open(os.ttyname(out), os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (AttributeError, OSError, ValueError):
        return b""
    try:
        return _talk(tty)
    except (NameError, OSError, termios.error):
        return b""
    finally:
        os.close(tty)


def _talk(tty: int) -> bytes:
    before = termios.tcgetattr(tty)
    quiet: Any = termios.tcgetattr(tty)
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    heard = b""
    try:
        termios.tcsetattr(tty, termios.TCSANOW, quiet)
        os.write(tty, ASKED)
        end = time.monotonic() + PATIENCE_S
        while not re.search(rb"\x1b\[\?[\d;]*c", heard):
            left = end - time.monotonic()
            if left <= 0 or not select.select([tty], [], [], left)[0]:
                break
            got = os.read(tty, 4096)
            if not got:
                break
            heard += got
        else:
            return heard
        if heard:  # half an answer: the rest of it is nobody's input
            termios.tcflush(tty, termios.TCIFLUSH)
        return heard
    finally:
        termios.tcsetattr(tty, termios.TCSANOW, before)
