"""A picture as terminals take it: half blocks, sixels, or the PNG file itself by kitty's protocol.

The pixels are read from the daemon's own PNG files without a library for them: rows of numbers, and the colour that each number is.
"""
from __future__ import annotations

import base64
import re
import struct
import zlib
from itertools import accumulate
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._context import Failure

Colour = Tuple[int, int, int]

CHUNK = 4096  # of base64 bytes: the most that kitty's protocol takes at once
REGISTERS = 256  # the colours that a sixel picture has
CUBE = (0, 95, 135, 175, 215, 255)  # a channel's values among the 256 colours


class Pixels(NamedTuple):
    width: int
    height: int
    rows: List[Sequence[int]]  # from above, with a number a pixel
    colours: List[Optional[Colour]]  # by number; None: transparent


def decoded(png: bytes) -> Pixels:
    """Of a file with 8 bits a channel, as the daemon writes them: colours of a table, RGB or RGBA."""
    try:
        at, chunks = 8, {b"PLTE": b"", b"tRNS": b"", b"IDAT": b""}
        while at < len(png):
            n, name = struct.unpack_from(">I4s", png, at)
            chunks[name] = chunks.get(name, b"") + png[at + 8:at + 8 + n]
            at += n + 12
        width, height, bits, kind = struct.unpack_from(">IIBB", chunks[b"IHDR"])
        step = {3: 1, 2: 3, 6: 4}[kind]
        data, pitch = zlib.decompress(chunks[b"IDAT"]), 1 + width * step
        if bits != 8 or len(data) != height * pitch:
            raise ValueError(f"{bits} bits a channel, {len(data)} bytes")
        rows = [_plain(data[y * pitch], data[y * pitch + 1:(y + 1) * pitch], step) for y in range(height)]
    except (KeyError, ValueError, struct.error, zlib.error) as e:
        raise Failure(f"the picture cannot be read, and is not as this daemon's are: {e}") from e
    if kind == 3:
        palette, alpha = chunks[b"PLTE"], chunks[b"tRNS"]
        return Pixels(width, height, list(rows), [None if k < len(alpha) and alpha[k] < 128 else (palette[3 * k], palette[3 * k + 1], palette[3 * k + 2])
                                                  for k in range(len(palette) // 3)])
    numbers: Dict[Optional[Colour], int] = {}
    numbered: List[Sequence[int]] = []
    for row in rows:
        values = zip(row[::step], row[1::step], row[2::step])
        found: List[Optional[Colour]] = [c if a >= 128 else None for c, a in zip(values, row[3::4])] if step == 4 else list(values)
        numbered.append([numbers.setdefault(c, len(numbers)) for c in found])
    return Pixels(width, height, numbered, list(numbers))


def _plain(how: int, row: bytes, step: int) -> bytes:
    """The daemon's rows are as they are, or differences to the pixel at the left."""
    if how == 0:
        return row
    if how != 1:
        raise ValueError(f"filter {how}")
    out = bytearray(len(row))
    for k in range(step):
        out[k::step] = bytes(v & 255 for v in accumulate(row[k::step]))
    return bytes(out)


# --- half blocks ---


def blocks(p: Pixels, true_colours: bool) -> str:
    """Lines of ▀, whose upper half has the letter's colour and whose lower half the background's."""
    codes = [None if c is None else ";".join(map(str, (2, *c))) if true_colours else f"5;{of_256(c)}" for c in p.colours]
    lines = []
    for y in range(0, p.height, 2):
        below: Sequence[int] = p.rows[y + 1] if y + 1 < p.height else ()
        letter: Optional[str] = None
        ground: Optional[str] = None
        line = ""
        for x, number in enumerate(p.rows[y]):
            upper, lower = codes[number], codes[below[x]] if below else None
            mark = "▀" if upper else "▄" if lower else " "
            wanted = (upper, lower) if upper else (lower, None)
            changes = [f"38;{wanted[0]}"] if wanted[0] and wanted[0] != letter else []
            if wanted[1] != ground:
                changes.append(f"48;{wanted[1]}" if wanted[1] else "49")
            letter, ground = wanted[0] or letter, wanted[1]
            line += (f"\x1b[{';'.join(changes)}m" if changes else "") + mark
        lines.append(line + "\x1b[0m\n")
    return "".join(lines)


def of_256(c: Colour) -> int:
    """The nearest of the 256 colours: of the cube of 6 × 6 × 6, or of the 24 greys."""
    cube = [min(range(6), key=lambda k, v=v: abs(CUBE[k] - v)) for v in c]  # type: ignore[misc]
    grey = min(23, max(0, round((sum(c) / 3 - 8) / 10)))

    def far(other: Sequence[int]) -> int:
        return sum((a - b) ** 2 for a, b in zip(c, other))

    return 232 + grey if far([8 + 10 * grey] * 3) < far([CUBE[k] for k in cube]) else 16 + 36 * cube[0] + 6 * cube[1] + cube[2]


# --- sixels ---

_LETTERS = bytes((v + 63) & 255 for v in range(256))  # of six pixels, one below the other, as bits


def sixel(p: Pixels) -> str:
    p = p if len(p.colours) <= REGISTERS else _fewer(p)
    rows = [bytes(row) for row in p.rows]
    used = sorted(set().union(*rows))
    out = [f'\x1bP0;1;0q"1;1;{p.width};{p.height}'.encode()]
    for number in used:
        c = p.colours[number]
        if c is not None:
            out.append(f"#{number};2;{';'.join(str(round(v * 100 / 255)) for v in c)}".encode())
    masks = {number: [bytes(1 << k if v == number else 0 for v in range(256)) for k in range(6)] for number in used}
    for y in range(0, p.height, 6):
        band = rows[y:y + 6]
        passes = []
        for number in sorted(set().union(*band)):
            if p.colours[number] is not None:
                bits = 0
                for row, mask in zip(band, masks[number]):
                    bits |= int.from_bytes(row.translate(mask), "little")
                passes.append(b"#%d" % number + _RUN.sub(_run, bits.to_bytes(p.width, "little").translate(_LETTERS).rstrip(b"?")))
        out.append(b"$".join(passes) + b"-")
    out.append(b"\x1b\\")
    return b"".join(out).decode("ascii")


_RUN = re.compile(rb"(.)\1{3,}")


def _run(found: "re.Match[bytes]") -> bytes:
    return b"!%d%b" % (len(found[0]), found[1])


def _fewer(p: Pixels) -> Pixels:
    """With 6 × 7 × 6 colours, for which a sixel picture has registers, in patterns whose mean is the colour (Bayer's)."""
    most = (5, 6, 5)
    numbers: Dict[Optional[Colour], int] = {}
    known: List[List[int]] = []  # by place in the pattern and by colour

    def at(c: Optional[Colour], up: float) -> int:
        if c is not None:
            r, g, b = (round(int(v * n / 255 + up) * 255 / n) for v, n in zip(c, most))
            c = (r, g, b)
        return numbers.setdefault(c, len(numbers))

    for threshold in _BAYER:
        known.append([at(c, (threshold + 0.5) / 16) for c in p.colours])
    rows: List[Sequence[int]] = []
    for y, row in enumerate(p.rows):
        out = [0] * p.width
        for x in range(4):
            here = known[4 * (y % 4) + x]
            out[x::4] = [here[v] for v in row[x::4]]
        rows.append(out)
    return Pixels(p.width, p.height, rows, list(numbers))


_BAYER = (0, 8, 2, 10, 12, 4, 14, 6, 3, 11, 1, 9, 15, 7, 13, 5)


# --- kitty's protocol ---


def kitty(png: bytes) -> str:
    """The file itself; q=2: the terminal says nothing to it."""
    text = base64.b64encode(png).decode("ascii")
    parts = [text[k:k + CHUNK] for k in range(0, len(text), CHUNK)]
    return "".join(f"\x1b_G{'' if k else 'a=T,f=100,q=2,'}m={int(k + 1 < len(parts))};{part}\x1b\\" for k, part in enumerate(parts))
