"""A DAG file that was added after the release was activated."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator

with DAG("undeclared", schedule=None):
    ClickHouseSnapshotOperator(
        task_id="publish",
        source_conn_id="dpone_source",
        source_table="public.plain",
        target_conn_id="dpone_clickhouse",
        target_table="mart.plain",
        limits=SnapshotLimits(max_source_bytes="2 GiB"),
        retries=3,
    )
