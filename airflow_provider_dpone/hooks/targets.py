"""The target server behind an Airflow connection, as attempts see it: the connection's type decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.sdk import BaseHook

from airflow_provider_dpone.attempts.clickhouse import ClickHouseTarget, ClickHouseWorld
from airflow_provider_dpone.attempts.sql import SqlWorld
from airflow_provider_dpone.attempts.world import World
from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.engines.postgres.load_target import PostgresTarget
from airflow_provider_dpone.engines.postgres.rights import GatePolicy as PostgresGatePolicy
from airflow_provider_dpone.errors import TargetUnsupported
from airflow_provider_dpone.hooks.clickhouse import DponeClickHouseHook
from airflow_provider_dpone.hooks.source import source_params
from airflow_provider_dpone.ledger.transaction import Ledger


def clickhouse_world(ledger: Ledger, conn_id: str, checkpoint: Callable[[], None] = lambda: None) -> ClickHouseWorld:
    """Ledger and ClickHouse server behind a connection."""
    hook = DponeClickHouseHook(clickhouse_conn_id=conn_id)
    target = ClickHouseTarget(hook.control(), hook.http(), hook.login(), hook.gate_policy())
    return ClickHouseWorld(ledger, target, target.service_id(), checkpoint)


def postgres_world(ledger: Ledger, conn_id: str, checkpoint: Callable[[], None] = lambda: None) -> SqlWorld:
    """Ledger and PostgreSQL target database behind the controller's connection.

    Extra field ``dpone_stand_in`` marks a local development server; it is shown in every receipt.
    """
    connection = BaseHook.get_connection(conn_id)
    stand_in = bool(connection.extra_dejson.get("dpone_stand_in"))
    target = PostgresTarget(PostgresControl(source_params(conn_id)), PostgresGatePolicy(), stand_in=stand_in)
    return SqlWorld(ledger, target, target.service_id(), checkpoint)


_WORLDS: dict[str, Callable[..., World[Any]]] = {"clickhouse": clickhouse_world, "postgres": postgres_world}


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
