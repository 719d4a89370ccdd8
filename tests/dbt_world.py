"""A managed schema with a dbt project to run in it, whole attempts included."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_dpone.attempts.cells.dbt import DbtCell, DbtWork
from airflow_provider_dpone.attempts.sql import SqlWorld
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.contracts.dbt import DbtReceipt
from airflow_provider_dpone.contracts.identity import TaskCoordinates
from airflow_provider_dpone.engines.dbt.prepared import DbtSpec, PreparedDbt
from airflow_provider_dpone.engines.dbt.profile import DbtTarget
from airflow_provider_dpone.engines.postgres.load_target import PostgresTarget
from airflow_provider_dpone.engines.postgres.rights import GatePolicy
from airflow_provider_dpone.errors import DponeError
from tests.schema_world import SchemaWorld

SHOP = Path(__file__).parent.parent / "airflow_provider_dpone" / "local" / "demo" / "dbt_project"

SETTINGS = """
name: small
version: "1.0"
profile: dpone
config-version: 2
flags: {send_anonymous_usage_stats: false}
on-run-start: ["select 1 as begun"]
"""
#: A project of two models; tests add or change files.
SMALL = {
    "dbt_project.yml": SETTINGS,
    "models/first.sql": "{{ config(materialized='table') }}\nselect 1 as id, 'old' as word",
    "models/second.sql": "{{ config(materialized='view') }}\nselect id from {{ ref('first') }}",
}


def project(directory: Path, **files: str) -> Path:
    """Write a small project; ``models__x`` stands for ``models/x.sql``."""
    named = {f"{name.replace('__', '/')}.sql": text for name, text in files.items()}
    for name, text in {**SMALL, **named}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


@dataclass
class DbtWorld(SchemaWorld):
    """A schema, a ledger, and dbt attempts in it."""

    work: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="dpone-test-dbt-")))
    cache: Path | None = None

    def spec(self, project_dir: Path, worker_port: int | None = None, **options: Any) -> DbtSpec:
        port = worker_port or self.postgres.port
        settings = (("sslmode", "disable"),)
        target = DbtTarget("postgres", self.postgres.host, port, self.database, self.schema, settings)
        return DbtSpec(project_dir, target, self.work / "runs", self.cache or self.work / "cache", **options)

    @contextmanager
    def cell(
        self, project_dir: Path, task: str = "models", *, coordinates: TaskCoordinates | None = None,
        finished: bool = False, stop: StopFlag | None = None, port: int | None = None, ledger_port: int | None = None,
        **options: Any,
    ) -> Iterator[DbtCell]:  # fmt: skip
        """An attempt ready to run; the first one makes what it declares the active release."""
        stop = stop or StopFlag()
        with PreparedDbt(self.spec(project_dir, **options)) as prepared:
            prepared.prepare()
            if self.activation is None:
                self.activate(self.declare(task, "dbt", writes=prepared.plan.writes()))
            declaration = self.declare(task, "dbt", writes=prepared.plan.writes())
            world = self._sql_world(port, stop.check, ledger_port)
            work = DbtWork(declaration, "test", coordinates or self.coordinates(task), prepared)
            yield DbtCell(world, work, stop, lambda _: finished)

    def run(self, project_dir: Path, **options: Any) -> DbtReceipt:
        """One whole attempt."""
        with self.cell(project_dir, **options) as cell:
            return cell.run()

    def _sql_world(
        self, port: int | None = None, checkpoint: Callable[[], None] = lambda: None, ledger_port: int | None = None
    ) -> SqlWorld:
        target = PostgresTarget(self.control(port), GatePolicy(quiet_timeout=10.0))
        return SqlWorld(self.ledger.runtime(ledger_port), target, target.service_id(), checkpoint)

    def settle(self) -> list[str]:
        """Settle every open attempt as a later try would; the names of their states."""
        from airflow_provider_dpone.attempts.settle import Cause, Settler

        world = self._sql_world()
        settler = Settler(world)
        return [settler.settle(a, Cause("DPONE_FENCED", "settled")).state.name for a in world.attempts.all_open()]

    def relations(self) -> dict[str, str]:
        rows = self.sql(
            "SELECT c.relname::text, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = '{self.schema}' AND c.relkind IN ('r', 'v', 'm') ORDER BY 1"
        )
        return dict(rows)

    def sessions(self) -> list[tuple[Any, ...]]:
        """Sessions of issued logins: user, state, query."""
        return self.sql("SELECT usename, state, query FROM pg_stat_activity WHERE usename LIKE 'dpone_w_%%'")


class DbtAttemptProcess:
    """A forked process that runs a dbt attempt and leaves its result in a file."""

    def __init__(self, world: DbtWorld, project_dir: Path, **options: Any) -> None:
        self._result = Path(tempfile.mkstemp(suffix=".json")[1])
        self._pids = Path(tempfile.mkstemp(suffix=".pid")[1])
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            try:
                try:
                    with world.cell(project_dir, **options) as cell:
                        self._pids.write_text(str(cell._prepared.pid))
                        receipt = cell.run()
                    found: dict[str, Any] = {"state": receipt.state, "reused": receipt.reused}
                except DponeError as error:
                    found = {"code": error.code, "message": error.message}
                except BaseException as error:  # noqa: BLE001 - reported to the parent
                    found = {"code": type(error).__name__, "message": traceback.format_exc()}
                self._result.write_text(json.dumps(found))
            finally:
                os._exit(0)

    def dbt_pid(self) -> int:
        """The process of dbt."""
        wait_for(lambda: self._pids.read_text() != "", 60)
        return int(self._pids.read_text())

    def kill(self) -> None:
        """SIGKILL, and collect it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def result(self, timeout: float = 120.0) -> dict[str, Any]:
        """What it ended with."""
        wait_for(lambda: os.waitpid(self.pid, os.WNOHANG)[0] != 0, timeout)
        return dict(json.loads(self._result.read_text()))


def wait_for(ready: Any, seconds: float) -> None:
    """Look every few milliseconds; fails when it does not come true."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.03)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def texts_below(roots: Sequence[Path]) -> Iterator[tuple[Path, bytes]]:
    """Every file below these directories."""
    for root in roots:
        for path in root.rglob("*"):
            if path.is_file():
                yield path, path.read_bytes()
