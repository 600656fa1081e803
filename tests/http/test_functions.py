"""/v1/functions: definitions, and what calls of them mean."""
import concurrent.futures
import statistics
import threading
import time

import numpy as np
import pytest


@pytest.fixture
def fn(api):
    """Defines by POST; what is left is deleted after the test."""
    def define(name, params, body, **kw):
        key = "expr" if isinstance(body, str) else "tree"
        return api.post("/v1/functions", {"name": name, "params": params, key: body, **kw})
    yield define
    for f in api.list_all("/v1/functions", "functions"):
        assert api.delete(f"/v1/functions/{f['name']}").status == 204


def put(api, name, params, body):
    return api.put(f"/v1/functions/{name}", {"params": params, "expr": body})


def place(problem):
    return problem.get("pointer"), problem.get("offset")


def test_life_of_a_function(api, fn):
    r = api.expect(201, fn("relu", ["x"], "where(x > 0, x, 0)"))
    assert r.headers["Location"] == "/v1/functions/relu"
    f = r.json()
    assert (f["name"], f["params"], f["expr"]) == ("relu", ["x"], "where(x > 0, x, 0)")
    assert api.expect(200, api.get("/v1/functions/relu")).json() == f
    assert api.get("/v1/functions").json() == {"functions": [f]}
    api.fails(409, "conflict", fn("relu", ["y"], "y"))
    api.upload(np.array([-2., 0, 3]), "a")
    assert api.evaluate("relu(a)").tolist() == [0, 0, 3]
    api.expect(200, put(api, "relu", ["x"], "where(x > 0, x, 0.5*x)"))
    assert api.evaluate("relu(a)").tolist() == [-1, 0, 3]  # not the old one's plan
    r = api.expect(201, put(api, "twice", ["x"], "2*x"))
    assert r.headers["Location"] == "/v1/functions/twice"
    tree = {"op": "multiply", "args": ["x", {"op": "twice", "x": "x"}]}
    t = api.expect(201, fn("tree", ["x"], tree)).json()
    assert "expr" not in t and t["tree"]["op"] == "multiply"
    assert [f["name"] for f in api.get("/v1/functions").json()["functions"]] == ["relu", "twice", "tree"]
    page = api.get("/v1/functions?limit=2").json()
    rest = api.get(f"/v1/functions?after={page['next']}").json()
    assert [f["name"] for f in rest["functions"]] == ["tree"] and "next" not in rest
    assert api.evaluate("tree(a)").tolist() == [8, 0, 18]
    again = {"name": "again", "params": t["params"], "tree": t["tree"]}
    api.expect(201, api.post("/v1/functions", again))
    assert api.evaluate("again(a)").tolist() == [8, 0, 18]
    api.expect(204, api.delete("/v1/functions/twice"))
    api.fails(404, "not_found", api.get("/v1/functions/twice"))
    api.fails(404, "not_found", api.delete("/v1/functions/twice"))
    gone = api.fails(422, "unknown_operation", api.post("/v1/evaluate", {"expr": "1 + tree(a)"}))
    assert place(gone) == ("/expr", 4) and "'tree'" in gone["detail"] and "/tree/args/1" in gone["detail"]


def test_arguments_by_position_and_by_name(api, fn):
    api.expect(201, fn("mix", ["a", "b", "t"], "a + t*(b - a)"))
    api.expect(201, fn("first", ["a", "b"], "a"))
    assert api.evaluate("first(7, 8)").tolist() == 7
    u, v = np.arange(6.).reshape(2, 3), np.ones((2, 3))
    api.upload(u, "u"), api.upload(v, "v")
    want = u + 0.25*(v - u)
    for call in ("mix(u, v, 0.25)", "mix(u, t=0.25, b=v)", "mix(t=0.25, b=v, a=u)"):
        assert np.array_equal(api.evaluate(call), want), call
    for tree in ({"op": "mix", "args": ["u", "v", 0.25]}, {"op": "mix", "args": ["u"], "t": 0.25, "b": "v"}):
        assert np.array_equal(api.evaluate(tree), want), tree
    for expr, code, offset in (("2*mix(u, v)", "bad_arity", 2), ("mix(u, v, 1, 2)", "bad_arity", 0),
                               ("mix(u, v, s=1)", "unknown_field", 12), ("mix(u, v, 1, b=v)", "bad_arity", 15)):
        e = api.fails(422, code, api.post("/v1/evaluate", {"expr": expr}))
        assert place(e) == ("/expr", offset) and "mix(a, b, t)" in e["detail"] + "mix(a, b, t)"
    e = api.fails(422, "unknown_field",
                  api.post("/v1/evaluate", {"tree": {"op": "negative", "args": [{"op": "mix", "q": "u"}]}}))
    assert e["pointer"] == "/tree/args/0/q"
    assert api.expect(200, api.post("/v1/explain", {"expr": "mix(u, v, 1)"})).json()["kernels"]


