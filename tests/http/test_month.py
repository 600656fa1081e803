"""Device time of the calendar month: whose it is, who sees it, and that it outlives the process."""
import os
import signal
import time

import pytest

from conftest import until
from test_keeper import upgrade

PROGRAM = {"body": ["u += 0.1*laplacian(u)"]}


def month(c, name=None):
    """One's own, or as an operator sees somebody's."""
    p = next(p for p in c.list_all("/v1/admin/principals", "principals") if p["name"] == name) if name else c.info()["principal"]
    m = p["this_month"]
    assert m["month"] == time.strftime("%Y-%m", time.gmtime())
    return m["device_s"]


def work(c, steps=300):
    """Some hundredths of a second, of which other work may have a share."""
    if c.get("/v1/arrays/u").status == 404:
        c.expect(201, c.post("/v1/arrays", {"name": "u", "shape": [400, 400]}))
    c.expect(200, c.post("/v1/programs?wait=1", {**PROGRAM, "steps": steps}))


def settled(c):
    """All that was asked for has ended, in this process alone."""
    c.expect(200, c.post("/v1/sessions/default/sync"))

    def same():
        was, now = (c.info()["principal"] for _ in range(2))
        return was["device_s"] == now["device_s"] == now["this_month"]["device_s"]

    until(same)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_each_has_a_month(backend, daemon_with, gpu_with, accounts):
    accounts.add("ann", role="operator")
    accounts.add("bob")
    d = (daemon_with if backend == "cpu" else gpu_with)("--accounts", accounts.path)
    ann, bob = (accounts.client(d, name) for name in ("ann", "bob"))
    work(bob, 300 if backend == "cpu" else 5)  # the fake device is slow
    settled(bob)
    assert month(bob) > 0
    assert month(ann) == 0 and month(ann, "bob") == month(bob) and month(ann, "ann") == 0
    lines = ann.get("/metrics").body.decode().splitlines()
    assert "# TYPE arrayd_principal_month_device_seconds gauge" in lines  # it starts anew each month
    found = [line for line in lines if line.startswith("arrayd_principal_month_device_seconds{")]
    assert {line.split('"')[1]: float(line.split()[-1]) for line in found} == {"ann": 0, "bob": pytest.approx(month(bob))}
    bob.fails(403, "forbidden", bob.get("/v1/admin/principals"))


def test_it_is_in_the_state(daemon_with, accounts, tmp_path):
    accounts.add("ann")
    options = "--accounts", accounts.path, "--state-dir", tmp_path / "state", "--no-keeper"
    d = daemon_with(*options)
    c = accounts.client(d, "ann")
    work(c)
    was = month(c)
    c.close()
    d.stop()
    d = daemon_with(*options)
    c = accounts.client(d, "ann")
    assert month(c) == was > 0 and c.info()["principal"]["device_s"] == 0
    work(c)
    assert month(c) == pytest.approx(was + c.info()["principal"]["device_s"], abs=1e-9)


def test_it_outlives_a_death(daemon_with):
    d = daemon_with("--keep-arrays", "--restart-limit", 1000, "--restart-wait", 0)
    c = d.client()
    while month(c) < 0.15:
        work(c)
    was, before = month(c), d.pid
    os.kill(before, signal.SIGKILL)
    until(lambda: d.pid not in (before, d.proc.pid))
    assert was - 0.1 - 1e-6 <= month(c) <= was
    was = month(c)
    work(c)
    assert month(c) > was
    was, before = month(c), d.pid
    assert upgrade(d).returncode == 0
    until(lambda: d.pid not in (before, d.proc.pid))
    assert month(c) == was  # to the last nanosecond


def test_a_name_alone_has_no_month(daemon_with, accounts):
    """An account that is removed and added again is another principal's."""
    accounts.add("ann", role="operator")
    accounts.add("bob")
    d = daemon_with("--accounts", accounts.path, "--keep-arrays", "--restart-limit", 1000, "--restart-wait", 0)
    ann, bob = (accounts.client(d, name) for name in ("ann", "bob"))
    while month(bob) < 0.15:
        work(bob)
    ann.expect(204, ann.delete("/v1/admin/principals/bob"))
    accounts.reload(d)
    bob = accounts.client(d, "bob")
    assert month(bob) == 0
    before = d.pid
    os.kill(before, signal.SIGKILL)
    until(lambda: d.pid not in (before, d.proc.pid))
    assert month(bob) == 0
