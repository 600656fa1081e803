"""The direction of the arrows: who may include whom.

In the product a room includes only itself and the rooms below it (lintlib.FLOORS); that leaves compute/base with nothing but
itself, and compute with nothing of protocol or server. The leaf headers of server/ may be included by all of server. Neither
backend knows the other, and no one but backends.c knows that there are two. Tests may include everything, a client only
itself; each outside library has the one module that may include it. Includes are path-qualified from the root.
"""
import re

from lintlib import FLOORS, LEAVES, ROOT, finish, floor, included, read, sources

MAY = {
    "tests": ("tests", "server", "protocol", "compute"),
    "clients": ("clients",),
    "clients/c": ("clients/c",),
}
# Arrows that run upward today, as (room, room above it that it includes). No new ones: the list is to become empty.
UPWARD = set()
LIBRARIES = [  # (header, who may include it)
    (r"cjson/|cJSON", r"protocol/json/[^/]*\.c|clients/c/src/json\.c|tests/.*"),
    (r"curl/", r"clients/c/src/(client|exchange)\.c"),
    (r"microhttpd", r"server/http/[^/]*\.[ch]|tests/bench/.*|tests/fuzz/fuzz_http\.c"),
    (r"dlfcn\.h", r"compute/gpu/api/loader\.c|tests/(backend|fake|unit)/.*|tests/fuzz/fuzz_reader\.c"),
    (r"gnutls/", r"server/http/http_tls\.c"),
    (r"nettle/", r"(server|compute/gpu)/.*\.c"),
    (r"cmocka", r"tests/.*"),
    (r"hdf5", r"server/reader/hdf5/[^/]*\.[ch]|tests/(bench/h5_bare|fuzz/fuzz_reader)\.c"),
    (r"(netcdf|zip|tiffio)\.h", r"server/reader/formats/[^/]*\.[ch]"),
    (r"seccomp\.h", r"server/reader/sandbox\.c"),
]


def is_product(path):
    return path.parts[0] in ("compute", "protocol", "server")


def backend_of(path):
    return path.parts[1] if path.parts[0] == "compute" and path.parts[1] in ("cpu", "gpu") else None


findings, upward = [], set()
for path in sources(".c", ".h", ".def", ".cuh"):
    for line, kind, target in included(read(path)):
        where = f"{path}:{line}"
        if kind == "<":
            for header, who in LIBRARIES:
                if re.match(header, target) and not re.fullmatch(who, path.as_posix()):
                    findings.append(f"{where}: only {who} may include <{target}>")
            continue
        if "/" not in target or not (ROOT / target).is_file():
            findings.append(f'{where}: "{target}" is not a path from the root')
            continue
        other = path.__class__(target)
        if not is_product(path):
            room = max((r for r in MAY if path.as_posix().startswith(r + "/")), key=len)
            if not target.startswith(tuple(r + "/" for r in MAY[room])):
                findings.append(f'{where}: {room} must not include "{target}"')
            continue
        if not is_product(other):
            findings.append(f'{where}: the product must not include "{target}"')
            continue
        if floor(other) < floor(path) and not (target in LEAVES and path.parts[0] == "server"):
            arrow = FLOORS[floor(path)], FLOORS[floor(other)]
            upward.add(arrow)
            if arrow not in UPWARD:
                findings.append(f'{where}: {arrow[0]} lies below "{target}"')
        if backend_of(other) not in (None, backend_of(path)) and path.as_posix() != "compute/backends.c":
            findings.append(f'{where}: only backends.c knows "{target}"')
for room, above in sorted(UPWARD - upward):
    findings.append(f"tests/lint/includes.py: {room} no longer includes {above}: take it off the list UPWARD")
finish(findings, "includes")
