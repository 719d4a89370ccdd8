"""Snapshots under faults: whatever happens, one EXCHANGE for each publication and the target is one whole snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from tests.campaign.strikes import Strike, covering
from tests.campaign.sweep import ROWS, Sweep
from tests.campaign.wire import Message
from tests.snapshot_world import SnapshotWorld

#: Statements that change something on the target server; each of them is struck in every way.
_CHANGING: Final = ("CREATE", "DROP", "GRANT", "REVOKE", "SYSTEM", "EXCHANGE", "INSERT INTO")


class SnapshotSweep(Sweep):
    """Attempts of the snapshot cell on a ClickHouse server."""

    done: ClassVar[str] = "PUBLISHED"
    ports: ClassVar[dict[str, str]] = {end: f"{end}_port" for end in ("ledger", "native", "http")}
    world: SnapshotWorld

    def prepare(self) -> None:
        """Tables, enrolment, release, and where each end is."""
        world = self.world
        world.pg("CREATE TABLE orders (id bigint NOT NULL, version integer NOT NULL, name text)")
        world.pg(f"INSERT INTO orders SELECT i, 0, 'name ' || i FROM generate_series(1, {ROWS}) i")
        target = f"{world.database}.orders"
        world.ch(
            f"CREATE TABLE {target} (id Int64, version Int32, name Nullable(String)) ENGINE = MergeTree ORDER BY id"
        )
        world.ch(f"INSERT INTO {target} SELECT number, 0, 'old' FROM numbers({ROWS})")
        world.activate("orders")
        server, ledger = world.clickhouse, world.ledger
        self.upstreams = {
            "ledger": (ledger.host, ledger.port),
            "native": (server.host, server.native_port),
            "http": (server.host, server.http_port),
        }

    def plan(self, trace: dict[str, list[Message]]) -> list[Strike]:
        """Every statement on ClickHouse in every way, a spread of the ledger's."""
        return covering(trace, _CHANGING, "http")

    def change(self) -> None:
        """Every row of the source carries the version."""
        self.world.pg(f"UPDATE orders SET version = {self.version}")

    def reader(self) -> Callable[[], tuple[int, Any, Any]]:
        """Over the native protocol."""
        client = self.world.clickhouse.client()
        sql = f"SELECT count(), min(version), max(version) FROM {self.world.database}.orders"
        return lambda: client.execute(sql)[0]  # type: ignore[no-any-return]

    def _state(self) -> object:
        """Everything on the target that a woken worker must not change."""
        return self._target(), self._exchanges()

    def _target(self) -> tuple[str, int, int, int, int]:
        world = self.world
        [(found,)] = world.ch(
            f"SELECT toString(uuid) FROM system.tables WHERE database = '{world.database}' AND name = 'orders'"
        )
        [(rows, ids, low, high)] = world.ch(
            f"SELECT count(), uniqExact(id), min(version), max(version) FROM {world.database}.orders"
        )
        return str(found), rows, ids, low, high

    def _exchanges(self) -> dict[str, int]:
        """Query ids of EXCHANGE statements that had an effect, and how often, from the server's own log."""
        self.world.ch("SYSTEM FLUSH LOGS")
        return {
            str(query_id): int(times)
            for query_id, times in self.world.ch(
                "SELECT query_id, countIf(type = 'QueryFinish' OR exception_code = 394) AS times FROM system.query_log"
                f" WHERE query ILIKE 'EXCHANGE TABLES%' AND query LIKE '%{self.world.database}%'"
                " GROUP BY query_id HAVING times > 0"
            )
        }

    def _check_target(self, what: str) -> None:
        """The target is exactly the last snapshot, by one EXCHANGE each, and no user is left that can log in."""
        target = self._target()
        self._must(
            what,
            target[1:] == (ROWS, ROWS, self.version, self.version),
            f"the target is not snapshot {self.version}: {target}",
        )
        published = self._ledger(
            "SELECT d.dispatch_id::text, p.generation_uuid::text FROM dpone.publication p JOIN dpone.dispatch d"
            " ON d.attempt_sha256 = p.attempt_sha256 AND d.kind = 'exchange' WHERE p.state = 3 ORDER BY p.prepared_at"
        )
        exchanges = self._exchanges()
        self._must(
            what,
            exchanges == {dispatch: 1 for dispatch, _ in published},
            f"effective EXCHANGEs {exchanges} are not one for each of {published}",
        )
        [(current,)] = self._ledger("SELECT target_uuid::text FROM dpone.guard")
        self._must(
            what,
            current == target[0] == published[-1][1],
            f"ledger {current}, server {target[0]}, last {published[-1][1]}",
        )
        names = {name for (name,) in self._ledger("SELECT name FROM dpone.principal")}
        users = self.world.ch("SELECT name FROM system.users WHERE startsWith(name, 'dpone_') AND notEmpty(host_ip)")
        usable = sorted(name for (name,) in users if name in names)
        self._must(what, not usable, f"users that can still log in: {usable}")
        [(receipts, told)] = self._ledger(
            "SELECT count(*), count(*) FILTER (WHERE p.state = 3 AND convert_from(e.document, 'UTF8')::jsonb"
            " @> jsonb_build_object('state', 'PUBLISHED', 'target_uuid', p.generation_uuid::text, 'rows',"
            f" {ROWS})) FROM dpone.evidence e LEFT JOIN dpone.publication p ON p.attempt_sha256 = e.subject WHERE e.kind = 11"
        )
        self._must(
            what,
            receipts == told == len(published),
            f"{receipts} receipts, {told} true, {len(published)} publications",
        )
