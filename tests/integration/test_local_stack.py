"""The local stack comes up, comes back after a crash with its data, and gives connections that work."""

from __future__ import annotations

import argparse
import gc
import json
import os
import secrets
import shlex
import stat
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import clickhouse_driver
import psycopg
import pytest

from airflow_provider_dpone.errors import LocalStackFailed
from airflow_provider_dpone.local.cli import add_local_parser
from airflow_provider_dpone.local.postgres import PostgresServer
from airflow_provider_dpone.local.stack import LocalStack
from tests.servers import PostgresUnderTest


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_local_parser(parser.add_subparsers())
    arguments = parser.parse_args(words)
    return int(arguments.handler(arguments))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    directory = tmp_path_factory.mktemp("stack")
    assert run("local", "up", "--dir", str(directory)) == 0
    found = LocalStack(directory)
    yield found
    LocalStack(directory).down()


def connect(stack: LocalStack, name: str) -> psycopg.Connection[tuple[object, ...]]:
    given = stack.connections()[name]
    return psycopg.connect(
        host=given["host"], port=given["port"], user=given["login"], password=given["password"], dbname=given["schema"],
        autocommit=True,
    )  # fmt: skip


def client(stack: LocalStack, name: str) -> clickhouse_driver.Client:
    given = stack.connections()[name]
    port = given["extra"].get("native_port", given["port"])
    return clickhouse_driver.Client(given["host"], port, user=given["login"], password=given["password"])


def test_every_connection_opens_as_the_role_it_names(stack: LocalStack) -> None:
    for name, role in {
        "dpone_control": "dpone_runtime",
        "dpone_control_admin": "dpone_admin",
        "dpone_source": "source_reader",
        "dpone_source_admin": "source_admin",
    }.items():
        with connect(stack, name) as connection:
            assert connection.execute("SELECT current_user").fetchone() == (role,)
    for name, user in {
        "dpone_clickhouse": "dpone_controller",
        "dpone_clickhouse_admin": "default",
        "clickhouse_default": "default",
    }.items():
        assert client(stack, name).execute("SELECT currentUser()") == [(user,)]


def test_source_reader_reads_and_cannot_write(stack: LocalStack) -> None:
    table = f"t_{secrets.token_hex(4)}"
    with connect(stack, "dpone_source_admin") as admin, connect(stack, "dpone_source") as reader:
        admin.execute(f"CREATE TABLE {table} AS SELECT 1 AS one")
        assert reader.execute(f"SELECT * FROM {table}").fetchone() == (1,)
        reader.execute("SET default_transaction_read_only = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute(f"DELETE FROM {table}")
    given = stack.connections()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(**{**parameters(given["dpone_source"]), "dbname": "dpone_control"})


def parameters(given: dict[str, object]) -> dict[str, object]:
    return {"host": given["host"], "port": given["port"], "user": given["login"], "password": given["password"]}


def test_crash_of_both_servers_is_mended_by_up_with_data_and_ports(stack: LocalStack) -> None:
    before = LocalStack(stack.directory).status()
    with connect(stack, "dpone_source_admin") as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
        connection.execute("INSERT INTO kept VALUES (1)")
    admin = client(stack, "dpone_clickhouse_admin")
    admin.execute("CREATE TABLE mart.kept (n Int32) ENGINE = MergeTree ORDER BY n")
    admin.execute("INSERT INTO mart.kept VALUES (1)")
    stack.postgres.kill()
    stack.clickhouse.kill()
    assert run("local", "status", "--dir", str(stack.directory)) == 3
    again = LocalStack(stack.directory)
    again.up()
    after = again.status()
    assert after["running"]
    assert after["postgres"]["pid"] != before["postgres"]["pid"]
    assert after["postgres"]["port"] == before["postgres"]["port"]
    assert after["clickhouse"]["http_port"] == before["clickhouse"]["http_port"]
    with connect(again, "dpone_source") as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1,)
    assert client(again, "dpone_clickhouse_admin").execute("SELECT count() FROM mart.kept") == [(1,)]
    again.up()
    assert again.status() == after


