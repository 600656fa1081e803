"""Ghost cells, boundaries, spacing and padding: making, describing, copying, viewing, addressing
and filling them."""
import json

import numpy as np
import pytest
from ghosts import NONE, dirichlet, filled, neumann

NONES = [NONE, NONE]


def whole(api, ref, dtype, shape, ghost):
    r = api.expect(200, api.get(f"/v1/arrays/{ref}/data?ghost=1"))
    return r.array(dtype, [n + 2 * g for n, g in zip(shape, ghost)])


def put_whole(api, ref, a):
    api.expect(204, api.put(f"/v1/arrays/{ref}/data?ghost=1", body=a.tobytes()))


def fails(api, code, reply, pointer=None, status=422):
    problem = api.fails(status, code, reply)
    assert problem.get("pointer") == pointer


def meta(api, ref):
    return api.expect(200, api.get(f"/v1/arrays/{ref}")).json()


@pytest.mark.parametrize("shape, ghost, padded", [
    ([5], [2], [16]), ([16], [0], None), ([4, 16], [1, 0], [6, 16]), ([4, 15], [1, 1], [6, 32]),
    ([3, 4, 5], [1, 2, 2], [5, 8, 16]), ([2, 3], [2, 3], [6, 16]), ([0, 4], [0, 1], [0, 16]), ([], [], None)])
def test_made_with_ghosts(api, shape, ghost, padded):
    m = api.expect(201, api.post("/v1/arrays", {"name": "u", "shape": shape, "dtype": "float32", "ghost": ghost})).json()
    assert (m["shape"], m["ghost"], m["spacing"]) == (shape, ghost, [1] * len(shape))
    assert m["nbytes"] == 4 * m["size"] == 4 * int(np.prod(shape))
    assert m["boundary"] == [NONES] * len(shape)
    if padded:
        strides = [int(np.prod(padded[k + 1:])) for k in range(len(padded))]
        assert m["strides"] == strides or 0 in shape
        assert m["offset"] % 16 == 0
        assert all(s % 16 == 0 for s in m["strides"][:-1])
    else:
        assert m["offset"] == 0 and m["strides"] == [int(np.prod(shape[k + 1:])) for k in range(len(shape))]
    assert not whole(api, "u", "float32", shape, ghost).any()
    a = np.arange(1, m["size"] + 1, dtype="float32").reshape(shape)
    api.expect(204, api.put("/v1/arrays/u/data", body=a.tobytes()))
    np.testing.assert_array_equal(whole(api, "u", "float32", shape, ghost), np.pad(a, [(g, g) for g in ghost]) if shape else a)
    assert api.expect(200, api.get("/v1/arrays/u/data")).body == a.tobytes()


CREATORS = [
    ({"shape": [2, 3], "fill": 7, "dtype": "int16"}, np.full((2, 3), 7, "int16")),
    ({"data": [[1, 2, 3], [4, 5, 6]]}, np.arange(1, 7, dtype="int64").reshape(2, 3)),
    ({"eye": {"n": 3}}, np.eye(3)),
    ({"arange": {"stop": 5}}, np.arange(5)), ({"linspace": {"start": 0, "stop": 1, "num": 5}}, np.linspace(0, 1, 5))]


@pytest.mark.parametrize("body, want", CREATORS)
def test_every_creator_fills_the_interior(api, body, want):
    ghost = [1] * want.ndim
    m = api.expect(201, api.post("/v1/arrays", {**body, "name": "u", "ghost": ghost})).json()
    assert m["ghost"] == ghost and m["references"] == 1 and m["offset"] % 16 == 0
    np.testing.assert_array_equal(whole(api, "u", m["dtype"], want.shape, ghost), np.pad(want, 1))


