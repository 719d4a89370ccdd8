"""Loads inside a real Airflow: the receipt, a task killed before its commit, a stopped one, and where no password is."""

from __future__ import annotations

import os
import signal

import psycopg

from airflow_provider_dpone.local.demo.checks import find_secrets
from tests.airflow.conftest import Stack, until

SUCCEEDED, FAILED = 2, 3
OLD, NEW = [(10, "old", "old")], [(1000, "n1", "n999")]


def content(airflow: Stack, case: str) -> list[tuple[object, ...]]:
    return airflow.mart(f"SELECT count(*), min(name), max(name) FROM {case}.{case}")


def writer_in_the_way(airflow: Stack, case: str) -> psycopg.Connection[tuple[object, ...]]:
    """A transaction that keeps the load from its lock on the target."""
    holder = psycopg.connect(**airflow.local.postgres.parameters("mart"))
    holder.execute(f"LOCK TABLE {case}.{case} IN ROW EXCLUSIVE MODE".encode())
    return holder


def waiting_for_its_lock(airflow: Stack, case: str, run: str) -> int:
    airflow.airflow.trigger(case, run)
    until(
        lambda: airflow.mart("SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock'"),
        "the load stands before its swap",
    )
    return int(airflow.airflow.task(case, run, "publish")["pid"])


def test_a_load_returns_its_receipt_and_announces_the_asset(airflow: Stack) -> None:
    airflow.airflow.trigger("load_plain", "first")
    assert airflow.airflow.wait("load_plain", "first") == "success"
    receipt = airflow.airflow.receipt("load_plain", "first", "publish")
    assert (receipt["state"], receipt["rows"], receipt["reused"], receipt["stand_in"]) == ("LOADED", 1000, False, True)
    found = airflow.checker.load(receipt, "load_plain", 0)
    assert (found["state"], found["digest_equal"], found["rows"]) == ("SUCCEEDED", True, 1000)
    events = airflow.airflow.api("GET", "assets/events?limit=100")["asset_events"]
    [event] = [e for e in events if e["source_dag_id"] == "load_plain"]
    assert event["extra"]["receipt_sha256"] == receipt["receipt_sha256"]
    airflow.settled()


def test_a_task_killed_before_its_commit_leaves_the_old_rows_and_its_retry_loads(airflow: Stack) -> None:
    with writer_in_the_way(airflow, "load_killed"):
        task = waiting_for_its_lock(airflow, "load_killed", "killed")
        os.kill(task, signal.SIGKILL)
        assert content(airflow, "load_killed") == OLD
    assert airflow.airflow.wait("load_killed", "killed") == "success"
    assert airflow.attempts("load_killed") == [FAILED, SUCCEEDED]
    assert content(airflow, "load_killed") == NEW
    airflow.settled()


def test_marked_failed_before_its_commit_changes_nothing(airflow: Stack) -> None:
    with writer_in_the_way(airflow, "load_stopped"):
        waiting_for_its_lock(airflow, "load_stopped", "stop")
        airflow.airflow.api(
            "PATCH",
            "dags/load_stopped/dagRuns/stop/taskInstances/publish",
            {"new_state": "failed", "include_downstream": False},
        )
        until(lambda: airflow.attempts("load_stopped") == [FAILED], "the attempt ended FAILED")
    assert content(airflow, "load_stopped") == OLD
    airflow.settled()


def test_no_one_time_password_is_found_anywhere(airflow: Stack) -> None:
    issued = dict(line.split() for line in airflow.passwords.read_text().splitlines())
    assert len(issued) >= 4
    log = (airflow.local.postgres.directory / "log").read_text(errors="replace")
    texts = [("server log", log), *airflow.checker.texts(airflow.airflow.home, set())]
    texts += [("receipts", str(row)) for row in airflow.mart("SELECT r::text FROM dpone_gate.receipt AS r")]
    assert any(name in text for name in issued for _, text in texts), "the names are there"
    assert find_secrets(issued, iter(texts)) == {}
