"""What an operator returns: state, digests, counts and timings. Never a secret."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from airflow_provider_dpone.contracts.canonical import ContentSum, Counter, Digest, Document, Text, Uuid
from airflow_provider_dpone.contracts.columns import ColumnName
from airflow_provider_dpone.contracts.states import Family


class SnapshotReceipt(Document):
    """Receipt of a published snapshot."""

    schema_name: Literal["dpone.snapshot_receipt.v1"] = Field(default="dpone.snapshot_receipt.v1")
    family: Family
    stand_in: bool
    """True when the target is the local development server."""
    state: Literal["PUBLISHED"]
    reused: bool
    """True when this try found the publication of its own earlier try and copied nothing."""
    workload_id: Text
    attempt_sha256: Digest
    intent_sha256: Digest
    publication_sha256: Digest
    target: Text
    target_uuid: Uuid
    retained_table: Text
    source: Text
    snapshot_taken_at: Text
    rows: Counter
    row_sum: ContentSum
    source_bytes: Counter
    wire_bytes: Counter
    generation_bytes: Counter
    milliseconds: dict[str, Counter]
    """Wall-clock milliseconds per step."""
    left_out: tuple[ColumnName, ...] = ()
    """Columns of the source that the author chose not to transfer, sorted."""

    written_unless_default: ClassVar[frozenset[str]] = frozenset({"left_out"})


class RetentionReceipt(Document):
    """Receipt of a retention step: which retained generations were removed and which were kept."""

    schema_name: Literal["dpone.retention_receipt.v1"] = Field(default="dpone.retention_receipt.v1")
    family: Family
    workload_id: Text
    attempt_sha256: Digest | None
    target: Text
    removed: tuple[Text, ...]
    kept: tuple[Text, ...]
    freed_bytes: Counter


class LoadReceipt(Document):
    """Receipt of a load: the target held exactly these rows when its one transaction was committed."""

    schema_name: Literal["dpone.load_receipt.v1"] = Field(default="dpone.load_receipt.v1")
    family: Family
    stand_in: bool
    """True when the target is a local development server."""
    state: Literal["LOADED"]
    reused: bool
    """True when this try found the load of its own earlier try still standing and copied nothing."""
    workload_id: Text
    attempt_sha256: Digest
    load_sha256: Digest
    """Digest of the load's record, which the target's own receipt row carries."""
    transaction: Text
    """The target's own name of the transaction."""
    target: Text
    source: Text
    snapshot_taken_at: Text
    rows: Counter
    row_sum: ContentSum
    source_bytes: Counter
    wire_bytes: Counter
    staging_bytes: Counter
    milliseconds: dict[str, Counter]
    """Wall-clock milliseconds per step."""
    left_out: tuple[ColumnName, ...] = ()
    """Columns of the source that the author chose not to transfer, sorted."""

    written_unless_default: ClassVar[frozenset[str]] = frozenset({"left_out"})
