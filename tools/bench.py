"""The benchmarks of ``make bench``: speed, memory, protocol time, admissions and readers, on the local stack.

Every figure of speed is a ratio of two measurements of one run, because machines differ. Only a reader that saw an
error or a mixed table, or an admission that failed, fails the run. The figures go to ``build/bench/summary.json``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pickle
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.receipts import SnapshotReceipt
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from tests import builders, ledger_database
from tests.servers import PostgresUnderTest, clickhouse_under_test, postgres_under_test
from tests.snapshot_world import SnapshotWorld
from tools import bench_peers as peers

T = TypeVar("T")
Figures = dict[str, Any]
BUILD = Path(__file__).parent.parent / "build" / "bench"
READING_SECONDS = 180.0
LIMITS = SnapshotLimits(max_source_bytes="16 GiB")

WIDE = (
    "id bigint NOT NULL, customer integer NOT NULL, quantity smallint NOT NULL, price numeric(12,2) NOT NULL, "
    "discount numeric(6,4), weight double precision NOT NULL, paid boolean NOT NULL, ordered_on date NOT NULL, "
    "changed_at timestamptz NOT NULL, country text NOT NULL, note text, reference uuid NOT NULL",
    "id Int64, customer Int32, quantity Int16, price Decimal(12, 2), discount Nullable(Decimal(6, 4)), "
    "weight Float64, paid Bool, ordered_on Date32, changed_at DateTime64(6, 'UTC'), country String, "
    "note Nullable(String), reference UUID",
    "i, i % 50000, i % 100, (i % 100000)::numeric / 100, CASE WHEN i % 3 > 0 THEN (i % 9999)::numeric / 10000 END, "
    "i * 0.37, i % 2 = 0, DATE '2020-01-01' + i % 2000, TIMESTAMPTZ '2024-01-01 00:00Z' + i * INTERVAL '7 seconds', "
    "substr('FIDESEFRPLNO', 1 + 2 * (i % 6), 2), CASE WHEN i % 4 > 0 THEN 'note of order ' || i END, "
    "md5(i::text)::uuid",
)
NARROW = ("id bigint NOT NULL, amount integer NOT NULL", "id Int64, amount Int32", "i, i % 1000")
BUSY = ("id bigint NOT NULL, version integer NOT NULL", "id Int64, version Int32", "i, 1")
LARGE = (
    "id bigint NOT NULL, body text NOT NULL",
    "id Int64, body String",
    "i, repeat(md5(i::text), 512 * 1024)",
)


def make_table(world: SnapshotWorld, name: str, shape: tuple[str, str, str], rows: int) -> None:
    """A source table of ``rows`` rows and its empty, enrolled and active target."""
    source, target, values = shape
    world.pg(f"CREATE TABLE {name} ({source})")
    world.pg(f"INSERT INTO {name} SELECT {values} FROM generate_series(1, {rows}) i")
    world.pg(f"VACUUM ANALYZE {name}")
    world.ch(f"CREATE TABLE {world.database}.{name} ({target}) ENGINE = MergeTree ORDER BY id")


# --- children: their memory is their own -----------------------------------------------------------------------


def anonymous_bytes(pid: int) -> int:
    """RssAnon of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0  # a zombie


