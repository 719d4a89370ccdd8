"""Loads under faults: whatever happens, one receipt for each success and the target is one whole snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from tests.campaign.strikes import Strike, covering
from tests.campaign.sweep import ROWS, Sweep
from tests.campaign.wire import Message
from tests.schema_world import SchemaWorld

_CHANGING: Final = ("CREATE", "ALTER ROLE", "DROP", "UPDATE dpone_gate", "INSERT INTO", "COPY", "DELETE", "conclude")


class LoadSweep(Sweep):
    """Attempts of the load cell on a PostgreSQL server."""

    done: ClassVar[str] = "LOADED"
    ports: ClassVar[dict[str, str]] = {"ledger": "ledger_port", "target": "port", "source": "source_port"}
    world: SchemaWorld

    def prepare(self) -> None:
        """Tables, enrolment, release, and where each end is."""
        world = self.world
        world.make_load(
            "orders",
            "id bigint NOT NULL, version integer NOT NULL, name text",
            f"SELECT i, 0, 'name ' || i FROM generate_series(1, {ROWS}) i",
        )
        world.sql(f"INSERT INTO mart.orders SELECT i, 0, 'old' FROM generate_series(1, {ROWS}) i")
        server, ledger = world.postgres, world.ledger
        self.upstreams = {
            "ledger": (ledger.host, ledger.port),
            "target": (server.host, server.port),
            "source": (server.host, server.port),
        }

    def plan(self, trace: dict[str, list[Message]]) -> list[Strike]:
        """Every statement of gate and load in every way, a spread of the ledger's and the source's."""
        return covering(trace, _CHANGING, "target")

    def change(self) -> None:
        """Every row of the source carries the version."""
        self.world.source_sql(f"UPDATE orders SET version = {self.version}")

    def reader(self) -> Callable[[], tuple[int, Any, Any]]:
        """On one session, as a report has it."""
        connection = self.world.postgres.connect(self.world.database)

        def read() -> tuple[int, Any, Any]:
            row = connection.execute("SELECT count(*), min(version), max(version) FROM mart.orders").fetchone()
            assert row is not None
            return row[0], row[1], row[2]

        return read

    def _state(self) -> object:
        """What is in the table, which transactions wrote it, and every receipt."""
        return self._target(), self._receipts()

    def _target(self) -> tuple[Any, ...]:
        [found] = self.world.sql(
            "SELECT count(*), count(DISTINCT id), min(version), max(version), min(xmin::text), max(xmin::text) "
            "FROM mart.orders"
        )
        return found

    def _receipts(self) -> dict[str, str]:
        """Transaction by attempt, oldest first."""
        return dict(
            self.world.sql(
                "SELECT attempt, (xid::text::numeric % 4294967296)::text FROM dpone_gate.receipt ORDER BY number"
            )
        )

    def _check_target(self, what: str) -> None:
        """One receipt for each success, the last of them wrote every row, and no login of ours is left."""

        def must(holds: bool, text: str) -> None:
            self._must(what, holds, text)

        target, receipts = self._target(), self._receipts()
        must(
            target[:4] == (ROWS, ROWS, self.version, self.version),
            f"the target is not snapshot {self.version}: {target}",
        )
        last = [*receipts.values()][-1]
        must(target[4:] == (last, last), f"rows were written by {target[4:]}, the last receipt is of {last}")
        succeeded = [
            f"sha256:{digest}"
            for (digest,) in self._ledger(
                "SELECT encode(attempt_sha256, 'hex') FROM dpone.attempt WHERE state = 2 ORDER BY admitted_at"
            )
        ]
        must(list(receipts) == succeeded, f"receipts of {list(receipts)}, successes {succeeded}")
        [(told,)] = self._ledger(
            "SELECT count(*) FROM dpone.evidence e JOIN dpone.attempt a ON a.attempt_sha256 = e.subject AND a.state = 2"
            " WHERE e.kind = 11 AND convert_from(e.document, 'UTF8')::jsonb"
            f" @> jsonb_build_object('state', 'LOADED', 'rows', {ROWS})"
        )
        must(told == len(succeeded), f"{told} true receipts in the ledger, {len(succeeded)} successes")
        must(not self.world.roles(), f"issued roles that still exist: {self.world.roles()}")
        gates = self.world.sql("SELECT name, state FROM dpone_gate.gate WHERE state <> 4")
        must(not gates, f"gates that are not closed on the server: {gates}")
        if (
            "freeze" not in what and "late" not in what
        ):  # a woken zombie may make its staging table; the next load drops it
            must(not self.world.stagings(), f"staging tables left: {self.world.stagings()}")
