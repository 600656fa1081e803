"""The boundary modes `ghost` and `array`, and spacing="array", against NumPy on filled ghosts."""
import itertools
import json

import numpy as np
import pytest
from ghosts import NONE, dirichlet, filled, neumann

ALL_DTYPES = ["bool", "int8", "uint8", "int16", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128"]
FACES = [NONE, dirichlet(1.5), dirichlet(-3), neumann(0), neumann(0.75), neumann(-2)]


def values(rng, dtype, shape):
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape)).astype(dtype) if dtype.startswith("complex") else x.astype(dtype)


def make(api, name, a, ghost, **fields):
    """An array whose interior and ghosts are `a`."""
    shape = [n - 2 * g for n, g in zip(a.shape, ghost)]
    m = api.expect(201, api.post("/v1/arrays", {"name": name, "shape": shape, "dtype": str(a.dtype), "ghost": ghost, **fields})).json()
    api.expect(204, api.put(f"/v1/arrays/{name}/data?ghost=1", body=np.ascontiguousarray(a).tobytes()))
    return m


def at(a, ghost, offsets):
    return a[tuple(slice(g + o, n - g + o) for n, g, o in zip(a.shape, ghost, offsets))]


def refused(api, expr, code, offset=None):
    problem = api.fails(422, code, api.post("/v1/evaluate", {"expr": expr}))
    if offset is not None:
        assert problem["offset"] == offset, problem
    return problem


# --- mode ghost ---

@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_ghosts_are_read(api, dtype):
    a = values(np.random.default_rng(2), dtype, (6, 9))
    make(api, "u", a, [1, 2])
    for o in itertools.product((-1, 0, 1), (-2, -1, 0, 2)):
        np.testing.assert_array_equal(api.evaluate(f"shift(u, {list(o)}, boundary='ghost')"), at(a, (1, 2), o))


@pytest.mark.parametrize("shape, ghost", [((1,), (1,)), ((1, 5), (1, 1)), ((5, 1), (1, 1)), ((3, 1, 4), (1, 1, 2)), ((2, 3, 4, 5), (1, 1, 1, 1)), ((70, 90), (1, 3))])
def test_any_rank(api, shape, ghost):
    a = np.random.default_rng(3).standard_normal([n + 2 * g for n, g in zip(shape, ghost)])
    make(api, "u", a, list(ghost))
    for o in itertools.product(*[(-g, 0, g) for g in ghost]):
        np.testing.assert_array_equal(api.evaluate(f"shift(u, {list(o)}, boundary='ghost')"), at(a, ghost, o))
    want = 0
    for k in range(len(shape)):
        e = [int(j == k) for j in range(len(shape))]
        want = want + (at(a, ghost, e) - 2 * at(a, ghost, [0] * len(shape)) + at(a, ghost, [-i for i in e]))
    np.testing.assert_array_equal(api.evaluate("laplacian(u, boundary='ghost')"), want)


