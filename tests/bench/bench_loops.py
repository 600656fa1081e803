#!/usr/bin/env python3
"""Loops written for NumPy, as they are: the Python client, the same loop as a program written by hand, and NumPy or who else is asked for.

    bench_loops.py ARRAYD [--sizes 256,512,1024] [--steps 200] [--rounds 3] [--peers numpy,cupy,jax] [--backend cpu|cuda]

Prints a line a case: milliseconds until all is computed where the arrays are, the best of the rounds, in which the contestants take turns,
and requests. With jax a step is compiled as a whole by `jax.jit`. The client's values are those of the first peer to rounding, and bit by
bit those of the same loop without loops (`arrayd.config(loops=False)`), or the run ends.
"""
import argparse
import functools
import importlib
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402

LAPLACIAN = "roll({z}, 1, axis=0) + roll({z}, -1, axis=0) + roll({z}, 1, axis=1) + roll({z}, -1, axis=1) - 4*{z}"
GRAY_SCOTT = ["r = u*v*v", f"nu = u + (0.16*({LAPLACIAN.format(z='u')}) - r + 0.035*(1 - u))",
              f"v = v + (0.08*({LAPLACIAN.format(z='v')}) + r - 0.1*v)", "u = nu"]
WATER = ["u[1:-1, 1:-1] -= c*(h[2:, 1:-1] - h[:-2, 1:-1])", "v[1:-1, 1:-1] -= c*(h[1:-1, 2:] - h[1:-1, :-2])", "hu = h*u", "hv = h*v",
         "h[1:-1, 1:-1] -= c*(hu[2:, 1:-1] - hu[:-2, 1:-1] + hv[1:-1, 2:] - hv[1:-1, :-2])",
         "h[0, :] = h[1, :]", "h[-1, :] = h[-2, :]", "h[:, 0] = h[:, 1]", "h[:, -1] = h[:, -2]"]


@functools.cache
def jitted(step):
    return importlib.import_module("jax").jit(step, static_argnums=0)


def step_of(xp, step, in_jax=None):
    return jitted(in_jax or step) if xp.__name__ == "jax.numpy" else step


def laplacian(xp, z):
    return xp.roll(z, 1, axis=0) + xp.roll(z, -1, axis=0) + xp.roll(z, 1, axis=1) + xp.roll(z, -1, axis=1) - 4 * z


def gray_scott_fields(xp, n):
    noise = np.random.default_rng(0).random((n, n), dtype=np.float32) * np.float32(0.3)
    return xp.asarray(np.ones((n, n), np.float32)), xp.asarray(noise)


def gray_scott_step(xp, u, v):
    r = u * v * v
    return u + (0.16 * laplacian(xp, u) - r + 0.035 * (1 - u)), v + (0.08 * laplacian(xp, v) + r - 0.1 * v)


def gray_scott(xp, n, steps, look):
    u, v = gray_scott_fields(xp, n)
    step = step_of(xp, gray_scott_step)
    for i in range(steps):
        u, v = step(xp, u, v)
        if look and i % look == look - 1:
            float(xp.max(v))
    return u, v


def gray_scott_program(xp, n, steps, look):
    u, v = (z.compute() for z in gray_scott_fields(xp, n))
    record = {"record": {"top": "max(v)"}, "record_every": look} if look else {}
    xp.program(GRAY_SCOTT, steps=steps, u=u, v=v, **record).wait()
    return u, v


def water_fields(xp, n):
    x = np.linspace(-1, 1, n)
    h = 1 + 0.3 * np.exp(-50 * (x[:, None]**2 + x**2))
    return xp.asarray(h), xp.zeros((n, n)), xp.zeros((n, n))


def water_step(xp, h, u, v):
    u[1:-1, 1:-1] -= 0.05 * (h[2:, 1:-1] - h[:-2, 1:-1])
    v[1:-1, 1:-1] -= 0.05 * (h[1:-1, 2:] - h[1:-1, :-2])
    h[1:-1, 1:-1] -= 0.05 * ((h * u)[2:, 1:-1] - (h * u)[:-2, 1:-1] + (h * v)[1:-1, 2:] - (h * v)[1:-1, :-2])
    h[0, :], h[-1, :] = h[1, :], h[-2, :]
    h[:, 0], h[:, -1] = h[:, 1], h[:, -2]
    return h, u, v


