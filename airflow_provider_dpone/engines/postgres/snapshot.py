"""One read-only REPEATABLE READ snapshot of one relation, read twice: as Arrow batches and as aggregates.

The relation is locked in ACCESS SHARE mode before the snapshot is taken, so that a TRUNCATE or a rewriting ALTER cannot
come between and make the snapshot see an empty table. The snapshot is exported by one session and imported by the
Arrow driver's. Both sessions only read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa

from airflow_provider_dpone.contracts.columns import SourceTable, TableAggregates
from airflow_provider_dpone.engines.postgres.aggregates import read_aggregates, read_sql
from airflow_provider_dpone.engines.postgres.catalog import describe
from airflow_provider_dpone.engines.postgres.session import PostgresParams, connect, pins, quoted, translated
from airflow_provider_dpone.errors import SourceChanged, ValueNotExact
from airflow_provider_dpone.transfer.convert import Conversion

_BEGIN: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
#: Bytes the driver collects before it hands over a batch (one row more may be in it).
BATCH_BYTES: Final = 8 * 2**20


class PostgresSnapshot:
    """An open snapshot. Made by :func:`open_snapshot`; ends with its ``with`` block."""

    def __init__(
        self, params: PostgresParams, connection: psycopg.Connection, table: SourceTable, snapshot_id: str
    ) -> None:
        self.table = table
        self.snapshot_id = snapshot_id
        self.taken_at = datetime.now(UTC)
        self._params = params
        self._connection = connection
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
        select = f"SELECT {columns} FROM {quoted(self.table.namespace, self.table.name)}"  # noqa: S608
        with (
            translated(self._params, "reading the source"),
            adbc.connect(self._params.conninfo()) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute(f"SET TRANSACTION SNAPSHOT '{self.snapshot_id}'")
            for pin in pins():
                cursor.execute(pin)
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
            with self._lock:
                self._cancel_read = cursor.adbc_cancel
            try:
                cursor.execute(select)
                yield from cursor.fetch_record_batch()
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
            relation = quoted(self.table.namespace, self.table.name)
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
    connection = connect(params)
    try:
        with translated(params, "opening a snapshot"):
            _begin_locked(connection, namespace, name)
            table = describe(connection, namespace, name)
            row = connection.execute("SELECT pg_catalog.pg_export_snapshot()").fetchone()
        assert row is not None
        if expected is not None and table != expected:
            raise SourceChanged(f"{namespace}.{name} is no longer the relation that was planned; run the task again")
        yield PostgresSnapshot(params, connection, table, row[0])
    finally:
        connection.close()


def _begin_locked(connection: psycopg.Connection, namespace: str, name: str) -> None:
    """Begin, and hold the relation's ACCESS SHARE lock before any snapshot is taken."""
    relation = quoted(namespace, name)

    def begin() -> None:
        connection.execute(_BEGIN)
        for pin in pins():
            connection.execute(pin.encode())

    begin()
    try:
        connection.execute(f"LOCK TABLE {relation} IN ACCESS SHARE MODE".encode())
    except psycopg.errors.Error as error:
        connection.execute("ROLLBACK")
        describe(connection, namespace, name)  # refuses with a better reason, unless it is a materialized view
        if not isinstance(error, psycopg.errors.WrongObjectType):
            raise
        begin()
        # LOCK does not take a materialized view; a first read does. A refresh just before it shows whole and new.
        connection.execute(f"SELECT FROM {relation} LIMIT 0".encode())


def describe_table(params: PostgresParams, namespace: str, name: str) -> SourceTable:
    """Describe a relation at preflight, on a session of its own that is closed again."""
    with open_snapshot(params, namespace, name) as snapshot:
        return snapshot.table
