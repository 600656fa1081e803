"""Several GPUs as one device, on the fake driver: what clients see of it, and that values are those of one GPU. The backend
suites run on it, too (tests/backend, ARRAYD_MESH)."""
import http.client
import json
import os
import signal
import subprocess

import numpy as np
import pytest

from client import NPY
from conftest import fake_gpu, find_binary, until
from test_gpu_faults import Waiting, fault_now, lost


def sides(gpu_with, *args, devices="3", **environment):
    """The daemon, a client on the first GPU, and one on the mesh."""
    d = gpu_with("--mesh", "all", "--mesh-least", 1, *args, environment={"ARRAYD_FAKE_DEVICES": devices, **environment})
    one = d.client()
    session = one.expect(201, one.post("/v1/sessions", {"device": 0})).json()
    mesh = one.expect(201, one.post("/v1/sessions", {"device": "mesh"})).json()
    assert session["device"] == 0 and mesh["device"] == int(devices)
    return d, one.clone(session=session["id"]), one.clone(session=mesh["id"])


def evaluate(api, expr, **fields):
    r = api.expect(200, api.post("/v1/evaluate", {"expr": expr, **fields}, accept=NPY))
    return r.npy()


@pytest.mark.parametrize("listed, parts", [("all", [0, 1, 2]), ("2,0", [2, 0])])
def test_the_mesh_is_one_device_more(gpu_with, listed, parts):
    api = gpu_with("--mesh", listed, environment={"ARRAYD_FAKE_DEVICES": "3"}).client()
    devices = api.info()["devices"]
    assert [d["index"] for d in devices] == [0, 1, 2, 3] and devices[3]["parts"] == parts
    assert all("parts" not in d for d in devices[:3])
    assert devices[3]["memory"] == sum(devices[i]["memory"] for i in parts)
    assert devices[3]["name"] == f"{len(parts)} x Fake GPU {parts[0]}"
    # only who asks for it is there
    for _ in range(5):
        assert api.expect(201, api.post("/v1/sessions", {})).json()["device"] < 3
    assert api.expect(201, api.post("/v1/sessions", {"device": "mesh"})).json()["device"] == 3
    api.fails(422, "bad_field", api.post("/v1/sessions", {"device": "all"}))


def test_without_a_mesh(gpu_with):
    api = gpu_with(environment={"ARRAYD_FAKE_DEVICES": "2"}).client()
    problem = api.fails(422, "bad_field", api.post("/v1/sessions", {"device": "mesh"}))
    assert problem["pointer"] == "/device" and "--mesh" in problem["detail"]
    for word in ("Mesh", "gpu1", "1", ""):
        problem = api.fails(422, "bad_field", api.post("/v1/sessions", {"device": word}))
        assert problem["pointer"] == "/device" and problem["detail"] == 'device is a device\'s number or "mesh"', word


@pytest.mark.parametrize("asked, device", [("any", None), ("mesh", 2), ("1", 1)])
def test_where_sessions_are_that_ask_for_nothing(gpu_with, asked, device):
    api = gpu_with("--mesh", "all", "--default-device", asked, environment={"ARRAYD_FAKE_DEVICES": "2"}).client()
    assert api.info()["default_device"] == (int(asked) if asked.isdigit() else asked)
    expected = (0, 1) if device is None else (device,)
    for made in (api.get("/v1/sessions/default"), api.post("/v1/sessions", {})):
        assert made.status in (200, 201) and made.json()["device"] in expected, made
    assert api.upload(np.ones(3), "a")["device"] in expected
    assert api.expect(201, api.post("/v1/sessions", {"device": 0})).json()["device"] == 0


@pytest.mark.parametrize("asked, mesh, why", [("mesh", [], "no mesh without --mesh"), ("2", ["--mesh", "all"], "there is no device 2"), ("gpu", [], "neither a device's"),
                                              ("", [], "neither a device's"), ("-1", [], "neither a device's"), ("9999999999", [], "neither a device's")])
def test_what_is_no_default_device(gpu_with, asked, mesh, why):
    with pytest.raises(RuntimeError, match=f"(?s)ended with 2.*default-device: .*{why}"):
        gpu_with(*mesh, f"--default-device={asked}", environment={"ARRAYD_FAKE_DEVICES": "2"})


