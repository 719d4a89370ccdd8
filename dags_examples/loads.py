"""Load snapshots into PostgreSQL, each in exactly one target transaction; ``load_too_wide`` is refused on purpose."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.operators.load import SqlLoadOperator

for table in ("shipments", "edge_cases", "returns", "too_wide"):
    with DAG(f"load_{table}", schedule=None, tags=["dpone"]):
        SqlLoadOperator(
            task_id="load",
            source_conn_id="dpone_source",
            source_table=f"public.{table}",
            target_conn_id="dpone_mart",
            target_table=f"mart.{table}",
            limits=SnapshotLimits(max_source_bytes="4 GiB"),
            outlets=[Asset(f"dpone://dpone_mart/mart/{table}")],
            retries=2,
            retry_delay=timedelta(seconds=2),
        )
