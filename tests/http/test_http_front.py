"""The HTTP front as a whole: deadlines, limits, waiting, sockets, start and stop."""
import json
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import threading
import time

import pytest

from client import TIMEOUT
from conftest import find_binary
from test_framing import GET, Reply, ask, check_problem, post, request

CHUNK = b"x" * 65536


def connect(daemon, timeout=10):
    return socket.create_connection((daemon.host, daemon.port), timeout)


def read_reply(s):
    """One reply off a kept-alive connection."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        part = s.recv(65536)
        if not part:
            return Reply(raw, True)
        raw += part
    length = int(re.search(rb"\r\nContent-Length: (\d+)\r\n", raw)[1])
    while len(raw.partition(b"\r\n\r\n")[2]) < length:
        part = s.recv(65536)
        if not part:
            break
        raw += part
    return Reply(raw, False)


def reset(s):
    """Closes with RST, as a killed client does."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def metric(daemon, name):
    r = ask(daemon, request(b"GET /metrics HTTP/1.1", b"Host: localhost", b"Connection: close"))
    assert r.status == 200
    return float(re.search(rb"^%s (\S+)$" % name.encode(), r.body, re.M)[1])


def settles(daemon, name, want, seconds=TIMEOUT):
    deadline = time.monotonic() + seconds
    while metric(daemon, name) != want:
        assert time.monotonic() < deadline, f"{name} is {metric(daemon, name)}, not {want}"
        time.sleep(0.05)


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1]) * 1024


# --- deadlines ---

@pytest.fixture
def hasty(daemon_with):
    return daemon_with("--header-timeout", "0.6", "--body-timeout", "0.6", "--idle-timeout", "1.2",
                       "--min-body-rate", "10KiB", "--body-rate-window", "1.2")


