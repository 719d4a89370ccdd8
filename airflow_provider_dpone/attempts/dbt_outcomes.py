"""How a dbt attempt ended: the plan, baseline and run kept in the ledger, against the schema as it is read back now.

The same judgement for the attempt itself and for whoever settles it later: a run that finished is not lost because its
task died before it could say so, and one that did not finish is never called a success.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_dpone.attempts.world import Observed, utc_now
from airflow_provider_dpone.contracts.canonical import Document
from airflow_provider_dpone.contracts.dbt import DbtBaseline, DbtReadBack, DbtReceipt, DbtRun
from airflow_provider_dpone.contracts.states import AttemptState
from airflow_provider_dpone.engines.dbt.verdict import compare, judge
from airflow_provider_dpone.errors import (
    AnswerLost,
    DponeError,
    OutcomePending,
    ServerUnreachable,
)
from airflow_provider_dpone.ledger.attempts import StoredAttempt
from airflow_provider_dpone.ledger.schema import EvidenceKind

if TYPE_CHECKING:
    from airflow_provider_dpone.attempts.sql import SqlWorld

D = TypeVar("D", bound=Document)


@dataclass(frozen=True)
class Judged:
    """What was planned, run and read back, and why that is no success (None: it is one)."""

    baseline: DbtBaseline
    run: DbtRun | None
    seen: DbtReadBack
    error: DponeError | None


class DbtOutcomes:
    """Observes dbt attempts on one managed schema."""

    def __init__(self, world: SqlWorld) -> None:
        self._world = world

    def observe(self, stored: StoredAttempt, milliseconds: dict[str, int], done: Document | None) -> Observed:
        """Judge an attempt whose gates are closed; one that never got to a login did nothing.

        :raises OutcomePending: the schema cannot be read now.
        """
        if done is not None:
            return Observed(AttemptState.SUCCEEDED, done)
        judged = self.judge(stored.sha256)
        if judged is None:
            return Observed(AttemptState.FAILED)
        if judged.error is not None:
            return Observed(AttemptState.FAILED, code=judged.error.code, reason=judged.error.message)
        return Observed(AttemptState.SUCCEEDED, self.receipt(stored, judged, milliseconds))

    def last_record(self, stored: StoredAttempt) -> str | None:
        """dbt attempts publish nothing through the ledger."""
        return None

    def judge(self, attempt: str) -> Judged | None:
        """Read the schema back and judge; the read-back is kept as evidence. None when nothing was started."""
        baseline = self._kept(attempt, DbtBaseline)
        if baseline is None:
            return None
        plan = baseline.plan
        run, schema = self._kept(attempt, DbtRun), self._world.schema_of(attempt, plan.target_schema)
        try:
            relations = schema.relations()
            seen = compare(baseline, relations, {}, utc_now())
            error = judge(plan, run, seen)
            if error is None:
                built = [name for name, kind in plan.expected().items() if kind != "view"]
                seen = compare(baseline, relations, schema.rows(built), utc_now())
            if schema.relations() != relations:
                raise OutcomePending(
                    f"schema {plan.target_schema} was changed while it was read back; its login is closed, so by "
                    "somebody else; look again",
                    attempt=attempt,
                )
        except (ServerUnreachable, AnswerLost) as doubt:
            raise OutcomePending(
                f"the schema cannot be read back now ({doubt}); its login is closed; look again later",
                attempt=attempt,
            ) from doubt
        self._world.attempts.record(attempt, (EvidenceKind.DBT_READ_BACK, seen))
        return Judged(baseline, run, seen, error)

    def receipt(
        self, stored: StoredAttempt, judged: Judged, milliseconds: dict[str, int], *, reused: bool = False
    ) -> DbtReceipt:
        """The receipt of a run that succeeded."""
        plan, run, seen = judged.baseline.plan, judged.run, judged.seen
        assert run is not None
        assert run.results is not None
        assert run.manifest_sha256 is not None
        assert run.run_results_sha256 is not None

        def count(*kinds: str) -> int:
            return sum(node.partition(".")[0] in kinds for node in plan.selected)

        return DbtReceipt(
            family=stored.identity.family,
            state="SUCCEEDED",
            reused=reused,
            workload_id=stored.identity.workload_id,
            attempt_sha256=stored.sha256,
            target=plan.target_schema,
            project=plan.project,
            plan_sha256=plan.digest(),
            project_sha256=plan.project_sha256,
            manifest_sha256=run.manifest_sha256,
            run_results_sha256=run.run_results_sha256,
            read_back_sha256=seen.digest(),
            versions=plan.versions,
            models=count("model"),
            seeds=count("seed"),
            snapshots=count("snapshot"),
            tests=count("test", "unit_test"),
            warnings=tuple(r.unique_id for r in run.results if r.status == "warn"),
            rows={found.name: found.rows for found in seen.found if found.rows is not None},
            restored=judged.baseline.restored,
            removed=judged.baseline.removed,
            undeclared=seen.undeclared,
            milliseconds=milliseconds,
        )

    def _kept(self, attempt: str, kind: type[D]) -> D | None:
        kept = self._world.attempts.originals(attempt, _KINDS[kind])
        return kind.parse(kept[-1]) if kept else None


_KINDS: dict[type[Document], EvidenceKind] = {
    DbtBaseline: EvidenceKind.DBT_BASELINE,
    DbtRun: EvidenceKind.DBT_RUN,
}
