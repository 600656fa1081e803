"""Random expressions against NumPy, in both spellings.

Each expression is grown together with its value, so every node knows what NumPy makes of it. The
dtype rules are spelled out here (NumPy before 2.0 looks at values where the contract does not), so
NumPy only ever sees operands of one dtype. `exact` expressions hold integers, + - * /, square
roots, comparisons, selections, shifts and views, and must agree to the bit (all NaNs are alike);
`smooth` ones hold transcendental functions and float reductions and must agree closely.
"""
import itertools
import os
import sys

import numpy as np
import pytest

from client import OCTETS, REPO

sys.path.insert(0, str(REPO / "tests/generated"))

from model import shifted  # noqa: E402

SHAPE = (4, 6)
SHAPES = [SHAPE, SHAPE, SHAPE, (1, 6), (6,), (4, 1), ()]
RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
MODES = ["self", "clamp", "wrap", "reflect", "symmetric", "constant"]


class Weak:
    """A literal before it meets an array."""

    def __init__(self, value):
        self.value = value
        self.kind = {bool: "b", int: "i", float: "f"}[type(value)]


class Node:
    def __init__(self, text, tree, value):
        self.text, self.tree, self.value = text, tree, value

    @property
    def weak(self):
        return isinstance(self.value, Weak)

    @property
    def dtype(self):
        return self.value.dtype

    @property
    def ndim(self):
        return self.value.ndim


def common(a, b):
    """The dtype two operands (one of them an array) are computed in."""
    if not a.weak and not b.weak:
        return np.promote_types(a.dtype, b.dtype)
    array, lit = (a, b) if b.weak else (b, a)
    if RANK[lit.value.kind] <= RANK[array.dtype.kind]:
        return array.dtype
    return np.dtype("int64" if lit.value.kind == "i" else "float64")


def as_type(x, t):
    return np.asarray(x.value.value if x.weak else x.value).astype(t)


