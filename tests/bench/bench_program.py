#!/usr/bin/env python3
"""What a step of a program costs on the CPU: the daemon beside NumPy, numexpr and a plain copy, in one run.

    bench_program.py ARRAYD [--threads N] [--edge N] [--steps N] [--rounds N] [--small]

float32. Heat in three dimensions (edge³, walls insulated, the temporary written out) and in one request a
step instead of a program; Gray-Scott on a plane of as many cells; and small arrays, where the way counts: heat on
planes that wrap around, and 16 numbers. --small: these alone.
Prints one JSON line a case: milliseconds a step, by the job's own clock, NumPy's (one thread) and numexpr's (as
many threads) over padded arrays, how many times quicker the daemon is, and "fraction": reading and writing the
arrays once over our time over the rate of a copy by as many threads. Results are checked before they are timed;
contestants take turns, the best of each is taken.
"""
import argparse
import concurrent.futures
import ctypes
import json
import time

import numexpr
import numpy as np

from bench_expr import Daemon, best


def copy_rate(a, threads):
    """Bytes read and written a second by memcpy, the array cut between the threads."""
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes, memcpy.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), None
    to = np.empty_like(a)
    halves = [*zip(np.array_split(to.reshape(-1), threads), np.array_split(a.reshape(-1), threads))]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        took, = best(10, lambda: list(pool.map(lambda h: memcpy(h[0].ctypes.data, h[1].ctypes.data, h[0].nbytes), halves)))
    return 2 * a.nbytes / took


def padded(u):
    return np.pad(u, 1, mode="edge")


def neighbours(p):
    """The views of a padded array shifted by one, along each axis in turn."""
    inner = [slice(1, -1)] * p.ndim
    return [p[tuple(inner[:k] + [s] + inner[k + 1:])] for k in range(p.ndim) for s in (slice(2, None), slice(None, -2))]


def heat_numpy(u):
    return u + np.float32(0.1)*(sum(neighbours(padded(u))) - np.float32(6)*u)


def heat_numexpr(u):
    names = dict(zip("abcdef", neighbours(padded(u))), u=u, k=np.float32(0.1), six=np.float32(6))
    return numexpr.evaluate("u + k*(a + b + c + d + e + f - six*u)", names)


def ring_numpy(u):
    p = np.pad(u, 1, mode="wrap")
    return u + np.float32(0.1)*(sum(neighbours(p)) - np.float32(4)*u)


def timed(d, body, steps, **fields):
    job = d.call("POST", "/v1/programs?wait=1", {"body": body, "steps": steps, **fields})
    if job["state"] != "done":
        raise SystemExit(f"the program ended as {job}")
    return job["elapsed_s"]


def repeat(step, u, steps):
    begun = time.perf_counter()
    for _ in range(steps):
        u = step(u)
    return time.perf_counter() - begun


def bench_large(d, options):
    n, steps = options.edge, options.steps
    u = np.random.default_rng(0).random((n, n, n)).astype("float32")
    body = ["lap = laplacian(u, boundary='clamp')", "u += 0.1*lap"]

    d.upload("u", u)
    timed(d, body, 2)
    got = np.frombuffer(d.call("GET", "/v1/arrays/u/data", accept="application/octet-stream"), "float32")
    for step in (heat_numpy, heat_numexpr):
        np.testing.assert_allclose(got.reshape(u.shape), step(step(u)), rtol=1e-5)
    times = {k: float("inf") for k in ("ours", "requests", "numpy", "numexpr")}
    for _ in range(options.rounds):
        times["ours"] = min(times["ours"], timed(d, body, steps))
        begun = time.perf_counter()
        for _ in range(steps):
            d.call("POST", "/v1/evaluate", {"expr": "u + 0.1*laplacian(u, boundary='clamp')", "out": "u"})
        d.call("POST", f"/v1/sessions/{d.session}/sync")
        times["requests"] = min(times["requests"], time.perf_counter() - begun)
        few = max(1, steps // 5)
        times["numpy"] = min(times["numpy"], repeat(heat_numpy, u, few) * steps / few)
        times["numexpr"] = min(times["numexpr"], repeat(heat_numexpr, u, few) * steps / few)
    rate = copy_rate(u, options.threads)
    ms = {k: v / steps * 1e3 for k, v in times.items()}
    print(json.dumps({"case": f"heat {n}^3", "threads": options.threads, "ms": round(ms["ours"], 3),
                      "a_request_each_ms": round(ms["requests"], 3), "numpy_ms": round(ms["numpy"], 2),
                      "numexpr_ms": round(ms["numexpr"], 2), "times_numpy": round(ms["numpy"] / ms["ours"], 2),
                      "times_numexpr": round(ms["numexpr"] / ms["ours"], 2),
                      "fraction": round(2 * u.nbytes / (ms["ours"] * 1e-3) / rate, 2)}), flush=True)

    side = int(round(n ** 1.5))
    for name in ("u", "v"):
        d.call("PUT", f"/v1/arrays/{name}", {"shape": [side, side], "dtype": "float32",
                                             "random": {"distribution": "uniform", "seed": 1}})
    gray = ["r = u*v*v", "du = 0.16*laplacian(u, boundary='wrap') - r + F*(1 - u)",
            "v += 0.08*laplacian(v, boundary='wrap') + r - (F + k)*v", "u += du"]
    bind = {"bind": {"F": 0.06, "k": 0.062}}
    timed(d, gray, 2, **bind)
    took = best(options.rounds, lambda: timed(d, gray, steps, **bind))[0] / steps
    print(json.dumps({"case": f"Gray-Scott {side}^2", "threads": options.threads, "ms": round(took * 1e3, 3),
                      "fraction": round(4 * side * side * 4 / took / rate, 2)}), flush=True)


def bench_small(d, options):
    body = ["u += 0.1*laplacian(u, boundary='wrap')"]
    for edge, steps in ((16, 200_000), (64, 50_000), (128, 20_000), (256, 10_000), (512, 3_000)):
        u = np.random.default_rng(0).random((edge, edge)).astype("float32")
        d.upload("u", u)
        timed(d, body, 2)
        got = np.frombuffer(d.call("GET", "/v1/arrays/u/data", accept="application/octet-stream"), "float32")
        np.testing.assert_allclose(got.reshape(u.shape), ring_numpy(ring_numpy(u)), rtol=1e-5)
        few = max(10, steps // 100)
        took = min(timed(d, body, steps) for _ in range(options.rounds)) / steps
        numpy = min(repeat(ring_numpy, u, few) for _ in range(options.rounds)) / few
        print(json.dumps({"case": f"heat {edge}^2", "threads": options.threads, "us": round(took * 1e6, 2),
                          "numpy_us": round(numpy * 1e6, 1), "times_numpy": round(numpy / took, 1)}), flush=True)
    d.call("PUT", "/v1/arrays/x", {"shape": [16], "dtype": "float32"})
    took = min(timed(d, ["x += 1"], 1_000_000) for _ in range(options.rounds)) / 1_000_000
    print(json.dumps({"case": "16 numbers", "threads": options.threads, "us": round(took * 1e6, 3)}), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arrayd")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--edge", type=int, default=256)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--small", action="store_true")
    options = p.parse_args()
    numexpr.set_num_threads(options.threads)
    d = Daemon(options.arrayd, options.threads)
    if not options.small:
        bench_large(d, options)
    bench_small(d, options)
    d.proc.terminate()
    d.proc.wait()


if __name__ == "__main__":
    main()
