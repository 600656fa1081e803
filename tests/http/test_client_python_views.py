"""Views of the Python client are NumPy's: random programs of views, writes and reads, and the idioms that people use."""
import asyncio
import os
import pathlib
import sys
import threading
import time

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402
from test_client_python import xp  # noqa: E402,F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here
SEED = int(os.environ.get("ARRAYD_SEED") or time.time())
PROGRAMS = int(os.environ.get("ARRAYD_PROGRAMS") or (20000 if os.environ.get("ARRAYD_LONG") else 300))


def a_slice(rng, n):
    step = int(rng.choice([1, 1, 1, 2, -1, -2]))
    ends = [None if rng.random() < 0.4 else int(rng.integers(-n - 1, n + 2)) for _ in range(2)]
    return slice(*ends, step)


def an_index(rng, shape):
    keys = [int(rng.integers(-n, n)) if n and rng.random() < 0.25 else a_slice(rng, n) for n in shape]
    if rng.random() < 0.3:
        keys = keys[:int(rng.integers(0, len(keys) + 1))]
    if rng.random() < 0.15:
        keys.insert(int(rng.integers(0, len(keys) + 1)), None)
    if rng.random() < 0.15:
        keys.append(Ellipsis)
    return tuple(keys) if len(keys) != 1 or rng.random() < 0.5 else keys[0]


def a_shape(rng, size):
    """Some shape of so many elements."""
    shape, rest = [], size
    while rest > 1 and len(shape) < 3:
        d = int(rng.choice([k for k in range(1, rest + 1) if rest % k == 0]))
        shape.append(d)
        rest //= d
    return tuple([*shape, rest])


