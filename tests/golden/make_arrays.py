#!/usr/bin/env python3
"""Makes the golden tables of expressions, arrays.bin: what each must give.

Run by hand when a function is added (needs numpy >= 2, ml_dtypes, mpmath); the result is committed,
so that tests need none of it:  python3 make_arrays.py arrays.bin

Format: records of one text line and raw little-endian bytes, C order, behind it:
  arrays 2
  array <name> <dtype> <rank> <extents…>            an operand of the expressions behind it
  grid <name> <dtype> <rank> <extents…> <ghosts…> <spacings…> <type re im of each face…>
                          the same with ghost cells, filled; <name>_all has them as elements
  expr <dtype> <ulps> <rank> <extents…> <text>      the result; ulps 0: the same bits, any NaN is any NaN
  error <code> <text>                               the expression is refused; no bytes
  end
What the suite asks of them: every function of every dtype, or that it is refused.

Here are the functions that move elements about; the others are in reduced.py (reductions, scans),
grids.py (stencils, boundaries, sampling) and pointwise.py (elementwise operations)."""

import sys

import numpy as np
from common import DT
from grids import put_grids, put_points
from pointwise import put_operations
from reduced import put_reductions
from table import made, open_table, put, put_array, put_expr, rng


def moved(a, b, v, i, j):
    """Functions that only put elements elsewhere: the same bits for every type."""
    yield "flip(a)", np.flip(a)
    yield "flip(b, [0, -1])", np.flip(b, (0, 2))
    yield "permute_dims(b, [2, 0, 1])", b.transpose(2, 0, 1)
    yield "expand_dims(a, [0, -1])", a[None, ..., None]
    yield "squeeze(a[:1], 0)", a[0]
    yield "broadcast_to(a[:, :1], [2, 4, 3])", np.broadcast_to(a[:, :1], (2, 4, 3))
    yield "roll(b, 3)", np.roll(b, 3)
    yield "roll(b, [1, -2], [0, 2])", np.roll(b, (1, -2), (0, 2))
    yield "tril(a)", np.tril(a)
    yield "triu(b, 1)", np.triu(b, 1)
    yield "reshape(a, [2, 10])", a.reshape(2, 10)
    yield "reshape(permute_dims(b, [1, 2, 0]), [-1, 4])", b.transpose(1, 2, 0).reshape(-1, 4)
    yield "sliding_windows(b, [2, 3], [0, 2])", np.lib.stride_tricks.sliding_window_view(b, (2, 3), (0, 2))
    yield "sliding_windows(flip(v), 4)", np.lib.stride_tricks.sliding_window_view(np.flip(v), 4)
    yield "concat([a, flip(a), a[:1]])", np.concatenate([a, np.flip(a), a[:1]])
    yield "concat([a, v], axis=None)", np.concatenate([a, v], None)
    yield "stack([a, flip(a, 0)], 1)", np.stack([a, np.flip(a, 0)], 1)
    yield "repeat(b, 2, 1)", np.repeat(b, 2, 1)
    yield "repeat(a, 3)", np.repeat(a, 3)
    yield "repeat(v, [2, 0, 1, 0, 0, 3, 1])", np.repeat(v, [2, 0, 1, 0, 0, 3, 1])
    yield "tile(a, [2, 1, 3])", np.tile(a, (2, 1, 3))
    yield "take(a, i, axis=0)", np.take(a, i, 0)
    yield "take(flip(b), i, 2)", np.take(np.flip(b), i, 2)
    yield "take(v, [4, 1, -2, 1])", v[[4, 1, -2, 1]]
    yield "take(v, i*9, mode='clip')", np.take(v, i * 9, mode="clip")
    yield "take(v, i*9, mode='wrap')", np.take(v, i * 9, mode="wrap")
    yield "take_along_axis(a, j, 1)", np.take_along_axis(a, j, 1)
    yield "take_along_axis(permute_dims(a, [1, 0]), permute_dims(j, [1, 0]), 0)", np.take_along_axis(a.T, j.T, 0)


np.seterr(all="ignore")
open_table(sys.argv[1])
i = rng.integers(-4, 4, (2, 3)).astype("int16")
j = rng.integers(-5, 5, (4, 2))
put_array("i", "int16", i)
put_array("j", "int64", j)
points = list(put_points())
for dtype in DT:
    a, b, v = made(dtype, 4, 5), made(dtype, 2, 3, 4), made(dtype, 7)
    for name, x in zip("abv", (a, b, v)):
        put_array(name, dtype, x)
    for text, want in moved(a, b, v, i, j):
        put_expr(text, dtype, want)
    put_operations(dtype)
    put_reductions(dtype)
    put_grids(dtype, points)
put("end")
