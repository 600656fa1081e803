#!/usr/bin/env python3
"""Reductions of rows and what is made of them, on the GPU: the daemon beside torch and jax, in one run.

    bench_rows.py ARRAYD [--elements 134217728] [--rounds 15] [--backend cuda] [--only CASE…]

Prints one JSON line for each case, dtype and length of a row: "ms" is the median of the rounds by
device events, "copies" that over a device-to-device copy of one such array in the same rounds, and
the same for the peers that are there ("torch eager", "torch.compile", "jax"). "shape": of the kernel that does the
work, "fold" where that is one. Each result is checked against float64 before it is timed, on some of its rows;
contestants take turns. Exit status: 1 if a result is wrong.
"""
import argparse
import json
import statistics
import sys
import time

import numpy as np

from bench_gpu import Daemon, rounded

LENGTHS = [64, 128, 512, 1000, 1024, 4096, 16384, 65536]
ROW = ", axis=-1, keepdims=True)"
# The expression; in NumPy's, torch's or jax's names, of functions that keep the reduced axis.
CASES = {
    "softmax": (f"e / sum(e{ROW}", [["e", f"exp(x - max(x{ROW})"]], lambda m, x: m.exp(x - m.top(x)) / m.sum(m.exp(x - m.top(x)))),
    "log-softmax": (f"y - log(sum(exp(y){ROW})", [["y", f"x - max(x{ROW}"]],
                    lambda m, x: x - m.top(x) - m.log(m.sum(m.exp(x - m.top(x))))),
    "layer norm": (f"(x - mean(x{ROW}) / sqrt(var(x{ROW} + 1e-5)", [], lambda m, x: (x - m.mean(x)) / m.sqrt(m.var(x) + 1e-5)),
    "by the norm": (f"x / norm(x{ROW}", [], lambda m, x: x / m.sqrt(m.sum(x * x))),
    "normalised": (f"(x - min(x{ROW}) / (max(x{ROW} - min(x{ROW})", [], lambda m, x: (x - m.least(x)) / (m.top(x) - m.least(x))),
    "mean and std": (f"mean(x{ROW} + std(x{ROW}", [], lambda m, x: m.mean(x) + m.sqrt(m.var(x))),
    "all normalised": ("(x - mean(x)) / std(x)", [], lambda m, x: (x - m.mean(x, False)) / m.sqrt(m.var(x, False))),
}


class Numpy:
    """The names of CASES, of NumPy or jax.numpy."""

    def __init__(self, lib):
        self.lib = lib
        self.exp, self.log, self.sqrt = lib.exp, lib.log, lib.sqrt

    def reduced(self, name, x, rows=True):
        return getattr(self.lib, name)(x, axis=-1 if rows else None, keepdims=True)

    def top(self, x):
        return self.reduced("max", x)

    def least(self, x):
        return self.reduced("min", x)

    def sum(self, x):
        return self.reduced("sum", x)

    def mean(self, x, rows=True):
        return self.reduced("mean", x, rows)

    def var(self, x, rows=True):
        return self.reduced("var", x, rows)


class Torch(Numpy):
    def reduced(self, name, x, rows=True):
        axis = -1 if rows else tuple(range(x.ndim))
        if name in ("max", "min"):
            return getattr(self.lib, "a" + name)(x, axis, keepdim=True)
        more = {"correction": 0} if name == "var" else {}
        return getattr(self.lib, name)(x, axis, keepdim=True, **more)


def torch_peers(formula, x):
    """{name: what times one run, in ms}; what is missing says so."""
    try:
        import torch
        m, on_device = Torch(torch), torch.from_numpy(x).cuda()
        spare = torch.empty_like(on_device)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    except Exception as why:  # whatever a missing or broken installation raises
        return {}, f"{type(why).__name__}: {why}"[:100]

    def timed(f):
        def run():
            spare.copy_(on_device)
            begin.record()
            f(on_device)
            end.record()
            end.synchronize()
            return begin.elapsed_time(end)
        return run
    return {"torch eager": timed(lambda a: formula(m, a)),
            "torch.compile": timed(torch.compile(lambda a: formula(m, a), dynamic=False))}, None


