"""The one way to write the ledger: one locked transaction, committed, then read back exactly on another connection.

A write that was acknowledged is still read back. A commit whose answer was lost is read back and never replayed: the
rows are exactly as intended (acknowledged), exactly as before (not committed), or the write is in doubt.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from sqlalchemy import Connection, Table, and_, insert, select, update
from sqlalchemy.exc import DBAPIError

from airflow_provider_dpone.contracts.canonical import Document, digest_bytes, digest_of
from airflow_provider_dpone.errors import (
    CommitUnknown,
    LedgerBusy,
    LedgerMismatch,
    LedgerRule,
    LedgerUnavailable,
)
from airflow_provider_dpone.ledger.dialects.base import Dialect, Failure, Fault
from airflow_provider_dpone.ledger.schema import SCHEMA_VERSION, EvidenceKind, evidence, ledger_meta

T = TypeVar("T")
Row = dict[str, Any]


@dataclass
class _Touched:
    table: Table
    key: Row
    before: Row | None
    after: Row | None = None


class Tx:
    """A locked ledger transaction that remembers each row it touched, so that the commit can be read back."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.touched: dict[tuple[str, str], _Touched] = {}

    def row(self, table: Table, **key: Any) -> Row | None:
        """The row under a complete key, or None."""
        return _read(self.connection, table, key)

    def insert(self, table: Table, **values: Any) -> None:
        """Insert one row."""
        key = {column.name: values[column.name] for column in table.primary_key}
        self._touch(table, key)
        self.connection.execute(insert(table).values(**values))

    def move(self, table: Table, key: Row, *, expect: Row, to: Row) -> None:
        """Compare-and-swap one row: it must still carry ``expect``.

        :raises LedgerRule: the row is missing or carries something else (rule ``<table>_changed``).
        """
        self._touch(table, key)
        where = [table.c[name] == value for name, value in {**key, **expect}.items()]
        if self.connection.execute(update(table).where(and_(*where)).values(**to)).rowcount != 1:
            raise LedgerRule(f"a row of {table.name} is not in the state this step needs", rule=f"{table.name}_changed")

    def record(self, kind: EvidenceKind, subject: str, document: Document) -> str:
        """Keep a document for good (once: the same bytes are the same row) and return its digest."""
        raw = document.wire()
        digest = digest_of(raw)
        if self.row(evidence, evidence_sha256=digest_bytes(digest)) is None:
            self.insert(
                evidence,
                evidence_sha256=digest_bytes(digest),
                kind=int(kind),
                subject=digest_bytes(subject),
                document=raw,
            )
        return digest

    def _touch(self, table: Table, key: Row) -> None:
        self.touched.setdefault((table.name, repr(key)), _Touched(table, key, _read(self.connection, table, key)))

    def seal(self) -> None:
        """Remember every touched row as it must be found after the commit."""
        for touched in self.touched.values():
            touched.after = _read(self.connection, touched.table, touched.key)


def _read(connection: Connection, table: Table, key: Row) -> Row | None:
    found = connection.execute(select(table).where(and_(*(table.c[n] == v for n, v in key.items())))).mappings().first()
    return None if found is None else {name: _plain(value) for name, value in found.items()}


def hexed(raw: bytes | None) -> str | None:
    """``sha256:...`` of 32 stored bytes; None stays None."""
    return None if raw is None else "sha256:" + bytes(raw).hex()


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


