#!/usr/bin/env python3
"""Makes the golden tables, golden.bin: what every operation must give.

Run by hand when an operation is added (needs numpy >= 2, ml_dtypes, mpmath); the result is
committed, so that tests need none of it:  python3 make_golden.py golden.bin

Integers are computed with Python's, exact float operations with NumPy, elementary functions with
mpmath at 200 bits and rounded, special values with NumPy. Where the contract and NumPy differ the
contract wins; such places say CONTRACT.

Format: records of one text line and raw little-endian bytes behind it:
  golden 1
  input <set> <dtype> <n>                 n values
  op <name> <dtype> <set> [<set>] <result dtype> <n> <tolerance>    n expected values
  cast <from> <to> <set> <n> <tolerance>
  random <distribution> <dtype> <seed> <low> <high> <set> <n> <tolerance>
  end
Tolerances: "exact" (bits, any NaN is any NaN), "ulp:N", "scaled:N" (N units in the last place of
the largest of result and operands), "complex:N" (each part within N ulp of |result|)."""

import math
import random
import sys
from fractions import Fraction

import ml_dtypes
import mpmath
import numpy as np
from mpmath import mp, mpf, mpc

mp.prec = 200
np.seterr(all="ignore")
random.seed(20240601)

BF16 = np.dtype(ml_dtypes.bfloat16)
DT = {n: np.dtype(n) for n in
      "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 "
      "complex64 complex128".split()}
DT["bfloat16"] = BF16
INTS = [n for n in DT if n.startswith(("int", "uint"))]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]

out = open(sys.argv[1], "wb")


def put(line, *arrays):
    out.write(line.encode() + b"\n")
    for a in arrays:
        out.write(np.ascontiguousarray(a).tobytes())


def put_input(name, dtype, values):
    a = np.array(values, dtype=DT[dtype])
    put(f"input {name} {dtype} {len(a)}", a)
    return a


def put_op(op, dtype, sets, result, values, tol):
    a = np.array(values, dtype=DT[result]) if not isinstance(values, np.ndarray) else values
    assert a.dtype == DT[result], (op, dtype, a.dtype, result)
    put(f"op {op} {dtype} {' '.join(sets)} {result} {len(a)} {tol}", a)


# ---- integers -------------------------------------------------------------------------------

def limits(dtype):
    bits = DT[dtype].itemsize * 8
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype[0] == "i" else (0, (1 << bits) - 1)


def wrap(v, dtype):
    bits = DT[dtype].itemsize * 8
    v &= (1 << bits) - 1
    return v - (1 << bits) if dtype[0] == "i" and v >> (bits - 1) else v


def int_pow(a, b, dtype):
    if b < 0:  # CONTRACT: 0 except base +-1 (NumPy refuses)
        return 1 if a == 1 else (-1 if b & 1 else 1) if a == -1 else 0
    return pow(a, b, 1 << 64)


def int_fmod(a, b):  # C's: the sign of a
    return 0 if b == 0 else (abs(a) % abs(b)) * (-1 if a < 0 else 1)


def int_shift_left(a, b, dtype):
    return 0 if b < 0 or b >= DT[dtype].itemsize * 8 else a << b


def int_shift_right(a, b, dtype):
    if b < 0 or b >= DT[dtype].itemsize * 8:  # CONTRACT: as if shifted out
        return -1 if a < 0 else 0
    return a >> b


INT_BINARY = {
    "add": lambda a, b, t: a + b,
    "subtract": lambda a, b, t: a - b,
    "multiply": lambda a, b, t: a * b,
    "floor_divide": lambda a, b, t: 0 if b == 0 else a // b,  # CONTRACT: 0, never a fault
    "remainder": lambda a, b, t: 0 if b == 0 else a % b,
    "fmod": lambda a, b, t: int_fmod(a, b),
    "pow": int_pow,
    "maximum": lambda a, b, t: max(a, b),
    "minimum": lambda a, b, t: min(a, b),
    "bitwise_and": lambda a, b, t: a & b,
    "bitwise_or": lambda a, b, t: a | b,
    "bitwise_xor": lambda a, b, t: a ^ b,
    "bitwise_left_shift": int_shift_left,
    "bitwise_right_shift": int_shift_right,
}
COMPARE = {
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
}
INT_UNARY = {
    "bitwise_invert": lambda a: ~a,
    "abs": abs,
    "negative": lambda a: -a,
    "sign": lambda a: (a > 0) - (a < 0),
    "square": lambda a: a * a,
    "imag": lambda a: 0,
}
for same in "positive ceil floor trunc round conj real".split():
    INT_UNARY[same] = lambda a: a
BOOL_TESTS = {"isfinite": True, "isinf": False, "isnan": False}


