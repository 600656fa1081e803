#!/usr/bin/env python3
"""What an expression costs on the GPU: the daemon beside the device's own copy, torch, jax, CuPy and
cuBLAS, in one run.

    bench_gpu.py ARRAYD [--quick] [--size 512] [--plane 16384] [--rounds 15] [--budget SECONDS]
                 [--only KEY…] [--groups NAME…] [--backend cuda]

Prints one JSON line a case. Times are the median of the rounds, in milliseconds, by device events:
the daemon's from Server-Timing (gpu;dur), the peers' as gpu_peers.py says. "ms" has the result go
into an existing array, "ms_new" into a new one. "fraction": the fewest bytes the case must move, over
the time, over the rate of a device-to-device copy of one such array in the same rounds (bytes read
plus bytes written). "ratio": the best peer's time over ours, more is better. Results, the peers' too,
are checked against float64 before they are timed; contestants take turns. A peer that is missing,
fails or comes too late for --budget is named with the reason. The last line sums up what was missed.
"""
import argparse
import collections
import json
import re
import socket
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

from gpu_peers import Checker, open_peers

SIZE, PLANE = 512, 16384

Case = collections.namedtuple(
    "Case", "key expr inputs formula increment target stencil reverses kernel wanted ratio moves dtype more",
    defaults=(False, None, False, None, None, None, None, None, None, {}))

CLAMPED_3D = """int w = width, p = i, k = p % w, j = p / w % w, l = p / (w * w);
T x = a[p];
out = (a[k + 1 < w ? p + 1 : p] - 2 * x + a[k > 0 ? p - 1 : p]) +
      (a[j + 1 < w ? p + w : p] - 2 * x + a[j > 0 ? p - w : p]) +
      (a[l + 1 < w ? p + w * w : p] - 2 * x + a[l > 0 ? p - w * w : p])"""
CLAMPED_2D = """int w = width, p = i, k = p % w, j = p / w; T x = a[p];
out = (a[k + 1 < w ? p + 1 : p] - 2 * x + a[k > 0 ? p - 1 : p]) +
      (a[j + 1 < w ? p + w : p] - 2 * x + a[j > 0 ? p - w : p])"""

# In the daemon's language; an increment's target is "out". Peers compute formula(m, *inputs), and
# add it to their copy of target where it is an increment. wanted: fraction. ratio: to the best peer.
CASES = [
    Case("add", "out+b", "b", lambda m, b: b, True, "a", kernel="out += b", wanted=1.0, ratio=0.98),
    Case("rational", "out+(1/a+2*a*b)", "ab", lambda m, a, b: 1 / a + 2 * a * b, True, "c",
         kernel="out += 1 / a + 2 * a * b", wanted=0.98, ratio=0.98),
    Case("relu", "where(a>0,a,0)", "a", lambda m, a: m.where(a > 0, a, 0.0),
         kernel="out = a > 0 ? a : 0", wanted=0.93, ratio=1.0),
    Case("distance", "where(a>=b,a-b,b-a)", "ab", lambda m, a, b: m.where(a >= b, a - b, b - a),
         kernel="out = a >= b ? a - b : b - a", wanted=0.97, ratio=0.98),
    Case("transcendental", "exp(-a*a)*sin(b)+sqrt(abs(a))", "ab",
         lambda m, a, b: m.exp(-a * a) * m.sin(b) + m.sqrt(m.abs(a)),
         kernel="out = exp(-a * a) * sin(b) + sqrt(abs(a))", wanted=0.96, ratio=0.98),
    Case("transpose", "a+b_reversed", "ab", lambda m, a, b: a + m.reversed_axes(b), reverses="b",
         kernel="out = a + b", wanted=0.90, ratio=1.0),
    Case("shift", "shift(a,[1,0,0])-a", "a", lambda m, a: m.shifted(a, 1, 0) - a, stencil=True,
         kernel="int p = i, q = p + width * width; out = a[q < _ind.size() ? q : p] - a[p]",
         wanted=0.93, ratio=1.0),
    Case("laplacian", "laplacian(a)", "a", lambda m, a: m.laplacian(a), stencil=True,
         kernel=CLAMPED_3D, wanted=0.93, ratio=1.0),
    Case("heat", "a+0.1*laplacian(a)", "a", lambda m, a: a + 0.1 * m.laplacian(a), stencil=True,
         kernel=CLAMPED_3D.replace("out = (", "T s = (") + "; out = x + T(0.1) * s",
         wanted=0.93, ratio=1.0),
]


