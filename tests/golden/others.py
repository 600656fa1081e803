"""Golden tables of the conversions and the random numbers."""

import math
import random
from fractions import Fraction

import numpy as np
from mpmath import mp, mpf

from common import COMPLEX, DT, FLOATS, INFO, INTS, limits, put, put_input, round_float, wrap
from reals import INF, NAN, float_specials


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
