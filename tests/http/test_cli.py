"""arrayd-cli against a live daemon: put, get, ls, rm, info, eval, and what goes wrong."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from cli import SOURCE, Terminal, cli, environment
from client import npy_bytes
from test_tls import make_certificate

from arrayd._bar import human  # noqa: E402  (cli.py has made it findable)
from arrayd._dtypes import BY_NAME  # noqa: E402
from arrayd._numbers import DTYPES  # noqa: E402
from arrayd.cli._streams import Output, itemsize  # noqa: E402
from arrayd.cli._values import pointed  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the client that is tested here


@pytest.fixture
def run(daemon, api):  # api: what is left behind is seen
    return cli(daemon)


def ok(done):
    assert done.status == 0, done
    return done


def fails(done, status, text):
    assert done.status == status and text in done.err and not done.out, done
    assert "Traceback" not in done.err
    return done.err


# --- files ---


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "complex128", ">f8", ">i4"])
def test_there_and_back(run, tmp_path, dtype):
    a = (np.random.default_rng(1).random((5, 7, 3)) * 3).astype(dtype)
    for k, given in enumerate([a, np.asfortranarray(a), a[:0], a[2, 3, 1]]):
        np.save(tmp_path / "field.npy", given)
        assert ok(run("put", tmp_path / "field.npy")).out == "field\n"
        done = ok(run("get", "field", tmp_path / "back.npy"))
        assert not done.out and done.err == f"{tmp_path}/back.npy: {human(os.stat(tmp_path / 'back.npy').st_size)}\n"
        back = np.load(tmp_path / "back.npy")
        assert back.dtype == np.dtype(dtype).newbyteorder("=") and back.shape == given.shape and np.array_equal(back, given), k
    assert ok(run("-q", "get", "field", tmp_path / "back.npy")).err == ""


def test_names_and_places(run, tmp_path, api, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a = np.arange(12.0).reshape(3, 4)
    np.save("u.npy", a)
    np.save("2d field.npy", a)
    assert ok(run("put", "u.npy", "v")).out == "v\n"
    fails(run("put", "2d field.npy"), 2, "give it one, as in put 2d field.npy NAME")
    fails(run("put", "u.npy", "v", "--no-clobber"), 1, "v")
    before = api.meta("v")["id"]
    ok(run("put", "u.npy", "v"))
    assert api.meta("v")["id"] != before
    unnamed = ok(run("put", "u.npy", "--unnamed")).out.strip()
    assert re.fullmatch(r"a-\w{22}", unnamed)
    assert ok(run("put", "-", stdin=npy_bytes(a))).out.startswith("a-")
    assert ok(run("put", "-", "w", stdin=npy_bytes(a) + b"more")).out == "w\n"
    assert json.loads(ok(run("put", "u.npy", "--json")).out)["shape"] == [3, 4]
    ok(run("get", "v"))
    np.testing.assert_array_equal(np.load("v.npy"), a)
    ok(run("get", unnamed, "--slice", "[1:, ::2]"))
    np.testing.assert_array_equal(np.load(f"{unnamed}.npy"), a[1:, ::2])
    assert ok(run("get", "v", "-", "--raw")).data == a.tobytes()
    np.save("row.npy", np.full(4, -1.0))
    assert ok(run("put", "row.npy", "v", "--slice", "[1]")).out == "v\n"
    (tmp_path / "bytes").write_bytes(np.array([[7.0], [8.0]]).tobytes())
    ok(run("put", "bytes", "v", "--slice", "::2, 3:", "--raw"))
    want = a.copy()
    want[1], want[::2, 3] = -1, [7, 8]
    np.testing.assert_array_equal(api.download("v"), want)
    ok(run("put", "bytes", "raw", "--raw", "--dtype", "float32", "--shape", "(2, 2)"))
    assert api.download("raw").tobytes() == (tmp_path / "bytes").read_bytes()
    brain = np.array([0x3f80, 0x4000], "<u2").view("V2")
    np.save("brain.npy", brain)
    ok(run("put", "brain.npy", "--dtype", "bfloat16"))
    assert ok(run("eval", "brain")).out == "[1. 2.]\n"
    ok(run("get", "brain", "again.npy"))
    assert np.load("again.npy").tobytes() == brain.tobytes()
    # an existing file keeps its mode, a link its place; what is no file is written to as it is
    os.chmod("v.npy", 0o640)
    os.symlink("v.npy", "link.npy")
    ok(run("get", "w", "link.npy"))
    assert os.path.islink("link.npy") and os.stat("v.npy").st_mode & 0o777 == 0o640
    np.testing.assert_array_equal(np.load("v.npy"), a)
    ok(run("get", "w", "/dev/null"))
    fails(run("get", "w", "/dev/full"), 1, "/dev/full: No space left on device")
    fails(run("get", "w", "nowhere/w.npy"), 1, "No such file or directory")
    fails(run("get", "w", "."), 1, "Is a directory")
    assert not [f for f in os.listdir() if f.endswith(".part")]


@pytest.mark.parametrize("data, said", [
    (b"", "is not an .npy file: it is empty"), (b"\x93NUM", "it ends in its head"),
    (b"PK\x03\x04" * 10, "is not an .npy file, and other formats are not supported; --raw"),
    (b"\x93NUMPY\x09\x00" + b" " * 20, "of a known version"),
    (b"\x93NUMPY\x01\x00\x10\x00{'descr': None,}", "its head cannot be read"),
    (npy_bytes(np.arange(9.0))[:-8], "is cut off: 72 bytes of data are expected, it has 64")])
def test_files_that_are_none(run, tmp_path, data, said):
    (tmp_path / "bad.npy").write_bytes(data)
    fails(run("put", tmp_path / "bad.npy"), 1, said)
    assert ok(run("ls")).out == ""


@pytest.mark.parametrize("name", ["s.dat", "s.txt", "a b.jpg"])
def test_formats_that_are_not_supported(run, tmp_path, name):
    """What is supported is said, not what is wrong with the name that the array would have."""
    (tmp_path / name).write_bytes(b"1,2\n3,4\n")
    suffix = name[name.rindex("."):]
    fails(run("put", tmp_path / name), 2, f"the suffix {suffix} is not supported: put takes .npy, .npz, .nc, .h5 and .csv files and, with --raw")
    fails(run("put", tmp_path / name, "s"), 1, "other formats are not supported")
    np.save(tmp_path / "s.npy", np.arange(3.0))
    (tmp_path / "s.npy").rename(tmp_path / name)
    assert ok(run("put", tmp_path / name, "s")).out == "s\n"
    os.remove(tmp_path / name)
    fails(run("get", "s", tmp_path / name), 2, f"the suffix {suffix} is not supported: get writes .npy, .npz, .nc, .h5, .csv and .png files")
    assert not (tmp_path / name).exists()


def test_results_are_npy_files(run, tmp_path):
    for name in ("e.png", "e.CSV", "e.npz"):
        fails(run("eval", "ones(3)", "-o", tmp_path / name), 2, f"{name}: .npy files are written here; `get` writes .npy, .npz, .nc, .h5, .csv and .png files")
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize("text, want", [
    ("1,2\n3,4\n", np.array([[1, 2], [3, 4]])), ("# x, y\n1.5,nan\n\n-inf,2e3\n", np.array([[1.5, np.nan], [-np.inf, 2000]])),
    ("7\n9223372036854775807\n", np.array([7, 2**63 - 1])), ("0.1\n", np.array([0.1]))])
def test_numbers_as_text(run, tmp_path, text, want):
    (tmp_path / "c.csv").write_text(text)
    assert ok(run("put", tmp_path / "c.csv")).out == "c\n"
    ok(run("get", "c", tmp_path / "back.npy"))
    got = np.load(tmp_path / "back.npy")
    assert got.dtype == want.dtype and np.array_equal(got, want, equal_nan=want.dtype.kind == "f")
    ok(run("get", "c", tmp_path / "again.csv"))
    assert np.array_equal(np.loadtxt(tmp_path / "again.csv", delimiter=",", ndmin=want.ndim, dtype=want.dtype), want, equal_nan=want.dtype.kind == "f")
    if want.ndim == 2:
        ok(run("put", tmp_path / "c.csv", "c", "--slice", "[:, ::-1]"))
        ok(run("get", "c", tmp_path / "back.npy"))
        assert np.array_equal(np.load(tmp_path / "back.npy"), want[:, ::-1], equal_nan=want.dtype.kind == "f")


@pytest.mark.parametrize("text, said", [("", "is empty"), ("1,2\n3\n", "row 2 has 1 numbers, those before it 2"), ("1,x\n", "numbers alone")])
def test_text_that_is_not_numbers(run, tmp_path, text, said):
    (tmp_path / "c.csv").write_text(text)
    fails(run("put", tmp_path / "c.csv"), 1, said)
    assert ok(run("ls")).out == ""


def test_several_in_one_file(run, tmp_path):
    a, b = np.arange(6.0).reshape(2, 3), np.array([1, 2, 3], "int16")
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "both.npz", a=a, b=b)
        assert ok(run("put", tmp_path / "both.npz")).out == "a\nb\n"
        for name, want in (("a", a), ("b", b)):
            ok(run("get", name, tmp_path / "x.npy"))
            got = np.load(tmp_path / "x.npy")
            assert got.dtype == want.dtype and np.array_equal(got, want)
    fails(run("put", tmp_path / "both.npz", "--unnamed"), 2, "names of its own")
    (tmp_path / "none.npz").write_bytes(b"PK\x03\x04" * 9)
    fails(run("put", tmp_path / "none.npz"), 1, "is not an .npz file")
    np.savez(tmp_path / "one.npz", a)
    assert ok(run("put", tmp_path / "one.npz", "mine")).out == "mine\n"


def test_pickles_are_not_sent(run, tmp_path):
    np.save(tmp_path / "o.npy", np.array([{}, 1], object), allow_pickle=True)
    fails(run("put", tmp_path / "o.npy"), 1, "holds pickled Python objects")
    fails(run("put", tmp_path / "none.npy"), 1, "No such file")


def test_memory_is_that_of_a_block(daemon, api, tmp_path):
    """Of an array of 96 MiB, up and down: no more than some blocks of it are ever in memory."""
    n = 96 << 20
    with open(tmp_path / "large.npy", "wb") as f:
        np.lib.format.write_array_header_1_0(f, {"descr": "|u1", "fortran_order": False, "shape": (n,)})
        f.truncate(f.tell() + n)
    text = """if 1:
        import resource, sys
        from arrayd.cli import main
        def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert main(["ls"]) == 0
        before = most()
        assert main(["put", sys.argv[1], "large"]) == 0
        assert main(["get", "large", sys.argv[2]]) == 0
        print(most() - before)"""
    done = subprocess.run([sys.executable, "-c", text, tmp_path / "large.npy", tmp_path / "back.npy"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(SOURCE), "ARRAYD_URL": f"http://127.0.0.1:{daemon.port}"}, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 24 << 10, done.stdout  # KiB
    assert os.stat(tmp_path / "back.npy").st_size == os.stat(tmp_path / "large.npy").st_size


def test_what_breaks_off_leaves_nothing_behind(run, tmp_path):
    """The daemon that goes away in the middle; and the user who does."""
    server = socket.create_server(("127.0.0.1", 0))
    stall = threading.Event()

    def serve():
        for k in range(2):
            c, _ = server.accept()
            c.recv(65536)
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000)
            if k == 1:
                stall.wait(30)
            c.close()

    thread = threading.Thread(target=serve)
    thread.start()
    url = f"http://127.0.0.1:{server.getsockname()[1]}"
    target = tmp_path / "u.npy"
    target.write_bytes(b"before")
    fails(cli(url)("get", "u", target), 1, "after 1000 of 1000000 bytes")
    assert os.listdir(tmp_path) == ["u.npy"] and target.read_bytes() == b"before"
    p = subprocess.Popen(["arrayd-cli", "get", "u", str(target)], env=environment(tmp_path / "bin", url), stderr=subprocess.PIPE)
    while not [f for f in os.listdir(tmp_path) if f.endswith(".part")]:
        assert p.poll() is None
        time.sleep(0.01)
    p.send_signal(signal.SIGTERM)
    assert p.wait(20) == 143 and p.stderr.read() == b""
    stall.set()
    thread.join()
    server.close()
    assert sorted(os.listdir(tmp_path)) == ["bin", "u.npy"] and target.read_bytes() == b"before"


def test_a_signal_while_a_file_is_made(tmp_path, monkeypatch):
    """It may come when the file is there and nobody has it yet."""
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "chmod", interrupted)
    with pytest.raises(KeyboardInterrupt):
        with Output(str(tmp_path / "u.npy")):
            pass
    assert os.listdir(tmp_path) == []


def test_an_upload_that_is_refused_or_cut_off(daemon_with, tmp_path):
    d = daemon_with("--memory-limit", "1MiB")
    run = cli(d)
    a = np.zeros(4 << 20)
    np.save(tmp_path / "large.npy", a)
    fails(run("put", tmp_path / "large.npy"), 1, "memory")  # the reply's reason, not that the connection broke
    data = npy_bytes(np.arange(50000.0))
    ok(run("put", "-", "u", stdin=data))
    fails(run("put", "-", "u", stdin=npy_bytes(np.zeros(50000))[:-1000]), 1, "standard input ends 1000 bytes before")
    assert run("eval", "u[-1]").out == "49999.0\n"


# --- lists ---


def test_lists(run, api, monkeypatch):
    assert ok(run("ls")).out == "" and ok(run("ls", "-l")).out == "" and json.loads(run("ls", "--json").out) == []
    api.create(name="beta", shape=[2, 3], dtype="float32")
    api.create(name="alpha", shape=[1000])
    id_ = api.create(shape=[], dtype="int64")["id"]
    api.post("/v1/arrays/alpha/views", {"index": "2:", "name": "tail"})
    api.patch("/v1/arrays/beta", {"read_only": True})
    assert ok(run("ls")).out.split() == ["beta", "alpha", id_, "tail"]
    assert ok(run("ls", "--sort", "name")).out.split() == ["alpha", "beta", "tail", id_]
    assert ok(run("ls", "--sort", "size", "[a-b]*")).out.split() == ["alpha", "beta"]
    rows = [line.split() for line in ok(run("ls", "-l")).out.splitlines()]
    assert rows[0][:4] == ["NAME", "DTYPE", "SHAPE", "SIZE"]
    assert rows[1][:5] == ["beta", "float32", "2×3", "24", "B"] and rows[1][-1] == "read-only"
    assert rows[2][:5] == ["alpha", "float64", "1000", "7.8", "KiB"]
    assert rows[3][:3] == [id_, "int64", "()"] and rows[4][-3:-1] == ["view", "of"]
    assert [m["name"] for m in json.loads(ok(run("ls", "--json")).out)] == ["beta", "alpha", None, "tail"]
    done = run("ls", "alpha", "z*")
    assert (done.status, done.out, done.err) == (1, "alpha\n", "arrayd-cli: no array is called z*\n")
    assert "float32" in ok(run("info", "beta")).out and "read only   yes" in run("info", "beta").out
    assert [m["id"] for m in json.loads(run("info", "beta", id_, "--json").out)] == [api.meta("beta")["id"], id_]
    fails(run("info", "nobody"), 1, "nobody")
    api.patch("/v1/arrays/alpha", {"dims": ["é"], "units": "m\u202e s-1 µ", "attrs": {"title": "\x1b[31m", "n": [1.5], "name": "température 'm'", "of": ["é\u202e"]}, "coords": {"é": "alpha"}})
    text = ok(run("info", "alpha")).out
    assert re.search(r"^dims +é$", text, re.M) and re.search(r"^units +m\\u202e s-1 µ$", text, re.M) and "\x1b" not in text
    assert re.search(r"^attrs\n  title +\\x1b\[31m\n  n +\[1.5\]\n  name +température 'm'\n  of +\[.é\\u202e.\]\ncoords\n  é +a-\w+ \(é\)$", text, re.M)
    api.patch("/v1/arrays/beta", {"read_only": False})
    done = run("rm", "tail", "nobody", "beta")
    assert done.status == 1 and done.err == "arrayd-cli: nobody: there is no array 'nobody'\n"
    assert ok(run("ls")).out.split() == ["alpha", id_]
    assert ok(run("rm", "-f", "nobody")).err == ""
    monkeypatch.setattr("arrayd.cli._context.PAGE", 2)
    for k in range(4):
        api.create(name=f"n{k}", shape=[1])
    assert ok(run("ls")).out.split() == ["alpha", id_, "n0", "n1", "n2", "n3"]


def test_rm_unnamed(run, api):
    """Coordinates are somebody's, though they have no name."""
    axis = api.create(shape=[3])["id"]
    api.create(name="field", shape=[3], dims=["x"], coords={"x": axis})
    lone = [api.create(shape=[128], dtype="float64")["id"] for _ in range(3)]
    assert ok(run("rm", "--unnamed")).out == "3 arrays have no name, 3.0 KiB; --yes deletes what has none\n"
    assert ok(run("ls")).out.split() == [axis, "field", *lone]
    done = ok(run("rm", "--unnamed", "--yes"))
    assert (done.out, done.err) == ("", "3 deleted, 3.0 KiB\n")
    assert ok(run("ls")).out.split() == [axis, "field"]
    assert ok(run("rm", "--unnamed")).out == "0 arrays have no name, 0 B\n"


