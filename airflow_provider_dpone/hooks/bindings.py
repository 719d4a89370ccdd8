"""How connection ids of a release resolve to physical places, through Airflow connections; one resolver per type."""

from __future__ import annotations

import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_provider_dpone.activation.cache import DeploymentCacheMaterializer, SealedProjections
from airflow_provider_dpone.activation.coordinator import CompositionActivationCoordinator
from airflow_provider_dpone.activation.physical import (
    CompositionActivationPreparation,
    CompositionPhysicalAdmissionService,
    Place,
)
from airflow_provider_dpone.contracts.naming import split_table
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.contracts.states import Connector
from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.engines.postgres.policy import read_marker as postgres_marker
from airflow_provider_dpone.engines.postgres.policy import service_id as postgres_service_id
from airflow_provider_dpone.enrolment.clickhouse import read_marker
from airflow_provider_dpone.errors import (
    DeclarationInvalid,
    PhysicalConflict,
    ServerRefused,
    ServerUnreachable,
    TargetUnsupported,
)
from airflow_provider_dpone.hooks.clickhouse import DponeClickHouseHook
from airflow_provider_dpone.hooks.control import DponeControlHook
from airflow_provider_dpone.hooks.mssql import mssql_params
from airflow_provider_dpone.hooks.source import source_behind, source_params
from airflow_provider_dpone.ledger.stores import Stores

if TYPE_CHECKING:
    from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams


class Resolver(Protocol):
    """What one kind of server answers about targets behind connections to it."""

    connector: Connector

    def database(self, conn_id: str, database: str) -> tuple[str, str, str | None]:
        """Server incarnation, database identity, and the ledger its marker names."""
        ...

    def subject(self, database_id: str, declaration: WorkloadDeclaration) -> str:
        """The guard's subject of a workload there."""
        ...

    def database_of(self, relation: str, database: str) -> str:
        """The database a relation is in, when the target's is ``database``."""
        ...

    def same_place(self, one: str, other: str, database: str) -> bool:
        """An effect through one connection is seen through the other, and gone when it ends."""
        ...

    def equivalence(self, conn_id: str, database: str, relations: Sequence[str]) -> list[int]:
        """One class number per name, from one statement."""
        ...


class ClickHouseResolver:
    """ClickHouse: a guard is a table; names are byte strings."""

    connector = Connector.CLICKHOUSE

    def database(self, conn_id: str, database: str) -> tuple[str, str, str | None]:
        """``serverUUID()``, the database's UUID, and its marker's ledger."""
        with DponeClickHouseHook(clickhouse_conn_id=conn_id).control() as control:
            rows = control.query(
                "SELECT toString(serverUUID()), toString(uuid) FROM system.databases WHERE name = {name:String}",
                {"name": database},
            )
            if len(rows) != 1:
                raise TargetUnsupported(f"database {database} does not exist behind {conn_id!r}")
            marker = read_marker(control, database)
        return str(rows[0][0]), str(rows[0][1]), marker.ledger_service_id if marker else None

    def subject(self, database_id: str, declaration: WorkloadDeclaration) -> str:
        """Database and table."""
        return f"{database_id}/{split_table(declaration.target_relation)[1]}"

    def database_of(self, relation: str, database: str) -> str:
        """Its first part."""
        return split_table(relation)[0]

    def same_place(self, one: str, other: str, database: str) -> bool:
        """A query running through one is listed through the other while it runs, and not after."""
        query = f"dpone-place-{uuid.uuid4()}"
        held = threading.Event()

        def hold() -> None:
            with DponeClickHouseHook(clickhouse_conn_id=one).control() as control:
                held.set()
                control.query(f"SELECT sleepEachRow(0.05), '{query}' FROM numbers(40) SETTINGS max_block_size = 1")  # noqa: S608

        holding = threading.Thread(target=hold, name="dpone-place", daemon=True)
        with DponeClickHouseHook(clickhouse_conn_id=other).control() as looking:
            holding.start()
            held.wait(10)
            seen = False
            while holding.is_alive() and not seen:
                seen = bool(looking.query(_LISTED, {"query": query}))
                time.sleep(0.02)
            holding.join(30)
            if holding.is_alive() or looking.query(_LISTED, {"query": query}):
                raise PhysicalConflict(f"the probe through {one!r} and {other!r} did not end; nothing is known of them")
        return seen

    def equivalence(self, conn_id: str, database: str, relations: Sequence[str]) -> list[int]:
        """Exact bytes, as the server compares them."""
        with DponeClickHouseHook(clickhouse_conn_id=conn_id).control() as control:
            [(classes,)] = control.query(
                "SELECT arrayEnumerateDense({names:Array(String)})", {"names": [split_table(r)[1] for r in relations]}
            )
        return [int(number) for number in classes]


