"""One read-only snapshot of one table on one session: aggregates and Arrow batches, one after the other.

SQL Server does not share a snapshot between sessions, so both are read in one transaction under SNAPSHOT isolation. A
change of the table's design after the snapshot was taken makes the server refuse the read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Final

import arrow_odbc
import numpy as np
import pyarrow as pa

from airflow_provider_dpone.contracts.columns import SourceTable, TableAggregates, ValueKind
from airflow_provider_dpone.engines.mssql.aggregates import read_aggregates, read_sql, relation_sql
from airflow_provider_dpone.engines.mssql.catalog import describe, primary_key, source_place
from airflow_provider_dpone.engines.mssql.scripts import quoted
from airflow_provider_dpone.engines.mssql.session import connect, translated
from airflow_provider_dpone.engines.mssql.types import FINE, MICROSECONDS, NANOSECONDS, explain
from airflow_provider_dpone.errors import CeilingExceeded, SourceChanged, Stopped
from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams, require_untraced
from airflow_provider_dpone.transfer.convert import ColumnConversion, Conversion
from airflow_provider_dpone.waiting import Line, opening

#: Bytes of one transit buffer; the driver fills one while another is read. A buffer for a single wider row grows to the
#: ceiling below.
BATCH_BYTES: Final = 16 * 2**20
#: Bytes of the widest row that is read: the driver binds every long column at the length of the longest value.
ROW_BYTES: Final = 128 * 2**20
_BATCH_ROWS: Final = 65_536
#: Longest declared lengths: UTF-16 units of text, bytes of binary. They are bound as they are.
_TEXT: Final = 4000
_BINARY: Final = 8000
#: Length of a value in UTF-16 units.
UTF16_UNITS: Final = "DATALENGTH({v}) / 2"
#: Bytes of a bound value that is no long text or binary, with its indicator; more than any takes.
_NARROW: Final = 256
_LENGTHS: Final = (ValueKind.TEXT, ValueKind.BYTES)
_UNITS: Final = {MICROSECONDS: "us", NANOSECONDS: "ns"}
#: Where the sixteen bytes of a GUID stand when it is written as text.
_GUID: Final = np.array([3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15])


class MssqlSnapshot:
    """An open snapshot. Made by :meth:`MssqlSource.open`; ends with its ``with`` block."""

    def __init__(
        self, params: MssqlParams, table: SourceTable, snapshot_id: str, session: arrow_odbc.Connection, line: Line
    ) -> None:
        self.table = table
        self.snapshot_id = snapshot_id
        self.taken_at = datetime.now(UTC)
        self._params = params
        self._session = session
        self._line = line
        self._one_at_a_time = threading.Lock()
        self._cancelled = threading.Event()

    def aggregates(self, conversion: Conversion) -> TableAggregates:
        """Aggregates of the planned columns in this snapshot, computed by the server; waits while batches are read.

        :raises ServerRefused, AnswerLost: the statement failed.
        """
        with self._one_at_a_time, translated(self._params, "aggregating the source"):
            return read_aggregates(self._query, conversion)

    def batches(self, conversion: Conversion) -> Iterator[pa.RecordBatch]:
        """All rows of the snapshot as Arrow batches with exactly the planned columns, in target order.

        :raises CeilingExceeded: the longest values of the long columns together are wider than :data:`ROW_BYTES`.
        :raises ServerRefused, AnswerLost, DriverFailed: the read failed; error 535 is a seventh digit far from 1970.
        """
        with self._one_at_a_time, translated(self._params, "reading the source"):
            measured = self._measured(conversion)
            units = {column.name: self._unit(column, conversion) for column in conversion.columns}
            selected = [  # by plain names: the driver tells names in the locale's encoding, whatever that can say
                f"{_bounded(column, read_sql(column, units[column.name]), measured)} AS c{i}"
                for i, column in enumerate(conversion.columns)
            ]
            text, binary, row = _buffers(conversion, measured)
            reader = self._read(
                f"SELECT {', '.join(selected)} FROM {relation_sql(conversion)}",  # noqa: S608
                text,
                binary,
                row,
            )
            for batch in self._line.each(self._params.answer_seconds, iter(reader)):
                if self._cancelled.is_set():
                    raise Stopped("the read of the source was cancelled")
                yield _delivered(batch, conversion, units)

    def cancel(self) -> None:
        """Stop the read at its next batch. Safe from any thread."""
        self._cancelled.set()

    # --- statements ---

    def _read(self, sql: str, text: int = _TEXT, binary: int = _BINARY, row: int = 0) -> arrow_odbc.BatchReader:
        """Run one SELECT; its text travels as a parameter, because only parameters are Unicode whatever the locale.

        :param text: UTF-16 units of the longest text; ``binary``: bytes of the longest binary; ``row``: bytes of a row.
        """
        if self._cancelled.is_set():
            raise Stopped("the read of the source was cancelled")
        with self._line.within(self._params.answer_seconds):
            return self._session.read_arrow_batches(
                "EXEC sp_executesql ?",
                batch_size=_BATCH_ROWS,
                parameters=[sql],
                max_bytes_per_batch=max(BATCH_BYTES, row),
                max_text_size=text,
                max_binary_size=binary,
                payload_text_encoding=arrow_odbc.TextEncoding.UTF16,
            )

    def _query(self, sql: str) -> list[tuple[object, ...]]:
        batches = self._line.each(self._params.answer_seconds, iter(self._read(sql)))
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    def _measured(self, conversion: Conversion) -> dict[str, int]:
        """The longest value of each column without a useful declared length: UTF-16 units of text, bytes of binary."""
        unbound = [column for column in conversion.columns if _is_unbound(column)]
        if not unbound:
            return {}
        wanted = ", ".join(f"COALESCE(MAX({_length_sql(column)}), 0) AS m{i}" for i, column in enumerate(unbound))
        [found] = self._query(f"SELECT {wanted} FROM {relation_sql(conversion)}")  # noqa: S608
        return {c.name: max(1, int(str(size))) for c, size in zip(unbound, found, strict=True)}

    def _unit(self, column: ColumnConversion, conversion: Conversion) -> str:
        """Microseconds, unless a value of a seven-digit column needs more."""
        if column.form != "native" or column.source.declared not in [f"{name}(7)" for name in FINE]:
            return MICROSECONDS
        finer = f"CASE WHEN DATEPART(nanosecond, {quoted(column.name)}) % 1000 <> 0 THEN 1 END"
        [(found,)] = self._query(f"SELECT COUNT_BIG({finer}) AS n FROM {relation_sql(conversion)}")  # noqa: S608
        return NANOSECONDS if int(str(found)) else MICROSECONDS


def _is_unbound(column: ColumnConversion) -> bool:
    return "(max)" in read_sql(column) or ("(max)" in column.source.declared and column.kind in _LENGTHS)


def _length_sql(column: ColumnConversion) -> str:
    value = read_sql(column)
    return f"DATALENGTH({value})" if column.kind is ValueKind.BYTES else UTF16_UNITS.format(v=value)


def _bounded(column: ColumnConversion, value: str, measured: dict[str, int]) -> str:
    """A value of measured length in a type of that length, where there is one."""
    length = measured.get(column.name)
    if length is None or length > _longest(column):
        return value
    return f"CONVERT({'varbinary' if column.kind is ValueKind.BYTES else 'nvarchar'}({length}), {value})"


def _longest(column: ColumnConversion) -> int:
    return _BINARY if column.kind is ValueKind.BYTES else _TEXT


def _buffers(conversion: Conversion, measured: dict[str, int]) -> tuple[int, int, int]:
    """UTF-16 units of a text buffer, bytes of a binary one, and bytes of a row, as the driver binds its columns.

    :raises CeilingExceeded: a row is too wide.
    """
    wide = [column for column in conversion.columns if measured.get(column.name, 0) > _longest(column)]
    text = max([_TEXT, *(measured[column.name] for column in wide if column.kind is not ValueKind.BYTES)])
    binary = max([_BINARY, *(measured[column.name] for column in wide if column.kind is ValueKind.BYTES)])
    row = sum(_NARROW + (binary if column.kind is ValueKind.BYTES else 2 * text) for column in wide)
    if row > ROW_BYTES:
        named = ", ".join(f"{column.name!r} ({measured[column.name]:,})" for column in wide)
        raise CeilingExceeded(
            f"{conversion.source.namespace}.{conversion.source.name}: one row may take {row:,} bytes, more than the "
            f"{ROW_BYTES:,} that are read at once. Its long columns, with the length of the longest value: {named}. "
            "Publish fewer of them in one task",
            columns=[column.name for column in wide],
            row_bytes=row,
        )
    rest = [column for column in conversion.columns if column not in wide]
    return text, binary, row + sum(_NARROW + 2 * _BINARY for _ in rest)


def _delivered(batch: pa.RecordBatch, conversion: Conversion, units: dict[str, str]) -> pa.RecordBatch:
    """The batch with moments and GUIDs in the form converters expect; nothing is copied but GUIDs."""
    arrays = []
    for column, array in zip(conversion.columns, batch.columns, strict=True):
        if column.form == "native" and column.kind in (ValueKind.TIMESTAMP, ValueKind.INSTANT):
            array = array.view(pa.timestamp(_UNITS[units[column.name]]))
        elif column.form == "native" and column.kind is ValueKind.TIME:
            array = array.view(pa.time64(_UNITS[units[column.name]]))
        elif column.form == "native" and column.kind is ValueKind.UUID:
            array = _in_reading_order(array)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=conversion.names)


def _in_reading_order(array: pa.Array) -> pa.Array:
    raw = np.frombuffer(array.buffers()[1], np.uint8, count=16 * len(array), offset=16 * array.offset)
    ordered = np.ascontiguousarray(raw.reshape(-1, 16)[:, _GUID])
    validity = pa.py_buffer(np.packbits(np.asarray(array.is_valid()), bitorder="little")) if array.null_count else None
    return pa.Array.from_buffers(pa.binary(16), len(array), [validity, pa.py_buffer(ordered)])


class MssqlSource:
    """:class:`airflow_provider_dpone.transfer.source.Source` over one SQL Server database."""

    def __init__(self, params: MssqlParams) -> None:
        self.params = params

    def explain(self, kind: ValueKind, raw: object) -> str | None:
        """No value arrives under another name."""
        return explain(kind, raw)

    def place(self) -> tuple[str, str]:
        """The server's name, and the database's number, creation and broker."""
        with closing(connect(self.params)) as connection, translated(self.params, "asking which database this is"):
            return source_place(connection)

    def primary_key(self, namespace: str, name: str) -> tuple[str, ...]:
        """The columns of a table's primary key, in order; empty without one."""
        with closing(connect(self.params)) as connection, translated(self.params, "looking for the primary key"):
            return primary_key(connection, namespace, name)

    def describe(self, namespace: str, name: str) -> SourceTable:
        """Describe a table without keeping anything open; for preflight."""
        with closing(connect(self.params)) as connection, translated(self.params, "describing the source"):
            return describe(connection, namespace, name)

    @contextmanager
    def open(self, namespace: str, name: str, expected: SourceTable | None = None) -> Iterator[MssqlSnapshot]:
        """Take one snapshot of the table, describe the table, and keep the snapshot open.

        :param expected: the description a conversion was planned from; any difference refuses.
        :raises SourceChanged: the table is not as ``expected``.
        :raises SourceMissing, SourceUnsupported, SourceNotReadable: see :func:`catalog.describe`.
        :raises ServerUnreachable, ServerRefused, AnswerLost: the server.
        """
        with closing(connect(self.params)) as catalog, translated(self.params, "opening a snapshot"):
            before = describe(catalog, namespace, name)
            require_untraced()
            with opening(self.params.port) as line:
                session = arrow_odbc.connect(self.params.connection_string())
            with line.within(self.params.answer_seconds):
                session.execute("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
                session.execute("SET LOCK_TIMEOUT 15000")
                session.execute("BEGIN TRANSACTION")
            # the first look at data takes the snapshot; the design is compared after it
            snapshot = MssqlSnapshot(self.params, before, "", session, line)
            [(moment,)] = snapshot._query(
                f"SELECT CONCAT(CONVERT(nvarchar(33), SYSUTCDATETIME(), 126), N' session ', @@SPID) AS moment"  # noqa: S608
                f" FROM (SELECT 1 AS one) AS o LEFT JOIN (SELECT TOP (1) 1 AS seen FROM {quoted(namespace, name)}) AS t"
                " ON 1 = 1"
            )
            snapshot.snapshot_id = str(moment)
            snapshot.table = describe(catalog, namespace, name)
        if expected is not None and snapshot.table != expected:
            raise SourceChanged(f"{namespace}.{name} changed since it was planned; the next try plans again")
        try:
            yield snapshot
        finally:
            snapshot.cancel()
            del session