class Grower:
    """fused: only what needs no kernel of its own."""

    def __init__(self, rng, arrays, smooth, fused=False):
        self.rng, self.arrays, self.smooth, self.fused = rng, arrays, smooth, fused

    def pick(self, options):
        return options[self.rng.integers(len(options))]

    def leaf(self, array=False):
        if not array and self.rng.random() < 0.25:
            v = self.pick([0, 1, 2, 3, 5, 0.5, 1.25, 2.0])
            return Node(repr(v), v, Weak(v))
        name = self.pick(sorted(self.arrays))
        return Node(name, name, self.arrays[name])

    def grow(self, depth, array=False):
        if depth == 0:
            return self.leaf(array)
        makers = [self.binary, self.binary, self.binary, self.compare, self.where, self.unary,
                  self.shift, self.view, self.minmax, self.cast]
        if not self.fused:
            makers += [self.reduce, self.rearrange, self.join, self.take, self.listed]
        if self.smooth:
            makers += [self.function, self.function]
        if self.smooth and not self.fused:
            makers += [self.mean]
        for _ in range(20):
            node = self.pick(makers)(depth - 1)
            if node is not None:
                return node
        return self.leaf(True)

    def pair(self, depth):
        a, b = self.grow(depth, array=True), self.grow(depth)
        if not b.weak:
            try:
                np.broadcast_shapes(a.value.shape, b.value.shape)
            except ValueError:
                return None
        return (b, a) if self.rng.random() < 0.5 else (a, b)

    def binary(self, depth):
        two = self.pair(depth)
        if two is None:
            return None
        a, b = two
        t = common(a, b)
        ops = [("+", "add", np.add), ("*", "multiply", np.multiply)]
        if t.kind != "b":
            ops += [("-", "subtract", np.subtract)]
        if t.kind in "iu":
            ops += [("//", "floor_divide", np.floor_divide), ("%", "remainder", np.remainder),
                    ("^", "bitwise_xor", np.bitwise_xor)]
        if t.kind in "biu":
            ops += [("&", "bitwise_and", np.bitwise_and), ("|", "bitwise_or", np.bitwise_or)]
        if t.kind == "f":
            ops += [("/", "divide", np.divide)]
        sign, name, f = self.pick(ops)
        return Node(f"({a.text} {sign} {b.text})", {"op": name, "args": [a.tree, b.tree]},
                    np.asarray(f(as_type(a, t), as_type(b, t))))

    def compare(self, depth):
        two = self.pair(depth)
        if two is None or self.smooth:
            return None
        a, b = two
        t = common(a, b)
        sign, name, f = self.pick([("<", "less", np.less), (">=", "greater_equal", np.greater_equal),
                                   ("==", "equal", np.equal), ("!=", "not_equal", np.not_equal)])
        if t.kind == "f" and "u" in (getattr(a.value, "dtype", t).kind, getattr(b.value, "dtype", t).kind):
            return None  # int64 with uint64 is compared exactly; here it would be in float64
        return Node(f"({a.text} {sign} {b.text})", {"op": name, "args": [a.tree, b.tree]},
                    np.asarray(f(as_type(a, t), as_type(b, t))))

    def minmax(self, depth):
        two = self.pair(depth)
        if two is None:
            return None
        a, b = two
        t = common(a, b)
        u, v = as_type(a, t), as_type(b, t)
        if t.kind == "f" and ((u == 0) & (v == 0) & (np.signbit(u) != np.signbit(v))).any():
            return None  # either zero is right
        name, f = self.pick([("maximum", np.maximum), ("minimum", np.minimum)])
        return Node(f"{name}({a.text}, {b.text})", {"op": name, "args": [a.tree, b.tree]},
                    np.asarray(f(as_type(a, t), as_type(b, t))))

    def where(self, depth):
        c, two = self.grow(depth, array=True), self.pair(depth)
        if two is None or (self.smooth and c.dtype.kind == "f"):
            return None
        a, b = two
        t = common(a, b)
        try:
            value = np.where(c.value != 0, as_type(a, t), as_type(b, t))
        except ValueError:
            return None
        return Node(f"where({c.text}, {a.text}, {b.text})",
                    {"op": "where", "args": [c.tree, a.tree, b.tree]}, np.asarray(value))

    def unary(self, depth):
        x = self.grow(depth, array=True)
        kind = x.dtype.kind
        options = [("abs({})", "abs", np.abs)]
        if kind != "b":
            options += [("(-{})", "negative", np.negative), ("sign({})", "sign", np.sign)]
        if kind in "biu":
            options += [("(~{})", "bitwise_invert", np.invert)]
        if kind == "f":
            options += [("sqrt({})", "sqrt", np.sqrt), ("floor({})", "floor", np.floor),
                        ("isnan({})", "isnan", np.isnan), ("round({})", "round", np.rint)]
            if self.smooth:
                options = options[:3]
        text, name, f = self.pick(options)
        return Node(text.format(x.text), {"op": name, "args": [x.tree]}, np.asarray(f(x.value)))

    def shift(self, depth):
        x = self.grow(depth, array=True)
        if x.ndim == 0:
            return None
        offsets = [int(k) for k in self.rng.integers(-3, 4, x.ndim)]
        mode = self.pick(MODES)
        return Node(f"shift({x.text}, {offsets}, boundary='{mode}')",
                    {"op": "shift", "args": [x.tree, offsets], "boundary": mode},
                    shifted(x.value, offsets, mode))

    def view(self, depth):
        x = self.grow(depth, array=True)
        if x.ndim == 0 or x.value.shape[-1] != SHAPE[-1]:
            return None
        index = self.pick(["..., ::-1", "..., :1", "None", "-1", "::-1"])
        return Node(f"({x.text})[{index}]", {"op": "getitem", "args": [x.tree], "index": index},
                    np.asarray(eval(f"v[{index}]", {"v": x.value})))

    def rearrange(self, depth):
        """In the shapes of the others, so that they go on with it."""
        x = self.grow(depth, array=True)
        if x.ndim == 0:
            return None
        v, k = x.value, int(self.rng.integers(-9, 10))
        turned = list(range(v.ndim))[::-1]
        options = [("flip({})", {"op": "flip"}, np.flip(v)),
                   (f"roll({{}}, {k})", {"op": "roll", "shift": k}, np.roll(v, k)),
                   (f"roll({{}}, {k}, -1)", {"op": "roll", "shift": k, "axis": -1}, np.roll(v, k, -1)),
                   (f"reshape(reshape({{}}, -1), {list(v.shape)})", None, v),
                   (f"reshape(permute_dims({{}}, {turned}), {list(v.shape)})", None, v.T.reshape(v.shape))]
        if v.ndim == 2:
            options += [("tril({})", {"op": "tril"}, np.tril(v)), (f"triu({{}}, {k})", {"op": "triu", "k": k}, np.triu(v, k))]
        text, tree, value = self.pick(options)
        if tree is None:
            inner = ({"op": "permute_dims", "args": [x.tree], "axes": turned} if "permute" in text
                     else {"op": "reshape", "args": [x.tree], "shape": -1})
            tree = {"op": "reshape", "args": [inner], "shape": list(v.shape)}
        else:
            tree = {**tree, "args": [x.tree]}
        return Node(text.format(x.text), tree, np.asarray(value))

    def join(self, depth):
        two = self.pair(depth)
        if two is None:
            return None
        a, b = two
        if a.weak or b.weak or a.value.shape != b.value.shape or a.ndim == 0:
            return None
        t = common(a, b)
        n = a.value.shape[0]
        start = int(self.rng.integers(0, n + 1))
        value = np.concatenate([as_type(a, t), as_type(b, t)])[start:start + n]
        index = f"{start}:{start + n}"
        joined = {"op": "concat", "args": [[a.tree, b.tree]]}
        return Node(f"concat([{a.text}, {b.text}])[{index}]", {"op": "getitem", "args": [joined], "index": index}, value)

    def take(self, depth):
        x, i = self.grow(depth, array=True), self.grow(depth, array=True)
        if x.ndim == 0 or i.dtype.kind not in "iu" or i.ndim > 1 or i.value.size == 0:
            return None
        n, kind = x.value.shape[-1], self.pick(["raise", "clip", "wrap"])
        at, tree, text = i.value, i.tree, i.text
        if kind == "raise":  # brought into range: −n … n − 1
            at = at.astype("int64") % (2 * n) - n
            text = f"astype({text}, 'int64') % {2 * n} - {n}"
            tree = {"op": "subtract", "args": [{"op": "remainder", "args": [{"op": "astype", "args": [tree], "dtype": "int64"}, 2 * n]}, n]}
        elif at.dtype == "uint64":
            return None
        value = np.take(x.value, at.astype("int64"), -1, mode=kind)
        return Node(f"take({x.text}, {text}, -1, '{kind}')", {"op": "take", "args": [x.tree, tree], "axis": -1, "mode": kind},
                    np.asarray(value))

    def listed(self, depth):
        """Indices and repetitions written out; as long as x again."""
        x = self.grow(depth, array=True)
        if x.ndim == 0 or x.value.shape[-1] == 0:
            return None
        n = x.value.shape[-1]
        if self.rng.random() < 0.5:
            at = self.rng.integers(-n, n, n).tolist()
            return Node(f"take({x.text}, {at}, -1)", {"op": "take", "args": [x.tree, at], "axis": -1}, np.take(x.value, at, -1))
        times = self.rng.integers(1, 4, n).tolist()
        repeated = {"op": "repeat", "args": [x.tree, times], "axis": -1}
        return Node(f"repeat({x.text}, {times}, -1)[..., :{n}]", {"op": "getitem", "args": [repeated], "index": f"..., :{n}"},
                    np.repeat(x.value, times, -1)[..., :n])

    def cast(self, depth):
        x = self.grow(depth, array=True)
        t = self.pick(["int32", "int64", "float32", "float64", "uint8", "bool", "float16"])
        if self.smooth and t in ("float32", "float16"):
            return None
        if x.dtype.kind == "f" and np.dtype(t).kind != "f":
            return None  # NumPy leaves out-of-range floats open
        return Node(f"astype({x.text}, '{t}')", {"op": "astype", "args": [x.tree], "dtype": t},
                    x.value.astype(t))

    def reduce(self, depth):
        x = self.grow(depth, array=True)
        if x.ndim == 0:
            return None
        axis = self.pick([None, 0, -1])
        name = self.pick(["max", "min", "any", "all"] + (["sum"] if x.dtype.kind in "biu" else []))
        f = {"max": np.max, "min": np.min, "any": np.any, "all": np.all, "sum": np.sum}[name]
        if self.smooth and x.dtype.kind == "f" and name in ("any", "all"):
            return None
        value = np.asarray(f(x.value, axis=axis, keepdims=True))
        if name in ("max", "min") and x.dtype.kind == "f" and len(set(np.signbit(x.value[x.value == 0]))) > 1:
            return None  # either zero is right
        return Node(f"{name}({x.text}, axis={axis}, keepdims=True)",
                    {"op": name, "args": [x.tree], "axis": axis, "keepdims": True}, value)

    def mean(self, depth):
        x = self.grow(depth, array=True)
        if x.ndim == 0 or x.dtype == "float16":
            return None
        return Node(f"mean({x.text}, axis=0, keepdims=True)",
                    {"op": "mean", "args": [x.tree], "axis": 0, "keepdims": True},
                    np.asarray(np.mean(x.value, axis=0, keepdims=True)))

    def function(self, depth):
        x = self.grow(depth, array=True)
        name = self.pick(["sin", "cos", "tanh", "atan", "exp"])
        v = x.value if x.dtype.kind == "f" else x.value.astype("float64")
        if v.dtype == "float16":
            return None
        if name == "exp":
            return Node(f"exp(-abs({x.text}))",
                        {"op": "exp", "args": [{"op": "negative", "args": [{"op": "abs", "args": [x.tree]}]}]},
                        np.exp(-np.abs(v))) if x.dtype.kind == "f" else None
        f = {"sin": np.sin, "cos": np.cos, "tanh": np.tanh, "atan": np.arctan}[name]
        return Node(f"{name}({x.text})", {"op": name, "args": [x.tree]}, np.asarray(f(v)))


