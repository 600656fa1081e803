"""Jobs go on by themselves in the next daemon, whatever kills it: with the bits and the values of an undisturbed run."""
import http.client
import os
import random
import signal
import threading
import time

import numpy as np
import pytest

from conftest import until
from test_ghost import whole
from test_keeper import kill_at_sight
from test_programs import job, jobs, run, start
from test_programs_events import events_of
from test_programs_ghosts import BOUNDARIES, grid
from test_reductions import hold as put
from test_survive import idle, keeping, kill


def hold(api, name, a):
    """Makes the array; what is not written yet when the daemon is killed is lost, and has lost what was to use it."""
    put(api, name, a)
    api.expect(200, api.post(f"/v1/sessions/{api.session or 'default'}/sync"))


@pytest.fixture(params=["cpu", "cuda"])
def both_with(request, daemon_with):
    """Starts a daemon that keeps arrays and jobs, with options."""
    if request.param == "cpu":
        return lambda *args: keeping(daemon_with, "--backend", "cpu", *args)
    gpu = request.getfixturevalue("gpu_with")
    return lambda *args: keeping(gpu, *args)


def under_way(j):
    return j["state"] in ("queued", "running")


def ended(api, ref, seconds=120):
    until(lambda: not under_way(job(api, ref)), seconds)
    return job(api, ref)


def die(api, d, sig=signal.SIGKILL):
    api.close()
    kill(d, sig)


HEAT = ["lap = laplacian(u, boundary='clamp')", "u += 0.1*lap", "t += 1"]
RECORD = {"record": {"energy": "sum(u*u)", "t": "t[0]"}, "record_every": 10, "until": "t[0] >= 19995", "until_every": 5}


@pytest.mark.in_turn
def test_ten_kills(both_with):
    """Heat equations that are killed at any time, ten times in all, end by themselves: with the bits and the values of one
    that nobody disturbed."""
    d = both_with("--job-restarts", 100)
    api = d.client()
    n = (120, 130) if api.info()["backend"] == "cpu" else (8, 9)
    want, kills, chance = None, 0, random.Random(1)
    while not want or kills < 10:
        hold(api, "u", np.random.default_rng(0).random(n))
        hold(api, "t", np.zeros(1))
        ref = start(api, HEAT, 20_000, **RECORD)
        while want and kills < 10 and under_way(before := job(api, ref)):
            die(api, d, signal.SIGKILL)  # a crash would be blamed on the job
            after = job(api, ref)
            assert after["state"] in ("running", "queued", "done"), after
            assert after["step"] >= before["step"] and after["created"] == before["created"]
            kills += 1
            time.sleep(1.01 if kills % 2 else chance.random() * 0.2)  # else the keeper puts off the next starts
        j = ended(api, ref)
        assert j["state"] == "done", f"{j}\n{d.log()[-3000:]}"
        got = (j["state"], j["step"], j["stopped_by"], j["records"], api.download("u").tobytes(), api.download("t").tolist())
        want = want or got
        assert got == want
        for a in ("u", "t"):
            api.expect(204, api.delete(f"/v1/arrays/{a}"))
    assert want[:2] == ("done", 19995) and len(want[3]["energy"]) == 1999
    api.close()


