"""DROP USER as a barrier, KILL, and what a hold point, a cut connection or a late statement leaves behind."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.live_clickhouse.http_requests import PartialRequest, Reply, call, eventually, make_user, two_tables, uuids
from tests.servers import ClickHouseUnderTest

FULL = "SELECT, INSERT, CREATE TABLE, DROP TABLE"
ROW = b"\x01\x00\x00\x00\x00\x00\x00\x00\x01a"


@pytest.fixture
def local(clickhouse_server: ClickHouseUnderTest) -> Iterator[ClickHouseUnderTest]:
    """The local server; hold points are its own."""
    yield clickhouse_server
    clickhouse_server.holds.clear()


def running(server: ClickHouseUnderTest, user: str) -> int:
    return int(
        server.execute(f"SELECT count() FROM system.processes WHERE user = '{user}' OR initial_user = '{user}'")[0][0]
    )


@pytest.mark.parametrize("point", ["authenticated", "registered"])
def test_request_held_before_its_check_has_no_effect_after_drop_user(local: ClickHouseUnderTest, point: str) -> None:
    with two_tables(local) as tables, ThreadPoolExecutor(1) as pool:
        before = uuids(local, tables)
        name, password = make_user(local, f"{FULL} ON {tables.a}", f"{FULL} ON {tables.b}")
        rule = local.holds.set(point, user_prefix=name, kind="Exchange")
        swap = f"EXCHANGE TABLES {tables.a} AND {tables.b}"
        answer = pool.submit(call, local, swap, user=name, password=password)
        local.holds.wait(rule)
        assert running(local, name) == (0 if point == "authenticated" else 1)
        local.execute(f"REVOKE ALL ON *.* FROM {name}")
        local.execute(f"DROP USER {name}")  # returns although the request is held
        local.execute("SYSTEM RELOAD USERS")
        local.execute(f"CREATE USER {name} IDENTIFIED WITH plaintext_password BY 'x'")
        local.execute(f"GRANT ALL ON {tables.database}.* TO {name}")
        local.holds.clear(rule)
        assert answer.result(10).code == 192  # another principal under the same name does not help it
        assert uuids(local, tables) == before
        local.execute(f"DROP USER {name}")


@pytest.mark.parametrize("point", ["checked", "effect_done"])
def test_request_that_passed_its_check_stays_listed_until_its_effect_ended(
    local: ClickHouseUnderTest, point: str
) -> None:
    with two_tables(local) as tables, ThreadPoolExecutor(1) as pool:
        before = uuids(local, tables)
        name, password = make_user(local, f"{FULL} ON {tables.a}", f"{FULL} ON {tables.b}")
        rule = local.holds.set(point, user_prefix=name)
        swap = f"EXCHANGE TABLES {tables.a} AND {tables.b}"
        answer = pool.submit(call, local, swap, user=name, password=password)
        local.holds.wait(rule)
        local.execute(f"DROP USER {name}")
        assert running(local, name) == 1
        assert uuids(local, tables) == (before if point == "checked" else before[::-1])
        local.holds.clear(rule)
        assert answer.result(10).code == 0
        assert running(local, name) == 0
        assert uuids(local, tables) == before[::-1]


def test_killed_exchange_has_happened_although_its_error_says_otherwise(local: ClickHouseUnderTest) -> None:
    with two_tables(local) as tables, ThreadPoolExecutor(2) as pool:
        before = uuids(local, tables)
        rule = local.holds.set("checked", kind="Exchange")
        query_id = secrets.token_hex(8)
        answer = pool.submit(call, local, f"EXCHANGE TABLES {tables.a} AND {tables.b}", query_id=query_id)
        local.holds.wait(rule)
        killer = pool.submit(local.execute, f"KILL QUERY WHERE query_id = '{query_id}' SYNC")
        time.sleep(0.2)
        assert not killer.done()  # SYNC waits for the effect to end
        local.holds.clear(rule)
        assert answer.result(10).code == 394
        assert [row[:2] for row in killer.result(10)] == [("finished", query_id)]
        assert uuids(local, tables) == before[::-1]
        local.execute("SYSTEM FLUSH LOGS")
        rows = local.execute(
            f"SELECT toString(type), exception_code FROM system.query_log WHERE query_id = '{query_id}'"
        )
        assert rows == [("ExceptionBeforeStart", 394)]


@pytest.mark.parametrize(("point", "swapped"), [("registered", False), ("effect_done", True), ("answer", True)])
def test_cut_connection_gives_no_answer(local: ClickHouseUnderTest, point: str, swapped: bool) -> None:
    with two_tables(local) as tables:
        before = uuids(local, tables)
        local.holds.set(point, "cut", kind="Exchange")
        with pytest.raises((ConnectionError, OSError)):
            call(local, f"EXCHANGE TABLES {tables.a} AND {tables.b}")
        eventually(lambda: not local.execute("SELECT 1 FROM system.processes WHERE query_kind = 'Rename'"))
        assert uuids(local, tables) == (before[::-1] if swapped else before)


def test_delayed_create_user_lands_after_its_answer_was_lost_unless_the_name_is_taken(
    local: ClickHouseUnderTest,
) -> None:
    for taken in (False, True):
        name = f"u_{secrets.token_hex(8)}"
        rule = local.holds.create_user_delayed()
        with pytest.raises((ConnectionError, OSError)):
            call(local, f"CREATE USER {name} IDENTIFIED WITH plaintext_password BY 'late'")
        assert local.execute(f"SELECT count() FROM system.users WHERE name = '{name}'") == [(0,)]
        if taken:
            local.execute(f"CREATE USER {name} IDENTIFIED WITH plaintext_password BY 'tombstone' HOST NONE")
        local.holds.clear(rule)
        eventually(lambda: not local.holds.state()["held"])
        if taken:
            local.execute("SYSTEM FLUSH LOGS")
            log = f"FROM system.query_log WHERE query LIKE 'CREATE USER {name}%'"
            codes = f"SELECT exception_code {log} AND exception_code != 0"
            assert eventually(lambda: local.execute("SYSTEM FLUSH LOGS") or local.execute(codes)) == [(493,)]  # noqa: B023
        else:
            eventually(lambda: local.execute(f"SELECT 1 FROM system.users WHERE name = '{name}'"))  # noqa: B023
        assert (call(local, "SELECT 1", user=name, password="late").code == 516) is taken


def test_waiting_insert_outlives_drop_user_and_ends_with_kill(clickhouse_server: ClickHouseUnderTest) -> None:
    server = clickhouse_server
    with two_tables(server) as tables:
        name, password = make_user(server, f"INSERT ON {tables.a}")
        insert = PartialRequest(server, f"INSERT INTO {tables.a} FORMAT RowBinary", 1000 * len(ROW), name, password)
        insert.send(ROW * 500)
        eventually(lambda: running(server, name))
        server.execute(f"REVOKE ALL ON *.* FROM {name}")
        server.execute(f"DROP USER {name}")
        assert running(server, name) == 1  # registered before the drop: still there
        killed = server.execute(f"KILL QUERY WHERE user = '{name}' OR initial_user = '{name}' ASYNC")
        assert [row[2] for row in killed] == [name]
        with contextlib.suppress(OSError):
            insert.send(ROW * 500)
        assert insert.code() in (394, -1)
        eventually(lambda: not running(server, name))
        assert server.execute(f"SELECT count() FROM {tables.a}") == [(0,)]
        insert.close()


def test_waiting_insert_of_a_dropped_user_still_writes_when_nobody_ends_it(
    clickhouse_server: ClickHouseUnderTest,
) -> None:
    server = clickhouse_server
    with two_tables(server) as tables:
        name, password = make_user(server, f"INSERT ON {tables.a}")
        insert = PartialRequest(server, f"INSERT INTO {tables.a} FORMAT RowBinary", 1000 * len(ROW), name, password)
        insert.send(ROW * 500)
        eventually(lambda: running(server, name))
        server.execute(f"DROP USER {name}")
        insert.send(ROW * 500)
        assert insert.code() == 0
        assert server.execute(f"SELECT count() FROM {tables.a}") == [(1000,)]


def test_drop_user_stops_the_next_request_on_an_open_connection(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        name, password = make_user(clickhouse_server, f"SELECT ON {tables.a}")
        codes: list[int] = []
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                codes.append(
                    call(clickhouse_server, f"SELECT count() FROM {tables.a}", user=name, password=password).code
                )

        reader = threading.Thread(target=read)
        reader.start()
        eventually(lambda: len(codes) > 5)
        clickhouse_server.execute(f"DROP USER {name}")
        after = len(codes)
        eventually(lambda: len(codes) > after + 5)
        stop.set()
        reader.join()
        assert set(codes[after + 1 :]) == {516}
        assert set(codes) <= {0, 192, 516}


def test_kill_ends_a_running_select_with_its_code(clickhouse_server: ClickHouseUnderTest) -> None:
    query_id = secrets.token_hex(8)
    with ThreadPoolExecutor(1) as pool:
        slow = (
            "SELECT count() FROM numbers(1000000) WHERE NOT ignore(sleepEachRow(0.001)) SETTINGS max_block_size = 100"
        )
        answer = pool.submit(call, clickhouse_server, slow, query_id=query_id)
        eventually(lambda: clickhouse_server.execute(f"SELECT 1 FROM system.processes WHERE query_id = '{query_id}'"))
        same: Reply = call(clickhouse_server, "SELECT 1", query_id=query_id)
        assert same.code == 216
        killed = clickhouse_server.execute(f"KILL QUERY WHERE query_id = '{query_id}' SYNC")
        assert [row[:2] for row in killed] == [("finished", query_id)]
        assert answer.result(10).code == 394


def test_http_client_that_goes_away_ends_its_select(local: ClickHouseUnderTest) -> None:
    query_id = secrets.token_hex(8)
    slow = "SELECT count() FROM numbers(1000000) WHERE NOT ignore(sleepEachRow(0.001)) SETTINGS max_block_size = 100"
    request = PartialRequest(local, slow, 0, local.admin_user, local.admin_password, query_id=query_id)
    listed = f"SELECT 1 FROM system.processes WHERE query_id = '{query_id}'"
    eventually(lambda: local.execute(listed))
    request.close()
    eventually(lambda: not local.execute(listed))


def test_user_without_kill_query_kills_only_its_own(clickhouse_server: ClickHouseUnderTest) -> None:
    query_id = secrets.token_hex(8)
    name, password = make_user(clickhouse_server, "SELECT ON system.processes")
    with ThreadPoolExecutor(1) as pool:
        slow = (
            "SELECT count() FROM numbers(1000000) WHERE NOT ignore(sleepEachRow(0.001)) SETTINGS max_block_size = 100"
        )
        answer = pool.submit(call, clickhouse_server, slow, query_id=query_id)
        eventually(lambda: clickhouse_server.execute(f"SELECT 1 FROM system.processes WHERE query_id = '{query_id}'"))
        kill = f"KILL QUERY WHERE query_id = '{query_id}'"
        assert call(clickhouse_server, kill, user=name, password=password).code == 497
        assert not answer.done()
        clickhouse_server.execute(f"{kill} SYNC")
        assert answer.result(10).code == 394