@pytest.mark.parametrize("listed, environment, why", [
    ("all", {"ARRAYD_FAKE_DEVICES": "1"}, "two GPUs or more"),
    ("1", {"ARRAYD_FAKE_DEVICES": "2"}, 'two GPUs or more; "1" names one'),
    ("0,2", {"ARRAYD_FAKE_DEVICES": "2"}, "not there"),
    ("0,18446744073709551617", {"ARRAYD_FAKE_DEVICES": "2"}, "not there"),
    ("0, 1", {"ARRAYD_FAKE_DEVICES": "2"}, "neither"),
    ("1,1", {"ARRAYD_FAKE_DEVICES": "2"}, "named twice"),
    ("0;1", {"ARRAYD_FAKE_DEVICES": "2"}, "neither"),
    ("0,1,", {"ARRAYD_FAKE_DEVICES": "2"}, "neither"),
    ("all", {"ARRAYD_FAKE_DEVICES": "2", "ARRAYD_FAKE_ARCH": "90,80"}, "another kind"),
    ("all", {"ARRAYD_FAKE_DEVICES": "2", "ARRAYD_FAKE_SHARED": "101376"}, "another kind"),
    ("all", {"ARRAYD_FAKE_DEVICES": "2", "ARRAYD_FAKE_PEERS": "0"}, "does not reach the memory"),
])
def test_what_is_no_mesh(gpu_with, listed, environment, why):
    with pytest.raises(RuntimeError, match=f"(?s)ended with 1.*mesh: .*{why}"):
        gpu_with("--mesh", listed, environment=environment)


@pytest.mark.parametrize("peers", ["1", "pcie"])
def test_the_log_warns_of_a_mesh_without_nvlink(gpu_with, peers):
    d = gpu_with("--mesh", "0,1", environment={"ARRAYD_FAKE_DEVICES": "2", "ARRAYD_FAKE_PEERS": peers})
    warned = [line for line in d.log().splitlines() if "over PCIe, not NVLink: `arrayd doctor --mesh 0,1`" in line]
    assert len(warned) == (peers == "pcie"), d.log()


@pytest.mark.in_turn
@pytest.mark.parametrize("order", ["", "adverse", "adverse-down"])
def test_values_are_those_of_one_gpu(gpu_with, order):
    _, one, mesh = sides(gpu_with, ARRAYD_FAKE_ORDER=order)
    # 6 MiB: a range over three GPUs
    a = np.random.default_rng(1).random((192, 8192), "f4")
    for api in (one, mesh):
        api.upload(a, "a")
    for expr in ("a*2 + 1", "a[::-1, 5:77:3] - 1", "shift(a, [3, -1], 'wrap')", "laplacian(a, boundary='clamp')", "max(a)", "max(a, 0)", "argmin(a)",
                 "argmax(a, 0)", "any(a > 0.999, 1)", "count_nonzero(a > 0.5)", "cumulative_sum(a, 1)", "sum(a, 1)", "permute_dims(a, [1, 0])",
                 "cumulative_sum(astype(a*1000, 'int32'), 0)", "sum(astype(a*1000, 'int64'))", "correlate(a, [[1, 2, 1], [0, 3, 0], [1, 1, 1]], 'reflect')",
                 "take(a, [5, 190, 0], axis=0)"):
        x, y = evaluate(one, expr), evaluate(mesh, expr)
        assert x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes(), expr
    for expr, value in (("sum(a)", a.sum(dtype="f8")), ("mean(a, 0)", a.mean(0, dtype="f8")), ("std(a)", a.std(dtype="f8")),
                        ("mean(a, 0) + std(a, 0)", a.mean(0, dtype="f8") + a.std(0, dtype="f8"))):
        y = evaluate(mesh, expr)
        assert np.allclose(y, value, rtol=1e-6) and y.tobytes() == evaluate(mesh, expr).tobytes(), expr
    # one after the other, some of them small
    for api in (one, mesh):
        for body in ({"expr": "a + 1", "name": "b"}, {"expr": "b*a - shift(b, [1, 0], 'clamp')", "out": "b"}, {"expr": "sum(b, 1)", "name": "c"},
                     {"expr": "b + c[:, None]", "out": "a"}):
            assert api.post("/v1/evaluate", body).status < 300, body
    assert one.download("a").tobytes() == mesh.download("a").tobytes()


