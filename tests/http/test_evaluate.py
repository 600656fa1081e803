"""POST /v1/evaluate beyond the contract's own rules: results, places of mistakes, references."""
import itertools
import json

import numpy as np
import pytest

from client import JSON, NPY, OCTETS
from conftest import settle


def ev(api, expr, **fields):
    return api.post("/v1/evaluate", {"expr": expr, **fields})


# --- the reply ---


@pytest.mark.parametrize("n", [0, 1, 1000, 8192, 8193, 65536])
def test_inline_lists_of_all_lengths(api, n):
    api.upload(np.arange(n, dtype="float32") / 8, name="u")
    r = api.expect(200, ev(api, "u * 2", inline=True)).json()
    assert r["dtype"] == "float32" and r["shape"] == [n]
    np.testing.assert_array_equal(r["data"], np.arange(n) / 4)


def test_inline_of_large_work_waits(api):
    """The result is asked for while the work still runs elsewhere."""
    api.create(name="u", shape=[3000000], fill=0.5)
    r = api.expect(200, ev(api, "exp(sin(u))[:3]", inline=True))
    np.testing.assert_allclose(r.json()["data"], np.exp(np.sin([0.5] * 3)))
    r = api.expect(200, ev(api, "sum(exp(sin(u)))"))
    np.testing.assert_allclose(r.json()["value"], 3000000 * np.exp(np.sin(0.5)))
    assert api.device in r.headers["Server-Timing"]


def test_empty_lists_do_not_grow_without_bound(api):
    api.create(name="u", shape=[1000000000, 0])
    api.fails(422, "too_large", ev(api, "u", inline=True))
    api.fails(422, "too_large", api.get("/v1/arrays/u/data", accept=JSON))
    api.expect(200, api.get("/v1/arrays/u/data", accept=NPY))
    api.create(name="v", shape=[100000, 0])
    assert api.get("/v1/arrays/v/data", accept=JSON, check=False).json() == [[]] * 100000


@pytest.mark.parametrize("dtype,value,want", [
    ("int64", 2**63 - 1, 2**63 - 1), ("uint64", 2**64 - 1, 2**64 - 1), ("bool", True, True), ("float64", 0.1, 0.1),
    ("float32", 0.1, 0.1), ("float16", 0.1, 0.1), ("bfloat16", 2.5, 2.5), ("complex128", [1.5, -0.0], [1.5, -0.0])])
def test_values(api, dtype, value, want):
    const = str(value) if dtype in ("int64", "uint64") else value
    bind = {"x": {"op": "const", "value": const, "dtype": dtype}}
    r = api.expect(200, ev(api, "x", bind=bind)).json()
    assert r == {"dtype": dtype, "shape": [], "value": want}
    assert json.dumps(r["value"]) == json.dumps(want)


@pytest.mark.parametrize("expr,want", [("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity"), ("0*inf*1j", ["NaN", "NaN"])])
def test_values_that_are_no_numbers(api, expr, want):
    assert api.expect(200, ev(api, expr)).json()["value"] == want


def test_a_scalar_asked_for_as_bytes(api):
    api.create(name="u", data=[1.0, 2.0])
    r = api.post("/v1/evaluate", {"expr": "sum(u)"}, accept=OCTETS)
    assert api.expect(200, r).array("float64", ()) == 3
    r = api.post("/v1/evaluate", {"expr": "sum(u)", "inline": True}, accept=NPY)
    assert api.expect(200, r).npy().shape == ()


def test_large_results_as_bytes(api):
    a = np.random.default_rng(0).standard_normal((700, 900))
    api.upload(a, name="u")
    for accept in (OCTETS, NPY):
        r = api.expect(200, api.post("/v1/evaluate", {"expr": "u*2"}, accept=accept))
        assert r.body.endswith((a * 2).tobytes()) and int(r.headers["Content-Length"]) == len(r.body)
        assert "ETag" not in r.headers and "Accept-Ranges" not in r.headers


