"""The command line of arrayd-cli, and what it ends with."""
from __future__ import annotations

import argparse
import io
import os
import shlex
import signal
import sys
from typing import Any, List, NoReturn, Optional, Sequence

from .._bar import duration
from .._errors import ArraydError, Busy, Denied
from .._numbers import DTYPES
from .._requests import FORMATS, format_of
from .._version import __version__
from . import _arrays, _complete, _eval, _events, _files, _run, _show
from ._context import DEFAULT_URL, PROGRAM, Command, Context, Failure, complain
from ._values import counted, explained, extents, index, name, pair, ref, seconds, whole

ABOUT = f"""\
Arrays of an arrayd daemon, from the shell.

Where the daemon is and who you are: --url or ARRAYD_URL ({DEFAULT_URL} by itself), --token-file, ARRAYD_TOKEN_FILE or
ARRAYD_TOKEN. Results go to standard output, everything else to standard error."""
ENDS = "Exit status: 0; 1 where something failed; 2 where the command line is wrong; 130 after Ctrl-C."


def _add(parser: Any, *names: str, completes: str = "", **how: Any) -> argparse.Action:
    """An argument, and what completion offers for it (_complete.py)."""
    action: argparse.Action = parser.add_argument(*names, **how)
    setattr(action, "completes", completes)
    return action


def _common(parser: argparse.ArgumentParser, default: Any = argparse.SUPPRESS) -> None:
    """Options that stand before the command or after it."""
    g = parser.add_argument_group("the daemon")
    _add(g, "--url", metavar="URL", default=default, help="http://host:port, https://host:port or unix:/path")
    _add(g, "--socket", completes="files", metavar="PATH", default=default, help="the daemon's Unix socket")
    _add(g, "--token-file", completes="files", metavar="FILE", default=default, help="the file that your token is in")
    _add(g, "--token", metavar="TOKEN", default=default, help="the token itself; others on this machine see it while the command runs")
    _add(g, "--session", completes="session", metavar="ID", default=default, help="the session, or ARRAYD_SESSION; else your default one")
    _add(g, "--device", completes="device", metavar="DEVICE", default=default,
         help="a device's number, or mesh, or ARRAYD_DEVICE; for your session on it")
    _add(g, "--cacert", completes="files", metavar="FILE", default=default, help="the certificates that https:// is to trust")
    _add(g, "--timeout", metavar="SECONDS", type=seconds, default=default, help="give up when for so long no byte has come")
    _add(g, "-q", "--quiet", action="store_true", default=False if default is None else default, help="no bars and remarks")


