"""What a load says: the target as it was, and the record that its one transaction carries into the target."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from airflow_provider_dpone.contracts.canonical import Counter, Digest, Document, Epoch, Text
from airflow_provider_dpone.contracts.limits import LimitsDocument
from airflow_provider_dpone.contracts.publication import Content, IssuedPrincipal, SourceSnapshotRef
from airflow_provider_dpone.contracts.states import Family


class TargetBaseline(Document):
    """A target table as it was before anybody could change it; an equal one later says that nobody did."""

    schema_name: Literal["dpone.target_baseline.v1"] = Field(default="dpone.target_baseline.v1")
    attempt_sha256: Digest
    """Whose baseline it is: the same state seen for another attempt is another document."""
    relation: Text
    table: Text
    """Its name without the schema."""
    relation_id: Text
    """The server's own identity of the table."""
    rows: Counter
    fingerprint: Text
    """Of the rows: what the engine changes whenever a committed statement adds, alters or removes one."""


class LoadRecord(Document):
    """Everything one load is; recorded before its commit is claimed, and written by its transaction into the target."""

    schema_name: Literal["dpone.load.v1"] = Field(default="dpone.load.v1")
    family: Family
    attempt_sha256: Digest
    guard_id: Digest
    epoch: Epoch
    target: Text
    relation_id: Text
    staging: Text
    source: SourceSnapshotRef
    content: Content
    source_aggregates_sha256: Digest
    target_aggregates_sha256: Digest
    limits: LimitsDocument
    source_bytes: Counter
    wire_bytes: Counter
    staging_bytes: Counter
    old_target_bytes: Counter
    baseline_sha256: Digest
    worker: IssuedPrincipal


class TargetReceipt(Document):
    """The receipt row of a load, as its target has it."""

    schema_name: Literal["dpone.target_receipt.v1"] = Field(default="dpone.target_receipt.v1")
    attempt_sha256: Digest
    relation: Text
    record_sha256: Digest
    """Digest of the record's bytes in the row, computed by the reader."""
    principal: Text
    """The login that wrote it, as the server saw it."""
    transaction: Text
