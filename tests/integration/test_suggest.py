"""What ``enroll --print-ddl`` prints is right: created as printed, it is enrolled and takes every row of the source."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from airflow_provider_dpone.cli import main
from airflow_provider_dpone.errors import TypeNotMapped
from airflow_provider_dpone.hooks.suggest import suggest
from tests import ledger_database
from tests.schema_world import SchemaWorld
from tests.servers import ClickHouseUnderTest, PostgresUnderTest
from tests.snapshot_world import SnapshotWorld

#: A type of the source, and a value of it in SQL.
SAMPLES = {
    "boolean": "true", "smallint": "-32768", "integer": "2147483647", "bigint": "-9223372036854775808", "oid": "4294967295",
    "real": "0.5", "double precision": "0.1", "numeric": "123456789012345678901234567890.5", "numeric(20,10)": "-1234567890.0123456789",
    "numeric(3,5)": "0.00123", "numeric(76,0)": "9", "money": "12.34", "text": "E'a\\tb\u20ac'", "varchar(3)": "'abc'",
    "character(4)": "'ab'", "name": "'n'", "bytea": "'\\x00de'", "uuid": "'01020304-0506-0708-090a-0b0c0d0e0f10'",
    "date": "'2024-02-29'", "time": "'23:59:59.999999'", "time(2)": "'01:02:03.04'", "timetz": "'01:02:03+02'",
    "timestamp": "'2024-03-31 03:30:00.000001'", "timestamp(3)": "'2024-03-31 03:30:00.123'",
    "timestamptz": "'2024-03-31 03:30:00.000001+03'", "interval": "'1 mon 2 days 03:00:00'", "inet": "'10.0.0.1/8'",
    "cidr": "'10.0.0.0/8'", "macaddr": "'08:00:2b:01:02:03'", "json": "'{\"a\" : 1}'", "jsonb": "'{\"a\": 1.50}'",
    "bit(3)": "B'101'", "varbit": "B'1'", "point": "'(1,2)'", "tsvector": "'a:1'", "int4range": "'[1,5)'",
    "int4multirange": "'{[1,5)}'", "pg_lsn": "'16/B374D848'", "public.mood": "'sad'", "public.short": "'ab'",
    "public.pair": "'(1,x)'", "integer[]": "'{1,NULL,3}'", "text[]": "'{a,NULL}'", "numeric[]": "'{1.5}'",
    "numeric(10,2)[]": "'{1.50}'", "uuid[]": "'{01020304-0506-0708-090a-0b0c0d0e0f10}'",
    "timestamptz[]": "'{2024-01-01 00:00:00+00}'", "boolean[]": "'{t,f}'", "inet[]": "'{10.0.0.1}'",
    "public.mood[]": "'{sad}'", "date[]": "'{2024-01-01}'",
}  # fmt: skip
OWN = (
    "CREATE TYPE public.mood AS ENUM ('sad', 'ok')",
    "CREATE DOMAIN public.short AS text CHECK (length(value) < 5)",
    "CREATE TYPE public.pair AS (a int, b text)",
)
NAMES = ["a", "A", "order", "a b", "it's", 'q"q', "b`t", "né", "x.y", "sélect", "a]b", "{c}", "%s"]
COLUMNS = st.dictionaries(
    st.sampled_from(NAMES), st.tuples(st.sampled_from(sorted(SAMPLES)), st.booleans()), min_size=4, max_size=10
)
SETTINGS = settings(
    max_examples=10, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _source(columns: dict[str, tuple[str, bool]]) -> tuple[str, str]:
    """A column list, and two rows: values, and NULLs where they are allowed."""
    listed = ", ".join(f"{_quoted(n)} {t}{'' if nullable else ' NOT NULL'}" for n, (t, nullable) in columns.items())
    values = ", ".join(f"({SAMPLES[t]})::{t}" for t, _ in columns.values())
    nulls = ", ".join(f"NULL::{t}" if nullable else f"({SAMPLES[t]})::{t}" for t, nullable in columns.values())
    return f"id bigint PRIMARY KEY, {listed}", f"SELECT 1, {values} UNION ALL SELECT 2, {nulls}"


def _snapshots(
    clickhouse: ClickHouseUnderTest, postgres: PostgresUnderTest, patch: pytest.MonkeyPatch
) -> SnapshotWorld:
    world = SnapshotWorld(clickhouse, postgres, ledger_database.create(postgres.superuser))
    for statement in OWN:
        world.pg(statement)
    _connection(patch, "src", "postgres", world.source)
    patch.setenv("AIRFLOW_CONN_DWH", json.dumps({
        "conn_type": "dpone_clickhouse", "host": clickhouse.host, "port": clickhouse.http_port,
        "login": clickhouse.admin_user, "password": clickhouse.admin_password,
        "extra": {"native_port": clickhouse.native_port},
    }))  # fmt: skip
    return world


def _connection(patch: pytest.MonkeyPatch, conn_id: str, kind: str, params: Any) -> None:
    patch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({
        "conn_type": kind, "host": params.host, "port": params.port, "login": params.user, "password": params.password,
        "schema": params.dbname,
    }))  # fmt: skip


@SETTINGS
@given(columns=COLUMNS)
def test_a_clickhouse_target_as_printed_is_published_into(
    clickhouse_server: ClickHouseUnderTest,
    postgres_server: PostgresUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    columns: Any,
) -> None:
    world = _snapshots(clickhouse_server, postgres_server, monkeypatch)
    listed, rows = _source(columns)
    world.pg(f"CREATE TABLE orders ({listed})")
    world.pg(f"INSERT INTO orders {rows}")
    target = f"{world.database}.orders"
    [statement] = suggest("dwh", target, "src", "public.orders")
    assert "ORDER BY (`id`)" in statement
    world.ch(statement)
    assert suggest("dwh", target, "src", "public.orders") == []
    world.activate("orders")
    receipt = world.cell("orders").run()
    assert (receipt.state, receipt.rows) == ("PUBLISHED", 2)


@SETTINGS
@given(columns=COLUMNS)
def test_a_postgres_target_as_printed_is_loaded_into(
    postgres_server: PostgresUnderTest, monkeypatch: pytest.MonkeyPatch, columns: Any
) -> None:
    world = SchemaWorld(postgres_server, ledger_database.create(postgres_server.superuser))
    for statement in OWN:
        world.source_sql(statement)
    _connection(monkeypatch, "src", "postgres", world.source)
    _connection(monkeypatch, "mart", "postgres", world._params(*_superuser(postgres_server)))
    listed, rows = _source(columns)
    world.source_sql(f"CREATE TABLE rates ({listed})")
    world.source_sql(f"INSERT INTO rates {rows}")
    target = f"{world.schema}.rates"
    [statement] = suggest("mart", target, "src", "public.rates")
    assert 'PRIMARY KEY ("id")' in statement
    world.sql(f"SET ROLE {world.owner}; {statement}")
    assert suggest("mart", target, "src", "public.rates") == []
    world.activate(world.declare("rates"))
    receipt = world.cell("rates").run()
    assert (receipt.state, receipt.rows) == ("LOADED", 2)


def _superuser(server: PostgresUnderTest) -> tuple[str, str]:
    return str(server.superuser["user"]), str(server.superuser["password"])


@pytest.fixture
def drifted(
    clickhouse_server: ClickHouseUnderTest, postgres_server: PostgresUnderTest, monkeypatch: pytest.MonkeyPatch
) -> SnapshotWorld:
    """A target that fitted once: a column is missing, one is too narrow, one takes no NULL, one is too many."""
    world = _snapshots(clickhouse_server, postgres_server, monkeypatch)
    world.pg('CREATE TABLE orders (id bigint PRIMARY KEY, n bigint NOT NULL, note text, "né w" numeric(10,2) NOT NULL)')
    world.pg("INSERT INTO orders VALUES (1, 2, NULL, 1.50)")
    world.ch(
        f"CREATE TABLE {world.database}.orders (id Int64, n String, note String, old Int8) ENGINE = MergeTree ORDER BY id"
    )
    return world


def test_an_existing_target_is_told_what_it_lacks_and_then_takes_the_source(
    drifted: SnapshotWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"{drifted.database}.orders"
    arguments = ["enroll", "--print-ddl", "--conn-id", "dwh", "--source-conn-id", "src", "--table", target]
    assert main([*arguments, "--source-table", "public.orders"]) == 0
    printed = capsys.readouterr().out
    assert "MODIFY COLUMN `n`" not in printed  # text takes a number's text form
    statements = suggest("dwh", target, "src", "public.orders")
    changes = [s for s in statements if not s.startswith("--")]
    assert [c.partition("orders` ")[2] for c in changes] == [
        "MODIFY COLUMN `note` Nullable(String)", "ADD COLUMN `né w` Decimal(10, 2)",
    ]  # fmt: skip
    [comment] = [s for s in statements if s.startswith("--")]
    assert "`old` is not in the source" in comment
    for change in [*changes, comment.partition("or ALTER")[1].removeprefix("or ") + comment.partition("or ALTER")[2]]:
        drifted.ch(change)
    assert suggest("dwh", target, "src", "public.orders") == []
    drifted.activate("orders")
    assert drifted.cell("orders").run().rows == 1
    assert drifted.rows("orders")[0][:3] == (1, "2", None)


def test_a_column_that_nothing_can_take_is_refused_by_name(drifted: SnapshotWorld) -> None:
    drifted.pg("ALTER TABLE orders ADD COLUMN bad pg_node_tree")
    for target in (f"{drifted.database}.orders", f"{drifted.database}.fresh"):
        with pytest.raises(TypeNotMapped, match="'bad'"):
            suggest("dwh", target, "src", "public.orders")