def arrays(rng, dtypes):
    made = {}
    for k, (dtype, shape) in enumerate(itertools.islice(zip(itertools.cycle(dtypes), SHAPES), len(SHAPES))):
        t = np.dtype(dtype)
        if t.kind == "b":
            a = rng.random(shape) < 0.5
        elif t.kind in "iu":
            a = rng.integers(max(np.iinfo(t).min, -9), 10, shape)
        else:
            a = np.round(rng.standard_normal(shape) * 4, 2)
        made[f"v{k}"] = np.asarray(a).astype(t)
    return made


EXACT = [["int32"], ["float32"], ["float64", "float32"], ["int8", "int64", "uint16"],
         ["bool", "int32", "float32"], ["uint8", "float16"], ["int64", "uint64"],
         ["float16", "float64", "int16", "bool"]]
SMOOTH = [["float64"], ["float64", "int32"], ["float64", "bool", "uint8"]]


# Trees of each kind: 10,000 in all, 100,000 in the long run, 1,300 where the daemon is slow.
CHUNK = 130
DOZEN = 12
LONG = bool(os.environ.get("ARRAYD_LONG"))
CHUNKS = 1 if os.environ.get("ARRAYD_SUBSET") else 70 if LONG else 7


@pytest.mark.parametrize("smooth,dtypes", [(False, d) for d in EXACT] + [(True, d) for d in SMOOTH],
                         ids=lambda p: p if isinstance(p, bool) else "-".join(p))
