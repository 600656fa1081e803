#!/usr/bin/env python3
"""An array's memory in other programs without a copy: what it costs, whether it is the same memory, and what is left of them.

    bench_export.py ARRAYD [--backend cuda|cpu] [--bytes N …] [--rounds N] [--kills N] [--jobs N] [--seconds S]

take   for each size and each of torch, cupy, jax (where it can be imported) and the client by itself ("plain"), in a process of its
       own: from the start of `x.exported()` to a tensor that can be used, and the end of the `with`; parts of it beside.
       First it is looked whether the values are right both ways: read here, written here (in a stream of its own) and read there,
       turn by turn without any other synchronisation
from   xp.from_dlpack of a tensor of the device
kills  processes that have mapped an array (export_consumer.py), killed; every one a new process. Then some in whose kernels (torch)
       write to it. Afterwards the daemon's memory, exports and descriptors, and the device's memory, must be what they were

One JSON line a measurement, one that begins with | for a reader. A part that fails says so and the next begins; the exit status is
the number of parts that failed or missed what was wanted.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "clients" / "python" / "src"))
MIB = 1 << 20
PATTERN = 8191  # element i is i % PATTERN
WANTED_MS = 2.0


def show(text=None, **row):
    row = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
    print(json.dumps(row), flush=True)
    if text:
        print(f"| {text}", flush=True)


def size_text(n):
    return f"{n >> 30} GiB" if n >= 1 << 30 else f"{n >> 20} MiB"


# --- in a process of its own: one library ---

class Plain:
    """The client alone: a capsule is what it hands out."""
    name, writes = "plain", True

    def __init__(self, cuda):
        import numpy
        self.np, self.cuda = numpy, cuda

    def take(self, m):
        return m.__dlpack__(max_version=(1, 0))

    def right(self, m, t, n, scale, add):
        np, part = self.np, 1 << 18

        def fits(values, first):
            want = (np.arange(first, first + values.size) % PATTERN).astype("f4") * np.float32(scale) + np.float32(add)
            return bool((values == want).all())

        if n <= 1 << 24:
            return fits(m._copied(), 0)
        if not self.cuda:
            return fits(m.array[:part], 0) and fits(m.array[-part:], n - part)
        read = m._memory.on.read  # both ends are enough of what is large
        return fits(np.frombuffer(read(m._address, 4 * part), "f4"), 0) and \
            fits(np.frombuffer(read(m._address + 4 * (n - part), 4 * part), "f4"), n - part)

    def change(self, m, t, scale, add):
        if not self.cuda:
            a = m.array
            a *= self.np.float32(scale)
            a += self.np.float32(add)
            return True
        return False


class Torch:
    name, writes = "torch", True

    def __init__(self, cuda):
        import torch
        self.torch, self.device = torch, "cuda" if cuda else "cpu"
        self.cuda = cuda
        if cuda:
            torch.zeros(1, device="cuda").add_(1)
            self.stream = torch.cuda.Stream()

    def take(self, m):
        return self.torch.from_dlpack(m)

    def right(self, m, t, n, scale, add):
        want = (self.torch.arange(n, device=self.device, dtype=self.torch.int32) % PATTERN).float() * scale + add
        return bool(self.torch.equal(t.view(-1), want))

    def change(self, m, t, scale, add):
        if self.cuda:
            with self.torch.cuda.stream(self.stream):
                t.mul_(scale).add_(add)
        else:
            t.mul_(scale).add_(add)
        return True

    def source(self, n):
        return (self.torch.arange(n, device=self.device, dtype=self.torch.int32) % PATTERN).float()


class Cupy:
    name, writes = "cupy", True

    def __init__(self, cuda):
        if not cuda:
            raise ImportError("cupy is for GPUs")
        import cupy
        self.cupy = cupy
        cupy.zeros(1).sum()
        self.stream = cupy.cuda.Stream(non_blocking=True)

    def take(self, m):
        return self.cupy.from_dlpack(m)

    def right(self, m, t, n, scale, add):
        f4 = self.cupy.float32
        want = (self.cupy.arange(n, dtype="i4") % PATTERN).astype(f4) * f4(scale) + f4(add)
        by_interface = self.cupy.asarray(m)
        return bool((t.ravel() == want).all()) and by_interface.data.ptr == t.data.ptr

    def change(self, m, t, scale, add):
        with self.stream:
            t *= self.cupy.float32(scale)
            t += self.cupy.float32(add)
        return True

    def source(self, n):
        return (self.cupy.arange(n, dtype="i4") % PATTERN).astype("f4")


class Jax:
    name, writes = "jax", False

    def __init__(self, cuda):
        self.mode = "read" if cuda else "write"  # it does not say that it knows read-only capsules; of CUDA's there are no others
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        import jax
        import jax.numpy
        self.jax = jax
        if cuda and jax.devices()[0].platform not in ("gpu", "cuda"):
            raise ImportError("jax has no GPU")
        jax.numpy.zeros(1).block_until_ready()

    def take(self, m):
        return self.jax.dlpack.from_dlpack(m)

    def right(self, m, t, n, scale, add):
        jnp = self.jax.numpy
        want = (jnp.arange(n, dtype=jnp.int32) % PATTERN).astype(jnp.float32) * scale + add
        same = bool((t.ravel() == want).all())
        try:
            return same and t.unsafe_buffer_pointer() == m._address
        except (AttributeError, NotImplementedError):
            return same

    def source(self, n):
        jnp = self.jax.numpy
        return (jnp.arange(n, dtype=jnp.int32) % PATTERN).astype(jnp.float32).block_until_ready()


LIBRARIES = {c.name: c for c in (Plain, Torch, Cupy, Jax)}


def make(xp, n):
    """n float32, element i is i % PATTERN; 2 GiB of them take 2.5 GiB."""
    z = xp.zeros(n, dtype="int8").compute()
    return xp.evaluate(f"astype(index(0) % {PATTERN} + 0*z, 'float32')", z=z)


def holds(xp, x, scale, add):
    return bool(xp.evaluate(f"all(x == astype((index(0) % {PATTERN}) * {scale} + {add}, 'float32'))", x=x))


def times(seconds):
    ms = sorted(1e3 * s for s in seconds)
    return {"p50_ms": statistics.median(ms), "p90_ms": ms[int(0.9 * (len(ms) - 1))], "min_ms": ms[0], "max_ms": ms[-1], "rounds": len(ms)}


def take_one(xp, library, nbytes, rounds):
    x = make(xp, nbytes // 4)
    n, problems, mode = nbytes // 4, [], getattr(library, "mode", "read")

    def expect(right, what):
        if not right:
            problems.append(what)

    begin = time.perf_counter()
    with x.exported(mode) as m:
        t = library.take(m)
        first = time.perf_counter() - begin
        expect(library.right(m, t, n, 1, 0), "read")
        del t
    if library.writes:
        wrote = True
        for _ in range(5):  # each side changes what the other has just written
            with x.exported("write") as m:
                t = library.take(m)
                wrote = library.change(m, t, 2, 1) and wrote
                del t
            if not wrote:
                break
            expect(holds(xp, x, 2, 1), "written there, read by the daemon")
            xp.program(["x = (x - 1) / 2"], steps=1, x=x).wait(60)
            with x.exported() as m:
                t = library.take(m)
                expect(library.right(m, t, n, 1, 0), "written by the daemon, read there")
                del t
    taken, ended, parts = [], [], {"request": [], "memory": [], "tensor": []}
    for _ in range(rounds):
        begin = time.perf_counter()
        m = x.exported(mode)
        m.__enter__()
        t = library.take(m)
        now = time.perf_counter()
        taken.append(now - begin)
        del t
        now = time.perf_counter()
        m.__exit__(None, None, None)
        ended.append(time.perf_counter() - now)
    for _ in range(rounds):
        m = x.exported(mode)
        begin = time.perf_counter()
        reply = xp._run(m._asking())
        asked = time.perf_counter()
        m._take(reply)
        mapped = time.perf_counter()
        t = library.take(m)
        parts["tensor"].append(time.perf_counter() - mapped)
        parts["memory"].append(mapped - asked)
        parts["request"].append(asked - begin)
        del t
        m._end()
    row = times(taken)
    middle = {f"{k}_ms": 1e3 * statistics.median(v) for k, v in parts.items()}
    fine = not problems and row["p50_ms"] <= WANTED_MS
    show(f"{library.name:6} {size_text(nbytes):>8}: taken in {row['p50_ms']:.2f} ms (p90 {row['p90_ms']:.2f}; request "
         f"{middle['request_ms']:.2f}, memory {middle['memory_ms']:.2f}, tensor {middle['tensor_ms']:.2f}; first {1e3 * first:.0f}), ended in "
         f"{1e3 * statistics.median(ended):.2f} ms; wanted {WANTED_MS} ms; values {'WRONG: ' + ', '.join(problems) if problems else 'right'}",
         bench="take", library=library.name, bytes=nbytes, **row, **middle, end_p50_ms=1e3 * statistics.median(ended),
         first_ms=1e3 * first, values="right" if not problems else problems, wanted_ms=WANTED_MS, fine=fine)
    return fine


def from_one(xp, library, nbytes):
    source = library.source(nbytes // 4)
    xp.from_dlpack(source).compute()
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        x = xp.from_dlpack(source).compute()
        seconds.append(time.perf_counter() - begin)
    right, row, there = holds(xp, x, 1, 0), times(seconds), xp.device != "cpu" and xp._lends
    show(f"{library.name:6} {size_text(nbytes):>8}: from_dlpack in {row['p50_ms']:.2f} ms ({nbytes / row['p50_ms'] / 1e6:.1f} GB/s), "
         f"values {'right' if right else 'WRONG'}, {'by the device' if there else 'through the host'}",
         bench="from", library=library.name, bytes=nbytes, **row, values="right" if right else "wrong", on_device=there, fine=right)
    return right


def child(options):
    """One library, all sizes; the exit status is how many failed."""
    import arrayd
    xp = arrayd.connect(f"unix:{options.socket}")
    try:
        library = LIBRARIES[options.child](xp.device != "cpu")
    except ImportError as e:
        show(f"{options.child:6} is not here: {e}", bench="take", library=options.child, skipped=str(e))
        return 0
    failed = 0
    for nbytes in options.bytes:
        for part in (take_one, from_one):
            if part is from_one and not hasattr(library, "source"):
                continue
            try:
                more = (options.rounds,) if part is take_one else ()
                failed += not part(xp, library, nbytes, *more)
            except Exception as e:  # the next size, the next part
                failed += 1
                show(f"{library.name:6} {size_text(nbytes):>8}: {part.__name__} FAILED: {type(e).__name__}: {e}",
                     bench=part.__name__, library=library.name, bytes=nbytes, error=f"{type(e).__name__}: {e}")
    xp.close()
    return failed


def busy(options):
    """Kernels that write to an array, without end."""
    import arrayd
    import torch
    xp = arrayd.connect(f"unix:{options.socket}")
    deadline = time.monotonic() + 20
    while True:
        try:
            m = xp.array(options.array).exported("write").__enter__()
            break
        except arrayd.Conflict:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    t = torch.from_dlpack(m)
    print("mapped", flush=True)
    while True:
        for _ in range(200):
            t.add_(1).mul_(0.5)
        if t.is_cuda:
            torch.cuda.synchronize()


# --- the daemon, and who looks after the children ---

class Daemon:
    def __init__(self, options, folder):
        self.socket = f"{folder}/arrayd.sock"
        self.log = open(f"{folder}/log", "w+")
        command = [options.arrayd, "--backend", options.backend, "--allow-export", "--listen", "127.0.0.1:0", "--listen",
                   f"unix:{self.socket}", *options.daemon]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 60
        self.port = None
        while self.port is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command)} does not start: {self.said()[-2000:]}")
            for line in self.said().splitlines():
                if " ready " in line:
                    self.port = int(line.split("listen=127.0.0.1:")[1].split(",")[0].split()[0].strip('"'))
            time.sleep(0.01)

    def said(self):
        with open(self.log.name, errors="replace") as f:
            return f.read()

    def ask(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as r:
            return r.read().decode()

    def state(self):
        """What must come back: bytes and exports as the daemon counts them, descriptors, the device's memory."""
        exports = {line.split()[0]: float(line.split()[-1]) for line in self.ask("/metrics").splitlines()
                   if line.startswith("arrayd_export") and not line.split("{")[0].split()[0].endswith(("_total", "_count", "_sum", "_bucket"))}
        return {"bytes_in_use": json.loads(self.ask("/v1/info"))["bytes_in_use"], **exports,
                "descriptors": len(os.listdir(f"/proc/{self.process.pid}/fd")), "device_used_mib": device_used()}

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def device_used():
    """MiB, by nvidia-smi; 0 where there is none."""
    if os.environ.get("ARRAYD_LIBCUDA"):
        return 0
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"], capture_output=True,
                              text=True, timeout=20)
        return int(done.stdout.split()[0])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return 0


