"""What must hold around a managed schema: one-time logins are confined to it, and nobody else can write it.

Seen by the catalog alone, before admission and again when it matters. A finding names its reason
(``login_database_policy_...``); naming it never weakens the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from airflow_provider_dpone.contracts.enrolment import DatabaseMarker, SchemaEnrolment
from airflow_provider_dpone.engines.postgres.control import PostgresSession
from airflow_provider_dpone.engines.postgres.install import layout
from airflow_provider_dpone.engines.postgres.session import statement
from airflow_provider_dpone.engines.sql.policy import marker_of, require_none, require_same_place

#: How an administrator takes a gate away.
CURE: Final = "drop schema dpone_gate and its event trigger there as administrator"
#: What to do about each finding of ``policy.sql``.
_ADVICE: Final = {
    "schema_missing": "the schema does not exist; create it with AUTHORIZATION of a role of its own",
    "schema_owner": "the schema belongs to another role than the accepted one",
    "owner_role": "the owner of the schema must be a plain role that cannot log in",
    "owner_member_of": "the owner of the schema is a member of a role, whose rights a worker would have as well",
    "owner_elsewhere": "the owner of the schema owns or may use something outside of it, and so could a worker",
    "foreign_owner": "everything in the schema must belong to its owner (ALTER ... OWNER TO)",
    "public_connect": "anybody may connect, so a closed login could (REVOKE CONNECT ON DATABASE ... FROM PUBLIC)",
    "public_create": "anybody may create there, and so could a worker (REVOKE CREATE ... FROM PUBLIC)",
    "public_write": "anybody may write there, and so could a worker",
    "definer_function": "anybody may run it with its owner's rights (REVOKE EXECUTE ... FROM PUBLIC)",
    "untrusted_language": "anybody may write functions in it",
    "controller": "the controller cannot do its work",
    "ambient_writer": "it is no administrator of this enrolment; take the right away, or name it with --administrator",
}


def read_marker(session: PostgresSession) -> tuple[DatabaseMarker, str] | None:
    """The database's marker and the fingerprint taken when the gate was installed; None when nothing is installed.

    :raises EnrolledElsewhere: it is altered, or was copied here with another database.
    """
    [(present, database)] = session.query(
        "SELECT pg_catalog.to_regclass('dpone_gate.marker') IS NOT NULL, pg_catalog.current_database()"
    )
    if not present:
        return None
    return marker_of(session.query("SELECT document, sha256, layout FROM dpone_gate.marker"), database, CURE)


def service_id(session: PostgresSession) -> str:
    """The server's own identity."""
    [(found,)] = session.query("SELECT system_identifier::text FROM pg_catalog.pg_control_system()")
    return str(found)


def require_place(session: PostgresSession, enrolment: SchemaEnrolment) -> None:
    """The database and its gate are the enrolled ones, seen now.

    :raises NotEnrolled, EnrolledElsewhere: the marker is missing or another.
    :raises TargetChanged: the gate is not what was installed.
    """
    require_same_place(enrolment, read_marker(session), service_id(session), layout(session))


def require_enrolled(session: PostgresSession, enrolment: SchemaEnrolment) -> None:
    """The database and its gate are the enrolled ones, and the policy holds, all seen now.

    :raises NotEnrolled, EnrolledElsewhere, TargetChanged: see :func:`require_place`.
    :raises TargetUnsupported, AmbientWriter: see :func:`require_policy`.
    """
    require_place(session, enrolment)
    require_policy(
        session,
        schema=enrolment.managed_schemas[0],
        owner=enrolment.owner,
        controller=enrolment.controller,
        administrators=enrolment.administrators,
        accepted=enrolment.accepted_features,
    )


def require_policy(
    session: PostgresSession,
    *,
    schema: str,
    owner: str,
    controller: str,
    administrators: Sequence[str],
    accepted: Sequence[str] = (),
) -> None:
    """Logins issued here are confined to the schema, and nobody but the administrators can write it.

    :raises AmbientWriter: somebody else can. :raises TargetUnsupported: another finding; ``reasons`` has its name.
    """
    rows = session.query(
        statement("policy.sql"),
        {"schema": schema, "owner": owner, "controller": controller, "administrators": list(administrators)},
    )
    require_none(f"schema {schema}", [(str(reason), str(what)) for reason, what in rows], _ADVICE, accepted)
