"""A built release becomes active and runs inside a real Airflow: every DAG, pinned runs, clearing after a handover."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
import yaml

from airflow_provider_dpone.local.demo.scenario import command
from tests.airflow.conftest import Stack, until

DAGS = """
import time
from pathlib import Path
from airflow.sdk import DAG, task
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator

with DAG("released_file", schedule=None):
    ClickHouseSnapshotOperator(
        task_id="publish", source_conn_id="dpone_source", source_table="public.released_file",
        target_conn_id="dpone_clickhouse", target_table="mart.released_file", environment="released",
        limits={"max_source_bytes": "1 GiB"}, retries=1)

with DAG("pinned", schedule=None):
    @task
    def waits(gate: str) -> str:
        while not Path(gate).exists():
            time.sleep(0.2)
        return "VERSION"

    @task
    def says() -> str:
        return "VERSION"

    waits("{{ dag_run.conf['gate'] }}") >> says()
"""


def _build(stack: Stack, folder: Path, version: str) -> tuple[Path, str]:
    """A release of one DAG file and one manifest."""
    (folder / "dags").mkdir(parents=True)
    (folder / "dags" / "released.py").write_text(DAGS.replace("VERSION", version))
    (folder / "manifests").mkdir()
    manifest = {
        "version": 1,
        "id": "released_manifest",
        "kind": "snapshot",
        "source": {"conn_id": "dpone_source", "table": "public.released_manifest"},
        "target": {"conn_id": "dpone_clickhouse", "table": "mart.released_manifest"},
        "limits": {"max_source_bytes": "1 GiB"},
        "environment": "released",
    }
    (folder / "manifests" / "released.yaml").write_text(yaml.safe_dump(manifest))
    printed = command(
        stack.airflow, "release", "build", "--dags-folder", str(folder / "dags"), "--manifests",
        str(folder / "manifests"), "--output", str(folder / "release"), "--json",
    )  # fmt: skip
    return folder / "release", json.loads(printed)["release_id"]


def _activate(stack: Stack, release: Path, *more: str) -> str:
    return command(
        stack.airflow, "activate", "--release", str(release), "--cache", str(stack.cache), "--environment", "released",
        *more,
    )  # fmt: skip


@pytest.mark.timeout(900)
def test_a_release_runs_and_a_run_stays_on_the_release_it_started_with(airflow: Stack, tmp_path: Path) -> None:
    names = ("released_file", "released_manifest")
    with psycopg.connect(**airflow.local.postgres.parameters("source"), autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE TABLE {name} AS SELECT i::bigint AS id FROM generate_series(1, 500) i".encode())
            connection.execute(f"ALTER TABLE {name} ALTER id SET NOT NULL".encode())
    for name in names:
        airflow.checker.clickhouse(f"CREATE TABLE mart.{name} (id Int64) ENGINE = MergeTree ORDER BY id")
    tables = [part for name in names for part in ("--table", f"mart.{name}")]
    command(
        airflow.airflow, "enroll", "--conn-id", "dpone_clickhouse_admin", "--administrator", "dpone_controller", *tables
    )
    first, first_id = _build(airflow, tmp_path / "one", "v1")
    assert "would be ACTIVE" in _activate(airflow, first, "--dry-run")
    assert not airflow.cache.exists()  # a look leaves no trace
    assert "ACTIVE" in _activate(airflow, first)
    airflow.airflow.wait_for_dags([*names, "pinned"])
    gate = tmp_path / "gate"
    airflow.airflow.trigger("pinned", "early", {"gate": str(gate)})
    until(lambda: airflow.airflow.run_state("pinned", "early") == "running", "the pinned run has started")
    for dag, task in (("released_file", "publish"), ("released_manifest", "transfer")):
        airflow.airflow.trigger(dag, "first")
        assert airflow.airflow.wait(dag, "first") == "success", airflow.airflow.log(dag, "first", task)
        receipt = airflow.airflow.receipt(dag, "first", task)
        assert (receipt["state"], receipt["rows"], airflow.rows(dag)) == ("PUBLISHED", 500, 500)
    second, second_id = _build(airflow, tmp_path / "two", "v2")
    assert second_id != first_id
    assert "ACTIVE" in _activate(airflow, second)
    assert "re-verified" in command(
        airflow.airflow,
        "require-active",
        "--release-id",
        second_id,
        "--cache",
        str(airflow.cache),
        "--environment",
        "released",
    )
    until(lambda: _version(airflow, "pinned") != _bundle_of(airflow, "pinned", "early"), "the bundle moved on")
    gate.touch()
    assert airflow.airflow.wait("pinned", "early") == "success"
    assert airflow.airflow.receipt("pinned", "early", "says") == "v1"
    airflow.airflow.clear("pinned", "early", ["says"])
    until(lambda: airflow.airflow.task("pinned", "early", "says")["try_number"] == 2, "cleared")
    assert airflow.airflow.wait("pinned", "early") == "success"
    assert airflow.airflow.receipt("pinned", "early", "says") == "v1"
    airflow.airflow.trigger("pinned", "late", {"gate": str(gate)})
    assert airflow.airflow.wait("pinned", "late") == "success"
    assert airflow.airflow.receipt("pinned", "late", "says") == "v2"
    assert "retired" in command(airflow.airflow, "retire", "--environment", "released", "--wait", "30")
    dags = {dag["dag_id"]: dag["is_paused"] for dag in airflow.airflow.api("GET", "dags?limit=500&paused=true")["dags"]}
    assert set(dags) >= {*names, "pinned"}
    airflow.settled()


def _version(stack: Stack, dag_id: str) -> str:
    return str(stack.airflow.api("GET", f"dags/{dag_id}")["bundle_version"])


def _bundle_of(stack: Stack, dag_id: str, run_id: str) -> str:
    return str(stack.airflow.api("GET", f"dags/{dag_id}/dagRuns/{run_id}")["bundle_version"])
