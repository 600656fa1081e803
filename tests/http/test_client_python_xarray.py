"""xarray's engine "arrayd" beside xarray's own, on the same files, with whichever xarray there is: Debian's, or PyPI's newest."""
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

from client import REPO
from test_client_python_files import arrayd, names, true  # noqa: F401

xarray = pytest.importorskip("xarray")
netCDF4 = pytest.importorskip("netCDF4")
from arrayd.xarray import Backend  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here
OWN = [name for name in ("netcdf4", "h5netcdf") if name in xarray.backends.list_engines()]
ENCODING = ("chunksizes", "preferred_chunks", "original_shape", "zlib", "complevel", "shuffle", "fletcher32", "dtype", "scale_factor", "add_offset", "_FillValue",
            "missing_value", "units", "calendar", "_Unsigned")


def written(path):
    """A file that xarray has written: times, packed, chunked and deflated, booleans, durations, scalars, texts."""
    rng = np.random.default_rng(1)
    days = np.arange("2026-01-01", "2026-01-13", dtype="M8[D]").astype("M8[ns]")
    ds = xarray.Dataset(
        {"air": (("time", "lat", "lon"), 280 + rng.random((12, 4, 6)).round(2), {"units": "K", "long_name": "air temperature"}),
         "f32": (("time", "lat"), rng.random((12, 4)).astype("f4"), {"valid_range": np.array([0, 1], "f4")}), "n": ((), 7),
         "flag": (("lat",), np.array([True, False, True, True])), "wait": (("lat",), np.array([1, 2, 3, 4], "m8[D]").astype("m8[ns]")),
         "u8": (("lon",), np.arange(6, dtype="u1"))},
        {"time": days, "lat": [1.0, 2.0, 4.0, 8.0], "lon": np.arange(6, dtype="f4"), "lat2": (("lat",), [5, 6, 7, 8]), "s": 3.5,
         "label": (("lat",), list("abcd"))},
        {"title": "T", "levels": np.array([1, 2, 3]), "one": np.int16(4), "names": ["x", "yy"], "half": np.float32(0.5)})
    ds["air"][0, 0, 0] = np.nan
    packed = dict(dtype="i2", scale_factor=0.01, add_offset=280.0, _FillValue=-32768, zlib=True, shuffle=True, fletcher32=True, complevel=7, chunksizes=(3, 4, 6))
    ds.to_netcdf(path, engine="netcdf4", encoding={"air": packed, "u8": {"_FillValue": 255}}, unlimited_dims=["time"])
    return ds


ODD = {  # name: (stored as, values, fill, attributes)
    "s16f": ("i2", [1, 2, 3, -9, 5], np.int16(-9), {"scale_factor": np.float32(0.01)}),
    "s16fo": ("i2", [1, 2, 3, -9, 5], np.int16(-9), {"scale_factor": np.float32(0.01), "add_offset": np.float32(1.1)}),
    "s32fo": ("i4", [1, 2, 3, -9, 5], np.int32(-9), {"scale_factor": np.float32(0.01), "add_offset": np.float32(1.1)}),
    "s32f": ("i4", [1, 2, 3, -9, 5], None, {"scale_factor": np.float32(0.01)}), "s8": ("i1", [1, 2, 3, -9, 5], None, {"scale_factor": 0.1}),
    "half": ("i2", [1, 2, 3, -9, 5], None, {"scale_factor": np.float32(0.5)}), "half64": ("i2", [1, 2, 3, -9, 5], None, {"scale_factor": 0.5}),
    "uns": ("i1", [1, 2, -3, -9, 5], np.int8(-9), {"_Unsigned": "true", "scale_factor": np.float32(0.5)}), "uns0": ("i1", [1, 2, -3, -9, 5], None, {"_Unsigned": "true"}),
    "miss": ("f4", [1, 2, 1e20, 4, 5], None, {"missing_value": np.float32(1e20)}), "missi": ("i4", [1, 2, -999, 4, 5], None, {"missing_value": -999.0}),
    "nan": ("f8", [1, 2, np.nan, 4, 5], np.nan, {}), "big": ("i8", [2**62 + 1, 2, 3, 4, 5], np.int64(2**62), {}), "u64": ("u8", np.array([2**64 - 1, 2, 3, 4, 5], "u8"), None, {}),
    "days": ("f8", [0, 1.5, 3, 4, 5], None, {"units": "days since 1850-01-01", "calendar": "noleap"}),
    "hours": ("i4", [0, 1, 2, 3, -1], np.int32(-1), {"units": "hours since 2000-01-01 06:00"}), "be": (">i4", [1, 2, 3, 4, 5], None, {})}


