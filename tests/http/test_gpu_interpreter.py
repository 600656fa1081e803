"""New expressions on a GPU do not wait for the compiler: the interpreter runs them, once its kernels are there."""
import os
import re
import shutil
import subprocess
import threading
import time

import numpy as np
import pytest

from client import NPY, npy_bytes
from conftest import Daemon, fake_gpu, find_binary, until

ARCHITECTURE = "sm_90"


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A folder with the interpreter's kernels, as an image may have it."""
    fake = fake_gpu()
    if fake is None or os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("no fake driver in this build, or a real GPU")
    folder = tmp_path_factory.mktemp("kernels")
    without_a_driver = {**os.environ, **fake, "ARRAYD_LIBCUDA": "/nonexistent/libcuda.so"}
    ran = subprocess.run([find_binary(), "precompile", folder, ARCHITECTURE], env=without_a_driver, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    return folder


def figure(api, line):
    text = api.get("/metrics").body.decode()
    return int(re.search(rf"^{re.escape(line)} (\d+)$", text, re.M)[1])


def compiled(api):
    return figure(api, 'arrayd_cuda_kernel_cache_total{from="compiler"}')


def interpreted(api):
    return figure(api, "arrayd_cuda_kernels_interpreted_total")


def settled(api):
    """What has been compiled when nothing is being compiled any more."""
    last = -1
    while (now := compiled(api)) != last:
        last = now
        time.sleep(1)
    return now


def loaded(api):
    """Waits for the pack kernels, the three machines, the scans and the reductions."""
    until(lambda: figure(api, 'arrayd_cuda_kernel_cache_total{from="disk"}') >= 66)
    time.sleep(0.2)


def evaluate(api, expr):
    r = api.expect(200, api.post("/v1/evaluate", {"expr": expr}, headers={"Accept": "application/octet-stream"}))
    return np.frombuffer(r.body, "<f8"), r.headers.get("server-timing", "")


def tier(timing):
    """How the kernels ran, by Server-Timing."""
    return re.search(r"\bgpu;dur=[\d.]+;desc=(\w+)", timing)[1]


def test_new_expressions_are_not_compiled_before_they_come_again(gpu_with, kernels):
    api = gpu_with("--kernel-cache", kernels, "--keep-arrays=no").client()  # without the sums of memory that is to be kept
    loaded(api)
    x = np.linspace(-3, 3, 101)
    api.create(name="x", data=x.tolist())
    before = compiled(api)
    for k, (expr, want) in enumerate({"x*2.5 + 1": x * 2.5 + 1, "sin(x) - x": np.sin(x) - x, "where(x > 0, x, -x)**2": x**2,
                                      "roll(x, 3) - x": np.roll(x, 3) - x, "x[::-1] * x": x[::-1] * x,
                                      "shift(x, [2], boundary=\"clamp\")": np.concatenate([x[2:], np.full(2, x[-1])])}.items()):
        got, timing = evaluate(api, expr)
        assert np.allclose(got, want, rtol=1e-14) and "compile;dur=0.000" in timing, expr
        assert tier(timing) == "interpreted"
        assert interpreted(api) == k + 1 and compiled(api) == before, expr
    kernel, = api.expect(200, api.post("/v1/explain", {"expr": "cos(x)"})).json()["kernels"]
    assert kernel["interpreted"]
    first = evaluate(api, "sin(x) - x")[0]
    until(lambda: tier(evaluate(api, "sin(x) - x")[1]) == "compiled")
    assert compiled(api) >= before + 1
    runs = interpreted(api)
    again, timing = evaluate(api, "sin(x) - x")
    assert again.tobytes() == first.tobytes() and tier(timing) == "compiled"  # the same bits
    assert interpreted(api) == runs
    api.close()


TURNED = "permute_dims(x, [1, 0])"
REDUCED = [((7,), "x", "None"), ((5000,), "x", "None"), ((300001,), "x", "None"), ((3, 5), "x", "1"), ((70, 1000), "x", "1"), ((2, 9001), "x", "1"),
           ((1000, 70), "x", "0"), ((3, 5), "x", "0"), ((40000, 4), "x", "0"), ((6, 50, 40), "x", "1"), ((30, 7, 64), "x", "(0, 2)"),
           ((20, 30, 10), "x", "(0, 1)"), ((64, 33), TURNED, "1"), ((64, 33), TURNED, "None"), ((500, 9), "flip(x, 0)", "0"), ((1,), "x", "None"),
           ((1, 40), "x", "0")]


@pytest.mark.in_turn
def test_reductions(gpu_with, kernels):
    """Of any length and layout: what reduces the values that are there is compiled already. The same bits as of compiled kernels."""
    api = gpu_with("--kernel-cache", kernels, "--keep-arrays=no").client()
    loaded(api)
    other = gpu_with("--kernel-cache", kernels, "--interpreter=no").client()
    rng = np.random.default_rng(5)
    mine = rng.permutation(len(REDUCED))[:6]  # its own kernel is compiled for each
    for i, (shape, operand, axis) in enumerate(REDUCED):
        dtype = ("float32", "float64")[i % 2]
        x = (rng.random(shape) * 9).round(1).astype(dtype)  # with equal ones
        for c in (api, other):
            assert c.request("PUT", "/v1/arrays/x", npy_bytes(x), content_type=NPY).status in (200, 201)
        made, runs = compiled(api), interpreted(api)
        value = f"{operand}*3 - 1"
        ops = ["sum", "mean", "max", "argmin", "std", "any"]
        if operand == TURNED and axis == "None":
            ops.remove("argmin")  # its elements are not numbered in the order of memory: compiled
        for op in ops:
            expr = f"{op}({value}{' > 2' if op == 'any' else ''}, {axis})"
            r = api.expect(200, api.post("/v1/evaluate", {"expr": expr}, headers={"Accept": "application/octet-stream"}))
            assert tier(r.headers["server-timing"]) == "interpreted" and compiled(api) == made, (expr, shape)
            if i in mine:
                again = other.expect(200, other.post("/v1/evaluate", {"expr": expr}, headers={"Accept": "application/octet-stream"}))
                assert tier(again.headers["server-timing"]) == "compiled" and again.body == r.body, (expr, shape)
        assert interpreted(api) >= runs + len(ops)
    # a type that is seldom reduced has one text, too, which its first waits for
    api.create(name="few", data=[3, 1, 2], dtype="int16")
    made = compiled(api)
    for k, expr in enumerate(("max(few*few)", "max(few - 5)", "max(few + few)")):
        r = api.expect(200, api.post("/v1/evaluate", {"expr": expr}, headers={"Accept": "application/octet-stream"}))
        assert np.frombuffer(r.body, "<i2").tolist() == [(9, -2, 6)[k]]
        if k:
            assert tier(r.headers["server-timing"]) == "interpreted"
        else:
            made = settled(api)
    assert compiled(api) == made
    api.close()
    other.close()


def test_scans_along_rows(gpu_with, kernels):
    """Of any length: what scans the values that are there is compiled already. The same bits as of compiled kernels."""
    api = gpu_with("--kernel-cache", kernels, "--keep-arrays=no").client()
    loaded(api)  # without the sums of memory that is to be kept, which are compiled
    other = gpu_with("--kernel-cache", kernels, "--interpreter=no").client()
    rng = np.random.default_rng(6)
    for dtype, n in [("float32", 1), ("float32", 3), ("float32", 65), ("float32", 5000), ("float64", 300), ("complex64", 700), ("complex128", 129),
                     ("uint8", 1000), ("uint64", 77)]:
        x = (rng.random((5, n)) * 9).astype(dtype)
        w = rng.random((5, 1)).astype("float32" if dtype == "float32" else "float64")
        for c in (api, other):
            for name, a in (("x", x), ("w", w)):
                assert c.request("PUT", f"/v1/arrays/{name}", npy_bytes(a), content_type=NPY).status in (200, 201)
        before, runs = compiled(api), interpreted(api)
        for k, expr in enumerate(("cumulative_sum(x*x - x, 1)", "cumulative_prod(x*2 + 1, 1)", "cumulative_sum(x[:, ::-1] + w, 1)")):
            r = api.expect(200, api.post("/v1/evaluate", {"expr": expr}, headers={"Accept": "application/octet-stream"}))
            assert tier(r.headers["server-timing"]) == "interpreted", (dtype, n, expr)
            assert interpreted(api) == runs + k + 1 and compiled(api) == before, (dtype, n, expr)
            if (dtype, n) in [("float32", 65), ("float32", 5000), ("complex128", 129)]:
                again = other.expect(200, other.post("/v1/evaluate", {"expr": expr}, headers={"Accept": "application/octet-stream"}))
                assert tier(again.headers["server-timing"]) == "compiled" and again.body == r.body, (dtype, n, expr)
        assert np.allclose(evaluate(api, "astype(cumulative_sum(x*1, 1), 'complex128')")[0].view("<c16").reshape(x.shape), np.cumsum(x.astype("c16"), 1),
                           rtol=1e-6)
    api.close()
    other.close()


def test_other_scans(gpu_with, kernels):
    """Along columns, along very long rows and into parts of arrays: not compiled either. The same bits as of compiled kernels."""
    api = gpu_with("--kernel-cache", kernels, "--keep-arrays=no").client()
    loaded(api)
    other = gpu_with("--kernel-cache", kernels, "--interpreter=no").client()
    rng = np.random.default_rng(7)
    arrays = {"x": rng.random((70, 40)), "y": np.zeros((70, 41)), "tall": rng.random((3000, 3)).astype("f4"), "long": rng.random(70000).astype("f4"),
              "deep": rng.random((4, 90, 30)).astype("f4"), "flat": np.zeros(70009, "f4")}
    for c in (api, other):
        for name, a in arrays.items():
            assert c.request("PUT", f"/v1/arrays/{name}", npy_bytes(a), content_type=NPY).status == 201
    x, tall, deep = (arrays[name].astype("f8") for name in ("x", "tall", "deep"))
    long = arrays["long"].astype("f8")
    cases = [("cumulative_sum(x*x - 0.5, 0)", None, None, np.cumsum(x * x - 0.5, 0)),
             ("cumulative_prod(x + 0.5, 0)", None, None, np.cumprod(x + 0.5, 0)),
             ("cumulative_sum(tall*3, 0)", None, None, np.cumsum(tall * 3, 0)),
             ("cumulative_sum(deep - 0.25, 1)", None, None, np.cumsum(deep - 0.25, 1)),
             ("cumulative_sum(deep[:, ::-1] + 1, 0)", None, None, np.cumsum(deep[:, ::-1] + 1, 0)),
             ("cumulative_sum(long + 1)", None, None, np.cumsum(long + 1)),
             ("cumulative_sum(long*2)", "flat", "3:70003", np.cumsum(long * 2)),
             ("cumulative_sum(x*2, 1)", "y", ":, 1:", np.cumsum(x * 2, 1)),
             ("cumulative_sum(x*4, 0)", "y", ":, 1:", np.cumsum(x * 4, 0))]
    before, runs = compiled(api), interpreted(api)
    for k, (expr, out, index, want) in enumerate(cases):
        body = {"expr": expr, **({"out": out, "index": index} if out else {})}
        got = []
        for c, how in ((api, "interpreted"), (other, "compiled")):
            r = c.expect(200, c.post("/v1/evaluate", body, headers={} if out else {"Accept": "application/octet-stream"}))
            assert out or tier(r.headers["server-timing"]) == how, expr
            got.append(c.download(out) if out else np.frombuffer(r.body, "<f8" if "x*" in expr or "x +" in expr else "<f4"))
        assert interpreted(api) == runs + k + 1 and compiled(api) == before, expr
        assert got[0].tobytes() == got[1].tobytes(), expr
        result = got[0][tuple(slice(*(int(n) if n else None for n in part.split(":"))) for part in index.split(", "))] if out else got[0]
        assert np.allclose(result.reshape(want.shape), want, rtol=1e-5), expr
    api.close()
    other.close()


def test_no_memory_for_what_a_program_leaves(gpu_with, kernels):
    """Then the reduction waits for its own code, which needs none; it does not fail."""
    api = gpu_with("--kernel-cache", kernels, "--memory-limit", "10MiB").client()
    loaded(api)
    api.create(name="x", dtype="float64", shape=[1 << 20], fill=2)  # 8 MiB
    runs = interpreted(api)
    for k in range(3):
        got, _ = evaluate(api, f"sum(x*{k + 2} - x)" if k else "sum(x*x - x)")
        assert got.tolist() == [2 * (1 << 20) * (k + 1)]
    assert interpreted(api) == runs
    api.close()


def test_programs_begin_with_it(gpu_with, kernels):
    """Of 11 steps one is left over, however many a pass makes: it has a kernel that need not wait."""
    api = gpu_with("--kernel-cache", kernels).client()
    loaded(api)
    u = np.random.default_rng(7).random((40, 50))
    before, done, tiers = interpreted(api), [], []
    for _ in range(3):
        api.create(name="u", data=u.tolist())
        job = api.expect(200, api.post("/v1/programs?wait=1", {"body": ["u = u + 0.1*laplacian(u) - 0.001*u*u*u"], "steps": 40, "bind": {"u": "u"},
                                                              "record": {"top": "max(u)"}, "record_every": 11})).json()
        assert job["state"] == "done", job
        tiers.append(job["kernels"])
        done.append((api.download("u").tobytes(), job["records"]["top"]))
        api.delete("/v1/arrays/u")
    assert interpreted(api) > before and done[0] == done[1] == done[2]
    assert tiers[0] != "compiled" and set(tiers) <= {"interpreted", "compiled", "both"}
    for _ in range(40):
        u = u + 0.1 * (sum(np.take(u, np.clip(np.arange(n) + d, 0, n - 1), axis=a) - u for a, n in enumerate(u.shape) for d in (-1, 1))) - 0.001 * u**3
    assert np.allclose(np.frombuffer(done[0][0]).reshape(u.shape), u, rtol=1e-12)
    api.close()


@pytest.mark.in_turn
def test_what_is_large_is_compiled_at_once(gpu_with, kernels):
    api = gpu_with("--kernel-cache", kernels).client()
    loaded(api)
    api.create(name="big", dtype="float64", shape=[4 << 20], fill=2)
    before = compiled(api)
    api.expect(201, api.post("/v1/evaluate", {"expr": "sqrt(big*8) + big*big - 3"}))
    until(lambda: compiled(api) == before + 1)
    assert evaluate(api, "(sqrt(big*8) + big*big - 3)[:2]")[0].tolist() == [5, 5]
    api.close()


def test_kernels_that_are_only_read(gpu_with, kernels, tmp_path):
    """As an image has them; of a folder that others may write to nothing is taken."""
    seed = tmp_path / "seed"
    shutil.copytree(kernels, seed)
    had = {f.name: f.stat().st_mtime_ns for f in seed.iterdir()}
    d = gpu_with("--kernel-cache", tmp_path / "own", "--ready-kernels", seed)
    api = d.client()
    loaded(api)
    api.create(name="x", data=[1.0, 2.0])
    before = compiled(api)
    assert evaluate(api, "x*13 - 2")[0].tolist() == [11, 24] and interpreted(api) == 1 and compiled(api) == before == 0
    evaluate(api, "x*13 - 2")
    until(lambda: compiled(api) == 1)
    until(lambda: any(f.is_file() for f in (tmp_path / "own").iterdir()))
    assert {f.name: f.stat().st_mtime_ns for f in seed.iterdir()} == had
    api.close()
    seed.chmod(0o777)
    d = gpu_with("--kernel-cache", tmp_path / "other", "--ready-kernels", seed, "--interpreter=no")
    api = d.client()
    assert compiled(api) == 1 and "others may write to it" in d.log()
    api.close()


@pytest.mark.in_turn
def test_its_limits_are_settings(gpu_with, kernels):
    api = gpu_with("--kernel-cache", kernels, "--interpreter-memory", 7992, "--interpreter-work", 3000).client()
    loaded(api)
    for n in (999, 1000):
        api.create(name=f"x{n}", dtype="float64", shape=[n], fill=2)
    before = compiled(api)
    evaluate(api, "x1000*x1000")  # a load, a product, a store on each
    evaluate(api, "x1000*x1000 + x1000*3 + 1")
    until(lambda: compiled(api) == before + 1)
    evaluate(api, "sum(x999 - 1)")
    settled(api)
    runs = interpreted(api)
    assert evaluate(api, "sum(x1000*2 - 1)")[0].tolist() == [3000] and interpreted(api) == runs
    assert evaluate(api, "sum(x999*3 - 1)")[0].tolist() == [4995] and interpreted(api) > runs
    api.close()


def test_it_can_be_switched_off(gpu_with, kernels):
    api = gpu_with("--kernel-cache", kernels, "--interpreter=no").client()
    api.create(name="x", data=[1.0, 2.0])
    assert evaluate(api, "x*7 - 2")[0].tolist() == [5, 12] and interpreted(api) == 0
    kernel, = api.expect(200, api.post("/v1/explain", {"expr": "x + 1"})).json()["kernels"]
    assert not kernel["interpreted"]
    api.close()


def processes(parent):
    return [int(p) for p in subprocess.run(["pgrep", "-P", str(parent), "-f", "precompile"], capture_output=True, text=True).stdout.split()]


def test_its_kernels_are_compiled_by_another_process(gpu_with, tmp_path):
    """Which is there only as long as the daemon is, and in nobody's way."""
    if os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("it takes a compiler that never ends")
    compiler = tmp_path / "g++"
    compiler.write_text(f"#!/bin/sh\ncase \"$*\" in *) [ -e {tmp_path}/slow ] && exec sleep 1000;; esac\n"
                        f"exec {os.environ.get('ARRAYD_FAKE_CXX') or 'g++'} \"$@\"\n")
    compiler.chmod(0o755)
    fake = fake_gpu()
    first = Daemon("--backend", "cuda", "--no-keeper", "--kernel-cache", tmp_path / "k", environment=fake)  # which makes what opening needs
    first.stop()
    for f in (tmp_path / "k").rglob("*"):
        if f.is_file() and f.stat().st_size > 200000:
            f.unlink()
    (tmp_path / "slow").write_text("")
    d = Daemon("--backend", "cuda", "--no-keeper", "--kernel-cache", tmp_path / "k",
               environment={**fake, "ARRAYD_FAKE_CXX": str(compiler), "ARRAYD_FAKE_CACHE": str(tmp_path / "cache")})
    until(lambda: processes(d.pid))
    child, = processes(d.pid)
    until(lambda: os.getpriority(os.PRIO_PROCESS, child) == 19)
    api = d.client()
    (tmp_path / "slow").unlink()  # of kernels from now on; the child's compiler has begun
    api.create(name="x", data=[1.0, 2.0])
    assert evaluate(api, "x*11 - 4")[0].tolist() == [7, 18] and interpreted(api) == 0
    api.close()
    begun = time.monotonic()
    d.stop()
    assert time.monotonic() - begun < 10
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_mistakes_of_precompile(tmp_path):
    fake = fake_gpu()
    if fake is None:
        pytest.skip("no fake driver in this build")
    (tmp_path / "file").write_text("")
    for arguments, status, words in [([], 2, "usage"), ([tmp_path / "k"], 2, "usage"), ([tmp_path / "file", ARCHITECTURE], 1, "cannot keep")]:
        ran = subprocess.run([find_binary(), "precompile", *arguments], env={**os.environ, **fake}, capture_output=True, text=True, timeout=60)
        assert ran.returncode == status and words in ran.stderr, ran.stderr


# --- several users ---

class Crowd:
    """So many clients, each of which asks for its own expressions in turn, and notes how long each took."""

    def __init__(self, clients, expressions, **fields):
        self.took, self.ending, self.fields, self.statuses = [], False, fields, set()
        self.threads = [threading.Thread(target=self.run, args=(c, e)) for c, e in zip(clients, expressions)]
        for t in self.threads:
            t.start()

    def run(self, c, expressions):
        for expr in expressions:
            begun = time.monotonic()
            try:
                self.statuses.add(c.post("/v1/evaluate", {"expr": expr, "inline": True, **self.fields}).status)
            except OSError:  # the daemon has ended
                return
            self.took.append(time.monotonic() - begun)
            if self.ending:
                return

    def join(self):
        for t in self.threads:
            t.join()


def new(number):
    """An expression that no other number makes the same kernel of: its digits in base 6 are its operations."""
    expr, ops = "x", ["sin({})", "cos({})", "({} + x)", "({} - 2)", "({}*x)", "tanh({})"]
    for k in range(5):
        expr = ops[number // 6**k % 6].format(expr)
    return expr


@pytest.fixture
def users(gpu_with, kernels, accounts, tmp_path):
    """users(n, options): the daemon, whose compiler has compiled nothing yet, and clients of as many users, with an array x each."""
    def start(n, *args):
        names = [f"user{k}" for k in range(n)]
        for name in names:
            accounts.add(name, role="operator")  # who see figures
        d = gpu_with("--kernel-cache", kernels, "--keep-arrays=no", "--accounts", accounts.path, *args,
                     environment={"ARRAYD_FAKE_CACHE": str(tmp_path / "compiled")})
        clients = [accounts.client(d, name) for name in names]
        for c in clients:
            c.create(name="x", data=np.linspace(0, 1, 50).tolist())
        loaded(clients[0])
        return clients

    return start


def median(took):
    return sorted(took)[len(took) // 2]


@pytest.mark.alone
def test_ten_users_new_expressions_at_once(users):
    clients = users(10)
    quiet = Crowd(clients[:1], [[new(k) for k in range(20)]])
    quiet.join()
    crowd = Crowd(clients, [[new(100*u + k) for k in range(8)] for u in range(1, 11)])
    crowd.join()
    assert crowd.statuses == quiet.statuses == {200} and len(crowd.took) == 80
    assert interpreted(clients[0]) >= 100 and compiled(clients[0]) == 0
    # ten at once on a few cores: each waits for the others' microseconds on the device, and for no compiler
    assert median(crowd.took) < 10 * median(quiet.took) * 4 + 0.05, (median(crowd.took), median(quiet.took))
    for c in clients:
        c.close()


@pytest.mark.alone
def test_a_flood_of_new_expressions_delays_nobody_else(users):
    """Neither one of expressions that are interpreted, nor one of those that wait for the compiler."""
    ann, bob, carl = users(3, "--compile-threads", 1)
    quiet = Crowd([ann], [[new(k) for k in range(20)]])
    quiet.join()
    assert quiet.statuses == {200}
    most = 20 * median(quiet.took) + 0.1
    flood = Crowd([bob.clone() for _ in range(6)], [[new(1000*k + i) for i in range(1000)] for k in range(1, 7)])
    beside = Crowd([ann], [[new(100 + k) for k in range(20)]])
    beside.join()
    flood.ending = True
    flood.join()
    assert beside.statuses == {200} and flood.statuses == {200} and len(flood.took) > 20
    assert median(beside.took) < most, (median(beside.took), most)

    one = Crowd([ann], [[new(200)]], fast_math=True)  # what one compilation takes
    one.join()
    flood = Crowd([bob.clone() for _ in range(12)], [[new(3000 + i)] for i in range(12)], fast_math=True)
    time.sleep(0.3)
    beside = Crowd([ann], [[new(300 + k) for k in range(20)]])
    turn = Crowd([carl], [[new(400)]], fast_math=True)
    turn.join()
    waiting = sum(t.is_alive() for t in flood.threads)  # when carl's turn is over
    beside.join()
    assert beside.statuses == turn.statuses == {200} and median(beside.took) < most
    # carl waits for the kernel that is being compiled, and perhaps for another of bob's: not for all twelve
    assert turn.took[0] < 5 * one.took[0] + 1 and waiting >= 5, (turn.took, one.took, waiting)
    flood.join()
    for c in (ann, bob, carl):
        c.close()
