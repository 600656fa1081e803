"""The contract's section 5: POST /v1/evaluate and /v1/explain, where results go, stencils."""
import itertools

import numpy as np
import pytest

from client import DTYPES, JSON, NPY, OCTETS

# --- where the result goes ---


def test_a_new_array(api):
    api.create(name="u", data=[1.0, 2.0])
    r = api.expect(201, api.post("/v1/evaluate", {"expr": "u + 1", "name": "v"}))
    meta = r.json()
    assert (meta["name"], meta["dtype"], meta["shape"]) == ("v", "float64", [2])
    assert r.headers["Location"] == f"/v1/arrays/{meta['id']}"
    assert api.download("v").tolist() == [2, 3]
    meta = api.expect(201, api.post("/v1/evaluate", {"expr": "u + 1"})).json()
    assert meta["name"] is None and api.download(meta["id"]).tolist() == [2, 3]


def test_a_name_for_a_scalar(api):
    r = api.expect(201, api.post("/v1/evaluate", {"expr": "1 + 2", "name": "s"}))
    assert r.json()["shape"] == []
    assert api.get("/v1/arrays/s/data", accept=JSON).json() == 3


def test_a_taken_name_is_replaced(api):
    old = api.create(name="u", data=[1.0, 2.0])
    view = api.expect(201, api.post("/v1/arrays/u/views", {"index": "1"})).json()
    new = api.expect(201, api.post("/v1/evaluate", {"expr": "u * 10", "name": "u"})).json()
    assert new["id"] != old["id"] and api.meta("u")["id"] == new["id"]
    api.fails(404, "not_found", api.get(f"/v1/arrays/{old['id']}"))
    assert api.download("u").tolist() == [10, 20]
    assert api.download(view["id"]) == 2


def test_out(api):
    u = api.create(name="u", shape=[2, 3], dtype="float32")
    api.create(name="row", data=[1.0, 2.0, 3.0])
    r = api.expect(200, api.post("/v1/evaluate", {"expr": "row", "out": "u"}))
    assert (r.json()["id"], r.json()["dtype"]) == (u["id"], "float32")
    np.testing.assert_array_equal(api.download("u"), [[1, 2, 3]] * 2)
    api.expect(200, api.post("/v1/evaluate", {"expr": "7", "out": u["id"]}))
    assert (api.download("u") == 7).all()


def test_out_with_index(api):
    api.create(name="u", shape=[4, 4], dtype="int64")
    body = {"expr": "5 + z", "bind": {"z": 1}, "out": "u", "index": "1:3, ::2"}
    api.expect(200, api.post("/v1/evaluate", body))
    want = np.zeros((4, 4))
    want[1:3, ::2] = 6
    np.testing.assert_array_equal(api.download("u"), want)
    api.fails(422, "bad_index", api.post("/v1/evaluate", {"expr": "1", "out": "u", "index": "9"}))
    r = api.post("/v1/evaluate", {"expr": "1", "index": "0"})
    assert r.status == 422, r  # a region of nothing


@pytest.mark.parametrize("expr,out,ok", [
    ("f64", "float32", True), ("i64", "int8", True), ("i64", "float32", True), ("f64", "int64", False), ("c128", "float64", False),
    ("i64", "uint8", False), ("u8", "int8", True), ("b", "uint8", True), ("f64", "complex64", True), ("i64", "bool", False), ("f64", "float16", True), ("f64", "bfloat16", True)])
def test_casts_into_out_are_same_kind(api, expr, out, ok):
    dtype = {"f64": "float64", "i64": "int64", "c128": "complex128", "u8": "uint8", "b": "bool"}[expr]
    api.create(name="x", shape=[3], dtype=dtype)
    api.create(name="o", shape=[3], dtype=out)
    r = api.post("/v1/evaluate", {"expr": "x", "out": "o"})
    if ok:
        api.expect(200, r)
    else:
        api.fails(422, "dtype_mismatch", r)


def test_out_of_another_shape(api):
    api.create(name="u", shape=[3])
    api.create(name="x", shape=[2])
    api.fails(422, "shape_mismatch", api.post("/v1/evaluate", {"expr": "x", "out": "u"}))
    api.create(name="y", shape=[1, 3])
    api.fails(422, "shape_mismatch", api.post("/v1/evaluate", {"expr": "y + index(0)", "out": "x"}))
    api.fails(404, "not_found", api.post("/v1/evaluate", {"expr": "1", "out": "nothing"}))


