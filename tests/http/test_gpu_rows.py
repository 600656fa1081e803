"""Reductions of rows and what is made of them: a GPU runs them as one kernel, a whole, with the bits of its parts."""
import os
import random
import re
import time

import numpy as np
import pytest

from conftest import until

SEED = int(os.environ.get("ARRAYD_SEED") or time.time())
CASES = 150 if os.environ.get("ARRAYD_LONG") else 8


def wholes(c):
    return int(re.search(r"^arrayd_cuda_wholes_total (\d+)$", c.get("/metrics").body.decode(), re.M)[1])


def explained(c, expr, **fields):
    return c.expect(200, c.post("/v1/explain", {"expr": expr, **fields})).json()


def same_bits(x, y):
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


@pytest.fixture
def gpu(gpu_with):
    return gpu_with("--interpreter=no").client()


def parts_and_whole(c, expr, **fields):
    """What the kernels give one by one, and what the whole in their place does once it is compiled."""
    before = wholes(c)
    parts = c.evaluate(expr, **fields)  # nothing is compiled
    assert wholes(c) == before, "compiled before"
    seen = []

    def ran():
        seen.append(c.evaluate(expr, **fields))
        return wholes(c) > before

    until(ran)
    assert all(same_bits(parts, x) for x in seen)
    return parts


SOFTMAX = "exp(x - max(x, axis=-1, keepdims=True)) / sum(exp(x - max(x, axis=-1, keepdims=True)), axis=-1, keepdims=True)"


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_softmax(gpu):
    x = np.random.default_rng(1).standard_normal((37, 512)).astype(np.float32)
    gpu.upload(x, "x")
    assert np.allclose(parts_and_whole(gpu, SOFTMAX), softmax(x.astype(np.float64)), rtol=2e-6)
    e = explained(gpu, SOFTMAX)
    assert len(e["kernels"]) == 3
    [whole] = e["wholes"]
    assert whole["kernels"] == [0, 1, 2] and whole["shape"] == "fold" and "fold.cuh" in whole["source"], whole
    assert whole["bytes_read"] == whole["bytes_written"] == x.nbytes


# By name: of x, rows are the last axis, w is a row, r has a number a row.
LEVELS = {
    "log-softmax": ("y - log(sum(exp(y), axis=-1, keepdims=True))", [["y", "x - max(x, axis=-1, keepdims=True)"]]),
    "layer norm": ("d / sqrt(mean(d*d, axis=-1, keepdims=True) + 1e-5) * w + 0.5", [["d", "x - mean(x, axis=-1, keepdims=True)"]]),
    "standardised": ("(x - mean(x, axis=-1, keepdims=True)) / std(x, axis=-1, keepdims=True)", []),
    "by the norm": ("x / norm(x, axis=-1, keepdims=True) + r", []),
    "to 0..1": ("(x - l) / (max(x, axis=-1, keepdims=True) - l)", [["l", "min(x, axis=-1, keepdims=True)"]]),
    "from the largest": ("x[...] - argmax(x*w, axis=-1, keepdims=True)", []),
    "summed again": ("sum((x - mean(x, axis=-1, keepdims=True))*w, axis=-1)", []),
    "statistics": ("mean(x, axis=-1) * std(x, axis=-1)", []),
    "products": ("x + prod(1 + x/100, axis=-1, keepdims=True)", []),
}


@pytest.mark.in_turn
@pytest.mark.parametrize("length", [5, 31, 64, 513, 1000, 4096])
def test_levels(gpu, length):
    rng = np.random.default_rng(length)
    x = rng.standard_normal((9, length)).astype(np.float32)
    gpu.upload(x, "x")
    gpu.upload(rng.standard_normal(length).astype(np.float32), "w")
    gpu.upload(rng.standard_normal((9, 1)).astype(np.float32), "r")
    for name, (expr, let) in LEVELS.items():
        parts_and_whole(gpu, expr, let=let)
        assert explained(gpu, expr, let=let)["wholes"], name


