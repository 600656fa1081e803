"""--private: a daemon that ends with the program that started it."""
import os
import pathlib
import signal
import subprocess

import pytest

from conftest import SANITIZER, find_binary, until

COMMAND = (find_binary(), "--log-level", "debug")


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("own")


def started(folder, tmp_path, *options):
    """The process, what its input is read from, and its log."""
    theirs, ours = os.pipe()
    log = tmp_path / "log"
    with log.open("wb") as out:
        p = subprocess.Popen([*COMMAND, "--private", folder, "--listen", f"unix:{folder}/arrayd.sock", "--allow-export", *options],
                             stdin=theirs, stdout=out, stderr=out)
    os.close(theirs)
    until(lambda: " ready " in log.read_text() or p.poll() is not None)
    return p, ours, log


def ended(p, log):
    assert p.wait(60) == 0 and not SANITIZER.search(log.read_text()), log.read_text()
    assert " stopped" in log.read_text()


def test_it_ends_with_its_input(folder, tmp_path):
    p, ours, log = started(folder, tmp_path)
    assert sorted(f.name for f in folder.iterdir()) == ["arrayd.sock", "arrayd.sock.fd"]
    os.write(ours, b"nobody reads this")
    os.close(ours)
    ended(p, log)
    assert not folder.exists()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_the_folder_goes_with_any_end(folder, tmp_path, sig):
    p, ours, log = started(folder, tmp_path)
    p.send_signal(sig)
    ended(p, log)
    assert not folder.exists()
    os.close(ours)


def test_what_others_have_put_there_stays(folder, tmp_path):
    (folder / "notes").touch()
    p, ours, log = started(folder, tmp_path)
    os.close(ours)
    ended(p, log)
    assert [f.name for f in folder.iterdir()] == ["notes"]


def test_the_keeper_sees_it_where_the_daemon_cannot(folder, tmp_path):
    p, ours, log = started(folder, tmp_path)
    proper = int(pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text())
    os.kill(proper, signal.SIGSTOP)
    os.close(ours)
    os.kill(proper, signal.SIGKILL)
    p.wait(60)
    assert not folder.exists()


def test_it_needs_the_keeper(folder, tmp_path):
    p, ours, log = started(folder, tmp_path, "--no-keeper")
    os.close(ours)
    assert p.wait(60) == 2 and "no-keeper" in log.read_text()
