"""The dbt cell: a project built under one one-time login, and judged by what the controller reads back.

dbt commits model by model, so the run as a whole is not atomic: a failed run leaves the models that had finished. What
holds is that nobody else writes the schema meanwhile, that nothing writes it afterwards, and that the outcome is seen.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass

from airflow_provider_dpone.attempts.admission import Admissible
from airflow_provider_dpone.attempts.dbt_outcomes import DbtOutcomes
from airflow_provider_dpone.attempts.protocol import AttemptProtocol
from airflow_provider_dpone.attempts.settle import SchedulerView, plan_digest
from airflow_provider_dpone.attempts.sql import SqlWorld
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.contracts.dbt import DbtBaseline, DbtReceipt
from airflow_provider_dpone.contracts.identity import TaskCoordinates
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.contracts.states import DispatchState, Purpose
from airflow_provider_dpone.engines.dbt.prepared import PreparedDbt
from airflow_provider_dpone.engines.dbt.tidy import tidy
from airflow_provider_dpone.engines.dbt.verdict import found_relations
from airflow_provider_dpone.errors import DbtRelationRefused, OutcomePending
from airflow_provider_dpone.ledger.schema import EvidenceKind

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DbtWork:
    """One dbt run as the operator rendered it, prepared."""

    declaration: WorkloadDeclaration
    environment: str
    coordinates: TaskCoordinates
    prepared: PreparedDbt

    def plan_sha256(self) -> str:
        """Digest of everything that decides what the run does: project, selection, relations, variables, options."""
        spec = self.prepared.spec
        return plan_digest(
            self.declaration.digest(),
            self.prepared.plan.digest(),
            repr(sorted(spec.variables.items())),
            repr((spec.select, spec.exclude, spec.fail_fast, spec.threads, spec.target)),
            repr(sorted(spec.environment.items())),
        )


class DbtCell(AttemptProtocol[SqlWorld, DbtReceipt]):
    """Runs one dbt attempt."""

    receipt_type = DbtReceipt
    untouched = "what dbt had built before it stopped is there, read back and in the ledger"

    def __init__(self, world: SqlWorld, work: DbtWork, stop: StopFlag, finished: SchedulerView) -> None:
        super().__init__(world, work, stop, finished)
        self._work: DbtWork = work
        self._prepared = work.prepared

    def preflight(self, admissible: Admissible) -> None:
        """The schema is as enrolled, and no drop of a relation in it would take along what is outside.

        :raises DbtRelationRefused: something outside depends on a relation of the schema.
        """
        schema = self.world.target.schema(admissible.guard.schema, self._prepared.plan.target_schema)
        schema.look()
        outside = schema.outside_dependents()
        if outside:
            raise DbtRelationRefused(
                f"dbt drops relations with everything that depends on them, and outside schema "
                f"{self._prepared.plan.target_schema} there is: {'; '.join(outside)}. Move it into the schema, or let "
                "it read a copy",
                dependents=outside,
            )

    def reusable(self, admissible: Admissible) -> DbtReceipt | None:
        """The run of the previous try, when the schema still carries what it left."""
        last = self.admission.previous(admissible, self._work.coordinates, self._work.plan_sha256())
        if last is None:
            return None
        outcomes = DbtOutcomes(self.world)
        judged = outcomes.judge(last.sha256)
        if judged is None or judged.error is not None:
            return None
        return outcomes.receipt(last, judged, {}, reused=True)

    def perform(self, admissible: Admissible) -> DbtReceipt | None:
        """Tidy up, issue, build, close, read back, judge."""
        world, attempt, steps, plan = self.world, self.attempt, self.steps, self._prepared.plan
        schema = world.target.schema(admissible.guard.schema, plan.target_schema)
        with steps("tidy", "looking at the schema and putting in order what an earlier run left"):
            restored, removed = tidy(schema, plan, lambda: world.attempts.require_acting(attempt))
            for what, names in (("renamed back", restored), ("removed", removed)):
                if names:
                    steps.say(f"{what}: {', '.join(names)}")
            baseline = DbtBaseline(
                attempt_sha256=attempt,
                plan=plan,
                found=found_relations(schema.relations(), {}),
                restored=restored,
                removed=removed,
            )
            world.attempts.record(attempt, (EvidenceKind.DBT_BASELINE, baseline))
        with steps("login", "issuing the one-time login"):
            gate = world.gate_of(attempt, [admissible.guard])
            reads = [(source.schema_of, source.name) for source in plan.reads]
            rights = schema.rights(reads, self._prepared.spec.threads + 2)  # dbt has one more, and one to list
            credential = gate.issue_once(Purpose.WORKER, rights)
            journal, dispatch = world.journal(attempt), str(uuid.uuid4())
            journal.claim_dispatch(
                dispatch_id=dispatch, name=credential.name, kind="dbt_build", statement=f"dbt build {plan.digest()}"
            )
        with steps("build", f"dbt builds {len(plan.selected)} nodes of {plan.project} into {plan.target_schema}"):
            try:
                run = self._prepared.build(attempt, credential.name, credential.password)
            finally:
                self._prepared.stop()  # before its login is closed, whatever ended the step
        with steps("close", "closing the login and proving it quiet", always=True):
            world.attempts.record(attempt, (EvidenceKind.DBT_RUN, run))
            journal.end_dispatch(
                dispatch_id=dispatch, state=DispatchState.ANSWERED, note=f"dbt ended with {run.exit_code}"
            )
            gate.close(credential.name)
        with steps("read back", "reading the schema back", always=True):
            return self._judged()

    def interrupt(self) -> None:
        """End dbt and all it started."""
        self._prepared.stop()

    def _judged(self) -> DbtReceipt:
        outcomes = DbtOutcomes(self.world)
        judged = outcomes.judge(self.attempt)
        if judged is None:
            raise OutcomePending(f"the ledger does not show what attempt {self.attempt} planned; look again later")
        if judged.error is not None:
            self.stop.check()  # stopped: then that is what ended it
            raise judged.error
        if judged.seen.undeclared:
            logger.warning("made by no node of the project: %s", ", ".join(judged.seen.undeclared))
        stored = self.world.attempts.read_exact(self.attempt)
        return outcomes.receipt(stored, judged, self.steps.milliseconds)
