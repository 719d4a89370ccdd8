"""Publishing one sealed generation with one guarded EXCHANGE, and finding out what became of it.

Policy only: evidence, persistence, observation and the statement itself come through the four ports. A claim is made
once; a doubtful one sends nothing. After a claim nothing is cancelled, everything is observed; only an observation made
after the publisher was proved closed decides. The old table is kept: nothing is dropped, no guard is released here.
"""

from __future__ import annotations

import re
from typing import Final

from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity
from airflow_provider_dpone.contracts.ports import (
    ClickHouseSnapshotCatalog,
    ClickHouseSnapshotExecutor,
    OpenedGeneration,
    SnapshotPublicationAuthority,
    SnapshotPublicationStore,
)
from airflow_provider_dpone.contracts.publication import (
    CatalogObservation,
    PublicationRecord,
    PublisherClosure,
    SnapshotIntent,
    judge,
    shown,
)
from airflow_provider_dpone.contracts.states import TERMINAL_PUBLICATIONS, PublicationState
from airflow_provider_dpone.errors import AlreadyClaimed, DocumentInvalid, DponeError, LedgerRule, PublicationUnknown

#: How many characters a record's reason may have, and which it holds not.
_REASON: Final = 512
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class ClickHouseAtomicSnapshotPublisher:
    """Prepares, publishes and reconciles publications.

    :param authority: reopens evidence and ownership, closes publishers.
    :param store: keeps complete originals and grants the one claim.
    :param catalog: observes both names, freshly and completely.
    :param executor: sends the one EXCHANGE; not used by :meth:`reconcile`.
    """

    def __init__(
        self,
        *,
        authority: SnapshotPublicationAuthority,
        store: SnapshotPublicationStore,
        catalog: ClickHouseSnapshotCatalog,
        executor: ClickHouseSnapshotExecutor,
    ) -> None:
        self._authority = authority
        self._store = store
        self._catalog = catalog
        self._executor = executor

    def prepare(self, attempt: CompositionAttemptIdentity, generation_ref: str) -> PublicationRecord:
        """Persist the intent to publish a sealed generation, PREPARED at revision 1.

        :param generation_ref: digest of the original generation record; nothing else of the caller is believed.
        :raises Refused: the evidence is missing, altered or no longer owned.
        """
        opened = self._authority.open_generation(attempt, generation_ref)
        if opened.attempt != attempt or opened.record.digest() != generation_ref:
            raise DocumentInvalid("the generation reopened is not the one named, or belongs to another attempt")
        intent = _intent(attempt, generation_ref, opened)
        self._authority.require_current(intent)
        return self._store.persist_prepared(intent)

    def publish(self, intent_sha256: str) -> PublicationRecord:
        """Claim, look once more, send at most one EXCHANGE, and return what was observed then.

        A terminal record is returned as it is, without new authority: it is history and says nothing of today's table.

        :returns: the record: PUBLISHED, NOT_PUBLISHED, or COMMIT_UNKNOWN, which keeps everything held.
        :raises AlreadyClaimed: somebody claimed before; their publisher is left alone, reconcile instead.
        :raises ClaimUncertain: nothing was sent.
        """
        intent, record = self._store.read(intent_sha256)
        if record.state in TERMINAL_PUBLICATIONS:
            return record
        if record.state is not PublicationState.PREPARED:
            raise AlreadyClaimed(f"the publication is {record.state.name} already; reconcile it, nothing is sent again")
        claimed = self._store.claim(intent, record)
        try:
            self._authority.require_current(intent)
            self._catalog.require_ready(intent)
            reason = self._executor.exchange(intent)
        except DponeError as error:  # whatever is raised here is raised before a byte was sent
            return self._settle(intent, claimed, f"not sent: {error.code} {error.message}", never_sent=True)
        return self._settle(intent, claimed, reason)

    def reconcile(self, intent_sha256: str) -> PublicationRecord:
        """Close the publisher, observe, and record what that proves; never issues or sends.

        Of a PREPARED record this is the explicit cancel: proved not published, it ends at revision 2; anything else
        leaves it PREPARED and blocking.

        :returns: the record reached; COMMIT_UNKNOWN keeps everything held.
        :raises Refused: ownership is not held any more (also for a terminal record).
        :raises PublicationUnknown: a PREPARED publication whose tables are not A and B.
        """
        intent, record = self._store.read(intent_sha256)
        self._authority.require_retained(intent)
        if record.state in TERMINAL_PUBLICATIONS:
            return record
        if record.state is PublicationState.PREPARED:
            return self._cancel(intent)
        return self._settle(intent, record, None)

    def _cancel(self, intent: SnapshotIntent) -> PublicationRecord:
        closure = self._authority.close_publisher(intent)  # no claim can be made from here on
        _, record = self._store.read(intent.digest())
        if record.state is not PublicationState.PREPARED:
            return record if record.state in TERMINAL_PUBLICATIONS else self._settle(intent, record, None)
        seen = self._catalog.observe(intent)
        verdict = judge(intent, seen, never_sent=True)
        if verdict.state is not PublicationState.NOT_PUBLISHED:
            raise PublicationUnknown(
                f"{intent.target.database}.{intent.target.target_table} was never claimed for exchange, yet the tables "
                f"are not as prepared ({verdict.reason or verdict.state.name}): {shown(intent, seen)}; an "
                "administrator must look",
                reason=verdict.reason or verdict.state.name,
            )
        return self._resolve(intent, record, verdict.state, closure, seen, _joined("cancelled", verdict.reason))

    def _settle(
        self, intent: SnapshotIntent, record: PublicationRecord, reason: str | None, *, never_sent: bool = False
    ) -> PublicationRecord:
        """Close, observe and judge a claimed publication; whatever cannot be proved is COMMIT_UNKNOWN."""
        closure: PublisherClosure | None = None
        seen: CatalogObservation | None = None
        try:
            closure = self._authority.close_publisher(intent)
            seen = self._catalog.observe(intent)
        except DponeError as error:  # not proved is not known; the code stays in the record
            doubt = _joined(error.code, reason)
            return self._resolve(intent, record, PublicationState.COMMIT_UNKNOWN, closure, seen, doubt)
        verdict = judge(intent, seen, never_sent=never_sent)
        if verdict.state is PublicationState.PUBLISHED:
            reason = None
        elif verdict.state is PublicationState.NOT_PUBLISHED:
            reason = _joined(reason, verdict.reason)
        else:
            reason = _joined(verdict.reason, shown(intent, seen), reason)
        return self._resolve(intent, record, verdict.state, closure, seen, reason)

    def _resolve(
        self,
        intent: SnapshotIntent,
        record: PublicationRecord,
        state: PublicationState,
        closure: PublisherClosure | None,
        seen: CatalogObservation | None,
        reason: str | None,
    ) -> PublicationRecord:
        after = record.next(state, closure=closure, observation=seen, reason=reason)
        try:
            return self._store.resolve(intent, record, after)
        except LedgerRule:
            _, now = self._store.read(intent.digest())
            if now != record:  # another reconciler was first; what it recorded stands
                return now
            raise


def _joined(*words: str | None) -> str | None:
    """What of these there is, as one reason; names in it are chosen by anybody."""
    return _CONTROL.sub("?", "; ".join(word for word in words if word))[:_REASON] or None


def _intent(attempt: CompositionAttemptIdentity, generation_ref: str, opened: OpenedGeneration) -> SnapshotIntent:
    record = opened.record
    return SnapshotIntent(
        family=record.family,
        activation_sha256=attempt.activation_sha256,
        attempt_sha256=opened.attempt.digest(),
        generation_sha256=generation_ref,
        target=record.target,
        old_target_uuid=record.old_target_uuid,
        generation_uuid=record.generation_uuid,
        design_sha256=record.design_sha256,
        content=record.content,
        parts_sha256=record.parts_sha256,
        limits=record.limits,
        ingest=record.ingest,
        publisher=opened.publisher,
        closed_ingest_sha256=record.closed_ingest_sha256,
    )