def test_random_is_the_same_with_ghosts(api):
    body = {"shape": [5, 7], "random": {"distribution": "uniform", "seed": 3}}
    api.expect(201, api.post("/v1/arrays", {**body, "name": "plain"}))
    api.expect(201, api.post("/v1/arrays", {**body, "name": "u", "ghost": [2, 2]}))
    assert api.get("/v1/arrays/u/data").body == api.get("/v1/arrays/plain/data").body
    assert not whole(api, "u", "float64", [5, 7], [2, 2])[:2].any()


@pytest.mark.parametrize("body, code, pointer", [
    ({"shape": [3], "ghost": [4]}, "ghost_width", "/ghost/0"), ({"shape": [3, 1], "ghost": [0, 2]}, "ghost_width", "/ghost/1"),
    ({"shape": [3], "ghost": [1, 1]}, "shape_mismatch", "/ghost"), ({"shape": [3], "ghost": [-1]}, "bad_field", "/ghost/0"),
    ({"shape": [3], "ghost": 1}, "bad_field", "/ghost"), ({"data": [1, 2], "ghost": [3]}, "ghost_width", "/ghost/0"),
    ({"data": [1, 2], "ghost": [1, 1]}, "shape_mismatch", "/ghost"), ({"arange": {"stop": 2}, "ghost": [3]}, "ghost_width", "/ghost/0"),
    ({"shape": [3], "boundary": ["periodic", "periodic"]}, "bad_boundary", "/boundary"), ({"shape": [3], "boundary": []}, "bad_boundary", "/boundary"),
    ({"shape": [3], "boundary": "periodic"}, "bad_boundary", "/boundary"), ({"shape": [3], "boundary": ["wrap"]}, "bad_boundary", "/boundary/0"),
    ({"shape": [3], "boundary": [[NONE]]}, "bad_boundary", "/boundary/0"), ({"shape": [3], "boundary": [[NONE, {"type": "robin"}]]}, "bad_boundary", "/boundary/0/1/type"),
    ({"shape": [3], "boundary": [[{"type": "dirichlet"}, NONE]]}, "bad_boundary", "/boundary/0/0"),
    ({"shape": [3], "boundary": [[{"type": "none", "value": 1}, NONE]]}, "bad_boundary", "/boundary/0/0/value"),
    ({"shape": [3], "boundary": [[dirichlet(True), NONE]]}, "bad_boundary", "/boundary/0/0/value"),
    ({"shape": [3], "boundary": [[dirichlet([1, 2]), NONE]]}, "bad_boundary", "/boundary/0/0/value"),
    ({"shape": [3], "boundary": [[{"type": "periodic"}, NONE]]}, "bad_boundary", "/boundary/0"),
    ({"shape": [3], "boundary": [[dirichlet(0), {"type": "periodic"}]]}, "bad_boundary", "/boundary/0"),
    ({"shape": [3], "boundary": [[{"type": "none", "flux": 1}, NONE]]}, "unknown_field", "/boundary/0/0/flux"),
    ({"shape": [3], "spacing": [1, 1]}, "shape_mismatch", "/spacing"), ({"shape": [3], "spacing": [0]}, "bad_field", "/spacing/0"),
    ({"shape": [3], "spacing": [-1]}, "bad_field", "/spacing/0"), ({"shape": [3], "spacing": ["Infinity"]}, "bad_field", "/spacing/0"),
    ({"shape": [3], "spacing": 2}, "bad_field", "/spacing"), ({"shape": [3], "padded": [15]}, "bad_shape", "/padded"),
    ({"shape": [3, 3], "padded": [2, 16]}, "shape_mismatch", "/padded"), ({"shape": [3, 3], "ghost": [1, 0], "padded": [4, 16]}, "shape_mismatch", "/padded"),
    ({"shape": [3, 3], "padded": [16]}, "shape_mismatch", "/padded"), ({"shape": [3], "congruent_to": "nobody"}, "not_found", "/congruent_to"),
    ({"shape": [3], "congruent_to": "plain"}, "shape_mismatch", "/congruent_to"), ({"shape": [3, 3], "congruent_to": "line"}, "shape_mismatch", "/congruent_to"),
    ({"shape": [17], "congruent_to": "line"}, "shape_mismatch", "/congruent_to"), ({"shape": [3], "congruent_to": "line", "padded": [16]}, "bad_field", "/congruent_to"),
    ({"shape": [3], "fill": 1, "congruent_to": "line", "ghost": [1, 1]}, "shape_mismatch", "/ghost")])
