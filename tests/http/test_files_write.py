"""What arrayd-file writes is read by netCDF4-python, h5py, xarray, GDAL, NumPy, ncdump and h5dump, and by itself."""
import subprocess
import time

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from osgeo import gdal, gdal_array  # noqa: F401

from reader import Reader, Refused
from test_files_read import NUMBERS, same, values

gdal.UseExceptions()
FORMATS = ["netcdf4", "netcdf3", "hdf5", "npz"]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def arrays_of(format):
    """NetCDF's classic format has no complex numbers, and no integers past 32 bits."""
    types = [*NUMBERS, "f2", "b1"] + ([] if format == "netcdf3" else ["c8", "c16"])
    small = {"i8": "i4", "u8": "u2"} if format == "netcdf3" else {}
    return {f"{t}_{rank}": values((5, 6, 7)[3 - rank:], small.get(t, t)).astype(t) for t in types for rank in (0, 1, 3)}


def as_read(format, array):
    """What a format lacks is another type in its files; "_Unsigned" and "dtype" say what the smaller ones were."""
    other = {"f2": "f4"} if format == "netcdf4" else {"f2": "f4", "i8": "i4", "u8": "u4"} if format == "netcdf3" else {}
    return array.astype(other.get(array.dtype.str[1:], array.dtype))


def made(path, format, arrays, **options):
    with Reader(path, write=True, slab=64 << 10, slabs=3) as r:
        r.write(format, arrays, **options)
    assert r.status == 0


@pytest.mark.parametrize("deflate", [0, 5])
@pytest.mark.parametrize("format", FORMATS)
def test_all_types(tmp_path, format, deflate):
    arrays = arrays_of(format)
    dims = {name: ["z", "y", "x"][3 - a.ndim:] for name, a in arrays.items()}
    made(tmp_path / "f", format, arrays, dims=dims, deflate=deflate, piece=1001)  # elements are cut
    with Reader(tmp_path / "f") as r:
        found = r.describe()
        assert found["format"] == format
        described = {v["name"]: v for v in found["variables"]}
        assert set(described) == set(arrays)
        for name, array in arrays.items():
            same(r, name, as_read(format, array))
            if format != "npz":
                assert described[name]["dims"] == dims[name]
    if format.startswith("netcdf"):
        with netCDF4.Dataset(tmp_path / "f") as f:
            for name, array in arrays.items():
                if array.dtype.kind != "c" or hasattr(f[name], "_nc4_complex"):
                    np.testing.assert_array_equal(f[name][...].filled(), array)
                    assert array.dtype.kind == "b" or f[name][...].dtype == as_read(format, array).dtype
                else:  # netCDF4-python before 1.7 gives the parts
                    np.testing.assert_array_equal(f[name][...]["r"], array.real)
        head = run("ncdump", "-h", str(tmp_path / "f"))
        assert "x = 7 ;" in head and "double f8_3(z, y, x) ;" in head
        values_of = run("ncdump", "-v", "i4_1", str(tmp_path / "f")).split("data:")[1]
        assert [int(v) for v in values_of.split("=")[1].split(";")[0].split(",")] == arrays["i4_1"].tolist()
    if format in ("netcdf4", "hdf5"):
        with h5py.File(tmp_path / "f") as f:
            for name, array in arrays.items():
                widened = array.astype("f4") if array.dtype == "f2" and format == "netcdf4" else array
                widened = array.astype("i1") if array.dtype == "b1" and format == "netcdf4" else widened
                assert f[name].dtype == widened.dtype
                np.testing.assert_array_equal(f[name][()], widened)
                assert (f[name].compression == "gzip") == (deflate > 0 and array.ndim > 0)
        assert "H5T_IEEE_F64LE" in run("h5dump", "-H", str(tmp_path / "f"))
        assert str(arrays["u1_1"][0]) in run("h5dump", "-d", "u1_1", str(tmp_path / "f"))
    if format == "npz":
        with np.load(tmp_path / "f") as f:
            for name, array in arrays.items():
                assert f[name].dtype == array.dtype
                np.testing.assert_array_equal(f[name], array)