SCANS = [((192, 8192), 0), ((3 << 19,), 0), ((1 << 19, 3), 0), ((1 << 15, 48), 0), ((2, 64, 12288), 1), ((5, 300000), 1), ((2, 700000), 1)]


@pytest.mark.in_turn
@pytest.mark.parametrize("order", ["adverse", "adverse-down"])
def test_scans_are_those_of_one_gpu(gpu_with, order):
    """Along the slowest axis, and of rows fewer than GPUs: from the totals of the GPUs before. Also in place."""
    _, one, mesh = sides(gpu_with, ARRAYD_FAKE_ORDER=order)
    rng = np.random.default_rng(4)
    for shape, axis in SCANS:
        a = rng.integers(-9, 9, shape, "i4")
        for api in (one, mesh):
            api.upload(a, "a")
        x, y = (evaluate(api, f"cumulative_sum(a*2 - 1, {axis})") for api in (one, mesh))
        assert x.tobytes() == y.tobytes() == np.cumsum(a.astype("i8")*2 - 1, axis).tobytes(), shape
        f = evaluate(mesh, f"cumulative_sum(astype(a, 'float32')/8, {axis})")  # exact
        assert f.tobytes() == (np.cumsum(a, axis, "f8")/8).astype("f4").tobytes(), shape
        mesh.expect(200, mesh.post("/v1/evaluate", {"expr": f"cumulative_sum(a, {axis})", "out": "a"}))
        assert mesh.download("a").tobytes() == np.cumsum(a, axis, "i4").tobytes(), shape
        for api in (one, mesh):
            api.expect(204, api.delete("/v1/arrays/a"))


@pytest.mark.in_turn
def test_each_gpu_scans_its_share(gpu_with):
    d, _, mesh = sides(gpu_with, "--no-keeper", ARRAYD_FAKE_TRACE="1")
    for shape, axis in SCANS:
        mesh.upload(np.zeros(shape, "f4"), "a")
        launched = []
        for _ in range(3):
            mesh.expect(200, mesh.post("/v1/evaluate", {"expr": f"cumulative_sum(a + 1, {axis})", "out": "a"}))
            mesh.download("a")
            launched.append(d.log().count("cuLaunchKernel"))
        joined = axis == 0 or shape == (2, 700000)  # its total, then the scan; else some of the rows or columns
        assert launched[2] - launched[1] == (6 if joined else 3), shape
        mesh.expect(204, mesh.delete("/v1/arrays/a"))


@pytest.mark.in_turn
@pytest.mark.parametrize("order", ["adverse", "adverse-down"])
def test_programs_are_those_of_one_gpu(gpu_with, order):
    _, one, mesh = sides(gpu_with, ARRAYD_FAKE_ORDER=order)
    u = np.random.default_rng(2).random((96, 64, 256), "f4")
    got = []
    for api in (one, mesh):
        api.upload(u, "u")
        api.upload(u, "p")
        body = ["n = 2*u - p + 0.1*laplacian(u, boundary='clamp')", "p = u", "u = n"]
        job = api.expect(200, api.post("/v1/programs?wait=1", {"body": body, "steps": 11, "record": {"m": "max(u)"}, "record_every": 5})).json()
        assert job["state"] == "done", job
        got.append((api.download("u").tobytes(), api.download("p").tobytes()))
    assert got[0] == got[1]


