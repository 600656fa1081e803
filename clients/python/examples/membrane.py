#!/usr/bin/env python3
"""Waves on a square membrane that is held at its edge, by the Python Array API standard alone.

    membrane.py [URL]        http://127.0.0.1:7411 by itself

`waves` asks its argument for the namespace, so that it runs on the arrays of arrayd, NumPy (2 or later), CuPy, …; here on
arrayd's, and on NumPy's to compare.
"""
import sys

import numpy as np

import arrayd


def waves(x, steps, courant=0.4):
    """The membrane's heights after so many time steps of the wave equation (leapfrog), at the points (x[i], x[j]).

    At first it is at rest with a bump. x: the coordinates, from 0 to 1. courant: (speed*time step/distance of points)², at most 0.5.
    """
    xp = x.__array_namespace__()
    u = xp.exp(-100.0 * ((x[:, None] - 0.3) ** 2 + (x[None, :] - 0.6) ** 2))
    u[0, :] = 0.0
    u[-1, :] = 0.0
    u[:, 0] = 0.0
    u[:, -1] = 0.0
    before = u + 0.0
    for _ in range(steps):
        inner = u[1:-1, 1:-1]
        curvature = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * inner
        after = xp.zeros(u.shape, dtype=u.dtype)
        after[1:-1, 1:-1] = 2.0 * inner - before[1:-1, 1:-1] + courant * curvature
        before, u = u, after
    return u


def main():
    with arrayd.connect(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7411") as client, client.session() as xp:
        u = waves(xp.linspace(0.0, 1.0, 101), 120)
        print(f"heights from {float(xp.min(u)):.6f} to {float(xp.max(u)):.6f}, {float(u[50, 50]):.6f} in the middle")
        if hasattr(np.ndarray, "__array_namespace__"):
            off = np.max(np.abs(np.asarray(u) - waves(np.linspace(0.0, 1.0, 101), 120)))
            print(f"off NumPy's by {off:.1e} at most")


if __name__ == "__main__":
    main()
