"""Jobs: programs that the server runs."""
from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

from ._transport import Request

if TYPE_CHECKING:
    from ._array import Array
    from ._client import Client
    from ._namespace import Namespace

ENDED = ("done", "failed", "cancelled")


class JobFailed(RuntimeError):
    """A program that came to no good end; `job` has the step and the statement."""

    def __init__(self, job: "JobStatus"):
        self.job = job
        error = job.status.get("error") or {}
        super().__init__(f"job {job.id} {job.state} at step {job.step}: {error.get('detail', 'no reason was given')}")


class JobStatus:
    """A program on its way. `status` is what the server last said of it."""

    LONGEST = 30.0  # seconds that one request waits for its end

    def __init__(self, client: "Namespace", status: Dict[str, Any], arrays: List["Array"]):
        self._namespace, self.status = client, status
        self._arrays = arrays  # they live as long as it may write to them

    def __repr__(self) -> str:
        return f"<arrayd.{type(self).__name__} {self.id}: {self.state}, step {self.step} of {self.status.get('steps')}>"

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

    def _request(self, method: str, more: str = "", **headers: str) -> Request:
        own = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return Request(method, f"/v1/jobs/{self.id}{more}", safe=method == "GET", headers=(*self._namespace._engine.headers, *own))

    def _waiting(self, until: Optional[float]) -> Request:
        """A request that is answered when it has ended, or after a while."""
        left = self.LONGEST if until is None else min(self.LONGEST, until - time.monotonic())
        if left <= 0:
            raise TimeoutError(f"job {self.id} goes on: step {self.step} of {self.status.get('steps')}")
        return self._request("GET", "?wait=1", Prefer=f"wait={max(1, int(left))}")

    def _said(self, status: Dict[str, Any]) -> None:
        self.status = {**self.status, **status}


class Events:
    """Server-Sent Events (the HTML standard's text/event-stream) of one kind: their data, as JSON."""

    def __init__(self) -> None:
        self._data: List[str] = []

    def line(self, raw: bytes) -> Optional[Dict[str, Any]]:
        """The event that this line ends, or None."""
        text = raw.decode().rstrip("\r\n")
        if text.startswith("data:"):
            self._data.append(text[5:].lstrip())
        elif not text and self._data:
            event: Dict[str, Any] = json.loads("\n".join(self._data))
            self._data = []
            return event
        return None


class StepsBar:
    """A progress bar: tqdm's, where that is installed."""

    def __init__(self, steps: Any):
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            self._bar = None
        else:
            self._bar = tqdm(total=steps, unit="step")

    def __bool__(self) -> bool:
        return self._bar is not None

    def __enter__(self) -> "StepsBar":
        return self

    def __exit__(self, *_: Any) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, status: Dict[str, Any]) -> None:
        if self._bar is not None:
            self._bar.update(int(status.get("step", self._bar.n)) - self._bar.n)


class Job(JobStatus):
    """A program on its way."""

    def __init__(self, client: "Client", status: Dict[str, Any], arrays: List["Array"]):
        super().__init__(client, status, arrays)
        self._client = client

    def refresh(self) -> "Job":
        self.status = self._client.request("GET", f"/v1/jobs/{self.id}")
        return self

    def wait(self, timeout: Optional[float] = None, *, progress: bool = False) -> "Job":
        """Until it ends, or TimeoutError. With `progress` a bar is shown (tqdm's, where that is installed). JobFailed if it failed."""
        if progress and not self.ended:
            self._show(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        while not self.ended:
            self.status = self._client._transport.send(self._waiting(until)).json()
        if self.state == "failed":
            raise JobFailed(self)
        return self

    def _show(self, timeout: Optional[float]) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        with StepsBar(self.status.get("steps")) as bar:
            for status in self.events() if bar else ():
                bar.show(status)
                if until is not None and time.monotonic() > until:
                    return

    def events(self) -> Iterator[Dict[str, Any]]:
        """The job each time something has changed, to its end (Server-Sent Events)."""
        events = Events()
        with self._client._transport.stream(self._request("GET", "/events", Accept="text/event-stream")) as reply:
            for raw in reply.lines():
                event = events.line(raw)
                if event is not None:
                    self._said(event)
                    yield self.status
        self.refresh()

    def cancel(self) -> "Job":
        """Ends it after a whole step."""
        self._client.request("DELETE", f"/v1/jobs/{self.id}")
        return self.refresh()

    def resume(self) -> "Job":
        """Goes on from the last whole step."""
        self.status = self._client.request("POST", f"/v1/jobs/{self.id}/resume") or self.refresh().status
        return self
