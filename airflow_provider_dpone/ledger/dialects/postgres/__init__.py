"""PostgreSQL twin of the ledger: advisory lock, transaction identity, layout fingerprint, error meanings, DDL."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from typing import Final

import psycopg
from psycopg import errors as pg
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.dialects import postgresql
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
from airflow_provider_dpone.ledger.schema import LEGACY_TABLES, SCHEMA, TABLE_NAMES, metadata

#: Key of the advisory lock; ``rules.sql`` checks the same pair.
LOCK_KEY: Final = (1685090149, 1)
LOCK_WAIT_SECONDS: Final = 15
#: Tells one transaction from the next, without giving it a number of its own.
_READING: Final = "pg_catalog.concat(pg_catalog.pg_backend_pid(), '/', pg_catalog.now())"

#: The server ends or cannot serve this session now: shutdown, connection, resources, a standby after a failover, a
#: session that stood still too long, a serialization failure.
_PASSING: Final = ("57P", "08", "53", "25006", "25P03", "25P04", "40")

#: The control schema's name where the SQL files write it: before a dot, in quotes, or after SCHEMA; never in the name
#: of a kind of document.
_SCHEMA: Final = re.compile(r"\bdpone(?=\.(?!\w+\.v\d))|(?<=')dpone(?=')|(?<=SCHEMA )dpone\b")

_RULES: Final = {
    "ledger_meta": "ledger_meta_rule",
    "evidence": "evidence_rule",
    "activation": "activation_rule",
    "guard": "guard_rule",
    "activation_guard": "activation_guard_rule",
    "attempt": "attempt_rule",
    "attempt_guard": "attempt_guard_rule",
    "principal": "principal_rule",
    "dispatch": "dispatch_rule",
    "publication": "publication_rule",
    "authority_log": "authority_log_rule",
}


def _sql(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


class PostgresDialect:
    """What the one code path needs to know of PostgreSQL.

    :param control_schema: schema of the ledger's tables.
    """

    name: str = "postgres"
    returning: bool = True

    def __init__(self, control_schema: str = SCHEMA) -> None:
        self.control_schema = plain_name(control_schema)
        self._layout = self._text("layout.sql")
        self._identity = self._text("identity.sql")
        names = ", ".join(f"'{name}'" for name in LEGACY_TABLES)
        session = self._text("session.sql").replace("/*legacy*/'authority'", names).replace("/*reading*/NULL", _READING)
        self._session = session.replace("/*wait*/15", str(LOCK_WAIT_SECONDS))

    def _text(self, name: str) -> str:
        return self._placed(_sql(name))

    def _placed(self, sql: str) -> str:
        return _SCHEMA.sub(self.control_schema, sql)

    def engine(self, connect: Callable[[], psycopg.Connection[tuple[object, ...]]]) -> Engine:
        """An engine that opens a new connection for every use, never in autocommit."""

        def transactional() -> psycopg.Connection[tuple[object, ...]]:
            connection = connect()
            connection.autocommit = False
            return connection

        engine = create_engine("postgresql+psycopg://", creator=transactional, poolclass=NullPool)
        return engine.execution_options(schema_translate_map={SCHEMA: self.control_schema})

    def layout(self, connection: Connection) -> bytes:
        """Fingerprint of the installed schema."""
        return bytes(connection.exec_driver_sql(self._layout).scalar_one())

    def begin(self, connection: Connection) -> Session:
        """Bound every wait, refuse a session whose commits are not durable, and identify the installed ledger."""
        row = connection.exec_driver_sql(self._session).one()
        durability, isolation, fsync, transaction, here, legacy, version, service_id, family, incarnation, layout = row[
            4:
        ]
        if durability not in ("on", "remote_apply", "remote_write", "local") or fsync != "on":
            raise Fault(Failure.MISMATCH, "the control database does not commit durably (fsync, synchronous_commit)")
        if isolation != "read committed":
            raise Fault(Failure.MISMATCH, f"transaction isolation is {isolation}, not read committed")
        pins = None if version is None else Pins(version, service_id, family, bytes(layout), incarnation)
        return Session(transaction, here, tuple(legacy or ()), pins)

    def reading_id(self, connection: Connection) -> str:
        """Identity of the transaction now open, without making it one that writes."""
        return str(connection.exec_driver_sql(f"SELECT {_READING}").scalar_one())

    def lock(self, connection: Connection) -> str:
        """Take the ledger lock for this transaction and return the transaction's identity."""
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, %s)", LOCK_KEY)
        return self.transaction_id(connection)

    def transaction_id(self, connection: Connection) -> str:
        """Identity of the transaction now open, and how it holds the ledger lock."""
        return str(connection.exec_driver_sql(self._identity).scalar_one())

    def classify(self, error: BaseException) -> tuple[Failure, str]:
        """What a driver error means: the failure and the name of the rule or constraint."""
        if isinstance(error, pg.Error) and error.sqlstate == "DP001":
            return Failure.RULE, error.diag.message_primary or "rule"
        if isinstance(error, pg.UniqueViolation):
            return Failure.DUPLICATE, error.diag.constraint_name or "unique"
        if isinstance(error, pg.LockNotAvailable | pg.QueryCanceled | pg.DeadlockDetected):
            return Failure.BUSY, "ledger_lock"
        if isinstance(error, pg.IntegrityError):
            return Failure.RULE, error.diag.constraint_name or "constraint"
        if isinstance(error, pg.InsufficientPrivilege):
            return Failure.RULE, "insufficient_privilege"
        if isinstance(error, pg.UndefinedTable | pg.InvalidSchemaName):
            return Failure.MISMATCH, "not_installed"
        if isinstance(error, pg.Error) and error.sqlstate is not None and not error.sqlstate.startswith(_PASSING):
            return Failure.REFUSED, error.sqlstate
        return Failure.UNREACHABLE, type(error).__name__

    def existing(self, connection: Connection, names: list[str]) -> list[str]:
        """Tables among ``names`` that exist in any schema this user can see, and the control schema itself."""
        found = connection.execute(
            text(
                "SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_class c"
                " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
                " WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname = ANY(:names)"
                " AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
                " UNION ALL SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname = :schema ORDER BY 1"
            ),
            {"names": names, "schema": self.control_schema},
        )
        return [str(row[0]) for row in found]

    def audit(self, connection: Connection, looked_at: Audited = EVERYTHING) -> list[str]:
        """What does not agree between originals, rows and proofs, one line each; one statement."""
        sql = bare(self._text("audit_attempts.sql")).replace("/*scope*/", self._scope(looked_at))
        if looked_at.whole:
            sql = f"(\n{sql}) UNION ALL (\n{bare(self._text('audit.sql'))})"
        return [f"{what} {which}" for what, which in connection.exec_driver_sql(sql)]

    def _scope(self, looked_at: Audited) -> str:
        if looked_at.activation is not None:
            return f"a.activation_sha256 = '\\x{looked_at.activation.hex()}'"
        if looked_at.guards:
            listed = ", ".join(f"'\\x{guard.hex()}'" for guard in looked_at.guards)
            return (
                f"a.attempt_sha256 IN (SELECT h.attempt_sha256 FROM {self.control_schema}.guard AS g"  # noqa: S608
                f" JOIN {self.control_schema}.attempt_guard AS h ON h.guard_id = g.guard_id"
                f" AND h.ordinal > g.admitted - {LATEST} WHERE g.guard_id IN ({listed}))"
            )
        return "true"

    def ddl(self) -> list[str]:
        """Every statement of the schema, in order."""
        dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
        statements = ["CREATE SCHEMA dpone"]
        for table in metadata.sorted_tables:
            statements.append(str(CreateTable(table).compile(dialect=dialect)).strip())
            statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in sorted(table.indexes, key=str)]
        statements += [_sql(f"{name}.sql") for name in ("documents", "rules", "authority", "checks")]
        trigger = _sql("triggers.sql")
        statements += [trigger.format(table=table, rule=rule) for table, rule in _RULES.items()]
        return [self._placed(statement) for statement in statements]

    def script(self) -> str:
        """The schema as one transaction for people who run DDL themselves; anything in its way rolls it back."""
        listed = ", ".join(f"'{name}'" for name in TABLE_NAMES)
        refuse = self._text("refuse_existing.sql").replace("/*names*/'ledger_meta'", listed).strip()
        return ";\n\n".join(["BEGIN", refuse, *self.ddl(), "COMMIT", ""]).rstrip() + "\n"

    def grants(self, runtime_role: str) -> list[str]:
        """Rights of the role a running task uses."""
        return [self._text("roles.sql").format(runtime=_quoted(runtime_role))]

    def provisioner_grants(self, role: str) -> list[str]:
        """Rights of the role that records trust policies and registers grants, and does nothing else."""
        return [self._text("provisioner.sql").format(provisioner=_quoted(role))]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
