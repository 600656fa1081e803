"""Exports of arrays that others share: what may be had, and what is left of it when the share has gone."""
import fcntl
import os
import time

import numpy as np
import pytest

from conftest import settle
from exported import Export, figures
from test_leases import DATA

GET_SEALS, FUTURE_WRITE = 1034, 16  # <linux/fcntl.h>


@pytest.fixture(params=["cpu", "gpu"])
def d(request, accounts, tmp_path):
    if request.param == "gpu" and os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("mmap maps the fake driver's memory alone")
    for name in ("ann", "bob", "eve"):
        accounts.add(name, role="operator")
    start = request.getfixturevalue("daemon_with" if request.param == "cpu" else "gpu_with")
    backend = ["--backend", "cpu"] if request.param == "cpu" else []
    return start(*backend, "--allow-export", "--accounts", accounts.path, "--listen", f"unix:{tmp_path}/s")


@pytest.fixture
def ann(d, accounts):
    return accounts.client(d, "ann")


@pytest.fixture
def bob(d, accounts):
    return accounts.client(d, "bob")


def share(c, ref, access, who="bob"):
    assert c.post(f"/v1/arrays/{ref}/shares", {"principal": who, "access": access}).status in (200, 201)


def closed(x):
    """The daemon has ended the export."""
    assert x.socket.recv(1) == b""


def test_a_part_is_not_handed_out(ann, bob):
    """Who has an array's memory has all of it, so what is shared must be all of it."""
    ann.upload(np.arange(6.), "a")
    ann.create(name="g", ghost=[1, 1], shape=[3, 4])
    parts = [("a", {"index": "2:4"}), ("a", {"index": "0:2", "broadcast_to": [3, 2]}), ("g", {"index": "1"}),
             ("g", {"index": "..."})]
    for ref, how in parts:
        v = ann.expect(201, ann.post(f"/v1/arrays/{ref}/views", how)).json()["id"]
        share(ann, v, "read" if "broadcast_to" in how else "write")
        for mode in ("read", "write"):
            r = bob.post(f"/v1/arrays/{v}/export", {"mode": mode})
            assert "a part" in bob.fails(403, "forbidden", r)["detail"], how
        Export(ann, v).finish()
    for ref, how in (("a", {"index": "..."}), ("a", {"reshape": [2, 3], "permute": [0]}), ("g", {"ghost": True}), ("g", {})):
        v = ann.expect(201, ann.post(f"/v1/arrays/{ref}/views", how)).json()["id"]
        share(ann, v, "write")
        Export(bob, v, "write").finish()


def test_lowered_to_reading(ann, bob):
    """Who may only read keeps what he has for reading, but on a GPU, where he could write."""
    a = ann.upload(DATA, "a")["id"]
    share(ann, a, "write")
    with Export(bob, a) as x:
        share(ann, a, "read")
        if bob.device == "gpu":
            closed(x)
            x.drop()
        else:
            assert figures(ann)[""] == 1
            assert fcntl.fcntl(x.fd, GET_SEALS) & FUTURE_WRITE  # opened anew neither
            share(ann, a, "write")
    assert figures(ann)[""] == 0


@pytest.mark.parametrize("how", ["meanwhile", "afterwards", "lowered", "no account"])
def test_what_he_has_mapped_is_not_the_arrays_any_more(d, accounts, ann, bob, how):
    """Nobody who may write no longer does, whatever his process keeps."""
    a = ann.upload(DATA, "a")["id"]
    v = ann.expect(201, ann.post("/v1/arrays/a/views", {"index": "0"})).json()["id"]
    share(ann, a, "write")
    x = Export(bob, a, "write")
    mine = x.array()
    mine[0] = 7
    want = DATA.copy()
    want[0] = 7
    if how == "afterwards":
        x.finish()
    if how == "lowered":
        share(ann, a, "read")
    elif how == "no account":
        accounts.write("[ann]\n" + accounts.path.read_text().split("[ann]\n")[1].split("[")[0])
        accounts.reload(d)
    else:
        ann.expect(204, ann.delete("/v1/arrays/a/shares/bob"))
    if x.socket:
        closed(x)
        x.drop()
    assert np.array_equal(ann.download(a), want)
    mine[...] = -1
    assert np.array_equal(ann.download(a), want) and np.array_equal(ann.download(v), want[0])
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "a + 1", "out": "a"}))
    assert np.array_equal(ann.download(a), want + 1) and np.all(mine == -1)


def test_what_another_keeps_exported_is_left_at_his_end(ann, bob, d, accounts):
    """Whoever has it no longer sees what comes afterwards, though the array could not leave its memory at once."""
    a = ann.upload(DATA, "a")["id"]
    eve = accounts.client(d, "eve")
    access = "write" if bob.device == "gpu" else "read"
    share(ann, a, access)
    share(ann, a, access, "eve")
    x, y = Export(bob, a), Export(eve, a)
    mine, hers = x.array(), y.array()
    ann.expect(204, ann.delete("/v1/arrays/a/shares/bob"))
    closed(x)
    x.drop()
    moved = figures(ann)["_moved_total"]
    y.finish()
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "a + 1", "out": "a"}))
    assert np.array_equal(ann.download(a), DATA + 1) and np.array_equal(mine, DATA) and np.array_equal(hers, DATA)
    with Export(eve, a) as y:  # the array leaves no memory that only those have who may
        y.array()
    with Export(eve, a):
        pass
    assert figures(ann)["_moved_total"] <= moved + 1
    eve.close()


@pytest.mark.in_turn
def test_an_expired_sessions_memory_goes(ann, bob):
    """Who reads does not keep another's memory for ever."""
    before = settle(ann, -1, 0.1)
    s = ann.expect(201, ann.post("/v1/sessions", {"ttl_s": 1})).json()["id"]
    mine = ann.clone(session=s)
    a = mine.upload(DATA)["id"]
    share(mine, a, "read" if ann.device == "cpu" else "write")
    begun = time.monotonic()
    with Export(bob, a) as x:
        mine.close()
        closed(x)
        x.drop()
    assert time.monotonic() - begun < 10
    assert settle(ann, before) == before