def test_an_argument_may_be_what_its_place_allows(api, fn):
    u = np.arange(24, dtype="float32").reshape(2, 3, 4)
    api.upload(u, "u")
    api.expect(201, fn("total", ["x", "over"], "sum(x, axis=over)"))
    api.expect(201, fn("diff", ["x", "how"], "shift(x, [0, 0, 1], boundary=how) - x"))
    api.expect(201, fn("to", ["x", "t"], "astype(x, t)"))
    api.expect(201, fn("power", ["x", "n"], "x**n"))
    assert np.array_equal(api.evaluate("total(u, [0, 2])"), u.sum((0, 2)))
    assert np.array_equal(api.evaluate("total(u, None)"), u.sum())
    assert np.array_equal(api.evaluate("diff(u, 'wrap')"), np.roll(u, -1, 2) - u)
    assert np.array_equal(api.evaluate({"op": "diff", "args": ["u", "wrap"]}), np.roll(u, -1, 2) - u)
    assert api.evaluate("to(u, 'int8')").dtype == np.int8
    assert api.evaluate("power(u, 2)").dtype == np.float32  # a literal stays weak
    e = api.fails(422, "bad_axis", api.post("/v1/evaluate", {"expr": "-total(u, 7)"}))
    assert place(e)[0] == "/expr"


def test_names_in_a_body(api, fn):
    """A parameter hides all else of its name and is seen in its own body alone; other names mean
    what they mean where the call stands."""
    api.upload(np.array([1., 2]), "u"), api.upload(np.array([10., 20]), "m")
    api.expect(201, fn("plus_m", ["x"], "x + m"))
    api.expect(201, fn("outer", ["m"], "plus_m(3*m)"))
    api.expect(201, fn("euler", ["e", "pi"], "e + 0*pi"))
    assert api.evaluate("plus_m(u)").tolist() == [11, 22]
    assert api.evaluate("outer(u)").tolist() == [13, 26]  # the array m, not outer's parameter
    assert api.evaluate("outer(m)").tolist() == [40, 80]
    assert api.evaluate("plus_m(u)", bind={"m": 0.5}).tolist() == [1.5, 2.5]
    assert api.evaluate("plus_m(u)", let=[["m", "2*u"]]).tolist() == [3, 6]
    assert api.evaluate("x + plus_m(u)", let=[["x", "plus_m(m)"]]).tolist() == [31, 62]
    assert api.evaluate("euler(u, m)").tolist() == [1, 2]
    s = api.expect(201, api.post("/v1/sessions", {})).json()["id"]
    other = api.clone(session=s)
    other.upload(np.array([5.]), "m")
    assert other.evaluate("plus_m(1)").tolist() == [6]  # one table for all sessions, each its names
    other.close()


