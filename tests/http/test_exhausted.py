"""No descriptors and no memory left: clear errors, no exit, and all is well when there are some again. (Threads:
tests/unit/test_torture_shared.c; full disks: test_state_faults.py.)"""
import os
import pathlib
import resource
import socket
import time

import numpy as np
import pytest

from client import NPY, OCTETS, npy_bytes
from conftest import find_binary, settle, until


def limit(d, what, soft):
    """Sets the daemon's limit; what it was."""
    was = resource.prlimit(d.pid, what)
    resource.prlimit(d.pid, what, (soft, was[1]))
    return was


def status_of(d, field):
    with open(f"/proc/{d.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(field + ":"))


FILES = (pathlib.Path(find_binary()).parent / "arrayd-file").exists()  # each of such a body is in a file


@pytest.mark.parametrize("exports, most", [(False, 48), (True, 16)])
def test_few_descriptors(daemon_with, tmp_path, exports, most):
    """Fewer than max-connections: it says so, and refuses whom it has none for instead of leaving everybody waiting."""
    few = tmp_path / "few"
    few.write_text(f'#!/bin/sh\nulimit -n 256\nexec "{find_binary()}" "$@"\n')
    few.chmod(0o755)
    d = daemon_with("--backend", "cpu", *(["--allow-export", "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s"] if exports else []), binary=str(few))
    assert f"the limit of descriptors is low max_connections={most}" in d.log()
    c = d.client()
    assert c.expect(200, c.get("/v1/info")).json()["limits"]["max_connections"] == most
    crowd = []
    for _ in range(100 if exports else 0):  # silent, on the socket of exports
        crowd.append(socket.socket(socket.AF_UNIX))
        crowd[-1].connect(f"{tmp_path}/s.fd")
    for k in range(most + 55):
        crowd.append(socket.create_connection((d.host, d.port), timeout=5))
        crowd[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost:" if k >= most or not FILES else
                          b"PUT /v1/arrays/u HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-netcdf\r\nContent-Length: 9999\r\n\r\nabc")
    began = time.monotonic()
    until(lambda: len(os.listdir(f"/proc/{d.pid}/fd")) > (most - 1) * (2 if FILES else 1) + 55 + 64 * exports)
    other = d.client()
    assert other.get("/v1/info").status == 503
    other.close()
    c.expect(200, c.get("/v1/info"))
    assert len(os.listdir(f"/proc/{d.pid}/fd")) < 250
    for s in crowd:
        s.close()
    until(lambda: answers(d))
    assert time.monotonic() - began < 5
    c.close()


def answers(d):
    c = d.client()
    status = c.get("/v1/info").status
    c.close()
    return status == 200


@pytest.mark.in_turn
def test_no_descriptors(daemon_with, tmp_path):
    d = daemon_with("--state-dir", tmp_path / "state", "--backend", "cpu")
    c = d.client()
    c.upload(np.arange(10.0), "u")
    before = len(os.listdir(f"/proc/{d.pid}/fd"))
    highest = max(int(n) for n in os.listdir(f"/proc/{d.pid}/fd"))
    was = limit(d, resource.RLIMIT_NOFILE, highest + 3)
    crowd = []
    for _ in range(8):  # the last of them are not taken, and hear nothing or a refusal
        s = socket.create_connection((d.host, d.port), timeout=0.3)
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        crowd.append(s)
    answered = 0
    for s in crowd:
        try:
            answered += s.recv(100).startswith(b"HTTP/1.1 200")
        except OSError:
            pass
    assert answered < len(crowd)
    for _ in range(3):  # who is connected goes on
        c.expect(200, c.post("/v1/evaluate", {"expr": "sum(u)"}))
        np.testing.assert_array_equal(c.download("u"), np.arange(10.0))
    r = c.post("/v1/snapshot")
    assert r.status in (500, 503, 507) and r.json()["detail"], r
    for s in crowd:
        s.close()
    resource.prlimit(d.pid, resource.RLIMIT_NOFILE, was)
    c.expect(200, c.post("/v1/snapshot"))
    fresh = d.client()
    fresh.expect(200, fresh.get("/healthz"))
    fresh.close()
    for _ in range(500):
        if len(os.listdir(f"/proc/{d.pid}/fd")) <= before:
            break
        time.sleep(0.01)
    assert len(os.listdir(f"/proc/{d.pid}/fd")) <= before
    c.close()


def test_no_memory(daemon_with, tmp_path):
    """The address space may not grow: what needs more is refused with 507, the rest goes on."""
    d = daemon_with("--state-dir", tmp_path / "state", "--backend", "cpu")
    if status_of(d, "VmSize") > 1 << 30:
        pytest.skip("a sanitizer has taken the address space")
    c = d.client()
    c.upload(np.arange(1000.0), "u")
    was = limit(d, resource.RLIMIT_AS, status_of(d, "VmSize") * 1024 + (4 << 20))
    n = 16 << 20
    refused = [
        c.post("/v1/arrays", {"name": "big", "shape": [n], "fill": 1.5}),
        c.post("/v1/evaluate", {"expr": "arange(0, 16777216) + x", "bind": {"x": 1.0}, "name": "big"}),
        c.request("POST", f"/v1/arrays?dtype=uint8&shape={n}&name=big", bytes(n), content_type=OCTETS),
        c.request("POST", "/v1/arrays?name=big", npy_bytes(np.zeros(n // 8)), content_type=NPY),
        c.request("POST", "/v1/arrays", b'{"name": "big", "data": [' + b"1," * (n // 4) + b"1]}", content_type="application/json"),
    ]
    for r in refused:
        assert r.status in (413, 422, 507), r
    assert sum(r.status == 507 for r in refused) >= 3, refused
    for _ in range(3):
        np.testing.assert_array_equal(c.download("u"), np.arange(1000.0))
        c.expect(200, c.post("/v1/evaluate", {"expr": "sum(u)"}))
    c.fails(404, "not_found", c.get("/v1/arrays/big"))
    resource.prlimit(d.pid, resource.RLIMIT_AS, was)
    c.expect(201, c.post("/v1/arrays", {"name": "big", "shape": [n], "fill": 1.5}))
    c.expect(204, c.delete("/v1/arrays/big"))
    c.expect(200, c.post("/v1/sessions/default/sync"))
    assert settle(c, 8000) == 8000
    c.close()
