"""What somebody who knows NumPy writes first: lists as values, null for "not given", numbers beyond float64, names of dtypes."""
import json

import numpy as np
import pytest

JSON = "application/json"
F = np.arange(3, dtype="float32") + 0.5


@pytest.mark.parametrize("expr, want", [
    ("[1, 2, 3]*2", np.array([1, 2, 3]) * 2), ("sum([1, 2])", np.array(3)), ("[1, 2.5]", np.array([1, 2.5])),
    ("concat([f, [1, 2]])", np.concatenate([F, [1, 2]])), ("f + [1, 2, 3]", F + np.array([1, 2, 3])),
    ("[[1, 2], [3, 4]][1]", np.array([3, 4])), ("[f, 2*f]", np.array([F, 2 * F])), ("-[True, False]*1", None),
    ("[True, False]", np.array([True, False])), ("where([True, False, True], f, 0)", np.where([True, False, True], F, 0)),
    ("[max(f), min(f)]", np.array([F.max(), F.min()])), ("(1, 2) + 1", np.array([2, 3])), ("[index(0) + 0*f, f]", np.array([[0, 1, 2], F])),
    ("stack([[1, 2], [3, 4]], axis=1)", np.array([[1, 3], [2, 4]])), ("[2j, 1]", np.array([2j, 1]))])
def test_lists_are_values(api, expr, want):
    api.upload(F, name="f")
    r = api.post("/v1/evaluate", {"expr": expr, "inline": True})
    if want is None:  # as NumPy: no minus of bools
        api.fails(422, "dtype_mismatch", r)
        return
    r = api.expect(200, r).json()
    got = r.get("data", r.get("value"))
    if want.dtype.kind == "c":
        got = [complex(*x) for x in got]
    assert r["dtype"] == want.dtype.name
    np.testing.assert_array_equal(np.array(got), want)


def test_lists_are_values_elsewhere(api):
    """In trees, in let, as what is written to an array, in statements."""
    api.upload(F, name="f")
    def value(**body):
        return api.expect(200, api.post("/v1/evaluate", {"inline": True, **body})).json()["data"]
    assert value(tree={"op": "multiply", "args": [[1, 2, 3], 2]}) == [2, 4, 6]
    assert value(expr="w*2", let=[["w", "[1, 2]"]]) == [2, 4]
    api.expect(200, api.post("/v1/evaluate", {"expr": "[7, 8]", "out": "f", "index": "1:"}))
    assert api.download("f").tolist() == [0.5, 7, 8]
    api.expect(200, api.post("/v1/evaluate", {"statements": ["w = [1, 2, 3]", "f += w"]}))
    assert api.download("f").tolist() == [1.5, 9, 11]


@pytest.mark.parametrize("expr, code, offset", [
    ("[]*2", "bad_expression", 0), ("[1, [2]]", "shape_mismatch", 4), ("[1, 'x']", "bad_expression", 4), ("[1, None]", "bad_expression", 4),
    ("sum(f, axis=[0.5])", "bad_axis", 13), ("[1, 2] + f", "shape_mismatch", 7)])
def test_lists_that_are_no_values(api, expr, code, offset):
    api.upload(F, name="f")
    assert api.fails(422, code, api.post("/v1/evaluate", {"expr": expr}))["offset"] == offset


def test_null_is_not_given(api):
    api.upload(F, name="f")
    r = api.expect(201, api.post("/v1/evaluate", {"expr": "f*2", "name": None, "out": None, "index": None, "dtype": None})).json()
    assert r["name"] is None and r["dtype"] == "float32"
    api.expect(200, api.post("/v1/evaluate", {"expr": "1", "out": "f", "index": None}))
    assert api.download("f").tolist() == [1, 1, 1]
    r = api.expect(201, api.post("/v1/arrays/f/views", {"index": None, "permute": None, "reshape": [3, 1], "broadcast_to": None,
                                                        "dtype": None, "name": None, "ghost": None})).json()
    assert r["shape"] == [3, 1]


BEYOND = [("/v1/evaluate", '{"expr": "x*2", "bind": {"x": %s}}', "/bind/x"), ("/v1/evaluate", '{"tree": %s}', "/tree"),
          ("/v1/evaluate", '{"tree": {"op": "const", "value": %s, "dtype": "float32"}}', "/tree/value"),
          ("/v1/arrays", '{"shape": [2], "fill": %s}', "/fill"), ("/v1/arrays", '{"data": [1, %s]}', "/data/1"),
          ("/v1/arrays", '{"data": [1, %s], "dtype": "float32"}', "/data/1"), ("/v1/arrays", '{"dtype": "float16", "data": [[1, %s]]}', "/data/0/1"),
          ("/v1/arrays", '{"dtype": "complex128", "data": [[1, %s]]}', "/data/0/1"), ("/v1/arrays", '{"linspace": {"start": 0, "stop": %s, "num": 3}}', "/linspace/stop"),
          ("/v1/arrays", '{"shape": [2], "boundary": [[{"type": "dirichlet", "value": %s}, {"type": "none"}]]}', "/boundary/0/0/value")]


