"""Arrays in host memory: moved there and back at a client's wish, brought back by what uses them,
and, with --evict, moved out by whoever needs the room. On both backends, the GPU's on the fake
driver."""
import re
import threading
import time

import numpy as np
import pytest

from client import NPY, OCTETS, npy_bytes

N = 1 << 16  # float64: half a MiB
MIB = 1 << 20


@pytest.fixture(params=["cpu", "cuda"])
def start(request, daemon_with):
    """Starts a daemon on the one backend or the other."""
    if request.param == "cpu":
        return lambda *args, **kw: daemon_with("--backend", "cpu", *args)
    return request.getfixturevalue("gpu_with")


@pytest.fixture
def api(start):
    return start().client()


def move(api, ref, location):
    was = where(api, ref)
    r = api.expect(200, api.patch(f"/v1/arrays/{ref}", {"location": location}))
    waited = f" {api.device};dur=" in r.headers["Server-Timing"]
    assert r.json()["location"] == location and waited == (was != location), r
    return r.json()


def where(api, ref):
    return api.expect(200, api.get(f"/v1/arrays/{ref}")).json()["location"]


def metric(api, name):
    text = api.get("/metrics").body.decode()
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(name + " ")))


def held(api, device, host):
    """Waits until that many bytes are held: memory is given back behind the scenes."""
    for _ in range(500):
        api.quiet()
        info = api.info()
        if (info["bytes_in_use"], info["host_bytes_in_use"]) == (device, host):
            return
        time.sleep(0.01)
    assert (info["bytes_in_use"], info["host_bytes_in_use"]) == (device, host)


def test_there_and_back(api):
    x = np.random.default_rng(1).random(N)
    before = api.upload(x, "u")
    api.expect(201, api.post("/v1/arrays/u/views", {"index": "::-3", "name": "v"}))
    tag = api.get("/v1/arrays/u/data").headers["ETag"]
    held(api, 8 * N, 0)
    for _ in range(3):
        move(api, "u", "host")
        held(api, 0, 8 * N)
        assert where(api, "v") == "host"
        r = api.get("/v1/arrays/u/data")
        assert r.headers["ETag"] == tag and np.array_equal(r.array("<f8", N), x)
        assert np.array_equal(api.download("v"), x[::-3])
        assert where(api, "u") == "host"
        move(api, "v", "host")
        move(api, "v", "device")
        held(api, 8 * N, 0)
        r = api.get("/v1/arrays/u/data")
        assert r.headers["ETag"] == tag and np.array_equal(r.array("<f8", N), x)
    assert api.meta("u") == {**before, "references": 2, "location": "device"}
    listed = api.list_all("/v1/arrays", "arrays")
    assert [a["location"] for a in listed] == ["device", "device"]
    move(api, "u", "host")
    api.delete("/v1/arrays/u")
    assert np.array_equal(api.download("v"), x[::-3])
    api.delete("/v1/arrays/v")
    held(api, 0, 0)


