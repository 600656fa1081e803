"""What files say of their variables: dimensions, enums, grid mappings, and which variable is meant, of files that libraries wrote."""
import h5py
import netCDF4
import numpy as np
import pytest
from osgeo import gdal, osr

from reader import Reader, Refused
from stand_in import exported, imported, looked
from test_files_read import same

gdal.UseExceptions()


@pytest.fixture
def files(daemon_with, tmp_path):
    return daemon_with("--files", f"data={tmp_path}").client(), tmp_path


def described(path):
    with Reader(path) as r:
        return r.variables()


def test_axes_of_which_some_have_scales(tmp_path):
    with h5py.File(tmp_path / "f", "w") as f:
        f["lat"] = np.arange(3.)
        f["lat"].make_scale("lat")
        for name in "abcde":
            f[name] = np.zeros((3, 4))
        f["a"].dims[0].attach_scale(f["lat"])
        f["b"].dims[1].label = "column"
        f["c"].dims[0].attach_scale(f["lat"])
        f["c"].dims[1].label = "column"
        f["d"].dims[1].label = "lat"  # which has another length
        f["e"].dims[0].attach_scale(f["lat"])
        f["e"].dims[1].attach_scale(f["lat"])
    dims = {name: v["dims"] for name, v in described(tmp_path / "f").items()}
    assert dims == {"lat": ["lat"], "a": ["lat", None], "b": [None, "column"], "c": ["lat", "column"], "d": None, "e": ["lat", None]}


def test_a_coordinate_of_one_axis(files):
    c, folder = files
    with h5py.File(folder / "f.h5", "w") as f:
        f["lat"], f["a"] = np.arange(3.), np.zeros((3, 4))
        f["lat"].make_scale("lat")
        f["a"].dims[0].attach_scale(f["lat"])
    imported(c, "f.h5", variables=["a"])
    meta = c.meta("a")
    assert meta["dims"] == ["lat", None] and list(meta["coords"]) == ["lat"]


def test_sizes_past_64_bits(tmp_path):
    with h5py.File(tmp_path / "f", "w") as f:
        f["good"] = np.arange(3)
        f.create_dataset("large", (2 ** 40, 2 ** 22), "f8", chunks=(2, 2))
        f.create_dataset("larger", (2 ** 40, 2 ** 22, 8), "u1", chunks=(2, 2, 2))
        f.create_dataset("longer", (2 ** 60,), "u1", chunks=(2,))
        f["longer"].make_scale("longer")
        f.create_dataset("fits", (2 ** 40, 2 ** 13), "u1", chunks=(2, 2))
    with Reader(tmp_path / "f") as r:
        v = r.variables()
        for name in "large", "larger":
            assert v[name]["dtype"] is None and "2^53" in v[name]["why"] and v[name]["shape"][0] == 2 ** 40
        assert v["fits"]["dtype"] == "uint8" and v["longer"]["dtype"] is None
        same(r, "good", np.arange(3))
        assert not r.read("fits", start=[2 ** 39, 7], count=[2, 3]).any()
        with pytest.raises(Refused) as e:
            r.read("large", start=[0, 0], count=[1, 1])
        assert e.value.code == "unsupported"


def test_the_daemon_opens_such_files(files):
    c, folder = files
    test_sizes_past_64_bits(folder)
    assert {v["name"] for v in looked(c, "f")["variables"]} == {"good", "large", "larger", "longer", "fits"}
    imported(c, "f", variables=["good"])


def test_enums_say_what_they_mean(tmp_path):
    with netCDF4.Dataset(tmp_path / "n", "w") as f:
        cloud = f.createEnumType(np.int16, "cloud", {"Clear": 0, "Stratus": 5, "Missing": -1})
        f.createDimension("x", 3)
        f.createVariable("v", cloud, "x")[:] = [0, 5, -1]
        own = f.createVariable("own", cloud, "x")
        own.flag_meanings = "mine"
    with h5py.File(tmp_path / "h", "w") as f:
        f.create_dataset("v", data=np.array([1, 2], ">u4"), dtype=h5py.enum_dtype({"a b": 1, "grün": 2 ** 31}, ">u4"))
        f["bool"] = np.array([True])
    v = described(tmp_path / "n")
    assert v["v"]["attrs"] == {"flag_values": [0, -1, 5], "flag_meanings": "Clear Missing Stratus"} or (
        v["v"]["attrs"] == {"flag_values": [0, 5, -1], "flag_meanings": "Clear Stratus Missing"})
    assert v["own"]["attrs"] == {"flag_meanings": "mine"}
    v = described(tmp_path / "h")
    assert v["v"]["attrs"] == {"flag_values": [1, 2 ** 31], "flag_meanings": "a_b grün"} and not v["bool"]["attrs"]


