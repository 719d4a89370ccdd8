"""Connections to PostgreSQL from keyword parameters, and the one place where driver errors become ours.

Every session is pinned to one output form, so that the text form of a value never depends on a server's or a role's
settings. Nothing here is retried.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
from adbc_driver_manager import Error as AdbcError
from psycopg import sql
from psycopg.conninfo import make_conninfo

from airflow_provider_dpone.errors import AnswerLost, ServerRefused, ServerUnreachable
from airflow_provider_dpone.waiting import BEYOND, COUNT, IDLE, INTERVAL, STATEMENT, Line, opening

#: Set in every reading transaction. ``row_security = off`` makes PostgreSQL refuse a read that a policy would filter.
PINNED = {
    "search_path": "",
    "row_security": "off",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "xmloption": "content",
    "idle_in_transaction_session_timeout": "0",
}

#: The server ended the session: an administrator, a crash, a start-up or shutdown.
_ENDED = ("57P01", "57P02", "57P03")
#: Codes that pass: serialization failure, deadlock, out of memory, too many connections, lock not available, cancelled,
#: starting up.
PASSING = frozenset({"40001", "40P01", "53200", "53300", "55P03", "57014", "57P03"})


@dataclass(frozen=True)
class PostgresParams:
    """How to reach a database. The password never shows in the representation."""

    host: str
    dbname: str
    user: str
    password: str | None = field(default=None, repr=False)
    port: int = 5432
    sslmode: str = "prefer"
    options: tuple[tuple[str, str], ...] = ()
    """Further libpq keywords, such as ``("sslrootcert", "/etc/ssl/ca.pem")``."""
    connect_timeout: int = 10
    application_name: str = "dpone"
    answer_seconds: float = STATEMENT + BEYOND
    """How long one answer, or one batch of rows, may be waited for."""

    def conninfo(self) -> str:
        """A libpq connection string; it carries the password, so it is passed on and never kept or logged."""
        defaults = {"connect_timeout": self.connect_timeout, "keepalives_idle": IDLE,
                    "keepalives_interval": INTERVAL, "keepalives_count": COUNT}  # fmt: skip
        return make_conninfo(
            "",
            host=self.host, port=self.port, dbname=self.dbname, user=self.user, password=self.password,
            sslmode=self.sslmode, application_name=self.application_name, client_encoding="UTF8", keepalives=1,
            **(defaults | dict(self.options)),
        )  # fmt: skip

    @property
    def place(self) -> str:
        """Host, port and database for error texts."""
        return f"{self.host}:{self.port}/{self.dbname}"


@contextmanager
def translated(params: PostgresParams, doing: str) -> Iterator[None]:
    """Turn errors of both drivers into ours: the server's SQLSTATE, or the loss of the connection.

    :raises ServerRefused: the server answered with an error; ``details["server_code"]`` is its SQLSTATE.
    :raises AnswerLost: the connection broke, or the server ended the session, while a statement ran.
    """
    try:
        yield
    except (psycopg.Error, AdbcError, pa.ArrowException, OSError) as error:
        code = getattr(error, "sqlstate", None)
        text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        # Errors in the middle of an Arrow stream come without a SQLSTATE; the server's own carry the word.
        answered = code not in ("00000", *_ENDED) if code else "ERROR:" in text
        if answered:
            raise ServerRefused(
                f"PostgreSQL {params.place} refused {doing}: {text} (SQLSTATE {code or 'unknown'})",
                passes=code in PASSING,
                server_code=code,
            ) from error
        raise AnswerLost(f"the connection to PostgreSQL {params.place} was lost during {doing}: {text}") from error


class BoundedConnection(psycopg.Connection):
    """A connection on which no wait lasts longer than its parameters say."""

    line = Line()
    seconds: float = STATEMENT + BEYOND

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """See psycopg: everything that waits for the server waits here."""
        with self.line.within(self.seconds):
            return super().wait(*args, **kwargs)


def connect(params: PostgresParams) -> BoundedConnection:
    """Open a session in autocommit mode; transactions are written out where they matter. No wait on it is endless.

    :raises ServerUnreachable: no connection could be made.
    :raises ServerRefused: the server refused the login; the message carries its SQLSTATE.
    """
    try:
        with opening(params.port) as line:
            connection = BoundedConnection.connect(params.conninfo(), autocommit=True)
    except psycopg.OperationalError as error:
        text = " ".join(str(error).split())[:400]
        if error.sqlstate:
            raise ServerRefused(
                f"PostgreSQL {params.place} refused the login of {params.user!r}: {text}",
                passes=error.sqlstate in PASSING,
                server_code=error.sqlstate,
            ) from None
        raise ServerUnreachable(f"no connection to PostgreSQL {params.place} as {params.user!r}: {text}") from None
    connection.line, connection.seconds = line, params.answer_seconds
    return connection


@contextmanager
def arrow_session(params: PostgresParams) -> Iterator[tuple[adbc.Connection, Line]]:
    """A session of the Arrow driver, and the line on which its waits are bounded; closed at the end."""
    with opening(params.port) as line:
        connection = adbc.connect(params.conninfo())
    with closing(connection):
        yield connection, line


def quoted(*names: str) -> str:
    """A quoted, qualified identifier, whatever the names contain."""
    return sql.Identifier(*names).as_string(None)


def literal(value: str | int) -> str:
    """A value as SQL text, for statements that take no parameters."""
    return sql.Literal(value).as_string(None)


def pins() -> list[str]:
    """The statements that pin a transaction's output form; they take no snapshot."""
    return [f"SET LOCAL {name} = {literal(value)}" for name, value in PINNED.items()]


def statement(name: str) -> str:
    """The SQL of a file beside this module."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
