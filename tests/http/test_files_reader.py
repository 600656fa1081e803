"""arrayd-file within its walls, and files that once misled it."""
import ctypes
import json
import os
import pathlib
import re
import select
import socket
import subprocess
import sys

import h5py
import netCDF4
import numpy as np
import pytest
from osgeo import gdal, gdal_array  # noqa: F401 (makes ReadAsArray work)

from reader import Reader, Refused, program

gdal.UseExceptions()
FORMATS = ["netcdf4", "netcdf3", "hdf5", "npz", "npy", "tiff", "png"]
CORPUS = pathlib.Path(__file__).parents[1] / "fuzz" / "corpus" / "reader"


def only(path):
    with Reader(path) as r:
        return r.describe()["variables"][0]


def refused(path, variable):
    with pytest.raises(Refused) as e, Reader(path) as r:
        r.read(variable)
    return e.value


def roundtrip(path, format, arrays, **options):
    with Reader(path, write=True) as r:
        r.write(format, arrays, **options)
    with Reader(path) as r:
        return r.describe()


# --- limits ---

@pytest.mark.parametrize("format", FORMATS)
def test_a_file_becomes_no_larger_than_allowed(tmp_path, format):
    noise = np.random.default_rng(1).integers(0, 100, (700, 700), dtype="i1" if format == "netcdf3" else "u1")
    with Reader(tmp_path / "f", write=True, most=1 << 20) as r:
        r.write(format, {"a": noise}, deflate=1)
    with pytest.raises(Refused) as e, Reader(tmp_path / "f", write=True, most=100_000) as r:
        r.write(format, {"a": noise}, deflate=1)
    assert e.value.code == "no_space" and "large" in e.value.detail
    assert (tmp_path / "f").stat().st_size <= 100_000


def test_slabs_are_part_of_the_memory(tmp_path):
    np.save(tmp_path / "f.npy", np.arange(10))
    with pytest.raises(Refused) as e:
        Reader(tmp_path / "f.npy", memory=64 << 20, slab=16 << 20)
    assert e.value.code == "bad_request" and "slabs" in e.value.detail
    with Reader(tmp_path / "f.npy", memory=66 << 20, slab=16 << 20) as r:
        assert r.read("array").tolist() == list(range(10))


def test_it_has_no_powers(tmp_path):
    """Where paths are answered in the process itself: a root's are of no use."""
    np.save(tmp_path / "f.npy", np.arange(10))
    with Reader(tmp_path / "f.npy") as r:
        r.describe()
        with open(f"/proc/{r.pid}/status") as f:
            powers = {name: int(value, 16) for name, value in (line.split() for line in f if line.startswith("Cap"))}
    assert powers["CapEff:"] == powers["CapPrm:"] == powers["CapInh:"] == 0 or os.uname().machine not in ("x86_64", "aarch64"), powers


def test_it_ends_with_its_parent(tmp_path):
    """Even if its socket has an end that somebody else holds."""
    np.save(tmp_path / "f.npy", np.arange(10))
    ours, theirs = socket.socketpair()
    slabs = os.memfd_create("slabs")
    os.ftruncate(slabs, 1 << 16)
    with ours, theirs, open(tmp_path / "f.npy", "rb") as f:
        given = (theirs.fileno(), f.fileno(), slabs)
        code = f"import sys, reader; print(reader.start([{program()!r}], {given}), flush=True); sys.stdin.read()"
        parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=given, cwd=pathlib.Path(__file__).parent)
        pid = int(parent.stdout.readline())
        theirs.close()
        limits = {"memory": 1 << 28, "seconds": 60, "sandbox": "require", "slab": 1 << 16, "slabs": 1, "threads": 2}
        ours.sendall(json.dumps({"limits": limits, "write": False}).encode() + b"\n")
        assert b"ready" in ours.recv(4096)
        gone = os.pidfd_open(pid)
        assert not select.select([gone], [], [], 0)[0]
        parent.kill()
        parent.communicate()
        assert select.select([gone], [], [], 30)[0]
        os.close(gone)
        os.close(slabs)


@pytest.mark.in_turn
def test_buffers_are_as_large_as_chunks_demand(tmp_path):
    """To decode takes no more than some chunks, not half of what is allowed."""
    a = np.arange(16 << 20, dtype="i4").reshape(4096, 4096)
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f.create_dataset("a", data=a, chunks=(64, 4096)).attrs["scale_factor"] = 0.5
    with Reader(tmp_path / "f.h5", memory=512 << 20) as r:
        before = peak(r.pid)
        assert np.array_equal(r.read("a"), a * 0.5)
        assert peak(r.pid) - before < 48 << 20


