"""arrayd-file, driven as the daemon drives it: over its socket, with a file and slabs of memory.

    with Reader(path) as r:
        r.describe()["variables"]
        r.read("t2m", start=[0], count=[2])     # a NumPy array

    with Reader(path, write=True) as r:
        r.write("netcdf4", {"t2m": array}, dims={"t2m": ["y", "x"]})

The program is ARRAYD_FILE, else arrayd-file beside the arrayd that is tested. What it answers as an error is raised as Refused.
"""
import fcntl
import json
import mmap
import os
import pathlib
import select
import signal
import socket

import numpy as np
import pytest

TIMEOUT = 60


class Refused(Exception):
    def __init__(self, code, detail):
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail


class Ended(Exception):
    """It ended without an answer; .status is what it ended with, negative for a signal."""

    def __init__(self, status):
        super().__init__(f"arrayd-file ended with {status}")
        self.status = status


def program():
    named = os.environ.get("ARRAYD_FILE")
    if named:
        return named
    from conftest import find_binary
    beside = pathlib.Path(find_binary()).with_name("arrayd-file")
    if not beside.exists():
        pytest.skip("the build has no arrayd-file")
    return str(beside)


def sanitized():
    """Whether the program needs more memory than its limits, which then does not have one."""
    with open(program(), "rb") as f:
        return b"libasan.so" in f.read()


def numpy_dtype(name):
    if name == "bfloat16":
        return np.dtype("V2")
    return np.dtype(name)


def start(argv, descriptors):
    """Starts the program with these as descriptors 3, 4, 5, and no others but the first three."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in descriptors]
    null = os.open("/dev/null", os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1)]
    actions += [(os.POSIX_SPAWN_DUP2, fd, 3 + k) for k, fd in enumerate(high)]
    try:
        return os.posix_spawn(argv[0], argv, {"LC_ALL": "C"}, file_actions=actions)
    finally:
        for fd in (null, *high):
            os.close(fd)


class Reader:
    def __init__(self, path, write=False, slab=1 << 20, slabs=4, memory=256 << 20, seconds=60, sandbox="require", threads=3, most=1 << 40):
        self.slab, self.slabs = slab, slabs
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(TIMEOUT)
        file = os.open(path, (os.O_RDWR | os.O_CREAT | os.O_TRUNC) if write else os.O_RDONLY, 0o600)
        self.memory_file = os.memfd_create("slabs")
        os.ftruncate(self.memory_file, slab * slabs)
        self.memory = mmap.mmap(self.memory_file, slab * slabs)
        self.pid = start([program()], (theirs.fileno(), file, self.memory_file))
        self.status = None
        theirs.close()
        os.close(file)
        self.text = b""
        limits = {"memory": memory, "seconds": seconds, "sandbox": sandbox, "slab": slab, "slabs": slabs, "threads": threads}
        self.send({"limits": limits | {"file": most} if write else limits, "write": write})
        self.hello = self.line()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()
        self.memory.close()
        os.close(self.memory_file)
        return self.wait()

    def wait(self):
        """What it ended with; negative for a signal."""
        if self.status is None:
            ended = os.pidfd_open(self.pid)
            late = not select.select([ended], [], [], TIMEOUT)[0]
            os.close(ended)
            if late:
                os.kill(self.pid, signal.SIGKILL)
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            assert not late, "arrayd-file does not end"
        return self.status

    def send(self, what):
        try:
            self.socket.sendall(json.dumps(what).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # its last words are still to be read

    def line(self):
        while b"\n" not in self.text:
            try:
                more = self.socket.recv(1 << 20)
            except ConnectionResetError:
                more = b""
            if not more:
                raise Ended(self.wait())
            self.text += more
        line, self.text = self.text.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(**answer["error"])
        return answer

    def describe(self):
        self.send({"do": "describe"})
        return self.line()

    def variables(self):
        return {v["name"]: v for v in self.describe()["variables"]}

    def read(self, variable, **region):
        self.send({"do": "read", "variable": variable, **region})
        head = self.line()
        data = bytearray()
        while True:
            answer = self.line()
            if "done" in answer:
                break
            at = answer["slab"] * self.slab
            data += self.memory[at:at + answer["bytes"]]
            self.send({"free": answer["slab"]})
        assert len(data) == head["nbytes"]
        return np.frombuffer(bytes(data), numpy_dtype(head["dtype"])).reshape(head["shape"])

    def write(self, format, arrays, attrs=None, dims=None, variable_attrs=None, deflate=0, dtypes=None, piece=None, unlimited=()):
        self.send({"do": "write", "format": format, "attrs": attrs or {}, "deflate": deflate, "unlimited": list(unlimited), "variables": [
            {"name": name, "dtype": (dtypes or {}).get(name, a.dtype.name), "shape": list(a.shape), "dims": (dims or {}).get(name),
             "attrs": (variable_attrs or {}).get(name, {})} for name, a in arrays.items()]})
        assert self.line() == {"ready": True}
        data = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())
        free, at, piece = list(range(self.slabs)), 0, piece or self.slab
        while at < len(data):
            if not free:
                free.append(self.line()["free"])
            slab, part = free.pop(0), data[at:at + piece]
            self.memory[slab * self.slab:slab * self.slab + len(part)] = part
            self.send({"slab": slab, "bytes": len(part)})
            at += len(part)
        while True:
            answer = self.line()
            if answer.get("done"):
                return
            free.append(answer["free"])
