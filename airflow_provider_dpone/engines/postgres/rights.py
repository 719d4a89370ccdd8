"""What a one-time login of PostgreSQL may do, and how it is issued and closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from airflow_provider_dpone.engines.postgres.session import quoted
from airflow_provider_dpone.engines.sql.rights import Grant, WorkerRights
from airflow_provider_dpone.waiting import STATEMENT

#: The session settings every issued login starts with.
_SETTINGS: Final = {
    "search_path": "",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",
    "statement_timeout": "0",
    "default_transaction_isolation": "read committed",
}


def securable(grant: Grant) -> str:
    """The object as GRANT names it."""
    if grant.name is None:
        return f"SCHEMA {quoted(grant.schema)}"
    return f"TABLE {quoted(grant.schema, grant.name)}"


@dataclass(frozen=True)
class GatePolicy:
    """How logins are issued and closed.

    :ivar lifetime: seconds of VALID UNTIL; a second line of defence, never evidence.
    :ivar quiet_timeout: seconds to wait for sessions to end after they were told to.
    :ivar lock_timeout: milliseconds one closing step waits for a lock that a login or a worker holds.
    :ivar connections: sessions a worker may have at once.
    """

    lifetime: float = 24 * 3600.0
    quiet_timeout: float = 60.0
    lock_timeout: int = 300
    connections: int = 8

    def limit(self, rights: WorkerRights) -> int:
        """Sessions an issued login may have at once."""
        return rights.connections or self.connections

    def settings(self, rights: WorkerRights) -> dict[str, str]:
        """The session settings of an issued login."""
        return {**_SETTINGS, **rights.settings}


def load_rights(schema: str, target: str, staging: str) -> WorkerRights:
    """What a load needs: fill its staging table, and replace the rows of its target."""
    return WorkerRights(
        grants=(
            Grant(("USAGE",), schema),
            Grant(("INSERT", "SELECT"), schema, staging),
            Grant(("DELETE", "INSERT", "SELECT"), schema, target),
        ),
        settings={"statement_timeout": str(1000 * STATEMENT)},
    )


def owner_rights(schema: str, owner: str, settings: dict[str, str] | None = None) -> WorkerRights:
    """What a dbt project needs: make, change and drop relations of the managed schema, and nothing elsewhere."""
    return WorkerRights(grants=(Grant(("CREATE", "USAGE"), schema),), member_of=(owner,), settings=dict(settings or {}))
