"""Loops of the Python client become programs: the same values, fewer requests, and nothing that the program did not reach."""
import asyncio
import gc
import os
import pathlib
import pickle
import random
import re
import runpy
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
from arrayd._graph import Node  # noqa: E402
from conftest import until  # noqa: E402
from loops import Program  # noqa: E402
from test_client_python import PACKAGE, requests, xp  # noqa: E402,F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here
SEED = int(os.environ.get("ARRAYD_SEED") or time.time())
PROGRAMS = int(os.environ.get("ARRAYD_PROGRAMS") or (5000 if os.environ.get("ARRAYD_LONG") else 50))


def bits(values):
    """A NaN has no sign."""
    values = [np.asarray(v) for v in values]
    values = [np.where(v != v, v.dtype.type(np.nan), v) if v.dtype.kind in "fc" else v for v in values]
    return [(v.dtype, v.shape, v.tobytes()) for v in values]


def programs(first, has_loop, share):
    """Random programs with their seeds: PROGRAMS of them, and up to four times as many if loops were found in fewer than that
    share of them, as happens by chance in one run of a hundred, and with four times as many in one of 10^12."""
    found = 0
    for n in range(4 * PROGRAMS):
        before = has_loop()
        yield first + n, Program(first + n)
        found += has_loop() > before
        if n + 1 >= PROGRAMS and found > share * PROGRAMS:
            return
    raise AssertionError(f"loops were found in {found} of {n + 1} programs only")


@pytest.mark.in_turn
def test_random_loops(xp, monkeypatch):  # noqa: F811
    """The same bits as operation by operation; and NumPy's values, where these do not hang on the order of additions."""
    ran = []
    run = arrayd._engine.Engine.run

    def counted(self, *a, **k):
        r = yield from run(self, *a, **k)
        ran.append(r is not None)
        return r

    monkeypatch.setattr(arrayd._engine.Engine, "run", counted)
    for seed, program in programs(SEED, lambda: sum(ran), 0.2):
        f = program.function(np=np)
        got = f(xp)
        with arrayd.config(loops=False):
            assert bits(got) == bits(f(xp)), f"seed {seed}\n{program.source}"
        if program.dtype in ("float64", "int32", "int64"):
            with np.errstate(all="ignore"):
                want = f(np)
            assert len(want) == len(got), f"seed {seed}\n{program.source}"
            for g, w in zip(got, want):
                assert np.allclose(g, w), f"seed {seed}\n{program.source}"
    assert all(ran), (sum(ran), len(ran))


def sent_early(monkeypatch):
    """Loops are sent while they are built after a few operations already, and seen to all the time."""
    for name, value in {"WORTH": 0, "OFTEN": 8, "FIRST": 24, "STEPS": 4, "SECONDS": 0}.items():
        monkeypatch.setattr(arrayd._flow, name, value)


@pytest.mark.in_turn
def test_random_loops_sent_while_they_are_built(xp, monkeypatch):  # noqa: F811
    sent_early(monkeypatch)
    begun = []
    begin = arrayd._flow.Flow.begin
    monkeypatch.setattr(arrayd._flow.Flow, "begin", lambda self, *a: (begun.append(1), begin(self, *a)))
    for seed, program in programs(SEED + 4 * PROGRAMS, lambda: len(begun), 0.05):
        f = program.function(np=np)
        got = f(xp)
        with arrayd.config(loops=False):
            assert bits(got) == bits(f(xp)), f"seed {seed}\n{program.source}"


def laplacian(xp, z):  # noqa: F811
    return xp.roll(z, 1, axis=0) + xp.roll(z, -1, axis=0) + xp.roll(z, 1, axis=1) + xp.roll(z, -1, axis=1) - 4 * z


def heat(xp, u, steps):  # noqa: F811
    for _ in range(steps):
        u = u + 0.1 * laplacian(xp, u)
    return u


def field(n=32):
    return np.random.default_rng(3).random((n, n))


