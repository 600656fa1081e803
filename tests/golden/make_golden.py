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

import sys

from common import COMPLEX, FLOATS, INTS, open_output, put
from complexes import make_complex
from integers import make_bool, make_ints
from others import make_casts, make_random
from reals import make_floats

open_output(sys.argv[1])
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
