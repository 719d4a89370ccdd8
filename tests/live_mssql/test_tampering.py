"""What the owner of a control database on SQL Server changes behind the rules is seen by its two audits.

Of a stand-in: half a minute for each, so a few of them run with every change and all of them in the whole suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airflow_provider_dpone.ledger.dialects.base import Audited
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from airflow_provider_dpone.ledger.schema import metadata
from tests import builders
from tests.ledger_tampering import TAMPERINGS, Tampering, filled, made
from tests.mssql_server import MssqlLedgerDatabase

pytestmark = pytest.mark.timeout(3600)


def _missed(database: MssqlLedgerDatabase, tamperings: Sequence[Tampering]) -> list[tuple[str, list[str]]]:
    """All of them in one ledger, each taken back; those that neither statement saw."""
    history = made(builders.activate(database.admin(), database.runtime(), "orders", "rates"))
    dialect = database.dialect()
    missed: list[tuple[str, list[str]]] = []
    engine = dialect.engine(lambda: database.under_test.connect(database=database.dbname))
    with engine.connect() as connection:
        assert dialect.audit(connection) == []
        assert dialect.audit(connection, Audited(guards=history.guards)) == []
    references = database.as_admin(
        "SELECT OBJECT_NAME(f.parent_object_id), f.name FROM sys.foreign_keys AS f WHERE f.schema_id = SCHEMA_ID(N'dpone')"
    )
    for tampering in tamperings:
        with engine.connect() as connection:
            connection.begin()
            raw: Any = connection.connection.driver_connection
            for table, name in references:
                batch(raw, f"ALTER TABLE dpone.[{table}] DROP CONSTRAINT [{name}]")
            for table in metadata.sorted_tables:
                batch(raw, f"DISABLE TRIGGER dpone.{table.name}_rule ON dpone.{table.name}")
            for statement in tampering.statements:
                batch(raw, filled(history, statement, lambda d: f"0x{d[7:]}", lambda u: f"'{u}'"))
            seen = dialect.audit(connection)
            if not any(line.startswith(tampering.seen) for line in seen):
                missed.append((tampering.what, seen))
            if tampering.admission and not dialect.audit(connection, Audited(guards=history.guards)):
                missed.append((f"{tampering.what} (admission)", seen))
            connection.rollback()
        print(tampering.what, "seen" if not missed or missed[-1][0] != tampering.what else "missed", flush=True)
    return missed


def test_a_few_tamperings_are_seen(mssql_ledger_database: MssqlLedgerDatabase) -> None:
    assert _missed(mssql_ledger_database, TAMPERINGS[:2]) == []


def test_every_tampering_is_seen(mssql_ledger_database: MssqlLedgerDatabase) -> None:
    assert _missed(mssql_ledger_database, TAMPERINGS) == []