def test_what_is_refused(api, body, code, pointer):
    api.create(name="plain", shape=[3])
    api.create(name="line", shape=[3], ghost=[1])
    fails(api, code, api.post("/v1/arrays", body), pointer, 404 if code == "not_found" else 422)
    assert {a["name"] for a in api.get("/v1/arrays").json()["arrays"]} == {"plain", "line"}


def test_boundary_and_spacing_in_metadata(api):
    boundary = ["periodic", [dirichlet(1.5), neumann(-2)], [NONE, dirichlet(0)]]
    m = api.expect(201, api.post("/v1/arrays", {"name": "u", "shape": [2, 2, 2], "boundary": boundary, "spacing": [1, 0.5, 2]})).json()
    assert m["boundary"] == boundary and m["spacing"] == [1, 0.5, 2] and m["ghost"] == [0, 0, 0]
    assert m["strides"] == [4, 2, 1] and m["offset"] == 0
    for_complex = [[dirichlet([1, -2]), dirichlet("NaN")]]
    m = api.expect(201, api.post("/v1/arrays", {"shape": [2], "dtype": "complex64", "boundary": for_complex})).json()
    assert m["boundary"] == for_complex


def test_patch(api):
    api.create(name="u", shape=[4, 4], ghost=[1, 1])
    before = meta(api, "u")
    m = api.expect(200, api.patch("/v1/arrays/u", {"boundary": ["periodic", NONES], "spacing": [0.5, 2]})).json()
    assert m["boundary"] == ["periodic", NONES] and m["spacing"] == [0.5, 2] and m["ghost"] == [1, 1]
    assert {k: v for k, v in m.items() if k not in ("boundary", "spacing")} == {k: v for k, v in before.items() if k not in ("boundary", "spacing")}
    assert meta(api, "u") == m
    m = api.expect(200, api.patch("/v1/arrays/u", {"spacing": [1, 1]})).json()
    assert m["boundary"] == ["periodic", NONES] and m["spacing"] == [1, 1]
    api.create(name="v", shape=[1])
    for body, code, pointer in (({"boundary": ["periodic"]}, "bad_boundary", "/boundary"), ({"name": "v", "spacing": [2, 2]}, "conflict", "/name"),
                                ({"ghost": [1, 1]}, "unknown_field", "/ghost"), ({"spacing": [1]}, "shape_mismatch", "/spacing")):
        fails(api, code, api.patch("/v1/arrays/u", body), pointer, 409 if code == "conflict" else 422)
    assert meta(api, "u") == m
    # a handle's description is its own
    view = api.expect(201, api.post("/v1/arrays/u/views", {"name": "w"})).json()
    api.expect(200, api.patch("/v1/arrays/w", {"spacing": [3, 3]}))
    assert meta(api, "u")["spacing"] == [1, 1] and view["spacing"] == [1, 1]


