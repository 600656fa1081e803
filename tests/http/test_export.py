"""Exports: what clients see of the memory, and what the lease lets others do meanwhile."""
import json
import mmap
import os
import re
import threading
import time

import numpy as np
import pytest

from client import NPY, OCTETS
from conftest import settle, until
from exported import Export, descriptors, figures, present
from test_leases import DATA, DELETES, FREE, READS, UNDOES, WRITES, prepare, send


@pytest.fixture(params=["cpu", "gpu"])
def d(request, tmp_path):
    if request.param == "gpu" and os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("mmap maps the fake driver's memory alone; a real one's: tests/backend/export_suite, bench_export.py")
    start = request.getfixturevalue("daemon_with" if request.param == "cpu" else "gpu_with")
    backend = ["--backend", "cpu"] if request.param == "cpu" else []
    return start(*backend, "--allow-export", "--export-timeout", "5", "--export-threshold", "1MiB", "--listen", "127.0.0.1:0",
                 "--listen", f"unix:{tmp_path}/s")


@pytest.fixture
def c(d):
    c = d.client(unix=d.unix)
    c.upload(DATA, "u")
    yield c
    c.quiet()
    assert figures(c)[""] == 0


def is_gpu(c):
    return c.device == "gpu"


# --- memory ---

@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "float64", "complex128"])
def test_contents_both_ways(c, dtype):
    a = (np.arange(35) % 2).astype(dtype).reshape(5, 7)
    c.upload(a, "a")
    with Export(c, "a", "write") as x:
        assert x.reply["kind"] == ("cuda" if is_gpu(c) else "memfd")
        m = x.array()
        assert np.array_equal(m, a)
        m[1:3, ::2] = 1
        a[1:3, ::2] = 1
    assert np.array_equal(c.download("a"), a)
    assert np.array_equal(c.evaluate("where(a, 2, 1)"), np.where(a, 2, 1))


def test_a_reader_sees_what_the_daemon_writes(c):
    """The holder's own requests write into the memory that he has mapped, whatever they cover of it."""
    with Export(c, "u") as x:
        m = x.array()
        assert np.array_equal(m, DATA)
        for body in ({"expr": "u*2", "out": "u"}, {"expr": "7", "out": "u", "index": "0, 1:"}, {"expr": "flip(u)", "out": "u"}):
            c.expect(200, c.post("/v1/evaluate", body, headers=x.lease))
            now = c.expect(200, c.get("/v1/arrays/u/data", accept=NPY, headers=x.lease)).npy()  # waits for the work
            assert np.array_equal(m, now), body
        c.expect(204, c.request("PUT", "/v1/arrays/u/data", DATA.tobytes(), x.lease, content_type=OCTETS))
        c.expect(200, c.get("/v1/arrays/u/data", headers=x.lease))
        assert np.array_equal(m, DATA)


def test_any_bytes_may_be_written(c):
    """A client's bools are what he wrote: whatever is not 0 is true, as in uploads."""
    a = np.array([0, 1, 2, 255, 128], "uint8")
    c.upload(a > 0, "a")
    with Export(c, "a", "write") as x:
        x.array().view("uint8")[...] = a
    for expr, want in (("where(a, 1, 0)", (a > 0).astype(int)), ("sum(a)", 4), ("astype(a, 'int64')", (a > 0).astype(int)),
                       ("~a", a == 0), ("a == (where(a, 1, 0) == 1)", np.ones(5, bool)), ("all(a[1:])", True)):
        assert np.array_equal(c.evaluate(expr), want), expr
    assert c.expect(200, c.get("/v1/arrays/a/data")).body == (a > 0).tobytes()
    c.upload(np.arange(5.), "t")
    c.upload(np.arange(3), "i")
    with Export(c, "i", "write") as x:
        x.array()[...] = [4, 1 << 62, -1]
    c.fails(422, "bad_index", c.post("/v1/evaluate", {"expr": "take(t, i)", "inline": True}))


