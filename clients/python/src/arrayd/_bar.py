"""One line on standard error that says how far something is, for the client and for arrayd-cli.

On a terminal, and in a notebook, it is written over and over, and at the end wiped away or left as the end was; it comes only when the
thing has taken a moment, and never wraps. Where there is neither, lines come one below the other, seldom, and only where they were
asked for.
"""
from __future__ import annotations

import shutil
import sys
import time
from typing import Any, Callable, Dict, Mapping, Optional, TextIO

FRAMES_S, LINES_S = 0.1, 2.0  # between two of them
LATE_S = 0.4  # shorter things need no bar


def at_terminal(stream: Any) -> bool:
    """Whether a line can be written over."""
    try:
        return bool(stream.isatty()) or type(stream).__module__.startswith("ipykernel.")
    except (AttributeError, ValueError):
        return False


class Bar:
    """`wanted`: None where a terminal decides; True: always; False: never."""

    def __init__(self, wanted: Optional[bool] = None, stream: Optional[TextIO] = None):
        self.stream = stream or sys.stderr
        self.live = at_terminal(self.stream) and wanted is not False
        self.lines = not self.live and wanted is True
        self.since = time.monotonic()
        self._next = self.since + (0.0 if wanted else LATE_S)
        self._shown = False

    def update(self, text: Callable[[int], str]) -> None:
        """`text` of so many columns, if it is time to show it."""
        now = time.monotonic()
        if now < self._next or not (self.live or self.lines):
            return
        self._next = now + (FRAMES_S if self.live else LINES_S)
        self._write(text)

    def _write(self, text: Callable[[int], str], end: str = "") -> None:
        width = shutil.get_terminal_size().columns - 1 if self.live else 100
        line = text(max(20, width))[:max(20, width)]
        self.stream.write(f"\r{line}\x1b[K{end}" if self.live else line + "\n")
        self.stream.flush()
        self._shown = True

    def finish(self, text: Callable[[int], str]) -> None:
        """The last line, which stays."""
        if self.live or self.lines:
            self._write(text, "\n")
            self._shown = False

    def clear(self) -> None:
        """For something else to be written, or at the end; what comes next shows it again."""
        if self._shown and self.live:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
        self._shown = False
        if self.live:
            self._next = min(self._next, time.monotonic())

    def drawn(self, fraction: float, width: int) -> str:
        """|████▌     |"""
        fraction = min(max(fraction, 0.0), 1.0)
        encoding = (getattr(self.stream, "encoding", None) or "ascii").lower()
        if "utf" in encoding:
            eighths = int(fraction * width * 8)
            text = "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")
        else:
            text = "#" * int(fraction * width)
        return f"|{text.ljust(width)}|"


def steps_line(bar: Bar, status: Dict[str, Any], width: int, last: Mapping[str, Any] = {}) -> str:
    """Of a job; `last`: values that were recorded, to stand beside it."""
    step, steps = int(status.get("step", 0)), max(int(status["steps"]), 1)
    if of_bytes(status) and steps == 1 and not step:
        return f"{status['state']}: looking how much there is"
    if of_bytes(status):
        text = f" {human(step)} of {human(steps)}  {human(float(status['steps_per_s']))}/s"
    else:
        text = f" {count(step)} of {count(steps)} steps  {count(float(status['steps_per_s']))}/s"
    if status.get("eta_s") is not None:
        text += f"  {duration(float(status['eta_s']))} left"
    text += "".join(f"  {n} {v:.5g}" if isinstance(v, float) else f"  {n} {v}" for n, v in last.items())
    head = f"{status['state']} {100 * step // steps:3d} % "
    room = width - len(head) - len(text) - 2
    return head + (bar.drawn(step / steps, min(room, 40)) if room >= 5 else "") + text


def of_bytes(status: Dict[str, Any]) -> bool:
    """Whether a job is an import or an export of a file, whose steps are bytes."""
    return "import" in status or "export" in status


class TransferBar(Bar):
    """Of bytes on their way."""

    def __init__(self, label: str, total: int, wanted: Optional[bool] = None):
        super().__init__(wanted)
        self.label, self.total, self.done = label, total, 0

    def add(self, n: int) -> None:
        self.done += n
        self.update(self.line)

    def line(self, width: int) -> str:
        s = max(time.monotonic() - self.since, 1e-6)
        rate = self.done / s
        left = duration((self.total - self.done) / rate) if rate else "?"
        if not self.total:  # nobody has said how much there is
            return f"{self.label[:max(8, width // 3)]}  {human(self.done)}  {human(rate)}/s"
        text = f" {human(self.done)} of {human(self.total)}  {human(rate)}/s  {left}"
        head = f"{self.label[:max(8, width // 3)]} {100 * self.done // max(self.total, 1):3d} % "
        room = width - len(head) - len(text) - 2
        return head + (self.drawn(self.done / max(self.total, 1), min(room, 40)) if room >= 5 else "") + text


# --- sizes and times as people read them ---


def human(n: float, suffix: str = "B") -> str:
    """1536 → 1.5 KiB."""
    if abs(n) < 1024:
        return f"{int(n)} {suffix}"
    for unit in ("Ki", "Mi", "Gi", "Ti", "Pi"):
        n /= 1024
        if abs(n) < 999.5:
            break
    return f"{n:.{0 if abs(n) >= 99.95 else 1}f} {unit}{suffix}"


def count(n: float) -> str:
    """1234567 → 1.23 M."""
    for unit in ("", " k", " M", " G", " T", " P", " E"):
        if abs(n) < 999.5:
            break
        n /= 1000
    return f"{n:.0f}" if unit == "" and float(n).is_integer() else f"{n:.3g}{unit}"


def duration(s: float) -> str:
    """Seconds as 45 ms, 12.3 s, 4:05 or 3:12:05; days as 2 d 3 h."""
    if s < 0.9995:
        return f"{1000 * s:.0f} ms"
    if s < 60:
        return f"{s:.1f} s"
    if s < 86400:
        h, rest = divmod(int(s), 3600)
        return f"{h}:{rest // 60:02}:{rest % 60:02}" if h else f"{rest // 60}:{rest % 60:02}"
    return f"{int(s // 86400)} d {int(s % 86400 // 3600)} h"
