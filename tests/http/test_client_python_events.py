"""The Python clients' and the command's events: changes and frames, to their end, and over a daemon that comes back."""
import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from client import REPO
from conftest import until
from test_client_python import xp  # noqa: F401

import arrayd  # test_client_python says where it is

STEP = ["u = where(u > 1, u - 2, u + 0.0131)"]


def later(action, seconds=0.3):
    t = threading.Timer(seconds, action)
    t.start()
    return t


def test_frames(xp, api):  # noqa: F811
    u = xp.asarray(np.random.default_rng(1).normal(size=(30, 40)))
    job = xp.program(STEP, steps=10**12, u=u)
    seen = list(itertools.islice(u.frames("magma", lo=-1, hi=1, width=20, interval=0.05), 4))
    job.cancel()
    assert all(isinstance(p, arrayd.Picture) and (p.lo, p.hi) == (-1, 1) for p in seen) and len({p.png for p in seen}) == 4
    now = next(u.frames("magma", lo=-1, hi=1, width=20))
    assert now.png == u.image("magma", lo=-1, hi=1, width=20).png
    with pytest.raises(arrayd.ArraydError, match="cmap"):
        next(u.frames("no such map"))
    with pytest.raises(arrayd.ArraydError, match="two axes"):
        next(xp.arange(3).frames())


def test_changes(xp, api):  # noqa: F811
    u = xp.asarray(np.ones(3))
    told = u.changes()
    first = next(told)
    t = later(lambda: api.expect(200, api.patch(f"/v1/arrays/{first['id']}", {"name": "by_its_name"})))
    assert first["name"] is None and next(told)["name"] == "by_its_name"
    t.join()
    t = later(lambda: api.expect(204, api.delete(f"/v1/arrays/{first['id']}")))
    assert list(told) == []  # it is gone
    t.join()


def test_changes_of_the_lists(xp, api):  # noqa: F811
    with xp.session() as own:
        kept = own.asarray(np.ones(5)).compute()
        told = own.changes(interval=0.1)
        name, event = next(told)
        assert name == "arrays" and [a["shape"] for a in event["arrays"]] == [[5]]
        made = []
        t = later(lambda: made.append(own.asarray(np.ones((2, 2))).compute()))
        name, event = next(e for e in told if e[0] == "arrays")
        assert event["arrays"][0]["shape"] == [2, 2] and event["gone"] == []
        t.join()
        del kept
    assert all(name in ("arrays", "jobs") for name, _ in told)  # to the session's end


def test_what_may_no_longer_be_seen(accounts, daemon_with):
    """Is an error, not the end of what was watched."""
    for name in ("ann", "bob"):
        accounts.add(name)
    d = daemon_with("--accounts", accounts.path)
    bob = accounts.client(d, "bob")
    ref = bob.upload(np.ones((3, 4)), "u")["id"]
    bob.expect(201, bob.post(f"/v1/arrays/{ref}/shares", {"principal": "ann", "access": "read"}))
    with arrayd.connect(f"http://{d.host}:{d.port}", accounts.token["ann"]) as xp:  # noqa: F811
        told, frames, lists = xp.array(ref).changes(), xp.array(ref).frames(), xp.changes()
        assert next(told)["read_only"] and isinstance(next(frames), arrayd.Picture) and next(lists)
        bob.expect(204, bob.delete(f"/v1/arrays/{ref}/shares/ann"))
        for watched in (told, frames):
            with pytest.raises(arrayd.NotFound, match="no longer shared"):
                list(watched)
        text = accounts.path.read_text()
        accounts.write(re.sub(r"(?ms)^\[ann\].*?(?=^\[|\Z)", "", text))
        accounts.reload(d)
        with pytest.raises(arrayd.Denied, match="ended"):
            list(lists)
    bob.close()


