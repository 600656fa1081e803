"""HTTP/1.1 over a socket, as far as the daemon speaks it: lengths, chunks, connections that stay.

It is spoken here rather than by the standard library's client because that one takes longer for a reply's head (some 50 µs, most
of them in the package for electronic mail) than the daemon takes for a small evaluation, and because bodies go between the socket
and an array's memory without a copy here.
"""
from __future__ import annotations

import os
import select
import socket
import ssl
from typing import Any, Dict, Iterable, Iterator, NamedTuple, Optional

ROOM = 1 << 16  # bytes: a reply's head, and a line of it, is no longer
DIGITS = 16  # of a length; more could only be a lie
JOINED = 1 << 16  # bytes: a body up to that goes with its head in one piece


class BadReply(Exception):
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
        raise BadReply(f"this is no HTTP/1.1 reply: {first[:40]!r}")
    headers: Dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip()
        if name == "content-length" and headers.get(name, value) != value:
            raise BadReply("the reply has two lengths")
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
        raise BadReply(f"the reply's length is no number: {length[:40]!r}")
    return Head(status, headers, False, int(length), stays)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()  # to Python superscripts are digits, too


def chunk_length(line: bytes) -> int:
    """Of a chunk, by the line before it."""
    text = line.split(b";")[0].strip()
    if not 0 < len(text) < DIGITS or text.strip(b"0123456789abcdefABCDEF"):
        raise BadReply("a chunk of the reply has no length")
    return int(text, 16)


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


def forsake(sock: Any) -> None:
    """A socket that is another process', too: it ends here alone, which neither TLS nor the daemon is told. Its number stays taken until
    it is closed, so that this can be done to one that is in use."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nothing, sock.fileno(), inheritable=False)
    finally:
        os.close(nothing)


class Wire:
    """One connection, used by one thread at a time."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self._buffer = bytearray(ROOM)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0  # what was received and not yet read
        self._arrived: Any = None
        if hasattr(select, "poll") and not isinstance(sock, ssl.SSLSocket):
            self._arrived = select.poll()
            self._arrived.register(sock, select.POLLIN)

    @classmethod
    def to(cls, host: str, port: int, path: Optional[str], context: Optional[ssl.SSLContext], timeout: Optional[float]) -> "Wire":
        """Connected: to a Unix socket's path where there is one, with TLS where there is a context."""
        if path is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(timeout)
                sock.connect(path)
            except BaseException:
                sock.close()
                raise
            return cls(sock)
        sock = socket.create_connection((host, port), timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                sock = context.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    def close(self) -> None:
        self.sock.close()

    def forsake(self) -> None:
        if self.sock.fileno() >= 0:
            forsake(self.sock)

    @property
    def usable(self) -> bool:
        """Open, with nothing in it that nobody asked for: the next reply is the next request's. (A socket with TLS may hold something of
        TLS's own.)"""
        return self._start == self._end and (self._arrived is None or not self._arrived.poll(0))

    # --- out ---

    def write(self, head: bytes, body: Any = None) -> None:
        """A request, or several in one piece. That the daemon hangs up before all of the body has come is no mistake where it has
        said why."""
        if body is None or not len(body):
            self.sock.sendall(head)
            return
        pieces = [memoryview(body).cast("B")] if is_buffer(body) else body
        if pieces is not body and len(pieces[0]) <= JOINED:
            self.sock.sendall(head + pieces[0])
            return
        self.sock.sendall(head)
        try:
            for piece in pieces:
                self.sock.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            if not self._more():
                raise

    # --- in ---

    def _more(self) -> int:
        """Receives into the buffer; 0 at the end of what comes."""
        if self._start:
            rest = self._buffer[self._start:self._end]
            self._buffer[:len(rest)] = rest
            self._start, self._end = 0, len(rest)
        n = self.sock.recv_into(self._view[self._end:])
        self._end += n
        return n

    def _until(self, mark: bytes) -> bytes:
        """What comes up to the mark, which goes."""
        while True:
            at = self._buffer.find(mark, self._start, self._end)
            if at >= 0:
                out = bytes(self._view[self._start:at])
                self._start = at + len(mark)
                return out
            if self._end - self._start == ROOM:
                raise BadReply("a line or head of the reply is too long")
            began = self._end > self._start
            if not self._more():
                if began:
                    raise BadReply("the reply ended before its time")
                raise Gone("the daemon closed the connection")

    def head(self, method: str) -> Head:
        """The head of the next reply."""
        while True:
            h = head_of(self._until(b"\r\n\r\n"), method)
            if h.status >= 200:
                return h

    def some(self, into: memoryview) -> int:
        """Some bytes of a body that is to fill the view; 0 at the end of the connection."""
        n = min(self._end - self._start, len(into))
        if n:
            into[:n] = self._view[self._start:self._start + n]
            self._start += n
            return n
        return self.sock.recv_into(into)

    def _exactly(self, into: memoryview) -> None:
        """Fills the view, straight from the socket where nothing has been received before."""
        n = 0
        while n < len(into):
            got = self.some(into[n:])
            if not got:
                raise BadReply("the reply ended before its time")
            n += got

    def pieces(self, h: Head) -> Iterator[bytes]:
        """The body, as it comes."""
        left = h.length
        while h.chunked or left:
            if h.chunked:
                left = chunk_length(self._until(b"\r\n"))
                if not left:
                    while self._until(b"\r\n"):
                        pass
                    return
            while left:
                if self._start == self._end and not self._more():
                    if left < 0:
                        return
                    raise BadReply("the reply ended before its time")
                n = self._end - self._start if left < 0 else min(left, self._end - self._start)
                piece = bytes(self._view[self._start:self._start + n])
                self._start += n
                left -= n if left > 0 else 0
                yield piece
            if h.chunked:
                self._until(b"\r\n")

    def body(self, h: Head, into: Optional[memoryview] = None) -> bytes:
        """The whole body; b"" where it went into the view, whose size it must have."""
        if into is not None:
            if h.length != len(into):
                raise BadReply(f"the reply has {h.length} bytes where the array has {len(into)}")
            self._exactly(into)
            return b""
        if h.length < 0:
            return b"".join(self.pieces(h))
        n = self._start + h.length
        if n <= self._end:
            out = bytes(self._view[self._start:n])
            self._start = n
            return out
        whole = bytearray(h.length)
        self._exactly(memoryview(whole))
        return bytes(whole)


def lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines, without their ends, as they come."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
