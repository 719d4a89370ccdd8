"""Trust and grants on PostgreSQL; on SQL Server the same cases are tests/live_mssql/test_trust.py, test_registration.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import authority_registration_cases, authority_trust_cases, authority_world
from tests.authority_world import AuthorityWorld
from tests.ledger_database import LedgerDatabase
from tests.servers import PostgresUnderTest

#: R18 is about options of a SQL Server session.
CASES = {
    case_id: case
    for case_id, case in (authority_trust_cases.CASES | authority_registration_cases.CASES).items()
    if case_id != "R18"
}


@pytest.fixture
def authority(empty_ledger_database: LedgerDatabase, postgres_server: PostgresUnderTest) -> AuthorityWorld:
    return authority_world.create(empty_ledger_database, postgres_server.superuser)


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.__name__)
def test_authority(case: Callable[[AuthorityWorld], None], authority: AuthorityWorld) -> None:
    case(authority)
