"""Golden tables of float16, bfloat16, float32, float64."""

import math
import random
from fractions import Fraction

import numpy as np
from mpmath import mp, mpc, mpf

from common import DT, INFO, put_input, put_op, round_float
from integers import COMPARE


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
