"""Stencils and sampling with every boundary, from the contract's formulas.

The cells behind the edges are written out first (beyond), then a stencil is a slice of that. All
values, spacings and slopes are small multiples of 1/4, so that every order of operations gives the
same bits in every type."""

import itertools

import numpy as np
from common import COMPLEX, DT, FLOATS, INTS
from table import name_of, put_array, put_error, put_expr, put_grid, rng, saturated, whole

PLAIN = ("self", "clamp", "wrap", "reflect", "symmetric", "constant")
PAD = {"clamp": "edge"}
PERIODIC = [("periodic", 0), ("periodic", 0)]


def kind(x):
    n = name_of(x.dtype)
    return "float" if n in FLOATS else "complex" if n in COMPLEX else "int" if n in INTS else "bool"


def as_float(x):
    return x.astype("float64") if kind(x) in ("int", "bool") else x


# --- what lies beyond the edges ---

def behind(phi, face, k, high, h):
    """Ghost k behind a face of the array whose k-th cell before it is phi."""
    what, v = face
    work = as_float(phi)
    if what == "dirichlet":
        got = work.dtype.type(2 * v) - work
    else:
        step = work.dtype.type((2 * k - 1) * h * v)
        got = work + step if high else work - step
    return saturated(got, phi.dtype)


def filled(x, widths, faces, spacing, edge):
    """x with cells around it: axis 0 over the others' interior, then axis 1 over what is filled by
    then, and on. Behind a face of type none is the edge's cell (edge) or 0."""
    for axis, g in enumerate(widths):
        n, cells = x.shape[axis], np.moveaxis(x, axis, 0)
        low, high = [], []
        for k in range(1, g + 1):
            for side, into in ((0, low), (1, high)):
                face = faces[axis][side]
                if face[0] == "periodic":
                    new = cells[n - k] if side == 0 else cells[k - 1]
                elif face[0] == "none":
                    new = (cells[0] if side == 0 else cells[n - 1]) if edge else np.zeros_like(cells[0])
                else:
                    new = behind(cells[k - 1] if side == 0 else cells[n - k], face, k, side == 1, spacing[axis])
                into.append(new[None])
        x = np.moveaxis(np.concatenate(low[::-1] + [cells] + high), 0, axis)
    return x


def beyond(x, widths, mode, grid):
    """x with `widths` cells around it as a boundary mode has them."""
    if mode in ("array", "ghost"):
        return filled(x, widths, grid["faces"], grid["spacing"], mode == "array")
    i = np.ix_(*[np.pad(np.arange(n), g, mode=PAD.get(mode, mode)) for n, g in zip(x.shape, widths)])
    return x[i]


def shifted(x, offsets, mode, grid=None, value=0):
    widths = [abs(o) for o in offsets]
    at = tuple(slice(g + o, g + o + n) for g, o, n in zip(widths, offsets, x.shape))
    if mode not in ("self", "constant"):
        return beyond(x, widths, mode, grid)[at]
    inside = np.pad(np.ones(x.shape, bool), [(g, g) for g in widths])[at]
    there = np.roll(x, [-o for o in offsets], range(x.ndim))
    return np.where(inside, there, x if mode == "self" else x.dtype.type(value))


def step(x, axis, by, mode, grid, value=0):
    return shifted(x, [by if k == axis % x.ndim else 0 for k in range(x.ndim)], mode, grid, value)


def central(x, axis, h, mode, grid):
    return (as_float(step(x, axis, 1, mode, grid)) - as_float(step(x, axis, -1, mode, grid))) / as_float(x).dtype.type(2 * h)


def laplacian(x, h, mode, grid):
    f = as_float(x)
    return sum((as_float(step(x, k, 1, mode, grid)) - f - f + as_float(step(x, k, -1, mode, grid))) / f.dtype.type(h[k] * h[k])
               for k in range(x.ndim))


