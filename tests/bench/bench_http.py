#!/usr/bin/env python3
"""What HTTP costs: the daemon beside libmicrohttpd alone (http_bare) and raw sockets, in one run.

    bench_http.py ARRAYD HTTP_BARE [--seconds S] [--size BYTES] [--rounds N]

Prints one JSON line a measurement, with the ratio to the peer measured in the same run. Small
requests are driven by wrk, bulk ones by plain sockets. Results are checked before they are timed.
Rounds alternate between the two, the best of each is taken: noise only ever adds.
"""
import argparse
import json
import re
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

N = 1024


class Peer:
    def __init__(self, command, ready):
        self.proc = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        while True:
            line = self.proc.stdout.readline().decode()
            assert line, f"{command[0]} does not start"
            found = re.search(ready, line)
            if found:
                self.port = int(found[1])
                break
        threading.Thread(target=self.proc.stdout.read, daemon=True).start()

    def memory(self, key="VmRSS"):
        with open(f"/proc/{self.proc.pid}/status") as f:
            return int(re.search(rf"{key}:\s+(\d+) kB", f.read())[1]) * 1024

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)
        self.proc.wait(30)


def connect(port):
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def ask(port, method, path, body=b"", content_type="application/json", headers=""):
    with connect(port) as s:
        s.sendall((f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                   f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
                   ).encode() + body)
        raw = b"".join(iter(lambda: s.recv(1 << 20), b""))
    head, _, rest = raw.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), rest


def wrk(port, path, body, connections, seconds):
    """(p50 in µs, p99 in µs, requests a second)"""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as f:
        if body:
            f.write(f'wrk.method = "POST"\nwrk.body = [==[{body}]==]\n'
                    'wrk.headers["Content-Type"] = "application/json"\n')
        f.flush()
        out = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s",
                              f.name, f"http://127.0.0.1:{port}{path}"],
                             capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in out and "Socket errors" not in out, out
    unit = {"us": 1, "ms": 1e3, "s": 1e6}

    def at(percent):
        value, name = re.search(rf"{percent}%\s+([\d.]+)(us|ms|s)", out).groups()
        return float(value) * unit[name]
    return at(50), at(99), float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])


def show(**row):
    print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}),
          flush=True)


def small(name, daemon, bare, path, body, peer_path, peer_body, options, want):
    for connections in (1, 64):
        ours, peers = [], []
        for _ in range(options.rounds):
            peers.append(wrk(bare.port, peer_path, peer_body, connections, options.seconds))
            ours.append(wrk(daemon.port, path, body, connections, options.seconds))
        a = [min(x[0] for x in ours), min(x[1] for x in ours), max(x[2] for x in ours)]
        b = [min(x[0] for x in peers), min(x[1] for x in peers), max(x[2] for x in peers)]
        row = dict(bench=name, connections=connections, p50_us=a[0], p99_us=a[1], rps=a[2],
                   peer_p50_us=b[0], peer_p99_us=b[1], peer_rps=b[2])
        if connections == 1:
            show(**row, p50_ratio=a[0] / b[0], wanted_at_most=want[0])
        else:
            show(**row, rps_ratio=a[2] / b[2], wanted_at_least=want[1])


# --- bulk ---

def receive(s, n):
    buf = memoryview(bytearray(1 << 20))
    got = 0
    while got < n:
        k = s.recv_into(buf)
        assert k, f"the connection ended after {got} of {n} bytes"
        got += k


def download(port, path, n):
    with connect(port) as s:
        begin = time.perf_counter()
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += s.recv(65536)
        assert head.startswith(b"HTTP/1.1 200") and f"Content-Length: {n}".encode() in head, head
        receive(s, n - len(head.partition(b"\r\n\r\n")[2]))
        return n / (time.perf_counter() - begin) / 1e9


def upload(port, path, n):
    block = bytes(1 << 20)
    with connect(port) as s:
        begin = time.perf_counter()
        s.sendall((f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {n}\r\n"
                   "Content-Type: application/octet-stream\r\n\r\n").encode())
        for _ in range(n >> 20):
            s.sendall(block)
        head = s.recv(65536)
        assert head.startswith(b"HTTP/1.1 20"), head
        return n / (time.perf_counter() - begin) / 1e9


