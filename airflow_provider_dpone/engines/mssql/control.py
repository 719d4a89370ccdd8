"""The control plane of one SQL Server database: short statements as the controller, each on the session it opens."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

import pyodbc

from airflow_provider_dpone.engines.mssql import scripts
from airflow_provider_dpone.engines.mssql.session import connect_lined, translated
from airflow_provider_dpone.errors import AnswerLost, DponeError, DriverFailed, ServerUnreachable
from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams
from airflow_provider_dpone.ledger.schema import SCHEMA
from airflow_provider_dpone.waiting import Line

#: What every session starts with, sent without parameters so that it stays. Error texts in one language.
SETTINGS: Final = (
    "SET LANGUAGE us_english; SET XACT_ABORT ON; SET IMPLICIT_TRANSACTIONS OFF; SET CURSOR_CLOSE_ON_COMMIT OFF; "
    "SET NOCOUNT OFF; SET ANSI_NULLS ON; SET ANSI_PADDING ON; SET ANSI_WARNINGS ON; SET ARITHABORT ON; "
    "SET CONCAT_NULL_YIELDS_NULL ON; SET QUOTED_IDENTIFIER ON; SET NUMERIC_ROUNDABORT OFF; "
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCK_TIMEOUT 15000;"
)


#: Why nothing is concluded from a control operation that was not answered; no finding of the policy.
CONTROL_OPERATION_UNKNOWN: Final = "control_operation_unknown"


@contextmanager
def _reasoned() -> Iterator[None]:
    """Name the reason of a control operation whose effect is not known."""
    try:
        yield
    except (AnswerLost, DriverFailed, ServerUnreachable) as error:
        error.details["reasons"] = [CONTROL_OPERATION_UNKNOWN]
        raise


class MssqlSession:
    """One open session in autocommit mode. Nothing is retried; every result set is drained, where late errors show."""

    def __init__(self, params: MssqlParams, connection: pyodbc.Connection, line: Line) -> None:
        self._params = params
        self._connection = connection
        self._line = line
        self._running: pyodbc.Cursor | None = None

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one batch; the rows of its last result that has any.

        :raises ServerRefused: the server answered with an error; ``details["server_code"]`` is its number.
        :raises AnswerLost: the batch was sent and no answer was read.
        """
        return self._run(sql, values)[0]

    def change(self, sql: str, *values: Any) -> int:
        """Run one statement that changes rows; how many.

        :raises ServerRefused, AnswerLost: as for :meth:`query`.
        """
        return self._run(sql, values)[1]

    def _run(self, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        rows: list[tuple[Any, ...]] = []
        changed = 0
        with _reasoned(), translated(self._params, "a statement"), self._line.within(self._params.answer_seconds):
            cursor = self._running = self._connection.cursor()
            try:
                cursor.execute(sql, *values)
                while True:
                    if cursor.description is not None:
                        rows = [tuple(row) for row in cursor.fetchall()]
                    else:
                        changed = max(changed, cursor.rowcount)
                    if not cursor.nextset():
                        return rows, changed
            finally:
                self._running = None
                cursor.close()

    def script(self, statements: Sequence[str]) -> None:
        """Run statements in one transaction; all or none holds. After a failure the session is closed.

        :raises ServerRefused, AnswerLost: as for :meth:`query`.
        """
        try:
            for statement in ("BEGIN TRANSACTION", *statements, "COMMIT TRANSACTION"):
                self.query(statement)
        except DponeError:
            self.close()  # which rolls back, whatever state the transaction is in
            raise

    @property
    def number(self) -> int:
        """The server's number of this session."""
        [(spid,)] = self.query("SELECT @@SPID")
        return int(spid)

    def cancel(self) -> None:
        """Make the statement that runs here fail soon. Safe from any thread, also when none runs."""
        cursor = self._running
        if cursor is not None:
            with suppress(pyodbc.Error):  # its end is seen by whoever waits for it
                cursor.cancel()

    def close(self) -> None:
        """End the session; an open transaction is rolled back by the server. May be called again."""
        with suppress(pyodbc.Error):  # closed already, or its connection is gone: it is over either way
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_session(params: MssqlParams) -> MssqlSession:
    """A session on a new connection; the caller closes it.

    :raises ServerUnreachable, ServerRefused: no session could be made.
    """
    with _reasoned():
        session = MssqlSession(params, *connect_lined(params))
    session.query(SETTINGS)
    return session


class MssqlControl:
    """Opens sessions of the controller on one database.

    :param control_database: the database of the same server that holds the login gates.
    :param control_schema: the schema of a ledger's tables, which may be in a target database.
    """

    def __init__(self, params: MssqlParams, control_database: str, control_schema: str = SCHEMA) -> None:
        self.params = params
        self.control_database = control_database
        self.control_schema = control_schema

    def fresh(self) -> MssqlSession:
        """A session in the target database on a new connection; the caller closes it.

        :raises ServerUnreachable, ServerRefused: no session could be made.
        """
        return open_session(self.params)

    def gates(self) -> MssqlSession:
        """The same in the database that holds the gates."""
        return open_session(replace(self.params, database=self.control_database))

    @contextmanager
    def gates_beside(self, session: MssqlSession) -> Iterator[MssqlSession]:
        """A session in the database that holds the gates: ``session`` itself when that is the target database."""
        if self.control_database == self.params.database:
            yield session
        else:
            with self.gates() as other:
                yield other

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one batch on a session of its own in the target database."""
        with self.fresh() as session:
            return session.query(sql, *values)

    @contextmanager
    def known(self) -> Iterator[tuple[str, int]]:
        """A second session that a complete view must show: its application name and number."""
        name = f"dpone-known-{secrets.token_hex(8)}"
        with open_session(replace(self.params, application_name=name)) as session:
            yield name, session.number


def texts(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    """Rows as lists of text, for comparing what a catalog shows."""
    return [["" if value is None else str(value) for value in row] for row in rows]


def shown(session: MssqlSession, file: str, *values: Any) -> dict[str, list[list[str]]]:
    """The rows of every part of a file that takes the same parameters, as texts."""
    return {name: texts(session.query(sql, *values)) for name, sql in scripts.parts(file).items()}
