"""Snapshot attempts whose ledger is on SQL Server, and the command line over it, end to end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_dpone.cli import main
from airflow_provider_dpone.contracts.states import AttemptState
from airflow_provider_dpone.hooks import control
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from tests.attempt_process import AttemptProcess
from tests.mssql_server import MssqlLedgerDatabase
from tests.servers import ClickHouseUnderTest, PostgresUnderTest
from tests.snapshot_world import SnapshotWorld
from tests.stand_in import StandInDialect

pytestmark = pytest.mark.timeout(600)
SETTLED = {"running": 0, "commit_unknown": 0, "open_guards": 0, "open_gates": 0}


@pytest.fixture
def orders(
    clickhouse_server: ClickHouseUnderTest,
    postgres_server: PostgresUnderTest,
    mssql_ledger_database: MssqlLedgerDatabase,
) -> SnapshotWorld:
    """PostgreSQL to ClickHouse, 1,000 rows over 10 old ones; the ledger is on SQL Server."""
    world = SnapshotWorld(clickhouse_server, postgres_server, mssql_ledger_database)  # type: ignore[arg-type]
    world.pg("CREATE TABLE orders (id bigint NOT NULL, name text)")
    world.pg("INSERT INTO orders SELECT i, 'name ' || i FROM generate_series(1, 1000) i")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64, name Nullable(String)) ENGINE = MergeTree ORDER BY id")
    world.ch(f"INSERT INTO {world.database}.orders SELECT number + 1, 'old' FROM numbers(10)")
    world.activate("orders")
    return world


def _settled(world: SnapshotWorld, **expected: int) -> None:
    assert world.ledger_counts() == SETTLED | expected
    assert world.issued_users() == []


def test_a_snapshot_is_published_and_its_every_step_is_in_the_ledger(orders: SnapshotWorld) -> None:
    receipt = orders.cell("orders").run()
    assert (receipt.state, receipt.rows) == ("PUBLISHED", 1000)
    assert len(orders.rows("orders")) == 1000
    orders.pg("DELETE FROM orders WHERE id > 5")
    assert orders.cell("orders", run_id="next").run().rows == 5
    assert [row[0] for row in orders.rows("orders")] == [1, 2, 3, 4, 5]
    assert orders.exchanges() == 2
    _settled(orders, succeeded=2, failed=0)


def test_a_worker_frozen_in_mid_load_is_fenced_and_wakes_up_to_a_refusal(orders: SnapshotWorld) -> None:
    hold = orders.clickhouse.holds.set("answer", kind="Select", pattern="formatRow")
    zombie = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    zombie.freeze()
    orders.clickhouse.holds.clear(hold)
    orders.pg("INSERT INTO orders VALUES (1001, 'new')")
    receipt = orders.cell("orders", try_number=2).run()
    zombie.wake()
    assert zombie.result(timeout=240)["code"] in ("DPONE_FENCED", "DPONE_TARGET_CHANGED")
    assert orders.uuid_of("orders") == receipt.target_uuid
    assert len(orders.rows("orders")) == 1001
    assert orders.exchanges() == 1
    _settled(orders, succeeded=1, failed=1)


# --- the command line --------------------------------------------------------------------------------------------

Command = Callable[..., str]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``dpone-airflow ...`` in this process; what it printed."""

    def run(*arguments: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main(arguments) == status, capsys.readouterr().err
        out = capsys.readouterr()
        return out.err if status else out.out

    return run


def _connect(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    extra = fields.pop("extra", {})
    monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps({**fields, "extra": json.dumps(extra)}))


def _control(monkeypatch: pytest.MonkeyPatch, database: MssqlLedgerDatabase, **extra: str) -> None:
    """The connections of an administrator and of running tasks; a stand-in is spoken to in words it knows."""
    server = database.under_test
    if server.stand_in:
        monkeypatch.setattr(control, "MssqlDialect", StandInDialect)
    keywords = {k: v for k, v in server.keywords.items() if k in ("driver", "encrypt", "trustservercertificate")}
    for name, login, password in (
        ("DPONE_CONTROL_ADMIN", database.admin_role, database.admin_password),
        ("DPONE_CONTROL", database.runtime_role, database.runtime_password),
    ):
        _connect(
            monkeypatch, name, conn_type="mssql", host=server.host, port=server.port, schema=database.dbname, login=login,
            password=password, extra={**keywords, **extra},
        )  # fmt: skip


def test_the_command_line_installs_enrols_and_shows(
    clickhouse_server: ClickHouseUnderTest,
    postgres_server: PostgresUnderTest,
    empty_mssql_ledger_database: MssqlLedgerDatabase,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
) -> None:
    database = empty_mssql_ledger_database
    _control(monkeypatch, database)
    assert "run `dpone-airflow ledger install`" in command("attempts", status=1)
    printed = command("ledger", "install", "--runtime-role", database.runtime_role)
    service_id = printed.split()[2]
    database.after_installation()
    _control(monkeypatch, database, service_id=service_id)
    assert "DPONE_LEDGER_EXISTS" in command("ledger", "install", "--runtime-role", database.runtime_role, status=1)

    world = SnapshotWorld(clickhouse_server, postgres_server, database)  # type: ignore[arg-type]
    world.pg("CREATE TABLE orders (id bigint NOT NULL)")
    world.pg("INSERT INTO orders VALUES (1), (2)")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64) ENGINE = MergeTree ORDER BY id")
    server = clickhouse_server
    for name, user, password in (
        ("DWH_ADMIN", server.admin_user, server.admin_password),
        ("DWH", server.controller_user, server.controller_password),
    ):
        _connect(
            monkeypatch, name, conn_type="clickhouse", host=server.host, port=server.http_port, login=user,
            password=password, extra={"native_port": server.native_port},
        )  # fmt: skip
    named = [part for user in world.administrators for part in ("--administrator", user)]
    enrolled = command("enroll", "--conn-id", "dwh_admin", *named, "--table", f"{world.database}.orders", "--json")
    assert [one["target"] for one in json.loads(enrolled)] == [f"{world.database}.orders"]

    world.activate("orders")
    assert command("attempts") == "0 open attempts\n"
    receipt = world.cell("orders").run()
    assert receipt.state == "PUBLISHED"
    [line] = json.loads(command("attempts", "--last", "5", "--json"))
    assert (line["state"], line["workload"]) == ("SUCCEEDED", "dag.orders")
    shown = command("show", line["attempt"][7:19])
    assert "publication PUBLISHED" in shown
    assert shown.count("CLOSED") == 2
    assert "0 bad" in command("doctor")

    cell = world.cell("orders", run_id="left behind")
    work = cell._work
    admissible = cell.admission.admissible(work.environment, work.declaration, work.coordinates)
    store = CompositionAttemptStore(database.runtime())
    held = store.admit_once(admissible.identity(work.coordinates, cell.plan_sha256()))
    assert "1 open attempt\n" in command("attempts")
    assert "is FAILED" in command("reconcile", held[7:19])
    assert store.read_exact(held).state is AttemptState.FAILED

    _control(monkeypatch, database, service_id="00000000-0000-4000-8000-000000000000")
    assert "not the pinned" in command("attempts", status=1)
    assert "not the pinned" in control.DponeControlHook("dpone_control").test_connection()[1]
