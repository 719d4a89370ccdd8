"""Servers shared by a test session. Every session has its own, so sessions can run side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests import ledger_database as ledger_database_module
from tests import mssql_selection
from tests.ledger_database import LedgerDatabase
from tests.schema_world import SchemaWorld
from tests.servers import ClickHouseUnderTest, PostgresUnderTest, clickhouse_under_test, postgres_under_test
from tests.snapshot_world import SnapshotWorld

if TYPE_CHECKING:
    from tests.mssql_server import MssqlLedgerDatabase, MssqlServer


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A case of a closed inventory carries its id into the JUnit report."""
    for item in items:
        for marker in item.iter_markers("case"):
            item.user_properties.append(("case", marker.args[0]))
    mssql_selection.select(config, items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test worker tells the process that prints what it left out."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = mssql_selection.left_out(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A test worker ended."""
    mssql_selection.remember(node.config, getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How much of the run was on SQL Server, and what of it was not run."""
    line = mssql_selection.said(terminalreporter.stats, config)
    if line:
        terminalreporter.section("SQL Server")
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def clickhouse_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseUnderTest]:
    """One ClickHouse server: local, or the one named by DPONE_TEST_CLICKHOUSE_URL and DPONE_TEST_CLICKHOUSE_NATIVE."""
    with clickhouse_under_test(tmp_path_factory.mktemp("clickhouse")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresUnderTest]:
    """One local PostgreSQL server."""
    with postgres_under_test(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture
def ledger_database(postgres_server: PostgresUnderTest) -> LedgerDatabase:
    """A fresh control database with an installed ledger."""
    return ledger_database_module.create(postgres_server.superuser)


@pytest.fixture
def empty_ledger_database(postgres_server: PostgresUnderTest) -> LedgerDatabase:
    """A fresh control database without a ledger."""
    return ledger_database_module.create(postgres_server.superuser, installed=False)


@pytest.fixture
def world(
    clickhouse_server: ClickHouseUnderTest, postgres_server: PostgresUnderTest, ledger_database: LedgerDatabase
) -> SnapshotWorld:
    """Source, target and ledger for snapshot attempts, all fresh."""
    return SnapshotWorld(clickhouse_server, postgres_server, ledger_database)


@pytest.fixture(scope="session")
def mssql_server() -> MssqlServer:
    """The SQL Server named by DPONE_TEST_MSSQL_DSN; without it nothing that uses this is collected."""
    from tests import mssql_server as mssql

    return mssql.server()


@pytest.fixture
def mssql_ledger_database(empty_mssql_ledger_database: MssqlLedgerDatabase) -> MssqlLedgerDatabase:
    """A fresh control database with an installed ledger on SQL Server."""
    empty_mssql_ledger_database.install()
    return empty_mssql_ledger_database


@pytest.fixture
def empty_mssql_ledger_database(mssql_server: MssqlServer) -> Iterator[MssqlLedgerDatabase]:
    """A fresh control database without a ledger on SQL Server."""
    from tests import mssql_server as mssql

    database = mssql.create(mssql_server)
    yield database
    database.drop()


@pytest.fixture
def schema_world(postgres_server: PostgresUnderTest, ledger_database: LedgerDatabase) -> SchemaWorld:
    """A managed schema with its login gate, and a ledger, all fresh."""
    return SchemaWorld(postgres_server, ledger_database)