def test_a_frame_that_cannot_be_made(xp, api):  # noqa: F811
    u = xp.asarray(np.ones((6, 8)))
    ref, frames = next(u.changes())["id"], u.frames()
    next(frames)
    api.expect(200, api.post(f"/v1/arrays/{ref}/resize", {"shape": [48]}))
    with pytest.raises(arrayd.ArraydError, match="two axes") as e:
        next(frames)
    assert e.value.code == "not_acceptable"


def test_asynchronously(daemon_with):
    d = daemon_with()

    async def run():
        async with await arrayd.aconnect(f"http://{d.host}:{d.port}") as xp:  # noqa: F811
            u = await xp.random((20, 30), seed=1).compute()
            job = await xp.program(STEP, steps=10**12, u=u)
            frames = []
            async for p in u.frames(lo=-1, hi=1, interval=0.05):
                frames.append(p)
                if len(frames) == 3:
                    break
            await job.cancel()
            assert len({p.png for p in frames}) == 3
            async for meta in u.changes():
                assert meta["shape"] == [20, 30]
                break
            async for name, event in xp.changes():
                assert name == "arrays" and len(event["arrays"]) == 1
                break

    asyncio.run(run())


@pytest.mark.release_only
def test_a_daemon_that_comes_back(daemon_with):
    """In the next process the stream goes on, and tells nothing twice."""
    d = daemon_with()
    c = d.client()
    xp = arrayd.connect(f"http://{d.host}:{d.port}")  # noqa: F811
    u = xp.random((20, 30), seed=1).compute()
    seen = []
    t = threading.Thread(target=lambda: seen.extend(m["name"] for m in itertools.islice(u.changes(), 2)))
    t.start()
    until(lambda: c.get("/v1/arrays").json()["arrays"])
    ref = c.get("/v1/arrays").json()["arrays"][0]["id"]
    time.sleep(0.5)
    os.kill(d.pid, signal.SIGKILL)
    c.close()
    until(lambda: alive(c, ref))
    c.expect(200, c.patch(f"/v1/arrays/{ref}", {"name": "renamed"}))
    t.join(40)
    assert seen in ([None, "renamed"], [None, None])
    c.close()


def alive(c, ref):
    try:
        return c.get(f"/v1/arrays/{ref}").status == 200
    except OSError:
        c.close()
        return False


def test_the_command(api):
    ref = api.create(name="told", shape=[2, 3])["id"]
    run = [sys.executable, "-m", "arrayd", "--url", f"http://{api.host}:{api.port}", "events"]
    env = {"PYTHONPATH": str(REPO / "clients/python/src"), "PATH": "/usr/bin:/bin"}
    others = [api.create(shape=[k + 1])["id"] for k in range(3)]
    out = subprocess.run([*run, "-n", "4"], env=env, text=True, capture_output=True, timeout=60)
    assert out.returncode == 0 and f"array {ref} told float64 2×3\n" in out.stdout, out
    for n in (1, 2):  # lines, although there is more in the first event
        out = subprocess.run([*run, "-n", str(n)], env=env, text=True, capture_output=True, timeout=60)
        assert out.returncode == 0 and len(out.stdout.splitlines()) == n, out
    for id_ in others:
        api.expect(204, api.delete(f"/v1/arrays/{id_}"))
    out = subprocess.run([*run, "told", "-n", "1", "--json"], env=env, text=True, capture_output=True, timeout=60)
    line = json.loads(out.stdout)
    assert line["event"] == "changed" and line["id"] == ref
    p = subprocess.Popen([*run, "told"], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout.readline().startswith(f"changed {ref} told")
    api.expect(200, api.patch("/v1/arrays/told", {"name": "renamed_in_it"}))
    assert p.stdout.readline().startswith(f"changed {ref} renamed_in_it")
    api.expect(204, api.delete(f"/v1/arrays/{ref}"))
    out, err = p.communicate(timeout=30)
    assert p.returncode == 0 and out == "" and "gone" in err
