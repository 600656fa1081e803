"""No path leaves its folder: generated ones, links, devices, pipes, and names that change meanwhile."""
import os
import random
import socket
import threading
import urllib.parse

import numpy as np
import pytest

from stand_in import exported, imported, looked, options, write

SECRET = "the secret"


@pytest.fixture
def trap(daemon_with, tmp_path):
    """A folder, with a secret beside it and ways out of it."""
    folder, beside = tmp_path / "folder", tmp_path / "beside"
    for f in (folder, folder / "sub", folder / "sub/deep", beside):
        f.mkdir()
    write(folder / "in.nc", {"inside": np.zeros(3)})
    write(folder / "sub/in.nc", {"inside": np.zeros(3)})
    for f in (beside / "out.nc", tmp_path / "out.nc"):
        write(f, {SECRET: np.zeros(3)})
    (folder / "link.nc").symlink_to(beside / "out.nc")
    (folder / "near.nc").symlink_to("in.nc")
    (folder / "way").symlink_to(beside)
    (folder / "up").symlink_to("..")
    (folder / "self").symlink_to(".")
    (folder / "sub/proc").symlink_to("/proc/self/root" + str(beside))
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(folder / "socket"))
    try:
        os.mknod(folder / "device", 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pass
    d = daemon_with(*options(folder))
    return d.client(), folder, beside


PARTS = ["..", ".", "", "in.nc", "out.nc", "link.nc", "near.nc", "way", "up", "self", "sub", "deep", "proc", "pipe", "socket", "device", "beside", "folder", "/",
         "~", "*", "%2e%2e", "..%2f", "\\..", "..\\", "\x01", "\x7f", "\u2025", "\uff0e\uff0e", ".arrayd-x", "a" * 255, "a" * 256, "/etc/passwd", "/proc/self/fd/0", "in.nc/", " "]


def test_generated_paths(trap):
    c, folder, beside = trap
    rng = random.Random(int(os.environ.get("ARRAYD_SEED", "1")))
    seen = set()
    for k in range(int(os.environ.get("ARRAYD_PATHS", "1500"))):
        path = rng.choice(["", "", "", "/", "//"]) + "/".join(rng.choices(PARTS, k=rng.randint(1, 5)))
        reply = c.get("/v1/files/data?path=" + urllib.parse.quote(path, safe=""))
        seen.add(reply.status)
        assert reply.status in (200, 404, 422), (path, reply)
        assert SECRET not in reply.body.decode(errors="replace").replace("\\u0020", " "), path
        if reply.status == 200:
            told = reply.json()
            names = [v["name"] for v in told["variables"]] if told["kind"] == "file" else [e["name"] for e in told["entries"]]
            assert set(names) <= {"inside", "in.nc", "sub", "deep"}, (path, names)
    assert seen == {200, 404, 422}


@pytest.mark.parametrize("path", ["link.nc", "near.nc", "way/out.nc", "up/out.nc", "self/in.nc", "sub/proc/out.nc", "pipe", "socket", "device"])
def test_ways_out(trap, path):
    c, folder, beside = trap
    c.fails(404, "not_found", c.get(f"/v1/files/data?path={path}"))
    assert imported(c, path, "failed")["error"]["code"] == "not_found"


@pytest.mark.parametrize("path", ["../out.nc", "/etc/passwd", "sub/../../out.nc", "", ".", "sub/./in.nc", "sub//in.nc", "sub/", "a\0b", "a\nb", "a" * 256, "a" * 1025])
def test_paths_that_are_none(trap, path):
    c, _, _ = trap
    for route, members in (("import", {}), ("export", {"arrays": ["a"], "format": "netcdf4"})):
        reply = c.post(f"/v1/files/{route}", {"folder": "data", "path": path, **members})
        c.fails(422, "bad_field" if "\0" in path else "bad_name", reply)
        assert len(path) != 256 or "names of at most 255 bytes" in reply.json()["detail"]


def test_a_nul_in_a_query(trap):
    c, _, _ = trap
    c.fails(400, "bad_query", c.get("/v1/files/data?path=in.nc%00.txt", check=False))


def test_a_file_of_another_kind(trap):
    c, _, _ = trap
    assert imported(c, "sub", "failed")["error"]["code"] == "bad_name"
    assert looked(c, "sub")["kind"] == "folder"


def test_exports_follow_no_link(trap):
    c, folder, beside = trap
    c.upload(np.zeros(3), "a")
    before = {p: p.read_bytes() for p in beside.iterdir()}
    for path, code in [("way/new.nc", "not_found"), ("up/new.nc", "not_found"), ("link.nc", "conflict"), ("pipe", "conflict"), ("sub", "conflict")]:
        for overwrite in (False, True):
            job = exported(c, path, ["a"], "failed", overwrite=overwrite, format="netcdf4")
            assert job["error"]["code"] == code, job
    assert {p: p.read_bytes() for p in beside.iterdir()} == before and (folder / "link.nc").is_symlink()
    exported(c, "sub/deep/new.nc", ["a"])
    assert sorted(p.name for p in (folder / "sub/deep").iterdir()) == ["new.nc"]


def test_names_that_change_meanwhile(trap):
    """A folder becomes a link to one outside and back, as fast as that goes."""
    c, folder, beside = trap
    (folder / "turn").mkdir()
    write(folder / "turn/out.nc", {"inside": np.zeros(3)})
    (folder / "bait").symlink_to(beside)
    over = threading.Event()

    def swap():
        while not over.is_set():
            for a, b in (("turn", "kept"), ("bait", "turn"), ("turn", "bait"), ("kept", "turn")):
                os.rename(folder / a, folder / b)

    t = threading.Thread(target=swap)
    t.start()
    try:
        seen = set()
        for k in range(300):
            reply = c.get("/v1/files/data?path=turn" + ("/out.nc" if k % 10 == 0 else ""))
            seen.add(reply.status)
            assert reply.status in (200, 404), reply
            assert SECRET not in reply.body.decode()
            if reply.status == 200 and k % 10:
                assert [e["name"] for e in reply.json()["entries"]] == ["out.nc"]
        assert 404 in seen or 200 in seen
    finally:
        over.set()
        t.join()
