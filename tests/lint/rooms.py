"""The rooms of the house: each is known, small enough to be walked through, and opens with a page of its own.

A room is a folder of product code (lintlib.FLOORS). It holds 5 to 26 files, and its opening page, README.md or the header
named after the room, says what the room is, who calls it and what it calls, in two sentences:

    Called by `server/api` and `server/state`. Calls `protocol/json`, `compute/engine` and `compute/type`.

They name the rooms that the includes name, no more and no fewer ("no room" where there are none). compute/base, which every
room may call, is left out, and so are the leaf headers of server/. What the includes cannot show goes into another sentence.
"""
import re

from lintlib import FLOORS, LEAVES, ROOT, finish, floor, included, read, sources

FEWEST, MOST = 5, 26
EVERYWHERE = "compute/base"
UNSEEN = [("compute/backends.c", "compute/cpu"), ("compute/backends.c", "compute/gpu/cuda")]  # by vtables that the room between declares
ROOMS = r"(no room|every room|`[^`]+`(?:(?:, | and )`[^`]+`)*)"


def page(room):
    """The room's opening page: its README.md, else the first comment of the header of its name, else nothing."""
    readme, header = ROOT / room / "README.md", ROOT / room / (room.rsplit("/", 1)[-1] + ".h")
    if readme.is_file():
        return readme.read_text(encoding="utf-8")
    opening = re.match(r"/\*.*?\*/", read(header), re.S) if header.is_file() else None
    return opening.group(0) if opening else ""


def spoken(rooms):
    """The rooms as a page lists them, in the order of FLOORS."""
    names = [f"`{name}.h`" if name == "compute/backend" else f"`{name}`" for name in sorted(rooms, key=FLOORS.index)]
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + names[-1:]) or "no room"


files, findings, calls = {}, [], {room: set() for room in FLOORS}
for path in sources(".c", ".h", ".def", ".cuh", ".py", rooms=("compute", "protocol", "server")):
    try:
        room = FLOORS[floor(path)]
    except ValueError:
        findings.append(f"{path}: {path.parent} is no room that tests/lint/lintlib.py knows")
        continue
    files[room] = files.get(room, 0) + 1
    for _, kind, target in included(read(path)):
        if kind == '"' and target not in LEAVES and (ROOT / target).is_file():
            calls[room].add(FLOORS[floor(path.__class__(target))])
for room, other in UNSEEN:
    calls[room].add(other)
for room in FLOORS:
    if not (ROOT / room).is_dir():
        continue  # of compute/ itself: the vtable and the list of backends
    if not FEWEST <= files.get(room, 0) <= MOST:
        findings.append(f"{room}: {files.get(room, 0)} files, not {FEWEST} to {MOST}")
    below = calls[room] - {room, EVERYWHERE}
    above = {other for other in FLOORS if room in calls[other]} - {room}
    right = (spoken(above) if room != EVERYWHERE else "every room"), spoken(below)
    text = re.sub(r"\s+(\* )?", " ", page(room))
    told = re.search(rf"\bCalled by {ROOMS}\. Calls {ROOMS}\.", text)
    if not told or [sorted(re.findall(r"`[^`]+`|\w+ room", said)) for said in told.groups()] != [
            sorted(re.findall(r"`[^`]+`|\w+ room", said)) for said in right]:
        findings.append(f"{room}: the opening page must say \"Called by {right[0]}. Calls {right[1]}.\"")
finish(findings, "rooms")
