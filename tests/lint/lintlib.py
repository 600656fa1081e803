"""What the lint scripts share: the list of sources, text without comments, and the report.

A lint script is run by Meson as `python3 script.py`; it prints one line a finding and ends with 1
when there are any, 77 where it cannot run here.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("compute", "protocol", "server", "clients", "tests")
SKIPPED = 77
# The house from top to bottom: a room may call those below it, never one above.
FLOORS = ("server", "server/commands", "server/config", "server/api", "server/live", "server/page", "server/login", "server/admin", "server/state", "server/files", "server/jobs", "server/kept", "server/look", "server/body", "server/exports", "server/store", "server/labels", "server/keeper", "server/journal", "server/work", "server/http", "server/reader/hdf5", "server/reader/formats", "server/reader",
          "protocol/text", "protocol/wire", "protocol/json", "protocol/number",
          "compute/program", "compute/engine", "compute/memory", "compute/backends.c", "compute/cpu", "compute/cpu/interp",
          "compute/cpu/loops", "compute/gpu/cuda", "compute/gpu/transfer", "compute/gpu/device", "compute/gpu/code", "compute/gpu/interp", "compute/gpu/text", "compute/gpu/api", "compute/backend",
          "compute/ir", "compute/check", "compute/lang", "compute/kernels/steps", "compute/kernels/forms", "compute/kernels/scalar", "compute/type", "compute/culprit",
          "compute/base")
# Headers of the top room that every room of server/ may include: the parts of the daemon as pointers, and the options.
LEAVES = ("server/server.h", "server/config/config.h")


def sources(*suffixes, rooms=ROOMS):
    """Files of the project with one of the suffixes, as paths relative to the root."""
    found = []
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                found.append(path.relative_to(ROOT))
    return found


def floor(path):
    """The room of a file of the product, by its place in FLOORS: the higher the number, the lower the room."""
    place = path.parent.as_posix()
    if place == "compute":  # backend.c and backend.h, the vtable; backends.c, which fills it
        place = path.as_posix() if path.stem == "backends" else "compute/backend"
    return FLOORS.index(place)


def circles(arrows):
    """The strongly connected parts of a graph {node: nodes} that have more than one node, the largest first (Tarjan)."""
    number, low, stack, found = {}, {}, [], []
    for start in sorted(arrows):
        work = [(start, None)]
        while work:
            node, rest = work.pop()
            if rest is None:
                if node in number:
                    continue
                number[node] = low[node] = len(number)
                stack.append(node)
                rest = iter(sorted(arrows.get(node, ())))
            for other in rest:
                if other not in number:
                    work += [(node, rest), (other, None)]
                    break
                if other in stack:
                    low[node] = min(low[node], number[other])
            else:
                if low[node] == number[node]:
                    circle = stack[stack.index(node):]
                    del stack[stack.index(node):]
                    found += [circle] if len(circle) > 1 else []
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
    return sorted((sorted(circle) for circle in found), key=len, reverse=True)


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def without_comments(text, strings=True):
    """C text with comments (and, on demand, string and character literals) blanked, lines kept."""

    def blank(match):
        s = match.group(0)
        if s[0] in "\"'" and not strings:
            return s
        return s[0] + re.sub(r"[^\n]", " ", s[1:-1]) + s[-1] if s[0] in "\"'" else re.sub(r"[^\n]", " ", s)

    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def included(text):
    """(line, '<' or '"', what is included) of every #include of a C text."""
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', without_comments(text, strings=False), re.M):
        yield line_of(text, match.start()), *match.groups()


def finish(findings, what):
    for finding in findings:
        print(finding)
    print(f"{what}: {len(findings)} finding(s)")
    sys.exit(1 if findings else 0)
