"""A dbt project made ready for one attempt: sealed, parsed, planned; its process waits for a login."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_provider_dpone.contracts.dbt import DbtPlan, DbtRun, SourceRelation
from airflow_provider_dpone.engines.dbt.artifacts import read_run
from airflow_provider_dpone.engines.dbt.process import DbtProcess
from airflow_provider_dpone.engines.dbt.profile import DbtTarget
from airflow_provider_dpone.engines.dbt.project import seal
from airflow_provider_dpone.engines.dbt.relations import plan_relations
from airflow_provider_dpone.engines.dbt.workspace import ParseCache, Workspace
from airflow_provider_dpone.errors import DbtProjectInvalid, DbtUnusable


@dataclass(frozen=True)
class DbtSpec:
    """What to run and where.

    :ivar root: directory for private working directories.
    :ivar cache: directory for saved parses.
    :ivar select: dbt's node selection, as for ``--select``; empty selects everything.
    """

    project_dir: Path
    target: DbtTarget
    root: Path
    cache: Path
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    variables: dict[str, Any] = field(default_factory=dict)
    full_refresh: bool = False
    fail_fast: bool = False
    threads: int = 1
    dbt_executable: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    label: str = "dbt"


class PreparedDbt:
    """One process over one sealed project; nothing runs before :meth:`prepare`."""

    def __init__(self, spec: DbtSpec) -> None:
        self.spec = spec
        self._workspace: Workspace | None = None
        self._process: DbtProcess | None = None
        self._plan: DbtPlan | None = None
        self._stopped = False

    @property
    def plan(self) -> DbtPlan:
        """The plan; there once it is prepared."""
        assert self._plan is not None, "prepare() first"
        return self._plan

    @property
    def pid(self) -> int:
        """dbt's process, also the id of its group."""
        return self._running().pid

    def prepare(self) -> DbtPlan:
        """Seal, parse, plan.

        :raises DbtUnusable, DbtProjectInvalid, DbtRelationOutside, DbtRelationRefused: see their classes.
        """
        spec = self.spec
        workspace = self._workspace = Workspace(spec.root)
        project_sha256 = seal(spec.project_dir, workspace.project)
        process = self._process = DbtProcess(
            workspace,
            spec.target.profiles(spec.threads),
            dbt_executable=spec.dbt_executable,
            variables=spec.variables,
            environment=spec.environment,
            label=spec.label,
        )
        if self._stopped:
            process.stop()
        manifest, versions = process.parse(ParseCache(spec.cache), project_sha256)
        if f"dbt-{spec.target.adapter}" not in versions:
            raise DbtUnusable(f"dbt-{spec.target.adapter} is not installed beside dbt {versions['dbt-core']}")
        listed = process.select(spec.select, spec.exclude, full_refresh=spec.full_refresh, fail_fast=spec.fail_fast)
        selected = frozenset(u for u in listed if not _ephemeral(manifest["nodes"].get(u)))
        if not selected:
            raise DbtProjectInvalid(f"nothing in {spec.project_dir} is selected; look at select and exclude")
        self._plan = DbtPlan(
            project=manifest["metadata"]["project_name"],
            project_sha256=project_sha256,
            adapter=spec.target.adapter,
            versions=versions,
            target_schema=spec.target.schema,
            full_refresh=spec.full_refresh,
            selected=tuple(sorted(selected)),
            relations=plan_relations(
                manifest,
                adapter=spec.target.adapter,
                database=spec.target.database,
                schema=spec.target.schema,
                selected=selected,
            ),
            reads=_reads(manifest, spec.target.schema),
        )
        return self._plan

    def build(self, attempt_sha256: str, user: str, password: str) -> DbtRun:
        """Build as this one-time login; returns when the process and all it started have ended."""
        exit_code = self._running().build(user, password)
        assert self._workspace is not None
        return read_run(
            self._workspace.target, attempt_sha256=attempt_sha256, plan_sha256=self.plan.digest(), exit_code=exit_code
        )

    def last_errors(self) -> list[str]:
        """What dbt last logged as errors; after the end."""
        return self._running().last_errors()

    def stop(self) -> None:
        """End dbt and all it started, within about a second; any thread, any time."""
        self._stopped = True
        if self._process is not None:
            self._process.stop()

    def close(self) -> None:
        """End what runs and remove the private directory; may be called again."""
        if self._process is not None:
            self._process.close()
        if self._workspace is not None:
            self._workspace.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> DbtProcess:
        assert self._process is not None, "prepare() first"
        return self._process


def _ephemeral(node: dict[str, Any] | None) -> bool:
    return node is not None and node["config"].get("materialized") == "ephemeral"


def _reads(manifest: dict[str, Any], schema: str) -> tuple[SourceRelation, ...]:
    found = {(s["schema"], s["identifier"]) for s in manifest["sources"].values() if s["schema"] != schema}
    return tuple(SourceRelation(schema_of=where, name=name) for where, name in sorted(found))
