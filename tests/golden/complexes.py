"""Golden tables of complex64 and complex128."""

import math
import random

import numpy as np
from mpmath import mp, mpc, mpf

from common import DT, put_input, put_op, round_float
from reals import INF, NAN, NUMPY_NAME


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


INVERSE = ("acos", "acosh", "asin", "asinh", "atan", "atanh")


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
            if name in INVERSE:
                pass  # both parts are fixed, also where one of the argument's is NaN
            elif nan_in or math.isnan(w.real) or math.isnan(w.imag):
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
