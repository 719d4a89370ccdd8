"""What outlives a crash of the local server, and what its query log says."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.live_clickhouse.http_requests import call, eventually, make_user, two_tables, uuids
from tests.live_clickhouse.test_server_inserts import rows
from tests.servers import URL_VARIABLE, ClickHouseUnderTest, clickhouse_under_test


@pytest.fixture
def own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClickHouseUnderTest]:
    """A local server that a test may kill."""
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    with clickhouse_under_test(tmp_path) as server:
        yield server


def crash(server: ClickHouseUnderTest) -> None:
    """SIGKILL and start again, on the same ports."""
    assert server.local is not None
    before = server.http_port, server.native_port
    server.local.kill()
    server.local.start()
    assert (server.local.http_port, server.local.native_port) == before


def test_data_principals_and_log_survive_sigkill(own_server: ClickHouseUnderTest) -> None:
    with two_tables(own_server) as tables:
        name, password = make_user(own_server, f"SELECT ON {tables.a}", clauses="SETTINGS max_threads = 1 CONST")
        expired, _ = make_user(own_server, clauses="VALID UNTIL '2020-01-01 00:00:00'")
        gone, _ = make_user(own_server)
        own_server.execute(f"DROP USER {gone}")
        own_server.execute(f"CREATE QUOTA {name} FOR INTERVAL 100 YEAR MAX queries = 2 TO {name}")
        [identity] = own_server.execute(f"SELECT toString(id) FROM system.users WHERE name = '{name}'")
        before, server_uuid = uuids(own_server, tables), own_server.execute("SELECT serverUUID()")
        assert call(own_server, f"INSERT INTO {tables.a} FORMAT RowBinary", rows(5)).code == 0
        own_server.execute(f"EXCHANGE TABLES {tables.a} AND {tables.b}")
        own_server.execute("SYSTEM FLUSH LOGS")
        crash(own_server)
        assert uuids(own_server, tables) == before[::-1]
        assert own_server.execute(f"SELECT count() FROM {tables.b}") == [(5,)]
        assert own_server.execute("SELECT serverUUID()") == server_uuid
        assert own_server.execute("SELECT uptime() < 5") == [(1,)]
        users = {user for (user,) in own_server.execute("SELECT name FROM system.users")}
        assert {name, expired} <= users
        assert gone not in users
        assert own_server.execute(f"SELECT toString(id) FROM system.users WHERE name = '{name}'") == [identity]
        login = {"user": name, "password": password}
        assert call(own_server, f"SELECT count() FROM {tables.a}", **login).body == b"0\n"
        assert call(own_server, f"SELECT count() FROM {tables.b}", **login).code == 497
        assert call(own_server, "SELECT 1", **login, max_threads="2").code == 452
        assert call(own_server, "SELECT 1", **login).code == 201
        assert own_server.execute("SELECT count() FROM system.query_log WHERE query LIKE 'EXCHANGE%'") == [(2,)]


def test_quota_counter_is_forgotten_by_a_restart_as_on_a_server(own_server: ClickHouseUnderTest) -> None:
    name, password = make_user(own_server)
    own_server.execute(f"CREATE QUOTA {name} FOR INTERVAL 100 YEAR MAX queries = 1 TO {name}")
    login = {"user": name, "password": password}
    assert [call(own_server, "SELECT 1", **login).code for _ in range(2)] == [0, 201]
    own_server.holds.forget_quotas()
    assert [call(own_server, "SELECT 1", **login).code for _ in range(2)] == [0, 201]
    crash(own_server)
    assert [call(own_server, "SELECT 1", **login).code for _ in range(2)] == [0, 201]


def test_acknowledged_inserts_are_there_after_sigkill(own_server: ClickHouseUnderTest) -> None:
    with two_tables(own_server) as tables:
        acknowledged: list[int] = []
        stop = threading.Event()

        def write(writer: int) -> None:
            number = 0
            while not stop.is_set():
                start = writer * 1_000_000 + number * 10
                try:
                    reply = call(own_server, f"INSERT INTO {tables.a} FORMAT RowBinary", rows(10, start))
                except OSError:
                    return
                if reply.code == 0:
                    acknowledged.append(start)
                number += 1

        with ThreadPoolExecutor(3) as pool:
            for writer in range(3):
                pool.submit(write, writer)
            eventually(lambda: len(acknowledged) > 30)
            crash(own_server)
            stop.set()
        found = {start for (start,) in own_server.execute(f"SELECT id FROM {tables.a} WHERE id % 10 = 0")}
        assert set(acknowledged) <= found
        assert own_server.execute(f"SELECT count() % 10, count() = uniqExact(id) FROM {tables.a}") == [(0, 1)]


def test_query_log_tells_what_happened(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        name, password = make_user(clickhouse_server, f"INSERT ON {tables.a}")
        login = {"user": name, "password": password}
        ids = {what: f"{what}_{secrets.token_hex(6)}" for what in ("insert", "denied", "broken")}
        call(clickhouse_server, f"INSERT INTO {tables.a} FORMAT RowBinary", rows(7), **login, query_id=ids["insert"])
        call(clickhouse_server, f"SELECT * FROM {tables.b}", **login, query_id=ids["denied"])
        call(
            clickhouse_server, f"INSERT INTO {tables.a} FORMAT RowBinary", rows(7)[:-1], **login, query_id=ids["broken"]
        )
        clickhouse_server.execute("SYSTEM FLUSH LOGS")
        found = clickhouse_server.execute(
            "SELECT query_id, toString(type), user, initial_user, query_kind, exception_code, written_rows "
            f"FROM system.query_log WHERE user = '{name}' AND type != 'QueryStart' ORDER BY event_time_microseconds"
        )
        assert found == [
            (ids["insert"], "QueryFinish", name, name, "Insert", 0, 7),
            (ids["denied"], "ExceptionBeforeStart", name, name, "Select", 497, 0),
            (ids["broken"], "ExceptionWhileProcessing", name, name, "Insert", 33, 0),
        ]


def test_query_log_and_processes_never_show_a_password(clickhouse_server: ClickHouseUnderTest) -> None:
    name, secret = f"u_{secrets.token_hex(8)}", f"p{secrets.token_hex(12)}"
    clickhouse_server.execute(f"CREATE USER {name} IDENTIFIED WITH sha256_password BY '{secret}'")
    call(clickhouse_server, f"CREATE USER {name} IDENTIFIED WITH sha256_password BY '{secret}' HOST")
    call(clickhouse_server, "SELECT 1", user=name, password=secret)
    clickhouse_server.execute("SYSTEM FLUSH LOGS")
    hits = f"SELECT count() FROM system.query_log WHERE position(query, '{secret[:6]}' || '{secret[6:]}') > 0"
    assert clickhouse_server.execute(f"{hits} OR position(exception, '{secret[:6]}' || '{secret[6:]}') > 0") == [(0,)]
    assert clickhouse_server.execute(
        f"SELECT count() > 0 FROM system.query_log WHERE query LIKE 'CREATE USER {name}%'"
    ) == [(1,)]