def correlate(x, weights, mode, grid=None, value=0):
    w, total = np.array(weights), None
    for j in np.ndindex(w.shape):
        if w[j]:
            term = w[j].astype("int64" if x.dtype == bool else x.dtype) * shifted(x, [i - n // 2 for i, n in zip(j, w.shape)], mode, grid, value)
            total = term if total is None else total + term
    return total


def put_stencils(name, x, mode, grid=None):
    """Every function of neighbours with one boundary mode."""
    b = f"'{mode}'"
    t = name_of(x.dtype)
    reach = [min(2, g) for g in grid["ghost"]] if mode == "ghost" else [2] * x.ndim
    for o in itertools.islice(itertools.product(*[(1, -g, 0) for g in reach]), 0, None, 2):
        put_expr(f"shift({name}, {list(o)}, {b})", t, shifted(x, o, mode, grid))
    if mode == "constant":
        put_expr(f"shift({name}, {[1] * x.ndim}, {b}, 1)", t, shifted(x, [1] * x.ndim, mode, grid, 1))
    for axis in range(x.ndim):
        if t == "bool":
            put_error(f"forward_diff({name}, {axis}, {b})", "dtype_mismatch")
            put_error(f"back_diff({name}, {axis}, {b})", "dtype_mismatch")
        else:
            put_expr(f"forward_diff({name}, {axis}, {b})", t, step(x, axis, 1, mode, grid) - x)
            put_expr(f"back_diff({name}, {axis}, {b})", t, x - step(x, axis, -1, mode, grid))
        f = name_of(as_float(x).dtype)
        put_expr(f"central_diff({name}, {axis}, 0.5, {b})", f, central(x, axis, 0.5, mode, grid))
        if grid:
            put_expr(f"central_diff({name}, {axis}, 'array', {b})", f, central(x, axis, grid["spacing"][axis], mode, grid))
    put_expr(f"laplacian({name}, boundary={b})", f, laplacian(x, [1] * x.ndim, mode, grid))
    h = [0.5, 2, 1][:x.ndim]
    put_expr(f"laplacian({name}, {h}, {b})", f, laplacian(x, h, mode, grid))
    if grid:
        put_expr(f"laplacian({name}, 'array', {b})", f, laplacian(x, grid["spacing"], mode, grid))
    weights = [[1, 2, 3], [0, 4, 0]] if x.ndim == 2 else [1, 0, 3]
    promoted = "int64" if t == "bool" else t
    put_expr(f"correlate({name}, {weights}, {b})", promoted, correlate(x, weights, mode, grid).astype(promoted))


# --- between cells ---

def mix(a, b, w):
    return a if w == 0 else b if w == 1 else a * a.dtype.type(1 - w) + b * a.dtype.type(w)


def folded(c, n, mode):
    """A coordinate brought into 0…n−1; periodic ones into 0…n."""
    if mode == "wrap":
        return np.mod(c, n)
    if mode == "reflect":
        c = np.mod(c, 2 * n - 2) if n > 1 else 0.0
        return 2 * n - 2 - c if c > n - 1 else c
    if mode == "symmetric":
        c = np.mod(c, 2 * n)
        c = 2 * n - 1 - c if c > n - 0.5 else c
    return min(max(c, 0), n - 1)


def sample_line(x, c, mode, grid, axis, nearest, value):
    """x's first axis at coordinate c; nearest: c is whole, rounded."""
    n, faces = len(x), grid["faces"][axis] if mode == "array" else None
    if faces == PERIODIC:
        mode = "wrap"
    if mode == "constant":
        def cell(i):
            return x[i] if 0 <= i < n else np.full_like(x[0], value)
        lo = int(np.floor(c))
        return cell(lo) if nearest else mix(cell(lo), cell(lo + 1), c - lo)
    f = folded(c, n, "clamp" if mode == "array" else mode)
    lo = int(np.floor(f)) % n
    hi = (lo + 1) % n if mode == "wrap" else min(lo + 1, n - 1)
    got = x[lo] if nearest else mix(x[lo], x[hi], f - np.floor(f))
    return got


def sample_face(x, c, grid, axis, nearest):
    """Outside a face that has a condition; None where it has none or c is inside. c: not rounded."""
    n, high = len(x), int(c > 0)
    out = c - (n - 1) if high else -c
    what, v = grid["faces"][axis][high]
    if out <= 0 or what in ("periodic", "none"):
        return None
    edge, t = x[n - 1 if high else 0], x.dtype.type
    ghost = behind(edge, (what, v), 1, high, grid["spacing"][axis])
    if nearest and (out < 0.5 or (out == 0.5 and not high)):
        return edge
    if nearest and out == 0.5:
        return ghost
    if not nearest and out <= 0.5:
        return mix(edge, ghost, out)
    if what == "dirichlet":
        return np.full_like(edge, t(v))
    slope = t(out * grid["spacing"][axis] * v)
    return edge + slope if high else edge - slope


def sampled(x, points, nearest, mode, grid=None, value=0):
    t = as_float(x).dtype
    x = x.astype(np.float32 if t.itemsize == 2 else t)
    got = []
    for p in points:
        r = x
        for axis, c in enumerate(p):
            if np.isnan(p).any():
                r = np.full(r.shape[1:], complex(np.nan, np.nan) if r.dtype.kind == "c" else np.nan, r.dtype)
                continue
            whole_c = np.floor(c) + (c - np.floor(c) >= 0.5) if nearest else c
            face = sample_face(r, c, grid, axis, nearest) if mode == "array" else None
            r = sample_line(r, whole_c, mode, grid, axis, nearest, value) if face is None else face
        got.append(r)
    return np.array(got, x.dtype).astype(t)


def put_samples(name, x, mode, where, grid=None, value=0):
    for method in ("linear", "nearest"):
        want = sampled(x, where, method == "nearest", mode, grid, value)
        more = f", {value}" if mode == "constant" else ""
        points = [f"p{x.ndim}", f"astype(p{x.ndim}, 'float32')"]  # quarters: the same in float32
        for points in points if mode in ("clamp", "array") else points[:1]:
            put_expr(f"sample({name}, {points}, '{method}', '{mode}'{more})", name_of(want.dtype), want, 4)


# --- the tables ---

def small(dtype, *shape):
    return whole(dtype, -4, 5, *shape)


ENDS = [("none", 0), ("dirichlet", 1.5), ("neumann", 0.5)]
PLANES = [
    ([1, 2], [0.5, 1.0], [PERIODIC, [("dirichlet", 1), ("neumann", -0.5)]]),
    ([2, 2], [2.0, 0.5], [[("neumann", 1), ("dirichlet", -2)], [("none", 0), ("dirichlet", 0.5)]]),
    ([3, 2], [1.0, 0.5], [[("dirichlet", 3), ("none", 0)], PERIODIC]),
]


def put_points():
    """Coordinates inside, outside, on and half-way between cells, and NaN."""
    for rank in (1, 2):
        p = np.round(rng.uniform(-3, 7, (16, rank)) * 4) / 4
        p[0, 0], p[1, -1] = np.nan, np.nan
        p[2], p[3], p[4], p[5] = -0.5, 4.5, -0.25, 4.25
        put_array(f"p{rank}", "float64", p)
        yield p


def put_grids(dtype, points):
    line, plane = small(dtype, 5), small(dtype, 4, 3)
    for name, x in (("g", line), ("h", plane)):
        put_array(name, dtype, x)
        for mode in PLAIN:
            put_stencils(name, x, mode)
        f = as_float(x)
        for axis in range(x.ndim):
            want = np.gradient(f.astype("float64") if f.dtype.itemsize < 4 else f, 0.5, axis=axis).astype(f.dtype)
            put_expr(f"gradient({name}, {axis}, 0.5)", name_of(f.dtype), want)
        for mode in ("clamp", "wrap", "reflect", "symmetric", "constant"):
            put_samples(name, x, mode, points[x.ndim - 1], value=1)
    for k, faces in enumerate([[list(p)] for p in itertools.product(ENDS, repeat=2)] + [[PERIODIC]]):
        put_grid_tests(dtype, f"g{k}", line, [2], [0.5], faces, points[0], stencils=k % 4 == 1)
    for k, (ghost, spacing, faces) in enumerate(PLANES):
        put_grid_tests(dtype, f"h{k}", plane, ghost, spacing, faces, points[1], stencils=True)


def put_grid_tests(dtype, name, x, ghost, spacing, faces, points, stencils):
    """The array `name`, its ghosts filled, and name_all, a view of interior and ghosts."""
    grid = {"faces": faces, "spacing": spacing, "ghost": ghost}
    put_grid(name, dtype, x, ghost, spacing, faces)
    put_expr(f"{name}_all", dtype, filled(x, ghost, faces, spacing, False))
    put_expr(f"shift({name}, {ghost}, 'array')", dtype, shifted(x, ghost, "array", grid))
    put_expr(f"shift({name}, {[-g for g in ghost]}, 'array')", dtype, shifted(x, [-g for g in ghost], "array", grid))
    put_samples(name, x, "array", points, grid)
    if stencils:
        for mode in ("array", "ghost"):
            put_stencils(name, x, mode, grid)
