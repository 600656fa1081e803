"""Playing cases on a daemon: as they are, and as requests that each do one thing; what differs; the smallest case that
still differs; and the requests as curl lines."""
import copy
import http.client
import json
import re
import zlib

import numpy as np

import grow
import model

JSON, OCTETS = "application/json", "application/octet-stream"


class Lost(Exception):
    """The daemon is gone, or answers 500."""


class Daemon:
    """One connection."""

    def __init__(self, host, port, token=None, session=None):
        self.host, self.port, self.token, self.session = host, port, token, session
        self.conn = http.client.HTTPConnection(host, port, timeout=300)

    def ask(self, method, path, body=None, accept=JSON):
        """(status, JSON or bytes)."""
        headers = {"Accept": accept}
        if body is not None:
            body = json.dumps(body).encode()
            headers["Content-Type"] = JSON
        elif method in ("POST", "PUT"):
            body = b""
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.session:
            headers["Arrayd-Session"] = self.session
        for last in (False, True):
            try:
                self.conn.request(method, path, body, headers)
                r = self.conn.getresponse()
                data = r.read()
                break
            except (OSError, http.client.HTTPException) as e:
                self.conn.close()
                if last:
                    raise Lost(f"{method} {path}: {e!r}") from None
        if r.status >= 500 and r.status not in (501, 507):
            raise Lost(f"{method} {path}: {r.status} {data[:2000]!r}")
        kind = (r.getheader("Content-Type") or "").split(";")[0]
        return r.status, json.loads(data) if data and kind.endswith("json") else data

    def want(self, method, path, body=None, accept=JSON):
        status, reply = self.ask(method, path, body, accept)
        if status >= 300:
            raise AssertionError(f"{method} {path} {json.dumps(body)}: {status} {reply}")
        return reply

    def open(self):
        """Another connection, in a session of its own."""
        return Daemon(self.host, self.port, self.token, self.want("POST", "/v1/sessions", {})["id"])

    def close(self):
        self.ask("DELETE", f"/v1/sessions/{self.session}")
        self.conn.close()


# --- arrays ---

def creation(case):
    """The requests that make a case's arrays, as ("METHOD path", body)."""
    for name, f in case["fields"].items():
        shape, dtype = grow.extents(case["shape"], f["as"]), f["dtype"]
        kind = grow.kind_of(dtype)
        seed = (case["seed"] * 31 + zlib.crc32(name.encode())) & 0xffffffff
        n = case["shape"][f["as"][1]] if f["as"][0] == "line" else 0
        low, high = {"b": (0, 2), "i": (-3, 4), "u": (0, 7)}.get(kind, (-1, 1))
        if n:
            low, high = (-n - 3, n + 4) if f.get("wild") else (-n, n)
        if f.get("scale"):
            low, high = -2, 1.2 * max(case["shape"])
        new = {"name": name, "shape": shape, "dtype": dtype,
               **({"ghost": [f["ghost"]] * len(shape)} if f.get("ghost") else {})}
        random = {"distribution": "integers" if kind in "iub" else "uniform", "seed": seed, "low": low, "high": high}
        if kind in "iuf" and not f.get("ghost"):
            yield "POST /v1/arrays", {**new, "random": random}
        else:
            parts = ["re", "im"] if kind == "c" else ["re"]
            for k, part in enumerate(parts):
                whole = [x + 2 * f.get("ghost", 0) for x in shape]
                yield f"PUT /v1/arrays/{part}_", {"shape": whole, "dtype": "int64" if kind in "iub" else "float64",
                                     "random": {**random, "seed": (seed + k) & 0xffffffff}}
            expr = "re_ > 0" if kind == "b" else "re_ + 1j*im_" if kind == "c" else "re_"
            if f.get("ghost"):
                yield "POST /v1/arrays", new
                yield f"POST /v1/arrays/{name}/views", {"ghost": True, "name": f"{name}_all"}
                yield "POST /v1/evaluate", {"expr": f"astype({expr}, '{dtype}')", "out": f"{name}_all"}
            else:
                yield "POST /v1/evaluate", {"expr": f"astype({expr}, '{dtype}')", "name": name}
        if f.get("odd") and kind == "f" and all(shape):
            for k, value in enumerate(["nan", "inf", "-0.0", "1e-42"]):
                at = [seed // 7 ** (a + k) % x for a, x in enumerate(shape)]
                yield "POST /v1/evaluate", {"expr": value, "out": name, "index": ", ".join(map(str, at))}
    for name, (params, expr) in case.get("functions", {}).items():
        yield f"PUT /v1/functions/{name}", {"params": params, "expr": expr}
    for name, (base, index) in case["views"].items():
        yield f"POST /v1/arrays/{base}/views", {"index": index, "name": name}


def make(c, case):
    for request, body in creation(case):
        c.want(*request.split(), body)


def raw(c, name):
    return c.want("GET", f"/v1/arrays/{name}/data", accept=OCTETS)


def values(data, dtype, shape):
    """The elements, as model.py computes with them."""
    if dtype == "bfloat16":
        return (np.frombuffer(data, "<u2").astype("u4") << 16).view("f4").astype("float64").reshape(shape)
    a = np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).reshape(shape)
    kind = grow.kind_of(dtype)
    return a.astype("float64" if kind == "f" else "complex128" if kind == "c" else dtype)


