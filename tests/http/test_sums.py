"""What a fault of a GPU changes in arrays that nobody was writing is found by sums over their memory (compute/engine/sums.c)."""
import os
import pathlib
import re
import time

import numpy as np
import pytest

from conftest import until
from test_survive import idle, kill, same


def keeps_memory(d):
    """The keeper's descriptors of arrays' memory."""
    fds = pathlib.Path(f"/proc/{d.proc.pid}/fd")
    return [x for x in fds.iterdir() if "memfd:" in os.readlink(x) and not re.search("journal|cells", os.readlink(x))]


def sums(c):
    return float(re.search(r"^arrayd_memory_sums_total (\S+)", c.get("/metrics").body.decode(), re.M)[1])


@pytest.mark.parametrize("how", ["fault", "kill"])
def test_what_a_fault_changes_is_found(gpu_with, how):
    """After a fault, kernels that are still running may write anywhere: here the test does."""
    if os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("its memory cannot be written from here")
    d = gpu_with("--keep-arrays", "--restart-limit", 1000)
    c, rng = d.client(), np.random.default_rng(5)
    want = {f"x{k}": rng.random(n, dtype=np.float32) for k, n in enumerate((3_000_000, 700_001, 5000, 17, 1))}
    want["bytes"] = rng.integers(0, 255, 1_100_001, dtype=np.uint8)
    for name, a in want.items():
        c.upload(a, name)
    until(lambda: sums(c) >= len(want))
    for name in ("x1", "bytes"):
        victim, at = None, int(len(want[name]) * 0.7) * want[name].itemsize
        for fd in keeps_memory(d):
            content = fd.read_bytes()
            place = content.find(want[name][:64].tobytes())
            if place >= 0:
                victim = fd
                break
        with open(victim, "r+b") as f:
            f.seek(place + at)
            f.write(bytes([want[name].view(np.uint8)[at] ^ 4]))
    if how == "fault":
        d.fail("700")
        c.post("/v1/evaluate", {"expr": "x0 + 1"})
        c.close()
        until(lambda: d.log().count(" ready ") == 2)
    else:
        c.close()
        kill(d)
    for name, a in want.items():
        if name in ("x1", "bytes"):
            lost = c.fails(409, "contents_lost", c.get(f"/v1/arrays/{name}/data"))["detail"]
            assert "was changed by something else when the daemon" in lost
            c.expect(200, c.post("/v1/evaluate", {"expr": "2", "out": name}))
            assert c.expect(200, c.post("/v1/evaluate", {"expr": f"min({name})"})).json()["value"] == 2
        else:
            same(c, name, a)
    assert re.search("are not what they were; their contents are lost arrays=2", d.log())


def test_what_is_written_for_long_has_a_sum(gpu_with):
    """Also an array that was still being written when others were summed."""
    d = gpu_with("--keep-arrays", environment={"ARRAYD_FAKE_DELAY": "700000"})
    c = d.client()
    c.expect(201, c.post("/v1/arrays", {"name": "a", "shape": [1000], "dtype": "float32", "fill": 1}))
    c.expect(200, c.post("/v1/evaluate", {"expr": "a + 1", "out": "a"}))
    until(lambda: sums(c) >= 1)


def test_what_is_written_has_no_sum(gpu_with):
    """Nothing is taken for changed that was written, exchanged or moved since it was summed."""
    d = gpu_with("--keep-arrays", "--restart-limit", 1000)
    c = d.client()
    a, b = np.arange(100_000.0), np.arange(100_000.0) + 5
    for k in range(3):
        c.upload(a, f"a{k}")
        c.upload(b, f"b{k}")
        before = sums(c)
        until(lambda: sums(c) >= before + 2)
        c.expect(200, c.post(f"/v1/arrays/a{k}/swap", {"with": f"b{k}"}))
        if k:
            c.expect(200, c.post("/v1/evaluate", {"expr": "1", "out": f"a{k}", "index": "3:5"}))
            idle(c)
        if k == 2:
            until(lambda: sums(c) > before + 2)
        c.close()
        time.sleep(1.1)
        kill(d)
        have = b.copy()
        have[3:5] = 1 if k else have[3:5]
        same(c, f"a{k}", have)
        same(c, f"b{k}", a)
    assert "not what they were" not in d.log()
