"""Every command in README.md and docs/ is run against a daemon.

The ```sh blocks of a page run in order in one shell, in an empty folder, with the address of a daemon
of the page's own in place of the one written there. A command that starts the daemon is started with
its options on a free port, the doctor as it is; the deploy scripts are looked up, not run. docs/gpu.md is held against the
fake driver.
"""
import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from cli import environment as with_cli
from client import REPO
from conftest import fake_gpu, find_binary

pytestmark = pytest.mark.release_only  # it is the pages that are tested here
PAGES = ["README.md", *sorted(p.relative_to(REPO).as_posix() for p in (REPO / "docs").glob("*.md"))]
ADDRESS = "127.0.0.1:7411"


def blocks(page):
    return re.findall(r"^```sh\n(.*?)^```$", (REPO / page).read_text(), re.M | re.S)


def test_there_are_commands():
    assert sum(len(blocks(page)) for page in PAGES) >= 10


def curl_and_shell(line):
    if line.startswith("curl "):
        return [line.replace("curl ", "curl -sS --fail-with-body --max-time 60 ", 1), "echo"]
    if line.startswith("python3 "):  # the one that has NumPy
        return [line.replace("python3", shlex.quote(sys.executable), 1)]
    return [line.replace("$(curl ", "$(curl -sS --fail-with-body --max-time 60 ")]


def run_script(page, script, daemon, folder, bin_folder):
    text = "\n".join(["set -euo pipefail", *script]).replace(ADDRESS, f"{daemon.host}:{daemon.port}")
    text = text.replace("http://localhost:7411/", f"http://{daemon.host}:{daemon.port}/")
    text = text.replace(" -w '%{http_code}\\n' ", " -w '%{http_code}\\n' -o /dev/null ")
    done = subprocess.run(["bash", "-x", "-c", text], cwd=folder, capture_output=True, text=True, timeout=120,
                          env={**with_cli(bin_folder), "PYTHONPATH": str(REPO / "clients/python/src")})
    assert done.returncode == 0, f"{page}:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def told_of(page):
    """What a page says that its commands print."""
    text = (REPO / page).read_text()
    return re.findall(r"^```text\n(netcdf .*?)^```$", text, re.M | re.S) + re.findall(r"prints `(-?\d+\.\d+)`", text)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_commands(page, daemon_with, tmp_path, tmp_path_factory):
    environment, options = {}, []
    if page == "docs/gpu.md":
        environment = {**(fake_gpu() or pytest.skip("no fake driver in this build, or no g++")), "ARRAYD_FAKE_DEVICES": "2"}
        options = ["--mesh", "all"]
    daemon = daemon_with(*options, "--listen", f"{ADDRESS[:-4]}0", "--listen", f"unix:{tmp_path}/arrayd.sock", "--allow-export",
                         "--files", f"data={tmp_path}", environment={**environment, "XDG_CACHE_HOME": str(tmp_path)})
    script = []
    for line in "".join(blocks(page)).splitlines():
        if line.startswith("./deploy/"):
            path = REPO / line.split()[0]
            assert path.is_file() and path.stat().st_mode & 0o111, line
        elif line.startswith("./build/server/arrayd doctor"):
            run_doctor(line.split()[1:], environment)
        elif line.startswith("./build/server/arrayd bench"):
            run_doctor([*line.split()[1:], "--size", "16"], environment)
        elif line.startswith("./build/server/arrayd token"):
            subprocess.run([find_binary(), *line.split()[1:]], cwd=tmp_path, check=True, timeout=60)
        elif line.startswith("./build/server/arrayd"):
            start(line.split()[1:], daemon_with, tmp_path, environment)
        else:
            script += curl_and_shell(line)
    printed = run_script(page, script, daemon, tmp_path, tmp_path_factory.mktemp("bin"))
    assert all(told in printed for told in told_of(page)), printed
    assert page != "docs/files.md" or len(told_of(page)) == 2


