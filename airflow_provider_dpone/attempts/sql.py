"""A SQL target as attempts see it: its gate, what is left on it, and how a load or a dbt run on it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from airflow_provider_dpone.attempts.dbt_outcomes import DbtOutcomes
from airflow_provider_dpone.attempts.world import Observed, Outcomes, World
from airflow_provider_dpone.contracts.canonical import Document
from airflow_provider_dpone.contracts.columns import TableAggregates
from airflow_provider_dpone.contracts.enrolment import ColumnDesign, SchemaEnrolment
from airflow_provider_dpone.contracts.identity import staging_name
from airflow_provider_dpone.contracts.loads import LoadRecord, TargetBaseline, TargetReceipt
from airflow_provider_dpone.contracts.ports import (
    Gate,
    GateKey,
    IssuedCredential,
    ManagedSchema,
    PrincipalJournal,
)
from airflow_provider_dpone.contracts.publication import Content
from airflow_provider_dpone.contracts.receipts import LoadReceipt
from airflow_provider_dpone.contracts.states import AttemptState, Purpose
from airflow_provider_dpone.errors import GateRefused, NotEnrolled, OutcomePending, PublicationUnknown
from airflow_provider_dpone.ledger.activations import Guard
from airflow_provider_dpone.ledger.attempts import StoredAttempt
from airflow_provider_dpone.ledger.schema import EvidenceKind
from airflow_provider_dpone.ledger.transaction import Ledger
from airflow_provider_dpone.transfer.convert import Conversion, TypeSystem
from airflow_provider_dpone.transfer.meter import StorageNumbers


class WorkerGate(Gate, Protocol):
    """Issues the one login of an attempt."""

    def issue_once(self, purpose: Purpose, rights: Any) -> IssuedCredential:
        """:raises GateRefused: refused, or shown otherwise than meant; closed again."""
        ...


class Table(Protocol):
    """A target table as its catalog shows it; comparable by value."""

    @property
    def shown(self) -> str: ...

    @property
    def relation_id(self) -> str: ...

    @property
    def columns(self) -> tuple[ColumnDesign, ...]: ...

    @property
    def system(self) -> TypeSystem: ...


class LoadWriter(Protocol):
    """The worker's side of a load; see ``engines/postgres/load_writer.py``."""

    def copy(self, table: Any, staging: str, body: Iterator[bytes]) -> int: ...

    def swap(self, table: Any, staging: str, record: LoadRecord) -> None: ...

    def commit(self, record: LoadRecord) -> None: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class Loads(Protocol):
    """The controller's side of loads into one managed schema; see ``engines/postgres/load_target.py``."""

    def look(self, name: str, *, readers_wait: bool) -> Table: ...

    def baseline(self, attempt_sha256: str, name: str) -> TargetBaseline: ...

    def stage(self, table: Any, staging: str, ended: Sequence[str]) -> None: ...

    def unstage(self, staging: str) -> None: ...

    def rights(self, table: Any, staging: str) -> Any: ...

    def writer(self, credential: IssuedCredential) -> LoadWriter: ...

    def content(self, table: Any, staging: str) -> Content: ...

    def aggregates(self, conversion: Conversion, staging: str) -> TableAggregates: ...

    def require_exact(self, table: Any, staging: str) -> None: ...

    def storage(self, name: str, staging: str) -> StorageNumbers: ...

    def receipt(self, attempt_sha256: str) -> TargetReceipt | None: ...

    def still_carries(self, name: str, receipt: TargetReceipt, rows: int) -> bool: ...


class SqlTarget(Protocol):
    """One SQL server behind a controller's connection; an engine implements it."""

    control: Any

    def service_id(self) -> str: ...

    def gate(
        self, enrolment: SchemaEnrolment, key: GateKey, journal: PrincipalJournal, checkpoint: Callable[[], None]
    ) -> WorkerGate: ...

    def leftover_names(self) -> list[str]: ...

    def loads(self, enrolment: SchemaEnrolment, schema: str) -> Loads: ...

    def schema(self, enrolment: SchemaEnrolment, schema: str) -> ManagedSchema: ...

    def is_stand_in(self) -> bool: ...

    def close(self) -> None: ...


