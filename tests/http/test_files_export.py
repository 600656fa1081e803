"""Exports of labelled arrays by the true arrayd-file: what files say, and what comes back of it."""
import pathlib

import netCDF4
import numpy as np
import pytest

from conftest import find_binary
from stand_in import exported, imported, looked

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.fixture
def files(daemon_with, tmp_path):
    if not pathlib.Path(find_binary()).with_name("arrayd-file").exists():
        pytest.skip("arrayd-file was not built")
    return daemon_with("--files", f"data={tmp_path}").client(), tmp_path


def labelled(c, name, a, **labels):
    c.upload(a, name)
    return c.expect(200, c.patch(f"/v1/arrays/{name}", labels))


def dims_of(c, path):
    return {v["name"]: v["dims"] for v in looked(c, path)["variables"]}


@pytest.mark.parametrize("suffix", ["nc", "nc3", "h5"])
def test_axes_without_a_name(files, suffix):
    """NetCDF has to name them; these are no labels when they come back, and never in another's way."""
    c, _ = files
    c.upload(A, "u")
    c.upload(np.zeros((3, 3, 7)), "v")
    labelled(c, "w", A, dims=["phony_dim_1", None, "x"])
    for k in range(3):
        exported(c, f"{k}.{suffix}", ["u", "v", "w"])
        imported(c, f"{k}.{suffix}", variables=["u", "v", "w"], overwrite=True)
        assert "dims" not in c.meta("u") and "dims" not in c.meta("v") and c.meta("w")["dims"] == [None, None, "x"]
        assert (c.download("w") == A).all() and c.download("v").shape == (3, 3, 7)
    if suffix != "h5":
        names = dims_of(c, f"0.{suffix}")
        assert len(set(names["v"])) == 3 and names["u"][1] == names["v"][0] == names["w"][1]


def test_a_made_up_name_on_which_a_coordinate_lies(files):
    """As libnetcdf's are that a file has got from HDF5: they are kept where something refers to them."""
    import netCDF4
    c, folder = files
    with netCDF4.Dataset(folder / "a.nc", "w") as f:
        for k, n in enumerate(A.shape):
            f.createDimension(f"phony_dim_{k}", n)
        f.createVariable("u", "f4", ("phony_dim_0", "phony_dim_1", "phony_dim_2"))[:] = A
        f["u"].coordinates = "lat"
        f.createVariable("lat", "f8", ("phony_dim_1", "phony_dim_2"))[:] = A[0]
    imported(c, "a.nc", variables=["u"])
    meta = c.meta("u")
    assert meta["dims"] == [None, "phony_dim_1", "phony_dim_2"] and meta["coords"]["lat"]["dims"] == meta["dims"][1:]


@pytest.mark.parametrize("suffix", ["nc", "nc3", "h5"])
def test_axes_whose_paths_end_alike(files, suffix):
    c, _ = files
    labelled(c, "u", A[:2, :2, :2], dims=["a/x", "b/x", "c/"])
    labelled(c, "v", A, dims=["a/x", "b/x", None])
    exported(c, f"u.{suffix}", ["u"])
    assert dims_of(c, f"u.{suffix}") == {"u": ["x", "b_x", "c_"]}
    exported(c, f"v.{suffix}", ["v"])
    assert dims_of(c, f"v.{suffix}")["v"][:2] == ["x", "b_x"]
    labelled(c, "w", A, dims=["b_x", "x", "b/x"])
    c.fails(409, "conflict", c.post("/v1/files/export", {"folder": "data", "path": f"w.{suffix}", "arrays": ["w"]}))


