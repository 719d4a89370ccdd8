"""The ledger as a few dictionaries: what must be allowed, what must be refused. Knows nothing of databases."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_dpone.contracts.states import ActivationState, AttemptState, DispatchState, GateState, Purpose

OPEN = (AttemptState.RUNNING, AttemptState.COMMIT_UNKNOWN)


@dataclass
class ModelPrincipal:
    attempt: str
    purpose: Purpose
    state: GateState = GateState.JOURNALED
    dispatches: dict[str, DispatchState] = field(default_factory=dict)


@dataclass
class ModelAttempt:
    table: str
    state: AttemptState = AttemptState.RUNNING
    fenced: bool = False
    publisher: str | None = None
    """Name in the publication's intent; None without a publication."""
    claimed: bool = False


@dataclass
class LedgerModel:
    """One activation over a few tables."""

    activation: ActivationState = ActivationState.ACTIVE
    attempts: dict[str, ModelAttempt] = field(default_factory=dict)
    principals: dict[str, ModelPrincipal] = field(default_factory=dict)

    def holder(self, table: str) -> str | None:
        return next((k for k, a in self.attempts.items() if a.table == table and a.state in OPEN), None)

    def may_admit(self, table: str) -> bool:
        return self.activation is ActivationState.ACTIVE and self.holder(table) is None

    def acting(self, attempt: str) -> bool:
        found = self.attempts[attempt]
        return found.state is AttemptState.RUNNING and not found.fenced

    def may_ready(self, name: str) -> bool:
        found = self.principals[name]
        return found.state is GateState.JOURNALED and self.acting(found.attempt)

    def may_dispatch(self, name: str) -> bool:
        found = self.principals[name]
        return found.state is GateState.READY and self.acting(found.attempt)

    def close(self, name: str) -> None:
        found = self.principals[name]
        found.state = GateState.CLOSED
        for dispatch, state in found.dispatches.items():
            if state is DispatchState.CLAIMED:
                found.dispatches[dispatch] = DispatchState.SETTLED

    def may_prepare(self, attempt: str) -> bool:
        return self.acting(attempt) and self.attempts[attempt].publisher is None

    def may_claim(self, attempt: str) -> bool:
        found = self.attempts[attempt]
        return found.publisher is not None and not found.claimed and self.may_dispatch(found.publisher)

    def may_end(self, attempt: str, before: AttemptState, state: AttemptState) -> bool:
        found = self.attempts[attempt]
        if found.state is not before or (state is AttemptState.COMMIT_UNKNOWN and before is not AttemptState.RUNNING):
            return False
        if state is AttemptState.COMMIT_UNKNOWN:
            return True
        mine = [p for p in self.principals.values() if p.attempt == attempt]
        return (
            all(p.state is GateState.CLOSED for p in mine)
            and all(s is not DispatchState.CLAIMED for p in mine for s in p.dispatches.values())
            and found.publisher is None  # an unresolved publication is never ended over
        )

    def may_retire(self) -> bool:
        return (
            self.activation is ActivationState.RETIRING
            and all(a.state not in OPEN for a in self.attempts.values())
            and all(p.state is GateState.CLOSED for p in self.principals.values())
        )
