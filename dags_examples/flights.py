"""Four tables in parallel, one mapped task each; every map index is a workload of its own."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator

TABLES = ["flights", "weather", "planes", "airports"]

with DAG("flights", schedule=None, tags=["dpone"]):
    ClickHouseSnapshotOperator.partial(
        task_id="publish",
        source_conn_id="dpone_source",
        target_conn_id="dpone_clickhouse",
        limits=SnapshotLimits(max_source_bytes="1 GiB"),
        retries=1,
    ).expand_kwargs([{"source_table": f"public.{name}", "target_table": f"mart.{name}"} for name in TABLES])