def test_use_brings_it_back(api):
    x, y = np.arange(24.0).reshape(4, 6), np.linspace(0, 1, 24).reshape(4, 6)
    api.upload(x, "u")
    api.upload(y, "w")

    def used(by, result, ref="u"):
        move(api, "u", "host")
        move(api, "w", "host")
        r = by()
        assert r.status in (200, 201, 204), r
        api.quiet()
        assert where(api, ref) == "device"
        assert np.array_equal(api.download(ref), result)

    def evaluate(**fields):
        return lambda: api.post("/v1/evaluate", fields)

    used(evaluate(expr="u + w", name="sum"), x)
    assert np.array_equal(api.download("sum"), x + y) and where(api, "w") == "device"
    used(evaluate(expr="u[::2, 1] * 2", name="part"), x)
    assert np.array_equal(api.download("part"), x[::2, 1] * 2)
    assert where(api, "w") == "host"
    x = x + 1
    used(evaluate(expr="u + 1", out="u"), x)
    x[1:3] = y[1:3]
    used(evaluate(expr="w[1:3]", out="u", index="1:3"), x)
    x[:] = 2.5
    used(evaluate(expr="2.5", out="u"), x)
    x = np.roll(y, -1, 0)
    used(evaluate(expr="shift(w, [1, 0], boundary='wrap')", out="u"), x)
    x = x - np.roll(x, -1, 1)
    used(evaluate(expr="u - shift(u, [0, 1], boundary='wrap')", out="u"), x)
    x[2, 3:5] = [7, 8]
    used(lambda: api.request("PUT", "/v1/arrays/u/data?index=2,3:5", x[2, 3:5].tobytes(),
                             content_type=OCTETS), x)
    x = np.ones((4, 6))
    used(lambda: api.request("PUT", "/v1/arrays/u/data", x.tobytes(), content_type=OCTETS), x)
    used(lambda: api.post("/v1/arrays/u/copy", {"name": "c"}), x)
    assert np.array_equal(api.download("c"), x) and where(api, "c") == "device"
    api.expect(200, api.post("/v1/arrays/c/swap", {"with": "w"}))
    assert np.array_equal(api.download("c"), y) and np.array_equal(api.download("w"), x)
    move(api, "w", "host")
    api.expect(200, api.post("/v1/arrays/w/resize", {"shape": [6, 4]}))
    assert np.array_equal(api.download("w"), x.reshape(6, 4))
    api.expect(200, api.post("/v1/arrays/w/resize", {"shape": [4, 6]}))
    used(evaluate(expr="sum(u)"), x)
    move(api, "u", "host")
    assert api.expect(200, api.post("/v1/explain", {"expr": "u + 1"})) and where(api, "u") == "host"


def test_other_ways_of_use(api):
    api.expect(201, api.post("/v1/arrays", {"name": "g", "data": [[1.0, 2.0], [3.0, 4.0]], "ghost": [1, 1],
                                           "boundary": ["periodic", "periodic"]}))
    move(api, "g", "host")
    api.expect(200, api.post("/v1/arrays/g/fill_ghost"))
    assert where(api, "g") == "device"
    whole = api.expect(200, api.get("/v1/arrays/g/data?ghost=1", accept=NPY)).npy()
    assert np.array_equal(whole, np.pad([[1, 2], [3, 4]], 1, mode="wrap"))
    api.create(name="points", data=[[0.5, 0.5], [1.0, 0.0]])
    move(api, "g", "host")
    move(api, "points", "host")
    assert api.evaluate("sample(g, points)").tolist() == [2.5, 3.0]
    assert where(api, "points") == "device"
    api.create(name="i", data=[1, 0])
    move(api, "i", "host")
    move(api, "g", "host")
    assert api.evaluate("take(g, i, 0)").tolist() == [[3, 4], [1, 2]]
    api.create(name="empty", shape=[0, 3])
    move(api, "empty", "host")
    assert api.evaluate("empty + 1").shape == (0, 3) and where(api, "empty") == "device"


def test_a_move_with_other_changes(api):
    api.create(name="u", data=[1, 2])
    api.create(name="taken", data=[1])
    tag = api.get("/v1/arrays/u/data").headers["ETag"]
    for body, headers, status, code in (
            ({"location": "host", "name": "taken"}, {}, 409, "conflict"),
            ({"location": "host", "name": "a b"}, {}, 422, "bad_name"),
            ({"location": "host", "spacing": [0]}, {}, 422, "bad_field"),
            ({"location": "host"}, {"If-Match": '"another"'}, 412, "precondition_failed"),
            ({"location": "host"}, {"If-None-Match": tag}, 412, "precondition_failed")):
        api.fails(status, code, api.patch("/v1/arrays/u", body, headers=headers))
        assert where(api, "u") == "device"
    m = api.expect(200, api.patch("/v1/arrays/u", {"location": "host", "name": "w", "read_only": True,
                                                   "spacing": [2.0]}, headers={"If-Match": tag})).json()
    assert (m["name"], m["read_only"], m["location"], m["spacing"]) == ("w", True, "host", [2])
    move(api, "w", "device")
    move(api, "w", "host")
    assert api.evaluate("w * 2").tolist() == [2, 4]
    api.fails(409, "read_only", api.delete("/v1/arrays/w"))


