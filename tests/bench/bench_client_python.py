#!/usr/bin/env python3
"""What the Python client costs beside bare HTTP, in one run.

    bench_client_python.py ARRAYD [--rounds N] [--size BYTES]

Prints one JSON line a measurement. Loops that look at a number in each step, written for NumPy, beside NumPy itself. A tiny lazy evaluation (an expression is built, sent, and its number comes back) beside the same
request's bytes sent by http.client over a connection that stays and its reply parsed, both over TCP and over a Unix socket; the floor
of both is a socket to which the bytes are written and from which the reply is read. One array up and down, beside curl doing so
with a file in memory (/dev/shm) and, down, with nothing at its end (/dev/null), and beside a bare socket that receives into memory of its own,
new each time or always the same. Results are checked before they are timed; contestants
take turns, and the best of the rounds is taken: noise only ever adds. wall: as seen by the caller; cpu: of this process's processor
time alone, which other work on the machine hardly changes.
"""
import argparse
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"
sys.path[:0] = [str(PACKAGE / "src"), str(PACKAGE / "examples")]
import arrayd  # noqa: E402
from k_means import k_means  # noqa: E402


def show(**row):
    print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}), flush=True)


class Daemon:
    def __init__(self, binary, folder):
        self.path = os.path.join(folder, "arrayd.sock")
        self.process = subprocess.Popen([binary, "--listen", "127.0.0.1:0", "--listen", f"unix:{self.path}", "--backend", "cpu"],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while not (found := re.search(r"ready listen=.*127\.0\.0\.1:(\d+)", self.process.stdout.readline())):
            assert self.process.poll() is None, f"{binary} does not start"
        self.port = int(found[1])
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


# --- tiny evaluations ---


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)


