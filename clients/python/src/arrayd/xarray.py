"""Files of a daemon's machine for xarray: `xarray.open_dataset("arrayd://host:port/data/air.nc", engine="arrayd")`.

What is in the file is asked for at once, its values when they are needed, and of a selection of them only these: the daemon reads them, and
sends them. xarray applies scale_factor, fill values and the units of times, as it does with files of its own machine. To work with
values on the daemon, `xp.files["data"].load(…)` makes arrays there.
"""
from __future__ import annotations

import os
from typing import Any, Dict, Iterable, Optional, Tuple, Union

import numpy as np
from xarray import Dataset, Variable, conventions  # type: ignore[import-not-found,import-untyped,unused-ignore]
from xarray.backends import BackendArray, BackendEntrypoint  # type: ignore[import-not-found,import-untyped,unused-ignore]
from xarray.core import indexing  # type: ignore[import-not-found,import-untyped,unused-ignore]

from ._client import Client, connect
from ._errors import BadValue
from ._numbers import unwired

__all__ = ["Backend"]
SCHEMES = {"arrayd": "http", "arrayds": "https"}
OF_STORAGE = ("_FillValue", "missing_value")  # have the variable's type
NUMBERS = (*OF_STORAGE, "scale_factor", "add_offset", "valid_min", "valid_max", "valid_range")  # of which "NaN" is one


class _Values(BackendArray):  # type: ignore[misc,unused-ignore]
    """A variable's values, which are where the file is."""

    def __init__(self, client: Client, folder: str, path: str, told: Dict[str, Any]):
        self._client, self._folder, self._path, self._name = client, folder, path, told["name"]
        self.shape, self.dtype = tuple(told["shape"]), np.dtype(told["dtype"])

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: Tuple[Any, ...]) -> "np.ndarray[Any, Any]":
        x = self._client.files[self._folder].load(self._path, self._name, index=key, decode=False, labels=False)
        return np.asarray(x.numpy())


class Backend(BackendEntrypoint):  # type: ignore[misc,unused-ignore]
    """xarray's engine "arrayd". Variables that cannot be imported, such as those of text, are left out."""

    description = "Files of the machine of an arrayd daemon"
    url = "https://docs.xarray.dev/en/stable/internals/how-to-add-new-backend.html"
    open_dataset_parameters = ("filename_or_obj", "mask_and_scale", "decode_times", "concat_characters", "decode_coords", "drop_variables", "use_cftime",
                               "decode_timedelta", "client", "token", "group")

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
    variables = {}
    for told in found["variables"]:
        name = told["name"][len(group):]
        if not told["name"].startswith(group) or "/" in name or told["dtype"] is None:
            continue
        dims = [d or f"{name}_dim_{k}" for k, d in enumerate(told.get("dims") or [None] * len(told["shape"]))]
        variables[name] = Variable(dims, indexing.LazilyIndexedArray(_Values(client, folder, path, told)), _attrs(told))
    if group and not variables:
        raise BadValue(422, "unknown_name", f"{folder}/{path} has no group {group[:-1]!r} with variables that can be read")
    variables, attrs, coords = conventions.decode_cf_variables(variables, {} if group else dict(found.get("attrs") or {}), **decoding)
    ds = Dataset(variables, attrs=attrs)
    ds = ds.set_coords(coords.intersection(variables))
    ds.encoding["unlimited_dims"] = {name for name, d in found["dims"].items() if d.get("unlimited")}
    ds.encoding["source"] = f"{client.url}/{folder}/{path}"
    return ds


def _attrs(told: Dict[str, Any]) -> Dict[str, Any]:
    attrs = {name: np.array(v) if isinstance(v, list) else v for name, v in (told.get("attrs") or {}).items()}
    for name in NUMBERS:
        if name in attrs:
            value = np.asarray(unwired(attrs[name]) if isinstance(attrs[name], str) else attrs[name])
            attrs[name] = (value.astype(told["dtype"]) if name in OF_STORAGE else value)[()]
    return attrs
