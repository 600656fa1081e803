"""Loops of the Python client that look at several numbers in each step, or at small arrays, are run ahead like those with one look."""
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
from test_client_python import requests, xp  # noqa: E402,F401
from test_client_python_loops import bits, field, laplacian, sent_early  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here

SEEN = {
    "one": lambda xp, u, v: [float(xp.max(u))], "three": lambda xp, u, v: [float(xp.max(u)), float(xp.min(v)), float(xp.min(u))],
    "four": lambda xp, u, v: [float(f(x)) for x in (u, v) for f in (xp.max, xp.min)],
    "eight": lambda xp, u, v: [float(f(x)) for f in (xp.max, xp.min, xp.argmax, lambda x: xp.max(x[3])) for x in (u, v)],
    "an element": lambda xp, u, v: [float(u[3, 4])], "elements": lambda xp, u, v: [u[3, 4].item(), float(v[5, 6]), float(xp.max(u))],
    "a part": lambda xp, u, v: [u[3:5, 7].numpy()], "parts": lambda xp, u, v: [np.asarray(u[3:5, 4:6]), str(v[2, :5]), float(xp.min(u)), v[-1, ::9].tolist()],
    "results": lambda xp, u, v: [np.asarray(xp.stack([xp.max(u), xp.min(v)])), np.asarray(u[:2].max(axis=1)), bool(xp.any(v > 0.3))],
}


@pytest.mark.in_turn
@pytest.mark.parametrize("looks", SEEN.values(), ids=SEEN)
def test_many_looks_in_a_step(xp, api, looks):  # noqa: F811
    """Numbers and small arrays: a request for some ten steps, and the same bits."""
    def reaction(steps):
        u, seen = xp.asarray(field()), []
        v = u * 0.3
        for _ in range(steps):
            uvv = u * v * v
            u, v = u + 0.1 * (0.16 * laplacian(xp, u) - uvv + 0.06 * (1 - u)), v + 0.1 * (0.08 * laplacian(xp, v) + uvv - 0.122 * v)
            seen += looks(xp, u, v)
        return seen, np.asarray(u), np.asarray(v)

    before = requests(api)
    got = reaction(600)
    assert requests(api) - before <= 60
    with arrayd.config(loops=False):
        want = reaction(600)
    assert all(a == b if isinstance(b, str) else bits([a]) == bits([b]) for a, b in zip([*got[0], *got[1:]], [*want[0], *want[1:]]))
    assert len(got[0]) == len(want[0])


OLD_FIRST = {
    "sums": lambda xp, u, old: [float(xp.sum(old**2)), float(xp.max(abs(u - old)))],
    "a condition": lambda xp, u, old: [float(xp.max(abs(u - old)))] if xp.sum(old**2) > 1e-30 else [],
    "a sum of both": lambda xp, u, old: [float(s := xp.sum(old**2)), float(xp.sum((u - old)**2) / s)],
    "something else": lambda xp, u, old: [float(xp.max(xp.roll(old, 1, 0) * 2)), float(xp.min(u))],
}


@pytest.mark.in_turn
@pytest.mark.parametrize("looks", OLD_FIRST.values(), ids=OLD_FIRST)
@pytest.mark.parametrize("parts", [False, True])
def test_the_old_field_is_looked_at_first(xp, api, looks, parts):  # noqa: F811
    """The new one has been made before, and belongs to the look after."""
    def relaxed(xp, u):  # noqa: F811
        seen = []
        for _ in range(200):
            old = u.copy()
            if parts:
                u[1:-1, 1:-1] = 0.25 * (old[1:-1, :-2] + old[1:-1, 2:] + old[:-2, 1:-1] + old[2:, 1:-1])
            else:
                u = old + 0.1 * laplacian(xp, old)
            seen += looks(xp, u, old)
        return [*seen, np.asarray(u)]

    before = requests(api)
    got = relaxed(xp, xp.asarray(field()))
    assert requests(api) - before <= 80
    with arrayd.config(loops=False):
        want = relaxed(xp, xp.asarray(field()))
    assert bits(got[-1:]) == bits(want[-1:]) and np.allclose(got[:-1], want[:-1], rtol=1e-12, atol=0)  # sums are in another order


def test_what_is_made_of_a_part(xp, api):  # noqa: F811
    """It stays part of the step when its values have been seen, and later ones are others."""
    def edges(xp):  # noqa: F811
        u, seen = xp.asarray(field()), []
        for k in range(120):
            edge = u[0, :4] * 2
            seen.append(np.array(edge))
            u = 0.5 * u + 0.25 * xp.max(edge) - (0.125 if k < 70 else 0.25)
            seen.append(np.array(edge + 1))
        return [*seen, np.asarray(u)]

    before = requests(api)
    got = edges(xp)
    assert requests(api) - before <= 80
    assert bits(got) == bits(edges(np))
    with pytest.raises(ValueError, match="read-only"):
        xp.asarray(field())[0, :3].numpy()[0] = 1


