#!/usr/bin/env python3
"""Point sampling on the GPU: the daemon beside a gather written by hand, in one run.

    bench_sample.py ARRAYD [--size 512] [--points 10000000] [--rounds 15] [--backend cuda]

Prints one JSON line a case: float32 points, spread evenly (each a cache line or eight of its own) or
sorted along the array, method linear and nearest, boundary clamp. "ms" is the median of the rounds by
device events, "hand_ms" that of a CUDA kernel with a thread a point, "ratio" ours over it (wanted:
≤ 1.2), and peers where they are there: cupyx's and jax's map_coordinates, torch's grid_sample. Results
are checked against float64 before anything is timed; contestants take turns.
"""
import argparse
import json
import statistics
import sys

import numpy as np

from bench_gpu import Daemon, rounded

HAND = r"""
extern "C" __global__ void linear(const float *a, int n, const float *p, int m, float *out)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= m)
        return;
    float w[3]; long long lo[3], hi[3];
    for (int k = 0; k < 3; k++) {
        float x = p[3 * (long long)t + k], f = floorf(x);
        long long i = (long long)f;
        w[k] = x - f;
        lo[k] = min(max(i, 0ll), n - 1ll);
        hi[k] = min(max(i + 1, 0ll), n - 1ll);
    }
    float r[2];
    for (int z = 0; z < 2; z++) {
        const float *plane = a + (z ? hi[0] : lo[0]) * n * n;
        const float *u = plane + lo[1] * n, *v = plane + hi[1] * n;
        float s = u[lo[2]] + w[2] * (u[hi[2]] - u[lo[2]]), q = v[lo[2]] + w[2] * (v[hi[2]] - v[lo[2]]);
        r[z] = s + w[1] * (q - s);
    }
    out[t] = r[0] + w[0] * (r[1] - r[0]);
}
extern "C" __global__ void nearest(const float *a, int n, const float *p, int m, float *out)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= m)
        return;
    long long at = 0;
    for (int k = 0; k < 3; k++) {
        long long i = (long long)floorf(p[3 * (long long)t + k] + 0.5f);
        at = at * n + min(max(i, 0ll), n - 1ll);
    }
    out[t] = a[at];
}
"""


