"""The main job with SQL Server as its source: a million mixed rows, published with one EXCHANGE and proved equal."""

from __future__ import annotations

import os
import time

import pytest

from airflow_provider_dpone.engines.mssql import aggregates, catalog
from tests.live_mssql.source_support import MssqlSourceDatabase, stand_in
from tests.mssql_server import MssqlServer
from tests.snapshot_world import SnapshotWorld

ROWS = int(os.environ.get("DPONE_TEST_MSSQL_ROWS", "1000000"))
MAKE = (
    "CREATE TABLE dbo.orders (id bigint NOT NULL, amount decimal(18,4) NOT NULL, label nvarchar(40), guid uniqueidentifier,"
    " at datetime2(6), day date, whole int, ratio float, flag bit)"
)
FILL = (
    "WITH d AS (SELECT v FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS t(v)),"
    " n AS (SELECT a.v + 10 * b.v + 100 * c.v + 1000 * e.v + 10000 * f.v + 100000 * g.v AS i"
    " FROM d AS a CROSS JOIN d AS b CROSS JOIN d AS c CROSS JOIN d AS e CROSS JOIN d AS f CROSS JOIN d AS g)"
    " INSERT INTO dbo.orders SELECT i, CAST(i AS decimal(18,4)) / 7, CONCAT(N'order ', i, N' \u00e9'), NEWID(),"
    " DATEADD(second, i, CONVERT(datetime2(6), '20200101', 112)), DATEADD(day, i % 20000, CONVERT(date, '19700101', 112)),"
    " CASE WHEN i % 10 = 0 THEN NULL ELSE i % 1000 END, CAST(i AS float) / 3, i % 2 FROM n"
    f" WHERE i < {ROWS}"
)


def _filled(server: MssqlServer) -> MssqlSourceDatabase:
    """A database with the rows: filled here, or beforehand (a stand-in takes minutes to make a million values)."""
    prepared = os.environ.get("DPONE_TEST_MSSQL_ORDERS")
    if prepared:
        return MssqlSourceDatabase(server, prepared)
    source = MssqlSourceDatabase.fresh(server)
    source.run(MAKE, FILL)
    return source


@pytest.mark.timeout(1500)
def test_many_rows_arrive_and_are_published(
    world: SnapshotWorld, mssql_server: MssqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(mssql_server, monkeypatch, aggregates, catalog)
    source = _filled(mssql_server)
    world.ch(
        f"CREATE TABLE {world.database}.orders (id Int64, amount Decimal(18, 4), label Nullable(String), guid Nullable(UUID),"
        " at Nullable(DateTime64(6)), day Nullable(Date), whole Nullable(Int32), ratio Nullable(Float64),"
        " flag Nullable(Bool)) ENGINE = MergeTree ORDER BY id"
    )
    world.other_source, world.source_schema = source.source(), "dbo"
    world.activate("orders")
    started = time.monotonic()
    receipt = world.cell("orders").run()
    print(f"\n{ROWS:,} rows published in {time.monotonic() - started:.1f} s")
    assert receipt.rows == ROWS
    [(rows, total, nulls)] = world.ch(
        f"SELECT count(), toString(sum(amount)), countIf(whole IS NULL) FROM {world.database}.orders"
    )
    [(source_total,)] = source.run("SELECT CONVERT(nvarchar(40), SUM(amount)) FROM dbo.orders")
    assert (rows, nulls) == (ROWS, ROWS // 10)
    assert float(total) == float(source_total)
