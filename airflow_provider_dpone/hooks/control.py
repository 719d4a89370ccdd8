"""Hook of the control database: opens independent connections and builds the ledger from them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, ClassVar

import psycopg
from airflow.sdk import BaseHook

from airflow_provider_dpone.errors import DponeError, LedgerMismatch
from airflow_provider_dpone.ledger.dialects.postgres import PostgresDialect
from airflow_provider_dpone.ledger.transaction import Ledger


class DponeControlHook(BaseHook):
    """Connection of type ``dpone_control`` or ``postgres`` to the control database.

    Extra fields: ``service_id`` pins the installation (recommended), ``sslmode`` and other libpq options.

    :param control_conn_id: the Airflow connection.
    """

    conn_name_attr = "control_conn_id"
    default_conn_name = "dpone_control"
    conn_type = "dpone_control"
    hook_name = "dpone control ledger"

    LIBPQ_OPTIONS: ClassVar[frozenset[str]] = frozenset(
        {
            "sslmode",
            "sslrootcert",
            "sslcert",
            "sslkey",
            "connect_timeout",
            "options",
            "target_session_attrs",
            "hostaddr",
        }
    )

    def __init__(self, control_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.control_conn_id = control_conn_id

    def connector(self) -> Callable[[], psycopg.Connection[tuple[object, ...]]]:
        """A function that opens a new connection each time; the Airflow connection is read once.

        :raises LedgerMismatch: the connection is of a type that cannot hold a ledger.
        """
        connection = self.get_connection(self.control_conn_id)
        if connection.conn_type not in ("dpone_control", "postgres"):
            raise LedgerMismatch(
                f"connection {self.control_conn_id!r} has type {connection.conn_type!r}; a ledger lives in PostgreSQL"
            )
        extra = connection.extra_dejson
        options = {name: value for name, value in extra.items() if name in self.LIBPQ_OPTIONS}
        options.setdefault("connect_timeout", 10)

        def connect() -> psycopg.Connection[tuple[object, ...]]:
            return psycopg.connect(
                host=connection.host,
                port=connection.port,
                dbname=connection.schema or "dpone",
                user=connection.login,
                password=connection.password,
                application_name="dpone-control",
                **options,
            )

        return connect

    def ledger(self) -> Ledger:
        """The ledger behind this connection, pinned to the ``service_id`` of its extra when there is one."""
        pinned = self.get_connection(self.control_conn_id).extra_dejson.get("service_id")
        return Ledger(self.connector(), PostgresDialect(), uuid.UUID(pinned) if pinned else None)

    def test_connection(self) -> tuple[bool, str]:
        """The Test button: reachable, installed, unaltered and, when pinned, the right ledger."""
        try:
            ledger = self.ledger()
            ledger.read(lambda connection: None)
        except DponeError as error:
            return False, str(error)
        return True, f"ledger {ledger.service_id} of family {ledger.family}"
