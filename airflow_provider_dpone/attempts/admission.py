"""Admission of one task try: active release, guard, earlier attempts, and what a retry may reuse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_dpone.attempts.settle import SchedulerView, Settler
from airflow_provider_dpone.attempts.world import World
from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity, TaskCoordinates
from airflow_provider_dpone.contracts.release import WorkloadAdmission, WorkloadDeclaration
from airflow_provider_dpone.contracts.states import AttemptState
from airflow_provider_dpone.errors import ActivationMissing, NotEnrolled
from airflow_provider_dpone.ledger.activations import Guard, StoredActivation
from airflow_provider_dpone.ledger.attempts import StoredAttempt
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
        """Database of a guard that is a table."""
        return self.guard.table.marker.database

    @property
    def table(self) -> str:
        """Name of a guard that is a table."""
        return self.guard.table.target_table

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

    def __init__(self, world: World[Any], settler: Settler, finished: SchedulerView) -> None:
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

    def previous(self, work: Admissible, coordinates: TaskCoordinates, plan_sha256: str) -> StoredAttempt | None:
        """This task's previous try, when this try is its retry and may reuse what it did.

        All of: the previous try SUCCEEDED in the ledger, the scheduler never accepted that success, this is a retry
        and not a clear (``max_tries`` did not grow), and the rendered plan is equal. Whether its work still stands on
        the target is for the cell to see.
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
        return last


def _earlier(ledger: Stores, coordinates: TaskCoordinates) -> list[StoredAttempt]:
    """Earlier tries of the same task of the same run, oldest first."""
    mine = (coordinates.dag_id, coordinates.run_id, coordinates.task_id, coordinates.map_index)
    return [a for a in ledger.attempts.of_task(*mine) if a.identity.coordinates.try_number < coordinates.try_number]