def make_ints(dtype):
    lo, hi = limits(dtype)
    bits = DT[dtype].itemsize * 8
    edges = sorted({lo, lo + 1, -1, 0, 1, 2, 3, 7, bits - 1, bits, bits + 1, hi // 2, hi - 1, hi,
                    lo // 3} & set(range(lo, hi + 1)) if bits == 8 else
                   {v for v in (lo, lo + 1, lo // 3, -bits, -3, -2, -1, 0, 1, 2, 3, 7, 10, bits - 1,
                                bits, bits + 1, hi // 2, hi // 3, hi - 1, hi) if lo <= v <= hi})
    def rnd():
        v = random.getrandbits(random.randint(1, bits))
        return wrap(v if lo == 0 or random.random() < 0.5 else -v, dtype)
    one = edges + [rnd() for _ in range(70)]
    pairs = [(a, b) for a in edges for b in edges]
    pairs += [(rnd(), rnd()) for _ in range(80)]
    pairs += [(rnd(), random.randint(0, bits)) for _ in range(40)]
    u, x, y = f"{dtype}.u", f"{dtype}.x", f"{dtype}.y"
    put_input(u, dtype, one)
    put_input(x, dtype, [p[0] for p in pairs])
    put_input(y, dtype, [p[1] for p in pairs])
    for name, f in INT_BINARY.items():
        put_op(name, dtype, [x, y], dtype, [wrap(int(f(a, b, dtype)), dtype) for a, b in pairs],
               "exact")
    for name, f in COMPARE.items():
        put_op(name, dtype, [x, y], "bool", [f(a, b) for a, b in pairs], "exact")
    for name, f in INT_UNARY.items():
        put_op(name, dtype, [u], dtype, [wrap(f(a), dtype) for a in one], "exact")
    for name, v in BOOL_TESTS.items():
        put_op(name, dtype, [u], "bool", [v] * len(one), "exact")
    put_op("signbit", dtype, [u], "bool", [a < 0 for a in one], "exact")


def make_bool():
    pairs = [(a, b) for a in (False, True) for b in (False, True)] * 5
    put_input("bool.u", "bool", [False, True] * 10)
    put_input("bool.x", "bool", [p[0] for p in pairs])
    put_input("bool.y", "bool", [p[1] for p in pairs])
    x, y = (np.array([p[i] for p in pairs]) for i in (0, 1))
    u = np.array([False, True] * 10)
    for name in ("add multiply maximum minimum bitwise_and bitwise_or bitwise_xor logical_and "
                 "logical_or logical_xor").split():
        put_op(name, "bool", ["bool.x", "bool.y"], "bool", getattr(np, name)(x, y), "exact")
    for name, f in COMPARE.items():
        put_op(name, "bool", ["bool.x", "bool.y"], "bool", f(x, y), "exact")
    for name in ("bitwise_invert", "logical_not"):
        put_op(name, "bool", ["bool.u"], "bool", ~u, "exact")
    for name in "abs ceil floor trunc round conj real".split():
        put_op(name, "bool", ["bool.u"], "bool", u, "exact")
    put_op("imag", "bool", ["bool.u"], "bool", u & False, "exact")
    for name, v in BOOL_TESTS.items():
        put_op(name, "bool", ["bool.u"], "bool", [v] * len(u), "exact")


# ---- real floats ----------------------------------------------------------------------------

INFO = {"float16": (11, -14, 15), "bfloat16": (8, -126, 127), "float32": (24, -126, 127),
        "float64": (53, -1022, 1023)}


def round_float(v, dtype):
    """An exact value (Fraction, int or finite mpf) as the nearest float, ties to even."""
    p, emin, emax = INFO[dtype]
    if isinstance(v, mpf):
        s, man, exp, _ = v._mpf_
        if man == 0:
            return 0.0
        if exp + man.bit_length() > 5000:
            return -math.inf if s else math.inf
        if exp + man.bit_length() < -5000:
            return -0.0 if s else 0.0
        v = Fraction(int(man)) * Fraction(2) ** int(exp) * (-1 if s else 1)
    v = Fraction(v)
    if v == 0:
        return 0.0
    sign, a = (-1, -v) if v < 0 else (1, v)
    e = a.numerator.bit_length() - a.denominator.bit_length()
    e -= a < Fraction(2) ** e
    q = max(e, emin) - (p - 1)
    scaled = a / Fraction(2) ** q
    n = scaled.numerator // scaled.denominator
    rest = scaled - n
    n += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and n & 1)
    if n * Fraction(2) ** q >= Fraction(2) ** (emax + 1):
        return sign * math.inf
    return math.copysign(math.ldexp(n, q), sign)


def float_specials(dtype):
    p, emin, emax = INFO[dtype]
    top = math.ldexp(2 - 2.0 ** (1 - p), emax)
    tiny, sub = 2.0 ** emin, 2.0 ** (emin - p + 1)
    return [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, top, -top, tiny, -tiny, sub, -sub,
            tiny - sub, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1.5, -2.5]


def float_values(dtype, count):
    """Values over the whole range and where functions have their troubles."""
    p, emin, emax = INFO[dtype]
    vals = float_specials(dtype)
    for c in (1.0, 0.5, math.pi / 2, math.pi, 3 * math.pi / 2, 2 * math.pi, 10 * math.pi, math.e,
              math.log(2), 1e-4, 22.0, 88.7, -103.9, 700.0, 709.7, -745.0, 125.0, 39000.0, 1e5, 1e10,
              1e15, 1e22, 171.6, 35.04, -0.99, -1.5, -2.7, -10.3, -33.5, 4.0, 5.0, 10.0, 0.25, 1e-8,
              15.0, 127.0, -1.0, 3.5, 1e-20, 9.0, 19.0, 8.6, -87.3, 0.7071, 1.4616, 2.0, -2.457,
              -2.747, 65504.0, 1e300, 88.9, 89.2,
              89.35, 89.42, 89.6, 104.5, 100.0, 710.1, 710.4, 710.5, 740.0, 746.0, 1e19, 1e30, 1e38,
              3e38, 1e154, 1e160, 1e307, 1.7e308, 1e-3, 1e-2, 0.1, 50.0, 1000.0, 2e-38, 1e-40, 30.0, 2.0 ** 24, 2.0 ** 53, 2.0 ** 31, 2.0 ** 63, 2.0 ** 64):
        vals += [c, c * (1 + 2.0 ** (1 - p)), c * (1 - 2.0 ** -p), -c]
    for _ in range(count):
        vals.append(random.choice((-1, 1)) * random.uniform(1, 2) *
                    2.0 ** random.randint(emin - p + 2, emax - 1))
    for _ in range(count):
        vals.append(random.uniform(-1, 1))
        vals.append(random.uniform(-10, 10))
        vals.append(random.uniform(-120, 120))
    a = np.array(vals, dtype=np.float64).astype(DT[dtype])
    return np.concatenate([a[:22], a[22:][np.isfinite(a[22:].astype(np.float64))]])


def float_pairs(dtype, count):
    s = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, 2.0, -3.0, 3.0,
         float_specials(dtype)[7], float_specials(dtype)[9], float_specials(dtype)[11], -2.5]
    _, emin, emax = INFO[dtype]
    pairs = [(a, b) for a in s for b in s]
    for _ in range(count):
        pairs.append((random.uniform(-10, 10), random.uniform(-10, 10)))
        pairs.append((random.uniform(0, 4), random.uniform(-30, 30)))
        e = random.randint(emin, emax - 1)
        pairs.append((random.uniform(-2, 2) * 2.0 ** e,
                      random.uniform(-2, 2) * 2.0 ** max(emin, min(emax - 1, e +
                                                                  random.randint(-30, 30)))))
        pairs.append((float(random.randint(-100, 100)), float(random.randint(-10, 10))))
        v = random.uniform(-5, 5)
        pairs.append((v, v * (1 + random.uniform(-1, 1) * 1e-3)))
    a = np.array(pairs, dtype=np.float64).astype(DT[dtype])
    return a[:, 0].copy(), a[:, 1].copy()


def np_max(a, b):  # CONTRACT: -0 < +0; NumPy leaves equal zeros to the hardware
    r = np.maximum(a, b)
    both = (a == 0) & (b == 0)
    r[both] = np.where(np.signbit(a[both]) & np.signbit(b[both]), -0.0, 0.0).astype(r.dtype)
    return r


def np_min(a, b):
    return -np_max(-a, -b)


EXACT_BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "floor_divide": np.floor_divide, "remainder": np.remainder, "fmod": np.fmod,
    "maximum": np_max, "minimum": np_min, "copysign": np.copysign,
}
EXACT_UNARY = {
    "abs": np.abs, "negative": np.negative, "positive": np.positive, "sign": np.sign,
    "square": np.square, "reciprocal": np.reciprocal, "ceil": np.ceil, "floor": np.floor,
    "trunc": np.trunc, "round": np.rint, "frac": lambda a: a - np.trunc(a), "sqrt": np.sqrt,
    "conj": np.conjugate, "real": lambda a: a.real.copy(), "imag": lambda a: np.zeros_like(a),
}
TESTS = {"isfinite": np.isfinite, "isinf": np.isinf, "isnan": np.isnan, "signbit": np.signbit}


def big(f, limit=1e5):
    """exp-like functions: beyond the limit the result is decided without mpmath's patience."""
    return lambda x: f(mpf(limit) if x > limit else mpf(-limit) if x < -limit else x)


def mp_gamma(x):
    if x == mp.floor(x) and x <= 0:
        return None
    if x > 400:
        return mpf(2) ** 6000
    if x < -400:
        return (-1 if int(mp.floor(x)) & 1 else 1) * mpf(2) ** -6000
    return mp.gamma(x)


def mp_lgamma(x):
    if x == mp.floor(x) and x <= 0:
        return mpf(2) ** 6000
    if x > 0:
        return mp.loggamma(x).real if x > 100 else mp.log(mp.gamma(x))
    with mp.workprec(400):
        return mp.log(mp.pi / abs(x * mp.sin(mp.pi * x))) - mp.loggamma(-x).real


def mp_sigmoid(x):
    return 1 / (1 + mp.exp(-max(min(x, mpf(10000)), mpf(-10000))))


def real_or_none(f):
    def g(x):
        v = f(x)
        return v if not isinstance(v, mpc) or v.imag == 0 else None
    return g


MP_UNARY = {  # function of a finite mpf, None where it is NaN
    "rsqrt": lambda x: None if x < 0 else 1 / mp.sqrt(x),
    "cbrt": lambda x: mp.cbrt(x) if x >= 0 else -mp.cbrt(-x),
    "exp": big(mp.exp), "expm1": big(mp.expm1),
    "log": lambda x: None if x < 0 else mp.log(x),
    "log1p": lambda x: None if x < -1 else mp.log1p(x),
    "log2": lambda x: None if x < 0 else mp.log(x) / mp.log(2),
    "log10": lambda x: None if x < 0 else mp.log(x) / mp.log(10),
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan,
    "asin": lambda x: None if abs(x) > 1 else mp.asin(x),
    "acos": lambda x: None if abs(x) > 1 else mp.acos(x),
    "atan": mp.atan,
    "sinh": big(mp.sinh), "cosh": big(mp.cosh), "tanh": big(mp.tanh),
    "asinh": lambda x: mp.asinh(abs(x)) * (-1 if x < 0 else 1),
    "acosh": lambda x: None if x < 1 else mp.acosh(x),
    "atanh": lambda x: None if abs(x) > 1 else mp.atanh(x),
    "sigmoid": mp_sigmoid, "erf": mp.erf, "gamma": mp_gamma, "lgamma": mp_lgamma,
}
NAN, INF = math.nan, math.inf
SPECIAL = {  # at -inf, -0, +0, +inf where no NumPy function says it
    "rsqrt": (NAN, -INF, INF, 0.0), "sigmoid": (0.0, 0.5, 0.5, 1.0), "erf": (-1.0, -0.0, 0.0, 1.0),
    "gamma": (NAN, -INF, INF, INF), "lgamma": (INF, INF, INF, INF),
}
POLES = {"log": (0.0, -INF), "log2": (0.0, -INF), "log10": (0.0, -INF), "log1p": (-1.0, -INF),
         "atanh": (1.0, INF)}
NUMPY_NAME = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
              "acosh": "arccosh", "atanh": "arctanh", "atan2": "arctan2"}


