"""A table of edge cases, and one that is empty on purpose: an empty source gives an empty target."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator

for name in ("edge_cases", "returns"):
    with DAG(name, schedule=None, tags=["dpone"]):
        ClickHouseSnapshotOperator(
            task_id="publish",
            source_conn_id="dpone_source",
            source_table=f"public.{name}",
            target_conn_id="dpone_clickhouse",
            target_table=f"mart.{name}",
            limits=SnapshotLimits(max_source_bytes="100 MiB"),
        )
