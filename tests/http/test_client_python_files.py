"""Files with the Python client: those of its own machine, up and down, and those in the daemon's folders."""
import asyncio
import io
import pathlib
import pickle

import numpy as np
import pytest

from conftest import find_binary, until
from stand_in import no_reader, options, write
from test_client_python import arrayd, xp  # noqa: F401
from test_client_python_async import run, url
from test_files import AIR, air
from arrayd import _files  # which test_client_python has made findable

pytestmark = pytest.mark.release_only  # it is the client that is tested here


@pytest.fixture
def there(daemon_with, tmp_path):
    """A daemon with the stand-in reader, its folder, and a client."""
    folder = tmp_path / "files"
    folder.mkdir()
    d = daemon_with(*options(folder))
    with arrayd.connect(url(d)) as client:
        yield client, folder, d
    until(lambda: no_reader(d))


@pytest.fixture
def true(daemon_with, tmp_path):
    """The same with the true reader."""
    if not (pathlib.Path(find_binary()).parent / "arrayd-file").exists():
        pytest.skip("arrayd-file was not built")
    folder = tmp_path / "files"
    folder.mkdir()
    with arrayd.connect(url(daemon_with("--files", f"data={folder}", "--files", f"fixed={folder}:ro"))) as client:
        yield client, folder


def names(client):
    return sorted(m["name"] or "-" for m in client.arrays())


def test_npy_is_numpys(xp, tmp_path):  # noqa: F811
    a = np.arange(6.0).reshape(2, 3)
    assert xp.save(tmp_path / "a.npy", xp.asarray(a) + 0) is None and xp.save(str(tmp_path / "b.NPY"), a) is None
    for name in ("a.npy", "b.NPY"):
        x = xp.load(tmp_path / name)
        assert isinstance(x, arrayd.Array) and x.tolist() == a.tolist()
    np.savez(tmp_path / "a.npz", a=a, b=a > 1)
    with xp.load(str(tmp_path / "a.npz")) as z:
        assert sorted(z.files) == ["a", "b"]
    out = io.BytesIO()
    np.save(out, a)
    out.seek(0)
    assert xp.load(out).tolist() == a.tolist() and xp.load(tmp_path / "a.npy", mmap_mode="r").tolist() == a.tolist()
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["a.npy", "a.npz", "b.NPY"]


def test_what_is_no_file(xp, tmp_path):  # noqa: F811
    with pytest.raises(ValueError, match="one array"):
        xp.save(tmp_path / "a.npy", {"a": [1], "b": [2]})
    with pytest.raises(ValueError, match="the suffix says the format: .npy, .npz, .nc"):
        xp.save(tmp_path / "a.txt", [1])
    with pytest.raises(ValueError, match="'a.txt' is neither an array's name nor that of a file"):
        xp.save("a.txt", [1])
    with pytest.raises(TypeError, match="are for files"):
        xp.save("a", [1], deflate=3)
    with pytest.raises(TypeError, match="unlimited are for files"):
        xp.save("a", [1], unlimited=["t"])
    with pytest.raises(ValueError, match="xp.files"):
        xp.load(tmp_path / "a.png")
    with pytest.raises(ValueError, match="variables are those"):
        xp.load(tmp_path / "a.npy", variable="a")
    for name, text in (("a.mat", b"MATLAB 5.0 MAT-file"), ("a.txt", b"1 2 3")):
        (tmp_path / name).write_bytes(text)
        with pytest.raises(ValueError, match=f"{name}: .npy, .npz, NetCDF and HDF5 files are read"):
            xp.load(tmp_path / name)
        (tmp_path / name).unlink()
    with pytest.raises(TypeError, match="not mmap_mode"):
        xp.load(tmp_path / "a.nc", mmap_mode="r")
    with pytest.raises(FileNotFoundError):
        xp.load(tmp_path / "a.nc")
    with pytest.raises(FileNotFoundError, match="none/a.npy'$"):
        xp.save(tmp_path / "none" / "a.npy", [1])
    with pytest.raises(ValueError, match="nothing"):
        xp.save(tmp_path / "a.nc", {})
    assert list(tmp_path.iterdir()) == []


