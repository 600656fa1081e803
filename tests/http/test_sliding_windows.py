"""Reductions over windows that overlap: their elements lie in memory once."""
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from client import NPY, npy_bytes


def store(api, x, name):
    reply = api.request("PUT", f"/v1/arrays/{name}", npy_bytes(x), content_type=NPY)
    assert reply.status in (200, 201), reply


REDUCED = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean, "std": np.std, "argmax": np.argmax, "any": np.any}


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize("shape, window, axis", [((3000,), 50, 0), ((3000,), 7, 0), ((40, 300), 20, 1), ((300, 40), 20, 0), ((70, 90), (5, 5), (0, 1)),
                                                 ((60, 70), (18, 17), (1, 0)), ((3, 5, 400), 300, 2), ((9000,), 2000, 0)])
def test_windows_are_reduced(api, dtype, shape, window, axis):
    """Whole rows are combined, not one window after the other: what each window has is the same."""
    x = (np.random.default_rng(5).integers(-9, 9, shape) / (1 if dtype == "int32" else 8)).astype(dtype)
    store(api, x, "x")
    w, at = sliding_window_view(x, window, axis), tuple(range(x.ndim, x.ndim + np.size(window)))
    text = f"sliding_windows({{}}, {np.atleast_1d(window).tolist()}, {np.atleast_1d(axis).tolist()})"
    for name, numpy in REDUCED.items():
        if name == "argmax":
            want = numpy(w.reshape(*w.shape[:x.ndim], -1), -1)
        else:
            want = numpy(w, at)
        for of in ("x", "(x + 0)"):
            got = api.evaluate(f"{name}({text.format(of)}, axis={list(at)})")
            if name == "std" or (name == "mean" and dtype == "float32"):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=name)
            elif name != "prod" or dtype != "float32":
                np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=name)


def test_windows_of_what_is_written(api):
    x = np.random.default_rng(5).integers(-9, 9, 3000).astype("float64")
    store(api, x, "x")
    api.expect(200, api.post("/v1/evaluate", {"expr": "sum(sliding_windows(x, 3), axis=1)", "out": "x", "index": "1:-1"}))
    x[1:-1] = x[:-2] + x[1:-1] + x[2:]
    np.testing.assert_array_equal(api.evaluate("x"), x)
    reply = api.expect(200, api.post("/v1/explain", {"expr": "sum(sliding_windows(x, 50), axis=1)"})).json()
    assert reply["bytes_read"] == 24000, "each element once"


def test_windows_on_a_device(gpu_with):
    api = gpu_with().client()
    x = np.random.default_rng(5).integers(-9, 9, (20, 300)).astype("float32")
    store(api, x, "x")
    w = sliding_window_view(x, (3, 40))
    for of in ("x", "(x + 0)"):
        windows = f"sliding_windows({of}, [3, 40])"
        np.testing.assert_array_equal(api.evaluate(windows), w)
        for name in ("sum", "max"):
            np.testing.assert_array_equal(api.evaluate(f"{name}({windows}, axis=[2, 3])"), REDUCED[name](w, (2, 3)))


STEP = ["v[:] = u*0.5 + 1", "t[:] = sliding_windows(v, 3)*2", "u[1:-1] = max(sliding_windows(v, 3), axis=1) - t[:, 1]*0.25",
        "u[2:-2] = sliding_windows(u, 5)[:, 0] + sliding_windows(u*1.5, 5)[:, 4]"]


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_programs_of_windows(api, gpu_with, backend):
    """What a statement has written is read by the windows of the next one."""
    api = gpu_with().client() if backend == "cuda" else api
    u, v = np.random.default_rng(1).integers(-9, 9, 400).astype("float64"), np.zeros(400)
    for name, x in {"u": u, "v": v, "t": np.zeros((398, 3))}.items():
        store(api, x, name)
    api.expect(200, api.post("/v1/programs?wait=1", {"steps": 7, "body": STEP}))
    for _ in range(7):
        v = u * 0.5 + 1
        t = sliding_window_view(v, 3) * 2
        u[1:-1] = sliding_window_view(v, 3).max(1) - t[:, 1] * 0.25
        u[2:-2] = u[:-4] + u[4:] * 1.5
    for name, x in {"u": u, "v": v, "t": t}.items():
        np.testing.assert_array_equal(api.evaluate(name), x)
