"""Enrolment of a dedicated SQL Server database, by an administrator; the runtime only compares.

The login gate of the instance is there already (``render_composition_mssql_login_gate``). The first enrolment of a
database installs marker, receipts and the bounded role.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from airflow_provider_dpone.contracts.enrolment import DatabaseMarker, SchemaEnrolment
from airflow_provider_dpone.contracts.identity import guard_id
from airflow_provider_dpone.contracts.states import Connector, Family
from airflow_provider_dpone.engines.mssql import scripts
from airflow_provider_dpone.engines.mssql.control import MssqlControl, MssqlSession
from airflow_provider_dpone.engines.mssql.install import layout, require_version, target_statements, writer_statements
from airflow_provider_dpone.engines.mssql.place import place
from airflow_provider_dpone.engines.mssql.policy import CURE, read_marker, require_acceptable, require_policy
from airflow_provider_dpone.engines.sql.policy import require_our_marker
from airflow_provider_dpone.errors import TargetUnsupported
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.transaction import Ledger


def enrol_database(
    control: MssqlControl,
    ledger: Ledger,
    *,
    schemas: Collection[str],
    controller: str,
    administrators: Collection[str],
    accepted_features: Collection[str] = (),
    accepted_by: str,
    dry_run: bool = False,
) -> tuple[str, SchemaEnrolment]:
    """Accept a dedicated database as it is now (again); return the guard's id and the enrolment.

    :param control: sessions of a sysadmin on the target database, with the database that holds the gates.
    :param ledger: the ledger, on a connection of its owner.
    :param schemas: every managed schema of the database; logins issued there can be confined to no less than all.
    :param controller: the login of the Airflow connection that tasks use.
    :raises DeclarationInvalid: what was accepted cannot be.
    :raises EnrolledElsewhere: the database belongs to another ledger.
    :raises TargetUnsupported, AmbientWriter: logins would not be confined, or somebody else can write the database.
    :raises TargetChanged: the installed gate was altered.
    """
    require_acceptable(accepted_features)
    ledger.read(lambda connection: None)
    managed = tuple(sorted(set(schemas)))
    with control.gates() as session:
        require_version(session)
        if session.query("SELECT OBJECT_ID(N'dpone_gate.gate')") == [(None,)]:
            raise TargetUnsupported(
                f"database {control.control_database} holds no login gate; run the script of `dpone-airflow "
                "render-login-gate` there as sysadmin first"
            )
    incarnation, database_id, _ = place(control.params)
    with control.fresh() as session:
        found = read_marker(session)
        require_policy(
            session,
            schemas=managed,
            controller=controller,
            administrators=sorted({*administrators}),
            accepted=sorted({*accepted_features}),
            as_controller=False,
            control_schema=control.control_schema,
            first=found is None,
        )
        if found is not None:
            marker, fingerprint = found
            now = layout(control, session)
            require_our_marker(marker, str(ledger.service_id), incarnation, (now, fingerprint), CURE)
            if not dry_run:
                session.script(writer_statements(managed))  # for schemas that are managed from now on
        else:
            marker = DatabaseMarker(
                family=Family(ledger.family),
                ledger_service_id=str(ledger.service_id),
                connector=Connector.MSSQL.value,
                service_id=incarnation,
                database_id=database_id,
                database=control.params.database,
            )
            fingerprint = "sha256:" + "0" * 64 if dry_run else _install(session, control, marker, managed)
    enrolment = SchemaEnrolment(
        marker=marker,
        managed_schemas=managed,
        owner="dbo",
        controller=controller,
        gate_layout=fingerprint,
        administrators=tuple(sorted({*administrators})),
        accepted_features=tuple(sorted(set(accepted_features))),
        accepted_by=accepted_by,
        accepted_at=datetime.now(UTC).isoformat(timespec="microseconds"),
    )
    if dry_run:
        return guard_id(marker.connector, marker.service_id, enrolment.guard_subject()), enrolment
    return CompositionActivationStore(ledger).enrol(enrolment), enrolment


def _install(session: MssqlSession, control: MssqlControl, marker: DatabaseMarker, schemas: tuple[str, ...]) -> str:
    """Everything of the target, then the marker with the fingerprint of it all."""
    session.script(target_statements(control.control_database, schemas))
    fingerprint = layout(control, session)
    values = ", ".join(scripts.literal(value) for value in (marker.wire().decode(), marker.digest(), fingerprint))
    session.query(f"INSERT INTO dpone_gate.marker (one, document, sha256, layout) VALUES (1, {values})")  # noqa: S608
    return fingerprint
