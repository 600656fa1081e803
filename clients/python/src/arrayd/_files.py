"""Files: those of this machine, whose bytes go to the daemon and come from it, and those in the daemon's own folders.

What is asked is written as steps (see `_requests.py`). What also reads or writes a file here, or waits for a job, is written as moves
(see `_endpoint.py`), so that it is there once for both clients: no file is opened by what has the requests.
"""
from __future__ import annotations

import contextlib
import functools
import operator
import os
import secrets
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import quote, urlencode

import numpy as np

from . import _dtypes as dt
from ._array import Array
from ._endpoint import Moves
from ._errors import ArraydError, NotFound
from ._graph import Handle, stored
from ._labels import part_of, plain
from ._replies import ARRAY, FOLDERS, IN_FOLDER, JOB
from ._requests import FILES, FORMATS, OF_ONE, Request, Steps, format_of, segment, variables_of

File = Union[str, "os.PathLike[str]"]
MMAP_MODES = ("r+", "r", "w+", "c")  # numpy.load's second argument
Arrays = Union[Array, Any, Mapping[str, Any], Sequence[Any]]


def suffix_of(file: Any) -> str:
    """In lower case; nothing of what is no path."""
    return os.path.splitext(os.fspath(file))[1].lower() if isinstance(file, (str, os.PathLike)) else ""


def is_file(name: Any) -> bool:
    """Whether that is where a file is to be, and not what an array is to be called."""
    return isinstance(name, os.PathLike) or (isinstance(name, str) and suffix_of(name) in FORMATS)


def name_alone(name: Any, *options: Any) -> str:
    """What an array is to be called, with none of what is said of files."""
    if any(v is not None for v in options):
        raise TypeError(f"attrs, deflate, coords, ghosts and unlimited are for files, with one of the suffixes {', '.join(FORMATS)}, not for an array's name, {name!r}")
    if suffix_of(name):
        raise ValueError(f"{name!r} is neither an array's name nor that of a file with one of the suffixes {', '.join(FORMATS)}")
    return str(name)


def index_text(key: Any) -> str:
    """NumPy's basic indexing as the daemon has it: of text, or of what stands between brackets, `np.s_[5:8, ::2]`."""
    if isinstance(key, str):
        return key.strip()[1:-1] if key.strip().startswith("[") else key
    return ", ".join(_index_part(k) for k in (key if isinstance(key, tuple) else (key,)))


def _index_part(k: Any) -> str:
    if isinstance(k, slice):
        ends = ["" if n is None else str(operator.index(n)) for n in (k.start, k.stop, k.step)]
        return ":".join(ends if k.step is not None else ends[:2])
    if k is Ellipsis or k is None:
        return "..." if k is Ellipsis else "None"
    try:
        if not isinstance(k, (bool, np.bool_)):
            return str(operator.index(k))
    except TypeError:
        pass
    raise TypeError(f"index: of files parts are read by whole numbers and slices, not by lists, masks or arrays of them: {type(k).__name__}")


def _read(path: str) -> bytes:
    with open(path, "rb") as f:
        return f.read()


def _write(path: str, write: Callable[[Any], Any]) -> None:
    """The file is there as a whole or as it was before."""
    path = os.path.realpath(path)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as f:
            write(f)
        os.replace(temporary, path)
    except BaseException as e:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if isinstance(e, OSError) and e.filename == temporary:  # a name that nobody has given
            raise type(e)(e.errno, e.strerror, path) from None
        raise


# --- files of this machine ---


def loading(c: Any, file: Any, variable: Optional[str], said: Mapping[str, str], args: Tuple[Any, ...], more: Dict[str, Any]) -> Moves[Any]:
    """What `xp.load` does, for a client."""
    suffix = suffix_of(file)
    if suffix in FILES and variable is None and len(args) == 1 and isinstance(args[0], str) and not (suffix == ".npz" and args[0] in MMAP_MODES):
        variable, args = args[0], ()
    if suffix in (".tif", ".tiff", ".png"):
        raise ValueError(f"{os.fspath(file)}: .npy, .npz, NetCDF and HDF5 files are sent; TIFF and PNG files are read where the daemon is: xp.files")
    if suffix not in FILES or (suffix == ".npz" and variable is None):
        if variable is not None or said:
            raise ValueError(f"{file}: variables are those of .npz, NetCDF and HDF5 files")
        return (yield c._aside, functools.partial(_numpys, c._hosted("load", np.load), file, *args, **more))
    if args or more:
        raise TypeError(f"load() of a {suffix} file has the arguments variable, decode, coords, labels and ghosts, not {', '.join(more) or 'others by their place'}")
    body = yield c._aside, _read, os.path.expanduser(os.fspath(file))
    return (yield c._carry, _sending(c, body, FILES[suffix], variable, said))


