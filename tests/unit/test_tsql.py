"""Every T-SQL file and rendered batch is parsed by one maintained parser; what it only keeps as text is listed here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

import airflow_provider_dpone
from airflow_provider_dpone.ledger.dialects.mssql import MssqlDialect, batches
from airflow_provider_dpone.ledger.mssql import render_composition_mssql_schema

ROOT: Final = Path(airflow_provider_dpone.__file__).parent
FILES: Final = sorted(p.relative_to(ROOT).as_posix() for p in ROOT.rglob("mssql/*.sql"))
#: How a statement begins that the parser keeps as text, and why.
KEPT: Final[dict[str, str]] = {
    "GRANT SELECT ON SCHEMA::": "it does not know the SCHEMA:: securable",
    "GRANT VIEW DEFINITION TO ": "it does not know rights on the database itself",
    "GRANT VIEW SECURITY DEFINITION TO ": "it does not know rights on the database itself",
    "GRANT EXECUTE ON OBJECT::": "it does not know the OBJECT:: securable",
    "GRANT SELECT ON OBJECT::": "it does not know the OBJECT:: securable",
    "GRANT CREATE TABLE": "it does not know rights of a database",
    "CREATE SCHEMA dpone_gate AUTHORIZATION": "it does not know owners of schemas",
    "CREATE USER ": "it does not know users",
    "ALTER LOGIN ": "it does not know logins",
    "ALTER INDEX ALL ": "it does not know options of indexes",
    "ALTER TABLE dpone_gate.gate SET ": "it does not know options of a table",
    "CREATE ROLE ": "it does not know roles",
    "ALTER ROLE ": "it does not know members of roles",
}
_COMMENT: Final = re.compile(r"^\s*--.*\n", re.MULTILINE)
_MODULE: Final = re.compile(r"CREATE (?:TRIGGER|FUNCTION|PROCEDURE)\b.*?\bAS\nBEGIN\n(?P<body>.*)\nEND;?", re.DOTALL)
_TABLE: Final = re.compile(r"CREATE FUNCTION\b.*?\bRETURNS TABLE AS\nRETURN\n(?P<body>.*);?", re.DOTALL)
_IMPERSONATED: Final = re.compile(r"^EXECUTE AS LOGIN = N'\w+';\n|^REVERT;\n", re.MULTILINE)
_THROW: Final = re.compile(r"\bTHROW 510\d\d, (N'\w+'|@\w+), 1\b")


def _statements(batch: str) -> str:
    """A batch without leading comments; of a trigger, function or procedure its body, with THROW as a SELECT.

    THROW and impersonation are unknown to the parser.
    """
    plain = _IMPERSONATED.sub("", _COMMENT.sub("", batch)).strip()
    module = _MODULE.fullmatch(plain) or _TABLE.fullmatch(plain)
    if module is None:
        return plain
    return _THROW.sub(r"SELECT \1", re.sub(r"^  RETURN ", "  SELECT ", module["body"]))


def _unread(batch: str) -> list[str]:
    """Statements the parser only keeps as text without a reason known here, or refuses."""
    plain = _statements(batch)
    try:
        kept = [s for s in sqlglot.parse(plain, dialect="tsql") if isinstance(s, exp.Command)]
    except SqlglotError as error:
        return [str(error).splitlines()[0][:160]]
    return [plain[:80]] if kept and not plain.startswith(tuple(KEPT)) else []


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_parsed(name: str) -> None:
    parts = batches((ROOT / name).read_text(encoding="utf-8"))
    assert parts
    assert [unread for part in parts for unread in _unread(part)] == []


def test_every_rendered_batch_is_parsed() -> None:
    dialect = MssqlDialect("another_schema")
    rights = dialect.grants("role]name") + dialect.provisioner_grants("other")
    parts = batches(render_composition_mssql_schema("another_schema"))
    assert len(parts) > len(dialect.ddl()) > 40
    assert [unread for part in [*parts, *rights] for unread in _unread(part)] == []


def test_every_reason_is_needed() -> None:
    parts = [_statements(part) for name in FILES for part in batches((ROOT / name).read_text(encoding="utf-8"))]
    assert [start for start in KEPT if not any(part.startswith(start) for part in parts)] == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT FROM WHERE )",
        "CREATE TRIGGER t ON x AFTER INSERT AS\nBEGIN\n  IF EXISTS (SELECT 1 FROM WHERE) THROW 51000, N'a', 1;\nEND;",
        "FROBNICATE TABLE x",
    ],
)
def test_what_is_no_t_sql_is_seen(statement: str) -> None:
    assert _unread(statement)