def test_a_body_means_what_it_would_written_out(api, fn):
    rng = np.random.default_rng(3)
    api.upload(rng.random((5, 7)), "u")
    api.upload(rng.random((5, 7)), "v")
    bodies = {"ramp": (["x"], "x + index(1)"), "center": (["x"], "x - mean(x, axis=0)"),
              "smooth": (["x", "k"], "x + k*laplacian(x, boundary='clamp')"), "same": (["x"], "x"),
              "slice": (["x"], "x[1:, ::2]"), "number": ([], "6*7"), "pair": (["x", "y"], "where(x > y, x, y)")}
    for name, (params, body) in bodies.items():
        api.expect(201, fn(name, params, body))
    for call, plain in (
            ("ramp(u)", "u + index(1)"),
            ("shift(ramp(u), [1, 1], boundary='wrap')", "shift(u + index(1), [1, 1], boundary='wrap')"),
            ("sum(ramp(u[:, 1:]), axis=0)", "sum(u[:, 1:] + index(1), axis=0)"),
            ("smooth(index(0)*u, 0.1)", "index(0)*u + 0.1*laplacian(index(0)*u, boundary='clamp')"),
            ("smooth(smooth(u, 0.1), 0.2)",
             "u + 0.1*laplacian(u, boundary='clamp') + 0.2*laplacian(u + 0.1*laplacian(u, boundary='clamp'), boundary='clamp')"),
            ("center(u)*center(v)", "(u - mean(u, axis=0))*(v - mean(v, axis=0))"),
            ("same(same(u))", "u"), ("slice(u)", "u[1:, ::2]"), ("u + number()", "u + 42"),
            ("pair(pair(u, v), 0.5)", "maximum(maximum(u, v), 0.5)"), ("-same(u)**2", "-(u**2)")):
        assert np.array_equal(api.evaluate(call), api.evaluate(plain)), call
    want = api.evaluate("u + 0.1*laplacian(u, boundary='clamp')")
    api.expect(200, api.post("/v1/evaluate", {"expr": "smooth(u, 0.1)", "out": "u"}))
    assert np.array_equal(api.download("u"), want)


def test_each_argument_is_computed_once(api, fn):
    """Seen by the work of a kernel: x*x*x of a costly argument has one of it."""
    api.upload(np.ones(8), "u")
    api.expect(201, fn("cube", ["x"], "x*x*x"))
    kernel = api.expect(200, api.post("/v1/explain", {"expr": "cube(exp(u))"})).json()["kernels"][0]
    assert kernel["source"].lower().count("exp") == 1, kernel["source"]


@pytest.mark.parametrize("body,code,where,said", [
    ({"name": "f", "params": ["x"], "expr": "x +"}, "bad_expression", ("/expr", 3), ""),
    ({"name": "f", "params": ["x"], "expr": "x + sine(x)"}, "unknown_operation", ("/expr", 4), "sin"),
    ({"name": "f", "params": ["x"], "expr": "where(x, x)"}, "bad_arity", ("/expr", 0), "where("),
    ({"name": "f", "params": ["x"], "expr": "sum(x, axes=0)"}, "unknown_field", ("/expr", 12), "axes"),
    ({"name": "f", "params": ["x"], "tree": {"op": "add", "args": ["x", {"op": "sin", "args": []}]}},
     "bad_arity", ("/tree/args/1", None), "sin"),
    ({"name": "f", "params": ["x"], "expr": "1 + f(x)"}, "recursion", ("/expr", 4), "itself"),
    ({"name": "f", "params": ["x", "x"], "expr": "2*x"}, "bad_name", ("/params/1", None), ""),
    ({"name": "f", "params": ["x", "op"], "expr": "x + op"}, "bad_name", ("/params/1", None), "op"),
    ({"name": "f", "params": ["1x"], "expr": "1"}, "bad_name", ("/params/0", None), ""),
    ({"name": "f", "params": [f"p{i}" for i in range(17)], "expr": "1"}, "bad_field", ("/params", None), "16"),
    ({"name": "f", "params": "x", "expr": "x"}, "bad_field", ("/params", None), ""),
    ({"name": "f", "expr": "x"}, "bad_field", ("/params", None), ""),
    ({"name": "f", "params": []}, "bad_field", ("/expr", None), ""),
    ({"name": "f", "params": [], "expr": "1", "tree": 1}, "bad_field", ("/tree", None), ""),
    ({"name": "sin", "params": ["x"], "expr": "x"}, "bad_name", ("/name", None), "sin"),
    ({"name": "laplacian", "params": ["x"], "expr": "x"}, "bad_name", ("/name", None), ""),
    ({"name": "lambda", "params": ["x"], "expr": "x"}, "bad_name", ("/name", None), ""),
    ({"name": "a-b", "params": ["x"], "expr": "x"}, "bad_name", ("/name", None), ""),
    ({"params": ["x"], "expr": "x"}, "bad_field", ("/name", None), ""),
    ({"name": "f", "params": ["x"], "expr": "x", "extra": 1}, "unknown_field", ("/extra", None), ""),
    ({"name": "f", "params": ["x"], "expr": "x" + " "*65536}, "expression_too_large", ("/expr", None), ""),
    ({"name": "f", "params": ["x"], "expr": "("*500 + "x" + ")"*500}, "expression_too_large", ("/expr", 400), ""),
])
def test_definitions_are_checked(api, fn, body, code, where, said):
    e = api.fails(422, code, api.post("/v1/functions", body))
    assert place(e) == where and said in e["detail"], e
    assert api.get("/v1/functions").json() == {"functions": []}


