"""The fault campaign: whatever goes wrong on the wire or to a worker, each attempt happens exactly once.

Amounts: DPONE_CAMPAIGN=full strikes every pair of step and fault (nightly; DPONE_CAMPAIGN_SHARD=1/4 takes a part, and
DPONE_CAMPAIGN_CELLS some cells), else a covering selection of more than 200. Figures: build/campaign/summary.json.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.campaign import report, scan, shares
from tests.campaign.shares import Amount, Servers
from tests.servers import ClickHouseUnderTest, PostgresUnderTest

FULL = os.environ.get("DPONE_CAMPAIGN") == "full"
SECONDS = float(os.environ.get("DPONE_CAMPAIGN_SECONDS", "18000" if FULL else "1500"))
ONLY = os.environ.get("DPONE_CAMPAIGN_ONLY", "")
AMOUNTS = {
    "snapshot": Amount(processes=2, pairs=0 if FULL else 100, zombies=120, schedules=60 if FULL else 12),
    "load": Amount(processes=2, pairs=0 if FULL else 100, zombies=120, schedules=60 if FULL else 12),
    "dbt": Amount(processes=2 if FULL else 1, pairs=0 if FULL else 24, zombies=12),
}
CELLS = (os.environ.get("DPONE_CAMPAIGN_CELLS") or ",".join(AMOUNTS)).split(",")
SHARD = (os.environ.get("DPONE_CAMPAIGN_SHARD") or "1/1").split("/")


@pytest.mark.timeout(SECONDS + 600)
def test_every_fault_ends_in_exactly_one_effect_and_nothing_left_open(
    clickhouse_server: ClickHouseUnderTest, postgres_server: PostgresUnderTest, tmp_path: Path
) -> None:
    amounts = {cell: AMOUNTS[cell] for cell in CELLS}
    servers = Servers(clickhouse_server, postgres_server)
    done = shares.run(servers, amounts, tmp_path, time.monotonic() + SECONDS, ONLY, (int(SHARD[0]), int(SHARD[1])))
    names = [f"{cell}-{n}" for cell, amount in amounts.items() for n in range(amount.processes)]
    scan.texts(postgres_server, clickhouse_server, tmp_path / "servers.txt")
    made, places, leaks = scan.found(
        [tmp_path / f"{name}.passwords" for name in names],
        ["dpone_ingest_", "dpone_publisher_", "dpone_w_"],
        [tmp_path, *servers_folders(servers)],
    )
    struck = [(share["cell"], *struck) for share in done.found for struck in share["struck"]]
    passed = done.complete() or bool(ONLY)
    report.add(
        passed and not leaks and made > 0, struck=struck, passwords=made, secrets_found=len(leaks), **done.summary()
    )
    summary = done.summary()
    assert len(done.found) == len(names), shares.tails(tmp_path, names)
    assert summary["violations"] == []
    assert leaks == []
    assert (made > 0, places > 0) == (True, True)
    assert all((tmp_path / f"{name}.log").stat().st_size > 0 for name in names)
    assert passed, summary


def servers_folders(servers: Servers) -> list[Path]:
    """Where the servers keep their data and logs."""
    local = servers.clickhouse.local
    return [servers.postgres.server.directory, *([local.directory] if local is not None else [])]
