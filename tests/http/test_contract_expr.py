"""The contract's section 5 (expressions): syntax, types, meaning, held against NumPy."""
import itertools
import math

import numpy as np
import pytest

from client import NUMPY_DTYPES

F32 = np.array([-2.5, -1, -0.0, 0, 0.5, 1, 3.25, 1e10], "float32")
F64 = F32.astype("float64")
I32 = np.array([-7, -2, -1, 0, 1, 2, 5, 2**31 - 1], "int32")
I64 = I32.astype("int64")
I8 = np.array([-128, -3, -1, 0, 1, 2, 100, 127], "int8")
U8 = np.array([0, 1, 2, 3, 7, 100, 200, 255], "uint8")
B = np.array([True, False, True, True, False, False, True, False])
C64 = np.array([1 + 2j, -1j, 0, 3, -2.5 + 1j, 1e3j, 1, -1], "complex64")
SPECIAL = np.array([-np.inf, np.inf, np.nan, -0.0, 0, 4, 1e-40, 3e38], "float32")
M = np.arange(12, dtype="float32").reshape(3, 4)
ARRAYS = dict(f32=F32, f64=F64, i32=I32, i64=I64, i8=I8, u8=U8, b=B, c64=C64, m=M, special=SPECIAL)
np_f32 = np.float32


def check(api, expr, want, **fields):
    """Uploads the arrays that the expression names, evaluates, compares value and dtype."""
    text = str(expr)
    for name, a in ARRAYS.items():
        if name in text and name not in fields.get("bind", {}):
            api.upload(a, name=name)
    got = api.evaluate(expr, **fields)
    want = np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype.kind in "fc":
        eps = np.finfo(want.dtype).eps
        np.testing.assert_allclose(got, want, rtol=4 * eps, atol=0)
    else:
        np.testing.assert_array_equal(got, want)


def f(x, dtype="float32"):
    return np.asarray(x, dtype)


