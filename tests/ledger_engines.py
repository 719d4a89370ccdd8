"""Which databases the ledger's tests run on: PostgreSQL always, SQL Server when DPONE_TEST_MSSQL_DSN names one."""

from __future__ import annotations

import os
from typing import Final

LEDGERS: Final = ["postgres", *(["mssql"] if os.environ.get("DPONE_TEST_MSSQL_DSN") else [])]


def driver_errors(engine: str) -> tuple[type[Exception], ...]:
    """The error classes of a database's driver."""
    if engine == "postgres":
        import psycopg

        return (psycopg.Error,)
    import pyodbc

    return (pyodbc.Error,)
