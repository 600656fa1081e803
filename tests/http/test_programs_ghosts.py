"""fill_ghost(name) as a statement: bit for bit what the same steps are as requests, ghosts included."""
import re

import numpy as np
import pytest
from ghosts import NONE, dirichlet, filled, neumann

from conftest import until
from test_ghost import fails, put_whole, whole
from test_programs import both, run  # noqa: F401 (a fixture)

STEP = "u += 0.1*laplacian(u, boundary='ghost')"
BOUNDARIES = {1: [[dirichlet(1), neumann(0.5)]], 2: [[dirichlet(1), neumann(2)], "periodic"],
              3: ["periodic", [dirichlet(-1), NONE], [neumann(0), neumann(1)]]}


def grid(api, name, shape, boundary, ghost=1, dtype="float64", seed=0):
    """An array with noise in it and in its ghosts; returns both as NumPy."""
    ghost = [ghost] * len(shape)
    api.expect(201, api.post("/v1/arrays", {"name": name, "shape": shape, "dtype": dtype, "ghost": ghost,
                                            "boundary": boundary, "spacing": [0.5 + k for k in range(len(shape))]}))
    noise = 100 * np.random.default_rng(seed).random([n + 2 * g for n, g in zip(shape, ghost)])
    put_whole(api, name, noise.astype(dtype))
    return noise.astype(dtype)


def by_requests(api, body, steps):
    """The same statements, each a request of its own."""
    for _ in range(steps):
        for s in body:
            fill = re.fullmatch(r"fill_ghost\((\w+)\)", s)
            if fill:
                api.expect(200, api.post(f"/v1/arrays/{fill[1]}/fill_ghost"))
                continue
            name, index, op, expr = re.fullmatch(r"(\w+)(\[.*?\])? (\+?)= (.*)", s).groups()
            region = {"index": index[1:-1]} if index else {}
            api.expect(200, api.post("/v1/evaluate", {
                "expr": f"{name}{index or ''} + ({expr})" if op else expr, "out": name, **region}))


def same_as_requests(api, body, shape, steps, **fields):
    boundary = BOUNDARIES[len(shape)]
    ids = []
    for name in ("program", "requests"):
        grid(api, "u", shape, boundary)
        if any("v" in s for s in body):
            grid(api, "v", shape, boundary, seed=1)
        if name == "program":
            run(api, body, steps, **fields)
        else:
            by_requests(api, body, steps)
        ids.append([whole(api, x["name"], "float64", shape, x["ghost"])
                    for x in api.expect(200, api.get("/v1/arrays")).json()["arrays"]])
        for x in "uv":
            api.delete(f"/v1/arrays/{x}")
    for got, want in zip(*ids):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [[17], [9, 14], [5, 6, 7]])
@pytest.mark.parametrize("body", [
    ["fill_ghost(u)", STEP], [STEP, "fill_ghost(u)"], ["fill_ghost(u)", STEP, "fill_ghost(u)"],
    ["fill_ghost(u)", "u[0] = 3"], ["u[0] = 3", "fill_ghost(u)", STEP], ["fill_ghost(u)"],
    ["fill_ghost(u)", "v += 0.1*laplacian(u, boundary='ghost')", "fill_ghost(v)", "u = v - 0.5*u"]])
def test_as_requests(both, shape, body):  # noqa: F811
    for steps in (1, 2, 3, 8):
        same_as_requests(both, body, shape, steps)


def test_across_slices(both):  # noqa: F811
    """A value after each step, or every third, ends the loop over steps there."""
    for fields in ({"record": {"m": "max(u)"}}, {"record": {"m": "max(u)"}, "record_every": 3},
                   {"until": "max(u) < -1e9", "until_every": 2}):
        same_as_requests(both, ["fill_ghost(u)", STEP], [6, 9], 10, **fields)


def test_against_numpy(both):  # noqa: F811
    shape, boundary = [12, 10], BOUNDARIES[2]
    u = grid(both, "u", shape, boundary)
    run(both, ["fill_ghost(u)", "lap = laplacian(u, boundary='ghost', spacing='array')", "u += 0.02*lap"], 40)
    for _ in range(40):
        u = filled(u, [1, 1], boundary, [0.5, 1.5])
        c = u[1:-1, 1:-1]
        u[1:-1, 1:-1] = c + 0.02 * ((u[2:, 1:-1] - 2 * c + u[:-2, 1:-1]) / 0.25 + (u[1:-1, 2:] - 2 * c + u[1:-1, :-2]) / 2.25)
    np.testing.assert_allclose(whole(both, "u", "float64", shape, [1, 1]), u, rtol=1e-9)


def test_integers_and_wider_ghosts(both):  # noqa: F811
    boundary = [[dirichlet(3), neumann(1)], "periodic"]
    u = grid(both, "u", [7, 6], boundary, ghost=2, dtype="int16")
    run(both, ["fill_ghost(u)", "u = u + 1"], 5)
    for _ in range(5):
        u = filled(u, [2, 2], boundary, [0.5, 1.5])
        u[2:-2, 2:-2] += 1
    np.testing.assert_array_equal(whole(both, "u", "int16", [7, 6], [2, 2]), u)