def test_put_checks_too(api, fn):
    api.fails(422, "bad_name", put(api, "sin", ["x"], "x"))
    api.fails(422, "bad_name", put(api, "a-b", ["x"], "x"))
    e = api.fails(422, "bad_field", api.put("/v1/functions/f", {"name": "g", "params": [], "expr": "1"}))
    assert e["pointer"] == "/name"
    api.expect(201, api.put("/v1/functions/f", {"name": "f", "params": [], "expr": "1"}))
    api.fails(415, "unsupported_media_type", api.request("PUT", "/v1/functions/f", b"1", content_type="text/plain"))
    api.fails(400, "bad_query", api.put("/v1/functions/f?x=1", {"params": [], "expr": "1"}))
    api.fails(406, "not_acceptable", api.get("/v1/functions/f", accept="text/html"))


def test_recursion_by_way_of_others_is_refused(api, fn):
    api.expect(201, fn("a", ["x"], "x"))
    api.expect(201, fn("b", ["x"], "1 + a(x)"))
    api.expect(201, fn("c", ["x"], "b(x) + b(2*x)"))
    e = api.fails(422, "recursion", put(api, "a", ["x"], "x - c(x)"))
    assert place(e) == ("/expr", 4) and "'b'" in e["detail"] and "'c'" in e["detail"], e
    e = api.fails(422, "recursion", put(api, "a", ["x"], "b(x)"))
    assert place(e) == ("/expr", 0)
    assert api.evaluate("c(1)") == 5  # as before
    api.expect(200, put(api, "b", ["x"], "10*x"))  # does not call a any more
    api.expect(200, put(api, "a", ["x"], "x - b(x)"))
    assert api.evaluate("c(1)") == 30
    api.fails(422, "recursion", put(api, "b", ["x"], "a(x)"))


def test_calls_of_functions_are_checked_when_defined(api, fn):
    api.expect(201, fn("g", ["x", "y"], "x*y"))
    e = api.fails(422, "bad_arity", fn("f", ["x"], "2 + g(x)"))
    assert place(e) == ("/expr", 4) and "g(x, y)" in e["detail"]
    e = api.fails(422, "unknown_field", fn("f", ["x"], "g(x, z=1)"))
    assert place(e) == ("/expr", 7)
    api.expect(201, fn("f", ["x"], "2 + g(x, y=3)"))
    api.expect(200, put(api, "g", ["x"], "-x"))
    e = api.fails(422, "unknown_field", api.post("/v1/evaluate", {"expr": "1 + f(1)"}))
    assert place(e) == ("/expr", 4) and "'f'" in e["detail"] and "offset 11" in e["detail"], e


