"""Looking at arrays of another device than the session's: pictures, figures and frames work where the array is, for whoever may read it."""
import functools

import numpy as np
import pytest

from browser import Browser
from cli import cli
from conftest import until
from streams import Stream
from test_links import make
from test_login import SAME, log_in

import arrayd  # (cli.py has made it findable)

PNG = "image/png"
A = np.arange(256 * 512, dtype="f4").reshape(256, 512) % 1000


@pytest.fixture(params=["mesh", 1])
def house(gpu_with, accounts, request):
    """The daemon, its operator's client on GPU 0, and a client on the device where the array `a` is."""
    accounts.add("ann", role="operator")
    accounts.add("bob")
    mesh = ["--mesh", "all", "--mesh-least", 1] if request.param == "mesh" else []
    d = gpu_with(*mesh, "--frame-time", 1, "--accounts", accounts.path, environment={"ARRAYD_FAKE_DEVICES": "2"})
    ann = accounts.client(d, "ann")
    here, there = (ann.clone(session=ann.expect(201, ann.post("/v1/sessions", {"device": device})).json()["id"]) for device in (0, request.param))
    d.bob = accounts.client(d, "bob")
    there.upload(A, "a")
    return d, here, there


def device_s(api):
    return api.info()["principal"]["device_s"]


@pytest.mark.in_turn
def test_whichever_the_session_works_on(house):
    _, here, there = house
    ref = there.meta("a")["id"]
    before = device_s(here)
    for query in ("", "?width=100&height=70&cmap=gray", "?width=32&percentiles=2,98"):
        mine, theirs = (api.expect(200, api.get(f"/v1/arrays/{ref}/data{query}", accept=PNG)) for api in (there, here))
        assert mine.body == theirs.body and mine.body[:4] == b"\x89PNG", query
    for query in ("", "?exact=true&percentiles=50&index=0"):
        mine, theirs = (api.expect(200, api.get(f"/v1/arrays/{ref}/summary{query}")).json() for api in (there, here))
        assert mine == theirs, query
    assert theirs["percentiles"][0]["value"] == np.percentile(A[0], 50)
    with Stream(here, f"/v1/arrays/{ref}/events?frames=true&width=100&height=70&cmap=gray") as s:
        until(lambda: s.events)
        assert s.events[0][0] == "frame" and s.events[0][2]["range"][1] <= 999
        there.expect(200, there.post("/v1/evaluate", {"expr": "a + 5000", "out": "a"}))
        until(lambda: s.events[-1][2]["range"][0] >= 5000)
    assert all(name == "frame" for name, _, _ in s.events)
    # the time is of who asks
    until(lambda: device_s(here) > before)
    # computing is another matter
    for body in ({"expr": "x + 1", "bind": {"x": ref}}, {"expr": "x*2", "bind": {"x": ref}, "inline": True}, {"expr": "b", "bind": {"b": ref}, "name": "b"}):
        here.fails(409, "conflict", here.post("/v1/evaluate", body))


def test_by_a_link_and_a_share(house):
    d, here, there = house
    ref = there.meta("a")["id"]
    c = d.client()
    c.always = {"Cookie": log_in(c, make(here, arrays=[ref])["url"].partition("#link=")[2], "link"), **SAME}
    there.expect(201, there.post("/v1/arrays/a/shares", {"principal": "bob", "access": "read"}))
    at, used = device_s(here), device_s(d.bob)
    for api in (c, d.bob):
        assert api.expect(200, api.get(f"/v1/arrays/{ref}/data?width=16", accept=PNG)).body[:4] == b"\x89PNG"
        assert api.expect(200, api.get(f"/v1/arrays/{ref}/summary")).json()["max"] == 999
    until(lambda: device_s(here) > at and device_s(d.bob) > used)
    there.expect(204, there.delete("/v1/arrays/a/shares/bob"))
    d.bob.fails(404, "not_found", d.bob.get(f"/v1/arrays/{ref}/summary"))
    c.close()


