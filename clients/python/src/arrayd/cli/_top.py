"""top: who has what and does what, live.

On a terminal a screen of curses', which knows terminals, their sizes and their moods; the daemon is looked at by a thread, so
that keys are heard at once however slow it is. Elsewhere, and where curses does not know the terminal, the same lines come one
below the other.
"""
from __future__ import annotations

import curses
import json
import queue
import shutil
import sys
import threading
import time
from typing import Any, Dict, List, Optional, Tuple, Union

from .._bar import Bar, at_terminal, count, duration, human
from .._errors import ENDED, ArraydError
from .._replies import INFO
from ._context import Context, device_text, shown, table
from ._sample import Sample, Watch, public
from ._values import explained

Line = Tuple[str, str]  # text, and how it is shown: "", title, head, dim, bad
SORTS = ("device", "memory", "name")
PATIENCE_S = 10.0  # without a byte of the daemon's: then it is said
ONCE_S = 0.5  # between the two looks of --once
KEYS = "q quits, s sorts, space looks now, + and - change the pace"


def top(context: Context) -> int:
    args = context.args
    args.timeout = args.timeout or PATIENCE_S
    watch = Watch(context)
    sort = args.sort or SORTS[0]
    if not args.once and not args.json and args.count is None and at_terminal(sys.stdout) and at_terminal(sys.stdin):
        context.ask("GET", "/v1/info", INFO)  # what is wrong with the address or the token is said before the screen is taken
        try:
            curses.wrapper(Screen(watch, args.delay or 1.0, sort).run)
            return 0
        except curses.error:
            pass
    number = 1 if args.once else args.count
    pause = args.delay or (ONCE_S if args.once else 1.0)
    watch.look()
    while number is None or number > 0:
        time.sleep(pause)
        sample = watch.look()
        if args.json:
            print(json.dumps(public(sample)))
        else:
            columns = shutil.get_terminal_size((200, 24)).columns if at_terminal(sys.stdout) else 200
            for text, _ in lines(sample, columns, sort):
                print(text)
            if number != 1:
                print()
        sys.stdout.flush()
        number = None if number is None else number - 1
    return 0


# --- a sample as lines ---


def percent(x: Optional[float]) -> str:
    return "-" if x is None else f"{100 * x:.1f} %"


def _time(s: Optional[float]) -> str:
    return "-" if s is None else f"{s:.2f}" if s < 1000 else duration(s)


def _does(job: Dict[str, Any]) -> str:
    """How a job's statements begin, or which file it is about."""
    for kind in ("import", "export"):
        if kind in job:
            return shown(f"{kind} {job[kind]['folder']}/{job[kind]['path']}")
    return " ".join("; ".join(job.get("program", {}).get("body", ["-"])).split())


def _sorted(entries: List[Dict[str, Any]], sort: str, memory: str) -> List[Dict[str, Any]]:
    if sort == "name":
        return sorted(entries, key=lambda x: str(x.get("name") or x.get("id")))
    if sort == "memory":
        return sorted(entries, key=lambda x: -float(x[memory]))
    return sorted(entries, key=lambda x: (-float(x.get("device") or 0), -float(x.get("device_s") or 0)))