def test_layouts(api):
    r = api.expect(200, api.post("/v1/layouts", {"shapes": [[4, 5], [5, 4], [4, 4]], "ghosts": [[1, 1], [2, 1], [0, 0]]})).json()
    assert r == {"padded": [9, 16], "strides": [16, 1], "pads": [[3, 9], [0, 10], [5, 12]]}
    assert api.expect(200, api.post("/v1/layouts", {"shapes": [[17]]})).json() == {"padded": [32], "strides": [1], "pads": [[15]]}
    assert api.expect(200, api.post("/v1/layouts", {"shapes": [[]], "ghosts": [[]]})).json() == {"padded": [], "strides": [], "pads": [[]]}
    for body, code, pointer in (
            ({}, "bad_field", "/shapes"), ({"shapes": []}, "bad_field", "/shapes"), ({"shapes": [[1], [1, 1]]}, "shape_mismatch", "/shapes/1"),
            ({"shapes": [[1]], "ghosts": []}, "shape_mismatch", "/ghosts"), ({"shapes": [[1]], "ghosts": [[1, 1]]}, "shape_mismatch", "/ghosts/0"),
            ({"shapes": [[1]], "ghosts": [[2]]}, "ghost_width", "/ghosts/0/0"), ({"shapes": [[1]], "ghosts": [[-1]]}, "bad_field", "/ghosts/0/0"),
            ({"shapes": [[-1]]}, "bad_shape", "/shapes/0/0"), ({"shapes": [[2**53]] * 2, "align": 1}, "unknown_field", "/align"),
            ({"shapes": [["9223372036854775807"]]}, "bad_shape", "/shapes"), ({"shapes": 3}, "bad_field", "/shapes")):
        fails(api, code, api.post("/v1/layouts", body), pointer)


def test_congruent_arrays(api):
    shapes, ghosts = [[8, 9], [9, 8], [8, 8]], [[1, 1], [1, 1], [0, 2]]
    layout = api.expect(200, api.post("/v1/layouts", {"shapes": shapes, "ghosts": ghosts})).json()
    for shape, ghost in zip(shapes, ghosts):
        m = api.expect(201, api.post("/v1/arrays", {"shape": shape, "ghost": ghost, "padded": layout["padded"], "fill": 3})).json()
        assert m["strides"] == layout["strides"] and m["offset"] % 16 == 0
        assert api.get(f"/v1/arrays/{m['id']}/data").body == np.full(shape, 3).tobytes()
    first = api.expect(201, api.post("/v1/arrays", {"shape": [8, 20], "ghost": [1, 1], "dtype": "float32"})).json()
    for body in ({"shape": [10, 32]}, {"shape": [6, 8], "ghost": [2, 2], "dtype": "complex128"}, {"data": np.ones((3, 3)).tolist()}):
        m = api.expect(201, api.post("/v1/arrays", {**body, "congruent_to": first["id"]})).json()
        assert m["strides"] == first["strides"]
        again = api.expect(201, api.post("/v1/arrays", {"shape": [1, 1], "congruent_to": m["id"]})).json()
        assert again["strides"] == first["strides"]


def test_alignment_stays(api):
    u = api.expect(201, api.post("/v1/arrays", {"name": "u", "shape": [2, 2], "ghost": [1, 1], "alignment": 1024})).json()
    assert u["offset"] == 128
    assert api.expect(201, api.post("/v1/arrays/u/copy", {})).json()["offset"] == 128
    assert api.expect(201, api.post("/v1/arrays", {"like": "u", "dtype": "int16"})).json()["offset"] == 512
    assert api.expect(201, api.post("/v1/arrays", {"like": "u", "alignment": 4096})).json()["offset"] == 512
    assert api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [4, 4]})).json()["offset"] == 128
    assert api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [3, 4]})).json()["offset"] == 128
    flat = api.expect(201, api.post("/v1/arrays", {"shape": [3], "alignment": 1024})).json()
    assert flat["offset"] == 0  # where its memory begins


