"""Tests on a real SQL Server, or a stand-in for its language. Without DPONE_TEST_MSSQL_DSN none of them is collected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.ledger_database import LedgerDatabase
from tests.ledger_engines import LEDGERS
from tests.servers import PostgresUnderTest

if TYPE_CHECKING:
    from tests.authority_world import AuthorityWorld
    from tests.live_mssql.target_world import MssqlWorld
    from tests.mssql_server import MssqlLedgerDatabase, MssqlServer

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
    with mssql_server.alone("gate"):  # an instance has one login trigger
        world = MssqlWorld(postgres_server, ledger_database, mssql=mssql_server)
        yield world
        world.remove()


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
