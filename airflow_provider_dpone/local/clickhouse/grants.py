"""The privilege tree, and one user's grants with partial revokes and grant option. No storage, no statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from airflow_provider_dpone.local.clickhouse.errors import ServerError
from airflow_provider_dpone.local.clickhouse.lexer import quote_if_needed

_TABLE_LEVELS = {"TABLE", "VIEW", "DICTIONARY", "COLUMN"}
_DATABASE_LEVELS = {"DATABASE", *_TABLE_LEVELS}
REVOKED, GRANTED, WITH_OPTION = 0, 1, 2


class Privileges:
    """The server's privilege tree, as ``system.privileges`` of the engine gives it."""

    def __init__(self, rows: Iterable[tuple[str, str | None, str | None]]) -> None:
        self.level: dict[str, str | None] = {}
        self._children: dict[str, list[str]] = {}
        for name, level, parent in rows:
            self.level[name] = level
            if parent is not None:
                self._children.setdefault(parent, []).append(name)
        self._leaves: dict[str, frozenset[str]] = {}

    def leaves(self, name: str) -> frozenset[str]:
        """Everything grantable under ``name``, itself included when it is grantable."""
        if name not in self.level:
            raise ServerError(62, f"Syntax error: unknown privilege {name}")
        if name not in self._leaves:
            own = {name} if self.level[name] is not None else set()
            self._leaves[name] = frozenset(own.union(*(self.leaves(child) for child in self._children.get(name, []))))
        return self._leaves[name]

    def grantable(self, name: str, database: str, table: str) -> frozenset[str]:
        """Leaves of ``name`` that can be granted on a scope; INVALID_GRANT when there are none."""
        allowed = _TABLE_LEVELS if table else _DATABASE_LEVELS
        found = frozenset(leaf for leaf in self.leaves(name) if not database or self.level[leaf] in allowed)
        if not found:
            raise ServerError(509, f"{name} cannot be granted on the {'table' if table else 'database'} level")
        return found

    def collapse(self, leaves: frozenset[str], root: str = "ALL") -> list[str]:
        """The shortest list of names, groups included, that says the same as ``leaves``."""
        if self.leaves(root) and self.leaves(root) <= leaves:
            return [root]
        own = [root] if root in leaves else []
        return own + [name for child in self._children.get(root, []) for name in self.collapse(leaves, child)]


class GrantRow(NamedTuple):
    """One line of SHOW GRANTS: privileges on a scope ('' means all), GRANTED, WITH_OPTION or REVOKED."""

    privileges: list[str]
    database: str
    table: str
    state: int


class Grants:
    """What one user may do. The most specific record of a privilege decides."""

    def __init__(self, privileges: Privileges, rows: Iterable[GrantRow] = ()) -> None:
        self._privileges = privileges
        self._records: dict[tuple[str, str, str], int] = {}
        for row in rows:
            for name in row.privileges:
                for leaf in privileges.leaves(name):
                    self._records[leaf, row.database, row.table] = row.state

    def grant(self, name: str, database: str, table: str, option: bool) -> None:
        for leaf in self._privileges.grantable(name, database, table):
            for key in list(self._below(leaf, database, table)):
                if self._records[key] == REVOKED:
                    del self._records[key]
            current = self._records.get((leaf, database, table), REVOKED)
            self._records[leaf, database, table] = max(current, WITH_OPTION if option else GRANTED)

    def revoke(self, name: str, database: str, table: str, option_only: bool = False) -> None:
        for leaf in self._privileges.grantable(name, database, table):
            for key in list(self._below(leaf, database, table)):
                if option_only:
                    self._records[key] = min(self._records[key], GRANTED)
                else:
                    del self._records[key]
            if not option_only and self._lookup(leaf, database, table) > REVOKED:
                self._records[leaf, database, table] = REVOKED

    def allows(self, name: str, database: str | None, table: str | None, option: bool = False) -> bool:
        """Whether every leaf of ``name`` is granted on the whole scope."""
        scope = database or "", table or ""
        levels = _TABLE_LEVELS if table else _DATABASE_LEVELS
        leaves = [
            leaf for leaf in self._privileges.leaves(name) if not database or self._privileges.level[leaf] in levels
        ]
        return bool(leaves) and all(self._allows_leaf(leaf, *scope, option) for leaf in leaves)

    def _allows_leaf(self, leaf: str, database: str, table: str, option: bool) -> bool:
        wanted = WITH_OPTION if option else GRANTED
        if self._lookup(leaf, database, table) >= wanted:
            return all(self._records[key] >= wanted for key in self._below(leaf, database, table))
        return (
            not option
            and leaf in ("SHOW DATABASES", "SHOW TABLES", "SHOW COLUMNS")
            and self._implied(leaf, database, table)
        )

    def _implied(self, leaf: str, database: str, table: str) -> bool:
        """Any right on a table shows it; any right in a database shows the database."""
        for (granted, db, tbl), state in self._records.items():
            if state > REVOKED and self._privileges.level[granted] in _DATABASE_LEVELS:
                covers = db in ("", database) and (tbl in ("", table) or leaf == "SHOW DATABASES")
                if covers and (leaf == "SHOW DATABASES" or self._privileges.level[granted] in _TABLE_LEVELS):
                    return True
        return False

    def _lookup(self, leaf: str, database: str, table: str) -> int:
        for key in ((leaf, database, table), (leaf, database, ""), (leaf, "", "")):
            if key in self._records:
                return self._records[key]
        return REVOKED

    def _below(self, leaf: str, database: str, table: str) -> Iterator[tuple[str, str, str]]:
        for key in self._records:
            if key[0] == leaf and database in ("", key[1]) and table in ("", key[2]):
                yield key

    def visible_tables(self) -> list[tuple[str, str]] | None:
        """Scopes whose tables this user is shown; None means all of them."""
        if self._allows_leaf("SHOW TABLES", "", "", False):
            return None
        return sorted({(db, tbl) for (_, db, tbl), state in self._records.items() if state > REVOKED and db})

    def granted(self) -> set[tuple[str, str, str]]:
        """(privilege, database, table) of everything granted."""
        return {key for key, state in self._records.items() if state > REVOKED}

    def rows(self) -> list[GrantRow]:
        groups: dict[tuple[str, str, int], set[str]] = {}
        for (leaf, database, table), state in self._records.items():
            groups.setdefault((database, table, state), set()).add(leaf)
        return [
            GrantRow(self._privileges.collapse(frozenset(groups[key])), *key)
            for key in sorted(groups, key=_grant_order)
        ]


def _grant_order(key: tuple[str, str, int]) -> tuple[str, str, int]:
    database, table, state = key
    return database, table, -state


def scope_text(database: str, table: str) -> str:
    return ".".join(quote_if_needed(part) if part else "*" for part in (database, table))
