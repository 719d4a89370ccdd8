"""A dedicated database on the SQL Server under test with its login gate, a ledger on PostgreSQL, and loads into it."""

from __future__ import annotations

import secrets
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyodbc

from airflow_provider_dpone.contracts.enrolment import SchemaEnrolment
from airflow_provider_dpone.contracts.ports import GateKey
from airflow_provider_dpone.contracts.states import Connector
from airflow_provider_dpone.engines.mssql.control import MssqlControl, MssqlSession
from airflow_provider_dpone.engines.mssql.gate import MssqlGate
from airflow_provider_dpone.engines.mssql.install import (
    CONTROLLER_RIGHTS,
    READER,
    controller_statements,
    gate_statements,
)
from airflow_provider_dpone.engines.mssql.load_target import MssqlTarget
from airflow_provider_dpone.engines.mssql.rights import MssqlGatePolicy
from airflow_provider_dpone.engines.sql.rights import WorkerRights
from airflow_provider_dpone.enrolment.mssql import enrol_database
from airflow_provider_dpone.errors import DponeError
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams
from airflow_provider_dpone.ledger.journal import LedgerJournal
from tests.live_mssql import target_stand_in
from tests.mssql_server import MssqlServer
from tests.schema_world import SchemaWorld

_PASSED_ON = ("encrypt", "trustservercertificate")


