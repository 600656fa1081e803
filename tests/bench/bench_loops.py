#!/usr/bin/env python3
"""Loops written for NumPy, as they are: NumPy itself, the Python client, and the same loop as a program written by hand.

    bench_loops.py ARRAYD [--sizes 256,512,1024] [--steps 200] [--rounds 3] [--options OPTION…]

Prints a line a case: milliseconds until the values are in this process, the best of the rounds, in which the contestants take turns;
requests; and the client's part alone, which is to build the expressions and to find the loop in them. The client's values are NumPy's to
rounding, and bit by bit those of the same loop without loops (`arrayd.config(loops=False)`), or the run ends.
"""
import argparse
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


def laplacian(xp, z):
    return xp.roll(z, 1, axis=0) + xp.roll(z, -1, axis=0) + xp.roll(z, 1, axis=1) + xp.roll(z, -1, axis=1) - 4 * z


def gray_scott_fields(xp, n):
    noise = np.random.default_rng(0).random((n, n), dtype=np.float32) * np.float32(0.3)
    return xp.asarray(np.ones((n, n), np.float32)), xp.asarray(noise)


def gray_scott(xp, n, steps, look):
    u, v = gray_scott_fields(xp, n)
    for i in range(steps):
        r = u * v * v
        u, v = u + (0.16 * laplacian(xp, u) - r + 0.035 * (1 - u)), v + (0.08 * laplacian(xp, v) + r - 0.1 * v)
        if look and i % look == look - 1:
            float(xp.max(v))
    return np.asarray(v)


def gray_scott_program(xp, n, steps, look):
    u, v = (z.compute() for z in gray_scott_fields(xp, n))
    record = {"record": {"top": "max(v)"}, "record_every": look} if look else {}
    xp.program(GRAY_SCOTT, steps=steps, u=u, v=v, **record).wait()
    return np.asarray(v)


def water_fields(xp, n):
    x = np.linspace(-1, 1, n)
    h = 1 + 0.3 * np.exp(-50 * (x[:, None]**2 + x**2))
    return xp.asarray(h), xp.zeros((n, n)), xp.zeros((n, n))


def water(xp, n, steps, look):
    h, u, v = water_fields(xp, n)
    for _ in range(steps):
        u[1:-1, 1:-1] -= 0.05 * (h[2:, 1:-1] - h[:-2, 1:-1])
        v[1:-1, 1:-1] -= 0.05 * (h[1:-1, 2:] - h[1:-1, :-2])
        h[1:-1, 1:-1] -= 0.05 * ((h * u)[2:, 1:-1] - (h * u)[:-2, 1:-1] + (h * v)[1:-1, 2:] - (h * v)[1:-1, :-2])
        h[0, :], h[-1, :] = h[1, :], h[-2, :]
        h[:, 0], h[:, -1] = h[:, 1], h[:, -2]
    return np.asarray(h)


def water_program(xp, n, steps, look):
    h, u, v = (z.compute() for z in water_fields(xp, n))
    xp.program(WATER, steps=steps, h=h, u=u, v=v, bind={"c": 0.05}).wait()
    return np.asarray(h)


CASES = [("Gray-Scott", gray_scott, gray_scott_program, look) for look in (0, 50, 10, 1)] + [("shallow water", water, water_program, 0)]


def timed(f, *args):
    began = time.perf_counter()
    value = f(*args)
    return time.perf_counter() - began, value


def requests(port):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("arrayd_http_requests_total{"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("arrayd")
    p.add_argument("--sizes", default="256,512,1024")
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--options", nargs="*", default=["--backend", "cpu"])
    a = p.parse_args()
    daemon = subprocess.Popen([a.arrayd, "--listen", "127.0.0.1:0", *a.options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not (ready := re.search(r"ready listen=.*127\.0\.0\.1:(\d+)", daemon.stdout.readline())):
        assert daemon.poll() is None
    threading.Thread(target=daemon.stdout.read, daemon=True).start()
    xp = arrayd.connect(f"http://127.0.0.1:{ready[1]}")
    print(f"{'case':32} {'size':>6} {'NumPy':>9} {'as it is':>9} {'program':>9} {'of these':>9} {'requests':>9}")
    try:
        for n in (int(s) for s in a.sizes.split(",")):
            for name, natural, program, look in CASES:
                args = n, a.steps, look
                with arrayd.config(loops=False):
                    plain = natural(xp, *args)
                best = [float("inf")] * 3
                for _ in range(a.rounds):
                    before = requests(ready[1])
                    for k, (f, of) in enumerate(((natural, np), (natural, xp), (program, xp))):
                        t, value = timed(f, of, *args)
                        best[k] = min(best[k], t)
                        if k == 1:
                            sent = requests(ready[1]) - before - 1
                            assert value.tobytes() == plain.tobytes(), "not the same bits with loops and without"
                        if k == 0:
                            assert np.allclose(value, plain, rtol=1e-3, atol=1e-5)
                what = name + (f", looked at every {look}" if look else "")
                print(f"{what:32} {n:6} {best[0] * 1e3:9.1f} {best[1] * 1e3:9.1f} {best[2] * 1e3:9.1f} {best[1] / best[2]:9.2f} {sent:9.0f}", flush=True)
    finally:
        xp.close()
        daemon.terminate()
        daemon.wait()


if __name__ == "__main__":
    main()
