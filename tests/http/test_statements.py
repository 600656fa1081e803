"""POST /v1/evaluate with statements: what they make against NumPy, all of it or none."""
import threading
import time

import numpy as np
import pytest

from client import OCTETS
from conftest import one_gpu, settle
from test_leases import lease
from test_programs import both  # noqa: F401 (a fixture)
from test_reductions import hold


def post(api, *statements, **fields):
    return api.post("/v1/evaluate", {"statements": list(statements), **fields})


def do(api, *statements, **fields):
    return api.expect(200, post(api, *statements, **fields)).json()["results"]


def got(api, result):
    """As NumPy: what is in the reply, else what the new array holds."""
    for key in ("value", "data"):
        if key in result:
            return np.array(result[key], result["dtype"])
    return api.download(result["id"])


@pytest.fixture
def ab(both):  # noqa: F811
    rng = np.random.default_rng(0)
    both.a, both.b = rng.random((20, 30)), rng.random((20, 30)).astype("float32")
    hold(both, "a", both.a)
    hold(both, "b", both.b)
    hold(both, "u", np.zeros((20, 30)))
    return both


def test_several_results(ab):
    r = do(ab, "t = a + b", "s = sum(t)", "n = 3", "u[1:-1] = t[1:-1]*n")
    t = ab.a + ab.b
    assert list(r) == ["t", "s", "n"]
    assert r["t"]["shape"] == [20, 30] and r["t"]["dtype"] == "float64" and r["t"]["name"] is None
    assert "id" not in r["s"] and (r["n"]["dtype"], r["n"]["value"]) == ("int64", 3)
    np.testing.assert_array_equal(got(ab, r["t"]), t)
    np.testing.assert_allclose(got(ab, r["s"]), t.sum(), rtol=1e-12)
    want = np.zeros((20, 30))
    want[1:-1] = 3 * t[1:-1]
    np.testing.assert_array_equal(ab.download("u"), want)
    assert len(ab.list_all("/v1/arrays", "arrays")) == 4 and not ab.list_all("/v1/jobs", "jobs")


def test_results_that_are_named(ab):
    """In the order asked for; an array that is assigned, or none, can be one: it is copied."""
    r = do(ab, "t = a*2", "w = t + 1", "u = w", results=["u", "w", "a"])
    assert list(r) == ["u", "w", "a"]
    for name, want in (("u", ab.a * 2 + 1), ("w", ab.a * 2 + 1), ("a", ab.a)):
        np.testing.assert_array_equal(got(ab, r[name]), want)
    do(ab, "u = 0")
    np.testing.assert_array_equal(got(ab, r["u"]), ab.a * 2 + 1)
    assert do(ab, "u = a", results=[]) == {} and do(ab, "u = a") == {}
    np.testing.assert_array_equal(ab.download("u"), ab.a)


def test_a_result_that_is_used_and_changed(ab):
    """What a name means at the end; what was made of it meanwhile is made of what it was then."""
    r = do(ab, "t = a + 1", "u = t*2", "t[3:5] = 7", "v = t - u", "t = t*0.5", "k = 0.1", "x = b*k", "a = t")
    first = ab.a + 1
    t = first.copy()
    t[3:5] = 7
    assert list(r) == ["t", "v", "k", "x"] and r["x"]["dtype"] == "float32"  # a number stays as weak as it was
    np.testing.assert_array_equal(got(ab, r["v"]), t - first * 2)
    np.testing.assert_array_equal(got(ab, r["t"]), t * 0.5)
    np.testing.assert_array_equal(got(ab, r["x"]), ab.b * np.float32(0.1))
    np.testing.assert_array_equal(ab.download("a"), t * 0.5)
    np.testing.assert_array_equal(ab.download("u"), first * 2)


def test_order(ab):
    """Each statement reads what those before it made, each element what was there before its own."""
    do(ab, "u = shift(a, [1, 0])", "a[1:] = a[:-1]", "u += a", "a *= u")
    u = np.concatenate([ab.a[1:], ab.a[-1:]])
    a = ab.a.copy()
    a[1:] = ab.a[:-1]
    u = u + a
    np.testing.assert_array_equal(ab.download("u"), u)
    np.testing.assert_array_equal(ab.download("a"), a * u)


def test_results_of_long_chains(ab):
    """A result may stand for many temporaries, each of them the next one's only."""
    chain = ["t0 = a*2", *(f"t{k} = t{k - 1} + {k}*a" for k in range(1, 9))]
    t = ab.a * 2
    for k in range(1, 9):
        t = t + k * ab.a
    r = do(ab, *chain, "r = t8[:1] + 1", results=["r"])
    np.testing.assert_array_equal(got(ab, r["r"]), t[:1] + 1)
    r = do(ab, *chain, results=["t8"])
    np.testing.assert_array_equal(got(ab, r["t8"]), t)


