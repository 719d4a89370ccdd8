"""The one way to write the ledger: one locked transaction, committed, then read back exactly on another connection.

A write that was acknowledged is still read back. A commit whose answer was lost is read back and never replayed: the
rows are exactly as intended (acknowledged), exactly as before (not committed), or the write is in doubt.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

from sqlalchemy import Connection, Insert, RowMapping, Table, Update, and_, insert, or_, select, update
from sqlalchemy.exc import DBAPIError

from airflow_provider_dpone.contracts.canonical import Document, digest_bytes, digest_of
from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.errors import (
    CommitUnknown,
    FamilyForeign,
    LedgerBusy,
    LedgerMismatch,
    LedgerRule,
    LedgerUnavailable,
)
from airflow_provider_dpone.ledger.dialects.base import EVERYTHING, Audited, Dialect, Failure, Fault, Pins, Session
from airflow_provider_dpone.ledger.schema import SCHEMA_VERSION, EvidenceKind, evidence, ledger_meta
from airflow_provider_dpone.waiting import LEDGER, opening

_BUSY: Final = "another ledger transaction held the lock too long; nothing changed"

T = TypeVar("T")
Row = dict[str, Any]


@dataclass
class _Touched:
    table: Table
    key: Row
    before: Row | None
    after: Row | None


class Tx:
    """A locked ledger transaction that remembers each row it touched, so that the commit can be read back.

    Under the lock nobody else writes, so a row once seen stays as it was seen until this transaction changes it.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        returning: bool,
        audit: Callable[[Connection, Audited], list[str]],
        verify: Callable[[], None],
        family: str,
    ) -> None:
        self.connection = connection
        self.family = family
        """Authority family of the ledger."""
        self.verify = verify
        """Raises :class:`LedgerMismatch` when this is not the very transaction that took the ledger lock alone."""
        self._audit = audit
        self.touched: dict[str, _Touched] = {}
        self._seen: dict[str, Row | None] = {}
        self._returning = returning

    def row(self, table: Table, **key: Any) -> Row | None:
        """The row under a complete key as it is now, or None."""
        at = _place(table, key)
        if at not in self._seen:
            self._seen[at] = _read(self.connection, table, key)
        return self._seen[at]

    def insert(self, table: Table, **values: Any) -> None:
        """Insert one row; that the database takes it proves that there was none."""
        key = {column.name: values[column.name] for column in table.primary_key}
        self._change(insert(table).values(**values), table, key, None)

    def move(self, table: Table, key: Row, *, expect: Row, to: Row) -> None:
        """Compare-and-swap one row: it must still carry ``expect``.

        :raises LedgerRule: the row is missing or carries something else (rule ``<table>_changed``).
        """
        where = [table.c[name] == value for name, value in {**key, **expect}.items()]
        before = self.row(table, **key)
        if not self._change(update(table).where(and_(*where)).values(**to), table, key, before):
            raise LedgerRule(f"a row of {table.name} is not in the state this step needs", rule=f"{table.name}_changed")

    def rows(self, table: Table, column: str, keys: Sequence[Any]) -> dict[Any, Row]:
        """Rows by their one-column key, as they are now; what is missing is left out."""
        found = {row[column]: row for row in _read_many(self.connection, table, [{column: key} for key in keys])}
        for key in keys:
            self._seen[_place(table, {column: key})] = found.get(key)
        return found

    def move_all(self, table: Table, rows: Mapping[Any, Row], *, expect: Row, to: Row, plus_one: str = "") -> None:
        """Compare-and-swap many rows of one table to the same values in one statement per chunk.

        :param plus_one: a column that grows by one in each row.
        :raises LedgerRule: one of them is missing or carries something else.
        """
        [key] = table.primary_key
        values = {**to, **({plus_one: table.c[plus_one] + 1} if plus_one else {})}
        for chunk in _chunks(list(rows)):
            where = [table.c[name] == value for name, value in expect.items()]
            done = self.connection.execute(update(table).where(key.in_(chunk), *where).values(**values))
            if done.rowcount != len(chunk):
                raise LedgerRule(f"rows of {table.name} are not as this step needs them", rule=f"{table.name}_changed")
        self._note_all(table, [{key.name: k} for k in rows], [dict(row) for row in rows.values()])

    def insert_all(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert many rows of one table, a statement per chunk."""
        for chunk in _chunks(list(rows), 200):
            self.connection.execute(insert(table).values(list(chunk)))
        keys = [{column.name: row[column.name] for column in table.primary_key} for row in rows]
        self._note_all(table, keys, [None] * len(keys))

    def audit(self, looked_at: Audited = EVERYTHING) -> None:
        """Compare originals with their digests and rows, and attempts with their proofs, in one statement.

        :raises LedgerMismatch: names what does not agree; nothing may rest on this ledger until a person looked.
        """
        found = self._audit(self.connection, looked_at)
        if found:
            raise LedgerMismatch(
                f"{len(found)} originals of the ledger do not agree with their rows or proofs: {'; '.join(found[:5])}; "
                "run `dpone-airflow doctor`",
                found=found,
            )

    def _note_all(self, table: Table, keys: Sequence[Row], before: Sequence[Row | None]) -> None:
        after = {_place(table, {k: row[k] for k in keys[0]}): row for row in _read_many(self.connection, table, keys)}
        for key, was in zip(keys, before, strict=True):
            at = _place(table, key)
            self._seen[at] = now = after.get(at)
            self.touched.setdefault(at, _Touched(table, key, was, now)).after = now

    def record(self, kind: EvidenceKind, subject: str, document: Document) -> str:
        """Keep a document for good (once: the same bytes are the same row) and return its digest."""
        return self.keep(kind, subject, document.wire())

    def keep(self, kind: EvidenceKind, subject: str, raw: bytes) -> str:
        """Keep an original for good (once: the same bytes are the same row) and return its digest."""
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

    def _change(self, statement: Insert | Update, table: Table, key: Row, before: Row | None) -> bool:
        """Run one statement on one row and remember it as it must be found after the commit; False: no such row."""
        if self._returning:
            found = self.connection.execute(statement.returning(*table.c)).mappings().first()
            after = None if found is None else _plain_row(found)
        else:
            changed = self.connection.execute(statement).rowcount == 1
            after = _read(self.connection, table, key) if changed else None
        if after is None:
            return False
        at = _place(table, key)
        self._seen[at] = after
        self.touched.setdefault(at, _Touched(table, key, before, after)).after = after
        return True


def _place(table: Table, key: Row) -> str:
    return f"{table.name} {sorted(key.items())!r}"


def _read(connection: Connection, table: Table, key: Row) -> Row | None:
    found = connection.execute(select(table).where(and_(*(table.c[n] == v for n, v in key.items())))).mappings().first()
    return None if found is None else _plain_row(found)


def _read_many(connection: Connection, table: Table, keys: Sequence[Row]) -> list[Row]:
    """Rows under complete keys, a statement per chunk; missing ones are left out."""
    found: list[Row] = []
    for chunk in _chunks(list(keys)):
        names = list(chunk[0])
        if len(names) == 1:
            where = table.c[names[0]].in_([key[names[0]] for key in chunk])
        else:
            where = or_(*(and_(*(table.c[name] == value for name, value in key.items())) for key in chunk))
        found += [_plain_row(row) for row in connection.execute(select(table).where(where)).mappings()]
    return found


def _read_back_rows(connection: Connection, touched: Sequence[_Touched]) -> list[Row | None]:
    """Every touched row as it is now, in order."""
    by_table: dict[str, list[_Touched]] = {}
    for one in touched:
        by_table.setdefault(one.table.name, []).append(one)
    now: dict[str, Row] = {}
    for group in by_table.values():
        table, names = group[0].table, list(group[0].key)
        for row in _read_many(connection, table, [one.key for one in group]):
            now[_place(table, {name: row[name] for name in names})] = row
    return [now.get(_place(one.table, one.key)) for one in touched]


def _chunks(values: list[Any], size: int = 500) -> Iterator[list[Any]]:
    """SQL Server takes at most 2,100 parameters and 1,000 rows a statement."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _plain_row(found: RowMapping) -> Row:
    return {
        str(name): bytes(value) if isinstance(value, memoryview | bytearray) else value for name, value in found.items()
    }


def require_family(given: str, ledger: str, what: str) -> None:
    """Authority is never converted: production is admitted by a production ledger alone, and the other way round.

    :raises FamilyForeign: it is of another family.
    """
    if given != ledger:
        raise FamilyForeign(f"{what} of family {given} is nothing a ledger or release of family {ledger} can admit")


def hexed(raw: bytes | None) -> str | None:
    """``sha256:...`` of 32 stored bytes; None stays None."""
    return None if raw is None else "sha256:" + bytes(raw).hex()


class Ledger:
    """The control ledger behind a factory of independent connections.

    :param connect: opens a new DB-API connection each time (no pool, no retry).
    :param dialect: the database's twin.
    :param expected_service_id: the installation this caller is pinned to; None accepts the one that is there.
    """

    longest: float = LEDGER
    """Seconds one transaction may take before its connection counts as lost."""

    def __init__(
        self, connect: Callable[[], Any], dialect: Dialect, expected_service_id: uuid.UUID | None = None
    ) -> None:
        self.dialect = dialect
        self._engine = dialect.engine(connect)
        self._expected = expected_service_id
        self._tolerated: frozenset[str] = frozenset()
        self.family: str = ""
        self.service_id: uuid.UUID | None = expected_service_id

    @contextmanager
    def _transaction(self, *, lock: bool) -> Iterator[tuple[Connection, str]]:
        """A fresh connection with an open transaction of the pinned ledger, whose schema is as it was installed.

        :param lock: take the ledger lock, and so wait for every commit under way.
        """
        try:
            with opening() as line:
                connection = self._engine.connect()
        except DBAPIError as error:
            self._raise(error)
        try:
            with line.within(self.longest):  # each statement has far less on the server; this ends a silent peer
                connection.begin()
                session = self.dialect.begin(connection)
                pins = self._pinned(session)
                if "layout" not in self._tolerated and pins.layout != self.dialect.layout(connection):
                    raise LedgerMismatch(
                        "tables, rules, owners or grants of the ledger were altered after installation; see the docs"
                    )
                yield connection, self.dialect.lock(connection) if lock else session.transaction
        except DBAPIError as error:
            self._raise(error)
        except Fault as fault:
            if fault.failure is Failure.BUSY:
                raise LedgerBusy(_BUSY) from fault
            raise LedgerMismatch(str(fault)) from fault
        finally:
            connection.invalidate()
            connection.close()

    def _pinned(self, session: Session) -> Pins:
        pins = session.pins
        if pins is None:
            raise LedgerMismatch("the control database carries no installed ledger; run `dpone-airflow ledger install`")
        if pins.schema_version != SCHEMA_VERSION:
            raise LedgerMismatch(f"ledger schema version is {pins.schema_version}, not {SCHEMA_VERSION}")
        if self._expected is None and pins.family == Family.PRODUCTION:
            raise LedgerMismatch(
                f"this is the production ledger {pins.service_id}, and its connection does not pin it; put "
                f'{{"service_id": "{pins.service_id}"}} into the extra of the control connection'
            )
        if self._expected is not None and pins.service_id != self._expected:
            raise LedgerMismatch(f"ledger service id is {pins.service_id}, not the pinned {self._expected}")
        if session.legacy:
            raise LedgerMismatch(
                f"the control database has {', '.join(sorted(session.legacy))}, which the earlier system writes; "
                "nothing is admitted beside it. Move it to another database, or drop it"
            )
        if session.here != pins.incarnation and "incarnation" not in self._tolerated:
            raise LedgerMismatch(
                "this database is not the one the ledger was installed in: it is a copy or a restored one, and the "
                "original may still be at work. Nothing is read or written here. When the original never runs again, "
                "its administrator says so with `dpone-airflow ledger adopt --statement ...`",
                installed_in=pins.incarnation,
                here=session.here,
            )
        self._expected = self.service_id = pins.service_id
        self.family = pins.family
        return pins

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run a reading function on a fresh, pinned connection, in one transaction that is the same afterwards."""
        with self._transaction(lock=False) as (connection, identity):
            result = query(connection)
            self._require_same(connection, identity)
            return result

    def _require_same(self, connection: Connection, identity: str) -> None:
        if self.dialect.reading_id(connection) != identity:
            raise LedgerMismatch("the ledger transaction was replaced while it was read")

    @contextmanager
    def together(self) -> Iterator[Ledger]:
        """Several reads on one fresh, pinned connection: a ledger that reads there and cannot write."""
        with self._transaction(lock=False) as (connection, identity):
            yield _OneConnection(self, connection, identity)

    def as_it_is(self) -> Ledger:
        """The same ledger for a person who looks at it: it is read although its schema was altered or it is a copy."""
        return self._tolerating("layout", "incarnation")

    def _tolerating(self, *what: str) -> Ledger:
        other = copy(self)
        other._tolerated = frozenset(what)
        return other

    def adopt(self, signed: Callable[[str, str], Document]) -> Document:
        """Make the database this is the ledger's from now on, for good and on record (administrator).

        :param signed: the adoption's document, given where the ledger was installed and where this is.
        :raises LedgerRule: the caller is no administrator. :raises LedgerMismatch: there is nothing to adopt.
        """
        moved: list[Document] = []

        def change(tx: Tx) -> None:
            session = self.dialect.begin(tx.connection)
            if session.pins is None or session.pins.incarnation == session.here:
                raise LedgerMismatch("this database is where the ledger was installed; there is nothing to adopt")
            document = signed(session.pins.incarnation, session.here)
            tx.record(EvidenceKind.ADOPTION, digest_of(session.here.encode()), document)
            before = {"incarnation": session.pins.incarnation}
            tx.move(ledger_meta, {"one": 1}, expect=before, to={"incarnation": session.here})
            moved.append(document)

        other = self._tolerating("incarnation")
        other.read(lambda connection: None)
        self.service_id, self.family = other.service_id, other.family
        other.write(change)
        return moved[0]

    def write(self, change: Callable[[Tx], T]) -> T:
        """Run ``change`` in one locked transaction, commit it, and read every touched row back.

        :raises LedgerBusy: the lock was not free; nothing changed.
        :raises LedgerUnavailable: no connection, or it broke before the commit was sent; nothing changed.
        :raises LedgerRule: the database refused the change; nothing changed.
        :raises CommitUnknown: the commit is in doubt and so is its read-back; nothing may rest on it.
        """
        lost: BaseException | None = None
        with self._transaction(lock=True) as (connection, identity):
            tx = Tx(
                connection,
                returning=self.dialect.returning,
                audit=self.dialect.audit,
                verify=lambda: self._verify(connection, identity),
                family=self.family,
            )
            result = change(tx)
            tx.verify()
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
        elif lost is not None:
            raise LedgerUnavailable("the connection broke before what was read was confirmed; it is not used") from lost
        return result

    def _verify(self, connection: Connection, identity: str) -> None:
        """The open transaction is still the one that was identified, and holds the ledger lock alone."""
        if self.dialect.transaction_id(connection) != identity:
            raise LedgerMismatch("the ledger transaction was replaced while it was open")
        if not identity.endswith("/Exclusive"):
            raise LedgerMismatch("the ledger transaction does not hold the ledger lock alone")

    def _read_back(self, tx: Tx, lost: BaseException | None) -> None:
        """Compare every touched row, on another connection; after a lost answer only once the commit has ended."""
        try:
            with self._transaction(lock=lost is not None) as (connection, _):
                found = _read_back_rows(connection, list(tx.touched.values()))
        except (LedgerBusy, LedgerUnavailable, LedgerMismatch, LedgerRule) as error:
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
            raise LedgerBusy(_BUSY) from error
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


class _OneConnection(Ledger):
    """See :meth:`Ledger.together`; errors of the database leave through the block that opened it."""

    def __init__(self, ledger: Ledger, connection: Connection, identity: str) -> None:
        self.dialect, self.family, self.service_id = ledger.dialect, ledger.family, ledger.service_id
        self._connection, self._identity = connection, identity

    def read(self, query: Callable[[Connection], T]) -> T:
        result = query(self._connection)
        self._require_same(self._connection, self._identity)
        return result

    @contextmanager
    def together(self) -> Iterator[Ledger]:
        yield self

    def write(self, change: Callable[[Tx], T]) -> T:
        raise TypeError("a connection for reading does not write")


def _driver_error(error: DBAPIError) -> BaseException:
    return error.orig if error.orig is not None else error
