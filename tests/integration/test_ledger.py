"""The ledger on real databases: admission, fence, gates, publication, activation, lost commits, append-only.

On PostgreSQL always; on SQL Server too when one is named.
"""

from __future__ import annotations

import threading
import uuid

import pytest
from sqlalchemy import insert, text, update

from airflow_provider_dpone.contracts.canonical import digest_bytes
from airflow_provider_dpone.contracts.proofs import Adjudication, ProofKind
from airflow_provider_dpone.contracts.states import (
    ActivationState,
    AttemptState,
    Connector,
    DispatchState,
    Family,
    GateState,
    PublicationState,
    Purpose,
)
from airflow_provider_dpone.errors import (
    ActivationMissing,
    ActivationRefused,
    AlreadyAdmitted,
    AlreadyClaimed,
    ClaimUncertain,
    CommitUnknown,
    DponeError,
    Fenced,
    GuardHeld,
    LedgerBusy,
    LedgerExists,
    LedgerMismatch,
    LedgerRule,
    LedgerUnavailable,
)
from airflow_provider_dpone.ledger import outcomes, schema
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.install import install
from airflow_provider_dpone.ledger.journal import LedgerJournal
from airflow_provider_dpone.ledger.publications import LedgerPublicationStore
from airflow_provider_dpone.ledger.transaction import Ledger, Tx
from tests import builders
from tests.cutting_proxy import CuttingProxy
from tests.ledger_database import LedgerDatabase
from tests.ledger_engines import LEDGERS, driver_errors


@pytest.fixture(params=LEDGERS)
def database(request: pytest.FixtureRequest) -> LedgerDatabase:
    name = "ledger_database" if request.param == "postgres" else "mssql_ledger_database"
    return request.getfixturevalue(name)


@pytest.fixture(params=LEDGERS)
def empty_database(request: pytest.FixtureRequest) -> LedgerDatabase:
    name = "empty_ledger_database" if request.param == "postgres" else "empty_mssql_ledger_database"
    return request.getfixturevalue(name)


def _here(database: LedgerDatabase, postgres: str, mssql: str) -> str:
    """What the database under test understands or answers."""
    return postgres if database.engine == "postgres" else mssql


@pytest.fixture
def active(database: LedgerDatabase) -> builders.Activated:
    return builders.activate(database.admin(), database.runtime(), "orders", "rates")


def _refused(database: LedgerDatabase, statement: object, *, as_admin: bool = True) -> str:
    ledger = database.admin() if as_admin else database.runtime()
    with pytest.raises(LedgerRule) as caught:
        ledger.write(lambda tx: tx.connection.execute(statement))  # type: ignore[call-overload]
    return str(caught.value.details["rule"])


def _journal(active: builders.Activated, attempt: str, name: str, purpose: Purpose) -> LedgerJournal:
    journal = LedgerJournal(active.ledger, attempt)
    journal.journal(connector=Connector.CLICKHOUSE, service_id=builders.SERVICE, name=name, purpose=purpose)
    return journal


def test_installation_refuses_what_exists(database: LedgerDatabase) -> None:
    with pytest.raises(LedgerExists, match="dpone"):
        install(
            database.connect_admin, database.dialect(), family=Family.NONPRODUCTION, runtime_role=database.runtime_role
        )


def test_installation_refuses_a_legacy_writable_table(empty_database: LedgerDatabase) -> None:
    database = empty_database
    database.as_admin(f"CREATE TABLE {_here(database, 'public', 'dbo')}.issued_authorities (a int)")
    with pytest.raises(LedgerExists, match="issued_authorities"):
        install(
            database.connect_admin, database.dialect(), family=Family.NONPRODUCTION, runtime_role=database.runtime_role
        )
    schemas = _here(database, "pg_namespace WHERE nspname", "sys.schemas WHERE name")
    assert database.as_admin(f"SELECT count(*) FROM {schemas} = 'dpone'") == [(0,)]


def test_pinned_service_id_is_compared(database: LedgerDatabase) -> None:
    other = Ledger(database.connect_runtime, database.dialect(), uuid.uuid4())
    with pytest.raises(LedgerMismatch, match="pinned"):
        other.read(lambda c: None)


