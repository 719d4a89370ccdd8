"""The whole way through Airflow connections: gate and enrolment by the command line, a release, an operator's own run."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_dpone.cli import main
from airflow_provider_dpone.engines.mssql.install import gate_statements
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from airflow_provider_dpone.listeners import binding
from tests.builders import instance_id
from tests.live_mssql.target_world import MssqlWorld

pytestmark = pytest.mark.timeout(900)
Command = Callable[..., str]
LOAD = """
    SqlLoadOperator(task_id="{task}", source_conn_id="src", source_table="public.t", target_conn_id="{conn}",
                    target_table="{target}", limits={{"max_source_bytes": "1 GiB"}}{more})
"""
DAG = """
from airflow.sdk import DAG
from airflow_provider_dpone.operators.load import SqlLoadOperator

with DAG("loads", schedule=None):
"""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """``dpone-airflow ...`` in this process; what it printed."""

    def run(*arguments: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main(arguments) == status, capsys.readouterr().err
        out = capsys.readouterr()
        return out.err if status else out.out

    return run


@pytest.fixture
def world(mssql_world: MssqlWorld, monkeypatch: pytest.MonkeyPatch) -> MssqlWorld:
    """A source of three rows, a target of one old row, and Airflow connections of everybody concerned."""
    world, ledger, source, keywords = mssql_world, mssql_world.ledger, mssql_world.source, mssql_world.mssql.keywords
    world.source_sql("CREATE TABLE t (id int NOT NULL, v text)")
    world.source_sql("INSERT INTO t VALUES (1, 'new'), (2, 'néw 😀'), (3, NULL)")
    world.sql("CREATE TABLE mart.t (id int NOT NULL, v nvarchar(20)); INSERT INTO mart.t VALUES (1, N'old')")
    driver = {k: v for k, v in keywords.items() if k in ("driver", "encrypt", "trustservercertificate")}
    here = {"conn_type": "mssql", "host": world.mssql.host, "port": world.mssql.port, "schema": world.database,
            "extra": json.dumps({**driver, "dpone_control_database": world.database,
                                 "dpone_stand_in": world.mssql.stand_in})}  # fmt: skip
    there = {"conn_type": "postgres", "host": ledger.host, "port": ledger.port, "schema": ledger.dbname}
    for name, fields, login, password in (
        ("mart_admin", here, keywords["uid"], keywords["pwd"]),
        ("mart", here, world.controller, world.controller_password),
        ("mart_too", {**here, "conn_type": "odbc"}, world.controller, world.controller_password),
        ("src", {**there, "schema": source.dbname}, source.user, source.password),
        ("dpone_control_admin", there, ledger.admin_role, ledger.admin_password),
        ("dpone_control", there, ledger.runtime_role, ledger.runtime_password),
    ):
        value = {**fields, "login": login, "password": password}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(value))
    return world


def enrol(world: MssqlWorld, command: Command, *more: str) -> str:
    named = [part for name in world.administrators for part in ("--administrator", name)]
    return command("enroll", "--conn-id", "mart_admin", "--schema", world.schema, "--controller", world.controller,
                   *named, *more)  # fmt: skip


def dags(folder: Path, *tasks: tuple[str, str, str], more: str = "") -> Path:
    folder.mkdir()
    loads = "".join(LOAD.format(task=task, conn=conn, target=target, more=more) for task, conn, target in tasks)
    (folder / "loads.py").write_text(DAG + loads)
    return folder


def execute(folder: Path, task: str, try_number: int = 1) -> Any:
    """Run one task as its process would: bound by the listener, its success acknowledged."""
    operator = DagBag(dag_folder=str(folder), safe_mode=False).dags["loads"].get_task(task)
    instance = SimpleNamespace(dag_id="loads", run_id="run", task_id=task, map_index=-1, try_number=try_number,
                               max_tries=2, id=instance_id())  # fmt: skip
    binding.on_task_instance_running(None, instance)
    receipt = operator.execute({})
    binding.on_task_instance_success(None, instance)
    return receipt


def test_an_operator_loads_what_the_command_line_enrolled_and_activated(
    world: MssqlWorld, command: Command, tmp_path: Path
) -> None:
    printed = command("render-login-gate", "--control-database", world.database)
    batches = [text.strip() for text in re.split(r"^GO$", printed, flags=re.MULTILINE) if text.strip()]
    assert batches == [f"USE [{world.database}];", *gate_statements(world.database)]
    assert "would enrol" in enrol(world, command, "--dry-run")
    assert world.sql("SELECT OBJECT_ID(N'dpone_gate.marker')") == [(None,)]
    assert f"controller {world.controller}" in enrol(world, command)

    folder = dags(tmp_path / "dags", ("t", "mart", "mart.t"))
    assert "would own" in command("activate", "--dags-folder", str(folder), "--dry-run")
    with pytest.raises(AirflowFailException, match="DPONE_"):
        execute(folder, "t")  # no release is active
    assert "ACTIVE" in command("activate", "--dags-folder", str(folder))
    receipt = execute(folder, "t")
    assert (receipt["state"], receipt["rows"]) == ("LOADED", 3)
    assert world.rows("t") == world.source_sql("SELECT * FROM t ORDER BY 1")
    [line] = json.loads(command("attempts", "--last", "5", "--json"))
    assert (line["state"], line["workload"]) == ("SUCCEEDED", "loads.t")
    assert "0 open attempts" in command("attempts")
    assert world.roles() == world.stagings() == []


def test_two_connections_to_one_database_cannot_both_own_a_table(
    world: MssqlWorld, command: Command, tmp_path: Path
) -> None:
    enrol(world, command)
    both = dags(tmp_path / "both", ("one", "mart", "mart.t"), ("two", "mart_too", "MART.T"))
    refused = command("activate", "--dags-folder", str(both), status=1)
    assert "DPONE_ACTIVATION_REFUSED" in refused
    assert "write the one table" in refused


def test_a_schema_that_is_enrolled_later_is_the_bounded_roles_too(world: MssqlWorld, command: Command) -> None:
    enrol(world, command)
    world.sql("CREATE SCHEMA more")
    world.sql("CREATE TABLE more.t (id int NOT NULL)")
    assert "mart, more" in enrol(world, command, "--schema", "more")
    member, password = f"member_{world.tag}", f"Aa1!{secrets.token_hex(12)}"
    world.sql(f"CREATE LOGIN {member} WITH PASSWORD = N'{password}'")
    world.sql(f"CREATE USER {member} FOR LOGIN {member}")
    world.sql(f"ALTER ROLE dpone_writer ADD MEMBER {member}")
    with closing(world.mssql.connect(database=world.database, user=member, password=password)) as connection:
        batch(connection, "INSERT INTO more.t VALUES (1)")
        batch(connection, "INSERT INTO mart.t VALUES (5, N'x')")
    world.sql(f"ALTER ROLE dpone_writer DROP MEMBER {member}")
    world.sql(f"DROP USER {member}")
    world.sql(f"DROP LOGIN {member}")
    assert world.sql("SELECT id FROM more.t") == [(1,)]
