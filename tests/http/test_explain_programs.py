"""POST /v1/explain of a program: how its steps would go, its kernels; and that nothing is run."""
import numpy as np
import pytest

from client import OCTETS
from conftest import settle
from test_programs import both  # noqa: F401 (a fixture)
from test_reductions import hold

HEAT = ["lap = laplacian(u, boundary='clamp')", "u += dt*lap"]
GRAY_SCOTT = ["r = u*v*v", "du = 0.16*laplacian(u, boundary='wrap') - r + F*(1 - u)",
              "v += 0.08*laplacian(v, boundary='wrap') + r - (F + k)*v", "u += du"]


CACHED = "the arrays stay in the processor's caches"  # where the CPU runs single steps


def explain(api, body, **fields):
    r = api.expect(200, api.post("/v1/explain", {"body": body, **fields})).json()
    assert [k["index"] for k in r["kernels"]] == list(range(len(r["kernels"])))
    assert all(k["source"] and k["ir"] and k["nodes"] for k in r["kernels"])
    return r


def names(kernel):
    return {i["name"] for i in kernel["inputs"]}


def same_as_the_job(api, said, body, **fields):
    """What the job says of itself once it has run."""
    r = api.expect(200, api.post("/v1/programs?wait=1", {"body": body, **fields})).json()
    assert r["state"] == "done" and r["pass"] == said["pass"]


@pytest.mark.in_turn
def test_heat(both):
    """One kernel a step; with CUDA besides one that makes several."""
    hold(both, "u", np.ones((300, 400), "float32"))
    x = explain(both, HEAT, steps=1000, bind={"dt": 0.1})
    one, *more = x["kernels"]
    assert x["pass"]["kernels"] == 1 and "steps" not in one and "statement" not in one
    assert names(one) == {"u"} and one["iteration"] == [300, 400]
    assert one["bytes_read"] == one["bytes_written"] == 4 * 300 * 400
    if both.info()["backend"] == "cuda":
        several, = more
        assert several["steps"] == x["pass"]["steps"] > 1 and several["shape"] == "steps"
        assert names(several) == {"u"} and several["registers"] > 0
        assert several["source"] != one["source"] and f"{several['steps']} steps" in several["ir"]
    else:
        assert not more and x["pass"] == {"steps": 1, "kernels": 1, "why": CACHED}
    same_as_the_job(both, x, HEAT, steps=100, bind={"dt": 0.1})


def test_steps_that_are_looked_at(both):
    """What is asked for more often than a pass is long makes it shorter."""
    hold(both, "u", np.ones((300, 400), "float32"))
    body = ["u += 0.1*laplacian(u, boundary='clamp')"]
    most = explain(both, body)["pass"]["steps"]
    for fields, why in (({"until": "max(u) < 0"}, "until is checked more often"),
                        ({"record": {"m": "max(u)"}}, "values are recorded more often")):
        x = explain(both, body, steps=10, **fields)
        assert x["pass"]["steps"] == 1 and len(x["kernels"]) == 1
        assert x["pass"]["why"] == (why if most > 1 else CACHED)
        same_as_the_job(both, x, body, steps=10, **fields)
        every = "until_every" if "until" in fields else "record_every"
        x = explain(both, body, steps=10, **fields, **{every: 1000})
        assert x["pass"]["steps"] == most


def test_gray_scott(both):
    """Four statements are one kernel, and the temporaries none of its inputs."""
    for name in "uv":
        hold(both, name, np.ones((64, 80), "float32"))
    bind = {"F": 0.06, "k": 0.062}
    x = explain(both, GRAY_SCOTT, steps=100, bind=bind)
    assert x["pass"]["kernels"] == 1 and names(x["kernels"][0]) == {"u", "v"}
    assert x["kernels"][0]["bytes_written"] == 2 * 4 * 64 * 80
    assert sum("steps" not in k for k in x["kernels"]) == 1
    same_as_the_job(both, x, GRAY_SCOTT, steps=100, bind=bind)