def odd(path):
    """Of netCDF4-python: types of scales and fills, groups with dimensions of their own, an enumeration."""
    with netCDF4.Dataset(path, "w") as f:
        f.createDimension("x", 5)
        f.createDimension("k", None)
        for name, (dtype, values, fill, attrs) in ODD.items():
            v = f.createVariable(name, dtype, ("x",), fill_value=fill, endian="big" if dtype[0] == ">" else "native")
            v.set_auto_maskandscale(False)
            v.setncatts(attrs)
            v[:] = values
        g = f.createGroup("g").createGroup("h")
        g.createDimension("y", None)
        g.createVariable("w", "f8", ("y", "x"))[:] = np.arange(10).reshape(2, 5)
        g.createVariable("y", "f8", ("y",))[:] = [10, 20]
        e = f.createEnumType(np.uint8, "switch", {"off": 0, "on": 1})
        f.createVariable("en", e, ("x",))[:] = [0, 1, 0, 1, 1]


def same(ours, theirs):
    xarray.testing.assert_identical(ours.load(), theirs.load())
    assert ours.encoding.get("unlimited_dims") == theirs.encoding.get("unlimited_dims")
    for name, v in theirs.variables.items():
        w = ours.variables[name]
        assert v.dtype == w.dtype, name
        for key in ENCODING:
            if key == "preferred_chunks":  # of a file so small it is all
                assert w.encoding.get(key) in (None, dict(w.sizes)), name
            elif v.encoding.get(key) not in (None, False) and v.encoding.get("chunksizes", True) is not None:
                assert np.array_equal(v.encoding[key], w.encoding[key], equal_nan=key in ("_FillValue", "missing_value")), (name, key)


@pytest.mark.in_turn
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", OWN)
@pytest.mark.parametrize("how", [{}, {"mask_and_scale": False}, {"decode_cf": False}, {"decode_times": False}, {"decode_coords": "all"}, {"drop_variables": "air"}],
                         ids=lambda how: "-".join(how) or "as it is")
def test_as_xarrays_own_engines(true, engine, how):  # noqa: F811
    client, folder = true
    written(folder / "a.nc")
    odd(folder / "b.nc")
    without = [how["drop_variables"]] if "drop_variables" in how else []
    for path, left_out in (("a.nc", ["label"]), ("b.nc", [] if engine == "netcdf4" else ["en"])):
        how = {**how, "drop_variables": [*without, *left_out]}
        with xarray.open_dataset(folder / path, engine=engine, **how) as theirs:
            ours = xarray.open_dataset(f"data/{path}", engine=Backend, client=client, **how)
            if "en" in ours:  # xarray's own engines do not say what an enum means, or not so
                assert list(ours["en"].attrs.pop("flag_values")) == [0, 1] and ours["en"].attrs.pop("flag_meanings") == "off on"
            same(ours, theirs)
    if "decode_coords" not in how:
        with xarray.open_dataset(folder / "b.nc", engine=engine, group="g/h", **how) as theirs:
            same(xarray.open_dataset("data/b.nc", engine=Backend, client=client, group="g/h", **how), theirs)