def test_like_and_copy_keep_everything(api):
    boundary = ["periodic", [dirichlet(1), neumann(2)]]
    u = api.expect(201, api.post("/v1/arrays", {"name": "u", "shape": [4, 5], "dtype": "float32", "ghost": [1, 2], "padded": [8, 32],
                                                "boundary": boundary, "spacing": [2, 3]})).json()
    a = np.arange(6 * 9, dtype="float32").reshape(6, 9)
    put_whole(api, "u", a)
    same = ("shape", "dtype", "strides", "offset", "ghost", "boundary", "spacing", "nbytes")
    like = api.expect(201, api.post("/v1/arrays", {"name": "l", "like": "u"})).json()
    assert [like[k] for k in same] == [u[k] for k in same]
    assert not whole(api, "l", "float32", [4, 5], [1, 2]).any()
    copy = api.expect(201, api.post("/v1/arrays/u/copy", {"name": "c"})).json()
    assert [copy[k] for k in same] == [u[k] for k in same] and "view_of" not in copy
    np.testing.assert_array_equal(whole(api, "c", "float32", [4, 5], [1, 2]), a)
    other = api.expect(201, api.post("/v1/arrays", {"like": "u", "dtype": "int8", "spacing": [1, 1], "shape": [9, 9]})).json()
    assert (other["dtype"], other["spacing"], other["boundary"], other["ghost"]) == ("int8", [1, 1], boundary, [1, 2])
    assert other["strides"] == [16, 1]
    wider = api.expect(201, api.post("/v1/arrays", {"like": "u", "ghost": [4, 0]})).json()
    assert wider["ghost"] == [4, 0] and wider["strides"] == [16, 1]
    fails(api, "ghost_width", api.post("/v1/arrays", {"like": "u", "shape": [4, 1]}), "/ghost/1")
    flat = api.expect(201, api.post("/v1/arrays", {"like": "u", "shape": [3]})).json()
    assert flat["ghost"] == [0] and flat["strides"] == [1]


def test_swap_exchanges_ghosted_memory(api):
    for name, value in (("a", 1), ("b", 2)):
        api.create(name=name, shape=[4], ghost=[1], fill=value, dtype="int32")
    api.expect(200, api.patch("/v1/arrays/a", {"boundary": ["periodic"]}))
    m = api.expect(200, api.post("/v1/arrays/a/swap", {"with": "b"})).json()
    assert m["boundary"] == ["periodic"] and meta(api, "b")["boundary"] == [NONES]
    assert whole(api, "a", "int32", [4], [1]).tolist() == [0, 2, 2, 2, 2, 0]
    # one stride and one offset, but other ghosts
    api.create(name="x", shape=[6, 16], ghost=[1, 0], dtype="int32", padded=[8, 32])
    api.create(name="y", shape=[6, 16], padded=[8, 32], dtype="int32")
    api.fails(409, "conflict", api.post("/v1/arrays/x/swap", {"with": "y"}))


def test_resize(api):
    api.expect(201, api.post("/v1/arrays", {"name": "u", "data": np.arange(12).reshape(2, 6).tolist(), "ghost": [1, 1],
                                            "boundary": ["periodic", NONES], "spacing": [2, 2]}))
    put_whole(api, "u", np.pad(np.arange(12).reshape(2, 6), 1, constant_values=-1))
    m = api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [3, 4]})).json()
    assert (m["ghost"], m["boundary"], m["spacing"], m["strides"]) == ([1, 1], ["periodic", NONES], [2, 2], [16, 1])
    np.testing.assert_array_equal(whole(api, "u", "int64", [3, 4], [1, 1]), np.pad(np.arange(12).reshape(3, 4), 1))
    m = api.expect(200, api.post("/v1/arrays/u/resize", {"shape": [5, 5]})).json()
    assert not whole(api, "u", "int64", [5, 5], [1, 1]).any() and m["references"] == 1
    fails(api, "shape_mismatch", api.post("/v1/arrays/u/resize", {"shape": [25]}), "/shape")
    fails(api, "ghost_width", api.post("/v1/arrays/u/resize", {"shape": [25, 0]}), "/shape")
    api.expect(201, api.post("/v1/arrays/u/views", {"name": "v"}))
    api.fails(409, "conflict", api.post("/v1/arrays/u/resize", {"shape": [2, 2]}))


