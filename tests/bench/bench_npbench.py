#!/usr/bin/env python3
"""The NumPy programs of npbench (a checkout of github.com/spcl/npbench in FOLDER), only the namespace swapped, beside NumPy or CuPy.

    bench_npbench.py ARRAYD FOLDER [--preset S|M|L] [--peer numpy|cupy] [--only REGEX] [--slow 20] [--rounds 2] [--seconds 1e9]
                     [--options OPTION…]

Prints a line a program: whether the client's values are the peer's, seconds of both until all results are there (in the daemon, on the
device), the best of the rounds, in which they take turns, and the peer's part of ours: above 1 arrayd is ahead. Inputs are there
before the time begins. With CuPy, a program's own version for CuPy is run where npbench has one. --slow: seconds after which a run
is given up; --seconds: no program begins later.
"""
import argparse
import importlib.util
import json
import pathlib
import re
import signal
import sys
import time
import types

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
import arrayd  # noqa: E402


class Slow(Exception):
    pass


def too_slow(*_):
    raise Slow()


class Program:
    def __init__(self, folder, info, preset):
        b = json.loads(info.read_text())["benchmark"]
        self.name, self.function, self.inputs, self.outputs = b["short_name"], b["func_name"], b["input_args"], b.get("output_args", [])
        self.base = f"{folder}/npbench/benchmarks/{b['relative_path']}/{b['module_name']}"
        self.data = dict(b["parameters"][preset])
        if b.get("init"):
            spec = importlib.util.spec_from_file_location("initialize", self.base + ".py")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            made = getattr(module, b["init"]["func_name"])(*[self.data[a] for a in b["init"]["input_args"]])
            self.data.update(zip(b["init"]["output_args"], made if isinstance(made, tuple) else (made,)))

    def run(self, namespace, there, done, own):
        """Seconds, and what it returns and writes. `there` moves an array, `done` waits for arrays."""
        path = pathlib.Path(f"{self.base}_{own}.py")
        path = path if path.exists() else pathlib.Path(self.base + "_numpy.py")
        source = re.sub(r"^import (numpy|cupy) as (np|cp)\s*$", "", path.read_text(), flags=re.M)
        module = types.ModuleType(self.name)
        module.np = module.cp = namespace
        exec(compile(source, str(path), "exec"), module.__dict__)
        data = {k: there(v) if isinstance(v, np.ndarray) else v for k, v in self.data.items()}
        done([v for v in data.values() if hasattr(v, "shape")])
        begun = time.perf_counter()
        value = getattr(module, self.function)(*[data[a] for a in self.inputs])
        out = [] if value is None else list(value) if isinstance(value, tuple) else [value]
        out += [data[a] for a in self.outputs if hasattr(data[a], "shape")]
        done(out)
        return time.perf_counter() - begun, out


def same(x, y):
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape:
        return False
    scale = float(np.nanmax(np.abs(x))) if x.size else 0.0
    return np.allclose(x, y, rtol=1e-4, atol=1e-5 * (1 + scale), equal_nan=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("arrayd")
    p.add_argument("folder")
    p.add_argument("--preset", default="S")
    p.add_argument("--peer", choices=("numpy", "cupy"), default="numpy")
    p.add_argument("--only", default=".")
    p.add_argument("--slow", type=float, default=20)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--seconds", type=float, default=1e9)
    p.add_argument("--options", nargs="*", default=[], metavar="OPTION", help="of the daemon, without the dashes: backend=cpu")
    a = p.parse_args()
    begun = time.monotonic()
    sys.path.insert(0, a.folder)
    signal.signal(signal.SIGALRM, too_slow)
    peer, to_host = np, np.asarray
    if a.peer == "cupy":
        import cupy as peer
        to_host = peer.asnumpy
    counts = {}
    with arrayd.local(program=a.arrayd, **dict(o.split("=", 1) for o in a.options)) as xp, arrayd.config(transfers="allow"):

        def ours_done(arrays):
            for x in arrays:
                if isinstance(x, arrayd.Array):
                    x.compute()
            xp.sync()

        def peer_done(_):
            if peer is not np:
                peer.cuda.Device().synchronize()

        sides = {"peer": (peer, peer.array, peer_done, a.peer), "ours": (xp, xp.asarray, ours_done, "numpy")}
        for info in sorted(pathlib.Path(a.folder, "bench_info").glob("*.json")):
            if time.monotonic() - begun > a.seconds:
                print("| there was no time for the others")
                break
            if not re.search(a.only, json.loads(info.read_text())["benchmark"]["short_name"]):
                continue
            try:
                program = Program(a.folder, info, a.preset)
            except ImportError as e:  # its inputs are another package's
                counts["not tried"] = counts.get("not tried", 0) + 1
                print(f"| {info.stem} | not tried | {e} |  |  |", flush=True)
                continue
            best, out, said = {}, {}, {}
            for _ in range(a.rounds):
                for side, args in sides.items():
                    if side in said:
                        continue
                    out[side] = None
                    try:
                        signal.setitimer(signal.ITIMER_REAL, a.slow)
                        took, out[side] = program.run(*args)
                        best[side] = min(took, best.get(side, took))
                        if took > a.slow / 2:
                            said.setdefault(side, "")
                    except Slow:
                        said[side] = f"over {a.slow:g} s"
                    except Exception as e:
                        said[side] = f"{type(e).__name__}: {str(e).splitlines()[0][:90] if str(e) else ''}"
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
            if said.get("ours"):
                what = "slow" if said["ours"].startswith("over") else "error"
            elif said.get("peer"):
                what = "alone"
            else:
                what = "right" if len(out["peer"]) == len(out["ours"]) and all(same(to_host(x), y) for x, y in zip(out["peer"], out["ours"])) else "WRONG"
            counts[what] = counts.get(what, 0) + 1
            shown = {s: said.get(s) or f"{best[s] * 1e3:.2f} ms" for s in sides}
            ratio = f"{best['peer'] / best['ours']:.2f}" if len(best) == 2 and not any(said.values()) else ""
            print(f"| {program.name} | {what} | {shown['peer']} | {shown['ours']} | {ratio} |", flush=True)
            del program, out
            if peer is not np:
                peer.get_default_memory_pool().free_all_blocks()
    print(f"| npbench, preset {a.preset}, beside {a.peer}: {counts}")
    sys.exit("WRONG" in counts)


if __name__ == "__main__":
    main()