def test_up_and_down(there, tmp_path):
    client, _, _ = there
    air(tmp_path / "air.nc")
    with pytest.raises(arrayd.BadValue, match="lat") as e:
        client.load(tmp_path / "air.nc", variable="none")
    assert e.value.code == "unknown_name"
    x = client.load(tmp_path / "air.nc", "air")
    assert x.dims == ("month", "lat", "lon") and x.units == "K" and x.attrs["long_name"] == "air" and np.array_equal(x, AIR)
    assert client.save(tmp_path / "out.nc", {"t": x, "u": x[0] * 2, "v": np.arange(3)}, attrs={"n": np.int64(1)}) is None
    back = (tmp_path / "out.nc").read_bytes()
    assert b'"name": "t"' in back and AIR.tobytes() + (AIR[0] * 2).tobytes() + np.arange(3).tobytes() in back
    for said, dims in (({"coords": False}, x.dims), ({"labels": False}, None)):
        y = client.load(tmp_path / "air.nc", "air", **said)
        assert not y.coords and y.dims == dims and np.array_equal(y, AIR)
    del y
    lat = client.array(x.coords["lat"]["array"])
    assert list(x.coords) == ["lat"] and lat.units == "degrees_north" and back.count(lat.numpy().tobytes()) == 1
    client.save(tmp_path / "out.nc", x)  # replaced
    assert b'"name": "array"' in (tmp_path / "out.nc").read_bytes()
    client.save("kept", x)
    for given in (client.array("kept"), ["kept"], {"kept": "kept"}):
        client.save(tmp_path / "out.h5", given)
        assert b'"name": "kept"' in (tmp_path / "out.h5").read_bytes()
    del x, lat
    client.release()
    assert names(client) == ["-", "kept"]  # its coordinate
    client.delete("kept")
    assert names(client) == []


def test_folders(there):
    client, folder, _ = there
    air(folder / "air.nc")
    (folder / "ä b").mkdir()
    (folder / "ä b" / "c&d").write_text("")
    assert client.files.ls() == [{"name": "data", "read_only": False, "shared": True}] and [*client.files] == ["data"]
    data = client.files["data"]
    assert [e["name"] for e in data.ls()] == ["air.nc", "ä b"] and data.ls("ä b")[0]["name"] == "c&d" and "data" in repr(data)
    told = data.describe("air.nc")
    assert told["format"] == "netcdf4" and [v["name"] for v in told["variables"]] == ["air", "lat"]
    assert data.describe()["more"] is False
    with pytest.raises(NotADirectoryError, match="data/air.nc"):
        data.ls("air.nc")
    with pytest.raises(arrayd.NotFound):
        data.ls("none")
    with pytest.raises(arrayd.NotFound):
        client.files["other"].ls()
    with pytest.raises(arrayd.BadValue):
        data.describe("../air.nc")
    with pytest.raises(ValueError, match="folder"):
        client.files["a/b"]


