"""The reaper: every few minutes, settle attempts whose task is over and which nobody has settled."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_dpone.operators.reconcile import ReconcileOperator

with DAG("dpone_reaper", schedule=timedelta(minutes=5), catchup=False, max_active_runs=1, tags=["dpone"]):
    ReconcileOperator(task_id="settle")
