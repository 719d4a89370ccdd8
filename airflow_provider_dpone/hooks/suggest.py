"""What to run as administrator so that a target takes a source table: asked of both servers, run on neither."""

from __future__ import annotations

from collections.abc import Sequence

from airflow.sdk import BaseHook

from airflow_provider_dpone.contracts.enrolment import ColumnDesign
from airflow_provider_dpone.contracts.naming import parse_relation, split_table
from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.engines.postgres.session import literal, quoted
from airflow_provider_dpone.engines.postgres.target import describe_target
from airflow_provider_dpone.enrolment.suggest import (
    CLICKHOUSE_DDL,
    MSSQL_DDL,
    POSTGRES_DDL,
    Ddl,
    suggest_changes,
    suggest_ddl,
)
from airflow_provider_dpone.errors import TargetUnsupported
from airflow_provider_dpone.hooks.clickhouse import DponeClickHouseHook
from airflow_provider_dpone.hooks.forms import CLICKHOUSE_TYPES, MSSQL_TYPES
from airflow_provider_dpone.hooks.source import source_behind, source_params
from airflow_provider_dpone.transfer.convert import CLICKHOUSE, TypeSystem

Existing = tuple[Sequence[ColumnDesign], TypeSystem] | None


def suggest(conn_id: str, table: str, source_conn_id: str, source_table: str) -> list[str]:
    """Statements without their semicolons: CREATE TABLE, or what an existing target lacks; none when it lacks nothing.

    :raises TypeNotMapped: a source column cannot be transferred at all.
    :raises TargetUnsupported: nothing can be a target behind such a connection.
    """
    source, relation, target = source_behind(source_conn_id), parse_relation(source_table), split_table(table)
    described = source.describe(*relation)
    ddl, existing = _target(conn_id, target)
    if existing is None:
        return [suggest_ddl(described, ddl, target, source.primary_key(*relation))]
    return suggest_changes(described, ddl, target, *existing)


def _target(conn_id: str, target: tuple[str, str]) -> tuple[Ddl, Existing]:
    kind = str(BaseHook.get_connection(conn_id).conn_type)
    if kind in CLICKHOUSE_TYPES:
        return CLICKHOUSE_DDL, _clickhouse(conn_id, *target)
    if kind == "postgres":
        return POSTGRES_DDL, _postgres(conn_id, *target)
    if kind in MSSQL_TYPES:
        return MSSQL_DDL, _mssql(conn_id, *target)
    raise TargetUnsupported(f"connection {conn_id!r} has type {kind!r}; nothing can be a target behind it")


def _clickhouse(conn_id: str, database: str, name: str) -> Existing:
    with DponeClickHouseHook(clickhouse_conn_id=conn_id).control() as control:
        rows = control.query(
            "SELECT name, type, default_kind FROM system.columns"
            " WHERE database = {database:String} AND table = {name:String} ORDER BY position",
            {"database": database, "name": name},
        )
    columns = [
        ColumnDesign(name=n, type=t, default_kind=kind, default_expression="", codec="", comment="")
        for n, t, kind in rows
    ]
    return (columns, CLICKHOUSE) if columns else None


def _postgres(conn_id: str, schema: str, name: str) -> Existing:
    with PostgresControl(source_params(conn_id)).fresh() as session:
        [(found,)] = session.query(f"SELECT pg_catalog.to_regclass({literal(quoted(schema, name))})::text")
        if found is None:
            return None
        table = describe_target(session, schema, name)
    return table.columns, table.system


def _mssql(conn_id: str, schema: str, name: str) -> Existing:
    # imported here, so that a machine without the driver manager still suggests the other targets
    from airflow_provider_dpone.engines.mssql.control import MssqlControl
    from airflow_provider_dpone.engines.mssql.scripts import literal as mssql_literal
    from airflow_provider_dpone.engines.mssql.scripts import quoted as mssql_quoted
    from airflow_provider_dpone.engines.mssql.target import describe_target as describe_mssql
    from airflow_provider_dpone.hooks.mssql import mssql_params

    params = mssql_params(BaseHook.get_connection(conn_id))
    with MssqlControl(params, params.database).fresh() as session:
        [(found,)] = session.query(f"SELECT OBJECT_ID({mssql_literal(mssql_quoted(schema, name))})")
        if found is None:
            return None
        table = describe_mssql(session, schema, name)
    return table.columns, table.system
