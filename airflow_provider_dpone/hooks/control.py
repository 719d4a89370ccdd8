"""Hook of the control database: opens independent connections and builds the ledger from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
from airflow.sdk import BaseHook, Connection

from airflow_provider_dpone.errors import DponeError, LedgerMismatch
from airflow_provider_dpone.hooks.forms import MSSQL, MSSQL_TYPES, POSTGRES, POSTGRES_TYPES
from airflow_provider_dpone.hooks.mssql import mssql_params
from airflow_provider_dpone.hooks.source import postgres_params
from airflow_provider_dpone.ledger.dialects.base import Dialect
from airflow_provider_dpone.ledger.dialects.mssql import MssqlDialect
from airflow_provider_dpone.ledger.dialects.postgres import PostgresDialect
from airflow_provider_dpone.ledger.transaction import Ledger


class DponeControlHook(BaseHook):
    """Connection to the control database: ``mssql`` or ``odbc`` for SQL Server, ``dpone_control`` or ``postgres``.

    Extra fields: ``service_id`` pins the installation (recommended), ``control_schema`` names its schema when that is
    not ``dpone``; for PostgreSQL ``sslmode`` and other libpq options, for SQL Server the driver and its keywords.

    :param control_conn_id: the Airflow connection.
    """

    conn_name_attr = "control_conn_id"
    default_conn_name = "dpone_control"
    conn_type = "dpone_control"
    hook_name = "dpone control ledger"

    def __init__(self, control_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.control_conn_id = control_conn_id

    def connector(self) -> Callable[[], Any]:
        """A function that opens a new connection each time; the Airflow connection is read once.

        :raises LedgerMismatch: the connection is of a type that cannot hold a ledger.
        """
        connection = self.get_connection(self.control_conn_id)
        if connection.conn_type in MSSQL_TYPES:
            # imported here, so that a worker without the driver manager still uses a ledger on PostgreSQL
            from airflow_provider_dpone.ledger.dialects.mssql import odbc

            params = replace(mssql_params(connection), application_name="dpone-control")
            return lambda: odbc.connect(params)
        if connection.conn_type not in POSTGRES_TYPES:
            raise LedgerMismatch(
                f"connection {self.control_conn_id!r} has type {connection.conn_type!r}; a ledger lives in SQL Server "
                "(mssql, odbc) or PostgreSQL (dpone_control, postgres)"
            )
        database = replace(postgres_params(connection, database="dpone"), application_name="dpone-control")
        return lambda: psycopg.connect(database.conninfo())

    def dialect(self) -> Dialect:
        """What the ledger needs to know of the database behind this connection."""
        connection = self.get_connection(self.control_conn_id)
        schema = self._fields(connection)["control_schema"]
        return MssqlDialect(schema) if connection.conn_type in MSSQL_TYPES else PostgresDialect(schema)

    def ledger(self) -> Ledger:
        """The ledger behind this connection, pinned to the ``service_id`` of its extra when there is one."""
        pinned = self._fields(self.get_connection(self.control_conn_id))["service_id"]
        return Ledger(self.connector(), self.dialect(), pinned)

    @staticmethod
    def _fields(connection: Connection) -> dict[str, Any]:
        if connection.conn_type in MSSQL_TYPES:
            return MSSQL.read(connection, nested="connect_kwargs")
        return POSTGRES.read(connection)

    def test_connection(self) -> tuple[bool, str]:
        """The Test button: reachable, installed, unaltered and, when pinned, the right ledger."""
        try:
            ledger = self.ledger()
            ledger.read(lambda connection: None)
        except DponeError as error:
            return False, str(error)
        return True, f"ledger {ledger.service_id} of family {ledger.family}"
