"""Fixtures of the HTTP tests.

    daemon        one daemon for the whole run: .host .port .pid .client()
    api           a Client on it; afterwards every array and session the test left is deleted and
                  the bytes in use must be back at what they were
    daemon_with   a function that starts a daemon of its own: daemon_with("--memory-limit", "1MiB")
    gpu_with      the same on the CUDA backend with the fake driver (tests/fake/fake_cuda.h), where
                  the build has it and there is a g++; `.fail("700")` breaks its next launch.
                  With ARRAYD_REAL_GPU on this machine's own GPU: what only the fake can do is skipped
    two_with      the same with two principals: ann, bob = two_with(); each a Client
    accounts      an accounts file to be filled
    visit         a function that opens the page of a daemon in headless Chromium (browser.py): visit(daemon, "#arrays");
                  afterwards nothing must have gone wrong in the page, and no other host been asked for anything
    contract      the OpenAPI file

The binary is ARRAYD_BIN, else the newest server/arrayd of a build*/ folder in the root. Every
daemon must end with exit status 0 on SIGTERM and leave no sanitizer report.
"""
import hashlib
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from browser import Browser
from client import REPO, TIMEOUT, Client, Contract

# A shell that runs this in the background has it ignore interrupts, and with it what is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # SciPy reads it when it is loaded, by whichever test is first

START_TIMEOUT = 60
STOP_TIMEOUT = 60
SANITIZER = re.compile(r"(AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:|Assertion `)")
CONTRACT = Contract()


def find_binary():
    named = os.environ.get("ARRAYD_BIN")
    if named:
        return named
    built = sorted(REPO.glob("build*/server/arrayd"), key=lambda p: p.stat().st_mtime)
    if not built:
        pytest.exit("no arrayd to test: set ARRAYD_BIN or build into build/", returncode=2)
    return str(built[-1])


def keeps_freed_memory():
    """ThreadSanitizer's shadow of memory stays when that is freed; AddressSanitizer does without a quarantine if it is asked to."""
    return b"libtsan.so" in pathlib.Path(find_binary()).read_bytes()


NO_QUARANTINE = {"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=0:allocator_may_return_null=1:quarantine_size_mb=0:"
                                 "thread_local_quarantine_size_kb=0:allocator_release_to_os_interval_ms=100"}


# Of tests whose figures are of one GPU's memory: of several, each has whole grains (test_gpu_mesh_memory.py).
one_gpu = pytest.mark.skipif("ARRAYD_MESH" in os.environ, reason="of one GPU")


def on_mesh(args, environment):
    """With ARRAYD_MESH=3 those of a daemon whose sessions all are on a fake mesh of three, if it is told nothing of devices; with
    ARRAYD_REAL_GPU on all GPUs that there are."""
    parts, environment = os.environ.get("ARRAYD_MESH"), dict(environment)
    if not parts or "--mesh" in args or "cpu" in args or "ARRAYD_FAKE_DEVICES" in environment:
        return args, environment
    args = (*args, *(() if "cuda" in args else ("--backend", "cuda")), "--mesh", "all", "--mesh-least", "1", "--default-device", "mesh")
    if os.environ.get("ARRAYD_REAL_GPU"):
        return args, environment
    return (*args, *(() if "--kernel-cache" in args else ("--kernel-cache", "none"))), {**fake_gpu(), "ARRAYD_FAKE_DEVICES": parts, **environment}


