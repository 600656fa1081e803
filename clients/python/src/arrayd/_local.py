"""A daemon of this process' own, which ends with the process, however that ends; and where a daemon is that nobody gave the address of.

The daemon's standard input is a pipe whose other end is here, and nowhere else: forked children close theirs. When the process has gone,
killed or not, the kernel closes it, and the daemon ends and removes its socket (its option `private`). It is in a session of its own, so
that an interrupt from the terminal reaches only the script.
"""
from __future__ import annotations

import atexit
import contextlib
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, TypeVar, Union

from ._client import Client, opened
from ._devices import Device, chosen
from ._endpoint import Endpoint
from ._errors import ArraydError, BadReply, BadValue, ConnectionLost
from ._replies import PROCESS
from ._requests import Request
from ._transport import Transport
from ._writes import finish

# where a daemon is by itself, and where the configuration of its packages has its socket
USUAL = ("http://127.0.0.1:7411", "unix:/run/arrayd/arrayd.sock")
ANSWER_S = 15.0  # for which a daemon that is being started again may not answer: its keeper does after 10 s
START_S = 60.0  # in which it listens, where it restores nothing
END_S = 30.0  # for which the end is waited for
LONGEST = 80  # bytes of a folder's path: a socket's has at most 107
LINES = 10  # of the log that an error shows
CARRIED = os.path.join(os.path.dirname(__file__), "_program", "arrayd")  # by wheels of `deploy/build --wheel`
USAGE = 2  # the exit status after a wrong option
# of a service manager, which they tell something about this process
MANAGER = ("NOTIFY_SOCKET", "FDSTORE", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")

E = TypeVar("E", bound=Endpoint)
Path = Union[str, "os.PathLike[str]"]


class Daemon:
    """One that runs until `end()`, or the end of this process."""

    def __init__(self, program: str, options: Mapping[str, Any], log: Optional[str]):
        self.users: "weakref.WeakSet[Endpoint]" = weakref.WeakSet()
        self._program = program
        self._patience = None if options.get("state_dir") else END_S  # what it saves may take its time
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._log = tempfile.TemporaryFile() if log is None else open(log, "a+b")
        self._before = os.fstat(self._log.fileno()).st_size
        self._folder = _new_folder()
        self.url = f"unix:{self._folder}/arrayd.sock"
        theirs, self._pipe = os.pipe()
        _all.add(self)
        try:
            command = [program, *_arguments({"allow_export": True, "log_level": "warn", "drain_timeout": 1, **options, "private": self._folder,
                                             "listen": [self.url, *_several(options.get("listen"))]})]
            env = {name: value for name, value in os.environ.items() if name not in MANAGER}
            env.update(_compiler(env))
            self._process = subprocess.Popen(command, stdin=theirs, stdout=self._log, stderr=self._log, env=env, start_new_session=True)
            self._wait()
        except BaseException as e:
            self.end()
            if isinstance(e, OSError) and not isinstance(e, ArraydError):
                raise ConnectionLost(0, "not_started", f"{program}: {e}") from e
            raise
        finally:
            os.close(theirs)

    @property
    def listens(self) -> bool:
        """Also while its keeper is starting it again."""
        if self._pipe < 0:
            return False
        with socket.socket(socket.AF_UNIX) as s, contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            s.connect(self.url[5:])
            return True
        return False

    def _wait(self) -> None:
        """Until it listens. One that reads what it has saved may take its time."""
        assert self._process is not None
        pause, until = 0.001, time.monotonic() + (START_S if self._patience is not None else math.inf)
        while not self.listens:
            if self._process.poll() is not None:
                raise self._failed()
            if time.monotonic() > until:
                self._process.kill()
                raise ConnectionLost(0, "not_started", f"{self._program} does not listen after {START_S:g} s: is it arrayd's daemon?")
            time.sleep(pause)
            pause = min(pause * 1.2, 0.05)

    def _failed(self) -> ArraydError:
        assert self._process is not None
        log = self._log.fileno()
        text = os.pread(log, os.fstat(log).st_size - self._before, self._before).decode("utf-8", "replace").strip()
        last = "\n".join(text.splitlines()[-LINES:])
        if self._process.returncode == USAGE:
            return BadValue(0, "bad_option", last.replace("arrayd: ", "", 1))
        return ConnectionLost(0, "not_started", f"{self._program} ended with status {self._process.returncode}:\n{last}")

    def leave(self, endpoint: Endpoint) -> None:
        """It ends with the last who leaves it; those who are merely forgotten do not count."""
        with _lock:
            self.users.discard(endpoint)
            if not any(not user.closed for user in self.users):
                self.end()

    def end(self) -> None:
        pipe, self._pipe = self._pipe, -1
        if pipe < 0:
            return
        os.close(pipe)
        try:
            if self._process is not None:
                self._process.wait(self._patience)
        except BaseException as e:
            assert self._process is not None
            self._process.kill()  # and what it keeps with it
            self._process.wait()
            if not isinstance(e, subprocess.TimeoutExpired):
                raise
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._log.close()

    def in_child(self) -> None:
        """After a fork: it is the parent's."""
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)
        if self._process is not None and self._process.returncode is None:
            self._process.returncode = 0  # or its finalizer would complain