def settled(daemon, before, seconds):
    """The state once nothing is more than before, or after so long; the device's memory within 64 MiB (contexts come and go)."""
    deadline = time.monotonic() + seconds
    while True:
        after = daemon.state()
        differs = [k for k in before if after.get(k, 0) - before[k] > (64 if k == "device_used_mib" else 0)]
        if not differs or time.monotonic() > deadline:
            return after, differs
        time.sleep(0.1)


def kill_some(daemon, arrays, count, seconds, command, jobs):
    """Starts processes, `jobs` at a time, and kills each when it has said that it has mapped its array: how many, and why others
    did not."""
    lock, done, faults = threading.Lock(), [0, 0], []
    deadline = time.monotonic() + seconds

    def work(k):
        turn = k
        while time.monotonic() < deadline:
            with lock:
                if done[1] >= count:
                    return
                done[1] += 1
            mode = "write" if turn % 2 else "read"
            process = subprocess.Popen(command(arrays[k], mode, turn), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            watch = threading.Timer(40, process.kill)
            watch.start()
            line = process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            _, error = process.communicate()
            watch.cancel()
            with lock:
                if line.strip() == b"mapped":
                    done[0] += 1
                else:
                    faults.append(error.decode(errors="replace").strip()[-300:])
            turn += 1

    threads = [threading.Thread(target=work, args=(k,)) for k in range(jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return done[0], faults


def part_kills(options, daemon, xp, name, count, seconds, command, jobs, nbytes):
    """An array for each of the processes that run at a time."""
    arrays = [make(xp, nbytes // 4) for _ in range(jobs)]
    ids = [a.id for a in arrays]
    for a in arrays:  # what is small moves when it is first exported
        with a.exported("write"):
            pass
    xp.release()
    time.sleep(0.3)
    before = daemon.state()
    begin = time.monotonic()
    killed, faults = kill_some(daemon, ids, count, seconds, command, jobs)
    took = time.monotonic() - begin
    after, differs = settled(daemon, before, 15)
    if name == "plain":
        usable = all(holds(xp, a, 1, 0) for a in arrays)
    else:
        usable = all(bool(xp.isfinite(xp.sum(a))) for a in arrays)
        for a in arrays:
            with a.exported("write"):
                pass
    fine = not differs and not faults and usable and killed > 0
    show(f"kills  {name:6} {killed} of {count} killed in {took:.0f} s, {len(faults)} did not come so far"
         f"{': ' + faults[0] if faults else ''}; {'LEFT: ' + str({k: (before[k], after.get(k)) for k in differs}) if differs else 'all is back'}"
         f"; arrays {'usable' if usable else 'DAMAGED'}",
         bench="kills", consumer=name, killed=killed, wanted=count, seconds=took, bytes=nbytes, jobs=jobs, faults=faults[:3], before=before,
         after=after, differs=differs, usable=usable, fine=fine)
    return fine


def main():
    p = argparse.ArgumentParser()
    p.add_argument("arrayd", nargs="?")
    p.add_argument("--backend", default="cuda")
    p.add_argument("--bytes", type=int, nargs="+", default=[2 * MIB, 64 * MIB, 2048 * MIB])
    p.add_argument("--rounds", type=int, default=25)
    p.add_argument("--kills", type=int, default=1000)
    p.add_argument("--busy-kills", type=int, default=6)
    p.add_argument("--jobs", type=int, default=max(2, min(12, (os.cpu_count() or 2) - 2)))
    p.add_argument("--seconds", type=float, default=130)
    p.add_argument("--libraries", nargs="+", default=list(LIBRARIES))
    p.add_argument("--daemon", nargs="*", default=[], help="further options of the daemon, without their leading --")
    p.add_argument("--child", help=argparse.SUPPRESS)
    p.add_argument("--socket", help=argparse.SUPPRESS)
    p.add_argument("--array", help=argparse.SUPPRESS)
    options = p.parse_args()
    options.daemon = [f"--{o}" for o in options.daemon]
    if options.child == "busy":
        return busy(options)
    if options.child:
        return child(options)
    end = time.monotonic() + options.seconds
    failed = 0
    import arrayd
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(options, folder)

        def left():
            return end - time.monotonic()

        try:
            xp = arrayd.connect(f"unix:{daemon.socket}")
            script = [sys.executable, str(pathlib.Path(__file__).resolve())]
            for name in options.libraries:
                seconds = max(5, min(50, left() - 45))
                command = [*script, "--child", name, "--socket", daemon.socket, "--rounds", str(options.rounds), "--bytes",
                           *map(str, options.bytes)]
                try:
                    status = subprocess.run(command, timeout=seconds).returncode
                except subprocess.TimeoutExpired:
                    status = "out of time"
                if status:
                    failed += 1
                    show(f"{name:6} {status if isinstance(status, str) else f'exit status {status}'}", bench="take", library=name, status=status)

            def alone(array, mode, turn):  # one in five has a context of its own and reads the memory
                more = [] if turn % 5 == 0 else ["light"]
                return [sys.executable, "-I", "-S", str(HERE / "export_consumer.py"), daemon.socket, array, mode, *more]

            def torch_kernels(array, mode, turn):
                return [*script, "--child", "busy", "--socket", daemon.socket, "--array", array]

            try:
                fine = part_kills(options, daemon, xp, "plain", options.kills, max(5, left() - 32), alone, options.jobs, 64 * MIB)
                failed += not fine
            except Exception as e:
                failed += 1
                show(f"kills  plain FAILED: {type(e).__name__}: {e}", bench="kills", consumer="plain", error=f"{type(e).__name__}: {e}")
            try:
                if "torch" in options.libraries:
                    import importlib.util
                    if importlib.util.find_spec("torch"):
                        failed += not part_kills(options, daemon, xp, "torch", options.busy_kills, max(5, left() - 12), torch_kernels,
                                                 min(3, options.jobs), 256 * MIB)
            except Exception as e:
                failed += 1
                show(f"kills  torch FAILED: {type(e).__name__}: {e}", bench="kills", consumer="torch", error=f"{type(e).__name__}: {e}")
            xp.close()
        finally:
            status = daemon.stop()
            if status:
                failed += 1
                show(f"the daemon ended with {status}: {daemon.said()[-1500:]}", bench="daemon", status=status)
            daemon.log.close()
    return failed


if __name__ == "__main__":
    sys.exit(main())