class Daemon:
    """A running arrayd. Its log goes to a file, so that a full pipe can never stop it."""

    def __init__(self, *args, listen="127.0.0.1:0", environment=(), binary=None):
        self.log_file = tempfile.NamedTemporaryFile("rb", prefix="arrayd-", suffix=".log")
        args, environment = on_mesh(args, environment)
        command = [binary or find_binary(), *([] if "--listen" in args or not listen else ["--listen", listen]), *args]
        env = {**os.environ, **dict(environment)}
        env.setdefault("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=0")
        env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
        # Who leaves a lost device joins nothing: its threads may wait for it. soak.py counts threads.
        env.setdefault("TSAN_OPTIONS", "report_thread_leaks=0")
        with open(self.log_file.name, "wb") as log:
            self.proc = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                         env=env)
        self.expected = 0  # exit status
        self.host = self.port = self.unix = None
        try:
            self.wait_ready()
        except BaseException:
            self.proc.kill()
            self.proc.wait()
            raise

    @property
    def pid(self):
        """Of the daemon proper: the child of the keeper, if there is one."""
        first = self.proc.pid
        children = pathlib.Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return int(children[0]) if children else first

    def log(self):
        with open(self.log_file.name, errors="replace") as f:
            return f.read()

    def wait_ready(self):
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            ready = re.search(r"^\S+ info ready\b(.*)$|^\{.*\"message\":\"ready\"(.*)$",
                              self.log(), re.M)
            if ready:
                self.parse_ready(ready[1] or ready[2])
                return
            if self.proc.poll() is not None:
                raise RuntimeError(f"arrayd ended with {self.proc.returncode}:\n{self.log()}")
            time.sleep(0.005)
        raise RuntimeError(f"arrayd did not become ready:\n{self.log()}")

    def parse_ready(self, text):
        listen = re.search(r"listen\"?[=:]\"?([^\"]*?)(\"|\s\w+=|\s*$)", text)
        admin = re.search(r"admin_listen\"?[=:]\"?[^\s\",]*:(\d+)", text)
        self.admin_port = int(admin[1]) if admin else None
        self.addresses = re.split(r"[\s,]+", listen[1].strip())
        for address in self.addresses:
            if address.startswith("unix:"):
                self.unix = self.unix or address[5:]
            elif self.port is None:
                host, port = address.rsplit(":", 1)
                self.host, self.port = host.strip("[]"), int(port)

    def client(self, **kw):
        if self.port is None:
            kw.setdefault("unix", self.unix)
        return Client(self.host, self.port, CONTRACT, **kw)

    def kill(self):
        """kill -9 of the keeper, and so of the daemon proper, which dies a moment later: both are gone then."""
        proper = os.pidfd_open(self.pid)
        self.expected = -signal.SIGKILL
        self.proc.kill()
        self.proc.wait()
        gone = select.select([proper], [], [], STOP_TIMEOUT)[0]
        os.close(proper)
        assert gone, f"the daemon outlives its keeper:\n{self.log()[-4000:]}"

    def stop(self, sig=signal.SIGTERM):
        """Ends the daemon; it must end cleanly and in time."""
        if self.proc.poll() is None:
            self.proc.send_signal(sig)
        try:
            status = self.proc.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            raise AssertionError(f"arrayd did not end on {sig!r}:\n{self.log()[-4000:]}") from None
        log = self.log()
        assert not SANITIZER.search(log), log[-8000:]
        assert status == self.expected, f"exit status {status}:\n{log[-4000:]}"


@pytest.fixture(scope="session")
def contract():
    return CONTRACT


@pytest.fixture(scope="session")
def daemon():
    d = Daemon()
    yield d
    d.stop()


@pytest.fixture
def daemon_with():
    """Starts daemons with options of their own; they are ended and checked after the test."""
    started = []

    def start(*args, **kw):
        started.append(Daemon(*map(str, args), **kw))
        return started[-1]

    yield start
    for d in started:
        d.stop()


