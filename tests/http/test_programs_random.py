"""Random programs against the same statements as single evaluate requests, step after step, in another session
that has equal arrays: all must be the same bits, and so must what is recorded, copied and asked. NaNs may have any.

However statements are fused, and however many steps one pass makes, is no matter of the results. ARRAYD_PROGRAMS
says how many times as many programs are run."""
import json
import os
import re

import numpy as np

from client import NPY, OCTETS, npy_bytes

# how many times as many; fewer where the daemon is slow
TIMES = float(os.environ.get("ARRAYD_PROGRAMS", "6" if os.environ.get("ARRAYD_LONG") else
                             "0.3" if os.environ.get("ARRAYD_SUBSET") else "1"))
SEED = int(os.environ.get("ARRAYD_PROGRAMS_SEED", "0"))
SIZES = {1: [1, 2, 3, 5, 8, 17, 33, 64, 70], 2: [1, 2, 3, 5, 8, 9, 17, 31, 33], 3: [1, 2, 3, 4, 5, 8, 11]}
DTYPES = ["float32", "float32", "float64", "int32", "uint8", "bool", "float16", "complex64"]
MODES = ["self", "clamp", "wrap", "reflect", "symmetric", "constant"]
KINDS = "biufc"
OPERATORS = {"b": "&|^", "i": "+-*&|^", "u": "+-*&|^", "f": "+-*", "c": "+-*"}
FUNCTIONS = {"blend": (["x", "y"], "0.5*x + 0.25*y"), "bump": (["x"], "where(x > 0, x, 0.5)"),
             "near": (["x"], "shift(x, [1], 'clamp') + x")}


def some(rng, choices):
    return choices[int(rng.integers(len(choices)))]


def data(rng, shape, dtype, odd):
    d = np.dtype(dtype)
    a = rng.normal(size=shape)
    if d.kind in "iub":
        return np.asarray(a * 3 if d.kind == "i" else abs(a * 3) if d.kind == "u" else a > 0).astype(d)
    a = (a + 1j * rng.normal(size=shape) if d.kind == "c" else a).astype(d)
    if odd and a.size:
        a.flat[int(rng.integers(a.size))] = some(rng, [np.nan, np.inf, -0.0, 1e-42])
    return a


