"""Arrays of several GPUs as one outlive the daemon, too: on fake meshes. An array has a descriptor for each GPU that it lies on."""
import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from client import NPY
from conftest import fake_gpu, find_binary, until
from test_keeper_stored import START, Manager
from test_survive import kill, same

RESERVE = 64 + 16  # descriptors that the keeper gives no array's memory (keeper.c)
KEEP = ["--keep-arrays", "--restart-limit", 1000, "--restart-rate", 0, "--restart-wait", 0, "--mesh-least", 1, "--reuse-time", 1]
DEADLY = {"ASAN_OPTIONS": "detect_stack_use_after_return=0:handle_segv=0"}


def meshed(gpu_with, devices, *args, **environment):
    """The daemon, a client on the mesh, and one on a GPU by itself, which is not the first."""
    d = gpu_with(*KEEP, *args, environment={"ARRAYD_FAKE_DEVICES": str(devices), **DEADLY, **environment})
    api = d.client()
    ids = [api.expect(201, api.post("/v1/sessions", {"device": device})).json()["id"] for device in ("mesh", 1)]
    return d, *(d.client(session=s) for s in ids)


def idle(c):
    """What its session was asked is done: nothing is being written."""
    c.expect(200, c.post(f"/v1/sessions/{c.session}/sync"))


def live(c):
    """Bytes in use on each GPU."""
    return [int(n) for n in re.findall(r"^arrayd_cuda_memory_live_bytes\{device=\"\d+\"\} (\d+)", c.get("/metrics").body.decode(), re.M)]


def figure(c, name):
    return int(re.search(rf"^{name} (\d+)", c.get("/metrics").body.decode(), re.M)[1])


def settled(c):
    """Nothing waits for new arrays any more."""
    until(lambda: figure(c, "arrayd_shareable_kept_bytes") == 0)
    until(lambda: not re.search(r"mesh_kept_bytes\{device=\"\d+\"\} [1-9]", c.get("/metrics").body.decode()), 20)
    return live(c)


SUMS = 4096  # what sums of arrays' memory are written to, on each device


def near(a, b):
    """Of each GPU; the first of a mesh has that one's sums, and its own."""
    return all(abs(x - y) <= 2*SUMS for x, y in zip(a, b))


def alike(a, b):
    assert near(a, b), (a, b)


def copies(c):
    """Of slabs, by each GPU."""
    return [int(n) for n in re.findall(r"^arrayd_cuda_slab_copies_total\{device=\"\d+\"\} (\d+)", c.get("/metrics").body.decode(), re.M)]


def held(d):
    found = 0
    for fd in Path(f"/proc/{d.proc.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it may be closed meanwhile
            found += "fake-gpu" in os.readlink(fd)
    return found


def contents(devices):
    """Divided (evenly, and with an odd number of bytes), of one GPU alone, and pieces of what lies there."""
    rng = np.random.default_rng(devices)
    return {"even": rng.random((128 * devices, 8192), "f4"), "odd": rng.integers(0, 99, 9_654_321).astype("i1"),
            "alone": rng.random(700_000, "f4"), "small": rng.random(1000), "tiny": np.arange(3)}


@pytest.mark.in_turn
@pytest.mark.parametrize("devices", [2, 3])
def test_arrays_of_the_mesh(gpu_with, devices):
    d, mesh, one = meshed(gpu_with, devices, "--mesh", "all")
    assert mesh.info()["process"]["keeps_arrays"]
    begun = settled(mesh)
    want = contents(devices)
    for name, a in want.items():
        mesh.upload(a, name)
    one.upload(want["alone"], "own")
    mesh.expect(201, mesh.post("/v1/arrays/even/views", {"index": "5:900:7, ::-3", "name": "part"}))
    want["part"] = want["even"][5:900:7, ::-3]
    ids = {name: mesh.meta(name)["id"] for name in want}
    for k in range(3):
        idle(mesh)
        full = settled(mesh)
        mesh.close(), one.close()
        kill(d, [signal.SIGKILL, signal.SIGABRT, signal.SIGKILL][k])
        alike(live(mesh), full)
        for name, a in want.items():
            assert mesh.meta(name)["device"] == devices and mesh.meta(name)["id"] == ids[name]
            same(mesh, name, a)
        same(one, "own", want["alone"])
        # all go on being used, and what is made now is there in the next life
        mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "even*2 - shift(even, [1, 0], 'wrap')", "out": "even"}))
        a = want["even"]
        want["even"] = a * np.float32(2) - np.roll(a, -1, 0)
        want["part"] = want["even"][5:900:7, ::-3]
        mesh.expect(201, mesh.post("/v1/evaluate", {"expr": "alone + 1", "name": f"more{k}"}))
        want[f"more{k}"] = want["alone"] + np.float32(1)
        ids[f"more{k}"] = mesh.meta(f"more{k}")["id"]
        time.sleep(1.01)
    assert sum(full) > sum(begun) and full[-1] > begun[-1]
    for name in ids:
        mesh.expect(204, mesh.delete(f"/v1/arrays/{ids[name]}"))
    one.expect(204, one.delete("/v1/arrays/own"))
    until(lambda: figure(mesh, "arrayd_chunks") == 0)
    until(lambda: held(d) == 0)
    alike(settled(mesh), begun)
    assert mesh.info()["bytes_in_use"] <= SUMS
    mesh.close(), one.close()


