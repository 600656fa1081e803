"""arrayd-cli with the files that the daemon reads and writes: put and get of .npz, .nc and .h5, ls files:…, import, export."""
import json
import pathlib
import signal
import subprocess
import time

import numpy as np
import pytest

from cli import cli, environment, main
from conftest import find_binary, until
from stand_in import no_reader, options, write
from test_cli import fails, ok
from test_files import AIR, DIMS, air

pytestmark = pytest.mark.release_only  # it is the client that is tested here


@pytest.fixture
def there(daemon_with, tmp_path, monkeypatch):
    """arrayd-cli at a daemon with the stand-in reader, its folder, and the daemon."""
    folder = tmp_path / "files"
    folder.mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    d = daemon_with(*options(folder))
    yield cli(d), folder, d
    until(lambda: no_reader(d))


@pytest.mark.in_turn
def test_put_and_get(there):
    run, _, d = there
    c = d.client()
    air(pathlib.Path("air.nc"))
    fails(run("put", "air.nc", "x", "--variable", "none"), 1, "air, lat")
    assert ok(run("put", "air.nc")).out == "air\n"
    write(pathlib.Path("two.nc"), {"a": AIR, "b": AIR})
    fails(run("put", "two.nc"), 1, "--variable says which is meant")
    assert ok(run("put", "air.nc", "--variable", "lat")).out == "lat\n" and list(c.download("lat")) == [10, 20, 30, 40]
    assert ok(run("put", "air.nc", "t", "--variable", "air")).out == "t\n" and np.array_equal(c.download("t"), AIR) and c.meta("t")["units"] == "K"
    fails(run("put", "air.nc", "t", "--variable", "air", "-n"), 1, "t")
    assert ok(run("put", "air.nc", "--variable", "air", "--unnamed")).out.startswith("a-")
    assert json.loads(ok(run("put", "air.nc", "u", "--variable", "air", "--json")).out)["dims"] == ["month", "lat", "lon"]
    ok(run("put", "air.nc", "u", "--variable", "air", "--slice", "..."))
    fails(run("put", "air.nc", "--variable", "air", "--slice", "..."), 2, "NAME")
    fails(run("put", "air.nc", "--dtype", "bfloat16"), 2, "dtypes of its own")
    fails(run("put", "none.nc"), 1, "none.nc")
    for suffix in (".nc", ".h5", ".npz"):  # of the stand-in's, which are none
        fails(run("get", "t", f"out{suffix}"), 1, "the reply is not such a file")
        assert not pathlib.Path(f"out{suffix}").exists()


def test_npz(there):
    run, _, d = there
    np.savez("a.npz", u=np.arange(3), v=np.zeros(2))
    assert ok(run("put", "a.npz")).out == "u\nv\n" and ok(run("put", "a.npz", "w", "--variable", "v")).out == "w\n"
    assert d.client().download("w").tolist() == [0, 0]
    fails(run("put", "a.npz", "w"), 2, "--variable says which")
    fails(run("put", "a.npz", "--variable", "x"), 1, "has no array 'x', but u, v")
    fails(run("put", "u.npy", "--variable", "x"), 2, "for .npz, NetCDF and HDF5 files")
    fails(run("put", "a.npz", "--keep-ghosts"), 2, "for NetCDF and HDF5 files")
    np.savez("b.npz", first=np.arange(3), text=np.array(["a", "b"]))
    fails(run("put", "b.npz"), 1, "b.npz: text holds no numbers")
    fails(run("info", "first"), 1, "first")  # nothing was sent


def test_ls(there):
    run, folder, _ = there
    air(folder / "air.nc")
    (folder / "sub").mkdir()
    (folder / "sub" / "x\u202e").write_text("12345")
    assert ok(run("ls", "files:")).out == "data\n" and "read, write" in ok(run("ls", "-l", "files:")).out
    assert ok(run("ls", "files:data")).out == ok(run("ls", "files:data/")).out == "air.nc\nsub/\n"
    assert ok(run("ls", "files:data/sub")).out == "x\\u202e\n" and "5 B" in ok(run("ls", "-l", "files:data/sub")).out
    assert ok(run("ls", "files:data/air.nc")).out == "air\nlat\n"
    long = ok(run("ls", "-l", "files:data/air.nc")).out.splitlines()
    assert len(long) == 3 and "float32" in long[1] and "month 12 × lat 4 × lon 6" in long[1] and "degrees_north" in long[2]
    assert json.loads(ok(run("ls", "--json", "files:data/air.nc")).out)["format"] == "netcdf4"
    assert "files:data/sub:\n" in ok(run("ls", "files:data", "files:data/sub", "--sort", "size")).out
    assert ok(run("ls", "files:data/*.nc")).out == "air.nc\n" and ok(run("ls", "files:data/x*")).out == ""
    fails(run("ls", "files:data/air.nc/*"), 2, "is a file")
    fails(run("ls", "files:none"), 1, "none")
    fails(run("ls", "files:data/none"), 1, "none")
    fails(run("ls", "files:data", "u"), 2, "one at a time")


