"""Aggregates of a SQL Server table, computed by the server inside the snapshot that is copied.

Its twins are ``engines/clickhouse/aggregates.py`` and the staging table of loads below; shapes and canonical texts
come from ``transfer.aggregates``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Final

from airflow_provider_dpone.contracts.choice import Constant
from airflow_provider_dpone.contracts.columns import TableAggregates, ValueKind
from airflow_provider_dpone.engines.mssql.scripts import literal, quoted
from airflow_provider_dpone.engines.mssql.types import NANOSECONDS
from airflow_provider_dpone.transfer.aggregates import PREFIX, Shape, shape_of, table_aggregates
from airflow_provider_dpone.transfer.convert import ColumnConversion, Conversion

_EXACT: Final = Context(prec=100)
#: Columns aggregated by one statement.
_AT_ONCE: Final = 200
#: A collation of UTF-8: the binary order of text stored in it is that of its bytes, which is that of its code points,
#: as the target's. Of nvarchar it may be that of UTF-16 units, which puts what is above U+FFFF before U+E000.
BYTEWISE: Final = "Latin1_General_100_BIN2_UTF8"
#: Twice the compared characters, so that enough whole characters remain whatever is cut; then a mark below every
#: printable character, because T-SQL takes trailing blanks for nothing.
_CUT: Final = f"CONVERT(varchar({4 * (2 * PREFIX + 1)}), (LEFT({{v}}, {2 * PREFIX}) + NCHAR(1)) COLLATE {{bytewise}})"
_EPOCH: Final = "CONVERT(datetime2(7), '19700101', 112)"
_MIDNIGHT: Final = "CONVERT(datetime2(7), '19000101', 112)"
#: Digits of a decimal that can be added up for any number of rows; a wider one is added up in two halves of its digits.
_SUMMABLE: Final = 28
_DIGITS: Final = "RIGHT(REPLICATE('0', 40) + REPLACE(REPLACE(CONVERT(varchar(60), {v}), '.', ''), '-', ''), 40)"
_HALF: Final = "COALESCE(SUM(SIGN({v}) * CONVERT(decimal(38, 0), {side}(" + _DIGITS + ", 20))), 0)"
_WIDE_TOTAL: Final = (
    f"CONCAT({_HALF.replace('{side}', 'LEFT')}, N'|', {_HALF.replace('{side}', 'RIGHT')}, N'|{{scale}}')"
)
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
        f"CONVERT(nvarchar({2 * PREFIX + 1}), MIN({_CUT}))",
        f"CONVERT(nvarchar({2 * PREFIX + 1}), MAX({_CUT}))",
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


#: Runs one statement and returns all its rows.
Query = Callable[[str], list[tuple[object, ...]]]


@dataclass(frozen=True)
class _Read:
    """How a column is read: its value, its text form where it has one, and how its total is made."""

    value: str
    text: str | None = None
    scale: int = 0
    wide: bool = False


def read_aggregates(query: Query, conversion: Conversion) -> TableAggregates:
    """Rows, and per column NULLs, low, high and total, by ``query`` in the snapshot."""
    return _aggregates(query, conversion, relation_sql(conversion), _source)


def staged_aggregates(query: Query, conversion: Conversion, schema: str, staging: str) -> TableAggregates:
    """The same over a staging table, whose columns hold what the conversion made of the source's."""
    return _aggregates(query, conversion, quoted(schema, staging), _staged)


def _aggregates(
    query: Query, conversion: Conversion, relation: str, read: Callable[[ColumnConversion], _Read]
) -> TableAggregates:
    rows: int | None = None
    values: list[tuple[str | None, ...]] = []
    for start in range(0, len(conversion.columns), _AT_ONCE):
        columns = conversion.columns[start : start + _AT_ONCE]
        [answer] = query(_sql(relation, columns, read))
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
    if total is not None and "|" in total:
        upper, lower, scale = (int(part) for part in total.split("|"))
        total = f"{Decimal(upper * 10**20 + lower).scaleb(-scale, _EXACT):f}"
    if shape is Shape.TEXT:
        low, high = (None if text is None else text[:-1][:PREFIX] for text in (low, high))
    if shape is Shape.TIME:
        low, high = (None if text is None else _time(int(text)) for text in (low, high))
    return nulls, low, high, total


