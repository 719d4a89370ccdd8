"""The ledger is itself at every transaction: its place, its owners and grants, its family, no earlier system beside it; and
what an outcome must rest on. Also the way out for an attempt whose server is gone."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.proofs import Adoption
from airflow_provider_dpone.contracts.receipts import LoadReceipt
from airflow_provider_dpone.contracts.states import AttemptState, Connector, Family, GateState, Purpose
from airflow_provider_dpone.errors import (
    AdjudicationRefused,
    FamilyForeign,
    Fenced,
    LedgerMismatch,
    LedgerRule,
    ServerUnreachable,
)
from airflow_provider_dpone.ledger import schema
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.dialects.postgres import PostgresDialect
from airflow_provider_dpone.ledger.install import install
from airflow_provider_dpone.ledger.journal import LedgerJournal
from airflow_provider_dpone.ledger.transaction import Ledger
from airflow_provider_dpone.operators import reconcile
from tests import builders
from tests.ledger_database import LedgerDatabase
from tests.servers import PostgresUnderTest


@pytest.fixture
def active(ledger_database: LedgerDatabase) -> builders.Activated:
    return builders.activate(ledger_database.admin(), ledger_database.runtime(), "orders", "rates")


def _adoption(ledger: Ledger) -> Any:
    return lambda before, after: Adoption(
        service_id=str(ledger.service_id),
        before=before,
        after=after,
        adopted_by="dba",
        statement="gone",
        adopted_at="now",
    )


def test_a_copy_of_the_database_is_no_ledger_until_it_is_adopted_on_record(
    active: builders.Activated, ledger_database: LedgerDatabase, postgres_server: PostgresUnderTest
) -> None:
    name = f"copy_{secrets.token_hex(4)}"
    with psycopg.connect(**{**postgres_server.superuser, "dbname": "postgres"}, autocommit=True) as connection:  # type: ignore[arg-type]
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {ledger_database.dbname}".encode())
    copied = replace(ledger_database, dbname=name)
    store = CompositionAttemptStore(copied.runtime())
    for attempt in (store.all_open, lambda: store.admit_once(active.attempt("orders"))):
        with pytest.raises(LedgerMismatch, match="ledger adopt"):
            attempt()
    with pytest.raises(LedgerRule):
        copied.runtime().adopt(_adoption(active.ledger))
    with pytest.raises(LedgerRule):  # the rule of the row itself
        copied.admin()._tolerating("incarnation").write(
            lambda tx: tx.move(schema.ledger_meta, {"one": 1}, expect={}, to={"incarnation": "elsewhere"})
        )
    admin = copied.admin()
    admin.adopt(_adoption(active.ledger))
    assert store.all_open() == []
    with pytest.raises(LedgerMismatch, match="nothing to adopt"):
        admin.adopt(_adoption(active.ledger))
    kept = copied.as_admin("SELECT count(*) FROM dpone.evidence WHERE kind = 30")
    assert kept == [(1,)]
    CompositionAttemptStore(ledger_database.runtime()).all_open()  # the original was never touched


@pytest.mark.parametrize(
    "statement",
    [
        "GRANT DELETE ON dpone.attempt TO {runtime}",
        "GRANT TRUNCATE ON dpone.evidence TO {runtime}",
        "GRANT UPDATE (document) ON dpone.evidence TO {runtime}",
        "GRANT INSERT ON dpone.guard TO PUBLIC",
        "GRANT EXECUTE ON FUNCTION dpone.refuse(text) TO PUBLIC; REVOKE ALL ON FUNCTION dpone.refuse(text) FROM PUBLIC",
        "GRANT CREATE ON SCHEMA dpone TO {runtime}",
        "GRANT {admin} TO {runtime}",
        "ALTER TABLE dpone.dispatch OWNER TO {super}",
        "ALTER FUNCTION dpone.refuse(text) OWNER TO {super}",
        "ALTER SCHEMA dpone OWNER TO {super}",
        "CREATE RULE nothing AS ON DELETE TO dpone.dispatch DO INSTEAD NOTHING",
        "ALTER TABLE dpone.attempt FORCE ROW LEVEL SECURITY",
        "CREATE TABLE public.heir () INHERITS (dpone.attempt)",
        "ALTER FUNCTION dpone.require_lock() SET search_path = public",
    ],
)
def test_owners_grants_memberships_and_rules_are_part_of_the_layout(
    ledger_database: LedgerDatabase, postgres_server: PostgresUnderTest, statement: str
) -> None:
    ledger = ledger_database.runtime()
    ledger.write(lambda tx: None)
    superuser = {**postgres_server.superuser, "dbname": ledger_database.dbname}
    with psycopg.connect(**superuser, autocommit=True) as connection:  # type: ignore[arg-type]
        names = {
            "runtime": ledger_database.runtime_role,
            "admin": ledger_database.admin_role,
            "super": superuser["user"],
        }
        for part in statement.format(**names).split(";"):
            connection.execute(part.encode())
    for use in (lambda: ledger.read(lambda c: None), lambda: ledger.write(lambda tx: None)):
        with pytest.raises(LedgerMismatch, match="altered"):
            use()


@pytest.mark.parametrize("name", schema.LEGACY_TABLES)
def test_a_table_of_the_earlier_system_refuses_every_transaction(ledger_database: LedgerDatabase, name: str) -> None:
    ledger = ledger_database.runtime()
    ledger.read(lambda c: None)
    ledger_database.as_admin(f"CREATE SCHEMA old; CREATE TABLE old.{name} (a int)")
    for use in (lambda: ledger.read(lambda c: None), lambda: ledger.write(lambda tx: None)):
        with pytest.raises(LedgerMismatch, match=rf"old\.{name}"):
            use()


def test_a_production_ledger_is_used_only_pinned(empty_ledger_database: LedgerDatabase) -> None:
    database = empty_ledger_database
    service_id = install(
        database.connect_admin, PostgresDialect(), family=Family.PRODUCTION, runtime_role=database.runtime_role
    )
    with pytest.raises(LedgerMismatch, match=f'"service_id": "{service_id}"'):
        database.runtime().read(lambda c: None)
    with pytest.raises(LedgerMismatch, match="pinned"):
        Ledger(database.connect_runtime, PostgresDialect(), uuid.uuid4()).read(lambda c: None)
    pinned = Ledger(database.connect_runtime, PostgresDialect(), service_id)
    pinned.read(lambda c: None)
    foreign = builders.enrolment(pinned, "orders")  # of family nonproduction
    with pytest.raises(FamilyForeign):
        CompositionActivationStore(Ledger(database.connect_admin, PostgresDialect(), service_id)).enrol(foreign)


def test_an_identity_of_another_family_is_admitted_by_nobody(active: builders.Activated) -> None:
    store = CompositionAttemptStore(active.ledger)
    foreign = active.attempt("orders").model_copy(update={"family": Family.PRODUCTION})
    with pytest.raises(FamilyForeign):
        store.admit_once(foreign)
    values = {
        "attempt_sha256": bytes.fromhex(foreign.digest()[7:]), "activation_sha256": bytes.fromhex(active.stored.sha256[7:]),
        "scheduler_key": bytes.fromhex(foreign.scheduler_key()[7:]), "document": foreign.wire(),
        "workload_id": foreign.workload_id, **foreign.coordinates.model_dump(exclude={"schema_name", "max_tries"}),
        "state": 1, "fenced": False, "acknowledged": False,
    }  # fmt: skip
    with pytest.raises(LedgerRule, match="family"):
        active.ledger.write(lambda tx: tx.insert(schema.attempt, **values))
    assert store.all_open() == []


def test_a_read_that_was_given_another_transaction_counts_for_nothing(ledger_database: LedgerDatabase) -> None:
    with pytest.raises(LedgerMismatch, match="replaced"):
        ledger_database.runtime().read(lambda c: c.exec_driver_sql("COMMIT") and None)


# --- outcomes ---------------------------------------------------------------------------------------------------


def _admitted(active: builders.Activated, table: str = "orders") -> tuple[CompositionAttemptStore, str]:
    store = CompositionAttemptStore(active.ledger)
    return store, store.admit_once(active.attempt(table))


def test_success_needs_the_receipt_of_the_work(active: builders.Activated) -> None:
    store, sha256 = _admitted(active)
    success = builders.outcome(sha256, AttemptState.SUCCEEDED)
    with pytest.raises(LedgerRule, match="outcome_receipt"):
        store.end(sha256, AttemptState.RUNNING, success)
    with pytest.raises(LedgerRule, match="outcome_evidence"):  # another attempt's
        store.end(sha256, AttemptState.RUNNING, success, builders.receipt(digest_of(b"other")))
    load = LoadReceipt(
        family=Family.NONPRODUCTION, stand_in=True, state="LOADED", reused=False, workload_id="dag.orders",
        attempt_sha256=sha256, load_sha256=digest_of(b"never committed"), transaction="1", target="t", source="s",
        snapshot_taken_at=builders.NOW, rows=1, row_sum=builders.ROW_SUM, source_bytes=1, wire_bytes=1, staging_bytes=1,
        milliseconds={},
    )  # fmt: skip
    with pytest.raises(LedgerRule, match="outcome_evidence"):
        store.end(sha256, AttemptState.RUNNING, success, load)
    assert store.read_exact(sha256).state is AttemptState.RUNNING
    assert builders.end(store, sha256, AttemptState.SUCCEEDED).state is AttemptState.SUCCEEDED


def test_an_unknown_attempt_succeeds_only_by_observation_or_decision(active: builders.Activated) -> None:
    store, sha256 = _admitted(active)
    builders.end(store, sha256, AttemptState.COMMIT_UNKNOWN)
    with pytest.raises(LedgerRule, match="outcome_receipt"):
        store.end(sha256, AttemptState.COMMIT_UNKNOWN, builders.outcome(sha256, AttemptState.SUCCEEDED))
    assert store.read_exact(sha256).state is AttemptState.COMMIT_UNKNOWN


def test_a_protected_failure_is_never_promoted(active: builders.Activated) -> None:
    store, sha256 = _admitted(active)
    other_store, other = _admitted(active, "rates")
    failed = store.protect_outcome(sha256, builders.outcome(sha256, AttemptState.FAILED))
    for state, proof, attempt in (
        (AttemptState.SUCCEEDED, failed, sha256),
        (AttemptState.FAILED, failed, other),
        (AttemptState.FAILED, digest_of(b"nothing"), sha256),
    ):
        with pytest.raises(LedgerRule, match="protected outcome"):
            other_store.finalize(attempt, state=state, outcome_evidence_sha256=proof)
    promoted = f"UPDATE dpone.attempt SET state = 2, outcome_sha256 = '\\x{failed[7:]}', closed_sha256 = '\\x{failed[7:]}', quiescence_sha256 = '\\x{failed[7:]}' WHERE attempt_sha256 = '\\x{sha256[7:]}'"
    with pytest.raises(LedgerRule, match="attempt_proofs"):
        active.ledger.write(lambda tx: tx.connection.exec_driver_sql(promoted) and None)
    assert (
        store.finalize(sha256, state=AttemptState.FAILED, outcome_evidence_sha256=failed).state is AttemptState.FAILED
    )


def test_a_proof_over_a_journal_that_grew_since_is_no_proof(active: builders.Activated) -> None:
    store, sha256 = _admitted(active)
    early = store.protect_outcome(sha256, builders.outcome(sha256, AttemptState.FAILED))
    journal = LedgerJournal(active.ledger, sha256)
    journal.journal(
        connector=Connector.CLICKHOUSE, service_id=builders.SERVICE, name="dpone_i_1", purpose=Purpose.INGEST
    )
    journal.closing(name="dpone_i_1")
    with pytest.raises(LedgerRule, match="principal_evidence"):
        journal.closed(name="dpone_i_1", evidence=builders.closure("dpone_i_2"))
    journal.closed(name="dpone_i_1", evidence=builders.closure("dpone_i_1"))
    with pytest.raises(LedgerRule, match="attempt_proofs"):
        store.finalize(sha256, state=AttemptState.FAILED, outcome_evidence_sha256=early)


@pytest.mark.parametrize("how", ["fenced", "unknown"])
def test_findings_of_an_attempt_that_may_not_act_are_refused(active: builders.Activated, how: str) -> None:
    store, sha256 = _admitted(active)
    if how == "fenced":
        store.fence(sha256)
    else:
        builders.end(store, sha256, AttemptState.COMMIT_UNKNOWN)
    with pytest.raises(Fenced):
        store.record(sha256, (schema.EvidenceKind.BASELINE, builders.outcome(sha256, AttemptState.FAILED)))
    store.record(sha256, (schema.EvidenceKind.DBT_READ_BACK, builders.outcome(sha256, AttemptState.FAILED)))


# --- no dead end ------------------------------------------------------------------------------------------------


def test_an_attempt_whose_server_is_gone_is_ended_by_a_recorded_word_and_then_decided(
    active: builders.Activated, ledger_database: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sha256 = _admitted(active)
    journal = LedgerJournal(active.ledger, sha256)
    journal.journal(
        connector=Connector.CLICKHOUSE, service_id=builders.SERVICE, name="dpone_i_1", purpose=Purpose.INGEST
    )
    journal.ready(name="dpone_i_1", principal_uuid=builders.new_uuid())
    journal.claim_dispatch(dispatch_id=builders.new_uuid(), name="dpone_i_1", kind="insert", statement="INSERT")

    def gone(*_: object) -> Any:
        raise ServerUnreachable("another server answers there")

    monkeypatch.setattr(reconcile, "world_of", gone)
    stored, admin = store.read_exact(sha256), ledger_database.admin()
    with pytest.raises(AdjudicationRefused):
        reconcile.establish(admin, stored, "", "looked")
    with pytest.raises(LedgerRule, match="evidence_administrator"):
        reconcile.establish(active.ledger, stored, "dba", "looked")
    ended, signed = reconcile.establish(admin, stored, "dba", "the disk is in my hand")
    assert signed is not None
    assert (signed.principals, ended.state, ended.fenced) == (("dpone_i_1",), AttemptState.COMMIT_UNKNOWN, True)
    assert "DPONE_SERVER_UNREACHABLE" in signed.refusal
    assert [p.state for p in journal.principals()] == [GateState.CLOSED]
    with pytest.raises(LedgerRule, match="outcome_decision"):  # nobody but a person can end it now
        builders.end(store, sha256, AttemptState.FAILED, AttemptState.COMMIT_UNKNOWN)
    done = reconcile.adjudicate(admin, reconcile.decision(ended, "FAILED", "dba", "nothing was published"))
    assert done.state is AttemptState.FAILED
    assert active.ledger.read(active.ledger.dialect.audit) == []
    store.admit_once(active.attempt("orders", run_id="next"))
    active.store.begin_retirement(active.stored.sha256)
    with pytest.raises(AdjudicationRefused, match="FAILED"):
        reconcile.establish(admin, done, "dba", "again")