@pytest.mark.in_turn
def test_import(there):
    run, folder, d = there
    c = d.client()
    air(folder / "air.nc")
    done = ok(run("import", "data/air.nc"))
    assert done.out == "air\n" and "KiB in" in done.err and np.array_equal(c.download("air"), AIR) and set(c.meta("air")["coords"]) == {"lat"}
    fails(run("import", "data/air.nc", "-n"), 1, "air")
    assert ok(run("-q", "import", "files:data/air.nc", "y=lat", "air", "--no-coords")).err == ""
    assert list(c.download("y")) == [10, 20, 30, 40] and "coords" not in c.meta("air")
    assert ok(run("import", "data/air.nc", "part=air", "--slice", "[5:8, ::2]", "--no-labels")).out == "part\n"
    assert np.array_equal(c.download("part"), AIR[5:8, ::2]) and "units" not in c.meta("part")
    assert json.loads(ok(run("import", "data/air.nc", "--json")).out)["state"] == "done"
    fails(run("import", "data/air.nc", "wind"), 1, "data/air.nc: ")
    fails(run("import", "air.nc"), 2, "is not FOLDER/PATH")
    fails(run("import", "data/none.nc"), 1, "none.nc")
    write(folder / "two.nc", {"a": AIR, "b": AIR})
    fails(run("import", "data/two.nc"), 2, "several variables: a, b: name those that are wanted, or --all")
    assert ok(run("import", "data/two.nc", "a", "b")).out == ok(run("import", "data/two.nc", "--all")).out == "a\nb\n"
    assert ok(run("import", "data/air.nc", "-a")).out == "air\n"
    attrs = {"coordinates": "area", "bounds": "edges", "cell_measures": "size: weight", "grid_mapping": "crs: month lat"}
    parts = {"area": AIR[0], "edges": AIR[1], "weight": AIR[2], "crs": np.array(0), "size": AIR[3]}
    write(folder / "cf.nc", {"t": (AIR, ["month", "lat", "lon"], attrs), **{name: (a, ["lat", "lon"][:a.ndim], {}) for name, a in parts.items()}}, dims=DIMS)
    fails(run("import", "data/cf.nc"), 2, "several variables: t, size: ")
    assert ok(run("import", "data/cf.nc", "--all")).out == "t\nedges\nweight\nsize\n" and "area" in c.meta("t")["coords"]
    write(folder / "cf.nc", {"t": (AIR, ["month", "lat", "lon"], {**attrs, "ancillary_variables": "size"}), **{name: (a, ["lat", "lon"][:a.ndim], {}) for name, a in parts.items()}})
    assert ok(run("import", "data/cf.nc")).out == "t\n"
    write(folder / "axis.nc", {"lat": (AIR[0, :, 0], ["lat"], {})})
    assert ok(run("import", "data/axis.nc")).out == "lat\n"
    fails(run("import", "data/two.nc", "a", "--all"), 2, "--all")
    for name in ("one", "other"):  # the format has no names
        write(folder / f"{name}.npy", {"array": AIR}, format="npy")
        assert ok(run("import", f"data/{name}.npy")).out == f"{name}\n" and np.array_equal(c.download(name), AIR)
    write(folder / "1 2.npy", {"array": AIR}, format="npy")
    fails(run("import", "data/1 2.npy"), 2, "NAME=array")
    job = ok(run("import", "data/two.nc", "a", "-d")).out.strip()
    assert job.startswith("j-") and "import data/two.nc" in ok(run("top", "--once")).out


def test_export(there):
    run, folder, d = there
    c = d.client()
    c.upload(AIR, "u")
    c.upload(AIR[0], "v")
    assert ok(run("export", "u", "w=v", "data/a.nc", "--watch")).out == "data/a.nc\n"
    found = (folder / "a.nc").read_bytes()
    assert found.endswith(AIR.tobytes() + AIR[0].tobytes()) and b'"name": "w"' in found
    fails(run("export", "u", "data/a.nc"), 1, "--overwrite replaces it")
    for name, a in (("p", AIR[0]), ("q", AIR[0, :2])):
        c.upload(a, name)
        c.expect(200, c.patch(f"/v1/arrays/{name}", {"dims": ["y", "x"], "units": "K"}))
    fails(run("export", "p", "q", "data/b.nc"), 1, "; --no-labels leaves all of that out of the file")
    ok(run("export", "p", "q", "data/b.nc", "--no-labels"))
    assert b'"units"' not in (folder / "b.nc").read_bytes()
    ok(run("export", "u", "data/a.nc", "--overwrite", "--deflate", "4"))
    c.expect(200, c.patch("/v1/arrays/u", {"dims": ["t", "y", "x"]}))
    ok(run("export", "u", "data/a.nc", "--overwrite", "--unlimited", "t", "--unlimited", "x"))
    assert b'"unlimited": ["t", "x"]' in (folder / "a.nc").read_bytes()
    for format in ("hdf5", "h5"):
        ok(run("export", "u", "data/a.bin", "--format", format, "--no-coords", "--overwrite"))
        assert b'"hdf5"' in (folder / "a.bin").read_bytes()
    fails(run("export", "none", "data/b.nc"), 1, "none")
    fails(run("export", "u", "data/b.txt"), 1, "format")
    assert run("export", "u").status == 2 and run("export", "u", "v").status == 2