def test_a_leased_array_stays(api):
    api.create(name="u", data=[1.0])
    token = api.expect(201, api.post("/v1/arrays/u/lease", {"mode": "write", "ttl_s": 60})).json()["token"]
    api.fails(409, "locked", api.patch("/v1/arrays/u", {"location": "host"}))
    assert where(api, "u") == "device"
    api.expect(200, api.patch("/v1/arrays/u", {"location": "host"}, headers={"Arrayd-Lease": token}))
    assert where(api, "u") == "host"


def test_the_limit_of_host_memory(start):
    api = start("--host-memory", "1MiB").client()
    assert api.info()["limits"]["host_memory"] == MIB
    x = np.arange(2.0 * N)
    api.upload(x, "u")
    api.upload(x[:1], "small")
    for _ in range(3):
        move(api, "u", "host")
        r = api.patch("/v1/arrays/small", {"location": "host"})
        assert "limit of 1048576 bytes" in api.fails(507, "out_of_memory", r)["detail"]
        assert where(api, "small") == "device" and api.download("small").tolist() == [0]
        move(api, "u", "device")
        move(api, "small", "host")
        api.fails(507, "out_of_memory", api.patch("/v1/arrays/u", {"location": "host"}))
        assert where(api, "u") == "device" and np.array_equal(api.download("u"), x)
        move(api, "small", "device")
    held(api, x.nbytes + 8, 0)


def test_a_move_costs_its_session_nothing(api):
    s = api.expect(201, api.post("/v1/sessions", {"memory_limit": 8 * N})).json()
    c = api.clone(session=s["id"])
    x = np.arange(float(N))
    c.upload(x, "u")

    def used():
        return api.expect(200, api.get(f"/v1/sessions/{s['id']}")).json()["bytes_in_use"]

    for _ in range(3):
        move(c, "u", "host")
        assert used() == 8 * N
        c.fails(429, "quota_exceeded", c.post("/v1/arrays", {"shape": [1]}))
        move(c, "u", "device")
        move(c, "u", "host")
        c.expect(200, c.post("/v1/evaluate", {"expr": "0.0", "out": "u", "index": "1"}))
        x[1] = 0
        assert np.array_equal(c.download("u"), x) and where(c, "u") == "device"
        c.quiet()
        assert used() == 8 * N
    c.delete("/v1/arrays/u")
    c.quiet()
    assert used() == 0


def test_no_room_to_come_back(start):
    api = start("--memory-limit", "1MiB").client()
    x = np.arange(float(N)) + 1
    api.upload(x, "a")
    move(api, "a", "host")
    for name in ("b", "c"):
        api.upload(x, name)
    held(api, 16 * N, 8 * N)
    for r in (api.patch("/v1/arrays/a", {"location": "device"}), api.post("/v1/evaluate", {"expr": "sum(a)"}),
              api.post("/v1/evaluate", {"expr": "a + 1", "out": "b"}), api.post("/v1/arrays/a/copy", {}),
              api.post("/v1/evaluate", {"expr": "1.0", "out": "a", "index": "3"}),
              api.request("PUT", "/v1/arrays/a/data?index=3", b"\0" * 8, content_type=OCTETS)):
        api.fails(507, "out_of_memory", r)
    assert [where(api, ref) for ref in "abc"] == ["host", "device", "device"]
    for ref in "abc":
        assert np.array_equal(api.download(ref), x)
    held(api, 16 * N, 8 * N)
    api.delete("/v1/arrays/c")
    api.quiet()
    api.fails(507, "out_of_memory", api.post("/v1/evaluate", {"expr": "a + b", "name": "d"}))
    assert where(api, "a") == "host"
    api.expect(200, api.post("/v1/evaluate", {"expr": "a + b", "out": "b"}))
    assert np.array_equal(api.download("b"), 2 * x)


def fill(api, n, first=0):
    for i in range(first, first + n):
        r = upload_npy(api, f"a{i}", np.full(N, float(i)))
        assert r.status in (200, 201), r


def upload_npy(api, path, a, chunked=False):
    return api.request("PUT", f"/v1/arrays/{path}", npy_bytes(a), content_type=NPY, chunked=chunked)


def whole(api, n):
    return all((api.download(f"a{i}") == i).all() for i in range(n))


