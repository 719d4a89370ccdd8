"""Make the workloads of DAG files the active release of an environment, or retire it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_dpone.activation.coordinator import build_release
from airflow_provider_dpone.errors import DponeError
from airflow_provider_dpone.hooks.bindings import coordinator
from airflow_provider_dpone.operators.declarations import declarations_in


class ActivateReleaseOperator(BaseOperator):
    """Compile the release from a folder of DAG files and make it current.

    :param dags_folder: folder whose DAG files declare the workloads; may be templated.
    :param environment: environment to switch.

    Returns the activation, the release and the number of workloads.
    """

    template_fields = ("dags_folder", "environment")

    def __init__(
        self,
        *,
        dags_folder: str,
        environment: str = "default",
        control_conn_id: str = "dpone_control",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dags_folder = dags_folder
        self.environment = environment
        self.control_conn_id = control_conn_id

    def execute(self, context: Any) -> dict[str, Any]:
        """Plan, drain, reserve, switch."""
        try:
            release = build_release(declarations_in(Path(self.dags_folder)))
            activation = coordinator(self.control_conn_id).activate(release, self.environment)
        except DponeError as error:
            if error.retryable:
                raise
            raise AirflowFailException(str(error)) from error
        self.log.info("release %s is active with %d workloads", release.digest()[7:19], len(release.workloads()))
        return {
            "activation": activation.sha256,
            "release": release.digest(),
            "workloads": len(release.workloads()),
            "environment": self.environment,
        }


class RetireReleaseOperator(BaseOperator):
    """Retire the active release of an environment; its guards become free."""

    template_fields = ("environment",)

    def __init__(self, *, environment: str = "default", control_conn_id: str = "dpone_control", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.environment = environment
        self.control_conn_id = control_conn_id

    def execute(self, context: Any) -> list[str]:
        """Stop admission and free the guards; refused while an attempt is unresolved."""
        try:
            retired = coordinator(self.control_conn_id).retire(self.environment)
        except DponeError as error:
            if error.retryable:
                raise
            raise AirflowFailException(str(error)) from error
        return [activation.sha256 for activation in retired]
