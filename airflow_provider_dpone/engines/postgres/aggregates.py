"""Aggregates of a PostgreSQL relation, computed by the server inside the snapshot that is copied.

The twin for the target is ``engines/clickhouse/aggregates.py``; shapes and canonical texts come from
``transfer.aggregates``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from airflow_provider_dpone.contracts.choice import Constant
from airflow_provider_dpone.contracts.columns import TableAggregates, ValueKind
from airflow_provider_dpone.engines.postgres.session import literal, quoted
from airflow_provider_dpone.transfer.aggregates import PREFIX, Shape, shape_of, table_aggregates
from airflow_provider_dpone.transfer.convert import ColumnConversion, Conversion

#: Columns aggregated by one statement; a SELECT list holds at most 1,664 entries.
_AT_ONCE: Final = 300
_MICROS: Final = "(extract(epoch FROM {f}({v})) * 1000000)::bigint::text"
#: SQL of low, high and total over the read expression ``{v}``; an empty text has no such aggregate.
_SQL: Final[dict[Shape, tuple[str, str, str]]] = {
    Shape.NUMBER: ("min({v})::text", "max({v})::text", "COALESCE(sum({v}), 0)::text"),
    Shape.FLOAT: (
        "(min({v}::float8) FILTER (WHERE {v} <> 'NaN'))::text",
        "(max({v}::float8) FILTER (WHERE {v} <> 'NaN'))::text",
        "(count(*) FILTER (WHERE {v} = 'NaN'))::text",
    ),
    Shape.BOOL: ("", "", "(count(*) FILTER (WHERE {v}))::text"),
    Shape.TEXT: (
        f'left(min({{v}} COLLATE "C"), {PREFIX})',
        f'left(max({{v}} COLLATE "C"), {PREFIX})',
        "COALESCE(sum(octet_length({v})), 0)::text",
    ),
    Shape.BYTES: (
        f"min(encode(substring({{v}} FOR {PREFIX}), 'hex') COLLATE \"C\")",
        f"max(encode(substring({{v}} FOR {PREFIX}), 'hex') COLLATE \"C\")",
        "COALESCE(sum(octet_length({v})), 0)::text",
    ),
    Shape.LABEL: ('min({v} COLLATE "C")', 'max({v} COLLATE "C")', ""),
    Shape.DATE: ("min({v})::text", "max({v})::text", ""),
    Shape.MICROS: (_MICROS.replace("{f}", "min"), _MICROS.replace("{f}", "max"), ""),
    Shape.TIME: ("min({v})::text", "max({v})::text", ""),
    Shape.ADDRESS: ("host(min({c}))", "host(max({c}))", ""),
    Shape.LIST: ("", "", "COALESCE(sum(cardinality({v})), 0)::text"),
}


#: One row of a statement.
Fetch = Callable[[str], Sequence[Any]]


@dataclass(frozen=True)
class _Read:
    """How a column is read: its value, and its text form where it has one."""

    value: str
    text: str | None


def read_aggregates(connection: psycopg.Connection, conversion: Conversion) -> TableAggregates:
    """Rows, and per column NULLs, low, high and total, in the connection's current snapshot."""

    def fetch(statement: str) -> Sequence[Any]:
        answer = connection.execute(statement.encode()).fetchone()
        assert answer is not None
        return answer

    return _aggregates(fetch, conversion, relation_sql(conversion), _source)


def staged_aggregates(fetch: Fetch, conversion: Conversion, schema: str, staging: str) -> TableAggregates:
    """The same over a staging table, whose columns hold what the conversion made of the source's."""
    return _aggregates(fetch, conversion, quoted(schema, staging), _staged)


def _aggregates(
    fetch: Fetch, conversion: Conversion, relation: str, read: Callable[[ColumnConversion], _Read]
) -> TableAggregates:
    rows: int | None = None
    values: list[tuple[str | None, ...]] = []
    for start in range(0, len(conversion.columns), _AT_ONCE):
        columns = conversion.columns[start : start + _AT_ONCE]
        wanted = ["count(*)", *(part for column in columns for part in _column(column, read(column)))]
        answer = fetch(f"SELECT {', '.join(wanted)} FROM {relation}")  # noqa: S608
        assert rows in (None, answer[0]), "one snapshot has one number of rows"
        rows = answer[0]
        values += [tuple(answer[i : i + 4]) for i in range(1, len(answer), 4)]
    assert rows is not None
    return table_aggregates(conversion, rows, values)


def _column(column: ColumnConversion, read: _Read) -> list[str]:
    name = quoted(column.name)
    value = read.value
    shape = shape_of(column)
    if shape is Shape.NUMBER and column.kind is ValueKind.BOOL:
        value = f"{name}::int"
    if shape in (Shape.TEXT, Shape.LABEL) and read.text is not None:
        value = read.text
    if shape is Shape.MICROS and column.kind is ValueKind.TIMESTAMP:
        value = f"({value} AT TIME ZONE 'UTC')"
    parts = [sql.format(v=value, c=name) if sql else "NULL" for sql in _SQL[shape]]
    return [f"(count(*) - count({name}))::text", *parts]


def _source(column: ColumnConversion) -> _Read:
    text = column.source.text_read
    return _Read(read_sql(column), None if text is None else text.format(c=quoted(column.name)))


def _staged(column: ColumnConversion) -> _Read:
    name = quoted(column.name)
    padded = f"CASE WHEN {name} IS NOT NULL THEN format('%s', {name}) END"  # a cast to text strips the padding
    return _Read(name, padded if column.target.family == "Char" else f"{name}::text")


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
        return "true" if value else "false"
    if isinstance(value, int):
        return f"({value})::bigint"
    return "NULL::text" if value is None else f"{literal(value)}::text"


def read_sql(column: ColumnConversion) -> str:
    """The SQL that reads a column in the planned form."""
    template = column.source.native_read if column.form == "native" else column.source.text_read
    assert template is not None
    return template.format(c=quoted(column.name))
