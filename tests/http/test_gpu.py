"""The CUDA backend seen from outside, on the fake driver: choice of backend and device, the kernel
cache, explain, times, and what becomes of the daemon when memory runs out or the device is lost."""
import os
import signal
import socket
import subprocess
import threading
import time

import numpy as np
import pytest

from client import NPY, OCTETS
from conftest import Daemon, fake_gpu, find_binary, settle, until

SIZE = 1 << 16


def timing(reply):
    parts = (part.strip().split(";dur=") for part in reply.headers["Server-Timing"].split(","))
    return {name: float(ms.split(";desc=")[0]) for name, ms in parts}


def inline(api, expr, **fields):
    return api.post("/v1/evaluate", {"expr": expr, "inline": True, **fields})


# --- which backend ---

@pytest.mark.parametrize("missing", ["ARRAYD_LIBCUDA", "ARRAYD_LIBNVRTC"])
def test_a_machine_without_a_gpu(daemon_with, missing):
    environment = {**(fake_gpu() or {}), missing: "/nonexistent/lib.so"}
    if missing == "ARRAYD_LIBNVRTC" and "ARRAYD_LIBCUDA" not in environment:
        pytest.skip("no fake driver in this build, or no g++")
    d = daemon_with("--backend", "auto", environment=environment)
    api = d.client()
    info = api.info()
    assert info["backend"] == "cpu" and "/nonexistent/lib.so" in info["note"]
    assert "/nonexistent/lib.so" in next(line for line in d.log().splitlines() if " ready " in line)
    api.close()
    done = subprocess.run([find_binary(), "--backend", "cuda", "--listen", "127.0.0.1:0"], timeout=60,
                          env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 1
    what = "NVIDIA driver" if missing == "ARRAYD_LIBCUDA" else "CUDA toolkit"
    assert "arrayd: /nonexistent/lib.so" in done.stderr and what in done.stderr, done.stderr


def test_no_gpu_that_can_be_used(gpu_with):
    with pytest.raises(RuntimeError, match="(?s)ended with 1.*found no GPU"):
        gpu_with(environment={"ARRAYD_FAKE_DEVICES": "0"})


def test_what_info_says(gpu_with):
    d = gpu_with("--slab-memory", "8MiB", "--kernel-cache-size", "1MiB", "--kernel-cache-entries", 7,
                 "--interpreter-memory", "3MiB", "--interpreter-work", 9, "--compile-threads", 1, "--log-level", "debug")
    api = d.client()
    info = api.info()
    assert info["backend"] == "cuda" and info["note"] == ""
    limits = info["limits"]
    assert limits["slab_memory"] == 8 << 20 and limits["kernel_cache_size"] == 1 << 20
    assert limits["kernel_cache_entries"] == 7
    assert limits["interpreter_memory"] == 3 << 20 and limits["interpreter_work"] == 9
    api.create(name="u", data=[1.0, 4.0])
    assert inline(api, "sqrt(u)").json()["data"] == [1, 2]
    api.close()
    opened = next(line for line in d.log().splitlines() if "device was opened" in line)
    assert all(f"{step} " in opened for step in ("libraries", "driver", "context", "pool", "slabs", "module"))


def test_auto_takes_a_gpu(gpu_with):
    d = gpu_with("--backend", "auto")
    api = d.client()
    info = api.info()
    api.close()
    assert info["backend"] == "cuda" and info["note"]


# --- devices ---

def test_sessions_go_where_there_is_room(gpu_with):
    api = gpu_with(environment={"ARRAYD_FAKE_DEVICES": "2"}).client()
    assert [d["index"] for d in api.info()["devices"]] == [0, 1]
    mine = api.get("/v1/sessions/default").json()["device"]
    api.create(name="u", shape=[1 << 20])
    other = api.expect(201, api.post("/v1/sessions", {})).json()
    assert other["device"] == 1 - mine
    second = api.clone(session=other["id"])
    assert second.create(name="v", shape=[1 << 21])["device"] == 1 - mine
    assert api.expect(201, api.post("/v1/sessions", {})).json()["device"] == mine
    assert api.expect(201, api.post("/v1/sessions", {"device": 1})).json()["device"] == 1
    for wrong in (2, -1):
        api.fails(422, "bad_field", api.post("/v1/sessions", {"device": wrong}))
    second.close()
    api.close()


def test_devices_do_not_meet_in_an_expression(gpu_with):
    api = gpu_with(environment={"ARRAYD_FAKE_DEVICES": "2"}).client()
    mine = api.get("/v1/sessions/default").json()["device"]
    second = api.clone(session=api.post("/v1/sessions", {"device": 1 - mine}).json()["id"])
    u = api.create(name="u", data=[1.0, 2.0, 3.0, 4.0])["id"]
    second.create(name="v", data=[5.0, 6.0, 7.0, 8.0])
    second.fails(409, "conflict", inline(second, "v + w", bind={"w": u}))
    second.fails(409, "conflict", second.post("/v1/evaluate", {"expr": "v + 1", "out": u}))
    assert second.expect(201, second.post(f"/v1/arrays/{u}/copy")).json()["device"] == 1 - mine
    second.fails(409, "conflict", second.post(f"/v1/arrays/{u}/swap", {"with": "v"}))
    r = second.request("PUT", f"/v1/arrays/{u}/data", np.zeros(4).tobytes(), {"Content-Type": OCTETS})
    second.fails(409, "conflict", r)
    # it can be read from anywhere, also while it is being made, and as a view
    x = api.expect(201, api.post("/v1/evaluate", {"expr": "u * 2"})).json()["id"]
    assert second.download(x).tolist() == [2, 4, 6, 8]
    assert second.download(u, "::-2").tolist() == [4, 2]
    assert api.download("u").tolist() == [1, 2, 3, 4] and second.download("v").tolist() == [5, 6, 7, 8]
    second.close()
    api.close()


# --- kernels ---

def test_the_first_evaluation_tells_what_compiling_took(gpu_with):
    api = gpu_with().client()
    api.create(name="u", data=[[1.0, 2.0], [3.0, 4.0]])
    first = inline(api, "u*3 - u/7")
    assert timing(api.expect(200, first))["compile"] > 0 and "gpu" in timing(first)
    again = inline(api, "u*3 - u/7")
    assert timing(api.expect(200, again))["compile"] == 0
    r = api.post("/v1/evaluate", {"expr": "u*5 - u/9"}, accept=NPY)
    assert timing(api.expect(200, r))["gpu"] >= 0
    value = api.post("/v1/evaluate", {"expr": "sum(u*11)"})
    assert timing(api.expect(200, value))["compile"] > 0
    api.close()


def test_explain(gpu_with):
    api = gpu_with().client()
    api.create(name="u", shape=[64, 64], dtype="float32")
    api.create(name="t", shape=[64, 64], dtype="float32")

    def kernels(expr):
        return api.expect(200, api.post("/v1/explain", {"expr": expr})).json()["kernels"]

    k, = kernels("exp(u) + 1")
    assert k["shape"] == "flat" and not k["cached"]
    assert "elementwise.cuh" in k["source"] and "exp" in k["source"].lower()
    assert k["registers"] >= 0 and k["shared_bytes"] >= 0 and k["local_bytes"] >= 0
    assert k["bytes_read"] == k["bytes_written"] == 64 * 64 * 4
    assert kernels("exp(u) + 1")[0]["cached"]
    assert timing(inline(api, "sum(exp(u) + 1)"))["compile"] > 0  # another kernel
    assert [k["shape"] for k in kernels("sum(u)")] == ["reduce-all"]
    assert [k["shape"] for k in kernels("u[:, 1:] + 1")] == ["rows"]
    assert [k["shape"] for k in kernels("laplacian(u)")] == ["stencil"]
    assert [k["shape"] for k in kernels("sum(u, axis=1)")] == ["reduce-inner"]
    assert [k["shape"] for k in kernels("sum(u, axis=0)")] == ["reduce-outer"]
    api.fails(422, "unknown_name", api.post("/v1/explain", {"expr": "nobody + 1"}))
    assert kernels("u[:0] + 1")[0]["source"]
    api.close()


def test_explain_speaks_of_the_session_s_device(gpu_with):
    first = gpu_with(environment={"ARRAYD_FAKE_DEVICES": "2", "ARRAYD_FAKE_ARCH": "90,80"}).client()
    second = first.clone(session=first.post("/v1/sessions", {"device": 1}).json()["id"])
    second.create(name="v", data=[1.0, 2.0])
    assert inline(second, "v*2 + 9").json()["data"] == [11, 13]
    kernel, = second.expect(200, second.post("/v1/explain", {"expr": "v*2 + 9"})).json()["kernels"]
    assert kernel["cached"]  # for that device, and for no other
    first.create(name="v", data=[1.0, 2.0])
    kernel, = first.expect(200, first.post("/v1/explain", {"expr": "v*2 + 9"})).json()["kernels"]
    assert not kernel["cached"]
    second.close()
    first.close()


def compiled_from(api, where):
    line = f'arrayd_cuda_kernel_cache_total{{from="{where}"}} '
    return int(next(x for x in api.get("/metrics").body.decode().splitlines() if x.startswith(line))[len(line):])


def test_kernels_are_kept_on_disk(gpu_with, tmp_path):
    for run in range(2):
        d = gpu_with("--kernel-cache", tmp_path / "a" / "b", "--interpreter=no")  # whose kernels come from the disk, too
        api = d.client()
        api.create(name="u", data=[1.0, 2.0])
        assert inline(api, "u * 3 + 4").json()["data"] == [7, 10]
        assert compiled_from(api, "disk") == 0 if run == 0 else compiled_from(api, "compiler") == 0
        api.close()
        assert " warn " not in d.log()
    assert any((tmp_path / "a" / "b").rglob("*"))


def test_where_kernels_are_kept_by_default(gpu_with, tmp_path):
    for variables, folder in [({"XDG_CACHE_HOME": str(tmp_path / "x")}, tmp_path / "x" / "arrayd"),
                              ({"XDG_CACHE_HOME": "", "HOME": str(tmp_path / "h")}, tmp_path / "h/.cache/arrayd")]:
        d = Daemon("--backend", "cuda", environment={**fake_gpu(), **variables})
        d.stop()
        assert any(folder.iterdir())


def test_a_kernel_cache_that_cannot_be_used_is_told_once(gpu_with, tmp_path):
    (tmp_path / "file").write_text("")
    d = gpu_with("--kernel-cache", tmp_path / "file")
    api = d.client()
    api.create(name="u", data=[1.0, 2.0])
    assert inline(api, "u + 1").json()["data"] == [2, 3]
    api.close()
    until(lambda: " warn " in d.log())
    warnings = [line for line in d.log().splitlines() if " warn " in line]
    assert len(warnings) == 1 and "compiled kernels are not kept on disk" in warnings[0]


def test_kernels_that_do_not_compile(gpu_with, tmp_path):
    """500, not a lost device, with the compiler's words; other kernels are none the worse."""
    compiler = tmp_path / "g++"
    compiler.write_text(f"#!/bin/sh\n[ -e {tmp_path}/broken ] && echo '/opt/secret/kernel.cu: no good' >&2 && exit 1\n"
                        f"exec {os.environ.get('ARRAYD_FAKE_CXX') or 'g++'} \"$@\"\n")
    compiler.chmod(0o755)
    d = gpu_with(environment={"ARRAYD_FAKE_CXX": str(compiler), "ARRAYD_FAKE_CACHE": str(tmp_path / "cache")})
    api = d.client()
    api.create(name="u", data=[1.0, 2.0])
    before = settle(api, api.info()["bytes_in_use"])
    (tmp_path / "broken").touch()
    for _ in range(2):
        for r in inline(api, "u*3 - u"), api.post("/v1/evaluate", {"expr": "u*3 - u"}, accept=OCTETS):
            detail = api.fails(500, "internal", r)["detail"]
            assert "kernel.cu: no good" in detail and "secret" not in detail and str(tmp_path) not in detail
    k, = api.expect(200, api.post("/v1/explain", {"expr": "u*3 - u"})).json()["kernels"]
    assert "elementwise.cuh" in k["source"] and not k["cached"] and "registers" not in k
    comment, = (line for line in k["source"].splitlines() if "kernel.cu: no good" in line)
    assert comment.startswith("// not compiled: ")
    assert settle(api, before) == before
    (tmp_path / "broken").unlink()
    api.fails(500, "internal", inline(api, "u*3 - u"))  # for a while nobody tries again
    assert inline(api, "sqrt(u) + u").json()["data"][0] == 2
    api.expect(200, api.get("/readyz"))
    api.close()


# --- no memory ---

@pytest.mark.in_turn
def test_out_of_memory_changes_nothing(gpu_with):
    d = gpu_with()
    api = d.client()
    api.create(name="u", data=[1.0, 2.0])
    before = settle(api, api.info()["bytes_in_use"])
    for ask in (lambda: inline(api, "u + 1"), lambda: api.post("/v1/evaluate", {"expr": "u + 1"}, accept=NPY),
                lambda: api.post("/v1/evaluate", {"expr": "sum(u)"}),
                lambda: api.post("/v1/evaluate", {"expr": "u - 1", "name": "v"}),
                lambda: api.post("/v1/evaluate", {"expr": "u - 3", "out": "u"}),
                lambda: api.post("/v1/evaluate", {"expr": "u[0]", "out": "u", "index": "1"}),
                lambda: api.post("/v1/evaluate", {"expr": "u[::-1]", "out": "u"}),
                lambda: api.post("/v1/arrays", {"shape": [3], "fill": 1}),
                lambda: api.post("/v1/arrays/u/copy")):
        ask()  # compiled
        api.expect(200, api.post("/v1/sessions/default/sync"))
        for array in api.list_all("/v1/arrays", "arrays"):
            if array["name"] != "u":
                api.expect(204, api.delete(f"/v1/arrays/{array['id']}"))
        old = api.download("u").tolist()
        d.fail("2")
        api.fails(507, "out_of_memory", ask())
        assert api.download("u").tolist() == old
        assert settle(api, before) == before and len(api.list_all("/v1/arrays", "arrays")) == 1
    api.expect(200, api.get("/readyz"))
    assert inline(api, "u * 0 + 1").json()["data"] == [1, 1]
    api.close()


def test_an_array_whose_work_failed_is_not_read(gpu_with):
    """A kernel that is still compiling fails when the reply has gone: who reads it is told."""
    d = gpu_with()
    api = d.client()
    api.create(name="u", data=[1.0, 2.0])
    d.fail("2")
    r = api.post("/v1/evaluate", {"expr": "u*13 + 17", "name": "v"})
    if r.status == 201:
        for expr in ("v", "v + 1"):
            api.fails(507, "out_of_memory", inline(api, expr))
        api.fails(507, "out_of_memory", api.get("/v1/arrays/v/data"))
        api.fails(507, "out_of_memory", api.get("/v1/arrays/v/data", accept="application/json"))
    else:
        api.fails(507, "out_of_memory", r)
    assert api.download("u").tolist() == [1, 2]
    assert inline(api, "u*13 + 17").json()["data"] == [30, 43]
    api.close()


def test_rows_that_warps_share_are_written_once(gpu_with):
    """Where rows do not fill whole warps, two of them read the same elements; the target is an
    operand too, and each element of it is written once."""
    api = gpu_with().client()
    rng = np.random.default_rng(5)
    for nx in (33, 61, 100, 509, 601):
        u, o = (rng.standard_normal((5, 6, nx)).astype("float32") for _ in range(2))
        api.upload(u, name="u")
        api.upload(o, name="o")
        x = np.pad(u, 1, mode="edge")
        c = x[1:-1, 1:-1, 1:-1]
        want = o + (x[1:-1, 1:-1, 2:] - 2 * c + x[1:-1, 1:-1, :-2])
        d = "shift(u, [0, 0, 1], 'clamp') - 2*u + shift(u, [0, 0, -1], 'clamp')"
        plan = api.post("/v1/explain", {"expr": f"o + ({d})", "out": "o"}).json()
        assert "form stencil" in plan["kernels"][0]["source"]
        assert api.post("/v1/evaluate", {"expr": f"o + ({d})", "out": "o"}).status == 200
        np.testing.assert_array_equal(api.download("o"), want)
        for name in "uo":
            api.delete(f"/v1/arrays/{name}")
    api.close()


@pytest.mark.in_turn
@pytest.mark.parametrize("expr", ["u*11 + {}", "shift(u, [1], 'wrap')*11 + {}"])
def test_an_array_that_failed_work_was_to_write_stays(gpu_with, expr):
    """Directly, and by way of new memory: old contents are read, and the log says what happened."""
    d = gpu_with()
    api = d.client()
    api.create(name="u", data=[1.0, 2.0])
    etag = api.get("/v1/arrays/u/data").headers["ETag"]
    d.fail("2")
    r = api.post("/v1/evaluate", {"expr": expr.format(19), "out": "u"})
    api.expect(200, api.post("/v1/sessions/default/sync", {}))
    assert api.download("u").tolist() == [1, 2]
    if r.status == 200:
        until(lambda: "failed after its request had been answered code=out_of_memory" in d.log())
        assert b"\narrayd_work_failed_total 1\n" in api.get("/metrics").body
    else:  # at once: then nobody has seen anything
        api.fails(507, "out_of_memory", r)
        assert api.get("/v1/arrays/u/data").headers["ETag"] == etag
    assert inline(api, "u + 1").json()["data"] == [2, 3]
    api.expect(200, api.post("/v1/evaluate", {"expr": expr.format(19), "out": "u"}))
    assert sorted(api.download("u").tolist()) == [30, 41]
    # now the kernel is there: it fails at once
    etag = api.get("/v1/arrays/u/data").headers["ETag"]
    d.fail("2")
    api.fails(507, "out_of_memory", api.post("/v1/evaluate", {"expr": expr.format(19), "out": "u"}))
    assert api.get("/v1/arrays/u/data").headers["ETag"] == etag
    api.close()


def test_more_than_the_device_has(gpu_with):
    api = gpu_with(environment={"ARRAYD_FAKE_MEMORY": str(256 << 20)}).client()
    api.create(name="u", shape=[1 << 20])
    before = api.info()["bytes_in_use"]
    api.fails(507, "out_of_memory", api.post("/v1/arrays", {"shape": [1 << 26]}))
    assert settle(api, before) == before
    assert api.download("u", "0:2").tolist() == [0, 0]
    api.close()


# --- the device is lost ---

def wait_for_end(d, began, most=8.0):
    d.expected = 75
    status = d.proc.wait(30)
    took = time.monotonic() - began
    assert status == 75, (status, d.log()[-3000:])
    assert took < most, took
    assert "CUDA_ERROR" in next(line for line in d.log().splitlines() if "device is lost" in line and " error " in line)


def wait_until_unready(d):
    """Asks only /readyz, which touches no device."""
    c = d.client()
    until(lambda: c.get("/readyz").status == 503)
    r = c.get("/readyz")
    c.close()
    return r


def test_a_lost_device(gpu_with):
    d = gpu_with("--no-keeper", "--lost-exit-delay", 4)
    api = d.client()
    api.create(name="u", data=[1.0, 2.0])
    inline(api, "u + 1")
    d.fail("700")
    api.fails(503, "device_lost", inline(api, "u + 1"))
    r = api.get("/readyz")
    api.fails(503, "device_lost", r)
    assert "ILLEGAL_ADDRESS" in r.json()["detail"] and r.headers["Retry-After"]
    for method, path in [("GET", "/v1/info"), ("GET", "/v1/arrays"), ("GET", "/v1/arrays/u"), ("DELETE", "/v1/arrays/u"),
                         ("GET", "/v1/arrays/u/data"), ("GET", "/v1/sessions"), ("POST", "/v1/sessions"),
                         ("POST", "/v1/sessions/default/sync"), ("GET", "/openapi.json")]:
        api.fails(503, "device_lost", api.request(method, path))
    api.fails(503, "device_lost", api.post("/v1/evaluate", {"expr": "u"}))
    api.fails(503, "device_lost", api.post("/v1/explain", {"expr": "u"}))
    api.fails(503, "device_lost", api.post("/v1/arrays", {"shape": [1]}))
    api.expect(200, api.get("/healthz"))
    assert b"arrayd_info" in api.get("/metrics").body
    api.close()
    began = time.monotonic()
    d.proc.send_signal(signal.SIGTERM)
    wait_for_end(d, began)


def test_a_loss_that_no_request_meets(gpu_with):
    d = gpu_with("--no-keeper", "--lost-exit-delay", 4)
    api = d.client()
    api.create(name="u", shape=[SIZE])
    api.expect(200, inline(api, "sum(u + 1)"))
    d.fail("719 async")
    r = api.post("/v1/evaluate", {"expr": "u + 2", "name": "v"})
    assert r.status in (201, 503)
    r = wait_until_unready(d)
    assert "LAUNCH_FAILED" in r.json()["detail"]
    api.fails(503, "device_lost", api.get("/v1/arrays/v/data"))
    api.close()
    began = time.monotonic()
    d.proc.send_signal(signal.SIGTERM)
    wait_for_end(d, began)


@pytest.mark.in_turn
def test_what_waits_hears_of_it(gpu_with):
    """A kernel that is being compiled, and the work behind it, when the device goes."""
    d = gpu_with("--no-keeper")
    api = d.client()
    api.create(name="u", shape=[SIZE])
    statuses = []

    def ask(k):
        c = d.client()
        statuses.append(inline(c, f"sum(u*{k} + sin(u)*{k})").status)
        c.close()

    d.fail("700")
    began = time.monotonic()
    threads = [threading.Thread(target=ask, args=(k,)) for k in range(3, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert statuses == [503] * 6
    api.close()
    wait_for_end(d, began)


def test_nothing_open_holds_up_the_end(gpu_with, tmp_path):
    d = gpu_with("--listen", f"unix:{tmp_path}/s", "--listen", "127.0.0.1:0", "--lost-exit-delay", 0.5, "--no-keeper")
    api = d.client()
    api.create(name="u", shape=[1 << 22])
    inline(api, "sum(u)")
    head = "Host: localhost\r\n"
    held = []
    for text in (f"PUT /v1/arrays/u/data HTTP/1.1\r\n{head}Content-Length: 33554432\r\n"
                 "Content-Type: application/octet-stream\r\n\r\nabc",
                 f"GET /v1/arrays/u/data HTTP/1.1\r\n{head}\r\n",
                 f"GET /v1/arrays/u/data?index=::-1 HTTP/1.1\r\n{head}\r\n",
                 f"GET /v1/info HTTP/1.1\r\n{head}", ""):
        s = socket.create_connection((d.host, d.port))
        s.sendall(text.encode())
        held.append(s)
    time.sleep(0.3)
    d.fail("700")
    began = time.monotonic()
    api.fails(503, "device_lost", inline(api, "sum(u)"))
    wait_for_end(d, began)
    assert not (tmp_path / "s").exists()
    for s in held:
        s.close()
    api.close()


def test_sigterm_after_the_loss(gpu_with):
    d = gpu_with("--no-keeper", "--lost-exit-delay", 4)
    api = d.client()
    api.create(name="u", data=[1.0])
    d.fail("700")
    api.fails(503, "device_lost", inline(api, "u + 1"))
    api.close()
    began = time.monotonic()
    d.proc.send_signal(signal.SIGTERM)
    wait_for_end(d, began, 3)


def test_other_signals_do_not_end_it(gpu_with):
    d = gpu_with()
    d.proc.send_signal(signal.SIGUSR1)
    api = d.client()
    api.expect(200, api.get("/readyz"))
    api.close()