def test_views(api):
    api.expect(201, api.post("/v1/arrays", {"name": "u", "shape": [3, 4], "dtype": "int32", "ghost": [1, 2], "boundary": ["periodic", [dirichlet(1), NONE]], "spacing": [2, 3]}))
    a = np.arange(5 * 8, dtype="int32").reshape(5, 8)
    put_whole(api, "u", a)
    u = meta(api, "u")
    v = api.expect(201, api.post("/v1/arrays/u/views", {})).json()
    keys = ("shape", "strides", "offset", "ghost", "boundary", "spacing")
    assert [v[k] for k in keys] == [u[k] for k in keys] and v["view_of"] == u["id"]
    np.testing.assert_array_equal(whole(api, v["id"], "int32", [3, 4], [1, 2]), a)
    w = api.expect(201, api.post("/v1/arrays/u/views", {"ghost": True, "name": "w"})).json()
    assert w["shape"] == [5, 8] and w["strides"] == u["strides"] and (w["ghost"], w["boundary"], w["spacing"]) == (u["ghost"], u["boundary"], u["spacing"])
    np.testing.assert_array_equal(api.get("/v1/arrays/w/data").array("int32", [5, 8]), a)
    np.testing.assert_array_equal(api.get("/v1/arrays/w/data?ghost=1&index=-1,-2:0").array("int32", [2]), a[0, :2])
    cut = api.expect(201, api.post("/v1/arrays/u/views", {"ghost": True, "index": "::2, -3:"})).json()
    assert cut["shape"] == [3, 3] and cut["ghost"] == [0, 0] and cut["boundary"] == [NONES, NONES] and cut["spacing"] == [1, 1]
    np.testing.assert_array_equal(api.get(f"/v1/arrays/{cut['id']}/data").array("int32", [3, 3]), a[::2, -3:])
    inner = api.expect(201, api.post("/v1/arrays/u/views", {"index": "..."})).json()
    assert inner["shape"] == [3, 4] and inner["ghost"] == [0, 0] and inner["boundary"] == [NONES, NONES]
    np.testing.assert_array_equal(api.get(f"/v1/arrays/{inner['id']}/data?ghost=1").array("int32", [3, 4]), a[1:-1, 2:-2])
    again = api.expect(201, api.post("/v1/arrays/w/views", {"ghost": True})).json()
    assert again["shape"] == [5, 8] and again["ghost"] == [1, 2]
    # writes go to the array
    api.expect(200, api.post("/v1/evaluate", {"expr": "7", "out": "w"}))
    assert (whole(api, "u", "int32", [3, 4], [1, 2]) == 7).all()
    copy = api.expect(201, api.post("/v1/arrays/w/copy")).json()
    assert copy["shape"] == [5, 8] and copy["ghost"] == [1, 2] and copy["strides"] == [8, 1]
    api.expect(200, api.post("/v1/arrays/w/fill_ghost"))
    want = filled(np.full((5, 8), 7, "int32"), [1, 2], u["boundary"], [2, 3])
    np.testing.assert_array_equal(whole(api, "u", "int32", [3, 4], [1, 2]), want)


GHOST_INDICES = [
    ("", (slice(None), slice(None))), (":", (slice(None), slice(None))), (":,:", (slice(None), slice(None))),
    ("-1", (0, slice(None))), ("0,0", (1, 2)), ("3", (4, slice(None))), ("-1,5", (0, 7)), ("-1:0", (slice(0, 1), slice(None))),
    ("-9:9,-9:9", (slice(None), slice(None))), ("1:,:-1", (slice(2, None), slice(0, 1))), (":,::-1", (slice(None), slice(None, None, -1))),
    ("::2,::3", (slice(None, None, 2), slice(None, None, 3))), ("2::-1", (slice(3, None, -1), slice(None))), (":,4::-2", (slice(None), slice(6, None, -2))),
    (":,:-2:-1", (slice(None), slice(None, 0, -1))), (":,:-9:-1", (slice(None), slice(None, None, -1))), ("-5::-1", (slice(0, 0), slice(None))),
    ("9:", (slice(0, 0), slice(None))), (":-5", (slice(0, 0), slice(None))), ("9::-1,0", (slice(None, None, -1), 2)), ("1:1", (slice(0, 0), slice(None)))]


