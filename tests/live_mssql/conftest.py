"""Tests on a real SQL Server, or a stand-in for its language. Without DPONE_TEST_MSSQL_DSN none of them is collected."""

from __future__ import annotations

from tests.ledger_engines import LEDGERS

collect_ignore_glob = [] if "mssql" in LEDGERS else ["test_*.py"]
