"""Programs and what others do meanwhile: they write to the arrays, exchange, move, hold and forbid them. No step is
lost or made twice, and nobody sees half of one. And kernels that cannot be compiled."""
import random
import socket
import stat
import threading
import time

import numpy as np
import pytest

from conftest import until
from test_programs import both, job, start  # noqa: F401
from test_reductions import hold

SHAPE = (40, 30)


def the_one(api, ref):
    """The number that all elements are."""
    a = api.download(ref)
    assert (a == a.flat[0]).all()
    return int(a.flat[0])


def test_no_arrays_at_all(both):  # noqa: F811
    """Nothing is to be done in a step, whatever ran before."""
    for _ in range(2):
        r = both.expect(200, both.post("/v1/programs?wait=1", {"body": ["n = 1"], "steps": 5})).json()
        assert (r["state"], r["step"]) == ("done", 5)


@pytest.mark.in_turn
def test_short_programs_beside_a_long_one_on_the_same_array(both):  # noqa: F811
    """Slices on one array take turns: nobody's come to nothing again and again."""
    hold(both, "u", np.zeros(10_000))
    ref = start(both, ["u = u + 0"])
    until(lambda: job(both, ref)["step"] > 0)
    for i in range(8):
        r = both.expect(200, both.post("/v1/programs?wait=1", {"body": ["u = u + 1"], "steps": 5})).json()
        assert (r["state"], r["step"]) == ("done", 5), r
    r = both.expect(200, both.delete(f"/v1/jobs/{ref}")).json()
    assert r["state"] == "cancelled" and both.download("u")[[0, -1]].tolist() == [40, 40]


@pytest.mark.in_turn
def test_two_jobs_on_one_array(both):  # noqa: F811
    """Both count on the same array, requests add to it, and it is exchanged with another."""
    c, rng, added = both, random.Random(1), 0
    for name in "ux":
        hold(c, name, np.zeros(SHAPE, "int64"))
    u = c.meta("u")["id"]
    other = c.clone(session=c.expect(201, c.post("/v1/sessions", {})).json()["id"])
    refs = [start(c, ["t = u + 1", "u = t"]), start(other, ["a += 10**6"], bind={"a": u})]
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        what = rng.randrange(5)
        if what == 0:
            c.expect(200, rng.choice([c, other]).post(
                "/v1/evaluate", {"expr": "a + 10**13", "out": u, "bind": {"a": u}}))
            added += 1
        elif what == 1:
            c.expect(200, c.post("/v1/arrays/u/swap", {"with": "x"}))
        elif what == 2:
            c.expect(200, c.patch("/v1/arrays/u", {"location": rng.choice(["host", "device"])}))
        elif what == 3:
            ref = rng.choice(refs)
            c.expect(200, c.delete(f"/v1/jobs/{ref}"))
            c.expect(202, c.post(f"/v1/jobs/{ref}/resume"))
        else:
            the_one(c, "u")
    ended = [c.expect(200, c.delete(f"/v1/jobs/{ref}")).json() for ref in refs]
    assert [j["state"] for j in ended] == ["cancelled"] * 2
    made = ended[0]["step"] + 10**6 * ended[1]["step"] + 10**13 * added
    assert the_one(c, "u") + the_one(c, "x") == made
    c.expect(204, c.delete(f"/v1/sessions/{other.session}"))
    other.close()


@pytest.mark.parametrize("body,viewed", [
    (["u += 1", "v = u*2"], False),
    (["u[:] += 1", "v = u*2"], True),
    (["t = shift(u, [1, 0], 'wrap') + 1", "u = t", "m = max(u)", "v = m + u"], False)])
