"""A client of exports: asks for an array's memory, takes the descriptor on PATH.fd and maps it, as docs/local.md has it."""
import json
import mmap
import os
import socket

import numpy as np

TIMEOUT = 30


def dial(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.settimeout(TIMEOUT)
    s.connect(path)
    return s


def present(path, token):
    """The connection, what the daemon says, and the descriptors that came with it."""
    s = dial(path)
    try:
        s.sendall(token.encode() + b"\n" if isinstance(token, str) else token)
    except BrokenPipeError:
        pass  # it says why
    return s, *hear(s)


def hear(s):
    line, fds, flags, _ = socket.recv_fds(s, 4096, 8, socket.MSG_CMSG_CLOEXEC)
    assert not flags & socket.MSG_CTRUNC
    while line and not line.endswith(b"\n"):
        more = s.recv(4096)
        assert more, line
        line += more
    return json.loads(line) if line else None, fds


class Export:
    def __init__(self, c, ref, mode="read", lease=None, take=True, reply=None):
        """reply: to a request for an export, which has been made; otherwise it is made here."""
        headers = {"Arrayd-Lease": lease} if lease else {}
        self.c = c
        reply = reply or c.post(f"/v1/arrays/{ref}/export", {"mode": mode}, headers=headers)
        self.reply = c.expect(201, reply).json()
        mode = self.reply["mode"]
        self.mode, self.lease = mode, {"Arrayd-Lease": self.reply["lease"]}
        self.socket = self.fd = self.map = None
        if take:
            self.take()

    def take(self):
        self.socket, said, fds = present(self.reply["socket"], self.reply["token"])
        assert said == {"kind": self.reply["kind"], "size": self.reply["size"]}, said
        self.fd, = fds
        return self

    def array(self):
        """The memory as the array's elements."""
        write = mmap.PROT_WRITE if self.mode == "write" else 0
        self.map = self.map or mmap.mmap(self.fd, self.reply["size"], mmap.MAP_SHARED, mmap.PROT_READ | write)
        dtype = np.uint16 if self.reply["dtype"] == "bfloat16" else self.reply["dtype"]
        step = np.dtype(dtype).itemsize
        return np.ndarray(self.reply["shape"], dtype, self.map, self.reply["offset"] * step, [s * step for s in self.reply["strides"]])

    def finish(self):
        """Orderly: when this returns the lease is gone. Says what else the daemon sent."""
        self.socket.shutdown(socket.SHUT_WR)
        said = b""
        while piece := self.socket.recv(4096):
            said += piece
        self.drop()
        return said

    def drop(self):
        """As if the process had gone, but for its mapping."""
        for close in (self.socket and self.socket.close, self.fd and (lambda: os.close(self.fd))):
            if close:
                close()
        self.socket = self.fd = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.socket:
            self.finish()


def figures(c):
    """Exports open now, and how those before ended."""
    text = c.get("/metrics").body.decode()
    found = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("arrayd_exports"):
            found[name.removeprefix("arrayd_exports")] = int(value)
    return found


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))
