"""The guard of transfers: what is said when much is moved between the server and this process though nobody asked for values."""
from __future__ import annotations

import dis
import os
import sys
import sysconfig
import threading
import warnings
from types import CodeType, FrameType
from typing import Any, Iterable, Optional, Set, Tuple

from . import _config
from ._graph import Node

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
LIBRARIES = tuple({sysconfig.get_paths()[k] + os.sep for k in ("stdlib", "platstdlib", "purelib", "platlib")})

_told: Set[Tuple[str, int, str]] = set()
_lock = threading.Lock()


class TransferWarning(UserWarning):
    """An operation moves much between the server and this process though no value was asked for."""


class TransferForbidden(RuntimeError):
    """The same, where `arrayd.config(transfers="forbid")` has it so."""


def to_fetch(nodes: Iterable[Node]) -> int:
    """The bytes of what is not in this process."""
    return sum(n.nbytes for n in set(nodes) if n.value is None)


def guard(name: str, nbytes: int) -> None:
    """`name`, which is computed in this process, moves so many bytes."""
    s = _config.settings
    if nbytes <= s.above or s.transfers == "allow":
        return
    frame = _user()
    file, line = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("?", 0)
    said = f"{name} is computed in this process: it moves {amount(nbytes)} (at {file}:{line})"
    if s.transfers == "forbid":
        raise TransferForbidden(f"{said}; arrayd.config(transfers=\"forbid\") allows {amount(s.above)}")
    if (file, line, name) in _told:
        return
    where: Any = {} if frame is None else frame.f_globals
    warnings.warn_explicit(f"{said}; np.asarray(x) says that it is meant, arrayd.config(transfers=…, above=…) what is told",
                           TransferWarning, file, line, where.get("__name__"), where.setdefault("__warningregistry__", {}))
    with _lock:  # only now: a filter may have made an error of it
        _told.add((file, line, name))


def guard_asked(nbytes: int) -> None:
    """Of `np.asarray(x)`: who writes it wants the values; a library that does was not asked to."""
    if nbytes > _config.settings.above:
        frame = sys._getframe(2)
        if _is_library(frame.f_code.co_filename):
            module = frame.f_globals.get("__name__", "").split(".")[0]
            guard(f"np.asarray(x) by {module or 'a library'}", nbytes)


def amount(nbytes: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << power:
            return f"{nbytes / (1 << power):.4g} {unit}"
    return f"{nbytes} bytes"


def _is_library(file: str) -> bool:
    return file.startswith(LIBRARIES) or f"{os.sep}site-packages{os.sep}" in file or f"{os.sep}dist-packages{os.sep}" in file \
        or file.startswith("<frozen") or file.startswith("<__array_function__")


def code_of_user() -> Tuple[CodeType, int]:
    """What called this package, three calls or more ago, and where in it (see `line_of`): quickly."""
    frame = sys._getframe(4)
    code = frame.f_code
    while code.co_filename.startswith(HERE) and frame.f_back is not None:
        frame = frame.f_back
        code = frame.f_code
    return code, frame.f_lasti


def line_of(code: CodeType, at: int) -> str:
    """As file:line."""
    lines = [line for start, line in dis.findlinestarts(code) if start <= at]
    return f"{code.co_filename}:{lines[-1] if lines else code.co_firstlineno}"


def _user() -> Optional[FrameType]:
    """The innermost frame of code that is no library's; else of code that is not this package's."""
    frame: Optional[FrameType] = sys._getframe(2)
    outside: Optional[FrameType] = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(HERE):
            outside = outside or frame
            if not _is_library(file):
                return frame
        frame = frame.f_back
    return outside
