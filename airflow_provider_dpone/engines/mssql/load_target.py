"""SQL Server as the target of attempts: the controller's side of loads into one dedicated database."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.columns import TableAggregates
from airflow_provider_dpone.contracts.enrolment import SchemaEnrolment
from airflow_provider_dpone.contracts.loads import LoadRecord, TargetBaseline, TargetReceipt
from airflow_provider_dpone.contracts.ports import GateKey, IssuedCredential, PrincipalJournal
from airflow_provider_dpone.contracts.publication import Content
from airflow_provider_dpone.engines.mssql import staging as staging_table
from airflow_provider_dpone.engines.mssql.control import MssqlControl, MssqlSession
from airflow_provider_dpone.engines.mssql.gate import MssqlGate, holds_gates, ledger_batch, leftover_names
from airflow_provider_dpone.engines.mssql.load_writer import MssqlLoadWriter
from airflow_provider_dpone.engines.mssql.place import place
from airflow_provider_dpone.engines.mssql.policy import require_enrolled, require_place
from airflow_provider_dpone.engines.mssql.relations import MssqlManagedSchema
from airflow_provider_dpone.engines.mssql.rights import MssqlGatePolicy, load_rights
from airflow_provider_dpone.engines.mssql.target import (
    LoadTable,
    describe_target,
    described_columns,
    relation_id,
    types_of,
)
from airflow_provider_dpone.engines.sql.rights import WorkerRights
from airflow_provider_dpone.errors import TargetChanged
from airflow_provider_dpone.ledger.transaction import Ledger
from airflow_provider_dpone.transfer.convert import Conversion
from airflow_provider_dpone.transfer.meter import StorageNumbers


class MssqlTarget:
    """One dedicated SQL Server database behind a controller's connection.

    :param ledger: the ledger, which makes logins in its own transactions when it is where the gates are.
    """

    def __init__(
        self,
        control: MssqlControl,
        policy: MssqlGatePolicy,
        *,
        stand_in: bool = False,
        ledger: Ledger | None = None,
    ) -> None:
        self.control = control
        self.policy = policy
        self._stand_in = stand_in
        self._ledger = ledger

    def service_id(self) -> str:
        """The incarnation of the database."""
        return place(self.control.params)[0]

    def gate(
        self,
        enrolment: SchemaEnrolment,
        key: GateKey,
        journal: PrincipalJournal,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> MssqlGate:
        """The gate of one attempt on the database."""
        gate = MssqlGate(self.control, enrolment, key, journal, self.policy, checkpoint=checkpoint)
        if self._ledger is not None and holds_gates(self._ledger, self.control):
            gate.ledger_batch = ledger_batch
        return gate

    def leftover_names(self) -> list[str]:
        """Issued logins that are enabled although their gates are CLOSED."""
        return leftover_names(self.control)

    def loads(self, enrolment: SchemaEnrolment, schema: str) -> MssqlLoads:
        """The same as the target of loads."""
        return MssqlLoads(self.control, enrolment, schema)

    def schema(self, enrolment: SchemaEnrolment, schema: str) -> MssqlManagedSchema:
        """The same as the home of relations that are made and dropped."""
        return MssqlManagedSchema(self.control, enrolment, schema)

    def is_stand_in(self) -> bool:
        """Whether this is a local development server."""
        return self._stand_in

    def close(self) -> None:
        """Nothing stays open: every session ends with what it was opened for."""


class MssqlLoads:
    """Loads into one managed schema of a database."""

    def __init__(self, control: MssqlControl, enrolment: SchemaEnrolment, schema: str) -> None:
        self._control = control
        self._enrolment = enrolment
        self._schema = schema

    def look(self, name: str, *, readers_wait: bool = False) -> LoadTable:
        """The target table, once the database is seen to be as enrolled and confined.

        :raises NotEnrolled, EnrolledElsewhere, TargetChanged, TargetUnsupported, AmbientWriter: it is not.
        """
        with self._control.fresh() as session:
            require_enrolled(self._control, session, self._enrolment)
            return describe_target(
                session, self._schema, name, self._enrolment.accepted_features, readers_wait=readers_wait
            )

    def baseline(self, attempt_sha256: str, name: str) -> TargetBaseline:
        """The table as it is now, for one attempt: how many rows, and the digest of all that is in them."""
        with self._control.fresh() as session:
            number = relation_id(session, self._schema, name)
            content = None if number is None else self._content(session, name, number)
        return TargetBaseline(
            attempt_sha256=attempt_sha256,
            relation=f"{self._schema}.{name}",
            table=name,
            relation_id=number or "missing",
            rows=content.rows if content else 0,
            fingerprint=content.row_sum if content else "missing",
        )

    def _content(self, session: MssqlSession, name: str, number: str) -> Content:
        before = described_columns(session, number)
        columns = [column for column in before if not column["is_computed"]]
        types = {n: kind for n, kind in types_of(columns).items() if kind.family != "Refused"}
        content = staging_table.table_content(session, types, self._schema, name)
        if relation_id(session, self._schema, name) != number or described_columns(session, number) != before:
            raise TargetChanged(f"{self._schema}.{name} was altered or replaced while it was read; look again")
        return content

    def stage(self, table: LoadTable, staging: str, ended: Sequence[str]) -> None:
        """Create the staging table of an attempt, after removing those that broken-off attempts left.

        :param ended: staging tables of attempts that have ended; no other is touched, however late this runs.
        """
        with self._control.fresh() as session:
            staging_table.drop_staging(session, self._schema, ended)
            staging_table.create_staging(session, table, staging)
            require_enrolled(self._control, session, self._enrolment)

    def unstage(self, staging: str) -> None:
        """Remove the staging table of an attempt; one that somebody reads stays for a later load."""
        with self._control.fresh() as session:
            staging_table.drop_staging(session, self._schema, [staging])

    def rights(self, table: LoadTable, staging: str) -> WorkerRights:
        """What the worker of a load may do."""
        return load_rights(self._schema, table.name, staging, may_truncate=table.readers_wait)

    def writer(self, credential: IssuedCredential) -> MssqlLoadWriter:
        """The worker's side."""
        return MssqlLoadWriter(self._control.params, credential)

    def content(self, table: LoadTable, staging: str) -> Content:
        """Rows and content digest of the staging table."""
        with self._control.fresh() as session:
            return staging_table.table_content(session, table.types, self._schema, staging)

    def aggregates(self, conversion: Conversion, staging: str) -> TableAggregates:
        """Aggregates of the staging table."""
        with self._control.fresh() as session:
            return staging_table.staging_aggregates(session, conversion, self._schema, staging)

    def require_exact(self, table: LoadTable, staging: str) -> None:
        """Text carried into a code page only in the last step becomes exactly what it says.

        :raises ValueNotExact: one does not.
        """
        if staging_table.carries(table):
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
            require_place(self._control, session, self._enrolment)
            found = self._receipt_row(session, attempt_sha256)
            require_place(self._control, session, self._enrolment)  # it still is: the row was looked for in it
        if found is None:
            return None
        relation, document, name, transaction = found
        return TargetReceipt(
            attempt_sha256=attempt_sha256,
            relation=relation,
            record_sha256=digest_of(document),
            principal=name,
            transaction=transaction,
        )

    @staticmethod
    def _receipt_row(session: MssqlSession, attempt_sha256: str) -> tuple[str, bytes, str, str] | None:
        rows = session.query(
            "SELECT r.relation, r.document, r.name, r.transaction_id FROM dpone_gate.receipt AS r WITH (HOLDLOCK) "
            "WHERE r.attempt = ?",
            attempt_sha256,
        )
        if not rows:
            return None
        relation, document, name, transaction = rows[0]
        return str(relation), bytes(document), str(name), str(transaction)

    def still_carries(self, name: str, receipt: TargetReceipt, rows: int) -> bool:
        """Whether the target holds now exactly what the receipt's transaction inserted."""
        with self._control.fresh() as session:
            found = self._receipt_row(session, receipt.attempt_sha256)
            if found is None:
                return False
            record = LoadRecord.parse(found[1])
            number = relation_id(session, self._schema, name)
            if number is None or record.relation_id != number or record.content.rows != rows:
                return False
            return self._content(session, name, number) == record.content
