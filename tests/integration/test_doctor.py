"""Recovery for a person: what doctor finds, what show and reconcile say before anything is done."""

from __future__ import annotations

import argparse
import json
import uuid
from typing import Any

import psycopg
import pytest

from airflow_provider_dpone.attempts import doctor
from airflow_provider_dpone.attempts.clickhouse import ClickHouseWorld
from airflow_provider_dpone.attempts.doctor import Severity
from airflow_provider_dpone.attempts.settle import Cause, Settler
from airflow_provider_dpone.cli import attempts as commands
from airflow_provider_dpone.contracts.states import AttemptState
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from tests.attempt_process import AttemptProcess
from tests.snapshot_world import SnapshotWorld


@pytest.fixture
def orders(world: SnapshotWorld) -> SnapshotWorld:
    world.pg("CREATE TABLE orders (id bigint NOT NULL)")
    world.pg("INSERT INTO orders VALUES (1), (2)")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64) ENGINE = MergeTree ORDER BY id")
    world.activate("orders")
    return world


def _examine(orders: SnapshotWorld) -> list[doctor.Finding]:
    ledger = orders.ledger.runtime()

    def world_behind(conn_id: str) -> ClickHouseWorld:
        target = orders.target()
        return ClickHouseWorld(ledger, target, target.service_id())

    return [f for f in doctor.examine(ledger, world_behind) if "does not know" not in f.what or STRANGER in f.where]


#: Other tests leave users of their own ledgers on the server they share.
STRANGER = f"dpone_ingest_{uuid.uuid4().hex}"


def _killed(orders: SnapshotWorld) -> None:
    hold = orders.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
    worker = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    worker.kill()
    orders.clickhouse.holds.clear(hold)


def test_a_healthy_ledger_has_no_findings(orders: SnapshotWorld) -> None:
    orders.cell("orders").run()
    assert _examine(orders) == []


