"""The set-up of the production-like stack, as far as its engines are here: PostgreSQL, and the local ClickHouse server."""

from __future__ import annotations

import json
import secrets
from typing import Any

import psycopg
import pytest

from airflow_provider_dpone.engines.clickhouse.catalog import read_catalog
from airflow_provider_dpone.engines.clickhouse.control import NativeControl
from tests.docker_init import init
from tests.servers import ClickHouseUnderTest, PostgresUnderTest

SECRETS = (
    "MSSQL_SA_PASSWORD", "POSTGRES_PASSWORD", "CLICKHOUSE_PASSWORD", "DPONE_ADMIN_PASSWORD", "DPONE_RUNTIME_PASSWORD",
    "DPONE_CONTROLLER_PASSWORD", "SOURCE_READER_PASSWORD", "MART_READER_PASSWORD", "AIRFLOW_DB_PASSWORD",
    "AIRFLOW_ADMIN_PASSWORD",
)  # fmt: skip


@pytest.fixture(autouse=True)
def passwords(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    made = {name: f"Aa1{secrets.token_hex(12)}" for name in SECRETS}
    for name, value in made.items():
        monkeypatch.setenv(name, value)
    return made


def test_the_source_is_made_once_and_its_reader_only_reads(
    postgres_server: PostgresUnderTest, passwords: dict[str, str]
) -> None:
    parameters = {k: v for k, v in postgres_server.superuser.items() if k != "dbname"}
    init.postgres(parameters)
    init.postgres(parameters)
    reader: dict[str, Any] = {
        **parameters, "dbname": "erp", "user": "source_reader", "password": passwords["SOURCE_READER_PASSWORD"]
    }  # fmt: skip
    with psycopg.connect(**reader) as connection:
        assert connection.execute("SELECT count(*), sum(amount) FROM public.orders").fetchall() == [(1000, 625625)]
        with pytest.raises(psycopg.Error):
            connection.execute("DELETE FROM public.orders")
    with psycopg.connect(**parameters, dbname="postgres", autocommit=True) as connection:
        for database in ("erp", "airflow"):
            connection.execute(f"DROP DATABASE {database}".encode())
        connection.execute("DROP ROLE source_reader")
        connection.execute("DROP ROLE airflow")


def test_the_snapshot_target_is_made_once_and_its_controller_sees_everything(
    clickhouse_server: ClickHouseUnderTest, passwords: dict[str, str]
) -> None:
    server = clickhouse_server
    for _ in range(2):
        init.clickhouse(server.client())
    login = {"user": "dpone_controller", "password": passwords["DPONE_CONTROLLER_PASSWORD"]}
    with NativeControl(lambda: server.client(**login)) as control:
        names = ("orders", "order_totals")
        view = read_catalog(control, "mart", names, administrators=(server.admin_user, "dpone_controller"))
        assert all(view.table(name).design is not None for name in names)
    server.execute("DROP DATABASE mart SYNC")
    server.execute("DROP USER dpone_controller")


def test_connections_are_pinned_and_steps_are_our_own_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from airflow_provider_dpone.cli import parser

    monkeypatch.setattr(init, "SETTINGS", tmp_path)
    known = init.connections("11111111-1111-4111-8111-111111111111")
    assert json.loads(known["dpone_control"]["extra"])["service_id"].startswith("1111")
    assert set(known) == {
        "dpone_control",
        "dpone_control_admin",
        "mart",
        "mart_admin",
        "totals",
        "dwh",
        "dwh_admin",
        "erp",
    }
    for step in init.steps():
        parser().parse_args(list(step[1:]))
    assert [step[1] for step in init.steps()] == ["ledger", "enroll", "enroll", "activate"]
    (tmp_path / "ledger.json").write_text("{}")
    assert [step[1] for step in init.steps()] == ["enroll", "enroll", "activate"]
