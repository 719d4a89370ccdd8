"""The snapshot cell end to end on real engines: exact rows, one EXCHANGE, nothing left open."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from airflow_provider_dpone.attempts.cells import snapshot
from airflow_provider_dpone.contracts.enrolment import MARKER_TABLE
from airflow_provider_dpone.engines.clickhouse import executor
from airflow_provider_dpone.engines.clickhouse.quoting import literal
from airflow_provider_dpone.enrolment import clickhouse as enrolment
from airflow_provider_dpone.errors import (
    EnrolledElsewhere,
    Fenced,
    NotPublished,
    PublicationUnknown,
    ReconciliationFailed,
    TableNotKept,
    TargetChanged,
)
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.history import history
from airflow_provider_dpone.publication import publisher
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


def test_a_row_inserted_after_the_digest_is_not_sealed_with_it(
    world: SnapshotWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator may write the generation: what is sealed is what was digested, not what came after it."""
    _orders(world, 5)
    before = world.uuid_of("orders")
    aggregates = snapshot.read_aggregates

    def late(control: Any, database: str, generation: str, conversion: Any) -> Any:
        read = aggregates(control, database, generation, conversion)
        world.ch(f"INSERT INTO {database}.{generation} VALUES (99, 'late', 1)")
        return read

    monkeypatch.setattr(snapshot, "read_aggregates", late)
    with pytest.raises(ReconciliationFailed, match="6 rows"):
        world.cell("orders").run()
    assert world.uuid_of("orders") == before
    assert world.exchanges() == 0
    assert world.ledger_counts() == EMPTY | {"succeeded": 0, "failed": 1}


