"""Publish one complete snapshot of a source table with exactly one EXCHANGE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_dpone.errors import DeclarationInvalid
from airflow_provider_dpone.operators.copying import CopyOperator

if TYPE_CHECKING:
    from airflow_provider_dpone.contracts.identity import TaskCoordinates


class ClickHouseSnapshotOperator(CopyOperator):
    """Copy a complete, consistent snapshot of a table into ClickHouse and swap it in, admitted and observed.

    :param source_conn_id: literal Airflow connection of the source database (read only).
    :param source_table: ``schema.table``; may be templated.
    :param target_conn_id: literal connection of type ``clickhouse``.
    :param target_table: literal ``database.table``; must be enrolled.
    :param limits: ceilings; ``max_source_bytes`` is required.
    :param min_rows: refuse a snapshot with fewer rows; 0 publishes an empty table.

    Returns the receipt (state, digests, counts, timings). An ``Asset`` in ``outlets`` gets the receipt's digest.

    :raises AirflowFailException: refused, with a ``DPONE_`` code; the target is untouched.
    """

    kind = "snapshot"
    constituent = "native"

    def run_attempt(self, world: Any, coordinates: TaskCoordinates, context: Any) -> dict[str, Any]:
        """Admit, copy, publish; the receipt."""
        from airflow_provider_dpone.attempts.cells.snapshot import SnapshotCell
        from airflow_provider_dpone.attempts.clickhouse import ClickHouseWorld

        if not isinstance(world, ClickHouseWorld):
            raise DeclarationInvalid(
                f"connection {self.target_conn_id!r} is no ClickHouse server; SqlLoadOperator is for SQL targets"
            )
        self._cell = cell = SnapshotCell(world, self.work(coordinates), self._stop, self.scheduler_view())
        receipt = cell.run()
        return self.told(receipt, context, {"target_uuid": receipt.target_uuid})