def test_the_shift_goes_to_the_arrays(api):
    rng = np.random.default_rng(4)
    a, b, row = rng.standard_normal((6, 7)), rng.standard_normal((8, 9)), rng.standard_normal((1, 7))
    make(api, "u", a, [1, 1])
    make(api, "v", b, [2, 2])
    api.upload(row[0, 1:-1].copy(), "flat")
    make(api, "row", np.pad(row, ((1, 1), (0, 0))), [1, 1])
    u, v = (lambda *o: at(a, (1, 1), o)), (lambda *o: at(b, (2, 2), o))
    i, j = np.mgrid[0:4, 0:5]
    cases = {
        "shift(u*v + 1, [1, -1], 'ghost')": u(1, -1) * v(1, -1) + 1,
        "shift(where(u > 0, astype(v, 'float32'), 0), [0, 1], 'ghost')": np.where(u(0, 1) > 0, v(0, 1).astype("float32"), 0),
        "shift(shift(v, [1, 0], 'ghost') + u, [1, 1], 'ghost')": v(2, 1) + u(1, 1),
        "shift(shift(u, [1, 0], 'ghost'), [-1, 0], 'ghost')": u(0, 0),
        "shift(shift(u, [1, 0], 'ghost') * v, [-1, 1], 'ghost')": u(0, 1) * v(-1, 1),
        "shift(u * index(1), [0, -1], 'ghost')": u(0, -1) * (j - 1),
        "shift(u + unravel_index(index(0)*5 + index(1), 1), [0, 0], 'ghost')": u(0, 0) + j,
        "shift(u * row, [1, 0], 'ghost')": u(1, 0) * row[:, 1:-1],
        "shift(u + flat, [1, 0], 'ghost')": u(1, 0) + row[:, 1:-1],
        "shift(u - mean(u), [1, 1], 'ghost')": u(1, 1) - u(0, 0).mean(),
        "shift(shift(u, [0, 1], 'wrap'), [1, 0], 'ghost')": np.roll(u(1, 0), -1, 1),
        "shift(shift(u, [0, 1], 'constant', 9), [1, 0], 'ghost')": np.concatenate([u(1, 0)[:, 1:], np.full((4, 1), 9)], 1),
        "shift(shift(u, [0, 1], 'ghost'), [0, 1], 'wrap')": np.roll(u(0, 1), -1, 1),
        "shift(u, [1, 0], 'ghost')[::2, ::-1]": u(1, 0)[::2, ::-1],
        "shift(u[None], [0, 1, -1], 'ghost')": u(1, -1)[None],
        "shift(u[::-1], [1, 0], 'ghost')": u(-1, 0)[::-1],
        "sum(shift(u, [1, 0], 'ghost'), axis=0)": u(1, 0).sum(axis=0),
        "max(shift(u, [1, 1], 'ghost') - u)": (u(1, 1) - u(0, 0)).max(),
        "forward_diff(u, 0, 'ghost')": u(1, 0) - u(0, 0), "back_diff(u, 1, 'ghost')": u(0, 0) - u(0, -1),
        "central_diff(u, 0, 0.5, 'ghost')": (u(1, 0) - u(-1, 0)) / 1.0,
        "laplacian(u*v, boundary='ghost')": (u(1, 0) * v(1, 0) - 2 * (u(0, 0) * v(0, 0)) + u(-1, 0) * v(-1, 0)) + (u(0, 1) * v(0, 1) - 2 * (u(0, 0) * v(0, 0)) + u(0, -1) * v(0, -1))}
    for expr, want in cases.items():
        np.testing.assert_allclose(api.evaluate(expr), want, rtol=1e-15, atol=1e-15, err_msg=expr)
    long = "+".join(["u"] * 4000)
    np.testing.assert_allclose(api.evaluate(f"shift({long}, [1, 0], 'ghost')"), 4000 * u(1, 0), rtol=1e-12)


@pytest.mark.parametrize("expr, offset", [
    ("shift(u, [2, 0], 'ghost')", 6), ("u + shift(u, [0, -3], 'ghost')", 10), ("shift(u*p, [1, 0], 'ghost')", 8),
    ("shift(p, [1, 0], 'ghost')", 6), ("shift(shift(u, [1, 0], 'ghost'), [1, 0], 'ghost')", 12), ("shift(u[1:], [1, 0], 'ghost')", 7),
    ("shift(u[:, ::2], [0, 1], 'ghost')", 7), ("shift(shift(u, [1, 0], 'wrap'), [1, 0], 'ghost')", 6),
    ("shift(u + sum(u, axis=0), [0, 1], 'ghost')", 10), ("laplacian(whole, boundary='ghost')", 10), ("laplacian(cut, boundary='ghost')", None)])
def test_too_few_ghosts(api, expr, offset):
    make(api, "u", np.ones((6, 8)), [1, 2])
    api.create(name="p", shape=[4, 4], dtype="float64")
    api.expect(201, api.post("/v1/arrays/u/views", {"ghost": True, "name": "whole"}))
    api.expect(201, api.post("/v1/arrays/u/views", {"index": ":", "name": "cut"}))
    refused(api, expr, "ghost_width", offset)


def test_views_of_views_end(api):
    make(api, "u", np.ones(6), [1])
    expr = "u"
    for _ in range(40):
        expr = f"({expr})[::-1] + ({expr})" if len(expr) < 4000 else expr
    r = api.post("/v1/evaluate", {"expr": f"sum(shift({expr}, [1], 'ghost'))"})
    assert r.status in (200, 422)


