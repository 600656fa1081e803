"""Jobs: programs that the server runs."""
from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ._bar import Bar, of_bytes, steps_line
from ._errors import ENDED, ArraydError, ConnectionLost, NotFound, failed_at, failure_of, moved_by, place_of
from ._events import STREAM, Absence, Events
from ._replies import EVENT, JOB
from ._requests import Request, Steps

if TYPE_CHECKING:
    from ._array import Array
    from ._client import Client
    from ._namespace import Namespace

class JobFailed(ArraydError, RuntimeError):
    """A program that failed: the daemon's `code` and `detail`, and the statement, with a mark below the place if it is
    known. `job` has the daemon's full status, for example `job.status["failed_step"]`."""

    def __init__(self, job: "JobStatus"):
        self.job = job
        e = failure_of(job.status)
        super().__init__(e.status, e.code, e.detail, e.pointer, e.offset, place_of(e, job.texts))

    def _text(self) -> str:
        status = self.job.status
        kind = moved_by(status)
        what = f"the {kind} of {status[kind]['folder']}/{status[kind]['path']}" if kind else f"job {self.job.id}"
        return f"{what} {self.job.state}{f' {failed_at(status)}' if not kind or self.job.step else ''}: {super()._text()}"

    def with_expression(self, expression: str) -> "ArraydError":
        return self  # it has the statement

    def __reduce__(self) -> Any:
        return type(self), (self.job,)


class JobStatus:
    """A program that runs on the server. `status` is the latest status from the server."""

    LONGEST = 30.0  # seconds that one request waits for its end, unless the transport's timeout is shorter
    PAUSE_S = 0.05  # between requests where it waits for less than HTTP can say

    def __init__(self, client: "Namespace", status: Dict[str, Any], arrays: List["Array"], texts: Optional[Mapping[str, str]] = None):
        self._namespace, self.status = client, status
        self._arrays = arrays  # they live as long as it may write to them
        self.texts = texts or {}  # by JSON pointers: the statements and expressions, of a program that this client began

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
        """The values recorded so far: value k is from after step (k + 1)*record_every."""
        records: Dict[str, List[Any]] = self.status.get("records", {})
        return records

    def _request(self, method: str, more: str = "", **headers: str) -> Request:
        own = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return Request(method, f"/v1/jobs/{self.id}{more}", safe=method == "GET", headers=(*self._namespace._engine.headers, *own))

    def _listening(self, last: str = "") -> Request:
        """For its events, from those after `last` on."""
        more = {"Last_Event_ID": last} if last else {}
        return self._request("GET", "/events", Accept=STREAM, **more)

    def _waiting(self, until: Optional[float]) -> Tuple[Request, float]:
        """A request that is answered when it has ended, or after a while, and how long to sleep before it."""
        left = self.LONGEST if until is None else until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"job {self.id} goes on: step {self.step} of {self.status.get('steps')}")
        timeout = self._namespace._transport.timeout
        whole = int(min(left, self.LONGEST if timeout is None else timeout / 2, self.LONGEST))  # RFC 7240: whole seconds
        if whole < 1:
            return self._request("GET"), min(left, self.PAUSE_S)
        return self._request("GET", "?wait=1", Prefer=f"wait={whole}"), 0.0

    def _cancelling(self) -> Steps[None]:
        """DELETE, unless the job has ended: then DELETE would remove it."""
        if not self.ended:
            self.status = (yield self._request("GET")).json(JOB)
        if self.ended:
            return
        try:
            r = yield self._request("DELETE")
        except NotFound:
            r = None
        # It may have ended in between: then DELETE removed it, and how it ended is unknown.
        self.status = r.json(JOB) if r and r.body else {**self.status, "state": "cancelled"}

    def _absence(self) -> Absence:
        return Absence(f"job {self.id}, which may be going on")

    def _said(self, status: Dict[str, Any]) -> None:
        self.status = {**self.status, **status}


