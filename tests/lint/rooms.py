"""The rooms of the house: each is known, small enough to be walked through, and opens with a page of its own.

A room is a folder of product code (lintlib.FLOORS). It holds 5 to 26 files, and its opening page, README.md or the header
named after the room, says what the room is, who calls it and what it calls.
"""
import re

from lintlib import FLOORS, ROOT, finish, floor, read, sources

FEWEST, MOST = 5, 26
# Rooms whose opening page is still to be written. No new ones: the list is to become empty.
WITHOUT_PAGE = {
    "compute/base", "compute/check", "compute/cpu", "compute/cpu/loops", "compute/engine",
    "compute/gpu/api", "compute/gpu/code", "compute/gpu/cuda", "compute/gpu/text", "compute/ir", "compute/kernels/forms",
    "compute/kernels/scalar", "compute/lang", "compute/program", "compute/type", "protocol/json", "protocol/number",
    "protocol/text", "protocol/wire", "server", "server/api", "server/body", "server/http", "server/jobs", "server/state",
    "server/store", "server/work",
}


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
    if not told and room not in WITHOUT_PAGE:
        findings.append(f"{room}: no opening page (README.md or the header of its name) that says who calls it and what it calls")
    if told and room in WITHOUT_PAGE:
        findings.append(f"tests/lint/rooms.py: {room} has its page: take it off the list WITHOUT_PAGE")
finish(findings, "rooms")
