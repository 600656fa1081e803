"""The peers of bench_gpu.py: the same computation by torch, jax, CuPy and cuBLAS, timed on the device.

A case's formula is written once, over an adapter `m` that names a library's functions; a peer turns
it into something that runs (eagerly, compiled, as a kernel of its own) and says how long one run
took. A library that is missing or fails costs its row, never the run.

How time is taken: by device events, behind a copy that keeps the device busy while the host still
launches, so that launching is not counted. That leaves the cache full of what the copy wrote, which
is written back at the expense of what is timed: a tenth of a reduction's time. jax shows no events,
there it is the device time of its kernels as CUPTI traces it (by torch's profiler, which sees the
whole process), each call behind such a copy too; or without torch the difference between 20 and 4
calls in a row, over 16, which came out up to 0.07 too short.
"""
import math
import os
import time

import numpy as np

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


class Adapter:
    """The functions that formulas use, of a library that names them as NumPy does."""

    def __init__(self, lib):
        self.lib = lib
        for name in ("where", "exp", "sin", "sqrt", "abs"):
            setattr(self, name, getattr(lib, name))

    def reversed_axes(self, x):
        return x.transpose(2, 1, 0)

    def cat(self, parts, axis):
        return self.lib.concatenate(parts, axis)

    def shifted(self, x, offset, axis):
        """x[i + offset] along an axis, offset ±1, the edge's element where that is outside."""
        def part(start, stop):
            return x[(slice(None),) * axis + (slice(start, stop),)]
        if offset > 0:
            return self.cat([part(1, None), part(-1, None)], axis)
        return self.cat([part(None, 1), part(None, -1)], axis)

    def reduce(self, name, x, axis):
        f = getattr(self.lib, name)
        return f(x) if axis is None else f(x, axis)

    def laplacian(self, x):
        total = None
        for axis in range(x.ndim):
            term = self.shifted(x, 1, axis) - 2 * x + self.shifted(x, -1, axis)
            total = term if total is None else total + term
        return total


class TorchAdapter(Adapter):
    def reduce(self, name, x, axis):
        if name == "var":
            return self.lib.var(x, axis, correction=0)
        return super().reduce({"max": "amax"}.get(name, name), x, axis)

    def reversed_axes(self, x):
        return x.permute(2, 1, 0)

    def cat(self, parts, axis):
        return self.lib.cat(parts, axis)


class TorchIndexAdapter(TorchAdapter):
    """Neighbours by index instead of by joining pieces: the compiler may like it better."""

    def shifted(self, x, offset, axis):
        n = x.shape[axis]
        at = (self.lib.arange(n, device=x.device) + offset).clamp(0, n - 1)
        return x[(slice(None),) * axis + (at,)]


class Peer:
    """prepare(case) readies one case; run() does it once; time() in milliseconds; result() copies
    the planes named out of what the last run left."""
    name = ""
    stencils_only = False

    def load(self, arrays):
        """The arrays of the cases to come, by name; none: lets go of what it holds."""

    def prepare(self, case):
        raise NotImplementedError

    def time(self):
        raise NotImplementedError

    def result(self, planes):
        raise NotImplementedError


