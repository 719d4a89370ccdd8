"""Brings any attempt to its end: fence it, close its gates, observe what happened, resolve it in the ledger.

Used by the attempt itself when it ends, by a later try, by a waiting task of another run, by the reaper and by the
reconcile operator. It resumes at the first step not proved and never copies, issues or sends anything. What cannot be
observed stays as it is: the guards remain held and a later call goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_dpone.attempts.world import Observed, World, utc_now
from airflow_provider_dpone.contracts.canonical import Document, digest_of
from airflow_provider_dpone.contracts.identity import TaskCoordinates
from airflow_provider_dpone.contracts.proofs import Adjudication, Outcome
from airflow_provider_dpone.contracts.states import (
    TERMINAL_ATTEMPTS,
    AttemptState,
    GateState,
)
from airflow_provider_dpone.errors import (
    AdjudicationRefused,
    CommitUnknown,
    Fenced,
    GuardHeld,
    LedgerBusy,
    LedgerMismatch,
    LedgerRule,
    LedgerUnavailable,
    PublicationUnknown,
)
from airflow_provider_dpone.ledger.attempts import StoredAttempt
from airflow_provider_dpone.ledger.journal import closed_principals
from airflow_provider_dpone.ledger.schema import EvidenceKind

logger = logging.getLogger(__name__)

#: What Airflow says of a task instance: True finished or superseded, False still to be waited for.
SchedulerView = Callable[[TaskCoordinates], bool]


@dataclass(frozen=True)
class Cause:
    """Why an attempt is brought to its end, for its outcome document."""

    code: str | None
    reason: str


class Settler:
    """Settles attempts on one target server, whatever their cell."""

    def __init__(self, world: World[Any]) -> None:
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
                raise self.unknown(ended)

    def resolve(
        self,
        attempt_sha256: str,
        cause: Cause,
        *,
        milliseconds: dict[str, int] | None = None,
        adjudication: Adjudication | None = None,
        done: Document | None = None,
    ) -> StoredAttempt:
        """Close what is open, observe what happened, and write the end of the attempt.

        :param done: the receipt of an attempt that itself did all it was admitted for, where its cell makes one.
        :raises AdjudicationRefused: observation may still settle it, so nobody decides.
        """
        world = self._world
        with world.together() as ledger:
            stored = ledger.attempts.read_exact(attempt_sha256)
            principals = ledger.journal(attempt_sha256).principals()
        if stored.state in TERMINAL_ATTEMPTS:
            return stored
        if adjudication is not None and stored.state is not AttemptState.COMMIT_UNKNOWN:
            raise AdjudicationRefused(
                f"attempt {attempt_sha256} is {stored.state.name}; run `dpone-airflow reconcile {attempt_sha256[7:19]}`"
            )
        unclosed = [principal.name for principal in principals if principal.state is not GateState.CLOSED]
        if unclosed:
            self._close_gates(attempt_sha256, unclosed)
        outcomes = world.outcomes(stored)
        if adjudication is not None:
            seen = Observed(adjudication.state, publication_sha256=outcomes.last_record(stored))
        else:
            seen = outcomes.observe(stored, milliseconds or {}, done)
        if seen.state is AttemptState.COMMIT_UNKNOWN and stored.state is AttemptState.COMMIT_UNKNOWN:
            return stored
        reason = seen.reason or cause.reason
        outcome = Outcome(
            attempt_sha256=attempt_sha256,
            state=seen.state,
            code=None if seen.state is AttemptState.SUCCEEDED else seen.code or cause.code,
            reason=reason.encode("utf-8", "replace").decode()[:512],
            publication_sha256=seen.publication_sha256,
            observed_at=utc_now(),
        )
        try:
            return world.attempts.end(attempt_sha256, stored.state, outcome, seen.receipt, adjudication)
        except LedgerRule:
            now = world.attempts.read_exact(attempt_sha256)
            if now.state is stored.state:
                raise
            return now  # another settler was first; what it recorded stands

    def unknown(self, stored: StoredAttempt) -> PublicationUnknown:
        """The error for an attempt that observation cannot settle: what was seen, and what to do."""
        short = stored.sha256[7:19]
        kept = self._world.attempts.originals(stored.sha256, EvidenceKind.OUTCOME)
        seen = Outcome.parse(kept[-1]).reason if kept else "its outcome is not in the ledger"
        return PublicationUnknown(
            f"attempt {stored.sha256} is COMMIT_UNKNOWN: what the target shows proves neither outcome ({seen}). Look "
            f"at it with `dpone-airflow show {short}`; after repair run `dpone-airflow reconcile {short}`, or let an "
            f"administrator decide with `dpone-airflow adjudicate {short}`; then clear the task",
            attempt=stored.sha256,
            seen=seen,
        )

    def sweep(self) -> list[str]:
        """Drop users that came back although their gates are CLOSED (a power loss can revert a DROP); their names.

        Users this ledger does not know are left alone: they may be another ledger's.
        """
        world = self._world
        closed = closed_principals(world.ledger, world.service_id, world.usable_names())
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


def plan_digest(*values: str) -> str:
    """Digest of an operator's rendered values."""
    return digest_of("\x1f".join(("dpone.plan.v1", *values)).encode())
