"""clients/js: its own tests (clients/js/test) against a daemon with accounts that lets one origin in."""
import os
import re
import shutil
import subprocess

import pytest

from client import REPO
from conftest import settle

FOLDER = REPO / "clients/js"
ORIGIN = "https://app.example"
OLDEST = 18  # the first Node that has fetch


def node():
    found = shutil.which("node")
    if not found:
        pytest.skip("no node: Debian's package nodejs")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60).stdout
    if int(re.match(r"v(\d+)", version)[1]) < OLDEST:
        pytest.skip(f"node {version.strip()} is older than {OLDEST}")
    return found


@pytest.mark.in_turn
@pytest.mark.release_only  # it is the client that is tested here
def test_the_module_against_a_daemon(daemon_with, accounts):
    program = node()
    accounts.add("ann")
    other = accounts.add("b.o@b")
    accounts.add("olga", role="operator")
    d = daemon_with("--accounts", accounts.path, "--cors-origin", ORIGIN)
    c = accounts.client(d, "ann")
    before = c.info()["bytes_in_use"]
    environment = {**os.environ, "ARRAYD_URL": f"http://{d.host}:{d.port}", "ARRAYD_TOKEN": accounts.token["ann"], "ARRAYD_OTHER": other,
                   "ARRAYD_OPERATOR": accounts.token["olga"], "ARRAYD_ORIGIN": ORIGIN}
    files = sorted(map(str, (FOLDER / "test").glob("*.test.js")))
    done = subprocess.run([program, "--test", *files], cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-2000:]
    assert int(re.search(r"^\D*\bpass (\d+)$", done.stdout, re.M)[1]) > 40, done.stdout[-500:]
    assert settle(c, before) == before  # what the examples and tests have made they give back
    assert [s["name"] for s in c.list_all("/v1/sessions", "sessions")] == ["default"]
    c.close()


@pytest.mark.in_turn
@pytest.mark.release_only  # no daemon takes part
def test_the_declarations():
    if not shutil.which("tsc"):
        pytest.skip("no tsc: Debian's package node-typescript")
    done = subprocess.run(["tsc", "-p", FOLDER], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
