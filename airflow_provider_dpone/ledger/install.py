"""Explicit installation of the ledger. Never happens at run time; refuses whatever exists."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, insert
from sqlalchemy.exc import DBAPIError

from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.errors import LedgerExists, LedgerMismatch, LedgerUnavailable
from airflow_provider_dpone.ledger.dialects.base import Dialect, Fault
from airflow_provider_dpone.ledger.schema import SCHEMA_VERSION, TABLE_NAMES, ledger_meta


def install(
    connect: Callable[[], Any],
    dialect: Dialect,
    *,
    family: Family,
    runtime_role: str,
    provisioner_role: str | None = None,
    service_id: uuid.UUID | None = None,
) -> uuid.UUID:
    """Create the ledger in an empty control database and return its new service id.

    :param connect: opens a connection as the administrator who will own the ledger.
    :param runtime_role: existing role that running tasks use; it gets the least rights that do.
    :param provisioner_role: existing role that records trust policies and registers grants, and nothing else.
    :raises LedgerExists: a table of ours, the schema, or a legacy writable table name is already there.
    """
    with _administrator(connect, dialect) as connection:
        found = dialect.existing(connection, list(TABLE_NAMES))
        if found:
            raise LedgerExists(
                f"the control database already has {', '.join(found)}; installation never adopts what exists",
                found=found,
            )
        for statement in dialect.ddl():
            connection.exec_driver_sql(statement)
        return _provision(connection, dialect, family, runtime_role, provisioner_role, service_id)


def provision(
    connect: Callable[[], Any],
    dialect: Dialect,
    *,
    family: Family,
    runtime_role: str,
    provisioner_role: str | None = None,
    service_id: uuid.UUID | None = None,
) -> uuid.UUID:
    """Make the ledger's one identity over tables that a rendered script made; return its new service id.

    What is there now is what every write is compared with from then on, so it follows the script at once.

    :raises LedgerExists: the ledger has an identity already.
    """
    with _administrator(connect, dialect) as connection:
        if dialect.begin(connection).pins is not None:
            raise LedgerExists("this ledger has its identity already; it is given once")
        return _provision(connection, dialect, family, runtime_role, provisioner_role, service_id)


@contextmanager
def _administrator(connect: Callable[[], Any], dialect: Dialect) -> Iterator[Connection]:
    try:
        with dialect.engine(connect).begin() as connection:
            yield connection
    except DBAPIError as error:
        raise LedgerUnavailable(f"installation was refused and rolled back: {error.orig}") from error
    except Fault as fault:
        raise LedgerMismatch(str(fault)) from fault


def _provision(
    connection: Connection,
    dialect: Dialect,
    family: Family,
    runtime_role: str,
    provisioner_role: str | None,
    service_id: uuid.UUID | None,
) -> uuid.UUID:
    service_id = service_id or uuid.uuid4()
    provisioning = [] if provisioner_role is None else dialect.provisioner_grants(provisioner_role)
    for statement in [*dialect.grants(runtime_role), *provisioning]:
        connection.exec_driver_sql(statement)
    session = dialect.begin(connection)
    dialect.lock(connection)
    connection.execute(
        insert(ledger_meta).values(
            one=1,
            schema_version=SCHEMA_VERSION,
            service_id=service_id,
            family=str(family),
            incarnation=session.here,
            layout_sha256=dialect.layout(connection),
        )
    )
    return service_id