def test_what_a_name_meant(daemon_with):
    """It means that in the next daemon, too, whatever clients have named or defined meanwhile: arrays by their names and by
    "bind", scalars, functions that call others, and temporaries that have become arrays' names."""
    d = keeping(daemon_with)
    api = d.client()
    for name in ("a", "b", "x"):
        hold(api, name, np.arange(4.0) + ord(name))
    api.expect(201, api.post("/v1/functions", {"name": "half", "params": ["v"], "expr": "v/2"}))
    api.expect(201, api.post("/v1/functions", {"name": "mean2", "params": ["v", "w"], "expr": "half(v) + half(w)"}))
    ref = start(api, ["tmp = mean2(other, a)", "goal += tmp*0 + by"], 6_000_000, bind={"other": "b", "goal": "x", "by": 2},
                record={"m": "sum(mean2(other, a))"}, record_every=2_000_000)
    idle(api)
    api.expect(200, api.put("/v1/functions/half", {"params": ["v"], "expr": "v*1000"}))
    api.expect(204, api.delete("/v1/functions/mean2"))
    api.expect(200, api.patch("/v1/arrays/b", {"name": "was_b"}))
    hold(api, "tmp", np.zeros(7))
    hold(api, "b", np.zeros(9))
    api.expect(204, api.delete("/v1/arrays/a"))
    assert under_way(job(api, ref))
    die(api, d)
    j = ended(api, ref)
    m = float(np.sum((np.arange(4.0) + ord("b")) / 2 + (np.arange(4.0) + ord("a")) / 2))
    assert j["state"] == "done" and j["records"]["m"] == [m] * 3, j
    assert api.download("x").tolist() == (np.arange(4.0) + ord("x") + 12_000_000).tolist()
    assert api.download("tmp").tolist() == [0] * 7
    api.close()


SLOWER = 5 if os.environ.get("ARRAYD_SUBSET") else 1  # under sanitizers
HEAVY = "".join(f" + 0*sin(x*{k})" for k in range(60))


def test_before_they_begin(daemon_with):
    """Jobs that wait: for the slice of another that writes the same array, and for the end of a lease."""
    d = keeping(daemon_with)
    api = d.client()
    hold(api, "x", np.zeros(1 << 20))
    hold(api, "y", np.zeros(3))
    held = start(api, ["y += 1"], 3_000_000)
    lease = api.expect(201, api.post("/v1/arrays/y/lease", {"mode": "write", "ttl_s": 600})).json()["token"]
    refs = [start(api, ["x = x" + 4*HEAVY], 2)]  # whose first step takes longer than what comes before it is looked at
    until(lambda: job(api, refs[0])["state"] == "running")
    refs += [start(api, ["x += 1"], 10) for _ in range(3)]
    assert {job(api, ref)["state"] for ref in refs[1:]} == {"queued"}
    die(api, d)
    for ref in refs:
        assert ended(api, ref)["state"] == "done"
    assert set(api.download("x").tolist()) == {30.0}
    until(lambda: "waiting" in job(api, held))
    api.expect(204, api.delete("/v1/arrays/y/lease", headers={"Arrayd-Lease": lease}))
    assert ended(api, held)["state"] == "done" and [j["id"] for j in jobs(api)] == [held, *refs]
    assert api.download("y").tolist() == [3_000_000.0] * 3
    api.close()


def test_those_of_a_session_that_has_ended(daemon_with):
    """They have ended with it, however soon after that the daemon dies: nothing is said to be lost."""
    d = keeping(daemon_with)
    api = d.client()
    own = api.clone(session=api.expect(201, api.post("/v1/sessions", {})).json()["id"])
    hold(own, "x", np.zeros(4))
    ref = start(own, ["x += 1"], 10)
    assert ended(own, ref)["state"] == "done"
    api.expect(204, api.delete(f"/v1/sessions/{own.session}"))
    own.close()
    die(api, d)
    until(lambda: "taken over from the previous process" in d.log())
    assert "unusable" not in d.log() and "passed_over=0" in d.log()
    assert not jobs(api)
    api.close()


