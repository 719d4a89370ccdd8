"""The eleven ledger tables, once, in SQLAlchemy Core.

What differs between databases (types, triggers, lock, layout fingerprint) lives in ``dialects/``. Digests are 32 raw
bytes, identifiers of servers are text, states are the integer codes of :mod:`airflow_provider_dpone.contracts.states`.
The triggers, not this module, keep states moving forward only.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
    Uuid,
)
from sqlalchemy.dialects import mssql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

SCHEMA_VERSION: Final = 2
SCHEMA: Final = "dpone"
#: Writable tables of the earlier system; a database that has one of them is refused.
LEGACY_TABLES: Final = (
    "authority",
    "owners",
    "domains",
    "owner_domains",
    "operations",
    "operation_domains",
    "issued_authorities",
    "proofs",
)


class EvidenceKind(IntEnum):
    """What an evidence document is; one code per document class."""

    ENROLMENT = 1
    RELEASE = 2
    GENERATION = 3
    INTENT = 4
    PUBLICATION = 5
    GATE_CLOSURE = 6
    QUIESCENCE = 7
    PROOF = 8
    OUTCOME = 9
    ADJUDICATION = 10
    RECEIPT = 11
    AGGREGATES = 12
    DEPLOYMENT = 13
    OBSERVATION = 14
    LOAD = 15
    BASELINE = 16
    DBT_BASELINE = 17
    DBT_RUN = 18
    DBT_READ_BACK = 21
    TRUST_POLICY = 22
    GRANT = 23
    GRANT_BUNDLE = 24
    MEMBERSHIP = 25
    ADMISSION = 26
    FENCE = 27
    ACKNOWLEDGEMENT = 28
    ESTABLISHED = 29
    ADOPTION = 30


#: Constraints are named, and as PostgreSQL would name them, so that a refusal says the same on both databases.
metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
    },
)


class _Now(FunctionElement[datetime]):
    """The present moment as a server writes it; SQL Server's CURRENT_TIMESTAMP has no zone."""

    inherit_cache = True
    name = "now"


@compiles(_Now)
def _now_sql(element: _Now, compiler: SQLCompiler, **options: object) -> str:
    return "SYSUTCDATETIME()" if compiler.dialect.name == "mssql" else "now()"


def _digest(name: str, *args: object, nullable: bool = False, primary_key: bool = False) -> Column[bytes]:
    kind = LargeBinary(32).with_variant(mssql.BINARY(32), "mssql")
    return Column(name, kind, *args, nullable=nullable, primary_key=primary_key)  # type: ignore[arg-type]


def _text(length: int) -> TypeEngine[str]:
    """Text compared by its code points; NVARCHAR(n) ends at 4,000."""
    national = mssql.NVARCHAR(length if length <= 4000 else None, collation="Latin1_General_100_BIN2")
    return String(length).with_variant(national, "mssql")


def _now(name: str) -> Column[object]:
    kind = DateTime(timezone=True).with_variant(mssql.DATETIMEOFFSET(6), "mssql")  # type: ignore[no-untyped-call]
    return Column(name, kind, nullable=False, server_default=_Now())


ledger_meta = Table(
    "ledger_meta",
    metadata,
    Column("one", SmallInteger, CheckConstraint("one = 1", name="ck_meta_one"), primary_key=True, autoincrement=False),
    Column("schema_version", Integer, nullable=False),
    Column("service_id", Uuid, nullable=False),
    Column("family", _text(16), nullable=False),
    Column("incarnation", _text(256), nullable=False),
    _digest("layout_sha256"),
)

evidence = Table(
    "evidence",
    metadata,
    _digest("evidence_sha256", primary_key=True),
    Column("kind", SmallInteger, nullable=False),
    _digest("subject"),
    Column("document", LargeBinary, nullable=False),
    _now("recorded_at"),
    Index("ix_evidence_subject", "subject", "kind"),
)

activation = Table(
    "activation",
    metadata,
    _digest("activation_sha256", primary_key=True),
    Column("occurrence_id", Uuid, nullable=False, unique=True),
    Column("environment", _text(63), nullable=False),
    Column("document", LargeBinary, nullable=False),
    Column("state", SmallInteger, CheckConstraint("state BETWEEN 1 AND 4", name="ck_activation_state"), nullable=False),
    _digest("release_sha256", ForeignKey(evidence.c.evidence_sha256)),
    _now("recorded_at"),
)
Index(
    "uq_activation_current",
    activation.c.environment,
    unique=True,
    postgresql_where=activation.c.state == 2,
    mssql_where=activation.c.state == 2,
)

