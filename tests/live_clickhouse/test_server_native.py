"""The native protocol as clickhouse-driver, its DB-API and the unchanged Airflow plugin use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from clickhouse_driver import dbapi
from clickhouse_driver.errors import ServerException

from tests.live_clickhouse.http_requests import eventually, make_user, two_tables
from tests.servers import ClickHouseUnderTest

COLUMNS = """a Int64, s String, n Nullable(Int32), arr Array(Nullable(String)), lc LowCardinality(Nullable(String)),
    m Map(String, Int32), d Decimal(38, 10), t Tuple(x Int8, y String), u UUID, dt DateTime('UTC'),
    d64 DateTime64(6, 'UTC'), day Date32, alc Array(LowCardinality(String)), fs FixedString(3),
    e Enum8('q' = 1, 'it''s' = 2),
    i IPv4, b Bool, f Float64, wide UInt256, df Int32 DEFAULT 7"""


def row(number: int) -> tuple[Any, ...]:
    return (
        number, "é" * (number % 400), None if number % 2 else number, ["a", None] * (number % 3),
        "z" if number % 3 else None, {"k": number}, Decimal("1234567890123456.0123456789"), (1, "y"), UUID(int=number),
        datetime(2024, 3, 31, 3, 30, tzinfo=UTC), datetime(2024, 3, 31, 3, 30, 0, 1, tzinfo=UTC), date(1900, 1, 1),
        ["p", "q"], "abc", "it's", "127.0.0.1", bool(number % 2), -0.5, 1 << 255,
    )  # fmt: skip


@pytest.mark.parametrize("compression", [False, "lz4", "zstd"])
def test_driver_inserts_and_reads_every_kind_of_column(
    clickhouse_server: ClickHouseUnderTest, compression: Any
) -> None:
    rows = [row(number) for number in range(2500)]
    names = "a, s, n, arr, lc, m, d, t, u, dt, d64, day, alc, fs, e, i, b, f, wide"
    with two_tables(clickhouse_server, COLUMNS) as tables:
        client = clickhouse_server.client(compression=compression)
        assert client.execute(f"INSERT INTO {tables.a} ({names}) VALUES", rows) == 2500
        found = client.execute(f"SELECT {names}, df FROM {tables.a} ORDER BY a")
        assert [tuple(str(value) for value in one) for one in found[::499]] == [
            tuple(str(value) for value in (*one, 7)) for one in rows[::499]
        ]
        empty, types = client.execute(f"SELECT a, dt, n FROM {tables.b}", with_column_types=True)
        assert (empty, types) == ([], [("a", "Int64"), ("dt", "DateTime('UTC')"), ("n", "Nullable(Int32)")])
        assert client.execute(f"INSERT INTO {tables.b} SELECT * FROM {tables.a}") == []
        assert client.execute(f"SELECT count() FROM {tables.b}") == [(2500,)]
        client.disconnect()


def test_large_answers_stream_in_blocks(clickhouse_server: ClickHouseUnderTest) -> None:
    client = clickhouse_server.client()
    found = client.execute_iter("SELECT number, toString(number) FROM numbers(300000)")
    assert sum(number for number, _ in found) == 44999850000
    client.disconnect()


def test_typed_exceptions_and_a_connection_that_goes_on(clickhouse_server: ClickHouseUnderTest) -> None:
    client = clickhouse_server.client()
    for sql, code in (
        ("SELECT * FROM nothing.here", 81),
        ("SELECT nope", 47),
        ("SELEKT 1 FROM", 62),
        ("SELECT throwIf(1)", 395),
    ):
        if code == 62 and clickhouse_server.local is not None:
            continue  # the local server calls an unknown verb NOT_IMPLEMENTED
        with pytest.raises(ServerException) as raised:
            client.execute(sql)
        assert raised.value.code in (code, 60)
    assert client.execute("SELECT 1") == [(1,)]
    with two_tables(clickhouse_server, "id Int64, name String, CONSTRAINT small CHECK id < 5") as tables:
        with pytest.raises(ServerException) as violated:
            client.execute(f"INSERT INTO {tables.a} VALUES", [(9, "x")])
        assert violated.value.code == 469
        assert client.execute(f"SELECT count() FROM {tables.a}") == [(0,)]
    client.disconnect()


def test_statements_without_rows_and_settings_of_a_session(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        client = clickhouse_server.client(settings={"max_block_size": 1000})
        assert client.execute("SELECT getSetting('max_block_size')") == [(1000,)]
        client.execute(f"USE {tables.database}")
        client.execute("SET max_threads = 1")
        assert client.execute("SELECT getSetting('max_threads'), currentDatabase()") == [(1, tables.database)]
        client.execute("INSERT INTO a (id, name) VALUES (1, 'inline')")
        assert client.execute("SELECT * FROM a") == [(1, "inline")]
        assert client.execute("SHOW TABLES") == [("a",), ("b",)]
        assert client.execute("EXISTS TABLE a") == [(1,)]
        assert [name for name, *_ in client.execute("DESCRIBE TABLE a")] == ["id", "name"]
        assert client.execute("SHOW CREATE TABLE a")[0][0].startswith(f"CREATE TABLE {tables.a}")
        client.execute("TRUNCATE TABLE a")
        assert client.execute("SELECT count() FROM a") == [(0,)]
        client.disconnect()


def test_cancel_ends_a_query_and_the_connection_goes_on(clickhouse_server: ClickHouseUnderTest) -> None:
    client = clickhouse_server.client()
    client.execute_with_progress(
        "SELECT number, sleepEachRow(0.01) FROM numbers(1000000) SETTINGS max_block_size = 1, max_threads = 1"
    )
    time.sleep(0.2)
    started = time.monotonic()
    client.cancel()
    assert time.monotonic() - started < 5
    assert client.execute("SELECT 2") == [(2,)]
    client.disconnect()


def test_client_that_disconnects_ends_its_query(clickhouse_server: ClickHouseUnderTest) -> None:
    name, password = make_user(clickhouse_server)
    client = clickhouse_server.client(name, password)
    client.execute_with_progress("SELECT number, sleepEachRow(0.01) FROM numbers(1000000) SETTINGS max_block_size = 1")
    listed = f"SELECT query_id FROM system.processes WHERE user = '{name}'"
    eventually(lambda: clickhouse_server.execute(listed))
    client.disconnect()
    eventually(lambda: not clickhouse_server.execute(listed))


def test_numpy_columns_and_dbapi(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server, "id Int64, f Float64") as tables:
        client = clickhouse_server.client(settings={"use_numpy": True})
        columns = [np.arange(200_000), np.random.default_rng(1).random(200_000)]
        client.execute(f"INSERT INTO {tables.a} VALUES", columns, columnar=True)
        client.disconnect()
        connection = dbapi.connect(
            host=clickhouse_server.host,
            port=clickhouse_server.native_port,
            user=clickhouse_server.admin_user,
            password=clickhouse_server.admin_password,
        )
        cursor = connection.cursor()
        cursor.execute(f"SELECT count(), sum(id) FROM {tables.a}")
        assert cursor.fetchall() == [(200_000, 19999900000)]
        connection.close()


PLUGIN = """
import json, sys
from airflow_clickhouse_plugin.hooks.clickhouse import ClickHouseHook
from airflow_clickhouse_plugin.operators.clickhouse import ClickHouseOperator
from airflow_clickhouse_plugin.sensors.clickhouse import ClickHouseSensor
table = sys.argv[1]
hook = ClickHouseHook(clickhouse_conn_id="ch")
inserted = hook.execute(f"INSERT INTO {table} VALUES", [(1, "a"), (2, "b")])
made = ClickHouseOperator(
    task_id="t", clickhouse_conn_id="ch", query_id="plugin_query",
    sql=(f"INSERT INTO {table} SELECT id + 10, name FROM {table}",
         f"SELECT id FROM {table} WHERE id > %(low)s ORDER BY id"),
    parameters={"low": 1},
).execute({})
seen = ClickHouseSensor(
    task_id="s", clickhouse_conn_id="ch", sql=f"SELECT count() FROM {table}", is_success=lambda rows: rows[0][0] == 4
).poke({})
print(json.dumps([inserted, made, bool(seen)]))
"""


def test_airflow_plugin_hook_operator_and_sensor_work_unchanged(
    clickhouse_server: ClickHouseUnderTest, tmp_path: Path
) -> None:
    connection = {
        "conn_type": "clickhouse",
        "host": clickhouse_server.host,
        "port": clickhouse_server.native_port,
        "login": clickhouse_server.admin_user,
        "password": clickhouse_server.admin_password,
        "schema": "default",
    }
    with two_tables(clickhouse_server) as tables:
        done = subprocess.run(
            [sys.executable, "-c", PLUGIN, tables.a],
            env={**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW_CONN_CH": json.dumps(connection)},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout.splitlines()[-1]) == [2, [[2], [11], [12]], True]
