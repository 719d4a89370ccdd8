"""Where a dbt run goes, from an ordinary Airflow connection: its type decides the adapter. The login is not taken."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from airflow_provider_dpone.engines.dbt.profile import DbtTarget
from airflow_provider_dpone.errors import TargetUnsupported
from airflow_provider_dpone.hooks.forms import MSSQL
from airflow_provider_dpone.hooks.source import source_params


def dbt_target(conn_id: str, schema: str) -> DbtTarget:
    """Adapter, server, database and options behind a connection of type ``postgres`` or ``mssql``.

    :raises TargetUnsupported: another type.
    """
    connection = BaseHook.get_connection(conn_id)
    if connection.conn_type == "postgres":
        params = source_params(conn_id)
        certificates = [(name, value) for name, value in params.options if name.startswith("ssl")]
        options: list[tuple[str, Any]] = [("sslmode", params.sslmode), *certificates]
        return DbtTarget("postgres", params.host, params.port, params.dbname, schema, tuple(options))
    if connection.conn_type == "mssql":
        fields = MSSQL.read(connection, nested="connect_kwargs")
        options = [
            ("encrypt", fields["Encrypt"] not in ("no", "false", "optional")),
            ("trust_cert", fields["TrustServerCertificate"]),
            *((name, fields[name]) for name in ("driver", "login_timeout", "query_timeout", "backend") if fields[name]),
        ]
        return DbtTarget(
            "sqlserver",
            connection.host or "localhost",
            int(connection.port or 1433),
            str(connection.schema or ""),
            schema,
            tuple(options),
        )
    raise TargetUnsupported(f"connection {conn_id!r} has type {connection.conn_type!r}; dbt needs postgres or mssql")
