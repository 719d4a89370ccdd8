"""Two snapshots that are refused on purpose: a value the target cannot hold, and a ceiling passed in mid-stream."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator

with DAG("too_wide", schedule=None, tags=["dpone"]):
    ClickHouseSnapshotOperator(
        task_id="publish",
        source_conn_id="dpone_source",
        source_table="public.too_wide",
        target_conn_id="dpone_clickhouse",
        target_table="mart.too_wide",
        limits=SnapshotLimits(max_source_bytes="1 MiB"),
    )

with DAG("ceiling", schedule=None, tags=["dpone"]):
    ClickHouseSnapshotOperator(
        task_id="publish",
        source_conn_id="dpone_source",
        source_table="public.orders",
        target_conn_id="dpone_clickhouse",
        target_table="mart.ceiling",
        limits=SnapshotLimits(max_source_bytes="1 MiB"),
    )
