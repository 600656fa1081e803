"""arrayd-cli: arrays of a daemon from the shell. docs/cli.md describes it; `main` runs it.

    _main        the parser and main(): what ends with which status
    _context     what all commands have: the connection, how to say something, who is interrupted
    _values      what is written on a command line: names, numbers, indices, files to be bound
    _streams     .npy files in and out, block by block, and how far that is
    _arrays      put get ls rm info
    _eval        eval
    _show        show; _screen knows what the terminal draws, _pixels draws it
    _run         run; _program reads what is run
    _sample      what top shows, as data; _top shows it
    _complete    what a shell is offered; completion.* are the shells' parts
"""
from typing import Optional, Sequence

__all__ = ["main"]


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a command line (the process' own by itself); the exit status. Ctrl-C is heard from the first module on."""
    try:
        from ._main import main as run

        return run(argv)
    except KeyboardInterrupt:
        return 130