class Grower:
    """Expressions over the names that there are: name -> (shape, kind)."""

    def __init__(self, rng, names, numbers):
        self.rng, self.names, self.numbers = rng, dict(names), list(numbers)

    def chance(self, p):
        return self.rng.random() < p

    def axis_slice(self, n, r):
        """A slice of n elements that has r."""
        rng, steps = self.rng, [s for s in (1, 1, 1, 2, 3, -1) if r == 0 or (r - 1) * abs(s) < n]
        s = some(rng, steps)
        start = int(rng.integers(n - (r - 1) * abs(s))) if r else 0
        if s < 0:
            stop = start - 1
            return f"{start + r - 1}:{stop if stop >= 0 else ''}:-1"
        if r == n:
            return ":"
        stop = start + (r - 1) * s + 1
        text = f"{start or ''}:{stop - n if stop < n and self.chance(0.5) else stop if stop < n else ''}"
        return text if s == 1 else f"{text}:{s}"

    def part(self, shape, of):
        """An index that takes the one shape from the other; None: there is none."""
        drop = len(of) - len(shape)
        if drop < 0:
            return None
        axes = set(self.rng.choice(len(of), drop, replace=False).tolist()) if drop else set()
        index, want = [], list(shape)
        for axis, n in enumerate(of):
            if axis in axes:
                if n == 0:
                    return None
                index.append(str(int(self.rng.integers(-n, n))))
                continue
            r = want.pop(0)
            if r > n:
                return None
            index.append(self.axis_slice(n, r))
        return ", ".join(index)

    def leaf(self, shape):
        rng = self.rng
        alike = [n for n, (s, _) in self.names.items() if s == shape]
        if alike and self.chance(0.75):
            name = some(rng, alike)
            return name, self.names[name][1]
        for _ in range(4):
            name = some(rng, list(self.names))
            s, kind = self.names[name]
            if len(s) <= len(shape) and all(a in (1, b) for a, b in zip(s[::-1], shape[::-1])):
                return name, kind
            index = self.part(shape, s)
            if index is not None and index:
                return f"{name}[{index}]", kind
        return self.number()

    def number(self):
        if self.numbers and self.chance(0.4):
            return some(self.rng, self.numbers), "f"
        return some(self.rng, [("1", "i"), ("2", "i"), ("0.5", "f"), ("0.1", "f"), ("0.25", "f"), ("True", "b")])

    def offsets(self, rank, far=2):
        return [int(o) for o in self.rng.integers(-far, far + 1, rank)]

    def moved(self, shape, depth):
        x, kind = self.grow(shape, depth - 1)
        rank, mode = len(shape), some(self.rng, MODES)
        # a literal has no axes
        x = x if re.search(r"[a-z]\w*", x.replace("True", "")) and self.whole(x, shape) else None
        if x is None or rank == 0:
            return self.leaf(shape)
        how = int(self.rng.integers(6))
        axis = int(self.rng.integers(rank))
        if how < 3 or kind == "b":
            value = "" if mode != "constant" or self.chance(0.5) else ", value=1"
            return f"shift({x}, {self.offsets(rank)}, '{mode}'{value})", kind
        if how == 3:
            return f"laplacian({x}, boundary='{mode}')", "c" if kind == "c" else "f"
        name = some(self.rng, ["forward_diff", "back_diff", "central_diff"])
        return f"{name}({x}, {axis}, boundary='{mode}')", "f" if name == "central_diff" and kind in "iu" else kind

    def whole(self, x, shape):
        """Whether the expression has all of the shape: it says a name that has."""
        return any(self.names[n][0] == shape for n in re.findall(r"\b[a-z]\w*\b", x) if n in self.names and
                   not re.search(rf"\b{n}\[", x)) and not re.search(r"\b(max|min|sum)\(", x)

    def single(self, depth):
        """A number that is computed."""
        name = some(self.rng, [n for n in self.names if self.names[n][0] != ()] or list(self.names))
        shape, kind = self.names[name]
        x = name if self.chance(0.6) else self.grow(shape, depth - 1)[0]
        if kind in "c":
            return f"max(abs({name}))", "f"
        if self.chance(0.15) and kind != "c" and self.is_held(name):
            return f"sum({name})", "i" if kind in "bu" else kind
        if kind == "b" or x != name:
            return f"max(abs({name}*0.5))", "f"
        return f"{some(self.rng, ['max', 'min'])}({x})", kind

    def is_held(self, name):
        """It is in memory: what is summed as it is computed is added in another order."""
        return not re.match(r"t\d", name)

    def grow(self, shape, depth):
        rng = self.rng
        if depth <= 0:
            return self.leaf(shape)
        how = int(rng.integers(20))
        if how < 7:
            a, k = self.grow(shape, depth - 1)
            b, m = self.grow(shape, depth - 1) if self.chance(0.7) else self.number()
            kind = max(k, m, key=KINDS.index)
            if kind != "b" and self.chance(0.1):
                return f"({a} / {b})", "c" if kind == "c" else "f"
            return f"({a} {some(rng, OPERATORS['b' if kind == 'b' else 'f' if kind in 'iu' else kind])} {b})", kind
        if how < 11:
            return self.moved(shape, depth)
        if how == 11:
            (c, k), (a, m), (b, o) = (self.grow(shape, depth - 1) for _ in range(3))
            return f"where({c if k == 'c' else f'{c} > 0' if k != 'b' else c}, {a}, {b})", max(m, o, key=KINDS.index)
        if how == 12:
            x, kind = self.grow(shape, depth - 1)
            if kind in "fc":
                return f"{some(rng, ['exp', 'sin', 'tanh', 'sqrt'])}({x})", kind
            return f"abs({x})", kind
        if how == 13:
            (a, k), (b, m) = self.grow(shape, depth - 1), self.grow(shape, depth - 1)
            if "c" in (k, m):
                return f"conj({a})", k
            return f"{some(rng, ['maximum', 'minimum'])}({a}, {b})", max(k, m, key=KINDS.index)
        if how == 14 and shape:
            x, kind = self.leaf(shape)
            return f"({x} + 0.01*index({int(rng.integers(len(shape)))}))", "c" if kind == "c" else "f"
        if how == 15:
            return self.single(depth)
        if how == 16 and shape:
            bigger = tuple(n + int(rng.integers(2)) for n in shape)
            known = [s for s, _ in self.names.values() if len(s) >= len(shape)]
            of = some(rng, known) if known else bigger
            x, kind = self.grow(of, depth - 1)
            index = self.part(shape, of) if self.whole(x, of) else None
            if index:
                return f"({x})[{index}]", kind
        if how == 17 and shape:
            x, kind = self.grow(shape, depth - 1)
            if self.whole(x, shape):
                axis = int(rng.integers(len(shape)))
                return some(rng, [f"flip({x}, {axis})", f"roll({x}, {int(rng.integers(-2, 3))}, {axis})"]), kind
        if how == 18:
            (a, k), (b, m) = self.grow(shape, depth - 1), self.leaf(shape)
            name = some(rng, ["blend", "bump"])
            if name == "blend":
                return f"blend({a}, {b})", "c" if "c" in (k, m) else "f"
            return (f"bump({a})", k if k in "f" else "f") if k != "c" else (a, k)
        if how == 19 and shape:
            lines = [n for n, (s, k) in self.names.items() if len(s) == 1 and s[0] and k != "c"]
            x, kind = self.leaf(shape)
            if lines and kind in "iub":
                name = some(rng, lines)
                mode = some(rng, ["wrap", "clip"])
                if len(shape) == 1 and self.whole(x, shape):
                    return f"take({name}, astype({x}, 'int64'), 0, mode='{mode}')", self.names[name][1]
            if kind != "c" and self.whole(x, shape):
                how = some(rng, ["max", "min", "sum", "mean"]) if self.is_held(x) else "max"
                return f"(0.5*{how}({x}, {int(rng.integers(len(shape)))}, keepdims=True))", "f"
        return self.leaf(shape)


