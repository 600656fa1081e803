"""Who is to blame: what ran beside other work when something faulted has the device to itself the next time, what faulted
alone is refused, and users whose work faults again and again are, until an operator allows them; and all of that is known to
the next process."""
import os
import re
import signal
import threading
import time

import numpy as np
import pytest

from conftest import until
from test_keeper import DEADLY

HEAVY = "sum(" + " + ".join(f"sin(a*b*{k})" for k in range(1, 80)) + ")"


def ask(api, expr):
    return api.post("/v1/evaluate", {"expr": expr, "inline": True})


def value(api, expr):
    return api.expect(200, ask(api, expr)).json()["value"]


def faults(api):
    return api.expect(200, api.get("/v1/faults")).json()


def states(api):
    return sorted(w["state"] for w in faults(api)["work"])


def make(*clients):
    for c in clients:
        c.create(name="u", data=np.ones((8, 8)).tolist())
        c.expect(200, c.post("/v1/sessions/default/sync", {}))


class Later:
    """A request whose reply comes later."""

    def __init__(self, client, expr):
        self.thread = threading.Thread(target=self.run, args=(client, expr))
        self.thread.start()

    def run(self, client, expr):
        try:
            self.reply = ask(client, expr)
        except OSError:
            self.reply = None  # the process ended before it had answered

    def end(self):
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.reply


def three(accounts):
    for name in ("root", "ann", "bob"):  # Client.quiet() reads the metrics
        accounts.add(name, role="operator")
    accounts.add("sam")
    return ("--accounts", accounts.path)


class Node:
    """A daemon under a keeper, with an operator and two users."""

    def __init__(self, start, accounts, *args, **kw):
        keeps = [] if "--keep-arrays" in args else ["--keep-arrays=no"]
        self.d = start(*three(accounts), *keeps, *args, **kw)
        self.root, self.ann, self.bob = (accounts.client(self.d, name) for name in ("root", "ann", "bob"))

    def reborn(self, before, barred=None):
        """When another process answers; arrays are made anew, but by one who may make none."""
        for c in (self.root, self.ann, self.bob):
            c.close()
        until(lambda: self.d.pid not in (before, self.d.proc.pid), 60)
        make(*(c for c in (self.ann, self.bob) if c is not barred))

    def fault(self, api, expr, barred=None):
        """The next launch, of that, faults."""
        before = self.d.pid
        self.d.fail("719 async")
        r = ask(api, expr)
        assert r.status == 503, r
        self.reborn(before, barred)

    def in_flight(self):
        return float(re.search(r"^arrayd_jobs_in_flight (\S+)$", self.root.get("/metrics").body.decode(), re.M)[1])

    def crash(self, *pieces):
        """The process dies of a signal while that runs."""
        before = self.d.pid
        later = [Later(c, expr) for c, expr in pieces]
        until(lambda: self.in_flight() >= len(pieces), 60)
        time.sleep(0.3)  # and for the last of them to begin
        os.kill(before, signal.SIGSEGV)
        for x in later:  # asked again of the next process, there is nothing to compute with
            reply = x.end()
            assert reply is None or reply.status == 422, reply
        self.reborn(before)

    def end(self):
        for c in (self.root, self.ann, self.bob):
            c.close()


def fault_of_two(n, tmp_path, mine="sum(u*3)", others="max(u/7)"):
    """Kernels of ann's and of bob's are on the device when it faults."""
    before, fuse = n.d.pid, tmp_path / "fail"
    waiting = []
    for api, expr in ((n.ann, mine), (n.bob, others)):
        n.d.fail("719 held")
        waiting.append(Later(api, expr))
        until(lambda: not fuse.exists())
    (tmp_path / "fail.go").touch()
    for x in waiting:
        assert x.end().status == 503
    (tmp_path / "fail.go").unlink()
    n.reborn(before)


