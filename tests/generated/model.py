"""What a case gives, by NumPy: real numbers in float64, complex ones in complex128, integers and bools in their own
types. An array with ghosts is computed with them, and `Ghosted` keeps both."""
import numpy as np

import grow


class Ghosted:
    """An array of interior and ghosts; only `shift` and its like with boundary="ghost" see the ghosts."""

    def __init__(self, whole, layers):
        self.whole, self.layers = whole, layers

    @property
    def interior(self):
        return self.whole[tuple(slice(self.layers, n - self.layers) for n in self.whole.shape)]


class Place:
    """index(axis), before it meets an array."""

    def __init__(self, axis, times=1.0):
        self.axis, self.times = axis, times

    def like(self, x):
        n = x.shape[self.axis]
        return (np.arange(n) * self.times).reshape([n if a == self.axis else 1 for a in range(x.ndim)])


def inside_kind(x):
    return "b" if isinstance(x, bool) else "i" if isinstance(x, int) else "f" if isinstance(x, float) else x.dtype.kind


def together(a, b):
    """Two operands in the type that they are computed in."""
    kinds = inside_kind(a), inside_kind(b)
    top = max(kinds, key="biufc".index)
    if top == "c":
        return np.asarray(a, "complex128"), np.asarray(b, "complex128")
    if top == "f":
        return np.asarray(a, "float64"), np.asarray(b, "float64")
    weak = [isinstance(x, (bool, int)) for x in (a, b)]
    if all(weak):
        return a, b
    if any(weak):
        array = b if weak[0] else a
        t = array.dtype if array.dtype.kind != "b" or (kinds[0] == kinds[1] == "b") else np.dtype("int64")
    else:
        t = np.promote_types(a.dtype, b.dtype)
    return np.asarray(a).astype(t), np.asarray(b).astype(t)


nudge = None  # steps(): a function that changes last digits before they are cut off


def cast(x, dtype):
    kind = grow.kind_of(dtype)
    x = np.asarray(x)
    if kind == "c":
        return x.astype("complex128")
    if kind == "f":
        return x.astype("float64")
    if kind == "b":
        return x != 0
    if x.dtype.kind == "f":  # truncates and saturates, NaN becomes 0
        t = np.iinfo(dtype)
        x = nudge(x) if nudge else x
        x = np.nan_to_num(np.trunc(x), nan=0, posinf=float(t.max), neginf=float(t.min))
        low, high = x <= float(t.min), x >= float(t.max)
        out = np.where(low | high, 0, x).astype(dtype)
        out[low], out[high] = t.min, t.max
        return out
    return x.astype(dtype)


def shifted(x, offsets, boundary="self", value=0):
    if isinstance(x, Ghosted):
        g, n = x.layers, x.interior.shape
        return x.whole[tuple(slice(g + o, g + o + k) for o, k in zip(offsets, n))]
    index, inside = [], np.ones(x.shape, bool)
    for axis, (n, o) in enumerate(zip(x.shape, offsets)):
        q = np.arange(n) + o
        inside &= ((q >= 0) & (q < n)).reshape([-1 if k == axis else 1 for k in range(x.ndim)])
        if boundary == "wrap":
            q %= n
        elif boundary == "reflect":
            q = np.zeros_like(q) if n == 1 else q % (2 * n - 2)
            q = np.where(q < n, q, 2 * n - 2 - q)
        elif boundary == "symmetric":
            q %= 2 * n
            q = np.where(q < n, q, 2 * n - 1 - q)
        index.append(np.clip(q, 0, n - 1))
    moved = x[np.ix_(*index)]
    if boundary == "self":
        return np.where(inside, moved, x)
    if boundary == "constant":
        return np.where(inside, moved, np.asarray(value).astype(x.dtype))
    return moved


def along(x, axis, k, **named):
    rank = x.whole.ndim if isinstance(x, Ghosted) else x.ndim
    return shifted(x, [k if a == axis else 0 for a in range(rank)], **named)


def bare(x):
    return x.interior if isinstance(x, Ghosted) else x


