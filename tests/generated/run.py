"""Generated programs and expressions on a daemon, against single requests and NumPy.

    run.py ARRAYD [--backend cpu|cuda] [--seed S] [--programs N] [--expressions N] [--aimed N] [--points N] [--jobs N]
           [--seconds T] [--numpy SHARE] [--out FILE] [--whole]
    run.py --join FILE… [--whole]

Prints tables of which kernels were reached: by form and rank, and then type; fields; boundary; and on a GPU how much a
thread has.
What failed is shrunk, and printed with its seed and as curl lines; a case follows from its seed and number alone:
--seed 7 --only program:123 makes that one again. Aimed cases are made for the cells of the tables in turn, so that none is left to
chance. Exit status 1 where something failed, or, with --whole, where a cell is empty that a
form claims to serve.
"""
import argparse
import json
import multiprocessing
import os
import queue
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

import aim
import cells
import make
import play

GRACE = 40  # seconds that what is under way has, when no further case begins


def case_of(seed, number, points, expressions):
    """Programs and expressions are sequences of their own."""
    rng = np.random.default_rng([seed, number, int(expressions)])
    size = int(points * rng.choice([1, 1, 0.1, 0.01]))
    if expressions:
        case = make.an_expression(rng, max(size, 1))
    else:
        kind = rng.random()
        maker = make.a_system if kind < 0.45 else make.a_region if kind < 0.55 else make.a_mixture
        case = maker(rng, max(size, 1))
    case["from"] = f"seed {seed} {'expression' if expressions else 'program'} {number}"
    return case


def aimed_case(seed, number, points, backend):
    """For the number-th of the cells, over and over."""
    every = aim.all_cells(backend)
    cell = every[number % len(every)]
    case = aim.a_case(np.random.default_rng([seed, number, 3]), points, *cell)
    case["from"] = f"seed {seed} aimed {number} ({' '.join(map(str, cell))})"
    return case


KINDS = ("program", "expression", "aimed")


