"""clients/python: what an expression has in it is kept on the server when it is met a second time, so that a step of a loop that looks
at a number costs the same however many there were. NumPy says what is right."""
import asyncio
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from test_client_python import PACKAGE, arrayd, requests, same, xp  # noqa: F401

from arrayd._graph import postorder  # noqa: E402
from arrayd._kept import TRIES, Habits, met_again  # noqa: E402

sys.path.insert(0, str(PACKAGE / "examples"))
from k_means import k_means  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here

FIELD = np.random.default_rng(1).random((48, 40))


class Sent(list):
    """The bodies of the evaluations that a client sends."""

    def __init__(self, xp):  # noqa: F811
        super().__init__()
        send = xp._transport.send

        def noting(request, *more, **named):
            if request.path == "/v1/evaluate":
                self.append(bytes(request.body))
            return send(request, *more, **named)

        xp._transport.send = noting

    def look(self):
        """How many operations there were in how many since the last look."""
        found = sum(body.count(b'"op"') + body.count(b"(") for body in self), len(self)
        self.clear()
        return found


def arrays(xp):  # noqa: F811
    xp.release()
    return len(list(xp.arrays()))


def stencil(u, xp, look):  # noqa: F811
    while True:
        un = u + 0.1 * (xp.roll(u, 1, axis=0) + xp.roll(u, -1, axis=0) + xp.roll(u, 1, axis=1) + xp.roll(u, -1, axis=1) - 4 * u)
        look(float(xp.max(xp.abs(un - u))))
        u = un


def conjugate_gradients(b, xp, look):  # noqa: F811
    x = xp.zeros_like(b)
    r = b - (4 * x - xp.roll(x, 1, axis=0))
    p, rs = r, xp.sum(r * r)
    while True:
        ap = 4.1 * p - xp.roll(p, 1, axis=0) - xp.roll(p, -1, axis=0) - xp.roll(p, 1, axis=1) - xp.roll(p, -1, axis=1)
        alpha = rs / xp.sum(p * ap)
        x = x + alpha * p  # which nobody looks at: each p would stay for it
        r = r - alpha * ap
        rn = xp.sum(r * r)
        look(float(rn))
        p, rs = r + (rn / rs) * p, rn


def one_name_for_both(u, xp, look):  # noqa: F811
    """No variable has what was computed when it is met again, but for what is made of it."""
    while True:
        u = xp.sqrt(u + 1)
        look(float(xp.sum(u)))
        u = u / 2 + xp.roll(u, 1, axis=0)


def only_rearranged(u, xp, look):  # noqa: F811
    """What is read through comes to an end."""
    while True:
        u = xp.roll(u, 3, axis=0)
        look(float(xp.sum(u[:3, 0])))


class Enough(Exception):
    pass


def looked(loop, u, xp, steps, each=lambda: None):  # noqa: F811
    seen = []

    def look(value):
        seen.append(value)
        each()
        if len(seen) == steps:
            raise Enough

    with pytest.raises(Enough):
        loop(u, xp, look)
    return seen


@pytest.mark.parametrize("loop", [stencil, conjugate_gradients, one_name_for_both, only_rearranged])
def test_a_step_costs_the_same_however_many_there_were(xp, loop):  # noqa: F811
    sent, costs, before = Sent(xp), [], arrays(xp)
    want = looked(loop, FIELD, np, 30)
    with arrayd.config(loops=False):
        got = looked(loop, xp.asarray(FIELD), xp, 30, lambda: costs.append((*sent.look(), arrays(xp))))
    np.testing.assert_allclose(got, want, rtol=1e-9)
    warm, late = costs[6:12], costs[24:]
    for k in range(3):  # operations, requests, arrays on the server
        assert max(c[k] for c in late) <= max(c[k] for c in warm), costs
    assert max(c[2] for c in costs) <= before + 8
    assert arrays(xp) == before


@pytest.mark.parametrize("loop", [stencil, conjugate_gradients, one_name_for_both, only_rearranged])
def test_steps_run_ahead_leave_nothing(xp, api, loop):  # noqa: F811
    before, held = requests(api), arrays(xp)
    want = looked(loop, FIELD, np, 150)
    np.testing.assert_allclose(looked(loop, xp.asarray(FIELD), xp, 150), want, rtol=1e-6)  # the order of additions differs
    assert requests(api) - before < 60
    assert arrays(xp) == held


