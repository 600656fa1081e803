"""README.md, docs/ and the pages of the rooms: links lead somewhere, and what is named in them exists."""
import re

from docslib import misfits
from lintlib import ROOT, finish, read, sources

findings = []
PRODUCT = ("compute", "protocol", "server")
users = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "clients").glob("*/README.md"))]
developers = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs/internals").glob("*.md")),
              *sorted(page for room in PRODUCT for page in (ROOT / room).rglob("README.md"))]
pages = users + developers


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(path):
    return {anchor(h) for h in re.findall(r"^#+ (.*)$", path.read_text(), re.M)}


for page in pages:
    name = page.relative_to(ROOT).as_posix()
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:", target):
            continue
        path, _, section = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            findings.append(f"{name}: {target} leads nowhere")
        elif section and file.suffix == ".md" and section not in anchors(file):
            findings.append(f"{name}: {target}: no such section")
    for fence in re.findall(r"^```(\w*)$", text, re.M)[::2]:
        if not fence:
            findings.append(f"{name}: a fenced block without a language")

# Files that developers are sent to are there (by their path, in the page's own room, or by name), and what is called so in
# the code.
names = {path.name for room in (*PRODUCT, "tests", "deploy") for path in (ROOT / room).rglob("*")}
words = {word for path in sources(".c", ".h", ".def", ".py", ".cuh", ".build") for word in re.findall(r"\w+_\w+", read(path))}
for page in developers:
    name = page.relative_to(ROOT).as_posix()
    text = re.sub(r"^```diff\n.*?^```$", "", page.read_text(), flags=re.M | re.S)
    for path in re.findall(r"`((?:compute|protocol|server|tests|deploy|docs|clients)/[\w./-]*)`", text):
        if not (ROOT / path).exists():
            findings.append(f"{name}: there is no {path}")
    for file in re.findall(r"`([\w.-]+\.(?:c|h|def|cuh|py))`", text):
        if not (page.parent / file).is_file() if page.name == "README.md" else file not in names:
            findings.append(f"{name}: there is no {file}")
    findings.extend(f"{name}: nothing is called {word}" for word in re.findall(r"`([a-z]\w*_\w+)(?:\(\))?`", text)
                    if word not in words)
    findings.extend(f"{name}: {misfit}" for misfit in misfits(page.read_text(), ROOT))

# Every option of the daemon is in the operator's page with its default, and nothing else is.
table = dict(re.findall(r'^\s*\{"([a-z-]+)", SET_\w+, \w+, AT\(\w+\), ("[^"]*"|NULL)', read("server/config/config.c"), re.M))
table = {name: "" if value == "NULL" else value.replace('"', "`") for name, value in table.items()}
documented = dict(re.findall(r"^\| `([a-z-]+)` \| (`[^`]*`|) *\|", read("docs/operating.md"), re.M))
findings.extend(f"docs/operating.md: the option {o} is not described" for o in sorted(table.keys() - documented))
findings.extend(f"docs/operating.md: there is no option {o}" for o in sorted(documented.keys() - table))
findings.extend(f"docs/operating.md: the default of {o} is {table[o]}"
                for o in sorted(table.keys() & documented) if table[o] != documented[o])

# Every error code is explained to users.
codes = set(re.findall(r'^ERR\(\w+, \d+, "(\w+)"', read("compute/base/err.def"), re.M))
explained = set(re.findall(r"^\| `(\w+)` \|", read("docs/errors.md"), re.M))
findings.extend(f"docs/errors.md: {c} is not explained" for c in sorted(codes - explained))
findings.extend(f"docs/errors.md: there is no code {c}" for c in sorted(explained - codes))
# Every function of the expression language is in its page.
names = set(re.findall(r'^OP\(\w+, "(\w+)"', read("compute/type/op.def"), re.M))
names |= set(re.findall(r'^FUNC\(\w+, "(\w+)"', read("compute/lang/func.def"), re.M))
names |= set(re.findall(r'^(?:REDUCTION|SCAN)\(\w+, "(\w+)"', read("compute/type/reduce.def"), re.M))
page = read("docs/expressions.md")
findings.extend(f"docs/expressions.md: {n} is not described"
                for n in sorted(names) if not re.search(rf"`[^`]*\b{n}\b[^`]*`", page))
finish(findings, "docs")
