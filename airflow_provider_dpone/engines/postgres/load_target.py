"""A PostgreSQL database as the target of loads: everything the controller does or sees there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.columns import TableAggregates
from airflow_provider_dpone.contracts.enrolment import SchemaEnrolment
from airflow_provider_dpone.contracts.loads import TargetBaseline, TargetReceipt
from airflow_provider_dpone.contracts.ports import GateKey, IssuedCredential, PrincipalJournal
from airflow_provider_dpone.contracts.publication import Content
from airflow_provider_dpone.engines.postgres import staging as staging_table
from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.engines.postgres.gate import PostgresGate, leftover_names
from airflow_provider_dpone.engines.postgres.load_writer import PostgresLoadWriter
from airflow_provider_dpone.engines.postgres.policy import require_enrolled, require_place, service_id
from airflow_provider_dpone.engines.postgres.relations import PostgresManagedSchema
from airflow_provider_dpone.engines.postgres.rights import GatePolicy, load_rights
from airflow_provider_dpone.engines.postgres.session import literal, quoted
from airflow_provider_dpone.engines.postgres.target import LoadTable, describe_target
from airflow_provider_dpone.engines.sql.rights import WorkerRights
from airflow_provider_dpone.transfer.convert import Conversion
from airflow_provider_dpone.transfer.meter import StorageNumbers


class PostgresTarget:
    """One PostgreSQL target database behind a controller's connection."""

    def __init__(self, control: PostgresControl, policy: GatePolicy, *, stand_in: bool = False) -> None:
        self.control = control
        self.policy = policy
        self._stand_in = stand_in

    def service_id(self) -> str:
        """The server's own identity."""
        with self.control.fresh() as session:
            return service_id(session)

    def gate(
        self,
        enrolment: SchemaEnrolment,
        key: GateKey,
        journal: PrincipalJournal,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> PostgresGate:
        """The gate of one attempt on one managed schema."""
        return PostgresGate(self.control, enrolment, key, journal, self.policy, checkpoint=checkpoint)

    def leftover_names(self) -> list[str]:
        """Issued roles that exist although their gates are CLOSED."""
        return leftover_names(self.control)

    def loads(self, enrolment: SchemaEnrolment, schema: str) -> PostgresLoads:
        """The same as the target of loads into one managed schema."""
        return PostgresLoads(self.control, enrolment)

    def schema(self, enrolment: SchemaEnrolment, schema: str) -> PostgresManagedSchema:
        """The same as the home of relations that are made and dropped."""
        return PostgresManagedSchema(self.control, enrolment)

    def is_stand_in(self) -> bool:
        """Whether this is a local development server."""
        return self._stand_in

    def close(self) -> None:
        """Nothing stays open: every session ends with what it was opened for."""


class PostgresLoads:
    """Loads into one managed schema."""

    def __init__(self, control: PostgresControl, enrolment: SchemaEnrolment) -> None:
        self._control = control
        self._enrolment = enrolment
        self._schema = enrolment.managed_schemas[0]

    def look(self, name: str, *, readers_wait: bool = False) -> LoadTable:
        """The target table, once the schema is seen to be as enrolled and confined; readers never wait here.

        :raises NotEnrolled, EnrolledElsewhere, TargetChanged, TargetUnsupported, AmbientWriter: it is not.
        """
        with self._control.fresh() as session:
            require_enrolled(session, self._enrolment)
            return describe_target(session, self._schema, name, self._enrolment.accepted_features)

    def baseline(self, attempt_sha256: str, name: str) -> TargetBaseline:
        """The table as it is now, for one attempt: how many rows, and which transactions wrote them."""
        relation = quoted(self._schema, name)
        with self._control.fresh() as session, session.pinned():
            named = f"pg_catalog.to_regclass({literal(relation)})::oid::text"
            [(oid,)] = session.query(f"SELECT {named}")
            rows, fingerprint = 0, "missing"
            if oid is not None:  # whoever renames it waits for this statement, which reads rows and name of one table
                [(oid, rows, fingerprint)] = session.query(
                    f"SELECT {named}, pg_catalog.count(*), "  # noqa: S608
                    "COALESCE(pg_catalog.sum(pg_catalog.hashtextextended(t.xmin::text, 0)), 0)::text "
                    f"FROM {relation} AS t"
                )
        return TargetBaseline(
            attempt_sha256=attempt_sha256,
            relation=f"{self._schema}.{name}",
            table=name,
            relation_id=oid or "missing",
            rows=rows,
            fingerprint=fingerprint,
        )

    def stage(self, table: LoadTable, staging: str, ended: Sequence[str]) -> None:
        """Create the staging table of an attempt, after removing those that broken-off attempts left.

        :param ended: staging tables of attempts that have ended; no other is touched, however late this runs.
        :raises AmbientWriter: default privileges of the owner let somebody else write it.
        """
        with self._control.fresh() as session:
            staging_table.drop_staging(session, self._schema, ended)
            staging_table.create_staging(session, table, staging, self._enrolment.owner)
            require_enrolled(session, self._enrolment)

    def unstage(self, staging: str) -> None:
        """Remove the staging table of an attempt; one that somebody reads stays for a later load."""
        with self._control.fresh() as session:
            staging_table.drop_staging(session, self._schema, [staging])

    def rights(self, table: LoadTable, staging: str) -> WorkerRights:
        """What the worker of a load may do."""
        return load_rights(self._schema, table.name, staging)

    def writer(self, credential: IssuedCredential) -> PostgresLoadWriter:
        """The worker's side."""
        return PostgresLoadWriter(self._control.params, credential)

    def content(self, table: LoadTable, staging: str) -> Content:
        """Rows and content digest of the staging table."""
        return staging_table.staging_content(self._control, table, staging)

    def aggregates(self, conversion: Conversion, staging: str) -> TableAggregates:
        """Aggregates of the staging table."""
        with self._control.fresh() as session:
            return staging_table.staging_aggregates(session, conversion, self._schema, staging)

    def require_exact(self, table: LoadTable, staging: str) -> None:
        """Values that become the target's type only in the last step become exactly what they say.

        :raises ValueNotExact: one does not.
        """
        with self._control.fresh() as session:
            staging_table.require_carried_exactly(session, table, staging)

    def storage(self, name: str, staging: str) -> StorageNumbers:
        """Bytes of the staging table and of the target now."""
        with self._control.fresh() as session:
            return StorageNumbers(
                staging_table.size_of(session, self._schema, staging),
                staging_table.size_of(session, self._schema, name),
            )

    def receipt(self, attempt_sha256: str) -> TargetReceipt | None:
        """The receipt row of an attempt, if its transaction was committed.

        :raises NotEnrolled, EnrolledElsewhere, TargetChanged: this is not the enrolled database with its gate, so a
            row found or missing says nothing.
        """
        with self._control.fresh() as session:
            require_place(session, self._enrolment)
            with session.pinned():  # the lock of the look keeps the table in place until it is seen whose it is
                rows = session.query(
                    "SELECT r.attempt, r.relation, r.document, r.name::text, r.xid::text FROM dpone_gate.receipt AS r "
                    "WHERE r.attempt = %(attempt)s",
                    {"attempt": attempt_sha256},
                )
                require_place(session, self._enrolment)
        if not rows:
            return None
        attempt, relation, document, name, transaction = rows[0]
        return TargetReceipt(
            attempt_sha256=attempt,
            relation=relation,
            record_sha256=digest_of(document.encode()),
            principal=name,
            transaction=transaction,
        )

    def still_carries(self, name: str, receipt: TargetReceipt, rows: int) -> bool:
        """Whether the target's rows are now exactly those the receipt's transaction inserted."""
        relation = quoted(self._schema, name)
        with self._control.fresh() as session:
            [(found, written)] = session.query(
                "SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE t.xmin::text::numeric = "  # noqa: S608
                f"{literal(receipt.transaction)}::numeric % 4294967296) FROM {relation} AS t"
            )
        return bool(found == written == rows)