def test_clusters(xp):  # noqa: F811
    """examples/k_means.py, unchanged: a round is as much as another."""
    points = np.random.default_rng(3).random((3000, 2))
    sent, each = Sent(xp), []
    for rounds in (8, 8, 12, 28):  # the first have to be seen
        centres, nearest = k_means(xp.asarray(points), 16, rounds)
        each.append(sent.look())
    distances = ((points[:, None] - np.asarray(centres)) ** 2).sum(2)
    assert np.mean(np.asarray(nearest) == distances.argmin(1)) > 0.95  # of the centres of a round before
    for k in range(2):  # operations, requests
        assert each[3][k] - each[2][k] <= 4 * (each[2][k] - each[1][k])


def several(u, v, xp, look):  # noqa: F811
    """A step makes several arrays of what they share, looks at a number that it uses, and at one of its end."""
    t = 0.0
    while True:
        flux = xp.sqrt(u * u + v * v) + 1
        slope = (xp.roll(flux, 1, axis=0) - flux) / flux
        dt = 0.1 / xp.max(flux)
        look(float(t + dt * 2))
        left, right = flux - dt * slope, flux + dt * slope  # which nobody uses after this step
        u, v = u - dt * (left - xp.roll(left, 1, axis=1)), v + dt * (right - xp.roll(right, 1, axis=0))
        t = t + dt
        look(float(t))


def test_several_arrays_of_a_step_are_computed_once(xp):  # noqa: F811
    """What a step's look needs is one request, and what they share is in it once; a number that was made for it is no other one."""
    sent, steps = Sent(xp), []
    want = looked(lambda b, xp, look: several(b, b + 1, xp, look), FIELD, np, 40)
    xp._engine.ahead.pause = xp._engine.ahead.paused = 1000  # as of a loop whose steps are run ahead in vain
    got = looked(lambda b, xp, look: several(b, b + 1, xp, look), xp.asarray(FIELD), xp, 40, lambda: (steps.append([*sent]), sent.clear()))
    np.testing.assert_allclose(got, want, rtol=1e-9)
    late = steps[20:]
    assert [len(step) for step in late] == [1, 0] * 10, [len(s) for s in late]
    assert all(body.count(b"sqrt") == 1 for step in late for body in step)


def test_steps_that_reckon_their_time_are_run_ahead(xp, api):  # noqa: F811
    """A number that has come with another, and what is computed of it here, belong to their look as if they had been asked for."""
    before = requests(api)
    want = looked(lambda b, xp, look: several(b, b + 1, xp, look), FIELD, np, 240)
    np.testing.assert_allclose(looked(lambda b, xp, look: several(b, b + 1, xp, look), xp.asarray(FIELD), xp, 240), want, rtol=1e-9)
    assert requests(api) - before < 60


def test_numbers_that_the_next_request_needs(xp, api, monkeypatch):  # noqa: F811
    """What a look needs is more than a request takes: a number of the first comes, and is used in the second."""
    monkeypatch.setattr("arrayd._stream.STATEMENTS", 3)

    def chain(b, xp):  # noqa: F811
        mean = xp.mean(b)
        for k in range(6):
            b = xp.sqrt(b * b + b + mean) / (b + 1)
        return mean, xp.max(b + mean)

    before = requests(api)
    mean, most = chain(xp.asarray(FIELD), xp)
    want = chain(FIELD, np)
    assert float(most) == pytest.approx(float(want[1]), rel=1e-12) and float(mean) == pytest.approx(float(want[0]), rel=1e-12)
    assert requests(api) - before < 12


def test_what_is_kept_in_vain_is_not_any_more(xp):  # noqa: F811
    """At a place of a look where it was never used; where it was, it is kept when it is met for the first time."""
    z = xp.sqrt(xp.asarray(FIELD).compute()) + 1
    node, order = z._node, postorder(xp.sum(z)._node)
    assert met_again(order, True) == []
    node.met = True
    assert met_again(order, True) == [node]
    node.look = SimpleNamespace(habits=Habits())
    node.look.habits.kept[node.at_look] = 1
    assert met_again(order, True) == [node]
    node.look.habits.kept[node.at_look] = TRIES
    assert met_again(order, True) == []
    node.look.habits.used.add(node.at_look)
    node.met = False
    assert met_again(order, True) == [node]


