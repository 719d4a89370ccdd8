"""A wide table of 17 columns of different types, refreshed whole; at most one predecessor is kept."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.operators.retention import RetentionOperator
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator

with DAG("shipments", schedule=None, tags=["dpone"]):
    publish = ClickHouseSnapshotOperator(
        task_id="publish",
        source_conn_id="dpone_source",
        source_table="public.shipments",
        target_conn_id="dpone_clickhouse",
        target_table="mart.shipments",
        limits=SnapshotLimits(max_source_bytes="4 GiB", max_rows=10_000_000),
        min_rows=1,
        retries=1,
        retry_delay=timedelta(seconds=2),
    )
    keep_one = RetentionOperator(
        task_id="keep_one", target_conn_id="dpone_clickhouse", target_table="mart.shipments", keep=1
    )
    publish >> keep_one
