"""One ledger with a history, and everything its owner can change behind the rules: one list, for every database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from airflow_provider_dpone.contracts.proofs import GateClosure, Quiescence
from airflow_provider_dpone.contracts.publication import CatalogObservation, PublisherClosure, SnapshotIntent
from airflow_provider_dpone.contracts.receipts import SnapshotReceipt
from airflow_provider_dpone.contracts.states import (
    AttemptState,
    Connector,
    DispatchState,
    Family,
    PublicationState,
    Purpose,
)
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.journal import LedgerJournal
from airflow_provider_dpone.ledger.publications import LedgerPublicationStore
from tests import builders


@dataclass
class History:
    """What was done: one attempt published and was acknowledged, another was fenced and failed, both guards are free."""

    active: builders.Activated
    published: str
    failed: str
    intent: SnapshotIntent

    @property
    def guards(self) -> tuple[bytes, ...]:
        return tuple(bytes.fromhex(e.guard_id[7:]) for e in self.active.stored.epochs)


def made(active: builders.Activated) -> History:
    """Let the product do it."""
    store, publications = CompositionAttemptStore(active.ledger), LedgerPublicationStore(active.ledger)
    published = store.admit_once(active.attempt("orders", run_id="first"))
    ingest = _issued(active, published, "dpone_i_1", Purpose.INGEST)
    dispatch = builders.new_uuid()
    ingest.claim_dispatch(dispatch_id=dispatch, name="dpone_i_1", kind="insert", statement="INSERT")
    ingest.end_dispatch(dispatch_id=dispatch, state=DispatchState.ANSWERED, note="ok")
    _close(ingest, "dpone_i_1")
    publisher = _issued(active, published, "dpone_p_1", Purpose.PUBLISHER)
    plan = builders.intent(active, "orders", published)
    claimed = publications.claim(plan, publications.persist_prepared(plan))
    publisher.end_dispatch(dispatch_id=plan.query_id(), state=DispatchState.ANSWERED, note="ok")
    closure, quiet = _close(publisher, "dpone_p_1")
    record = claimed.next(
        PublicationState.PUBLISHED,
        closure=PublisherClosure(
            intent_sha256=plan.digest(), closed_gates_sha256=closure.digest(), quiescence_sha256=quiet.digest()
        ),
        observation=CatalogObservation(
            target=plan.target, service_id=plan.target.service_id, database_engine="Atomic",
            target_uuid=plan.generation_uuid, generation_uuid=plan.old_target_uuid,
            target_design_sha256=plan.design_sha256, generation_design_sha256=plan.design_sha256,
            target_content=plan.content, generation_content=None, target_parts_sha256=plan.parts_sha256,
            generation_parts_sha256=None, unsupported=(), observed_at=builders.NOW,
        ),
    )  # fmt: skip
    publications.resolve(plan, claimed, record)
    receipt = SnapshotReceipt(
        family=Family.NONPRODUCTION, stand_in=True, state="PUBLISHED", reused=False, workload_id="dag.orders",
        attempt_sha256=published, intent_sha256=plan.digest(), publication_sha256=record.digest(), target="mart.orders",
        target_uuid=plan.generation_uuid, retained_table="mart.dpone_g_1", source="postgres:public.orders",
        snapshot_taken_at=builders.NOW, rows=1, row_sum=builders.ROW_SUM, source_bytes=1, wire_bytes=1,
        generation_bytes=1, milliseconds={},
    )  # fmt: skip
    outcome = builders.outcome(published, AttemptState.SUCCEEDED).model_copy(
        update={"publication_sha256": record.digest()}
    )
    store.end(published, AttemptState.RUNNING, outcome, receipt)
    store.acknowledge(published)
    failed = store.admit_once(active.attempt("rates", run_id="first"))
    journal = _issued(active, failed, "dpone_i_2", Purpose.INGEST)
    store.fence(failed)
    _close(journal, "dpone_i_2")
    builders.end(store, failed, AttemptState.FAILED)
    return History(active, published, failed, plan)


def _issued(active: builders.Activated, attempt: str, name: str, purpose: Purpose) -> LedgerJournal:
    journal = LedgerJournal(active.ledger, attempt)
    journal.journal(connector=Connector.CLICKHOUSE, service_id=builders.SERVICE, name=name, purpose=purpose)
    journal.ready(name=name, principal_uuid=builders.new_uuid())
    return journal


def _close(journal: LedgerJournal, name: str) -> tuple[GateClosure, Quiescence]:
    closure, quiet = builders.closure(name)
    journal.closing(name=name)
    journal.closed(name=name, evidence=(closure, quiet))
    return closure, quiet


@dataclass(frozen=True)
class Tampering:
    """Statements of the database's owner with every rule switched off; ``{p}`` is the published attempt, ``{f}`` the failed
    one, ``{i}`` the intent, ``{u}`` a UUID.

    :param seen: what the audit says of it.
    :param admission: whether the next admission on the guards meets it; the others concern no attempt of theirs.
    """

    what: str
    statements: tuple[str, ...]
    seen: str
    admission: bool = True


def _evidence(kind: int, attempt: str = "{p}") -> str:
    return f"DELETE FROM dpone.evidence WHERE kind = {kind} AND subject = {attempt}"


_GONE: Final = tuple(
    f"DELETE FROM dpone.{table} WHERE attempt_sha256 = {{f}}"
    for table in ("attempt_guard", "dispatch", "principal", "attempt")
)
LACKS: Final = "an ended attempt lacks a proof of its triplet"
MISSING: Final = "an original that a proof rests on is missing or another"
BINDS: Final = "a proof binds something else than its attempt"
ROW: Final = "attempt row differs from its document"
PUBLICATION: Final = "a publication differs from its record or its intent"
GUARD: Final = "a guard is another than its identity or its enrolment says"

TAMPERINGS: Final = (
    Tampering("OUTCOME deleted", (_evidence(9),), MISSING),
    Tampering("OUTCOME of a failure deleted", (_evidence(9, "{f}"),), MISSING),
    Tampering("RECEIPT deleted", (_evidence(11),), MISSING),
    Tampering("GATE_CLOSURE deleted", (_evidence(6),), MISSING),
    Tampering("QUIESCENCE deleted", (_evidence(7),), MISSING),
    Tampering("proofs deleted", (_evidence(8, "{f}"),), LACKS),
    Tampering("publication deleted", ("DELETE FROM dpone.publication",), "an intent has no publication"),
    Tampering("publication and intent deleted", ("DELETE FROM dpone.publication", _evidence(4)), MISSING),
    Tampering("publication given another generation", ("UPDATE dpone.publication SET generation_uuid = {u}",), PUBLICATION),
    Tampering("publication given another table", ("UPDATE dpone.publication SET generation_table = 'dpone_g_2'",), PUBLICATION),
    Tampering("publication put back", ("UPDATE dpone.publication SET state = 4",), PUBLICATION),
    Tampering("generation record deleted", (_evidence(3),), "a sealed generation is missing"),
    Tampering("enrolment deleted", ("DELETE FROM dpone.evidence WHERE kind = 1",), GUARD, admission=False),
    Tampering("release deleted", ("DELETE FROM dpone.evidence WHERE kind = 2",), "an original of an activation is missing",
              admission=False),
    Tampering("deployment deleted", ("DELETE FROM dpone.evidence WHERE kind = 13",),
              "an original of an activation is missing", admission=False),
    Tampering("a dispatch deleted", ("DELETE FROM dpone.dispatch WHERE kind = 'insert'",), BINDS),
    Tampering("a dispatch altered", ("UPDATE dpone.dispatch SET note = 'refused' WHERE kind = 'insert'",), BINDS),
    Tampering("a principal deleted", ("DELETE FROM dpone.principal WHERE attempt_sha256 = {f}",), BINDS),
    Tampering("a principal altered", ("UPDATE dpone.principal SET principal_uuid = {u} WHERE attempt_sha256 = {f}",), BINDS),
    Tampering("a principal given another's evidence", ("UPDATE dpone.principal SET closure_sha256 = quiescence_sha256 WHERE attempt_sha256 = {f}",),
              "a closed gate lacks its evidence"),
    Tampering("a gate opened", ("UPDATE dpone.principal SET state = 2 WHERE attempt_sha256 = {f}",),
              "an ended attempt has an open guard or gate"),
    Tampering("attempt deleted", _GONE, "evidence of an attempt that is not there", admission=False),
    Tampering("attempt and all of it deleted", (*_GONE, "DELETE FROM dpone.evidence WHERE subject = {f}"),
              "attempts of a guard are missing", admission=False),
    Tampering("attempt turned into a success", ("UPDATE dpone.attempt SET state = 2 WHERE attempt_sha256 = {f}",), BINDS),
    Tampering("attempt opened again", ("UPDATE dpone.attempt SET state = 1, outcome_sha256 = NULL WHERE attempt_sha256 = {f}",),
              "an open attempt has a released guard"),
    Tampering("scheduler key changed", ("UPDATE dpone.attempt SET scheduler_key = attempt_sha256 WHERE attempt_sha256 = {p}",),
              ROW),
    Tampering("run renamed", ("UPDATE dpone.attempt SET run_id = 'nicer' WHERE attempt_sha256 = {p}",), ROW),
    Tampering("try renumbered", ("UPDATE dpone.attempt SET try_number = 9 WHERE attempt_sha256 = {p}",), ROW),
    Tampering("fence lifted", ("UPDATE dpone.attempt SET fenced = '0' WHERE attempt_sha256 = {f}",),
              "a flag of an attempt has no original, or an original no flag"),
    Tampering("acknowledgement lifted", ("UPDATE dpone.attempt SET acknowledged = '0' WHERE attempt_sha256 = {p}",),
              "a flag of an attempt has no original, or an original no flag"),
    Tampering("guard of an attempt opened", ("UPDATE dpone.attempt_guard SET is_open = '1' WHERE attempt_sha256 = {f}",),
              "an ended attempt has an open guard or gate"),
    Tampering("guard of an attempt deleted", ("DELETE FROM dpone.attempt_guard WHERE attempt_sha256 = {f}",),
              "attempts of a guard are missing", admission=False),
    Tampering("guard's target changed", ("UPDATE dpone.guard SET target_uuid = {u}",),
              "the table of a guard is neither the enrolled nor the published one", admission=False),
    Tampering("guard's target put back", ("UPDATE dpone.guard SET target_uuid = {old} WHERE target_uuid = {new}",),
              "the table of a guard is neither the enrolled nor the published one", admission=False),
    Tampering("guard's subject changed", ("UPDATE dpone.guard SET subject = 'other/orders' WHERE target_uuid = {new}",), GUARD,
              admission=False),
    Tampering("guard's epoch raised", ("UPDATE dpone.guard SET epoch = 9",), GUARD, admission=False),
    Tampering("guard freed", ("UPDATE dpone.guard SET owner_sha256 = NULL",),
              "an activation in force does not own its guard, or one that is retired does", admission=False),
    Tampering("activation retired", ("UPDATE dpone.activation SET state = 4",),
              "an activation in force does not own its guard, or one that is retired does", admission=False),
    Tampering("activation moved", ("UPDATE dpone.activation SET environment = 'elsewhere'",),
              "activation row differs from its document", admission=False),
    Tampering("guards of an activation deleted", ("DELETE FROM dpone.activation_guard",),
              "guards of an activation differ from its document", admission=False),
)  # fmt: skip

#: Of a document's bytes, past the CHECK that ties them to their key.
BYTES: Final = (
    ("no JSON", lambda raw: b"[" + raw[1:]),
    ("no UTF-8", lambda raw: raw[:-2] + b"\xff" + raw[-1:]),
    ("another value", lambda raw: raw.replace(b"dpone", b"dqone", 1)),
)
Changed = Callable[[bytes], bytes]


def filled(history: History, statement: str, literal: Callable[[str], str], uuid_of: Callable[[str], str]) -> str:
    """A statement of the list in the words of one database."""
    return statement.format(
        p=literal(history.published), f=literal(history.failed), i=literal(history.intent.digest()),
        u=uuid_of("00000000-0000-4000-8000-00000000dead"), old=uuid_of(history.intent.old_target_uuid),
        new=uuid_of(history.intent.generation_uuid),
    )  # fmt: skip
