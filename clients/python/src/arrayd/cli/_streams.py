"""Arrays in files on their way in and out, block by block: what is in memory is one block, however large the array is."""
from __future__ import annotations

import ast
import contextlib
import io
import math
import os
import re
import secrets
import stat
import struct
import sys
from types import TracebackType
from typing import Any, BinaryIO, Callable, Dict, Iterator, NamedTuple, Optional, Type
from urllib.parse import quote

from .._bar import TransferBar, at_terminal
from .._errors import ArraydError
from .._replies import MADE, parsed
from .._requests import OCTETS, Request
from .._transport import Reply
from ._context import Context, Failure

NPY = "application/x-npy"
BLOCK = 1 << 20
HEAD = 1 << 16  # bytes: the head of a file that comes is no longer
MAGIC = b"\x93NUMPY"


class Npy(NamedTuple):
    """What the head of an .npy file says."""

    head: bytes  # as it is in the file
    nbytes: int  # of what follows


def _exactly(f: BinaryIO, n: int, where: str) -> bytes:
    """A pipe gives what it has: read until there is enough."""
    data = b""
    while len(data) < n:
        more = f.read(n - len(data))
        if not more:
            raise Failure(f"{where} is not an .npy file" + (": it ends in its head" if data else ": it is empty"))
        data += more
    return data


def read_head(f: BinaryIO, where: str) -> Npy:
    """Of versions 1 to 3; the file is at the first element then."""
    head = _exactly(f, 8, where)
    if head[:6] != MAGIC or head[6] not in (1, 2, 3):
        raise Failure(f"{where} is not an .npy file" + (", and other formats are not supported; --raw with --dtype and --shape takes bare elements"
                                                        if head[:6] != MAGIC else " of a known version"))
    wide = head[6] > 1
    head += _exactly(f, 4 if wide else 2, where)
    (length,) = struct.unpack("<I" if wide else "<H", head[8:])
    if length > 1 << 20:
        raise Failure(f"{where}: its head has {length} bytes")
    text = _exactly(f, length, where)
    try:
        fields = ast.literal_eval(text.decode("utf-8" if head[6] == 3 else "latin-1").strip())
        descr, shape = fields["descr"], [int(n) for n in fields["shape"]]
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError) as e:
        raise Failure(f"{where}: its head cannot be read: {e}") from e
    if descr == "|O":
        raise Failure(f"{where} holds pickled Python objects, not numbers")
    kind = re.fullmatch(r"[<>|=]?([a-zA-Z])(\d+)", descr) if isinstance(descr, str) else None
    if kind is None or kind[1] not in "biufcV":
        raise Failure(f"{where} holds no numbers: its dtype is {descr}")
    return Npy(head + text, int(kind[2]) * math.prod(shape))


def _left(f: BinaryIO) -> Optional[int]:
    """Bytes that a regular file has from here on."""
    try:
        there = os.fstat(f.fileno())
        return there.st_size - f.tell() if stat.S_ISREG(there.st_mode) else None
    except OSError:
        return None


def itemsize(dtype: str) -> int:
    """Bytes of an element of one of the daemon's dtypes."""
    bits = re.search(r"\d+\Z", dtype)
    return int(bits[0]) // 8 if bits else 1


class Body:
    """A request's body: the bytes before, then a file's. It is read once."""

    def __init__(self, head: bytes, file: BinaryIO, nbytes: int, where: str, bar: TransferBar):
        self.head, self.file, self.nbytes, self.where, self.bar = head, file, nbytes, where, bar

    def __len__(self) -> int:
        return len(self.head) + self.nbytes

    def __iter__(self) -> Iterator[Any]:
        if self.head:
            yield self.head
        block = bytearray(min(BLOCK, max(self.nbytes, 1)))
        view, left = memoryview(block), self.nbytes
        while left:
            n = self.file.readinto(view[:min(left, len(block))])  # type: ignore[attr-defined]
            if not n:
                raise Failure(f"{self.where} ends {left} bytes before its array does")
            yield view[:n]
            left -= n
            self.bar.add(n)


def send(context: Context, method: str, path: str, body: Body, content_type: str) -> bytes:
    r = Request(method, path, body, content_type, "application/json",
                headers=context.headers)
    try:
        with context.transport.stream(r) as reply:
            return reply.read()
    finally:
        body.bar.clear()