def written(case):
    return sorted({n for n, *_ in case["body"] if n in case["fields"] or n in case["views"]})


def type_of(case, name):
    return case["fields"][case["views"][name][0] if name in case["views"] else name]["dtype"]


def looked_at(case):
    """The fields whose memory a case writes."""
    return sorted({case["views"][n][0] if n in case["views"] else n for n in written(case)})


# --- the case, and the same one thing at a time ---

OPTIONS = ("steps", "until", "until_every", "record", "record_every", "snapshot", "stop_on_nan")


def program(case):
    return {"body": [grow.statement(*s) for s in case["body"]], "bind": case["bind"],
            **{k: case[k] for k in OPTIONS if k in case}}


def as_program(c, case):
    status, job = c.ask("POST", "/v1/programs?wait=1", program(case))
    if status != 200:
        return {"error": job["code"], "detail": job["detail"]}
    told = {"state": job["state"], "step": job["step"], "arrays": {n: raw(c, n) for n in looked_at(case)}}
    if job["state"] == "failed":
        if not case.get("stop_on_nan") or job["error"]["code"] != "not_a_number":
            return {"error": job["error"]["code"], "detail": job["error"]["detail"]}
        return told
    return {**told, "stopped_by": job.get("stopped_by", "steps"), "records": job.get("records", {}),
            "copies": [raw(c, s["id"]) for s in job.get("snapshots", [])]}


def as_statements(c, case):
    """A program of one step, on the request itself."""
    p = program(case)
    status, reply = c.ask("POST", "/v1/evaluate", {"statements": p["body"], "bind": p["bind"], "results": []})
    if status != 200:
        return {"error": reply["code"], "detail": reply["detail"]}
    return {"arrays": {n: raw(c, n) for n in looked_at(case)}}


class Alone:
    """A case's statements, each a request."""

    def __init__(self, c, case):
        self.c, self.case = c, case
        # statements of numbers alone are written out: as arrays of no axes they would be less weak
        known = {*case["fields"], *case["views"]}
        self.numbers = {}
        for name, _, _, tree in case["body"]:
            if name not in known and not any(n in known or n not in {*case["bind"], *self.numbers}
                                             for n in grow.names_in(tree)):
                self.numbers[name] = grow.text(tree)

    def written_out(self, text):
        for _ in self.numbers:
            text = re.sub(r"\bn\d+\b", lambda m: f"({self.numbers[m[0]]})" if m[0] in self.numbers else m[0], text)
        return text

    def evaluate(self, text, **more):
        text = self.written_out(text)
        bind = {k: v for k, v in self.case["bind"].items() if re.search(rf"\b{k}\b", text)}
        return self.c.ask("POST", "/v1/evaluate", {"expr": text, "bind": bind, **more})

    def statement(self, name, index, op, tree):
        if name in self.numbers:
            return None
        text = grow.text(tree)
        if op:
            text = f"{name}{f'[{index}]' if index else ''} {op} ({text})"
        target = name in self.case["fields"] or name in self.case["views"]
        status, reply = self.evaluate(text, **({"out": name, **({"index": index} if index else {})} if target else
                                               {"name": name}))
        return None if status < 300 else reply

    def value(self, text):
        status, reply = self.evaluate(text)
        if status != 200:
            raise AssertionError(f"{text}: {status} {reply}")
        return reply["value"]


