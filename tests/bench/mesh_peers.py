"""The peers of bench_mesh.py: the same computation on the same devices, by jax with arrays sharded over axis 0, and by torch with
a tensor on each device.

jax is left to find what has to go across; stencils are spelled by jnp.roll, and where a boundary is no ring by padding, too. torch
is by hand: each device's tensors have a row of their neighbours' before and behind them, which a copy from one device to
the other fills after each step; the work itself is compiled, on each device for itself. Host and devices run beside each other: a run's time
is from the first call until all devices are done. A library that is missing or fails costs its row, never the run.
"""
import time

import numpy as np

from bench_gpu_program import step_of
import gpu_peers  # noqa: F401: what it asks of jax, before that is loaded

RINGS = ("gray", "life")
FORMULAS = {
    "add": lambda m, a, b: a + b,
    "exp": lambda m, a, b: m.exp(-a) * m.sin(b) + m.sqrt(a),
    "softmax": lambda m, a: m.softmax(a),
    "sum": lambda m, a: a.sum(),
    "transpose": lambda m, a: a + a.T,
    "mean0": lambda m, a: a.mean(0),
    "cumsum0": lambda m, a: a.cumsum(0),
}


def timed(run, n):
    begun = time.perf_counter()
    run(n)
    return (time.perf_counter() - begun) * 1e3 / n


class Jax:
    def __init__(self, parts):
        import jax
        devices = jax.devices()[:parts]
        if len(devices) < parts:
            raise RuntimeError(f"jax sees {len(devices)} devices")
        self.jax, self.m = jax, jax.numpy
        mesh = jax.sharding.Mesh(np.array(devices), ("rows",))
        self.sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))

    def let_go(self):
        pass

    def rolled(self, kind):
        """The steps with walls, by rolls: a neighbour outside is the element itself."""
        def laplacian(u):
            total = -2 * u.ndim * u
            for axis, n in enumerate(u.shape):
                at = self.jax.lax.broadcasted_iota("int32", u.shape, axis)
                total += self.m.where(at == 0, u, self.m.roll(u, 1, axis)) + self.m.where(at == n - 1, u, self.m.roll(u, -1, axis))
            return total
        return {"heat": lambda u: (u + 0.1 * laplacian(u),), "wave": lambda u, p: (2 * u - p + 0.1 * laplacian(u), u)}[kind]

    def spellings(self, kind):
        if kind in FORMULAS:
            m = type("Functions", (), {"exp": self.m.exp, "sin": self.m.sin, "sqrt": self.m.sqrt, "softmax": self.jax.nn.softmax})
            return {"jax.jit": lambda *x: FORMULAS[kind](m, *x)}
        by_library = step_of(self.m, kind)
        return {"jax.jit": by_library} if kind in RINGS else {"jax.jit, rolls": self.rolled(kind), "jax.jit, pads": by_library}

    def prepare(self, kind, arrays, in_loop):
        """{name: (run, rows)}: run(n) n steps, in one program if in_loop, or the same n times; rows(slice) of what it left."""
        start = tuple(self.jax.device_put(a, self.sharding) for a in arrays)
        return {name: self.runs(f, start, in_loop, kind in FORMULAS) for name, f in self.spellings(kind).items()}

    def runs(self, step, start, in_loop, formula):
        jax, out = self.jax, [None]
        once = jax.jit(step)
        loop = jax.jit(lambda s, n: jax.lax.fori_loop(0, n, lambda _, x: step(*x), s))

        def run(n):
            if in_loop:
                out[0] = loop(start, n)[0]
            else:
                state = start
                for _ in range(n):
                    result = once(*state)
                    state = start if formula else result
                out[0] = result if formula else state[0]
            out[0].block_until_ready()
        return run, lambda rows: np.asarray(out[0][rows] if out[0].ndim else out[0])