def mp_apply(name, a, dtype):
    f, res = MP_UNARY[name], []
    for v in a.astype(np.float64):
        v = float(v)
        if math.isfinite(v) and v != 0 and name in POLES and v == POLES[name][0]:
            r = POLES[name][1]
        elif math.isfinite(v) and v != 0 and name == "atanh" and v == -1:
            r = -INF
        elif math.isfinite(v) and v != 0:
            m = mpf(v)
            if abs(v) < 2.0 ** -60 and name in ("exp", "cosh", "cos", "sigmoid"):
                m = mpf(math.copysign(2.0 ** -60, v))
            with mp.workprec(1400 if name in ("expm1", "log1p", "asinh", "sinh") and abs(v) < 1e-5
                             else 200):
                r = f(m)
            r = NAN if r is None else round_float(mpf(r), dtype)
            if r == 0 and v < 0 and name in ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh",
                                             "atanh", "expm1", "log1p", "erf", "cbrt"):
                r = -0.0
        elif math.isnan(v):
            r = NAN
        elif name in SPECIAL:
            r = SPECIAL[name][(0 if v < 0 else 3) if v else (1 if math.copysign(1, v) < 0 else 2)]
        else:
            r = float(getattr(np, NUMPY_NAME.get(name, name))(np.float64(v)))
        res.append(r)
    return np.array(res, dtype=np.float64).astype(DT[dtype])


