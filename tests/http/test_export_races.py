"""Exports, leases and what gives an array other memory, at the same moment: who is told that he has the array's memory has it."""
import contextlib
import threading
import time

import numpy as np
import pytest

from client import JSON, NPY
from exported import Export

LARGE = b" " * 3000  # a worker's to handle: beside the export, not before or behind it


def resize(c, k):
    return c.request("POST", "/v1/arrays/u/resize", b'{"shape": [%d]}' % (1000 + k % 2) + LARGE, content_type=JSON)


def replace(c, k):
    return c.request("PUT", "/v1/arrays/u", b'{"shape": [%d]}' % (1000 + k % 2) + LARGE, content_type=JSON)


def protect(c, k):
    return c.request("PATCH", "/v1/arrays/u", b'{"read_only": %s}' % (b"true", b"false")[k % 2] + LARGE, content_type=JSON)


def swap(c, k):
    return c.request("POST", "/v1/arrays/u/swap", b'{"with": "v"}' + LARGE, content_type=JSON)


@pytest.fixture
def c(daemon_with, tmp_path):
    d = daemon_with("--backend", "cpu", "--allow-export", "--export-threshold", "4KiB", "--listen", f"unix:{tmp_path}/s")
    c = d.client()
    c.create(name="u", shape=[1000])
    c.create(name="v", shape=[1000])
    yield c
    c.close()


@contextlib.contextmanager
def beside(c, how):
    """Others do it meanwhile, again and again; the statuses of their replies."""
    stop, said = threading.Event(), set()

    def others():
        o, k = c.clone(), 0
        while not stop.is_set():
            said.add(how(o, k).status)
            k += 1
        o.close()

    threads = [threading.Thread(target=others) for _ in range(2)]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert said <= {200, 409} and 200 in said


def exports(c, mode):
    """Those that are granted in a second."""
    end, had = time.monotonic() + 1, 0
    while time.monotonic() < end or not had:
        assert time.monotonic() < end + 20
        r = c.post("/v1/arrays/u/export", {"mode": mode})
        assert r.status in (201, 409), r  # it was changed meanwhile
        if r.status == 201:
            had += 1
            with Export(c, "u", reply=r) as x:
                yield x, had


@pytest.mark.parametrize("how", [resize, replace, swap])
def test_the_memory_is_the_arrays(c, how):
    with beside(c, how):
        for x, k in exports(c, "write"):
            x.array()[...] = k
            there = c.expect(200, c.get("/v1/arrays/u/data", accept=NPY, headers=x.lease)).npy()
            np.testing.assert_array_equal(there, x.array())


def test_nobody_writes_what_is_read_only(c):
    with beside(c, protect):
        for _ in exports(c, "write"):
            assert not c.expect(200, c.get("/v1/arrays/u")).json()["read_only"]