@pytest.mark.in_turn
@pytest.mark.parametrize("order", ["adverse", "adverse-down"])
def test_programs_go_on(gpu_with, order):
    """Killed in the midst of it, a program comes to the bits of one that was not, however the GPUs are ordered."""
    d, mesh, _ = meshed(gpu_with, 2, "--mesh", "all", "--job-restarts", 100, ARRAYD_FAKE_ORDER=order)
    u = np.random.default_rng(2).random((64, 128, 128), "f4")
    body = {"body": ["n = 2*u - p + 0.1*laplacian(u, boundary='clamp')", "p = u", "u = n"], "steps": 30,
            "record": {"m": "max(u)"}, "record_every": 4}
    got, deaths_under_way = [], 0
    for deaths in (0, 2):
        mesh.upload(u, "u")
        mesh.upload(u, "p")
        idle(mesh)
        ref = mesh.expect(202, mesh.post("/v1/programs", body)).json()["id"]
        job = lambda: mesh.expect(200, mesh.get(f"/v1/jobs/{ref}")).json()
        for _ in range(deaths):
            until(lambda: job()["state"] == "running", 60)
            time.sleep(0.3)
            deaths_under_way += job()["state"] == "running"
            mesh.close()
            kill(d)
            time.sleep(1.01)
        until(lambda: job()["state"] not in ("queued", "running"), 120)
        assert job()["state"] == "done", job()
        got.append((mesh.download("u").tobytes(), mesh.download("p").tobytes(), job()["records"]))
        for name in "up":
            mesh.expect(204, mesh.delete(f"/v1/arrays/{name}"))
    assert got[0] == got[1] and deaths_under_way > 0 and d.log().count("taken over from") == 2
    mesh.close()


@pytest.mark.in_turn
def test_a_lost_gpu(gpu_with):
    d, mesh, one = meshed(gpu_with, 2, "--mesh", "all")
    want = contents(2)
    for name, a in want.items():
        mesh.upload(a, name)
    idle(mesh)
    before = d.pid
    d.fail("719 async")
    try:
        mesh.post("/v1/evaluate", {"expr": "even + 1", "name": "never"})
    except OSError:
        pass
    mesh.close(), one.close()
    until(lambda: d.pid not in (before, d.proc.pid) and d.log().count(" ready ") == 2)
    for name, a in want.items():
        same(mesh, name, a)
    mesh.close()


