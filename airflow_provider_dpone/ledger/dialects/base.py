"""The seam between the one ledger code path and a database: everything a dialect must answer."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Engine

from airflow_provider_dpone.errors import DeclarationInvalid

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def plain_name(control_schema: str) -> str:
    """A control schema's name that means the same quoted, unquoted and under every collation.

    :raises DeclarationInvalid: it is no such name.
    """
    if not _PLAIN.fullmatch(control_schema):
        raise DeclarationInvalid(f"{control_schema!r} is no plain lower-case name for a control schema")
    return control_schema


def bare(sql: str) -> str:
    """A statement without the lines that only explain it."""
    return "\n".join(line for line in sql.splitlines() if not line.lstrip().startswith("--"))


class Failure(Enum):
    """What a database error means to the ledger."""

    RULE = auto()
    """A trigger or constraint refused the write."""
    DUPLICATE = auto()
    """A unique key or index refused the write."""
    BUSY = auto()
    """The lock was not free in time; nothing changed."""
    MISMATCH = auto()
    """Not the installed ledger, or not durable."""
    REFUSED = auto()
    """The server answered with another error: the transaction is rolled back."""
    UNREACHABLE = auto()
    """No answer: the connection is gone."""


class Fault(Exception):
    """A failure a dialect found by itself."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


@dataclass(frozen=True)
class Pins:
    """What identifies an installed ledger."""

    schema_version: int
    service_id: uuid.UUID
    family: str
    layout: bytes
    """The fingerprint of the schema as it was installed."""
    incarnation: str
    """The database it was installed in, or adopted in since."""


@dataclass(frozen=True)
class Session:
    """What a fresh transaction in the control database shows."""

    transaction: str
    here: str
    """Identity of the database."""
    legacy: tuple[str, ...]
    """Writable tables of the earlier system that are there."""
    pins: Pins | None
    """None where no ledger is installed."""


@dataclass(frozen=True)
class Audited:
    """What an audit looks at: the whole ledger, the attempts of one activation, or the latest on some guards."""

    activation: bytes | None = None
    guards: tuple[bytes, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether it is the whole ledger."""
        return self.activation is None and not self.guards


#: The whole ledger.
EVERYTHING: Final = Audited()
#: So many earlier attempts on each of its guards are audited when an attempt is admitted: all work done since the last
#: admission is among them, and their number does not grow with the history. The others are audited with the whole.
LATEST: Final = 16


class Dialect(Protocol):
    """See :class:`airflow_provider_dpone.ledger.dialects.postgres.PostgresDialect`."""

    name: str
    returning: bool
    """Whether a changing statement on a table with triggers can return the row it changed."""

    control_schema: str

    def engine(self, connect: Callable[[], Any]) -> Engine: ...

    def layout(self, connection: Connection) -> bytes: ...

    def begin(self, connection: Connection) -> Session:
        """Bound every wait, refuse a session whose commits are not durable, and identify the installed ledger."""
        ...

    def reading_id(self, connection: Connection) -> str:
        """Identity of the transaction now open, without making it one that writes; as in :class:`Session`."""
        ...

    def lock(self, connection: Connection) -> str: ...

    def transaction_id(self, connection: Connection) -> str:
        """Identity of the open transaction; ends with ``/Exclusive`` while that holds the ledger lock alone."""
        ...

    def classify(self, error: BaseException) -> tuple[Failure, str]: ...

    def existing(self, connection: Connection, names: list[str]) -> list[str]: ...

    def audit(self, connection: Connection, looked_at: Audited = EVERYTHING) -> list[str]: ...

    def script(self) -> str: ...

    def ddl(self) -> list[str]: ...

    def grants(self, runtime_role: str) -> list[str]: ...

    def provisioner_grants(self, role: str) -> list[str]: ...
