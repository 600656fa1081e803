"""HTTP/1.1 as far as the daemon speaks it (lengths, chunks, connections that stay), without I/O: bytes in, replies out.

It is spoken here rather than by the standard library's client because that one takes longer for a reply's head (some 50 µs, most
of them in the package for electronic mail) than the daemon takes for a small evaluation, because bodies go between the socket
and an array's memory without a copy here, and because the synchronous and the asynchronous client are to do the same.

What reads a reply is a `Reading`: a generator that looks at what its connection's `Inbox` has, and yields where that is not enough.
Whoever has the connection receives something into `inbox.room()`, says so (`received`, `end`), and lets it go on.
"""
from __future__ import annotations

import itertools
from typing import Any, Dict, Generator, Iterable, List, NamedTuple, Optional, TypeVar

ROOM = 1 << 16  # bytes: a reply's head, and a line of it, is no longer
DIGITS = 16  # of a length; more could only be a lie
JOINED = 1 << 16  # bytes: a body up to that goes with its head in one piece
CUT_OFF = "the reply ended before its time"

T = TypeVar("T")
Reading = Generator[None, None, T]
PROVISIONAL = 100  # replies of 1xx before the one that counts


class Garbled(Exception):
    """What came is no HTTP/1.1 reply, or not the one that was asked for."""


class Gone(ConnectionResetError):
    """The daemon closed the connection before a reply began."""


class Head(NamedTuple):
    status: int
    headers: Dict[str, str]  # names in lower case
    chunked: bool
    length: int  # of the body; -1: chunked, or up to the end of the connection
    stays: bool  # the connection can be used again


def head_of(raw: bytes, method: str) -> Head:
    """A reply's head, up to the empty line."""
    first, *lines = raw.decode("latin-1").split("\r\n")
    version, code = first[:9], first[9:12]
    if version not in ("HTTP/1.1 ", "HTTP/1.0 ") or not _is_number(code):
        raise no_reply(first[:40])
    headers: Dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip()
        if name == "content-length" and headers.get(name, value) != value:
            raise Garbled("the reply has two lengths")
        headers[name] = value
    status = int(code)
    stays = version == "HTTP/1.1 " and "close" not in headers.get("connection", "").lower()
    if method == "HEAD" or status in (204, 304) or status < 200:
        return Head(status, headers, False, 0, stays)
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return Head(status, headers, True, -1, stays)
    length = headers.get("content-length")
    if length is None:
        return Head(status, headers, False, -1, False)
    if not _is_number(length) or len(length) > DIGITS:
        raise Garbled(f"the reply's length is not a number: {length[:40]!r}")
    return Head(status, headers, False, int(length), stays)


