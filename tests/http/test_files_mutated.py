"""Files of every format, mutated at random: arrayd-file answers with data or an error, within its memory and its time.

A library may crash on a bad file: the daemon then says so, and nothing else happens. Crashes are counted, and printed with
the seed; the libraries' own are not ours to mend, so that a few of them are let through (CRASHES). ARRAYD_MUTATIONS says how
many of each format, and from which seed: "100000@7".
"""
import os
import pathlib
import random
import resource
import time

import h5py
import netCDF4
import numpy as np
import pytest
from osgeo import gdal

from reader import Ended, Reader, Refused, sanitized

gdal.UseExceptions()
LONG = bool(os.environ.get("ARRAYD_LONG"))
COUNT, _, SEED = os.environ.get("ARRAYD_MUTATIONS", "").partition("@")
COUNT = int(COUNT or (2000 if LONG else 40))
SEED = int(SEED or os.environ.get("ARRAYD_SLICE", 0))
SECONDS, MEMORY = 5, 64 << 20
CRASHES = 0.05  # of the mutations of a format
SPECIAL = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]


def make_hdf5(path):
    with h5py.File(path, "w") as f:
        f.attrs["text"] = "hello"
        f.attrs["list"] = [1.5, 2.5]
        f.create_dataset("g/deflated", data=np.arange(600.0).reshape(20, 30), chunks=(7, 9), compression="gzip", shuffle=True, fletcher32=True)
        f.create_dataset("g/threads", data=np.arange(4096.0).reshape(64, 64), chunks=(32, 32), compression="gzip", shuffle=True)
        f["plain"] = np.arange(100, dtype=">i4")
        f["bool"] = np.array([True, False])
        f["complex"] = np.arange(3) + 1j
        f["texts"] = ["a", "bc"]
        f["link"] = h5py.SoftLink("/plain")
        f["plain"].make_scale("plain")
        f["on"] = np.zeros(100, "i1")
        f["on"].dims[0].attach_scale(f["plain"])


def make_hdf5_latest(path):
    with h5py.File(path, "w", libver="latest", track_order=True) as f:
        for k in range(20):
            f.attrs[f"a{k}"] = np.arange(k)
            f.create_dataset(f"g{k}/v", data=np.arange(400.0).reshape(20, 20), chunks=(5, 5), maxshape=(None, 20), compression="gzip")


def make_netcdf4(path):
    with netCDF4.Dataset(path, "w") as f:
        f.createDimension("t", None)
        f.createDimension("x", 9)
        v = f.createVariable("g/packed", "i2", ("t", "x"), zlib=True, fill_value=-1)
        v.scale_factor, v.add_offset = 0.5, 3.0
        v[:20] = np.arange(180).reshape(20, 9)
        f.createVariable("x", "f8", ("x",))[:] = range(9)
        f.title = "a title"


def make_netcdf3(path, format="NETCDF3_64BIT_OFFSET"):
    with netCDF4.Dataset(path, "w", format=format) as f:
        f.createDimension("t", None)
        f.createDimension("x", 9)
        for t in ("i1", "i2", "f4", "f8"):
            f.createVariable("v" + t, t, ("t", "x"))[:20] = np.arange(180).reshape(20, 9) % 100
            f.createVariable("w" + t, t, ("x",))[:] = range(9)
        f.title = "a title"


def make_cdf5(path):
    make_netcdf3(path, "NETCDF3_64BIT_DATA")


def make_npz(path):
    with open(path, "wb") as f:
        np.savez_compressed(f, a=np.arange(600.0).reshape(20, 30), b=np.asfortranarray(np.arange(60, dtype=">i2").reshape(3, 20)), s=np.array(["x"]))


def make_npy(path):
    with open(path, "wb") as f:
        np.save(f, np.arange(600, dtype=">i4").reshape(20, 30))


def make_tiff(path, options=("TILED=YES", "BLOCKXSIZE=16", "BLOCKYSIZE=16", "COMPRESS=DEFLATE", "PREDICTOR=2")):
    f = gdal.GetDriverByName("GTiff").Create(str(path), 40, 50, 3, gdal.GDT_UInt16, list(options))
    f.SetGeoTransform([100, 2, 0, 50, 0, -2])
    f.GetRasterBand(1).SetNoDataValue(7)
    for b in range(3):
        f.GetRasterBand(b + 1).WriteArray(np.arange(2000, dtype="u2").reshape(50, 40))


def make_tiff_lzw(path):
    make_tiff(path, ("COMPRESS=LZW", "INTERLEAVE=BAND", "BLOCKYSIZE=7", "BIGTIFF=YES"))