class Torch:
    def __init__(self, parts):
        import torch
        if torch.cuda.is_available() and torch.cuda.device_count() < parts:
            raise RuntimeError(f"torch sees {torch.cuda.device_count()} devices")
        # without a GPU: to try the script
        self.devices = [torch.device(f"cuda:{i}" if torch.cuda.is_available() else "cpu") for i in range(parts)]
        self.torch = torch

    def let_go(self):
        if self.devices[0].type == "cuda":
            self.torch.cuda.empty_cache()

    def wait(self):
        for d in self.devices:
            if d.type == "cuda":
                self.torch.cuda.synchronize(d)

    def split(self, a):
        n = a.shape[0] // len(self.devices)
        return [self.torch.from_numpy(a[i * n:(i + 1) * n]).to(d) for i, d in enumerate(self.devices)]

    def on(self, i, work, *tensors):
        d = self.devices[i]
        if d.type != "cuda":
            return work(*tensors)
        with self.torch.cuda.device(d):
            return work(*tensors)

    def prepare(self, kind, arrays, in_loop):
        if any(a.shape[0] % len(self.devices) for a in arrays):
            raise RuntimeError("the rows do not divide")
        self.torch._dynamo.reset()
        make = {"sum": self.total, "mean0": self.mean, "transpose": self.transposed, "cumsum0": None}.get(
            kind, self.pointwise if kind in FORMULAS else self.stencil)
        return {"torch by hand": make(kind, arrays)} if make else {}

    def compiled(self, work):
        return self.torch.compile(work, dynamic=False)

    def gather(self, parts, rows, first=0):
        """Rows of all parts together, of which each has so many before its own."""
        n = parts[0].shape[0] - 2 * first
        at = range(*rows.indices(n * len(parts)))
        return np.stack([parts[k // n][first + k % n].cpu().numpy() for k in at])

    def pointwise(self, kind, arrays):
        torch = self.torch
        m = type("Functions", (), {"exp": torch.exp, "sin": torch.sin, "sqrt": torch.sqrt, "softmax": lambda a: torch.softmax(a, -1)})
        parts = list(zip(*map(self.split, arrays)))
        out = [torch.empty_like(p[0]) for p in parts]
        work = self.compiled(lambda out, *x: out.copy_(FORMULAS[kind](m, *x)))

        def run(n):
            for _ in range(n):
                for i, p in enumerate(parts):
                    self.on(i, work, out[i], *p)
            self.wait()
        return run, lambda rows: self.gather(out, rows)

    def total(self, kind, arrays):
        parts, out = self.split(arrays[0]), [None]
        work = self.compiled(lambda a: a.sum())

        def run(n):
            for _ in range(n):
                sums = [self.on(i, work, p) for i, p in enumerate(parts)]
                out[0] = sum(s.to(self.devices[0], non_blocking=True) for s in sums)
            self.wait()
        return run, lambda rows: out[0].cpu().numpy()

    def mean(self, kind, arrays):
        parts, out = self.split(arrays[0]), [None]
        work = self.compiled(lambda a: a.mean(0))

        def run(n):
            for _ in range(n):
                means = [self.on(i, work, p) for i, p in enumerate(parts)]
                out[0] = sum(s.to(self.devices[0], non_blocking=True) for s in means) / len(parts)
            self.wait()
        return run, lambda rows: out[0][rows].cpu().numpy()

    def transposed(self, kind, arrays):
        """Each device has the others' blocks copied, contiguous, and adds them as it turns them."""
        torch, parts = self.torch, self.split(arrays[0])
        n, out = parts[0].shape[0], [torch.empty_like(p) for p in parts]
        work = self.compiled(lambda out, a, block: out.copy_(a + block.T))

        def run(times):
            for _ in range(times):
                sent = [[p[:, j * n:(j + 1) * n].contiguous().to(d, non_blocking=True) if i != j else p[:, j * n:(j + 1) * n]
                         for j, d in enumerate(self.devices)] for i, p in enumerate(parts)]
                for i, p in enumerate(parts):
                    for j in range(len(parts)):
                        block = slice(j * n, (j + 1) * n)
                        self.on(i, work, out[i][:, block], p[:, block], sent[j][i])
            self.wait()
        return run, lambda rows: self.gather(out, rows)

    def stencil(self, kind, arrays):
        """Each field has a row more at either end. What a step leaves unchanged is not copied: only its place changes."""
        torch, step, last = self.torch, step_of(self.torch, kind), len(self.devices) - 1
        tiny = [torch.rand((4,) * a.ndim) for a in arrays]
        stays = [next((j for j, t in enumerate(tiny) if r is t), None) for r in step(*tiny)]
        new = [k for k, j in enumerate(stays) if j is None]

        def framed(a):
            return [torch.cat([p[:1], p, p[:1]]) for p in self.split(a)]

        def work(*x):
            inner, state = x[:len(new)], x[len(new):]
            results = step(*state)
            for out, k in zip(inner, new):
                out.copy_(results[k][1:-1])
        work = self.compiled(work)

        def exchange(field):
            for i, part in enumerate(field):
                below, above = (field[(i + s) % len(field)] for s in (-1, 1))
                walls = kind not in RINGS
                part[:1].copy_(part[1:2] if walls and i == 0 else below[-2:-1], non_blocking=True)
                part[-1:].copy_(part[-2:-1] if walls and i == last else above[1:2], non_blocking=True)

        start, left = [framed(a) for a in arrays], [None]
        for field in start:
            exchange(field)
        others = [[torch.empty_like(p) for p in start[0]] for _ in range(len(arrays) + len(new))]

        def run(n):
            state, free = start, list(others)
            for _ in range(n):
                made = [free.pop() for _ in new]
                for i in range(last + 1):
                    self.on(i, work, *(f[i][1:-1] for f in made), *(f[i] for f in state))
                for field in made:
                    exchange(field)
                at = iter(made)
                after = [next(at) if j is None else state[j] for j in stays]
                free += [f for f in state if all(f is not x for x in (*after, *start))]
                state = after
            self.wait()
            left[0] = state[0]
        return run, lambda rows: self.gather(left[0], rows, 1)


def open_peers(parts):
    """(those that are there, {name: why another is not})"""
    peers, missing = [], {}
    for make in (Jax, Torch):
        try:
            peers.append(make(parts))
        except Exception as why:  # whatever a broken installation raises
            missing[make.__name__] = f"{type(why).__name__}: {why}"[:200]
    return peers, missing