def raw_socket(n, up):
    """The same bytes between two processes without HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = ("import socket,sys\ns=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\n"
                "n=int(sys.argv[2])\n"
                + ("b=bytes(1<<20)\nfor _ in range(n>>20): s.sendall(b)\n" if not up else
                   "m=memoryview(bytearray(1<<20))\nwhile n>0: n-=s.recv_into(m)\ns.sendall(b'k')\n"))
        port = server.getsockname()[1]
        p = subprocess.Popen(["python3", "-c", code, str(port), str(n)])
        s, _ = server.accept()
        begin = time.perf_counter()
        if up:
            block = bytes(1 << 20)
            for _ in range(n >> 20):
                s.sendall(block)
            s.recv(1)
        else:
            receive(s, n)
        rate = n / (time.perf_counter() - begin) / 1e9
        s.close()
        p.wait()
    return rate


def bulk(daemon, bare, options):
    n = options.size
    path = f"/v1/arrays/bulk?dtype=uint8&shape={n}"
    begin = daemon.memory()
    rows = {"up": ([], [], []), "down": ([], [], [])}
    for _ in range(options.rounds):
        rows["up"][0].append(upload(daemon.port, path, n))
        rows["up"][1].append(upload(bare.port, "/sink", n))
        rows["up"][2].append(raw_socket(n, True))
        rows["down"][0].append(download(daemon.port, "/v1/arrays/bulk/data", n))
        rows["down"][1].append(download(bare.port, f"/source?n={n}", n))
        rows["down"][2].append(raw_socket(n, False))
    for way, (ours, peers, raws) in rows.items():
        show(bench=f"bulk_{way}", bytes=n, gb_s=max(ours), peer_gb_s=max(peers), raw_gb_s=max(raws),
             ratio=max(ours) / max(peers), wanted_at_least=0.7)
    # Replacing uploads into new memory while the old array lives: two arrays at the most.
    show(bench="bulk_memory", bytes=n, resident_growth=daemon.memory() - begin,
         peak=daemon.memory("VmHWM"), beyond_array_and_staging=daemon.memory("VmHWM") - begin - 2 * n,
         wanted_below=64 << 20)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("arrayd")
    parser.add_argument("http_bare")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=1 << 30)
    options = parser.parse_args()
    bare = Peer([options.http_bare], r"^(\d+)$")
    daemon = Peer([options.arrayd, "--listen", "127.0.0.1:0"], r"ready listen=127.0.0.1:(\d+)")
    try:
        data = struct.pack(f"<{N}f", *(i / 7 for i in range(N)))
        status, _ = ask(daemon.port, "PUT", f"/v1/arrays/a?dtype=float32&shape={N}", data,
                        "application/octet-stream")
        assert status == 201
        body = json.dumps({"expr": "a * 2 + 1", "inline": True})
        status, reply = ask(daemon.port, "POST", "/v1/evaluate", body.encode())
        assert status == 200
        values = json.loads(reply)["data"]
        assert len(values) == N and all(abs(v - (i / 7 * 2 + 1)) < 1e-3 for i, v in enumerate(values))
        assert ask(bare.port, "POST", "/echo", b"{}") == (200, b"{}")
        # The peer echoes as many bytes as the evaluation replies with.
        echo = json.dumps({"data": "x" * (len(reply) - 12)})
        small("health", daemon, bare, "/healthz", None, "/hello", None, options, (1.3, 0.6))
        small("evaluate_1024_inline", daemon, bare, "/v1/evaluate", body, "/echo", echo, options,
              (1.5, 0.5))
        total = json.dumps({"expr": "sum(a)"})
        small("evaluate_1024_sum", daemon, bare, "/v1/evaluate", total, "/echo", total, options,
              (1.5, 0.5))
        bulk(daemon, bare, options)
    finally:
        bare.proc.kill()
        daemon.stop()


if __name__ == "__main__":
    main()
