"""Tests on a real SQL Server, or a stand-in for its language. Without DPONE_TEST_MSSQL_DSN none of them is collected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.ledger_engines import LEDGERS

if TYPE_CHECKING:
    from tests.authority_world import AuthorityWorld
    from tests.mssql_server import MssqlLedgerDatabase

collect_ignore_glob = [] if "mssql" in LEDGERS else ["test_*.py"]


@pytest.fixture
def authority(empty_mssql_ledger_database: MssqlLedgerDatabase) -> Iterator[AuthorityWorld]:
    """A ledger with a provisioner, for trust and grants."""
    from tests import authority_world, mssql_server

    world = authority_world.create(empty_mssql_ledger_database)  # type: ignore[arg-type]
    yield world
    mssql_server.drop(empty_mssql_ledger_database, world.provisioner)
