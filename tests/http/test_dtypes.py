"""Every dtype against every other: promotion, casts, operators, reductions, inline text."""
import itertools

import numpy as np
import pytest

from client import DTYPES, NPY, NUMPY_DTYPES, OCTETS

FLOATS = ["float16", "float32", "float64"]
INTS = [d for d in NUMPY_DTYPES if np.dtype(d).kind in "iu"]


def sample(dtype, n=40, seed=0):
    rng = np.random.default_rng([seed, NUMPY_DTYPES.index(dtype)])
    t = np.dtype(dtype)
    if t.kind == "b":
        return rng.random(n) < 0.5
    if t.kind in "iu":
        a = rng.integers(-100 if t.kind == "i" else 0, 100, n).astype(t)
        a[:2] = np.iinfo(t).min, np.iinfo(t).max
        return a
    a = rng.standard_normal(n) * 3
    return (a + 1j * rng.standard_normal(n)).astype(t) if t.kind == "c" else a.astype(t)


@pytest.fixture
def every(api):
    """An array of each dtype, under the dtype's name."""
    data = {d: sample(d) for d in NUMPY_DTYPES}
    return data, {f"v_{d}": api.upload(a)["id"] for d, a in data.items()}


def promoted(a, b):
    return np.promote_types(a, b)


def test_promotion_and_values(api, every):
    data, bind = every
    with np.errstate(all="ignore"):
        for a, b in itertools.product(NUMPY_DTYPES, repeat=2):
            t = promoted(a, b)
            x, y = data[a].astype(t), data[b].astype(t)
            for sign, f in (("+", np.add), ("*", np.multiply)):
                got = api.evaluate(f"v_{a} {sign} v_{b}", bind=bind)
                assert got.dtype == t, (a, sign, b)
                if t.kind == "c" and sign == "*":
                    np.testing.assert_allclose(got, f(x, y), rtol=1e-6 if t == "complex64" else 1e-14)
                else:
                    np.testing.assert_array_equal(got, f(x, y), err_msg=f"{a} {sign} {b}")


def test_comparisons(api, every):
    data, bind = every
    with np.errstate(all="ignore"):
        for a, b in itertools.product(NUMPY_DTYPES, repeat=2):
            got = api.evaluate(f"v_{a} == v_{b}", bind=bind)
            assert got.dtype == bool
            if {a, b} & {"uint64"} and {a, b} & {"int8", "int16", "int32", "int64"}:
                want = [int(p) == int(q) for p, q in zip(data[a], data[b])]  # exactly, not in float64
            else:
                t = promoted(a, b)
                want = data[a].astype(t) == data[b].astype(t)
            np.testing.assert_array_equal(got, want, err_msg=f"{a} == {b}")
    got = api.evaluate("v_uint64 > v_int64", bind=bind)
    want = [int(p) > int(q) for p, q in zip(data["uint64"], data["int64"])]
    np.testing.assert_array_equal(got, want)


def test_true_division(api, every):
    data, bind = every
    with np.errstate(all="ignore"):
        for a in INTS + FLOATS + ["bool"]:
            got = api.evaluate(f"v_{a} / 3", bind=bind)
            t = a if a in FLOATS else "float64"
            assert got.dtype == t
            np.testing.assert_array_equal(got, data[a].astype(t) / np.asarray(3, t))


