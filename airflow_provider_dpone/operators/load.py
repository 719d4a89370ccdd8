"""Load one complete snapshot of a source table into a SQL table, in exactly one target transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_provider_dpone.attempts.cells.load import LoadCell
from airflow_provider_dpone.attempts.cells.snapshot import SnapshotWork
from airflow_provider_dpone.attempts.sql import SqlWorld
from airflow_provider_dpone.contracts.identity import TaskCoordinates
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.receipts import LoadReceipt
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.engines.postgres.catalog import parse_relation
from airflow_provider_dpone.errors import DeclarationInvalid
from airflow_provider_dpone.hooks.source import source_params
from airflow_provider_dpone.listeners.binding import remember_success
from airflow_provider_dpone.operators.base import TableOperator, literal


class SqlLoadOperator(TableOperator):
    """Replace the rows of a SQL table by a complete, consistent snapshot of a source table, admitted and observed.

    The rows are staged under a one-time login, compared with the source in two ways, and swapped in by one transaction:
    readers see the old rows until it commits and never wait for it. A failure leaves the old rows.

    :param source_conn_id: literal Airflow connection of the source database (read only).
    :param source_table: ``schema.table``; may be templated.
    :param target_conn_id: literal connection of the controller on the target database.
    :param target_table: literal ``schema.table`` in an enrolled schema.
    :param limits: ceilings; ``max_source_bytes`` is required. The staging table counts as the generation.
    :param min_rows: refuse a snapshot with fewer rows; 0 empties the target when the source is empty.

    Returns the receipt (state, digests, counts, timings). An ``Asset`` in ``outlets`` gets the receipt's digest.

    :raises AirflowFailException: refused, with a ``DPONE_`` code; the target is untouched.
    """

    kind = "load"
    constituent = "standalone"
    template_fields: Sequence[str] = ("source_table", "min_rows")
    template_ext: Sequence[str] = ()
    template_fields_renderers: ClassVar[dict[str, str]] = {}

    def __init__(
        self,
        *,
        source_conn_id: str,
        source_table: str,
        limits: SnapshotLimits | dict[str, Any],
        min_rows: int | str = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source_conn_id = literal("source_conn_id", source_conn_id)
        self.source_table = source_table
        self.min_rows = min_rows
        self.limits = limits if isinstance(limits, SnapshotLimits) else SnapshotLimits(**limits)
        self._declared = (str(source_table), str(min_rows))

    def declaration(self, workload_id: str) -> WorkloadDeclaration:
        """What this task declares to a release."""
        source_table, min_rows = self._declared
        return WorkloadDeclaration(
            workload_id=workload_id,
            constituent="standalone",
            kind="load",
            source_conn_id=self.source_conn_id,
            source_relation=source_table,
            target_conn_id=self.target_conn_id,
            target_relation=self.target_table,
            control_conn_id=self.control_conn_id,
            options={"min_rows": min_rows, **self.limits.effective().model_dump(exclude={"schema_name"})},
        )

    def run_attempt(self, world: Any, coordinates: TaskCoordinates, context: Any) -> dict[str, Any]:
        """Admit, stage, swap; the receipt."""
        if not isinstance(world, SqlWorld):
            raise DeclarationInvalid(
                f"connection {self.target_conn_id!r} is no SQL target; ClickHouseSnapshotOperator is for ClickHouse"
            )
        schema, name = parse_relation(self.source_table)
        try:
            min_rows = int(self.min_rows)
        except ValueError as error:
            raise DeclarationInvalid(f"min_rows {self.min_rows!r} is not a whole number") from error
        work = SnapshotWork(
            declaration=self.declaration(self.workload_id(coordinates)),
            environment=self.environment,
            coordinates=coordinates,
            limits=self.limits.effective(),
            min_rows=min_rows,
            source=source_params(self.source_conn_id),
            source_schema=schema,
            source_name=name,
        )
        self._cell = cell = LoadCell(world, work, self._stop, self.scheduler_view())
        receipt = cell.run()
        remember_success(self.control_conn_id, receipt.attempt_sha256)
        self._announce(receipt, context)
        return {**receipt.model_dump(mode="json"), "receipt_sha256": receipt.digest()}

    def _announce(self, receipt: LoadReceipt, context: Any) -> None:
        self.log.info(
            "loaded %s: %s rows of %s, snapshot of %s%s; receipt %s",
            receipt.target,
            f"{receipt.rows:,}",
            receipt.source,
            receipt.snapshot_taken_at,
            " (reused from the previous try)" if receipt.reused else "",
            receipt.digest()[7:19],
        )
        for outlet in self.outlets or []:
            context["outlet_events"][outlet].extra = {
                "receipt_sha256": receipt.digest(),
                "rows": receipt.rows,
                "transaction": receipt.transaction,
                "snapshot_taken_at": receipt.snapshot_taken_at,
            }