def test_errors_in_a_body_are_placed_at_the_call(api, fn):
    api.upload(np.ones(3), "u"), api.upload(np.ones(4), "v"), api.upload(np.ones(3, "complex64"), "z")
    api.expect(201, fn("add_to", ["x", "y"], "0 + (x + y)"))
    api.expect(201, fn("both", ["x", "y"], "2*add_to(x, y)"))
    e = api.fails(422, "shape_mismatch", api.post("/v1/evaluate", {"expr": "u*both(u, v)"}))
    assert place(e) == ("/expr", 2), e
    assert "'add_to', at offset 7 of its /expr; called in 'both', at offset 2 of its /expr" in e["detail"], e
    e = api.fails(422, "shape_mismatch", api.post("/v1/evaluate", {
        "tree": {"op": "sin", "args": [{"op": "both", "args": ["u", "v"]}]}}))
    assert place(e) == ("/tree/args/0", None), e
    e = api.fails(422, "shape_mismatch", api.post("/v1/evaluate", {"expr": "m", "let": [["m", "both(u, v)"]]}))
    assert place(e) == ("/let/0/1", 0), e
    api.expect(201, fn("where_is", ["x"], {"op": "multiply", "args": [2, {"op": "floor", "args": ["x"]}]}))
    e = api.fails(422, "dtype_mismatch", api.post("/v1/evaluate", {"expr": "where_is(z)"}))
    assert place(e) == ("/expr", 0) and "'where_is', at its /tree/args/1" in e["detail"], e
    api.expect(201, fn("free", ["x"], "x + nowhere"))
    e = api.fails(422, "unknown_name", api.post("/v1/evaluate", {"expr": "free(u)"}))
    assert place(e) == ("/expr", 0) and "'nowhere'" in e["detail"] and "'free'" in e["detail"]
    # a mistake in an argument is the request's
    e = api.fails(422, "unknown_name", api.post("/v1/evaluate", {"expr": "both(u, 2*w)"}))
    assert place(e) == ("/expr", 10) and "'both'" not in e["detail"]


def test_limits_count_what_is_written_out(api, fn):
    """A chain of functions that each call the one before twice: 2**n calls."""
    api.expect(201, fn("f0", ["x"], "x + 1"))
    for i in range(1, 60):
        api.expect(201, fn(f"f{i}", ["x"], f"f{i - 1}(x) + f{i - 1}(2*x)"))
    assert api.evaluate("f8(1)") == 3**8 + 2**8
    start = time.monotonic()
    e = api.fails(422, "expression_too_large", api.post("/v1/evaluate", {"expr": "1 + f59(1)"}))
    assert time.monotonic() - start < 5 and place(e) == ("/expr", 4) and "10000 nodes" in e["detail"]
    api.expect(201, fn("deep", ["x"], "sin("*100 + "x" + ")"*100))
    api.expect(200, api.post("/v1/evaluate", {"expr": "deep(deep(deep(0.5)))"}))
    for expr in ("deep(deep(deep(deep(0.5))))", "deep(deep(deep(" + "("*98 + "0.5" + ")"*98 + ")))"):
        e = api.fails(422, "expression_too_large", api.post("/v1/evaluate", {"expr": expr}))
        assert place(e)[0] == "/expr" and "400 levels" in e["detail"], e
    api.expect(201, fn("h0", ["x"], "x"))
    for i in range(1, 402):
        api.expect(201, fn(f"h{i}", ["x"], f"h{i - 1}(x)"))
    assert api.evaluate("h300(7)") == 7
    api.fails(422, "expression_too_large", api.post("/v1/evaluate", {"expr": "h401(7)"}))


def test_limits_of_definitions(daemon_with):
    c = daemon_with("--max-functions", 2, "--max-function-size", 64, "--max-nodes", 50).client()
    limits = c.info()["limits"]
    assert limits["max_functions"] == 2 and limits["max_function_size"] == 64
    long = "1" + "+1"*31
    c.expect(201, c.post("/v1/functions", {"name": "a", "params": [], "expr": "1"}))
    c.fails(422, "expression_too_large", c.post("/v1/functions", {"name": "b", "params": [], "expr": long + "  "}))
    c.fails(422, "expression_too_large", c.post("/v1/functions", {"name": "b", "params": [], "expr": long}))
    c.fails(422, "expression_too_large", c.post("/v1/functions", {
        "name": "b", "params": [], "tree": {"op": "add", "args": [1000]*20}}))
    c.expect(201, c.put("/v1/functions/b", {"params": [], "expr": "2"}))
    c.fails(429, "quota_exceeded", c.put("/v1/functions/c", {"params": [], "expr": "2"}))
    c.expect(200, c.put("/v1/functions/b", {"params": [], "expr": "3"}))
    c.expect(204, c.delete("/v1/functions/a"))
    c.expect(201, c.put("/v1/functions/c", {"params": [], "expr": "b()"}))
    assert c.evaluate("c()") == 3
    c.close()


