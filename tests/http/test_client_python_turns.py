"""Threads, signal handlers, interrupts and forks at the worst moment: what is read is right, or it is an error."""
import concurrent.futures
import multiprocessing
import os
import pathlib
import random
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
from arrayd._ahead import Ahead  # noqa: E402
from test_client_python import xp  # noqa: E402,F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here


def writes(r):
    return r.method == "POST" and r.path == "/v1/evaluate" and b"] = " in bytes(r.body)


@pytest.fixture
def during(xp, monkeypatch):  # noqa: F811
    """`during(which, do)`: the next request that `which` is true of is sent by `do(send, request)`."""
    send = type(xp._transport).send

    def begin(which, do):
        def sends(transport, r, *more, **others):
            if not which(r):
                return send(transport, r, *more, **others)
            monkeypatch.setattr(type(transport), "send", send)
            return do(lambda: send(transport, r, *more, **others), r)

        monkeypatch.setattr(type(xp._transport), "send", sends)

    return begin


@pytest.mark.in_turn
def test_threads_that_look_at_the_same_expressions(xp):  # noqa: F811
    """What another thread has just computed is a leaf of what this one is writing down, or is none: nothing between."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for seed in range(120):
            rng = random.Random(seed)
            a = np.random.default_rng(seed).random((rng.choice((50, 5000)), 3))
            x, r, pairs = xp.asarray(a.copy()), a.copy(), []
            for _ in range(rng.choice((6, 40))):
                c = rng.randrange(4)
                if c == 0:
                    x, r = xp.roll(x, 1, axis=0)*0.5 + x, np.roll(r, 1, axis=0)*0.5 + r
                elif c == 1:
                    x, r = x - xp.sum(x, axis=0, keepdims=True)/len(r), r - np.sum(r, axis=0, keepdims=True)/len(r)
                elif c == 2:
                    x, r = x[::-1] + 1, r[::-1] + 1
                else:
                    x, r = x.copy(), r.copy()
                    x[1:-1] += 1
                    r[1:-1] += 1
                pairs.append((x, r))

            def look(k):
                for x, r in random.Random(k).sample(pairs, min(6, len(pairs))):
                    np.testing.assert_allclose(np.asarray(x) if k % 2 else float(xp.sum(x)), r if k % 2 else r.sum(), rtol=1e-7, atol=1e-6)

            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                list(pool.map(look, range(4)))
    finally:
        sys.setswitchinterval(interval)


def test_a_signal_handler_looks(xp, during):  # noqa: F811
    """While its thread waits for the reply to a write: the write is not made a second time, and other arrays can be looked at."""
    x, y, said = xp.zeros(5000).compute(), xp.ones(5000), []

    def handler(send, _):
        said.append(float(xp.sum(y)))
        with pytest.raises(RuntimeError, match="signal handler"):
            float(x[7])
        return send()

    x[5:100] += 1
    during(writes, handler)
    assert float(x[7]) == 1 and np.asarray(x).sum() == 95 and said == [5000]


def test_a_finalizer_looks_as_expressions_are_read(xp, monkeypatch):  # noqa: F811
    """Also at what is just being written down, and at what has assignments."""
    from arrayd import _engine
    x, y, z, said, written = xp.ones(5000) + 1, xp.ones(5000), xp.zeros(5000).compute(), [], _engine.Written
    y[:5] = 7
    z[:3] += 1

    def finalizer(order):
        monkeypatch.undo()
        said.extend([float(xp.sum(x)), float(xp.sum(y)), np.asarray(z)[:4].tolist()])
        return written(order)

    monkeypatch.setattr(_engine, "Written", finalizer)
    assert float(xp.sum(x)) == 10000 and said == [10000, 5030, [1, 1, 1, 0]]
    assert float(xp.sum(y)) == 5030 and float(xp.sum(z)) == 3 and z[0] == 1


def test_a_worker_of_multiprocessing_s_sends_what_waits(xp):  # noqa: F811
    """At its end, which comes without Python's exit hooks."""
    s = xp.save("workers", xp.zeros(8))

    def work(k):
        s[k] = k + 1

    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert np.asarray(s).tolist() == [1, 2, 3, 4, 0, 0, 0, 0] and [w.exitcode for w in workers] == [0]*4
    xp.delete("workers")


