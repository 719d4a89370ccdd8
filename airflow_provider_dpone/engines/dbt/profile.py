"""The profile dbt runs with: where the target is, and the names of the variables its login will be in. No secret.

Written as JSON, which is YAML.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_dpone.engines.dbt.child import PASSWORD, USER
from airflow_provider_dpone.errors import DeclarationInvalid

PROFILE: Final = "dpone"
TARGET: Final = "attempt"
#: Set by us alone: what decides who connects, where, and how often a statement is sent.
_FIXED: Final = frozenset(
    {"type", "host", "server", "port", "dbname", "database", "schema", "user", "UID", "username", "pass", "password"}
    | {"PWD", "role", "retries", "threads", "authentication", "windows_login", "trusted_connection", "access_token"}
    | {"xact_abort", "schema_authorization", "schema_auth"}
)


@dataclass(frozen=True)
class DbtTarget:
    """Where a run goes: adapter (``postgres`` or ``sqlserver``), server, database and managed schema."""

    adapter: str
    host: str
    port: int
    database: str
    schema: str
    options: tuple[tuple[str, Any], ...] = ()
    """Further settings of the adapter, such as ``sslmode``, ``driver``, ``encrypt`` or ``query_timeout``."""

    def profiles(self, threads: int) -> str:
        """The text of ``profiles.yml``.

        :raises DeclarationInvalid: an option would override what is fixed.
        """
        clash = sorted(_FIXED & {name for name, _ in self.options})
        if clash:
            raise DeclarationInvalid(f"{', '.join(clash)} cannot be set for a dbt target; take it out")
        output: dict[str, Any] = {
            **dict(self.options),
            "schema": self.schema,
            "user": f"{{{{ env_var('{USER}') }}}}",
            "password": f"{{{{ env_var('{PASSWORD}') }}}}",
            "threads": threads,
            "retries": 1,
        }
        if self.adapter == "postgres":
            output |= {"type": "postgres", "host": self.host, "port": self.port, "dbname": self.database}
        elif self.adapter == "sqlserver":
            output |= {"type": "sqlserver", "server": self.host, "port": self.port, "database": self.database}
            output |= {"authentication": "sql", "xact_abort": True}
            output.setdefault("driver", "ODBC Driver 18 for SQL Server")
        else:
            raise DeclarationInvalid(f"no dbt adapter {self.adapter!r} here; it is postgres or sqlserver")
        return json.dumps({PROFILE: {"target": TARGET, "outputs": {TARGET: output}}}, indent=2, sort_keys=True)