@pytest.mark.in_turn
@pytest.mark.parametrize("length, dtype", [(17000, "float32"), (57000, "float32"), (40008, "float16")])
def test_rows_that_registers_do_not_hold(gpu, length, dtype):
    """In part they lie in shared memory, whose chunks come first, so the last one is not whole."""
    rng = np.random.default_rng(length)
    x = rng.standard_normal((133, length)).astype(dtype)  # fewer would be cut
    gpu.upload(x, "x")
    gpu.upload(rng.standard_normal(length).astype(dtype), "w")
    gpu.upload(rng.standard_normal((133, 1)).astype(dtype), "r")
    for name in ("layer norm", "from the largest", "log-softmax") if length == 17000 else ("standardised",):
        expr, let = LEVELS[name]
        parts_and_whole(gpu, expr, let=let)
        [whole] = explained(gpu, expr, let=let)["wholes"]
        assert int(re.search(r"#define AR_HELD (\d+)", whole["source"])[1]) > 0, name
    if length == 17000:  # quotients of all sizes, by divisors of all sizes
        rng.shuffle(sizes := np.repeat(np.float32(10.0) ** np.arange(-38, 38, 4), 7)[:133])
        y = x * sizes[:, None] * np.float32(10.0) ** rng.integers(-30, 3, x.shape).astype(np.float32)
        y[3, ::3], y[4, 7], y[5, 8] = 0, np.inf, np.nan
        y[6, ::5] *= -0.0
        gpu.upload(y.astype(dtype), "y")
        parts_and_whole(gpu, "y / (max(y, axis=-1, keepdims=True) - 1e-30*min(y, axis=-1, keepdims=True))")
    got = parts_and_whole(gpu, SOFTMAX)
    assert np.allclose(got, softmax(x.astype(np.float64)), rtol=2e-6 if dtype == "float32" else 2e-3, atol=1e-7)


@pytest.mark.in_turn
def test_long_rows_made_of_indices(gpu):
    """They hold nothing in shared memory: what registers do not keep is computed again."""
    x = np.random.default_rng(3).standard_normal((128, 1)).astype(np.float32)
    gpu.upload(x, "x")
    let = [["k", "astype(index(1)*0.001 - broadcast_to(x, [128, 33000]), 'float32')"], ["e", "exp(0 - k*k)"]]
    got = parts_and_whole(gpu, "e / sum(e, axis=1, keepdims=True)", let=let)
    e = np.exp(-np.square(np.arange(33_000) * 0.001 - x))
    assert np.allclose(got, e / e.sum(1, keepdims=True), rtol=1e-4, atol=1e-9)
    [whole] = explained(gpu, "e / sum(e, axis=1, keepdims=True)", let=let)["wholes"]
    assert "#define AR_CELL 0" in whole["source"] and "not compiled" not in whole["source"], whole


@pytest.mark.in_turn
def test_many_reductions_of_long_rows(gpu):
    """Their states share a block's memory with the rows."""
    of = "x / ({})".format
    some, many = (of(" + ".join(f"max(x*{k}, axis=1, keepdims=True)" for k in range(1, n + 1))) for n in (11, 12))
    gpu.upload(np.random.default_rng(3).standard_normal((133, 17_000)).astype(np.float32), "x")
    parts_and_whole(gpu, many)
    gpu.expect(204, gpu.delete("/v1/arrays/x"))
    for expr, length, shape in ((some, 88_064, "fold"), (many, 86_016, "fold"), (many, 88_064, "reduce-inner")):
        gpu.create(name="x", shape=[133, length], dtype="float32", fill=1)
        [whole] = explained(gpu, expr)["wholes"]
        assert whole["shape"] == shape and "not compiled" not in whole["source"], whole["source"][:400]
        gpu.expect(204, gpu.delete("/v1/arrays/x"))


@pytest.mark.in_turn
@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8", "complex64", "bool"])
def test_dtypes(gpu, dtype):
    x = np.random.default_rng(7).standard_normal((6, 260)) * 20
    gpu.upload(x.astype(dtype), "x")
    centred = "x - mean(x, axis=-1, keepdims=True)"
    parts_and_whole(gpu, centred)
    if dtype not in ("complex64", "bool"):
        parts_and_whole(gpu, SOFTMAX)
        parts_and_whole(gpu, "where(isnan(x/2), 0, x/2) - nanvar(x/2, axis=-1, keepdims=True) + nanmax(x/2, axis=-1, keepdims=True)")