def _numpys(load: Callable[..., Any], file: Any, *args: Any, **more: Any) -> Any:
    try:
        return load(file, *args, **more)
    except ValueError as e:  # NumPy takes whatever it does not know for a pickle
        if "pickle" not in str(e) or suffix_of(file) in ("", ".npy", ".npz"):
            raise
        raise ValueError(f"{os.fspath(file)}: .npy, .npz, NetCDF and HDF5 files are read, by their suffixes") from e


def _sending(c: Any, body: bytes, kind: str, variable: Optional[str], said: Mapping[str, str]) -> Steps[Any]:
    query = {**said, **({} if variable is None else {"variable": variable})}
    path = "/v1/arrays" + (f"?{urlencode(query, quote_via=quote)}" if query else "")
    m = (yield Request("POST", path, body, kind, headers=c._engine.headers)).json(ARRAY)
    return _taken(c, m, c._engine.own(m))


def _taken(c: Any, m: Dict[str, Any], handle: Handle) -> Any:
    """The array of that metadata; if anything is said of it, it keeps that, and so its memory."""
    handle.stays = any(k in m for k in ("attrs", "dims", "units", "coords"))
    return c._wrap(stored(handle, *dt.described(m)), shared=handle.name is not None)


def saving(c: Any, file: Any, x: Arrays, options: Dict[str, Any]) -> Moves[None]:
    """What `xp.save` does with the path of a file."""
    path, suffix = os.path.expanduser(os.fspath(file)), suffix_of(file)
    if suffix not in FORMATS:
        raise ValueError(f"{path}: the suffix says the format: {', '.join(FORMATS)}")
    if suffix == ".npy":
        if isinstance(x, Mapping) or any(v is not None for v in options.values()):
            raise ValueError(f"{path}: a .npy file has one array and nothing else; .npz, .nc and .h5 files have several")
        values = yield c._carry, c._engine.fetch(c._taken(x)._node)
        yield c._aside, _write, path, functools.partial(np.save, arr=dt.plain(values), allow_pickle=False)
        return
    data = yield c._carry, _bundling(c, FORMATS[suffix], x, options)
    yield c._aside, _write, path, lambda f: f.write(data)


def _bundling(c: Any, format_: str, x: Arrays, options: Dict[str, Any]) -> Steps[bytes]:
    held: List[Any] = []  # until the daemon has what is in them
    body = {**(yield from _arrays(c, x, held)), **_options(options, format_), "format": format_}
    return bytes((yield c._engine.ask("POST", "/v1/files/bundle", body)).body)


def _options(options: Dict[str, Any], format_: Optional[str]) -> Dict[str, Any]:
    given = {k: v for k, v in options.items() if v is not None}
    if format_ in OF_ONE:  # they have no place for coordinates
        given["coords"] = False
    if "attrs" in given:
        given["attrs"] = plain(given["attrs"])
    return given


def _arrays(c: Any, x: Arrays, held: List[Any]) -> Steps[Dict[str, Any]]:
    """What there is to be in a file: arrays by the names of variables, several that have names, or one."""
    if isinstance(x, Mapping):
        named = [*x.items()]
    elif isinstance(x, (list, tuple)) and x and all(isinstance(v, (Array, str)) for v in x):
        named = [(None, v) for v in x]
    else:
        named = [(None, x)]
    if not named:
        raise ValueError("there is nothing to be saved")
    arrays = []
    for name, v in named:
        if not isinstance(v, (Array, str)):
            v = c.asarray(v)
        if isinstance(v, Array):
            held.append(c._check(v))
            part = (yield from part_of(c, v, held, coords=True)) if v._view is not None else None
            id_ = part["id"] if part is not None else (yield from c._engine.place(v._node)).id
            name = name or (v._node.handle.name if v._node.handle is not None else None) or "array"
        else:
            id_ = segment(v, "is neither an array's name nor its id")
        arrays.append(id_ if name is None else {"array": id_, "name": str(name)})
    return {"arrays": arrays}


