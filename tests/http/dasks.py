"""A dask cluster as it would be on several machines: a scheduler, and workers with a daemon each, all in processes of their own."""
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

from client import REPO
from conftest import Daemon

SOURCE = REPO / "clients" / "python" / "src"
IN_THE_DAEMONS = {f"DASK_DISTRIBUTED__WORKER__MEMORY__{what}": "False" for what in ("SPILL", "PAUSE", "TERMINATE")}


class Program:
    """A process of dask's, and its log."""

    def __init__(self, module, *args, environment=(), ready):
        self.log = tempfile.NamedTemporaryFile(prefix="dask-", suffix=".log")
        path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen([sys.executable, "-m", module, *args, "--host", "127.0.0.1", "--no-dashboard"], stdout=self.log, stderr=self.log,
                                        env={**os.environ, "PYTHONPATH": path, **dict(environment)}, cwd=tempfile.gettempdir())
        until = time.monotonic() + 60
        while not (found := re.search(ready, self.text())):
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise RuntimeError(self.text())
            time.sleep(0.02)
        self.found = found[1]

    def text(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Cluster:
    """Two daemons with `limit` bytes of memory each, and a worker for each; `spills`: which share of them chunks may take."""

    def __init__(self, limit, spills=False):
        with contextlib.ExitStack() as stack:
            self.daemons = []
            for _ in range(2):
                self.daemons.append(Daemon("--backend", "cpu", "--memory-limit", str(limit)))
                stack.callback(self.daemons[-1].stop)
            # the scheduler has no daemon, and nobody to start one
            nobody = {"ARRAYD_URL": "http://127.0.0.1:1", "PATH": os.environ["PATH"]}
            scheduler = Program("distributed.cli.dask_scheduler", "--port", "0", environment=nobody, ready=r"Scheduler at:\s+(tcp://\S+)")
            stack.callback(scheduler.stop)
            self.address, self.workers = scheduler.found, []
            for url in self.urls:
                environment = {**IN_THE_DAEMONS, "ARRAYD_URL": url, "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": str(spills)}
                self.workers.append(Program("distributed.cli.dask_worker", self.address, "--nthreads", "2", "--no-nanny", "--memory-limit",
                                            str(limit), environment=environment, ready=r"Registered to:\s+(tcp://\S+)"))
                stack.callback(self.workers[-1].stop)
            self.close = stack.pop_all().close

    @property
    def urls(self):
        return [f"http://127.0.0.1:{d.port}" for d in self.daemons]

    def metric(self, name):
        """Of each daemon."""
        found = []
        for url in self.urls:
            with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
                found.append(int(re.search(rf"^{name} (\d+)$", reply.read().decode(), re.M)[1]))
        return found
