"""clients/python: waiting for programs, and ending them, by both clients."""
import asyncio
import json
import pathlib
import sys
import time
import types

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "clients" / "python" / "src"))
import arrayd  # noqa: E402
from arrayd._transport import Response  # noqa: E402

LONG = 10**12


def url(daemon):
    return f"http://127.0.0.1:{daemon.port}"


@pytest.fixture
def xp(api, daemon):
    with arrayd.connect(url(daemon)) as client:
        yield client


@pytest.fixture
def bars(monkeypatch):
    """What a progress bar was told, by a module in tqdm's place."""
    told = []

    class Tqdm:
        def __init__(self, total, unit):
            self.n = 0

        def update(self, n):
            self.n += n
            told.append(self.n)

        def close(self):
            told.append("closed")

    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Tqdm))
    return told


def took(seconds, action):
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        action()
    assert seconds <= time.monotonic() - begun < seconds + 0.6


def test_one_deadline(xp, bars):
    job = xp.program(["u += 1"], steps=LONG, u=xp.ones(10))
    took(0.2, lambda: job.wait(0.2))
    took(0.5, lambda: job.wait(0.5, progress=True))
    assert len(bars) > 2 and bars[-1] == "closed"
    job.cancel()

    async def steps():
        async with arrayd.aconnect(xp._transport.url) as axp:
            job = await axp.program(["u += 1"], steps=LONG, u=axp.ones(10))
            for progress in (False, True):
                begun = time.monotonic()
                with pytest.raises(TimeoutError):
                    await job.wait(0.3, progress=progress)
                assert 0.3 <= time.monotonic() - begun < 0.9
            await job.cancel()

    asyncio.run(steps())


def test_a_bar_while_nothing_happens(xp, bars):
    """A step may take longer than one waits."""
    job = xp.program(["u = sin(u)" + "+ sin(u + k)" * 200], steps=LONG, u=xp.ones(3_000_000), k=1.0)
    took(0.4, lambda: job.wait(0.4, progress=True))
    job.cancel()


def test_an_impatient_client(daemon, api):
    """A wait is shorter than what the transport takes for a daemon that has gone."""
    with arrayd.connect(url(daemon), timeout=1.2) as xp:
        job = xp.program(["u += 1"], steps=LONG, u=xp.ones(10))
        took(2.0, lambda: job.wait(2.0))
        assert job.cancel().wait().state == "cancelled"


def test_cancelling_what_has_ended(xp):
    job = xp.program(["u += 1"], steps=3, u=xp.ones(10))
    late = xp.job(job.id)
    job.wait(10)
    for _ in range(2):
        assert late.cancel().state == "done" and late.step == 3
    assert xp.job(job.id).state == "done"  # the daemon has it still
    job = xp.program(["u += 1"], steps=LONG, u=xp.ones(10))
    look, running = job._request("GET"), Response(200, {}, json.dumps(job.status).encode())
    xp.request("DELETE", f"/v1/jobs/{job.id}")
    for forgotten in (False, True):  # it ended after the look; somebody else had it forgotten, too
        steps = job._cancelling()
        job.status = json.loads(running.body)
        assert next(steps) == look and steps.send(running).method == "DELETE"
        with pytest.raises(StopIteration):
            try:
                r = xp._transport.send(job._request("DELETE"))
            except arrayd.NotFound as e:
                assert forgotten
                steps.throw(e)
            else:
                assert not forgotten and r.status == 204
                steps.send(r)
        assert job.ended

    async def again():
        async with arrayd.aconnect(xp._transport.url) as axp:
            job = await axp.program(["u += 1"], steps=3, u=axp.ones(10))
            late = await axp.job(job.id)
            await job.wait(10)
            assert (await late.cancel()).state == (await late.cancel()).state == "done"
            assert (await axp.job(job.id)).state == "done"

    asyncio.run(again())


def test_waits_take_nobodys_turn(api, daemon):
    """Of a client with one connection: requests go on while jobs are waited for, and what is waited for can be cancelled."""
    async def steps():
        async with arrayd.aconnect(url(daemon), connections=1) as xp:
            jobs = [await xp.program(["u += 1"], steps=LONG, u=xp.ones(10)) for _ in range(2)]
            waits = [asyncio.ensure_future(job.wait(30)) for job in jobs]
            await asyncio.sleep(0.1)
            assert await asyncio.wait_for(xp.sum(xp.ones(10)).item(), 5) == 10
            for job in jobs:
                await asyncio.wait_for((await xp.job(job.id)).cancel(), 5)
            assert [(await asyncio.wait_for(w, 5)).state for w in waits] == ["cancelled"] * 2
            assert len(xp._transport._idle) <= 1

    asyncio.run(steps())
