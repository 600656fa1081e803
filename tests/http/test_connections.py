"""How many connections one address, and one user, may have."""
import contextlib
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from conftest import until
from test_framing import GET, ask, check_problem, request
from test_http_front import connect, read_reply, settles

INFO = request(b"GET /v1/info HTTP/1.1", b"Host: localhost")
HEALTH = request(GET, b"Host: localhost")
CLOSE = request(b"GET /v1/info HTTP/1.1", b"Host: localhost", b"Connection: close")


def held(daemon, n, data=HEALTH):
    kept = [connect(daemon) for _ in range(n)]
    for s in kept:
        s.sendall(data)
        assert read_reply(s).status == 200
    return kept


def from_another_address(daemon):
    s = socket.socket()
    s.settimeout(10)
    s.bind(("127.0.0.2", 0))
    s.connect((daemon.host, daemon.port))
    return s


def test_the_guards_defaults(api):
    limits = api.info()["limits"]
    for name, value in (("max_header", 64 << 10), ("header_timeout", 10), ("body_timeout", 30), ("min_body_rate", 1024),
                        ("body_rate_window", 30), ("idle_timeout", 75), ("max_json_depth", 1000), ("max_json_body", 16 << 20),
                        ("max_connections", 1000), ("max_connections_per_address", 0), ("max_wait", 0)):
        assert limits[name] == value, name


def test_connections_of_an_address(daemon_with, tmp_path):
    d = daemon_with("--max-connections-per-address", 4, "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s",
                    "--admin-listen", "127.0.0.1:0")
    c = d.client(unix=f"{tmp_path}/s")
    assert c.info()["limits"]["max_connections_per_address"] == 4
    kept = held(d, 4)
    r = ask(d, INFO)
    assert check_problem(r, 429)["code"] == "quota_exceeded"
    assert r.headers["retry-after"] and r.closed and "address" in r.body.decode()
    assert ask(d, request(GET, b"Host: localhost", b"Connection: close")).status == 200
    # what is there goes on, others are served
    for s in kept:
        s.sendall(INFO)
        assert read_reply(s).status == 200
    with from_another_address(d) as s:
        s.sendall(INFO)
        assert read_reply(s).status == 200
    many = [socket.socket(socket.AF_UNIX) for _ in range(30)]
    for s in many:
        s.connect(f"{tmp_path}/s")
    assert c.info()
    kept.pop().close()
    settles(d, "arrayd_http_connections", 3 + 1 + 30 + 1)
    assert ask(d, CLOSE).status == 200
    for s in kept + many:
        s.close()
    c.close()


def test_far_past_it_they_are_turned_away(daemon_with):
    """At once, and cannot stay: others find their place."""
    d = daemon_with("--max-connections-per-address", 4, "--max-connections", 60, "--admin-listen", "127.0.0.1:0",
                    "--unread-body-timeout", "0.3")
    kept = held(d, 4) + [connect(d) for _ in range(16)]
    turned = [connect(d) for _ in range(30)]
    for s in turned:
        assert check_problem(read_reply(s), 429)["code"] == "quota_exceeded"
        assert s.recv(1) == b""
    with from_another_address(d) as s:
        s.sendall(INFO)
        assert read_reply(s).status == 200
    admin = type("Admin", (), {"host": d.host, "port": d.admin_port})
    settles(admin, "arrayd_http_connections", 20 + 1)  # though they have not closed
    for s in kept + turned:
        s.close()
    settles(admin, "arrayd_http_connections", 1)
    for s in held(d, 4):
        s.close()


def test_connections_of_a_user(daemon_with, accounts):
    for name in ("ann", "bob"):
        accounts.add(name, connections=2)
    d = daemon_with("--accounts", accounts.path, "--admin-listen", "127.0.0.1:0")

    def info(name, *headers):
        return request(b"GET /v1/info HTTP/1.1", b"Host: localhost",
                       b"Authorization: Bearer " + accounts.token[name].encode(), *headers)

    kept = held(d, 2, info("ann"))
    r = ask(d, info("ann"))
    assert check_problem(r, 429)["code"] == "quota_exceeded" and r.closed and "quota connections" in r.body.decode()
    # one that changes hands counts for who asked last
    kept[0].sendall(info("bob"))
    assert read_reply(kept[0]).status == 200
    assert ask(d, info("ann", b"Connection: close")).status == 200
    ann = accounts.client(d, "ann")
    until(lambda: ann.info()["principal"]["quotas"]["connections"] == {"limit": 2, "used": 2})
    for s in kept:
        s.close()
    until(lambda: ann.info()["principal"]["quotas"]["connections"]["used"] == 1)
    ann.close()
    settles(type("Admin", (), {"host": d.host, "port": d.admin_port}), "arrayd_http_requests_in_flight", 1)


