"""Settle attempts that nobody is working on, and record what a person decided about one that stays unknown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_dpone.attempts.settle import Cause, Settler
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.attempts.world import World, utc_now
from airflow_provider_dpone.contracts.proofs import Adjudication, Established, Outcome
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.contracts.states import TERMINAL_ATTEMPTS, AttemptState, GateState
from airflow_provider_dpone.errors import ActivationMissing, AdjudicationRefused, DponeError
from airflow_provider_dpone.hooks.control import DponeControlHook
from airflow_provider_dpone.hooks.targets import world_behind
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore, StoredAttempt
from airflow_provider_dpone.ledger.journal import LedgerJournal
from airflow_provider_dpone.ledger.publications import LedgerPublicationStore
from airflow_provider_dpone.ledger.transaction import Ledger
from airflow_provider_dpone.triggers.scheduler import finished


class ReconcileOperator(BaseOperator):
    """Fence and settle every open attempt whose task Airflow reports finished; drop users that came back.

    Runs in a small DAG of its own (the reaper). It never copies, issues or swaps anything. An attempt that cannot be
    settled now stays held; the task fails at the end and names it, so that somebody sees it.

    :param control_conn_id: the control database.
    :param attempt: settle only the attempt whose digest starts with this, whatever Airflow says of its task.

    Returns one line per attempt: its digest, workload and state, or the code that kept it open.
    """

    template_fields = ("attempt",)

    def __init__(self, *, control_conn_id: str = "dpone_control", attempt: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.control_conn_id = control_conn_id
        self.attempt = attempt
        self._stop = StopFlag()

    def execute(self, context: Any) -> list[dict[str, str]]:
        """Settle what can be settled.

        :raises DponeError: the first attempt that could not be settled, after all others were tried.
        """
        ledger = DponeControlHook(self.control_conn_id).ledger()
        results: list[dict[str, str]] = []
        failed: DponeError | None = None
        for stored in CompositionAttemptStore(ledger).all_open():
            self._stop.check()
            if self.attempt and not stored.sha256.removeprefix("sha256:").startswith(self.attempt):
                continue
            if not self.attempt and not finished(stored.identity.coordinates):
                results.append(_line(stored, "at work"))
                continue
            try:
                ended = settle_one(ledger, stored)
                results.append(_line(ended, ended.state.name))
                self.log.info(
                    "attempt %s of %s: %s", stored.sha256[7:19], stored.identity.workload_id, ended.state.name
                )
            except DponeError as error:
                failed = failed or error
                results.append(_line(stored, error.code))
                self.log.warning("attempt %s stays open: %s", stored.sha256[7:19], error)
        if not self.attempt:
            try:
                self._sweep(ledger)
            except DponeError as error:
                failed = failed or error
        self.log.info("%d attempts looked at, %s", len(results), datetime.now(UTC).isoformat(timespec="seconds"))
        if failed is not None:
            raise failed
        return results

    def _sweep(self, ledger: Ledger) -> None:
        """Drop users that came back, on every server a release in force writes to."""
        in_force = CompositionActivationStore(ledger).in_force()
        for conn_id in sorted({w.target_conn_id for activation in in_force for w in activation.release.workloads()}):
            self._stop.check()
            for name in Settler(world_behind(ledger, conn_id)).sweep():
                self.log.warning("user %s was back on the server of %s although its gate is CLOSED", name, conn_id)

    def on_kill(self) -> None:
        """Stop before the next attempt; settling resumes where it was."""
        self._stop.set("killed by Airflow")


class AdjudicateOperator(BaseOperator):
    """Record an administrator's decision about an attempt that observation cannot settle (COMMIT_UNKNOWN).

    Stands behind an approval task; see ``dags_examples/decide.py``. The decision stays in the ledger for good; enrol
    the target again before its next run.

    :param attempt: beginning of the attempt's digest.
    :param state: ``SUCCEEDED`` or ``FAILED``.
    :param statement: what was looked at and why this is so.
    :param decided_by: who decides.
    :param control_conn_id: the control database, as its administrator.

    Returns the attempt's digest, workload and state.
    """

    template_fields = ("attempt", "state", "statement", "decided_by")

    def __init__(
        self,
        *,
        attempt: str,
        state: str,
        statement: str,
        decided_by: str,
        control_conn_id: str = "dpone_control_admin",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.attempt = attempt
        self.state = state
        self.statement = statement
        self.decided_by = decided_by
        self.control_conn_id = control_conn_id

    def execute(self, context: Any) -> dict[str, str]:
        """Record it.

        :raises AirflowFailException: the decision is refused (a state that is none, an attempt that is not unknown, a
            statement that contradicts what was observed); the message starts with its code.
        """
        try:
            ledger = DponeControlHook(self.control_conn_id).ledger()
            stored = CompositionAttemptStore(ledger).find(self.attempt)
            ended = adjudicate(ledger, decision(stored, self.state, self.decided_by, self.statement))
        except DponeError as error:
            if error.retryable:
                raise
            raise AirflowFailException(str(error)) from None
        self.log.info("attempt %s is %s, as %s decided", ended.sha256[7:19], ended.state.name, self.decided_by)
        return _line(ended, ended.state.name)


def decision(stored: StoredAttempt, state: str, by: str, statement: str) -> Adjudication:
    """The document an administrator signs off.

    :raises AdjudicationRefused: ``state`` is none an attempt can end in, or nobody or nothing stands behind it.
    """
    if state not in ("SUCCEEDED", "FAILED") or not by.strip() or not statement.strip():
        raise AdjudicationRefused(
            f"a decision is SUCCEEDED or FAILED, by somebody, with a statement of what was looked at; not {state!r} by "
            f"{by!r}: {statement!r}"
        )
    return Adjudication(
        attempt_sha256=stored.sha256,
        state=AttemptState[state],
        decided_by=by,
        statement=statement,
        decided_at=utc_now(),
    )


def adjudicate(ledger: Ledger, signed: Adjudication) -> StoredAttempt:
    """Record a decision and end the attempt with it. Its server is asked only for gates that are still open."""
    store = CompositionAttemptStore(ledger)
    stored = store.find(signed.attempt_sha256)
    cause = Cause("DPONE_ADJUDICATED", signed.statement)
    if stored.state is not AttemptState.COMMIT_UNKNOWN or open_gates(ledger, stored):
        return Settler(world_of(ledger, stored)).resolve(stored.sha256, cause, adjudication=signed)
    publication = LedgerPublicationStore(ledger).of_attempt(stored.sha256)
    outcome = Outcome(
        attempt_sha256=stored.sha256,
        state=signed.state,
        code=None if signed.state is AttemptState.SUCCEEDED else cause.code,
        reason=cause.reason,
        publication_sha256=None if publication is None else publication.record.digest(),
        observed_at=utc_now(),
    )
    return store.end(stored.sha256, stored.state, outcome, None, signed)


def open_gates(ledger: Ledger, stored: StoredAttempt) -> list[str]:
    """Names of the principals of an attempt whose gates are not CLOSED."""
    principals = LedgerJournal(ledger, stored.sha256).principals()
    return sorted(p.name for p in principals if p.state is not GateState.CLOSED)


def establish(
    ledger: Ledger, stored: StoredAttempt, by: str, statement: str
) -> tuple[StoredAttempt, Established | None]:
    """End an attempt whose gates or target are out of reach for good as COMMIT_UNKNOWN, as a person established.

    It is fenced and settled first, if that can be done after all; only what refuses that is signed off.

    :returns: the attempt, and what was recorded; None when observation ended it.
    :raises AdjudicationRefused: it has ended, or nobody or nothing stands behind the document.
    """
    if stored.state in TERMINAL_ATTEMPTS:
        raise AdjudicationRefused(
            f"attempt {stored.sha256[7:19]} is {stored.state.name}: there is nothing to establish"
        )
    if not by.strip() or not statement.strip():
        raise AdjudicationRefused(
            "somebody must say what was looked at, and why none of the principals can act any more"
        )
    store = CompositionAttemptStore(ledger)
    store.fence(stored.sha256)
    try:
        return settle_one(ledger, stored), None
    except DponeError as error:
        signed = Established(
            attempt_sha256=stored.sha256,
            principals=tuple(open_gates(ledger, stored)),
            refusal=str(error)[:512],
            established_by=by,
            statement=statement,
            established_at=utc_now(),
        )
    return store.establish(signed), signed


def declaration_of(ledger: Ledger, stored: StoredAttempt) -> WorkloadDeclaration:
    """The declaration an attempt was admitted under, from its release."""
    activation = CompositionActivationStore(ledger).read_exact(stored.identity.activation_sha256)
    for declaration in activation.release.workloads():
        if declaration.workload_id == stored.identity.workload_id:
            return declaration
    raise ActivationMissing(f"the release of attempt {stored.sha256} does not contain {stored.identity.workload_id}")


def world_of(ledger: Ledger, stored: StoredAttempt) -> World[Any]:
    """Ledger and target of an attempt, through its declared connection."""
    return world_behind(ledger, declaration_of(ledger, stored).target_conn_id)


def settle_one(ledger: Ledger, stored: StoredAttempt) -> StoredAttempt:
    """Fence and settle one attempt."""
    return Settler(world_of(ledger, stored)).settle(stored, Cause("DPONE_FENCED", "settled by the reaper"))


def _line(stored: StoredAttempt, state: str) -> dict[str, str]:
    return {"attempt": stored.sha256, "workload": stored.identity.workload_id, "state": state}