def test_without_evict_full_is_full(start):
    api = start("--memory-limit", "2MiB").client()
    assert api.info()["evict"] is False
    fill(api, 4)
    e = api.fails(507, "out_of_memory", api.post("/v1/arrays", {"shape": [N]}))
    assert re.search(r"; (\d+) of the 2097152 bytes .*memory-limit.*, and the daemon was started without --evict", e["detail"])
    e = api.fails(507, "out_of_memory", api.post("/v1/arrays", {"shape": [8 * N]}))
    assert "2097152 bytes" in e["detail"] and "evict" not in e["detail"]  # it would not help
    assert whole(api, 4)


@pytest.mark.parametrize("evict", [[], ["--evict"]], ids=["full", "evict"])
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_what_queued_work_gives_back_is_waited_for(request, backend, evict):
    """Two arrays of three fit: each of these evaluations does, and so do many that are queued."""
    args = ["--memory-limit", "1664KiB", "--threads", "1", "--inline-elements", "1", *evict]
    if backend == "cpu":
        api = request.getfixturevalue("daemon_with")("--backend", "cpu", *args).client()
    else:
        api = request.getfixturevalue("gpu_with")(*args, environment={"ARRAYD_FAKE_DELAY": "5000"}).client()
    api.upload(np.arange(float(N)), "u")
    for _ in range(20):
        api.expect(200, api.post("/v1/evaluate", {"expr": "u[::-1] + 1", "out": "u"}))
    assert np.array_equal(api.download("u"), np.arange(N) + 20.0)
    for _ in range(12):
        api.expect(201, api.post("/v1/evaluate", {"expr": "u*2", "name": "t"}))
    assert np.array_equal(api.download("t"), np.arange(N) * 2 + 40.0)
    api.delete("/v1/arrays/t")
    api.expect(200, api.post("/v1/evaluate", {"expr": "u[::-1] + 1", "out": "u"}))
    r = api.request("POST", f"/v1/arrays?name=w&dtype=float64&shape={N}", np.ones(N).tobytes(), content_type=OCTETS)
    api.expect(201, r)
    assert (api.download("w") == 1).all()
    assert [where(api, ref) for ref in ("u", "w")] == ["device", "device"]
    for _ in range(2 if evict else 0):
        api.upload(np.ones(N))
    api.quiet()
    api.fails(507, "out_of_memory", api.post("/v1/arrays", {"shape": [4 * N]}))


def test_the_least_recently_used_make_room(start):
    api = start("--memory-limit", "2MiB", "--evict").client()
    assert api.info()["evict"] is True
    fill(api, 4)
    assert api.evaluate("a0[5] + a2[5]") == 2  # used now; a1 and a3 were not
    api.quiet()
    fill(api, 1, 4)
    assert [where(api, f"a{i}") for i in range(5)] == ["device", "host", "device", "device", "device"]
    api.get("/v1/arrays/a3/data")  # a download is a use too
    fill(api, 1, 5)
    assert [where(api, f"a{i}") for i in range(6)] == ["host", "host", "device", "device", "device", "device"]
    fill(api, 14, 6)
    assert whole(api, 20)
    held(api, 4 * 8 * N, 16 * 8 * N)
    assert metric(api, "arrayd_arrays_evicted_total") == 16
    assert metric(api, "arrayd_evicted_bytes_total") == 16 * 8 * N
    assert metric(api, "arrayd_host_bytes_in_use") == 16 * 8 * N
    assert metric(api, "arrayd_arrays_fetched_total") == 0
    assert api.evaluate("a0 + a19")[7] == 19
    assert metric(api, "arrayd_arrays_fetched_total") == 1


