"""Completion: what a shell is offered for the word at the cursor.

The shells' parts (completion.*) hand over the words up to the cursor and get candidates, one a line, with a tab before what is
said of them; a line `:files` asks the shell for its own names of files, `:files npy` for those of arrays before others. They
know nothing of commands and options: the parser does. Names of arrays are asked for, within a bounded time; whatever goes wrong,
there is nothing to be offered.
"""
from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
from importlib import resources
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple
from urllib.parse import quote

from .._errors import ArraydError
from .._replies import DEVICES, FOLDERS, IN_FOLDER, LISTED, LISTED_SESSION, OPERATIONS
from ._context import Context, Failure
from ._files import SCHEME

SHELLS = ("bash", "zsh", "fish")
PATIENCE_S = 1.0
Candidate = Tuple[str, str]  # the word, and what is said of it


def script(shell: str) -> str:
    return resources.files(__package__ or "arrayd.cli").joinpath(f"completion.{shell}").read_text("utf-8")


def completed(parser: argparse.ArgumentParser, words: List[str]) -> int:
    """The hidden command that the shells' parts call: prints, and never fails."""
    _limit(PATIENCE_S)
    try:
        found = list(candidates(parser, words[:-1], words[-1] if words else ""))
        sys.stdout.write("".join(f"{word}\t{about}\n" if about else f"{word}\n" for word, about in found))
        sys.stdout.flush()
    except BaseException:  # no completion is worth a message on the line that is being typed
        pass
    return 0


def _limit(s: float) -> None:
    """The process is over by then, and has offered nothing."""
    def out(*_: Any) -> None:
        os._exit(0)

    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, out)
        signal.setitimer(signal.ITIMER_REAL, s)


def kind_of(action: argparse.Action) -> str:
    return str(getattr(action, "completes", ""))


def _commands(parser: argparse.ArgumentParser) -> "Optional[argparse._SubParsersAction[argparse.ArgumentParser]]":
    return next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)


class _Line:
    """The words before the cursor as the parser reads them: which command, which options, and what comes next."""

    def __init__(self, parser: argparse.ArgumentParser, words: List[str]):
        self.parser, self.values = parser, argparse.Namespace()
        self.positionals: List[str] = []
        self.command = ""
        self.expects: Optional[argparse.Action] = None  # an option before the cursor wants its value
        self.only_positionals = False
        for word in words:
            self._take(word)

    def _take(self, word: str) -> None:
        if self.expects is not None:
            setattr(self.values, self.expects.dest, word)
            self.expects = None
        elif word == "--" and not self.only_positionals:
            self.only_positionals = True
        elif word.startswith("-") and len(word) > 1 and not self.only_positionals:
            option, sep, value = word.partition("=")
            action = self.parser._option_string_actions.get(option)
            if action is None and not word.startswith("--"):  # -ofile
                action, sep, value = self.parser._option_string_actions.get(word[:2]), word[2:], word[2:]
            if action is not None and action.nargs is None:
                if sep:
                    setattr(self.values, action.dest, value)
                else:
                    self.expects = action
        elif not self.command and _commands(self.parser) is not None:
            commands = _commands(self.parser)
            assert commands is not None
            self.command = word
            self.parser = commands.choices.get(word, argparse.ArgumentParser(add_help=False))
        else:
            self.positionals.append(word)

    def positional(self) -> Optional[argparse.Action]:
        """What the next word that is no option is."""
        wanted = [a for a in self.parser._actions if not a.option_strings]
        at = len(self.positionals)
        if at < len(wanted):
            return wanted[at]
        return wanted[-1] if any(a.nargs in ("*", "+") for a in wanted) else None


def candidates(parser: argparse.ArgumentParser, words: List[str], word: str) -> Iterator[Candidate]:
    line = _Line(parser, words)
    if line.expects is not None:
        yield from _values(line, line.expects, word, "")
    elif word.startswith("--") and "=" in word and not line.only_positionals:
        option, _, value = word.partition("=")
        action = line.parser._option_string_actions.get(option)
        if action is not None:
            yield from _values(line, action, value, option + "=")
    elif word.startswith("-") and not line.only_positionals:
        for option, action in line.parser._option_string_actions.items():
            if option.startswith("--" if word.startswith("--") else "-") and option.startswith(word) and action.help != argparse.SUPPRESS:
                yield option, _short(action.help)
    elif not line.command and _commands(line.parser) is not None:
        commands = _commands(line.parser)
        assert commands is not None
        for choice in commands._choices_actions:
            if choice.dest.startswith(word):
                yield choice.dest, _short(choice.help)
    else:
        action = line.positional()
        if action is not None:
            yield from _values(line, action, word, "")


def _short(text: Optional[str]) -> str:
    return (text or "").split(";")[0].replace("\n", " ")