def exactly(x):
    """In the type that differences and means of it are computed in."""
    if isinstance(x, Ghosted):
        return Ghosted(exactly(x.whole), x.layers)
    return x if x.dtype.kind in "fc" else x.astype("float64")


def laplacian(x, **named):
    x = exactly(x)
    rank = bare(x).ndim
    return sum(along(x, a, 1, **named) - 2 * bare(x) + along(x, a, -1, **named) for a in range(rank))


def correlate(x, weights, **named):
    x, w = exactly(x), np.asarray(weights)
    total = 0
    for j in np.ndindex(w.shape):
        if w[j]:
            total = total + w[j] * shifted(x, [a - n // 2 for a, n in zip(j, w.shape)], **named)
    return total + np.zeros(bare(x).shape)


def reduced(name):
    def f(x, axis=None, keepdims=False):
        axis = tuple(axis) if isinstance(axis, list) else axis
        kind = x.dtype.kind
        if name in ("argmax", "argmin"):
            return getattr(np, name)(x, axis=axis)
        if name == "norm":
            return np.sqrt(np.sum(np.abs(exactly(x)) ** 2, axis=axis, keepdims=keepdims))
        if name == "logsumexp":
            x = exactly(x)
            most = np.max(x, axis=axis, keepdims=True)
            return np.asarray(np.log(np.sum(np.exp(x - most), axis=axis, keepdims=keepdims)) + np.squeeze(most, axis))
        if name == "count_nonzero":
            return np.asarray(np.count_nonzero(x, axis=axis)).astype("int64")
        if name in ("mean", "std", "nanmean", "nanvar", "nanstd"):
            x = exactly(x)
        elif name in ("sum", "prod", "nansum"):
            x = x.astype({"i": "int64", "b": "int64", "u": "uint64"}.get(kind, x.dtype))
        return np.asarray(getattr(np, name)(x, axis=axis, keepdims=keepdims))
    return f


def sample(x, points, method="linear", boundary="clamp"):
    x = exactly(x)
    total = np.zeros(len(points), x.dtype)
    if method == "nearest":
        cells = [(np.floor(points + 0.5).astype("int64"), np.ones(len(points)))]
    else:
        low = np.floor(points).astype("int64")
        part = points - low
        cells = [(low + np.array(corner), np.prod(np.where(corner, part, 1 - part), axis=1))
                 for corner in np.ndindex(*[2] * x.ndim)]
    for at, weight in cells:
        index, inside = [], np.ones(len(points), bool)
        for q, n in zip(at.T, x.shape):
            inside &= (q >= 0) & (q < n)
            if boundary == "wrap":
                q = q % n
            elif boundary == "reflect":
                q = np.zeros_like(q) if n == 1 else q % (2 * n - 2)
                q = np.where(q < n, q, 2 * n - 2 - q)
            elif boundary == "symmetric":
                q = q % (2 * n)
                q = np.where(q < n, q, 2 * n - 1 - q)
            index.append(np.clip(q, 0, n - 1))
        value = x[tuple(index)]
        if boundary == "constant":
            value = np.where(inside, value, 0)
        total = total + np.where(weight != 0, weight * value, 0)
    return total


def scanned(x, axis):
    return np.cumsum(x, axis=axis, dtype={"i": "int64", "u": "uint64", "b": "int64"}.get(x.dtype.kind, x.dtype))


def unary(f):
    return lambda x: f(x) if isinstance(x, (bool, int, float)) or x.dtype.kind in "iuc" else f(exactly(x))


def where(c, a, b):
    a, b = together(a, b)
    c = c if not isinstance(c, np.ndarray) or c.dtype.kind == "b" else c != 0
    return np.where(c, a, b)


FUNCTIONS = {
    "shift": lambda x, offsets, **named: shifted(x, offsets, **named),
    "forward_diff": lambda x, axis, **named: along(x, axis, 1, **named) - bare(x),
    "back_diff": lambda x, axis, **named: bare(x) - along(x, axis, -1, **named),
    "central_diff": lambda x, axis, **named: (along(exactly(x), axis, 1, **named) - along(exactly(x), axis, -1, **named)) / 2,
    "laplacian": laplacian, "correlate": correlate, "sample": sample, "cumulative_sum": scanned, "where": where,
    "maximum": lambda a, b: np.maximum(*together(a, b)), "minimum": lambda a, b: np.minimum(*together(a, b)),
    "astype": lambda x, dtype: cast(x, dtype), "conj": np.conj, "real": np.real, "imag": np.imag, "abs": np.abs,
    "flip": lambda x, axis: np.flip(x, axis), "roll": lambda x, shift, axis: np.roll(x, shift, axis),
    "permute_dims": lambda x, axes: np.transpose(x, axes),
    "take": lambda x, i, axis, mode: np.take(x, i, axis, mode=mode),
    **{name: unary(f) for name, f in {"sin": np.sin, "cos": np.cos, "tanh": np.tanh, "exp": np.exp, "sqrt": np.sqrt,
                                       "atan": np.arctan}.items()},
    **{name: reduced(name) for name in ("max", "min", "sum", "mean", "std", "any", "all", "prod", "argmax", "argmin",
                                         "count_nonzero", "norm", "nansum", "nanmean", "nanmin", "nanmax", "nanvar", "nanstd", "logsumexp")},
}
FUNCTIONS["blend"] = lambda x, y: np.add(*together(np.multiply(*together(0.5, x)), np.multiply(*together(0.25, y))))
FUNCTIONS["bump"] = lambda x: where(np.greater(x, 0), x, 0.5)
SIGNS = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "&": np.bitwise_and, "|": np.bitwise_or,
         "^": np.bitwise_xor, "<": np.less, ">": np.greater, ">=": np.greater_equal, "<=": np.less_equal, "==": np.equal}


def compute(tree, names):
    what = tree[0]
    if what == "name":
        return bare(names[tree[1]])
    if what == "num":
        return {"True": True}.get(tree[1]) or (float(tree[1]) if "." in tree[1] else int(tree[1]))
    if what == "part":
        return compute(tree[1], names)[index_of(tree[2])]
    if what == "index":
        return Place(tree[1])
    if what == "sign":
        x = compute(tree[2], names)
        return ~x if tree[1] == "~" else -x
    if what == "op":
        a, b = compute(tree[2], names), compute(tree[3], names)
        if isinstance(b, Place):
            if not isinstance(a, np.ndarray) or a.ndim == 0:
                return Place(b.axis, b.times * float(a))
            b = b.like(a)
        a, b = together(a, b)
        return np.asarray(SIGNS[tree[1]](a, b)) if isinstance(a, np.ndarray) else SIGNS[tree[1]](a, b).item()
    args = tree[2]
    if tree[3].get("boundary") == "ghost":  # of the array itself
        return FUNCTIONS[tree[1]](names[args[0][1]], *[compute(x, names) for x in args[1:]],
                                  **{k: v for k, v in tree[3].items() if k != "boundary"})
    return FUNCTIONS[tree[1]](*[compute(x, names) for x in args], **tree[3])


def index_of(text):
    return eval(f"np.s_[{text}]")  # the generator's own


def assign(names, types, name, index, op, tree):
    """One statement."""
    if not index and not op and name not in types:
        value = compute(tree, names)
        names[name] = value.copy() if isinstance(value, np.ndarray) else value
        return
    target = bare(names[name])
    value = compute(tree, names)
    place = index_of(index) if index else ...
    if op:
        a, b = together(target[place], value)
        value = SIGNS[op](a, b)
    target[place] = np.broadcast_to(cast(value, types[name]), target[place].shape)


def steps(case, arrays, types, count, other=None):
    """The arrays after so many steps; views of `arrays` are made here. `other` may change a last digit."""
    global nudge
    nudge = other
    names = {n: Ghosted(a[0], a[1]) if isinstance(a, tuple) else a for n, a in arrays.items()}
    for view, (base, index) in case["views"].items():
        names[view] = names[base][index_of(index)]
    names.update(case["bind"])
    types = {**types, **{v: types[b] for v, (b, _) in case["views"].items()}}
    with np.errstate(all="ignore"):
        for _ in range(count):
            for s in case["body"]:
                assign(names, types, *s)
    return names
