"""Physical admission: which real databases a release's connections are, and which of its names are one relation there.

Aliases, host names, credentials and versions carry no identity. A connection is the server incarnation and database
behind it, proved by a live probe where two claim to be one place or two; names are compared once per database, by the
server itself, under its own collation.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airflow_provider_dpone.contracts.release import (
    Binding,
    Deployment,
    PhysicalObservation,
    PhysicalResource,
    WorkloadAdmission,
    WorkloadDeclaration,
    WriteClass,
)
from airflow_provider_dpone.contracts.states import Connector
from airflow_provider_dpone.errors import (
    ActivationRefused,
    DponeError,
    EnrolledElsewhere,
    NotEnrolled,
    PhysicalConflict,
)
from airflow_provider_dpone.ledger.activations import Guard
from airflow_provider_dpone.releases.plan import CompositionExecutionPlan


@dataclass(frozen=True)
class Place:
    """Where a declared target physically is, as its server says."""

    connector: Connector
    service_id: str
    """Incarnation of the server."""
    database_id: str
    subject: str
    """The guard's subject; see ``guard_subject`` of the enrolments."""
    relations: tuple[str, ...]
    """Every relation the workload can write, its target first."""
    ledger_service_id: str | None
    """The ledger the database's marker names; None without a marker."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Identity of the database of each relation that is not in the target's: names are compared where they are."""

    @property
    def domain(self) -> tuple[Connector, str, str]:
        """The physical database: names are compared within it."""
        return self.connector, self.service_id, self.database_id

    def domain_of(self, relation: str) -> tuple[Connector, str, str]:
        """The physical database of one of the relations."""
        return self.connector, self.service_id, self.elsewhere.get(relation, self.database_id)


class PhysicalBackend(Protocol):
    """What physical admission asks of the servers of an environment."""

    def connector(self, conn_id: str) -> str:
        """Kind of server behind a connection id."""
        ...

    def place(self, declaration: WorkloadDeclaration) -> Place:
        """Where a workload's target is, asked now."""
        ...

    def source(self, conn_id: str) -> tuple[str, str]:
        """Server incarnation and database identity of a source, as every description of its tables carries them."""
        ...

    def same_place(self, first: WorkloadDeclaration, second: WorkloadDeclaration) -> bool:
        """Whether two targets are behind one server and database, by an effect through one that the other sees."""
        ...

    def equivalence(self, declaration: WorkloadDeclaration, relations: Sequence[str]) -> list[int]:
        """One class number per name, from one question to the server behind the target, under its own collation.

        Equal numbers: the server takes the names for one relation.
        """
        ...


@dataclass(frozen=True)
class PhysicalAdmission:
    """What a release physically is in its environment."""

    deployment: Deployment
    workloads: tuple[WorkloadAdmission, ...]
    resources: tuple[PhysicalResource, ...]
    observation: PhysicalObservation


