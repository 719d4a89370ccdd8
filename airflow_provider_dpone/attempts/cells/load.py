"""The load cell: one complete source snapshot, staged exactly, and swapped in by exactly one target transaction."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from airflow_provider_dpone.attempts.admission import Admissible
from airflow_provider_dpone.attempts.cells.snapshot import SnapshotWork
from airflow_provider_dpone.attempts.protocol import AttemptProtocol
from airflow_provider_dpone.attempts.reading import aggregating
from airflow_provider_dpone.attempts.settle import SchedulerView
from airflow_provider_dpone.attempts.sql import Loads, LoadWriter, SqlWorld, Table
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.contracts.columns import TableAggregates
from airflow_provider_dpone.contracts.identity import staging_name
from airflow_provider_dpone.contracts.loads import LoadRecord, TargetBaseline
from airflow_provider_dpone.contracts.naming import split_table
from airflow_provider_dpone.contracts.ports import IssuedCredential
from airflow_provider_dpone.contracts.publication import SourceSnapshotRef
from airflow_provider_dpone.contracts.receipts import LoadReceipt
from airflow_provider_dpone.contracts.states import DispatchState, Purpose
from airflow_provider_dpone.errors import (
    AnswerLost,
    CeilingExceeded,
    CounterUnreadable,
    DeclarationInvalid,
    DponeError,
    NotPublished,
    ReconciliationFailed,
    ServerRefused,
)
from airflow_provider_dpone.ledger.schema import EvidenceKind
from airflow_provider_dpone.transfer.convert import Conversion, plan_conversion
from airflow_provider_dpone.transfer.meter import Meter, StorageNumbers
from airflow_provider_dpone.transfer.stream import StreamResult, stream_snapshot


@dataclass(frozen=True)
class _Plan:
    """Where the rows go and how."""

    loads: Loads
    table: Table
    conversion: Conversion


@dataclass(frozen=True)
class _Copied:
    """The staging table as it was filled: what the stream saw, and the source's aggregates."""

    result: StreamResult
    wire_bytes: int
    source: SourceSnapshotRef
    aggregates: TableAggregates