def test_out_that_overlaps_itself(api):
    api.create(name="u", data=[1, 2, 3])
    api.expect(201, api.post("/v1/arrays/u/views", {"broadcast_to": [2, 3], "name": "v"}))
    api.fails(422, "overlap", api.post("/v1/evaluate", {"expr": "u + 1", "out": "v"}))
    assert api.download("u").tolist() == [1, 2, 3]


def test_name_and_out_at_once(api):
    api.create(name="u", data=[1, 2, 3])
    assert api.post("/v1/evaluate", {"expr": "u", "out": "u", "name": "v"}).status == 422


def test_a_value(api):
    api.create(name="u", data=[1.0, 2.0])
    r = api.expect(200, api.post("/v1/evaluate", {"expr": "sum(u)"}))
    assert r.json() == {"dtype": "float64", "shape": [], "value": 3.0}
    assert len(api.list_all("/v1/arrays", "arrays")) == 1


def test_inline(api):
    api.create(name="u", data=[[1.5, 2], [3, 4]])
    r = api.expect(200, api.post("/v1/evaluate", {"expr": "u * 2", "inline": True}))
    assert r.json() == {"dtype": "float64", "shape": [2, 2], "data": [[3, 4], [6, 8]]}
    r = api.expect(200, api.post("/v1/evaluate", {"expr": "u[0] > 1.7", "inline": True}))
    assert r.json() == {"dtype": "bool", "shape": [2], "data": [False, True]}
    assert len(api.list_all("/v1/arrays", "arrays")) == 1


def test_inline_up_to_65536_elements(api):
    api.create(name="u", shape=[65537], dtype="int8")
    r = api.expect(200, api.post("/v1/evaluate", {"expr": "u[1:]", "inline": True}))
    assert r.json()["data"] == [0] * 65536
    api.fails(422, "too_large", api.post("/v1/evaluate", {"expr": "u", "inline": True}))


@pytest.mark.parametrize("dtype", DTYPES)
def test_inline_of_every_type(api, dtype):
    api.create(name="u", shape=[2], dtype=dtype, fill=True if dtype == "bool" else 1)
    r = api.expect(200, api.post("/v1/evaluate", {"expr": "u", "inline": True}))
    one = True if dtype == "bool" else [1, 0] if "complex" in dtype else 1
    assert r.json() == {"dtype": dtype, "shape": [2], "data": [one, one]}
    assert type(r.json()["data"][0]) is not bool or dtype == "bool"


def test_data_as_the_reply(api):
    api.create(name="u", data=[1, 2, 3])
    r = api.expect(200, api.post("/v1/evaluate", {"expr": "u*u"}, accept=OCTETS))
    assert r.type == OCTETS and r.array("int64", (3,)).tolist() == [1, 4, 9]
    r = api.expect(200, api.post("/v1/evaluate", {"expr": "u*u"}, accept=NPY))
    assert r.type == NPY and r.npy().tolist() == [1, 4, 9]
    assert len(api.list_all("/v1/arrays", "arrays")) == 1
    r = api.post("/v1/evaluate", {"expr": "u*u"}, accept="*/*")
    assert api.expect(201, r).type == JSON
    api.fails(406, "not_acceptable", api.post("/v1/evaluate", {"expr": "u"}, accept="text/html"))


def test_with_name_or_out_the_reply_is_metadata(api):
    api.create(name="u", data=[1, 2, 3])
    for body, status in (({"expr": "u", "name": "v"}, 201), ({"expr": "u", "out": "u"}, 200)):
        r = api.expect(status, api.post("/v1/evaluate", body, accept=OCTETS))
        assert r.type == JSON and r.json()["shape"] == [3]


def test_dtype_casts_as_astype(api):
    api.create(name="u", data=[1.7, -2.7, 300])
    assert api.evaluate("u", dtype="int8").tolist() == [1, -2, 127]
    assert api.evaluate("u", dtype="float32").dtype == "float32"
    api.fails(422, "bad_dtype", api.post("/v1/evaluate", {"expr": "u", "dtype": "f4"}))
    api.fails(422, "dtype_mismatch", api.post("/v1/evaluate", {"expr": "u * 1j", "dtype": "float64"}))