def _time(micros: int) -> str:
    seconds, rest = divmod(micros, 10**6)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"


def _sql(relation: str, columns: tuple[ColumnConversion, ...], read: Callable[[ColumnConversion], _Read]) -> str:
    """One SELECT: the number of rows, then nulls, low, high and total of each column, all but the first as text."""
    parts = [part for column in columns for part in _column(column, read(column))]
    wanted = ["COUNT_BIG(*) AS n", *(f"{part} AS a{i}" for i, part in enumerate(parts))]
    return f"SELECT {', '.join(wanted)} FROM {relation}"  # noqa: S608


def _column(column: ColumnConversion, read: _Read) -> list[str]:
    name = quoted(column.name)
    shape = shape_of(column)
    named = {"v": read.value, "t": read.text or read.value, "scale": str(read.scale), "bytewise": BYTEWISE}
    parts = [sql.format(**named) if sql else "CAST(NULL AS nvarchar(1))" for sql in _SQL[shape]]
    if read.wide:
        parts[2] = _WIDE_TOTAL.format(**named)
    return [f"CONVERT(nvarchar(20), COUNT_BIG(*) - COUNT_BIG({name}))", *parts]


def _source(column: ColumnConversion) -> _Read:
    name = quoted(column.name)
    value = read_sql(column)
    if column.kind is ValueKind.BOOL and shape_of(column) is Shape.NUMBER:
        value = f"CONVERT(int, {name})"
    text = column.source.text_read
    wide = column.kind is ValueKind.DECIMAL and (column.source.precision or 0) > _SUMMABLE
    return _Read(value, None if text is None else text.format(c=name), column.source.scale or 0, wide)


def _staged(column: ColumnConversion) -> _Read:
    name, target = quoted(column.name), column.target
    match target.family:
        case "Timestamp":
            return _Read(f"DATEDIFF_BIG(microsecond, {_EPOCH}, {name})")
        case "Instant":
            return _Read(f"DATEDIFF_BIG(microsecond, {_EPOCH}, CONVERT(datetime2(7), SWITCHOFFSET({name}, '+00:00')))")
        case "Time64":
            return _Read(f"DATEDIFF_BIG(microsecond, {_MIDNIGHT}, CONVERT(datetime2(7), {name}))")
        case "UUID":
            return _Read(name, f"LOWER(CONVERT(nvarchar(36), {name}))")
        case "Decimal":
            return _Read(name, None, target.scale, target.precision > _SUMMABLE)
    return _Read(name)


def relation_sql(conversion: Conversion) -> str:
    """What is read: the table itself, or the columns of it that the author chose, under their target's names."""
    source, chosen = conversion.source, conversion.chosen
    table = quoted(source.namespace, source.name)
    if chosen is None:
        return table
    parts = [f"{quoted(name)} AS {quoted(target)}" for name, target in chosen.renamed]
    parts += [f"{_constant_sql(value)} AS {quoted(target)}" for target, value in chosen.constants]
    return f"(SELECT {', '.join(parts)} FROM {table}) AS chosen"  # noqa: S608


def _constant_sql(value: Constant) -> str:
    if isinstance(value, bool):
        return f"CAST({int(value)} AS bit)"
    if isinstance(value, int):
        return f"CAST({value} AS bigint)"
    # a type of exactly its length, in UTF-16 units
    units = max(1, len((value or "").encode("utf-16-le")) // 2)
    length = str(units) if units <= 4000 else "max"
    return f"CAST({'NULL' if value is None else literal(value)} AS nvarchar({length}))"


def read_sql(column: ColumnConversion, unit: str | None = None) -> str:
    """The SQL that reads a column in the planned form, moments in ``unit``."""
    template = column.source.native_read if column.form == "native" else column.source.text_read
    assert template is not None
    if unit == NANOSECONDS:
        template = template.replace("(microsecond,", "(nanosecond,")
    return template.format(c=quoted(column.name))