@pytest.mark.in_turn
def test_what_goes_with_the_session(house):
    """Memory that a look takes is given back, and the stream for it goes when the session does."""
    _, here, there = house
    ref = there.meta("a")["id"]
    before = here.info()["bytes_in_use"]
    for _ in range(3):
        s = here.clone(session=here.expect(201, here.post("/v1/sessions", {"device": 0})).json()["id"])
        s.expect(200, s.get(f"/v1/arrays/{ref}/data?width=100&height=70", accept=PNG))
        until(lambda: s.expect(200, s.get(f"/v1/sessions/{s.session}")).json()["bytes_in_use"] == 0)
        here.expect(204, here.delete(f"/v1/sessions/{s.session}"))
    until(lambda: here.info()["bytes_in_use"] == before)


def test_errors_name_what_the_user_knows(house):
    """Clients write texts with names of their own."""
    _, here, there = house
    other = there.upload(A, None)["id"]
    where = "the mesh, device 2" if there.meta("a")["device"] == 2 else "device 1"
    for ref, known in ((there.meta("a")["id"], "a"), (other, other)):
        for body in ({"expr": "_1f_0_0 + 1", "bind": {"_1f_0_0": ref}}, {"tree": {"op": "add", "args": [ref, 1]}},
                     {"statements": ["_1f_0_1 = _1f_0_0 + 1", "_1f_0_2 = max(_1f_0_1)"], "bind": {"_1f_0_0": ref}, "results": ["_1f_0_2"]}):
            for _ in range(2):  # planned, and from the cache of plans
                detail = here.fails(409, "conflict", here.post("/v1/evaluate", body))["detail"]
                assert detail.startswith(f"the array {known} is on {where}, but this session works on device 0: "), detail
    here.create(name="own", shape=[256, 512])
    job = here.post("/v1/programs?wait=1", {"body": ["own = own + _x_1"], "steps": 2, "bind": {"_x_1": other}})
    detail = job.json()["detail"] if job.status >= 400 else job.json()["error"]["detail"]
    assert f"the array {other} is on {where}" in detail