def _new_folder() -> str:
    """That only this user can look into: not in XDG_RUNTIME_DIR, which is emptied when the user logs out, while a script may run on."""
    folder = os.path.abspath(tempfile.mkdtemp(prefix="arrayd-"))  # TMPDIR may be "."
    if len(os.fsencode(folder)) > LONGEST:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="arrayd-", dir="/tmp")
    return folder


def _several(value: Any) -> List[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def _arguments(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        for v in _several(value):
            text = ("yes" if v else "no") if isinstance(v, bool) else os.fspath(v) if isinstance(v, os.PathLike) else str(v)
            yield f"--{name.replace('_', '-')}={text}"


def _compiler(env: Mapping[str, str]) -> Iterator[Tuple[str, str]]:
    """NVIDIA's packages for pip, which PyTorch needs too, have CUDA's run-time compiler where no linker looks."""
    places = [os.path.join(folder, "nvidia", "cuda_nvrtc", "lib", "libnvrtc.so.12") for folder in sys.path]
    found = [path for path in places if os.path.exists(path)]
    if found and "ARRAYD_LIBNVRTC" not in env:
        yield "ARRAYD_LIBNVRTC", found[0]


def _found(program: Optional[Path]) -> str:
    found = shutil.which(os.fspath(program)) if program else CARRIED if os.access(CARRIED, os.X_OK) else shutil.which("arrayd")
    if found is None:
        looked = f"{os.fspath(program)!r} is no program" if program else f"{CARRIED} does not exist, nor is there an 'arrayd' on PATH"
        raise ConnectionLost(0, "not_started", f"there is no daemon to be started: {looked}. In arrayd's sources, ./deploy/build builds one, "
                             "and ./deploy/build --wheel a package for pip that has one in it; local(program=…) says where it is")
    return found


def started(make: Callable[[str], E], program: Optional[Path] = None, log: Optional[Path] = None, options: Mapping[str, Any] = {}) -> E:
    """What `make` makes of its address: the daemon of these options, which is started if this process has none."""
    options = {name: value for name, value in sorted(options.items()) if value is not None}
    file = os.path.abspath(log) if log is not None else None
    with _lock:
        path = _found(program)
        key = (path, tuple(_arguments(options)), file)
        daemon = _running.get(key)
        if daemon is None or not daemon.listens:
            if daemon is not None:
                daemon.end()
            daemon = _running[key] = Daemon(path, options, file)
        endpoint = make(daemon.url)
        endpoint.daemon = daemon
        daemon.users.add(endpoint)
    return endpoint


def local(*, program: Optional[Path] = None, log: Optional[Path] = None, timeout: Optional[float] = None, device: Optional[Device] = None,
          **options: Any) -> Client:
    """A client of a daemon of this process' own, which is started, or is there already with the same options.

    The options are the daemon's, with underscores: `local(memory_limit="4GiB", backend="cpu")`. The daemon listens on a Unix socket
    that only this user reaches, needs no accounts, and exports memory. It ends when the last client of it is closed, and at the latest
    with this process, even if that is killed; then nothing is left of it. A forked child does not end it, and starts one of its own.

    `program` is the daemon's (by itself the one that came with this package, or else `arrayd` on PATH), `log` a file to which it
    logs, `timeout` and `device` those of `connect`: `local(mesh="all", device="mesh")`. Raises ConnectionLost if the
    daemon cannot be found or started, BadValue if it does not know an option, or has no such device.
    """
    return opened(started(lambda url: Transport(url, os.environ.get("ARRAYD_TOKEN"), timeout), program, log, options), device=chosen(None, device))


# --- without an address ---


def address(token: Optional[str]) -> Optional[str]:
    """ARRAYD_URL, or where a daemon of this host usually is and does answer; None: nowhere."""
    named = os.environ.get("ARRAYD_URL")
    if named:
        return named
    for url in USUAL:
        transport = Transport(url, token or os.environ.get("ARRAYD_TOKEN"), ANSWER_S)
        try:
            transport.send(Request("GET", "/v1/info")).json(PROCESS)
            return url
        except (ConnectionLost, BadReply):
            pass
        except ArraydError as e:
            if e.code != "unknown":  # it is arrayd, and says no
                return url
        finally:
            transport.close()
    return None


def reached(make: Callable[[str], E], token: Optional[str]) -> E:
    """What `make` makes of the address of a daemon that is there, or of one that is started."""
    url = address(token)
    if url is not None or token is not None:  # who has a token means a daemon that has accounts
        return make(url or USUAL[0])
    try:
        return started(make)
    except ConnectionLost as e:
        raise ConnectionLost(0, e.code, f"ARRAYD_URL is not set, no arrayd answers at {' or '.join(USUAL)}, and {e.detail}") from None


# --- the process ---

_lock = threading.RLock()
_all: "weakref.WeakSet[Daemon]" = weakref.WeakSet()
_running: Dict[Tuple[str, Tuple[str, ...], Optional[str]], Daemon] = {}


@atexit.register
def _at_exit() -> None:
    finish()
    for daemon in list(_all):
        daemon.end()


def _in_child() -> None:
    global _lock
    _lock = threading.RLock()
    for daemon in list(_all):
        daemon.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
