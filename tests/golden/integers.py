"""Golden tables of bool and the integers, computed with Python's own."""

import random

import numpy as np

from common import DT, limits, put_input, put_op, wrap


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
