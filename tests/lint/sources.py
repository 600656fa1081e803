"""House rules that a reader would otherwise have to check: one allocator, one clock, plain conditions, short files, openings."""
import re

from lintlib import finish, line_of, read, sources, without_comments

MAX_LINES = 600
COLUMNS = 100
# Tables that a generator wrote are data, not text to be read.
GENERATED = re.compile(r"_table\.h$|^tests/golden/|^tests/fuzz/corpus/")
ALLOCATORS = re.compile(r"(?<![\w.>])(malloc|calloc|realloc|reallocarray|free|strdup|strndup|asprintf|"
                        r"vasprintf|posix_memalign|aligned_alloc|memalign|open_memstream)\s*\(")
CLOCKS = re.compile(r"(?<![\w.>])(time|clock_gettime|gettimeofday)\s*\(")
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|\bnot implemented\b|\bnot yet implemented\b", re.I)
CONDITION = re.compile(r"\b(if|while|for|switch)\b ?\(")
ASSIGNMENT = re.compile(r"(?<![=!<>])=(?!=)|<<=|>>=")


def conditions(text):
    """The conditions of C text without comments, each with its place; initialisers in braces are left out."""
    for match in CONDITION.finditer(text):
        depth, parts = 1, [""]
        for c in text[match.end():]:
            depth += (c in "([{") - (c in ")]}")
            if depth == 0:
                break
            if c == ";" and depth == 1:
                parts.append("")
            else:
                parts[-1] += c
        condition, braces = parts[1 if match.group(1) == "for" else 0], 1
        while braces:
            condition, braces = re.subn(r"\{[^{}]*\}", "", condition)
        yield match.start(), condition


findings = []
for path in sources(".c", ".h", ".def", ".cuh", ".py", ".js", ".ts", ".build"):
    name = path.as_posix()
    text = read(path)
    generated = GENERATED.search(name)
    lines = text.split("\n")
    if len(lines) - 1 > MAX_LINES and not generated:
        findings.append(f"{name}: {len(lines) - 1} lines, more than {MAX_LINES}")
    if "\t" in text and not generated:
        findings.append(f"{name}:{line_of(text, text.index(chr(9)))}: a tab")
    if text and not text.endswith("\n"):
        findings.append(f"{name}: no newline at the end")
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            findings.append(f"{name}:{number}: blanks at the end of the line")
        if path.suffix in (".c", ".h") and len(line) > COLUMNS and not generated and "http" not in line:
            findings.append(f"{name}:{number}: {len(line)} columns")
    if path.suffix in (".c", ".h") and not text.startswith("/*"):
        findings.append(f"{name}: does not open with what it is")
    if path.parts[0] != "tests":
        for match in LEFTOVERS.finditer(text):
            findings.append(f"{name}:{line_of(text, match.start())}: {match.group(0)}")
        # A client is a program of its own, without the daemon's allocator and clocks.
        if path.suffix in (".c", ".h") and path.parts[0] != "clients":
            code = without_comments(text)
            for place, condition in conditions(code):
                if ASSIGNMENT.search(condition):
                    findings.append(f"{name}:{line_of(text, place)}: an assignment in a condition")
            for home, calls in (("compute/base/mem.c", ALLOCATORS), ("compute/base/clock.h", CLOCKS)):
                for match in calls.finditer(code) if name != home else ():
                    findings.append(f"{name}:{line_of(text, match.start())}: {match.group(1)}() outside {home}")
finish(findings, "sources")
