"""Enrol targets, prepare a release, make it current, require it, retire it: one operator each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_dpone.errors import DeclarationInvalid, DponeError, RunsActive
from airflow_provider_dpone.hooks.bindings import coordinator
from airflow_provider_dpone.hooks.enrolment import enrol_targets
from airflow_provider_dpone.operators.handover import (
    activate_dags_folder,
    activate_release,
    prepare_release,
    require_active_release,
)


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
        with failing():
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
        release = activation.release
        self.log.info("release %s is active with %d workloads", release.digest()[7:19], len(release.workloads()))
        return {
            "activation": activation.sha256,
            "release": release.digest(),
            "deployment": activation.request.deployment_id,
            "workloads": len(release.workloads()),
            "environment": self.environment,
        }


class _OneRelease(BaseOperator):
    """Base of operators that name one release in one environment.

    :param release_id: the release it must be.
    :param cache: deployment cache that :class:`ReleaseDagBundle` serves.
    """

    def __init__(
        self,
        *,
        release_id: str,
        cache: str,
        environment: str = "default",
        control_conn_id: str = "dpone_control",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.release_id = release_id
        self.cache = cache
        self.environment = environment
        self.control_conn_id = control_conn_id


class PrepareReleaseOperator(_OneRelease):
    """Verify, admit and reserve a built release: PREPARED. :class:`ActivateReleaseOperator` goes on from there.

    Returns the activation, the release and its deployment.
    """

    template_fields = ("release_dir", "release_id", "cache", "environment")

    def __init__(self, *, release_dir: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.release_dir = release_dir

    def execute(self, context: Any) -> dict[str, Any]:
        """Drain the predecessor and reserve every guard; the pointer stays where it is."""
        with failing():
            prepared = prepare_release(
                Path(self.release_dir),
                release_id=self.release_id,
                cache=Path(self.cache),
                environment=self.environment,
                control_conn_id=self.control_conn_id,
            )
        return {
            "activation": prepared.sha256,
            "state": prepared.state.name,
            "release": prepared.request.release_id,
            "deployment": prepared.request.deployment_id,
        }


class RequireActiveReleaseOperator(_OneRelease):
    """Succeed only when exactly this release is active in an environment, re-verified now."""

    template_fields = ("release_id", "cache", "environment")

    def execute(self, context: Any) -> str:
        """The activation's digest."""
        with failing():
            return require_active_release(
                self.release_id,
                cache=Path(self.cache),
                environment=self.environment,
                control_conn_id=self.control_conn_id,
            ).sha256


class EnrollOperator(BaseOperator):
    """Accept targets as they are now, with an administrator's connections; ordinary tasks never enrol.

    :param conn_id: connection of an administrator of the target server.
    :param tables: ClickHouse tables, ``database.table``.
    :param schemas: managed schemas of a SQL database, instead.
    :param controller: with ``schemas``: the login that tasks use.
    :param control_conn_id: connection of the ledger's owner.

    Returns the guards' ids by target.
    """

    template_fields = ("tables", "schemas")

    def __init__(
        self,
        *,
        conn_id: str,
        tables: Sequence[str] = (),
        schemas: Sequence[str] = (),
        controller: str | None = None,
        administrators: Sequence[str] = (),
        accepted_features: Sequence[str] = (),
        control_conn_id: str = "dpone_control_admin",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.tables = tables
        self.schemas = schemas
        self.controller = controller
        self.administrators = administrators
        self.accepted_features = accepted_features
        self.control_conn_id = control_conn_id

    def execute(self, context: Any) -> dict[str, str]:
        """Look, write the marker where there is none, and record the enrolment."""
        with failing():
            found = enrol_targets(
                self.conn_id,
                self.control_conn_id,
                tables=self.tables,
                schemas=self.schemas,
                controller=self.controller,
                administrators=self.administrators,
                accepted_features=self.accepted_features,
                accepted_by=f"{context['ti'].dag_id}.{context['ti'].task_id}",
            )
        return {target: guard_id for target, guard_id, _ in found}


@contextmanager
def failing() -> Iterator[None]:
    """Let what a retry would only repeat fail the task at once."""
    try:
        yield
    except DponeError as error:
        if error.retryable:
            raise
        raise AirflowFailException(str(error)) from error


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
        with failing():
            work = coordinator(self.control_conn_id)
            if not self.now:
                self._require_no_runs(work.dags_in_force(self.environment), context["ti"])
            retired = work.retire(self.environment)
        return [activation.sha256 for activation in retired]

    def _require_no_runs(self, dag_ids: list[str], ti: Any) -> None:
        active = {d: ti.get_dr_count(dag_id=d, states=["running", "queued"]) for d in dag_ids if d != ti.dag_id}
        busy = {dag_id: count for dag_id, count in active.items() if count}
        if busy:
            raise RunsActive(
                f"runs of the release are active: {busy}; pause its DAGs and let them finish, or retire with now=True",
                runs=busy,
            )
