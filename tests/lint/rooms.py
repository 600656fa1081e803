"""The rooms of the house: each is known, small enough to be walked through, and opens with a page of its own.

A room is a folder of product code (lintlib.FLOORS). It holds 5 to 26 files, and its opening page, README.md or the header
named after the room, says what the room is, who calls it and what it calls.
"""
import re

from lintlib import FLOORS, ROOT, finish, floor, read, sources

FEWEST, MOST = 5, 26


def page(room):
    """The room's opening page: its README.md, else the first comment of the header of its name, else nothing."""
    readme, header = ROOT / room / "README.md", ROOT / room / (room.rsplit("/", 1)[-1] + ".h")
    if readme.is_file():
        return readme.read_text(encoding="utf-8")
    opening = re.match(r"/\*.*?\*/", read(header), re.S) if header.is_file() else None
    return opening.group(0) if opening else ""


files, findings = {}, []
for path in sources(".c", ".h", ".def", ".cuh", ".py", rooms=("compute", "protocol", "server")):
    try:
        room = FLOORS[floor(path)]
    except ValueError:
        findings.append(f"{path}: {path.parent} is no room that tests/lint/lintlib.py knows")
        continue
    files[room] = files.get(room, 0) + 1
for room in FLOORS:
    if not (ROOT / room).is_dir():
        continue  # of compute/ itself: the vtable and the list of backends
    if not FEWEST <= files.get(room, 0) <= MOST:
        findings.append(f"{room}: {files.get(room, 0)} files, not {FEWEST} to {MOST}")
    text = page(room)
    told = all(re.search(words, text, re.I) for words in (r"\b(called|used) by\b", r"\bcalls\b"))
    if not told:
        findings.append(f"{room}: no opening page (README.md or the header of its name) that says who calls it and what it calls")
finish(findings, "rooms")