class PostgresResolver:
    """PostgreSQL: a guard is a managed schema; names are byte strings."""

    connector = Connector.POSTGRES

    def database(self, conn_id: str, database: str) -> tuple[str, str, str | None]:
        """System identifier, the database's UUID as its marker says, and the marker's ledger."""
        with PostgresControl(source_params(conn_id)).fresh() as session:
            marker = postgres_marker(session)
            server = postgres_service_id(session)
        if marker is None:
            return server, f"unmarked {conn_id}", None
        return server, marker[0].database_id, marker[0].ledger_service_id

    def subject(self, database_id: str, declaration: WorkloadDeclaration) -> str:
        """Database and managed schema: that of the target table, or the target itself."""
        relation = declaration.target_relation
        return f"{database_id}/{split_table(relation)[0] if declaration.kind == 'load' else relation}"

    def database_of(self, relation: str, database: str) -> str:
        """The target's: no cell writes in another database of the server."""
        return database

    def same_place(self, one: str, other: str, database: str) -> bool:
        """An advisory lock taken through one is taken through the other too, and free when it is given back."""
        key = secrets.randbits(62)
        with (
            PostgresControl(source_params(one)).fresh() as holding,
            PostgresControl(source_params(other)).fresh() as looking,
        ):
            holding.query("SELECT pg_catalog.pg_advisory_lock(%(key)s)", {"key": key})
            [(free,)] = looking.query("SELECT pg_catalog.pg_try_advisory_lock(%(key)s)", {"key": key})
            holding.query("SELECT pg_catalog.pg_advisory_unlock(%(key)s)", {"key": key})
            [(freed,)] = looking.query("SELECT pg_catalog.pg_try_advisory_lock(%(key)s)", {"key": key})
        if not freed:
            raise PhysicalConflict(f"the probe through {one!r} and {other!r} did not end; nothing is known of them")
        return not free

    def equivalence(self, conn_id: str, database: str, relations: Sequence[str]) -> list[int]:
        """As the catalog compares names: by their bytes."""
        with PostgresControl(source_params(conn_id)).fresh() as session:
            rows = session.query(
                'SELECT pg_catalog.dense_rank() OVER (ORDER BY n COLLATE pg_catalog."C")'
                " FROM pg_catalog.unnest(%(names)s::pg_catalog.text[]) WITH ORDINALITY AS t(n, i) ORDER BY i",
                {"names": list(relations)},
            )
        return [int(number) for (number,) in rows]


class MssqlResolver:
    """SQL Server: a guard is a dedicated database; names are compared under the database's own collation."""

    connector = Connector.MSSQL

    def database(self, conn_id: str, database: str) -> tuple[str, str, str | None]:
        """The database's incarnation, its GUID, and its marker's ledger."""
        from airflow_provider_dpone.engines.mssql.place import place

        return place(self._params(conn_id))

    def subject(self, database_id: str, declaration: WorkloadDeclaration) -> str:
        """The dedicated database."""
        return database_id

    def database_of(self, relation: str, database: str) -> str:
        """The target's: no cell writes in another database of the server."""
        return database

    def same_place(self, one: str, other: str, database: str) -> bool:
        """An application lock taken through one is held through the other, and free when it is given back."""
        from airflow_provider_dpone.engines.mssql.place import same_place

        return same_place(self._params(one), self._params(other))

    def equivalence(self, conn_id: str, database: str, relations: Sequence[str]) -> list[int]:
        """As the catalog compares names, under its collation."""
        from airflow_provider_dpone.engines.mssql.place import equivalence

        return equivalence(self._params(conn_id), [split_table(relation) for relation in relations])

    @staticmethod
    def _params(conn_id: str) -> MssqlParams:
        return mssql_params(BaseHook.get_connection(conn_id))


_LISTED: Final = (
    "SELECT 1 FROM system.processes WHERE query LIKE concat('%', {query:String}, '%') "
    "AND query NOT LIKE '%system.processes%' LIMIT 1"
)
#: By the type of the Airflow connection.
RESOLVERS: Final[dict[str, Resolver]] = {
    "clickhouse": ClickHouseResolver(),
    "postgres": PostgresResolver(),
    "mssql": MssqlResolver(),
}


