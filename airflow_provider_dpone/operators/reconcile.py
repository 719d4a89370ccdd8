"""Settle attempts that nobody is working on: the reaper's task, also usable by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseOperator

from airflow_provider_dpone.attempts.settle import Cause, Settler
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.attempts.world import World
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.errors import ActivationMissing, DponeError
from airflow_provider_dpone.hooks.control import DponeControlHook
from airflow_provider_dpone.hooks.targets import world_behind
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore, StoredAttempt
from airflow_provider_dpone.ledger.transaction import Ledger
from airflow_provider_dpone.operators.scheduler import finished


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
