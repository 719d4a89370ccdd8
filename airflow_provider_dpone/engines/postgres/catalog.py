"""Describes a PostgreSQL relation completely, and refuses what cannot be read as one whole, consistent snapshot."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from airflow_provider_dpone.contracts.columns import SourceColumn, SourceTable, ValueKind
from airflow_provider_dpone.engines.postgres.session import statement
from airflow_provider_dpone.engines.postgres.types import TypeRule, numeric_modifier, rule_of
from airflow_provider_dpone.errors import SourceMissing, SourceNotReadable, SourceUnsupported

_OLDEST: Final = 140000
_KINDS: Final = {"r": "table", "p": "partitioned table", "m": "materialized view"}
_REFUSED_KINDS: Final = {
    "v": "a view, whose rows are computed while it is read; publish its query as a materialized view or table",
    "f": "a foreign table, whose rows are not part of this server's snapshot; read it at its own server",
    "S": "a sequence",
    "i": "an index",
    "I": "an index",
    "t": "a TOAST table",
    "c": "a composite type",
}


def describe(connection: psycopg.Connection, namespace: str, name: str) -> SourceTable:
    """Everything that matters about one relation, as the connection's current user and snapshot see it.

    :raises SourceMissing: no such relation.
    :raises SourceUnsupported: its kind, persistence, inheritance or encoding forbids a complete consistent read.
    :raises SourceNotReadable: the user lacks a privilege, or row security or masking would change what it reads.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        relation = cursor.execute(statement("relation.sql"), {"namespace": namespace, "name": name}).fetchone()
        shown = f"{namespace}.{name}"
        if relation is None:
            raise SourceMissing(f"there is no relation {shown} in database {connection.info.dbname}")
        _require_snapshot(shown, relation)
        _require_visible(shown, relation, connection.info.user)
        rows = cursor.execute(statement("columns.sql"), {"relation": relation["relation_oid"]}).fetchall()
    hidden = [row["name"] for row in rows if not row["readable"]]
    if hidden:
        raise SourceNotReadable(f"user {connection.info.user!r} may not SELECT columns {hidden} of {shown}; grant them")
    if not rows:
        raise SourceUnsupported(f"{shown} has no columns")
    return SourceTable(
        connector="postgres",
        service_id=relation["system_identifier"],
        database=relation["database"],
        database_id=relation["database_oid"],
        namespace=namespace,
        name=name,
        relation_id=relation["relation_oid"],
        relation_kind=_KINDS[relation["kind"]],
        columns=tuple(_column(row) for row in rows),
    )


def source_place(connection: psycopg.Connection) -> tuple[str, str]:
    """System identifier and database OID, as every description carries them."""
    [row] = connection.execute(
        "SELECT (SELECT system_identifier::text FROM pg_catalog.pg_control_system()), d.oid::text"
        " FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()"
    ).fetchall()
    return str(row[0]), str(row[1])


def primary_key(connection: psycopg.Connection, namespace: str, name: str) -> tuple[str, ...]:
    """The columns of a relation's primary key, in order; empty without one."""
    rows = connection.execute(
        "SELECT a.attname FROM pg_catalog.pg_index AS i"
        " JOIN pg_catalog.pg_class AS c ON c.oid = i.indrelid"
        " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
        " CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)"
        " JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.attnum"
        " WHERE i.indisprimary AND n.nspname = %s AND c.relname = %s ORDER BY k.place",
        (namespace, name),
    ).fetchall()
    return tuple(str(column) for (column,) in rows)


def _require_snapshot(shown: str, relation: dict[str, Any]) -> None:
    kind = relation["kind"]
    if kind not in _KINDS:
        raise SourceUnsupported(f"{shown} is {_REFUSED_KINDS.get(kind, f'of kind {kind!r}')}")
    if relation["persistence"] == "t":
        raise SourceUnsupported(f"{shown} is a temporary table, which no other session can read")
    if not relation["populated"]:
        raise SourceUnsupported(f"{shown} is a materialized view that was never filled; refresh it first")
    if kind == "r" and relation["has_children"]:
        raise SourceUnsupported(
            f"{shown} has tables that inherit from it, so its own rows and theirs cannot be told apart; name the "
            "table that holds the rows"
        )
    if relation["foreign_leaves"]:
        raise SourceUnsupported(f"{shown} has partitions outside this server's snapshot: {relation['foreign_leaves']}")
    if relation["version"] < _OLDEST:
        raise SourceUnsupported("PostgreSQL 14 or newer is needed: older ones give times to aggregates as floats")
    if relation["encoding"] != "UTF8":
        raise SourceUnsupported(
            f"the database is encoded in {relation['encoding']}; only UTF8 is read without converting text"
        )


def _require_visible(shown: str, relation: dict[str, Any], user: str) -> None:
    if not relation["schema_usage"]:
        raise SourceNotReadable(f"user {user!r} has no USAGE on the schema of {shown}; grant it")
    if relation["row_security"]:
        raise SourceNotReadable(
            f"row security would filter {shown} for user {user!r}; read it as a user with BYPASSRLS, or as a user the "
            "table's policies do not apply to"
        )
    if relation["masked"]:
        raise SourceNotReadable(f"user {user!r} is marked MASKED, so {shown} would be read with altered values")


def _column(row: dict[str, Any]) -> SourceColumn:
    rule = rule_of(row["type_namespace"], row["type_name"], row["type_class"], row["extension"])
    numeric = numeric_modifier(row["base"])
    attributes = [f"domain:{domain}" for domain in row["domains"]]
    if row["collation"] not in (None, "pg_catalog.default"):
        attributes.append(f"collation:{row['collation']}")
    if row["generated"]:
        attributes.append("generated:stored" if row["generated"] == "s" else "generated:virtual")
    if row["identity"]:
        attributes.append("identity:always" if row["identity"] == "a" else "identity:default")
    is_list = row["is_array"]
    native = rule.kind is not None and (not is_list or (rule.listable and not row["element_domain"]))
    return SourceColumn(
        name=row["name"],
        declared=row["declared"],
        kind=rule.kind if native else _list_kind(rule),
        nullable=not row["not_null"],
        array=is_list and native,
        precision=numeric[0] if numeric else None,
        scale=numeric[1] if numeric else None,
        native_read="{c}" if is_list else rule.native,
        text_read="{c}::text" if is_list and rule.text is not None else rule.text,
        attributes=tuple(attributes),
        refusal=rule.note if rule.kind is None or (is_list and rule.text is None) else None,
    )


def _list_kind(rule: TypeRule) -> ValueKind | None:
    """A list that cannot be read as one still has its text form, when its elements have one."""
    return ValueKind.OTHER if rule.kind is not None and rule.text is not None else None
