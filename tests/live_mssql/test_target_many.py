"""A million rows from PostgreSQL into SQL Server, loaded whole, and killed before and after their COMMIT."""

from __future__ import annotations

import os
import time
from decimal import Decimal

import pytest

from tests.live_mssql.striking import strike
from tests.live_mssql.target_world import MssqlWorld

pytestmark = pytest.mark.timeout(3600)
MANY = int(os.environ.get("DPONE_TEST_MSSQL_ROWS", "1000000"))
COLUMNS = "id bigint NOT NULL, amount numeric(18,4), taken timestamp, flag {bit}"
OLD = (1, Decimal("0.5000"), None)


@pytest.fixture
def world(mssql_world: MssqlWorld) -> MssqlWorld:
    """A source of many rows and a target that holds one old row."""
    mssql_world.make_load(
        "t", COLUMNS.format(bit="bool"),
        "SELECT i, (i::bigint * 7919 % 1000003)::numeric / 7, timestamp '2024-01-01' + i * interval '1.000001 s', i % 3 = 0 "
        f"FROM generate_series(1, {MANY}) AS i",
        COLUMNS.format(bit="bit").replace("numeric", "decimal").replace("timestamp", "datetime2(6)"),
    )  # fmt: skip
    mssql_world.sql("INSERT INTO mart.t VALUES (-1, 0.5, NULL, NULL)")
    return mssql_world


def found(world: MssqlWorld) -> tuple[object, ...]:
    """Rows, their amounts and flags in the target."""
    [row] = world.sql("SELECT COUNT(*), SUM(amount), SUM(CONVERT(int, flag)) FROM mart.t")
    return tuple(row)


def wanted(world: MssqlWorld) -> tuple[object, ...]:
    """The same of the source."""
    [row] = world.source_sql("SELECT count(*), sum(amount), count(*) FILTER (WHERE flag) FROM t")
    return tuple(row)


def load(world: MssqlWorld, try_number: int = 1) -> bool:
    """One attempt; whether it found an earlier one's load done."""
    started = time.monotonic()
    receipt = world.cell("t", try_number=try_number).run()
    print(f"\n{MANY:,} rows, try {try_number}: {time.monotonic() - started:.1f} s: {receipt.milliseconds}")
    assert receipt.rows == MANY
    assert found(world) == wanted(world)
    assert world.receipts() == 1
    counts = world.ledger_counts()
    assert (counts["commit_unknown"], counts["open_guards"], counts["open_gates"]) == (0, 0, 0)
    return receipt.reused


def killed(world: MssqlWorld, *, after: bool) -> None:
    """An attempt that came to its COMMIT and was killed there."""
    started = time.monotonic()
    attempt = strike(world, "commit", after=after, seconds=1500)
    print(f"\n{MANY:,} rows {'after' if after else 'before'} COMMIT: {time.monotonic() - started:.1f} s")
    attempt.kill()


def test_many_rows_arrive_exactly(world: MssqlWorld) -> None:
    assert load(world) is False


def test_killed_before_the_commit_the_old_row_is_there_and_a_retry_loads(world: MssqlWorld) -> None:
    killed(world, after=False)
    assert found(world) == OLD
    assert world.receipts() == 0
    assert load(world, try_number=2) is False


def test_killed_after_the_commit_a_retry_finds_it_and_copies_nothing(world: MssqlWorld) -> None:
    killed(world, after=True)
    assert found(world) == wanted(world)
    assert load(world, try_number=2) is True