class SqlWorld(World[WorkerGate]):
    """The ledger and one SQL target."""

    def __init__(
        self, ledger: Ledger, target: SqlTarget, service_id: str, checkpoint: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(ledger, service_id, checkpoint)
        self.target = target

    @property
    def control(self) -> Any:
        """Sessions of the controller on the target database."""
        return self.target.control

    def make_gate(self, attempt_sha256: str, held: Sequence[Guard]) -> WorkerGate:
        """The gate of an attempt: its login is kept under the one guard it holds."""
        epochs = self.attempts.read_exact(attempt_sha256).identity.guard_epochs
        if len(held) != 1 or len(epochs) != 1:
            raise GateRefused("an attempt on a SQL target holds exactly one guard")
        key = GateKey(held[0].guard_id, epochs[0].epoch, attempt_sha256)
        return self.target.gate(held[0].schema, key, self.journal(attempt_sha256), self.checkpoint)

    def outcomes(self, stored: StoredAttempt) -> Outcomes:
        """Who observes how the attempt ended: its cell decides."""
        return _OUTCOMES[stored.identity.cell](self)

    def schema_of(self, attempt_sha256: str, schema: str) -> ManagedSchema:
        """A managed schema of the guard an attempt holds."""
        [guard] = self._held(attempt_sha256)
        return self.target.schema(guard.schema, schema)

    def usable_names(self) -> list[str]:
        """Issued logins that exist although their gates are CLOSED."""
        return self.target.leftover_names()

    def is_stand_in(self) -> bool:
        """Whether the target is a local development server."""
        return self.target.is_stand_in()

    def close(self) -> None:
        """Close what the target holds open."""
        self.target.close()


class LoadOutcomes:
    """Observes how a load ended: its receipt in the target decides, and without one the target as it was before."""

    def __init__(self, world: SqlWorld) -> None:
        self._world = world

    def observe(self, stored: StoredAttempt, milliseconds: dict[str, int], done: Document | None) -> Observed:
        """Look for the receipt row; compare a target without one with its baseline. Removes the staging table."""
        originals = self._world.attempts.originals
        baselines = originals(stored.sha256, EvidenceKind.BASELINE)
        if not baselines:
            if self._world.journal(stored.sha256).principals():
                raise OutcomePending(
                    f"attempt {stored.sha256} was given a login and has no baseline; the ledger is not complete",
                    attempt=stored.sha256,
                )
            return Observed(AttemptState.FAILED)
        guard = self._world.activations.guard(stored.identity.guard_epochs[0].guard_id)
        if guard is None:
            raise NotEnrolled("the guard of this load is not enrolled any more")
        before = TargetBaseline.parse(baselines[-1])
        schema = before.relation.removesuffix(f".{before.table}")
        loads = self._world.target.loads(guard.schema, schema)
        found = loads.receipt(stored.sha256)
        seen = self._unchanged(loads, before) if found is None else self._committed(stored, found, milliseconds)
        loads.unstage(staging_name(stored.sha256))
        return seen

    def last_record(self, stored: StoredAttempt) -> str | None:
        """A load has no publication."""
        return None

    @staticmethod
    def _unchanged(loads: Loads, before: TargetBaseline) -> Observed:
        now = loads.baseline(before.attempt_sha256, before.table)
        if now == before:
            return Observed(AttemptState.FAILED)
        return Observed(
            AttemptState.COMMIT_UNKNOWN,
            code=PublicationUnknown.code,
            reason=f"{before.relation} carries no receipt of this load, and yet is not as it was before it: "
            f"{now.rows} rows now, {before.rows} then",
        )

    def _committed(self, stored: StoredAttempt, found: TargetReceipt, milliseconds: dict[str, int]) -> Observed:
        records = self._world.attempts.originals(stored.sha256, EvidenceKind.LOAD)
        record = LoadRecord.parse(records[-1]) if records else None
        if record is None or record.digest() != found.record_sha256 or record.worker.name != found.principal:
            return Observed(
                AttemptState.COMMIT_UNKNOWN,
                code=PublicationUnknown.code,
                reason=f"the receipt of this load in {found.relation} is not the one the ledger recorded",
            )
        return Observed(
            AttemptState.SUCCEEDED,
            receipt=LoadReceipt(
                family=record.family,
                stand_in=self._world.is_stand_in(),
                state="LOADED",
                reused=False,
                workload_id=stored.identity.workload_id,
                attempt_sha256=stored.sha256,
                load_sha256=record.digest(),
                transaction=found.transaction,
                target=record.target,
                source=f"{record.source.connector}:{record.source.relation}",
                snapshot_taken_at=record.source.taken_at,
                rows=record.content.rows,
                row_sum=record.content.row_sum,
                source_bytes=record.source_bytes,
                wire_bytes=record.wire_bytes,
                staging_bytes=record.staging_bytes,
                milliseconds=milliseconds,
                left_out=record.source.left_out,
            ),
        )


#: Who observes the outcome of which cell.
_OUTCOMES: Final[dict[str, Callable[[SqlWorld], Outcomes]]] = {
    "postgres_mssql_full_refresh": LoadOutcomes,
    "dbt_native": DbtOutcomes,
}
