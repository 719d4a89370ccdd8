"""A large table with retries; a second run does not wait for the first, it fails with the code of the held guard."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator

with DAG("lineitem", schedule=None, max_active_runs=2, tags=["dpone"]):
    ClickHouseSnapshotOperator(
        task_id="publish",
        source_conn_id="dpone_source",
        source_table="public.lineitem",
        target_conn_id="dpone_clickhouse",
        target_table="mart.lineitem",
        limits=SnapshotLimits(max_source_bytes="4 GiB"),
        guard_wait=timedelta(0),
        retries=2,
        retry_delay=timedelta(seconds=2),
    )
