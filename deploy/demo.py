"""The demo's few lines of Python: unpacks the map, does the same with NumPy, writes the picture.

demo.py unpack FILE.npz FOLDER     dem.npy and the grid's spacing in metres
demo.py compare FOLDER PICTURE     holds slope, hillshade, curvature, smooth against NumPy
demo.py same PICTURE PICTURE       whether two are the same, up to one step of grey
"""
import math
import struct
import sys
import time
import zlib

import numpy as np


def unpack(source, folder):
    with np.load(source) as dem:
        np.save(f"{folder}/dem.npy", dem["elevation"])
        latitude = math.radians((float(dem["ymin"]) + float(dem["ymax"])) / 2)
        dy = 111200 * float(dem["dy"])
        dx = 111200 * float(dem["dx"]) * math.cos(latitude)
    with open(f"{folder}/spacing", "w") as f:
        f.write(f"{dy!r} {dx!r}\n")


def reference(folder):
    """What the daemon was asked for, in float64."""
    dy, dx = map(float, open(f"{folder}/spacing").read().split())
    z = np.load(f"{folder}/dem.npy").astype("float64")

    def neighbours(u):
        p = np.pad(u, 1, mode="edge")
        return p[2:, 1:-1], p[:-2, 1:-1], p[1:-1, 2:], p[1:-1, :-2]  # south, north, east, west

    south, north, east, west = neighbours(z)
    p, q = (east - west) / (2 * dx), (south - north) / (2 * dy)
    alt, az = math.radians(45), math.radians(315)
    light = math.sin(alt) - math.cos(alt) * (math.sin(az) * p - math.cos(az) * q)
    smooth = (4 * z + sum(neighbours(z))) / 8
    for _ in range(10):
        smooth = smooth + 0.125 * (sum(neighbours(smooth)) - 4 * smooth)
    return {
        "slope": np.degrees(np.arctan(np.hypot(p, q))),
        "hillshade": np.maximum(light / np.sqrt(1 + p * p + q * q), 0),
        "curvature": (south - 2 * z + north) / dy**2 + (east - 2 * z + west) / dx**2,
        "smooth": smooth,
    }


def write_png(path, grey):
    """An 8-bit grey picture."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = grey.shape
    rows = b"".join(b"\0" + row.tobytes() for row in grey)  # filter 0: none
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
                + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def read_png(path):
    """The pictures that write_png makes."""
    data = open(path, "rb").read()
    width, height = struct.unpack(">II", data[16:24])
    (n,) = struct.unpack(">I", data[33:37])
    rows = np.frombuffer(zlib.decompress(data[41:41 + n]), "uint8").reshape(height, width + 1)
    return rows[:, 1:].astype(int)


def same(one, other):
    one, other = read_png(one), read_png(other)
    if one.shape != other.shape or np.abs(one - other).max() > 1:
        sys.exit("the pictures differ")


def compare(folder, picture):
    start = time.perf_counter()
    want = reference(folder)
    print(f"{(time.perf_counter() - start) * 1e3:9.1f} ms  the same with NumPy")
    wrong = 0
    for name, w in want.items():
        got = np.load(f"{folder}/{name}.npy")
        error = np.abs(got - w).max() / np.abs(w).max() if got.shape == w.shape else math.inf
        good = got.dtype == np.float32 and error < 2e-6
        wrong += not good
        print(f"{name:>12}: {got.dtype} {got.shape}, from {got.min():.4g} to {got.max():.4g}, "
              f"largest difference from NumPy {error:.1e} of the range: {'ok' if good else 'WRONG'}")
    if wrong:
        sys.exit(f"{wrong} result(s) differ from NumPy's")
    write_png(picture, np.round(255 * np.load(f"{folder}/hillshade.npy")).astype("uint8"))
    print(f"wrote {picture}")


if __name__ == "__main__":
    {"unpack": unpack, "compare": compare, "same": same}[sys.argv[1]](*sys.argv[2:])
