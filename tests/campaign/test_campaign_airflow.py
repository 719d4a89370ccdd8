"""A load of a million rows, every mapped type among them, inside a real Airflow, with everything that can happen to it.

Readers poll the target all along, one statement at a time and within long repeatable-read transactions.
DPONE_CAMPAIGN_BULK_ROWS (default 1,000,000).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_provider_dpone.local.airflow import LocalAirflow
from airflow_provider_dpone.local.demo.checks import Checker
from airflow_provider_dpone.local.demo.scenario import command
from airflow_provider_dpone.local.stack import LocalStack
from tests.airflow.conftest import QUICK, until
from tests.campaign import report
from tests.campaign.wire import Fault, FaultProxy
from tests.integration.test_load import COLUMNS

ROWS = int(os.environ.get("DPONE_CAMPAIGN_BULK_ROWS", "1000000"))
#: One row in so many carries values of every type.
EVERY = 2_000
DAG = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.operators.load import SqlLoadOperator

with DAG("bulk", schedule=None, max_active_runs=4):
    SqlLoadOperator(
        task_id="load", source_conn_id="dpone_source", source_table="public.bulk", target_conn_id="dpone_mart",
        target_table="bulk.bulk", limits=SnapshotLimits(max_source_bytes="8 GiB"), retries=2,
        retry_delay=timedelta(seconds=1),
    )
"""
_COMMIT = "conclude"  # the worker's last message: receipt, fence and COMMIT
_SUCCEEDED, _FAILED = 2, 3


@dataclass
class Bulk:
    """Airflow with one DAG, whose target is reached through a proxy."""

    local: LocalStack
    airflow: LocalAirflow
    checker: Checker
    proxy: FaultProxy

    def source(self, statement: str) -> None:
        with psycopg.connect(**self.local.postgres.parameters("source"), autocommit=True) as connection:
            connection.execute(statement.encode())

    def mart(self, sql: str) -> list[tuple[Any, ...]]:
        return self.checker.postgres("mart", sql)

    def attempts(self, run_id: str) -> list[int]:
        sql = f"SELECT state FROM dpone.attempt WHERE run_id = '{run_id}' ORDER BY admitted_at"
        return [int(state) for (state,) in self.checker.postgres("dpone_control", sql)]

    def content(self) -> tuple[Any, ...]:
        return self.mart("SELECT count(*), min(version), max(version) FROM bulk.bulk")[0]

    def task(self, run_id: str) -> int:
        return int(self.airflow.task("bulk", run_id, "load")["pid"])

    def equal(self) -> bool:
        """Whether the target holds exactly the source, row for row."""
        read = (
            "SET TimeZone = 'UTC'; SET extra_float_digits = 1; "
            "SELECT count(*), sum(hashtextextended(t::text, 0)), sum(hashtextextended(t::text, 1)) FROM {} AS t"
        )
        return self.mart(read.format("bulk.bulk")) == self.checker.postgres("source", read.format("public.bulk"))


@pytest.fixture
def bulk(tmp_path: Path) -> Iterator[Bulk]:
    local = LocalStack(tmp_path / "stack")
    local.up()
    proxy = FaultProxy("127.0.0.1", local.postgres.port)
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "bulk.py").write_text(DAG)
    target = {**local.connections()["dpone_mart"], "port": proxy.port}
    airflow = LocalAirflow(
        tmp_path / "airflow", dags, {**local.env(), **QUICK, "AIRFLOW_CONN_DPONE_MART": json.dumps(target)}
    )
    found = Bulk(local, airflow, Checker(local.connections(), local.postgres.parameters()), proxy)
    try:
        _tables(found)
        enrolled = ("--conn-id", "dpone_mart_admin", "--controller", "mart_controller", "--schema", "bulk")
        command(airflow, "enroll", *enrolled)
        command(airflow, "activate", "--dags-folder", str(dags))
        airflow.start()
        airflow.wait_for_dags(["bulk"])
        yield found
    finally:
        airflow.stop()
        proxy.close()
        local.down()


