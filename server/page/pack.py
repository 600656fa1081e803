"""Build tool, run by Meson: writes files as a table of struct asset (asset.h).

    pack.py OUTPUT FILE...

Each file is kept as it is and, where that is shorter, compressed by gzip without a time, so that the same files give the
same daemon.
"""
import gzip
import hashlib
import pathlib
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".json": "application/json", ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon",
         ".woff2": "font/woff2", ".txt": "text/plain; charset=utf-8"}
TAG_DIGITS = 32


def array(name, data):
    lines = [", ".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24)]
    return f"static const unsigned char {name}[] = {{\n" + ",\n".join(lines) + "};\n"


def main(output, names):
    text, rows = ['#include "server/page/asset.h"\n'], []
    for i, path in enumerate(map(pathlib.Path, names)):
        if path.suffix not in TYPES:
            sys.exit(f"{path}: pack.py knows no media type for '{path.suffix}'")
        plain = path.read_bytes()
        if not plain:
            sys.exit(f"{path}: the file is empty")
        packed = gzip.compress(plain, 9, mtime=0)
        text.append(array(f"plain_{i}", plain))
        forms = f"plain_{i}, {len(plain)}"
        if len(packed) < len(plain):
            text.append(array(f"packed_{i}", packed))
            forms += f", packed_{i}, {len(packed)}"
        tag = hashlib.sha256(plain).hexdigest()[:TAG_DIGITS]
        rows.append(f'    {{"{path.name}", "{TYPES[path.suffix]}", "{tag}", {forms}}},\n')
    text.append("const struct asset page_assets[] = {\n" + "".join(rows) + "};\n")
    text.append(f"const size_t page_assets_n = {len(rows)};\n")
    pathlib.Path(output).write_text("".join(text), encoding="ascii")


main(sys.argv[1], sys.argv[2:])
