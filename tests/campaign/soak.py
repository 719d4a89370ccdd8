"""Load and soak: many snapshots at once over a few guards, workers killed at random, readers polling all along.

What a scheduler does is done here by hand: a run whose worker died is tried again, one that finds its target held waits
and asks again, and whether another run still has a worker is told by files. In the end every run is published, once.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from airflow_provider_dpone.contracts.identity import TaskCoordinates
from tests.attempt_process import AttemptProcess
from tests.snapshot_world import SnapshotWorld

ROWS: Final = 200


@dataclass
class _Run:
    """One run of one table, however often it is tried."""

    table: str
    run_id: str
    try_number: int = 1
    worker: AttemptProcess | None = None
    killed: bool = False
    again_at: float = 0.0
    """When it may ask again, after it found its target held."""


@dataclass
class Soak:
    """A world with some tables, and what happened in it."""

    world: SnapshotWorld
    folder: Path
    tables: int = 16
    parallel: int = 64
    runs: list[_Run] = field(default_factory=list)
    started: int = 0
    kills: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def prepare(self) -> None:
        """Tables, enrolment, one release."""
        world, names = self.world, [f"soak{n}" for n in range(self.tables)]
        for name in names:
            world.pg(f"CREATE TABLE {name} (id bigint NOT NULL, version integer NOT NULL)")
            world.pg(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, {ROWS}) i")
            world.ch(f"CREATE TABLE {world.database}.{name} (id Int64, version Int32) ENGINE = MergeTree ORDER BY id")
            world.ch(f"INSERT INTO {world.database}.{name} SELECT number, 0 FROM numbers({ROWS})")
        world.activate(*names)
        self.names = names

    def run(self, seconds: float, settle_seconds: float = 240.0) -> dict[str, Any]:
        """Soak for a while, then let every run come to its end; the figures."""
        self.folder.mkdir(parents=True, exist_ok=True)
        reading, changing = self._reader(), threading.Event()
        changer = threading.Thread(target=self._change, args=(changing,))
        changer.start()
        deadline = time.monotonic() + seconds
        chance, number, next_kill = random.Random(7), 0, time.monotonic() + 1.0
        try:
            while time.monotonic() < deadline:
                while len(self.runs) < self.parallel:
                    self.runs.append(_Run(self.names[number % self.tables], f"run{number}"))
                    number += 1
                self._turn()
                alive = [r for r in self.runs if r.worker is not None]
                if alive and time.monotonic() > next_kill:
                    self._kill(chance.choice(alive))
                    next_kill = time.monotonic() + chance.uniform(0.2, 1.2)
                time.sleep(0.02)
            limit = time.monotonic() + settle_seconds
            while self.runs and time.monotonic() < limit:
                self._turn()
                time.sleep(0.02)
        finally:
            changing.set()
            changer.join()
            for run in self.runs:
                if run.worker is not None:
                    run.worker.kill()
        if self.runs:
            self.violations.append(f"{len(self.runs)} of {number} runs did not end within {settle_seconds:.0f} s")
        readers = reading()
        self._check(number)
        return {
            "parallel": self.parallel,
            "guards": self.tables,
            "runs": number,
            "attempts": self._count("SELECT count(*) FROM dpone.attempt"),
            "kills": self.kills,
            "published": self._count("SELECT count(*) FROM dpone.publication WHERE state = 3"),
            "ended": self.ended,
            "readers": readers,
            "violations": self.violations,
        }

    # --- a scheduler by hand ---

    def _turn(self) -> None:
        for run in list(self.runs):
            if run.worker is None:
                if time.monotonic() >= run.again_at:
                    self._start(run)
            elif run.worker.ended():
                self._ended(run)

    def _start(self, run: _Run) -> None:
        (self.folder / f"{run.run_id}-{run.try_number}").touch()
        run.worker = AttemptProcess(
            self.world,
            run.table,
            run_id=run.run_id,
            try_number=run.try_number,
            max_tries=1000,
            finished=self._finished,
        )
        self.started += 1

    def _finished(self, theirs: TaskCoordinates) -> bool:
        """What Airflow would say: is there no worker for this try?"""
        return not (self.folder / f"{theirs.run_id}-{theirs.try_number}").exists()

    def _kill(self, run: _Run) -> None:
        assert run.worker is not None
        if not run.worker.ended():
            run.worker.kill()
            self.kills += 1
            run.killed = True

    def _ended(self, run: _Run) -> None:
        assert run.worker is not None
        result: dict[str, Any] = {"code": "killed"} if run.killed else run.worker.result()
        (self.folder / f"{run.run_id}-{run.try_number}").unlink()
        run.worker, run.killed = None, False
        what = str(result.get("code") or result["state"])
        self.ended[what] = self.ended.get(what, 0) + 1
        if what == "PUBLISHED":
            self.runs.remove(run)
        elif what == "DPONE_GUARD_HELD":
            run.again_at = time.monotonic() + 0.5  # deferred: the same try asks again, as another instance
        else:
            run.try_number += 1
            if what not in _RETRIED:
                self.violations.append(f"{run.run_id} of {run.table} ended with {result}")
                self.runs.remove(run)

    # --- beside it ---

    def _change(self, stop: threading.Event) -> None:
        """The sources change all along, each in one transaction."""
        version = 0
        while not stop.wait(0.3):
            version += 1
            self.world.pg(f"UPDATE {self.names[version % self.tables]} SET version = {version}")

    def _reader(self) -> Callable[[], dict[str, int]]:
        place = self.folder / "readers.json"
        pid = os.fork()
        if pid == 0:
            seen = {"polls": 0, "errors": 0, "mixed": 0, "empty": 0}
            client, parent = self.world.clickhouse.client(), os.getppid()
            while not place.exists() and os.getppid() == parent:
                name = self.names[seen["polls"] % self.tables]
                try:
                    [(rows, low, high)] = client.execute(
                        f"SELECT count(), min(version), max(version) FROM {self.world.database}.{name}"
                    )
                    seen["empty"] += rows == 0
                    seen["mixed"] += rows not in (0, ROWS) or low != high
                except Exception as error:  # noqa: BLE001 - any error of a reader is what is counted
                    print(f"reader: {error!r}", flush=True)
                    seen["errors"] += 1
                seen["polls"] += 1
                time.sleep(0.02)
            place.write_text(json.dumps(seen))
            os._exit(0)

        def stop() -> dict[str, int]:
            place.touch()
            os.waitpid(pid, 0)
            return dict(json.loads(place.read_text()))

        return stop

    # --- the checker ---

    def _count(self, sql: str) -> int:
        with psycopg.connect(
            **{**self.world.postgres.superuser, "dbname": self.world.ledger.dbname}  # type: ignore[arg-type]
        ) as connection:
            row = connection.execute(sql.encode()).fetchone()
        assert row is not None
        return int(str(row[0]))

    def _check(self, runs: int) -> None:
        def must(holds: bool, text: str) -> None:
            if not holds:
                self.violations.append(text)

        for what, sql in {
            "open attempts": "SELECT count(*) FROM dpone.attempt WHERE state IN (1, 4)",
            "open guards": "SELECT count(*) FROM dpone.attempt_guard WHERE is_open",
            "open gates": "SELECT count(*) FROM dpone.principal WHERE state <> 4",
            "open dispatches": "SELECT count(*) FROM dpone.dispatch WHERE state = 1",
        }.items():
            must(self._count(sql) == 0, f"{self._count(sql)} {what}")
        published = self._count("SELECT count(*) FROM dpone.publication WHERE state = 3")
        with_success = self._count("SELECT count(DISTINCT run_id) FROM dpone.attempt WHERE state = 2")
        must(with_success == runs, f"{with_success} of {runs} runs succeeded")
        self.world.ch("SYSTEM FLUSH LOGS")
        [(effective, most)] = self.world.ch(
            "SELECT count(), max(times) FROM (SELECT query_id, countIf(type = 'QueryFinish' OR exception_code = 394) AS times"
            f" FROM system.query_log WHERE query ILIKE 'EXCHANGE TABLES%' AND query LIKE '%{self.world.database}%'"
            " GROUP BY query_id HAVING times > 0)"
        )
        must((effective, most) == (published, 1), f"{effective} effective EXCHANGEs for {published} publications")
        for name in self.names:
            [(rows, ids, low, high)] = self.world.ch(
                f"SELECT count(), uniqExact(id), min(version), max(version) FROM {self.world.database}.{name}"
            )
            must((rows, ids, low) == (ROWS, ROWS, high), f"{name} is not one snapshot: {rows} rows, {low}..{high}")


#: Ends of a try that a scheduler tries again.
_RETRIED: Final = frozenset(
    {"killed", "DPONE_LEDGER_BUSY", "DPONE_LEDGER_UNAVAILABLE", "DPONE_LEDGER_COMMIT_UNKNOWN", "DPONE_SERVER_UNREACHABLE",
     "DPONE_GATE_NOT_CLOSED", "DPONE_OUTCOME_PENDING", "DPONE_ANSWER_LOST", "DPONE_NOT_PUBLISHED", "DPONE_FENCED"}
)  # fmt: skip