@pytest.mark.parametrize("suffix", ["nc", "nc3", "h5"])
def test_names_that_files_lack(files, suffix):
    """Attributes and axes keep all that can be kept of them; no other one is lost for it."""
    c, _ = files
    attrs = {"a/b": 1, "a_b": 2, "name ": "n", " lead": 3, "-x": 5, "CLASS": "IMAGE", "NAME": 7, "DIMENSION_LIST": 8, "REFERENCE_LIST": "r", "_Netcdf4Dimid": 0, "ä": 9, "y" * 256: 10}
    labelled(c, "x", A[0, 0], attrs=attrs)
    labelled(c, "u", A, attrs=attrs, dims=["t ", "t_", "x"], coords={"x": "x", "t ": {"array": c.upload(A[:, 0, 0], "t")["id"], "dims": ["t "]}})
    exported(c, f"u.{suffix}", ["u"], attrs={"CLASS": "file", " of": 1})
    got = {v["name"]: v for v in looked(c, f"u.{suffix}")["variables"]}
    for name in ("u", "x"):
        found = got[name]["attrs"]
        assert sorted(map(str, found.values())) == sorted(map(str, attrs.values()))
        if suffix != "h5":
            assert found["a_b"] == 2 and found["a_b_"] == 1 and found["name_"] == "n" and found["_lead"] == 3 and found["_x"] == 5
    assert got["u"]["dims"] == (["t ", "t_", "x"] if suffix == "h5" else ["t__", "t_", "x"]) and got["u"]["dims"][0] in got
    imported(c, f"u.{suffix}", variables=["u"], overwrite=True)
    assert (c.download("u") == A).all() and (c.download(c.meta("u")["coords"][got["u"]["dims"][0]]["array"]) == A[:, 0, 0]).all()


@pytest.mark.parametrize("suffix", ["nc", "nc3", "h5"])
def test_a_grid_of_one_axis(files, suffix):
    """Files do not tell a number from a list of one; of two axes a number is an attribute like others."""
    c, _ = files
    spec = {"shape": [6], "dtype": "float64", "ghost": [2], "spacing": [0.5], "boundary": ["periodic"]}
    c.expect(201, c.post("/v1/arrays", {"name": "g", **spec, "fill": 3}))
    exported(c, f"g.{suffix}", ["g"], ghosts="keep")
    for ghosts, width in (("keep", [2]), ("leave", [0])):
        imported(c, f"g.{suffix}", variables=[{"variable": "g", "name": "back"}], ghosts=ghosts, overwrite=True)
        meta = c.meta("back")
        assert {k: meta[k] for k in spec} == {**spec, "ghost": width} and "attrs" not in meta
    if suffix == "nc":
        body = c.expect(200, c.request("GET", "/v1/arrays/g/data", accept="application/x-netcdf")).body
        assert c.expect(201, c.request("POST", "/v1/arrays?name=up", body, content_type="application/x-netcdf")).json()["spacing"] == [0.5]
    labelled(c, "two", np.zeros((2, 2)), attrs={"spacing": [0.5], "ghost": 1})
    exported(c, f"two.{suffix}", ["two"])
    imported(c, f"two.{suffix}", overwrite=True)
    assert c.meta("two")["attrs"] == {"spacing": 0.5, "ghost": 1} and c.meta("two")["spacing"] == [1, 1]


@pytest.mark.parametrize("suffix", ["nc", "nc3", "h5"])
def test_coordinates_with_spaces(files, suffix):
    """The attribute "coordinates" is a list with spaces between; a coordinate of its own axis is not in it."""
    c, _ = files
    ids = [c.upload(a, name)["id"] for name, a in (("lat", A[0]), ("axis", A[0, 0]))]
    labelled(c, "u", A, dims=["t", "y", "x x"], coords={"mean lat": {"array": ids[0], "dims": ["y", "x x"]}, "x x": ids[1]})
    exported(c, f"u.{suffix}", ["u"])
    found = {v["name"]: v["attrs"] for v in looked(c, f"u.{suffix}")["variables"]}
    assert set(found) == {"u", "mean_lat", "x x"} and found["u"] == {"coordinates": "mean_lat"}
    imported(c, f"u.{suffix}", overwrite=True)
    coords = c.meta("u")["coords"]
    assert set(coords) == {"x x", "mean_lat"} and (c.download(coords["mean_lat"]["array"]) == A[0]).all()


@pytest.mark.parametrize("suffix", ["nc", "nc3", "h5"])
@pytest.mark.parametrize("t, name, value, near, is_one", [
    ("float32", "_FillValue", 1e-60, 0, False),
    ("float32", "missing_value", 16777217, 16777216, False),
    ("float32", "missing_value", 16777217.0, 16777216, False),
    ("float32", "_FillValue", -999.9, -999.9, True),
    ("float32", "_FillValue", 9.96921e36, 9.96921e36, True),
    ("float32", "missing_value", [1e20, 3.40282346638529e38], 3.4028235e38, True),  # GDAL's text
    ("float64", "missing_value", 2 ** 53 + 1, 2 ** 53, False),
    ("float16", "_FillValue", 1e-9, 0, False),
    ("float16", "_FillValue", 0.3333, 0.3333, True)])
