"""One read-only REPEATABLE READ snapshot of one relation, in two sessions: one for aggregates, one for Arrow batches.

The relation is locked in ACCESS SHARE mode before the snapshot is taken, so that a TRUNCATE or a rewriting ALTER cannot
come between and make the snapshot see an empty table. The first session exports its snapshot and the Arrow driver's
imports it. Both hold the lock from the beginning: a second lock taken later could wait behind an ALTER that waits for
the first, for ever and unseen by the server's deadlock detection. Both sessions only read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import UTC, datetime
from typing import Final

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
from adbc_driver_manager import Error as AdbcError

from airflow_provider_dpone.contracts.columns import SourceTable, TableAggregates, ValueKind
from airflow_provider_dpone.engines.postgres.aggregates import read_aggregates, read_sql, relation_sql
from airflow_provider_dpone.engines.postgres.catalog import describe, primary_key, source_place
from airflow_provider_dpone.engines.postgres.session import (
    PASSING,
    PostgresParams,
    arrow_session,
    connect,
    pins,
    quoted,
    translated,
)
from airflow_provider_dpone.engines.postgres.types import explain
from airflow_provider_dpone.errors import ServerRefused, SourceChanged, ValueNotExact
from airflow_provider_dpone.transfer.convert import Conversion
from airflow_provider_dpone.waiting import Line

#: How often the lock is queued for again when an exclusive request comes between the two sessions.
_OPENINGS: Final = 5
_LOCK_NOT_AVAILABLE: Final = "55P03"
#: Bytes the driver collects before it hands over a batch (one row more may be in it).
BATCH_BYTES: Final = 8 * 2**20


class PostgresSnapshot:
    """An open snapshot. Made by :func:`open_snapshot`; ends with its ``with`` block."""

    def __init__(
        self,
        params: PostgresParams,
        table: SourceTable,
        snapshot_id: str,
        connection: psycopg.Connection,
        reader: adbc.Connection,
        line: Line,
    ) -> None:
        self.table = table
        self.snapshot_id = snapshot_id
        self.taken_at = datetime.now(UTC)
        self._params = params
        self._connection = connection
        self._reader = reader
        self._line = line
        self._lock = threading.Lock()
        self._cancel_read: Callable[[], None] | None = None

    def aggregates(self, conversion: Conversion) -> TableAggregates:
        """Aggregates of the planned columns in this snapshot, computed by the server.

        :raises ServerRefused, AnswerLost: the statement failed.
        """
        with translated(self._params, "aggregating the source"):
            return read_aggregates(self._connection, conversion)

    def batches(self, conversion: Conversion) -> Iterator[pa.RecordBatch]:
        """All rows of the snapshot as Arrow batches with exactly the planned columns, in target order.

        May be iterated in another thread than :meth:`aggregates` runs in, once at a time.

        :raises ValueNotExact: a list column holds a value that is not a plain one-dimensional list.
        :raises ServerRefused, AnswerLost: the read failed.
        """
        self._require_plain_lists(conversion)
        columns = ", ".join(f"{read_sql(column)} AS {quoted(column.name)}" for column in conversion.columns)
        select = f"SELECT {columns} FROM {relation_sql(conversion)}"  # noqa: S608
        with translated(self._params, "reading the source"), self._reader.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
            with self._lock:
                self._cancel_read = cursor.adbc_cancel
            try:
                with self._line.within(self._params.answer_seconds):
                    cursor.execute(select)
                    batches = cursor.fetch_record_batch()
                yield from self._line.each(self._params.answer_seconds, batches)
            finally:
                with self._lock:
                    self._cancel_read = None

    def cancel(self) -> None:
        """Make whatever statement runs in this snapshot fail soon. Safe from any thread, also when none runs."""
        with self._lock:
            if self._cancel_read is not None:
                self._cancel_read()
        self._connection.cancel_safe(timeout=5)

    def _require_plain_lists(self, conversion: Conversion) -> None:
        """The Arrow driver flattens arrays of several dimensions without a word, so look for them first."""
        for column in conversion.columns:
            if not (column.source.array and column.form == "native"):
                continue
            name = quoted(column.name)
            relation = relation_sql(conversion)
            with translated(self._params, "checking array columns"):
                odd = self._connection.execute(
                    f"SELECT left({name}::text, 80) FROM {relation} "  # noqa: S608
                    f"WHERE array_ndims({name}) > 1 OR array_lower({name}, 1) <> 1 LIMIT 1".encode()
                ).fetchone()
            if odd is not None:
                raise ValueNotExact(
                    f"column {column.name!r}: the value {odd[0]} is not a plain one-dimensional array, which "
                    f"{column.target.text} cannot hold; use a String column for its text form",
                    column=column.name, value=odd[0], target_type=column.target.text,
                )  # fmt: skip


@contextmanager
def open_snapshot(
    params: PostgresParams, namespace: str, name: str, expected: SourceTable | None = None
) -> Iterator[PostgresSnapshot]:
    """Lock the relation for reading, take one snapshot, describe the relation in it, and keep it open.

    :param expected: the description a conversion was planned from; any difference refuses.
    :raises SourceChanged: the relation is not as ``expected``.
    :raises SourceMissing, SourceUnsupported, SourceNotReadable: see :func:`catalog.describe`.
    :raises ServerUnreachable, ServerRefused, AnswerLost: the server.
    """
    for attempt in range(1, _OPENINGS + 1):
        with ExitStack() as stack:
            connection = stack.enter_context(closing(connect(params)))
            with translated(params, "opening a snapshot"):
                reader, line = stack.enter_context(arrow_session(params))
                _begin_locked(connection, namespace, name)
                table = describe(connection, namespace, name)
                row = connection.execute("SELECT pg_catalog.pg_export_snapshot()").fetchone()
                assert row is not None
                with line.within(params.answer_seconds):
                    joined = _join_snapshot(reader, row[0], quoted(namespace, name))
                if not joined:
                    if attempt < _OPENINGS:
                        continue  # somebody waits for the table in exclusive mode: let go of it, and queue again
                    raise ServerRefused(
                        f"{namespace}.{name} could not be locked for reading: exclusive requests kept coming between",
                        passes=_LOCK_NOT_AVAILABLE in PASSING,
                        server_code=_LOCK_NOT_AVAILABLE,
                    )
            if expected is not None and table != expected:
                raise SourceChanged(
                    f"{namespace}.{name} is no longer the relation that was planned; run the task again"
                )
            yield PostgresSnapshot(params, table, row[0], connection, reader, line)
            return


def describe_table(params: PostgresParams, namespace: str, name: str) -> SourceTable:
    """Describe a relation at preflight, on a session of its own that is closed again; raises like open_snapshot."""
    with closing(connect(params)) as connection, translated(params, "describing the source"):
        _begin(connection)
        return describe(connection, namespace, name)


def _begin(connection: psycopg.Connection) -> None:
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    for pin in pins():
        connection.execute(pin.encode())


def _begin_locked(connection: psycopg.Connection, namespace: str, name: str) -> None:
    """Begin, and hold the relation's ACCESS SHARE lock before any snapshot is taken."""
    relation = quoted(namespace, name)
    _begin(connection)
    try:
        connection.execute(f"LOCK TABLE {relation} IN ACCESS SHARE MODE".encode())
    except psycopg.errors.Error as error:
        connection.execute("ROLLBACK")
        describe(connection, namespace, name)  # refuses with a better reason, unless it is a materialized view
        if not isinstance(error, psycopg.errors.WrongObjectType):
            raise
        _begin(connection)
        # LOCK does not take a materialized view; a first read does. A refresh just before it shows whole and new.
        connection.execute(f"SELECT FROM {relation} LIMIT 0".encode())


