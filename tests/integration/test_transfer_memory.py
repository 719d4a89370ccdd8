"""A task's own memory stays bounded whatever the table: 16 MiB values, and many rows against a slow target."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_dpone.engines.postgres.session import PostgresParams
from airflow_provider_dpone.engines.postgres.snapshot import open_snapshot
from airflow_provider_dpone.transfer.stream import stream_snapshot
from tests.integration.transfer_support import SourceDatabase, meter, plan
from tests.servers import PostgresUnderTest
from tests.unit.test_transfer_convert import design

BUDGET_MIB = 256


def anonymous_mib() -> float:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024


def grown(params: PostgresParams, name: str, columns: dict[str, str], pause: float) -> tuple[float, int, int]:
    """Peak growth in MiB, rows and bytes of a stream into nowhere; run in a process of its own."""
    idle, peak, done = anonymous_mib(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], anonymous_mib())

    def sink(body: Iterator[bytes]) -> None:
        for _ in body:
            time.sleep(pause)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with open_snapshot(params, "public", name) as snapshot:
        conversion = plan(snapshot, [design(kind, column) for column, kind in columns.items()])
        result = stream_snapshot(snapshot.batches(conversion), conversion, meter(), sink)
        snapshot.aggregates(conversion)
    done.set()
    watcher.join()
    return peak[0] - idle, result.content.rows, result.wire_bytes


@pytest.fixture(scope="module")
def source(postgres_server: PostgresUnderTest) -> SourceDatabase:
    return SourceDatabase.fresh(postgres_server)


@pytest.mark.parametrize(
    ("make", "columns", "rows", "pause"),
    [
        (
            "SELECT n AS a, decode(repeat('ab', 16777216), 'hex') AS b, "
            "CASE WHEN n % 2 = 0 THEN repeat('y', 16777216) END AS c FROM generate_series(1, 8) n",
            {"a": "Nullable(Int32)", "b": "Nullable(String)", "c": "Nullable(String)"},
            8,
            0.0,
        ),
        (
            "SELECT n AS a, 'customer ' || n AS b, n * 1.5 AS c, now() AS d FROM generate_series(1, 300000) n",
            {
                "a": "Nullable(Int32)",
                "b": "Nullable(String)",
                "c": "Nullable(Decimal(18, 2))",
                "d": "Nullable(DateTime64(6))",
            },
            300000,
            0.05,
        ),
    ],
    ids=["16 MiB values", "many rows, slow target"],
)
def test_p17_memory_is_bounded(
    source: SourceDatabase, make: str, columns: dict[str, str], rows: int, pause: float
) -> None:
    source.run("DROP TABLE IF EXISTS public.large", f"CREATE TABLE public.large AS {make}")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        growth, seen, _ = pool.apply(grown, (source.params(), "large", columns, pause))
    assert seen == rows
    assert growth < BUDGET_MIB
