"""POST /v1/explain: the typed tree, the kernels, the bytes; and that nothing is run."""
import numpy as np
import pytest

from client import JSON, OCTETS
from conftest import settle


def explain(api, expr, **fields):
    key = "expr" if isinstance(expr, str) else "tree"
    return api.expect(200, api.post("/v1/explain", {key: expr, **fields})).json()


def walk(tree):
    yield tree
    for arg in tree.get("args", []):
        yield from walk(arg)


def test_the_typed_tree(api):
    api.create(name="a", shape=[4, 5], dtype="float32")
    api.create(name="b", shape=[5], dtype="int32")
    x = explain(api, "a * 2 + b")
    assert x["result"] == {"dtype": "float64", "shape": [4, 5]}
    root = x["tree"]
    assert (root["op"], root["dtype"], root["shape"]) == ("add", "float64", [4, 5])
    nodes = list(walk(root))
    inputs = {n["name"]: n for n in nodes if n["op"] == "input"}
    assert (inputs["a"]["dtype"], inputs["a"]["shape"]) == ("float32", [4, 5])
    assert (inputs["b"]["dtype"], inputs["b"]["shape"]) == ("int32", [5])
    times = next(n for n in nodes if n["op"] == "multiply")
    assert times["dtype"] == "float32"  # the literal is weak
    assert {n["op"] for n in nodes} == {"add", "multiply", "astype", "input", "const"}
    assert next(n for n in nodes if n["op"] == "const")["value"] == 2
    assert [n["id"] for n in x["nodes"]] == list(range(len(x["nodes"])))
    assert all(i < n["id"] for n in x["nodes"] for i in n["args"])  # children first
    assert "add" in x["text"]


def test_composites_are_spelled_out(api):
    api.create(name="u", shape=[8, 8])
    x = explain(api, "laplacian(u, 2, boundary='wrap')")
    shifts = [n for n in x["nodes"] if n["op"] == "shift"]
    assert sorted(n["offsets"] for n in shifts) == [[-1, 0], [0, -1], [0, 1], [1, 0]]
    assert {n["boundary"] for n in shifts} == {"wrap"}
    x = explain(api, "mean(u, axis=1)")
    reduce = next(n for n in x["nodes"] if n["op"] == "mean")
    assert reduce["axis"] == [1] and reduce["keepdims"] is False


def test_shared_nodes_are_written_once(api):
    api.create(name="u", shape=[8])
    x = explain(api, "(u+1)*(u+1)")
    assert [n["op"] for n in x["nodes"]].count("add") == 1
    text = "u"
    for _ in range(25):
        text = f"({text}+1)*({text}+1)" if len(text) < 400 else text
    let = [["x0", "u + 1"]] + [[f"x{k + 1}", f"x{k} * x{k}"] for k in range(60)]
    x = explain(api, "x60", let=let)  # 2**60 nodes if sharing were lost
    assert len(x["nodes"]) < 70
    assert any("ref" in n for n in walk(x["tree"]))


def test_deep_trees_end_in_references(api):
    api.create(name="u", shape=[8])
    x = explain(api, " + ".join(["u"] * 3000))
    assert len(x["nodes"]) == 3000
    depth = 0
    node = x["tree"]
    while "args" in node:
        node, depth = node["args"][0], depth + 1
    assert "ref" in node and 30 < depth <= 100


@pytest.mark.parametrize("expr,read,written", [
    ("a + 1", 4000, 4000), ("a + a*a", 4000, 4000), ("a + b", 8000, 4000), ("a[::2] + 1", 2000, 2000),
    ("a + c", 4004, 4000), ("a > 0", 4000, 1000), ("where(a > 0, a, 0)", 4000, 4000), ("sum(a)", 4000, 4)])
def test_bytes(api, expr, read, written):
    for name in "ab":
        api.create(name=name, shape=[1000], dtype="float32")
    api.create(name="c", shape=[1], dtype="float32")
    x = explain(api, expr)
    assert (x["bytes_read"], x["bytes_written"]) == (read, written)
    assert sum(k["bytes_read"] for k in x["kernels"]) == read


def test_kernels(api):
    api.create(name="u", shape=[100, 100], dtype="float32")
    k, = explain(api, "exp(u) + shift(u, [1, 0], 'clamp')")["kernels"]
    assert k["index"] == 0 and k["inputs"][0]["name"] == "u"
    assert all(i["dtype"] == "float32" for i in k["inputs"])
    assert k["nodes"] >= 3 and k["shape"] and "exp" in k["ir"] and k["source"]
    assert sorted(k["iteration"]) in ([100, 100], [10000])
    two = explain(api, "u - mean(u)")["kernels"]
    assert len(two) == 2 and [k["index"] for k in two] == [0, 1]
    assert {i["name"] for i in two[1]["inputs"]} == {"u", None}


