"""Every T-SQL file is parsed by one maintained parser; what it cannot parse is listed here with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

import airflow_provider_dpone
from airflow_provider_dpone.ledger.dialects.mssql import MssqlDialect, batches

ROOT: Final = Path(airflow_provider_dpone.__file__).parent
FILES: Final = sorted(p.relative_to(ROOT).as_posix() for p in ROOT.rglob("mssql/*.sql"))
UNPARSED: Final[dict[str, str]] = {
    "ledger/dialects/mssql/roles.sql": "rights on a SCHEMA:: securable and members of roles are kept as text",
    "ledger/dialects/mssql/authority.sql": "THROW inside IF, and with it the trigger around it, is kept as text",
    "ledger/dialects/mssql/provisioner.sql": "rights on a SCHEMA:: securable and members of roles are kept as text",
    "ledger/dialects/mssql/rules.sql": "THROW inside IF, and with it the trigger around it, is kept as text",
}


def _unread(sql: str) -> list[str]:
    """Statements the parser only keeps as text, or refuses."""
    found: list[str] = []
    for batch in batches(sql):
        try:
            found += [type(s).__name__ for s in sqlglot.parse(batch, dialect="tsql") if isinstance(s, exp.Command)]
        except SqlglotError as error:
            found.append(str(error).splitlines()[0][:160])
    return found


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_parsed(name: str) -> None:
    unread = _unread((ROOT / name).read_text(encoding="utf-8"))
    assert bool(unread) == (name in UNPARSED), unread


def test_the_rendered_schema_is_parsed() -> None:
    tables = [
        statement for statement in MssqlDialect().ddl() if statement.startswith(("CREATE TABLE", "CREATE UNIQUE"))
    ]
    assert len(tables) >= 13
    assert [_unread(statement) for statement in tables] == [[]] * len(tables)


def test_a_statement_that_is_no_t_sql_is_seen() -> None:
    assert _unread("SELECT FROM WHERE )")
