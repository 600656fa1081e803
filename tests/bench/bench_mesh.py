#!/usr/bin/env python3
"""Arrays over several GPUs beside one GPU, and beside jax and torch on the same GPUs, in one run.

    bench_mesh.py ARRAYD [--mesh all] [--rounds 5] [--shrink 1] [--cases KEY…] [--no-peers]

Each case runs on one GPU, on the mesh, and by each peer (mesh_peers.py) in turn; milliseconds are the least of the rounds: of programs by the
job's own clock, of numbers the device's, of other requests the client's, with twenty sent at once, as many as a peer's. "weak": the mesh has as much for each GPU as the one GPU has, and the
ratio is the one GPU's time over the mesh's, 1 at best; "strong": both have the same array, and the ratio is at best the
number of GPUs. Before that the bits of both are held against each other, on arrays of a divisor's size, and some rows of the peers' results
against the mesh's. "peers": the best one's time over the mesh's; wanted are 1 of stencils and 0.95.

The case p99 is what evaluations of a small session on one GPU take, alone and while a program of another user works on the mesh: p99 is wanted to be
1.5 times that alone at most.

One JSON line a case, and one that begins with | for a reader.
"""
import argparse
import collections
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

from bench_fair import Program, User, latencies
from bench_gpu import Daemon
from bench_gpu_program import BODIES
from mesh_peers import open_peers, timed

# What a peer does: kind, the fields it has, how often, and whether as one program.
Same = collections.namedtuple("Same", "kind inputs times in_loop")


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
    return shape, make, Same(kind, BODIES[kind][1], steps, True)


def expression(expr, shape, inputs="ab", out="r", repeat=20, peer=None):
    """The result goes into an array that is there, or (out None) is a number."""
    def make(side, s):
        for i, n in enumerate(inputs):
            side.put(n, s, seed=1 + i)
        body = {"expr": expr, "out": out} if out else {"expr": expr, "inline": True}
        if out:
            side.ask("POST", "/v1/evaluate", {"expr": expr, "name": out})
        return lambda: side.evaluate(*[body] * repeat, of=out), (out,) if out else ()
    return shape, make, peer and Same(peer, inputs, repeat, False)


def singles(shape, n=10):
    def make(side, s):
        side.put("u", s)
        side.put("v", s, seed=2)
        step = [{"expr": f"{a} + 0.1*laplacian({a}, boundary='clamp')", "out": b} for a, b in ("uv", "vu")]
        return lambda: side.evaluate(*step * n, of="u"), ("u", "v")
    return shape, make, Same("heat", "u", 2 * n, False)