def test_one_program(xp, api):  # noqa: F811
    u = heat(xp, xp.asarray(field()), 300)
    assert u.explain() == "a program: 300 steps of 11 operations, from one to the next (32, 32; float64)"
    before = requests(api)
    assert np.array_equal(np.asarray(u), heat(np, field(), 300))
    assert requests(api) - before <= 5
    assert u.explain() == "nothing is to be computed"


def test_programs_that_people_write(xp, api, daemon, monkeypatch, capsys):  # noqa: F811
    """examples/fields.py: NumPy's values, and few requests for hundreds of steps."""
    fields = runpy.run_path(str(PACKAGE / "examples" / "fields.py"))
    most = {"gray_scott": 12, "gray_scott_in_place": 16, "shallow_water": 16, "life": 8, "conjugate_gradients": 80, "edges": 6}
    for program in fields["PROGRAMS"]:
        before, want = requests(api), np.asarray(program(np, 40))
        got = np.asarray(program(xp, 40))
        assert requests(api) - before <= most[program.__name__], program.__name__
        assert got.dtype == want.dtype and want.any()
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=program.__name__)
    monkeypatch.setattr(sys, "argv", ["fields.py", f"http://127.0.0.1:{daemon.port}"])
    fields["main"]()
    assert capsys.readouterr().out.count("NumPy") == len(fields["PROGRAMS"])


def test_two_fields_one_behind_the_other(xp, api):  # noqa: F811
    """What a step reads of the step before the last."""
    def wave(xp, u):  # noqa: F811
        v = u * 1
        for _ in range(100):
            u, v = 2 * u - v + 0.1 * laplacian(xp, u), u
        return np.asarray(u), np.asarray(v)

    before = requests(api)
    for got, want in zip(wave(xp, xp.asarray(field())), wave(np, field())):
        assert np.allclose(got, want, rtol=1e-12)
    assert requests(api) - before <= 16


def test_numbers_that_differ(xp, api):  # noqa: F811
    def driven(xp, u):  # noqa: F811
        for i in range(100):
            u = u + 0.1 * laplacian(xp, u) * (1 - 0.002 * i)
            u[16, 16] += np.sin(0.3 * i)
        return u

    u = driven(xp, xp.asarray(field()))
    assert u.explain() == "a program: 100 steps of 15 operations, 2 numbers of its own each, from one to the next (32, 32; float64)"
    before = requests(api)
    assert np.array_equal(np.asarray(u), driven(np, field()))
    assert requests(api) - before <= 8


def test_a_number_that_is_one_of_those_that_differ(xp):  # noqa: F811
    """In the last step, which the program's body is written from, both are the same object."""
    def steps(xp, u):  # noqa: F811
        numbers = [xp.asarray(0.01 * k) for k in range(20)]
        for k in numbers:
            u = u + 0.1 * laplacian(xp, u) * numbers[-1] + k
        return u

    assert np.array_equal(np.asarray(steps(xp, xp.asarray(field()))), steps(np, field()))


def test_what_one_kernel_does(xp, api):  # noqa: F811
    """Steps that are elementwise are one expression where they fit into one: one pass over memory."""
    x, want = xp.asarray(field()), field()
    for _ in range(100):
        x, want = 3.7 * x * (1 - x), 3.7 * want * (1 - want)
    assert x.explain() == "one expression of 300 operations"
    assert np.array_equal(np.asarray(x), want)


def test_parts_that_are_written(xp, api):  # noqa: F811
    def water(xp):  # noqa: F811
        h, u, v = xp.asarray(1 + field()), xp.zeros((32, 32)), xp.zeros((32, 32))
        for _ in range(200):
            u[1:-1, 1:-1] -= 0.01 * (h[2:, 1:-1] - h[:-2, 1:-1])
            v[1:-1, 1:-1] -= 0.01 * (h[1:-1, 2:] - h[1:-1, :-2])
            h[1:-1, 1:-1] -= 0.01 * ((h * u)[2:, 1:-1] - (h * u)[:-2, 1:-1] + (h * v)[1:-1, 2:] - (h * v)[1:-1, :-2])
            h[0, :] = h[1, :]
            h[-1, :] = h[-2, :]
        return [np.asarray(x) for x in (h, u, v)]

    before = requests(api)
    for got, want in zip(water(xp), water(np)):
        assert np.allclose(got, want, rtol=1e-12)
    assert requests(api) - before <= 20  # a tenth of one for each step