def one_by_one(c, case):
    one, records, copies, stopped = Alone(c, case), {k: [] for k in case.get("record", {})}, [], "steps"
    watched = [n for n in written(case) if grow.kind_of(type_of(case, n)) in "fc"] if case.get("stop_on_nan") else []
    state, before = "done", None

    def result():
        return {"state": state, "step": at, "stopped_by": stopped, "records": records, "copies": copies,
                "arrays": before if state == "failed" else {n: raw(c, n) for n in looked_at(case)}}

    for at in range(1, case["steps"] + 1):
        before = {n: raw(c, n) for n in looked_at(case)} if watched else None
        for s in case["body"]:
            reply = one.statement(*s)
            if reply:
                return {"error": reply["code"], "detail": reply["detail"]}
        if any(one.value(f"any(isnan({n}))") for n in watched):
            at, state = at - 1, "failed"
            return {k: v for k, v in result().items() if k in ("state", "step", "arrays")}
        if "record" in case and at % case["record_every"] == 0:
            for k, x in case["record"].items():
                records[k].append(one.value(x))
        copies += [raw(c, n) for n, every in case.get("snapshot", {}).items() if at % every == 0]
        if "until" in case and at % case["until_every"] == 0 and one.value(case["until"]):
            stopped = "until"
            break
    return result()


def as_expression(c, case):
    tree = case["body"][0][3]
    status, reply = Alone(c, case).evaluate(grow.text(tree), name="result")
    if status >= 300:
        return {"error": reply["code"], "detail": reply["detail"]}
    return {"arrays": {"result": raw(c, "result")}, "dtype": reply["dtype"], "shape": reply["shape"]}


def node_by_node(c, case):
    """Every operation of an expression as a request of its own."""
    one, count = Alone(c, case), 0

    def stored(tree):
        nonlocal count
        what = tree[0]
        if not any(n in case["fields"] or n in case["views"] for n in grow.names_in(tree)) or what == "name":
            return tree
        ghost = what == "call" and tree[3].get("boundary") == "ghost"
        tree = [stored(x) if isinstance(x, list) and x and isinstance(x[0], str) else
                [stored(y) for y in x] if isinstance(x, list) and what == "call" and not ghost and k == 2 else x
                for k, x in enumerate(tree)]
        name = f"q{count}"
        count += 1
        status, reply = one.evaluate(grow.text(tree), name=name)
        if status >= 300:
            raise Refused(reply)
        return ["name", name]

    try:
        last = stored(case["body"][0][3])
    except Refused as e:
        return {"error": e.args[0]["code"], "detail": e.args[0]["detail"]}
    if last[0] != "name":  # of numbers alone
        return as_expression(c, case)
    m = c.want("GET", f"/v1/arrays/{last[1]}")
    return {"arrays": {"result": raw(c, last[1])}, "dtype": m["dtype"], "shape": m["shape"]}


class Refused(Exception):
    pass


# --- what differs ---

def places(dtype, got, want):
    """How many elements differ, and the first; a processor makes of two NaNs which one it likes."""
    if len(got) != len(want):
        return "another number of bytes"
    size = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    bits = (np.frombuffer(got, "u1") != np.frombuffer(want, "u1")).reshape(-1, size).any(1)
    g, w = values(got, dtype, -1), values(want, dtype, -1)
    if grow.kind_of(dtype) in "fc":
        both = [np.stack([x.real, x.imag]) for x in (g, w)]
        bits &= ~((both[0] == both[1]) | (np.isnan(both[0]) & np.isnan(both[1]))).all(0) | \
            ((g == 0) & (w == 0) & (np.signbit(both[0]) != np.signbit(both[1])).any(0))
    at = np.flatnonzero(bits)
    return f"{len(at)} of {len(g)} elements, first {at[0]}: {g[at[0]]} instead of {w[at[0]]}" if len(at) else None


def differ(case, got, want):
    if "error" in got or "error" in want:
        if got.get("error") != want.get("error"):
            return f"{got.get('error')} ({got.get('detail')}) instead of {want.get('error')} ({want.get('detail')})"
        return None
    for k in ("state", "step", "stopped_by", "records", "dtype", "shape"):
        if k in got and k in want and got[k] != want[k]:
            return f"{k}: {got[k]} instead of {want[k]}"
    pairs = [(n, want.get("dtype") or type_of(case, n), got["arrays"][n], data) for n, data in want["arrays"].items()]
    if case.get("snapshot") and "copies" in want:
        if len(got["copies"]) != len(want["copies"]):
            return f"{len(got['copies'])} copies instead of {len(want['copies'])}"
        [name] = case["snapshot"]
        pairs += [(f"copy of {name}", type_of(case, name), g, w) for g, w in zip(got["copies"], want["copies"])]
    for n, dtype, g, w in pairs:
        wrong = g != w and places(dtype, g, w)
        if wrong:
            return f"{n}: {wrong}"
    return None


EPS = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1.2e-7, "float64": 2.3e-16, "complex64": 1.2e-7, "complex128": 2.3e-16}