def _tables(bulk: Bulk) -> None:
    kinds = [kind for kind in COLUMNS if kind != "money"]
    types = "CREATE TYPE public.colour AS ENUM ('red', 'dark blue'); CREATE TYPE public.pair AS (a int, b text);"
    columns = "id bigint NOT NULL, version int NOT NULL, amount numeric(18,2), name text, at timestamptz, " + ", ".join(
        f'"c{number}" {kind}' for number, kind in enumerate(kinds)
    )
    values = ", ".join(
        f"CASE WHEN i % {EVERY} = 0 THEN (ARRAY[{', '.join(f'({v})::{kind}' for v in COLUMNS[kind])}])"
        f"[1 + i / {EVERY} % {len(COLUMNS[kind])}] END"
        if not kind.endswith("[]")
        else f"CASE WHEN i % {EVERY} = 0 THEN ({COLUMNS[kind][0]})::{kind} END"
        for kind in kinds
    )
    bulk.source(types)
    bulk.source(f"CREATE TABLE bulk ({columns}); GRANT SELECT ON bulk TO source_reader")
    bulk.source(
        f"INSERT INTO bulk SELECT i, 1, i / 7.0, 'name ' || i, timestamptz '2024-01-01' + i * interval '1 second', {values}"
        f" FROM generate_series(1, {ROWS}) i"
    )
    with psycopg.connect(**bulk.local.postgres.parameters("mart"), autocommit=True) as connection:
        connection.execute(types.encode())
        connection.execute(b"CREATE ROLE bulk_owner NOLOGIN; CREATE SCHEMA bulk AUTHORIZATION bulk_owner")
        connection.execute(f"SET ROLE bulk_owner; CREATE TABLE bulk.bulk ({columns})".encode())
        connection.execute(
            b"INSERT INTO bulk.bulk (id, version) SELECT i, 0 FROM generate_series(1, 1000) i; RESET ROLE"
        )


def _read(parameters: dict[str, Any], stop: Any, place: Path, repeatable: bool) -> None:
    """Poll the target; every read is one whole snapshot, and a repeatable-read transaction sees one only."""
    seen = {"polls": 0, "errors": 0, "mixed": 0, "empty": 0}
    with psycopg.connect(**parameters, autocommit=True) as connection:
        while not stop.is_set():
            try:
                with connection.transaction():
                    if repeatable:
                        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    reads = set()
                    for _ in range(4 if repeatable else 1):
                        [found] = connection.execute("SELECT count(*), min(version), max(version) FROM bulk.bulk")
                        reads.add(found)
                        seen["polls"] += 1
                        time.sleep(0.2)
                seen["empty"] += any(rows == 0 for rows, _, _ in reads)
                seen["mixed"] += len(reads) != 1 or any(low != high for _, low, high in reads)
            except psycopg.Error as error:
                print(f"reader: {error!r}", flush=True)
                seen["errors"] += 1
                if connection.closed:
                    break
    place.write_text(json.dumps(seen))


@pytest.mark.timeout(2400)
def test_a_million_rows_inside_airflow_whatever_happens_at_their_commit(bulk: Bulk, tmp_path: Path) -> None:
    stop = multiprocessing.Event()
    places = [tmp_path / "plain.json", tmp_path / "repeatable.json"]
    parameters = bulk.local.postgres.parameters("mart")
    readers = [
        multiprocessing.Process(target=_read, args=(parameters, stop, place, place.stem == "repeatable"), daemon=True)
        for place in places
    ]
    for reader in readers:
        reader.start()
    rows: list[dict[str, Any]] = []
    try:
        _everything_that_can_happen(bulk, rows)
    finally:
        stop.set()
    for reader in readers:
        reader.join(60)
    seen = {place.stem: json.loads(place.read_text()) for place in places}
    bulk.source("DELETE FROM bulk")
    _run(bulk, "empty", "success")
    assert bulk.content() == (0, None, None)
    rows.append({"case": "empty source", "attempts": bulk.attempts("empty")})
    bad = sum(found[key] for found in seen.values() for key in ("errors", "mixed", "empty"))
    report.add(bad == 0, bulk={"rows": ROWS, "columns": len(COLUMNS) + 4, "cases": rows, "readers": seen})
    assert bad == 0, seen
    assert all(found["polls"] > 0 for found in seen.values())
    ledger = bulk.checker.ledger()
    assert [ledger[k] for k in ("running", "commit_unknown", "open_guards", "open_gates")] == [0, 0, 0, 0], ledger
    assert bulk.mart("SELECT rolname FROM pg_roles WHERE rolname ~ '^dpone_w_'") == []