def test_imports(there, capsys):
    client, folder, _ = there
    air(folder / "air.nc")
    data = client.files["data"]
    x = data.load("air.nc", progress=True)
    assert np.array_equal(x, AIR) and x.dims == ("month", "lat", "lon") and x.units == "K" and set(x.coords) == {"lat"}
    assert "steps" not in capsys.readouterr().err
    part = data.load("air.nc", "air", index=np.s_[5:8, ::2, -1], coords=False)
    assert np.array_equal(part, AIR[5:8, ::2, -1]) and part.dims == ("month", "lat") and not part.coords
    assert np.array_equal(data.load("air.nc", "air", index="[0, ...]", labels=False), AIR[0])
    every = data.load("air.nc", "*", coords=False)
    assert list(every) == ["air"] and np.array_equal(every["air"], AIR)
    write(folder / "two.nc", {"a": AIR, "b": AIR[0]})
    every = data.load("two.nc", "*", name={"b": "kept"})
    assert list(every) == ["a", "b"] and np.array_equal(client.array("kept"), AIR[0])
    client.delete("kept")
    with pytest.raises(arrayd.JobFailed, match="'b': "):
        data.load("two.nc", "*", index=np.s_[0, 0, 0])
    with pytest.raises(IsADirectoryError):
        data.load("", "*")
    both = data.load("air.nc", ["air", "lat"], name={"lat": "y"}, coords=False)
    assert list(both) == ["air", "lat"] and np.array_equal(both["air"], AIR) and both["lat"].tolist() == [10, 20, 30, 40]
    named = data.load("air.nc", "air", name="wind", coords=False)
    named += 1
    assert np.array_equal(client.array("wind"), AIR + 1)
    assert np.array_equal(data.load("air.nc", "air", name="wind", coords=False), AIR)  # replaced
    del x, part, both, named, every
    client.release()
    assert names(client) == ["wind", "y"]  # the first one's coordinate has gone with it


def test_a_coordinate_keeps_the_array_that_it_would_go_with(there):
    client, folder, _ = there
    air(folder / "air.nc")
    data = client.files["data"]

    def released():
        client.release()
        return names(client)

    x = data.load("air.nc", "air")
    lat = client.array(x.coords["lat"]["array"])
    del x
    assert released() == ["-", "-"] and np.asarray(lat).tolist() == [10, 20, 30, 40]
    twice = lat * 2
    del lat
    assert released() == ["-", "-"] and np.asarray(twice).tolist() == [20, 40, 60, 80]
    del twice
    assert released() == []
    y = data.load("air.nc", "air")
    lat = client.array(client.metadata(y)["coords"]["lat"]["array"])
    y = (y * 2).compute()
    assert released() == ["-", "-", "-"] and np.asarray(lat).tolist() == [10, 20, 30, 40] and not y.coords
    again = pickle.loads(pickle.dumps(lat))
    del lat
    assert released() == ["-", "-", "-"] and np.asarray(again).tolist() == [10, 20, 30, 40]
    again.patch(name="lat")  # from now on it stays by itself
    del y
    assert released() == ["lat"]
    z = client.asarray(AIR[:, :, 0], dims=("month", "lat"))
    w = client.asarray(AIR[:, :, 0] + 1, dims=("month", "lat"))
    x = data.load("air.nc", "air")
    for other in (z, w):  # of several that have it, one that is still there
        other.patch(coords=x.coords)
        assert set(other.coords) == {"lat"}
    del x, w, other
    at = client.array(z.coords["lat"]["array"])
    assert released() == ["-", "-", "lat"]
    del z
    assert released() == ["-", "-", "lat"] and np.asarray(at).tolist() == [10, 20, 30, 40]


def test_imports_that_fail(there):
    client, folder, _ = there
    air(folder / "air.nc")
    data = client.files["data"]
    for wrong, said in ((dict(path="none.nc"), "none.nc"), (dict(path="air.nc", variable="wind"), "air, lat"), (dict(path="air.nc", index="0, 0, 0, 0"), "ind")):
        with pytest.raises(arrayd.JobFailed, match=said) as e:
            data.load(**wrong)
        assert str(e.value).startswith(f"the import of data/{wrong.get('path', 'air.nc')} failed: ")
    for wrong in (dict(index=np.s_[AIR > 0]), dict(index=True), dict(index=1.5j), dict(index=np.s_[0, [1, 2]])):
        with pytest.raises(TypeError, match="by whole numbers and slices"):
            data.load("air.nc", **wrong)
    with pytest.raises(ValueError, match="dictionary"):
        data.load("air.nc", ["air"], name="x")
    with pytest.raises(ValueError, match="'b' is none"):
        data.load("air.nc", "air", name={"b": "x"})
    with pytest.raises(ValueError, match="no variable"):
        data.load("air.nc", [])
    with pytest.raises(arrayd.BadIndex):
        data.load("air.nc", index="x")
    assert names(client) == []