class AirflowBackend:
    """:class:`airflow_provider_dpone.activation.physical.PhysicalBackend` over Airflow connections; asks each once."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._databases: dict[tuple[str, str], tuple[str, str, str | None]] = {}
        self._sources: dict[str, tuple[str, str]] = {}

    def connector(self, conn_id: str) -> str:
        """Kind of server behind a connection.

        :raises DeclarationInvalid: no such connection.
        """
        if conn_id not in self._kinds:
            with _naming(conn_id):
                conn_type = str(BaseHook.get_connection(conn_id).conn_type)
            self._kinds[conn_id] = _ALIASES.get(conn_type, conn_type)
        return self._kinds[conn_id]

    def place(self, declaration: WorkloadDeclaration) -> Place:
        """Where a workload's target is.

        :raises TargetUnsupported: no target can be behind such a connection, or its database does not exist.
        """
        resolver, database = self._resolver(declaration), _database(declaration)
        with _naming(declaration.target_conn_id):
            service_id, database_id, ledger = self._database(resolver, declaration.target_conn_id, database)
        elsewhere = {}
        for relation in declaration.writes:
            other = resolver.database_of(relation, database)
            if other != database:
                with _naming(declaration.target_conn_id):
                    elsewhere[relation] = self._database(resolver, declaration.target_conn_id, other)[1]
        return Place(
            connector=resolver.connector,
            service_id=service_id,
            database_id=database_id,
            subject=resolver.subject(database_id, declaration),
            relations=declaration.relations(),
            ledger_service_id=ledger,
            elsewhere=elsewhere,
        )

    def source(self, conn_id: str) -> tuple[str, str]:
        """What a source connection is now; asked once.

        :raises DeclarationInvalid: no such connection, or its type is not a source.
        """
        if conn_id not in self._sources:
            with _naming(conn_id):
                self._sources[conn_id] = source_behind(conn_id).place()
        return self._sources[conn_id]

    def _database(self, resolver: Resolver, conn_id: str, database: str) -> tuple[str, str, str | None]:
        """What a database behind a target connection is now; asked once."""
        key = conn_id, database
        if key not in self._databases:
            self._databases[key] = resolver.database(*key)
        return self._databases[key]

    def same_place(self, first: WorkloadDeclaration, second: WorkloadDeclaration) -> bool:
        """See :class:`Resolver`."""
        with _naming(f"{first.target_conn_id} and {second.target_conn_id}"):
            return self._resolver(first).same_place(first.target_conn_id, second.target_conn_id, _database(first))

    def equivalence(self, declaration: WorkloadDeclaration, relations: Sequence[str]) -> list[int]:
        """See :class:`Resolver`."""
        with _naming(declaration.target_conn_id):
            return self._resolver(declaration).equivalence(
                declaration.target_conn_id, _database(declaration), relations
            )

    def _resolver(self, declaration: WorkloadDeclaration) -> Resolver:
        kind = self.connector(declaration.target_conn_id)
        found = RESOLVERS.get(kind)
        if found is None:
            raise TargetUnsupported(
                f"connection {declaration.target_conn_id!r} has type {kind!r}; a target is one of "
                f"{', '.join(sorted(RESOLVERS))}"
            )
        return found


#: Connection types that are another name for a kind of server.
_ALIASES: Final = {"odbc": "mssql", "dpone_clickhouse": "clickhouse"}


def _database(declaration: WorkloadDeclaration) -> str:
    relation = declaration.target_relation
    return relation if declaration.kind == "dbt" else split_table(relation)[0]


@contextmanager
def _naming(conn_id: str) -> Iterator[None]:
    """Let every failure name the connection; the reader of a release looks at many of them."""
    try:
        yield
    except AirflowNotFoundException:
        raise DeclarationInvalid(f"Airflow connection {conn_id!r} is not defined") from None
    except ServerRefused as error:
        raise ServerRefused(
            f"connection {conn_id!r}: {error.message}", passes=error.retryable, **error.details
        ) from None
    except ServerUnreachable as error:
        raise ServerUnreachable(f"connection {conn_id!r}: {error.message}", **error.details) from None


def coordinator(control_conn_id: str) -> CompositionActivationCoordinator:
    """The one factory of the coordinator, from a control connection: ledger, sealed projections, physical admission."""
    return CompositionActivationCoordinator(
        inputs=SealedProjections(),
        preparation=CompositionActivationPreparation(
            physical=CompositionPhysicalAdmissionService(backend=AirflowBackend())
        ),
        stores=Stores(DponeControlHook(control_conn_id).ledger()),
    )


def materializer(
    cache: Path, control_conn_id: str, loaded_dags: Callable[[Path], set[str]] | None = None
) -> DeploymentCacheMaterializer:
    """The deployment cache in a directory, activated through a control connection."""
    return DeploymentCacheMaterializer(
        cache, composition_activation_coordinator=coordinator(control_conn_id), loaded_dags=loaded_dags
    )
