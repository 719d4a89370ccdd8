"""Collects the workloads that DAG files declare; the source of a release."""

from __future__ import annotations

import inspect
import itertools
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.engines.dbt.project import LEFT_OUT
from airflow_provider_dpone.errors import DeclarationInvalid, DponeError
from airflow_provider_dpone.operators.base import WorkloadOperator
from airflow_provider_dpone.releases import layout
from airflow_provider_dpone.releases.builder import Producers
from airflow_provider_dpone.releases.sources import CompositionSourceSnapshot, require_derived


def declarations_in(dags_folder: Path) -> list[WorkloadDeclaration]:
    """Every workload of every DAG file below a folder.

    :raises DeclarationInvalid: a file cannot be imported, or a mapped field is not literal; names file and task.
    """
    return list(producers_in(dags_folder).declarations)


def producers_in(dags_folder: Path | None, manifests_folder: Path | None = None) -> Producers:
    """Everything a release is built from: workloads, DAG ids and native projects of DAG files, and manifests.

    :raises DeclarationInvalid: see :func:`declarations_in`.
    """
    if dags_folder is None:
        return Producers(manifests_folder=manifests_folder)
    dags = _dags(dags_folder)
    found: list[WorkloadDeclaration] = []
    native: dict[str, Path] = {}
    for dag in dags.values():
        for task in dag.tasks:
            found += declarations_of(dag.dag_id, task)
            project = task.native_project() if isinstance(task, WorkloadOperator) else None
            if project is not None:
                other = native.setdefault(*project)
                if other.resolve() != project[1].resolve():
                    raise DeclarationInvalid(
                        f"{other} and {project[1]} have one name; a release keeps projects by name"
                    )
    return Producers(
        declarations=found,
        dags=sorted(dags),
        dags_folder=dags_folder,
        manifests_folder=manifests_folder,
        native=native,
        native_left_out=LEFT_OUT,
    )


def require_declared(sources: CompositionSourceSnapshot) -> None:
    """Load the verified bytes of a release's DAG files and derive its inventory from them again.

    :raises ReleaseAltered: they declare something else. :raises DeclarationInvalid: a file cannot be imported.
    """
    with tempfile.TemporaryDirectory(prefix="dpone-verify-") as folder:
        root = Path(folder)
        for path, raw in {**sources.files, layout.RELEASE: sources.original}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(raw)
        (root / layout.DAGS).mkdir(exist_ok=True)
        found = producers_in(root / layout.DAGS)
        require_derived(sources, found.declarations, found.dags)


def loaded_dags(dags_folder: Path) -> set[str]:
    """Ids of the DAGs that the files of a folder give when they are loaded now."""
    return set(_dags(dags_folder))


def _dags(dags_folder: Path) -> dict[str, Any]:
    from airflow.dag_processing.dagbag import DagBag

    if not dags_folder.exists():
        raise DeclarationInvalid(f"there is no folder {dags_folder}")
    with _without_traces():
        bag = DagBag(dag_folder=str(dags_folder), load_op_links=False, safe_mode=False)
    if bag.import_errors:
        lines = [f"{file}: {error.strip().splitlines()[-1]}" for file, error in sorted(bag.import_errors.items())]
        raise DeclarationInvalid("DAG files cannot be imported:\n  " + "\n  ".join(lines), files=lines)
    return dict(bag.dags)


@contextmanager
def _without_traces() -> Iterator[None]:
    """Airflow logs a trace for each file it cannot import; the refusal says it in one line."""
    importing = logging.getLogger("airflow.dag_processing")
    level = importing.level
    importing.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        importing.setLevel(level)


def declarations_of(dag_id: str, task: Any) -> list[WorkloadDeclaration]:
    """The workloads one task declares: one, or one per literal map index; none when it is not ours."""
    if isinstance(task, WorkloadOperator):
        return [task.declaration(f"{dag_id}.{task.task_id}")]
    operator_class = getattr(task, "operator_class", None)
    if not (isinstance(operator_class, type) and issubclass(operator_class, WorkloadOperator)):
        return []
    partial = {k: v for k, v in task.partial_kwargs.items() if k not in ("task_id", "dag", "task_group", "start_date")}
    where = f"{dag_id}.{task.task_id}"
    result = []
    for index, mapped in enumerate(_mapped(where, task)):
        workload_id = f"{where}[{index}]"
        try:
            operator = operator_class(task_id=f"declaration_{index}", **{**_ours(operator_class, partial), **mapped})
        except DponeError as error:
            raise DeclarationInvalid(f"{workload_id}: {error.message}") from error
        result.append(operator.declaration(workload_id))
    return result


def _mapped(where: str, task: Any) -> Iterator[Mapping[str, Any]]:
    """Arguments per map index, in Airflow's own order: the last mapped argument changes fastest."""
    value = task.expand_input.value
    if isinstance(value, Mapping):
        for key, items in value.items():
            if not isinstance(items, Sequence) or isinstance(items, str):
                raise DeclarationInvalid(
                    f"{where}: {key} in .expand() must be a literal list; it decides who owns what"
                )
        for combination in itertools.product(*value.values()):
            yield dict(zip(value, combination, strict=True))
        return
    if not isinstance(value, Sequence) or not all(isinstance(item, Mapping) for item in value):
        raise DeclarationInvalid(
            f"{where}: .expand_kwargs() must get a literal list of dicts; it decides who owns what"
        )
    yield from value


def _ours(operator_class: type, partial: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the operator itself; Airflow's defaults such as queue or pool declare nothing."""
    names: set[str] = set()
    for cls in operator_class.__mro__:
        if cls.__module__.startswith("airflow_provider_dpone."):
            names |= set(inspect.signature(cls).parameters)
    return {key: value for key, value in partial.items() if key in names}
