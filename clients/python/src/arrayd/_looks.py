"""Looks at arrays: what the daemon computes of one so that its values need not be fetched."""
from __future__ import annotations

import urllib.parse
from typing import Any, Dict, NamedTuple, Optional, Sequence, Union

import numpy as np

from ._replies import SUMMARY
from ._requests import Request, Steps

Number = Union[bool, int, float]


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


def asked(x: Any, what: str, query: Dict[str, Any], **more: Any) -> Steps[Any]:
    """The reply to a question about an array, which gets a place on the server for it; None is what was not asked."""
    engine = x._client._engine
    handle = yield from engine.place(x._node)
    text = urllib.parse.urlencode({k: v for k, v in query.items() if v is not None})
    path = f"/v1/arrays/{handle.id}/{what}" + (f"?{text}" if text else "")
    return (yield Request("GET", path, headers=engine.headers, **more))


def summary(x: Any, bins: Optional[int], lo: Optional[float], hi: Optional[float], percentiles: Optional[Sequence[float]], exact: bool) -> Steps[Summary]:
    listed = None if percentiles is None else ",".join(repr(float(p)) for p in percentiles)
    query = {"bins": bins, "lo": lo, "hi": hi, "percentiles": listed, "exact": "true" if exact else None}
    reply = (yield from asked(x, "summary", query)).json(SUMMARY)
    h, ps = reply["histogram"], reply["percentiles"]
    return Summary(reply["count"], reply["finite"], reply["nan"], reply["inf"], reply["minus_inf"], reply["min"], reply["max"], reply["mean"], reply["std"],
                   np.array(h["counts"], np.int64), float(h["lo"]), float(h["hi"]), h["below"], h["above"],
                   {float(p["percent"]): p["value"] for p in ps}, {float(p["percent"]): p["error"] for p in ps})
