"""Tests on a real SQL Server, or a stand-in for its language. Without DPONE_TEST_MSSQL_DSN none of them is collected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.ledger_database import LedgerDatabase
from tests.ledger_engines import LEDGERS
from tests.servers import PostgresUnderTest

if TYPE_CHECKING:
    from tests.live_mssql.target_world import MssqlWorld
    from tests.mssql_server import MssqlServer

collect_ignore_glob = [] if "mssql" in LEDGERS else ["test_*.py"]


@pytest.fixture
def mssql_world(
    mssql_server: MssqlServer, postgres_server: PostgresUnderTest, ledger_database: LedgerDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[MssqlWorld]:  # fmt: skip
    """A dedicated database on SQL Server with its gate, a PostgreSQL source and a ledger on PostgreSQL."""
    from tests.live_mssql import target_stand_in
    from tests.live_mssql.target_world import MssqlWorld

    if mssql_server.stand_in:
        target_stand_in.use(monkeypatch)
    world = MssqlWorld(postgres_server, ledger_database, mssql=mssql_server)
    yield world
    world.remove()
