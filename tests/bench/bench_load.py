#!/usr/bin/env python3
"""How the daemon holds up under many and under greedy clients, beside libmicrohttpd alone (http_bare)
in the same run.

    bench_load.py ARRAYD HTTP_BARE [--part rate|many|tail …] [--seconds S] [--rounds N] [--size BYTES]
                  [--option=--NAME=VALUE …]

rate  tiny evaluations on 64 keep-alive connections: requests a second over the peer's, which echoes
      as many bytes
many  1,000 connections open at a time, every one of them served several times over without an error
tail  p99 of one client that evaluates something tiny on one connection: alone, while two uploads and
      two downloads go on without a pause (128 KiB blocks at the peer), and while another client floods
      tiny requests on 64 connections besides; each over its own value alone, which is the least of
      the rounds: where other work disturbs the machine, what is alone suffers most

One JSON line a measurement, and a line that begins with | for a reader. Contestants take turns, and
the median over the rounds is given. On two cores clients and server compete; both contestants bear
that alike.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import resource
import select
import socket
import statistics
import struct
import sys
import time

import bench_http
from bench_http import Peer, ask, connect, wrk

N = 16
MANY = 1000
BLOCK = 128 << 10
LOADS = ("alone", "transfers", "flood")
WANTED = {"transfers": 10, "flood": 20}
missed = []


def show(text, holds, **row):
    bench_http.show(**row)
    print(f"| {text}{'' if holds else '   MISSED'}", file=sys.stderr, flush=True)
    if not holds:
        missed.append(text)


class Contestant:
    """One server, and the requests to it that are compared."""

    def __init__(self, peer, path, body, up, down):
        self.peer, self.port, self.path, self.body = peer, peer.port, path, body
        self.up, self.down = up, down

    def wrk(self, connections, seconds):
        return wrk(self.port, self.path, self.body, connections, seconds)

    def processor_time(self):
        """Seconds that its threads have run."""
        total = 0
        for path in pathlib.Path(f"/proc/{self.peer.proc.pid}/task").glob("*/schedstat"):
            total += int(path.read_text().split()[0])
        return total / 1e9


# --- (a) ---

def rate(daemon, bare, options):
    rows = []
    for _ in range(options.rounds):
        row = []
        for contestant in (daemon, bare):
            before = contestant.processor_time()
            rps = contestant.wrk(64, options.seconds)[2]
            row += [rps, (contestant.processor_time() - before) / (rps * options.seconds) * 1e6]
        rows.append(row)
    ratio = statistics.median(r[0] / r[2] for r in rows)
    rps, cpu_us, peer_rps, peer_cpu_us = (statistics.median(r[i] for r in rows) for i in range(4))
    show(f"tiny evaluations, 64 connections: {ratio:.2f} of libmicrohttpd's requests a second "
         f"(wanted: at least 0.5); {cpu_us:.1f} us of a processor each, libmicrohttpd's "
         f"{peer_cpu_us:.1f}", ratio >= 0.5, bench="load_rate", connections=64, ratio=ratio,
         ratios=[round(r[0] / r[2], 3) for r in rows], rps=rps, peer_rps=peer_rps, cpu_us=cpu_us,
         peer_cpu_us=peer_cpu_us, wanted_at_least=0.5)


# --- (b) ---

def many(daemon, options):
    request = (f"POST {daemon.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
               f"Content-Length: {len(daemon.body)}\r\n\r\n{daemon.body}").encode()
    begin = time.perf_counter()
    sockets = [connect(daemon.port) for _ in range(MANY)]
    served = errors = 0
    poll = select.epoll()
    by_fd = {s.fileno(): s for s in sockets}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    for _ in range(options.rounds):
        waiting = {s.fileno(): b"" for s in sockets}
        for s in sockets:
            s.sendall(request)
        while waiting:
            events = poll.poll(30)
            assert events, f"{len(waiting)} connections have no reply after 30 s"
            for fd, _ in events:
                got = by_fd[fd].recv(65536)
                assert got and fd in waiting, "a connection was closed"
                waiting[fd] += got
                head, blank, rest = waiting[fd].partition(b"\r\n\r\n")
                if not blank:
                    continue
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                if len(rest) == length:
                    served += 1
                    errors += not head.startswith(b"HTTP/1.1 200")
                    del waiting[fd]
    seconds = time.perf_counter() - begin
    for s in sockets:
        s.close()
    show(f"{MANY} connections open: {served} requests served, {errors} errors, in {seconds:.2f} s",
         served == MANY * options.rounds and not errors, bench="load_many", connections=MANY,
         served=served, errors=errors, seconds=seconds)


# --- (c) ---

def transfer(port, path, size, up, moved):
    """One client that up- or downloads without a pause, and costs next to nothing itself: it sends
    from a file in memory and drops what it receives unread."""
    source = os.memfd_create("zeros")
    os.ftruncate(source, size)
    os.posix_fallocate(source, 0, size)
    unread = bytearray(4 << 20)
    while True:
        with connect(port) as s:
            s.sendall((f"{'PUT' if up else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\n"
                       f"Content-Type: application/octet-stream\r\n"
                       f"Content-Length: {size if up else 0}\r\n\r\n").encode())
            at = 0
            while up and at < size:
                at += os.sendfile(s.fileno(), source, at, 1 << 20)
                moved.value += 1 << 20
            head = s.recv(1000)
            assert head.startswith(b"HTTP/1.1 20"), head
            if not up:
                at = len(head.partition(b"\r\n\r\n")[2])
            while not up and at < size:
                n = s.recv_into(unread, len(unread), socket.MSG_TRUNC)
                assert n, "the connection was closed"
                at += n
                moved.value += n


class Load:
    """The other clients while one small client is timed."""

    def __init__(self, contestant, kind, options):
        self.flood, self.clients, self.moved = None, [], []
        if kind == "alone":
            return
        for up, path in [(True, p) for p in contestant.up] + [(False, p) for p in contestant.down]:
            self.moved.append(multiprocessing.Value("q", 0, lock=False))
            self.clients.append(multiprocessing.Process(
                target=transfer, args=(contestant.port, path, options.size, up, self.moved[-1])))
        for p in self.clients:
            p.start()
        if kind == "flood":
            self.flood = multiprocessing.Process(target=contestant.wrk,
                                                 args=(64, options.seconds + 2))
            self.flood.start()
        time.sleep(1)  # until all are under way
        self.begin, self.before = time.perf_counter(), self.total()

    def total(self):
        """Bytes sent and received by the clients."""
        half = len(self.moved) // 2
        return sum(m.value for m in self.moved[:half]), sum(m.value for m in self.moved[half:])

    def end(self):
        """GB/s moved up, and down"""
        if not self.clients:
            return 0.0, 0.0
        seconds = (time.perf_counter() - self.begin) * 1e9
        moved = [(b - a) / seconds for a, b in zip(self.before, self.total())]
        for p in self.clients:
            p.kill()
            p.join()
        time.sleep(0.3)  # until the server has seen them go and has let go of what they had
        if self.flood:
            self.flood.join()
            assert self.flood.exitcode == 0, "the flooding client had an error"
        return moved


def tail(daemon, bare, options):
    # The first touch of memory that the machine has to find first is not what is timed.
    for _ in range(2):
        warm = Load(daemon, "transfers", options)
        while min(m.value for m in warm.moved) < 3 * options.size:
            time.sleep(0.1)
        warm.end()
    rows = {(who, kind): [] for who in ("daemon", "bare") for kind in LOADS}
    for _ in range(options.rounds):
        for kind in LOADS:
            for who, contestant in (("bare", bare), ("daemon", daemon)):
                load = Load(contestant, kind, options)
                p50, p99, rps = contestant.wrk(1, options.seconds)
                rows[who, kind].append((p50, p99, rps, *load.end()))
    result = {}
    for (who, kind), got in rows.items():
        alone = min(g[1] for g in rows[who, "alone"])
        p50, p99, *others = (statistics.median(g[i] for g in got) for i in range(5))
        result[who, kind] = (p99 / alone, p50, alone if kind == "alone" else p99, *others)
    for kind in LOADS:
        ratio, p50, p99, rps, up, down = result["daemon", kind]
        peer_ratio, _, peer_p99, _, peer_up, peer_down = result["bare", kind]
        row = dict(bench="load_tail", load=kind, p50_us=p50, p99_us=p99, rps=rps, peer_p99_us=peer_p99,
                   p99s_us=[round(g[1]) for g in rows["daemon", kind]],
                   peer_p99s_us=[round(g[1]) for g in rows["bare", kind]])
        text = f"p99 of a small client, {kind}: {p99:.0f} us, libmicrohttpd's {peer_p99:.0f} us"
        if kind == "alone":
            show(text, True, **row)
            continue
        wanted = WANTED[kind]
        show(f"{text}: {ratio:.1f} times its value alone (wanted: at most {wanted}), libmicrohttpd's "
             f"{peer_ratio:.1f} times; GB/s up and down {up:.2f} {down:.2f}, libmicrohttpd's "
             f"{peer_up:.2f} {peer_down:.2f}", ratio <= wanted, **row, up_gb_s=up, down_gb_s=down,
             peer_up_gb_s=peer_up, peer_down_gb_s=peer_down, ratio=ratio, peer_ratio=peer_ratio,
             wanted_at_most=wanted)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("arrayd")
    parser.add_argument("http_bare")
    parser.add_argument("--part", action="append", choices=("rate", "many", "tail"))
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=256 << 20)
    parser.add_argument("--option", action="append", default=[])
    options = parser.parse_args()
    parts = options.part or ("rate", "many", "tail")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    bare = Peer([options.http_bare], r"^(\d+)$")
    daemon = Peer([options.arrayd, "--listen", "127.0.0.1:0", *options.option],
                  r"ready listen=127.0.0.1:(\d+)")
    try:
        data = struct.pack(f"<{N}f", *range(N))
        for path, body in ((f"a?dtype=float32&shape={N}", data),
                           *((f"bulk{i}?dtype=uint8&shape={options.size}", bytes(options.size))
                             for i in range(4))):
            assert ask(daemon.port, "PUT", f"/v1/arrays/{path}", body,
                       "application/octet-stream")[0] == 201
        body = json.dumps({"expr": "a * 2 + 1", "inline": True})
        status, reply = ask(daemon.port, "POST", "/v1/evaluate", body.encode())
        assert status == 200 and json.loads(reply)["data"] == [i * 2 + 1 for i in range(N)]
        echo = json.dumps({"data": "x" * (len(reply) - 12)})
        assert ask(bare.port, "POST", "/echo", echo.encode()) == (200, echo.encode())
        ours = Contestant(daemon, "/v1/evaluate", body,
                          [f"/v1/arrays/bulk{i}/data" for i in (0, 1)],
                          [f"/v1/arrays/bulk{i}/data" for i in (2, 3)])
        theirs = Contestant(bare, "/echo", echo, ["/sink"] * 2,
                            [f"/source?n={options.size}&block={BLOCK}"] * 2)
        if "rate" in parts:
            rate(ours, theirs, options)
        if "many" in parts:
            many(ours, options)
        if "tail" in parts:
            tail(ours, theirs, options)
    finally:
        bare.proc.kill()
        daemon.stop()
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