@pytest.mark.in_turn
def test_one_page_after_the_other(daemon_with, tmp_path, tmp_path_factory):
    """Somebody reads on where README says, with one daemon: no page's names are in another's way. What
    wants options of the daemon's own is left out."""
    folder, bin_folder = tmp_path, tmp_path_factory.mktemp("bin")
    daemon = daemon_with("--backend", "cpu", "--state-dir", tmp_path / "state", "--listen", f"{ADDRESS[:-4]}0", "--listen",
                         f"unix:{tmp_path}/arrayd.sock", "--allow-export", "--files", f"data={tmp_path}")
    pages = ["README.md", *re.findall(r"\]\((docs/\w+\.md)\)", (REPO / "README.md").read_text())]
    pages = list(dict.fromkeys(pages))
    assert set(pages) == set(PAGES)
    for page in pages:
        lines = "".join(block for block in blocks(page) if "mesh" not in block).splitlines()
        run_script(page, [x for line in lines if not line.startswith("./") for x in curl_and_shell(line)], daemon, folder, bin_folder)
        if page in PYTHON:
            run_python(page, daemon, folder, bin_folder)


CONSOLE = [(page, command, expected) for page in PAGES
           for block in re.findall(r"^```console\n(.*?)^```$", (REPO / page).read_text(), re.M | re.S)
           for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M)]


def test_there_are_examples():
    assert len(CONSOLE) >= 6 and all(expected.strip() for _, _, expected in CONSOLE)


@pytest.mark.parametrize("page, command, expected", CONSOLE, ids=[f"{p}-{i}" for i, (p, _, _) in enumerate(CONSOLE)])
def test_examples_are_what_is_answered(daemon, page, command, expected):
    """In ```console blocks: a command after '$ ', then the JSON that it prints, however broken into lines."""
    command = command.replace(ADDRESS, f"{daemon.host}:{daemon.port}").replace("curl ", "curl -sS --max-time 60 ", 1)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(expected), page


OTHERS = ("docs/dask.md",)  # needs dask: test_client_python_dask.py
PYTHON = [page for page in PAGES if page not in OTHERS and re.search(r"^```python$", (REPO / page).read_text(), re.M)]


def program_of(page):
    return "".join(re.findall(r"^```python\n(.*?)^```$", (REPO / page).read_text(), re.M | re.S))


def run_python(page, daemon, folder, bin_folder):
    text = program_of(page).replace(ADDRESS, f"{daemon.host}:{daemon.port}")
    if not (bin_folder / "arrayd").exists():
        (bin_folder / "arrayd").symlink_to(os.path.abspath(find_binary()))
    done = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, timeout=120,
                          env={**with_cli(bin_folder), "PYTHONPATH": str(REPO / "clients/python/src"),
                               "ARRAYD_URL": f"http://{daemon.host}:{daemon.port}"})
    assert done.returncode == 0, f"{page}: {done.stderr[-3000:]}"


@pytest.mark.parametrize("page", PYTHON)
def test_worked_examples(page, daemon, daemon_with, api, tmp_path, tmp_path_factory):  # api: what the example made is deleted
    """The ```python blocks of a page are one program."""
    if "arrayd.sock" in program_of(page):
        daemon_with("--backend", "cpu", "--listen", f"unix:{tmp_path}/arrayd.sock", "--allow-export")
    run_python(page, daemon, tmp_path, tmp_path_factory.mktemp("bin"))


def start(options, daemon_with, folder, environment):
    options = [f"{folder}/{o}" if before in ("--accounts", "--audit-log") else o for before, o in zip(["", *options], options)]
    options = [o.replace(ADDRESS, "127.0.0.1:0").replace("unix:", f"unix:{folder}/second-") for o in options]
    daemon_with(*options, environment={**environment, "XDG_CACHE_HOME": str(folder)}).stop()


def run_doctor(options, environment):
    done = subprocess.run([find_binary(), *options], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})
    assert done.returncode == 0 and done.stdout, done.stdout + done.stderr


def test_the_options_of_the_help_are_the_documented_ones():
    help_text = subprocess.run([find_binary(), "--help"], capture_output=True, text=True, check=True).stdout
    offered = set(re.findall(r"--([a-z][a-z-]+)", help_text)) - {"help", "version"}
    documented = set(re.findall(r"^\| `([a-z-]+)`", (REPO / "docs/operating.md").read_text(), re.M))
    assert documented == offered