class Both:
    """The same statements with NumPy and with the client; `said` is what has been done, for whoever has to look."""

    def __init__(self, xp, rng):
        self.xp, self.rng = xp, rng
        self.dtype = rng.choice(["float64", "int64", "float32"])
        self.pairs, self.said = [], []
        for _ in range(int(rng.integers(1, 3))):
            self.make()

    def make(self):
        shape = tuple(int(n) for n in self.rng.integers(1, 6, int(self.rng.integers(1, 4))))
        a = self.rng.integers(-9, 10, shape).astype(self.dtype)
        x = self.xp.asarray(a)
        self.add(a.copy(), x.compute() if self.rng.random() < 0.5 else x, f"asarray({a.tolist()})")

    def add(self, a, x, what):
        self.said.append(f"v{len(self.pairs)} = {what}")
        self.pairs.append((a, x))

    def some(self):
        k = int(self.rng.integers(len(self.pairs)))
        return (k, *self.pairs[k])

    def view(self):
        k, a, x = self.some()
        rng, xp = self.rng, self.xp
        how = int(rng.integers(0, 9))
        if how < 4:
            key = an_index(rng, a.shape)
            b = a[key]
            if isinstance(b, np.ndarray):  # an element is no view
                self.add(b, x[key], f"v{k}[{key}]")
        elif how == 4 and a.ndim == 2:
            self.add(a.T, x.T, f"v{k}.T")
        elif how == 5:
            shape = a_shape(rng, a.size) if a.size else a.shape
            self.add(a.reshape(shape), xp.reshape(x, shape), f"reshape(v{k}, {shape})")
        elif how == 6 and a.ndim:
            axes = tuple(int(i) for i in rng.permutation(a.ndim))
            self.add(a.transpose(axes), xp.permute_dims(x, axes), f"permute_dims(v{k}, {axes})")
        elif how == 7 and a.ndim:
            axis = int(rng.integers(a.ndim))
            self.add(np.flip(a, axis), xp.flip(x, axis=axis), f"flip(v{k}, {axis})")
        elif how == 8 and a.ndim > 1 and len(a):
            i = int(rng.integers(len(a)))
            self.add(list(a)[i], list(x)[i], f"list(v{k})[{i}]")

    def value(self, shape):
        """What fits into a region of that shape: a number, or an array of this program, or one that is computed."""
        rng = self.rng
        fitting = [(k, a, x) for k, (a, x) in enumerate(self.pairs) if a.ndim <= len(shape) and
                   all(n in (1, m) for n, m in zip(a.shape[::-1], shape[::-1]))]
        if not fitting or rng.random() < 0.4:
            n = int(rng.integers(-9, 10))
            return n, n, str(n)
        k, a, x = fitting[int(rng.integers(len(fitting)))]
        if rng.random() < 0.5:
            return a, x, f"v{k}"
        return np.array(a + 1, order="C"), x + 1, f"v{k} + 1"

    def write(self):
        k, a, x = self.some()
        rng = self.rng
        how = int(rng.integers(0, 5))
        if how < 3:
            key = an_index(rng, a.shape)
            b, y, text = self.value(a[key].shape)
            a[key] = b
            x[key] = y
            self.said.append(f"v{k}[{key}] = {text}")
        elif how == 3:
            key = an_index(rng, a.shape)
            b, y, text = self.value(a[key].shape)
            a[key] += b
            x[key] += y
            self.said.append(f"v{k}[{key}] += {text}")
        else:
            b, y, text = self.value(a.shape)
            a += b
            x += y
            assert self.pairs[k][1] is x
            self.said.append(f"v{k} += {text}")

    def compute(self):
        k, a, x = self.some()
        b, y, text = self.value(a.shape)
        a, x = np.clip(a + b, -99, 99), self.xp.astype(self.xp.clip(x + y, -99, 99), str(self.dtype))
        if a.ndim:
            self.add(np.array(a, self.dtype, order="C"), x, f"clip(v{k} + {text}, -99, 99)")
        else:  # a number: `+=` makes another, and nothing is a view of it
            one = x
            x += 1
            assert x is not one and (float(one), float(x)) == (a, a + 1), f"clip(v{k} + {text}, -99, 99)"

    def look(self, k=None):
        k, a, x = (k, *self.pairs[k]) if k is not None else self.some()
        got = float(self.xp.sum(x)) if self.rng.random() < 0.3 else np.asarray(x)
        assert np.array_equal(got, a.sum() if isinstance(got, float) else a), f"v{k}: {got}, not {a}"
        self.said.append(f"look at v{k}")

    def run(self):
        steps = [self.view] * 4 + [self.write] * 4 + [self.compute, self.look]
        for _ in range(int(self.rng.integers(2, 14))):
            steps[int(self.rng.integers(len(steps)))]()
            if any(a.size and np.abs(a).max() > 1e6 for a, _ in self.pairs):
                break
        for k in self.rng.permutation(len(self.pairs)):
            self.look(int(k))


def test_random_programs(xp):  # noqa: F811
    for k in range(PROGRAMS):
        both = Both(xp, np.random.default_rng([SEED, k]))
        try:
            both.run()
        except Exception as e:
            raise AssertionError(f"ARRAYD_SEED={SEED}, program {k}:\n" + "\n".join(both.said) + f"\n{e!r}") from e


IDIOMS = {
    "part += 1": "v = a[1:-1, 1:-1]; v += 1",
    "part[...] = 1": "v = a[1:-1, 1:-1]; v[...] = 1",
    "row[:] = i": "for i in range(4):\n    row = a[i]; row[:] = i",
    "T[0, :] = 1": "a.T[0, :] = 1",
    "reshape[:] = 1": "b = m.reshape(a, (16,)); b[:] = 1",
    "a[0][1] = 5": "a[0][1] = 5",
    "a[1:3][:, 1:3] = 2": "a[1:3][:, 1:3] = 2",
    "for row in a": "for row in a: row += 1",
    "b = a; b += 1": "b = a; b += 1",
    "two rows": "x, y = a[0], a[1]; x[:] = 1; y[:] = 2",
    "after the base": "v = a[1:]; a[...] = 3; v += 1; a[2] = 7; v[0, 0] += v[1, 1]",
    "an element is none": "for x in a[0]: x += 1",
    "a copy is none": "import copy; b = copy.copy(a[1:]); b += 1",
    "a mask": "v = a[::2]; v[v < 1] = 8",
    "a mask's values are none": "v = a[a < 1]; v += 1",
    "places": "v = a[1:]; v[m.asarray([0, 2]), m.asarray([1, 3])] = 6",
    "places' values are none": "v = a[m.asarray([0, 2])]; v += 1",
    "a new axis": "a[:, None, 1][2] = 4",
    "reshape of a transposed one is a copy": "b = m.reshape(a.T, (16,)); b += 1",
}


