"""Shifts, differences and stencils against their definitions; in place, through views, in odd
shapes."""
import numpy as np
import pytest

from test_random_expr import MODES, shifted

SHAPES = [(1,), (2,), (17,), (1, 1), (5, 4), (1, 9), (33, 3), (3, 4, 5), (2, 1, 3, 2)]


def post_out(api, expr, out, **fields):
    api.expect(200, api.post("/v1/evaluate", {"expr": expr, "out": out, **fields}))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_shifts_of_every_shape(api, mode, shape):
    rng = np.random.default_rng(len(shape) * 10 + shape[0])
    a = rng.integers(-50, 50, shape).astype("int16")
    api.upload(a, name="u")
    for _ in range(6):
        o = [int(k) for k in rng.integers(-2 * max(shape), 2 * max(shape) + 1, len(shape))]
        if rng.random() < 0.5:
            o = [int(np.sign(k)) for k in o]
        got = api.evaluate(f"shift(u, {o}, '{mode}', 7)")
        np.testing.assert_array_equal(got, shifted(a, o, mode, 7), err_msg=str(o))


@pytest.mark.parametrize("mode", MODES)
def test_chains_of_shifts(api, mode):
    a = np.random.default_rng(1).integers(0, 100, (6, 7)).astype("int32")
    api.upload(a, name="u")
    for other in MODES:
        want = shifted(shifted(a, (2, -1), mode, 5) * 3 + a, (-1, 3), other, -2)
        got = api.evaluate(f"shift(shift(u, [2, -1], '{mode}', 5)*3 + u, [-1, 3], '{other}', -2)")
        np.testing.assert_array_equal(got, want, err_msg=other)


@pytest.mark.parametrize("mode", MODES)
def test_shifts_of_views_and_broadcasts(api, mode):
    a = np.random.default_rng(2).standard_normal((8, 9))
    row = np.arange(9.0)
    api.upload(a, name="u")
    api.upload(row, name="row")
    for text, x in (("u[::-1, ::2]", a[::-1, ::2]), ("u[1:-1] * row", a[1:-1] * row), ("row + u[:, :1]", row + a[:, :1]),
                    ("u[None, 2:5]", a[None, 2:5])):
        o = [1, -1, 2][:x.ndim]
        np.testing.assert_array_equal(api.evaluate(f"shift({text}, {o}, '{mode}', 1.5)"), shifted(x, o, mode, 1.5))


def test_index_within_a_shift(api):
    """The scope of index() is the shift's own argument, before it is moved."""
    a = np.arange(10.0)
    api.upload(a, name="u")
    np.testing.assert_array_equal(api.evaluate("shift(u + index(0), [1], 'clamp')"), shifted(a + np.arange(10), [1], "clamp"))
    np.testing.assert_array_equal(api.evaluate("shift(u, [1], 'clamp') + index(-1)"), shifted(a, [1], "clamp") + np.arange(10))


@pytest.mark.parametrize("mode", MODES)
def test_reductions_of_stencils(api, mode):
    a = np.random.default_rng(3).integers(0, 9, (20, 30))
    api.upload(a, name="u")
    lap = sum(shifted(a, o, mode) for o in ((1, 0), (-1, 0), (0, 1), (0, -1))) - 4 * a
    assert api.evaluate(f"sum(laplacian(u, boundary='{mode}'))") == lap.sum()
    np.testing.assert_array_equal(api.evaluate(f"max(laplacian(u, boundary='{mode}'), axis=0)"), lap.max(axis=0))
    np.testing.assert_array_equal(api.evaluate(f"shift(sum(u, axis=1), [2], '{mode}')"), shifted(a.sum(axis=1), [2], mode))


STEPS = ["u + 0.1*laplacian(u, boundary='{m}')", "shift(u, [1, 0], '{m}')", "shift(u, [0, -1], '{m}')", "u[::-1]", "u - mean(u)",
         "shift(shift(u, [1, 1], '{m}'), [-2, 0], '{m}')"]


def step(a, k, m):
    if k == 0:
        lap = 0
        for o in ((1, 0), (0, 1)):
            lap = lap + ((shifted(a, o, m) - 2 * a) + shifted(a, [-x for x in o], m))
        return a + 0.1 * lap
    return (None, shifted(a, (1, 0), m), shifted(a, (0, -1), m), a[::-1], a - a.mean(),
            shifted(shifted(a, (1, 1), m), (-2, 0), m))[k]


