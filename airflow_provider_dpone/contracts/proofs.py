"""Append-only evidence: what was seen when a gate closed, when the server was quiet, and how an attempt ended."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from airflow_provider_dpone.contracts.canonical import Counter, Digest, Document, Text, Uuid, require_sorted_unique
from airflow_provider_dpone.contracts.states import AttemptState, Connector, DispatchState, Family, Purpose


class ProofKind(StrEnum):
    """The triplet every resolved attempt carries."""

    CLOSED_GATES = "closed_gates"
    QUIESCENCE = "quiescence"
    OUTCOME = "outcome"


class ProofAuthority(Document):
    """One issued principal a proof speaks about, as the journal has it."""

    connector: Connector
    service_id: Text
    name: Text
    purpose: Purpose
    principal_uuid: Uuid | None
    """UUID the server gave it, or was to give it; null when it never was READY."""

    def __lt__(self, other: ProofAuthority) -> bool:
        return (self.connector, self.service_id, self.name) < (other.connector, other.service_id, other.name)


class GateClosure(Document):
    """What closing one principal's gate showed, on a fresh connection, through a view proved complete."""

    schema_name: Literal["dpone.gate_closure.v1"] = Field(default="dpone.gate_closure.v1")
    connector: Connector
    service_id: Text
    name: Text
    principal_uuid: Uuid | None
    """UUID of the principal that was removed; null when it was never created."""
    tombstone_uuid: Uuid | None
    """UUID of the disabled principal kept under the name; null when the principal was dropped."""
    steps: tuple[Text, ...]
    """The closing steps in order, each with its answer."""
    server_started_at: Text
    server_uptime_seconds: Counter
    closed_at: Text


class Quiescence(Document):
    """The server showed nothing of the principal any more, through a view proved complete."""

    connector: Connector
    service_id: Text
    name: Text
    control_seen: Text
    """The positive control: a known other query or session of ours that the view did show."""
    observed_at: Text


class QuiescenceObservation(Quiescence):
    """ClickHouse showed no session, query, pending insert or mutation of the principal."""

    schema_name: Literal["dpone.quiescence.v1"] = Field(default="dpone.quiescence.v1")
    queries: Literal[0]
    pending_inserts: Literal[0]
    unfinished_mutations: Literal[0]


class SessionQuiescence(Quiescence):
    """A SQL server showed no session, prepared transaction or unexplained lock of the principal."""

    schema_name: Literal["dpone.session_quiescence.v1"] = Field(default="dpone.session_quiescence.v1")
    sessions: Literal[0]
    prepared_transactions: Literal[0]
    unattributed_locks: Literal[0]


class ProofDispatch(Document):
    """One claimed statement of an attempt, as the journal has it once its gate is closed."""

    dispatch_id: Uuid
    name: Text
    """The principal it was claimed under."""
    kind: Text
    statement: Annotated[str, Field(max_length=4096, strict=True)]
    state: DispatchState
    note: Annotated[str, Field(max_length=512, strict=True)] | None

    def __lt__(self, other: ProofDispatch) -> bool:
        return self.dispatch_id < other.dispatch_id


class AttemptProof(Document):
    """One member of the proof triplet, over the complete journal of principals of an attempt.

    The ledger's database rebuilds the whole document from its rows and takes no other.
    """

    schema_name: Literal["dpone.attempt_proof.v1"] = Field(default="dpone.attempt_proof.v1")
    family: Family
    kind: ProofKind
    attempt_sha256: Digest
    activation_sha256: Digest
    guard_epochs_sha256: Digest
    authorities: Annotated[tuple[ProofAuthority, ...], Field(max_length=8192)]
    dispatches: tuple[ProofDispatch, ...] | None
    """Every statement that was claimed: in the proof of closed gates, and only there."""
    evidence_sha256: tuple[Digest, ...]
    """Digests of the originals this proof rests on, sorted: of an outcome what its producer saw, kept or decided."""
    outcome_state: AttemptState | None

    @model_validator(mode="after")
    def _consistent(self) -> AttemptProof:
        require_sorted_unique(self.authorities, "authorities")
        require_sorted_unique(self.evidence_sha256, "evidence_sha256")
        if (self.kind is ProofKind.OUTCOME) != (self.outcome_state is not None):
            raise ValueError("only an outcome proof carries an outcome state, and it always does")
        if (self.kind is ProofKind.CLOSED_GATES) != (self.dispatches is not None):
            raise ValueError("only a proof of closed gates carries dispatches, and it always does")
        require_sorted_unique(self.dispatches or (), "dispatches")
        if self.outcome_state is AttemptState.RUNNING:
            raise ValueError("RUNNING is not an outcome")
        return self


class Outcome(Document):
    """How an attempt ended and on what observation that rests."""

    schema_name: Literal["dpone.outcome.v1"] = Field(default="dpone.outcome.v1")
    attempt_sha256: Digest
    state: AttemptState
    code: Text | None
    """Code of the error that ended it, if any."""
    reason: Annotated[str, Field(max_length=512, strict=True)]
    publication_sha256: Digest | None
    """Digest of the last publication record, when there is a publication."""
    observed_at: Text

    @model_validator(mode="after")
    def _ended(self) -> Outcome:
        if self.state is AttemptState.RUNNING:
            raise ValueError("RUNNING is not an outcome")
        return self


class Adjudication(Document):
    """An administrator's signed-off decision for an attempt that observation cannot settle."""

    schema_name: Literal["dpone.adjudication.v1"] = Field(default="dpone.adjudication.v1")
    attempt_sha256: Digest
    state: AttemptState
    decided_by: Text
    statement: Text
    decided_at: Text

    @model_validator(mode="after")
    def _decided(self) -> Adjudication:
        if self.state not in (AttemptState.SUCCEEDED, AttemptState.FAILED):
            raise ValueError("an adjudication decides SUCCEEDED or FAILED")
        return self


class Mark(Document):
    """That an attempt was fenced, or its success acknowledged: the original behind the flag of its row."""

    schema_name: Literal["dpone.mark.v1"] = Field(default="dpone.mark.v1")
    attempt_sha256: Digest
    mark: Literal["fenced", "acknowledged"]


class Established(Document):
    """What an administrator established outside about gates that can never be closed through us.

    It closes them in the ledger and ends their attempt as COMMIT_UNKNOWN; an :class:`Adjudication` then decides it.
    """

    schema_name: Literal["dpone.established.v1"] = Field(default="dpone.established.v1")
    attempt_sha256: Digest
    principals: tuple[Text, ...]
    """Names of the principals that were not CLOSED, sorted."""
    refusal: Annotated[str, Field(min_length=1, max_length=512, strict=True)]
    """Why they could not be closed when it was tried, with its code."""
    established_by: Text
    statement: Text
    """What was looked at, and why nothing of these principals can act any more."""
    established_at: Text

    @model_validator(mode="after")
    def _set(self) -> Established:
        require_sorted_unique(self.principals, "principals")
        return self


class Adoption(Document):
    """An administrator's word that a copy or restore is the ledger from now on, and the original is gone."""

    schema_name: Literal["dpone.adoption.v1"] = Field(default="dpone.adoption.v1")
    service_id: Uuid
    before: Text
    after: Text
    adopted_by: Text
    statement: Text
    adopted_at: Text
