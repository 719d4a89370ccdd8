"""What passes by itself on SQL Server is told from what a retry would only repeat, on real locks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyodbc
import pytest
from sqlalchemy import text

from airflow_provider_dpone.engines.mssql import session as session_module
from airflow_provider_dpone.engines.mssql.control import MssqlControl, MssqlSession
from airflow_provider_dpone.engines.mssql.load_writer import MssqlLoadWriter
from airflow_provider_dpone.errors import LedgerBusy, ServerRefused
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from airflow_provider_dpone.ledger.schema import EvidenceKind
from tests.live_mssql.source_support import MssqlSourceDatabase
from tests.live_mssql.target_world import MssqlWorld
from tests.mssql_server import MssqlLedgerDatabase, MssqlServer
from tests.stand_in import numbered

pytestmark = pytest.mark.timeout(600)
DONE = {"running": 0, "commit_unknown": 0, "open_guards": 0, "open_gates": 0}


@pytest.fixture(scope="module")
def database(mssql_server: MssqlServer) -> MssqlSourceDatabase:
    return MssqlSourceDatabase.fresh(mssql_server)


@pytest.fixture(autouse=True)
def numbers(mssql_server: MssqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in gives a lock that was not free in time no number of its own."""
    if mssql_server.stand_in:
        monkeypatch.setattr(session_module, "diagnose", numbered)


@contextmanager
def altering(connection: pyodbc.Connection, table: str) -> Iterator[None]:
    """Another session holds the table's schema lock, which every reader and writer waits for."""
    batch(connection, "BEGIN TRANSACTION")
    batch(connection, f"ALTER TABLE {table} ADD dpone_test_column int")
    try:
        yield
    finally:
        batch(connection, "ROLLBACK TRANSACTION")


def refusal(action: Any, *arguments: Any) -> ServerRefused:
    with pytest.raises(ServerRefused) as refused:
        action(*arguments)
    return refused.value


def test_the_victim_of_a_deadlock_may_try_again(database: MssqlSourceDatabase) -> None:
    database.run("CREATE TABLE dbo.one (a int)", "INSERT INTO dbo.one VALUES (1)")
    database.run("CREATE TABLE dbo.two (a int)", "INSERT INTO dbo.two VALUES (1)")
    control = MssqlControl(database.params(), database.dbname)
    victims: list[ServerRefused] = []

    def take(session: MssqlSession, table: str) -> None:
        try:
            session.query(f"UPDATE dbo.{table} SET a = a + 1")
        except ServerRefused as error:
            victims.append(error)

    with control.fresh() as first, control.fresh() as second:
        for session, table in ((first, "one"), (second, "two")):
            session.query("BEGIN TRANSACTION")
            take(session, table)
        waiting = threading.Thread(target=take, args=(first, "two"))
        waiting.start()
        take(second, "one")
        second.close()
        waiting.join(60)
    [victim] = victims
    assert victim.details["server_code"] == 1205
    assert victim.retryable


def test_a_lock_that_is_not_free_in_time_may_be_tried_again_and_a_wrong_value_may_not(
    database: MssqlSourceDatabase,
) -> None:
    database.run("CREATE TABLE dbo.held (a int)")
    control = MssqlControl(database.params(), database.dbname)
    with control.fresh() as session, closing(database.server.connect(database=database.dbname)) as other:
        session.query("SET LOCK_TIMEOUT 500")
        with altering(other, "dbo.held"):
            late = refusal(session.query, "SELECT COUNT(*) FROM dbo.held")
    assert late.details["server_code"] == 1222
    assert late.retryable
    with control.fresh() as session:
        assert not refusal(session.query, "SELECT CONVERT(int, 'no number')").retryable


def test_a_load_whose_swap_waits_too_long_is_retried_and_then_loads(
    mssql_world: MssqlWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = mssql_world
    world.make_load("t", "id int NOT NULL", "VALUES (1), (2)")
    world.sql("INSERT INTO mart.t VALUES (7)")
    swap = MssqlLoadWriter.swap

    def held(writer: MssqlLoadWriter, *arguments: Any) -> None:
        writer._lock_wait = 0.5
        with closing(world.mssql.connect(database=world.database)) as other, altering(other, "mart.t"):
            swap(writer, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(MssqlLoadWriter, "swap", held)
        late = refusal(world.cell("t").run)
    assert late.details["server_code"] == 1222
    assert late.retryable
    assert world.rows("t") == [(7,)]
    assert world.cell("t", try_number=2).run().rows == 2
    counts = world.ledger_counts()
    assert {name: counts[name] for name in DONE} == DONE


def test_a_table_of_the_ledger_that_is_not_free_in_time_is_busy(mssql_ledger_database: MssqlLedgerDatabase) -> None:
    ledger = mssql_ledger_database.admin()
    with closing(mssql_ledger_database.connect_admin()) as other, altering(other, "dpone.evidence"):
        with pytest.raises(LedgerBusy) as reading:
            ledger.read(lambda c: c.execute(text("SET LOCK_TIMEOUT 500; SELECT COUNT(*) FROM dpone.evidence")).all())
        with pytest.raises(LedgerBusy) as writing:
            ledger.write(lambda tx: _evidence(tx))
    assert reading.value.retryable
    assert writing.value.retryable
    ledger.write(_evidence)


def _evidence(tx: Any) -> None:
    tx.connection.execute(text("SET LOCK_TIMEOUT 500"))
    tx.keep(EvidenceKind.ENROLMENT, "sha256:" + "1" * 64, b'{"a":1}')
