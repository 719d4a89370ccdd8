"""Publications in the ledger: the intent, each record, and the one claim that permits one EXCHANGE."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from airflow_provider_dpone.contracts.canonical import digest_bytes, digest_of
from airflow_provider_dpone.contracts.columns import TableAggregates
from airflow_provider_dpone.contracts.publication import GenerationRecord, PublicationRecord, SnapshotIntent
from airflow_provider_dpone.contracts.states import PublicationState
from airflow_provider_dpone.errors import (
    AlreadyClaimed,
    ClaimUncertain,
    CommitUnknown,
    DocumentInvalid,
    LedgerBusy,
    LedgerMismatch,
    LedgerRule,
    LedgerUnavailable,
)
from airflow_provider_dpone.ledger.journal import insert_claim, raise_fenced
from airflow_provider_dpone.ledger.schema import EvidenceKind, evidence, guard, publication
from airflow_provider_dpone.ledger.transaction import Ledger, Tx


@dataclass(frozen=True)
class StoredPublication:
    """A publication row with its documents parsed from complete originals."""

    intent: SnapshotIntent
    record: PublicationRecord


def _document(connection: Connection, sha256: bytes) -> bytes:
    raw = connection.execute(
        select(evidence.c.document).where(evidence.c.evidence_sha256 == sha256)
    ).scalar_one_or_none()
    if raw is None or digest_bytes(digest_of(bytes(raw))) != sha256:
        raise DocumentInvalid("an original document is missing or does not match its digest")
    return bytes(raw)


def _stored(connection: Connection, row: Any) -> StoredPublication:
    intent = SnapshotIntent.parse(_document(connection, bytes(row["intent_sha256"])))
    record = PublicationRecord.parse(_document(connection, bytes(row["record_sha256"])))
    if (int(record.state), record.revision, record.intent_sha256) != (row["state"], row["revision"], intent.digest()):
        raise DocumentInvalid("a publication row contradicts its record")
    return StoredPublication(intent, record)


class LedgerPublicationStore:
    """:class:`airflow_provider_dpone.contracts.ports.SnapshotPublicationStore` over the ledger."""

    def __init__(self, ledger: Ledger, before_claim: Callable[[], None] = lambda: None) -> None:
        """:param before_claim: asked last, just before the claim; raises when the task was asked to stop."""
        self._ledger = ledger
        self._before_claim = before_claim

    def persist_prepared(self, intent: SnapshotIntent) -> PublicationRecord:
        """Keep the intent and its PREPARED record, revision 1.

        :raises Fenced: the attempt is fenced or no longer RUNNING.
        """
        sha256 = intent.digest()
        record = PublicationRecord(
            intent_sha256=sha256,
            state=PublicationState.PREPARED,
            revision=1,
            closure=None,
            observation=None,
            reason=None,
        )

        def change(tx: Tx) -> None:
            tx.record(EvidenceKind.INTENT, intent.attempt_sha256, intent)
            tx.insert(
                publication,
                intent_sha256=digest_bytes(sha256),
                attempt_sha256=digest_bytes(intent.attempt_sha256),
                guard_id=digest_bytes(intent.target.guard_id),
                generation_table=intent.target.generation_table,
                old_target_uuid=uuid.UUID(intent.old_target_uuid),
                generation_uuid=uuid.UUID(intent.generation_uuid),
                state=int(record.state),
                revision=record.revision,
                record_sha256=digest_bytes(tx.record(EvidenceKind.PUBLICATION, sha256, record)),
            )

        try:
            self._ledger.write(change)
        except LedgerRule as error:
            raise_fenced(error)
            raise
        return record

    def read(self, intent_sha256: str) -> tuple[SnapshotIntent, PublicationRecord]:
        """Intent and current record, from complete originals, on a connection of its own."""
        found = self._select(publication.c.intent_sha256 == digest_bytes(intent_sha256))
        if not found:
            raise DocumentInvalid(f"there is no publication {intent_sha256}")
        return found[0].intent, found[0].record

    def of_attempt(self, attempt_sha256: str) -> StoredPublication | None:
        """The publication of an attempt, if it prepared one."""
        found = self._select(publication.c.attempt_sha256 == digest_bytes(attempt_sha256))
        return found[0] if found else None

    def of_guard(self, guard_id: str) -> list[StoredPublication]:
        """Every publication ever prepared on a guard, oldest first."""
        return self._select(publication.c.guard_id == digest_bytes(guard_id))

    def generations(self, guard_id: str) -> set[str]:
        """Names of the generations that publications of a guard claimed or settled."""
        names = select(publication.c.generation_table).where(
            publication.c.guard_id == digest_bytes(guard_id), publication.c.state != int(PublicationState.PREPARED)
        )
        return self._ledger.read(lambda c: set(c.execute(names).scalars()))

    def generation(self, generation_sha256: str) -> GenerationRecord:
        """The sealed generation record under its digest."""
        raw = self._ledger.read(lambda c: _document(c, digest_bytes(generation_sha256)))
        return GenerationRecord.parse(raw)

    def aggregates(self, aggregates_sha256: str) -> TableAggregates:
        """The aggregates under their digest, on which the reconciliation of a generation rests."""
        raw = self._ledger.read(lambda c: _document(c, digest_bytes(aggregates_sha256)))
        return TableAggregates.parse(raw)

    def _select(self, where: Any) -> list[StoredPublication]:
        def query(connection: Connection) -> list[StoredPublication]:
            rows = connection.execute(select(publication).where(where).order_by(publication.c.prepared_at)).mappings()
            return [_stored(connection, row) for row in rows.all()]

        return self._ledger.read(query)

    def claim(self, intent: SnapshotIntent, before: PublicationRecord) -> PublicationRecord:
        """PREPARED -> EXCHANGE_INTENT together with the claim of the one dispatch, in one transaction, read back.

        :raises AlreadyClaimed: the record moved: another caller won.
        :raises Fenced: the attempt was fenced, or the publisher's gate is not READY.
        :raises ClaimUncertain: the commit or its read-back is in doubt; nothing may be sent.
        """
        if before.state is not PublicationState.PREPARED:
            raise AlreadyClaimed(f"the publication is {before.state.name} already; reconcile it, nothing is sent again")
        self._before_claim()
        after = before.next(PublicationState.EXCHANGE_INTENT)
        sha256 = intent.digest()

        def change(tx: Tx) -> None:
            self._move(tx, sha256, before, after)
            insert_claim(
                tx,
                intent.attempt_sha256,
                dispatch_id=intent.query_id(),
                name=intent.publisher.name,
                kind="exchange",
                statement=f"EXCHANGE {intent.target.database}.{intent.target.target_table}",
            )

        try:
            self._ledger.write(change)
        except LedgerRule as error:
            raise_fenced(error)
            if error.details.get("rule") in ("publication_changed", "dispatch_pkey"):
                raise AlreadyClaimed("another caller claimed this publication; its publisher is left alone") from error
            raise
        except (CommitUnknown, LedgerUnavailable, LedgerBusy, LedgerMismatch) as error:
            raise ClaimUncertain(f"the claim is not certain ({error.code}); nothing was sent") from error
        return after

    def resolve(self, intent: SnapshotIntent, before: PublicationRecord, after: PublicationRecord) -> PublicationRecord:
        """Move the record on; PUBLISHED also makes B the guard's table."""
        sha256 = intent.digest()

        def change(tx: Tx) -> None:
            self._move(tx, sha256, before, after)
            if after.state is PublicationState.PUBLISHED:
                tx.move(
                    guard,
                    {"guard_id": digest_bytes(intent.target.guard_id)},
                    expect={"target_uuid": uuid.UUID(intent.old_target_uuid)},
                    to={"target_uuid": uuid.UUID(intent.generation_uuid)},
                )

        self._ledger.write(change)
        return after

    @staticmethod
    def _move(tx: Tx, sha256: str, before: PublicationRecord, after: PublicationRecord) -> None:
        tx.move(
            publication,
            {"intent_sha256": digest_bytes(sha256)},
            expect={
                "state": int(before.state),
                "revision": before.revision,
                "record_sha256": digest_bytes(before.digest()),
            },
            to={
                "state": int(after.state),
                "revision": after.revision,
                "record_sha256": digest_bytes(tx.record(EvidenceKind.PUBLICATION, sha256, after)),
            },
        )
