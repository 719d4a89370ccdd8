"""The ports the publisher and the attempt protocol are written against.

Adapters live in ``engines``, ``ledger`` and ``publication``. An in-memory or file-only store does not meet these
ports: a store must persist complete canonical originals in the control database and read every commit back on
another connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from airflow_provider_dpone.contracts.canonical import Document
from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity
from airflow_provider_dpone.contracts.proofs import GateClosure, Quiescence
from airflow_provider_dpone.contracts.publication import (
    CatalogObservation,
    GenerationRecord,
    IssuedPrincipal,
    PublicationRecord,
    PublisherClosure,
    SnapshotIntent,
    SnapshotTarget,
)
from airflow_provider_dpone.contracts.states import Connector, DispatchState, GateState, Purpose


@dataclass(frozen=True)
class IssuedCredential:
    """A one-time credential. The password lives in this object's memory only and never in its repr."""

    name: str
    principal_uuid: str
    password: str = field(repr=False)

    @property
    def principal(self) -> IssuedPrincipal:
        return IssuedPrincipal(name=self.name, uuid=self.principal_uuid)


@dataclass(frozen=True)
class JournaledPrincipal:
    """A principal as the ledger's journal has it."""

    connector: Connector
    service_id: str
    name: str
    purpose: Purpose
    attempt_sha256: str
    state: GateState
    principal_uuid: str | None
    """Known from READY on; null while JOURNALED."""
    dispatch_ids: tuple[str, ...]
    """Query ids ever claimed under it."""
    closure_sha256: str | None = None
    """Evidence of the closed gate; set once CLOSED."""
    quiescence_sha256: str | None = None
    """Evidence of quiescence; set once CLOSED."""


