"""Programs over arrays too large for the CPU's caches: several steps in a pass leave what single ones do."""
import os
import pathlib
import time

import numpy as np
import pytest

from conftest import until
from test_create import fetch
from test_programs import job, run, start
from test_reductions import hold
from test_summary import turns

SHAPE = (1811, 1807)
BODIES = {
    "heat": ["u += 0.1*laplacian(u, boundary='clamp')"],
    "ring": ["lap = laplacian(u, boundary='wrap')", "u += k*lap"],
    "wave": ["n = 2*u - v + 0.25*laplacian(u, boundary='reflect')", "v = u", "u = n"],
    "far": ["u += 0.1*(shift(u, (2, 0), 'constant') - shift(u, (0, -2), 'self'))"],
    "gray-scott": ["r = u*v*v", "du = 0.16*laplacian(u, boundary='wrap') - r + 0.06*(1 - u)",
                   "v += 0.08*laplacian(v, boundary='wrap') + r - 0.122*v", "u += du"],
}


def begin(api):
    rng = np.random.default_rng(5)
    for name in "uvk":
        hold(api, name, rng.random(SHAPE, dtype="float32")*np.float32(0.2))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_bits_are_those_of_single_steps(api, body):
    begin(api)
    many = run(api, body, 23, record={"most": "max(u)"}, record_every=9)
    got = [fetch(api, name, "float32", SHAPE).tobytes() for name in "uv"]
    if "ARRAYD_MESH" not in os.environ:  # where a GPU's part may be too small
        assert many["pass"]["steps"] > 1 or many["pass"]["why"] == "a field is read at offsets beyond 1"  # which only a CPU does
    begin(api)
    for _ in range(23):
        assert run(api, body, 1)["step"] == 1
    assert [fetch(api, name, "float32", SHAPE).tobytes() for name in "uv"] == got


@pytest.mark.alone
def test_a_short_rest_is_no_slice_of_its_own(api):
    """Of 1.3 slices, by what a step took the last time, the device does not wait for a second."""
    hold(api, "u", np.zeros(16_384, "float32"))
    few, steps, singles = 20, 20, 0
    for _ in range(20):
        before = turns(api)
        r = run(api, ["u = 0.999*u + 1"], steps)
        once = turns(api) - before == 1
        assert once or steps == few
        singles += once and steps > few
        steps = min(max(int(1.3 * 0.008 / (r["device_s"] / steps)), few), 30_000) if once else few
    assert singles > 5


def worked_ms(d):
    """Processor time of the jobs' thread."""
    for task in pathlib.Path(f"/proc/{d.pid}/task").iterdir():
        if (task / "comm").read_text() == "arrayd-jobs\n":
            return int((task / "schedstat").read_text().split()[0]) / 1e6


@pytest.mark.alone
def test_the_end_of_the_only_slice_is_polled_for(gpu_with):
    took = {}
    for spin, n in ((0, 1), (2000, 1), (2000, 2)):
        d = gpu_with("--spin", spin, environment={"ARRAYD_FAKE_DELAY": "500"})
        c = d.client()
        for k in range(n):
            hold(c, f"u{k}", np.zeros(64, "float32"))
            ref = start(c, [f"u{k} += 1"], 10**8)
        until(lambda: job(c, ref)["step"] > 1000)
        before = worked_ms(d)
        time.sleep(0.5)
        took[spin, n] = worked_ms(d) - before
        c.close()
    assert took[2000, 1] > 3 * max(took[0, 1], took[2000, 2]), took


def regions(rng):
    """A region of an axis and one that is as long, one further or nearer."""
    begin, end = (int(n) for n in rng.integers(0, 3, 2))
    by = int(rng.choice([n for n in (-1, 0, 1) if begin + n >= 0 and end - n >= 0]))

    def text(begin, end):
        return f"{begin or ''}:{-end if end else ''}"
    return text(begin, end), text(begin + by, end - by)


@pytest.mark.parametrize("seed", range(6))
def test_regions_end_where_they_do(gpu_with, seed):
    """Two from an edge, too, where fields are read one away, and a thread that has the edge does not know that the region ends there."""
    api = gpu_with().client()
    rng = np.random.default_rng(seed)
    for _ in range(6):
        shape = [int(n) for n in rng.choice([3, 5, 9, 37, 41], int(rng.integers(2, 4)))]
        to, of = (", ".join(part) for part in zip(*(regions(rng) for _ in shape)))
        u = rng.integers(0, 9, shape, "i4")
        want = u.copy()
        for _ in range(5):
            want[eval(f"np.s_[{to}]")] += want[eval(f"np.s_[{of}]")].copy()
        api.upload(u, "u")
        run(api, [f"u[{to}] += u[{of}]"], 5)
        assert np.array_equal(api.download("u"), want), (shape, to, of)
        api.expect(204, api.delete("/v1/arrays/u"))


PAD = {"clamp": "edge", "wrap": "wrap", "reflect": "reflect", "symmetric": "symmetric"}


@pytest.mark.parametrize("boundary", PAD)
@pytest.mark.parametrize("shape", [(700,), (53, 90), (21, 40, 70), (5, 3, 70)])
@pytest.mark.in_turn
def test_a_source_anywhere(gpu_with, shape, boundary):
    """A box of the field that each step changes: several steps are one pass for all that, along axes that wrap, too."""
    api = gpu_with().client()
    rng = np.random.default_rng([len(shape), *boundary.encode()])
    around = [np.eye(len(shape), dtype=int)[a] * by for a in range(len(shape)) for by in (-1, 1)]
    flow = " + ".join(f"shift(u, offsets={list(map(int, o))}, boundary='{boundary}')" for o in around)
    for _ in range(3):
        box = tuple(slice(*sorted(map(int, rng.integers(0, n + 1, 2)))) for n in shape)
        text = ", ".join(f"{s.start}:{s.stop}" for s in box)
        u = rng.integers(0, 9, shape, "i4")
        want = u.copy()
        for _ in range(11):
            wide = np.pad(want, 1, PAD[boundary])
            want = want + sum(wide[tuple(slice(1 + k, n + 1 + k) for k, n in zip(o, shape))] for o in around)
            want[box] += 7
        api.upload(u, "u")
        body = [f"u += {flow}", f"u[{text}] += 7"]
        pass_of = api.expect(200, api.post("/v1/explain", {"body": body, "steps": 11})).json()["kernels"][-1]
        assert pass_of.get("steps", 1) > 1 or not want[box].size or "ARRAYD_MESH" in os.environ, pass_of
        run(api, body, 11)
        assert np.array_equal(api.download("u"), want), text
        api.expect(204, api.delete("/v1/arrays/u"))
