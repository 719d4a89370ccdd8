"""DAGs of a release's transfer manifests: one DAG with one task each, made only for the DAG that is asked for."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, get_parsing_context

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.operators.load import SqlLoadOperator
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator
from airflow_provider_dpone.releases import layout
from airflow_provider_dpone.releases.generated_transfer import GeneratedTransfer
from airflow_provider_dpone.releases.manifest import Transfer, read_written


def transfer_dags(dag_file: str) -> dict[str, DAG]:
    """The DAGs of the manifests beside a release's ``dags`` folder, by id.

    Reads files only; while one task is parsed, only its own manifest.

    :param dag_file: ``__file__`` of the DAG file in the release's ``dags`` folder.
    """
    folder = Path(dag_file).resolve().parent.parent / layout.RUNTIME
    wanted = get_parsing_context().dag_id
    paths = sorted(folder.glob("*.json")) if wanted is None else [folder / f"{wanted}.json"]
    return {path.stem: _dag(read_written(path.read_bytes())) for path in paths if path.is_file()}


class GeneratedSnapshotOperator(ClickHouseSnapshotOperator):
    """A snapshot that a native project generated; declares every member of its manifest.

    :param manifest: the generated transfer.
    """

    def __init__(self, *, manifest: GeneratedTransfer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.members = manifest.members()

    def declaration(self, workload_id: str) -> WorkloadDeclaration:
        """What this task declares to a release."""
        declared = super().declaration(workload_id)
        return declared.model_copy(update={"options": {**declared.options, **self.members}})


def _dag(manifest: Transfer) -> DAG:
    runtime = manifest.runtime if isinstance(manifest, GeneratedTransfer) else manifest
    with DAG(manifest.id, schedule=runtime.schedule, catchup=False, max_active_runs=1, tags=["dpone"]) as dag:
        fields: dict[str, Any] = {
            "task_id": "transfer",
            "source_conn_id": manifest.source.conn_id,
            "source_table": manifest.source.table,
            "target_conn_id": manifest.target.conn_id,
            "target_table": manifest.target.table,
            "control_conn_id": runtime.control_conn_id,
            "environment": runtime.environment,
            "limits": SnapshotLimits(**manifest.limits),  # type: ignore[arg-type]
            "min_rows": manifest.quality.min_rows if isinstance(manifest, GeneratedTransfer) else manifest.min_rows,
            "retries": runtime.retries,
            "retry_delay": timedelta(seconds=30),
            "outlets": [Asset(f"dpone://logical/{manifest.workload_id}")],
        }
        if isinstance(manifest, GeneratedTransfer):
            GeneratedSnapshotOperator(manifest=manifest, **fields)
        else:
            OPERATORS[manifest.kind](
                **fields,
                columns=manifest.columns,
                exclude=manifest.exclude,
                on_new_source_column=manifest.on_new_source_column,
                defaults=manifest.defaults,
            )
    return dag


#: The operator of each kind of manifest.
OPERATORS: dict[str, type[Any]] = {"snapshot": ClickHouseSnapshotOperator, "load": SqlLoadOperator}
