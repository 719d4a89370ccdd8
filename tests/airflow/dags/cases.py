"""One DAG per case, each with a table of its own."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.operators.reconcile import ReconcileOperator
from airflow_provider_dpone.operators.retention import RetentionOperator
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator

CASES = {
    "plain": {"retries": 0},
    "stopped": {"retries": 0},
    "cleared": {"retries": 2},
    "orphaned": {"retries": 2},
    "timed": {"retries": 0, "execution_timeout": timedelta(seconds=12)},
    "reaped": {"retries": 0},
    "waiting": {"retries": 0},
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

with DAG("reaper", schedule=None):
    ReconcileOperator(task_id="settle")
