"""The publisher's authority over the ledger and the server: reopens evidence and ownership, closes exact publishers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity
from airflow_provider_dpone.contracts.ports import JournaledPrincipal, OpenedGeneration
from airflow_provider_dpone.contracts.proofs import GateClosure, QuiescenceObservation
from airflow_provider_dpone.contracts.publication import (
    IssuedPrincipal,
    PublisherClosure,
    SnapshotIntent,
)
from airflow_provider_dpone.contracts.states import ActivationState, AttemptState, GateState, Purpose
from airflow_provider_dpone.engines.clickhouse.gate import ClickHouseGate
from airflow_provider_dpone.errors import DocumentInvalid, Fenced, GateNotClosed
from airflow_provider_dpone.ledger.activations import Guard
from airflow_provider_dpone.ledger.attempts import StoredAttempt
from airflow_provider_dpone.ledger.schema import EvidenceKind
from airflow_provider_dpone.ledger.stores import Stores


class LedgerPublicationAuthority:
    """:class:`airflow_provider_dpone.contracts.ports.SnapshotPublicationAuthority` over the ledger.

    :param gate: builds the gate of one attempt, by its digest.
    """

    def __init__(self, stores: Stores, gate: Callable[[str], ClickHouseGate]) -> None:
        self._stores = stores
        self._gate = gate

    def open_generation(self, attempt: CompositionAttemptIdentity, generation_ref: str) -> OpenedGeneration:
        """Reopen the originals behind a sealed generation and compare them with one another and with the ledger.

        :raises DocumentInvalid: an original is missing, altered or belongs to something else.
        :raises Fenced: the attempt is fenced, not RUNNING, or its guard moved on.
        """
        sha256 = attempt.digest()
        with self._stores.together() as ledger:
            stored = ledger.attempts.read_exact(sha256)
            record = ledger.publications.generation(generation_ref)
            guard = ledger.activations.guard(record.target.guard_id)
            principals = ledger.journal(sha256).principals()
            closures = ledger.attempts.originals(sha256, EvidenceKind.GATE_CLOSURE)
            quiet = ledger.attempts.originals(sha256, EvidenceKind.QUIESCENCE)
            aggregates = ledger.publications.aggregates(record.source_aggregates_sha256)
        if stored.identity != attempt:
            raise DocumentInvalid("the ledger's original of this attempt differs from what was presented")
        if record.digest() != generation_ref or record.attempt_sha256 != sha256 or record.family is not attempt.family:
            raise DocumentInvalid("the generation record belongs to another attempt")
        _require_running(stored)
        _require_guard(stored, record.target.guard_id, guard)
        if guard is None or guard.enrolment_sha256 != record.target.enrolment_sha256:
            raise DocumentInvalid("the enrolment changed since the generation was built")
        if guard.target_uuid != record.old_target_uuid or guard.table.design.digest() != record.design_sha256:
            raise DocumentInvalid("the generation was built beside another table than the guard's")
        ingest = _one(principals, Purpose.INGEST)
        if ingest.state is not GateState.CLOSED or ingest.closure_sha256 != record.closed_ingest_sha256:
            raise GateNotClosed("the ingest user is not the one that was closed before the generation was sealed")
        _require_closed(record.ingest, ingest, closures, quiet)
        if aggregates.rows != record.content.rows:
            raise DocumentInvalid("the aggregates that source and generation agreed on count other rows")
        publisher = _one(principals, Purpose.PUBLISHER)
        if publisher.state is not GateState.READY or publisher.principal_uuid is None:
            raise Fenced("the publisher of this attempt is not READY")
        return OpenedGeneration(
            attempt=stored.identity,
            record=record,
            publisher=IssuedPrincipal(name=publisher.name, uuid=publisher.principal_uuid),
        )

    def require_current(self, intent: SnapshotIntent) -> None:
        """The attempt may act: RUNNING, not fenced, exact epochs, under ACTIVE or RETIRING.

        :raises Fenced: it may not.
        """
        _require_running(self._require_owned(intent))

    def require_retained(self, intent: SnapshotIntent) -> None:
        """The attempt still holds its guards (RUNNING or COMMIT_UNKNOWN), under ACTIVE or RETIRING.

        :raises Fenced: its guards were released; the record is history.
        """
        stored = self._require_owned(intent)
        if stored.state not in (AttemptState.RUNNING, AttemptState.COMMIT_UNKNOWN):
            raise Fenced(f"the attempt is {stored.state.name} and holds its guards no more; nothing to reconcile")

    def close_publisher(self, intent: SnapshotIntent) -> PublisherClosure:
        """Close the intent's publisher, prove it quiet, and return the digests of the evidence.

        :raises GateNotClosed: closing could not be proved.
        """
        evidence = self._gate(intent.attempt_sha256).close(intent.publisher.name)
        if evidence is not None:
            closed, quiet = (document.digest() for document in evidence)
        else:
            publisher = _one(self._stores.journal(intent.attempt_sha256).principals(), Purpose.PUBLISHER)
            if (
                publisher.name != intent.publisher.name
                or publisher.closure_sha256 is None
                or publisher.quiescence_sha256 is None
            ):
                raise GateNotClosed("the ledger does not show the publisher closed with its evidence")
            closed, quiet = publisher.closure_sha256, publisher.quiescence_sha256
        return PublisherClosure(intent_sha256=intent.digest(), closed_gates_sha256=closed, quiescence_sha256=quiet)

    def _require_owned(self, intent: SnapshotIntent) -> StoredAttempt:
        """The attempt of an intent, whose guard and activation still carry it; all read on one fresh connection."""
        with self._stores.together() as ledger:
            stored = ledger.attempts.read_exact(intent.attempt_sha256)
            guard = ledger.activations.guard(intent.target.guard_id)
            activation = ledger.activations.read_exact(intent.activation_sha256)
        if stored.identity.activation_sha256 != intent.activation_sha256:
            raise DocumentInvalid("the intent names another activation than its attempt")
        _require_guard(stored, intent.target.guard_id, guard)
        if activation.state not in (ActivationState.ACTIVE, ActivationState.RETIRING):
            raise Fenced(f"the release of this attempt is {activation.state.name}")
        return stored


def _require_closed(
    meant: IssuedPrincipal, ingest: JournaledPrincipal, closures: Sequence[bytes], quiet: Sequence[bytes]
) -> None:
    """Both originals are there that say the ingest user was closed and then quiet, before B was sealed.

    :raises DocumentInvalid: one is missing, or speaks of another user.
    """
    closed = [c for c in map(GateClosure.parse, closures) if c.digest() == ingest.closure_sha256]
    if not any((c.name, c.principal_uuid) == (meant.name, meant.uuid) for c in closed):
        raise DocumentInvalid("the original of the ingest user's closure is missing")
    silent = [q for q in map(QuiescenceObservation.parse, quiet) if q.digest() == ingest.quiescence_sha256]
    if not any((q.name, q.service_id) == (meant.name, ingest.service_id) for q in silent):
        raise DocumentInvalid("the original that shows the server quiet of the ingest user is missing")


def _one(principals: list[JournaledPrincipal], purpose: Purpose) -> JournaledPrincipal:
    found = [p for p in principals if p.purpose is purpose]
    if len(found) != 1:
        raise DocumentInvalid(f"the attempt has {len(found)} principals for {purpose.value}, not one")
    return found[0]


def _require_running(stored: StoredAttempt) -> None:
    if stored.fenced or stored.state is not AttemptState.RUNNING:
        state = "fenced" if stored.fenced else stored.state.name
        raise Fenced(f"this attempt is {state}; it may not publish")


def _require_guard(stored: StoredAttempt, guard_id: str, guard: Guard | None) -> None:
    held = {g.guard_id: g.epoch for g in stored.identity.guard_epochs}
    if guard is None or held.get(guard_id) != guard.epoch or guard.owner_sha256 != stored.identity.activation_sha256:
        raise Fenced("the guard is owned under another epoch; this attempt may not publish")