def cpu_seconds(*pids: int) -> float:
    """CPU time of processes, of their children that ended, and of their children that live."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # ended just now
            mine = int(entry.name) in pids
            if mine or int(fields[1]) in pids:
                ticks += sum(map(int, fields[11 : 15 if mine else 13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def in_child(work: Callable[[], T]) -> tuple[T, int]:
    """Run ``work`` in a forked process; its result, and how far its anonymous memory grew above its beginning."""
    place = Path(tempfile.mkstemp(suffix=".bench")[1])
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            place.write_bytes(pickle.dumps(work()))
            code = 0
        except BaseException:  # noqa: BLE001 - shown here; the parent fails on the missing result
            traceback.print_exc()
        finally:
            os._exit(code)
    idle = peak = anonymous_bytes(pid)
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        peak = max(peak, anonymous_bytes(pid))
        time.sleep(0.01)
    raw = place.read_bytes()
    place.unlink()
    if not raw:
        raise RuntimeError("a measured process failed; its error stands above")
    return pickle.loads(raw), peak - idle


def publish(world: SnapshotWorld, name: str, run_id: str) -> tuple[SnapshotReceipt, float]:
    """One whole attempt; its receipt and seconds, wiring included."""
    started = time.monotonic()
    receipt = world.cell(name, run_id=run_id, limits=LIMITS).run()
    return receipt, time.monotonic() - started


# --- what is measured ------------------------------------------------------------------------------------------


def speed(world: SnapshotWorld, name: str, sample: int, *, frames: bool) -> Figures:
    """A snapshot end to end against its peers; the driver's frames know no decimals."""
    reading, _ = in_child(lambda: peers.read_alone(world, name))
    inserting, _ = in_child(lambda: peers.insert_alone(world, name))
    (receipt, seconds), grown = in_child(lambda: publish(world, name, f"speed-{time.time_ns()}"))
    rows = in_child(lambda: peers.copy_rows(world, name, sample))[0]
    rate, slower = receipt.rows / seconds, min(reading.rate, inserting.rate)
    copying = receipt.rows / (receipt.milliseconds["copy"] / 1000)
    paces = {
        "end_to_end": round(rate),
        "copy_step": round(copying),
        "read_alone": round(reading.rate),
        "insert_alone": round(inserting.rate),
        "row_copy": round(rows.rate),
    }
    if frames:
        paces["insert_dataframe"] = round(in_child(lambda: peers.copy_frames(world, name, 10 * sample))[0].rate)
    return {
        "rows": receipt.rows,
        "seconds": round(seconds, 2),
        "milliseconds": receipt.milliseconds,
        "rows_per_second": paces,
        "end_to_end_over_slower_part": round(rate / slower, 2),
        "copy_over_slower_part": round(copying / slower, 2),
        "end_to_end_over_row_copy": round(rate / rows.rate, 1),
        "rss_anon_above_idle_mib": round(grown / 2**20, 1),
    }


def large_values(world: SnapshotWorld, name: str) -> Figures:
    """Memory of a task that copies values of 16 MiB."""
    (receipt, seconds), grown = in_child(lambda: publish(world, name, "large"))
    return {
        "rows": receipt.rows,
        "wire_mib": round(receipt.wire_bytes / 2**20),
        "seconds": round(seconds, 2),
        "rss_anon_above_idle_mib": round(grown / 2**20, 1),
    }


