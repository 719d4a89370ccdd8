"""One real Airflow for the session: api-server, scheduler, DAG processor, triggerer, LocalExecutor, on the local stack."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_provider_dpone.local.airflow import LocalAirflow
from airflow_provider_dpone.local.clickhouse.control import HoldPoints
from airflow_provider_dpone.local.demo.checks import Checker
from airflow_provider_dpone.local.demo.scenario import command
from airflow_provider_dpone.local.stack import LocalStack
from tests.airflow.dags import cases

QUICK = {
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "8",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_DETECTION_INTERVAL": "1",
}


class Stack:
    """Airflow, the servers below it, and what a checker asks them."""

    def __init__(self, local: LocalStack, airflow: LocalAirflow, cache: Path, passwords: Path) -> None:
        self.local = local
        self.cache = cache
        self.airflow = airflow
        self.passwords = passwords
        self.checker = Checker(local.connections(), local.postgres.parameters())

    @property
    def holds(self) -> HoldPoints:
        return self.local.clickhouse.holds

    def held_task(self, dag_id: str, run_id: str, point: str, kind: str, prefix: str) -> tuple[int, int]:
        """Trigger a run and wait until its request stands at a hold point; the rule and the task's process."""
        rule = self.holds.set(point, kind=kind, user_prefix=prefix)
        self.airflow.trigger(dag_id, run_id)
        self.holds.wait(rule, timeout=60)
        return rule, int(self.airflow.task(dag_id, run_id, "publish")["pid"])

    def rows(self, table: str) -> int:
        return int(self.checker.clickhouse(f"SELECT count() FROM mart.{table}")[0][0])

    def exchanges(self, table: str) -> int:
        self.checker.clickhouse("SYSTEM FLUSH LOGS")
        [(count,)] = self.checker.clickhouse(
            "SELECT uniqExact(query_id) FROM system.query_log WHERE (type = 'QueryFinish' OR exception_code = 394)"
            f" AND query ILIKE 'EXCHANGE TABLES%' AND position(query, '`{table}`') > 0"
        )
        return int(count)

    def attempts(self, dag_id: str) -> list[int]:
        """States of a DAG's attempts, oldest first."""
        sql = f"SELECT state FROM dpone.attempt WHERE dag_id = '{dag_id}' ORDER BY admitted_at"
        return [int(state) for (state,) in self.checker.postgres("dpone_control", sql)]

    def settled(self) -> None:
        """Nothing of any attempt is open, and no issued user could log in."""
        ledger = self.checker.ledger()
        assert [ledger[k] for k in ("running", "commit_unknown", "open_guards", "open_gates")] == [0, 0, 0, 0], ledger
        users = self.checker.clickhouse(
            "SELECT name, host_ip FROM system.users WHERE match(name, '^dpone_[a-z]+_[0-9a-f]{32}$')"
        )
        assert [name for name, hosts in users if hosts] == []
        assert self.mart("SELECT rolname FROM pg_roles WHERE rolname ~ '^dpone_w_'") == []

    def mart(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of one statement in the PostgreSQL target, as superuser."""
        return self.checker.postgres("mart", sql)


def until(condition: Callable[[], Any], what: str, timeout: float = 90.0) -> Any:
    """Poll until ``condition`` is true; its value."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:.0f} s: {what}")
        time.sleep(0.3)
    return found


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("airflow_stack")
    local = LocalStack(directory / "stack")
    local.up()
    dags = directory / "dags"
    shutil.copytree(Path(__file__).parent / "dags", dags)
    shutil.copy(Path(__file__).parents[2] / "dags_examples" / "decide.py", dags)
    cache = directory / "cache"
    bundles = [
        {"name": "dags-folder", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {}},
        {
            "name": "releases",
            "classpath": "airflow_provider_dpone.bundles.release.ReleaseDagBundle",
            "kwargs": {"cache": str(cache), "environment": "released", "refresh_interval": 1},
        },
    ]
    passwords = directory / "passwords"
    settings = {"AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles)}
    airflow = LocalAirflow(
        directory / "airflow", dags, {**local.env(), **QUICK, **settings, "DPONE_TEST_PASSWORDS": str(passwords)}
    )
    found = Stack(local, airflow, cache, passwords)
    try:
        _tables(found)
        command(airflow, "activate", "--dags-folder", str(dags))
        shutil.copytree(Path(__file__).parent / "late_dags", dags / "late")
        airflow.start()
        airflow.wait_for_dags([*cases.CASES, *cases.LOADS, "reaper", "undeclared", "dpone_decide"])
        yield found
    finally:
        airflow.stop()
        local.clickhouse.holds.clear()
        local.down()


@pytest.fixture
def airflow(stack: Stack) -> Iterator[Stack]:
    yield stack
    stack.holds.clear()


def _tables(stack: Stack) -> None:
    with psycopg.connect(**stack.local.postgres.parameters("source"), autocommit=True) as connection:
        for case in (*cases.CASES, *cases.LOADS):
            connection.execute(f"CREATE TABLE {case} (id bigint NOT NULL, name text)".encode())
            connection.execute(f"INSERT INTO {case} SELECT i, 'n' || i FROM generate_series(1, 1000) i".encode())
    for case in cases.CASES:
        stack.checker.clickhouse(
            f"CREATE TABLE mart.{case} (id Int64, name Nullable(String)) ENGINE = MergeTree ORDER BY id"
        )
        stack.checker.clickhouse(f"INSERT INTO mart.{case} SELECT number, 'old' FROM numbers(10)")
    tables = [part for case in cases.CASES for part in ("--table", f"mart.{case}")]
    command(
        stack.airflow, "enroll", "--conn-id", "dpone_clickhouse_admin", "--administrator", "dpone_controller", *tables
    )
    with psycopg.connect(**stack.local.postgres.parameters("mart"), autocommit=True) as connection:
        for case in cases.LOADS:
            connection.execute(
                f"CREATE ROLE {case}_owner NOLOGIN; CREATE SCHEMA {case} AUTHORIZATION {case}_owner".encode()
            )
            connection.execute(f"SET ROLE {case}_owner; CREATE TABLE {case}.{case} (id bigint, name text)".encode())
            connection.execute(
                f"INSERT INTO {case}.{case} SELECT i, 'old' FROM generate_series(1, 10) i; RESET ROLE".encode()
            )
    schemas = [part for case in cases.LOADS for part in ("--schema", case)]
    command(stack.airflow, "enroll", "--conn-id", "dpone_mart_admin", "--controller", "mart_controller", *schemas)