def test_exports(there):
    client, folder, _ = there
    data = client.files["data"]
    x = client.asarray(AIR, dims=("t", "y", "x"), units="K")
    data.save("a.nc", {"air": x, "top": x[0]}, attrs={"title": "t"})
    found = (folder / "a.nc").read_bytes()
    assert found.endswith(AIR.tobytes() + AIR[0].tobytes()) and b'"units": "K"' in found and b'"title": "t"' in found
    with pytest.raises(arrayd.JobFailed, match="the export of data/a.nc failed: .*already") as e:
        data.save("a.nc", x)
    assert e.value.code == "conflict"
    data.save("a.nc", [client.save("u", x), "u"][:1], overwrite=True, progress=True)
    assert b'"name": "u"' in (folder / "a.nc").read_bytes()
    data.save("b.bin", x * 2, format="hdf5", coords=False)
    assert (folder / "b.bin").read_bytes().endswith((AIR * 2).tobytes())
    with pytest.raises(arrayd.BadValue, match="format"):
        data.save("b.txt", x)


def test_whoever_stops_waiting_ends_it(there):
    client, folder, d = there
    write(folder / "slow.nc", {"a": AIR}, lie={"at": "slab", "deed": "hang"})

    async def steps():
        async with arrayd.aconnect(url(d)) as axp:  # noqa: F811
            work = asyncio.ensure_future(axp.files["data"].load("slow.nc"))
            while not any(j["state"] == "running" for j in await axp.jobs()):
                await asyncio.sleep(0.02)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            for _ in range(500):
                if [j["state"] for j in await axp.jobs()] in ([], ["cancelled"]):
                    break
                await asyncio.sleep(0.02)
            else:
                raise AssertionError(await axp.jobs())

    run(steps())
    assert names(client) == []


def test_nothing_is_left_of_an_import_whose_arrays_nobody_has_got(there, monkeypatch):
    client, folder, d = there
    write(folder / "three.nc", {"a": AIR, "b": AIR[0], "c": AIR})

    def fails(of, name, after, error):
        """`load`, where that function raises an error after so many calls; the wait, when the job has ended."""
        whole, calls = getattr(of, name), []

        def f(*args, **more):
            calls.append(name)
            if len(calls) <= after:
                return whole(*args, **more)
            if of is arrayd.Job:
                whole(*args, **more)
            raise error("stop") if error is KeyboardInterrupt else error(507, "out_of_memory", "stop")

        with monkeypatch.context() as m, pytest.raises(error, match="stop"):
            m.setattr(of, name, f)
            client.files["data"].load("three.nc", ["a", "b", "c"], name={"c": "kept"})

    for error in (KeyboardInterrupt, arrayd.OutOfMemory):
        for of, name, after in ((arrayd.Job, "wait", 0), (_files, "_owned", 0), (_files, "_owned", 1)):
            fails(of, name, after, error)
            client.release()
            assert names(client) == ["kept"]

    async def steps():
        async with arrayd.aconnect(url(d)) as axp:  # noqa: F811
            whole = arrayd.AsyncJob.wait

            async def wait(*args, **more):
                await whole(*args, **more)
                work.cancel()
                await asyncio.sleep(1)

            monkeypatch.setattr(arrayd.AsyncJob, "wait", wait)
            work = asyncio.ensure_future(axp.files["data"].load("three.nc", "a"))
            with pytest.raises(asyncio.CancelledError):
                await work

    run(steps())
    assert names(client) == ["kept"]