# --- files of the daemon's machine ---


class Files:
    """The folders with files that the daemon's operator has named: `xp.files["data"]`. With an asynchronous client what asks the daemon is
    awaited."""

    def __init__(self, client: Any):
        self._client = client

    def ls(self) -> Any:
        """The folders: `[{"name": "data", "read_only": False, "shared": True}]`."""
        return self._client._carry(self._folders())

    def _folders(self) -> Steps[List[Dict[str, Any]]]:
        found: List[Dict[str, Any]] = (yield self._client._engine.ask("GET", "/v1/files")).json(FOLDERS)["folders"]
        return found

    def __getitem__(self, name: str) -> "Folder":
        return Folder(self._client, segment(name, "is no folder's name"))

    def __iter__(self) -> Iterator[str]:
        folders = self.ls()
        if not isinstance(folders, list):
            folders.close()
            raise TypeError("that needs the server: await xp.files.ls()")
        return iter([f["name"] for f in folders])

    def __repr__(self) -> str:
        return f"<arrayd.Files of {self._client.url}>"


class Folder:
    """A folder on the daemon's machine. Paths in it have names separated by /; no path leaves it."""

    def __init__(self, client: Any, name: str):
        self._client, self.name = client, name

    def __repr__(self) -> str:
        return f"<arrayd.Folder {self.name} of {self._client.url}>"

    def ls(self, path: str = "") -> Any:
        """What is in it, or in a folder in it, in the order of the names: `[{"name": "air.nc", "kind": "file", "size": 7089, "modified": …}]`."""
        return self._client._carry(self._entries(path))

    def _entries(self, path: str) -> Steps[List[Dict[str, Any]]]:
        found = yield from self._looking(path)
        if found["kind"] == "file":
            raise NotADirectoryError(f"{self.name}/{path} is a file: describe(path) says what is in it")
        entries: List[Dict[str, Any]] = found["entries"]
        return entries

    def describe(self, path: str = "") -> Any:
        """What the daemon says of a file: its `format`, `attrs`, `dims` and `variables`; of a folder: its `entries`, and whether there are
        `more` than it lists."""
        return self._client._carry(self._looking(path))

    def _looking(self, path: str) -> Steps[Dict[str, Any]]:
        query = f"?path={quote(path, safe='/')}" if path else ""
        found: Dict[str, Any] = (yield self._client._engine.ask("GET", f"/v1/files/{self.name}{query}")).json(IN_FOLDER)
        return found

    def _file(self, path: str) -> Steps[Dict[str, Any]]:
        found = yield from self._looking(path)
        if found["kind"] != "file":
            raise IsADirectoryError(f"{self.name}/{path} is a folder: ls(path) lists what is in it")
        return found

    def load(self, path: str, variable: Union[None, str, Sequence[str]] = None, *, index: Any = None, decode: bool = True,
             name: Union[None, str, Mapping[str, str]] = None, coords: bool = True, labels: bool = True, ghosts: Optional[str] = None,
             progress: bool = False) -> Any:
        """The array of a variable of a file, of its only one if none is named, or arrays by their variables' names of a list of them, or of "*",
        all but coordinates. Waits for the import, which is cancelled if the waiting is, and raises JobFailed if it failed; `progress` shows a bar.

        `index` is what is read of each: NumPy's basic indexing, as text or as `np.s_[5:8, ::2]`. With `decode`
        scale_factor, add_offset and fill values are applied. Attributes, names of axes, the unit and coordinates become the array's (not
        with `labels=False`; `coords=False`: not the coordinates, which are arrays that go with the last one that has them), and with `ghosts="keep"` the
        ghost cells that the file has of a grid. With a `name`, or names by
        variables, the array is shared and remains, and an existing one with this name is replaced."""
        said = {"coords": None if coords else False, "labels": None if labels else False, "ghosts": ghosts}
        rest: Dict[str, Any] = {k: v for k, v in said.items() if v is not None}
        return self._client._moved(self._loading(path, variable, index, decode, name, rest, progress))

    def _loading(self, path: str, variable: Union[None, str, Sequence[str]], index: Any, decode: bool,
                 name: Union[None, str, Mapping[str, str]], rest: Dict[str, Any], progress: bool) -> Moves[Any]:
        c = self._client
        if variable == "*":
            variable = variables_of((yield c._carry, self._file(path)))
        several = not (variable is None or isinstance(variable, str))
        wanted: List[Optional[str]] = [variable] if variable is None or isinstance(variable, str) else [*variable]
        if not wanted:
            raise ValueError("there is no variable to be loaded")
        names = _names(wanted, name, several)
        items = []
        for v, called in zip(wanted, names):
            given = {"variable": v, "name": called or f"loading_{secrets.token_hex(12)}", "index": None if index is None else index_text(index),
                     "decode": None if decode else False}
            items.append({k: value for k, value in given.items() if value is not None})
        body = {"folder": self.name, "path": path, "variables": items, "overwrite": any(names), **rest}
        made: List[Any] = []
        try:
            yield from self._job("import", body, progress)
            for item, called in zip(items, names):
                made.append((yield c._carry, c._finding(called) if called else _owned(c, str(item["name"]))))
        except BaseException:
            left = [item["name"] for item, called in [*zip(items, names)][len(made):] if not called]
            with contextlib.suppress(ArraydError):
                yield c._carry, _deleted(c, left)
            raise
        return dict(zip(wanted, made)) if several else made[0]

    def save(self, path: str, arrays: Arrays, *, format: Optional[str] = None, attrs: Optional[Mapping[str, Any]] = None,
             deflate: Optional[int] = None, coords: bool = True, ghosts: Optional[str] = None, unlimited: Optional[Sequence[str]] = None,
             overwrite: bool = False, progress: bool = False) -> Any:
        """Writes a file: an array, several that have names, or a dictionary of arrays by the names of variables, with their attributes, names of
        axes and units, and (`coords`) their coordinates. The suffix says the format, or `format` does: netcdf4, netcdf3, hdf5, npz, npy, tiff or
        png. `attrs` are the file's own, `ghosts="keep"` writes the ghost cells of grids, too, and `unlimited` names axes that may grow in the file.
        Waits until it is there as a whole, and raises JobFailed if it cannot be, or there is one, unless `overwrite`."""
        options = {"format": format and format_of(format), "attrs": attrs, "deflate": deflate, "coords": None if coords else False,
                   "ghosts": ghosts, "unlimited": unlimited, "overwrite": overwrite or None}
        return self._client._moved(self._saving(path, arrays, options, progress))

    def _saving(self, path: str, arrays: Arrays, options: Dict[str, Any], progress: bool) -> Moves[None]:
        c = self._client
        held: List[Any] = []
        members = yield c._carry, _arrays(c, arrays, held)
        format_ = options["format"] or FORMATS.get(suffix_of(path))
        yield from self._job("export", {"folder": self.name, "path": path, **members, **_options(options, format_)}, progress)

    def _job(self, kind: str, body: Dict[str, Any], progress: bool) -> Moves[Any]:
        """To its end. Whoever does not want to wait any more does not want it either."""
        c = self._client
        job = c._job_of((yield c._carry, c._asking("POST", f"/v1/files/{kind}", body)).json(JOB))
        try:
            yield (functools.partial(job.wait, progress=progress),)
        except BaseException:
            if not job.ended:
                yield (job.cancel,)
            raise
        if job.state != "done":
            raise ArraydError(0, "cancelled", f"the {kind} of {self.name}/{body['path']} was cancelled by another client")
        return job


def _names(variables: Sequence[Optional[str]], name: Union[None, str, Mapping[str, str]], several: bool) -> List[Optional[str]]:
    """What arrays are to be called, None for those that are this process' own."""
    if isinstance(name, Mapping):
        wrong = set(name) - set(variables)
        if wrong:
            raise ValueError(f"name: {sorted(wrong)[0]!r} is none of the variables")
        return [None if v is None else name.get(v) for v in variables]
    if name is not None and several:
        raise ValueError("name: of several variables a dictionary of names by variables is wanted")
    return [name for _ in variables]


def _deleted(c: Any, names: Sequence[Any]) -> Steps[None]:
    """Arrays of an import that nobody here will have, if it has made them."""
    for name in names:
        with contextlib.suppress(NotFound):
            yield c._engine.ask("DELETE", f"/v1/arrays/{name}")


def _owned(c: Any, name: str) -> Steps[Any]:
    """An import gives names to its arrays; from now on it has none, and goes when nobody here has it any more."""
    m = (yield c._engine.ask("PATCH", f"/v1/arrays/{name}", {"name": None})).json(ARRAY)
    return _taken(c, m, c._engine.own({**m, "name": None}))
