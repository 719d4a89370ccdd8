"""Brings any attempt to its end: fence it, close its gates, observe what happened, resolve it in the ledger.

Used by the attempt itself when it ends, by a later try, by a waiting task of another run, by the reaper and by the
reconcile operator. It resumes at the first step not proved and never copies, issues or sends anything. What cannot be
observed stays as it is: the guards remain held and a later call goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_provider_dpone.attempts.world import World, utc_now
from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.identity import TaskCoordinates
from airflow_provider_dpone.contracts.proofs import Adjudication, Outcome
from airflow_provider_dpone.contracts.publication import SnapshotIntent
from airflow_provider_dpone.contracts.receipts import SnapshotReceipt
from airflow_provider_dpone.contracts.states import (
    TERMINAL_ATTEMPTS,
    TERMINAL_PUBLICATIONS,
    AttemptState,
    GateState,
    PublicationState,
)
from airflow_provider_dpone.engines.clickhouse.gate import usable_names
from airflow_provider_dpone.engines.clickhouse.observer import SnapshotCatalog
from airflow_provider_dpone.errors import (
    AdjudicationRefused,
    CommitUnknown,
    Fenced,
    GateRefused,
    GuardHeld,
    LedgerBusy,
    LedgerMismatch,
    LedgerRule,
    LedgerUnavailable,
    NotEnrolled,
    OutcomePending,
    PublicationUnknown,
)
from airflow_provider_dpone.ledger.attempts import StoredAttempt
from airflow_provider_dpone.ledger.journal import closed_principals
from airflow_provider_dpone.ledger.publications import StoredPublication
from airflow_provider_dpone.ledger.schema import EvidenceKind
from airflow_provider_dpone.publication.publisher import ClickHouseAtomicSnapshotPublisher

logger = logging.getLogger(__name__)

#: What Airflow says of a task instance: True finished or superseded, False still to be waited for.
SchedulerView = Callable[[TaskCoordinates], bool]


class NoExecutor:
    """An executor for callers that may only look: it refuses to send anything."""

    def exchange(self, intent: SnapshotIntent) -> str:
        raise GateRefused("this process holds no credential of the publisher; it can only observe")


@dataclass(frozen=True)
class Cause:
    """Why an attempt is brought to its end, for its outcome document."""

    code: str | None
    reason: str


class Settler:
    """Settles attempts on one target server."""

    def __init__(self, world: World) -> None:
        self._world = world

    def settle(self, stored: StoredAttempt, cause: Cause) -> StoredAttempt:
        """Fence an attempt for good, then resolve it.

        :raises GateNotClosed, ServerUnreachable, ViewIncomplete, LedgerUnavailable: not provable now; it stays fenced
            and held, and a later call goes on.
        """
        if stored.state not in TERMINAL_ATTEMPTS:
            self._world.attempts.fence(stored.sha256)
        return self.resolve(stored.sha256, cause)

    def settle_all(self, holders: Sequence[StoredAttempt], mine: TaskCoordinates, finished: SchedulerView) -> None:
        """Settle earlier attempts that hold a guard, or say why one must be waited for.

        A predecessor of the same task is always fenced: fencing is safe, it only costs work. An attempt of another
        run is fenced when Airflow reports it finished or superseded.

        :raises GuardHeld: another run's attempt is at work; wait for it.
        :raises Fenced: a later instance of this very task holds it; this one is the orphan.
        :raises PublicationUnknown: an earlier attempt cannot be settled by observation.
        """
        for stored in holders:
            theirs = stored.identity.coordinates
            if theirs.task_instance_id != mine.task_instance_id:
                if mine.superseded_by(theirs):
                    raise Fenced("a later instance of this task holds the target; this one stops here")
                same_task = theirs.task() == mine.task()
                if not same_task and stored.state is not AttemptState.COMMIT_UNKNOWN and not finished(theirs):
                    raise GuardHeld(
                        f"{theirs.dag_id}.{theirs.task_id} of run {theirs.run_id} (try {theirs.try_number}) holds the "
                        "target; waiting for it",
                        attempt=stored.sha256,
                        dag_id=theirs.dag_id,
                        run_id=theirs.run_id,
                        task_id=theirs.task_id,
                    )
            logger.info("settling the earlier attempt %s of %s", stored.sha256[7:19], theirs.run_id)
            ended = self.settle(stored, Cause("DPONE_FENCED", "settled by a later try"))
            logger.info("attempt %s is %s now; its users are closed", stored.sha256[7:19], ended.state.name)
            if ended.state is AttemptState.COMMIT_UNKNOWN:
                raise unknown(ended)

    def resolve(
        self,
        attempt_sha256: str,
        cause: Cause,
        *,
        milliseconds: dict[str, int] | None = None,
        adjudication: Adjudication | None = None,
        done: bool = False,
    ) -> StoredAttempt:
        """Close what is open, observe what is open, and write the end of the attempt.

        :param done: an attempt without a publication did what it was admitted for (a retention step).
        :raises AdjudicationRefused: observation may still settle it, so nobody decides.
        """
        world = self._world
        with world.together() as ledger:
            stored = ledger.attempts.read_exact(attempt_sha256)
            principals = ledger.journal(attempt_sha256).principals()
            publication = ledger.publications.of_attempt(attempt_sha256)
        if stored.state in TERMINAL_ATTEMPTS:
            return stored
        if adjudication is not None and stored.state is not AttemptState.COMMIT_UNKNOWN:
            raise AdjudicationRefused(
                f"attempt {attempt_sha256} is {stored.state.name}; run `dpone-airflow reconcile {attempt_sha256[7:19]}`"
            )
        unclosed = [principal.name for principal in principals if principal.state is not GateState.CLOSED]
        if unclosed:
            self._close_gates(attempt_sha256, unclosed)
            publication = world.publications.of_attempt(attempt_sha256)
        if publication is not None and publication.record.state not in TERMINAL_PUBLICATIONS and adjudication is None:
            try:
                self._publisher(publication).reconcile(publication.intent.digest())
            except PublicationUnknown as contradicted:  # never claimed, yet A and B are not there: a person must look
                cause = Cause(contradicted.code, contradicted.message)
            publication = world.publications.of_attempt(attempt_sha256)
            if publication is not None and _unproved(publication):
                raise OutcomePending(
                    f"the outcome of attempt {attempt_sha256} cannot be observed now ({publication.record.reason}); "
                    "its guards stay held, and the next try or the reaper looks again",
                    attempt=attempt_sha256,
                )
        state = adjudication.state if adjudication else _state(publication, done)
        if state is AttemptState.COMMIT_UNKNOWN and stored.state is AttemptState.COMMIT_UNKNOWN:
            return stored
        receipt = None
        if publication is not None and publication.record.state is PublicationState.PUBLISHED:
            receipt = self.receipt(publication, milliseconds or {})
        outcome = Outcome(
            attempt_sha256=attempt_sha256,
            state=state,
            code=None if state is AttemptState.SUCCEEDED else cause.code,
            reason=cause.reason.encode("utf-8", "replace").decode()[:512],
            publication_sha256=None if publication is None else publication.record.digest(),
            observed_at=utc_now(),
        )
        try:
            if stored.state is AttemptState.COMMIT_UNKNOWN:
                return world.attempts.reconcile_unknown(attempt_sha256, outcome, adjudication)
            return world.attempts.finalize(attempt_sha256, outcome, receipt)
        except LedgerRule:
            now = world.attempts.read_exact(attempt_sha256)
            if now.state is stored.state:
                raise
            return now  # another settler was first; what it recorded stands

    def sweep(self) -> list[str]:
        """Drop users that came back although their gates are CLOSED (a power loss can revert a DROP); their names.

        Users this ledger does not know are left alone: they may be another ledger's.
        """
        world = self._world
        found = usable_names(world.target.control)
        closed = closed_principals(world.ledger, world.service_id, found)
        return [name for name, attempt in closed if world.gate_of(attempt).remove_leftover(name) is not None]

    def _close_gates(self, attempt_sha256: str, names: Sequence[str]) -> None:
        """Close principals of an attempt. On the server even when the ledger is away: that only takes rights."""
        gate = self._world.gate_of(attempt_sha256)
        try:
            for name in names:
                gate.close(name)
        except (LedgerUnavailable, LedgerBusy, CommitUnknown, LedgerMismatch):
            gate.close_known()
            raise

    def receipt(
        self, publication: StoredPublication, milliseconds: dict[str, int], *, reused: bool = False
    ) -> SnapshotReceipt:
        """The receipt of a PUBLISHED publication, rebuilt from the ledger's originals."""
        world, intent = self._world, publication.intent
        with world.together() as ledger:
            generation = ledger.publications.generation(intent.generation_sha256)
            workload_id = ledger.attempts.read_exact(intent.attempt_sha256).identity.workload_id
        return SnapshotReceipt(
            family=intent.family,
            stand_in=is_stand_in(world),
            state="PUBLISHED",
            reused=reused,
            workload_id=workload_id,
            attempt_sha256=intent.attempt_sha256,
            intent_sha256=intent.digest(),
            publication_sha256=publication.record.digest(),
            target=f"{intent.target.database}.{intent.target.target_table}",
            target_uuid=intent.generation_uuid,
            retained_table=f"{intent.target.database}.{intent.target.generation_table}",
            source=f"{generation.source.connector}:{generation.source.relation}",
            snapshot_taken_at=generation.source.taken_at,
            rows=intent.content.rows,
            row_sum=intent.content.row_sum,
            source_bytes=generation.source_bytes,
            wire_bytes=generation.wire_bytes,
            generation_bytes=generation.generation_bytes,
            milliseconds=milliseconds,
        )

    def recorded_receipt(self, attempt_sha256: str) -> SnapshotReceipt | None:
        """The receipt kept when the attempt succeeded."""
        kept = self._world.attempts.originals(attempt_sha256, EvidenceKind.RECEIPT)
        return SnapshotReceipt.parse(kept[-1]) if kept else None

    def _publisher(self, publication: StoredPublication) -> ClickHouseAtomicSnapshotPublisher:
        world = self._world
        guard = world.activations.guard(publication.intent.target.guard_id)
        if guard is None:
            raise NotEnrolled("the guard of this publication is not enrolled any more")
        return ClickHouseAtomicSnapshotPublisher(
            authority=world.authority,
            store=world.publications,
            catalog=SnapshotCatalog(world.target.control, guard.enrolment),
            executor=NoExecutor(),
        )


