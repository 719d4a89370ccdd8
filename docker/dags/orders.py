"""A table of PostgreSQL as a complete snapshot in ClickHouse, and the same into SQL Server in one transaction."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.operators.load import SqlLoadOperator
from airflow_provider_dpone.operators.reconcile import ReconcileOperator
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator

with DAG("orders", schedule=None, catchup=False):
    ClickHouseSnapshotOperator(
        task_id="snapshot",
        source_conn_id="erp",
        source_table="public.orders",
        target_conn_id="dwh",
        target_table="mart.orders",
        control_conn_id="dpone_control",
        limits=SnapshotLimits(max_source_bytes="1 GiB"),
        retries=2,
    )
    SqlLoadOperator(
        task_id="load",
        source_conn_id="erp",
        source_table="public.orders",
        target_conn_id="mart",
        target_table="mart.orders",
        control_conn_id="dpone_control",
        limits=SnapshotLimits(max_source_bytes="1 GiB"),
        retries=2,
    )

with DAG("dpone_reaper", schedule=timedelta(minutes=5), catchup=False, max_active_runs=1):
    ReconcileOperator(task_id="settle")
