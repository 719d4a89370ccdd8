"""What Airflow does to tasks - kill, clear, time out, orphan, retry - never swaps twice and never loses the table."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from tests.airflow.conftest import Stack, until

RUNNING, SUCCEEDED, FAILED, UNKNOWN = 1, 2, 3, 4


def test_airflow_shows_provider_plugin_and_commands(airflow: Stack) -> None:
    assert "airflow-provider-dpone" in airflow.airflow.run("providers", "list", "-o", "plain").stdout
    assert "dpone" in airflow.airflow.run("plugins", "-o", "plain").stdout
    hooks = airflow.airflow.run("providers", "hooks", "-o", "plain").stdout
    assert "dpone_control" in hooks
    assert "DponeClickHouseHook" in hooks
    assert "0 open attempts" in airflow.airflow.run("dpone", "attempts").stdout


def test_a_run_publishes_returns_its_receipt_and_announces_the_asset(airflow: Stack) -> None:
    airflow.airflow.trigger("plain", "first")
    assert airflow.airflow.wait("plain", "first") == "success"
    receipt = airflow.airflow.receipt("plain", "first", "publish")
    assert (receipt["state"], receipt["rows"], receipt["reused"], receipt["stand_in"]) == (
        "PUBLISHED",
        1000,
        False,
        True,
    )
    found = airflow.checker.publication(receipt, "plain", 0)
    assert (found["digest_equal"], found["exchange_count"], found["target_uuid_is_generation"]) == (True, 1, True)
    events = airflow.airflow.api("GET", "assets/events?limit=100")["asset_events"]
    [event] = [e for e in events if e["source_dag_id"] == "plain"]
    assert event["extra"]["receipt_sha256"] == receipt["receipt_sha256"]
    airflow.settled()


def test_clearing_a_successful_task_copies_anew(airflow: Stack) -> None:
    """C17."""
    airflow.airflow.trigger("plain", "again")
    assert airflow.airflow.wait("plain", "again") == "success"
    first = airflow.airflow.receipt("plain", "again", "publish")
    time.sleep(2)  # the success listener runs after the state is stored
    airflow.airflow.clear("plain", "again", ["publish"])
    until(lambda: airflow.airflow.task("plain", "again", "publish")["try_number"] == 2, "second try")
    assert airflow.airflow.wait("plain", "again") == "success"
    second = airflow.airflow.receipt("plain", "again", "publish")
    assert not second["reused"]
    assert second["target_uuid"] != first["target_uuid"]
    airflow.settled()


def test_marked_failed_in_mid_load_publishes_nothing_and_closes_its_users(airflow: Stack) -> None:
    """C01."""
    rule, _ = airflow.held_task("stopped", "stop", "checked", "Insert", "dpone_ingest")
    airflow.airflow.api(
        "PATCH", "dags/stopped/dagRuns/stop/taskInstances/publish", {"new_state": "failed", "include_downstream": False}
    )
    until(lambda: airflow.attempts("stopped") == [FAILED], "the attempt ended FAILED")
    airflow.holds.clear(rule)
    assert airflow.rows("stopped") == 10
    assert airflow.exchanges("stopped") == 0
    airflow.settled()


def test_cleared_while_running_exactly_one_of_both_instances_publishes(airflow: Stack) -> None:
    """C03."""
    rule, _ = airflow.held_task("cleared", "clear", "checked", "Insert", "dpone_ingest")
    airflow.airflow.clear("cleared", "clear", ["publish"])
    until(lambda: len(airflow.attempts("cleared")) == 2, "the second instance was admitted")
    airflow.holds.clear(rule)
    assert airflow.airflow.wait("cleared", "clear") == "success"
    assert airflow.attempts("cleared") == [FAILED, SUCCEEDED]
    assert airflow.rows("cleared") == 1000
    assert airflow.exchanges("cleared") == 1
    airflow.settled()


def test_orphan_that_lost_its_supervisor_cannot_write_once_its_retry_runs(airflow: Stack) -> None:
    """C09."""
    rule, task = airflow.held_task("orphaned", "orphan", "checked", "Insert", "dpone_ingest")
    os.kill(_parent(task), signal.SIGKILL)
    assert _alive(task)
    until(lambda: len(airflow.attempts("orphaned")) == 2, "the retry was admitted", 120)
    airflow.holds.clear(rule)
    assert airflow.airflow.wait("orphaned", "orphan") == "success"
    until(lambda: not _alive(task), "the orphan ended", 60)
    assert airflow.attempts("orphaned") == [FAILED, SUCCEEDED]
    assert airflow.rows("orphaned") == 1000
    assert airflow.exchanges("orphaned") == 1
    airflow.settled()


def test_execution_timeout_cleans_up(airflow: Stack) -> None:
    """C14, C15: the time-out comes while a driver call blocks."""
    rule, _ = airflow.held_task("timed", "slow", "checked", "Insert", "dpone_ingest")
    assert airflow.airflow.wait("timed", "slow") == "failed"
    airflow.holds.clear(rule)
    until(lambda: airflow.attempts("timed") == [FAILED], "the attempt ended FAILED")
    assert airflow.rows("timed") == 10
    airflow.settled()


def test_killed_without_retries_is_settled_by_the_reaper(airflow: Stack) -> None:
    rule, task = airflow.held_task("reaped", "dead", "checked", "Insert", "dpone_ingest")
    os.kill(task, signal.SIGKILL)
    assert airflow.airflow.wait("reaped", "dead") == "failed"
    airflow.holds.clear(rule)
    assert airflow.attempts("reaped") == [RUNNING]
    airflow.airflow.trigger("reaper", "reap")
    assert airflow.airflow.wait("reaper", "reap") == "success"
    assert airflow.attempts("reaped") == [FAILED]
    assert airflow.rows("reaped") == 10
    airflow.settled()


def test_another_run_waits_deferred_without_a_slot_and_then_publishes(airflow: Stack) -> None:
    rule, _ = airflow.held_task("waiting", "one", "checked", "Insert", "dpone_ingest")
    airflow.airflow.trigger("waiting", "two")
    until(lambda: airflow.airflow.task("waiting", "two", "publish")["state"] == "deferred", "the second run waits")
    assert airflow.attempts("waiting") == [RUNNING]
    airflow.holds.clear(rule)
    assert airflow.airflow.wait("waiting", "one") == "success"
    assert airflow.airflow.wait("waiting", "two") == "success"
    assert airflow.attempts("waiting") == [SUCCEEDED, SUCCEEDED]
    assert airflow.exchanges("waiting") == 2
    log = airflow.airflow.log("waiting", "two", "publish")
    assert "waiting.publish of run one (try 1) holds the target; waiting for it, since" in log
    assert log.count("waking the task: attempt ") == 1
    airflow.settled()


def test_an_operator_outside_the_active_release_is_refused_without_retry(airflow: Stack) -> None:
    airflow.airflow.trigger("undeclared", "no")
    assert airflow.airflow.wait("undeclared", "no") == "failed"
    assert airflow.airflow.task("undeclared", "no", "publish")["try_number"] == 1
    said = [json.loads(line) for line in airflow.airflow.log("undeclared", "no", "publish").splitlines() if line]
    last = [entry for entry in said if not entry["event"].startswith("::")][-1]
    words = [line.strip().partition(":")[0] for line in last["event"].splitlines() if line[2:3].strip()]
    assert words == ["DPONE_NOT_IN_ACTIVE_RELEASE", "what happened", "what is true now", "what to do", "more"], last
    assert "Nothing was reserved" in last["event"]
    assert not {"exc_info", "error_detail", "exception"} & set(last)
    assert airflow.attempts("undeclared") == []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_connection_forms_and_test_buttons_work(airflow: Stack) -> None:
    """The Test button of both hooks: right credentials pass, wrong ones fail with a reason and without the password."""
    connections = airflow.local.connections()
    for conn_id, words in (("dpone_clickhouse", "ClickHouse"), ("dpone_control", "ledger")):
        given = connections[conn_id]
        conn_type = given["conn_type"] if conn_id == "dpone_clickhouse" else "dpone_control"
        body = {**given, "conn_type": conn_type, "connection_id": "probe", "extra": json.dumps(given["extra"])}
        answer = airflow.airflow.api("POST", "connections/test", body)
        assert answer["status"], answer
        assert words in answer["message"]
        wrong = airflow.airflow.api("POST", "connections/test", {**body, "password": "wr;on'g}"})
        assert not wrong["status"]
        assert "DPONE_" in wrong["message"]
        assert "wr;on'g}" not in wrong["message"]


def test_what_observation_cannot_settle_waits_for_a_person_and_is_recorded_under_their_name(airflow: Stack) -> None:
    rule, task = airflow.held_task("decided", "dead", "answer", "Exchange", "dpone_publisher")
    os.kill(task, signal.SIGKILL)
    assert airflow.airflow.wait("decided", "dead") == "failed"
    airflow.holds.clear(rule)
    sql = "SELECT name FROM system.tables WHERE database = 'mart' AND name LIKE 'dpone%' AND total_rows = 10"
    old = {name for (name,) in airflow.checker.clickhouse(f"{sql} AND create_table_query LIKE '%`id` Int64%'")}
    [(attempt,)] = airflow.checker.postgres(
        "dpone_control", "SELECT encode(attempt_sha256, 'hex') FROM dpone.attempt WHERE dag_id = 'decided'"
    )
    [kept] = [name for name in old if attempt[:12] in name]
    airflow.checker.clickhouse(f"DROP TABLE mart.{kept} SYNC")  # so that the target alone proves nothing
    statement = "looked at mart.decided: 1000 rows of the source; the old table was dropped by hand"
    airflow.airflow.api(
        "POST", "dags/dpone_decide/dagRuns",
        {"dag_run_id": "d", "logical_date": None,
         "conf": {"attempt": attempt[:12], "state": "SUCCEEDED", "statement": statement}},
    )  # fmt: skip
    waiting = ("awaiting_input", "deferred")  # the second in older Airflow
    until(lambda: airflow.airflow.task("dpone_decide", "d", "approve")["state"] in waiting, "it waits for a person")
    assert airflow.attempts("decided") == [UNKNOWN]
    time.sleep(5)  # as a person takes: Airflow fails a task that goes on before its executor said that it paused
    airflow.airflow.api(
        "PATCH", "dags/dpone_decide/dagRuns/d/taskInstances/approve/-1/hitlDetails",
        {"chosen_options": ["Approve"], "params_input": {}},
    )  # fmt: skip
    assert airflow.airflow.wait("dpone_decide", "d") == "success"
    assert airflow.attempts("decided") == [SUCCEEDED]
    [(document,)] = airflow.checker.postgres(
        "dpone_control",
        f"SELECT convert_from(document, 'UTF8') FROM dpone.evidence WHERE convert_from(document, 'UTF8') LIKE '%{statement}%'"
        " AND convert_from(document, 'UTF8') LIKE '%decided_by%'",
    )
    assert '"decided_by":"admin"' in document.replace(" ", "")
    airflow.settled()