@pytest.mark.filterwarnings("ignore:.*left out are")
def test_whole_files_and_parts(true):
    client, folder = true
    of = xarray.Dataset({"air": (("time", "y", "x"), np.arange(60.0).reshape(3, 4, 5) + 0.5, {"units": "K"}), "n": ((), 7), "label": (("y",), list("abcd"))},
                        {"y": [1.0, 2.0, 4.0, 8.0], "time": np.array(["2026-01-01", "2026-01-02", "2026-01-05"], "M8[ns]")}, {"title": "of air"})
    of["air"][0, 0, 0] = np.nan
    of.to_netcdf(folder / "a.nc", engine="netcdf4", encoding={"air": {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -1, "zlib": True}}, unlimited_dims=["time"])
    xarray.Dataset({"u": (("k",), [1.0, np.nan])}).to_netcdf(folder / "a.nc", mode="a", group="g/h")
    with xarray.open_dataset(f"arrayd://{client.url.partition('//')[2]}/data/a.nc", engine=Backend) as ds:
        xarray.testing.assert_identical(ds.load(), of.drop_vars("label"))
        assert ds.encoding["unlimited_dims"] == {"time"}
    ds = xarray.open_dataset("data/a.nc", engine=Backend, client=client)
    for part in (dict(x=2), dict(x=slice(1, None, 2), time=[0, 2]), dict(y=slice(None, None, -1)), dict(y=[3, 0], x=[1, 1]), dict(time=-1, y=slice(0, 0))):
        xarray.testing.assert_identical(ds["air"].isel(part).load(), of["air"].isel(part))
    xarray.testing.assert_identical(ds["air"].sel(time="2026-01-02").mean("x").load(), of["air"].sel(time="2026-01-02").mean("x"))
    raw = xarray.open_dataset("data/a.nc", engine=Backend, client=client, mask_and_scale=False, drop_variables=["n"])
    assert raw["air"].dtype == np.int16 and raw["air"].attrs["_FillValue"] == -1 and "n" not in raw
    assert xarray.open_dataset("data/a.nc", engine=Backend, client=client, group="/g/h")["u"].values[0] == 1
    client.release()
    assert names(client) == []
    for wrong, error in (("data/none.nc", arrayd.NotFound), ("data", IsADirectoryError)):
        with pytest.raises(error):
            xarray.open_dataset(wrong, engine=Backend, client=client)
    with pytest.raises(ValueError, match="arrayd://"):
        xarray.open_dataset("data/a.nc", engine=Backend)
    with pytest.raises(arrayd.BadValue, match="no group"):
        xarray.open_dataset("data/a.nc", engine=Backend, client=client, group="k")
    assert Backend().guess_can_open("arrayd://h/x") and not Backend().guess_can_open("a.nc")


def test_what_is_left_out(true):  # noqa: F811
    """Is told, and takes no other coordinate with it."""
    client, folder = true
    written(folder / "a.nc")
    with pytest.warns(UserWarning, match="data/a.nc: left out are label: texts are not read"):
        ds = xarray.open_dataset("data/a.nc", engine=Backend, client=client)
    assert {"lat2", "s"} <= set(ds["air"].coords) and "label" not in ds
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xarray.open_dataset("data/a.nc", engine=Backend, client=client, drop_variables=["label"])


def test_nothing_is_read_before_it_is_needed(true):  # noqa: F811
    client, folder = true
    written(folder / "a.nc")
    ds = xarray.open_dataset("data/a.nc", engine=Backend, client=client, drop_variables="label")
    before = client.jobs()
    assert "air temperature" in repr(ds["air"]) or ds["air"].attrs["units"] == "K"
    part = ds["air"].isel(time=slice(2, 4), lat=0)
    assert len(client.jobs()) == len(before)
    assert part.values.shape == (2, 6)
    new = [j for j in client.jobs() if j["id"] not in {b["id"] for b in before}]
    assert [j["steps"] for j in new] == [2 * 6 * 2]  # bytes, of int16


