"""Copies of arrays between devices: GPUs, and several as one, on the fake driver."""
import itertools
import threading

import numpy as np
import pytest

from client import NPY
from conftest import until
from test_survive import kill


def on_each(gpu_with, *args, devices="3", **environment):
    """A client on each of two GPUs, and one on the mesh, of one user; 64 KiB for each GPU are divided there."""
    d = gpu_with("--mesh", "all", "--mesh-least", 1, *args, environment={"ARRAYD_FAKE_DEVICES": devices, **environment})
    api = d.client()
    made = [api.expect(201, api.post("/v1/sessions", {"device": device})).json() for device in (0, 1, "mesh")]
    return d, [api.clone(session=s["id"]) for s in made]


def copy(to, array, **fields):
    return to.expect(201, to.post(f"/v1/arrays/{array}/copy", fields)).json()


def device_of(api):
    return api.expect(200, api.get(f"/v1/sessions/{api.session}")).json()["device"]


@pytest.mark.in_turn
@pytest.mark.parametrize("order", ["", "adverse", "adverse-down"])
def test_every_way(gpu_with, order):
    _, clients = on_each(gpu_with, ARRAYD_FAKE_ORDER=order)
    rng = np.random.default_rng(1)
    values = {"small": rng.random((5, 7)), "large": rng.integers(-99, 99, (520, 8192), "i4"), "odd": rng.random(6 << 20) < 0.5, "none": np.ones((0, 3), "f4"),
              "complex": rng.random((3, 4)) * 1j, "one": np.array(7, "u1")}
    for of, to in itertools.permutations(clients, 2):
        for name, value in values.items():
            a = of.upload(value, name)
            b = copy(to, a["id"], name=name)
            assert b["name"] == name and b["device"] == device_of(to) != a["device"] and b["strides"] == a["strides"] and b["dtype"] == a["dtype"]
            assert to.download(name).tobytes() == value.tobytes(), name
            if "placement" in b:
                assert name in ("large", "odd") and b["placement"]["parts"][0] == 3
            # it is computed with there, and is nobody else's
            if value.dtype == "i4":
                to.expect(200, to.post("/v1/evaluate", {"expr": f"{name} + 1", "out": name}))
                assert np.array_equal(to.download(name), value + 1) and np.array_equal(of.download(a["id"]), value)
            for api, ref in ((to, b["id"]), (of, a["id"])):
                api.expect(204, api.delete(f"/v1/arrays/{ref}"))


VIEWS = ["100:290", "::-1", ":, 5:8000:3", "7, 20:", "::2, ::-4"]


@pytest.mark.in_turn
@pytest.mark.parametrize("order", ["adverse", "adverse-down"])
def test_views(gpu_with, order):
    _, clients = on_each(gpu_with, ARRAYD_FAKE_ORDER=order)
    a = np.random.default_rng(2).random((300, 8192), "f4")
    for of, to in itertools.permutations(clients, 2):
        of.upload(a, "a")
        for index in VIEWS:
            v = of.expect(201, of.post("/v1/arrays/a/views", {"index": index})).json()
            b = copy(to, v["id"])
            want = eval(f"a[{index}]")
            assert b["offset"] == 0 and not b.get("is_view") and to.download(b["id"]).tobytes() == want.tobytes(), index
        # bytes that are no bools become some
        of.upload(np.arange(256, dtype="u1"), "bytes")
        flags = of.expect(201, of.post("/v1/arrays/bytes/views", {"dtype": "bool"})).json()
        b = copy(to, flags["id"], name="flags")
        assert to.expect(200, to.post("/v1/evaluate", {"expr": "sum(astype(flags, 'int32'))"})).json()["value"] == 255
        for api, names in ((of, ("a", "bytes")), (to, ("flags",))):
            for name in names:
                api.expect(204, api.delete(f"/v1/arrays/{name}"))


def test_ghosts_and_labels(gpu_with):
    _, clients = on_each(gpu_with)
    ghosts = {"ghost": [2, 1], "boundary": ["periodic", [{"type": "dirichlet", "value": 3}] * 2], "spacing": [0.5, 2]}
    for of, to in itertools.permutations(clients, 2):
        a = of.create(name="g", shape=[400, 500], dtype="float64", random={"distribution": "normal", "seed": 3}, dims=["y", "x"], attrs={"units": "m"},
                      **ghosts)
        of.expect(200, of.post("/v1/arrays/g/fill_ghost"))
        b = copy(to, a["id"], name="g")
        for what in ("ghost", "boundary", "spacing", "strides", "offset", "dims", "attrs"):
            assert b[what] == a[what], what
        wide = "shift(g, [2, 1]) + 0*laplacian(g)"
        assert np.array_equal(to.download("g"), of.download("g"))
        x, y = (api.expect(200, api.post("/v1/evaluate", {"expr": wide}, accept=NPY)).npy() for api in (of, to))
        assert x.tobytes() == y.tobytes() and not np.isnan(x).any()
        for api in (of, to):
            api.expect(204, api.delete("/v1/arrays/g"))


