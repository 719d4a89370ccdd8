"""What must hold around a dedicated database: one-time logins are confined to it, and nobody else can write it.

Seen by the catalogs alone, before admission and again when it matters. A finding names its reason
(``login_database_policy_...``); naming it never weakens the rule.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from airflow_provider_dpone.contracts.enrolment import DatabaseMarker, SchemaEnrolment
from airflow_provider_dpone.engines.mssql import scripts
from airflow_provider_dpone.engines.mssql.control import MssqlControl, MssqlSession
from airflow_provider_dpone.engines.mssql.install import layout, require_version
from airflow_provider_dpone.engines.mssql.place import incarnation_of
from airflow_provider_dpone.engines.sql.policy import marker_of, require_none, require_same_place
from airflow_provider_dpone.errors import DeclarationInvalid

#: How an administrator takes marker and receipts of a database away.
CURE: Final = "drop the objects of schema dpone_gate in it as administrator"
_ADVICE: Final = {
    "database_owner": "the controller must own the database (ALTER AUTHORIZATION ON DATABASE::...)",
    "database_option": "set the option back; a target is a dedicated, durable database",
    "schema_missing": "create the schema with AUTHORIZATION dbo",
    "role_ownership": "every role must belong to dbo (ALTER AUTHORIZATION ON ROLE::... TO dbo)",
    "role_grants": "the bounded role has other rights than it was given (REVOKE them)",
    "membership": "it is in a role that can write (ALTER ROLE ... DROP MEMBER); an administrator named with "
    "--administrator may be in any but db_owner",
    "object_ownership": "it must belong to dbo (ALTER AUTHORIZATION ON ... TO dbo, or TO SCHEMA OWNER)",
    "unmanaged_scope": "a dedicated database holds managed schemas only; move it elsewhere",
    "unsupported_object": "only tables and views may be in a managed schema; drop it or move it elsewhere",
    "assembly": "drop it; code of an assembly is not confined",
    "authentication": "drop it; only users of logins may be in the database, and guest may not connect",
    "ambient_grant": "REVOKE it, or name the user with --administrator",
    "ambient_writer": "it is no administrator of this enrolment; take the right away, or name it with --administrator",
    "gate_owner": "give it back (ALTER AUTHORIZATION ON SCHEMA::dpone_gate TO dpone_gate_owner)",
    "controller": "grant it; without it the controller cannot do its work or see all of it",
    "server_option": "set it back to 0, or drop it",
}
#: Reasons an administrator can accept by name: a matter of the server, which one database cannot change. Every other is
#: fixed: who could write, or what a one-time login could reach, is never accepted.
ACCEPTABLE: Final = ("server_option",)
_NOT_INSTALLED: Final = ("role_ownership", "dpone_writer is missing")


def require_acceptable(accepted: Collection[str]) -> None:
    """Refuse to accept what is fixed.

    :raises DeclarationInvalid: names every finding of the policy that cannot be accepted.
    """
    fixed = sorted(
        one for one in accepted if one.partition(":")[0] in _ADVICE and one.partition(":")[0] not in ACCEPTABLE
    )
    if fixed:
        raise DeclarationInvalid(
            f"these findings cannot be accepted, only put right: {'; '.join(fixed)}", findings=fixed
        )


def read_marker(session: MssqlSession) -> tuple[DatabaseMarker, str] | None:
    """The database's marker and the fingerprint taken at enrolment; None when nothing is installed.

    :raises EnrolledElsewhere: it is altered, or was copied here with another database.
    """
    [(present, database)] = session.query("SELECT OBJECT_ID(N'dpone_gate.marker'), DB_NAME()")
    if present is None:
        return None
    return marker_of(session.query("SELECT document, sha256, layout FROM dpone_gate.marker"), str(database), CURE)


def require_place(control: MssqlControl, session: MssqlSession, enrolment: SchemaEnrolment) -> None:
    """The database is the enrolled incarnation, and its gate is as it was installed, seen now.

    :param session: a fresh one in the database.
    :raises NotEnrolled, EnrolledElsewhere: the marker is missing or another, or the database was created anew.
    :raises TargetChanged: the gate is not what was installed.
    """
    found = read_marker(session)
    require_same_place(enrolment, found, incarnation_of(session, control.params), layout(control, session))


def require_enrolled(control: MssqlControl, session: MssqlSession, enrolment: SchemaEnrolment) -> None:
    """The database and its gate are the enrolled ones, and the policy holds, all seen now.

    :raises NotEnrolled, EnrolledElsewhere, TargetChanged: see :func:`require_place`.
    :raises TargetUnsupported, AmbientWriter: see :func:`require_policy`.
    """
    require_place(control, session, enrolment)
    require_policy(
        session,
        schemas=enrolment.managed_schemas,
        controller=enrolment.controller,
        administrators=enrolment.administrators,
        accepted=enrolment.accepted_features,
        as_controller=True,
        control_schema=control.control_schema,
    )


def require_policy(
    session: MssqlSession,
    *,
    schemas: Sequence[str],
    controller: str,
    administrators: Sequence[str],
    accepted: Sequence[str] = (),
    as_controller: bool,
    control_schema: str,
    first: bool = False,
) -> None:
    """Logins issued here are confined to the database, and nobody but the administrators can write it.

    :param accepted: findings an administrator accepted by name; only an option of the server can be.
    :param control_schema: the schema a ledger in the database is in.
    :param first: nothing is installed yet, so the bounded role is missing.
    :param as_controller: whether the session is the controller's own, whose rights can be asked for.
    :raises AmbientWriter: somebody else can. :raises TargetUnsupported: another finding; ``reasons`` has its name.
    """
    require_version(session)
    named = [scripts.literal(name) for name in schemas]
    words = {
        "{schemas}": ", ".join(named),
        "{schema_rows}": ", ".join(f"({name})" for name in named),
        "{controller}": scripts.literal(controller),
        "{control_schema}": scripts.literal(control_schema),
        "{administrators}": ", ".join(scripts.literal(name) for name in administrators) or "N''",
    }
    found: list[tuple[str, str]] = []
    for file in ("policy.sql", "policy_server.sql"):
        for name, sql in scripts.parts(file).items():
            if name == "version" or (name == "visible" and not as_controller):
                continue
            for word, text in words.items():
                sql = sql.replace(word, text)
            found += [(str(reason), str(what)) for reason, what in session.query(sql)]
    if first:
        found = [one for one in found if one != _NOT_INSTALLED]
    accepted = [one for one in accepted if one.partition(":")[0] in ACCEPTABLE]
    require_none(f"database of {', '.join(schemas)}", sorted(set(found)), _ADVICE, accepted)
