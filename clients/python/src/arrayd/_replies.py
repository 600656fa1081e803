"""What is read of the daemon's JSON, and the one place where a reply is held against it.

Who answers may be something else than this daemon: a proxy, another server, a version to come. So nothing of a reply is used before
it has the form that its user counts on; what has not is a `BadReply` that names the request and the member. A form is

    Kind           of values
    [form]         a list of such
    {name: form}   an object with at least these members, of `Maybe(form)` those that are there
    Each(form)     an object, whatever its members are called
    (form, form)   one or the other

There may always be more: newer daemons tell more. Needs no NumPy.
"""
from __future__ import annotations

import json
import re
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional

from ._errors import BadReply
from ._numbers import DTYPES, unwired


class Kind(NamedTuple):
    called: str
    holds: Callable[[Any], bool]


class Maybe(NamedTuple):
    form: Any


class Each(NamedTuple):
    form: Any


def _is_value(v: Any) -> bool:
    try:
        unwired(v)
    except (ValueError, TypeError, IndexError):
        return False
    return isinstance(v, (bool, int, float, str, list))


ANY = Kind("anything", lambda v: True)
OBJECT = Kind("an object", lambda v: isinstance(v, dict))
TEXT = Kind("a string", lambda v: isinstance(v, str))
ID = Kind("an id", lambda v: isinstance(v, str) and re.fullmatch("[A-Za-z0-9_-]+", v) is not None)  # it goes into paths and headers
NULL = Kind("null", lambda v: v is None)
FLAG = Kind("true or false", lambda v: isinstance(v, bool))
NUMBER = Kind("a number", lambda v: type(v) in (int, float))
WHOLE = Kind("a whole number", lambda v: type(v) is int)
COUNT = Kind("a whole number that is not negative", lambda v: type(v) is int and v >= 0)
DTYPE = Kind("a dtype that is known here", lambda v: isinstance(v, str) and v in DTYPES)
VALUE = Kind("the value of a number", _is_value)

# --- of what, by the members that are used ---

NAME = (TEXT, NULL)
MADE = {"id": ID, "name": Maybe(NAME)}
LAID = {"shape": [COUNT], "dtype": DTYPE}
ARRAY = {**MADE, **LAID}
RESULT = ({**LAID, **MADE}, {**LAID, "value": VALUE})
ARRAYS = {"arrays": [OBJECT], "next": Maybe(NAME)}
SESSION = {"id": ID, "device": Maybe(COUNT)}
NAMED_SESSION = {"id": ID, "name": NAME, "default": FLAG, "device": COUNT}
DEVICES = {"devices": [{"index": COUNT, "name": TEXT, "parts": Maybe([COUNT])}]}
INFO = {"backend": TEXT, "devices": Maybe(DEVICES["devices"]), "process": Maybe({"started": TEXT})}  # older daemons do not say when they started
PROCESS = {"process": {"started": TEXT}}
_EXPORT = {**LAID, "socket": TEXT, "token": TEXT, "lease": ID, "offset": COUNT, "strides": [WHOLE]}
EXPORT = ({**_EXPORT, "kind": Kind("'memfd'", lambda v: v == "memfd")}, {**_EXPORT, "kind": Kind("'cuda'", lambda v: v == "cuda"), "uuid": TEXT})
LEASE = {"token": ID}
SHARE = {"principal": TEXT, "access": TEXT}
SHARES = {"shares": [SHARE]}
PLACE = {"location": TEXT}
LABELS = {"attrs": Maybe(OBJECT), "dims": Maybe([(TEXT, NULL)]), "units": Maybe(TEXT), "coords": Maybe(Each({"array": ID, "dims": [TEXT]}))}
LABELLED = {**ARRAY, **LABELS}
SUMMARY = {"count": COUNT, "finite": COUNT, "nan": COUNT, "inf": COUNT, "minus_inf": COUNT, "min": (FLAG, NUMBER, NULL), "max": (FLAG, NUMBER, NULL),
           "mean": (NUMBER, NULL), "std": (NUMBER, NULL),
           "histogram": {"lo": NUMBER, "hi": NUMBER, "below": COUNT, "above": COUNT, "counts": [COUNT]},
           "percentiles": [{"percent": NUMBER, "value": (NUMBER, NULL), "error": (NUMBER, NULL)}]}
FOLDERS = {"folders": [{"name": TEXT, "read_only": FLAG, "shared": FLAG}]}
IN_FOLDER = ({"kind": Kind("'folder'", lambda v: v == "folder"), "entries": [{"name": TEXT, "kind": TEXT, "modified": TEXT, "size": Maybe(COUNT)}]},
             {"kind": Kind("'file'", lambda v: v == "file"), "format": TEXT, "size": COUNT, "dims": Each({"length": COUNT}),
              "variables": [{"name": TEXT, "dtype": (TEXT, NULL), "shape": [COUNT], "dims": Maybe(([(TEXT, NULL)], NULL)), "attrs": Maybe(OBJECT)}]})