def test_inline(ab):
    r = do(ab, "t = a[:2, :3]*k", "e = t[:0]", "c = t[0]*1j", "m = max(t) > 0", bind={"k": 2}, inline=True)
    np.testing.assert_array_equal(got(ab, r["t"]), 2 * ab.a[:2, :3])
    assert (r["e"]["shape"], r["e"]["data"]) == ([0, 3], []) and r["m"]["value"] is True
    assert r["c"]["dtype"] == "complex128" and r["c"]["data"][1] == [0, 2 * ab.a[0, 1]]
    assert len(ab.list_all("/v1/arrays", "arrays")) == 3
    hold(ab, "big", np.arange(40000.))
    r = do(ab, "t = big + 1", inline=True)
    np.testing.assert_array_equal(got(ab, r["t"]), np.arange(40000.) + 1)
    e = ab.fails(422, "too_large", post(ab, "t = big + 1", "w = big*2", "big = t", inline=True))
    assert e["pointer"] == "/statements/1"
    assert ab.download("big")[5] == 5


def test_fast_math_functions_and_sessions(both):  # noqa: F811
    both.expect(201, both.post("/v1/functions", {"name": "twice", "params": ["x"], "expr": "2*x"}))
    hold(both, "u", np.arange(4.))
    assert got(both, do(both, "t = twice(u) + 1", inline=True, fast_math=True)["t"]).tolist() == [1, 3, 5, 7]
    both.expect(204, both.delete("/v1/functions/twice"))
    other = both.expect(201, both.post("/v1/sessions", {})).json()["id"]
    r = both.post("/v1/evaluate", {"statements": ["t = 1 + x"], "bind": {"x": both.meta("u")["id"]}},
                  headers={"Arrayd-Session": other})
    assert both.expect(200, r).json()["results"]["t"]["session"] == other
    both.expect(204, both.delete(f"/v1/sessions/{other}"))


def test_all_or_nothing(ab):
    """An index out of range in one statement: the others have written nothing either, and nothing is left."""
    hold(ab, "i", np.array([0, 99]))
    before, etag = ab.info()["bytes_in_use"], ab.get("/v1/arrays/u/data").headers["ETag"]
    e = ab.fails(422, "bad_index", post(ab, "u = a*2", "t = u + 1", "a = 0*a + sum(take(b, i, axis=0))"))
    assert e["pointer"] == "/statements/2" and e["offset"] == "a = 0*a + sum(take(b, i, axis=0))".index("i,")
    assert not ab.download("u").any() and ab.get("/v1/arrays/u/data").headers["ETag"] == etag
    np.testing.assert_array_equal(ab.download("a"), ab.a)
    assert len(ab.list_all("/v1/arrays", "arrays")) == 4 and settle(ab, before) == before
    assert ab.fails(422, "bad_index", post(ab, "k = 2", "w = take(b, i, axis=0)*k"))["pointer"] == "/statements/1"
    hold(ab, "i", np.array([0, 19]))
    r = do(ab, "u = a*2", "a = 0*a + sum(take(b, i, axis=0))", "w = take(b, i, axis=0)")
    np.testing.assert_array_equal(got(ab, r["w"]), ab.b[[0, 19]])
    np.testing.assert_array_equal(ab.download("u"), ab.a * 2)
    np.testing.assert_allclose(ab.download("a"), float(ab.b[[0, 19]].sum()), rtol=1e-6)


def test_aliases(ab):
    """An array that is assigned has one name; a view of an array can be assigned itself."""
    ab.expect(201, ab.post("/v1/arrays/a/views", {"index": "::2", "name": "half"}))
    ab.fails(422, "overlap", post(ab, "a = a + 1", "u[::2] = half"))
    e = ab.fails(422, "overlap", post(ab, "t = 1", "a = a + t", "u = x", bind={"x": "a"}))
    assert e["pointer"] == "/statements/1"
    r = do(ab, "half = half + half[::-1]", "t = half*1")
    want = ab.a.copy()
    want[::2] += ab.a[::2][::-1]
    np.testing.assert_array_equal(ab.download("a"), want)
    np.testing.assert_array_equal(got(ab, r["t"]), want[::2])


