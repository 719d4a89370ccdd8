"""Which privileges a statement needs. Reads the statement's tokens, and for queries the engine's own parse tree."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import NamedTuple

from airflow_provider_dpone.local.clickhouse.errors import not_implemented
from airflow_provider_dpone.local.clickhouse.lexer import Cursor, Token
from airflow_provider_dpone.local.clickhouse.statements import Statement


class Need(NamedTuple):
    """One privilege on a scope; ``database`` and ``table`` are None for everything."""

    privilege: str
    database: str | None = None
    table: str | None = None

    @property
    def scope(self) -> str:
        return f"{self.database or '*'}.{self.table or '*'}"


#: nobody but an administrator may run the statement
ADMINISTRATOR = Need("ALL")
_TABLE_FUNCTIONS = {"numbers", "numbers_mt", "zeros", "zeros_mt", "values", "format", "null", "generateRandom"} | {
    "generateSeries",
    "generate_series",
    "view",
}
_READING_FUNCTIONS = re.compile(
    r"^(file|joinGet\w*|dictGet\w*|dictHas|dictIsIn|executable|catboostEvaluate|.*secret.*)$", re.I
)
_ENGINES = re.compile(r"^(\w*MergeTree|Memory|Null|Log|TinyLog|StripeLog|Set|Join)$")
#: readable by everybody (as on a server with select_from_system_db_requires_grant)
OPEN_SYSTEM_TABLES = {
    *("one", "numbers", "numbers_mt", "zeros", "zeros_mt", "contributors", "licenses", "time_zones", "collations"),
    *("formats", "privileges", "data_type_families", "database_engines", "table_engines", "table_functions"),
    *("aggregate_function_combinators", "functions", "databases", "tables", "columns", "settings"),
    *("current_roles", "enabled_roles", "quota_usage"),
}
#: a system table that SHOW privileges open, and those privileges
SHOWN_SYSTEM_TABLES = {
    "users": ("SHOW USERS",),
    "roles": ("SHOW ROLES",),
    "grants": ("SHOW USERS", "SHOW ROLES"),
    "role_grants": ("SHOW USERS", "SHOW ROLES"),
    "row_policies": ("SHOW ROW POLICIES",),
    "masking_policies": ("SHOW MASKING POLICIES",),
    "settings_profiles": ("SHOW SETTINGS PROFILES",),
    "settings_profile_elements": ("SHOW SETTINGS PROFILES",),
    "quotas": ("SHOW QUOTAS",),
    "quota_limits": ("SHOW QUOTAS",),
    "quotas_usage": ("SHOW QUOTAS",),
}
Explain = Callable[[str], list[str]]


def needs(statement: Statement, database: str, explain: Explain) -> list[Need]:
    """Privileges ``statement`` needs when run with current ``database``.

    :param explain: returns the lines of the engine's ``EXPLAIN AST`` for a query text.
    """
    cursor = statement.cursor()
    kind = statement.kind
    cursor.next()
    if kind in ("Select", "Explain"):
        return reads(statement.text, statement.tokens, database, explain)
    if kind == "Insert":
        return _insert(statement, cursor, database, explain)
    if kind in _NAMED:
        return _named(kind, cursor, database)
    if kind in ("CreateTable", "CreateView"):
        return _create(statement, cursor, database, explain)
    if kind in ("Rename", "Exchange"):
        return _rename(kind, cursor, database)
    if kind in ("AlterTable", "Describe", "Exists", "Show", "System"):
        return globals()[f"_{kind.lower()}"](statement, cursor, database, explain)  # type: ignore[no-any-return]
    if kind in ("Set", "Use", "KillQuery", "ShowProcesslist"):
        return []  # settings are checked against constraints; KILL asks for each query's owner
    return [ADMINISTRATOR]


def reads(text: str, found: list[Token], database: str, explain: Explain) -> list[Need]:
    """SELECT on every table a query names; functions that read elsewhere need an administrator."""
    lines = [line.strip() for line in explain(text)]
    named = {  # WITH name AS (...)
        name.value for name, word, mark in zip(found, found[1:], found[2:], strict=False)
        if name.is_name and word.word == "AS" and mark.text == "("
    }  # fmt: skip
    result: list[Need] = []
    for previous, line in itertools.pairwise(["", *lines]):
        what, _, rest = line.partition(" ")
        name = re.sub(r" \((alias .*|children \d+)\)$", "", re.sub(r" \(children \d+\)$", "", rest))
        if what == "TableIdentifier":
            result += _table_reads(name, database, named)
        elif what == "Function":
            in_table = previous.startswith("TableExpression") and name not in _TABLE_FUNCTIONS
            if in_table or _READING_FUNCTIONS.match(name):
                result.append(ADMINISTRATOR)
    for at, token in enumerate(found):
        if token.word == "IN" and at + 1 < len(found) and found[at + 1].is_name and found[at + 1].value not in named:
            result.append(Need("SELECT", *Cursor(found, at + 1).table(database)))
    return result


def _table_reads(name: str, database: str, named: set[str]) -> list[Need]:
    if "." not in name:
        return [] if name in named else [Need("SELECT", database, name)]
    cuts = [match.start() for match in re.finditer(r"\.", name)]  # a quoted name may hold dots: demand every reading
    return [need for cut in cuts for need in table_needs(name[:cut], name[cut + 1 :])]


def table_needs(database: str, table: str) -> list[Need]:
    if (database == "system" and table in OPEN_SYSTEM_TABLES) or database.lower() == "information_schema":
        return []
    if database == "system" and table in SHOWN_SYSTEM_TABLES:
        return [Need(privilege) for privilege in SHOWN_SYSTEM_TABLES[table]]
    return [Need("SELECT", database, table)]


def _query_part(statement: Statement) -> tuple[str, list[Token]] | None:
    """The SELECT inside an INSERT or CREATE, with its tokens."""
    depth = 0
    for at, token in enumerate(statement.tokens):
        if depth == 0 and token.word in ("SELECT", "WITH"):
            return statement.text[token.start :], statement.tokens[at:]
        if token.text == "(" and statement.tokens[at + 1 : at + 2] and at > 0:
            inner = statement.tokens[at + 1]
            if depth == 0 and inner.word in ("SELECT", "WITH"):
                return statement.text[token.start :], statement.tokens[at:]
        depth += {"(": 1, ")": -1}.get(token.text, 0)
    return None


def _insert(statement: Statement, cursor: Cursor, database: str, explain: Explain) -> list[Need]:
    cursor.expect("INTO")
    cursor.accept("TABLE")
    if cursor.peek().word == "FUNCTION":
        return [ADMINISTRATOR]
    result = [Need("INSERT", *cursor.table(database))]
    part = _query_part(statement) if statement.data_format is None else None
    return result + (reads(*part, database, explain) if part else [])


_NAMED = {
    "CreateDatabase": ("CREATE DATABASE", ""),
    "DropDatabase": ("DROP DATABASE", ""),
    "DropTable": ("DROP TABLE", "TABLE"),
    "DropView": ("DROP VIEW", "VIEW"),
    "DropDictionary": ("DROP DICTIONARY", "DICTIONARY"),
    "DetachTable": ("DROP TABLE", "TABLE"),
    "DetachView": ("DROP VIEW", "VIEW"),
    "Truncate": ("TRUNCATE", "TABLE"),
    "Optimize": ("OPTIMIZE", "TABLE"),
    "Check": ("CHECK", "TABLE"),
    "Delete": ("ALTER DELETE", "FROM"),
    "Update": ("ALTER UPDATE", ""),
}


def _named(kind: str, cursor: Cursor, database: str) -> list[Need]:
    privilege, noise = _NAMED[kind]
    if kind in ("CreateDatabase", "DropDatabase"):
        cursor.expect("DATABASE")
    elif kind == "Truncate" and cursor.peek().word in ("DATABASE", "ALL"):
        return [ADMINISTRATOR]
    elif noise:
        cursor.accept("TEMPORARY")
        cursor.accept(noise)
    _ = cursor.accept("IF NOT EXISTS") or cursor.accept("IF EXISTS") or cursor.accept("IF EMPTY")
    if kind in ("CreateDatabase", "DropDatabase"):
        return [Need(privilege, cursor.name())]
    result = []
    while True:
        result.append(Need(privilege, *cursor.table(database)))
        if not (kind.startswith("Drop") and cursor.accept(",")):
            return result


def _create(statement: Statement, cursor: Cursor, database: str, explain: Explain) -> list[Need]:
    replace = cursor.accept("OR REPLACE")
    if cursor.accept("TEMPORARY"):
        return [Need("CREATE TEMPORARY TABLE")]
    materialized = cursor.accept("MATERIALIZED")
    kind = cursor.next().word
    cursor.accept("IF NOT EXISTS")
    name = cursor.table(database)
    result = [Need(f"CREATE {kind}", *name), *([Need(f"DROP {kind}", *name)] if replace else [])]
    depth = 0
    for at, token in enumerate(statement.tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        named = statement.tokens[at + 1 : at + 3]  # with or without "="
        if depth == 0 and token.word == "ENGINE" and not any(_ENGINES.match(name.text) for name in named):
            return [ADMINISTRATOR]  # an engine that reads or writes elsewhere
    part = _query_part(statement)
    if part:
        result += reads(*part, database, explain)
    elif cursor.accept("AS") and cursor.peek().is_name:
        if cursor.peek(1).text == "(":
            return [ADMINISTRATOR]
        result.append(Need("SHOW COLUMNS", *cursor.table(database)))
    if materialized and cursor.accept("TO"):
        target = cursor.table(database)
        result += [Need("INSERT", *target), Need("SELECT", *target)]
    return result


def _rename(kind: str, cursor: Cursor, database: str) -> list[Need]:
    """The rights the server asks for both names of a RENAME or an EXCHANGE."""
    if not (cursor.accept("TABLES") or cursor.accept("TABLE")):
        return [ADMINISTRATOR]
    leave, arrive = ("SELECT", "DROP TABLE"), ("CREATE TABLE", "INSERT")
    result: list[Need] = []
    while True:
        source = cursor.table(database)
        _ = cursor.accept("AND") or cursor.accept("TO")
        target = cursor.table(database)
        result += [Need(privilege, *source) for privilege in leave] + [Need(privilege, *target) for privilege in arrive]
        if kind == "Exchange":
            result += [Need(privilege, *source) for privilege in arrive] + [
                Need(privilege, *target) for privilege in leave
            ]
        if not cursor.accept(","):
            return result


def _altertable(statement: Statement, cursor: Cursor, database: str, explain: Explain) -> list[Need]:
    """All of ALTER TABLE, whatever the command; and reading anything when a partition of another table is taken."""
    cursor.expect("TABLE")
    cursor.accept("IF EXISTS")
    elsewhere = [Need("SELECT")] if any(token.word == "FROM" for token in statement.tokens) else []
    return [Need("ALTER TABLE", *cursor.table(database)), *elsewhere]


def _describe(statement: Statement, cursor: Cursor, database: str, explain: Explain) -> list[Need]:
    cursor.accept("TABLE")
    if cursor.peek().text == "(":
        at = cursor.position
        return reads(statement.text[statement.tokens[at].start :], statement.tokens[at:], database, explain)
    if cursor.peek(1).text == "(":
        return [ADMINISTRATOR]
    return _shown(cursor.table(database), "SHOW COLUMNS")


def _exists(statement: Statement, cursor: Cursor, database: str, explain: Explain) -> list[Need]:
    if cursor.accept("DATABASE"):
        return [Need("SHOW DATABASES", cursor.name())]
    _ = cursor.accept("TABLE") or cursor.accept("VIEW") or cursor.accept("DICTIONARY")
    return _shown(cursor.table(database), "SHOW TABLES")


def _show(statement: Statement, cursor: Cursor, database: str, explain: Explain) -> list[Need]:
    if cursor.accept("CREATE"):
        if cursor.accept("DATABASE"):
            return [Need("SHOW DATABASES", cursor.name())]
        _ = cursor.accept("TABLE") or cursor.accept("VIEW") or cursor.accept("DICTIONARY")
        return _shown(cursor.table(database), "SHOW COLUMNS")
    return [Need("SHOW")]  # a server would filter the list; here it is shown whole or not at all


def _shown(name: tuple[str, str], privilege: str) -> list[Need]:
    return [] if name[0] in ("system", "information_schema") else [Need(privilege, *name)]


def _system(statement: Statement, cursor: Cursor, database: str, explain: Explain) -> list[Need]:
    words = " ".join(token.word for token in statement.tokens)
    for known in ("SYSTEM FLUSH LOGS", "SYSTEM RELOAD USERS"):
        if words.startswith(known):
            return [Need(known)]
    if re.match(r"SYSTEM (STOP|START) MERGES", words):
        cursor.next(), cursor.next()
        return [Need("SYSTEM MERGES", *cursor.table(database)) if not cursor.done else Need("SYSTEM MERGES")]
    raise not_implemented(words)