def water_step_jax(xp, h, u, v):
    """The same, where arrays cannot be written."""
    mid = np.s_[1:-1, 1:-1]
    u = u.at[mid].add(-0.05 * (h[2:, 1:-1] - h[:-2, 1:-1]))
    v = v.at[mid].add(-0.05 * (h[1:-1, 2:] - h[1:-1, :-2]))
    h = h.at[mid].add(-0.05 * ((h * u)[2:, 1:-1] - (h * u)[:-2, 1:-1] + (h * v)[1:-1, 2:] - (h * v)[1:-1, :-2]))
    h = h.at[0, :].set(h[1, :]).at[-1, :].set(h[-2, :])
    return h.at[:, 0].set(h[:, 1]).at[:, -1].set(h[:, -2]), u, v


def water(xp, n, steps, look):
    fields = water_fields(xp, n)
    step = step_of(xp, water_step, water_step_jax)
    for _ in range(steps):
        fields = step(xp, *fields)
    return fields


def water_program(xp, n, steps, look):
    h, u, v = (z.compute() for z in water_fields(xp, n))
    xp.program(WATER, steps=steps, h=h, u=u, v=v, bind={"c": 0.05}).wait()
    return h, u, v


CASES = [("Gray-Scott", gray_scott, gray_scott_program, look) for look in (0, 50, 10, 1)] + [("shallow water", water, water_program, 0)]


def namespace(name):
    """A peer, and what waits for its arrays."""
    if name == "cupy":
        xp = importlib.import_module("cupy")
        return xp, lambda fields: xp.cuda.Device().synchronize()
    if name == "jax":
        importlib.import_module("jax").config.update("jax_enable_x64", True)
        return importlib.import_module("jax.numpy"), lambda fields: [z.block_until_ready() for z in fields]
    return np, lambda fields: None


def timed(f, xp, done, *args):
    began = time.perf_counter()
    fields = f(xp, *args)
    done(fields)
    return time.perf_counter() - began, fields


def host(x):
    return x.get() if type(x).__module__.startswith("cupy") else np.asarray(x)


def requests(port):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("arrayd_http_requests_total{"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("arrayd")
    p.add_argument("--sizes", default="256,512,1024")
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--peers", default="numpy")
    p.add_argument("--backend", default="cpu")
    a = p.parse_args()
    peers = {name: namespace(name) for name in a.peers.split(",")}
    daemon = subprocess.Popen([a.arrayd, "--listen", "127.0.0.1:0", "--backend", a.backend], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not (ready := re.search(r"ready listen=.*127\.0\.0\.1:(\d+)", daemon.stdout.readline())):
        assert daemon.poll() is None
    threading.Thread(target=daemon.stdout.read, daemon=True).start()
    xp = arrayd.connect(f"http://127.0.0.1:{ready[1]}")

    def done(fields):
        for z in fields:
            z.compute()
        xp.sync()

    print(f"| {'case':32} {'size':>6} {'as it is':>9} {'program':>9} {'of these':>9} {'requests':>9}" + "".join(f" {name:>9}" for name in peers))
    try:
        for n in (int(s) for s in a.sizes.split(",")):
            for name, natural, program, look in CASES:
                args = n, a.steps, look
                with arrayd.config(loops=False):
                    plain = [host(z) for z in natural(xp, *args)]
                turns = {"as it is": (natural, xp, done), "program": (program, xp, done), **{k: (natural, *peer) for k, peer in peers.items()}}
                best = dict.fromkeys(turns, float("inf"))
                for k in range(a.rounds):
                    before = requests(ready[1])
                    for who, turn in turns.items():
                        t, fields = timed(*turn, *args)
                        best[who] = min(best[who], t)
                        if who == "as it is":
                            sent = requests(ready[1]) - before - 1
                            assert all(host(z).tobytes() == w.tobytes() for z, w in zip(fields, plain)), "not the same bits with loops and without"
                        elif k == 0 and who in peers:
                            assert all(np.allclose(host(z), w, rtol=1e-3, atol=1e-5) for z, w in zip(fields, plain)), f"not what {who} has"
                        del fields
                what = name + (f", looked at every {look}" if look else "")
                print(f"| {what:32} {n:6} {best['as it is'] * 1e3:9.1f} {best['program'] * 1e3:9.1f} {best['as it is'] / best['program']:9.2f} {sent:9.0f}"
                      + "".join(f" {best[name] * 1e3:9.1f}" for name in peers), flush=True)
    finally:
        xp.close()
        daemon.terminate()
        daemon.wait()


if __name__ == "__main__":
    main()
