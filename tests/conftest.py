"""Servers shared by a test session. Every session has its own, so sessions can run side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import ClickHouseUnderTest, PostgresUnderTest, clickhouse_under_test, postgres_under_test


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