def test_through_pickles_and_dask(true):  # noqa: F811
    client, folder = true
    of = written(folder / "a.nc")
    ds = xarray.open_dataset("data/a.nc", engine=Backend, client=client, drop_variables="label")
    assert float(pickle.loads(pickle.dumps(ds))["air"][1, 1, 1]) == pytest.approx(float(of["air"][1, 1, 1]))
    pytest.importorskip("dask.array")
    lazy = xarray.open_dataset("data/a.nc", engine=Backend, client=client, drop_variables="label", chunks={})
    assert lazy["air"].chunks == ((12,), (4,), (6,)) and float(lazy["air"].mean()) == pytest.approx(float(of["air"].mean()))


@pytest.mark.parametrize("shape, chunks, nbytes, together", [
    ((1776, 5), (1, 1), 8, (1776, 5)), ((100, 2048, 2048), (1, 64, 64), 4, (1, 1024, 2048)), ((9, 512, 512), (2, 512, 512), 4, (8, 512, 512)),
    ((10, 4096, 4096), (1, 4096, 4096), 4, (1, 4096, 4096)), ((0, 4), (8, 4), 4, (1, 4)), ((3000, 700), (1000, 300), 8, (1000, 700))])
def test_small_chunks_are_read_together(shape, chunks, nbytes, together):
    from arrayd.xarray import _together
    assert tuple(_together({"shape": shape, "chunks": chunks, "dtype": f"float{8 * nbytes}"})) == together


def test_bfloat16_is_read_as_float32(true):  # noqa: F811
    client, folder = true
    client.files["data"].save("b.h5", {"u": client.astype(client.arange(4), client.bfloat16), "v": client.arange(3)})
    ds = xarray.open_dataset("data/b.h5", engine=Backend, client=client)
    assert ds["u"].dtype == np.float32 and ds["u"].values.tolist() == [0, 1, 2, 3] and ds["v"].shape == (3,)


def test_groups_are_opened_one_at_a_time():
    with pytest.raises(NotImplementedError, match="group="):
        Backend().open_datatree("arrayd://h/data/a.nc")


def test_written_again_it_is_as_it_was(true, tmp_path):  # noqa: F811
    client, folder = true
    written(folder / "a.nc")
    xarray.open_dataset("data/a.nc", engine=Backend, client=client, drop_variables="label").to_netcdf(tmp_path / "b.nc", engine="netcdf4")
    with netCDF4.Dataset(tmp_path / "b.nc") as f:
        v = f["air"]
        assert v.chunking() == [3, 4, 6] and v.dtype == np.int16 and v.filters()["complevel"] == 7 and v.filters()["fletcher32"] and f.dimensions["time"].isunlimited()


def test_by_its_name(true, tmp_path):  # noqa: F811
    """As pip's metadata has it. Without the name netCDF4's engine takes every address for OPeNDAP's."""
    client, folder = true
    written(folder / "a.nc")
    (tmp_path / "arrayd-1.dist-info").mkdir()
    (tmp_path / "arrayd-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: arrayd\nVersion: 1\n")
    points = (REPO / "clients/python/pyproject.toml").read_text().split('[project.entry-points."xarray.backends"]\n')[1].split("\n")[0]
    (tmp_path / "arrayd-1.dist-info" / "entry_points.txt").write_text("[xarray.backends]\n" + points.replace('"', "") + "\n")
    address = f"arrayd://{client.url.partition('//')[2]}/data/a.nc"
    program = ("import xarray as xr\n"
               f"with xr.open_dataset('{address}', drop_variables='label', engine='arrayd') as ds:\n"
               "    assert ds['air'].shape == (12, 4, 6) and ds['air'][1, 1].values.shape == (6,)\n"
               "assert 'arrayd' in xr.backends.list_engines()\n")
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", program], capture_output=True, text=True, timeout=120,
                          env={"PYTHONPATH": f"{REPO}/clients/python/src:{tmp_path}", "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
