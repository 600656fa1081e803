"""The direction of the arrows: who may include whom.

compute/base includes nothing else of the project, compute only itself, protocol compute too,
server everything but a backend's inside, a client only itself; only backends.c knows that cpu/ and gpu/ exist; each
outside library has the one module that may include it. Includes are path-qualified from the root.
"""
import re

from lintlib import ROOT, finish, line_of, read, sources, without_comments

MAY = {
    "compute/base": ("compute/base",),
    "compute": ("compute",),
    "protocol": ("protocol", "compute"),
    "server": ("server", "protocol", "compute"),
    "tests": ("tests", "server", "protocol", "compute"),
    "clients": ("clients",),
    "clients/c": ("clients/c",),
}
LIBRARIES = [  # (header, who may include it)
    (r"cjson/|cJSON", r"protocol/json/[^/]*\.c|clients/c/src/json\.c|tests/.*"),
    (r"curl/", r"clients/c/src/(client|exchange)\.c"),
    (r"microhttpd", r"server/http/[^/]*\.[ch]|tests/bench/.*|tests/fuzz/fuzz_http\.c"),
    (r"dlfcn\.h", r"compute/gpu/api/loader\.c|server/http/http_pages\.c|tests/(backend|fake|unit)/.*"),
    (r"gnutls/", r"server/http/http_tls\.c"),
    (r"nettle/", r"(server|compute/gpu)/.*\.c"),
    (r"cmocka", r"tests/.*"),
]


def room(path):
    text = path.as_posix()
    return max((r for r in MAY if text.startswith(r + "/")), key=len)


findings = []
for path in sources(".c", ".h", ".def", ".cuh"):
    text = read(path)
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]',
                             without_comments(text, strings=False), re.M):
        kind, target = match.groups()
        where = f"{path}:{line_of(text, match.start())}"
        if kind == "<":
            for header, who in LIBRARIES:
                if re.match(header, target) and not re.fullmatch(who, path.as_posix()):
                    findings.append(f"{where}: only {who} may include <{target}>")
            continue
        if "/" not in target or not (ROOT / target).is_file():
            findings.append(f'{where}: "{target}" is not a path from the root')
            continue
        if not target.startswith(tuple(r + "/" for r in MAY[room(path)])):
            findings.append(f'{where}: {room(path)} must not include "{target}"')
        for backend in ("compute/cpu", "compute/gpu"):
            own = path.as_posix().startswith(backend + "/") or path.parts[0] == "tests"
            if target.startswith(backend + "/") and not own and path.as_posix() != "compute/backends.c":
                findings.append(f'{where}: only backends.c knows "{target}"')
finish(findings, "includes")
