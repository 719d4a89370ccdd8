"""From declared workloads to an active release: cells, physical guards, collisions, handover.

Everything is refused before anything is reserved or drained: an unsupported cell, a target that is not enrolled, two
snapshots into one table. A predecessor is drained first: it is retired only when all its attempts are resolved.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_dpone.contracts.release import (
    ActivationRequest,
    PhysicalResource,
    Release,
    WorkloadAdmission,
    WorkloadDeclaration,
)
from airflow_provider_dpone.contracts.states import ActivationState, Connector, Family
from airflow_provider_dpone.errors import (
    ActivationCommitUnknown,
    ActivationRefused,
    AdmissionUnavailable,
    CommitUnknown,
    DponeError,
)
from airflow_provider_dpone.ledger.activations import CompositionActivationStore, Guard, StoredActivation
from airflow_provider_dpone.ledger.transaction import Ledger

#: (constituent, kind, source connector, target connector) -> cell, per family.
CELLS: Final[dict[tuple[str, str, str, str], tuple[str, frozenset[Family]]]] = {
    ("native", "snapshot", "postgres", "clickhouse"): (
        "mssql_clickhouse_full_refresh",
        frozenset({Family.NONPRODUCTION}),
    ),
    ("native", "snapshot", "mssql", "clickhouse"): (
        "mssql_clickhouse_full_refresh",
        frozenset({Family.NONPRODUCTION, Family.PRODUCTION}),
    ),
    ("native", "retention", "", "clickhouse"): (
        "mssql_clickhouse_full_refresh",
        frozenset({Family.NONPRODUCTION, Family.PRODUCTION}),
    ),
    ("standalone", "load", "postgres", "mssql"): (
        "postgres_mssql_full_refresh",
        frozenset({Family.NONPRODUCTION, Family.PRODUCTION}),
    ),
    ("standalone", "load", "postgres", "postgres"): ("postgres_mssql_full_refresh", frozenset({Family.NONPRODUCTION})),
    ("native", "dbt", "", "mssql"): ("dbt_native", frozenset({Family.NONPRODUCTION, Family.PRODUCTION})),
    ("native", "dbt", "", "postgres"): ("dbt_native", frozenset({Family.NONPRODUCTION})),
}


@dataclass(frozen=True)
class ResolvedTarget:
    """Where a declared target physically is, as the server has it."""

    connector: Connector
    service_id: str
    """Incarnation of the server."""
    subject: str
    """The guard's subject in it; see ``guard_subject`` of the enrolments."""
    writes: tuple[str, ...]
    """Every relation the workload can write, as coordinates that are equal exactly when the server takes them for one;
    what is inside one guard and another workload's as well is refused."""


@dataclass(frozen=True)
class Bindings:
    """How connection ids of a release resolve in this environment. Aliases and host names carry no identity."""

    source_connector: Callable[[str], str]
    """Kind of server behind a source connection id: ``postgres`` or ``mssql``."""
    resolve_target: Callable[[WorkloadDeclaration], ResolvedTarget]


