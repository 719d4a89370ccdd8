"""The worker's side of a load on SQL Server: fill the staging table, then replace the target's rows in one transaction.

Each session is the one-time login's. Nothing is sent again; what became of a commit whose answer was lost is for the
controller to see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from airflow_provider_dpone.contracts.loads import LoadRecord
from airflow_provider_dpone.contracts.ports import IssuedCredential
from airflow_provider_dpone.engines.mssql import scripts
from airflow_provider_dpone.engines.mssql.control import MssqlSession, open_session
from airflow_provider_dpone.engines.mssql.json_rows import insert_sql
from airflow_provider_dpone.engines.mssql.scripts import quoted
from airflow_provider_dpone.engines.mssql.staging import carried, table_content
from airflow_provider_dpone.engines.mssql.target import LoadTable, describe_target
from airflow_provider_dpone.errors import Fenced, ReconciliationFailed, ServerRefused, TargetChanged
from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams

#: The fence refused; the gate row is locked by a closer.
_FENCED: Final = (51003, 1222)


class MssqlLoadWriter:
    """Sessions of one worker. Safe to cancel from any thread.

    :param lock_wait: seconds to wait for the target's lock; readers hold it only without row versions.
    """

    def __init__(self, params: MssqlParams, credential: IssuedCredential, lock_wait: float = 60.0) -> None:
        self._params = replace(
            params, user=credential.name, password=credential.password, application_name="dpone-worker"
        )
        self._lock_wait = lock_wait
        self._session: MssqlSession | None = None

    def copy(self, table: LoadTable, staging: str, body: Iterator[bytes]) -> int:
        """Stream rows into the staging table, a document of many at a time; bytes of all documents.

        :raises ServerRefused, AnswerLost: a statement failed; what ``body`` raises comes out unchanged.
        """
        sent, sql = 0, insert_sql(quoted(table.schema, staging), table.types)
        with open_session(self._params) as session:
            self._session = session
            for document in body:
                session.query(sql, document.decode("utf-8"))
                sent += len(document)
        self._session = None
        return sent

    def swap(self, table: LoadTable, staging: str, record: LoadRecord) -> None:
        """Remove the target's rows and insert the staged ones, in a transaction that is left open.

        The target is digested once more inside of it, so that what is committed is what was streamed.

        :raises TargetChanged: the table is not the planned one any more.
        :raises Fenced: the gate is not open under this guard, epoch and attempt.
        :raises ReconciliationFailed: the target would not hold exactly the streamed rows, whatever changed them.
        """
        relation, staged = quoted(table.schema, table.name), quoted(table.schema, staging)
        self._session = session = open_session(self._params)
        session.query(f"SET LOCK_TIMEOUT {int(self._lock_wait * 1000)}; BEGIN TRANSACTION")
        session.query(f"SELECT TOP (0) 1 AS one FROM {relation} WITH (TABLOCKX, HOLDLOCK)")  # noqa: S608
        self._fence(session, record)
        found = describe_target(session, table.schema, table.name, table.features, readers_wait=table.readers_wait)
        if found != table:
            raise TargetChanged(f"{table.shown} is no longer the table that was planned; run the task again")
        session.query(f"TRUNCATE TABLE {relation}" if table.readers_wait else f"DELETE FROM {relation}")  # noqa: S608
        columns = ", ".join(quoted(name) for name in table.types)
        values = ", ".join(
            carried(name, kind) if kind.family == "Carried" else quoted(name) for name, kind in table.types.items()
        )
        inserted = session.change(
            f"INSERT INTO {relation} WITH (TABLOCK) ({columns}) SELECT {values} FROM {staged}"  # noqa: S608
        )
        if inserted != record.content.rows:
            raise ReconciliationFailed(
                f"{inserted} rows went from the staging table into {table.shown}, the stream had "
                f"{record.content.rows}; nothing was changed",
                target_rows=inserted,
                source_rows=record.content.rows,
            )
        stands = table_content(session, table.types, table.schema, table.name)
        if stands != record.content:
            raise ReconciliationFailed(
                f"{table.shown} would hold other rows than the stream had (digest {stands.row_sum[:12]}, not "
                f"{record.content.row_sum[:12]}): the staging table was changed after it was compared, or a trigger "
                "of the target changes rows; nothing was changed",
                target_rows=stands.rows,
                source_rows=record.content.rows,
            )

    def commit(self, record: LoadRecord) -> None:
        """Fence again, write the receipt and commit, in one message.

        :raises Fenced: the gate was closed; nothing was changed.
        :raises AnswerLost: the outcome is unknown until observed.
        """
        session = self._session
        assert session is not None, "the swap comes first"
        arguments = ", ".join(
            scripts.literal(value)
            for value in (record.guard_id, record.epoch, record.attempt_sha256, record.target, record.wire())
        )
        self._fenced(session, f"EXEC dpone_gate.conclude {arguments};\nCOMMIT TRANSACTION;", "before the commit")

    def _fence(self, session: MssqlSession, record: LoadRecord) -> None:
        arguments = ", ".join(
            scripts.literal(value) for value in (record.guard_id, record.epoch, record.attempt_sha256)
        )
        self._fenced(session, f"EXEC dpone_gate.look {arguments};", "meanwhile")

    @staticmethod
    def _fenced(session: MssqlSession, batch: str, when: str) -> None:
        try:
            session.query(batch)
        except ServerRefused as error:
            if error.details.get("server_code") in _FENCED:
                raise Fenced(f"the login was closed {when}; nothing was changed") from error
            raise

    def cancel(self) -> None:
        """Make what runs fail soon."""
        if self._session is not None:
            self._session.cancel()

    def close(self) -> None:
        """End the session; an open transaction is rolled back by the server."""
        if self._session is not None:
            self._session.close()
