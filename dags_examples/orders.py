"""Publish a table as a complete snapshot, keep one predecessor, read it with the ClickHouse plugin's operator."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset
from airflow_clickhouse_plugin.operators.clickhouse import ClickHouseOperator

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.operators.retention import RetentionOperator
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator

orders = Asset("dpone://dpone_clickhouse/mart/orders")

with DAG("orders", schedule=None, tags=["dpone"]):
    publish = ClickHouseSnapshotOperator(
        task_id="publish",
        source_conn_id="dpone_source",
        source_table="public.orders",
        target_conn_id="dpone_clickhouse",
        target_table="mart.orders",
        limits=SnapshotLimits(max_source_bytes="4 GiB"),
        outlets=[orders],
        retries=2,
        retry_delay=timedelta(seconds=2),
    )
    keep_one = RetentionOperator(
        task_id="keep_one", target_conn_id="dpone_clickhouse", target_table="mart.orders", keep=1
    )
    total = ClickHouseOperator(task_id="total", sql="SELECT count(), sum(o_totalprice) FROM mart.orders")
    publish >> [keep_one, total]
