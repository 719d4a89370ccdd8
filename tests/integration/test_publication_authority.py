"""What authorises a publication is reopened and compared, original by original; each refusal on a real ledger's answer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from airflow_provider_dpone.attempts.clickhouse import ClickHouseWorld
from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.proofs import GateClosure, QuiescenceObservation
from airflow_provider_dpone.contracts.states import ActivationState, AttemptState, Family, GateState, Purpose
from airflow_provider_dpone.errors import DocumentInvalid, DponeError, Fenced, GateNotClosed
from airflow_provider_dpone.ledger.schema import EvidenceKind
from airflow_provider_dpone.publication import publisher as publishing
from airflow_provider_dpone.publication.authority import LedgerPublicationAuthority
from tests.snapshot_world import SnapshotWorld

OTHER = digest_of(b"another")
Change = Callable[[Any], Any]


@dataclass
class Altered:
    """The stores of a real ledger, one of whose answers is another than it gave."""

    stores: Any
    changes: dict[str, Change]

    @contextmanager
    def together(self) -> Iterator[Altered]:
        with self.stores.together() as stores:
            yield Altered(stores, self.changes)

    def _altered(self, what: str, value: Any) -> Any:
        return self.changes.get(what, lambda same: same)(value)

    # one object answers for attempts, publications, activations and journal
    @property
    def attempts(self) -> Altered:
        return self

    publications = activations = attempts

    def journal(self, sha256: str) -> Altered:
        return Altered(self.stores.journal(sha256), self.changes)

    def principals(self) -> Any:
        return self._altered("principals", self.stores.principals())

    def read_exact(self, sha256: str) -> Any:
        found = self.stores.attempts
        try:
            return self._altered("attempt", found.read_exact(sha256))
        except DponeError:
            return self._altered("activation", self.stores.activations.read_exact(sha256))

    def generation(self, sha256: str) -> Any:
        if "generation" in self.changes:
            return self._altered("generation", None)
        return self.stores.publications.generation(sha256)

    def aggregates(self, sha256: str) -> Any:
        if "aggregates" in self.changes:
            return self._altered("aggregates", None)
        return self.stores.publications.aggregates(sha256)

    def guard(self, guard_id: str) -> Any:
        return self._altered("guard", self.stores.activations.guard(guard_id))

    def originals(self, sha256: str, kind: EvidenceKind) -> Any:
        return self._altered(kind.name, self.stores.attempts.originals(sha256, kind))


def _principal(purpose: Purpose, **changes: Any) -> Change:
    return lambda found: [replace(p, **changes) if p.purpose is purpose else p for p in found]


def _reworded(kind: Any, **changes: Any) -> Change:
    return lambda found: [kind.parse(raw).model_copy(update=changes).wire() for raw in found]


REFUSED: dict[str, tuple[dict[str, Change], type[DponeError], str]] = {
    "another identity": (
        {"attempt": lambda s: replace(s, identity=s.identity.model_copy(update={"plan_sha256": OTHER}))},
        DocumentInvalid, "differs from what was presented",
    ),
    "fenced": ({"attempt": lambda s: replace(s, fenced=True)}, Fenced, "is fenced"),
    "not running": ({"attempt": lambda s: replace(s, state=AttemptState.COMMIT_UNKNOWN)}, Fenced, "COMMIT_UNKNOWN"),
    "no guard": ({"guard": lambda g: None}, Fenced, "another epoch"),
    "epoch": ({"guard": lambda g: replace(g, epoch=g.epoch + 1)}, Fenced, "another epoch"),
    "owner": ({"guard": lambda g: replace(g, owner_sha256=OTHER)}, Fenced, "another epoch"),
    "enrolment": ({"guard": lambda g: replace(g, enrolment_sha256=OTHER)}, DocumentInvalid, "enrolment changed"),
    "target": ({"guard": lambda g: replace(g, target_uuid=str(uuid.uuid4()))}, DocumentInvalid, "another table"),
    "design": (
        {"guard": lambda g: replace(g, enrolment=g.enrolment.model_copy(update={
            "design": g.enrolment.design.model_copy(update={"comment": "another"})}))},
        DocumentInvalid, "another table",
    ),
    "no ingest user": (
        {"principals": lambda found: [p for p in found if p.purpose is not Purpose.INGEST]}, DocumentInvalid, "0 principals",
    ),
    "two ingest users": (
        {"principals": lambda found: [*found, next(p for p in found if p.purpose is Purpose.INGEST)]},
        DocumentInvalid, "2 principals",
    ),
    "ingest user open": ({"principals": _principal(Purpose.INGEST, state=GateState.CLOSING)}, GateNotClosed, "not the one"),
    "another closure": ({"principals": _principal(Purpose.INGEST, closure_sha256=OTHER)}, GateNotClosed, "not the one"),
    "no closure": ({"GATE_CLOSURE": lambda found: []}, DocumentInvalid, "closure is missing"),
    "closure says something else": (
        {"GATE_CLOSURE": _reworded(GateClosure, closed_at="never")}, DocumentInvalid, "closure is missing",
    ),
    "no quiescence": ({"QUIESCENCE": lambda found: []}, DocumentInvalid, "quiet of the ingest user is missing"),
    "quiescence says something else": (
        {"QUIESCENCE": _reworded(QuiescenceObservation, control_seen="nothing")}, DocumentInvalid, "quiet of the ingest",
    ),
    "publisher closing": ({"principals": _principal(Purpose.PUBLISHER, state=GateState.CLOSING)}, Fenced, "not READY"),
    "publisher unknown": ({"principals": _principal(Purpose.PUBLISHER, principal_uuid=None)}, Fenced, "not READY"),
}  # fmt: skip


@pytest.fixture
def orders(world: SnapshotWorld) -> SnapshotWorld:
    world.pg("CREATE TABLE orders (id bigint NOT NULL)")
    world.pg("INSERT INTO orders SELECT generate_series(1, 100)")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int32) ENGINE = MergeTree ORDER BY id")
    world.activate("orders")
    return world


def _authority(world: ClickHouseWorld, changes: dict[str, Change]) -> LedgerPublicationAuthority:
    return LedgerPublicationAuthority(Altered(world.stores, changes), world.gate_of)  # type: ignore[arg-type]


def test_every_original_behind_a_generation_is_reopened_and_compared(
    orders: SnapshotWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = orders.cell("orders")
    prepare = publishing.ClickHouseAtomicSnapshotPublisher.prepare
    looked: list[str] = []

    def look(self: Any, attempt: Any, generation_ref: str) -> Any:
        assert _authority(cell.world, {}).open_generation(attempt, generation_ref).record.content.rows == 100
        for name, (changes, error, words) in REFUSED.items():
            with pytest.raises(error, match=words):
                _authority(cell.world, changes).open_generation(attempt, generation_ref)
            looked.append(name)
        _rebound(cell.world, attempt, generation_ref)
        return prepare(self, attempt, generation_ref)

    monkeypatch.setattr(publishing.ClickHouseAtomicSnapshotPublisher, "prepare", look)
    assert cell.run().rows == 100
    assert looked == list(REFUSED)


def _rebound(world: ClickHouseWorld, attempt: Any, generation_ref: str) -> None:
    """Originals that speak of something else, although every digest of them is named where it must be."""
    sha256 = attempt.digest()
    with world.stores.together() as stores:
        record = stores.publications.generation(generation_ref)
        ingest = next(p for p in stores.journal(sha256).principals() if p.purpose is Purpose.INGEST)

    def original(kind: EvidenceKind, document: Any, digest: str | None) -> Any:
        found = [document.parse(raw) for raw in world.attempts.originals(sha256, kind)]
        return next(d for d in found if d.digest() == digest)

    closure = original(EvidenceKind.GATE_CLOSURE, GateClosure, ingest.closure_sha256)
    quiet = original(EvidenceKind.QUIESCENCE, QuiescenceObservation, ingest.quiescence_sha256)
    aggregates = world.publications.aggregates(record.source_aggregates_sha256)

    def refuse(changes: dict[str, Change], reference: str, words: str) -> None:
        with pytest.raises(DocumentInvalid, match=words):
            _authority(world, changes).open_generation(attempt, reference)

    for changed in ({"name": "dpone_ingest_other"}, {"principal_uuid": str(uuid.uuid4())}):
        other = closure.model_copy(update=changed)
        bound = record.model_copy(update={"closed_ingest_sha256": other.digest()})
        refuse(
            {
                "GATE_CLOSURE": lambda found, other=other: [*found, other.wire()],
                "principals": _principal(Purpose.INGEST, closure_sha256=other.digest()),
                "generation": lambda _, bound=bound: bound,
            },
            bound.digest(),
            "closure is missing",
        )
    for changed in ({"name": "dpone_ingest_other"}, {"service_id": str(uuid.uuid4())}):
        still = quiet.model_copy(update=changed)
        refuse(
            {
                "QUIESCENCE": lambda found, still=still: [*found, still.wire()],
                "principals": _principal(Purpose.INGEST, quiescence_sha256=still.digest()),
            },
            generation_ref,
            "quiet of the ingest",
        )
    fewer = aggregates.model_copy(update={"rows": 99})
    counted = record.model_copy(
        update={"source_aggregates_sha256": fewer.digest(), "target_aggregates_sha256": fewer.digest()}
    )
    refuse(
        {"aggregates": lambda _: fewer, "generation": lambda _: counted}, counted.digest(), "agreed on count other rows"
    )
    lost = record.model_copy(update={"source_aggregates_sha256": OTHER, "target_aggregates_sha256": OTHER})
    refuse({"generation": lambda _: lost}, lost.digest(), "missing or does not match")
    reworded = record.model_copy(update={"wire_bytes": 0})
    refuse({"generation": lambda _: reworded}, generation_ref, "another attempt")
    foreign = record.model_copy(update={"family": Family.PRODUCTION})
    refuse({"generation": lambda _: foreign}, foreign.digest(), "another attempt")
    stolen = record.model_copy(update={"attempt_sha256": OTHER})
    refuse({"generation": lambda _: stolen}, stolen.digest(), "another attempt")


def test_an_intent_is_carried_by_its_attempt_guard_and_release_alone(
    orders: SnapshotWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = orders.cell("orders")
    publish = publishing.ClickHouseAtomicSnapshotPublisher.publish

    def look(self: Any, intent_sha256: str) -> Any:
        intent, _ = cell.world.publications.read(intent_sha256)
        for ask in ("require_current", "require_retained"):
            getattr(_authority(cell.world, {}), ask)(intent)
            for changes, error, words in (
                (
                    {"attempt": lambda s: replace(s, identity=s.identity.model_copy(update={"activation_sha256": OTHER}))},
                    DocumentInvalid, "another activation",
                ),
                ({"guard": lambda g: None}, Fenced, "another epoch"),
                ({"guard": lambda g: replace(g, epoch=g.epoch + 1)}, Fenced, "another epoch"),
                ({"guard": lambda g: replace(g, owner_sha256=OTHER)}, Fenced, "another epoch"),
                ({"activation": lambda a: replace(a, state=ActivationState.PREPARED)}, Fenced, "is PREPARED"),
                ({"activation": lambda a: replace(a, state=ActivationState.RETIRED)}, Fenced, "is RETIRED"),
                ({"attempt": lambda s: replace(s, state=AttemptState.SUCCEEDED)}, Fenced, "SUCCEEDED"),
            ):  # fmt: skip
                with pytest.raises(error, match=words):
                    getattr(_authority(cell.world, changes), ask)(intent)
        fenced = _authority(cell.world, {"attempt": lambda s: replace(s, fenced=True)})
        with pytest.raises(Fenced, match="is fenced"):
            fenced.require_current(intent)
        fenced.require_retained(intent)  # whoever settles it needs no more
        return publish(self, intent_sha256)

    monkeypatch.setattr(publishing.ClickHouseAtomicSnapshotPublisher, "publish", look)
    assert cell.run().rows == 100


def test_a_publisher_closed_by_somebody_else_needs_its_evidence(orders: SnapshotWorld) -> None:
    cell = orders.cell("orders")
    receipt = cell.run()
    publication = cell.world.publications.of_attempt(receipt.attempt_sha256)
    assert publication is not None
    intent = publication.intent
    closure = _authority(cell.world, {}).close_publisher(intent)
    assert closure == publication.record.closure
    for changes in (
        _principal(Purpose.PUBLISHER, name="dpone_publisher_other"),
        _principal(Purpose.PUBLISHER, closure_sha256=None),
        _principal(Purpose.PUBLISHER, quiescence_sha256=None),
    ):
        with pytest.raises(GateNotClosed, match="does not show the publisher closed"):
            _authority(cell.world, {"principals": changes}).close_publisher(intent)
    with pytest.raises(DocumentInvalid, match="0 principals"):
        _authority(cell.world, {"principals": lambda found: []}).close_publisher(intent)