@pytest.mark.parametrize("format", ["netcdf4", "netcdf3", "hdf5"])
def test_dimensions_coordinates_and_attributes(tmp_path, format):
    arrays = {"t2m": values((4, 3, 5), "f4"), "time": np.arange(4.0), "lat": np.linspace(-10, 10, 3), "lon": np.arange(5, dtype="i4")}
    attrs = {"t2m": {"units": "K", "long_name": "Lufttemperatur in 2 m, °C + 273.15", "levels": [1, 2, 3], "_FillValue": -999, "x": 1.5},
             "time": {"units": "days since 2000-01-01", "calendar": "standard"}}
    made(tmp_path / "f", format, arrays, dims={"t2m": ["time", "lat", "lon"], "time": ["time"], "lat": ["lat"], "lon": ["lon"]},
         variable_attrs=attrs, attrs={"title": "a title", "number": 7, "list": [0.5, "NaN"], "empty": ""}, deflate=3)
    with Reader(tmp_path / "f") as r:
        found = r.describe()
        assert found["attrs"] == {"title": "a title", "number": 7, "list": [0.5, "NaN"], "empty": ""}
        v = {v["name"]: v for v in found["variables"]}
        assert v["t2m"]["dims"] == ["time", "lat", "lon"] and v["lat"]["dims"] == ["lat"]
        assert v["t2m"]["attrs"] == attrs["t2m"]
        assert set(found["dims"]) == {"time", "lat", "lon"}
    if format.startswith("netcdf"):
        with xr.open_dataset(tmp_path / "f") as ds:
            assert set(ds.coords) == {"time", "lat", "lon"}
            assert str(ds.time.values[1])[:10] == "2000-01-02"
            np.testing.assert_array_equal(ds.t2m.sel(lat=-10).values, arrays["t2m"][:, 0])
            assert ds.t2m.attrs["long_name"] == attrs["t2m"]["long_name"]
    else:
        with h5py.File(tmp_path / "f") as f:
            assert f["t2m"].dims[0][0].name == "/time" and f["t2m"].dims[2].label == "lon"
            assert f["t2m"].attrs["units"] == "K"


def test_the_classic_format_is_what_everything_reads(tmp_path):
    """CDF-2, whatever the types are: integers of 64 bits become int32 if they fit, and unsigned ones "_Unsigned"."""
    arrays = {"time": np.array([0, 6, 12]), "least": np.array([0, 6, -2 ** 31]), "count": np.array([2 ** 31 - 1, 0, 7], "u8"), "bytes": np.array([0, 128, 255], "u1"), "words": np.array([0, 40000, 65535], "u2"),
              "longs": np.array([0, 3 * 10 ** 9, 7], "u4"), "wide": np.array([0, 1, 2 ** 32 - 1], "u8")}
    attrs = {"time": {"units": "hours since 2000-01-01"}, "bytes": {"_FillValue": 255, "valid_max": 300}, "words": {"missing_value": 65535}, "count": {"_FillValue": 2 ** 64 - 1}, "wide": {"missing_value": 2 ** 32 - 1, "valid_max": 5}}
    made(tmp_path / "f", "netcdf3", arrays, dims={name: ["time"] for name in arrays}, variable_attrs=attrs)
    assert (tmp_path / "f").read_bytes()[:4] == b"CDF\2"
    with netCDF4.Dataset(tmp_path / "f") as f:
        assert f["words"][:].mask.tolist() == [False, False, True]
        f.set_auto_mask(False)
        assert {name: f[name][:].dtype.name for name in arrays} == {"time": "int32", "least": "int32", "count": "uint32", "bytes": "uint8", "words": "uint16", "longs": "uint32", "wide": "uint32"}
        assert f["wide"].missing_value == -1 and f["wide"].missing_value.dtype == f["wide"].valid_max.dtype == "i4" and f["wide"]._Unsigned == "true"
        for name, array in arrays.items():
            np.testing.assert_array_equal(f[name][:], array)
        assert "_FillValue" not in f["count"].ncattrs()  # no element can be that
    with xr.open_dataset(tmp_path / "f") as ds:
        assert str(ds.time.values[1])[:13] == "2000-01-01T06" and ds.longs.dtype == "uint32" and ds.longs[1] == 3 * 10 ** 9
        assert ds.bytes.isnull().values.tolist() == [False, False, True]
    with Reader(tmp_path / "f") as r:
        same(r, "longs", arrays["longs"])
        same(r, "words", np.array([0, 40000, np.nan], "f4"))
        same(r, "wide", np.array([0, 1, np.nan]))
    made(tmp_path / "g", "netcdf3", {"a": values((30, 40), "u2")})
    assert gdal.Open(f"NETCDF:{tmp_path}/g:a").ReadAsArray()[::-1].tolist() == values((30, 40), "u2").tolist()