with np.errstate(all="ignore"):
    INFIX = [
        ("f32 + f32", F32 + F32), ("2.0*f32", np_f32(2) * F32), ("f32 - 1", F32 - np_f32(1)), ("1/f32", np_f32(1) / F32),
        ("f32 // 2", F32 // np_f32(2)), ("f32 % 2", F32 % np_f32(2)), ("f32 ** 2", F32 * F32),
        ("f32 ** -1", np_f32(1) / F32), ("f64 ** -1.0", 1 / F64), ("i32 ** -1.0", 1 / I32.astype("f8")), ("(f32 - 2) ** -1", 1 / (F32 - 2)),
        ("f32 ** 0.5", np.power(F32, np_f32(0.5))), ("f64 ** 0.5", np.power(F64, 0.5)), ("i32 ** 0.5", np.power(I32, 0.5)),
        ("pow(special, 0.5)", np.power(SPECIAL, np.full(8, 0.5, "float32"))), ("special ** -1", np_f32(1) / SPECIAL),
        ("1 / special ** 0.5", 1 / np.power(SPECIAL, np.full(8, 0.5, "float32"))),
        ("f32 ** 2.5", np.power(F32, np_f32(2.5))), ("f64 ** 1.5", np.power(F64, 1.5)),
        *((f"1 / special ** {n}", 1 / np.power(SPECIAL, np.full(8, n, "float32"))) for n in (1.5, 2.5)),
        *((f"special ** {n}", np.power(SPECIAL, np.full(8, n, "float32"))) for n in (1.5, 2.5)),
        ("-f32", -F32), ("+f32", F32), ("~i32", ~I32), ("~b", ~B), ("-2**2", np.int64(-4)), ("2**3**2", np.int64(512)),
        ("2**-1", np.float64(0.5)), ("-f32**2", -(F32 * F32)), ("(1 + 2) * 3", np.int64(9)), ("1 + 2*3", np.int64(7)),
        ("7 // 2", np.int64(3)), ("-7 // 2", np.int64(-4)), ("-7 % 3", np.int64(2)), ("7 / 2", np.float64(3.5)),
        ("f32 == 1", F32 == 1), ("f32 != 1", F32 != 1), ("f32 < 1", F32 < 1), ("f32 <= 1", F32 <= 1), ("f32 > 1", F32 > 1),
        ("f32 >= 1", F32 >= 1), ("(f32 > 0) & b", (F32 > 0) & B), ("b | (i32 == 0)", B | (I32 == 0)), ("b ^ True", ~B),
        ("i32 & 3", I32 & np.int32(3)), ("i32 | 8", I32 | np.int32(8)), ("i32 ^ -1", I32 ^ np.int32(-1)),
        ("i32 << 2", I32 << np.int32(2)), ("i32 >> 1", I32 >> np.int32(1)), ("u8 << 8", np.zeros(8, "uint8")),
        ("i32 >> 40", np.where(I32 < 0, -1, 0).astype("int32")), ("i32 << -1", np.zeros(8, "int32")),
        ("i32 >> -1", np.where(I32 < 0, -1, 0).astype("int32")),
        ("f32[1:-1]", F32[1:-1]), ("f32[::-1] + f32", F32[::-1] + F32), ("m[1:-1, ::2]", M[1:-1, ::2]), ("m[0, 1]", M[0, 1]),
        ("m[..., None] * 2", M[..., None] * np_f32(2)), ("(m + 1)[1]", (M + 1)[1]), ("m[-1][-2]", M[-1][-2]),
        ("where(f32 > 0, f32, 0)", np.where(F32 > 0, F32, np_f32(0))), ("clip(f32, -1, 1)", np.clip(F32, np_f32(-1), np_f32(1))),
        ("clip(f32, min=0)", np.maximum(F32, np_f32(0))), ("clip(f32, max=0.5)", np.minimum(F32, np_f32(0.5))),
        ("clip(f32, None, 1)", np.minimum(F32, np_f32(1))), ("abs(c64)", np.abs(C64)), ("real(c64) + imag(c64)", C64.real + C64.imag),
        ("conj(c64) * 2j", np.conj(C64) * np.complex64(2j)), ("f32 * 1j", F32 * np.complex64(1j)), ("i32 + 1j", I32 + 1j),
        ("pi", np.float64(math.pi)), ("where(True, 1, 2.5)", np.float64(1)), ("where(False, True, 2)", np.int64(2)), ("where(True, 1, 2j)", np.complex128(1)), ("e", np.float64(math.e)), ("f32 * pi", F32 * np_f32(math.pi)), ("True", np.bool_(True)),
        ("True + True", np.int64(2)), ("3 > 2", np.bool_(True)), ("1e3", np.float64(1000)), ("0x10 + 0b11 + 0o7 + 1_000", np.int64(1026)),
        (".5 + 5.", np.float64(5.5)), ("i8 + -128", (I8.astype("i4") - 128).astype("int8")), ("u8 + 255", U8 + np.uint8(255)),
        ("f32 * 1e300", F32 * np_f32(np.inf)), ("sqrt(2) * f32", np_f32(math.sqrt(2)) * F32), ("i32 + 0.5", I32 + 0.5),
        ("i32 + f32", I32 + F64), ("i8 + f32", I8 + F32), ("u8 / 2", U8 / np.float64(2)), ("i32 / i32", I32 / I32),
        ("i32 // 0", np.zeros(8, "int32")), ("i32 % 0", np.zeros(8, "int32")), ("i32 // -2", I32 // np.int32(-2)),
        ("i32 % -3", I32 % np.int32(-3)), ("i32 * i32", I32 * I32), ("i8 * 2", I8 * np.int8(2)), ("-i8", -I8), ("abs(i8)", np.abs(I8)),
        ("b + b", B + B), ("b * b", B & B), ("b + 1", B + np.int64(1)), ("b * 2.5", B * 2.5), ("b / b", B / B), ("b ** b", B.astype("i1") ** B.astype("i1")),
        ("i32 ** 2", I32 * I32), ("2 ** i8", np.array([0, 0, 0, 1, 2, 4, 0, 0], "int8")), ("round(f32 + 0.5)", np.round(F32 + np_f32(0.5))),
        ("floor(f32)", np.floor(F32)), ("floor(i32)", I32), ("sign(f32)", np.sign(F32)), ("sign(i32)", np.sign(I32)), ("trunc(f32)", np.trunc(F32)),
        ("ceil(f32)", np.ceil(F32)), ("signbit(f32)", np.signbit(F32)), ("isnan(f32 / 0)", np.isnan(F32 / np_f32(0))), ("isinf(1 / f32)", np.isinf(1 / F32)),
        ("isfinite(i32)", np.ones(8, bool)), ("logical_and(f32, i32)", np.logical_and(F32, I32)), ("logical_not(f32)", np.logical_not(F32)),
        ("maximum(f32, i8)", np.maximum(F32, I8)), ("minimum(f32, nan)", np.full(8, np.nan, "float32")), ("square(i32)", I32 * I32),
        ("atan2(f32, 2)", np.arctan2(F32, np_f32(2))), ("hypot(f32, 1)", np.hypot(F32, np_f32(1))), ("copysign(f32, -1)", np.copysign(F32, np_f32(-1))),
        ("pow(f32, 2)", F32 * F32), ("add(f32, f32)", F32 + F32), ("fmod(i32, 3)", np.fmod(I32, np.int32(3))), ("remainder(i32, 3)", I32 % np.int32(3)),
        ("lerp(f32, 1, 0.5)", F32 + (1 - F32) * np_f32(0.5)), ("addcmul(f32, 2, f32, f32)", F32 + 2 * F32 * F32), ("frac(f64)", F64 - np.trunc(F64)),
        ("astype(f32, 'int32')", np.array([-2, -1, 0, 0, 0, 1, 3, 2**31 - 1], "int32")), ("astype(f32, 'uint8')", np.array([0, 0, 0, 0, 0, 1, 3, 255], "uint8")),
        ("astype(nan * f32, 'int64')", np.zeros(8, "int64")), ("astype(i32, 'uint8')", I32.astype("uint8")), ("astype(f32, 'bool')", F32 != 0),
        ("astype(i32, \"float32\")", I32.astype("float32")), ("astype(b, dtype='int8')", B.astype("int8")),
        ("sqrt(i32 * 0 + 4)", np.full(8, 2.0)), ("exp(b)", np.exp(B.astype("f8"))), ("mean(i32)", np.mean(I32)), ("where(f32, 1, 2)", np.where(F32 != 0, 1, 2)),
        ("u8 + i8", U8.astype("int16") + I8), ("m * [1, 2, 3, 4][0]", None), ("i64 < 0.5", I64 < 0.5), ("nan != nan", np.bool_(True)),
    ]
INFIX = [(e, w) for e, w in INFIX if w is not None]


@pytest.mark.parametrize("expr,want", INFIX, ids=[e for e, _ in INFIX])
def test_infix(api, expr, want):
    check(api, expr, want)


TREES = [
    (1, np.int64(1)), (1.5, np.float64(1.5)), (True, np.bool_(True)), ("pi", np.float64(math.pi)), ("f32", F32),
    ({"op": "where", "args": [{"op": "greater", "args": ["f32", 0]}, "f32", 0]}, np.where(F32 > 0, F32, np_f32(0))),
    ({"op": "add", "args": ["i32", 1, 2, "i32"]}, I32 + np.int32(3) + I32), ({"op": "multiply", "args": [2, 3, 4]}, np.int64(24)),
    ({"op": "maximum", "args": ["i32", 0, 3]}, np.maximum(I32, 3).astype("int32")), ({"op": "minimum", "args": [3, 1, 2]}, np.int64(1)),
    ({"op": "logical_and", "args": ["b", True, "b"]}, B), ({"op": "logical_or", "args": ["b", False, "b"]}, B),
    ({"op": "bitwise_and", "args": ["i32", 7, 3]}, I32 & np.int32(3)), ({"op": "bitwise_or", "args": [1, 2, 4]}, np.int64(7)),
    ({"op": "bitwise_xor", "args": ["i32", 1, 1]}, I32), ({"op": "const", "value": 3, "dtype": "uint8"}, np.uint8(3)),
    ({"op": "const", "value": "NaN"}, np.float64("nan")), ({"op": "const", "value": [1, 2], "dtype": "complex64"}, np.complex64(1 + 2j)),
    ({"op": "getitem", "args": ["m"], "index": "1:, ::2"}, M[1:, ::2]), ({"op": "sum", "args": ["m"], "axis": 0}, M.sum(0)),
    ({"op": "sum", "args": ["m", [0, 1]], "keepdims": True}, M.sum(keepdims=True)), ({"op": "astype", "args": ["f32"], "dtype": "int8"}, F32.clip(-128, 127).astype("int8")),
    ({"op": "shift", "args": ["i32", [1]], "boundary": "wrap"}, np.roll(I32, -1)), ({"op": "negative", "args": ["i32"]}, -I32),
    ({"op": "shift", "args": ["i32"], "offsets": [-1], "boundary": "constant", "value": 9}, np.concatenate([[9], I32[:-1]]).astype("int32")),
    ({"op": "clip", "args": ["i32"], "min": -1, "max": 2}, np.clip(I32, -1, 2).astype("int32"))]


@pytest.mark.parametrize("tree,want", TREES, ids=[str(t)[:60] for t, _ in TREES])
def test_trees(api, tree, want):
    for name, a in ARRAYS.items():
        if f"'{name}'" in repr(tree):
            api.upload(a, name=name)
    got = api.expect(200, api.post("/v1/evaluate", {"tree": tree}, accept="application/x-npy")).npy()
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("tree,pointer", [
    ({"args": [1]}, "/tree"), ({"op": 3, "args": []}, "/tree/op"), ({"op": "add", "args": 1}, "/tree/args"), ({"op": "nothing", "args": []}, "/tree"),
    ({"op": "sin", "args": [1, 2]}, "/tree"), ({"op": "add", "args": [1, {"op": "sin", "args": ["q"]}]}, "/tree/args/1/args/0"),
    ({"op": "const", "value": 300, "dtype": "uint8"}, "/tree"), ({"op": "const", "value": 1, "dtype": "int9"}, "/tree/dtype"), ({"op": "sin", "args": ["NaN"]}, "/tree/args/0"),
    ({"op": "sum", "args": ["m"], "colour": 1}, "/tree"), ({"op": "getitem", "args": ["m"], "index": "7"}, "/tree")])
def test_bad_trees(api, tree, pointer):
    api.upload(M, name="m")
    r = api.post("/v1/evaluate", {"tree": tree})
    assert r.status == 422 and r.json()["pointer"].startswith(pointer), r


SYNTAX = [
    ("", None), ("1 +", None), ("(1", None), ("1)", None), ("a b", None), ("1 < 2 < 3", "&"), ("1 and 2", "&"), ("1 or 2", "|"), ("not 1", "~"), ("sin(", None),
    ("a[", None), ("1 ** ", None), ("'abc", None), ("sin(1,,2)", None), ("1__0", None), ("0x", None), ("a = 1", None), ("lambda: 1", None), ("a if b else c", None), ("sin(x=1, 2)", None),
    ("1/0", None), ("2**10**9", None), ("$", None), ("a.b", None), ("1 // 0", None), ("5 % 0", None), ("1 == 1 == 1", "&"), ("b - b", None), ("{1}", None), ("a;b", None), ("@", None)]


@pytest.mark.parametrize("expr,hint", SYNTAX)
def test_bad_expressions(api, expr, hint):
    for name in "ab":
        api.upload(B, name=name)
    r = api.post("/v1/evaluate", {"expr": expr})
    if expr == "b - b":
        api.fails(422, "dtype_mismatch", r)
        return
    assert r.status == 422 and r.code in ("bad_expression", "literal_range", "bad_index"), r
    assert "offset" in r.json() and r.json()["pointer"] == "/expr"
    if hint:
        assert hint in r.json()["detail"]


ERRORS = [
    ("foo(f32)", "unknown_operation"), ("q + 1", "unknown_name"), ("sin()", "bad_arity"), ("sin(f32, f32)", "bad_arity"), ("where(b, f32)", "bad_arity"),
    ("m + f32", "shape_mismatch"), ("m[5]", "bad_index"), ("m[0, 0, 0]", "bad_index"), ("sum(m, axis=2)", "bad_axis"), ("sum(m, axis=[0, 0])", "bad_axis"), ("sum(m, axis=-3)", "bad_axis"),
    ("i8 + 200", "literal_range"), ("u8 - 256", "literal_range"), ("u8 + -1", "literal_range"), ("i32 ** -1", None), ("c64 < c64", "dtype_mismatch"), ("maximum(c64, c64)", "dtype_mismatch"),
    ("c64 // 2", "dtype_mismatch"), ("c64 % 2", "dtype_mismatch"), ("floor(c64)", "dtype_mismatch"), ("astype(c64, 'float32')", "dtype_mismatch"), ("clip(c64, 0, 1)", "dtype_mismatch"),
    ("-b", "dtype_mismatch"), ("b - b", "dtype_mismatch"), ("b - 1", None), ("f32 & 1", "dtype_mismatch"), ("~f32", "dtype_mismatch"), ("f32 << 1", "dtype_mismatch"),
    ("index(0)", None), ("unravel_index(5, 0)", None), ("f32 + index(1)", "bad_axis"), ("astype(f32, 'float31')", "bad_dtype"), ("max(f32[:0])", "empty_reduction"),
    ("min(f32[:0])", "empty_reduction"), ("shift(f32, [1, 2])", None), ("shift(f32, [1], boundary='bogus')", "bad_boundary"), ("shift(f32, [1], boundary='ghost')", None),
    ("shift(f32, [1], boundary='array')", "bad_boundary"), ("shift(i8, [1], 'constant', 1000)", "literal_range"), ("sum(f32, bogus=1)", None), ("sum(f32, axis=0.5)", None), ("9**99", None), ("shift(f32, 0.5)", None)]


@pytest.mark.parametrize("expr,code", ERRORS)
def test_meaningless_expressions(api, expr, code):
    for name, a in ARRAYS.items():
        if name in expr:
            api.upload(a, name=name)
    r = api.post("/v1/evaluate", {"expr": expr})
    if expr == "b - 1":  # int64 by promotion: NumPy computes it
        api.expect(201, r)
        return
    assert r.status == 422 and (code is None or r.code == code), r
    assert r.json()["pointer"] == "/expr"


@pytest.mark.parametrize("left", NUMPY_DTYPES)
def test_promotion(api, left):
    """Array with array, as NumPy 2; among arrays NumPy 1.24's rules are the same."""
    for d in NUMPY_DTYPES:
        api.create(name=f"x_{d}", shape=[1], dtype=d)
    for right in NUMPY_DTYPES:
        want = np.promote_types(left, right)
        assert api.evaluate(f"x_{left} * x_{right}").dtype == want, right


@pytest.mark.parametrize("other,want", [
    ("bool", "bfloat16"), ("int8", "bfloat16"), ("uint8", "bfloat16"), ("int16", "float32"), ("uint16", "float32"), ("int32", "float64"), ("int64", "float64"),
    ("float16", "float32"), ("float32", "float32"), ("float64", "float64"), ("complex64", "complex64"), ("complex128", "complex128"), ("bfloat16", "bfloat16")])
def test_promotion_of_bfloat16(api, other, want):
    api.create(name="x", shape=[1], dtype="bfloat16")
    api.create(name="y", shape=[1], dtype=other)
    for expr in ("x + y", "y + x"):
        r = api.post("/v1/evaluate", {"expr": expr, "inline": True})
        assert api.expect(200, r).json()["dtype"] == want


@pytest.mark.parametrize("dtype", NUMPY_DTYPES + ["bfloat16"])
def test_weak_scalars(api, dtype):
    """A Python scalar takes the array's type within its kind."""
    api.create(name="x", shape=[1], dtype=dtype)
    kinds = "bool" if dtype == "bool" else "int" if "int" in dtype else "float" if "float" in dtype else "complex"
    for literal, kind in (("True", 0), ("1", 1), ("1.0", 2), ("1j", 3)):
        mine = ["bool", "int", "float", "complex"].index(kinds)
        if kind <= mine:
            want = dtype
        elif kind == 3:
            want = "complex64" if dtype in ("float16", "bfloat16", "float32") else "complex128"
        else:
            want = {1: "int64", 2: "float64"}[kind]
        r = api.post("/v1/evaluate", {"expr": f"x * {literal}", "inline": True})
        assert api.expect(200, r).json()["dtype"] == want, literal
        bind = {"True": True, "1": 1, "1.0": 1.5, "1j": [0, 1]}[literal]
        r = api.post("/v1/evaluate", {"expr": "x * k", "bind": {"k": bind}, "inline": True})
        assert api.expect(200, r).json()["dtype"] == want, literal


@pytest.mark.parametrize("dtype", [d for d in NUMPY_DTYPES if "float" not in d and "complex" not in d])
def test_integers_divide_in_float64(api, dtype):
    api.create(name="x", shape=[3], dtype=dtype, fill=True if dtype == "bool" else 1)
    for expr in ("x / x", "sqrt(x)", "sin(x)", "mean(x)", "exp(x)"):
        assert api.evaluate(expr).dtype == "float64"


SUMS = {"bool": "int64", "int8": "int64", "int16": "int64", "int32": "int64", "int64": "int64", "uint8": "uint64", "uint16": "uint64", "uint32": "uint64", "uint64": "uint64"}


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_types_of_reductions(api, dtype):
    a = np.array([[1, 0, 1], [1, 1, 0]]).astype(dtype)
    api.upload(a, name="x")
    assert api.evaluate("sum(x)").dtype == SUMS.get(dtype, dtype)
    assert api.evaluate("any(x)").dtype == api.evaluate("all(x)").dtype == bool
    if "complex" not in dtype:
        assert api.evaluate("max(x)").dtype == api.evaluate("min(x)").dtype == dtype
    assert api.evaluate("mean(x)").dtype == (dtype if "float" in dtype or "complex" in dtype else "float64")


AXES = [None, 0, 1, 2, -1, [0, 2], [0, 1, 2], [-1, 0], []]


@pytest.mark.parametrize("axis,keepdims", itertools.product(AXES, [False, True]))
def test_reductions(api, axis, keepdims):
    a = np.random.default_rng(0).integers(-50, 50, (3, 4, 5)).astype("float64")
    api.upload(a, name="x")
    where = dict(axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims)
    for name in ("sum", "mean", "max", "min", "any", "all"):
        want = getattr(np, name)(a, **where)
        got = api.evaluate(f"{name}(x, axis={axis}, keepdims={keepdims})")
        assert got.shape == np.shape(want) and got.dtype == np.asarray(want).dtype
        np.testing.assert_allclose(got, want, rtol=1e-15)


def test_reductions_nest(api):
    u = np.random.default_rng(0).standard_normal((20, 30))
    api.upload(u, name="u")
    np.testing.assert_allclose(api.evaluate("(u - mean(u)) / sqrt(mean((u - mean(u))*(u - mean(u))))"), (u - u.mean()) / u.std(), rtol=1e-12)
    np.testing.assert_allclose(api.evaluate("u / sum(u, axis=1, keepdims=True)"), u / u.sum(1, keepdims=True), rtol=1e-12)
    assert api.evaluate("max(sum(u*u, axis=0)) > 0")


def test_reductions_of_nothing(api):
    api.create(name="x", shape=[0, 3])
    assert api.evaluate("sum(x)") == 0 and api.evaluate("all(x)") and not api.evaluate("any(x)")
    assert np.isnan(api.evaluate("mean(x)"))
    assert api.evaluate("sum(x, axis=0)").tolist() == [0, 0, 0]
    assert api.evaluate("max(x, axis=1)").shape == (0,)
    api.fails(422, "empty_reduction", api.post("/v1/evaluate", {"expr": "max(x, axis=0)"}))


def test_nan_propagates(api):
    api.create(name="x", data=[1, "NaN", 3])
    for expr in ("max(x)", "min(x)", "sum(x)"):
        assert np.isnan(api.evaluate(expr))
    np.testing.assert_array_equal(api.evaluate("maximum(x, 2)"), [2, np.nan, 3])
    np.testing.assert_array_equal(api.evaluate("minimum(2, x)"), [1, np.nan, 2])
    assert api.evaluate("x == x").tolist() == [True, False, True]
    assert api.evaluate("x < 5").tolist() == [True, False, True]
    assert api.evaluate("x != x").tolist() == [False, True, False]


def test_a_float32_sum_is_accurate(api):
    n = 3_000_000
    meta = api.create(name="x", shape=[n], dtype="float32", random={"distribution": "uniform", "seed": 1})
    exact = float(api.download(meta["id"]).astype("float64").sum())
    assert abs(float(api.evaluate("sum(x)")) / exact - 1) < 1e-6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_accumulate_in_float32(api, dtype):
    api.create(name="x", shape=[5000], dtype=dtype, fill=1)
    r = api.post("/v1/evaluate", {"expr": "sum(x)"})
    assert abs(api.expect(200, r).json()["value"] - 5000) <= 8
    assert r.json()["dtype"] == dtype
    assert api.post("/v1/evaluate", {"expr": "mean(x)"}).json()["value"] == 1


def test_where_never_leaks_the_other_branch(api):
    api.create(name="x", data=[0.0, 2.0, -1.0])
    np.testing.assert_array_equal(api.evaluate("where(x > 0, 1/x, 0)"), [0, 0.5, 0])
    np.testing.assert_array_equal(api.evaluate("where(x == 0, 5, x % 0 * 0 + 1)")[0], 5)


def test_subnormals_are_kept(api):
    api.create(name="x", data=[1e-40, 3e-45], dtype="float32")
    want = np.array([1e-40, 3e-45], "float32") * np_f32(0.5)
    assert api.evaluate("x * 0.5").tobytes() == want.tobytes()


@pytest.mark.parametrize("shapes", [((3, 1), (1, 4)), ((3, 4), (4,)), ((3, 4), ()), ((1,), (0,)), ((2, 1, 3), (5, 1))])
def test_broadcasting(api, shapes):
    a, b = (np.arange(1.0, 1 + math.prod(s)).reshape(s) for s in shapes)
    api.upload(a, name="a")
    api.upload(b, name="b")
    np.testing.assert_array_equal(api.evaluate("a - b*2"), a - b * 2)


def test_index_and_unravel_index(api):
    api.create(name="x", shape=[3, 4], dtype="int64")
    i, j = np.indices((3, 4))
    np.testing.assert_array_equal(api.evaluate("x + index(0)*10 + index(1)"), i * 10 + j)
    np.testing.assert_array_equal(api.evaluate("x + index(-1)"), j)
    got = api.evaluate("where(x == 0, unravel_index(index(0)*4 + index(1), 1), 0)")
    np.testing.assert_array_equal(got, j)
    assert got.dtype == "int64"
    np.testing.assert_array_equal(api.evaluate("shift(x + index(0), [1, 0], 'wrap')"), np.roll(i, -1, 0))
    np.testing.assert_array_equal(api.evaluate("shift(x, [1, 0]) + index(0)"), i)
    assert api.evaluate("sum(x + index(1))") == j.sum()


@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 5), (6,), (1, 1)])
def test_unravel_index_of_a_shape(api, shape):
    """With a shape it needs no array around it."""
    a = np.random.default_rng(4).random(shape)
    api.upload(a, name="a")
    where = np.unravel_index(a.argmax(), shape)
    for axis, k in enumerate(where):
        for name in (axis, axis - len(shape)):
            assert api.evaluate(f"unravel_index(argmax(a), {name}, {list(shape)})") == k
        assert api.evaluate(f"unravel_index({a.argmax()}, axis={axis}, shape={list(shape)})") == k
        flat = api.evaluate(f"unravel_index(index(0) + 0*take([0], {[0]*a.size}), {axis}, {list(shape)})")
        np.testing.assert_array_equal(flat, np.unravel_index(np.arange(a.size), shape)[axis])
    assert api.evaluate("unravel_index(argmax(a), 0, None) + 0*a", ).max() == where[0]


