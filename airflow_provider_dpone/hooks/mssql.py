"""SQL Server behind an ordinary Airflow connection of type ``mssql`` or ``odbc``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow.sdk import Connection

from airflow_provider_dpone.errors import DeclarationInvalid
from airflow_provider_dpone.hooks.forms import MSSQL

if TYPE_CHECKING:
    from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams

#: The driver's keywords that a connection's extra may set.
_KEYWORDS: Final = ("HostNameInCertificate", "ServerCertificate", "ClientCertificate", "ClientKey", "Authentication")


def mssql_params(connection: Connection) -> MssqlParams:
    """Parameters of the database behind an Airflow connection.

    The extra may carry ``driver`` and the driver's own keywords, or ``connect_kwargs`` with them as Airflow's ODBC
    provider has it.

    :raises DeclarationInvalid: the connection names no database.
    :raises ConnectionInvalid: a field of its extra is unknown or cannot be read.
    """
    from airflow_provider_dpone.ledger.dialects.mssql.odbc import DRIVER, MssqlParams

    if not connection.schema:
        raise DeclarationInvalid(f"connection {connection.conn_id!r} names no database; put it into its schema field")
    fields = MSSQL.read(connection, nested="connect_kwargs")
    keywords = {
        "Encrypt": {"true": "yes", "false": "no"}.get(fields["Encrypt"], fields["Encrypt"]),
        "TrustServerCertificate": "yes" if fields["TrustServerCertificate"] else "no",
        **{name: fields[name] for name in _KEYWORDS if fields[name] is not None},
    }
    return MssqlParams(
        host=connection.host or "localhost",
        port=int(connection.port or 1433),
        database=connection.schema,
        user=connection.login or "",
        password=connection.password,
        driver=(fields["driver"] or DRIVER).strip("{}"),
        options=tuple(keywords.items()),
    )
