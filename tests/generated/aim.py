"""Cases that are made for one cell of the tables (cells.py), for those that chance seldom reaches."""
import numpy as np

import cells
from grow import DTYPES, MODES, call, kind_of, num
from make import Maker, a_system


def all_cells(backend):
    """Every cell that a form claims to serve, in a fixed order."""
    return cells.Tables().empty(backend)


def a_case(rng, points, form, rank, what):
    """A program or an expression of which one kernel should be of that form and rank and have what the cell is about: a type,
    (fields written, read only), a boundary, or a thread's part."""
    want = dict(dtype=None, written=None, still=None, mode=None, vector=None, rows=None)
    if isinstance(what, tuple):
        want["written"], want["still"] = what
    elif what in DTYPES:
        want["dtype"] = what
    elif what in cells.ANY or what == "none":
        want["mode"] = what
    else:
        elements, rows, still = what.split()
        want.update(vector=elements == "vector", rows=rows == "rows", still=int(still == "still"))
    make = {"tile": a_tile, "window": a_window}.get(form) or (a_fold if form.startswith(("reduce", "scan")) else a_sweep)
    return make(rng, points, form, rank, want)


def reshape(m, points, vector=None):
    """Extents that every form can take: none tiny, the fastest a multiple of a vector or odd, so many elements at most."""
    rng, rank = m.rng, m.rank
    vector = rng.random() < 0.6 if vector is None else vector
    each = max(6, min(int((points / 40) ** (1 / max(rank - 1, 1))), 70))
    shape = [int(rng.integers(5, each + 1)) for _ in range(rank)]
    shape[-1] = int(m.g.some([64, 128, 256] if vector else [37, 67, 129]))
    if rank == 1:
        shape[-1] = int(m.g.some([4096, 65536] if vector else [4099, 65537]))
    m.case["shape"] = shape


def a_sweep(rng, points, form, rank, want):
    """flat, rows, stencil, steps: whole fields out of whole fields."""
    mode, vector, rows = want["mode"], want["vector"], want["rows"]
    one = mode if mode in MODES else None
    axis = rank - 1 if rows is False and rank > 1 else None
    if form == "stencil" and rank > 3 and axis is None:  # threads share neighbours along the last three axes
        axis = rank - int(rng.integers(1, 4))
    views = form == "rows" or form == "stencil" and rank == 1 and vector is False
    m = None
    case = a_system(rng, points, rank=rank, dtype=want["dtype"], written=want["written"] or (2 if mode == "mixed" else None),
                    still=want["still"], mode=one, alone=form in ("flat", "rows"), axis=axis,
                    kinds="views" if views else "full", wide=bool(rows) and form == "steps",
                    plain=form in ("stencil", "steps") and rng.random() < (0.8 if want["written"] or vector is not None else 0.3))
    if mode == "ghost":
        return a_ghost(rng, points, rank)
    for key in ("record", "record_every", "until", "until_every", "snapshot", "stop_on_nan"):
        case.pop(key, None)
    case["steps"] = 8 if form == "steps" else 1
    if not (rows and form == "steps"):
        m = Maker(rng, points, rank)
        reshape(m, points, vector)
        case["shape"] = m.case["shape"]
    return case


def a_ghost(rng, points, rank):
    m = Maker(rng, points, rank)
    reshape(m, points)
    m.full("u", m.g.some(["float32", "float64"]), ghosts=2)
    o = [0] * rank
    o[int(rng.integers(rank))] = 1
    return finished(m, ["op", "-", call("shift", ["name", "u"], offsets=o, boundary="ghost"), ["name", "u"]])


def finished(m, tree):
    m.case["body"] = [["result", "", "", tree]]
    m.case["expression"] = m.case["sharp"] = True
    return m.case


