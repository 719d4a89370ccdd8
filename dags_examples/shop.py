"""Build a dbt project in a managed schema; its tests run with it. The second task fails on purpose when it is run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Asset

import airflow_provider_dpone.local.demo
from airflow_provider_dpone.operators.dbt import DbtBuildOperator

PROJECT = Path(airflow_provider_dpone.local.demo.__file__).parent / "dbt_project"
shop = Asset("dpone://dpone_mart/models")

with DAG("shop", schedule=None, tags=["dpone"]):
    build = DbtBuildOperator(
        task_id="build",
        project_dir=PROJECT,
        target_conn_id="dpone_mart",
        target_schema="models",
        exclude="tag:fails_on_purpose",
        outlets=[shop],
        retries=2,
        retry_delay=timedelta(seconds=2),
    )
    complaint = DbtBuildOperator(
        task_id="complaint",
        project_dir=PROJECT,
        target_conn_id="dpone_mart",
        target_schema="models",
        select="tag:fails_on_purpose",
    )
    build >> complaint