@pytest.mark.parametrize("index, at", GHOST_INDICES)
def test_ghost_indices(api, index, at):
    api.expect(201, api.post("/v1/arrays", {"name": "u", "shape": [3, 4], "dtype": "int32", "ghost": [1, 2]}))
    a = np.arange(5 * 8, dtype="int32").reshape(5, 8)
    put_whole(api, "u", a)
    path = f"/v1/arrays/u/data?ghost=1&index={index}" if index else "/v1/arrays/u/data?ghost=1"
    want = a[at]
    got = api.expect(200, api.get(path, accept="application/x-npy")).npy()
    np.testing.assert_array_equal(got, want)
    new = np.full_like(want, -5)
    api.expect(204, api.put(path, body=new.tobytes()))
    a[at] = -5
    np.testing.assert_array_equal(whole(api, "u", "int32", [3, 4], [1, 2]), a)


@pytest.mark.parametrize("index", ["None", "...", "0,...", "-2", "4", "0,6", "0,-3", "0,0,0", ":,None", "::0"])
def test_ghost_indices_refused(api, index):
    api.create(name="u", shape=[3, 4], ghost=[1, 2])
    api.fails(422, "bad_index", api.get(f"/v1/arrays/u/data?ghost=1&index={index}"))


def test_ghost_query(api):
    api.create(name="u", shape=[3], ghost=[1])
    api.create(name="p", data=[1, 2, 3])
    assert api.get("/v1/arrays/u/data?ghost=0").body == bytes(24)
    assert api.get("/v1/arrays/u/data?ghost=1", accept="application/json").json() == [0] * 5
    assert api.get("/v1/arrays/p/data?ghost=1&index=1:", accept="application/json").json() == [2, 3]
    api.fails(422, "bad_index", api.get("/v1/arrays/p/data?ghost=1&index=-1"))
    for value in ("2", "true", ""):
        assert api.get(f"/v1/arrays/u/data?ghost={value}").status in (400, 422)
    api.fails(422, "length_mismatch", api.put("/v1/arrays/u/data?ghost=1", body=bytes(24)))
    tags = [api.get(f"/v1/arrays/u/data{q}").headers["ETag"] for q in ("", "?ghost=1")]
    assert tags[0] != tags[1]
    assert api.get("/v1/arrays/u/data?ghost=1", headers={"If-None-Match": tags[1]}).status == 304


FACES = [NONE, dirichlet(1.5), dirichlet(-3), neumann(0), neumann(0.75), neumann(-2)]
ALL_DTYPES = ["bool", "int8", "uint8", "int16", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128"]


def values(rng, dtype, shape):
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape)).astype(dtype) if dtype.startswith("complex") else x.astype(dtype)


def check_fill(api, rng, dtype, shape, ghost, boundary, spacing):
    body = {"shape": shape, "dtype": dtype, "ghost": ghost, "boundary": boundary, "spacing": spacing}
    m = api.expect(201, api.post("/v1/arrays", body)).json()
    size = [n + 2 * g for n, g in zip(shape, ghost)]
    a = values(rng, dtype, size)
    put_whole(api, m["id"], a)
    r = api.expect(200, api.post(f"/v1/arrays/{m['id']}/fill_ghost")).json()
    assert r["id"] == m["id"] and r["boundary"] == boundary
    got = whole(api, m["id"], dtype, shape, ghost)
    want = filled(a, ghost, boundary, spacing)
    np.testing.assert_array_equal(got, want, err_msg=json.dumps(body))
    api.expect(204, api.delete(f"/v1/arrays/{m['id']}"))


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_fill_of_every_dtype(api, dtype):
    rng = np.random.default_rng(1)
    for boundary in (["periodic"], [[dirichlet(1.5), dirichlet(2)]], [[neumann(0.5), neumann(-1.25)]], [[NONE, neumann(3)]]):
        check_fill(api, rng, dtype, [5], [3], boundary, [0.5])
    if dtype.startswith("complex"):
        check_fill(api, rng, dtype, [5], [2], [[dirichlet([1, 2]), neumann([0, -1])]], [2])


