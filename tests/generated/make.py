"""Cases: programs whose whole fields follow from themselves and their neighbours, programs of all sorts of statements,
and expressions."""
import numpy as np

from grow import DTYPES, MODES, OWN, Grower, call, kind_of, names_in, num, promote, real_of, walk


def fitted(g, tree, dtype, to):
    """The tree, as it may be assigned to an array of that type."""
    if dtype.startswith("weak"):
        return call("astype", ["op", "+", tree, num(0)] if tree[0] != "name" else tree, dtype=to)
    if kind_of(dtype) == "c" and kind_of(to) != "c":
        tree, dtype = call("real", tree), real_of(dtype)
    if dtype == to or (kind_of(to) in "fc" and g.chance(0.8)):
        return tree
    g.sharp |= kind_of(dtype) == "f" and kind_of(to) in "biu"
    return call("astype", tree, dtype=to)


POOL = [1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 40, 64, 65, 70, 96, 100, 127, 128, 129, 130, 160, 192, 256, 257,
        384, 509, 512, 1000, 1024, 2048, 4096, 10007, 65536, 100003, 262144, 1 << 20, 1 << 22]


def a_shape(rng, rank, points):
    """Extents of `points` elements at most, tiny ones and 1 among them; of several ranks the fastest is often a multiple
    of a vector's."""
    least = 1 if rng.random() < 0.2 else 2 if rng.random() < 0.3 else max(2, int(points ** (1 / rank) / 4))
    most = points if rank == 1 else max(4, int(2.5 * points ** (1 / rank)))
    pool = [n for n in POOL if least <= n <= most] or [least]
    shape = [pool[int(rng.integers(len(pool)))] for _ in range(rank)]
    if rng.random() < 0.5 and most >= 8:
        eights = [n for n in pool if n % 8 == 0] or [8]
        shape[-1] = eights[int(rng.integers(len(eights)))]
    while np.prod(shape, dtype="float64") > points:
        k = int(np.argmax(shape))
        smaller = [n for n in POOL if n < shape[k]]
        shape[k] = smaller[-1] if smaller else 1
    return shape


class Maker:
    """What a program and an expression begin with: fields of all sorts."""

    def __init__(self, rng, points, rank=None):
        self.rng = rng
        self.rank = rank or int(rng.choice([1, 2, 2, 3, 3, 3, 4, 4, 5]))
        self.g = Grower(rng, self.rank)
        self.case = {"seed": int(rng.integers(1 << 31)), "shape": a_shape(rng, self.rank, points), "fields": {},
                     "views": {}, "functions": OWN, "bind": {"c": 0.3}, "body": []}
        self.g.numbers.append("c")

    def field(self, name, dtype, how, **more):
        self.case["fields"][name] = {"dtype": dtype, "as": how, **more}

    def full(self, name, dtype, odd=False, ghosts=0):
        """A field of the shape; there can be no more layers of ghosts than elements along an axis."""
        ghosts = min(ghosts, *self.case["shape"])
        self.field(name, dtype, ["full"], **({"odd": True} if odd else {}), **({"ghost": ghosts} if ghosts else {}))
        self.g.full[name] = dtype
        if ghosts:
            self.g.ghosts[name] = ghosts

    def thin(self, name, dtype):
        rng = self.rng
        if rng.random() < 0.6:
            how = ["ones", [bool(rng.random() < 0.5) for _ in range(self.rank)]]
        else:
            how = ["tail", int(rng.integers(0, self.rank + 1))]
        self.field(name, dtype, how)
        self.g.thin[name] = dtype

    def turned(self, name, dtype):
        axes = [int(a) for a in self.rng.permutation(self.rank)]
        self.field(name, dtype, ["turned", axes])
        self.g.turned[name] = (dtype, [axes.index(a) for a in range(self.rank)])

    def line(self, name):
        axis = int(self.rng.integers(self.rank))
        mode = self.g.some(["raise", "wrap", "clip"])
        self.field(name, self.g.some(["int64", "int32"]), ["line", axis], wild=mode != "raise")
        self.g.lines[name] = (axis, mode)

    def view(self, name, dtype):
        """A view that has the shape, of a field that no other name means."""
        base = f"{name}base"
        times, plus, index = self.g.some([(1, 2, "1:-1"), (1, 3, "3:"), (1, 4, "2:-2"), (2, 0, "::2"), (2, 0, "1::2"),
                                          (1, 0, "::-1"), (1, 4, "-1:3:-1")])
        self.field(base, dtype, ["wider", times, plus])
        self.case["views"][name] = [base, ", ".join([index] * self.rank)]
        self.g.full[name] = dtype

    def dtype(self, main):
        return main if self.g.chance(0.6) else self.g.some(DTYPES)

    def options(self, fields):
        """Steps, and what is looked at meanwhile."""
        g, case = self.g, self.case
        case["steps"] = int(g.some([1, 2, 3, 4, 5, 7, 8, 11, 13]))
        real = [n for n in fields if kind_of(g.full[n]) in "iuf"]
        if real and g.chance(0.25):
            x = g.some(real)
            case["record"] = {"r": f"max({x}*1.0) - 1", "m": f"sum({x})"}
            case["record_every"] = int(g.rng.integers(1, 5))
        if real and g.chance(0.15):
            case["until"] = f"max({g.some(real)}*1.0) {g.some('<>')} {g.some(['0', '1', '3'])}"
            case["until_every"] = int(g.rng.integers(1, 4))
        assigned = [s[0] for s in case["body"] if s[0] in g.full]
        if assigned and g.chance(0.1):
            case["snapshot"] = {g.some(assigned): int(g.rng.integers(1, 6))}
        if g.chance(0.1):
            case["stop_on_nan"] = True


