"""Retention removes exactly what is provably left over, and never the live table."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_dpone.attempts.cells.retention import Candidate, RetentionCell
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.errors import (
    CeilingExceeded,
    CounterUnreadable,
    RemovalRefused,
    TargetChanged,
    ValueNotExact,
)
from tests.snapshot_world import SnapshotWorld


@pytest.fixture
def orders(world: SnapshotWorld) -> SnapshotWorld:
    world.pg("CREATE TABLE orders (id bigint NOT NULL)")
    world.pg("INSERT INTO orders SELECT generate_series(1, 100)")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int32) ENGINE = MergeTree ORDER BY id")
    world.activate("orders")
    return world


def _publish(world: SnapshotWorld, times: int) -> list[str]:
    """Names of the retained tables, oldest first."""
    return [world.cell("orders", run_id=f"run{n}").run().retained_table.split(".")[1] for n in range(times)]


def _settled(world: SnapshotWorld) -> None:
    counts = world.ledger_counts()
    assert (counts["running"], counts["open_guards"], counts["open_gates"]) == (0, 0, 0)
    assert world.issued_users() == []


def test_keeps_the_newest_and_removes_the_others(orders: SnapshotWorld) -> None:
    first, second, third = _publish(orders, 3)
    live = orders.uuid_of("orders")
    receipt = orders.retention("orders", keep=1).run()
    assert set(receipt.removed) == {first, second}
    assert receipt.kept == (third,)
    assert receipt.freed_bytes > 0
    assert orders.generations() == [third]
    assert orders.uuid_of("orders") == live
    again = orders.retention("orders", keep=1, run_id="again").run()
    assert (again.removed, again.attempt_sha256) == ((), None)
    orders.retention("orders", keep=0, run_id="all").run()
    assert orders.generations() == []
    assert orders.rows("orders")[0] == (1,)
    _settled(orders)


def test_leftover_of_a_failed_attempt_is_removed(orders: SnapshotWorld) -> None:
    """B17."""
    orders.pg("INSERT INTO orders VALUES (1099511627776)")
    with pytest.raises(ValueNotExact):
        orders.cell("orders").run()
    [leftover] = orders.generations()
    receipt = orders.retention("orders", keep=1).run()
    assert receipt.removed == (leftover,)
    assert orders.generations() == []
    _settled(orders)


def test_live_table_that_was_exchanged_back_by_hand_is_never_dropped(orders: SnapshotWorld) -> None:
    """B24: the old rows are live again; nothing may be removed before somebody looked."""
    [retained] = _publish(orders, 1)
    orders.ch(f"EXCHANGE TABLES {orders.database}.orders AND {orders.database}.{retained}")
    live = orders.uuid_of("orders")
    with pytest.raises(TargetChanged):
        orders.retention("orders", keep=0).run()
    assert orders.generations() == [retained]
    orders.enrol("orders")
    receipt = orders.retention("orders", keep=0, run_id="after").run()
    assert receipt.removed == ()
    assert orders.generations() == [retained]
    assert orders.uuid_of("orders") == live
    _settled(orders)


def test_foreign_table_under_a_generation_name_is_kept(orders: SnapshotWorld) -> None:
    [retained] = _publish(orders, 1)
    orders.ch(f"DROP TABLE {orders.database}.{retained} SYNC")
    orders.ch(f"CREATE TABLE {orders.database}.{retained} (x Int8) ENGINE = MergeTree ORDER BY x")
    receipt = orders.retention("orders", keep=0).run()
    assert (receipt.removed, receipt.kept) == ((), (retained,))
    assert orders.generations() == [retained]


def test_refused_drop_leaves_the_table_under_its_name_and_the_publication_true(orders: SnapshotWorld) -> None:
    """B18: the server refuses the DROP; the target stays published and cleanup stays pending."""
    first, second = _publish(orders, 2)
    assert orders.clickhouse.local is not None
    hold = orders.clickhouse.holds.set("authenticated", kind="DropTable", user_prefix="dpone_remover")
    cell = orders.retention("orders", keep=1)

    def drop_rights() -> None:
        orders.clickhouse.holds.wait(hold)
        [(user,)] = orders.ch("SELECT name FROM system.users WHERE startsWith(name, 'dpone_remover')")
        orders.ch(f"REVOKE ALL ON *.* FROM {user}")
        orders.clickhouse.holds.clear(hold)

    thread = threading.Thread(target=drop_rights)
    thread.start()
    with pytest.raises(RemovalRefused, match="497"):
        cell.run()
    thread.join()
    assert orders.generations() == sorted([first, second])
    assert orders.retention("orders", keep=1, run_id="later").run().removed == (first,)
    _settled(orders)


def test_retained_generations_count_against_the_ceiling(orders: SnapshotWorld) -> None:
    """Two are kept; the old table alone would fit."""
    _publish(orders, 2)
    [(one,)] = orders.ch(
        f"SELECT total_bytes FROM system.tables WHERE database = '{orders.database}' AND name = 'orders'"
    )
    limits = SnapshotLimits(max_source_bytes="4 GiB", max_retained_bytes=one * 3 // 2)
    with pytest.raises(CeilingExceeded, match="max_retained_bytes"):
        orders.cell("orders", run_id="third", limits=limits).run()
    assert len(orders.generations()) == 3
    orders.retention("orders", keep=0).run()
    assert orders.cell("orders", run_id="fourth", limits=limits).run().rows == 100


def test_a_table_without_a_size_is_not_removed_and_not_counted_as_nothing(
    orders: SnapshotWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    [retained] = _publish(orders, 1)
    present = RetentionCell._present

    def unsized(self: RetentionCell, *args: Any) -> list[Candidate]:
        return [replace(found, bytes=None) for found in present(self, *args)]

    monkeypatch.setattr(RetentionCell, "_present", unsized)
    assert orders.retention("orders", keep=1).run().kept == (retained,)
    with pytest.raises(CounterUnreadable, match=retained):
        orders.retention("orders", keep=0).run()
    assert orders.generations() == [retained]
    assert orders.ledger_counts()["failed"] == 0  # refused before anything was reserved


def test_a_size_the_server_does_not_give_is_none(orders: SnapshotWorld) -> None:
    """A view has none; under a generation's name it is somebody else's, and stays."""
    [retained] = _publish(orders, 1)
    orders.ch(f"DROP TABLE {orders.database}.{retained} SYNC")
    orders.ch(f"CREATE VIEW {orders.database}.{retained} AS SELECT 1 AS id")
    cell = orders.retention("orders", keep=0)
    assert [found.bytes for found in cell._present(_admissible(cell), [retained], [])] == [None]
    assert cell.run().kept == (retained,)


def _admissible(cell: RetentionCell) -> Any:
    work = cell._work
    return cell.admission.admissible(work.environment, work.declaration, work.coordinates)


def test_what_may_not_go_any_more_once_admitted_is_not_removed(orders: SnapshotWorld) -> None:
    """Another table under the name since it was planned: the plan that was admitted names what is gone."""
    [retained] = _publish(orders, 1)
    cell = orders.retention("orders", keep=0)
    refreshed = cell.admission.refreshed

    def replaced(admissible: Any) -> Any:
        orders.ch(f"RENAME TABLE {orders.database}.{retained} TO {orders.database}.aside")
        orders.ch(f"CREATE TABLE {orders.database}.{retained} (x Int8) ENGINE = MergeTree ORDER BY x")
        return refreshed(admissible)

    cell.admission.refreshed = replaced  # type: ignore[method-assign]
    with pytest.raises(RemovalRefused, match="may not be removed any more"):
        cell.run()
    assert orders.generations() == [retained]
    _settled(orders)
