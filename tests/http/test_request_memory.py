"""Memory of the host that requests take: it counts for who caused it, is bounded, and comes back."""
import json
import re
import socket
import time

import pytest

from conftest import NO_QUARANTINE, keeps_freed_memory

MIB = 1 << 20
SAMPLE = "sample(x,stack([index(0)*0.5+x[0,0]*%d,x[0,0],x[0,1]],axis=1))[0]"


@pytest.fixture
def start(daemon_with, accounts):
    """start(options, quotas of bob): ann, who has none, and bob, who has defined `large`, of some MiB a plan."""
    def run(*args, environment=(), **quotas):
        accounts.add("ann", role="operator")
        accounts.add("bob", **quotas)
        run.daemon = daemon_with("--backend", "cpu", "--accounts", accounts.path, *args, environment=environment)
        ann, bob = [accounts.client(run.daemon, name) for name in ("ann", "bob")]
        bob.put("/v1/arrays/u", {"shape": [16, 16, 16], "dtype": "float64", "fill": 1})
        bob.expect(201, bob.put("/v1/functions/large", {"params": ["x", "k"], "expr": "+".join(SAMPLE % i for i in range(60))}))
        return ann, bob

    return run


def quota(c):
    return c.info()["principal"]["quotas"]["request_memory"]


def functions(c):
    """What is used while nothing is asked."""
    return quota(c)["used"]


def settles(c, want):
    deadline = time.monotonic() + 30
    while quota(c)["used"] != want:
        assert time.monotonic() < deadline, (quota(c), want)
        time.sleep(0.01)


