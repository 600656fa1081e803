"""put, get, ls, rm, info."""
from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import re
from typing import Any, Dict, List, Optional, Tuple

from .._bar import count, human
from .._errors import ArraydError
from .._replies import ABOUT, ARRAY, JOB, LABELS, LISTED, OBJECT
from .._requests import FILES, OCTETS, Request, Response
from ._context import Context, Failure, complain, device_text, kept_text, shown, table
from ._files import SCHEME, get_file, ls_files, put_file
from ._formats import GOT, KNOWN, WRITTEN, members, read_csv, suffix_of, write_csv
from ._streams import NPY, Output, download, itemsize, read_head, upload
from ._values import NAME, explained, path_of


def put(context: Context) -> int:
    args = context.args
    path, name = args.file, args.name
    if args.raw and not args.slice and (args.dtype is None or args.shape is None):
        raise Failure("put: --raw needs --dtype and --shape", 2)
    if args.shape is not None and not args.raw:
        raise Failure("put: --shape is for --raw: an .npy file has its own", 2)
    if suffix_of(path) in FILES and not args.raw:
        return _put_npz(context) if suffix_of(path) == ".npz" else put_file(context)
    if args.variable is not None or args.no_decode or args.keep_ghosts or args.no_coords or args.no_labels:
        raise Failure("put: --variable is for .npz, NetCDF and HDF5 files, --no-decode, --no-coords, --no-labels and --keep-ghosts are for the latter two", 2)
    text = read_csv(path) if suffix_of(path) == ".csv" and not args.raw else None
    if args.slice is not None:
        if name is None:
            raise Failure("put: --slice needs the NAME of the array to write to", 2)
        if args.raw:
            dtype, shape = _region(context, name, args.slice)
            upload(context, path, None, raw=True, dtype=dtype, shape=shape, into=path_of(name, "/data", index=args.slice))
        else:
            upload(context, path, None, into=path_of(name, "/data", index=args.slice), opened=text)
        print(name)
        return 0
    if name is None and path != "-" and not args.unnamed:
        stem, suffix = os.path.splitext(os.path.basename(path))
        name = stem if suffix.lower() in (".npy", ".csv", ".raw", ".bin") else stem + suffix
        if suffix.lower() not in ("", ".npy", ".csv") and not args.raw:
            raise Failure(f"put: {path}: the suffix {suffix} is not supported: put takes {KNOWN} files and, with --raw, --dtype and --shape, "
                          f"files of bare elements; an .npy file with another suffix needs a name, as in put {path} NAME", 2)
        if not NAME.match(name):
            raise Failure(f"put: {name!r}, of {path}, cannot be an array's name: give it one, as in put {path} NAME", 2)
    m = upload(context, path, name, dtype=args.dtype, shape=args.shape, raw=args.raw, clobber=not args.no_clobber, opened=text)
    print(json.dumps(m) if args.json else m.get("name") or m["id"])
    return 0


def _put_npz(context: Context) -> int:
    """Each of its arrays under the name that it has there; with NAME, the only one."""
    args = context.args
    if args.keep_ghosts:
        raise Failure("put: --keep-ghosts is for NetCDF and HDF5 files", 2)
    if args.slice is not None or args.unnamed:
        raise Failure("put: an .npz file has names of its own: neither --slice nor --unnamed", 2)
    for k, (name, f) in enumerate(members(args.file, args.variable)):  # none is sent if one of them cannot be
        if args.name is not None and k:
            raise Failure(f"put: {args.file} has several arrays, and names of their own: --variable says which is meant", 2)
        if not NAME.match(args.name or name):
            raise Failure(f"put: {name!r}, in {args.file}, cannot be an array's name", 2)
        read_head(f, f"{args.file}: {name}")
    made = []
    for name, f in members(args.file, args.variable):
        made.append(upload(context, f"{args.file}: {name}", args.name or name, dtype=args.dtype, clobber=not args.no_clobber, opened=f))
    print(json.dumps(made) if args.json else "\n".join(m["name"] for m in made))
    return 0


def _region(context: Context, name: str, index: str) -> Any:
    """dtype and shape of a part of an array, which a view of it tells."""
    view = context.ask("POST", path_of(name, "/views"), ARRAY, {"index": index})
    context.temporary(view["id"])
    return view["dtype"], ",".join(map(str, view["shape"]))