def test_completion(there, monkeypatch, capfd):
    _, folder, d = there
    (folder / "sub").mkdir()
    air(folder / "air.nc")
    air(folder / "sub" / "a b.nc")
    d.client().upload(AIR, "u")
    monkeypatch.setenv("ARRAYD_URL", f"http://127.0.0.1:{d.port}")

    def offered(*words):
        try:
            assert main(["__complete", *words]) == 0
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return [line.split("\t")[0] for line in capfd.readouterr().out.splitlines()]

    assert offered("ls", "fi") == ["files:"] and offered("ls", "files:") == ["files:data/"] and offered("ls", "") == ["u"]
    assert offered("ls", "files:data/") == ["files:data/air.nc", "files:data/sub/"] and offered("ls", "u", "files:data/s") == ["files:data/sub/"]
    assert offered("import", "") == ["data/"] and offered("import", "data/sub/a") == ["data/sub/a b.nc"] and offered("import", "none/") == []
    assert offered("export", "") == offered("export", "u", "u", "") == ["u", "data/"] and offered("export", "u", "data/a") == ["data/air.nc"]


def test_ctrl_c_cancels(there, tmp_path):
    _, folder, d = there
    write(folder / "slow.nc", {"a": AIR}, lie={"at": "slab", "deed": "hang"})
    env = environment(tmp_path / "bin", f"http://127.0.0.1:{d.port}")
    p = subprocess.Popen(["arrayd-cli", "import", "data/slow.nc"], env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    c = d.client()
    until(lambda: any(j["state"] == "running" for j in c.expect(200, c.get("/v1/jobs")).json()["jobs"]))
    time.sleep(0.2)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130 and not out and "the import was cancelled; it has left nothing" in err, err
    assert c.expect(200, c.get("/v1/arrays")).json()["arrays"] == []


def test_there_and_back(daemon_with, tmp_path, monkeypatch):
    """With the true reader, where it was built."""
    if not (pathlib.Path(find_binary()).parent / "arrayd-file").exists():
        pytest.skip("arrayd-file was not built")
    monkeypatch.chdir(tmp_path)
    d = daemon_with("--files", f"data={tmp_path}")
    run, c = cli(d), d.client()
    c.upload(AIR, "u")
    for suffix in (".npz", ".nc", ".h5"):
        ok(run("get", "u", f"out{suffix}", "--slice", "[1:]"))
        ok(run("put", f"out{suffix}", "back", *(["--variable", "u"] if suffix == ".npz" else [])))
        assert np.array_equal(c.download("back"), AIR[1:])
        ok(run("export", "t=u", f"data/of{suffix}"))
        assert ok(run("import", f"data/of{suffix}")).out == "t\n" and np.array_equal(c.download("t"), AIR)
    c.expect(200, c.patch("/v1/arrays/u", {"dims": ["t", "y", "x"], "coords": {"t": c.upload(np.arange(12.0), "t0")["id"]}}))
    ok(run("export", "u", "data/u.npy"))  # has no place for coordinates
    with np.load("out.npz") as z:
        assert np.array_equal(z["u"], AIR[1:])


def test_ghosts(there):
    run, folder, d = there
    c = d.client()
    c.expect(201, c.post("/v1/arrays", {"name": "g", "shape": [2, 3], "dtype": "float32", "ghost": [1, 1]}))
    ok(run("export", "g", "data/g.nc", "--keep-ghosts"))
    ok(run("import", "data/g.nc", "--keep-ghosts"))
    assert c.meta("g")["ghost"] == [1, 1] and c.meta("g")["shape"] == [2, 3]
    ok(run("put", folder / "g.nc", "h", "--keep-ghosts"))
    assert c.meta("h")["ghost"] == [1, 1]
    ok(run("put", folder / "g.nc", "h"))
    assert c.meta("h")["ghost"] == [0, 0] and c.meta("h")["shape"] == [2, 3]
    fails(run("get", "g", "g.npy", "--keep-ghosts"), 2, "--keep-ghosts")
    fails(run("put", "g.npy", "--keep-ghosts"), 2, "--keep-ghosts")


def test_no_folders(daemon_with):
    run = cli(daemon_with())
    assert "has no folders with files" in ok(run("ls", "files:")).err
