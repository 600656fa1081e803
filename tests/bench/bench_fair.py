#!/usr/bin/env python3
"""How a device is shared: two users' parts of it by their weights, and what a small user's requests take beside a large
one's.

    bench_fair.py ARRAYD [--backend cuda|cpu] [--edge 512] [--seconds 5] [--part shares|victim|compiler …]

shares  ann of weight 1 and bob of weight 3, each with more work than the device can do: two programs (heat on a cube),
        a program of bob's and evaluations of ann's on 16 connections, and the other way round. bob's part of the device
        over ann's, by /metrics, and for two programs by their steps; wanted: 3 within 10 %
victim  p50 and p99 of ann's requests, one after the other with a pause of a millisecond, alone and while bob runs such
        a program, and while he floods evaluations of the same cube besides; for an evaluation of a scalar, one of a
        plane (a result in place), and one that is as large as a step of bob's. Wanted: p99 3 x that alone beside the
        program
compiler  p50 and p90 of ann's expressions that nobody has sent before, one after the other, alone and while bob has new
        ones of his own compiled on 64 connections; wanted: p50 3 x that alone

One JSON line a case, and one that begins with | for a reader.
"""
import argparse
import http.client
import json
import multiprocessing
import pathlib
import random
import re
import subprocess
import tempfile
import threading
import time

from bench_gpu import Daemon

HEAT = "u += 0.1*laplacian(u, boundary='wrap')"
HEAVY = "tanh(sin(u)*exp(cos(u)) + sqrt(abs(u)))*sin(cos(u))"
CROWD, FLOOD = 16, 64
UNARY = ("sin", "cos", "tanh", "exp", "sqrt", "abs", "log1p", "floor", "atan", "-")
missed = []


class User:
    def __init__(self, port, token):
        self.port, self.token = port, token
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def clone(self):
        return User(self.port, self.token)

    def headers(self):
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    def ask(self, method, path, body=None):
        self.connection.request(method, path, json.dumps(body) if body is not None else None, self.headers())
        reply = self.connection.getresponse()
        data = reply.read()
        if reply.status >= 300:
            raise SystemExit(f"wrong: {method} {path}: {reply.status} {data[:400]}")
        return json.loads(data) if reply.getheader("Content-Type", "").startswith("application/json") else data

    def field(self, name, *shape):
        values = {"distribution": "uniform", "seed": 1}
        self.ask("PUT", f"/v1/arrays/{name}", {"shape": shape, "dtype": "float32", "random": values})

    def device_seconds(self):
        text = self.ask("GET", "/metrics").decode()
        found = re.findall(r'^arrayd_principal_device_seconds_total{principal="(\w+)"} (\S+)$', text, re.M)
        return {name: float(value) for name, value in found}


class Program:
    def __init__(self, user):
        self.user = user

    def __enter__(self):
        self.id = self.user.ask("POST", "/v1/programs", {"body": [HEAT], "steps": 10**9})["id"]
        while not self.step():
            time.sleep(0.01)
        return self

    def step(self):
        return self.user.ask("GET", f"/v1/jobs/{self.id}")["step"]

    def __exit__(self, *_):
        self.user.ask("DELETE", f"/v1/jobs/{self.id}")


def new_expression(k):
    """The k-th of a million, each a kernel of its own."""
    text = "s"
    for digit in f"{k:06}":
        text = f"{UNARY[int(digit)]}({text})"
    return {"expr": f"sum({text})"}


def crowd(user, ending):
    """Evaluations of the cube into another, which are answered before they are done: as many as are taken."""
    while not ending.is_set():
        user.ask("POST", "/v1/evaluate", {"expr": HEAVY, "out": "w"})


def flood(user, ending):
    """Expressions that nobody has sent, at random."""
    while not ending.is_set():
        user.ask("POST", "/v1/evaluate", new_expression(random.randrange(500_000, 1_000_000)))


