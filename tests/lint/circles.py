"""Circles among the object files of the product, and their calls upward, as the linker's symbols show them.

Includes alone do not tell: a call upward hides behind a declaration in a lower header. Run as

    circles.py BUILD SYMBOLS-COMMAND

over the static libraries of a build folder and what the daemon itself is linked from.
"""
import pathlib
import re
import subprocess
import sys

from lintlib import FLOORS, ROOT, SKIPPED, circles, finish, floor, sources

LARGEST = 3
# Circles of today, each by some of its files: one found is let through where it shares a file with an entry of this list and
# is no larger than the number says. No new ones: the list is to become empty.
KNOWN = []
# Rooms that today call into rooms above them. No new ones: the list is to become empty.
UPWARD = set()

build, nm = pathlib.Path(sys.argv[1]), sys.argv[2:]
# An object is named after its source, the folders of the path joined by underscores, in a folder of its target.
source_of = {}
for path in sources(".c", rooms=("compute", "protocol", "server")):
    parts = path.parts
    for k in range(1, len(parts)):
        source_of["/".join(parts[:k]), "_".join(parts[k:]) + ".o"] = path


def source(member):
    """The source of build/…/lib.a.p/name.o, or None where it was generated."""
    target = pathlib.PurePath(member).relative_to(build).parent
    return source_of.get((target.parent.as_posix(), pathlib.PurePath(member).name))


archives = [build / "compute/libcompute.a", build / "protocol/libprotocol.a", build / "server/libserver.a"]
objects = sorted((build / "server/arrayd.p").glob("*.c.o"))
try:
    listing = subprocess.run([*nm, "-A", *archives, *(o for o in objects if source(o))], check=True, capture_output=True,
                             text=True).stdout
except FileNotFoundError:
    print(f"no {nm[0]} to list symbols with")
    sys.exit(SKIPPED)

home, wanted = {}, {}
for line in listing.splitlines():
    match = re.fullmatch(r"(?:.*\.a:)?(.*?\.o):[0-9a-f ]* (\w) (\S+)", line)
    path = match and source(match.group(1))
    if not path:
        continue
    kind, symbol = match.group(2), match.group(3)
    if kind in "Uw":
        wanted.setdefault(path, set()).add(symbol)
    elif kind in "TDBRVWC":
        home[symbol] = path
arrows = {path: {home[s] for s in symbols if home.get(s, path) != path} for path, symbols in wanted.items()}

findings, seen = [], []
if len(arrows) < len(set(source_of.values())) / 2:
    findings.append(f"{build}: symbols of only {len(arrows)} sources found")
for circle in circles(arrows):
    names = [path.as_posix() for path in circle]
    known = [entry for entry in KNOWN if entry[1] & set(names)]
    if len(circle) > LARGEST:
        seen += known
        if not any(len(circle) <= size for size, _ in known):
            findings.append(f"a circle of {len(circle)}, more than {LARGEST}: {' '.join(names)}")
            for path in circle:
                findings.append(f"  {path} -> {' '.join(sorted(p.as_posix() for p in arrows[path] & set(circle)))}")
for size, files in KNOWN:
    if (size, files) not in seen:
        findings.append(f"tests/lint/circles.py: no circle larger than {LARGEST} with {min(files)}: take it off the list KNOWN")
upward = set()
for path, others in arrows.items():
    for other in others:
        arrow = FLOORS[floor(path)], FLOORS[floor(other)]
        if floor(other) < floor(path):
            upward.add(arrow)
            if arrow not in UPWARD:
                findings.append(f"{path}: calls {other}, which lies above it")
for room, above in sorted(UPWARD - upward):
    findings.append(f"tests/lint/circles.py: {room} no longer calls {above}: take it off the list UPWARD")
finish(findings, "circles")
