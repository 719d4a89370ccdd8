"""Enrolment and activation: who may own what, refused before anything is reserved, handed over only when drained."""

from __future__ import annotations

import pytest

from airflow_provider_dpone.errors import (
    AmbientWriter,
    DesignMismatch,
    EnrolledElsewhere,
    NotEnrolled,
    TargetChanged,
)
from tests import ledger_database
from tests.snapshot_world import SnapshotWorld


@pytest.fixture
def mart(world: SnapshotWorld) -> SnapshotWorld:
    """Two tables, not enrolled."""
    for table in ("orders", "rates"):
        world.pg(f"CREATE TABLE {table} (id bigint NOT NULL)")
        world.pg(f"INSERT INTO {table} VALUES (1)")
        world.ch(f"CREATE TABLE {world.database}.{table} (id Int64) ENGINE = MergeTree ORDER BY id")
    return world


def _ledger_rows(world: SnapshotWorld) -> tuple[int, int]:
    """Activations, and guards that somebody owns."""
    with world.ledger.connect_admin() as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM dpone.activation), (SELECT count(*) FROM dpone.guard WHERE owner_sha256 IS NOT NULL)"
        ).fetchone()
    assert row is not None
    return row  # type: ignore[return-value]


# --- enrolment -------------------------------------------------------------------------------------------------


def test_one_database_has_one_ledger(mart: SnapshotWorld) -> None:
    mart.enrol("orders")
    mart.ledger = ledger_database.create(mart.postgres.superuser)
    with pytest.raises(EnrolledElsewhere):
        mart.enrol("rates")


def test_an_altered_or_removed_marker_stops_the_runtime(mart: SnapshotWorld) -> None:
    mart.activate("orders")
    mart.ch(f"RENAME TABLE {mart.database}.dpone_marker TO {mart.database}.hidden")
    with pytest.raises(NotEnrolled):
        mart.cell("orders").run()
    mart.ch(f"CREATE TABLE {mart.database}.dpone_marker AS {mart.database}.hidden")
    mart.ch(f"INSERT INTO {mart.database}.dpone_marker VALUES ('{{}}', 'sha256:0')")
    with pytest.raises(EnrolledElsewhere):
        mart.cell("orders").run()
    assert mart.ledger_counts()["open_guards"] == 0


def test_another_writer_is_refused_at_enrolment_and_at_admission(mart: SnapshotWorld) -> None:
    user = f"writer_{mart.database}"
    mart.activate("orders")
    mart.ch(f"CREATE USER {user} IDENTIFIED WITH sha256_password BY 'x'")
    mart.ch(f"GRANT INSERT ON {mart.database}.orders TO {user}")
    try:
        with pytest.raises(AmbientWriter, match=user):
            mart.cell("orders").run()
        with pytest.raises(AmbientWriter, match=user):
            mart.enrol("orders")
    finally:
        mart.ch(f"DROP USER {user}")
    assert mart.cell("orders", run_id="later").run().rows == 1


def test_a_changed_design_is_refused_until_it_is_accepted(mart: SnapshotWorld) -> None:
    mart.pg("ALTER TABLE orders ADD COLUMN note text")
    mart.ch(f"ALTER TABLE {mart.database}.orders ADD COLUMN note Nullable(String)")
    mart.activate("orders")
    mart.ch(f"ALTER TABLE {mart.database}.orders MODIFY COLUMN note Nullable(FixedString(8))")
    with pytest.raises(TargetChanged, match="design"):
        mart.cell("orders").run()
    mart.enrol("orders")
    assert mart.cell("orders", run_id="later").run().rows == 1


def test_null_into_a_not_nullable_column_with_a_default_is_refused_at_preflight(world: SnapshotWorld) -> None:
    """A15: neither '' nor the default; a default in the target is a side effect of its own."""
    world.pg("CREATE TABLE orders (id bigint, name text)")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64, name String) ENGINE = MergeTree ORDER BY id")
    world.activate("orders")
    with pytest.raises(DesignMismatch, match="NULL"):
        world.cell("orders").run()
    assert world.ledger_counts()["failed"] == 0
