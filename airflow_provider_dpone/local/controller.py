"""The rights of the user that issues and closes one-time users on ClickHouse; the same on a real server."""

from __future__ import annotations

_GLOBAL = (
    "CREATE USER, ALTER USER, DROP USER, CREATE QUOTA, ALTER QUOTA, DROP QUOTA",
    "SHOW, SHOW USERS, SHOW ROLES, SHOW ROW POLICIES, SHOW SETTINGS PROFILES, SHOW QUOTAS, SHOW MASKING POLICIES",
    "KILL QUERY, SYSTEM RELOAD USERS, SYSTEM FLUSH LOGS",
)


def controller_grants(user: str, scope: str) -> list[str]:
    """GRANT statements for a controller of ``scope``, such as ``mart.*`` (both already quoted).

    ALTER USER comes with what a server asks for it beside CREATE USER; no right to change tables in place is given.
    """
    return [
        *(f"GRANT {privileges} ON *.* TO {user}" for privileges in _GLOBAL),
        f"GRANT SELECT ON system.* TO {user}",
        f"GRANT SELECT, INSERT, CREATE TABLE, DROP TABLE ON {scope} TO {user} WITH GRANT OPTION",
    ]
