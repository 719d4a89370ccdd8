"""Suggests the DDL of a target for a source table, or what an existing one lacks. For people to read; never run here.

What is printed takes every value that the source's types allow and the target's can hold: it can be enrolled,
activated and published as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_dpone.contracts.columns import SourceColumn, SourceTable, ValueKind
from airflow_provider_dpone.contracts.enrolment import ColumnDesign
from airflow_provider_dpone.engines.clickhouse.quoting import identifier
from airflow_provider_dpone.engines.postgres.session import quoted as postgres_quoted
from airflow_provider_dpone.errors import DesignMismatch, TypeNotMapped
from airflow_provider_dpone.transfer.convert import TypeSystem, plan_conversion

_DIGITS: Final = re.compile(r"\((\d+)\)")
_SIZED: Final = re.compile(r"n?(?:var)?char(?:acter)?(?: varying)?\((\d+)\)")


@dataclass(frozen=True)
class Ddl:
    """How one target engine writes a table.

    :ivar type_of: the type that takes a column exactly, without its nullability.
    :ivar column: a column's definition, from its quoted name, its type and whether it takes NULL.
    :ivar ending: what follows the columns, from the quoted key columns.
    :ivar modify: the statement that gives a column another type, from table, name, type and nullability.
    """

    quote: Callable[[str], str]
    type_of: Callable[[SourceColumn], str]
    column: Callable[[str, str, bool], str]
    key_type: Callable[[str], bool]
    ending: Callable[[Sequence[str]], str]
    key_line: Callable[[Sequence[str]], str]
    modify: Callable[[str, str, str, bool], list[str]]
    add: str

    def table(self, names: tuple[str, str]) -> str:
        """A qualified name."""
        return ".".join(self.quote(name) for name in names)


def suggest_ddl(source: SourceTable, ddl: Ddl, target: tuple[str, str], key: Sequence[str] = ()) -> str:
    """CREATE TABLE for a source table.

    :param key: its primary key, in order; it becomes the order of rows, or the target's own key.
    :raises TypeNotMapped: a column's type is refused; the message says why.
    """
    types = {column.name: _type(ddl, column) for column in source.columns}
    lines = [ddl.column(ddl.quote(c.name), types[c.name], c.nullable) for c in source.columns]
    usable = key if key and all(ddl.key_type(types[name]) for name in key) else ()
    quoted = [ddl.quote(name) for name in usable]
    if ddl.key_line(quoted):
        lines.append(ddl.key_line(quoted))
    body = ",\n".join(f"  {line}" for line in lines)
    return f"CREATE TABLE {ddl.table(target)}\n(\n{body}\n){ddl.ending(quoted)}"


def suggest_changes(
    source: SourceTable, ddl: Ddl, target: tuple[str, str], columns: Sequence[ColumnDesign], system: TypeSystem
) -> list[str]:
    """The statements that make an existing target take the source table, and comments where a person must decide.

    :param columns: the target's columns. :param system: its engine's types.
    """
    table = ddl.table(target)
    ours, theirs = {c.name: c for c in source.columns}, {c.name: c for c in columns}
    changes: list[str] = []
    for name, column in ours.items():
        if name not in theirs:
            definition = ddl.column(ddl.quote(name), _type(ddl, column), column.nullable)
            changes.append(f"ALTER TABLE {table} {ddl.add} {definition}")
            continue
        alone = source.model_copy(update={"columns": (column,)})
        try:
            plan_conversion(alone, [theirs[name]], None, system)
        except (DesignMismatch, TypeNotMapped):
            changes += ddl.modify(table, ddl.quote(name), _type(ddl, column), column.nullable)
    changes += [
        f"-- {ddl.quote(name)} is not in the source: give it a value in the task (defaults=...), or ALTER TABLE "
        f"{table} DROP COLUMN {ddl.quote(name)}"
        for name in theirs
        if name not in ours
    ]
    return changes


def _type(ddl: Ddl, column: SourceColumn) -> str:
    if column.kind is None:
        raise TypeNotMapped(f"column {column.name!r} of type {column.declared}: {column.refusal}")
    return ddl.type_of(column)


def _fraction(column: SourceColumn, most: int) -> int:
    """Fraction digits of a second, as declared."""
    found = _DIGITS.search(column.declared)
    return min(int(found[1]) if found else 6, most)


def _fits(column: SourceColumn, most: int) -> bool:
    """Whether a decimal has declared digits that a target with at most so many can hold."""
    precision, scale = column.precision, column.scale
    return precision is not None and scale is not None and 0 <= scale <= precision <= most


# --- ClickHouse -----------------------------------------------------------------------------------------------

_WHOLE: Final = {"smallint": "Int16", "integer": "Int32", "int": "Int32", "tinyint": "UInt8"}
_PLAIN: Final = {
    ValueKind.BOOL: "Bool", ValueKind.FLOAT32: "Float32", ValueKind.FLOAT64: "Float64", ValueKind.UUID: "UUID",
    ValueKind.DATE: "Date32",
}  # fmt: skip


def _clickhouse(column: SourceColumn) -> str:
    if column.array:
        # a list is never NULL there, and a name with a dot would be part of a Nested column
        whole = column.kind is not ValueKind.DECIMAL or _fits(column, 76)
        if column.nullable or "." in column.name or not whole:
            return "String"
        return f"Array(Nullable({_clickhouse(column.model_copy(update={'array': False}))}))"
    if column.kind is ValueKind.INTEGER:
        return _WHOLE.get(column.declared.removesuffix("[]"), "Int64")
    if column.kind is ValueKind.DECIMAL:
        if _fits(column, 76):
            return f"Decimal({column.precision}, {column.scale})"
        return "String" if column.text_read is not None else "Decimal(38, 4)"  # money: its digits are the locale's
    if column.kind is ValueKind.TIMESTAMP:
        return f"DateTime64({max(6, _fraction(column, 9))})"
    if column.kind is ValueKind.INSTANT:
        return f"DateTime64({max(6, _fraction(column, 9))}, 'UTC')"
    return _PLAIN.get(column.kind, "String") if column.kind else "String"


def _clickhouse_column(name: str, declared: str, nullable: bool) -> str:
    return f"{name} Nullable({declared})" if nullable else f"{name} {declared}"


CLICKHOUSE_DDL: Final = Ddl(
    quote=identifier,
    type_of=_clickhouse,
    column=_clickhouse_column,
    key_type=lambda declared: not declared.startswith("Array"),
    ending=lambda key: f"\nENGINE = MergeTree\nORDER BY {'(' + ', '.join(key) + ')' if key else 'tuple()'}",
    key_line=lambda key: "",
    modify=lambda table, name, declared, nullable: [
        f"ALTER TABLE {table} MODIFY COLUMN {_clickhouse_column(name, declared, nullable)}"
    ],
    add="ADD COLUMN",
)

# --- PostgreSQL -----------------------------------------------------------------------------------------------


def _postgres(column: SourceColumn) -> str:
    """The type itself where it is one of PostgreSQL's own; text for a type of the source database alone."""
    own = "." in column.declared or any(attribute.startswith("domain:") for attribute in column.attributes)
    return "text" if own else column.declared


