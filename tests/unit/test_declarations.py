"""What DAG files declare: literal targets, one workload per literal map index, clear errors while parsing."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.errors import DeclarationInvalid, InstanceUnbound, LimitsInvalid
from airflow_provider_dpone.listeners import binding
from airflow_provider_dpone.operators.dbt import DbtBuildOperator
from airflow_provider_dpone.operators.declarations import declarations_in, declarations_of
from airflow_provider_dpone.operators.load import SqlLoadOperator
from airflow_provider_dpone.operators.retention import RetentionOperator
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator
from airflow_provider_dpone.releases.builder import release_of

GIVEN: dict[str, Any] = {
    "task_id": "t",
    "source_conn_id": "src",
    "source_table": "public.a",
    "target_conn_id": "dwh",
    "target_table": "mart.a",
    "limits": SnapshotLimits(max_source_bytes="1 GiB"),
}


COPYING = pytest.mark.parametrize("operator", [ClickHouseSnapshotOperator, SqlLoadOperator])


@COPYING
def test_a_task_declares_itself_as_written(operator: Any) -> None:
    with DAG("d", schedule=None) as dag:
        operator(**{**GIVEN, "source_table": "public.{{ params.name }}"})
    [found] = declarations_of("d", dag.get_task("t"))
    assert (found.workload_id, found.source_relation, found.target_relation) == (
        "d.t",
        "public.{{ params.name }}",
        "mart.a",
    )
    assert found.options["max_source_bytes"] == 2**30
    assert (found.kind, found.constituent) == (
        ("load", "standalone") if operator is SqlLoadOperator else ("snapshot", "native")
    )


@COPYING
@pytest.mark.parametrize(
    "field", ["target_table", "target_conn_id", "source_conn_id", "control_conn_id", "environment"]
)
@pytest.mark.parametrize("value", ["mart.{{ ds }}", "", None])
def test_fields_that_decide_ownership_are_literal(operator: Any, field: str, value: Any) -> None:
    with pytest.raises(DeclarationInvalid, match=field):
        operator(**{**GIVEN, field: value})


@COPYING
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"target_table": "orders"}, DeclarationInvalid),
        ({"limits": {"max_source_bytes": 0}}, LimitsInvalid),
        ({"limits": {"max_source_bytes": "much"}}, LimitsInvalid),
    ],
)
def test_bad_input_is_refused_while_the_file_is_parsed(
    operator: Any, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        operator(**{**GIVEN, **changes})


@COPYING
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("limits", [None, 5, "1 GiB", {}, {"max_rows": 1}, {"max_source_bytes": 1, "max_sauce": 2}, {"max_source_bytes": None}]),
        ("min_rows", [-1, True, None, 1.5, "-1", "many", ""]),
        ("source_table", ["x", "", "a.b.c", None, 7, "a.", 'a."b']),
        ("guard_wait", ["soon", "", "1", "-1h", "1h x", 60, None, timedelta(seconds=-1)]),
        ("environment", ["Prod", "a b", "-a", "x" * 64, 5]),
    ],
)  # fmt: skip
def test_an_argument_is_refused_by_its_name_while_the_file_is_parsed(
    operator: Any, name: str, values: list[Any]
) -> None:
    words = "limits|max_source_bytes" if name == "limits" else name
    for value in values:
        with pytest.raises((DeclarationInvalid, LimitsInvalid), match=words):
            operator(**{**GIVEN, name: value})


@COPYING
def test_arguments_are_taken_in_every_form_people_write(operator: Any) -> None:
    for text, expected in (
        ("1h", 3600),
        ("90 s", 90),
        ("1h 30m", 5400),
        ("2 days", 172800),
        ("15 minutes", 900),
        ("0s", 0),
    ):
        assert operator(**{**GIVEN, "guard_wait": text}).guard_wait == timedelta(seconds=expected)
    for taken in ("{{ params.n }}", "5", 5, 0):
        operator(**{**GIVEN, "min_rows": taken})
    operator(**{**GIVEN, "source_table": "{{ params.t }}", "limits": {"max_source_bytes": "1 GiB", "max_rows": 7}})


@COPYING
def test_rendered_templates_show_what_goes_where(operator: Any) -> None:
    shown = set(operator(**GIVEN).template_fields)
    assert shown >= {
        "source_conn_id",
        "source_table",
        "target_conn_id",
        "target_table",
        "control_conn_id",
        "environment",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [("select", [1]), ("exclude", [None]), ("vars", [1]), ("env", "A=1"), ("env", {1: "a"}), ("full_refresh", "maybe"),
     ("fail_fast", "False"), ("threads", "2"), ("target_schema", "{{ x }}"), ("guard_wait", "a while")],
)  # fmt: skip
def test_arguments_of_a_dbt_task_are_refused_by_name(name: str, value: Any) -> None:
    given = {"task_id": "t", "project_dir": "p", "target_conn_id": "c", "target_schema": "mart"}
    with pytest.raises(DeclarationInvalid, match=name):
        DbtBuildOperator(**{**given, name: value})


@pytest.mark.parametrize("keep", [-1, True, "1", 1.5])
def test_keep_is_a_count(keep: Any) -> None:
    with pytest.raises(DeclarationInvalid, match="keep"):
        RetentionOperator(task_id="t", target_conn_id="dwh", target_table="mart.a", keep=keep)


def test_every_literal_map_index_is_a_workload_in_airflows_order() -> None:
    """The last mapped argument changes fastest, as in Airflow."""
    common = {k: v for k, v in GIVEN.items() if k not in ("source_table", "target_table")}
    with DAG("d", schedule=None) as dag:
        ClickHouseSnapshotOperator.partial(**common, retries=2, pool="p").expand_kwargs(
            [{"source_table": f"public.{n}", "target_table": f"mart.{n}"} for n in "abc"]
        )
        partial = {**common, "task_id": "u", "source_table": "public.x", "retry_delay": timedelta(seconds=1)}
        partial.pop("target_conn_id")
        ClickHouseSnapshotOperator.partial(**partial).expand(
            target_conn_id=["one", "two"], target_table=["mart.x", "mart.y", "mart.z"]
        )
    found = declarations_of("d", dag.get_task("t"))
    assert [(f.workload_id, f.target_relation) for f in found] == [
        ("d.t[0]", "mart.a"),
        ("d.t[1]", "mart.b"),
        ("d.t[2]", "mart.c"),
    ]
    product = declarations_of("d", dag.get_task("u"))
    assert [(f.target_conn_id, f.target_relation) for f in product][:4] == [
        ("one", "mart.x"),
        ("one", "mart.y"),
        ("one", "mart.z"),
        ("two", "mart.x"),
    ]


def test_a_mapping_that_is_not_literal_is_refused() -> None:
    from airflow.sdk import task

    with DAG("d", schedule=None) as dag:

        @task
        def names() -> list[dict[str, str]]:
            return []

        common = {k: v for k, v in GIVEN.items() if k not in ("source_table", "target_table")}
        ClickHouseSnapshotOperator.partial(**common).expand_kwargs(names())
    with pytest.raises(DeclarationInvalid, match="literal"):
        declarations_of("d", dag.get_task("t"))


def test_a_folder_of_dag_files_becomes_a_release(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(
        "from airflow.sdk import DAG\n"
        "from airflow_provider_dpone.operators.retention import RetentionOperator\n"
        "with DAG('good', schedule=None):\n"
        "    RetentionOperator(task_id='keep', target_conn_id='dwh', target_table='mart.a')\n"
    )
    release = release_of(declarations_in(tmp_path))
    assert [w.workload_id for w in release.native] == ["good.keep"]
    assert release.standalone == ()
    (tmp_path / "bad.py").write_text("from airflow.sdk import DAG\nraise ValueError('broken file')\n")
    with pytest.raises(DeclarationInvalid, match=r"bad\.py.*broken file"):
        declarations_in(tmp_path)


def test_an_operator_outside_a_task_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "_bound", None)
    with pytest.raises(InstanceUnbound):
        binding.bound_coordinates()


def test_importing_an_operator_loads_no_driver(tmp_path: Path) -> None:
    """DAG files are parsed all the time: what a task needs is imported by the task."""
    code = (
        "import sys\n"
        "from airflow_provider_dpone.operators import snapshot, load, retention, dbt\n"
        "heavy = ('psycopg', 'pyodbc', 'arrow_odbc', 'clickhouse_driver', 'pyarrow', 'adbc_driver_postgresql', 'pandas', 'numpy',"
        " 'airflow_clickhouse_plugin', 'airflow_provider_dpone.ledger', 'airflow_provider_dpone.engines.postgres')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ended.stdout.strip().splitlines()[-1] == "[]"


def test_a_task_without_an_instance_of_its_own_is_told_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """``airflow tasks test`` binds a made-up instance."""
    made_up = binding._Bound("d", "r", "t", -1, 0, 0, "not-an-instance")
    monkeypatch.setattr(binding, "_bound", made_up)
    with pytest.raises(InstanceUnbound, match="airflow dags test"):
        binding.bound_coordinates()


def test_everything_a_dbt_task_is_given_reaches_dbt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DWH", "postgres://controller:pw@db:5433/shop?sslmode=disable")
    given = DbtBuildOperator(
        task_id="models", project_dir=str(tmp_path), target_conn_id="dwh", target_schema="mart",
        select=["a", "b"], exclude="c", vars={"day": "monday"}, full_refresh="true", fail_fast=True, threads=3,
        env={"COUNTRY": "DE", "LEVEL": 7}, dbt_executable_path="/opt/dbt/bin/dbt", work_dir=tmp_path / "work",
    )._spec()  # fmt: skip
    assert given.environment == {"COUNTRY": "DE", "LEVEL": "7"}
    assert (given.select, given.exclude, given.variables) == (("a", "b"), ("c",), {"day": "monday"})
    assert (given.full_refresh, given.fail_fast, given.threads) == (True, True, 3)
    assert (given.dbt_executable, given.label) == ("/opt/dbt/bin/dbt", "models")
    assert given.project_dir == tmp_path
    assert (given.root, given.cache) == (tmp_path / "work" / "runs", tmp_path / "work" / "parses")
    target = given.target
    assert (target.host, target.port, target.database, target.schema) == ("db", 5433, "shop", "mart")
    plain = DbtBuildOperator(task_id="m", project_dir=str(tmp_path), target_conn_id="dwh", target_schema="mart")._spec()
    assert (plain.environment, plain.select, plain.exclude, plain.variables) == ({}, (), (), {})
    assert (plain.full_refresh, plain.fail_fast, plain.threads, plain.dbt_executable) == (False, False, 1, None)