@pytest.mark.in_turn
def test_another_mesh(gpu_with, tmp_path):
    """One that has all GPUs on which arrays lie takes them over, in whatever order; any other start fails, and loses nothing."""
    config = tmp_path / "config"

    def mesh_is(listed):
        config.write_text(f"mesh = {listed}\n" if listed else "")

    mesh_is("0,1")
    d, mesh, one = meshed(gpu_with, 3, "--config", config)
    want = contents(2)
    for name, a in want.items():
        mesh.upload(a, name)
    one.upload(want["alone"], "own")
    mesh.upload(np.zeros(0), "empty")
    made_anew = {"1,0": ("x", [1, 0]), "all": ("y", [0, 1, 2])}
    for name, _ in made_anew.values():
        mesh.upload(want["odd"], name)
    mesh.upload(want["alone"], "away")
    mesh.expect(200, mesh.patch("/v1/arrays/away", {"location": "host"}))
    want["away"] = want["alone"]
    placed = mesh.meta("odd")["placement"]
    assert placed == {"parts": [2], "rows": [0, 6 << 20, 9_654_321], "devices": [0, 1]}
    before = settled(mesh)
    for listed, why in (("1,0", None), ("all", None), ("", "there is no mesh now"), ("2,1", "on GPU 0, which is not in the mesh now"),
                        ("2,0,1", None), ("0,1", None)):
        idle(mesh)
        mesh.close(), one.close()
        mesh_is(listed)
        n = d.log().count(" ready ")
        if why:
            os.kill(d.pid, signal.SIGKILL)
            until(lambda: why in d.log())
            assert d.log().count(" ready ") == n and held(d) > 0
            mesh_is("0,1")
            d.proc.send_signal(signal.SIGHUP)
            until(lambda: d.log().count(" ready ") == n + 1, 40)
        else:
            kill(d)
        for name, a in want.items():
            same(mesh, name, a)
        until(lambda: near(live(mesh), before))  # what was freed just before may go late
        same(one, "own", want["alone"])
        same(mesh, "empty", np.zeros(0))
        # it lies where it did, and its bytes come by way of that GPU
        assert mesh.meta("odd")["placement"] == placed
        for k, at in enumerate((100, 8 << 20)):
            had = copies(mesh)
            assert mesh.download("odd", f"{at}:{at + 5}").tobytes() == want["odd"][at:at + 5].tobytes()
            assert [i for i, n in enumerate(copies(mesh)) if n > had[i]] == [k]
        mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "even*1 + alone[0]*0", "out": "even"}))
        if listed in made_anew:  # not in the memory of an array that a daemon with another mesh made
            name, devices = made_anew[listed]
            mesh.expect(204, mesh.delete(f"/v1/arrays/{name}"))
            mesh.upload(want["odd"], name)
            assert mesh.meta(name)["placement"]["devices"] == devices
            mesh.expect(204, mesh.delete(f"/v1/arrays/{name}"))
            before = settled(mesh)
        time.sleep(1.01)
    for name in (*want, "empty"):
        mesh.expect(204, mesh.delete(f"/v1/arrays/{name}"))
    one.expect(204, one.delete("/v1/arrays/own"))
    until(lambda: held(d) == 0)
    mesh.close(), one.close()


@pytest.mark.in_turn
@pytest.mark.parametrize("listed, devices, order", [("1,0", [1, 0], "adverse"), ("all", [0, 1, 2], "adverse-down")])
def test_what_was_taken_over_makes_room(gpu_with, tmp_path, listed, devices, order):
    """It is moved out for a single GPU that it lies on, and work on it there and on what is divided otherwise comes to the same."""
    config = tmp_path / "config"
    config.write_text("mesh = 0,1\n")
    d, mesh, one = meshed(gpu_with, 3, "--config", config, "--memory-limit", "32MiB", "--evict", ARRAYD_FAKE_ORDER=order)
    a = np.random.default_rng(3).random((2560, 4096), "f4")  # 20 MiB on each
    mesh.upload(a, "a")
    idle(mesh)
    mesh.close(), one.close()
    config.write_text(f"mesh = {listed}\n")
    kill(d)
    assert mesh.meta("a")["placement"] == {"parts": [2, 1], "rows": [0, 1280, 2560], "devices": [0, 1]}
    b = mesh.expect(201, mesh.post("/v1/evaluate", {"expr": "a[:1024] + 2*shift(a, [1, 0], 'wrap')[:1024]", "name": "b"})).json()
    assert b["placement"]["devices"] == devices
    same(mesh, "b", a[:1024] + 2*np.roll(a, -1, 0)[:1024])
    mesh.expect(204, mesh.delete("/v1/arrays/b"))
    one.create(name="own", shape=[5 << 20], dtype="float32")
    assert mesh.meta("a")["location"] == "host" and one.meta("own")["location"] == "device"
    one.expect(204, one.delete("/v1/arrays/own"))
    mesh.expect(200, mesh.patch("/v1/arrays/a", {"location": "device"}))
    assert mesh.meta("a")["placement"]["devices"] == devices
    same(mesh, "a", a)
    mesh.close(), one.close()


