"""dbt on SQL Server: a whole attempt under a one-time login, and a killed one put in order by the next."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_dpone.attempts.sql import SqlWorld
from airflow_provider_dpone.engines.dbt.prepared import DbtSpec
from airflow_provider_dpone.engines.dbt.profile import DbtTarget
from airflow_provider_dpone.errors import DponeError
from tests.dbt_world import DbtWorld, project
from tests.ledger_database import LedgerDatabase
from tests.live_mssql import target_stand_in
from tests.live_mssql.target_world import MssqlWorld
from tests.mssql_server import MssqlServer
from tests.servers import PostgresUnderTest

pytestmark = pytest.mark.timeout(900)


@dataclass
class MssqlDbtWorld(MssqlWorld, DbtWorld):
    """A dedicated database with a dbt project to run in it."""

    def spec(self, project_dir: Path, worker_port: int | None = None, **options: Any) -> DbtSpec:
        settings = (("driver", self.mssql.keywords["driver"]), ("trust_cert", True),
                    ("encrypt", self.mssql.keywords.get("encrypt", "yes") != "no"))  # fmt: skip
        found = {name: os.environ[name] for name in ("ODBCSYSINI", "LD_LIBRARY_PATH") if name in os.environ}
        options.setdefault("environment", found)  # where this machine has the driver
        target = DbtTarget(
            "sqlserver", self.mssql.host, worker_port or self.mssql.port, self.database, self.schema, settings
        )
        return DbtSpec(project_dir, target, self.work / "runs", self.cache or self.work / "cache", **options)

    def _sql_world(
        self, port: int | None = None, checkpoint: Any = lambda: None, ledger_port: int | None = None
    ) -> SqlWorld:
        target = self.target(port)
        return SqlWorld(self.ledger.runtime(ledger_port), target, target.service_id(), checkpoint)

    def relations(self) -> dict[str, str]:
        rows = self.sql(
            "SELECT name, RTRIM(type) FROM sys.objects WHERE schema_id = SCHEMA_ID(N'mart') AND type IN ('U', 'V')"
        )
        return {str(name): str(kind) for name, kind in rows}


@pytest.fixture
def world(
    mssql_server: MssqlServer, postgres_server: PostgresUnderTest, ledger_database: LedgerDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[MssqlDbtWorld]:  # fmt: skip
    if mssql_server.stand_in:
        target_stand_in.use(monkeypatch, makers=True)
    made = MssqlDbtWorld(postgres_server, ledger_database, mssql=mssql_server)
    yield made
    made.remove()


def small(world: MssqlDbtWorld, directory: Path, **files: str) -> Path:
    if world.mssql.stand_in:
        files = {
            "macros__stand_in": target_stand_in.DBT_MACROS,
            "models__first": "{{ config(materialized='table', as_columnstore=False) }}\nselect 1 as id, 'old' as word",
            **files,
        }
    return project(directory, **files)


def test_a_project_is_built_and_read_back(world: MssqlDbtWorld, tmp_path: Path) -> None:
    receipt = world.run(small(world, tmp_path))
    assert receipt.state == "SUCCEEDED"
    assert receipt.models == 2
    assert receipt.rows == {"first": 1}
    assert world.relations() == {"first": "U", "second": "V"}
    assert world.roles() == []
    counts = world.ledger_counts()
    assert (counts["succeeded"], counts["open_guards"], counts["open_gates"]) == (1, 0, 0)


def test_a_failed_model_fails_the_attempt_and_what_was_left_is_tidied(world: MssqlDbtWorld, tmp_path: Path) -> None:
    world.sql("CREATE TABLE mart.first__dbt_backup (id int, word varchar(3))")  # as a killed run leaves it
    world.sql("INSERT INTO mart.first__dbt_backup VALUES (7, 'old')")
    broken = small(world, tmp_path / "broken", models__second="{{ config(materialized='view') }}\nselect nothing as id")
    with pytest.raises(DponeError) as failed:
        world.run(broken)
    assert failed.value.code == "DPONE_DBT_MODEL_FAILED"
    assert world.relations() == {"first": "U"}
    assert world.sql("SELECT id FROM mart.first") == [(1,)]
    assert world.roles() == []


def test_a_failed_test_fails_the_attempt_and_what_was_built_stays(world: MssqlDbtWorld, tmp_path: Path) -> None:
    tested = small(
        world,
        tmp_path,
        tests__none="select * from {{ ref('first') }}",
        tests__passes="select * from {{ ref('first') }} where word <> 'old'",
    )
    with pytest.raises(DponeError, match=r"test\.small\.none") as failed:
        world.run(tested)
    assert failed.value.code == "DPONE_DBT_TEST_FAILED"
    assert "test.small.passes" not in failed.value.message
    assert world.relations() == {"first": "U"}  # no view of a test is left, nothing after it was built
    assert world.sql("SELECT id, word FROM mart.first") == [(1, "old")]
    assert world.roles() == []
    counts = world.ledger_counts()
    assert (counts["failed"], counts["open_guards"], counts["open_gates"]) == (1, 0, 0)
