"""`arrayd bench`: the table of the machine's own figures. Not how fast it is, but that every row is there and was checked."""
import json
import os
import subprocess

import pytest

from conftest import fake_gpu, find_binary

ROWS = 18
SMALL = 5


def bench(*args, status=0, environment=None):
    done = subprocess.run([find_binary(), "bench", *args], capture_output=True, text=True, timeout=300, env={**os.environ, **(environment or {})})
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def test_every_row(tmp_path):
    rows = [json.loads(line) for line in bench("--backend", "cpu", "--size", "12", "--json", environment={"TMPDIR": str(tmp_path)}).stdout.splitlines()]
    large, small = rows[:ROWS], rows[ROWS:]
    assert rows[0]["case"] == "copy" and rows[0]["copies"] == pytest.approx(1) and len(small) == SMALL
    for row in large:
        assert row["ms"] > 0 and row["copies"] > 0 and row["fewest_bytes"] >= 4 * 12**3, row
        assert row["fraction"] == pytest.approx(row["fewest_bytes"] / (8 * 12**3) / row["copies"], rel=0.1, abs=2e-3), row
    assert all(row["us"] > 0 for row in small)
    assert len({row["case"] for row in rows}) == ROWS + SMALL
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["state-dir", "audit-log", "accounts", "listen", "admin-listen"])
def test_what_a_service_has_is_not_touched(tmp_path, option):
    """It would restore and save the state, and own the files."""
    (tmp_path / "arrayd.conf").write_text(f"{option} = {'127.0.0.1:0' if 'listen' in option else tmp_path / 'there'}\n")
    assert "leave out state-dir" in bench("--config", str(tmp_path / "arrayd.conf"), status=2).stderr
    assert [p.name for p in tmp_path.iterdir()] == ["arrayd.conf"]


def test_as_a_table():
    text = bench("--backend", "cpu", "--size", "8", "--threads", "1").stdout
    assert text.startswith("float32, 8^3 elements; a copy: ") and text.count("\n| ") == ROWS + SMALL + 4


@pytest.mark.in_turn
def test_on_a_device():
    environment = fake_gpu() or pytest.skip("no fake driver in this build, or no g++")
    rows = bench("--backend", "cuda", "--size", "8", "--json", environment=environment).stdout.splitlines()
    assert len(rows) == ROWS + SMALL


@pytest.mark.in_turn
def test_on_the_mesh():
    environment = {**(fake_gpu() or pytest.skip("no fake driver in this build, or no g++")), "ARRAYD_FAKE_DEVICES": "2"}
    args = ("--backend", "cuda", "--mesh", "all", "--mesh-least", "1")
    rows = bench(*args, "--size", "8", "--json", "--device", "mesh", environment=environment).stdout.splitlines()
    assert len(rows) == ROWS + SMALL and all(json.loads(row)["device"] == "mesh" for row in rows)
    # on each device, each for itself: what does not fit says where
    done = bench(*args, "--size", "1024", "--memory-limit", "1GiB", status=1, environment=environment)
    assert done.stdout.split("\n\n")[:2] == ["device 0: Fake GPU 0", "\ndevice 1: Fake GPU 1"], done.stdout
    said = done.stderr.splitlines()
    assert len(said) == 3 and "device 1 has no" in said[1] and '"status":507' in said[2], said
    assert said[2].startswith("arrayd bench: device 2, the mesh: 2 x Fake GPU 0: ") and "the mesh, device 2, has no room for 4294967296 bytes" in said[2]


def test_no_such_device():
    for device in ("mesh", "1"):
        done = bench("--backend", "cpu", "--device", device, status=1)
        assert "bad_field" in done.stderr and not done.stdout and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("args, said", [(("--size", "7"), "--size is 8 to 2048"), (("--device", "gpu"), "--device is a device's number or mesh"),
                                        (("--device", ""), "--device is a device's number or mesh"), (("--size", "0"), "--size is 8 to 2048"), (("--nonsense",), "--nonsense"),
                                        (("--threads", "x"), "threads")])
def test_wrong_options(args, said):
    assert said in bench(*args, status=2).stderr


def test_a_daemon_that_does_not_start():
    done = bench("--backend", "cuda", status=1, environment={"ARRAYD_LIBCUDA": "/nonexistent/lib.so"})
    assert "does not start" in done.stderr and not done.stdout


def test_help():
    assert bench("--help").stdout.startswith("usage: arrayd bench ")