def test_sql_prints_rows_of_both_servers_and_names_what_was_refused(
    stack: LocalStack, capsys: pytest.CaptureFixture[str]
) -> None:
    here = ("local", "sql", "--dir", str(stack.directory))
    assert (
        run(*here, "source", "CREATE TABLE looked (n int, t text);\nINSERT INTO looked VALUES (1);\nTABLE looked") == 0
    )
    assert run(*here, "clickhouse", "SELECT 'a;b', 2;") == 0
    assert capsys.readouterr().out == "1\tNULL\na;b\t2\n"
    for server in ("source", "clickhouse"):
        with pytest.raises(LocalStackFailed, match=f"{server}: .*nope"):
            run(*here, server, "SELECT * FROM nope")


@pytest.mark.parametrize("command", ["env", "status", "down"])
def test_a_directory_without_a_stack_is_named_and_not_made(command: str, tmp_path: Path) -> None:
    with pytest.raises(LocalStackFailed, match="local up --dir"):
        run("local", command, "--dir", str(tmp_path / "none"))
    assert not list(tmp_path.iterdir())


def test_exports_survive_a_shell_though_passwords_hold_awkward_characters(stack: LocalStack) -> None:
    current = LocalStack(stack.directory)
    script = f"{current.exports()}\nexec env -0"
    shown = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
    )
    found = dict(pair.split("=", 1) for pair in shown.stdout.split("\0") if pair)
    control = json.loads(found["AIRFLOW_CONN_DPONE_CONTROL"])
    assert all(character in control["password"] for character in ";{}']")
    with psycopg.connect(**parameters(control), dbname=control["schema"]) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    url = urllib.parse.urlsplit(found["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    login = {"user": url.username, "password": urllib.parse.unquote(url.password or ""), "dbname": "airflow"}
    with psycopg.connect(host=url.hostname, port=url.port, **login) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS made_by_owner (n int)")
    assert shlex.split(current.exports().splitlines()[0])[1] == f"AIRFLOW_HOME={stack.directory}/airflow"


def test_secrets_are_readable_by_their_owner_only(stack: LocalStack) -> None:
    files = [*(stack.directory / "secrets").iterdir(), stack.directory / "postgres" / "password"]
    files += [stack.directory / "clickhouse" / "admin_password", stack.directory / "clickhouse" / "principals.sqlite"]
    for path in files:
        reachable = [parent for parent in (path, *path.parents) if parent.is_relative_to(stack.directory)]
        modes = [stat.S_IMODE(each.stat().st_mode) & 0o077 for each in reachable[:-1]]
        assert 0 in modes, path


def test_postgres_is_durable_and_asks_for_a_password(postgres_server: PostgresUnderTest) -> None:
    with postgres_server.connect() as connection:
        names = ("fsync", "synchronous_commit", "max_connections", "listen_addresses", "unix_socket_directories")
        found = [connection.execute(f"SHOW {name}").fetchone() for name in names]
    assert found == [("on",), ("on",), ("200",), ("127.0.0.1",), ("",)]
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(**{**postgres_server.superuser, "password": "wrong"})


def test_postgres_starts_again_with_a_stale_pid_file(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "pg")
    server.start()
    try:
        with psycopg.connect(**server.parameters(), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        server.kill()
        assert (tmp_path / "pg" / "data" / "postmaster.pid").exists()
        server.start()
        with psycopg.connect(**server.parameters()) as connection:
            assert connection.execute("SELECT n FROM kept").fetchone() == (1,)
        assert PostgresServer(tmp_path / "pg").pid == server.pid
    finally:
        server.stop()
    assert server.pid is None


def test_a_killed_server_starts_again_however_long_its_starter_is_remembered(tmp_path: Path) -> None:
    """A killed child nobody waited for keeps its pid, and PostgreSQL takes that pid for a running server."""
    server = PostgresServer(tmp_path / "postgres")
    gc.disable()
    try:
        for _ in range(2):
            server.start()
            server.kill()
    finally:
        gc.enable()
