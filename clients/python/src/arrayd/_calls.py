"""Calls of the API beside the array namespace: grids, memory, shares, and lists of what is there.

Each is written once, as steps (see `_requests.py`), which `_carry` takes: the synchronous client gives what they come to, the
asynchronous one what is awaited for it.
"""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence
from urllib.parse import quote

from . import _dtypes as dt
from ._array import Array
from ._files import Files, loading
from ._graph import Handle, stored
from ._held import json_of
from ._namespace import Bound, Namespace, Ref
from ._replies import ADMIN, ARRAY, ENDS, LISTS, OBJECT, SHARE, SHARES
from ._requests import Steps, segment


def _name(of: str) -> str:
    """An account's name (or an id) as a part of a path."""
    if not of:
        raise ValueError("the account's name, or the id, is empty")
    return quote(of, safe="@")


class Calls(Namespace):
    # --- grids ---

    def grid(self, shape: Any = None, dtype: Any = None, *, ghost: Any = None, boundary: Any = None, spacing: Any = None,
             fill: Any = None, like: Optional[Ref] = None, name: Optional[str] = None, padded: Any = None,
             congruent_to: Optional[Ref] = None, alignment: Optional[int] = None, location: Optional[str] = None,
             placement: Optional[Mapping[str, Sequence[int]]] = None) -> Any:
        """Makes an array with ghost cells, a boundary and a spacing, each with an entry for each axis, filled with 0 or `fill`:

            u = xp.grid((64, 64), ghost=(1, 1), boundary=["periodic", [{"type": "dirichlet", "value": 1}, {"type": "neumann"}]])
            u[...] = values
            u.fill_ghost()
            v = xp.laplacian(u, boundary="ghost")

        `like` is an array to take all of this from. `padded` and `congruent_to` give arrays of several shapes the same strides (see
        `layout`); with `location="host"` it is moved to the host's memory at once. `placement` says where
        it lies on several GPUs as one, if not as its size has it: `{"parts": [1]}` on the first, `{"parts": [2, 1]}` divided between both
        (`metadata` has where). With a `name` it is shared and remains, and an existing array with this name is replaced. Assignments to
        a grid write in place; what is computed from it, also a copy, is an ordinary array."""
        members = {"shape": None if shape is None else self._shape(shape), "dtype": None if dtype is None else dt.name_of(dt.dtype_of(dtype)),
                   "ghost": ghost, "boundary": boundary, "spacing": spacing, "fill": fill, "padded": padded, "alignment": alignment,
                   "location": location, "placement": placement}
        return self._carry(self._making_grid({k: json_of(v) for k, v in members.items() if v is not None},
                                             {"like": like, "congruent_to": congruent_to}, name))

    def _making_grid(self, body: Dict[str, Any], arrays: Mapping[str, Optional[Ref]], name: Optional[str]) -> Steps[Array]:
        for member, x in arrays.items():
            if x is not None:
                body[member] = (yield from self._ref(x))
        path = "/v1/arrays" if name is None else f"/v1/arrays/{segment(name)}"
        m = (yield self._engine.ask("POST" if name is None else "PUT", path, body)).json(ARRAY)
        handle = self._engine.own(m) if name is None else Handle(m["id"], name)
        handle.stays = True
        return self._wrap(stored(handle, *dt.described(m)), shared=name is not None)

    def layout(self, shapes: Sequence[Sequence[int]], ghosts: Optional[Sequence[Sequence[int]]] = None) -> Any:
        """Extents of memory that fit several shapes, for the `padded` of grids: `{"padded": …, "strides": …, "pads": …}`."""
        body = {"shapes": json_of(shapes), **({} if ghosts is None else {"ghosts": json_of(ghosts)})}
        return self._carry(self._answered("POST", "/v1/layouts", body))

    # --- memory ---

    def swap(self, a: Ref, b: Ref) -> Any:
        """Exchanges the values of two arrays of one dtype, shape and layout, by exchanging their memory, without a copy. Each keeps its
        id and its name; views follow their array."""
        return self._carry(self._swapping(a, b))

    def _swapping(self, a: Ref, b: Ref) -> Steps[None]:
        arrays = [x for x in (a, b) if isinstance(x, Array)]
        for x in arrays:
            yield from self._check(x)._owning(True)
        yield self._engine.ask("POST", (yield from self._path(a)) + "/swap", {"with": (yield from self._ref(b))})
        for x in arrays:
            x._anew()

    # --- shares ---

    def share(self, x: Ref, principal: str, access: str = "read") -> Any:
        """Lets another account use an array: see `Array.share`."""
        return self._carry(self._sharing(x, principal, access))

    def _sharing(self, x: Ref, principal: str, access: str) -> Steps[Dict[str, Any]]:
        if isinstance(x, Array):
            yield from x._owning(True)
        r = yield self._engine.ask("POST", (yield from self._path(x)) + "/shares", {"principal": principal, "access": access})
        share: Dict[str, Any] = r.json(SHARE)
        if isinstance(x, Array):
            handle = x._anew()._node.handle
            assert handle is not None
            x._shared = handle.lent = True
        return share

    def shares(self, x: Ref) -> Any:
        """Whom an array is shared with: `[{"principal": "ann", "access": "read"}]`."""
        return self._carry(self._listing_shares(x))

    def _listing_shares(self, x: Ref) -> Steps[List[Dict[str, Any]]]:
        r = yield self._engine.ask("GET", (yield from self._path(x)) + "/shares")
        shares: List[Dict[str, Any]] = r.json(SHARES)["shares"]
        return shares

    def unshare(self, x: Ref, principal: str) -> Any:
        """Takes a share back, which also ends that account's leases and programs on the array."""
        return self._carry(self._unsharing(x, principal))

    def _unsharing(self, x: Ref, principal: str) -> Steps[None]:
        yield self._engine.ask("DELETE", f"{(yield from self._path(x))}/shares/{_name(principal)}")

    # --- what is there ---

    def sessions(self) -> Any:
        """What the daemon says of each session of this user's."""
        return self._carry(self._listing("sessions"))

    def jobs(self) -> Any:
        """What the daemon says of each job of this user's, without its records: `xp.job(id)` has them."""
        return self._carry(self._listing("jobs"))

    def functions(self) -> Any:
        """The functions that `define` has made."""
        return self._carry(self._listing("functions"))

    def _listing(self, of: str, path: str = "") -> Steps[List[Dict[str, Any]]]:
        found: List[Dict[str, Any]] = []
        after: Optional[str] = ""
        while after is not None:
            page = (yield self._engine.ask("GET", f"/v1/{path or of}?limit=1000" + (f"&after={after}" if after else ""))).json(LISTS[of])
            found += page[of]
            after = page.get("next")
        return found

    # --- files ---

    @property
    def files(self) -> Files:
        """The folders with files on the daemon's machine that its operator has named: `xp.files["data"].load("air.nc", "air")`."""
        return Files(self)

    def load(self, file: Any, *args: Any, variable: Optional[str] = None, decode: bool = True, coords: bool = True, labels: bool = True,
             ghosts: Optional[str] = None, **more: Any) -> Any:
        """The array of a file of this machine, by its suffix. NetCDF and HDF5 files are sent as they are: the daemon reads the `variable`, or the
        only one that there is, applies scale_factor, add_offset and fill values unless `decode` is False, and the array gets the variable's
        attributes, names of axes, unit and coordinates (not with `labels=False`; `coords=False`: not the coordinates, which are arrays that go with
        the last one that has them), and with `ghosts="keep"` the ghost cells that the file has of a grid. Of a .npz file `variable` is one of its
        arrays; without it, and for all other files, this is numpy.load. Large files are better read where the daemon is: `xp.files`. With
        an asynchronous client it is awaited."""
        said = {"decode": None if decode else "false", "coords": None if coords else "{}", "labels": None if labels else "false", "ghosts": ghosts}
        return self._moved(loading(self, file, variable, {k: v for k, v in said.items() if v is not None}, args, more))

    # --- for operators ---

    def admin(self, of: str) -> Any:
        """What operators may see of everybody: `of` is "sessions", "jobs", "arrays" (each with its `owner`), "principals" (accounts, and
        what they have) or "audit" (who did what). A list of what the daemon says of each."""
        if of not in ADMIN:
            raise ValueError(f"{of!r} is none of {', '.join(ADMIN)}")
        return self._carry(self._listing(ADMIN[of], f"admin/{of}"))

    def admin_end(self, what: str, which: str) -> Any:
        """For operators: ends another user's "session", "job" or "array" by its id, or a "principal" with all that it has, by its name.
        A job that is running is cancelled, and its owner still finds it; one that has ended is removed."""
        if what not in ENDS:
            raise ValueError(f"{what!r} is none of {', '.join(ENDS)}")
        return self._carry(self._requesting("DELETE", f"/v1/admin/{what}s/{_name(which)}"))

    def admin_set(self, principal: str, *, weight: Optional[int] = None, quotas: Optional[Mapping[str, Optional[int]]] = None,
                  reset: Sequence[str] = ()) -> Any:
        """For operators: changes an account's weight and quotas (`{"arrays": 100}`; 0: none) for the running daemon and those after it,
        until the accounts file says something else of them than now. `reset`: those that are the file's again, "weight" or a quota."""
        changed: Dict[str, Any] = dict.fromkeys(quotas or ())
        changed.update(quotas or {})
        changed.update({name: None for name in reset if name != "weight"})
        value: Dict[str, Any] = {"quotas": changed} if changed else {}
        if weight is not None or "weight" in reset:
            value["weight"] = weight
        if not value:
            raise ValueError("there is nothing to change: give a weight, quotas, or what is to be reset")
        return self._carry(self._answered("PATCH", f"/v1/admin/principals/{_name(principal)}", value))

    def delete_function(self, name: str) -> Any:
        """Forgets a function that `define` has made."""
        return self._carry(self._requesting("DELETE", f"/v1/functions/{segment(name)}"))

    def explain(self, expr: str, /, *, bind: Optional[Mapping[str, Bound]] = None, **named: Bound) -> Any:
        """How the server would evaluate an infix expression: its types, kernels, and the bytes that they move. Nothing is computed.
        (`x.explain()` says how this client would send what x is.)"""
        return self._carry(self._explaining(expr, {**(bind or {}), **named}))

    def _explaining(self, expr: str, bind: Mapping[str, Bound]) -> Steps[Dict[str, Any]]:
        given = self._to_bind(bind)
        body = {"expr": expr, "bind": (yield from self._binding(given, False))}
        explained: Dict[str, Any] = (yield from self._asking_about("POST", "/v1/explain", body, {"/expr": expr})).json(OBJECT)
        return explained

    # --- in common ---

    def _answered(self, method: str, path: str, value: Any) -> Steps[Dict[str, Any]]:
        answer: Dict[str, Any] = (yield self._engine.ask(method, path, value)).json(OBJECT)
        return answer

    def _ref(self, x: Ref) -> Steps[str]:
        """An array's id, or what a user called it."""
        return (yield from self._path(x)).rpartition("/")[2]
