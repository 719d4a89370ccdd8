"""Loads from PostgreSQL into SQL Server: exact, in one transaction, with an outcome that is observed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live_mssql.target_world import MssqlWorld

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