def a_tile(rng, points, form, rank, want):
    m = Maker(rng, points, rank)
    dtype = want["dtype"] or m.g.some(["float32", "float64"])
    long = max(16, min(int(points ** (1 / rank)), 256))
    m.case["shape"] = [long] * rank
    m.turned("x", dtype)
    axes = list(range(rank))
    axes[-2:] = axes[:-3:-1]  # the last two against each other
    m.case["fields"]["x"]["as"] = ["turned", axes]
    tree = call("permute_dims", ["name", "x"], axes=axes)
    if want["still"] != 1:
        m.full("u", dtype)
        tree = ["op", "^" if kind_of(dtype) == "b" else "+", ["name", "u"], tree]
    elif kind_of(dtype) == "b":
        tree = ["sign", "~", tree]
    else:
        tree = ["op", "+", tree, num("1")]
    return finished(m, tree)


def a_window(rng, points, form, rank, want):
    """A sum of many neighbours along the last axes, and what it is added to."""
    m = Maker(rng, points, rank)
    g, mode = m.g, want["mode"]
    reshape(m, points)
    dtype = want["dtype"] or g.some(DTYPES)
    m.full("u", dtype)
    deep = min(rank, int(rng.integers(2, 4))) if rank > 1 else 1
    extents = [1] * (rank - deep) + [int(rng.integers(*{1: (13, 30), 2: (4, 8), 3: (3, 5)}[deep])) for _ in range(deep)]
    weights = np.round(rng.uniform(0.1, 0.9, extents), 2).tolist()
    modes = list(rng.permutation([x for x in MODES if x != "ghost"])) if mode == "mixed" else [mode or g.some(["wrap", "self"])]
    named = {"boundary": str(modes[0]), **({"value": 2} if modes[0] == "constant" else {})}
    tree = call("correlate", ["name", "u"], weights=weights, **named)
    if mode == "mixed":
        offsets = [0] * (rank - 1) + [1]
        other = next(str(x) for x in modes if x not in (modes[0], "constant"))
        tree = ["op", "+", tree, call("shift", ["name", "u"], offsets=offsets, boundary=other)]
    for i in range((want["still"] or 1) - 1):
        m.full(f"k{i}", m.dtype(dtype))
        tree = ["op", "+", tree, ["name", f"k{i}"]]
    return finished(m, tree)


def a_fold(rng, points, form, rank, want):
    """Reductions and scans along all, the fastest or the slowest axis."""
    m = Maker(rng, points, rank)
    g, still, mode = m.g, want["still"], want["mode"]
    reshape(m, points)
    if form == "reduce-outer":
        m.case["shape"] = [40, *m.case["shape"][1:]]
    dtype = want["dtype"] or g.some(["float32", "float64", "int32"])
    kind = kind_of(dtype)
    m.full("u", dtype, ghosts=2 if mode == "ghost" else 0)
    x = ["name", "u"]
    axis = {"all": None, "inner": rank - 1, "outer": 0}[form.split("-")[1]]
    if form.startswith("scan"):
        tree = call("cumulative_sum", x, axis=axis)
        if still != 0:
            return finished(m, tree)
        m.case.update(body=[["u", "", "", tree if kind not in "b" else call("astype", tree, dtype=dtype)]], steps=1, sharp=True)
        if kind in "iu":
            m.case["body"][0][3] = call("astype", tree, dtype=dtype)
        return m.case
    if mode not in (None, "none"):
        o = [0] * rank
        o[int(rng.integers(rank))] = 1
        modes = ["clamp", "wrap"] if mode == "mixed" else [mode]
        terms = [call("shift", x, offsets=[k * (1 - 2 * i) for k in o], boundary=one) for i, one in enumerate(modes)]
        x = terms[0] if len(terms) == 1 else ["op", "+", *terms]
        x = ["op", "-", x, ["name", "u"]]
    elif still == 2:
        m.full("v", dtype)
        x = ["op", "&" if kind == "b" else "-", x, ["name", "v"]]
    name = g.some(["any", "all"] if kind == "b" else ["any", "count_nonzero"] if kind == "c" else ["max", "min"])
    return finished(m, call(name, x, axis=axis))
