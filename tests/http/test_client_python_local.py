"""clients/python: arrayd.local(), a daemon that ends with its process; connect() without an address; the package that has the daemon in it."""
import asyncio
import contextlib
import gc
import http.server
import json
import os
import pathlib
import pickle
import signal
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types
import zipfile

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
SOURCE = REPO / "clients" / "python" / "src"
sys.path.insert(0, str(SOURCE))
import arrayd  # noqa: E402
from arrayd import _local  # noqa: E402

from conftest import fake_gpu, find_binary, until  # noqa: E402
from test_client_python_processes import forked, well  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """`arrayd` is on PATH, temporary folders are looked at, and no daemon is where one usually is."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "arrayd").symlink_to(pathlib.Path(find_binary()).resolve())
    tempfile.gettempdir()  # other fixtures' folder stays what it is
    folder = pathlib.Path(tempfile.mkdtemp(prefix="local-", dir="/tmp"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(_local, "tempfile", types.SimpleNamespace(
        TemporaryFile=tempfile.TemporaryFile, mkdtemp=lambda prefix, dir=folder: tempfile.mkdtemp(prefix=prefix, dir=dir)))
    monkeypatch.setattr(_local, "USUAL", ("http://127.0.0.1:1", "unix:/nowhere/arrayd.sock"))
    monkeypatch.delenv("ARRAYD_URL", raising=False)
    monkeypatch.delenv("ARRAYD_TOKEN", raising=False)
    yield folder
    for daemon in list(_local._all):
        daemon.end()
    _local._running.clear()
    left = processes(folder), folders(folder)
    shutil.rmtree(folder)
    assert left == ([], []), "a daemon, or its files, are left"


def processes(folder):
    """Process ids of the daemons, keepers too, that have their socket in the folder."""
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"--private={folder}/".encode() in (p / "cmdline").read_bytes():
                found.append(int(p.name))
    return found


def daemon_of(folder):
    """The one that has a keeper."""
    proper, = (pid for pid in processes(folder) if not pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text())
    return proper


def folders(folder):
    return list(folder.iterdir())


def script(text, **more):
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen([sys.executable, "-W", "error:subprocess", "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            stdin=subprocess.PIPE, text=True, **more)


def ran(text):
    p = script(text)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and not err, err
    return out


# --- one daemon ---


def test_it_computes_and_ends(here):
    with arrayd.local() as xp:
        assert float(xp.sum(xp.arange(10))) == 45
        assert xp.info()["process"]["keeps_arrays"]
        socket = pathlib.Path(xp.url[5:])
        assert socket.is_socket() and socket.parent.stat().st_mode & 0o777 == 0o700 and socket.stat().st_mode & 0o777 == 0o600
        daemons = processes(here)
        assert len(daemons) == 2
        listening = {line.split()[9] for kind in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
                     if line.split()[3] == "0A"}
        for pid in daemons:
            links = [os.readlink(f) for f in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
            assert not {link[8:-1] for link in links if link.startswith("socket:[")} & listening
    assert not processes(here) and not folders(here)
    with pytest.raises(arrayd.ConnectionLost):
        xp.info()


def test_memory_is_mapped():
    with arrayd.local(backend="cpu") as xp:
        x = xp.ones((1000, 1000), dtype="float64")
        with x.exported("write") as m:
            m.array[0] = 5
        assert float(xp.sum(x)) == 999_000 + 5000


def test_callers_share_one_unless_options_differ(here):
    xp, same, less = arrayd.local(), arrayd.local(memory_limit=None), arrayd.local(memory_limit="64MiB", threads=1)
    assert xp.url == same.url != less.url
    assert less.info()["limits"]["memory_limit"] == 64 << 20 and arrayd.local(threads=1, memory_limit="64MiB").url == less.url
    xp.save("kept", xp.arange(3))
    assert same.array("kept").numpy().tolist() == [0, 1, 2]
    xp.close()
    assert len(processes(here)) == 4 and float(same.sum(same.ones(3))) == 3
    same.close()
    assert len(processes(here)) == 2
    again = arrayd.local()
    assert again.url != same.url and not list(again.arrays())


def test_a_client_that_is_forgotten_ends_nothing(here):
    arrayd.local().save("kept", 1.5)
    gc.collect()
    assert float(arrayd.local().array("kept")) == 1.5


def test_threads_get_the_same_one():
    found, errors = [], []

    def work():
        try:
            found.append(arrayd.local())
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and len({xp.url for xp in found}) == 1
    assert float(found[0].sum(found[0].ones(4))) == 4, "the thread that started it has ended, the daemon has not"


def test_options_are_the_daemon_s(tmp_path):
    log = tmp_path / "log"
    with arrayd.local(program=tmp_path / "bin" / "arrayd", log=log, log_level="info", keep_arrays=False, listen=[f"unix:{tmp_path}/second.sock"], max_nodes=77,
                      state_dir=tmp_path / "state", evict=True) as xp:
        assert xp.info()["limits"]["max_nodes"] == 77 and not xp.info()["process"]["keeps_arrays"]
        with arrayd.connect(f"unix:{tmp_path}/second.sock") as second:
            second.save("kept", second.arange(3))
    assert " ready " in log.read_text() and " stopped" in log.read_text()
    with arrayd.local(state_dir=tmp_path / "state") as xp:
        assert xp.array("kept").numpy().tolist() == [0, 1, 2]


def test_a_long_folder_s_name_is_no_obstacle(here, monkeypatch):
    deep = here / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr(_local.tempfile, "mkdtemp", lambda prefix, dir=deep: tempfile.mkdtemp(prefix=prefix, dir=dir))
    with arrayd.local() as xp:
        folder = pathlib.Path(xp.url[5:]).parent
        assert folder.parent == pathlib.Path("/tmp")
    assert not folder.exists()
    deep.rmdir()


def test_a_relative_folder_is_as_good(here, monkeypatch):
    monkeypatch.chdir(here)
    monkeypatch.setattr(_local.tempfile, "mkdtemp", lambda prefix, dir=".": tempfile.mkdtemp(prefix=prefix, dir=dir))
    with arrayd.local() as xp:
        monkeypatch.chdir("/")
        with arrayd.local() as again:
            assert again.url == xp.url == f"unix:{here}/{pathlib.Path(xp.url).parent.name}/arrayd.sock"


def test_the_run_time_compiler_of_another_package_is_found(here, tmp_path, monkeypatch):
    fake = fake_gpu() or pytest.skip("no fake driver in this build, or no g++")
    folder = tmp_path / "site/nvidia/cuda_nvrtc/lib"
    folder.mkdir(parents=True)
    (folder / "libnvrtc.so.12").symlink_to(fake.pop("ARRAYD_LIBNVRTC"))
    for name, value in fake.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ARRAYD_LIBNVRTC", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with arrayd.local(backend="cuda", kernel_cache="none") as xp:
        assert xp.device == "cuda:0" and float(xp.sum(xp.ones(100) + 1)) == 200


# --- errors ---


def test_what_is_wrong_is_said(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="unknown option '--memory-limt=4GiB'"):
        arrayd.local(memory_limt="4GiB")
    with pytest.raises(ValueError, match="memory-limit: 'much' is not a size"):
        arrayd.local(memory_limit="much")
    with pytest.raises(arrayd.BadValue, match="no-keeper"):
        arrayd.local(no_keeper=True)
    monkeypatch.setenv("ARRAYD_LIBCUDA", "/nowhere/libcuda.so.1")
    with pytest.raises(arrayd.ConnectionLost, match=r"(?s)ended with status 1:\n.*/nowhere/libcuda\.so\.1") as e:
        arrayd.local(backend="cuda")
    assert e.value.code == "not_started"
    log = tmp_path / "log"
    log.write_text("of yesterday\n")
    with pytest.raises(arrayd.ConnectionLost, match="libcuda") as e:
        arrayd.local(backend="cuda", log=str(log))
    assert "yesterday" not in str(e.value) and log.read_text().startswith("of yesterday\n")
    with pytest.raises(arrayd.ConnectionLost, match="'/nowhere/arrayd' is no program"):
        arrayd.local(program="/nowhere/arrayd")
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(arrayd.ConnectionLost, match="Exec format error"):
        arrayd.local(program=str(tmp_path / "text"))
    (tmp_path / "text").write_text("#!/bin/sh\nexec sleep 1000\n")
    monkeypatch.setattr(_local, "START_S", 0.3)
    with pytest.raises(arrayd.ConnectionLost, match="text does not listen after 0.3 s: is it arrayd's daemon"):
        arrayd.local(program=str(tmp_path / "text"))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(arrayd.ConnectionLost, match=r"_program/arrayd does not exist, nor is there an 'arrayd' on PATH.*deploy/build --wheel"):
        arrayd.local()


# --- the end ---


WORKING = """
import time, arrayd
xp = arrayd.local()
x = xp.save("x", xp.ones((1000, 1000)))
job = xp.program("x = sin(x)", steps=10**6)
print(xp.url, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_process_that_is_killed(here, how):
    p = script(WORKING)
    assert p.stdout.readline().startswith(f"unix:{here}/")
    assert len(processes(here)) == 2
    p.send_signal(how)
    p.communicate(timeout=30)
    until(lambda: not processes(here) and not folders(here), 10)


def test_nothing_is_left_if_the_daemon_is_being_started_again(here):
    """It is not ready, and cannot be: only its keeper can see the end."""
    p = script(WORKING)
    assert p.stdout.readline()
    proper = daemon_of(here)
    os.kill(proper, signal.SIGSTOP)  # it ends nothing itself
    p.kill()
    p.communicate(timeout=30)
    os.kill(proper, signal.SIGKILL)
    until(lambda: not processes(here) and not folders(here), 10)


def test_arrays_outlive_the_daemon(here):
    with arrayd.local() as xp:
        x = xp.arange(5).compute()
        proper = daemon_of(here)
        os.kill(proper, signal.SIGKILL)
        until(lambda: proper not in processes(here))
        assert x.numpy().tolist() == [0, 1, 2, 3, 4]


def test_the_next_one_after_a_keeper_was_killed(here):
    xp = arrayd.local()
    os.kill(next(pid for pid in processes(here) if pid != daemon_of(here)), signal.SIGKILL)
    until(lambda: not processes(here))
    with pytest.raises(arrayd.ConnectionLost):
        xp.info()
    again = arrayd.local()
    assert again.url != xp.url and float(again.sum(again.ones(3))) == 3 and len(folders(here)) == 1


def test_the_end_of_a_script(here):
    out = ran("import arrayd\nxp = arrayd.local()\nyp = arrayd.local(threads=1)\nx = xp.ones(10).compute()\nprint(float(xp.sum(x)))")
    assert out == "10.0\n" and not processes(here) and not folders(here)


def test_two_processes_have_one_each(here):
    two = [script(WORKING) for _ in range(2)]
    assert len({p.stdout.readline() for p in two}) == 2 and len(processes(here)) == 4
    two[0].kill()
    two[0].communicate(timeout=30)
    until(lambda: len(processes(here)) == 2 and len(folders(here)) == 1)
    two[1].kill()
    two[1].communicate(timeout=30)
    until(lambda: not processes(here) and not folders(here))


INTERRUPTED = """
import signal, time, arrayd
xp = arrayd.local()
x = xp.ones(1000).compute()
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.3)
    print(float(xp.sum(x)))
"""


def test_an_interrupt_is_the_script_s_alone(here):
    """From the terminal it reaches the whole process group."""
    p = script(INTERRUPTED, start_new_session=True)
    assert p.stdout.readline() == "ready\n"
    os.killpg(p.pid, signal.SIGINT)
    out, err = p.communicate(timeout=30)
    assert out == "1000.0\n" and p.returncode == 0, err


# --- forks ---


def test_a_forked_child_ends_nothing_and_starts_its_own(here):
    xp = arrayd.local()
    x = xp.arange(4).compute()

    def work():
        assert x.numpy().tolist() == [0, 1, 2, 3]
        own = arrayd.local()
        assert own.url != xp.url and float(own.sum(own.ones(5))) == 5
        own.close()
        xp.close()
        _local._at_exit()

    assert well(forked(work))
    assert x.numpy().tolist() == [0, 1, 2, 3] and len(processes(here)) == 2


def test_a_child_does_not_hold_its_parent_s(here):
    """Which is killed, while the child stays."""
    p = script("import os, sys, time, arrayd\nxp = arrayd.local()\npid = os.fork()\nif pid:\n    print(pid, flush=True)\ntime.sleep(60)\n")
    child = int(p.stdout.readline())
    assert len(processes(here)) == 2
    p.kill()
    p.wait(30)
    try:
        until(lambda: not processes(here) and not folders(here), 10)
    finally:
        os.kill(child, signal.SIGKILL)
    p.communicate(timeout=30)


def test_other_processes_are_given_its_address():
    with arrayd.local() as xp:
        x = xp.save("x", xp.arange(3))
        assert pickle.loads(pickle.dumps(x)).numpy().tolist() == [0, 1, 2]
        assert ran(f"import arrayd\nprint(arrayd.connect({xp.url!r}).array('x').numpy().tolist())") == "[0, 1, 2]\n"


# --- without an address ---


def test_arrayd_url_comes_first(daemon, monkeypatch):
    url = f"http://127.0.0.1:{daemon.port}"
    monkeypatch.setenv("ARRAYD_URL", url)
    with arrayd.connect() as xp:
        assert xp.url == url
    monkeypatch.setenv("ARRAYD_URL", "http://127.0.0.1:1")
    with pytest.raises(arrayd.ConnectionLost, match="127.0.0.1:1"):
        arrayd.connect()


def test_then_a_daemon_that_is_where_one_usually_is(daemon, daemon_with, accounts, tmp_path, monkeypatch):
    url = f"http://127.0.0.1:{daemon.port}"
    monkeypatch.setattr(_local, "USUAL", (url, "unix:/nowhere"))
    with arrayd.connect() as xp:
        assert xp.url == url
    monkeypatch.setattr(_local, "USUAL", ("http://127.0.0.1:1", f"unix:{tmp_path}/arrayd.sock"))
    d = daemon_with("--accounts", accounts.path) if accounts.add("ann") else None
    daemon_with("--listen", f"unix:{tmp_path}/arrayd.sock")
    with arrayd.connect() as xp:
        assert xp.url == f"unix:{tmp_path}/arrayd.sock"
    monkeypatch.setattr(_local, "USUAL", (f"http://127.0.0.1:{d.port}",))
    with pytest.raises(arrayd.Denied):  # it is arrayd, which is not to be passed over
        arrayd.connect()
    with arrayd.connect(token=accounts.token["ann"]) as xp:
        assert xp.url == _local.USUAL[0]


def test_then_a_daemon_of_its_own(here):
    with arrayd.connect() as xp, arrayd.local() as same:
        assert xp.url.startswith(f"unix:{here}/") and same.url == xp.url

    async def both():
        async with arrayd.aconnect() as xp:
            assert xp.url == arrayd.local().url
            return float(await xp.sum(xp.ones(7)).item())

    assert asyncio.run(both()) == 7


def test_what_is_no_arrayd_is_passed_over(here, monkeypatch):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setattr(_local, "USUAL", ("http://127.0.0.1:%d" % server.server_address[1],))
    try:
        for status in (200, 401, 404, 500):
            with arrayd.connect() as xp:
                assert xp.url.startswith(f"unix:{here}/")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_token_is_of_a_daemon_that_is_there(monkeypatch):
    with pytest.raises(arrayd.ConnectionLost, match="127.0.0.1:1"):
        arrayd.connect(token="secret")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(arrayd.ConnectionLost, match="ARRAYD_URL is not set, no arrayd answers at http://127.0.0.1:1 or .*no daemon to be started"):
        arrayd.connect()


# --- how long it takes ---


@pytest.mark.alone
def test_it_is_there_at_once():
    def seconds():
        begin = time.perf_counter()
        with arrayd.local() as xp:
            float(xp.sum(xp.ones(3)))
            return time.perf_counter() - begin

    assert statistics.median(seconds() for _ in range(20)) < 0.3


# --- the package ---


@pytest.mark.slow
def test_the_package_with_a_daemon(tmp_path, monkeypatch):
    """Made, installed where nothing else is, and used."""
    def sh(*command, env=None):
        return subprocess.run(command, capture_output=True, text=True, timeout=1800, env=env)

    copy = tmp_path / "copy"
    copy.mkdir()
    for path in REPO.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, copy)
    for name in ("clients", "compute", "deploy", "docs", "protocol", "server", "tests"):
        shutil.copytree(REPO / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules", "*.egg-info"))
    made = sh(str(copy / "deploy/build"), "--wheel")
    if "No matching distribution" in made.stderr:
        pytest.skip("PyPI is not to be had")
    assert made.returncode == 0, made.stderr
    wheel, = copy.glob("build/*.whl")
    assert made.stdout.splitlines()[-1] == f"built build/{wheel.name}" and "-py3-none-manylinux_2_" in wheel.name
    for name in ("arrayd", "arrayd-file"):
        assert zipfile.ZipFile(wheel).getinfo(f"arrayd/_program/{name}").external_attr >> 16 & 0o111
    venv = tmp_path / "venv"
    for command in (("/usr/bin/python3", "-m", "venv", venv), (venv / "bin/pip", "install", "-q", wheel)):
        done = sh(*map(str, command))
        assert done.returncode == 0, done.stderr
    program = ("import arrayd, json\nfrom arrayd import _local\nwith arrayd.local() as xp:\n"
               f"    xp.save('{tmp_path}/a.nc', " "{'a': xp.ones(9)})\n"
               f"    assert float(xp.sum(xp.load('{tmp_path}/a.nc'))) == 9\n"
               "    print(json.dumps([float(xp.sum(xp.sin(xp.zeros(9)) + 1)), xp.url, _local._found(None)]))")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": os.environ["TMPDIR"]}
    done = sh(str(venv / "bin/python"), "-c", program, env=env)
    assert done.returncode == 0, done.stderr
    value, url, daemon = json.loads(done.stdout)
    assert value == 9 and url.startswith("unix:") and daemon.startswith(f"{venv}/lib")
    told = sh("ldd", daemon, f"{daemon}-file").stdout
    libraries = {line.split(" => ")[1].split()[0] for line in told.splitlines() if " => /" in line}
    assert any("libhdf5" in path for path in libraries) and "not found" not in told
    assert len([path for path in libraries if path.startswith(str(venv))]) >= 5
    of_manylinux = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libz.so.1", "libstdc++.so.6", "libresolv.so.2"}
    assert {os.path.basename(path) for path in libraries if not path.startswith(str(venv))} <= of_manylinux