def test_written_in_place_while_read(api):
    a = np.random.default_rng(6).standard_normal((40, 50))
    make(api, "u", a, [1, 1])
    u = lambda *o: at(a, (1, 1), o)
    want = u(0, 0) + 0.1 * ((u(1, 0) - 2 * u(0, 0) + u(-1, 0)) + (u(0, 1) - 2 * u(0, 0) + u(0, -1)))
    api.expect(200, api.post("/v1/evaluate", {"expr": "u + 0.1*laplacian(u, boundary='ghost')", "out": "u"}))
    got = api.get("/v1/arrays/u/data?ghost=1").array("float64", a.shape).copy()
    np.testing.assert_array_equal(got[1:-1, 1:-1], want)
    got[1:-1, 1:-1] = a[1:-1, 1:-1]
    np.testing.assert_array_equal(got, a)
    # ghosts are written while the interior reads them
    make(api, "w", a, [1, 1])
    api.expect(201, api.post("/v1/arrays/w/views", {"ghost": True, "name": "all"}))
    api.expect(201, api.post("/v1/arrays/all/views", {"index": ":-2, :-2", "name": "corner"}))
    api.expect(200, api.post("/v1/evaluate", {"expr": "shift(w, [-1, -1], 'ghost') * 2", "out": "corner"}))
    np.testing.assert_array_equal(api.download("corner"), at(a, (1, 1), (-1, -1)) * 2)
    np.testing.assert_array_equal(api.get("/v1/arrays/w/data?ghost=1").array("float64", a.shape)[-2:], a[-2:])


def test_a_plan_depends_on_the_grid(api):
    make(api, "u", np.arange(6.0), [1], boundary=[[dirichlet(1), dirichlet(1)]])
    def one(expr):
        return api.evaluate(expr).tolist()
    assert one("shift(u, [-1], 'array')") == [1, 1, 2, 3]
    for value, first in ((2, 3), (5, 9), (2, 3)):
        api.expect(200, api.patch("/v1/arrays/u", {"boundary": [[dirichlet(value), NONE]]}))
        assert one("shift(u, [-1], 'array')") == [first, 1, 2, 3]
    api.expect(200, api.patch("/v1/arrays/u", {"boundary": [[neumann(1), NONE]]}))
    assert one("shift(u, [-1], 'array')") == [0, 1, 2, 3]
    api.expect(200, api.patch("/v1/arrays/u", {"spacing": [4]}))
    assert one("shift(u, [-1], 'array')") == [-3, 1, 2, 3] and one("central_diff(u, 0, 'array', 'wrap')") == [-0.25, 0.25, 0.25, -0.25]
    assert one("shift(u, [-1], 'ghost')") == [0, 1, 2, 3]
    # the same name, view and strides without ghosts
    api.expect(201, api.post("/v1/arrays/u/views", {"index": ":", "name": "v"}))
    api.expect(204, api.delete("/v1/arrays/u"))
    api.expect(200, api.patch("/v1/arrays/v", {"name": "u"}))
    refused(api, "shift(u, [-1], 'ghost')", "ghost_width")
    refused(api, "shift(u, [-1], 'array')", "bad_boundary")


# --- mode array ---