def test_those_that_have_ended(daemon_with):
    """What they recorded can be read; a cancelled one can be resumed, and one that is gone is gone."""
    d = keeping(daemon_with)
    api = d.client()
    hold(api, "x", np.zeros(3))
    hold(api, "y", np.zeros(3))
    done = run(api, ["x += 1"], 1000, record={"x": "x[0]", "n": "x[0] > 3"}, snapshot={"x": 400})
    failed = start(api, ["y = sqrt(y - 1)"], 10, stop_on_nan=True)
    removed = run(api, ["x += 0"])["id"]
    api.expect(204, api.delete(f"/v1/jobs/{removed}"))
    session = api.expect(201, api.post("/v1/sessions", {})).json()["id"]
    inside = d.client(session=session)
    hold(inside, "z", np.zeros(3))
    with_session = start(inside, ["z += 1"])
    inside.close()
    api.expect(204, api.delete(f"/v1/sessions/{session}"))
    cancelled = start(api, ["x += 1"], 10**12)
    until(lambda: job(api, cancelled)["step"] > 0)
    before = api.expect(200, api.delete(f"/v1/jobs/{cancelled}")).json()
    failed = ended(api, failed)
    assert before["state"] == "cancelled" and failed["error"]["code"] == "not_a_number"
    die(api, d)
    measured = "elapsed_s", "steps_per_s", "device_s", "pass", "forms"
    for want in (done, failed, before):
        got = job(api, want["id"])
        assert {k: v for k, v in got.items() if k not in measured} == {k: v for k, v in want.items() if k not in measured}
    assert [j["id"] for j in jobs(api)] == [done["id"], failed["id"], cancelled]
    for ref in (removed, with_session):
        api.fails(404, "not_found", api.get(f"/v1/jobs/{ref}"))
    assert [api.download(s["id"])[0] for s in job(api, done["id"])["snapshots"]] == [400, 800]
    api.fails(409, "conflict", api.post(f"/v1/jobs/{done['id']}/resume"))
    api.expect(202, api.post(f"/v1/jobs/{cancelled}/resume"))
    until(lambda: job(api, cancelled)["step"] > before["step"])
    die(api, d)
    assert under_way(job(api, cancelled))
    end = api.expect(200, api.delete(f"/v1/jobs/{cancelled}")).json()
    assert api.download("x").tolist() == [1000.0 + end["step"]] * 3
    for j in jobs(api):
        api.expect(204, api.delete(f"/v1/jobs/{j['id']}"))
    die(api, d)
    assert jobs(api) == []
    api.close()


def test_without_its_principal(daemon_with, accounts):
    """A job goes with its principal's account, and those of others go on."""
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    d = keeping(daemon_with, "--accounts", accounts.path)
    ann, bob = [accounts.client(d, name) for name in ("ann", "bob")]
    refs = []
    for c in (ann, bob):
        hold(c, "x", np.zeros(3))
        refs.append(start(c, ["x += 1"], 10**12))
    text = accounts.path.read_text()
    accounts.write(text[:text.index("[bob]")])
    bob.close()
    die(ann, d)
    assert under_way(job(ann, refs[0])) and [j["id"] for j in jobs(ann)] == refs[:1]
    ann.expect(200, ann.delete(f"/v1/jobs/{refs[0]}"))
    ann.close()