def is_stand_in(world: World) -> bool:
    """Whether the target is the local development server; it says so in its display name."""
    with world.target.control.fresh() as control:
        return "dpone-local" in control.display_name()


def unknown(stored: StoredAttempt) -> PublicationUnknown:
    """The error for an attempt that observation cannot settle."""
    short = stored.sha256[7:19]
    return PublicationUnknown(
        f"attempt {stored.sha256} is COMMIT_UNKNOWN: what the target shows proves neither outcome. Look at it with "
        f"`dpone-airflow show {short}`; after repair run `dpone-airflow reconcile {short}`, or let an administrator "
        f"decide with `dpone-airflow adjudicate {short}`; then clear the task",
        attempt=stored.sha256,
    )


def plan_digest(*values: str) -> str:
    """Digest of an operator's rendered values."""
    return digest_of("\x1f".join(("dpone.plan.v1", *values)).encode())


def _unproved(publication: StoredPublication) -> bool:
    """Unknown because closing or observing failed, not because what was seen contradicts both outcomes."""
    record = publication.record
    return record.state is PublicationState.COMMIT_UNKNOWN and (record.closure is None or record.observation is None)


def _state(publication: StoredPublication | None, done: bool) -> AttemptState:
    if publication is None and done:
        return AttemptState.SUCCEEDED
    if publication is None or publication.record.state is PublicationState.NOT_PUBLISHED:
        return AttemptState.FAILED
    if publication.record.state is PublicationState.PUBLISHED:
        return AttemptState.SUCCEEDED
    return AttemptState.COMMIT_UNKNOWN
