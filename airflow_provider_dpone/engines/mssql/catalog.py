"""Describes a SQL Server table completely, and refuses what cannot be read as one whole, consistent snapshot."""

from __future__ import annotations

from typing import Any, Final

import pyodbc

from airflow_provider_dpone.contracts.columns import SourceColumn, SourceTable, ValueKind
from airflow_provider_dpone.engines.mssql.scripts import quoted, statement
from airflow_provider_dpone.engines.mssql.types import declared, rule_of
from airflow_provider_dpone.errors import SourceMissing, SourceNotReadable, SourceUnsupported

_REFUSED_KINDS: Final = {
    "V": "a view, whose rows are computed while it is read; publish its query as a table",
    "SN": "a synonym; name the table it stands for",
    "IF": "a function",
    "TF": "a function",
    "ET": "an external table, whose rows are not part of this server's snapshot",
}
_SPECIAL: Final = {
    "is_external": "an external table, whose rows are not part of this server's snapshot",
    "is_memory_optimized": "memory-optimized, which this isolation level cannot read; publish it as an ordinary table",
    "is_node": "a graph table, which has columns of its own making",
    "is_edge": "a graph table, which has columns of its own making",
    "is_filetable": "a file table, whose rows change outside transactions",
}
_SNAPSHOT_ON: Final = 1
#: Longest declared length of nvarchar.
_LONGEST: Final = 4000


def describe(connection: pyodbc.Connection, namespace: str, name: str) -> SourceTable:
    """Everything that matters about one table, as the connection's user sees it.

    :raises SourceMissing: no such table.
    :raises SourceUnsupported: its kind, or its database's isolation settings, forbid a complete consistent read.
    :raises SourceNotReadable: the user lacks a right, or row security or masking would change what it reads.
    """
    shown = f"{namespace}.{name}"
    [relation, *_] = [*_rows(connection, statement("relation.sql"), namespace, name), None]
    if relation is None:
        raise SourceMissing(f"there is no table {shown} in the database, or the user may not see it")
    _require_snapshot(shown, relation)
    if not relation["readable"]:
        raise SourceNotReadable(f"the user has no SELECT on {shown}; grant it")
    if relation["row_filters"]:
        raise SourceNotReadable(
            f"row security filters {shown}, and nobody can see whom it spares; read a copy, or disable the policy's "
            "filter for this table"
        )
    rows = _rows(connection, statement("columns.sql"), int(relation["relation_id"]))
    for row in rows:
        _require_readable(shown, row)
    if not rows:
        raise SourceUnsupported(f"{shown} has no columns")
    return SourceTable(
        connector="mssql",
        service_id=str(relation["server_name"]),
        database=relation["database_name"],
        database_id=_database_id(relation),
        namespace=namespace,
        name=name,
        relation_id=relation["relation_id"],
        relation_kind="table",
        columns=tuple(_column(row) for row in rows),
    )


def source_place(connection: pyodbc.Connection) -> tuple[str, str]:
    """Server and database, as every description carries them."""
    [row] = _rows(connection, statement("source_place.sql"))
    return str(row["server_name"]), _database_id(row)


def primary_key(connection: pyodbc.Connection, namespace: str, name: str) -> tuple[str, ...]:
    """The columns of a table's primary key, in order; empty without one."""
    return tuple(str(row["name"]) for row in _rows(connection, statement("primary_key.sql"), namespace, name))


def _database_id(row: dict[str, Any]) -> str:
    return "/".join(str(row[n]) for n in ("database_number", "database_created", "database_guid") if row[n])


def _rows(connection: pyodbc.Connection, sql: str, *parameters: object) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, *parameters)
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        while cursor.nextset():
            pass
        return rows


def _require_snapshot(shown: str, relation: dict[str, Any]) -> None:
    kind = relation["kind"]
    if kind != "U":
        raise SourceUnsupported(f"{shown} is {_REFUSED_KINDS.get(kind, f'of kind {kind!r}')}")
    for name, why in _SPECIAL.items():
        if relation[name]:
            raise SourceUnsupported(f"{shown} is {why}")
    if relation["snapshot_isolation_state"] != _SNAPSHOT_ON:
        database = relation["database_name"]
        raise SourceUnsupported(
            f"database {database} does not allow snapshot isolation, without which a table is not read as of one "
            f"moment; run ALTER DATABASE {quoted(database)} SET ALLOW_SNAPSHOT_ISOLATION ON"
        )


def _require_readable(shown: str, row: dict[str, Any]) -> None:
    name = row["name"]
    if row["readable"] == 0:
        raise SourceNotReadable(f"the user may not SELECT column {name!r} of {shown}; grant it")
    if row["is_masked"] and not row["unmasked"]:
        raise SourceNotReadable(f"column {name!r} of {shown} is masked; grant UNMASK on the database to the user")
    if row["encryption_type"] is not None:
        raise SourceNotReadable(f"column {name!r} of {shown} is encrypted, so its values would arrive as cipher text")
    if row["is_column_set"]:
        raise SourceUnsupported(f"column {name!r} of {shown} is a column set, which stands for other columns")
    if row["is_computed"] and not row["is_persisted"] and not row["is_deterministic"]:
        raise SourceUnsupported(
            f"column {name!r} of {shown} is computed anew at every read and may differ each time; make it PERSISTED"
        )


def _column(row: dict[str, Any]) -> SourceColumn:
    base = row["type_name"] if row["type_name"] is not None and not row["is_assembly_type"] else row["user_type"]
    rule = rule_of(base, bool(row["is_assembly_type"]))
    decimal = rule.kind is ValueKind.DECIMAL
    text = declared(base, row["max_length"], row["precision"], row["scale"])
    length = str(row["max_length"]) if 0 < row["max_length"] <= _LONGEST else "max"
    attributes = []
    if row["is_user_defined"]:
        attributes.append(f"alias:{row['user_type']}")
    if row["collation_name"]:
        attributes.append(f"collation:{row['collation_name']}")
    if row["is_computed"]:
        attributes.append("computed:persisted" if row["is_persisted"] else "computed:virtual")
    if row["is_identity"]:
        attributes.append("identity")
    if row["is_hidden"]:
        attributes.append("hidden")
    if row["generated_always_type"]:
        attributes.append(f"generated:{row['generated_always_type']}")
    return SourceColumn(
        name=row["name"],
        declared=text,
        kind=rule.kind,
        nullable=bool(row["is_nullable"]),
        precision=int(row["precision"]) if decimal else None,
        scale=int(row["scale"]) if decimal else None,
        native_read=rule.native.replace("{n}", length),
        text_read=None if rule.text is None else rule.text.replace("{n}", length),
        attributes=tuple(attributes),
        refusal=rule.note if rule.kind is None else None,
    )
