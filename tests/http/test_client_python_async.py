"""clients/python's asynchronous client against a live daemon."""
import asyncio
import gc
import pathlib
import pickle
import shutil
import ssl
import sys
import threading
import time

import numpy as np
import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "clients" / "python" / "src"))
import arrayd  # noqa: E402

from test_tls import make_certificate  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here


def run(steps, seconds=60):
    """A coroutine to its end; what is left of tasks or connections then is a mistake."""
    async def whole():
        before = asyncio.all_tasks()
        result = await asyncio.wait_for(steps, seconds)
        assert asyncio.all_tasks() <= before | {asyncio.current_task()}
        return result

    return asyncio.run(whole())


def url(daemon):
    return f"http://127.0.0.1:{daemon.port}"


def test_values(api, daemon):
    async def steps():
        async with arrayd.aconnect(url(daemon)) as xp:
            assert xp.device.split(":")[0] == (await xp.info())["backend"]
            a = np.random.default_rng(1).random((300, 200))
            x = xp.asarray(a)
            z = (x - xp.mean(x)) / xp.std(x)
            assert isinstance(z, arrayd.AsyncArray) and "…" in repr(z) and z.shape == (300, 200)
            np.testing.assert_allclose(await z.numpy(), (a - a.mean()) / a.std(), rtol=1e-12, atol=1e-12)
            top = xp.max(z)
            with pytest.raises(RuntimeError, match="await"):
                float(top)
            assert await top.item() == float(top) == float(await top.compute())
            z[0, 0] = 1.0  # sent with the next value
            assert await z[0, 0].item() == 1
            assert await z.assign((0, slice(None)), 0.0) is z
            assert not (await z[0, :].numpy()).any() and (await z[1:3, :2].tolist())[1][1] == (await z.numpy())[2, 1]
            assert (await (await z.assign((xp.asarray([5, 6]), xp.asarray([5, 7])), xp.asarray([7.0, 8.0]))).numpy())[6, 7] == 8
            z += 1
            z[z > 2] = 2
            assert await xp.max(z).item() == 2
            small = xp.arange(10)
            small[3] = 30  # known here: nothing is asked for
            assert int(small[3]) == 30
            assert await (await xp.call(lambda x, m: x[m], small, small > 8)).tolist() == [30, 9]
            assert (await xp.call(xp.sort, z, axis=1))._values()[0, 0] == np.sort(await z.numpy(), axis=1)[0, 0]
            assert z._node.value is None  # it was only lent
            assert await xp.call(lambda x, m: float(x[m]._values().sum()), z, z > 1) > 0

    run(steps())


def test_calls_side_by_side(api, daemon):
    """Several functions in threads of their own may have one array's values lent."""
    async def steps():
        async with arrayd.aconnect(url(daemon)) as xp:
            x, first_has_ended = xp.random((300, 200), seed=1), threading.Event()

            def short(a):
                return float(xp.sort(a)._values()[0, 0])

            def long(a, b):
                assert first_has_ended.wait(10)
                return float(np.asarray(a).sum() + np.asarray(b).sum())

            late = asyncio.ensure_future(xp.call(long, x, b=x))
            while x._node.value is None:
                await asyncio.sleep(0.01)
            await xp.call(short, x)
            first_has_ended.set()
            assert await late == pytest.approx(2 * await xp.sum(x).item())
            assert x._node.value is None and not xp._lent

    run(steps())


def test_printed(api, daemon):
    """What is here is printed without a request: only its corners, where it is long."""
    async def steps():
        async with arrayd.aconnect(url(daemon)) as xp:
            for shape in ((2000,), (40, 50), (3, 4, 200)):
                x = xp.reshape(xp.arange(int(np.prod(shape)), dtype="float64"), shape) * 1
                assert "…" in repr(x)
                values = await x.numpy()
                with np.printoptions(threshold=0):
                    want = np.array2string(values, separator=", ", prefix="arrayd.array(")
                assert repr(x) == f"arrayd.array({want}, shape={shape}, dtype=float64)"

    run(steps())


