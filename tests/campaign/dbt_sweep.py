"""The fault sweep of the dbt cell: ledger, controller and dbt's own connection behind proxies; task and dbt are struck."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.attempt_process import AttemptProcess
from tests.campaign.strikes import Strike
from tests.campaign.sweep import ROWS, Sweep
from tests.campaign.wire import FaultProxy, Message
from tests.dbt_world import DbtWorld, alive, project

FILES: Final = {
    "models__first": "{{ config(materialized='table') }}\nselect id, version from {{ source('feed', 'feed') }}",
    "models__second": "{{ config(materialized='view') }}\nselect count(*) as n from {{ ref('first') }}",
    "models__log": (
        "{{ config(materialized='incremental', unique_key='version', incremental_strategy='delete+insert') }}\n"
        "select max(version) as version from {{ ref('first') }}"
    ),
}
_SOURCE: Final = "sources: [{name: feed, schema: feed, tables: [{name: feed}]}]\n"
_CONTROL: Final = ("before", "after", "kill", "killed-unsent", "freeze", "term", "late", "torn")
_WORKER: Final = ("kill-dbt", "kill", "after", "freeze", "before", "outage", "term", "late", "torn", "slow")


class _Attempts:
    """Makes attempts the way :class:`AttemptProcess` asks for them, and writes down the process of dbt."""

    def __init__(self, world: DbtWorld, project_dir: Path) -> None:
        self._world, self._project = world, project_dir

    def cell(self, task: str, **options: Any) -> _Attempt:
        return _Attempt(self._world, self._project, task, options)


@dataclass
class _Attempt:
    world: DbtWorld
    project_dir: Path
    task: str
    options: dict[str, Any]

    running: Any = None

    def kill(self) -> None:
        """What a stop does to it."""
        if self.running is not None:
            self.running.kill()

    def run(self) -> Any:
        options = dict(self.options)
        pids = options.pop("pids", None)
        names = ("run_id", "try_number", "max_tries")
        coordinates = self.world.coordinates(self.task, **{n: options.pop(n) for n in names if n in options})
        with self.world.cell(self.project_dir, self.task, coordinates=coordinates, **options) as cell:
            if pids is not None:
                pids.write_text(str(cell._prepared.pid))
            self.running = cell
            return cell.run()


class DbtWorker(AttemptProcess):
    """An attempt in a process of its own; dbt is another, frozen and woken with it."""

    def __init__(self, attempts: _Attempts, pids: Path, **options: Any) -> None:
        pids.unlink(missing_ok=True)
        self._pids = pids
        super().__init__(attempts, "models", pids=pids, **options)  # type: ignore[arg-type]

    @property
    def dbt(self) -> int:
        return int(self._pids.read_text()) if self._pids.exists() and self._pids.read_text() else 0

    def signal_dbt(self, number: int) -> None:
        if self.dbt and alive(self.dbt):
            os.killpg(self.dbt, number)

    def freeze(self) -> None:
        self.signal_dbt(signal.SIGSTOP)
        super().freeze()

    def wake(self) -> None:
        super().wake()
        self.signal_dbt(signal.SIGCONT)


@dataclass
class DbtSweep(Sweep):
    """One schema with a small project that copies a feed, in which attempts are struck one after another."""

    world: DbtWorld  # type: ignore[assignment]
    attempts: _Attempts = field(init=False)
    done: ClassVar[str] = "SUCCEEDED"

    def prepare(self) -> None:
        """The feed, the project, the release, and where each end is."""
        world = self.world
        world.sql("CREATE SCHEMA feed")
        world.sql(f"CREATE TABLE feed.feed AS SELECT i AS id, 0 AS version FROM generate_series(1, {ROWS}) i")
        world.sql(f"GRANT USAGE ON SCHEMA feed TO {world.controller} WITH GRANT OPTION")
        world.sql(f"GRANT SELECT ON feed.feed TO {world.controller} WITH GRANT OPTION")
        directory = project(world.work / "project", **FILES)
        (directory / "models" / "feed.yml").write_text(_SOURCE)
        self.attempts = _Attempts(world, directory)
        host, port = world.postgres.host, world.postgres.port
        self.upstreams = dict.fromkeys(("control", "worker"), (host, port))
        self.upstreams["ledger"] = (world.ledger.host, world.ledger.port)
        self.attempts.cell("models", run_id="first").run()

    def plan(self, trace: dict[str, list[Message]]) -> list[Strike]:
        """Every statement of the gate in every way, every commit of the ledger and every third word of dbt in turn."""
        strikes: list[Strike] = []
        for end, messages in trace.items():
            turn = 0
            for message in messages:
                kinds: tuple[str, ...] = ()
                if end == "control" and message.label.startswith(("BEGIN", "UPDATE", "INSERT", "DROP", "CREATE")):
                    kinds = _CONTROL
                elif end == "control" or (end == "ledger" and message.opens):
                    turn += 1
                    kinds = (_CONTROL[turn // 8 % len(_CONTROL)],) if turn % 8 == 0 else ()
                elif end == "ledger" and message.label == "COMMIT":
                    turn += 1
                    kinds = (_CONTROL[turn % 4],)
                elif end == "worker":
                    turn += 1
                    kinds = (_WORKER[turn // 3 % len(_WORKER)],) if turn % 3 == 0 else ()
                strikes += [Strike(end, message.number, message.label, kind) for kind in kinds]
        return strikes

    def change(self) -> None:
        """Every row of the feed carries the version."""
        self.world.sql(f"UPDATE feed.feed SET version = {self.version}")

    def _attempt(self, run_id: str, try_number: int, line: dict[str, FaultProxy]) -> DbtWorker:
        ports = {"port": line["control"].port, "worker_port": line["worker"].port, "ledger_port": line["ledger"].port}
        pids = self.world.work / f"{run_id}-{try_number}.pid"
        return DbtWorker(self.attempts, pids, run_id=run_id, try_number=try_number, max_tries=200, **ports)

    def _act(self, strike: Strike, process: AttemptProcess) -> None:
        assert isinstance(process, DbtWorker)
        if strike.kind == "kill-dbt":
            process.signal_dbt(signal.SIGKILL)
        else:
            super()._act(strike, process)

    def _retry(self, run_id: str, try_number: int) -> Any:
        worker_port = self._line(0)["worker"].port  # the same profile, so that nothing is parsed again
        options = {"run_id": run_id, "try_number": try_number, "max_tries": 200, "worker_port": worker_port}
        return self.attempts.cell("models", **options).run()

    def reader(self) -> Callable[[], tuple[int, Any, Any]]:
        """The table a model makes, as a report reads it."""
        connection = self.world.postgres.connect(self.world.database)

        def read() -> tuple[int, Any, Any]:
            row = connection.execute("SELECT count(*), min(version), max(version) FROM mart.first").fetchone()
            assert row is not None
            return row[0], row[1], row[2]

        return read

    # --- the checker ---

    def _state(self) -> object:
        world = self.world
        return (
            world.relations(),
            world.sql("SELECT count(*), min(version), max(version) FROM mart.first"),
            world.sql("SELECT version, count(*) FROM mart.log GROUP BY version ORDER BY version"),
            world.sql("SELECT oid FROM pg_class WHERE relnamespace = 'mart'::regnamespace ORDER BY 1"),
        )

    def _check_target(self, what: str) -> None:
        """Exactly the project's relations with this version's rows; no login, session or process is left."""
        world, version = self.world, self.version
        relations = world.relations()
        wanted = {"first": "r", "log": "r", "second": "v"}
        self._must(what, relations == wanted, f"the schema holds {relations}")
        if relations != wanted:
            return
        first = world.sql("SELECT count(*), count(DISTINCT id), min(version), max(version) FROM mart.first")
        self._must(what, first == [(ROWS, ROWS, version, version)], f"first is not version {version}: {first}")
        logged = world.sql("SELECT count(*) FROM mart.log WHERE version = %s", version)
        self._must(what, logged == [(1,)], f"version {version} is logged {logged} times")
        twice = world.sql("SELECT version FROM mart.log GROUP BY version HAVING count(*) > 1")
        self._must(what, twice == [], f"logged more than once: {twice}")
        roles = [name for (name,) in self._ledger("SELECT name FROM dpone.principal")]
        usable = world.sql("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s) AND rolcanlogin", roles)
        self._must(what, usable == [], f"logins that can still be used: {usable}")
        sessions = world.sql("SELECT usename FROM pg_stat_activity WHERE usename = ANY(%s)", roles)
        self._must(what, sessions == [], f"sessions of closed logins: {sessions}")
        [(receipts, succeeded)] = self._ledger(
            "SELECT (SELECT count(*) FROM dpone.evidence WHERE kind = 11), (SELECT count(*) FROM dpone.attempt WHERE state = 2)"
        )
        self._must(what, receipts == succeeded, f"{receipts} receipts, {succeeded} attempts that succeeded")
        left = [path.name for path in (world.work / "runs").iterdir()]
        self._must(what, len(left) <= 1, f"working directories left: {left}")  # the next attempt removes one