def _values(line: _Line, action: argparse.Action, word: str, before: str) -> Iterator[Candidate]:
    """Of an argument's value; `before` is what stands before it in the same word."""
    if action.choices is not None:
        yield from ((before + c, "") for c in action.choices if c.startswith(word))
        return
    kind = kind_of(action)
    if kind in ("files", "npy"):
        yield ":files" + (" npy" if kind == "npy" else ""), ""
    elif kind == "ref":
        done = set(line.positionals) if action.nargs in ("*", "+") else set()
        yield from ((before + n, about) for n, about in _arrays(line) if n.startswith(word) and n not in done)
    elif kind == "pattern":
        yield from ((before + n, about) for n, about in _arrays(line) if n.startswith(word))
        if word.startswith(SCHEME):
            yield from _places(line, word[len(SCHEME):], before + SCHEME)
        elif word and SCHEME.startswith(word):
            yield before + SCHEME, "files of the daemon's machine"
    elif kind in ("place", "arrays or place"):
        if kind != "place" and "/" not in word:
            yield from ((before + n, about) for n, about in _arrays(line) if n.startswith(word))
        yield from _places(line, word, before)
    elif kind == "session":
        yield from ((before + s["id"], s["name"] or "") for s in _ask(line, lambda c: c.pages("/v1/sessions", "sessions", LISTED_SESSION))
                    if s["id"].startswith(word))
    elif kind == "device":
        yield from ((before + c, about) for c, about in _ask(line, _devices) if c.startswith(word))
    elif kind == "bind":  # NAME=VALUE: an array or a file
        name, sep, value = word.partition("=")
        if sep:
            yield from ((f"{before}{name}={n}", about) for n, about in _arrays(line) if n.startswith(value))
            yield ":files npy", ""
        else:
            yield from ((f"{before}{n}={n}", about) for n, about in _arrays(line) if n.startswith(name))
    elif kind == "named":  # NAME=…, of an array
        if "=" not in word:
            yield from ((f"{before}{n}=", about) for n, about in _arrays(line) if n.startswith(word))
        else:
            yield ":files npy", ""
    elif kind == "expr":
        yield from ((before + n, about) for n, about in _expression(line, word))


def _expression(line: _Line, word: str) -> Iterator[Candidate]:
    """The name that an expression ends with: arrays, then functions."""
    found = re.search(r"[A-Za-z_]\w*\Z", word)
    begun = found[0] if found else ""
    front = word[:len(word) - len(begun)]
    if re.search(r"[\w.]\Z", front):  # 2e, 3j: a number
        return
    for n, about in _arrays(line):
        if n.startswith(begun):
            yield front + n, about
    if begun:
        for op in _ask(line, lambda c: c.ask("GET", "/v1/info", OPERATIONS)["operations"]):
            if op["name"].startswith(begun):
                yield f"{front}{op['name']}(", str(op.get("signature", "function"))


def _places(line: _Line, word: str, before: str) -> Iterator[Candidate]:
    """Of FOLDER/PATH."""
    folder, slash, path = word.partition("/")
    if not slash:
        yield from ((f"{before}{f['name']}/", "") for f in _ask(line, lambda c: c.ask("GET", "/v1/files", FOLDERS)["folders"]) if f["name"].startswith(folder))
        return
    inside, slash, begun = path.rpartition("/")
    query = f"?path={quote(inside, safe='/')}" if inside else ""
    for e in _ask(line, lambda c: c.ask("GET", f"/v1/files/{quote(folder, safe='')}{query}", IN_FOLDER).get("entries", [])):
        if e["name"].startswith(begun) and e["name"].isprintable():
            yield f"{before}{folder}/{inside}{slash}{e['name']}{'/' if e['kind'] == 'folder' else ''}", ""


def _devices(context: Context) -> List[Candidate]:
    return [("mesh" if "parts" in d else str(d["index"]), d["name"]) for d in context.ask("GET", "/v1/info", DEVICES)["devices"]]


def _arrays(line: _Line) -> List[Candidate]:
    """Names first; ids of what has none after them."""
    found = _ask(line, lambda c: c.ask("GET", "/v1/arrays?limit=1000", {"arrays": [LISTED]})["arrays"])
    named = [(m["name"], f"{m['dtype']} {tuple(m['shape'])}") for m in found if m["name"]]
    return named + [(m["id"], f"{m['dtype']} {tuple(m['shape'])}") for m in found if not m["name"]]


def _ask(line: _Line, what: Callable[[Context], Any]) -> List[Any]:
    values: Dict[str, Any] = {"url": None, "socket": None, "token": None, "token_file": None, "session": None, "device": None, "cacert": None, "quiet": True}
    values.update({k: v for k, v in vars(line.values).items() if k in values})
    context = Context(argparse.Namespace(**values, timeout=PATIENCE_S / 2))
    try:
        return list(what(context))
    except (ArraydError, Failure, OSError, ValueError):
        return []
    finally:
        context.close()