def mp_pow(a, b):
    if a < 0 and b != mp.floor(b):
        return None
    size = b * mp.log(abs(a)) / mp.log(2)
    sign = -1 if a < 0 and int(b) & 1 else 1
    if abs(size) > 5000:
        return sign * mpf(2) ** (6000 if size > 0 else -6000)
    return sign * mp.exp(b * mp.log(abs(a)))


MP_BINARY = {
    "pow": mp_pow,
    "atan2": lambda a, b: mp.atan2(a, b),
    "hypot": lambda a, b: mp.sqrt(a * a + b * b),
    "logaddexp": lambda a, b: max(a, b) + mp.log1p(mp.exp(max(-abs(a - b), mpf(-1e4)))),
}


def mp_apply2(name, a, b, dtype):
    res = []
    for v, w in zip(a.astype(np.float64), b.astype(np.float64)):
        v, w = float(v), float(w)
        if math.isfinite(v) and math.isfinite(w) and v != 0 and w != 0:
            with mp.workprec(2400 if name == "hypot" else 300):
                r = MP_BINARY[name](mpf(v), mpf(w))
            r = NAN if r is None else round_float(mpf(r), dtype)
            if r == 0 and name == "atan2" and v < 0:
                r = -0.0
            if r == 0 and name == "pow" and v < 0 and w == math.floor(w) and int(w) & 1:
                r = -0.0
        else:
            # arrays: NumPy computes powers with scalar exponents by other functions
            r = float(getattr(np, NUMPY_NAME.get(name, name))(np.array([v, v]),
                                                              np.array([w, w]))[0])
            if math.isfinite(v) and math.isfinite(w) and math.isfinite(r) and r != 0:
                r = round_float(Fraction(r), dtype)
        res.append(r)
    return np.array(res, dtype=np.float64).astype(DT[dtype])