class CompositionPhysicalAdmissionService:
    """Resolves, groups and compares; reserves nothing."""

    def __init__(self, *, backend: PhysicalBackend) -> None:
        self.backend = backend

    def seal(self, plan: CompositionExecutionPlan, environment: str) -> Deployment:
        """The deployment of a plan in an environment: every connection as the physical place it is now."""
        places, problems = self._places(plan)
        sources, missing = self._sources(plan)
        _refuse(problems + missing)
        bindings = sources | {
            Binding(conn_id=d.target_conn_id, connector=p.connector, service_id=p.service_id, database_id=p.database_id)
            for d, p in places
        }
        seen: dict[str, list[Binding]] = {}
        for binding in bindings:
            seen.setdefault(binding.conn_id, []).append(binding)
        # a connection that is source and target is one binding, with both identities of its database
        return Deployment(
            release_id=plan.sources.release_id,
            environment=environment,
            bindings=tuple(
                Binding(
                    conn_id=conn_id,
                    connector=found[0].connector,
                    service_id=" ".join(sorted({b.service_id for b in found})),
                    database_id=" ".join(sorted({b.database_id for b in found})),
                )
                for conn_id, found in sorted(seen.items())
            ),
        )

    def admit(
        self, plan: CompositionExecutionPlan, deployment: Deployment, guards: Sequence[Guard], ledger_service_id: str
    ) -> PhysicalAdmission:
        """Everything the activation request says about the physical world, observed now.

        :raises ActivationRefused: names every workload that is not enrolled or collides.
        :raises PhysicalConflict: two connections are not what they claim to be.
        """
        places, problems = self._places(plan)
        _refuse(problems)
        self._require_distinct(places)
        by_subject = {(g.connector, g.service_id, g.subject): g for g in guards}
        cells = {w.declaration.workload_id: w.cell for w in plan.workloads}
        workloads: list[WorkloadAdmission] = []
        resources: dict[str, PhysicalResource] = {}
        held: list[tuple[WorkloadDeclaration, Place, Guard]] = []
        for declaration, place in places:
            try:
                guard = _guard(declaration, place, by_subject, ledger_service_id)
            except DponeError as error:
                problems.append(f"{declaration.workload_id}: {error.message}")
                continue
            held.append((declaration, place, guard))
            workloads.append(
                WorkloadAdmission(
                    workload_id=declaration.workload_id,
                    constituent=declaration.constituent,
                    cell=cells[declaration.workload_id],
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
        classes, collisions = self._compare(held)
        _refuse(problems + collisions)
        return PhysicalAdmission(
            deployment=deployment,
            workloads=tuple(sorted(workloads)),
            resources=tuple(sorted(resources.values())),
            observation=PhysicalObservation(
                deployment_id=deployment.digest(),
                writes=tuple(sorted(classes)),
                reads=tuple(sorted({f"{w}: {r}" for w, names in plan.sources.reads.items() for r in names})),
            ),
        )

    def _places(self, plan: CompositionExecutionPlan) -> tuple[list[tuple[WorkloadDeclaration, Place]], list[str]]:
        found: list[tuple[WorkloadDeclaration, Place]] = []
        problems: list[str] = []
        for planned in plan.workloads:
            try:
                found.append((planned.declaration, self.backend.place(planned.declaration)))
            except DponeError as error:
                problems.append(f"{planned.declaration.workload_id}: {error.message}")
        return found, problems

    def _sources(self, plan: CompositionExecutionPlan) -> tuple[set[Binding], list[str]]:
        """What every source connection is now, each asked once."""
        found: set[Binding] = set()
        problems: list[str] = []
        readers = {p.declaration.source_conn_id: p.declaration for p in plan.workloads if p.declaration.source_conn_id}
        for conn_id, declaration in readers.items():
            try:
                service_id, database_id = self.backend.source(str(conn_id))
                connector = Connector(self.backend.connector(str(conn_id)))
            except DponeError as error:
                problems.append(f"{declaration.workload_id}: {error.message}")
                continue
            found.add(
                Binding(conn_id=str(conn_id), connector=connector, service_id=service_id, database_id=database_id)
            )
        return found, problems

    def _require_distinct(self, places: Sequence[tuple[WorkloadDeclaration, Place]]) -> None:
        """Connections that claim one place are one, and those that claim two are two.

        :raises PhysicalConflict: a clone, or one database enrolled twice.
        """
        first: dict[tuple[str, tuple[Connector, str, str]], tuple[WorkloadDeclaration, Place]] = {}
        for declaration, place in places:
            first.setdefault((declaration.target_conn_id, place.domain), (declaration, place))
        for (one, here), (other, there) in itertools.combinations(first.values(), 2):
            if one.target_conn_id == other.target_conn_id or here.connector is not there.connector:
                continue
            claimed = here.domain == there.domain
            if self.backend.same_place(one, other) != claimed:
                word = "are two places that claim to be one" if claimed else "are one place that claims to be two"
                raise PhysicalConflict(
                    f"connections {one.target_conn_id!r} and {other.target_conn_id!r} {word}: a clone, a copy of a "
                    "data directory, or a database enrolled twice. Nothing was reserved; enrol the one that is meant",
                    connections=[one.target_conn_id, other.target_conn_id],
                )

    def _compare(self, held: Sequence[tuple[WorkloadDeclaration, Place, Guard]]) -> tuple[list[WriteClass], list[str]]:
        """The class of every write, one question per physical database; and what two workloads both write."""
        domains: dict[tuple[Connector, str, str], list[tuple[WorkloadDeclaration, Guard, str]]] = {}
        for declaration, place, guard in held:
            for relation in place.relations:
                domains.setdefault(place.domain_of(relation), []).append((declaration, guard, relation))
        classes: list[WriteClass] = []
        problems: list[str] = []
        for writes in domains.values():
            names = [relation for _, _, relation in writes]
            numbers = self.backend.equivalence(writes[0][0], names)
            if len(numbers) != len(names):
                raise PhysicalConflict(f"the server compared {len(numbers)} of {len(names)} names")
            taken: dict[tuple[int, bool], tuple[WorkloadDeclaration, str]] = {}
            for (declaration, guard, relation), number in zip(writes, numbers, strict=True):
                keep = declaration.kind == "retention"  # stands beside the snapshot of its target
                other, other_name = taken.setdefault((number, keep), (declaration, relation))
                if other is declaration and other_name is not relation and other_name != relation:
                    problems.append(f"{declaration.workload_id}: {relation} and {other_name} are one relation there")
                elif other is not declaration:
                    problems.append(
                        f"{declaration.workload_id} and {other.workload_id} write the one table {relation}"
                        + ("" if relation == other_name else f" (there the same as {other_name})")
                    )
                classes.append(
                    WriteClass(
                        guard_id=guard.guard_id,
                        workload_id=declaration.workload_id,
                        relation=relation,
                        equivalence=number,
                    )
                )
        return classes, problems


class CompositionActivationPreparation:
    """What preparing an activation needs of the physical world."""

    def __init__(self, *, physical: CompositionPhysicalAdmissionService) -> None:
        self.physical = physical


def _guard(
    declaration: WorkloadDeclaration,
    place: Place,
    guards: dict[tuple[Connector, str, str], Guard],
    ledger_service_id: str,
) -> Guard:
    where = f"{declaration.target_relation} behind {declaration.target_conn_id!r}"
    if place.ledger_service_id is not None and place.ledger_service_id != ledger_service_id:
        raise EnrolledElsewhere(f"{where} belongs to ledger {place.ledger_service_id}; one database has one ledger")
    guard = guards.get((place.connector, place.service_id, place.subject))
    if guard is None or place.ledger_service_id is None:
        option = "--table" if place.connector is Connector.CLICKHOUSE else "--schema"
        raise NotEnrolled(f"{where} is not enrolled; run `dpone-airflow enroll --conn-id ... {option} ...`")
    return guard


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise ActivationRefused(
            "the release cannot be activated; nothing was reserved:\n  " + "\n  ".join(problems),
            problems=list(problems),
        )
