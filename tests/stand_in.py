"""A stand-in that speaks the language of SQL Server and is none: what it lacks, named, and how tests do without.

The product renders and decides for the real server only; nothing of this is in it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Final

import pyodbc
from sqlalchemy import Connection, Engine, event

from airflow_provider_dpone.ledger.dialects.base import Failure, Fault, Pins, Session
from airflow_provider_dpone.ledger.dialects.mssql import MssqlDialect
from airflow_provider_dpone.ledger.dialects.mssql.diagnostics import BUSY, Diagnostic, diagnose
from airflow_provider_dpone.ledger.schema import LEGACY_TABLES, SCHEMA, metadata

#: What is missing there, and what stands in its place in tests: so this much of the ledger is unverified there.
LACKS: Final[dict[str, str]] = {
    "CURRENT_TRANSACTION_ID": "a transaction is told from the next by the number the engine gives it",
    "application locks of a database": "they are the server's: the database's name is part of the lock's",
    "binary to hexadecimal by CONVERT, and collations of UTF-8": "its own functions, inside two functions of the ledger",
    "which database this is": "its number",
    "binaries in IN (...)": "the same question is asked with OR and EXISTS",
    "a catalog that answers in time": "the layout is read once for a database, except where a test is about it",
    "edition, version and delayed durability": "not compared",
    "functions that return tables, covered by SELECT on their schema": "EXECUTE is granted on each",
    "GRANT VIEW DEFINITION": "not granted; where a test is about the layout an administrator reads it",
    "ALTER ROLE ADD MEMBER by a database's owner": "done by a member of sysadmin afterwards; the layout leaves it out",
    "names of indexes as given": "the name in an error is cut back to the one that was given",
    "foreign keys over text columns": "left out; the trigger of the same table demands the same row",
    "numbers of errors about rights and missing tables": "told by their beginning",
}
_LISTED: Final = re.compile(r"([\w.]+) IN \((\?(?:, \?)*)\)")
_NESTED: Final = re.compile(r"([\w.]+) IN \(SELECT ([\w.]+) \s*FROM ([\w.]+) \s*WHERE ([^()]*)\)")


#: A key of text columns that references text columns: no collation is found for the comparison.
_TEXT_KEY: Final = re.compile(r",\s*CONSTRAINT \w+ FOREIGN KEY\(connector,[^)]*\) REFERENCES [^(]*\([^)]*\)")

_CONVERSIONS: Final = (
    ("LOWER(CONVERT(varchar(64), @digest, 2))", "pg_catalog.encode(CAST(@digest AS pg_catalog.bytea), 'hex')"),
    (
        "TRY_CONVERT(varbinary(32), SUBSTRING(@digest, 8, 64), 2)",
        "CAST(pg_catalog.decode(SUBSTRING(@digest, 8, 64), 'hex') AS varbinary(32))",
    ),
    (
        "CONVERT(varchar(max), CONVERT(varbinary(max), CONVERT(varchar(max), @text COLLATE Latin1_General_100_BIN2_UTF8)))",
        "pg_catalog.convert_from(pg_catalog.convert_to(CAST(@text AS pg_catalog.text), 'UTF8'), 'WIN1252')",
    ),
)


def numbered(error: BaseException) -> Diagnostic:
    """A failure with the number the server gives it: a lock that was not free in time has none of its own there."""
    found = diagnose(error)
    return replace(found, number=1222) if "due to lock timeout" in found.text else found


class StandInDialect(MssqlDialect):
    """The ledger's dialect where only the language is there; what differs is :data:`LACKS`, each at one method.

    :param exact: connects as an administrator, who alone sees every definition there: then the whole layout is read at
        every write, as the product does.
    """

    _layouts: ClassVar[dict[str, bytes]] = {}

    def __init__(self, control_schema: str = SCHEMA, *, exact: Callable[[], pyodbc.Connection] | None = None) -> None:
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

    def _text(self, name: str) -> str:
        """Without the members of the ledger's role, who come after the installation there."""
        text = super()._text(name)
        return text.replace(",\n  N'dpone_ledger')", ")") if name == "layout.sql" else text

    def layout(self, connection: Connection) -> bytes:
        """Once for a database."""
        if self._exact:
            with self.engine(self._exact).connect() as administrator:
                return super().layout(administrator)
        [(name,)] = self._rows(connection, "SELECT DB_NAME()")
        if name not in self._layouts:
            self._layouts[name] = super().layout(connection)
        return self._layouts[name]

    def begin(self, connection: Connection) -> Session:
        """Without the catalog of databases."""
        found = self._rows(
            connection,
            "SELECT schema_version, service_id, family, layout_sha256, incarnation"
            f" FROM {self.control_schema}.ledger_meta",
        )
        pins = None
        if found:
            version, service_id, family, layout, incarnation = found[0]
            pins = Pins(version, uuid.UUID(str(service_id)), family, bytes(layout), incarnation)
        names = ", ".join(f"'{name}'" for name in LEGACY_TABLES)
        [(here,)] = self._rows(connection, "SELECT CONCAT(N'database ', DB_ID())")
        legacy = self._rows(
            connection,
            "SELECT CONCAT(n.nspname, '.', c.relname) FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n"
            f" ON n.oid = c.relnamespace WHERE c.relname IN ({names}) AND n.nspname LIKE CONCAT(LOWER(DB_NAME()), '[_]%')",
        )
        return Session(self.reading_id(connection), here, tuple(name for (name,) in legacy), pins)

    def reading_id(self, connection: Connection) -> str:
        """When it began."""
        [(began,)] = self._rows(connection, "SELECT CONCAT(@@SPID, N'/', pg_catalog.now(), N'/', @@TRANCOUNT)")
        return str(began)

    def transaction_id(self, connection: Connection) -> str:
        """The number it has."""
        marked = self._rows(
            connection,
            "SELECT CONCAT(pg_catalog.txid_current(), N'/', @@TRANCOUNT, N'/',"
            " APPLOCK_MODE(N'dbo', CONCAT(N'dpone_ledger ', DB_NAME()), N'Transaction')) AS marked;",
        )
        return str(marked[0][0])

    def _require_fit(self, edition: int, major: int, durability: str | None, read_only: bool) -> None:
        """It reports an older product, and no durability at all."""

    def ddl(self) -> list[str]:
        """Without the keys it cannot check; triggers and the code path check the same rows."""
        return [_TEXT_KEY.sub("", self._hexadecimal(statement)) for statement in super().ddl()]

    @staticmethod
    def _hexadecimal(statement: str) -> str:
        """What it converts otherwise: binary to hexadecimal and back, text to the bytes of its UTF-8."""
        for real, here in _CONVERSIONS:
            statement = statement.replace(real, here)
        return statement

    def grants(self, runtime_role: str) -> list[str]:
        """It cannot grant the right to see definitions, nor let a database's owner fill a role."""
        granted = [g for g in super().grants(runtime_role) if "DEFINITION" not in g and "ADD MEMBER" not in g]
        tables = ("bound_journal", "binding_proof", "standing_receipt", "grounds")
        return granted + [f"GRANT EXECUTE ON {self.control_schema}.{name} TO {runtime_role}" for name in tables]

    def provisioner_grants(self, role: str) -> list[str]:
        """As :meth:`grants`."""
        return [g for g in super().provisioner_grants(role) if "DEFINITION" not in g and "ADD MEMBER" not in g]

    def classify(self, error: BaseException) -> tuple[Failure, str]:
        """What has no number of its own there."""
        text = numbered(error).text
        if numbered(error).number in BUSY:
            return Failure.BUSY, "ledger_lock"
        if text.startswith(("permission denied for", "must be owner of")):
            return Failure.RULE, "insufficient_privilege"
        if text.startswith("relation ") and text.endswith("does not exist"):
            return Failure.MISMATCH, "not_installed"
        return super().classify(error)

    def _constraint(self, found: Diagnostic) -> str:
        """It adds the table and a hash to the name of an index."""
        name = super()._constraint(found)
        known = {str(named.name) for table in metadata.sorted_tables for named in (*table.constraints, *table.indexes)}
        return max((own for own in known if name.startswith(own)), key=len, default=name)
