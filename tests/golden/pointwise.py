"""Every elementwise operation and function of every dtype through the typing rules: a few friendly
values; golden.bin has the unfriendly ones.

Computed by NumPy in extended precision where the type allows it, else by its own loop."""

import re
from pathlib import Path

import numpy as np
from common import COMPLEX, DT, FLOATS, INTS
from mpmath import mp
from table import name_of, put_array, put_error, put_expr, saturated, wide

OPS = re.findall(r'^OP\(\w+, "(\w+)", (\d)', (Path(__file__).parents[2] / "compute/type/op.def").read_text(), re.M)
TENS = {"gamma", "lgamma"}  # units


def each(f):
    return lambda x: np.array([float(f(float(k))) for k in x.ravel()], "longdouble").reshape(x.shape)


OWN = {
    "frac": lambda x: x - np.trunc(x), "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": each(mp.erf), "gamma": each(lambda v: mp.gamma(v) if v > 0 or v % 1 else np.nan if v else np.inf),
    "lgamma": each(lambda v: mp.log(abs(mp.gamma(v))) if v > 0 or v % 1 else np.inf),
    "round": np.round, "real": np.real, "imag": np.imag, "square": lambda x: x * x, "copysign": np.copysign,
    "hypot": np.hypot, "logaddexp": lambda x, y: np.log(np.exp(x) + np.exp(y)), "sign": np.sign,
}
EXACT = set("add subtract multiply floor_divide remainder fmod maximum minimum copysign nextafter bitwise_and bitwise_or"
            " bitwise_xor bitwise_left_shift bitwise_right_shift equal not_equal less less_equal greater greater_equal"
            " logical_and logical_or logical_xor logical_not bitwise_invert abs negative positive sign square ceil floor"
            " trunc round frac isfinite isinf isnan signbit conj real imag".split())
NOT_COMPLEX = set("floor_divide remainder fmod maximum minimum atan2 hypot copysign nextafter logaddexp less less_equal"
                  " greater greater_equal ceil floor trunc frac cbrt erf gamma lgamma signbit".split())
INTEGRAL = set("bitwise_and bitwise_or bitwise_xor bitwise_invert bitwise_left_shift bitwise_right_shift".split())
TO_FLOAT = set("divide atan2 hypot copysign nextafter logaddexp reciprocal frac sqrt rsqrt cbrt exp expm1 log log1p log2"
               " log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf gamma lgamma".split())
AS_INT8 = set("floor_divide remainder fmod pow square signbit bitwise_left_shift bitwise_right_shift".split())
TRUTH = set("logical_and logical_or logical_xor logical_not".split())


def operands(dtype):
    x, y = [1, 2, 3, 5, 7, 0], [3, 2, 1, 0, 2, 1]
    if dtype in FLOATS:
        x, y = [0.25, -0.75, 1.5, 2, -3.25, 0.5], [1.25, 0.5, 2, -1, 1, 0.5]
    elif dtype in COMPLEX:
        x, y = [0.25 + 1j, -0.75 + 0.5j, 1.5 - 2j, 2 + 0.5j, -1.25 - 1j, 0.5 - 0.25j], [1 + 1j, 0.5, 2 - 1j, -1 + 0.5j, 1j, 1]
    elif dtype != "bool" and dtype[0] == "i":
        x = [1, -2, 3, -5, 7, 0]
    return np.array(x).astype(DT[dtype]), np.array(y).astype(DT[dtype])


def refused(op, dtype):
    if dtype == "bool":
        return op in ("subtract", "negative", "positive", "sign")
    if dtype in COMPLEX:
        return op in NOT_COMPLEX or op in INTEGRAL
    return dtype in FLOATS and op in INTEGRAL


