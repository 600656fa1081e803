"""Looks at arrays: what the daemon computes of one so that its values need not be fetched."""
from __future__ import annotations

import os
import struct
import urllib.parse
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _dtypes as dt
from ._errors import BadReply
from ._replies import SUMMARY
from ._requests import Request, Steps

Number = Union[bool, int, float]
PNG = "image/png"
LEAST, MOST = 16, 320  # of a notebook's picture: elements of the shorter side, pixels of the longer one


class Summary(NamedTuple):
    """Figures of an array's elements; those from `min` on are of the finite ones, and None where there are none. Of complex numbers they
    are the absolute values'."""

    size: int
    finite: int
    nan: int
    inf: int
    minus_inf: int
    min: Optional[Number]  # exact
    max: Optional[Number]
    mean: Optional[float]
    std: Optional[float]
    counts: "np.ndarray[Any, Any]"  # the histogram: bins of equal width
    lo: float  # where the first begins
    hi: float  # where the last ends
    below: int  # finite elements less than lo
    above: int
    percentiles: Dict[float, Optional[float]]  # by per cent
    errors: Dict[float, Optional[float]]  # how far each of them may be off

    @property
    def edges(self) -> "np.ndarray[Any, Any]":
        """The bins' ends, as `numpy.histogram` returns them."""
        return np.linspace(self.lo, self.hi, len(self.counts) + 1)


class Picture:
    """A PNG file of an array, which notebooks show. `lo` and `hi` are the values of its first and its last colour."""

    def __init__(self, png: bytes, lo: float, hi: float):
        self.png, self.lo, self.hi = png, lo, hi

    def __repr__(self) -> str:
        width, height = struct.unpack(">II", self.png[16:24])
        return f"<arrayd.Picture of {width} × {height} pixels, {self.lo:.6g} … {self.hi:.6g}>"

    def _repr_png_(self) -> bytes:
        return self.png

    def save(self, file: "Union[str, os.PathLike[str]]") -> None:
        with open(file, "wb") as f:
            f.write(self.png)


def asked(x: Any, what: str, query: Dict[str, Any], **more: Any) -> Steps[Any]:
    """The reply to a question about an array, which gets a place on the server for it; None is what was not asked."""
    engine = x._client._engine
    handle = yield from engine.place(x._node)
    text = urllib.parse.urlencode({k: v for k, v in query.items() if v is not None})
    path = f"/v1/arrays/{handle.id}/{what}" + (f"?{text}" if text else "")
    return (yield Request("GET", path, headers=engine.headers, **more))


def summary(x: Any, bins: Optional[int], lo: Optional[float], hi: Optional[float], percentiles: Optional[Sequence[float]], exact: bool) -> Steps[Summary]:
    listed = None if not percentiles else ",".join(repr(float(p)) for p in percentiles)
    query = {"bins": bins, "lo": lo, "hi": hi, "percentiles": listed, "exact": "true" if exact else None}
    reply = (yield from asked(x, "summary", query)).json(SUMMARY)
    h, ps = reply["histogram"], reply["percentiles"]
    return Summary(reply["count"], reply["finite"], reply["nan"], reply["inf"], reply["minus_inf"], reply["min"], reply["max"], reply["mean"], reply["std"],
                   np.array(h["counts"], np.int64), float(h["lo"]), float(h["hi"]), h["below"], h["above"],
                   {float(p["percent"]): p["value"] for p in ps}, {float(p["percent"]): p["error"] for p in ps})


def picture_query(cmap: Optional[str], lo: Optional[float], hi: Optional[float], percentiles: Optional[Tuple[float, float]], width: Optional[int],
                  height: Optional[int], pool: Optional[str], bar: bool) -> Dict[str, Any]:
    listed = None if not percentiles else ",".join(repr(float(p)) for p in percentiles)
    return {"cmap": cmap, "lo": lo, "hi": hi, "percentiles": listed, "width": width, "height": height, "pool": pool, "bar": "true" if bar else None}


def is_png(file: bytes) -> bool:
    return file.startswith(b"\x89PNG\r\n\x1a\n") and len(file) >= 24


def image(x: Any, cmap: Optional[str], lo: Optional[float], hi: Optional[float], percentiles: Optional[Tuple[float, float]], width: Optional[int],
          height: Optional[int], pool: Optional[str], bar: bool) -> Steps[Picture]:
    reply = yield from asked(x, "data", picture_query(cmap, lo, hi, percentiles, width, height, pool, bar), accept=PNG)
    ends = reply.headers.get("arrayd-range", "").split()
    if not is_png(reply.body) or len(ends) != 2:
        raise BadReply(reply.status, "bad_reply", f"GET {reply.request.path}: the reply is no picture")
    return Picture(reply.body, float(ends[0]), float(ends[1]))


def for_notebooks(shape: Tuple[int, ...], dtype: dt.DType) -> Optional[Dict[str, Any]]:
    """How a notebook shows an array; None: its text says more."""
    fits = len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4) and dt.kind(dtype) != "c")
    if not fits or min(shape[:2]) < LEAST:
        return None
    size = {"width" if shape[1] >= shape[0] else "height": min(MOST, max(shape[:2]))}
    return {"cmap": "viridis", **size} if len(shape) == 2 else size