def test_range_is_not_for_post(api):
    api.create(name="u", data=[1, 2, 3])
    r = api.post("/v1/evaluate", {"expr": "u"}, accept=OCTETS, headers={"Range": "bytes=0-7", "If-None-Match": "*"})
    assert len(api.expect(200, r).body) == 24


def test_timing(api):
    api.create(name="u", data=[1.0])
    timing = ev(api, "u + 1", inline=True).headers["Server-Timing"]
    for stage in ("parse", "plan", "compile", api.device):
        assert stage in timing


# --- where mistakes are ---


@pytest.mark.parametrize("body,code,pointer,offset", [
    ({"expr": "1 + "}, "bad_expression", "/expr", 4),
    ({"expr": "u + zz"}, "unknown_name", "/expr", 4),
    ({"expr": "u + ü + zz"}, "bad_expression", "/expr", 4),
    ({"expr": "u + sinn(u)"}, "unknown_operation", "/expr", 4),
    ({"expr": "u", "let": [["a", "1"], ["b", "a +* 2"]]}, "bad_expression", "/let/1/1", 3),
    ({"expr": "u", "let": [["a", {"op": "add", "args": ["u", "zz"]}]]}, "unknown_name", "/let/0/1/args/1", None),
    ({"expr": "u", "let": [["1", "u"]]}, "bad_name", "/let/0/0", None),
    ({"expr": "u", "let": [["a", "1"], ["c", "1"], ["a", "2"]]}, "bad_name", "/let/2/0", None),
    ({"expr": "u", "let": [["a"]]}, "bad_field", "/let/0", None),
    ({"expr": "u", "let": {}}, "bad_field", "/let", None),
    ({"expr": "u", "bind": {"x": "nothing"}}, "not_found", "/bind/x", None),
    ({"expr": "u", "bind": {"x-y": 1}}, "bad_name", "/bind/x-y", None),
    ({"expr": "u", "bind": {"x": {"value": 1}}}, "bad_field", "/bind/x", None),
    ({"expr": "u", "bind": {"x": 9007199254740993}}, "inexact_number", "/bind/x", None),
    ({"expr": "u", "bind": {"x": {"op": "const", "value": 300, "dtype": "uint8"}}}, "literal_range", None, None),
    ({"expr": "u", "bind": 1}, "bad_field", "/bind", None),
    ({"expr": "u", "name": "1u"}, "bad_name", "/name", None),
    ({"expr": "u", "out": "nothing"}, "not_found", "/out", None),
    ({"expr": "u", "index": "0"}, "bad_field", "/index", None),
    ({"expr": "u", "out": "u", "index": "x"}, "bad_index", "/index", 0),
    ({"expr": "u", "out": "u", "index": "7"}, "bad_index", "/index", None),
    ({"expr": "u", "out": "u", "index": 7}, "bad_field", "/index", None),
    ({"expr": "u", "out": "u", "name": "v"}, "bad_field", "/out", None),
    ({"expr": "u[:2]", "out": "u"}, "shape_mismatch", "/out", None),
    ({"expr": "u + 0.5", "out": "u"}, "dtype_mismatch", "/out", None),
    ({"expr": "u", "dtype": "float"}, "bad_dtype", "/dtype", None),
    ({"expr": "u", "inline": "yes"}, "bad_field", "/inline", None),
    ({"expr": "u", "fast_math": 1}, "bad_field", "/fast_math", None),
    ({"expr": "u", "nme": "v"}, "unknown_field", "/nme", None),
    ({"tree": {"op": "add", "args": ["u", {"op": "sub", "args": []}]}}, "unknown_operation", "/tree/args/1", None),
    ({"tree": {"op": "add", "args": ["u", "zz"]}}, "unknown_name", "/tree/args/1", None),
    ({"tree": {"op": "add", "args": ["u", 9007199254740993]}}, "inexact_number", "/tree/args/1", None),
    ({"expr": "u", "tree": "u"}, "bad_field", "/tree", None),
    ({}, "bad_field", "/expr", None)], ids=str)