def make_png(path):
    memory = gdal.GetDriverByName("MEM").Create("", 40, 50, 3, gdal.GDT_UInt16)
    memory.GetRasterBand(1).WriteArray(np.arange(2000, dtype="u2").reshape(50, 40))
    gdal.GetDriverByName("PNG").CreateCopy(str(path), memory)


MAKERS = {name[5:]: make for name, make in list(globals().items()) if name.startswith("make_")}


def mutate(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        # headers lie at the front, or at the end of a zip
        at = rng.choice([rng.randrange(len(data)), rng.randrange(min(len(data), 600)), rng.randrange(max(0, len(data) - 300), len(data))])
        kind = rng.randrange(8)
        if kind <= 1:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            data[at] = rng.randrange(256)
        elif kind <= 4:
            width = rng.choice([1, 2, 4, 8])
            number = rng.choice(SPECIAL) % (1 << 8 * width)
            data[at:at + width] = number.to_bytes(width, rng.choice(["little", "big"]))
        elif kind == 5 and len(data) > 16:
            del data[rng.choice([at, len(data) - rng.randrange(1, 16)]):]
            data = data or bytearray(b"\0")
        elif kind == 6:
            other, n = rng.randrange(len(data)), rng.randrange(1, 64)
            data[at:at + n] = data[other:other + n]
        else:
            n = rng.randrange(1, 9)
            if rng.random() < 0.5:
                del data[at:at + n]
                data = data or bytearray(b"\0")
            else:
                data[at:at] = rng.randbytes(n)
    return bytes(data)


def try_file(path):
    """What became of it: "data", "crashed", or the code of an error; a number is the status it ended with instead."""
    try:
        with Reader(path, seconds=SECONDS, memory=MEMORY, slab=64 << 10) as r:
            for v in r.describe()["variables"]:
                if v["dtype"] is not None:
                    r.read(v["name"], count=[min(n, 64) for n in v["shape"]])
        return "data"
    except Refused as refused:
        assert refused.detail and refused.code in ("bad_file", "unsupported", "too_large", "out_of_memory", "timeout", "io"), refused
        assert r.status == 0
        return "crashed" if "crashed" in refused.detail else refused.code
    except Ended as ended:
        return ended.status


@pytest.fixture(autouse=True)
def bare():
    if sanitized():
        pytest.skip("a sanitizer reports what the libraries do, and needs more memory than the limit")


def most_resident():
    """Bytes that any child of this process had."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10


@pytest.mark.parametrize("name", MAKERS)
def test_mutated(tmp_path, name):
    before = most_resident()
    MAKERS[name](tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    assert try_file(tmp_path / "whole") == "data"
    outcomes, crashes = {}, []
    for k in range(COUNT):
        rng = random.Random(f"{name} {SEED} {k}")
        (tmp_path / "f").write_bytes(mutate(rng, whole))
        begin = time.monotonic()
        outcome = try_file(tmp_path / "f")
        assert time.monotonic() - begin < SECONDS + 30, f"{name}: mutation {k} of {SEED} takes too long"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        assert isinstance(outcome, str), f"{name}: mutation {k} of {SEED} ends the reader with status {outcome}"
        if outcome == "crashed":
            crashes.append(k)
    print(f"{name}, seed {SEED}: {outcomes}, crashes: {crashes}")
    assert len(crashes) <= CRASHES * COUNT + 1, f"{name}, seed {SEED}: {crashes}"
    assert most_resident() < max(512 << 20, before + 1)  # another test's children may have had more


@pytest.mark.parametrize("name", MAKERS)
def test_cut_off(tmp_path, name):
    """A file that lacks its end is an error, not zeros: only a picture whose tags lie in front has its first rows."""
    MAKERS[name](tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    rng = random.Random(SEED)
    for length in [len(whole) - 4, len(whole) - 20, *(rng.randrange(1, len(whole)) for _ in range(COUNT // 10))]:
        (tmp_path / "f").write_bytes(whole[:length])
        assert try_file(tmp_path / "f") in ("bad_file", "crashed"), f"the first {length} bytes of {name}"


@pytest.mark.skipif("ARRAYD_FILES" not in os.environ, reason="ARRAYD_FILES names no folder")
def test_files_of_others():
    """Whatever is below a folder: collections of files that have crashed libraries, say."""
    outcomes = {}
    for path in sorted(p for p in pathlib.Path(os.environ["ARRAYD_FILES"]).rglob("*") if p.is_file() and not p.is_symlink()):
        outcome = try_file(path)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        assert isinstance(outcome, str), f"{path} ends the reader with status {outcome}"
    print(outcomes)
    assert outcomes