guard = Table(
    "guard",
    metadata,
    _digest("guard_id", primary_key=True),
    Column("connector", _text(16), nullable=False),
    Column("service_id", _text(256), nullable=False),
    Column("subject", _text(512), nullable=False),
    _digest("enrolment_sha256", ForeignKey(evidence.c.evidence_sha256)),
    Column("target_uuid", Uuid, nullable=True),
    Column("epoch", BigInteger, nullable=False),
    Column("admitted", BigInteger, nullable=False),
    _digest("owner_sha256", ForeignKey(activation.c.activation_sha256), nullable=True),
    UniqueConstraint("connector", "service_id", "subject", name="uq_guard_subject"),
    CheckConstraint("epoch >= 0 AND admitted >= 0 AND (owner_sha256 IS NULL OR epoch > 0)", name="ck_guard_epoch"),
    CheckConstraint("target_uuid IS NOT NULL OR connector <> 'clickhouse'", name="ck_guard_target"),
)

activation_guard = Table(
    "activation_guard",
    metadata,
    _digest("activation_sha256", ForeignKey(activation.c.activation_sha256), primary_key=True),
    _digest("guard_id", ForeignKey(guard.c.guard_id), primary_key=True),
    Column("epoch", BigInteger, CheckConstraint("epoch > 0", name="ck_activation_guard_epoch"), nullable=False),
    UniqueConstraint("guard_id", "epoch", name="uq_activation_guard_epoch"),
    UniqueConstraint("activation_sha256", "guard_id", "epoch", name="uq_activation_guard_triple"),
)

attempt = Table(
    "attempt",
    metadata,
    _digest("attempt_sha256", primary_key=True),
    _digest("activation_sha256", ForeignKey(activation.c.activation_sha256)),
    _digest("scheduler_key"),
    Column("document", LargeBinary, nullable=False),
    Column("workload_id", _text(512), nullable=False),
    Column("dag_id", _text(512), nullable=False),
    Column("run_id", _text(512), nullable=False),
    Column("task_id", _text(512), nullable=False),
    Column("map_index", Integer, nullable=False),
    Column("try_number", BigInteger, nullable=False),
    Column("task_instance_id", Uuid, nullable=False),
    Column("state", SmallInteger, CheckConstraint("state BETWEEN 1 AND 4", name="ck_attempt_state"), nullable=False),
    Column("fenced", Boolean, nullable=False),
    Column("acknowledged", Boolean, nullable=False),
    _digest("closed_sha256", ForeignKey(evidence.c.evidence_sha256), nullable=True),
    _digest("quiescence_sha256", ForeignKey(evidence.c.evidence_sha256), nullable=True),
    _digest("outcome_sha256", ForeignKey(evidence.c.evidence_sha256), nullable=True),
    _now("admitted_at"),
    UniqueConstraint("scheduler_key", name="uq_attempt_scheduler"),
    UniqueConstraint("attempt_sha256", "activation_sha256", name="uq_attempt_pair"),
    Index("ix_attempt_task", "dag_id", "run_id", "task_id", "map_index"),
    Index("ix_attempt_activation_state", "activation_sha256", "state"),
)