def test_take(both):
    """Indices are looked at in each step: every statement by itself, each kernel with its place."""
    hold(both, "u", np.arange(50.0))
    hold(both, "i", np.arange(50)[::-1])
    body = ["t = u*2", "w = t + 1", "u = take(t, i) + t*w"]
    x = explain(both, body, steps=3)
    assert x["pass"] == {"steps": 1, "why": "an index is checked in each step"}
    assert [k["statement"] for k in x["kernels"]] == sorted(k["statement"] for k in x["kernels"])
    assert {k["statement"] for k in x["kernels"]} == {0, 2}  # w is written out where it is used
    assert names(x["kernels"][0]) == {"u"} and names(x["kernels"][-1]) <= {"t", "i", "u", None}
    same_as_the_job(both, x, body, steps=3)


def test_several_kernels(both):
    """Where a sum is in between, in the order of the statements."""
    hold(both, "u", np.ones((40, 50)))
    body = ["s = sum(u)", "u = u/s", "w = u + s", "u[0] = w[1]"]
    x = explain(both, body)
    assert x["pass"]["kernels"] == len(x["kernels"]) >= 3 and x["pass"]["steps"] == 1 and x["pass"]["why"]
    assert names(x["kernels"][0]) == {"u"}
    assert any("s" in names(k) for k in x["kernels"][1:])
    same_as_the_job(both, x, body)


def test_it_runs_nothing(both):
    u = both.create(name="u", data=[1.0, 2.0, 3.0])
    both.create(name="v", shape=[3])
    before = both.info()["bytes_in_use"]
    etag = both.get("/v1/arrays/u/data").headers["ETag"]
    jobs = len(both.expect(200, both.get("/v1/jobs")).json()["jobs"])
    explain(both, ["t = sum(u)", "u += t", "v[1:] = u[1:]"], steps=10**9, record={"m": "max(u)"}, record_every=10**6,
            snapshot={"u": 5}, until="t > 3", until_every=3, stop_on_nan=True, fast_math=True)
    assert both.download("u").tolist() == [1, 2, 3] and both.download("v").tolist() == [0, 0, 0]
    assert both.get("/v1/arrays/u/data").headers["ETag"] == etag and both.meta("u")["id"] == u["id"]
    assert len(both.expect(200, both.get("/v1/jobs")).json()["jobs"]) == jobs
    assert settle(both, before) == before


def test_mistakes_have_their_place(api):
    api.create(name="u", shape=[4])

    def bad(status, code, pointer, **body):
        r = api.fails(status, code, api.post("/v1/explain", body))
        assert r["pointer"] == pointer, r

    bad(422, "unknown_name", "/body/1", body=["u += 1", "u = q"])
    bad(422, "bad_expression", "/body/0", body=["u"])
    bad(422, "bad_field", "/body", body=[])
    bad(422, "bad_field", "/steps", body=["u += 1"], steps=0)
    bad(422, "unknown_field", "/expr", body=["u += 1"], expr="u")
    bad(422, "shape_mismatch", "/until", body=["u += 1"], until="u > 0")
    bad(422, "unknown_name", "/snapshot/v", body=["u += 1"], snapshot={"v": 1})
    api.fails(406, "not_acceptable", api.post("/v1/explain", {"body": ["u += 1"]}, accept=OCTETS))
    api.fails(422, "bad_field", api.post("/v1/explain", ["u += 1"]))
    api.fails(400, "bad_query", api.post("/v1/explain?wait=1", {"body": ["u += 1"]}))


def test_a_leased_array(api):
    """Explaining reads nothing and writes nothing, so it minds no lease; a read-only array stays a mistake."""
    api.create(name="u", shape=[4])
    token = api.expect(201, api.post("/v1/arrays/u/lease", {"mode": "write", "ttl_s": 60})).json()["token"]
    explain(api, ["u += 1"])
    api.fails(409, "locked", api.post("/v1/programs", {"body": ["u += 1"]}))
    api.expect(204, api.request("DELETE", "/v1/arrays/u/lease", headers={"Arrayd-Lease": token}))
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": True}))
    api.fails(409, "read_only", api.post("/v1/explain", {"body": ["u += 1"]}))
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": False}))
