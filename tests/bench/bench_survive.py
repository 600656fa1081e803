#!/usr/bin/env python3
"""Arrays outlive the daemon: whatever ends it, again and again, nobody loses one.

    bench_survive.py ARRAYD [--backend cuda] [--arrays 1000] [--bytes 100GiB] [--rounds 25] [--seed 1] [--seconds 400]
                     [--kinds fault,kill,segv,upgrade] [--fault signal|FILE] [--midst 2] [--jobs]

Arrays of every dtype and of sizes from a few bytes up, together BYTES, belong to four users; of each a view that shows its
bits as integers gives a checksum, computed where the array is. Four more clients, one a user, go on working: evaluations into
arrays, programs, uploads, arrays made and deleted. Then the daemon ends, ROUNDS times of each kind, in an order of the seed's:

    fault    a kernel that writes where no memory is. The daemon must be built with -Dfault_hook=true, so that a signal
             launches one; or FILE is the one that the fake driver (tests/fake) takes the error from
    kill, segv   the daemon proper gets SIGKILL, SIGSEGV
    upgrade      the keeper gets SIGUSR2

and once, MIDST > 0, it is killed in the midst of a kernel that writes for so many seconds.

After each: the time from there to the first evaluation that the next process answers; every checksum as it was, under the
same ids, sessions, tokens and leases; a few small arrays downloaded, byte for byte; of what was being written, each array
answers 409 contents_lost until it is written as a whole, or is whole: with a value that it was to have. An upgrade loses
nothing at all. When everything that was made meanwhile has been deleted, the memory in use and the keeper's descriptors must
be what they were at the start. With --jobs a program goes on after a death and ends with the bits of an undisturbed run;
without, one that ends must have them. A refused connection is an error.

Kernels on the device during a fault come under suspicion and are refused after the second: since here it was never theirs,
the list is deleted each time, as an operator would.

Prints one JSON line and one that begins with | for a reader. Exit status 1 if anything was not as it should be. After --seconds no
further round begins: the lines say how many there were.
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import sys
import tempfile
import threading
import time

from survive_users import LASTED, PATIENCE, USERS, Client, Cut, Daemon, Part, Worker, Wrong, size

LONG = {"expr": "sum(sin(left[:,None] + right[None,:]), axis=1)", "out": "late"}


class Bench:
    def __init__(self, options, folder):
        self.options, self.begun = options, time.monotonic()
        self.daemon = Daemon(options, folder)
        rng = random.Random(options.seed)
        weights = [10 ** rng.uniform(-7, 0) for _ in range(options.arrays)]
        sizes = [int(w * options.bytes / sum(weights)) for w in weights]
        self.parts = [Part(self.daemon, user, rng, sizes[k::4]) for k, user in enumerate(USERS)]
        self.bytes = sum(x["bytes"] for p in self.parts for x in p.want.values())
        self.prober = Client(self.daemon, "ann")
        self.prober.ask("POST", "/v1/arrays", {"name": "probe", "shape": [1000], "dtype": "float32", "fill": 2})
        self.prober.sync()
        self.workers, self.counts, self.different, self.midst_was = [], {}, [], None
        self.times = {}

    # --- an end, and what comes after it ---

    def inflict(self, kind, before):
        if kind in ("kill", "midst"):
            os.kill(before, signal.SIGKILL)
        elif kind == "segv":
            os.kill(before, signal.SIGSEGV)
        elif kind == "upgrade":
            self.daemon.proc.send_signal(signal.SIGUSR2)
        elif self.options.fault == "signal":
            os.kill(before, signal.SIGRTMIN)
        else:
            path = pathlib.Path(self.options.fault)
            path.with_suffix(".new").write_text("700")
            path.with_suffix(".new").rename(path)

    def answered(self):
        """Whether the next process computes; before that, connections wait."""
        try:
            status, content, _ = self.prober.once("POST", "/v1/evaluate", {"expr": "sum(2*probe)"})
        except Cut:
            return False
        if status == 200:
            if json.loads(content)["value"] != 4000:
                raise Wrong(f"the first evaluation: {content}")
            return True
        if b"kernel_faulted" in content:
            self.daemon.pardon()
        elif status not in (429, 503):
            raise Wrong(f"the first evaluation: {status} {content}")
        return False

    def end(self, kind):
        """Seconds until the next process has answered an evaluation."""
        d = self.daemon
        before = d.pid
        for c in (self.prober, *self.parts):
            c.close()
        d.kind = kind
        d.begun += 1
        begun = time.perf_counter()
        self.inflict(kind, before)
        while d.pid in (None, before):
            if time.perf_counter() - begun > PATIENCE:
                raise Wrong(f"{kind}: no other process came:\n{d.log()[-3000:]}")
            time.sleep(0.0005)
        if kind == "fault":
            d.pardon()  # it is not read yet
        while not self.answered():
            if time.perf_counter() - begun > PATIENCE:
                raise Wrong(f"{kind}: no evaluation is answered:\n{d.log()[-3000:]}")
            time.sleep(0.0005)
        took = time.perf_counter() - begun
        self.alive = time.monotonic()
        d.over = d.begun
        return took

    def verify(self):
        def one(part):
            part.rights()
            return part.verify()

        found = []
        threads = [threading.Thread(target=lambda p=p: found.append(guarded(one, p))) for p in self.parts]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for x in found:
            if isinstance(x, Exception):
                raise x
            self.different += x
        if self.different:
            raise Wrong(f"{len(self.different)} arrays differ: {self.different[:5]}")

    def rest(self, least=0.0):
        """Until the daemon has lasted, every user has looked, and work is under way again."""
        until = max(self.alive + LASTED, time.monotonic() + least)
        while time.monotonic() < until or any(w.seen != self.daemon.begun and not w.failure for w in self.workers):
            time.sleep(0.002)
        for w in self.workers:
            if w.failure:
                raise Wrong(w.failure)

    def round(self, kind, rng):
        self.rest(rng.uniform(0, 0.3))
        took = self.end(kind)
        self.times.setdefault(kind, []).append(took)
        self.verify()

    def quiet(self):
        """Memory and descriptors of a daemon that has only just taken everything over and looked at it."""
        self.rest()
        self.end("kill")
        self.verify()
        time.sleep(0.2)
        return self.daemon.memory(), self.daemon.held()[0]

    # --- in the midst of a kernel ---

    def make_long(self):
        """A kernel that writes its result bit by bit for some seconds: how many."""
        c = Client(self.daemon, "dora")
        for name in ("left", "late"):
            c.ask("POST", "/v1/arrays", {"name": name, "shape": [self.options.elements], "dtype": "float32", "fill": 1})
        n, took = 16, 0.0
        while took < self.options.midst:
            n = min(n * 4, int(n * max(1.2, self.options.midst / took * 1.1))) if took else n
            c.ask("PUT", "/v1/arrays/right", {"shape": [n], "dtype": "float32", "fill": 0.5})
            for _ in range(2 if n == 16 else 1):  # the first one compiles
                c.sync()
                begun = time.perf_counter()
                c.ask("POST", "/v1/evaluate", LONG)
                c.sync()
                took = time.perf_counter() - begun
        c.close()
        return took

    def midst(self, took):
        """Killed in the midst of that kernel, it writes no more."""
        c = Client(self.daemon, "dora")
        for _ in range(5):
            self.rest()
            c.ask("POST", "/v1/evaluate", {"expr": "1.0", "out": "late"})
            c.sync()
            c.ask("POST", "/v1/evaluate", LONG)
            time.sleep(took * 0.5)
            c.close()
            self.times.setdefault("midst", []).append(self.end("midst"))
            least, most = c.value("min(late)"), c.value("max(late)")
            if least is None:
                break
            if least != most:
                raise Wrong(f"an array that a kernel was in the midst of writing is said to be whole: {least} to {most}")
        else:
            raise Wrong("the kernel was never in the midst of it: it had not begun, or had ended")
        c.ask("POST", "/v1/evaluate", {"expr": "7.0", "out": "late"})
        c.sync()
        until = time.monotonic() + took + 0.5
        while time.monotonic() < until:
            self.verify()
            if (c.value("min(late)"), c.value("max(late)")) != (7, 7):
                raise Wrong("something still writes what was written since")
        self.midst_was = round(took, 2)
        for name in ("left", "right", "late"):
            c.ask("DELETE", f"/v1/arrays/{name}")
        c.close()

    # --- all of it ---

    def run(self):
        o, rng = self.options, random.Random(f"{self.options.seed} rounds")
        self.alive = time.monotonic()
        self.verify()
        before = self.quiet()
        took = self.make_long() if o.midst else 0.0
        self.workers = [Worker(self.daemon, user, o) for user in USERS]
        for w in self.workers:
            w.start()
        kinds = [kind for kind in o.kinds for _ in range(o.rounds)]
        rng.shuffle(kinds)
        if o.midst:
            self.midst(took)
        for kind in kinds:
            if time.monotonic() - self.begun > o.seconds:
                break
            self.round(kind, rng)
        if kinds and not self.times.keys() - {"midst"}:
            raise Wrong("there was no time for a single round")
        self.rest(0.3)
        for w in self.workers:
            w.ending.set()
        for w in self.workers:
            w.join(PATIENCE)
            if w.failure:
                raise Wrong(w.failure)
        self.count()
        after = self.quiet()
        until = time.monotonic() + 10
        while self.leaked(before, after) and time.monotonic() < until:  # a driver takes its time
            time.sleep(0.1)
            after = self.daemon.memory(), self.daemon.held()[0]
        if self.leaked(before, after):
            raise Wrong(f"memory and descriptors: {before} at the start, {after} at the end")
        return before, after

    def leaked(self, before, after):
        return abs(after[0] - before[0]) > self.options.slack or after[1] != before[1]

    def count(self):
        for w in self.workers:
            for k, v in w.counts.items():
                self.counts[k] = self.counts.get(k, 0) + v
        self.workers = []

    def report(self, wrong, before, after):
        self.count()
        total = self.counts
        figures = {}
        for group, kinds in {"death": ("fault", "kill", "segv"), **{k: (k,) for k in ("fault", "kill", "segv", "upgrade")}}.items():
            times = sorted(t for k in kinds for t in self.times.get(k, ()))
            if times:
                figures[group] = {"n": len(times), "p50_s": round(statistics.median(times), 3),
                                  "p99_s": round(times[-1 - len(times) // 100], 3), "most_s": round(times[-1], 3)}
        row = {"bench": "survive", "backend": self.options.backend, "arrays": sum(len(p.want) for p in self.parts), "bytes": self.bytes,
               "seed": self.options.seed, "rounds": sum(len(v) for k, v in self.times.items() if k != "midst"),
               "asked": self.options.rounds * len(self.options.kinds), "times": figures,
               "midst_s": self.midst_was, "different": len(self.different), "users": total, "pardons": self.daemon.pardons,
               "jobs": self.options.jobs, "memory": [before[0], after[0]], "descriptors": [before[1], after[1]],
               "seconds": round(time.monotonic() - self.begun, 1), "wrong": wrong}
        compared = sorted(float(t) for t in re.findall(r"idle memory compared .*seconds=([0-9.]+)", self.daemon.log()))
        if compared:
            row["compared"] = {"n": len(compared), "p50_s": statistics.median(compared), "most_s": compared[-1]}
        print(json.dumps(row), flush=True)
        said = "; ".join(f"{k} {v['n']} times, p50 {v['p50_s']} s, p99 {v['p99_s']} s" for k, v in figures.items())
        print(f"| {row['arrays']} arrays, {self.bytes / 2**30:.2f} GiB, {row['rounds']} of {row['asked']} rounds: {len(self.different)} differ; "
              f"until answered: {said}; {total.get('lost', 0)} contents_lost, {total.get('whole', 0)} whole, "
              f"{total.get('programs', 0)} programs; " + (f"WRONG: {wrong}" if wrong else "nothing leaked"))


def guarded(f, *args):
    try:
        return f(*args)
    except Exception as e:
        return e


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arrayd")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--arrays", type=int, default=1000)
    parser.add_argument("--bytes", type=size, default="100GiB")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--kinds", type=lambda text: text.split(","))
    parser.add_argument("--fault", default="signal")
    parser.add_argument("--midst", type=float, default=2.0)
    parser.add_argument("--elements", type=int, default=1 << 22, help="of the arrays that the users work on")
    parser.add_argument("--slack", type=size, default="64MiB", help="by which the memory in use may differ at the end")
    parser.add_argument("--kernel-cache", help="a folder; by default a new one")
    parser.add_argument("--jobs", action="store_true")
    parser.add_argument("--log", help="a file that gets the daemons' log")
    options = parser.parse_args()
    options.kinds = options.kinds or ["kill", "segv", "upgrade"] + ["fault"] * (options.backend == "cuda")
    with tempfile.TemporaryDirectory(prefix="arrayd-survive-") as folder:
        bench, wrong, figures = None, None, ((0, 0), (0, 0))
        try:
            bench = Bench(options, folder)
            figures = bench.run()
        except Exception as e:
            wrong = f"{type(e).__name__}: {e}"
        finally:
            if bench:
                bench.daemon.proc.terminate()
                ended = bench.daemon.proc.wait(PATIENCE)
                wrong = wrong or (f"the keeper's exit status is {ended}" if ended else None)
                bench.report(wrong, *figures)
            if bench and options.log:
                pathlib.Path(options.log).write_text(bench.daemon.log())
            if wrong:
                print((bench.daemon.log() if bench else "")[-6000:], file=sys.stderr)
    if wrong:
        raise SystemExit(f"wrong: {wrong}")


main()