@pytest.mark.parametrize("shape", [(5, 4), (64, 65), (700, 300)], ids=str)
@pytest.mark.parametrize("mode", ["self", "wrap", "constant"])
def test_in_place(api, shape, mode):
    a = np.random.default_rng(4).standard_normal(shape)
    api.upload(a, name="u")
    for _ in range(2):
        for k, text in enumerate(STEPS):
            post_out(api, text.format(m=mode), "u")
            a = step(a, k, mode)
    np.testing.assert_allclose(api.download("u"), a, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("index", ["1:-1, 1:-1", "::-1", ":, ::-1", "::2", "2:, :-2"])
def test_in_place_through_views(api, index):
    a = np.random.default_rng(5).integers(0, 1000, (12, 14))
    api.upload(a, name="u")
    api.expect(201, api.post("/v1/arrays/u/views", {"index": index, "name": "v"}))
    want = a.copy()
    v = eval(f"want[{index}]", {"want": want})
    for mode in ("clamp", "wrap", "reflect"):
        post_out(api, f"v + shift(v, [1, -1], '{mode}')", "v")
        v[...] = v + shifted(v.copy(), (1, -1), mode)
        np.testing.assert_array_equal(api.download("u"), want)


@pytest.mark.parametrize("read,write", [("1:", ":-1"), (":-1", "1:"), ("::2", "1::2"), ("::-1", ":"), ("2:6", "3:7"), ("3:7", "2:6"),
                                        ("::2", ":6"), ("5", "2:9")])
def test_overlapping_regions(api, read, write):
    a = np.arange(12 * 40000).reshape(12, 40000)
    api.upload(a, name="u")
    post_out(api, f"u[{read}] + 1", "u", index=write)
    b = a.copy()
    exec(f"b[{write}] = a[{read}] + 1", {"a": a, "b": b})
    np.testing.assert_array_equal(api.download("u"), b)


def test_interior_update(api):
    """The textbook way: the inner region from its neighbours, the rim left alone."""
    a = np.random.default_rng(6).standard_normal((50, 60)).astype("float32")
    api.upload(a, name="u")
    text = "(u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4"
    for _ in range(3):
        post_out(api, text, "u", index="1:-1, 1:-1")
        b = a.copy()
        b[1:-1, 1:-1] = (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]) / 4
        a = b
    np.testing.assert_array_equal(api.download("u"), a)


def test_a_view_sees_what_is_written_in_place(api):
    api.create(name="u", data=[[1.0, 2.0], [3.0, 4.0]])
    api.expect(201, api.post("/v1/arrays/u/views", {"index": "0", "name": "v"}))
    post_out(api, "shift(u, [1, 0], 'wrap')", "u")
    assert api.download("v").tolist() == [3, 4]
    post_out(api, "v * 10", "v")
    assert api.download("u").tolist() == [[30, 40], [1, 2]]


@pytest.mark.parametrize("expr,code", [
    ("shift(u, [1])", None), ("shift(u, [1, 2, 3])", None), ("shift(u, [0.5, 1])", None), ("shift(u, [1, 1], 'ghost')", "ghost_width"),
    ("shift(u, [1, 1], 'array')", "bad_boundary"), ("shift(u, [1, 1], 'round')", "bad_boundary"), ("forward_diff(u, 2)", "bad_axis"),
    ("back_diff(u, -3)", "bad_axis"), ("shift(u, [1, 1], 'constant', 0.5)", "literal_range"), ("forward_diff(u > 0, 0)", "dtype_mismatch"),
    ("index(0)", None), ("index(5) + u", "bad_axis"), ("shift(2, [])", None)])
def test_mistakes(api, expr, code):
    api.create(name="u", shape=[3, 3], dtype="int32")
    r = api.post("/v1/evaluate", {"expr": expr})
    if expr != "shift(2, [])":
        assert r.status == 422, r
    assert r.status != 500
    if code:
        assert r.code == code


@pytest.mark.parametrize("text, want", [
    ("laplacian(x+index(0))+w", np.tile([1, 0, 0, 0, 0, -1], (3, 1))),
    ("forward_diff(x+index(0),0)+w", np.tile([1, 1, 1, 1, 1, 0], (3, 1))),
    ("shift(x+index(0),[0])+w", np.tile(np.arange(6), (3, 1))),
    ("max(x+index(0),axis=[])+w", np.tile(np.arange(6), (3, 1))),
    ("any(x+index(0),axis=[])+w", np.tile(np.arange(6) != 0, (3, 1))),
    ("shift(s*index(0),[0])+x", np.zeros(6)),
    ("shift(s*index(0),[1],boundary='wrap')+x", np.zeros(6)),
    ("shift(s*index(0),[5],boundary='reflect')+x", np.zeros(6)),
    ("(s*index(0))[0:1]+x", np.zeros(6)),
    ("shift(y*index(1),[0,0])+w", np.zeros((3, 6))),
    ("shift(w[0]+unravel_index(x+4,0),[0])+q", np.full((2, 1, 6), 4)),
])
def test_index_means_its_own_operand_where_the_operation_around_it_comes_to_nothing(api, text, want):
    for name, shape, fill in [("x", [6], 0), ("w", [3, 6], 0), ("s", [1], 1), ("y", [3, 1], 1), ("q", [2, 1, 6], 0)]:
        api.expect(201, api.post("/v1/arrays", {"name": name, "shape": shape, "dtype": "int64", "fill": fill}))
    reply = api.expect(200, api.post("/v1/evaluate", {"expr": text, "inline": True}))
    assert np.array_equal(np.array(reply.json()["data"]), want)
