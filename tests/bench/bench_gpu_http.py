#!/usr/bin/env python3
"""What HTTP and compilation cost with the GPU behind them, beside bare peers, in one run.

    bench_gpu_http.py ARRAYD HTTP_BARE [--part first|small|bulk|huge …] [--backend cuda]
                      [--requests N] [--size BYTES] [--huge BYTES] [--memory BYTES] [--rounds N]

first  the first evaluation of an expression: in a process that never compiled, in one that did, and
       from the disk cache (a new process on the same folder)
small  an evaluation of 1,024 float32 over and over on one keep-alive connection, beside
       libmicrohttpd suspending, resuming and replying with as many bytes, and beside jax.jit and
       torch.compile called in this process and waited for
bulk   1 GiB up and down, beside a bare libmicrohttpd sink and source and raw sockets
huge   4 GiB up and down through a daemon limited to 512 MiB of host memory: by a control group where
       one can be made, else its resident memory is only measured

One JSON line a measurement, and a line that begins with | for a reader. Replies are checked before
they are timed, contestants take turns; small requests are given by their median, bulk by the best.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

from bench_gpu import Daemon, rounded
from bench_http import Peer, ask, connect, download, raw_socket, upload

KERNEL_CACHE = "--kernel-cache"  # the daemon's option, followed by a folder
N = 1024
MIB = 1 << 20

missed = []


def show(text=None, **row):
    print(json.dumps(rounded(row)), flush=True)
    if text:
        print(f"| {text}", file=sys.stderr, flush=True)


def expect(holds, text):
    if not holds:
        missed.append(text)


# --- first evaluations ---

# Different in structure, not only in numbers: those are arguments of one kernel.
FUNCTIONS = ("sin", "cos", "exp", "tanh", "sqrt", "log1p", "abs", "expm1", "square", "floor")
ARITHMETIC = ["a*2 + 1", "a + b", "(a - b)*(a + b)", "where(a > b, a - b, b - a)", "a/b + 1",
              "abs(a - b)", "sqrt(a) + b", "a*a + b*b", "1/a + 2*a*b", "where(a > 1, a, 0)*b"]
TRANSCENDENTAL = [f"{f}(a) * b + {g}(a / b)"
                  for f, g in zip(FUNCTIONS, FUNCTIONS[1:] + FUNCTIONS[:1])]
EXPRESSIONS = ARITHMETIC + TRANSCENDENTAL


def numpy_value(expr, a, b):
    names = {f: getattr(np, f) for f in (*FUNCTIONS, "where")}
    return eval(expr, {"__builtins__": {}}, {**names, "a": a, "b": b})


def put(daemon, name, data):
    status, reply = ask(daemon.port, "PUT", f"/v1/arrays/{name}?dtype=float32&shape={data.size}",
                        data.tobytes(), "application/octet-stream")
    if status != 201:
        raise RuntimeError(f"PUT {name}: {status} {reply[:200]!r}")


def first_times(options, folder, a, b):
    """For each expression in a new process: (compile;dur, milliseconds until the value is here)."""
    daemon = Daemon(options.arrayd, "--backend", options.backend, *folder)
    try:
        put(daemon, "a", a)  # uploads launch nothing that must be compiled
        put(daemon, "b", b)
        times = []
        for expr in EXPRESSIONS:
            request = daemon.request("POST", "/v1/evaluate", {"expr": expr},
                                     accept="application/octet-stream")
            begin = time.perf_counter()
            (timing, body), = daemon.together(request)
            times.append((timing.get("compile", 0.0), (time.perf_counter() - begin) * 1e3))
            got = np.frombuffer(body, "<f4")
            if not np.allclose(got, numpy_value(expr, a, b), rtol=1e-5, atol=1e-5):
                raise RuntimeError(f"{expr}: wrong result")
        begin = time.perf_counter()
        daemon.together(request)
        return times, (time.perf_counter() - begin) * 1e3
    finally:
        daemon.stop()


BARE_KERNEL = """
struct P { const float *a; float *o; float c, d; long n; };
extern "C" __global__ void __launch_bounds__(128) k(const __grid_constant__ P p)
{
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < p.n) {
        float4 v = ((const float4 *)p.a)[i];
        v.x = v.x * p.c + p.d; v.y = v.y * p.c + p.d; v.z = v.z * p.c + p.d; v.w = v.w * p.c + %d.0f;
        ((float4 *)p.o)[i] = v;
    }
}
"""


def nvrtc_alone():
    """The floor: milliseconds in which NVRTC compiles a small kernel written by hand (its own cache
    off), first and median of the next; None without NVRTC."""
    import ctypes
    for name in ("libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.13"):
        try:
            nvrtc = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        return None
    options = (ctypes.c_char_p * 4)(b"--gpu-architecture=sm_90", b"--no-cache", b"--minimal",
                                    b"--fmad=false")
    times = []
    for i in range(8):
        program = ctypes.c_void_p()
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), (BARE_KERNEL % i).encode(), b"k.cu", 0, None,
                                 None)
        begin = time.perf_counter()
        if nvrtc.nvrtcCompileProgram(program, 4, options):
            return None
        times.append((time.perf_counter() - begin) * 1e3)
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return times[0], statistics.median(times[1:])


def first(options):
    floor = nvrtc_alone()
    if floor:
        show(f"NVRTC alone, a small kernel by hand: {floor[0]:.1f} ms first, then {floor[1]:.1f}",
             bench="first_evaluation", what="NVRTC alone, a small kernel by hand",
             first_ms=floor[0], ms=floor[1])
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.5, 1.5, N).astype("float32") for _ in range(2))
    with tempfile.TemporaryDirectory(prefix="arrayd-kernels-") as name:
        folder = [KERNEL_CACHE, name]
        try:
            fresh, again = first_times(options, folder, a, b)
        except RuntimeError as why:
            if "does not start" not in str(why) or "option" not in str(why):
                raise
            show(bench="first_evaluation", note=f"no {KERNEL_CACHE}: {why}"[:300])
            folder = []
            fresh, again = first_times(options, folder, a, b)
        files = sum(1 for x in pathlib.Path(name).rglob("*") if x.is_file())
        disk = first_times(options, folder, a, b)[0] if folder else []

    def row(what, times, wanted):
        compile_ms, wall = (statistics.median(x) for x in zip(*times))
        show(f"first evaluation, {what}: {wall:.2f} ms, compile {compile_ms:.2f} (wanted {wanted})",
             bench="first_evaluation", what=what, n=len(times), ms=wall, compile_ms=compile_ms,
             worst_ms=max(w for _, w in times), wanted_at_most=wanted)
        expect(wall <= wanted, f"first evaluation, {what}: {wall:.2f} ms, wanted {wanted}")
    row("nothing compiled in the process before", fresh[:1], 90)
    split = len(ARITHMETIC)
    row("compiler warm, arithmetic", fresh[1:split], 25)
    row("compiler warm, two transcendental functions", fresh[split:], 25)
    expect(disk, "from the disk cache: not measured")
    if disk:
        row("from the disk cache, first of the process", disk[:1], 2)
        row("from the disk cache", disk[1:], 2)
    show(bench="first_evaluation", what="repeated, for comparison", ms=again, cached_files=files)


# --- small requests ---

class Http:
    """A request that is sent again and again on one connection; calling it returns the body."""

    def __init__(self, port, path, body, accept="application/json"):
        self.sock = connect(port)
        self.request = (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n"
                        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                        f"{body}").encode()
        self.buffer = bytearray(1 << 18)
        self.view = memoryview(self.buffer)

    def __call__(self):
        self.sock.sendall(self.request)
        have, end, length = 0, 0, 0
        while not end or have < end + length:
            got = self.sock.recv_into(self.view[have:])
            if not got:
                raise RuntimeError("the connection was closed")
            have += got
            if not end and (at := self.buffer.find(b"\r\n\r\n", 0, have)) > 0:
                head = bytes(self.view[:at]).lower()
                if not head.startswith(b"http/1.1 200"):
                    raise RuntimeError(f"{bytes(self.view[:have])!r}"[:400])
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                end = at + 4
        return self.view[end:have]


def in_process():
    """{name: a call of the same evaluation, waited for}, {name: why it is missing}"""
    calls, missing = {}, {}
    values = np.arange(N, dtype="float32") / 7
    try:
        import jax
        x = jax.device_put(values)
        jitted = jax.jit(lambda x: x * 2 + 1)
        calls["jax.jit"] = lambda: jitted(x).block_until_ready()
        calls["jax.jit"]()
    except Exception as why:
        calls.pop("jax.jit", None)
        missing["jax.jit"] = f"unavailable: {type(why).__name__}: {why}"[:200]
    try:
        import torch
        t = torch.from_numpy(values).cuda()
        compiled = torch.compile(lambda t: t * 2 + 1, dynamic=False)

        def run():
            compiled(t)
            torch.cuda.synchronize()
        calls["torch.compile"] = run
        run()
    except Exception as why:
        calls.pop("torch.compile", None)
        missing["torch.compile"] = f"unavailable: {type(why).__name__}: {why}"[:200]
    return calls, missing


def small(options, bare):
    daemon = Daemon(options.arrayd, "--backend", options.backend)
    try:
        values = np.arange(N, dtype="float32") / np.float32(7)
        put(daemon, "a", values)
        want = values * 2 + 1
        calls, missing = in_process()
        peers = [*calls]
        text = Http(daemon.port, "/v1/evaluate", json.dumps({"expr": "a * 2 + 1", "inline": True}))
        reply = bytes(text())
        if not np.allclose(json.loads(reply)["data"], want, rtol=1e-6):
            raise RuntimeError("inline: wrong result")
        binary = Http(daemon.port, "/v1/evaluate", json.dumps({"expr": "a * 2 + 1"}),
                          "application/octet-stream")
        if not np.allclose(np.frombuffer(binary(), "<f4"), want, rtol=1e-6):
            raise RuntimeError("octet-stream: wrong result")
        calls |= {"inline": text, "octet-stream": binary}
        for name, length in (("inline", len(reply)), ("octet-stream", N * 4)):
            calls[f"suspend/resume, {name}"] = Http(bare.port, f"/park?n={length}", "{}")
        times = {name: [] for name in calls}
        for name, call in calls.items():
            for _ in range(50):
                call()
        for _ in range(max(1, options.requests // 200)):
            for name, call in calls.items():
                for _ in range(200):
                    begin = time.perf_counter_ns()
                    call()
                    times[name].append((time.perf_counter_ns() - begin) / 1e3)
        at = {name: statistics.quantiles(t, n=100) for name, t in times.items()}
        p50 = {name: q[49] for name, q in at.items()}
        for name in ("inline", "octet-stream"):
            more = p50[name] - p50[f"suspend/resume, {name}"]
            expect(more <= 30, f"repeated {name}: {more:.1f} µs more than the echo, wanted 30")
            show(f"repeated evaluation, {name}: {p50[name]:.1f} µs, {more:+.1f} beside suspend/resume "
                 "(wanted 30)" + "".join(f"; {k} in process {p50[k]:.1f}" for k in peers),
                 bench="repeated_evaluation", reply=name, p50_us=p50[name], p99_us=at[name][98],
                 echo_p50_us=p50[f"suspend/resume, {name}"], more_us=more, wanted_at_most=30,
                 **{f"{k}_p50_us": p50[k] for k in peers},
                 **({"missing": missing} if missing else {}))
    finally:
        daemon.stop()


# --- bulk ---

def bulk(options, bare):
    n = options.size
    daemon = Daemon(options.arrayd, "--backend", options.backend)
    try:
        data = np.random.default_rng(1).bytes(5 * MIB + 3)
        status, _ = ask(daemon.port, "PUT", f"/v1/arrays/some?dtype=uint8&shape={len(data)}", data,
                        "application/octet-stream")
        if status != 201 or ask(daemon.port, "GET", "/v1/arrays/some/data") != (200, data):
            raise RuntimeError("what comes down is not what went up")
        path = f"/v1/arrays/bulk?dtype=uint8&shape={n}"
        rates = {"up": ([], [], []), "down": ([], [], [])}
        for _ in range(options.rounds):
            for way, runs in (("up", (lambda: upload(daemon.port, path, n),
                                      lambda: upload(bare.port, "/sink", n),
                                      lambda: raw_socket(n, True))),
                              ("down", (lambda: download(daemon.port, "/v1/arrays/bulk/data", n),
                                        lambda: download(bare.port, f"/source?n={n}", n),
                                        lambda: raw_socket(n, False)))):
                for rate, run in zip(rates[way], runs):
                    rate.append(run())
        for way, (ours, bares, raws) in rates.items():
            ratio = max(ours) / max(bares)
            expect(ratio >= 0.9, f"bulk {way}: {ratio:.2f} of libmicrohttpd alone, wanted 0.9")
            show(f"{n / 2**30:g} GiB {way}: {max(ours):.2f} GB/s, libmicrohttpd alone {max(bares):.2f}, "
                 f"raw sockets {max(raws):.2f}: ratio {ratio:.2f} (wanted 0.9)",
                 bench="bulk", way=way, bytes=n, gb_s=max(ours), bare_gb_s=max(bares),
                 raw_gb_s=max(raws), ratio=ratio, all_gb_s=ours, wanted_at_least=0.9)
    finally:
        daemon.stop()


# --- more than host memory ---

class Group:
    """A control group with a memory limit, of either version."""

    def __init__(self, limit):
        root = pathlib.Path("/sys/fs/cgroup")
        self.path = self.why = None
        self.two = (root / "cgroup.controllers").exists()
        parent = root if self.two else root / "memory"
        path = parent / f"arrayd-bench-{os.getpid()}"
        try:
            if self.two and "memory" not in (root / "cgroup.subtree_control").read_text().split():
                (root / "cgroup.subtree_control").write_text("+memory")
            path.mkdir()
            self.path = path
            name = "memory.max" if self.two else "memory.limit_in_bytes"
            (path / name).write_text(str(limit))
            if self.two and (path / "memory.swap.max").exists():
                (path / "memory.swap.max").write_text("0")
        except OSError as why:
            self.close()
            self.why = str(why)

    def wrap(self, command):
        """The command, begun inside the group."""
        if not self.path:
            return command
        return ["sh", "-c", f'echo $$ >{self.path}/cgroup.procs && exec "$@"', "sh", *command]

    def peak(self):
        name = "memory.peak" if self.two else "memory.max_usage_in_bytes"
        try:
            return int((self.path / name).read_text())
        except (OSError, TypeError):
            return None

    def close(self):
        if self.path:
            for _ in range(50):
                try:
                    self.path.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)
            self.path = None


def memory(pid):
    """(anonymous, file-backed and shared) resident bytes: the driver's mappings are the latter."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    lines = dict(line.split(":", 1) for line in text.splitlines())
    kib = {k: int(lines.get(k, "0 kB").split()[0]) for k in ("RssAnon", "RssFile", "RssShmem")}
    return kib["RssAnon"] * 1024, (kib["RssFile"] + kib["RssShmem"]) * 1024


