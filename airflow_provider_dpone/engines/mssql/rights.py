"""What a one-time login of SQL Server may do, and how it is issued and closed."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_dpone.engines.mssql.scripts import quoted
from airflow_provider_dpone.engines.sql.rights import Grant, WorkerRights


@dataclass(frozen=True)
class MssqlGatePolicy:
    """How logins are closed.

    :ivar quiet_timeout: seconds to wait for sessions and transactions to end.
    :ivar lock_timeout: milliseconds one closing step waits for a lock that a login or a worker holds.
    """

    quiet_timeout: float = 60.0
    lock_timeout: int = 1000


def securable(grant: Grant) -> str:
    """The object as GRANT names it."""
    if grant.name is None:
        return f"SCHEMA::{quoted(grant.schema)}"
    return f"OBJECT::{quoted(grant.schema, grant.name)}"


def load_rights(schema: str, target: str, staging: str, *, may_truncate: bool) -> WorkerRights:
    """What a load needs: fill its staging table, and see and replace the rows of its target.

    :param may_truncate: the author lets readers wait, so the target is emptied at once, which takes ALTER on it.
    """
    more = ("ALTER",) if may_truncate else ()
    return WorkerRights(
        grants=(
            Grant(("INSERT", "SELECT"), schema, staging),
            Grant((*more, "DELETE", "INSERT", "SELECT", "VIEW DEFINITION"), schema, target),
        )
    )