class Ledger:
    """The control ledger behind a factory of independent connections.

    :param connect: opens a new DB-API connection each time (no pool, no retry).
    :param dialect: the database's twin.
    :param expected_service_id: the installation this caller is pinned to; None accepts the one that is there.
    """

    def __init__(
        self, connect: Callable[[], Any], dialect: Dialect, expected_service_id: uuid.UUID | None = None
    ) -> None:
        self.dialect = dialect
        self._engine = dialect.engine(connect)
        self._expected = expected_service_id
        self._layout: bytes | None = None
        self.family: str = ""
        self.service_id: uuid.UUID | None = expected_service_id

    @contextmanager
    def _transaction(self, *, lock: bool) -> Iterator[tuple[Connection, str]]:
        """A fresh connection with an open, pinned and (for writes and read-backs) locked transaction."""
        try:
            connection = self._engine.connect()
        except DBAPIError as error:
            self._raise(error)
        try:
            self.dialect.begin(connection)
            self._check_pins(connection)
            identity = self.dialect.lock(connection) if lock else ""
            yield connection, identity
        except DBAPIError as error:
            self._raise(error)
        except Fault as fault:
            raise LedgerMismatch(str(fault)) from fault
        finally:
            connection.invalidate()
            connection.close()

    def _check_pins(self, connection: Connection) -> None:
        meta = connection.execute(select(ledger_meta)).mappings().first()
        if meta is None:
            raise LedgerMismatch("the control database carries no installed ledger; run `dpone-airflow ledger install`")
        if meta["schema_version"] != SCHEMA_VERSION:
            raise LedgerMismatch(f"ledger schema version is {meta['schema_version']}, not {SCHEMA_VERSION}")
        if self._expected is not None and meta["service_id"] != self._expected:
            raise LedgerMismatch(f"ledger service id is {meta['service_id']}, not the pinned {self._expected}")
        if bytes(meta["layout_sha256"]) != self.dialect.layout(connection):
            raise LedgerMismatch("tables, rules or grants of the ledger were altered after installation; see the docs")
        self._expected = self.service_id = meta["service_id"]
        self.family = meta["family"]

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run a reading function on a fresh, pinned connection."""
        with self._transaction(lock=False) as (connection, _):
            return query(connection)

    def write(self, change: Callable[[Tx], T]) -> T:
        """Run ``change`` in one locked transaction, commit it, and read every touched row back.

        :raises LedgerBusy: the lock was not free; nothing changed.
        :raises LedgerUnavailable: no connection, or it broke before the commit was sent; nothing changed.
        :raises LedgerRule: the database refused the change; nothing changed.
        :raises CommitUnknown: the commit is in doubt and so is its read-back; nothing may rest on it.
        """
        lost: BaseException | None = None
        with self._transaction(lock=True) as (connection, identity):
            tx = Tx(connection)
            result = change(tx)
            tx.seal()
            if self.dialect.transaction_id(connection) != identity:
                raise LedgerMismatch("the ledger transaction was replaced while it was open")
            try:
                connection.commit()
            except DBAPIError as error:
                failure, name = self.dialect.classify(_driver_error(error))
                if failure is not Failure.UNREACHABLE:
                    raise LedgerUnavailable(
                        f"the control database refused the commit ({name}); nothing changed"
                    ) from error
                lost = error
        if tx.touched:
            self._read_back(tx, lost)
        return result

    def _read_back(self, tx: Tx, lost: BaseException | None) -> None:
        try:
            with self._transaction(lock=True) as (connection, _):
                found = [_read(connection, t.table, t.key) for t in tx.touched.values()]
        except (LedgerBusy, LedgerUnavailable, LedgerMismatch) as error:
            raise CommitUnknown("a ledger commit could not be read back; it is settled by the next try") from error
        if found == [t.after for t in tx.touched.values()]:
            return
        if lost is not None and found == [t.before for t in tx.touched.values()]:
            raise LedgerUnavailable("the connection broke before the commit; nothing was committed") from lost
        raise CommitUnknown(
            "the ledger does not show exactly what was committed; it is settled by the next try"
        ) from lost

    def _raise(self, error: DBAPIError) -> NoReturn:
        failure, name = self.dialect.classify(_driver_error(error))
        if failure in (Failure.RULE, Failure.DUPLICATE):
            hint = "; this needs a connection of the ledger's administrator" if name == "evidence_administrator" else ""
            raise LedgerRule(f"the ledger refused the write: {name}{hint}", rule=name) from error
        if failure is Failure.BUSY:
            raise LedgerBusy("another ledger transaction held the lock too long; nothing changed") from error
        if failure is Failure.MISMATCH:
            raise LedgerMismatch(
                "the control database carries no installed ledger; run `dpone-airflow ledger install`"
            ) from error
        if failure is Failure.UNREACHABLE:
            reason = " ".join(str(_driver_error(error)).split())[:400] or name
            raise LedgerUnavailable(
                f"no connection to the control database ({reason}); nothing was committed"
            ) from None
        raise LedgerRule(
            f"the control database refused a statement ({name}); nothing was committed", rule=name
        ) from error


def _driver_error(error: DBAPIError) -> BaseException:
    return error.orig if error.orig is not None else error
