"""Memory on several GPUs as one device, on the fake driver: where it is taken, what a refusal says, what counts, and where arrays are
after a start without the mesh."""
import numpy as np
import pytest

from client import NPY
from conftest import until
from test_gpu_faults import lost
from test_survive import kill

MIB = 1 << 20


def session_on(api, device):
    return api.clone(session=api.expect(201, api.post("/v1/sessions", {"device": device})).json()["id"])


def mesh_of(gpu_with, *args, devices=2, **environment):
    d = gpu_with("--mesh", "all", *args, environment={"ARRAYD_FAKE_DEVICES": str(devices), **environment})
    api = d.client()
    return d, api, session_on(api, "mesh")


def create(api, name, mib):
    return api.create(name=name, shape=[int(mib * MIB) // 4], dtype="float32")


def refused(api, mib):
    return api.fails(507, "out_of_memory", api.post("/v1/arrays", {"shape": [int(mib * MIB) // 4], "dtype": "float32"}))["detail"]


def value(api, expr):
    return api.expect(200, api.post("/v1/evaluate", {"expr": expr}, accept=NPY)).npy()


def live(api):
    lines = [x for x in api.expect(200, api.get("/metrics")).body.decode().splitlines() if x.startswith("arrayd_cuda_memory_live_bytes{")]
    return [int(float(x.split()[1])) for x in lines]


# --- where the first GPU has no room ---


@pytest.mark.in_turn
@pytest.mark.parametrize("keeper", [[], ["--no-keeper"]], ids=["keeper", "alone"])
def test_small_arrays_use_all_gpus(gpu_with, keeper):
    d, one, mesh = mesh_of(gpu_with, "--memory-limit", "64MiB", "--evict", "--reuse-time", 1, *keeper, devices=4)
    before = live(one)
    rng = np.random.default_rng(1)
    arrays = [rng.random(15 * MIB // 4, "f4") for _ in range(12)]  # less than 4 MiB for each GPU
    for i, a in enumerate(arrays):
        mesh.upload(a, f"a{i}")
    info = one.info()
    assert info["host_bytes_in_use"] == 0, info  # none was moved out
    assert sum(b - a >= 45 * MIB for a, b in zip(before, live(one))) >= 3, live(one)
    for i, a in enumerate(arrays):
        assert mesh.download(f"a{i}").tobytes() == a.tobytes()
    mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "a0*2 + a11 - a5", "out": "a7"}))
    assert mesh.download("a7").tobytes() == (arrays[0]*2 + arrays[11] - arrays[5]).tobytes()
    put = mesh.request("PUT", "/v1/arrays/a11/data", arrays[3].tobytes(), content_type="application/octet-stream")
    assert put.status < 300, put
    assert float(value(mesh, "max(abs(a11 - a3))")) == 0
    mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "a10*0", "out": "a10"}))
    assert not mesh.download("a10").any()
    # to the host and back, and all of it is given back
    for where in ("host", "device"):
        mesh.expect(200, mesh.patch("/v1/arrays/a9", {"location": where}))
    assert mesh.download("a9").tobytes() == arrays[9].tobytes()
    for i in range(len(arrays)):
        mesh.expect(204, mesh.delete(f"/v1/arrays/a{i}"))
    until(lambda: all(b - a < 4 * MIB for a, b in zip(before, live(one))))


@pytest.mark.parametrize("order", ["adverse", "adverse-down"])
def test_work_on_small_arrays_elsewhere(gpu_with, order):
    _, one, mesh = mesh_of(gpu_with, "--memory-limit", "24MiB", devices=3, ARRAYD_FAKE_ORDER=order)
    a = np.random.default_rng(2).random((256, 1024), "f4")
    first = session_on(one, 0)
    create(first, "full", 18)
    for i in range(9):
        mesh.upload(a + i, f"a{i}")
    for _ in range(3):
        mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "a1 + shift(a7, [1, 0], 'wrap')*0.5", "out": "a8"}))
        mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "a8 - a2", "out": "a1"}))
    x, y = a + np.float32(1), a + np.float32(7)
    for _ in range(3):
        z = x + np.roll(y, -1, 0)*np.float32(0.5)
        x = z - (a + np.float32(2))
    assert mesh.download("a1").tobytes() == x.tobytes() and mesh.download("a8").tobytes() == z.tobytes()