def at_once(work, n, user, ending):
    threads = [threading.Thread(target=work, args=(user.clone(), ending)) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


class Crowd:
    """In a process of its own, so that its clients do not slow down those that are measured."""

    def __init__(self, user, work=crowd, n=CROWD):
        fork = multiprocessing.get_context("fork")
        self.ending = fork.Event()
        self.process = fork.Process(target=at_once, args=(work, n, user, self.ending))

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.process.join()


def show(text, holds=True, **row):
    print(json.dumps({"bench": "fair", **row}), flush=True)
    print(f"| {text}{'' if holds else '   MISSED'}", flush=True)
    if not holds:
        missed.append(text)


def ratio(ann, seconds):
    before, begun = ann.device_seconds(), time.monotonic()
    time.sleep(seconds)
    after, took = ann.device_seconds(), time.monotonic() - begun
    used = {name: after[name] - before[name] for name in after}
    return used["bob"] / used["ann"], sum(used.values()) / took


def shares(ann, bob, options):
    with Program(ann) as a, Program(bob) as b:
        time.sleep(0.5)
        steps = a.step(), b.step()
        got, busy = ratio(ann, options.seconds)
        by_steps = (b.step() - steps[1]) / (a.step() - steps[0])
    show(f"two programs: {got:.2f} by time, {by_steps:.2f} by steps (wanted 3), device {busy:.0%} busy",
         2.7 <= got <= 3.3, case="two programs", ratio=got, by_steps=by_steps, busy=busy)
    for name, one, other in (("a program of bob's, a crowd of ann's", bob, ann),
                             ("a program of ann's, a crowd of bob's", ann, bob)):
        with Program(one), Crowd(other):
            time.sleep(0.5)
            got, busy = ratio(ann, options.seconds)
        show(f"{name}: {got:.2f} by time (wanted 3), device {busy:.0%} busy", 2.7 <= got <= 3.3, case=name, ratio=got,
             busy=busy)


def latencies(user, body, seconds):
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        user.ask("POST", "/v1/evaluate", body)
        times.append(time.perf_counter() - begun)
        time.sleep(0.001)
    times.sort()
    return times[len(times) // 2] * 1e6, times[int(len(times) * 0.99)] * 1e6


def victim(ann, bob, options):
    ann.field("s", 1000)
    ann.field("p", 2048, 2048)
    kinds = {"a scalar": {"expr": "sum(s)"}, "a plane": {"expr": "mean(p*p + 1)"},
             "a cube": {"expr": "mean(u*u + 1)"}}
    for name, body in kinds.items():
        latencies(ann, body, 0.3)
        alone = latencies(ann, body, options.seconds)
        with Program(bob):
            beside = latencies(ann, body, options.seconds)
            with Crowd(bob):
                crowd = latencies(ann, body, options.seconds)
        x = beside[1] / alone[1]
        show(f"{name}: p50 {alone[0]:.0f}, p99 {alone[1]:.0f} us alone; beside a program {beside[0]:.0f}, "
             f"{beside[1]:.0f} us, {x:.1f} x (wanted 3); and a crowd {crowd[0]:.0f}, {crowd[1]:.0f} us, "
             f"{crowd[1] / alone[1]:.1f} x", x <= 3, case=f"victim, {name}", alone_us=alone, program_us=beside,
             crowd_us=crowd, p99_ratio=x)


def compiler(ann, bob, options):
    for user in (ann, bob):
        user.field("s", 1000)
    ours = iter(random.sample(range(500_000), 500_000))

    def first_times(seconds):
        times, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            body = new_expression(next(ours))
            begun = time.perf_counter()
            ann.ask("POST", "/v1/evaluate", body)
            times.append((time.perf_counter() - begun) * 1e3)
        times.sort()
        return times[len(times) // 2], times[int(len(times) * 0.9)]

    first_times(0.5)
    alone = first_times(options.seconds)
    with Crowd(bob, flood, FLOOD):
        time.sleep(1)
        beside = first_times(2 * options.seconds)
    x = beside[0] / alone[0]
    show(f"a new expression: p50 {alone[0]:.1f}, p90 {alone[1]:.1f} ms alone; beside {FLOOD} at once of another's {beside[0]:.1f}, "
         f"{beside[1]:.1f} ms, {x:.1f} x (wanted 3)", x <= 3, case="compiler", alone_ms=alone, flood_ms=beside, p50_ratio=x)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arrayd")
    p.add_argument("--backend", default="cuda")
    p.add_argument("--edge", type=int, default=512)
    p.add_argument("--seconds", type=float, default=5)
    p.add_argument("--part", nargs="*", default=["shares", "victim", "compiler"])
    p.add_argument("--option", action="append", default=[])
    options = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        accounts = pathlib.Path(folder) / "accounts"
        tokens = [subprocess.run([options.arrayd, "token", "add", name, "--role", "operator", "--accounts", accounts],
                                 check=True, capture_output=True, text=True).stdout.strip() for name in ("ann", "bob")]
        accounts.write_text(accounts.read_text().replace("[bob]\n", "[bob]\nweight = 3\n"))
        d = Daemon(options.arrayd, "--backend", options.backend, "--accounts", str(accounts), *options.option)
        ann, bob = (User(d.port, token) for token in tokens)
        for user in (ann, bob):
            for name in ("u", "w"):
                user.field(name, options.edge, options.edge, options.edge)
        if "shares" in options.part:
            shares(ann, bob, options)
        if "victim" in options.part:
            victim(ann, bob, options)
        if "compiler" in options.part:
            compiler(ann, bob, options)
        d.proc.terminate()
        d.proc.wait()
    print(f"| missed: {'; '.join(missed) or 'nothing'}")


if __name__ == "__main__":
    main()
