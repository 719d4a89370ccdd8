"""Admission of one task try: active release, guard, earlier attempts, and what a retry may reuse."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_provider_dpone.attempts.settle import SchedulerView, Settler
from airflow_provider_dpone.attempts.world import World
from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity, TaskCoordinates
from airflow_provider_dpone.contracts.ports import ClickHouseControl
from airflow_provider_dpone.contracts.release import WorkloadAdmission, WorkloadDeclaration
from airflow_provider_dpone.contracts.states import AttemptState, PublicationState
from airflow_provider_dpone.engines.clickhouse.catalog import TableFacts, read_catalog, read_tables
from airflow_provider_dpone.enrolment.clickhouse import require_as_enrolled, require_marker
from airflow_provider_dpone.errors import ActivationMissing, NotEnrolled
from airflow_provider_dpone.ledger.activations import Guard, StoredActivation
from airflow_provider_dpone.ledger.attempts import StoredAttempt
from airflow_provider_dpone.ledger.publications import StoredPublication
from airflow_provider_dpone.ledger.stores import Stores


@dataclass(frozen=True)
class Admissible:
    """A workload of the active release together with its guard."""

    activation: StoredActivation
    workload: WorkloadAdmission
    guard: Guard
    tried_before: bool
    """Whether the ledger has an earlier try of this task."""

    @property
    def database(self) -> str:
        return self.guard.enrolment.marker.database

    @property
    def table(self) -> str:
        return self.guard.enrolment.target_table

    def identity(self, coordinates: TaskCoordinates, plan_sha256: str) -> CompositionAttemptIdentity:
        """The identity this task try is admitted under."""
        return CompositionAttemptIdentity(
            family=self.activation.request.family,
            activation_sha256=self.activation.sha256,
            constituent=self.workload.constituent,
            cell=self.workload.cell,
            workload_id=self.workload.workload_id,
            pack_sha256=self.workload.pack_sha256,
            plan_sha256=plan_sha256,
            coordinates=coordinates,
            guard_epochs=tuple(e for e in self.activation.epochs if e.guard_id == self.guard.guard_id),
        )


class Admission:
    """Decides whether a task try may act, before anything is reserved."""

    def __init__(self, world: World, settler: Settler, finished: SchedulerView) -> None:
        self._world = world
        self._settler = settler
        self._finished = finished

    def admissible(
        self, environment: str, declaration: WorkloadDeclaration, coordinates: TaskCoordinates
    ) -> Admissible:
        """The workload in the active release, exactly as declared, and its guard, once earlier attempts are settled.

        :raises ActivationMissing: no active release, not in it, or declared otherwise.
        :raises NotEnrolled: the target is not enrolled, or lies on another server.
        :raises GuardHeld, PublicationUnknown: see :meth:`Settler.settle_all`.
        """
        work, holders = self._look_up(environment, declaration, coordinates)
        if holders:
            self._settler.settle_all(holders, coordinates, self._finished)
            work, _ = self._look_up(environment, declaration, coordinates)
        return work

    def _look_up(
        self, environment: str, declaration: WorkloadDeclaration, coordinates: TaskCoordinates
    ) -> tuple[Admissible, list[StoredAttempt]]:
        """The workload and the attempts that hold its guard, read on one fresh connection."""
        with self._world.together() as ledger:
            activation = ledger.activations.require_active(environment)
            found = [w for w in activation.request.workloads if w.workload_id == declaration.workload_id]
            if not found or found[0].pack_sha256 != declaration.digest():
                what = "differs from its declaration in" if found else "is not in"
                raise ActivationMissing(
                    f"{declaration.workload_id} {what} the active release of environment {environment!r}; activate the "
                    "DAG files as they are now with `dpone-airflow activate --dags-folder ...`, then clear the task",
                    workload=declaration.workload_id,
                    activation=activation.sha256,
                )
            holders = ledger.attempts.open_on([found[0].guard_id])
            guard = ledger.activations.guard(found[0].guard_id)
            tried_before = bool(_earlier(ledger, coordinates))
        if guard is None:
            raise NotEnrolled(f"the target of {declaration.workload_id} is not enrolled; run `dpone-airflow enroll`")
        if guard.service_id != self._world.service_id:
            raise NotEnrolled(
                f"connection {declaration.target_conn_id!r} leads to server {self._world.service_id}, but the target "
                f"is enrolled on {guard.service_id}"
            )
        return Admissible(activation, found[0], guard, tried_before), holders

    def look(self, work: Admissible, *, generation: str | None = None) -> None:
        """The target is as enrolled, the generation of its design, and nothing new is attached, seen now.

        :raises Refused: it is not; nothing was changed.
        """
        enrolment = work.guard.enrolment
        names = [enrolment.target_table, *([generation] if generation else [])]
        with self._world.target.control.fresh() as control:
            require_marker(control, enrolment)
            view = read_catalog(control, enrolment.marker.database, names, administrators=enrolment.administrators)
        require_as_enrolled(view, work.guard, generation=generation)

    def facts(self, work: Admissible, control: ClickHouseControl, generation: str) -> TableFacts:
        """The generation as the catalog shows it now beside the target as enrolled; what surrounds them is not read.

        :raises Refused: either is otherwise.
        """
        enrolment = work.guard.enrolment
        view = read_tables(control, enrolment.marker.database, [enrolment.target_table, generation])
        require_as_enrolled(view, work.guard, generation=generation)
        return view.table(generation)

    def refreshed(self, work: Admissible) -> Admissible:
        """The same with its guard read again: once admitted, nobody else can move it."""
        guard = self._world.activations.guard(work.guard.guard_id)
        if guard is None:
            raise NotEnrolled("the guard is not enrolled any more")
        return replace(work, guard=guard)

    def interrupted(self, identity: CompositionAttemptIdentity) -> str | None:
        """The attempt whose admission was interrupted by a time-out, when it was committed all the same."""
        found = [a.sha256 for a in self._world.attempts.of_task(*identity.coordinates.task())]
        return identity.digest() if identity.digest() in found else None

    def reusable(self, work: Admissible, coordinates: TaskCoordinates, plan_sha256: str) -> StoredPublication | None:
        """The publication of this task's previous try, when this try is its retry and all of it still holds.

        All of: the previous try SUCCEEDED in the ledger, the scheduler never accepted that success, this is a retry
        and not a clear (``max_tries`` did not grow), the rendered plan is equal, and its generation is the guard's
        latest publication. Whether the target carries it now was seen by :meth:`look`.
        """
        if not work.tried_before:
            return None
        with self._world.together() as ledger:
            earlier = _earlier(ledger, coordinates)
        last = earlier[-1]
        if (
            last.state is not AttemptState.SUCCEEDED
            or last.acknowledged
            or last.identity.coordinates.max_tries != coordinates.max_tries
            or last.identity.plan_sha256 != plan_sha256
            or last.identity.workload_id != work.workload.workload_id
        ):
            return None
        publication = self._world.publications.of_attempt(last.sha256)
        if (
            publication is None
            or publication.record.state is not PublicationState.PUBLISHED
            or publication.intent.generation_uuid != work.guard.target_uuid
        ):
            return None
        return publication


def _earlier(ledger: Stores, coordinates: TaskCoordinates) -> list[StoredAttempt]:
    """Earlier tries of the same task of the same run, oldest first."""
    mine = (coordinates.dag_id, coordinates.run_id, coordinates.task_id, coordinates.map_index)
    return [a for a in ledger.attempts.of_task(*mine) if a.identity.coordinates.try_number < coordinates.try_number]
