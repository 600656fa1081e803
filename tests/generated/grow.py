"""Random programs and expressions, as data.

A case is a dictionary that JSON can hold:

    seed, shape   what the arrays are made from: `shape` may be changed, and the case keeps its meaning
    fields        name -> {"dtype", "as"}: an array, how its extents follow from `shape` (extents())
    views         name -> [field, index]
    bind          name -> number
    body          statements [name, index, operator, tree]; an index is of tokens that suit any extent
    steps, until, record, …   what a program takes besides

A tree is ["name", n], ["part", tree, index], ["num", text], ["op", sign, a, b], ["sign", "-", a], ["index", axis],
["call", function, [trees], {name: argument}]. text() writes one down as the daemon reads it; model.py
computes it with NumPy. `sharp` says that a case compares, or rounds, what is computed: there a last
digit can become a whole.
"""
import numpy as np

DTYPES = ("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
          " complex64 complex128").split()
INEXACT = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
MODES = ["self", "clamp", "wrap", "reflect", "symmetric", "constant"]
# Indices by what they leave of an axis of n elements, whatever n is: all of these leave the same.
TOKENS = {
    "n": [":", ":", ":", "::-1"],
    "n-1": ["1:", ":-1"],
    "n-2": ["1:-1", "2:", ":-2"],
    "n-4": ["2:-2", "4:", ":-4", "1:-3", "3:-1"],
    "n/2": ["::2", "::-2"],
    "one": ["0", "-1"],
}


def kind_of(dtype):
    return {"bool": "b", "bfloat16": "f"}.get(dtype) or np.dtype(dtype).kind


def promote(a, b):
    """The type that two arrays are computed in; a weak number is "weak b", "weak i" or "weak f"."""
    for one, other in ((a, b), (b, a)):
        if one.startswith("weak"):
            if other.startswith("weak"):
                return max(a, b, key=lambda w: "bif".index(w[-1]))
            if "biufc".index(one[-1]) <= "biufc".index(kind_of(other)):
                return other
            return "int64" if one[-1] == "i" else "float64"
    if a == b:
        return a
    if "bfloat16" in (a, b):
        other = b if a == "bfloat16" else a
        if other == "float16":
            return "float32"
        both = np.promote_types("float16", other).name
        return "bfloat16" if both == "float16" else both
    return np.promote_types(a, b).name


def as_float(dtype):
    """What functions of real numbers give."""
    return dtype if dtype in INEXACT or dtype == "weak f" else "float64"


def real_of(dtype):
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def extents(shape, how):
    """The shape of a field: how is ["full"], ["ones", mask], ["tail", k], ["turned", axes], ["wider", times, plus]
    (of which views take their shape), ["line", axis], ["points", n]."""
    kind = how[0]
    if kind == "ones":
        return [1 if one else n for n, one in zip(shape, how[1])]
    if kind == "tail":
        return list(shape[how[1]:])
    if kind == "turned":
        return [shape[a] for a in how[1]]
    if kind == "wider":
        return [how[1] * n + how[2] for n in shape]
    if kind == "line":
        return [shape[how[1]]]
    if kind == "points":
        return [how[1], len(shape)]
    return list(shape)


def text(tree):
    what = tree[0]
    if what in ("name", "num"):
        return tree[1]
    if what == "part":
        inner = text(tree[1])
        return f"{inner if tree[1][0] == 'name' else f'({inner})'}[{tree[2]}]"
    if what == "op":
        return f"({text(tree[2])} {tree[1]} {text(tree[3])})"
    if what == "sign":
        return f"({tree[1]}{text(tree[2])})"
    if what == "index":
        return f"index({tree[1]})"
    named = [f"{k}={v!r}" for k, v in tree[3].items()]
    return f"{tree[1]}({', '.join([text(x) for x in tree[2]] + named)})"


def statement(name, index, op, tree):
    return f"{name}{f'[{index}]' if index else ''} {op}= {text(tree)}"


def walk(tree):
    """The tree and all trees within it."""
    yield tree
    for x in tree[1:]:
        if isinstance(x, list) and x and isinstance(x[0], str):
            yield from walk(x)
        elif isinstance(x, list):
            for y in x:
                if isinstance(y, list) and y and isinstance(y[0], str):
                    yield from walk(y)