def test_large_whole_numbers(xp):  # noqa: F811
    """Beyond what JSON's numbers have exactly."""
    def doubled(xp):  # noqa: F811
        x, seen = xp.asarray(np.arange(1, 4, dtype=np.int64)), []
        for _ in range(60):
            x = x * 2 + 1
            seen += [int(x[1]), np.array(x[:2]), int(xp.max(x))]
        return seen

    assert bits(doubled(xp)) == bits(doubled(np))


def test_looks_back_at_what_a_loop_has_left(xp):  # noqa: F811
    """The looks after it are alike, and those before them have fewer operations than these refer to."""
    def left(xp):  # noqa: F811
        a, b, kept = xp.zeros(7) + 1, xp.ones(7), []
        for i in range(17):
            a[1:] = i % 4
            a = a - b + a
            b = xp.where(abs(b) > 1000, b * 0 + 1, b)
            kept.append(xp.sum(b))
        return [np.asarray(x) for x in (b, a, *kept)]

    assert bits(left(xp)) == bits(left(np))


def test_what_only_seems_to_repeat(xp, api):  # noqa: F811
    """Four steps that happen to be the same are no loop: a program for each would be some requests."""
    def walk(xp, y):
        rng = np.random.default_rng(1)
        for _ in range(6000):
            c = float(rng.random())
            y = y*c + 1 if rng.random() < 0.5 else abs(y - c)
        return np.asarray(y)

    before = requests(api)
    assert np.array_equal(walk(xp, xp.asarray(np.ones(100))), walk(np, np.ones(100)))
    assert requests(api) - before < 60


def test_the_step_that_is_looked_at_is_whole(xp, api):  # noqa: F811
    """Also what the number is not made of: a step's other half is not left to statements before the next steps."""
    def reaction(xp, u, v, looked):  # noqa: F811
        for i in range(400):
            r = u * v * v
            u, v = u + 0.1 * laplacian(xp, u) - r, v + 0.05 * laplacian(xp, v) + r
            if i % 80 == 79:
                looked.append(float(xp.max(v)))
        return np.asarray(u), np.asarray(v)

    before, got, want = requests(api), [], []
    fields = reaction(xp, xp.asarray(field()), xp.asarray(field() / 3), got)
    sent = requests(api) - before
    for x, y in zip(fields, reaction(np, field(), field() / 3, want)):
        assert np.allclose(x, y, rtol=1e-11)
    assert np.allclose(got, want, rtol=1e-11)
    assert sent <= 5 * 3 + 5  # copies, a program, its number; at first two uploads; the fields in the end


def test_what_is_wanted_is_not_written_over(xp, monkeypatch):  # noqa: F811
    """The state before a look's step was computed together with that step, whose assignment went to its memory: it was made twice."""
    def f(xp):  # noqa: F811
        a = xp.zeros((8,), dtype=xp.int32) + 1
        z = xp.asarray(np.full((8,), 1+2j, "complex128"))
        sums, looked = [], []
        for i in range(17):
            z = xp.where(a > 2, z, 2j)
            a += i - a
            a += xp.where(a > 2, a, 1) - a
            a = xp.where(abs(a) > 1000, a*0 + 1, a)
            z = xp.where(xp.real(z*xp.conj(z)) > 1000000, z*0 + 1, z)
            sums.append(xp.sum(a))
        for i in range(17):
            z[1:-1] *= 1j
            a = xp.where(abs(a) > 1000, a*0 + 1, a)
            z = xp.where(xp.real(z*xp.conj(z)) > 1000000, z*0 + 1, z)
            looked.append(np.asarray(a[1:3]).copy())
        return [np.asarray(x) for x in (a, z, *sums)] + looked

    sent_early(monkeypatch)
    for got, want in zip(f(xp), f(np)):
        assert (got == want).all()


def test_after_an_interrupt_other_values_are_not_waited_for(xp, api, monkeypatch):  # noqa: F811
    """What the loop has built, and has begun to send, is computed when a value depends on it, and only then."""
    sent_early(monkeypatch)
    u, other = xp.asarray(field()), xp.asarray(field()) * 2
    with pytest.raises(KeyboardInterrupt):
        for k in range(400):
            u = u + 0.1 * laplacian(xp, u)
            if k == 300:
                raise KeyboardInterrupt
    before = requests(api)
    assert float(xp.max(other)) == 2 * field().max()
    assert requests(api) - before <= 3 and u._node.args
    want = field()
    for _ in range(301):
        want = want + 0.1 * laplacian(np, want)
    np.testing.assert_array_equal(np.asarray(u), want)