@pytest.mark.parametrize("dtype", INTS)
def test_integer_division(api, dtype):
    """Python's signs; by zero 0, not a fault."""
    a, b = sample(dtype), sample(dtype, seed=1)
    b[5:15] = 0
    a[2], b[2] = np.iinfo(dtype).min, -1 if np.dtype(dtype).kind == "i" else 1
    api.upload(a, name="a")
    api.upload(b, name="b")
    lo, hi = np.iinfo(dtype).min, np.iinfo(dtype).max

    def wrap(x):
        return (x - lo) % (hi - lo + 1) + lo

    for sign, f in (("//", lambda p, q: p // q if q else 0), ("%", lambda p, q: p % q if q else 0)):
        got = api.evaluate(f"a {sign} b")
        assert got.dtype == dtype
        want = [wrap(f(int(p), int(q))) for p, q in zip(a, b)]
        assert [int(x) for x in got] == want, sign


@pytest.mark.parametrize("dtype", INTS)
def test_shifts_by_any_count(api, dtype):
    width = np.dtype(dtype).itemsize * 8
    counts = [0, 1, width - 1, width, min(width + 1, 127), 100] + ([-1, -5] if np.dtype(dtype).kind == "i" else [])
    a = sample(dtype, len(counts))
    api.upload(a, name="a")
    api.upload(np.array(counts, dtype), name="n")
    lo, hi = np.iinfo(dtype).min, np.iinfo(dtype).max

    def left(x, n):
        return ((x << n) - lo) % (hi - lo + 1) + lo if 0 <= n < width else 0

    def right(x, n):
        return x >> n if 0 <= n < width else (-1 if x < 0 else 0)

    assert [int(x) for x in api.evaluate("a << n")] == [left(int(x), n) for x, n in zip(a, counts)]
    assert [int(x) for x in api.evaluate("a >> n")] == [right(int(x), n) for x, n in zip(a, counts)]


@pytest.mark.parametrize("dtype", INTS)
def test_integer_powers(api, dtype):
    base = [0, 1, 2, 3, 7] + ([-1, -2, -1, 2] if np.dtype(dtype).kind == "i" else [])
    power = [0, 5, 6, 3, 2] + ([-3, -1, -2, -1] if np.dtype(dtype).kind == "i" else [])
    api.upload(np.array(base, dtype), name="a")
    api.upload(np.array(power, dtype), name="n")
    lo, hi = np.iinfo(dtype).min, np.iinfo(dtype).max

    def power_of(b, n):
        if n < 0:
            return {1: 1, -1: 1 if n % 2 == 0 else -1}.get(b, 0)
        return (b**n - lo) % (hi - lo + 1) + lo

    got = api.evaluate("a ** n")
    assert got.dtype == dtype and [int(x) for x in got] == [power_of(b, n) for b, n in zip(base, power)]
    assert api.evaluate("a ** 2").dtype == dtype
    assert api.post("/v1/evaluate", {"expr": "a ** -1"}).status == 422


def test_casts(api, every):
    data, bind = every
    special = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 0.5, -0.5, 2.5, 255.9, -1.0, 3e9, 1e19])
    bind["s"] = api.upload(special)["id"]
    with np.errstate(all="ignore"):
        for a, b in itertools.product(NUMPY_DTYPES, repeat=2):
            r = api.post("/v1/evaluate", {"expr": f"astype(v_{a}, '{b}')", "bind": bind}, accept=NPY)
            kind = np.dtype(b).kind
            if np.dtype(a).kind == "c" and kind not in "cb":
                api.fails(422, "dtype_mismatch", r)
                continue
            if np.dtype(a).kind == "c" and kind == "b" and r.status == 422:
                continue
            got = api.expect(200, r).npy()
            assert got.dtype == b
            if np.dtype(a).kind == "f" and kind in "iu":
                lo, hi = np.iinfo(b).min, np.iinfo(b).max
                want = [min(max(int(x), lo), hi) for x in data[a]]
                assert [int(x) for x in got] == want, (a, b)
            else:
                np.testing.assert_array_equal(got, data[a].astype(b), err_msg=f"{a} to {b}")
        for b in INTS:
            lo, hi = np.iinfo(b).min, np.iinfo(b).max
            want = [0 if np.isnan(x) else lo if x == -np.inf else hi if x == np.inf else min(max(int(x), lo), hi)
                    for x in special]
            assert [int(x) for x in api.evaluate(f"astype(s, '{b}')", bind=bind)] == want, b
        np.testing.assert_array_equal(api.evaluate("astype(s, 'bool')", bind=bind), special != 0)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_reductions(api, dtype):
    a = sample(dtype, 60).reshape(3, 4, 5)
    api.upload(a, name="u")
    kind = np.dtype(dtype).kind
    with np.errstate(all="ignore"):
        for axis in (None, 0, 1, -1, [0, 2], [0, 1, 2]):
            np_axis = tuple(axis) if isinstance(axis, list) else axis
            for keep in (False, True):
                tail = f"u, axis={axis}, keepdims={keep}"
                for name, f in (("any", np.any), ("all", np.all)):
                    got = api.evaluate(f"{name}({tail})")
                    np.testing.assert_array_equal(got, f(a, axis=np_axis, keepdims=keep))
                got = api.evaluate(f"sum({tail})")
                t = {"b": "int64", "i": "int64", "u": "uint64"}.get(kind, dtype)
                wide = a.astype({"f": "float64", "c": "complex128"}.get(kind, t))
                want = wide.sum(axis=np_axis, keepdims=keep)
                assert got.dtype == t and got.shape == want.shape
                if kind in "fc":
                    np.testing.assert_allclose(got, want.astype(t), rtol=2e-3 if dtype == "float16" else 1e-5, atol=1e-3)
                else:
                    np.testing.assert_array_equal(got, want)
                if kind in "iuf":
                    for name, f in (("min", np.min), ("max", np.max)):
                        got = api.evaluate(f"{name}({tail})")
                        assert got.dtype == dtype
                        np.testing.assert_array_equal(got, f(a, axis=np_axis, keepdims=keep))
                got = api.evaluate(f"mean({tail})")
                want = a.astype("complex128" if kind == "c" else "float64").mean(axis=np_axis, keepdims=keep)
                assert got.dtype == (dtype if kind in "fc" else "float64") and got.shape == want.shape
                rtol = 2e-3 if dtype == "float16" else 1e-5
                top = float(np.abs(a.astype("complex128")).max())  # the order of the sum shows beside it
                np.testing.assert_allclose(got, want.astype(got.dtype), rtol=rtol, atol=rtol * top)