@pytest.mark.parametrize("when", range(12, 30))
def test_an_interrupted_look(xp, monkeypatch, when):  # noqa: F811
    """The looks after it are not taken for the one that it was."""
    foreseen, looks = Ahead._foreseen, []

    def interrupted(self, node):
        looks.append(node)
        if len(looks) == when:
            raise KeyboardInterrupt
        return foreseen(self, node)

    monkeypatch.setattr(Ahead, "_foreseen", interrupted)
    r = np.random.default_rng(1).random(200)
    x, interrupts = xp.asarray(r.copy()), 0
    for _ in range(40):
        x, r = x + 0.1*(xp.roll(x, 1) - x), r + 0.1*(np.roll(r, 1) - r)
        try:
            assert float(xp.max(x)) == r.max()
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts == 1 and np.array_equal(np.asarray(x), r)


def interrupt(send, _):
    send()
    raise KeyboardInterrupt


def test_interrupted_writes_to_a_shared_array_are_told(xp, during):  # noqa: F811
    s = xp.save("interrupted", xp.zeros(100))
    during(writes, interrupt)
    s[3] = 1
    with pytest.raises(KeyboardInterrupt):
        float(s[3])
    with pytest.raises(arrayd.ConnectionLost, match=r"whether they have been made is not known, the first at .*test_client_python_turns.py:\d+"):
        float(s[3])
    s[4] = 2
    assert float(s[4]) == 2
    xp.delete("interrupted")


@pytest.mark.parametrize("body, status", [(b"{}", 200), (b"<html>bad gateway</html>", 502)])
def test_a_reply_that_is_not_the_daemons(xp, during, body, status):  # noqa: F811
    """The write may have been made; it is not made again."""
    from arrayd._endpoint import succeeded
    x = xp.zeros(5000).compute()

    def garble(send, r):
        return succeeded(send()._replace(body=body, status=status))

    x[5:100] += 1
    during(writes, garble)
    with pytest.raises(arrayd.ArraydError):
        float(x[7])
    with pytest.raises(arrayd.ConnectionLost, match="whether it has been written to is not known"):
        float(x[7])


def test_a_forked_child_does_not_see_later_writes(xp):  # noqa: F811
    """What the child has not computed is of the values that there were at the fork, or an error."""
    x = xp.asarray(np.arange(5000.)).compute()
    x[3:9] += 1
    theirs, ours = os.pipe()
    go, start = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.read(go, 1)
            try:
                text = str(float(x[4]))
            except arrayd.NotFound:
                text = "gone"
            os.write(ours, text.encode())
        finally:
            os._exit(0)
    assert float(x[4]) == 5
    os.write(start, b"x")
    os.waitpid(child, 0)
    assert os.read(theirs, 100) in (b"5.0", b"gone")
    x[3:9] += 1
    handle = x.compute()._node.handle
    x[3:9] += 1
    assert float(x[4]) == 7 and x._node.handle is handle  # the parent's own again: written in place
    for end in (theirs, ours, go, start):
        os.close(end)


def test_a_connection_that_is_not_kept(xp):  # noqa: F811
    """A reply that was waited for some seconds at most, on a connection of which there are enough."""
    transport = xp._transport
    sent = [transport.begin(xp._engine.ask("GET", "/v1/info")) for _ in range(12)]
    assert [s.reply(3.0).status for s in sent] == [200]*12
    assert all(wire.sock.gettimeout() == transport.timeout for wire, _ in transport._idle)