class Hand:
    """The kernels above, and the spacer that hides their launch."""

    def __init__(self, a, p):
        import cupy
        self.cupy, self.n, self.m = cupy, a.shape[0], len(p)
        module = cupy.RawModule(code=HAND, options=("--fmad=false",))
        self.kernels = {k: module.get_function(k) for k in ("linear", "nearest")}
        self.a, self.p = cupy.asarray(a), cupy.asarray(p)
        self.out, self.spare = cupy.empty(self.m, "float32"), cupy.empty_like(self.a)
        self.begin, self.end = (cupy.cuda.Event() for _ in range(2))

    def run(self, method):
        self.kernels[method](((self.m + 255) // 256,), (256,),
                             (self.a, np.int32(self.n), self.p, np.int32(self.m), self.out))
        return self.out

    def time(self, run):
        self.cupy.copyto(self.spare, self.a)
        self.begin.record()
        run()
        self.end.record()
        self.end.synchronize()
        return self.cupy.cuda.get_elapsed_time(self.begin, self.end)

    def peers(self, method):
        """{name: what runs it}, of the libraries that are there; linear ones only."""
        found = {}
        if method != "linear":
            return found
        coordinates = self.cupy.ascontiguousarray(self.p.T)
        try:
            from cupyx.scipy.ndimage import map_coordinates
            found["cupyx map_coordinates"] = lambda: map_coordinates(self.a, coordinates, order=1, mode="nearest")
        except ImportError:
            pass
        try:
            import torch
            field = torch.from_dlpack(self.a)[None, None]
            grid = torch.from_dlpack(self.p).flip(1) * (2 / (self.n - 1)) - 1
            grid = grid[None, None, None].contiguous()
            stream = torch.cuda.ExternalStream(self.cupy.cuda.get_current_stream().ptr)

            def sample():
                with torch.cuda.stream(stream):
                    return torch.nn.functional.grid_sample(field, grid, align_corners=True, padding_mode="border")
            found["torch grid_sample"] = sample
        except (ImportError, RuntimeError):
            pass
        return found


def reference(a, p, method):
    """float64, of these points."""
    n, p = a.shape[0], p.astype("float64")
    if method == "nearest":
        return a[tuple(np.clip(np.floor(p + 0.5).astype(int), 0, n - 1).T)].astype("float64")
    low = np.floor(p).astype(int)
    total = np.zeros(len(p))
    for corner in np.ndindex(2, 2, 2):
        at = np.clip(low + corner, 0, n - 1)
        w = np.where(corner, p - low, 1 - (p - low)).prod(axis=1)
        total += w * a[tuple(at.T)]
    return total


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arrayd")
    p.add_argument("--backend", default="cuda")
    p.add_argument("--size", type=int, default=512)
    p.add_argument("--points", type=int, default=10_000_000)
    p.add_argument("--rounds", type=int, default=15)
    options = p.parse_args()
    n, m = options.size, options.points
    d = Daemon(options.arrayd, "--backend", options.backend)
    d.ask("PUT", "/v1/arrays/a", {"shape": [n] * 3, "dtype": "float32",
                                  "random": {"distribution": "uniform", "seed": 1, "low": -1.0, "high": 1.0}})
    for name, like in (("spare", [n] * 3), ("out", [m])):
        d.ask("PUT", f"/v1/arrays/{name}", {"shape": like, "dtype": "float32"})
    d.ask("PUT", "/v1/arrays/spread", {"shape": [m, 3], "dtype": "float32", "random": {
        "distribution": "uniform", "seed": 2, "low": -2.0, "high": n + 1.0}})
    step = (n - 1) / m
    d.ask("POST", "/v1/evaluate", {"name": "sorted", "expr": "stack([i, 0.5*i + 3, 0.25*i + 7.3], 1)",
                                   "let": [["i", f"astype(index(0) + 0*out, 'float32')*{step}"]]})
    a = d.fetch("a", (n,) * 3, "float32")
    spacer = d.request("POST", "/v1/evaluate", {"expr": "a", "out": "spare"})
    failed = False
    for points in ("spread", "sorted"):
        where = d.fetch(points, (m, 3), "float32")
        try:
            hand = Hand(a, where)
        except Exception as why:  # whatever a missing or broken installation raises
            hand, missing = None, f"{type(why).__name__}: {why}"[:200]
        for method in ("linear", "nearest"):
            work = {"expr": f"sample(a, {points}, '{method}')", "out": "out"}
            plan = d.ask("POST", "/v1/explain", work)
            d.ask("POST", "/v1/evaluate", work)
            some = slice(0, m, max(1, m // 100_000))
            want = reference(a, where[some], method)
            wrong = int((abs(d.fetch("out", (m,), "float32")[some] - want) > 2e-4).sum())
            row = {"bench": "sample", "points": points, "method": method, "count": m, "size": n, "wrong": wrong,
                   "kernels": [k.get("shape") for k in plan["kernels"]]}
            failed |= wrong > 0
            run = d.request("POST", "/v1/evaluate", work)
            contestants = {"ms": lambda run=run: d.device_ms(spacer, run, of=("out", 1))}
            if hand:
                row["hand_wrong"] = int((abs(hand.run(method).get()[some] - want) > 2e-4).sum())
                contestants["hand_ms"] = lambda: hand.time(lambda: hand.run(method))
                for name, peer in hand.peers(method).items():
                    contestants[name] = lambda peer=peer: hand.time(peer)
            else:
                row["missing"] = missing
            times = {k: [] for k in contestants}
            for _ in range(options.rounds + 2):
                for k, f in contestants.items():
                    times[k].append(f())
            row |= {k: statistics.median(t for t in v[2:] if t is not None) for k, v in times.items() if any(v[2:])}
            if hand and "ms" in row:
                row |= {"ratio": row["ms"] / row["hand_ms"], "wanted": 1.2}
            print(json.dumps(rounded(row)), flush=True)
            print(f"| sample {points} {method}: {row.get('ms', 0):.3f} ms, by hand {row.get('hand_ms', 0):.3f}",
                  file=sys.stderr, flush=True)
    sys.exit(1 if d.stop() or failed else 0)


if __name__ == "__main__":
    main()