def get(context: Context) -> int:
    args = context.args
    path = args.file or f"{args.ref}.{'bin' if args.raw else 'npy'}"
    suffix = "" if args.raw or path == "-" else suffix_of(path)
    if suffix not in ("", ".npy", ".csv", ".png", *GOT) and not os.path.exists(path):
        raise Failure(f"get: {path}: the suffix {suffix} is not supported: get writes {WRITTEN} files and, with --raw, bare elements", 2)
    asked = picture_options(args)
    if suffix == ".png":
        save_picture(context, path, picture(context, args.ref, asked, args.slice))
        return 0
    if asked:
        raise Failure(f"get: --{next(iter(asked))} is for pictures, .png files", 2)
    if suffix in GOT:
        return get_file(context, path)
    if args.keep_ghosts:
        raise Failure("get: --keep-ghosts is for .npz, NetCDF and HDF5 files", 2)
    if suffix == ".csv":
        dtype = context.ask("GET", path_of(args.ref), ARRAY)["dtype"]
        r = Request("GET", path_of(args.ref, "/data", index=args.slice), accept="application/json", headers=context.headers)
        text = write_csv(path, context.transport.send(r).json(), dtype)
        with Output(path) as f:
            f.write(text)
        context.say(f"{path}: {human(len(text))}")
        return 0
    r = Request("GET", path_of(args.ref, "/data", index=args.slice), accept=OCTETS if args.raw else NPY,
                headers=context.headers)
    n = download(context, r, path, args.ref, (lambda: _nbytes(context)) if args.raw else None)
    if path != "-":
        context.say(f"{path}: {human(n)}")
    return 0


def picture_options(args: argparse.Namespace) -> Dict[str, str]:
    """What is asked for of a picture."""
    return {k: str(v) for k, v in (("cmap", args.cmap), ("lo", args.lo), ("hi", args.hi), ("percentiles", args.percentiles), ("width", args.width),
                                   ("height", args.height), ("pool", args.pool), ("bar", "true" if args.bar else None)) if v is not None}


def picture(context: Context, ref: str, asked: Dict[str, str], index: Optional[str] = None) -> Response:
    """The reply that is a PNG file."""
    r = context.transport.send(Request("GET", path_of(ref, "/data", index=index, **asked), accept="image/png", headers=context.headers))
    if not r.body.startswith(b"\x89PNG\r\n\x1a\n"):
        raise Failure("the reply is not a picture: it may have come from something else than an arrayd daemon")
    return r


def save_picture(context: Context, path: str, r: Response) -> None:
    with Output(path) as f:
        f.write(r.body)
    if path != "-":
        context.say(f"{path}: {human(len(r.body))}")


def _nbytes(context: Context) -> int:
    """Of what `get` gets."""
    args = context.args
    if args.slice is not None:
        dtype, shape = _region(context, args.ref, args.slice)
        return itemsize(dtype) * math.prod(int(n) for n in shape.split(",") if n)
    m: Dict[str, Any] = context.ask("GET", path_of(args.ref), ARRAY)
    return itemsize(m["dtype"]) * int(math.prod(m["shape"]))


def rm(context: Context) -> int:
    """All that can be deleted are, whatever becomes of the others."""
    args = context.args
    if args.unnamed == bool(args.ref):
        raise Failure("rm: the following arguments are required: REF, or --unnamed" if not args.ref
                      else "rm: --unnamed is for all arrays without a name: it takes no REF", 2)
    if args.yes and not args.unnamed:
        raise Failure("rm: --yes is for --unnamed", 2)
    if args.unnamed:
        return _rm_unnamed(context)
    return _delete(context, args.ref, args.force)[1]


def _delete(context: Context, refs: List[str], force: bool) -> Tuple[List[str], int]:
    """Those that are deleted, and the status."""
    deleted, status = [], 0
    for ref in refs:
        try:
            context.delete(path_of(ref))
            deleted.append(ref)
        except ArraydError as e:
            if e.code == "not_found" and force:
                continue
            if e.status == 0:
                raise
            complain(explained(e, ref))
            status = 1
    return deleted, status


def _rm_unnamed(context: Context) -> int:
    """But for what others with a name refer to, and what jobs tell of."""
    arrays = context.pages("/v1/arrays", "arrays", LISTED)
    used = {c["array"] for m in arrays if m["name"] is not None for c in context.ask("GET", path_of(m["id"]), LABELS).get("coords", {}).values()}
    if any(m["name"] is None for m in arrays):  # the list of jobs is without snapshots
        jobs = [context.ask("GET", f"/v1/jobs/{j['id']}", JOB) for j in context.pages("/v1/jobs", "jobs", JOB)]
        used |= {copy["id"] for j in jobs for copy in j.get("snapshots", [])}
    unnamed = {m["id"]: 0 if m.get("view_of") else m["nbytes"] for m in arrays if m["name"] is None and m["id"] not in used}
    what = "1 array has no name" if len(unnamed) == 1 else f"{len(unnamed)} arrays have no name"
    if not context.args.yes:
        print(f"{what}, {human(sum(unnamed.values()))}" + ("; --yes deletes what has none" if unnamed else ""))
        return 0
    deleted, status = _delete(context, list(unnamed), force=True)  # what is gone by now its program has deleted
    context.say(f"{len(deleted)} deleted, {human(sum(unnamed[id_] for id_ in deleted))}")
    return status


# --- what is there ---