class _CommandParser(argparse.ArgumentParser):
    """Of one command: its options may stand anywhere before `--`, also between others' places: `get f --raw out.bin`."""

    _inside = False
    _words: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """What was meant for an argument and taken for options is the likely mistake."""
        known = self._option_string_actions
        mistaken = [w for w in self._words if w.startswith("-") and len(w) > 1 and w.split("=")[0] not in known
                    and not (w[:2] in known and w[2:].partition("=")[0].isalnum())]
        if mistaken and "--" not in self._words:
            message += f"\nan argument that begins with - and is not an option must follow --: {self.prog} -- {shlex.quote(mistaken[0])}"
        super().error(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        if self._inside or "--" in words:  # asked by the other; and that loses track of what `--` is for (Python 3.9 to 3.11)
            return super().parse_known_args(args, namespace)
        self._inside, self._words = True, words
        try:
            return self.parse_known_intermixed_args(words, namespace)
        finally:
            self._inside = False


def _command(commands: Any, title: str, run: Command, about: str, more: str = "") -> Any:
    p = commands.add_parser(title, help=about, description=f"{about[0].upper()}{about[1:]}. {more}".strip())
    p.set_defaults(run=run)
    return p


def _binds(p: Any) -> None:
    _add(p, "-b", "--bind", completes="bind", metavar="NAME=VALUE", type=pair, action="append", default=[],
         help="a number, an array's name or id, or a .npy file (- for standard input); as often as needed")


def _lets(p: Any) -> None:
    _add(p, "--let", metavar="NAME=EXPR", type=pair, action="append", default=[], help="a part that EXPR may use more than once; in order")


def _pictures(p: Any, of: str, cmap: str = "gray") -> None:
    """What may be asked for of a picture; `of` says when it is one."""
    _add(p, "--cmap", metavar="MAP", help=f"{of}the colours, as gray, viridis, turbo; {cmap} by itself")
    _add(p, "--lo", metavar="VALUE", type=float, help=f"{of}what has the first colour")
    _add(p, "--hi", metavar="VALUE", type=float, help=f"{of}what has the last colour")
    _add(p, "--percentiles", metavar="LOW,HIGH", help=f"{of}percentiles, as 2,98, in place of --lo and --hi")
    _add(p, "--width", metavar="N", type=int, help=f"{of}pixels")
    _add(p, "--height", metavar="N", type=int, help=f"{of}pixels")
    _add(p, "--pool", choices=("mean", "max", "min", "nearest"), help=f"{of}what a pixel is of its elements")
    _add(p, "--bar", action="store_true", help=f"{of}with a colour bar")


def _waits(p: Any) -> None:
    """Of a job with a file."""
    g = p.add_mutually_exclusive_group()
    _add(g, "--watch", action="store_true", help="say how far it is even where standard error is no terminal")
    _add(g, "-d", "--detach", action="store_true", help="print the job's id and leave it alone")
    _add(p, "--json", action="store_true", help="print the job as JSON at its end")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(PROGRAM, description=ABOUT, epilog=ENDS, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    _add(parser, "--version", action="version", version=f"{PROGRAM} {__version__}")
    _common(parser, None)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, title="commands", parser_class=_CommandParser)

    p = _command(commands, "put", _arrays.put, "uploads a file as an array", ".npy, .npz, NetCDF, HDF5 and .csv files, by the suffix. Prints the name, or the id of an array without one.")
    _add(p, "file", completes="npy", metavar="FILE", help="- for standard input")
    _add(p, "name", completes="ref", metavar="NAME", nargs="?", type=ref, help="of the array; the file's without .npy by itself")
    _add(p, "-n", "--no-clobber", action="store_true", help="fail where the name is taken; else that array is replaced")
    _add(p, "--unnamed", action="store_true", help="give it no name")
    _add(p, "--slice", metavar="SLICE", type=index, help="write to this part of the array NAME: '[1:3, ::2]'")
    _add(p, "--variable", metavar="VARIABLE", help="which of a .npz, NetCDF or HDF5 file's is meant, where it has several")
    _add(p, "--no-decode", action="store_true", help="of a NetCDF or HDF5 file: leave values as they are stored, without scale_factor and the like")
    _add(p, "--no-coords", action="store_true", help="of a NetCDF or HDF5 file: leave coordinates in it")
    _add(p, "--no-labels", action="store_true", help="of a NetCDF or HDF5 file: leave attributes, names of axes and coordinates in it")
    _add(p, "--keep-ghosts", action="store_true", help="of a NetCDF or HDF5 file: with the ghost cells that it has of a grid")
    _add(p, "--raw", action="store_true", help="the file has no head: bytes in C order, little-endian")
    _add(p, "--dtype", choices=DTYPES, metavar="DTYPE", help="of --raw; or bfloat16 for a file of 2-byte voids")
    _add(p, "--shape", metavar="N,M,…", type=extents, help="of --raw")
    _add(p, "--json", action="store_true", help="print the metadata")

    p = _command(commands, "get", _arrays.get, "downloads an array as a file, or a picture of it", ".npy, .npz, .nc, .h5 and .csv files, and .png files with a picture, by the suffix. The file is there as a whole or as it was before.")
    _add(p, "ref", completes="ref", metavar="REF", type=ref, help="an array's name or id")
    _add(p, "file", completes="npy", metavar="FILE", nargs="?", help="REF.npy by itself; - for standard output")
    _add(p, "--slice", metavar="SLICE", type=index, help="only this part of it: '[1:3, ::2]'")
    _add(p, "--raw", action="store_true", help="bytes without a head, in C order, little-endian")
    _add(p, "--keep-ghosts", action="store_true", help="of a .npz, NetCDF or HDF5 file: with the ghost cells of a grid")
    _pictures(p, "of a .png file: ")

    p = _command(commands, "show", _show.show, "draws an array as a picture on the terminal",
                 "By kitty's protocol, as sixels or as half blocks, whatever the terminal has, and as large as it is; a line below says what it is. "
                 "With -o a .png file is written.")
    _add(p, "ref", completes="ref", metavar="REF", nargs="?", type=ref, help="an array's name or id, of two axes, or of three with 3 or 4 colours in the last")
    _add(p, "--expr", completes="expr", metavar="EXPR", help="in place of REF: the value of an expression; - for standard input")
    _binds(p)
    _lets(p)
    _add(p, "--slice", "--index", metavar="SLICE", type=index, help="only this part of it: '[0, :, ::2]'")
    _pictures(p, "", "viridis")
    _add(p, "--as", dest="drawn", choices=("auto", "kitty", "sixel", "blocks"), default="auto", help="how; the terminal is asked by itself")
    _add(p, "-o", "--output", completes="files", metavar="FILE", help="a .png file, in place of the terminal; - for standard output")

    p = _command(commands, "eval", _eval.evaluate, "evaluates an expression",
                 "Prints the value, of large arrays the corners; or it becomes an array, or a file.")
    _add(p, "expr", completes="expr", metavar="EXPR", help="as in 'mean(u) + 2*k'; - for standard input")
    _binds(p)
    _lets(p)
    g = p.add_mutually_exclusive_group()
    _add(g, "--name", metavar="NAME", type=name, help="the result becomes an array by this name; a taken one is replaced")
    _add(g, "--out", completes="ref", metavar="REF", type=ref, help="the result is written to this array")
    _add(g, "-o", "--output", completes="npy", metavar="FILE", help="the result becomes a .npy file; - for standard output")
    _add(p, "--index", metavar="SLICE", type=index, help="the part of --out's array that is written to")
    _add(p, "--dtype", choices=DTYPES, metavar="DTYPE", help="of the result")
    _add(p, "--fast-math", action="store_true", help="faster, and the last digits may differ")
    _add(p, "--full", action="store_true", help="print all elements with all their digits")
    _add(p, "--json", action="store_true", help="print dtype, shape and value, or the metadata of what was made, as JSON")

    p = _command(commands, "ls", _arrays.ls, "lists the arrays of the session", "By name, or by id where there is none; with files:FOLDER/PATH what is in a folder, or a file, of the daemon's machine.")
    _add(p, "pattern", completes="pattern", metavar="PATTERN", nargs="*", help="only these: names, with * and ? and [a-z], or ids; or files:, files:FOLDER, files:FOLDER/PATH")
    _add(p, "-l", "--long", action="store_true", help="with dtype, shape, size, place and time")
    _add(p, "--sort", choices=("created", "name", "size"), default="created", help="the order; as they were made by itself")
    _add(p, "--json", action="store_true", help="print the metadata of all as one JSON list")

    p = _command(commands, "import", _files.import_, "reads a file of the daemon's machine",
                 "Its variables become arrays. Prints their names; Ctrl-C cancels it. `ls files:` lists the folders, `ls -l files:FOLDER/PATH` what a file has.")
    _add(p, "file", completes="place", metavar="FOLDER/PATH", help="a file in one of the daemon's folders")
    _add(p, "variable", metavar="VARIABLE", nargs="*", help="which, or NAME=VARIABLE with the array's name; the only one by itself")
    _add(p, "-a", "--all", action="store_true", help="all variables, not counting coordinates")
    _add(p, "--slice", metavar="SLICE", type=index, help="only this part of each: '[5:8, ::2]'")
    _add(p, "--no-decode", action="store_true", help="leave values as they are stored, without scale_factor and the like")
    _add(p, "--no-coords", action="store_true", help="leave coordinates in the file")
    _add(p, "--no-labels", action="store_true", help="leave attributes, names of axes and coordinates in the file")
    _add(p, "--keep-ghosts", action="store_true", help="with the ghost cells that the file has of a grid")
    _add(p, "-n", "--no-clobber", action="store_true", help="fail where a name is taken; else that array is replaced")
    _waits(p)

    p = _command(commands, "export", _files.export, "writes arrays to a file of the daemon's machine", "Prints its place; Ctrl-C cancels it. Nobody sees half of it.")
    _add(p, "ref", completes="arrays or place", metavar="ARRAY", nargs="+", help="an array's name or id, or NAME=ARRAY with the variable's name")
    _add(p, "file", completes="arrays or place", metavar="FOLDER/PATH", help="the file, in one of the daemon's folders")
    _add(p, "--format", type=format_of, choices=sorted({*FORMATS.values()}), metavar="FORMAT", help="where the suffix does not say it: netcdf4 or nc, hdf5 or h5, …")
    _add(p, "--deflate", metavar="N", type=int, choices=range(10), help="0 to 9: how much is done to make the file small, where the format can be")
    _add(p, "--no-coords", action="store_true", help="leave coordinates out")
    _add(p, "--no-labels", action="store_true", help="leave attributes, names of axes and coordinates out")
    _add(p, "--keep-ghosts", action="store_true", help="write the ghost cells of grids, too")
    _add(p, "--unlimited", metavar="AXIS", action="append", help="an axis that may grow in the file; in NetCDF and HDF5, more than once")
    _add(p, "--overwrite", action="store_true", help="replace a file that is there")
    _waits(p)

    p = _command(commands, "rm", _arrays.rm, "deletes arrays")
    _add(p, "ref", completes="ref", metavar="REF", nargs="*", type=ref, help="an array's name or id")
    _add(p, "-f", "--force", action="store_true", help="say nothing of what is not there")
    _add(p, "--unnamed", action="store_true", help="in place of REF: say how many arrays have no name, as killed programs leave them")
    _add(p, "--yes", action="store_true", help="with --unnamed: delete them, also those of programs that still run")

    p = _command(commands, "info", _arrays.info, "describes the daemon, or arrays")
    _add(p, "ref", completes="ref", metavar="REF", nargs="*", type=ref, help="an array's name or id; the daemon where there is none")
    _add(p, "-a", "--all", action="store_true", help="of the daemon its limits, dtypes and operations too")
    _add(p, "--json", action="store_true", help="as the API tells it")

    p = _command(commands, "run", _run.run, "runs a program: statements that are done many times",
                 "FILE is a program of the HTTP API as JSON, or text: a statement a line, # for comments, and lines like '@steps 1000' "
                 "that say what the options below do. What is recorded is printed as it comes. Ctrl-C cancels the program.")
    _add(p, "file", completes="files", metavar="FILE", help="- for standard input")
    _add(p, "--steps", metavar="N", type=whole, help="how often")
    _binds(p)
    _add(p, "--record", metavar="NAME=EXPR", type=pair, action="append", default=[], help="a value to be printed; as often as needed")
    _add(p, "--record-every", metavar="N", type=whole, help="so many steps apart")
    _add(p, "--until", metavar="EXPR", help="end with the first step after which it is true")
    _add(p, "--until-every", metavar="N", type=whole, help="ask for it every so many steps")
    _add(p, "--snapshot", completes="named", metavar="NAME=N", type=counted, action="append", default=[],
         help="copy this array every so many steps")
    _add(p, "--save", completes="named", metavar="NAME=FILE", type=pair, action="append", default=[],
         help="at the end, download this array as a .npy file")
    _add(p, "--stop-on-nan", action="store_true", help="fail before the step that makes a NaN")
    _add(p, "--fast-math", action="store_true", help="faster, and the last digits may differ")
    g = p.add_mutually_exclusive_group()
    _add(g, "--watch", action="store_true", help="say how far it is even where standard error is no terminal")
    _add(g, "-d", "--detach", action="store_true", help="print the job's id and leave it alone")
    _add(p, "--json", action="store_true", help="print the job as JSON at its end, not its records")

    p = _command(commands, "top", _top, "shows sessions, memory, device time and jobs, live",
                 "On a terminal: q quits, s sorts, space looks now, + and - change the pace, arrows go on. Elsewhere: the same as text, "
                 "again and again.")
    _add(p, "--once", action="store_true", help="once")
    _add(p, "-n", "--count", metavar="N", type=whole, help="so often")
    _add(p, "-d", "--delay", metavar="SECONDS", type=seconds, help="time between two looks, 1 by itself")
    _add(p, "-s", "--sort", choices=("device", "memory", "name"), help="the order; by device time by itself")
    _add(p, "--json", action="store_true", help="a JSON object a line for each look")

    p = _command(commands, "events", _events.events, "tells what changes, as it changes",
                 "A line for each array or job that is new or another, for what was written, and for what is gone; first for all there is. With REF of that array alone.")
    _add(p, "ref", completes="ref", metavar="REF", nargs="?", type=ref, help="an array's name or id; the lists of arrays and jobs where there is none")
    _add(p, "--interval", metavar="SECONDS", type=seconds, help="time between two events, at least; the daemon's least by itself")
    _add(p, "-n", "--count", metavar="N", type=whole, help="end after so many lines, those of what there is at first among them")
    _add(p, "--json", action="store_true", help="a JSON object a line for each event")

    p = _command(commands, "completion", _completion, "prints a shell's completion", 'For bash: eval "$(arrayd-cli completion bash)".')
    _add(p, "shell", choices=_complete.SHELLS)

    for p in commands.choices.values():
        p.allow_abbrev = False
        _common(p)
    return parser


def _top(context: Context) -> int:
    try:
        from ._top import top  # takes its time to load
    except ImportError as e:
        raise Failure(f"top: this Python has no curses: {e}") from e
    return top(context)


def _completion(context: Context) -> int:
    sys.stdout.write(_complete.script(context.args.shell))
    return 0


def _signalled(number: int, _: Any) -> None:
    raise SystemExit(128 + number)


def _hear() -> Any:
    """SIGTERM and SIGHUP end the command as Ctrl-C does: what is temporary goes, what runs is cancelled."""
    before = []
    for number in [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]:
        try:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _signalled)
                before.append(number)
        except ValueError:  # not the main thread
            pass
    return before


