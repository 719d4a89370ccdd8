"""The snapshot cell end to end on real engines: exact rows, one EXCHANGE, nothing left open."""

from __future__ import annotations

import pytest

from airflow_provider_dpone.errors import TableNotKept
from tests.snapshot_world import SnapshotWorld

EMPTY = {"running": 0, "commit_unknown": 0, "open_guards": 0, "open_gates": 0}


def _orders(world: SnapshotWorld, rows: int = 1000) -> None:
    world.pg("CREATE TABLE orders (id bigint NOT NULL, name text, amount numeric(20,4) NOT NULL)")
    world.pg(f"INSERT INTO orders SELECT i, 'name ' || i, i * 1.25 FROM generate_series(1, {rows}) i")
    world.ch(
        f"CREATE TABLE {world.database}.orders (id Int64, name Nullable(String), amount Decimal(20, 4)) "
        "ENGINE = MergeTree ORDER BY id"
    )
    world.activate("orders")


def test_a_snapshot_replaces_the_table_with_exactly_one_exchange(world: SnapshotWorld) -> None:
    _orders(world)
    before, others = world.uuid_of("orders"), world.issued_users()
    receipt = world.cell("orders").run()
    assert receipt.state == "PUBLISHED"
    assert receipt.rows == 1000
    assert world.ch(f"SELECT count(), sum(id) FROM {world.database}.orders") == [(1000, 500500)]
    assert world.uuid_of("orders") == receipt.target_uuid != before
    assert world.uuid_of(receipt.retained_table.split(".")[1]) == before
    assert world.exchanges() == 1
    assert world.issued_users() == others
    assert world.ledger_counts() == EMPTY | {"succeeded": 1, "failed": 0}


def test_a_table_the_server_did_not_keep_as_told_is_dropped_at_once(
    world: SnapshotWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a full disk: the answer to CREATE TABLE is yes, and what the catalog shows is something else."""
    _orders(world)
    before, cell = world.uuid_of("orders"), world.cell("orders")
    control = cell.world.target.control
    command = type(control).command

    def other(self: object, sql: str) -> None:
        command(self, sql.replace("ORDER BY id", "ORDER BY tuple()"))  # type: ignore[arg-type]

    monkeypatch.setattr(type(control), "command", other)
    with pytest.raises(TableNotKept, match="dropped again"):
        cell.run()
    monkeypatch.undo()
    assert (
        world.ch(f"SELECT name FROM system.tables WHERE database = '{world.database}' AND name LIKE 'dpone_g_%'") == []
    )
    assert world.uuid_of("orders") == before
    assert world.ledger_counts() == EMPTY | {"succeeded": 0, "failed": 1}
    assert world.cell("orders", try_number=2).run().state == "PUBLISHED"
