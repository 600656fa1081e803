"""Every command in CONTRIBUTING.md and docs/internals/ is run, from the repository's root, with the build folder of the
daemon that is tested in place of build/.

What takes minutes is only looked at: scripts are there, a build is planned, a suite has tests. With ARRAYD_LONG the
worked changes (the ```diff blocks of a page) are applied to a copy of the repository, which is built, and the page's
commands are run there as they stand.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from client import REPO
from conftest import fake_gpu, find_binary, skip_without
from test_docs import ADDRESS, blocks

sys.path.insert(0, str(REPO / "tests/lint"))

from docslib import apply_worked_change  # noqa: E402

pytestmark = pytest.mark.release_only  # it is the pages that are tested here
PAGES = ["CONTRIBUTING.md", *sorted(p.relative_to(REPO).as_posix() for p in (REPO / "docs/internals").glob("*.md"))]
WORKED = [page for page in PAGES if "```diff\n" in (REPO / page).read_text()]
SCRIPT = re.compile(r"(\./)?(deploy|tests)/\S+")
DAEMON = re.compile(r"(?P<env>(?:\w+=\S+ )*)(?P<fake>meson devenv -C build -w \. )?\./build/server/arrayd(?P<options>(?: --?\S+| \w+)*)")


def commands(page):
    return [line for block in blocks(page) for line in block.replace("\\\n", "").splitlines() if not line.startswith("#")]


def run(command, cwd, build):
    """In bash, with `build/` where it really is; the processes of pytest below this one are not of its run."""
    command = re.sub(r"(?<![\w/.-])(?:\./)?build(?=/| |$)", shlex.quote(str(build)), command)
    command = re.sub(r"\bpython3\b", shlex.quote(sys.executable), command)
    command = command.replace("-m pytest", "-m pytest -p no:cacheprovider")
    env = {k: v for k, v in os.environ.items() if k not in ("ARRAYD_RUN", "ARRAYD_LONG")}
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=cwd, capture_output=True, text=True, timeout=1200,
                          env={**env, "ARRAYD_SUBSET": "1"})
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def look_at(line, build, tmp_path):
    """A command that takes minutes: whether it could be run. None: it is to be run."""
    words = line.split()
    if SCRIPT.fullmatch(words[0]):
        script = REPO / words[0]
        assert script.is_file() and script.stat().st_mode & 0o111, line
        for option in re.findall(r" (--[a-z]+)", line):
            assert f"{option})" in script.read_text(), line  # of its case
    elif line.startswith("meson setup "):
        skip_without("libmicrohttpd")
        run(line.replace(words[2], str(tmp_path / words[2]), 1), REPO, build)
    elif line.startswith("ninja "):
        run(f"{line} -n", REPO, build)
    elif "--suite" in line:
        assert run(f"{line} --no-rebuild --list", REPO, build).strip(), line
    else:
        return None
    return True


@pytest.mark.in_turn
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_commands(page, daemon_with, tmp_path):
    build = pathlib.Path(find_binary()).resolve().parents[1]
    daemon, traced = None, []
    for line in commands(page):
        match = DAEMON.fullmatch(line)
        if page in WORKED or look_at(line, build, tmp_path):
            continue  # a worked change's own commands are for its copy
        if match and not re.match(r" (doctor|token)\b", match["options"]):
            environment = dict(setting.split("=", 1) for setting in match["env"].split())
            if match["fake"]:
                environment |= fake_gpu() or pytest.skip("no fake driver in this build, or no g++")
            daemon = daemon_with(*match["options"].split(), environment={**environment, "XDG_CACHE_HOME": str(tmp_path)})
            traced += [(daemon, key) for key in environment.get("ARRAYD_TRACE", "").split(",") if key]
        elif "curl " in line:
            daemon = daemon or daemon_with("--backend", "cpu")
            line = line.replace(ADDRESS, f"{daemon.host}:{daemon.port}")
            run(line.replace("curl ", "curl -sS --fail-with-body --max-time 60 ", 1), tmp_path, build)
        elif line.startswith("meson test "):
            run(f"{line} --no-rebuild --logbase docs-{os.getpid()}", REPO, build)
        else:
            run(line, REPO, build)
    for daemon, key in traced:
        assert f"[{key}] " in daemon.log(), (page, key)


@pytest.mark.slow
@pytest.mark.parametrize("page", WORKED)
def test_worked_changes(page, tmp_path):
    copy = tmp_path / "arrayd"
    shutil.copytree(REPO, copy, ignore=shutil.ignore_patterns("build*", ".git", "__pycache__"))
    shutil.copytree(REPO / "deploy", copy / "deploy", dirs_exist_ok=True)  # deploy/build, which looks like a folder of that kind
    apply_worked_change(copy / page, copy)
    run("meson setup build --buildtype=release -Db_ndebug=false", copy, copy / "build")
    for line in commands(page):
        run(line, copy, copy / "build")
