#!/usr/bin/python3
"""The CPU backend's kernels against numexpr: runs bench_compute, then numexpr on the same number of
elements and threads in the same run, and prints bench_compute's JSON lines with the peer's time and
the ratio added.

    bench_compute.py BUILD_DIR [--threads N] [--edge N] [--repeat N]
"""
import argparse
import json
import os
import pathlib
import subprocess
import time

import numexpr
import numpy


def peer_ms(expr, arrays, out, repeat):
    times = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        numexpr.evaluate(expr, local_dict=arrays, out=out, casting="unsafe")
        times.append((time.perf_counter() - start) * 1e3)
    return min(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--edge", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=15)
    args = parser.parse_args()

    numexpr.set_num_threads(args.threads)
    n = args.edge**3
    rng = numpy.random.default_rng(1)
    arrays = {name: rng.uniform(0.5, 1.5, n).astype(numpy.float32) for name in "abc"}
    arrays["a"][::3] *= -1
    arrays["b"][::3] *= -1
    out = numpy.empty(n, numpy.float32)

    program = args.build / "tests" / "bench" / "bench_compute"
    flags = [f"--{k}={getattr(args, k)}" for k in ("threads", "edge", "repeat")]
    with subprocess.Popen([program, *flags], stdout=subprocess.PIPE, text=True) as run:
        lines = [json.loads(line) for line in run.stdout]
    if run.returncode:
        raise SystemExit(run.returncode)
    for line in lines:
        expr = line["case"]
        if expr == "a+b" or expr.startswith(("c+", "where", "exp")):
            line["numexpr_ms"] = round(peer_ms(expr, arrays, out, args.repeat), 3)
            line["times_numexpr"] = round(line["numexpr_ms"] / line["ms"], 2)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