def jax_peers(formula, x):
    """Without events: the difference between 20 and 4 calls in a row."""
    try:
        import jax
        import jax.numpy as jnp
        if jax.default_backend() != "gpu":
            raise RuntimeError("jax sees no GPU")
        f, on_device = jax.jit(lambda a: formula(Numpy(jnp), a)), jnp.asarray(x)
        f(on_device).block_until_ready()
    except Exception as why:
        return {}, f"{type(why).__name__}: {why}"[:100]

    def many(n):
        start = time.perf_counter()
        for _ in range(n - 1):
            f(on_device)
        f(on_device).block_until_ready()
        return time.perf_counter() - start
    return {"jax": lambda: (many(20) - many(4)) / 16 * 1e3}, None


def wrong(case, got, x, whole):
    """How many rows of some are not what they should be."""
    some = slice(0, len(x), max(1, len(x) // 64))
    part = x[some].astype("float64")
    if case == "all normalised":
        want = (part - whole[0]) / whole[1]
    else:
        want = CASES[case][2](Numpy(np), part)
    tolerance = 2e-5 if x.dtype == np.float32 else 4e-3
    return int((~np.isclose(got[some], want, rtol=tolerance, atol=tolerance).all(-1)).sum())


def settle(d, work, plan):
    """Until what is to run is compiled: its kernel is first run in parts."""
    runs = [w for w in plan.get("wholes", []) if "why" not in w]
    for _ in range(50 if runs else 3):
        d.ask("POST", "/v1/evaluate", work)
        time.sleep(0.02)
    return [w["shape"] for w in runs] or [k["shape"] for k in plan["kernels"]]


def bench(d, case, dtype, length, options):
    count = max(1, options.elements // length)
    expr, let, formula = CASES[case]
    low, high = (-2.0, 2.0)
    d.ask("PUT", "/v1/arrays/x32", {"shape": [count, length], "dtype": "float32",
                                    "random": {"distribution": "uniform", "seed": 1, "low": low, "high": high}})
    for name, shape in (("x", [count, length]), ("spare", [count, length]), ("out", [count, 1 if case == "mean and std" else length])):
        d.ask("PUT", f"/v1/arrays/{name}", {"shape": shape, "dtype": dtype})
    d.ask("POST", "/v1/evaluate", {"expr": "x32", "out": "x", "dtype": dtype})
    d.ask("DELETE", "/v1/arrays/x32")
    x = d.fetch("x", (count, length), dtype)
    work = {"expr": expr, "let": let, "out": "out"}
    row = {"bench": "rows", "case": case, "dtype": dtype, "length": length, "rows": count,
           "shape": settle(d, work, d.ask("POST", "/v1/explain", work))}
    whole = (x.mean(dtype="float64"), x.std(dtype="float64")) if case == "all normalised" else None
    row["wrong"] = wrong(case, d.fetch("out", (count, 1) if case == "mean and std" else x.shape, dtype), x, whole)
    copy = d.request("POST", "/v1/evaluate", {"expr": "x", "out": "spare"})
    run = d.request("POST", "/v1/evaluate", work)
    contestants = {"copy": lambda: d.device_ms(run, copy, of=("spare", 2)), "ms": lambda: d.device_ms(copy, run, of=("out", 2))}
    for peers, missing in (torch_peers(formula, x), jax_peers(formula, x)):
        contestants |= peers
        if missing:
            row.setdefault("missing", []).append(missing)
    times = {k: [] for k in contestants}
    for _ in range(options.rounds + 2):
        for k, f in contestants.items():
            times[k].append(f())
    took = {k: statistics.median(t for t in v[2:] if t is not None) for k, v in times.items() if any(v[2:])}
    row |= took
    if "copy" in took:
        row["copies"] = {k: v / took["copy"] for k, v in took.items() if k != "copy"}
    print(json.dumps(rounded(row)), flush=True)
    for name in ("x", "spare", "out"):
        d.ask("DELETE", f"/v1/arrays/{name}")
    return row["wrong"]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arrayd")
    p.add_argument("--backend", default="cuda")
    p.add_argument("--elements", type=int, default=512**3)
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--only", nargs="*", choices=CASES)
    p.add_argument("--lengths", nargs="*", type=int, default=LENGTHS)
    options = p.parse_args()
    d = Daemon(options.arrayd, "--backend", options.backend)
    failed = 0
    for case in options.only or CASES:
        for dtype in ("float32", "float16"):
            for length in options.lengths if case != "all normalised" else [1024]:
                if case != "all normalised" or dtype == "float32":
                    failed += bench(d, case, dtype, length, options)
    sys.exit(1 if d.stop() or failed else 0)


if __name__ == "__main__":
    main()