@pytest.mark.parametrize("status,code,pointer,body", [
    (422, "unknown_name", "/statements/1", {"statements": ["u = 1", "t = q"]}),
    (422, "bad_expression", "/statements/1", {"statements": ["u = 1", "t = ("]}),
    (422, "bad_expression", "/statements/0", {"statements": ["u + 1"]}),
    (422, "shape_mismatch", "/statements/1", {"statements": ["t = u", "u = t[1:]"]}),
    (422, "dtype_mismatch", "/statements/0", {"statements": ["u = u*1j"]}),
    (422, "bad_name", "/statements/0", {"statements": ["k = 1"], "bind": {"k": 2}}),
    (422, "unknown_name", "/results/0", {"statements": ["t = 1"], "results": ["q"]}),
    (422, "bad_name", "/results/1", {"statements": ["t = 1"], "results": ["t", "t"]}),
    (422, "bad_name", "/results/0", {"statements": ["t = 1"], "results": ["1"]}),
    (422, "bad_field", "/results", {"statements": ["t = 1"], "results": "t"}),
    (422, "bad_field", "/results/0", {"statements": ["t = 1"], "results": [1]}),
    (422, "bad_field", "/statements", {"statements": []}),
    (422, "bad_field", "/statements", {"statements": "t = 1"}),
    (422, "expression_too_large", "/statements", {"statements": ["t = 1"] * 100000}),
    (422, "bad_field", "/expr", {"statements": ["t = 1"], "expr": "1"}),
    (422, "bad_field", "/tree", {"statements": ["t = 1"], "tree": 1}),
    (422, "unknown_field", "/out", {"statements": ["t = 1"], "out": "u"}),
    (422, "unknown_field", "/results", {"expr": "1", "results": []}),
    (422, "bad_field", "/inline", {"statements": ["t = 1"], "inline": 1}),
    (404, "not_found", "/bind/x", {"statements": ["t = x"], "bind": {"x": "nobody"}}),
])
def test_mistakes_have_their_place(api, status, code, pointer, body):
    api.create(name="u", shape=[4])
    for route in ("evaluate", "explain"):
        assert api.fails(status, code, api.post(f"/v1/{route}", body))["pointer"] == pointer
    assert not api.download("u").any()


def test_json_only(api):
    api.fails(406, "not_acceptable", api.post("/v1/evaluate", {"statements": ["t = 1"]}, accept=OCTETS))


def test_who_may_write(api):
    api.create(name="u", shape=[4])
    token = lease(api)
    for statement in ("u = 1", "u += 1", "t = u"):
        api.fails(409, "locked", post(api, statement))
    api.expect(200, api.post("/v1/evaluate", {"statements": ["u = 1"]}, headers={"Arrayd-Lease": token}))
    api.expect(204, api.delete("/v1/arrays/u/lease", headers={"Arrayd-Lease": token}))
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": True}))
    api.fails(409, "read_only", post(api, "u = 2"))
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": False}))
    assert api.download("u").tolist() == [1] * 4


def test_a_shared_array(two_with):
    ann, bob = two_with()
    u = ann.create(name="u", shape=[3])
    bob.fails(404, "not_found", post(bob, "x = 1", bind={"x": u["id"]}))
    assert ann.post("/v1/arrays/u/shares", {"principal": "bob", "access": "read"}).status in (200, 201)
    assert got(bob, do(bob, "t = x + 1", bind={"x": u["id"]}, inline=True)["t"]).tolist() == [1, 1, 1]
    bob.fails(403, "forbidden", post(bob, "x = 1", bind={"x": u["id"]}))
    assert ann.post("/v1/arrays/u/shares", {"principal": "bob", "access": "write"}).status in (200, 201)
    do(bob, "x = 5", bind={"x": u["id"]})
    assert ann.download("u").tolist() == [5, 5, 5]


@one_gpu
def test_no_room(daemon_with):
    """Memory, or handles, run out: nothing has changed, and nothing is left."""
    c = daemon_with("--memory-limit", "1MiB", "--max-arrays", 3).client()
    c.create(name="u", shape=[50000], dtype="float64")
    before = c.info()["bytes_in_use"]
    assert post(c, "u = u + 1", "t = u*2", "w = t*3").status in (429, 507)
    assert settle(c, before) == before
    c.create(name="v", shape=[4])
    c.fails(429, "quota_exceeded", post(c, "v = v + 1", "t = v*2", "w = v*3"))
    assert not c.download("v").any() and len(c.list_all("/v1/arrays", "arrays")) == 2
    do(c, "v = v + 1", "t = v*2")
    assert c.download("v").all() and len(c.list_all("/v1/arrays", "arrays")) == 3
    c.close()