PARTS = {
    "slices": lambda xp, a: xp.sin(a)[3:-1, ::-2] * 2,
    "axes": lambda xp, a: xp.sum(xp.sqrt(a), axis=0, keepdims=True) - xp.mean(a, axis=1, keepdims=True),
    "lists": lambda xp, a: xp.concat([xp.sin(a), a, xp.cos(a)], axis=1) / 3,
    "stack": lambda xp, a: xp.stack([a * 2, a + 1], axis=1) ** 2,
    "where": lambda xp, a: xp.where((a > 0.5) & (a < 0.8), a, -0.0) + 1 / xp.where(a > 0.9, -0.0, 1.0),
    "words": lambda xp, a: xp.astype(xp.astype(a * 9, "int16") // 2, "float32") - 1,
    "shared": lambda xp, a: (lambda b: b * b + xp.exp(b) / xp.max(b))(a - xp.mean(a)),
    "deep": lambda xp, a: __import__("functools").reduce(lambda b, k: xp.sqrt(b + k), range(90), a),
    "turned": lambda xp, a: xp.permute_dims(xp.roll(a, (3, -2), axis=(0, 1)) * 2, (1, 0)) + 1,
}


@pytest.mark.parametrize("part", PARTS)
def test_several_values_are_one_request(xp, api, part):  # noqa: F811
    """What is met again comes with the number that is asked for."""
    a = xp.asarray(FIELD).compute()
    with np.errstate(divide="ignore"):
        want = PARTS[part](np if hasattr(np, "astype") else Older(), FIELD)
    z, scale = PARTS[part](xp, a), xp.max(xp.sqrt(a)) + 1
    same(xp.min(z), want.min()), float(scale + 1)
    before = requests(api)
    got = float(xp.max(z / scale))
    assert requests(api) == before + 1 and z._node.handle is not None and scale._node.value is not None
    assert got == pytest.approx(float((want / (np.sqrt(FIELD).max() + 1)).max()), rel=1e-5 if want.dtype == "float32" else 1e-12)
    same(scale, np.sqrt(FIELD).max() + 1)
    same(z, want)


class Older:
    """NumPy before 2, whose names of these are others."""

    astype = staticmethod(lambda x, dtype: x.astype(dtype))
    concat, permute_dims = staticmethod(np.concatenate), staticmethod(np.transpose)

    def __getattr__(self, name):
        return getattr(np, name)


def test_what_statements_cannot_say(xp):  # noqa: F811
    """Numbers of attributes that JSON has not; and arrays whose names are in the way stay what they are."""
    a = xp.asarray(FIELD).compute()
    z = xp.shift(xp.sin(a), [0, 1], boundary="constant", value=np.inf)
    want = np.concatenate([np.sin(FIELD)[:, 1:], np.full((48, 1), np.inf)], axis=1)
    for k in range(3):
        same(xp.min(z + k), (want + k).min())
    assert z._node.handle is not None
    same(z, want)
    n = xp.log(xp.asarray([-1.0, 2.0])) * xp.sum(a)  # NaNs
    for k in range(3):
        assert np.isnan(float(xp.max(n + k)))


def test_it_is_computed_twice_at_most(xp, api):  # noqa: F811
    """First as part of another expression, then for itself; from then on it is only read."""
    a = xp.asarray(FIELD).compute()
    z = xp.exp(xp.sin(a) + 1) * a
    want = np.exp(np.sin(FIELD) + 1) * FIELD
    before = requests(api)
    same(xp.sum(z), want.sum())
    assert requests(api) == before + 1 and z._node.handle is None
    same(xp.max(z), want.max())
    assert requests(api) <= before + 3 and z._node.handle is not None
    sent = Sent(xp)
    for k in range(5):
        same(xp.sum(z * k), (want * k).sum())
    assert len(sent) == 5 and not any(b"exp" in body or b"sin" in body for body in sent)
    same(z, want)


def test_what_is_not_kept(xp, api):  # noqa: F811
    """What nobody can ask for again; and what is read through."""
    a = (xp.asarray(FIELD) + 0).compute()
    had, before = arrays(xp), requests(api)
    for k in range(4):
        float(xp.sum((a - a.mean()) / a.std()))
        same(xp.max(xp.sqrt(a + k) * 2), (np.sqrt(FIELD + k) * 2).max())
    assert requests(api) - before <= 8 + 5 and arrays(xp) == had  # the five of arrays(), before and here
    views = [a.T, a[3:, ::2], xp.astype(a, "float32"), xp.broadcast_to(xp.expand_dims(a, axis=0), (50, 48, 40)), xp.flip(xp.roll(a, 5, axis=0))]
    views.append(kept := xp.sin(a))
    for k in range(4):
        for v in views:
            float(xp.sum(v * k))
    views.pop()
    assert arrays(xp) == had + 1 and kept._node.handle is not None
    del v, kept
    assert arrays(xp) == had and all(v._node.handle is None for v in views)


def test_what_nobody_has_any_more_goes(xp):  # noqa: F811
    had = arrays(xp)
    a = xp.asarray(FIELD).compute()
    z = xp.sin(a) * 2 + a
    later = z / 3  # it is not looked at before the end
    for k in range(3):
        float(xp.sum(z + k))
    assert arrays(xp) == had + 2
    del z
    same(later, (np.sin(FIELD) * 2 + FIELD) / 3)
    del later
    assert arrays(xp) == had + 1
    del a
    assert arrays(xp) == had


def test_assignments_between(xp):  # noqa: F811
    """Kept values are an array's own: what is written to one is seen by nobody else, and is seen."""
    n, a = FIELD.copy(), xp.asarray(FIELD)
    v, u = n * n + n, a * a + a
    w, y = v - n, u - a
    for k in range(6):
        same(xp.sum(u * k), (v * k).sum()), same(xp.max(y + u), (w + v).max())
        u[k, 1:] = k
        v[k, 1:] = k
        same(xp.sum(u * k), (v * k).sum()), same(xp.max(y + u), (w + v).max())
        a += 1
        n = n + 1
        u *= a
        v = v * n
        kept, of_then = u, v
        u, v = xp.sqrt(xp.abs(u)) + y, np.sqrt(np.abs(v)) + w
    assert y._node.handle is not None
    for got, want in ((u, v), (kept, of_then), (y, w), (a, n)):
        same(got, want)


def test_assignments_to_what_others_see(xp):  # noqa: F811
    """What was made of an array by a name before something is written to it has the values of then, kept or not."""
    f = xp.save("field", FIELD)
    try:
        once, often = xp.sin(f) + f, xp.cos(f) * f
        for k in range(3):
            same(xp.sum(often + k), (np.cos(FIELD) * FIELD + k).sum())
        assert often._node.handle is not None and once._node.handle is None
        f[0, :] = 7.0
        now = FIELD.copy()
        now[0] = 7
        same(once, np.sin(FIELD) + FIELD), same(often, np.cos(FIELD) * FIELD)
        for _ in range(3):
            same(xp.sum(xp.cos(f) * f), (np.cos(now) * now).sum())
    finally:
        xp.delete("field")


def test_without_memory_for_it(xp):  # noqa: F811
    """It is computed again, as before; and kept once there is some."""
    with xp.session(memory_limit=5 << 19) as small:
        a = small.asarray(np.full(1 << 17, 2.0)).compute()
        filled = (a + 1).compute()
        z = small.sqrt(a * 8) + a * 0
        for k in range(4):
            assert float(small.sum(z + k)) == (4 + k) * 2.0**17
        assert z._node.handle is None
        del filled
        small.release()
        assert float(small.max(z)) == 4.0 and z._node.handle is not None


def test_loops_that_are_awaited(daemon):
    async def steps():
        async with arrayd.aconnect(f"http://127.0.0.1:{daemon.port}") as xp:  # noqa: F811
            longest, send = [0], xp._transport.send

            async def noting(request, *more, **named):
                if request.path == "/v1/evaluate":
                    longest[0] = max(longest[0], len(request.body))
                return await send(request, *more, **named)

            xp._transport.send = noting

            async def loop(k, most):
                u, n = xp.asarray(FIELD + k), FIELD + k
                for _ in range(most):
                    before, was = u, n
                    u, n = xp.sqrt(u + xp.roll(u, 1, axis=0)) + k, np.sqrt(n + np.roll(n, 1, axis=0)) + k
                    assert abs(await xp.max(xp.abs(u - before)).item() - np.abs(n - was).max()) < 1e-12

            await asyncio.gather(*(loop(k, 6) for k in range(4)))
            few = longest[0]
            await asyncio.gather(*(loop(k, 40) for k in range(4)))
            await xp.release()
            assert longest[0] <= 2 * few  # bytes: not one more with each step
            return [m async for m in xp.arrays()]

    assert not asyncio.run(steps())


def test_threads_that_look_at_the_same(xp):  # noqa: F811
    z = xp.sin(xp.asarray(FIELD)) * 3 + FIELD
    want, wrong = np.sin(FIELD) * 3 + FIELD, []

    def look(k):
        for j in range(10):
            if abs(float(xp.sum(z * (k + j))) - (want * (k + j)).sum()) > 1e-8:
                wrong.append((k, j))

    threads = [threading.Thread(target=look, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and z._node.handle is not None
    del z
    assert arrays(xp) == 0


def test_what_nobody_has_makes_room(daemon_with, monkeypatch):
    """It is deleted some moments later; who needs its memory before does not wait for that."""
    monkeypatch.setattr("arrayd._releases.PAUSE_S", 60.0)
    d = daemon_with("--backend", "cpu", "--memory-limit", "16MiB")
    with arrayd.connect(f"http://127.0.0.1:{d.port}") as own:
        for k in range(20):
            x = (own.random((512, 512), seed=k) + 1).compute()
            y = own.asarray(np.zeros((512, 512)))
            del x, y
        kept = own.random((1024, 1024), seed=1).compute()
        with pytest.raises(arrayd.OutOfMemory):
            own.random((1536, 1024), seed=2).compute()
        assert float(kept.min()) >= 0


@pytest.mark.in_turn
@pytest.mark.parametrize("shape", [(8,), (2, 4)])
def test_parts_of_small_arrays_travel_together(xp, api, shape):  # noqa: F811
    """Values of this process' that are each used once, as the columns of a small array are in a loop over pairs of them."""
    a, b = FIELD[:40, :8], FIELD[8:48, 32:]
    ours, theirs = xp.asarray(a), xp.asarray(b)
    found, right = xp.zeros((40, 40)), np.zeros((40, 40))
    before = requests(api)
    for i in range(40):
        for k in range(40):
            found[i, k] = xp.sqrt(xp.sum((xp.reshape(ours[i], shape) - xp.reshape(theirs[k], shape)) ** 2))
            right[i, k] = np.sqrt(np.sum((a[i] - b[k]) ** 2))
    np.testing.assert_allclose(np.asarray(found), right, rtol=1e-12)
    assert requests(api) - before < 100  # one for each part would be 3,200


def test_parts_used_again_stay(xp, api):  # noqa: F811
    w = [xp.asarray(v) for v in FIELD[:3, :4]]
    u, right = xp.zeros((4, 4)), np.zeros((4, 4))
    for step in range(12):
        u[step % 4] = u[(step + 1) % 4] / 2 + w[step % 3] * w[(step + 1) % 3]
        right[step % 4] = right[(step + 1) % 4] / 2 + FIELD[step % 3, :4] * FIELD[(step + 1) % 3, :4]
        if step % 4 == 1:
            np.testing.assert_allclose(np.asarray(u), right, rtol=1e-12)
    before = requests(api)
    u[0] = w[0] - w[1]
    assert np.allclose(np.asarray(u)[0], FIELD[0, :4] - FIELD[1, :4]) and requests(api) - before <= 2


def test_elements_of_what_is_here(xp, api):  # noqa: F811
    """Single positions of an array that this process has need no request, and one that is not there is an error at once."""
    x, v = xp.asarray(FIELD[:6, :5]), FIELD[:6, :5]
    before = requests(api)
    for key in ([5, 0, -1], (slice(None), [1, 1]), ([0, 2], [1, -1]), (slice(1, 3), [[0], [4]]), ([0, 1], slice(None, None, 2)), (0, [1, 2])):
        got = x[tuple(xp.asarray(k) if isinstance(k, list) else k for k in key) if isinstance(key, tuple) else xp.asarray(key)]
        assert np.array_equal(np.asarray(got), v[key]) and got.shape == v[key].shape, key
    assert requests(api) == before
    for wrong in ([6], ([0], [5]), ([-7], slice(None))):
        with pytest.raises(IndexError, match="out of bounds"):
            x[wrong]
    y = x[[1, 2]]
    y[0] = 0
    x[3] = 1
    assert float(x[1, 1]) == v[1, 1] and np.array_equal(np.asarray(x[[3, 1]]), [[1] * 5, v[1]])