def test_functions_change_while_they_are_called(api, fn, daemon):
    """Definitions are of one moment: f and g always agree."""
    api.expect(201, put(api, "g", ["x"], "x"))
    api.expect(201, put(api, "f", ["x"], "g(x) - g(x)"))
    stop = []

    def change():
        c = daemon.client()
        for i in range(200):
            c.expect(200, c.put("/v1/functions/g", {"params": ["x"], "expr": f"x + {i}"}))
        stop.append(True)
        c.close()

    def call():
        c = daemon.client()
        while not stop:
            assert c.evaluate("f(3)") == 0
        c.close()

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for job in [pool.submit(change), pool.submit(call), pool.submit(call)]:
            job.result()


def test_on_a_device(gpu_with):
    c = gpu_with().client()
    c.upload(np.arange(12, dtype="float32").reshape(3, 4), "u")
    c.expect(201, c.put("/v1/functions/unit", {"params": ["x"], "expr": "(x - mean(x)) / max(abs(x))"}))
    u = np.arange(12, dtype="float32").reshape(3, 4)
    assert np.array_equal(c.evaluate("unit(u)"), (u - u.mean()) / u.max())
    c.close()


def test_indices_out_of_range_in_a_body(api, fn):
    """What is looked at before anything is stored has its place at the call, too."""
    api.upload(np.arange(4.), "u"), api.upload(np.array([0, 9]), "i")
    api.expect(201, fn("pick", ["x", "j"], "0 + take(x, j)"))
    api.expect(201, fn("deep_pick", ["x", "j"], "-pick(x, j)"))
    assert api.evaluate("deep_pick(u, i % 4)").tolist() == [0, -1]
    for extra in ({}, {"out": "u", "index": "0:2"}):
        e = api.fails(422, "bad_index", api.post("/v1/evaluate", {"expr": "1 + deep_pick(u, i)", **extra}))
        assert place(e) == ("/expr", 17), e
    assert api.download("u").tolist() == [0, 1, 2, 3]


MANY = 400  # terms, some 2,500 nodes