def test_fill_values_are_elements(files, suffix, t, name, value, near, is_one):
    """The elements that a fill value marks are those it names, not those that a cast makes of it."""
    c, _ = files
    labelled(c, "u", np.array([near, 1], t), attrs={name: value})
    exported(c, f"u.{suffix}", ["u"])
    imported(c, f"u.{suffix}", overwrite=True)
    assert np.isnan(c.download("u")).tolist() == [is_one, False]


@pytest.mark.parametrize("suffix, name", [("nc", "."), ("nc3", "a "), ("h5", ".")])
def test_variables_that_files_lack(files, suffix, name):
    c, folder = files
    c.upload(A, "u")
    job = exported(c, f"u.{suffix}", [{"array": "u", "name": name}], "failed")
    assert job["error"]["status"] == 422 and job["error"]["code"] == "unsupported_file" and f"'{name}'" in job["error"]["detail"]
    assert not list(folder.iterdir())


@pytest.mark.parametrize("suffix", ["nc", "nc3"])
@pytest.mark.parametrize("value", [[1, 2], "abc", [], ["a"]])
def test_fill_values_that_files_lack(files, suffix, value):
    c, _ = files
    labelled(c, "u", A, attrs={"_FillValue": value})
    error = exported(c, f"u.{suffix}", ["u"], "failed")["error"]
    assert error["status"] == 422 and "'_FillValue' of 'u'" in error["detail"] and '"labels": false' in error["detail"]
    exported(c, f"u.{suffix}", ["u"], labels=False)
    exported(c, "u.h5", ["u"])
    assert looked(c, "u.h5")["variables"][0]["attrs"] == {"_FillValue": value if value != ["a"] else "a"}


def test_lists_of_texts(files):
    c, _ = files
    labelled(c, "u", A, attrs={"several": ["a", "b"], "none": []})
    exported(c, "u.nc3", ["u"], attrs={"several": ["a", "b"]})
    got = looked(c, "u.nc3")
    assert got["attrs"] == {"several": '["a","b"]'} and got["variables"][0]["attrs"] == {"several": '["a","b"]', "none": "[]"}


@pytest.mark.parametrize("deflate", [0, 4])
@pytest.mark.parametrize("suffix", ["nc", "nc3", "h5"])
def test_unlimited_dimensions(files, suffix, deflate):
    """What netCDF4-python and h5py append to; the others stay as they are."""
    import h5py
    import netCDF4
    c, folder = files
    time, large = c.upload(np.arange(2.), "time")["id"], np.arange(600_000.).reshape(2, 300_000)
    labelled(c, "u", A, dims=["time ", "y", "x"], coords={"time ": time})
    labelled(c, "v", A[:, :, 0], dims=["time ", "y"])
    labelled(c, "large", large, dims=["time ", "z"])
    c.upload(np.arange(3), "fixed")
    exported(c, f"u.{suffix}", ["u", "v", "large", "fixed"], unlimited=["time "], deflate=deflate)
    own = "time " if suffix == "h5" else "time_"
    dims = looked(c, f"u.{suffix}")["dims"]
    assert dims[own] == {"length": 2, "unlimited": True} and not any(d["unlimited"] for name, d in dims.items() if name != own)
    imported(c, f"u.{suffix}", variables=["u", "v", "large"], overwrite=True)
    for name, a in (("u", A), ("v", A[:, :, 0]), ("large", large)):
        assert (c.download(name) == a).all()
    if suffix == "h5":
        with h5py.File(folder / "u.h5", "a") as f:
            assert f["u"].maxshape == (None, 3, 4) and f["fixed"].maxshape == (3,) and f[own].maxshape == (None,) and f[own].chunks == (512,)
            assert (f["u"][:] == A).all() and (f[own][:] == [0, 1]).all() and (f["large"][1, -1] == 599_999)
            f["u"].resize(3, 0)
            assert f["u"].shape == (3, 3, 4)
        return
    with netCDF4.Dataset(folder / f"u.{suffix}", "a") as f:
        assert f.dimensions["time_"].isunlimited() and not f.dimensions["y"].isunlimited() and len(f.dimensions["time_"]) == 2
        f["u"][2] = 7
        assert (f["u"][:2] == A).all() and (f["u"][2] == 7).all() and f["v"].shape == (3, 3) and f["time_"][:2].tolist() == [0, 1]


