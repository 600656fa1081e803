"""Files where arrayd is a service or in a container: what the unit leaves to it, its drop-in for folders, what the doctor says."""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import yaml

from client import REPO
from conftest import find_binary
from stand_in import exported, imported
from test_deploy import installed, read, unit  # noqa: F401
from test_doctor import checks, find

pytestmark = pytest.mark.release_only  # it is the files of deploy/ that are tested here
CONFINED = REPO / "tests/http/confined.py"
READER = pathlib.Path(find_binary() + "-file")
needs_reader = pytest.mark.skipif(not READER.exists(), reason="arrayd-file was not built")


def confined(tmp_path, text, name):
    """A program that is arrayd under that unit."""
    (tmp_path / f"{name}.service").write_text(text)
    path = tmp_path / name
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {CONFINED} {tmp_path}/{name}.service {os.path.abspath(find_binary())} "$@"\n')
    path.chmod(0o755)
    return path


def said_by(program, *options):
    done = subprocess.run([program, "doctor", "--json", "--backend", "cpu", "--listen", "127.0.0.1:0", *map(str, options)],
                          capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


@needs_reader
def test_files_under_the_unit(unit, tmp_path, daemon_with):  # noqa: F811
    folder = tmp_path / "files"
    folder.mkdir()
    np.save(folder / "a.npy", np.arange(6.0))
    mask = [line for line in read("files.conf").splitlines() if line.startswith("UMask=")]
    for name, text, mode in (("alone", unit.read_text(), 0o600), ("shared", unit.read_text().replace("UMask=0077", *mask), 0o660)):
        d = daemon_with("--files", f"data={folder}", "--backend", "cpu", binary=confined(tmp_path, text, name))
        c = d.client()
        imported(c, "a.npy", variables=[{"name": "a"}])
        exported(c, f"{name}.nc", ["a"])
        assert stat.S_IMODE((folder / f"{name}.nc").stat().st_mode) == mode
        c.close()


@needs_reader
def test_the_doctor_says_what_a_unit_forbids(unit, tmp_path):  # noqa: F811
    text = unit.read_text()
    whole = confined(tmp_path, text, "whole")
    assert "confined by Landlock and seccomp" in said_by(whole, "--files", f"data={tmp_path}") and "0600 (umask 077)" in said_by(whole, "--files", f"data={tmp_path}")
    told = said_by(confined(tmp_path, text + "\nRestrictSUIDSGID=yes\n", "suid"), "--files", f"data={tmp_path}")
    assert "cannot be read: Function not implemented" in told and "a unit without RestrictSUIDSGID=" in told
    bare = confined(tmp_path, "".join(line for line in text.splitlines(True) if "landlock" not in line), "bare")
    if "landlock_create_ruleset" in subprocess.run(["systemd-analyze", "syscall-filter", "@default"], capture_output=True, text=True).stdout:
        pytest.skip("this systemd allows it by itself")
    told = said_by(bare, "--files", f"data={tmp_path}")
    assert "cannot be used: a filter of calls keeps Landlock's away" in told and "lets its system calls through" in told
    told = said_by(bare, "--files", f"data={tmp_path}", "--unsandboxed-files")
    assert "opens files and is not confined" in told


def test_systemd_takes_the_drop_in(unit):  # noqa: F811
    folder = unit.parent / "arrayd.service.d"
    folder.mkdir()
    text = read("files.conf")
    (folder / "files.conf").write_text(text + "".join(line[2:] + "\n" for line in text.splitlines() if line.startswith("# ") and line[2:].partition("=")[0].isalpha()))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "arrayd" in line or "files.conf" in line]
    assert done.returncode == 0 and not said, done.stdout + done.stderr
    assert "ProtectHome=tmpfs" in (folder / "files.conf").read_text().splitlines()


@needs_reader
def test_the_doctor_tries_folders(tmp_path):
    (tmp_path / "a").mkdir()
    found = checks("--backend", "cpu", "--files", f"a={tmp_path}/a", "--files", f"b={tmp_path}/a:ro")
    assert [c["status"] for c in find(found, "files")] == ["ok", "ok"] and find(found, "file-reader")[0]["status"] == "ok"
    assert "written to" in find(found, "files")[0]["text"] and "written to" not in find(found, "files")[1]["text"]
    assert list((tmp_path / "a").iterdir()) == []
    found = checks("--backend", "cpu", "--files", f"a={tmp_path}/none", status=1)
    assert find(found, "files")[0]["status"] == "fail" and "none" in find(found, "files")[0]["text"]


def test_the_doctor_without_the_program(tmp_path):
    nowhere = ("--backend", "cpu", "--file-reader", tmp_path / "none")
    assert find(checks(*nowhere), "file-reader")[0]["status"] == "ok"  # nobody asked for it
    missing, = find(checks(*nowhere, "--files", f"a={tmp_path}", status=1), "file-reader")
    assert missing["status"] == "fail" and "install it beside arrayd" in missing["advice"]
    (tmp_path / "dies").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "dies").chmod(0o755)
    missing, = find(checks("--backend", "cpu", "--file-reader", tmp_path / "dies"), "file-reader")
    assert missing["status"] == "warn" and "the loader says" in missing["advice"]


def test_the_doctor_and_a_small_spool(tmp_path):
    spool, = find(checks("--backend", "cpu", "--file-spool", tmp_path / "none"), "file-spool")
    assert spool["status"] == "warn" and "No such file" in spool["text"]
    spool, = find(checks("--backend", "cpu", "--file-spool", tmp_path), "file-spool")
    assert spool["status"] == "ok"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"), reason="needs root")
def test_the_doctor_says_why_a_folder_is_closed():
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # pytest's own folders are for root alone
        os.chmod(place, 0o755)
        closed(pathlib.Path(place) / "theirs")


def closed(folder):
    folder.mkdir()

    def said(mode, *before):
        folder.chmod(mode)
        done = subprocess.run([*before, find_binary(), "doctor", "--backend", "cpu", "--listen", "127.0.0.1:0", "--files", f"a={folder}"],
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 1, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        place = next(i for i, line in enumerate(lines) if line.split()[:2] == ["fail", "files"])
        return " ".join(lines[place:place + 2])

    somebody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    if subprocess.run([*somebody, find_binary(), "--version"], capture_output=True).returncode:
        pytest.skip("others cannot run what was built")
    told = said(0o755, *somebody)
    assert "cannot be written to: Permission denied (user 65534 of group 65534; the folder is of user 0 and group 0, mode 0755)" in told
    assert "SupplementaryGroups=" in told
    assert "cannot be read: Permission denied" in said(0o711, *somebody)
    mounted = f"mount -t tmpfs none {folder} && mount -o remount,ro {folder} && exec \"$@\""
    told = said(0o755, "unshare", "-m", "sh", "-c", mounted, "sh")
    assert "cannot be written to: Read-only file system" in told and "ReadWritePaths=" in told


def test_containers_have_space_for_files():
    """More than the 64 MiB that they have by themselves."""
    arrayd = yaml.safe_load(read("compose.yaml"))["services"]["arrayd"]
    assert arrayd["shm_size"] == "1gb"
    pod = next(d for d in yaml.safe_load_all(read("kubernetes/arrayd.yaml")) if d["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    name, = [m["name"] for m in pod["containers"][0]["volumeMounts"] if m["mountPath"] == "/dev/shm"]
    spool, = [v for v in pod["volumes"] if v["name"] == name]
    assert spool["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
