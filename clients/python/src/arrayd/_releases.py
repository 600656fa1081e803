"""What becomes of the server's arrays that are this process' own: deleted some moments after their last user here has gone, and at
the latest when their client is closed or the interpreter ends.

A forked child owns what it makes, and its parent what was made before: the child forgets that. Of a process that ends without
Python's exit hooks (killed, `os._exit`, a forked worker of multiprocessing's) nothing is deleted; a session with a `ttl_s` goes by itself.
"""
from __future__ import annotations

import atexit
import os
import queue
import threading
import time
import weakref
from typing import Any, Dict, List, Optional

from ._endpoint import Endpoint
from ._errors import ArraydError, ConnectionLost
from ._transport import Transport

MOST = 64  # deletions sent at once
PAUSE_S = 0.05  # between the first that is to be deleted and the deletions
EXIT_S = 3.0  # that deletions may take at the interpreter's end: the daemon may hang
IDLE_S = 10.0  # after which a thread with nothing to release some day ends


class Releases:
    """Knows what is ours on the server, and takes what is to be deleted."""

    def __init__(self, endpoint: Endpoint):
        self._endpoint = endpoint
        self.inherited = False  # it was made by this process' parent
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._watched: Dict[str, "weakref.finalize[Any, Any]"] = {}  # changed by finalizers, too: nothing here takes a lock
        self._pending: "queue.SimpleQueue[str]" = queue.SimpleQueue()  # a put may interrupt another

    def watch(self, user: object, path: str) -> None:
        """The path is deleted when its user has gone."""
        finalizer = weakref.finalize(user, self._gone, path)
        finalizer.atexit = False  # they go together, below
        self._watched[path] = finalizer

    def owns(self, path: str) -> bool:
        return path in self._watched

    def keep(self, path: str) -> None:
        """It is not deleted by us."""
        finalizer = self._watched.pop(path, None)
        if finalizer is not None:
            finalizer.detach()

    def _gone(self, path: str) -> None:
        self.add(path)
        self._watched.pop(path, None)

    def add(self, path: str) -> None:
        """From finalizers: any thread, at any moment."""
        self._pending.put(path)

    def add_all(self) -> None:
        """Whatever is ours is to be deleted, used or not."""
        for path, finalizer in list(self._watched.items()):
            if finalizer.detach() is not None:
                self._gone(path)

    def batch(self) -> List[str]:
        """Some of what is to be deleted; [] when there is nothing."""
        paths: List[str] = []
        while len(paths) < MOST:
            try:
                paths.append(self._pending.get_nowait())
            except queue.Empty:
                break
        return paths

    def forget(self) -> None:
        """Nothing of it is deleted by us: it goes with its session, say."""
        for finalizer in list(self._watched.values()):
            finalizer.detach()
        self._watched.clear()
        while self.batch():
            pass

    def in_child(self) -> None:
        """After a fork: what is known here is the parent's. What locks and queues others had in use is left behind."""
        for finalizer in list(self._watched.values()):
            finalizer.detach()
        self.inherited = True
        self._reset()

    def finish(self) -> None:
        """Deletes everything that is ours, used or not: in bounded time and without a word, as there may be no daemon any more (and no
        event loop)."""
        self.add_all()
        until = time.monotonic() + EXIT_S
        e = self._endpoint
        paths = self.batch()
        if not paths:
            return
        last = Transport(e.url, e.token, EXIT_S, e.context)
        last.leases = e.leases
        try:
            while paths and time.monotonic() < until:
                last.delete_all(paths)
                paths = self.batch()
        except (ArraydError, OSError):
            pass
        finally:
            last.close()


_all: "weakref.WeakSet[Releases]" = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    for releases in list(_all):
        releases.finish()


def _in_child() -> None:
    for releases in list(_all):
        releases.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class Releaser(Releases):
    """Deletes many at a time, on a thread of its own, which is there while there is something to release some day."""

    def __init__(self, transport: Transport):
        self.transport = transport
        super().__init__(transport)

    def _reset(self) -> None:
        super()._reset()
        self._wake: "queue.SimpleQueue[bool]" = queue.SimpleQueue()  # for the thread; True: it may end
        self._flushing = threading.RLock()  # a finalizer may ask while its thread has them
        self._starting = threading.RLock()
        self._thread: Optional[threading.Thread] = None

    def watch(self, user: object, path: str) -> None:
        super().watch(user, path)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="arrayd-release", daemon=True)
                self._thread.start()

    def add(self, path: str) -> None:
        super().add(path)
        self._wake.put(False)

    def finish(self) -> None:
        others = self._flushing.acquire(timeout=EXIT_S)  # what the thread is just deleting
        try:
            super().finish()
        finally:
            if others:
                self._flushing.release()
        self._wake.put(True)

    def flush(self) -> None:
        """Now; what another thread is just releasing is gone, too, on return."""
        with self._flushing:
            while not self.transport.closed:
                paths = self.batch()
                if not paths:
                    return
                try:
                    self.transport.delete_all(paths)
                except ConnectionLost:
                    return

    def _work(self) -> None:
        while True:
            try:
                last = self._wake.get(timeout=IDLE_S)
            except queue.Empty:
                last = True
            if not self._pending.empty():
                time.sleep(PAUSE_S)
                self.flush()
            if last:
                with self._starting:
                    if not self._watched and self._pending.empty():
                        self._thread = None
                        return