@pytest.mark.parametrize(
    ("postgres", "mssql"),
    [
        ("ALTER TABLE dpone.attempt DISABLE TRIGGER attempt_rule", "DISABLE TRIGGER dpone.attempt_rule ON dpone.attempt"),
        ("DROP INDEX dpone.uq_attempt_guard_open", "DROP INDEX uq_attempt_guard_open ON dpone.attempt_guard"),
        ("ALTER TABLE dpone.evidence DROP CONSTRAINT ck_evidence_hash",
         "ALTER TABLE dpone.evidence DROP CONSTRAINT ck_evidence_hash"),
        ("ALTER TABLE dpone.guard ADD COLUMN more int", "ALTER TABLE dpone.guard ADD more int"),
        ("CREATE OR REPLACE FUNCTION dpone.require_lock() RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$",
         "DROP TRIGGER dpone.evidence_rule"),
    ],
)  # fmt: skip
def test_altered_layout_stops_every_write(database: LedgerDatabase, postgres: str, mssql: str) -> None:
    database.exact = True
    ledger = database.runtime()
    ledger.write(lambda tx: None)
    database.as_admin(_here(database, postgres, mssql))
    with pytest.raises(LedgerMismatch, match="altered"):
        ledger.write(lambda tx: None)


def test_admission_is_once_per_instance_and_one_per_guard(active: builders.Activated) -> None:
    store = CompositionAttemptStore(active.ledger)
    first = active.attempt("orders")
    sha256 = store.admit_once(first)
    assert store.read_exact(sha256).identity == first
    with pytest.raises(AlreadyAdmitted):
        store.admit_once(first)
    with pytest.raises(GuardHeld):
        store.admit_once(active.attempt("orders", run_id="other"))
    other = store.admit_once(active.attempt("rates"))
    assert {a.sha256 for a in store.all_open()} == {sha256, other}


