"""system.users, grants, quotas, processes and others as they are here, put into queries in place of the engine's own.

The engine's tables of these names describe the embedded user, so a query never reads them: each mention becomes a
subquery over rows written out as text. Tables of databases are filtered for users without SHOW, as a server does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from airflow_provider_dpone.local.clickhouse.engine import Engine
from airflow_provider_dpone.local.clickhouse.grants import REVOKED, WITH_OPTION
from airflow_provider_dpone.local.clickhouse.lexer import Token, quote_name, quote_string
from airflow_provider_dpone.local.clickhouse.principals import PrincipalStore, User
from airflow_provider_dpone.local.clickhouse.statements import Statement

if TYPE_CHECKING:
    from airflow_provider_dpone.local.clickhouse.core import Request

Rows = list[dict[str, Any]]
_EMPTY = ("roles", "role_grants", "row_policies", "masking_policies", "current_roles", "enabled_roles")
#: column with the table's name, for tables that hide what the user may not see
_FILTERED = {
    **dict.fromkeys(
        ("parts", "mutations", "data_skipping_indices", "projections", "detached_parts", "merges"), "table"
    ),
    **{"tables": "name", "columns": "table", "constraints": "table", "dictionaries": "name", "view_refreshes": "view"},
    "databases": "",
}
_NO_ALIAS = {
    "WHERE",
    "PREWHERE",
    "GROUP",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "FORMAT",
    "SETTINGS",
    "UNION",
    "EXCEPT",
    "INTERSECT",
}
_NO_ALIAS |= {"JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "ANY", "ALL", "ASOF", "SEMI", "ANTI", "GLOBAL", "ON"}
_NO_ALIAS |= {"USING", "HAVING", "QUALIFY", "WINDOW", "ARRAY", "FINAL", "SAMPLE", "INTO", "FETCH", "PASTE"}


class SystemTables:
    """Rewrites queries so that they see this server's principals and processes."""

    def __init__(
        self, engine: Engine, store: PrincipalStore, server_uuid: str, requests: Callable[[], Iterable[Request]]
    ) -> None:
        self._store = store
        self._requests = requests
        self._server_uuid = server_uuid
        self._started = time.monotonic()
        self._sources: dict[str, Callable[[User], Rows]] = {
            "users": lambda user: [self._user(each) for each in self._users()],
            "grants": lambda user: [row for each in self._users() for row in _grant_rows(each)],
            "settings_profile_elements": lambda user: [row for each in self._users() for row in _elements(each)],
            "settings_profiles": lambda user: [
                {"name": "default", "id": store.users["default"].id, "storage": "users_xml", "num_elements": 0}
            ],
            "user_directories": lambda user: [
                {"name": name, "type": name, "precedence": number + 1, "params": "{}"}
                for number, name in enumerate(("users_xml", "local_directory"))
            ],
            "quotas": lambda user: [self._quota(name) for name in sorted(store.quotas)],
            "quota_limits": lambda user: self._limits(),
            "quotas_usage": lambda user: self._usage(None, user),
            "quota_usage": lambda user: self._usage(user, user),
            "processes": lambda user: [process_row(request) for request in self._requests()],
            **dict.fromkeys(_EMPTY, lambda user: []),
        }
        names = ", ".join(quote_string(name) for name in self._sources)
        self._structure: dict[str, list[tuple[str, str]]] = {}
        where = f"database = 'system' AND table IN ({names}) AND default_kind != 'ALIAS' ORDER BY table, position"
        for row in engine.rows(f"SELECT table, name, type FROM system.columns WHERE {where}"):
            if "." not in row["name"]:
                self._structure.setdefault(row["table"], []).append((row["name"], row["type"]))

    def rewrite(self, statement: Statement, user: User) -> str:
        """The statement's text with every replaced table and function of ours in place."""
        found, text = statement.tokens, statement.text
        pieces: list[str] = []
        done = at = 0
        while at < len(found):
            replacement, used = self._replacement(found, at, user)
            if replacement is not None:
                pieces += [text[done : found[at].start], replacement]
                done = found[at + used - 1].end
            at += used
        return "".join(pieces) + text[done:]

    def _replacement(self, found: list[Token], at: int, user: User) -> tuple[str | None, int]:
        token = found[at]
        if not token.is_name or (at > 0 and found[at - 1].text == "."):
            return None, 1
        following = [each.text for each in found[at + 1 : at + 4]]
        if following[:2] == ["(", ")"]:
            return self._function(token.value, user), 3 if self._function(token.value, user) else 1
        if token.value == "system" and following[:1] == ["."] and found[at + 2].is_name and following[2:3] != ["."]:
            name = found[at + 2].value
            after = found[at + 3] if at + 3 < len(found) else None
            has_alias = after is not None and after.is_name and after.word not in _NO_ALIAS
            alias = "" if has_alias else f" AS {quote_name(name)}"
            if name in self._sources:
                return self.source(name, user) + alias, 3
            condition = self._visible(name, user)
            if condition is not None:
                return f"(SELECT * FROM system.{quote_name(name)} WHERE {condition}){alias}", 3
        return None, 1

    def _function(self, name: str, user: User) -> str | None:
        if name == "serverUUID":
            return f"toUUID({quote_string(self._server_uuid)})"
        if name == "uptime":
            return f"toUInt32({int(time.monotonic() - self._started)})"
        if name.lower() in ("currentuser", "current_user", "user", "session_user", "initialuser", "initial_user"):
            return f"toString({quote_string(user.name)})"
        return None

    def source(self, name: str, user: User) -> str:
        """A subquery over the rows of one of our tables, with the columns and types of the engine's."""
        structure = ", ".join(f"{quote_name(column)} {kind}" for column, kind in self._structure[name])
        with self._store.lock:
            rows = self._sources[name](user)
        data = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        return f"(SELECT * FROM format(JSONEachRow, {quote_string(structure)}, {quote_string(data)}))"

    def _visible(self, name: str, user: User) -> str | None:
        if name not in _FILTERED:
            return None
        scopes = user.grants.visible_tables()
        if scopes is None:
            return None
        column = _FILTERED[name]
        if not column:
            return "name IN (" + ", ".join(quote_string(db) for db in {"system", *(db for db, _ in scopes)}) + ")"
        parts = ["database IN ('system', 'information_schema', 'INFORMATION_SCHEMA')"]
        for db, table in scopes:
            parts.append(f"database = {quote_string(db)}" + (f" AND {column} = {quote_string(table)}" if table else ""))
        return " OR ".join(f"({part})" for part in parts)

    def _users(self) -> list[User]:
        return [self._store.users[name] for name in sorted(self._store.users)]

    @staticmethod
    def _user(user: User) -> dict[str, Any]:
        return {
            "name": user.name,
            "id": user.id,
            "storage": user.storage,
            "auth_type": [user.auth_type],
            "auth_params": ["{}"],
            "valid_until": [] if user.valid_until is None else [user.valid_until],
            "host_ip": user.hosts,
            "default_roles_all": 0,
            "grantees_any": int(user.grantees_any),
            "default_database": user.default_database,
        }

    def _quota(self, name: str) -> dict[str, Any]:
        quota = self._store.quotas[name]
        names = {user.id: user.name for user in self._users()}
        return {
            "name": name,
            "id": quota.id,
            "storage": "local_directory",
            "keys": ["user_name"] if quota.keyed else [],
            "durations": [interval.seconds for interval in quota.intervals],
            "apply_to_all": int(quota.to_all),
            "apply_to_list": [names[each] for each in quota.to if each in names],
            "apply_to_except": [names[each] for each in quota.to_except if each in names],
        }

    def _limits(self) -> Rows:
        return [
            {"quota_name": quota.name, "duration": interval.seconds, "max_queries": interval.max_queries}
            for quota in self._store.quotas.values()
            for interval in quota.intervals
        ]

    def _usage(self, only: User | None, asker: User) -> Rows:
        rows = []
        for quota in self._store.quotas.values():
            for interval in quota.intervals:
                for (quota_id, key, seconds), usage in self._store.usage.items():
                    if quota_id != quota.id or seconds != interval.seconds or (only and not quota.applies_to(only)):
                        continue
                    rows.append(
                        {
                            "quota_name": quota.name,
                            "quota_key": key,
                            "is_current": int(quota.applies_to(asker)),
                            "start_time": usage.start,
                            "end_time": usage.start + seconds,
                            "duration": seconds,
                            "queries": usage.queries,
                            "max_queries": interval.max_queries,
                        }
                    )
        if only:
            for row in rows:
                del row["is_current"]
        return rows