def half_next(a, b, dtype):
    """nextafter among the halves themselves."""
    res = []
    for v, w in zip(a, b):
        f, g = float(v), float(w)
        bits = int(np.array(v).view(np.uint16))
        if math.isnan(f) or math.isnan(g):
            res.append(0x7e00 if dtype == "float16" else 0x7fc0)
        elif f == g:
            res.append(int(np.array(w).view(np.uint16)))
        elif f == 0:
            res.append(0x8001 if g < 0 else 1)
        else:
            res.append(bits + (1 if (f < g) == (f > 0) else -1))
    return np.array(res, dtype=np.uint16).view(DT[dtype])


def make_floats(dtype):
    half = dtype in ("float16", "bfloat16")
    u = float_values(dtype, 15 if half else 25)
    x, y = float_pairs(dtype, 10 if half else 30)
    un, xn, yn = f"{dtype}.u", f"{dtype}.x", f"{dtype}.y"
    put_input(un, dtype, u)
    put_input(xn, dtype, x)
    put_input(yn, dtype, y)
    # halves are computed in float32 and each result rounded
    wide = (lambda a: a.astype(np.float32)) if half else (lambda a: a)
    narrow = lambda a: a.astype(DT[dtype])
    for name, f in EXACT_BINARY.items():
        put_op(name, dtype, [xn, yn], dtype, narrow(f(wide(x), wide(y))), "exact")
    put_op("nextafter", dtype, [xn, yn], dtype,
           half_next(x, y, dtype) if half else np.nextafter(x, y), "exact")
    for name, f in COMPARE.items():
        put_op(name, dtype, [xn, yn], "bool", f(wide(x), wide(y)), "exact")
    for name, f in EXACT_UNARY.items():
        put_op(name, dtype, [un], dtype, narrow(f(wide(u))), "exact")
    for name, f in TESTS.items():
        put_op(name, dtype, [un], "bool", f(wide(u)), "exact")
    for name in MP_UNARY:
        tol = "ulp:1" if half else "ulp:10" if name in ("erf", "gamma", "lgamma") else "ulp:4"
        put_op(name, dtype, [un], dtype, mp_apply(name, u, dtype), tol)
    for name in MP_BINARY:
        # near zero logaddexp is the difference of its operands
        tol = "scaled:4" if name == "logaddexp" else "ulp:1" if half else "ulp:4"
        put_op(name, dtype, [xn, yn], dtype, mp_apply2(name, x, y, dtype), tol)


# ---- complex --------------------------------------------------------------------------------

def cround(z, dtype):
    part = "float32" if dtype == "complex64" else "float64"
    z = mpc(z)
    return complex(round_float(z.real, part), round_float(z.imag, part))


def mp_csigmoid(z):
    return 1 / (1 + mp.exp(-z))


MP_COMPLEX = {
    "exp": mp.exp, "expm1": mp.expm1, "log": mp.log, "log1p": lambda z: mp.log(1 + z),
    "log2": lambda z: mp.log(z) / mp.log(2), "log10": lambda z: mp.log(z) / mp.log(10),
    "sqrt": mp.sqrt, "rsqrt": lambda z: 1 / mp.sqrt(z), "reciprocal": lambda z: 1 / z,
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "asin": mp.asin, "acos": mp.acos,
    "atan": mp.atan, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "asinh": mp.asinh,
    "acosh": mp.acosh, "atanh": mp.atanh, "sigmoid": mp_csigmoid,
    "sign": lambda z: z / abs(z),
}


def by_parts(re, im):
    z = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
    z.real, z.imag = re, im
    return z


