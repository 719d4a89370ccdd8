"""SQLAlchemy over pyodbc in autocommit mode, with transactions written out.

The driver's own transaction mode begins a new transaction by itself after a commit. Every result set is drained at
once, because an error of a later statement of a batch shows only there, and because a session carries one statement at
a time: with rows of the last one still unread the next would be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mssql.base import MSExecutionContext
from sqlalchemy.dialects.mssql.pyodbc import MSDialect_pyodbc
from sqlalchemy.engine.cursor import FullyBufferedCursorFetchStrategy
from sqlalchemy.engine.interfaces import ExecutionContext

if TYPE_CHECKING:
    import pyodbc

URL: Final = "mssql+dponeexplicit://"


def batch(connection: pyodbc.Connection, sql: str) -> list[tuple[Any, ...]]:
    """Send one batch without parameters, drain every result set, and return the rows of the last that has any."""
    rows: list[tuple[Any, ...]] = []
    cursor = connection.cursor()
    try:
        cursor.execute(sql)
        while True:
            if cursor.description is not None:
                rows = [tuple(row) for row in cursor.fetchall()]
            if not cursor.nextset():
                return rows
    finally:
        cursor.close()


class _Drained(MSExecutionContext):
    """Keeps the rows, and the number of changed ones, which the cursor forgets when it is drained."""

    counted: int | None = None

    def post_exec(self) -> None:
        super().post_exec()  # type: ignore[no-untyped-call]
        if self.counted is not None:
            self._rowcount = self.counted
        description = self.cursor.description
        if description is not None:
            rows = self.cursor.fetchall()
            while self.cursor.nextset():
                pass
            self.cursor_fetch_strategy = FullyBufferedCursorFetchStrategy(None, description, rows)


class ExplicitTransactions(MSDialect_pyodbc):
    """Begins, commits and rolls back by statements of its own."""

    execution_ctx_cls = _Drained
    supports_statement_cache = True
    insert_returning = False
    update_returning = False
    delete_returning = False
    settings: str = ""

    def initialize(self, connection: Any) -> None:
        """Ask the server nothing: that it is new enough is checked where a ledger begins."""
        self.server_version_info = (16, 0)  # type: ignore[assignment]
        self._setup_version_attributes()  # type: ignore[no-untyped-call]

    def do_begin(self, dbapi_connection: Any) -> None:
        batch(dbapi_connection, self.settings)
        batch(dbapi_connection, "BEGIN TRANSACTION;")

    def do_commit(self, dbapi_connection: Any) -> None:
        batch(dbapi_connection, "COMMIT TRANSACTION;")

    def do_rollback(self, dbapi_connection: Any) -> None:
        batch(dbapi_connection, "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;")

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: ExecutionContext | None = None) -> None:
        super().do_execute(cursor, statement, parameters, context)  # type: ignore[no-untyped-call]
        changed = cursor.rowcount
        while cursor.description is None and cursor.nextset():
            pass
        if isinstance(context, _Drained) and cursor.description is None:
            context.counted = changed


registry.register("mssql.dponeexplicit", __name__, "ExplicitTransactions")
