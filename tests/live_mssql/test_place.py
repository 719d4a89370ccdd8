"""Which database is behind a connection, and which names are one relation in it, as the server itself says."""

from __future__ import annotations

import pytest

from airflow_provider_dpone.engines.mssql.place import equivalence, place, same_place
from airflow_provider_dpone.errors import TargetUnsupported
from tests.live_mssql.source_support import MssqlSourceDatabase
from tests.mssql_server import MssqlServer


@pytest.fixture(scope="module")
def database(mssql_server: MssqlServer) -> MssqlSourceDatabase:
    return MssqlSourceDatabase.fresh(mssql_server)


def test_two_connections_to_one_database_are_one_place(database: MssqlSourceDatabase) -> None:
    assert same_place(database.params(), database.params())


def test_names_are_compared_under_the_databases_collation(database: MssqlSourceDatabase) -> None:
    one, other, third = equivalence(database.params(), [("dbo", "Orders"), ("dbo", "orders"), ("dbo", "rates")])
    assert one == other != third  # the default collation ignores case


def test_a_name_the_server_would_cut_is_refused(database: MssqlSourceDatabase) -> None:
    with pytest.raises(TargetUnsupported):
        equivalence(database.params(), [("dbo", "x" * 129)])


def test_a_place_is_an_incarnation(database: MssqlSourceDatabase) -> None:
    if database.server.stand_in:  # it has no recovery identity, and what cannot be seen is refused
        with pytest.raises(TargetUnsupported, match="not visible"):
            place(database.params())
        return
    service_id, database_id, ledger = place(database.params())
    assert (service_id, database_id, ledger) == place(database.params())
    assert ledger is None
    database.run("ALTER DATABASE CURRENT SET NEW_BROKER WITH ROLLBACK IMMEDIATE")
    assert place(database.params())[0] != service_id