def _join_snapshot(reader: adbc.Connection, snapshot_id: str, relation: str) -> bool:
    """Import the snapshot and take the relation's lock as well; False when an exclusive request came between."""
    with reader.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute(f"SET TRANSACTION SNAPSHOT '{snapshot_id}'")
        for pin in pins():
            cursor.execute(pin)
        cursor.execute("SET LOCAL lock_timeout = '250ms'")
        try:
            cursor.execute(f"SELECT 1 FROM {relation} LIMIT 0")  # noqa: S608
            cursor.fetchall()
            cursor.execute("SET LOCAL lock_timeout = 0")
        except AdbcError as error:
            if error.sqlstate != _LOCK_NOT_AVAILABLE:
                raise
            return False
    return True


class PostgresSource:
    """:class:`airflow_provider_dpone.transfer.source.Source` over one PostgreSQL database."""

    def __init__(self, params: PostgresParams) -> None:
        self.params = params

    def place(self) -> tuple[str, str]:
        """System identifier and the database's OID."""
        with closing(connect(self.params)) as connection, translated(self.params, "asking which database this is"):
            return source_place(connection)

    def primary_key(self, namespace: str, name: str) -> tuple[str, ...]:
        """The columns of a relation's primary key, in order; empty without one."""
        with closing(connect(self.params)) as connection, translated(self.params, "looking for the primary key"):
            return primary_key(connection, namespace, name)

    def describe(self, namespace: str, name: str) -> SourceTable:
        """See :func:`describe_table`."""
        return describe_table(self.params, namespace, name)

    def open(
        self, namespace: str, name: str, expected: SourceTable | None = None
    ) -> AbstractContextManager[PostgresSnapshot]:
        """See :func:`open_snapshot`."""
        return open_snapshot(self.params, namespace, name, expected)

    def explain(self, kind: ValueKind, raw: object) -> str | None:
        """See :func:`types.explain`."""
        return explain(kind, raw)
