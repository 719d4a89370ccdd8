"""What the owner of the control database changes behind the rules is seen: by doctor, an activation, an admission.

On PostgreSQL, through all three. tests/live_mssql/test_tampering.py asks the same of SQL Server's two statements.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from airflow_provider_dpone.attempts import doctor
from airflow_provider_dpone.contracts.states import AttemptState
from airflow_provider_dpone.errors import DponeError, LedgerMismatch
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.schema import EvidenceKind, metadata
from tests import builders
from tests import ledger_database as made_databases
from tests.ledger_database import LedgerDatabase
from tests.ledger_tampering import BYTES, TAMPERINGS, Changed, History, Tampering, filled, made
from tests.servers import PostgresUnderTest

pytestmark = pytest.mark.timeout(900)


class Copies:
    """A ledger with its history, and as many copies of it as there are tamperings."""

    def __init__(self, postgres: PostgresUnderTest) -> None:
        self.postgres = postgres
        self.original = made_databases.create(postgres.superuser)
        self.history = made(builders.activate(self.original.admin(), self.original.runtime(), "orders", "rates"))

    def as_superuser(self, dbname: str) -> psycopg.Connection[Any]:
        return psycopg.connect(**{**self.postgres.superuser, "dbname": dbname}, autocommit=True)  # type: ignore[arg-type]

    def copy(self) -> tuple[LedgerDatabase, History]:
        """One more ledger that stands in the same place: its owner says that it is the one."""
        name = f"copy_{secrets.token_hex(4)}"
        with self.as_superuser("postgres") as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {self.original.dbname}".encode())
        database = replace(self.original, dbname=name)
        self.past_the_rules(name, "UPDATE dpone.ledger_meta SET incarnation = regexp_replace(incarnation, '[0-9]+$', "
                            "(SELECT oid::text FROM pg_database WHERE datname = current_database()))")  # fmt: skip
        active = replace(
            self.history.active, ledger=database.runtime(), store=CompositionActivationStore(database.runtime())
        )
        return database, replace(self.history, active=active)

    def past_the_rules(self, dbname: str, *statements: str, parameters: Any = None) -> None:
        """As the owner: rules off, written, rules on again, so that the layout is as it was installed."""
        tables = [table.name for table in metadata.sorted_tables]
        with self.as_superuser(dbname) as connection:
            for table in tables:
                connection.execute(f"ALTER TABLE dpone.{table} DISABLE TRIGGER ALL".encode())
            for statement in statements:
                connection.execute(statement.encode(), parameters)
            for table in tables:
                connection.execute(f"ALTER TABLE dpone.{table} ENABLE TRIGGER ALL".encode())
                for rule in ("rule", "truncate"):
                    connection.execute(f"ALTER TABLE dpone.{table} ENABLE ALWAYS TRIGGER {table}_{rule}".encode())


@pytest.fixture(scope="module")
def copies(postgres_server: PostgresUnderTest) -> Copies:
    return Copies(postgres_server)


def _postgres(history: History, tampering: Tampering) -> list[str]:
    literal, uuid_of = (lambda d: f"'\\x{d[7:]}'::bytea"), (lambda u: f"'{u}'")
    return [filled(history, statement, literal, uuid_of) for statement in tampering.statements]


def _examined(database: LedgerDatabase) -> list[str]:
    def nowhere(conn_id: str) -> Any:
        raise DponeError("no server here")

    return [f.what for f in doctor.examine(database.runtime(), nowhere) if f.severity is doctor.Severity.BAD]


def test_the_history_itself_is_in_order(copies: Copies) -> None:
    database, history = copies.copy()
    assert _examined(database) == []
    store = CompositionAttemptStore(database.runtime())
    for table in ("orders", "rates"):
        store.admit_once(history.active.attempt(table, run_id="next"))


@pytest.mark.parametrize("tampering", TAMPERINGS, ids=lambda t: t.what)
def test_doctor_the_next_activation_and_the_next_admission_see_it(copies: Copies, tampering: Tampering) -> None:
    database, history = copies.copy()
    copies.past_the_rules(database.dbname, *_postgres(history, tampering))
    assert tampering.seen in _examined(database)
    admin = database.admin()
    admin.read(lambda c: None)
    activations = CompositionActivationStore(database.runtime())
    request = builders.prepare_request(
        admin, CompositionActivationStore(admin), {"more": builders.enrolment(admin, "more")}, environment="other"
    )
    with pytest.raises(LedgerMismatch, match="do not agree"):
        activations.prepare(*request)
    assert activations.in_states("other", *builders.ALL_STATES) == []
    if not tampering.admission:
        return
    store, refused = CompositionAttemptStore(database.runtime()), []
    for table in ("orders", "rates"):
        try:
            store.admit_once(history.active.attempt(table, run_id="next"))
        except LedgerMismatch as error:
            refused.append(error.message)
    assert len(refused) == 1, "only the guard that it concerns"
    assert "do not agree" in refused[0]


@pytest.mark.parametrize(("what", "changed"), BYTES, ids=[what for what, _ in BYTES])
@pytest.mark.parametrize(
    "kind", [EvidenceKind.OUTCOME, EvidenceKind.PROOF, EvidenceKind.PUBLICATION, EvidenceKind.RELEASE]
)
def test_altered_bytes_are_named_and_the_rest_is_still_looked_at(
    copies: Copies, what: str, changed: Changed, kind: EvidenceKind
) -> None:
    database, _ = copies.copy()
    with copies.as_superuser(database.dbname) as connection:
        found = connection.execute("SELECT evidence_sha256, document FROM dpone.evidence WHERE kind = %s", (int(kind),))
        key, raw = found.fetchall()[0]
        connection.execute("ALTER TABLE dpone.evidence DROP CONSTRAINT ck_evidence_hash")
    given = (changed(raw), key)
    copies.past_the_rules(
        database.dbname, "UPDATE dpone.evidence SET document = %s WHERE evidence_sha256 = %s", parameters=given
    )
    copies.past_the_rules(database.dbname, "UPDATE dpone.guard SET epoch = 9")
    with copies.as_superuser(database.dbname) as connection:
        [again] = [s for s in database.dialect().ddl() if "ck_evidence_hash" in s]
        again = next(s for s in again.split(";") if "ck_evidence_hash" in s)
        connection.execute(f"{again} NOT VALID".encode())
        connection.execute("UPDATE pg_constraint SET convalidated = true WHERE conname = 'ck_evidence_hash'")
    found_now = _examined(database)
    assert "evidence bytes do not match their digest" in found_now
    assert "a guard is another than its identity or its enrolment says" in found_now
    assert "the ledger is not as and where it was installed" not in found_now


def test_retirement_frees_nothing_of_a_tampered_attempt(copies: Copies) -> None:
    database, history = copies.copy()
    copies.past_the_rules(database.dbname, *_postgres(history, TAMPERINGS[0]))
    store = CompositionActivationStore(database.runtime())
    store.begin_retirement(history.active.stored.sha256)
    with pytest.raises(LedgerMismatch, match="do not agree"):
        store.finalize_retirement(history.active.stored.sha256)
    assert {guard.owner_sha256 for guard in store.guards()} == {history.active.stored.sha256}


def test_an_ended_attempt_is_not_fenced_any_more(copies: Copies) -> None:
    database, history = copies.copy()
    store = CompositionAttemptStore(database.runtime())
    store.fence(history.published)
    stored = store.read_exact(history.published)
    assert (stored.state, stored.fenced) == (AttemptState.SUCCEEDED, False)