@pytest.mark.in_turn
@pytest.mark.release_only
def test_clients(gpu_with, tmp_path, monkeypatch):
    d = gpu_with("--mesh", "all", "--mesh-least", 1, environment={"ARRAYD_FAKE_DEVICES": "2"})
    xp = arrayd.connect(f"http://127.0.0.1:{d.port}")
    api = d.client()
    api = api.clone(session=api.expect(201, api.post("/v1/sessions", {"device": "mesh"})).json()["id"])
    ids = [api.upload(a, name)["id"] for a, name in ((A, "a"), (A.reshape(8, 32, 512), "b"), (A.ravel(), "c"), (A[:3, :4], "d"))]
    m = xp.session(device="mesh")
    for ref in ids:
        mine, theirs = m.array(ref), xp.array(ref)
        assert str(theirs) == str(mine) and repr(theirs) == repr(mine), ref
        assert theirs.summary().max == mine.summary().max
    assert xp.array(ids[0]).image(width=32).png == m.array(ids[0]).image(width=32).png
    with pytest.raises(arrayd.Conflict, match="the array a is on the mesh"):
        (xp.array(ids[0]) + 1).numpy()
    with pytest.raises(arrayd.Conflict):
        str(xp.array(ids[0])*2)
    # arrayd-cli
    run = cli(d)
    monkeypatch.setenv("COLUMNS", "100")
    for words in ((ids[0],), (ids[0], "--slice", "2:50, ::2"), (ids[1], "--slice", "3")):
        done = run("show", *words, "-o", tmp_path / "a.png")
        assert done.status == 0 and (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG", done.err
    listed = run("info")
    assert "2 x" not in listed.out and "devices 0 and 1 together (mesh)" in listed.out, listed.out
    assert "device 2: devices 0 and 1 together (mesh)" in run("top", "--once").out


@pytest.mark.release_only
def test_the_command_shows_parts_of_others_arrays(house, tmp_path, monkeypatch, accounts):
    d, _, there = house
    ref = there.upload(np.stack([A] * 3), "cube")["id"]
    there.expect(201, there.post("/v1/arrays/cube/shares", {"principal": "bob", "access": "read"}))
    monkeypatch.setenv("COLUMNS", "100")
    run = functools.partial(cli(d), "--token", accounts.token["bob"], "show", ref)
    before = len(d.bob.list_all("/v1/arrays", "arrays"))
    done = run("--slice", "1, 2:50, ::2", "-o", tmp_path / "part.png")
    assert done.status == 0 and (tmp_path / "part.png").read_bytes()[:4] == b"\x89PNG", done.err
    done = run("--slice", "1, 2:50, ::2", "--as", "blocks", "--width", "20", "--height", "9")
    assert done.status == 0 and f"{ref}[1, 2:50, ::2]: 48×256 float32, " in done.out, done
    done = run("--slice", "1, 2, 3", "-o", tmp_path / "none.png")
    assert done.status == 1 and "is a number" in done.err and not (tmp_path / "none.png").exists(), done
    assert len(d.bob.list_all("/v1/arrays", "arrays")) == before


def test_an_operator_sees_whose_memory_it_is(gpu_with):
    d = gpu_with("--mesh", "all", "--mesh-least", 1, "--memory-limit", "256MiB", environment={"ARRAYD_FAKE_DEVICES": "2"})
    one = d.client()
    mesh, second = (one.clone(session=one.expect(201, one.post("/v1/sessions", {"device": device})).json()["id"]) for device in ("mesh", 1))
    assert " mesh=0,1 " in d.log()
    mesh.create(name="large", shape=[16 << 20], dtype="float32")
    mesh.create(name="small", shape=[1000], dtype="float32")  # the first GPU's alone
    second.create(name="own", shape=[1 << 20], dtype="float32")

    def values(name):
        lines = [line for line in one.expect(200, one.get(f"/metrics?names={name}")).body.decode().splitlines() if line[0] != "#"]
        return [float(line.split()[-1]) for line in lines]

    used = values("arrayd_device_bytes_in_use")
    assert len(used) == 3 and used[2] >= (64 << 20) + 4000 and (4 << 20) <= used[1] < used[2] and used[0] < (4 << 20)
    assert [sum(used)] == values("arrayd_bytes_in_use")
    live = values("arrayd_cuda_memory_live_bytes")  # of the GPUs: what is the mesh's lies on them
    assert len(live) == 2 and live[0] >= 32 << 20 and live[1] >= 36 << 20


@pytest.mark.in_turn
@pytest.mark.release_only
@pytest.mark.skipif(bool(Browser.missing()), reason=str(Browser.missing()))
def test_the_page(gpu_with, visit):
    d = gpu_with("--mesh", "all", "--mesh-least", 1, "--memory-limit", "256MiB", "--keep-arrays=no", environment={"ARRAYD_FAKE_DEVICES": "2"})
    one = d.client()
    mesh = one.clone(session=one.expect(201, one.post("/v1/sessions", {"device": "mesh"})).json()["id"])
    ref = mesh.upload(A, "a")["id"]
    mesh.create(name="large", shape=[16 << 20], dtype="float32")
    gone = mesh.create(name="gone", shape=[8 << 20], dtype="float32")["id"]
    mesh.expect(204, mesh.delete(f"/v1/arrays/{gone}"))  # the mesh keeps its memory, which is free
    p = visit(d, "#node")
    p.wait("[...document.querySelectorAll('.card')].filter(c => /device \\d/.test(c.innerText) && /64\\.5 MiB|3\\d(\\.\\d)? MiB/.test(c.innerText)).length === 3")
    cards = [text for text in p.texts(".card") if "device" in text and "free" in text]
    assert "device 2: devices 0 and 1 together" in cards[2] and "the memory of devices 0 and 1" in cards[2], cards
    assert "arrays 64.5 MiB" in cards[2] and "kept for new arrays 32.0 MiB" in cards[2] and "in all" not in cards[2], cards
    for card in cards[:2]:  # half of it each
        assert "in all" in card and "arrays 3" in card, cards
    # an array of the mesh is looked at from the default session, which is on a GPU
    p = visit(d, f"#array/{ref}")
    p.wait("document.querySelector('dl.facts') && /999/.test(document.querySelector('.aside').innerText)")
    assert "device 2" in p.text(".aside") and "problem" not in p.text()
    p.wait("document.querySelector('canvas, img')")
