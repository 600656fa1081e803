"""Programs and jobs: what they compute against NumPy, and how they are watched, stopped, resumed."""
import json
import pathlib
import re
import socket
import threading
import time

import numpy as np
import pytest

from client import NPY, npy_bytes
from conftest import until
from test_reductions import hold


@pytest.fixture(params=["cpu", "cuda"])
def both(request):
    if request.param == "cpu":
        yield request.getfixturevalue("api")
        return
    c = request.getfixturevalue("gpu_with")().client()
    yield c
    c.close()


def run(api, body, steps=1, **fields):
    r = api.expect(200, api.post("/v1/programs?wait=1", {"body": body, "steps": steps, **fields})).json()
    assert r["state"] == "done" or "error" in r or r["state"] == "cancelled", r
    return r


def start(api, body, steps=10**12, **fields):
    r = api.expect(202, api.post("/v1/programs", {"body": body, "steps": steps, **fields}))
    assert r.headers["Location"] == f"/v1/jobs/{r.json()['id']}"
    return r.json()["id"]


def job(api, ref):
    return api.expect(200, api.get(f"/v1/jobs/{ref}")).json()


def laplacian(u):
    p = np.pad(u, 1, mode="edge")
    total = -2 * u.ndim * u
    for axis in range(u.ndim):
        for k in (0, 2):
            total = total + p[tuple(slice(k, k + n) if a == axis else slice(1, 1 + n)
                                    for a, n in enumerate(u.shape))]
    return total


# --- what is computed ---

def test_heat(both):
    """A temporary, an assignment with an operator, and what is recorded."""
    u = np.random.default_rng(0).random((30, 41))
    hold(both, "u", u)
    r = run(both, ["lap = laplacian(u, boundary='clamp')", "u += dt*lap"], 50, bind={"dt": 0.1},
            record={"energy": "sum(u*u)", "n": "count_nonzero(u > 0)", "any": "any(u > 2)"}, record_every=10)
    energy = []
    for k in range(50):
        u = u + 0.1 * laplacian(u)
        if k % 10 == 9:
            energy.append((u * u).sum())
    np.testing.assert_allclose(both.download("u"), u, rtol=1e-12)
    assert (r["state"], r["step"], r["steps"], r["record_every"], r["records_from"]) == ("done", 50, 50, 10, 0)
    np.testing.assert_allclose(r["records"]["energy"], energy, rtol=1e-12)
    assert r["records"]["n"] == [30 * 41] * 5 and r["records"]["any"] == [False] * 5
    assert r["steps_per_s"] > 0 and "eta_s" not in r and "ended" in r


def test_published_values(both):
    """1-D diffusion of a box, zero flux, 800 steps (OpenCurrent's unit test)."""
    hold(both, "u", np.where((np.arange(100) >= 40) & (np.arange(100) < 60), 1.0, 0.0))
    run(both, ["u += 0.1*laplacian(u, boundary='clamp')"], 800)
    np.testing.assert_allclose(both.download("u")[[0, 29, 49]], [0.00158441, 0.195173, 0.570679], atol=1e-6)


def test_order_regions_and_scalars(both):
    """Later statements see what earlier ones made; parts of arrays; numbers that stay on the device."""
    rng = np.random.default_rng(1)
    u, v = rng.random((12, 13)), rng.random((12, 13))
    hold(both, "u", u)
    hold(both, "v", v)
    body = ["dt = 0.5/max(abs(u))", "u[1:-1, ::2] = dt*u[1:-1, ::2] + v[1:-1, ::2]", "w = u + v",
            "v -= dt*shift(u, [1, 0])", "v[0] = 7", "w[:, 3] *= 2", "u[2, 3] //= 0.25", "u[0] = w[0]"]
    run(both, body, 7)
    for _ in range(7):
        dt = 0.5 / np.abs(u).max()
        u = u.copy()
        u[1:-1, ::2] = dt * u[1:-1, ::2] + v[1:-1, ::2]
        w = u + v
        v = v - dt * np.concatenate([u[1:], u[-1:]])
        v[0] = 7
        w[:, 3] *= 2
        u[2, 3] //= 0.25
        u[0] = w[0]
    np.testing.assert_allclose(both.download("u"), u, rtol=1e-12)
    np.testing.assert_allclose(both.download("v"), v, rtol=1e-12)
    names = [a["name"] for a in both.expect(200, both.get("/v1/arrays")).json()["arrays"]]
    assert "w" not in names and "dt" not in names


