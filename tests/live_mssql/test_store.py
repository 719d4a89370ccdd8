"""The ledger's stores on SQL Server by their public names: the seven cases of the profile ``store``, one function each."""

from __future__ import annotations

import threading
import uuid
from typing import Any, Final

import pytest
from sqlalchemy import select

from airflow_provider_dpone.contracts.enrolment import TargetEnrolment
from airflow_provider_dpone.contracts.states import ActivationState, AttemptState, Family
from airflow_provider_dpone.errors import (
    ActivationRefused,
    ActivationStale,
    DocumentInvalid,
    GuardHeld,
    LedgerBusy,
    LedgerExists,
    LedgerMismatch,
    LedgerRule,
    LedgerUnavailable,
)
from airflow_provider_dpone.ledger import schema
from airflow_provider_dpone.ledger.activations import StoredActivation
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from airflow_provider_dpone.ledger.install import install
from airflow_provider_dpone.ledger.mssql import MssqlCompositionActivationStore, MssqlCompositionAttemptStore
from airflow_provider_dpone.ledger.transaction import Ledger
from tests import builders
from tests.cutting_proxy import CuttingProxy
from tests.mssql_server import MssqlLedgerDatabase, opened

BIGGEST: Final = 2**63 - 1


class Store:
    """The public stores over one database, and what the cases look at behind them."""

    def __init__(self, database: MssqlLedgerDatabase, service_id: uuid.UUID) -> None:
        self.database = database
        self.service_id = service_id
        self.activations = self.activations_of(database.connect_runtime)
        self.administrator = self.activations_of(database.connect_admin)
        self.attempts = MssqlCompositionAttemptStore(database.connect_runtime, expected_service_id=service_id)
        self.ledger: Ledger = database.admin()
        self.ledger.read(lambda c: None)
        self.enrolments: dict[str, TargetEnrolment] = {}

    def activations_of(self, connect: Any) -> MssqlCompositionActivationStore:
        return MssqlCompositionActivationStore(connect, expected_service_id=self.service_id)

    def request(self, *tables: str, environment: str = "test") -> tuple[Any, ...]:
        """What a release of these tables is prepared from; a table keeps its enrolment."""
        for table in tables:
            self.enrolments.setdefault(table, builders.enrolment(self.ledger, table))
        enrolments = {table: self.enrolments[table] for table in tables}
        return builders.prepare_request(self.ledger, self.administrator, enrolments, environment)

    def active(self, *tables: str) -> StoredActivation:
        return self.activations.activate(self.activations.prepare(*self.request(*tables)).sha256)

    def attempt(self, stored: StoredActivation, table: str, run_id: str = "run") -> Any:
        return builders.Activated(self.ledger, self.activations, stored, {}).attempt(table, run_id=run_id)

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table."""

        def query(connection: Any) -> dict[str, list[tuple[Any, ...]]]:
            return {
                table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
                for table in schema.metadata.sorted_tables
            }

        return self.ledger.read(query)

    def exact(self) -> CompositionAttemptStore:
        """Attempts under the complete layout check at every write, also where it is slow."""
        self.database.exact = True
        return CompositionAttemptStore(self.database.runtime())

    def check_dropped(self, table: str, name: str) -> str:
        """Drop a CHECK of a table; the batch that adds it again."""
        with opened(self.database.under_test.connect(database=self.database.dbname)) as connection:
            batch(connection, f"ALTER TABLE dpone.{table} DROP CONSTRAINT {name}")
        [again] = [one for one in self.database.dialect().ddl() if f"CONSTRAINT {name}" in one]
        return again

    def past_the_rules(self, table: str, statement: str) -> None:
        """One statement of a member of sysadmin, with the table's rule off."""
        switches = [f"DISABLE TRIGGER dpone.{table}_rule ON dpone.{table}", statement,
                    f"ENABLE TRIGGER dpone.{table}_rule ON dpone.{table}"]  # fmt: skip
        with opened(self.database.under_test.connect(database=self.database.dbname)) as connection:
            for one in switches:
                batch(connection, one)