@pytest.mark.in_turn
@pytest.mark.parametrize("keeper", [[], ["--no-keeper"]], ids=["keeper", "alone"])
def test_small_arrays_make_room_where_they_are(gpu_with, keeper):
    _, one, mesh = mesh_of(gpu_with, "--memory-limit", "64MiB", "--evict", *keeper)
    first, second = session_on(one, 0), session_on(one, 1)
    create(first, "own", 60)
    for i in range(3):
        mesh.upload(np.full(6 * MIB // 4, i, "f4"), f"a{i}")
    create(second, "big", 60)
    assert [mesh.meta(f"a{i}")["location"] for i in range(3)] == ["host"] * 3
    assert first.meta("own")["location"] == second.meta("big")["location"] == "device"
    # on either
    assert [float(value(mesh, f"max(a{i})")) for i in range(3)] == [0, 1, 2]


@pytest.mark.in_turn
def test_scratch_makes_room_where_it_is_missing(gpu_with):
    """Of all members, one has none for a kernel's intermediate results: arrays of the others stay where they are."""
    _, one, mesh = mesh_of(gpu_with, "--memory-limit", "64MiB", "--evict", "--mesh-least", "64KiB", "--no-keeper")
    first, second = session_on(one, 0), session_on(one, 1)
    sides = (first, [f"x{i}" for i in range(10)]), (second, [f"y{i}" for i in range(13)])
    mesh.upload(np.ones(8 * MIB // 4, "f4"), "a")
    create(mesh, "b", 8)
    mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "cumulative_sum(a, 0)", "out": "b"}))
    for api, names in sides:
        for name in names:
            create(api, name, 4)
    for api in (first, second, mesh):
        api.expect(200, api.post(f"/v1/sessions/{api.session}/sync", {}))
    left = one.info()["devices"][1]["free"]
    if left > 0:
        second.create(name="z", shape=[left], dtype="uint8")
    assert one.info()["devices"][1]["free"] == 0 and one.info()["host_bytes_in_use"] == 0
    mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "cumulative_sum(a, 0)", "out": "b"}))
    assert (mesh.download("b") == np.arange(1, 8 * MIB // 4 + 1, dtype="f4")).all()
    moved = [[name for name in names if api.meta(name)["location"] == "host"] for api, names in sides]
    assert not moved[0] and 1 <= len(moved[1]) <= 2, moved


def test_small_arrays_elsewhere_outlive_the_daemon(gpu_with):
    d, one, mesh = mesh_of(gpu_with, "--memory-limit", "64MiB")
    create(session_on(one, 0), "own", 62)
    arrays = [np.random.default_rng(i).random(n, "f4") for i, n in enumerate((6 * MIB // 4, 1000, MIB, 5))]
    for i, a in enumerate(arrays):
        mesh.upload(a, f"a{i}")
    mesh.expect(200, mesh.post(f"/v1/sessions/{mesh.session}/sync", {}))
    before = live(one)
    kill(d)
    mesh = d.client().clone(session=mesh.session)
    for i, a in enumerate(arrays):
        assert mesh.download(f"a{i}").tobytes() == a.tobytes()
    until(lambda: live(mesh) == before)  # sums of idle memory take some for a while, here and below
    for i in range(len(arrays)):
        mesh.expect(204, mesh.delete(f"/v1/arrays/a{i}"))
    own = session_on(d.client(), 0)
    until(lambda: "of the mesh have" not in refused(own, 3).replace("arrays of the mesh have 0", ""))


# --- what a refusal says ---


def test_a_refusal_says_what_is_full(gpu_with):
    _, one, mesh = mesh_of(gpu_with, "--memory-limit", "64MiB")
    first = session_on(one, 0)
    create(first, "own", 40)
    create(mesh, "small", 4)
    detail = refused(mesh, 60)
    assert "the mesh, device 2, has no room for 62914560 bytes: device 0 has no 31457280 bytes" in detail, detail
    assert f"of the {64 * MIB} bytes" in detail and "on device 0 (memory-limit)" in detail, detail
    assert f"; of this memory arrays of the mesh have {4 * MIB} bytes, and the daemon was started without --evict" in detail, detail
    # a GPU's session hears of the mesh that has its memory
    detail = refused(first, 30)
    assert detail.startswith("device 0 has no") and f"; of this memory arrays of the mesh have {4 * MIB} bytes" in detail, detail
    assert '; the mesh has room: create a session with "device": "mesh";' in detail, detail
    detail = refused(session_on(one, 1), 65)
    assert "of the mesh" not in detail and "--evict" not in detail, detail  # it never fits
    # nor do these
    assert "--evict" not in refused(mesh, 130)


@pytest.mark.parametrize("device, much, never", [(0, 30, 65), ("mesh", 50, 129)])
def test_nothing_is_moved_for_what_never_fits(gpu_with, device, much, never):
    d = gpu_with("--memory-limit", "64MiB", "--evict", "--mesh", "all", environment={"ARRAYD_FAKE_DEVICES": "2"})
    api = session_on(d.client(), device)
    create(api, "a", much)
    create(api, "b", much)
    assert "--evict" not in refused(api, never)
    assert api.info()["host_bytes_in_use"] == 0
    create(api, "c", much)  # what does is moved for
    assert api.info()["host_bytes_in_use"] >= much * MIB


def test_nothing_is_moved_for_more_than_there_is(gpu_with):
    """The limit is the GPUs' memory, of which others have some."""
    d = gpu_with("--evict", "--mesh", "all", environment={"ARRAYD_FAKE_DEVICES": "2", "ARRAYD_FAKE_MEMORY": str(128 * MIB)})
    for device, much in ((0, 128), ("mesh", 256)):
        api = session_on(d.client(), device)
        create(api, "a", 20)
        assert "--evict" not in refused(api, much)
        assert api.info()["host_bytes_in_use"] == 0


# --- what counts ---


@pytest.mark.parametrize("keeper", [[], ["--no-keeper"]], ids=["keeper", "alone"])
def test_what_is_taken_counts(gpu_with, keeper):
    _, one, mesh = mesh_of(gpu_with, "--mesh-least", 1, *keeper, devices=3)
    before, in_use = live(one), one.info()["bytes_in_use"]
    for i in range(10):
        mesh.create(name=f"a{i}", shape=[6 * MIB + 4096], dtype="uint8")
    until(lambda: one.info()["bytes_in_use"] - in_use == sum(live(one)) - sum(before) == 10 * 3 * 4 * MIB)  # without what sums them up
    limited = one.clone(session=one.expect(201, one.post("/v1/sessions", {"device": "mesh", "memory_limit": 8 * MIB})).json()["id"])
    limited.fails(429, "quota_exceeded", limited.post("/v1/arrays", {"shape": [6 * MIB + 4096], "dtype": "uint8"}))
    mesh.expect(200, mesh.patch("/v1/arrays/a0", {"location": "host"}))
    until(lambda: one.info()["bytes_in_use"] - in_use == 9 * 3 * 4 * MIB)
    for i in range(10):
        mesh.expect(204, mesh.delete(f"/v1/arrays/a{i}"))
    until(lambda: one.info()["bytes_in_use"] == in_use)


# --- a start without the mesh ---


def start(gpu_with, state, *args, devices=2):
    return gpu_with("--state-dir", state, "--memory-limit", "64MiB", *args, environment={"ARRAYD_FAKE_DEVICES": str(devices)})


@pytest.mark.in_turn
@pytest.mark.parametrize("sizes", [(3, 3, 3), (35, 35)], ids=["fits", "does-not"])
def test_a_session_of_the_mesh_goes_back(gpu_with, tmp_path, sizes):
    state = tmp_path / "state"
    d = start(gpu_with, state, "--mesh", "all", devices=3)
    mesh = session_on(d.client(), "mesh")
    for i, mib in enumerate(sizes):
        mesh.upload(np.full(mib * MIB // 4, i + 1, "f4"), f"a{i}")
    d.stop()
    where = None
    for _ in range(2):  # twice, and in between it is the same device
        d = start(gpu_with, state, devices=3)
        api = d.client().clone(session=mesh.session)
        session = api.expect(200, api.get(f"/v1/sessions/{mesh.session}")).json()
        assert session["device"] < 3 and where in (None, session["device"])
        where = session["device"]
        there = [api.meta(f"a{i}")["device"] for i in range(len(sizes))]
        warned = [line for line in d.log().splitlines() if "until there is a mesh again" in line]
        assert len(warned) == 1 and f"device={where}" in warned[0], d.log()
        assert there[0] == where and ("an array of the mesh is not on" in d.log()) == (there != [where] * len(sizes))
        if sum(sizes) < 64:
            assert there == [where] * len(sizes)
            assert [float(value(api, f"max(a{i})")) for i in range(len(sizes))] == [i + 1 for i in range(len(sizes))]
        for i in range(len(sizes)):
            assert (api.download(f"a{i}") == i + 1).all()
        d.stop()
    d = start(gpu_with, state, "--mesh", "all", devices=3)
    api = d.client().clone(session=mesh.session)
    assert api.expect(200, api.get(f"/v1/sessions/{mesh.session}")).json()["device"] == 3
    assert [api.meta(f"a{i}")["device"] for i in range(len(sizes))] == [3] * len(sizes)
    assert float(value(api, f"sum(a0)/{sizes[0] * MIB // 4} + max(a{len(sizes) - 1})")) == 1 + len(sizes)
    assert "until there is a mesh again" not in d.log()
    # what was made meanwhile goes with it
    d.stop()
    d = start(gpu_with, state, devices=3)
    api = d.client().clone(session=mesh.session)
    api.upload(np.arange(1000, dtype="f4"), "new")
    d.stop()
    d = start(gpu_with, state, "--mesh", "all", devices=3)
    api = d.client().clone(session=mesh.session)
    assert api.meta("new")["device"] == 3 and float(value(api, "max(new) + max(a0)")) == 1000
    d.stop()


@pytest.mark.in_turn
def test_a_crash_without_the_mesh_changes_no_device(gpu_with, tmp_path):
    """The arrays are where they were, so the session has to be there, too, whichever GPU has most room then."""
    state = tmp_path / "state"
    d = start(gpu_with, state, "--mesh", "all")
    mesh = session_on(d.client(), "mesh")
    mesh.upload(np.ones(3 * MIB // 4, "f4"), "a")
    d.stop()
    d = start(gpu_with, state)
    api = d.client().clone(session=mesh.session)
    where = api.meta("a")["device"]
    create(session_on(api, where), "full", 30)
    value(api, "a + 1")
    kill(d)
    api = d.client().clone(session=mesh.session)
    assert api.meta("a")["device"] == where and float(value(api, "max(a)")) == 1
    d.stop()
    d = start(gpu_with, state, "--mesh", "all")
    api = d.client().clone(session=mesh.session)
    assert api.meta("a")["device"] == 2 and float(value(api, "max(a)")) == 1


# --- messages ---


def test_swap_says_that_the_devices_differ(gpu_with):
    _, one, mesh = mesh_of(gpu_with)
    first = session_on(one, 0)
    a, b = create(first, "a", 1), create(mesh, "b", 1)
    detail = first.fails(409, "conflict", first.post(f"/v1/arrays/{a['id']}/swap", {"with": b["id"]}))["detail"]
    assert "device 0" in detail and "device 2" in detail and "dtype" not in detail, detail


def test_a_fault_of_the_mesh_has_its_number(gpu_with, tmp_path):
    d = gpu_with("--mesh", "all", "--mesh-least", 1, "--no-keeper", "--kernel-cache", tmp_path / "kernels", "--lost-exit-delay", 4,
                 environment={"ARRAYD_FAKE_DEVICES": "2"})
    mesh = session_on(d.client(), "mesh")
    mesh.upload(np.ones((512, 4096), "f4"), "u")
    mesh.expect(200, mesh.post(f"/v1/sessions/{mesh.session}/sync", {}))
    d.fail("716")  # at once: the launch on the first GPU finds it
    assert mesh.post("/v1/evaluate", {"expr": "max(u*3 - u/7)", "inline": True}).status == 503
    line, = [x for x in d.log().splitlines() if "when the device was lost" in x]
    assert " device=2 " in line, line
    lost(d)


# --- what is kept for new arrays ---


def device_of(api, i):
    """As /v1/info has it, and the metrics between two looks at it that are the same: what is kept may be given back at any moment."""
    for _ in range(100):
        d, text, again = api.info()["devices"][i], api.expect(200, api.get("/metrics")).body.decode(), api.info()["devices"][i]
        if d == again:
            break
    for name in ("used", "kept"):
        assert f'arrayd_device_memory_{name}_bytes{{device="{i}"}} {d[name]}' in text, (name, d)
    assert 0 <= d["kept"] <= d["free"] and 0 <= d["used"] and d["used"] + d["free"] <= d["memory"], d
    return d


@pytest.mark.parametrize("keeps", [["--keep-arrays"], ["--keep-arrays=no"]], ids=["kept-arrays", "pool"])
def test_kept_memory_is_no_arrays(gpu_with, keeps):
    d, one, mesh = mesh_of(gpu_with, "--memory-limit", "256MiB", "--reuse-time", 600, *keeps)
    one = session_on(one, 0)
    begun = [device_of(one, i) for i in range(3)]
    for api, i, on_gpu in ((one, 0, 32), (mesh, 2, 16)):
        before = [device_of(one, k) for k in range(3)]
        create(api, "a", 32)
        api.expect(200, api.post("/v1/evaluate", {"expr": "a + 1", "out": "a"}))
        now = [device_of(one, k) for k in range(3)]
        assert 32 * MIB <= now[i]["used"] - before[i]["used"] < 34 * MIB, (before, now)
        assert on_gpu * MIB <= now[0]["used"] - before[0]["used"] < (on_gpu + 2) * MIB  # the mesh's is half of each GPU's
        api.expect(204, api.delete("/v1/arrays/a"))
        api.quiet()
        until(lambda: device_of(one, i)["used"] - begun[i]["used"] < 2 * MIB)
        then = device_of(one, i)
        pool = "--keep-arrays=no" in keeps  # which is idle for long on a busy machine, and gives back what it keeps
        assert ((pool and then["kept"] == 0) or then["kept"] - before[i]["kept"] >= 30 * MIB) and then["free"] >= before[i]["free"] - 2 * MIB, (before, then)
        gpu = device_of(one, 0)
        assert (pool and gpu["kept"] == 0) or gpu["kept"] - before[0]["kept"] >= (on_gpu - 2) * MIB, (before, gpu)
        assert gpu["used"] - begun[0]["used"] < 2 * MIB
    assert d.client().info()["bytes_in_use"] < 2 * MIB
