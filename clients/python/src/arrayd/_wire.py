"""A connection of the synchronous client: a socket, and what `_http.py` makes of its bytes.

Of a large body the thread is woken for half a mebibyte at a time (SO_RCVLOWAT), not for each segment: on two cores, one of which the
daemon has, a download takes two thirds of the time so.
"""
from __future__ import annotations

import os
import select
import socket
import ssl
import sys
from typing import Any, Optional

from ._http import Inbox, Reading, T, pieces_of


AT_ONCE = 1 << 19  # bytes


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
        self.sock, self.inbox = sock, Inbox()
        self._arrived: Any = None
        if hasattr(select, "poll") and not isinstance(sock, ssl.SSLSocket):
            self._arrived = select.poll()
            self._arrived.register(sock, select.POLLIN)
        self._sleeps = self._arrived is not None and sys.platform == "linux"  # for some time, where much is to come

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

    abort = close

    def forsake(self) -> None:
        if self.sock.fileno() >= 0:
            forsake(self.sock)

    @property
    def usable(self) -> bool:
        """Open, with nothing in it that nobody asked for: the next reply is the next request's. (Below TLS there may be something of TLS's
        own.)"""
        if isinstance(self.sock, ssl.SSLSocket) and self.sock.pending():
            return False
        return self.inbox.empty and (self._arrived is None or not self._arrived.poll(0))

    @property
    def has_come(self) -> bool:
        """Whether there is something to receive, or the connection has ended."""
        if self._arrived is not None:
            return bool(self._arrived.poll(0))
        return bool(isinstance(self.sock, ssl.SSLSocket) and self.sock.pending()) or bool(select.select([self.sock], [], [], 0)[0])

    def write(self, head: bytes, body: Any = None) -> None:
        """A request, or several in one piece. That the daemon hangs up before all of the body has come is no mistake where it has
        said why."""
        first = True
        for piece in pieces_of(head, body):
            try:
                self.sock.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                if first:
                    raise
                self._receive()
                if self.inbox.empty:
                    raise
                return
            first = False

    def read(self, reading: Reading[T]) -> T:
        """What the reading comes to, by as much as it needs."""
        try:
            while True:
                next(reading)
                if self.inbox.wanted < 2 * AT_ONCE or not self._sleeps:
                    self._receive()
                else:
                    self._receive_much()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _receive(self) -> None:
        inbox, receive = self.inbox, self.sock.recv_into
        while not inbox.received(receive(inbox.room())):
            pass

    def _receive_much(self) -> None:
        """As long as it is sure that so much is to come."""
        inbox, receive = self.inbox, self.sock.recv_into
        self._wake_at(AT_ONCE)
        try:
            while inbox.wanted >= 2 * AT_ONCE:
                try:
                    n = receive(inbox.room())
                except socket.timeout:  # something may have come, although not as much
                    self._wake_at(1)
                    if not self._arrived.poll(0):
                        raise
                    n = receive(inbox.room())
                    self._wake_at(AT_ONCE)
                inbox.received(n)
        finally:
            self._wake_at(1)

    def _wake_at(self, n: int) -> None:
        """Receiving waits for so many bytes, or the end of the connection."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, n)

    def readinto(self, view: memoryview) -> int:
        """Some bytes of a body that has so many left; 0 at the end of the connection."""
        return self.inbox.take(view) or self.sock.recv_into(view)
