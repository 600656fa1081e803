"""Memory that is exported never shows what another had in it. Blocks that could be exported, and were not, are kept and given to
whoever next makes an array of so many bytes (compute/memory/reclaim.c), uncleared: whoever gets one writes all of it before anybody can look.
Here Ann leaves such blocks full of a pattern; Bob makes arrays of exactly their size in every way there is, has each exported, and
maps all that the descriptor has, beyond the array's own bytes too."""
import mmap
import os
import socket

import numpy as np
import pytest

from client import OCTETS
from exported import Export
from ghosts import NONE

BYTE = 0xA5  # also what the fake driver has in memory that nobody has written
# bytes: multiples of a page and of the fake GPU's 2 MiB, and not; of 128, as padded arrays are
SIZES = {"cpu": [8192, 80_000, (1 << 20) + 1280], "gpu": [80_000, 2 << 20]}
DTYPES = {"cpu": ["bool", "int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"],
          "gpu": ["float64"]}
GHOSTS = {"ghost": [1, 0], "boundary": [[NONE, NONE], [NONE, NONE]]}


@pytest.fixture(params=["cpu", "gpu"])
def two(request, tmp_path, accounts):
    if request.param == "gpu" and os.environ.get("ARRAYD_REAL_GPU"):
        pytest.skip("mmap maps the fake driver's memory alone")
    start = request.getfixturevalue("daemon_with" if request.param == "cpu" else "gpu_with")
    backend = ["--backend", "cpu", "--threads", "1"] if request.param == "cpu" else []
    for name in ("ann", "bob"):
        accounts.add(name, role="operator")
    d = start(*backend, "--accounts", accounts.path, "--allow-export", "--export-threshold", "4KiB", "--listen", f"unix:{tmp_path}/s")
    ann, bob = (d.client(always={"Authorization": f"Bearer {accounts.token[name]}"}) for name in ("ann", "bob"))
    bob.daemon, bob.kind = d, request.param
    yield ann, bob
    for c in (ann, bob):
        c.close()


def leave_pattern(ann, size, n=4):
    """Blocks of so many bytes that are full of it and nobody's."""
    body = bytes([BYTE]) * size
    made = [ann.expect(201, ann.request("POST", f"/v1/arrays?dtype=uint8&shape={size}", body, content_type=OCTETS)).json()["id"]
            for _ in range(n)]
    for a in made:
        ann.expect(204, ann.delete(f"/v1/arrays/{a}"))


def whole_memory(c, ref, mode="read"):
    with Export(c, ref, mode) as x:
        size = os.fstat(x.fd).st_size
        assert size >= x.reply["size"]
        with mmap.mmap(x.fd, size, mmap.MAP_SHARED, mmap.PROT_READ) as m:
            return x.reply, m[:]


def look(c, ref, values=None):
    """The array's memory: the values, where they are known, and none of the pattern anywhere else."""
    reply, memory = whole_memory(c, ref)
    if values is not None:
        values = np.ascontiguousarray(values).tobytes()
        assert memory.startswith(values), f"{ref}: not its values"
        memory = memory[len(values):]
        assert memory.count(0) == len(memory), f"{ref}: something behind its {len(values)} bytes"
    assert BYTE not in memory, f"{ref} {reply['dtype']} {reply['shape']}: another's byte at {memory.index(BYTE)} of {len(memory)}"


def ones(c, size, name, dtype="float64"):
    n = size // np.dtype(dtype).itemsize
    return c.create(name=name, shape=[n], dtype=dtype, fill=1)


