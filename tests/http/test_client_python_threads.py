"""clients/python: threads that compute the same expressions at once. NumPy says what is right."""
import random
import sys
import threading

import numpy as np
import pytest

from test_client_python import arrayd, xp  # noqa: F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here


def step(m, state, c):
    a, b, z = state
    if c == 0:
        state[0] = a * 0.5 + b
    elif c == 1:
        state[1] = m.roll(a, 1, 0) * 0.25
    elif c == 2:
        a[1:-1] += b[2:]
    elif c == 3:
        b[:, 0] = z[:, 1]
    elif c == 4:
        z[0] = a[1] * 0.5
    else:
        state[0] = m.minimum(a, 50.0)


@pytest.fixture
def switching():
    """Threads take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.in_turn
def test_threads_that_compute_the_same(xp, switching):  # noqa: F811
    """Also expressions that write to parts of arrays, and loops."""
    for seed in range(150):
        r = random.Random(seed)
        n = r.choice([8, 8, 120])
        want = [np.arange(n * 4.0).reshape(n, 4) + k for k in range(3)]
        state = [xp.asarray(v) for v in want]
        if seed % 2:
            for x in state:
                x.compute()
        pattern, kept = [r.randrange(6) for _ in range(r.randrange(1, 5))], []
        for _ in range(r.choice([10, 40, 150])):
            for c in pattern if r.random() < 0.9 else [r.randrange(6)]:
                step(xp, state, c), step(np, want, c)
            if r.random() < 0.1:
                kept.append((state[0] + 0.0, want[0] + 0.0))
        kept += zip(state, want)
        wrong = []

        def look(k):
            rr = random.Random(k)
            try:
                for x, v in rr.sample(kept, len(kept)):
                    if rr.random() < 0.3:
                        assert float(x[1, 2]) == v[1, 2]
                    elif rr.random() < 0.3:
                        np.testing.assert_allclose(float(xp.sum(x[0])), v[0].sum(), rtol=1e-9)
                    else:
                        np.testing.assert_array_equal(np.asarray(x), v)
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=look, args=(4 * seed + k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if wrong:
            raise wrong[0]


def test_threads_that_write_to_what_is_shared(xp, switching):  # noqa: F811
    """Every assignment is made, once, and no array that had a part of the values before shows it."""
    a, b, table = xp.save("a", np.zeros(4)), xp.save("b", np.zeros(4)), xp.asarray(np.zeros((50, 4))).compute()
    made, wrong = [[0, 0] for _ in range(4)], []

    def work(k):
        r = random.Random(k)
        try:
            for _ in range(150):
                c = r.randrange(5)
                if c < 2:
                    (a, b)[c][k] += 1
                    made[k][c] += 1
                elif c == 2:
                    rows = xp.asarray(np.zeros((3, 4)))
                    rows[0], rows[1] = a, b
                    assert not np.asarray(rows)[2].any()
                elif c == 3:
                    table[r.randrange(50)] = a
                else:
                    float(xp.sum(table)), float(a[0] + b[1])
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    try:
        if wrong:
            raise wrong[0]
        assert [[float(a[k]), float(b[k])] for k in range(4)] == made
    finally:
        xp.delete("a"), xp.delete("b")


def test_a_loop_of_which_another_thread_has_computed_a_part(xp, monkeypatch):  # noqa: F811
    """Between when it was found and when it is sent. Its numbers differ from step to step."""
    a, want = xp.asarray(np.arange(480.0).reshape(120, 4)), np.arange(480.0).reshape(120, 4)
    for k in range(40):
        a, want = xp.roll(a, 1, 0) * (0.5 + k) + 1.0, np.roll(want, 1, 0) * (0.5 + k) + 1.0
        if k == 1:
            early, early_want = a, want
    engine, met = xp._engine, []
    whole = engine.settle_loop

    def late(loop, nodes):
        other = threading.Thread(target=early.compute)
        other.start()
        while early._node.args:
            yield engine.ask("GET", "/v1/info")
        other.join()
        met.append(any(not n.args for n in nodes[loop.start:loop.end]))
        return (yield from whole(loop, nodes))

    monkeypatch.setattr(engine, "settle_loop", late)
    np.testing.assert_allclose(np.asarray(a), want, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(early), early_want, rtol=1e-12)
    assert any(met)
