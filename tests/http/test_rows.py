"""Expressions that reduce rows and use what came of it in the same rows (softmax, layer norm): their kernels go through the array row
by row together on the CPU backend, and must give what they give one after the other."""
import os
import random
import time

import numpy as np
import pytest

from client import OCTETS

SEED = int(os.environ.get("ARRAYD_SEED") or time.time())
CASES = 1500 if os.environ.get("ARRAYD_LONG") else 60
SHAPES = [(400, 700), (2100, 64), (7, 60_000), (5, 131_072), (31, 40, 90), (300, 1, 301), (9, 4), (4, 20_000)]

NUMPY = {"abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "where": np.where, "sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean,
         "std": np.std, "var": np.var, "argmax": np.argmax, "any": np.any}
# Each moves by little where what it is made of does: the root of what is nearly nought would not.
MAPS = ["a - {r}", "a / (1 + abs({r}))", "a*a", "exp(-abs(a - {r}))", "where(a > {r}, a, {r})", "sqrt(1 + abs(a*{r}))", "a + index", "a"]
REDUCTIONS = ["sum", "max", "min", "mean", "std", "var", "sum", "max"]


def reduced(rng, expr, axis):
    return f"{rng.choice(REDUCTIONS)}({expr}, axis={axis}, keepdims=True)"


def expression(rng, rank):
    """Of names that are bound in turn; each row's value is of its own row, but now and then of a column, or of all."""
    axis = rng.choice(["-1", "-1", "-1", "(1, 2)", "0"]) if rank == 3 else rng.choice(["-1", "-1", "-1", "-1", "0"])
    lets, names = [], []
    for k in range(rng.randrange(1, 4)):
        use = rng.choice(MAPS).format(r=rng.choice(names) if names else "0.25").replace("index", "0.5")
        last = axis if rng.random() < 0.9 else rng.choice(["-1", "0"])
        lets.append([f"r{k}", reduced(rng, use, last)])
        names.append(f"r{k}")
    return lets, " + ".join(rng.choice(MAPS).format(r=name).replace("index", "0.5") for name in names)


def in_numpy(lets, expr, a):
    names = {**NUMPY, "a": a}
    for name, text in lets:
        names[name] = eval(text, names)
    return eval(expr, names)


def wanted(lets, expr, a):
    """In float64, and how far from it may be: a little, or, where NumPy in float32 is off by more, a few times that. What is left of a
    sum whose terms cancel is what they were rounded by, as is the deviation of equal numbers."""
    want = in_numpy(lets, expr, a.astype("float64"))
    return want, 1e-9 if a.dtype == "float64" else 2e-4 + 4 * np.abs(in_numpy(lets, expr, a) - want).max()


def put(c, name, a):
    r = c.request("PUT", f"/v1/arrays/{name}?dtype={a.dtype}&shape={','.join(map(str, a.shape))}", a.tobytes(), content_type=OCTETS)
    assert r.status in (200, 201), r


@pytest.mark.parametrize("threads", ["1", "3"])
def test_random_rows(daemon_with, threads):
    d = daemon_with("--backend", "cpu", "--threads", threads)
    c = d.client()
    for seed in range(SEED, SEED + CASES):
        rng = random.Random(seed)
        shape, dtype = rng.choice(SHAPES), rng.choice(["float32", "float64"])
        whole = np.random.default_rng(seed).standard_normal((shape[0] + 1, *shape[1:])).astype(dtype)
        lets, expr = expression(rng, len(shape))
        put(c, "whole", whole)
        for name, start in (("up", 0), ("down", 1)):  # rows that overlap
            c.expect(201, c.post("/v1/arrays/whole/views", {"name": name, "index": f"{start}:{shape[0] + start}"}))
        source = rng.choice(["up", "down", "turned"])
        a = whole[1:] if source == "down" else whole[:-1]
        if source == "turned":
            a = a[::-1] if rng.random() < 0.5 else np.moveaxis(a, 0, -1)
            a = np.ascontiguousarray(a) if rng.random() < 0.3 else a
            order = "permute_dims(up, [" + ", ".join(map(str, [*range(1, a.ndim), 0])) + "])" if a.shape != shape else "flip(up, axis=0)"
            lets = [["a", order], *lets]
        else:
            lets = [["a", source], *lets]
        want, off = wanted(lets[1:], expr, a)
        assert np.isfinite(off)
        said = f"seed {seed}: {shape} {dtype} {source} {lets} {expr}"
        if want.shape == shape and rng.random() < 0.5:  # into what it is made of, or what overlaps it
            target, start = rng.choice([("up", 0), ("down", 1)])
            c.expect(200, c.post("/v1/evaluate", {"expr": expr, "let": lets, "out": target}))
            rest = whole.copy()
            rest[start:shape[0] + start] = want
            got = c.download("whole")
            want = rest
        else:
            c.expect(201, c.post("/v1/evaluate", {"expr": expr, "let": lets, "name": "new"}))
            got = c.download("new")
            again = c.expect(200, c.post("/v1/evaluate", {"expr": expr, "let": lets, "out": "new"})) and c.download("new")
            assert got.tobytes() == again.tobytes(), said
            c.expect(204, c.delete("/v1/arrays/new"))
        assert got.dtype == dtype and np.allclose(got, want, rtol=min(off, 2e-4), atol=off), said
        for name in ("up", "down", "whole"):
            c.expect(204, c.delete(f"/v1/arrays/{name}"))
    c.close()


def test_kernels_of_rows_in_a_program(daemon_with):
    """Step by step, in place, beside the same as single requests."""
    d = daemon_with("--backend", "cpu", "--threads", "3")
    c = d.client()
    a = np.random.default_rng(3).random((500, 300))
    put(c, "u", a)
    put(c, "v", a)
    step = "({x} - mean({x}, axis=1, keepdims=True)) / (1 + std({x}, axis=1, keepdims=True)) + 0.5"
    c.expect(200, c.post("/v1/programs?wait=1", {"body": ["u = " + step.format(x="u")], "steps": 25}))
    for _ in range(25):
        c.expect(200, c.post("/v1/evaluate", {"expr": step.format(x="v"), "out": "v"}))
    assert c.download("u").tobytes() == c.download("v").tobytes()
    for _ in range(25):
        a = (a - a.mean(1, keepdims=True)) / (1 + a.std(1, keepdims=True)) + 0.5
    assert np.allclose(c.download("u"), a)
    c.close()
