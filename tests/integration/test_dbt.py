"""dbt attempts on a real PostgreSQL under real one-time logins."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_dpone.attempts.cells.dbt import DbtCell
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.contracts.dbt import DbtReceipt, DbtRun
from airflow_provider_dpone.contracts.proofs import Outcome
from airflow_provider_dpone.contracts.states import AttemptState
from airflow_provider_dpone.engines.dbt.prepared import PreparedDbt
from airflow_provider_dpone.engines.postgres.gate import PostgresGate
from airflow_provider_dpone.engines.postgres.relations import PostgresManagedSchema
from airflow_provider_dpone.errors import (
    DbtInterrupted,
    DbtModelFailed,
    DbtProjectInvalid,
    DbtRelationOutside,
    DbtRelationRefused,
    DbtTestFailed,
    GuardHeld,
    Stopped,
)
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.schema import EvidenceKind
from tests.dbt_world import SHOP, DbtAttemptProcess, DbtWorld, alive, project, texts_below, wait_for
from tests.ledger_database import LedgerDatabase
from tests.servers import PostgresUnderTest

SLEEPING = "{{ config(materialized='table') }}\nselect 1 as id, 'new' as word, pg_sleep(60)::text as slept"
FAILING = "{{ config(materialized='table') }}\nselect 1 / 0 as id, 'new' as word"
HEALTHY = "{{ config(materialized='table') }}\nselect 1 as id, 'new' as word"


@pytest.fixture(scope="module")
def parses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved parses shared by the tests of this file."""
    return tmp_path_factory.mktemp("parses")


@pytest.fixture
def world(postgres_server: PostgresUnderTest, ledger_database: LedgerDatabase, parses: Path) -> Iterator[DbtWorld]:
    return DbtWorld(postgres_server, ledger_database, cache=parses)


def outcomes(world: DbtWorld) -> list[tuple[AttemptState, str | None, str]]:
    """How every attempt ended, oldest first."""
    store = CompositionAttemptStore(world.ledger.runtime())
    found = []
    for stored in store.latest(20):
        for raw in store.originals(stored.sha256, EvidenceKind.OUTCOME):
            outcome = Outcome.parse(raw)
            found.append((outcome.state, outcome.code, outcome.reason))
    return found


