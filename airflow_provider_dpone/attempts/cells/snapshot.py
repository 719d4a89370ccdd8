"""The snapshot cell: one complete source snapshot, copied exactly, published with exactly one EXCHANGE."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from airflow_provider_dpone.attempts.admission import Admissible
from airflow_provider_dpone.attempts.clickhouse import ClickHouseWorld, PublicationOutcomes
from airflow_provider_dpone.attempts.protocol import AttemptProtocol
from airflow_provider_dpone.attempts.reading import aggregating
from airflow_provider_dpone.attempts.settle import SchedulerView, plan_digest
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.contracts.choice import ColumnChoice
from airflow_provider_dpone.contracts.columns import TableAggregates
from airflow_provider_dpone.contracts.identity import TaskCoordinates, generation_name
from airflow_provider_dpone.contracts.limits import LimitsDocument
from airflow_provider_dpone.contracts.ports import IssuedCredential
from airflow_provider_dpone.contracts.publication import (
    GenerationRecord,
    SnapshotTarget,
    SourceSnapshotRef,
    exchange_query_id,
)
from airflow_provider_dpone.contracts.receipts import SnapshotReceipt
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.contracts.states import DispatchState, PublicationState, Purpose
from airflow_provider_dpone.engines.clickhouse.aggregates import read_aggregates
from airflow_provider_dpone.engines.clickhouse.content import read_sealed
from airflow_provider_dpone.engines.clickhouse.executor import ClickHouseExchangeExecutor
from airflow_provider_dpone.engines.clickhouse.observer import SnapshotCatalog
from airflow_provider_dpone.engines.clickhouse.quoting import identifier, table
from airflow_provider_dpone.engines.clickhouse.rights import ingest_rights, publisher_rights
from airflow_provider_dpone.engines.clickhouse.storage import Storage, read_storage
from airflow_provider_dpone.engines.clickhouse.wire import HttpDispatch
from airflow_provider_dpone.enrolment.clickhouse import (
    generation_facts,
    make_generation,
    require_marker,
    require_target,
)
from airflow_provider_dpone.errors import (
    AnswerLost,
    CeilingExceeded,
    DponeError,
    Fenced,
    NotPublished,
    ReconciliationFailed,
    ServerRefused,
    TargetChanged,
)
from airflow_provider_dpone.ledger.activations import Guard
from airflow_provider_dpone.ledger.schema import EvidenceKind
from airflow_provider_dpone.publication.publisher import ClickHouseAtomicSnapshotPublisher
from airflow_provider_dpone.transfer.convert import Conversion, plan_conversion
from airflow_provider_dpone.transfer.meter import Meter, StorageNumbers
from airflow_provider_dpone.transfer.source import Snapshot, Source
from airflow_provider_dpone.transfer.stream import StreamResult, stream_snapshot

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SnapshotWork:
    """One snapshot as the operator rendered it."""

    declaration: WorkloadDeclaration
    environment: str
    coordinates: TaskCoordinates
    limits: LimitsDocument
    min_rows: int
    source: Source
    source_schema: str
    source_name: str
    choice: ColumnChoice | None = None

    def plan_sha256(self) -> str:
        """Digest of everything the author's rendered values decide."""
        return plan_digest(
            self.declaration.digest(),
            self.source_schema,
            self.source_name,
            self.limits.digest(),
            str(self.min_rows),
        )


@dataclass(frozen=True)
class _Copied:
    """B as it was filled: what the stream saw, and the two aggregates."""

    result: StreamResult
    wire_bytes: int
    source: SourceSnapshotRef
    source_aggregates: TableAggregates
    ingest: IssuedCredential
    closed_ingest_sha256: str


