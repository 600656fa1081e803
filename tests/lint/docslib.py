"""Worked changes in the docs: ```diff blocks with a file's name each, whose hunks are found by their text, not by line
numbers, so that a page stays good while the code around it moves."""
import re


def hunks(text):
    """(path, old, new) of each hunk of a page."""
    for block in re.findall(r"^```diff\n(.*?)^```$", text, re.M | re.S):
        path = re.search(r"^\+\+\+ b/(\S+)$", block, re.M)[1]
        for hunk in re.split(r"^@@.*\n", block, flags=re.M)[1:]:
            lines = hunk.splitlines(keepends=True)
            yield path, *("".join(line[1:] or "\n" for line in lines if line[0] in kinds) for kinds in (" -\n", " +\n"))


def misfits(text, root):
    """What of a page's changes does not apply: each hunk's old text must be in its file exactly once, or its new text,
    where the change has been made."""
    files = {}
    for path, old, new in hunks(text):
        file = root / path
        files.setdefault(path, file.read_text(encoding="utf-8") if file.exists() else "")
        n = files[path].count(old) if old else int(not file.exists())
        if n != 1 and files[path].count(new) != 1:
            yield f"a hunk for {path} applies {n} times: {old[:60]!r}"
        files[path] = files[path].replace(old, new) if old else new


def apply_worked_change(page, root):
    for path, old, new in hunks(page.read_text(encoding="utf-8")):
        file = root / path
        text = file.read_text(encoding="utf-8") if old else ""
        assert text.count(old) == 1 or not old, (path, old)
        file.write_text(text.replace(old, new) if old else new, encoding="utf-8")
