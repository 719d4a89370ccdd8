"""A waiting task wakes once, when there is something for it to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.triggers import guard as guard_trigger
from airflow_provider_dpone.triggers.guard import GuardTrigger
from tests.attempt_process import AttemptProcess
from tests.snapshot_world import SnapshotWorld

Held = tuple[SnapshotWorld, Callable[[], None]]


@pytest.fixture
def held(world: SnapshotWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """A world with an attempt held in mid-load, and what lets it go on."""
    world.pg("CREATE TABLE orders (id bigint NOT NULL)")
    world.pg("INSERT INTO orders VALUES (1)")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64) ENGINE = MergeTree ORDER BY id")
    world.activate("orders")
    ledger = world.ledger
    fields = {"conn_type": "postgres", "host": ledger.host, "port": ledger.port, "login": ledger.runtime_role,
              "password": ledger.runtime_password, "schema": ledger.dbname}  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_CONTROL", json.dumps(fields))
    monkeypatch.setattr(guard_trigger, "finished", lambda coordinates: False)
    hold = world.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
    worker = AttemptProcess(world, "orders")
    world.clickhouse.holds.wait(hold)
    yield world, lambda: world.clickhouse.holds.clear(hold)
    world.clickhouse.holds.clear(hold)
    worker.result()


def _trigger(world: SnapshotWorld, *, wait: float = 60.0) -> GuardTrigger:
    [attempt] = CompositionAttemptStore(world.ledger.runtime()).all_open()
    now = datetime.now(UTC)
    made = GuardTrigger(
        "control", attempt.sha256, "dag.orders of run r holds the target", now.isoformat(),
        (now + timedelta(seconds=wait)).isoformat(), poll=0.05, recheck=0.2,
    )  # fmt: skip
    path, arguments = made.serialize()
    assert path.endswith(".GuardTrigger")
    assert arguments["waiting_for"].startswith("dag.orders")  # Airflow shows them in the deferral
    return GuardTrigger(**arguments)


async def _events(trigger: GuardTrigger, during: Callable[[], None] = lambda: None) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []

    async def collect() -> None:
        async for event in trigger.run():
            found.append(event.payload)

    waiting = asyncio.create_task(collect())
    await asyncio.sleep(1.5)  # seven times as long as between two questions to Airflow
    before = list(found)
    during()
    await asyncio.wait_for(waiting, 30)
    assert len(found) == 1
    return before + found


def test_it_wakes_once_when_the_attempt_is_resolved(held: Held) -> None:
    world, go_on = held
    [event] = asyncio.run(_events(_trigger(world), go_on))
    assert event["why"].endswith("is SUCCEEDED")


def test_it_wakes_once_when_airflow_reports_the_holder_finished(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = held
    asked: list[str] = []
    monkeypatch.setattr(guard_trigger, "finished", lambda task: asked.append(task.task_id) or len(asked) > 3)
    event = asyncio.run(_events(_trigger(world)))[0]
    assert "finished" in event["why"]
    assert len(asked) == 4


def test_it_wakes_when_the_time_to_wait_is_over(held: Held) -> None:
    world, _ = held
    assert asyncio.run(_events(_trigger(world, wait=0.5)))[0]["why"] == "the time to wait is over"
