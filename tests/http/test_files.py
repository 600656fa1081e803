"""Folders, descriptions, imports and exports, with a stand-in for the program that reads files."""
import concurrent.futures
import json
import os
import pathlib
import resource
import signal
import subprocess
import time

import numpy as np
import pytest

from client import NPY, npy_bytes
from conftest import until
from stand_in import ALL_DTYPES, READER, children, descriptors, exported, imported, looked, no_reader, options, write

AIR = np.arange(12 * 4 * 6, dtype=np.float32).reshape(12, 4, 6)
DIMS = {"month": {"length": 12, "unlimited": True}, "lat": {"length": 4}, "lon": {"length": 6}}


def air(path, **kw):
    write(path, {"air": (AIR, ["month", "lat", "lon"], {"units": "K", "long_name": "air", "levels": [1, 2.5]}),
                 "lat": (np.array([10., 20., 30., 40.]), ["lat"], {"units": "degrees_north"})}, {"title": "air"}, DIMS, **kw)


@pytest.fixture
def files(daemon_with, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    d = daemon_with(*options(folder), "--file-slab", "64KiB")
    yield d.client(), folder, d
    until(lambda: no_reader(d))


def test_folders(daemon_with, tmp_path):
    (tmp_path / "a").mkdir()
    c = daemon_with("--files", f"data={tmp_path}/a", "--files", f"more={tmp_path}/a:ro").client()
    got = c.expect(200, c.get("/v1/files")).json()
    assert got["folders"] == [{"name": "data", "read_only": False, "shared": True}, {"name": "more", "read_only": True, "shared": True}]
    limits = c.info()["limits"]
    assert limits["file_jobs"] == 2 and limits["file_memory"] == 1 << 30 and limits["max_file_entries"] == 10000
    c.fails(400, "bad_query", c.get("/v1/files?all=1", check=False))
    c.fails(404, "not_found", c.get("/v1/files/other"))
    c.fails(409, "read_only", c.post("/v1/files/export", {"folder": "more", "path": "x.nc", "arrays": ["x"]}))


@pytest.mark.parametrize("value, why", [("data", "NAME=FOLDER"), ("=x", "NAME=FOLDER"), ("import=/tmp", "NAME=FOLDER"), ("a b=/tmp", "NAME=FOLDER"),
                                        ("data=/nowhere/at/all", "No such file"), ("data=/dev/null", "Not a directory")])
def test_what_is_no_folder(daemon_with, value, why):
    with pytest.raises(RuntimeError, match=why):
        daemon_with("--no-keeper", "--files", value)


def test_a_folder_is_listed(files):
    c, folder, _ = files
    (folder / "b.nc").write_bytes(b"12345")
    (folder / "ä b").mkdir()
    (folder / "link").symlink_to(folder / "b.nc")
    got = c.expect(200, c.get("/v1/files/data")).json()
    assert [(e["name"], e["kind"], e.get("size")) for e in got["entries"]] == [("b.nc", "file", 5), ("ä b", "folder", None)]
    assert looked(c, "%C3%A4%20b")["entries"] == []
    c.fails(404, "not_found", c.get("/v1/files/data?path=nothing"))


def test_a_long_folder(daemon_with, tmp_path):
    for k in range(30):
        (tmp_path / f"{k:02}").write_text("")
    c = daemon_with("--files", f"data={tmp_path}", "--max-file-entries", 10).client()
    got = c.expect(200, c.get("/v1/files/data")).json()
    assert got["more"] and len(got["entries"]) == 10


def test_times_before_1970(files):
    c, folder, _ = files
    air(folder / "air.nc")
    os.utime(folder / "air.nc", ns=(0, -1_500_000_000))
    assert looked(c, "air.nc")["modified"] == "1969-12-31T23:59:58.500Z"
    assert c.expect(200, c.get("/v1/files/data")).json()["entries"][0]["modified"] == "1969-12-31T23:59:58.500Z"
    for seconds in (-10 ** 12, 10 ** 12, 2 ** 62):  # whatever the file system makes of it
        os.utime(folder / "air.nc", ns=(0, seconds * 10 ** 9)) if seconds < 2 ** 32 else subprocess.run(["touch", "-d", f"@{seconds}", folder / "air.nc"], check=True)
        assert len(c.expect(200, c.get("/v1/files/data")).json()["entries"][0]["modified"]) == 24


def test_a_file_is_described(files):
    c, folder, _ = files
    air(folder / "air.nc")
    got = looked(c, "air.nc")
    assert got["format"] == "netcdf4" and got["attrs"] == {"title": "air"} and got["dims"] == DIMS
    assert [(v["name"], v["dtype"], v["shape"], v["dims"]) for v in got["variables"]] == \
        [("air", "float32", [12, 4, 6], ["month", "lat", "lon"]), ("lat", "float64", [4], ["lat"])]
    (folder / "no.nc").write_bytes(b"what is this")
    c.fails(422, "bad_file", c.get("/v1/files/data?path=no.nc"))


def test_without_the_program(daemon_with, tmp_path):
    air(tmp_path / "air.nc")
    d = daemon_with("--files", f"data={tmp_path}", "--file-reader", tmp_path / "nothing")
    assert "file-reader is no program that can be run" in d.log()
    c = d.client()
    assert c.expect(200, c.get("/v1/files")).json()["reader"] is False
    assert len(c.expect(200, c.get("/v1/files/data")).json()["entries"]) == 1
    c.fails(501, "library_missing", c.get("/v1/files/data?path=air.nc"))
    assert imported(c, "air.nc", "failed")["error"]["code"] == "library_missing"


def test_import(files):
    c, folder, _ = files
    air(folder / "air.nc")
    job = imported(c, "air.nc")
    assert job["import"] == {"folder": "data", "path": "air.nc"} and job["step"] == job["steps"] == AIR.nbytes + 32
    assert (c.download("air") == AIR).all()
    meta = c.meta("air")
    assert meta["attrs"] == {"long_name": "air", "levels": [1, 2.5]} and meta["units"] == "K" and meta["dims"] == ["month", "lat", "lon"]
    lat = meta["coords"]["lat"]["array"]
    assert list(c.download(lat)) == [10, 20, 30, 40] and c.meta(lat)["units"] == "degrees_north"
    assert [j["id"] for j in c.expect(200, c.get("/v1/jobs")).json()["jobs"]] == [job["id"]]


@pytest.mark.parametrize("index, place", [("", ()), ("3", (3,)), ("::2, 1:3", np.s_[::2, 1:3]), ("..., 5", np.s_[..., 5]), ("-1, :, -2:", np.s_[-1, :, -2:]),
                                          ("1:1", np.s_[1:1]), ("None, 2", np.s_[None, 2]), ("5, 2, 1", (5, 2, 1)), ("2:11:4, ::3, ::5", np.s_[2:11:4, ::3, ::5]),
                                          ("::-1, 3:0:-2, 5::-1", np.s_[::-1, 3:0:-2, 5::-1]), ("4, ::-1, None, 2:3:-1", np.s_[4, ::-1, None, 2:3:-1]), ("::-20", np.s_[::-20])])
def test_regions(files, index, place):
    c, folder, _ = files
    air(folder / "air.nc")
    imported(c, "air.nc", variables=[{"variable": "air", "name": "part", "index": index}])
    got = c.download("part")
    assert got.shape == AIR[place].shape and (got == AIR[place]).all()
    meta = c.meta("part")
    where = np.broadcast_to(np.array([10., 20., 30., 40.])[:, None], AIR.shape)[place]  # of each element
    lat = c.download(meta["coords"]["lat"]["array"])
    if "lat" not in meta.get("dims", []):
        assert meta["coords"]["lat"]["dims"] == [] and lat.shape == () and (where == lat).all()
    else:
        axis = meta["dims"].index("lat")
        assert meta["coords"]["lat"]["dims"] == ["lat"] and len(lat) == got.shape[axis]
        assert (where == lat.reshape([-1 if k == axis else 1 for k in range(got.ndim)])).all()


def test_several_to_several(files):
    c, folder, _ = files
    air(folder / "air.nc")
    job = imported(c, "air.nc", variables=["air", {"variable": "lat", "name": "y"}, {"variable": "air", "name": "top", "index": "0"}], coords=False)
    assert (c.download("air") == AIR).all() and (c.download("top") == AIR[0]).all() and len(c.download("y")) == 4
    assert "coords" not in c.meta("air") and c.meta("top")["dims"] == ["lat", "lon"] and job["import"]["variables"][0] == "air"
    imported(c, "air.nc", labels=False, overwrite=True)
    assert "dims" not in c.meta("air") and "attrs" not in c.meta("air")


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_every_dtype_there_and_back(files, dtype):
    c, folder, _ = files
    a = (np.random.default_rng(1).standard_normal((50, 70)) * 100).astype(dtype)
    write(folder / "a.nc", {"a": a})
    imported(c, "a.nc")
    got = c.download("a")
    assert got.dtype == a.dtype and got.tobytes() == a.tobytes()
    exported(c, "b.nc", ["a"])
    imported(c, "b.nc", overwrite=True)
    assert c.download("a").tobytes() == a.tobytes()


def test_larger_than_all_slabs(files):
    c, folder, _ = files
    a = np.random.default_rng(1).random(1_300_001)
    write(folder / "a.nc", {"a": a})
    imported(c, "a.nc")
    assert (c.download("a") == a).all()
    exported(c, "b.nc", [{"array": "a", "name": "b"}])
    imported(c, "b.nc")
    assert (c.download("b") == a).all()


def test_empty_arrays(files):
    c, folder, _ = files
    write(folder / "a.nc", {"a": np.zeros((0, 3))})
    imported(c, "a.nc")
    assert c.download("a").shape == (0, 3)
    exported(c, "b.nc", ["a"])
    assert looked(c, "b.nc")["variables"][0]["shape"] == [0, 3]


@pytest.mark.parametrize("members, code", [({"variables": ["no"]}, "unknown_name"), ({"variables": [{"variable": "air", "index": "12"}]}, "bad_index"),
                                           ({"variables": ["air", "air"]}, "conflict")])
def test_imports_that_fail(files, members, code):
    c, folder, _ = files
    air(folder / "air.nc")
    job = imported(c, "air.nc", "failed", **members)
    assert job["error"]["code"] == code and "failed_step" not in job
    assert c.expect(200, c.get("/v1/arrays")).json()["arrays"] == []
    c.fails(409, "conflict", c.post(f"/v1/jobs/{job['id']}/resume"))


def test_which_variable(files):
    c, folder, _ = files
    names = ["month", "lat", "lon"]
    write(folder / "two.nc", {"u": (AIR, names, {}), "lat": (np.arange(4.), ["lat"], {}), "v": (AIR, names, {})}, dims=DIMS)
    assert imported(c, "two.nc", "failed")["error"]["detail"] == "which variable? The file has u, v"  # and not the axis's own
    write(folder / "odd.nc", {"group/t 2m": AIR})
    assert imported(c, "odd.nc", "failed")["error"]["code"] == "bad_name"
    imported(c, "odd.nc", variables=[{"name": "t"}])
    assert (c.download("t") == AIR).all()


@pytest.mark.parametrize("body, code", [({}, "bad_field"), ({"folder": "data"}, "bad_field"), ({"folder": "data", "path": "a", "all": 1}, "unknown_field"),
                                        ({"folder": "data", "path": "../a"}, "bad_name"), ({"folder": "data", "path": "a", "variables": []}, "bad_field"),
                                        ({"folder": "data", "path": "a", "variables": [{"index": "1:2:3:4"}]}, "bad_index"),
                                        ({"folder": "data", "path": "a", "variables": [{"name": "1"}]}, "bad_name")])
def test_bodies_that_are_none(files, body, code):
    c, _, _ = files
    c.fails(422, code, c.post("/v1/files/import", body, check=False))


def test_names_that_are_taken(files):
    c, folder, _ = files
    air(folder / "air.nc")
    c.upload(np.arange(3.), "air")
    assert imported(c, "air.nc", "failed")["error"]["code"] == "conflict"
    assert len(c.download("air")) == 3
    imported(c, "air.nc", overwrite=True)
    assert (c.download("air") == AIR).all()
    c.expect(201, c.post("/v1/arrays/air/lease", {"mode": "read", "ttl_s": 60}))
    assert imported(c, "air.nc", "failed", overwrite=True)["error"]["code"] == "locked"


def test_several_replace_or_none(files):
    """One that may not be replaced, or a cancellation, and no array has changed."""
    c, folder, d = files
    write(folder / "two.nc", {"u": AIR, "v": AIR})
    before = {n: c.upload(np.arange(3.), n)["id"] for n in "uv"}
    for locked, other in (("u", "v"), ("v", "u")):
        lease = c.expect(201, c.post(f"/v1/arrays/{locked}/lease", {"mode": "read", "ttl_s": 60})).json()["token"]
        assert imported(c, "two.nc", "failed", variables=["u", "v"], overwrite=True)["error"]["code"] == "locked"
        assert {n: c.meta(n)["id"] for n in "uv"} == before and len(c.download(other)) == 3
        c.expect(204, c.delete(f"/v1/arrays/{locked}/lease", headers={"Arrayd-Lease": lease}))
    c.expect(200, c.request("PATCH", "/v1/arrays/v", b'{"read_only": true}', content_type="application/json"))
    assert imported(c, "two.nc", "failed", variables=["u", "v"], overwrite=True)["error"]["code"] == "read_only"
    assert c.meta("u")["id"] == before["u"]
    c.expect(200, c.request("PATCH", "/v1/arrays/v", b'{"read_only": false}', content_type="application/json"))
    write(folder / "slow.nc", {"u": AIR, "v": AIR}, lie={"at": "read", "nth": 2, "deed": "hang"})
    job = c.expect(202, c.post("/v1/files/import", {"folder": "data", "path": "slow.nc", "variables": ["u", "v"], "overwrite": True})).json()["id"]
    until(lambda: c.expect(200, c.get(f"/v1/jobs/{job}")).json()["step"] == AIR.nbytes)
    c.expect(200, c.delete(f"/v1/jobs/{job}"))
    assert {n: c.meta(n)["id"] for n in "uv"} == before
    imported(c, "two.nc", variables=["u", "v"], overwrite=True)
    assert (c.download("v") == AIR).all() and len(c.expect(200, c.get("/v1/arrays")).json()["arrays"]) == 2


def test_export(files):
    c, folder, _ = files
    air(folder / "air.nc")
    imported(c, "air.nc")
    job = exported(c, "out.nc", ["air"], attrs={"history": "ours"}, deflate=4)
    assert job["export"]["arrays"] == ["air"]
    got = looked(c, "out.nc")
    assert got["attrs"] == {"history": "ours"}
    assert [(v["name"], v["dims"], v["attrs"]) for v in got["variables"]] == [
        ("air", ["month", "lat", "lon"], {"long_name": "air", "levels": [1, 2.5], "units": "K"}), ("lat", ["lat"], {"units": "degrees_north"})]
    failed = exported(c, "out.nc", ["air"], "failed")
    assert failed["error"]["code"] == "conflict"
    exported(c, "out.nc", ["air"], overwrite=True, coords=False)
    assert [v["name"] for v in looked(c, "out.nc")["variables"]] == ["air"]
    assert exported(c, "no/where.nc", ["air"], "failed")["error"]["code"] == "not_found"
    c.fails(422, "bad_field", c.post("/v1/files/export", {"folder": "data", "path": "out.what", "arrays": ["air"]}))
    c.fails(404, "not_found", c.post("/v1/files/export", {"folder": "data", "path": "out.nc", "arrays": ["none"]}))
    assert sorted(p.name for p in folder.iterdir()) == ["air.nc", "out.nc"]


def test_attributes_that_are_integers_are_exported_as_such(files):
    """All of 64 bits: the JSON of an array keeps their digits. Beyond that they are texts."""
    c, _, _ = files
    c.upload(AIR, "u")
    attrs = {"_FillValue": -2 ** 63 + 2, "big": 2 ** 53 + 1, "most": 2 ** 64 - 1, "several": [1, -2 ** 60], "digits": "9007199254740993"}
    c.expect(200, c.patch("/v1/arrays/u", {"attrs": {**attrs, "beyond": 2 ** 70, "mixed": [-1, 2 ** 64 - 1]}}))
    exported(c, "ints.nc", ["u"], attrs=attrs)
    got = looked(c, "ints.nc")
    assert got["attrs"] == attrs and got["variables"][0]["attrs"] == {**attrs, "beyond": str(2 ** 70), "mixed": f"[-1,{2 ** 64 - 1}]"}


def test_coordinates_of_other_axes(files):
    """Two-dimensional ones and scalars, as CF names them, there and back; parts of them with a part."""
    c, folder, _ = files
    lat, top = np.arange(24.).reshape(4, 6), np.array(7.)
    write(folder / "a.nc", {"g/air": (AIR, ["g/month", "g/lat", "g/lon"], {"coordinates": "yy top", "units": "K"}), "g/yy": (lat, ["g/lat", "g/lon"], {"units": "degrees"}),
                            "top": (top, [], {}), "g/lat": (np.arange(4.), ["g/lat"], {})},
          dims={f"g/{k}": v for k, v in DIMS.items()})
    imported(c, "a.nc", variables=["g/air", {"variable": "g/air", "name": "part", "index": "3, 1:3"}])
    meta = c.meta("air")
    assert meta["dims"] == ["month", "lat", "lon"] and "attrs" not in meta
    assert {k: v["dims"] for k, v in meta["coords"].items()} == {"lat": ["lat"], "yy": ["lat", "lon"], "top": []}
    assert (c.download(meta["coords"]["yy"]["array"]) == lat).all() and c.download(meta["coords"]["top"]["array"]) == 7
    part = c.meta("part")["coords"]
    assert (c.download(part["yy"]["array"]) == lat[1:3]).all() and part["top"] == meta["coords"]["top"]
    exported(c, "b.nc", ["air"])
    got = {v["name"]: v for v in looked(c, "b.nc")["variables"]}
    assert got["air"]["attrs"] == {"coordinates": "yy top", "units": "K"} and got["yy"]["dims"] == ["lat", "lon"] and got["top"]["dims"] == []
    imported(c, "b.nc", variables=[{"variable": "air", "name": "again"}])
    assert {k: v["dims"] for k, v in c.meta("again")["coords"].items()} == {"lat": ["lat"], "yy": ["lat", "lon"], "top": []}
    write(folder / "c.nc", {"air": (AIR, ["month", "lat", "lon"], {"coordinates": "yy elsewhere"}), "yy": (lat, ["lat", "lon"], {})}, dims=DIMS)
    imported(c, "c.nc", variables=["air"], overwrite=True)
    assert c.meta("air")["attrs"] == {"coordinates": "elsewhere"} and list(c.meta("air")["coords"]) == ["yy"]


def test_ghosts(files):
    c, folder, _ = files
    c.expect(201, c.post("/v1/arrays", {"name": "g", "shape": [4, 6], "dtype": "float64", "ghost": [1, 2], "spacing": [0.5, 1]}))
    a = np.arange(60.).reshape(6, 10)
    c.expect(204, c.request("PUT", "/v1/arrays/g/data?ghost=1", a.tobytes(), content_type="application/octet-stream"))
    exported(c, "left.nc", ["g"])
    exported(c, "kept.nc", ["g"], ghosts="keep")
    assert looked(c, "left.nc")["variables"][0]["shape"] == [4, 6] and looked(c, "kept.nc")["variables"][0]["shape"] == [6, 10]
    imported(c, "kept.nc", variables=[{"name": "h"}])
    assert (c.download("h") == a[1:-1, 2:-2]).all() and c.meta("h")["spacing"] == [0.5, 1] and c.meta("h")["ghost"] == [0, 0]
    imported(c, "kept.nc", variables=[{"name": "h"}, {"name": "part", "index": "0"}], ghosts="keep", overwrite=True)
    assert (c.download("h") == a[1:-1, 2:-2]).all() and c.meta("h")["ghost"] == [1, 2] and (c.download("part") == a[0]).all()
    assert c.expect(200, c.request("GET", "/v1/arrays/h/data?ghost=1")).body == a.tobytes()
    c.fails(422, "bad_field", c.post("/v1/files/import", {"folder": "data", "path": "kept.nc", "ghosts": True}, check=False))
    c.fails(422, "bad_field", c.post("/v1/files/export", {"folder": "data", "path": "a.nc", "arrays": ["g"], "ghosts": "no"}, check=False))


def processor_time(d):
    """Seconds, of the daemon and not of its readers."""
    return sum(map(int, pathlib.Path(f"/proc/{d.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def test_many_variables(daemon_with, tmp_path):
    """Planning takes no longer than their number says: the memory that is lacking is found after that."""
    n = 12_000
    variables = [{"name": f"{x}{k}", "dtype": "float64", "shape": [1 << 30], "dims": [f"d{k}"], "attrs": {}} for x in "vd" for k in range(n)]
    (tmp_path / "many.nc").write_text(json.dumps({"format": "netcdf4", "attrs": {}, "dims": {}, "variables": variables}) + "\n")
    d = daemon_with(*options(tmp_path, "--session-memory", "1GiB", "--file-timeout", 300, "--max-request-memory", "1GiB"))
    c = d.client()
    before = processor_time(d)
    job = imported(c, "many.nc", "failed", variables=[f"v{k}" for k in range(n)])
    assert job["error"]["code"] == "quota_exceeded" and processor_time(d) - before < 2


def test_an_export_has_what_was_there(files):
    """Writes after the request are not in the file."""
    c, folder, _ = files
    a = np.arange(2_000_000.)
    c.upload(a, "a")
    job = c.expect(202, c.post("/v1/files/export", {"folder": "data", "path": "a.nc", "arrays": ["a"]})).json()
    c.expect(200, c.post("/v1/evaluate", {"expr": "a*0 - 1", "out": "a"}))
    assert c.expect(200, c.get(f"/v1/jobs/{job['id']}?wait=1")).json()["state"] == "done"
    imported(c, "a.nc", overwrite=True)
    assert (c.download("a") == a).all()


def test_progress_and_events(files):
    c, folder, _ = files
    write(folder / "a.nc", {"a": np.zeros(40_000)}, lie={"at": "slab", "nth": 3, "deed": "hang"})
    job = c.expect(202, c.post("/v1/files/import", {"folder": "data", "path": "a.nc"})).json()
    until(lambda: c.expect(200, c.get(f"/v1/jobs/{job['id']}")).json()["step"] == 131072)
    now = c.expect(200, c.get(f"/v1/jobs/{job['id']}")).json()
    assert now["state"] == "running" and now["steps"] == 320_000 and now["steps_per_s"] > 0
    assert c.expect(200, c.delete(f"/v1/jobs/{job['id']}")).json()["state"] == "cancelled"
    event = c.expect(200, c.get(f"/v1/jobs/{job['id']}/events")).body
    assert b"event: end" in event and b'"step":131072' in event and b"import" not in event
    assert c.expect(200, c.get("/v1/arrays")).json()["arrays"] == []
    c.expect(204, c.delete(f"/v1/jobs/{job['id']}"))


@pytest.mark.in_turn
def test_jobs_that_wait_hold_no_descriptors(daemon_with, tmp_path):
    """However many of them there are, others get their connections."""
    write(tmp_path / "slow.nc", {"a": np.zeros(9)}, lie={"at": "read", "deed": "hang"})
    d = daemon_with(*options(tmp_path), "--file-jobs", 1)
    c = d.client()
    c.upload(np.zeros(9), "held")
    begun = [c.expect(202, c.post("/v1/files/import", {"folder": "data", "path": "slow.nc"})).json()["id"]]
    until(lambda: c.expect(200, c.get(f"/v1/jobs/{begun[0]}")).json()["state"] == "running" and len(children(d)) == 1)
    before = descriptors(d)
    for i in range(50):
        begun.append(c.expect(202, c.post("/v1/files/import", {"folder": "data", "path": "slow.nc"})).json()["id"])
        begun.append(c.expect(202, c.post("/v1/files/export", {"folder": "data", "path": f"{i}.nc", "arrays": ["held"]})).json()["id"])
    assert descriptors(d) < before + 20
    for job in begun:
        assert c.delete(f"/v1/jobs/{job}").status in (200, 204)  # some may have had their turn meanwhile


def test_jobs_that_wait(daemon_with, tmp_path):
    """One at a time: the others are queued, and can be cancelled there."""
    write(tmp_path / "slow.nc", {"a": np.zeros(9)}, lie={"at": "read", "deed": "hang"})
    air(tmp_path / "air.nc")
    d = daemon_with(*options(tmp_path), "--file-jobs", 1)
    c = d.client()
    first, second, third = [c.expect(202, c.post("/v1/files/import", {"folder": "data", "path": p})).json()["id"] for p in ("slow.nc", "air.nc", "air.nc")]
    assert c.expect(200, c.get(f"/v1/jobs/{third}")).json()["state"] == "queued"
    c.upload(np.zeros(9), "held")
    export = c.expect(202, c.post("/v1/files/export", {"folder": "data", "path": "out.nc", "arrays": ["held"]})).json()["id"]
    for job in (third, export):  # though the first goes on
        assert c.expect(200, c.delete(f"/v1/jobs/{job}")).json()["state"] == "cancelled"
        c.expect(204, c.delete(f"/v1/jobs/{job}"))
    assert c.expect(200, c.get(f"/v1/jobs/{first}")).json()["state"] == "running"
    c.expect(200, c.get("/v1/files/data?path=air.nc"))  # looks do not wait for them
    c.expect(200, c.delete(f"/v1/jobs/{first}"))
    assert c.expect(200, c.get(f"/v1/jobs/{second}?wait=1")).json()["state"] == "done"
    until(lambda: no_reader(d))


@pytest.mark.in_turn
def test_no_user_has_all_threads(two_with, tmp_path):
    """Whatever one does that takes long, another's is done: looks, bodies, imports."""
    write(tmp_path / "slow.nc", {"a": np.zeros(9)}, lie={"at": "describe", "deed": "hang"})
    air(tmp_path / "air.nc")
    ann, bob = two_with("--files", f"data={tmp_path}:shared", "--file-reader", READER, "--file-jobs", 2, "--file-timeout", 10)
    body = (tmp_path / "slow.nc").read_bytes()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        def slow(k):
            own = ann.clone()
            if k < 4:
                return own.get("/v1/files/data?path=slow.nc", check=False)
            return own.request("PUT", f"/v1/arrays/x{k}", body, content_type="application/x-netcdf", check=False)
        for k in range(8):
            pool.submit(slow, k)
        jobs = [ann.expect(202, ann.post("/v1/files/import", {"folder": "data", "path": "slow.nc"})).json()["id"] for _ in range(4)]
        time.sleep(1)
        began = time.monotonic()
        looked(bob, "air.nc")
        imported(bob, "air.nc", coords=False)
        bob.expect(201, bob.request("PUT", "/v1/arrays/y?variable=air", (tmp_path / "air.nc").read_bytes(), content_type="application/x-netcdf"))
        assert time.monotonic() - began < 15
        for job in jobs:
            ann.expect(200, ann.delete(f"/v1/jobs/{job}"))


def test_looks_under_way_are_drained(daemon_with, tmp_path):
    """SIGTERM lets requests end: a look and a body."""
    write(tmp_path / "slow.nc", {"a": np.zeros(9)}, lie={"at": "describe", "deed": "wait", "seconds": 1.5})
    d = daemon_with(*options(tmp_path))
    one, two = d.client(), d.client()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        look = pool.submit(one.get, "/v1/files/data?path=slow.nc", check=False)
        body = pool.submit(two.request, "PUT", "/v1/arrays/a", (tmp_path / "slow.nc").read_bytes(), content_type="application/x-netcdf", check=False)
        until(lambda: len(children(d)) == 2)
        d.stop()
        assert look.result().status == 200 and body.result().status == 201


def test_the_spool(daemon_with, tmp_path):
    with pytest.raises(RuntimeError, match="file-spool: /nowhere: No such file"):
        daemon_with("--no-keeper", "--file-spool", "/nowhere")
    (tmp_path / "notes").write_text("")
    c = daemon_with().client()
    session = c.expect(201, c.post("/v1/sessions", {})).json()["id"]
    left = tmp_path / f".arrayd-f-{session[2:]}"
    left.write_text("of one that was killed")
    daemon_with("--file-spool", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes"]
    (tmp_path / "spool").mkdir()
    c = daemon_with("--file-reader", READER, "--file-spool", tmp_path / "spool").client()
    (tmp_path / "spool").rmdir()
    c.fails(500, "file_failed", c.request("PUT", "/v1/arrays/a", b"x", content_type="application/x-netcdf"))


def test_read_only_folders(daemon_with, tmp_path):
    c = daemon_with("--files", f"data={tmp_path}:ro", "--file-reader", READER).client()
    c.upload(AIR, "u")
    reply = c.post("/v1/files/export", {"folder": "data", "path": "u.nc", "arrays": ["u"]})
    c.fails(409, "read_only", reply)
    assert reply.json()["title"] == "Read-only" and "folder 'data'" in reply.json()["detail"]


def test_no_descriptors(files):
    c, folder, d = files
    air(folder / "air.nc")
    c.expect(200, c.get("/v1/files/data?path=air.nc"))
    was = resource.prlimit(d.pid, resource.RLIMIT_NOFILE)
    found = set()
    for n in range(16):
        resource.prlimit(d.pid, resource.RLIMIT_NOFILE, (max(map(int, os.listdir(f"/proc/{d.pid}/fd"))) + 1 + n, was[1]))
        reply = c.get("/v1/files/data?path=air.nc")
        found.add((reply.status, reply.code if reply.status != 200 else None))
    resource.prlimit(d.pid, resource.RLIMIT_NOFILE, was)
    assert found == {(200, None), (503, "overloaded")}


def test_a_session_that_ends(files):
    c, folder, d = files
    write(folder / "a.nc", {"a": np.zeros(9)}, lie={"at": "read", "deed": "hang"})
    session = c.expect(201, c.post("/v1/sessions", {})).json()["id"]
    job = c.expect(202, c.post("/v1/files/import", {"folder": "data", "path": "a.nc"}, headers={"Arrayd-Session": session})).json()
    until(lambda: not no_reader(d))
    c.expect(204, c.delete(f"/v1/sessions/{session}"))
    until(lambda: no_reader(d))
    c.fails(404, "not_found", c.get(f"/v1/jobs/{job['id']}"))


def test_memory_is_counted_before_it_is_read(daemon_with, tmp_path):
    """A file that says it has a terabyte, and a quota."""
    write(tmp_path / "a.nc", {"a": np.zeros(9)}, lie={"at": "read", "deed": "hang"})
    text = json.loads((tmp_path / "a.nc").read_text().splitlines()[0])
    text["variables"][0]["shape"] = [1 << 37]
    (tmp_path / "a.nc").write_text(json.dumps(text) + "\n")
    c = daemon_with(*options(tmp_path), "--session-memory", "1GiB").client()
    began = time.monotonic()
    job = imported(c, "a.nc", "failed")
    assert job["error"]["code"] in ("quota_exceeded", "out_of_memory") and time.monotonic() - began < 30
    c.fails(404, "not_found", c.get("/v1/arrays/a"))


def test_accounts_have_folders_of_their_own(two_with, tmp_path):
    for name in ("own/ann", "all"):
        (tmp_path / name).mkdir(parents=True)
    air(tmp_path / "own/ann/air.nc")
    air(tmp_path / "all/air.nc")
    ann, bob = two_with("--files", f"data={tmp_path}/own", "--files", f"all={tmp_path}/all:shared", "--file-reader", READER)
    assert ann.expect(200, ann.get("/v1/files")).json()["folders"][0] == {"name": "data", "read_only": False, "shared": False}
    imported(ann, "air.nc")
    bob.fails(404, "not_found", bob.get("/v1/files/data?path=air.nc"))
    bob.fails(422, "bad_name", bob.get("/v1/files/data?path=../ann/air.nc"))
    assert bob.expect(200, bob.get("/v1/files/data")).json() == {"folder": "data", "path": "", "kind": "folder", "entries": [], "more": False}
    assert not (tmp_path / "own/bob").exists()
    assert imported(bob, "air.nc", "failed")["error"]["code"] == "not_found"
    bob.expect(200, bob.post("/v1/files/import?wait=1", {"folder": "all", "path": "air.nc"}))
    exported(bob, "mine.nc", ["air"])
    assert (tmp_path / "own/bob/mine.nc").is_file() and (tmp_path / "own/bob").stat().st_mode & 0o777 == 0o700
    assert [e["name"] for e in ann.expect(200, ann.get("/v1/files/data")).json()["entries"]] == ["air.nc"]
    (tmp_path / "own/bob").rename(tmp_path / "elsewhere")
    (tmp_path / "own/bob").symlink_to(tmp_path / "own/ann")
    bob.fails(404, "not_found", bob.get("/v1/files/data?path=air.nc"))


@pytest.mark.parametrize("ends", ["delete", "replace", "relabel"])
@pytest.mark.parametrize("kept", ["state", "journal"])
def test_coordinates_go_with_their_arrays(daemon_with, tmp_path, kept, ends):
    """The last one that has them; also in another process, after an orderly end or a death."""
    sizes = {"x": 2, "y": 3, "z": 4}
    write(tmp_path / "f.nc", {"a": (np.zeros((3, 2)), ["y", "x"], {}), "b": (np.zeros((3, 4)), ["y", "z"], {}), **{n: (np.arange(float(k)), [n], {}) for n, k in sizes.items()}},
          dims={n: {"length": k} for n, k in sizes.items()})
    begin = [*options(tmp_path), "--state-dir", tmp_path / "state"]
    d = daemon_with(*begin, "--restart-wait", 0, *(["--keep-arrays"] if kept == "journal" else []))
    c = d.client()
    imported(c, "f.nc", variables=["a", "b"])
    coords = {n: x["array"] for a in "ab" for n, x in c.meta(a)["coords"].items()}
    assert sorted(coords) == ["x", "y", "z"] and all(c.meta(x)["coordinate"] for x in coords.values())
    c.expect(200, c.patch(f"/v1/arrays/{coords['z']}", {"name": "z"}))
    assert "coordinate" not in c.meta("z")
    c.upload(np.zeros(2), "own")
    c.expect(200, c.patch("/v1/arrays/a", {"coords": {"own": {"array": "own", "dims": ["x"]}}}))
    own = c.expect(200, c.patch("/v1/arrays/own", {"name": None, "coordinate": True})).json()["id"]
    c.expect(200, c.patch(f"/v1/arrays/{coords['x']}", {"coordinate": False}))
    coords["own"] = own
    c.close()
    if kept == "state":
        d.stop()
        c = daemon_with(*begin).client()
    else:
        before = d.pid
        os.kill(before, signal.SIGKILL)
        until(lambda: d.pid not in (before, d.proc.pid))
        until(lambda: c.get("/v1/arrays", check=False).status == 200)

    def there():
        return {a["id"] for a in c.expect(200, c.get("/v1/arrays")).json()["arrays"]} & set(coords.values())

    for name, left in (("a", {coords["x"], coords["y"], coords["z"]}), ("b", {coords["x"], coords["z"]})):
        if ends == "delete":
            c.expect(204, c.delete(f"/v1/arrays/{name}"))
        elif ends == "replace":
            c.expect(200, c.request("PUT", f"/v1/arrays/{name}", npy_bytes(np.zeros(3)), content_type=NPY))
        else:
            c.expect(200, c.patch(f"/v1/arrays/{name}", {"coords": dict.fromkeys(c.meta(name)["coords"])}))
        assert there() == left


def test_a_coordinate_with_a_lease_stays(files):
    c, folder, _ = files
    air(folder / "air.nc")
    imported(c, "air.nc", variables=["air"])
    lat = c.meta("air")["coords"]["lat"]["array"]
    token = c.expect(201, c.post(f"/v1/arrays/{lat}/lease", {"mode": "read", "ttl_s": 30})).json()["token"]
    c.expect(204, c.delete("/v1/arrays/air"))
    assert "coordinate" not in c.meta(lat)
    c.expect(204, c.delete(f"/v1/arrays/{lat}/lease", headers={"Arrayd-Lease": token}))
    c.expect(204, c.delete(f"/v1/arrays/{lat}"))


@pytest.mark.parametrize("quota, said", [(["--max-arrays", 2], "there are 1 arrays of at most 2 (quota arrays), too many for 2 more"), (["--attrs-memory", "1KiB"], "attrs-memory")])
def test_quotas_come_before_contents(daemon_with, tmp_path, quota, said):
    """A reader that would hang is not asked for any."""
    names = ["a", "b"]
    write(tmp_path / "a.nc", {n: (np.zeros(9), None, {"of": "x" * 1000}) for n in names}, lie={"at": "read", "deed": "hang"})
    c = daemon_with(*options(tmp_path), *quota).client()
    c.upload(np.zeros(9), "held")
    error = imported(c, "a.nc", "failed", variables=[{"variable": n} for n in names])["error"]
    assert error["code"] == "quota_exceeded" and said in error["detail"]
    write(tmp_path / "a.nc", {"a": np.zeros(9)})
    imported(c, "a.nc")


def test_device_quota(daemon_with, accounts, tmp_path):
    accounts.add("ann", device_memory="1MiB")
    write(tmp_path / "a.nc", {"a": np.zeros(1 << 18)})
    d = daemon_with("--accounts", accounts.path, "--files", f"data={tmp_path}:shared:ro", "--file-reader", READER)
    c = accounts.client(d, "ann")
    assert imported(c, "a.nc", "failed")["error"]["code"] == "quota_exceeded"
    imported(c, "a.nc", variables=[{"index": ":1000"}])
