"""The control plane of one PostgreSQL database: short statements as the controller, each on the session it opens."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

import psycopg

from airflow_provider_dpone.engines.postgres.session import PostgresParams, connect, pins, translated
from airflow_provider_dpone.waiting import BEYOND

#: Milliseconds a control transaction may wait for its next statement before the server ends it.
_IDLE: Final = 60_000
#: Rows of one FETCH.
_FETCH: Final = 1 << 16


class PostgresSession:
    """One open session in autocommit mode. Nothing is retried."""

    def __init__(self, params: PostgresParams, connection: psycopg.Connection) -> None:
        self._params = params
        self._connection = connection

    @property
    def pid(self) -> int:
        """The server's process of this session."""
        return self._connection.info.backend_pid

    def query(self, statement: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement and return all its rows; a statement without rows gives none.

        :raises ServerRefused: the server answered with an error; ``details["server_code"]`` is its SQLSTATE.
        :raises AnswerLost: the statement was sent and no answer was read.
        """
        with translated(self._params, "a control statement"):
            cursor = self._connection.execute(statement.encode(), params)
            return cursor.fetchall() if cursor.description else []

    def change(self, statement: str) -> int:
        """Run one statement that changes rows; how many.

        :raises ServerRefused, AnswerLost: as for :meth:`query`.
        """
        with translated(self._params, "a statement"):
            return self._connection.execute(statement.encode()).rowcount

    def fetched(self, select: str) -> Iterator[bytes]:
        """The one column of bytes a SELECT gives, joined, some tens of thousands of rows at a time.

        The transaction must be open; on return its cursor is closed.

        :raises ServerRefused, AnswerLost: as for :meth:`query`.
        """
        self.query(f"DECLARE fetched NO SCROLL CURSOR FOR {select}")
        while True:
            with translated(self._params, "a statement"):
                result = self._connection.execute(f"FETCH FORWARD {_FETCH} FROM fetched".encode(), binary=True).pgresult
            assert result is not None
            if result.ntuples == 0:
                break
            yield b"".join(result.get_value(row, 0) or b"" for row in range(result.ntuples))
        self.query("CLOSE fetched")

    def script(self, statements: list[str]) -> None:
        """Run statements in one transaction, sent as one message: no answer lies between them, all or none holds.

        :raises ServerRefused, AnswerLost: as for :meth:`query`.
        """
        self.query(";\n".join(["BEGIN", *statements, "COMMIT"]))

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """A transaction in which values are shown in one form only; committed at the end.

        :raises ServerRefused, AnswerLost: as for :meth:`query`.
        """
        idle = f"SET LOCAL idle_in_transaction_session_timeout = {_IDLE}"  # a frozen process must not hold its locks
        self.query(";\n".join(["BEGIN", *pins(), idle]))
        try:
            yield
        except BaseException:
            self.close()  # ends the transaction, whatever state it is in
            raise
        self.query("COMMIT")

    def cancel(self) -> None:
        """Make the statement that runs here fail soon. Safe from any thread, also when none runs."""
        self._connection.cancel_safe(timeout=5)

    def scrambled(self, password: str, name: str) -> str:
        """The SCRAM verifier of a password, computed by the client; the server never sees the password."""
        raw = self._connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
        return raw.decode()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PostgresControl:
    """Opens sessions of the controller on one database."""

    def __init__(self, params: PostgresParams) -> None:
        self.params = params

    def fresh(self) -> PostgresSession:
        """A session on a new connection; the caller closes it.

        :raises ServerUnreachable, ServerRefused: no session could be made.
        """
        return self._session(self.params)

    @staticmethod
    def _session(params: PostgresParams) -> PostgresSession:
        session = PostgresSession(params, connect(params))
        # every name is shown qualified, whatever the role's own path; and the server ends what takes too long first
        wait = params.answer_seconds
        limit = round(1000 * (wait - BEYOND if wait > BEYOND else wait))
        session.query(f"SET search_path = ''; SET statement_timeout = {limit}")
        return session

    def query(self, statement: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement on a session of its own."""
        with self.fresh() as session:
            return session.query(statement, params)

    @contextmanager
    def known(self) -> Iterator[tuple[str, int]]:
        """A second session that a complete view must show: its application name and process."""
        name = f"dpone-known-{secrets.token_hex(8)}"
        params = replace(self.params, application_name=name)
        with self._session(params) as session:
            yield name, session.pid
