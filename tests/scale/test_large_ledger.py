"""A ledger of a hundred thousand attempts stays as fast: `make scale`, build/scale/summary.json.

What is asserted is not time but work: the rows the database reads for one more attempt do not grow with its history.
DPONE_SCALE_ATTEMPTS sets the size.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.ledger_history import ended_attempts
from tests.snapshot_world import SnapshotWorld

SIZE = int(os.environ.get("DPONE_SCALE_ATTEMPTS", "100000"))
SUMMARY = Path(__file__).parents[2] / "build" / "scale" / "summary.json"
ROUNDS = 10


@pytest.mark.timeout(3600)
def test_an_attempt_costs_the_same_beside_a_long_history(world: SnapshotWorld) -> None:
    world.pg("CREATE TABLE orders (id bigint NOT NULL)")
    world.pg("INSERT INTO orders SELECT generate_series(1, 100)")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64) ENGINE = MergeTree ORDER BY id")
    world.activate("orders")
    figures = {}
    with psycopg.connect(
        **{**world.postgres.superuser, "dbname": world.ledger.dbname}  # type: ignore[arg-type]
    ) as connection:
        ended_attempts(connection, world.ledger, 1_000)
        figures["1000"] = _measure(world, connection, "few")
        ended_attempts(connection, world.ledger, SIZE - 1_000)
        figures[str(SIZE)] = _measure(world, connection, "many")
    SUMMARY.parent.mkdir(parents=True, exist_ok=True)
    SUMMARY.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    few, many = figures["1000"], figures[str(SIZE)]
    assert many["rows_read_per_attempt"] <= few["rows_read_per_attempt"] * 1.2 + 50
    assert many["attempts"] >= SIZE


def _measure(world: SnapshotWorld, connection: psycopg.Connection[Any], name: str) -> dict[str, Any]:
    """Whole snapshots beside the history there is now."""
    connection.commit()
    connection.autocommit = True
    connection.execute("ANALYZE")
    world.cell("orders", run_id=f"{name}-first").run()
    before, seconds = _rows_read(connection), []
    for number in range(ROUNDS):
        started = time.monotonic()
        world.cell("orders", run_id=f"{name}-{number}").run()
        seconds.append(time.monotonic() - started)
    after = _rows_read(connection)
    [(attempts,)] = connection.execute("SELECT count(*) FROM dpone.attempt").fetchall()
    started = time.monotonic()
    ledger = world.ledger.runtime()
    assert ledger.read(ledger.dialect.audit) == []
    audited = time.monotonic() - started
    connection.autocommit = False
    return {
        "attempts": attempts,
        "median_seconds_per_attempt": round(statistics.median(seconds), 3),
        "rows_read_per_attempt": round((after - before) / ROUNDS),
        "audit_seconds": round(audited, 2),
    }


def _rows_read(connection: psycopg.Connection[Any]) -> int:
    """Rows the database has read so far, by any path, of the tables whose history is long."""
    time.sleep(1.2)  # sessions that ended have reported by then
    connection.execute("SELECT pg_stat_clear_snapshot()")
    [(rows,)] = connection.execute(
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables WHERE schemaname = 'dpone'"
        " AND relname IN ('attempt', 'attempt_guard', 'evidence', 'activation', 'activation_guard')"
    ).fetchall()
    return int(rows)
