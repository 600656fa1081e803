"""Files and daemons for tests of files with the stand-in reader (reader_stand_in.py)."""
import json
import os
import pathlib

import numpy as np

from client import DTYPES

READER = pathlib.Path(__file__).with_name("reader_stand_in.py")


def write(path, variables, attrs=None, dims=None, lie=None, whole=True, format="netcdf4"):
    """variables: {name: array, or (array, dims, attrs)}. Not `whole`: without the contents, which are zeros then."""
    head, parts = [], []
    for name, v in variables.items():
        a, names, own = v if isinstance(v, tuple) else (v, None, {})
        head.append({"name": name, "dtype": a.dtype.name, "shape": list(a.shape), "dims": names, "attrs": own})
        parts.append(np.ascontiguousarray(a).tobytes())
    text = {"format": format, "attrs": attrs or {}, "dims": dims or {}, "variables": head}
    path.write_bytes(json.dumps({**text, **({"lie": lie} if lie else {})}).encode() + b"\n" + b"".join(parts if whole else []))


def options(folder, *args):
    return ["--files", f"data={folder}", "--file-reader", READER, *args]


def imported(c, path, status="done", **members):
    """The job of an import, which has ended so."""
    job = c.expect(200, c.post("/v1/files/import?wait=1", {"folder": "data", "path": path, **members})).json()
    assert job["state"] == status, job
    return job


def exported(c, path, arrays, status="done", **members):
    job = c.expect(200, c.post("/v1/files/export?wait=1", {"folder": "data", "path": path, "arrays": arrays, **members})).json()
    assert job["state"] == status, job
    return job


def looked(c, path):
    return c.expect(200, c.get(f"/v1/files/data?path={path}")).json()


def readers():
    """How many of them run, of all daemons."""
    n = 0
    for p in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            n += READER.name.encode() in p.read_bytes()
        except OSError:
            pass
    return n


def children(d):
    """The processes of this daemon's: readers."""
    found = []
    for task in pathlib.Path(f"/proc/{d.pid}/task").iterdir():
        try:
            found += (task / "children").read_text().split()
        except OSError:
            pass
    return found


def no_reader(d):
    """None of this daemon's is left."""
    return not children(d)


def descriptors(d):
    return len(os.listdir(f"/proc/{d.pid}/fd"))


ALL_DTYPES = [t for t in DTYPES if t != "bfloat16"]