def test_with_asyncio(there, tmp_path):
    _, folder, d = there
    air(folder / "air.nc")

    async def steps():
        async with arrayd.aconnect(url(d)) as axp:  # noqa: F811
            assert [f["name"] for f in await axp.files.ls()] == ["data"]
            with pytest.raises(TypeError, match="await"):
                list(axp.files)
            data = axp.files["data"]
            assert (await data.describe("air.nc"))["kind"] == "file" and (await data.ls())[0]["name"] == "air.nc"
            x = await data.load("air.nc", "air")
            assert isinstance(x, arrayd.AsyncArray) and np.array_equal(await x.numpy(), AIR) and await x.units == "K"
            with pytest.raises(arrayd.JobFailed):
                await data.load("air.nc", "wind")
            await data.save("out.nc", {"air": x * 2})
            await axp.save(tmp_path / "here.nc", x)
            await axp.save(tmp_path / "here.npy", x)
            assert np.array_equal(np.load(tmp_path / "here.npy"), AIR)
            y = await axp.load(tmp_path / "here.nc")
            assert np.array_equal(await y.numpy(), AIR) and np.array_equal(await (await axp.load(tmp_path / "here.npy")).numpy(), AIR)

    run(steps())
    assert (folder / "out.nc").read_bytes().endswith((AIR * 2).tobytes())


# --- with the true reader ---


def test_what_others_write(true, tmp_path):
    client, folder = true
    xarray = pytest.importorskip("xarray")
    h5py = pytest.importorskip("h5py")
    of = xarray.Dataset({"air": (("t", "y"), np.arange(6.0).reshape(2, 3) + 0.5, {"units": "K"}), "wind": (("t", "y"), np.ones((2, 3)))}, {"y": [1.0, 2.0, 4.0]})
    of.to_netcdf(tmp_path / "a.nc", engine="netcdf4", encoding={"air": {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -1}})
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["g/x"] = np.arange(5, dtype=">i4")
    np.savez(tmp_path / "a.npz", u=np.arange(3), v=np.zeros(2))
    with pytest.raises(arrayd.BadValue, match="air, wind"):
        client.load(tmp_path / "a.nc")
    x = client.load(tmp_path / "a.nc", variable="air")
    assert np.array_equal(x, of["air"].values) and x.units == "K" and x.dims == ("t", "y")
    assert client.load(tmp_path / "a.nc", variable="air", decode=False).dtype == np.int16
    assert client.load(tmp_path / "a.h5").tolist() == [0, 1, 2, 3, 4] and client.load(tmp_path / "a.npz", variable="v").tolist() == [0, 0]
    (tmp_path / "a.nc").rename(folder / "a.nc")
    got = client.files["fixed"].load("a.nc", "air").to_xarray()
    assert np.array_equal(got, of["air"]) and got["y"].values.tolist() == [1, 2, 4] and got.attrs == {"units": "K"}
    with pytest.raises(arrayd.Conflict, match="read-only"):
        client.files["fixed"].save("b.nc", x)