@pytest.mark.parametrize("call, code", [
    ("unravel_index(3, 2, [2, 3])", "bad_axis"), ("unravel_index(3, 0, [])", "bad_axis"), ("unravel_index(3, 0, [-1])", "bad_shape"),
    ("unravel_index(3, 0, ['a'])", "bad_shape"), ("unravel_index(3.5, 0, [9])", "dtype_mismatch"), ("unravel_index(3, 0, [2**40, 2**40])", "bad_shape"),
    ("unravel_index(3, 0, [9], 1)", "bad_arity")])
def test_unravel_index_of_no_shape(api, call, code):
    api.fails(422, code, api.post("/v1/evaluate", {"expr": call}))


def test_constants_are_shadowed_by_arrays(api):
    api.create(name="pi", data=[3])
    assert api.evaluate("pi + 0").tolist() == [3]
    assert api.evaluate("e + 0", bind={"e": 2}) == 2


def test_nesting_and_size_limits(api):
    api.create(name="u", data=[1.0])
    assert api.evaluate("+".join(["u"] * 5000)).tolist() == [5000]  # 9,999 nodes
    api.fails(422, "expression_too_large", api.post("/v1/evaluate", {"expr": "+".join(["u"] * 5001)}))
    assert api.evaluate("(" * 399 + "u" + ")" * 399).tolist() == [1]
    for deep in ("(" * 401 + "u" + ")" * 401, "-" * 401 + "u", "sin(" * 401 + "u" + ")" * 401, "u" + "**1" * 401):
        api.fails(422, "expression_too_large", api.post("/v1/evaluate", {"expr": deep}))


def test_input_limit(api):
    for i in range(65):
        api.create(name=f"u{i}", data=[1])
    assert api.evaluate("+".join(f"u{i}" for i in range(64))).tolist() == [64]
    api.fails(422, "expression_too_large", api.post("/v1/evaluate", {"expr": "+".join(f"u{i}" for i in range(65))}))


def test_a_body_that_is_too_large(api):
    r = api.request("POST", "/v1/evaluate", b'{"expr":"' + b" " * (17 << 20) + b'1"}', content_type="application/json")
    api.fails(413, "too_large", r)