@pytest.mark.parametrize("path, body, pointer", BEYOND)
def test_numbers_beyond_float64(api, path, body, pointer):
    """Infinity is meant where it is said."""
    for number in ("1e999", "-1e999", "1.5e309"):
        problem = api.fails(422, "literal_range", api.request("POST", path, (body % number).encode(), content_type=JSON))
        assert problem["pointer"] == pointer and '"Infinity"' in problem["detail"]
    r = api.request("POST", path, (body % '"Infinity"').encode(), content_type=JSON)
    if "linspace" not in body and "tree" not in body:
        assert r.status in (200, 201), r
    api.upload(F, name="f")
    api.fails(422, "literal_range", api.request("PUT", "/v1/arrays/f/data", b"[1, 2, 1e999]", content_type=JSON))
    np.testing.assert_array_equal(api.download("f"), F)
    assert json.loads(api.post("/v1/evaluate", {"expr": "1e999"}).body)["value"] == "Infinity"  # Python's


DTYPES = {"float": "float64", "double": "float64", "f4": "float32", "<f8": "float64", "int": "int64", "i2": "int16", "u1": "uint8", "?": "bool",
          "half": "float16", "complex": "complex128", "c16": "complex128", "bf16": "bfloat16", "uint": "uint64", "Float32": None, "object": None, "": None}


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_that_are_called_otherwise(api, name):
    """The message has all names, and the one that NumPy's means."""
    api.upload(F, name="f")
    replies = [api.post("/v1/arrays", {"shape": [2], "dtype": name}), api.post("/v1/evaluate", {"expr": "f", "dtype": name}),
               api.post("/v1/evaluate", {"expr": f"astype(f, '{name}')"}), api.post("/v1/arrays/f/views", {"dtype": name})]
    if name not in ("?", "<f8"):
        replies.append(api.request("POST", f"/v1/arrays?dtype={name}&shape=2", b"ab", content_type="application/octet-stream"))
        replies.append(api.request("PUT", f"/v1/arrays/f/data?dtype={name}", b"ab", content_type="application/octet-stream"))
    for r in replies:
        detail = api.fails(422, "bad_dtype", r)["detail"]
        assert all(t in detail for t in api.info()["dtypes"])
        assert ("did you mean" in detail) == (DTYPES[name] is not None)
        assert DTYPES[name] is None or f'did you mean "{DTYPES[name]}"?' in detail


@pytest.mark.parametrize("path, body, code, words", [
    ("/v1/sessions", {"device": 9}, "bad_field", ["there is no device 9", "the only one is 0"]),
    ("/v1/evaluate", {"expr": "f @ f"}, "bad_expression", ["no matrix product", "vectors", "sum("]),
    ("/v1/evaluate", {"expr": "min(f, 2*f)"}, "bad_axis", ["minimum(x, y)"]), ("/v1/evaluate", {"expr": "max(f, 0.5)"}, "bad_axis", ["maximum(x, y)"]),
    ("/v1/evaluate", {"expr": "f^2"}, "dtype_mismatch", ["x ** y"]),
    ("/v1/evaluate", {"expr": "f>0 & f<1"}, "bad_expression", ["(a < b) & (b < c)", "brackets"]),
    ("/v1/evaluate", {"expr": "0 < f < 1"}, "bad_expression", ["do not chain"]),
    ("/v1/evaluate", {"expr": "lapl(f)"}, "unknown_operation", ["did you mean 'laplacian'?"]),
    ("/v1/evaluate", {"expr": "cumulative(f)"}, "unknown_operation", ["did you mean 'cumulative_sum'?"]),
    ("/v1/evaluate", {"expr": "fill_ghost(f)"}, "unknown_operation", ["cannot be used in an expression"]),
    ("/v1/programs", {"program": ["f += 1"]}, "unknown_field", ['unknown member "program"', "body"]),
    ("/v1/evaluate", {"statments": ["f += 1"]}, "unknown_field", ['unknown member "statments"', "expr, tree,", "statements, results"]),
    ("/v1/evaluate", {"expr": "f", "results": ["f"]}, "unknown_field", ["statements is missing"]),
    ("/v1/arrays", {"linspace": {"start": 0, "stop": [0, 1]}}, "bad_dtype", ["complex64 or complex128"]),
    ("/v1/arrays/f/fill_ghost", {"x": 1}, "unknown_field", ['unknown member "x"'])])
def test_messages_name_the_way_out(api, path, body, code, words):
    api.upload(F, name="f")
    e = api.fails(422, code, api.post(path, body))
    assert e["pointer"].split("/")[1] in body
    detail = e["detail"]
    for w in words:
        assert w in detail