def _everything_that_can_happen(bulk: Bulk, rows: list[dict[str, Any]]) -> None:
    for number, (name, act) in enumerate(CASES.items(), 2):
        bulk.source(f"UPDATE bulk SET version = {number}; DELETE FROM bulk WHERE id % 997 = {number}")
        started = time.monotonic()
        bulk.proxy.arm(None)
        act(bulk, name, number)
        rows.append({"case": name, "attempts": bulk.attempts(name), "seconds": round(time.monotonic() - started, 1)})
        print(f"{rows[-1]}", flush=True)


def _run(bulk: Bulk, run_id: str, wanted: str) -> None:
    bulk.airflow.trigger("bulk", run_id)
    assert bulk.airflow.wait("bulk", run_id, 400) == wanted


def _loaded(bulk: Bulk, run_id: str, version: int, attempts: list[int]) -> None:
    assert bulk.attempts(run_id) == attempts
    found = bulk.content()
    assert found[1:] == (version, version)
    assert bulk.equal()


def _plain(bulk: Bulk, run_id: str, version: int) -> None:
    _run(bulk, run_id, "success")
    _loaded(bulk, run_id, version, [_SUCCEEDED])


def _struck(kind: str, attempts: list[int], kill: bool = False) -> Callable[[Bulk, str, int], None]:
    """The commit of the first try meets this fault; ``kill``: and its task dies with it."""

    def act(bulk: Bulk, run_id: str, version: int) -> None:
        struck = threading.Event()

        def reached() -> None:
            if kill:
                os.kill(bulk.task(run_id), signal.SIGKILL)
            struck.set()

        bulk.proxy.arm(Fault(kind, 0, reached=reached, label=_COMMIT))
        _run(bulk, run_id, "success")
        assert struck.is_set()
        _loaded(bulk, run_id, version, attempts)

    return act


def _zombie(bulk: Bulk, run_id: str, version: int) -> None:
    """Its COMMIT is under way when its supervisor dies; the retry loads, and then the COMMIT arrives."""
    struck = threading.Event()
    bulk.proxy.arm(Fault("hold", 0, reached=struck.set, label=_COMMIT))
    bulk.airflow.trigger("bulk", run_id)
    assert struck.wait(400)
    task = bulk.task(run_id)
    os.kill(int(Path(f"/proc/{task}/stat").read_text().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
    assert bulk.airflow.wait("bulk", run_id, 400) == "success"
    before = bulk.mart("SELECT min(xmin::text), max(xmin::text) FROM bulk.bulk")
    bulk.proxy.release()
    until(lambda: not Path(f"/proc/{task}").exists(), "the orphan ended", 120)
    assert bulk.mart("SELECT min(xmin::text), max(xmin::text) FROM bulk.bulk") == before
    _loaded(bulk, run_id, version, [_FAILED, _SUCCEEDED])


def _fails_after_delete(bulk: Bulk, run_id: str, version: int) -> None:
    before = bulk.content()
    with psycopg.connect(**bulk.local.postgres.parameters("mart"), autocommit=True) as connection:
        connection.execute(f"ALTER TABLE bulk.bulk ADD CONSTRAINT no CHECK (version <> {version}) NOT VALID".encode())
        _run(bulk, run_id, "failed")
        connection.execute(b"ALTER TABLE bulk.bulk DROP CONSTRAINT no")
    assert bulk.content() == before
    assert set(bulk.attempts(run_id)) == {_FAILED}


CASES: dict[str, Callable[[Bulk, str, int], None]] = {
    "plain": _plain,
    "killed_before_its_commit_arrives": _struck("before", [_FAILED, _SUCCEEDED], kill=True),
    "killed_after_its_commit": _struck("after", [_SUCCEEDED], kill=True),
    "commit_lost": _struck("before", [_FAILED, _SUCCEEDED]),
    "answer_of_the_commit_lost": _struck("after", [_SUCCEEDED]),
    "zombie_whose_commit_arrives_late": _zombie,
    "fails_after_the_old_rows_are_deleted": _fails_after_delete,
}