def test_places(api, body, code, pointer, offset):
    api.create(name="u", data=[1, 2, 3])
    r = api.post("/v1/evaluate", body)
    status = {"not_found": 404}.get(code, 422)
    problem = api.fails(status, code, r)
    if pointer:
        assert problem["pointer"] == pointer
    if offset is not None:
        assert problem["offset"] == offset
    explained = api.fails(status, code, api.post("/v1/explain", body))
    assert explained.get("pointer") == problem.get("pointer")
    assert api.download("u").tolist() == [1, 2, 3]


@pytest.mark.parametrize("text,status,code", [
    (b'{"expr": "1"', 400, "bad_json"), (b'{"expr": "1", "expr": "2"}', 400, "bad_json"), (b"", 400, "bad_json"),
    (b"[]", 422, "bad_field"), (b'"u"', 422, "bad_field"), (b'{"expr": "\\u0000"}', 422, "bad_field")])
def test_bodies_that_are_none(api, text, status, code):
    api.fails(status, code, api.request("POST", "/v1/evaluate", text, content_type=JSON))


def test_the_way_it_is_asked(api):
    api.fails(415, "unsupported_media_type", api.request("POST", "/v1/evaluate", b'{"expr":"1"}', content_type="text/plain"))
    api.fails(415, "unsupported_media_type", api.request("POST", "/v1/evaluate", b'{"expr":"1"}'))
    assert api.post("/v1/evaluate?name=v", {"expr": "1"}).status == 400
    api.fails(404, "not_found", api.post("/v1/evaluate", {"expr": "1"}, headers={"Arrayd-Session": "s-0000000000000000000000"}))


# --- names ---


def test_what_a_name_means(api):
    """let before bind before the session's arrays before the constants."""
    api.create(name="x", data=3)
    api.create(name="e", data=4)
    assert api.evaluate("x") == 3
    assert api.evaluate("e") == 4
    assert api.evaluate("x", bind={"x": 5}) == 5
    assert api.evaluate("x", bind={"x": 5}, let=[["x", "x + 1"]]) == 6
    assert api.evaluate("pi", bind={"pi": 3}) == 3
    assert api.evaluate("b", let=[["a", "x*2"], ["b", "a + x"]]) == 9


def test_lets_are_trees_or_text(api):
    api.create(name="x", data=[1.0, 2.0])
    let = [["a", "x*2"], ["b", {"op": "add", "args": ["a", "x"]}], ["c", 3]]
    np.testing.assert_array_equal(api.evaluate({"op": "multiply", "args": ["b", "c"]}, let=let), [9, 18])


def test_ids_reach_over_sessions_but_names_do_not(api):
    u = api.create(name="u", data=[1, 2])
    s = api.expect(201, api.post("/v1/sessions")).json()["id"]
    c = api.clone(session=s)
    c.fails(422, "unknown_name", ev(c, "u"))
    assert c.evaluate("x + 1", bind={"x": u["id"]}).tolist() == [2, 3]
    assert c.evaluate({"op": "add", "args": [u["id"], 1]}).tolist() == [2, 3]
    c.expect(200, ev(c, "x * 10", bind={"x": u["id"]}, out=u["id"]))
    assert api.download("u").tolist() == [10, 20]
    c.close()


def test_typed_constants_are_not_weak(api):
    api.create(name="f", data=[1.0], dtype="float32")
    r = ev(api, "f * k", bind={"k": {"op": "const", "value": 2, "dtype": "float64"}}, inline=True)
    assert api.expect(200, r).json()["dtype"] == "float64"
    big = {"op": "const", "value": "9007199254740993", "dtype": "int64"}
    assert api.evaluate("k", bind={"k": big}) == 9007199254740993


def test_many_binds(api):
    bind = {f"x{k}": k for k in range(3000)}
    assert api.evaluate("x17 + x2999", bind=bind) == 3016


def test_the_name_of_a_result(api):
    u = api.create(name="u", data=[1, 2])
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": True}))
    problem = api.fails(409, "read_only", ev(api, "u + 1", name="u"))
    assert problem["pointer"] == "/name"
    api.fails(409, "read_only", ev(api, "u + 1", out="u"))
    api.expect(200, api.patch("/v1/arrays/u", {"read_only": False}))
    new = api.expect(201, ev(api, "u + 1", name="u")).json()
    assert new["id"] != u["id"] and api.download("u").tolist() == [2, 3]
    api.fails(422, "unknown_name", ev(api, "q", name="u"))
    assert api.meta("u")["id"] == new["id"]


