#!/usr/bin/env python3
"""Arrays over several GPUs beside one GPU, through one daemon, in one run.

    bench_mesh.py ARRAYD [--mesh all] [--rounds 5] [--shrink 1] [--cases KEY…]

Each case runs on one GPU and on the mesh in turn; milliseconds are the least of the rounds: of programs by the
job's own clock, of numbers the device's, of other requests the client's, with twenty sent at once. "weak": the mesh has as much for each GPU as the one GPU has, and the
ratio is the one GPU's time over the mesh's, 1 at best; "strong": both have the same array, and the ratio is at best the
number of GPUs. Before that the bits of both are held against each other, on arrays of a divisor's size. One JSON line a
case, and one that begins with | for a reader.
"""
import argparse
import json
import socket
import sys
import time

import numpy as np

from bench_gpu import Daemon
from bench_gpu_program import BODIES


class Side(Daemon):
    """A session on a device, by a connection of its own."""

    def __init__(self, port, device):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest, self.header = b"", b""
        self.header = f"Arrayd-Session: {self.ask('POST', '/v1/sessions', {'device': device})['id']}\r\n".encode()

    def request(self, method, path, body=None, accept="application/json"):
        head, _, rest = Daemon.request(method, path, body, accept).partition(b"\r\n")
        return head + b"\r\n" + self.header + rest

    def put(self, name, shape, dtype="float32", seed=1):
        self.ask("PUT", f"/v1/arrays/{name}", {"shape": list(shape), "dtype": dtype,
                                               "random": {"distribution": "uniform", "seed": seed}})

    def drop(self):
        for a in self.ask("GET", "/v1/arrays?limit=1000")["arrays"]:
            self.ask("DELETE", "/v1/arrays/" + a["id"])

    def data(self, name, index=None):
        path = f"/v1/arrays/{name}/data" + (f"?index={index}" if index else "")
        return np.frombuffer(self.ask("GET", path, accept="application/octet-stream"), "u1")

    def evaluate(self, *bodies, of=None):
        """Milliseconds of one of the requests, sent at once; then an element is asked for, which waits for them. Of
        requests that reply with a number (of None): the device's."""
        requests = [self.request("POST", "/v1/evaluate", b) for b in bodies]
        if of is None:
            return min(timing["gpu"] for timing, _ in self.together(*requests))
        first = ",".join("0" for _ in self.ask("GET", f"/v1/arrays/{of}")["shape"])
        begin = time.perf_counter()
        self.together(*requests, self.request("GET", f"/v1/arrays/{of}/data?index={first}"))
        return (time.perf_counter() - begin) * 1e3 / len(bodies)

    def program(self, kind, steps):
        body, _, bind = BODIES[kind]
        job = self.ask("POST", "/v1/programs?wait=1", {"body": body, "steps": steps, "bind": bind})
        if job["state"] != "done":
            raise SystemExit(f"the program ended as {job}")
        return job["device_s"] * 1e3


def fields(side, kind, shape):
    for i, n in enumerate(BODIES[kind][1]):
        side.put(n, shape, seed=1 + i)
        if kind == "life":
            side.ask("POST", "/v1/evaluate", {"expr": f"where({n} > 0.6, 1.0, 0.0)", "out": n})


def program(kind, shape, steps):
    def make(side, s):
        fields(side, kind, s)
        return lambda: side.program(kind, steps), BODIES[kind][1]
    return shape, make


def expression(expr, shape, inputs="ab", out="r", repeat=20):
    """The result goes into an array that is there, or (out None) is a number."""
    def make(side, s):
        for i, n in enumerate(inputs):
            side.put(n, s, seed=1 + i)
        body = {"expr": expr, "out": out} if out else {"expr": expr, "inline": True}
        if out:
            side.ask("POST", "/v1/evaluate", {"expr": expr, "name": out})
        return lambda: side.evaluate(*[body] * repeat, of=out), (out,) if out else ()
    return shape, make


def singles(shape, n=10):
    def make(side, s):
        side.put("u", s)
        side.put("v", s, seed=2)
        step = [{"expr": f"{a} + 0.1*laplacian({a}, boundary='clamp')", "out": b} for a, b in ("uv", "vu")]
        return lambda: side.evaluate(*step * n, of="u"), ("u", "v")
    return shape, make


# key: how, goal, case
CASES = {
    "heat by requests": ("weak", 0.97, singles((512,) * 3)),
    "heat program": ("weak", 0.92, program("heat", (512,) * 3, 100)),
    "heat 512^3": ("strong", 1.7, program("heat", (512,) * 3, 100)),
    "wave 512^3": ("strong", 1.7, program("wave", (512,) * 3, 100)),
    "Gray-Scott 8192^2": ("strong", 1.7, program("gray", (8192,) * 2, 100)),
    "life 16384^2": ("strong", 1.7, program("life", (16384,) * 2, 100)),
    "a + b": ("weak", 0.99, expression("a + b", (512, 512, 1024))),
    "exp, sin, sqrt": ("weak", 0.99, expression("exp(-a)*sin(b) + sqrt(a)", (512, 512, 1024))),
    "softmax of rows": ("weak", 0.99, expression("exp(a - max(a, axis=-1, keepdims=True))/sum(exp(a - max(a, axis=-1, keepdims=True)), axis=-1, keepdims=True)",
                                            (1 << 19, 512), "a")),
    "sum of 1 GiB": ("weak", 0.97, expression("sum(a)", (1 << 28,), "a", None)),
    "sum of 4 MiB": ("same", None, expression("sum(a)", (1 << 20,), "a", None)),
    "1,024 numbers": ("same", None, expression("a + b", (1024,))),
    "a + transpose(a)": ("strong", 1.2, expression("a + permute_dims(a, [1, 0])", (16384,) * 2, "a")),
    "mean over axis 0": ("strong", None, expression("mean(a, 0)", (512, 512, 1024), "a")),
    "cumulative sum": ("strong", None, expression("cumulative_sum(a, 0)", (1024, 1 << 18), "a")),
}


