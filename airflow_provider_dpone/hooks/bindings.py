"""How connection ids of a release resolve to servers and databases, through Airflow connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_provider_dpone.activation.coordinator import Bindings, CompositionActivationCoordinator, ResolvedTarget
from airflow_provider_dpone.contracts.naming import split_table
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.contracts.states import Connector
from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.engines.postgres.policy import read_marker, service_id
from airflow_provider_dpone.errors import DeclarationInvalid, ServerRefused, ServerUnreachable, TargetUnsupported
from airflow_provider_dpone.hooks.clickhouse import DponeClickHouseHook
from airflow_provider_dpone.hooks.control import DponeControlHook
from airflow_provider_dpone.hooks.source import source_connector, source_params


def resolve_target(declaration: WorkloadDeclaration) -> ResolvedTarget:
    """Where the declared target physically is: its connection's type decides how that is asked.

    :raises TargetUnsupported: no target can be behind such a connection, or it does not exist.
    """
    with _naming(declaration.target_conn_id):
        conn_type = str(BaseHook.get_connection(declaration.target_conn_id).conn_type)
        resolve = _RESOLVERS.get(conn_type)
        if resolve is None:
            raise TargetUnsupported(
                f"connection {declaration.target_conn_id!r} has type {conn_type!r}; "
                f"a target is one of {', '.join(sorted(_RESOLVERS))}"
            )
        return resolve(declaration)


def _clickhouse(declaration: WorkloadDeclaration) -> ResolvedTarget:
    database, table = split_table(declaration.target_relation)
    with DponeClickHouseHook(clickhouse_conn_id=declaration.target_conn_id).control() as control:
        rows = control.query(
            "SELECT toString(serverUUID()), toString(uuid) FROM system.databases WHERE name = {name:String}",
            {"name": database},
        )
    if len(rows) != 1:
        raise TargetUnsupported(f"database {database} does not exist behind {declaration.target_conn_id!r}")
    return ResolvedTarget(Connector.CLICKHOUSE, str(rows[0][0]), f"{rows[0][1]}/{table}", (table,))


def _postgres(declaration: WorkloadDeclaration) -> ResolvedTarget:
    """A managed schema: of the target table, or the target itself."""
    relation = declaration.target_relation
    schema = split_table(relation)[0] if declaration.kind == "load" else relation
    with PostgresControl(source_params(declaration.target_conn_id)).fresh() as session:
        marker = read_marker(session)
        server = service_id(session)
    if marker is None:
        raise TargetUnsupported(
            f"the database behind {declaration.target_conn_id!r} is not enrolled; run `dpone-airflow enroll --conn-id "
            f"... --schema {schema}` as its administrator"
        )
    writes = declaration.writes if declaration.kind == "dbt" else (relation, *declaration.writes)
    return ResolvedTarget(Connector.POSTGRES, server, f"{marker[0].database_id}/{schema}", writes)


_RESOLVERS: Final[dict[str, Callable[[WorkloadDeclaration], ResolvedTarget]]] = {
    "clickhouse": _clickhouse,
    "postgres": _postgres,
}


def resolve_source(conn_id: str) -> str:
    """Kind of server behind a declared source connection."""
    with _naming(conn_id):
        return source_connector(conn_id)


@contextmanager
def _naming(conn_id: str) -> Iterator[None]:
    """Let every failure name the connection; the reader of a release looks at many of them."""
    try:
        yield
    except AirflowNotFoundException:
        raise DeclarationInvalid(f"Airflow connection {conn_id!r} is not defined") from None
    except (ServerRefused, ServerUnreachable) as error:
        raise type(error)(f"connection {conn_id!r}: {error.message}", **error.details) from None


def coordinator(control_conn_id: str) -> CompositionActivationCoordinator:
    """The one factory of the coordinator: ledger and bindings from a control connection."""
    ledger = DponeControlHook(control_conn_id).ledger()
    return CompositionActivationCoordinator(ledger=ledger, bindings=Bindings(resolve_source, resolve_target))