@pytest.fixture
def store(empty_mssql_ledger_database: MssqlLedgerDatabase, mssql_stores: None) -> Store:
    """A ledger of its own for each case."""
    return Store(empty_mssql_ledger_database, empty_mssql_ledger_database.install())


@pytest.mark.case("S1")
def test_a_ledger_is_installed_once_and_a_release_goes_through_its_whole_life(
    empty_mssql_ledger_database: MssqlLedgerDatabase, mssql_stores: None
) -> None:
    database = empty_mssql_ledger_database
    absent = MssqlCompositionActivationStore(database.connect_admin, expected_service_id=uuid.uuid4())
    with pytest.raises(LedgerMismatch, match="ledger install"):
        absent.guards()
    assert database.as_admin("SELECT count(*) FROM sys.schemas WHERE name = 'dpone'") == [(0,)]
    store = Store(database, database.install())
    with pytest.raises(LedgerExists):
        install(
            database.connect_admin, database.dialect(), family=Family.NONPRODUCTION, runtime_role=database.runtime_role
        )
    request = store.request("orders", "rates")
    prepared = store.activations.prepare(*request)
    assert prepared.state is ActivationState.PREPARED
    with pytest.raises(ActivationStale):  # an occurrence is one row; a caller that asks again reads it
        store.activations.prepare(*request)
    assert store.activations.of_occurrence(request[0].occurrence_id) == prepared
    assert [e.epoch for e in prepared.epochs] == [1, 1]
    assert store.activations.activate(prepared.sha256).state is ActivationState.ACTIVE
    kept = store.everything()
    documents = {bytes(row[3]) for row in kept["evidence"]} | {bytes(row[3]) for row in kept["activation"]}
    assert {document.wire() for document in request} <= documents
    store.activations.begin_retirement(prepared.sha256)
    assert store.activations.finalize_retirement(prepared.sha256).state is ActivationState.RETIRED
    assert [(g.owner_sha256, g.epoch) for g in store.activations.guards()] == [(None, 1), (None, 1)]
    successor = store.activations.prepare(*store.request("orders", "rates"))
    assert [e.epoch for e in successor.epochs] == [2, 2]
    assert store.activations.read_exact(prepared.sha256).state is ActivationState.RETIRED


@pytest.mark.case("S2")
def test_a_conflict_leaves_no_trace(store: Store) -> None:
    first = store.request("orders")
    store.activations.prepare(*first)
    overlapping = store.request("orders", "rates", environment="other")
    exhausted = store.request("late", environment="third")
    guard = exhausted[0].resources[0].guard_id
    store.past_the_rules("guard", f"UPDATE dpone.guard SET epoch = {BIGGEST} WHERE guard_id = 0x{guard[7:]}")
    before = store.everything()
    with pytest.raises(ActivationRefused, match="taken by another"):
        store.activations.prepare(*overlapping)
    with pytest.raises(LedgerRule):
        store.activations.prepare(*exhausted)
    assert store.everything() == before


