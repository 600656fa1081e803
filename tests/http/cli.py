"""arrayd-cli for tests: in this process, as a process of its own, and on a terminal.

    cli(daemon)(*words)     main() in this process: what it returns, and what it wrote
    environment(daemon)     of processes that may call `arrayd-cli`: PATH has it
    Terminal(words, env)    a program on a pseudo-terminal
"""
import codecs
import contextlib
import fcntl
import io
import os
import pathlib
import pty
import re
import select
import shlex
import signal
import struct
import sys
import termios
import time
from types import SimpleNamespace

from client import REPO

SOURCE = REPO / "clients" / "python" / "src"
sys.path.insert(0, str(SOURCE))
from arrayd.cli import main  # noqa: E402

ANSI = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>78])|\x07")


def cli(url):
    """url: a daemon's, or a daemon."""
    url = url if isinstance(url, str) else f"http://127.0.0.1:{url.port}"

    def run(*words, stdin=b""):
        out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
        err = io.StringIO()
        before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin))
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main(["--url", url, *map(str, words)])
        finally:
            sys.stdin = before
        data = out.buffer.getvalue()
        return SimpleNamespace(status=status, data=data, out=data.decode("utf-8", "replace"), err=err.getvalue())

    return run


def environment(folder, url="", **more):
    """A folder with arrayd-cli in it is made."""
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    program = folder / "arrayd-cli"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(SOURCE))} exec {shlex.quote(sys.executable)} -m arrayd "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "ARRAYD_URL": url, **more}


class Terminal:
    """A program on a terminal of its own; what it shows is kept, without the codes that only move and colour."""

    def __init__(self, words, env, rows=24, columns=100, cwd=None, pixels=(0, 0)):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                if cwd:
                    os.chdir(cwd)
                os.execvpe(words[0], words, {"TERM": "xterm", "LC_ALL": "C.UTF-8", **env})
            finally:
                os._exit(127)
        self.seen = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end within a letter
        self.resize(rows, columns, pixels)

    def resize(self, rows, columns, pixels=(0, 0)):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, *pixels))

    def type(self, text):
        os.write(self.fd, text.encode())

    def read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.seen += self.decoder.decode(os.read(self.fd, 65536))
            except OSError:  # it has ended
                return False
        return True

    def until(self, pattern, seconds=60):
        """Shows what is asked for; all that was shown up to then is forgotten afterwards."""
        end = time.monotonic() + seconds
        while True:
            text = ANSI.sub("", self.seen)
            if re.search(pattern, text):
                self.seen = ""
                return text
            assert time.monotonic() < end, f"{pattern!r} did not come: {text[-1000:]!r}"
            if not self.read(0.05):
                assert re.search(pattern, ANSI.sub("", self.seen)), f"it has ended: {text[-1000:]!r}"

    def end(self, seconds=60):
        """Its exit status, and what else it showed."""
        end = time.monotonic() + seconds
        while self.read(0.05) and time.monotonic() < end:
            pass
        while (ended := os.waitpid(self.pid, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
            time.sleep(0.01)
        if ended == (0, 0):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)
        assert ended != (0, 0), f"it does not end: {self.seen[-1000:]!r}"
        return os.waitstatus_to_exitcode(ended[1]), self.seen