def test_what_is_looked_at_each_step(xp, api):  # noqa: F811
    u, want = xp.asarray(field()), field()
    before = requests(api)
    for _ in range(300):
        u, want = heat(xp, u, 1), heat(np, want, 1)
        assert float(xp.max(u)) == np.max(want)
    assert re.search(r"ahead: \d+ of \d+ steps that were run ahead have been looked at", u.explain())
    assert np.array_equal(np.asarray(u), want)
    assert requests(api) - before <= 60


def test_what_ends_by_what_it_sees(xp):  # noqa: F811
    """The state is that of the step at which the program stopped, however far the server was."""
    for limit in (0.9, 0.8, 0.7, 0.65, 0.6):
        def settle(xp, u):  # noqa: F811
            for n in range(1000):
                u = heat(xp, u, 1)
                if float(xp.max(u)) < limit:
                    break
            return n, np.asarray(u), np.asarray(u + 1)

        got, want = settle(xp, xp.asarray(field())), settle(np, field())
        assert got[0] == want[0] > 0 and all(np.array_equal(g, w) for g, w in zip(got[1:], want[1:]))


def test_several_looks_a_step(xp, api):  # noqa: F811
    u, want = xp.asarray(field()), field()
    before = requests(api)
    for _ in range(200):
        u, want = heat(xp, u, 1), heat(np, want, 1)
        assert float(xp.max(u)) == np.max(want)
        assert float(xp.min(u)) == np.min(want)
        assert bool(xp.any(u > 0.5)) == np.any(want > 0.5)
    assert requests(api) - before <= 60


def test_what_others_may_write_is_not_run_ahead(xp, api):  # noqa: F811
    xp.save("forcing", np.ones((32, 32)))
    u = xp.asarray(field())
    f = xp.array("forcing")
    seen = []
    for k in range(20):
        u = u * 0.5 + f
        seen.append(float(xp.sum(u)))
        if k == 12:
            api.post("/v1/evaluate", {"expr": "0", "out": "forcing"})
    assert seen[13] < seen[12] - 400


