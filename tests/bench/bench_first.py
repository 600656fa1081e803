#!/usr/bin/env python3
"""How long a new expression takes until its value is here, for one user and for several at once.

    bench_first.py ARRAYD [--backend cuda] [--users 1 10] [--elements N…] [--rounds 12] [--seed S] [--daemon OPTION…]

Every user is a process with a session of its own and float32 arrays. In a round, all send an expression that the
daemon has never seen, at once, and receive its values as raw numbers (of 512^3 elements, one of them, when all are
computed), and then its own twice more; when all rounds are over, and --rest seconds, each of them twice. One JSON line
for each kind of expression, number of users and size: milliseconds of the first time (median, 9th decile, most), of the
second, and the better of the last two, when all is compiled; "beyond" and "times_as_long": the first beside that. Kinds:
"map", two to five functions of two arrays, "reduce", a sum, mean, maximum or norm of these, and "scan" and "columns", a
cumulative sum of these, of one row or down the columns of a square. The daemon is given time to prepare before the first
round: --settle, in seconds.
"""
import argparse
import json
import math
import multiprocessing
import random
import statistics
import sys
import time

import numpy as np

from bench_gpu import Daemon, rounded
from bench_http import connect

FUNCTIONS = ["sin", "cos", "tanh", "exp", "sqrt", "abs", "log1p", "square", "floor", "sign", "atan", "expm1", "negative"]
WHOLE = 1 << 24  # elements from which a reply is one of them


def expression(rnd, kind):
    """Other functions and other operators: other kernels. Other numbers alone are arguments of the same one."""
    text = "a"
    for _ in range(rnd.randint(2, 5)):
        other = rnd.choice(["b", f"{rnd.choice(FUNCTIONS)}(b)", f"{rnd.choice(FUNCTIONS)}(a)", f"{rnd.random():.3f}"])
        text = f"{rnd.choice(FUNCTIONS)}({text}) {rnd.choice('+-*')} {other}"
    if kind == "reduce":
        return f"{rnd.choice(['sum', 'mean', 'max', 'norm'])}({text})"
    return text if kind == "map" else f"cumulative_sum({text}, 0)"


class User:
    def __init__(self, port, number, elements, kind):
        self.sock, self.rest, self.session = connect(port), b"", ""
        self.session = f"Arrayd-Session: {json.loads(self.ask('POST', '/v1/sessions', {}))['id']}\r\n"
        side = math.isqrt(elements)
        for k, name in enumerate("abc"):
            self.ask("PUT", f"/v1/arrays/{name}", {"shape": [side, side] if kind == "columns" else [elements], "dtype": "float32", "random": {
                "distribution": "uniform", "seed": 3 * number + k, "low": 0.1, "high": 1.0}})
        self.elements, self.kind = elements, kind

    reply = Daemon.reply

    def request(self, method, path, body, accept="application/json"):
        line, rest = Daemon.request(method, path, body, accept).split(b"\r\n", 1)
        return line + b"\r\n" + self.session.encode() + rest

    def ask(self, *request):
        self.sock.sendall(self.request(*request))
        return self.reply()[1]

    def evaluate(self, text):
        """Seconds until its value is here."""
        begin = time.perf_counter()
        if self.elements < WHOLE or self.kind == "reduce":
            self.ask("POST", "/v1/evaluate", {"expr": text}, "application/octet-stream")
        else:
            self.sock.sendall(self.request("POST", "/v1/evaluate", {"expr": text, "out": "c"}) +
                              self.request("POST", "/v1/evaluate", {"expr": "c[0]"}))
            self.reply()
            self.reply()
        return time.perf_counter() - begin


def work(port, number, elements, kind, options, barrier, results):
    rnd = random.Random(f"{options.seed} {number} {elements} {kind}")
    user = User(port, number, elements, kind)
    texts, times = [expression(rnd, kind) for _ in range(options.rounds)], []
    for text in texts:
        barrier.wait()
        times.append([user.evaluate(text) * 1e3 for _ in range(3)])
    barrier.wait()
    time.sleep(options.rest)  # all are compiled meanwhile
    for text, took in zip(texts, times):
        barrier.wait()
        results.put([*took, min(user.evaluate(text) for _ in range(2)) * 1e3])


def measure(port, users, elements, kind, options):
    barrier, results = multiprocessing.Barrier(users), multiprocessing.Queue()
    crowd = [multiprocessing.Process(target=work, args=(port, k, elements, kind, options, barrier, results)) for k in range(users)]
    for p in crowd:
        p.start()
    times = np.array([results.get(timeout=120) for _ in range(users * options.rounds)])
    for p in crowd:
        p.join()
    first, later = times[:, 0], times[:, 3]
    print(json.dumps(rounded({
        "bench": "first", "kind": kind, "users": users, "elements": elements, "first_ms": statistics.median(first),
        "p90_ms": float(np.quantile(first, 0.9)), "most_ms": float(first.max()), "second_ms": statistics.median(times[:, 1]),
        "later_ms": statistics.median(later), "beyond_ms": statistics.median(first - later),
        "times_as_long": statistics.median(first / later)})), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arrayd")
    p.add_argument("--backend", default="cuda")
    p.add_argument("--users", type=int, nargs="+", default=[1, 10])
    p.add_argument("--elements", type=int, nargs="+", default=[1024, 100_000, 1_000_000, 512**3])
    p.add_argument("--kinds", nargs="+", default=["map", "reduce"], choices=["map", "reduce", "scan", "columns"])
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--settle", type=float, default=60)
    p.add_argument("--rest", type=float, default=3)
    p.add_argument("--seed", default="1")
    p.add_argument("--daemon", nargs="*", default=[], help="further options of the daemon, without their leading --")
    options = p.parse_args()
    daemon = Daemon(options.arrayd, "--backend", options.backend, *(f"--{x}" for x in options.daemon))
    time.sleep(options.settle)
    for kind in options.kinds:
        for users in options.users:
            for elements in options.elements:
                if users * elements <= 4 * 512**3 and (kind != "columns" or math.isqrt(elements)**2 == elements):
                    measure(daemon.port, users, elements, kind, options)
    sys.exit(1 if daemon.stop() else 0)


if __name__ == "__main__":
    main()
