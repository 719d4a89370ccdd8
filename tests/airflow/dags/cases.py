"""One DAG per case, each with a table of its own."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.engines.postgres.gate import PostgresGate
from airflow_provider_dpone.operators.load import SqlLoadOperator
from airflow_provider_dpone.operators.reconcile import ReconcileOperator
from airflow_provider_dpone.operators.retention import RetentionOperator
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator

if "DPONE_TEST_PASSWORDS" in os.environ:  # the one-time passwords of loads, for a test that looks for them everywhere
    issue_once = PostgresGate.issue_once

    def recorded(self: PostgresGate, *arguments: Any) -> Any:
        credential = issue_once(self, *arguments)
        with Path(os.environ["DPONE_TEST_PASSWORDS"]).open("a") as file:
            file.write(f"{credential.name} {credential.password}\n")
        return credential

    PostgresGate.issue_once = recorded

CASES = {
    "plain": {"retries": 0},
    "stopped": {"retries": 0},
    "cleared": {"retries": 2},
    "orphaned": {"retries": 2},
    "timed": {"retries": 0, "execution_timeout": timedelta(seconds=12)},
    "reaped": {"retries": 0},
    "waiting": {"retries": 0},
    "decided": {"retries": 0},
}


def snapshot(name: str, **options: object) -> ClickHouseSnapshotOperator:
    return ClickHouseSnapshotOperator(
        task_id="publish",
        source_conn_id="dpone_source",
        source_table=f"public.{name}",
        target_conn_id="dpone_clickhouse",
        target_table=f"mart.{name}",
        limits=SnapshotLimits(max_source_bytes="1 GiB"),
        retry_delay=timedelta(seconds=1),
        **options,
    )


for case, given in CASES.items():
    with DAG(case, schedule=None, max_active_runs=4):
        publish = snapshot(case, outlets=[Asset(f"dpone://mart/{case}")], **given)
        if case == "plain":
            publish >> RetentionOperator(
                task_id="keep_one", target_conn_id="dpone_clickhouse", target_table="mart.plain", keep=1
            )

LOADS = {"load_plain": {"retries": 0}, "load_killed": {"retries": 2}, "load_stopped": {"retries": 0}}

for case, given in LOADS.items():
    with DAG(case, schedule=None, max_active_runs=4):
        SqlLoadOperator(
            task_id="publish",
            source_conn_id="dpone_source",
            source_table=f"public.{case}",
            target_conn_id="dpone_mart",
            target_table=f"{case}.{case}",
            limits=SnapshotLimits(max_source_bytes="1 GiB"),
            retry_delay=timedelta(seconds=1),
            outlets=[Asset(f"dpone://{case}")],
            **given,
        )

with DAG("reaper", schedule=None):
    ReconcileOperator(task_id="settle")