def test_bit_fields(tmp_path):
    """As h5py reads them."""
    with h5py.File(tmp_path / "f", "w") as f:
        space = h5py.h5s.create_simple((3,))
        for k, t in enumerate([h5py.h5t.STD_B8LE, h5py.h5t.STD_B16BE, h5py.h5t.STD_B32LE, h5py.h5t.STD_B64BE]):
            d = h5py.h5d.create(f.id, f"b{8 << k}".encode(), t, space)
            h5py.h5d.DatasetID.write(d, h5py.h5s.ALL, h5py.h5s.ALL, np.array([0, 1, 0xA5], f"u{1 << k}"), mtype=[
                h5py.h5t.NATIVE_B8, h5py.h5t.NATIVE_B16, h5py.h5t.NATIVE_B32, h5py.h5t.NATIVE_B64][k])
    with Reader(tmp_path / "f") as r, h5py.File(tmp_path / "f") as f:
        for name, d in f.items():
            assert d[2] == 0xA5 and "bit field" in r.variables()[name]["stored"]
            same(r, name, d[:])


def mapped(path, format, mapping="crs"):
    with netCDF4.Dataset(path, "w", format=format) as f:
        for name in "yx":
            f.createDimension(name, 3)
        t = f.createVariable("t", "f4", ("y", "x"))
        t[:] = np.arange(9).reshape(3, 3)
        t.grid_mapping = mapping
        crs = f.createVariable("crs", "c", ())
        crs.grid_mapping_name = "latitude_longitude"
        crs.semi_major_axis = 6378137.


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF3_CLASSIC"])
@pytest.mark.parametrize("mapping", ["crs", "crs: x y"])
def test_grid_mappings(files, format, mapping):
    """They come as coordinates without axes, for the sake of their attributes; often they are characters."""
    c, folder = files
    mapped(folder / "f.nc", format, mapping)
    imported(c, "f.nc", variables=[{"variable": "t", "index": "1:"}])
    meta = c.meta("t")
    assert meta["attrs"]["grid_mapping"] == mapping and meta["coords"]["crs"]["dims"] == []
    assert c.meta(meta["coords"]["crs"]["array"])["attrs"] == {"grid_mapping_name": "latitude_longitude", "semi_major_axis": 6378137}
    exported(c, "out.nc", ["t"])
    with netCDF4.Dataset(folder / "out.nc") as f:
        assert f["t"].grid_mapping == mapping and f["crs"].grid_mapping_name == "latitude_longitude" and f["crs"].shape == ()
        assert "coordinates" not in f["t"].ncattrs()
    imported(c, "out.nc", variables=[{"variable": "t", "name": "again"}])
    assert list(c.meta("again")["coords"]) == ["crs"] and c.meta("again")["attrs"] == {"grid_mapping": mapping}
    imported(c, "f.nc", variables=[{"variable": "t", "name": "bare"}], coords=False)
    assert "coords" not in c.meta("bare")


def test_places_of_pictures_in_netcdf(files):
    """GDAL says where the whole picture lies beside the grid mapping: that is not true of a part, which has coordinates."""
    c, folder = files
    f = gdal.GetDriverByName("MEM").Create("", 8, 6, 1, gdal.GDT_Byte)
    f.SetGeoTransform([5e5, 10, 0, 4e6, 0, -10])
    utm = osr.SpatialReference()
    utm.ImportFromEPSG(32633)
    f.SetSpatialRef(utm)
    gdal.GetDriverByName("netCDF").CreateCopy(str(folder / "f.nc"), f)
    for index, whole in ("...", True), ("1:, 2:", False):
        imported(c, "f.nc", variables=[{"variable": "Band1", "name": "b", "index": index}], overwrite=True)
        attrs = c.meta(c.meta("b")["coords"]["transverse_mercator"]["array"])["attrs"]
        assert ("GeoTransform" in attrs) == whole and attrs["spatial_ref"].startswith("PROJCS")
        exported(c, f"{whole}.nc", ["b"])
        got = gdal.Open(f"NETCDF:{folder}/{whole}.nc:b")
        x, y = c.download(c.meta("b")["coords"]["x"]["array"]), c.download(c.meta("b")["coords"]["y"]["array"])
        a = got.GetGeoTransform()
        assert (a[0], abs(a[1])) == (x[0] - 5, 10) and sorted([a[3], a[3] + a[5] * len(y)]) == [min(y) - 5, max(y) + 5]
    imported(c, "f.nc", variables=[{"variable": "Band1", "name": "all"}, {"variable": "Band1", "name": "part", "index": "1:"}])
    for name, whole in ("all", True), ("part", False):
        assert ("GeoTransform" in c.meta(c.meta(name)["coords"]["transverse_mercator"]["array"])["attrs"]) == whole