def _refused(e: ArraydError, context: Context) -> str:
    if isinstance(e.__cause__, TimeoutError):
        return f"{context.url} has not answered for {duration(context.args.timeout or 0)}"
    text = explained(e)
    if isinstance(e, Denied) and e.status == 401:
        text += "\nset ARRAYD_TOKEN, or name a file with --token-file" if context.transport.token is None else \
            "\nthe daemon does not know this token"
    if e.status >= 500 and e.request_id:
        text += f"\nin the daemon's log: request {e.request_id}"
    if isinstance(e, Busy) and e.retry_after:
        text += f"\ncome again in {duration(e.retry_after)}"
    return text


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a command line (the process' own by itself); the exit status."""
    words: List[str] = list(sys.argv[1:] if argv is None else argv)
    parser = make_parser()
    if words[:1] == ["__complete"]:
        return _complete.completed(parser, words[1:])
    try:
        args = parser.parse_args(words)
    except SystemExit as e:
        return int(e.code or 0) if not isinstance(e.code, str) else 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # of what a terminal's encoding does not have, a mark is enough
    context = Context(args)
    heard = _hear()
    try:
        status: int = args.run(context)
        sys.stdout.flush()
        return status
    except Failure as e:
        complain(str(e))
        return e.status
    except BrokenPipeError:  # whoever read standard output has had enough
        _unheard()
        return 128 + 13  # SIGPIPE
    except ArraydError as e:
        complain(_refused(e, context))
        return 1
    except OSError as e:
        where = getattr(e, "filename", None)
        complain(f"{where}: {getattr(e, 'strerror', None) or e}" if where else f"{type(e).__name__}: {e}")
        return 1
    except KeyboardInterrupt:
        return 130
    except SystemExit as e:
        return int(e.code or 0)
    finally:
        try:
            context.close()
        except (KeyboardInterrupt, SystemExit, OSError, ArraydError):
            pass
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def _unheard() -> None:
    """Nothing more is written to standard output, nor complained about at the end."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass
