#!/usr/bin/env python3
"""Clusters of points, by the Python Array API standard alone.

    k_means.py [URL]         http://127.0.0.1:7411 by itself

`k_means` asks its argument for the namespace, so that it runs on the arrays of arrayd, NumPy (2 or later), CuPy, …; here on
arrayd's, and on NumPy's to compare.
"""
import sys

import numpy as np

import arrayd


def k_means(points, k, most=100):
    """Lloyd's algorithm, begun at the first k points: the centres (k, rank), and for each point which it belongs to.

    points: (n, rank). Ends when the centres stay where they are, or after `most` rounds.
    """
    xp = points.__array_namespace__()
    numbers = xp.arange(k)
    centres = points[:k, :] + 0.0
    for _ in range(most):
        distances = xp.sum((points[:, None, :] - centres[None, :, :]) ** 2, axis=2)
        nearest = xp.argmin(distances, axis=1)
        mine = xp.astype(nearest[:, None] == numbers[None, :], points.dtype)
        counts = xp.sum(mine, axis=0)
        sums = xp.sum(mine[:, :, None] * points[:, None, :], axis=0)
        moved = xp.where(counts[:, None] > 0.0, sums / counts[:, None], centres)
        still = bool(xp.all(xp.abs(moved - centres) <= 1e-12))
        centres = moved
        if still:
            break
    return centres, nearest


def cloud():
    """Points around four places."""
    rng = np.random.default_rng(2)
    points = rng.random((400, 2)) + np.repeat([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 3.0]], 100, axis=0)
    return rng.permutation(points)


def main():
    with arrayd.connect(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7411") as client, client.session() as xp:
        centres, nearest = k_means(xp.asarray(cloud()), 4)
        for i in range(4):
            print(f"{int(xp.sum(nearest == i))} points around ({float(centres[i, 0]):.6f}, {float(centres[i, 1]):.6f})")
        if hasattr(np.ndarray, "__array_namespace__"):
            theirs, which = k_means(cloud(), 4)
            print(f"off NumPy's by {np.max(np.abs(np.asarray(centres) - theirs)):.1e} at most, {int(np.sum(np.asarray(nearest) != which))} points elsewhere")


if __name__ == "__main__":
    main()
