"""Ends waits on a peer that went silent with its sockets open, whichever driver does the waiting.

Keepalive finds a machine or a route that is gone. It does not find a peer, or a proxy before it, that keeps the socket
open and says nothing more: for that every wait has a deadline, above the server's own where it has one. When it passes,
the sockets of the connection are shut down under the driver, which then reports a lost connection at once. What became
of the statement is for an observation to say, as after any lost answer. ``docs/waits.md`` has the table.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

T = TypeVar("T")

#: Seconds of silence before the first keepalive, between two of them, and how many are missed before the end.
IDLE: Final = 30
INTERVAL: Final = 10
COUNT: Final = 6
#: Seconds a server may take for one statement on data (a digest, a swap) where it has a limit of its own.
STATEMENT: Final = 6 * 3600
#: Seconds the client waits beyond a limit of the server's, so that the server's own word is heard.
BEYOND: Final = 60
#: Seconds one transaction of the ledger may take in all; each of its statements has far less on the server.
LEDGER: Final = 300
_TICK: Final = 0.25


class Line:
    """The sockets one connection was opened with. Drivers keep them to themselves, so they are found by looking."""

    def __init__(self) -> None:
        self._sockets: dict[int, int] = {}
        self.cuts = 0

    def keep_alive(self) -> None:
        """Have the system look after the peer while nothing is said."""
        for fd in self._mine():
            with _borrowed(fd) as sock:
                keep_alive(sock)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Cut the line unless the block ends in time; its driver then says that the connection is lost."""
        key = _WATCH.add(time.monotonic() + seconds, self.cut)
        try:
            yield
        finally:
            _WATCH.remove(key)

    def end_after(self, seconds: float) -> None:
        """Cut the line that much later, if it is still there then."""
        _WATCH.add(time.monotonic() + seconds, self.cut)

    def each(self, seconds: float, items: Iterator[T]) -> Iterator[T]:
        """The items, each of which must come in time."""
        while True:
            with self.within(seconds):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item

    def cut(self) -> None:
        """Shut the sockets down: whoever waits on them is told at once. May be called from any thread."""
        self.cuts += 1
        for fd in self._mine():
            with suppress(OSError), _borrowed(fd) as sock:  # closed or ended meanwhile: nobody waits any more
                sock.shutdown(socket.SHUT_RDWR)

    def _mine(self) -> list[int]:
        """Sockets that are still those that were opened: numbers are used again."""
        return [fd for fd, inode in self._sockets.items() if _inode(fd) == inode]


@contextmanager
def opening(port: int | None = None) -> Iterator[Line]:
    """Find the sockets a connection is opened with inside of the block.

    :param port: the peer's port; others are not this connection's. None when it is not known.
    """
    line, before = Line(), _open_sockets()
    yield line
    line._sockets = {
        fd: inode for fd, inode in _open_sockets().items() if before.get(fd) != inode and _leads_to(fd, port)
    }
    line.keep_alive()


def keep_alive(sock: socket.socket) -> None:
    """Switch keepalive on, with our timing where the system can be told."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", IDLE), ("TCP_KEEPINTVL", INTERVAL), ("TCP_KEEPCNT", COUNT)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """A driver's socket as one of ours; it stays open when this ends."""
    sock = socket.socket(fileno=os.dup(fd))
    try:
        yield sock
    finally:
        sock.close()


def _open_sockets() -> dict[int, int]:
    """Every open socket of this process and which it is."""
    found = {int(name): _inode(int(name)) for name in os.listdir("/dev/fd") if name.isdecimal()}
    return {fd: inode for fd, inode in found.items() if inode is not None}


def _inode(fd: int) -> int | None:
    """Which socket a descriptor is; None when it is none, or closed."""
    try:
        seen = os.fstat(fd)
    except OSError:
        return None
    return seen.st_ino if stat.S_ISSOCK(seen.st_mode) else None


def _leads_to(fd: int, port: int | None) -> bool:
    try:
        with _borrowed(fd) as sock:
            return sock.family in (socket.AF_INET, socket.AF_INET6) and port in (None, sock.getpeername()[1])
    except OSError:  # closed meanwhile, or never connected
        return False


class _Watch:
    """One thread for all deadlines of the process; begun again after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[int, tuple[float, Callable[[], None]]] = {}
        self._next = 0
        self._thread: threading.Thread | None = None

    def add(self, deadline: float, action: Callable[[], None]) -> int:
        with self._lock:
            self._next += 1
            self._due[self._next] = (deadline, action)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="dpone-deadlines", daemon=True)
                self._thread.start()
            return self._next

    def remove(self, key: int) -> None:
        with self._lock:
            self._due.pop(key, None)

    def _run(self) -> None:
        while True:
            time.sleep(_TICK)
            with self._lock:
                now = time.monotonic()
                late = [self._due.pop(key)[1] for key, (due, _) in list(self._due.items()) if due <= now]
            for action in late:
                action()


_WATCH: Final = _Watch()
