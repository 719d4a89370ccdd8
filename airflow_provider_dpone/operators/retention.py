"""Remove generations that earlier publications or failed attempts of a target left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.errors import DeclarationInvalid
from airflow_provider_dpone.operators import arguments
from airflow_provider_dpone.operators.base import TableOperator

if TYPE_CHECKING:
    from airflow_provider_dpone.attempts.clickhouse import ClickHouseWorld
    from airflow_provider_dpone.contracts.identity import TaskCoordinates


class RetentionOperator(TableOperator):
    """Keep the newest retained generations of a target and drop the rest, each proved before it is dropped.

    :param keep: predecessors to keep (0 keeps none); leftovers of failed attempts are always removed.

    Returns the receipt: what was removed, what was kept, bytes freed.
    """

    kind = "retention"

    def __init__(self, *, keep: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if isinstance(keep, str):
            raise DeclarationInvalid(f"keep must be a whole number of at least 0, not {keep!r}")
        self.keep = arguments.count("keep", keep)

    def declaration(self, workload_id: str) -> WorkloadDeclaration:
        """What this task declares to a release."""
        return WorkloadDeclaration(
            workload_id=workload_id,
            constituent="native",
            kind="retention",
            source_conn_id=None,
            source_relation=None,
            target_conn_id=self.target_conn_id,
            target_relation=self.target_table,
            control_conn_id=self.control_conn_id,
            options={"keep": self.keep},
        )

    def run_attempt(self, world: ClickHouseWorld, coordinates: TaskCoordinates, context: Any) -> dict[str, Any]:
        """Admit and remove; the receipt."""
        from airflow_provider_dpone.attempts.cells.retention import RetentionCell, RetentionWork

        work = RetentionWork(
            declaration=self.declaration(self.workload_id(coordinates)),
            environment=self.environment,
            coordinates=coordinates,
            keep=self.keep,
        )
        self._cell = cell = RetentionCell(world, work, self._stop, self.scheduler_view())
        receipt = cell.run()
        self.log.info(
            "%s: removed %s, kept %s, %s bytes freed",
            receipt.target,
            ", ".join(receipt.removed) or "nothing",
            ", ".join(receipt.kept) or "nothing",
            f"{receipt.freed_bytes:,}",
        )
        return {**receipt.model_dump(mode="json"), "receipt_sha256": receipt.digest()}