class Accounts:
    """An accounts file: .path, .token[name]; add() and write() change it, reload() tells a daemon."""

    def __init__(self, folder):
        self.path = folder / "accounts"
        self.token = {}

    def command(self, *args, status=0):
        done = subprocess.run([find_binary(), "token", *args, "--accounts", str(self.path)], text=True,
                              capture_output=True, timeout=60)
        assert done.returncode == status, (args, done)
        return done.stdout if status == 0 else done.stderr

    def add(self, name, **settings):
        """Another token, and lines 'name = value' in the account's section."""
        self.token[name] = self.command("add", name).strip()
        lines = "".join(f"{k.replace('_', '-')} = {v}\n" for k, v in settings.items())
        self.write(self.path.read_text().replace(f"[{name}]\n", f"[{name}]\n{lines}"))
        return self.token[name]

    def write(self, text):
        self.path.write_text(text)

    def client(self, daemon, name):
        return daemon.client(always={"Authorization": f"Bearer {self.token[name]}"})

    @staticmethod
    def reload(daemon, said="accounts were reloaded"):
        before = daemon.log().count("SIGHUP")
        daemon.proc.send_signal(signal.SIGHUP)
        until(lambda: daemon.log().count("SIGHUP") != before)
        last = [line for line in daemon.log().splitlines() if "SIGHUP" in line][-1]
        assert said in last, last
        return last


@pytest.fixture
def accounts(tmp_path):
    return Accounts(tmp_path)


@pytest.fixture
def two_with(daemon_with, accounts):
    """A daemon with two principals, ann and bob; their clients."""
    def start(*args):
        for name in ("ann", "bob"):
            accounts.add(name, role="operator")
        d = daemon_with("--accounts", accounts.path, *args)
        return [accounts.client(d, name) for name in ("ann", "bob")]

    return start


def skip_without(package):
    """On a machine that is there for its GPU, libraries may lie where the build alone was told to look. Elsewhere a missing one is a
    failure: deploy/check installs them."""
    if os.environ.get("ARRAYD_REAL_GPU") and subprocess.run(["pkg-config", "--exists", package]).returncode:
        pytest.skip(f"pkg-config does not find {package}")


@pytest.fixture(scope="session")
def chromium():
    if Browser.missing():
        pytest.skip(Browser.missing())
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def visit(chromium, daemon_with):
    """`page.refused` is what the test has asked for that is an error: parts of addresses. The daemons outlive the pages."""
    pages = []

    def start(daemon, place="#node", **kw):
        page = chromium.page(**kw)
        page.origin, page.refused = f"http://{daemon.host}:{daemon.port}", ()
        pages.append(page)
        page.goto(f"{page.origin}/{place}")
        return page

    yield start
    for page in pages:
        chromium.read(0)
        asked = [url for url in page.asked if not url.startswith((page.origin + "/", f"blob:{page.origin}", "data:"))]
        failed = [text for text in page.failed if not any(part in text for part in page.refused)]
        page.close()
        assert page.errors == [] and failed == [] and asked == []


def fake_gpu():
    """The environment in which a daemon finds the fake driver and compiler, or None."""
    build = pathlib.Path(find_binary()).resolve().parents[1]
    driver, nvrtc, nvml = (build / "tests/fake" / f"libfake{name}.so" for name in ("cuda", "nvrtc", "nvml"))
    compiler = os.environ.get("ARRAYD_FAKE_CXX") or "g++"
    if not driver.exists() or not nvrtc.exists() or not shutil.which(compiler):
        return None
    cache = os.environ.get("ARRAYD_FAKE_CACHE") or str(build / "fake-cache")
    return {"ARRAYD_LIBCUDA": str(driver), "ARRAYD_LIBNVRTC": str(nvrtc), "ARRAYD_LIBNVML": str(nvml),
            "ARRAYD_FAKE_CACHE": cache}


