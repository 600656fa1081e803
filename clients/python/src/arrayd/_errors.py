"""The exceptions for requests that fail."""
from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Type, TypeVar

T = TypeVar("T")


class ArraydError(Exception):
    """A request that failed: RFC 9457's problem details. `pointer` is the place in the request's body, `offset` the character
    in the expression there; `expression`, where known, is the expression, and the message shows it with a mark below."""

    status: int
    code: str
    detail: str

    def __init__(self, status: int, code: str, detail: str, pointer: Optional[str] = None, offset: Optional[int] = None,
                 expression: Optional[str] = None, request_id: Optional[str] = None, retry_after: Optional[float] = None):
        self.status, self.code, self.detail = status, code, detail
        self.pointer, self.offset, self.expression = pointer, offset, expression
        self.request_id, self.retry_after = request_id, retry_after
        super().__init__(self._text())

    def _text(self) -> str:
        text = f"{self.detail} ({self.code})"
        if self.pointer and not self.expression:
            text += f" at {self.pointer}"
        if self.expression:
            within = self.offset is not None and 0 <= self.offset <= len(self.expression)
            text += "\n" + "\n".join(marked(self.expression, self.offset if within else None))
        return text

    def with_expression(self, expression: str) -> "ArraydError":
        return type(self)(self.status, self.code, self.detail, self.pointer, self.offset, expression, self.request_id,
                          self.retry_after)

    def with_line(self, line: str) -> "ArraydError":
        return type(self)(self.status, self.code, f"{self.detail}, in the assignment at {line}", self.pointer, self.offset, self.expression,
                          self.request_id, self.retry_after)

    def __reduce__(self) -> Any:
        return type(self), (self.status, self.code, self.detail, self.pointer, self.offset, self.expression, self.request_id,
                            self.retry_after)


class BadValue(ArraydError, ValueError):
    """422: shapes, values or expressions that are invalid or do not match."""


class BadType(ArraydError, TypeError):
    """422 dtype_mismatch: an operation that is not defined for these dtypes."""


class BadIndex(ArraydError, IndexError):
    """An index outside the array."""


class NotFound(ArraydError, LookupError):
    """404: the array, session, job or function does not exist, or belongs to another user. Also for an array in an expression that no longer exists."""


class Denied(ArraydError, PermissionError):
    """401 and 403."""


class Conflict(ArraydError):
    """409: a taken name, a lease, a read-only array."""


class Busy(ArraydError):
    """429 and 503: a quota, a full queue, a daemon that is shutting down. `retry_after` is the number of seconds to wait before trying again."""


class OutOfMemory(ArraydError, MemoryError):
    """507: there is not enough memory."""


class ConnectionLost(ArraydError, ConnectionError):
    """The daemon cannot be reached, or the connection broke before its reply; or the client is closed (`code` is "client_closed")."""


class BadReply(ArraydError):
    """A reply that the client cannot use: it is not JSON, or lacks members. It may have come from a server other than arrayd,
    or from a daemon of another version."""


class DeviceError(ArraydError, RuntimeError):
    """GPU memory could not be mapped into this process: the CUDA driver's error, or the reason why it was not called."""


_BY_CODE: Dict[str, Type[ArraydError]] = {"dtype_mismatch": BadType, "bad_index": BadIndex}
_BY_STATUS: Dict[int, Type[ArraydError]] = {400: BadValue, 401: Denied, 403: Denied, 404: NotFound, 409: Conflict, 422: BadValue,
                                            429: Busy, 503: Busy, 507: OutOfMemory}


_ID = re.compile(r"'(a-[0-9A-Za-z]+)'\Z")  # no name has a hyphen
_MISSING = re.compile(r"there is no ([a-z]+ '[a-z]-[0-9A-Za-z]+')")


def after_restart(e: NotFound, started: str) -> Optional[NotFound]:
    """The same error with its cause, where what is missing had an id that an earlier daemon gave; None: it has none."""
    missing = _MISSING.match(e.detail)
    if missing is None:
        return None
    detail = f"there is no {missing[1]} any more: the daemon was restarted at {started}, after this client had connected"
    return NotFound(e.status, e.code, detail, e.pointer, e.offset, e.expression, e.request_id, e.retry_after)


