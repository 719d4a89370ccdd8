"""SQL Server twin of the ledger: application lock, transaction identity, layout fingerprint, error meanings, DDL."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateIndex, CreateTable

from airflow_provider_dpone.ledger.dialects.base import (
    EVERYTHING,
    LATEST,
    Audited,
    Failure,
    Fault,
    Pins,
    Session,
    bare,
    plain_name,
)
from airflow_provider_dpone.ledger.dialects.mssql.diagnostics import BUSY, PASSING, Diagnostic, diagnose
from airflow_provider_dpone.ledger.dialects.mssql.explicit import URL, ExplicitTransactions
from airflow_provider_dpone.ledger.schema import LEGACY_TABLES, SCHEMA, TABLE_NAMES, metadata

if TYPE_CHECKING:
    import pyodbc

#: Error number of every refusal by a rule; its message is the rule's name.
RULE: Final = 51000
_OLDEST_MAJOR: Final = 16
#: Editions of the boxed product; Azure SQL Database has neither server triggers nor a recovery identity.
_EDITIONS: Final = (2, 3, 4)
_NAME: Final = re.compile(r"(?:constraint|index) ['\"](?P<name>[^'\"]+)['\"]", re.IGNORECASE)
_DUPLICATE: Final = (2601, 2627)
#: CHECK or foreign key; NULL where none may be; the lock asked for outside a transaction.
_RULES: Final = {547: "", 515: "not_null", 3918: "ledger_lock"}
_RIGHTS: Final = (229, 230, 262, 297, 300, 916, 1088, 4704, 15151, 15247, 15406)
_NOT_INSTALLED: Final = (208, 2760)
#: The login is refused while its database is away.
_LOGIN_FAILED: Final = 18456
_GO: Final = re.compile(r"^GO\s*$", re.MULTILINE)


def _sql(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def batches(script: str) -> list[str]:
    """The batches of a script whose separator is ``GO`` on a line of its own."""
    return [part.strip() for part in _GO.split(script) if part.strip()]


class MssqlDialect:
    """What the one code path needs to know of SQL Server.

    :param control_schema: schema of the ledger's tables.
    """

    name: str = "mssql"
    returning: bool = False

    def __init__(self, control_schema: str = SCHEMA) -> None:
        self.control_schema = plain_name(control_schema)

    def _text(self, name: str) -> str:
        return self._placed(_sql(name))

    def _placed(self, sql: str) -> str:
        return sql.replace("[dpone]", f"[{self.control_schema}]").replace("N'dpone'", f"N'{self.control_schema}'")

    def engine(self, connect: Callable[[], pyodbc.Connection]) -> Engine:
        """An engine that opens a new physical connection for every use, with transactions of its own."""

        def unpooled() -> pyodbc.Connection:
            connection = connect()
            connection.autocommit = True
            return connection

        engine = create_engine(URL, creator=unpooled, poolclass=NullPool, deprecate_large_types=True)
        dialect = engine.dialect
        assert isinstance(dialect, ExplicitTransactions)
        dialect.settings = _sql("session.sql")
        return engine.execution_options(schema_translate_map={SCHEMA: self.control_schema})

    def layout(self, connection: Connection) -> bytes:
        """Fingerprint of the installed schema."""
        parts = batches(self._text("layout.sql"))
        lines = sorted(str(row[0]) for part in parts for row in self._rows(connection, part))
        return hashlib.sha256("\n".join(lines).encode()).digest()

    def begin(self, connection: Connection) -> Session:
        """Refuse a server, or a database whose commits are not durable, and identify the installed ledger."""
        names = ", ".join(f"N'{name}'" for name in LEGACY_TABLES)
        [row] = self._rows(connection, self._text("pins.sql").replace("/*legacy*/N'authority'", names))
        (
            version,
            service_id,
            family,
            layout,
            incarnation,
            durability,
            read_only,
            edition,
            major,
            reading,
            here,
            legacy,
        ) = row
        self._require_fit(edition, major, durability, read_only)
        if here is None:
            raise Fault(
                Failure.MISMATCH, "this session may not see which database this is (sys.database_recovery_status)"
            )
        pins = None
        if version is not None:
            pins = Pins(version, uuid.UUID(str(service_id)), family, bytes(layout), incarnation)
        return Session(str(reading), str(here), tuple(legacy.split(", ")) if legacy else (), pins)

    def reading_id(self, connection: Connection) -> str:
        """Identity of the transaction now open."""
        [(reading,)] = self._rows(connection, "SELECT CONCAT(CURRENT_TRANSACTION_ID(), N'/', @@TRANCOUNT) AS reading;")
        return str(reading)

    def _require_fit(self, edition: int, major: int, durability: str | None, read_only: bool) -> None:
        if edition not in _EDITIONS or major < _OLDEST_MAJOR:
            raise Fault(Failure.MISMATCH, "a ledger needs SQL Server 2022 or newer, and not Azure SQL Database")
        if durability != "DISABLED" or read_only:
            raise Fault(Failure.MISMATCH, "the control database is read-only or allows delayed durability")

    def lock(self, connection: Connection) -> str:
        """Take the ledger lock for this transaction and return the transaction's identity."""
        [(granted,)] = self._rows(connection, _sql("lock.sql"))
        if granted < 0:
            raise Fault(Failure.BUSY, "ledger_lock")
        return self.transaction_id(connection)

    def transaction_id(self, connection: Connection) -> str:
        """Identity of the transaction now open."""
        [(identity,)] = self._rows(connection, _sql("identity.sql"))
        return str(identity)

    def classify(self, error: BaseException) -> tuple[Failure, str]:
        """What a driver error means: the failure and the name of the rule or constraint."""
        found = diagnose(error)
        number = found.number
        if number == RULE:
            return Failure.RULE, found.text
        if number in _DUPLICATE:
            return Failure.DUPLICATE, self._constraint(found)
        if number in BUSY:
            return Failure.BUSY, "ledger_lock"
        if number in _RULES:
            return Failure.RULE, _RULES[number] or self._constraint(found)
        if number in _RIGHTS:
            return Failure.RULE, "insufficient_privilege"
        if number in _NOT_INSTALLED:
            return Failure.MISMATCH, "not_installed"
        if number is None or number in PASSING or number == _LOGIN_FAILED or found.sqlstate.startswith(("08", "HYT")):
            return Failure.UNREACHABLE, type(error).__name__
        return Failure.REFUSED, str(number)

    def _constraint(self, found: Diagnostic) -> str:
        named = _NAME.search(found.text)
        return named["name"] if named else "constraint"

    def existing(self, connection: Connection, names: list[str]) -> list[str]:
        """Tables among ``names`` that exist in any schema this user can see, and the control schema itself."""
        listed = ", ".join(f"N'{name}'" for name in names)
        found = self._rows(
            connection,
            "SELECT CONCAT(SCHEMA_NAME(o.schema_id), N'.', o.name) FROM sys.objects AS o"  # noqa: S608
            f" WHERE o.type IN ('U', 'V', 'SN') AND LOWER(o.name) IN ({listed})"
            f" UNION ALL SELECT s.name FROM sys.schemas AS s WHERE s.name = N'{self.control_schema}'",
        )
        return sorted(str(row[0]) for row in found)

    def audit(self, connection: Connection, looked_at: Audited = EVERYTHING) -> list[str]:
        """What does not agree between originals, rows and proofs, one line each; one statement."""
        sql = bare(self._text("audit_attempts.sql")).replace("/*scope*/ 1 = 1", self._scope(looked_at))
        if looked_at.whole:
            sql = f"{sql}\nUNION ALL\n{bare(self._text('audit.sql'))}"
        return [f"{what} {which}" for what, which in self._rows(connection, sql)]

    def _scope(self, looked_at: Audited) -> str:
        if looked_at.activation is not None:
            return f"a.activation_sha256 = 0x{looked_at.activation.hex()}"
        if looked_at.guards:
            listed = " OR ".join(f"g.guard_id = 0x{guard.hex()}" for guard in looked_at.guards)
            return (
                f"EXISTS (SELECT 1 FROM [{self.control_schema}].[guard] AS g"  # noqa: S608
                f" JOIN [{self.control_schema}].[attempt_guard] AS h ON h.guard_id = g.guard_id"
                f" AND h.ordinal > g.admitted - {LATEST}"
                f" WHERE h.attempt_sha256 = a.attempt_sha256 AND ({listed}))"
            )
        return "1 = 1"

    def ddl(self) -> list[str]:
        """Every batch of the schema, in order."""
        statements = [f"CREATE SCHEMA [{self.control_schema}];"]
        dialect = ExplicitTransactions(deprecate_large_types=True)  # type: ignore[no-untyped-call]
        for table in metadata.sorted_tables:
            indexes = sorted(table.indexes, key=str)
            parts: list[CreateTable | CreateIndex] = [CreateTable(table), *(CreateIndex(index) for index in indexes)]
            statements += [str(part.compile(dialect=dialect)).strip().replace("dpone.", "[dpone].") for part in parts]
        for name in ("documents", "checks", "rules", "authority"):
            statements += batches(_sql(f"{name}.sql"))
        return [self._placed(statement) for statement in statements]

    def grants(self, runtime_role: str) -> list[str]:
        """Rights of the role a running task uses."""
        return batches(self._text("roles.sql").replace("/*runtime*/", runtime_role.replace("]", "]]")))

    def provisioner_grants(self, role: str) -> list[str]:
        """Rights of the role that records trust policies and registers grants, and does nothing else."""
        return batches(self._text("provisioner.sql").replace("/*provisioner*/", role.replace("]", "]]")))

    def script(self) -> str:
        """The schema as ``GO`` batches for people who run DDL themselves; with anything in its way none is executed."""
        listed = ", ".join(f"N'{name}'" for name in TABLE_NAMES)
        refuse = self._text("refuse_existing.sql").replace("/*names*/N'ledger_meta'", listed).strip()
        return "\nGO\n".join([refuse, *self.ddl(), "SET NOEXEC OFF;", ""])

    @staticmethod
    def _rows(connection: Connection, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a batch that ends with its one SELECT."""
        return [tuple(row) for row in connection.exec_driver_sql(sql)]
