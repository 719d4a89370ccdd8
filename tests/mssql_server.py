"""A SQL Server named by DPONE_TEST_MSSQL_DSN (an ODBC connection string of an administrator), and a ledger in it."""

from __future__ import annotations

import os
import re
import secrets
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import pyodbc
from sqlalchemy import Connection, Engine, event

from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.ledger.dialects.base import Failure, Fault, Pins
from airflow_provider_dpone.ledger.dialects.mssql import MssqlDialect
from airflow_provider_dpone.ledger.dialects.mssql.diagnostics import Diagnostic
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from airflow_provider_dpone.ledger.install import install
from airflow_provider_dpone.ledger.schema import SCHEMA, metadata
from airflow_provider_dpone.ledger.transaction import Ledger

DSN: Final = os.environ.get("DPONE_TEST_MSSQL_DSN", "")
pyodbc.pooling = False
_LISTED: Final = re.compile(r"([\w.]+) IN \((\?(?:, \?)*)\)")
_NESTED: Final = re.compile(r"([\w.]+) IN \(SELECT ([\w.]+) \s*FROM ([\w.]+) \s*WHERE ([^()]*)\)")


class StandInDialect(MssqlDialect):
    """What a server that only speaks T-SQL lacks: the transaction's number, names of its own for constraints.

    :param exact: read the whole catalog at every write as the product does; it takes seconds there.
    """

    _layouts: ClassVar[dict[str, bytes]] = {}

    def __init__(self, control_schema: str = SCHEMA, *, exact: bool = False) -> None:
        super().__init__(control_schema)
        self._exact = exact

    def _placed(self, sql: str) -> str:
        """Its application locks are the whole server's, not a database's: name the database in them."""
        mine = "CONCAT(N'dpone_ledger ', DB_NAME()), N'Transaction'"
        return super()._placed(sql).replace("N'dpone_ledger', N'Transaction'", mine)

    def lock(self, connection: Connection) -> str:
        """As in ``lock.sql``, under that name."""
        [(granted,)] = self._rows(
            connection,
            "DECLARE @granted int; DECLARE @name nvarchar(255); SET @name = CONCAT(N'dpone_ledger ', DB_NAME());"
            " EXEC @granted = sp_getapplock @Resource = @name, @LockMode = N'Exclusive', @LockOwner = N'Transaction',"
            " @LockTimeout = 15000, @DbPrincipal = N'dpone_ledger'; SELECT @granted AS granted",
        )
        if granted < 0:
            raise Fault(Failure.BUSY, "ledger_lock")
        return self.transaction_id(connection)

    def engine(self, connect: Callable[[], pyodbc.Connection]) -> Engine:
        """It cannot look a binary up in a list or a subquery; the same question asked in other words."""
        engine = super().engine(connect)

        @event.listens_for(engine, "before_cursor_execute", retval=True)
        def ask(conn: Any, cursor: Any, sql: str, parameters: Any, context: Any, many: bool) -> tuple[str, Any]:
            sql = _LISTED.sub(lambda m: "(" + " OR ".join([f"{m[1]} = ?"] * m[2].count("?")) + ")", sql)
            return _NESTED.sub(r"EXISTS (SELECT 1 FROM \3 WHERE \2 = \1 AND (\4))", sql), parameters

        return engine

    def layout(self, connection: Connection) -> bytes:
        if self._exact:
            return super().layout(connection)
        [(name,)] = self._rows(connection, "SELECT DB_NAME()")
        if name not in self._layouts:
            self._layouts[name] = super().layout(connection)
        return self._layouts[name]

    def begin(self, connection: Connection) -> Pins | None:
        if self._exact:
            return super().begin(connection)
        found = self._rows(
            connection,
            f"SELECT schema_version, service_id, family, layout_sha256 FROM {self.control_schema}.ledger_meta",
        )
        return Pins(found[0][0], uuid.UUID(str(found[0][1])), found[0][2], bytes(found[0][3])) if found else None

    def transaction_id(self, connection: Connection) -> str:
        marked = self._rows(
            connection,
            "SELECT CONCAT(pg_catalog.txid_current(), N'/', @@TRANCOUNT, N'/',"
            " APPLOCK_MODE(N'dbo', CONCAT(N'dpone_ledger ', DB_NAME()), N'Transaction')) AS marked;",
        )
        return str(marked[0][0])

    def _require_fit(self, edition: int, major: int, durability: str | None, read_only: bool) -> None:
        """It reports an older product, and no durability at all."""

    def grants(self, runtime_role: str) -> list[str]:
        """It cannot grant the right to see definitions, nor let a database's owner fill a role."""
        return [g for g in super().grants(runtime_role) if "VIEW DEFINITION" not in g and "ADD MEMBER" not in g]

    def provisioner_grants(self, role: str) -> list[str]:
        """As :meth:`grants`."""
        return [g for g in super().provisioner_grants(role) if "VIEW DEFINITION" not in g and "ADD MEMBER" not in g]

    def _constraint(self, found: Diagnostic) -> str:
        """It adds the table and a hash to the name of an index."""
        name = super()._constraint(found)
        known = {str(named.name) for table in metadata.sorted_tables for named in (*table.constraints, *table.indexes)}
        return max((own for own in known if name.startswith(own)), key=len, default=name)


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

    def dialect(self, *, exact: bool = False) -> MssqlDialect:
        return StandInDialect(exact=exact) if self.stand_in else MssqlDialect()


def server() -> MssqlServer:
    """The server under test."""
    parts = [part.partition("=") for part in DSN.split(";") if part.strip()]
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
        return self.under_test.dialect(exact=self.exact)

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
        if self.under_test.stand_in:
            with opened(self.under_test.connect(database=self.dbname)) as connection:
                batch(connection, f"ALTER ROLE dpone_ledger ADD MEMBER {self.runtime_role}")
        return service_id

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
    with opened(under_test.connect()) as connection:
        batch(connection, f"CREATE DATABASE {database.dbname}")
        for role, password in (
            (database.admin_role, database.admin_password),
            (database.runtime_role, database.runtime_password),
        ):
            batch(connection, f"CREATE LOGIN {role} WITH PASSWORD = N'{password}'")
    with opened(under_test.connect(database=database.dbname)) as connection:
        batch(connection, f"CREATE USER {database.runtime_role} FOR LOGIN {database.runtime_role}")
        batch(connection, f"ALTER AUTHORIZATION ON DATABASE::{database.dbname} TO {database.admin_role}")
    return database