def _not_null(name: str, declared: str, nullable: bool) -> str:
    return f"{name} {declared}" if nullable else f"{name} {declared} NOT NULL"


def _primary_key(key: Sequence[str]) -> str:
    return f"PRIMARY KEY ({', '.join(key)})" if key else ""


def _postgres_modify(table: str, name: str, declared: str, nullable: bool) -> list[str]:
    null = "DROP" if nullable else "SET"
    return [
        f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {declared} USING {name}::{declared}",
        f"ALTER TABLE {table} ALTER COLUMN {name} {null} NOT NULL",
    ]


POSTGRES_DDL: Final = Ddl(
    quote=postgres_quoted,
    type_of=_postgres,
    column=_not_null,
    key_type=lambda declared: True,
    ending=lambda key: "",
    key_line=_primary_key,
    modify=_postgres_modify,
    add="ADD COLUMN",
)

# --- SQL Server -----------------------------------------------------------------------------------------------

_MSSQL_WHOLE: Final = {"smallint": "smallint", "integer": "int", "int": "int", "tinyint": "tinyint"}
_MSSQL_PLAIN: Final = {
    ValueKind.BOOL: "bit", ValueKind.FLOAT32: "real", ValueKind.FLOAT64: "float(53)",
    ValueKind.UUID: "uniqueidentifier", ValueKind.DATE: "date", ValueKind.BYTES: "varbinary(max)",
}  # fmt: skip


def _mssql(column: SourceColumn) -> str:
    if column.array:
        return "nvarchar(max)"
    if column.kind is ValueKind.INTEGER:
        return _MSSQL_WHOLE.get(column.declared, "bigint")
    if column.kind is ValueKind.DECIMAL:
        if _fits(column, 38):
            return f"decimal({column.precision},{column.scale})"
        return "nvarchar(max)" if column.text_read is not None else "decimal(38,4)"
    if column.kind in (ValueKind.TIMESTAMP, ValueKind.INSTANT, ValueKind.TIME):
        name = {ValueKind.TIMESTAMP: "datetime2", ValueKind.INSTANT: "datetimeoffset"}.get(column.kind, "time")
        return f"{name}({_fraction(column, 7)})"
    if column.kind is ValueKind.TEXT and (sized := _SIZED.fullmatch(column.declared)) and int(sized[1]) <= 2000:
        return f"nvarchar({2 * int(sized[1])})"  # a character has up to two units there
    return _MSSQL_PLAIN.get(column.kind, "nvarchar(max)") if column.kind else "nvarchar(max)"


def _bracketed(name: str) -> str:
    return f"[{name.replace(']', ']]')}]"


MSSQL_DDL: Final = Ddl(
    quote=_bracketed,
    type_of=_mssql,
    column=lambda name, declared, nullable: f"{name} {declared} {'NULL' if nullable else 'NOT NULL'}",
    key_type=lambda declared: "(max)" not in declared,
    ending=lambda key: "",
    key_line=_primary_key,
    modify=lambda table, name, declared, nullable: [
        f"ALTER TABLE {table} ALTER COLUMN {name} {declared} {'NULL' if nullable else 'NOT NULL'}"
    ],
    add="ADD",
)
