"""Exports, leases and what gives an array other memory, at the same moment: who is told that he has the array's memory has it."""
import threading
import time

import numpy as np
import pytest

from client import JSON
from exported import Export

LARGE = b" " * 3000  # a worker's to handle: beside the export, not before or behind it


def resize(c, k):
    return c.request("POST", "/v1/arrays/u/resize", b'{"shape": [%d]}' % (1000 + k % 2) + LARGE, content_type=JSON)


def replace(c, k):
    return c.request("PUT", "/v1/arrays/u", b'{"shape": [%d]}' % (1000 + k % 2) + LARGE, content_type=JSON)


def swap(c, k):
    return c.request("POST", "/v1/arrays/u/swap", b'{"with": "v"}' + LARGE, content_type=JSON)


@pytest.mark.parametrize("how", [resize, replace, swap])
def test_the_memory_is_the_arrays(daemon_with, tmp_path, how):
    d = daemon_with("--backend", "cpu", "--allow-export", "--export-threshold", "4KiB", "--listen", f"unix:{tmp_path}/s")
    c = d.client()
    c.create(name="u", shape=[1000])
    c.create(name="v", shape=[1000])
    stop, said = threading.Event(), set()

    def others():
        o, k = d.client(), 0
        while not stop.is_set():
            said.add(how(o, k).status)
            k += 1
        o.close()

    threads = [threading.Thread(target=others) for _ in range(2)]
    for t in threads:
        t.start()
    end, had = time.monotonic() + 1, 0
    try:
        while time.monotonic() < end or not had:
            r = c.post("/v1/arrays/u/export", {"mode": "write"})
            assert r.status in (201, 409), r
            if r.status == 409:  # it was changed meanwhile
                continue
            with Export(c, "u", reply=r) as x:
                had += 1
                x.array()[...] = had
                there = c.expect(200, c.get("/v1/arrays/u/data", accept="application/x-npy", headers=x.lease)).npy()
                np.testing.assert_array_equal(there, x.array())
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert said <= {200, 409} and 200 in said
