#!/usr/bin/env python3
"""What `until` and `record` add to a step of a program on small planes.

    bench_values.py ARRAYD [--backend cuda|cpu] [--rounds 3]

One JSON line a case, and one that begins with | for a reader: microseconds a step of heat on a plane that wraps
around, float32, from the request to the reply at the job's end, the best of some rounds: by itself, with `until` asked
(it never comes true) and with one value recorded after every step, every 10 and every 100. The arrays must be those of
the program by itself.
"""
import argparse
import json
import time

from bench_gpu import Daemon

BODY = ["u += 0.1*laplacian(u, boundary='wrap')"]
VALUE = "max(abs(u))"


def cases():
    yield "by itself", {}
    for every in (1, 10, 100):
        yield f"until, every {every}", {"until": f"{VALUE} < -1", "until_every": every}
        yield f"record, every {every}", {"record": {"m": VALUE}, "record_every": every}


def run(d, edge, steps, fields):
    """Seconds, and what the array is then."""
    random = {"distribution": "uniform", "seed": 1}
    d.ask("PUT", "/v1/arrays/u", {"shape": [edge, edge], "dtype": "float32", "random": random})
    begun = time.perf_counter()
    job = d.ask("POST", "/v1/programs?wait=1", {"body": BODY, "steps": steps, **fields})
    took = time.perf_counter() - begun
    if (job["state"], job["step"]) != ("done", steps):
        raise SystemExit(f"wrong: {job}")
    return took, d.ask("POST", "/v1/evaluate", {"expr": "u[:2, :2]", "inline": True})["data"]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arrayd")
    p.add_argument("--backend", default="cuda")
    p.add_argument("--rounds", type=int, default=3)
    options = p.parse_args()
    d = Daemon(options.arrayd, "--backend", options.backend)
    for edge, steps in ((16, 20_000), (256, 4_000), (2048, 200)):
        want = None
        for name, fields in cases():
            runs = [run(d, edge, steps, fields) for _ in range(options.rounds + 1)]  # the first compiles
            want = want or runs[0][1]
            if any(got != want for _, got in runs):
                raise SystemExit(f"wrong: {edge} squared, {name}: other numbers")
            us = min(took for took, _ in runs[1:]) / steps * 1e6
            print(json.dumps({"bench": "values", "edge": edge, "case": name, "us": round(us, 3)}), flush=True)
            print(f"| {edge}^2, {name}: {us:.2f} us a step", flush=True)
    d.proc.terminate()
    d.proc.wait()


if __name__ == "__main__":
    main()