def test_temporaries(both):
    """Written out or stored, a temporary is what it was where it was assigned."""
    u, v = (np.random.default_rng(k).random((9, 8)).astype("float32") for k in (4, 5))
    hold(both, "u", u)
    hold(both, "v", v)
    body = ["dt = 0.1", "half = dt*5", "old = u*half", "lap = laplacian(u, boundary='clamp')", "u += dt*lap", "v -= old",
            "twice = v*2", "v = twice - v*dt", "dt = 3", "i = index(0)*half + 0*v[0]", "u[2] = i*dt", "dt = sum(v)/1000",
            "u += dt", "row = u[1]", "row[3:] = 7", "v[0] = row"]
    run(both, body, 5, record={"dt": "dt", "half": "half"})
    one = np.float32
    for _ in range(5):
        old, lap = u * one(0.5), laplacian(u).astype("float32")
        u = u + one(0.1) * lap
        v = v - old
        v = v * one(2) - v * one(0.1)
        u[2] = (np.arange(8) * 0.5 + 0 * v[0]) * 3
        u = u + v.sum(dtype="float64").astype("float32") / one(1000)
        row = u[1].copy()
        row[3:] = 7
        v[0] = row
    np.testing.assert_allclose(both.download("u"), u, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(both.download("v"), v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 2, 3, 17])
def test_views_and_layouts(both, steps):
    """Targets that lie otherwise than their copies: views with steps, turned, of another array."""
    base = np.random.default_rng(2).random((20, 30))
    hold(both, "base", base)
    both.expect(201, both.post("/v1/arrays/base/views", {"index": "::-2, 1:20:3", "name": "part"}))
    run(both, ["part = part*0.5 + 1"], steps)
    for _ in range(steps):
        base[::-2, 1:20:3] = base[::-2, 1:20:3] * 0.5 + 1
    np.testing.assert_array_equal(both.download("base"), base)
    both.expect(201, both.post("/v1/arrays/base/views", {"permute": [1, 0], "name": "turned"}))
    run(both, ["turned += index(0)"], steps)
    np.testing.assert_allclose(both.download("base"), base + steps * np.arange(30))


