"""Files of a daemon's machine for xarray: `xarray.open_dataset("arrayd://host:port/data/air.nc", engine="arrayd")`.

What is in the file is asked for at once, its values when they are needed, and of a selection of them only these: the daemon reads them, and
sends them. xarray applies scale_factor, fill values and the units of times, as it does with files of its own machine. To work with
values on the daemon, `xp.files["data"].load(…)` makes arrays there.
"""
from __future__ import annotations

import math
import os
import warnings
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

import numpy as np
from xarray import Dataset, Variable, conventions  # type: ignore[import-not-found,import-untyped,unused-ignore]
from xarray.backends import BackendArray, BackendEntrypoint  # type: ignore[import-not-found,import-untyped,unused-ignore]
from xarray.core import indexing  # type: ignore[import-not-found,import-untyped,unused-ignore]

from ._client import Client, connect
from ._dtypes import bfloat16
from ._errors import BadValue
from ._numbers import unwired

__all__ = ["Backend"]
SCHEMES = {"arrayd": "http", "arrayds": "https"}
OF_STORAGE = ("_FillValue", "missing_value")  # have the variable's type
NBYTES = 8 << 20  # that are worth an import, which takes some 10 ms
NUMBERS = (*OF_STORAGE, "scale_factor", "add_offset", "valid_min", "valid_max", "valid_range")  # of which "NaN" is one


class _Values(BackendArray):  # type: ignore[misc,unused-ignore]
    """A variable's values, which are where the file is."""

    def __init__(self, client: Client, folder: str, path: str, told: Dict[str, Any]):
        self._client, self._folder, self._path, self._name = client, folder, path, told["name"]
        self.shape, self.dtype = tuple(told["shape"]), _dtype(told)

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: Tuple[Any, ...]) -> "np.ndarray[Any, Any]":
        x = self._client.files[self._folder].load(self._path, self._name, index=key, decode=False, labels=False)
        return np.asarray(x.astype(self.dtype).numpy() if x.dtype == bfloat16 else x.numpy())


class Backend(BackendEntrypoint):  # type: ignore[misc,unused-ignore]
    """xarray's engine "arrayd". Variables that cannot be imported, such as those of text, are left out."""

    description = "Files of the machine of an arrayd daemon"
    url = "https://docs.xarray.dev/en/stable/internals/how-to-add-new-backend.html"
    open_dataset_parameters = ("filename_or_obj", "mask_and_scale", "decode_times", "concat_characters", "decode_coords", "drop_variables", "use_cftime",
                               "decode_timedelta", "client", "token", "group")

    def open_groups_as_dict(self, filename_or_obj: Any, **more: Any) -> Any:
        raise NotImplementedError('the engine "arrayd" opens one group at a time: open_dataset(…, group="…")')

    open_datatree = open_groups_as_dict

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        return isinstance(filename_or_obj, str) and filename_or_obj.partition("://")[0] in SCHEMES

    def open_dataset(self, filename_or_obj: Any, *, mask_and_scale: bool = True, decode_times: bool = True, concat_characters: bool = True,
                     decode_coords: Union[bool, str] = True, drop_variables: Union[None, str, Iterable[str]] = None, use_cftime: Optional[bool] = None,
                     decode_timedelta: Optional[bool] = None, client: Optional[Client] = None, token: Optional[str] = None,
                     group: Optional[str] = None) -> Any:
        """`filename_or_obj`: arrayd://host:port/FOLDER/PATH, or arrayds:// for TLS; with a `client`, FOLDER/PATH. `token`: as `connect` has it.
        `group`: the file's, in place of its root."""
        place = os.fspath(filename_or_obj)
        scheme, remote, rest = place.partition("://")
        address, _, within = rest.partition("/")
        own = client is None
        if client is None:
            if scheme not in SCHEMES or not address:
                raise ValueError(f"{filename_or_obj!r}: arrayd://host:port/FOLDER/PATH is wanted, or a client and FOLDER/PATH")
            client = connect(f"{SCHEMES[scheme]}://{address}", token)
        try:
            folder, _, path = (within if remote else place).partition("/")
            found = client.files[folder].describe(path)
            if found["kind"] != "file":
                raise IsADirectoryError(f"{folder}/{path} is a folder: open_dataset opens one file")
            ds = _dataset(client, folder, path, found, group.strip("/") + "/" if group and group.strip("/") else "", dict(
                mask_and_scale=mask_and_scale, decode_times=decode_times, concat_characters=concat_characters, decode_coords=decode_coords,
                drop_variables=drop_variables, use_cftime=use_cftime, decode_timedelta=decode_timedelta))
        except BaseException:
            if own:
                client.close()
            raise
        if own:
            ds.set_close(client.close)
        return ds


