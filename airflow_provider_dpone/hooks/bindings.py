"""How connection ids of a release resolve to servers and databases, through Airflow connections."""

from __future__ import annotations

from airflow_provider_dpone.activation.coordinator import Bindings, CompositionActivationCoordinator, ResolvedTarget
from airflow_provider_dpone.contracts.naming import split_table
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.contracts.states import Connector
from airflow_provider_dpone.errors import TargetUnsupported
from airflow_provider_dpone.hooks.clickhouse import DponeClickHouseHook
from airflow_provider_dpone.hooks.control import DponeControlHook
from airflow_provider_dpone.hooks.source import source_connector


def resolve_target(declaration: WorkloadDeclaration) -> ResolvedTarget:
    """Server incarnation and database UUID behind a declared ClickHouse target."""
    database, table = split_table(declaration.target_relation)
    with DponeClickHouseHook(clickhouse_conn_id=declaration.target_conn_id).control() as control:
        rows = control.query(
            "SELECT toString(serverUUID()), toString(uuid) FROM system.databases WHERE name = {name:String}",
            {"name": database},
        )
    if len(rows) != 1:
        raise TargetUnsupported(f"database {database} does not exist behind {declaration.target_conn_id!r}")
    return ResolvedTarget(Connector.CLICKHOUSE, str(rows[0][0]), str(rows[0][1]), table)


def coordinator(control_conn_id: str) -> CompositionActivationCoordinator:
    """The one factory of the coordinator: ledger and bindings from a control connection."""
    ledger = DponeControlHook(control_conn_id).ledger()
    return CompositionActivationCoordinator(ledger=ledger, bindings=Bindings(source_connector, resolve_target))