def peak(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) << 10


def test_columns_are_read_as_they_are(tmp_path):
    """Not with the 64 KiB around each element."""
    a = np.arange(40 << 14, dtype="i4").reshape(40, 1 << 14)
    np.save(tmp_path / "f.npy", a)
    with open(tmp_path / "f.npz", "wb") as f:
        np.savez_compressed(f, array=a)
    for name in ("f.npy", "f.npz"):
        with Reader(tmp_path / name) as r:
            r.describe()
            before = taken(r.pid)
            assert np.array_equal(r.read("array", start=[0, 5], step=[1, 1 << 13]), a[:, 5::1 << 13])
            assert np.array_equal(r.read("array", start=[1, 3], step=[3, 2]), a[1::3, 3::2])
            if name == "f.npy":  # the second one needs its rows
                assert taken(r.pid) - before < a.nbytes // 3 + (200 << 10)


def taken(pid):
    return int(re.search(r"rchar: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text())[1])


# --- TIFF ---

def test_colours_that_are_not_read_are_refused():
    """Pixels share colours, so that there are fewer bytes than samples."""
    v = only(CORPUS / "tiff_ycbcr")
    assert v["dtype"] is None and v["nbytes"] == -1 and "YCbCr" in v["why"]
    assert refused(CORPUS / "tiff_ycbcr", "image").code == "unsupported"


def test_colours_of_any_page(tmp_path):
    """Whose way into RGB libtiff forgets when it turns to another page."""
    source = gdal.GetDriverByName("MEM").Create("", 64, 48, 3)
    for b in range(3):
        source.GetRasterBand(b + 1).WriteArray((np.arange(64 * 48).reshape(48, 64) * (b + 1) // 16 % 256).astype("u1"))
    for more in ([], ["APPEND_SUBDATASET=YES"]):
        gdal.GetDriverByName("GTiff").CreateCopy(str(tmp_path / "f.tif"), source, options=["COMPRESS=JPEG", "PHOTOMETRIC=YCBCR", *more])
    for k in (1, 2):
        expected = gdal.Open(f"GTIFF_DIR:{k}:{tmp_path / 'f.tif'}").ReadAsArray().transpose(1, 2, 0)
        with Reader(tmp_path / "f.tif") as r:
            assert np.array_equal(r.read("image" if k == 1 else "image_2"), expected)


# --- HDF5 ---

def test_chunks_at_the_end_without_filters(tmp_path):
    a = np.arange(103 * 70.).reshape(103, 70)
    library = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if re.search(r"/libhdf5(_serial)?\.so", line)))
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_chunk((20, 70))
    dcpl.set_shuffle()
    dcpl.set_deflate(4)
    assert library.H5Pset_chunk_opts(ctypes.c_int64(dcpl.id), ctypes.c_uint(2)) >= 0
    with h5py.File(tmp_path / "f.h5", "w", libver="latest") as f:
        h5py.h5d.create(f.id, b"a", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple(a.shape), dcpl).write(h5py.h5s.ALL, h5py.h5s.ALL, a)
    with Reader(tmp_path / "f.h5") as r:
        assert np.array_equal(r.read("a"), a)


def test_enums_of_odd_sizes(tmp_path):
    """They are widened like integers."""
    base = h5py.h5t.STD_I32LE.copy()
    base.set_size(3)
    enum = h5py.h5t.enum_create(base)
    enum.enum_insert(b"ONE", 1)
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["plain"] = np.arange(1000, dtype="i4")
        h5py.h5d.create(f.id, b"a", enum, h5py.h5s.create_simple((1000,)))
    with Reader(tmp_path / "f.h5") as r:
        assert r.variables()["a"]["dtype"] == "int32"
        assert np.array_equal(r.read("plain"), np.arange(1000))
        assert not r.read("a").any()


# --- names ---

def test_two_variables_of_one_name(tmp_path):
    with netCDF4.Dataset(tmp_path / "f.nc", "w", format="NETCDF3_CLASSIC") as f:
        f.createDimension("x", 3)
        f.createVariable("ab", "i4", ("x",))[:] = 1
        f.createVariable("ac", "f8", ())[...] = 2
        f.createVariable("ad", "f8", ())[...] = 3
    data = (tmp_path / "f.nc").read_bytes()
    (tmp_path / "f.nc").write_bytes(data.replace(b"ac", b"ab"))
    with Reader(tmp_path / "f.nc") as r:
        assert [(v["name"], v["dtype"]) for v in r.describe()["variables"]] == [("ab", None), ("ab", None), ("ad", "float64")]
        assert r.read("ad") == 3
    assert refused(tmp_path / "f.nc", "ab").code == "unsupported"


def test_names_longer_than_the_format_allows(tmp_path):
    """libnetcdf copies them without regard to the room for them."""
    with netCDF4.Dataset(tmp_path / "f.nc", "w", format="NETCDF3_CLASSIC") as f:
        f.createDimension("x" * 250, 3)
        f.createVariable("v", "i4", ("x" * 250,))
    data = (tmp_path / "f.nc").read_bytes()
    at = data.index(b"\0\0\0\xfa" + b"x" * 8)
    for length in (257, 5000, 1 << 20, 1 << 24):
        name = b"x" * length + bytes(-length % 4)
        header = data[:at] + length.to_bytes(4, "big") + name + data[at + 4 + 252:-16]
        (tmp_path / "g.nc").write_bytes(header + (len(header) + 4).to_bytes(4, "big") + data[-12:])
        error = refused(tmp_path / "g.nc", "v")
        assert error.code == "bad_file" and "crash" not in error.detail


def test_dimensions_of_groups_elsewhere(tmp_path):
    """A variable that comes from a group keeps what it can of its dimensions' names."""
    arrays = {"a": np.arange(5.), "b": np.zeros((5, 3)), "c": np.zeros((5, 5))}
    dims = {"a": ["g/x"], "b": ["g/x", "h/x"], "c": ["g/x", "h/y/x"]}
    for format in ("netcdf4", "netcdf3"):
        content = roundtrip(tmp_path / "f", format, arrays, dims=dims)
        assert {v["name"]: v["dims"] for v in content["variables"]} == {"a": ["x"], "b": ["x", "h_x"], "c": ["x", "h_y_x"]}
    content = roundtrip(tmp_path / "f", "netcdf4", {"g/a": np.arange(5.), "g/h/b": np.zeros(5)}, dims={"g/a": ["g/x"], "g/h/b": ["g/x"]})
    assert {v["name"]: v["dims"] for v in content["variables"]} == {"g/a": ["g/x"], "g/h/b": ["g/x"]}


def test_axes_without_elements_in_the_classic_format(tmp_path):
    for arrays, dims in [({"a": np.zeros((3, 0))}, None), ({"a": np.zeros((0, 3)), "b": np.zeros(0)}, {"a": ["x", "y"], "b": ["z"]})]:
        with pytest.raises(Refused) as e, Reader(tmp_path / "f", write=True) as r:
            r.write("netcdf3", arrays, dims=dims)
        assert e.value.code == "unsupported" and "no elements" in e.value.detail
    content = roundtrip(tmp_path / "f", "netcdf3", {"a": np.zeros((0, 3)), "b": np.zeros(0)}, dims={"a": ["x", "y"], "b": ["x"]})
    assert content["dims"]["x"] == {"length": 0, "unlimited": True}


# --- attributes ---

@pytest.mark.parametrize("format", ["netcdf4", "hdf5"])
def test_attributes_come_back(tmp_path, format):
    """What a description says can be written as it is: integers past 2^53, and texts that look like numbers."""
    attrs = {"big": 2 ** 53 + 1, "unsigned": 2 ** 64 - 1, "least": -2 ** 63, "several": [1, 2 ** 60], "text": "NaN", "texts": ["NaN", "x"], "digits": "12",
             "infinite": "-Infinity", "numbers": ["NaN", 1.5], "_FillValue": "NaN", "valid_range": ["-Infinity", "NaN"]}
    v = roundtrip(tmp_path / "f", format, {"a": np.arange(3.)}, variable_attrs={"a": attrs})["variables"][0]
    assert v["attrs"] == attrs
    with h5py.File(tmp_path / "f") as f:
        has = f["a"].attrs
        assert has["text"] in ("NaN", b"NaN") and has["big"] == 2 ** 53 + 1 and has["unsigned"] == np.uint64(2 ** 64 - 1)
        assert np.isnan(has["_FillValue"]).all() and np.isnan(has["numbers"][0]) and has["valid_range"].dtype.kind == "f"
