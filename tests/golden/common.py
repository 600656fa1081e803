"""What the parts of make_golden.py share: types, exact rounding, the output file."""

import math
import random
from fractions import Fraction

import ml_dtypes
import numpy as np
from mpmath import mp, mpf

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

out = None  # the file being written, set by open_output


def open_output(path):
    global out
    out = open(path, "wb")


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


def limits(dtype):
    bits = DT[dtype].itemsize * 8
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype[0] == "i" else (0, (1 << bits) - 1)


def wrap(v, dtype):
    bits = DT[dtype].itemsize * 8
    v &= (1 << bits) - 1
    return v - (1 << bits) if dtype[0] == "i" and v >> (bits - 1) else v


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