def test_life(both):
    """Integers: Conway's Life on uint8, against NumPy."""
    w = np.random.default_rng(3).integers(0, 2, (40, 50)).astype("uint8")
    hold(both, "w", w)
    around = " + ".join(f"shift(w, [{i}, {j}], 'wrap')" for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
    run(both, [f"n = {around}", "w = astype((n == 3) | ((n == 2) & (w == 1)), 'uint8')"], 30)
    for _ in range(30):
        n = sum(np.roll(w, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        w = np.where((n == 3) | ((n == 2) & (w == 1)), 1, 0).astype("uint8")
    np.testing.assert_array_equal(both.download("w"), w)


def test_mandelbrot(api):
    hold(api, "z", np.zeros((40, 60), "complex128"))
    hold(api, "count", np.zeros((40, 60), "int32"))
    c = np.linspace(-2, 1, 60) + 1j * np.linspace(-1, 1, 40)[:, None]
    hold(api, "c", c)
    run(api, ["inside = abs(z) <= 2", "z = where(inside, z*z + c, z)", "count += inside"], 50)
    z, count = np.zeros_like(c), np.zeros(c.shape, int)
    for _ in range(50):
        inside = abs(z) <= 2
        z = np.where(inside, z * z + c, z)
        count += inside
    assert np.mean(api.download("count") == count) > 0.999


def test_functions(api):
    """The user's own functions are written out, also when they are deleted while the job runs."""
    hold(api, "u", np.ones(5))
    api.post("/v1/functions", {"name": "half_of", "params": ["x"], "expr": "x/2"})
    ref = start(api, ["u = half_of(u) + half_of(1.0*index(0))"])
    api.expect(204, api.delete("/v1/functions/half_of"))
    api.fails(404, "not_found", api.get("/v1/functions/half_of"))
    step = job(api, ref)["step"]
    until(lambda: job(api, ref)["step"] > step + 100)
    api.expect(200, api.delete(f"/v1/jobs/{ref}"))
    np.testing.assert_allclose(api.download("u"), np.arange(5.0), atol=1e-9)


def test_snapshots(both):
    hold(both, "u", np.zeros(4))
    r = run(both, ["u += 1", "v = u*2"], 10, snapshot={"u": 4})
    assert [(s["name"], s["step"]) for s in r["snapshots"]] == [("u", 4), ("u", 8)]
    for s in r["snapshots"]:
        np.testing.assert_array_equal(both.download(s["id"]), np.full(4, s["step"]))


def resident(daemon):
    """Bytes of the process in memory."""
    status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    return 1024 * int(re.search(r"^VmRSS:\s*(\d+) kB$", status, re.M)[1])


def test_a_million_steps(api, daemon):
    """No memory grows: three pointers a step would be seen. And no time is lost. A tiny array."""
    hold(api, "x", np.zeros(3))
    before = api.info()["bytes_in_use"]
    run(api, ["x += 1"], 100_000, record={"x": "max(x)"}, record_every=25_000)
    used = resident(daemon)
    r = run(api, ["x += 1"], 3_000_000, record={"x": "max(x)"}, record_every=750_000)
    assert r["records"]["x"] == [850_000, 1_600_000, 2_350_000, 3_100_000] and r["elapsed_s"] < 60
    assert resident(daemon) - used < 64 << 20  # a sanitizer keeps what is given back for a while
    until(lambda: api.info()["bytes_in_use"] == before)


# --- how it goes on ---

def test_cancel_and_resume(both):
    hold(both, "n", np.zeros(1000, "int64"))
    hold(both, "m", np.zeros((), "int64"))
    ref = start(both, ["n += 1", "m += 1"], 10**9)
    until(lambda: job(both, ref)["step"] > 0)
    assert job(both, ref)["state"] == "running" and job(both, ref)["eta_s"] > 0
    begun = time.monotonic()
    r = both.expect(200, both.delete(f"/v1/jobs/{ref}")).json()
    assert time.monotonic() - begun < 5
    assert r["state"] == "cancelled" and 0 < r["step"] < 10**9
    np.testing.assert_array_equal(both.download("n"), np.full(1000, r["step"]))
    assert both.download("m") == r["step"]
    both.expect(202, both.post(f"/v1/jobs/{ref}/resume"))
    until(lambda: job(both, ref)["step"] > r["step"])
    both.fails(409, "conflict", both.post(f"/v1/jobs/{ref}/resume"))
    r = both.expect(200, both.delete(f"/v1/jobs/{ref}")).json()
    assert both.download("m") == r["step"] and both.download("n")[-1] == r["step"]
    both.expect(204, both.delete(f"/v1/jobs/{ref}"))
    both.fails(404, "not_found", both.get(f"/v1/jobs/{ref}"))
    both.fails(404, "not_found", both.post(f"/v1/jobs/{ref}/resume"))


def test_a_cancelled_program_reaches_its_end(api):
    hold(api, "n", np.zeros(7))
    for steps in (300_000, 3_000_000, 30_000_000):
        api.expect(200, api.post("/v1/evaluate", {"expr": "n*0", "out": "n"}))
        ref = start(api, ["n += 1"], steps)
        until(lambda: job(api, ref)["step"] > 0)  # noqa: B023
        r = api.delete(f"/v1/jobs/{ref}")
        if r.status == 200:
            break  # it had not ended
    assert api.expect(200, r).json()["state"] == "cancelled"
    api.expect(202, api.post(f"/v1/jobs/{ref}/resume"))
    until(lambda: job(api, ref)["state"] == "done", 60)
    assert api.download("n")[0] == steps == job(api, ref)["step"]


def test_others_work_meanwhile(api):
    """Requests of the same session come between; what they write is what the next step reads."""
    hold(api, "n", np.zeros(10, "int64"))
    ref = start(api, ["n += 1"])
    until(lambda: job(api, ref)["step"] > 100)
    api.expect(200, api.post("/v1/evaluate", {"expr": "n*0 - 10**15", "out": "n"}))
    n = api.download("n")
    assert (n < 0).all() and (n == n[0]).all()
    r = api.expect(200, api.delete(f"/v1/jobs/{ref}")).json()
    after = api.download("n")
    assert (after == after[0]).all() and -10**15 <= after[0] < -10**15 + r["step"]


def test_others_wait_for_the_end(api):
    hold(api, "x", np.zeros(3))
    ref = start(api, ["x += 1"], steps=10**12)
    until(lambda: job(api, ref)["step"] > 0)
    other, said = api.clone(), []
    watcher = threading.Thread(target=lambda: said.append(other.get(f"/v1/jobs/{ref}?wait=1")))
    watcher.start()
    time.sleep(0.05)
    assert not said and job(api, ref)["state"] == "running"
    api.expect(200, api.delete(f"/v1/jobs/{ref}"))
    watcher.join(20)
    other.close()
    assert api.expect(200, said[0]).json()["state"] == "cancelled"
    hold(api, "y", np.full(3, np.nan))
    ref = run(api, ["y += 1"], steps=500, stop_on_nan=True)["id"]
    api.expect(200, api.post("/v1/evaluate", {"expr": "0", "out": "y"}))
    r = api.expect(200, api.post(f"/v1/jobs/{ref}/resume?wait=1")).json()
    assert (r["state"], r["step"]) == ("done", 500)
    api.expect(400, api.get(f"/v1/jobs/{ref}?wait=2"))


def test_a_client_that_goes_away(api):
    """The job goes on when who waits for it, or watches it, closes the connection."""
    hold(api, "x", np.zeros(3))
    body = json.dumps({"body": ["x += 1"], "steps": 10**12})
    for request in (f"POST /v1/programs?wait=1 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n{body}", None):
        if request is None:
            request = f"GET /v1/jobs/{ref}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"  # noqa: F821
        s = socket.create_connection((api.host, api.port))
        s.sendall(request.encode())
        until(lambda: [j for j in jobs(api) if j["state"] == "running"])
        time.sleep(0.1)
        s.close()
        ref = next(j["id"] for j in jobs(api) if j["state"] == "running")
    step = job(api, ref)["step"]
    until(lambda: job(api, ref)["step"] > step)
    api.expect(200, api.delete(f"/v1/jobs/{ref}"))


def jobs(api):
    return api.expect(200, api.get("/v1/jobs?limit=1000")).json()["jobs"]


def test_pages(api):
    hold(api, "x", np.zeros(3))
    made = [run(api, ["x += 1"])["id"] for _ in range(5)]
    seen, after = [], 0
    while True:
        page = api.expect(200, api.get(f"/v1/jobs?limit=2&after={after}")).json()
        seen += [j["id"] for j in page["jobs"]]
        if "next" not in page:
            break
        after = page["next"]
    assert [x for x in seen if x in made] == made
    assert all("records" not in j for j in jobs(api))


def test_a_job_goes_with_its_session(api):
    s = api.expect(201, api.post("/v1/sessions", {})).json()["id"]
    h = {"Arrayd-Session": s}
    api.expect(201, api.post("/v1/arrays", {"name": "x", "shape": [4]}, headers=h))
    r = api.expect(202, api.post("/v1/programs", {"body": ["x += 1"], "steps": 10**12}, headers=h)).json()
    until(lambda: job(api, r["id"])["step"] > 0)
    api.expect(204, api.delete(f"/v1/sessions/{s}"))
    api.fails(404, "not_found", api.get(f"/v1/jobs/{r['id']}"))
    assert r["id"] not in [j["id"] for j in jobs(api)]


def test_it_ends_with_the_daemon(daemon_with):
    """SIGTERM while programs run and are waited for: replies come, and the daemon ends cleanly."""
    d = daemon_with("--drain-timeout", "20")
    api, other = d.client(), d.client()
    hold(api, "x", np.zeros(100))
    start(api, ["x += 1"])
    replies = []
    t = threading.Thread(target=lambda: replies.append(other.post("/v1/programs?wait=1", {
        "body": ["x -= 1"], "steps": 10**12})))
    t.start()
    until(lambda: sum(j["state"] == "running" for j in jobs(api)) == 2)
    begun = time.monotonic()
    d.stop()
    t.join(20)
    assert time.monotonic() - begun < 10
    assert replies[0].status == 200 and replies[0].json()["state"] == "cancelled"


# --- mistakes ---

@pytest.mark.parametrize("body,code,pointer,offset", [
    (["u +="], "bad_expression", "/body/0", 4), (["u = 1", "u == 2"], "bad_expression", "/body/1", 0),
    (["3 = u"], "bad_expression", "/body/0", 0), (["u.x = 1"], "bad_expression", "/body/0", 1),
    (["u[1:-1 = 2"], "bad_expression", "/body/0", 0), (["u[x] = 2"], "bad_index", "/body/0", 2),
    ([" u[7] = 2"], "bad_index", "/body/0", 1), (["u = nix"], "unknown_name", "/body/0", 4),
    (["t = u", "t[9, 9] = 1"], "bad_index", "/body/1", 0), (["  t[0] = 1"], "unknown_name", "/body/0", 2),
    (["u = ones"], "unknown_name", "/body/0", 4), (["u = w"], "shape_mismatch", "/body/0", 0),
    (["u = 2j*u"], "dtype_mismatch", "/body/0", 0), (["   k = 5"], "bad_name", "/body/0", 3),
    ([" r += 1"], "read_only", "/body/0", 1), (["v = u + 1"], "overlap", "/body/0", 0),
    (["t = u + 1", " v[0] = t[0]"], "overlap", "/body/1", 1),
    (["t = roll(u, 1, axis=5)", "s = nix", "u = t*s"], "bad_axis", "/body/0", 20),  # the first, wherever it is computed
    (["q = u - 1", "t = q*w", "s = t + 1", "u = t[9]", "u = s"], "shape_mismatch", "/body/1", 5),
    (["q = u*nix", "t = u*w", "u = t + q"], "unknown_name", "/body/0", 6), (["q = u*nix", "t = u*w", "u = q + t"], "unknown_name", "/body/0", 6),
    (["t = u*w", "q = u*nix", "u = q + t"], "shape_mismatch", "/body/0", 5),
    (["u = a_very_long_name_a_very_long_name_a_very_long_name_a_very_long_name_", "x = 1"], "unknown_name", "/body/0", 4),
    ([" " + "a" * 70 + " = 1"], "bad_name", "/body/0", 1)])
def test_mistakes_in_statements(api, body, code, pointer, offset):
    hold(api, "u", np.zeros((4, 5)))
    hold(api, "w", np.zeros((3, 3)))
    hold(api, "r", np.zeros(3))
    api.expect(200, api.patch("/v1/arrays/r", {"read_only": True}))
    try:
        status = 409 if code == "read_only" else 422
        e = api.fails(status, code, api.post("/v1/programs", {"body": body, "bind": {"v": "u", "k": 3}}))
        assert e["pointer"] == pointer and e.get("offset") == offset, e
        assert not api.download("u").any()
    finally:
        api.expect(200, api.patch("/v1/arrays/r", {"read_only": False}))


@pytest.mark.parametrize("fields,code,pointer", [
    ({"body": []}, "bad_field", "/body"), ({"body": "u = 1"}, "bad_field", "/body"),
    ({"body": [1]}, "bad_field", "/body/0"), ({}, "bad_field", "/body"),
    ({"steps": 0}, "bad_field", "/steps"), ({"steps": 1.5}, "bad_field", "/steps"),
    ({"record": {}}, "bad_field", "/record"), ({"record": {"1x": "u"}}, "bad_name", "/record/1x"),
    ({"record": {"e": "u"}}, "shape_mismatch", "/record/e"), ({"record": {"e": "sum(u*1j)"}}, "dtype_mismatch", "/record/e"),
    ({"record": {"e": "sum(nix)"}}, "unknown_name", "/record/e"), ({"record_every": 0}, "bad_field", "/record_every"),
    ({"until": "u > 0"}, "shape_mismatch", "/until"), ({"until": "1 +"}, "bad_expression", "/until"),
    ({"until_every": 0}, "bad_field", "/until_every"), ({"snapshot": {"nix": 3}}, "unknown_name", "/snapshot/nix"),
    ({"snapshot": {"u": 0}}, "bad_field", "/snapshot/u"), ({"stop_on_nan": 1}, "bad_field", "/stop_on_nan"),
    ({"nix": 1}, "unknown_field", "/nix"), ({"bind": {"u": "nix"}}, "not_found", "/bind/u")])
def test_mistakes_in_the_body(api, fields, code, pointer):
    hold(api, "u", np.zeros((4, 5)))
    request = {"body": ["u = u + 1"], **fields} if fields else {"steps": 3}
    status = 404 if code == "not_found" else 422
    e = api.fails(status, code, api.post("/v1/programs", request))
    assert e["pointer"] == pointer, e
    assert not api.download("u").any()


@pytest.mark.parametrize("fields,code,pointer,said", [
    ({"steps": 10**18}, "inexact_number", "/steps", "from 1 to 9007199254740992"),
    ({"steps": str(10**18)}, "bad_field", "/steps", "from 1 to 9007199254740992"),
    ({"steps": 10**12, "record": {"e": "sum(u)"}}, "bad_field", "/record", "max-records")])
def test_too_many_steps(api, fields, code, pointer, said):
    """What is told leads somewhere: to the limit, to what it is called."""
    hold(api, "u", np.zeros(4))
    e = api.fails(422, code, api.post("/v1/programs", {"body": ["u += 1"], **fields}))
    assert e["pointer"] == pointer and said in e["detail"], e


def test_leases_bind_programs(api):
    hold(api, "u", np.zeros(4))
    lease = api.expect(201, api.post("/v1/arrays/u/lease", {"mode": "write", "ttl_s": 60})).json()["token"]
    api.fails(409, "locked", api.post("/v1/programs", {"body": ["u += 1"]}))
    h = {"Arrayd-Lease": lease}
    r = api.expect(200, api.post("/v1/programs?wait=1", {"body": ["u += 1"], "steps": 3}, headers=h)).json()
    assert r["state"] == "done"
    assert api.get("/v1/arrays/u/data", headers={**h, "Accept": NPY}).status == 200
    api.expect(204, api.delete("/v1/arrays/u/lease", headers=h))


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_leased_program_rests(api, mode):
    """After a whole step, for as long as somebody else has the lease; it can be cancelled, and goes on with what is there then."""
    hold(api, "u", np.zeros(4))
    ref = start(api, ["u += 1"])
    for turn in range(3):
        until(lambda: job(api, ref)["step"] > 100 * turn)
        h = {"Arrayd-Lease": api.expect(201, api.post("/v1/arrays/u/lease", {"mode": mode, "ttl_s": 60})).json()["token"]}
        until(lambda: "waiting" in job(api, ref))
        was = job(api, ref)
        assert was["state"] == "running" and "leased for " + ("reading" if mode == "read" else "writing") in was["waiting"]
        values = api.expect(200, api.get("/v1/arrays/u/data", headers={**h, "Accept": NPY})).npy()
        assert values.tolist() == [was["step"] + 1000 * turn] * 4
        time.sleep(0.1)
        now = job(api, ref)
        assert (now["step"], now["elapsed_s"]) == (was["step"], was["elapsed_s"])
        if turn == 2:
            break
        api.expect(200, api.post("/v1/evaluate", {"expr": "u + 1000", "out": "u"}, headers=h))
        api.expect(204, api.delete("/v1/arrays/u/lease", headers=h))
        until(lambda: job(api, ref)["step"] > now["step"] and "waiting" not in job(api, ref))
    end = api.expect(200, api.delete(f"/v1/jobs/{ref}")).json()
    assert end["state"] == "cancelled" and end["step"] == was["step"] and "waiting" not in end
    api.expect(204, api.delete("/v1/arrays/u/lease", headers=h))
    assert api.download("u").tolist() == [was["step"] + 2000] * 4


def test_no_memory_for_it(daemon_with):
    """Twice the array more is needed, and taken at once or not at all."""
    d = daemon_with("--session-memory", "100KiB")
    api = d.client()
    hold(api, "u", np.zeros(6000))
    api.fails(429, "quota_exceeded", api.post("/v1/programs", {"body": ["u += 1"]}))
    assert not api.download("u").any()
    hold(api, "u", np.zeros(3000))
    ref = start(api, ["u += 1"])
    until(lambda: job(api, ref)["step"] > 0)
    api.expect(200, api.delete(f"/v1/jobs/{ref}"))
    hold(api, "v", np.zeros(6000))  # what a cancelled job does not need is free
    api.expect(202, api.post(f"/v1/jobs/{ref}/resume"))
    until(lambda: job(api, ref)["state"] == "failed")
    r = job(api, ref)
    assert r["error"]["code"] == "quota_exceeded" and api.download("u")[0] == r["step"]
    api.close()


# --- what it may not do ---

def test_numbers_that_are_written_out_stay_few(api):
    """Each number names the two before it: written out they would double with each statement."""
    hold(api, "u", np.ones(3))
    body = ["a0 = 1", "a1 = 1"] + [f"a{k} = a{k-1} + a{k-2}" for k in range(2, 60)] + ["u += a59"]
    assert api.fails(422, "expression_too_large", api.post("/v1/programs", {"body": body}))["pointer"] == "/body/17"
    run(api, [f"a{k} = {k}.5" for k in range(40)] + ["u += " + " + ".join(f"a{k}" for k in range(40))])
    assert (api.download("u") == 1 + sum(k + 0.5 for k in range(40))).all()


def test_temporaries_that_would_be_too_much_in_one_place(daemon_with):
    """They are stored then."""
    api = daemon_with("--max-nodes", 60).client()
    hold(api, "u", np.ones(3))
    long = " + ".join(["u"] * 20)
    run(api, [f"a = {long}", f"b = {long}", f"c = {long}", "u = a + b + c"])
    assert (api.download("u") == 60).all()
    api.close()


def test_parts_of_what_is_made_of_numbers(both):
    hold(both, "u", np.zeros(4))
    run(both, ["t = broadcast_to(0.5, [4])", "t[0] = 1", "u += t"], 3)
    np.testing.assert_array_equal(both.download("u"), [3, 1.5, 1.5, 1.5])


def test_read_only_ends_it(api):
    hold(api, "u", np.zeros(100))
    ref = start(api, ["u += 1"])
    until(lambda: job(api, ref)["step"] > 0)
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": True}))
    was = api.download("u")
    until(lambda: job(api, ref)["state"] == "failed")
    r = job(api, ref)
    assert r["error"]["code"] == "read_only" and r["step"] == was[0]
    np.testing.assert_array_equal(api.download("u"), was)
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": False}))
    api.expect(202, api.post(f"/v1/jobs/{ref}/resume"))
    until(lambda: job(api, ref)["step"] > was[0])
    api.expect(200, api.delete(f"/v1/jobs/{ref}"))


def test_a_deleted_array_is_written_to_its_end(api):
    hold(api, "u", np.zeros(10))
    hold(api, "n", np.zeros(()))
    ref = start(api, ["u += 1", "n += 1"])
    until(lambda: job(api, ref)["step"] > 0)
    api.expect(204, api.delete("/v1/arrays/u"))
    step = job(api, ref)["step"]
    until(lambda: job(api, ref)["step"] > step)
    r = api.expect(200, api.delete(f"/v1/jobs/{ref}")).json()
    assert api.download("n") == r["step"]


def test_ghost_cells_written_meanwhile(both):
    """No statement writes them, so they are what others make them."""
    both.expect(201, both.post("/v1/arrays", {"name": "g", "shape": [4], "dtype": "float64", "ghost": [1]}))
    ref = start(both, ["g = g*1"])
    until(lambda: job(both, ref)["step"] > 0)
    cells = np.arange(6) + 1.0
    for k in range(5):
        both.expect(204, both.request("PUT", "/v1/arrays/g/data?ghost=1", npy_bytes(k * cells), content_type=NPY))
        step = job(both, ref)["step"]
        until(lambda: job(both, ref)["step"] > step + 1)  # noqa: B023
        r = both.expect(200, both.get("/v1/arrays/g/data?ghost=1", accept=NPY))
        np.testing.assert_array_equal(r.npy(), k * cells)
    both.expect(200, both.delete(f"/v1/jobs/{ref}"))


@pytest.mark.in_turn
def test_an_ended_job_keeps_no_session(api):
    """A session with a time to live expires, whatever has ended in it, and what has goes with it."""
    s = api.expect(201, api.post("/v1/sessions", {"ttl_s": 1})).json()["id"]
    h = {"Arrayd-Session": s}
    api.expect(201, api.post("/v1/arrays", {"name": "x", "shape": [4]}, headers=h))
    done = api.expect(200, api.post("/v1/programs?wait=1", {"body": ["x += 1"]}, headers=h)).json()["id"]
    ref = api.expect(202, api.post("/v1/programs", {"body": ["x += 1"], "steps": 10**12}, headers=h)).json()["id"]
    time.sleep(1.5)
    assert job(api, ref)["state"] == "running"  # a request at work, as it were
    api.expect(200, api.delete(f"/v1/jobs/{ref}"))
    until(lambda: api.get(f"/v1/sessions/{s}").status == 404)
    for j in (ref, done):
        api.fails(404, "not_found", api.get(f"/v1/jobs/{j}"))