def test_let(api):
    api.create(name="u", data=[1.0, 2.0, 3.0])
    got = api.evaluate("d / s", let=[["m", "mean(u)"], ["d", "u - m"], ["s", "max(abs(d))"]])
    assert got.tolist() == [-1, 0, 1]
    api.fails(422, "unknown_name", api.post("/v1/evaluate", {"expr": "a", "let": [["a", "b"], ["b", "1"]]}))
    for bad in ([["1x", "1"]], [["a"]], ["a"], {"a": "1"}, [["a", "1", "2"]]):
        assert api.post("/v1/evaluate", {"expr": "1", "let": bad}).status == 422
    assert len(api.list_all("/v1/arrays", "arrays")) == 1


def test_bind(api):
    u = api.create(name="u", data=[1.0, 2.0])
    body = {"expr": "a + b*k + c", "bind": {"a": u["id"], "b": "u", "k": 10, "c": [0, 1]}}
    assert api.evaluate(body.pop("expr"), **body).tolist() == [11 + 1j, 22 + 1j]
    assert np.isnan(api.evaluate("x", bind={"x": "NaN"}))
    assert api.evaluate("x", bind={"x": "-Infinity"}) == -np.inf
    assert api.evaluate("x & True", bind={"x": True})
    api.create(name="f", data=[1.0], dtype="float32")
    assert api.evaluate("f * k", bind={"k": 0.1}).dtype == "float32"  # weak
    assert api.evaluate("u + 1", bind={"u": 5}) == 6  # binds before the session's arrays
    for bad in ({"x": "nothing"}, {"x": "a-0000000000000000000000"}):
        r = api.post("/v1/evaluate", {"expr": "x", "bind": bad})
        assert (r.status, r.code) in ((404, "not_found"), (422, "unknown_name")), r
    for bad in ({"x": None}, {"x": {}}, {"1x": 1}, [1], {"x": [1, 2, 3]}):
        assert api.post("/v1/evaluate", {"expr": "1", "bind": bad}).status == 422, bad


@pytest.mark.parametrize("body", [{}, {"expr": "1", "tree": 1}, {"expr": 1}, {"expr": "1", "inline": 1}, {"expr": "1", "name": ""},
                                  {"expr": "1", "name": 1}, {"expr": "1", "dtype": 1}, {"expr": "1", "fast_math": "yes"}, {"expr": None}, {"expr": "1", "out": 1}])
def test_bad_fields(api, body):
    r = api.post("/v1/evaluate", body)
    assert r.status == 422, r
    assert api.post("/v1/explain", body).status == 422


def test_fast_math(api):
    api.create(name="u", data=[1.0, 2.0])
    np.testing.assert_allclose(api.evaluate("u*u + u", fast_math=True), [2, 6])


def test_array_ids_in_trees(api):
    u = api.create(data=[1, 2])
    assert api.evaluate({"op": "add", "args": [u["id"], 1]}).tolist() == [2, 3]


def test_work_of_a_session_runs_in_order(api):
    api.create(name="u", shape=[200000])
    for i in range(20):
        api.expect(200, api.post("/v1/evaluate", {"expr": f"u + {i}", "out": "u"}))
    assert set(api.download("u")) == {190.0}


def test_deleted_while_in_use(api):
    api.create(name="u", shape=[500000])
    r = api.expect(201, api.post("/v1/evaluate", {"expr": "sqrt(exp(sin(u)))", "name": "v"}))
    api.expect(204, api.delete("/v1/arrays/u"))
    assert (api.download(r.json()["id"]) == 1).all()


# --- stencils ---

def shifted(a, offsets, mode, value=0):
    """shift() by its definition: result[i] = a[i + o] with each axis brought back by `mode`."""
    out = np.empty_like(a)
    for i in np.ndindex(*a.shape):
        at = [k + o for k, o in zip(i, offsets)]
        outside = any(not 0 <= k < n for k, n in zip(at, a.shape))
        if outside and mode == "self":
            at = i
        elif outside and mode == "constant":
            out[i] = value
            continue
        elif outside:
            for axis, n in enumerate(a.shape):
                k = at[axis]
                if mode == "clamp":
                    k = min(max(k, 0), n - 1)
                elif mode == "wrap":
                    k %= n
                elif mode == "reflect":
                    k = 0 if n == 1 else k % (2 * n - 2)
                    k = k if k < n else 2 * n - 2 - k
                elif mode == "symmetric":
                    k %= 2 * n
                    k = k if k < n else 2 * n - 1 - k
                at[axis] = k
        out[i] = a[tuple(at)]
    return out