@pytest.mark.in_turn
@pytest.mark.parametrize("order", ["", "adverse", "adverse-down"])
def test_it_is_what_the_array_is_at_that_moment(gpu_with, order):
    """After all that was sent before, which is under way; what comes later waits for the copy."""
    _, clients = on_each(gpu_with, ARRAYD_FAKE_ORDER=order)
    n = 3 << 17
    for of, to in itertools.permutations(clients, 2):
        a = of.upload(np.zeros(n, "f4"), "a")
        copies = []
        for i in range(6):
            of.expect(200, of.post("/v1/evaluate", {"expr": "a*2 + 1", "out": "a"}))
            copies.append(copy(to, a["id"], name=f"c{i}"))
            to.expect(200, to.post("/v1/evaluate", {"expr": f"c{i} + 0.5", "out": f"c{i}"}))
            back = copy(of, copies[-1]["id"])
            spread = of.expect(200, of.post("/v1/evaluate", {"expr": "max(b - a) - min(b - a)", "bind": {"b": back["id"]}})).json()["value"]
            assert spread == 0
            of.expect(204, of.delete(f"/v1/arrays/{back['id']}"))
        value = 0
        for c in copies:
            value = value*2 + 1
            assert np.array_equal(to.download(c["id"]), np.full(n, value + 0.5, "f4"))
            to.expect(204, to.delete(f"/v1/arrays/{c['id']}"))
        of.expect(204, of.delete("/v1/arrays/a"))


def test_from_host_memory(gpu_with):
    _, clients = on_each(gpu_with)
    a = np.random.default_rng(3).random((400, 1000))
    for of, to in itertools.permutations(clients, 2):
        m = of.upload(a, "a")
        of.expect(200, of.patch("/v1/arrays/a", {"location": "host"}))
        b = copy(to, m["id"])
        assert np.array_equal(to.download(b["id"]), a) and b["location"] == "device" and of.meta("a")["location"] == "host"
        v = of.expect(201, of.post("/v1/arrays/a/views", {"index": "::-1"})).json()
        c = copy(to, v["id"])
        assert np.array_equal(to.download(c["id"]), a[::-1])
        for api, ref in ((of, m["id"]), (of, v["id"]), (to, b["id"]), (to, c["id"])):
            api.expect(204, api.delete(f"/v1/arrays/{ref}"))


def test_who_may_and_who_pays(gpu_with, accounts):
    accounts.add("ann", role="operator")
    accounts.add("bob", device_memory="3MiB")
    d = gpu_with("--mesh", "all", "--mesh-least", 1, "--accounts", accounts.path, environment={"ARRAYD_FAKE_DEVICES": "2"})
    ann, bob = (accounts.client(d, name) for name in ("ann", "bob"))
    ann, bob = (c.clone(session=c.expect(201, c.post("/v1/sessions", {"device": device})).json()["id"]) for c, device in ((ann, 1), (bob, "mesh")))
    a = np.random.default_rng(4).random((500, 1000))
    m = ann.upload(a, "a")
    bob.fails(404, "not_found", bob.post(f"/v1/arrays/{m['id']}/copy", {}))
    small = ann.upload(a[:3, 5:], "small")
    for name in ("a", "small"):
        ann.expect(201, ann.post(f"/v1/arrays/{name}/shares", {"principal": "bob", "access": "read"}))
    paid = ann.info()["principal"]["quotas"]["device_memory"]["used"]
    b = copy(bob, small["id"], name="b")
    assert np.array_equal(bob.download("b"), a[:3, 5:]) and bob.info()["principal"]["quotas"]["device_memory"]["used"] == b["nbytes"]
    # four million bytes, which are 2 MiB of each GPU
    e = bob.fails(429, "quota_exceeded", bob.post(f"/v1/arrays/{m['id']}/copy", {"name": "c"}))
    assert "device_memory" in e["detail"] and bob.get("/v1/arrays/c").status == 404
    assert ann.info()["principal"]["quotas"]["device_memory"]["used"] == paid
    # the place of an error is the request's
    assert bob.fails(409, "conflict", bob.post(f"/v1/arrays/{small['id']}/copy", {"name": "b"}))["pointer"] == "/name"
    assert bob.fails(422, "unknown_field", bob.post(f"/v1/arrays/{small['id']}/copy", {"device": 1}))["pointer"] == "/device"


def test_without_room(gpu_with):
    """On the device of the copy; on that of the array, where a view is copied first. Nothing is left behind."""
    d, (one, two, mesh) = on_each(gpu_with, "--memory-limit", "40MiB", "--reuse-time", 1)
    a = one.create(name="a", shape=[6 << 20], dtype="float32", fill=2)
    two.create(name="full", shape=[6 << 20], dtype="float32", fill=1)
    before = d.client().info()["bytes_in_use"]
    detail = two.fails(507, "out_of_memory", two.post(f"/v1/arrays/{a['id']}/copy", {}))["detail"]
    assert "device 1" in detail
    v = one.expect(201, one.post("/v1/arrays/a/views", {"index": "::-1"})).json()
    two.expect(204, two.delete("/v1/arrays/full"))
    assert "device 0" in two.fails(507, "out_of_memory", two.post(f"/v1/arrays/{v['id']}/copy", {}))["detail"]
    b = copy(two, a["id"])
    assert two.download(b["id"])[-1] == 2
    two.expect(204, two.delete(f"/v1/arrays/{b['id']}"))
    until(lambda: d.client().info()["bytes_in_use"] <= before - (24 << 20))