def lines(s: Sample, columns: int, sort: str) -> List[Line]:
    """The screen's lines, none longer than so many columns."""
    out: List[Line] = []
    you, m = s["you"], s["metrics"]
    parts = [f"arrayd {s['version']} ({s['backend']}) at {s['url']}", *([f"up {duration(m['uptime_s'])}"] if m else []),
             f"{s['time'][11:19]} UTC"]
    _listed(out, parts, columns, "title")
    for d in s["devices"]:
        used = (d["memory"] - d["free"]) / max(d["memory"], 1)
        head, tail = f"device {d['index']}: ", f" {human(d['memory'] - d['free'])} of {human(d['memory'])}"
        bar = " memory " + Bar(False, sys.stdout).drawn(used, 20)
        name = device_text(d)[:max(12, columns - len(head + bar + tail))]
        line = head + name + (bar if len(head + name + bar + tail) <= columns else "") + tail
        kept = f", {human(d['kept'])} kept for new arrays" if d.get("kept") else ""
        out.append((line + (kept if len(line + kept) <= columns else ""), ""))
    parts = [f"arrays hold {human(s['bytes_in_use'])}"]
    if s["host_bytes_in_use"]:
        parts.append(f"{human(s['host_bytes_in_use'])} in host memory")
    if m:
        parts += [f"{count(m.get('requests_s', 0.0))} requests/s", f"in {human(m.get('bytes_in_s', 0.0))}/s",
                  f"out {human(m.get('bytes_out_s', 0.0))}/s", f"{m['connections']:.0f} connections", f"{m['in_flight']:.0f} in flight",
                  f"{m['turns_waiting']:.0f} waiting for the device"]
    _listed(out, parts, columns)
    parts = [f"you: {you['name']} ({you['role']}, weight {you['weight']})"]
    memory = you["quotas"].get("device_memory")
    if memory is not None:
        parts.append(f"memory {human(memory['used'])}" + ("" if memory["limit"] is None else f" of {human(memory['limit'])}"))
    if you.get("device_s") is not None:
        parts += [f"device {_time(you['device_s'])} s", percent(you.get("device"))]
    if you.get("month_s") is not None:
        parts.append(f"this month {_time(you['month_s'])} s")
    if you.get("requests_s") is not None:
        parts.append(f"{count(you['requests_s'])} requests/s")
    _listed(out, parts, columns)
    if s["principals"] is not None:
        _block(out, columns, "USER", [["SESSIONS", "ARRAYS", "MEMORY", "DEVICE s", "MONTH s", "DEVICE", "REQUESTS/s", "WAITING"]] + [
            [f"{p['sessions']:.0f}", count(p["arrays"]), human(p["memory_bytes"]), _time(p["device_s"]), _time(p.get("month_s")),
             percent(p.get("device")), count(p.get("requests_s", 0.0)), f"{p['turns_waiting']:.0f}"]
            for p in _sorted(s["principals"], sort, "memory_bytes")], [p["name"] for p in _sorted(s["principals"], sort, "memory_bytes")])
    sessions = _sorted(s["sessions"], sort, "bytes_in_use")
    others = any(x.get("owner", you["name"]) != you["name"] for x in sessions + s["jobs"])

    def owner(x: Dict[str, Any]) -> List[str]:
        return [x.get("owner", you["name"])] if others else []

    user = ["USER"] if others else []
    _block(out, columns, "SESSION", [[*user, "ID", "ARRAYS", "MEMORY", "LIMIT", "DEVICE s", "DEVICE", "TTL"]] + [
        [*owner(x), x["id"], count(x["arrays"]), human(x["bytes_in_use"]), "-" if x["memory_limit"] is None else human(x["memory_limit"]),
         _time(x.get("device_s")), percent(x.get("device")), "-" if x["ttl_s"] is None else duration(x["ttl_s"])]
        for x in sessions], [x["name"] or "-" for x in sessions])
    names = {x["id"]: x["name"] or x["id"] for x in s["sessions"]}
    if s["jobs"]:
        _block(out, columns, "JOB", [[*user, "SESSION", "STATE", "STEP", "STEPS", "STEPS/s", "LEFT", "DEVICE s", "DEVICE", "PROGRAM"]] + [
            [*owner(j), str(names.get(j["session"], j["session"])), j["state"], count(j["step"]), count(j["steps"]), count(j["steps_per_s"]),
             duration(j["eta_s"]) if j.get("eta_s") is not None else "-", _time(j["device_s"]),
             percent(None if j["state"] in ENDED else j.get("device")), _does(j)] for j in s["jobs"]], [j["id"] for j in s["jobs"]])
    out.append(("", ""))
    out += [(f"not shown: {text}", "dim") for text in s["hidden"]]
    return [(text[:columns], how) for text, how in out]


def _listed(out: List[Line], parts: List[str], columns: int, how: str = "") -> None:
    """With commas between; what does not fit goes into a line below."""
    text = parts[0]
    for part in parts[1:]:
        if len(text) + 2 + len(part) > columns:
            out.append((text + ",", how))
            text = "  " + part
        else:
            text += ", " + part
    out.append((text, how))


def _block(out: List[Line], columns: int, title: str, rows: List[List[str]], first: List[str]) -> None:
    """A table under a head of its own."""
    whole = [[name, *row] for name, row in zip([title, *first], rows)]
    right = "".join(str(k) for k, head in enumerate(whole[0]) if head not in (title, "USER", "ID", "SESSION", "STATE", "PROGRAM"))
    out.append(("", ""))
    out += [(text, "" if k else "head") for k, text in enumerate(table(whole, right, columns))]


