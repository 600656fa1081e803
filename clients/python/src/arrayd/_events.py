"""What the daemon tells by itself, as Server-Sent Events (the HTML standard's text/event-stream), and waiting for a daemon that is away."""
from __future__ import annotations

import base64
import binascii
import json
import socket
import time
import urllib.parse
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, Iterator, List, Optional, Tuple, Type

from ._errors import ArraydError, BadReply, ConnectionLost, Denied, NotFound, OutOfMemory, error_of
from ._replies import FRAME, OBJECT, PROBLEM, fault, parsed
from ._requests import Request, Steps

if TYPE_CHECKING:
    from ._async_transport import AsyncTransport
    from ._looks import Picture
    from ._transport import Transport

STREAM = "text/event-stream"
TAKEN: Dict[Any, Tuple[Type[ArraydError], int, str, str]] = {  # reasons that are no end of what is told: what a request would get now
    "login_ended": (Denied, 401, "unauthorized", "the login, the token or the account that listened has ended"),
    "not_shared": (NotFound, 404, "not_found", "the array is no longer shared with this user"),
    "out_of_memory": (OutOfMemory, 507, "out_of_memory", "the daemon has no memory for what there is to tell of so many arrays and jobs")}


class Absence:
    """How long waiting outlasts the daemon: after a death or an upgrade what is waited for goes on in the next one, and to read it again
    is safe."""

    LONGEST = 30.0  # seconds until the daemon is back
    PAUSES = (0.05, 1.0)  # the first, the longest

    def __init__(self, what: str):
        """`what` is waited for."""
        self._what = what
        self._since: Optional[float] = None
        self._pause = 0.0

    def over(self) -> None:
        self._since = None

    def pause(self, e: Optional[ArraydError] = None, until: Optional[float] = None) -> float:
        """Seconds to sleep before it is asked for again, after that error, or after events that ended early. Other errors, and
        this one after a while, are raised."""
        if e is not None and not _is_absent(e):
            raise e
        now = time.monotonic()
        if self._since is None:
            self._since, self._pause = now, self.PAUSES[0] / 2
        if now - self._since > self.LONGEST:
            raise ConnectionLost(0, e.code if e else "connection_lost",
                                 f"while waiting for {self._what}: {e.detail if e else 'the events ended'}") from e
        self._pause = min(2 * self._pause, self.PAUSES[1])
        return self._pause if until is None else max(0.0, min(self._pause, until - now))


def _is_absent(e: ArraydError) -> bool:
    """Whether the daemon may be back in a moment: not where it was there, but too slow, and not for a client that is closed."""
    if isinstance(e, ConnectionLost):
        return e.code != "client_closed" and not isinstance(e.__cause__, (socket.timeout, TimeoutError))
    return e.code == "draining"


class Events:
    """The lines of a stream become its events: their data, as JSON of a form (see `_replies.py`)."""

    def __init__(self, request: Request, form: Any) -> None:
        self.what = f"{request.method} {request.path}"
        self._form = form
        self._data: List[bytes] = []
        self._kind = self.name = self.last = ""  # of the event that comes, of the last one; and that one's id
        self.ended = False  # it was the last there is

    def line(self, raw: bytes) -> Optional[Dict[str, Any]]:
        """The event that this line ends, or None."""
        text = raw.rstrip(b"\r\n")
        if text.startswith(b"data:"):
            self._data.append(text[5:].lstrip())
        elif text.startswith(b"event:"):
            self._kind = text[6:].strip().decode("latin-1")
        elif text.startswith(b"id:"):
            self.last = text[3:].strip().decode("latin-1")
        elif not text and self._data:
            data, self._data = b"\n".join(self._data), []
            self.name, self._kind = self._kind, ""
            self.ended = self.name == "end"
            event: Dict[str, Any] = parsed(data, self._form, self.what)
            return event
        return None

    def cut(self) -> None:
        """What came of an event whose end did not."""
        self._data, self._kind = [], ""


class Told(Events):
    """The events of what lasts until somebody ends it: an array, a session. Where the daemon is away they go on in the next one."""

    def __init__(self, request: Request, form: Any) -> None:
        super().__init__(request, form)
        self._request = request
        self.absence = Absence(self.what)

    def request(self) -> Request:
        """From the last event on."""
        return self._request._replace(headers=(*self._request.headers, ("Last-Event-ID", self.last))) if self.last else self._request

    def told(self, raw: bytes) -> Optional[Dict[str, Any]]:
        """An event that the caller gets; raises the problem of what cannot be told."""
        event = self.line(raw)
        if event is None:
            return None
        self.absence.over()
        if self.name == "error":
            wrong = fault(event, PROBLEM)
            raise BadReply(0, "bad_reply", f"{self.what}: {wrong}") if wrong else error_of(event["status"], {}, json.dumps(event).encode())
        if not self.ended:
            return event
        reason = event.get("reason")
        self.ended = reason != "stopping" and reason not in TAKEN
        if reason in TAKEN:
            of, status, code, detail = TAKEN[reason]
            raise of(status, code, f"{self.what}: {detail}")
        return None

    def all(self, transport: "Transport") -> Iterator[Tuple[str, Dict[str, Any]]]:
        while not self.ended:
            lost: Optional[ArraydError] = None
            try:
                with transport.stream(self.request()) as reply:
                    for raw in reply.lines():
                        event = self.told(raw)
                        if event is not None:
                            yield self.name, event
            except ArraydError as e:
                lost = e
            if not self.ended:
                self.cut()
                time.sleep(self.absence.pause(lost))

    async def each(self, transport: "AsyncTransport") -> AsyncIterator[Tuple[str, Dict[str, Any]]]:
        import asyncio

        while not self.ended:
            lost: Optional[ArraydError] = None
            try:
                async for raw in transport.stream(self.request()):
                    event = self.told(raw)
                    if event is not None:
                        yield self.name, event
            except ArraydError as e:
                lost = e
            if not self.ended:
                self.cut()
                await asyncio.sleep(self.absence.pause(lost))


def path_of(path: str, query: Dict[str, Any]) -> str:
    text = urllib.parse.urlencode({k: v for k, v in query.items() if v is not None})
    return path + (f"?{text}" if text else "")


def of_array(x: Any, query: Dict[str, Any]) -> Steps[Told]:
    """An array's, which gets a place on the server for them."""
    engine = x._client._engine
    handle = yield from engine.place(x._node)
    request = Request("GET", path_of(f"/v1/arrays/{handle.id}/events", query), accept=STREAM, headers=engine.headers)
    return Told(request, OBJECT)


def of_lists(headers: Tuple[Tuple[str, str], ...], interval: Optional[float]) -> Told:
    return Told(Request("GET", path_of("/v1/events", {"interval": interval}), accept=STREAM, headers=headers), OBJECT)


def picture_of(stream: Told, event: Dict[str, Any]) -> "Optional[Picture]":
    """Of a frame; None: the event is none."""
    from ._looks import Picture, is_png

    if stream.name != "frame":
        return None
    wrong = fault(event, FRAME)
    try:
        png = b"" if wrong else base64.b64decode(event["png"], validate=True)
    except (binascii.Error, ValueError):
        png = b""
    if wrong or not is_png(png) or len(event["range"]) != 2:
        raise BadReply(0, "bad_reply", f"{stream.what}: {wrong or 'a frame is no picture'}")
    return Picture(png, *map(float, event["range"]))