def test_a_row_changed_after_the_digest_is_not_published(world: SnapshotWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows as before: only the parts tell."""
    _orders(world, 5)
    before = world.uuid_of("orders")
    aggregates = snapshot.read_aggregates

    def changed(control: Any, database: str, generation: str, conversion: Any) -> Any:
        read = aggregates(control, database, generation, conversion)
        world.ch(f"ALTER TABLE {database}.{generation} UPDATE amount = 0 WHERE id = 3 SETTINGS mutations_sync = 2")
        return read

    monkeypatch.setattr(snapshot, "read_aggregates", changed)
    with pytest.raises(NotPublished):
        world.cell("orders").run()
    assert world.uuid_of("orders") == before
    assert world.exchanges() == 0


def test_a_merge_between_digest_and_seal_does_not_hurt(world: SnapshotWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    _orders(world, 5)
    aggregates = snapshot.read_aggregates

    def merged(control: Any, database: str, generation: str, conversion: Any) -> Any:
        read = aggregates(control, database, generation, conversion)
        world.ch(f"OPTIMIZE TABLE {database}.{generation} FINAL")
        return read

    monkeypatch.setattr(snapshot, "read_aggregates", merged)
    assert world.cell("orders").run().rows == 5


@pytest.mark.parametrize(
    ("appears", "named"),
    [
        (
            "CREATE MATERIALIZED VIEW {d}.seen ENGINE = MergeTree ORDER BY id AS SELECT id FROM {d}.orders",
            "view:{d}.seen",
        ),
        ("GRANT INSERT ON {d}.orders TO late_{d}", "ambient_writer:late_{d}"),
        ("ALTER TABLE {d}.orders MODIFY COLUMN name COMMENT 'changed'", "design"),
    ],
)
def test_what_appears_before_the_exchange_ends_the_attempt_not_published_and_is_named(
    world: SnapshotWorld, appears: str, named: str
) -> None:
    """Claimed, refused by the last look, and never sent: no person has to decide anything."""
    _orders(world, 5)
    world.ch(f"CREATE USER late_{world.database} IDENTIFIED WITH sha256_password BY 'x'")
    before, cell = world.uuid_of("orders"), world.cell("orders")
    seal = cell._seal

    def late(*args: Any) -> Any:
        record = seal(*args)
        world.ch(appears.format(d=world.database))
        return record

    cell._seal = late  # type: ignore[method-assign]
    with pytest.raises(NotPublished) as refused:
        cell.run()
    assert named.format(d=world.database) in refused.value.message
    assert world.uuid_of("orders") == before
    assert world.exchanges() == 0
    assert world.ledger_counts() == EMPTY | {"succeeded": 0, "failed": 1}
    admin = world.ledger.admin()
    [stored] = CompositionAttemptStore(admin).latest(1)
    assert named.format(d=world.database) in "\n".join(history(admin, stored))


def test_an_unknown_outcome_says_what_was_seen(world: SnapshotWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    _orders(world, 5)
    exchange = executor.ClickHouseExchangeExecutor.exchange

    def gone(self: Any, intent: Any) -> str:
        answer = exchange(self, intent)
        world.ch(f"DROP TABLE {world.database}.{intent.target.generation_table} SYNC")
        return answer

    monkeypatch.setattr(executor.ClickHouseExchangeExecutor, "exchange", gone)
    with pytest.raises(PublicationUnknown) as unknown:
        world.cell("orders").run()
    seen = f"{world.database}.orders carries the new table"
    assert seen in unknown.value.message
    assert "carries no table" in unknown.value.message
    admin = world.ledger.admin()
    [stored] = CompositionAttemptStore(admin).all_open()
    assert seen in "\n".join(history(admin, stored))
    monkeypatch.undo()
    with pytest.raises(PublicationUnknown, match="carries no table"):
        world.cell("orders", try_number=2).run()


def test_a_generation_replaced_while_it_is_read_is_not_sealed(
    world: SnapshotWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy under the same name, row for row, is another table."""
    _orders(world, 5)
    before = world.uuid_of("orders")
    aggregates = snapshot.read_aggregates

    def replaced(control: Any, database: str, generation: str, conversion: Any) -> Any:
        read = aggregates(control, database, generation, conversion)
        world.ch(f"CREATE TABLE {database}.copy AS {database}.{generation}")
        world.ch(f"INSERT INTO {database}.copy SELECT * FROM {database}.{generation}")
        world.ch(f"EXCHANGE TABLES {database}.copy AND {database}.{generation}")
        return read

    monkeypatch.setattr(snapshot, "read_aggregates", replaced)
    with pytest.raises(TargetChanged, match="became another table"):
        world.cell("orders").run()
    assert world.uuid_of("orders") == before


def test_a_fenced_attempt_makes_no_generation(world: SnapshotWorld) -> None:
    _orders(world, 5)
    cell = world.cell("orders")
    retained = cell.world.retained

    def fenced(*args: Any, **names: Any) -> list[str]:
        cell.world.attempts.fence(cell.attempt)
        return retained(*args, **names)

    cell.world.retained = fenced  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        cell.run()
    assert world.generations() == []


def test_what_appears_before_the_claim_lets_a_settler_cancel(
    world: SnapshotWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prepared and never claimed: A and B in place are enough to say that nothing was published."""
    _orders(world, 5)
    cell = world.cell("orders")

    def stopped(*args: Any) -> None:
        world.ch(f"CREATE MATERIALIZED VIEW {world.database}.seen ENGINE = MergeTree ORDER BY id AS "
                 f"SELECT id FROM {world.database}.orders")  # fmt: skip
        raise KeyboardInterrupt

    monkeypatch.setattr(publisher.ClickHouseAtomicSnapshotPublisher, "publish", stopped)
    with pytest.raises(KeyboardInterrupt):
        cell.run()
    assert world.ledger_counts() == EMPTY | {"succeeded": 0, "failed": 1}


def test_a_dry_run_of_an_enrolment_refuses_what_the_enrolment_would_refuse(world: SnapshotWorld) -> None:
    """A database that carries another ledger's marker is another ledger's, also when nothing is written."""
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64) ENGINE = MergeTree ORDER BY id")

    def enrolled(*, dry_run: bool) -> str:
        return enrolment.enrol(
            world.admin_control(), world.ledger.admin(), database=world.database, target_table="orders",
            administrators=world.administrators, accepted_by="tester", dry_run=dry_run,
        )[0]  # fmt: skip

    dry = enrolled(dry_run=True)
    assert enrolment.read_marker(world.admin_control(), world.database) is None
    assert enrolled(dry_run=False) == dry == enrolled(dry_run=True)
    mine = enrolment.read_marker(world.admin_control(), world.database)
    assert mine is not None
    foreign = mine.model_copy(update={"ledger_service_id": str(uuid.uuid4())})
    world.ch(f"TRUNCATE TABLE {world.database}.{MARKER_TABLE}")
    world.ch(f"INSERT INTO {world.database}.{MARKER_TABLE} SELECT {literal(foreign.wire().decode())}, "
             f"{literal(foreign.digest())}")  # fmt: skip
    for dry_run in (True, False):
        with pytest.raises(EnrolledElsewhere, match="one database has one ledger"):
            enrolled(dry_run=dry_run)