def protocol(world: SnapshotWorld, name: str, times: int) -> Figures:
    """An empty snapshot with all promises kept: the time of the protocol alone."""
    publish(world, name, "warm")
    walls: list[float] = []
    receipts: list[SnapshotReceipt] = []
    assert world.clickhouse.local is not None
    pids = [os.getpid(), world.clickhouse.local.pid or 0, world.postgres.server.pid or 0]
    before = [cpu_seconds(pid) for pid in pids]
    for number in range(times):
        receipt, seconds = publish(world, name, f"empty-{number}")
        walls.append(seconds)
        receipts.append(receipt)
    spent = [cpu_seconds(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
    steps = receipts[0].milliseconds
    return {
        "runs": times,
        "p50_ms": round(statistics.median(walls) * 1000),
        "min_ms": round(min(walls) * 1000),
        "max_ms": round(max(walls) * 1000),
        "cpu_ms": dict(zip(("task", "clickhouse", "ledger"), (round(s / times * 1000) for s in spent), strict=True)),
        "steps_p50_ms": {step: round(statistics.median(r.milliseconds[step] for r in receipts)) for step in steps},
        "claim_to_published_p50_ms": claim_to_published(world, [r.intent_sha256 for r in receipts]),
    }


def claim_to_published(world: SnapshotWorld, intents: list[str]) -> int:
    """Median of the time between the claim and the record of PUBLISHED, by the ledger's clock."""
    with psycopg.connect(**{**world.postgres.superuser, "dbname": world.ledger.dbname}) as connection:
        found = connection.execute(
            "SELECT extract(epoch FROM e.recorded_at - d.claimed_at) FROM dpone.publication p"
            " JOIN dpone.evidence e ON e.evidence_sha256 = p.record_sha256"
            " JOIN dpone.dispatch d ON d.attempt_sha256 = p.attempt_sha256 AND d.kind = 'exchange'"
            " WHERE p.intent_sha256 = ANY(%s)",
            ([bytes.fromhex(intent[7:]) for intent in intents],),
        ).fetchall()
    assert len(found) == len(intents)
    return round(statistics.median(float(seconds) for (seconds,) in found) * 1000)


def admissions(postgres: PostgresUnderTest, workers: int, each: int) -> Figures:
    """Workers admit attempts on different guards of one release, each admission committed and read back."""
    database = ledger_database.create(postgres.superuser)
    tables = [f"t{number}" for number in range(workers * each)]
    activated = builders.activate(database.admin(), database.runtime(), *tables)
    identities = [activated.attempt(name) for name in tables]
    before = cpu_seconds(os.getpid(), postgres.server.pid or 0)
    start = time.monotonic() + 1.5
    pids = []
    for worker in range(workers):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                store = CompositionAttemptStore(database.runtime())
                time.sleep(max(0.0, start - time.monotonic()))
                for identity in identities[worker::workers]:
                    store.admit_once(identity)
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in pids)
    seconds = time.monotonic() - start
    return {
        "workers": workers,
        "admitted": len(tables),
        "failed_workers": failed,
        "per_second": round(len(tables) / seconds, 1),
        "cpu_ms_each": round((cpu_seconds(os.getpid(), postgres.server.pid or 0) - before) / len(tables) * 1000, 1),
    }


@contextmanager
def readers(world: SnapshotWorld, name: str, rows: int, count: int) -> Iterator[Figures]:
    """Processes that read the target all along; each read must be one complete snapshot."""
    stop = Path(tempfile.mkstemp(suffix=".stop")[1])
    results = [Path(tempfile.mkstemp(suffix=".reader")[1]) for _ in range(count)]
    pids = []
    for place in results:
        pid = os.fork()
        if pid == 0:
            seen = {"polls": 0, "errors": 0, "mixed": 0, "empty": 0}
            client = world.clickhouse.client()
            while stop.exists():
                try:
                    [(found, low, high)] = client.execute(
                        f"SELECT count(), min(version), max(version) FROM {world.database}.{name}"
                    )
                    seen["empty"] += found == 0
                    seen["mixed"] += found not in (0, rows) or low != high
                except Exception as error:  # noqa: BLE001 - any error of a reader is what is counted
                    print(f"reader: {error!r}", flush=True)
                    seen["errors"] += 1
                seen["polls"] += 1
                time.sleep(0.005)
            place.write_text(json.dumps(seen))
            os._exit(0)
        pids.append(pid)
    total: Figures = {"readers": count}
    try:
        yield total
    finally:
        stop.unlink()
        for pid, place in zip(pids, results, strict=True):
            os.waitpid(pid, 0)
            for key, value in json.loads(place.read_text()).items():
                total[key] = total.get(key, 0) + value
            place.unlink()


def reading_while_publishing(world: SnapshotWorld, name: str, rows: int, publications: int) -> Figures:
    """Readers all the while one table is published again and again."""
    started = time.monotonic()
    publish(world, name, "first")
    done = 0
    with readers(world, name, rows, 2) as seen:
        while done < publications and time.monotonic() - started < READING_SECONDS:
            done += 1
            world.pg(f"UPDATE {name} SET version = {done + 1}")
            publish(world, name, f"read-{done}")
    return {"publications": done, **seen, "seconds": round(time.monotonic() - started, 1)}


# --- all of it -------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> Figures:
    """Every measurement, in an order that keeps them apart."""
    summary: Figures = {"cpus": os.cpu_count(), "load_before": os.getloadavg()[0]}
    with (
        tempfile.TemporaryDirectory(prefix="dpone-bench-") as directory,
        postgres_under_test(Path(directory) / "postgres") as postgres,
        clickhouse_under_test(Path(directory) / "clickhouse") as clickhouse,
    ):
        world = SnapshotWorld(clickhouse, postgres, ledger_database.create(postgres.superuser))
        say("making tables")
        make_table(world, "wide", WIDE, options.rows)
        make_table(world, "narrow", NARROW, options.rows)
        make_table(world, "large", LARGE, 24)
        make_table(world, "nothing", WIDE, 0)
        make_table(world, "busy", BUSY, 5000)
        world.activate("wide", "narrow", "large", "nothing", "busy")
        say("protocol of an empty snapshot")
        summary["protocol"] = protocol(world, "nothing", 10)
        say("admissions")
        summary["admission"] = admissions(postgres, 16, 12)
        say("values of 16 MiB")
        summary["large_values"] = large_values(world, "large")
        for name in ("narrow", "wide"):
            say(f"speed of the {name} table against its peers")
            summary[name] = speed(world, name, options.rows // 20, frames=name == "narrow")
        say(f"readers during {options.publications} publications")
        summary["readers"] = reading_while_publishing(world, "busy", 5000, options.publications)
    seen = summary["readers"]
    summary["passed"] = (
        seen["errors"] == seen["mixed"] == seen["empty"] == 0
        and seen["polls"] > seen["publications"] > 0
        and summary["admission"]["failed_workers"] == 0
    )
    return summary


def table(summary: Figures) -> list[str]:
    """The figures for a person, with what the design asks for."""
    lines = [f"{'measured':<46}{'figure':>14}   goal"]

    def line(what: str, figure: object, goal: str = "") -> None:
        lines.append(f"{what:<46}{figure!s:>14}   {goal}")

    for name in ("wide", "narrow"):
        found = summary[name]
        line(f"{name}: rows", f"{found['rows']:,}")
        for what, rate in found["rows_per_second"].items():
            line(f"{name}: {what.replace('_', ' ')}, rows/s", f"{rate:,}")
        line(f"{name}: end to end / slower of read and insert", found["end_to_end_over_slower_part"], ">= 0.7")
        line(f"{name}: end to end / row copy", found["end_to_end_over_row_copy"], ">= 5")
        line(f"{name}: RssAnon above idle, MiB", found["rss_anon_above_idle_mib"], "<= 256")
    line("16 MiB values: RssAnon above idle, MiB", summary["large_values"]["rss_anon_above_idle_mib"], "<= 256")
    line("empty snapshot, whole protocol, p50 ms", summary["protocol"]["p50_ms"], "<= 1000")
    line("  CPU of task, ClickHouse, ledger, ms", " ".join(str(v) for v in summary["protocol"]["cpu_ms"].values()))
    for step, spent in summary["protocol"]["steps_p50_ms"].items():
        line(f"  {step}", spent)
    line("claim to observed PUBLISHED, p50 ms", summary["protocol"]["claim_to_published_p50_ms"], "< 1000")
    admission, seen = summary["admission"], summary["readers"]
    line(f"admissions/s over {admission['workers']} workers", admission["per_second"], ">= 100")
    line("  CPU each, ms", admission["cpu_ms_each"])
    line(f"reads during {seen['publications']} publications", f"{seen['polls']:,}")
    line("reads with errors / mixed / empty", f"{seen['errors']} / {seen['mixed']} / {seen['empty']}", "0 / 0 / 0")
    return lines


def say(words: str) -> None:
    print(f"bench: {words}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--publications", type=int, default=100, help="at most this many, while readers read")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    started = time.monotonic()
    summary = run(options)
    summary["seconds"] = round(time.monotonic() - started, 1)
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print("\n".join(table(summary)))
    say(f"{summary['seconds']} s; {BUILD / 'summary.json'}")
    return 0 if summary["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
