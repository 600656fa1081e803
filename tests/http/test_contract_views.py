"""The contract's section 4, views: every kind of them, held against NumPy's."""
import numpy as np
import pytest

A = np.arange(2 * 3 * 4, dtype="int32").reshape(2, 3, 4)


def view(api, ref="u", **body):
    return api.expect(201, api.post(f"/v1/arrays/{ref}/views", body)).json()


INDICES = ["0", "-1", "1:", ":1", "::-1", "0, 1", "0, 1, 2", "..., 0", "...", "None", ":, None, 1:-1", "1, ..., ::2",
           "None, ..., None", "::-1, ::-1, ::-1", ":, ::2, ::3", ":, 5:, :", "0:0", ":, -2:, -1", "5:1:-1", "1:-1, ::2, 3, None",
           ":,:,1:3", " 1 : 2 ", "-100:100", "1:0", "...,None,-1", "::100", ":, 2::-1"]


@pytest.mark.parametrize("index", INDICES)
def test_index(api, index):
    api.upload(A, name="u")
    m = view(api, index=index)
    want = eval(f"A[{index}]", {"A": A})  # the index strings above
    assert m["shape"] == list(want.shape)
    np.testing.assert_array_equal(api.download(m["id"]), want)
    np.testing.assert_array_equal(api.evaluate("v + 1", bind={"v": m["id"]}), want + 1)


@pytest.mark.parametrize("index", ["2", "-3", "0, 3", "0,0,0,0", "..., ...", "x", "1:2:0", "1.5", "[0]", "", "1 2", "(0", "0,,1",
                                   "9223372036854775808", "1:2:3:4", "0; 1", "True"])
def test_bad_index(api, index):
    api.upload(A, name="u")
    r = api.post("/v1/arrays/u/views", {"index": index})
    problem = api.fails(422, "bad_index", r)
    assert problem["pointer"] == "/index"


@pytest.mark.parametrize("axes", [[0, 1, 2], [2, 1, 0], [1, 2, 0], [-1, 0, 1]])
def test_permute(api, axes):
    api.upload(A, name="u")
    m = view(api, permute=axes)
    np.testing.assert_array_equal(api.download(m["id"]), A.transpose(axes))


@pytest.mark.parametrize("axes", [[0, 1], [0, 0, 1], [0, 1, 3], [0, 1, "2"], "012"])
def test_bad_permute(api, axes):
    api.upload(A, name="u")
    r = api.post("/v1/arrays/u/views", {"permute": axes})
    assert r.status == 422 and r.json()["pointer"].startswith("/permute"), r


@pytest.mark.parametrize("shape", [[24], [6, 4], [2, 12], [4, 3, 2], [1, 24, 1], [2, -1], [2, 3, 2, 2], [-1]])
def test_reshape(api, shape):
    api.upload(A, name="u")
    m = view(api, reshape=shape)
    want = A.reshape(shape)
    assert m["shape"] == list(want.shape)
    np.testing.assert_array_equal(api.download(m["id"]), want)


@pytest.mark.parametrize("shape", [[25], [-1, -1], [5, -1], [], [-2]])
def test_bad_reshape(api, shape):
    api.upload(A, name="u")
    r = api.post("/v1/arrays/u/views", {"reshape": shape})
    assert r.status == 422 and r.code in ("shape_mismatch", "bad_shape", "bad_field"), r


def test_a_reshape_that_cannot_be_a_view(api):
    api.upload(A, name="u")
    api.fails(422, "not_a_view", api.post("/v1/arrays/u/views", {"permute": [2, 1, 0], "reshape": [24]}))
    api.fails(422, "not_a_view", api.post("/v1/arrays/u/views", {"index": ":, :2", "reshape": [16]}))
    m = view(api, index=":, :2", reshape=[2, 2, 2, 2])
    np.testing.assert_array_equal(api.download(m["id"]), A[:, :2].reshape(2, 2, 2, 2))


def test_broadcast_to(api):
    api.create(name="u", data=[1, 2, 3])
    m = view(api, broadcast_to=[4, 3])
    assert m["shape"] == [4, 3] and m["strides"] == [0, 1]
    np.testing.assert_array_equal(api.download(m["id"]), [[1, 2, 3]] * 4)
    for shape in ([3, 4], [2], []):
        api.fails(422, "shape_mismatch", api.post("/v1/arrays/u/views", {"broadcast_to": shape}))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "float32", "int64", "float64", "complex64"])