@pytest.mark.in_turn
@pytest.mark.parametrize("order", ["adverse", "adverse-down"])
def test_who_needs_nothing_of_others_does_not_wait(gpu_with, order):
    """And who does, because views of one kernel begin where those of another do not, waits."""
    _, one, mesh = sides(gpu_with, ARRAYD_FAKE_ORDER=order)
    n = 3 << 17
    a = np.random.default_rng(4).random(n, "f4")
    statements = ["b = a*2", "a = b + 1", "b = a + b", "b[:200000] = a[120000:320000] - 1", "a[:390000] = b[64:390064]*3", "a = a + b", "b[5:] = a[5:]",
                  "a = b*a", "b[1:] = a[:-1]", "a = b + 1"]
    got = []
    for api in (one, mesh):
        api.upload(a, "a")
        api.upload(a, "b")
        api.expect(200, api.post("/v1/programs?wait=1", {"body": statements, "steps": 2}))
        for _ in range(2): # a job each
            for to, expr in ((t.split(" = ") for t in ("a = a*0.5", "b = a + b", "a = a + b[::-1]", "b = a - b"))):
                api.expect(200, api.post("/v1/evaluate", {"expr": expr, "out": to}))
        got.append(api.download("a").tobytes() + api.download("b").tobytes())
    assert got[0] == got[1]


@pytest.mark.parametrize("order", ["adverse", "adverse-down"])
def test_what_the_last_block_computes_beside_its_chunks_is_waited_for(gpu_with, order):
    _, one, mesh = sides(gpu_with, devices="2", ARRAYD_FAKE_ORDER=order)
    a = np.random.default_rng(5).random((1 << 18) + 1, "f4")
    got = []
    for api in (one, mesh):
        api.upload(a, "a")
        api.upload(a, "b")
        for to, expr in (("a", "b + 1"), ("b", "b*a[-1]"), ("a", "b*0.5"), ("b", "a + a[-1]"), ("a", "a*b[-1]")):
            api.expect(200, api.post("/v1/evaluate", {"expr": expr, "out": to}))
        api.expect(200, api.post("/v1/programs?wait=1", {"body": ["a = b + 1", "b = b*0.5*a[-1]", "a = a + b[-1]"], "steps": 2}))
        got.append(api.download("a").tobytes() + api.download("b").tobytes())
    assert got[0] == got[1]


def explained(api, expr):
    kernels = api.expect(200, api.post("/v1/explain", {"expr": expr, "name": "x"})).json()["kernels"]
    return [(k["parts"], k["remote_bytes"], k["barrier"]) for k in kernels]


def test_what_crosses_is_explained_and_counted(gpu_with):
    _, one, mesh = sides(gpu_with, "--mesh-least", "2MiB", devices="2")
    rows, row = 4096, 1024 * 4
    api = mesh
    for name, shape in (("a", (rows, 1024)), ("c", (16, 1024))):
        api.upload(np.ones(shape, "f4"), name)
    assert explained(api, "a + 1") == [(2, 0, "none")]
    assert explained(api, "c + 1") == [(1, 0, "all")]
    assert explained(api, "laplacian(a, boundary='clamp')") == [(2, 2 * row, "all")]
    assert explained(api, "shift(a, [3, 0], 'wrap')") == [(2, 6 * row, "all")]
    assert explained(api, "a[::-1] * 1.5") == [(2, rows * row, "all")]
    assert explained(api, "a + a[::-1]") == [(2, rows * row, "all")]  # each view of it counts
    assert explained(api, "a * c[0]") == [(2, row, "all")]  # each GPU reads all of it, and one has it
    assert explained(api, "permute_dims(a, [1, 0]) + 1") == [(2, rows * row / 2, "all")]
    assert explained(api, "sum(a, 0)") == [(2, 0, "all")]
    assert "parts" not in one.expect(200, one.post("/v1/explain", {"expr": "abs(-1.0)", "inline": True})).json()["kernels"][0]

    def count():
        line, = (x for x in api.expect(200, api.get("/metrics")).body.decode().splitlines() if x.startswith("arrayd_cuda_mesh_remote_bytes_total "))
        return int(line.split()[1])
    assert count() == 0
    api.expect(200, api.post("/v1/programs?wait=1", {"body": ["a = a + laplacian(a, boundary='clamp')*laplacian(a[::-1])"], "steps": 1}))
    before = count()
    api.expect(200, api.post("/v1/evaluate", {"expr": "laplacian(a, boundary='clamp')", "out": "a"}))
    assert before > 0 and count() - before == 2 * row


