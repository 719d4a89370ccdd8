"""Classifies all workloads of a release into cells; what no cell supports refuses the whole release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.errors import ActivationRefused, DponeError
from airflow_provider_dpone.releases.generated_transfer import unsupported_members
from airflow_provider_dpone.releases.sources import CompositionSourceSnapshot

BOTH: Final = frozenset({Family.NONPRODUCTION, Family.PRODUCTION})
NONPRODUCTION: Final = frozenset({Family.NONPRODUCTION})

#: (constituent, kind, source connector, target connector) -> cell and the families it is admitted in.
CELLS: Final[dict[tuple[str, str, str, str], tuple[str, frozenset[Family]]]] = {
    ("native", "snapshot", "mssql", "clickhouse"): ("mssql_clickhouse_full_refresh", BOTH),
    ("native", "snapshot", "postgres", "clickhouse"): ("mssql_clickhouse_full_refresh", NONPRODUCTION),
    ("native", "retention", "", "clickhouse"): ("mssql_clickhouse_full_refresh", BOTH),
    ("standalone", "load", "postgres", "mssql"): ("postgres_mssql_full_refresh", BOTH),
    ("standalone", "load", "postgres", "postgres"): ("postgres_mssql_full_refresh", NONPRODUCTION),
    ("native", "dbt", "", "mssql"): ("dbt_native", BOTH),
    ("native", "dbt", "", "postgres"): ("dbt_native", NONPRODUCTION),
}


@dataclass(frozen=True)
class PlannedWorkload:
    """A workload and the cell it runs in."""

    declaration: WorkloadDeclaration
    cell: str


@dataclass(frozen=True)
class CompositionExecutionPlan:
    """Every workload of a release, classified; nothing is reserved by it."""

    sources: CompositionSourceSnapshot
    family: Family
    workloads: tuple[PlannedWorkload, ...]


def plan_composition_execution(
    sources: CompositionSourceSnapshot, *, family: Family, connector: Callable[[str], str]
) -> CompositionExecutionPlan:
    """The plan of a verified release.

    :param connector: kind of server behind a connection id of the environment.
    :raises ActivationRefused: names every workload without a cell, and why; nothing was changed.
    """
    planned: list[PlannedWorkload] = []
    problems: list[str] = []
    kinds: dict[str, str] = {}

    def kind_behind(conn_id: str) -> str:
        if conn_id not in kinds:
            kinds[conn_id] = connector(conn_id)
        return kinds[conn_id]

    for declaration in sources.release.workloads():
        try:
            source = kind_behind(declaration.source_conn_id) if declaration.source_conn_id else ""
            target = kind_behind(declaration.target_conn_id)
        except DponeError as error:
            problems.append(f"{declaration.workload_id}: {error.message}")
            continue
        found = CELLS.get((declaration.constituent, declaration.kind, source, target))
        if found is None or family not in found[1]:
            route = f"from {source} to {target}" if source else f"on {target}"
            problems.append(
                f"{declaration.workload_id}: {declaration.kind} {route} ({declaration.constituent}) is not a supported "
                f"cell of family {family}"
            )
        elif members := unsupported_members(declaration):
            problems.append(f"{declaration.workload_id}: {'; '.join(members)}")
        elif declaration.kind == "snapshot" and not _positive(declaration, "max_source_bytes"):
            problems.append(f"{declaration.workload_id}: a snapshot needs a positive max_source_bytes")
        else:
            planned.append(PlannedWorkload(declaration, found[0]))
    if not planned and not problems:
        problems.append("the release contains no workload; no DAG file or manifest declares a task of this provider")
    if problems:
        raise ActivationRefused(
            "the release cannot be activated; nothing was reserved:\n  " + "\n  ".join(problems), problems=problems
        )
    return CompositionExecutionPlan(sources, family, tuple(planned))


def _positive(declaration: WorkloadDeclaration, option: str) -> bool:
    value = declaration.options.get(option)
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