def large(mesh, gib):
    """Arrays that no single GPU holds; `gib` as those of the three parts."""
    plane, begin = (1024, 4096), time.perf_counter()

    def say(what, ok=True):
        print(f"| {what}{'' if ok else ': WRONG'}, {time.perf_counter() - begin:.1f} s", flush=True)
        return ok

    def planes(name, at):
        return mesh.data(name, f"{at[0]}:{at[1]}").view("f4").reshape(-1, *plane)

    right = True
    n = gib[0] << 6
    mesh.ask("PUT", "/v1/arrays/big", {"shape": [n, *plane], "dtype": "float32"})
    for _ in range(3):
        mesh.ask("POST", "/v1/evaluate", {"expr": "big*2 + 1", "out": "big"})
    total = mesh.ask("POST", "/v1/evaluate", {"expr": "sum(big)", "inline": True})["value"]
    right &= say(f"{gib[0]} GiB made, changed three times and added up: {total / n / 4194304}", np.float32(total) == 7 * n * 4194304)
    right &= say("downloaded in part", bool((planes("big", (n - 1, n)) == 7).all() and (planes("big", (n // 2 - 1, n // 2 + 1)) == 7).all()))
    mesh.drop()
    n = gib[1] << 6
    for name in "uv":
        mesh.put(name, (n, *plane))
    seam = (n // 2 - 3, n // 2 + 3)
    u = planes("u", seam)
    mesh.ask("POST", "/v1/evaluate", {"expr": "u + 0.1*laplacian(u, boundary='clamp')", "out": "v"})
    p = np.pad(u, ((0, 0), (1, 1), (1, 1)), "edge")
    c = p[1:-1, 1:-1, 1:-1]
    want = c + np.float32(0.1) * ((p[2:, 1:-1, 1:-1] - 2*c + p[:-2, 1:-1, 1:-1]) + (p[1:-1, 2:, 1:-1] - 2*c + p[1:-1, :-2, 1:-1])
                                  + (p[1:-1, 1:-1, 2:] - 2*c + p[1:-1, 1:-1, :-2]))
    right &= say(f"two of {gib[1]} GiB: a step by a request", bool(np.allclose(planes("v", (seam[0] + 1, seam[1] - 1)), want, atol=1e-5)))
    mesh.drop()
    n = gib[2] << 6
    seam, got = (n // 2 - 3, n // 2 + 3), []
    for how in ("requests", "program"):
        mesh.put("u", (n, *plane))
        if how == "program":
            mesh.program("heat", 8)
        for _ in range(8 * (how == "requests")):
            mesh.ask("POST", "/v1/evaluate", {"expr": "u + 0.1*laplacian(u, boundary='clamp')", "out": "u"})
        got.append(planes("u", seam))
        mesh.drop()
    return right & say(f"{gib[2]} GiB: eight steps by a program", got[0].tobytes() == got[1].tobytes())


def larger(shape, n):
    return (shape[0] * n, *shape[1:])


def same_bits(sides, make, shape):
    got = []
    for s in sides:
        run, names = make(s, shape)
        run()
        got.append([s.data(n) for n in names])
        s.drop()
    return all((a == b).all() for a, b in zip(*got))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arrayd")
    p.add_argument("--mesh", default="all")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--shrink", type=int, default=1, help="the slowest axis is so many times shorter")
    p.add_argument("--cases", nargs="*")
    p.add_argument("--large", type=int, nargs=3, metavar="GIB", help="only arrays of so much: made and changed; stepped by requests; by a program")
    options = p.parse_args()
    d = Daemon(options.arrayd, "--backend", "cuda", "--mesh", options.mesh, "--mesh-least", "4MiB")
    failed = []
    try:
        one, mesh = Side(d.port, 0), Side(d.port, "mesh")
        if options.large and not large(mesh, options.large):
            failed.append("large")
        parts = len(one.ask("GET", "/v1/info")["devices"][-1]["parts"])
        for key, (how, goal, (shape, make)) in CASES.items():
            if options.large or options.cases and key not in options.cases:
                continue
            shape = (max(shape[0] // options.shrink, 1), *shape[1:])
            small = shape if "transpose" in key else (max(shape[0] // 4, 64), *shape[1:])
            try:
                bits = same_bits((one, mesh), make, small)
                runs = (make(one, shape)[0], make(mesh, larger(shape, parts) if how == "weak" else shape)[0])
                ms = [[], []]
                for _ in range(options.rounds + 1):
                    for i, run in enumerate(runs):
                        ms[i].append(run())
            except RuntimeError as e:
                print(f"| {key:20} failed: {e}", flush=True)
                failed.append(key)
                continue
            a, b = min(ms[0][1:]), min(ms[1][1:])
            print(json.dumps({"case": key, "how": how, "shape": shape, "parts": parts, "one_ms": a, "mesh_ms": b,
                              "ratio": round(a / b, 3), "wanted": goal, "same_bits": bits, "all": ms}))
            print(f"| {key:20} {how:6} one {a:9.4f} ms, mesh {b:9.4f} ms, ratio {a / b:6.3f}"
                  + (f", wanted {goal}" if goal else "") + ("" if bits else ", OTHER BITS"), flush=True)
            if not bits and "sum" not in key and "mean" not in key:
                failed.append(key)
            one.drop()
            mesh.drop()
    finally:
        status = d.stop()
    sys.exit(1 if failed or status else 0)


if __name__ == "__main__":
    main()
