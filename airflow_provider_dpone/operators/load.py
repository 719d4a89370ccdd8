"""Load one complete snapshot of a source table into a SQL table, in exactly one target transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.errors import DeclarationInvalid
from airflow_provider_dpone.operators import arguments
from airflow_provider_dpone.operators.copying import CopyOperator

if TYPE_CHECKING:
    from airflow_provider_dpone.contracts.identity import TaskCoordinates


class SqlLoadOperator(CopyOperator):
    """Replace the rows of a SQL table by a complete, consistent snapshot of a source table, admitted and observed.

    The rows are staged under a one-time login, compared with the source in two ways, and swapped in by one transaction:
    readers see the old rows until it commits and never wait for it. A failure leaves the old rows.

    :param source_conn_id: literal Airflow connection of the source database (read only).
    :param source_table: ``schema.table``; may be templated.
    :param target_conn_id: literal connection of the controller on the target database.
    :param target_table: literal ``schema.table`` in an enrolled schema.
    :param limits: ceilings; ``max_source_bytes`` is required. The staging table counts as the generation.
    :param min_rows: refuse a snapshot with fewer rows; 0 empties the target when the source is empty.
    :param readers_may_wait: SQL Server only: empty the table by TRUNCATE, for which readers wait until the commit;
        needed where the database keeps no row versions (READ_COMMITTED_SNAPSHOT OFF).

    Returns the receipt (state, digests, counts, timings). An ``Asset`` in ``outlets`` gets the receipt's digest.

    :raises AirflowFailException: refused, with a ``DPONE_`` code; the target is untouched.
    """

    kind = "load"
    constituent = "standalone"

    def __init__(self, *, readers_may_wait: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.readers_may_wait = arguments.flag("readers_may_wait", readers_may_wait)

    def declaration(self, workload_id: str) -> WorkloadDeclaration:
        """What this task declares to a release."""
        declared = super().declaration(workload_id)
        if not self.readers_may_wait:
            return declared
        return declared.model_copy(update={"options": {**declared.options, "readers_may_wait": True}})

    def run_attempt(self, world: Any, coordinates: TaskCoordinates, context: Any) -> dict[str, Any]:
        """Admit, stage, swap; the receipt."""
        from airflow_provider_dpone.attempts.cells.load import LoadCell
        from airflow_provider_dpone.attempts.sql import SqlWorld

        if not isinstance(world, SqlWorld):
            raise DeclarationInvalid(
                f"connection {self.target_conn_id!r} is no SQL target; ClickHouseSnapshotOperator is for ClickHouse"
            )
        self._cell = cell = LoadCell(world, self.work(coordinates), self._stop, self.scheduler_view())
        receipt = cell.run()
        return self.told(receipt, context, {"transaction": receipt.transaction})
