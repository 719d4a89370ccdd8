"""The servers tests run on: local ones in a temporary directory, or a real ClickHouse named by the environment."""

from __future__ import annotations

import os
import secrets
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import clickhouse_driver
import psycopg

from airflow_provider_dpone.local.clickhouse.control import HoldPoints
from airflow_provider_dpone.local.clickhouse.process import ClickHouseProcess
from airflow_provider_dpone.local.controller import controller_grants
from airflow_provider_dpone.local.postgres import PostgresServer

URL_VARIABLE = "DPONE_TEST_CLICKHOUSE_URL"
NATIVE_VARIABLE = "DPONE_TEST_CLICKHOUSE_NATIVE"


@dataclass
class ClickHouseUnderTest:
    """A ClickHouse server for tests: ``http://user:password@host:port`` and ``host:port`` name a real one."""

    host: str
    http_port: int
    native_port: int
    admin_user: str
    admin_password: str
    controller_user: str = "dpone_test_controller"
    controller_password: str = field(default_factory=lambda: secrets.token_hex(16))
    local: ClickHouseProcess | None = None

    @property
    def http_url(self) -> str:
        return f"http://{self.host}:{self.http_port}"

    @property
    def holds(self) -> HoldPoints:
        """Hold points; the local server only."""
        assert self.local is not None, "hold points need the local server"
        return self.local.holds

    def client(self, user: str | None = None, password: str | None = None, **options: Any) -> clickhouse_driver.Client:
        """A driver client on the native port; the administrator's by default."""
        if user is None:
            user, password = self.admin_user, self.admin_password
        return clickhouse_driver.Client(self.host, self.native_port, user=user, password=password or "", **options)

    def execute(self, sql: str, *args: Any, **options: Any) -> Any:
        """Run one statement as administrator."""
        client = self.client()
        try:
            return client.execute(sql, *args, **options)
        finally:
            client.disconnect()

    def make_controller(self) -> None:
        """Create the controller with rights on every database."""
        name = self.controller_user
        self.execute(f"DROP USER IF EXISTS {name}")
        self.execute(f"CREATE USER {name} IDENTIFIED WITH sha256_password BY '{self.controller_password}'")
        for statement in controller_grants(name, "*.*"):
            self.execute(statement)


@contextmanager
def clickhouse_under_test(directory: Path) -> Iterator[ClickHouseUnderTest]:
    """The server named by the environment, or a local one in ``directory``, with its controller."""
    if URL_VARIABLE in os.environ:
        url = urllib.parse.urlsplit(os.environ[URL_VARIABLE])
        host, _, port = os.environ[NATIVE_VARIABLE].rpartition(":")
        server = ClickHouseUnderTest(
            host or str(url.hostname),
            url.port or 8123,
            int(port),
            urllib.parse.unquote(url.username or "default"),
            urllib.parse.unquote(url.password or ""),
        )
        server.make_controller()
        yield server
        return
    process = ClickHouseProcess(directory)
    process.start()
    try:
        server = ClickHouseUnderTest(
            process.host,
            process.http_port,
            process.native_port,
            process.admin_user,
            process.admin_password,
            local=process,
        )
        server.make_controller()
        yield server
    finally:
        process.kill()


@dataclass
class PostgresUnderTest:
    """A local PostgreSQL server for tests."""

    server: PostgresServer

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def superuser(self) -> dict[str, Any]:
        """psycopg parameters of the superuser on database postgres."""
        return self.server.parameters()

    @property
    def dsn(self) -> str:
        """The same as a connection string."""
        return psycopg.conninfo.make_conninfo(**self.superuser)

    def connect(self, dbname: str = "postgres", **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """A superuser's connection in autocommit mode."""
        return psycopg.connect(**{**self.server.parameters(dbname), "autocommit": True, **options})

    def fresh_database(self, prefix: str = "test") -> str:
        """A new empty database; returns its name."""
        name = f"{prefix}_{secrets.token_hex(6)}"
        with self.connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return name


@contextmanager
def postgres_under_test(directory: Path) -> Iterator[PostgresUnderTest]:
    """A local PostgreSQL server in ``directory``."""
    server = PostgresServer(directory)
    server.start()
    try:
        yield PostgresUnderTest(server)
    finally:
        server.stop()