def fitted(x, kind, dtype, rng):
    """The expression, as it may be assigned."""
    want = np.dtype(dtype).kind
    if kind == "c" and want != "c":
        x, kind = f"real({x})", "f"
    if want in "fc" and rng.random() < 0.9:
        return x
    return f"astype({x}, '{dtype}')"


def a_region(g, shape):
    index = []
    for n in shape:
        r = some(g.rng, [n, n, max(n - 2, 0), max(n - 1, 0), (n + 1) // 2, 1])
        index.append(g.axis_slice(n, r) if g.chance(0.85) or n == 0 else str(int(g.rng.integers(-n, n))))
    return ", ".join(index)


def a_program(rng):
    rank = int(rng.integers(1, 4))
    shape = tuple(int(some(rng, SIZES[rank])) for _ in range(rank))
    other = some(rng, [shape, shape, shape[-1:], tuple(max(n - 2, 1) for n in shape), (1,) * rank])
    odd, main = rng.random() < 0.2, some(rng, DTYPES)
    arrays, views, names = {}, {}, {}
    for name in "uvw"[:int(rng.integers(2, 4))]:
        dtype = main if rng.random() < 0.6 else some(rng, DTYPES)
        arrays[name] = data(rng, shape if name == "u" or rng.random() < 0.6 else other, dtype, odd)
    if rng.random() < 0.35:  # looked at through views, which are not written
        base = data(rng, tuple(2 * n + 3 for n in shape), main, False)
        arrays["base"] = base
        for name in "pq"[:int(rng.integers(1, 3))]:
            lo, step = int(rng.integers(3)), some(rng, [1, 2, -1])
            views[name] = ("base", ", ".join(
                f"{lo}:{lo + n}" if step == 1 else f"{lo}:{lo + 2*n}:2" if step == 2 else f"{lo + n}:{lo}:-1"
                for n in shape))
            names[name] = (shape, base.dtype.kind)
    if rng.random() < 0.15:  # written through a view
        base = data(rng, tuple(n + 2 for n in shape), main, False)
        arrays["store"] = base
        views["z"] = ("store", some(rng, [", ".join(["1:-1"] * rank), ", ".join([f"{n}:0:-1" for n in shape])]))
        names["z"] = (shape, base.dtype.kind)
    names.update({n: (a.shape, a.dtype.kind) for n, a in arrays.items() if n not in ("base", "store")})
    dtypes = {n: a.dtype.name for n, a in arrays.items()}
    dtypes["z"] = dtypes.get("store")
    targets = [n for n in "uvwz" if n in names]
    bind, numbers = {"c": 0.3}, ["c"]
    g, body, temporaries = Grower(rng, names, numbers), [], []
    for k in range(int(rng.integers(2, 6))):
        depth = int(rng.integers(1, 4))
        what = rng.random()
        if what < 0.06:
            name = f"n{k}"
            body.append((name, "", "", some(rng, ["0.25", "0.1*c", "c", "1 - c"])))
            g.numbers.append(name)
        elif what < 0.40:
            s = some(rng, [shape, shape, other, ()])
            x, kind = g.grow(s, depth) if s else g.single(depth)
            name = some(rng, temporaries) if temporaries and rng.random() < 0.15 else f"t{k}"
            exact = s == () or g.whole(x, s)
            if not exact:
                x, kind = (x, kind) if kind == "c" else (f"astype({x}, 'float64')", "f")
                x = f"broadcast_to({x}, {list(s)})"
            body.append((name, "", "", x))
            g.names[name] = (s, kind)
            temporaries.append(name)
        else:
            name = some(rng, targets + [t for t in temporaries if g.names[t][0] and g.names[t][1] in "fc"][:1])
            s, dtype = g.names[name][0], dtypes.get(name) or ("complex64" if g.names[name][1] == "c" else "float32")
            index = a_region(g, s) if rng.random() < 0.35 else ""
            region = np.empty(s, "i1")[eval(f"np.s_[{index}]")].shape if index else s
            x, kind = g.grow(region, depth)
            op = ""
            if rng.random() < 0.4:
                op = some(rng, OPERATORS[np.dtype(dtype).kind])
            body.append((name, index, op, fitted(x, kind, dtype, rng)))
    fields = {"steps": int(some(rng, [1, 1, 2, 3, 4, 5, 7, 8, 13, 40])), "bind": bind}
    floats = [n for n in g.names if g.names[n][1] != "c" and n not in ("p", "q")]
    if floats and rng.random() < 0.35:
        name = some(rng, floats)
        fields["record"] = {"r": f"max({name}*1.0) - 1", "m": f"{'sum' if g.is_held(name) else 'min'}({name})"}
        fields["record_every"] = int(rng.integers(1, 5))
    written = [t for t in targets if t in [name for name, *_ in body]]
    if written and rng.random() < 0.2:
        fields["snapshot"] = {some(rng, written): int(rng.integers(1, 6))}
    if floats and rng.random() < 0.2:
        fields["until"] = f"max({some(rng, floats)}*1.0) {some(rng, '<>')} {some(rng, ['0', '3', '20'])}"
        fields["until_every"] = int(rng.integers(1, 4))
    if rng.random() < 0.15:
        fields["stop_on_nan"] = True
    return {"arrays": arrays, "views": views, "body": body, **fields}


def a_stencil(rng):
    """Whole arrays out of themselves and their neighbours: what the form of several steps takes."""
    rank = some(rng, [1, 2, 2, 2, 3, 3])
    shape = tuple(int(some(rng, {1: [7, 64, 70, 300], 2: [5, 17, 32, 40, 64, 70], 3: [4, 8, 13, 17, 33]}[rank]))
                  for _ in range(rank))
    dtype = some(rng, ["float32", "float32", "float64", "int32", "float16"])
    names = ["u", "v"][:int(rng.integers(1, 3))]
    arrays = {n: data(rng, shape, dtype, rng.random() < 0.2) for n in names}
    if rng.random() < 0.25:
        arrays["f"] = data(rng, shape, dtype, False)
    edges = {n: some(rng, MODES) for n in names}
    if len(names) == 2 and "wrap" in edges.values():
        edges = dict.fromkeys(names, "wrap")
    exact = np.dtype(dtype).kind in "iu"

    def around(n):
        mode = f"'{edges[n]}'" + (", value=1" if edges[n] == "constant" and rng.random() < 0.5 else "")
        if not exact and rng.random() < 0.4:
            return f"laplacian({n}, boundary={mode})"
        terms = []
        for _ in range(int(rng.integers(1, 5))):
            o = [0] * rank
            if rank == 2 and rng.random() < 0.2:
                o = [int(rng.integers(-1, 2)), int(rng.integers(-1, 2))]
            else:
                o[int(rng.integers(rank))] = some(rng, [-1, 1])
            terms.append(f"shift({n}, {o}, {mode})" if any(o) else n)
        return "(" + " + ".join(terms) + f" - {len(terms)}*{n})"

    inside = ", ".join(["1:-1"] * rank)
    c = "1" if exact else some(rng, ["0.1", "0.125", "c"])
    extra = " + f" if "f" in arrays else ""
    if len(names) == 1:
        body = some(rng, [
            [("u", "", "+", f"{c}*{around('u')}{extra}")],
            [("t", "", "", around("u")), ("u", "", "+", f"{c}*t{extra}")],
            [("t", "", "", f"{around('u')}{extra}"), ("u", "", "", f"where(t > 0, u - {c}*t, u + {c}*t)")],
            [("t", "", "", f"u + {c}*{around('u')}"), ("u", inside, "", f"t[{inside}]")],
            [("u", "", "", f"maximum({around('u')}, u){extra}"), ("u", "0", "", "0"), ("u", "-1", "", "1")],
        ])
    else:
        body = some(rng, [
            [("n", "", "", f"2*u - v + {c}*{around('u')}{extra}"), ("v", "", "", "u"), ("u", "", "", "n")],
            [("r", "", "", "u*v"), ("d", "", "", f"{c}*{around('u')} - r{extra}"),
             ("v", "", "+", f"{c}*{around('v')} + r"), ("u", "", "+", "d")],
            [("t", "", "", f"u + {c}*{around('v')}"), ("v", "", "+", f"{c}*{around('u')}"), ("u", "", "", f"t{extra}")],
            [("u", "", "+", f"{c}*{around('u')}"), ("v", "", "-", f"u*{c}"),
             ("u", "", "", f"where(v > u, u, v){extra}")],
        ])
    body = [(t, i, o, fitted(x, "f", dtype, rng) if exact and t in names else x) for t, i, o, x in body]
    if dtype == "float16":
        body = [(t, i, o, f"astype({x}, 'float16')" if rng.random() < 0.5 else x) for t, i, o, x in body]
    fields = {"steps": int(rng.integers(1, 41)), "bind": {"c": 0.3}}
    if rng.random() < 0.25:
        fields.update(record={"r": "max(u*1.0)"}, record_every=int(rng.integers(1, 9)))
    if rng.random() < 0.15:
        fields.update(until=f"max(abs(u*1.0)) > {some(rng, ['3', '4'])}", until_every=int(rng.integers(1, 9)))
    return {"arrays": arrays, "views": {}, "body": body, **fields}


# --- playing them ---

def session(api, case):
    c = api.clone(session=api.expect(201, api.post("/v1/sessions", {})).json()["id"])
    for name, a in case["arrays"].items():
        c.expect(201, c.request("PUT", f"/v1/arrays/{name}", npy_bytes(a), content_type=NPY, check=False))
    for name, (base, index) in case["views"].items():
        c.expect(201, c.post(f"/v1/arrays/{base}/views", {"index": index, "name": name}, check=False))
    for name, (params, expr) in FUNCTIONS.items():
        r = c.put(f"/v1/functions/{name}", {"params": params, "expr": expr}, check=False)
        assert r.status in (200, 201), r
    return c


def close(api, c):
    api.expect(204, api.delete(f"/v1/sessions/{c.session}", check=False))
    c.close()


def text(statement):
    name, index, op, x = statement
    return f"{name}{f'[{index}]' if index else ''} {op}= {x}"


def bytes_of(c, name):
    return c.expect(200, c.get(f"/v1/arrays/{name}/data", accept=OCTETS, check=False)).body


def options(case):
    return {k: v for k, v in case.items() if k not in ("arrays", "views", "body")}


class Singles:
    """The statements one after the other, as requests of their own."""

    def __init__(self, c, case):
        self.c, self.case, self.numbers = c, case, {}
        for name, _, _, x in case["body"]:
            if name.startswith("n") and name != "n":
                self.numbers[name] = f"({x})"

    def written(self, x):
        return re.sub(r"\bn\d+\b", lambda m: self.numbers.get(m[0], m[0]), x)

    def used(self, x):
        return {k: v for k, v in self.case["bind"].items() if re.search(rf"\b{k}\b", x)}

    def statement(self, name, index, op, x):
        if name in self.numbers:
            return None
        place = f"{name}[{index}]" if index else name
        x = self.written(f"{place} {op} ({x})" if op else x)
        body = {"expr": x, "bind": self.used(x)}
        if name in self.case["arrays"] or name in self.case["views"] or index:
            body.update({"out": name, **({"index": index} if index else {})})
        else:
            body["name"] = name
        r = self.c.post("/v1/evaluate", body, check=False)
        return None if r.status in (200, 201) else r

    def value(self, x):
        x = self.written(x)
        r = self.c.post("/v1/evaluate", {"expr": x, "bind": self.used(x)}, check=False)
        return self.c.expect(200, r).json()["value"]

    def step(self):
        for s in self.case["body"]:
            r = self.statement(*s)
            if r is not None:
                return r
        return None


def targets(case):
    return sorted({n for n, *_ in case["body"] if n in case["arrays"] or n in case["views"]})


def play_singles(c, case):
    """What a job should tell, and the state it should leave; an error's code where a statement is none."""
    one, records, copies = Singles(c, case), {k: [] for k in case.get("record", {})}, []
    watched = [n for n in targets(case) if case["arrays"].get(n, case["arrays"].get("store")).dtype.kind in "fc"]
    at, stopped, states, nans = 0, "steps", [], []

    def look():
        nans.append(any(one.value(f"any(isnan({n}))") for n in watched))
        states.append({n: bytes_of(c, n) for n in case["arrays"]})

    if case.get("stop_on_nan"):
        look()
    for at in range(1, case["steps"] + 1):
        r = one.step()
        if r is not None:
            return {"error": r.code, "reply": r}
        if case.get("stop_on_nan"):
            look()
        if "record" in case and at % case["record_every"] == 0:
            for k, x in case["record"].items():
                records[k].append(one.value(x))
        for n, every in case.get("snapshot", {}).items():
            if at % every == 0:
                copies.append(bytes_of(c, n))
        if "until" in case and at % case["until_every"] == 0 and one.value(case["until"]):
            stopped = "until"
            break
    return {"state": "done", "step": at, "stopped_by": stopped, "records": records, "copies": copies,
            "arrays": {n: bytes_of(c, n) for n in case["arrays"]}, "states": states, "nans": nans}


def play_program(c, case):
    """As play_singles, by a job."""
    body = {"body": [text(s) for s in case["body"]], **options(case)}
    r = c.post("/v1/programs?wait=1", body, check=False)
    if r.status != 200:
        return {"error": r.code, "reply": r}
    job = r.json()
    told = {"state": job["state"], "step": job["step"], "job": job}
    if job["state"] != "failed":
        told.update(stopped_by=job.get("stopped_by", "steps"), records=job.get("records", {}),
                    copies=[bytes_of(c, s["id"]) for s in job.get("snapshots", [])])
    told["arrays"] = {n: bytes_of(c, n) for n in case["arrays"]}
    return told


def play_statements(c, case):
    """A program of one step, on the request itself."""
    r = c.post("/v1/evaluate", {"statements": [text(s) for s in case["body"]], "bind": case["bind"], "results": []},
               check=False)
    if r.status != 200:
        return {"error": r.code, "reply": r}
    return {"arrays": {n: bytes_of(c, n) for n in case["arrays"]}}


def told(case):
    """The case, to be run again by hand."""
    return json.dumps({"body": [text(s) for s in case["body"]], "views": case["views"], **options(case),
                       "arrays": {n: [a.dtype.name, a.shape] for n, a in case["arrays"].items()}})


def places(like, got, want):
    """Where two arrays' bytes differ; a processor makes of two NaNs which one it likes, and compilers let it."""
    bits = (np.frombuffer(got, "u1") != np.frombuffer(want, "u1")).reshape(like.size, -1).any(1)
    g, w = (np.frombuffer(x, like.dtype) for x in (got, want))
    if like.dtype.kind in "fc":
        parts = like.dtype.itemsize // (2 if like.dtype.kind == "c" else 1)
        g, w = (np.frombuffer(x, f"f{parts}").reshape(like.size, -1) for x in (got, want))
        bits &= ~((g == w) | (np.isnan(g) & np.isnan(w))).all(1)
    return [(tuple(map(int, np.unravel_index(i, like.shape))), g[i], w[i]) for i in np.flatnonzero(bits)]


def differ(case, got, want):
    """What is not the same, if anything."""
    if "error" in want or "error" in got:
        if got.get("error") != want.get("error"):
            return f"{got.get('error') and got['reply']} instead of {want.get('error') and want['reply']}"
        return None
    if case.get("stop_on_nan") and got["state"] == "failed":  # the arrays are of the step before
        if not (want["nans"] + [False])[got["step"] + 1]:
            return f"failed after step {got['step']}, NaNs: {want['nans']}"
        want = {"arrays": want["states"][got["step"]]}
    elif case.get("stop_on_nan") and want["nans"][-1]:
        return "the last step made a NaN"
    for k in ("state", "step", "stopped_by", "records"):
        if k in want and k in got and got[k] != want[k]:
            return f"{k}: {got[k]} instead of {want[k]}"
    pairs = [(n, case["arrays"][n], got["arrays"][n], a) for n, a in want["arrays"].items()]
    for name in case.get("snapshot", {}) if "copies" in want else ():
        if len(got["copies"]) != len(want["copies"]):
            return f"{len(got['copies'])} copies instead of {len(want['copies'])}"
        like = case["arrays"][name] if name in case["arrays"] else None
        pairs += [(f"copy of {name}", like, g, w) for g, w in zip(got["copies"], want["copies"]) if like is not None]
    for name, like, g, w in pairs:
        wrong = places(like, g, w) if g != w else []
        if wrong:
            return f"{name} at {len(wrong)} places, first {wrong[0][0]}: {wrong[0][1]} instead of {wrong[0][2]}"
    return None


def compare(api, case):
    """What differs, the job, and what should be."""
    b = session(api, case)
    want = play_singles(b, case)
    close(api, b)
    a = session(api, case)
    got = play_program(a, case)
    close(api, a)
    wrong = differ(case, got, want)
    if wrong is None and case["steps"] == 1 and "until" not in case and not case.get("stop_on_nan"):
        d = session(api, case)
        expected = {k: want[k] for k in ("error", "reply", "arrays") if k in want}
        wrong = differ({**case, "snapshot": {}}, play_statements(d, case), expected)
        wrong = wrong and f"as statements: {wrong}"
        close(api, d)
    return wrong, got.get("job"), want


# --- the tests ---

def play(api, make, n, seed):
    """Runs n programs; how many of them ran, and of how many a pass was several steps, or fewer kernels."""
    ran = several = fused = 0
    for i in range(int(n * TIMES)):
        case = make(np.random.default_rng([SEED, seed, i]))
        wrong, job, want = compare(api, case)
        assert wrong is None, f"program {i}: {wrong}\n{told(case)}"
        ran += "error" not in want
        if job and "pass" in job:
            several += job["pass"]["steps"] > 1
            fused += job["pass"].get("kernels", 99) < len(case["body"])
    for name in FUNCTIONS:
        api.delete(f"/v1/functions/{name}")
    return ran, several, fused


def test_programs(api):
    n = 500
    ran, _, fused = play(api, a_program, n, 1)
    assert ran > 0.9 * int(n * TIMES) and fused > 0.4 * int(n * TIMES)


def test_stencils(api):
    play(api, a_stencil, 60, 2)


def test_programs_on_a_device(gpu_with):
    n = 5  # each is kernels that the host's compiler makes
    ran, _, fused = play(gpu_with().client(), a_program, n, 3)
    assert ran > 0.8 * int(n * TIMES) and fused > 0.3 * int(n * TIMES)


def test_stencils_on_a_device(gpu_with):
    n = 6
    _, several, _ = play(gpu_with().client(), a_stencil, n, 4)
    assert several >= 0.5 * int(n * TIMES)