class SnapshotCell(AttemptProtocol[ClickHouseWorld, SnapshotReceipt]):
    """Runs one snapshot attempt."""

    receipt_type = SnapshotReceipt

    def __init__(self, world: ClickHouseWorld, work: SnapshotWork, stop: StopFlag, finished: SchedulerView) -> None:
        super().__init__(world, work, stop, finished)
        self._work: SnapshotWork = work
        self._conversion: Conversion | None = None
        self._planned_for = ""
        self._sending: HttpDispatch | None = None

    def preflight(self, admissible: Admissible) -> None:
        """The target is as enrolled, and every source column has an exact mapping."""
        require_target(self.world.target.control, admissible.guard)
        self._plan(admissible.guard)

    def reusable(self, admissible: Admissible) -> SnapshotReceipt | None:
        """The publication of the previous try, when the target still carries what it published."""
        last = self.admission.previous(admissible, self._work.coordinates, self._work.plan_sha256())
        publication = None if last is None else self.world.publications.of_attempt(last.sha256)
        if (
            publication is None
            or publication.record.state is not PublicationState.PUBLISHED
            or publication.intent.generation_uuid != admissible.guard.target_uuid
        ):
            return None
        return PublicationOutcomes(self.world).receipt(publication, {}, reused=True)

    def not_done(self, attempt: str) -> DponeError:
        """The swap provably did not happen."""
        publication = self.world.publications.of_attempt(attempt)
        why = f" ({publication.record.reason})" if publication is not None else ""
        return NotPublished(
            f"the swap provably did not happen{why} and the target is untouched; a new try copies again",
            attempt=attempt,
        )

    def interrupt(self) -> None:
        """Cut the INSERT under way."""
        sending = self._sending
        if sending is not None:
            sending.cancel()

    def _plan(self, guard: Guard) -> Conversion:
        """The exact conversion into the design as enrolled; made again only when the enrolment changed."""
        if self._conversion is None or self._planned_for != guard.enrolment_sha256:
            source = self._work.source.describe(self._work.source_schema, self._work.source_name)
            self._conversion = plan_conversion(
                source, guard.table.design.columns, self._work.source.explain, choice=self._work.choice
            )
            self._planned_for = guard.enrolment_sha256
        return self._conversion

    def perform(self, admissible: Admissible) -> None:
        """Build B, copy into it, reconcile, and publish it."""
        world, steps, guard, attempt = self.world, self.steps, admissible.guard, self.attempt
        conversion = self._plan(guard)
        generation = generation_name(attempt)
        with steps("generation", f"building generation {admissible.database}.{generation}"):
            retained = world.retained(guard.guard_id, guard.table, but=generation)
            world.attempts.require_acting(attempt)
            make_generation(world.target.control, guard, generation)
        copied = self._copy(admissible, conversion, generation, retained)
        with steps("reconcile", "reconciling source and generation in two independent ways"):
            record = self._seal(admissible, conversion, generation, retained, copied)
            generation_sha256 = world.attempts.record(
                attempt, (EvidenceKind.AGGREGATES, copied.source_aggregates), (EvidenceKind.GENERATION, record)
            )[-1]
        gate = world.gate_of(attempt)
        with steps("publisher", "issuing the publisher"):
            rights = publisher_rights(admissible.database, admissible.table, generation)
            credential = gate.issue_once(Purpose.PUBLISHER, rights)
        publisher = ClickHouseAtomicSnapshotPublisher(
            authority=world.authority,
            store=world.publications,
            catalog=SnapshotCatalog(
                world.target.control,
                guard.table,
                retained=retained,
                budget_since=gate.start_at_issue(credential.name),
                require_owned=lambda control: require_marker(control, guard.table),
            ),
            executor=ClickHouseExchangeExecutor(world.target.http, credential, world.target.policy.answer_within),
        )
        identity = admissible.identity(self._work.coordinates, self._work.plan_sha256())
        with steps("publish", f"publishing {admissible.database}.{admissible.table}"):
            prepared = publisher.prepare(identity, generation_sha256)
            gate.note_dispatch(credential.name, exchange_query_id(prepared.intent_sha256))
            publisher.publish(prepared.intent_sha256)

    def _copy(self, admissible: Admissible, conversion: Conversion, generation: str, retained: list[str]) -> _Copied:
        world, steps, work = self.world, self.steps, self._work
        attempt = self.attempt
        gate = world.gate_of(attempt, [admissible.guard])
        with steps("ingest user", "issuing the ingest user"):
            ingest = gate.issue_once(Purpose.INGEST, ingest_rights(admissible.database, generation))
        try:
            with (
                steps("copy", f"copying {work.source_schema}.{work.source_name}"),
                work.source.open(work.source_schema, work.source_name, conversion.source) as snapshot,
                aggregating(snapshot, conversion) as aggregates,
            ):
                result, wire_bytes = self._stream(admissible, conversion, generation, retained, snapshot, ingest)
                aggregates.result()
                source = SourceSnapshotRef(
                    connector=snapshot.table.connector,
                    service_id=f"{snapshot.table.service_id}/{snapshot.table.database_id}",
                    relation=f"{work.source_schema}.{work.source_name}",
                    snapshot_id=snapshot.snapshot_id,
                    taken_at=snapshot.taken_at.isoformat(timespec="microseconds"),
                    left_out=conversion.chosen.left_out if conversion.chosen else (),
                )
        finally:
            with steps("ingest closed", "closing the ingest user and proving it quiet", always=True):
                evidence = gate.close(ingest.name)
        if evidence is None:
            raise Fenced("somebody else closed the ingest user of this attempt")
        return _Copied(result, wire_bytes, source, aggregates.result(), ingest, evidence[0].digest())

    def _stream(
        self,
        admissible: Admissible,
        conversion: Conversion,
        generation: str,
        retained: list[str],
        snapshot: Snapshot,
        ingest: IssuedCredential,
    ) -> tuple[StreamResult, int]:
        """Read, convert, digest and send; the result and the bytes handed to the socket."""
        world, attempt = self.world, self.attempt
        gate, journal = world.gate_of(attempt), world.journal(attempt)
        columns = ", ".join(identifier(name) for name in conversion.names)
        statement = f"INSERT INTO {table(admissible.database, generation)} ({columns}) FORMAT RowBinary"
        wire = 0

        def send(body: Iterator[bytes]) -> None:
            nonlocal wire
            self.stop.check()
            query_id = str(uuid.uuid4())
            gate.note_dispatch(ingest.name, query_id)
            journal.claim_dispatch(dispatch_id=query_id, name=ingest.name, kind="insert", statement=statement)
            self._sending = world.target.http.dispatch(statement, ingest, query_id=query_id)
            try:
                self._sending.send(body)
            except ServerRefused as error:
                note = f"refused {error.details.get('server_code')}"
                journal.end_dispatch(dispatch_id=query_id, state=DispatchState.ANSWERED, note=note)
                raise
            except AnswerLost:
                self.stop.check()  # on_kill cuts the request; then the stop is the reason
                raise
            wire = self._sending.wire_bytes
            journal.end_dispatch(dispatch_id=query_id, state=DispatchState.ANSWERED, note="ok")

        def poll() -> StorageNumbers:
            seen = self._storage(admissible, generation, retained)
            return StorageNumbers(seen.generation, seen.old_target + seen.retained)

        def cancel_send() -> None:
            if self._sending is not None:
                self._sending.cancel()

        def progress(rows: int, sent: int, seconds: float) -> None:
            self.steps.say(f"{rows:,} rows, {sent / 2**20:,.1f} MiB sent in {seconds:.0f} s")

        result = stream_snapshot(
            snapshot.batches(conversion),
            conversion,
            Meter(self._work.limits, min_rows=self._work.min_rows, poll=poll),
            send,
            stop=self.stop.is_set,
            progress=progress,
            cancel_read=snapshot.cancel,
            cancel_send=cancel_send,
        )
        rate = result.content.rows / max(result.seconds, 0.001)
        self.steps.say(f"copied {result.content.rows:,} rows in {result.seconds:.1f} s ({rate:,.0f} rows/s)")
        return result, wire

    def _storage(self, admissible: Admissible, generation: str, retained: list[str]) -> Storage:
        with self.world.target.control.fresh() as control:
            return read_storage(control, admissible.database, admissible.table, generation, retained)

    def _seal(
        self, admissible: Admissible, conversion: Conversion, generation: str, retained: list[str], copied: _Copied
    ) -> GenerationRecord:
        """Compare source and generation in two ways, and bind what B is into one record.

        The parts that are sealed are those whose content was digested, by the one statement that digested them. What
        is changed or added after it makes other parts, whose content is read again before and after the EXCHANGE.

        :raises ReconciliationFailed: an aggregate or the content digest differs, or B holds more or fewer rows by now.
        :raises TargetChanged: B is another table than at the beginning.
        :raises CeilingExceeded: a storage ceiling is passed at the end.
        """
        world, work, guard = self.world, self._work, admissible.guard
        with world.target.control.fresh() as control:
            before = generation_facts(control, guard, generation)
            content, parts_sha256 = read_sealed(control, admissible.database, generation, conversion.names)
            aggregates = read_aggregates(control, admissible.database, generation, conversion)
            storage = read_storage(control, admissible.database, admissible.table, generation, retained)
        with world.target.control.fresh() as control:
            facts = generation_facts(control, guard, generation)
        if facts.uuid != before.uuid:
            raise TargetChanged(
                f"{admissible.database}.{generation} became another table ({facts.uuid}, was {before.uuid}) while it "
                "was read; nothing was published"
            )
        if content != copied.result.content:
            raise ReconciliationFailed(
                f"the generation holds {content.rows} rows (digest {content.row_sum[:12]}), the stream had "
                f"{copied.result.content.rows} (digest {copied.result.content.row_sum[:12]}); nothing was published",
                target_rows=content.rows,
                source_rows=copied.result.content.rows,
            )
        if facts.rows != content.rows:
            raise ReconciliationFailed(
                f"the generation holds {facts.rows} rows now, {content.rows} when it was digested; somebody writes it. "
                "Nothing was published",
                target_rows=facts.rows,
                source_rows=content.rows,
            )
        if copied.wire_bytes > work.limits.max_wire_bytes:
            raise CeilingExceeded(
                f"max_wire_bytes is {work.limits.max_wire_bytes}, but {copied.wire_bytes} bytes went over the wire, "
                "headers and framing included; nothing was published",
                ceiling="max_wire_bytes",
                value=copied.wire_bytes,
            )
        difference = copied.source_aggregates.difference(aggregates)
        if difference is not None:
            raise ReconciliationFailed(f"source and generation differ: {difference}; nothing was published")
        storage.require_within(work.limits)
        attempt = self.attempt
        return GenerationRecord(
            family=admissible.activation.request.family,
            attempt_sha256=attempt,
            target=SnapshotTarget(
                service_id=guard.table.marker.service_id,
                database_id=guard.table.marker.database_id,
                database=admissible.database,
                target_table=admissible.table,
                generation_table=generation,
                guard_id=guard.guard_id,
                enrolment_sha256=guard.enrolment_sha256,
            ),
            source=copied.source,
            old_target_uuid=guard.carried,
            generation_uuid=facts.uuid,
            design_sha256=guard.table.design.digest(),
            content=content,
            parts_sha256=parts_sha256,
            source_aggregates_sha256=copied.source_aggregates.digest(),
            target_aggregates_sha256=aggregates.digest(),
            limits=work.limits,
            source_bytes=copied.result.source_bytes,
            wire_bytes=copied.wire_bytes,
            generation_bytes=storage.generation,
            old_target_bytes=storage.old_target,
            retained_bytes=storage.retained,
            ingest=copied.ingest.principal,
            closed_ingest_sha256=copied.closed_ingest_sha256,
        )