# --- the screen ---


class Screen:
    """Keys and sizes are seen at once; what is shown is the last sample that came."""

    LOOK_S = 0.1  # how long a key is waited for

    def __init__(self, watch: Watch, delay: float, sort: str):
        self.watch, self.delay, self.sort = watch, delay, sort
        self.samples: "queue.Queue[Union[Sample, Exception]]" = queue.Queue()
        self.now = threading.Event()  # somebody wants to see it now
        self.ended = threading.Event()
        self.sample: Optional[Sample] = None
        self.trouble = ""
        self.first = 0  # line of the tables that is the uppermost
        self.how: Dict[str, int] = {"": 0, "bad": 0}

    def run(self, window: "curses.window") -> None:
        threading.Thread(target=self.look, name="arrayd-top", daemon=True).start()
        for wish in (lambda: curses.curs_set(0), curses.use_default_colors):
            try:
                wish()
            except curses.error:  # a terminal without
                pass
        self.how.update(title=curses.A_BOLD, head=curses.A_REVERSE, dim=curses.A_DIM, bad=curses.A_BOLD)
        window.timeout(int(self.LOOK_S * 1000))
        self.show(window)
        shown = time.monotonic()
        try:
            while True:
                key = window.getch()
                if key in (ord("q"), ord("Q"), 27):
                    return
                changed = self.take()
                if key != -1:
                    self.press(key, window)
                    changed = True
                if changed or time.monotonic() - shown > 1.0:
                    self.show(window)
                    shown = time.monotonic()
        finally:
            self.ended.set()
            self.now.set()

    def look(self) -> None:
        """The thread's: looks, and waits for the next time."""
        while not self.ended.is_set():
            try:
                self.samples.put(self.watch.look())
            except Exception as e:  # whatever it is, it is shown, and the next look may go well
                self.samples.put(e)
            self.now.wait(self.delay if self.sample else min(self.delay, ONCE_S))
            self.now.clear()

    def take(self) -> bool:
        changed = False
        while True:
            try:
                got = self.samples.get_nowait()
            except queue.Empty:
                return changed
            changed = True
            if isinstance(got, Exception):
                if isinstance(got.__cause__, TimeoutError):
                    self.trouble = "the daemon does not answer"
                else:
                    self.trouble = explained(got).split("\n")[0] if isinstance(got, ArraydError) else str(got) or type(got).__name__
            else:
                self.sample, self.trouble = got, ""

    def press(self, key: int, window: "curses.window") -> None:
        if key == curses.KEY_RESIZE:
            curses.update_lines_cols()
            window.clear()
        elif key in (ord("s"), ord("S")):
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif key == ord(" "):
            self.now.set()
        elif key == ord("+"):
            self.delay = max(0.1, self.delay / 2)
        elif key == ord("-"):
            self.delay = min(60.0, self.delay * 2)
        elif key in (curses.KEY_DOWN, ord("j")):
            self.first += 1
        elif key in (curses.KEY_UP, ord("k")):
            self.first = max(0, self.first - 1)
        elif key in (curses.KEY_HOME, ord("g")):
            self.first = 0

    def show(self, window: "curses.window") -> None:
        rows, columns = window.getmaxyx()
        age = time.monotonic() - self.sample["_at"] if self.sample else 0.0
        trouble = self.trouble or (f"the daemon has not answered for {duration(age)}" if age > max(5.0, 3 * self.delay) else "")
        body = lines(self.sample, columns, self.sort) if self.sample else [(f"looking at {self.watch.context.url} …", "")]
        room = rows - 1
        self.first = max(0, min(self.first, len(body) - room))
        foot = f"every {self.delay:g} s, by {self.sort}; {KEYS}"
        if len(body) > room:
            foot += f"; lines {self.first + 1} to {min(self.first + room, len(body))} of {len(body)}, arrows go on"
        last = (f"! {trouble}", "bad") if trouble else (foot, "dim")
        window.erase()
        for y, (text, how) in enumerate([*body[self.first:self.first + room], *[("", "")] * max(0, room - len(body)), last][:rows]):
            text = text.encode(window.encoding, "replace").decode(window.encoding)
            try:
                window.addnstr(y, 0, text, max(0, columns - 1), self.how.get(how, 0))
            except curses.error:  # the terminal has shrunk since it was measured
                pass
        window.refresh()
