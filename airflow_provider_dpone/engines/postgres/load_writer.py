"""The worker's side of a load on PostgreSQL: fill the staging table, then replace the target's rows in one transaction.

Each session is the one-time login's. Nothing is sent again; what became of a commit whose answer was lost is for the
controller to see.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import psycopg

from airflow_provider_dpone.contracts.loads import LoadRecord
from airflow_provider_dpone.contracts.ports import IssuedCredential
from airflow_provider_dpone.engines.postgres.control import PostgresSession
from airflow_provider_dpone.engines.postgres.copy_binary import HEADER, TRAILER
from airflow_provider_dpone.engines.postgres.session import PostgresParams, connect, literal, pins, quoted, translated
from airflow_provider_dpone.engines.postgres.staging import target_content
from airflow_provider_dpone.engines.postgres.target import LoadTable, describe_target
from airflow_provider_dpone.errors import Fenced, ReconciliationFailed, ServerRefused, TargetChanged

_FENCED = ("DP003", "55P03")


class PostgresLoadWriter:
    """Sessions of one worker. Safe to cancel from any thread.

    :param lock_wait: seconds to wait for the target's lock, which readers never hold.
    """

    def __init__(self, params: PostgresParams, credential: IssuedCredential, lock_wait: float = 60.0) -> None:
        self._params = replace(
            params, user=credential.name, password=credential.password, application_name="dpone-worker"
        )
        self._lock_wait = lock_wait
        self._session: PostgresSession | None = None
        self._connection: psycopg.Connection | None = None

    def copy(self, table: LoadTable, staging: str, body: Iterator[bytes]) -> int:
        """Stream rows into the staging table with one COPY; bytes handed to the socket.

        :raises ServerRefused, AnswerLost: the statement failed; what ``body`` raises comes out unchanged.
        """
        columns = ", ".join(quoted(name) for name in table.types)
        sent = 0
        with connect(self._params) as connection:
            self._connection = connection
            with (
                translated(self._params, "the load's COPY"),
                connection.cursor().copy(
                    f"COPY {quoted(table.schema, staging)} ({columns}) FROM STDIN (FORMAT binary)".encode()
                ) as copy,
            ):
                copy.write(HEADER)
                for chunk in body:
                    copy.write(chunk)
                    sent += len(chunk)
                copy.write(TRAILER)
        self._connection = None
        return sent + len(HEADER) + len(TRAILER)

    def swap(self, table: LoadTable, staging: str, record: LoadRecord) -> None:
        """Delete the target's rows and insert the staged ones, in a transaction that is left open.

        The target is digested once more inside of it, so that what is committed is what was streamed.

        :raises TargetChanged: the table is not the planned one any more.
        :raises Fenced: the gate is not open under this guard, epoch and attempt.
        :raises ReconciliationFailed: the target would not hold exactly the streamed rows, whatever changed them.
        """
        relation, staged = quoted(table.schema, table.name), quoted(table.schema, staging)
        connection = connect(self._params)
        self._connection = connection
        self._session = session = PostgresSession(self._params, connection)
        session.query(";\n".join(["BEGIN", *pins(), f"SET LOCAL lock_timeout = {int(self._lock_wait * 1000)}"]))
        session.query(f"LOCK TABLE {relation} IN SHARE ROW EXCLUSIVE MODE")
        self._fence(session, record)
        if describe_target(session, table.schema, table.name, table.features) != table:
            raise TargetChanged(f"{table.shown} is no longer the table that was planned; run the task again")
        session.query(f"DELETE FROM {relation}")  # noqa: S608
        columns = ", ".join(quoted(name) for name in table.types)
        values = ", ".join(
            f"{quoted(name)}::{kind.text}" if kind.family == "Carried" else quoted(name)
            for name, kind in table.types.items()
        )
        inserted = session.change(
            f"INSERT INTO {relation} ({columns}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {staged}"  # noqa: S608
        )
        if inserted != record.content.rows:
            raise ReconciliationFailed(
                f"{inserted} rows went from the staging table into {table.shown}, the stream had "
                f"{record.content.rows}; nothing was changed",
                target_rows=inserted,
                source_rows=record.content.rows,
            )
        # a deferred trigger that changes rows does so before they are read
        session.query("SET CONSTRAINTS ALL IMMEDIATE")
        stands = target_content(session, table)
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
            literal(value)
            for value in (
                record.guard_id,
                record.epoch,
                record.attempt_sha256,
                record.target,
                record.wire().decode(),
            )
        )
        try:
            session.query(f"SELECT dpone_gate.conclude({arguments});\nCOMMIT")
        except ServerRefused as error:
            if error.details.get("server_code") in _FENCED:
                raise Fenced("the login was closed before the commit; nothing was changed") from error
            raise

    def _fence(self, session: PostgresSession, record: LoadRecord) -> None:
        arguments = ", ".join(literal(value) for value in (record.guard_id, record.epoch, record.attempt_sha256))
        try:
            session.query(f"SELECT dpone_gate.fence({arguments}, false)")
        except ServerRefused as error:
            if error.details.get("server_code") in _FENCED:
                raise Fenced("this attempt does not hold the target any more; nothing was changed") from error
            raise

    def cancel(self) -> None:
        """Make what runs fail soon."""
        connection = self._connection
        if connection is not None:
            with suppress(psycopg.Error):  # its end is seen by whoever waits for it
                connection.cancel_safe(timeout=5)

    def close(self) -> None:
        """End the session; an open transaction is rolled back by the server."""
        if self._session is not None:
            self._session.close()
