"""A table of PostgreSQL as a complete snapshot in ClickHouse, and in one transaction in SQL Server.

There dbt adds it up, and what dbt made becomes a snapshot in ClickHouse too.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.operators.dbt import DbtBuildOperator
from airflow_provider_dpone.operators.load import SqlLoadOperator
from airflow_provider_dpone.operators.reconcile import ReconcileOperator
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator

LIMITS = SnapshotLimits(max_source_bytes="1 GiB")

with DAG("orders", schedule=None, catchup=False):
    ClickHouseSnapshotOperator(
        task_id="snapshot",
        source_conn_id="erp",
        source_table="public.orders",
        target_conn_id="dwh",
        target_table="mart.orders",
        control_conn_id="dpone_control",
        limits=LIMITS,
        retries=2,
    )
    load = SqlLoadOperator(
        task_id="load",
        source_conn_id="erp",
        source_table="public.orders",
        target_conn_id="mart",
        target_table="mart.orders",
        control_conn_id="dpone_control",
        limits=LIMITS,
        retries=2,
    )
    totals = DbtBuildOperator(
        task_id="totals",
        project_dir=Path(__file__).parent / "totals",
        target_conn_id="mart",
        target_schema="totals",
        control_conn_id="dpone_control",
        dbt_executable_path="/home/airflow/dbt/bin/dbt",
        retries=2,
    )
    totals_snapshot = ClickHouseSnapshotOperator(
        task_id="totals_snapshot",
        source_conn_id="totals",
        source_table="totals.order_totals",
        target_conn_id="dwh",
        target_table="mart.order_totals",
        control_conn_id="dpone_control",
        limits=LIMITS,
        retries=2,
    )
    load >> totals >> totals_snapshot

with DAG("dpone_reaper", schedule=timedelta(minutes=5), catchup=False, max_active_runs=1):
    ReconcileOperator(task_id="settle")