def test_rm_unnamed_of_some(run, api):
    """What cannot be deleted does not keep the others; a job's snapshots are its own."""
    first, leased, last = (api.create(shape=[128], dtype="float64")["id"] for _ in range(3))
    lease = api.post(f"/v1/arrays/{leased}/lease", {"mode": "read"}).json()["token"]
    api.create(name="u", shape=[2], dtype="float64")
    job = api.post("/v1/programs?wait=1", {"body": ["u += 1"], "steps": 4, "snapshot": {"u": 2}}).json()
    copies = [s["id"] for s in job["snapshots"]]
    assert len(copies) == 2 and ok(run("rm", "--unnamed")).out == "3 arrays have no name, 3.0 KiB; --yes deletes what has none\n"
    done = run("rm", "--unnamed", "--yes")
    assert (done.status, done.out) == (1, "") and re.fullmatch(f"arrayd-cli: {leased}: .*lease.*\n2 deleted, 2.0 KiB\n", done.err)
    assert ok(run("ls")).out.split() == [leased, "u", *copies]
    api.delete(f"/v1/arrays/{leased}/lease", headers={"Arrayd-Lease": lease})
    assert ok(run("rm", "--unnamed", "--yes")).err == "1 deleted, 1.0 KiB\n"
    api.delete(f"/v1/jobs/{job['id']}")
    assert ok(run("rm", "--unnamed", "--yes")).err == "2 deleted, 32 B\n"