def tiny(name, url, connection, options):
    with arrayd.connect(url) as xp:
        a = xp.asarray(np.arange(16.0)).compute()
        want = float(sum(2 * i + 1 for i in range(16)))

        def lazy():
            return float(xp.sum(a * 2 + 1))

        sent, send = [], xp._transport.send
        xp._transport.send = lambda r: sent.append(r) or send(r)
        assert lazy() == want
        del xp._transport.send
        body = bytes(sent[-1].body)
        assert len(sent) == 1 and sent[-1].path == "/v1/evaluate"
        connection.connect()
        if connection.sock.family != socket.AF_UNIX:
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def bare():
            connection.request("POST", "/v1/evaluate", body, {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())["value"]

        raw = (b"POST /v1/evaluate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)) + body

        def floor():
            connection.sock.sendall(raw)
            reply = connection.sock.recv(65536)
            return json.loads(reply[reply.index(b"\r\n\r\n"):])["value"]

        contestants = {"lazy": lazy, "bare": bare, "floor": floor}
        best = {}
        for f in contestants.values():
            assert f() == want
        for _ in range(options.rounds):
            for who, f in contestants.items():
                wall, cpu = time.perf_counter(), time.thread_time()
                for _ in range(300):
                    f()
                took = (time.perf_counter() - wall) / 300, (time.thread_time() - cpu) / 300
                best[who] = tuple(map(min, took, best.get(who, took)))
        connection.close()
    us = {who: [1e6 * t for t in times] for who, times in best.items()}
    show(bench=f"tiny_{name}", lazy_us=us["lazy"][0], bare_us=us["bare"][0], floor_us=us["floor"][0], ratio=us["lazy"][0] / us["bare"][0],
         wanted_at_most=1.5, lazy_cpu_us=us["lazy"][1], bare_cpu_us=us["bare"][1], floor_cpu_us=us["floor"][1])


# --- loops ---


def stencil(xp, u, steps):
    for _ in range(steps):
        un = u + 0.1 * (xp.roll(u, 1, axis=0) + xp.roll(u, -1, axis=0) + xp.roll(u, 1, axis=1) + xp.roll(u, -1, axis=1) - 4 * u)
        change = float(xp.max(xp.abs(un - u)))
        u = un
    return change


def clusters(xp, points, rounds):
    """The sum of the centres."""
    class Points(np.ndarray):
        def __array_namespace__(self):
            return Named

    class Named:
        astype, argmin = staticmethod(lambda x, dtype: x.astype(dtype)), staticmethod(np.argmin)
        arange, sum, where, all, abs = np.arange, np.sum, np.where, np.all, np.abs

    return float(xp.sum(k_means(points.view(Points) if xp is np else points, 8, rounds)[0]))


def conjugate_gradients(xp, b, steps):
    """Of a Laplacian, with something on its diagonal, so that it has an inverse; begun at 0."""
    x, r = xp.zeros_like(b), b
    p, rs = r, xp.sum(r * r)
    for _ in range(steps):
        ap = 4.01 * p - xp.roll(p, 1, axis=0) - xp.roll(p, -1, axis=0) - xp.roll(p, 1, axis=1) - xp.roll(p, -1, axis=1)
        alpha = rs / xp.sum(p * ap)
        x, r = x + alpha * p, r - alpha * ap
        rn = xp.sum(r * r)
        if float(rn) < 1e-30:
            break
        p, rs = r + (rn / rs) * p, rn
    return float(xp.sum(x))


def loops(name, url, options):
    rng = np.random.default_rng(1)
    for loop, values, steps in ((stencil, rng.random((512, 512)), 200), (clusters, rng.random((20000, 2)), 80),
                                (conjugate_gradients, rng.random((512, 512)), 100)):
        with arrayd.connect(url) as xp:
            x = xp.asarray(values).compute()
            best = {}
            for _ in range(options.rounds):
                for lib, given in ((np, values), (xp, x)):
                    begin = time.perf_counter()
                    result = loop(lib, given, steps)
                    took = time.perf_counter() - begin
                    best[lib] = (min(took, best.get(lib, (took,))[0]), result)
                    xp.release()
            assert abs(best[np][1] - best[xp][1]) <= 1e-6 * abs(best[np][1])
        show(bench=f"{loop.__name__}_{name}", steps=steps, s=best[xp][0], numpy_s=best[np][0], ratio=best[xp][0] / best[np][0])


# --- bulk ---


def curl(*arguments):
    """Bytes a second, as curl says."""
    out = subprocess.run(["curl", "-sS", "--fail", "-w", "%{speed_upload} %{speed_download}", *arguments], capture_output=True, text=True, check=True)
    return max(map(float, out.stdout.split()[-2:]))


def bare(connection, ref, view):
    """Bytes a second of a socket from which an array is received."""
    connection.connect()
    with connection.sock as sock:
        begin = time.perf_counter()
        sock.sendall(b"GET /v1/arrays/%s/data HTTP/1.1\r\nHost: localhost\r\n\r\n" % ref.encode())
        head, n = b"", len(view)
        while not head.endswith(b"\r\n\r\n"):
            head += sock.recv(1)
        assert head.startswith(b"HTTP/1.1 200 ")
        while view:
            view = view[sock.recv_into(view):]
        return n / (time.perf_counter() - begin)


def bulk(name, url, curl_url, more, connection, options, folder):
    n = options.size // 8
    reused = np.zeros(8 * n, np.uint8)
    values = np.random.default_rng(1).random(n)
    file, back = os.path.join(folder, "up"), os.path.join(folder, "down")
    values.tofile(file)
    rates = {}

    def best(who, rate):
        rates[who] = max(rate, rates.get(who, 0))

    with arrayd.connect(url) as xp:
        for k in range(options.rounds):
            begin = time.perf_counter()
            x = xp.asarray(values).compute()
            best("up", 8 * n / (time.perf_counter() - begin))
            for _ in range(3):  # a virtual machine may have to ask its host for memory that it gave back, which is no client's doing
                begin = time.perf_counter()
                got = xp.array(x.id).numpy()
                best("down", 8 * n / (time.perf_counter() - begin))
                assert k or np.array_equal(got, values)
                del got
            best("bare_reused", bare(connection, x.id, memoryview(reused)))
            best("bare_fresh", bare(connection, x.id, memoryview(np.empty(8 * n, np.uint8))))
            del x
            xp.release()
            best("curl_up", curl(*more, "-X", "POST", "-T", file, "-H", "Content-Type: application/octet-stream", "-H", "Expect:", "-o", os.devnull,
                                 f"{curl_url}/v1/arrays?dtype=float64&shape={n}&name=by_curl"))
            best("curl_down", curl(*more, "-o", back, f"{curl_url}/v1/arrays/by_curl/data"))
            assert k or np.array_equal(np.fromfile(back), values)
            os.unlink(back)
            best("curl_nowhere", curl(*more, "-o", os.devnull, f"{curl_url}/v1/arrays/by_curl/data"))
            xp.delete("by_curl")
    gb = {who: rate / 1e9 for who, rate in rates.items()}
    show(bench=f"up_{name}", bytes=8 * n, gb_s=gb["up"], curl_gb_s=gb["curl_up"], ratio=gb["up"] / gb["curl_up"], wanted_at_least=0.8)
    show(bench=f"down_{name}", bytes=8 * n, gb_s=gb["down"], curl_gb_s=gb["curl_down"], curl_to_nothing_gb_s=gb["curl_nowhere"],
         bare_fresh_gb_s=gb["bare_fresh"], bare_reused_gb_s=gb["bare_reused"],
         ratio=gb["down"] / max(gb["curl_down"], gb["curl_nowhere"]), wanted_at_least=0.8)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("arrayd")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1 << 30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        daemon = Daemon(options.arrayd, folder)
        try:
            tcp, unix = f"http://127.0.0.1:{daemon.port}", f"unix:{daemon.path}"
            tiny("tcp", tcp, http.client.HTTPConnection("127.0.0.1", daemon.port), options)
            tiny("unix", unix, UnixConnection(daemon.path), options)
            loops("tcp", tcp, options)
            bulk("tcp", tcp, tcp, [], http.client.HTTPConnection("127.0.0.1", daemon.port), options, folder)
            bulk("unix", unix, "http://localhost", ["--unix-socket", daemon.path], UnixConnection(daemon.path), options, folder)
        finally:
            daemon.stop()


if __name__ == "__main__":
    main()