class TorchPeer(Peer):
    def __init__(self, how):
        import torch
        if not torch.cuda.is_available():
            raise RuntimeError("torch sees no GPU")
        self.torch = torch
        self.compiled = how != "eager"
        self.stencils_only = how == "index"
        self.name = {"eager": "torch eager", "compile": "torch.compile",
                     "index": "torch.compile, by index"}[how]
        self.m = (TorchIndexAdapter if how == "index" else TorchAdapter)(torch)
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.spacer = None
        self.arrays = {}

    def load(self, arrays):
        self.arrays = {name: self.torch.from_numpy(x).cuda() for name, x in arrays.items()}
        self.spacer = None
        self.out = self.run = None
        if arrays:
            first = next(iter(self.arrays.values()))
            self.spacer = (self.torch.empty_like(first), first)

    def prepare(self, case):
        m, formula = self.m, case.formula
        arrays = [self.arrays[k] for k in case.inputs]
        if case.increment:
            self.out = self.arrays[case.target].clone()

            def step(out, *arrays):
                out.add_(formula(m, *arrays))
                return out
        else:
            self.out = None

            def step(*arrays):
                return formula(m, *arrays)
        call = self.compile(step, arrays) if self.compiled else step

        def run():
            self.out = call(self.out, *arrays) if case.increment else call(*arrays)
        self.run = run

    def compile(self, step, arrays):
        """As one graph if the compiler can, else as it likes."""
        for whole in (True, False):
            # Each case has a function of its own: recompilations are counted by function.
            call = self.torch.compile(step, dynamic=False, fullgraph=whole)
            try:
                if self.out is not None:
                    call(self.out.clone(), *arrays)
                else:
                    call(*arrays)
                return call
            except Exception:
                if not whole:
                    raise
        return None

    def time(self):
        self.spacer[0].copy_(self.spacer[1])
        self.begin.record()
        self.run()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end)

    def result(self, planes):
        return self.out[planes].cpu().numpy()

    def prepare_copy(self):
        to, source = self.torch.empty_like(self.spacer[1]), self.spacer[1]
        self.run = lambda: to.copy_(source)


class JaxPeer(Peer):
    name = "jax.jit"

    def __init__(self):
        import jax
        if jax.default_backend() != "gpu":
            raise RuntimeError(f"jax runs on {jax.default_backend()}")
        jax.config.update("jax_enable_x64", True)
        self.jax = jax
        self.m = Adapter(jax.numpy)
        self.arrays = {}
        try:
            import torch
            from torch import profiler
            self.torch, self.profiler = torch, profiler
        except ImportError:
            self.torch = self.profiler = None
        self.spacer = None

    def load(self, arrays):
        self.arrays = {name: self.jax.device_put(x) for name, x in arrays.items()}
        self.out = self.run = self.spacer = None
        if arrays and self.torch:
            first = self.torch.from_numpy(next(iter(arrays.values()))).cuda()
            self.spacer = (self.torch.empty_like(first), first)

    def prepare(self, case):
        m, arrays = self.m, [self.arrays[k] for k in case.inputs]
        if case.increment:
            def formula(out, *arrays):
                return out + case.formula(m, *arrays)
            call = self.jax.jit(formula, donate_argnums=0)
            self.out = self.jax.numpy.array(self.arrays[case.target], copy=True)

            def run():
                self.out = call(self.out, *arrays)
        else:
            call = self.jax.jit(lambda *arrays: case.formula(m, *arrays))

            def run():
                self.out = call(*arrays)
        self.run = run

    def many(self, n):
        self.out.block_until_ready()
        begin = time.perf_counter()
        for _ in range(n):
            self.run()
        self.out.block_until_ready()
        return time.perf_counter() - begin

    def traced(self, n):
        """Device milliseconds of n calls, all their kernels together; 0 where none was traced."""
        self.out.block_until_ready()
        with self.profiler.profile(activities=[self.profiler.ProfilerActivity.CUDA]) as trace:
            for _ in range(n):
                self.spacer[0].copy_(self.spacer[1])
                self.torch.cuda.synchronize()
                self.run()
                self.out.block_until_ready()
        return sum(e.device_time for e in trace.events()
                   if "CUDA" in str(e.device_type) and "Memcpy DtoD" not in e.name) / 1e3

    def time(self):
        traced = self.traced(4) / 4 if self.profiler else 0
        if traced:
            return traced
        few = self.many(4)
        return (self.many(20) - few) / 16 * 1e3

    def result(self, planes):
        return np.asarray(self.out[planes])