def on_a_real_gpu(daemon_with):
    def skip(*_):
        pytest.skip("only the fake driver does that")

    def start(*args, environment=(), **kw):
        asked = dict(environment)
        wanted = asked.pop("ARRAYD_FAKE_DEVICES", None)
        if wanted == "0" or any(name.startswith("ARRAYD_FAKE") for name in asked):
            skip()
        if wanted:
            if len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.splitlines()) < int(wanted):
                pytest.skip("not so many GPUs")
            asked["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(int(wanted))))
        d = daemon_with("--backend", "cuda", *args, environment=asked, **kw)
        d.fail = skip
        return d

    return start


def wait_for_sums(d):
    """Until no sum of idle memory (compute/engine/sums.c) is to be made, which would take the place of the launch that is to fail."""
    last, since = b"", time.monotonic()
    c = d.client()
    while time.monotonic() < since + 0.7:
        reply = c.get("/metrics")
        now = re.search(rb"\narrayd_memory_sums_total .*", reply.body) if reply.status == 200 else None
        if now is None:
            break
        if now[0] != last:
            last, since = now[0], time.monotonic()
        time.sleep(0.02)
    c.close()


@pytest.fixture
def gpu_with(daemon_with, tmp_path):
    if os.environ.get("ARRAYD_REAL_GPU"):
        return on_a_real_gpu(daemon_with)
    fake = fake_gpu()
    if fake is None:
        pytest.skip("no fake driver in this build, or no g++")

    def start(*args, environment=(), **kw):
        fuse = tmp_path / "fail"
        if "--kernel-cache" not in args:
            args = (*args, "--kernel-cache", "none")
        d = daemon_with("--backend", "cuda", *args,
                        environment={**fake, "ARRAYD_FAKE_FAIL_FILE": str(fuse), **dict(environment)}, **kw)

        def fail(code, at_once=False):
            if not at_once:
                wait_for_sums(d)
            (tmp_path / "fuse").write_text(code)
            (tmp_path / "fuse").rename(fuse)

        d.fail = fail
        return d

    return start


def clean(c):
    """Deletes every job, every array of the session and every session but the default one."""
    for j in c.list_all("/v1/jobs", "jobs"):
        if j["state"] in ("queued", "running"):
            c.delete(f"/v1/jobs/{j['id']}")
        c.delete(f"/v1/jobs/{j['id']}")
    for a in c.list_all("/v1/arrays", "arrays"):
        if a["read_only"]:
            c.patch(f"/v1/arrays/{a['id']}", {"read_only": False})
        r = c.delete(f"/v1/arrays/{a['id']}")
        assert r.status == 204, r
    for s in c.list_all("/v1/sessions", "sessions"):
        if not s["default"]:
            r = c.delete(f"/v1/sessions/{s['id']}")
            assert r.status == 204, r


def until(condition, seconds=TIMEOUT):
    """Waits for what is about to be so, however busy the machine is."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def settle(c, want, seconds=TIMEOUT):
    """Waits until the bytes in use are `want`: work in flight may hold memory a moment longer. Fewer stay fewer."""
    deadline, fewer = time.monotonic() + seconds, 0
    while True:
        used = c.info()["bytes_in_use"]
        fewer = fewer + 1 if want is not None and used < want else 0
        if used == want or fewer > 100 or time.monotonic() > deadline:
            return used
        time.sleep(0.01)


@pytest.fixture
def api(daemon):
    assert daemon.proc.poll() is None, f"the daemon is gone:\n{daemon.log()[-8000:]}"
    c = daemon.client()
    c.quiet()
    before = settle(c, 0, 5)  # sums of idle arrays take some for a while, and so does measuring the copy rate for a job that was looked at
    yield c
    c.close()
    assert daemon.proc.poll() is None, f"the daemon is gone:\n{daemon.log()[-8000:]}"
    c = daemon.client()
    clean(c)
    c.quiet()
    used = settle(c, before)
    c.close()
    assert used == before, f"bytes in use: {used}, before the test {before}"


def pytest_configure(config):
    config.addinivalue_line("markers", "last: runs after everything else")
    config.addinivalue_line("markers", "alone: looks at times, and wants the machine for itself")
    config.addinivalue_line("markers", "release_only: too much for the short run under sanitizers")
    config.addinivalue_line("markers", "slow: only in the long run (ARRAYD_LONG=1)")
    config.addinivalue_line("markers", "in_turn: takes seconds, so that a check takes an eighth of these, others each time (ARRAYD_SLICE)")


# ARRAYD_RUN names a folder, empty at first, that the processes of one run share. Each takes the next
# test that nobody has taken (a file named by the test is there), and leaves there which routes its
# tests have asked for, for the tests marked `last`, which are given to a process of their own
# behind the others.


def run_folder():
    folder = os.environ.get("ARRAYD_RUN")
    return pathlib.Path(folder) if folder else None


def take(folder, item):
    """Whether this test is this process's."""
    try:
        (folder / hashlib.sha256(item.nodeid.encode()).hexdigest()).touch(exist_ok=False)
        return True
    except FileExistsError:
        return False


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    folder = run_folder()
    if folder is None or session.testsfailed or session.config.option.collectonly:
        return None  # pytest's own loop
    mine = (item for item in session.items if take(folder, item))
    item = next(mine, None)
    while item is not None and not session.shouldstop and not session.shouldfail:
        following = next(mine, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following
    return True


def pytest_sessionfinish():
    folder = run_folder()
    if folder is not None:
        CONTRACT.leave(folder / f"{os.getpid()}.seen")


def whole_run(config):
    """Whether every test of this folder was asked for, in this process or in those before it."""
    folder = run_folder()
    if folder is not None:
        CONTRACT.take(folder.glob("*.seen"))
        return True
    options = config.option
    if any(getattr(options, o, False) for o in ("keyword", "markexpr", "lf", "failedfirst")):
        return False
    if any("::" in a or a.endswith(".py") for a in config.args):
        return False
    return not os.environ.get("ARRAYD_SUBSET")


FEW_CASES = 4
WHOLE = {"path", "method", "route", "url", "ask", "take", "way", "command", "page"}  # requests, pages


def choose_cases(items, seed):
    """Which cases to leave out: of a function that has many, two thirds, others with each seed, but not the last with some value of a
    parameter that has few, such as a backend or a boundary. Where requests or pages are a parameter, all are taken: each route is asked for."""
    functions = {}
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("in_turn") and not WHOLE.intersection(item.callspec.indices):
            functions.setdefault(item.nodeid.split("[")[0], []).append(item)
    left = set()
    for cases in functions.values():
        if len(cases) <= FEW_CASES:
            continue
        values = {}
        for item in cases:
            for name, value in item.callspec.indices.items():
                values.setdefault(name, set()).add(value)
        missing = {(name, value) for name, all_values in values.items() if len(all_values) <= FEW_CASES for value in all_values}
        wanted = max(FEW_CASES, -(-len(cases) // 3))
        cases.sort(key=lambda item: hashlib.sha256((seed + item.nodeid).encode()).digest())
        taken = []
        for item in cases:
            if new := missing.intersection(item.callspec.indices.items()):
                missing -= new
                taken.append(item)
        rest = [item for item in cases if item not in taken]
        left.update(rest[max(0, wanted - len(taken)):])
    return left


def is_taken(item, seed):
    """Whether it is one of the eighth whose turn it is with this seed, any text."""
    return int.from_bytes(hashlib.sha256((seed + item.nodeid).encode()).digest()[:4], "big") % 8 == 0


def leave_out(config, items, left):
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config, items):
    part = os.environ.get("ARRAYD_PART")
    if seed := os.environ.get("ARRAYD_SLICE"):  # which of a function's many cases, and of the tests that take seconds
        left = choose_cases(items, seed)
        if not part:
            left.update(item for item in items if item.get_closest_marker("in_turn") and not is_taken(item, seed))
        leave_out(config, items, left)
    if seed := part:  # which of all tests
        leave_out(config, items, {item for item in items if not is_taken(item, seed)})
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)
    for item in items:
        if item.get_closest_marker("slow") and not os.environ.get("ARRAYD_LONG"):
            item.add_marker(pytest.mark.skip(reason="only in the long run"))
        if item.get_closest_marker("last") and not whole_run(config):
            item.add_marker(pytest.mark.skip(reason="only where every test runs"))