def test_programs_need_room(start):
    """For arrays that were moved out, for what a slice makes, and for snapshots; where there is none, the job fails and says so."""
    api = start("--memory-limit", "4MiB", "--evict").client()

    def program(*body, **more):
        return api.expect(200, api.post("/v1/programs?wait=1", {"body": body, **more})).json()

    fill(api, 16)  # the first eight are out, and then others
    r = program("a0 += a1", steps=5, snapshot={"a0": 2})
    assert r["state"] == "done", r
    assert (api.download("a0") == 5).all() and [s["step"] for s in r["snapshots"]] == [2, 4]
    for s in r["snapshots"]:
        assert (api.download(s["id"]) == s["step"]).all()
    fill(api, 8, 8)
    r = program("a2 += 1", "a3 += a2", steps=2)
    assert r["state"] == "done", r
    assert (api.download("a2") == 4).all() and (api.download("a3") == 3 + 3 + 4).all()
    fill(api, 8, 8)
    r = program("a4 = a4 + a5 + a6 + a7 + a8 + a9 + a10 + a11 + a12")
    assert (r["state"], r["error"]["code"], r["step"]) == ("failed", "out_of_memory", 0)
    assert "of the 4194304 bytes" in r["error"]["detail"] and "--evict" not in r["error"]["detail"]
    assert (api.download("a4") == 4).all()


def test_every_way_to_need_room(start):
    api = start("--memory-limit", "2MiB", "--evict").client()
    fill(api, 12)
    x = np.arange(float(N))
    move(api, "a3", "host")
    move(api, "a3", "device")
    made = {
        "zeros": lambda: api.post("/v1/arrays", {"name": "zeros", "shape": [N]}),
        "fill": lambda: api.post("/v1/arrays", {"name": "fill", "shape": [N], "fill": 2.0}),
        "data": lambda: api.post("/v1/arrays", {"name": "data", "data": x.tolist()}),
        "octets": lambda: api.request("POST", f"/v1/arrays?name=octets&dtype=float64&shape={N}", x.tobytes(),
                                      content_type=OCTETS),
        "plain": lambda: api.request("PUT", f"/v1/arrays/plain?dtype=float64&shape={N}", x.tobytes()),
        "npy": lambda: upload_npy(api, "npy", x, chunked=True),
        "npy2": lambda: upload_npy(api, "npy2", x),
        "sum": lambda: api.post("/v1/evaluate", {"expr": "a0 + a1", "name": "sum"}),
        "copy": lambda: api.post("/v1/arrays/a5/copy", {"name": "copy"}),
    }
    for name, ask in made.items():
        fill(api, 4, 8)  # the device is full
        r = ask()
        assert r.status == 201, (name, r)
    want = {"zeros": 0, "fill": 2, "sum": 1, "copy": 5}
    for name in made:
        assert np.array_equal(api.download(name), np.full(N, want[name]) if name in want else x), name
    fill(api, 4, 8)
    assert api.evaluate("a0 * 2 + a1")[3] == 1
    assert api.post("/v1/evaluate", {"expr": "sum(a2)"}).json()["value"] == 2 * N
    api.expect(200, api.post("/v1/evaluate", {"expr": "a3 + a4 + a5", "out": "a3"}))
    assert (api.download("a3") == 12).all()
    fill(api, 4, 8)
    api.expect(200, api.post("/v1/arrays/a6/resize", {"shape": [N + 8]}))
    assert (api.download("a6") == np.zeros(N + 8)).all()
    for i in range(3):
        fill(api, 4, 8)
        body = [x[5:7].tobytes(), x[5:7].tolist(), x[5:7]][i]
        if i == 0:
            r = api.request("PUT", "/v1/arrays/a7/data?index=5:7", body, content_type=OCTETS)
        elif i == 1:
            r = api.put("/v1/arrays/a7/data?index=5:7", body)
        else:
            r = upload_npy(api, "a7/data?index=5:7", body, chunked=True)
        assert r.status == 204, r
        assert (api.download("a7")[4:8] == [7, 5, 6, 7]).all()
    fill(api, 4, 8)
    r = api.put("/v1/arrays/a1/data", x.tolist())
    assert r.status == 204, r
    assert np.array_equal(api.download("a1"), x)
    assert where(api, "a0") == "host"
    move(api, "a0", "device")
    assert whole(api, 1)


def test_scratch_memory_behind_other_work(start):
    """What is lacking when work is queued is found out then, whatever is under way."""
    api = start("--memory-limit", "2MiB", "--evict").client()
    fill(api, 6)
    for i in range(40):
        api.expect(200, api.post("/v1/evaluate", {"expr": f"a{i % 5} + 0", "out": f"a{i % 5}"}))
        r = api.post("/v1/evaluate", {"expr": f"sum(a{i % 6})", "name": "s"})
        assert r.status == 201, r
        assert api.download("s") == (i % 6) * N
    assert whole(api, 6)
    api.close()


