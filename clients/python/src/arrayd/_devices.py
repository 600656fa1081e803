"""A daemon's devices: what users call them, and the session that a client has on one.

A device is a number, as in the daemon's /v1/info, or "mesh", which is several GPUs as one. Who asks for one works in his session there:
the default one if it is on that device, or else one that has the device's name. It is made where there is none, and stays, so that all
his programs and commands that ask for the device meet in it, as those that ask for none do in the default session.
"""
from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Optional, Union

from ._replies import DEVICES, NAMED_SESSION, SESSION, TEXT, Maybe
from ._requests import Steps, ask

Device = Union[int, str]
PAGE = 1000  # sessions that are asked for at once


def chosen(session: Optional[str], device: Optional[Device]) -> Optional[Device]:
    """The device to be used: the one given, or that of the environment's ARRAYD_DEVICE where neither that nor a session is."""
    if session is not None and device is not None:
        raise ValueError("a session is on a device already: give one of the two")
    return device if session is not None or device is not None else os.environ.get("ARRAYD_DEVICE") or None


def asked(device: Device) -> Device:
    """As the daemon is asked for it: 1 is also "1", of the environment, and "cuda:1", of `x.device`."""
    number = re.fullmatch(r"(?:cuda:)?(\d{1,9})", device, re.ASCII) if isinstance(device, str) else None
    return int(number[1]) if number else device


def name_of(info: Dict[str, Any], index: int) -> str:
    """What arrays say that their device is: "cpu", "cuda:0", "mesh"."""
    if any(d["index"] == index and "parts" in d for d in info.get("devices", ())):
        return "mesh"
    return "cpu" if info["backend"] == "cpu" else f"{info['backend']}:{index}"


def session_on(device: Device) -> Steps[str]:
    """The id of this user's session on a device."""
    wanted = asked(device)
    devices = (yield ask("GET", "/v1/info")).json(DEVICES)["devices"]
    there = next((d for d in devices if wanted in (d["index"], "mesh" if "parts" in d else None)), None)
    if there is None:  # which the daemon puts into words
        made: Dict[str, Any] = (yield ask("POST", "/v1/sessions", {"device": wanted})).json(SESSION)
        return str(made["id"])
    name = "mesh" if "parts" in there else f"device_{there['index']}"
    found = yield from _named(name, there["index"])
    if not found:
        made = (yield ask("POST", "/v1/sessions", {"name": name, "device": there["index"]})).json(SESSION)
        found = yield from _named(name, there["index"])
        if found and found[0] != made["id"]:  # another client's, which was quicker: all take the first
            yield ask("DELETE", f"/v1/sessions/{made['id']}")
    return found[0] if found else str(made["id"])


def _named(name: str, index: int) -> Steps[List[str]]:
    """The sessions that are meant by it, in the order of their making, but the default one first."""
    found: List[Dict[str, Any]] = []
    after = ""
    while True:
        page = (yield ask("GET", f"/v1/sessions?limit={PAGE}{after}")).json({"sessions": [NAMED_SESSION], "next": Maybe(TEXT)})
        found += [s for s in page["sessions"] if s["device"] == index and (s["default"] or s["name"] == name)]
        if not page.get("next"):
            return [s["id"] for s in sorted(found, key=lambda s: not s["default"])]
        after = f"&after={page['next']}"
