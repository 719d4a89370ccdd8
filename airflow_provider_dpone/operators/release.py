"""Make a release current in an environment, or retire what is current."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_dpone.errors import DeclarationInvalid, DponeError, RunsActive
from airflow_provider_dpone.hooks.bindings import coordinator
from airflow_provider_dpone.operators.handover import activate_dags_folder, activate_release


class ActivateReleaseOperator(BaseOperator):
    """Make a release current: a built release directory, or the workloads of a folder of DAG files.

    :param release_dir: directory that ``dpone-airflow release build`` wrote; may be templated.
    :param release_id: the release it must be; required with ``release_dir``.
    :param cache: deployment cache that :class:`ReleaseDagBundle` serves; required with ``release_dir``.
    :param dags_folder: instead: a folder whose DAG files declare the workloads; nothing is materialised.
    :param environment: environment to switch.

    Returns the activation, the release and the number of workloads.
    """

    template_fields = ("release_dir", "release_id", "cache", "dags_folder", "environment")

    def __init__(
        self,
        *,
        release_dir: str | None = None,
        release_id: str | None = None,
        cache: str | None = None,
        dags_folder: str | None = None,
        environment: str = "default",
        control_conn_id: str = "dpone_control",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (release_dir is None) == (dags_folder is None):
            raise DeclarationInvalid("give release_dir (with release_id and cache) or dags_folder")
        if release_dir is not None and (release_id is None or cache is None):
            raise DeclarationInvalid("release_dir needs release_id and cache")
        self.release_dir = release_dir
        self.release_id = release_id
        self.cache = cache
        self.dags_folder = dags_folder
        self.environment = environment
        self.control_conn_id = control_conn_id

    def execute(self, context: Any) -> dict[str, Any]:
        """Verify, admit, drain, reserve, switch, acknowledge."""
        try:
            if self.dags_folder is not None:
                activation = activate_dags_folder(Path(self.dags_folder), self.environment, self.control_conn_id)
            else:
                activation = activate_release(
                    Path(str(self.release_dir)),
                    release_id=str(self.release_id),
                    cache=Path(str(self.cache)),
                    environment=self.environment,
                    control_conn_id=self.control_conn_id,
                ).activation
        except DponeError as error:
            if error.retryable:
                raise
            raise AirflowFailException(str(error)) from error
        release = activation.release
        self.log.info("release %s is active with %d workloads", release.digest()[7:19], len(release.workloads()))
        return {
            "activation": activation.sha256,
            "release": release.digest(),
            "deployment": activation.request.deployment_id,
            "workloads": len(release.workloads()),
            "environment": self.environment,
        }


class RetireReleaseOperator(BaseOperator):
    """Retire the active release of an environment; its guards become free.

    :param now: do not look whether runs of its DAGs are active; otherwise the task fails, with retry, while any is.
    """

    template_fields = ("environment",)

    def __init__(
        self, *, environment: str = "default", control_conn_id: str = "dpone_control", now: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.environment = environment
        self.control_conn_id = control_conn_id
        self.now = now

    def execute(self, context: Any) -> list[str]:
        """Stop admission and free the guards; refused while an attempt is unresolved."""
        try:
            work = coordinator(self.control_conn_id)
            if not self.now:
                self._require_no_runs(work.dags_in_force(self.environment), context["ti"])
            retired = work.retire(self.environment)
        except DponeError as error:
            if error.retryable:
                raise
            raise AirflowFailException(str(error)) from error
        return [activation.sha256 for activation in retired]

    def _require_no_runs(self, dag_ids: list[str], ti: Any) -> None:
        active = {d: ti.get_dr_count(dag_id=d, states=["running", "queued"]) for d in dag_ids if d != ti.dag_id}
        busy = {dag_id: count for dag_id, count in active.items() if count}
        if busy:
            raise RunsActive(
                f"runs of the release are active: {busy}; pause its DAGs and let them finish, or retire with now=True",
                runs=busy,
            )