def test_what_takes_part_does_not_make_room(start):
    api = start("--memory-limit", "2MiB", "--evict").client()
    fill(api, 4)
    for fields in ({"expr": "a0 + a1 + a2 + a3", "name": "sum"}, {"expr": "a0[::-1]", "bind": {}, "name": "r"}):
        r = api.post("/v1/evaluate", fields)
        if "a3" in fields["expr"]:
            api.fails(507, "out_of_memory", r)
            assert {where(api, f"a{i}") for i in range(4)} == {"device"}
        else:
            assert r.status == 201, r
    assert where(api, "a0") == "device" and where(api, "a1") == "host"
    api.fails(507, "out_of_memory", api.post("/v1/arrays", {"shape": [N * 5]}))
    assert whole(api, 4)


def test_nowhere_to_go(start):
    api = start("--memory-limit", "2MiB", "--evict", "--host-memory", "1MiB").client()
    fill(api, 6)
    api.fails(507, "out_of_memory", api.post("/v1/arrays", {"shape": [N]}))
    held(api, 4 * 8 * N, 2 * 8 * N)
    assert whole(api, 6)
    api.delete("/v1/arrays/a0")
    fill(api, 1, 6)
    api.delete("/v1/arrays/a6")
    assert all((api.download(f"a{i}") == i).all() for i in range(1, 6))


def test_many_at_once(start):
    """Clients whose arrays together are three times what the device has."""
    d = start("--memory-limit", "4MiB", "--evict", "--workers", "4")
    wrong = []

    def work(k):
        c = d.client()
        rng = np.random.default_rng(k)
        try:
            s = c.expect(201, c.post("/v1/sessions", {})).json()["id"]
            c.session = s
            have = {}
            for i in range(4):
                have[f"x{i}"] = np.full(N, float(10 * k + i))
                c.upload(have[f"x{i}"], f"x{i}")
            for _ in range(12):
                i, j = rng.integers(0, 4, 2)
                r = c.post("/v1/evaluate", {"expr": f"x{i} + x{j}", "out": f"x{j}"})
                if r.status == 507:  # everybody's arrays are in use just now
                    continue
                assert r.status == 200, r
                have[f"x{j}"] = have[f"x{i}"] + have[f"x{j}"]
                i = rng.integers(0, 4)
                assert np.array_equal(c.download(f"x{i}"), have[f"x{i}"])
            for name, a in have.items():
                assert np.array_equal(c.download(name), a), name
        except BaseException as e:
            wrong.append(e)
        finally:
            c.close()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if wrong:
        raise wrong[0]


def test_real_memory_that_is_full(gpu_with):
    api = gpu_with("--evict", environment={"ARRAYD_FAKE_MEMORY": str(4 * MIB)}).client()
    fill(api, 20)
    assert whole(api, 20)
    assert metric(api, "arrayd_arrays_evicted_total") >= 12
    for i in range(20):
        assert api.evaluate(f"a{i} * 2")[0] == 2 * i
    assert whole(api, 20)


def test_each_device_has_its_own_room(gpu_with):
    api = gpu_with("--memory-limit", "1MiB", "--evict", environment={"ARRAYD_FAKE_DEVICES": "2"}).client()
    clients = []
    for device in (0, 1):
        s = api.expect(201, api.post("/v1/sessions", {"device": device})).json()["id"]
        clients.append(api.clone(session=s))
    fill(clients[0], 2)
    fill(clients[1], 5)
    assert [where(clients[0], f"a{i}") for i in range(2)] == ["device"] * 2
    assert [where(clients[1], f"a{i}") for i in range(5)] == ["host"] * 3 + ["device"] * 2
    assert {clients[1].meta(f"a{i}")["device"] for i in range(5)} == {1}
    clients[1].expect(200, clients[1].post("/v1/evaluate", {"expr": "a0 + 0", "out": "a0"}))
    assert where(clients[1], "a0") == "device" and whole(clients[1], 5)
    gone = clients[0].meta("a1")["id"]
    move(clients[0], "a1", "host")
    assert (clients[1].download(gone) == 1).all()
    clients[1].fails(409, "conflict", clients[1].post("/v1/evaluate", {"expr": "x + 1", "bind": {"x": gone}}))
    assert where(clients[0], "a1") == "host"
    for c in clients:
        c.close()