@pytest.mark.in_turn
def test_a_plan_made_elsewhere_is_the_same(api, fn):
    """What is put off for its nodes, and what is not: values, targets, names, mistakes, repetitions."""
    api.upload(np.arange(8.0), "a")
    many = "+".join(f"(x*{i}-x)" for i in range(MANY))
    api.expect(201, fn("many", ["x"], many))
    api.expect(201, fn("some", ["x"], "+".join(f"(x*{i}-x)" for i in range(30))))
    for name, n in (("many", MANY), ("some", 30)):
        want = np.arange(8.0) * (n * (n - 1) // 2 - n)
        for _ in range(2):  # "some" is in the plan cache then
            assert api.evaluate(f"{name}(a) + 1").tolist() == (want + 1).tolist()
        assert api.expect(200, api.post("/v1/evaluate", {"expr": f"sum({name}(a))"})).json()["value"] == want.sum()
        api.expect(201, api.post("/v1/evaluate", {"expr": f"{name}(a) + 2", "name": "r"}))
        assert api.evaluate("r").tolist() == (want + 2).tolist()
        api.expect(200, api.post("/v1/evaluate", {"expr": f"{name}(a) + 3", "out": "r"}))
        assert api.evaluate("r").tolist() == (want + 3).tolist()
        i = api.expect(201, api.post("/v1/evaluate", {"expr": "astype(a, int64)", "name": "i"})).json()
        bad = api.post("/v1/evaluate", {"expr": f"take(a, i + 1) + {name}(a)", "out": "r"})
        api.fails(422, "bad_index", bad)
        assert api.evaluate("r").tolist() == (want + 3).tolist()
        api.delete(f"/v1/arrays/{i['id']}")
        api.fails(422, "shape_mismatch", api.post("/v1/evaluate", {"expr": f"{name}(a) + a[:7]"}))
        x = api.expect(200, api.post("/v1/explain", {"expr": f"{name}(a)"})).json()
        assert x["result"] == {"dtype": "float64", "shape": [8]}


@pytest.mark.in_turn
@pytest.mark.parametrize("name,n", [("many", MANY), ("some", 5)])
def test_statements_planned_elsewhere_are_the_same(api, fn, name, n):
    api.upload(np.arange(8.0), "a")
    api.expect(201, fn(name, ["x"], "+".join(f"(x*{i}-x)" for i in range(n))))
    want = np.arange(8.0) * (n * (n - 1) // 2 - n)
    body = {"statements": [f"a += {name}(a)", f"s = sum(a + 0*{name}(a))", f"t = {name}(a)"], "results": ["t", "s"], "inline": True}
    explained = api.expect(200, api.post("/v1/explain", {k: v for k, v in body.items() if k != "inline"})).json()
    assert explained["kernels"]
    got = api.expect(200, api.post("/v1/evaluate", body)).json()["results"]
    a = np.arange(8.0) + want
    assert api.evaluate("a").tolist() == a.tolist()
    assert got["s"]["value"] == a.sum()
    assert got["t"]["data"] == (a * (n * (n - 1) // 2 - n)).tolist()
    for bad, code in ((f"a = {name}(a) + a[:7]", "shape_mismatch"), (f"a = {name}(a) + nobody", "unknown_name")):
        e = api.fails(422, code, api.post("/v1/evaluate", {"statements": ["a += 1", bad]}))
        assert e["pointer"] == "/statements/1"
    assert api.evaluate("a").tolist() == a.tolist()


@pytest.mark.alone
@pytest.mark.parametrize("route,body", [
    ("evaluate", lambda k: {"expr": f"sum(h(a)) + {k}"}),
    ("evaluate", lambda k: {"statements": [f"s = sum(h(a)) + {k}"]}),
    ("explain", lambda k: {"expr": f"sum(h(a)) + {k}"}),
    ("explain", lambda k: {"body": [f"a = h(a) + {k}"], "steps": 3}),
], ids=["expression", "statements", "explain", "explain-program"])
def test_large_functions_keep_nobody_waiting(daemon_with, route, body):
    """Workers plan them: whoever else is on the listener is answered meanwhile."""
    d = daemon_with("--threads", "2")
    c = d.client()
    c.upload(np.arange(8.0), "a")
    for name, text in (("g", "+".join(f"sin(x*{i})" for i in range(600))), ("h", "g(x)+g(x+1)+g(x+2)")):
        c.expect(201, c.post("/v1/functions", {"name": name, "params": ["x"], "expr": text}))

    def ask(client, k):
        begin = time.monotonic()
        r = client.expect(200, client.post(f"/v1/{route}", body(k), check=False)).json()  # megabytes, of explain
        return time.monotonic() - begin, r.get("results", {}).get("s", r).get("value", 0)

    alone = min(ask(c, k)[0] for k in range(3))
    zero = ask(c, 0)[1]
    over = threading.Event()

    def loop(i):
        own, k = c.clone(), 0
        while not over.is_set():
            k += 1
            assert abs(ask(own, 1000 * i + k)[1] - (zero + 1000 * i + k if route == "evaluate" else 0)) < 1e-6
        own.close()
        return k

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(loop, i) for i in range(1, 4)]
        took, until = [], time.monotonic() + 1.5
        while time.monotonic() < until:
            begin = time.monotonic()
            c.expect(200, c.get("/healthz"))
            took.append(time.monotonic() - begin)
            time.sleep(0.005)
        over.set()
        assert all(f.result() > 1 for f in asked)
    c.close()
    # on the listener's thread each would have waited for two or three of them
    assert statistics.median(took) < 0.5 * alone