def test_the_next_daemon_may_have_the_path(daemon_with, tmp_path):
    """A daemon that ends removes its socket's path once: another has it while the last request is still at work."""
    path = tmp_path / "s"
    first = daemon_with("--listen", f"unix:{path}", "--drain-timeout", "0")
    c = first.client()
    c.upload(np.ones(1000), "s")
    work = threading.Thread(target=c.post, args=("/v1/evaluate", {"expr": "sum(sin(broadcast_to(s, [300000, 1000])))"}))
    work.start()
    until(lambda: "\narrayd_http_requests_waiting 1\n" in first.client().get("/metrics").body.decode())
    first.proc.terminate()
    until(lambda: not path.exists())
    second = daemon_with(listen=f"unix:{path}")
    first.stop()
    work.join()
    assert path.exists()
    second.client().info()


def wakes(d):
    """How often each of the daemon's threads has gone to sleep so far."""
    found = {}
    for task in Path(f"/proc/{d.pid}/task").iterdir():
        status = (task / "status").read_text()
        found[task.name] = int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return found


@pytest.mark.in_turn
def test_who_only_stays_connected_wakes_nobody(daemon_with):
    """No thread looks oftener than some times a second at connections without a request, not even after one that waited."""
    d = daemon_with()
    c = d.client()
    c.upload(np.ones(1000), "u")
    for _ in range(2):
        c.expect(200, c.post("/v1/evaluate", {"expr": "sum(sin(broadcast_to(u, [20000, 1000])))"}))
        busy = lambda before: max(n - before.get(task, 0) for task, n in wakes(d).items())
        until(lambda: [before := wakes(d), time.sleep(0.5)] and busy(before) <= 10)
    c.expect(200, c.get("/v1/info"))
    c.close()


def falls_asleep(d, requests=40):
    """How often the listener's thread sleeps while requests come every few milliseconds."""
    listeners = lambda: sum(n for task, n in wakes(d).items() if Path(f"/proc/{d.pid}/task/{task}/comm").read_text() == "arrayd-http\n")
    c = d.client()
    c.expect(200, c.get("/healthz"))
    before = listeners()
    for _ in range(requests):
        c.expect(200, c.get("/healthz"))
        time.sleep(0.004)
    c.close()
    return listeners() - before


def test_who_spins_does_not_sleep_between_requests(daemon_with, gpu_with):
    assert falls_asleep(gpu_with("--spin", 100000)) < 20
    assert falls_asleep(gpu_with("--spin", 0)) >= 40
    assert falls_asleep(daemon_with("--backend", "cpu", "--spin", 100000)) >= 40


def test_idle_ones_of_an_admin_address_keep_nobody_out(daemon_with):
    d = daemon_with("--max-connections", 4, "--admin-listen", "127.0.0.1:0")
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection((d.host, d.admin_port)))
        for _ in range(3):
            c = d.client()
            stack.callback(c.close)
            assert c.get("/v1/info").status == 200


@pytest.mark.parametrize("n", [127, 128, 129, 256])
def test_clients_in_step(daemon_with, n):
    """They all wait for their replies before anyone asks again. The HTTP library takes 128 events at once, and if it got
    just as many, it would wait for one more before it looks at them."""
    d = daemon_with("--max-connections", 300)
    kept = held(d, n)
    for _ in range(30):
        for s in kept:
            s.sendall(HEALTH)
        for s in kept:
            assert read_reply(s).status == 200
    for s in kept:
        s.close()


@pytest.mark.parametrize("address", ["listen", "admin-listen"])
def test_after_the_limit(daemon_with, address):
    """All that an address takes, and more that wait, end together: that is the last thing the HTTP library is told, which has
    stopped to listen meanwhile."""
    d = daemon_with("--max-connections", 50, "--admin-listen", "127.0.0.1:0")
    port = d.port if address == "listen" else d.admin_port
    for _ in range(3):
        held_there = [socket.create_connection((d.host, port), 20) for _ in range(50 + 64 + 20)]
        time.sleep(0.2)
        for s in held_there:
            s.close()
        time.sleep(0.2)
        with socket.create_connection((d.host, port), 5) as s:
            s.sendall(HEALTH)
            assert s.recv(100).startswith(b"HTTP/1.1 200 "), address
