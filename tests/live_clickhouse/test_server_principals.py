"""Users, grants, quotas and constraints: what the gate of one-time users rests on."""

from __future__ import annotations

import hashlib
import secrets

import pytest
from clickhouse_driver.errors import ServerException

from tests.live_clickhouse.http_requests import call, make_user, two_tables, uuids
from tests.servers import ClickHouseUnderTest

FULL = "SELECT, INSERT, CREATE TABLE, DROP TABLE"


def code_of(server: ClickHouseUnderTest, sql: str, user: str | None = None, password: str = "") -> int:
    """The exception code of a statement sent over the native protocol."""
    client = server.client(user, password)
    try:
        client.execute(sql)
    except ServerException as error:
        return int(error.code)
    finally:
        client.disconnect()
    return 0


@pytest.mark.parametrize("clauses", ["HOST NONE", "VALID UNTIL '2020-01-01'", "HOST IP '203.0.113.7'"])
def test_user_that_may_not_log_in_is_refused_like_a_wrong_password(
    clickhouse_server: ClickHouseUnderTest, clauses: str
) -> None:
    name, password = make_user(clickhouse_server)
    assert call(clickhouse_server, "SELECT 1", user=name, password=password).body == b"1\n"
    wrong = call(clickhouse_server, "SELECT 1", user=name, password="wrong")
    clickhouse_server.execute(f"ALTER USER {name} {clauses}")
    refused = call(clickhouse_server, "SELECT 1", user=name, password=password)
    assert (refused.code, wrong.code) == (516, 516)
    assert refused.status == 403
    assert code_of(clickhouse_server, "SELECT 1", name, password) == 516
    assert call(clickhouse_server, "SELECT 1", user="nobody_of_this_name").code == 516


def test_hash_and_salt_open_with_the_password_only(clickhouse_server: ClickHouseUnderTest) -> None:
    name, password, salt = f"u_{secrets.token_hex(8)}", "p;{}']\\ü", secrets.token_hex(8)
    digest = hashlib.sha256((password + salt).encode()).hexdigest()
    clickhouse_server.execute(
        f"CREATE USER {name} IDENTIFIED WITH sha256_hash BY '{digest}' SALT '{salt}' "
        "VALID UNTIL '2035-01-01 00:00:00 UTC' "
        "HOST IP '127.0.0.1', IP '::1' DEFAULT ROLE NONE GRANTEES NONE SETTINGS async_insert = 0 CONST"
    )
    assert call(clickhouse_server, "SELECT currentUser()", user=name, password=password).body.decode().strip() == name
    assert call(clickhouse_server, "SELECT 1", user=name, password=digest).code == 516


def test_create_on_an_existing_name_fails_so_a_tombstone_holds(clickhouse_server: ClickHouseUnderTest) -> None:
    name = f"u_{secrets.token_hex(8)}"
    clickhouse_server.execute(f"CREATE USER {name} IDENTIFIED WITH plaintext_password BY 'x' HOST NONE")
    [(before,)] = clickhouse_server.execute(f"SELECT toString(id) FROM system.users WHERE name = '{name}'")
    assert code_of(clickhouse_server, f"CREATE USER {name} IDENTIFIED WITH plaintext_password BY 'y'") == 493
    assert code_of(clickhouse_server, f"CREATE USER IF NOT EXISTS {name} IDENTIFIED BY 'y'") == 0
    [(after,)] = clickhouse_server.execute(f"SELECT toString(id) FROM system.users WHERE name = '{name}'")
    assert after == before
    assert call(clickhouse_server, "SELECT 1", user=name, password="y").code == 516
    clickhouse_server.execute(f"DROP USER {name}")
    assert code_of(clickhouse_server, f"DROP USER {name}") == 192
    assert code_of(clickhouse_server, f"DROP USER IF EXISTS {name}") == 0


def test_session_of_a_dropped_user_is_refused_also_after_its_name_came_back(
    clickhouse_server: ClickHouseUnderTest,
) -> None:
    name, password = make_user(clickhouse_server)
    first, second = (clickhouse_server.client(name, password) for _ in range(2))
    assert first.execute("SELECT 1") == second.execute("SELECT 1") == [(1,)]
    clickhouse_server.execute(f"DROP USER {name}")
    with pytest.raises(ServerException) as dropped:  # the driver closes a connection after an exception
        first.execute("SELECT 1")
    clickhouse_server.execute(f"CREATE USER {name} IDENTIFIED WITH sha256_password BY '{password}'")
    with pytest.raises(ServerException) as replaced:
        second.execute("SELECT 1")
    assert (dropped.value.code, replaced.value.code) == (192, 192)