@pytest.mark.parametrize("cache", [False, True])
def test_who_was_beside_it_is_not_refused(gpu_with, accounts, tmp_path, cache):
    n = Node(gpu_with, accounts, *(["--kernel-cache", tmp_path / "kernels"] if cache else []))
    make(n.ann, n.bob)
    fault_of_two(n, tmp_path)
    known = faults(n.root)
    assert [w["state"] for w in known["work"]] == ["suspect"] * 2 and known["users"] == []
    assert all("LAUNCH_FAILED" in w["reason"] and w["kernels"] == "reduce-all" for w in known["work"])
    assert value(n.bob, "max(u/7)") == pytest.approx(1 / 7)  # it comes through, and is cleared
    assert states(n.root) == ["suspect"]
    n.fault(n.ann, "sum(u*3)")
    assert states(n.root) == ["refused"]
    assert [s["principal"] for s in faults(n.root)["users"]] == ["ann"]
    detail = n.ann.fails(422, "plan_faulted", ask(n.ann, "sum(u*3)"))["detail"]
    assert "running alone" in detail and "operator" in detail
    n.bob.fails(422, "plan_faulted", ask(n.bob, "sum(u*3)"))
    assert value(n.bob, "max(u/7)") == pytest.approx(1 / 7) and value(n.ann, "sum(u + 5)") == 384
    metrics = n.root.get("/metrics").body
    assert b"\narrayd_cuda_kernels_refused 1\n" in metrics
    # an operator allows it again
    key = faults(n.root)["work"][0]["key"]
    sam = accounts.client(n.d, "sam")
    sam.fails(403, "forbidden", sam.get("/v1/faults"))
    sam.fails(403, "forbidden", sam.delete("/v1/faults"))
    sam.fails(403, "forbidden", sam.delete(f"/v1/faults/{key}"))
    sam.close()
    n.root.fails(404, "not_found", n.root.delete("/v1/faults/nobody"))
    n.root.expect(204, n.root.delete(f"/v1/faults/{key}"))
    assert value(n.ann, "sum(u*3)") == 192 and states(n.root) == []
    n.end()


def test_work_that_is_suspected_in_a_program(gpu_with, accounts, tmp_path):
    """A program whose kernels were beside others' goes on as it was, several steps in a pass."""
    n = Node(gpu_with, accounts)
    make(n.ann, n.bob)
    before, fuse = n.d.pid, tmp_path / "fail"
    body = {"body": ["u = u + 0.1*laplacian(u)"], "steps": 64}
    n.d.fail("719 held")
    reply = []
    t = threading.Thread(target=lambda: reply.append(n.ann.post("/v1/programs?wait=1", body)))
    t.start()
    until(lambda: not fuse.exists())
    n.d.fail("719 held")
    other = Later(n.bob, "max(u/7)")
    until(lambda: not fuse.exists())
    (tmp_path / "fail.go").touch()
    t.join(30)
    assert n.ann.expect(200, reply[0]).json()["error"]["code"] == "device_lost" and other.end().status == 503
    (tmp_path / "fail.go").unlink()
    n.reborn(before)
    job = n.ann.expect(200, n.ann.post("/v1/programs?wait=1", body)).json()
    assert job["state"] == "done" and job["pass"]["steps"] > 1, job
    assert states(n.root) == ["suspect"]  # bob's
    n.end()


def test_three_strikes(gpu_with, accounts):
    n = Node(gpu_with, accounts, "--fault-window", 3000)
    make(n.ann, n.bob)
    for k in range(3):
        assert value(n.ann, "max(u)") == 1
        n.fault(n.ann, f"sum(u*{k + 2} + {'u+' * k}1)", n.ann if k == 2 else None)
    r = ask(n.ann, "max(u)")
    detail = n.ann.fails(429, "principal_faulted", r)["detail"]
    assert "3 times within 3000 seconds" in detail and 2900 < int(r.headers["Retry-After"]) <= 3001
    n.ann.fails(429, "principal_faulted", n.ann.post("/v1/programs", {"body": ["u = u + 1"], "steps": 3}))
    assert n.ann.list_all("/v1/arrays", "arrays") == []  # but may look at what there is
    assert value(n.bob, "max(u)") == 1
    assert [s["principal"] for s in faults(n.root)["users"]] == ["ann"] * 3
    metrics = n.root.get("/metrics").body.decode()
    assert 'arrayd_principal_faults{principal="ann"} 3\n' in metrics
    assert 'arrayd_principal_faults{principal="bob"} 0\n' in metrics
    assert "arrayd_work_refused 3\n" in metrics and "arrayd_work_suspected 0\n" in metrics
    assert len(re.findall("work of this user is not run for a while principal=ann", n.d.log())) == 1
    info = n.ann.info()
    assert info["limits"]["fault_limit"] == 3 and info["limits"]["fault_window"] == 3000
    # another process knows, too
    before = n.d.pid
    os.kill(before, signal.SIGKILL)
    n.reborn(before, n.ann)
    n.ann.fails(429, "principal_faulted", ask(n.ann, "max(u)"))
    n.root.expect(204, n.root.delete("/v1/faults/ann"))
    make(n.ann)
    assert value(n.ann, "max(u)") == 1 and states(n.root) == ["refused"] * 3
    n.root.expect(204, n.root.delete("/v1/faults"))
    assert faults(n.root) == {"work": [], "users": []}
    n.end()


