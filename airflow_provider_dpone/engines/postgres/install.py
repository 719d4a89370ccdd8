"""What an administrator installs in a target database: the login gate, the receipts, and the controller's rights there.

The runtime never installs; it compares what is there with the fingerprint taken when it was installed.
"""

from __future__ import annotations

from typing import Final

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.engines.postgres.control import PostgresSession
from airflow_provider_dpone.engines.postgres.session import literal, quoted, statement
from airflow_provider_dpone.errors import TargetUnsupported

GATE_OWNER: Final = "dpone_gate_owner"
#: The first version with login event triggers.
OLDEST: Final = 170000


def render_composition_postgres_login_gate(*, database: str, controller: str) -> str:
    """The SQL that installs the gate in the database it is run in, by a superuser, as one transaction.

    :param database: the target database; the controller may let its workers connect to it.
    :param controller: the login that issues and closes one-time logins; no superuser needed, CREATEROLE is.
    """
    return ";\n".join(["BEGIN", *install_statements(database, controller), "COMMIT;\n"])


def install_statements(database: str, controller: str) -> list[str]:
    """The same, statement by statement, without its transaction."""
    who, place = quoted(controller), quoted(database)
    return [
        "DO $do$ BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'dpone_gate_owner') THEN "
        "CREATE ROLE dpone_gate_owner NOLOGIN; END IF; EXCEPTION WHEN duplicate_object OR unique_violation THEN "
        "NULL; END $do$",  # the role is of the whole server: another database may be enrolled at the same time
        f"CREATE SCHEMA dpone_gate AUTHORIZATION {GATE_OWNER}",
        f"SET LOCAL ROLE {GATE_OWNER}",
        statement("install.sql").rstrip().rstrip(";"),
        "GRANT USAGE ON SCHEMA dpone_gate TO PUBLIC",  # its two functions ask who calls
        f"GRANT SELECT ON dpone_gate.marker, dpone_gate.gate, dpone_gate.receipt TO {who}",
        f"GRANT INSERT, UPDATE (state) ON dpone_gate.gate TO {who}",
        "RESET ROLE",
        f"GRANT CONNECT ON DATABASE {place} TO {who} WITH GRANT OPTION",
        "CREATE EVENT TRIGGER dpone_gate_login ON login EXECUTE FUNCTION dpone_gate.login()",
        "ALTER EVENT TRIGGER dpone_gate_login ENABLE ALWAYS",
    ]


def require_version(session: PostgresSession) -> None:
    """:raises TargetUnsupported: the server has no login event triggers."""
    [(version,)] = session.query("SELECT pg_catalog.current_setting('server_version_num')::int")
    if version < OLDEST:
        raise TargetUnsupported(
            "the target needs PostgreSQL 17 or newer: older servers cannot refuse a login when it happens",
            server_version=version,
        )


def layout(session: PostgresSession) -> str:
    """Fingerprint of everything installed, the trigger's state included; of nothing when nothing is."""
    [(facts,)] = session.query(statement("gate_layout.sql"))
    return digest_of((facts or "").encode())


def write_marker_statement(document: str, sha256: str, fingerprint: str) -> str:
    """The one row of the marker."""
    values = ", ".join(literal(value) for value in (document, sha256, fingerprint))
    return f"INSERT INTO dpone_gate.marker (document, sha256, layout) VALUES ({values})"  # noqa: S608