def reduction(key, expr, name, axis, inputs="a", wanted=0.95, moves=1, dtype=None, of=None):
    """moves: arrays read and written, as often as they must be; what is left of one is nothing."""
    return Case(key, expr, inputs, lambda m, *x: m.reduce(name, of(*x) if of else x[0], axis),
                wanted=wanted, ratio=0.98, moves=moves, dtype=dtype)


REDUCTIONS = [
    *(reduction(f"{name}_{'all' if axis is None else axis}", f"{name}(a, {axis})", name, axis)
      for name in ("sum", "max") for axis in (None, 0, 1, 2)),
    reduction("mean_all", "mean(a)", "mean", None), reduction("mean_2", "mean(a, 2)", "mean", 2),
    reduction("squares", "sum((a-b)**2)", "sum", None, "ab", moves=2, of=lambda a, b: (a - b) ** 2),
    reduction("var_all", "var(a)", "var", None, wanted=0.45),
    reduction("var_0", "var(a, 0)", "var", 0, wanted=0.45),
    reduction("argmax_all", "argmax(a)", "argmax", None, wanted=0.90, dtype="int64"),
    reduction("argmax_0", "argmax(a, 0)", "argmax", 0, wanted=0.90, dtype="int64"),
    reduction("argmax_2", "argmax(a, 2)", "argmax", 2, wanted=0.90, dtype="int64"),
    *(reduction(f"cumsum_{axis}", f"cumulative_sum(a, {axis})", "cumsum", axis, wanted=0.80, moves=2)
      for axis in (2, 1, 0)),
    reduction("cumsum_flat", "cumulative_sum(a_flat)", "cumsum", 0, wanted=0.80, moves=2,
              of=lambda a: a.reshape(-1)),
    reduction("cumsum_tall", "cumulative_sum(a_tall, 0)", "cumsum", 0, wanted=0.40, moves=2,
              of=lambda a: a.reshape(-1, 4)),
]
PLANE_CASE = Case("laplacian_2d", "laplacian(a)", "a", lambda m, a: m.laplacian(a), stencil=True,
                  kernel=CLAMPED_2D, wanted=0.95, ratio=1.0)


def window_sum(m, a, weights, mode):
    """correlate(a, weights, mode, 0.5) over its definition: a sum of slices of a, extended beyond its edges."""
    wide = a
    for axis, n in enumerate(weights.shape):
        length, low = a.shape[axis], n // 2
        at = np.arange(-low, length + n - 1 - low)
        if mode == "wrap":
            at = at % length
        elif mode in ("reflect", "symmetric"):
            fold = 2 * length - 2 * (mode == "reflect")
            at = at % fold
            at = np.where(at < length, at, fold - (mode == "symmetric") - at)
        wide = wide[(slice(None),) * axis + (np.clip(at, 0, length - 1).tolist(),)]
        if mode in ("constant", "self"):
            outside = 0.5 if mode == "constant" else np.nan
            wide[(slice(None),) * axis + (slice(0, low),)] = outside
            wide[(slice(None),) * axis + (slice(low + length, None),)] = outside
    total = 0
    for j in np.ndindex(*weights.shape):
        x = wide[tuple(slice(k, k + n) for k, n in zip(j, a.shape))]
        total = total + float(weights[j]) * (m.where(x == x, x, a) if mode == "self" else x)
    return total