class ClickHouseControl(Protocol):
    """The control plane of one ClickHouse server: short statements as the controller."""

    def query(self, sql: str, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a reading statement and return all rows.

        :param params: values of the statement's ``{name:Type}`` parameters (Identifier, String, UInt64, Array(String)).
        """
        ...

    def command(self, sql: str) -> None:
        """Run one statement that returns no rows, exactly once.

        :raises ServerRefused: the server answered with an error code (nothing else was sent).
        :raises AnswerLost: the statement was sent and no answer was read; its effect is unknown.
        """
        ...

    def fresh(self) -> ClickHouseControl:
        """Another control session on a new connection; the caller closes it."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class PrincipalJournal(Protocol):
    """The journal of principals and dispatches of one attempt; every call is one committed, read-back write."""

    def journal(self, *, connector: Connector, service_id: str, name: str, purpose: Purpose) -> None:
        """Commit the name before it exists on the server. Refused when the attempt is fenced or not RUNNING."""
        ...

    def ready(self, *, name: str, principal_uuid: str, within: Callable[[Any], None] | None = None) -> None:
        """JOURNALED -> READY.

        :param within: creates the principal: called with the ledger's connection inside the same transaction.
        """
        ...

    def closing(self, *, name: str) -> JournaledPrincipal:
        """Idempotent for CLOSING and CLOSED; always allowed, also for a fenced attempt. Returns the principal as it is
        then: nothing more can be claimed under it."""
        ...

    def closed(self, *, name: str, evidence: Sequence[Document]) -> bool:
        """CLOSING -> CLOSED with its closure and quiescence originals; settles dispatches still claimed.

        :returns: False when somebody else had closed it: then that evidence stands.
        """
        ...

    def principals(self) -> list[JournaledPrincipal]: ...

    def claim_dispatch(self, *, dispatch_id: str, name: str, kind: str, statement: str) -> None:
        """Commit the claim of one statement before a byte of it is sent."""
        ...

    def end_dispatch(self, *, dispatch_id: str, state: DispatchState, note: str) -> None: ...


@dataclass(frozen=True)
class GateKey:
    """Under what the gate of a one-time login is kept in its target database."""

    guard_id: str
    epoch: int
    attempt_sha256: str


class Gate(Protocol):
    """Closes the principals of one attempt; how they are issued differs by server."""

    def close(self, name: str) -> tuple[GateClosure, Quiescence] | None:
        """Close a principal for good, on the server and in the ledger; resumes wherever an earlier closing stopped.

        :returns: the evidence as it was recorded; None when the ledger has somebody else's already.
        :raises GateNotClosed: closing could not be proved; the gate stays CLOSING.
        """
        ...

    def close_known(self, wait: float | None = None) -> None:
        """Close every principal this process issued, on the server alone; the ledger is written by whoever settles."""
        ...

    def remove_leftover(self, name: str) -> object | None:
        """Remove a principal that came back although its gate is CLOSED; None when there is none that can log in."""
        ...


@dataclass(frozen=True)
class OpenedGeneration:
    """A generation whose complete evidence was reopened and found true now."""

    attempt: CompositionAttemptIdentity
    record: GenerationRecord
    publisher: IssuedPrincipal


class SnapshotPublicationAuthority(Protocol):
    """Reopens evidence and ownership, and closes exact issued publishers."""

    def open_generation(self, attempt: CompositionAttemptIdentity, generation_ref: str) -> OpenedGeneration:
        """Reopen the original generation record, enrolment, activation, attempt, epochs and closed ingest user.

        :raises Refused: anything is missing, altered, fenced or no longer owned.
        """
        ...

    def require_current(self, intent: SnapshotIntent) -> None:
        """The attempt is RUNNING, not fenced, holds the exact epochs, and its activation is ACTIVE or RETIRING."""
        ...

    def require_retained(self, intent: SnapshotIntent) -> None:
        """Ownership is still held (the guards are open), fenced or not, under ACTIVE or RETIRING."""
        ...

    def close_publisher(self, intent: SnapshotIntent) -> PublisherClosure:
        """Close the existing publisher and prove it quiet. Never issues."""
        ...


class SnapshotPublicationStore(Protocol):
    """Complete canonical originals and their history in the control database."""

    def persist_prepared(self, intent: SnapshotIntent) -> PublicationRecord: ...

    def read(self, intent_sha256: str) -> tuple[SnapshotIntent, PublicationRecord]: ...

    def claim(self, intent: SnapshotIntent, before: PublicationRecord) -> PublicationRecord:
        """PREPARED -> EXCHANGE_INTENT once, with the dispatch claim, in one transaction, read back.

        :raises AlreadyClaimed: another caller won; the publisher must be left alone.
        :raises ClaimUncertain: the commit or its read-back is in doubt; nothing may be sent.
        """
        ...

    def resolve(
        self, intent: SnapshotIntent, before: PublicationRecord, after: PublicationRecord
    ) -> PublicationRecord: ...


class ClickHouseSnapshotCatalog(Protocol):
    """Fresh, complete observations of both names."""

    def observe(self, intent: SnapshotIntent) -> CatalogObservation:
        """A sandwich observation that is equal before and after; raises when the view is not provably complete."""
        ...

    def require_ready(self, intent: SnapshotIntent) -> None:
        """Before dispatch: exactly A and B under the two names, nothing new attached, counters within limits."""
        ...


class ClickHouseSnapshotExecutor(Protocol):
    """Dispatches the one EXCHANGE under the issued publisher."""

    def exchange(self, intent: SnapshotIntent) -> str:
        """Send exactly one EXCHANGE with the intent's query id and return a note on the answer.

        Neither the return nor an exception says what happened to the tables: only an observation does.
        """
        ...


class ManagedSchema(Protocol):
    """One managed schema, as the controller sees and may tidy it; each call is a fresh look."""

    def look(self) -> None:
        """The schema is as enrolled, confined, and nobody else can write it.

        :raises Refused: it is not.
        """
        ...

    def rights(self, reads: Sequence[tuple[str, str]], sessions: int) -> Any:
        """What a login needs to make, change and drop relations here, and to read these (schema, name) elsewhere.

        :param sessions: how many sessions it may have at once.
        """
        ...

    def relations(self) -> dict[str, str]:
        """Name and kind (``table``, ``view``, ``materialized_view`` or what the server calls it) of every relation."""
        ...

    def rows(self, names: Sequence[str]) -> dict[str, int]:
        """Rows of each of these relations, counted."""
        ...

    def outside_dependents(self) -> list[str]:
        """What outside the schema depends on a relation in it and would be dropped with it, described."""
        ...

    def rename(self, kind: str, name: str, new_name: str) -> None:
        """Rename a relation within the schema; refused when the new name is taken."""
        ...

    def drop(self, kind: str, name: str) -> bool:
        """Drop a relation on which nothing depends; False when something does: then it is left alone."""
        ...


class BatchSink(Protocol):
    """Where a stream of encoded bytes goes."""

    def send(self, body: Iterator[bytes]) -> int:
        """Send one request body to its end and return the bytes written on the wire."""
        ...


__all__ = [
    "BatchSink",
    "ClickHouseControl",
    "ClickHouseSnapshotCatalog",
    "ClickHouseSnapshotExecutor",
    "Gate",
    "GateKey",
    "IssuedCredential",
    "JournaledPrincipal",
    "ManagedSchema",
    "OpenedGeneration",
    "PrincipalJournal",
    "SnapshotPublicationAuthority",
    "SnapshotPublicationStore",
    "SnapshotTarget",
]
