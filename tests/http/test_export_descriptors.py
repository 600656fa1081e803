"""What an export hands out: a descriptor, for reading or for writing, and when."""
import fcntl
import mmap
import os
import threading
import time

import numpy as np
import pytest

from exported import Export
from test_export import DATA, c, d, is_gpu  # noqa: F401

GET_SEALS, SIZE_SEALS, WRITE_SEALS = 1034, 2 | 4, 1 | 16  # F_GET_SEALS; SHRINK, GROW; SEAL, FUTURE_WRITE


def test_ones_own_reading_costs_no_copy(c):  # noqa: F811
    """Who may write to an array exports it for reading and for writing in turn, and for both under one lease, where it is."""
    with Export(c, "u", "write") as x:
        mine = os.fstat(x.fd).st_ino
    for mode in ("read", "write") * 2:
        with Export(c, "u", mode) as x:
            assert os.fstat(x.fd).st_ino == mine
    with Export(c, "u", "write") as x, Export(c, "u", "read", lease=x.lease["Arrayd-Lease"]) as y:
        x.array()[0, 0] = 77
        assert y.array()[0, 0] == 77


def test_a_readers_descriptor_is_for_reading(c):  # noqa: F811
    with Export(c, "u") as x, Export(c, "u") as y:  # several at once
        assert np.array_equal(x.array(), y.array())
        if is_gpu(c):  # noqa: F811
            pytest.skip("CUDA knows no such descriptors")
        assert fcntl.fcntl(x.fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        with pytest.raises(PermissionError):
            mmap.mmap(x.fd, x.reply["size"], mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        with pytest.raises(OSError):
            os.write(x.fd, b"x")


def test_who_may_not_write_cannot_come_to(c):  # noqa: F811
    if is_gpu(c):  # noqa: F811
        pytest.skip("CUDA knows no such descriptors")
    c.expect(200, c.patch("/v1/arrays/u", {"read_only": True}))
    with Export(c, "u") as x, Export(c, "u") as y:
        assert fcntl.fcntl(x.fd, GET_SEALS) & (SIZE_SEALS | WRITE_SEALS) == SIZE_SEALS | WRITE_SEALS
        again = os.open(f"/proc/self/fd/{x.fd}", os.O_RDWR)  # the file is of the same user
        with pytest.raises(PermissionError):
            mmap.mmap(again, x.reply["size"], mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        with pytest.raises(PermissionError):
            os.write(again, b"x")
        os.close(again)
        y.finish()
        c.expect(200, c.patch("/v1/arrays/u", {"read_only": False}, headers=x.lease))
        c.fails(409, "conflict", c.post("/v1/arrays/u/export", {"mode": "write"}, headers=x.lease))  # not both at once
    with Export(c, "u", "write") as x:  # nor the same memory
        x.array()[...] += 1
    with Export(c, "u") as x:
        assert np.array_equal(x.array(), DATA + 1)


def test_nobody_changes_the_size(c):  # noqa: F811
    with Export(c, "u", "write") as x:
        if is_gpu(c):  # noqa: F811
            pytest.skip("a handle of the driver's has no size")
        assert fcntl.fcntl(x.fd, GET_SEALS) & SIZE_SEALS == SIZE_SEALS
        for size in (0, 1 << 30):
            with pytest.raises(OSError):
                os.ftruncate(x.fd, size)


@pytest.mark.in_turn
def test_other_work_is_not_waited_for(c):  # noqa: F811
    """Of the same session, which has much to do, but not with this memory; what reads it is in no reader's way either."""
    c.create(name="w", data=[1.0])
    c.create(name="r", shape=list(DATA.shape))
    other = c.clone()

    def work(rows):
        return c.expect(200, c.post("/v1/evaluate", {"expr": f"w*0 + sum(sin(broadcast_to(w, [{rows}, 1000])))", "out": "w"}))

    def sync():
        order.append(other.post("/v1/sessions/default/sync").status)
        took.append(time.monotonic() - begun)

    def exports():
        for _ in range(20):
            with Export(c, "u") as x:
                assert np.array_equal(x.array(), DATA)
            order.append("export")

    order, begun = [], time.monotonic()
    exports()
    enough = 2 + 5 * (time.monotonic() - begun)
    rows, took = 8, [0]
    while took[-1] < enough:  # until this machine, whatever else it does, still has some to do after the last export
        rows *= 2
        order, begun = [], time.monotonic()
        work(rows)
        c.expect(200, c.post("/v1/evaluate", {"expr": "u*2 + w[0]", "out": "r"}))  # behind it, and reads u
        waits = threading.Thread(target=sync)
        waits.start()
        exports()
        waits.join()
    assert order == ["export"] * 20 + [200]
    other.close()