def test_sixteen_concurrent_admissions_have_one_winner(active: builders.Activated, database: LedgerDatabase) -> None:
    results: list[str] = []

    def admit(number: int) -> None:
        store = CompositionAttemptStore(database.runtime())
        identity = active.attempt("orders", run_id=f"run{number}")
        while True:
            try:
                store.admit_once(identity)
                return results.append("admitted")
            except LedgerBusy:  # nothing changed, says its promise: again
                continue
            except GuardHeld:
                return results.append("held")

    threads = [threading.Thread(target=admit, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert sorted(results) == ["admitted"] + ["held"] * 15


def test_admission_demands_the_pinned_declaration_and_epochs(active: builders.Activated) -> None:
    store = CompositionAttemptStore(active.ledger)
    good = active.attempt("orders")
    changed = good.model_copy(update={"pack_sha256": "sha256:" + "0" * 64})
    with pytest.raises(ActivationMissing, match="differs"):
        store.admit_once(changed)
    unknown = good.model_copy(update={"workload_id": "dag.other"})
    with pytest.raises(ActivationMissing, match="not in"):
        store.admit_once(unknown)
    stale = good.model_copy(
        update={"guard_epochs": (good.guard_epochs[0].model_copy(update={"epoch": good.guard_epochs[0].epoch + 1}),)}
    )
    with pytest.raises(ActivationMissing, match="epoch"):
        store.admit_once(stale)
    assert store.all_open() == []


def test_fenced_attempt_can_do_nothing_more(active: builders.Activated) -> None:
    store = CompositionAttemptStore(active.ledger)
    sha256 = store.admit_once(active.attempt("orders"))
    journal = _journal(active, sha256, "dpone_i_1", Purpose.INGEST)
    _journal(active, sha256, "dpone_p_1", Purpose.PUBLISHER).ready(name="dpone_p_1", principal_uuid=builders.new_uuid())
    publications = LedgerPublicationStore(active.ledger)
    plan = builders.intent(active, "orders", sha256)
    prepared = publications.persist_prepared(plan)
    store.fence(sha256)
    store.fence(sha256)
    with pytest.raises(Fenced):
        _journal(active, sha256, "dpone_i_2", Purpose.INGEST)
    with pytest.raises(Fenced):
        journal.ready(name="dpone_i_1", principal_uuid=builders.new_uuid())
    with pytest.raises(Fenced):
        journal.claim_dispatch(dispatch_id=builders.new_uuid(), name="dpone_p_1", kind="insert", statement="x")
    with pytest.raises(Fenced):
        publications.claim(plan, prepared)
    with pytest.raises(Fenced):
        store.require_acting(sha256)


def test_gates_move_forward_only_and_settle_their_dispatches(active: builders.Activated) -> None:
    store = CompositionAttemptStore(active.ledger)
    sha256 = store.admit_once(active.attempt("orders"))
    journal = _journal(active, sha256, "dpone_i_1", Purpose.INGEST)
    with pytest.raises(Fenced):
        journal.claim_dispatch(dispatch_id=builders.new_uuid(), name="dpone_i_1", kind="insert", statement="early")
    journal.ready(name="dpone_i_1", principal_uuid=builders.new_uuid())
    with pytest.raises(LedgerRule):
        journal.ready(name="dpone_i_1", principal_uuid=builders.new_uuid())
    answered, lost = builders.new_uuid(), builders.new_uuid()
    for dispatch_id in (answered, lost):
        journal.claim_dispatch(dispatch_id=dispatch_id, name="dpone_i_1", kind="insert", statement="INSERT")
    journal.end_dispatch(dispatch_id=answered, state=DispatchState.ANSWERED, note="ok")
    with pytest.raises(LedgerRule):
        journal.end_dispatch(dispatch_id=lost, state=DispatchState.SETTLED, note="guess")
    journal.closing(name="dpone_i_1")
    journal.closing(name="dpone_i_1")
    with pytest.raises(Fenced):
        journal.claim_dispatch(dispatch_id=builders.new_uuid(), name="dpone_i_1", kind="insert", statement="late")
    journal.closed(name="dpone_i_1", evidence=builders.closure("dpone_i_1"))
    journal.closed(name="dpone_i_1", evidence=builders.closure("dpone_i_1"))
    (principal,) = journal.principals()
    assert principal.state is GateState.CLOSED
    assert set(principal.dispatch_ids) == {answered, lost}
    states = active.ledger.read(
        lambda c: {str(r[0]).lower(): r[1] for r in c.execute(text("SELECT dispatch_id, state FROM dpone.dispatch"))}
    )
    assert states == {answered: int(DispatchState.ANSWERED), lost: int(DispatchState.SETTLED)}
    with pytest.raises(Fenced, match="settled by"):  # the answer comes after somebody settled the attempt
        journal.end_dispatch(dispatch_id=lost, state=DispatchState.ANSWERED, note="refused 394")
    with pytest.raises(Fenced, match="settled by"):
        journal.ready(name="dpone_i_1", principal_uuid=builders.new_uuid())


def test_finalize_demands_closed_gates_and_a_terminal_publication(active: builders.Activated) -> None:
    store = CompositionAttemptStore(active.ledger)
    sha256 = store.admit_once(active.attempt("orders"))
    journal = _journal(active, sha256, "dpone_p_1", Purpose.PUBLISHER)
    journal.ready(name="dpone_p_1", principal_uuid=builders.new_uuid())
    plan = builders.intent(active, "orders", sha256)
    publications = LedgerPublicationStore(active.ledger)
    prepared = publications.persist_prepared(plan)
    claimed = publications.claim(plan, prepared)
    with pytest.raises(LedgerRule):
        builders.end(store, sha256, AttemptState.FAILED)
    journal.closing(name="dpone_p_1")
    journal.closed(name="dpone_p_1", evidence=builders.closure("dpone_p_1"))
    with pytest.raises(LedgerRule, match="outcome_evidence"):
        builders.end(store, sha256, AttemptState.SUCCEEDED)
    unknown = claimed.next(PublicationState.COMMIT_UNKNOWN, reason="lost")
    publications.resolve(plan, claimed, unknown)
    assert builders.end(store, sha256, AttemptState.COMMIT_UNKNOWN).state is (AttemptState.COMMIT_UNKNOWN)
    with pytest.raises(GuardHeld):
        store.admit_once(active.attempt("orders", run_id="next"))


def test_only_an_administrator_adjudicates(active: builders.Activated, database: LedgerDatabase) -> None:
    store = CompositionAttemptStore(active.ledger)
    sha256 = store.admit_once(active.attempt("orders"))
    builders.end(store, sha256, AttemptState.COMMIT_UNKNOWN)
    signed = Adjudication(
        attempt_sha256=sha256,
        state=AttemptState.FAILED,
        decided_by="dba",
        statement="looked at both tables",
        decided_at=builders.NOW,
    )
    with pytest.raises(LedgerRule, match="evidence_administrator"):
        store.end(sha256, AttemptState.COMMIT_UNKNOWN, builders.outcome(sha256, AttemptState.FAILED), None, signed)
    admin = CompositionAttemptStore(database.admin())
    ended = admin.end(sha256, AttemptState.COMMIT_UNKNOWN, builders.outcome(sha256, AttemptState.FAILED), None, signed)
    assert ended.state is AttemptState.FAILED
    store.admit_once(active.attempt("orders", run_id="next"))


def test_claim_has_one_winner(active: builders.Activated, database: LedgerDatabase) -> None:
    store = CompositionAttemptStore(active.ledger)
    sha256 = store.admit_once(active.attempt("orders"))
    _journal(active, sha256, "dpone_p_1", Purpose.PUBLISHER).ready(name="dpone_p_1", principal_uuid=builders.new_uuid())
    plan = builders.intent(active, "orders", sha256)
    prepared = LedgerPublicationStore(active.ledger).persist_prepared(plan)
    results: list[str] = []

    def claim() -> None:
        try:
            LedgerPublicationStore(database.runtime()).claim(plan, prepared)
            results.append("claimed")
        except (AlreadyClaimed, ClaimUncertain) as error:
            results.append(error.code)

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results.count("claimed") == 1
    assert results.count("DPONE_ALREADY_CLAIMED") == 5
    claimed = LedgerPublicationStore(active.ledger).of_attempt(sha256)
    assert claimed is not None
    with pytest.raises(AlreadyClaimed, match="EXCHANGE_INTENT"):
        LedgerPublicationStore(active.ledger).claim(plan, claimed.record)


def test_documents_and_history_are_immutable(active: builders.Activated, database: LedgerDatabase) -> None:
    store = CompositionAttemptStore(active.ledger)
    sha256 = digest_bytes(store.admit_once(active.attempt("orders")))
    # SQL Server looks at constraints before it asks the triggers, PostgreSQL the other way round
    hashed, referenced = (_here(database, f"{table}_append_only", constraint) for table, constraint in (
        ("evidence", "ck_evidence_hash"), ("attempt", "fk_attempt_guard_attempt")))  # fmt: skip
    assert _refused(database, update(schema.evidence).values(document=b"{}")) == hashed
    unreferenced = schema.evidence.c.kind == int(schema.EvidenceKind.OBSERVATION)
    assert _refused(database, schema.evidence.delete().where(unreferenced)) == "evidence_append_only"
    assert _refused(database, schema.attempt.delete()) == referenced
    assert _refused(database, update(schema.attempt).values(dag_id="x")) == "attempt_immutable"
    assert _refused(database, update(schema.attempt).values(state=2)) == "attempt_proofs"
    assert _refused(database, update(schema.attempt_guard).values(is_open=False)) == "attempt_guard_release"
    assert _refused(database, update(schema.guard).values(epoch=99)) == "guard_epoch"
    assert _refused(database, update(schema.guard).values(target_uuid=uuid.uuid4())) == "guard_target"
    assert _refused(database, update(schema.activation).values(state=1)) == "activation_transition"
    assert _refused(database, update(schema.activation).values(state=4)) == "activation_transition"
    if database.engine == "postgres":
        assert _refused(database, text("TRUNCATE dpone.principal CASCADE")) == "principal_append_only"
    else:  # the other tables are referenced anyway
        for table in ("publication", "dispatch", "attempt_guard", "authority_log", "ledger_meta"):
            with pytest.raises(DponeError):
                database.admin().write(lambda tx, t=table: tx.connection.exec_driver_sql(f"TRUNCATE TABLE dpone.{t}"))
    tampered = insert(schema.evidence).values(evidence_sha256=sha256, kind=8, subject=sha256, document=b"{}")
    assert _refused(database, tampered) == "ck_evidence_hash"


def test_runtime_role_cannot_delete_alter_or_enrol(active: builders.Activated, database: LedgerDatabase) -> None:
    store = CompositionAttemptStore(active.ledger)
    store.admit_once(active.attempt("orders"))
    for statement in (
        "DELETE FROM dpone.attempt",
        "UPDATE dpone.attempt SET dag_id = 'x'",
        _here(database, "UPDATE dpone.evidence SET document = '{}'", "UPDATE dpone.evidence SET document = 0x7b7d"),
        _here(database, "TRUNCATE dpone.attempt CASCADE", "TRUNCATE TABLE dpone.attempt"),
        _here(
            database, "ALTER TABLE dpone.attempt DISABLE TRIGGER ALL", "ALTER TABLE dpone.attempt DROP COLUMN fenced"
        ),
        "INSERT INTO dpone.guard SELECT * FROM dpone.guard",
        "UPDATE dpone.ledger_meta SET schema_version = 3",
    ):
        assert _refused(database, text(statement), as_admin=False) == "insufficient_privilege"
    with pytest.raises(LedgerRule):
        CompositionActivationStore(active.ledger).enrol(builders.enrolment(active.ledger, "new"))


def test_a_write_without_the_ledger_lock_is_refused(active: builders.Activated, database: LedgerDatabase) -> None:
    with pytest.raises(driver_errors(database.engine), match=r"ledger_lock|APPLOCK_MODE|transaction"):
        database.as_admin("UPDATE dpone.activation SET state = 3")


def test_retirement_waits_for_every_attempt_and_keeps_epochs(
    active: builders.Activated, database: LedgerDatabase
) -> None:
    store = CompositionAttemptStore(active.ledger)
    sha256 = store.admit_once(active.attempt("orders"))
    active.store.begin_retirement(active.stored.sha256)
    with pytest.raises(ActivationMissing):
        store.admit_once(active.attempt("rates"))
    with pytest.raises(ActivationRefused, match="not resolved"):
        active.store.finalize_retirement(active.stored.sha256)
    _journal(active, sha256, "dpone_i_1", Purpose.INGEST).closing(name="dpone_i_1")
    LedgerJournal(active.ledger, sha256).closed(name="dpone_i_1", evidence=builders.closure("dpone_i_1"))
    builders.end(store, sha256, AttemptState.FAILED)
    assert active.store.finalize_retirement(active.stored.sha256).state is ActivationState.RETIRED
    again = CompositionActivationStore(database.admin())
    prepared = active.store.prepare(*builders.prepare_request(database.admin(), again, active.enrolments))
    assert {e.epoch for e in prepared.epochs} == {2}


def test_a_second_activation_cannot_take_an_owned_guard(active: builders.Activated, database: LedgerDatabase) -> None:
    admin = CompositionActivationStore(database.admin())
    request, *rest = builders.prepare_request(database.admin(), admin, active.enrolments, environment="other")
    with pytest.raises(ActivationRefused, match="owned"):
        active.store.require_free(request, besides=[])
    with pytest.raises(ActivationRefused, match="taken by another"):
        active.store.prepare(request, *rest)
    assert active.store.in_states("other", *ActivationState) == []


@pytest.mark.parametrize("when", ["before_commit_arrives", "after_commit_happened"])
def test_lost_commit_ack_is_read_back_not_replayed(
    active: builders.Activated, database: LedgerDatabase, when: str
) -> None:
    """The socket is cut around COMMIT: acknowledged by read-back, or reported as not committed; never sent twice."""
    identity = active.attempt("orders")
    with CuttingProxy(database.host, database.port) as proxy:
        proxy.cut_on(database.commit_marker, forward=when == "after_commit_happened", times=1)
        store = CompositionAttemptStore(database.runtime(port=proxy.port))
        if when == "after_commit_happened":
            assert store.admit_once(identity) == identity.digest()
        else:
            with pytest.raises(LedgerUnavailable, match="nothing was committed"):
                store.admit_once(identity)
        assert proxy.cuts == 1
    found = CompositionAttemptStore(active.ledger).all_open()
    assert len(found) == (1 if when == "after_commit_happened" else 0)


def test_commit_in_doubt_is_never_success(active: builders.Activated, database: LedgerDatabase) -> None:
    """COMMIT's answer and the read-back are both cut: neither success nor failure is claimed."""
    with CuttingProxy(database.host, database.port) as proxy:
        proxy.cut_on(database.commit_marker, forward=True, times=1)
        proxy.refuse_after_cut = True
        store = CompositionAttemptStore(database.runtime(port=proxy.port))
        with pytest.raises(CommitUnknown):
            store.admit_once(active.attempt("orders"))


def test_a_claim_in_doubt_is_no_claim(active: builders.Activated, database: LedgerDatabase) -> None:
    """COMMIT's answer and the read-back are both cut around the one claim that would let an EXCHANGE be sent."""
    sha256 = CompositionAttemptStore(active.ledger).admit_once(active.attempt("orders"))
    _journal(active, sha256, "dpone_p_1", Purpose.PUBLISHER).ready(name="dpone_p_1", principal_uuid=builders.new_uuid())
    plan = builders.intent(active, "orders", sha256)
    prepared = LedgerPublicationStore(active.ledger).persist_prepared(plan)
    with CuttingProxy(database.host, database.port) as proxy:
        proxy.cut_on(database.commit_marker, forward=True, times=1)
        proxy.refuse_after_cut = True
        with pytest.raises(ClaimUncertain):
            LedgerPublicationStore(database.runtime(port=proxy.port)).claim(plan, prepared)


def test_unreachable_ledger_is_a_retryable_error_with_its_code(database: LedgerDatabase) -> None:
    ledger = database.runtime(port=1)
    with pytest.raises(LedgerUnavailable) as caught:
        ledger.read(lambda c: None)
    assert isinstance(caught.value, DponeError)
    assert caught.value.retryable


# --- the database itself refuses --------------------------------------------------------------------------------


def _publishing(active: builders.Activated) -> tuple[str, LedgerJournal]:
    """An attempt with a READY publisher that claimed a statement, and a publication PREPARED."""
    sha256 = CompositionAttemptStore(active.ledger).admit_once(active.attempt("orders"))
    journal = _journal(active, sha256, "dpone_p_1", Purpose.PUBLISHER)
    journal.ready(name="dpone_p_1", principal_uuid=builders.new_uuid())
    journal.claim_dispatch(dispatch_id=builders.new_uuid(), name="dpone_p_1", kind="insert", statement="x")
    LedgerPublicationStore(active.ledger).persist_prepared(builders.intent(active, "orders", sha256))
    return sha256, journal


@pytest.mark.parametrize(
    ("gate", "statement", "rule"),
    [
        ("READY", "UPDATE dpone.publication SET state = 3, revision = 2", "publication_transition"),
        ("READY", "UPDATE dpone.publication SET state = 2, revision = 3", "publication_transition"),
        ("READY", "UPDATE dpone.publication SET generation_uuid = old_target_uuid, revision = 2, state = 2",
         "publication_immutable"),
        ("READY", "UPDATE dpone.publication SET record_sha256 = intent_sha256", "publication_record"),
        ("READY", "UPDATE dpone.publication SET state = 4, revision = 2", "publication_gate_not_closed"),
        ("CLOSING", "UPDATE dpone.publication SET state = 2, revision = 2", "publication_gate_not_ready"),
        ("READY", "UPDATE dpone.principal SET state = 4", "principal_transition"),
        ("READY", "UPDATE dpone.principal SET purpose = 'other'", "principal_immutable"),
        ("CLOSING", "UPDATE dpone.principal SET state = 2", "principal_transition"),
        ("CLOSING", "UPDATE dpone.principal SET state = 4", "principal_evidence"),
        ("READY", "UPDATE dpone.dispatch SET statement = 'other'", "dispatch_transition"),
        ("READY", "UPDATE dpone.attempt SET fenced = '1'", "attempt_mark"),
        ("READY", "UPDATE dpone.attempt SET acknowledged = '1'", "attempt_mark"),
        ("READY", "UPDATE dpone.attempt SET outcome_sha256 = (SELECT release_sha256 FROM dpone.activation)", "attempt_proofs"),
        ("READY", "UPDATE dpone.guard SET owner_sha256 = NULL", "guard_release"),
        ("READY", "UPDATE dpone.guard SET enrolment_sha256 = (SELECT release_sha256 FROM dpone.activation)", "guard_held"),
    ],
)  # fmt: skip
def test_the_database_refuses_every_step_that_is_not_next(
    active: builders.Activated, database: LedgerDatabase, gate: str, statement: str, rule: str
) -> None:
    """As administrator, under the ledger lock: no client is needed to keep the order."""
    _, journal = _publishing(active)
    if gate == "CLOSING":
        journal.closing(name="dpone_p_1")
    assert _refused(database, text(statement)) == rule


def test_the_database_resolves_an_attempt_only_over_closed_gates_and_a_settled_publication(
    active: builders.Activated, database: LedgerDatabase
) -> None:
    sha256, journal = _publishing(active)
    closure, quiet = builders.closure("dpone_p_1")

    def end(tx: Tx) -> None:
        rests = {ProofKind.CLOSED_GATES: closure.digest(), ProofKind.QUIESCENCE: quiet.digest()}
        to = {
            column: digest_bytes(outcomes._prove(tx, sha256, kind, (rests[kind],), None))
            for column, kind in (("closed_sha256", ProofKind.CLOSED_GATES), ("quiescence_sha256", ProofKind.QUIESCENCE))
        }
        proof = outcomes.protect(tx, sha256, (builders.outcome(sha256, AttemptState.FAILED), None, None))
        tx.connection.execute(update(schema.attempt).values(state=3, outcome_sha256=digest_bytes(proof), **to))

    def close(tx: Tx) -> None:
        to = {
            "closure_sha256": digest_bytes(tx.record(schema.EvidenceKind.GATE_CLOSURE, sha256, closure)),
            "quiescence_sha256": digest_bytes(tx.record(schema.EvidenceKind.QUIESCENCE, sha256, quiet)),
        }
        tx.connection.execute(update(schema.principal).values(state=4, **to))

    admin = database.admin()
    with pytest.raises(LedgerRule, match="attempt_open_gates"):
        admin.write(end)
    journal.closing(name="dpone_p_1")
    with pytest.raises(LedgerRule, match="principal_open_dispatch"):
        admin.write(close)
    journal.closed(name="dpone_p_1", evidence=(closure, quiet))
    with pytest.raises(LedgerRule, match="attempt_publication"):
        admin.write(end)


def test_an_instance_is_admitted_once_whatever_its_plan(active: builders.Activated) -> None:
    store = CompositionAttemptStore(active.ledger)
    first = active.attempt("orders")
    sha256 = store.admit_once(first)
    builders.end(store, sha256, AttemptState.FAILED)
    with pytest.raises(AlreadyAdmitted):
        store.admit_once(first.model_copy(update={"plan_sha256": "sha256:" + "1" * 64}))


def test_a_finished_attempt_can_do_nothing_more(active: builders.Activated) -> None:
    store = CompositionAttemptStore(active.ledger)
    sha256 = store.admit_once(active.attempt("orders"))
    builders.end(store, sha256, AttemptState.COMMIT_UNKNOWN)  # its guards stay held
    with pytest.raises(Fenced):
        _journal(active, sha256, "dpone_i_1", Purpose.INGEST)


# --- the one way to write ---------------------------------------------------------------------------------------


def test_a_commit_still_under_way_is_waited_for_before_it_is_read_back(
    active: builders.Activated, database: LedgerDatabase
) -> None:
    """The connection breaks, the COMMIT arrives a second later: it is not reported as never committed."""
    identity = active.attempt("orders")
    with CuttingProxy(database.host, database.port) as proxy:
        proxy.late = 1.0
        proxy.cut_on(database.commit_marker, forward=True, times=1)
        assert CompositionAttemptStore(database.runtime(port=proxy.port)).admit_once(identity) == identity.digest()
    assert len(CompositionAttemptStore(active.ledger).all_open()) == 1


def test_a_transaction_replaced_while_it_was_open_is_no_write(database: LedgerDatabase) -> None:
    again = _here(database, "COMMIT", "COMMIT TRANSACTION; BEGIN TRANSACTION")
    with pytest.raises(LedgerMismatch, match="replaced"):
        database.runtime().write(lambda tx: tx.connection.exec_driver_sql(again) and None)