def test_views(c):
    a = np.arange(2 * 300 * 40, dtype="float32").reshape(2, 300, 40)
    c.upload(a, "a")
    base = None
    for index in ("...", "1", "0, 5:200:3, ::-2", ":, :, 7", "None, 1, ::-1", "1, 299, 39"):
        c.expect(201, c.post("/v1/arrays/a/views", {"index": index, "name": "v"}))
        with Export(c, "v", "write") as x:
            want = eval(f"a[{index}, ...]") if index != "..." else a
            assert np.array_equal(x.array(), want), index
            assert x.reply["strides"] == [s // 4 for s in want.strides], index
            base = base if base is not None else x.reply["offset"]
            assert x.reply["offset"] - base == (want.ctypes.data - a.ctypes.data) // 4, index
            x.array()[...] += 1
            want += 1
        assert np.array_equal(c.download("a"), a), index
        c.expect(204, c.delete("/v1/arrays/v"))
    c.expect(201, c.post("/v1/arrays/a/views", {"dtype": "uint8", "name": "bytes"}))
    with Export(c, "bytes") as x:
        assert np.array_equal(x.array(), a.view("uint8"))


def test_an_array_with_ghosts(c):
    a = np.arange(12.).reshape(3, 4)
    c.create(name="g", ghost=[1, 2], shape=[3, 4], boundary=["periodic", "periodic"])
    c.expect(200, c.post("/v1/evaluate", {"expr": "x", "bind": {"x": c.upload(a)["id"]}, "out": "g"}))
    with Export(c, "g", "write") as x:
        assert np.array_equal(x.array(), a)
        x.array()[0] = -1
    c.expect(200, c.post("/v1/arrays/g/fill_ghost", {}))
    whole = c.expect(200, c.get("/v1/arrays/g/data?ghost=1", accept=NPY)).npy()
    a[0] = -1
    assert np.array_equal(whole, np.pad(a, ((1, 1), (2, 2)), "wrap"))


def test_small_and_large(c):
    c.upload(np.float64(2.5).reshape(()), "point")
    with Export(c, "point", "write") as x:
        assert x.reply["shape"] == x.reply["strides"] == [] and x.array() == 2.5
        x.array()[...] = 3.5
    assert c.evaluate("point + 1") == 4.5
    c.create(name="none", shape=[0, 3])
    assert "an empty array" in c.fails(409, "conflict", c.post("/v1/arrays/none/export", {"mode": "read"}))["detail"]
    big = np.arange(1 << 18, dtype="float64")  # past export-threshold: where it was made
    c.upload(big, "big")
    with Export(c, "big", "write") as x:
        assert np.array_equal(x.array(), big)
        x.array()[::1000] = -1
        big[::1000] = -1
    assert np.array_equal(c.download("big"), big)


def test_work_on_its_way_is_waited_for(c):
    """The reply comes when what was sent before has been done, on whatever stream."""
    a = c.upload(np.zeros((256, 256)))["id"]
    sessions = [c.clone(session=c.post("/v1/sessions", {}).json()["id"]) for _ in range(2)]
    for k in range(12):
        body = {"expr": "cos(sin(a)) * 0 + a + 1", "out": a, "bind": {"a": a}}
        sessions[k % 2].expect(200, sessions[k % 2].post("/v1/evaluate", body))
        with Export(c, a, "write" if k % 3 else "read") as x:
            assert np.all(x.array() == k + 1)
    for s in sessions:
        s.close()


@pytest.mark.in_turn
def test_nobody_writes_who_looked_before(daemon_with, tmp_path):
    """Requests that found no lease and are still being planned have sent their work when an export is handed out."""
    d = daemon_with("--backend", "cpu", "--allow-export", "--listen", f"unix:{tmp_path}/s")
    c = d.client()
    c.upload(np.zeros(4), "u")
    over, wrong = [], 0

    def crowd(k):
        mine = c.clone()
        body = {"expr": "+".join(["u"] + [f"u*{i}" for i in range(150)]) + f"+{k}", "out": "u"}
        while not over:
            mine.post("/v1/evaluate", body, check=False)
        mine.close()

    threads = [threading.Thread(target=crowd, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for k in range(300):
        with Export(c, "u", "write") as x:
            a = x.array()
            a[...] = k
            until = time.monotonic() + 0.002
            while time.monotonic() < until:
                pass
            wrong += not np.all(a == k)
    over.append(True)
    for t in threads:
        t.join()
    assert wrong == 0


def test_who_does_not_wait_for_it(c):
    """An export that is asked for while work is under way, and given up, leaves nothing."""
    a = c.upload(np.zeros(1 << 19))["id"]
    url, mode = f"/v1/arrays/{a}/export", {"mode": "write"}
    body = {"expr": "+".join(["sin(a)"] + [f"cos(a*{k})" for k in range(30)]), "out": a, "bind": {"a": a}}
    late = k = 0
    while late < 2:  # where the machine is busy the work may be over before it is asked
        k += 1
        assert k < 60
        c.expect(200, c.post("/v1/evaluate", body))
        if k % 2:
            r = c.post(url, mode, headers={"Prefer": "wait=0"})
            late += r.status == 504
            if r.status == 201:
                c.expect(204, c.delete(f"/v1/arrays/{a}/lease", headers={"Arrayd-Lease": r.json()["lease"]}))
        else:
            other = c.clone()
            other.connect().request("POST", url, json.dumps(mode), {"Content-Type": "application/json"})
            other.close()
        deadline = time.monotonic() + 20
        while (r := c.post(url, {"mode": "read"})).status == 409 or figures(c)[""] > 1:
            assert time.monotonic() < deadline
        assert r.status == 201
        c.expect(204, c.delete(f"/v1/arrays/{a}/lease", headers={"Arrayd-Lease": r.json()["lease"]}))


def test_memory_is_given_back_and_cleared(c, d):
    """What was exported is nobody else's later, and new memory holds nothing of it."""
    before = settle(c, None, 0.1)
    c.upload(np.full(1 << 17, 7.), "a")  # 1 MiB
    with Export(c, "a", "write") as x:
        mine = x.array()
        c.expect(204, c.delete("/v1/arrays/a", headers=x.lease))
        mine[...] = 9  # the memory is there until the export's end
        assert settle(c, -1, 0.1) >= before + mine.nbytes
        c.fails(404, "not_found", c.get("/v1/arrays/a"))
    assert settle(c, before) == before
    for _ in range(4):
        c.create(name="b", shape=[1 << 17])
        mine[...] = 13  # still mapped
        assert not c.download("b").any()
        c.expect(204, c.delete("/v1/arrays/b"))


# --- the lease ---

@pytest.mark.in_turn
def test_many_small_arrays_one_after_the_other(c, d):
    """What was theirs for an export they leave when it ends, where there is much of the kind."""
    before = descriptors(d.pid)
    each = 2 if c.info()["backend"] == "cuda" else 1  # the fake driver has one for itself
    arrays = {f"s{k}": np.arange(k, k + 3.0) for k in range(150)}
    for name, a in arrays.items():
        c.upload(a, name)
    for name, a in arrays.items():
        with Export(c, name, "write") as x:
            np.testing.assert_array_equal(x.array(), a)
            x.array()[1] = -1
            a[1] = -1
    until(lambda: descriptors(d.pid) <= before + 64 * each + 8)
    for name, a in arrays.items():
        np.testing.assert_array_equal(c.download(name), a)
    with Export(c, "s149") as x, Export(c, "s149") as y:
        np.testing.assert_array_equal(x.array(), arrays["s149"])
        x.finish()
        np.testing.assert_array_equal(y.array(), arrays["s149"])
    for name in arrays:
        c.expect(204, c.delete(f"/v1/arrays/{name}"))
    until(lambda: descriptors(d.pid) <= before + 8)


def test_each_device_keeps_its_own(gpu_with, tmp_path):
    """Memory for arrays of the same size: an eighth of every device's."""
    if os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("of two devices of 64 MiB")
    d = gpu_with("--allow-export", "--export-threshold", "1MiB", "--listen", f"unix:{tmp_path}/s",
                 environment={"ARRAYD_FAKE_DEVICES": "2", "ARRAYD_FAKE_MEMORY": str(64 << 20)})
    c = d.client(unix=d.unix)

    def kept():
        return int(re.search(r"^arrayd_shareable_kept_bytes (\d+)", c.get("/metrics").body.decode(), re.M)[1]) >> 20

    for device, most in enumerate((6, 12)):
        s = c.expect(201, c.post("/v1/sessions", {"device": device})).json()["id"]
        mine = c.clone(session=s)
        for _ in range(2):  # the second makes the first's memory go back
            both = [mine.create(shape=[n << 17])["id"] for n in (6, 4)]
            for ref in both[::-1]:
                mine.expect(204, mine.delete(f"/v1/arrays/{ref}"))
        until(lambda: kept() == most)  # noqa: B023
        mine.close()
    c.close()


def test_a_writer_keeps_all_others_out(c):
    prepare(c)
    with Export(c, "u", "write") as x:
        for request in READS + WRITES + UNDOES:
            assert "leased" in c.fails(409, "locked", send(c, *request))["detail"], request
        for request in FREE:
            assert send(c, *request).status == 200, request
        for ref, mode in (("u", "read"), ("w", "write")):
            c.fails(409, "locked", c.post(f"/v1/arrays/{ref}/export", {"mode": mode}))
            c.fails(409, "locked", c.post(f"/v1/arrays/{ref}/lease", {"mode": mode, "ttl_s": 1}))
        c.fails(409, "locked", c.delete("/v1/arrays/u/lease"))
        c.fails(409, "locked", c.delete("/v1/arrays/u"))
        for request in READS + WRITES:  # his own
            assert send(c, *request, token=x.reply["lease"]).status < 300, request
        for request in [*UNDOES, ("POST", "/v1/arrays/u/resize", {"shape": [2, 3]}), ("PATCH", "/v1/arrays/u", {"location": "host"}),
                        ("PATCH", "/v1/arrays/u", {"read_only": True})]:
            c.fails(409, "locked", send(c, *request, token=x.reply["lease"]))
        c.fails(409, "conflict", c.post("/v1/arrays/u/lease", {"mode": "read"}, headers=x.lease))
    for request in READS + WRITES:
        assert send(c, *request).status < 300, request


def test_readers_keep_writers_out(c):
    prepare(c)
    with Export(c, "u") as x, Export(c, "w") as y:
        for request in READS + FREE:
            assert send(c, *request).status < 300, request
        for request in WRITES + UNDOES:
            c.fails(409, "locked", send(c, *request))
            c.fails(409, "locked", send(c, *request, token=x.reply["lease"]))
        c.fails(409, "locked", c.post("/v1/arrays/u/export", {"mode": "write"}))
        y.finish()
        for request in WRITES:  # alone
            assert send(c, *request, token=x.reply["lease"]).status < 300, request
        for request in [*UNDOES, ("POST", "/v1/arrays/u/resize", {"shape": [7]})]:
            c.fails(409, "locked", send(c, *request, token=x.reply["lease"]))
    for request in DELETES:
        assert send(c, *request).status < 300, request


def test_beside_leases(c):
    lease = c.expect(201, c.post("/v1/arrays/u/lease", {"mode": "write", "ttl_s": 60})).json()["token"]
    mine = {"Arrayd-Lease": lease}
    c.fails(409, "locked", c.post("/v1/arrays/u/export", {"mode": "read"}))
    with Export(c, "u", "write", lease=lease) as x:
        c.fails(409, "locked", c.get("/v1/arrays/u/data", headers=mine))
        both = {"Arrayd-Lease": f"{lease}, {x.reply['lease']}"}
        c.expect(200, c.get("/v1/arrays/u/data", headers=both))
        c.expect(200, c.post("/v1/arrays/u/lease", {"mode": "read", "ttl_s": 60}, headers=both))
    c.expect(200, c.get("/v1/arrays/u/data"))  # it is a reader's now
    with Export(c, "u") as x:
        c.fails(409, "locked", c.post("/v1/arrays/u/export", {"mode": "write"}, headers=x.lease))
    c.expect(204, c.delete("/v1/arrays/u/lease", headers=mine))


def test_giving_the_lease_back_ends_the_export(c):
    x = Export(c, "u", "write")
    c.expect(204, c.delete("/v1/arrays/u/lease", headers=x.lease))
    c.expect(200, c.get("/v1/arrays/u/data"))
    assert x.socket.recv(1) == b""
    x.drop()
    y = Export(c, "u", "write", take=False)  # a token that nobody wants any more
    c.expect(204, c.delete("/v1/arrays/u/lease", headers=y.lease))
    assert present(y.reply["socket"], y.reply["token"])[1]["code"] == "not_found"
    c.fails(404, "not_found", c.delete("/v1/arrays/u/lease", headers=y.lease))


def test_tags(c):
    first = c.expect(200, c.get("/v1/arrays/u/data")).headers["ETag"]
    with Export(c, "u") as x:
        assert c.get("/v1/arrays/u/data", headers={"If-None-Match": first}).status == 304
    assert c.get("/v1/arrays/u/data").headers["ETag"] == first  # reading changes nothing
    with Export(c, "u", "write") as x:
        r = c.expect(200, c.get("/v1/arrays/u/data", headers={**x.lease, "If-None-Match": first}))
        assert "ETag" not in r.headers
        put = {**x.lease, "If-Match": first}
        r = c.request("PUT", "/v1/arrays/u/data", DATA.tobytes(), put, content_type=OCTETS)
        c.fails(412, "precondition_failed", r)
        r = c.get("/v1/arrays/u/data", headers={**x.lease, "Range": "bytes=0-7", "If-Range": first})
        assert (r.status, len(r.body)) == (200, DATA.nbytes)
        c.expect(206, c.get("/v1/arrays/u/data", headers={**x.lease, "Range": "bytes=0-7"}))
    r = c.get("/v1/arrays/u/data", headers={"If-None-Match": first})
    assert r.status == 200 and r.headers["ETag"] != first


def rested(c, job):
    """The job, once a lease keeps it from going on."""
    until(lambda: "waiting" in c.get(f"/v1/jobs/{job}").json())
    j = c.get(f"/v1/jobs/{job}").json()
    assert j["state"] in ("queued", "running") and "is leased for" in j["waiting"]
    return j


def test_a_program_rests_while_somebody_exports(c):
    job = c.expect(202, c.post("/v1/programs", {"body": ["u += 1"], "steps": 10**12})).json()["id"]
    for _ in range(3):
        with Export(c, "u") as x:
            j = rested(c, job)
            now = c.download("u")
            assert np.array_equal(now, DATA + j["step"]) and np.array_equal(x.array(), now)
        until(lambda: c.get(f"/v1/jobs/{job}").json()["step"] > j["step"])  # it goes on
    c.expect(200, c.delete(f"/v1/jobs/{job}"))


def test_a_program_fills_the_ghosts_of_memory_that_stays(c):
    """What has been exported keeps its memory: interior and ghosts are copied there."""
    wall = {"type": "dirichlet", "value": 0}
    c.expect(201, c.post("/v1/arrays", {"name": "g", "data": [1.0, 2.0, 3.0], "ghost": [1], "boundary": [[wall, wall]]}))
    with Export(c, "g", "write"):
        pass
    c.expect(200, c.post("/v1/programs?wait=1", {"body": ["fill_ghost(g)", "g *= 2"], "steps": 3}))
    assert c.get("/v1/arrays/g/data?ghost=1").array("float64", [5]).tolist() == [-4, 8, 16, 24, -12]


@pytest.mark.parametrize("how", ["export", "lease"])
def test_a_program_reads_nothing_that_somebody_writes(c, how):
    c.upload(np.zeros(DATA.shape), "w")
    job = c.expect(202, c.post("/v1/programs", {"body": ["u += w"], "steps": 10**12, "record": {"r": "sum(w)"},
                                                "record_every": 10**9})).json()["id"]
    lease = None if how == "export" else c.expect(201, c.post("/v1/arrays/w/lease", {"mode": "write"})).json()["token"]
    with Export(c, "w", "write", lease=lease) as x:
        x.array()[...] = 1
        step = rested(c, job)["step"]
        assert np.array_equal(c.download("u"), DATA)  # what it had before
        c.fails(409, "locked", c.post("/v1/programs", {"body": ["u += w"], "steps": 1}))
    if lease:
        c.expect(204, c.delete("/v1/arrays/w/lease", headers={"Arrayd-Lease": lease}))
    until(lambda: c.get(f"/v1/jobs/{job}").json()["step"] > step)
    j = c.expect(200, c.delete(f"/v1/jobs/{job}")).json()
    assert np.array_equal(c.download("u"), DATA + (j["step"] - step))


def test_figures(c):
    """One memory counts once, as often as it is exported."""
    with Export(c, "u") as x, Export(c, "u"), Export(c, "u", take=False) as y:
        assert figures(c)["_bytes"] == x.reply["size"] and figures(c)[""] == 3
        c.expect(204, c.delete("/v1/arrays/u/lease", headers=y.lease))
    assert figures(c)["_bytes"] == 0


def test_a_download_is_a_snapshot(c):
    """What is read before the memory is exported for writing is what there was."""
    a = np.zeros(1 << 20)
    c.upload(a, "a")
    other = c.clone()
    other.connect().request("GET", "/v1/arrays/a/data")
    reply = other.conn.getresponse()
    got = reply.read(1 << 16)
    with Export(c, "a", "write") as x:
        x.array()[...] = 1
        while piece := reply.read(1 << 20):
            got += piece
    other.close()
    assert not np.frombuffer(got).any() and len(got) == a.nbytes


def test_who_has_read_it_all_can_write(c):
    """A download of exported memory is in the way of writers only as long as somebody reads it."""
    n = 1 << 18
    c.upload(np.zeros(n), "a")
    with Export(c, "a") as x:
        for k in range(20):
            if k % 10 < 9:
                c.expect(200, c.get("/v1/arrays/a/data" + ("?index=0:9" if k % 2 else ""), headers=x.lease))
            else:
                c.expect(200, c.get("/v1/arrays/a/data?index=0:20000", accept="application/json", headers=x.lease))
            c.expect(200, c.post("/v1/evaluate", {"expr": "a + 1", "out": "a"}, headers=x.lease))
        c.expect(200, c.get("/v1/arrays/a/data?index=0", headers=x.lease))
        assert np.all(x.array() == 20)


def test_many_at_once(c, d):
    """Writers one after the other, each adding 1 to what it finds; nobody's work is lost."""
    c.upload(np.zeros(1000), "n")
    done, wrong = [], []

    def work():
        mine = c.clone()
        while len(done) < 60:
            r = mine.post("/v1/arrays/n/export", {"mode": "write"}, check=False)
            if r.status == 409:
                continue
            reply = r.json()
            s, said, fds = present(reply["socket"], reply["token"])
            with mmap.mmap(fds[0], reply["size"]) as m:
                a = np.ndarray(1000, "float64", m, 8 * reply["offset"])
                now = a + 1
                if a.min() != a.max():
                    wrong.append(a)
                a[...] = now
                del a
            done.append(1)
            s.shutdown(1)
            s.recv(1)
            s.close()
            os.close(fds[0])
        mine.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and np.all(c.download("n") == len(done))


# --- who may ---

def test_off_unless_allowed(daemon_with, tmp_path):
    d = daemon_with("--backend", "cpu", "--listen", f"unix:{tmp_path}/s")
    c = d.client()
    c.upload(DATA, "u")
    assert c.info()["export"] is False and not (tmp_path / "s.fd").exists()
    assert "--allow-export" in c.fails(403, "forbidden", c.post("/v1/arrays/u/export", {"mode": "read"}))["detail"]
    d = daemon_with("--backend", "cpu", "--allow-export")
    assert "allow-export" in d.log()
    c = d.client()
    c.upload(DATA, "u")
    assert c.info()["export"] is False
    assert "Unix socket" in c.fails(403, "forbidden", c.post("/v1/arrays/u/export", {"mode": "read"}))["detail"]


def test_over_the_unix_socket_only(c, d):
    info = c.info()
    assert info["export"] is True
    assert (info["limits"]["export_timeout"], info["limits"]["max_exports"]) == (5, 100)
    tcp = d.client()
    assert "Unix socket" in tcp.fails(403, "forbidden", tcp.post("/v1/arrays/u/export", {"mode": "read"}))["detail"]
    tcp.close()


def test_mistakes(c):
    url = "/v1/arrays/u/export"
    assert c.fails(422, "bad_field", c.post(url, {"mode": "both"}))["pointer"] == "/mode"
    assert c.fails(422, "bad_field", c.post(url, {}))["pointer"] == "/mode"
    assert c.fails(422, "unknown_field", c.post(url, {"mode": "read", "ttl_s": 1}))["pointer"] == "/ttl_s"
    c.fails(400, "bad_query", c.post(url + "?mode=read", {"mode": "read"}))
    c.fails(404, "not_found", c.post("/v1/arrays/nobody/export", {"mode": "read"}))
    c.fails(415, "unsupported_media_type", c.request("POST", url, b"mode=read", content_type="text/plain"))
    c.fails(406, "not_acceptable", c.post(url, {"mode": "read"}, accept=NPY))
    assert c.request("GET", url).headers["Allow"].replace(" ", "") == "POST,OPTIONS"
    c.expect(200, c.patch("/v1/arrays/u", {"read_only": True}))
    c.fails(409, "read_only", c.post(url, {"mode": "write"}))
    if is_gpu(c):  # nothing would keep who has it from writing
        c.fails(403, "forbidden", c.post(url, {"mode": "read"}))
    else:
        Export(c, "u").finish()
    c.expect(200, c.patch("/v1/arrays/u", {"read_only": False}))


def test_as_many_as_allowed(daemon_with, tmp_path):
    d = daemon_with("--backend", "cpu", "--allow-export", "--max-exports", 3, "--max-leases", 5, "--listen", f"unix:{tmp_path}/s")
    c = d.client()
    c.upload(DATA, "u")
    held = [Export(c, "u", take=take) for take in (True, False, True)]
    assert "max_exports" in c.fails(429, "quota_exceeded", c.post("/v1/arrays/u/export", {"mode": "read"}))["detail"]
    held.pop().finish()
    Export(c, "u").finish()
    for _ in range(3):
        c.expect(201, c.post("/v1/arrays/u/lease", {"mode": "read"}))
    assert "max_leases" in c.fails(429, "quota_exceeded", c.post("/v1/arrays/u/export", {"mode": "read"}))["detail"]
    assert figures(c)[""] == 2


def test_sharing(daemon_with, accounts, tmp_path):
    """What a share allows can be exported, and no longer than it lasts; another's array is as a missing one."""
    for name in ("ann", "bob", "eve"):
        accounts.add(name, role="operator")
    d = daemon_with("--backend", "cpu", "--allow-export", "--accounts", accounts.path, "--listen", f"unix:{tmp_path}/s")
    ann, bob, eve = (accounts.client(d, name) for name in ("ann", "bob", "eve"))
    a = ann.upload(DATA, "a")["id"]
    url = f"/v1/arrays/{a}/export"
    bob.fails(404, "not_found", bob.post(url, {"mode": "read"}))
    ann.expect(201, ann.post("/v1/arrays/a/shares", {"principal": "bob", "access": "read"}))
    bob.fails(403, "forbidden", bob.post(url, {"mode": "write"}))
    x, y = Export(bob, a), Export(bob, a, take=False)
    eve.fails(404, "not_found", eve.delete(f"/v1/arrays/{a}/lease", headers=x.lease))
    assert np.array_equal(x.array(), DATA)
    ann.fails(409, "locked", ann.request("PUT", "/v1/arrays/a/data", DATA.tobytes(), content_type=OCTETS))
    ann.expect(204, ann.delete("/v1/arrays/a/shares/bob"))
    assert x.socket.recv(1) == b"" and present(y.reply["socket"], y.reply["token"])[1]["status"] == 404
    x.drop()
    ann.expect(204, ann.request("PUT", "/v1/arrays/a/data", DATA.tobytes(), content_type=OCTETS))
    ann.expect(201, ann.post("/v1/arrays/a/shares", {"principal": "bob", "access": "write"}))
    with Export(bob, a, "write") as x:
        x.array()[0, 0] = 42
        text = ann.get("/metrics").body.decode()
        assert 'arrayd_principal_exports{principal="bob"} 1' in text
    assert ann.download("a")[0, 0] == 42
    x, y = Export(bob, a), Export(bob, a)
    assert figures(ann)[""] == 2
    accounts.write("[ann]\n" + accounts.path.read_text().split("[ann]\n")[1].split("[")[0])  # bob has no account any more
    accounts.reload(d)
    assert x.socket.recv(1) == b"" and y.socket.recv(1) == b""
    x.drop(), y.drop()
    assert figures(ann)[""] == 0


def test_alignment_is_that_of_the_mapping(c):
    """What has been asked for holds in the memory that others map, small arrays included."""
    for name, more in (("plain", {}), ("padded", {"ghost": [1]})):
        m = c.expect(201, c.post("/v1/arrays", {"name": name, "data": [1.0, 2.0, 3.0], "alignment": 4096, **more})).json()
        assert m["alignment"] == 4096
        with Export(c, name) as x:
            assert 8 * x.reply["offset"] % 4096 == 0 and x.array().tolist() == [1, 2, 3]
