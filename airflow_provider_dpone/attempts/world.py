"""What an attempt works with: the ledger's stores and one target server, wired once per task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from airflow_provider_dpone.contracts.enrolment import TargetEnrolment
from airflow_provider_dpone.contracts.identity import generation_name, retired_prefix
from airflow_provider_dpone.engines.clickhouse.control import NativeControl, require_same_server
from airflow_provider_dpone.engines.clickhouse.gate import ClickHouseGate
from airflow_provider_dpone.engines.clickhouse.rights import GatePolicy
from airflow_provider_dpone.engines.clickhouse.wire import ClickHouseHttp, Login
from airflow_provider_dpone.ledger.activations import Guard
from airflow_provider_dpone.ledger.journal import LedgerJournal
from airflow_provider_dpone.ledger.stores import Stores
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
        stores = Stores(self.ledger, self.checkpoint)
        self.attempts, self.activations, self.publications = stores.attempts, stores.activations, stores.publications
        self.together = stores.together
        self.authority = LedgerPublicationAuthority(stores, self.gate_of)

    def journal(self, attempt_sha256: str) -> LedgerJournal:
        """The journal of an attempt."""
        return LedgerJournal(self.ledger, attempt_sha256)

    def gate_of(self, attempt_sha256: str, held: Sequence[Guard] | None = None) -> ClickHouseGate:
        """The gate of an attempt, made once: it remembers what this process issued.

        :param held: the guards the attempt holds, when the caller knows; otherwise they are read.
        """
        if attempt_sha256 not in self.gates:
            held = self._held(attempt_sha256) if held is None else held
            self.gates[attempt_sha256] = ClickHouseGate(
                self.target.control,
                self.service_id,
                self.journal(attempt_sha256),
                self.target.policy,
                tables=[
                    (guard.enrolment.marker.database, name)
                    for guard in held
                    for name in (guard.enrolment.target_table, generation_name(attempt_sha256))
                ],
                checkpoint=self.checkpoint,
            )
        return self.gates[attempt_sha256]

    def _held(self, attempt_sha256: str) -> list[Guard]:
        with self.together() as ledger:
            epochs = ledger.attempts.read_exact(attempt_sha256).identity.guard_epochs
            found = [ledger.activations.guard(held.guard_id) for held in epochs]
        return [guard for guard in found if guard is not None]

    def gates_made(self, attempt_sha256: str | None) -> list[ClickHouseGate]:
        """The gate this process made for an attempt, if it did; asks nobody."""
        return [gate for sha256, gate in list(self.gates.items()) if sha256 == attempt_sha256]

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