CANON = {"edge": "clamp", "nearest": "clamp", "mirror": "reflect"}
U = np.arange(20, dtype="int32").reshape(4, 5) ** 2


@pytest.mark.parametrize("mode", ["self", "clamp", "edge", "nearest", "wrap", "reflect", "mirror", "symmetric", "constant"])
@pytest.mark.parametrize("offsets", [(0, 0), (1, 0), (0, -1), (-1, 2), (3, -4), (9, 0), (-7, 11)])
def test_shift(api, mode, offsets):
    api.upload(U, name="u")
    want = shifted(U, offsets, CANON.get(mode, mode))
    got = api.evaluate(f"shift(u, {list(offsets)}, boundary='{mode}')")
    assert got.dtype == "int32"
    np.testing.assert_array_equal(got, want)


def test_shift_defaults_to_self(api):
    api.upload(U, name="u")
    np.testing.assert_array_equal(api.evaluate("shift(u, [1, -1])"), shifted(U, (1, -1), "self"))
    np.testing.assert_array_equal(api.evaluate("shift(u, (1, -1), 'constant', value=-3)"), shifted(U, (1, -1), "constant", -3))


def test_shift_is_opposite_to_roll(api):
    api.create(name="u", data=[1, 2, 3, 4])
    assert api.evaluate("shift(u, [1], boundary='wrap')").tolist() == np.roll([1, 2, 3, 4], -1).tolist()


def test_extent_1_reflects_to_itself(api):
    api.create(name="u", data=[7])
    for mode in ("reflect", "symmetric", "wrap", "clamp", "self"):
        assert api.evaluate(f"shift(u, [5], boundary='{mode}')").tolist() == [7]


@pytest.mark.parametrize("mode", ["self", "clamp", "wrap", "reflect", "symmetric", "constant"])
def test_shift_of_an_expression(api, mode):
    u = np.linspace(0, 1, 12).reshape(3, 4)
    row = np.array([10.0, 20, 30, 40])
    api.upload(u, name="u")
    api.upload(row, name="row")
    want = shifted(u + row, (1, -1), mode)
    np.testing.assert_array_equal(api.evaluate(f"shift(u + row, [1, -1], boundary='{mode}')"), want)
    want = shifted(shifted(u, (0, 1), mode) * 2, (1, -1), mode) + u
    np.testing.assert_array_equal(api.evaluate(f"shift(shift(u, [0, 1], '{mode}')*2, [1, -1], '{mode}') + u"), want)


def test_constant_is_put_in_the_results_place(api):
    api.create(name="u", data=[0.0, 0.0])
    assert api.evaluate("shift(exp(u), [1], 'constant', 0)").tolist() == [1, 0]


def test_differences(api):
    u = np.array([1, 4, 9, 16, 30], "int32")
    api.upload(u, name="u")
    nxt, prv = shifted(u, (1,), "wrap"), shifted(u, (-1,), "wrap")
    for expr, want in (("forward_diff(u, 0, boundary='wrap')", nxt - u), ("back_diff(u, 0, 'wrap')", u - prv),
                       ("central_diff(u, 0, boundary='wrap')", (nxt - prv) / 2.0), ("central_diff(u, 0, 0.5, 'wrap')", (nxt - prv) / 1.0),
                       ("laplacian(u, boundary='wrap')", (nxt - 2.0 * u + prv)), ("laplacian(u, 2, 'wrap')", (nxt - 2.0 * u + prv) / 4),
                       ("forward_diff(u, -1)", shifted(u, (1,), "self") - u), ("back_diff(u, axis=0, boundary='constant', value=5)", u - np.concatenate([[5], u[:-1]]).astype("int32"))):
        got = api.evaluate(expr)
        assert got.dtype == want.dtype, expr
        np.testing.assert_array_equal(got, want, err_msg=expr)


@pytest.mark.parametrize("mode", ["self", "clamp", "wrap", "reflect", "symmetric", "constant"])
def test_laplacian(api, mode):
    u = np.random.default_rng(2).standard_normal((4, 5, 6))
    api.upload(u, name="u")
    want, hs = 0, (1, 0.5, 2)
    for axis, h in enumerate(hs):
        o = [0, 0, 0]
        o[axis] = 1
        want = want + (shifted(u, o, mode) - 2 * u + shifted(u, [-x for x in o], mode)) / h**2
    np.testing.assert_allclose(api.evaluate(f"laplacian(u, [1, 0.5, 2], '{mode}')"), want, rtol=1e-13, atol=1e-12)


