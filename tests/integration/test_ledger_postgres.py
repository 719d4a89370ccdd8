"""What only PostgreSQL's ledger can meet: its durability settings, a standby, a session it ends by itself."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import text

from airflow_provider_dpone.contracts.canonical import digest_bytes, digest_of
from airflow_provider_dpone.errors import LedgerMismatch, LedgerUnavailable
from airflow_provider_dpone.ledger import schema
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.transaction import Tx
from tests import builders
from tests.ledger_database import LedgerDatabase


@pytest.fixture
def database(ledger_database: LedgerDatabase) -> LedgerDatabase:
    return ledger_database


@pytest.fixture
def active(database: LedgerDatabase) -> builders.Activated:
    return builders.activate(database.admin(), database.runtime(), "orders", "rates")


@pytest.mark.parametrize(
    ("setting", "message"),
    [("synchronous_commit = off", "durably"), ("default_transaction_isolation = 'repeatable read'", "isolation")],
)
def test_a_session_that_could_lose_or_miss_a_commit_is_refused(
    database: LedgerDatabase, setting: str, message: str
) -> None:
    with database.connect_admin() as connection:
        connection.execute(f"ALTER ROLE {database.admin_role} SET {setting}".encode())
    with pytest.raises(LedgerMismatch, match=message):
        database.admin().write(lambda tx: None)


def test_a_ledger_that_became_a_standby_is_tried_again_later(
    active: builders.Activated, database: LedgerDatabase
) -> None:
    with database.connect_admin() as connection:
        connection.execute(f"ALTER ROLE {database.admin_role} SET default_transaction_read_only = on".encode())
    with pytest.raises(LedgerUnavailable):
        CompositionAttemptStore(database.admin()).admit_once(active.attempt("orders"))


def test_a_process_that_stood_still_in_a_ledger_transaction_wrote_nothing(
    active: builders.Activated, database: LedgerDatabase
) -> None:
    """A frozen machine wakes up after the server ended its session."""

    def change(tx: Tx) -> None:
        tx.connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = '300ms'")
        tx.insert(
            schema.evidence, evidence_sha256=digest_bytes(digest_of(b"{}")), kind=12, subject=b"0" * 32, document=b"{}"
        )
        time.sleep(1.0)

    with pytest.raises(LedgerUnavailable):
        active.ledger.write(change)
    assert (
        active.ledger.read(lambda c: c.execute(text("SELECT count(*) FROM dpone.evidence WHERE kind = 12")).scalar())
        == 0
    )
