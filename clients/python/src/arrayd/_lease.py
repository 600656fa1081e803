"""Leases: exclusive use of an array, or an array kept unchanged, for some requests, over any connection.

    with x.leased():                # no other client can use x
        if float(xp.max(x)) > 1:
            x[...] = x / xp.max(x)

An export has its own lease, which lasts as long as its connection. This one lasts `ttl_s` seconds unless it is renewed, even if the
client disconnects.
"""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional

from ._errors import NotFound
from ._replies import LEASE
from ._requests import Request, Steps

if TYPE_CHECKING:
    from ._array import Array


class Lease:
    """A lease on an array's memory. With "write" no other client can read or write it, and what this client assigns to the array is written
    to that memory. With "read" other clients can read too, and only a sole holder can write. All requests of this client use the lease.

    `token` is None before and after. Errors: `Conflict` if another client holds a lease, or this client has an export or another lease of it."""

    def __init__(self, x: "Array", mode: str = "write", ttl_s: float = 60.0):
        if mode not in ("read", "write"):
            raise ValueError(f"the mode is 'read' or 'write', not {mode!r}")
        self._x, self.mode, self.ttl_s = x, mode, float(ttl_s)
        self._handle: Any = None
        self._pid = os.getpid()
        self.token: Optional[str] = None

    def __repr__(self) -> str:
        return f"<arrayd.Lease for {self.mode}, shape={self._x.shape}, {'held' if self.token else 'ended or not begun'}>"

    def _request(self, method: str, value: Any = None) -> Request:
        """With no other lease of the client's: it may have an export of the same memory."""
        engine = self._x._client._engine
        mine = (("Arrayd-Lease", self.token),) if self.token else ()
        return engine.ask(method, f"/v1/arrays/{self._handle.id}/lease", value, leased=False)._replace(headers=engine.headers + mine)

    def _taking(self) -> Steps[None]:
        """Takes it, or renews it."""
        x = self._x
        if self.token is None:
            if self.mode == "write":
                yield from x._owning()
            self._handle = yield from x._client._engine.place(x._node)
            self._pid = os.getpid()
        token = (yield self._request("POST", {"mode": self.mode, "ttl_s": self.ttl_s})).json(LEASE)["token"]
        leases = x._client._transport.leases
        if self.token is not None and self.token != token:  # the time of the last was over
            leases.pop(self.token, None)
        self.token = token
        leases[token] = None
        if self.mode == "write":
            self._handle.writer = x

    def _giving(self) -> Steps[None]:
        token = self.token
        if token is None:
            return
        request = self._request("DELETE")
        self.token = None
        try:
            if self._pid == os.getpid():  # after a fork it is the parent's
                yield request
        except NotFound:  # its time was over, or the array has gone
            pass
        finally:
            self._x._client._transport.leases.pop(token, None)
            self._x._written_no_more(self._handle)

    def renew(self) -> None:
        """Renews the lease for another `ttl_s` seconds; one that has expired is taken anew. `NotFound` if the array no longer exists."""
        if self.token is None:
            raise ValueError("the array is leased within `with x.leased():` only")
        self._x._client._run(self._taking())

    def __enter__(self) -> "Lease":
        if self.token is not None:
            raise ValueError("the lease is held already: x.leased() makes another one")
        self._x._client._run(self._taking())
        return self

    def __exit__(self, *_: Any) -> None:
        self._x._client._run(self._giving())