def names_in(tree):
    return {x[1] for x in walk(tree) if x[0] == "name"}


def call(name, *args, **named):
    return ["call", name, list(args), named]


def num(value):
    return ["num", value if isinstance(value, str) else repr(value)]


# Functions of a user's own: name -> parameters, expression.
OWN = {"blend": (["x", "y"], "0.5*x + 0.25*y"), "bump": (["x"], "where(x > 0, x, 0.5)")}


class Grower:
    """Trees over the fields and temporaries that there are."""

    def __init__(self, rng, rank, smooth):
        self.rng, self.rank, self.smooth = rng, rank, smooth
        self.sharp = False
        self.full = {}      # name -> dtype: all of the shape, in memory
        self.computed = {}  # name -> dtype: likewise, a temporary
        self.thin = {}      # name -> dtype: broadcasts against the shape
        self.turned = {}    # name -> (dtype, axes that bring it to the shape)
        self.lines = {}     # name -> (axis, mode): numbers of elements along an axis
        self.ghosts = {}    # name -> layers
        self.single = {}    # name -> dtype: of no axes
        self.numbers = []   # names of weak numbers

    def chance(self, p):
        return self.rng.random() < p

    def some(self, choices):
        return choices[int(self.rng.integers(len(choices)))]

    # A region is a list of TOKENS' keys, one an axis; None: all of the shape.

    def region(self):
        keys = ["n"] * self.rank
        for a in range(self.rank):
            if self.chance(0.5):
                keys[a] = self.some(["n-1", "n-2", "n-2", "n-4", "n/2", "one"])
        return keys

    def index(self, region):
        return ", ".join(self.some(TOKENS[key]) for key in region)

    def number(self):
        if self.numbers and self.chance(0.4):
            return ["name", self.some(self.numbers)], "weak f"
        value = self.some(["1", "2", "0.5", "0.1", "0.25", "True"])
        return num(value), {"True": "weak b"}.get(value) or ("weak f" if "." in value else "weak i")

    def leaf(self, region):
        """An array of the region, or what broadcasts to it."""
        if region is None:
            if self.thin and self.chance(0.2):
                name = self.some(sorted(self.thin))
                return ["name", name], self.thin[name]
            if self.single and self.chance(0.1):
                name = self.some(sorted(self.single))
                return ["name", name], self.single[name]
            return self.whole()
        if self.chance(0.1):
            return self.number()
        x, dtype = self.whole()
        return ["part", x, self.index(region)], dtype

    def whole(self):
        """An array that has all of the shape."""
        if self.turned and self.chance(0.2):
            name = self.some(sorted(self.turned))
            dtype, axes = self.turned[name]
            return call("permute_dims", ["name", name], axes=axes), dtype
        if self.computed and self.chance(0.3):
            name = self.some(sorted(self.computed))
            return ["name", name], self.computed[name]
        name = self.some(sorted(self.full))
        return ["name", name], self.full[name]

    def held(self):
        """A field: what is summed as it is computed may be added in another order."""
        name = self.some(sorted(self.full))
        return ["name", name], self.full[name]

    def grow(self, region, depth):
        if depth <= 0:
            return self.leaf(region)
        if region is not None and self.chance(0.2):
            x, dtype = self.grow_whole(depth - 1)
            return ["part", x, self.index(region)], dtype
        makers = [self.arithmetic] * 7 + [self.choice] * 2 + [self.function] * 2 + [self.extreme, self.cast, self.own]
        if region is None:
            makers += [self.moved] * 6 + [self.placed, self.reduced, self.rearranged, self.gathered, self.scanned]
        return self.some(makers)(region, depth - 1)

    def grow_whole(self, depth):
        """As grow(), and certain to have all of the shape."""
        x, dtype = self.grow(None, depth)
        return self.whole() if dtype.startswith("weak") or not self.covers(x) else (x, dtype)

    def covers(self, tree):
        """Whether the value has all of the shape for certain."""
        what = tree[0]
        if what == "name":
            return tree[1] in self.full or tree[1] in self.computed
        if what == "op":
            return self.covers(tree[2]) or self.covers(tree[3])
        if what == "sign":
            return self.covers(tree[2])
        if what != "call":
            return False
        if tree[1] in ("max", "min", "sum", "mean", "any", "all", "std", "take"):
            return tree[1] == "take" and self.covers(tree[2][0])
        return tree[1] == "permute_dims" or any(self.covers(x) for x in tree[2])

    def arithmetic(self, region, depth):
        a, s = self.grow(region, depth)
        b, t = self.grow(region, depth) if self.chance(0.7) else self.number()
        dtype = promote(s, t)
        kind = dtype[-1] if dtype.startswith("weak") else kind_of(dtype)
        if kind == "b":
            return ["op", self.some("&|^"), a, b], dtype
        if kind in "iu":
            return ["op", self.some("+-*&|^" if not dtype.startswith("weak") else "+-*"), a, b], dtype
        if kind == "f" and self.chance(0.1) and not dtype.startswith("weak"):
            return ["op", "/", a, ["op", "+", ["op", "*", b, b], num("1.5")]], dtype
        if self.chance(0.5):  # stays small
            return ["op", self.some("+-"), ["op", "*", num(0.5), a], ["op", "*", num(0.25), b]], promote(dtype, "weak f")
        return ["op", self.some("+-*"), a, b], dtype

    def condition(self, region, depth):
        x, dtype = self.grow(region, depth)
        if dtype.startswith("weak"):
            x, dtype = self.leaf(region)
            if dtype.startswith("weak"):
                return ["op", "<", x, num(1)]
        if kind_of(dtype) == "b":
            return x
        if kind_of(dtype) == "c":
            x = call("real", x)
        self.sharp |= x[0] != "name"
        return ["op", self.some(["<", ">", ">=", "<="]), x, num(self.some(["0", "0.25", "-0.5"]))]

    def choice(self, region, depth):
        a, s = self.grow(region, depth)
        b, t = self.grow(region, depth)
        return call("where", self.condition(region, min(depth, 1)), a, b), promote(s, t)

    def function(self, region, depth):
        x, dtype = self.grow(region, depth)
        kind = dtype[-1] if dtype.startswith("weak") else kind_of(dtype)
        if kind == "c":
            name = self.some(["conj", "real", "imag", "abs"])
            return call(name, x), dtype if name == "conj" else real_of(dtype)
        if kind == "f":
            name = self.some(["sin", "cos", "tanh", "exp", "sqrt", "atan", "abs"])
            if name == "exp":
                return call("exp", ["sign", "-", ["op", "*", x, x]]), dtype
            if name == "sqrt":
                return call("sqrt", call("abs", x)), dtype
            return call(name, x), dtype
        if kind == "b":
            return ["sign", "~", x], dtype
        return call("abs", x), dtype

    def own(self, region, depth):
        (a, s), (b, t) = self.grow(region, depth), self.leaf(region)
        if self.chance(0.5):
            return call("blend", a, b), promote(promote(s, t), "weak f")
        if s.startswith("weak") or kind_of(s) == "c":
            return a, s
        self.sharp = True
        return call("bump", a), promote(s, "weak f")

    def extreme(self, region, depth):
        (a, s), (b, t) = self.grow(region, depth), self.grow(region, depth)
        dtype = promote(s, t)
        if dtype.startswith("weak") or kind_of(dtype) == "c":
            return a, s
        return call(self.some(["maximum", "minimum"]), a, b), dtype

    def cast(self, region, depth):
        x, dtype = self.grow(region, depth)
        if dtype.startswith("weak") or kind_of(dtype) == "c":
            return x, dtype
        to = self.some(["float64", "float32", "int32", "int64", "float16", "uint8", "bool"])
        self.sharp |= kind_of(dtype) == "f" and kind_of(to) != "f"
        return call("astype", x, dtype=to), to

    def offsets(self, far):
        if self.chance(0.6):  # along one axis
            o = [0] * self.rank
            o[int(self.rng.integers(self.rank))] = int(self.some([-1, 1])) * int(self.rng.integers(1, far + 1))
            return o
        return [int(k) for k in self.rng.integers(-far, far + 1, self.rank)]

    def moved(self, region, depth):
        """Neighbours, of an expression or of a field with ghosts."""
        mode = {"boundary": self.some(MODES)}
        far = int(self.some([1, 1, 1, 2, 3, 4]))
        if self.ghosts and self.chance(0.4):
            name = self.some(sorted(self.ghosts))
            x, dtype, mode, far = ["name", name], self.full[name], {"boundary": "ghost"}, min(self.ghosts[name], far)
        else:
            x, dtype = self.grow_whole(depth)
        if mode["boundary"] == "constant" and self.chance(0.5):
            mode["value"] = 1
        how = int(self.rng.integers(7))
        if how < 3 or kind_of(dtype) == "b":
            return call("shift", x, offsets=self.offsets(far), **mode), dtype
        axis = int(self.rng.integers(self.rank))
        if how == 3:
            return call("laplacian", x, **mode), as_float(dtype)
        if how == 4 and self.rank <= 3 and kind_of(dtype) != "c":
            size = min(2 * far + 1, 5 if self.rank < 3 else 3)
            weights = np.round(self.rng.uniform(-0.3, 0.3, [size] * self.rank), 2)
            return call("correlate", x, weights=weights.tolist(), **mode), as_float(dtype)
        name = self.some(["forward_diff", "back_diff", "central_diff"])
        return call(name, x, axis=axis, **mode), as_float(dtype) if name == "central_diff" else dtype

    def placed(self, region, depth):
        x, dtype = self.grow_whole(depth)
        return (["op", "+", x, ["op", "*", num(0.01), ["index", int(self.rng.integers(self.rank))]]],
                promote(dtype, "float64"))

    def reduced(self, region, depth):
        """Over some axes, which stay."""
        x, dtype = self.held()
        name = self.some(["max", "min", "sum", "mean"])
        if kind_of(dtype) in "bc":
            return self.leaf(region)
        axes = sorted({int(a) for a in self.rng.integers(0, self.rank, 1 + int(self.chance(0.3)))})
        axis = axes[0] if len(axes) == 1 else axes
        to = as_float(dtype) if name == "mean" else dtype
        if name == "sum":
            kind = kind_of(dtype)
            to = {"i": "int64", "u": "uint64"}.get(kind, dtype)
        tree = call(name, x, axis=axis, keepdims=True)
        return (["op", "*", num(0.125), tree] if kind_of(to) == "f" else tree), to

    def scalar(self):
        """A number that is computed from a field."""
        x, dtype = self.held()
        kind = kind_of(dtype)
        if kind == "c":
            return call("max", call("abs", x)), real_of(dtype)
        if kind == "b":
            return call("max", ["op", "*", x, num(0.5)]), "float64"
        name = self.some(["max", "min", "sum", "mean", "std"])
        if name in ("max", "min"):
            return call(name, x), dtype
        if name == "sum":
            return call(name, x), {"i": "int64", "u": "uint64"}.get(kind, dtype)
        return call(name, x), as_float(dtype)

    def rearranged(self, region, depth):
        x, dtype = self.grow_whole(depth)
        axis = int(self.rng.integers(self.rank))
        if self.chance(0.5):
            return call("flip", x, axis=axis), dtype
        return call("roll", x, shift=int(self.rng.integers(-3, 4)), axis=axis), dtype

    def gathered(self, region, depth):
        if not self.lines:
            return self.moved(region, depth)
        name = self.some(sorted(self.lines))
        axis, mode = self.lines[name]
        x, dtype = self.held()
        return call("take", x, ["name", name], axis=axis, mode=mode), dtype

    def scanned(self, region, depth):
        x, dtype = self.held()
        kind = kind_of(dtype)
        if kind in "biu" and self.chance(0.3):
            x, dtype = self.grow_whole(depth)
            if kind_of(dtype) in "fc":
                x, dtype = self.held()
            kind = kind_of(dtype)
        to = {"b": "int64", "i": "int64", "u": "uint64"}.get(kind, dtype)
        tree = call("cumulative_sum", x, axis=int(self.rng.integers(self.rank)))
        return (["op", "*", num(0.01), tree] if kind in "fc" else tree), to


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
        self.g = Grower(rng, self.rank, True)
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