def check_array(api, rng, dtype, shape, boundary, spacing, reach):
    ghost = [int(min(n, reach)) for n in shape]
    a = values(rng, dtype, [n + 2 * g for n, g in zip(shape, ghost)])
    for axis, faces in enumerate(boundary):  # a `none` face reads the edge cell
        if faces != "periodic" and NONE in faces:
            edge = np.pad(a[tuple(slice(g, n - g) for n, g in zip(a.shape, ghost))], [(g, g) for g in ghost], mode="edge")
            break
    else:
        edge = a
    what = json.dumps([dtype, shape, boundary, spacing])
    make(api, "u", edge, ghost, boundary=boundary, spacing=spacing)
    api.expect(200, api.post("/v1/arrays/u/fill_ghost"))
    plain = not any(f != "periodic" and NONE in f for f in boundary)
    b = api.get("/v1/arrays/u/data?ghost=1").array(dtype, a.shape)
    np.testing.assert_array_equal(b, filled(edge, ghost, boundary, spacing), err_msg=what)
    offsets = [[int(o) for o in rng.integers([-g for g in ghost], [g + 1 for g in ghost])] for _ in range(6)]
    for o in offsets + [ghost, [-g for g in ghost]]:
        got = api.evaluate(f"shift(u, {o}, boundary='array')")
        if plain or sum(map(bool, o)) <= 1:
            np.testing.assert_array_equal(got, at(b, ghost, o), err_msg=f"{what} {o}")
            np.testing.assert_array_equal(got, api.evaluate(f"shift(u, {o}, boundary='ghost')"))
    if dtype != "bool":
        for expr in ("laplacian(u, boundary='{}')", "laplacian(u, 'array', '{}')", "central_diff(u, -1, 'array', '{}')", "forward_diff(u, 0, '{}')", "back_diff(u, 0, '{}')"):
            np.testing.assert_array_equal(api.evaluate(expr.format("array")), api.evaluate(expr.format("ghost")), err_msg=what + expr)
    api.expect(204, api.delete("/v1/arrays/u"))


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_array_mode_of_every_dtype(api, dtype):
    rng = np.random.default_rng(1)
    for boundary in (["periodic"], [[dirichlet(1.5), dirichlet(2)]], [[neumann(0.5), neumann(-1.25)]], [[NONE, neumann(3)]]):
        check_array(api, rng, dtype, [5], boundary, [0.5], 5)
    check_array(api, rng, dtype, [4, 3], [[dirichlet(2), neumann(-0.5)], [neumann(1), dirichlet(0)]], [0.5, 3], 2)


