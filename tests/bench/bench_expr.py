#!/usr/bin/env python3
"""What an expression costs: the daemon beside numexpr and beside a plain copy, in one run.

    bench_expr.py ARRAYD [--threads N] [--edge N] [--rounds N] [case…]

float32 arrays of edge³ elements. Prints one JSON line a case: milliseconds from sending the request
to the end of its work, numexpr's for the same expression and threads, the ratio of the two
("times_numexpr"), and "fraction": the fewest bytes the expression must move, over its time, over the
rate of a copy by as many threads (bytes read plus bytes written). Results are checked before they are
timed. Rounds alternate between all contestants, the best of each is taken: noise only ever adds.
"""
import argparse
import concurrent.futures
import ctypes
import http.client
import json
import re
import subprocess
import sys
import threading
import time

import numexpr
import numpy as np

# name: (expression, what NumPy and numexpr call it, arrays read, arrays written)
CASES = {
    "add": ("a+b", "a+b", 2),
    "rational": ("c+1/a+2*a*b", "c+1/a+2*a*b", 3),
    "relu": ("where(a>0,a,0)", "where(a>zero,a,zero)", 1),
    "distance": ("where(a>=b,a-b,b-a)", "where(a>=b,a-b,b-a)", 2),
    "transcendental": ("exp(-a*a)*sin(b)+sqrt(abs(a))", "exp(-a*a)*sin(b)+sqrt(abs(a))", 2),
    "laplacian": ("laplacian(a, boundary='clamp')", None, 1),
    "sum": ("sum(a)", "sum(a)", 1),
}


class Daemon:
    def __init__(self, binary, threads):
        command = [binary, "--listen", "127.0.0.1:0", "--threads", str(threads)]
        self.proc = subprocess.Popen(command, stderr=subprocess.PIPE)
        while True:
            line = self.proc.stderr.readline().decode()
            if not line:
                sys.exit(f"{binary} does not start")
            if found := re.search(r"ready.*listen=127\.0\.0\.1:(\d+)", line):
                break
        threading.Thread(target=self.proc.stderr.read, daemon=True).start()
        self.conn = http.client.HTTPConnection("127.0.0.1", int(found[1]))
        self.session = self.call("GET", "/v1/sessions")["sessions"][0]["id"]

    def call(self, method, path, body=None, kind="application/json", accept="application/json"):
        data = json.dumps(body) if kind == "application/json" and body is not None else body
        self.conn.request(method, path, data, {"Content-Type": kind, "Accept": accept})
        reply = self.conn.getresponse()
        content = reply.read()
        if reply.status >= 300:
            sys.exit(f"{method} {path}: {reply.status} {content[:300]!r}")
        return json.loads(content) if reply.headers.get_content_type() == "application/json" else content

    def upload(self, name, a):
        self.call("PUT", f"/v1/arrays/{name}", {"shape": a.shape, "dtype": "float32"})
        self.call("PUT", f"/v1/arrays/{name}/data", a.tobytes(), "application/octet-stream")

    def evaluate(self, expr, out):
        body = {"expr": expr, "out": out} if out else {"expr": expr}
        self.call("POST", "/v1/evaluate", body)
        self.call("POST", f"/v1/sessions/{self.session}/sync")


def laplacian(a):
    p = np.pad(a.astype("float64"), 1, mode="edge")
    inner = (slice(1, -1),) * 3
    total = -6 * p[inner]
    for axis in range(3):
        for at in (slice(2, None), slice(None, -2)):
            total += p[tuple(at if k == axis else slice(1, -1) for k in range(3))]
    return total


def best(rounds, *contestants):
    times = [float("inf")] * len(contestants)
    for _ in range(rounds):
        for i, run in enumerate(contestants):
            start = time.perf_counter()
            run()
            times[i] = min(times[i], time.perf_counter() - start)
    return times


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
    shape = (options.edge,) * 3
    arrays = {name: (rng.random(shape, "float32") + np.float32(0.5)) * np.float32(sign)
              for name, sign in (("a", 1), ("b", 1), ("c", -1))}
    arrays["a"] *= rng.choice(np.array([-1, 1], "float32"), shape)
    out = np.zeros(shape, "float32")
    d = Daemon(options.arrayd, options.threads)
    for name, a in arrays.items():
        d.upload(name, a)
    d.upload("out", out)
    nbytes = out.nbytes

    pool = concurrent.futures.ThreadPoolExecutor(options.threads)
    halves = [*zip(np.array_split(out.reshape(-1), options.threads),
                   np.array_split(arrays["b"].reshape(-1), options.threads))]

    # libc's memcpy stores past the caches at this size, which NumPy's copy does not.
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    memcpy.restype = None

    def copy():
        list(pool.map(lambda pair: memcpy(pair[0].ctypes.data, pair[1].ctypes.data, pair[0].nbytes), halves))

    for name in options.cases:
        expr, peer, reads = CASES[name]
        target = None if name == "sum" else "out"
        names = {**arrays, "zero": np.float32(0)}

        def numexpr_run():
            numexpr.evaluate(peer, names, out=None if name == "sum" else out, casting="same_kind")

        def arrayd_run():
            d.evaluate(expr, target)

        # Right first.
        if name == "sum":
            got = np.float32(d.call("POST", "/v1/evaluate", {"expr": expr})["value"])
            want = arrays["a"].astype("float64").sum()
        else:
            arrayd_run()
            got = np.frombuffer(d.call("GET", "/v1/arrays/out/data", accept="application/octet-stream"), "<f4")
            want = (numexpr.evaluate(peer, names) if peer else laplacian(arrays["a"])).reshape(-1)
        if not np.allclose(got, want, rtol=1e-5, atol=1e-4):
            sys.exit(f"{name}: wrong result")
        contestants = [arrayd_run, copy] + ([numexpr_run] if peer else [])
        t, t_copy, *rest = best(options.rounds, *contestants)
        moved = nbytes * (reads + (target is not None))
        line = {"case": name, "expr": expr, "threads": options.threads, "elements": out.size,
                "ms": round(t * 1e3, 2), "copy_GBps": round(2 * nbytes / t_copy / 1e9, 2),
                "fraction": round(moved / t / (2 * nbytes / t_copy), 2)}
        if rest:
            line |= {"numexpr_ms": round(rest[0] * 1e3, 2), "times_numexpr": round(rest[0] / t, 2)}
        print(json.dumps(line), flush=True)
    d.proc.terminate()
    sys.exit(d.proc.wait())


if __name__ == "__main__":
    main()