def no_reply(first: str) -> Garbled:
    return Garbled(f"this is not an HTTP/1.1 reply: {first!r}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()  # to Python superscripts are digits, too


def chunk_length(line: bytes) -> int:
    """Of a chunk, by the line before it."""
    text = line.split(b";")[0].strip()
    if not 0 < len(text) < DIGITS or text.strip(b"0123456789abcdefABCDEF"):
        raise Garbled("a chunk of the reply has no length")
    return int(text, 16)


# --- out ---


def is_buffer(body: Any) -> bool:
    if isinstance(body, (bytes, bytearray, memoryview)):
        return True
    try:
        memoryview(body)
    except TypeError:
        return False
    return True


def length_of(body: Any) -> int:
    """Of a request's body, in bytes."""
    return memoryview(body).nbytes if is_buffer(body) else len(body)


def pieces_of(head: bytes, body: Any) -> Iterable[Any]:
    """A request as it is to be written: a small body in one piece with its head."""
    if body is None or not len(body):
        return (head,)
    if not is_buffer(body):
        return itertools.chain((head,), body)
    data = memoryview(body).cast("B")
    return (head + data,) if len(data) <= JOINED else (head, data)


# --- in ---


class Inbox:
    """What has been received on a connection and not yet read, and where more of it goes."""

    def __init__(self) -> None:
        self._buffer = bytearray(ROOM)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._into: Optional[memoryview] = None  # a body's place, before anything goes to the buffer
        self._over = False  # nothing more comes
        self._why = "the daemon closed the connection"

    # --- by who receives ---

    def room(self) -> memoryview:
        """Where what is received next belongs: never nothing."""
        if self._into is not None:
            return self._into
        if self._start:
            rest = self._buffer[self._start:self._end]
            self._buffer[:len(rest)] = rest
            self._start, self._end = 0, len(rest)
        if self._end == len(self._buffer):  # something came that nobody had waited for
            self._buffer = self._buffer + bytearray(ROOM)
            self._view = memoryview(self._buffer)
        return self._view[self._end:]

    def received(self, n: int) -> bool:
        """So many bytes, none at the end; whether it is worthwhile to go on reading."""
        if not n:
            self._over = True
        elif self._into is None:
            self._end += n
        else:
            self._into = self._into[n:] if n < len(self._into) else None
            return self._into is None
        return True

    def end(self, why: Optional[Exception] = None) -> None:
        self._over = True
        if why is not None:
            self._why = str(why)

    @property
    def wanted(self) -> int:
        """Bytes that are sure to come before anybody looks at them."""
        return 0 if self._into is None or self._over else len(self._into)

    @property
    def ended(self) -> bool:
        return self._over

    @property
    def empty(self) -> bool:
        return self._start == self._end

    @property
    def full(self) -> bool:
        """There is more than a line or a head may have."""
        return self._end - self._start >= ROOM

    def gone(self) -> Gone:
        return Gone(self._why)

    # --- by who reads ---

    def begin(self, n: int) -> bytes:
        """The first bytes, so many at most, which remain."""
        return bytes(self._view[self._start:min(self._start + n, self._end)])

    def next(self, n: int) -> Optional[bytes]:
        """So many bytes, if they are here already."""
        if self._end - self._start < n:
            return None
        self._start += n
        return bytes(self._view[self._start - n:self._start])

    def take(self, into: memoryview) -> int:
        """What is here already, as far as the view has room for it."""
        n = min(self._end - self._start, len(into))
        if n:
            into[:n] = self._view[self._start:self._start + n]
            self._start += n
        return n

    def find(self, mark: bytes) -> Optional[bytes]:
        """What is here up to the mark, which goes; None where the mark is still to come."""
        at = self._buffer.find(mark, self._start, self._end)
        if at >= 0:
            out = bytes(self._view[self._start:at])
            self._start = at + len(mark)
            return out
        if self._end - self._start >= ROOM:
            raise Garbled("a line or head of the reply is too long")
        if self._over:
            raise self.gone() if self.empty else Garbled(CUT_OFF)
        return None

    def until(self, mark: bytes) -> Reading[bytes]:
        """What comes up to the mark, which goes."""
        while True:
            found = self.find(mark)
            if found is not None:
                return found
            yield

    def exactly(self, into: memoryview) -> Reading[None]:
        """Fills the view, straight from the connection where nothing has been received before."""
        n = self.take(into)
        if n == len(into):
            return
        self._into = into[n:] if n else into
        try:
            while self._into is not None:
                if self._over:
                    raise Garbled(CUT_OFF)
                yield
        finally:
            self._into = None

    def some(self, most: int) -> Reading[bytes]:
        """What has come, or comes next, up to so many bytes; b"" at the end."""
        while self.empty:
            if self._over:
                return b""
            yield
        return self.next(min(most, self._end - self._start)) or b""


def head_from(inbox: Inbox, method: str) -> Reading[Head]:
    """The head of the next reply, behind those that are for the time being."""
    for _ in range(PROVISIONAL):
        while (raw := inbox.find(b"\r\n\r\n")) is None:
            if not b"HTTP/".startswith(inbox.begin(5)):  # it may be another service's greeting, behind which nothing comes
                raise no_reply(inbox.begin(40).decode("latin-1"))
            yield
        head = head_of(raw, method)
        if head.status >= 200:
            return head
    raise Garbled(f"{PROVISIONAL} replies, the last with status {head.status}, and none that is the last")


class Body:
    """What follows a reply's head."""

    def __init__(self, inbox: Inbox, head: Head):
        self._inbox, self._chunked, self.length = inbox, head.chunked, head.length
        self._left = 0 if head.chunked else head.length  # of a chunk, or of the whole; -1: to the end of the connection
        self._ended = not head.chunked and not head.length
        self._first = True  # no chunk has come yet

    def left(self) -> Reading[int]:
        """Bytes that come next with nothing between them: of the whole, or of a chunk; -1: all up to the end of the connection; 0: it has
        ended. Who takes some of them says so (`took`)."""
        if self._chunked and not self._left and not self._ended:
            yield from self._next_chunk()
        return 0 if self._ended else self._left

    def took(self, n: int) -> None:
        """So many of them; none at the end of the connection."""
        if self._left < 0:
            self._ended = not n
        elif not n:
            raise Garbled(CUT_OFF)
        else:
            self._left -= n
            self._ended = not self._left and not self._chunked

    def some(self) -> Reading[bytes]:
        """Some of it; b"" at its end."""
        left = yield from self.left()
        if not left:
            return b""
        data = yield from self._inbox.some(left if left > 0 else ROOM)
        self.took(len(data))
        return data

    def _next_chunk(self) -> Reading[None]:
        if not self._first:
            yield from self._inbox.until(b"\r\n")
        self._first = False
        self._left = chunk_length((yield from self._inbox.until(b"\r\n")))
        if not self._left:
            while (yield from self._inbox.until(b"\r\n")):
                pass
            self._ended = True

    def whole(self, into: Optional[memoryview] = None) -> Reading[bytes]:
        """All of it; b"" where it goes into the view, whose size it must have."""
        if into is not None:
            yield from self._fill(into)
            return b""
        if self._left >= 0 and not self._chunked:
            self._ended = True
            try:
                view = memoryview(bytearray(self._left))
            except (MemoryError, OverflowError):
                raise Garbled(f"there is not enough memory for the reply of {self._left} bytes") from None
            yield from self._inbox.exactly(view)
            return bytes(view)
        parts: List[bytes] = []
        while True:
            data = yield from self.some()
            if not data:
                return b"".join(parts)
            parts.append(data)

    def _fill(self, into: memoryview) -> Reading[None]:
        """What it has to be is known here: too much is not waited for."""
        if self.length not in (-1, len(into)):
            raise Garbled(f"the reply has {self.length} bytes where the array has {len(into)}")
        done = 0
        while True:
            left = yield from self.left()
            if not left:
                break
            data = (yield from self._inbox.some(ROOM)) if left < 0 else b""  # nobody knows how many there are to come
            n = left if left > 0 else len(data)
            if n > len(into) - done:
                raise Garbled(f"the reply has more than the {len(into)} bytes that the array has")
            if left > 0:
                yield from self._inbox.exactly(into[done:done + n])
            else:
                into[done:done + n] = data
            self.took(n)
            done += n
        if done != len(into):
            raise Garbled(f"the reply has {done} bytes where the array has {len(into)}")


class Lines:
    """Lines, without their ends, as they come."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, data: bytes) -> List[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines
