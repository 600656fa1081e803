#!/usr/bin/env python3
"""What it costs a small request that arrays outlive the daemon: two daemons in turn, with keep-arrays and without.

    bench_keep.py ARRAYD [--backend cpu] [--requests 6000] [--block 60] [--cpus 0]

Each request goes over one keep-alive connection, in blocks that alternate between the daemons, so that whatever else the
machine does meets both. All run on the processors CPUS: where the scheduler places a client and a daemon decides more than
what is measured here, by a factor of three. Medians in microseconds, one JSON line a request and one that begins with | for a reader.
"""
import argparse
import json
import os
import statistics
import time

from bench_gpu import Daemon

REQUESTS = {
    "GET /healthz": ("GET", "/healthz", None),
    "sum(u*2+1), inline": ("POST", "/v1/evaluate", {"expr": "sum(u*2+1)", "inline": True}),
    "u*2+1 into an array": ("POST", "/v1/evaluate", {"expr": "u*2+1", "out": "v"}),
    "u*2+1 under a name that is replaced": ("POST", "/v1/evaluate", {"expr": "u*2+1", "name": "w"}),
    "a new 1 KiB array in place of one": ("PUT", "/v1/arrays/x", {"shape": [256], "dtype": "float32", "fill": 1}),
}


def asked(daemon, data):
    begun = time.perf_counter_ns()
    daemon.sock.sendall(data)
    daemon.reply()
    return (time.perf_counter_ns() - begun) / 1e3


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("arrayd")
    p.add_argument("--backend", default="cpu")
    p.add_argument("--requests", type=int, default=6000)
    p.add_argument("--block", type=int, default=60)
    p.add_argument("--cpus", default="0", help="separated by commas")
    options = p.parse_args()
    os.sched_setaffinity(0, map(int, options.cpus.split(",")))
    sides = {keep: Daemon(options.arrayd, "--backend", options.backend, f"--keep-arrays={keep}") for keep in ("no", "yes")}
    for d in sides.values():
        for name in "uv":
            asked(d, d.request("PUT", f"/v1/arrays/{name}", {"shape": [1024], "dtype": "float32", "fill": 1}))
    for what, request in REQUESTS.items():
        times = {keep: [] for keep in sides}
        for keep, d in sides.items():
            for _ in range(options.block):  # what has to be compiled or made
                asked(d, d.request(*request))
        for _ in range(options.requests // options.block):
            for keep, d in sides.items():
                data = d.request(*request)
                times[keep] += [asked(d, data) for _ in range(options.block)]
        without, kept = (statistics.median(times[keep]) for keep in ("no", "yes"))
        print(json.dumps({"bench": "keep", "backend": options.backend, "request": what, "without_us": round(without, 2),
                          "with_us": round(kept, 2), "more_us": round(kept - without, 2)}))
        print(f"| {what} | {without:.1f} | {kept:.1f} | {kept - without:+.1f} |", flush=True)
    for d in sides.values():
        d.proc.terminate()
        d.proc.wait(30)


main()
