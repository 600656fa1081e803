"""What is asked, what is answered, and what is asked next: without I/O.

What there is to ask a daemon for is written as generators that yield a `Request` and are sent its `Response` (`_engine.py`,
`_namespace.py`). `Endpoint.running` goes through them.
"""
from __future__ import annotations

import json
import re
from typing import Any, Dict, Generator, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

from ._replies import ANY, parsed

JSON = "application/json"
OCTETS = "application/octet-stream"

FILES = {".npz": "application/x-npz", ".nc": "application/x-netcdf", ".nc4": "application/x-netcdf", ".nc3": "application/x-netcdf",
         ".cdf": "application/x-netcdf", ".h5": "application/x-hdf5", ".hdf5": "application/x-hdf5"}  # by suffixes: the daemon reads them
FORMATS = {".npy": "npy", ".npz": "npz", ".nc": "netcdf4", ".nc4": "netcdf4", ".nc3": "netcdf3", ".cdf": "netcdf3", ".h5": "hdf5", ".hdf5": "hdf5",
           ".tif": "tiff", ".tiff": "tiff", ".png": "png"}  # and writes these
OF_ONE = ("npy", "tiff", "png")  # array


def format_of(name: str) -> str:
    """Also by its suffix: h5."""
    return FORMATS.get(f".{name}", name)


COORDS = ("coordinates", "grid_mapping")  # CF's attributes with names of what an array brings along,
OF_OTHERS = (*COORDS, "bounds", "climatology", "cell_measures", "ancillary_variables", "formula_terms")  # and of all that is not meant by itself


def variables_of(told: Mapping[str, Any], attrs: Sequence[str] = COORDS) -> List[str]:
    """Of a file that the daemon describes, the variables that can be read, but for those with a dimension's name and those that others name in
    `attrs`; all, if there are no others."""
    there = [v for v in told["variables"] if v["dtype"]]
    named = {name for v in told["variables"] for attr in attrs for name in _names_in(v, attr)}
    axes = {v["name"] for v in there if len(v["shape"]) == 1 and (v.get("dims") or [None])[0] == v["name"]}
    return [v["name"] for v in there if v["name"] not in named | axes] or [v["name"] for v in there]


def _names_in(v: Mapping[str, Any], attr: str) -> Iterator[str]:
    """In the variable's group, or the root: "lat lon", or, where words are explained, "area: cell_area" and "crs: x y"."""
    text = (v.get("attrs") or {}).get(attr)
    words = text.split() if isinstance(text, str) else []
    if any(w.endswith(":") for w in words):
        words = [w for w in words if w.endswith(":") == (attr == "grid_mapping")]
    for name in (w.rstrip(":").lstrip("/") for w in words):
        yield from (name, v["name"].rpartition("/")[0] + "/" + name)


T = TypeVar("T")

_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class Request(NamedTuple):
    method: str
    path: str
    body: Any = None  # bytes, anything with the buffer protocol, or what yields such and has a length in bytes
    content_type: Optional[str] = None
    accept: Optional[str] = None
    into: Optional[memoryview] = None  # where a successful reply's body goes
    safe: bool = False  # may be sent again where the connection broke before the reply began
    headers: Tuple[Tuple[str, str], ...] = ()
    leased: bool = True  # with the leases that the client holds

    @property
    def again(self) -> bool:
        return self.safe or self.method in ("GET", "PUT", "DELETE")


class Response(NamedTuple):
    status: int
    headers: Dict[str, str]  # names in lower case
    body: bytes
    request: Request

    def json(self, form: Any = ANY) -> Any:
        """Of a form (see `_replies.py`), or it is a BadReply."""
        return parsed(self.body, form, f"{self.request.method} {self.request.path}", self.status)


Steps = Generator[Request, Response, T]

_SEGMENT = re.compile(r"[A-Za-z0-9_.~-]+\Z")


def segment(text: str, wrong: str = "is not a name: at most 64 letters, digits and _, not beginning with a digit") -> str:
    """What a user wrote, as a part of a path. What could only be taken for something else is a ValueError; the rest the daemon judges."""
    if not _SEGMENT.match(str(text)):
        raise ValueError(f"{text!r} {wrong}")
    return text


def ask(method: str, path: str, value: Any = None, **more: Any) -> Request:
    """A request with a JSON body, or none."""
    if value is None:
        return Request(method, path, **more)
    return Request(method, path, _json(value).encode(), JSON, **more)