class CupyPeer(Peer):
    name = "CuPy"

    def __init__(self):
        import cupy
        cupy.cuda.runtime.getDeviceCount()
        self.cupy = cupy
        self.m = Adapter(cupy)
        self.begin, self.end = (cupy.cuda.Event() for _ in range(2))
        self.arrays = {}

    def load(self, arrays):
        self.arrays = {name: self.cupy.asarray(x) for name, x in arrays.items()}
        self.out = self.run = self.spacer = None
        self.cupy.get_default_memory_pool().free_all_blocks()
        if arrays:
            first = next(iter(self.arrays.values()))
            self.spacer = (self.cupy.empty_like(first), first)

    def prepare(self, case):
        arrays = [self.arrays[k] for k in case.inputs]
        if case.increment:
            self.out = self.arrays[case.target].copy()

            def run():
                self.out += case.formula(self.m, *arrays)
        else:
            def run():
                self.out = case.formula(self.m, *arrays)
        self.run = run

    def time(self):
        self.cupy.copyto(*self.spacer)
        self.begin.record()
        self.run()
        self.end.record()
        self.end.synchronize()
        return self.cupy.cuda.get_elapsed_time(self.begin, self.end)

    def result(self, planes):
        return self.cupy.asnumpy(self.out[planes])

    def prepare_copy(self):
        to, source = self.cupy.empty_like(self.spacer[1]), self.spacer[1]
        self.run = lambda: self.cupy.copyto(to, source)


class CupyKernelPeer(CupyPeer):
    name = "CuPy ElementwiseKernel"

    def prepare(self, case):
        if not case.kernel:
            raise NotImplementedError("no kernel is written for it")
        arrays = [self.arrays[k] for k in case.inputs]
        raw = "raw " if case.stencil else ""
        inputs = [f"{raw}T {k}" for k in case.inputs]
        if case.stencil:
            inputs.append("int32 width")  # n and i are CuPy's own
            arrays.append(np.int32(arrays[0].shape[-1]))
        if case.reverses == "b":
            arrays[1] = self.m.reversed_axes(arrays[1])
        if case.increment:
            self.out = self.arrays[case.target].copy()
        else:
            self.out = self.cupy.empty_like(arrays[0])
        kernel = self.cupy.ElementwiseKernel(", ".join(inputs), "T out", case.kernel, "peer_" + case.key)
        self.run = lambda: kernel(*arrays, self.out)


class CublasPeer(CupyPeer):
    name = "cublasSaxpy"

    def prepare(self, case):
        if case.key != "add":
            raise NotImplementedError("it only adds")
        import cupy.cublas
        self.out = self.arrays[case.target].copy()
        x, y = self.arrays["b"].reshape(-1), self.out.reshape(-1)
        self.run = lambda: cupy.cublas.axpy(1.0, x, y)


def open_peers(quick):
    """(peers that are there, {name: why not})"""
    wanted = {"torch eager": lambda: TorchPeer("eager"), "torch.compile": lambda: TorchPeer("compile"),
              "torch.compile, by index": lambda: TorchPeer("index"), "jax.jit": JaxPeer,
              "CuPy": CupyPeer, "CuPy ElementwiseKernel": CupyKernelPeer, "cublasSaxpy": CublasPeer}
    if quick:
        wanted = {k: v for k, v in wanted.items() if k in ("torch eager", "torch.compile", "jax.jit")}
    peers, missing = [], {}
    for name, make in wanted.items():
        try:
            peers.append(make())
        except Exception as why:  # whatever a broken installation raises
            missing[name] = f"unavailable: {type(why).__name__}: {why}"[:200]
    return peers, missing


class Checker:
    """Compares a result with the formula in float64: on the GPU through torch where that is there."""

    def __init__(self, peers):
        self.torch = next((p.torch for p in peers if isinstance(p, TorchPeer)), None)
        self.m = TorchAdapter(self.torch) if self.torch else Adapter(np)

    def double(self, x):
        return self.torch.from_numpy(x).cuda().double() if self.torch else x.astype("float64")

    def reference(self, case, arrays):
        with np.errstate(all="ignore"):
            want = case.formula(self.m, *[self.double(arrays[k]) for k in case.inputs])
            return want + self.double(arrays[case.target]) if case.increment else want

    def differs(self, want, got, planes=slice(None)):
        """How many elements are not the formula's, of the planes named."""
        got, want = self.double(got), want[planes] if want.ndim else want
        if tuple(got.shape) != tuple(want.shape):
            return math.inf
        with np.errstate(all="ignore"):
            near = self.m.abs(got - want) <= 2e-5 + 2e-5 * self.m.abs(want)
        return int((~(near | (got == want))).sum())