def test_whatever_others_do(both, body, viewed):  # noqa: F811
    """Held downloads, arrays in host memory, leases, read-only ones, and jobs that are resumed: u counts the steps."""
    c, rng, held = both, random.Random(2), []
    hold(c, "v", np.zeros(SHAPE, "int64"))
    if viewed:
        hold(c, "base", np.zeros((SHAPE[0] + 2, SHAPE[1]), "int64"))
        c.expect(201, c.post("/v1/arrays/base/views", {"index": "1:-1", "name": "u"}))
    else:
        hold(c, "u", np.zeros(SHAPE, "int64"))
    ref = start(c, body)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        what = rng.randrange(6)
        if what == 0:
            s = socket.create_connection((c.host, c.port), timeout=20)
            s.sendall(b"GET /v1/arrays/u/data HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            held.append(s)
        elif what == 1 and not viewed:
            c.expect(200, c.patch("/v1/arrays/u", {"location": rng.choice(["host", "device"])}))
        elif what == 2:
            r = c.expect(201, c.post("/v1/arrays/u/lease", {"mode": rng.choice(["read", "write"]), "ttl_s": 60}))
            until(lambda: "waiting" in job(c, ref))
            c.expect(204, c.delete("/v1/arrays/u/lease", headers={"Arrayd-Lease": r.json()["token"]}))
        elif what == 3:
            c.expect(200, c.patch("/v1/arrays/u", {"read_only": True}))
            was = the_one(c, "u")
            until(lambda: job(c, ref)["state"] == "failed")
            assert the_one(c, "u") == was == job(c, ref)["step"]
            c.expect(200, c.patch("/v1/arrays/u", {"read_only": False}))
            c.expect(202, c.post(f"/v1/jobs/{ref}/resume"))
        elif what == 4:
            r = c.expect(200, c.delete(f"/v1/jobs/{ref}")).json()
            assert the_one(c, "u") == r["step"]
            c.expect(202, c.post(f"/v1/jobs/{ref}/resume"))
        elif what == 5:
            assert c.evaluate("max(u) - min(u)", inline=True) == 0
    r = c.expect(200, c.delete(f"/v1/jobs/{ref}")).json()
    assert r["state"] == "cancelled" and the_one(c, "u") == r["step"] and the_one(c, "v") == 2 * r["step"]
    for s in held:
        got = b""
        while chunk := s.recv(1 << 20):
            got += chunk
        s.close()
        head, _, body = got.partition(b"\r\n\r\n")
        if b" 409 " in head.split(b"\r\n")[0]:
            continue  # it came when there was a lease
        a = np.frombuffer(body, "int64")
        assert a.size == np.prod(SHAPE) and (a == a[0]).all()


def test_a_job_that_is_resumed_while_it_is_stopped(both):  # noqa: F811
    """Who stops it has an answer though others let it go on in the same moment."""
    hold(both, "u", np.zeros(6))
    ref, stopped = start(both, ["u += 1"]), []

    def stop(c):
        while len(stopped) < 40:
            stopped.append(c.expect(200, c.delete(f"/v1/jobs/{ref}")).json()["state"])
            until(lambda: c.post(f"/v1/jobs/{ref}/resume").status in (202, 409))

    def resume(c):
        while len(stopped) < 40:
            c.post(f"/v1/jobs/{ref}/resume")

    threads = [threading.Thread(target=f, args=(both.clone(),), daemon=True) for f in (stop, resume, resume, resume)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(stopped) == 40 and set(stopped) <= {"cancelled", "queued", "running"}


def test_many_begin_at_once(both):  # noqa: F811
    """Programs on one array that several threads begin, and that are stopped and forgotten meanwhile: each step counts."""
    hold(both, "u", np.zeros(6))
    done = []

    def go(c):
        for _ in range(15):
            r = c.expect(200, c.post("/v1/programs?wait=1", {"body": ["u += 1"], "steps": 5})).json()
            assert r["step"] == 5 or r["state"] == "cancelled"
            done.append(r["step"])

    def stop(c):
        while any(t.is_alive() for t in threads):
            for j in c.expect(200, c.get("/v1/jobs")).json()["jobs"]:
                assert c.delete(f"/v1/jobs/{j['id']}").status in (200, 204, 404)

    threads = [threading.Thread(target=go, args=(both.clone(),), daemon=True) for _ in range(6)]
    stopper = threading.Thread(target=stop, args=(both.clone(),), daemon=True)
    for t in (*threads, stopper):
        t.start()
    for t in (*threads, stopper):
        t.join(60)
    assert len(done) == 90 and the_one(both, "u") == sum(done)


def test_a_resized_array_ends_it(both):  # noqa: F811
    """What the steps would go to is not what the name means any more."""
    hold(both, "u", np.zeros(6))
    hold(both, "v", np.zeros(6))
    ref = start(both, ["u += 1", "v += 1"])
    until(lambda: job(both, ref)["step"] > 0)
    both.expect(200, both.post("/v1/arrays/u/resize", {"shape": [7]}))
    for _ in range(2):
        until(lambda: job(both, ref)["state"] == "failed")
        r = job(both, ref)
        assert r["error"]["code"] == "conflict" and the_one(both, "v") == r["step"] and the_one(both, "u") == 0
        both.expect(202, both.post(f"/v1/jobs/{ref}/resume"))
    until(lambda: job(both, ref)["state"] == "failed")


@pytest.mark.in_turn
@pytest.mark.parametrize("said", ["define AR_T ", "out1_;"])
def test_kernels_that_cannot_be_compiled(gpu_with, tmp_path, said):
    """Those of several steps, or of several statements: the statements run by themselves then."""
    compiler = tmp_path / "c++"
    compiler.write_text(f"""#!/bin/sh
for a; do case "$a" in *.cu) grep -q '{said}' "$a" && exit 1;; esac; done
exec "${{REAL_CXX:-g++}}" "$@"
""")
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "cache").mkdir()
    c = gpu_with(environment={"ARRAYD_FAKE_CXX": str(compiler), "ARRAYD_FAKE_CACHE": str(tmp_path / "cache")}).client()
    rng = np.random.default_rng(3)
    one, many = (c.clone(session=c.expect(201, c.post("/v1/sessions", {})).json()["id"]) for _ in range(2))
    for name in "uv":
        a = rng.random((9, 12))
        for session in (one, many):
            session.upload(a, name)
    for _ in range(20):
        one.expect(200, one.post("/v1/evaluate", {"expr": "u + 0.1*laplacian(u, boundary='wrap')", "out": "u"}))
        one.expect(200, one.post("/v1/evaluate", {"expr": "u*v", "out": "v"}))
    body = ["u += 0.1*laplacian(u, boundary='wrap')", "v = u*v"]
    told = many.expect(200, many.post("/v1/programs?wait=1", {"body": body, "steps": 20})).json()
    assert (told["state"], told["step"], told["pass"]["steps"]) == ("done", 20, 1)
    assert "could not be compiled" in told["pass"]["why"]
    for name in "uv":
        np.testing.assert_array_equal(many.download(name), one.download(name))
    one.close()
    many.close()
    c.close()
