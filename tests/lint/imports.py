"""The Python client's modules: no large circle among their imports, and a library that does not know the command line. The
JavaScript client's and the page's: no circle, and no imported name that is not used.

Every import counts, also inside functions and for type checking only: what needs another module to be understood does not
stand below it.
"""
import ast
import re

from lintlib import ROOT, circles, finish

LARGEST = 3
SOURCE = ROOT / "clients/python/src"

files = {}
for path in sorted(SOURCE.rglob("*.py")):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path


def imported(module, tree):
    """(line, module) of everything of ours that the module imports."""
    package = module if files[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[:len(package.split(".")) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, [base, node.module]))
            names = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in files else base for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name in files and name != module)


IMPORT = re.compile(r'^import ([^;"]*) from "[^"]*";$', re.M)
COMMENT = re.compile(r"/\*.*?\*/|(?:^|\s)//.*?$", re.M | re.S)


def unused(text):
    """The names that a JavaScript module imports and does not mention again, but as a member of something else."""
    rest = COMMENT.sub("", IMPORT.sub("", text))
    names = [part.split()[-1] for what in IMPORT.findall(text) for part in re.split("[{},]", what) if part.strip()]
    return [name for name in names if not re.search(rf"(?:(?<![\w$.])|\.\.\.){re.escape(name)}(?![\w$])", rest)]


findings, arrows = [], {}
for module, path in files.items():
    for line, other in imported(module, ast.parse(path.read_text(encoding="utf-8"))):
        arrows.setdefault(module, set()).add(other)
        if other.startswith("arrayd.cli") and not module.startswith("arrayd.cli") and module != "arrayd.__main__":
            findings.append(f"{path.relative_to(ROOT)}:{line}: the library must not import {other}")
for circle in circles(arrows):
    if len(circle) > LARGEST:
        findings.append(f"a circle of {len(circle)}, more than {LARGEST}: {' '.join(circle)}")
        findings += [f"  {module} -> {' '.join(sorted(arrows[module] & set(circle)))}" for module in circle]
for folder in ("clients/js", "clients/page"):
    texts = {p.name: p.read_text(encoding="utf-8") for p in sorted((ROOT / folder).glob("*.js"))}
    arrows = {name: set(re.findall(r'^(?:import|export) .*\bfrom "\./(.*)";$', text, re.M)) for name, text in texts.items()}
    findings += [f"{folder}/{file}: {name} is imported and not used" for file, text in texts.items() for name in unused(text)]
    if not any(arrows.values()):
        findings.append(f"{folder}: no imports found")
    findings += [f"{folder}: a circle: {' '.join(circle)}" for circle in circles(arrows)]
finish(findings, "imports")
