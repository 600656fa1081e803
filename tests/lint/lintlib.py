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


def sources(*suffixes, rooms=ROOMS):
    """Files of the project with one of the suffixes, as paths relative to the root."""
    found = []
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                found.append(path.relative_to(ROOT))
    return found


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


def finish(findings, what):
    for finding in findings:
        print(finding)
    print(f"{what}: {len(findings)} finding(s)")
    sys.exit(1 if findings else 0)