@pytest.mark.parametrize("idiom", IDIOMS)
def test_idioms(xp, idiom):  # noqa: F811
    values = []
    for m in (np, xp):
        a = m.zeros((4, 4))
        exec(IDIOMS[idiom], {"a": a, "m": m})  # noqa: S102
        values.append(np.asarray(a))
    assert np.array_equal(*values), values


def test_what_cannot_be_written_to(xp):  # noqa: F811
    x = xp.broadcast_to(xp.zeros(3), (2, 3))
    for write in (lambda: x.__setitem__(0, 1), lambda: x.__iadd__(1), lambda: x[0].__setitem__(0, 1)):
        with pytest.raises(ValueError, match="read-only"):
            write()
    with pytest.raises(ValueError, match="no view"):
        xp.reshape(xp.permute_dims(xp.zeros((2, 3)), (1, 0)), (6,), copy=False)
    a = xp.zeros((4, 4)).compute()
    v = a[1:]
    with pytest.raises(ValueError, match="copy it first"):
        xp.program(["v += 1"], steps=1, v=v)
    assert float(xp.sum(a)) == 0


def test_writes_wait_for_a_value(xp, api):  # noqa: F811
    """They go with the next value that is wanted, in place, and sync() sends them."""
    from test_client_python import requests

    u = xp.asarray(np.ones((64, 64))).compute()
    id_ = u.id
    before = requests(api)
    for _ in range(3):  # of more it is a loop, whose memory is its own
        u[1:-1, 1:-1] += u[:-2, 1:-1] - u[2:, 1:-1]
        u[0, :] = 2
    assert requests(api) == before
    assert float(xp.sum(u[0])) == 128 and requests(api) == before + 1 and u.id == id_
    u[0, 0] = 5
    xp.sync()
    assert xp.request("POST", "/v1/evaluate", {"expr": "u[0, 0]", "bind": {"u": id_}, "inline": True})["value"] == 5


