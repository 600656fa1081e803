#!/usr/bin/env python3
"""Programs as people write them for NumPy, on arrayd by another namespace: `xp` is NumPy, or a client of arrayd.

    fields.py [URL]          what `arrayd.connect()` finds by itself

Their loops become programs of the daemon's by themselves; `explain()` of an array says so.
"""
import sys
import time

import numpy as np

import arrayd


def laplacian(xp, u):
    return xp.roll(u, 1, axis=0) + xp.roll(u, -1, axis=0) + xp.roll(u, 1, axis=1) + xp.roll(u, -1, axis=1) - 4 * u


def gray_scott(xp, n=128, steps=500):
    """Two chemicals that react and spread (Pearson 1993); each step makes new arrays."""
    u, v = xp.ones((n, n)), xp.zeros((n, n))
    u[n // 2 - 8:n // 2 + 8, n // 2 - 8:n // 2 + 8] = 0.5
    v[n // 2 - 8:n // 2 + 8, n // 2 - 8:n // 2 + 8] = 0.25
    for _ in range(steps):
        reaction = u * v * v
        u, v = u + 0.16 * laplacian(xp, u) - reaction + 0.06 * (1 - u), v + 0.08 * laplacian(xp, v) + reaction - 0.122 * v
    return v


def gray_scott_in_place(xp, n=128, steps=500):
    """The same inside a border that stays, by views, as in N. Rougier's "From Python to Numpy"."""
    U, V = xp.ones((n + 2, n + 2)), xp.zeros((n + 2, n + 2))
    u, v = U[1:-1, 1:-1], V[1:-1, 1:-1]
    u[n // 2 - 8:n // 2 + 8, n // 2 - 8:n // 2 + 8] = 0.5
    v[n // 2 - 8:n // 2 + 8, n // 2 - 8:n // 2 + 8] = 0.25
    for _ in range(steps):
        Lu = U[:-2, 1:-1] + U[1:-1, :-2] - 4 * u + U[1:-1, 2:] + U[2:, 1:-1]
        Lv = V[:-2, 1:-1] + V[1:-1, :-2] - 4 * v + V[1:-1, 2:] + V[2:, 1:-1]
        uvv = u * v * v
        u += 0.16 * Lu - uvv + 0.06 * (1 - u)
        v += 0.08 * Lv + uvv - 0.122 * v
    return V


def shallow_water(xp, n=128, steps=200):
    """A drop falls into a basin: slices are assigned to, and the edges follow."""
    x, y = xp.meshgrid(xp.linspace(-1, 1, n), xp.linspace(-1, 1, n), indexing="ij")
    h = 1 + 0.3 * xp.exp(-50 * (x**2 + y**2))
    u, v = xp.zeros_like(h), xp.zeros_like(h)
    dx, g = 2 / n, 9.81
    dt = 0.2 * dx
    for _ in range(steps):
        u[1:-1, 1:-1] -= dt * g * (h[2:, 1:-1] - h[:-2, 1:-1]) / (2 * dx)
        v[1:-1, 1:-1] -= dt * g * (h[1:-1, 2:] - h[1:-1, :-2]) / (2 * dx)
        h[1:-1, 1:-1] -= dt * ((h * u)[2:, 1:-1] - (h * u)[:-2, 1:-1] + (h * v)[1:-1, 2:] - (h * v)[1:-1, :-2]) / (2 * dx)
        h[0, :], h[-1, :] = h[1, :], h[-2, :]
        h[:, 0], h[:, -1] = h[:, 1], h[:, -2]
    return h


def life(xp, n=128, steps=100):
    """Conway's game of life on a torus."""
    board = xp.asarray(np.random.default_rng(7).random((n, n)) < 0.3)
    for _ in range(steps):
        cells = board.astype("int8")
        near = sum(xp.roll(cells, (dy, dx), axis=(0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0))
        board = (near == 3) | (board & (near == 2))
    return board


def conjugate_gradients(xp, n=128, most=400):
    """Poisson's equation with a source and a sink; the loop ends by what it sees."""
    b = xp.zeros((n, n))
    b[n // 4, n // 4], b[3 * n // 4, 3 * n // 4] = 1.0, -1.0

    def apply(p):
        return 4.01 * p - xp.roll(p, 1, axis=0) - xp.roll(p, -1, axis=0) - xp.roll(p, 1, axis=1) - xp.roll(p, -1, axis=1)

    x = xp.zeros_like(b)
    r = b - apply(x)
    p, rs = r, xp.sum(r * r)
    for _ in range(most):
        ap = apply(p)
        alpha = rs / xp.sum(p * ap)
        x, r = x + alpha * p, r - alpha * ap
        rn = xp.sum(r * r)
        if float(rn) < 1e-12:
            break
        p, rs = r + rn / rs * p, rn
    return x


def edges(xp, n=128):
    """An image is blurred, its gradient taken, and what is steep marked."""
    y, x = np.mgrid[:n, :n]
    image = xp.asarray(np.hypot(x - n / 2, y - n / 3) % 24 / 24 + np.random.default_rng(3).random((n, n)) * 0.1)
    for axis in (0, 1):
        image = (xp.roll(image, 2, axis=axis) + 4 * xp.roll(image, 1, axis=axis) + 6 * image + 4 * xp.roll(image, -1, axis=axis)
                 + xp.roll(image, -2, axis=axis)) / 16
    dy, dx = (xp.roll(image, -1, axis=axis) - xp.roll(image, 1, axis=axis) for axis in (0, 1))
    steep = xp.sqrt(dx * dx + dy * dy)
    return steep > xp.mean(steep) + xp.std(steep)


PROGRAMS = (gray_scott, gray_scott_in_place, shallow_water, life, conjugate_gradients, edges)


def main():
    with arrayd.connect(*sys.argv[1:2]) as xp:
        for program in PROGRAMS:
            seconds = []
            for namespace in (np, xp):
                began = time.perf_counter()
                values = np.asarray(program(namespace))
                seconds.append(time.perf_counter() - began)
                off = np.max(np.abs(values.astype(float) - want)) if namespace is xp else 0
                want = values.astype(float)
            print(f"{program.__name__:20} NumPy {seconds[0]:6.3f} s, arrayd {seconds[1]:6.3f} s, apart {off:.1e}")


if __name__ == "__main__":
    main()