def ls(context: Context) -> int:
    args = context.args
    if any(p.startswith(SCHEME) for p in args.pattern):
        return ls_files(context)
    arrays = context.pages("/v1/arrays", "arrays", LISTED)
    status = 0
    if args.pattern:
        for p in args.pattern:
            if not any(_matches(m, p) for m in arrays):
                complain(f"no array is called {p}")
                status = 1
        arrays = [m for m in arrays if any(_matches(m, p) for p in args.pattern)]
    if args.sort == "name":
        arrays.sort(key=lambda m: (m["name"] is None, m["name"] or ""))
    elif args.sort == "size":
        arrays.sort(key=lambda m: -int(m["nbytes"]))
    if args.json:
        print(json.dumps(arrays, indent=2))
    elif args.long:
        if arrays:
            rows = [["NAME", "DTYPE", "SHAPE", "SIZE", "WHERE", "CREATED", ""]] + [_row(m) for m in arrays]
            print("\n".join(table(rows, right="3")))
    else:
        for m in arrays:
            print(m["name"] or m["id"])
    return status


def _matches(m: Dict[str, Any], pattern: str) -> bool:
    return m["id"] == pattern or bool(m["name"]) and fnmatch.fnmatchcase(m["name"], pattern)


def shape_text(shape: List[int]) -> str:
    return "×".join(map(str, shape)) or "()"


def _row(m: Dict[str, Any]) -> List[str]:
    notes = [text for there, text in ((m.get("view_of"), f"view of {m.get('view_of')}"), (m.get("read_only"), "read-only"), (m.get("coordinate"), "coordinate"),
                                      (any(m.get("ghost") or []), f"ghosts {shape_text(m.get('ghost') or [])}")) if there]
    where = f"device {m.get('device')}" if m.get("location") == "device" else str(m.get("location"))
    return [m["name"] or m["id"], m["dtype"], shape_text(m["shape"]), human(m["nbytes"]), where,
            str(m["created"])[:19].replace("T", " "), ", ".join(notes)]


# --- info ---


def info(context: Context) -> int:
    args = context.args
    if args.ref:
        found = [context.ask("GET", path_of(r), OBJECT) for r in args.ref]
        print(json.dumps(found, indent=2) if args.json else "\n\n".join(_described(m) for m in found))
        return 0
    all_ = context.ask("GET", "/v1/info", ABOUT)
    if args.json:
        print(json.dumps(all_, indent=2))
        return 0
    who = all_["principal"]
    lines = [("daemon", f"arrayd {all_['version']} at {context.url}"),
             ("backend", all_["backend"] + (f" ({all_['note']})" if all_.get("note") else ""))]
    for d in all_["devices"]:
        lines.append((f"device {d['index']}", f"{device_text(d)}, {human(d['free'])} of {human(d['memory'])} free{kept_text(d)}"))
    lines.append(("in use", human(all_["bytes_in_use"]) + (f", {human(all_['host_bytes_in_use'])} in host memory"
                                                           if all_["host_bytes_in_use"] else "")))
    lines.append(("you", f"{who['name']} ({who['role']}, weight {who['weight']})"))
    for name, q in who["quotas"].items():
        if q["used"] or q["limit"] is not None:
            text = human if "memory" in name or name == "body" else count
            most = "" if q["limit"] is None else f" of {text(q['limit'])}"
            lines.append(("  " + name.replace("_", " "), f"{text(q['used'])}{most}"))
    if "device_s" in who:
        lines.append(("  device time", f"{who['device_s']:.3f} s"))
    if "this_month" in who:
        lines.append((f"  in {who['this_month']['month']}", f"{who['this_month']['device_s']:.3f} s"))
    state = all_["state"]
    lines.append(("state", ("kept" if state["kept"] else "not kept") + (f", restored from {state['restored_from']}"
                                                                       if state["restored_from"] else "")))
    if args.all:
        lines += [("limits", "")] + [(f"  {k}", f"{v:g}" if isinstance(v, float) else str(v)) for k, v in all_["limits"].items()]
        lines.append(("dtypes", " ".join(all_["dtypes"])))
        lines.append(("operations", " ".join(sorted(o["name"] for o in all_["operations"]))))
    width = max(len(k) for k, _ in lines) + 2
    print("\n".join((k.ljust(width) + v).rstrip() for k, v in lines))
    return 0


def _described(m: Dict[str, Any]) -> str:
    lines = []
    for key, value in m.items():
        if key in ("attrs", "coords") and isinstance(value, dict):
            lines += [(key, "")] + [("  " + shown(k), _said(v)) for k, v in value.items()]
            continue
        if key == "dims" and isinstance(value, list):
            value = ", ".join("-" if name is None else shown(name) for name in value)
        if value is None or value == [] or key in ("size", "offset") and not value:
            continue
        if key == "nbytes":
            value = f"{value} ({human(value)})"
        elif key == "units":  # others' words, too
            value = shown(value)
        elif isinstance(value, bool):
            value = "yes" if value else "no"
        elif isinstance(value, (list, dict)):
            value = shown(value)
        lines.append((key.replace("_", " "), str(value)))
    width = max(len(k) for k, _ in lines) + 2
    return "\n".join((k.ljust(width) + v).rstrip() for k, v in lines)


def _said(v: Any) -> str:
    """An attribute, or a coordinate."""
    if isinstance(v, dict) and set(v) == {"array", "dims"}:
        return f"{v['array']} ({', '.join(shown(name) for name in v['dims'])})"
    return shown(v)
