"""Exports of labelled arrays by the true arrayd-file: what files say, and what comes back of it."""
import pathlib

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