@pytest.mark.parametrize("missing", FULL.split(", "))
@pytest.mark.parametrize("name", ["a", "b"])
def test_exchange_needs_all_four_rights_on_both_names(
    clickhouse_server: ClickHouseUnderTest, missing: str, name: str
) -> None:
    with two_tables(clickhouse_server) as tables:
        before = uuids(clickhouse_server, tables)
        swap = f"EXCHANGE TABLES {tables.a} AND {tables.b}"
        user, password = make_user(clickhouse_server, f"{FULL} ON {tables.a}", f"{FULL} ON {tables.b}")
        clickhouse_server.execute(f"REVOKE {missing} ON {tables.database}.{name} FROM {user}")
        assert call(clickhouse_server, swap, user=user, password=password).code == 497
        assert uuids(clickhouse_server, tables) == before
        clickhouse_server.execute(f"GRANT {missing} ON {tables.database}.{name} TO {user}")
        assert call(clickhouse_server, swap, user=user, password=password).code == 0
        assert uuids(clickhouse_server, tables) == before[::-1]


def test_quota_of_one_refuses_a_repeated_exchange(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        before = uuids(clickhouse_server, tables)
        name, password = make_user(clickhouse_server, f"{FULL} ON {tables.a}", f"{FULL} ON {tables.b}")
        clickhouse_server.execute(f"CREATE QUOTA {name} FOR INTERVAL 100 YEAR MAX queries = 1 TO {name}")
        try:
            swap = f"EXCHANGE TABLES {tables.a} AND {tables.b}"
            codes = [call(clickhouse_server, swap, user=name, password=password).code for _ in range(3)]
            assert codes == [0, 201, 201]
            assert uuids(clickhouse_server, tables) == before[::-1]
        finally:
            clickhouse_server.execute(f"DROP QUOTA {name}")


def test_const_setting_cannot_be_changed_by_parameter_or_clause(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        name, password = make_user(
            clickhouse_server,
            f"INSERT, SELECT ON {tables.a}",
            clauses="SETTINGS async_insert = 0 CONST, max_threads = 1 MAX 2",
        )
        login = {"user": name, "password": password}
        insert = f"INSERT INTO {tables.a} {{}} FORMAT TSV"
        assert call(clickhouse_server, insert.format(""), b"1\ta\n", **login, async_insert="1").code == 452
        assert call(clickhouse_server, insert.format("SETTINGS async_insert = 1"), b"1\ta\n", **login).code == 452
        assert call(clickhouse_server, insert.format(""), b"1\ta\n", **login, async_insert="0").code == 0
        assert call(clickhouse_server, "SELECT 1", **login, max_threads="3").code == 452
        assert clickhouse_server.execute(f"SELECT count() FROM {tables.a}") == [(1,)]
        client = clickhouse_server.client(name, password, settings={"async_insert": 1})
        with pytest.raises(ServerException) as refused:
            client.execute(f"SELECT count() FROM {tables.a}")
        assert refused.value.code == 452


def test_drop_guard_setting_stops_a_publisher_from_dropping(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        clickhouse_server.execute(f"INSERT INTO {tables.a} VALUES (1, 'x')")
        clauses = "SETTINGS max_table_size_to_drop = 1 CONST"
        name, password = make_user(clickhouse_server, f"{FULL} ON {tables.a}", clauses=clauses)
        assert call(clickhouse_server, f"DROP TABLE {tables.a}", user=name, password=password).code == 359


def test_revoke_all_takes_every_right_at_once(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        name, password = make_user(clickhouse_server, f"{FULL} ON {tables.a}", f"INSERT ON {tables.database}.*")
        clickhouse_server.execute(f"REVOKE ALL ON *.* FROM {name}")
        assert clickhouse_server.execute(f"SHOW GRANTS FOR {name}") == []
        assert clickhouse_server.execute(f"SELECT count() FROM system.grants WHERE user_name = '{name}'") == [(0,)]
        insert = f"INSERT INTO {tables.a} FORMAT TSV"
        assert call(clickhouse_server, insert, b"1\ta\n", user=name, password=password).code == 497


def test_partial_revoke_leaves_the_rest(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        name, password = make_user(clickhouse_server, f"SELECT ON {tables.database}.*")
        clickhouse_server.execute(f"REVOKE SELECT ON {tables.b} FROM {name}")
        login = {"user": name, "password": password}
        assert call(clickhouse_server, f"SELECT count() FROM {tables.a}", **login).code == 0
        assert call(clickhouse_server, f"SELECT count() FROM {tables.b}", **login).code == 497
        assert call(clickhouse_server, f"CHECK GRANT SELECT ON {tables.database}.*", **login).body == b"0\n"


def test_grants_are_shown_as_they_are(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        name, password = make_user(clickhouse_server, f"INSERT ON {tables.a}", f"SELECT ON {tables.database}.*")
        rows = clickhouse_server.execute(
            "SELECT toString(access_type), database, table, column, is_partial_revoke, grant_option "
            f"FROM system.grants WHERE user_name = '{name}' ORDER BY 1"
        )
        assert rows == [("INSERT", tables.database, "a", None, 0, 0), ("SELECT", tables.database, None, None, 0, 0)]
        login = {"user": name, "password": password}
        assert call(clickhouse_server, f"CHECK GRANT INSERT ON {tables.a}", **login).body == b"1\n"
        assert call(clickhouse_server, f"CHECK GRANT INSERT ON {tables.b}", **login).body == b"0\n"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM {b}",
        "SELECT * FROM {a} WHERE id IN (SELECT id FROM {b})",
        "WITH x AS (SELECT * FROM {b}) SELECT * FROM x",
        "SELECT (SELECT count() FROM {b})",
        "SELECT * FROM {a} WHERE id IN {b}",
        "SELECT * FROM {b} AS x",
        "EXPLAIN SELECT * FROM {b}",
        "DESCRIBE TABLE (SELECT * FROM {b})",
        "SELECT * FROM merge(currentDatabase(), 'b')",
        "INSERT INTO {b} SELECT * FROM {a}",
        "INSERT INTO {a} SELECT * FROM {b}",
        "CREATE TABLE {a}2 ENGINE = Memory AS SELECT * FROM {a}",
        "TRUNCATE TABLE {a}",
        "DROP TABLE {a}",
        "RENAME TABLE {a} TO {a}2",
        "ALTER TABLE {a} DELETE WHERE 1",
        "ALTER TABLE {a} ADD COLUMN x Int8",
        "OPTIMIZE TABLE {a} FINAL",
        "SELECT * FROM file('/etc/hostname', 'LineAsString')",
        "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'x String')",
        "SELECT name FROM system.users",
        "SELECT name FROM system.grants",
        "SELECT * FROM system.query_log",
        "CREATE USER somebody",
        "DROP USER default",
        "GRANT SELECT ON {a} TO default",
        "CREATE QUOTA q FOR INTERVAL 1 YEAR MAX queries = 1",
        "CREATE DATABASE another",
        "SYSTEM FLUSH LOGS",
        "SYSTEM RELOAD USERS",
    ],
)
def test_user_with_rights_on_one_table_cannot(clickhouse_server: ClickHouseUnderTest, sql: str) -> None:
    with two_tables(clickhouse_server) as tables:
        name, password = make_user(clickhouse_server, f"SELECT, INSERT ON {tables.a}")
        statement = sql.format(a=tables.a, b=tables.b)
        assert call(clickhouse_server, statement, user=name, password=password).code == 497
        assert code_of(clickhouse_server, statement, name, password) == 497


def test_unqualified_names_are_checked_in_the_current_database(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        name, password = make_user(clickhouse_server, f"SELECT ON {tables.a}")
        login = {"user": name, "password": password, "database": tables.database}
        for sql, code in (
            ("SELECT count() FROM a", 0),
            ("WITH c AS (SELECT id FROM a) SELECT count() FROM c WHERE id IN c", 0),
            ("SELECT count() FROM b", 497),
            ("SELECT count() FROM b AS x", 497),
            ("SELECT count() FROM a AS x JOIN b AS y USING (id)", 497),
        ):
            assert call(clickhouse_server, sql, **login).code == code, sql


def test_session_ends_with_valid_until(clickhouse_server: ClickHouseUnderTest) -> None:
    name, password = make_user(clickhouse_server)
    client = clickhouse_server.client(name, password)
    assert client.execute("SELECT 1") == [(1,)]
    clickhouse_server.execute(f"ALTER USER {name} VALID UNTIL '2020-01-01'")
    with pytest.raises(ServerException) as expired:
        client.execute("SELECT 1")
    assert expired.value.code in (516, 720)


def test_views_are_filtered_without_show_and_complete_with_it(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        name, password = make_user(clickhouse_server, f"SELECT ON {tables.a}")
        inner = f"SELECT name FROM system.tables WHERE database = '{tables.database}' ORDER BY name"
        listed = f"SELECT groupArray(name) FROM ({inner})"
        login = {"user": name, "password": password}
        assert call(clickhouse_server, listed, **login).body == b"['a']\n"
        assert call(clickhouse_server, "CHECK GRANT SHOW ON *.*", **login).body == b"0\n"
        clickhouse_server.execute(f"GRANT SHOW ON *.* TO {name}")
        assert call(clickhouse_server, listed, **login).body == b"['a','b']\n"
        assert call(clickhouse_server, "CHECK GRANT SHOW ON *.*", **login).body == b"1\n"


def test_controller_can_issue_and_close_a_user(clickhouse_server: ClickHouseUnderTest) -> None:
    controller = clickhouse_server.client(clickhouse_server.controller_user, clickhouse_server.controller_password)
    name = f"u_{secrets.token_hex(8)}"
    with two_tables(clickhouse_server) as tables:
        for sql in (
            f"CREATE USER {name} IDENTIFIED WITH sha256_password BY 'p' HOST LOCAL GRANTEES NONE",
            f"CREATE QUOTA {name} FOR INTERVAL 100 YEAR MAX queries = 1 TO {name}",
            f"GRANT {FULL} ON {tables.a} TO {name}",
        ):
            controller.execute(sql)
        assert controller.execute(f"SELECT max_queries FROM system.quota_limits WHERE quota_name = '{name}'") == [(1,)]
        assert controller.execute(f"SELECT apply_to_list FROM system.quotas WHERE name = '{name}'") == [([name],)]
        for sql in (f"REVOKE ALL ON *.* FROM {name}", f"DROP USER {name}", f"DROP QUOTA {name}", "SYSTEM RELOAD USERS"):
            controller.execute(sql)
        assert controller.execute(f"SELECT count() FROM system.users WHERE name = '{name}'") == [(0,)]
        assert controller.execute("SELECT name FROM system.users WHERE name = currentUser()") != []
        assert controller.execute("CHECK GRANT SHOW ON *.*") == [(1,)]
    controller.disconnect()


def test_one_cannot_grant_what_one_has_without_option(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        name, password = make_user(clickhouse_server, f"SELECT ON {tables.a}")
        other, _ = make_user(clickhouse_server)
        assert code_of(clickhouse_server, f"GRANT SELECT ON {tables.a} TO {other}", name, password) == 497
        clickhouse_server.execute(f"GRANT SELECT ON {tables.a} TO {name} WITH GRANT OPTION")
        assert code_of(clickhouse_server, f"GRANT SELECT ON {tables.a} TO {other}", name, password) == 0
        assert code_of(clickhouse_server, f"REVOKE SELECT ON {tables.a} FROM {other}", name, password) == 0
        clickhouse_server.execute(f"GRANT INSERT ON {tables.a} TO {other}")
        assert code_of(clickhouse_server, f"REVOKE INSERT ON {tables.a} FROM {other}", name, password) == 497


@pytest.mark.parametrize("sql", ["SELECT 1; SELECT 2", "CREATE USER x; DROP USER x", "SELECT 'a"])
def test_more_than_one_statement_is_a_syntax_error(clickhouse_server: ClickHouseUnderTest, sql: str) -> None:
    assert call(clickhouse_server, sql).code == 62


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE ROLE r",
        "GRANT r TO default",
        "CREATE ROW POLICY p ON system.one USING 1 TO default",
        "CREATE SETTINGS PROFILE p",
        "CREATE USER x ON CLUSTER c",
        "BACKUP DATABASE system TO Disk('d', 'f')",
        "SELECT 1 INTO OUTFILE 'x'",
        "SYSTEM SHUTDOWN",
        "FROBNICATE",
    ],
)
def test_local_server_says_what_it_does_not_implement(clickhouse_server: ClickHouseUnderTest, sql: str) -> None:
    if clickhouse_server.local is not None:
        assert call(clickhouse_server, sql).code == 48
