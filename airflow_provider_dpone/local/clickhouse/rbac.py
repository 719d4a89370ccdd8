"""CREATE/ALTER/DROP USER, quotas, GRANT and REVOKE, SHOW and CHECK of them. Anything else of access control is refused.

Statements arrive in the engine's canonical text (upper case keywords, fixed order of clauses).
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from airflow_provider_dpone.local.clickhouse.access import Need
from airflow_provider_dpone.local.clickhouse.errors import ServerError, not_implemented
from airflow_provider_dpone.local.clickhouse.grants import REVOKED, WITH_OPTION, Grants, scope_text
from airflow_provider_dpone.local.clickhouse.lexer import Cursor, quote_if_needed, tokens
from airflow_provider_dpone.local.clickhouse.principals import (
    Interval,
    PrincipalStore,
    Quota,
    SettingElement,
    User,
    host_networks,
)

_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}
_SECONDS |= {"MONTH": 2592000, "QUARTER": 7776000, "YEAR": 31556952}


class Answer(NamedTuple):
    """Rows of a SHOW or CHECK."""

    column: str
    type: str
    rows: Sequence[object]


class Plan(NamedTuple):
    """What a statement needs of its sender, and its effect."""

    needs: list[Need]
    options: list[Need]
    apply: Callable[[], Answer | None]


class Rbac:
    """Access-control statements over one :class:`PrincipalStore`."""

    def __init__(self, store: PrincipalStore, parse_time: Callable[[str], int]) -> None:
        self._store = store
        self._parse_time = parse_time

    def plan(self, kind: str, canonical: str, asker: User, database: str) -> Plan:
        """Understand a statement; nothing is changed before ``apply`` is called."""
        cursor = Cursor(list(tokens(canonical)))
        plan: Plan = getattr(self, f"_{kind.lower()}")(cursor, asker, database)
        if not cursor.done:
            raise not_implemented(f"this clause: {cursor.peek().text}")
        return plan

    # --- users -------------------------------------------------------------------------------------------------

    def _createuser(self, cursor: Cursor, asker: User, database: str) -> Plan:
        cursor.expect("CREATE USER")
        optional, over = cursor.accept("IF NOT EXISTS"), cursor.accept("OR REPLACE")
        names = self._names(cursor)
        template = self._user_clauses(cursor, User(names[0], "", grants=Grants(self._store.privileges)))

        def apply() -> None:
            with self._store.lock:
                for name in names:
                    if name in self._store.users and not over:
                        if optional:
                            continue
                        raise ServerError(493, f"user `{name}`: cannot insert because user `{name}` already exists")
                    grants = Grants(self._store.privileges)
                    self._store.save_user(replace(template, name=name, id=str(uuid.uuid4()), grants=grants))

        needs = [Need("CREATE USER"), *([Need("DROP USER")] if over else [])]
        return Plan(needs, [], apply)

    def _alteruser(self, cursor: Cursor, asker: User, database: str) -> Plan:
        cursor.expect("ALTER USER")
        optional = cursor.accept("IF EXISTS")
        names = self._names(cursor)
        start = cursor.position
        self._user_clauses(cursor, User("", ""))

        def apply() -> None:
            with self._store.lock:
                for name in names:
                    if name not in self._store.users and optional:
                        continue
                    self._store.save_user(self._user_clauses(Cursor(cursor.tokens, start), self._store.user(name)))

        return Plan([Need("ALTER USER")], [], apply)

    def _dropuser(self, cursor: Cursor, asker: User, database: str) -> Plan:
        cursor.expect("DROP USER")
        optional = cursor.accept("IF EXISTS")
        names = self._names(cursor)

        def apply() -> None:
            with self._store.lock:
                for name in names:
                    if name in self._store.users or not optional:
                        self._store.drop_user(name)

        return Plan([Need("DROP USER")], [], apply)

    def _names(self, cursor: Cursor) -> list[str]:
        names = [cursor.name()]
        while cursor.accept(","):
            names.append(cursor.name())
        return names

    def _user_clauses(self, cursor: Cursor, user: User) -> User:
        """A copy of ``user`` with every clause that follows applied."""
        user = replace(user, settings=list(user.settings))
        while not cursor.done:
            if cursor.accept("NOT IDENTIFIED"):
                user.set_password("no_password", "", "")
            elif cursor.accept("IDENTIFIED"):
                self._identified(cursor, user)
            elif cursor.accept("VALID UNTIL"):
                text = cursor.next().value
                user.valid_until = None if text == "infinity" else self._parse_time(text)
            elif cursor.accept("HOST"):
                user.hosts = host_networks(self._hosts(cursor))
            elif cursor.accept("DEFAULT ROLE"):
                if not cursor.accept("NONE") and not cursor.accept("ALL"):
                    raise not_implemented("roles")
            elif cursor.accept("DEFAULT DATABASE"):
                user.default_database = "" if cursor.accept("NONE") else cursor.name()
            elif cursor.accept("GRANTEES"):
                user.grantees_any = cursor.accept("ANY")
                if not user.grantees_any:
                    cursor.expect("NONE")
            elif not self._setting_clause(cursor, user):
                raise not_implemented(f"this clause of a user: {cursor.peek().text}")
        return user

    def _identified(self, cursor: Cursor, user: User) -> None:
        kind = cursor.next().text if cursor.accept("WITH") else "sha256_password"
        text = cursor.next().value if cursor.accept("BY") else ""
        salt = cursor.next().value if cursor.accept("SALT") else ""
        user.set_password(kind, text, secrets.token_hex(16) if kind == "sha256_password" else salt)

    def _hosts(self, cursor: Cursor) -> list[str]:
        words: list[str] = []
        while True:
            word = cursor.next()
            if word.word in ("ANY", "NONE", "LOCAL"):
                words.append(word.word)
            elif word.word == "IP" or word.kind == "string":
                words.append(cursor.next().value if word.word == "IP" else word.value)
            else:
                raise not_implemented(f"HOST {word.text}")
            if not cursor.accept(","):
                return words

    def _setting_clause(self, cursor: Cursor, user: User) -> bool:
        if cursor.accept("DROP ALL SETTINGS"):
            user.settings = []
        elif cursor.accept("SETTINGS") or cursor.accept("ADD SETTINGS") or cursor.accept("ADD SETTING"):
            if cursor.accept("NONE"):
                user.settings = []
                return True
            while True:
                element = self._setting(cursor)
                user.settings = [other for other in user.settings if other.name != element.name] + [element]
                if not cursor.accept(",") or cursor.peek().word in ("ADD", "DROP"):
                    break
        elif not cursor.accept("DROP ALL PROFILES"):
            return False
        cursor.accept(",")
        return True

    def _setting(self, cursor: Cursor) -> SettingElement:
        element = SettingElement(cursor.next().text)
        if element.name.upper() in ("PROFILE", "INHERIT"):
            raise not_implemented("settings profiles")
        while True:
            if cursor.accept("="):
                element.value = self._literal(cursor)
            elif cursor.accept("MIN"):
                cursor.accept("=")
                element.min = self._literal(cursor)
            elif cursor.accept("MAX"):
                cursor.accept("=")
                element.max = self._literal(cursor)
            elif cursor.accept("CONST") or cursor.accept("READONLY"):
                element.const = True
            elif not cursor.accept("WRITABLE"):
                return element

    @staticmethod
    def _literal(cursor: Cursor) -> str:
        sign = "-" if cursor.accept("-") else ""
        text = sign + cursor.next().value
        return {"true": "1", "false": "0"}.get(text, text)

    # --- quotas ------------------------------------------------------------------------------------------------

    def _createquota(self, cursor: Cursor, asker: User, database: str) -> Plan:
        cursor.expect("CREATE QUOTA")
        optional, over = cursor.accept("IF NOT EXISTS"), cursor.accept("OR REPLACE")
        quota = Quota(cursor.name(), str(uuid.uuid4()), keyed=False, intervals=[])
        if cursor.accept("KEYED BY"):
            if not cursor.accept("USER_NAME"):
                raise not_implemented(f"quotas keyed by {cursor.peek().text}")
            quota.keyed = True
        else:
            cursor.accept("NOT KEYED")
        while cursor.accept("FOR"):
            quota.intervals.append(self._interval(cursor))
            cursor.accept(",")
        names: list[str] = []
        if cursor.accept("TO"):
            quota.to_all = cursor.accept("ALL")
            if (not quota.to_all or cursor.accept("EXCEPT")) and not cursor.accept("NONE"):
                names = self._names(cursor)

        def apply() -> None:
            with self._store.lock:
                if quota.name in self._store.quotas and not over:
                    if optional:
                        return
                    raise ServerError(493, f"quota `{quota.name}`: cannot insert because it already exists")
                ids = [self._store.user(name).id for name in names]
                quota.to, quota.to_except = ([], ids) if quota.to_all else (ids, [])
                self._store.save_quota(quota)

        return Plan([Need("CREATE QUOTA"), *([Need("DROP QUOTA")] if over else [])], [], apply)

    def _interval(self, cursor: Cursor) -> Interval:
        cursor.expect("INTERVAL")
        count, unit = int(cursor.next().value), cursor.next().word
        if unit not in _SECONDS:
            raise not_implemented(f"quota intervals in {unit}")
        interval = Interval(count * _SECONDS[unit], None)
        if cursor.accept("MAX"):
            cursor.expect("QUERIES")
            cursor.expect("=")
            interval.max_queries = int(cursor.next().value)
        elif not cursor.accept("TRACKING ONLY") and not cursor.accept("NO LIMITS"):
            raise not_implemented(f"quota clause {cursor.peek().text}")
        return interval

    def _dropquota(self, cursor: Cursor, asker: User, database: str) -> Plan:
        cursor.expect("DROP QUOTA")
        optional = cursor.accept("IF EXISTS")
        names = self._names(cursor)

        def apply() -> None:
            with self._store.lock:
                for name in names:
                    if name in self._store.quotas or not optional:
                        self._store.drop_quota(name)

        return Plan([Need("DROP QUOTA")], [], apply)

    # --- grants ------------------------------------------------------------------------------------------------

    def _grant(self, cursor: Cursor, asker: User, database: str) -> Plan:
        cursor.expect("GRANT")
        elements = self._elements(cursor, database)
        cursor.expect("TO")
        names = self._names(cursor)
        option = cursor.accept("WITH GRANT OPTION")
        if cursor.accept("WITH REPLACE OPTION"):
            raise not_implemented("WITH REPLACE OPTION")

        def apply() -> None:
            with self._store.lock:
                for user in [self._store.user(name) for name in names]:
                    grants = Grants(self._store.privileges, user.grants.rows())
                    for element in elements:
                        grants.grant(*element, option)
                    self._store.save_user(replace(user, grants=grants))

        grantable = self._store.privileges.grantable
        options = [
            Need(leaf, db or None, tbl or None) for name, db, tbl in elements for leaf in grantable(name, db, tbl)
        ]
        return Plan([], options, apply)

    def _revoke(self, cursor: Cursor, asker: User, database: str) -> Plan:
        cursor.expect("REVOKE")
        option_only = cursor.accept("GRANT OPTION FOR")
        elements = self._elements(cursor, database)
        cursor.expect("FROM")
        names = self._names(cursor)

        def apply() -> None:
            with self._store.lock:
                changed = []
                for user in [self._store.user(name) for name in names]:
                    grants = Grants(self._store.privileges, user.grants.rows())
                    for element in elements:
                        grants.revoke(*element, option_only)
                    # the sender needs the grant option on what is really taken away, no more
                    for leaf, db, table in sorted(user.grants.granted() - grants.granted()):
                        asker.require([Need(leaf, db or None, table or None)], option=True)
                    changed.append(replace(user, grants=grants))
                for user in changed:
                    self._store.save_user(user)

        return Plan([], [], apply)

    def _elements(self, cursor: Cursor, database: str) -> list[tuple[str, str, str]]:
        """``privilege, ... ON scope, ...`` as (privilege, database, table)."""
        elements: list[tuple[str, str, str]] = []
        while True:
            pending = [self._privilege(cursor)]
            while not cursor.accept("ON"):
                if cursor.peek().word in ("TO", "FROM"):
                    if pending != ["ALL"]:
                        raise not_implemented("roles")
                    return [("ALL", "", "")]
                cursor.expect(",")
                pending.append(self._privilege(cursor))
            scope = self._scope(cursor, database, pending)
            elements += [(name, *scope) for name in pending]
            if not cursor.accept(","):
                return elements

    def _privilege(self, cursor: Cursor) -> str:
        words: list[str] = []
        while cursor.peek().kind == "word" and cursor.peek().word not in ("ON", "TO", "FROM"):
            words.append(cursor.next().text)
        if cursor.peek().text == "(":
            raise not_implemented("grants on columns")
        if cursor.peek().kind == "quoted" or not words:
            raise not_implemented("roles")
        return " ".join(words)

    def _scope(self, cursor: Cursor, database: str, names: list[str]) -> tuple[str, str]:
        if cursor.accept("*"):
            if cursor.accept("."):
                cursor.expect("*")
                scope = "", ""
            elif all(
                self._store.privileges.level.get(name) in ("USER_NAME", "GLOBAL", "TABLE_ENGINE") for name in names
            ):
                scope = "", ""
            else:
                scope = database, ""
        else:
            first = cursor.name()
            if not cursor.accept("."):
                scope = database, first
            else:
                scope = first, "" if cursor.accept("*") else cursor.name()
        if cursor.peek().text == "*":
            raise not_implemented("grants on name patterns")
        return scope

    # --- questions ---------------------------------------------------------------------------------------------

    def _checkgrant(self, cursor: Cursor, asker: User, database: str) -> Plan:
        cursor.expect("CHECK GRANT")
        elements = self._elements(cursor, database)
        granted = all(asker.grants.allows(name, db or None, table or None) for name, db, table in elements)
        return Plan([], [], lambda: Answer("result", "UInt8", [int(granted)]))

    def _showgrants(self, cursor: Cursor, asker: User, database: str) -> Plan:
        cursor.expect("SHOW GRANTS")
        names = self._names(cursor) if cursor.accept("FOR") else [asker.name]
        if names == ["CURRENT_USER"]:
            names = [asker.name]

        def apply() -> Answer:
            return Answer("GRANTS", "String", [line for name in names for line in grant_lines(self._store.user(name))])

        return Plan([Need("SHOW USERS")] if names != [asker.name] else [], [], apply)


def grant_lines(user: User) -> list[str]:
    """The lines of SHOW GRANTS."""
    lines = []
    for row in user.grants.rows():
        verb, to = ("REVOKE", "FROM") if row.state == REVOKED else ("GRANT", "TO")
        option = " WITH GRANT OPTION" if row.state == WITH_OPTION else ""
        what, name = ", ".join(row.privileges), quote_if_needed(user.name)
        lines.append(f"{verb} {what} ON {scope_text(row.database, row.table)} {to} {name}{option}")
    return lines
