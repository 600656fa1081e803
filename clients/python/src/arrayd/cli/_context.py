"""What every command has: the daemon, and how to say something to the user.

Results go to standard output, everything else to standard error.
"""
from __future__ import annotations

import argparse
import json
import os
import ssl
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, TextIO, Tuple

from .._bar import human
from .._devices import session_on
from .._errors import ArraydError
from .._replies import TEXT, Maybe
from .._requests import ask
from .._transport import Transport

if TYPE_CHECKING:
    from .._client import Client

PROGRAM = "arrayd-cli"
DEFAULT_URL = "http://127.0.0.1:7411"
PAGE = 1000  # entries of a list that are asked for at once


class Failure(Exception):
    """An error with a message for the user: status 1, or 2 where the command line is wrong."""

    def __init__(self, message: str, status: int = 1):
        super().__init__(message)
        self.status = status


def complain(message: str, stream: Optional[TextIO] = None) -> None:
    """On standard error, with the program's name before it."""
    out = stream or sys.stderr
    try:
        out.write(f"{PROGRAM}: {message}\n")
        out.flush()
    except (OSError, ValueError):  # nobody listens
        pass


def token_of(args: argparse.Namespace) -> Optional[str]:
    """--token, else --token-file, else the environment's."""
    if args.token:
        return str(args.token)
    path = args.token_file or (None if os.environ.get("ARRAYD_TOKEN") else os.environ.get("ARRAYD_TOKEN_FILE"))
    if path:
        try:
            with open(path, encoding="ascii") as f:
                text = f.read(1024).strip()
        except (OSError, UnicodeDecodeError) as e:
            raise Failure(f"the token cannot be read: {e}") from e
        if not text or len(text.split()) != 1:
            raise Failure(f"there is no token in {path}, or more than one")
        return text
    return os.environ.get("ARRAYD_TOKEN") or None


def url_of(args: argparse.Namespace) -> str:
    if args.socket:
        return f"unix:{args.socket}"
    return str(args.url or os.environ.get("ARRAYD_URL") or DEFAULT_URL)


class Context:
    """The daemon of one run of a command."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self._transport: Optional[Transport] = None
        self._client: "Optional[Client]" = None
        self._temporary: List[str] = []
        self._session: Optional[str] = None  # "": the default one

    @property
    def url(self) -> str:
        return url_of(self.args)

    @property
    def session(self) -> Optional[str]:
        """The first of what the command line says and what the environment says; the daemon is asked for the one on a device."""
        if self._session is None:
            if self.args.session and self.args.device:
                raise Failure("--session and --device: a session is on a device already, so that only one of the two can be given", 2)
            self._session = self.args.session or (None if self.args.device else os.environ.get("ARRAYD_SESSION")) or ""
            device = "" if self._session else self.args.device or os.environ.get("ARRAYD_DEVICE")
            if device:
                self._session = self.transport.run(session_on(device))
        return self._session or None

    @property
    def headers(self) -> Tuple[Tuple[str, str], ...]:
        """Of every request."""
        return (("Arrayd-Session", self.session),) if self.session else ()

    @property
    def transport(self) -> Transport:
        """Nothing is sent before the first request."""
        if self._transport is None:
            tls = None
            if self.args.cacert:
                try:
                    tls = ssl.create_default_context(cafile=self.args.cacert)
                except (OSError, ssl.SSLError) as e:
                    raise Failure(f"{self.args.cacert}: {e}") from e
            try:
                self._transport = Transport(self.url, token_of(self.args), self.args.timeout, tls)
            except ValueError as e:
                raise Failure(str(e), 2) from e
        return self._transport

    @property
    def client(self) -> "Client":
        """The package's array namespace, for what needs it: it takes NumPy, which takes longer to load than most commands to run."""
        if self._client is None:
            from .._client import Client

            self._client = Client(self.transport, self.session)
        return self._client

    def ask(self, method: str, path: str, form: Any, value: Any = None) -> Any:
        """The JSON reply, which is of that form (see `_replies.py`)."""
        return self.transport.send(ask(method, path, value, headers=self.headers)).json(form)

    def delete(self, path: str) -> None:
        self.transport.send(ask("DELETE", path, headers=self.headers))

    def pages(self, path: str, key: str, form: Any) -> List[Dict[str, Any]]:
        """All entries of a list that comes in pages."""
        entries: List[Dict[str, Any]] = []
        after = ""
        while True:
            page = self.ask("GET", f"{path}?limit={PAGE}{after}", {key: [form], "next": Maybe(TEXT)})
            entries += page[key]
            if not page.get("next"):
                return entries
            after = f"&after={page['next']}"

    def temporary(self, id_: str) -> str:
        """An array that goes when the command ends."""
        self._temporary.append(id_)
        return id_

    def close(self) -> None:
        """Best effort: the command has ended one way or the other."""
        if self._transport is None:
            return
        for id_ in self._temporary:
            try:
                self.delete(f"/v1/arrays/{id_}")
            except ArraydError:
                pass
        if self._client is not None:
            self._client.release()
        self._transport.close()

    def say(self, message: str) -> None:
        """Something that is neither result nor error: standard error, unless --quiet."""
        if not self.args.quiet:
            sys.stderr.write(message + "\n")


Command = Callable[[Context], int]


def shown(v: Any) -> str:
    """What others have written, on one line: it must not move the cursor. What is no text is shown as JSON."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in (v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)))


def device_text(d: Dict[str, Any]) -> str:
    """A device's name. A mesh's GPUs are devices, too, whose memory is not there twice."""
    if not d.get("parts"):
        return str(d["name"])
    *first, last = map(str, d["parts"])
    return f"devices {', '.join(first)} and {last} together (mesh)"


def kept_text(d: Dict[str, Any]) -> str:
    """Of a device's free memory: what the daemon has, for new arrays."""
    return f", {human(d['kept'])} of it kept for new arrays" if d.get("kept") else ""


def table(rows: List[List[str]], right: str = "", columns: Optional[int] = None) -> List[str]:
    """Lines with columns below each other; `right`: the numbers of those that end flush, as digits. What is wider than `columns` is
    closer together, and if need be its texts, which are the others, are cut."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    gap = "  "
    if columns is not None and sum(widths) + 2 * len(widths) - 2 > columns:
        gap = " "
        texts = [k for k in range(len(widths)) if str(k) not in right]
        while texts and sum(widths) + len(widths) - 1 > columns and max(widths[k] for k in texts) > 8:
            widths[max(texts, key=lambda k: widths[k])] -= 1
        rows = [[cell if len(cell) <= w else cell[:w - 1] + "…" for cell, w in zip(row, widths)] for row in rows]
    return [gap.join(cell.rjust(w) if str(k) in right else cell.ljust(w) for k, (cell, w) in enumerate(zip(row, widths))).rstrip()
            for row in rows]