@pytest.mark.parametrize("order", ["adverse", "adverse-down"])
def test_a_missing_wait_would_show(gpu_with, order):
    """The tests above can fail: without the GPUs' waiting for each other what a part reads of another's is old, or unwritten."""
    u = np.random.default_rng(2).random((96, 64, 256), "f4")
    for forget in "01":
        d, one, mesh = sides(gpu_with, "--no-keeper", devices="2", ARRAYD_FAKE_ORDER=order, ARRAYD_FAKE_FORGET=forget)
        try:
            for api in (one, mesh):
                api.upload(u, "u")
                for _ in range(2):
                    api.expect(200, api.post("/v1/evaluate", {"expr": "u[::-1] + 1", "out": "u"}))
            same = one.download("u").tobytes() == mesh.download("u").tobytes()
        except (OSError, http.client.HTTPException, AssertionError):
            same = False
            d.expected = -signal.SIGABRT  # the fake device's, where nobody has written yet
        assert same == (forget == "0")


@pytest.mark.in_turn
def test_memory_comes_back(gpu_with):
    _, one, mesh = sides(gpu_with, "--memory-limit", "64MiB", devices="2")
    free = lambda: [d["free"] for d in one.info()["devices"]]
    before = free()
    # more than one of them has
    problem = one.fails(507, "out_of_memory", one.post("/v1/arrays", {"shape": [20 << 20], "dtype": "float32"}))
    assert '"device": "mesh"' in problem["detail"]
    big = mesh.create(name="big", shape=[20 << 20], dtype="float32")
    assert big["device"] == 2 and big["nbytes"] == 80 << 20
    mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "big + 1", "out": "big"}))
    assert evaluate(mesh, "sum(big)") == 20 << 20
    problem = one.fails(507, "out_of_memory", one.post("/v1/arrays", {"shape": [20 << 20], "dtype": "float32"}))
    assert '"device": "mesh"' not in problem["detail"]
    # each GPU has some 24 MiB left, and what a member asks for is not kept from it by what the mesh keeps
    one.fails(507, "out_of_memory", one.post("/v1/arrays", {"shape": [10 << 20], "dtype": "float32"}))
    mesh.expect(204, mesh.delete("/v1/arrays/big"))
    second = one.clone(session=one.expect(201, one.post("/v1/sessions", {"device": 1})).json()["id"])
    for api in (one, second):
        api.create(name="own", shape=[10 << 20], dtype="float32")
        assert evaluate(api, "max(own)") == 0
        api.expect(204, api.delete("/v1/arrays/own"))
    until(lambda: all(a >= b - (8 << 20) for a, b in zip(free(), before)))  # a thread gives it back


@pytest.mark.in_turn
def test_arrays_of_the_mesh_and_of_its_gpus_make_room_for_each_other(gpu_with):
    _, one, mesh = sides(gpu_with, "--memory-limit", "64MiB", "--evict", devices="2")
    second = one.clone(session=one.expect(201, one.post("/v1/sessions", {"device": 1})).json()["id"])
    where = lambda api, name: api.meta(name)["location"]
    size = lambda mib: {"shape": [mib << 18], "dtype": "float32", "fill": 2}
    one.create(name="old", **size(8))  # has waited longest, but where there is room enough
    second.create(name="a", **size(40))
    mesh.create(name="big", **size(80))
    assert (where(one, "old"), where(second, "a"), where(mesh, "big")) == ("device", "host", "device")
    assert evaluate(second, "sum(a)") == 2 * 40 << 18
    assert (where(one, "old"), where(second, "a"), where(mesh, "big")) == ("device", "device", "host")
    one.create(name="b", **size(40))
    assert (where(one, "old"), where(second, "a")) == ("device", "device")
    assert evaluate(mesh, "sum(big)") == 2 * 80 << 18
    assert (where(one, "old"), where(one, "b"), where(second, "a"), where(mesh, "big")) == ("host", "host", "host", "device")
    # what is too small to be divided is on the first GPU: that it moves helps no other
    mesh.create(name="small", shape=[1000], dtype="float32")
    assert evaluate(mesh, "sum(small)") == 0
    assert evaluate(second, "sum(a)") == 2 * 40 << 18
    assert (where(mesh, "small"), where(mesh, "big")) == ("device", "host")