def test_random(api, smooth, dtypes):
    seed = [RANK[np.dtype(d).kind] * 100 + np.dtype(d).itemsize for d in dtypes]
    for chunk in range(CHUNKS):
        rng = np.random.default_rng(seed + [chunk])
        data = arrays(rng, dtypes)
        bind = {name: api.upload(a)["id"] for name, a in data.items()}
        grower = Grower(rng, data, smooth)
        for k in range(CHUNK):
            with np.errstate(all="ignore"):
                node = grower.grow(int(rng.integers(1, 5)), array=True)
            bodies = ({"expr": node.text}, {"tree": node.tree})
            check(api, bind, node, smooth, bodies if k % 8 == 0 else bodies[k % 2:][:1], contract=k % 16 == 0)
        for ref in bind.values():
            api.expect(204, api.delete(f"/v1/arrays/{ref}"))


def fits(shape):
    return len(shape) <= 2 and all(n in (1, m) for n, m in zip(shape[::-1], SHAPE[::-1]))


def test_random_on_a_device(gpu_with):
    """A dozen trees of one dtype in a kernel: it is the kernels' compilation that takes time. In the long run also
    trees that need kernels of their own."""
    api = gpu_with().client()
    for dtypes, fused in [(d, True) for d in (EXACT + SMOOTH)[1::2]] + [(d, False) for d in EXACT + SMOOTH if LONG]:
        smooth = dtypes in SMOOTH
        rng = np.random.default_rng([len(dtypes), fused])
        data = arrays(rng, dtypes)
        which = np.arange(DOZEN).reshape(-1, 1, 1)
        bind = {name: api.upload(a)["id"] for name, a in {**data, "which": which}.items()}
        grower, waiting, asked = Grower(rng, data, smooth, fused), {}, 0
        while asked < (48 if not LONG else 120 if fused else 36):
            with np.errstate(all="ignore"):
                node = grower.grow(int(rng.integers(1, 5)), array=True)
            if not fits(node.value.shape):
                continue
            batch = waiting.setdefault(node.dtype, [])
            batch.append(node)
            if len(batch) == DOZEN:
                together(api, bind, batch, smooth)
                batch.clear()
                asked += DOZEN