def test_others_are_moved_out(gpu_with):
    d, (one, two, mesh) = on_each(gpu_with, "--memory-limit", "40MiB", "--evict", "--reuse-time", 1)
    a = one.create(name="a", shape=[6 << 20], dtype="float32", fill=2)
    two.create(name="idle", shape=[6 << 20], dtype="float32", fill=1)
    b = copy(two, a["id"], name="b")
    assert two.meta("idle")["location"] == "host" and two.download("b")[77] == 2 and two.download("idle")[5] == 1 and b["nbytes"] == 24 << 20


def test_at_once_in_all_directions(gpu_with):
    """Many at a time, of which each waits for work on another device."""
    _, clients = on_each(gpu_with)
    failed = []

    def run(of, to, seed):
        a = np.random.default_rng(seed).random(70000, "f4")
        of, to = of.clone(), to.clone()
        try:
            for i in range(15):
                m = of.upload(a + i)
                done = of.expect(200, of.post("/v1/evaluate", {"expr": "x*2", "bind": {"x": m["id"]}, "out": m["id"]}))
                b = copy(to, m["id"])
                of.expect(204, of.delete(f"/v1/arrays/{m['id']}"))
                if to.download(b["id"]).tobytes() != ((a + i)*2).tobytes() or not done:
                    failed.append((seed, i))
                to.expect(204, to.delete(f"/v1/arrays/{b['id']}"))
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=run, args=(*pair, k)) for k, pair in enumerate(itertools.permutations(clients, 2))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not failed and not any(t.is_alive() for t in threads), failed


def test_copies_outlive_the_daemon(gpu_with):
    d, clients = on_each(gpu_with, "--keep-arrays", "--restart-limit", 1000, "--restart-rate", 0, "--restart-wait", 0)
    a = np.random.default_rng(6).random((600, 1000))
    made = [(to, copy(to, of.upload(a + k)["id"])["id"], a + k) for k, (of, to) in enumerate(itertools.permutations(clients, 2))]
    for to, _, _ in made:
        to.expect(200, to.post(f"/v1/sessions/{to.session}/sync"))
    kill(d)
    for to, ref, want in made:
        assert np.array_equal(to.download(ref), want)


OUT_OF_MEMORY = 2


def test_every_call_fails_once(gpu_with, tmp_path):
    d, (one, _, mesh) = on_each(gpu_with)
    a = np.random.default_rng(5).random((300, 1000))
    m = one.upload(a, "a")
    v = one.expect(201, one.post("/v1/arrays/a/views", {"index": "::-1"})).json()
    for nth in range(1, 40):
        d.fail(f"{OUT_OF_MEMORY} call {nth}", at_once=True)
        for ref, want in ((m["id"], a), (v["id"], a[::-1])):
            r = mesh.post(f"/v1/arrays/{ref}/copy", {})
            assert r.status in (201, 507), (nth, r)
            if r.status == 201:
                got = mesh.get(f"/v1/arrays/{r.json()['id']}/data", accept=NPY)
                assert got.status == 507 or np.array_equal(got.npy(), want), (nth, got)
                mesh.expect(204, mesh.delete(f"/v1/arrays/{r.json()['id']}"))
        (tmp_path / "fail").unlink(missing_ok=True)
    b = copy(mesh, m["id"])
    assert np.array_equal(mesh.download(b["id"]), a)


def test_explain_refuses_what_an_evaluation_would(gpu_with):
    """An array of another device, as an operand or to write to, in an expression as in a program."""
    _, (one, two, mesh) = on_each(gpu_with)
    x = one.create(shape=[100], dtype="float32")["id"]
    two.create(name="y", shape=[100], dtype="float32")
    mesh.create(name="y", shape=[100], dtype="float32")
    for api in (two, mesh):
        for body, route in (({"expr": "x + y", "bind": {"x": x}}, "evaluate"), ({"expr": "y", "out": x}, "evaluate"),
                            ({"body": ["t = y*2", "x = x + t"], "bind": {"x": x}, "steps": 1}, "programs")):
            does, would = (api.fails(409, "conflict", api.post(f"/v1/{r}", body))["detail"] for r in (route, "explain"))
            assert does.split(" is on ")[1] == would.split(" is on ")[1] and " is on device 0, but this session works on" in would, (does, would)
        api.expect(200, api.post("/v1/explain", {"body": ["t = y*2", "y = y + t"], "steps": 1}))