@pytest.mark.parametrize("attrs, kept", [
    ({"_FillValue": -1}, {}), ({"_FillValue": -56}, {}), ({"_FillValue": 200}, {"_FillValue": -56}),
    ({"missing_value": -1}, {}), ({"missing_value": [255, -2]}, {"missing_value": -1}), ({"missing_value": [-1, -2]}, {}),
    ({"valid_min": -5}, {}), ({"valid_range": [-1, 10]}, {}), ({"valid_range": [1, 200]}, {"valid_range": [1, -56]}),
    ({"valid_max": 300}, {"valid_max": 300}), ({"actual_range": [0.5, 9.25]}, {"actual_range": [0.5, 9.25]}), ({"flag_values": [0, 255]}, {"flag_values": [0, -1]})])
def test_labels_of_unsigned_elements(tmp_path, attrs, kept):
    """A number that no unsigned element can be would be another one's bits in the classic format."""
    made(tmp_path / "f", "netcdf3", {"a": np.array([255, 200, 1, 254], "u1")}, variable_attrs={"a": attrs})
    with netCDF4.Dataset(tmp_path / "f") as f:
        assert {k: np.asarray(f["a"].getncattr(k)).tolist() for k in f["a"].ncattrs()} == {**kept, "_Unsigned": "true"}


@pytest.mark.parametrize("format", ["netcdf4", "hdf5"])
@pytest.mark.parametrize("name", ["_FillValue", "missing_value"])
def test_fill_values_of_the_other_sign(tmp_path, format, name):
    """They are of the same size, but not the same number."""
    array = np.array([2 ** 32 - 1, 5], "u4")
    made(tmp_path / "f", format, {"a": array}, variable_attrs={"a": {name: -1}})
    with Reader(tmp_path / "f") as r:
        got = r.read("a")
        assert np.asarray(got).tolist() == array.tolist()


@pytest.mark.parametrize("format", ["netcdf4", "netcdf3"])
@pytest.mark.parametrize("name", ["_FillValue", "missing_value"])
@pytest.mark.parametrize("value", [-1, 300])
def test_fill_values_that_no_bool_can_be(tmp_path, format, name, value):
    array = np.array([True, False])
    made(tmp_path / "f", format, {"a": array}, variable_attrs={"a": {name: value}})
    with Reader(tmp_path / "f") as r:
        assert r.variables()["a"]["attrs"] == {"dtype": "bool"}
        same(r, "a", array)


@pytest.mark.parametrize("array", [np.array([1, 2 ** 31]), np.array([-2 ** 31 - 1]), np.array([2 ** 64 - 1], "u8"), np.array([2 ** 32], "u8")])
def test_integers_that_the_classic_format_lacks(tmp_path, array):
    with pytest.raises(Refused) as refused:
        made(tmp_path / "f", "netcdf3", {"a": array})
    assert refused.value.code == "unsupported" and f"'a' has the value {array[-1]}:" in refused.value.detail and "netcdf4" in refused.value.detail