def error_of(status: int, headers: Dict[str, str], body: bytes) -> ArraydError:
    """The exception that a reply is."""
    try:
        p = json.loads(body)
        code, detail = str(p["code"]), str(p["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        p, code, detail = {}, "unknown", body[:200].decode("utf-8", "replace") or f"status {status}"
        if "html" in headers.get("content-type", ""):
            detail = f"status {status} with a page of HTML: is an arrayd daemon there, or a proxy without one behind it?"
    after = headers.get("retry-after")
    cls = _BY_CODE.get(code) or _BY_STATUS.get(status, ArraydError)
    if code == "unknown" and cls is NotFound:  # the daemon says what is not there
        cls = BadReply
    gone = _ID.search(detail) if code == "unknown_name" else None
    if gone:
        cls, detail = NotFound, f"there is no array {gone[0]} any more: it was deleted, its session ended, or the daemon was restarted"
    pointer, offset = p.get("pointer"), p.get("offset")
    return cls(status, code, detail, pointer if isinstance(pointer, str) else None, offset if isinstance(offset, int) else None, None,
               headers.get("x-request-id"), float(after) if after and after.isascii() and after.isdigit() else None)


# --- mistakes in a text ---


def place_of(e: ArraydError, places: Mapping[str, T]) -> Optional[T]:
    """What the place in the request that the error is about is of; `places`: JSON pointers of its parts, and of what each is."""
    pointer = e.pointer or ""
    return next((what for place, what in places.items() if pointer == place or pointer.startswith(place + "/")), None)


def wide(text: str) -> int:
    """The columns that a text takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def marked(text: str, offset: Optional[int], room: Optional[int] = None) -> List[str]:
    """The line of the text that the offset, in characters, is in, and a caret below it; of a line longer than `room` what is around it."""
    if offset is None:
        return ["    " + line for line in text.strip().splitlines()[:5]]
    offset = min(offset, len(text))
    begin = text.rfind("\n", 0, offset) + 1
    line, at = text[begin:].split("\n", 1)[0].replace("\t", " "), offset - begin
    if room is not None and len(line) > room:
        first = max(0, min(at - room // 2, len(line) - room))
        line, at = line[first:first + room], at - first
        line, at = ("…" + line, at + 1) if first else (line, at)
        line += "…" if first + room < len(text) - begin else ""
    return ["    " + line, "    " + " " * wide(line[:at]) + "^"]


# --- jobs ---

ENDED = ("done", "failed", "cancelled")


def failure_of(status: Dict[str, Any]) -> ArraydError:
    """The error with which a job failed; its place is in the program's request."""
    p: Dict[str, Any] = status.get("error") or {}
    statement = status.get("failed_statement")
    pointer = p.get("pointer") or (None if statement is None else f"/body/{statement}")
    return ArraydError(int(p.get("status", 0)), str(p.get("code", "unknown")), str(p.get("detail", "no reason was given")), pointer,
                       p.get("offset"))


def ended_early(status: Dict[str, Any]) -> ArraydError:
    """The error for a program that somebody waited for who did not write it."""
    if status["state"] == "failed":
        return failure_of(status)
    return ArraydError(409, "cancelled", f"job {status['id']}, which ran a loop of this program, was cancelled {failed_at(status)}")


def moved_by(status: Dict[str, Any]) -> Optional[str]:
    """"import" or "export", of a job that is one."""
    return None if "program" in status else next((kind for kind in ("import", "export") if kind in status), None)


def failed_at(status: Dict[str, Any]) -> str:
    """At which step a job failed, or after how many bytes of a file, in words."""
    if moved_by(status):
        return f"after {status.get('step', 0)} bytes"
    return f"at step {status['failed_step']}" if status.get("failed_step") else f"after step {status.get('step', 0)}"


class _Unknown(str):
    """A message that tells the nearest names, too, where it is read: to find them takes longer than all that `hasattr` does else."""

    _name: str
    _names: Callable[[], Iterable[str]]

    def __new__(cls, text: str, name: str, names: Callable[[], Iterable[str]]) -> "_Unknown":
        self = super().__new__(cls, text)
        self._name, self._names = name, names
        return self

    def __str__(self) -> str:
        import difflib  # takes its time to load

        near = [] if self._name.startswith("_") else difflib.get_close_matches(
            self._name, sorted({n for n in self._names() if not n.startswith("_")}), cutoff=0.65)
        return self[:] + (f"; did you mean {' or '.join(map(repr, near))}?" if near else "")

    def __reduce__(self) -> Any:
        return str, (str(self),)


def no_attribute(of: str, name: str, names: Callable[[], Iterable[str]]) -> AttributeError:
    """With the nearest of these names, which Python itself adds only where nobody catches the error."""
    e: Any = AttributeError(_Unknown(f"{of} has no attribute {name!r}", name, names))
    e.name, e.obj = name, None  # so that Python does not add them again
    return e  # type: ignore[no-any-return]
