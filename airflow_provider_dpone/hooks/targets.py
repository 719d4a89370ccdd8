"""The target server behind an Airflow connection, as attempts see it: the connection's type decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_provider_dpone.attempts.clickhouse import ClickHouseTarget, ClickHouseWorld
from airflow_provider_dpone.attempts.sql import SqlWorld
from airflow_provider_dpone.attempts.world import World
from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.engines.postgres.load_target import PostgresTarget
from airflow_provider_dpone.engines.postgres.rights import GatePolicy as PostgresGatePolicy
from airflow_provider_dpone.errors import DeclarationInvalid, TargetUnsupported
from airflow_provider_dpone.hooks.clickhouse import DponeClickHouseHook
from airflow_provider_dpone.hooks.forms import CLICKHOUSE_TYPES, MSSQL, MSSQL_TYPES, POSTGRES
from airflow_provider_dpone.hooks.mssql import mssql_params
from airflow_provider_dpone.hooks.source import source_params
from airflow_provider_dpone.ledger.transaction import Ledger

if TYPE_CHECKING:
    from airflow_provider_dpone.engines.mssql.control import MssqlControl


def clickhouse_world(ledger: Ledger, conn_id: str, checkpoint: Callable[[], None] = lambda: None) -> ClickHouseWorld:
    """Ledger and ClickHouse server behind a connection."""
    hook = DponeClickHouseHook(clickhouse_conn_id=conn_id)
    target = ClickHouseTarget(hook.control(), hook.http(), hook.login(), hook.gate_policy())
    return ClickHouseWorld(ledger, target, target.service_id(), checkpoint)


def postgres_world(ledger: Ledger, conn_id: str, checkpoint: Callable[[], None] = lambda: None) -> SqlWorld:
    """Ledger and PostgreSQL target database behind the controller's connection.

    Extra field ``dpone_stand_in`` marks a local development server; it is shown in every receipt.
    """
    stand_in = POSTGRES.read(BaseHook.get_connection(conn_id))["dpone_stand_in"]
    target = PostgresTarget(PostgresControl(source_params(conn_id)), PostgresGatePolicy(), stand_in=stand_in)
    return SqlWorld(ledger, target, target.service_id(), checkpoint)


def mssql_world(ledger: Ledger, conn_id: str, checkpoint: Callable[[], None] = lambda: None) -> SqlWorld:
    """Ledger and dedicated SQL Server database behind the controller's connection.

    Extra field ``dpone_control_database`` names the database of the instance that holds the login gates; when the
    ledger is in it, a login and its READY are one transaction of the ledger. ``dpone_stand_in`` as for PostgreSQL.
    """
    # imported here, so that a worker without the driver manager still reaches the other targets
    from airflow_provider_dpone.engines.mssql.load_target import MssqlTarget
    from airflow_provider_dpone.engines.mssql.rights import MssqlGatePolicy

    control = mssql_control(conn_id, ledger)
    stand_in = MSSQL.read(BaseHook.get_connection(conn_id), nested="connect_kwargs")["dpone_stand_in"]
    target = MssqlTarget(control, MssqlGatePolicy(), stand_in=stand_in, ledger=ledger)
    return SqlWorld(ledger, target, target.service_id(), checkpoint)


def mssql_control(conn_id: str, ledger: Ledger) -> MssqlControl:
    """Sessions on the SQL Server database behind a connection.

    :param ledger: the ledger, which may be in that database itself.
    :raises DeclarationInvalid: its extra does not name the database that holds the login gates.
    """
    from airflow_provider_dpone.engines.mssql.control import MssqlControl

    connection = BaseHook.get_connection(conn_id)
    control_database = MSSQL.read(connection, nested="connect_kwargs")["dpone_control_database"]
    if not control_database:
        raise DeclarationInvalid(
            f"connection {conn_id!r} does not say where its server keeps the login gates; put "
            '{"dpone_control_database": "..."} into its extra'
        )
    return MssqlControl(mssql_params(connection), control_database, ledger.dialect.control_schema)


_WORLDS: dict[str, Callable[..., World[Any]]] = {
    **dict.fromkeys(CLICKHOUSE_TYPES, clickhouse_world),
    "postgres": postgres_world,
    **dict.fromkeys(MSSQL_TYPES, mssql_world),
}


def world_behind(ledger: Ledger, conn_id: str, checkpoint: Callable[[], None] = lambda: None) -> World[Any]:
    """Ledger and target behind a connection of any type that can be a target.

    :raises TargetUnsupported: its type cannot.
    """
    conn_type = str(BaseHook.get_connection(conn_id).conn_type)
    make = _WORLDS.get(conn_type)
    if make is None:
        raise TargetUnsupported(
            f"connection {conn_id!r} has type {conn_type!r}; a target is one of {', '.join(sorted(_WORLDS))}"
        )
    return make(ledger, conn_id, checkpoint)