def test_names_of_coordinates_are_words(files):
    """Between any white space."""
    c, folder = files
    with netCDF4.Dataset(folder / "f.nc", "w") as f:
        f.createDimension("n", 2)
        for name in "lat", "lon", "v":
            f.createVariable(name, "f4", ("n",))[:] = 1
        f["v"].coordinates = "lat\n\tlon"
    imported(c, "f.nc")
    assert set(c.meta("v")["coords"]) == {"lat", "lon"} and "attrs" not in c.meta("v")


def test_what_is_not_true_of_decoded_values(files):
    c, folder = files
    with netCDF4.Dataset(folder / "f.nc", "w") as f:
        f.createDimension("n", 2)
        f.createDimension("bnds", 2)
        for name in "packed", "plain":
            v = f.createVariable(name, "i2", ("n",), fill_value=-1)
            v.setncatts({"valid_range": np.int16([0, 200]), "valid_min": np.int16(0), "valid_max": np.int16(200), "bounds": "b", **({"scale_factor": 0.5} if name == "packed" else {})})
            v.set_auto_maskandscale(False)
            v[:] = [100, -1]
        f.createVariable("b", "f4", ("n", "bnds"))[:] = 1
    imported(c, "f.nc", variables=["packed", "plain", {"variable": "packed", "name": "raw", "decode": False}])
    assert "attrs" not in c.meta("packed") and c.meta("plain")["attrs"] == {"valid_range": [0, 200], "valid_min": 0, "valid_max": 200}
    assert c.meta("raw")["attrs"]["valid_range"] == [0, 200]
    exported(c, "g.nc", ["packed"])
    with netCDF4.Dataset(folder / "g.nc") as f:
        assert np.array_equal(f["packed"][:].filled(np.nan), [50, np.nan], equal_nan=True)


@pytest.mark.parametrize("suffix", ["nc3", "nc"])
def test_labels_of_unsigned_elements(files, suffix):
    """They are stored as the elements are, with a sign, and have none again where the elements have none."""
    c, folder = files
    attrs = {"valid_range": [0, 200], "valid_max": 255, "flag_values": [0, 200], "flag_masks": [128], "actual_range": [0, 200], "n": -1, "odd": [0.5, -1.5]}
    c.upload(np.array([0, 100, 200], "u1"), "u")
    c.expect(200, c.patch("/v1/arrays/u", {"attrs": attrs}))
    exported(c, f"u.{suffix}", ["u"])
    imported(c, f"u.{suffix}", variables=["u", {"variable": "u", "name": "raw", "decode": False}], overwrite=True)
    back = c.meta("u")
    assert back["dtype"] == "uint8" and back["attrs"] == {**attrs, "flag_masks": 128}
    if suffix == "nc3":
        assert c.meta("raw")["attrs"] == {**attrs, "valid_range": [0, -56], "valid_max": -1, "flag_values": [0, -56], "flag_masks": -128, "actual_range": [0, -56], "_Unsigned": "true"}
    with netCDF4.Dataset(folder / "f.nc", "w") as f:
        f.createDimension("x", 2)
        v = f.createVariable("v", "i2", "x", fill_value=np.int16(-1))
        v.set_auto_maskandscale(False)
        v.setncatts({"_Unsigned": "true", "scale_factor": 0.5, "flag_values": np.int16([1, -2]), "valid_max": np.int16(-2)})
        v[:] = [1, -2]
    imported(c, "f.nc")
    assert c.download("v").tolist() == [0.5, 32767] and c.meta("v")["attrs"] == {"flag_values": [1, 65534]}


def test_more_coordinates_than_an_array_may_have(files):
    c, folder = files
    names = [f"c{i}" for i in range(1001)]
    with netCDF4.Dataset(folder / "f.nc", "w", format="NETCDF3_CLASSIC") as f:
        for name in [*names, "v"]:
            f.createVariable(name, "f4", ())
        f["v"].coordinates = " ".join(names)
    error = imported(c, "f.nc", "failed", variables=["v"])["error"]
    assert error["code"] == "too_large" and "coords" in error["detail"]
    imported(c, "f.nc", variables=["v"], coords=False)