def test_a_view_of_all_and_an_array_without_ghosts(both):  # noqa: F811
    """As the route has it: the view's edge cells are filled, and without ghosts nothing is."""
    boundary = BOUNDARIES[2]
    u = grid(both, "u", [6, 5], boundary)
    both.expect(201, both.post("/v1/arrays/u/views", {"ghost": True, "name": "all"}))
    run(both, ["fill_ghost(all)", "all = all*2"], 3)
    for _ in range(3):
        u = 2 * filled(u, [1, 1], boundary, [0.5, 1.5])
    np.testing.assert_array_equal(whole(both, "u", "float64", [6, 5], [1, 1]), u)
    both.expect(201, both.post("/v1/arrays", {"name": "w", "shape": [3], "fill": 2}))
    run(both, ["fill_ghost(w)"], 2)
    run(both, ["fill_ghost(w)", "w += 1"], 2)
    assert both.download("w").tolist() == [4, 4, 4]


def test_on_a_request(both):  # noqa: F811
    u = grid(both, "u", [6, 5], BOUNDARIES[2])
    r = both.expect(200, both.post("/v1/evaluate", {"statements": [
        "fill_ghost(u)", "edge = shift(u, [-1, 0], boundary='ghost')", "m = max(edge)"]})).json()
    want = filled(u, [1, 1], BOUNDARIES[2], [0.5, 1.5])
    assert sorted(r["results"]) == ["edge", "m"] and r["results"]["m"]["value"] == want[:-2, 1:-1].max()
    np.testing.assert_array_equal(whole(both, "u", "float64", [6, 5], [1, 1]), want)


def test_others_see_whole_steps(both):  # noqa: F811
    """A job that fails, and one that is stopped and goes on, leaves ghosts and cells of one step."""
    grid(both, "u", [5], [[dirichlet(0), dirichlet(0)]])
    both.expect(204, both.put("/v1/arrays/u/data?ghost=1", [0, 1, 1, 1, 1, 1, 0]))
    both.expect(201, both.post("/v1/arrays", {"name": "k", "shape": [1], "dtype": "int64"}))
    body = ["fill_ghost(u)", "u *= 2", "x = take(u, k)", "k += 2"]
    r = run(both, body, 10)
    assert r["state"] == "failed" and r["step"] == 3
    assert whole(both, "u", "float64", [5], [1]).tolist() == [-4, 8, 8, 8, 8, 8, -4]
    both.expect(204, both.put("/v1/arrays/k/data", [0]))
    r = both.expect(200, both.post(f"{'/v1/jobs/' + r['id']}/resume?wait=1")).json()
    assert r["step"] == 6
    assert whole(both, "u", "float64", [5], [1]).tolist() == [-32, 64, 64, 64, 64, 64, -32]


def test_written_meanwhile(api):
    """What others write to the ghosts counts where no statement has filled them."""
    boundary = [[NONE, dirichlet(0)]]
    grid(api, "u", [4], boundary)
    job = api.expect(202, api.post("/v1/programs", {"body": ["fill_ghost(u)", "u = u"], "steps": 10**12})).json()["id"]
    for x in (5, 6, 7):
        put_whole(api, "u", np.full(6, float(x)))
        until(lambda: whole(api, "u", "float64", [4], [1]).tolist() == [x, x, x, x, x, -x])
    assert api.delete(f"/v1/jobs/{job}").status in (200, 202)
    assert api.expect(200, api.get(f"/v1/jobs/{job}?wait=1")).json()["state"] == "cancelled"
    api.delete(f"/v1/jobs/{job}")


def test_explained(both):  # noqa: F811
    grid(both, "u", [30, 40], BOUNDARIES[2])
    x = both.expect(200, both.post("/v1/explain", {"body": ["fill_ghost(u)", STEP], "steps": 100})).json()
    assert x["pass"]["steps"] == 1 and x["pass"]["kernels"] == len(x["kernels"]) == 9
    assert {i["name"] for k in x["kernels"] for i in k["inputs"]} == {"u"}
    after = both.expect(200, both.post("/v1/explain", {"body": [STEP, "fill_ghost(u)"], "steps": 100})).json()
    assert after["pass"]["kernels"] == 5  # nothing to carry: all of them are filled
    # each statement by itself
    both.expect(201, both.post("/v1/arrays", {"name": "k", "shape": [3], "dtype": "int64"}))
    x = both.expect(200, both.post("/v1/explain", {"body": ["fill_ghost(u)", "w = take(u, k, axis=0)", STEP]})).json()
    fills = [k for k in x["kernels"] if k.get("statement") == 0]
    assert fills and {i["name"] for k in fills for i in k["inputs"]} == {"u"}
    x = both.expect(200, both.post("/v1/explain", {"statements": ["fill_ghost(u)"]})).json()
    assert x["kernels"]


@pytest.mark.parametrize("statement, code, offset", [
    ("fill_ghost(w)", "unknown_name", 11), ("fill_ghost(n)", "unknown_name", 11),
    ("fill_ghost()", "bad_expression", 11), ("fill_ghost(u, 1)", "bad_expression", 12),
    ("fill_ghost(u) + 1", "bad_expression", 14), ("fill_ghost(u", "bad_expression", 12)])
def test_mistakes(api, statement, code, offset):
    grid(api, "u", [4], [[NONE, NONE]])
    for path, body, place in (("/v1/programs", {"body": ["u = u", statement]}, "/body/1"),
                              ("/v1/evaluate", {"statements": ["u = u", statement]}, "/statements/1")):
        problem = api.fails(422, code, api.post(path, {**body, "bind": {"n": 3}}))
        assert (problem["pointer"], problem["offset"]) == (place, offset)


def test_it_is_a_write(api):
    grid(api, "u", [4], BOUNDARIES[1])
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": True}))
    fails(api, "read_only", api.post("/v1/programs", {"body": ["fill_ghost(u)"]}), "/body/0", status=409)
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": False}))
