"""Who, besides an issued user, could write a table: grants, partial revokes and roles, judged as the server does.

Pure: the rows of ``writers.sql`` in, names out. Rights of a user are the union of its own and of every role it holds or
could set; within one of them the most specific grant or partial revoke decides.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from airflow_provider_dpone.errors import ViewIncomplete

#: Privileges, each with all below it in ``system.privileges``, that change rows or swap tables.
WRITING: Final = frozenset(
    {"INSERT", "TRUNCATE", "OPTIMIZE", "CREATE TABLE", "DROP TABLE", "DROP DATABASE", "ALTER TABLE"}
)
#: Names of issued users; a disabled one (no host) stays as a tombstone and can never log in.
ISSUED_NAME: Final = re.compile(r"dpone_[a-z]+_[0-9a-f]{32}\Z")


class _Grant(NamedTuple):
    privilege: str
    database: str
    table: str
    column: str
    revoked: bool
    wildcard: bool

    def reach(self, database: str, table: str) -> tuple[int, int] | None:
        """How specifically this row speaks about a table; None when it does not."""
        if not self.database:
            return (0, 0)
        if not self.table:
            if self.wildcard:
                return (1, len(self.database)) if database.startswith(self.database) else None
            return (2, 0) if database == self.database else None
        if database != self.database:
            return None
        if self.wildcard and not self.column:
            return (3, len(self.table)) if table.startswith(self.table) else None
        return (4, 0) if table == self.table else None


def judge_writers(
    rows: Mapping[str, Sequence[Sequence[str]]], database: str, tables: Collection[str], allowed: Collection[str]
) -> tuple[str, ...]:
    """Sorted names of users and roles outside ``allowed`` that can write one of ``tables``.

    Rights that come through an allowed role are allowed.
    """
    roles: dict[tuple[str, str], set[str]] = defaultdict(set)
    grants: dict[tuple[str, str], list[_Grant]] = defaultdict(list)
    parents = {str(privilege): str(parent) for privilege, parent in rows.get("privilege", ())}
    nowhere = {name: flag == "1" for name, flag in rows.get("user", ())}
    for user, role, granted in rows.get("role", ()):
        roles[("user", user) if user else ("role", role)].add(granted)
    for user, role, privilege, at, name, column, revoked, wildcard in rows.get("grant", ()):
        holder = ("user", user) if user else ("role", role)
        grants[holder].append(_Grant(privilege, at, name, column, revoked == "1", wildcard == "1"))
    if not nowhere or not parents:
        raise ViewIncomplete("the catalog shows no user or no privilege at all, although this session has both")
    lineage = {leaf: _ancestors(leaf, parents) for leaf in parents if _ancestors(leaf, parents) & WRITING}

    def can_write(holder: tuple[str, str]) -> bool:
        return any(_granted(grants[holder], leaf, database, table) for leaf in lineage.values() for table in tables)

    writing_roles = {
        name for kind, name in list(grants) if kind == "role" and name not in allowed and can_write((kind, name))
    }
    found = set(writing_roles)
    for name, cannot_log_in in nowhere.items():
        if name in allowed or (cannot_log_in and ISSUED_NAME.match(name)):
            continue
        if can_write(("user", name)) or _held(("user", name), roles, allowed) & writing_roles:
            found.add(name)
    return tuple(sorted(found))


def _ancestors(privilege: str, parents: dict[str, str]) -> frozenset[str]:
    seen = []
    while privilege:
        seen.append(privilege)
        privilege = parents.get(privilege, "")
    return frozenset(seen)


def _granted(grants: list[_Grant], lineage: frozenset[str], database: str, table: str) -> bool:
    deciding: list[tuple[tuple[int, int], bool]] = []
    for grant in grants:
        reach = grant.reach(database, table) if grant.privilege in lineage else None
        if reach is None:
            continue
        if not grant.column:
            deciding.append((reach, not grant.revoked))
        elif not grant.revoked:
            return True  # some columns are enough to write rows
    return bool(deciding) and max(deciding)[1]


def _held(holder: tuple[str, str], roles: dict[tuple[str, str], set[str]], allowed: Collection[str]) -> set[str]:
    """Roles a holder has, through other roles too; an allowed role ends the search."""
    held: set[str] = set()
    pending = list(roles[holder])
    while pending:
        role = pending.pop()
        if role not in held and role not in allowed:
            held.add(role)
            pending.extend(roles[("role", role)])
    return held
