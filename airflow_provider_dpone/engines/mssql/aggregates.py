"""Aggregates of a SQL Server table, computed by the server inside the snapshot that is copied.

The twin for the target is ``engines/clickhouse/aggregates.py``; shapes and canonical texts come from
``transfer.aggregates``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from airflow_provider_dpone.contracts.columns import SourceTable, TableAggregates, ValueKind
from airflow_provider_dpone.engines.mssql.session import quoted
from airflow_provider_dpone.engines.mssql.types import NANOSECONDS
from airflow_provider_dpone.transfer.aggregates import PREFIX, Shape, shape_of, table_aggregates
from airflow_provider_dpone.transfer.convert import ColumnConversion, Conversion

#: Columns aggregated by one statement.
_AT_ONCE: Final = 200
#: The collation whose order is that of the UTF-8 bytes, as the target's.
BYTEWISE: Final = "Latin1_General_100_BIN2_UTF8"
#: Twice the compared characters, so that enough whole characters remain whatever is cut; then a mark below every
#: printable character, because T-SQL takes trailing blanks for nothing.
_CUT: Final = f"CONVERT(nvarchar({2 * PREFIX + 1}), LEFT({{v}}, {2 * PREFIX}) + NCHAR(1)) COLLATE {{bytewise}}"
_HEX: Final = f"CONVERT(varchar({2 * PREFIX}), CONVERT(varbinary({PREFIX}), SUBSTRING({{v}}, 1, {PREFIX})), 2)"
_TOTAL: Final = "CONVERT(nvarchar(20), COALESCE(SUM(CONVERT(bigint, DATALENGTH({v}))), 0))"
#: SQL of low, high and total over the read expression ``{v}``; an empty text has no such aggregate.
_SQL: Final[dict[Shape, tuple[str, str, str]]] = {
    Shape.NUMBER: (
        "CONVERT(nvarchar(60), MIN({v}))",
        "CONVERT(nvarchar(60), MAX({v}))",
        "CONVERT(nvarchar(60), COALESCE(SUM(CONVERT(decimal(38, {scale}), {v})), 0))",
    ),
    Shape.FLOAT: (
        "CONVERT(nvarchar(60), MIN(CONVERT(float, {v})), 3)",
        "CONVERT(nvarchar(60), MAX(CONVERT(float, {v})), 3)",
        "CONVERT(nvarchar(20), 0)",
    ),
    Shape.BOOL: ("", "", "CONVERT(nvarchar(20), COUNT_BIG(CASE WHEN {v} = 1 THEN 1 END))"),
    Shape.TEXT: (
        f"MIN({_CUT})",
        f"MAX({_CUT})",
        _TOTAL.format(v="CONVERT(varchar(max), {v} COLLATE {bytewise})"),
    ),
    Shape.BYTES: (
        f"LOWER(MIN({_HEX}))",
        f"LOWER(MAX({_HEX}))",
        _TOTAL,
    ),
    Shape.LABEL: ("MIN({t} COLLATE Latin1_General_100_BIN2)", "MAX({t} COLLATE Latin1_General_100_BIN2)", ""),
    Shape.DATE: ("CONVERT(nvarchar(10), MIN({v}), 23)", "CONVERT(nvarchar(10), MAX({v}), 23)", ""),
    Shape.MICROS: ("CONVERT(nvarchar(20), MIN({v}))", "CONVERT(nvarchar(20), MAX({v}))", ""),
    Shape.TIME: ("CONVERT(nvarchar(20), MIN({v}))", "CONVERT(nvarchar(20), MAX({v}))", ""),
}  # fmt: skip


def read_aggregates(query: Callable[[str], list[tuple[object, ...]]], conversion: Conversion) -> TableAggregates:
    """Rows, and per column NULLs, low, high and total, by ``query`` in the snapshot."""
    rows: int | None = None
    values: list[tuple[str | None, ...]] = []
    for start in range(0, len(conversion.columns), _AT_ONCE):
        columns = conversion.columns[start : start + _AT_ONCE]
        [answer] = query(aggregates_sql(conversion.source, columns))
        counted = int(str(answer[0]))
        assert rows in (None, counted), "one snapshot has one number of rows"
        rows = counted
        for number, column in enumerate(columns):
            cells = tuple(None if cell is None else str(cell) for cell in answer[1 + 4 * number : 5 + 4 * number])
            values.append(_finished(shape_of(column), cells))
    assert rows is not None
    return table_aggregates(conversion, rows, values)


def _finished(shape: Shape, cells: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Cut texts to the compared characters; write microseconds since midnight as a time."""
    nulls, low, high, total = cells
    if shape is Shape.TEXT:
        low, high = (None if text is None else text[:-1][:PREFIX] for text in (low, high))
    if shape is Shape.TIME:
        low, high = (None if text is None else _time(int(text)) for text in (low, high))
    return nulls, low, high, total


def _time(micros: int) -> str:
    seconds, rest = divmod(micros, 10**6)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"


def aggregates_sql(source: SourceTable, columns: tuple[ColumnConversion, ...]) -> str:
    """One SELECT: the number of rows, then nulls, low, high and total of each column, all but the first as text."""
    wanted = ["COUNT_BIG(*) AS n", *(f"{part} AS a{i}" for i, part in enumerate(_parts(columns)))]
    return f"SELECT {', '.join(wanted)} FROM {quoted(source.namespace, source.name)}"  # noqa: S608


def _parts(columns: tuple[ColumnConversion, ...]) -> list[str]:
    return [part for column in columns for part in _column(column)]


def _column(column: ColumnConversion) -> list[str]:
    name = quoted(column.name)
    value = read_sql(column)
    shape = shape_of(column)
    if shape is Shape.NUMBER and column.kind is ValueKind.BOOL:
        value = f"CONVERT(int, {name})"
    named = {
        "v": value,
        "t": value if column.source.text_read is None else column.source.text_read.format(c=name),
        "scale": str(column.source.scale or 0),
        "bytewise": BYTEWISE,
    }
    parts = [sql.format(**named) if sql else "CAST(NULL AS nvarchar(1))" for sql in _SQL[shape]]
    return [f"CONVERT(nvarchar(20), COUNT_BIG(*) - COUNT_BIG({name}))", *parts]


def read_sql(column: ColumnConversion, unit: str | None = None) -> str:
    """The SQL that reads a column in the planned form, moments in ``unit``."""
    template = column.source.native_read if column.form == "native" else column.source.text_read
    assert template is not None
    if unit == NANOSECONDS:
        template = template.replace("(microsecond,", "(nanosecond,")
    return template.format(c=quoted(column.name))