@pytest.mark.in_turn
def test_what_has_lost_a_part(gpu_with, tmp_path):
    """With a part of an array's memory missing in what a service manager stored, the array is gone, and the rest is not."""
    fake = fake_gpu() or pytest.skip("no fake driver in this build, or no g++")
    environment = {**fake, "ARRAYD_FAKE_DEVICES": "2"}
    manager = Manager(tmp_path / "notify")
    d, mesh, _ = meshed(gpu_with, 2, "--mesh", "all", NOTIFY_SOCKET=manager.path)
    want = contents(2)
    for name, a in want.items():
        mesh.upload(a, name)
    session = mesh.session
    idle(mesh)
    mesh.close()
    manager.until("READY")
    d.stop()
    manager.until("STOPPING")
    manager.hear_all()
    manager.said.clear()
    parts = sorted(name for name in manager.stored if name.startswith("chunk.") and name.endswith(".1.2"))
    assert len(parts) == 2 and {name.split(".")[3] for name in parts} == {"1"}
    gone = next(name for name in parts if f".{12 << 20}." in name)  # the one that is not of whole MiB
    os.close(manager.stored.pop(gone))
    names, fds = manager.told()
    again = subprocess.Popen([sys.executable, "-c", START, ",".join(map(str, fds)), names, find_binary(), "--backend", "cuda", "--kernel-cache", "none",
                              "--mesh", "all", *map(str, KEEP), "--listen", "127.0.0.1:0"],
                             pass_fds=fds, env={**os.environ, **environment, "NOTIFY_SOCKET": manager.path}, stderr=subprocess.PIPE, text=True)
    try:
        manager.until("READY")
        mesh = d.client(session=session)
        mesh.fails(404, "not_found", mesh.get("/v1/arrays/odd"))
        for name, a in want.items():
            if name != "odd":
                same(mesh, name, a)
        mesh.close()
    finally:
        again.terminate()
        said = again.communicate(timeout=20)[1]
    assert again.returncode == 0 and "the keeper has not got all" in said and "arrays are gone" in said, said


def test_exports_are_refused(gpu_with, tmp_path):
    d, mesh, one = meshed(gpu_with, 2, "--mesh", "all", "--allow-export", "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s")
    mesh, one = (c.clone(unix=d.unix) for c in (mesh, one))
    for name, a in contents(2).items():
        mesh.upload(a, name)
        r = mesh.fails(403, "forbidden", mesh.post(f"/v1/arrays/{name}/export", {"mode": "read"}))
        assert "several GPUs" in r["detail"]
    mesh.close(), one.close()


def test_what_is_beyond_the_limit(gpu_with):
    """Each part takes one of max-chunks; an array for which they do not suffice is one all the same, until the daemon dies."""
    d, mesh, _ = meshed(gpu_with, 3, "--mesh", "all", "--max-chunks", 5)
    a = np.random.default_rng(1).random((96 * 3, 8192), "f4")
    for name in "ab":
        mesh.upload(a, name)
    assert figure(mesh, "arrayd_chunks") == 3 and "max-chunks" in mesh.info()["process"]["keeps_arrays_problem"]
    mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "a + 1", "out": "b"}))
    same(mesh, "b", a + np.float32(1))
    idle(mesh)
    mesh.close()
    kill(d)
    same(mesh, "a", a)
    mesh.fails(404, "not_found", mesh.get("/v1/arrays/b"))
    assert "arrays are gone" in d.log()
    mesh.close()


def test_a_part_that_the_keeper_refuses(gpu_with):
    """It lets go of the parts that it has taken; the array is one all the same, until the daemon dies."""
    d, mesh, _ = meshed(gpu_with, 3, "--mesh", "all")
    a = np.random.default_rng(1).random((96 * 3, 8192), "f4")
    mesh.upload(a, "before")
    idle(mesh)
    numbers = set(map(int, os.listdir(f"/proc/{d.proc.pid}/fd")))
    free = next(n for n in range(10000) if n not in numbers)
    had, was = held(d), resource.prlimit(d.proc.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(d.proc.pid, resource.RLIMIT_NOFILE, (free + 2 + RESERVE, was[1]))  # two more, and then no other
    mesh.upload(a * 2, "beyond")
    idle(mesh)
    assert held(d) == had and "the keeper did not take an array's memory" in d.log()
    resource.prlimit(d.proc.pid, resource.RLIMIT_NOFILE, was)
    mesh.upload(a * 3, "after")
    idle(mesh)
    assert held(d) == had + 3
    same(mesh, "beyond", a * 2)
    mesh.close()
    kill(d)
    same(mesh, "before", a)
    same(mesh, "after", a * 3)
    mesh.fails(404, "not_found", mesh.get("/v1/arrays/beyond"))
    mesh.close()
