"""The immutable plan of one EXCHANGE, its record, and how an observation is judged."""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from airflow_provider_dpone.contracts.canonical import ContentSum, Counter, Digest, Document, Text, Uuid
from airflow_provider_dpone.contracts.columns import ColumnName
from airflow_provider_dpone.contracts.limits import LimitsDocument
from airflow_provider_dpone.contracts.states import PUBLICATION_MOVES, PUBLICATION_REVISIONS, Family, PublicationState

_EXCHANGE_NAMESPACE = uuid.UUID("5f0c0f3e-3d0a-5c38-9d4c-8a3f6d0f8f11")
TableName = Annotated[str, Field(min_length=1, max_length=206, strict=True)]


class SnapshotTarget(Document):
    """The protected slot: one Atomic database on one server, the target name and the private generation name."""

    schema_name: Literal["dpone.snapshot_target.v1"] = Field(default="dpone.snapshot_target.v1")
    service_id: Uuid
    """``serverUUID()`` of the ClickHouse server."""
    database_id: Uuid
    database: TableName
    target_table: TableName
    generation_table: TableName
    guard_id: Digest
    enrolment_sha256: Digest

    @model_validator(mode="after")
    def _two_names(self) -> SnapshotTarget:
        if self.target_table == self.generation_table:
            raise ValueError("target and generation must be two names")
        return self


class Content(Document):
    """Order-independent content of a table: rows, and the sum of SHA-256 over each row's RowBinary, modulo 2^256."""

    schema_name: Literal["dpone.content.v1"] = Field(default="dpone.content.v1")
    rows: Counter
    row_sum: ContentSum


class IssuedPrincipal(Document):
    """A one-time user: its random name and the UUID the server gave it."""

    name: Text
    uuid: Uuid


class SourceSnapshotRef(Document):
    """Where the rows came from: one consistent snapshot of one relation."""

    connector: Text
    service_id: Text
    relation: Text
    snapshot_id: Text
    taken_at: Text
    """UTC, ISO 8601."""
    left_out: tuple[ColumnName, ...] = ()
    """Columns of the source that the author chose not to transfer, sorted."""

    written_unless_default: ClassVar[frozenset[str]] = frozenset({"left_out"})


class GenerationRecord(Document):
    """A sealed generation B beside the target A, reconciled in two independent ways."""

    schema_name: Literal["dpone.generation.v1"] = Field(default="dpone.generation.v1")
    family: Family
    attempt_sha256: Digest
    target: SnapshotTarget
    source: SourceSnapshotRef
    old_target_uuid: Uuid
    generation_uuid: Uuid
    design_sha256: Digest
    """Digest of the accepted physical design both tables carry."""
    content: Content
    parts_sha256: Digest
    """Digest of the sorted part hashes of B when it was sealed."""
    source_aggregates_sha256: Digest
    target_aggregates_sha256: Digest
    limits: LimitsDocument
    source_bytes: Counter
    wire_bytes: Counter
    generation_bytes: Counter
    old_target_bytes: Counter
    retained_bytes: Counter
    """Bytes of generations retained from earlier publications; the old target is counted apart."""
    ingest: IssuedPrincipal
    closed_ingest_sha256: Digest
    """Evidence that the ingest user was closed and quiet before B was sealed."""

    @model_validator(mode="after")
    def _within_limits(self) -> GenerationRecord:
        limits = self.limits
        checks = (
            (self.content.rows, limits.max_rows, "rows"),
            (self.source_bytes, limits.max_source_bytes, "source_bytes"),
            (self.wire_bytes, limits.max_wire_bytes, "wire_bytes"),
            (self.generation_bytes, limits.max_generation_bytes, "generation_bytes"),
            (self.old_target_bytes + self.retained_bytes, limits.max_retained_bytes, "retained_bytes"),
            (
                self.generation_bytes + self.old_target_bytes + self.retained_bytes,
                limits.max_total_transient_bytes,
                "total_transient_bytes",
            ),
        )
        for value, ceiling, name in checks:
            if value > ceiling:
                raise ValueError(f"{name} {value} is above its ceiling {ceiling}")
        if self.old_target_uuid == self.generation_uuid:
            raise ValueError("A and B must be two tables")
        if self.source_aggregates_sha256 != self.target_aggregates_sha256:
            raise ValueError("source and target aggregates differ")
        return self


class SnapshotIntent(Document):
    """The immutable plan of one EXCHANGE. Its digest names it, and gives the query id of the one statement."""

    schema_name: Literal["dpone.snapshot_intent.v1"] = Field(default="dpone.snapshot_intent.v1")
    family: Family
    activation_sha256: Digest
    attempt_sha256: Digest
    generation_sha256: Digest
    target: SnapshotTarget
    old_target_uuid: Uuid
    generation_uuid: Uuid
    design_sha256: Digest
    content: Content
    parts_sha256: Digest
    limits: LimitsDocument
    ingest: IssuedPrincipal
    publisher: IssuedPrincipal
    closed_ingest_sha256: Digest

    @model_validator(mode="after")
    def _two_principals(self) -> SnapshotIntent:
        if self.ingest.name == self.publisher.name or self.ingest.uuid == self.publisher.uuid:
            raise ValueError("ingest and publisher must be two principals")
        if self.old_target_uuid == self.generation_uuid:
            raise ValueError("A and B must be two tables")
        return self

    def query_id(self) -> str:
        """The ClickHouse ``query_id`` of the one EXCHANGE, derived from the digest of the intent."""
        return exchange_query_id(self.digest())


def exchange_query_id(intent_sha256: str) -> str:
    """The ClickHouse ``query_id`` of the one EXCHANGE of an intent."""
    return str(uuid.uuid5(_EXCHANGE_NAMESPACE, intent_sha256))