def cut_off(c, method, path, size):
    """An upload that ends half-way."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(c.daemon.unix)
        s.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {c.always['Authorization']}\r\n"
                  f"Content-Type: {OCTETS}\r\nContent-Length: {size}\r\n\r\n".encode() + bytes([1]) * (size // 2))
    c.quiet()


# --- ways to make an array of `size` bytes; each gives what is to be looked at: (name, its values or None) ---

def created(c, size):
    n = size // 8
    yield c.create(shape=[size], dtype="uint8")["id"], np.zeros(size, "u1")
    yield c.create(shape=[n // 4, 2], dtype="complex128")["id"], np.zeros(size, "u1")
    yield c.create(shape=[n], dtype="float64", fill=1)["id"], np.ones(n)
    yield c.create(arange={"start": 0, "stop": n}, dtype="float64")["id"], np.arange(float(n))
    yield c.create(linspace={"start": 0, "stop": n - 1, "num": n})["id"], np.arange(float(n))
    yield c.create(eye={"n": n // 16, "m": 16}, dtype="float64")["id"], np.eye(n // 16, 16)
    yield c.create(shape=[size], dtype="uint8", random={"distribution": "integers", "seed": 1, "low": 0, "high": BYTE})["id"], None
    like = c.create(shape=[n], dtype="int64", name="made")
    yield c.create(like="made")["id"], np.zeros(n)
    yield like["id"], np.zeros(n)
    yield c.create(data=[1.] * 1024 if size == 8192 else [1], dtype="float64")["id"], np.ones(1024 if size == 8192 else 1)


def uploaded(c, size):
    body = bytes([1]) * size
    for path in (f"/v1/arrays?dtype=uint8&shape={size}", f"/v1/arrays?dtype=complex128&shape={size // 16}"):
        yield c.expect(201, c.request("POST", path, body, content_type=OCTETS)).json()["id"], np.ones(size, "u1")
    fortran = np.asfortranarray(np.ones((size // 64, 8)))
    yield c.upload(fortran)["id"], fortran
    cut_off(c, "POST", f"/v1/arrays?dtype=uint8&shape={size}&name=never", size)
    c.fails(404, "not_found", c.get("/v1/arrays/never"))
    m = c.create(shape=[size], dtype="uint8")
    cut_off(c, "PUT", f"/v1/arrays/{m['id']}/data", size)
    yield m["id"], np.zeros(size, "u1")
    m = c.create(shape=[size], dtype="uint8")
    cut_off(c, "PUT", f"/v1/arrays/{m['id']}/data?index={size // 4}:", size * 3 // 4)
    yield m["id"], np.zeros(size, "u1")


def evaluated(c, size):
    for dtype in DTYPES[c.kind]:
        n = size // (2 if dtype == "bfloat16" else np.dtype(dtype).itemsize)
        c.expect(201, c.post("/v1/arrays", {"name": "x", "shape": [n], "dtype": dtype, "fill": 1}))
        name = f"e_{dtype}"
        yield c.expect(201, c.post("/v1/evaluate", {"expr": "x & x" if dtype == "bool" else "x * x", "name": name})).json()["id"], \
            np.full(n, 0x3F80, "u2") if dtype == "bfloat16" else np.ones(n, dtype)
        c.expect(204, c.delete("/v1/arrays/x"))
    ones(c, size, "x")
    n = size // 8
    results = [("take(x, astype(x, 'int64'))", np.ones(n)), ("shift(x, [5], 'constant', 0)", np.r_[np.ones(n - 5), np.zeros(5)]),
               ("concat([x[1:], x[:1]])", np.ones(n)), ("cumulative_sum(x)", np.arange(1., n + 1)), ("flip(x)", np.ones(n)),
               ("tril(reshape(x, [-1, 16]))", np.tril(np.ones((n // 16, 16))))]
    for k, (expr, values) in enumerate(results[:2] if c.kind == "gpu" else results):
        yield c.expect(201, c.post("/v1/evaluate", {"expr": expr, "name": f"r{k}"})).json()["id"], values


def written(c, size):
    """Parts of arrays that are new memory as a whole, in evaluate and in programs."""
    n = size // 8
    half = np.r_[np.ones(n // 2), np.zeros(n - n // 2)]
    for k, index in enumerate([f":{n // 2}", f"{n // 2}:", "::2"]):
        m = c.create(shape=[n], dtype="float64", name=f"w{k}")
        c.expect(200, c.post("/v1/evaluate", {"expr": f"w{k}[::-1][{index}] + 1", "out": f"w{k}", "index": index}))
        want = np.zeros(n)
        want[slice(*(int(i) if i else None for i in index.split(":")))] = 1
        yield m["id"], want
    a, b = (c.create(shape=[n], dtype="float64", name=name)["id"] for name in "ab")
    c.expect(200, c.post("/v1/programs?wait=1", {"body": [f"a[:{n // 2}] = b[:{n // 2}] + 1", "t = a*2", "b[0] = t[0]*0"], "steps": 3}))
    yield a, half
    yield b, np.zeros(n)
    r = c.expect(200, c.post("/v1/programs?wait=1", {"body": [f"a[:{n // 2}] = a[:{n // 2}]*1"], "steps": 4, "snapshot": {"a": 2}})).json()
    for s in r["snapshots"]:
        yield s["id"], half
    r = c.expect(200, c.post("/v1/evaluate", {"statements": ["t = a*2", "a = t - a", f"b[:{n // 2}] = a[:{n // 2}]"], "results": ["t"]})).json()
    yield r["results"]["t"]["id"], 2 * half
    yield a, half
    yield b, half


def copied(c, size):
    """Deep copies, other shapes, views, padded arrays, whose memory has more in it than elements."""
    n = size // 8
    ones(c, size, "x")
    c.expect(201, c.post("/v1/arrays/x/copy", {"name": "y"}))
    c.expect(200, c.post("/v1/arrays/x/swap", {"with": "y"}))
    yield "x", np.ones(n)
    yield "y", np.ones(n)
    c.expect(201, c.post("/v1/arrays/x/views", {"index": "::-2", "name": "v"}))
    yield c.expect(201, c.post("/v1/arrays/v/copy", {})).json()["id"], np.ones(n // 2)
    yield "v", np.ones(n)
    c.create(shape=[5], dtype="float64", name="small")
    c.expect(200, c.post("/v1/arrays/small/resize", {"shape": [n]}))
    yield "small", np.zeros(n)
    yield c.create(shape=[n // 16 - 2, 14], dtype="float64", fill=1, name="g", **GHOSTS)["id"], None
    yield c.create(like="g")["id"], np.zeros(n)
    yield c.create(shape=[n // 16 - 4, 13], dtype="float64", fill=1, congruent_to="g")["id"], None
    yield c.expect(201, c.post("/v1/arrays/g/copy", {})).json()["id"], None
    for how in ({}, {"ghost": [1, 0], "boundary": ["periodic", "periodic"]}):
        yield c.create(data=np.ones((n // 16 - 2, 14)).tolist() if size < 100_000 else [[1.]], dtype="float64", **{**GHOSTS, **how})["id"], None
    g = c.expect(201, c.post("/v1/arrays", {"like": "g"})).json()["id"]
    c.expect(200, c.post("/v1/evaluate", {"expr": "g + 1", "out": g}))
    c.expect(200, c.post(f"/v1/arrays/{g}/fill_ghost"))
    yield g, None


def late(c, size):
    """What is given up before it was begun: its array is as it was, and where it was to be new there is none."""
    n = size // 8
    c.create(shape=[n], dtype="float64", name="kept")
    slow = c.create(shape=[300_000], dtype="float64", fill=3)["id"]
    for _ in range(6):
        c.expect(201, c.post("/v1/evaluate", {"expr": "lgamma(s + lgamma(s))", "bind": {"s": slow}}))
    give_up = {"headers": {"Prefer": "wait=0"}}
    r = c.post("/v1/evaluate", {"expr": "take(kept, astype(kept, 'int64'))", "name": "never"}, **give_up)
    assert r.status in (201, 504), r
    seen = r.status == 504
    r = c.post("/v1/evaluate", {"expr": "take(kept, astype(kept, 'int64')) + 0", "out": "kept"}, **give_up)
    assert r.status in (200, 504), r
    job = c.expect(202, c.post("/v1/programs", {"body": ["t = lgamma(s + lgamma(s))", "kept = kept + t[0]*0"], "bind": {"s": slow},
                                                "steps": 10 ** 6})).json()
    c.expect(200, c.delete(f"/v1/jobs/{job['id']}"))
    job = c.expect(200, c.get(f"/v1/jobs/{job['id']}?wait=1")).json()
    assert job["state"] == "cancelled"
    yield "kept", np.zeros(n)
    if seen:
        c.fails(404, "not_found", c.get("/v1/arrays/never"))
    c.expect(204, c.delete(f"/v1/jobs/{job['id']}"))


def moved(c, size):
    n = size // 8
    for k in range(2):
        m = ones(c, size, f"m{k}")
        c.expect(200, c.patch(f"/v1/arrays/{m['id']}", {"location": "host"}))
        if k:
            c.expect(200, c.patch(f"/v1/arrays/{m['id']}", {"location": "device"}))
        yield m["id"], np.ones(n)


WAYS = [created, uploaded, evaluated, written, copied, late, moved]
SLOW = {"cpu": [late], "gpu": [late, evaluated, written]}  # for one of the sizes


@pytest.mark.in_turn
def test_nothing_of_anothers(two):
    ann, bob = two
    for size in SIZES[bob.kind]:
        for way in WAYS:
            if way in SLOW[bob.kind] and size != 80_000:
                continue
            leave_pattern(ann, size)
            for ref, values in way(bob, size):
                look(bob, ref, values)
                leave_pattern(ann, size, 2)
            for a in bob.list_all("/v1/arrays", "arrays"):
                bob.expect(204, bob.delete(f"/v1/arrays/{a['id']}"))


def test_the_pattern_would_be_found(two):
    """In Ann's own."""
    ann, _ = two
    m = ann.expect(201, ann.request("POST", "/v1/arrays?dtype=uint8&shape=80000", bytes([BYTE]) * 80_000, content_type=OCTETS)).json()
    with pytest.raises(AssertionError, match="another's byte at 0 "):
        look(ann, m["id"])