def test_info(run, api):
    text = ok(run("info")).out
    assert re.search(r"^daemon +arrayd \S+ at http://127", text, re.M) and re.search(r"^you +local \(operator, weight 1\)$", text, re.M)
    assert json.loads(ok(run("info", "--json")).out).keys() == api.info().keys()
    more = ok(run("info", "--all")).out
    assert "max_jobs" in more and "laplacian" in more and "laplacian" not in text


# --- expressions ---


def test_most_commands_do_without_numpy(run, api):
    """Which takes longer to load than they take: the package loads what it has when it is first used."""
    text = """if 1:
        import sys
        import arrayd
        from arrayd.cli import main
        assert main(["--url", sys.argv[1], "ls"]) == 0 == main(["--url", sys.argv[1], "eval", "1 + 1"]) and "numpy" not in sys.modules
        assert {"Array", "connect"} <= set(dir(arrayd)) and all(getattr(arrayd, name) for name in arrayd.__all__)
        from arrayd import *
        assert Client is arrayd._client.Client and not hasattr(arrayd, "nothing")"""
    url = f"http://127.0.0.1:{api.port}"
    done = subprocess.run([sys.executable, "-c", text, url], env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
    assert set(DTYPES) == set(BY_NAME) and all(itemsize(d) == BY_NAME[d].itemsize for d in DTYPES)


@pytest.mark.in_turn
def test_values(run, api, tmp_path):
    a = np.random.default_rng(2).random((4, 5))
    np.save(tmp_path / "a.npy", a)
    ok(run("put", tmp_path / "a.npy", "u"))
    assert float(ok(run("eval", "mean(u)")).out) == pytest.approx(a.mean(), rel=1e-14)
    for expr, out in (("9007199254740993 + 0", "9007199254740993"), ("sqrt(-1 + 0j)", "1j"), ("1 < 2", "True"), ("nan + 0", "nan"),
                      ("0 - inf", "-inf"), ("(1 + 2j)*k", "3+6j")):
        assert ok(run("eval", expr, "--bind", "k=3")).out == out + "\n"
    np.testing.assert_array_equal(_numbers(ok(run("eval", "u*2", "--full")).out), a * 2)
    for value, want in (("2", a + 2), ("2.5e-1", a + 0.25), ("true", a + 1), ("u", a + a), (f"{tmp_path}/a.npy", a + a)):
        np.testing.assert_array_equal(_numbers(ok(run("eval", "u + k", "-b", f"k={value}", "--full")).out), want, err_msg=value)
    np.testing.assert_array_equal(_numbers(ok(run("eval", "x[0] + k", "-b", "x=-", "-b", "k=1", "--full", stdin=npy_bytes(a))).out), a[0] + 1)
    assert ok(run("eval", "k + 0", "-b", "k=9007199254740993")).out == "9007199254740993\n"
    assert ok(run("eval", "-", stdin=b"sum(u > 2)\n")).out == "0\n"
    assert ok(run("eval", "m + d", "--let", "m=max(u)", "--let", "d=m*0 - m")).out == "0.0\n"
    done = ok(run("eval", "broadcast_to(sum(u[0, 0])*0 + 1.5, [200, 300])"))
    assert done.out.count("...") and done.out.count("1.5") == 36 and "(200, 300)" in done.err
    assert json.loads(ok(run("eval", "u > 0.5", "--json")).out) == {"dtype": "bool", "shape": [4, 5], "data": (a > 0.5).tolist()}
    assert json.loads(ok(run("eval", "sum(u*0)", "--json")).out) == {"dtype": "float64", "shape": [], "value": 0.0}
    assert ok(run("ls")).out == "u\n"  # what was bound, and results without a name, are gone
    assert ok(run("eval", "u*3", "--name", "t", "--dtype", "float32")).out == "t\n"
    assert api.download("t").dtype == np.float32
    assert ok(run("eval", "7", "--out", "t", "--index", "[1:, 0]")).out == "t\n"
    np.testing.assert_array_equal(api.download("t")[1:, 0], [7, 7, 7])
    assert json.loads(ok(run("eval", "u", "--out", "t", "--json")).out)["name"] == "t"
    ok(run("eval", "u - 1", "-o", tmp_path / "r.npy"))
    np.testing.assert_array_equal(np.load(tmp_path / "r.npy"), a - 1)
    assert ok(run("eval", "u - 1", "-o", "-")).data == (tmp_path / "r.npy").read_bytes()
    fails(run("eval", "nobody", "-o", tmp_path / "n.npy"), 1, "nobody\n    ^")
    assert not (tmp_path / "n.npy").exists()


def _numbers(text):
    """Of what eval prints."""
    return np.array(json.loads(re.sub(r"\s+", ",", re.sub(r"\s*\]", "]", text.strip())).replace("[,", "[").replace(".]", ".0]").replace(".,", ".0,")))


def test_mistakes_are_pointed_at(run, tmp_path):
    assert fails(run("eval", "1 + nobody*2"), 1, "nobody").splitlines()[1:] == ["    1 + nobody*2", "        ^"]
    assert fails(run("eval", "m", "--let", "m=sum(who)"), 1, "--let m: ").splitlines()[1:] == ["    sum(who)", "        ^"]
    assert fails(run("eval", "é + 1"), 1, "").splitlines()[1:] == ["    é + 1", "    ^"]
    fails(run("eval", "a", "--bind", "a=nobody"), 1, "--bind a=nobody: there is no array 'nobody'")
    fails(run("eval", "a", "--bind", "a=x y"), 2, "neither a number nor an array nor a .npy file")
    fails(run("eval", "a", "--bind", f"a={tmp_path}/no.npy"), 1, "No such file")


@pytest.mark.parametrize("text, offset, lines", [
    ("a + b", 4, ["    a + b", "        ^"]),
    ("a +\n\tbad*2\n+ c", 5, ["     bad*2", "     ^"]),
    ("漢字 + x", 5, ["    漢字 + x", "           ^"]),
    ("ab", 2, ["    ab", "      ^"]),
    ("ab", None, ["    ab"])])
def test_carets(text, offset, lines):
    assert pointed(text, offset) == lines


@pytest.mark.parametrize("at", [0, 30, 500, 990, 999])
def test_carets_in_long_lines(at, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = "".join(chr(97 + k % 26) for k in range(at)) + "!" + "".join(chr(97 + k % 26) for k in range(999 - at))
    line, caret = pointed(text, at)
    assert len(line) <= 60 and line[caret.index("^")] == "!"


# --- the daemon, and what one ends with ---


def test_statuses(run, daemon, api, tmp_path):
    for words in (["eval"], ["nothing"], [], ["get", "a b"], ["eval", "1", "--bind", "a"], ["eval", "1", "--name", "a", "--out", "b"],
                  ["put", "x.npy", "--shape", "3"], ["eval", "1", "--index", "0"], ["top", "--count", "0"], ["ls", "--time", "1"]):
        done = run(*words)
        assert done.status == 2 and done.err and not done.out, (words, done)
    assert run("--help").status == 0 and "Exit status" in run("--help").out and run("--version").out.startswith("arrayd-cli ")
    assert all(run(c, "--help").status == 0 for c in ("put", "get", "show", "eval", "ls", "rm", "info", "run", "top", "completion"))
    fails(cli("http://127.0.0.1:1")("ls"), 1, "cannot connect to http://127.0.0.1:1")
    fails(cli("ftp://x")("ls"), 2, "ftp://x")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        fails(cli(address)("ls", "--timeout", "0.05"), 1, f"{address} has not answered for 50 ms")
    env = environment(tmp_path / "bin", f"http://127.0.0.1:{daemon.port}")
    api.create(name="many", shape=[60000])
    done = subprocess.run(["bash", "-c", "set -o pipefail; arrayd-cli eval many --full | head -n 1; echo ${PIPESTATUS[0]}"], env=env,
                          capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("\n141\n") and done.stderr == "", done
    t = Terminal(["arrayd-cli", "get", "many", "-"], env)  # bytes are not for terminals
    status, seen = t.end()
    assert status == 2 and "standard output is a terminal" in seen


def test_over_tls(daemon_with, tmp_path, monkeypatch):
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make certificates")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    cert, key = make_certificate(tmp_path, "cert")
    run = cli(f"https://127.0.0.1:{daemon_with('--tls-cert', cert, '--tls-key', key).port}")
    np.save(tmp_path / "u.npy", np.arange(300000.0))
    ok(run("--cacert", cert, "put", tmp_path / "u.npy"))
    assert ok(run("get", "u", "-", "--cacert", cert)).data == (tmp_path / "u.npy").read_bytes()
    fails(run("ls"), 1, "certificate verify failed")
    fails(run("ls", "--cacert", key), 1, str(key))
    fails(run("ls", "--cacert", tmp_path / "none"), 1, "No such file")


def test_who_one_is(accounts, daemon_with, tmp_path, monkeypatch):
    accounts.add("ann")
    d = daemon_with("--accounts", accounts.path, "--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s.sock")
    run, token = cli(d), accounts.token["ann"]
    for name in ("ARRAYD_TOKEN", "ARRAYD_TOKEN_FILE", "ARRAYD_URL", "ARRAYD_SESSION"):
        monkeypatch.delenv(name, raising=False)
    assert "set ARRAYD_TOKEN" in fails(run("ls"), 1, "")
    assert "does not know this token" in fails(run("ls", "--token", "A" * 43), 1, "")
    file = tmp_path / "token"
    file.write_text(token + "\n")
    assert re.search(r"you +ann \(user", ok(run("info", "--token-file", file)).out)
    assert re.search(r"you +ann \(user", ok(run("--token-file", file, "info")).out)
    monkeypatch.setenv("ARRAYD_TOKEN_FILE", str(file))
    ok(run("ls"))
    monkeypatch.setenv("ARRAYD_TOKEN", "wrong")  # said outright, it comes before a file that the environment names
    fails(run("ls"), 1, "does not know")
    ok(run("ls", "--token", token))
    monkeypatch.setenv("ARRAYD_TOKEN", token)
    ok(run("ls"))
    ok(cli("http://127.0.0.1:1")("ls", "--socket", tmp_path / "s.sock"))
    file.write_text("two words")
    fails(run("ls", "--token-file", file), 1, "no token in")
    fails(run("ls", "--token-file", tmp_path / "nothing"), 1, "No such file")
    c = accounts.client(d, "ann")
    s = c.post("/v1/sessions", {}).json()["id"]
    np.save(tmp_path / "u.npy", np.arange(3))
    ok(run("--session", s, "put", tmp_path / "u.npy"))
    assert ok(run("ls")).out == "" and ok(run("ls", "--session", s)).out == "u\n"
    monkeypatch.setenv("ARRAYD_SESSION", s)
    assert ok(run("ls")).out == "u\n"
    c.close()
