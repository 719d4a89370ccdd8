"""Loads from PostgreSQL into SQL Server: exact, in one transaction, with an outcome that is observed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_dpone.engines.mssql.load_target import MssqlLoads
from airflow_provider_dpone.errors import (
    AnswerLost,
    DponeError,
    PublicationUnknown,
    ServerRefused,
    TooFewRows,
)
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from tests.attempt_process import AttemptProcess
from tests.cutting_proxy import CuttingProxy
from tests.live_mssql.target_world import MssqlWorld

pytestmark = pytest.mark.timeout(900)  # a stand-in takes a minute for what a server does in a second
OLD = [(1, "old"), (2, "old")]
DONE = {"running": 0, "commit_unknown": 0, "open_guards": 0, "open_gates": 0}


@pytest.fixture
def world(mssql_world: MssqlWorld) -> MssqlWorld:
    """A source of three new rows and a target that holds two old ones."""
    mssql_world.make_load(
        "t", "id int NOT NULL, v text", "VALUES (1, 'new'), (2, 'néw 😀'), (3, NULL)", "id int NOT NULL, v nvarchar(20)"
    )
    mssql_world.sql("INSERT INTO mart.t VALUES (1, 'old'), (2, 'old')")
    return mssql_world


def new_rows(world: MssqlWorld) -> list[tuple[Any, ...]]:
    return world.source_sql("SELECT * FROM t ORDER BY 1")


def settled(world: MssqlWorld) -> dict[str, int]:
    counts = world.ledger_counts()
    return {name: counts[name] for name in DONE}


def test_a_load_replaces_the_rows(world: MssqlWorld) -> None:
    receipt = world.cell("t").run()
    assert receipt.rows == 3
    assert world.rows("t") == new_rows(world)
    assert world.receipts() == 1
    assert settled(world) == DONE
    assert world.stagings() == world.roles() == []


def test_vanished_rows_go_duplicates_stay_and_an_empty_source_empties_the_target(world: MssqlWorld) -> None:
    world.source_sql("DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (1, 'new'), (1, 'new')")
    assert world.cell("t", run_id="one").run().rows == 4
    assert world.rows("t") == [(1, "new"), (1, "new"), (1, "new"), (3, None)]
    world.source_sql("DELETE FROM t")
    with pytest.raises(TooFewRows):
        world.cell("t", run_id="two", min_rows=1).run()
    assert len(world.rows("t")) == 4
    assert world.cell("t", run_id="three").run().rows == 0
    assert world.rows("t") == []
    assert settled(world) == DONE


def test_failure_after_the_old_rows_were_deleted_brings_them_back(world: MssqlWorld) -> None:
    world.sql("ALTER TABLE mart.t ADD CONSTRAINT small CHECK (id < 3)")
    with pytest.raises(ServerRefused, match="small"):
        world.cell("t").run()
    assert world.rows("t") == OLD
    assert world.receipts() == 0
    assert settled(world) == DONE


# --- outcomes -------------------------------------------------------------------------------------------------------

COMMIT = "COMMIT TRANSACTION;".encode("utf-16le")


def test_lost_commit_answer_is_decided_by_the_receipt_committed(world: MssqlWorld) -> None:
    with CuttingProxy(world.mssql.host, world.mssql.port) as proxy:
        proxy.cut_on(COMMIT, forward=True)
        receipt = world.cell("t", port=proxy.port).run()
        assert proxy.cuts == 1
    assert receipt.state == "LOADED"
    assert world.rows("t") == new_rows(world)
    assert world.receipts() == 1
    assert settled(world) == DONE


def test_lost_commit_answer_is_decided_by_the_receipt_not_committed(world: MssqlWorld) -> None:
    with CuttingProxy(world.mssql.host, world.mssql.port) as proxy:
        proxy.cut_on(COMMIT, forward=False)
        with pytest.raises(DponeError) as lost:
            world.cell("t", port=proxy.port).run()
        assert proxy.cuts == 1
    assert lost.value.retryable
    assert world.rows("t") == OLD
    assert world.receipts() == 0
    assert settled(world) == DONE


def test_rows_committed_without_a_receipt_are_unknown_and_hold_the_guard(world: MssqlWorld) -> None:
    cell = world.cell("t")
    swap = cell._swap

    def cheat(plan: Any, staging: str, record: Any, worker: Any, writer: Any) -> None:
        connection = world.login(worker)
        batch(connection, "INSERT INTO mart.t VALUES (9, N'mine')")
        connection.close()
        writer.commit = lambda record: (_ for _ in ()).throw(AnswerLost("cut"))
        swap(plan, staging, record, worker, writer)

    cell._swap = cheat  # type: ignore[method-assign]
    with pytest.raises(PublicationUnknown, match="carries no receipt"):
        cell.run()
    assert (9, "mine") in world.rows("t")
    assert settled(world)["commit_unknown"] == 1
    assert settled(world)["open_guards"] == 1


# --- processes that die, freeze and wake ------------------------------------------------------------------------------


def strike(world: MssqlWorld, method: str, *, after: bool) -> AttemptProcess:
    """A process that has stopped itself before, or after, a step of the worker's side."""
    make = MssqlLoads.writer

    def writer(self: MssqlLoads, credential: Any) -> Any:
        made = make(self, credential)
        original = getattr(made, method)

        def step(*args: Any) -> Any:
            if not after:
                os.kill(os.getpid(), signal.SIGSTOP)
            done = original(*args)
            if after:
                os.kill(os.getpid(), signal.SIGSTOP)
            return done

        setattr(made, method, step)
        return made

    MssqlLoads.writer = writer  # type: ignore[method-assign]
    try:
        process = AttemptProcess(world, "t")
    finally:
        MssqlLoads.writer = make  # type: ignore[method-assign]
    deadline = time.monotonic() + 200
    while stat(process.pid) != "T":
        assert not process.ended()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


def stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_killed_before_the_commit_nothing_happened_and_a_retry_loads(world: MssqlWorld) -> None:
    strike(world, "commit", after=False).kill()
    assert world.receipts() == 0
    assert world.cell("t", try_number=2).run().rows == 3  # settles the dead attempt, whose transaction is rolled back
    assert world.rows("t") == new_rows(world)
    assert world.receipts() == 1
    assert world.ledger_counts()["failed"] == 1
    assert settled(world) == DONE


def test_killed_after_the_commit_a_retry_finds_it_and_copies_nothing(world: MssqlWorld) -> None:
    strike(world, "commit", after=True).kill()
    assert world.rows("t") == new_rows(world)
    receipt = world.cell("t", try_number=2).run()
    assert receipt.reused
    assert world.receipts() == 1
    assert settled(world) == DONE


def test_worker_that_wakes_after_its_attempt_was_settled_changes_nothing(world: MssqlWorld) -> None:
    zombie = strike(world, "commit", after=False)
    assert world.cell("t", try_number=2).run().rows == 3
    world.source_sql("DELETE FROM t WHERE id = 1")
    zombie.wake()
    ended = zombie.result(120)
    assert ended["code"] != "LOADED"
    assert world.receipts() == 1
    assert world.rows("t") == [(1, "new"), *new_rows(world)]
    assert settled(world) == DONE