def a_system(rng, points, rank=None, dtype=None, written=None, still=None, mode=None):
    """Whole fields out of themselves, their neighbours, and fields that do not change: what several steps of are
    made in one pass. What is not given is chosen."""
    m = Maker(rng, points, rank or int(rng.choice([1, 1, 2, 2, 2, 3, 3, 3, 4, 5])))
    g, case = m.g, m.case
    main = dtype or g.some(["float32"] * 6 + ["float64"] * 3 + DTYPES)
    written = written or int(rng.choice([1, 1, 1, 2, 2, 3, 4, 5, 6]))
    still = int(rng.choice([0, 1, 1, 2, 3, 4, 5])) if still is None else still
    kind = kind_of(main)
    fields = ["u", "v", "w", "p", "q", "r"][:written]
    for name in fields:
        m.full(name, main if g.chance(0.85) else g.some([d for d in DTYPES if kind_of(d) == kind]))
    for k, name in enumerate(["k", "m", "f", "s", "h"][:still]):
        if k and g.chance(0.3):
            m.thin(name, main)
        elif g.chance(0.15):
            m.view(name, main)
        else:
            m.full(name, main if g.chance(0.8) else g.some([d for d in DTYPES if kind_of(d) != "c"]))
    stills = list(["k", "m", "f", "s", "h"][:still])
    one = mode or g.some(MODES)
    modes = {n: one if g.chance(0.7) else g.some(MODES) for n in fields}
    far = int(g.some([1, 1, 1, 1, 1, 2, 3, 4]))
    alone = mode is None and g.chance(0.15)  # no neighbours

    def dtype_of(n):
        return g.full.get(n) or g.thin.get(n)

    def around(n):
        named = {"boundary": modes[n], **({"value": 1} if modes[n] == "constant" and g.chance(0.5) else {})}
        x = ["name", n]
        if alone:
            return ["op", "^", x, x] if kind == "b" else ["op", "*", x, x] if kind in "iu" else call("sin", x) \
                if kind_of(dtype_of(n)) == "f" else x
        if kind_of(dtype_of(n)) in "fc" and far == 1 and g.chance(0.5):
            return call("laplacian", x, **named)
        terms = []
        for _ in range(int(rng.integers(1, 5))):
            o = [0] * m.rank
            o[int(rng.integers(m.rank))] = int(g.some([-1, 1])) * int(rng.integers(1, far + 1))
            if m.rank == 2 and g.chance(0.2):
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
        if i == 0 or g.chance(0.4):
            tree = with_stills(tree)
        if written > 1 and g.chance(0.7):
            other = ["name", g.some([x for x in fields if x != n])]
            if g.chance(0.3):
                other = around(other[1])
            tree = ["op", "^" if kind == "b" else "+", tree, scaled(other, 0.0625)]
        if g.chance(0.2):
            tree = call("where", g.condition(None, 0), tree, tree if kind == "b" else ["op", "*", tree, num("2")])
        if kind == "b":
            target = ["op", "^", ["name", n], tree]
        else:
            target = ["op", "+", ["name", n], tree]
        body.append([f"n{n}", n, target])
    late = g.chance(0.5)  # all are computed before one is assigned
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
    if g.chance(0.15):  # the part within the edge alone
        n, index = fields[0], ", ".join(["1:-1"] * m.rank)
        k = next(i for i, s in enumerate(statements) if s[0] in (n, f"t{n}"))
        if statements[k][2] == "":
            statements[k] = [n, index, "", ["part", statements[k][3], index]]
            statements = [s for s in statements if s[:3] != [n, "", ""] or s[3] != ["name", f"t{n}"]]
    if g.chance(0.15):
        statements.append([fields[0], g.some(["0", "-1"]), "", num("1")])
    case["body"] = statements
    m.options(fields)
    case["sharp"] = g.sharp or kind in "biu" or any(x[0] == "call" and x[1] == "where" for s in statements
                                                     for x in walk(s[3]))
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
    elif g.chance(0.3):
        tree, dtype = g.moved(None, 0) if g.chance(0.4) else g.grow_whole(depth - 1)
        kind = kind_of(dtype)
        names = {"b": ["any", "all", "count_nonzero"], "c": ["any"]}.get(kind, ["max", "min", "argmax", "any", "count_nonzero"])
        if tree[0] == "name":
            names += {"b": [], "c": ["sum", "mean", "prod"]}.get(kind, ["sum", "mean", "prod", "std", "norm", "cumulative_sum"])
        name = g.some(names)
        g.sharp = True
        if name == "cumulative_sum":
            tree = call(name, tree, axis=int(rng.integers(m.rank)))
        else:
            axis = g.some([None, *range(m.rank)])
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