class PublisherClosure(Document):
    """Evidence digests: the publisher's gate is closed and the server is quiet of it."""

    intent_sha256: Digest
    closed_gates_sha256: Digest
    quiescence_sha256: Digest


class CatalogObservation(Document):
    """What both names carried at one moment, complete or explicitly unknown (null is never zero)."""

    schema_name: Literal["dpone.snapshot_observation.v1"] = Field(default="dpone.snapshot_observation.v1")
    target: SnapshotTarget
    service_id: Uuid
    database_engine: Text
    target_uuid: Uuid | None
    generation_uuid: Uuid | None
    target_design_sha256: Digest | None
    generation_design_sha256: Digest | None
    target_content: Content | None
    """Content of the table now under the target name; null when equal part hashes make reading it needless."""
    generation_content: Content | None
    target_parts_sha256: Digest | None
    generation_parts_sha256: Digest | None
    unsupported: tuple[Text, ...]
    """Sorted names of anything that forbids a conclusion: views, mutations, policies, writers, other engines."""
    observed_at: Text


class PublicationRecord(Document):
    """State of an intent, with everything that justifies it."""

    schema_name: Literal["dpone.publication.v1"] = Field(default="dpone.publication.v1")
    intent_sha256: Digest
    state: PublicationState
    revision: Annotated[Counter, Field(ge=1)]
    closure: PublisherClosure | None
    observation: CatalogObservation | None
    reason: Text | None
    """For COMMIT_UNKNOWN and NOT_PUBLISHED: why, in a word or two."""

    @model_validator(mode="after")
    def _reachable(self) -> PublicationRecord:
        low, high = PUBLICATION_REVISIONS[self.state]
        if self.revision < low or (high is not None and self.revision > high):
            raise ValueError(f"state {self.state.name} cannot carry revision {self.revision}")
        if self.state in (PublicationState.PREPARED, PublicationState.EXCHANGE_INTENT):
            if self.closure is not None or self.observation is not None:
                raise ValueError(f"state {self.state.name} has no closure and no observation yet")
        elif self.state is not PublicationState.COMMIT_UNKNOWN and (self.closure is None or self.observation is None):
            raise ValueError(f"state {self.state.name} needs a closure and an observation")
        if self.closure is not None and self.closure.intent_sha256 != self.intent_sha256:
            raise ValueError("the closure belongs to another intent")
        return self

    def next(
        self,
        state: PublicationState,
        *,
        closure: PublisherClosure | None = None,
        observation: CatalogObservation | None = None,
        reason: str | None = None,
    ) -> PublicationRecord:
        """The following record; refuses a move that the state table does not allow."""
        if state not in PUBLICATION_MOVES[self.state]:
            raise ValueError(f"a publication cannot move from {self.state.name} to {state.name}")
        return PublicationRecord(
            intent_sha256=self.intent_sha256,
            state=state,
            revision=self.revision + 1,
            closure=closure,
            observation=observation,
            reason=reason,
        )


class Verdict(Document):
    """The state an observation proves, and what is otherwise than prepared, where anything is."""

    state: PublicationState
    reason: Text | None


def shown(intent: SnapshotIntent, seen: CatalogObservation) -> str:
    """What both names carried, for people."""
    words = {intent.old_target_uuid: "the old table", intent.generation_uuid: "the new table", None: "no table"}
    at = intent.target
    return ", ".join(
        f"{at.database}.{name} carries {words.get(carried, f'another table ({carried})')}"
        for name, carried in ((at.target_table, seen.target_uuid), (at.generation_table, seen.generation_uuid))
    )


def judge(intent: SnapshotIntent, seen: CatalogObservation, *, never_sent: bool = False) -> Verdict:
    """Decide an outcome from one complete observation after closure; anything not proved is COMMIT_UNKNOWN.

    PUBLISHED: the target name carries B, the generation name carries A, designs are as accepted and the content of
    the target is that of the intent (equal part hashes, else equal digest). NOT_PUBLISHED: the names carry A and B
    unchanged.

    :param never_sent: no byte of the EXCHANGE was sent, and now none can be. Then A and B under their names are enough
        for NOT_PUBLISHED, whatever became of them and around them; the reason names that.
    """
    as_it_was = (seen.target_uuid, seen.generation_uuid) == (intent.old_target_uuid, intent.generation_uuid)

    def unknown(reason: str) -> Verdict:
        if never_sent and as_it_was and reason != "foreign_target":
            return Verdict(state=PublicationState.NOT_PUBLISHED, reason=reason)
        return Verdict(state=PublicationState.COMMIT_UNKNOWN, reason=reason)

    if seen.target != intent.target or seen.service_id != intent.target.service_id:
        return unknown("foreign_target")
    if seen.database_engine != "Atomic":
        return unknown("database_engine")
    if seen.unsupported:
        return unknown(("unsupported:" + ",".join(seen.unsupported))[:512])
    if seen.target_uuid is None or seen.generation_uuid is None:
        return unknown("table_missing")
    if seen.target_design_sha256 != intent.design_sha256 or seen.generation_design_sha256 != intent.design_sha256:
        return unknown("design_changed")
    pair = (seen.target_uuid, seen.generation_uuid)
    if pair == (intent.generation_uuid, intent.old_target_uuid):
        state, content, parts = PublicationState.PUBLISHED, seen.target_content, seen.target_parts_sha256
    elif pair == (intent.old_target_uuid, intent.generation_uuid):
        state, content, parts = PublicationState.NOT_PUBLISHED, seen.generation_content, seen.generation_parts_sha256
    else:
        return unknown("foreign_uuid")
    if parts != intent.parts_sha256 and content != intent.content:
        return unknown("content_differs" if content is not None else "content_unread")
    return Verdict(state=state, reason=None)