@pytest.mark.parametrize("seed", range(16))
def test_array_mode_at_random(api, seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    shape = [int(n) for n in rng.integers(1, 7, rank)]
    faces = FACES if seed % 4 == 0 else FACES[1:]
    boundary = ["periodic" if rng.random() < 0.3 else [faces[i] for i in rng.integers(0, len(faces), 2)] for _ in shape]
    check_array(api, rng, str(rng.choice(["float64", "float32", "int16"])), shape, boundary, [float(h) for h in rng.choice([1, 0.5, 3], rank)], 3)


def test_array_mode_among_others(api):
    a = np.arange(6.0)
    make(api, "u", a, [1], boundary=[[dirichlet(2), neumann(1)]])
    api.upload(np.arange(8.0).reshape(2, 4), "m")
    s = np.array([3, 1, 2, 3.0])
    np.testing.assert_array_equal(api.evaluate("m + shift(u, [-1], 'array')"), np.arange(8.0).reshape(2, 4) + s)
    np.testing.assert_array_equal(api.evaluate("shift(shift(u, [-1], 'array'), [1], 'wrap')"), np.roll(s, -1))
    np.testing.assert_array_equal(api.evaluate("shift(m * shift(u, [-1], 'array'), [1, 0], 'wrap')[:, ::-1]"), (np.roll(np.arange(8.0).reshape(2, 4) * s, -1, 0))[:, ::-1])
    np.testing.assert_array_equal(api.evaluate("sum(shift(u, [1], 'array'))"), 2 + 3 + 4 + 5)
    np.testing.assert_array_equal(api.evaluate({"op": "shift", "args": ["u", [-1]], "boundary": "array"}), s)
    np.testing.assert_array_equal(api.evaluate("m2", let=[["m2", "shift(x, [-1], 'array')"]], bind={"x": "u"}), s)
    np.testing.assert_array_equal(api.evaluate("laplacian(u, spacing='array', boundary='array')", ), (np.array([2, 3, 4, 5.0]) - 2 * a[1:-1] + s))


@pytest.mark.parametrize("expr, code, offset", [
    ("shift(p, [1], 'array')", "bad_boundary", 14), ("shift(u*2, [1], 'array')", "bad_boundary", 16), ("shift(u[:2], [0], 'array')", "bad_boundary", None),
    ("shift(u, [5], boundary='array')", "bad_boundary", 0), ("shift(u, [-5], 'array')", "bad_boundary", 0), ("shift(p, [0], 'array')", "bad_boundary", 14),
    ("laplacian(u*1, 'array')", "bad_expression", 15), ("central_diff(u*1, 0, 'array')", "bad_expression", 21), ("laplacian(g, boundary='array')", "bad_boundary", None)])
def test_array_mode_refused(api, expr, code, offset):
    api.create(name="u", shape=[4], dtype="float64", boundary=["periodic"])
    api.create(name="p", shape=[4], dtype="float64", spacing=[2])
    api.create(name="g", shape=[4], dtype="float64", ghost=[1])
    refused(api, expr, code, offset)


def test_spacing_of_the_array(api):
    a = np.arange(12.0).reshape(3, 4) ** 2
    api.create(name="u", data=a.tolist(), spacing=[0.5, 4])
    dx = (np.roll(a, -1, 0) - 2 * a + np.roll(a, 1, 0)) / 0.25
    dy = (np.roll(a, -1, 1) - 2 * a + np.roll(a, 1, 1)) / 16
    np.testing.assert_array_equal(api.evaluate("laplacian(u, 'array', 'wrap')"), dx + dy)
    np.testing.assert_array_equal(api.evaluate("laplacian(u, [0.5, 'array'], 'wrap')"), dx + dy)
    np.testing.assert_array_equal(api.evaluate("central_diff(u, 1, 'array', 'wrap')"), (np.roll(a, -1, 1) - np.roll(a, 1, 1)) / 8)
    f32 = a.astype("float32")
    api.expect(201, api.post("/v1/arrays", {"name": "f", "data": a.tolist(), "dtype": "float32", "spacing": [0.5, 4]}))
    assert api.evaluate("laplacian(f, 'array', 'wrap')").dtype == np.float32 and f32.dtype == np.float32


# --- staggered grids ---

def test_staggered_grids_in_one_expression(api):
    """A MAC grid: pressure in the cells, velocities on their faces, all of one stride."""
    nx, ny = 6, 20
    shapes, ghosts = [[nx, ny], [nx + 1, ny], [nx, ny + 1]], [[1, 1]] * 3
    layout = api.expect(200, api.post("/v1/layouts", {"shapes": shapes, "ghosts": ghosts})).json()
    rng = np.random.default_rng(8)
    arrays = {}
    for name, shape in zip("puv", shapes):
        arrays[name] = rng.standard_normal([n + 2 for n in shape]).astype("float32")
        m = make(api, name, arrays[name], [1, 1], padded=layout["padded"])
        assert m["strides"] == layout["strides"]
    u, v, p = (arrays[k][1:-1, 1:-1] for k in "uvp")
    got = api.evaluate("(u[1:] - u[:-1]) + (v[:, 1:] - v[:, :-1]) - 0.5*laplacian(p, boundary='ghost')")
    q = arrays["p"]
    lap = (q[2:, 1:-1] - 2 * p + q[:-2, 1:-1]) + (q[1:-1, 2:] - 2 * p + q[1:-1, :-2])
    np.testing.assert_array_equal(got, (u[1:] - u[:-1]) + (v[:, 1:] - v[:, :-1]) - np.float32(0.5) * lap)


# --- the other backend ---

def test_on_the_fake_gpu(gpu_with):
    d = gpu_with()
    api = d.client()
    rng = np.random.default_rng(5)
    for dtype in ("float32", "int16", "float64"):
        check_array(api, rng, dtype, [4, 3], [[dirichlet(2), neumann(-0.5)], "periodic"], [0.5, 3], 2)
    for shape in ((33, 64), (5, 7, 32), (3, 70, 33), (9, 6, 36)):
        ghost = [1] * len(shape)
        a = rng.standard_normal([n + 2 for n in shape]).astype("float32")
        make(api, "u", a, ghost)
        want = 0
        for k in range(len(shape)):
            e = [int(j == k) for j in range(len(shape))]
            want = want + (at(a, ghost, e) - 2 * at(a, ghost, [0] * len(shape)) + at(a, ghost, [-i for i in e]))
        kernel = api.expect(200, api.post("/v1/explain", {"expr": "laplacian(u, boundary='ghost')"})).json()["kernels"][0]
        assert "AR_GHOST" in kernel["source"] and "ar_near_load" in kernel["source"]
        np.testing.assert_array_equal(api.evaluate("laplacian(u, boundary='ghost')"), want)
        np.testing.assert_array_equal(api.evaluate("shift(u, [1, -1" + ", 0" * (len(shape) - 2) + "], boundary='ghost')"), at(a, ghost, (1, -1) + (0,) * (len(shape) - 2)))
        api.expect(204, api.delete("/v1/arrays/u"))
    api.close()


# --- sample ---

def sampled(a, p, boundary, spacing, nearest):
    """One point of the array's own boundary: the last axis outermost, as its ghosts are filled last."""
    if a.ndim == 0:
        return a[()]
    column = np.array([sampled(a[..., j], p[:-1], boundary[:-1], spacing[:-1], nearest) for j in range(a.shape[-1])])
    x, n, faces, h = p[-1], a.shape[-1], boundary[-1], spacing[-1]
    if np.isnan(x):
        return np.nan
    if faces == "periodic":
        i = np.floor(x + 0.5) if nearest else np.floor(x)
        w = 0 if nearest else x - i
        i = int(i)
        return column[i % n] * (1 - w) + column[(i + 1) % n] * w
    if 0 <= x <= n - 1:
        i = int(np.floor(x + 0.5)) if nearest else min(int(np.floor(x)), n - 1)
        w = 0 if nearest else x - i
        return column[i] * (1 - w) + column[min(i + 1, n - 1)] * w
    low = x < 0
    face, edge, out = faces[0 if low else 1], column[0 if low else -1], (-x if low else x - (n - 1))
    if face["type"] == "none":
        return edge
    v = face["value"]
    at_ghost = nearest and not low and out == 0.5  # rounds half up
    if face["type"] == "dirichlet":
        if out > 0.5:
            return v
        w = (1 if at_ghost else 0) if nearest else out
        return edge * (1 - w) + (2 * v - edge) * w
    if nearest:
        out = 1 if at_ghost else out if out > 0.5 else 0
    return edge + (-1 if low else 1) * (out * h * v if v else 0)


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("seed", range(18))
def test_sample_by_the_array(api, seed, method):
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 3 if seed < 12 else 5 + seed % 3
    shape = [int(n) for n in rng.integers(1, 6 if seed < 12 else 4, rank)]
    boundary = ["periodic" if rng.random() < 0.3 else [FACES[i] for i in rng.integers(0, len(FACES), 2)] for _ in shape]
    spacing = [float(h) for h in rng.choice([1, 0.5, 3], rank)]
    dtype = str(rng.choice(["float64", "float32", "int16", "float16"]))
    a = rng.integers(-20, 20, shape).astype(dtype)
    api.expect(201, api.post("/v1/arrays", {"name": "u", "data": a.tolist(), "dtype": dtype, "boundary": boundary, "spacing": spacing}))
    points = np.concatenate([rng.uniform(-4, 9, (60, rank)), rng.integers(-6, 16, (60, rank)) / 2, np.full((1, rank), np.nan)])
    api.upload(points, "p")
    got = api.evaluate(f"sample(u, p, '{method}', 'array')")
    assert got.dtype == (np.float64 if dtype == "int16" else dtype)
    want = [sampled(a.astype("float64"), p, boundary, spacing, method == "nearest") for p in points]
    np.testing.assert_allclose(got, want, rtol={"float16": 5e-3, "float32": 2e-5}.get(dtype, 1e-12), atol={"float16": 0.05, "float32": 1e-4}.get(dtype, 1e-12), err_msg=f"{boundary} {spacing}")


def test_sample_far_out(api):
    api.create(name="u", data=[1.0, 2.0], boundary=[[dirichlet(7), neumann(0)]])
    got = api.evaluate("sample(u, p, boundary='array')", bind={"p": api.upload(np.array([[-np.inf], [np.inf], [-1e300], [1e300], [-0.5], [1.5]]))["id"]})
    assert got.tolist() == [7, 2, 7, 2, 7, 2]
    api.expect(200, api.patch("/v1/arrays/u", {"boundary": [[neumann(2), neumann(-1)]], "spacing": [0.5]}))
    got = api.evaluate("sample(u, p, boundary='array')", bind={"p": api.upload(np.array([[-np.inf], [np.inf], [-4], [3.0]]))["id"]})
    assert got.tolist() == [-np.inf, -np.inf, -3, 1]
    api.upload(np.zeros((1, 1)), "q")
    refused(api, "sample(u*1, q, boundary='array')", "bad_boundary", 24)
    refused(api, "sample(u, q, boundary='ghost')", "bad_boundary")