def test_a_client_that_goes_while_room_is_made(start):
    d = start("--memory-limit", "2MiB", "--evict")
    api = d.client()
    fill(api, 4)
    body = npy_bytes(np.ones(N))
    for cut in (0, 100, 128, 129, 5000):
        c = d.client()
        conn = c.connect()
        conn.putrequest("PUT", "/v1/arrays/b")
        conn.putheader("Content-Type", NPY)
        conn.putheader("Content-Length", str(len(body)))
        conn.endheaders()
        conn.send(body[:cut])
        c.close()
    assert whole(api, 4)
    api.fails(404, "not_found", api.get("/v1/arrays/b"))


# --- made in host memory, moved without waiting ---

def test_made_in_host_memory(api):
    x = np.arange(12.0).reshape(3, 4)
    made = [api.expect(201, api.post("/v1/arrays", {"name": "a", "data": x.tolist(), "location": "host"})),
            api.expect(201, api.request("POST", "/v1/arrays?dtype=float64&shape=3,4&name=b&location=host", x.tobytes(), content_type=OCTETS)),
            api.expect(201, api.request("PUT", "/v1/arrays/c?location=host", npy_bytes(x), content_type=NPY)),
            api.expect(201, api.post("/v1/arrays", {"name": "d", "data": x.tolist(), "ghost": [1, 1], "location": "host"}))]
    assert [r.json()["location"] for r in made] == ["host"] * 4
    for name in "abcd":
        assert where(api, name) == "host" and np.array_equal(api.download(name), x)
    r = api.expect(200, api.put("/v1/arrays/a", {"shape": [3, 4], "fill": 2, "location": "host"})).json()
    assert r["location"] == "host" and api.info()["host_bytes_in_use"] > 0
    np.testing.assert_array_equal(api.evaluate("a + b"), x + 2)
    assert where(api, "a") == "device"
    r = api.expect(201, api.post("/v1/arrays", {"shape": [2], "location": "device"})).json()
    assert r["location"] == "device"
    for body, query, code, status in (({"shape": [2], "location": "disk"}, "", "bad_field", 422), (b"ab", "?dtype=int8&shape=2&location=x", "bad_query", 400),
                                      ({"shape": [2]}, "?location=host", "bad_query", 400), ({"shape": [2], "name": "b", "location": "host"}, "", "conflict", 409)):
        n = len(api.list_all("/v1/arrays", "arrays"))
        send = api.post("/v1/arrays" + query, body) if isinstance(body, dict) else api.request("POST", "/v1/arrays" + query, body, content_type=OCTETS)
        api.fails(status, code, send)
        assert len(api.list_all("/v1/arrays", "arrays")) == n


def test_no_room_in_host_memory(start):
    api = start("--host-memory", "1MiB").client()
    r = api.post("/v1/arrays", {"name": "a", "shape": [1 << 18], "location": "host"})
    assert r.status in (429, 507), r
    assert api.list_all("/v1/arrays", "arrays") == []
    held(api, 0, 0)


def test_moved_without_waiting(api):
    x = np.random.default_rng(2).random(N)
    api.upload(x, "u")
    for location in ("host", "device"):
        r = api.expect(202, api.patch("/v1/arrays/u", {"location": location, "spacing": [2]}, headers={"Prefer": "respond-async"}))
        assert r.headers["Preference-Applied"] == "respond-async" and f" {api.device};dur=" not in r.headers["Server-Timing"]
        assert r.json()["spacing"] == [2] and np.array_equal(api.download("u"), x)
        assert where(api, "u") == location
    # nothing to wait for
    r = api.expect(200, api.patch("/v1/arrays/u", {"location": "device"}, headers={"Prefer": "respond-async"}))
    assert "Preference-Applied" not in r.headers