PROBLEM = {"status": COUNT, "code": TEXT, "detail": TEXT}
FRAME = {"range": [NUMBER], "bytes": COUNT, "png": TEXT}
LISTS = {of: {of: [OBJECT], "next": Maybe(NAME)} for of in ("sessions", "jobs", "functions", "arrays", "principals", "entries")}
ADMIN = {"sessions": "sessions", "jobs": "jobs", "arrays": "arrays", "principals": "principals", "audit": "entries"}  # and their lists
ENDS = ("session", "job", "array", "principal")
HANDED_OVER = ({"size": COUNT}, {"status": COUNT})

_FILE = {"folder": TEXT, "path": TEXT}
_JOB = {"step": COUNT, "steps": COUNT, "steps_per_s": NUMBER, "elapsed_s": NUMBER, "device_s": NUMBER}
_JOB_AT_TIMES = {"import": Maybe(_FILE), "export": Maybe(_FILE),
                 "program": Maybe({"body": [TEXT], "bind": Maybe(OBJECT), "record": Maybe(OBJECT), "arrays": Maybe([{"name": TEXT, "id": ID}])}),
                 "eta_s": Maybe(NUMBER), "records_from": Maybe(COUNT), "records": Maybe(Each([ANY])), "record_every": Maybe(COUNT),
                 "snapshots": Maybe([{"name": TEXT, "step": COUNT, "id": ID}]), "failed_step": Maybe(COUNT), "failed_statement": Maybe(COUNT),
                 "error": Maybe({"status": Maybe(COUNT), "code": Maybe(TEXT), "detail": Maybe(TEXT), "pointer": Maybe(TEXT),
                                 "offset": Maybe(COUNT)})}
JOB = {"id": ID, "session": ID, "state": TEXT, **_JOB, **_JOB_AT_TIMES}
EVENT = {"id": Maybe(ID), "state": Maybe(TEXT), **{k: Maybe(form) for k, form in _JOB.items()}, **_JOB_AT_TIMES}  # what has changed

# and of what the command shows
LISTED = {**MADE, "name": NAME, "dtype": TEXT, "shape": [COUNT], "nbytes": COUNT, "created": TEXT, "ghost": Maybe([COUNT])}
LISTED_SESSION = {"id": ID, "name": NAME, "arrays": COUNT, "bytes_in_use": NUMBER, "memory_limit": (NUMBER, NULL), "ttl_s": (NUMBER, NULL),
                  "device_s": Maybe(NUMBER)}
JOBS = {"jobs": [JOB], "next": Maybe(NAME)}
OTHERS_SESSION = {"owner": TEXT, "session": LISTED_SESSION}
OTHERS_JOBS = {"jobs": [{"owner": TEXT, "job": JOB}], "next": Maybe(NAME)}
OPERATIONS = {"operations": [{"name": TEXT, "signature": Maybe(TEXT)}]}
ABOUT = {"version": TEXT, "backend": TEXT, "devices": [{"index": COUNT, "name": TEXT, "memory": NUMBER, "free": NUMBER, "kept": Maybe(NUMBER), "parts": Maybe([COUNT])}],
         "bytes_in_use": NUMBER, "host_bytes_in_use": NUMBER, "dtypes": [TEXT], "limits": OBJECT, **OPERATIONS,
         "state": {"kept": FLAG, "restored_from": (TEXT, NULL)},
         "principal": {"name": TEXT, "role": TEXT, "weight": NUMBER, "quotas": Each({"used": NUMBER, "limit": (NUMBER, NULL)}),
                       "device_s": Maybe(NUMBER), "this_month": Maybe({"month": TEXT, "device_s": NUMBER}), "requests_total": Maybe(NUMBER)}}

# --- holding against it ---


def parsed(text: bytes, form: Any, what: str, status: int = 0) -> Any:
    """JSON of that form; BadReply where it is none. `what`: the request that it answers."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise BadReply(status, "bad_reply", f"{what}: the reply is not JSON: {e}") from e
    wrong = fault(value, form)
    if wrong:
        raise BadReply(status, "bad_reply", f"{what}: {wrong}")
    return value


def fault(value: Any, form: Any, at: str = "") -> Optional[str]:
    """Where a value is not of the form (a JSON pointer), and what it is there; None where it is."""
    if isinstance(form, Kind):
        return None if form.holds(value) else f"{_place(at)} is {_shown(value)}, not {form.called}"
    if isinstance(form, tuple) and not isinstance(form, Each):
        faults = [fault(value, f, at) for f in form]
        return None if None in faults else "; and ".join(dict.fromkeys(map(str, faults)))
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{_place(at)} is {_shown(value)}, not a list"
        return _first(fault(v, form[0], f"{at}/{k}") for k, v in enumerate(value))
    if not isinstance(value, dict):
        return f"{_place(at)} is {_shown(value)}, not an object"
    if isinstance(form, Each):
        return _first(fault(v, form.form, f"{at}/{name}") for name, v in value.items())
    return _first(_member(value, name, f, at) for name, f in form.items())


def _member(value: Dict[str, Any], name: str, form: Any, at: str) -> Optional[str]:
    if isinstance(form, Maybe):
        return fault(value[name], form.form, f"{at}/{name}") if name in value else None
    return fault(value[name], form, f"{at}/{name}") if name in value else f"{_place(at)} has no member {name!r}"


def _first(faults: Iterator[Optional[str]]) -> Optional[str]:
    return next(filter(None, faults), None)


def _place(at: str) -> str:
    return f"{at!r} of the reply" if at else "the reply"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
