#!/usr/bin/env python3
"""Imports of large files, beside a C loop of H5Dread over the same slabs in the same run.

    bench_files.py ARRAYD [--bytes N] [--rounds N] [--folder FOLDER] [--backend cuda|cpu] [--cases plain deflated …]

For each kind of file (NetCDF-4, written by netCDF4-python: contiguous, "plain"; in chunks that are shuffled and deflated, "deflated";
packed int16 with scale and offset, "packed"; classic, "classic"):

seconds   of an import, from the request to the job's end, and of h5_bare.c with one thread and with as many as arrayd-file has;
          in turn, the best of the rounds. The file lies in the page cache. `of_bare` is bare ÷ import: 1 is as fast; wanted 0.8
memory    the most that the daemon, arrayd-file and the slabs hold beyond the array itself while it runs, in MiB; wanted 256
p99       of a small evaluation of another client, without an import and beside one; wanted 1.3 times
exports   seconds of an export as NetCDF-4, beside a C program's write of as many bytes

One JSON line a measurement, one that begins with | for a reader.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import netCDF4
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20


def show(text=None, **row):
    print(json.dumps({k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}), flush=True)
    if text:
        print(f"| {text}", flush=True)


def make(path, case, nbytes):
    """A field that deflates to some half: smooth, with noise in the low bits."""
    width = 2 if case == "packed" else 4
    ny, nx = 1024, 1024
    nt = nbytes // (ny * nx * width)
    rng = np.random.default_rng(1)
    base = np.add.outer(np.sin(np.arange(ny) / 100), np.cos(np.arange(nx) / 70)).astype("f4")
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA" if case == "classic" else "NETCDF4") as f:
        for name, n in (("time", nt), ("y", ny), ("x", nx)):
            f.createDimension(name, n)
        how = {"plain": {"contiguous": True}, "classic": {}}.get(case, {"zlib": True, "complevel": 1, "shuffle": True, "chunksizes": (1, 512, 512)})
        v = f.createVariable("u", "i2" if width == 2 else "f4", ("time", "y", "x"), **how)
        if width == 2:
            v.scale_factor, v.add_offset = np.float32(1e-3), np.float32(280)
            v.set_auto_maskandscale(False)
        for t in range(nt):
            plane = np.round((base + t * 0.01 + rng.random((ny, nx), "f4") * 0.01) * 4096) / 4096
            v[t] = (plane * 1000).astype("i2") if width == 2 else plane.astype("f4")
    return nt * ny * nx * width


class Daemon:
    def __init__(self, arrayd, folder, backend, options):
        self.proc = subprocess.Popen([arrayd, "--backend", backend, "--listen", "127.0.0.1:0", "--files", f"bench={folder}", *options],
                                     stderr=subprocess.PIPE, text=True)
        for line in self.proc.stderr:
            if "127.0.0.1:" in line:
                self.port = int(line.split("127.0.0.1:")[1].split("/")[0].split()[0].rstrip(".,;"))
                break
        threading.Thread(target=self.proc.stderr.read, daemon=True).start()

    def ask(self, method, path, body=None):
        r = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method,
                                   data=None if body is None else json.dumps(body).encode(), headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(r) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def job(self, path, body):
        """Seconds of a job, from its request to its end."""
        begun = time.monotonic()
        j = self.ask("POST", path, body)
        while j["state"] in ("queued", "running"):
            j = self.ask("GET", f"/v1/jobs/{j['id']}?wait=1")
        assert j["state"] == "done", j
        return time.monotonic() - begun

    def resident(self):
        """Bytes of the daemon and of what it has started: pages of their own, and shared ones once."""
        total = 0
        for pid in [self.proc.pid, *children(self.proc.pid)]:
            try:
                text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            total += sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
        return total


def children(pid):
    """The daemon is its keeper's child, arrayd-file the daemon's."""
    try:
        own = [int(x) for t in os.listdir(f"/proc/{pid}/task") for x in pathlib.Path(f"/proc/{pid}/task/{t}/children").read_text().split()]
    except OSError:
        return []
    return own + [x for c in own for x in children(c)]


def most_resident(d, work):
    most, stop = [0], threading.Event()

    def look():
        while not stop.wait(0.02):
            most[0] = max(most[0], d.resident())
    t = threading.Thread(target=look)
    t.start()
    work()
    stop.set()
    t.join()
    return most[0]


def latencies(d, until):
    """Milliseconds of small evaluations, one after the other, of a process of its own."""
    text = f"""
