"""A short form of the campaign: some faults of every cell, chains of frozen tries, racing tries. `make campaign` does more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.campaign import scan, shares
from tests.campaign.shares import Amount, Servers
from tests.servers import ClickHouseUnderTest, PostgresUnderTest

AMOUNTS = {
    "snapshot": Amount(processes=1, pairs=12, zombies=4, schedules=2),
    "load": Amount(processes=1, pairs=12, zombies=4, schedules=2),
    "dbt": Amount(processes=1, pairs=1, zombies=0),
}


@pytest.mark.timeout(500)
def test_some_faults_of_every_cell_end_in_exactly_one_effect(
    clickhouse_server: ClickHouseUnderTest, postgres_server: PostgresUnderTest, tmp_path: Path
) -> None:
    servers = Servers(clickhouse_server, postgres_server)
    done = shares.run(servers, AMOUNTS, tmp_path, time.monotonic() + 360)
    assert len(done.found) == len(AMOUNTS), shares.tails(tmp_path, [f"{cell}-0" for cell in AMOUNTS])
    summary = done.summary()
    assert summary["violations"] == []
    assert done.complete(), summary
    scan.texts(postgres_server, clickhouse_server, tmp_path / "servers.txt")
    made, places, leaks = scan.found(
        [tmp_path / f"{cell}-0.passwords" for cell in AMOUNTS], ["dpone_ingest_", "dpone_w_"], [tmp_path]
    )
    assert all((tmp_path / f"{cell}-0.log").stat().st_size > 0 for cell in AMOUNTS)
    assert leaks == []
    assert made > 0
    assert places > 0
