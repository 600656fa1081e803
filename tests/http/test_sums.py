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


def change(d, a, at):
    """Changes a byte of an array's memory."""
    for fd in keeps_memory(d):
        place = fd.read_bytes().find(a[:64].tobytes())
        if place < 0:
            continue
        with open(fd, "r+b") as f:
            f.seek(place + at)
            f.write(bytes([a.view(np.uint8)[at] ^ 4]))
        return
    assert False, "the array's memory was not found"


@pytest.mark.in_turn
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
        change(d, want[name], int(len(want[name]) * 0.7) * want[name].itemsize)
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
    assert re.search("idle memory compared with what it was arrays=6 ", d.log())
    assert re.search("are not what they were; their contents are lost arrays=2", d.log())


@pytest.mark.in_turn
def test_sums_take_no_memory_while_they_rest(gpu_with):
    """After a pass that took seconds they rest for many times that."""
    d = gpu_with("--keep-arrays", environment={"ARRAYD_FAKE_DELAY": "200000"})
    c = d.client()
    before = c.info()["bytes_in_use"]
    for k in range(8):
        c.create(name=f"x{k}", shape=[100], fill=k)
    want = before + sum(c.meta(f"x{k}")["nbytes"] for k in range(8))
    until(lambda: sums(c) >= 8)
    until(lambda: c.info()["bytes_in_use"] == want, 3)


@pytest.mark.in_turn
def test_what_is_written_for_long_has_a_sum(gpu_with):
    """Also an array that was still being written when others were summed."""
    d = gpu_with("--keep-arrays", environment={"ARRAYD_FAKE_DELAY": "200000"})
    c = d.client()
    c.expect(201, c.post("/v1/arrays", {"name": "a", "shape": [1000], "dtype": "float32", "fill": 1}))
    c.expect(200, c.post("/v1/evaluate", {"expr": "a + 1", "out": "a"}))
    until(lambda: sums(c) >= 1)


@pytest.mark.in_turn
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


def test_a_sum_is_no_use_of_an_array(gpu_with):
    """What makes room is the array that clients have not used for longest."""
    c = gpu_with("--keep-arrays", "--evict", "--memory-limit", "39MiB").client()
    for k in range(3):
        c.upload(np.full(1 << 20, k, "float64"), f"a{k}")
        idle(c)
    until(lambda: sums(c) >= 3)
    c.upload(np.zeros(1 << 20), "more")
    c.upload(np.zeros(1 << 20), "still_more")
    assert [c.get(f"/v1/arrays/a{k}").json()["location"] for k in range(3)] == ["host", "device", "device"]


@pytest.mark.in_turn
def test_what_gets_other_memory_has_a_sum_again(gpu_with):
    """Also where nothing was written or read: by an exchange, or by moving out and back."""
    c = gpu_with("--keep-arrays").client()
    for name in "ab":
        c.upload(np.arange(1000.0), name)
    for change in (lambda: c.expect(200, c.post("/v1/arrays/a/swap", {"with": "b"})),
                   lambda: [c.expect(200, c.patch(f"/v1/arrays/{x}", {"location": where})) for where in ("host", "device") for x in "ab"]):
        until(lambda: sums(c) >= 2)
        time.sleep(1.1)  # until there is nothing more to do
        before = sums(c)
        change()
        until(lambda: sums(c) >= before + 2)


@pytest.mark.in_turn
def test_each_of_many_has_a_sum(gpu_with):
    """More than are looked at under one hold of the lock."""
    c = gpu_with("--keep-arrays", "--max-arrays", 10000).client()
    for k in range(5000):
        c.expect(201, c.post("/v1/arrays", {"shape": [3], "dtype": "float32", "fill": k}))
    until(lambda: sums(c) >= 5000, 60)


def test_what_cannot_be_compared_hides_no_other(gpu_with):
    """Each device's arrays are summed by themselves: where that fails for one, the others' are compared all the same."""
    if os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("its memory cannot be written from here")
    d = gpu_with("--keep-arrays", "--restart-limit", 1000, environment={"ARRAYD_FAKE_DEVICES": "2"})
    c, rng = d.client(), np.random.default_rng(7)
    other = c.clone(session=c.expect(201, c.post("/v1/sessions", {"device": 1})).json()["id"])
    want = [rng.random(5000, dtype=np.float32) for _ in range(2)]
    c.upload(want[0], "x")
    other.upload(want[1], "x")
    until(lambda: sums(c) >= 2)
    for a in want:
        change(d, a, 8000)
    d.fail("2")
    other.close()
    c.close()
    kill(d)
    until(lambda: d.log().count(" ready ") == 2)
    assert "is not known" in d.log()
    assert "are not what they were; their contents are lost arrays=1" in d.log()
