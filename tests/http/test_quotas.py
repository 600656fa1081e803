"""Quotas of an account: each bounds its user and nobody else, names itself when it does, and is seen in /v1/info."""
import socket
import threading
import time

import numpy as np
import pytest

from client import NPY, OCTETS, npy_bytes
from conftest import one_gpu

MIB = 1 << 20
N = MIB // 8  # float64: one MiB


@pytest.fixture(params=["cpu", "cuda"])
def start(request, daemon_with, accounts):
    """start(quotas of bob): ann, who has none, and bob, on the one backend or the other."""
    def run(*args, **quotas):
        accounts.add("ann", role="operator")  # Client.quiet() reads the metrics
        accounts.add("bob", role="operator", **quotas)
        args = ("--accounts", accounts.path, *args)
        run.daemon = (daemon_with("--backend", "cpu", *args) if request.param == "cpu" else
                      request.getfixturevalue("gpu_with")(*args))
        return [accounts.client(run.daemon, name) for name in ("ann", "bob")]

    return run


def quota(c, name):
    return c.info()["principal"]["quotas"][name]


def past(c, name, reply):
    e = c.fails(429, "quota_exceeded", reply)
    assert f"quota {name}" in e["detail"], e
    assert reply.headers["Retry-After"]


def used(c, name, want):
    """Memory is given back behind the scenes."""
    for _ in range(500):
        if quota(c, name)["used"] == want:
            return
        time.sleep(0.01)
    assert quota(c, name)["used"] == want


