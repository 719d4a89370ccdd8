"""Enrolment through Airflow connections of administrators: ClickHouse tables, or managed schemas of a SQL database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseHook

from airflow_provider_dpone.contracts.enrolment import Enrolment
from airflow_provider_dpone.contracts.naming import split_table
from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.enrolment.clickhouse import enrol
from airflow_provider_dpone.enrolment.postgres import enrol_schema
from airflow_provider_dpone.errors import DeclarationInvalid
from airflow_provider_dpone.hooks.clickhouse import DponeClickHouseHook
from airflow_provider_dpone.hooks.control import DponeControlHook
from airflow_provider_dpone.hooks.forms import MSSQL_TYPES
from airflow_provider_dpone.hooks.source import source_params
from airflow_provider_dpone.hooks.targets import mssql_control


def enrol_targets(
    conn_id: str,
    control_conn_id: str,
    *,
    tables: Sequence[str] = (),
    schemas: Sequence[str] = (),
    controller: str | None = None,
    administrators: Sequence[str] = (),
    accepted_features: Sequence[str] = (),
    accepted_by: str | None = None,
    dry_run: bool = False,
) -> list[tuple[str, str, Enrolment]]:
    """Accept targets as they are now; each with its guard's id and its enrolment.

    :param conn_id: connection of an administrator of the target server.
    :param control_conn_id: connection of the ledger's owner.
    :param tables: ClickHouse tables, ``database.table``.
    :param schemas: managed schemas, instead; on SQL Server all of the dedicated database's, which share one guard.
    :param controller: with ``schemas``: the login of the connection that tasks use.
    :param accepted_by: who accepts; the connection's login when nobody is named.
    :param dry_run: look at everything, write nothing.
    :raises DeclarationInvalid: neither or both kinds of target, or no controller.
    """
    if bool(tables) == bool(schemas):
        raise DeclarationInvalid("give tables of a ClickHouse server, or schemas of a SQL database")
    ledger = DponeControlHook(control_conn_id).ledger()
    found: list[tuple[str, str, Enrolment]] = []
    if tables:
        hook = DponeClickHouseHook(clickhouse_conn_id=conn_id)
        login = hook.login().name
        for text in tables:
            database, name = split_table(text)
            with hook.control() as control:
                guard, accepted = enrol(
                    control,
                    ledger,
                    database=database,
                    target_table=name,
                    administrators=sorted({login, *administrators}),
                    accepted_features=accepted_features,
                    accepted_by=accepted_by or login,
                    dry_run=dry_run,
                )
            found.append((text, guard, accepted))
        return found
    if not controller:
        raise DeclarationInvalid("a schema needs its controller: the login of the Airflow connection that tasks use")
    connection = BaseHook.get_connection(conn_id)
    login = connection.login or accepted_by or "administrator"
    accept: dict[str, Any] = {
        "controller": controller,
        "administrators": sorted({login, *administrators}),
        "accepted_features": accepted_features,
        "accepted_by": accepted_by or login,
        "dry_run": dry_run,
    }
    if connection.conn_type in MSSQL_TYPES:
        # imported here, so that a machine without the driver manager still enrols the other targets
        from airflow_provider_dpone.enrolment.mssql import enrol_database

        guard, managed = enrol_database(mssql_control(conn_id, ledger), ledger, schemas=schemas, **accept)
        return [(", ".join(managed.managed_schemas), guard, managed)]
    params = source_params(conn_id)
    for schema in schemas:
        guard, managed = enrol_schema(PostgresControl(params), ledger, schema=schema, **accept)
        found.append((schema, guard, managed))
    return found
