#!/usr/bin/env python3
"""What the daemon takes to read and plan statements that each depend on the one before.

    bench_chain.py ARRAYD [ARRAYD…] [--backend cpu] [--edge 16] [--rounds 7]

Several daemons take turns, to compare them. float64 on edge²; each temporary is a stencil of the last one (`chain`: only
the next one uses it, so it is written out there; `pair`: two fields that both use each other, Gray-Scott), one result. For
numbers of statements: milliseconds of `parse` and of `plan` (Server-Timing) of the first request with a text and of those
after it, and of the whole of an explain; the best of each. Then one statement of some 10,000 nodes.
One line that begins with | for each daemon and case; "refused" with the code where there is no result.
"""
import argparse
import http.client
import json
import re
import time

from bench_gpu import Daemon

COUNTS = (20, 40, 80, 120, 240)


def laplacian(t):
    return "+".join(f"roll({t},{s},axis={a})" for a in (0, 1) for s in (1, -1)) + f"-4*{t}"


def chain(n, k):
    return ["t0 = u"] + [f"t{i} = {laplacian(f't{i - 1}')}+{k}" for i in range(1, n)], f"t{n - 1}"


def pair(n, k):
    body = ["a0 = u", "b0 = u*0.5"]
    for i in range(1, n // 3):
        a, b = f"a{i - 1}", f"b{i - 1}"
        body += [f"r{i} = {a}*{b}*{b}", f"a{i} = {a}+0.16*({laplacian(a)})-r{i}+{k}*(1-{a})", f"b{i} = {b}+0.08*({laplacian(b)})+r{i}-0.1*{b}"]
    return body, f"b{n // 3 - 1}"


def long_one(n, k):
    return ["t = " + "+".join(f"u*{i}.5" for i in range(n // 4)) + f"+{k}"], "t"


class Client:
    def __init__(self, *command):
        self.daemon = Daemon(*command)
        self.http = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=300)

    def post(self, path, body):
        """Server-Timing, or the error's code."""
        self.http.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        r = self.http.getresponse()
        reply = json.loads(r.read())
        return {k: float(v) for k, v in re.findall(r"(\w+);dur=([\d.]+)", r.headers["Server-Timing"])} if r.status < 300 else reply["code"]


def measure(c, form, n, rounds, k0):
    first, again, explain = [], [], []
    for k in range(rounds):
        new, other = ({"statements": body, "results": [result]} for body, result in (
            form(n, round(k0 + (2 * k + i) / 1000, 4)) for i in range(2)))  # texts that nobody has sent yet
        first.append(c.post("/v1/evaluate", new))
        again += [c.post("/v1/evaluate", new) for _ in range(3)]
        explain.append(c.post("/v1/explain", other))
    for t in first + again + explain:
        if isinstance(t, str):
            return f"refused ({t})"
    best = lambda list, key: f"{min(t[key] for t in list):.2f}"  # noqa: E731
    return " | ".join((best(first, "parse"), best(first, "plan"), best(again, "parse"), best(again, "plan"), best(explain, "total")))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("arrayd", nargs="+")
    p.add_argument("--backend", default="cpu")
    p.add_argument("--edge", type=int, default=16)
    p.add_argument("--rounds", type=int, default=7)
    a = p.parse_args()
    clients = [Client(path, "--backend", a.backend) for path in a.arrayd]
    for c in clients:
        c.post("/v1/arrays", {"name": "u", "shape": [a.edge, a.edge], "random": {"distribution": "normal", "seed": 1}})
    print("| daemon | case | first: parse | plan | again: parse | plan | explain |\n| --- | --- | --- | --- | --- | --- | --- |")
    for form, counts in ((chain, COUNTS), (pair, COUNTS), (long_one, (9990,))):
        for n in counts:
            for i, c in enumerate(clients):
                print(f"| {i} | {form.__name__} {n} | {measure(c, form, n, a.rounds, time.time() % 1)} |", flush=True)
    for c in clients:
        c.daemon.proc.terminate()
        c.daemon.proc.wait()


if __name__ == "__main__":
    main()
