"""SQL Server behind an ordinary Airflow connection of type ``mssql`` or ``odbc``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow.sdk import Connection

from airflow_provider_dpone.errors import DeclarationInvalid

if TYPE_CHECKING:
    from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams

MSSQL_TYPES: Final = ("mssql", "odbc")
#: Keywords of the driver that a connection's extra may set; everything else there is ignored.
_KEYWORDS: Final = {
    name.lower(): name
    for name in ("Encrypt", "TrustServerCertificate", "HostNameInCertificate", "ServerCertificate", "Authentication")
}


def mssql_params(connection: Connection) -> MssqlParams:
    """Parameters of the database behind an Airflow connection.

    The extra may carry ``driver`` and the driver's own keywords, or ``connect_kwargs`` with them as Airflow's ODBC
    provider has it.

    :raises DeclarationInvalid: the connection names no database.
    """
    from airflow_provider_dpone.ledger.dialects.mssql.odbc import DRIVER, MssqlParams

    if not connection.schema:
        raise DeclarationInvalid(f"connection {connection.conn_id!r} names no database; put it into its schema field")
    extra = connection.extra_dejson
    given = {str(k).lower(): str(v) for k, v in {**extra.get("connect_kwargs", {}), **extra}.items()}
    return MssqlParams(
        host=connection.host or "localhost",
        port=int(connection.port or 1433),
        database=connection.schema,
        user=connection.login or "",
        password=connection.password,
        driver=given.get("driver", DRIVER).strip("{}"),
        options=tuple((name, given[key]) for key, name in _KEYWORDS.items() if key in given),
    )
