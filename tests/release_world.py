"""Releases in tests: a backend over the real servers, with injected faults where a test needs one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_provider_dpone.activation.cache import DeploymentCacheMaterializer, SealedProjections
from airflow_provider_dpone.activation.coordinator import CompositionActivationCoordinator
from airflow_provider_dpone.activation.physical import (
    CompositionActivationPreparation,
    CompositionPhysicalAdmissionService,
    Place,
)
from airflow_provider_dpone.contracts.naming import split_table
from airflow_provider_dpone.contracts.release import Release, WorkloadDeclaration
from airflow_provider_dpone.contracts.states import Connector
from airflow_provider_dpone.engines.postgres.snapshot import PostgresSource
from airflow_provider_dpone.enrolment.clickhouse import read_marker
from airflow_provider_dpone.errors import TargetUnsupported
from airflow_provider_dpone.ledger.stores import Stores
from airflow_provider_dpone.ledger.transaction import Ledger
from airflow_provider_dpone.releases.builder import Producers, build_release
from tests.snapshot_world import SnapshotWorld


@dataclass
class WorldBackend:
    """Physical admission's backend straight on the test's servers; what a connection claims can be falsified."""

    world: SnapshotWorld
    kinds: dict[str, str] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)
    """Another server incarnation that a connection id claims (a clone, or a second name)."""
    compare: Callable[[Sequence[str]], list[int]] | None = None
    same: bool = True
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Another source that a connection id leads to."""
    _databases: dict[str, tuple[str, str, str | None]] = field(default_factory=dict)

    def connector(self, conn_id: str) -> str:
        return self.kinds.get(conn_id, "postgres" if conn_id == "src" else "clickhouse")

    def place(self, declaration: WorkloadDeclaration) -> Place:
        database, table = split_table(declaration.target_relation)
        if database not in self._databases:
            rows = self.world.ch(
                f"SELECT toString(serverUUID()), toString(uuid) FROM system.databases WHERE name = '{database}'"
            )
            if not rows:
                raise TargetUnsupported(f"database {database} does not exist")
            with self.world.control() as control:
                marker = read_marker(control, database)
            self._databases[database] = (*rows[0], marker.ledger_service_id if marker else None)
        server, uuid, ledger = self._databases[database]
        elsewhere = {
            relation: self._uuid(split_table(relation)[0])
            for relation in declaration.writes
            if split_table(relation)[0] != database
        }
        return Place(
            Connector.CLICKHOUSE, self.claims.get(declaration.target_conn_id, server), uuid, f"{uuid}/{table}",
            (declaration.target_relation, *declaration.writes), ledger, elsewhere,
        )  # fmt: skip

    def _uuid(self, database: str) -> str:
        return str(self.world.ch(f"SELECT toString(uuid) FROM system.databases WHERE name = '{database}'")[0][0])

    def source(self, conn_id: str) -> tuple[str, str]:
        return self.sources.get(conn_id) or PostgresSource(self.world.source).place()

    def same_place(self, first: WorkloadDeclaration, second: WorkloadDeclaration) -> bool:
        return self.same

    def equivalence(self, declaration: WorkloadDeclaration, relations: Sequence[str]) -> list[int]:
        if self.compare is not None:
            return self.compare(relations)
        [(classes,)] = self.world.ch(f"SELECT arrayEnumerateDense({list(relations)!r})")
        return [int(number) for number in classes]


def coordinator(
    world: SnapshotWorld, backend: WorldBackend | None = None, ledger: Ledger | None = None
) -> CompositionActivationCoordinator:
    """The coordinator, wired like its factory wires it, over the test's backend."""
    return CompositionActivationCoordinator(
        inputs=SealedProjections(),
        preparation=CompositionActivationPreparation(
            physical=CompositionPhysicalAdmissionService(backend=backend or WorldBackend(world))
        ),
        stores=Stores(ledger or world.ledger.runtime()),
    )


@dataclass
class Releases:
    """Builds releases of a world and makes them current through a cache."""

    world: SnapshotWorld
    folder: Path
    backend: WorldBackend
    _count: int = 0

    def build(self, *declarations: WorkloadDeclaration, manifests: Path | None = None) -> tuple[Path, Release]:
        """A built release directory and its document."""
        self._count += 1
        output = self.folder / f"release-{self._count}"
        return output, build_release(Producers(declarations=declarations, manifests_folder=manifests), output)

    def cache(self, ledger: Ledger | None = None, name: str = "cache") -> DeploymentCacheMaterializer:
        """The deployment cache."""
        return DeploymentCacheMaterializer(
            self.folder / name, composition_activation_coordinator=coordinator(self.world, self.backend, ledger)
        )