def computed(op, *args):
    t = args[0].dtype
    if op in TRUTH:
        return getattr(np, op)(*[a != 0 for a in args])
    if op in ("isfinite", "isinf", "isnan"):
        return getattr(np, op)(args[0])
    if t == bool and op in ("ceil", "floor", "trunc", "round", "abs", "conj", "real"):
        return args[0]
    if t == bool and op == "imag":
        return np.zeros_like(args[0])
    if t == bool and op in AS_INT8:
        args, t = [a.astype("int8") for a in args], np.dtype("int8")
    if op in TO_FLOAT and name_of(t) not in FLOATS + COMPLEX:
        args, t = [a.astype("float64") for a in args], np.dtype("float64")
    if op == "nextafter" or op == "signbit" or t.kind in "biu":
        if op in ("floor_divide", "remainder", "fmod") and t.kind in "iu":
            got = getattr(np, op)(args[0], np.where(args[1] == 0, 1, args[1]))
            return np.where(args[1] == 0, 0, got).astype(t)
        if op in ("real", "imag", "square", "conj"):
            return args[0] * args[0] if op == "square" else args[0] if op != "imag" else np.zeros_like(args[0])
        return getattr(np, op)(*args)
    got = OWN.get(op, getattr(np, op, None))(*map(wide, args))
    if got.dtype == bool:
        return got
    if t.kind == "c":
        return got.astype(t) if got.dtype.kind == "c" else got.astype(DT["float32" if t.itemsize == 8 else "float64"])
    return got.astype("float64").astype(t)


def put_operations(dtype):
    x, y = operands(dtype)
    put_array("x", dtype, x)
    put_array("y", dtype, y)
    for op, n_args in OPS:
        text = f"{op}(x, y)" if n_args == "2" else f"{op}(x)"
        if refused(op, dtype):
            put_error(text, "dtype_mismatch")
            continue
        want = computed(op, x, y) if n_args == "2" else computed(op, x)
        exact = (op in EXACT and dtype not in COMPLEX) or want.dtype.kind in "biu"
        put_expr(text, name_of(want.dtype), want, 0 if exact else 10 if op in TENS else 4)
    put_functions(dtype, x, y)


def put_functions(dtype, x, y):
    real = dtype not in COMPLEX
    zero = x.dtype.type(0)
    put_expr("where(x == y, x, y)", dtype, np.where(x == y, x, y))
    put_expr("where(x, y, x)", dtype, np.where(x != 0, y, x))
    for to in DT:
        text, v = ("y", y) if real or to in COMPLEX else ("real(y)", np.real(y))
        put_expr(f"astype({text}, '{to}')", to, saturated(v if v.dtype.kind in "biuc" else v.astype("float64"), DT[to]))
    clips = {"clip(x, 1, 3)": lambda: np.clip(x, x.dtype.type(1), x.dtype.type(3)), "clip(x, None, y)": lambda: np.minimum(x, y),
             "clip(x, y)": lambda: np.maximum(x, y), "clip(x, y, y)": lambda: np.minimum(np.maximum(x, y), y)}
    for text, f in clips.items():
        if not real:
            put_error(text, "dtype_mismatch")
        elif dtype != "bool" or "1" not in text:
            put_expr(text, dtype, f().astype(DT[dtype]))
    f = DT[dtype] if dtype in FLOATS + COMPLEX else np.dtype("float64")
    a, b = x.astype(f), y.astype(f)
    put_expr("lerp(x, y, 0.5)", name_of(f), a + f.type(0.5) * (b - a), 4)
    one = "True" if dtype == "bool" else "1"
    put_expr(f"addcmul(x, {one}, y, x)", dtype, (x + (y * x).astype(x.dtype)).astype(x.dtype), 0 if real else 4)
    d = np.where(y == zero, 1, y).astype(f)
    put_expr("addcdiv(x, 1, y, where(y == 0, 1, y))", name_of(f), (a + b / d).astype(f), 4)
    i = np.arange(6)
    put_expr("where(index(0) < 3, x, y)", dtype, np.where(i < 3, x, y))
    put_expr("where(unravel_index(index(0), 0) == 2, x, y)", dtype, np.where(i == 2, x, y))