@pytest.mark.in_turn
def test_the_mesh_is_named_where_there_is_room(gpu_with):
    d = gpu_with("--mesh", "all", "--memory-limit", "64MiB", environment={"ARRAYD_FAKE_DEVICES": "2"})
    one = d.client()
    one = one.clone(session=one.expect(201, one.post("/v1/sessions", {"device": 0})).json()["id"])
    named = lambda mib: '"device": "mesh"' in one.fails(507, "out_of_memory", one.post("/v1/arrays", {"shape": [mib << 20], "dtype": "uint8"}))["detail"]
    one.create(name="a", shape=[56 << 20], dtype="uint8")
    assert named(15) and not named(20)  # 8 MiB on each, or 10
    one.create(name="b", shape=[3 << 20], dtype="uint8")
    assert named(7)  # too small to be divided: on the mesh it would be on the second GPU
    one.clone(session=one.expect(201, one.post("/v1/sessions", {"device": 1})).json()["id"]).create(name="c", shape=[58 << 20], dtype="uint8")
    assert not named(7)


def test_quotas_count_an_array_once(gpu_with, accounts):
    accounts.add("ann", role="operator", device_memory="100MiB", sessions=2)
    d = gpu_with("--mesh", "all", "--accounts", accounts.path, environment={"ARRAYD_FAKE_DEVICES": "3"})
    ann = accounts.client(d, "ann")
    used = lambda what: ann.info()["principal"]["quotas"][what]["used"]
    before = used("sessions")
    mesh = ann.clone(session=ann.expect(201, ann.post("/v1/sessions", {"device": "mesh"})).json()["id"])
    assert used("sessions") == before + 1
    mesh.create(name="u", shape=[90 << 20], dtype="uint8")
    assert used("device_memory") == 90 << 20
    assert ann.get(f"/v1/sessions/{mesh.session}").json()["bytes_in_use"] == 90 << 20
    mesh.fails(429, "quota_exceeded", mesh.post("/v1/arrays", {"shape": [11 << 20], "dtype": "uint8"}))
    mesh.expect(204, mesh.delete("/v1/arrays/u"))
    until(lambda: used("device_memory") == 0)


def test_a_fault_names_who_had_work_on_any_of_its_gpus(gpu_with, accounts, tmp_path):
    for name in ("ann", "bob", "eve"):
        accounts.add(name, role="operator")
    d = gpu_with("--mesh", "all", "--mesh-least", 1, "--no-keeper", "--kernel-cache", tmp_path / "kernels", "--accounts", accounts.path,
                 "--lost-exit-delay", 4, environment={"ARRAYD_FAKE_DEVICES": "2"})
    users = []
    for name, device in (("ann", "mesh"), ("bob", 1), ("eve", 0)):
        api = accounts.client(d, name)
        users.append(api.clone(session=api.expect(201, api.post("/v1/sessions", {"device": device})).json()["id"]))
        users[-1].create(name="u", data=np.ones((64, 64)).tolist())
        assert users[-1].download("u").sum() == 64 * 64
    ann, bob, eve = users
    fuse = tmp_path / "fail"
    value = Waiting(d, fuse, bob, "/v1/evaluate", {"expr": "sum(u*3)", "inline": True})
    job = Waiting(d, fuse, ann, "/v1/programs?wait=1", {"body": ["u = u + 0.1*laplacian(u)"], "steps": 50})
    fault_now(tmp_path, eve)
    job, value = job.end(), value.end()
    detail = bob.fails(503, "device_lost", value)["detail"]
    assert "LAUNCH_FAILED" in detail and "work of 1 other" in detail, detail
    failed = ann.expect(200, job).json()
    assert failed["state"] == "failed" and "work of 1 other" in failed["error"]["detail"], failed
    named = [line for line in d.log().splitlines() if "on the device when it was lost" in line]
    assert len(named) == 2 and not [line for line in named if "principal=eve" in line], named
    lost(d)