# --- references ---


def test_bytes_go_back_to_where_they_were(api):
    before = api.info()["bytes_in_use"]
    api.create(name="u", shape=[10000])
    api.expect(201, api.post("/v1/arrays/u/views", {"index": "::2", "name": "v"}))
    held = api.info()["bytes_in_use"]
    api.expect(204, api.delete("/v1/arrays/u"))
    assert api.info()["bytes_in_use"] == held  # the view holds it
    api.expect(200, ev(api, "v + 1", out="v"))
    assert settle(api, held) == held
    assert (api.download("v") == 1).all()
    for expr in ("v", "sum(v)", "shift(v, [1])", "v[:10] + mean(v)", "w"):
        ev(api, expr, inline=True)
        api.post("/v1/evaluate", {"expr": expr}, accept=OCTETS)
        api.post("/v1/explain", {"expr": expr})
    assert settle(api, held) == held
    api.expect(204, api.delete("/v1/arrays/v"))
    assert settle(api, before) == before


def test_a_result_may_be_a_view_of_nothing_else(api):
    """What an expression gives is its own memory, even when it is only a name."""
    api.create(name="u", data=[1, 2, 3])
    api.expect(201, ev(api, "u", name="v"))
    api.expect(201, ev(api, "u[::-1]", name="w"))
    api.expect(204, api.put("/v1/arrays/u/data", [7, 8, 9]))
    assert api.download("v").tolist() == [1, 2, 3] and api.download("w").tolist() == [3, 2, 1]
    assert api.meta("v")["references"] == 1 and not api.meta("w").get("view_of")


def test_a_quota_refuses_and_changes_nothing(api):
    s = api.expect(201, api.post("/v1/sessions", {"memory_limit": 100000})).json()["id"]
    c = api.clone(session=s)
    c.create(name="u", shape=[8000])
    c.fails(429, "quota_exceeded", ev(c, "u + 1", name="v"))
    c.fails(429, "quota_exceeded", ev(c, "u + 1", name="u"))
    c.fails(429, "quota_exceeded", ev(c, "u + u[::-1]"))
    c.expect(200, ev(c, "u + 1", out="u"))
    assert (c.download("u") == 1).all()
    c.close()


# --- out ---


@pytest.mark.parametrize("index", ["::2", "1:4", "::-1", ":, 2", "3", "1, 2", "..., None, :1", "0:0"])
def test_out_regions(api, index):
    a = np.arange(30, dtype="int32").reshape(5, 6)
    api.upload(a, name="u")
    api.expect(200, ev(api, "x", bind={"x": -1}, out="u", index=index))
    b = a.copy()
    exec(f"b[{index}] = -1", {"b": b})
    np.testing.assert_array_equal(api.download("u"), b)
    api.expect(200, ev(api, f"u[{index}] * 2", out="u", index=index))
    exec(f"b[{index}] *= 2", {"b": b})
    np.testing.assert_array_equal(api.download("u"), b)


@pytest.mark.parametrize("view", [{"index": "::-1, 1::2"}, {"permute": [1, 0]}, {"reshape": [6, 5]}, {"index": "2"}, {"index": "None, 1:3"}])
def test_views_as_out(api, view):
    a = np.arange(30.0).reshape(5, 6)
    api.upload(a, name="u")
    v = api.expect(201, api.post("/v1/arrays/u/views", {**view, "name": "v"})).json()
    want = a.copy()
    target = {"index": lambda w: eval(f"w[{view.get('index')}]", {"w": w}), "permute": np.transpose,
              "reshape": lambda w: w.reshape(6, 5)}[next(iter(view))](want)
    target[...] = target * 10 + 1
    api.expect(200, ev(api, "v*10 + 1", out="v"))
    np.testing.assert_array_equal(api.download("u"), want)
    np.testing.assert_array_equal(api.download(v["id"]), target)


