"""A SQL Server named by DPONE_TEST_MSSQL_DSN (an ODBC connection string of an administrator), and a ledger in it."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyodbc

from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.ledger.dialects.mssql import MssqlDialect
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from airflow_provider_dpone.ledger.install import install
from airflow_provider_dpone.ledger.transaction import Ledger
from tests.stand_in import StandInDialect

pyodbc.pooling = False


def _dsn() -> str:
    """The server of this test worker: its own (``DPONE_TEST_MSSQL_DSN_GW1`` for the second) or the shared one."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").upper()
    return os.environ.get(f"DPONE_TEST_MSSQL_DSN_{worker}") or os.environ["DPONE_TEST_MSSQL_DSN"]


@dataclass(frozen=True)
class MssqlServer:
    """Keywords of the administrator's connection string."""

    keywords: dict[str, str]
    stand_in: bool

    @property
    def host(self) -> str:
        return self.keywords["server"].split(",")[0].removeprefix("tcp:")

    @property
    def port(self) -> int:
        return int(([*self.keywords["server"].split(","), "1433"])[1])

    def connect(
        self, *, database: str = "master", user: str | None = None, password: str | None = None, port: int | None = None
    ) -> pyodbc.Connection:
        keywords = self.keywords | {"database": database, "server": f"{self.host},{port or self.port}"}
        if user is not None:
            keywords |= {"uid": user, "pwd": str(password)}
        text = ";".join(f"{name}={{{value}}}" if name in ("driver", "pwd") else f"{name}={value}"
                        for name, value in keywords.items())  # fmt: skip
        return pyodbc.connect(text + ";ConnectRetryCount=0", autocommit=True, timeout=15)

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Nobody else on this machine does the same on this server meanwhile."""
        name = f"dpone-test-{self.host}-{self.port}-{what}.lock".replace("/", "_").replace("\\", "_")
        with (Path(tempfile.gettempdir()) / name).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def create_database(self, name: str) -> None:
        """A stand-in makes one database at a time."""
        with self.alone("create"), closing(self.connect()) as connection:
            batch(connection, f"CREATE DATABASE {name}")

    def dialect(self, *, exact: Callable[[], pyodbc.Connection] | None = None) -> MssqlDialect:
        return StandInDialect(exact=exact) if self.stand_in else MssqlDialect()


def server() -> MssqlServer:
    """The server under test."""
    parts = [part.partition("=") for part in _dsn().split(";") if part.strip()]
    keywords = {name.strip().lower(): value.strip().strip("{}") for name, _, value in parts}
    found = MssqlServer(keywords, stand_in=False)
    with found.connect() as connection:
        version = str(batch(connection, "SELECT @@VERSION")[0][0])
    return MssqlServer(keywords, stand_in="Microsoft SQL Server" not in version)


@dataclass
class MssqlLedgerDatabase:
    """Addresses and roles of one control database on SQL Server; the twin of ``ledger_database.LedgerDatabase``."""

    under_test: MssqlServer
    dbname: str
    admin_role: str
    admin_password: str
    runtime_role: str
    runtime_password: str
    commit_marker: bytes = "COMMIT TRANSACTION".encode("utf-16le")
    engine: str = "mssql"
    exact: bool = False
    logins: list[str] = field(default_factory=list)
    """Further logins a test made for it."""

    @property
    def host(self) -> str:
        return self.under_test.host

    @property
    def port(self) -> int:
        return self.under_test.port

    def dialect(self) -> MssqlDialect:
        return self.under_test.dialect(exact=self.connect_admin if self.exact else None)

    def connect_admin(self) -> pyodbc.Connection:
        return self.under_test.connect(database=self.dbname, user=self.admin_role, password=self.admin_password)

    def connect_runtime(self, port: int | None = None) -> pyodbc.Connection:
        return self.under_test.connect(
            database=self.dbname, user=self.runtime_role, password=self.runtime_password, port=port
        )

    def install(self) -> uuid.UUID:
        """Install the ledger; its service id."""
        service_id = install(
            self.connect_admin, self.dialect(), family=Family.NONPRODUCTION, runtime_role=self.runtime_role
        )
        self.after_installation()
        return service_id

    def after_installation(self) -> None:
        """What a database's owner could not do on a stand-in."""
        if self.under_test.stand_in:
            with opened(self.under_test.connect(database=self.dbname)) as connection:
                batch(connection, f"ALTER ROLE dpone_ledger ADD MEMBER {self.runtime_role}")

    def drop(self) -> None:
        """Everything that was made for it, once nobody is connected to it any more."""
        with opened(self.under_test.connect()) as connection:
            batch(connection, f"DROP DATABASE {self.dbname}")
            for login in (self.runtime_role, self.admin_role, *self.logins):
                batch(connection, f"DROP LOGIN {login}")

    def admin(self) -> Ledger:
        return Ledger(self.connect_admin, self.dialect())

    def runtime(self, port: int | None = None) -> Ledger:
        return Ledger(lambda: self.connect_runtime(port), self.dialect())

    def as_admin(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in autocommit as the ledger's administrator; the rows of the last."""
        rows: list[tuple[Any, ...]] = []
        with opened(self.connect_admin()) as connection:
            for statement in statements:
                rows = batch(connection, statement)
        return rows


@contextmanager
def opened(connection: pyodbc.Connection) -> Iterator[pyodbc.Connection]:
    try:
        yield connection
    finally:
        connection.close()


def create(under_test: MssqlServer) -> MssqlLedgerDatabase:
    """A fresh database with both roles."""
    tag = secrets.token_hex(4)
    database = MssqlLedgerDatabase(
        under_test,
        dbname=f"ledger_{tag}",
        admin_role=f"admin_{tag}",
        admin_password=f"Aa1!{secrets.token_hex(12)}",
        runtime_role=f"runtime_{tag}",
        runtime_password=f"Aa1!{secrets.token_hex(12)}",
    )
    under_test.create_database(database.dbname)
    with opened(under_test.connect()) as connection:
        for role, password in (
            (database.admin_role, database.admin_password),
            (database.runtime_role, database.runtime_password),
        ):
            batch(connection, f"CREATE LOGIN {role} WITH PASSWORD = N'{password}'")
    with opened(under_test.connect(database=database.dbname)) as connection:
        batch(connection, f"CREATE USER {database.runtime_role} FOR LOGIN {database.runtime_role}")
        batch(connection, f"ALTER AUTHORIZATION ON DATABASE::{database.dbname} TO {database.admin_role}")
    return database