import http.client, json, sys, time, select
c = http.client.HTTPConnection("127.0.0.1", {d.port})
body = json.dumps({{"expr": "small*2 + 1", "out": "other"}})
while not select.select([sys.stdin], [], [], 0)[0]:
    t = time.perf_counter()
    c.request("POST", "/v1/evaluate", body, {{"Content-Type": "application/json"}})
    c.getresponse().read()
    print((time.perf_counter() - t)*1e3)
    time.sleep(0.002)
"""
    p = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    until()
    out, _ = p.communicate("\n")
    return np.array([float(x) for x in out.split()][5:])


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("arrayd")
    a.add_argument("--bytes", type=int, default=4 << 30)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--folder", help="where the files are made; kept and used again")
    a.add_argument("--backend", default="cpu")
    a.add_argument("--cases", nargs="+", default=["plain", "deflated", "packed", "classic"])
    a.add_argument("--option", action="append", default=[], help="of the daemon, as --option=--file-threads=4")
    o = a.parse_args()
    folder = pathlib.Path(o.folder or tempfile.mkdtemp(prefix="arrayd-files-"))
    folder.mkdir(parents=True, exist_ok=True)
    bare = pathlib.Path(o.arrayd).resolve().parents[1] / "tests" / "bench" / "h5_bare"
    for case in o.cases:
        path = folder / f"{case}-{o.bytes}.nc"
        if not path.exists():
            make(path, case, o.bytes)
        d = Daemon(o.arrayd, folder, o.backend, o.option)
        limits = d.ask("GET", "/v1/info")["limits"]
        slab, threads = limits["file_slab"], limits["file_threads"]
        d.ask("POST", "/v1/arrays", {"name": "small", "shape": [1000], "fill": 1})
        body = {"folder": "bench", "path": path.name, "variables": [{"variable": "u", "name": "u"}], "coords": False}
        at_rest = d.resident()
        most = most_resident(d, lambda: d.job("/v1/files/import", body))
        nbytes = d.ask("GET", "/v1/arrays/u")["nbytes"]
        beyond = (most - at_rest - (nbytes if o.backend == "cpu" else 0)) / MIB
        show(f"{case}: {beyond:.0f} MiB beside the array", case=case, beyond_MiB=beyond)
        d.ask("DELETE", "/v1/arrays/u")

        seconds = {"import": []}
        for _ in range(o.rounds):
            subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)  # into the page cache
            seconds["import"].append(d.job("/v1/files/import", body))
            d.ask("DELETE", "/v1/arrays/u")
            if case != "classic":
                for n in sorted({1, threads}):
                    out = subprocess.run([bare, path, "u", str(slab), str(n)], capture_output=True, text=True, check=True).stdout
                    seconds.setdefault(f"bare{n}", []).append(float(out.split()[0]))
        best = {k: min(v) for k, v in seconds.items()}
        row = {"case": case, "bytes": nbytes, **{f"{k}_s": v for k, v in best.items()}}
        text = f"{case}: import {best['import']:.2f} s, {nbytes/best['import']/1e9:.2f} GB/s"
        if case != "classic":
            row["of_bare"] = min(v for k, v in best.items() if k != "import") / best["import"]
            text += f", {row['of_bare']:.2f} of H5Dread's speed"
        show(text, **row)

        alone = latencies(d, lambda: time.sleep(max(3, best["import"])))
        beside = latencies(d, lambda: d.job("/v1/files/import", body))
        p = {name: float(np.percentile(v, 99)) for name, v in (("alone", alone), ("beside", beside))}
        show(f"{case}: p99 {p['alone']:.2f} ms alone, {p['beside']:.2f} beside an import ({p['beside']/p['alone']:.2f})",
             case=case, p50_alone_ms=float(np.median(alone)), p50_beside_ms=float(np.median(beside)), p99_alone_ms=p["alone"],
             p99_beside_ms=p["beside"], requests=len(beside))

        if case != "packed":
            out = folder / "export.nc"
            body = {"folder": "bench", "path": out.name, "format": "netcdf4", "arrays": ["u"], "overwrite": True, "deflate": 1 if case == "deflated" else 0}
            t = d.job("/v1/files/export", body)
            show(f"{case}: export {t:.2f} s, {nbytes/t/1e9:.2f} GB/s", case=case, export_s=t, file_bytes=out.stat().st_size)
            out.unlink()
        d.proc.terminate()
        d.proc.wait()


if __name__ == "__main__":
    main()
