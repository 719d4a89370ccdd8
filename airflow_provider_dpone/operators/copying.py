"""What the operators that copy one source table share: their fields, what they declare, and how a receipt is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_provider_dpone.contracts.choice import ColumnChoice, Constant
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.listeners.binding import remember_success
from airflow_provider_dpone.operators import arguments
from airflow_provider_dpone.operators.base import TableOperator

if TYPE_CHECKING:
    from airflow_provider_dpone.attempts.cells.snapshot import SnapshotWork
    from airflow_provider_dpone.contracts.identity import TaskCoordinates
    from airflow_provider_dpone.contracts.receipts import LoadReceipt, SnapshotReceipt


class CopyOperator(TableOperator):
    """Base of operators that copy one complete, consistent snapshot of a source table.

    :param source_conn_id: literal Airflow connection of the source database (read only).
    :param source_table: ``schema.table``; may be templated.
    :param limits: ceilings; ``max_source_bytes`` is required.
    :param min_rows: refuse a snapshot with fewer rows; 0 takes an empty one.
    :param columns: what is transferred: a list of column names, or a dict of source name to target name; default is
        every column, by its exact name.
    :param exclude: source columns that are not transferred.
    :param on_new_source_column: what a source column without a target column means: ``"refuse"`` (default), or
        ``"ignore"``, which names it in the log and in the receipt.
    :param defaults: target columns that the source has not, each with the value every row gets: a text, a whole number,
        a boolean or None.
    """

    kind: Literal["snapshot", "load"]
    constituent: Literal["native", "standalone"]
    template_fields: Sequence[str] = (*TableOperator.template_fields, "source_conn_id", "source_table", "min_rows")
    template_ext: Sequence[str] = ()
    template_fields_renderers: ClassVar[dict[str, str]] = {}

    def __init__(
        self,
        *,
        source_conn_id: str,
        source_table: str,
        limits: SnapshotLimits | dict[str, Any],
        min_rows: int | str = 0,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        exclude: Sequence[str] = (),
        on_new_source_column: Literal["refuse", "ignore"] = "refuse",
        defaults: Mapping[str, Constant] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.choice = ColumnChoice.of(columns, exclude, on_new_source_column, defaults)
        self.source_conn_id = arguments.literal("source_conn_id", source_conn_id)
        self.source_table = source_table
        self.min_rows = min_rows
        self.limits = arguments.limits(limits)
        if not arguments.templated(source_table):
            arguments.relation("source_table", source_table)
        if not arguments.templated(min_rows):
            arguments.count("min_rows", min_rows)
        self._declared = (str(source_table), str(min_rows))

    def declaration(self, workload_id: str) -> WorkloadDeclaration:
        """What this task declares to a release."""
        source_table, min_rows = self._declared
        return WorkloadDeclaration(
            workload_id=workload_id,
            constituent=self.constituent,
            kind=self.kind,
            source_conn_id=self.source_conn_id,
            source_relation=source_table,
            target_conn_id=self.target_conn_id,
            target_relation=self.target_table,
            control_conn_id=self.control_conn_id,
            options={
                "min_rows": min_rows,
                **self.limits.effective().model_dump(exclude={"schema_name"}),
                **self.choice.declared(),
            },
        )

    def work(self, coordinates: TaskCoordinates) -> SnapshotWork:
        """The work with its rendered values."""
        from airflow_provider_dpone.attempts.cells.snapshot import SnapshotWork
        from airflow_provider_dpone.hooks.source import source_behind

        schema, name = arguments.relation("source_table", self.source_table)
        return SnapshotWork(
            declaration=self.declaration(self.workload_id(coordinates)),
            environment=self.environment,
            coordinates=coordinates,
            limits=self.limits.effective(),
            min_rows=arguments.count("min_rows", self.min_rows),
            source=source_behind(self.source_conn_id),
            source_schema=schema,
            source_name=name,
            choice=self.choice,
        )

    def told(self, receipt: SnapshotReceipt | LoadReceipt, context: Any, extra: Mapping[str, object]) -> dict[str, Any]:
        """Log the receipt, put it on every outlet, and return it as XCom has it.

        :param extra: what an ``Asset`` event carries besides digest, rows and the snapshot's time.
        """
        remember_success(self.control_conn_id, receipt.attempt_sha256)
        self.log.info(
            "%s %s: %s rows of %s, snapshot of %s%s; receipt %s",
            receipt.state.lower(),
            receipt.target,
            f"{receipt.rows:,}",
            receipt.source,
            receipt.snapshot_taken_at,
            " (reused from the previous try)" if receipt.reused else "",
            receipt.digest()[7:19],
        )
        if receipt.left_out:
            self.log.info("left out of %s: %s", receipt.source, ", ".join(receipt.left_out))
        for outlet in self.outlets or []:
            context["outlet_events"][outlet].extra = {
                "receipt_sha256": receipt.digest(),
                "rows": receipt.rows,
                "snapshot_taken_at": receipt.snapshot_taken_at,
                **extra,
            }
        return {**receipt.model_dump(mode="json"), "receipt_sha256": receipt.digest()}