# key: how, goal, case
CASES = {
    "heat by requests": ("weak", 0.97, singles((512,) * 3)),
    "heat program": ("weak", 0.92, program("heat", (512,) * 3, 100)),
    "heat 512^3": ("strong", 1.7, program("heat", (512,) * 3, 100)),
    "wave 512^3": ("strong", 1.7, program("wave", (512,) * 3, 100)),
    "Gray-Scott 8192^2": ("strong", 1.7, program("gray", (8192,) * 2, 100)),
    "life 16384^2": ("strong", 1.7, program("life", (16384,) * 2, 100)),
    "a + b": ("weak", 0.99, expression("a + b", (512, 512, 1024), peer="add")),
    "exp, sin, sqrt": ("weak", 0.99, expression("exp(-a)*sin(b) + sqrt(a)", (512, 512, 1024), peer="exp")),
    "softmax of rows": ("weak", 0.99, expression("exp(a - max(a, axis=-1, keepdims=True))/sum(exp(a - max(a, axis=-1, keepdims=True)), axis=-1, keepdims=True)",
                                            (1 << 19, 512), "a", peer="softmax")),
    "sum of 1 GiB": ("weak", 0.97, expression("sum(a)", (1 << 28,), "a", None, peer="sum")),
    "sum of 4 MiB": ("same", None, expression("sum(a)", (1 << 20,), "a", None, peer="sum")),
    "1,024 numbers": ("same", None, expression("a + b", (1024,))),
    "a + transpose(a)": ("strong", 1.2, expression("a + permute_dims(a, [1, 0])", (16384,) * 2, "a", peer="transpose")),
    "mean over axis 0": ("strong", None, expression("mean(a, 0)", (512, 512, 1024), "a", peer="mean0")),
    "cumulative sum": ("strong", None, expression("cumulative_sum(a, 0)", (1024, 1 << 18), "a", peer="cumsum0")),
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


def prepared(peers, same, names, mesh, shape, run):
    """The peers' {name: a function that does it once more and tells the milliseconds} of those whose results are the mesh's, which
    has done nothing yet; and what is wrong with the others."""
    kind, inputs, times, in_loop = same
    made, notes = {}, {}
    arrays = [np.array(mesh.data(n).view("f4").reshape(shape)) for n in inputs]
    for peer in peers:
        try:
            made |= peer.prepare(kind, arrays, in_loop)
        except Exception as why:  # a peer that fails is not compared with
            notes[type(peer).__name__] = f"{type(why).__name__}: {why}"[:300]
    run()
    if names:
        n, *tail = mesh.ask("GET", f"/v1/arrays/{names[0]}")["shape"]
        places = [slice(0, 2), slice(n // 2 - 1, n // 2 + 1), slice(n - 2, n)]
        wanted = [mesh.data(names[0], f"{s.start}:{s.stop}").view("f4").reshape(-1, *tail) for s in places]
    else:
        places, wanted = [slice(None)], [mesh.ask("POST", "/v1/evaluate", {"expr": "sum(a)", "inline": True})["value"]]
    good = {}
    for name, (again, rows) in made.items():
        try:
            again(times)
            if not all(np.allclose(rows(at), want, rtol=2e-3, atol=2e-3) for at, want in zip(places, wanted)):
                raise ValueError("another result")
            good[name] = lambda again=again: timed(again, times) * (times if in_loop else 1)
        except Exception as why:
            notes[name] = f"{type(why).__name__}: {why}"[:300]
    return good, notes


class InSession(User):
    """A user with a session of its own on a device."""

    def __init__(self, port, token, device):
        super().__init__(port, token)
        self.session = None
        self.session = self.ask("POST", "/v1/sessions", {"device": device})["id"]

    def headers(self):
        return super().headers() | ({"Arrayd-Session": self.session} if self.session else {})


def beside(options):
    """p99 of a small session's requests on one GPU, alone and beside a program on the mesh; whether it is as wanted."""
    good = True
    with tempfile.TemporaryDirectory() as folder:
        accounts = pathlib.Path(folder) / "accounts"
        tokens = [subprocess.run([options.arrayd, "token", "add", name, "--role", "operator", "--accounts", accounts],
                                 check=True, capture_output=True, text=True).stdout.strip() for name in ("ann", "bob")]
        d = Daemon(options.arrayd, "--backend", "cuda", "--mesh", options.mesh, "--accounts", str(accounts), "--idle-timeout", "3600")
        try:
            ann, bob = InSession(d.port, tokens[0], 0), InSession(d.port, tokens[1], "mesh")
            ann.field("s", 1000)
            ann.field("p", 2048 // options.shrink, 2048)
            bob.field("u", *(n // options.shrink for n in (1024, 512, 512)))
            for name, expr in (("a scalar", "sum(s)"), ("a plane", "mean(p*p + 1)")):
                latencies(ann, {"expr": expr}, 0.3)
                alone, busy = [], []
                for _ in range(2):  # in turn
                    alone.append(latencies(ann, {"expr": expr}, options.seconds))
                    with Program(bob):
                        busy.append(latencies(ann, {"expr": expr}, options.seconds))
                alone, busy = min(alone, key=lambda t: t[1]), min(busy, key=lambda t: t[1])
                x = busy[1] / alone[1]
                print(json.dumps({"case": "p99", "of": name, "alone_us": alone, "beside_us": busy, "p99_ratio": round(x, 3)}))
                print(f"| p99 of {name}: p50 {alone[0]:.0f}, p99 {alone[1]:.0f} us alone, {busy[0]:.0f} and {busy[1]:.0f} us beside a program on "
                      f"the mesh, {x:.2f} x, wanted 1.5{'' if x <= 1.5 else ': MISSED'}", flush=True)
                good &= x <= 1.5
        finally:
            d.proc.terminate()
            d.proc.wait()
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arrayd")
    p.add_argument("--mesh", default="all")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--shrink", type=int, default=1, help="extents by so much: to try the script")
    p.add_argument("--cases", nargs="*")
    p.add_argument("--no-peers", action="store_true")
    p.add_argument("--seconds", type=float, default=5, help="of each measurement of p99")
    p.add_argument("--large", type=int, nargs=3, metavar="GIB", help="only arrays of so much: made and changed; stepped by requests; by a program")
    options = p.parse_args()
    d = Daemon(options.arrayd, "--backend", "cuda", "--mesh", options.mesh, "--mesh-least", "4MiB", "--idle-timeout", "3600")
    failed, missed = [], []
    try:
        one, mesh = Side(d.port, 0), Side(d.port, "mesh")
        if options.large and not large(mesh, options.large):
            failed.append("large")
        parts = len(one.ask("GET", "/v1/info")["devices"][-1]["parts"])
        peers, missing = ([], {}) if options.no_peers or options.large else open_peers(parts)
        for name, why in missing.items():
            print(f"| {name}: {why}", flush=True)
        for key, (how, goal, (shape, make, same)) in CASES.items():
            if options.large or options.cases and key not in options.cases:
                continue
            shape = tuple(max(n // options.shrink, 1) for n in shape)
            small = shape if "transpose" in key else (max(shape[0] // 4, min(shape[0], 64)), *shape[1:])
            try:
                bits = same_bits((one, mesh), make, small)
                whole = larger(shape, parts) if how == "weak" else shape
                runs = {"one": make(one, shape)[0]}
                runs["mesh"], names = make(mesh, whole)
                others, notes = prepared(peers, same, names, mesh, whole, runs["mesh"]) if peers and same else ({}, {})
                runs |= others
                ms = {name: [] for name in runs}
                for _ in range(options.rounds + 1):
                    for name, run in runs.items():
                        ms[name].append(run())
            except RuntimeError as e:
                print(f"| {key:20} failed: {e}", flush=True)
                failed.append(key)
                continue
            least = {name: min(times[1:]) for name, times in ms.items()}
            a, b = least.pop("one"), least.pop("mesh")
            row = {"case": key, "how": how, "shape": shape, "parts": parts, "one_ms": a, "mesh_ms": b,
                   "ratio": round(a / b, 3), "wanted": goal, "same_bits": bits, "all": ms}
            text = f"| {key:20} {how:6} one {a:9.4f} ms, mesh {b:9.4f} ms, ratio {a / b:6.3f}"
            text += (f", wanted {goal}" if goal else "") + ("" if bits else ", OTHER BITS")
            if goal and a / b < goal:
                missed.append(f"{key}: {a / b:.3f}, wanted {goal}")
            if least:
                best = min(least, key=least.get)
                row |= {"peers": round(least[best] / b, 3), "peers_ms": least}
                text += "; " + ", ".join(f"{name} {t:.4f}" for name, t in least.items()) + f": {least[best] / b:.3f}"
                if least[best] / b < (1 if same.kind in BODIES else 0.95):
                    missed.append(f"{key}: {least[best] / b:.3f} of {best}")
            print(json.dumps(row | ({"peers_wrong": notes} if notes else {})))
            print(text + "".join(f"; {name}: {why}" for name, why in notes.items()), flush=True)
            runs = others = run = None  # what peers hold
            for peer in peers:
                peer.let_go()
            if not bits and "sum" not in key and "mean" not in key:
                failed.append(key)
            one.drop()
            mesh.drop()
    finally:
        status = d.stop()
    if not options.large and (not options.cases or "p99" in options.cases) and not beside(options):
        missed.append("p99 beside the mesh")
    print(f"| missed: {'; '.join(missed) or 'nothing'}", flush=True)
    sys.exit(1 if failed or status else 0)


if __name__ == "__main__":
    main()