class LoadCell(AttemptProtocol[SqlWorld, LoadReceipt]):
    """Runs one load attempt."""

    receipt_type = LoadReceipt

    def __init__(self, world: SqlWorld, work: SnapshotWork, stop: StopFlag, finished: SchedulerView) -> None:
        super().__init__(world, work, stop, finished)
        self._work: SnapshotWork = work
        self._planned: _Plan | None = None
        self._writer: LoadWriter | None = None

    @property
    def _name(self) -> str:
        """The target's name in its schema."""
        return split_table(self._work.declaration.target_relation)[1]

    def preflight(self, admissible: Admissible) -> None:
        """The schema is as enrolled, nothing is attached to the target, and every column has an exact mapping."""
        schema, _ = split_table(self._work.declaration.target_relation)
        if schema not in admissible.guard.schema.managed_schemas:
            raise DeclarationInvalid(
                f"{self._work.declaration.target_relation} lies outside what is enrolled: "
                f"{', '.join(admissible.guard.schema.managed_schemas)}"
            )
        loads = self.world.target.loads(admissible.guard.schema, schema)
        table = loads.look(self._name, readers_wait=bool(self._work.declaration.options.get("readers_may_wait")))
        source = self._work.source.describe(self._work.source_schema, self._work.source_name)
        self._planned = _Plan(
            loads,
            table,
            plan_conversion(source, table.columns, self._work.source.explain, table.system, choice=self._work.choice),
        )

    def reusable(self, admissible: Admissible) -> LoadReceipt | None:
        """The load of the previous try, when the target still holds exactly what it inserted."""
        last = self.admission.previous(admissible, self._work.coordinates, self._work.plan_sha256())
        if last is None:
            return None
        receipts = self.world.attempts.originals(last.sha256, EvidenceKind.RECEIPT)
        plan = self._plan()
        found = plan.loads.receipt(last.sha256)
        if not receipts or found is None:
            return None
        receipt = LoadReceipt.parse(receipts[-1])
        if not plan.loads.still_carries(self._name, found, receipt.rows):
            return None
        return receipt.model_copy(update={"reused": True})

    def not_done(self, attempt: str) -> DponeError:
        """The load provably did not happen."""
        return NotPublished(
            "the load provably did not happen and the target is untouched; a new try copies again", attempt=attempt
        )

    def interrupt(self) -> None:
        """Cancel the worker's statement under way."""
        writer = self._writer
        if writer is not None:
            writer.cancel()

    def _plan(self) -> _Plan:
        assert self._planned is not None, "preflight comes first"
        return self._planned

    # --- after admission ---

    def perform(self, admissible: Admissible) -> None:
        """Stage, copy, reconcile, and swap in one transaction."""
        world, steps, attempt = self.world, self.steps, self.attempt
        before = self._plan()
        self.preflight(admissible)  # from here on nobody else can move the guard
        plan = self._plan()
        if plan.table != before.table:
            steps.say("the target was altered meanwhile; planned again")
        staging = staging_name(attempt)
        with steps("staging", f"making staging table {staging}"):
            world.attempts.require_acting(attempt)
            baseline = plan.loads.baseline(attempt, self._name)
            world.attempts.record(attempt, (EvidenceKind.BASELINE, baseline))
            ended = world.attempts.digests_ended_on(admissible.guard.guard_id)
            world.attempts.require_acting(attempt)
            plan.loads.stage(plan.table, staging, [staging_name(sha256) for sha256 in ended])
        gate = world.gate_of(attempt, [admissible.guard])
        with steps("worker", "issuing the worker's login"):
            worker = gate.issue_once(Purpose.WORKER, plan.loads.rights(plan.table, staging))
        self._writer = writer = plan.loads.writer(worker)
        try:
            copied = self._copy(plan, staging, worker, writer)
            with steps("reconcile", "reconciling source and staging table in two independent ways"):
                record = self._seal(admissible, plan, staging, copied, baseline, worker)
                world.attempts.record(
                    attempt, (EvidenceKind.AGGREGATES, copied.aggregates), (EvidenceKind.LOAD, record)
                )
            self._swap(plan, staging, record, worker, writer)
        finally:
            writer.close()
            with steps("closed", "closing the worker's login and proving it quiet", always=True):
                gate.close(worker.name)

    def _copy(self, plan: _Plan, staging: str, worker: IssuedCredential, writer: LoadWriter) -> _Copied:
        work, conversion = self._work, plan.conversion
        with (
            self.steps("copy", f"copying {work.source_schema}.{work.source_name}"),
            work.source.open(work.source_schema, work.source_name, conversion.source) as snapshot,
            aggregating(snapshot, conversion) as aggregates,
        ):
            wire = 0

            def send(body: Iterator[bytes]) -> None:
                nonlocal wire
                with self._dispatch(worker, "copy", f"fill {staging}"):
                    wire = writer.copy(plan.table, staging, body)

            def poll() -> StorageNumbers:
                return plan.loads.storage(self._name, staging)

            def progress(rows: int, sent: int, seconds: float) -> None:
                self.steps.say(f"{rows:,} rows, {sent / 2**20:,.1f} MiB sent in {seconds:.0f} s")

            result = stream_snapshot(
                snapshot.batches(conversion),
                conversion,
                Meter(work.limits, min_rows=work.min_rows, poll=poll),
                send,
                stop=self.stop.is_set,
                progress=progress,
                cancel_read=snapshot.cancel,
                cancel_send=writer.cancel,
            )
            rate = result.content.rows / max(result.seconds, 0.001)
            self.steps.say(f"copied {result.content.rows:,} rows in {result.seconds:.1f} s ({rate:,.0f} rows/s)")
            source = SourceSnapshotRef(
                connector=snapshot.table.connector,
                service_id=f"{snapshot.table.service_id}/{snapshot.table.database_id}",
                relation=f"{work.source_schema}.{work.source_name}",
                snapshot_id=snapshot.snapshot_id,
                taken_at=snapshot.taken_at.isoformat(timespec="microseconds"),
                left_out=plan.conversion.chosen.left_out if plan.conversion.chosen else (),
            )
            return _Copied(result, wire, source, aggregates.result())

    def _seal(
        self,
        admissible: Admissible,
        plan: _Plan,
        staging: str,
        copied: _Copied,
        baseline: TargetBaseline,
        worker: IssuedCredential,
    ) -> LoadRecord:
        """Compare source and staging table in two ways, and bind the load into one record.

        :raises ReconciliationFailed: an aggregate or the content digest differs.
        :raises ValueNotExact: a value would not become the target's type exactly.
        :raises CeilingExceeded: a ceiling is passed at the end.
        """
        loads, limits = plan.loads, self._work.limits
        content = loads.content(plan.table, staging)
        streamed = copied.result.content
        if content != streamed:
            raise ReconciliationFailed(
                f"the staging table holds {content.rows} rows (digest {content.row_sum[:12]}), the stream had "
                f"{streamed.rows} (digest {streamed.row_sum[:12]}); nothing was changed",
                target_rows=content.rows,
                source_rows=streamed.rows,
            )
        aggregates = loads.aggregates(plan.conversion, staging)
        difference = copied.aggregates.difference(aggregates)
        if difference is not None:
            raise ReconciliationFailed(f"source and staging table differ: {difference}; nothing was changed")
        loads.require_exact(plan.table, staging)
        storage = loads.storage(self._name, staging)
        if storage.generation_bytes is None or storage.retained_bytes is None:
            raise CounterUnreadable("the size of the staging table or the target could not be read")
        if copied.wire_bytes > limits.max_wire_bytes:
            raise CeilingExceeded(
                f"max_wire_bytes is {limits.max_wire_bytes}, but {copied.wire_bytes} bytes were sent; nothing was "
                "changed",
                ceiling="max_wire_bytes",
                value=copied.wire_bytes,
            )
        [held] = [e for e in admissible.activation.epochs if e.guard_id == admissible.guard.guard_id]
        return LoadRecord(
            family=admissible.activation.request.family,
            attempt_sha256=self.attempt,
            guard_id=held.guard_id,
            epoch=held.epoch,
            target=plan.table.shown,
            relation_id=plan.table.relation_id,
            staging=staging,
            source=copied.source,
            content=streamed,
            source_aggregates_sha256=copied.aggregates.digest(),
            target_aggregates_sha256=aggregates.digest(),
            limits=limits,
            source_bytes=copied.result.source_bytes,
            wire_bytes=copied.wire_bytes,
            staging_bytes=storage.generation_bytes,
            old_target_bytes=storage.retained_bytes,
            baseline_sha256=baseline.digest(),
            worker=worker.principal,
        )

    def _swap(
        self, plan: _Plan, staging: str, record: LoadRecord, worker: IssuedCredential, writer: LoadWriter
    ) -> None:
        """The one transaction. Its commit is claimed last, after the stop flag was asked; then nothing is cancelled."""
        shown = plan.table.shown
        with self.steps("swap", f"replacing the rows of {shown}"):
            with self._dispatch(worker, "swap", f"replace the rows of {shown} by those of {staging}"):
                writer.swap(plan.table, staging, record)
            with self._dispatch(worker, "commit", f"COMMIT of {record.digest()}"):
                self._writer = None  # nothing interrupts a claimed commit
                writer.commit(record)

    @contextmanager
    def _dispatch(self, worker: IssuedCredential, kind: str, statement: str) -> Iterator[None]:
        """Claim in the ledger before anything is sent, and write down that the answer was read."""
        self.stop.check()
        journal, dispatch_id = self.world.journal(self.attempt), str(uuid.uuid4())
        journal.claim_dispatch(dispatch_id=dispatch_id, name=worker.name, kind=kind, statement=statement)
        try:
            yield
        except ServerRefused as error:
            note = f"refused {error.details.get('server_code')}"
            journal.end_dispatch(dispatch_id=dispatch_id, state=DispatchState.ANSWERED, note=note)
            self.stop.check()  # on_kill ended the session; then the stop is the reason
            raise
        except AnswerLost:
            self.stop.check()
            raise
        journal.end_dispatch(dispatch_id=dispatch_id, state=DispatchState.ANSWERED, note="ok")