def test_device_memory(start):
    ann, bob = start(device_memory="2MiB")
    assert quota(bob, "device_memory") == {"limit": 2 * MIB, "used": 0}
    s = bob.post("/v1/sessions", {}).json()["id"]
    inside = bob.clone(session=s)
    bob.upload(np.ones(N), "u")
    inside.upload(np.ones(N), "v")
    used(bob, "device_memory", 2 * MIB)
    for c in (bob, inside):  # of all sessions together
        past(c, "device_memory", c.post("/v1/arrays", {"shape": [1]}))
        past(c, "device_memory", c.put("/v1/arrays/w", body=npy_bytes(np.ones(2)), content_type=NPY))
    past(bob, "device_memory", bob.post("/v1/evaluate", {"expr": "u + 1", "name": "w"}))
    bob.expect(200, bob.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
    np.testing.assert_array_equal(bob.download("u"), np.full(N, 2.))
    ann.upload(np.ones(4 * N), "u")  # a GPU's memory comes in multiples of 2 MiB
    assert quota(ann, "device_memory") == {"limit": None, "used": 4 * MIB}
    bob.expect(204, bob.delete(f"/v1/sessions/{s}"))
    used(bob, "device_memory", MIB)
    bob.upload(np.ones(N), "v")
    for c in (ann, bob, inside):
        c.close()


def test_a_smaller_session_says_so_itself(start):
    ann, bob = start(device_memory="2MiB")
    s = bob.post("/v1/sessions", {"memory_limit": 1024}).json()["id"]
    e = bob.fails(429, "quota_exceeded", bob.clone(session=s).post("/v1/arrays", {"shape": [1000]}))
    assert "memory_limit" in e["detail"]
    assert quota(bob, "device_memory")["used"] == 0


def test_host_memory(start):
    ann, bob = start(host_memory="1MiB")
    for c in (ann, bob):
        c.upload(np.arange(float(N)), "u")
        c.upload(np.ones(1), "small")
        c.expect(200, c.patch("/v1/arrays/u", {"location": "host"}))
    assert quota(bob, "host_memory") == {"limit": MIB, "used": MIB}
    past(bob, "host_memory", bob.patch("/v1/arrays/small", {"location": "host"}))
    ann.expect(200, ann.patch("/v1/arrays/small", {"location": "host"}))
    assert quota(ann, "host_memory") == {"limit": None, "used": MIB + 8}
    assert quota(bob, "device_memory")["used"] == MIB + 8  # wherever they are
    np.testing.assert_array_equal(bob.download("u"), np.arange(float(N)))
    bob.expect(200, bob.patch("/v1/arrays/u", {"location": "device"}))
    used(bob, "host_memory", 0)
    bob.expect(200, bob.patch("/v1/arrays/small", {"location": "host"}))
    bob.expect(204, bob.delete("/v1/arrays/small"))
    used(bob, "host_memory", 0)


@one_gpu
def test_who_has_no_more_host_memory_is_not_moved_out(start):
    ann, bob = start("--evict", "--memory-limit", "4MiB", host_memory="1MiB")
    bob.upload(np.arange(float(N)), "u")
    bob.upload(np.arange(float(N)) + 1, "v")
    ann.upload(np.arange(float(N)) + 2, "w")
    ann.upload(np.ones(2 * N), "x")
    where = [c.get(f"/v1/arrays/{a}").json()["location"] for c, a in ((bob, "u"), (bob, "v"), (ann, "w"))]
    assert where.count("host") >= 1 and where[:2].count("host") <= 1
    assert quota(bob, "host_memory")["used"] <= MIB
    np.testing.assert_array_equal(bob.download("u") + 1, bob.download("v"))
    for c in (ann, bob):
        c.close()


def begun_download(daemon, c, ref):
    """A download whose reader has taken the first byte of it, and takes no more."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect((daemon.host, daemon.port))
    head = "".join(f"{k}: {v}\r\n" for k, v in {"Host": "localhost", "Accept": OCTETS, **c.always}.items())
    s.sendall(f"GET /v1/arrays/{ref}/data HTTP/1.1\r\n{head}\r\n".encode())
    assert s.recv(12) == b"HTTP/1.1 200"
    return s


def share(c, name, reader):
    c.expect(201, c.post(f"/v1/arrays/{name}/shares", {"principal": reader, "access": "read"}))
    return c.get(f"/v1/arrays/{name}").json()["id"]


@one_gpu
def test_old_versions_count_for_who_reads_them(start):
    ann, bob = start(device_memory="12MiB")
    bob.upload(np.zeros(8 * N), "u")
    ref = share(bob, "u", "ann")
    held = []
    for i in range(3):
        held.append(begun_download(start.daemon, ann, ref))
        bob.expect(200, bob.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
        used(bob, "device_memory", 8 * MIB)
        used(ann, "device_memory", (i + 1) * 8 * MIB)
    held.append(begun_download(start.daemon, ann, ref))
    bob.expect(204, bob.delete("/v1/arrays/u"))
    used(bob, "device_memory", 0)  # what is read of it is the reader's, as long as he may
    for s in held:
        s.close()
    used(ann, "device_memory", 0)


@one_gpu
def test_what_an_owner_reads_counts_for_him(start):
    ann, bob = start(device_memory="12MiB")
    bob.upload(np.zeros(8 * N), "u")
    ref = share(bob, "u", "ann")
    held = [begun_download(start.daemon, c, ref) for c in (ann, bob)]
    past(bob, "device_memory", bob.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
    assert quota(ann, "device_memory")["used"] == 0
    held[1].close()
    for _ in range(500):  # until the daemon has seen that
        reply = bob.post("/v1/evaluate", {"expr": "u + 1", "out": "u"})
        if reply.status == 200:
            break
        past(bob, "device_memory", reply)
        time.sleep(0.01)
    used(bob, "device_memory", 8 * MIB)
    used(ann, "device_memory", 8 * MIB)
    held[0].close()
    used(ann, "device_memory", 0)


@one_gpu
def test_a_reader_past_his_quota_begins_no_more_downloads_of_others(start):
    ann, bob = start(device_memory="6MiB")
    bob.upload(np.ones(N), "mine")
    ann.upload(np.zeros(8 * N), "u")
    ref = share(ann, "u", "bob")
    held = begun_download(start.daemon, bob, ref)
    for _ in range(3):
        ann.expect(200, ann.post("/v1/evaluate", {"expr": "u + 1", "out": "u"}))
        used(bob, "device_memory", 9 * MIB)
        used(ann, "device_memory", 8 * MIB)
        past(bob, "device_memory", bob.get(f"/v1/arrays/{ref}/data", accept=OCTETS))
    past(bob, "device_memory", bob.post("/v1/arrays", {"shape": [1]}))
    np.testing.assert_array_equal(bob.download("mine"), np.ones(N))
    held.close()
    used(bob, "device_memory", MIB)
    np.testing.assert_array_equal(bob.download(ref), np.full(8 * N, 3.))


def test_handles_and_sessions(start):
    ann, bob = start("--max-arrays", "4", "--max-sessions", "3", arrays=2, sessions=1)
    for c, arrays, sessions in ((bob, 2, 1), (ann, 4, 3)):
        for i in range(arrays):
            c.create(shape=[1])
        past(c, "arrays", c.post("/v1/arrays", {"shape": [1]}))
        past(c, "arrays", c.post("/v1/evaluate", {"expr": "1.0", "name": "x"}))
        for i in range(sessions):
            c.expect(201, c.post("/v1/sessions", {}))
        past(c, "sessions", c.post("/v1/sessions", {}))
        assert quota(c, "arrays") == {"limit": arrays, "used": arrays}
        assert quota(c, "sessions") == {"limit": sessions, "used": sessions}


def test_requests_in_flight(start, accounts):
    ann, bob = start(requests=1)
    bob.create(shape=[1000], name="u")
    body = {"bind": {"u": "u"}, "body": ["u += 1"], "steps": 100000000}
    waiting = threading.Thread(target=lambda c=bob.clone(): c.post("/v1/programs?wait=1", body, check=False))
    waiting.start()
    deadline = time.monotonic() + 20
    while (r := bob.get("/v1/jobs")).status == 200:
        assert time.monotonic() < deadline
    past(bob, "requests", r)
    assert ann.get("/v1/info").status == 200
    past(bob, "requests", bob.put("/v1/arrays/v", body=npy_bytes(np.ones(2)), content_type=NPY))
    accounts.write(accounts.path.read_text().replace("requests = 1", "requests = 2"))
    accounts.reload(start.daemon)
    job = bob.get("/v1/jobs").json()["jobs"][0]["id"]
    bob.delete(f"/v1/jobs/{job}")
    waiting.join(30)
    assert not waiting.is_alive()
    for _ in range(100):
        if quota(bob, "requests") == {"limit": 2, "used": 1}:
            break
        time.sleep(0.02)
    assert quota(bob, "requests") == {"limit": 2, "used": 1}


def test_body(start):
    ann, bob = start(body="100KiB")
    big, small = np.ones(20000), np.ones(10000)
    bob.upload(small, "u")
    for path, kind, data in (("/v1/arrays?shape=20000&dtype=float64", OCTETS, big.tobytes()), ("/v1/arrays", NPY, npy_bytes(big)),
                             ("/v1/evaluate", "application/json", b'{"expr": "1+' + b" " * 200000 + b'1"}')):
        for chunked in (False, True):
            past(bob, "body", bob.request("POST", path, data, content_type=kind, chunked=chunked))
            assert ann.request("POST", path, data, content_type=kind, chunked=chunked).status in (200, 201)
    past(bob, "body", bob.request("PUT", "/v1/arrays/u", npy_bytes(big), content_type=NPY, chunked=True))
    np.testing.assert_array_equal(bob.download("u"), small)
    assert [a["name"] for a in bob.get("/v1/arrays").json()["arrays"]] == ["u"]
    used(bob, "device_memory", small.nbytes)
    used(bob, "requests", 1)
    assert quota(bob, "body") == {"limit": 100 << 10, "used": 0}


def test_less_than_there_is(start, accounts):
    """What is there stays, and what comes is refused."""
    ann, bob = start()
    bob.upload(np.ones(N), "u")
    bob.upload(np.ones(N), "v")
    accounts.write(accounts.path.read_text().replace("[bob]\n", "[bob]\narrays = 1\ndevice-memory = 1KiB\n"))
    accounts.reload(start.daemon)
    past(bob, "device_memory", bob.post("/v1/arrays", {"shape": [10]}))
    bob.expect(204, bob.delete("/v1/arrays/v"))
    past(bob, "device_memory", bob.post("/v1/arrays", {"shape": [10]}))
    bob.expect(204, bob.delete("/v1/arrays/u"))
    used(bob, "device_memory", 0)
    bob.create(shape=[10])
    past(bob, "arrays", bob.post("/v1/arrays", {"shape": [10]}))
