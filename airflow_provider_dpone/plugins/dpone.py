"""The Airflow plugin: registers the task-instance listener. Imported in every Airflow process, hence lazy."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_dpone.listeners import binding


class DponePlugin(AirflowPlugin):
    """See ``airflow plugins``; registered through the ``airflow.plugins`` entry point."""

    name = "dpone"
    listeners: list[Any] = [binding]  # noqa: RUF012 (declared so by Airflow)
