"""A ClickHouse target as attempts see it: its gate, what is left on it, and how a publication on it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_provider_dpone.attempts.world import Observed, World, utc_now
from airflow_provider_dpone.contracts.canonical import Document
from airflow_provider_dpone.contracts.enrolment import TargetEnrolment
from airflow_provider_dpone.contracts.identity import generation_name, retired_prefix
from airflow_provider_dpone.contracts.publication import SnapshotIntent
from airflow_provider_dpone.contracts.receipts import SnapshotReceipt
from airflow_provider_dpone.contracts.states import TERMINAL_PUBLICATIONS, AttemptState, PublicationState
from airflow_provider_dpone.engines.clickhouse.control import NativeControl, require_same_server
from airflow_provider_dpone.engines.clickhouse.gate import ClickHouseGate, usable_names
from airflow_provider_dpone.engines.clickhouse.observer import SnapshotCatalog
from airflow_provider_dpone.engines.clickhouse.rights import GatePolicy
from airflow_provider_dpone.engines.clickhouse.wire import ClickHouseHttp, Login
from airflow_provider_dpone.errors import GateRefused, NotEnrolled, OutcomePending, PublicationUnknown
from airflow_provider_dpone.ledger.activations import Guard
from airflow_provider_dpone.ledger.attempts import StoredAttempt
from airflow_provider_dpone.ledger.publications import StoredPublication
from airflow_provider_dpone.ledger.transaction import Ledger
from airflow_provider_dpone.publication.authority import LedgerPublicationAuthority
from airflow_provider_dpone.publication.publisher import ClickHouseAtomicSnapshotPublisher


@dataclass(frozen=True)
class ClickHouseTarget:
    """Both ends of one ClickHouse server and how one-time users are issued on it."""

    control: NativeControl
    http: ClickHouseHttp
    login: Login
    policy: GatePolicy

    def service_id(self) -> str:
        """``serverUUID()``, after proving that both ends have the same."""
        return require_same_server(self.control, self.http, self.login, query_id=f"dpone-same-server-{utc_now()}")


class ClickHouseWorld(World[ClickHouseGate]):
    """The ledger and one ClickHouse server."""

    def __init__(
        self,
        ledger: Ledger,
        target: ClickHouseTarget,
        service_id: str,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(ledger, service_id, checkpoint)
        self.target = target
        self.authority = LedgerPublicationAuthority(self.stores, self.gate_of)

    def make_gate(self, attempt_sha256: str, held: Sequence[Guard]) -> ClickHouseGate:
        """The gate of an attempt: its users can touch the target and the generation."""
        return ClickHouseGate(
            self.target.control,
            self.service_id,
            self.journal(attempt_sha256),
            self.target.policy,
            tables=[
                (guard.table.marker.database, name)
                for guard in held
                for name in (guard.table.target_table, generation_name(attempt_sha256))
            ],
            checkpoint=self.checkpoint,
        )

    def outcomes(self, stored: StoredAttempt) -> PublicationOutcomes:
        """Publications are observed on the tables they exchange."""
        return PublicationOutcomes(self)

    def usable_names(self) -> list[str]:
        """Issued users on the server that could log in; tombstones cannot."""
        return usable_names(self.target.control)

    def is_stand_in(self) -> bool:
        """Whether the target is the local development server; it says so in its display name."""
        with self.target.control.fresh() as control:
            return "dpone-local" in control.display_name()

    def close(self) -> None:
        """Close the control session."""
        self.target.control.close()

    def retained(self, guard_id: str, enrolment: TargetEnrolment, *, but: str = "") -> list[str]:
        """Names of generations of a guard that still exist on the server: published predecessors and leftovers."""
        with self.together() as ledger:
            names = ledger.publications.generations(guard_id)
            ended = ledger.attempts.digests_ended_on(guard_id)
        names |= {generation_name(sha256) for sha256 in ended}
        names.discard(but)
        retired = [retired_prefix(sha256) for sha256 in ended]
        rows = self.target.control.query(
            "SELECT name FROM system.tables WHERE database = {database:String} AND (name IN {names:Array(String)} "
            "OR substring(name, 1, 24) IN {retired:Array(String)})",
            {"database": enrolment.marker.database, "names": sorted(names) or [""], "retired": retired or [""]},
        )
        return sorted(str(name) for (name,) in rows)


class NoExecutor:
    """An executor for callers that may only look: it refuses to send anything."""

    def exchange(self, intent: SnapshotIntent) -> str:
        raise GateRefused("this process holds no credential of the publisher; it can only observe")


class PublicationOutcomes:
    """Observes how an attempt's publication ended; an attempt without one did what it says, or nothing."""

    def __init__(self, world: ClickHouseWorld) -> None:
        self._world = world

    def observe(self, stored: StoredAttempt, milliseconds: dict[str, int], done: Document | None) -> Observed:
        """Reconcile the publication, unless it is terminal, and say how it ended.

        :raises OutcomePending: closing or observing failed now.
        """
        world = self._world
        publication = world.publications.of_attempt(stored.sha256)
        if publication is None:
            return Observed(AttemptState.SUCCEEDED, done) if done else Observed(AttemptState.FAILED)
        code = reason = None
        if publication.record.state not in TERMINAL_PUBLICATIONS:
            try:
                self._publisher(publication).reconcile(publication.intent.digest())
            except PublicationUnknown as contradicted:  # never claimed, yet A and B are not there: a person must look
                code, reason = contradicted.code, contradicted.message
            publication = world.publications.of_attempt(stored.sha256) or publication
            if _unproved(publication):
                raise OutcomePending(
                    f"the outcome of attempt {stored.sha256} cannot be observed now ({publication.record.reason}); "
                    "its guards stay held, and the next try or the reaper looks again",
                    attempt=stored.sha256,
                )
        published = publication.record.state is PublicationState.PUBLISHED
        if publication.record.state is PublicationState.COMMIT_UNKNOWN:
            code, reason = PublicationUnknown.code, publication.record.reason
        elif not published and publication.record.reason is not None:
            reason = reason or f"the swap provably did not happen ({publication.record.reason})"
        return Observed(
            _STATES.get(publication.record.state, AttemptState.COMMIT_UNKNOWN),
            receipt=self.receipt(publication, milliseconds) if published else None,
            publication_sha256=publication.record.digest(),
            code=code,
            reason=reason,
        )

    def last_record(self, stored: StoredAttempt) -> str | None:
        """Digest of the last record of the attempt's publication."""
        publication = self._world.publications.of_attempt(stored.sha256)
        return None if publication is None else publication.record.digest()

    def receipt(
        self, publication: StoredPublication, milliseconds: dict[str, int], *, reused: bool = False
    ) -> SnapshotReceipt:
        """The receipt of a PUBLISHED publication, rebuilt from the ledger's originals."""
        world, intent = self._world, publication.intent
        with world.together() as ledger:
            generation = ledger.publications.generation(intent.generation_sha256)
            workload_id = ledger.attempts.read_exact(intent.attempt_sha256).identity.workload_id
        return SnapshotReceipt(
            family=intent.family,
            stand_in=world.is_stand_in(),
            state="PUBLISHED",
            reused=reused,
            workload_id=workload_id,
            attempt_sha256=intent.attempt_sha256,
            intent_sha256=intent.digest(),
            publication_sha256=publication.record.digest(),
            target=f"{intent.target.database}.{intent.target.target_table}",
            target_uuid=intent.generation_uuid,
            retained_table=f"{intent.target.database}.{intent.target.generation_table}",
            source=f"{generation.source.connector}:{generation.source.relation}",
            snapshot_taken_at=generation.source.taken_at,
            rows=intent.content.rows,
            row_sum=intent.content.row_sum,
            source_bytes=generation.source_bytes,
            wire_bytes=generation.wire_bytes,
            generation_bytes=generation.generation_bytes,
            milliseconds=milliseconds,
            left_out=generation.source.left_out,
        )

    def _publisher(self, publication: StoredPublication) -> ClickHouseAtomicSnapshotPublisher:
        world = self._world
        guard = world.activations.guard(publication.intent.target.guard_id)
        if guard is None:
            raise NotEnrolled("the guard of this publication is not enrolled any more")
        return ClickHouseAtomicSnapshotPublisher(
            authority=world.authority,
            store=world.publications,
            catalog=SnapshotCatalog(world.target.control, guard.table),
            executor=NoExecutor(),
        )


_STATES = {
    PublicationState.PUBLISHED: AttemptState.SUCCEEDED,
    PublicationState.NOT_PUBLISHED: AttemptState.FAILED,
}


def _unproved(publication: StoredPublication) -> bool:
    """Unknown because closing or observing failed, not because what was seen contradicts both outcomes."""
    record = publication.record
    return record.state is PublicationState.COMMIT_UNKNOWN and (record.closure is None or record.observation is None)