@pytest.mark.in_turn
def test_sessions_and_arrays_come_back_to_the_mesh(gpu_with, tmp_path):
    a = np.arange(3 << 20, dtype="f4")
    d, one, mesh = sides(gpu_with, "--state-dir", tmp_path / "state", devices="2")
    mesh.upload(a, "a")
    one.upload(a[:5], "b")
    ids = one.session, mesh.session
    d.stop()
    # more GPUs than before, and then no mesh
    for devices, listed, there in (("3", ["--mesh", "all"], 3), ("2", [], None)):
        d = gpu_with("--state-dir", tmp_path / "state", *listed, environment={"ARRAYD_FAKE_DEVICES": devices})
        one, mesh = (d.client().clone(session=s) for s in ids)
        assert one.meta("b")["device"] == 0 and one.download("b").tolist() == [0, 1, 2, 3, 4]
        assert mesh.meta("a")["device"] == there if listed else mesh.meta("a")["device"] < 2
        assert mesh.download("a").tobytes() == a.tobytes()
        mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "a*1", "out": "a"}))
        d.stop()


@pytest.mark.parametrize("listed, environment, level, text", [
    ("all", {}, "ok", "3 GPUs of one kind, each of which reaches the others' memory"),
    ("all", {"ARRAYD_FAKE_PEERS": "1-2"}, "fail", "devices 1 and 2 do not reach each other's memory"),
    ("all", {"ARRAYD_FAKE_PEERS": "0"}, "fail", "devices 0 and 1, 0 and 2, 1 and 2 do not reach each other's memory"),
    ("0,2", {"ARRAYD_FAKE_PEERS": "1-2"}, "ok", "2 GPUs of one kind, each of which reaches the others' memory"),
    ("all", {"ARRAYD_FAKE_PEERS": "pcie"}, "warn", "devices 0 and 1, 0 and 2, 1 and 2 reach each other's memory over PCIe, not NVLink"),
    ("all", {"ARRAYD_FAKE_ARCH": "90,90,80"}, "fail", "devices 0 and 2, 1 and 2 are of different kinds"),
    ("all", {"ARRAYD_FAKE_SHARED": "101376"}, "fail", "devices 0 and 2, 1 and 2 are of different kinds"),
    ("all", {"ARRAYD_FAKE_DEVICES": "1"}, "fail", "it takes two GPUs or more; there is one"),
    ("2", {}, "fail", 'it takes two GPUs or more; "2" names one'),
    ("0,1,7", {}, "fail", '"0,1,7" names GPU 7, which is not there: their numbers are below 3'),
    ("0,1,", {}, "fail", '"0,1," is neither "all" nor numbers of GPUs ("0,1")'),
    ("x", {}, "fail", '"x" is neither "all" nor numbers of GPUs ("0,1")'),
    ("0,0", {}, "fail", "GPU 0 is named twice"),
    ("all", {"ARRAYD_FAKE_MIG": "1", "ARRAYD_FAKE_PEERS": "0"}, "fail", "device 1 is a part of a GPU: MIG mode is on"),
])
def test_doctor_says_what_a_mesh_lacks(listed, environment, level, text):
    fake = fake_gpu() or pytest.skip("no fake driver in this build, or no g++")
    done = subprocess.run([find_binary(), "doctor", "--json", "--backend", "cuda", "--kernel-cache", "none", "--mesh", listed], timeout=120,
                          capture_output=True, text=True, env={**os.environ, **fake, "ARRAYD_FAKE_DEVICES": "3", **environment})
    said = [(c["status"], c["text"]) for c in json.loads(done.stdout)["checks"] if c["check"] == "mesh"]
    assert (level, text) in said, done.stdout
    assert (level == "ok") == (len(said) == 1 and said[0][0] == "ok") or level == "warn"


def test_doctor_tests_the_mesh(gpu_with):
    fake = fake_gpu() or pytest.skip("no fake driver in this build, or no g++")
    done = subprocess.run([find_binary(), "doctor", "--kernel-cache", "none", "--mesh", "all"], timeout=120, capture_output=True, text=True,
                          env={**os.environ, **fake, "ARRAYD_FAKE_DEVICES": "2"})
    assert "cuda, device 2: " in done.stdout and "no GPUs" not in done.stdout, done.stdout
    assert not [line for line in done.stdout.splitlines() if line.startswith("fail") and "self-test" in line], done.stdout