def test_what_others_read(true, tmp_path):
    client, folder = true
    xarray = pytest.importorskip("xarray")
    y = client.asarray([1.0, 2.0, 4.0], units="m")
    x = client.asarray(np.arange(6.0).reshape(2, 3), dims=("t", "y"), units="K", coords={"y": y})
    client.save(tmp_path / "a.nc", {"air": x, "n": client.arange(4)}, attrs={"title": "of air"}, deflate=5)
    client.files["data"].save("a.nc", {"air": x, "n": client.arange(4)}, attrs={"title": "of air"})
    for path in (tmp_path / "a.nc", folder / "a.nc"):
        with xarray.open_dataset(path) as f:
            assert f["air"].dims == ("t", "y") and f["air"].units == "K" and f["y"].values.tolist() == [1, 2, 4] and f.attrs["title"] == "of air"
            assert np.array_equal(f["air"], np.asarray(x)) and f["n"].values.tolist() == [0, 1, 2, 3]
    client.save(tmp_path / "b.nc", x, unlimited=["t"])
    client.files["data"].save("b.nc", x, unlimited=("t",))
    for path in (tmp_path / "b.nc", folder / "b.nc"):
        with xarray.open_dataset(path) as f:
            assert f.encoding["unlimited_dims"] == {"t"}
    client.save(tmp_path / "a.npz", {"air": x, "n": [1, 2]})
    with np.load(tmp_path / "a.npz") as f:
        assert np.array_equal(f["air"], np.asarray(x)) and f["n"].tolist() == [1, 2]
    for suffix in (".tif", ".npy"):  # which have one array, and so no coordinates
        client.save(tmp_path / f"a{suffix}", x)
        client.files["data"].save(f"a{suffix}", x)
        assert (tmp_path / "a.tif").read_bytes()[:2] == (folder / "a.tif").read_bytes()[:2] == b"II"
    assert np.array_equal(np.load(folder / "a.npy"), np.asarray(x))


def test_parts_are_saved_with_what_is_said_of_them(true, tmp_path):
    client, folder = true
    xarray = pytest.importorskip("xarray")
    t = client.asarray([0.0, 6.0, 12.0, 18.0], units="hours since 2026-01-01")
    x = client.asarray(np.arange(24.0).reshape(4, 2, 3), dims=("time", "y", "x"), units="K", attrs={"long_name": "air"},
                       coords={"time": t, "y": [1.0, 2.0], "h": (("time", "x"), np.arange(12.0).reshape(4, 3))})
    n = len(names(client))
    for part, like in ((x[1:3], np.s_[1:3]), (x[::-1][:2, :, 1:], np.s_[3:1:-1, :, 1:]), (x[2], np.s_[2]), (x[...], np.s_[...]), (x[1:][1, 0], np.s_[2, 0])):
        client.save(tmp_path / "p.nc", {"air": part})
        client.files["data"].save("p.nc", {"air": part}, overwrite=True)
        wanted = x.to_xarray()[like]
        for path in (tmp_path / "p.nc", folder / "p.nc"):
            with xarray.open_dataset(path) as f:
                xarray.testing.assert_identical(f["air"].drop_vars(list(f["air"].coords)), wanted.drop_vars(list(wanted.coords)).rename("air"))
                assert set(f.variables) == {"air", "time", "y", "h"}
                for name in ("time", "y", "h"):
                    assert f[name].dims == wanted[name].dims and np.array_equal(f[name], wanted[name])
    client.release()
    assert len(names(client)) == n  # the views have gone
    client.save(tmp_path / "p.nc", {"air": x[1:3].T, "twice": x[1:3] * 2})
    with xarray.open_dataset(tmp_path / "p.nc") as f:
        assert not f["twice"].attrs and not f["air"].attrs and f["air"].shape == (3, 2, 2)
    placed = client.asarray(np.ones((3, 4)), dims=("y", "x"), attrs={"ModelTiepoint": [0.0, 0, 0, 500, 900, 0], "a": 1})
    assert dict(client.save("placed", placed[1:]).attrs) == {"a": 1}  # it lies elsewhere
    client.delete("placed")


def test_a_part_keeps_under_a_name_what_is_said_of_it(xp):  # noqa: F811
    x = xp.asarray(np.zeros((4, 2)), dims=("t", "y"), units="K", attrs={"a": 1}, coords={"y": [1.0, 2.0], "t": np.arange(4)})
    n = len(names(xp))
    kept = xp.save("part", x[1:3])
    assert kept.dims == ("t", "y") and kept.units == "K" and dict(kept.attrs) == {"a": 1} and set(kept.coords) == {"y"}
    x[:] = 1.0
    assert not kept.numpy().any()  # it is a copy
    xp.release()
    assert len(names(xp)) == n + 1
    xp.delete("part")
    for c in x.coords.values():
        xp.delete(c["array"])
