#!/usr/bin/env python3
"""A process that has an array's memory and nothing else: what bench_export.py and the tests kill.

    export_consumer.py SOCKET ARRAY read|write [light]

Over the daemon's Unix socket it asks for the array's memory, takes the descriptor, maps it (memfd, or CUDA by the driver of
ARRAYD_LIBCUDA), says "mapped" on standard output, and waits. Before that it has used it: a memfd's first byte is written again where
that is allowed, a GPU's is read in a context of its own, unless "light" and the driver maps without one (a context takes a GPU
longer than everything else here). Standard library alone.
"""
import ctypes
import json
import mmap
import os
import socket
import sys
import time


def ask(path, array, mode):
    """The reply of POST …/export; a locked array (its last user is still being buried) is asked for again."""
    body = json.dumps({"mode": mode}).encode()
    deadline = time.monotonic() + 20
    while True:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            s.sendall(f"POST /v1/arrays/{array}/export HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                      f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            reply = b""
            while piece := s.recv(65536):
                reply += piece
        head, _, body_ = reply.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        if status == 201:
            return json.loads(body_)
        if status != 409 or time.monotonic() > deadline:
            sys.exit(f"{status}: {body_.decode()}")
        time.sleep(0.01)


def take(reply):
    s = socket.socket(socket.AF_UNIX)
    s.connect(reply["socket"])
    s.sendall(reply["token"].encode() + b"\n")
    line, fds, _, _ = socket.recv_fds(s, 4096, 1)
    if not fds:
        sys.exit(line.decode())
    return s, fds[0], json.loads(line)["size"]


class Access(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int), ("flags", ctypes.c_int)]


def map_cuda(fd, size, uuid, light):
    library = ctypes.CDLL(os.environ.get("ARRAYD_LIBCUDA") or "libcuda.so.1")

    def call(name, *arguments):
        code = getattr(library, name)(*arguments)
        if code and name.startswith("cuMem") and not context:  # it does not go without one
            begin_context()
            code = getattr(library, name)(*arguments)
        if code:
            sys.exit(f"{name}: {code}")

    def begin_context():
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call("cuCtxSetCurrent", context)

    def find(name):
        return f"{name}_v2" if hasattr(library, f"{name}_v2") else name

    n, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    handle, address = ctypes.c_ulonglong(), ctypes.c_ulonglong()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(n))
    for k in range(n.value):
        own = (ctypes.c_ubyte * 16)()
        call("cuDeviceGet", ctypes.byref(device), k)
        call(find("cuDeviceGetUuid"), own, device)
        if bytes(own).hex() == uuid[4:].replace("-", ""):
            break
    else:
        sys.exit(f"no {uuid} here")
    if not light:
        begin_context()
    call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), 1)
    call("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_ulonglong(0),
         ctypes.c_ulonglong(0))
    call("cuMemMap", address, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0))
    access = Access(1, device.value, 3)
    call("cuMemSetAccess", address, ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1))
    if light:
        return
    byte = ctypes.c_ubyte()
    call("cuMemcpyDtoHAsync_v2", ctypes.byref(byte), address, ctypes.c_size_t(1), None)
    call("cuCtxSynchronize")


def main():
    path, array, mode, *light = sys.argv[1:]
    reply = ask(path, array, mode)
    kept, fd, size = take(reply)
    if reply["kind"] == "cuda":
        map_cuda(fd, size, reply["uuid"], light == ["light"])
    else:
        memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | (mmap.PROT_WRITE if mode == "write" else 0))
        first = memory[0]
        if mode == "write":
            memory[0] = first
    print("mapped", flush=True)
    time.sleep(3600)
    kept.close()


if __name__ == "__main__":
    main()
