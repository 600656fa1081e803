"""A reader that lies, hangs, dies or floods at any moment: a clear error, nothing left, and the daemon goes on."""
import json
import os
import signal
import time

import numpy as np
import pytest

from conftest import Daemon, until
from stand_in import descriptors, exported, imported, no_reader, options, write

A = np.arange(40_000.)
READ = ["ready", "describe", "read", "slab", "done"]
WRITE = ["ready", "write", "free", "done"]
DEEDS = ["die", "kill", "hang", "flood", "close", "garbage"]


def one_for_all(tmp_path_factory, *args):
    """A daemon for many lies; afterwards it has as many descriptors as before, and no reader."""
    folder = tmp_path_factory.mktemp("lies")
    d = Daemon(*map(str, options(folder, "--file-slab", "64KiB", *args)))
    c = d.client()
    write(folder / "good.nc", {"a": A})
    c.upload(A, "kept")
    c.expect(200, c.get("/v1/files/data"))
    before = descriptors(d)
    yield d, c, folder
    until(lambda: no_reader(d) and descriptors(d) <= before)
    if not args:
        imported(c, "good.nc", variables=[{"name": "again"}])
    d.stop()


@pytest.fixture(scope="module")
def lied_to(tmp_path_factory):
    yield from one_for_all(tmp_path_factory)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """One that waits for no more than a moment: whether a reader hangs or is only slow."""
    yield from one_for_all(tmp_path_factory, "--file-timeout", "1")


def nothing_is_left(d, c, folder, names):
    until(lambda: no_reader(d))
    assert [a["name"] for a in c.expect(200, c.get("/v1/arrays")).json()["arrays"]] == ["kept"]
    assert sorted(p.name for p in folder.iterdir()) == sorted(names)


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("at", READ)
def test_imports(request, at, deed):
    d, c, folder = request.getfixturevalue("hasty" if deed == "hang" else "lied_to")
    write(folder / "lie.nc", {"a": A}, lie={"at": at, "nth": 2 if at == "slab" else 1, "deed": deed})
    error = imported(c, "lie.nc", "failed")["error"]
    assert error["code"] == "file_reader_failed" and "arrayd-file" in error["detail"], error
    if deed == "kill":
        assert "killed" in error["detail"]
    if at in ("ready", "describe") and deed != "hang":
        c.fails(500, "file_reader_failed", c.get("/v1/files/data?path=lie.nc"))
    nothing_is_left(d, c, folder, ["good.nc", "lie.nc"])


@pytest.mark.parametrize("at", WRITE[1:])
def test_a_crash_while_writing(lied_to, at):
    """The library's, as the program tells it: there is no file yet that could be bad."""
    _, c, _ = lied_to
    text = json.dumps({"error": {"code": "bad_file", "detail": "the library of this format crashed on the file"}})
    error = exported(c, "crash.nc", ["kept"], "failed", attrs={"lie": json.dumps({"at": at, "deed": "tell", "text": text})})["error"]
    assert error["code"] == "file_reader_failed" and error["status"] == 500 and "crashed" in error["detail"], error


@pytest.mark.in_turn
@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("at", WRITE)
def test_exports(request, at, deed):
    d, c, folder = request.getfixturevalue("hasty" if deed == "hang" else "lied_to")
    (folder / "lie.nc").unlink(missing_ok=True)
    lie = {"at": at, "nth": 2 if at == "free" else 1, "deed": deed}
    if at == "ready":  # before it has been told
        lie, at = {"at": "write", "deed": deed}, "write"
    error = exported(c, "out.nc", ["kept"], "failed", attrs={"lie": json.dumps(lie)})["error"]
    assert error["code"] == "file_reader_failed", error
    nothing_is_left(d, c, folder, ["good.nc"])
    (folder / "out.nc").write_text("old")
    exported(c, "out.nc", ["kept"], "failed", attrs={"lie": json.dumps(lie)}, overwrite=True)
    assert (folder / "out.nc").read_text() == "old"
    (folder / "out.nc").unlink()