def test_what_is_held_is_shown_with_what_to_do(orders: SnapshotWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    _killed(orders)
    monkeypatch.setattr(doctor, "LONG", doctor.timedelta(0))
    [finding] = _examine(orders)
    assert finding.severity is Severity.NOTE
    [stored] = CompositionAttemptStore(orders.ledger.runtime()).all_open()
    assert f"dpone-airflow reconcile {stored.sha256[7:19]}" in finding.do
    CompositionAttemptStore(orders.ledger.runtime()).fence(stored.sha256)
    [finding] = _examine(orders)
    assert (finding.severity, finding.what) == (Severity.WAITING, "fenced and not settled yet")
    target = orders.target()
    world = ClickHouseWorld(orders.ledger.runtime(), target, target.service_id())
    assert Settler(world).settle(stored, Cause("DPONE_FENCED", "test")).state is AttemptState.FAILED
    assert _examine(orders) == []


def test_a_principal_that_came_back_is_bad(orders: SnapshotWorld) -> None:
    orders.cell("orders").run()
    with orders.ledger.connect_admin() as connection:
        [(name,)] = connection.execute("SELECT name FROM dpone.principal WHERE purpose = 'ingest'").fetchall()
    orders.ch(f"CREATE USER {name} IDENTIFIED WITH sha256_password BY 'x'")
    orders.ch(f"CREATE USER {STRANGER} IDENTIFIED WITH sha256_password BY 'x'")
    try:
        bad, note = _examine(orders)
        assert (bad.severity, note.severity) == (Severity.BAD, Severity.NOTE)
        assert str(name) in bad.where
        assert STRANGER in note.where
    finally:
        orders.ch(f"DROP USER {name}")
        orders.ch(f"DROP USER {STRANGER}")


def test_a_server_that_cannot_be_asked_is_said_not_left_out(orders: SnapshotWorld) -> None:
    ledger = orders.ledger.runtime()

    def world_behind(conn_id: str) -> Any:
        target = orders.target(native_port=1)
        return ClickHouseWorld(ledger, target, target.service_id())

    [finding] = doctor.examine(ledger, world_behind)
    assert "cannot be asked" in finding.what


@pytest.mark.parametrize(
    ("tampering", "seen"),
    [
        ("UPDATE dpone.attempt SET state = 3", "a proof binds something else"),
        ("UPDATE dpone.attempt SET run_id = 'nicer'", "attempt row differs"),
        ("DELETE FROM dpone.attempt_guard; DELETE FROM dpone.publication; DELETE FROM dpone.dispatch;"
         " DELETE FROM dpone.principal; DELETE FROM dpone.attempt", "evidence of an attempt that is not there"),
        ("UPDATE dpone.publication SET state = 4", "publication differs"),
        ("UPDATE dpone.principal SET closure_sha256 = quiescence_sha256", "lacks its evidence"),
        ("UPDATE dpone.guard SET owner_sha256 = NULL; UPDATE dpone.activation SET state = 4;"
         " UPDATE dpone.guard SET owner_sha256 = (SELECT activation_sha256 FROM dpone.activation)", "owned by no activation"),
    ],
)  # fmt: skip
def test_tampering_by_the_owner_of_the_database_is_seen(orders: SnapshotWorld, tampering: str, seen: str) -> None:
    """The owner can switch the rules off, write, and switch them on again: the layout is as before, the originals tell."""
    orders.cell("orders").run()
    tables = [
        t.name for t in __import__("airflow_provider_dpone.ledger.schema", fromlist=["metadata"]).metadata.sorted_tables
    ]
    with psycopg.connect(**{**orders.postgres.superuser, "dbname": orders.ledger.dbname}) as connection:  # type: ignore[arg-type]
        for table in tables:
            connection.execute(f"ALTER TABLE dpone.{table} DISABLE TRIGGER ALL".encode())
        for statement in tampering.split(";"):
            connection.execute(statement.encode())
        for table in tables:
            connection.execute(f"ALTER TABLE dpone.{table} ENABLE TRIGGER ALL".encode())
            for rule in ("rule", "truncate"):
                connection.execute(f"ALTER TABLE dpone.{table} ENABLE ALWAYS TRIGGER {table}_{rule}".encode())
    found = [f for f in _examine(orders) if f.severity is Severity.BAD]
    assert any(seen in f.what for f in found), found
    assert not any("where it was installed" in f.what for f in found)


def test_rules_left_switched_off_are_seen(orders: SnapshotWorld) -> None:
    with psycopg.connect(
        **{**orders.postgres.superuser, "dbname": orders.ledger.dbname}, autocommit=True
    ) as connection:  # type: ignore[arg-type]
        connection.execute("ALTER TABLE dpone.attempt DISABLE TRIGGER attempt_rule")
    assert [f.severity for f in _examine(orders)] == [Severity.BAD]


def test_an_unfinished_activation_is_shown(orders: SnapshotWorld) -> None:
    store = CompositionActivationStore(orders.ledger.runtime())
    [active] = store.in_force()
    store.begin_retirement(active.sha256)
    assert [f.what for f in _examine(orders)] == ["a release is retiring; it admits nothing"]


def test_the_commands_say_what_they_would_do_and_then_do_it(
    orders: SnapshotWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from airflow_provider_dpone.operators import reconcile

    _killed(orders)
    ledger = orders.ledger.runtime()

    def world_of(*_: object) -> ClickHouseWorld:
        target = orders.target()
        return ClickHouseWorld(ledger, target, target.service_id())

    monkeypatch.setattr(commands, "_ledger", lambda options: ledger)
    monkeypatch.setattr(reconcile, "world_of", world_of)
    [stored] = CompositionAttemptStore(ledger).all_open()
    given = argparse.Namespace(attempt=stored.sha256[7:19], dry_run=True, json=False, last=None, control_conn_id="c")
    commands._attempts(given)
    assert "1 open attempt" in capsys.readouterr().out
    commands._show(given)
    assert "next        nothing, if its task is at work" in capsys.readouterr().out
    commands._reconcile(given)
    said = capsys.readouterr().out
    assert "fence it for good" in said
    assert "close dpone_ingest_" in said
    assert CompositionAttemptStore(ledger).read_exact(stored.sha256).state is AttemptState.RUNNING
    given.dry_run, given.json = False, True
    commands._reconcile(given)
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["state"] == "FAILED"
    given.json, given.dry_run = False, True
    commands._reconcile(given)
    assert "do nothing: it has ended" in capsys.readouterr().out
    assert orders.ledger_counts()["open_gates"] == 0