def test_bfloat16(gpu):
    gpu.upload(np.random.default_rng(8).standard_normal((6, 1000)).astype(np.float32), "y")
    gpu.expect(201, gpu.post("/v1/evaluate", {"expr": "astype(y, 'bfloat16')", "name": "x"}))
    parts_and_whole(gpu, f"astype({SOFTMAX}, 'float32')")


def test_several_axes_make_a_row(gpu):
    x = np.random.default_rng(2).standard_normal((5, 6, 8, 12)).astype(np.float32)
    gpu.upload(x, "x")
    got = parts_and_whole(gpu, "x - mean(x, axis=(2, 3), keepdims=True)")
    assert np.allclose(got, x - x.mean((2, 3), keepdims=True), atol=1e-6)
    parts_and_whole(gpu, "(x - mean(x)) / std(x)")  # one row
    for other in ("x - mean(x, axis=0)", "x - mean(x, axis=(1, 3), keepdims=True)"):
        for w in explained(gpu, other)["wholes"]:
            assert w["why"] == "a row is not the fastest axes" or "ways" in w["why"], w


def test_numbers_that_are_none(gpu):
    x = np.random.default_rng(2).standard_normal((8, 96)).astype(np.float32)
    x[1, 5] = np.nan
    x[2, 7] = np.inf
    x[3, 8] = -np.inf
    x[4] = -np.inf
    gpu.upload(x, "x")
    parts_and_whole(gpu, SOFTMAX)
    parts_and_whole(gpu, "nanmax(x, axis=1, keepdims=True) - x + nanmean(x, axis=1, keepdims=True)")


def test_long_rows_stay_parts(gpu):
    gpu.create(name="x", shape=[3, 40_000], fill=1)
    [whole] = explained(gpu, SOFTMAX)["wholes"]
    assert whole == {"kernels": [0, 1, 2], "why": "there are too few rows: several blocks share one"}
    before = wholes(gpu)
    for _ in range(4):
        assert np.allclose(gpu.evaluate(SOFTMAX), 1 / 40_000)
    assert wholes(gpu) == before