@pytest.mark.parametrize("deflate", [0, 4])
def test_what_was_not_appended_is_missing(files, deflate):
    import h5py
    import netCDF4
    c, folder = files
    axes = {"dims": ["t", "y", "x"]}
    labelled(c, "u", A, **axes)
    labelled(c, "v", A, **axes)
    labelled(c, "f", A, **axes, attrs={"_FillValue": -5})
    labelled(c, "i", A.astype("int16"), **axes)
    labelled(c, "z", A.astype("complex64"), **axes)
    labelled(c, "none", np.zeros((0, 5)))
    names = ["u", "v", "f", "i", "z", "none"]
    exported(c, "u.nc", names, unlimited=["t"], deflate=deflate)
    with netCDF4.Dataset(folder / "u.nc", "a") as f:
        f["u"][3] = 7
    with netCDF4.Dataset(folder / "u.nc") as f:
        assert (f["u"][3] == 7).all() and f["u"][2].mask.all()
        for name in ("v", "f", "i"):
            assert (f[name][:2] == A).all() and f[name][2:].mask.all() and f[name].shape == (4, 3, 4)
        assert f["f"][2:].data.tolist() == np.full((2, 3, 4), -5).tolist()
    exported(c, "u.h5", names, unlimited=["t"], deflate=deflate)
    with h5py.File(folder / "u.h5", "a") as f:
        for name, value in (("u", 0), ("f", -5), ("z", 0)):
            f[name].resize(600, 0)
            f[name][599, 0, 0] = 7
            assert (f[name][:2] == A).all() and (f[name][2:599] == value).all() and (f[name][599, 1:] == value).all()


def test_what_cannot_be_unlimited(files):
    c, folder = files
    labelled(c, "u", A, dims=["t", "y", "x"])
    body = {"folder": "data", "path": "u.nc", "arrays": ["u"]}
    c.fails(422, "unknown_name", c.post("/v1/files/export", {**body, "unlimited": ["t", "z"]}))
    c.fails(422, "bad_field", c.post("/v1/files/export", {**body, "unlimited": "t"}, check=False))
    c.fails(422, "bad_field", c.post("/v1/files/export", {**body, "path": "u.npz", "unlimited": ["t"]}))
    c.expect(202, c.post("/v1/files/export", {**body, "path": "none.npz", "unlimited": []}))
    for names in (["y"], ["t", "y"]):
        assert "first axis" in exported(c, "u.nc3", ["u"], "failed", unlimited=names)["error"]["detail"]
    exported(c, "u.nc", ["u"], unlimited=["t", "y"])
    assert [d["unlimited"] for d in looked(c, "u.nc")["dims"].values()] == [True, True, False]
    labelled(c, "none", np.zeros((2, 0, 4)), dims=["t", "y", "x"])
    exported(c, "none.nc", ["none"], unlimited=["t", "y"])
    assert looked(c, "none.nc")["variables"][0]["shape"] == [2, 0, 4]
    body = c.expect(200, c.post("/v1/files/bundle", {"arrays": ["u"], "format": "hdf5", "unlimited": ["x"]})).body
    (folder / "b.h5").write_bytes(body)
    import h5py
    with h5py.File(folder / "b.h5") as f:
        assert f["u"].maxshape == (2, 3, None) and (f["u"][:] == A).all()


def test_coordinates_that_are_equal(files):
    """As of two imports of one file: they are one in the next, if their contents are the same."""
    c, folder = files
    for name, x in (("one", [1., 2., np.nan]), ("two", [1., 2., np.nan]), ("three", [1., 2., 4.])):
        with netCDF4.Dataset(folder / f"{name}.nc", "w") as f:
            f.createDimension("x", 3)
            f.createVariable("x", "f8", ("x",))[:] = x
            f.createVariable(name, "f4", ("x",))[:] = 1
        imported(c, f"{name}.nc", variables=[name])
    exported(c, "both.nc", ["one", "two"])
    assert {v["name"] for v in looked(c, "both.nc")["variables"]} == {"x", "one", "two"}
    c.expect(200, c.post("/v1/files/bundle", {"arrays": ["one", "two"], "format": "hdf5"}))
    error = exported(c, "no.nc", ["one", "three"], "failed")["error"]
    assert error["code"] == "conflict" and "'three' has a coordinate 'x'" in error["detail"] and "coords" in error["detail"]
    c.fails(409, "conflict", c.post("/v1/files/bundle", {"arrays": ["one", "two", "three"], "format": "hdf5"}))
    exported(c, "no.nc", ["one", "three"], coords=False)
