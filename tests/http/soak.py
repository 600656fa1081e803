#!/usr/bin/env python3
"""A mixed load for as long as one likes; at its end the daemon must have what it had at the beginning.

    tests/http/soak.py [--minutes 30] [--gpu | --real-gpu] [--seed S] [--slack MIB]        ARRAYD_BIN says which build

Four principals at once, and accounts that come and go: generated programs and expressions, whose results must be right
(tests/generated), sessions made and deleted, uploads and downloads whole, in parts and
cut off, evaluations of every kind of reply, programs that end, are cancelled, watched, resumed and forgotten, shares and
leases, exports, moves to host memory, snapshots to disk, SIGHUP with other accounts, clients that send rubbish or go away in the middle.
Every reply must be one that was expected; a 500 never is. `--gpu` is the CUDA backend on the fake driver, `--real-gpu` on
this machine's GPU, with arrays of the sizes that people have.

The whole load runs once for a while, so that caches, pools and threads are there; then everything is deleted and the baseline
is taken: descriptors, threads, resident memory, arrays, bytes, sessions, requests, jobs. After the load has run for the time
asked for, everything is deleted again and all of it must be what it was, resident memory no more than `slack` above.
"""
import argparse
import contextlib
import json
import mmap
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from client import JSON, NPY, OCTETS, npy_bytes  # noqa: E402
from conftest import Accounts, Daemon, clean, fake_gpu  # noqa: E402
from exported import present  # noqa: E402
from test_generated import play, run  # noqa: E402

MIB = 1 << 20
NAMES = ("ann", "bob", "cem", "dora")
EXPECTED = {200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 406, 408, 409, 412, 413, 415, 416, 422, 429, 503, 507}
GAUGES = ["arrayd_" + name for name in (
    "arrays", "bytes_in_use", "host_bytes_in_use", "sessions", "jobs_in_flight", "http_connections", "http_requests_in_flight",
    "http_requests_waiting", "http_worker_queue", 'http_workers_busy{work="short"}', 'http_workers_busy{work="long"}', "exports")]


def stacks(pid):
    """Where each thread of the daemon is, for one that does not answer."""
    for command in (["eu-stack", "-m", "-p", str(pid)], ["gdb", "-nx", "-p", str(pid), "-batch", "-ex", "thread apply all bt 24"]):
        if shutil.which(command[0]):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60).stdout
    return "neither eu-stack nor gdb could say where its threads are"