class Started:
    """A daemon of its own."""

    def __init__(self, binary, options):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="arrayd-", suffix=".log")
        self.process = subprocess.Popen([*os.environ.get("WRAP", "").split(), binary, "--listen", "127.0.0.1:0", *options],
                                        stdout=self.log, stderr=self.log)
        end = time.monotonic() + 120
        while True:
            found = re.search(r" ready\b.*?listen=127\.0\.0\.1:(\d+)", self.text())
            if found:
                break
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the daemon did not start:\n{self.text()}")
            time.sleep(0.02)
        self.connection = play.Daemon("127.0.0.1", int(found[1]))
        self.seen = 0

    def reported(self):
        """What a checker that the daemon runs under has said since: the first of it."""
        text = self.text()
        new, self.seen = text[self.seen:], len(text)
        found = re.search(r"^========= (?!COMPUTE|.*SUMMARY)(.*\n(?:=========  .*\n){,3})", new, re.M)
        return found and f"reported: {found[1]}"

    def text(self):
        with open(self.log.name, errors="replace") as f:
            return f.read()

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def worker(options, numbers, results, busy, own_slot):
    daemon, share = None, options.numpy
    arguments = ["--backend", options.backend, *options.daemon]
    while True:
        with numbers.get_lock():
            number = numbers.value
            numbers.value += 1
        if number >= len(options.order) or time.time() > options.until:
            break
        kind, own = options.order[number]
        busy[own_slot] = number + 1
        if kind == "aimed":
            case = aimed_case(options.seed, own, options.points, options.backend)
        else:
            case = case_of(options.seed, own, options.points, kind == "expression")
        numpy = share >= 1 or np.random.default_rng([options.seed, own]).random() < share

        def outcome(case):
            nonlocal daemon
            daemon = daemon or Started(options.binary, arguments)
            try:
                o = play.play(daemon.connection, case, numpy)
                o.wrong = o.wrong or daemon.reported()
                return o
            except play.Lost as e:
                daemon.stop()
                log, daemon = daemon.text(), None
                return play.Outcome(f"lost: {e}\n{log[-3000:]}")
            except Exception as e:  # noqa: BLE001: whatever it is, the case is to be told
                return play.Outcome(f"{type(e).__name__}: {e}")

        o = outcome(case)
        told = {"kernels": o.kernels, "assigned": [s[0] for s in case["body"]], "error": o.error, "compared": o.compared, "kind": kind}
        if o.wrong:
            way = o.wrong.split(":")[0] if re.match("lost|reported|[A-Z]", o.wrong) else None

            def fails(smaller):
                """In the same way: lost, reported, an exception, or another result."""
                wrong = time.time() < options.until + GRACE / 2 and outcome(smaller).wrong
                return bool(wrong) and (wrong.startswith(way) if way else not re.match("lost|reported|[A-Z]", wrong))

            results.put({"found": f"{case['from']}: {o.wrong}"})
            small = play.shrunk(case, fails, 300 if options.shrink else 0)
            told["wrong"] = (case["from"], o.wrong, small, outcome(small).wrong)
        results.put(told)
    busy[own_slot] = 0
    status = daemon.stop() if daemon else 0
    results.put({"end": status, "log": daemon.text()[-3000:] if status else ""})


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("binary", nargs="?")
    p.add_argument("--backend", default="cpu")
    p.add_argument("--daemon", action="append", default=[], help="an option of the daemon's")
    p.add_argument("--seed", type=int, default=int(time.time()))
    p.add_argument("--programs", type=int, default=100)
    p.add_argument("--expressions", type=int, default=100)
    p.add_argument("--aimed", type=int, default=0)
    p.add_argument("--only", help="this one: program:NUMBER, expression:NUMBER or aimed:NUMBER")
    p.add_argument("--points", type=int, default=20000, help="elements of an array, at most")
    p.add_argument("--jobs", type=int, default=1, help="daemons side by side")
    p.add_argument("--seconds", type=float, default=1e9, help="no case begins later")
    p.add_argument("--numpy", type=float, default=1, help="the share of cases that are compared with NumPy")
    p.add_argument("--no-shrink", dest="shrink", action="store_false")
    p.add_argument("--out", help="a file for the tables, and for --join")
    p.add_argument("--join", nargs="+", help="tables of earlier runs")
    p.add_argument("--whole", action="store_true", help="an empty cell fails")
    options = p.parse_args()
    options.until = time.time() + min(options.seconds, 1e6)
    if options.only:
        what, number = options.only.split(":")
        options.order = [(KINDS[KINDS.index(what)], int(number))]
    else:
        each = dict(zip(KINDS, (options.programs, options.expressions, options.aimed)))
        options.order = [(kind, k) for k in range(max(each.values())) for kind in KINDS if k < each[kind]]
    tables, counts, wrong = cells.Tables(), dict(programs=0, expressions=0, aimed=0, refused=0, numpy=0), []
    if options.join:
        for name in options.join:
            with open(name) as f:
                kept = json.load(f)
            tables.join(kept["tables"])
            for k, n in kept["counts"].items():
                counts[k] = counts.get(k, 0) + n
            wrong += kept["wrong"]
    else:
        numbers, results = multiprocessing.Value("q", 0), multiprocessing.Queue()
        busy = multiprocessing.Array("q", options.jobs)  # 1 + the number of each worker's case; 0: it has none
        workers = [multiprocessing.Process(target=worker, args=(options, numbers, results, busy, k), daemon=True)
                   for k in range(options.jobs)]
        for w in workers:
            w.start()
        left = options.jobs
        while left:
            try:
                told = results.get(timeout=max(options.until + GRACE - time.time(), 0.1))
            except queue.Empty:
                for number in filter(None, busy):
                    kind, own = options.order[number - 1]
                    wrong.append(f"seed {options.seed} {kind} {own} does not end")
                    print(f"FAILED {wrong[-1]}\n", flush=True)
                if not any(busy):
                    wrong.append("a daemon does not end")
                break
            if "found" in told:
                print(f"found, and is being shrunk: {told['found']}\n", flush=True)
                continue
            if "end" in told:
                left -= 1
                if told["end"]:
                    wrong.append(f"a daemon ended with {told['end']}:\n{told['log']}")
                continue
            counts[told["kind"] if told["kind"] == "aimed" else f"{told['kind']}s"] += 1
            counts["refused"] += told["error"] is not None
            counts["numpy"] += told["compared"]
            tables.add(told["kernels"], told["assigned"])
            if "wrong" in told:
                origin, why, small, still = told["wrong"]
                lines = "\n".join(play.curl(small))
                wrong.append(f"{origin}: {why}\nshrunk: {still}\n{lines}\n{json.dumps(small)}")
                print(f"FAILED {wrong[-1]}\n", flush=True)
    tables.print(sys.stdout)
    empty = tables.empty(options.backend)
    print(f"| {len(empty)} cells that a form serves were not reached{': ' if empty else ''}"
          + "; ".join(" ".join(map(str, cell)) for cell in empty) + " |")
    if options.out:
        with open(options.out, "w") as f:
            json.dump({"tables": tables.dump(), "counts": counts, "wrong": wrong, "seed": options.seed}, f)
    print(f"| seed {options.seed}: {counts['programs']} programs, {counts['expressions']} expressions, {counts['aimed']} aimed, of which "
          f"{counts['refused']} were refused both ways and {counts['numpy']} compared with NumPy; {len(wrong)} failed |")
    sys.exit(bool(wrong or (options.whole and empty)))


if __name__ == "__main__":
    main()