@pytest.mark.parametrize("begun", [b"", b"GET", b"GET /healthz HTTP/1.1\r\n",
                                   b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX"])
def test_header_deadline(hasty, begun):
    begin = time.monotonic()
    with connect(hasty) as s:
        s.sendall(begun)
        r = read_reply(s)
        assert check_problem(r, 408)["code"] == "request_timeout"
        assert s.recv(1) == b""
    assert 0.5 < time.monotonic() - begin < 5


def test_header_deadline_is_not_idleness(hasty):
    """A byte now and then does not help."""
    begin = time.monotonic()
    with connect(hasty) as s:
        got = b""
        s.settimeout(0.1)
        for c in b"GET /healthz HTTP/1.1\r\nX-Slow: " + b"a" * 1000:
            try:
                s.send(bytes([c]))
                got = s.recv(1)
                break
            except TimeoutError:
                pass
            except OSError:
                break
        assert got == b"H"
    assert time.monotonic() - begin < 5


def test_header_deadline_of_a_second_request(hasty):
    with connect(hasty) as s:
        s.sendall(request(GET, b"Host: localhost"))
        assert read_reply(s).status == 200
        time.sleep(0.4)
        s.sendall(b"GET /hea")
        assert read_reply(s).status == 408


def test_body_deadline(hasty):
    for begun in (b"", b"{"):
        with connect(hasty) as s:
            begin = time.monotonic()
            s.sendall(post(b"Content-Length: 100", body=begun))
            assert check_problem(read_reply(s), 408)["code"] == "request_timeout"
            assert 0.5 < time.monotonic() - begin < 5
    settles(hasty, "arrayd_http_requests_in_flight", 1)


def test_body_rate(hasty):
    with connect(hasty) as s:
        s.sendall(request(b"PUT /v1/arrays/slow?dtype=uint8&shape=1000000 HTTP/1.1",
                          b"Host: localhost", b"Content-Type: application/octet-stream",
                          b"Content-Length: 1000000"))
        begin = time.monotonic()
        s.settimeout(0.1)
        while True:
            try:
                s.sendall(b"y" * 100)  # 1 kB a second
                if s.recv(1, socket.MSG_PEEK):
                    break
            except TimeoutError:
                assert time.monotonic() - begin < 10
        s.settimeout(20)
        assert read_reply(s).status == 408
        assert time.monotonic() - begin > 1
    r = ask(hasty, request(b"GET /v1/arrays/slow HTTP/1.1", b"Host: localhost", b"Connection: close"))
    assert r.status == 404


def test_idle_connections_are_closed(hasty):
    with connect(hasty) as s:
        s.sendall(request(GET, b"Host: localhost"))
        assert read_reply(s).status == 200
        begin = time.monotonic()
        assert s.recv(1) == b""
        assert 1 < time.monotonic() - begin < 5


# --- clients that go away ---

def test_abandoned_requests_are_reaped(daemon):
    settles(daemon, "arrayd_http_connections", 1)
    begun = [b"GET /heal", request(GET, b"Host: localhost")[:-2], post(b"Content-Length: 100", body=b"{"),
             post(b"Transfer-Encoding: chunked", body=b"ff\r\n{"),
             request(b"PUT /v1/arrays/gone?dtype=uint8&shape=100000 HTTP/1.1", b"Host: localhost",
                     b"Content-Type: application/octet-stream", b"Content-Length: 100000", body=CHUNK),
             request(b"PUT /v1/nothing HTTP/1.1", b"Host: localhost", b"Content-Length: 100000")]
    for how in (reset, socket.socket.close):
        for data in begun:
            s = connect(daemon)
            s.sendall(data)
            time.sleep(0.02)
            how(s)
    settles(daemon, "arrayd_http_connections", 1)
    settles(daemon, "arrayd_http_requests_in_flight", 1)
    r = ask(daemon, request(b"GET /v1/arrays/gone HTTP/1.1", b"Host: localhost", b"Connection: close"))
    assert r.status == 404


def test_abandoned_downloads_are_reaped(daemon, api):
    api.post("/v1/arrays", {"shape": [32 << 20], "dtype": "uint8", "name": "big"})
    settles(daemon, "arrayd_http_connections", 2)
    for how in (reset, socket.socket.close):
        for _ in range(4):
            s = connect(daemon)
            s.sendall(request(b"GET /v1/arrays/big/data HTTP/1.1", b"Host: localhost"))
            s.recv(1000)
            how(s)
    settles(daemon, "arrayd_http_connections", 2)


# --- replies before the body is read ---

@pytest.mark.parametrize("size", [10, 100_000, 20 << 20])
def test_early_error_reaches_a_client_that_sends_first(daemon, size):
    """Without Expect: the client sends everything, then reads; it must find the reply."""
    with connect(daemon, 30) as s:
        s.sendall(request(b"PUT /v1/nothing HTTP/1.1", b"Host: localhost",
                          b"Content-Length: %d" % size))
        left = size
        while left:
            left -= s.send(CHUNK[:left])
        assert check_problem(read_reply(s), 404)["code"] == "not_found"
        s.sendall(request(GET, b"Host: localhost"))  # and the connection lives on
        assert read_reply(s).status == 200


def test_early_error_reaches_a_client_that_waits(daemon_with):
    d = daemon_with("--unread-body-timeout", "0.4")
    begin = time.monotonic()
    r = ask(d, request(b"PUT /v1/nothing HTTP/1.1", b"Host: localhost", b"Content-Length: 1000",
                       body=b"x"))
    check_problem(r, 404)
    assert r.closed and time.monotonic() - begin < 5


def test_json_body_limit(daemon_with):
    d = daemon_with("--max-json-body", "100KiB")
    fits = b'{"expr": "1"' + b" " * 100000 + b"}"
    assert ask(d, post(b"Content-Length: %d" % len(fits), b"Connection: close", body=fits)).status == 200
    big = b'{"expr": "1"' + b" " * 102400 + b"}"
    r = ask(d, post(b"Content-Length: %d" % len(big), b"Connection: close", body=big))
    assert check_problem(r, 413)["code"] == "too_large"
    r = ask(d, post(b"Transfer-Encoding: chunked", b"Connection: close",
                    body=b"%x\r\n" % len(big) + big + b"\r\n0\r\n\r\n"))
    assert check_problem(r, 413)["code"] == "too_large"


# --- connections ---

def test_connections_past_the_limit_are_told(daemon_with):
    d = daemon_with("--max-connections", "8")
    held = [connect(d) for _ in range(8)]
    for s in held:
        s.sendall(request(GET, b"Host: localhost"))
        assert read_reply(s).status == 200
    r = ask(d, request(b"GET /v1/info HTTP/1.1", b"Host: localhost"))
    assert check_problem(r, 503)["code"] == "overloaded"
    assert r.headers["retry-after"] and r.closed
    assert ask(d, request(GET, b"Host: localhost", b"Connection: close")).status == 200
    settles(d, "arrayd_http_connections", 9)
    for s in held:
        s.close()
    settles(d, "arrayd_http_connections", 1)
    assert ask(d, request(b"GET /v1/info HTTP/1.1", b"Host: localhost", b"Connection: close")).status == 200


def test_many_connections_at_once(daemon):
    held = [connect(daemon) for _ in range(300)]
    for s in held:
        s.sendall(request(GET, b"Host: localhost"))
    for s in held:
        assert read_reply(s).status == 200
        s.close()
    settles(daemon, "arrayd_http_connections", 1)


def test_a_large_body_does_not_hold_up_others(daemon, api):
    """While 15 MB of JSON are worked on, small requests go on."""
    api.post("/v1/arrays", {"shape": [4], "name": "v"})
    expr = json.dumps({"expr": "v" + " + v" * 4900, "name": "w"}).encode()
    body = expr[:-1] + b" " * (15_000_000 - len(expr)) + b"}"
    slowest, took = [], []

    def small():
        with connect(daemon) as s:
            while not done.is_set():
                begin = time.monotonic()
                s.sendall(request(GET, b"Host: localhost"))
                assert read_reply(s).status == 200
                slowest.append(time.monotonic() - begin)

    done = threading.Event()
    t = threading.Thread(target=small)
    t.start()
    try:
        for _ in range(3):
            begin = time.monotonic()
            r = ask(daemon, post(b"Content-Length: %d" % len(body), b"Connection: close", body=body),
                    timeout=60)
            took.append(time.monotonic() - begin)
            assert r.status in (200, 201), r.body[:300]
    finally:
        done.set()
        t.join()
    assert len(slowest) > 20
    assert max(slowest) < max(1.0, 0.7 * max(took))


def test_memory_stays_bounded(daemon, api):
    """Slow readers of a large array cost buffers, not copies of it."""
    api.post("/v1/arrays", {"shape": [64 << 20], "dtype": "uint8", "name": "wide"})
    before = resident(daemon.pid)
    held = []
    for _ in range(8):
        s = connect(daemon)
        s.sendall(request(b"GET /v1/arrays/wide/data HTTP/1.1", b"Host: localhost"))
        held.append(s)
    time.sleep(0.5)
    grown = resident(daemon.pid) - before
    for s in held:
        s.close()
    assert grown < 160 << 20  # the array once, where its zeros were not touched before


# --- listening ---

def test_unix_socket(daemon_with, tmp_path):
    path = tmp_path / "arrayd.sock"
    d = daemon_with("--listen", f"unix:{path}", "--listen", "127.0.0.1:0", "--unix-mode", "0660")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert f"unix:{path}" in d.addresses and d.port
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(str(path))
        s.sendall(request(GET, b"Host: whatever"))
        assert read_reply(s).status == 200
    assert ask(d, request(GET, b"Host: localhost", b"Connection: close")).status == 200
    d.stop()
    assert not path.exists()


def test_stale_unix_socket_is_replaced(daemon_with, tmp_path):
    path = tmp_path / "arrayd.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))  # left behind without a listener
    d = daemon_with("--listen", f"unix:{path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    status, log = end_of("--listen", f"unix:{path}")
    assert status == 2 and "another daemon" in log
    assert path.exists()
    d.stop()


def test_ipv6(daemon_with):
    try:
        socket.socket(socket.AF_INET6).bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    d = daemon_with("--listen", "[::1]:0")
    assert d.addresses[0].startswith("[::1]:")
    assert ask(d, request(GET, b"Host: [::1]:%d" % d.port, b"Connection: close")).status == 200


def end_of(*args):
    p = subprocess.run([find_binary(), *map(str, args)], capture_output=True, text=True, timeout=30)
    return p.returncode, p.stdout + p.stderr


@pytest.mark.parametrize("args,told", [
    (("--listen", "0.0.0.0:0"), "loopback"), (("--listen", "[::]:0"), "loopback"),
    (("--listen", "192.0.2.1:0"), "loopback"), (("--listen", "nonsense"), "ADDR:PORT"),
    (("--listen", "127.0.0.1:99999"), "ADDR:PORT"), (("--listen", "unix:"), "path"),
    (("--listen", "::1:80"), "brackets"), (("--backend", "abacus"), "abacus"),
    (("--no-such-option",), "--no-such-option"), (("--threads", "x"), "threads"),
    (("--config", "/nonexistent"), "/nonexistent"), (("stray",), "stray")])
def test_a_wrong_start_says_why(args, told):
    status, log = end_of(*args)
    assert status == 2
    assert told in log and log.startswith("arrayd: ") and log.count("\n") == 1


def test_a_taken_port_says_so(daemon):
    status, log = end_of("--listen", f"127.0.0.1:{daemon.port}")
    assert status == 2 and "in use" in log


def test_help_and_version():
    status, text = end_of("--help")
    assert status == 0 and "--listen ADDR:PORT|unix:PATH" in text and "--max-json-body" in text
    status, text = end_of("--version")
    assert status == 0 and re.fullmatch(r"arrayd \d+\.\d+\.\d+\n", text)


def test_configuration_file(daemon_with, tmp_path):
    path = tmp_path / "arrayd.conf"
    path.write_text("max-inline = 12\nallowed-host = arrays.example\nlog-json = yes\n")
    d = daemon_with("--config", path)
    assert re.search(r'^\{.*"message":"ready"', d.log(), re.M)
    r = ask(d, request(b"GET /v1/info HTTP/1.1", b"Host: arrays.example", b"Connection: close"))
    assert r.status == 200 and json.loads(r.body)["limits"]["max_inline"] == 12


def drains(daemon):
    """It says so, and a moment later it takes no more work."""
    deadline = time.monotonic() + TIMEOUT
    for path in (b"readyz", b"v1/info"):
        while ask(daemon, request(b"GET /%s HTTP/1.1" % path, b"Host: localhost", b"Connection: close")).status != 503:
            assert time.monotonic() < deadline


def test_probes_are_answered_while_draining(daemon_with):
    d = daemon_with("--drain-timeout", 20)
    d.client().create(name="u", shape=[4], dtype="uint8")
    s = connect(d)
    s.sendall(request(b"PUT /v1/arrays/u/data HTTP/1.1", b"Host: localhost", b"Content-Length: 4",
                      b"Content-Type: application/octet-stream") + b"12")
    settles(d, "arrayd_http_requests_in_flight", 2)  # the upload and the question
    os.kill(d.pid, signal.SIGTERM)
    close = b"Connection: close"
    drains(d)
    assert ask(d, request(b"GET /healthz HTTP/1.1", b"Host: localhost", close)).status == 200
    assert ask(d, request(b"GET /metrics HTTP/1.1", b"Host: localhost", close)).status == 200
    r = ask(d, request(b"GET /v1/info HTTP/1.1", b"Host: localhost", close))
    check_problem(r, 503)
    assert json.loads(r.body)["code"] == "draining"
    s.sendall(b"34")
    assert s.recv(65536).startswith(b"HTTP/1.1 204 ")
    s.close()


def test_log_without_debug(daemon_with):
    """At the default level: requests of a trace, and whatever is the daemon's fault."""
    d = daemon_with("--memory-limit", "1MiB")
    parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    close = b"Connection: close"
    ask(d, request(b"GET /healthz HTTP/1.1", b"Host: localhost", close, b"traceparent: " + parent))
    ask(d, request(b"GET /healthz HTTP/1.1", b"Host: localhost", close, b"X-Request-Id: silent"))
    ask(d, request(b"GET /nothing HTTP/1.1", b"Host: localhost", close, b"X-Request-Id: silent"))
    body = b'{"shape":[1000000]}'
    r = ask(d, post(close, b"X-Request-Id: toolarge",
                    b"Content-Length: %d" % len(body), body=body, path=b"/v1/arrays"))
    assert r.status == 507
    d.stop()
    assert re.search(r"^\S+ info request .*traceparent=%s .*path=/healthz status=200" % parent.decode(), d.log(), re.M)
    assert re.search(r"^\S+ warn request id=toolarge .*status=507", d.log(), re.M)
    assert "silent" not in d.log()


def test_access_log(daemon_with):
    d = daemon_with("--log-level", "debug")
    parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert ask(d, request(b"GET /healthz HTTP/1.1", b"Host: localhost", b"Connection: close",
                          b"X-Request-Id: findme", b"traceparent: " + parent)).status == 200
    ask(d, request(b"GET /nothing HTTP/1.1", b"Host: localhost", b"Connection: close"))
    d.stop()
    line = re.search(r"^\S+ info request id=findme .*$", d.log(), re.M)[0]
    for part in (f"traceparent={parent.decode()}", "method=GET", "path=/healthz", "status=200", "ms="):
        assert part in line
    assert re.search(r"^\S+ debug request .*path=/nothing status=404", d.log(), re.M)
    assert len(re.findall(r"^\S+ info ready ", d.log(), re.M)) == 1


# --- metrics ---

def test_metrics_text(daemon):
    ask(daemon, request(b"GET /nothing HTTP/1.1", b"Host: localhost", b"Connection: close"))
    ask(daemon, request(b"POST /v1/evaluate HTTP/1.1", b"Host: localhost", b"Connection: close",
                        b"Content-Type: application/json", b"Content-Length: 1", body=b"{"))
    for _ in range(2):  # the second sees the first
        r = ask(daemon, request(b"GET /metrics HTTP/1.1", b"Host: localhost", b"Connection: close"))
    assert r.headers["content-type"].startswith("text/plain; version=0.0.4")
    types, seen = {}, set()
    for line in r.body.decode().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, f"{name} has two families"
            types[name] = kind
        elif not line.startswith("# HELP "):
            m = re.fullmatch(r"([a-zA-Z_:][\w:]*)(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})? (\S+)", line)
            assert m, line
            float(m[3])
            key = (m[1], m[2])
            assert key not in seen, line
            seen.add(key)
            base = re.sub(r"_(bucket|sum|count)$", "", m[1])
            assert m[1] in types or types.get(base) == "histogram", line
    text = r.body.decode()
    for name in ("bytes_in_use", "arrays", "sessions", "http_connections", "jobs_in_flight"):
        assert re.search(rf"^arrayd_{name} \d+", text, re.M), name
    assert re.search(r'arrayd_http_requests_total\{route="none",method="any",status="404"\} [1-9]', text)
    assert re.search(r'arrayd_http_requests_total\{route="/v1/evaluate",method="POST",status="400"\} [1-9]',
                     text)
    assert re.search(r'arrayd_http_request_seconds_bucket\{route="/metrics",method="GET",le="\+Inf"\}', text)


# --- the end ---

@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly(daemon_with, sig):
    d = daemon_with("--drain-timeout", "0.5")
    idle = connect(d)
    idle.sendall(request(GET, b"Host: localhost"))
    assert read_reply(idle).status == 200
    header, body = connect(d), connect(d)
    header.sendall(b"GET /heal")
    body.sendall(post(b"Content-Length: 100", body=b"{"))
    upload = connect(d)
    upload.sendall(request(b"PUT /v1/arrays/u?dtype=uint8&shape=10000000 HTTP/1.1", b"Host: localhost",
                           b"Content-Type: application/octet-stream", b"Content-Length: 10000000",
                           body=CHUNK))
    time.sleep(0.1)
    begin = time.monotonic()
    d.stop(sig)
    assert time.monotonic() - begin < 10
    for s in (idle, header, body, upload):
        s.close()


def test_requests_under_way_are_finished(daemon_with):
    d = daemon_with("--drain-timeout", "20")
    body = b'{"expr": "1 + 1"}'
    with connect(d) as s:
        s.sendall(post(b"Content-Length: %d" % len(body), body=body[:5]))
        settles(d, "arrayd_http_requests_in_flight", 2)
        os.kill(d.pid, signal.SIGTERM)
        drains(d)
        late = ask(d, request(b"GET /v1/info HTTP/1.1", b"Host: localhost", b"Connection: close"))
        check_problem(late, 503)
        s.sendall(body[5:])
        r = read_reply(s)
        assert r.status == 200 and r.headers["connection"] == "close"
    d.stop()


@pytest.mark.in_turn
def test_long_work_does_not_hold_up_the_end(daemon_with):
    """After drain-timeout nobody waits for the result, so it is not computed to its end."""
    d = daemon_with("--backend", "cpu", "--drain-timeout", "0.5")
    api = d.client()
    api.post("/v1/arrays", {"shape": [4096, 4096], "dtype": "float64", "random": {"distribution": "uniform", "seed": 1}, "name": "a"})
    deep = "a"
    for _ in range(80):
        deep = f"gamma(1 + abs(tan({deep})))"
    body = json.dumps({"expr": f"sum({deep})"}).encode()  # a minute and more
    with connect(d) as s:
        s.sendall(post(b"Content-Length: %d" % len(body), body=body))
        settles(d, "arrayd_http_requests_in_flight", 2)
        time.sleep(0.5)
        begin = time.monotonic()
        d.stop()
        assert time.monotonic() - begin < 15
        assert s.recv(1000) == b""
    api.close()


def test_ends_under_load(daemon_with):
    d = daemon_with("--drain-timeout", "1")
    api = d.client()
    api.post("/v1/arrays", {"shape": [1 << 20], "name": "a"})
    api.close()
    stop = threading.Event()

    def busy(data):
        while not stop.is_set():
            try:
                with connect(d) as s:
                    for _ in range(50):
                        s.sendall(data)
                        if read_reply(s).closed:
                            break
            except (OSError, TypeError):
                stop.wait(0.01)

    evaluate = b'{"expr": "sum(sin(a) * a)"}'
    loads = [request(b"GET /v1/arrays/a/data HTTP/1.1", b"Host: localhost"),
             post(b"Content-Length: %d" % len(evaluate), body=evaluate),
             request(b"PUT /v1/arrays/b?dtype=uint8&shape=1000000 HTTP/1.1", b"Host: localhost",
                     b"Content-Type: application/octet-stream", b"Content-Length: 1000000",
                     body=b"z" * 1000000)]
    threads = [threading.Thread(target=busy, args=(data,)) for data in loads * 2]
    for t in threads:
        t.start()
    time.sleep(0.7)
    try:
        d.stop()
    finally:
        stop.set()
        for t in threads:
            t.join()


def test_draining_is_told(daemon_with):
    d = daemon_with("--drain-timeout", "20")
    other = connect(d)
    other.sendall(request(GET, b"Host: localhost"))
    assert read_reply(other).status == 200
    with connect(d) as s:
        s.sendall(post(b"Content-Length: 100", body=b"{"))  # keeps the daemon draining
        settles(d, "arrayd_http_requests_in_flight", 2)
        os.kill(d.pid, signal.SIGTERM)
        drains(d)
        other.sendall(request(b"GET /readyz HTTP/1.1", b"Host: localhost"))
        r = read_reply(other)
        assert r.status == 503 and r.headers["connection"] == "close"
    other.close()
    d.stop()
