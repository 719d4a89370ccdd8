"""Explicit installation of the ledger. Never happens at run time; refuses whatever exists."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from sqlalchemy import insert
from sqlalchemy.exc import DBAPIError

from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.errors import LedgerExists, LedgerUnavailable
from airflow_provider_dpone.ledger.dialects.base import Dialect
from airflow_provider_dpone.ledger.schema import LEGACY_TABLES, SCHEMA_VERSION, ledger_meta, metadata


def render(dialect: Dialect) -> str:
    """The installation script as text, for people who run DDL themselves."""
    return dialect.separator.join(dialect.ddl()) + dialect.separator.rstrip() + "\n"


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
    service_id = service_id or uuid.uuid4()
    names = sorted({table.name for table in metadata.sorted_tables} | set(LEGACY_TABLES))
    engine = dialect.engine(connect)
    try:
        with engine.begin() as connection:
            found = dialect.existing(connection, names)
            if found:
                raise LedgerExists(
                    f"the control database already has {', '.join(found)}; installation never adopts what exists",
                    found=found,
                )
            provisioning = [] if provisioner_role is None else dialect.provisioner_grants(provisioner_role)
            for statement in [*dialect.ddl(), *dialect.grants(runtime_role), *provisioning]:
                connection.exec_driver_sql(statement)
            dialect.begin(connection)
            dialect.lock(connection)
            connection.execute(
                insert(ledger_meta).values(
                    one=1,
                    schema_version=SCHEMA_VERSION,
                    service_id=service_id,
                    family=str(family),
                    layout_sha256=dialect.layout(connection),
                )
            )
    except DBAPIError as error:
        raise LedgerUnavailable(f"installation was refused and rolled back: {error.orig}") from error
    return service_id
