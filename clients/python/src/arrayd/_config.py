"""What the whole process has set: `arrayd.config`. Needs no NumPy."""
from __future__ import annotations

import re
import threading
from typing import Any, Dict, NamedTuple, Optional, Union

TRANSFERS = ("warn", "allow", "forbid")
UNITS = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


class Settings(NamedTuple):
    transfers: str = "warn"  # what happens when much is moved unasked
    above: int = 64 << 20  # bytes: how much that is
    loops: bool = True  # repeated steps become programs


settings = Settings()  # read as `_config.settings`: it is another one after each change
_lock = threading.Lock()


class Change:
    """What `config` gives back. At the end of a `with`, what was changed is as before."""

    def __init__(self, before: Dict[str, Any]):
        self._before = before

    @property
    def transfers(self) -> str:
        return settings.transfers

    @property
    def above(self) -> int:
        return settings.above

    @property
    def loops(self) -> bool:
        return settings.loops

    def __repr__(self) -> str:
        return f"arrayd.config(transfers={settings.transfers!r}, above={settings.above}, loops={settings.loops})"

    def __enter__(self) -> "Change":
        return self

    def __exit__(self, *_: Any) -> None:
        _set(self._before)


def config(*, transfers: Optional[str] = None, above: Union[None, int, str] = None, loops: Optional[bool] = None) -> Change:
    """Sets how arrays behave in this process, and says how: `arrayd.config()`. As a context manager, until the end of the `with`.

    `transfers`: what happens when an operation moves more than `above` bytes ("64 MiB") between the server and this process though
    no value was asked for: "warn" (once a line of code, the default), "allow" or "forbid" (TransferForbidden). `loops`: whether steps
    that repeat become programs.
    """
    if transfers is not None and transfers not in TRANSFERS:
        raise ValueError(f"transfers is one of {', '.join(TRANSFERS)}, not {transfers!r}")
    given = {"transfers": transfers, "above": None if above is None else bytes_in(above), "loops": None if loops is None else bool(loops)}
    return Change(_set({k: v for k, v in given.items() if v is not None}))


def bytes_in(size: Union[int, str]) -> int:
    """A number of bytes, or text such as "64 MiB"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]i?|Ki)?B?\s*", size) if isinstance(size, str) else None
    n = int(float(found[1]) * UNITS[(found[2] or "").replace("ki", "Ki")]) if found else size
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ValueError(f"a size is a number of bytes, or text such as '64 MiB', not {size!r}")
    return n


def _set(values: Dict[str, Any]) -> Dict[str, Any]:
    """What was there before."""
    global settings
    with _lock:
        before = {k: getattr(settings, k) for k in values}
        settings = settings._replace(**values)
    return before