def test_large_variables_of_the_classic_format(tmp_path):
    """One may have more than 4 GiB, wherever it is asked for: it comes last."""
    def begun(*lengths):
        with Reader(tmp_path / "f", write=True) as r:
            r.send({"do": "write", "format": "netcdf3", "attrs": {}, "variables": [
                {"name": name, "dtype": "int8", "shape": [n // 4, 4], "dims": None, "attrs": {}} for name, n in zip("abc", lengths)]})
            return r.line()
    assert begun(8, 2 ** 33, 2 ** 32 - 8) == {"ready": True}
    with pytest.raises(Refused, match="'b' and 'c' have more than 4 GiB each.*netcdf4"):
        begun(8, 2 ** 32, 2 ** 33)


@pytest.mark.parametrize("format", ["netcdf4", "netcdf3", "hdf5"])
def test_types_of_attributes(tmp_path, format):
    """Those of the elements where CF says so, if they can hold the numbers; other integers are int32 if they fit."""
    attrs = {"flag_values": [0, 1, 255], "flag_masks": [1, 2, 4], "valid_range": [0, 200], "actual_range": [0.5, 9.25], "valid_max": 300, "_FillValue": 255, "n": 7, "several": [1, 2]}
    made(tmp_path / "f", format, {"a": np.arange(3, dtype="i2"), "b": np.arange(3, dtype="f4")}, attrs={"n": -5, "large": 2 ** 40, "half": 0.5},
         variable_attrs={"a": attrs, "b": {"_FillValue": 1e20, "valid_min": -1, "n": 2}})
    with (h5py if format == "hdf5" else netCDF4).__dict__["File" if format == "hdf5" else "Dataset"](tmp_path / "f") as f:
        def types(o):
            names = o.attrs if format == "hdf5" else o.ncattrs()
            return {k: np.asarray(o.attrs[k] if format == "hdf5" else o.getncattr(k)).dtype.str[1:] for k in names}
        assert types(f["a"]) == {"flag_values": "i2", "flag_masks": "i2", "valid_range": "i2", "actual_range": "f8", "valid_max": "i2", "_FillValue": "i2", "n": "i4", "several": "i4"}
        assert types(f["b"]) == {"_FillValue": "f4", "valid_min": "f4", "n": "i4"}
        assert {k: v for k, v in types(f).items() if k != "half"} == {"n": "i4", "large": "f8" if format == "netcdf3" else "i8"}
    with Reader(tmp_path / "f") as r:
        assert r.variables()["a"]["attrs"] == attrs and r.describe()["attrs"] == {"n": -5, "large": 2 ** 40, "half": 0.5}


@pytest.mark.parametrize("deflate, unlimited", [(0, []), (5, []), (0, ["x"])])
def test_axes_of_hdf5_of_which_some_have_scales(tmp_path, deflate, unlimited):
    """libnetcdf wants scales of all axes of a variable, or of none."""
    arrays = {"t": np.arange(3.), "a": values((3, 4), "f4"), "b": values((4, 3), "f8"), "bare": values((2, 4), "f4"),
              "y": values((3, 2), "f4"), "taken": values((3, 2), "f4"), "g/in": np.arange(2.), "group": values((3, 2), "f4")}
    dims = {"t": ["t"], "a": ["t", "x"], "b": ["x", "t"], "bare": ["z", "w"], "y": ["t", None], "taken": ["t", "y"], "group": ["t", "g"]}
    made(tmp_path / "f", "hdf5", arrays, dims=dims, deflate=deflate, unlimited=unlimited)
    run("ncdump", "-h", str(tmp_path / "f"))
    with netCDF4.Dataset(tmp_path / "f") as f:
        assert f["a"].dimensions == ("t", "x") and f["b"].dimensions == ("x", "t") and "x" not in f.variables
        assert f.dimensions["x"].size == 4 and f.dimensions["x"].isunlimited() == bool(unlimited)
        for name, array in arrays.items():
            np.testing.assert_array_equal(f[name][:], array)
    with h5py.File(tmp_path / "f") as f:
        assert f["a"].dims[1][0] == f["x"] and f["x"].attrs["NAME"] == b"This is a netCDF dimension but not a netCDF variable.         4"
        assert h5py.h5ds.is_scale(f["x"].id) and f["x"].shape == (4,) and f["x"].id.get_storage_size() == 0
    with Reader(tmp_path / "f") as r:
        found = {v["name"]: v["dims"] for v in r.describe()["variables"]}
        assert found == {**dims, "g/in": None, "y": ["t", "phony_dim_0"]}
        for name, array in arrays.items():
            same(r, name, array)


def test_groups(tmp_path):
    arrays = {"a": values((3, 4), "f4"), "in/a": values((3, 4), "f4", 1), "in/most/b": values((4,), "i8")}
    for format in ("netcdf4", "hdf5"):
        made(tmp_path / "f", format, arrays, dims={"a": ["y", "x"], "in/a": ["y", "x"], "in/most/b": ["in/n"]})
        with Reader(tmp_path / "f") as r:
            for name, array in arrays.items():
                same(r, name, array)
            if format == "netcdf4":
                assert r.variables()["in/most/b"]["dims"] == ["in/n"]


def test_without_names_of_dimensions(tmp_path):
    arrays = {"a": values((3, 4, 3), "f4"), "b": values((4,), "f4"), "empty": np.zeros((0, 3), "f4")}
    for format in FORMATS:
        made(tmp_path / "f", format, arrays)
        with Reader(tmp_path / "f") as r:
            for name, array in arrays.items():
                same(r, name, array)


@pytest.mark.in_turn
def test_larger_than_the_slabs(tmp_path):
    arrays = {"a": values((300, 401, 7), "f8"), "b": values((1000001,), "u1")}
    for format in FORMATS:
        for deflate in (0, 1):
            made(tmp_path / "f", format, arrays, deflate=deflate)
            with Reader(tmp_path / "f", slab=64 << 10) as r:
                for name, array in arrays.items():
                    np.testing.assert_array_equal(r.read(name), array)


@pytest.mark.in_turn
@pytest.mark.parametrize("format", ["netcdf4", "hdf5"])
def test_chunks_that_are_cut(tmp_path, format):
    """Axes end within chunks of whole rows, of parts of rows, and of whole planes; the last chunks are few."""
    shapes = {"rows": (3, 701, 509), "parts": (2, 300_007), "planes": (3, 30, 1000), "line": (400_001,), "one": (1, 1, 1), "flat": (700_001, 1), "bytes": (1027, 1031)}
    arrays = {name: values(shape, "u1" if name == "bytes" else "f8") for name, shape in shapes.items()}
    made(tmp_path / "f", format, arrays, deflate=1)
    with h5py.File(tmp_path / "f") as f:
        for name, array in arrays.items():
            assert f[name].compression == "gzip" and f[name].shape == array.shape
            np.testing.assert_array_equal(f[name][()], array)
    with Reader(tmp_path / "f") as r:
        for name, array in arrays.items():
            same(r, name, array)


def test_a_variable_that_has_a_dimensions_name(tmp_path):
    """libnetcdf keeps it under another name, for the dimension has its own."""
    arrays = {"x": values((3, 4), "f8"), "y": values((5,), "i4"), "g/x": values((4, 3), "f4")}
    dims = {"x": ["y", "x"], "y": ["z"], "g/x": ["x", "w"]}
    for deflate in (0, 1):
        made(tmp_path / "f", "netcdf4", arrays, dims=dims, deflate=deflate)
        with netCDF4.Dataset(tmp_path / "f") as f:
            for name, array in arrays.items():
                np.testing.assert_array_equal(f[name][...].filled(), array)
        made(tmp_path / "f", "netcdf4", {"u": arrays["x"], "v": arrays["x"]}, dims={"v": ["u", "w"]}, deflate=deflate)  # before there is the dimension
        with netCDF4.Dataset(tmp_path / "f") as f:
            np.testing.assert_array_equal(f["u"][...].filled(), arrays["x"])


def test_bfloat16(tmp_path):
    raw = np.array([1.5, -2, 0.0078125], "f4")
    bits = (raw.view("u4") >> 16).astype("u2")
    for format in ("netcdf4", "netcdf3", "hdf5", "npz", "npy"):
        made(tmp_path / "f", format, {"a": bits}, dtypes={"a": "bfloat16"})
        with Reader(tmp_path / "f") as r:
            got = r.read("array" if format == "npy" else "a")
        np.testing.assert_array_equal(got if format.startswith("netcdf") else got.view("u2"), raw if format.startswith("netcdf") else bits)


@pytest.mark.parametrize("deflate", [0, 6])
@pytest.mark.parametrize("t", ["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8", "c8", "c16", "b1", "f2", "i8", "u8"])
def test_tiff(tmp_path, t, deflate):
    for shape, dims in (((37, 53), ["y", "x"]), ((37, 53, 3), ["y", "x", "band"]), ((5, 37, 53), ["band", "y", "x"])):
        array = values(shape, t)
        geo = {"ModelPixelScale": [2, 2, 0], "ModelTiepoint": [0, 0, 0, 100, 50, 0], "GeoKeyDirectory": [1, 1, 0, 1, 1024, 0, 1, 1], "_FillValue": -7}
        made(tmp_path / "f", "tiff", {"v": array}, dims={"v": dims}, deflate=deflate, variable_attrs={"v": geo})
        expected = array.astype("u1") if t == "b1" else array
        with Reader(tmp_path / "f") as r:
            attrs = r.variables()["image"]["attrs"]
            assert attrs.get("_FillValue") == -7 or attrs["GDAL_NODATA"] == "-7" and t[0] in "ub"
            same(r, "image", expected, decode=False)
        if t not in ("f2", "i1", "i8", "u8"):  # which this GDAL does not have, or has as other types
            f = gdal.Open(str(tmp_path / "f"))
            np.testing.assert_array_equal(f.ReadAsArray(), np.moveaxis(expected, 2, 0) if dims[-1] == "band" else expected)
            assert f.GetGeoTransform() == (100, 2, 0, 50, 0, -2)
            assert f.GetRasterBand(1).GetNoDataValue() == -7 or t[0] == "u" or t == "b1"


@pytest.mark.parametrize("deflate", [0, 9])
def test_png(tmp_path, deflate):
    for t in ("u1", "u2", "b1"):
        for shape in ((31, 43), (31, 43, 1), (31, 43, 2), (31, 43, 3), (31, 43, 4)):
            array = values(shape, t)
            made(tmp_path / "f", "png", {"v": array}, deflate=deflate)
            expected = array.astype("u1") if t == "b1" else array
            with Reader(tmp_path / "f") as r:
                same(r, "image", expected[:, :, 0] if shape[2:] == (1,) else expected)
            read = gdal.Open(str(tmp_path / "f")).ReadAsArray()
            np.testing.assert_array_equal(read if read.ndim == 2 else np.moveaxis(read, 0, 2), np.squeeze(expected))


@pytest.mark.in_turn
def test_npy(tmp_path):
    for t in [*NUMBERS, "f2", "c8", "c16", "b1"]:
        for shape in ((), (3,), (4, 5), (0, 2)):
            made(tmp_path / "f", "npy", {"v": values(shape, t)})
            read = np.load(tmp_path / "f")
            assert read.dtype == np.dtype(t) and read.shape == shape
            np.testing.assert_array_equal(read, values(shape, t))


@pytest.mark.parametrize("format, arrays, why", [
    ("netcdf3", {"a": np.zeros(3, "c8")}, "complex"), ("netcdf3", {"g/a": np.zeros(3)}, "groups"), ("npy", {"a": np.zeros(3), "b": np.zeros(3)}, "one array"),
    ("png", {"a": np.zeros((3, 3))}, "uint8"), ("tiff", {"a": np.zeros(3)}, "rows"), ("netcdf4", {"a b/": np.zeros(3)}, ""), ("gif", {"a": np.zeros(3)}, "gif")])
def test_what_a_format_cannot_hold(tmp_path, format, arrays, why):
    with pytest.raises(Refused) as refused:
        with Reader(tmp_path / "f", write=True) as r:
            r.write(format, arrays)
    assert refused.value.code == "unsupported" and why in refused.value.detail


def test_pictures_that_are_too_large(tmp_path):
    """The text says what is too large, and not that something is 0."""
    for shape in ([2 ** 33, 2], [2, 2 ** 33], [2 ** 17, 2, 8]):
        with Reader(tmp_path / "f", write=True) as r:
            r.send({"do": "write", "format": "tiff", "attrs": {}, "variables": [{"name": "a", "dtype": "uint8", "shape": shape, "dims": ["band", "y", "x"] if len(shape) == 3 else None, "attrs": {}}]})
            with pytest.raises(Refused, match=f"at most 2147483647 rows and columns.* {max(shape)} ") as refused:
                r.line()
        assert refused.value.code == "unsupported"


@pytest.mark.parametrize("format", ["netcdf4", "netcdf3"])
def test_names_of_netcdf_are_in_nfc(tmp_path, format):
    made(tmp_path / "f", format, {"e\u0301": np.arange(3)})
    with netCDF4.Dataset(tmp_path / "f") as f:
        assert list(f.variables) == ["\u00e9"]


@pytest.mark.in_turn
def test_the_same_is_the_same_later(tmp_path):
    """No times are in a file: a tag that says it is unchanged is true of its bytes."""
    arrays = {"u": values((5, 6), "f4"), "x": np.arange(6.0)}

    def all_of_them():
        found = {}
        for format in ("netcdf4", "netcdf3", "hdf5", "npz", "npy", "tiff"):
            several = format in FORMATS
            made(tmp_path / "f", format, arrays if several else {"u": arrays["u"]}, dims={"u": ["y", "x"], "x": ["x"]} if several else None)
            found[format] = (tmp_path / "f").read_bytes()
        return found
    first = all_of_them()
    time.sleep(2.1)  # a zip archive has even seconds
    assert first == all_of_them()


def test_a_full_disk_is_an_error(tmp_path):
    for format in FORMATS:
        with pytest.raises(Refused) as refused:
            with Reader("/dev/full", write=True, sandbox="allow_none") as r:
                r.write(format, {"a": np.zeros(1000000)})
        assert refused.value.code == "no_space", format