def test_in_place_stencils_are_safe(api):
    u = np.random.default_rng(3).standard_normal((60, 70)).astype("float32")
    api.upload(u, name="u")
    lap = sum(np.roll(u, s, a) for s, a in itertools.product((1, -1), (0, 1))) - 4 * u
    api.expect(200, api.post("/v1/evaluate", {"expr": "u + 0.1*laplacian(u, boundary='wrap')", "out": "u"}))
    np.testing.assert_allclose(api.download("u"), u + np.float32(0.1) * lap, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("index,expr,write", [
    ("::-1", "v", "u[:] = u[::-1].copy()"), ("1:", "v", None), (":, ::-1", "v + u*0", "u[:] = u[:, ::-1].copy()")])
def test_overlapping_views(api, index, expr, write):
    u = np.arange(12.0).reshape(4, 3)
    api.upload(u, name="u")
    api.expect(201, api.post("/v1/arrays/u/views", {"index": index, "name": "v"}))
    if write is None:
        api.expect(200, api.post("/v1/evaluate", {"expr": expr, "out": "u", "index": ":-1"}))
        u[:-1] = u[1:].copy()
    else:
        api.expect(200, api.post("/v1/evaluate", {"expr": expr, "out": "u"}))
        exec(write, {"u": u})
    np.testing.assert_array_equal(api.download("u"), u)


def test_transposed_onto_itself(api):
    u = np.arange(10000.0).reshape(100, 100)
    api.upload(u, name="u")
    api.expect(201, api.post("/v1/arrays/u/views", {"permute": [1, 0], "name": "t"}))
    api.expect(200, api.post("/v1/evaluate", {"expr": "t", "out": "u"}))
    np.testing.assert_array_equal(api.download("u"), u.T)
    api.expect(200, api.post("/v1/evaluate", {"expr": "u*2", "out": "t"}))
    np.testing.assert_array_equal(api.download("u"), u * 2)  # u held u.T: t = 2*u.T means u = (2*u.T).T


# --- explain ---


def test_explain(api):
    api.create(name="u", shape=[1000], dtype="float32")
    before = api.info()["bytes_in_use"]
    r = api.expect(200, api.post("/v1/explain", {"expr": "where(u > 0, u, 0) + 1", "name": "v"})).json()
    assert r["tree"] and len(r["kernels"]) == 1
    kernel = r["kernels"][0]
    assert (kernel["bytes_read"], kernel["bytes_written"]) == (4000, 4000)
    assert kernel["source"] and isinstance(kernel["cached"], bool)
    assert api.info()["bytes_in_use"] == before
    api.fails(404, "not_found", api.get("/v1/arrays/v"))


def test_explain_runs_nothing(api):
    api.create(name="u", data=[1.0])
    api.expect(200, api.post("/v1/explain", {"expr": "u + 1", "out": "u"}))
    assert api.download("u").tolist() == [1]


def test_explain_says_what_evaluate_would(api):
    api.fails(422, "unknown_name", api.post("/v1/explain", {"expr": "q"}))
    api.fails(422, "bad_expression", api.post("/v1/explain", {"expr": "1 +"}))


def test_shifts_cost_no_temporary(api):
    api.create(name="u", shape=[100, 100], dtype="float32")
    r = api.expect(200, api.post("/v1/explain", {"expr": "u + 0.1*laplacian(u, boundary='wrap')"})).json()
    assert len(r["kernels"]) == 1
    assert r["kernels"][0]["bytes_written"] == 40000


@pytest.mark.parametrize("keys", ["expr", "ir", "expr,ir", "", "nothing"])
def test_traces(daemon_with, keys):
    d = daemon_with(environment={"ARRAYD_TRACE": keys})
    c = d.client()
    c.create(name="u", data=[1.0, 2.0])
    c.evaluate("u * 3 - u")
    log = d.log()
    assert ("[expr]" in log) == ("expr" in keys) and ("[ir]" in log) == ("ir" in keys)
    assert ("multiply" in log) == (keys in ("expr", "ir", "expr,ir"))
    c.close()


def test_explain_is_cached_after_evaluate(api):
    api.create(name="u", shape=[10], dtype="float32")
    body = {"expr": "u * 3 - u / 7"}
    api.post("/v1/evaluate", {**body, "inline": True})
    r = api.expect(200, api.post("/v1/explain", body)).json()
    assert r["kernels"][0]["cached"] is True
