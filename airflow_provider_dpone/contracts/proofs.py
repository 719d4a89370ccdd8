"""Append-only evidence: what was seen when a gate closed, when the server was quiet, and how an attempt ended."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from airflow_provider_dpone.contracts.canonical import Counter, Digest, Document, Text, Uuid, require_sorted_unique
from airflow_provider_dpone.contracts.states import AttemptState, Connector, Family


class ProofKind(StrEnum):
    """The triplet every resolved attempt carries."""

    CLOSED_GATES = "closed_gates"
    QUIESCENCE = "quiescence"
    OUTCOME = "outcome"


class ProofAuthority(Document):
    """One issued principal a proof speaks about."""

    connector: Connector
    service_id: Text
    name: Text

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


class AttemptProof(Document):
    """One member of the proof triplet, over the complete journal of principals of an attempt."""

    schema_name: Literal["dpone.attempt_proof.v1"] = Field(default="dpone.attempt_proof.v1")
    family: Family
    kind: ProofKind
    attempt_sha256: Digest
    activation_sha256: Digest
    guard_epochs_sha256: Digest
    authorities: Annotated[tuple[ProofAuthority, ...], Field(max_length=8192)]
    evidence_sha256: tuple[Digest, ...]
    """Digests of the originals this proof rests on, sorted."""
    outcome_state: AttemptState | None

    @model_validator(mode="after")
    def _consistent(self) -> AttemptProof:
        require_sorted_unique(self.authorities, "authorities")
        require_sorted_unique(self.evidence_sha256, "evidence_sha256")
        if (self.kind is ProofKind.OUTCOME) != (self.outcome_state is not None):
            raise ValueError("only an outcome proof carries an outcome state, and it always does")
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