TOO_MUCH = "x" * 1000
LIES = [  # (moment, members that replace the line's own)
    ("ready", {"ready": False}), ("ready", {"ready": 1}), ("ready", {"ready": None}),
    ("describe", {"format": 1}), ("describe", {"variables": {}}), ("describe", {"variables": [1]}), ("describe", {"variables": [{"name": "a"}]}),
    ("describe", {"dims": []}), ("describe", {"dims": {"x": {"length": -1}}}), ("describe", {"attrs": [1]}), ("describe", {"attrs": {"a": {"b": 1}}}),
    ("describe", {"variables": [{"name": "a", "dtype": "float99", "shape": [1]}]}), ("describe", {"variables": [{"name": "a", "dtype": "int8", "shape": [-1]}]}),
    ("describe", {"variables": [{"name": "a", "dtype": "int8", "shape": [1] * 33}]}), ("describe", {"variables": [{"name": 1, "dtype": "int8", "shape": []}]}),
    ("describe", {"variables": [{"name": "a", "dtype": "int8", "shape": [1], "dims": ["x", "y"]}]}),
    ("describe", {"variables": [{"name": "a", "dtype": "int8", "shape": [1], "dims": [1]}]}),
    ("describe", {"variables": [{"name": "a", "dtype": "int8", "shape": [1], "chunks": "no"}]}),
    ("describe", {"variables": [{"name": "a", "dtype": "int8", "shape": [1], "filters": [1]}]}),
    ("describe", {"variables": [{"name": "a", "dtype": "int8", "shape": [1], "decoded": {"dtype": "no"}}]}),
    ("read", {"dtype": "float32"}), ("read", {"dtype": 1}), ("read", {"shape": [39999]}), ("read", {"shape": [40001]}), ("read", {"shape": None}),
    ("read", {"shape": [2 ** 40] * 3}),
    ("slab", {"slab": -1}), ("slab", {"slab": 4}), ("slab", {"slab": 2 ** 63}), ("slab", {"slab": "0"}), ("slab", {"slab": 0.5}), ("slab", {"bytes": 0}), ("slab", {"bytes": -1}),
    ("slab", {"bytes": 65537}), ("slab", {"bytes": 2 ** 63}), ("slab", {"done": True}), ("done", {"done": False}), ("done", {"done": "true"}), ("slab", {"bytes": 8}), ("done", {"slab": 0, "bytes": 8, "done": None}),
    ("slab", {"error": 1}), ("slab", {"error": {"code": "no such code", "detail": "x"}}), ("slab", {"error": {"code": "bad_file"}}),
]


@pytest.mark.parametrize("at, members", LIES, ids=str)
def test_answers_that_are_wrong(lied_to, at, members):
    d, c, folder = lied_to
    write(folder / "lie.nc", {"a": A}, lie={"at": at, "deed": "change", "members": members})
    assert imported(c, "lie.nc", "failed", variables=[{"name": "b"}])["error"]["code"] == "file_reader_failed"
    nothing_is_left(d, c, folder, ["good.nc", "lie.nc"])


def described(**members):
    return {"at": "describe", "deed": "change", "members": {"variables": [{"name": "a", "dtype": "float64", "shape": [40_000], **members}]}}


@pytest.mark.parametrize("index, at", [("", 0), ("7:", 56), ("3:39999", 24), ("5", 40)])
def test_what_lies_in_the_file_is_taken_from_there(lied_to, index, at):
    """Whatever the reader does then; a byte that is not the first one is a byte of the user's own file."""
    d, c, folder = lied_to
    write(folder / "lie.nc", {"a": A}, lie=described(at=100))
    place = np.s_[:] if not index else eval(f"np.s_[{index}]")
    imported(c, "lie.nc", variables=[{"name": "b", "index": index}])
    assert c.expect(200, c.get("/v1/arrays/b/data")).body == (folder / "lie.nc").read_bytes()[100 + at:][:A[place].nbytes]
    c.expect(204, c.delete("/v1/arrays/b"))


@pytest.mark.parametrize("at, code", [(0, "file_reader_failed"), (-1, "file_reader_failed"), (2**63, "file_reader_failed"), ("5", "file_reader_failed"),
                                      (2**52, "bad_file"), (10_000, "bad_file"), (400_000, "bad_file")])
