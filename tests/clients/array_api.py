#!/usr/bin/env python3
"""The Python Array API standard's own tests, against the Python client and a live daemon on the CPU backend.

    array_api.py ARRAYD [--processes N] [--random] [--folder FOLDER] [-- PYTEST ARGUMENT…]

The tests (data-apis/array-api-tests) and the standard that they read (data-apis/array-api) are fetched at the commits below into
a folder that git ignores (build-array-api), with an environment of the packages below, and stay there. ARRAY_API_TESTS and
ARRAY_API may name other repositories to clone, such as copies on this machine.

Everything but linalg and fft, which the client does not have, is collected; each process has a session of its own. The examples
are as many as the suite makes by itself, and the same in each run (hypothesis' derandomize) unless `--random` asks for others.
What fails is run a second time by itself: its deadline may have been missed because the machine was busy.

Prints what failed, then one line with the counts. Exit status: 0 when nothing failed that is not in array_api_failures.txt, 1
otherwise, 77 when the tests cannot be fetched.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
KNOWN = pathlib.Path(__file__).with_name("array_api_failures.txt")
VERSION = "2024.12"
TESTS = (os.environ.get("ARRAY_API_TESTS") or "https://github.com/data-apis/array-api-tests", "55fcc60179efa2680ddd6cd926ddf17b83530e2b")
STANDARD = (os.environ.get("ARRAY_API") or "https://github.com/data-apis/array-api", "5f847a3858875c682ae901aa22b0413bf24be9da")
PACKAGES = ["numpy==2.4.6", "pytest==9.2.0", "pytest-xdist==3.8.0", "pytest-json-report==1.5.0", "hypothesis==6.170.15", "ndindex==1.10.1"]
WANTED = 93.0  # percent of the collected tests
LONGEST_S = 600


class NotHere(Exception):
    """What is to be fetched cannot be."""


def done(*command, **more):
    r = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if r.returncode:
        raise NotHere(f"{' '.join(map(str, command[:4]))}…: {(r.stderr or r.stdout).strip()[-300:]}")


def checkout(folder, source):
    url, commit = source
    if not (folder / ".git").exists():
        done("git", "clone", "--quiet", "--no-checkout", "--filter=blob:none", url, folder, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
    done("git", "-c", "advice.detachedHead=false", "checkout", "--quiet", commit, cwd=folder)


def fetch(folder):
    """The tests, the standard where they look for it, and Python with what they need."""
    folder.mkdir(exist_ok=True)
    suite, python = folder / "array-api-tests", folder / "venv" / "bin" / "python"
    checkout(suite, TESTS)
    checkout(suite / "array-api", STANDARD)
    stamp = folder / "venv" / "packages"
    if not stamp.exists() or stamp.read_text().split() != PACKAGES:
        done(sys.executable, "-m", "venv", "--clear", folder / "venv")
        done(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES)
        stamp.write_text("\n".join(PACKAGES))
    return suite, python


class Daemon:
    def __init__(self, binary, log):
        self.log = open(log, "w+")
        self.process = subprocess.Popen([binary, "--listen", "127.0.0.1:0", "--backend", "cpu"], stdout=self.log, stderr=self.log)
        until = time.monotonic() + 30
        while not (found := re.search(r"ready listen=127\.0\.0\.1:(\d+)", pathlib.Path(log).read_text())):
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{binary} does not start: see {log}")
            time.sleep(0.05)
        self.url = f"http://127.0.0.1:{found[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


def run(suite, python, url, report, arguments):
    """Failed tests with their reasons, how many passed, how many were skipped."""
    source = json.dumps(str(ROOT / "clients" / "python" / "src"))
    code = f"import sys; sys.path.insert(0, {source}); import arrayd; xp = arrayd.connect({json.dumps(url)}).session()"
    environment = {**os.environ, "ARRAY_API_TESTS_MODULE": f"exec('{code}')",
                   "ARRAY_API_TESTS_VERSION": VERSION, "PYTHONDONTWRITEBYTECODE": "1"}
    report.unlink(missing_ok=True)
    with open(report.with_suffix(".log"), "w") as log:
        subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "--disable-extension", "linalg", "fft",
                        *arguments], cwd=suite, env=environment, stdout=log, stderr=log, timeout=6 * LONGEST_S)
    if not report.exists():
        raise RuntimeError(f"pytest came to no end: see {report.with_suffix('.log')}")
    failed, passed, skipped = {}, 0, 0
    for case in ElementTree.parse(report).iter("testcase"):
        bad = next((e for e in case if e.tag in ("failure", "error")), None)
        if bad is not None:
            failed[f"{case.get('classname').replace('.', '/')}.py::{case.get('name')}"] = (bad.get("message") or "").split("\n")[0]
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return failed, passed, skipped


def main():
    parser = argparse.ArgumentParser(description="The standard's own tests against the Python client.")
    parser.add_argument("arrayd")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--random", action="store_true", help="other examples in each run")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build-array-api")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    folder = options.folder.resolve()
    try:
        suite, python = fetch(folder)
    except NotHere as e:
        print(f"the standard's tests cannot be fetched: {e}", file=sys.stderr)
        return 77
    known = {line for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")}
    arguments = ["-k", "not linalg- and not fft-", "array_api_tests", *([] if options.random else ["--hypothesis-derandomize"]), *options.arguments]
    begin = time.monotonic()
    with Daemon(options.arrayd, folder / "daemon.log") as daemon:
        failed, passed, skipped = run(suite, python, daemon.url, folder / "report.xml", [*arguments, "-n", str(options.processes)])
        took = time.monotonic() - begin
        late = set()
        if new := sorted(failed.keys() - known):
            again, _, _ = run(suite, python, daemon.url, folder / "again.xml", [*new, *arguments[3:]])
            late = set(new) - again.keys()
    for name in sorted(failed):
        how = "known" if name in known else "passed the second time" if name in late else "NEW"
        print(f"{how}: {name}: {failed[name]}")
    new = failed.keys() - known - late
    if not options.arguments:
        for name in sorted(known - failed.keys()):
            print(f"passed this time: {name}")
    share = 100 * passed / max(passed + len(failed), 1)
    print(f"{passed} passed, {len(failed)} failed ({len(new)} not known), {skipped} skipped: {share:.1f} % of those collected, in {took:.0f} s")
    return 1 if new or not passed or share < WANTED or took > LONGEST_S else 0


if __name__ == "__main__":
    sys.exit(main())