@pytest.mark.in_turn
def test_snapshots(daemon_with):
    """Each is there once, whole, however often the daemon dies while they are made."""
    d = keeping(daemon_with, "--job-restarts", 100)
    api = d.client()
    chance = random.Random(3)
    hold(api, "x", np.zeros(300_000 // SLOWER))
    ref = start(api, ["x += 1"], 6_000, snapshot={"x": 300})
    kills = 0
    while under_way(job(api, ref)) and kills < 12:
        die(api, d)
        kills += 1
        time.sleep(1.01 if kills % 3 == 0 else chance.random() * 0.2)
    j = ended(api, ref)
    assert j["state"] == "done" and kills > 2
    assert [s["step"] for s in j["snapshots"]] == [*range(300, 6_001, 300)]
    for s in j["snapshots"]:
        assert set(api.download(s["id"]).tolist()) == {float(s["step"])}
    assert len(api.list_all("/v1/arrays", "arrays")) == 21
    api.close()


@pytest.mark.in_turn
def test_views(daemon_with):
    """A view of a part cannot exchange its memory: results are copied to it. A job whose daemon dies in between ends, and
    says so; else it goes on. Never does it compute with what it had half-way."""
    d = keeping(daemon_with, "--job-restarts", 1000)
    api = d.client()
    outcomes, chance, kills = set(), random.Random(2), 0
    while len(outcomes) < 2 and kills < 60:
        hold(api, "base", np.zeros((3, 500_000)))
        api.delete("/v1/arrays/part")
        api.expect(201, api.post("/v1/arrays/base/views", {"index": "1", "name": "part"}))
        hold(api, "y", np.zeros(3))
        ref = start(api, ["part += 1", "y += 1"], 200, snapshot={"y": 1})  # so that every step is copied
        deaths = 0
        while deaths < 3 and under_way(job(api, ref)):
            time.sleep(chance.random() * 0.1)
            die(api, d)
            deaths, kills = deaths + 1, kills + 1
            time.sleep(1.01 if kills % 3 == 0 else 0)
        j = ended(api, ref)
        steps = api.download("y")[0]
        if j["state"] == "done":
            want = np.zeros((3, 500_000))
            want[1] = steps
            assert steps == 200 and (api.download("base") == want).all()
            outcomes.add("went on") if deaths else None
        else:
            assert j["error"]["code"] == "contents_lost" and f"step {j['step']} " in j["error"]["detail"] and steps == j["step"], j
            assert api.get("/v1/arrays/part/data").status in (200, 409)
            outcomes.add("ended")
        for s in j["snapshots"]:
            assert api.download(s["id"])[0] == s["step"]
            api.expect(204, api.delete(f"/v1/arrays/{s['id']}"))
    assert outcomes == {"went on", "ended"}
    api.close()


@pytest.mark.in_turn
def test_an_upgrade(daemon_with):
    """In the midst of a program: who waits for it gets it as it is, events go on where they were."""
    d = keeping(daemon_with)
    api = d.client()
    hold(api, "x", np.zeros(30_000))
    ref = start(api, ["x += 1"], 100_000, record={"x": "x[0]"}, record_every=1000)
    late, events = [], []

    def wait():
        c = api.clone()
        late.append(c.get(f"/v1/jobs/{ref}?wait=1"))
        c.close()

    def follow():
        c, headers = api.clone(), {}
        while not events or events[-1][0] != "end":
            try:
                events.extend(events_of(c.expect(200, c.get(f"/v1/jobs/{ref}/events", headers=headers)).body.decode()))
                headers = {"Last-Event-ID": events[-1][1]}
            except (OSError, http.client.HTTPException):
                c.close()
        c.close()

    threads = [threading.Thread(target=f) for f in (wait, follow)]
    for t in threads:
        t.start()
    until(lambda: job(api, ref)["step"] > 5000)
    api.close()
    before, asked = d.pid, time.monotonic()
    d.proc.send_signal(signal.SIGUSR2)
    until(lambda: d.pid not in (before, d.proc.pid) and "upgraded" in d.log())
    assert time.monotonic() - asked < 8
    assert late or under_way(job(api, ref))
    j = ended(api, ref)
    for t in threads:
        t.join()
    assert late[0].status == 200 and under_way(late[0].json()), late
    assert j["state"] == "done" and api.download("x")[7] == 100_000
    values = []
    for _, _, data in events:
        assert data["records_from"] == len(values)
        values += data["records"]["x"]
    assert values == j["records"]["x"] == [1000.0 * (k + 1) for k in range(100)]
    api.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGUSR2])
def test_arrays_that_only_jobs_have(daemon_with, how):
    """A job goes on with the array that it began with, whatever its name means by now."""
    d = keeping(daemon_with, "--backend", "cpu")  # a GPU is through with them too soon
    api = d.client()
    refs, steps = {}, 30_000
    for name in ("gone", "other", "later"):
        hold(api, name, np.zeros(30_000))
        refs[name] = start(api, [f"{name} += 1"], steps, record={"x": f"{name}[7]"}, record_every=steps)
        until(lambda: job(api, refs[name])["step"] > 0)
    api.expect(200, api.delete(f"/v1/jobs/{refs['later']}"))
    for name in ("gone", "later"):
        api.expect(204, api.delete(f"/v1/arrays/{name}"))
    api.expect(200, api.put("/v1/arrays/other", {"shape": [3]}))
    idle(api)
    assert under_way(job(api, refs["gone"])) and under_way(job(api, refs["other"]))
    api.close()
    if how == signal.SIGKILL:
        kill(d)
    else:
        before = d.pid
        d.proc.send_signal(how)
        until(lambda: d.pid not in (before, d.proc.pid) and "upgraded" in d.log())
    for name, ref in refs.items():
        if name == "later":  # a client whose array is gone may not resume it: it stays as it ended
            assert job(api, ref)["state"] == "cancelled"
            continue
        j = ended(api, ref)
        assert j["state"] == "done" and j["records"]["x"] == [steps], j
    api.close()