class StepsBar:
    """A job's progress bar on standard error: tqdm's, where that is installed, else this package's own, which off a terminal is a line now
    and then. Its last line, which stays, is how far the job is at the end."""

    def __init__(self, job: JobStatus):
        self._job = job
        self._own: Optional[Bar] = None
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            self._own = Bar(True)
        else:
            self._bar = tqdm(total=job.status.get("steps"), **({"unit": "B", "unit_scale": True, "unit_divisor": 1024} if of_bytes(job.status)
                                                               else {"unit": "step"}))

    def __enter__(self) -> "StepsBar":
        return self

    def __exit__(self, *_: Any) -> None:
        if self._own is not None:
            own = self._own
            own.finish(lambda width: steps_line(own, self._job.status, width))
        else:
            if self._job.step > self._bar.n:
                self.show(self._job.status)
            self._bar.close()

    def show(self, status: Dict[str, Any]) -> None:
        if self._own is not None:
            own = self._own
            own.update(lambda width: steps_line(own, status, width))
        else:
            if of_bytes(status) and "steps" in status:
                self._bar.total = status["steps"]  # is known some time after the beginning
            self._bar.update(int(status.get("step", self._bar.n)) - self._bar.n)


class Job(JobStatus):
    """A program that runs on the server."""

    def __init__(self, client: "Client", status: Dict[str, Any], arrays: List["Array"], texts: Optional[Mapping[str, str]] = None):
        super().__init__(client, status, arrays, texts)
        self._client = client

    def refresh(self) -> "Job":
        self.status = self._client._transport.send(self._request("GET")).json(JOB)
        return self

    def wait(self, timeout: Optional[float] = None, *, progress: bool = False) -> "Job":
        """Waits until the job ends, also if the daemon is restarted meanwhile. Raises TimeoutError after `timeout` seconds, and JobFailed
        if the job failed. With `progress`, a progress
        bar is shown on standard error: tqdm's if it is installed, otherwise this package's own."""
        until = None if timeout is None else time.monotonic() + timeout
        if progress and not self.ended:
            self._show(until)
        absence = self._absence()
        while not self.ended:
            request, pause = self._waiting(until)
            time.sleep(pause)
            try:
                self.status = self._client._transport.send(request).json(JOB)
            except ArraydError as e:
                time.sleep(absence.pause(e, until))
            else:
                absence.over()
        if self.state == "failed":
            raise JobFailed(self)
        return self

    def _show(self, until: Optional[float]) -> None:
        with StepsBar(self) as bar:
            with contextlib.suppress(ConnectionLost):  # nothing came for a while: then it is waited for without the bar
                for status in self._events(until):
                    bar.show(status)

    def events(self) -> Iterator[Dict[str, Any]]:
        """The job's status each time it changes, until it ends (Server-Sent Events)."""
        return self._events(None)

    def _events(self, until: Optional[float]) -> Iterator[Dict[str, Any]]:
        """`until`: when nobody waits for them any more, and they are a ConnectionLost or end."""
        events, absence = Events(self._listening(), EVENT), self._absence()
        while not events.ended:
            lost: Optional[ArraydError] = None
            try:
                with self._client._transport.stream(self._listening(events.last)) as reply:
                    if until is not None:
                        reply.within(until - time.monotonic())
                    for raw in reply.lines():
                        if until is not None:
                            if time.monotonic() >= until:
                                return
                            reply.within(until - time.monotonic())
                        event = events.line(raw)
                        if event is not None:
                            absence.over()
                            self._said(event)
                            yield self.status
            except ArraydError as e:
                lost = e
            if not events.ended:
                events.cut()
                time.sleep(absence.pause(lost, until))
        self.refresh()

    def cancel(self) -> "Job":
        """Stops the job after a whole step. A job that has ended stays as it is."""
        self._client._carry(self._cancelling())
        return self

    def resume(self) -> "Job":
        """Continues from the last whole step."""
        self._client._transport.send_writes()
        self.status = self._client._transport.send(self._request("POST", "/resume")).json(JOB)
        return self
