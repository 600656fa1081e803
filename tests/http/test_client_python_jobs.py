"""clients/python: waiting for programs, and ending them, by both clients."""
import asyncio
import http.server
import json
import pathlib
import pickle
import re
import sys
import threading
import time
import types

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "clients" / "python" / "src"))
import arrayd  # noqa: E402
from arrayd._requests import Response  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here

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
    assert seconds <= time.monotonic() - begun < seconds + 3


@pytest.mark.alone
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
                assert 0.3 <= time.monotonic() - begun < 3.3
            await job.cancel()

    asyncio.run(steps())


def test_a_bar_without_tqdm(xp, monkeypatch, capsys):
    """The package's own, on standard error; lines where that is no terminal."""
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    xp.program(["u += 1"], steps=400_000, u=xp.ones(10)).wait(60, progress=True)

    async def steps():
        async with arrayd.aconnect(xp._transport.url) as axp:
            await (await axp.program(["u += 1"], steps=400_000, u=axp.ones(10))).wait(60, progress=True)

    first = capsys.readouterr()
    asyncio.run(steps())
    second = capsys.readouterr()
    for shown in (first, second):
        assert not shown.out and re.search(r"\A(queued|running|done) +\d+ % ?\|.*\| [\d.]+( k)? of 400 k steps", shown.err), shown.err
        assert re.search(r"^done 100 % ?\|(█+|#+)\| 400 k of 400 k steps .*\n\Z", shown.err, re.M), shown.err
    xp.program(["u += 1"], steps=3, u=xp.ones(10)).wait(60)
    assert not capsys.readouterr().err


class Silent(http.server.BaseHTTPRequestHandler):
    """A daemon whose job goes on, of which nothing is heard: a step may take long."""
    protocol_version = "HTTP/1.1"
    status = {"id": "j-1", "session": "s-1", "state": "running", "step": 0, "steps": 10, "steps_per_s": 0.0, "elapsed_s": 0.0, "device_s": 0.0}

    def do_GET(self):
        events = self.path.endswith("/events")
        body = b"" if events else json.dumps({**self.status, "backend": "cpu"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if events else "application/json")
        self.send_header("Transfer-Encoding" if events else "Content-Length", "chunked" if events else str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        time.sleep(0.05)
        if events:
            self.rfile.read()  # until the client goes

    def log_message(self, *_):
        pass


@pytest.mark.alone
@pytest.mark.parametrize("timeout", [None, 0.4])
def test_a_bar_while_nothing_happens(bars, timeout):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    where = f"http://127.0.0.1:{server.server_port}"
    with arrayd.connect(where, timeout=timeout) as xp:
        took(0.7, lambda: xp.job("j-1").wait(0.7, progress=True))

    async def steps():
        async with arrayd.aconnect(where, timeout=timeout) as axp:
            job = await axp.job("j-1")
            begun = time.monotonic()
            with pytest.raises(TimeoutError):
                await job.wait(0.7, progress=True)
            assert 0.7 <= time.monotonic() - begun < 3.7

    asyncio.run(steps())
    assert bars == ["closed"] * 2
    server.shutdown()
    server.server_close()


@pytest.mark.alone
def test_an_impatient_client(daemon, api):
    """A wait is shorter than what the transport takes for a daemon that has gone."""
    with arrayd.connect(url(daemon), timeout=0.5) as xp:
        job = xp.program(["u += 1"], steps=LONG, u=xp.ones(10))
        took(0.8, lambda: job.wait(0.8))
        for timeout, seconds in ((10, 5), (1000, 30), (None, 30)):
            xp._transport.timeout = timeout
            assert job._waiting(None)[0].headers == (("Prefer", f"wait={seconds}"),)
        assert job.cancel().wait().state == "cancelled"


def test_cancelling_what_has_ended(xp):
    job = xp.program(["u += 1"], steps=3, u=xp.ones(10))
    late = xp.job(job.id)
    job.wait(10)
    for _ in range(2):
        assert late.cancel().state == "done" and late.step == 3
    assert xp.job(job.id).state == "done"  # the daemon has it still
    job = xp.program(["u += 1"], steps=LONG, u=xp.ones(10))
    look, running = job._request("GET"), Response(200, {}, json.dumps(job.status).encode(), job._request("GET"))
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


def test_a_failed_job_names_its_statement(xp, daemon):
    """As an error of the daemon's that points into the text: what was refused at the beginning looks the same."""
    u = xp.ones((5,))
    job = xp.program(["u += 1", "i = astype(u, 'int64') + 6", "u = u + take(u, i)"], steps=10, u=u)
    with pytest.raises(arrayd.JobFailed) as failed:
        job.wait(60)
    e = failed.value
    assert isinstance(e, arrayd.ArraydError) and isinstance(e, RuntimeError) and e.job is job
    assert (e.code, e.status, e.pointer, e.offset) == ("bad_index", 422, "/body/2", 8)
    assert str(e) == (f"job {job.id} failed at step 1: an index is out of range for axis 0 of extent 5 (bad_index)\n"
                      "    u = u + take(u, i)\n            ^")
    assert str(pickle.loads(pickle.dumps(e))) == str(e)
    with pytest.raises(arrayd.JobFailed, match="at step 2: a NaN .*not_a_number") as failed:
        xp.program(["u = sqrt(0*u - 1 + 2*(0*u + k))", "k -= 1"], steps=9, u=u, k=xp.ones(()), stop_on_nan=True).wait(60)
    assert failed.value.code == "not_a_number"
    with pytest.raises(arrayd.JobFailed, match="out of range.*at /body/2"):
        xp.job(job.id).wait(60)  # whose text is not known here

    async def steps():
        async with arrayd.aconnect(url(daemon)) as axp:
            bad = await axp.program(["v = take(v, astype(v + 3, 'int64'))"], steps=2, v=axp.ones(3))
            with pytest.raises(arrayd.ArraydError, match=r"failed at step 1: .*\n    v = take\(v, astype\(v \+ 3"):
                await bad.wait(60)

    asyncio.run(steps())
