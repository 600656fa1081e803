"""Generated programs and expressions (tests/generated): a program leaves the bits that its statements leave as
requests of their own, an expression those of its operations one by one, and both are what NumPy has.

Each run has another seed; ARRAYD_SEED names one. What failed once stays, in tests/generated/kept.json.
"""
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from client import REPO
from conftest import find_binary

sys.path.insert(0, str(REPO / "tests/generated"))

import cells  # noqa: E402
import grow  # noqa: E402
import make  # noqa: E402
import play  # noqa: E402
import run  # noqa: E402

SEED = int(os.environ.get("ARRAYD_SEED") or time.time())
TIMES = 20 if os.environ.get("ARRAYD_LONG") else 0.3 if os.environ.get("ARRAYD_SUBSET") else 0.4 if os.environ.get("ARRAYD_SLICE") else 1
KEPT = json.loads((REPO / "tests/generated/kept.json").read_text())


def connection(daemon):
    return play.Daemon(daemon.host, daemon.port)


def outcome(c, case):
    try:
        return play.play(c, case)
    except Exception as e:  # noqa: BLE001: a daemon that has gone, too, is told with the case
        return play.Outcome(f"{type(e).__name__}: {e}")


def told(c, case, wrong, again):
    """What a test says of a case that went wrong: shrunk, where the daemon is still there."""
    small = play.shrunk(case, lambda smaller: bool(outcome(c, smaller).wrong), 100) if not wrong.startswith("Lost") else case
    return f"{case['from']}: {wrong}\n" + "\n".join(play.curl(small)) + f"\nagain: tests/generated/run.py ARRAYD {again}"


def play_all(daemon, backend, programs, expressions, aimed, points):
    """Of the cells that cases are aimed at, each seed takes others."""
    c, tables, refused, n = connection(daemon), cells.Tables(), 0, 0
    for count, kind in zip((programs, expressions, aimed), run.KINDS):
        for k in range(int(count * TIMES)):
            if kind == "aimed":
                k += SEED * int(count * TIMES)
                case = run.aimed_case(SEED, k, points, backend)
            else:
                case = run.case_of(SEED, k, points, kind == "expression")
            o = outcome(c, case)
            assert o.wrong is None, told(c, case, o.wrong, f"--backend {backend} --points {points} --seed {SEED} --only {kind}:{k}")
            tables.add(o.kernels, [s[0] for s in case["body"]])
            refused += o.error is not None
            n += 1
    tables.print(sys.stdout)
    assert refused <= 0.05 * n + 2
    return tables


def test_on_this_backend(daemon):
    tables = play_all(daemon, "cpu", 150, 250, 60, 4000)
    assert sum(tables.types.values())


@pytest.mark.slow
def test_every_cell(tmp_path):
    """All that the forms of this backend are for, in three runs together at most."""
    program, tables = [sys.executable, str(REPO / "tests/generated/run.py")], []
    for k in range(3):
        tables.append(str(tmp_path / f"{k}.json"))
        done = subprocess.run([*program, find_binary(), "--backend", "cpu", "--seed", str(SEED + k), "--programs", "4000", "--expressions",
                               "10000", "--aimed", "3000", "--points", "60000", "--numpy", "0.2", "--jobs", "2", "--out", tables[-1]],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-2000:]
        joined = subprocess.run([*program, "--backend", "cpu", "--whole", "--join", *tables], capture_output=True, text=True)
        if joined.returncode == 0:
            return
    raise AssertionError(joined.stdout[-20000:])


def test_on_a_device(gpu_with):
    """Each is kernels that the host's compiler makes."""
    tables = play_all(gpu_with(), "cuda", 10, 10, 6, 20000)
    assert sum(tables.types.values())


def test_on_a_mesh(gpu_with):
    """Of two or three, in an order that finds a missing wait."""
    environment = {"ARRAYD_FAKE_DEVICES": str(2 + SEED % 2), "ARRAYD_FAKE_ORDER": ("adverse", "adverse-down")[SEED // 2 % 2]}
    tables = play_all(gpu_with("--mesh", "all", "--mesh-least", 1, "--default-device", "mesh", environment=environment), "cuda", 6, 6, 5, 20000)
    assert sum(tables.types.values())


def test_several_rows_of_vectors_on_a_device(gpu_with):
    """Arrays that are only read, where a thread has several rows of vectors: the form that lost a device."""
    c, tables = connection(gpu_with()), cells.Tables()
    for k in range(max(2, int(6 * TIMES))):
        rng = np.random.default_rng([SEED, k, 2])
        case = make.a_system(rng, 250_000, rank=3, dtype="float32", written=1, still=1, wide=True)
        case.update({"steps": 5, "from": f"seed {SEED}, wide system {k}"})
        o = outcome(c, case)
        assert o.wrong is None, told(c, case, o.wrong, "")
        tables.add(o.kernels, [s[0] for s in case["body"]])
    tables.print(sys.stdout)


@pytest.mark.in_turn
@pytest.mark.parametrize("case", KEPT, ids=[case["from"] for case in KEPT])
def test_kept(daemon, gpu_with, case):
    for d in (daemon, gpu_with()):
        o = outcome(connection(d), case)
        assert o.wrong is None and o.error is None, f"{o.wrong or o.error}\n" + "\n".join(play.curl(case))


def test_what_a_mistake_looks_like(daemon):
    """A case that goes wrong is seen, and shrunk to what is wrong with it."""
    case = {"seed": 1, "shape": [8, 12], "views": {}, "bind": {}, "steps": 3,
            "fields": {n: {"dtype": "float32", "as": ["full"]} for n in "uv"},
            "body": [["u", "", "", ["op", "+", ["name", "u"], grow.num(0.5)]],
                     ["v", "", "", ["call", "shift", [["name", "v"]], {"offsets": [1, 0], "boundary": "wrap"}]]]}
    c = connection(daemon)
    assert play.play(c, case).wrong is None

    def fails(smaller):  # as if only a shift went wrong
        o = play.play(c, smaller)
        return o.error is None and any(x[1] == "shift" for s in smaller["body"] for x in grow.walk(s[3]))

    small = play.shrunk(case, fails)
    assert len(small["body"]) == 1 and small["steps"] == 1 and small["shape"] == [1, 1] and list(small["fields"]) == ["v"]
    assert any('"v = shift(v' in line for line in play.curl(small))

    whole, alone = c.open(), c.open()
    play.make(whole, case)
    play.make(alone, case)
    got, want = play.as_program(whole, case), play.one_by_one(alone, {**case, "steps": 2})
    assert "step" in play.differ(case, got, want)
    assert "elements" in play.differ(case, {**got, "step": 2}, {**want})
    before = play.state_of(alone, case)  # two steps on
    assert "NumPy" in play.far_off(case, got, *before)
    for x in (whole, alone):
        x.close()


@pytest.mark.in_turn
def test_what_is_told_of_it(daemon_with):
    """With the seed, as lines for a shell; where the daemon goes down, too."""
    d = daemon_with("--listen", "127.0.0.1:0")
    c, case = connection(d), run.case_of(7, 0, 100, False)
    said = told(c, case, "u: 1 of 2 elements", "--seed 7")
    assert said.startswith("seed 7 program 0: u: 1 of 2") and "curl " in said and said.endswith("run.py ARRAYD --seed 7")
    d.kill()
    o = outcome(c, case)
    said = told(c, case, o.wrong, "--seed 7")
    assert o.wrong.startswith("Lost: ") and said.count("curl ") == len(play.curl(case))
