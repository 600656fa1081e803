"""Where arrays lie on several GPUs as one: what metadata says of it, and arrays that are placed otherwise than by their size."""
import numpy as np
import pytest

from cli import cli
from client import NPY, OCTETS, npy_bytes
from conftest import until

import arrayd  # noqa: E402  (cli.py has made it findable)

MIB = 1 << 20
GRAIN = 2 * MIB


@pytest.fixture(params=[2, 3])
def parts(request):
    return request.param


@pytest.fixture
def mesh(gpu_with, parts, request):
    """A client of the mesh, where 4 MiB for each GPU are divided."""
    d = gpu_with("--mesh", "all", *getattr(request, "param", ()), environment={"ARRAYD_FAKE_DEVICES": str(parts), "ARRAYD_FAKE_ORDER": "adverse"})
    api = d.client()
    api = api.clone(session=api.expect(201, api.post("/v1/sessions", {"device": "mesh"})).json()["id"])
    api.daemon = d
    return api


def shares(parts, nbytes):
    """Where each GPU's memory begins."""
    share = -(-nbytes // parts)
    return [k * (-(-share // GRAIN) * GRAIN) for k in range(parts)]


def rows_of(m, parts, nbytes):
    """The rows as metadata should have them, by brute force: the first row whose first element is at or behind each beginning."""
    x = max((s, -i, i) for i, s in enumerate(m["strides"]) if m["shape"][i] > 1)[2]
    begins = [(m["offset"] + r * m["strides"][x]) * m["itemsize"] for r in range(m["shape"][x])]
    return x, [next((r for r, b in enumerate(begins) if b >= at), len(begins)) for at in shares(parts, nbytes)] + [len(begins)]


def divided(m, parts, nbytes=None):
    """Asserts that an array is divided, and where."""
    x, rows = rows_of(m, parts, nbytes or m["nbytes"])
    assert m["placement"] == {"parts": [parts if i == x else 1 for i in range(len(m["shape"]))], "rows": rows, "devices": list(range(parts))}, m
    return rows


def used(api):
    """Bytes of memory in use on each GPU."""
    lines = api.expect(200, api.get("/metrics", accept="text/plain")).body.decode().splitlines()
    return [int(line.split()[-1]) for line in lines if line.startswith("arrayd_cuda_memory_live_bytes{")]


@pytest.mark.in_turn
def test_metadata_says_where_rows_lie(mesh, parts):
    # rows of 12 KiB, which no grain ends with
    a = mesh.create(name="a", shape=[4 * parts * 100, 3 << 10], dtype="float32", fill=1)
    rows = divided(a, parts)
    assert rows[0] == 0 and sorted(rows) == rows and rows[1] * 12288 - shares(parts, a["nbytes"])[1] in range(12288)
    assert mesh.meta("a")["placement"] == a["placement"] and mesh.list_all("/v1/arrays", "arrays")[0]["placement"] == a["placement"]
    # results by their size
    b = mesh.expect(201, mesh.post("/v1/evaluate", {"expr": "a + 1", "name": "b"})).json()
    assert b["placement"] == a["placement"]
    for whole in (mesh.create(name="s", shape=[4 * parts * MIB - 1], dtype="int8"), mesh.create(shape=[], fill=3),
                  mesh.expect(201, mesh.post("/v1/evaluate", {"expr": "a[:3] + 1", "name": "c"})).json()):
        assert "placement" not in whole and whole["location"] == "device"
    divided(mesh.create(shape=[4 * parts * MIB], dtype="int8"), parts)


@pytest.mark.parametrize("index", ["100:", "::7", ":, 5", "3, :", ":, ::-1", "600:607", None])
def test_views_have_rows_of_their_own(mesh, parts, index):
    a = mesh.create(name="a", shape=[4 * parts * 100, 3 << 10], dtype="float32", fill=1)
    m = mesh.expect(201, mesh.post("/v1/arrays/a/views", {"index": index} if index else {"permute": [1, 0]})).json()
    divided(m, parts, a["nbytes"])


def test_views_that_run_backwards_have_none(mesh):
    mesh.create(name="a", shape=[16 * MIB], dtype="int8")
    for view in ({"index": "::-1"}, {"broadcast_to": [3, 16 * MIB]}):
        m = mesh.expect(201, mesh.post("/v1/arrays/a/views", view)).json()
        assert ("placement" in m) == ("index" not in view), m


def test_ghosts_lie_with_their_rows(mesh, parts):
    shape = [4 * parts * 64, 4096]
    m = mesh.create(name="u", shape=shape, dtype="float32", ghost=[3, 3])
    n = (shape[0] + 6) * m["strides"][0] * 4
    divided(m, parts, n)
    m = mesh.create(shape=shape, dtype="float32", ghost=[3, 3], placement={"parts": [1]})
    assert "placement" not in m


CREATORS = [{"shape": [6, 1, MIB // 4]}, {"shape": [6, 1, MIB // 4], "fill": 2}, {"arange": {"stop": 6 * MIB // 4}}, {"linspace": {"start": 0, "stop": 1, "num": 6 * MIB // 4}},
            {"eye": {"n": 1300}}, {"shape": [6, MIB // 4], "random": {"distribution": "uniform", "seed": 7}}]


@pytest.mark.parametrize("body", CREATORS, ids=lambda b: str(set(b) - {"shape"}))
def test_creators_divide_what_is_small_and_keep_whole_what_is_large(mesh, parts, body):
    body = {**body, "dtype": "float32"}
    small = mesh.create(name="small", **body)
    assert "placement" not in small and small["nbytes"] < 4 * MIB * parts
    m = mesh.create(name="apart", placement={"parts": [parts] + [1] * (len(small["shape"]) - 1)}, **body)
    divided(m, parts)
    assert mesh.download("apart").tobytes() == mesh.download("small").tobytes()


@pytest.mark.in_turn
@pytest.mark.parametrize("mesh", [("--keep-arrays=no",)], indirect=True)  # which keeps memory for the next arrays
def test_an_array_kept_whole(mesh, parts):
    d = mesh.daemon
    before = used(mesh)
    m = mesh.create(name="t", shape=[8 * parts, MIB // 4], dtype="float32", fill=2, placement={"parts": [1]})
    assert "placement" not in m
    n = m["nbytes"]
    # the ranges that it lay in are kept for a while
    until(lambda: used(mesh)[0] - before[0] in range(n, n + MIB) and all(b <= a + MIB for a, b in zip(before[1:], used(mesh)[1:])), 30)
    # it is a property of the memory, which results do not have, and which stays
    divided(mesh.expect(201, mesh.post("/v1/evaluate", {"expr": "t*2", "name": "r"})).json(), parts)
    assert (mesh.download("r") == 4).all()
    mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "t[::-1] + r", "out": "t"}))
    assert "placement" not in mesh.meta("t") and (mesh.download("t") == 6).all()
    x = np.random.default_rng(1).random((8 * parts, MIB // 4), "f4")
    mesh.expect(204, mesh.request("PUT", "/v1/arrays/t/data", x.tobytes(), content_type=OCTETS))
    assert "placement" not in mesh.meta("t") and mesh.download("t").tobytes() == x.tobytes()
    for location in ("host", "device"):
        assert "placement" not in mesh.expect(200, mesh.patch("/v1/arrays/t", {"location": location})).json()
    assert mesh.download("t").tobytes() == x.tobytes()
    copy = mesh.expect(201, mesh.post("/v1/arrays/t/copy", {"name": "copy"})).json()
    divided(copy, parts)
    mesh.expect(200, mesh.post("/v1/arrays/t/swap", {"with": "copy"}))
    assert "placement" not in mesh.meta("copy")
    divided(mesh.meta("t"), parts)
    for name in ("t", "copy"):
        mesh.expect(200, mesh.post("/v1/evaluate", {"expr": f"{name}[::-1] + 1", "out": name}))
        assert mesh.download(name).tobytes() == (x[::-1] + np.float32(1)).tobytes()
    assert "placement" not in mesh.meta("copy")
    divided(mesh.meta("t"), parts)
    # a program does not exchange its memory for a temporary's
    job = mesh.expect(200, mesh.post("/v1/programs?wait=1", {"body": ["copy = copy[::-1]*2"], "steps": 3})).json()
    assert job["state"] == "done" and "placement" not in mesh.meta("copy")
    assert mesh.download("copy").tobytes() == ((x + np.float32(1)) * np.float32(8)).tobytes()
    for name in ("t", "r", "copy"):
        mesh.expect(204, mesh.delete(f"/v1/arrays/{name}"))
    until(lambda: all(b <= a + MIB for a, b in zip(before, used(mesh))), 30)
    assert d.proc.poll() is None


def test_an_array_divided_moves_with_that(mesh, parts):
    wish = {"parts": [parts, 1]}
    x = np.random.default_rng(2).random((3 * parts, MIB // 4), "f4")
    for made in (mesh.expect(201, mesh.request("POST", f"/v1/arrays?name=a&placement={parts},1", npy_bytes(x), content_type=NPY)).json(),
                 mesh.expect(201, mesh.request("PUT", f"/v1/arrays/b?dtype=float32&shape={3 * parts},{MIB // 4}&placement={parts},1", x.tobytes(), content_type=OCTETS)).json(),
                 mesh.create(name="c", shape=[3 * parts, MIB // 4], dtype="float32", placement=wish)):
        divided(made, parts)
    assert mesh.download("a").tobytes() == mesh.download("b").tobytes() == x.tobytes()
    m = mesh.expect(200, mesh.patch("/v1/arrays/a", {"location": "host"})).json()
    assert "placement" not in m
    mesh.expect(200, mesh.post("/v1/evaluate", {"expr": "a + 1", "out": "c"}))
    mesh.expect(204, mesh.request("PUT", "/v1/arrays/b/data", (x * 2).tobytes(), content_type=OCTETS))
    for name, value in (("a", x), ("b", x * 2), ("c", x + np.float32(1))):
        divided(mesh.meta(name), parts)
        assert mesh.download(name).tobytes() == value.tobytes()
    m = mesh.create(name="h", shape=[3 * parts, MIB // 4], dtype="float32", fill=1, placement=wish, location="host")
    assert m["location"] == "host" and "placement" not in m
    divided(mesh.expect(200, mesh.patch("/v1/arrays/h", {"location": "device"})).json(), parts)


@pytest.mark.in_turn
def test_what_is_no_placement(mesh, parts):
    large = {"shape": [8 * parts, MIB // 4], "dtype": "float32"}
    for wish in ([1, parts], [parts + 1, 1], [parts], [parts, 1, 1], [1, 1, 1], [parts, parts], []):
        problem = mesh.fails(422, "unsupported_placement", mesh.post("/v1/arrays", {**large, "placement": {"parts": wish}}))
        assert problem["pointer"] == "/placement/parts", problem
        r = mesh.request("POST", f"/v1/arrays?dtype=int8&shape=2,{8 * MIB}&placement={','.join(map(str, wish))}", bytes(16 * MIB), content_type=OCTETS)
        assert "pointer" not in mesh.fails(422, "unsupported_placement", r)
    problem = mesh.fails(422, "unsupported_placement", mesh.post("/v1/arrays", {"shape": [GRAIN * parts - 1], "dtype": "int8", "placement": {"parts": [parts]}}))
    assert problem["pointer"] == "/placement/parts" and str(GRAIN * parts) in problem["detail"]
    divided(mesh.create(shape=[GRAIN * parts], dtype="int8", placement={"parts": [parts]}), parts)
    for wish, code, at in ((None, "bad_field", "/placement"), ([2], "bad_field", "/placement"), ({}, "bad_field", "/placement/parts"), ({"parts": 1}, "bad_field", "/placement/parts"),
                           ({"parts": [0]}, "bad_field", "/placement/parts/0"), ({"parts": ["x"]}, "bad_field", "/placement/parts/0"),
                           ({"parts": [1], "rows": [0]}, "unknown_field", "/placement/rows")):
        assert mesh.fails(422, code, mesh.post("/v1/arrays", {**large, "placement": wish}))["pointer"] == at
    for text in ("x", "1,", "0", "1.0", "%2B1", "1%202", "1]}%2C%22parts%22:[1", "1]}%2C%22y%22:{%22z%22:[1", "1%00"):
        mesh.fails(400, "bad_query", mesh.request("POST", f"/v1/arrays?dtype=int8&shape=1&placement={text}", b"x", content_type=OCTETS))
    # one GPU alone
    one = mesh.clone(session=mesh.expect(201, mesh.post("/v1/sessions", {"device": 0})).json()["id"])
    problem = one.fails(422, "unsupported_placement", one.post("/v1/arrays", {**large, "placement": {"parts": [parts, 1]}}))
    assert problem["pointer"] == "/placement/parts" and "device 0" in problem["detail"]
    for wish in ([1], [1, 1]):
        assert "placement" not in one.create(placement={"parts": wish}, **large)
        assert "placement" not in mesh.create(placement={"parts": wish}, **large)
    assert len(mesh.list_all("/v1/arrays", "arrays")) == 3


def test_the_clients_know_of_it(mesh, parts):
    d, shape = mesh.daemon, (3 * parts, MIB // 4)
    with arrayd.connect(f"http://{d.host}:{d.port}") as c, c.session(device="mesh", name="ours") as xp:
        apart = xp.grid(shape, "float32", placement={"parts": (parts, 1)}, name="apart")
        divided(xp.metadata(apart), parts)
        whole = xp.grid((8 * parts, MIB // 4), "float32", placement={"parts": np.array([1])})
        assert "placement" not in xp.metadata(whole)
        with pytest.raises(ValueError, match="unsupported_placement"):
            xp.grid(shape, placement={"parts": [1, parts]})
        session = next(s["id"] for s in xp.sessions() if s["name"] == "ours")
        shown = cli(d)("--session", session, "info", "apart").out
        assert f'{{"parts": [{parts}, 1], "rows": [0, ' in next(line for line in shown.splitlines() if line.startswith("placement ")), shown


@pytest.mark.in_turn
def test_without_memory_for_both_places(gpu_with):
    d = gpu_with("--mesh", "all", "--memory-limit", "40MiB", "--keep-arrays=no", environment={"ARRAYD_FAKE_DEVICES": "2"})
    api = d.client()
    api = api.clone(session=api.expect(201, api.post("/v1/sessions", {"device": "mesh"})).json()["id"])
    before = used(api)
    api.fails(507, "out_of_memory", api.post("/v1/arrays", {"shape": [32 * MIB], "dtype": "int8", "placement": {"parts": [1]}}))
    api.create(name="a", shape=[20 * MIB], dtype="int8", placement={"parts": [1]})
    api.expect(204, api.delete("/v1/arrays/a"))
    until(lambda: all(b <= a + MIB for a, b in zip(before, used(api))), 30)


def test_a_snapshot_does_not_say_where(gpu_with, tmp_path):
    args, environment = ("--mesh", "all", "--state-dir", tmp_path / "state"), {"ARRAYD_FAKE_DEVICES": "2"}
    d = gpu_with(*args, environment=environment)
    api = d.client()
    session = api.expect(201, api.post("/v1/sessions", {"device": "mesh"})).json()["id"]
    m = api.clone(session=session).create(name="a", shape=[16, MIB // 4], dtype="float32", fill=3, placement={"parts": [1]})
    assert "placement" not in m
    d.stop()
    api = gpu_with(*args, environment=environment).client().clone(session=session)
    divided(api.meta("a"), 2)
    assert (api.download("a") == 3).all()


def test_the_daemon_tells_of_its_mesh(mesh, parts):
    text = mesh.expect(200, mesh.get("/metrics", accept="text/plain")).body.decode()
    assert f"\narrayd_cuda_mesh_parts {parts}\n" in text
    assert mesh.info()["limits"]["mesh_least"] == 4 * MIB
