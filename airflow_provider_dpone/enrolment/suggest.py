"""Suggests the DDL of a first ClickHouse target for a source table. For a person to read; never run here."""

from __future__ import annotations

from typing import Final

from airflow_provider_dpone.contracts.columns import SourceColumn, SourceTable, ValueKind
from airflow_provider_dpone.engines.clickhouse.quoting import identifier, table
from airflow_provider_dpone.errors import TypeNotMapped

_TYPES: Final = {
    ValueKind.BOOL: "Bool",
    ValueKind.FLOAT32: "Float32",
    ValueKind.FLOAT64: "Float64",
    ValueKind.TEXT: "String",
    ValueKind.BYTES: "String",
    ValueKind.UUID: "UUID",
    ValueKind.DATE: "Date32",
    ValueKind.TIME: "String",
    ValueKind.TIMESTAMP: "DateTime64(6)",
    ValueKind.INSTANT: "DateTime64(6, 'UTC')",
    ValueKind.ADDRESS: "String",
    ValueKind.OTHER: "String",
}
_INTEGERS: Final = {"smallint": "Int16", "integer": "Int32", "bigint": "Int64"}


def suggest_type(column: SourceColumn) -> str:
    """The ClickHouse type that takes a source column exactly.

    :raises TypeNotMapped: the column's type is refused; the message says why.
    """
    if column.kind is None:
        raise TypeNotMapped(f"column {column.name!r} of type {column.declared}: {column.refusal}")
    if column.kind is ValueKind.INTEGER:
        name = _INTEGERS.get(column.declared.split("[")[0], "Int64")
    elif column.kind is ValueKind.DECIMAL:
        fits = column.precision is not None and column.scale is not None and 0 <= column.scale <= column.precision <= 76
        name = f"Decimal({column.precision}, {column.scale})" if fits else "String"
    else:
        name = _TYPES[column.kind]
    if column.array:
        return f"Array(Nullable({name}))"
    return f"Nullable({name})" if column.nullable else name


def suggest_ddl(source: SourceTable, database: str, name: str) -> str:
    """CREATE TABLE for a plain MergeTree; choose ORDER BY for your readers before you run it."""
    columns = ",\n".join(f"  {identifier(c.name)} {suggest_type(c)}" for c in source.columns)
    return f"CREATE TABLE {table(database, name)}\n(\n{columns}\n)\nENGINE = MergeTree\nORDER BY tuple()"