def test_it_runs_nothing(api):
    u = api.create(name="u", data=[1.0, 2.0])
    before = api.info()["bytes_in_use"]
    explain(api, "u + 1", name="v")
    explain(api, "u + 1", name="u")
    explain(api, "u[::-1]", out="u")
    explain(api, "u + 1", inline=True)
    assert settle(api, before) == before
    assert api.download("u").tolist() == [1, 2] and api.meta("u")["id"] == u["id"]
    assert len(api.list_all("/v1/arrays", "arrays")) == 1


def test_both_spellings_are_explained_alike(api):
    api.create(name="u", shape=[7])
    a = explain(api, "where(u > 0, u, 0)")
    b = explain(api, {"op": "where", "args": [{"op": "greater", "args": ["u", 0]}, "u", 0]})
    assert a["nodes"] == b["nodes"] and a["text"] == b["text"]


def test_it_speaks_json_only(api):
    api.fails(406, "not_acceptable", api.post("/v1/explain", {"expr": "1"}, accept=OCTETS))
    api.fails(406, "not_acceptable", api.post("/v1/explain", {"expr": "1", "name": "v"}, accept=OCTETS))
    api.expect(200, api.post("/v1/explain", {"expr": "1"}, accept="*/*"))
    api.expect(200, api.post("/v1/explain", {"expr": "1"}, accept=JSON))


def test_a_target_is_checked(api):
    api.create(name="u", shape=[3])
    api.fails(422, "shape_mismatch", api.post("/v1/explain", {"expr": "u[:2]", "out": "u"}))
    api.fails(404, "not_found", api.post("/v1/explain", {"expr": "u", "out": "v"}))
    api.fails(422, "dtype_mismatch", api.post("/v1/explain", {"expr": "u*1j", "out": "u"}))


def shortest_paths(api, steps):
    """How many nodes the kernels have. Each step reads the step before as it is, a column and a row of it: computed anew for each,
    it would be three times as much with each step."""
    let = [["d0", "d + 0"]] + [[f"d{k + 1}", f"minimum(d{k}, d{k}[:, {k}:{k + 1}] + d{k}[{k}:{k + 1}, :])"] for k in range(steps)]
    return sum(k["nodes"] for k in explain(api, f"d{steps}", let=let)["kernels"])


def test_what_views_read_again_is_a_temporary(api):
    api.upload(np.arange(2500, dtype=np.int64).reshape(50, 50) % 71, "d")
    assert shortest_paths(api, 40) < 2.2 * shortest_paths(api, 20) < 4.4 * 20 * 20


def test_what_views_read_again_is_a_temporary_on_a_gpu(gpu_with):
    """There a kernel may repeat more before a temporary is cheaper, and the operands come first."""
    c = gpu_with().client()
    c.upload(np.arange(2500, dtype=np.int64).reshape(50, 50) % 71, "d")
    assert shortest_paths(c, 40) < 2.2 * shortest_paths(c, 20) < 4.4 * 20 * 20


def test_parts_that_views_read_once_are_no_temporary(api):
    api.upload(np.arange(20.0).reshape(10, 2), "points")
    assert len(explain(api, "p[:, 0] - p[:, 1]", let=[["p", "exp(sin(points)) * 3"]])["kernels"]) == 1


def test_rows_on_the_cpu_go_through_stages(daemon_with):
    """Together and, as temporaries, one after the other: the same bits, in another array and in place."""
    c = daemon_with("--backend", "cpu", "--threads", 2).client()
    c.upload(np.random.default_rng(3).standard_normal((700, 1001)).astype("float32"), "a")
    row = ", axis=1, keepdims=True)"
    let = [["e", f"exp(a - max(a{row})"]]
    [whole] = explain(c, f"e / sum(e{row}", let=let)["wholes"]
    assert whole["kernels"] == [0, 1, 2] and whole["shape"] == "fold" and whole["inputs"][0]["name"] == "a"
    stages = whole["source"].split("# in one:")[0]
    assert stages.count("# stage") >= 4 and stages.count("exp") == 1, stages
    for expr, out in (f"max(a{row}", "m"), ("exp(a - m)", "x"), (f"sum(x{row}", "s"), ("x / s", "w"):
        c.upload(c.evaluate(expr), out)
    c.create(name="b", shape=[700, 1001], dtype="float32")
    want = c.download("w").tobytes()
    for out in ("b", "a"):
        c.expect(200, c.post("/v1/evaluate", {"expr": f"e / sum(e{row}", "let": let, "out": out}))
        assert c.download(out).tobytes() == want
    [few] = explain(c, f"a[:3] - mean(a[:3]{row}")["wholes"]
    assert "one after the other" in few["why"]