def _dataset(client: Client, folder: str, path: str, found: Dict[str, Any], group: str, decoding: Dict[str, Any]) -> Any:
    source = f"{client.url}/{folder}/{path}"
    variables: Dict[str, Any] = {}
    left_out: Dict[str, str] = {}
    drop = decoding["drop_variables"] or ()
    drop = [drop] if isinstance(drop, str) else [*drop]
    for told in found["variables"]:
        name = _within(group, told["name"])
        if name is None:
            continue
        if told["dtype"] is None:
            left_out[name] = told.get("why") or "of no type that arrays have"
            continue
        # in a group its own dimensions and those of the groups around it are named without these
        dims = [d.rpartition("/")[2] if d else f"{name}_dim_{k}" for k, d in enumerate(told.get("dims") or [None] * len(told["shape"]))]
        variables[name] = Variable(dims, indexing.LazilyIndexedArray(_Values(client, folder, path, told)), _attrs(told),
                                   {**_encoding(told, dims), "source": source})
    if group and not variables:
        raise BadValue(422, "unknown_name", f"{folder}/{path} has no group {group[:-1]!r} with variables that can be read")
    for v in variables.values():  # else the coordinates that are there would be none, either
        if left_out and decoding["decode_coords"] and isinstance(v.attrs.get("coordinates"), str):
            v.attrs["coordinates"] = " ".join(name for name in v.attrs["coordinates"].split() if name not in left_out)
    told_of = "; ".join(f"{name}: {why}" for name, why in left_out.items() if name not in drop)
    if told_of:
        warnings.warn(f"{folder}/{path}: left out are {told_of} (drop_variables silences this)", stacklevel=5)
    made, attrs, coords = conventions.decode_cf_variables(variables, {} if group else dict(found.get("attrs") or {}), **decoding)
    ds = Dataset(made, attrs=attrs)
    ds = ds.set_coords(coords.intersection(made))
    ds.encoding["unlimited_dims"] = {_within(group, name) for name, d in found["dims"].items() if d.get("unlimited")} - {None}
    ds.encoding["source"] = source
    return ds


def _within(group: str, name: str) -> Optional[str]:
    """Its name in the group; None for what is not directly in it."""
    return name[len(group):] if name.startswith(group) and "/" not in name[len(group):] else None


def _dtype(told: Dict[str, Any]) -> "np.dtype[Any]":
    return np.dtype("float32" if told["dtype"] == "bfloat16" else told["dtype"])  # NumPy has no bfloat16


def _together(told: Dict[str, Any]) -> List[int]:
    """Neighbouring chunks up to some MiB, along the last axes first, as they lie in the file: each that dask reads is an import of its own."""
    shape, chunks = told["shape"], [*told["chunks"]]
    most = NBYTES // _dtype(told).itemsize
    for k in reversed(range(len(chunks))):
        chunks[k] = min(max(shape[k], 1), chunks[k] * max(1, most // math.prod(chunks)))
        if chunks[k] < shape[k]:
            break
    return chunks


def _encoding(told: Dict[str, Any], dims: List[str]) -> Dict[str, Any]:
    """How the file has it, as xarray's own engines say it: `chunks={}` reads by these chunks, small ones together, and to_netcdf writes so again."""
    found: Dict[str, Any] = {"original_shape": tuple(told["shape"])}
    if told.get("chunks"):
        found.update(chunksizes=tuple(told["chunks"]), preferred_chunks=dict(zip(dims, _together(told))))
    for word, _, level in (f.partition(" ") for f in told.get("filters") or ()):
        if word == "deflate" and level.isdigit():
            found.update(zlib=True, complevel=int(level))
        elif word in ("shuffle", "fletcher32"):
            found[word] = True
    return found


def _attrs(told: Dict[str, Any]) -> Dict[str, Any]:
    attrs = {name: np.array(v) if isinstance(v, list) else v for name, v in (told.get("attrs") or {}).items()}
    for name in NUMBERS:
        if name in attrs:
            value = np.asarray(unwired(attrs[name]) if isinstance(attrs[name], str) else attrs[name])
            stored = name in OF_STORAGE and (np.isfinite(value).all() or _dtype(told).kind == "f")
            attrs[name] = (value.astype(_dtype(told)) if stored else value)[()]
    # The precision of these is that of what is decoded, and JSON does not say it: "decoded" has a float32's value as it is.
    decoded = told.get("decoded") or {}
    for name, member in (("scale_factor", "scale"), ("add_offset", "offset")):
        if member in decoded and isinstance(attrs.get(name), float):
            exact = float(unwired(decoded[member]) if isinstance(decoded[member], str) else decoded[member])
            attrs[name] = np.float32(exact) if decoded["dtype"] == "float32" or exact != attrs[name] else np.float64(exact)
    return attrs
