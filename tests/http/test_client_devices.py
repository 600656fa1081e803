"""Devices in the clients: a Python program, a NumPy program, a command and a page on one of several GPUs, or on the mesh of them."""
import asyncio
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from cli import SOURCE, cli, environment
from conftest import fake_gpu, find_binary
from test_cli import fails, ok

import arrayd  # noqa: E402  (cli.py has made it findable)
from arrayd import _local  # noqa: E402
from arrayd.cli import _complete, _main  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here


@pytest.fixture(autouse=True)
def nothing_is_said(monkeypatch):
    for name in ("ARRAYD_DEVICE", "ARRAYD_SESSION", "ARRAYD_TOKEN", "ARRAYD_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def pair(gpu_with):
    """Two GPUs, and the mesh of them, which is device 2."""
    return gpu_with("--mesh", "all", "--mesh-least", 1, environment={"ARRAYD_FAKE_DEVICES": "2"})


def url_of(d):
    return f"http://{d.host}:{d.port}"


def sessions_of(xp):
    return {s["name"]: s["device"] for s in xp.sessions()}


def test_connect(pair):
    url = url_of(pair)
    with arrayd.connect(url) as xp, arrayd.connect(url, device="mesh") as m:
        assert xp.device == "cuda:0" and m.device == "mesh" and m.ones(3).device == "mesh"
        m.save("kept", m.arange(1 << 16, dtype="float32"))
        assert m.metadata("kept")["device"] == 2
        assert float(m.sum(m.array("kept"))) == np.arange(1 << 16, dtype="f8").sum()
        assert m.__array_namespace_info__().default_device() == "mesh"
        assert m.zeros(3, device="mesh").to_device("mesh").device == "mesh"
        with pytest.raises(ValueError, match="'mesh', not 'cuda:0'"):
            m.zeros(3, device="cuda:0")
    # all who ask for it meet there, and find what has a name
    for device in ("mesh", 2, "2"):
        with arrayd.connect(url, device=device) as m:
            assert m.device == "mesh" and float(m.array("kept")[3]) == 3
    for device in (1, "1", "cuda:1"):
        with arrayd.connect(url, device=device) as one:
            assert one.device == "cuda:1" and one.metadata(one.ones(3).compute())["device"] == 1
    with arrayd.connect(url, device=0) as one:  # where the default session is
        assert one.device == "cuda:0"
        assert sessions_of(one) == {"default": 0, "mesh": 2, "device_1": 1}


def test_from_one_device_to_another(pair):
    url = url_of(pair)
    with arrayd.connect(url, device=0) as one, arrayd.connect(url, device="mesh") as m:
        x = one.asarray(np.arange(1 << 18, dtype="f4").reshape(512, 512)) * 2
        before = x.compute().numpy()
        y = m.asarray(x)
        assert y.device == "mesh" and m.metadata(y)["device"] == 2 and np.array_equal(y.numpy(), before)
        assert float(m.sum(y + m.ones((512, 512), dtype="float32"))) == before.sum(dtype="f8") + 512*512
        back = one.asarray(y[::2, 3], dtype="float64")
        assert back.device == "cuda:0" and back.dtype == one.float64 and np.array_equal((back + 1).numpy(), before[::2, 3].astype("f8") + 1)
        y[0, 0] = -1
        assert float(x[0, 0]) == 0 and float(y[0, 0]) == -1
        assert np.array_equal(m.asarray(one.asarray([1, 2, 3])).numpy(), [1, 2, 3])
        with pytest.raises(ValueError, match="needs a copy"):
            m.asarray(x, copy=False)
        with arrayd.connect(url, device="mesh") as other:  # of the same device: the array itself
            assert other.asarray(y) is y
        with pytest.raises(arrayd.Conflict, match="make a copy of the array here"):
            (m.array(x.id) + 1).compute()


def test_the_default_sessions_device(gpu_with):
    d = gpu_with("--mesh", "all", "--default-device", "mesh", environment={"ARRAYD_FAKE_DEVICES": "2"})
    with arrayd.connect(url_of(d)) as xp:
        assert xp.device == "mesh" and xp.metadata(xp.ones(3).compute())["device"] == 2

    async def steps():
        async with arrayd.aconnect(url_of(d)) as xp:
            assert xp.device == "mesh"

    asyncio.run(steps())


def test_what_is_no_device(pair, gpu_with):
    url = url_of(pair)
    for device, why in ((3, "there is no device 3"), ("Mesh", 'number or "mesh"'), ("gpu1", 'number or "mesh"')):
        with pytest.raises(arrayd.BadValue, match=why):
            arrayd.connect(url, device=device)
    with pytest.raises(ValueError, match="one of the two"):
        arrayd.connect(url, session="s-1", device="mesh")
    with pytest.raises(ValueError, match="one of the two"):
        arrayd.aconnect(url, session="s-1", device="mesh")
    with arrayd.connect(url) as xp:
        assert sessions_of(xp) == {"default": 0}
    with pytest.raises(arrayd.BadValue, match="no mesh.*--mesh"):
        arrayd.connect(url_of(gpu_with(environment={"ARRAYD_FAKE_DEVICES": "2"})), device="mesh")


def test_one_device(daemon):
    """Where there is one there is nothing to choose."""
    url = url_of(daemon)
    with arrayd.connect(url, device=0) as xp:
        assert xp.device == "cpu" and [s["name"] for s in xp.sessions() if s["name"].startswith("device")] == []
        with pytest.raises(arrayd.BadValue, match="no mesh"):
            arrayd.connect(url, device="mesh")


def test_a_session_stays_on_its_clients_device(pair):
    with arrayd.connect(url_of(pair), device="mesh") as m, m.session() as own, own.session() as another, m.session(device=1) as one:
        assert (own.device, another.device, one.device) == ("mesh", "mesh", "cuda:1")
        a, b = m.ones(5).compute(), another.ones(5).compute()
        assert float(own.sum(own.evaluate("a + b", a=a.id, b=b.id))) == 10
        with one.session(device="cuda:0") as first:
            assert first.device == "cuda:0"
    with arrayd.connect(url_of(pair)) as xp, xp.session(device="mesh") as m, m.session() as own:
        assert own.device == m.device == "mesh"


def test_asynchronously(pair):
    async def main():
        async with arrayd.aconnect(url_of(pair), device="mesh") as m:
            assert m.device == "mesh" and float(await m.sum(m.ones(1000)).item()) == 1000
            async with m.session() as own:
                assert own.device == "mesh"
            async with m.session(device="1") as one:
                assert one.device == "cuda:1"
        os.environ["ARRAYD_DEVICE"] = "1"
        try:
            async with arrayd.aconnect(url_of(pair)) as one:
                assert one.device == "cuda:1"
        finally:
            del os.environ["ARRAYD_DEVICE"]
        with pytest.raises(arrayd.BadValue):
            await arrayd.aconnect(url_of(pair), device="mash")

    asyncio.run(main())


def test_many_at_once_make_one_session(pair):
    ready, got = threading.Barrier(12), []

    def begin():
        ready.wait()
        with arrayd.connect(url_of(pair), device="mesh") as m:
            got.append(m._engine.session)

    threads = [threading.Thread(target=begin) for _ in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    with arrayd.connect(url_of(pair)) as xp:
        found = [s["id"] for s in xp.sessions() if s["name"] == "mesh"]
    assert len(found) == 1 and got == found * 12


def test_a_session_of_that_name_elsewhere_is_not_meant(pair):
    with arrayd.connect(url_of(pair)) as xp, xp.session(name="mesh", device=1), arrayd.connect(url_of(pair), device="mesh") as m:
        assert m.device == "mesh" and sorted(s["device"] for s in xp.sessions() if s["name"] == "mesh") == [1, 2]


@pytest.mark.in_turn
def test_of_the_environment(pair, monkeypatch):
    url = url_of(pair)
    monkeypatch.setenv("ARRAYD_DEVICE", "mesh")
    with arrayd.connect(url) as m:
        assert m.device == "mesh"
        mine = m._engine.session
        default = next(s["id"] for s in m.sessions() if s["default"])
    with arrayd.connect(url, device=1) as one, arrayd.connect(url, session=default) as xp:
        assert one.device == "cuda:1" and xp.device == "cuda:0"
    # what was pickled belongs to its own session, whatever the environment of the process that unpickles it says
    with arrayd.connect(url, session=mine) as m:
        m.save("x", m.ones(3))
        text = pickle.dumps(m.array("x"))
    monkeypatch.delenv("ARRAYD_DEVICE")
    with arrayd.connect(url) as xp:
        xp.save("y", xp.ones(3))
        texts = text, pickle.dumps(xp.array("y"))
    program = "import pickle, sys\nprint(*(pickle.loads(bytes.fromhex(t)).device for t in sys.argv[1:]))"
    for device in ("mesh", "1"):
        done = subprocess.run([sys.executable, "-c", program, *(t.hex() for t in texts)], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PYTHONPATH": str(SOURCE), "ARRAYD_DEVICE": device})
        assert done.stdout == "mesh cuda:0\n", done
    monkeypatch.setenv("ARRAYD_DEVICE", "")
    with arrayd.connect(url) as xp:
        assert xp.device == "cuda:0"


NUMPY = """
import arrayd.numpy as np
a = np.arange(200000.0).reshape(400, 500)
b = (a - a.mean()) / a.std()
print(b.device, round(float(np.abs(b).max()), 3), np.ones(3).device, np.random.default_rng(1).random(5).device)
"""


@pytest.mark.in_turn
def test_a_numpy_program(pair):
    for device, name in (("mesh", "mesh"), ("1", "cuda:1"), ("", "cuda:0")):
        done = subprocess.run([sys.executable, "-c", NUMPY], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": str(SOURCE), "ARRAYD_URL": url_of(pair), "ARRAYD_DEVICE": device})
        assert done.stdout.split() == [name, "1.732", name, name], done


def test_a_daemon_of_its_own(monkeypatch):
    fake = fake_gpu() or pytest.skip("no fake driver in this build, or no g++")
    for name, value in {**fake, "ARRAYD_FAKE_DEVICES": "2"}.items():
        monkeypatch.setenv(name, value)
    options = {"program": find_binary(), "backend": "cuda", "mesh": "all", "kernel_cache": "none"}
    with arrayd.local(**options, device="mesh") as m, arrayd.local(**options, device=1) as one, arrayd.local(**options) as xp:
        assert (m.device, one.device, xp.device) == ("mesh", "cuda:1", "cuda:0") and m.url == one.url == xp.url
        monkeypatch.setenv("ARRAYD_DEVICE", "mesh")
        with arrayd.local(**options) as named:
            assert named.device == "mesh"
        monkeypatch.delenv("ARRAYD_DEVICE")
        with pytest.raises(arrayd.BadValue, match="there is no device 7"):
            arrayd.local(**options, device=7)
    assert all(d._pipe < 0 for d in _local._all)


def test_the_command(pair, tmp_path, monkeypatch):
    run = cli(pair)
    np.save(tmp_path / "u.npy", np.arange(100000.0))
    ok(run("put", tmp_path / "u.npy", "--device", "mesh"))
    assert ok(run("ls")).out == "" and ok(run("--device", "mesh", "ls")).out == "u\n"
    assert ok(run("eval", "sum(u)", "--device=mesh")).out.strip() == str(np.arange(100000.0).sum())
    assert '"device": 2' in ok(run("info", "u", "--json", "--device", "2")).out
    with arrayd.connect(url_of(pair), device="mesh") as m:  # meets it
        assert float(m.array("u")[7]) == 7
    monkeypatch.setenv("ARRAYD_DEVICE", "mesh")
    assert ok(run("ls")).out == "u\n" and ok(run("ls", "--device", "0")).out == ""
    own = next(s["id"] for s in m_sessions(pair) if s["default"])
    monkeypatch.setenv("ARRAYD_SESSION", own)  # says more than a device does
    assert ok(run("ls")).out == "" and ok(run("ls", "--device", "mesh")).out == "u\n"
    monkeypatch.delenv("ARRAYD_DEVICE")
    fails(run("ls", "--device", "mesh", "--session", own), 2, "only one of the two")
    fails(run("ls", "--device", "mash"), 1, 'a device\'s number or "mesh"')
    fails(run("ls", "--device", "9"), 1, "there is no device 9")
    offered = [c for c, _ in _complete.candidates(_main.make_parser(), ["--url", url_of(pair), "ls", "--device"], "")]
    assert offered == ["0", "1", "mesh"]


def m_sessions(d):
    with arrayd.connect(url_of(d)) as xp:
        return xp.sessions()


@pytest.mark.in_turn
def test_new_session_of_the_page(visit, pair, gpu_with):
    p = visit(pair, "#sessions")
    p.button("New session")
    p.wait("document.querySelector('dialog select[name=device]')")
    assert p.run("[...document.querySelectorAll('dialog option')].map(o => o.textContent)") == [
        "The one with most free memory", "0: Fake GPU 0", "1: Fake GPU 1", "mesh: 2 x Fake GPU 0"]
    p.fill("dialog input[name=name]", "wide")
    p.choose("dialog select", "2")
    p.button("Create", "dialog")
    p.says("wide")
    assert {s["name"]: s["device"] for s in m_sessions(pair)} == {"default": 0, "wide": 2}
    p.wait("[...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('wide') && r.innerText.includes('mesh'))")
    p.button("New session")
    p.fill("dialog input[name=name]", "any")
    p.button("Create", "dialog")
    p.says("any")
    assert {s["name"]: s["device"] for s in m_sessions(pair)}["any"] < 2
    one = visit(gpu_with(), "#sessions")
    one.button("New session")
    one.wait("document.querySelector('dialog input[name=name]')")
    assert not one.run("document.querySelector('dialog select')")