def off(case, dtype, a, b, bound):
    """Which elements are not the model's; None where it cannot be told."""
    with np.errstate(all="ignore"):
        if a.dtype.kind == "b" or b.dtype.kind == "b":
            return a.astype(bool) != b.astype(bool)
        x, y = a.astype("complex128"), b.astype("complex128")
        scale = np.nanmax(np.abs(y[np.isfinite(y)]), initial=0)
        largest = {"float16": 6e4, "float32": 1e38, "bfloat16": 1e38, "complex64": 1e38}.get(dtype, 1e300)
        inexact = case.get("sharp") and a.dtype.kind in "iu" and scale > 2**50  # not exact in float64
        if bound > 0.1 or scale > largest / 1e3 or inexact:
            return None
        return ~((np.abs(x - y) <= bound * (1 + scale)) | ((x != x) & (y != y)) | (x == y))


def nudged(arrays, types, nudge):
    """The arrays, as rounding may have left them."""
    return {n: a if grow.kind_of(types[n]) not in "fc" else (nudge(a[0]), a[1]) if isinstance(a, tuple) else nudge(a)
            for n, a in arrays.items()}


def far_off(case, got, before, types):
    """What is not what NumPy has. Where that itself depends on last digits, as many elements may differ as do when
    those change; and where numbers are compared or cut off, some more: what is too small for float32 is not for
    float64, and is then something else as a bool."""
    casts = [x[3]["dtype"] for s in case["body"] for x in grow.walk(s[3]) if x[0] == "call" and "dtype" in x[3]]
    eps = max([EPS[t] for t in [*types.values(), *casts] if t in EPS] + [EPS["float64"]])
    steps = got.get("step", 1)
    amount = 1 + sum(1 for s in case["body"] for _ in grow.walk(s[3]))
    bound = eps * amount * max(4, steps) * 16

    def model_of(arrays, nudge=None):
        names = model.steps(case, copy.deepcopy(arrays), types, steps, nudge)
        return {n: np.asarray(model.bare(names[n])) for n in got["arrays"]}

    want, others = model_of(before), None
    for n, b in want.items():
        dtype = got.get("dtype") or types[n]
        shape = got["shape"] if "shape" in got else b.shape
        if list(shape) != list(b.shape):
            return f"{n} has the shape {shape}, NumPy's {b.shape}"
        a = values(got["arrays"][n], dtype, shape)
        wrong = off(case, dtype, a, b, bound) if a.size else None
        if wrong is None or not wrong.any():
            continue
        if others is None:
            rng = np.random.default_rng(case["seed"])

            def nudge(x):
                with np.errstate(all="ignore"):
                    return x * (1 + 16 * eps * rng.uniform(-1, 1, np.shape(x)))

            others = [model_of(nudged(before, types, nudge), nudge) for _ in range(3)]
        soft = sum((off(case, dtype, o[n], b, bound / 4) for o in others), np.zeros(b.shape, int)) > 0
        most = 3 * soft.sum() + (max(3, (0.3 + 0.03 * steps) * a.size) if case.get("sharp") else 0)
        if wrong.sum() > most:
            k = tuple(int(i) for i in np.argwhere(wrong)[0])
            return f"{n}: {int(wrong.sum())} of {a.size} elements are not NumPy's, first {k}: {a[k]}, NumPy's {b[k]}"
    return None


def state_of(c, case):
    """The arrays before anything runs, for model.py, and their types."""
    arrays, types = {}, {}
    for name, f in case["fields"].items():
        shape, g = grow.extents(case["shape"], f["as"]), f.get("ghost", 0)
        data = raw(c, f"{name}_all" if g else name)
        a = values(data, f["dtype"], [n + 2 * g for n in shape]).copy()
        arrays[name], types[name] = (a, g) if g else a, f["dtype"]
    return arrays, types


class Outcome:
    def __init__(self, wrong, kernels=(), error=None, compared=False):
        self.wrong, self.kernels, self.error, self.compared = wrong, kernels, error, compared


def explain(c, case):
    if case.get("expression"):
        s = case["body"][0][3]
        status, reply = c.ask("POST", "/v1/explain", {"expr": grow.text(s), "bind": {
            k: v for k, v in case["bind"].items() if k in grow.names_in(s)}})
    else:
        status, reply = c.ask("POST", "/v1/explain", program(case))
    return reply["kernels"] if status == 200 else []


