"""Aggregates of a PostgreSQL relation, computed by the server inside the snapshot that is copied.

The twin for the target is ``engines/clickhouse/aggregates.py``; shapes and canonical texts come from
``transfer.aggregates``.
"""

from __future__ import annotations

from typing import Final

import psycopg

from airflow_provider_dpone.contracts.columns import TableAggregates, ValueKind
from airflow_provider_dpone.engines.postgres.session import quoted
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


def read_aggregates(connection: psycopg.Connection, conversion: Conversion) -> TableAggregates:
    """Rows, and per column NULLs, low, high and total, in the connection's current snapshot."""
    source = conversion.source
    relation = quoted(source.namespace, source.name)
    rows: int | None = None
    values: list[tuple[str | None, ...]] = []
    for start in range(0, len(conversion.columns), _AT_ONCE):
        columns = conversion.columns[start : start + _AT_ONCE]
        wanted = ["count(*)", *(part for column in columns for part in _column(column))]
        answer = connection.execute(f"SELECT {', '.join(wanted)} FROM {relation}".encode()).fetchone()  # noqa: S608
        assert answer is not None
        assert rows in (None, answer[0]), "one snapshot has one number of rows"
        rows = answer[0]
        values += [answer[i : i + 4] for i in range(1, len(answer), 4)]
    assert rows is not None
    return table_aggregates(conversion, rows, values)


def _column(column: ColumnConversion) -> list[str]:
    name = quoted(column.name)
    value = read_sql(column)
    shape = shape_of(column)
    if shape is Shape.NUMBER and column.kind is ValueKind.BOOL:
        value = f"{name}::int"
    if shape in (Shape.TEXT, Shape.LABEL) and column.source.text_read is not None:
        value = column.source.text_read.format(c=name)
    if shape is Shape.MICROS and column.kind is ValueKind.TIMESTAMP:
        value = f"({value} AT TIME ZONE 'UTC')"
    parts = [sql.format(v=value, c=name) if sql else "NULL" for sql in _SQL[shape]]
    return [f"(count(*) - count({name}))::text", *parts]


def read_sql(column: ColumnConversion) -> str:
    """The SQL that reads a column in the planned form."""
    template = column.source.native_read if column.form == "native" else column.source.text_read
    assert template is not None
    return template.format(c=quoted(column.name))
