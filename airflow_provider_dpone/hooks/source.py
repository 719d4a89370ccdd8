"""Source connections: parameters of a PostgreSQL source from an ordinary Airflow connection."""

from __future__ import annotations

from typing import Final

from airflow.sdk import BaseHook

from airflow_provider_dpone.engines.postgres.session import PostgresParams
from airflow_provider_dpone.errors import DeclarationInvalid

_LIBPQ: Final = ("sslrootcert", "sslcert", "sslkey", "options", "target_session_attrs", "hostaddr")


def source_connector(conn_id: str) -> str:
    """Kind of server behind a source connection.

    :raises DeclarationInvalid: a type that is no source.
    """
    conn_type = BaseHook.get_connection(conn_id).conn_type
    if conn_type != "postgres":
        raise DeclarationInvalid(f"connection {conn_id!r} of type {conn_type!r} is no source; PostgreSQL is")
    return str(conn_type)


def source_params(conn_id: str) -> PostgresParams:
    """Parameters of the PostgreSQL source behind an Airflow connection."""
    source_connector(conn_id)
    connection = BaseHook.get_connection(conn_id)
    extra = connection.extra_dejson
    return PostgresParams(
        host=connection.host or "localhost",
        port=int(connection.port or 5432),
        dbname=connection.schema or "postgres",
        user=connection.login or "postgres",
        password=connection.password,
        sslmode=str(extra.get("sslmode", "prefer")),
        options=tuple((key, str(extra[key])) for key in _LIBPQ if key in extra),
    )
