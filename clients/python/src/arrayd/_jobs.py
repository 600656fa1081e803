"""Jobs: programs that the server runs."""
from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

from ._transport import Request

if TYPE_CHECKING:
    from ._array import Array
    from ._client import Client

ENDED = ("done", "failed", "cancelled")


class JobFailed(RuntimeError):
    """A program that came to no good end; `job` has the step and the statement."""

    def __init__(self, job: "Job"):
        self.job = job
        error = job.status.get("error") or {}
        super().__init__(f"job {job.id} {job.state} at step {job.step}: {error.get('detail', 'no reason was given')}")


class Job:
    """A program on its way. `status` is what the server last said of it."""

    def __init__(self, client: "Client", status: Dict[str, Any], arrays: List["Array"]):
        self._client, self.status = client, status
        self._arrays = arrays  # they live as long as it may write to them

    def __repr__(self) -> str:
        return f"<arrayd.Job {self.id}: {self.state}, step {self.step} of {self.status.get('steps')}>"

    @property
    def id(self) -> str:
        return str(self.status["id"])

    @property
    def state(self) -> str:
        return str(self.status["state"])

    @property
    def step(self) -> int:
        return int(self.status.get("step", 0))

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def records(self) -> Dict[str, List[Any]]:
        """What was recorded so far: value k is that after step (k + 1)*record_every."""
        records: Dict[str, List[Any]] = self.status.get("records", {})
        return records

    def refresh(self) -> "Job":
        self.status = self._client.request("GET", f"/v1/jobs/{self.id}")
        return self

    def wait(self, timeout: Optional[float] = None, *, progress: bool = False) -> "Job":
        """Until it ends, or TimeoutError. With `progress` a bar is shown (tqdm's, where that is installed). JobFailed if it failed."""
        if progress and not self.ended:
            self._show(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        while not self.ended:
            left = 30.0 if until is None else min(30.0, until - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"job {self.id} goes on: step {self.step} of {self.status.get('steps')}")
            r = self._client._transport.send(Request("GET", f"/v1/jobs/{self.id}?wait=1", safe=True,
                                                     headers=(*self._client._engine.headers, ("Prefer", f"wait={max(1, int(left))}"))))
            self.status = r.json()
        if self.state == "failed":
            raise JobFailed(self)
        return self

    def _show(self, timeout: Optional[float]) -> None:
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped]
        except ImportError:
            return
        until = None if timeout is None else time.monotonic() + timeout
        with tqdm(total=self.status.get("steps"), unit="step") as bar:
            for event in self.events():
                bar.update(int(event.get("step", bar.n)) - bar.n)
                if until is not None and time.monotonic() > until:
                    return

    def events(self) -> Iterator[Dict[str, Any]]:
        """The job each time something has changed, to its end (Server-Sent Events)."""
        c, reply = self._client._transport.stream(Request("GET", f"/v1/jobs/{self.id}/events", accept="text/event-stream",
                                                          headers=self._client._engine.headers))
        try:
            data: List[str] = []
            for raw in reply:
                line = raw.decode().rstrip("\r\n")
                if line.startswith("data:"):
                    data.append(line[5:].lstrip())
                elif not line and data:
                    self.status = {**self.status, **json.loads("\n".join(data))}
                    data = []
                    yield self.status
        finally:
            c.close()
        self.refresh()

    def cancel(self) -> "Job":
        """Ends it after a whole step."""
        self._client.request("DELETE", f"/v1/jobs/{self.id}")
        return self.refresh()

    def resume(self) -> "Job":
        """Goes on from the last whole step."""
        self.status = self._client.request("POST", f"/v1/jobs/{self.id}/resume") or self.refresh().status
        return self