def test_bit_views(api, dtype):
    api.upload(A, name="u")
    m = view(api, dtype=dtype)
    want = A.view(dtype)
    assert (m["shape"], m["dtype"]) == (list(want.shape), dtype)
    assert api.get(f"/v1/arrays/{m['id']}/data").body == want.tobytes()


def test_bad_bit_views(api):
    api.create(name="u", shape=[3], dtype="int32")
    r = api.post("/v1/arrays/u/views", {"dtype": "int64"})
    assert r.status == 422, r
    api.fails(422, "bad_dtype", api.post("/v1/arrays/u/views", {"dtype": "int31"}))


def test_the_order_of_the_steps(api):
    api.upload(A, name="u")
    m = view(api, index="1", permute=[1, 0], broadcast_to=[2, 4, 3], name="v")
    assert m["name"] == "v"
    np.testing.assert_array_equal(api.download("v"), np.broadcast_to(A[1].T, (2, 4, 3)))
    m = view(api, index=":, 0", reshape=[2, 2, 2], dtype="uint32")
    np.testing.assert_array_equal(api.download(m["id"]), A[:, 0].reshape(2, 2, 2).view("uint32"))


def test_metadata_of_a_view(api):
    u = api.upload(A, name="u")
    m = view(api, index="1, ::-1, 1:3")
    assert m["view_of"] == u["id"] and m["name"] is None
    assert (m["shape"], m["strides"], m["offset"], m["size"]) == ([3, 2], [-4, 1], 21, 6)
    assert m["nbytes"] == 24 and m["references"] == 2
    assert api.meta("u")["references"] == 2


def test_the_empty_view_is_another_reference(api):
    api.create(name="u", data=[1, 2])
    m = view(api)
    api.expect(204, api.delete("/v1/arrays/u"))
    assert api.download(m["id"]).tolist() == [1, 2]


def test_views_share_memory(api):
    api.create(name="u", shape=[4], dtype="int64")
    view(api, index="1:3", name="v")
    api.expect(204, api.put("/v1/arrays/v/data", [7, 8]))
    assert api.download("u").tolist() == [0, 7, 8, 0]
    api.expect(200, api.post("/v1/evaluate", {"expr": "v * 2", "out": "v"}))
    assert api.download("u").tolist() == [0, 14, 16, 0]
    api.expect(200, api.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
    assert api.download("v").tolist() == [15, 17]


def test_views_of_views(api):
    api.upload(A, name="u")
    m = view(api, index="::-1, 1:")
    m2 = view(api, ref=m["id"], permute=[2, 0, 1], index="0, ..., None")
    assert m2["view_of"] == m["id"]
    want = A[::-1, 1:][0, ..., None].transpose(2, 0, 1)
    np.testing.assert_array_equal(api.download(m2["id"]), want)


def test_memory_returns_with_the_last_reference(api):
    before = api.info()["bytes_in_use"]
    api.create(name="u", shape=[1000], dtype="float64")
    used = api.info()["bytes_in_use"]
    assert used > before
    v, w = view(api, index="5"), view(api, index="::2")
    api.expect(204, api.delete("/v1/arrays/u"))
    assert api.info()["bytes_in_use"] == used
    assert "view_of" not in api.meta(v["id"])
    api.expect(204, api.delete(f"/v1/arrays/{v['id']}"))
    assert api.info()["bytes_in_use"] == used
    api.expect(204, api.delete(f"/v1/arrays/{w['id']}"))
    assert api.info()["bytes_in_use"] == before


def test_rank_32(api):
    a = np.arange(8, dtype="int16").reshape([2, 2, 2] + [1] * 29)
    api.upload(a, name="u")
    m = view(api, permute=list(range(31, -1, -1)))
    np.testing.assert_array_equal(api.download(m["id"]), a.transpose())
    np.testing.assert_array_equal(api.evaluate("v + u", bind={"v": m["id"]}), a.transpose() + a)
    api.fails(422, "bad_index", api.post("/v1/arrays/u/views", {"index": "None, ..."}))


def test_a_taken_name(api):
    api.create(name="u", shape=[2])
    api.fails(409, "conflict", api.post("/v1/arrays/u/views", {"name": "u"}))
    api.fails(404, "not_found", api.post("/v1/arrays/nothing/views", {}))
