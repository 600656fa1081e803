#!/usr/bin/env python3
"""Arrays moved between a GPU's memory and the host's, and what room that makes.

    bench_move.py ARRAYD [--size 1073741824] [--rounds 5] [--backend cuda]

One JSON line a case, and one that begins with | for a reader: an array of so many bytes moved to host memory and
back at a client's wish (PATCH location), brought back by an expression that uses it, and twice as many arrays made
as a memory limit lets the device hold, with evict, then all of them read again. Milliseconds are a request's, from
its sending to its reply, GB/s that over them; pinning the memory is part of moving out. Contents are checked.
"""
import argparse
import json
import sys
import time


from bench_gpu import Daemon


def timed(run):
    begun = time.perf_counter()
    result = run()
    return (time.perf_counter() - begun) * 1e3, result


def report(case, nbytes, times, **more):
    best = min(times)
    rate = nbytes / best / 1e6
    print(json.dumps({"bench": "move", "case": case, "bytes": nbytes, "ms": round(best, 2), "first_ms": round(times[0], 2),
                      "gb_s": round(rate, 2), **more}), flush=True)
    print(f"| {case}: {best:.1f} ms, {rate:.1f} GB/s (the first {times[0]:.1f} ms)", flush=True)


def number(d, expr):
    return d.ask("POST", "/v1/evaluate", {"expr": expr, "inline": True})["value"]


def expect(condition, what):
    if not condition:
        raise SystemExit(f"wrong: {what}")


def metric(d, name):
    text = d.ask("GET", "/metrics", accept="text/plain")
    text = text.decode() if isinstance(text, bytes) else text
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(name + " ")))


def there_and_back(options):
    d = Daemon(options.arrayd, "--backend", options.backend)
    n = options.size // 4
    d.ask("PUT", "/v1/arrays/a", {"shape": [n], "dtype": "float32", "random": {"distribution": "uniform", "seed": 1}})
    want = number(d, "sum(a)")
    out, back, use = [], [], []
    for _ in range(options.rounds):
        ms, reply = timed(lambda: d.ask("PATCH", "/v1/arrays/a", {"location": "host"}))
        out.append(ms)
        expect(reply["location"] == "host", reply)
        ms, reply = timed(lambda: d.ask("PATCH", "/v1/arrays/a", {"location": "device"}))
        back.append(ms)
        expect(reply["location"] == "device" and number(d, "sum(a)") == want, "contents after two moves")
        d.ask("PATCH", "/v1/arrays/a", {"location": "host"})
        ms, got = timed(lambda: number(d, "sum(a)"))
        use.append(ms)
        expect(got == want, "contents brought back by an expression")
        expect(d.ask("GET", "/v1/arrays/a")["location"] == "device", "where it is then")
    report("to the host", options.size, out)
    report("to the device", options.size, back)
    report("used while in host memory", options.size, use)
    d.proc.terminate()
    d.proc.wait()


def evicted(options):
    """Eight arrays where four fit."""
    limit = options.size + options.size // 16
    d = Daemon(options.arrayd, "--backend", options.backend, "--evict", "--memory-limit", str(limit),
               "--session-memory", "0")
    n, times = options.size // 16, []
    for i in range(8):
        body = {"shape": [n], "dtype": "float32", "fill": i + 1}
        ms, _ = timed(lambda: (d.ask("PUT", f"/v1/arrays/a{i}", body), number(d, f"a{i}[0]")))
        times.append(ms)
    expect(metric(d, "arrayd_arrays_evicted_total") >= 4, "so many are evicted")
    report("made, with others evicted", n * 4, times[4:], each=[round(t, 1) for t in times])
    times = []
    for i in range(8):
        ms, got = timed(lambda: number(d, f"max(a{i}) + min(a{i})"))
        times.append(ms)
        expect(got == 2 * (i + 1), f"contents of a{i}")
    report("used again, with others evicted", n * 4, times, each=[round(t, 1) for t in times])
    d.proc.terminate()
    d.proc.wait()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arrayd")
    p.add_argument("--size", type=int, default=1 << 30)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--backend", default="cuda")
    options = p.parse_args()
    there_and_back(options)
    evicted(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
