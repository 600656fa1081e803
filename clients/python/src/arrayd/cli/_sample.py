"""What `top` shows, as data: two looks at the daemon and what has gone on between them.

A session's, its user's and a job's figures are what any user may read of his own (/v1/info, /v1/sessions, /v1/jobs). Of others
/metrics and /v1/admin tell, which are for operators: each session and job has its `owner` then. What may not be read the sample
says in `hidden`.
"""
from __future__ import annotations

import re
import time
from typing import Any, Dict, List, Optional, Tuple

from .._errors import ENDED, ArraydError
from .._replies import ABOUT, JOBS, LISTED_SESSION, OTHERS_JOBS, OTHERS_SESSION
from .._requests import Request
from ._context import Context

Sample = Dict[str, Any]
METRIC = re.compile(r'^(\w+)(?:\{([^}]*)\})? (\S+)$', re.M)
OF_PRINCIPAL = "arrayd_principal_"
PAGE = 200  # jobs that are asked for at once
AGAIN = 20  # looks, after which jobs that have ended are looked at again: one may have been resumed


def metrics(text: str) -> Tuple[Dict[str, float], Dict[str, Dict[str, float]]]:
    """Of the Prometheus text: sums of what has one name (buckets left out), and each principal's figures."""
    total: Dict[str, float] = {}
    of: Dict[str, Dict[str, float]] = {}
    for name, labels, value in METRIC.findall(text):
        if name.endswith("_bucket"):
            continue
        try:
            x = float(value)
        except ValueError:  # no line of Prometheus'
            continue
        total[name] = total.get(name, 0.0) + x
        if name.startswith(OF_PRINCIPAL):
            who = re.search(r'principal="([^"]*)"', labels)
            if who:
                of.setdefault(who[1], {})[name[len(OF_PRINCIPAL):]] = x
    return total, of


class Watch:
    """Looks at the daemon again and again."""

    def __init__(self, context: Context):
        self.context = context
        self.before: Optional[Sample] = None
        self._start = ""  # of the list of jobs: those before it have ended
        self._looks = 0
        self._forbidden = ""
        self._all = True  # whether an operator may see everybody's: daemons of earlier versions list one's own alone

    def look(self) -> Sample:
        """ArraydError where the daemon is not there or refuses."""
        context = self.context
        info = context.ask("GET", "/v1/info", ABOUT)
        now = time.monotonic()
        hidden: List[str] = []
        totals: Dict[str, float] = {}
        principals: Dict[str, Dict[str, float]] = {}
        if not self._forbidden:
            try:
                r = context.transport.send(Request("GET", "/metrics", accept="text/plain", safe=True))
                totals, principals = metrics(r.body.decode("utf-8", "replace"))
            except ArraydError as e:
                if e.status not in (401, 403, 404):
                    raise
                self._forbidden = e.detail
        who = info["principal"]
        sessions, jobs = self._of_all(who["role"] == "operator")
        if self._forbidden:
            hidden.append(f"other users, requests and traffic of all: /metrics may not be read ({self._forbidden})")
        elif not self._all:
            hidden.append("sessions and jobs of other users: the daemon lists one's own")
        sample: Sample = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "url": context.url, "version": info["version"],
            "backend": info["backend"], "devices": info["devices"], "bytes_in_use": info["bytes_in_use"],
            "host_bytes_in_use": info["host_bytes_in_use"],
            "you": {"name": who["name"], "role": who["role"], "weight": who["weight"], "quotas": who["quotas"],
                    "device_s": who.get("device_s"), "month_s": who.get("this_month", {}).get("device_s"), "requests": who.get("requests_total")},
            "sessions": sessions, "jobs": jobs, "hidden": hidden, "metrics": None,
            "principals": None, "interval_s": None, "_at": now}
        if totals:
            sample["metrics"] = {k: totals.get(f"arrayd_{name}", 0.0) for k, name in (
                ("uptime_s", "uptime_seconds"), ("requests", "http_requests_total"), ("bytes_in", "http_bytes_in_total"),
                ("bytes_out", "http_bytes_out_total"), ("connections", "http_connections"),
                ("in_flight", "http_requests_in_flight"), ("turns_waiting", "device_turns_waiting"),
                ("arrays", "arrays"), ("sessions", "sessions"))}
            sample["principals"] = [{"name": name, "memory_bytes": v.get("memory_bytes", 0.0), "arrays": v.get("arrays", 0.0),
                                     "sessions": v.get("sessions", 0.0), "requests": v.get("requests_total", 0.0),
                                     "turns_waiting": v.get("turns_waiting", 0.0), "device_s": v.get("device_seconds_total", 0.0), "month_s": v.get("month_device_seconds")}
                                    for name, v in principals.items()]
        _rates(sample, self.before)
        self.before = sample
        return sample

    def _of_all(self, operator: bool) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
        """Sessions and jobs: everybody's, each with its owner, where they may be seen, otherwise one's own."""
        if operator and self._all:
            try:
                found = self.context.pages("/v1/admin/sessions", "sessions", OTHERS_SESSION)
                return [{**x["session"], "owner": x["owner"]} for x in found], self._jobs(True)
            except ArraydError as e:
                if e.status not in (403, 404):
                    raise
                self._start = ""
        self._all = False
        return self.context.pages("/v1/sessions", "sessions", LISTED_SESSION), self._jobs(False)

    def _jobs(self, of_all: bool) -> List[Dict[str, Any]]:
        """Those that have not ended, and the last few that have."""
        self._looks += 1
        after = self._start if self._looks % AGAIN else ""
        jobs: List[Dict[str, Any]] = []
        leading = True
        while True:
            path = f"/v1/{'admin/' if of_all else ''}jobs?limit={PAGE}" + (f"&after={after}" if after else "")
            page = self.context.ask("GET", path, OTHERS_JOBS if of_all else JOBS)
            listed = [{**x["job"], "owner": x["owner"]} for x in page["jobs"]] if of_all else page["jobs"]
            jobs += listed
            leading = leading and all(j["state"] in ENDED for j in listed)
            after = page.get("next") or ""
            if not after:
                break
            if leading:
                self._start = after
        last = [j for j in jobs if j["state"] in ENDED][-5:]
        return [j for j in jobs if j["state"] not in ENDED] + last[::-1]


def _rates(now: Sample, before: Optional[Sample]) -> None:
    """What has gone on since the look before: device time as a part of the time that has passed, and requests a second."""
    if before is None:
        return
    s = max(now["_at"] - before["_at"], 1e-6)
    now["interval_s"] = round(s, 3)

    def rate(a: Dict[str, Any], b: Optional[Dict[str, Any]], key: str, as_: str, digits: int) -> None:
        if b is not None and a.get(key) is not None and b.get(key) is not None:
            a[as_] = round(max(0.0, float(a[key]) - float(b[key])) / s, digits)

    def all_of(key: str, by: str) -> Any:
        known = {x[by]: x for x in before[key] or []}
        return [(x, known.get(x[by])) for x in now[key] or []]

    for a, b in [(now["you"], before["you"]), *all_of("sessions", "id"), *all_of("principals", "name"), *all_of("jobs", "id")]:
        rate(a, b, "device_s", "device", 4)
        rate(a, b, "requests", "requests_s", 2)
    if now["metrics"] and before["metrics"]:
        for key in ("requests", "bytes_in", "bytes_out"):
            rate(now["metrics"], before["metrics"], key, f"{key}_s", 2)


def public(sample: Sample) -> Sample:
    """For --json."""
    return {k: v for k, v in sample.items() if not k.startswith("_")}
