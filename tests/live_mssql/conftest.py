"""Tests on a real SQL Server, or a stand-in for its language. Without DPONE_TEST_MSSQL_DSN none of them is collected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ledger_engines import LEDGERS

if TYPE_CHECKING:
    from tests.authority_world import AuthorityWorld
    from tests.mssql_server import MssqlLedgerDatabase, MssqlServer

collect_ignore_glob = [] if "mssql" in LEDGERS else ["test_*.py"]


@pytest.fixture
def mssql_stores(mssql_server: MssqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The public stores speak to a stand-in in words it knows."""
    from airflow_provider_dpone.ledger import mssql
    from tests.mssql_server import StandInDialect

    if mssql_server.stand_in:
        monkeypatch.setattr(mssql, "MssqlDialect", StandInDialect)


@pytest.fixture
def authority(empty_mssql_ledger_database: MssqlLedgerDatabase) -> AuthorityWorld:
    """A ledger with a provisioner, for trust and grants."""
    from tests import authority_world

    world = authority_world.create(empty_mssql_ledger_database)  # type: ignore[arg-type]
    empty_mssql_ledger_database.logins.append(world.provisioner)
    return world