def a_system(rng, points, rank=None, dtype=None, written=None, still=None, mode=None, wide=False, alone=None, axis=None,
             kinds=None, plain=False):
    """Whole fields out of themselves, their neighbours, and fields that do not change: what several steps of are
    made in one pass. What is not given is chosen: alone (no neighbours), axis (that all neighbours are along), kinds (what
    fields are: "full", or "views"), plain (of one type, next neighbours, one kernel where that can be)."""
    m = Maker(rng, points, rank or int(rng.choice([1, 1, 2, 2, 2, 3, 3, 3, 4, 5])))
    g, case = m.g, m.case
    if m.rank == 3 and (wide or points >= 200_000 and g.chance(0.4)):  # a thread has several rows of vectors there
        fast, middle = int(g.some([128, 256, 512])), int(g.some([200, 333, 400, 640]))
        case["shape"] = [max(2, min(12, points // (fast * middle))), middle, fast]
    main = dtype or g.some(["float32"] * 6 + ["float64"] * 3 + DTYPES)
    written = written or int(rng.choice([1, 1, 1, 2, 2, 3, 4, 5, 6]))
    still = int(rng.choice([0, 1, 1, 2, 3, 4, 5])) if still is None else still
    kind = kind_of(main)
    fields = ["u", "v", "w", "p", "q", "r"][:written]
    for name in fields:
        (m.view if kinds == "views" else m.full)(name, main if plain or g.chance(0.85) else g.some([d for d in DTYPES if kind_of(d) == kind]))
    for k, name in enumerate(["k", "m", "f", "s", "h"][:still]):
        if kinds is None and k and g.chance(0.3):
            m.thin(name, main)
        elif kinds == "views" or kinds is None and g.chance(0.15):
            m.view(name, main)
        else:
            m.full(name, main if plain or g.chance(0.8) else g.some([d for d in DTYPES if kind_of(d) != "c"]))
    stills = list(["k", "m", "f", "s", "h"][:still])
    one = mode or g.some(MODES)
    modes = {n: one if g.chance(0.7) else g.some(MODES) for n in fields}
    far = 1 if plain else int(g.some([1, 1, 1, 1, 1, 2, 3, 4]))
    alone = mode is None and g.chance(0.15) if alone is None else alone

    def dtype_of(n):
        return g.full.get(n) or g.thin.get(n)

    def around(n):
        named = {"boundary": modes[n], **({"value": 1} if modes[n] == "constant" and g.chance(0.5) else {})}
        x = ["name", n]
        if alone:
            return ["op", "^", x, x] if kind == "b" else ["op", "*", x, x] if kind in "iu" else call("sin", x) \
                if kind_of(dtype_of(n)) == "f" else x
        if kind_of(dtype_of(n)) in "fc" and far == 1 and axis is None and g.chance(0.5):
            return call("laplacian", x, **named)
        terms = []
        for _ in range(int(rng.integers(1, 5))):
            o = [0] * m.rank
            o[int(rng.integers(m.rank)) if axis is None else axis] = int(g.some([-1, 1])) * int(rng.integers(1, far + 1))
            if m.rank == 2 and axis is None and g.chance(0.2):
                o = [int(k) for k in rng.integers(-1, 2, 2)]
            terms.append(call("shift", x, offsets=o, **named) if any(o) else x)
        tree = terms[0]
        for t in terms[1:]:
            tree = ["op", "^" if kind == "b" else "+", tree, t]
        return tree if kind in "bu" else ["op", "-", tree, ["op", "*", num(len(terms)), x]]

    def scaled(tree, by):
        return tree if kind in "biu" else ["op", "*", num(by), tree]

    def with_stills(tree):
        """Coefficients, sources, masks."""
        for n in stills:
            y = ["name", n]
            how = int(rng.integers(4))
            if kind == "b":
                tree = ["op", g.some("&|^"), tree, y if dtype_of(n) == "bool" else ["op", ">", y, num(0)]]
            elif kind_of(dtype_of(n)) == "c" or (how == 0 and kind_of(dtype_of(n)) == "b"):
                tree = ["op", "+", tree, scaled(y, 0.125)]
            elif how == 0:
                tree = call("where", ["op", ">", y, num(0)], tree, num(0) if kind in "iu" else num(0.0))
            elif how == 1:
                tree = ["op", "*", tree, y]
            else:
                tree = ["op", g.some("+-") if kind != "u" else "+", tree, scaled(y, 0.125)]
        return tree

    body = []
    for i, n in enumerate(fields):
        tree = scaled(around(n), g.some([0.1, 0.125, 0.05]))
        if i == 0 or not plain and g.chance(0.4):
            tree = with_stills(tree)
        if written > 1 and (plain or g.chance(0.7)):
            other = ["name", fields[(i + 1) % written] if plain else g.some([x for x in fields if x != n])]
            if not plain and g.chance(0.3):
                other = around(other[1])
            tree = ["op", "^" if kind == "b" else "+", tree, scaled(other, 0.0625)]
        if not plain and g.chance(0.2):
            tree = call("where", g.condition(None, 0), tree, tree if kind == "b" else ["op", "*", tree, num("2")])
        if kind == "b":
            target = ["op", "^", ["name", n], tree]
        else:
            target = ["op", "+", ["name", n], tree]
        body.append([f"n{n}", n, target])
    late = plain or g.chance(0.5)  # all are computed before one is assigned
    statements = []
    for t, n, tree in body:
        to = dtype_of(n)
        full = tree if kind in "fc" and dtype_of(n) == main else call("astype", tree, dtype=to)
        if kind_of(to) != "c" and any(kind_of(dtype_of(x)) == "c" for x in names_in(tree)):
            full = call("astype", call("real", tree), dtype=to)
        if late:
            statements.append([f"t{n}", "", "", full])
        elif g.chance(0.4) and kind in "fc" and full is tree:
            statements.append([n, "", "+", tree[3]])
        else:
            statements.append([n, "", "", full])
    if late:
        statements += [[n, "", "", ["name", f"t{n}"]] for _, n, _ in body]
    if not plain and g.chance(0.15):  # the part within the edge alone
        n, index = fields[0], ", ".join([g.some(["1:-1", "1:-1", "2:-2", "3:-3"])] * m.rank)
        k = next(i for i, s in enumerate(statements) if s[0] in (n, f"t{n}"))
        if statements[k][2] == "":
            statements[k] = [n, index, "", ["part", statements[k][3], index]]
            statements = [s for s in statements if s[:3] != [n, "", ""] or s[3] != ["name", f"t{n}"]]
    if not plain and g.chance(0.15):
        statements.append([fields[0], g.some(["0", "-1"]), "", num("1")])
    if not plain and g.chance(0.2):  # a box anywhere, as a source has
        ends = [sorted(int(k) for k in rng.integers(0, n + 1, 2)) for n in case["shape"]]
        box = ", ".join(":" if g.chance(0.2) else f"{a}:{b}" for a, b in ends)
        statements.append([fields[0], box, "" if kind == "b" else g.some(["", "+"]), num("1")])
    case["body"] = statements
    m.options(fields)
    case["sharp"] = g.sharp or kind in "biu" or any(x[0] == "call" and x[1] == "where" for s in statements
                                                     for x in walk(s[3]))
    return case


def a_region(rng, points):
    """The inside of one or two fields out of parts that lie beside it: regions end up to three from the edges, and fields
    are read as far as that, or less."""
    m = Maker(rng, points, int(rng.choice([1, 2, 2, 3, 3, 3, 4])))
    g, case = m.g, m.case
    main = g.some(["float32", "float32", "float64", "int32"] + DTYPES)
    kind = kind_of(main)
    plus = "^" if kind == "b" else "+"
    fields = ["u", "v"][:int(rng.integers(1, 3))]
    for name in fields + ["k"]:
        m.full(name, main)

    def region():
        ends = rng.integers(1, 4, (2, m.rank)) if g.chance(0.4) else np.full((2, m.rank), rng.integers(1, 4))
        if g.chance(0.2):
            ends[int(rng.integers(2)), int(rng.integers(m.rank))] = 0
        return ends

    def part(name, ends, by):
        """Of the region, moved."""
        index = ", ".join(f"{a + s}:{s - b or ''}" for a, b, s in zip(*ends, by))
        return ["part", ["name", name], index]

    for name in fields:
        ends, still = region(), [0] * m.rank
        far = int(g.some([1, 1, 1, 2, 3]))
        tree = part(g.some(["k"] + fields), ends, still)
        for _ in range(int(rng.integers(1, 4))):
            by, a = list(still), int(rng.integers(m.rank))
            by[a] = int(g.some([-1, 1])) * min(far, *(int(n) for n in ends[:, a]))
            tree = ["op", plus, tree, part(g.some(fields), ends, by)]
        tree = tree if kind in "biu" else ["op", "*", num(0.125), tree]
        index = part(name, ends, still)[2]
        if g.chance(0.5):
            case["body"].append([name, index, plus, tree])
        else:
            case["body"].append([name, index, "", ["op", plus, part(name, ends, still), tree]])
    m.options(fields)
    case["sharp"] = kind in "biu"
    return case


def a_mixture(rng, points):
    """Statements of all sorts: temporaries, parts, views, numbers that are computed."""
    m = Maker(rng, points)
    g, case = m.g, m.case
    main = g.some(["float32", "float32", "float64"] + DTYPES)
    odd = g.chance(0.15)
    fields = ["u", "v", "w", "p", "q", "r"][:int(rng.choice([1, 2, 2, 3, 4, 6]))]
    for k, name in enumerate(fields):
        m.full(name, m.dtype(main), odd=odd and k == 0, ghosts=int(rng.integers(1, 4)) if g.chance(0.1) else 0)
    targets = fields[:max(1, int(rng.integers(1, len(fields) + 1)))]
    if g.chance(0.35):
        m.view("y", m.dtype(main))
        targets += ["y"] if g.chance(0.5) else []
    for name, chance, add in (("k", 0.4, m.thin), ("h", 0.2, m.thin), ("x", 0.25, m.turned)):
        if g.chance(chance):
            add(name, m.dtype(main))
    if g.chance(0.2):
        m.line("l")
    for k in range(int(rng.integers(1, 6))):
        what = rng.random()
        if what < 0.06:
            case["body"].append([f"n{k}", "", "", g.some([num("0.25"), ["op", "*", num("0.1"), ["name", "c"]]])])
            g.numbers.append(f"n{k}")
        elif what < 0.14:
            tree, dtype = g.scalar()
            case["body"].append([f"s{k}", "", "", tree])
            g.single[f"s{k}"] = dtype
        elif what < 0.40:
            tree, dtype = g.grow_whole(int(rng.integers(1, 4)))
            case["body"].append([f"t{k}", "", "", tree])
            g.computed[f"t{k}"] = dtype
        else:
            name = g.some(targets)
            region = g.region() if g.chance(0.35) else None
            tree, dtype = g.grow(region, int(rng.integers(1, 4)))
            to = g.full[name]
            op = g.some({"b": "&|^", "i": "+-*&|^", "u": "+-*&|^"}.get(kind_of(to), "+-*")) if g.chance(0.35) else ""
            tree = fitted(g, tree, dtype, to)
            case["body"].append([name, g.index(region) if region else "", op, tree])
    m.options(targets)
    case["sharp"] = g.sharp or odd
    return case


def an_expression(rng, points):
    """One expression: gathers, scans, ghosts and samples included."""
    m = Maker(rng, points, int(rng.integers(1, 6)))
    g, case = m.g, m.case
    main = g.some(["float32", "float64"] + DTYPES)
    for name in ["u", "v", "w", "p", "q", "r"][:int(rng.choice([1, 2, 2, 3, 4, 6]))]:
        m.full(name, m.dtype(main), odd=g.chance(0.05), ghosts=int(rng.integers(1, 5)) if g.chance(0.2) else 0)
    for name, chance, add in (("k", 0.3, m.thin), ("h", 0.2, m.thin), ("x", 0.35, m.turned), ("y", 0.3, m.view)):
        if g.chance(chance):
            add(name, m.dtype(main))
    if g.chance(0.3):
        m.line("l")
    depth = int(rng.integers(1, 5))
    if g.turned and m.rank > 1 and g.chance(0.5):  # rows against columns, long enough for tiles
        name = g.some(sorted(g.turned))
        long = max(16, int(points ** (1 / m.rank)))
        case["shape"] = [long if n < 16 and k >= m.rank - 2 or g.chance(0.3) else n for k, n in enumerate(case["shape"])]
        while np.prod(case["shape"], dtype="float64") > max(points, 16 ** 2):
            k = int(np.argmax(case["shape"][:-2])) if m.rank > 2 and max(case["shape"][:-2]) > 1 else int(np.argmax(case["shape"]))
            case["shape"][k] = max(1, case["shape"][k] // 2)
        x, s = g.held()
        dtype, axes = g.turned[name]
        tree, dtype = ["op", "&" if promote(s, dtype) == "bool" else "+", x,
                       call("permute_dims", ["name", name], axes=axes)], promote(s, dtype)
        for n in g.ghosts:
            case["fields"][n]["ghost"] = min(case["fields"][n]["ghost"], *case["shape"])
    elif g.chance(0.06):
        m.field("o", g.some(["float32", "float64"]), ["points", int(g.some([1, 5, 64, 1000]))], scale=True)
        tree, dtype = g.held()
        if kind_of(dtype) == "b":
            tree = ["op", "*", tree, num(0.5)]
        tree = call("sample", tree, ["name", "o"], method=g.some(["linear", "nearest"]),
                    boundary=g.some(["clamp", "wrap", "reflect", "symmetric", "constant"]))
        g.sharp = True
    elif g.chance(0.08):
        tree, dtype = g.scanned(None, depth - 1)
    elif g.chance(0.3):
        tree, dtype = g.moved(None, int(g.chance(0.3))) if g.chance(0.5) else g.grow_whole(depth - 1)
        kind = kind_of(dtype)
        names = {"b": ["any", "all", "count_nonzero"], "c": ["any"]}.get(kind, ["max", "min", "argmax", "any", "count_nonzero"])
        if tree[0] == "name":
            names += {"b": [], "c": ["sum", "mean", "prod"]}.get(kind, ["sum", "mean", "prod", "std", "norm", "cumulative_sum", "nansum", "nanmean", "nanmin", "nanmax", "nanvar", "nanstd", "logsumexp"])
        name = g.some(names)
        g.sharp = True
        if name == "cumulative_sum":
            tree = call(name, tree, axis=int(rng.integers(m.rank)))
        else:
            axis = m.rank - 1 if g.chance(0.4) else g.some([None, *range(m.rank)])
            if axis is not None and m.rank > 1 and g.chance(0.3) and not name.startswith("arg"):
                axis = sorted({axis, int(rng.integers(m.rank))})
            tree = call(name, tree, axis=axis)
    elif g.chance(0.2):
        region = g.region()
        tree, dtype = g.grow(region, depth)
        if dtype.startswith("weak"):
            tree, dtype = g.whole()
    else:
        tree, dtype = g.grow_whole(depth)
    case["body"] = [["result", "", "", tree]]
    case["expression"] = True
    case["sharp"] = g.sharp or any(f.get("odd") for f in case["fields"].values())
    return case


