"""Servers that die or run out of disk in mid-attempt: started again, the next try finds what is there and finishes.

The servers are this test's own. Readers are not counted here: a server that is down answers nobody.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_provider_dpone.errors import LocalStackFailed, TableNotKept
from airflow_provider_dpone.local.clickhouse.process import ClickHouseProcess
from airflow_provider_dpone.local.postgres import PostgresServer
from tests import ledger_database
from tests.attempt_process import AttemptProcess
from tests.campaign import report
from tests.campaign.loads import LoadSweep
from tests.campaign.snapshots import SnapshotSweep
from tests.campaign.strikes import Strike
from tests.campaign.sweep import Sweep
from tests.schema_world import SchemaWorld
from tests.servers import ClickHouseUnderTest, PostgresUnderTest, clickhouse_under_test, postgres_under_test
from tests.snapshot_world import SnapshotWorld

#: Statements of a snapshot whose server dies, or cannot write any more, when they arrive.
_AT = ("CREATE TABLE", "CREATE USER", "INSERT INTO", "REVOKE", "DROP USER", "CREATE QUOTA", "EXCHANGE TABLES")
_KINDS = ("crash", "crash-before", "disk-full")


@dataclass
class BreakingSnapshots(SnapshotSweep):
    """Snapshots whose ClickHouse server is struck."""

    broken: bool = False
    """The server was struck in this attempt and may have lost the end of its log."""
    forgotten: dict[str, int] = field(default_factory=dict)
    """EXCHANGE statements it had not written down by then; its tables still tell."""

    def _act(self, strike: Strike, process: AttemptProcess) -> None:
        local = self.world.clickhouse.local
        assert local is not None
        self.broken = True
        if strike.kind == "disk-full":
            fill(local.directory)
        else:
            local.kill()
            start(local)

    def _next(self) -> None:
        super()._next()
        self.broken = False

    def _exchanges(self) -> dict[str, int]:
        """As the log has them, and the one of the attempt whose server was struck, which the log may have lost."""
        found = super()._exchanges()
        if self.broken:
            [(last,)] = self._ledger(
                "SELECT d.dispatch_id::text FROM dpone.publication p JOIN dpone.dispatch d"
                " ON d.attempt_sha256 = p.attempt_sha256 AND d.kind = 'exchange' WHERE p.state = 3"
                " ORDER BY p.prepared_at DESC LIMIT 1"
            )
            if last not in found:
                self.forgotten[last] = 1
        return {**self.forgotten, **found}

    def _recover(self, what: object, run_id: str, try_number: int) -> dict[str, object]:
        self.lift()
        return super()._recover(what, run_id, try_number)

    def lift(self) -> None:
        """There is room on the disk again; a server that died of it is started."""
        local = self.world.clickhouse.local
        assert local is not None
        (local.directory / "ballast").unlink(missing_ok=True)
        start(local)


def fill(directory: Path) -> None:
    """Leave no byte on the disk of this directory."""
    with (directory / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


class BreakingLoads(LoadSweep):
    """Loads whose PostgreSQL server, which also has the ledger and the source, dies."""

    def _act(self, strike: Strike, process: AttemptProcess) -> None:
        server = self.world.postgres.server
        server.kill()
        start(server)


def start(server: ClickHouseProcess | PostgresServer) -> None:
    """Start a server that was killed: until its old sessions have noticed, they keep what it needs."""
    deadline = time.monotonic() + 50
    while server.pid is None:
        try:
            server.start()
        except LocalStackFailed as error:
            print(f"not yet: {error}", flush=True)
            if time.monotonic() > deadline:
                raise


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, small enough to fill; mounting it takes root, or sudo without a password."""
    disk = tmp_path / "disk"
    disk.mkdir()
    root = [] if os.getuid() == 0 else ["sudo", "-n"]
    mount = [*root, "mount", "-t", "tmpfs", "-o", f"size=512m,uid={os.getuid()}", "tmpfs", str(disk)]
    subprocess.run(mount, check=True)
    yield disk
    subprocess.run([*root, "umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def own_clickhouse(small_disk: Path) -> Iterator[ClickHouseUnderTest]:
    with clickhouse_under_test(small_disk / "clickhouse") as server:
        yield server


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[PostgresUnderTest]:
    with postgres_under_test(tmp_path / "postgres") as server:
        yield server


@pytest.mark.timeout(1200)
def test_a_server_that_dies_or_has_no_disk_left_loses_and_doubles_nothing(
    own_clickhouse: ClickHouseUnderTest, own_postgres: PostgresUnderTest
) -> None:
    most = int(os.environ.get("DPONE_CAMPAIGN_OUTAGES", "40"))
    started = time.monotonic()
    ledger = ledger_database.create(own_postgres.superuser)
    snapshots = BreakingSnapshots(SnapshotWorld(own_clickhouse, own_postgres, ledger))
    loads = BreakingLoads(SchemaWorld(own_postgres, ledger_database.create(own_postgres.superuser)))
    by_kind: dict[str, int] = {}
    violations: list[str] = []
    for sweep, picked in ((snapshots, _snapshot_strikes), (loads, _load_strikes)):
        sweep.prepare()
        strikes = picked(sweep)
        random.Random(3).shuffle(strikes)
        for strike in strikes[: most // 2]:
            sweep.strike(strike)
            print(f"{time.monotonic() - started:6.1f} s  {strike}", flush=True)
            by_kind[strike.kind] = by_kind.get(strike.kind, 0) + 1
        sweep.close()
        violations += sweep.violations
    report.add(
        not violations and bool(by_kind),
        servers={"runs": sum(by_kind.values()), "by_fault": by_kind, "violations": len(violations)},
    )
    assert violations == []
    assert len(by_kind) == len(_KINDS)
    assert len(snapshots.missed + loads.missed) < sum(by_kind.values()) // 4


def test_a_full_disk_leaves_no_table_that_keeps_the_server_from_starting(
    own_clickhouse: ClickHouseUnderTest, own_postgres: PostgresUnderTest
) -> None:
    world = SnapshotWorld(own_clickhouse, own_postgres, ledger_database.create(own_postgres.superuser))
    world.pg("CREATE TABLE orders (id bigint NOT NULL)")
    world.pg("INSERT INTO orders VALUES (1), (2)")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64) ENGINE = MergeTree ORDER BY id")
    world.activate("orders")
    local = own_clickhouse.local
    assert local is not None
    fill(local.directory)
    with pytest.raises(TableNotKept):
        world.cell("orders").run()
    (local.directory / "ballast").unlink()
    local.kill()
    start(local)
    assert world.cell("orders", try_number=2).run().rows == 2


def _snapshot_strikes(sweep: Sweep) -> list[Strike]:
    return [
        Strike(end, message.number, message.label, kind)
        for end, messages in sweep.trace().items()
        for message in messages
        for kind in _KINDS
        if end in ("native", "http") and message.label.startswith(_AT)
    ]


def _load_strikes(sweep: Sweep) -> list[Strike]:
    wanted = (
        "CREATE ROLE",
        "UPDATE dpone_gate",
        "COPY",
        "DELETE",
        "INSERT INTO",
        "conclude",
        "ALTER ROLE",
        "DROP ROLE",
    )
    trace = sweep.trace()
    strikes = [Strike("target", m.number, m.label, "crash") for m in trace["target"] if m.label.startswith(wanted)]
    commits = [message for message in trace["ledger"] if message.label == "COMMIT"]
    return strikes + [Strike("ledger", m.number, m.label, "crash") for m in commits]
