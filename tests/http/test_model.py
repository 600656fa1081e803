"""Random walks over the interface beside a model made of NumPy arrays.

Views in the model share memory as the daemon's do, so every step that writes shows at once whether
aliasing, snapshots, in-place safety and reference counts are right. A failure prints the seed and
the steps; the same seed repeats them.
"""
import os
import random

import numpy as np
import pytest

from client import NPY, OCTETS, npy_bytes

SEEDS = range(40 if os.environ.get("ARRAYD_LONG") else 8)
STEPS = 60
TYPES = ["int8", "uint16", "int32", "int64", "float32", "float64"]
MODES = ["clamp", "wrap", "constant"]
PAD = {"clamp": "edge", "wrap": "wrap", "constant": "constant"}


class Walk:
    def __init__(self, api, seed):
        self.api, self.rng = api, random.Random(seed)
        self.model = {}  # id -> NumPy array
        self.steps = []

    def pick(self, writeable=False):
        ids = [i for i, a in self.model.items() if not writeable or not overlaps_itself(a)]
        return self.rng.choice(ids) if ids else None

    def note(self, *what):
        self.steps.append(" ".join(map(str, what)))

    def random_array(self, shape, dtype):
        a = np.array([self.rng.randint(0, 50) for _ in range(int(np.prod(shape)))], dtype)
        return a.reshape(shape)

    def random_slice(self, n):
        kind = self.rng.random()
        if kind < 0.2 and n:
            return str(self.rng.randrange(-n, n))
        if kind < 0.4:
            return ":"
        return ":".join([*(str(self.rng.randint(-n - 1, n + 1)) if self.rng.random() < 0.6 else "" for _ in "ab"),
                         self.rng.choice(["", "1", "2", "-1", "-2"])])

    def random_index(self, a):
        return ", ".join(self.random_slice(n) for n in a.shape) or "..."

    # --- steps ---

    def create(self):
        a = self.random_array([self.rng.randint(0, 6) for _ in range(self.rng.randint(0, 3))], self.rng.choice(TYPES))
        if self.rng.random() < 0.5 or not a.size:
            meta = self.api.upload(a)
        else:
            meta = self.api.create(data=a.tolist(), dtype=str(a.dtype), shape=list(a.shape))
        self.note("create", meta["id"], a.dtype, a.shape)
        self.model[meta["id"]] = a

    def view(self):
        i = self.pick()
        a = self.model[i]
        kind = self.rng.randrange(4)
        body = {}
        if kind <= 1:
            body["index"] = self.random_index(a)
            v = eval(f"a[{body['index']}]", {"a": a[...]})
            v = v if isinstance(v, np.ndarray) else eval(f"a[{body['index']}, ...]", {"a": a})
        elif kind == 2:
            body["permute"] = self.rng.sample(range(a.ndim), a.ndim)
            v = a.transpose(body["permute"])
        else:
            body["broadcast_to"] = [self.rng.randint(1, 2), *a.shape]
            v = np.broadcast_to(a, body["broadcast_to"])
            v = np.lib.stride_tricks.as_strided(a, v.shape, v.strides)
        meta = self.api.expect(201, self.api.post(f"/v1/arrays/{i}/views", body)).json()
        self.note("view", i, body, "->", meta["id"])
        assert meta["shape"] == list(v.shape)
        self.model[meta["id"]] = v

    def put(self):
        i = self.pick(writeable=True)
        if not i:
            return
        a = self.model[i]
        index = self.random_index(a)
        region = eval(f"a[{index}]", {"a": a})
        b = self.random_array(np.shape(region), a.dtype)
        body, kind = self.rng.choice([(npy_bytes(b), NPY), (b.tobytes(), OCTETS)])
        path = f"/v1/arrays/{i}/data?index={index.replace(' ', '')}"
        self.note("put", path)
        self.api.expect(204, self.api.request("PUT", path, body, content_type=kind))
        exec(f"a[{index}] = b", {"a": a, "b": b})

    def assign(self):
        """out = f(arrays), often reading what it writes."""
        i = self.pick(writeable=True)
        if not i:
            return
        a = self.model[i]
        others = [j for j, b in self.model.items() if broadcasts(b.shape, a.shape) and np.can_cast(b.dtype, a.dtype, "same_kind")]
        j = self.rng.choice(others or [i])
        b = self.model[j]
        bind = {"x": i, "y": j}
        kind = self.rng.randrange(3)
        # Types by the dtypes alone, as NumPy 2: NumPy 1 looks at the values of 0-d arrays.
        common = np.promote_types(a.dtype, b.dtype)
        x, y = a.astype(common), b.astype(common)
        with np.errstate(all="ignore"):
            if kind == 0 or not a.ndim or 0 in a.shape:
                expr, want = "x + y", x + y
            elif kind == 1:
                expr, want = "where(x > y, y, x) + 1", np.where(x > y, y, x) + np.ones((), common)
            else:
                mode = self.rng.choice(MODES)
                o = [self.rng.randint(-1, 1) for _ in a.shape]
                padded = np.pad(x, 1, mode=PAD[mode])
                shifted = padded[tuple(slice(1 + k, 1 + k + n) for k, n in zip(o, a.shape))]
                expr, want = f"shift(x, {o}, '{mode}') + y", shifted + y
        self.note("assign", i, "=", expr, bind)
        r = self.api.post("/v1/evaluate", {"expr": expr, "bind": bind, "out": i})
        if not np.can_cast(want.dtype, a.dtype, "same_kind"):
            self.api.fails(422, "dtype_mismatch", r)
            return
        self.api.expect(200, r)
        with np.errstate(all="ignore"):
            a[...] = want

    def evaluate(self):
        i = self.pick()
        self.note("evaluate", i)
        r = self.api.expect(201, self.api.post("/v1/evaluate", {"expr": "x - 1", "bind": {"x": i}, "name": f"r{len(self.steps)}"}))
        a = self.model[i]
        with np.errstate(all="ignore"):
            self.model[r.json()["id"]] = np.array(a - np.ones((), a.dtype))

    def copy(self):
        i = self.pick()
        r = self.api.expect(201, self.api.post(f"/v1/arrays/{i}/copy"))
        self.note("copy", i, "->", r.json()["id"])
        self.model[r.json()["id"]] = self.model[i].copy()

    def delete(self):
        if len(self.model) > 3:
            i = self.pick()
            self.note("delete", i)
            self.api.expect(204, self.api.delete(f"/v1/arrays/{i}"))
            del self.model[i]

    def compare(self):
        for i, a in self.model.items():
            got = self.api.download(i)
            assert got.dtype == a.dtype and got.shape == a.shape, i
            np.testing.assert_array_equal(got, a, err_msg=i)


def broadcasts(shape, onto):
    try:
        return np.broadcast_shapes(shape, onto) == tuple(onto)
    except ValueError:
        return False


def overlaps_itself(a):
    return any(s == 0 and n > 1 for s, n in zip(a.strides, a.shape))


@pytest.mark.parametrize("seed", SEEDS)
def test_walk(api, seed):
    walk = Walk(api, seed)
    try:
        walk.create()
        walk.create()
        for _ in range(STEPS):
            step = walk.rng.choice([walk.create, walk.view, walk.view, walk.put, walk.assign, walk.assign,
                                    walk.assign, walk.evaluate, walk.copy, walk.delete])
            step()
            walk.compare()
    except AssertionError:
        print(f"seed {seed}:", *walk.steps, sep="\n  ")
        raise
