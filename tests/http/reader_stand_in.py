#!/usr/bin/python3
"""A stand-in for arrayd-file, for tests of the daemon: it speaks server/reader/wire.h, and lies where its file says so.

Its files are one line of JSON, then the contents of the variables one after the other:

    {"format": "netcdf4", "attrs": {}, "dims": {}, "variables": [{"name", "dtype", "shape", "dims", "attrs"}], "lie": {...}}

A lie happens at a moment ("start", "ready", "describe", "read", "slab", "write", "free", "done"; "nth": the how many eth time)
and is a deed: "die", "kill", "hang", "flood", "close", "garbage", "say" (with "text": any line), "tell" (the same, and it ends), "wait"
(for so many "seconds"), "grow" (the file that it writes, to so many "bytes") or "change" (with "members" that replace the line's own). The deed "drip", whenever, is contents a byte at a
time, with "seconds" between them.
"""
import ctypes
import json
import mmap
import os
import signal
import socket
import sys
import time

SOCKET, FILE, SLABS = 3, 4, 5


class Reader:
    def __init__(self):
        self.socket = socket.socket(fileno=SOCKET)
        self.lines = self.socket.makefile("rb")
        self.seen = {}
        self.lie = {}

    def hear(self):
        line = self.lines.readline()
        if not line:
            sys.exit(0)
        return json.loads(line)

    def say(self, moment, **members):
        self.seen[moment] = self.seen.get(moment, 0) + 1
        if self.lie.get("at") == moment and self.lie.get("nth", 1) == self.seen[moment]:
            members = self.misbehave(members)
        self.socket.sendall(json.dumps(members).encode() + b"\n")

    def misbehave(self, members):
        deed = self.lie["deed"]
        if deed == "die":
            os._exit(3)
        elif deed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif deed == "hang":
            time.sleep(3600)
        elif deed == "flood":
            while True:
                self.socket.sendall(b"x" * 65536)
        elif deed == "close":
            self.socket.shutdown(socket.SHUT_RDWR)
            time.sleep(3600)
        elif deed == "garbage":
            self.socket.sendall(b"\x00\xff{]\n")
        elif deed == "say":
            self.socket.sendall(self.lie["text"].encode() + b"\n")
        elif deed == "tell":
            self.socket.sendall(self.lie["text"].encode() + b"\n")
            os._exit(0)
        elif deed == "grow":
            os.truncate(FILE, self.lie["bytes"])
            time.sleep(3)
        elif deed == "wait":
            time.sleep(self.lie["seconds"])
        return {**members, **self.lie.get("members", {})}

    def run(self):
        self.limits = self.hear()["limits"]
        self.slabs = mmap.mmap(SLABS, self.limits["slab"] * self.limits["slabs"])
        head = os.pread(FILE, 16 << 20, 0).split(b"\n")[0]
        try:
            self.file = json.loads(head) if head else {}
        except ValueError:
            self.file = None
        self.lie = (self.file or {}).get("lie", {})
        self.start = len(head) + 1
        self.say("ready", ready=True, sandbox="landlock+seccomp", formats=["netcdf4"])
        while True:
            asked = self.hear()
            if asked["do"] != "write" and not self.file:
                self.say("error", error={"code": "bad_file", "detail": "this is no file of a known format"})
                sys.exit(0)
            getattr(self, asked["do"])(asked)

    @staticmethod
    def size(dtype):
        return {"bool": 1, "complex64": 8, "complex128": 16, "bfloat16": 2}.get(dtype) or int("".join(c for c in dtype if c.isdigit())) // 8

    def nbytes(self, v):
        n = self.size(v["dtype"]) if v["dtype"] else 0
        for extent in v["shape"]:
            n *= extent
        return n

    def describe(self, _asked):
        told = [{"nbytes": self.nbytes(v), "chunks": None, "filters": [], "dims": None, **v} for v in self.file["variables"]]
        self.say("describe", format=self.file["format"], attrs=self.file.get("attrs", {}), dims=self.file.get("dims", {}), variables=told)

    def read(self, asked):
        import numpy as np
        at = self.start
        for v in self.file["variables"]:
            if v["name"] == asked["variable"]:
                break
            at += self.nbytes(v)
        place = tuple(slice(s, s + (c - 1) * t + 1 if c else s, t) for s, c, t in zip(asked["start"], asked["count"], asked["step"]))
        size = self.size(v["dtype"])
        data = np.frombuffer(os.pread(FILE, self.nbytes(v), at) or b"\0" * self.nbytes(v), f"V{size}").reshape(v["shape"])[place].tobytes()
        self.say("read", dtype=v["dtype"], shape=asked["count"], nbytes=len(data))
        drips = self.lie.get("deed") == "drip"
        free, slab = list(range(self.limits["slabs"])), 1 if drips else self.limits["slab"] // 16 * 16
        while data:
            while not free:
                free.append(self.hear()["free"])
            i, part, data = free.pop(), data[:slab], data[slab:]
            self.slabs[i * self.limits["slab"]:i * self.limits["slab"] + len(part)] = part
            self.say("slab", slab=i, bytes=len(part))
            time.sleep(self.lie["seconds"] if drips else 0)
        while len(free) < self.limits["slabs"]:
            free.append(self.hear()["free"])
        self.say("done", done=True)

    def write(self, asked):
        lie = asked["attrs"].get("lie")
        self.lie = json.loads(lie) if lie else {}
        head = {"format": asked["format"], "attrs": asked["attrs"], "deflate": asked["deflate"], "unlimited": asked.get("unlimited"), "variables": asked["variables"]}
        left = sum(map(self.nbytes, asked["variables"]))
        os.write(FILE, json.dumps(head).encode() + b"\n")
        self.say("write", ready=True)
        while left:
            got = self.hear()
            at = got["slab"] * self.limits["slab"]
            os.write(FILE, self.slabs[at:at + got["bytes"]])
            left -= got["bytes"]
            self.say("free", free=got["slab"])
        self.say("done", done=True)


ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with the daemon (PR_SET_PDEATHSIG)
Reader().run()