class Watch(threading.Thread):
    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.over = pid, threading.Event()
        self.first = self.peak = memory(pid)
        self.start()

    def run(self):
        while not self.over.wait(0.02):
            try:
                self.peak = tuple(map(max, zip(self.peak, memory(self.pid))))
            except (OSError, ValueError):
                return

    def stop(self):
        self.over.set()
        self.join()


BLOCK = np.random.default_rng(2).bytes(MIB - 8)


def block(k):
    return k.to_bytes(8, "little") + BLOCK


def huge_up(port, name, n):
    with connect(port) as s:
        begin = time.perf_counter()
        s.sendall((f"PUT /v1/arrays/{name}?dtype=uint8&shape={n} HTTP/1.1\r\nHost: localhost\r\n"
                   f"Content-Length: {n}\r\nContent-Type: application/octet-stream\r\n\r\n").encode())
        for k in range(n // MIB):
            s.sendall(block(k))
        head = s.recv(65536)
        if not head.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"{head[:400]!r}")
        return n / (time.perf_counter() - begin) / 1e9


def huge_down(port, name, n):
    """Every block compared as it comes."""
    with connect(port) as s:
        begin = time.perf_counter()
        s.sendall(f"GET /v1/arrays/{name}/data HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            got = s.recv(65536)
            if not got:
                raise RuntimeError("the connection was closed")
            data += got
        head, _, rest = data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200") or f"Content-Length: {n}".encode() not in head:
            raise RuntimeError(f"{head[:400]!r}")
        buffer = bytearray(MIB)
        view = memoryview(buffer)
        for k in range(n // MIB):
            have = min(len(rest), MIB)
            view[:have] = rest[:have]
            rest = rest[have:]
            while have < MIB:
                got = s.recv_into(view[have:])
                if not got:
                    raise RuntimeError(f"the connection ended in block {k}")
                have += got
            if buffer != block(k):
                raise RuntimeError(f"block {k} is wrong")
        return n / (time.perf_counter() - begin) / 1e9


def huge(options):
    n = options.huge // MIB * MIB
    group = Group(options.memory)
    daemon = None
    try:
        command = group.wrap([options.arrayd, "--backend", options.backend])
        daemon = Daemon(*command)
        limited = bool(group.path)
        watch = Watch(daemon.proc.pid)
        up = huge_up(daemon.port, "huge", n)
        down = huge_down(daemon.port, "huge", n)
        watch.stop()
        anonymous, other = watch.peak
        peak = group.peak()
        enforced = "by a control group" if limited else f"not enforced ({group.why})"
        show(f"{n / 2**30:g} GiB through {options.memory / MIB:g} MiB, {enforced}: up {up:.2f}, down "
             f"{down:.2f} GB/s; at most {anonymous / MIB:.0f} MiB anonymous, {other / MIB:.0f} mapped",
             bench="huge", bytes=n, limit=options.memory, enforced=limited, why_not=group.why,
             up_gb_s=up, down_gb_s=down, group_peak=peak, anonymous_before=watch.first[0],
             anonymous_peak=anonymous, mapped_before=watch.first[1], mapped_peak=other)
        expect(limited or anonymous <= options.memory,
               f"{n} bytes took {anonymous} bytes of anonymous memory, wanted {options.memory}")
    except OSError as why:
        if daemon is None:
            raise
        time.sleep(0.2)
        raise RuntimeError(f"{why}; the daemon's status: {daemon.proc.poll()} (-9: killed for its "
                           f"memory), group's peak {group.peak()}") from why
    finally:
        if daemon:
            daemon.stop()
        group.close()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arrayd")
    p.add_argument("http_bare")
    p.add_argument("--backend", default="cuda")
    p.add_argument("--part", nargs="*", default=["first", "small", "bulk", "huge"])
    p.add_argument("--requests", type=int, default=3000)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--size", type=int, default=1 << 30)
    p.add_argument("--huge", type=int, default=4 << 30)
    p.add_argument("--memory", type=int, default=512 << 20)
    options = p.parse_args()
    failed = 0
    bare = Peer([options.http_bare], r"^(\d+)$")
    parts = {"first": lambda: first(options), "small": lambda: small(options, bare),
             "bulk": lambda: bulk(options, bare), "huge": lambda: huge(options)}
    try:
        for name in options.part:
            begin = time.monotonic()
            try:
                parts[name]()
            except (RuntimeError, OSError, AssertionError, subprocess.SubprocessError) as why:
                failed += 1
                missed.append(f"{name}: failed")
                show(f"{name}: failed: {why}"[:300], bench=name,
                     error=f"{type(why).__name__}: {why}"[:400])
            show(bench=name, seconds=time.monotonic() - begin)
    finally:
        bare.proc.kill()
    show(f"missed: {'; '.join(missed) or 'nothing'}", bench="summary", missed=missed)
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