@pytest.mark.in_turn
def test_deaths_while_it_takes_over(daemon_with):
    """Of the daemon that is about to go on with it, again and again."""
    d = keeping(daemon_with)
    api = d.client()
    hold(api, "x", np.zeros(3000))
    refs = [start(api, ["x += 1"], 20_000, record={"x": "x[0]"}, record_every=2000) for _ in range(3)]
    api.close()
    end = time.monotonic() + 2
    kill_at_sight(d, lambda: time.monotonic() > end)
    for ref in refs:
        assert ended(api, ref)["state"] == "done"
    assert api.download("x")[0] == 60_000
    api.close()


def one_that_never_gets_further(d, deaths, sig):
    """The daemon dies in the midst of its first step (long on a CPU), while another job waits for its turn; returns both, and a client."""
    api = d.client()
    hold(api, "x", np.linspace(0, 1, 3_000_000 // SLOWER))
    hold(api, "y", np.zeros(3))
    other = start(api, ["y += 1"], 10**12)
    ref = start(api, ["x = x" + 8*HEAVY], 2)
    for _ in range(deaths):
        until(lambda: job(api, ref)["state"] == "running" and job(api, other)["step"] > 0)
        assert under_way(job(api, ref)) and job(api, ref)["step"] == 0
        time.sleep(0.2)
        die(api, d, sig)
    return ref, other, api


@pytest.mark.in_turn
def test_one_that_crashes_the_daemon(daemon_with):
    """A job that the daemon crashes of again and again ends, after which it can be resumed; those beside it go on."""
    d = keeping(daemon_with, "--backend", "cpu", "--job-restarts", 1, "--max-cost", 10**15)
    ref, other, api = one_that_never_gets_further(d, 2, signal.SIGSEGV)
    assert api.info()["limits"]["job_restarts"] == 1
    j = job(api, ref)
    assert j["state"] == "failed" and j["step"] == 0 and j["error"]["code"] == "internal", j
    assert "2 times in a row" in j["error"]["detail"] and "job-restarts" in j["error"]["detail"]
    assert under_way(job(api, other))
    api.expect(204, api.delete("/v1/faults"))  # its work would be refused
    api.expect(202, api.post(f"/v1/jobs/{ref}/resume"))
    assert ended(api, ref)["state"] == "done"
    api.expect(200, api.delete(f"/v1/jobs/{other}"))
    api.close()


@pytest.mark.in_turn
def test_one_whose_daemon_is_killed(daemon_with):
    """That says nothing about the job, however often it happens in one step."""
    d = keeping(daemon_with, "--backend", "cpu", "--job-restarts", 1, "--max-cost", 10**15)
    ref, other, api = one_that_never_gets_further(d, 4, signal.SIGKILL)
    assert ended(api, ref)["state"] == "done" and under_way(job(api, other))
    api.expect(200, api.delete(f"/v1/jobs/{other}"))
    api.close()


def test_a_full_journal(daemon_with):
    """A job that records more than it has room for goes on; if the daemon dies then, it ends, and says why."""
    d = keeping(daemon_with, "--journal-size", "4MiB")
    api = d.client()
    hold(api, "x", np.zeros(3))

    def define():
        name, more = f"f{random.getrandbits(60)}", " " * 20_000
        r = api.post("/v1/functions", {"name": name, "params": ["x"], "expr": "x" + more})
        return name if r.status == 201 else api.fails(507, "out_of_memory", r) and None

    while name := define():
        last = name
    record = {"record": {"x": "x[0]", "y": "x[0] + 1", "z": "x[0] + 2"}}
    api.fails(507, "out_of_memory", api.post("/v1/programs", {"body": ["x += 1"], "record": {"a": "x[0]" + " "*50_000}}))
    assert jobs(api) == []
    api.expect(204, api.delete(f"/v1/functions/{last}"))
    j = run(api, ["x += 1"], 10_000, **record)
    assert j["state"] == "done" and j["records"]["z"] == [k + 3.0 for k in range(10_000)]
    assert d.log().count("has no room in the journal") == 1
    api.expect(204, api.delete(f"/v1/jobs/{j['id']}"))
    hold(api, "x", np.zeros(3))
    ref = start(api, ["x += 1"], 300_000, **record)
    until(lambda: d.log().count("has no room in the journal") == 2)
    assert under_way(job(api, ref))
    die(api, d)
    j = job(api, ref)
    assert j["state"] == "failed" and j["error"]["code"] == "out_of_memory" and "journal-size" in j["error"]["detail"], j
    n = len(j["records"]["x"])
    assert 0 < n < j["step"] and j["records"]["x"] == [k + 1.0 for k in range(n)]
    assert api.download("x").tolist() == [float(j["step"])] * 3
    api.fails(409, "conflict", api.post(f"/v1/jobs/{ref}/resume"))
    die(api, d)
    assert job(api, ref) == j
    api.expect(204, api.delete(f"/v1/jobs/{ref}"))
    assert run(api, ["x += 1"])["state"] == "done"
    api.close()


@pytest.mark.in_turn
@pytest.mark.parametrize("how", ["700", "719 async"])
def test_a_lost_device(gpu_with, how):
    """The daemon ends by itself, and nobody is told that the job had failed."""
    if os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("only the fake driver does that")
    d = keeping(gpu_with)
    api = d.client()
    hold(api, "x", np.zeros(30))
    steps = 180_000
    ref = start(api, ["x += 1"], steps, record={"x": "x[0]"}, record_every=20)
    for k in range(2):
        until(lambda: job(api, ref)["step"] > 5000 * (k + 1))
        before = d.pid
        d.fail(how, at_once=True)
        until(lambda: d.pid not in (before, d.proc.pid))
        api.close()
        assert under_way(job(api, ref))
    said = [line for line in d.log().splitlines() if "on the device when it was lost" in line]
    assert how == "700" or len(said) == 2 and all("principal=local" in line and "x += 1" in line and ref in line for line in said), said
    j = ended(api, ref)
    assert j["state"] == "done" and j["records"]["x"] == [20.0 * (k + 1) for k in range(steps // 20)]
    assert api.download("x").tolist() == [steps] * 30
    api.close()


def test_an_array_that_ends_with_the_daemon(daemon_with):
    """The job that uses it fails, and says which it was."""
    d = keeping(daemon_with, "--max-kept-arrays", 1)
    api = d.client()
    hold(api, "x", np.zeros(3))
    hold(api, "u", np.ones(3))
    ref = start(api, ["x += u"], 10**12)
    until(lambda: job(api, ref)["step"] > 0)
    die(api, d)
    j = ended(api, ref)
    assert j["state"] == "failed" and j["error"]["code"] == "contents_lost" and "'u' was in memory that does not outlive" in j["error"]["detail"], j
    api.expect(404, api.get("/v1/arrays/u"))
    api.close()


def test_an_array_that_others_were_writing(daemon_with):
    """What it had is lost, so the job that uses it fails, and can be resumed when the array has contents again."""
    d = keeping(daemon_with)
    api = d.client()
    hold(api, "u", np.ones(1 << 20))
    hold(api, "x", np.zeros(3))
    ref = start(api, ["x += u[0]"], 10**12)
    until(lambda: job(api, ref)["step"] > 0)
    heavy = "u*0 + 1" + "".join(f" + 0*sin(u*{k})" for k in range(60))
    for _ in range(20):
        assert api.post("/v1/evaluate", {"expr": heavy, "out": "u"}).status in (200, 202)
    die(api, d)
    api.fails(409, "contents_lost", api.get("/v1/arrays/u/data"))
    j = ended(api, ref)
    assert j["state"] == "failed" and j["error"]["code"] == "contents_lost", j
    assert api.download("x").tolist() == [float(j["step"])] * 3
    assert "was being written" in j["error"]["detail"]
    api.expect(200, api.post("/v1/evaluate", {"expr": "2.0", "out": "u"}))
    api.expect(202, api.post(f"/v1/jobs/{ref}/resume"))
    until(lambda: job(api, ref)["step"] > j["step"])
    end = api.expect(200, api.delete(f"/v1/jobs/{ref}")).json()
    assert api.download("x").tolist() == [float(j["step"] + 2 * (end["step"] - j["step"]))] * 3
    api.close()


@pytest.mark.in_turn
@pytest.mark.parametrize("steps, body", [
    (60_001, ["fill_ghost(u)", "u += 0.001*laplacian(u, boundary='ghost')"]), (60_001, ["u += 0.001*laplacian(u, boundary='ghost')"]),
    (6001, ["b = ~b", "c = conj(c)*0.5 + z", "h = h*0.5 + take(i, k)", "k = (k + 1) % 5", "u[2:4] = u[2:4]*0.999"])])
def test_of_every_kind(daemon_with, steps, body):
    """Ghost cells that the program fills, or that others have; dtypes, indices that are looked up, parts."""
    d = keeping(daemon_with, "--job-restarts", 100)
    api = d.client()
    arrays = {"b": np.arange(900) % 3 == 0, "c": np.arange(70) + 0j, "z": np.ones(70, "complex64"), "h": np.zeros(9, "float16"),
              "i": np.array([3, 1, 4, 1, 5]), "k": np.array(0, "int8")}
    shape, results, deaths = [30, 31], [], 0
    for dies in (False, True):
        grid(api, "u", shape, BOUNDARIES[2])
        for name, a in arrays.items():
            hold(api, name, a)
        ref = start(api, body, steps)
        while dies and deaths < 4 and under_way(job(api, ref)):
            time.sleep(0.02)
            die(api, d)
            deaths += 1
        j = ended(api, ref)
        assert j["state"] == "done", j
        results.append([whole(api, "u", "float64", shape, [1, 1]).tobytes()] + [api.download(name).tobytes() for name in arrays])
        for name in ("u", *arrays):
            api.expect(204, api.delete(f"/v1/arrays/{name}"))
    assert results[0] == results[1] and deaths
    api.close()


def test_what_others_lent(daemon_with, accounts):
    """Another user's array that is shared, until that is taken back; and a lease that the job's request held."""
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    d = keeping(daemon_with, "--accounts", accounts.path)
    ann, bob = [accounts.client(d, name) for name in ("ann", "bob")]
    ids = {}
    for name in ("read", "written"):
        hold(ann, name, np.ones(3))
        ids[name] = ann.meta(name)["id"]
        r = ann.post(f"/v1/arrays/{name}/shares", {"principal": "bob", "access": "read" if name == "read" else "write"})
        assert r.status in (200, 201), r
    hold(bob, "x", np.zeros(3))
    token = bob.expect(201, bob.post("/v1/arrays/x/lease", {"mode": "write", "ttl_s": 600})).json()["token"]
    body = {"body": ["x += r", "w += 1"], "bind": {"r": ids["read"], "w": ids["written"]}, "steps": 10**12}
    bob.fails(409, "locked", bob.post("/v1/programs", body))
    ref = bob.expect(202, bob.post("/v1/programs", body, headers={"Arrayd-Lease": token})).json()["id"]
    until(lambda: job(bob, ref)["step"] > 0)
    ann.close()
    for _ in range(2):
        die(bob, d)
        step = job(bob, ref)["step"]
        until(lambda: job(bob, ref)["step"] > step)
        assert "waiting" not in job(bob, ref)
    ann.expect(204, ann.delete("/v1/arrays/read/shares/bob"))
    j = ended(bob, ref)
    assert j["state"] == "failed" and j["error"]["code"] == "not_found"
    bob.expect(204, bob.delete("/v1/arrays/x/lease", headers={"Arrayd-Lease": token}))
    assert bob.download("x").tolist() == [float(j["step"])] * 3 and ann.download("written").tolist() == [j["step"] + 1.0] * 3
    die(bob, d)
    ann.close()
    assert job(bob, ref)["state"] == "failed"
    bob.fails(409, "conflict", bob.post(f"/v1/jobs/{ref}/resume"))
    bob.close()