def test_marks_of_bools_are_no_attributes(files):
    c, folder = files
    with netCDF4.Dataset(folder / "f.nc", "w") as f:
        f.createDimension("x", 3)
        v = f.createVariable("v", "i1", "x")
        v[:] = [0, 1, 1]
        v.setncatts({"dtype": "bool", "long_name": "it is so"})
    imported(c, "f.nc", variables=["v", {"variable": "v", "name": "raw", "decode": False}])
    assert c.meta("v")["dtype"] == "bool" and c.meta("v")["attrs"] == {"long_name": "it is so"}
    assert c.meta("raw")["attrs"] == {"dtype": "bool", "long_name": "it is so"}
    with netCDF4.Dataset(folder / "f.nc", "a") as f:
        f["v"].missing_value = np.int8(1)
    imported(c, "f.nc", overwrite=True)
    assert np.isnan(c.download("v")).tolist() == [False, True, True] and c.meta("v")["attrs"] == {"long_name": "it is so"}


def test_paths_from_the_root(files):
    c, folder = files
    with h5py.File(folder / "f.h5", "w") as f:
        f["grp/sub/data"], f["other"] = np.arange(3.), np.arange(3.)
        f["grp/lat"] = np.arange(3.)
        f["grp/lat"].make_scale("lat")
        f["other"].dims[0].attach_scale(f["grp/lat"])
        f["grp/area"] = np.arange(3.)
        f["grp/area"].dims[0].attach_scale(f["grp/lat"])
        f["other"].attrs["coordinates"] = "/grp/area"
    imported(c, "f.h5", variables=["/grp/sub/data", "/other"])
    assert list(c.download("data")) == [0, 1, 2] and set(c.meta("other")["coords"]) == {"lat", "area"}
    assert [v["name"] for v in looked(c, "f.h5")["variables"]] == ["grp/area", "grp/lat", "grp/sub/data", "other"]


def cf(path, more=()):
    """A variable with all that the conventions let it name."""
    with netCDF4.Dataset(path, "w") as f:
        for name, n in ("y", 2), ("x", 3), ("bnds", 2):
            f.createDimension(name, n)
        attrs = {"coordinates": "height lat2d", "grid_mapping": "crs: x y other: lat2d", "ancillary_variables": "flags /err/deep",
                 "cell_measures": "area: cell_area", "bounds": "t_bnds", "cell_methods": "time: mean"}
        for name, dims in ("x", "x"), ("t", "yx"), ("height", ""), ("lat2d", "yx"), ("crs", ""), ("other", ""), ("flags", "yx"), ("err/deep", "yx"), ("cell_area", "yx"), (
                "t_bnds", ["y", "bnds"]), ("x_bnds", ["x", "bnds"]), *more:
            v = f.createVariable(name, "f4", tuple(dims))
            v[...] = 1
            v.setncatts(attrs if name == "t" else {"bounds": "x_bnds"} if name == "x" else {})


def test_the_variable_that_is_meant(files):
    """Not those that it names, or that its coordinates name."""
    c, folder = files
    cf(folder / "one.nc")
    imported(c, "one.nc")
    assert set(c.meta("t")["coords"]) == {"x", "height", "lat2d", "crs", "other"}
    c.expect(201, c.request("PUT", "/v1/arrays/sent", (folder / "one.nc").read_bytes(), content_type="application/x-netcdf"))
    assert c.meta("sent")["shape"] == [2, 3]
    cf(folder / "two.nc", [("u", "yx")])
    job = imported(c, "two.nc", "failed")
    assert job["error"]["code"] == "unknown_name" and job["error"]["detail"] == "which variable? The file has t, u"


def test_coordinates_alone(files):
    c, folder = files
    with netCDF4.Dataset(folder / "one.nc", "w") as f:
        f.createDimension("time", 3)
        f.createVariable("time", "f8", "time")[:] = [1, 2, 3]
    imported(c, "one.nc")
    assert list(c.download("time")) == [1, 2, 3]
    with netCDF4.Dataset(folder / "two.nc", "w") as f:
        for name in "yx":
            f.createDimension(name, 3)
            f.createVariable(name, "f8", name)[:] = [1, 2, 3]
    assert imported(c, "two.nc", "failed")["error"]["detail"] == "which variable? The file has y, x"


def test_files_of_which_nothing_can_be_read(files):
    c, folder = files
    np.savez(folder / "a.npz", records=np.zeros(3, [("a", "i4"), ("b", "f8")]))
    with h5py.File(folder / "none.h5", "w"):
        pass
    job = imported(c, "a.npz", "failed")
    assert job["error"]["code"] == "unsupported_file" and "no variable of the file can be read; of 'records': " in job["error"]["detail"]
    job = imported(c, "a.npz", "failed", variables=["b1"])
    assert job["error"]["detail"] == "the file has no variable 'b1', and none that can be read"
    assert imported(c, "none.h5", "failed")["error"]["detail"] == "the file has no variables"