# Reductions of all of x, or of its columns: they are siblings, the map is a kernel of its own.
@pytest.mark.in_turn
@pytest.mark.parametrize("shape", [(170, 400), (3, 50_000), (100_001,)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_siblings(gpu, shape, dtype):
    x = (np.random.default_rng(5).standard_normal(shape) + 3).astype(dtype)
    gpu.upload(x, "x")
    got = parts_and_whole(gpu, "(x - mean(x)) / std(x)")
    assert np.allclose(got, (x - x.mean(dtype="float64")) / x.std(dtype="float64"), atol=1e-4)
    [whole] = explained(gpu, "(x - mean(x)) / std(x)")["wholes"]
    assert whole["kernels"] == [0, 1] and whole["shape"] == "reduce-all", whole
    for expr in ("(x - min(x)) / (max(x) - min(x))", "argmax(x) + argmin(x)", "(x - min(x, axis=0)) / (max(x, axis=0) - sum(x, axis=0))",
                 "mean(x, axis=0) * var(x, axis=0)"):
        if x.ndim > 1 or "axis" not in expr:
            parts_and_whole(gpu, expr)
            assert all("why" not in w for w in explained(gpu, expr)["wholes"]), expr


def test_where_it_reads_and_writes(gpu):
    """In place a whole runs; where rows overlap those they are made of, its parts do."""
    rows = np.random.default_rng(4).standard_normal((20, 100)).astype(np.float32)
    for target, own in (("up", True), ("down", False)):
        gpu.upload(rows, "whole")
        for name, index in (("up", "0:19"), ("down", "1:20")):
            gpu.expect(201, gpu.post("/v1/arrays/whole/views", {"name": name, "index": index}))
        want = rows.copy()
        for _ in range(6):
            made = softmax(want[:19].astype(np.float64))
            want[slice(0, 19) if own else slice(1, 20)] = made
            gpu.expect(200, gpu.post("/v1/evaluate", {"expr": SOFTMAX, "let": [["x", "up"]], "out": target}))
        assert np.allclose(gpu.download("whole"), want, rtol=1e-4)
        for name in ("up", "down", "whole"):
            gpu.expect(204, gpu.delete(f"/v1/arrays/{name}"))


MAPS = ["x - {r}", "x / (1 + abs({r}))", "exp(-abs(x - {r}))", "where(x > {r}, x, {r})", "sqrt(abs(x*{r}))", "x*w + {r}"]
REDUCTIONS = ["sum", "max", "min", "mean", "std", "var", "norm", "logsumexp", "argmin", "prod", "nanmean"]


@pytest.mark.in_turn
def test_random_rows(gpu):
    found = 0
    for seed in range(SEED, SEED + CASES):
        rng = random.Random(seed)
        shape = rng.choice([(30, 60), (3, 700), (2, 3, 90), (40, 7), (5, 1025)])
        dtype = rng.choice(["float32", "float32", "float64", "float16"])
        made = np.random.default_rng(seed)
        gpu.upload(made.standard_normal(shape).astype(dtype), "x")
        gpu.upload(made.standard_normal(shape[-1:]).astype(dtype), "w")
        let, r = [], "0.25"
        for k in range(rng.randrange(1, 4)):
            let.append([f"r{k}", f"{rng.choice(REDUCTIONS)}({rng.choice(MAPS).format(r=r)}, axis=-1, keepdims=True)"])
            r = rng.choice(let)[0]
        expr = " + ".join(rng.choice(MAPS).format(r=name) for name, _ in let)
        said = f"seed {seed}: {shape} {dtype} {let} {expr}"
        before, parts = wholes(gpu), gpu.evaluate(expr, let=let)
        if any("why" not in w for w in explained(gpu, expr, let=let)["wholes"]):  # and compiles it
            until(lambda: same_bits(gpu.evaluate(expr, let=let), parts) is not None and wholes(gpu) > before)
            found += 1
        assert same_bits(gpu.evaluate(expr, let=let), parts), said
        for name in "xw":
            gpu.expect(204, gpu.delete(f"/v1/arrays/{name}"))
    assert found > CASES // 2  # what reads an index, say, is none


# Name: body, bound arrays. A step of each is several kernels, some of which are a whole.
PROGRAMS = {
    "softmax": ["e = exp(x - max(x, axis=-1, keepdims=True))", "x = e / sum(e, axis=-1, keepdims=True) + 0.5*x"],
    "layer norm": ["d = x - mean(x, axis=-1, keepdims=True)", "x += d / sqrt(mean(d*d, axis=-1, keepdims=True) + 1e-5) * w"],
    "two in a step": ["x = x / norm(x, axis=-1, keepdims=True)", "m = max(x, axis=-1, keepdims=True)", "y += m - x",
                      "x = x + 0.1*(y - mean(y, axis=-1, keepdims=True))"],
    "kept statistics": ["s = sum(x, axis=-1)", "x = x*0.9 + 0.01*w", "x -= mean(x, axis=-1, keepdims=True)"],
    "siblings": ["x = (x - mean(x)) / std(x) + 0.1*w"],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_loops(gpu, name):
    """Wholes run in the loops of programs, with the bits of single steps."""
    rng = np.random.default_rng(6)
    x, w, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((24, 700), (700,), (24, 700)))
    arrays = {k: v for k, v in {"x": x, "w": w, "y": y}.items() if re.search(rf"\b{k}\b", " ".join(PROGRAMS[name]))}
    arrays |= {"s": np.zeros(24, np.float32)} if name == "kept statistics" else {}

    def run(steps, times):
        for k, v in arrays.items():
            gpu.upload(v, k)
        for _ in range(times):
            job = gpu.expect(200, gpu.post("/v1/programs?wait=1", {"body": PROGRAMS[name], "steps": steps})).json()
            assert job["state"] == "done", job
        found = {k: gpu.download(k) for k in arrays}
        for k in arrays:
            gpu.expect(204, gpu.delete(f"/v1/arrays/{k}"))
        return found

    single = run(1, 17)

    def ran():
        before, found = wholes(gpu), run(17, 1)
        for k in arrays:
            assert same_bits(found[k], single[k]), k
        return wholes(gpu) > before + 2  # of a loop's kernels, each counts once

    until(ran)
