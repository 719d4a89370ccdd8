"""The staging table of a load, as the controller makes it, reads its content, and removes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from airflow_provider_dpone.contracts.columns import TableAggregates
from airflow_provider_dpone.contracts.publication import Content
from airflow_provider_dpone.engines.mssql import scripts
from airflow_provider_dpone.engines.mssql.aggregates import staged_aggregates
from airflow_provider_dpone.engines.mssql.control import MssqlSession
from airflow_provider_dpone.engines.mssql.row_bytes import LANES, content_of_lanes, row_digest_sql
from airflow_provider_dpone.engines.mssql.scripts import quoted
from airflow_provider_dpone.engines.mssql.target import LoadTable
from airflow_provider_dpone.engines.mssql.target_types import MssqlType
from airflow_provider_dpone.errors import ServerRefused, ValueNotExact
from airflow_provider_dpone.transfer.convert import Conversion

#: Lock time-out; no such object any more.
_IN_USE_OR_GONE: Final = (1222, 3701)


def create_staging(session: MssqlSession, table: LoadTable, staging: str) -> None:
    """Create it empty: a heap of the target's types, in the collations of its columns."""
    columns = ", ".join(_column(name, kind) for name, kind in table.types.items())
    session.query(f"CREATE TABLE {quoted(table.schema, staging)} ({columns})")


def _column(name: str, kind: MssqlType) -> str:
    collation = f" COLLATE {kind.collation}" if kind.collation and kind.family != "Carried" else ""
    return f"{quoted(name)} {kind.staged}{collation} {'NULL' if kind.nullable else 'NOT NULL'}"


def drop_staging(session: MssqlSession, schema: str, names: Collection[str]) -> list[str]:
    """Drop these staging tables of a schema where they exist; the names of those that somebody still reads."""
    rows = session.query(
        "SELECT t.name FROM sys.tables AS t WHERE t.schema_id = SCHEMA_ID(?) AND LEN(t.name) = 40 "
        "AND t.name LIKE N'dpone[_]s[_]%'",
        schema,
    )
    read: list[str] = []
    session.query("SET LOCK_TIMEOUT 2000")
    for (name,) in rows:
        if name not in names:
            continue
        try:
            session.query(f"DROP TABLE {quoted(schema, name)}")
        except ServerRefused as error:
            if error.details.get("server_code") not in _IN_USE_OR_GONE:
                raise
            read.append(str(name))
    return read


def table_content(session: MssqlSession, types: Mapping[str, MssqlType], schema: str, name: str) -> Content:
    """Rows and content digest of a table, each row digested and all of them added up by the server."""
    digests = f"SELECT TOP ({2**63 - 1}) {row_digest_sql(list(types.items()))} AS h"  # TOP: each row is digested once
    [row] = session.query(f"SELECT COUNT_BIG(*), {LANES} FROM ({digests} FROM {quoted(schema, name)}) AS q")  # noqa: S608
    return content_of_lanes(row)


def staging_aggregates(session: MssqlSession, conversion: Conversion, schema: str, staging: str) -> TableAggregates:
    """Aggregates of the staging table, computed by the server."""
    return staged_aggregates(lambda sql: list(session.query(sql)), conversion, schema, staging)


def carries(table: LoadTable) -> bool:
    """Whether text of the stream becomes text of a code page only in the last step."""
    return any(kind.family == "Carried" for kind in table.types.values())


def require_carried_exactly(session: MssqlSession, table: LoadTable, staging: str) -> None:
    """Text carried into a column of a code page is the same text there, blanks included.

    :raises ValueNotExact: one is not; names column and value.
    """
    for name, kind in table.types.items():
        if kind.family != "Carried":
            continue
        column, relation = quoted(name), quoted(table.schema, staging)
        becomes = f"CONVERT(nvarchar(max), {carried(name, kind)})"
        rows = session.query(
            f"SELECT TOP (1) LEFT({column}, 80), LEFT({becomes}, 80) FROM {relation} "  # noqa: S608
            f"WHERE CONVERT(varbinary(max), {column}) <> CONVERT(varbinary(max), {becomes}) "
            f"OR DATALENGTH({column}) <> DATALENGTH({becomes})"
        )
        if rows:
            value, changed = rows[0]
            raise ValueNotExact(
                f"column {name!r}: the value {value!r} does not fit {kind.text} exactly: it would become {changed!r}. "
                "Nothing was changed; correct the value, or make the target column nvarchar.",
                column=name,
                value=value,
                target_type=kind.text,
            )


def carried(name: str, kind: MssqlType) -> str:
    """SQL of a staged value as its target column takes it."""
    return f"CONVERT({kind.text}, {quoted(name)} COLLATE {kind.collation})"


def size_of(session: MssqlSession, schema: str, name: str) -> int | None:
    """Bytes a table takes now, indexes and all; None when there is none."""
    sql = scripts.parts("table_size.sql")["size"]
    sql = sql.replace("{schema}", scripts.literal(schema)).replace("{name}", scripts.literal(name))
    [(size,)] = session.query(sql)
    return None if size is None else int(size)
