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

    def __init__(self, rng, rank):
        self.rng, self.rank = rng, rank
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