WRITES = {
    "assigned": lambda xp, x: (x.__setitem__(0, 100.0), xp.sync()),
    "a program": lambda xp, x: xp.program(["x += 1"], steps=2, x=x).wait(),
    "a reference": lambda xp, x: pickle.loads(pickle.dumps(x)).__setitem__(0, 100.0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("name", ["f", "u"])
def test_what_is_written_between_looks_is_seen(xp, name, write):  # noqa: F811
    """Also where it is written to the memory that there was: what had been run ahead read what was there before."""
    def sums():
        u, f = xp.asarray(np.ones(64)), xp.asarray(np.full(64, 2.0))
        for k in range(30):
            u = 0.5 * u + 0.5 * xp.roll(u, 1)
            yield float(xp.max(u * f))
            if k == 12:
                write(xp, {"u": u, "f": f}[name])

    with arrayd.config(loops=False):
        want = [*sums()]
    assert want[12] != want[13]
    assert [*sums()] == want


@pytest.mark.parametrize("anew", [False, True], ids=["changed", "anew"])
def test_steps_run_in_vain_are_few(xp, monkeypatch, anew):  # noqa: F811
    """A program that leaves the loop again and again does not pay for steps each time."""
    ran = []
    run_program = arrayd._engine.Engine.run_program

    def counted(self, request, brief):
        ran.append(request["steps"])
        return (yield from run_program(self, request, brief))

    monkeypatch.setattr(arrayd._engine.Engine, "run_program", counted)
    u, want = xp.asarray(field()), field()
    r = random.Random(1)
    leaves = {k + r.randint(-1, 1) for k in range(1, 300, 5)}
    for k in range(300):
        if k in leaves:
            u, want = (xp.asarray(field()), field()) if anew else (u * 0.5, want * 0.5)
        u, want = heat(xp, u, 1), heat(np, want, 1)
        assert float(xp.max(u)) == np.max(want)
    assert 0 < sum(ran) < 80


def test_kept_on_the_way_and_read_backwards(xp, api):  # noqa: F811
    """Steps that have been computed once are not computed anew for each of them."""
    for look in (False, True):
        u, frames, want = xp.asarray(field()), [], field()
        before = requests(api)
        for _ in range(100):
            u = heat(xp, u, 1)
            frames.append(u)
            if look:
                float(xp.max(u))
        for x in reversed(frames):
            got = np.asarray(x)
        assert requests(api) - before <= 220, look
        assert np.array_equal(got, heat(np, want, 1))


def test_a_timeout_that_is_short(daemon):
    """A program is waited for by whole seconds; where no request may take as long, there is none."""
    with arrayd.connect(f"http://127.0.0.1:{daemon.port}", timeout=1.5) as c:
        u = heat(c, c.asarray(field()), 200)
        assert u.explain() == "statements: 2200 operations"
        assert np.array_equal(np.asarray(u), heat(np, field(), 200))


def test_random_numbers_differ_each_step(xp):  # noqa: F811
    u = xp.zeros((8,))
    seen = []
    for _ in range(12):
        u = u + xp.random((8,))
        seen.append(float(xp.sum(u)))
    assert len(set(np.diff(seen).round(9))) == 11
    u = xp.zeros((1000,))
    for _ in range(60):
        u = u + xp.random((1000,))
    assert 25 < float(xp.mean(u)) < 35 and float(xp.std(u)) > 1.5  # 60 equal ones would be at 17


def test_a_graph_does_not_grow_without_end(xp):  # noqa: F811
    gc.collect()
    u, want = heat(xp, xp.asarray(field(8)), 6000), heat(np, field(8), 6000)
    assert sum(isinstance(o, Node) for o in gc.get_objects()) < 45000
    assert np.array_equal(np.asarray(u), want)


def test_memory_that_is_not_there(daemon_with):
    """Where a program has none, it goes without one."""
    d = daemon_with("--memory-limit", "3MiB")
    with arrayd.connect(f"http://127.0.0.1:{d.port}") as c:
        u = heat(c, c.asarray(field(256)), 50)
        assert np.array_equal(np.asarray(u), heat(np, field(256), 50))


@pytest.fixture
def slow(daemon_with):
    """A daemon whose jobs last for a while, also where there is a GPU or many cores."""
    return daemon_with("--backend", "cpu", "--threads", 1)


def test_a_job_that_somebody_ends(slow, monkeypatch):
    """The error says so, and the arrays are those of the step that it came to: asked for again, the rest is computed."""
    monkeypatch.setattr(arrayd._flow, "WORTH", 1 << 60)  # nothing is sent before it is asked for
    steps = 600
    api, xp = slow.client(), arrayd.connect(f"http://127.0.0.1:{slow.port}")
    u = heat(xp, xp.asarray(field(1024)), steps)

    def end():
        running = []

        def found():
            running[:] = [j for j in api.get("/v1/jobs").json()["jobs"] if j["state"] == "running" and j["step"] > 10 and j["steps"] == steps]
            return running

        until(found)
        api.delete(f"/v1/jobs/{running[0]['id']}")

    ender = threading.Thread(target=end)
    ender.start()
    with pytest.raises(arrayd.ArraydError) as e:
        u.compute()
    ender.join()
    assert e.value.code == "cancelled"
    assert int(u.explain().split(" steps")[0].split()[-1]) < steps - 10
    got = np.asarray(u)
    with arrayd.config(loops=False):
        assert np.array_equal(got, np.asarray(heat(xp, xp.asarray(field(1024)), steps)))
    xp.close()


def test_interrupted(slow):
    """Ctrl-C ends what the server does for the loop."""
    script = """import arrayd, numpy as np, sys
xp = arrayd.connect(sys.argv[1])
u = xp.asarray(np.ones((2048, 2048)))
for _ in range(1500): u = u + 0.1*(xp.roll(u, 1, axis=0) - u)
try: print("begins", flush=True); np.asarray(u)
except KeyboardInterrupt: print("interrupted", flush=True)
"""
    path = str(pathlib.Path(arrayd.__file__).resolve().parents[1])
    p = subprocess.Popen([sys.executable, "-c", script, f"http://127.0.0.1:{slow.port}"], stdout=subprocess.PIPE, text=True,
                         env={**os.environ, "PYTHONPATH": path})
    assert p.stdout.readline() == "begins\n"
    c = slow.client()

    def running():
        return [j for j in c.get("/v1/jobs").json()["jobs"] if j["state"] == "running"]

    until(lambda: running() and running()[0]["step"] > 0)
    p.send_signal(signal.SIGINT)
    assert p.stdout.readline() == "interrupted\n"
    until(lambda: not running())
    assert p.wait() == 0


def test_threads(xp):  # noqa: F811
    """Each has loops of its own."""
    wrong = []

    def work(k):
        u, want = xp.asarray(field(16 + k)), field(16 + k)
        for _ in range(80):
            u, want = heat(xp, u, 1), heat(np, want, 1)
            if float(xp.max(u)) != np.max(want):
                wrong.append(k)
        if not np.array_equal(np.asarray(u), want):
            wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_asynchronous(daemon, api):
    """Loops are recognised; what is looked at is not run ahead: other tasks may look meanwhile."""
    async def steps():
        async with arrayd.aconnect(f"http://127.0.0.1:{daemon.port}") as c:
            before = requests(api)
            u, want = heat(c, c.asarray(field()), 200), heat(np, field(), 200)
            assert np.array_equal(await u.numpy(), want)
            assert requests(api) - before <= 6
            for _ in range(12):
                u, want = heat(c, u, 1), heat(np, want, 1)
                assert await c.max(u).item() == np.max(want)

    asyncio.run(steps())


@pytest.fixture
def eager(monkeypatch):
    """Loops over small arrays are sent while they are built, too: the numbers of steps."""
    monkeypatch.setattr(arrayd._flow, "WORTH", 0)
    monkeypatch.setattr(arrayd._flow, "SECONDS", 0)
    steps = []
    run_program = arrayd._engine.Engine.run_program

    def counted(self, request, brief):
        steps.append(request["steps"])
        return (yield from run_program(self, request, brief))

    monkeypatch.setattr(arrayd._engine.Engine, "run_program", counted)
    return steps


def left(api):
    """Arrays of ours, and jobs that run."""
    return [m for m in api.get("/v1/arrays").json()["arrays"] if not m.get("name")] + [j for j in api.get("/v1/jobs").json()["jobs"] if j["state"] == "running"]


def test_sent_while_it_is_built(xp, eager):  # noqa: F811
    u = heat(xp, xp.asarray(field()), 300)
    built = sum(eager)
    assert built >= 8
    assert np.array_equal(np.asarray(u), heat(np, field(), 300))
    assert sum(eager) == 300


def test_large_arrays_are_sent_while_loops_are_built(xp, monkeypatch):  # noqa: F811
    began = []
    begin = arrayd._flow.Flow.begin
    monkeypatch.setattr(arrayd._flow.Flow, "begin", lambda self, *a: (began.append(1), begin(self, *a)))
    for n in (64, 512):
        u = heat(xp, xp.asarray(field(n)), 60)
        assert bool(began) == (n == 512)
        assert np.array_equal(np.asarray(u), heat(np, field(n), 60))


def test_kept_on_the_way_while_it_is_built(xp, eager):  # noqa: F811
    """What steps carry and the program has is kept."""
    u, want, frames, wanted = xp.asarray(field()), field(), [], []
    for k in range(200):
        u, want = heat(xp, u, 1), heat(np, want, 1)
        if k % 10 == 9:
            frames.append(u)
            wanted.append(want)
    u.explain()  # waits
    sent = sum(eager)
    assert sent >= 20 and all(f.explain() == "nothing is to be computed" for f in frames[:sent // 10])
    assert np.array_equal(np.asarray(u), want)
    assert all(np.array_equal(np.asarray(f), w) for f, w in zip(frames, wanted))


def test_nothing_is_left_of_what_is_dropped(xp, api, eager):  # noqa: F811
    for look in (False, True):
        u = xp.asarray(field())
        for _ in range(100):
            u = heat(xp, u, 1)
            if look:
                float(xp.max(u))
        del u
        xp._engine.flow.leave()
        gc.collect()
        xp.release()
        until(lambda: not left(api))


def test_a_job_that_somebody_ends_while_more_is_built(xp, api, eager, monkeypatch):  # noqa: F811
    """The values are right all the same: what it has not computed is computed when it is asked for."""
    begin = arrayd._transport.Transport.begin

    def ended(self, r):
        if r.method == "GET" and r.path.startswith("/v1/jobs/"):
            api.delete(r.path.split("?")[0])
        return begin(self, r)

    monkeypatch.setattr(arrayd._transport.Transport, "begin", ended)
    u = heat(xp, xp.asarray(field(256)), 200)
    assert eager
    monkeypatch.setattr(arrayd._transport.Transport, "begin", begin)
    assert np.array_equal(np.asarray(u), heat(np, field(256), 200))


def test_written_in_place_while_it_is_read(xp, eager):  # noqa: F811
    """What a loop that is under way reads is not what is written after it was built."""
    f, want_f, u, want = xp.asarray(field()).compute(), field(), xp.asarray(field()), field()
    for k in range(120):
        u, want = heat(xp, u, 1) + 0.01 * f, heat(np, want, 1) + 0.01 * want_f
        if k % 40 == 30:
            f[1:-1] *= 2
            want_f[1:-1] *= 2
            xp.sync()
    assert np.array_equal(np.asarray(u), want) and np.array_equal(np.asarray(f), want_f)


@pytest.mark.parametrize("when", range(5, 40, 5))
def test_written_after_what_was_run_ahead(xp, when):  # noqa: F811
    """Steps run ahead of others that are run ahead begin with copies."""
    u, want = xp.asarray(field()), field()
    for k in range(60):
        u[1:-1] += 0.1 * u[2:]
        want[1:-1] += 0.1 * want[2:]
        assert float(xp.max(u)) == np.max(want)
        if k == when:
            xp.sync()
            u[3:5] = 0.25
            want[3:5] = 0.25
            xp.sync()
    assert np.array_equal(np.asarray(u), want)


def test_a_forked_child_leaves_it_alone(xp, api, eager):  # noqa: F811
    u = heat(xp, xp.asarray(field()), 100)
    child = os.fork()
    if child == 0:
        try:
            heat(xp, u, 30)
            gc.collect()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert np.array_equal(np.asarray(u), heat(np, field(), 100))


def test_single_elements_are_read_and_written_here(xp, api):  # noqa: F811
    """Of a small array, once it has been seen that it is read so."""
    def paths(xp):  # noqa: F811
        table = xp.zeros((40, 40), np.int64)
        for i in range(1, 40):
            for j in range(1, 40):
                table[i, j] = max(table[i - 1, j], table[i, j - 1]) + (i * j) % 3
        return np.asarray(table)

    before = requests(api)
    assert np.array_equal(paths(xp), paths(np))
    assert requests(api) - before < 20


@pytest.mark.parametrize("row", ["xp.zeros(50)", "xp.arange(50.) + i", "a[i] * 2", "a[i].sum()"])
def test_rows_are_joined_in_linear_time(xp, row):  # noqa: F811
    """A list that is gone through is no loop that carries all of its elements."""
    n, begin = 2000, time.process_time()
    a = xp.asarray(np.random.default_rng(1).random((n, 50)))
    rows = [eval(row, {"xp": xp, "a": a, "i": i}) for i in range(n)]  # noqa: S307
    whole = np.asarray(xp.stack(rows))
    assert time.process_time() - begin < 3  # it was more than 10 s
    assert np.allclose(whole, np.stack([eval(row, {"xp": np, "a": np.asarray(a), "i": i}) for i in range(n)]))  # noqa: S307


def test_switched_off(xp):  # noqa: F811
    u = heat(xp, xp.asarray(field()), 100)
    assert u.explain().startswith("a program: ")
    with arrayd.config(loops=False):
        assert u.explain() == "one expression of 1100 operations"
        assert np.array_equal(np.asarray(u), heat(np, field(), 100))
    assert arrayd.config().loops