def windows(extents, rank, wanted):
    """A case for each boundary; weights that all differ, of a sum near 1."""
    weights = np.random.default_rng(extents).permutation(extents ** rank).reshape((extents,) * rank) + 1.0
    weights = np.round(weights / weights.sum(), 6)
    for mode in ("self", "clamp", "wrap", "reflect", "symmetric", "constant"):
        yield Case("x".join([str(extents)] * rank) + "_" + mode, f"correlate(a, {json.dumps(weights.tolist())}, '{mode}', 0.5)",
                   "a", lambda m, a, mode=mode: window_sum(m, a, weights, mode), wanted=wanted)


def factored(extents, rank, wanted):
    """Weights that are an outer product, of a sum near 1, with fast_math; of the boundaries, three."""
    row = np.exp(-0.5 * ((np.arange(extents) - extents // 2) / (0.25 * extents)) ** 2)
    weights = np.ones(())
    for _ in range(rank):
        weights = np.multiply.outer(weights, row / row.sum())
    for mode in ("self", "clamp", "constant"):
        yield Case("x".join([str(extents)] * rank) + f"_{mode}_fast", f"correlate(a, {json.dumps(weights.tolist())}, '{mode}', 0.5)",
                   "a", lambda m, a, mode=mode: window_sum(m, a, weights, mode), wanted=wanted, more={"fast_math": True})


# 5x5x5: 2.5 ms where a copy takes 0.256, with fast_math 1 ms
WINDOWS = [*windows(3, 3, 0.4), *windows(5, 3, 0.10), *factored(3, 3, 0.5), *factored(5, 3, 0.25)]
WINDOWS_2D = [*windows(3, 2, 0.8), *windows(5, 2, 0.6), *windows(7, 2, 0.4), *factored(5, 2, 0.7), *factored(7, 2, 0.6)]
COPY = Case("copy", "a", "a", lambda m, a: a)
AIM = 0.10  # other types, odd sizes and offset views may be that much below


class Refused(RuntimeError):
    """A request that was answered with an error."""


class Daemon:
    """One keep-alive connection; several requests may be sent at once and are answered in turn."""

    def __init__(self, *command):
        command = [*command, "--listen", "127.0.0.1:0"]
        self.proc = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                     text=True)
        lines = []
        while True:
            line = self.proc.stderr.readline()
            lines.append(line)
            if not line:
                raise RuntimeError(f"{' '.join(command)} does not start: {''.join(lines).strip()}")
            if found := re.search(r"ready .*listen=127\.0\.0\.1:(\d+)", line):
                break
        threading.Thread(target=self.proc.stderr.read, daemon=True).start()
        self.port = int(found[1])
        self.ready_line = line.strip()
        self.sock = socket.create_connection(("127.0.0.1", self.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    @staticmethod
    def request(method, path, body=None, accept="application/json"):
        data = json.dumps(body).encode() if body is not None else b""
        return (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n"
                "Content-Type: application/json\r\n"
                f"Content-Length: {len(data)}\r\n\r\n").encode() + data

    def reply(self, into=None):
        """(Server-Timing as a dictionary, body); a body of known size may go straight to memory."""
        while b"\r\n\r\n" not in self.rest:
            block = self.sock.recv(65536)
            if not block:
                raise RuntimeError("the daemon closed the connection")
            self.rest += block
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        head = head.decode()
        status = int(head.split(" ")[1])
        length = int((re.search(r"\r\ncontent-length: (\d+)", head, re.I) or [0, 0])[1])
        timing = {k: float(v) for k, v in
                  re.findall(r"(\w+);dur=([\d.]+)", (re.search(r"server-timing: (.*)", head, re.I) or
                                                     ["", ""])[1])}
        if into is None or status >= 300 or len(into) != length:
            into = None
            body = bytearray(length)
        view = memoryview(into if into is not None else body)
        have = min(len(self.rest), length)
        view[:have] = self.rest[:have]
        self.rest = self.rest[have:]
        while have < length:
            got = self.sock.recv_into(view[have:])
            if not got:
                raise RuntimeError("the daemon closed the connection")
            have += got
        if status >= 300:
            raise Refused(f"{status}: {bytes(view)[:300]!r}")
        return timing, view if into is not None else bytes(body)

    def together(self, *requests):
        """Sends all at once; their replies. One that failed raises when all have come."""
        self.sock.sendall(b"".join(requests))
        replies, failed = [], None
        for _ in requests:
            try:
                replies.append(self.reply())
            except Refused as why:
                failed = failed or why
        if failed:
            raise failed
        return replies

    def ask(self, method, path, body=None, **options):
        _, content = self.together(self.request(method, path, body, **options))[0]
        return json.loads(content) if content[:1] in (b"{", b"[") else content

    def fetch(self, name, shape, dtype):
        a = np.empty(shape, dtype)
        self.sock.sendall(self.request("GET", f"/v1/arrays/{name}/data",
                                       accept="application/octet-stream"))
        _, got = self.reply(memoryview(a.reshape(-1)).cast("B"))
        if len(got) != a.nbytes:
            raise RuntimeError(f"{name}: {len(got)} bytes instead of {a.nbytes}")
        return a

    def device_ms(self, *requests, of):
        """Sends the requests at once and then asks for an element of the array `of`, which waits for
        the work: its Server-Timing tells what the device spent on it; None: it was over already."""
        corner = self.request("GET", f"/v1/arrays/{of[0]}/data" +
                              ("?index=" + ",".join("0" * of[1]) if of[1] else ""))
        timing, _ = self.together(*requests, corner)[-1]
        ms = timing.get("gpu", timing.get("cpu", 0))
        return ms if ms > 0 else None

    def ready(self):
        try:
            self.ask("GET", "/readyz")
            return True
        except (RuntimeError, OSError):
            return False

    def stop(self):
        self.sock.close()
        self.proc.terminate()
        try:
            return self.proc.wait(30)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            return self.proc.wait()


class Ours:
    """The daemon as a contestant, over arrays of one shape."""

    def __init__(self, group, daemon, shape, dtype, offset=False):
        self.group, self.daemon, self.dtype = group, daemon, dtype
        # An offset view: one more element at the start of each row, left out again.
        self.shape, rank = tuple(shape), len(shape)
        stored = (*shape[:-1], shape[-1] + 1) if offset else shape
        names = "abc" if rank > 1 and shape[0] == shape[-1] and rank == 3 else "a"
        for i, name in enumerate(names):
            random = {"distribution": "uniform", "seed": i + 1, "low": -1.0 if name != "b" else 0.5,
                      "high": 1.0 if name != "b" else 1.5}
            self.make(name, {"shape": stored, "dtype": dtype, "random": random}, offset)
        for name in ("out", "spare"):
            self.make(name, {"shape": stored, "dtype": dtype}, offset)
        self.out_shape, self.out_dtype = self.shape, dtype
        if "b" in names:
            daemon.ask("POST", "/v1/arrays/a/views", {"name": "a_flat", **(
                {} if offset else {"reshape": [int(np.prod(shape))]})})
            if shape[-1] % 4 == 0 and not offset:
                daemon.ask("POST", "/v1/arrays/a/views", {"name": "a_tall", "reshape": [int(np.prod(shape)) // 4, 4]})
            daemon.ask("POST", "/v1/arrays/b/views", {"permute": [2, 1, 0], "name": "b_reversed"})
        self.arrays = {name: daemon.fetch(name, shape, dtype) for name in names}
        self.nbytes = self.arrays["a"].nbytes
        self.spacer = daemon.request("POST", "/v1/evaluate", {"expr": "a", "out": "spare"})

    def make(self, name, body, offset):
        if not offset:
            self.daemon.ask("PUT", f"/v1/arrays/{name}", body)
            return
        self.daemon.ask("PUT", f"/v1/arrays/{name}_stored", body)
        index = ", ".join([":"] * (len(body["shape"]) - 1) + ["1:"])
        self.daemon.ask("POST", f"/v1/arrays/{name}_stored/views", {"index": index, "name": name})

    def aim_at(self, case, shape):
        """The array that a reduction's result goes to."""
        if case.moves:
            self.out_shape, self.out_dtype = tuple(shape), case.dtype or self.dtype
            self.daemon.ask("PUT", "/v1/arrays/out", {"shape": self.out_shape, "dtype": self.out_dtype})

    def evaluate(self, case, new=False):
        target = {"name": "fresh"} if new else {"out": "spare" if case is COPY else "out"}
        return self.daemon.request("POST", "/v1/evaluate", {"expr": case.expr, **target, **case.more})

    def once(self, case):
        """Runs the case for the first time; what it takes to get its kernel, and the result."""
        if case.increment:
            self.daemon.ask("POST", "/v1/evaluate", {"expr": case.target, "out": "out"})
        timing, _ = self.daemon.together(self.evaluate(case))[0]
        return timing.get("compile", 0), self.daemon.fetch("out", self.out_shape, self.out_dtype)

    def time(self, case, new=False):
        rank = len(self.shape if case is COPY else self.out_shape)
        return self.daemon.device_ms(self.spacer, self.evaluate(case, new),
                                     of=("fresh" if new else "spare" if case is COPY else "out", rank))

    def time_copy_route(self):
        """POST /copy, whose result has no name: asked for behind a spacer."""
        d = self.daemon
        _, copied = d.together(self.spacer, d.request("POST", "/v1/arrays/a/copy"))
        ref = json.loads(copied[1])["id"]
        ms = d.device_ms(of=(ref, len(self.shape)))
        d.together(d.request("DELETE", f"/v1/arrays/{ref}"))
        return ms

    def kernels(self, case):
        try:
            plan = self.daemon.ask("POST", "/v1/explain", {"expr": case.expr, "out": "out", **case.more})
        except RuntimeError as why:
            return {"explain": str(why)}
        forms = [k.get("shape") for k in plan["kernels"]]
        row = {"kernels": len(forms), "forms": "+".join(map(str, forms)),
               "bytes": plan["bytes_read"] + plan["bytes_written"]}
        registers = [k["registers"] for k in plan["kernels"] if "registers" in k]
        return {**row, "registers": registers} if registers else row

    def free(self):
        self.arrays = {}
        while names := [x["id"] for x in self.daemon.ask("GET", "/v1/arrays?limit=1000")["arrays"]]:
            self.daemon.together(*(self.daemon.request("DELETE", f"/v1/arrays/{ref}")
                                   for ref in names))


def median(times):
    times = [t for t in times if t is not None]
    return statistics.median(times) if times else None


def rounded(x):
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    return float(f"{x:.4g}") if isinstance(x, float) else x


class Bench:
    def __init__(self, options):
        self.options = options
        self.begin = time.monotonic()
        self.daemon = self.start()
        self.info = self.daemon.ask("GET", "/v1/info")
        self.peers, self.missing = open_peers(options.quick)
        self.checker = Checker(self.peers)
        # Who copies: torch, else CuPy, else the daemon itself.
        self.copier = next((p for p in self.peers if hasattr(p, "prepare_copy")), None)
        self.missed = []
        self.show(bench="machine", devices=[d["name"] for d in self.info["devices"]],
                  backend=self.info["backend"], missing=self.missing,
                  seconds_to_start=time.monotonic() - self.begin)

    def start(self):
        return Daemon(self.options.arrayd, "--backend", self.options.backend)

    def show(self, **row):
        print(json.dumps(rounded(row)), flush=True)

    def table(self, row):
        """The same for a reader, on stderr."""
        def number(key, digits=3):
            return f"{row[key]:.{digits}f}" if row.get(key) is not None else "-"
        peer = f"; {number('ratio')} of {row['best_peer']}" if "best_peer" in row else ""
        print(f"| {row['group']:7} {row['case']:14} {number('ms'):>6} ms  fraction "
              f"{number('fraction')}, new {number('fraction_new')}, "
              f"wanted {number('wanted', 2)}{peer}", file=sys.stderr, flush=True)

    def late(self, seconds=0):
        return time.monotonic() - self.begin + seconds > self.options.budget

    def contestants(self, case, want, with_peers):
        """The peers that computed the case rightly, and what is wrong with the others."""
        good, notes = [], {}
        for peer in self.peers if with_peers else []:
            if peer.stencils_only and not case.stencil:
                continue
            if self.options.quick and not (case.stencil or case.reverses or case.moves or case.key == "relu"):
                continue
            if self.late(4):
                notes[peer.name] = "left out: no time"
                continue
            try:
                peer.prepare(case)
                peer.run()
                # Where the greatest of equal numbers is, libraries do not agree.
                for planes in (slice(0, 3), slice(-3, None)) if want.ndim else (...,):
                    if case.dtype:
                        break
                    if n := self.checker.differs(want, np.array(peer.result(planes)), planes):
                        raise ValueError(f"{n} wrong elements")
                for _ in range(2):
                    peer.time()
                good.append(peer)
            except NotImplementedError:
                pass
            except Exception as why:
                notes[peer.name] = f"failed: {type(why).__name__}: {why}"[:200]
        return good, notes

    def run(self, ours, case, wanted, with_peers, copy=None):
        want = self.checker.reference(case, ours.arrays)
        ours.aim_at(case, want.shape)
        compile_ms, got = ours.once(case)
        if wrong := self.checker.differs(want, got):
            self.missed.append(f"{ours.group} {case.key}: wrong")
            self.show(group=ours.group, case=case.key, expr=case.expr, shape=ours.shape,
                      dtype=ours.dtype, error=f"{wrong} of {got.size} elements are wrong")
            return
        good, notes = self.contestants(case, want, with_peers)
        del want, got
        for new in (False, True):
            for _ in range(2):
                ours.time(case, new)
        copies, times, news = [], [], []
        theirs = {peer.name: [] for peer in good}
        for _ in range(self.options.rounds):
            copies.append(copy.time() if copy else ours.time(COPY))
            times.append(ours.time(case))
            news.append(ours.time(case, True))
            for peer in good:
                theirs[peer.name].append(peer.time())
        self.report(ours, case, wanted, compile_ms, median(copies), times, median(news),
                    {k: median(v) for k, v in theirs.items()}, notes)

    def report(self, ours, case, wanted, compile_ms, copy_ms, times, new, theirs, notes):
        ms = median(times)
        row = {"group": ours.group, "case": case.key, "expr": case.expr, "shape": ours.shape,
               "dtype": ours.dtype, "compile_ms": compile_ms,
               "samples": sum(t is not None for t in times), "ms": ms, "ms_new": new,
               "copy_ms": copy_ms, "wanted": wanted}
        if ms and copy_ms:
            # What a copy takes for each array that must be read or written, halved: it does both.
            floor = copy_ms * (case.moves or len(case.inputs) + 1 + case.increment) / 2
            row |= {"copy_tb_s": 2 * ours.nbytes / copy_ms / 1e9, "fraction": floor / ms,
                    "fraction_new": floor / new if new else None}
            if wanted and row["fraction"] < wanted:
                self.missed.append(f"{ours.group} {case.key}: fraction {row['fraction']:.3f}, "
                                   f"wanted {wanted:.2f}")
            if theirs:
                best = min(theirs, key=theirs.get)
                row |= {"best_peer": best, "ratio": theirs[best] / ms, "ratio_wanted": case.ratio}
                if case.ratio and row["ratio"] < case.ratio:
                    self.missed.append(f"{ours.group} {case.key}: {row['ratio']:.3f} of {best}, "
                                       f"wanted {case.ratio:.2f}")
                row["peers"] = {k: {"ms": v, "fraction": floor / v} for k, v in theirs.items()}
        else:
            self.missed.append(f"{ours.group} {case.key}: no device time")
        self.show(**row, **({"peers_missing": notes} if notes else {}), **ours.kernels(case))
        self.table(row)

    def group(self, name, shape, dtype, cases, offset=False, with_peers=False, aim=0.0):
        cases = [c for c in cases if not self.options.only or c.key in self.options.only]
        if not cases:
            return
        if self.late(6):
            self.show(group=name, skipped="no time")
            self.missed.append(f"{name}: not measured")
            return
        ours = Ours(name, self.daemon, shape, dtype, offset)
        copier = self.copier
        try:
            for peer in self.peers if with_peers else [copier] if copier else []:
                peer.load(ours.arrays if with_peers else {"a": ours.arrays["a"]})
            if copier:  # an instance of its own: cases come and go in the contestants'
                copier = type(self.copier).__new__(type(self.copier))
                copier.__dict__.update(self.copier.__dict__)
                copier.prepare_copy()
                copier.time()
            if name == "main":
                ours.once(COPY)
                route = [ours.time_copy_route() for _ in range(5)]
                engine = [ours.time(COPY) for _ in range(self.options.rounds)]
                device = [copier.time() for _ in range(self.options.rounds)] if copier else []
                self.show(bench="copy", bytes=ours.nbytes, copy_route_ms=median(route),
                          expression_ms=median(engine), device_copy_ms=median(device),
                          device_copy_by=copier.name if copier else None)
            for case in cases:
                if self.late(2):
                    self.missed.append(f"{name} {case.key}: not measured")
                    continue
                try:
                    wanted = round(case.wanted - aim, 3) if case.wanted else None
                    self.run(ours, case, wanted, with_peers, copier)
                except (RuntimeError, MemoryError, OSError) as why:
                    self.missed.append(f"{name} {case.key}: failed")
                    self.show(case=case.key, group=name, error=f"{type(why).__name__}: {why}"[:400])
                    if not self.daemon.ready():
                        raise
        finally:
            for peer in self.peers:
                peer.load({})
            if self.daemon.ready():
                ours.free()

    def group_or_failure(self, name, *args, **options):
        """A group that cannot go on is over; the next one gets a daemon that works."""
        if self.options.groups and name not in self.options.groups:
            return
        try:
            self.group(name, *args, **options)
        except Exception as why:
            self.missed.append(f"{name}: failed")
            self.show(group=name, error=f"{type(why).__name__}: {why}"[:400])
            if not self.daemon.ready():
                self.show(bench="restart", status=self.daemon.stop())
                self.daemon = self.start()

    def all(self):
        n, f32 = self.options.size, "float32"
        self.group_or_failure("main", (n,) * 3, f32, CASES, with_peers=True)
        self.group_or_failure("plane", (self.options.plane,) * 2, f32, [PLANE_CASE],
                              with_peers=True)
        self.group_or_failure("reduce", (n,) * 3, f32, REDUCTIONS, with_peers=True)
        if not self.options.quick:
            self.group_or_failure("windows", (n,) * 3, f32, WINDOWS)
            self.group_or_failure("windows_2d", (self.options.plane // 2,) * 2, f32, WINDOWS_2D)
            self.group_or_failure("float64", (n,) * 3, "float64", CASES, aim=AIM)
            self.group_or_failure("odd", (n - 3,) * 3, f32, CASES, aim=AIM)
            self.group_or_failure("offset", (n,) * 3, f32, CASES, offset=True, aim=AIM)
        self.show(bench="summary", missed=self.missed, seconds=time.monotonic() - self.begin,
                  **({"missing": self.missing} if self.missing else {}))
        print(f"| missed: {'; '.join(self.missed) or 'nothing'}", file=sys.stderr, flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arrayd")
    p.add_argument("--backend", default="cuda")
    p.add_argument("--quick", action="store_true", help="fewer peers, types and rounds: under 40 s")
    p.add_argument("--size", type=int, default=SIZE)
    p.add_argument("--plane", type=int, default=PLANE)
    p.add_argument("--rounds", type=int)
    p.add_argument("--budget", type=float, help="seconds after which nothing new is begun")
    p.add_argument("--only", nargs="*", help="cases by key")
    p.add_argument("--groups", nargs="*", help="main, plane, reduce, windows, windows_2d, float64, odd, offset")
    options = p.parse_args()
    options.rounds = options.rounds or (9 if options.quick else 15)
    options.budget = options.budget or (36 if options.quick else 145)
    bench = Bench(options)
    try:
        bench.all()
    finally:
        status = bench.daemon.stop()
    # What was missed is for the reader; wrong results and a daemon that ends badly are failures.
    sys.exit(1 if status or any(x.endswith((": wrong", ": failed")) for x in bench.missed) else 0)


if __name__ == "__main__":
    main()
