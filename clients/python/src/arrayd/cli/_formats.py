"""Files that are no .npy files: .npz (several of these in a zip archive) and .csv (numbers, a row a line); and what is known of those that
the daemon reads and writes (_files.py)."""
from __future__ import annotations

import array
import csv
import io
import json
import os
import sys
import zipfile
from typing import Any, BinaryIO, Iterator, List, Optional, Tuple

from .._requests import FILES
from ._context import Failure

KNOWN = ".npy, .npz, .nc, .h5 and .csv"
WRITTEN = ".npy, .npz, .nc, .h5, .csv and .png"
GOT = {suffix: (kind, b"PK" if suffix == ".npz" else b"\x89HDF") for suffix, kind in FILES.items() if suffix not in (".nc3", ".cdf")}  # how they begin
MOST_CSV = 1 << 30  # bytes: a .csv file is in memory as a whole


def suffix_of(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def check_npy(command: str, path: str) -> None:
    """Whether the file may be given a .npy file's content, by its name."""
    if suffix_of(path) in (".png", ".csv", *FILES):
        raise Failure(f"{command}: {path}: .npy files are written here; `get` writes {WRITTEN} files of an array that has a name, `show` .png files of expressions", 2)


def members(path: str, only: Optional[str] = None) -> Iterator[Tuple[str, BinaryIO]]:
    """The arrays of an .npz file, or `only` this one: name, and a file that is at the beginning of an .npy file."""
    try:
        with zipfile.ZipFile(os.path.expanduser(path)) as z:
            names = [n for n in z.namelist() if n.endswith(".npy")]
            if not names:
                raise Failure(f"{path} has no arrays")
            if only is not None and f"{only}.npy" not in names:
                raise Failure(f"{path} has no array {only!r}, but {', '.join(n[:-4] for n in names)}")
            for n in names if only is None else [f"{only}.npy"]:
                with z.open(n) as f:
                    yield n[:-4], f  # type: ignore[misc]
    except (zipfile.BadZipFile, NotImplementedError) as e:
        raise Failure(f"{path} is not an .npz file: {e}") from e


def read_csv(path: str) -> BinaryIO:
    """A .csv file as an .npy file: of rank 2, or 1 where each line has one number; int64 where all numbers are integers, else float64.
    Lines that begin with # and empty ones are skipped."""
    where = os.path.expanduser(path)
    if os.path.isfile(where) and os.path.getsize(where) > MOST_CSV:
        raise Failure(f"{path} has more than {MOST_CSV} bytes; .npy files may be of any size")
    rows: List[List[str]] = []
    with open(where, newline="", encoding="utf-8") as f:
        for row in csv.reader(f):
            if not row or row[0].lstrip().startswith("#"):
                continue
            if rows and len(row) != len(rows[0]):
                raise Failure(f"{path}: row {len(rows) + 1} has {len(row)} numbers, those before it {len(rows[0])}")
            rows.append(row)
    if not rows:
        raise Failure(f"{path} is empty")
    values: Any
    try:
        values, descr = array.array("q", [int(x) for row in rows for x in row]), "<i8"
    except (ValueError, OverflowError):
        try:
            values, descr = array.array("d", [float(x) for row in rows for x in row]), "<f8"
        except ValueError as e:
            raise Failure(f"{path}: {e}: a .csv file has numbers alone, separated by commas") from e
    if sys.byteorder == "big":
        values.byteswap()
    shape = (len(rows), len(rows[0])) if len(rows[0]) > 1 else (len(rows),)
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return io.BytesIO(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + values.tobytes())


def write_csv(path: str, values: Any, dtype: str) -> bytes:
    """The text of a .csv file, of an array's data in JSON."""
    rank, x = 0, values
    while isinstance(x, list):
        rank, x = rank + 1, x[0] if x else None
    if dtype.startswith("complex") or rank > 2:
        raise Failure(f"{path}: a .csv file holds real numbers of rank 2 at most, not {dtype} of rank {rank}", 2)
    rows = [[values]] if rank == 0 else [[x] for x in values] if rank == 1 else values
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_plain(x) for x in row] for row in rows)
    return text.getvalue().encode()


def _plain(x: Any) -> str:
    if isinstance(x, bool):
        return str(int(x))
    return {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(x, x) if isinstance(x, str) else json.dumps(x)
