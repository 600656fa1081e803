#!/usr/bin/env python3
"""What a look at an array takes over HTTP: pictures (PNG included) and figures of a square float32 field.

    bench_pictures.py ARRAYD [--side N] [--rounds N] [daemon option]...

Prints one JSON line a look, the least and the median of the rounds in milliseconds. The figures are held against NumPy's
before anything is timed.
"""
import argparse
import http.client
import io
import json
import re
import statistics
import subprocess
import time

import numpy as np

LOOKS = [("noise", "data", ""), ("smooth", "data", ""), ("smooth", "data", "?pool=max"), ("smooth", "data", "?pool=nearest"), ("smooth", "data", "?cmap=viridis&bar=true"),
         ("smooth", "data", "?width=1000"), ("smooth", "data", "?percentiles=2,98"), ("smooth", "summary", ""), ("smooth", "summary", "?bins=16"),
         ("smooth", "summary", "?exact=true&percentiles=50")]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("arrayd")
    p.add_argument("--side", type=int, default=4096)
    p.add_argument("--rounds", type=int, default=25)
    args, options = p.parse_known_args()
    daemon = subprocess.Popen([args.arrayd, "--listen", "127.0.0.1:0", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in daemon.stdout:
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            if found:
                break
        c = http.client.HTTPConnection("127.0.0.1", int(found[1]))

        def ask(method, path, body=None, accept="*/*", kind="application/x-npy"):
            c.request(method, path, body, {"Accept": accept, "Content-Type": kind})
            r = c.getresponse()
            data = r.read()
            assert r.status < 300, data
            return data

        i = np.arange(args.side, dtype="float32")
        fields = {"smooth": np.sin(i * 0.003)[:, None] * np.cos(i * 0.004), "noise": np.random.default_rng(1).normal(size=(args.side, args.side)).astype("float32")}
        for name, a in fields.items():
            f = io.BytesIO()
            np.save(f, a)
            ask("PUT", f"/v1/arrays/{name}", f.getvalue())
            s = json.loads(ask("GET", f"/v1/arrays/{name}/summary"))
            assert s["histogram"]["counts"] == np.histogram(a.astype("float64"), 64)[0].tolist()
        for name, what, query in LOOKS:
            took = []
            for _ in range(args.rounds if what == "data" else max(3, args.rounds // 5)):
                begun = time.perf_counter()
                data = ask("GET", f"/v1/arrays/{name}/{what}{query}", accept="image/png" if what == "data" else "application/json")
                took.append((time.perf_counter() - begun) * 1e3)
            print(json.dumps({"field": name, "look": what + query, "side": args.side, "ms": round(min(took), 1), "median_ms": round(statistics.median(took), 1),
                              "bytes": len(data)}), flush=True)
    finally:
        daemon.terminate()
        daemon.wait(30)


main()