@dataclass
class MssqlWorld(SchemaWorld):
    """Twin of :class:`SchemaWorld`; the gates are in the target's own database."""

    connector: ClassVar[Connector] = Connector.MSSQL
    mssql: MssqlServer = field(kw_only=True)
    columns: dict[str, str] = field(default_factory=dict)
    _admin: MssqlSession | None = None

    def __post_init__(self) -> None:
        self.database = f"target_{self.tag}"
        self.controller_password = f"Dp1_{secrets.token_hex(16)}"
        self.mssql.create_database(self.database)
        with closing(self.mssql.connect()) as connection:
            batch(connection, f"CREATE LOGIN {self.controller} WITH PASSWORD = N'{self.controller_password}'")
            if self.mssql.stand_in:
                batch(connection, f"ALTER SERVER ROLE sysadmin ADD MEMBER {self.controller}")
            else:
                batch(connection, f"ALTER DATABASE {self.database} SET READ_COMMITTED_SNAPSHOT ON")
                for right in CONTROLLER_RIGHTS:
                    batch(connection, f"GRANT {right} TO {self.controller}")
        self.sql(f"ALTER AUTHORIZATION ON DATABASE::{self.database} TO {self.controller}")
        self.sql(f"CREATE SCHEMA {self.schema}")
        self.install()
        if self.mssql.stand_in:
            self.sql(target_stand_in.UTF16)
            self.sql("GRANT EXECUTE ON dpone_gate.utf16 TO public")

    def install(self) -> None:
        """The gate of the instance, in this database: a server has one login trigger, so tests take turns."""
        if not self.mssql.stand_in:
            with closing(self.mssql.connect()) as connection:
                batch(connection, "IF EXISTS (SELECT 1 FROM sys.server_triggers WHERE name = N'dpone_login_gate') "
                                  "DROP TRIGGER dpone_login_gate ON ALL SERVER")  # fmt: skip
                batch(connection, f"IF SUSER_ID(N'{READER}') IS NOT NULL DROP LOGIN {READER}")
        for sql in gate_statements(self.database):
            self.sql(sql)
        if not self.mssql.stand_in:
            with closing(self.mssql.connect()) as connection:
                batch(connection, f"GRANT IMPERSONATE ON LOGIN::{READER} TO {self.controller}")
            for sql in controller_statements(self.controller):
                self.sql(sql)

    # --- connections ---

    def sql(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        """As sysadmin in the target database, on one session that is kept: a stand-in takes half a second for the first."""
        if self._admin is None:
            self._admin = self.admin_control().fresh()
        try:
            return self._admin.query(statement, *params)
        except DponeError:
            self.let_go()
            raise

    def let_go(self) -> None:
        """End the administrator's session: the database is about to go, or the session is in an unknown state."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def admin_control(self) -> MssqlControl:
        keywords = self.mssql.keywords
        return MssqlControl(self.mssql_params(keywords["uid"], keywords["pwd"]), self.database)

    def control(self, port: int | None = None) -> MssqlControl:  # type: ignore[override]
        return MssqlControl(self.mssql_params(self.controller, self.controller_password, port), self.database)

    def mssql_params(self, user: str, password: str, port: int | None = None) -> MssqlParams:
        keywords = self.mssql.keywords
        return MssqlParams(
            host=self.mssql.host, port=port or self.mssql.port, database=self.database, user=user, password=password,
            driver=keywords["driver"], options=tuple((n, keywords[n]) for n in _PASSED_ON if n in keywords),
        )  # fmt: skip

    def login(self, credential: Any, dbname: str | None = None, **options: Any) -> pyodbc.Connection:  # type: ignore[override]
        return self.mssql.connect(database=dbname or self.database, user=credential.name, password=credential.password)

    # --- enrolment, gates and loads ---

    @property
    def administrators(self) -> list[str]:
        """Who is sysadmin; a stand-in is shared with tests that make others."""
        rows = self.sql("SELECT l.name FROM sys.server_role_members AS m "
                        "JOIN sys.server_principals AS l ON l.principal_id = m.member_principal_id")  # fmt: skip
        return sorted({self.mssql.keywords["uid"], *(str(name) for (name,) in rows)})

    def remove(self) -> None:
        """Everything of this world on the server."""
        names = [name for (name,) in self.sql("SELECT g.name FROM dpone_gate.gate AS g WHERE g.made = 1")]
        self.let_go()
        with closing(self.mssql.connect()) as connection:
            batch(connection, f"ALTER AUTHORIZATION ON DATABASE::{self.database} TO {self.mssql.keywords['uid']}")
            batch(connection, f"DROP DATABASE {self.database}")
            for name in (self.controller, *names):
                with suppress(pyodbc.Error):  # closed logins of a failed test may be gone, or in use
                    batch(connection, f"DROP LOGIN [{name}]")

    def enrol(self, accepted: Any = (), schema: str | None = None) -> SchemaEnrolment:
        identity, enrolment = enrol_database(
            self.admin_control(), self.ledger.admin(), schemas=[schema or self.schema], controller=self.controller,
            administrators=self.administrators, accepted_features=accepted, accepted_by="tester",
        )  # fmt: skip
        self.guard = CompositionActivationStore(self.ledger.runtime()).guard(identity)
        return enrolment

    def look(self) -> None:
        """What a task asks before it is admitted."""
        assert self.guard is not None
        self.target().schema(self.guard.schema, self.schema).look()

    def target(self, port: int | None = None, policy: Any = None) -> MssqlTarget:
        return MssqlTarget(
            self.control(port), policy or MssqlGatePolicy(quiet_timeout=60.0), stand_in=self.mssql.stand_in
        )

    def gate(self, attempt: str, *, port: int | None = None, ledger_port: int | None = None,
             policy: Any = None, epoch: int | None = None, **options: Any) -> MssqlGate:  # type: ignore[override]  # fmt: skip
        assert self.guard is not None
        assert self.activation is not None
        key = GateKey(self.guard.guard_id, epoch or self.activation.epochs[0].epoch, attempt)
        return MssqlGate(
            self.control(port), self.guard.schema, key, LedgerJournal(self.ledger.runtime(ledger_port), attempt),
            policy or MssqlGatePolicy(quiet_timeout=10.0), **options,
        )  # fmt: skip

    def rights(self) -> WorkerRights:
        return WorkerRights(grants=(), member_of=("dpone_writer",))

    def make_load(self, task: str, columns: str, rows: str, target_columns: str = "") -> None:
        """A source table, the target of the same or other columns, and a release that loads one into the other."""
        self.source_sql(f"CREATE TABLE {task} ({columns})")
        self.source_sql(f"INSERT INTO {task} {rows}")
        self.sql(f"CREATE TABLE {self.schema}.{task} ({target_columns or columns})")
        self.activate(self.declare(task))

    def stagings(self) -> list[str]:
        return [str(n) for (n,) in self.sql("SELECT name FROM sys.tables WHERE name LIKE 'dpone[_]s[_]%'")]

    def roles(self) -> list[str]:
        """Issued logins of this database that are enabled."""
        rows = self.sql("SELECT p.name FROM sys.server_principals AS p JOIN dpone_gate.gate AS g ON g.name = p.name "
                        "WHERE p.is_disabled = 0")  # fmt: skip
        return [str(name) for (name,) in rows]

    def gate_state(self, name: str) -> int | None:
        rows = self.sql("SELECT state FROM dpone_gate.gate WHERE name = ?", name)
        return int(rows[0][0]) if rows else None