def test_what_several_look_at_is_written_once(xp, daemon):  # noqa: F811
    """Threads of one client, and tasks of the other."""
    def look(x, seen):
        seen.append(float(x.numpy()[0]))

    for k in range(30):
        x, seen = xp.asarray(np.zeros(20_000)).compute(), []
        x[:1] += 1
        threads = [threading.Thread(target=look, args=(x, seen)) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert seen == [1.0] * 4

    async def tasks():
        async with arrayd.aconnect(f"http://127.0.0.1:{daemon.port}") as own:
            for k in range(30):
                y = await own.asarray(np.zeros(20_000)).compute()
                y[:1] += 1
                assert [float(v[0]) for v in await asyncio.gather(*(y.numpy() for _ in range(4)))] == [1.0] * 4

    asyncio.run(tasks())


def test_an_error_of_a_write_says_which(xp):  # noqa: F811
    """And where it was written."""
    def here():
        return f"{__file__}:{sys._getframe(1).f_lineno - 1}"

    u, v, far = xp.asarray(np.ones(100)).compute(), xp.asarray(np.ones(20_000)).compute(), xp.asarray(np.full(99, 500))
    u[1:] = xp.take(u, far)
    of_u = here()
    v[0] = 5
    rows = v.reshape(200, 100)
    rows[3, 1:] += xp.take(v, xp.asarray(np.full(99, 20_000)))
    of_v = here()
    rows[4] = 1
    for x, line in ((u, of_u), (v, of_v)):
        with pytest.raises(IndexError, match=f"in the assignment at {line} "):
            np.asarray(x)
    w = xp.zeros(20_000).compute()
    xp.request("DELETE", f"/v1/arrays/{w.id}")
    w[5] = 1
    with pytest.raises(arrayd.NotFound, match=f"in the assignment at {here()[:-3]}"):
        np.asarray(w)


@pytest.mark.parametrize("steps", [10, 400])
def test_no_program_fails_for_its_length(xp, steps):  # noqa: F811
    """Conway's Life, which nobody looks at."""
    def life(m):
        a = m.asarray((np.random.default_rng(1).random((60, 60)) < 0.3).astype("int32"))
        for _ in range(steps):
            n = sum(m.roll(m.roll(a, i, axis=0), j, axis=1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
            a = m.where((n == 3) | ((a == 1) & (n == 2)), m.asarray(1, dtype="int32"), m.asarray(0, dtype="int32"))
        return np.asarray(a)

    assert np.array_equal(life(np), life(xp))


def test_a_long_loop_is_linear(xp):  # noqa: F811
    """Four times the steps, at most some eight times as long, of this process' own time: others may keep the processors busy."""
    def seconds(steps):
        u = xp.asarray(np.ones((16, 16)))
        begin = time.process_time()
        for _ in range(steps):
            u = u + 0.1 * (xp.roll(u, 1, axis=0) - u)
        np.asarray(u)
        return time.process_time() - begin

    seconds(100)
    assert min(seconds(1200) for _ in range(3)) < 8 * max(seconds(300), 0.05)


@pytest.mark.parametrize("lost", [KeyboardInterrupt, OSError])
def test_a_write_without_a_reply_is_not_made_twice(xp, monkeypatch, lost):  # noqa: F811
    """Whether it was made is not known, so that the array says so; what is known here is computed from that."""
    send = xp._transport.send

    def interrupted(r, *more):
        reply = send(r, *more)
        if r.path == "/v1/evaluate" and b"statements" in bytes(r.body):
            monkeypatch.setattr(xp._transport, "send", send)
            raise lost if lost is KeyboardInterrupt else arrayd.ConnectionLost(0, "connection_lost", "it has gone")
        return reply

    for u, known in ((xp.asarray(np.ones(20000)).compute(), True), ((xp.ones(20000) * 1).compute(), False)):
        u[1:] += 1
        monkeypatch.setattr(xp._transport, "send", interrupted)
        with pytest.raises(KeyboardInterrupt if lost is KeyboardInterrupt else arrayd.ConnectionLost):
            np.asarray(u)
        if known:
            assert np.asarray(u)[:3].tolist() == [1, 2, 2]
        else:
            for x in (u, u + 1):
                with pytest.raises(arrayd.ConnectionLost, match="had no reply"):
                    np.asarray(x)


@pytest.mark.parametrize("keys", [(np.s_[1:],), (np.s_[::-1], np.s_[1:], np.s_[:-1]), (np.s_[2:, None], np.s_[:, 0], np.s_[...])], ids=str)
def test_views_of_views_as_many_as_a_loop_makes(xp, keys):  # noqa: F811
    """`x = x[1:]` may go on as long as there are elements."""
    a = np.arange(6000.)
    x = xp.asarray(a.copy())
    v, w = x, a
    for k in range(2500):
        v, w = v[keys[k % len(keys)]], w[keys[k % len(keys)]]
        if k % 97 == 0:
            v += k
            w += k
        if k % 101 == 0:
            v[7] = w[7] = k
    assert np.array_equal(np.asarray(v), w) and np.array_equal(np.asarray(x), a)