class Watched:
    """Sees every login that goes to dbt, and where else it can be seen while dbt runs. Changes nothing."""

    def __init__(self, world: DbtWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logins: list[tuple[str, str]] = []
        self.exposed: list[str] = []
        build = PreparedDbt.build

        def watched(prepared: PreparedDbt, attempt: str, user: str, password: str) -> DbtRun:
            self.logins.append((user, password))
            ended = threading.Event()
            looking = threading.Thread(target=self._look, args=(world, prepared.pid, password, ended))
            looking.start()
            try:
                return build(prepared, attempt, user, password)
            finally:
                ended.set()
                looking.join()
                self._files(world, password)

        monkeypatch.setattr(PreparedDbt, "build", watched)

    def _look(self, world: DbtWorld, pid: int, password: str, ended: threading.Event) -> None:
        while not ended.wait(0.2):
            for name in ("cmdline", "environ"):
                try:
                    if password.encode() in Path(f"/proc/{pid}/{name}").read_bytes():
                        self.exposed.append(name)
                except (FileNotFoundError, ProcessLookupError):
                    return
            if any(password in str(row) for row in world.sql("SELECT * FROM pg_stat_activity")):
                self.exposed.append("pg_stat_activity")

    def _files(self, world: DbtWorld, password: str) -> None:
        roots = [world.work, world.postgres.server.directory, *([world.cache] if world.cache else [])]
        found = [str(path) for path, content in texts_below(roots) if password.encode() in content]
        self.exposed += found


def parsed_files(prepared: PreparedDbt) -> int:
    """How many files dbt parsed, by its own account."""
    assert prepared._workspace is not None
    told = json.loads((prepared._workspace.target / "perf_info.json").read_text())
    return sum(parser["parsed_path_count"] for p in told["projects"] for parser in p["parsers"])


def test_the_whole_shop_is_built_and_a_new_login_parses_nothing_again(
    world: DbtWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    watched = Watched(world, monkeypatch)
    world.sql("CREATE ROLE reader_" + world.tag)
    options: dict[str, Any] = {"exclude": ("tag:fails_on_purpose",)}
    first = world.coordinates("models")
    with world.cell(SHOP, coordinates=first, **options) as cell:
        assert parsed_files(cell._prepared) > 30
        receipt = cell.run()
    assert (receipt.state, receipt.reused, receipt.models, receipt.seeds) == ("SUCCEEDED", False, 24, 7)
    assert (receipt.snapshots, receipt.tests) == (2, 24)
    assert receipt.rows["fct_orders"] == 180
    assert next(node.partition(".")[2] for node in receipt.warnings).startswith("dpone_shop.orders_that_came_back")
    assert world.roles() == []
    owners = world.sql(
        "SELECT DISTINCT r.rolname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner "
        "WHERE c.relnamespace = 'mart'::regnamespace"
    )
    assert owners == [(world.owner,)]

    retry = world.coordinates("models", try_number=2)
    with world.cell(SHOP, coordinates=retry, **options) as cell:
        assert parsed_files(cell._prepared) == 0
        again = cell.run()
    assert again.reused
    assert again.attempt_sha256 == receipt.attempt_sha256
    assert len(watched.logins) == 1

    with world.cell(SHOP, coordinates=world.coordinates("models", run_id="next"), **options) as cell:
        assert parsed_files(cell._prepared) == 0
        following = cell.run()
    assert not following.reused
    assert following.rows == receipt.rows  # incremental models included
    assert len({user for user, _ in watched.logins}) == 2
    assert len({password for _, password in watched.logins}) == 2
    assert watched.exposed == []
    assert all(password not in caplog.text for _, password in watched.logins)
    assert "fct_orders" in caplog.text
    assert list((world.work / "runs").iterdir()) == []
    with world.ledger.connect_admin() as connection:
        dump = str(connection.execute("SELECT convert_from(document, 'UTF8') FROM dpone.evidence").fetchall())
    assert all(password not in dump for _, password in watched.logins)


def test_a_failing_model_and_a_failing_test_end_differently_and_what_was_built_stays(
    world: DbtWorld, tmp_path: Path
) -> None:
    world.run(project(tmp_path / "v1"))
    with pytest.raises(DbtModelFailed, match=r"model\.small\.first .*division by zero"):
        world.run(project(tmp_path / "v2", models__first=FAILING), coordinates=world.coordinates("models", run_id="2"))
    assert world.sql("SELECT word FROM mart.first") == [("old",)]
    tested = project(tmp_path / "v3", models__first=HEALTHY, tests__none="select * from {{ ref('first') }}")
    with pytest.raises(DbtTestFailed, match=r"test\.small\.none"):
        world.run(tested, coordinates=world.coordinates("models", run_id="3"))
    assert world.sql("SELECT word FROM mart.first") == [("new",)]
    assert [code for _, code, _ in outcomes(world)] == [None, "DPONE_DBT_MODEL_FAILED", "DPONE_DBT_TEST_FAILED"]
    assert world.roles() == []


def test_a_killed_task_takes_dbt_along_and_the_next_try_puts_the_schema_in_order(
    world: DbtWorld, tmp_path: Path
) -> None:
    healthy = project(tmp_path / "v1")
    world.run(healthy)
    process = DbtAttemptProcess(
        world, project(tmp_path / "v2", models__first=SLEEPING), coordinates=world.coordinates("models", run_id="2")
    )
    wait_for(lambda: any("pg_sleep" in query for _, _, query in world.sessions()), 60)
    with pytest.raises(GuardHeld):  # a second run on the same schema waits
        world.run(healthy, coordinates=world.coordinates("models", run_id="3"))
    child = process.dbt_pid()
    assert alive(child)
    process.kill()
    wait_for(lambda: not alive(child), 5)
    # where renames are no transaction, a kill between them leaves exactly this
    world.sql("ALTER TABLE mart.first RENAME TO first__dbt_backup")
    world.sql(f"SET ROLE {world.owner}; CREATE TABLE mart.first__dbt_tmp (id int)")

    assert world.settle() == ["FAILED"]
    assert world.sessions() == []
    state, code, reason = outcomes(world)[-1]
    assert (state, code) == (AttemptState.FAILED, "DPONE_DBT_TARGET_UNEXPECTED")
    assert "first is missing, and what it held is in first__dbt_backup: run again" in reason

    receipt = world.run(healthy, coordinates=world.coordinates("models", run_id="2", try_number=2))
    assert (receipt.restored, receipt.removed) == (("first",), ("first__dbt_tmp",))
    assert world.relations() == {"first": "r", "second": "v"}
    assert list((world.work / "runs").iterdir()) == []  # the killed task's directory too


def test_kill_9_between_the_renames_of_a_model_leaves_the_old_table(world: DbtWorld, tmp_path: Path) -> None:
    world.run(project(tmp_path / "v1"))
    world.sql(
        """CREATE FUNCTION public.slow_rename() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        IF EXISTS (SELECT FROM pg_class WHERE relname = 'first__dbt_backup' AND relnamespace = 'mart'::regnamespace)
        AND session_user LIKE 'dpone_w_%%' THEN PERFORM pg_sleep(60); END IF; END $$"""
    )
    world.sql(
        "CREATE EVENT TRIGGER slow_rename ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION slow_rename()"
    )
    process = DbtAttemptProcess(
        world, project(tmp_path / "v2", models__first=HEALTHY), coordinates=world.coordinates("models", run_id="2")
    )
    wait_for(lambda: any("rename to" in query for _, _, query in world.sessions()), 60)
    process.kill()
    world.sql("DROP EVENT TRIGGER slow_rename")
    assert world.settle() == ["FAILED"]
    assert outcomes(world)[-1][1] == "DPONE_DBT_INTERRUPTED"
    assert world.sql("SELECT word FROM mart.first") == [("old",)]
    assert world.relations() == {"first": "r", "second": "v"}
    retry = world.coordinates("models", run_id="2", try_number=2)
    assert world.run(project(tmp_path / "v3", models__first=HEALTHY), coordinates=retry).state == "SUCCEEDED"


def test_a_finished_run_whose_task_died_before_saying_so_is_a_success(
    world: DbtWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DbtCell, "_judged", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    healthy = project(tmp_path / "v1")
    with world.cell(healthy):
        pass  # makes the release
    process = DbtAttemptProcess(world, healthy, coordinates=world.coordinates("models"))
    os.waitpid(process.pid, 0)
    monkeypatch.undo()
    assert world.settle() == ["SUCCEEDED"]
    assert world.run(healthy, coordinates=world.coordinates("models", try_number=2)).reused


def test_dbt_killed_alone_is_an_interrupted_run(world: DbtWorld, tmp_path: Path) -> None:
    with world.cell(project(tmp_path / "v1", models__first=SLEEPING)) as cell:
        killer = threading.Thread(
            target=lambda: (
                wait_for(lambda: any("pg_sleep" in query for _, _, query in world.sessions()), 60),
                os.kill(cell._prepared.pid, signal.SIGKILL),
            )
        )
        killer.start()
        with pytest.raises(DbtInterrupted, match="by signal 9"):
            cell.run()
        killer.join()
    assert world.sessions() == []
    assert world.roles() == []


def test_a_stop_ends_dbt_and_its_login_within_seconds(world: DbtWorld, tmp_path: Path) -> None:
    stop = StopFlag()
    with world.cell(project(tmp_path / "v1", models__first=SLEEPING), stop=stop) as cell:
        failures: list[BaseException] = []

        def run() -> None:
            try:
                cell.run()
            except Stopped as error:
                failures.append(error)

        running = threading.Thread(target=run)
        running.start()
        wait_for(lambda: any("pg_sleep" in query for _, _, query in world.sessions()), 60)
        stop.set("killed by Airflow")
        closing = threading.Thread(target=cell.kill)
        closing.start()
        wait_for(lambda: not alive(cell._prepared.pid), 2)
        wait_for(lambda: world.sessions() == [], 4)
        closing.join()
        running.join()
    assert len(failures) == 1
    assert outcomes(world)[-1][0] is AttemptState.FAILED


def test_what_the_project_must_not_do_is_refused_before_anything_is_admitted(world: DbtWorld, tmp_path: Path) -> None:
    healthy = project(tmp_path / "v1")
    receipt: DbtReceipt = world.run(healthy)
    world.sql("CREATE SCHEMA others")
    world.sql("CREATE VIEW others.daily AS SELECT * FROM mart.first")
    with pytest.raises(DbtRelationRefused, match=r"others\.daily on first"):
        world.run(healthy, coordinates=world.coordinates("models", run_id="2"))
    elsewhere = project(tmp_path / "v2", models__third="{{ config(schema='elsewhere') }}\nselect 1 as id")
    with pytest.raises(DbtRelationOutside, match=r"model\.small\.third writes target_\w+\.mart_elsewhere\.third"):
        world.run(elsewhere)
    with pytest.raises(DbtProjectInvalid, match="depends on a node named 'nowhere'"):
        world.run(project(tmp_path / "v3", models__third="select * from {{ ref('nowhere') }}"))
    with pytest.raises(DbtProjectInvalid, match="no dbt_project"):
        world.run(tmp_path)
    store = CompositionAttemptStore(world.ledger.runtime())
    assert [a.sha256 for a in store.latest(10)] == [receipt.attempt_sha256]


def test_dbt_has_ended_before_its_login_is_closed(
    world: DbtWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that still runs would meet a login that is gone in the middle of a model, and say so as its failure."""
    closed: list[bool] = []
    close = PostgresGate.close

    def look(self: PostgresGate, name: str) -> Any:
        closed.append(alive(cell._prepared.pid))
        return close(self, name)

    with world.cell(project(tmp_path / "v1", models__first=SLEEPING)) as cell:
        build = cell._prepared.build

        def broken(*args: Any) -> Any:
            started = threading.Thread(target=build, args=args, daemon=True)
            started.start()
            wait_for(lambda: any("pg_sleep" in query for _, _, query in world.sessions()), 60)
            raise TimeoutError("whatever ends the step")

        monkeypatch.setattr(cell._prepared, "build", broken)
        monkeypatch.setattr(PostgresGate, "close", look)
        with pytest.raises(TimeoutError):
            cell.run()
    assert closed
    assert not any(closed)
    assert world.roles() == []


def test_a_schema_that_changes_while_it_is_read_back_is_looked_at_again(
    world: DbtWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = PostgresManagedSchema.rows
    meddled: list[int] = []

    def meddle(self: PostgresManagedSchema, *args: Any) -> Any:
        read = rows(self, *args)
        if not meddled:
            meddled.append(1)
            world.sql(f"SET ROLE {world.owner}; CREATE TABLE {world.schema}.late (id int)")
        return read

    healthy = project(tmp_path / "v1")
    monkeypatch.setattr(PostgresManagedSchema, "rows", meddle)
    receipt = world.run(healthy)
    assert meddled
    assert receipt.undeclared == ("late",)  # all that the receipt says was seen at one time
