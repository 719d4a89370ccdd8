"""What an attempt works with: the ledger's stores and one target server, wired once per task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from airflow_provider_dpone.contracts.enrolment import TargetEnrolment
from airflow_provider_dpone.contracts.identity import generation_name, retired_prefix
from airflow_provider_dpone.contracts.states import PublicationState
from airflow_provider_dpone.engines.clickhouse.control import NativeControl, require_same_server
from airflow_provider_dpone.engines.clickhouse.gate import ClickHouseGate
from airflow_provider_dpone.engines.clickhouse.rights import GatePolicy
from airflow_provider_dpone.engines.clickhouse.wire import ClickHouseHttp, Login
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.journal import LedgerJournal
from airflow_provider_dpone.ledger.publications import LedgerPublicationStore
from airflow_provider_dpone.ledger.transaction import Ledger
from airflow_provider_dpone.publication.authority import LedgerPublicationAuthority


def utc_now() -> str:
    """Now, UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


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


@dataclass
class World:
    """The ledger's stores and the target, for one task."""

    ledger: Ledger
    target: ClickHouseTarget
    service_id: str
    checkpoint: Callable[[], None] = lambda: None
    gates: dict[str, ClickHouseGate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.attempts = CompositionAttemptStore(self.ledger)
        self.activations = CompositionActivationStore(self.ledger)
        self.publications = LedgerPublicationStore(self.ledger, self.checkpoint)
        self.authority = LedgerPublicationAuthority(self.ledger, self.gate_of)

    def journal(self, attempt_sha256: str) -> LedgerJournal:
        """The journal of an attempt."""
        return LedgerJournal(self.ledger, attempt_sha256)

    def gate_of(self, attempt_sha256: str) -> ClickHouseGate:
        """The gate of an attempt, made once: it remembers what this process issued."""
        if attempt_sha256 not in self.gates:
            stored = self.attempts.read_exact(attempt_sha256)
            tables: list[tuple[str, str]] = []
            for held in stored.identity.guard_epochs:
                guard = self.activations.guard(held.guard_id)
                if guard is not None:
                    database = guard.enrolment.marker.database
                    tables += [
                        (database, guard.enrolment.target_table),
                        (database, generation_name(attempt_sha256)),
                    ]
            self.gates[attempt_sha256] = ClickHouseGate(
                self.target.control,
                self.service_id,
                self.journal(attempt_sha256),
                self.target.policy,
                tables=tables,
                checkpoint=self.checkpoint,
            )
        return self.gates[attempt_sha256]

    def gates_made(self, attempt_sha256: str | None) -> list[ClickHouseGate]:
        """The gate this process made for an attempt, if it did; asks nobody."""
        return [gate for sha256, gate in list(self.gates.items()) if sha256 == attempt_sha256]

    def retained(self, guard_id: str, enrolment: TargetEnrolment, *, but: str = "") -> list[str]:
        """Names of generations of a guard that still exist on the server: published predecessors and leftovers."""
        names = {
            p.intent.target.generation_table
            for p in self.publications.of_guard(guard_id)
            if p.record.state is not PublicationState.PREPARED
        }
        ended = [a.sha256 for a in self.attempts.ended_on(guard_id)]
        names |= {generation_name(sha256) for sha256 in ended}
        names.discard(but)
        retired = [retired_prefix(sha256) for sha256 in ended]
        rows = self.target.control.query(
            "SELECT name FROM system.tables WHERE database = {database:String} AND (name IN {names:Array(String)} "
            "OR substring(name, 1, 24) IN {retired:Array(String)})",
            {"database": enrolment.marker.database, "names": sorted(names) or [""], "retired": retired or [""]},
        )
        return sorted(str(name) for (name,) in rows)
