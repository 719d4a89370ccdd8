"""A loopback proxy that numbers what clients send, and does one thing wrong at one number.

A message is everything a client sends on one connection until the server sends something back. Messages are numbered
over all connections of one end, in the order they begin, so that a run can be told: fail at message 17 of the ledger.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_VERB: Final = re.compile(
    rb"COMMIT|BEGIN|EXCHANGE TABLES|INSERT(?: |%20)INTO|UPDATE (?=dpone)|CREATE (?:TABLE|USER|QUOTA)|DROP \w+|REVOKE|"
    rb"CHECK GRANT|GRANT|SYSTEM \w+|KILL QUERY|SELECT|user|SCRAM"
)
#: Said before ``_VERB`` looks: what a whole script on PostgreSQL is there for.
_SCRIPT: Final = re.compile(
    rb"conclude|CREATE ROLE|CREATE UNLOGGED TABLE|ALTER ROLE|DROP ROLE|DROP TABLE|UPDATE dpone_gate|"
    rb"INSERT INTO dpone_gate|DELETE FROM|LOCK TABLE|COPY"
)
_TABLE: Final = re.compile(rb"(?:FROM|INTO|UPDATE) ((?:dpone|system)\.\w+)")
#: Kinds of faults after which the message goes on to the server.
_DELIVERED: Final = ("hold", "slow", "torn", "twice", "pass")
SLOW: Final = 1.5
"""Seconds a message is late."""
#: What a client of PostgreSQL says last, and a ClickHouse driver first: they may come at any time, so they do not count.
_UNNUMBERED: Final = (b"X\0\0\0\x04", b"\4")


@dataclass(frozen=True)
class Message:
    """One message of a trace."""

    number: int
    label: str
    opens: bool
    """Whether it is the first of its connection."""


@dataclass
class Fault:
    """What goes wrong, once.

    ``before``: the message is dropped and the connection cut. ``after``: it is delivered, its answer dropped. ``half``:
    half of it is delivered. ``torn``: it is delivered, half of the answer comes back. ``slow``: it is delivered a while
    later. ``twice``: it is delivered on a second connection as well, as an intermediary does that sends a request again.
    ``outage``: as ``before``, and no connection is accepted until :meth:`FaultProxy.heal`. ``hold``: it is kept until
    :meth:`FaultProxy.release`, then delivered. ``pass``: nothing, on the wire. ``reached`` is called when it happens.
    """

    kind: str
    at: int
    opening: bool = False
    """Strike the first message from ``at`` on that opens a connection."""
    reached: Callable[[], None] = lambda: None
    label: str = ""
    """Strike the first message of this label, whatever its number."""

    def strikes(self, message: Message) -> bool:
        """Whether this is the one."""
        if self.label:
            return message.label == self.label
        return (message.number >= self.at and message.opens) if self.opening else message.number == self.at


@dataclass
class _Link:
    """Both directions of one connection."""

    client: socket.socket
    server: socket.socket
    answered: bool = True
    first: bool = True
    drop_answer: bool = False
    tear_answer: bool = False
    copy: socket.socket | None = None
    """A second connection that gets the same request."""
    ends: list[socket.socket] = field(default_factory=list)

    def cut(self) -> None:
        for sock in (self.client, self.server):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class FaultProxy:
    """Forwards to one server; see :class:`Fault`."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._free = threading.Event()
        self._fault: Fault | None = None
        self._refusing = False
        self.trace: list[Message] = []
        self.struck = False
        self.pace: Callable[[Message], None] | None = None
        """Called before each message is delivered; a schedule lets one go on at a time."""
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, fault: Fault | None) -> None:
        """Begin a new count, with one fault or none."""
        with self._lock:
            self._fault, self.trace, self.struck, self._refusing = fault, [], False, False
            self._free = threading.Event()

    def release(self) -> None:
        """Deliver what is held."""
        self._free.set()

    def heal(self) -> None:
        """Accept connections again."""
        self._refusing = False

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(self._upstream)
            except OSError:
                client.close()
                continue
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, server)
            for work in (self._upward, self._downward):
                threading.Thread(target=work, args=(link,), daemon=True).start()

    def _upward(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.client.recv(1 << 16):
                fault = self._count(link, data)
                if fault is not None and not self._strike(fault, link, data):
                    break
                if link.copy is not None:
                    link.copy.sendall(data)
                if fault is None or fault.kind in _DELIVERED:
                    link.server.sendall(data)
        link.cut()
        link.client.close()
        if link.copy is not None:
            link.copy.close()

    def _downward(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(1 << 16):
                if link.drop_answer:
                    break
                if link.tear_answer:
                    link.client.sendall(data[: len(data) // 2])
                    break
                link.answered, link.copy = True, None
                link.client.sendall(data)
        link.cut()
        link.server.close()

    def _count(self, link: _Link, data: bytes) -> Fault | None:
        """Number the message these bytes begin, if they do; the fault that strikes it."""
        if not link.answered or data in _UNNUMBERED:
            return None
        with self._lock:
            link.answered = False
            number = len(self.trace)
            message = Message(number, label(data), link.first)
            self.trace.append(message)
            link.first = False
            fault = self._fault if not self.struck and self._fault and self._fault.strikes(message) else None
            self.struck = self.struck or fault is not None
        if self.pace is not None:
            self.pace(message)
        return fault

    def _strike(self, fault: Fault, link: _Link, data: bytes) -> bool:
        """Do it; True when the connection goes on."""
        self._refusing = fault.kind == "outage"
        link.drop_answer, link.tear_answer = fault.kind == "after", fault.kind == "torn"
        if fault.kind == "hold":
            free = self._free
            fault.reached()
            free.wait(300)
            return True
        if fault.kind == "slow":
            fault.reached()
            time.sleep(SLOW)
            return True
        if fault.kind == "twice":
            link.copy = socket.create_connection(self._upstream)
            threading.Thread(target=_drain, args=(link.copy,), daemon=True).start()
        if fault.kind in _DELIVERED:
            fault.reached()
            return True
        if fault.kind == "after":
            link.server.sendall(data)
        elif fault.kind == "half":
            link.server.sendall(data[: len(data) // 2])
            time.sleep(0.02)
        fault.reached()
        return fault.kind == "after"  # then the other direction cuts, as soon as the answer comes


def _drain(sock: socket.socket) -> None:
    """Read answers nobody waits for."""
    with contextlib.suppress(OSError):
        while sock.recv(1 << 16):
            pass


def label(data: bytes) -> str:
    """A few words of a message for people and for choosing; never a value."""
    verb, table = _SCRIPT.search(data) or _VERB.search(data), _TABLE.search(data)
    words = [found[1 if found is table else 0] for found in (verb, table) if found]
    return b" ".join(words).decode().replace("%20", " ").strip() or f"{len(data)} bytes"
