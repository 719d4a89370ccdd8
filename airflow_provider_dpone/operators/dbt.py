"""Build a dbt project under a one-time login, and believe only what is read back."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.errors import DeclarationInvalid
from airflow_provider_dpone.listeners.binding import remember_success
from airflow_provider_dpone.operators import arguments
from airflow_provider_dpone.operators.base import WorkloadOperator
from airflow_provider_dpone.releases import layout

if TYPE_CHECKING:
    from airflow_provider_dpone.contracts.dbt import DbtPlan, DbtReceipt
    from airflow_provider_dpone.contracts.identity import TaskCoordinates
    from airflow_provider_dpone.engines.dbt.prepared import DbtSpec, PreparedDbt


class DbtBuildOperator(WorkloadOperator):
    """Run ``dbt build`` for a project in one managed schema, admitted, under a one-time login, and read back.

    :param project_dir: literal path of the dbt project, packages installed; it is copied before it is used.
    :param target_conn_id: literal connection of the controller on the target database (``postgres`` or ``mssql``).
    :param target_schema: literal managed schema; it must be enrolled, and every relation of the project must be in it.
    :param select: dbt's node selection, one text or several; empty builds everything.
    :param exclude: what is left out of it, likewise.
    :param vars: dbt variables.
    :param full_refresh: as dbt's ``--full-refresh``.
    :param fail_fast: as dbt's ``--fail-fast``.
    :param threads: models built at once.
    :param env: variables for the project's own ``env_var()``; the task's environment is not passed on.
    :param dbt_executable_path: the ``dbt`` of another virtual environment; default is where Airflow runs.
    :param work_dir: directory for private working directories and saved parses; default is below the temporary one.

    Returns the receipt (state, digests, nodes, rows, timings). An ``Asset`` in ``outlets`` gets the receipt's digest.

    :raises AirflowFailException: refused, with a ``DPONE_`` code.
    """

    kind = "dbt"
    template_fields: Sequence[str] = (
        *WorkloadOperator.template_fields,
        "target_schema",
        "select",
        "exclude",
        "vars",
        "full_refresh",
        "env",
    )
    template_ext: Sequence[str] = ()
    template_fields_renderers: ClassVar[dict[str, str]] = {"vars": "json", "env": "json"}

    def __init__(
        self,
        *,
        project_dir: str | os.PathLike[str],
        target_schema: str,
        select: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        vars: dict[str, Any] | None = None,
        full_refresh: bool | str = False,
        fail_fast: bool = False,
        threads: int = 1,
        env: dict[str, str] | None = None,
        dbt_executable_path: str | None = None,
        work_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.project_dir = arguments.literal("project_dir", os.fspath(project_dir))
        self.target_schema = arguments.literal("target_schema", target_schema)
        self.select = select
        self.exclude = exclude
        self.vars = {} if vars is None else vars
        self.env = {} if env is None else env
        self.full_refresh = full_refresh
        self.fail_fast = arguments.flag("fail_fast", fail_fast)
        for name, value in (("select", select), ("exclude", exclude)):
            if not isinstance(value, str) and not all(isinstance(part, str) for part in value):
                raise DeclarationInvalid(f"{name} must be a text or a list of texts, not {value!r}")
        for name, given in (("vars", self.vars), ("env", self.env)):
            if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
                raise DeclarationInvalid(f"{name} must be a dict with texts as keys, not {given!r}")
        if not arguments.templated(full_refresh):
            _truth("full_refresh", full_refresh)
        if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 64:
            raise DeclarationInvalid(f"threads must be a whole number from 1 to 64, not {threads!r}")
        self.threads = threads
        self.dbt_executable_path = dbt_executable_path
        self.work_dir = work_dir
        self._declared: dict[str, Any] = {
            "select": _text(select),
            "exclude": _text(exclude),
            "vars": _text(self.vars),
            "full_refresh": str(full_refresh),
            "fail_fast": fail_fast,
            "threads": threads,
            "env": _text(self.env),
        }

    def native_project(self) -> tuple[str, Path]:
        """Name and directory of the project this task builds."""
        return Path(self.project_dir).name, self._project()

    def _project(self) -> Path:
        """The project as its release keeps it, when the DAG file lies in one; else where the author has it."""
        name = Path(self.project_dir).name
        dag_file = Path(self.dag.fileloc) if self.has_dag() else Path()  # type: ignore[no-untyped-call]
        for folder in dag_file.parents:
            if (folder / layout.RELEASE).is_file():
                return folder / layout.NATIVE / name
        return Path(self.project_dir)

    def declaration(self, workload_id: str) -> WorkloadDeclaration:
        """What this task declares to a release: dbt parses the project to know every relation the task can write."""
        from airflow_provider_dpone.engines.dbt.prepared import PreparedDbt

        with PreparedDbt(self._spec()) as prepared:
            return self._declaration(workload_id, prepared.prepare())

    def run_attempt(self, world: Any, coordinates: TaskCoordinates, context: Any) -> dict[str, Any]:
        """Parse, admit, build, read back; the receipt."""
        from airflow_provider_dpone.attempts.cells.dbt import DbtCell, DbtWork
        from airflow_provider_dpone.attempts.sql import SqlWorld
        from airflow_provider_dpone.engines.dbt.prepared import PreparedDbt

        if not isinstance(world, SqlWorld):
            raise DeclarationInvalid(f"connection {self.target_conn_id!r} is no SQL target (postgres or mssql)")
        with PreparedDbt(self._spec()) as prepared:
            self._cell = _Parsing(prepared)
            plan = prepared.prepare()
            declaration = self._declaration(self.workload_id(coordinates), plan)
            work = DbtWork(declaration, self.environment, coordinates, prepared)
            self._cell = cell = DbtCell(world, work, self._stop, self.scheduler_view())
            receipt = cell.run()
        remember_success(self.control_conn_id, receipt.attempt_sha256)
        self._announce(receipt, context)
        return {**receipt.model_dump(mode="json"), "receipt_sha256": receipt.digest()}

    def _declaration(self, workload_id: str, plan: DbtPlan) -> WorkloadDeclaration:
        return WorkloadDeclaration(
            workload_id=workload_id,
            constituent="native",
            kind="dbt",
            source_conn_id=None,
            source_relation=None,
            target_conn_id=self.target_conn_id,
            target_relation=self.target_schema,
            control_conn_id=self.control_conn_id,
            options={"project": plan.project, **self._declared},
            writes=plan.writes(),
            reads=tuple(f"{source.schema_of}.{source.name}" for source in plan.reads),
        )

    def _spec(self) -> DbtSpec:
        from airflow_provider_dpone.engines.dbt.prepared import DbtSpec
        from airflow_provider_dpone.hooks.dbt import dbt_target

        root = Path(self.work_dir or Path(tempfile.gettempdir()) / f"dpone-dbt-of-{os.getuid()}")
        return DbtSpec(
            project_dir=self._project(),
            target=dbt_target(self.target_conn_id, self.target_schema),
            root=root / "runs",
            cache=root / "parses",
            select=_texts(self.select),
            exclude=_texts(self.exclude),
            variables=dict(self.vars),
            full_refresh=_truth("full_refresh", self.full_refresh),
            fail_fast=self.fail_fast,
            threads=self.threads,
            dbt_executable=self.dbt_executable_path,
            environment={str(name): str(value) for name, value in self.env.items()},
            label=f"{self.task_id}",
        )

    def _announce(self, receipt: DbtReceipt, context: Any) -> None:
        self.log.info(
            "built %s into %s: %s models, %s seeds, %s snapshots, %s tests, %s warnings%s; receipt %s",
            receipt.project,
            receipt.target,
            receipt.models,
            receipt.seeds,
            receipt.snapshots,
            receipt.tests,
            len(receipt.warnings),
            " (reused from the previous try)" if receipt.reused else "",
            receipt.digest()[7:19],
        )
        for outlet in self.outlets or []:
            context["outlet_events"][outlet].extra = {
                "receipt_sha256": receipt.digest(),
                "project": receipt.project,
                "models": receipt.models,
                "rows": sum(receipt.rows.values()),
            }


class _Parsing:
    """What can be stopped before there is an attempt."""

    def __init__(self, prepared: PreparedDbt) -> None:
        self._prepared = prepared

    def kill(self) -> None:
        self._prepared.stop()


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) and value else tuple(value)


def _text(value: Any) -> str:
    """A value as declared: its JSON, or the digest of that where it is long."""
    text = json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= 400 else digest_of(text.encode())


def _truth(name: str, value: bool | str) -> bool:
    if isinstance(value, str):
        known = {"true": True, "false": False, "": False, "none": False}
        if value.strip().lower() not in known:
            raise DeclarationInvalid(f"{name} is rendered as {value!r}, which is neither true nor false")
        return known[value.strip().lower()]
    return bool(value)
