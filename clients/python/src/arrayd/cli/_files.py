"""Files that the daemon reads and writes: .npz, NetCDF and HDF5 files of this machine for put and get, and those in the daemon's
folders: ls files:…, import, export."""
from __future__ import annotations

import argparse
import fnmatch
import json
import os
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import quote

from .._bar import Bar, TransferBar, duration, human, steps_line
from .._errors import ArraydError, failed_at, failure_of
from .._jobs import Job, JobFailed
from .._replies import FOLDERS, IN_FOLDER, JOB, MADE, parsed
from .._requests import FILES, FORMATS, OF_ONE, OF_OTHERS, Request, variables_of
from ._context import Context, Failure, complain, shown, table
from ._formats import GOT, suffix_of
from ._streams import Body, download, send
from ._values import NAME, explained, path_of

SCHEME = "files:"


# --- of this machine ---


def put_file(context: Context) -> int:
    """A file as it is: what is in it the daemon reads."""
    args, path = context.args, os.path.expanduser(context.args.file)
    into, name = args.slice is not None, args.name
    if args.dtype is not None:
        raise Failure(f"put: --dtype is for .npy files: {args.file} has dtypes of its own", 2)
    if into and name is None:
        raise Failure("put: --slice needs the NAME of the array to write to", 2)
    if into and (args.no_coords or args.no_labels):
        raise Failure("put: --no-coords and --no-labels are for a new array, not for a part of one", 2)
    if name is None and not args.unnamed:
        name = (args.variable or os.path.splitext(os.path.basename(path))[0]).rpartition("/")[2]
        if not NAME.match(name):
            raise Failure(f"put: {name!r}, of {args.file}, cannot be an array's name: give it one, as in put {args.file} NAME", 2)
    query = {"index": args.slice, "variable": args.variable, "decode": "false" if args.no_decode else None, "ghosts": _ghosts(args),
             "coords": "{}" if args.no_coords and not into else None, "labels": "false" if args.no_labels and not into else None}
    if into or (name is not None and not args.no_clobber):
        method, target = "PUT", path_of(name, "/data" if into else "", **query)
    else:
        method, target = "POST", path_of("", name=name, **query).replace("/v1/arrays/", "/v1/arrays", 1)
    with open(path, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        body = Body(b"", f, size, args.file, TransferBar(args.file, size, False if args.quiet else None))
        try:
            reply = send(context, method, target, body, FILES[suffix_of(path)])
        except ArraydError as e:
            if e.code == "unknown_name" and args.variable is None:
                raise Failure(f"{args.file}: {e.detail}\n--variable says which is meant") from e
            raise
    if into:
        print(name)
        return 0
    m: Dict[str, Any] = parsed(reply, MADE, f"{method} {target}")
    print(json.dumps(m) if args.json else m.get("name") or m["id"])
    return 0


def get_file(context: Context, path: str) -> int:
    args = context.args
    kind, begins = GOT[suffix_of(path)]
    r = Request("GET", path_of(args.ref, "/data", index=args.slice, ghosts=_ghosts(args)), accept=kind, headers=context.headers)
    context.say(f"{path}: {human(download(context, r, path, args.ref, begins=begins))}")
    return 0


def _ghosts(args: argparse.Namespace) -> Optional[str]:
    return "keep" if args.keep_ghosts else None


# --- of the daemon's machine ---


def ls_files(context: Context) -> int:
    """Folders, what is in one, or what is in a file."""
    args = context.args
    if any(not p.startswith(SCHEME) for p in args.pattern):
        raise Failure(f"ls: arrays and {SCHEME} are listed one at a time", 2)
    found = [_matching(context, p[len(SCHEME):]) for p in args.pattern]
    if args.json:
        print(json.dumps(found if len(found) > 1 else found[0], indent=2))
        return 0
    for place, told in zip(args.pattern, found):
        if len(found) > 1:
            print(f"{shown(place)}:")
        rows = _rows(told, args.sort)
        if args.long and len(rows) > 1:
            print("\n".join(table(rows, right=str(rows[0].index("SIZE")) if "SIZE" in rows[0] else "")))
        else:
            for row in rows[1:]:
                print(row[0])
        if told.get("folders") == []:
            complain("the daemon has no folders with files: its operator names them, with --files")
        if told.get("more"):
            complain(f"{shown(place)} has more than {len(told['entries'])} entries, which are not listed")
    return 0


def _matching(context: Context, place: str) -> Dict[str, Any]:
    """The entries of a folder whose names match, where the last name is a pattern."""
    within, _, pattern = place.rpartition("/")
    if not within or not set(pattern) & set("*?["):
        return _looked(context, place)
    told = _looked(context, within)
    if told["kind"] != "folder":
        raise Failure(f"ls: {SCHEME}{within} is a file", 2)
    return {**told, "entries": [e for e in told["entries"] if fnmatch.fnmatchcase(e["name"], pattern)]}


def _looked(context: Context, place: str) -> Dict[str, Any]:
    folder, _, path = place.strip("/").partition("/")
    if not folder:
        folders: Dict[str, Any] = context.ask("GET", "/v1/files", FOLDERS)
        return folders
    query = f"?path={quote(path, safe='/')}" if path else ""
    found: Dict[str, Any] = context.ask("GET", f"/v1/files/{quote(folder, safe='')}{query}", IN_FOLDER)
    return found


def _rows(told: Dict[str, Any], sort: str) -> List[List[str]]:
    """With a head; the names are first."""
    if "folders" in told:
        return [["NAME", "ACCESS", "OF"]] + [[f["name"], "read" if f["read_only"] else "read, write", "all users" if f["shared"] else "you"]
                                             for f in told["folders"]]
    if told["kind"] == "folder":
        entries = sorted(told["entries"], key=lambda e: -int(e.get("size", 0))) if sort == "size" else told["entries"]
        return [["NAME", "SIZE", "MODIFIED"]] + [[shown(e["name"]) + ("/" if e["kind"] == "folder" else ""), human(e["size"]) if "size" in e else "-",
                                                  str(e["modified"])[:19].replace("T", " ")] for e in entries]
    return [["VARIABLE", "DTYPE", "SHAPE", "UNITS", ""]] + [
        [shown(v["name"]), shown(v["dtype"] or "-"), _shape(v), shown(str((v.get("attrs") or {}).get("units", "-"))),
         shown(str((v.get("attrs") or {}).get("long_name", "") if v["dtype"] else v.get("why", "")))] for v in told["variables"]]


def _shape(v: Dict[str, Any]) -> str:
    """With the names of axes, where there are any: month 12 × lat 4."""
    names = v.get("dims") or [None] * len(v["shape"])
    return " × ".join(f"{shown(name)} {n}" if name else str(n) for name, n in zip(names, v["shape"])) or "()"


def _place(command: str, text: str) -> Tuple[str, str]:
    """FOLDER/PATH, also with files: before it."""
    folder, _, path = (text[len(SCHEME):] if text.startswith(SCHEME) else text).partition("/")
    if not folder or not path:
        raise Failure(f"{command}: {text!r} is not FOLDER/PATH: ls {SCHEME} lists the folders", 2)
    return folder, path


def _named(text: str) -> Tuple[Optional[str], str]:
    """NAME=SOMETHING, or SOMETHING."""
    before, sep, after = text.partition("=")
    return (before, after) if sep and NAME.match(before) and after else (None, text)


def import_(context: Context) -> int:
    args = context.args
    folder, path = _place("import", args.file)
    if args.all and args.variable:
        raise Failure("import: --all are all variables: name none", 2)
    wanted = [_named(text) for text in args.variable] or _unnamed(context, args.file, folder, path)
    rest = {k: v for k, v in (("index", args.slice), ("decode", False if args.no_decode else None)) if v is not None}
    items = [{**({} if v is None else {"variable": v}), **({} if name is None else {"name": name}), **rest} for name, v in wanted]
    body = {"folder": folder, "path": path, "variables": items, "overwrite": not args.no_clobber,
            **{k: False for k in ("coords", "labels") if getattr(args, f"no_{k}")}, **({"ghosts": "keep"} if args.keep_ghosts else {})}
    return _moved(context, "import", body, [name or str(v).rpartition("/")[2] for name, v in wanted])


def _unnamed(context: Context, given: str, folder: str, path: str) -> List[Tuple[Optional[str], str]]:
    """The file's only variable, not counting what belongs to another, as the daemon counts; or with --all all but coordinates. The only one
    has the file's name, where the format has no names."""
    told = _looked(context, f"{folder}/{path}")
    if told["kind"] == "folder":
        raise Failure(f"import: {given} is a folder: ls {SCHEME}{given} lists what is in it", 2)
    all_ = variables_of(told) if context.args.all else variables_of(told, OF_OTHERS)
    if not all_ or (len(all_) > 1 and not context.args.all):
        several = f"several variables: {', '.join(map(shown, all_))}: name those that are wanted, or --all"
        raise Failure(f"import: {given} has {several if all_ else 'no variables that can be imported'}", 2)
    if len(all_) > 1 or told["format"] not in OF_ONE:
        return [(None, v) for v in all_]
    name = os.path.splitext(path.rpartition("/")[2])[0]
    if not NAME.match(name):
        raise Failure(f"import: {name!r}, of {given}, cannot be an array's name: give it one, as in import {given} NAME={all_[0]}", 2)
    return [(name, all_[0])]


def export(context: Context) -> int:
    args = context.args
    folder, path = _place("export", args.file)
    arrays: List[Any] = []
    for name, ref in map(_named, args.ref):
        arrays.append(ref if name is None else {"array": ref, "name": name})
    alone = (args.format or FORMATS.get(suffix_of(path))) in OF_ONE
    body = {"folder": folder, "path": path, "arrays": arrays, "format": args.format, "deflate": args.deflate,
            "coords": False if args.no_coords or alone else None, "labels": False if args.no_labels else None, "ghosts": _ghosts(args), "unlimited": args.unlimited, "overwrite": args.overwrite}
    return _moved(context, "export", {k: v for k, v in body.items() if v is not None}, [f"{folder}/{path}"])


def _worded(e: ArraydError) -> ArraydError:
    """With the options of this program in place of the request's members."""
    for member, option in (('"overwrite": true', "--overwrite"), ('"labels": false', "--no-labels"), ('"coords": false', "--no-coords")):
        e.detail = e.detail.replace(member, option)
    return e


def _cancelled(job: Job, kind: str) -> None:
    if job.ended:
        return
    try:
        job.cancel()
    except ArraydError as e:
        complain(f"the job goes on: {job.id}: {e.detail}")
        return
    complain(f"the {kind} was cancelled; it has left nothing" if job.state == "cancelled" else f"{job.id} had just ended: {job.state}")


def _moved(context: Context, kind: str, body: Dict[str, Any], made: List[str]) -> int:
    """The job to its end, or, where the user does not want to wait, to where he has ended it."""
    args = context.args
    try:
        job = Job(context.client, context.ask("POST", f"/v1/files/{kind}", JOB, body), [])
    except ArraydError as e:
        raise _worded(e)
    if args.detach:
        print(json.dumps(job.status) if args.json else job.id)
        return 0
    bar = Bar(False if args.quiet else True if args.watch else None)
    try:
        if not job.ended:
            for _ in job.events():
                bar.update(lambda width: steps_line(bar, job.status, width))
        try:
            job.wait()
        except JobFailed:
            pass  # what it failed of is told below
    except (KeyboardInterrupt, BrokenPipeError, SystemExit):  # Ctrl-C; nobody reads on; a signal
        bar.clear()
        _cancelled(job, kind)
        raise
    finally:
        bar.clear()
    if args.json:
        print(json.dumps(job.status))
    if job.state == "done":
        context.say(f"{human(job.step)} in {duration(float(job.status['elapsed_s']))}")
        if not args.json:
            print("\n".join(made))
        return 0
    if job.state == "cancelled":
        complain(f"{job.id} was cancelled by another client")
    else:
        failure = _worded(failure_of(job.status))
        complain(explained(failure, f"{body['folder']}/{body['path']}: {failed_at(job.status)}" if job.step else f"{body['folder']}/{body['path']}"))
    return 1
