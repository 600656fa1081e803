"""Exports of arrays that others share: what may be had, and what is left of it when the share has gone."""
import os

import numpy as np
import pytest

from exported import Export, figures
from test_leases import DATA


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
            share(ann, a, "write")
    assert figures(ann)[""] == 0
