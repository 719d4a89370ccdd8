"""A person decides about an attempt that observation cannot settle: look once more, ask for approval, record it."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from airflow_provider_dpone.operators.reconcile import AdjudicateOperator, ReconcileOperator

with DAG(
    "dpone_decide",
    schedule=None,
    tags=["dpone"],
    params={
        "attempt": Param(type="string", minLength=4, description="beginning of the attempt's digest"),
        "state": Param("FAILED", enum=["SUCCEEDED", "FAILED"], description="what the target is, as you saw it"),
        "statement": Param(type="string", minLength=10, description="what was looked at and why this is so"),
    },
):
    look = ReconcileOperator(task_id="look", attempt="{{ params.attempt }}")
    approve = ApprovalOperator(
        task_id="approve",
        subject="Attempt {{ params.attempt }}: record it as {{ params.state }}?",
        body="Observed just now: {{ ti.xcom_pull('look') }}\n\nStatement: {{ params.statement }}",
        response_timeout=timedelta(hours=12),
    )
    decide = AdjudicateOperator(
        task_id="decide",
        attempt="{{ params.attempt }}",
        state="{{ params.state }}",
        statement="{{ params.statement }}",
        decided_by="{{ ti.xcom_pull('approve')['responded_by_user']['name'] }}",
    )
    look >> approve >> decide
