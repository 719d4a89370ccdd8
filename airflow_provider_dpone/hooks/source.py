"""Source connections: the source database behind an ordinary Airflow connection; its type decides."""

from __future__ import annotations

from typing import Final

from airflow.sdk import BaseHook, Connection

from airflow_provider_dpone.engines.postgres.session import PostgresParams
from airflow_provider_dpone.engines.postgres.snapshot import PostgresSource
from airflow_provider_dpone.errors import DeclarationInvalid
from airflow_provider_dpone.hooks.forms import LIBPQ_KEYWORDS, MSSQL_TYPES, POSTGRES
from airflow_provider_dpone.hooks.mssql import mssql_params
from airflow_provider_dpone.transfer.source import Source

_CONNECTORS: Final = {"postgres": "postgres", **dict.fromkeys(MSSQL_TYPES, "mssql")}


def source_connector(conn_id: str) -> str:
    """Kind of server behind a source connection.

    :raises DeclarationInvalid: a type that is no source.
    """
    conn_type = str(BaseHook.get_connection(conn_id).conn_type)
    if conn_type not in _CONNECTORS:
        raise DeclarationInvalid(
            f"connection {conn_id!r} of type {conn_type!r} is no source; PostgreSQL and SQL Server (mssql, odbc) are"
        )
    return _CONNECTORS[conn_type]


def source_behind(conn_id: str) -> Source:
    """The source database behind an Airflow connection.

    :raises DeclarationInvalid: a type that is no source.
    """
    connector = source_connector(conn_id)
    connection = BaseHook.get_connection(conn_id)
    if connector == "postgres":
        return PostgresSource(postgres_params(connection))
    # imported here, so that a worker without the driver manager still reads PostgreSQL
    from airflow_provider_dpone.engines.mssql.snapshot import MssqlSource

    return MssqlSource(mssql_params(connection))


def source_params(conn_id: str) -> PostgresParams:
    """Parameters of the PostgreSQL database behind an Airflow connection.

    :raises DeclarationInvalid: it is of another type.
    """
    if source_connector(conn_id) != "postgres":
        raise DeclarationInvalid(f"connection {conn_id!r} is not a PostgreSQL database")
    return postgres_params(BaseHook.get_connection(conn_id))


def postgres_params(connection: Connection, *, database: str = "postgres") -> PostgresParams:
    """Parameters of the PostgreSQL database behind an Airflow connection.

    :param database: when its schema field names none.
    :raises ConnectionInvalid: a field of its extra is unknown or cannot be read.
    """
    fields = POSTGRES.read(connection)
    return PostgresParams(
        host=connection.host or "localhost",
        port=int(connection.port or 5432),
        dbname=connection.schema or database,
        user=connection.login or "postgres",
        password=connection.password,
        sslmode=fields["sslmode"],
        options=tuple((name, str(fields[name])) for name in LIBPQ_KEYWORDS if fields[name] is not None),
    )
