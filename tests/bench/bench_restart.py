#!/usr/bin/env python3
"""How long a daemon that dies is gone.

    bench_restart.py ARRAYD [--rounds 50] [--backend cpu]

The daemon proper is killed (SIGKILL) while its keeper holds the listening socket; a client that connects at once
gets the answer of the next daemon's first evaluation. Milliseconds from the kill to that answer, one JSON line and
one that begins with | for a reader. Every connection is accepted: one that is refused ends the benchmark. Beside
it the time of a start from nothing, until the daemon says ready.
"""
import argparse
import http.client
import json
import os
import pathlib
import signal
import statistics
import time

from bench_gpu import Daemon


def ask(port, method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
    reply = json.loads(c.getresponse().read())
    c.close()
    return reply


def process(d):
    return ask(d.port, "GET", "/v1/info")["process"]


def is_gone(pid):
    """Also while nobody has waited for it: it holds no socket any more."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def killed(d):
    before = process(d)["pid"]
    begun = time.perf_counter()
    os.kill(before, signal.SIGKILL)
    while not is_gone(before):  # a connection accepted by the dying one would be cut
        pass
    value = ask(d.port, "POST", "/v1/evaluate", {"expr": "1+2", "inline": True})["value"]
    took = (time.perf_counter() - begun) * 1e3
    if value != 3 or process(d)["pid"] == before:
        raise SystemExit(f"wrong: {value}")
    return took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("arrayd")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--backend", default="cpu")
    options = parser.parse_args()
    begun = time.perf_counter()
    d = Daemon(options.arrayd, "--backend", options.backend)
    start = (time.perf_counter() - begun) * 1e3
    times = []
    for _ in range(options.rounds):
        time.sleep(1.05)  # it lasted: the next start is not put off
        times.append(killed(d))
    times.sort()
    p50, p99 = statistics.median(times), times[-1 - len(times) // 100]
    if process(d)["restarts"] != options.rounds:
        raise SystemExit("wrong: another number of restarts")
    print(json.dumps({"bench": "restart", "backend": options.backend, "rounds": options.rounds, "p50_ms": round(p50, 2),
                      "p99_ms": round(p99, 2), "start_ms": round(start, 2)}))
    print(f"| killed, until the next answers: p50 {p50:.1f} ms, p99 {p99:.1f} ms; a start from nothing {start:.1f} ms")
    d.proc.terminate()
    d.proc.wait(30)


main()
