#!/usr/bin/env python3
"""What reductions and scans cost on the CPU: the daemon beside NumPy, numexpr and a plain copy, in one run.

    bench_reduce.py ARRAYD [--threads N] [--edge N] [--rounds N] [case…]

float32 arrays of edge³ elements. Prints one JSON line a case: milliseconds from sending the request to
the end of its work, NumPy's (one thread, as it is) and numexpr's (as many threads) where they have it,
"ratio": the quicker one's time over ours, and "fraction": the fewest bytes to move, over our time, over
the rate of a copy by as many threads. Results are checked before they are timed; contestants take turns,
the best of each is taken.
"""
import argparse
import concurrent.futures
import ctypes
import json
import sys

import numexpr
import numpy as np

from bench_expr import Daemon, best

# expression: (NumPy's, numexpr's or None, arrays read, arrays written)
CASES = {
    "sum(a)": (lambda a, b: a.sum(), "sum(a)", 1, 0),
    "sum(a, 0)": (lambda a, b: a.sum(0), "sum(a, axis=0)", 1, 0),
    "sum(a, 1)": (lambda a, b: a.sum(1), "sum(a, axis=1)", 1, 0),
    "sum(a, 2)": (lambda a, b: a.sum(2), "sum(a, axis=2)", 1, 0),
    "mean(a)": (lambda a, b: a.mean(), None, 1, 0),
    "max(a)": (lambda a, b: a.max(), "max(a)", 1, 0),
    "max(a, 2)": (lambda a, b: a.max(2), "max(a, axis=2)", 1, 0),
    "prod(b)": (lambda a, b: b.prod(), "prod(b)", 1, 0),
    "sum((a - b)**2)": (lambda a, b: ((a - b) ** 2).sum(), "sum((a - b)**2)", 2, 0),
    "var(a)": (lambda a, b: a.var(), None, 1, 0),
    "std(a, 0)": (lambda a, b: a.std(0), None, 1, 0),
    "var(a, 2)": (lambda a, b: a.var(2), None, 1, 0),
    "norm(a)": (lambda a, b: np.linalg.norm(a), None, 1, 0),
    "count_nonzero(a)": (lambda a, b: np.count_nonzero(a), None, 1, 0),
    "argmax(a)": (lambda a, b: a.argmax(), None, 1, 0),
    "argmax(a, 0)": (lambda a, b: a.argmax(0), None, 1, 0),
    "argmax(a, 2)": (lambda a, b: a.argmax(2), None, 1, 0),
    "cumulative_sum(a, 2)": (lambda a, b: a.cumsum(2), None, 1, 1),
    "cumulative_sum(a, 0)": (lambda a, b: a.cumsum(0), None, 1, 1),
    "cumulative_sum(flat)": (lambda a, b: a.reshape(-1).cumsum(), None, 1, 1),
}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arrayd")
    p.add_argument("cases", nargs="*", default=[*CASES])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--edge", type=int, default=256)
    p.add_argument("--rounds", type=int, default=10)
    options = p.parse_intermixed_args()
    numexpr.set_num_threads(options.threads)
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1.5, (options.edge,) * 3).astype("float32")
    b = rng.uniform(0.9999, 1.0001, a.shape).astype("float32")
    d = Daemon(options.arrayd, options.threads)
    d.upload("a", a)
    d.upload("b", b)
    d.call("POST", "/v1/arrays/a/views", {"reshape": [a.size], "name": "flat"})
    pool = concurrent.futures.ThreadPoolExecutor(options.threads)
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    halves = [*zip(np.array_split(np.zeros(a.size, "float32"), options.threads),
                   np.array_split(b.reshape(-1), options.threads))]

    def copy():
        list(pool.map(lambda pair: memcpy(pair[0].ctypes.data, pair[1].ctypes.data, pair[0].nbytes), halves))

    for expr in options.cases:
        numpy_peer, numexpr_peer, reads, writes = CASES[expr]
        want = np.asarray(numpy_peer(a.astype("float64"), b.astype("float64")))
        d.call("PUT", "/v1/arrays/out", {"shape": want.shape, "dtype": "int64" if want.dtype.kind == "i" else "float32"})
        body = {"expr": expr, "out": "out"}

        def ours():
            d.call("POST", "/v1/evaluate", body)
            d.call("POST", f"/v1/sessions/{d.session}/sync")

        ours()
        got = d.call("GET", "/v1/arrays/out/data", accept="application/octet-stream")
        got = np.frombuffer(got, "<i8" if want.dtype.kind == "i" else "<f4").reshape(want.shape)
        if not np.allclose(got, want, rtol=1e-5, atol=1e-3):
            sys.exit(f"{expr}: wrong result")
        peers = {"numpy": lambda: numpy_peer(a, b)}
        if numexpr_peer:
            peers["numexpr"] = lambda: numexpr.evaluate(numexpr_peer, {"a": a, "b": b})
        t, t_copy, *rest = best(options.rounds, ours, copy, *peers.values())
        rate = 2 * a.nbytes / t_copy
        line = {"case": expr, "threads": options.threads, "elements": a.size, "ms": round(t * 1e3, 2),
                "copy_GBps": round(rate / 1e9, 2), "fraction": round((reads + writes) * a.nbytes / t / rate, 2)}
        line |= {f"{name}_ms": round(x * 1e3, 2) for name, x in zip(peers, rest)}
        print(json.dumps(line | {"ratio": round(min(rest) / t, 2)}), flush=True)
    d.proc.terminate()
    sys.exit(d.proc.wait())


if __name__ == "__main__":
    main()