def times(a, b):  # CONTRACT: nothing contracted; NumPy's own loops may use fused operations
    return by_parts(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def complex_values(dtype):
    """No zero parts: those lie on branch cuts and come in the special set."""
    part = DT["float32" if dtype == "complex64" else "float64"].type
    vals = []
    for _ in range(60):
        vals.append(complex(random.uniform(-3, 3), random.uniform(-3, 3)))
    for _ in range(30):
        vals.append(complex(random.uniform(-20, 20), random.uniform(-20, 20)))
    for _ in range(30):
        vals.append(complex(random.uniform(-1, 1) * 2.0 ** random.randint(-60, 12),
                            random.uniform(-1, 1) * 2.0 ** random.randint(-60, 12)))
    for _ in range(30):
        t, d = random.uniform(0, 2 * math.pi), random.choice((0, 1e-3, 1e-6, -1e-6))
        vals.append(complex(math.cos(t) * (1 + d), math.sin(t) * (1 + d)))
    for re in (1.0, -1.0, 0.5, 1e-10, 30.0, -0.999):
        for im in (1e-20, 1e-6, -1e-3, 1.0, math.pi / 2, -1e6):
            vals.append(complex(re, im))
    lim = 120 if dtype == "complex64" else 1000
    for _ in range(20):
        vals.append(complex(random.uniform(-1, 1) * 2.0 ** random.randint(-lim, lim),
                            random.uniform(-1, 1) * 2.0 ** random.randint(-lim, lim)))
    return [complex(part(v.real), part(v.imag)) for v in vals]


def complex_specials():
    parts = [0.0, -0.0, 1.0, -2.0, INF, -INF, NAN]
    return [complex(a, b) for a in parts for b in parts]


def mp_complex(name, z, dtype):
    if name in ("exp", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sigmoid"):
        m = max(abs(z.real), abs(z.imag))
        if m > 2.0 ** 25:
            return None
        if abs(z.real) > 5000 or abs(z.imag) > 5000:
            z = complex(max(-5000, min(5000, z.real)), z.imag) if name in (
                "exp", "expm1", "sinh", "cosh", "tanh", "sigmoid") else complex(
                    z.real, max(-5000, min(5000, z.imag)))
    with mp.workprec(2600):
        return cround(MP_COMPLEX[name](mpc(z.real, z.imag)), dtype)


def make_complex(dtype):
    part = "float32" if dtype == "complex64" else "float64"
    t = DT[dtype].type
    zs = complex_values(dtype)
    # complex64 is computed in float64 and rounded
    tol = "complex:1" if dtype == "complex64" else "complex:16"
    un, xn, yn, sn = (f"{dtype}.{k}" for k in "uxys")
    u = put_input(un, dtype, zs)
    xs = [random.choice(zs) for _ in range(150)]
    ys = [random.choice(zs[:120]) for _ in range(150)]
    xs[:10] = ys[:10]
    x, y = put_input(xn, dtype, xs), put_input(yn, dtype, ys)
    s = put_input(sn, dtype, complex_specials())
    for name in ("add", "subtract"):
        put_op(name, dtype, [xn, yn], dtype, getattr(np, name)(x, y), "exact")
    put_op("multiply", dtype, [xn, yn], dtype, times(x, y), "exact")
    for name in ("equal", "not_equal"):
        put_op(name, dtype, [xn, yn], "bool", getattr(np, name)(x, y), "exact")
        put_op(name, dtype, [sn, sn], "bool", getattr(np, name)(s, s), "exact")
    with mp.workprec(2600):
        quotients = [cround(mpc(complex(a)) / mpc(complex(b)), dtype)
                     for a, b in zip(x, y)]
    put_op("divide", dtype, [xn, yn], dtype, quotients,
           "complex:1" if dtype == "complex64" else "complex:4")
    for name, f in (("negative", np.negative), ("positive", np.positive), ("conj", np.conjugate),
                    ("square", lambda a: times(a, a)),
                    ("round", lambda a: by_parts(np.rint(a.real), np.rint(a.imag)))):
        put_op(name, dtype, [un], dtype, f(u), "exact")
    for name, f in (("isfinite", np.isfinite), ("isinf", np.isinf), ("isnan", np.isnan)):
        put_op(name, dtype, [sn], "bool", f(s), "exact")
    put_op("real", dtype, [un], part, u.real.copy(), "exact")
    put_op("imag", dtype, [un], part, u.imag.copy(), "exact")
    with mp.workprec(2600):
        put_op("abs", dtype, [un], part, [round_float(mp.sqrt(mpf(v.real) ** 2 + mpf(v.imag) ** 2),
                                                      part) for v in zs], "ulp:4")
    put_op("abs", dtype, [sn], part, np.abs(s), "ulp:4")
    put_op("sign", dtype, [sn], dtype, np.sign(s), tol)
    for name in MP_COMPLEX:
        want = [mp_complex(name, z, dtype) for z in zs]
        keep = [i for i, w in enumerate(want) if w is not None]
        set_name = un
        if len(keep) != len(zs):
            set_name = f"{un}.{name}"
            put_input(set_name, dtype, [zs[i] for i in keep])
        put_op(name, dtype, [set_name], dtype, [want[i] for i in keep], tol)
    # powers with moderate exponents: the loss grows with |b log a|
    a = [z for z in zs[:120] if abs(z) > 1e-3][:90]
    b = [complex(random.uniform(-4, 4), random.uniform(-4, 4)) for _ in a]
    b[:20] = [complex(k - 10, 0) for k in range(20)]
    pa, pb = put_input(f"{dtype}.pa", dtype, a), put_input(f"{dtype}.pb", dtype, b)
    put_op("pow", dtype, [f"{dtype}.pa", f"{dtype}.pb"], dtype,
           [cround(mp.power(mpc(complex(v)), mpc(complex(w))), dtype) for v, w in zip(pa, pb)],
           "complex:1" if dtype == "complex64" else "complex:64")
    make_complex_specials(dtype, s, sn)


def make_complex_specials(dtype, s, sn):
    """Infinities, NaNs, zeros and branch cuts: what C99 Annex G (and so NumPy) fixes. A sign the
    standard leaves open, or a case where NumPy's platform differs from it, is left out."""
    def same(v, w):
        return (v == w and math.copysign(1, v) == math.copysign(1, w)) or (v != v and w != w)
    for name in ("exp", "log", "sqrt", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "acos",
                 "sin", "cos", "tan", "asin", "atan", "expm1", "log1p", "log2", "log10"):
        f = getattr(np, NUMPY_NAME.get(name, name))
        keep, want = [], []
        for z in s:
            w = complex(f(np.complex128(z)))
            nan_in = math.isnan(z.real) or math.isnan(z.imag)
            if nan_in or math.isnan(w.real) or math.isnan(w.imag):
                # only whether it is NaN at all, and that only where both parts agree
                if not (math.isnan(w.real) and math.isnan(w.imag)):
                    continue
            if name in ("expm1", "log1p", "log2", "log10") and not (
                    math.isfinite(z.real) and math.isfinite(z.imag)):
                continue
            keep.append(z)
            want.append(w)
        put_input(f"{sn}.{name}", dtype, keep)
        put_op(name, dtype, [f"{sn}.{name}"], dtype, want, "complex:16" if dtype == "complex128"
               else "complex:1")


# ---- casts ----------------------------------------------------------------------------------

def real_to(v, to):
    """A Python int or float as the target type's value, by the contract's rules."""
    if to == "bool":
        return v != 0  # NaN is true
    if to in INTS:
        if isinstance(v, float):  # CONTRACT: truncates, saturates, NaN is 0
            if v != v:
                return 0
            lo, hi = limits(to)
            return lo if v <= lo else hi if v >= hi else int(v)
        return wrap(v, to)
    if to in COMPLEX:
        return complex(real_to(v, "float32" if to == "complex64" else "float64"), 0)
    if isinstance(v, float) and (not math.isfinite(v) or v == 0):
        return v
    if isinstance(v, int) and to == "bfloat16":  # as ml_dtypes
        v = float(np.float32(v))
    return round_float(Fraction(v), to)


def make_casts():
    for src in DT:
        if src == "bool":
            vals = [False, True] * 5
        elif src in INTS:
            lo, hi = limits(src)
            vals = {lo, lo + 1, -1, 0, 1, 2, 127, 128, 255, 256, 257, 2049, 2051, 4097, 65519, 65520,
                    65535, 65536, hi - 1, hi, hi // 3, 2 ** 24 + 1, 2 ** 24 + 3, 2 ** 31, 2 ** 32,
                    2 ** 53 + 1, 2 ** 53 + 3, 2 ** 62 + 2 ** 54 + 1, 2 ** 62 + 2 ** 54,
                    2 ** 62 + 3 * 2 ** 54, 2 ** 63, 2 ** 40 + 2 ** 32, 2 ** 40 + 2 ** 32 + 1}
            vals = sorted(v for v in vals if lo <= v <= hi)
            vals += [random.randint(lo, hi) >> random.randint(0, DT[src].itemsize * 8 - 1)
                     for _ in range(40)]
        elif src in FLOATS:
            p = INFO[src][0]
            vals = float_specials(src)
            for c in (126.5, 127.0, 128.0, 255.0, 255.9, 256.0, 32767.5, 32768.0, 65504.0, 65519.0,
                      65519.99, 65520.0, 65535.5, 65536.0, 2.0 ** 31 - 1, 2.0 ** 31, 2.0 ** 32,
                      2.0 ** 63, 2.0 ** 64, 1e10, 1e20, 0.999, 1 + 2.0 ** -8, 1 + 2.0 ** -9,
                      1 + 2.0 ** -11, 1 + 3 * 2.0 ** -11, 1 + 2.0 ** -12, 1 + 2.0 ** -11 + 2.0 ** -30,
                      1 + 2.0 ** -8 + 2.0 ** -40, 2.0 ** -24, 2.0 ** -25, 1.5 * 2.0 ** -25,
                      2.0 ** -25 * (1 + 2.0 ** -30), 2.0 ** -14, 2.0 ** -14 - 2.0 ** -25, 1e-5,
                      3.3e-6, 6e-8, 2.0 ** -133, 2.0 ** -134, 2.0 ** -134 * 1.5, 1e-40, 3.39e38,
                      3.4028235e38, 3.4028236e38, 1e-310, 2.0 ** -149, 2.0 ** -150, 1e39, 1e300):
                vals += [c, -c, c * (1 + 2.0 ** (1 - p)), c * (1 - 2.0 ** -p)]
            for _ in range(60):
                vals.append(random.choice((-1, 1)) * random.uniform(1, 2) * 2.0 **
                            random.randint(max(INFO[src][1], -30), min(INFO[src][2] - 1, 66)))
            for _ in range(30):
                vals.append(random.uniform(-1, 1) * 2.0 ** random.randint(-148, -100))
        else:
            part = [0.0, -0.0, 1.0, -1.5, 300.7, -1e10, 1e39 if src == "complex128" else 1e38, INF,
                    -INF, NAN, 2.0 ** -25 * 1.5, 65519.99, 1 + 2.0 ** -8 + 2.0 ** -20]
            vals = [complex(a, b) for a in part for b in (0.0, -0.0, 1.0, NAN, INF, -7.25)]
        a = put_input(f"cast.{src}", src, vals)
        for to in DT:
            if src in COMPLEX:
                if to == "bool":
                    r = (a.real != 0) | (a.imag != 0)
                elif to in COMPLEX:
                    r = a.astype(DT[to])
                else:
                    r = [real_to(float(v), to) for v in a.real]
            elif src in FLOATS:
                r = [real_to(float(v), to) for v in a]
            else:
                r = [real_to(int(v), to) for v in a]
            put(f"cast {src} {to} cast.{src} {len(a)} exact", np.array(r, dtype=DT[to]))


# ---- random numbers -------------------------------------------------------------------------

def philox(counter, key):
    c, (k0, k1), m = list(counter), key, 0xffffffff
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & m, (p0 >> 32) ^ c[3] ^ k1, p0 & m]
        k0, k1 = (k0 + 0x9E3779B9) & m, (k1 + 0xBB67AE85) & m
    return c


# Random123's published known-answer vectors (kat_vectors)
assert philox([0] * 4, (0, 0)) == [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]
assert philox([0xffffffff] * 4, (0xffffffff,) * 2) == [0x408f276d, 0x41c83b0e, 0xa20bc7c6,
                                                       0x6d5451fd]


def make_random():
    index = list(range(64)) + [2 ** 32 - 1, 2 ** 32, 2 ** 40 + 7, 2 ** 62]
    put_input("random.index", "int64", index)
    for seed in (0, 42, 2 ** 63 + 12345):
        w = [philox([i & 0xffffffff, i >> 32, 0, 0], (seed & 0xffffffff, seed >> 32)) for i in index]
        u = [(a << 32 | b, c << 32 | d) for a, b, c, d in w]
        n = len(index)
        put(f"random uniform float32 {seed} 0 1 random.index {n} exact",
            np.array([(a[0] >> 8) * 2.0 ** -24 for a in w], dtype=np.float32))
        put(f"random uniform float64 {seed} 0 1 random.index {n} exact",
            np.array([(a >> 11) * 2.0 ** -53 for a, _ in u]))
        for t, lo, hi in (("int64", -10, 10), ("int64", -2 ** 63, 2 ** 63 - 1), ("uint64", 0, 6),
                          ("uint64", 1, 2 ** 64 - 1), ("int64", 5, 6)):
            put(f"random integers {t} {seed} {lo} {hi} random.index {n} exact",
                np.array([lo + ((a * (hi - lo)) >> 64) for a, _ in u], dtype=DT[t]))
        z = []
        for a, b in u:
            p, q = (mpf((v >> 11) + 1) / mpf(2) ** 53 for v in (a, b))
            z.append(mp.sqrt(-2 * mp.log(p)) * mp.cospi(2 * q))
        for t in ("float32", "float64"):
            put(f"random normal {t} {seed} 0 1 random.index {n} ulp:4",
                np.array([round_float(v, t) for v in z]).astype(DT[t]))


put("golden 1")
make_bool()
for d in INTS:
    make_ints(d)
for d in FLOATS:
    make_floats(d)
for d in COMPLEX:
    make_complex(d)
make_casts()
make_random()
put("end")