@pytest.mark.case("S3")
def test_concurrent_preparations_have_one_winner(store: Store) -> None:
    first = store.request("orders", "rates")
    requests = [first, first, *(store.request("orders", "rates", environment=other) for other in ("other", "third"))]
    results: list[str] = []

    def prepare(documents: tuple[Any, ...]) -> None:
        try:
            store.activations_of(store.database.connect_runtime).prepare(*documents)
            results.append("prepared")
        except (ActivationRefused, LedgerBusy, LedgerRule) as error:
            results.append(error.code)

    threads = [threading.Thread(target=prepare, args=(documents,)) for documents in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(results) == len(requests)
    assert results.count("prepared") == 1
    owners = {guard.owner_sha256 for guard in store.activations.guards()}
    assert len(owners) == 1
    assert None not in owners


@pytest.mark.case("S4")
@pytest.mark.timeout(600)
def test_a_lost_commit_answer_is_read_back_and_never_replayed(store: Store) -> None:
    stored = store.active("orders", "rates")
    database = store.database
    for table, forward in (("orders", True), ("rates", False)):
        identity = store.attempt(stored, table)
        with CuttingProxy(database.host, database.port) as proxy:
            proxy.cut_on(database.commit_marker, forward=forward)
            attempts = MssqlCompositionAttemptStore(
                lambda port=proxy.port: database.connect_runtime(port), expected_service_id=store.service_id
            )
            if forward:
                assert attempts.admit_once(identity) == identity.digest()
            else:
                with pytest.raises(LedgerUnavailable, match="nothing was committed"):
                    attempts.admit_once(identity)
            assert (proxy.cuts, proxy.connections) == (1, 2)  # the write, and its read-back
    assert [found.identity.workload_id for found in store.attempts.all_open()] == ["dag.orders"]


@pytest.mark.case("S5")
def test_a_foreign_service_and_corrupt_bytes_are_refused(store: Store) -> None:
    stored = store.active("orders")
    foreign = MssqlCompositionAttemptStore(store.database.connect_runtime, expected_service_id=uuid.uuid4())
    before = store.everything()
    with pytest.raises(LedgerMismatch, match="pinned"):
        foreign.admit_once(store.attempt(stored, "orders"))
    assert store.everything() == before
    release = stored.request.release_id
    original = store.activations.read_exact(stored.sha256).release_original
    rehash = store.check_dropped("evidence", "ck_evidence_hash")  # it refuses bytes that do not match their key
    key = f"WHERE evidence_sha256 = 0x{release[7:]}"
    changed = original[:-1] + b" "
    store.past_the_rules("evidence", f"UPDATE dpone.evidence SET document = 0x{changed.hex()} {key}")
    with pytest.raises((DocumentInvalid, LedgerMismatch)):
        store.activations.read_exact(stored.sha256)
    before = store.everything()
    exact = store.exact()
    with pytest.raises(LedgerMismatch, match="altered"):
        exact.admit_once(store.attempt(stored, "orders"))
    assert store.everything() == before
    store.past_the_rules("evidence", f"UPDATE dpone.evidence SET document = 0x{original.hex()} {key}")
    store.past_the_rules("evidence", rehash)
    assert store.activations.read_exact(stored.sha256) == stored
    assert exact.admit_once(identity := store.attempt(stored, "orders")) == identity.digest()


@pytest.mark.case("S6")
def test_a_running_attempt_blocks_retirement(store: Store) -> None:
    stored = store.active("orders")
    sha256 = store.attempts.admit_once(store.attempt(stored, "orders"))
    store.activations.begin_retirement(stored.sha256)
    with pytest.raises(ActivationRefused, match="not resolved") as caught:
        store.activations.finalize_retirement(stored.sha256)
    assert caught.value.details["attempts"] == [sha256]
    assert [g.owner_sha256 for g in store.activations.guards()] == [stored.sha256]


@pytest.mark.case("S7")
def test_an_unknown_attempt_blocks_retirement_and_its_successor(store: Store) -> None:
    stored = store.active("orders")
    sha256 = store.attempts.admit_once(store.attempt(stored, "orders"))
    builders.end(store.attempts, sha256, AttemptState.COMMIT_UNKNOWN)
    with pytest.raises(GuardHeld):
        store.attempts.admit_once(store.attempt(stored, "orders", run_id="next"))
    # however long ago that was
    store.past_the_rules("attempt", "UPDATE dpone.attempt SET admitted_at = '2001-01-01T00:00:00+00:00'")
    with pytest.raises(GuardHeld):
        store.attempts.admit_once(store.attempt(stored, "orders", run_id="later"))
    store.activations.begin_retirement(stored.sha256)
    with pytest.raises(ActivationRefused, match="not resolved"):
        store.activations.finalize_retirement(stored.sha256)
    with pytest.raises(ActivationRefused, match="taken by another"):
        store.activations.prepare(*store.request("orders", environment="other"))
    assert [g.owner_sha256 for g in store.activations.guards()] == [stored.sha256]