@pytest.mark.in_turn
def test_a_program_of_a_user_who_is_refused_waits(gpu_with, accounts):
    """And is not lost: it goes on when the time is over."""
    n = Node(gpu_with, accounts, "--fault-limit", 1, "--fault-window", 6, "--keep-arrays")
    make(n.ann, n.bob)
    n.ann.create(name="x", data=[0.0] * 30)
    job = n.ann.expect(202, n.ann.post("/v1/programs", {"body": ["x += 1"], "steps": 20_000})).json()

    def now():
        return n.ann.expect(200, n.ann.get(f"/v1/jobs/{job['id']}")).json()

    until(lambda: now()["step"] > 500)
    before = n.d.pid
    n.d.fail("719 async")
    until(lambda: n.d.pid not in (before, n.d.proc.pid), 60)
    for c in (n.root, n.ann, n.bob):
        c.close()
    until(lambda: "no more of it is run" in (now().get("waiting") or ""))
    n.ann.fails(429, "principal_faulted", ask(n.ann, "max(u)"))
    assert n.ann.download("u").tolist() == np.ones((8, 8)).tolist()
    until(lambda: ask(n.ann, "max(u)").status == 200)  # it ends by itself
    until(lambda: now()["state"] == "done", 60)
    assert n.ann.download("x").tolist() == [20_000] * 30
    n.end()


def test_a_crash_and_a_start_that_fails(daemon_with, accounts, tmp_path):
    """The process after the one that crashed does not come to judging it: the next one does."""
    config = tmp_path / "config"
    config.write_text("backend = cpu\nthreads = 1\n")
    n = Node(daemon_with, accounts, "--config", config, "--restart-limit", 1000, environment=DEADLY)
    make(n.ann, n.bob)
    n.ann.expect(201, n.ann.post("/v1/arrays", {"name": "a", "fill": 1.0, "shape": [2500, 1]}))
    n.ann.expect(201, n.ann.post("/v1/arrays", {"name": "b", "fill": 1.0, "shape": [1, 2500]}))
    before, later = n.d.pid, Later(n.ann, HEAVY)
    until(lambda: n.in_flight() >= 1, 60)
    time.sleep(0.3)
    config.write_text("backend = none\n")
    os.kill(before, signal.SIGSEGV)
    until(lambda: n.d.log().count("exit status 2") >= 2, 60)
    config.write_text("backend = cpu\nthreads = 1\n")
    later.end()
    until(lambda: n.d.log().count(" ready ") == 2, 60)
    assert states(n.root) == ["suspect"] and "principal=ann" in n.d.log()
    n.end()


@pytest.mark.in_turn
def test_a_crash_while_work_runs(daemon_with, accounts):
    """The CPU backend: the process dies, and the next one knows what it was running."""
    n = Node(daemon_with, accounts, "--backend", "cpu", "--threads", 1, "--restart-limit", 1000, environment=DEADLY)
    make(n.ann, n.bob)

    def again():  # nothing that takes long: long work of two users would not run at once
        for c in (n.ann, n.bob):
            c.expect(201, c.post("/v1/arrays", {"name": "a", "fill": 1.0, "shape": [4000, 1]}))
            c.expect(201, c.post("/v1/arrays", {"name": "b", "fill": 1.0, "shape": [1, 4000]}))

    again()
    # nobody is to blame for what was not running, nor for a signal that somebody sent
    before = n.d.pid
    os.kill(before, signal.SIGKILL)
    n.reborn(before)
    again()
    assert faults(n.root) == {"work": [], "users": []}
    n.crash((n.ann, HEAVY))
    again()
    assert states(n.root) == ["suspect"] and faults(n.root)["users"] == []
    work, = faults(n.root)["work"]
    assert "signal 11" in work["reason"]
    line, = [x for x in n.d.log().splitlines() if "running when the previous process crashed" in x]
    assert "principal=ann" in line and work["key"] in line and "suspected" in line
    # it has the device to itself, and does it again
    n.crash((n.ann, HEAVY))
    again()
    assert states(n.root) == ["refused"] and [s["principal"] for s in faults(n.root)["users"]] == ["ann"]
    assert "signal 11" in n.ann.fails(422, "plan_faulted", ask(n.ann, HEAVY))["detail"]
    value(n.ann, "sum(a*b)")
    n.root.expect(204, n.root.delete("/v1/faults"))
    # of two, both are suspected; the one that comes through is cleared
    n.crash((n.ann, HEAVY), (n.bob, HEAVY.replace("sin", "cos")))
    again()
    assert states(n.root) == ["suspect"] * 2
    value(n.bob, HEAVY.replace("sin", "cos"))
    assert states(n.root) == ["suspect"]
    n.end()