def together(api, bind, batch, smooth):
    text = batch[-1].text
    for k, node in reversed(list(enumerate(batch[:-1]))):
        text = f"where(which == {k}, {node.text}, {text})"
    want = np.stack([np.broadcast_to(node.value, SHAPE) for node in batch])
    r = api.post("/v1/evaluate", {"expr": f"broadcast_to({text}, [{DOZEN}, 4, 6])", "bind": bind}, accept=OCTETS)
    assert r.status == 200, f"{text}: {r}"
    agrees(r.body, Node(text, None, want), smooth)


def check(api, bind, node, smooth, bodies, contract=True):
    if node.value.size == 0:
        return
    used = {k: v for k, v in bind.items() if k in node.text}
    replies = []
    for body in bodies:
        r = api.post("/v1/evaluate", {**body, "bind": used}, accept=OCTETS, check=contract)
        assert r.status == 200, f"{node.text}: {r}"
        replies.append(r.body)
    assert replies[0] == replies[-1], node.text
    agrees(replies[0], node, smooth)


def agrees(body, node, smooth):
    want = node.value
    assert len(body) == want.nbytes, f"{node.text}: expected {want.dtype} {want.shape}"
    got = np.frombuffer(body, want.dtype).reshape(want.shape)
    if smooth and want.dtype.kind == "f":
        rtol = {2: 2e-2, 4: 1e-4, 8: 1e-9}[want.dtype.itemsize]
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol, err_msg=node.text)
    else:
        np.testing.assert_array_equal(got, want, err_msg=node.text)


def test_dtype_and_shape_of_the_reply(api):
    """The metadata say what the bytes are."""
    rng = np.random.default_rng(7)
    data = arrays(rng, ["float32", "int16", "bool", "uint8"])
    bind = {name: api.upload(a)["id"] for name, a in data.items()}
    grower = Grower(rng, data, False)
    with np.errstate(all="ignore"):
        for _ in range(60):
            node = grower.grow(3, array=True)
            if node.ndim == 0 or node.value.size == 0:
                continue
            r = api.post("/v1/evaluate", {"expr": node.text, "bind": bind})
            meta = api.expect(201, r).json()
            assert (meta["dtype"], meta["shape"]) == (node.dtype.name, list(node.value.shape)), node.text
            api.expect(204, api.delete(f"/v1/arrays/{meta['id']}"))