def test_names_and_texts(api, daemon):
    async def steps():
        xp = await arrayd.aconnect(url(daemon))
        try:
            u = xp.asarray(np.arange(64.0).reshape(8, 8))
            saved = await xp.save("field", u * 2)
            later = saved + 1
            await saved.assign((0, 0), 100.0)
            assert (await xp.array("field")).name == "field" and await later[0, 0].item() == 1.0
            assert await (await xp.array("field"))[0, 0].item() == 100.0
            assert [m["name"] async for m in xp.arrays() if m["name"]] == ["field"]
            assert (await xp.metadata("field"))["shape"] == [8, 8] == (await xp.metadata(saved))["shape"]
            got = await xp.evaluate("where(field > k, field, 0) + s", k=50, s=xp.asarray(1.0))
            assert await xp.count_nonzero(got - 1).item() == 39
            with pytest.raises(arrayd.BadValue, match="nobody"):
                await xp.evaluate("field + nobody")
            with pytest.raises(arrayd.NotFound):
                await xp.array("nobody")
            await xp.define("twice", ["x"], "2*x")
            assert await (await xp.evaluate("max(twice(field))")).item() == 252.0
            await xp.delete("field")
            await xp.request("DELETE", "/v1/functions/twice")
            with pytest.raises(arrayd.NotFound):
                await xp.metadata("field")
            x = await xp.ones((100, 100)).compute()
            assert isinstance(pickle.loads(pickle.dumps(x)), arrayd.Array)
            await xp.sync()
        finally:
            del u, saved, later, got
            await xp.close()

    run(steps())


def test_many_at_once(api, daemon):
    """More evaluations than connections, each with the right value; the shared operand is uploaded once or more, and all goes."""
    async def steps():
        async with arrayd.aconnect(url(daemon), connections=5) as xp:
            u = xp.asarray(np.arange(20000.0))

            async def one(k):
                assert await xp.sum(u * k + k).item() == (19999 * 10000 + 20000) * k

            await asyncio.gather(*(one(k) for k in range(200)))
            assert len(xp._transport._idle) <= 5
            both = u * 2
            await asyncio.gather(*(xp.sum(both + k).item() for k in range(20)), both.compute(), both.compute(), u.compute())
            del u, both
            for _ in range(20):  # the loop lets go of what has ended in its own time
                gc.collect()
                await xp.release()
                if not [m async for m in xp.arrays()]:
                    break
                await asyncio.sleep(0.01)
            else:
                pytest.fail("arrays that nobody refers to are there")

    run(steps())


def test_large_bodies(api, daemon):
    """Beyond what sockets and buffers hold, both ways, while small requests go on."""
    async def steps():
        async with arrayd.aconnect(url(daemon), connections=3) as xp:
            a = np.random.default_rng(2).integers(0, 255, (3 << 22,)).astype(np.uint8)
            large = [xp.asarray(np.roll(a, k)) for k in range(3)]
            small = [xp.sum(xp.arange(k, k + 100)).item() for k in range(50)]
            got, *numbers = await asyncio.gather(asyncio.gather(*(x.numpy() for x in large)), *small)
            assert all(np.array_equal(g, np.roll(a, k)) for k, g in enumerate(got))
            assert numbers == [sum(range(k, k + 100)) for k in range(50)]

    run(steps())


def test_cancelled(api, daemon):
    """A cancelled task's connection goes and the next request has another; a slot is never lost."""
    async def steps():
        async with arrayd.aconnect(url(daemon), connections=2) as xp:
            u = await xp.random((400, 400), seed=1).compute()
            dropped = 0
            for k in range(10):
                work = [asyncio.ensure_future(xp.sum(xp.sin(u) ** 2.5 + k).compute()) for k in range(6)]
                await asyncio.sleep(0.001 * (k % 4))
                for w in work:
                    w.cancel()
                await asyncio.wait(work)
                dropped += sum(w.cancelled() for w in work)
            assert dropped
            await asyncio.wait_for(xp.sum(u).item(), 20)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for((await xp.program(["u += 1e-9"], steps=10**9, u=u)).wait(), 0.2)
            jobs = (await xp.request("GET", "/v1/jobs"))["jobs"]
            for j in jobs:
                await xp.request("DELETE", f"/v1/jobs/{j['id']}")

    run(steps())


def test_programs(api, daemon):
    async def steps():
        async with arrayd.aconnect(url(daemon)) as xp:
            u = xp.zeros((64, 64))
            before = u + 0
            job = await xp.program(["u += 1"], steps=400, u=u, record={"most": "max(u)"}, record_every=100)
            seen = [status["step"] async for status in job]
            assert seen == sorted(seen) and job.state == "done" and job.step == 400
            assert (await job.wait(30)).records["most"] == [100, 200, 300, 400]
            assert await u[0, 0].item() == 400 and await xp.max(before).item() == 0
            endless = await xp.program(["u += 1"], steps=10**9, u=u)
            with pytest.raises(TimeoutError):
                await endless.wait(0.05)
            assert (await endless.cancel()).state in ("running", "cancelled")
            assert (await (await xp.job(endless.id)).wait(30, progress=True)).state == "cancelled"
            bad = await xp.program(["u = sqrt(u) - 1e9"], steps=5, u=u, stop_on_nan=True)
            with pytest.raises(arrayd.JobFailed):
                await bad.wait(30)

    run(steps())


