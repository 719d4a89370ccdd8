"""Mutations of SQL Server's code; they are tried where DPONE_TEST_MSSQL_DSN names a server."""

from __future__ import annotations

from tools.mutations import Rows

BY_FILE: Rows = []