class Soak:
    def __init__(self, daemon, accounts, gpu, seed=0, points=4000):
        self.daemon, self.accounts, self.gpu, self.seed, self.points = daemon, accounts, gpu, seed, points
        self.ending = threading.Event()
        self.failures, self.counts, self.statuses = [], {}, {}
        self.lock = threading.Lock()

    def client(self, name):
        return self.accounts.client(self.daemon, name)

    def ask(self, c, method, path, body=None, **kw):
        """One request; its reply must be one that there may be."""
        r = c.request(method, path, body, check=False, **kw)
        with self.lock:
            key = f"{r.status} {r.code}" if r.code else str(r.status)
            self.statuses[key] = self.statuses.get(key, 0) + 1
        assert r.status in EXPECTED, f"{method} {path}: {r}"
        return r

    # --- what clients do; each is one piece of work, after which it may end ---

    def evaluations(self, c, rng):
        exprs = ["u + v", "sum(u*v)", "where(u > v, u, v)", "laplacian(u, boundary='wrap')", "exp(-u*u) + sin(v)", "mean(u, axis=0)",
                 "u[1:] - u[:-1]", "cumulative_sum(v, axis=1)", "f(u)", "nosuch + 1", "u +", "shift(u, [1, -2], 'clamp') * %d" % rng.randrange(4 if self.gpu else 99)]
        s = self.ask(c, "POST", "/v1/sessions", json_body={"ttl_s": 600}).json()["id"]
        mine = c.clone(session=s)
        shape = (rng.randrange(2, 200), rng.randrange(2, 200))
        if self.gpu:  # the fake one takes a second and more to compile a kernel
            shape = rng.choice([(8, 8), (50, 70), (199, 3)])
        u = np.arange(shape[0] * shape[1], dtype="float32").reshape(shape)
        for name in "uv":
            self.ask(mine, "POST", f"/v1/arrays?name={name}", npy_bytes(u), content_type=NPY)
        for _ in range(rng.randrange(1, 8)):
            body = {"expr": rng.choice(exprs)}
            body.update(rng.choice([{}, {"inline": True}, {"name": "w"}, {"out": "u"}]))
            self.ask(mine, "POST", "/v1/evaluate", json_body=body, accept=rng.choice([JSON, NPY, OCTETS]))
        self.ask(mine, "POST", "/v1/evaluate", json_body={"statements": ["a = u + v", "b = a*a"], "results": ["b"]})
        self.ask(mine, "POST", "/v1/explain", json_body={"expr": rng.choice(exprs)})
        got = self.ask(mine, "POST", "/v1/evaluate", json_body={"expr": "v*2"}, accept=NPY)
        if got.status == 200:
            np.testing.assert_array_equal(got.npy(), 2 * u)
        mine.close()
        self.ask(c, "DELETE", f"/v1/sessions/{s}")

    def transfers(self, c, rng):
        n = rng.choice([1, 1000, 100_000, 2_000_000])
        data = np.random.default_rng(n).integers(0, 255, n, dtype="uint8")
        a = self.ask(c, "POST", "/v1/arrays", json_body={"shape": [n], "dtype": "uint8"})
        if a.status != 201:
            return
        i = a.json()["id"]
        pieces = (data[k:k + 65536].tobytes() for k in range(0, n, 65536))
        put = self.ask(c, "PUT", f"/v1/arrays/{i}/data", pieces, chunked=True, content_type=OCTETS)
        got = self.ask(c, "GET", f"/v1/arrays/{i}/data", accept=OCTETS)
        assert put.status >= 300 or got.status != 200 or got.body == data.tobytes(), (put, got, len(got.body))
        self.ask(c, "GET", f"/v1/arrays/{i}/data", accept=OCTETS, headers={"Range": f"bytes={n // 2}-"})
        if n <= 1000:
            self.ask(c, "GET", f"/v1/arrays/{i}/data", accept=JSON)
            self.ask(c, "PUT", f"/v1/arrays/{i}/data", json_body=data.tolist())
        self.ask(c, "PATCH", f"/v1/arrays/{i}", json_body={"location": "host"})
        self.ask(c, "POST", f"/v1/arrays/{i}/resize", json_body={"shape": [n + 3]})
        view = self.ask(c, "POST", f"/v1/arrays/{i}/views", json_body={"index": "::2"})
        self.ask(c, "DELETE", f"/v1/arrays/{i}")
        if view.status == 201:
            self.ask(c, "DELETE", f"/v1/arrays/{view.json()['id']}")

    def generated(self, c, rng):
        """Right to the last bit, whatever goes on beside it; where there is no room for it, refused."""
        own = play.Daemon(self.daemon.host, self.daemon.port, c.always["Authorization"].split()[1])
        case = run.case_of(self.seed, rng.randrange(1 << 30), self.points, rng.random() < 0.5)
        try:
            o = play.play(own, case, numpy=False)
        except AssertionError as e:
            if not re.search(r": (429|507) ", str(e)):
                raise
            return
        if o.wrong and not re.search("quota|memory", o.wrong):
            raise AssertionError(f"{case['from']}: {o.wrong}\n" + "\n".join(play.curl(case)))
        own.conn.close()

    def programs(self, c, rng):
        name = f"p{rng.randrange(1 << 30)}"
        made = self.ask(c, "POST", "/v1/arrays", json_body={"name": name, "shape": [64, 64], "dtype": "float32",
                                                          "random": {"distribution": "uniform", "seed": 1}})
        body = {"body": [f"{name} = {name} + 0.1*laplacian({name}, boundary='wrap')"], "steps": rng.choice([5, 300, 10**9]),
                "record": {"m": f"max({name})"}, "record_every": 100, "snapshot": {name: 100000}}
        if body["steps"] == 10**9:
            del body["record"], body["snapshot"]
        j = self.ask(c, "POST", "/v1/programs", json_body=body)
        if j.status == 202:
            path = f"/v1/jobs/{j.json()['id']}"
            if rng.random() < 0.3:
                for events in rng.sample([path, "/v1", f"/v1/arrays/{name}"], 2):
                    self.watch(c, events, rng)
            time.sleep(rng.random() * 0.1)
            self.ask(c, "GET", path)
            self.ask(c, "DELETE", path)
            if rng.random() < 0.5:
                self.ask(c, "POST", path + "/resume?wait=1" if body["steps"] < 1000 else path + "/resume")
                self.ask(c, "DELETE", path)
            self.ask(c, "DELETE", path)
        if made.status == 201:
            self.ask(c, "DELETE", f"/v1/arrays/{name}")

    def watch(self, c, path, rng):
        """Some events, then the client is gone."""
        frames = "?frames=true" if path.startswith("/v1/arrays") and rng.random() < 0.7 else ""
        with socket.create_connection((self.daemon.host, self.daemon.port), timeout=30) as s:
            s.sendall(f"GET {path}/events{frames} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {c.always['Authorization']}\r\n\r\n".encode())
            s.recv(2000)

    def broken(self, c, rng):
        head = f"Host: localhost\r\nAuthorization: {c.always['Authorization']}\r\n"
        body = b'{"expr": "sum(exp(1 + 2))"}'
        request = (f"POST /v1/evaluate HTTP/1.1\r\n{head}Content-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body
        upload = (f"POST /v1/arrays?dtype=uint8&shape=4000000 HTTP/1.1\r\n{head}Content-Type: {OCTETS}\r\nContent-Length: 4000000\r\n"
                  f"\r\n").encode() + bytes(100_000)
        rubbish = bytes(rng.randrange(256) for _ in range(200)) + b"\r\n\r\n"
        two = b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n"
        for text in (request, upload, rubbish, two):
            with socket.create_connection((self.daemon.host, self.daemon.port), timeout=30) as s:
                s.sendall(text[:rng.randrange(len(text))])
                if rng.random() < 0.3:
                    s.shutdown(socket.SHUT_WR)
                    s.settimeout(0.05)
                    try:
                        s.recv(1000)
                    except OSError:
                        pass
        self.ask(c, "POST", "/v1/arrays", json_body={"shape": [-1]})
        self.ask(c, "POST", "/v1/evaluate", b"{", content_type=JSON)
        self.ask(c, "GET", "/v1/arrays/a-0000000000000000000000")
        self.ask(c, "POST", "/v1/arrays", json_body={"shape": [1 << 40], "dtype": "uint8"})

    def sharing(self, c, rng):
        i = self.ask(c, "POST", "/v1/arrays", json_body={"shape": [100], "dtype": "float64", "fill": 3})
        if i.status != 201:
            return
        i = i.json()["id"]
        friend = "bob" if c.always == self.client("ann").always else "ann"
        other = self.client(friend)
        self.ask(c, "POST", f"/v1/arrays/{i}/shares", json_body={"principal": friend, "access": rng.choice(["read", "write"])})
        for _ in range(4):
            self.ask(other, "POST", "/v1/evaluate", json_body={"expr": "sum(x)", "bind": {"x": i}})
            self.ask(other, "POST", "/v1/evaluate", json_body={"expr": "x + 1", "bind": {"x": i}, "out": i})
        lease = self.ask(c, "POST", f"/v1/arrays/{i}/lease", json_body={"mode": rng.choice(["read", "write"]), "ttl_s": 1})
        self.ask(other, "PUT", f"/v1/arrays/{i}/data", bytes(800), content_type=OCTETS)
        token = {"Arrayd-Lease": lease.json()["token"]} if lease.status == 201 else {}
        if rng.random() < 0.5:
            self.ask(c, "DELETE", f"/v1/arrays/{i}/lease", headers=token)
        self.ask(c, "DELETE", f"/v1/arrays/{i}/shares/{friend}")
        self.ask(c, "DELETE", f"/v1/arrays/{i}", headers=token)
        other.close()

    def exporting(self, c, rng):
        """Memory mapped here, and let go of in every way; some never come for it."""
        mine = c.clone(unix=self.daemon.unix)
        n = rng.choice([1, 1000, 200_000])
        made = self.ask(mine, "POST", "/v1/arrays", json_body={"shape": [n], "dtype": "float64", "fill": 3})
        if made.status != 201:
            mine.close()
            return
        i, leases, held = made.json()["id"], [], []
        for mode in rng.choice([["write"], ["read"], ["read", "read"], ["read", "write"]]):
            r = self.ask(mine, "POST", f"/v1/arrays/{i}/export", json_body={"mode": mode})
            if r.status != 201:
                continue
            x = r.json()
            leases.append(x["lease"])
            if rng.random() < 0.2:
                continue
            s, said, fds = present(x["socket"], x["token"])
            for fd in fds:
                if self.points > 4000:  # a GPU's memory, which only its driver maps
                    os.close(fd)
                    continue
                with mmap.mmap(fd, said["size"], mmap.MAP_SHARED, mmap.PROT_READ) as m:
                    assert np.ndarray(n, "float64", bytes(m), 8 * x["offset"])[n - 1] >= 3
                os.close(fd)
            held.append((s, x["lease"]))
        all_of_them = {"Arrayd-Lease": ", ".join(leases)}
        self.ask(mine, "POST", "/v1/evaluate", json_body={"expr": "x + 1", "bind": {"x": i}, "out": i}, headers=all_of_them)
        if rng.random() < 0.5:
            self.ask(mine, "DELETE", f"/v1/arrays/{i}", headers=all_of_them)
        for s, lease in held:
            how = rng.randrange(3)
            if how == 0:
                s.shutdown(socket.SHUT_WR)
                assert s.recv(1) == b""
            elif how == 1:
                self.ask(mine, "DELETE", f"/v1/arrays/{i}/lease", headers={"Arrayd-Lease": lease})
            s.close()
        self.ask(mine, "DELETE", f"/v1/arrays/{i}", headers=all_of_them)
        mine.close()

    def operator(self, c, rng):
        for path in ("/v1/info", "/metrics", "/healthz", "/readyz", "/v1/arrays", "/v1/sessions", "/v1/jobs", "/v1/operations"):
            self.ask(c, "GET", path)
        name = f"f{rng.randrange(1 << 30)}"
        self.ask(c, "POST", "/v1/functions", json_body={"name": name, "params": ["x"], "expr": "x*x + 1"})
        self.ask(c, "PUT", "/v1/functions/f", json_body={"params": ["x"], "expr": f"x + {rng.randrange(9)}"})
        self.ask(c, "DELETE", f"/v1/functions/{name}")
        self.ask(c, "POST", "/v1/snapshot")
        if rng.random() < 0.5:
            text = self.accounts.path.read_text().split("[passing")[0]
            self.accounts.write(text + (f"[passing{rng.randrange(3)}]\nweight = {rng.randrange(1, 9)}\n" if rng.random() < 0.7 else ""))
            self.daemon.proc.send_signal(signal.SIGHUP)
        time.sleep(0.5)

    # --- all of it ---

    def worker(self, name, work, seed, until):
        rng = random.Random(seed)
        c = self.client(name)
        try:
            while time.monotonic() < until and not self.ending.is_set():
                work(c, rng)
                with self.lock:
                    self.counts[work.__name__] = self.counts.get(work.__name__, 0) + 1
        except BaseException as e:
            with self.lock:  # the first to be told; the daemon must not go on meanwhile, nor the others end
                if not self.failures and isinstance(e, TimeoutError):
                    self.failures.append(stacks(self.daemon.pid))
                self.failures.append(f"{work.__name__}: {e!r}")
            self.ending.set()
        finally:
            c.close()

    def load(self, seconds, seed, sample=None):
        until = time.monotonic() + seconds
        works = [self.evaluations, self.transfers, self.programs, self.broken, self.sharing, self.exporting]
        threads = [threading.Thread(target=self.worker, args=(name, w, (seed, name, w.__name__).__repr__(), until))
                   for name in ("ann", "bob") for w in works]
        threads += [threading.Thread(target=self.worker, args=(name, self.generated, f"{seed} {name} {k}", until))
                    for name in ("cem", "dora") for k in range(2)]
        threads.append(threading.Thread(target=self.worker, args=("ann", self.operator, seed, until)))
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            time.sleep(min(0.5, seconds / 10))
            if sample:
                sample()
        assert self.daemon.proc.poll() is None, f"the daemon is gone:\n{self.daemon.log()[-8000:]}"
        assert not self.failures, "\n".join([*self.failures, self.daemon.log()[-8000:]])

    def look(self):
        """What the daemon has now."""
        pid = self.daemon.pid
        links = []
        for n in os.listdir(f"/proc/{pid}/fd"):  # before there is a connection to ask for the rest
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                links.append(os.readlink(f"/proc/{pid}/fd/{n}"))
        blocks = sum("memfd:" in to for to in links)
        with open(f"/proc/{pid}/status") as f:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        c = self.client("ann")
        text = self.ask(c, "GET", "/metrics").body.decode()
        c.close()
        values = dict(re.findall(r"^(\S+) ([-+.\deE]+)$", text, re.M))
        return {"descriptors": len(links) - blocks, "blocks": blocks, "threads": int(status["Threads"]),
                "rss": int(status["VmRSS"].split()[0]) * 1024, **{g: int(float(values[g])) for g in GAUGES}}

    def rested(self):
        """The same once everybody's things are deleted and nothing is under way."""
        for name in NAMES:
            c = self.client(name)
            clean(c)
            c.close()
        last, since, deadline = None, time.monotonic(), time.monotonic() + 60
        while time.monotonic() < deadline:
            now = self.look()
            key = {k: v for k, v in now.items() if k != "rss"}
            if key != last:
                last, since = key, time.monotonic()
            elif time.monotonic() - since > 3 and not now["arrayd_exports"]:
                break
            time.sleep(0.3)
        return now


def differences(before, after, slack, threads=0):
    """What there is more of than there was, by more than so many threads. A block of memory that can be exported has a descriptor, and a few
    that nobody was given are kept for the next arrays of their sizes."""
    allowed = {"threads": threads, "blocks": 8}
    wrong = [f"{k}: {before[k]} before, {after[k]} after" for k in before
             if k != "rss" and after[k] - before[k] > allowed.get(k, 0)]
    if after["rss"] > before["rss"] + slack:
        wrong.append(f"resident memory: {before['rss'] / MIB:.1f} MiB before, {after['rss'] / MIB:.1f} after, slack {slack / MIB:.0f}")
    return wrong


def soak(seconds, warm, slack, gpu=False, say=None, seed=2, real=False):
    """Runs it; returns what was seen. AssertionError where something is not as it was."""
    with tempfile.TemporaryDirectory(prefix="arrayd-soak-") as folder:
        accounts = Accounts(pathlib.Path(folder))
        accounts.add("ann", role="operator")
        accounts.add("bob", role="operator", device_memory="200MiB", requests=50)
        for name in ("cem", "dora"):
            accounts.add(name, role="operator", weight=2)
        args, environment = ["--backend", "cpu"], {"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=0:quarantine_size_mb=16"}
        if gpu:
            args, environment = ["--backend", "cuda", "--kernel-cache", "none"], {**environment, **fake_gpu()}
        if real:
            # as few kernels in memory as there are soon, so that the baseline has all of them
            args = ["--backend", "cuda", "--kernel-cache-entries", "500"]
        d = Daemon(*args, "--accounts", str(accounts.path), "--state-dir", folder + "/state", "--memory-limit",
                   "8GiB" if real else "256MiB", "--evict",
                   "--job-retention", "5", "--allow-export", "--export-timeout", "2", "--export-threshold", "1MiB", "--listen", "127.0.0.1:0",
                   "--listen", f"unix:{folder}/s", environment=environment)
        s = Soak(d, accounts, gpu, seed, 2_000_000 if real else 4000)
        peak, samples = {}, []

        def sample():
            now = s.look()
            for k, v in now.items():
                peak[k] = max(v, peak.get(k, 0))
            samples.append(now["rss"])
            if say and len(samples) % 60 == 1:
                say(json.dumps({"minutes": round((time.monotonic() - begun) / 60, 1), **now}))

        try:
            begun = time.monotonic()
            s.load(warm, f"{seed} warm")
            before = s.rested()
            s.counts.clear(), s.statuses.clear()
            s.load(seconds, str(seed), sample)
            after = s.rested()
        finally:
            d.stop()
        report = {"seconds": seconds, "before": before, "after": after, "peak": peak, "pieces": s.counts,
                  "replies": dict(sorted(s.statuses.items()))}
        # the fake driver has a thread for each stream, and the last to be released stays for the next
        wrong = differences(before, after, slack, 2 if gpu else 0)
        assert not wrong, (wrong, report)
        return report


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=30)
    p.add_argument("--warm", type=float, default=120, help="seconds before the baseline is taken")
    p.add_argument("--slack", type=float, default=48, help="MiB of resident memory")
    p.add_argument("--gpu", action="store_true")
    p.add_argument("--real-gpu", action="store_true")
    p.add_argument("--seed", type=int, default=2)
    a = p.parse_args()
    print(json.dumps(soak(60 * a.minutes, a.warm, a.slack * MIB, a.gpu, lambda line: print(line, flush=True), a.seed, a.real_gpu)))