def test_sessions_and_errors(api, daemon):
    async def steps():
        async with arrayd.aconnect(url(daemon)) as xp:
            async with xp.session(ttl_s=60) as own:
                assert own.device == xp.device
                await own.save("mine", own.ones((10, 10)))
                assert await own.sum(await own.array("mine")).item() == 100
                with pytest.raises(arrayd.NotFound):
                    await xp.array("mine")
            with pytest.raises(arrayd.NotFound):
                await own.array("mine")
            with pytest.raises(arrayd.BadValue):
                await xp.evaluate("1 +")
            with pytest.raises(arrayd.BadValue, match=r"nonsense\(broadcast_to"):
                await (xp.ones(20000) + xp._array("nonsense", (xp.ones(20000)._node,), (20000,), xp.float64)).compute()
        with pytest.raises(arrayd.ConnectionLost):
            await arrayd.aconnect("http://127.0.0.1:1")

    run(steps())


def test_a_server_that_misbehaves():
    """Silence, half a reply, no HTTP, closed connections that were kept."""
    async def steps():
        say = [b""]

        async def serve(reader, writer):
            try:
                while await reader.readuntil(b"\r\n\r\n"):
                    if say[0] is None:
                        break
                    writer.write(say[0])
                    if b"close" in say[0]:
                        break
            except (asyncio.IncompleteReadError, ConnectionResetError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        at = "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
        began = time.monotonic()
        with pytest.raises(arrayd.ConnectionLost, match="moved"):
            await arrayd.aconnect(at, timeout=0.1)
        assert time.monotonic() - began < 3
        info = b'{"backend":"cpu"}'
        fine = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        for text in [b"SSH-2.0\r\n\r\n", fine + b"Content-Length: 30\r\nConnection: close\r\n\r\n" + info,
                     fine + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nxx\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000]:
            say[0] = text
            with pytest.raises(arrayd.ConnectionLost):
                await arrayd.aconnect(at, timeout=2)
        for text in [b"HTTP/1.1 102 Processing\r\n\r\n" + fine + b"Content-Length: 17\r\n\r\n" + info,
                     fine + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + info[:5] + b"\r\nC;x=y\r\n" + info[5:] + b"\r\n0\r\nT: 1\r\n\r\n",
                     fine + b"Connection: close\r\n\r\n" + info]:
            say[0] = text
            async with arrayd.aconnect(at, timeout=2) as xp:
                assert xp.device == "cpu"
                assert await xp.info() == {"backend": "cpu"}
                if b"close" not in text:
                    say[0] = None  # the kept connection ends when it is used again: GET goes once more, POST does not
                    with pytest.raises(arrayd.ConnectionLost):
                        await xp.request("POST", "/v1/sessions", {})
                    say[0] = text
                    assert await xp.info() == {"backend": "cpu"}
        server.close()

    run(steps())


def test_an_upload_that_is_refused(daemon_with, tmp_path):
    """Before all of it was sent: the daemon says why, both clients and both kinds of sockets hear it."""
    d = daemon_with("--memory-limit", "8MiB", "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/a")
    a = np.ones(1 << 25, "u1")

    async def steps(at):
        async with arrayd.aconnect(at) as xp:
            for _ in range(3):
                with pytest.raises(arrayd.OutOfMemory):
                    await xp.asarray(a).compute()
            assert await xp.sum(xp.ones(10)).item() == 10

    for at in (url(d), f"unix:{d.unix}"):
        run(steps(at))
        with arrayd.connect(at) as xp:
            for _ in range(3):
                with pytest.raises(arrayd.OutOfMemory):
                    xp.asarray(a).compute()
            assert float(xp.sum(xp.ones(10))) == 10


def test_unix_and_tokens(daemon_with, accounts, tmp_path):
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path, listen=f"unix:{tmp_path}/a")

    async def steps():
        with pytest.raises(arrayd.Denied):
            await arrayd.aconnect(f"unix:{tmp_path}/a")
        async with arrayd.aconnect(f"unix:{d.unix}", accounts.token["ann"]) as xp:
            assert await xp.sum(xp.ones((1000, 1000))).item() == 1e6

    run(steps())


def test_tls(daemon_with, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make certificates")
    cert, key = make_certificate(tmp_path, "cert")
    d = daemon_with("--tls-cert", cert, "--tls-key", key)
    a = np.random.default_rng(3).integers(0, 255, (1 << 22,)).astype(np.uint8)

    async def steps():
        with pytest.raises(arrayd.ConnectionLost, match="(?i)certificate"):
            await arrayd.aconnect(f"https://localhost:{d.port}")
        async with arrayd.aconnect(f"https://localhost:{d.port}", context=ssl.create_default_context(cafile=cert)) as xp:
            x, y = xp.asarray(a), xp.asarray(a[::-1])
            got = await asyncio.gather(x.numpy(), y.numpy(), *(xp.sum(x + k).item() for k in range(5)))
            assert np.array_equal(got[0], a) and np.array_equal(got[1], a[::-1])

    run(steps())