class CompositionActivationCoordinator:
    """Prepares, activates and retires releases in one ledger.

    :raises AdmissionUnavailable: from every operation, when a capability is missing.
    """

    def __init__(self, *, ledger: Ledger | None = None, bindings: Bindings | None = None) -> None:
        self._ledger = ledger
        self._bindings = bindings

    def plan(self, release: Release, environment: str) -> ActivationRequest:
        """Classify every workload and resolve every write; reserves nothing.

        :raises ActivationRefused: names every workload that cannot be admitted, and why.
        """
        ledger, bindings = self._capabilities()
        store = CompositionActivationStore(ledger)
        guards = {(g.connector, g.service_id, g.subject): g for g in store.guards()}
        family = Family(ledger.family)
        workloads: list[WorkloadAdmission] = []
        resources: dict[str, PhysicalResource] = {}
        writers: dict[tuple[str, str, str], str] = {}
        problems: list[str] = []
        for declaration in release.workloads():
            try:
                where = bindings.resolve_target(declaration)
                cell = self._cell(declaration, where.connector, family, bindings)
                guard = self._guard(declaration, where, guards)
            except DponeError as error:
                problems.append(f"{declaration.workload_id}: {error.message}")
                continue
            shared: dict[str, str] = {}
            for relation in where.writes:
                key = (guard.guard_id, _share(declaration), relation)
                other = writers.setdefault(key, declaration.workload_id)
                if other != declaration.workload_id:
                    shared[other] = relation
            if shared:
                problems += [
                    f"{declaration.workload_id} and {other} write the one table {relation}"
                    for other, relation in sorted(shared.items())
                ]
                continue
            workloads.append(
                WorkloadAdmission(
                    workload_id=declaration.workload_id,
                    constituent=declaration.constituent,
                    cell=cell,
                    pack_sha256=declaration.digest(),
                    guard_id=guard.guard_id,
                )
            )
            resources[guard.guard_id] = PhysicalResource(
                guard_id=guard.guard_id,
                connector=guard.connector,
                service_id=guard.service_id,
                subject=guard.subject,
                enrolment_sha256=guard.enrolment_sha256,
            )
        if not release.workloads():
            problems.append("the release contains no workload; no DAG file declares a task of this provider")
        if problems:
            raise ActivationRefused(
                "the release cannot be activated; nothing was reserved:\n  " + "\n  ".join(problems), problems=problems
            )
        current = store.in_states(environment, ActivationState.ACTIVE)
        return ActivationRequest(
            family=family,
            occurrence_id=str(uuid.uuid4()),
            environment=environment,
            release_id=release.digest(),
            previous_activation_sha256=current[0].sha256 if current else None,
            workloads=tuple(sorted(workloads)),
            resources=tuple(sorted(resources.values())),
        )

    def activate(self, release: Release, environment: str) -> StoredActivation:
        """Make a release current: plan, drain and retire the predecessor, reserve all guards, switch.

        The same release with the same guards already current is returned as it is.

        :raises ActivationRefused: see :meth:`plan`; or the predecessor has unresolved attempts.
        """
        request = self.plan(release, environment)
        ledger, _ = self._capabilities()
        store = CompositionActivationStore(ledger)
        for current in store.in_states(environment, ActivationState.ACTIVE):
            if (current.request.release_id, current.request.resources) == (request.release_id, request.resources):
                return current
            unresolved = store.unresolved(current.sha256)
            if unresolved:
                raise ActivationRefused(
                    f"{len(unresolved)} attempts of the active release are not resolved; wait for them or settle them: "
                    + ", ".join(a[7:19] for a in unresolved),
                    attempts=unresolved,
                )
            store.begin_retirement(current.sha256)
        for retiring in store.in_states(environment, ActivationState.RETIRING):
            store.finalize_retirement(retiring.sha256)
        for stale in store.in_states(environment, ActivationState.PREPARED):
            self._drop_prepared(store, stale)
        prepared = store.prepare(request, release)
        try:
            return store.activate(prepared.sha256)
        except CommitUnknown as error:
            raise ActivationCommitUnknown(
                f"activation {prepared.sha256} was not acknowledged; it may be current. Activate again: that reads "
                "what is there and goes on from it",
                activation=prepared.sha256,
                state_may_have_changed=True,
                recovery_required=True,
            ) from error

    def retire(self, environment: str) -> list[StoredActivation]:
        """Retire what is active; attempts already admitted must be resolved first."""
        ledger, _ = self._capabilities()
        store = CompositionActivationStore(ledger)
        for current in store.in_states(environment, ActivationState.ACTIVE):
            store.begin_retirement(current.sha256)
        return [store.finalize_retirement(r.sha256) for r in store.in_states(environment, ActivationState.RETIRING)]

    @staticmethod
    def _drop_prepared(store: CompositionActivationStore, stale: StoredActivation) -> None:
        """An activation that was prepared and never made current goes through its states to free its guards."""
        store.activate(stale.sha256)
        store.begin_retirement(stale.sha256)
        store.finalize_retirement(stale.sha256)

    def _capabilities(self) -> tuple[Ledger, Bindings]:
        if self._ledger is None or self._bindings is None:
            raise AdmissionUnavailable("activation needs a ledger and bindings; build it from a control connection")
        self._ledger.read(lambda connection: None)
        return self._ledger, self._bindings

    @staticmethod
    def _cell(declaration: WorkloadDeclaration, target: Connector, family: Family, bindings: Bindings) -> str:
        source = bindings.source_connector(declaration.source_conn_id) if declaration.source_conn_id else ""
        found = CELLS.get((declaration.constituent, declaration.kind, source, target.value))
        if found is None or family not in found[1]:
            raise ActivationRefused(
                f"{declaration.kind} from {source or 'nothing'} to {target} is no supported cell of family {family}"
            )
        return found[0]

    @staticmethod
    def _guard(
        declaration: WorkloadDeclaration, where: ResolvedTarget, guards: dict[tuple[Connector, str, str], Guard]
    ) -> Guard:
        guard = guards.get((where.connector, where.service_id, where.subject))
        if guard is None:
            what = "--table" if where.connector is Connector.CLICKHOUSE else "--schema"
            raise ActivationRefused(
                f"{declaration.target_relation} behind {declaration.target_conn_id!r} is not enrolled; "
                f"run `dpone-airflow enroll --conn-id ... {what} ...`"
            )
        return guard


def _share(declaration: WorkloadDeclaration) -> str:
    """Workloads that may name the same relations: a retention step stands beside the snapshot of its target."""
    return "retention" if declaration.kind == "retention" else "writer"


def build_release(declarations: Sequence[WorkloadDeclaration]) -> Release:
    """The release of these declarations; both constituents listed."""
    return Release(
        native=tuple(sorted(d for d in declarations if d.constituent == "native")),
        standalone=tuple(sorted(d for d in declarations if d.constituent == "standalone")),
    )