@pytest.mark.parametrize("seed", range(24))
def test_fill_at_random(api, seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    shape = [int(n) for n in rng.integers(1, 7, rank)]
    ghost = [int(rng.integers(0, n + 1)) for n in shape]
    boundary = ["periodic" if rng.random() < 0.25 else [FACES[i] for i in rng.integers(0, len(FACES), 2)] for _ in shape]
    check_fill(api, rng, str(rng.choice(["float64", "float32", "int16"])), shape, ghost, boundary, [float(h) for h in rng.choice([1, 0.5, 2], rank)])


def test_fill_leaves_the_rest_alone(api):
    api.create(name="p", data=[1, 2, 3])
    v = meta(api, "p")
    assert api.expect(200, api.post("/v1/arrays/p/fill_ghost")).json() == v
    api.create(name="u", shape=[3], ghost=[1], boundary=["periodic"])
    api.expect(200, api.post("/v1/arrays/u/fill_ghost", {}))
    fails(api, "unknown_field", api.post("/v1/arrays/u/fill_ghost", {"axis": 0}), "/axis")
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": True}))
    api.fails(409, "read_only", api.post("/v1/arrays/u/fill_ghost"))
    api.fails(404, "not_found", api.post("/v1/arrays/nobody/fill_ghost"))
    api.create(name="empty", shape=[0, 3], ghost=[0, 1], boundary=["periodic", "periodic"])
    api.expect(200, api.post("/v1/arrays/empty/fill_ghost"))


def test_a_download_keeps_what_it_began_with(api):
    api.create(name="u", shape=[1024, 1024], ghost=[1, 1], fill=1.0, boundary=[[dirichlet(3), dirichlet(3)]] * 2)
    other = api.clone()
    conn = other.connect()
    conn.request("GET", "/v1/arrays/u/data?ghost=1")
    r = conn.getresponse()
    api.expect(200, api.post("/v1/arrays/u/fill_ghost"))
    a = np.frombuffer(r.read(), "float64").reshape(1026, 1026)
    assert a[0].sum() == 0 and a[1:-1, 1:-1].all()
    b = whole(api, "u", "float64", [1024, 1024], [1, 1])
    assert (b[0, 1:-1] == 5).all() and b[0, 0] == 1
    other.close()


def test_on_the_fake_gpu(gpu_with):
    d = gpu_with()
    api = d.client()
    rng = np.random.default_rng(5)
    for dtype in ("float32", "int16", "complex64", "bool"):
        check_fill(api, rng, dtype, [4, 5], [2, 3], [[dirichlet(1.5), neumann(-2)], "periodic"], [0.5, 2])
    check_fill(api, rng, "float64", [3, 4, 5], [1, 2, 1], ["periodic", [NONE, neumann(0.5)], [dirichlet(2), NONE]], [1, 2, 3])
    api.expect(201, api.post("/v1/arrays", {"name": "u", "data": [[1, 2], [3, 4]], "ghost": [1, 1]}))
    np.testing.assert_array_equal(whole(api, "u", "int64", [2, 2], [1, 1]), np.pad([[1, 2], [3, 4]], 1))
    api.expect(201, api.post("/v1/arrays/u/copy", {"name": "c"}))
    assert whole(api, "c", "int64", [2, 2], [1, 1]).sum() == 10
    api.close()
