"""Enrolment of a managed schema of a PostgreSQL database, by an administrator; the runtime only compares.

The first enrolment in a database installs the login gate and the marker, which names the one ledger that may own it.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import UTC, datetime

from airflow_provider_dpone.contracts.enrolment import DatabaseMarker, SchemaEnrolment
from airflow_provider_dpone.contracts.identity import guard_id
from airflow_provider_dpone.contracts.states import Connector, Family
from airflow_provider_dpone.engines.postgres.control import PostgresControl, PostgresSession
from airflow_provider_dpone.engines.postgres.install import (
    install_statements,
    layout,
    require_version,
    write_marker_statement,
)
from airflow_provider_dpone.engines.postgres.policy import CURE, read_marker, require_policy, service_id
from airflow_provider_dpone.engines.postgres.session import quoted
from airflow_provider_dpone.engines.sql.policy import require_our_marker
from airflow_provider_dpone.errors import TargetUnsupported
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.transaction import Ledger


def enrol_schema(
    control: PostgresControl,
    ledger: Ledger,
    *,
    schema: str,
    controller: str,
    administrators: Collection[str],
    accepted_features: Collection[str] = (),
    accepted_by: str,
    dry_run: bool = False,
) -> tuple[str, SchemaEnrolment]:
    """Accept a schema as it is now (again); return the guard's id and the enrolment.

    :param control: sessions of a superuser on the target database (event triggers need one).
    :param ledger: the ledger, on a connection of its owner.
    :param controller: the login of the Airflow connection that tasks use.
    :raises EnrolledElsewhere: the database belongs to another ledger.
    :raises TargetUnsupported, AmbientWriter: logins would not be confined, or somebody else can write the schema.
    :raises TargetChanged: the installed gate was altered.
    """
    ledger.read(lambda connection: None)
    with control.fresh() as session:
        require_version(session)
        owner = _owner(session, schema)
        if not session.query("SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %(name)s", {"name": controller}):
            raise TargetUnsupported(f"there is no role {controller!r}; create the controller's login first")
        session.query("BEGIN")
        session.query(f"GRANT {quoted(owner)} TO {quoted(controller)} WITH ADMIN TRUE, INHERIT TRUE, SET TRUE")
        found = read_marker(session)
        if found is None:
            marker, fingerprint = _install(session, ledger, controller)
        else:
            marker, fingerprint = found
            require_our_marker(
                marker, str(ledger.service_id), service_id(session), (layout(session), fingerprint), CURE
            )
        administrators = sorted({*administrators})
        require_policy(
            session,
            schema=schema,
            owner=owner,
            controller=controller,
            administrators=administrators,
            accepted=sorted(accepted_features),
        )
        session.query("ROLLBACK" if dry_run else "COMMIT")
    enrolment = SchemaEnrolment(
        marker=marker,
        managed_schemas=(schema,),
        owner=owner,
        controller=controller,
        gate_layout=fingerprint,
        administrators=tuple(administrators),
        accepted_features=tuple(sorted(set(accepted_features))),
        accepted_by=accepted_by,
        accepted_at=datetime.now(UTC).isoformat(timespec="microseconds"),
    )
    if dry_run:
        return guard_id(marker.connector, marker.service_id, enrolment.guard_subject()), enrolment
    return CompositionActivationStore(ledger).enrol(enrolment), enrolment


def open_databases(control: PostgresControl) -> list[str]:
    """Other databases anybody may connect to, a worker included; it has no rights there, but this says where."""
    rows = control.query(
        "SELECT d.datname FROM pg_catalog.pg_database AS d WHERE d.datallowconn "
        "AND d.datname <> pg_catalog.current_database() "
        "AND pg_catalog.has_database_privilege('public', d.oid, 'CONNECT') ORDER BY 1"
    )
    return [str(name) for (name,) in rows]


def _owner(session: PostgresSession, schema: str) -> str:
    rows = session.query(
        "SELECT r.rolname FROM pg_catalog.pg_namespace AS n JOIN pg_catalog.pg_roles AS r ON r.oid = n.nspowner "
        "WHERE n.nspname = %(schema)s",
        {"schema": schema},
    )
    if not rows:
        raise TargetUnsupported(
            f"there is no schema {schema}; create a role without login for it and the schema: CREATE ROLE ... NOLOGIN; "
            f"CREATE SCHEMA {quoted(schema)} AUTHORIZATION ..."
        )
    return str(rows[0][0])


def _install(session: PostgresSession, ledger: Ledger, controller: str) -> tuple[DatabaseMarker, str]:
    [(database,)] = session.query("SELECT pg_catalog.current_database()")
    marker = DatabaseMarker(
        family=Family(ledger.family),
        ledger_service_id=str(ledger.service_id),
        connector=Connector.POSTGRES.value,
        service_id=service_id(session),
        database_id=str(uuid.uuid4()),
        database=database,
    )
    for text in install_statements(database, controller):
        session.query(text)
    fingerprint = layout(session)
    session.query(write_marker_statement(marker.wire().decode(), marker.digest(), fingerprint))
    return marker, fingerprint