def test_what_does_not_lie_in_the_file(lied_to, at, code):
    d, c, folder = lied_to
    write(folder / "lie.nc", {"a": A}, lie=described(at=at))
    assert imported(c, "lie.nc", "failed", variables=[{"name": "b"}])["error"]["code"] == code
    nothing_is_left(d, c, folder, ["good.nc", "lie.nc"])


@pytest.mark.parametrize("text", ["", "null", "[]", "{", "{}", '{"ready":true}', '{"a":1,"a":2}', "\ufeff{}", '{"error":{"code":"bad_file","detail":"a\\u001b[31mb"}}',
                                  "[" * 5000, '{"x":' + "1" * 100_000 + "}"])
@pytest.mark.parametrize("at", ["describe", "slab"])
def test_lines_that_are_none(lied_to, at, text):
    d, c, folder = lied_to
    write(folder / "lie.nc", {"a": A}, lie={"at": at, "deed": "say", "text": text})
    error = imported(c, "lie.nc", "failed", variables=[{"name": "b"}])["error"]
    assert error["code"] == ("bad_file" if "bad_file" in text else "file_reader_failed")
    assert error["detail"].isprintable()
    nothing_is_left(d, c, folder, ["good.nc", "lie.nc"])


@pytest.mark.parametrize("code, ours", [("bad_file", "bad_file"), ("unsupported", "unsupported_file"), ("not_found", "unknown_name"), ("too_large", "too_large"),
                                        ("out_of_memory", "out_of_memory"), ("timeout", "file_reader_failed"), ("io", "file_failed"), ("no_space", "disk_full"), ("no_sandbox", "library_missing")])
def test_errors_that_it_tells(lied_to, code, ours):
    d, c, folder = lied_to
    for at in ("ready", "describe", "slab"):
        write(folder / "lie.nc", {"a": A}, lie={"at": at, "deed": "change", "members": {"error": {"code": code, "detail": "it is so"}}})
        error = imported(c, "lie.nc", "failed", variables=[{"name": "b"}])["error"]
        assert error["code"] == ours and "it is so" in error["detail"]
    nothing_is_left(d, c, folder, ["good.nc", "lie.nc"])


def test_contents_that_drip(hasty):
    """Each answer comes in time, but no slab's worth of contents does."""
    d, c, folder = hasty
    write(folder / "lie.nc", {"a": A}, lie={"deed": "drip", "seconds": 0.2})
    began = time.monotonic()
    error = imported(c, "lie.nc", "failed", variables=[{"name": "b"}])["error"]
    assert error["code"] == "file_reader_failed" and "file-timeout" in error["detail"] and time.monotonic() - began < 20
    nothing_is_left(d, c, folder, ["good.nc", "lie.nc"])


def test_the_reason_is_told(lied_to):
    """Even if it has ended meanwhile, and takes no more contents."""
    d, c, folder = lied_to
    c.upload(np.arange(300_000.), "large")
    lie = {"at": "free", "deed": "tell", "text": '{"error":{"code":"no_space","detail":"it is so"}}'}
    for _ in range(10):
        error = exported(c, "out.nc", ["large"], "failed", attrs={"lie": json.dumps(lie)})["error"]
        assert error["code"] == "disk_full" and error["detail"] == "it is so"
    c.expect(204, c.delete("/v1/arrays/large"))
    (folder / "lie.nc").unlink(missing_ok=True)
    nothing_is_left(d, c, folder, ["good.nc"])


def test_how_it_ended_is_told(daemon_with, tmp_path):
    """As where a library that it needs is not there: the loader ends it with status 127."""
    program = tmp_path / "program"
    (tmp_path / "f").write_text("x")
    for end, words in (("exit 127", "ended with status 127 before it had answered"), ("kill -9 $$", "before it had answered: it was killed"),
                       ("kill -SEGV $$", "before it had answered: it crashed"), ("exit 0", "before it had answered")):
        program.write_text(f"#!/bin/sh\n{end}\n")
        program.chmod(0o755)
        c = daemon_with("--files", f"data={tmp_path}", "--file-reader", program).client()
        assert c.get("/v1/files/data?path=f").json()["detail"].endswith(words)