def resident(daemon):
    with open(f"/proc/{daemon.pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1]) * 1024


def resident_below(daemon, most):
    if keeps_freed_memory():
        return
    deadline = time.monotonic() + 30
    while resident(daemon) > most:
        assert time.monotonic() < deadline, (resident(daemon), most)
        time.sleep(0.05)


def too_much(c, code, limit, reply):
    status = {"quota_exceeded": 429, "out_of_memory": 507, "overloaded": 503}[code]
    e = c.fails(status, code, reply)
    assert limit in e["detail"], e
    return e


def held_back(daemon, c, n):
    """A body of n bytes whose last byte is still to come."""
    s = socket.create_connection((daemon.host, daemon.port))
    head = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": n, **c.always}
    s.sendall(b"POST /v1/evaluate HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()).encode() + b"\r\n")
    s.sendall(b'{"expr": "1+1"' + b" " * (n - 15))
    return s


def unread(daemon, c, body):
    """A request whose reply nobody reads."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect((daemon.host, daemon.port))
    body = json.dumps(body).encode()
    head = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(body), **c.always}
    s.sendall(b"POST /v1/explain HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()).encode() + b"\r\n" + body)
    return s


def test_one_request_is_bounded(start):
    ann, bob = start("--max-request-memory", "2MiB")
    assert bob.info()["limits"]["max_request_memory"] == 2 * MIB
    idle = functions(bob)
    small = {"expr": "large(u, 1)"}
    for path, body in (("explain", small), ("evaluate", small), ("explain", {"body": ["t = large(u, 1)"], "steps": 1}),
                       ("evaluate", {"statements": ["t = large(u, 1)", "v = t + 1"], "results": ["v"]}),
                       ("programs", {"body": ["u[0, 0, :1] += large(u, 1)"], "steps": 2})):
        too_much(bob, "out_of_memory", "max_request_memory", bob.post(f"/v1/{path}", body))
        settles(bob, idle)
    bob.expect(200, bob.post("/v1/evaluate", {"expr": "sum(u)"}))
    too_much(bob, "out_of_memory", "max_request_memory",
             bob.put("/v1/functions/f", body=raw(4 * MIB), content_type="application/json"))
    data = json.dumps({"dtype": "float64", "data": [1.5] * 300000}).encode()
    too_much(bob, "out_of_memory", "max_request_memory", bob.post("/v1/arrays", body=data, content_type="application/json"))


MADE_OF = {"a loop": {"body": [f"u[0, 0, :1] += large(u, {i})" for i in range(2)]},
           "a loop of what no cache keeps": {"body": ["u += " + "+".join(f"sin(u*{i}.{j})" for j in range(1500)) for i in range(3)]},
           "statements by themselves": {"body": [f"v += take(v*{i}, k)+" + "+".join(f"sin(v*{j}.{i})" for j in range(1000)) for i in range(4)]},
           "values": {"body": ["u += 1"], "record": {f"s{i}": f"sum(large(u, {i}))" for i in range(2)}},
           "a condition": {"body": ["u += 1"], "until": "sum(large(u, 1)) > 1e30"}}


@pytest.mark.in_turn
@pytest.mark.parametrize("limit, refused", ((3, 5), (16, 3), (64, 0)))
def test_a_program_that_begins_has_memory_for_its_plans(start, limit, refused):
    ann, bob = start("--max-request-memory", f"{limit}MiB", "--plan-cache-size", "64KiB")
    bob.put("/v1/functions/large", {"params": ["x", "k"], "expr": "+".join(SAMPLE % i for i in range(15))})
    bob.put("/v1/arrays/v", {"shape": [16], "dtype": "float64"})
    bob.put("/v1/arrays/k", {"shape": [16], "dtype": "int64"})
    n = 0
    for what, body in MADE_OF.items():
        body = body | {"steps": 40}
        explained, reply = [bob.post(f"/v1/{path}", body) for path in ("explain", "programs?wait=1")]
        if reply.status == 200:
            assert reply.json()["state"] == "done", (what, reply.json())
            continue
        n += 1
        for r in (explained, reply):
            pointer = too_much(bob, "out_of_memory", "max_request_memory", r)["pointer"]
            assert pointer.startswith(("/body/", "/record/s", "/until")), (what, pointer)
    assert n == refused


def raw(n):
    return b"{" + b" " * (n - 2) + b"}"


def test_bodies_that_are_held_back_count(start):
    ann, bob = start(request_memory="10MiB")
    idle = functions(bob)
    assert quota(bob)["limit"] == 10 * MIB
    held = []
    for i in range(3):
        held.append(held_back(start.daemon, bob, 2 * MIB))
        settles(bob, idle + sum(2 * MIB for _ in held))
    too_much(bob, "quota_exceeded", "quota request_memory",
             bob.put("/v1/functions/f", body=raw(4 * MIB), content_type="application/json"))
    bob.expect(200, bob.post("/v1/evaluate", {"expr": "1+1"}))
    ann.fails(422, "unknown_field", ann.put("/v1/functions/f", body=b'{"x": 1' + b" " * (2 * MIB) + b"}", content_type="application/json"))
    assert quota(ann)["used"] == 0
    held[0].sendall(b"}")
    assert held[0].recv(12) == b"HTTP/1.1 200"
    for s in held:
        s.close()
    settles(bob, idle)


def test_replies_that_nobody_reads_count_without_their_plans(start):
    ann, bob = start(request_memory="48MiB")
    idle = functions(bob)
    size = len(bob.post("/v1/explain", {"expr": "large(u, 1)"}, check=False).body)
    settles(bob, idle)
    each = 1 << size.bit_length()  # a text grows by doubling
    held = []
    while len(held) < 6:
        held.append(unread(start.daemon, bob, {"expr": f"large(u, {len(held)})"}))
        settles(bob, idle + len(held) * each)
    held.append(held_back(start.daemon, bob, 16 * MIB))
    settles(bob, idle + 6 * each + 16 * MIB)
    too_much(bob, "quota_exceeded", "quota request_memory", bob.post("/v1/explain", {"expr": "large(u, 100)"}))
    for s in held:
        s.close()
    settles(bob, idle)
    assert bob.post("/v1/explain", {"expr": "large(u, 100)"}, check=False).status == 200


@pytest.mark.in_turn
def test_what_a_program_takes_counts_until_it_is_forgotten(start):
    ann, bob = start(request_memory="48MiB")
    idle = functions(bob)
    started = []
    while True:
        reply = bob.post("/v1/programs", {"body": [f"u[0, 0, :1] += large(u, {len(started)})"], "steps": 10**12})
        if reply.status == 429:
            break
        started.append(reply.json()["id"])
        assert len(started) < 1000
    too_much(bob, "quota_exceeded", "quota request_memory", reply)
    assert quota(bob)["used"] > idle
    ann.expect(200, ann.post("/v1/evaluate", {"expr": "1+1"}))
    for job in started:
        bob.delete(f"/v1/jobs/{job}")
        bob.get(f"/v1/jobs/{job}?wait=1")
        bob.delete(f"/v1/jobs/{job}")
    settles(bob, idle)


def test_all_users_together_are_bounded(start):
    ann, bob = start("--total-request-memory", "8MiB", "--request-memory", "6MiB")
    assert quota(ann)["limit"] == 6 * MIB
    idle = functions(bob)
    held = [held_back(start.daemon, bob, 2 * MIB) for _ in range(2)]
    settles(bob, idle + 2 * 2 * MIB)
    too_much(ann, "overloaded", "total_request_memory",
             ann.put("/v1/functions/f", body=raw(4 * MIB), content_type="application/json"))
    assert f"\narrayd_request_memory_bytes {quota(bob)['used']}\n" in ann.get("/metrics").body.decode()
    assert f'arrayd_principal_request_memory_bytes{{principal="bob"}} {quota(bob)["used"]}\n' in ann.get("/metrics").body.decode()
    for s in held:
        s.close()


@pytest.mark.in_turn
def test_plans_of_programs_are_kept_by_what_they_take(start):
    ann, bob = start("--plan-cache-size", "8MiB", environment=NO_QUARANTINE)
    before = resident(start.daemon)
    for i in range(16):
        assert bob.post("/v1/explain", {"body": [f"t{k} = large(u, {i + 1}{k})" for k in range(2)], "steps": 1}, check=False).status == 200
    resident_below(start.daemon, before + 64 * MIB)


def test_what_was_let_go_goes_back_to_the_system(start):
    ann, bob = start("--plan-cache-size", "1MiB", environment=NO_QUARANTINE)
    before = resident(start.daemon)
    jobs = [bob.expect(202, bob.post("/v1/programs", {"body": [f"u[0, 0, :1] += large(u, {i})"], "steps": 10**12})).json()["id"]
            for i in range(4)]
    for job in jobs:
        bob.delete(f"/v1/jobs/{job}")
        bob.get(f"/v1/jobs/{job}?wait=1")
        bob.delete(f"/v1/jobs/{job}")
    resident_below(start.daemon, before + 64 * MIB)


@pytest.mark.in_turn
@pytest.mark.parametrize("n, size", ((16, 3_000_000), (200, 40_000), (2500, 5000)))
def test_arrays_that_were_let_go_leave_nothing(daemon_with, n, size):
    daemon = daemon_with("--backend", "cpu", environment=NO_QUARANTINE)
    c = daemon.client()
    c.post("/v1/evaluate", {"expr": "1+1"})
    before = resident(daemon)
    for i in range(n):
        c.put(f"/v1/arrays/a{i}", {"shape": [size], "dtype": "float64", "fill": 1})
    c.post("/v1/evaluate", {"expr": f"a{n - 1}[0]"})  # they are filled
    assert resident(daemon) > before + n * size * 4
    for i in range(n):
        c.delete(f"/v1/arrays/a{i}")
    resident_below(daemon, before + 40 * MIB)  # AddressSanitizer keeps some pages of small ones
    c.close()


def test_pages_of_functions_are_bounded_by_their_text(start):
    ann, bob = start()
    text = "x" + " " * 60000 + "+ 1"
    for i in range(20):
        bob.expect(201, bob.put(f"/v1/functions/f{i:02}", {"params": ["x"], "expr": text}))
    seen, after, pages = [], None, 0
    while True:
        reply = bob.get("/v1/functions?limit=1000" + (f"&after={after}" if after else ""))
        page = reply.json()
        assert len(reply.body) < 512 << 10 and page["functions"]
        seen += [f["name"] for f in page["functions"]]
        pages += 1
        after = page.get("next")
        if not after:
            break
    assert seen == ["large"] + [f"f{i:02}" for i in range(20)]
    assert 4 < pages < 10


def test_programs_that_share_what_is_kept(daemon_with):
    """A program that is lengthened statement by statement shares its plans with those before it: what gives way for it
    frees nothing while it has them itself."""
    c = daemon_with("--plan-cache-size", "64KiB").client()
    c.create(name="x", shape=[8, 8], dtype="float64")
    for n in range(1, 8):
        body = [f"x += 1e-9*({' + '.join(f'sin(x*{j}.{k})' for k in range(1, 6))})" for j in range(n)]
        job = c.expect(200, c.post("/v1/programs?wait=1", {"body": body, "steps": 2})).json()
        assert job["state"] == "done"
    c.close()