def test_bfloat16(api):
    """bfloat16 is computed in float32 and rounded to nearest even after each operation."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0x3000, 0x4800, 500).astype("uint16") for _ in range(2))

    def wide(bits):
        return (bits.astype("uint32") << 16).view("float32")

    def narrow(x):
        u = x.astype("float32").view("uint32").astype("uint64")
        return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype("uint16")

    for name, bits in (("a", a), ("b", b)):
        r = api.request("POST", f"/v1/arrays?dtype=bfloat16&shape=500&name={name}", bits.tobytes(), content_type=OCTETS)
        api.expect(201, r)
    for expr, want in (("a + b", wide(a) + wide(b)), ("a * b", wide(a) * wide(b)), ("a / b", wide(a) / wide(b)),
                       ("sqrt(a)", np.sqrt(wide(a))), ("a * 3", wide(a) * np.float32(3)), ("maximum(a, b)", np.maximum(wide(a), wide(b)))):
        r = api.post("/v1/evaluate", {"expr": expr}, accept=OCTETS)
        np.testing.assert_array_equal(api.expect(200, r).array("uint16", (500,)), narrow(want), err_msg=expr)
    r = api.post("/v1/evaluate", {"expr": "a*b + 1"}, accept=OCTETS)
    np.testing.assert_array_equal(r.array("uint16", (500,)), narrow(wide(narrow(wide(a) * wide(b))) + np.float32(1)))
    np.testing.assert_array_equal(api.evaluate("astype(a, 'float32')"), wide(a))
    api.create(name="h", shape=[500], dtype="float16")
    assert api.evaluate("a + h").dtype == "float32"


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex(api, dtype):
    a, b = sample(dtype, 30), sample(dtype, 30, seed=3)
    api.upload(a, name="a")
    api.upload(b, name="b")
    rtol = 2e-5 if dtype == "complex64" else 1e-12
    real = "float32" if dtype == "complex64" else "float64"
    for expr, want, t in (("a - b", a - b, dtype), ("a / b", a / b, dtype), ("-a", -a, dtype), ("abs(a)", np.abs(a), real),
                          ("real(a)", a.real, real), ("imag(a)", a.imag, real), ("conj(a)", a.conj(), dtype), ("exp(a)", np.exp(a), dtype),
                          ("sqrt(a)", np.sqrt(a), dtype), ("log(a)", np.log(a), dtype), ("sin(a)", np.sin(a), dtype), ("a ** 2", a**2, dtype),
                          ("where(real(a) > 0, a, b)", np.where(a.real > 0, a, b), dtype), ("a * 2j", a * np.asarray(2j, dtype), dtype),
                          ("shift(a, [1], 'wrap')", np.roll(a, -1), dtype), ("a != b", a != b, "bool")):
        got = api.evaluate(expr)
        assert got.dtype == t, expr
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol, err_msg=expr)
    for expr in ("a < b", "maximum(a, b)", "a // b", "a % b", "floor(a)", "max(a)", "clip(a, 0, 1)", "astype(a, 'float64')"):
        api.fails(422, "dtype_mismatch", api.post("/v1/evaluate", {"expr": expr}))


WEAK = [("bool", "1", "int64"), ("bool", "0.5", "float64"), ("bool", "1j", "complex128"), ("int8", "1", "int8"), ("int8", "0.5", "float64"),
        ("uint64", "1", "uint64"), ("uint64", "1.0", "float64"), ("float16", "1", "float16"), ("float16", "1.5", "float16"),
        ("bfloat16", "1.5", "bfloat16"), ("bfloat16", "1j", "complex64"), ("float16", "1j", "complex64"), ("float32", "1e300", "float32"),
        ("float32", "1j", "complex64"), ("float64", "2j", "complex128"), ("complex64", "1.5", "complex64"), ("int32", "True", "int32"),
        ("float32", "pi", "float32"), ("int16", "sqrt(2)", "float64"), ("float32", "sqrt(2)", "float32")]


@pytest.mark.parametrize("dtype,literal,want", WEAK)
def test_weak_literals(api, dtype, literal, want):
    api.create(name="u", shape=[2], dtype=dtype)
    r = api.expect(200, api.post("/v1/evaluate", {"expr": f"u + {literal}", "inline": True}))
    assert r.json()["dtype"] == want


@pytest.mark.parametrize("dtype,literal", [("int8", "128"), ("uint8", "-1"), ("uint8", "256"), ("int64", "9223372036854775808"), ("uint64", "-1")])
def test_literals_that_do_not_fit(api, dtype, literal):
    api.create(name="u", shape=[2], dtype=dtype)
    api.fails(422, "literal_range", api.post("/v1/evaluate", {"expr": f"u + {literal}"}))


WHOLE = [("int8", "300", None), ("int8", "100 + 27", 127), ("int8", "-128", -128), ("int8", "2**63", None), ("uint8", "5", 5),
         ("uint8", "-1", None), ("uint64", "2**64 - 1", 2**64 - 1), ("int64", "2**63", None), ("float16", "300", 300),
         ("float32", "1e300", "Infinity"), ("complex64", "3", [3, 0]), ("int8", "True", 1), ("bool", "True", True)]


@pytest.mark.parametrize("dtype,literal,want", WHOLE)
def test_a_literal_as_the_whole_expression_fits_its_target(api, dtype, literal, want):
    """As np.add(int8 array, 300) raises OverflowError: it is as weak before a target as beside one."""
    api.create(name="u", shape=[2], dtype=dtype)
    asks = [("/v1/evaluate", {"expr": literal, "out": "u"}, "/expr"), ("/v1/explain", {"expr": literal, "out": "u"}, "/expr"),
            ("/v1/evaluate", {"expr": "x", "let": [["x", literal]], "out": "u", "index": "1"}, "/expr"),
            ("/v1/evaluate", {"statements": [f"u = {literal}"]}, "/statements/0"),
            ("/v1/programs?wait=1", {"body": [f"x = {literal}", "u[1:] = x"], "steps": 2}, "/body/0")]
    for path, body, pointer in asks:
        r = api.post(path, body)
        if want is None:
            assert api.fails(422, "literal_range", r)["pointer"] == pointer
            assert api.download("u").tolist() == [0, 0]
        else:
            assert api.expect(200, r)
    if want is not None:
        assert api.get("/v1/arrays/u/data", accept="application/json").json() == [want, want]


def test_a_literal_of_a_higher_kind_is_no_match(api):
    for dtype, literal in (("int8", "0.5"), ("int8", "1.0"), ("bool", "1"), ("float32", "1j"), ("uint64", "nan")):
        api.create(name="u", shape=[2], dtype=dtype)
        api.fails(422, "dtype_mismatch", api.post("/v1/evaluate", {"expr": literal, "out": "u"}))
        api.expect(204, api.delete("/v1/arrays/u"))
    api.create(name="u", shape=[2], dtype="int8")  # astype wraps, as ever
    api.expect(200, api.post("/v1/evaluate", {"expr": "300", "dtype": "int8", "out": "u"}))
    assert api.download("u").tolist() == [44, 44]


@pytest.mark.parametrize("expr,dtype,value", [
    ("1 + 2", "int64", 3), ("1 / 2", "float64", 0.5), ("7 // -2", "int64", -4), ("-7 % 3", "int64", 2), ("2 ** 62", "int64", 2**62),
    ("2 ** 63", "uint64", 2**63), ("2 ** -1", "float64", 0.5), ("1 < 2", "bool", True), ("1j * 1j", "complex128", [-1, 0]),
    ("True + True", "int64", 2), ("sqrt(4)", "float64", 2), ("5 & 3", "int64", 1), ("~5", "int64", -6), ("0.1 + 0.2", "float64", 0.1 + 0.2)])
def test_literals_alone(api, expr, dtype, value):
    r = api.expect(200, api.post("/v1/evaluate", {"expr": expr})).json()
    assert (r["dtype"], r["value"]) == (dtype, value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_in_and_out(api, dtype):
    """From bytes through an expression into bytes, unchanged."""
    size = {"bool": 1, "bfloat16": 2}.get(dtype) or np.dtype(dtype).itemsize
    raw = np.random.default_rng(6).integers(0, 2 if dtype == "bool" else 256, 64 * size).astype("uint8").tobytes()
    r = api.request("POST", f"/v1/arrays?dtype={dtype}&shape=64&name=u", raw, content_type=OCTETS)
    api.expect(201, r)
    got = api.expect(200, api.post("/v1/evaluate", {"expr": "u[::-1][::-1]"}, accept=OCTETS)).body
    assert got == raw
    got = api.expect(200, api.post("/v1/evaluate", {"expr": "where(True, u, u)"}, accept=OCTETS)).body
    assert got == raw
