"""arrayd-file reads what netCDF4-python, h5py, xarray, GDAL and NumPy wrote."""
import random

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from osgeo import gdal, gdal_array  # noqa: F401 (makes ReadAsArray work)

from reader import Reader, Refused, sanitized

gdal.UseExceptions()
NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]


def values(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if dtype.kind == "f":
        return rng.normal(size=shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype.newbyteorder("="), endpoint=True).astype(dtype)


def regions(shape, n=3):
    rng = random.Random(str(shape))
    for _ in range(n):
        start = [rng.randrange(max(1, length)) for length in shape]
        step = [rng.choice([1, 1, 2, 3, 7]) for _ in shape]
        count = [rng.randint(0, (length - s + k - 1) // k) for length, s, k in zip(shape, start, step)]
        yield dict(start=start, step=step, count=count), tuple(
            slice(s, s + c * k, k) for s, c, k in zip(start, count, step))


def same(reader, name, expected, **options):
    """The variable, whole and in regions, is what the other library has."""
    expected = np.asarray(expected)
    got = reader.read(name, **options)
    assert got.dtype == expected.dtype.newbyteorder("=") and got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)
    for region, where in regions(expected.shape) if expected.ndim else ():
        np.testing.assert_array_equal(reader.read(name, **region, **options), expected[where])


def lies_there(path, described, expected):
    """What the daemon copies out of the file by itself is the array."""
    if "at" in described:
        assert np.fromfile(path, expected.dtype, expected.size, offset=described["at"]).tobytes() == expected.tobytes()


LAYOUTS = {
    "contiguous": {},
    "chunked": dict(chunks=(3, 5, 2)),
    "deflated": dict(chunks=(4, 4, 4), compression="gzip"),
    "shuffled": dict(chunks=(2, 9, 4), compression="gzip", shuffle=True),
    "checked": dict(chunks=(2, 9, 4), fletcher32=True, shuffle=True),
    "unlimited": dict(chunks=(2, 9, 4), maxshape=(None, None, 11)),
    "auto": dict(chunks=True, compression="gzip", compression_opts=9),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_h5py_types_and_layouts(tmp_path, layout):
    expected = {}
    with h5py.File(tmp_path / "f", "w") as f:
        for order in "<>":
            for t in [*NUMBERS, "f2", "c8", "c16", "b1"]:
                name = f"group/{t}{'le' if order == '<' else 'be'}"
                expected[name] = values((7, 9, 11), order + t)
                f.create_dataset(name, data=expected[name], **LAYOUTS[layout])
    with Reader(tmp_path / "f") as r:
        described = r.variables()
        assert set(described) == set(expected)
        for name, array in expected.items():
            assert described[name]["shape"] == [7, 9, 11]
            assert described[name]["nbytes"] == array.nbytes
            assert (described[name]["chunks"] is None) == (layout == "contiguous")
            same(r, name, array)
            lies_there(tmp_path / "f", described[name], array)
            plain = layout == "contiguous" and (name.endswith("le") or array.itemsize == 1)
            assert ("at" in described[name]) == plain, name
        assert "big-endian" in described["group/i4be"]["stored"]
        if layout == "shuffled":
            assert described["group/f8le"]["filters"] == ["shuffle", "deflate 4"]


def test_where_the_elements_lie(tmp_path):
    """Behind a user block, too; not of what was never written, and not of what ends before its dimension does."""
    a = values((40, 30), "f8")
    with h5py.File(tmp_path / "f", "w", userblock_size=1024) as f:
        f["a"] = a
        f.create_dataset("never", (4, 4), "i4")
    np.save(tmp_path / "c.npy", a)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(a))
    np.save(tmp_path / "big.npy", a.astype(">f8"))
    for name, variable, there in (("f", "a", True), ("f", "never", False), ("c.npy", "array", True), ("fortran.npy", "array", False), ("big.npy", "array", False)):
        with Reader(tmp_path / name) as r:
            v = r.variables()[variable]
            assert ("at" in v) == there, name
            lies_there(tmp_path / name, v, a)


def test_h5py_enums_scalars_and_empty(tmp_path):
    with h5py.File(tmp_path / "f", "w", track_order=True) as f:
        for order in "<>":
            kind = h5py.enum_dtype({"LAND": 1, "SEA": 300}, basetype=order + "i2")
            f.create_dataset("enum" + ("l" if order == "<" else "b"), data=np.array([1, 300, 1], order + "i2"), dtype=kind)
        f["scalar"] = 4.5
        f["empty"] = np.zeros((3, 0, 2), "f4")
        f["null"] = h5py.Empty("f4")
        f["compact"] = np.arange(3)
        f["texts"] = ["a", "bc"]
        f["vlen"] = 0
        f["opaque"] = np.zeros(2, "V5")
        f["record"] = np.zeros(2, [("a", "i4"), ("b", "f4")])
        f["nested"] = np.zeros(2, [("a", "i4", (2,))])["a"]
        f["soft"] = h5py.SoftLink("/scalar")
        f["broken"] = h5py.SoftLink("/nowhere")
        f["loop"] = h5py.SoftLink("/loop")
        f["sub/up"] = f["/"]
        never = f.create_dataset("never", (4, 4), "i4", chunks=(2, 2), fillvalue=7)
        never[3, 3] = 5
        part = f.create_dataset("bits", (5,), "i4", chunks=(5,), scaleoffset=0)
        part[:] = [1, -5, 3, 9, 0]
    with Reader(tmp_path / "f") as r:
        v = r.variables()
        assert list(v)[:2] == ["enuml", "enumb"]
        assert v["enumb"]["stored"] == "enum of int16 big-endian"
        for name in ("enuml", "enumb"):
            same(r, name, np.array([1, 300, 1], "i2"))
        same(r, "scalar", np.float64(4.5))
        same(r, "soft", np.float64(4.5))
        same(r, "empty", np.zeros((3, 0, 2), "f4"))
        same(r, "compact", np.arange(3))
        same(r, "bits", np.array([1, -5, 3, 9, 0], "i4"))
        filled = np.full((4, 4), 7, "i4")
        filled[3, 3] = 5
        same(r, "never", filled)
        for name in ("null", "texts", "opaque", "record", "broken", "loop"):
            assert v[name]["dtype"] is None and v[name]["why"]
            with pytest.raises(Refused) as refused:
                with Reader(tmp_path / "f") as other:
                    other.read(name)
            assert refused.value.code == "unsupported" and name in refused.value.detail


def test_h5py_attributes(tmp_path):
    with h5py.File(tmp_path / "f", "w") as f:
        f.attrs["text"] = "grüße"
        f.attrs["fixed"] = np.bytes_("abc")
        f.attrs["texts"] = ["a", "bc"]
        f.attrs["big"] = np.uint64(2**64 - 1)
        f.attrs["small"] = np.int64(-2**63)
        f.attrs["list"] = np.array([1.5, np.nan, np.inf, -np.inf])
        f.attrs["yes"] = True
        f.attrs["complex"] = 1 + 2j
        f.attrs["record"] = np.zeros(1, [("a", "i4")])
        f.attrs["be"] = np.array([1, 2], ">i2")
        f["x"] = 1
    with Reader(tmp_path / "f") as r:
        assert r.describe()["attrs"] == {
            "text": "grüße", "fixed": "abc", "texts": ["a", "bc"], "big": 2**64 - 1, "small": -2**63,
            "list": [1.5, "NaN", "Infinity", "-Infinity"], "yes": True, "complex": [1.0, 2.0], "be": [1, 2]}


def test_h5py_dimensions(tmp_path):
    with h5py.File(tmp_path / "f", "w") as f:
        f["x"], f["y"] = np.arange(4.0), np.arange(3.0)
        f["a"], f["b"], f["c"] = np.zeros((3, 4)), np.zeros((3, 4)), np.zeros((3, 4))
        for name in "xy":
            f[name].make_scale(name)
        f["a"].dims[0].attach_scale(f["y"])
        f["a"].dims[1].attach_scale(f["x"])
        f["b"].dims[0].label, f["b"].dims[1].label = "row", "column"
        f["c"].dims[0].attach_scale(f["y"])
    with Reader(tmp_path / "f") as r:
        found = r.describe()
        dims = {v["name"]: v["dims"] for v in found["variables"]}
        assert dims == {"x": ["x"], "y": ["y"], "a": ["y", "x"], "b": ["row", "column"], "c": ["y", None]}
        assert {name: d["length"] for name, d in found["dims"].items()} == {"x": 4, "y": 3, "row": 3, "column": 4}
        assert found["format"] == "hdf5"


def refused_by(path, name):
    with Reader(path) as r:
        v = r.variables()[name]
        assert v["dtype"] is None
        with pytest.raises(Refused) as refused:
            r.read(name)
        assert refused.value.code == "unsupported"
        return refused.value.detail


def test_what_lies_in_other_files_is_refused_by_name(tmp_path):
    with h5py.File(tmp_path / "other", "w") as f:
        f["secret"] = np.arange(4)
    (tmp_path / "raw").write_bytes(bytes(64))
    with h5py.File(tmp_path / "f", "w") as f:
        f["link"] = h5py.ExternalLink(str(tmp_path / "other"), "/secret")
        f["through"] = h5py.SoftLink("/link")
        f.create_dataset("storage", (4,), "i4", external=[(str(tmp_path / "raw"), 0, 16)])
        layout = h5py.VirtualLayout((4,), "i8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other"), "secret", (4,))
        f.create_virtual_dataset("virtual", layout)
        f.create_dataset("plugin", data=np.zeros(100), chunks=(50,), compression="lzf")
    assert "external links" in refused_by(tmp_path / "f", "link")
    assert "leads to nothing" in refused_by(tmp_path / "f", "through")
    assert "external storage" in refused_by(tmp_path / "f", "storage")
    assert "virtual" in refused_by(tmp_path / "f", "virtual")
    assert "lzf" in refused_by(tmp_path / "f", "plugin")


CLASSIC = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF4_CLASSIC", *CLASSIC])
def test_netcdf4_python(tmp_path, format):
    types = NUMBERS if format in ("NETCDF4", "NETCDF3_64BIT_DATA") else ["i1", "i2", "i4", "f4", "f8"]
    expected = {}
    with netCDF4.Dataset(tmp_path / "f", "w", format=format) as f:
        f.createDimension("time", None)
        f.createDimension("y", 5)
        f.createDimension("x", 7)
        f.title = "a title"
        f.number = np.float32(1.5)
        for t in types:
            for dims in (("time", "y", "x"), ("y", "x"), ("x",), ()):
                name = f"{t}_{len(dims)}"
                v = f.createVariable(name, t, dims, **(dict(zlib=True, shuffle=True) if len(dims) == 3 and "4" in format[6:8] else {}))
                v.set_auto_maskandscale(False)
                expected[name] = values([{"time": 3, "y": 5, "x": 7}[d] for d in dims], t)
                v[...] = expected[name]
                v.units = "K"
                v.range = np.array([1, 2], "i4")
        text = f.createVariable("text", "S1", ("x",))
        text[:] = netCDF4.stringtochar(np.array(["hello  "], "S7"))[0]
    with Reader(tmp_path / "f") as r:
        found = r.describe()
        assert found["format"] == ("netcdf3" if format in CLASSIC else "netcdf4")
        assert found["attrs"] == {"title": "a title", "number": 1.5}
        assert found["dims"] == {"time": {"length": 3, "unlimited": True}, "y": {"length": 5, "unlimited": False},
                                 "x": {"length": 7, "unlimited": False}}
        described = {v["name"]: v for v in found["variables"]}
        assert list(described) == [*expected, "text"] and described["text"]["dtype"] is None
        for name, array in expected.items():
            assert described[name]["dims"] == ["time", "y", "x"][3 - array.ndim:]
            assert described[name]["attrs"] == {"units": "K", "range": [1, 2]}
            same(r, name, array)


def test_netcdf4_groups_names_and_lengths(tmp_path):
    with netCDF4.Dataset(tmp_path / "f", "w") as f:
        f.createDimension("x", 4)
        f.createDimension("t", None)
        g = f.createGroup("inner/most")
        g.createDimension("y", 2)
        g.createVariable("a", "f4", ("y", "x"))[:] = 1
        long, short = f.createVariable("long", "i4", ("t", "x")), f.createVariable("short", "i4", ("t", "x"), fill_value=-5)
        long[:6] = 2
        short[:2] = 3
        both = f.createVariable("x", "f8", ("x", "t"))  # called as a dimension, and not its coordinate
        both[:, :3] = 4
        f.createDimension("z", 3)
        f.createVariable("z", "i4", ("x",))[:] = 9
    with Reader(tmp_path / "f") as r:
        found = r.describe()
        v = {v["name"]: v for v in found["variables"]}
        assert v["inner/most/a"]["dims"] == ["inner/most/y", "x"]
        assert v["x"]["dims"] == ["x", "t"] and v["z"]["dims"] == ["x"]
        assert found["dims"]["t"] == {"length": 6, "unlimited": True}
        with netCDF4.Dataset(tmp_path / "f") as f:
            f.set_auto_maskandscale(False)
            for name in ("long", "short", "z"):
                same(r, name, f[name][:], decode=False)
        expected = np.full((4, 6), netCDF4.default_fillvals["f8"])  # as ncdump has it
        expected[:, :3] = 4
        same(r, "x", expected)


@pytest.mark.parametrize("seed", range(6))
def test_packed_as_xarray_reads_it(tmp_path, seed):
    rng = random.Random(seed)
    format = rng.choice(["NETCDF4", "NETCDF3_64BIT"])
    data = {}
    for k in range(12):
        t = rng.choice(["i1", "i2", "i4", "f4", "f8"] + (["u1", "u2", "i8"] if format == "NETCDF4" else []))
        float_ = rng.choice([np.float32, np.float64])
        attrs = {}
        if rng.random() < 0.6:
            attrs["scale_factor"] = float_(rng.choice([0.1, 2, 0.013]))
        if rng.random() < 0.5:
            attrs["add_offset"] = float_(rng.choice([5, 273.15, -1e3]))
        raw = values((6, 5), t, seed * 100 + k)
        if rng.random() < 0.6:
            attrs["_FillValue"] = raw[2, 2]
        if rng.random() < 0.2:
            attrs["missing_value"] = raw[0, 0]
        if t == "i1" and rng.random() < 0.5:
            attrs["_Unsigned"] = "true"
        data[f"v{k}"] = (("y", "x"), raw, attrs)
    xr.Dataset(data).to_netcdf(tmp_path / "f", format=format)
    with Reader(tmp_path / "f") as r, xr.open_dataset(tmp_path / "f", decode_times=False) as ds:
        described = r.variables()
        for name in data:
            expected, got = ds[name].values, r.read(name)
            decoded = described[name].get("decoded")
            assert got.dtype.name == (decoded["dtype"] if decoded else described[name]["dtype"])
            # xarrays differ in when float32 will do
            np.testing.assert_allclose(got, expected, rtol=3e-7 if "float32" in (got.dtype.name, expected.dtype.name) else 0,
                                       atol=1e-4 if got.dtype != expected.dtype else 0)
            same(r, name, data[name][1], decode=False)


@pytest.mark.parametrize("raw, scale, offset, fill, expected", [
    ("i2", np.float32(2), None, None, "float32"), ("i2", 2.0, None, None, "float64"), ("i2", np.float32(2), np.float32(1), None, "float32"),
    ("i4", np.float32(2), np.float32(1), None, "float64"), ("i2", np.float32(2), 1.0, None, "float64"), ("i2", None, None, -1, "float32"),
    ("i4", None, None, -1, "float64"), ("f4", None, None, -1, "float32"), ("f8", None, None, -1, "float64"), ("i2", None, np.float32(1), None, "float64"),
    ("i2", np.int16(2), None, None, "float64")])
def test_dtype_of_decoded(tmp_path, raw, scale, offset, fill, expected):
    with h5py.File(tmp_path / "f", "w") as f:
        f["v"] = np.array([-1, 3], raw)
        for name, value in (("scale_factor", scale), ("add_offset", offset), ("_FillValue", fill)):
            if value is not None:
                f["v"].attrs[name] = np.asarray(value, raw) if name == "_FillValue" else value
    with Reader(tmp_path / "f") as r:
        got = r.read("v")
        assert got.dtype.name == expected
        first = np.nan if fill is not None else -1 * (scale or 1) + (offset or 0)
        np.testing.assert_array_equal(got, np.array([first, 3 * (scale or 1) + (offset or 0)], expected))


@pytest.mark.parametrize("raw, attrs, expected", [
    ("f8", {"scale_factor": np.float32(0.1)}, "float64"), ("f4", {"scale_factor": 0.1, "add_offset": np.float32(7)}, "float32"),
    ("f2", {"scale_factor": np.float32(2)}, "float16"), ("f4", {}, "float32"), ("i2", {"scale_factor": np.float32(0.1)}, "float32"), ("i4", {}, "int32")])
def test_fill_values_that_are_nan(tmp_path, raw, attrs, expected):
    """They leave floats what they are, and say nothing of integers."""
    values = np.array([-0.0, 0.3, 1e4 / 3, -7], raw)
    with h5py.File(tmp_path / "f", "w") as f:
        f["v"] = values
        f["v"].attrs.update({"missing_value": np.float32(np.nan), **attrs})
    want = values.astype(expected)
    for name, change in ("scale_factor", np.multiply), ("add_offset", np.add):
        if name in attrs:  # as NumPy 2 does it: in the wider type
            want = change(want, np.asarray(attrs[name])[None]).astype(expected)
    with Reader(tmp_path / "f") as r:
        got = r.read("v")
    assert got.dtype.name == expected and got.tobytes() == want.tobytes()


@pytest.mark.parametrize("raw, expected", [("i1", "float32"), ("u2", "float32"), ("i4", "float64"), ("i8", "float64")])
@pytest.mark.parametrize("fill", [1e20, -0.5, [1e20, np.nan]])
def test_fill_values_that_no_element_has(tmp_path, raw, expected, fill):
    with h5py.File(tmp_path / "f", "w") as f:
        f["v"] = np.array([0, 1, 100], raw)
        f["v"].attrs["missing_value"] = fill
    with Reader(tmp_path / "f") as r:
        assert r.variables()["v"]["decoded"] == {"dtype": expected}
        got = r.read("v")
    assert got.dtype.name == expected and list(got) == [0, 1, 100]


def test_halves_are_scaled_as_floats_are(tmp_path):
    raw = np.random.default_rng(5).normal(size=1000).astype("f2")
    with h5py.File(tmp_path / "f", "w") as f:
        f["v"] = raw
        f["v"].attrs.update({"scale_factor": np.float32(0.1), "add_offset": np.float32(273.15)})
    with Reader(tmp_path / "f") as r:
        same(r, "v", raw.astype("f4") * np.float32(0.1) + np.float32(273.15))


@pytest.mark.parametrize("raw", ["f2", "f4", "f8"])
@pytest.mark.parametrize("fill", [0.0, -0.0])
def test_zeros_that_are_fill_values(tmp_path, raw, fill):
    with h5py.File(tmp_path / "f", "w") as f:
        f["v"] = np.array([0, -0.0, 1, -1, 1e-7], raw)
        f["v"].attrs["_FillValue"] = np.asarray(fill, raw)
    with xr.open_dataset(tmp_path / "f") as f, Reader(tmp_path / "f") as r:
        want, got = f["v"].values, r.read("v")
    assert np.isnan(want[:2]).all() and np.array_equal(want, got, equal_nan=True)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("compressed", [False, True])
def test_numpy(tmp_path, order, compressed):
    arrays = {t: np.asarray(values((3, 4, 50, 7), t), order=order) for t in [*NUMBERS, "f2", "c8", "c16", "b1", ">f4", ">c16", ">i2"]}
    arrays["large"] = np.asarray(values((300, 1000), "i4"), order=order)
    arrays["scalar"] = np.array(3.5)
    (np.savez_compressed if compressed else np.savez)(tmp_path / "f.npz", **arrays)
    with Reader(tmp_path / "f.npz", slab=64 << 10, slabs=2) as r:
        assert list(r.variables()) == list(arrays)
        for name, array in arrays.items():
            same(r, name, array)
    if not compressed:
        for name, array in arrays.items():
            np.save(tmp_path / "f.npy", array)
            with Reader(tmp_path / "f.npy", slab=64 << 10) as r:
                assert r.describe()["format"] == "npy"
                same(r, "array", array)


def test_pieces_through_small_slabs_and_little_memory(tmp_path):
    """Chunks larger than a slab are read in pieces of their own, decoded on the way."""
    array = values((50, 80, 90), "i2")
    with h5py.File(tmp_path / "f", "w") as f:
        f.create_dataset("v", data=array, chunks=(25, 20, 90), compression="gzip").attrs["scale_factor"] = 2.0
    with Reader(tmp_path / "f", slab=64 << 10, slabs=2, memory=64 << 20) as r:
        same(r, "v", array * 2.0)
        same(r, "v", array, decode=False)


def test_mistakes_of_requests(tmp_path):
    np.save(tmp_path / "f.npy", np.zeros((3, 4)))
    for request, code in (({"do": "read", "variable": "none"}, "not_found"), ({"do": "read", "variable": "array", "start": [4, 0]}, "bad_request"),
                          ({"do": "read", "variable": "array", "count": [3]}, "bad_request"), ({"do": "fly"}, "bad_request"),
                          ({"do": "read", "variable": "array", "step": [0, 1]}, "bad_request"),
                          ({"do": "read", "variable": "array", "start": [1, 0], "count": [3, 4]}, "bad_request")):
        with Reader(tmp_path / "f.npy") as r:
            r.send(request)
            with pytest.raises(Refused) as refused:
                r.line()
            assert refused.value.code == code
        assert r.status == 0


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"PK\x03\x04", b"\x93NUMPY", b"II*\0aaaa", b"\x89PNG\r\n\x1a\n",
                                     b"http://example.org/x.nc", b"\0" * 4096])
