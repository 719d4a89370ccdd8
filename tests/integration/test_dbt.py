"""dbt attempts on a real PostgreSQL under real one-time logins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_dpone.errors import DbtModelFailed, DbtTestFailed
from tests.dbt_world import SHOP, DbtWorld, project
from tests.ledger_database import LedgerDatabase
from tests.servers import PostgresUnderTest


@pytest.fixture(scope="module")
def parses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved parses shared by the tests of this file."""
    return tmp_path_factory.mktemp("parses")


@pytest.fixture
def world(postgres_server: PostgresUnderTest, ledger_database: LedgerDatabase, parses: Path) -> Iterator[DbtWorld]:
    return DbtWorld(postgres_server, ledger_database, cache=parses)


def test_the_whole_shop_is_built_closed_and_read_back(world: DbtWorld) -> None:
    receipt = world.run(SHOP, exclude=("tag:fails_on_purpose",))
    print(receipt)
    assert receipt.state == "SUCCEEDED"
    assert (receipt.models, receipt.seeds, receipt.snapshots) == (24, 7, 2)
    assert receipt.rows["fct_orders"] == 180
    assert world.roles() == []
