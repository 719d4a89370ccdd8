"""Sessions with a SQL Server source, and the one place where its drivers' errors become ours. Nothing is retried."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyodbc
from arrow_odbc import Error as ArrowOdbcError

from airflow_provider_dpone.errors import AnswerLost, DriverFailed, ServerRefused, ServerUnreachable
from airflow_provider_dpone.ledger.dialects.mssql.diagnostics import BUSY, PASSING, Diagnostic, diagnose
from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams
from airflow_provider_dpone.ledger.dialects.mssql.odbc import connect as connect_odbc
from airflow_provider_dpone.waiting import Line, opening

_ARROW: Final = re.compile(
    r"State: (?P<state>\w{5}), Native error: (?P<number>-?\d+), Message: (?P<text>.*)", re.DOTALL
)
#: The session was killed, or the server is shutting down.
_ENDED: Final = (596, 6005, 6006)
#: Seconds a session for looks at the catalog may last.
_LOOKS: Final = 900.0
#: States of a lost connection or a time-out.
_LOST: Final = ("08", "HYT")
#: States in which the driver says no more than that something went wrong, or that it was cancelled: no answer was read.
_DOUBTFUL: Final = ("HY000", "HY008", "01000")


def _diagnose(error: BaseException) -> Diagnostic:
    if isinstance(error, pyodbc.Error):
        return diagnose(error)
    found = _ARROW.search(str(error))
    if found is None:
        return Diagnostic("", None, " ".join(str(error).split()))
    text = " ".join(found["text"].rpartition("[SQL Server]")[2].split())
    number = int(found["number"])
    return Diagnostic(found["state"], number or None, text)


@contextmanager
def translated(params: MssqlParams, doing: str) -> Iterator[None]:
    """Turn errors of both drivers into ours: the server's error number, the loss of the connection, or their own.

    :raises ServerRefused: the server answered with an error; ``details["server_code"]`` is its number.
    :raises AnswerLost: the connection broke, or the server ended the session, while a statement ran.
    :raises DriverFailed: the driver gave up by itself, for a value its buffer does not hold, for one.
    """
    try:
        yield
    except (pyodbc.Error, ArrowOdbcError) as error:
        found = _diagnose(error)
        if found.number is None and found.sqlstate not in _DOUBTFUL and not found.sqlstate.startswith(_LOST):
            raise DriverFailed(
                f"the driver of SQL Server {params.place} gave up on {doing}: {found.text[:400]}"
            ) from error
        if found.number is not None and found.number not in _ENDED and not found.sqlstate.startswith(_LOST):
            raise ServerRefused(
                f"SQL Server {params.place} refused {doing}: {found.text[:400]} (error {found.number})",
                passes=found.number in BUSY | PASSING,
                server_code=found.number,
            ) from error
        raise AnswerLost(
            f"the connection to SQL Server {params.place} was lost during {doing}: {found.text[:400]}"
        ) from error


def connect(params: MssqlParams) -> pyodbc.Connection:
    """Open a session in autocommit mode for a few looks at the catalog; it is cut when it is still at it much later.

    :raises ServerUnreachable: no connection could be made.
    :raises ServerRefused: the server refused the login; the message carries its error number.
    """
    connection, line = connect_lined(params)
    line.end_after(min(_LOOKS, params.answer_seconds))
    return connection


def connect_lined(params: MssqlParams) -> tuple[pyodbc.Connection, Line]:
    """Open a session in autocommit mode, and the line on which its waits are to be bounded; raises like connect."""
    try:
        with opening(params.port) as line:
            connection = connect_odbc(params)
        return connection, line
    except pyodbc.Error as error:
        found = diagnose(error)
        if found.number is not None:
            raise ServerRefused(
                f"SQL Server {params.place} refused the login of {params.user!r}: {found.text[:400]}",
                passes=found.number in BUSY | PASSING,
                server_code=found.number,
            ) from None
        raise ServerUnreachable(
            f"no connection to SQL Server {params.place} as {params.user!r}: {found.text[:400]}"
        ) from None