def test_no_files(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    with Reader(tmp_path / "f") as r:
        with pytest.raises(Refused) as refused:
            r.describe()
        assert refused.value.code == "bad_file"
    assert r.status == 0


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("t", ["u1", "i2", "f4", "f8", "c16", ">f4", "b1"])
def test_deflated_chunks_on_threads(tmp_path, t, shuffle):
    """Chunks that are large enough to go to threads; some were never written, one is stored as it is."""
    array = values((37, 70, 95), t)
    with h5py.File(tmp_path / "f", "w") as f:
        d = f.create_dataset("v", array.shape, t, chunks=(9, 23, 40), compression="gzip", shuffle=shuffle)
        d[:20] = array[:20]
        d[20:, :40] = array[20:, :40]
        array[20:27, 46:] = 0
        array[20:, 40:] = 0
        if t == "f4":
            d.id.write_direct_chunk((0, 23, 40), array[:9, 23:46, 40:80].tobytes(), filter_mask=3)
        if t == "u1":
            d.id.write_direct_chunk((9, 23, 40), b"no deflated bytes")
    with Reader(tmp_path / "f", slab=64 << 10) as r:
        if t == "u1":
            same_part = r.read("v", count=[9, 70, 95])
            np.testing.assert_array_equal(same_part, array[:9])
            with pytest.raises(Refused) as refused:
                r.read("v")
            assert refused.value.code == "bad_file" and "'v'" in refused.value.detail
        else:
            same(r, "v", array)
            for region, where in regions(array.shape, 20):
                np.testing.assert_array_equal(r.read("v", **region), array[where])


def test_a_variable_that_the_library_cannot_open(tmp_path):
    """One of a newer library is no reason to refuse the others."""
    with h5py.File(tmp_path / "f", "w", libver="earliest") as f:
        for name in ("new", "old"):
            f[name] = values((3, 4), "f4")
        at = h5py.h5o.get_info(f["new"].id).addr + 16
    data = bytearray((tmp_path / "f").read_bytes())
    while int.from_bytes(data[at:at + 2], "little") != 8:  # the message of the layout
        at += 8 + int.from_bytes(data[at + 2:at + 4], "little")
    data[at + 8] = 99  # its version
    (tmp_path / "f").write_bytes(data)
    with Reader(tmp_path / "f") as r:
        assert r.variables()["new"]["dtype"] is None and "newer library than the one here: bad version number" in r.variables()["new"]["why"]
        same(r, "old", values((3, 4), "f4"))
        with pytest.raises(Refused) as refused:
            r.read("new")
    assert refused.value.code == "unsupported"


@pytest.mark.in_turn
def test_limits(tmp_path):
    with h5py.File(tmp_path / "f", "w") as f:
        f.create_dataset("endless", (1 << 22, 1 << 20), "u1", chunks=(1, 1 << 20), compression="gzip")
        f.create_dataset("lumps", (1 << 30,), "u1", chunks=(1 << 30,), shuffle=True, fillvalue=3, compression="gzip")[5] = 1
        f["after"] = 1
    with Reader(tmp_path / "f", seconds=1) as r, pytest.raises(Refused) as refused:
        r.send({"do": "read", "variable": "endless"})
        r.line()
        while True:
            r.send({"free": r.line()["slab"]})
    assert refused.value.code == "timeout"
    if not sanitized():
        with Reader(tmp_path / "f", memory=64 << 20) as r, pytest.raises(Refused) as refused:
            r.read("lumps", count=[10])
        assert refused.value.code == "out_of_memory"
    # a zip that is a thousand times as large when it is read
    np.savez_compressed(tmp_path / "f.npz", zeros=np.zeros(1 << 24))
    assert (tmp_path / "f.npz").stat().st_size < 1 << 18
    with Reader(tmp_path / "f.npz", memory=32 << 20) as r:
        assert not r.read("zeros", start=[1 << 23], count=[1 << 20]).any()
    # many members, one after the other
    np.savez_compressed(tmp_path / "f.npz", **{f"v{i}": np.full(3, i) for i in range(1000)})
    with Reader(tmp_path / "f.npz", memory=32 << 20) as r:
        for i in range(1000):
            assert list(r.read(f"v{i}")) == [i] * 3


def test_gdal_netcdf(tmp_path):
    array = values((20, 30), "f4")
    memory = gdal.GetDriverByName("MEM").Create("", 30, 20, 1, gdal.GDT_Float32)
    memory.GetRasterBand(1).WriteArray(array)
    for kind in ("NC", "NC2", "NC4", "NC4C"):
        try:
            gdal.GetDriverByName("netCDF").CreateCopy(str(tmp_path / kind), memory, options=["FORMAT=" + kind, "WRITE_BOTTOMUP=NO"])
        except (RuntimeError, AttributeError):
            pytest.skip("this GDAL has no netCDF")
        with Reader(tmp_path / kind) as r:
            same(r, "Band1", array, decode=False)