def test_out_through_another_dtype(api):
    api.create(name="u", shape=[4], dtype="float32")
    api.expect(201, api.post("/v1/arrays/u/views", {"dtype": "uint32", "name": "bits"}))
    api.expect(200, ev(api, "bits + 1065353216", out="bits"))
    assert api.download("u").tolist() == [1, 1, 1, 1]
    api.expect(200, ev(api, "bits", out="u"))  # reads and writes the same memory by two types
    assert api.download("u").tolist() == [1065353216.0] * 4


def test_out_broadcasts(api):
    api.create(name="u", shape=[3, 4])
    api.create(name="c", data=[[1.0], [2.0], [3.0]])
    api.expect(200, ev(api, "c", out="u"))
    np.testing.assert_array_equal(api.download("u"), np.repeat([[1], [2], [3]], 4, axis=1))
    api.expect(200, ev(api, "sum(u)", out="u", index="1"))
    assert api.download("u")[1].tolist() == [24] * 4
    api.fails(422, "shape_mismatch", ev(api, "u", out="c"))


# --- sizes ---


def test_ten_thousand_nodes(api):
    api.create(name="u", data=[1.0, 2.0])
    terms = 4990
    text = " + ".join(["u"] * terms)
    assert api.evaluate(text).tolist() == [terms, 2 * terms]
    r = api.post("/v1/evaluate", {"tree": {"op": "add", "args": ["u"] * terms}}, accept=NPY)
    assert api.expect(200, r).npy().tolist() == [terms, 2 * terms]
    text = " + ".join(f"u*{k % 7}" for k in range(2400))
    want = sum(k % 7 for k in range(2400))
    assert api.evaluate(text).tolist() == [want, 2 * want]


def test_too_many_nodes(api):
    api.create(name="u", data=[1.0])
    api.fails(422, "expression_too_large", ev(api, " + ".join(["u"] * 5100)))
    api.fails(422, "expression_too_large", ev(api, "-" * 401 + "u"))
    api.fails(422, "expression_too_large", ev(api, "(" * 401 + "u" + ")" * 401))


def test_too_many_arrays(api):
    ids = [api.create(data=[k])["id"] for k in range(65)]
    bind = {f"x{k}": i for k, i in enumerate(ids)}
    assert api.evaluate(" + ".join(f"x{k}" for k in range(64)), bind=bind) == sum(range(64))
    api.fails(422, "expression_too_large", ev(api, " + ".join(bind), bind=bind))
    same = {f"x{k}": ids[1] for k in range(100)}
    assert api.evaluate(" + ".join(same), bind=same) == 100  # one array


def test_rank_32(api):
    shape = [1] * 29 + [2, 3, 2]
    a = np.arange(12.0).reshape(shape)
    api.upload(a, name="u")
    perm = list(range(31, -1, -1))
    api.expect(201, api.post("/v1/arrays/u/views", {"permute": perm, "name": "t"}))
    np.testing.assert_array_equal(api.evaluate("t * 2 + 1"), a.transpose(perm) * 2 + 1)
    np.testing.assert_array_equal(api.evaluate("sum(u, axis=[30, -1])"), a.sum(axis=(30, 31)))


def test_many_sizes(api):
    """Every length around the edges of blocks and vectors."""
    a = np.random.default_rng(8).standard_normal(5000).astype("float32")
    api.upload(a, name="u")
    for n in itertools.chain(range(0, 70), (1023, 1024, 1025, 4095, 4096, 4097)):
        got = api.evaluate(f"u[:{n}]*2 + u[1:{n + 1}]")
        np.testing.assert_array_equal(got, a[:n] * 2 + a[1:n + 1])


def test_fast_math_is_only_close(api):
    a = np.random.default_rng(9).standard_normal(1000).astype("float32")
    api.upload(a, name="u")
    exact = api.evaluate("u*u + u*0.1")
    np.testing.assert_array_equal(exact, a * a + a * np.float32(0.1))
    np.testing.assert_allclose(api.evaluate("u*u + u*0.1", fast_math=True), exact, rtol=1e-5, atol=1e-6)