def upload(context: Context, path: str, name: Optional[str], *, dtype: Optional[str] = None, shape: Optional[str] = None,
           raw: bool = False, clobber: bool = True, into: Optional[str] = None, opened: Optional[BinaryIO] = None) -> Dict[str, Any]:
    """Metadata of the array that a file (`-`: standard input; `opened`: this one) becomes, under a name or none; `into`: the path of data
    that it is written to instead, of which there is none. raw: of `dtype` and `shape`, without a head."""
    where = "standard input" if path == "-" else path
    f: BinaryIO = opened or (sys.stdin.buffer if path == "-" else open(os.path.expanduser(path), "rb"))
    try:
        if path == "-" and at_terminal(sys.stdin):
            raise Failure("standard input is a terminal: bytes of an array are expected there", 2)
        query = []
        if raw:
            assert dtype is not None and shape is not None
            nbytes = itemsize(dtype) * math.prod(int(n) for n in shape.split(",") if n)
            npy, kind = Npy(b"", nbytes), OCTETS
            query = [f"dtype={dtype}", f"shape={shape}"] if into is None else []
        else:
            npy, kind = read_head(f, where), NPY
            query = [f"dtype={dtype}"] if dtype else []
        there = _left(f)
        if there is not None and there < npy.nbytes:
            raise Failure(f"{where} is cut off: {npy.nbytes} bytes of data are expected, it has {there}")
        body = Body(npy.head, f, npy.nbytes, where, TransferBar(where, npy.nbytes, False if context.args.quiet else None))
        if into is not None:
            send(context, "PUT", into, body, kind)
            return {}
        if name is not None and clobber:
            method, target = "PUT", f"/v1/arrays/{quote(name)}"
        else:
            method, target = "POST", "/v1/arrays"
            query += [f"name={quote(name)}"] if name is not None else []
        target += "?" + "&".join(query) if query else ""
        made: Dict[str, Any] = parsed(send(context, method, target, body, kind), MADE, f"{method} {target}")
        return made
    finally:
        if path != "-":
            f.close()


class Output:
    """Where bytes are written to: a file that is there as a whole or as it was before (a temporary name, then a rename), or what is
    no regular file (`-`: standard output) as it is."""

    def __init__(self, path: str):
        if path == "-" and at_terminal(sys.stdout):
            raise Failure("standard output is a terminal: name a file, or send it on with |", 2)
        self.path = path if path == "-" else os.path.realpath(os.path.expanduser(path))
        self.file: Optional[BinaryIO] = None
        self.temporary: Optional[str] = None

    def __enter__(self) -> BinaryIO:
        if self.path == "-":
            sys.stdout.flush()
            self.file = sys.stdout.buffer
        elif os.path.exists(self.path) and not os.path.isfile(self.path):
            self.file = open(self.path, "wb")  # /dev/null, a pipe; of a folder the system says what is wrong
        else:
            mode = stat.S_IMODE(os.stat(self.path).st_mode) if os.path.exists(self.path) else 0o666 & ~_umask()
            folder, name = os.path.split(self.path)
            self.temporary = os.path.join(folder, f".{name}.{secrets.token_urlsafe(6)}.part")
            try:  # a signal may come at any moment: the name is known before there is a file
                self.file = os.fdopen(os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
                os.chmod(self.temporary, mode)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.temporary)
                raise
        return self.file

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        assert self.file is not None
        try:
            if self.path == "-":
                self.file.flush()
                return
            self.file.close()
            if self.temporary and kind is None:
                os.replace(self.temporary, self.path)
                self.temporary = None
        finally:
            if self.temporary:
                os.unlink(self.temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def download(context: Context, r: Request, path: str, label: str, nbytes: Optional[Callable[[], int]] = None, begins: bytes = MAGIC) -> int:
    """Writes the reply's body, a file that begins so unless `nbytes` says how long it has to be, to a file; how many bytes that is."""
    out = Output(path)
    with context.transport.stream(r) as reply:
        try:
            return _written(context, reply, out, label, nbytes, begins)
        except (ArraydError, BrokenPipeError):
            raise
        except OSError as e:  # the disk is full, say
            raise Failure(f"{'standard output' if path == '-' else path}: {e.strerror or e}") from e


def _written(context: Context, reply: Reply, out: Output, label: str, nbytes: Optional[Callable[[], int]], begins: bytes) -> int:
    """What is between the daemon and here may leave the length out; an .npy file says it itself, and of bytes alone it is asked for where
    the reply could have broken off unnoticed."""
    bar = TransferBar(label, max(reply.length, 0), False if context.args.quiet else None)
    block = memoryview(bytearray(BLOCK))
    first = bytearray()
    with out as f:
        try:
            while True:
                n = reply.readinto(block)
                if not n:
                    break
                first += block[:min(n, HEAD - len(first))]
                f.write(block[:n])
                bar.add(n)
        finally:
            bar.clear()
        whole = bar.done
        if nbytes is None:
            if not first.startswith(begins):
                what = "an .npy file" if begins is MAGIC else "such a file"
                raise Failure(f"the reply is not {what}: it may have come from something else than an arrayd daemon")
            if begins is MAGIC:
                npy = read_head(io.BytesIO(first), "the reply")
                whole = len(npy.head) + npy.nbytes
            elif not reply.ends:
                raise Failure("the reply does not say where it ends: it may be a part of the file")
        elif not reply.ends:
            whole = nbytes()
        if bar.done != whole:
            raise Failure(f"the reply has {bar.done} bytes where the array has {whole}")
    return whole