def _grant_rows(user: User) -> Rows:
    return [
        {
            "user_name": user.name,
            "access_type": privilege,
            "database": row.database or None,
            "table": row.table or None,
            "is_partial_revoke": int(row.state == REVOKED),
            "grant_option": int(row.state == WITH_OPTION),
        }
        for row in user.grants.rows()
        for privilege in row.privileges
    ]


def _elements(user: User) -> Rows:
    return [
        {
            "user_name": user.name,
            "index": index,
            "setting_name": element.name,
            "value": element.value,
            "min": element.min,
            "max": element.max,
            "writability": "CONST" if element.const else None,
        }
        for index, element in enumerate(user.settings)
    ]


def process_row(request: Request) -> dict[str, Any]:
    """One running request as system.processes shows it."""
    address = f"::ffff:{request.address}" if ":" not in request.address else request.address
    return {
        "is_initial_query": 1,
        "user": request.user.name,
        "query_id": request.query_id,
        "address": address,
        "port": request.port,
        "initial_user": request.user.name,
        "initial_query_id": request.query_id,
        "initial_address": address,
        "initial_port": request.port,
        "interface": request.interface,
        "client_name": request.client_name,
        "http_method": request.http_method,
        "http_user_agent": request.user_agent,
        "elapsed": time.time() - request.started,
        "is_cancelled": int(request.killed.is_set()),
        "query": request.shown_text,
        "query_kind": request.statement.query_kind,
        "current_database": request.database,
        "Settings": request.settings,
    }
