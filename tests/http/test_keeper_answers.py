"""What connections get while the daemon does not come back: they wait, and then the keeper answers."""
import json
import os
import shutil
import signal
import socket
import ssl
import threading
import time

import pytest

from conftest import until
from test_tls import make_certificate

ASK = b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n"


def everything(s):
    got = b""
    while piece := s.recv(4096):
        got += piece
    return got


@pytest.fixture
def down(daemon_with, tmp_path):
    """A daemon that has ended and cannot begin again before `mend` is called."""
    config = tmp_path / "config"
    right = (f"restart-limit = 1000\nrestart-wait = 1.5\nlisten = 127.0.0.1:0\nlisten = unix:{tmp_path}/s\n"
             f"admin-listen = unix:{tmp_path}/admin\n")
    config.write_text(right)
    d = daemon_with("--config", config, listen=None)
    d.mend = lambda: config.write_text(right)
    config.write_text(right + "backend = none\n")
    d.since = time.monotonic()
    os.kill(d.pid, signal.SIGKILL)
    yield d
    d.mend()
    until(lambda: d.log().count(" ready ") > 1, 60)


def dial(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(path)
    return s


def check(reply):
    head, _, body = reply.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ") for line in lines)
    assert status == "HTTP/1.1 503 Service Unavailable" and headers["Content-Type"] == "application/problem+json"
    assert int(headers["Retry-After"]) > 0 and headers["Connection"] == "close" and int(headers["Content-Length"]) == len(body)
    problem = json.loads(body)
    assert problem["status"] == 503 and problem["code"] == "draining" and problem["type"] == "urn:arrayd:problem:draining"
    assert problem["title"] == "The daemon is shutting down" and problem["detail"]


def test_connections_wait_and_then_are_answered(down, tmp_path):
    for connect in (lambda: socket.create_connection((down.host, down.port), timeout=20), lambda: dial(f"{tmp_path}/s"),
                    lambda: dial(f"{tmp_path}/admin")):
        with connect() as s:
            s.sendall(ASK)
            check(everything(s))
        assert time.monotonic() - down.since > 1.4
    # what is sent on does not cost the reply
    with socket.create_connection((down.host, down.port), timeout=20) as s:
        s.sendall(b"POST /v1/arrays HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40000000\r\n\r\n")
        for _ in range(40):
            s.sendall(bytes(1_000_000))
        check(everything(s))


@pytest.mark.in_turn
def test_many_connections(down):
    """Those that say nothing hold up the others for a moment only."""
    until(lambda: time.monotonic() - down.since > 1.6)
    silent = [socket.create_connection((down.host, down.port), timeout=20) for _ in range(150)]
    replies = []

    def ask():
        with socket.create_connection((down.host, down.port), timeout=30) as s:
            s.sendall(ASK)
            replies.append(everything(s))

    threads = [threading.Thread(target=ask) for _ in range(100)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(replies) == 100
    for reply in replies:
        check(reply)
    assert everything(silent[0]) == b""
    for s in silent:
        s.close()


def test_the_daemon_is_back(down):
    with socket.create_connection((down.host, down.port), timeout=20) as s:
        s.sendall(ASK)
        check(everything(s))
    down.mend()
    until(lambda: down.log().count(" ready ") == 2, 60)
    for _ in range(20):
        c = down.client()
        c.expect(200, c.get("/v1/info"))
        c.close()


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl to make certificates")
def test_with_tls_they_wait(daemon_with, tmp_path):
    config, (cert, key) = tmp_path / "config", make_certificate(tmp_path, "cert")
    right = f"restart-limit = 1000\nrestart-wait = 0.1\nlisten = 127.0.0.1:0\ntls-cert = {cert}\ntls-key = {key}\n"
    config.write_text(right)
    d = daemon_with("--config", config, listen=None)
    config.write_text(right + "backend = none\n")
    os.kill(d.pid, signal.SIGKILL)
    until(lambda: d.log().count("started again") > 2)
    context = ssl.create_default_context(cafile=cert)
    with socket.create_connection((d.host, d.port), timeout=1) as plain:
        plain.sendall(ASK)
        with pytest.raises(TimeoutError):
            plain.recv(100)
    with socket.create_connection((d.host, d.port), timeout=60) as s:
        config.write_text(right)
        with context.wrap_socket(s, server_hostname="localhost") as t:
            t.sendall(ASK)
            assert t.recv(4096).startswith(b"HTTP/1.1 200")
