"""Waiting for a job while the daemon dies and comes back, or does not."""
import asyncio
import os
import signal
import subprocess
import threading

import pytest

from cli import environment  # first: it finds arrayd
from conftest import until
from test_keeper import restarts
from test_survive import keeping
import arrayd
from arrayd import _events
from arrayd._endpoint import lost
from arrayd._http import Gone

pytestmark = pytest.mark.release_only  # it is the client that is tested here

STEPS = 150_000


@pytest.fixture
def d(daemon_with):
    return keeping(daemon_with)


def url(d):
    return f"http://127.0.0.1:{d.port}"


def die(d, step):
    """Kills the daemon when the job is on its way, and again in the next one."""
    for _ in range(2):
        before, from_ = d.pid, step()
        until(lambda: step() > from_)
        os.kill(before, signal.SIGKILL)
        until(lambda: d.pid not in (before, d.proc.pid))


def step_of(d, job):
    def step():
        c = d.client()
        try:
            return c.expect(200, c.get(f"/v1/jobs/{job}")).json()["step"]
        except (OSError, AssertionError):
            return -1
        finally:
            c.close()
    return step


def began(xp):
    return xp.program(["u += 1"], steps=STEPS, u=xp.zeros(30_000), record={"x": "u[0]"}, record_every=1000)


@pytest.mark.in_turn
@pytest.mark.parametrize("progress", [False, True])
def test_wait(d, progress):
    with arrayd.connect(url(d)) as xp:
        job = began(xp)
        t = threading.Thread(target=die, args=(d, step_of(d, job.id)))
        t.start()
        job.wait(progress=progress)
        t.join()
        assert restarts(d) == 2 and job.state == "done" and job.records["x"] == [1000.0 * (k + 1) for k in range(STEPS // 1000)]


@pytest.mark.in_turn
def test_events(d):
    """They go on with the one after the last, in both clients."""
    values = []
    with arrayd.connect(url(d)) as xp:
        job = began(xp)
        t = threading.Thread(target=die, args=(d, step_of(d, job.id)))
        t.start()
        for status in job.events():
            assert status["records_from"] == len(values)
            values += status["records"]["x"]
        t.join()
        assert restarts(d) == 2 and job.state == "done" and values == job.records["x"]


@pytest.mark.in_turn
def test_async(d):
    async def both():
        async with arrayd.aconnect(url(d)) as xp:
            job = await began(xp)
            t = threading.Thread(target=die, args=(d, step_of(d, job.id)))
            t.start()
            last = None
            waits = asyncio.ensure_future(job.wait())
            async for last in (await xp.job(job.id)).events():
                pass
            await waits
            t.join()
            assert restarts(d) == 2 and job.state == "done" == last["state"] and len(job.records["x"]) == STEPS // 1000
    asyncio.run(both())


def test_one_that_does_not_come_back(d, monkeypatch):
    monkeypatch.setattr(_events.Absence, "LONGEST", 0.5)
    with arrayd.connect(url(d)) as xp:
        job = began(xp)
        d.kill()
        for wait in (job.wait, lambda: list(job.events())):
            with pytest.raises(arrayd.ConnectionLost, match=f"job {job.id}, which may be going on: "):
                wait()


def test_said_once():
    assert str(lost(Gone("the daemon closed the connection"))).count("closed the connection") == 1


@pytest.mark.in_turn
def test_the_command(d, tmp_path):
    text = tmp_path / "program"
    text.write_text("u += 1\n")
    c = d.client()
    c.create(name="u", shape=[30_000])
    c.close()
    run = subprocess.Popen(["arrayd-cli", "run", str(text), "--steps", str(STEPS), "--record", "x=u[0]", "--record-every", "1000"],
                           env=environment(tmp_path / "bin", url(d)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    c = d.client()
    until(lambda: c.get("/v1/jobs").json()["jobs"])
    job = c.get("/v1/jobs").json()["jobs"][0]["id"]
    c.close()
    die(d, step_of(d, job))
    out, err = run.communicate(timeout=120)
    assert restarts(d) == 2 and run.returncode == 0 and f"{STEPS} steps" in err, err
    assert out.splitlines()[-1] == f"{STEPS}\t{STEPS}.0"