def play(daemon, case, numpy=True):
    """Runs a case both ways. Lost goes through."""
    whole, alone = daemon.open(), daemon.open()
    try:
        make(whole, case)
        make(alone, case)
        kernels = explain(whole, case)
        before = state_of(whole, case) if numpy else None
        got = (as_expression if case.get("expression") else as_program)(whole, case)
        want = (node_by_node if case.get("expression") else one_by_one)(alone, case)
        wrong = differ(case, got, want)
        if wrong and case.get("stop_on_nan") and got.get("step", 0) > want.get("step", 0):
            # NaNs that came and went within a slice are not seen: what follows is as if they were not looked for
            third = daemon.open()
            make(third, case)
            want = one_by_one(third, {**{k: v for k, v in case.items() if k != "stop_on_nan"}, "steps": got["step"]})
            wrong = differ(case, {k: v for k, v in got.items() if k != "state"}, want)
            third.close()
        if wrong is None and case.get("steps") == 1 and not any(k in case for k in OPTIONS[1:]):
            third = daemon.open()
            make(third, case)
            wrong = differ(case, as_statements(third, case), want)
            wrong = wrong and f"as statements: {wrong}"
            third.close()
        compared = bool(wrong is None and numpy and "error" not in got and got.get("state") != "failed")
        if compared:
            wrong = far_off(case, got, *before)
    finally:
        whole.close()
        alone.close()
    return Outcome(wrong, kernels, got.get("error"), compared)


# --- smaller ---

def lighter(case):
    """Cases that are a little smaller."""
    for k in ("record", "until", "snapshot", "stop_on_nan"):
        if k in case:
            yield {n: v for n, v in case.items() if not n.startswith(k)}
    for k in range(len(case["body"])):
        if len(case["body"]) > 1:
            yield {**case, "body": case["body"][:k] + case["body"][k + 1:]}
    for steps in (1, case.get("steps", 1) // 2, case.get("steps", 1) - 1):
        if 0 < steps < case.get("steps", 1):
            yield {**case, "steps": steps}
    for a, n in enumerate(case["shape"]):
        for m in sorted({1, 2, n // 2, n - n % 8, n - 1} - {n, 0}):
            if m < n:
                yield {**case, "shape": case["shape"][:a] + [m] + case["shape"][a + 1:]}
    for k, s in enumerate(case["body"]):
        for tree in simpler(s[3]):
            yield {**case, "body": case["body"][:k] + [[*s[:3], tree]] + case["body"][k + 1:]}
    used = {n for s in case["body"] for n in {s[0], *grow.names_in(s[3])}}
    used |= {case["views"][n][0] for n in used if n in case["views"]}
    used |= set(re.findall(r"\w+", json.dumps([case.get(k) for k in ("until", "record", "snapshot")])))
    if any(n not in used for n in [*case["fields"], *case["views"]]):
        yield {**case, "fields": {n: f for n, f in case["fields"].items() if n in used},
               "views": {n: v for n, v in case["views"].items() if n in used}}


def simpler(tree):
    """The tree with one of its inner trees in place of what holds it."""
    if tree[0] in ("name", "num", "index"):
        return
    inner = [(k, None, x) for k, x in enumerate(tree) if isinstance(x, list) and x and isinstance(x[0], str)]
    if tree[0] == "call":
        inner = [(2, j, x) for j, x in enumerate(tree[2])]
    for _, _, x in inner:
        if tree[0] != "part":
            yield x
    for k, j, x in inner:
        for y in simpler(x):
            new = copy.copy(tree)
            if j is None:
                new[k] = y
            else:
                new[2] = tree[2][:j] + [y] + tree[2][j + 1:]
            yield new


def shrunk(case, fails, tries=300):
    """The smallest case found that still fails."""
    again = True
    while again and tries > 0:
        again = False
        for smaller in lighter(case):
            tries -= 1
            if tries < 0:
                break
            if fails(smaller):
                case, again = smaller, True
                break
    return case


def curl(case, base="http://127.0.0.1:7411"):
    """The case as lines for a shell, in a fresh daemon."""
    def line(request, body):
        method, path = request.split()
        how = "" if method == "POST" else f"-X {method} "
        return f"curl {how}--json '" + json.dumps(body).replace("'", "'\\''") + f"' '{base}{path}'"
    lines = [line(request, body) for request, body in creation(case)]
    if case.get("expression"):
        lines.append(line("POST /v1/evaluate", {"expr": grow.text(case["body"][0][3]), "bind": case["bind"], "name": "result"}))
        return lines + [f"curl {base}/v1/arrays/result/data -o result"]
    lines.append(line("POST /v1/programs?wait=1", program(case)))
    return lines + [f"curl {base}/v1/arrays/{n}/data -o {n}" for n in looked_at(case)]
