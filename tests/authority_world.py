"""A ledger with a provisioner, keys and small policies and grants, on either database."""

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection

from airflow_provider_dpone.contracts.authority import (
    Ceilings,
    Grant,
    GrantedWorkload,
    PhaseName,
    SignedGrant,
    Signer,
    TrustPolicy,
    instant,
    key_id,
)
from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.errors import DponeError
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.authority import AuthorityStore
from airflow_provider_dpone.ledger.install import install
from airflow_provider_dpone.ledger.transaction import Ledger, Tx
from tests import builders
from tests.ledger_database import LedgerDatabase
from tests.ledger_engines import driver_errors

#: What a server that only speaks T-SQL cannot show; a case that needs it says so and checks the rest.
LACKING = {
    "index predicates": "its catalog shows no filter of an index and gives indexes names of its own",
    "error numbers": "most refusals carry one number",
    "column drop": "dropping a column drops the table's triggers",
}
ENVIRONMENT = "test"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WIDEST = Ceilings(max_attempts=128, max_rows=100_000, max_source_bytes=2**30, max_attempt_seconds=3600)
MIB8 = 8 * 1024 * 1024


@dataclass
class AuthorityWorld:
    """One control database with its administrator, runtime and provisioner roles, and one signing key."""

    database: LedgerDatabase
    provisioner: str
    password: str
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    now: datetime = NOW
    superuser: dict[str, Any] = field(default_factory=dict)

    # --- ways in ---

    def connect(self, port: int | None = None) -> Any:
        """As the provisioner."""
        database = self.database
        if database.engine == "mssql":
            return database.under_test.connect(  # type: ignore[attr-defined]
                database=database.dbname, user=self.provisioner, password=self.password, port=port
            )
        import psycopg

        return psycopg.connect(
            host=database.host, port=port or database.port, dbname=database.dbname, user=self.provisioner,
            password=self.password, connect_timeout=5, sslmode="disable", gssencmode="disable",
        )  # fmt: skip

    def store(self, *, port: int | None = None, connect: Callable[[], Any] | None = None) -> AuthorityStore:
        """The provisioner's store."""
        return AuthorityStore(self.ledger(port=port, connect=connect), lambda: self.now)

    def ledger(self, *, port: int | None = None, connect: Callable[[], Any] | None = None) -> Ledger:
        return Ledger(connect or (lambda: self.connect(port)), self.database.dialect())

    def attempts(self) -> CompositionAttemptStore:
        """The runtime's attempts, under this world's clock."""
        return CompositionAttemptStore(self.database.runtime(), lambda: self.now)

    def here(self, postgres: str, mssql: str) -> str:
        """What the database under test understands."""
        return postgres if self.database.engine == "postgres" else mssql

    @property
    def stand_in(self) -> bool:
        return self.database.engine == "mssql" and self.database.under_test.stand_in  # type: ignore[attr-defined]

    def lock(self, mode: str) -> str:
        """T-SQL that takes the ledger lock; a stand-in's locks are the whole server's and so carry the database."""
        name = "CONCAT(N'dpone_ledger ', DB_NAME())" if self.stand_in else "N'dpone_ledger'"
        return (
            f"DECLARE @granted int; DECLARE @name nvarchar(255); SET @name = {name};"
            f" EXEC @granted = sp_getapplock @Resource = @name, @LockMode = N'{mode}', @LockOwner = N'Transaction',"
            " @LockTimeout = 0, @DbPrincipal = N'dpone_ledger'; SELECT @granted AS granted"
        )

    def shows(self, feature: str) -> bool:
        """Whether the server under test can show something that :data:`LACKING` names."""
        assert feature in LACKING
        return not self.stand_in

    @property
    def denied(self) -> str:
        """How a missing right shows. A server that only speaks T-SQL has one number for most refusals."""
        return "insufficient_privilege" if self.shows("error numbers") else "insufficient_privilege|33557097"

    @property
    def exact(self) -> AuthorityWorld:
        """Compare the whole layout at every write, whatever that costs on the server under test."""
        self.database.exact = True
        return self

    # --- documents ---

    def policy(self, previous: TrustPolicy | None = None, **changes: Any) -> TrustPolicy:
        public = self.key.public_key()
        signer = Signer(
            key_id=key_id(public),
            public_key=public.public_bytes_raw().hex(),
            phases=("execution", "qualification"),
        )
        values: dict[str, Any] = {
            "family": Family.NONPRODUCTION,
            "environment": ENVIRONMENT,
            "revision": 1 if previous is None else previous.revision + 1,
            "previous_sha256": None if previous is None else previous.digest(),
            "revocation_epoch": 0 if previous is None else previous.revocation_epoch,
            "grants_required": True,
            "signers": (signer,),
            "max_workloads": 64,
            "max_window_seconds": 86_400,
            "ceilings": WIDEST,
        }
        return TrustPolicy(**(values | changes))

    def trusted(self, previous: TrustPolicy | None = None, **changes: Any) -> TrustPolicy:
        """The policy, recorded."""
        return self.store().set_trust(self.policy(previous, **changes))

    def grant(
        self,
        policy: TrustPolicy,
        phase: PhaseName = "qualification",
        *,
        subject: str = "run-1",
        workloads: Sequence[GrantedWorkload] | None = None,
        bundle: bytes = b"originals",
        key: Ed25519PrivateKey | None = None,
        **changes: Any,
    ) -> SignedGrant:
        key = key or self.key
        values: dict[str, Any] = {
            "family": Family.NONPRODUCTION,
            "ledger_service_id": self.service_id(),
            "grant_id": str(uuid.uuid4()),
            "phase": phase,
            "environment": policy.environment,
            "campaign_id": "00000000-0000-4000-8000-0000000000ca",
            "subject": subject,
            "workloads": tuple(sorted(workloads or [workload("one")])),
            "ceilings": WIDEST.model_copy(update={"max_attempts": 2}),
            "trust_revision": policy.revision,
            "trust_sha256": policy.digest(),
            "revocation_epoch": policy.revocation_epoch,
            "not_before": instant(self.now - timedelta(minutes=5)),
            "not_after": instant(self.now + timedelta(hours=1)),
            "bundle_sha256": digest_of(bundle),
            "bundle_bytes": len(bundle),
            "key_id": key_id(key.public_key()),
        }
        return Grant(**(values | changes)).sign(key)

    def execution(self, policy: TrustPolicy, active: builders.Activated, *tables: str, **changes: Any) -> SignedGrant:
        """A grant for workloads of an activation."""
        pins = {w.workload_id: w.pack_sha256 for w in active.stored.request.workloads}
        granted = [GrantedWorkload(workload_id=f"dag.{t}", pack_sha256=pins[f"dag.{t}"]) for t in tables]
        return self.grant(policy, "execution", subject=active.stored.sha256, workloads=granted, **changes)

    def activate(self, *tables: str) -> builders.Activated:
        return builders.activate(self.database.admin(), self.database.runtime(), *tables)

    def service_id(self) -> str:
        ledger = self.database.runtime()
        ledger.read(lambda c: None)
        return str(ledger.service_id)

    # --- looking and tampering ---

    def snapshot(self) -> list[tuple[Any, ...]]:
        """Every entry of the log, and how many originals there are."""
        rows = self.database.as_admin(
            "SELECT entry_sha256, kind, environment, revision, epoch, phase, document_sha256 FROM dpone.authority_log"
            " ORDER BY entry_sha256"
        )
        [(originals,)] = self.database.as_admin("SELECT count(*) FROM dpone.evidence WHERE kind BETWEEN 22 AND 25")
        return [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in rows] + [(originals,)]

    def definition(self, rule: str) -> str:
        """The statement that makes a rule."""
        [(found,)] = self.database.as_admin(
            self.here(
                f"SELECT pg_get_functiondef('dpone.{rule}()'::regprocedure)",
                f"SELECT OBJECT_DEFINITION(OBJECT_ID(N'dpone.{rule}'))",
            )
        )
        return str(found)

    def without_column(self, table: str, rule: str) -> list[str]:
        """Statements that take column ``more`` away again; a stand-in drops the trigger with it."""
        return [
            f"ALTER TABLE {table} DROP COLUMN more",
            *([] if self.shows("column drop") else [self.definition(rule)]),
        ]

    def refusal(self, statement: Any, values: dict[str, Any] | list[dict[str, Any]] | None = None) -> str:
        """The rule by which the database refuses a statement of its administrator, under the ledger lock."""
        return refused(lambda: self.database.admin().write(lambda tx: tx.connection.execute(statement, values)))

    def past_the_rules(self, *statements: str, unhashed: bool = False) -> None:
        """What an owner does with triggers (and, unhashed, the check of digests) out of the way; they are back then."""
        check = "ck_evidence_hash"
        if self.database.engine == "postgres":
            rules = {
                "authority_log": ("authority_log_rule", "authority_log_truncate"),
                "evidence": ("evidence_rule", "evidence_truncate"),
            }
            drop = [f"ALTER TABLE dpone.evidence DROP CONSTRAINT {check}"] if unhashed else []
            self.as_superuser(
                *(f"ALTER TABLE dpone.{table} DISABLE TRIGGER ALL" for table in rules),
                *drop,
                *statements,
                *(f"ALTER TABLE dpone.{table} ENABLE TRIGGER ALL" for table in rules),
                *(f"ALTER TABLE dpone.{t} ENABLE ALWAYS TRIGGER {name}" for t in rules for name in rules[t]),
            )
            return
        tables = ("authority_log", "evidence")
        self.database.as_admin(
            *(f"DISABLE TRIGGER dpone.{table}_rule ON dpone.{table}" for table in tables),
            *([f"ALTER TABLE dpone.evidence DROP CONSTRAINT {check}"] if unhashed else []),
            *statements,
            *(f"ENABLE TRIGGER dpone.{table}_rule ON dpone.{table}" for table in tables),
        )

    def as_superuser(self, *statements: str) -> None:
        """Disabling the triggers behind foreign keys takes a superuser of PostgreSQL."""
        for statement in statements:
            self.rows_as_superuser(statement)

    def rows_as_superuser(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(**{**self.superuser, "dbname": self.database.dbname}, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


def workload(name: str) -> GrantedWorkload:
    return GrantedWorkload(workload_id=f"dag.{name}", pack_sha256=digest_of(name.encode()))


def create(database: LedgerDatabase, superuser: dict[str, Any] | None = None) -> AuthorityWorld:
    """Install a ledger with a provisioner in an empty control database."""
    world = AuthorityWorld(
        database, f"provisioner_{secrets.token_hex(4)}", f"Aa1!{secrets.token_hex(12)}", superuser=superuser or {}
    )
    if database.engine == "mssql":
        from tests.mssql_server import batch, opened

        server = database.under_test  # type: ignore[attr-defined]
        with opened(server.connect()) as connection:
            batch(connection, f"CREATE LOGIN {world.provisioner} WITH PASSWORD = N'{world.password}'")
        with opened(server.connect(database=database.dbname)) as connection:
            batch(connection, f"CREATE USER {world.provisioner} FOR LOGIN {world.provisioner}")
    else:
        import psycopg

        with psycopg.connect(**world.superuser, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {world.provisioner} LOGIN PASSWORD '{world.password}'".encode())
    install(
        database.connect_admin,
        database.dialect(),
        family=Family.NONPRODUCTION,
        runtime_role=database.runtime_role,
        provisioner_role=world.provisioner,
    )
    if world.stand_in:
        from tests.mssql_server import batch, opened

        with opened(server.connect(database=database.dbname)) as connection:
            for role in (database.runtime_role, world.provisioner):
                batch(connection, f"ALTER ROLE dpone_ledger ADD MEMBER {role}")
    return world


def refused(call: Callable[[], object]) -> str:
    """The rule, reason or code by which a call is refused; an assertion when it is not."""
    try:
        result = call()
    except DponeError as error:
        return str(error.details.get("rule") or error.details.get("reason") or error.code)
    raise AssertionError(f"not refused: {result!r}")


def raw_refused(world: AuthorityWorld, *statements: str) -> str:
    """The text by which the database refuses a statement outside the ledger's one way to write."""
    try:
        world.database.as_admin(*statements)
    except driver_errors(world.database.engine) as error:
        return str(error)
    raise AssertionError(f"not refused: {statements}")


def together(calls: Sequence[Callable[[], object]]) -> list[str]:
    """Run calls at the same time: ``done``, or the code of each refusal."""
    results: list[str] = []

    def one(call: Callable[[], object]) -> None:
        try:
            call()
            results.append("done")
        except DponeError as error:
            results.append(error.code)

    threads = [threading.Thread(target=one, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(results) == len(calls)
    return sorted(results)


def bare(ledger: Ledger, connection: Connection, identity: str) -> Tx:
    """A transaction that claims an identity it may not have."""
    return Tx(
        connection,
        returning=ledger.dialect.returning,
        audit=ledger.dialect.audit,
        verify=lambda: ledger._verify(connection, identity),
        family=str(ledger.family),
    )