def test_bools_are_bools(lied_to):
    """Whatever bytes come."""
    d, c, folder = lied_to
    write(folder / "lie.nc", {"a": np.arange(256, dtype=np.uint8)})
    text = (folder / "lie.nc").read_bytes().replace(b'"uint8"', b'"bool"', 1)
    (folder / "lie.nc").write_bytes(text)
    imported(c, "lie.nc", variables=[{"name": "b"}])
    assert c.expect(200, c.get("/v1/arrays/b/data")).body == b"\0" + b"\1" * 255
    c.expect(204, c.delete("/v1/arrays/b"))


def test_it_gets_nothing_else(daemon_with, tmp_path):
    """Neither descriptors nor the environment nor signals that are blocked."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nls -l /proc/$$/fd > {tmp_path}/fds; env > {tmp_path}/env; while read line; do echo \"$line\"; done < /proc/$$/status > {tmp_path}/all; grep Sig {tmp_path}/all > {tmp_path}/signals; tr '\\0' ' ' < /proc/$$/cmdline > {tmp_path}/line\n")
    program.chmod(0o755)
    (tmp_path / "f").write_text("x")
    c = daemon_with("--files", f"data={tmp_path}", "--file-reader", program).client()
    c.fails(500, "file_reader_failed", c.get("/v1/files/data?path=f"))
    fds = {line.split()[8]: line.split("-> ")[1] for line in (tmp_path / "fds").read_text().splitlines() if "->" in line}
    fds.pop("10", None), fds.pop("255", None)  # the shell's own, of this script
    assert sorted(fds) == ["0", "1", "2", "3", "4", "5"] or fds.get("1", "").endswith("fds"), fds
    assert fds["0"] == "/dev/null" and fds["3"].startswith("socket:") and fds["4"] == f"{tmp_path}/f" and "memfd" in fds["5"]
    assert {line.split("=")[0] for line in (tmp_path / "env").read_text().splitlines()} <= {"LC_ALL", "PWD", "_", "SHLVL", "OLDPWD"}
    signals = dict(line.split() for line in (tmp_path / "signals").read_text().splitlines())
    assert int(signals["SigBlk:"], 16) == 0 and int(signals["SigIgn:"], 16) & ~0x180000000 == 0  # libc's own two


@pytest.mark.in_turn
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR2])
def test_the_daemon_ends_meanwhile(daemon_with, tmp_path, sig):
    """An import under way ends with it, whether in order, by death, or by another that takes over; nothing is left."""
    files = tmp_path / "files"
    files.mkdir()
    write(files / "a.nc", {"a": A}, lie={"at": "slab", "nth": 2, "deed": "hang"})
    d = daemon_with(*options(files), "--file-slab", "64KiB", "--restart-wait", 0)
    c = d.client()
    c.upload(A, "kept")
    job = c.expect(202, c.post("/v1/files/import", {"folder": "data", "path": "a.nc"})).json()["id"]
    c.expect(202, c.post("/v1/files/export", {"folder": "data", "path": "b.nc", "arrays": ["kept"], "attrs": {"lie": '{"at": "free", "deed": "hang"}'}}))
    until(lambda: c.expect(200, c.get(f"/v1/jobs/{job}")).json()["step"] > 0)
    if sig == signal.SIGTERM:
        d.stop()
    else:
        before = d.pid
        d.proc.send_signal(sig) if sig == signal.SIGUSR2 else os.kill(before, sig)
        until(lambda: d.pid not in (before, d.proc.pid))
        c.close()
        until(lambda: c.get("/v1/arrays", check=False).status == 200)
        c.fails(404, "not_found", c.get(f"/v1/jobs/{job}"))
        assert [a["name"] for a in c.expect(200, c.get("/v1/arrays")).json()["arrays"]] == ["kept"]
        until(lambda: no_reader(d))
        exported(c, "c.nc", ["kept"])  # what the dead one left is removed when a file is made there
        (files / "c.nc").unlink()
    assert [p.name for p in files.iterdir()] == ["a.nc"]