def test_many_at_once(both):  # noqa: F811
    """Several clients add to one array: none is lost."""
    hold(both, "u", np.zeros(1000))
    clients = [both.clone() for _ in range(4)]
    statuses = []

    def work(c):
        for _ in range(10):
            statuses.append(post(c, "t = u + 1", "u = t", "v = sum(t)").status)

    threads = [threading.Thread(target=work, args=(c,)) for c in clients]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for c in clients:
        c.close()
    assert set(statuses) <= {200, 409}
    assert (both.download("u") == statuses.count(200)).all()


def test_explain(both):  # noqa: F811
    """As of a program of one step."""
    hold(both, "a", np.ones((64, 64)))
    hold(both, "u", np.ones((64, 64)))
    body = {"statements": ["t = a + 1", "u = t*2", "s = t - a"]}
    x = both.expect(200, both.post("/v1/explain", body)).json()
    assert x["pass"]["kernels"] == 1 and x["kernels"][0]["bytes_written"] == 3 * 8 * 64 * 64
    assert both.download("u").all() and len(both.list_all("/v1/arrays", "arrays")) == 2


@pytest.mark.in_turn
def test_a_device_that_fails(gpu_with):
    """Whichever piece of work it is: all or nothing, and the next request goes through."""
    d = gpu_with("--no-keeper")
    api = d.client()
    hold(api, "u", np.arange(4.))
    hold(api, "v", np.arange(4.))
    statements = ["t = u + 1", "u = t*2", "s = sum(u)", "v = u - s"]
    before = api.info()["bytes_in_use"]
    api.expect(204, api.delete(f"/v1/arrays/{do(api, *statements)['t']['id']}"))
    u, v = api.download("u"), api.download("v")
    for _ in range(3):
        d.fail("2")
        api.fails(507, "out_of_memory", post(api, *statements))
        assert (api.download("u") == u).all() and (api.download("v") == v).all()
        assert len(api.list_all("/v1/arrays", "arrays")) == 2
    assert settle(api, before) == before
    assert got(api, do(api, *statements)["s"]) == (2 * (u + 1)).sum()
    np.testing.assert_array_equal(api.download("u"), 2 * (u + 1))
    d.expected = 75
    d.fail("700")
    api.fails(503, "device_lost", post(api, *statements))
    api.close()
    d.proc.wait(30)


@pytest.mark.parametrize("form", ["t{1} = roll(t{0},1,axis=0)+roll(t{0},-1,axis=0)+roll(t{0},1,axis=1)+roll(t{0},-1,axis=1)-4*t{0}",
                                  "t{1} = 0.25*roll(t{0},1,axis=0)+0.25*roll(t{0},1,axis=1)+0.5*t{0}"])
def test_a_long_chain(ab, form):
    """Each statement's nodes count once, however many statements it is written out in: 250 of them are far from the bound
    on all nodes."""
    r = do(ab, "t0 = a", *(form.format(i, i + 1) for i in range(250)), results=["t250"])
    t = ab.a
    for _ in range(250):
        a, b = np.roll(t, 1, 0), np.roll(t, 1, 1)
        t = 0.25 * a + 0.25 * b + 0.5 * t if "0.25" in form else a + np.roll(t, -1, 0) + b + np.roll(t, -1, 1) - 4 * t
    np.testing.assert_array_equal(got(ab, r["t250"]), t)


@pytest.mark.in_turn
def test_large_statements_made_anew(daemon_with):
    """Somebody writes to an array that the statements assign while workers plan them: they are made of what it has
    then, or refused."""
    c = daemon_with("--backend", "cpu").client()
    c.upload(np.ones((30, 30)), "u")
    c.upload(np.ones((30, 30)), "v")
    large = {"statements": ["n = " + "+".join(f"sqrt({k}.5)" for k in range(2500)), *(f"t{k} = u*n" for k in range(10)),
                            "s = sum(t1) + sum(t9)", "u = u*1.0"], "results": ["s"]}
    want = 2 * 900 * sum(np.sqrt(k + 0.5) for k in range(2500))
    until = time.monotonic() + 3

    def write(c):
        while time.monotonic() < until:
            c.expect(200, c.post("/v1/evaluate", {"expr": "v*1.0", "out": "u"}))
        c.close()

    writer = threading.Thread(target=write, args=(c.clone(),))
    writer.start()
    statuses = set()
    while time.monotonic() < until:
        r = c.post("/v1/evaluate", large)
        statuses.add(r.status)
        if r.status == 200:
            np.testing.assert_allclose(r.json()["results"]["s"]["value"], want, rtol=1e-12)
    writer.join()
    c.close()
    assert statuses <= {200, 409}