attempt_guard = Table(
    "attempt_guard",
    metadata,
    _digest("attempt_sha256", primary_key=True),
    _digest("activation_sha256"),
    _digest("guard_id", primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("ordinal", BigInteger, nullable=False),
    Column("is_open", Boolean, nullable=False),
    UniqueConstraint("guard_id", "ordinal", name="uq_attempt_guard_ordinal"),
    ForeignKeyConstraint(
        ["attempt_sha256", "activation_sha256"],
        [attempt.c.attempt_sha256, attempt.c.activation_sha256],
        name="fk_attempt_guard_attempt",
    ),
    ForeignKeyConstraint(
        ["activation_sha256", "guard_id", "epoch"],
        [activation_guard.c.activation_sha256, activation_guard.c.guard_id, activation_guard.c.epoch],
        name="fk_attempt_guard_epoch",
    ),
)
Index(
    "uq_attempt_guard_open",
    attempt_guard.c.guard_id,
    unique=True,
    postgresql_where=attempt_guard.c.is_open.is_(True),
    mssql_where=attempt_guard.c.is_open == 1,
)

principal = Table(
    "principal",
    metadata,
    Column("connector", _text(16), primary_key=True),
    Column("service_id", _text(256), primary_key=True),
    Column("name", _text(128), primary_key=True),
    _digest("attempt_sha256", ForeignKey(attempt.c.attempt_sha256)),
    Column("purpose", _text(16), nullable=False),
    Column("state", SmallInteger, CheckConstraint("state BETWEEN 1 AND 4", name="ck_principal_state"), nullable=False),
    Column("principal_uuid", Uuid, nullable=True),
    _digest("closure_sha256", ForeignKey(evidence.c.evidence_sha256), nullable=True),
    _digest("quiescence_sha256", ForeignKey(evidence.c.evidence_sha256), nullable=True),
    _now("journaled_at"),
    Index("ix_principal_attempt", "attempt_sha256"),
)

dispatch = Table(
    "dispatch",
    metadata,
    Column("dispatch_id", Uuid, primary_key=True),
    _digest("attempt_sha256", ForeignKey(attempt.c.attempt_sha256)),
    Column("connector", _text(16), nullable=False),
    Column("service_id", _text(256), nullable=False),
    Column("principal_name", _text(128), nullable=False),
    Column("kind", _text(32), nullable=False),
    Column("statement", _text(4096), nullable=False),
    Column("state", SmallInteger, CheckConstraint("state BETWEEN 1 AND 3", name="ck_dispatch_state"), nullable=False),
    Column("note", _text(512), nullable=True),
    _now("claimed_at"),
    ForeignKeyConstraint(
        ["connector", "service_id", "principal_name"],
        [principal.c.connector, principal.c.service_id, principal.c.name],
        name="fk_dispatch_principal",
    ),
    Index("ix_dispatch_attempt", "attempt_sha256"),
    Index("ix_dispatch_principal", "principal_name"),
)

publication = Table(
    "publication",
    metadata,
    _digest("intent_sha256", ForeignKey(evidence.c.evidence_sha256), primary_key=True),
    _digest("attempt_sha256", ForeignKey(attempt.c.attempt_sha256)),
    _digest("guard_id", ForeignKey(guard.c.guard_id)),
    Column("generation_table", _text(206), nullable=False),
    Column("old_target_uuid", Uuid, nullable=False),
    Column("generation_uuid", Uuid, nullable=False),
    Column(
        "state", SmallInteger, CheckConstraint("state BETWEEN 1 AND 5", name="ck_publication_state"), nullable=False
    ),
    Column("revision", BigInteger, nullable=False),
    _digest("record_sha256", ForeignKey(evidence.c.evidence_sha256)),
    _now("prepared_at"),
    UniqueConstraint("attempt_sha256", name="uq_publication_attempt"),
    Index("ix_publication_guard", "guard_id", "state"),
)

authority_log = Table(
    "authority_log",
    metadata,
    _digest("entry_sha256", primary_key=True),
    Column("kind", SmallInteger, nullable=False),
    Column("environment", _text(63), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=True),
    Column("campaign", Uuid, nullable=True),
    Column("phase", SmallInteger, nullable=True),
    _digest("subject", nullable=True),
    _digest("grant_sha256", ForeignKey(f"{SCHEMA}.authority_log.entry_sha256"), nullable=True),
    _digest("document_sha256", ForeignKey(evidence.c.evidence_sha256)),
    _digest("bundle_sha256", ForeignKey(evidence.c.evidence_sha256), nullable=True),
    _now("recorded_at"),
    CheckConstraint("revision >= 1 AND (epoch IS NULL OR epoch >= 0)", name="ck_authority_revision"),
    CheckConstraint(
        "kind = 1 AND entry_sha256 = document_sha256 AND epoch IS NOT NULL AND campaign IS NULL AND phase IS NULL"
        " AND subject IS NULL AND grant_sha256 IS NULL AND bundle_sha256 IS NULL"
        " OR kind = 2 AND epoch IS NULL AND campaign IS NOT NULL AND phase IN (1, 2) AND subject IS NOT NULL"
        " AND grant_sha256 IS NULL AND bundle_sha256 IS NOT NULL"
        " OR kind = 3 AND epoch IS NULL AND campaign IS NOT NULL AND phase IN (1, 2) AND subject IS NOT NULL"
        " AND grant_sha256 IS NOT NULL AND bundle_sha256 IS NULL",
        name="ck_authority_shape",
    ),
)
_TRUST, _QUALIFICATION = authority_log.c.kind == 1, (authority_log.c.kind == 2) & (authority_log.c.phase == 1)
Index(
    "uq_authority_trust",
    authority_log.c.environment,
    authority_log.c.revision,
    unique=True,
    postgresql_where=_TRUST,
    mssql_where=_TRUST,
)
Index(
    "uq_authority_qualification",
    authority_log.c.subject,
    unique=True,
    postgresql_where=_QUALIFICATION,
    mssql_where=_QUALIFICATION,
)
Index("ix_authority_subject", authority_log.c.kind, authority_log.c.subject)
Index("ix_authority_campaign", authority_log.c.campaign, authority_log.c.phase)

#: Names no other table or view of the control database may have: ours, and the earlier system's.
TABLE_NAMES: Final = tuple(sorted({table.name for table in metadata.sorted_tables} | set(LEGACY_TABLES)))
