"""Findings about a target database, turned into a refusal: each names its reason and says what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_provider_dpone.contracts.enrolment import DatabaseMarker, SchemaEnrolment
from airflow_provider_dpone.errors import (
    AmbientWriter,
    EnrolledElsewhere,
    NotEnrolled,
    TargetChanged,
    TargetUnsupported,
)


def require_none(
    what: str, found: Sequence[tuple[str, str]], advice: Mapping[str, str], accepted: Sequence[str]
) -> None:
    """Every finding is accepted by name; naming a reason never weakens the rule.

    :param what: the place the findings are about, in words. :param found: reason and object of each finding.
    :raises AmbientWriter: somebody else can write.
    :raises TargetUnsupported: another finding; ``reasons`` has its name.
    """
    findings = [(reason, place) for reason, place in found if f"{reason}:{place}" not in accepted]
    if not findings:
        return
    reasons = sorted({f"login_database_policy_{reason}" for reason, _ in findings})
    words = "; ".join(f"{place}: {advice[reason]} [{reason}]" for reason, place in findings[:10])
    if len(findings) > 10:
        words += f"; and {len(findings) - 10} more"
    kind = AmbientWriter if reasons == ["login_database_policy_ambient_writer"] else TargetUnsupported
    raise kind(f"{what} is not fit for one-time logins: {words}", reasons=reasons)


def marker_of(rows: Sequence[Sequence[str]], database: str, cure: str) -> tuple[DatabaseMarker, str]:
    """The marker of a database and the fingerprint taken when the gate was installed.

    :param rows: document, its digest, the fingerprint. :param cure: how a copied marker is taken away.
    :raises EnrolledElsewhere: it is altered, or was copied here with another database.
    """
    marker = DatabaseMarker.parse(rows[0][0].encode()) if len(rows) == 1 else None
    if marker is None or marker.digest() != rows[0][1]:
        raise EnrolledElsewhere("dpone_gate.marker does not hold exactly one unaltered marker; ask who wrote it")
    if marker.database != database:
        raise EnrolledElsewhere(
            f"database {database} carries the marker of database {marker.database}: it is a copy, or was renamed; "
            f"{cure}, then enrol"
        )
    return marker, str(rows[0][2])


def require_same_place(
    enrolment: SchemaEnrolment, found: tuple[DatabaseMarker, str] | None, service_id: str, layout: str
) -> None:
    """The database and its gate are the enrolled ones.

    :raises NotEnrolled, EnrolledElsewhere: the marker is missing or another.
    :raises TargetChanged: the gate is not what was installed.
    """
    database = enrolment.marker.database
    if found is None:
        raise NotEnrolled(f"database {database} carries no marker any more; enrol it again")
    if found[0] != enrolment.marker or service_id != enrolment.marker.service_id:
        raise EnrolledElsewhere(
            f"database {database} carries the marker of ledger {found[0].ledger_service_id}, or lies on another server "
            "than the enrolled one"
        )
    if layout != enrolment.gate_layout:
        raise TargetChanged(
            f"the login gate of database {database} is not what was installed: a function, trigger, table or right of "
            "schema dpone_gate was altered. Look at it, then run `dpone-airflow enroll` again"
        )


def require_our_marker(
    marker: DatabaseMarker, ledger_service_id: str, service_id: str, layouts: tuple[str, str], cure: str
) -> None:
    """A marker found at enrolment is of this ledger and server, and the gate is as it was installed.

    :param layouts: the fingerprint now, and as it was installed. :param cure: how the gate is taken away.
    :raises EnrolledElsewhere: it is another ledger's or server's. :raises TargetChanged: the gate was altered.
    """
    if marker.ledger_service_id != ledger_service_id or marker.service_id != service_id:
        raise EnrolledElsewhere(
            f"database {marker.database} carries the marker of ledger {marker.ledger_service_id} on server "
            f"{marker.service_id}; one database has one ledger"
        )
    if layouts[0] != layouts[1]:
        raise TargetChanged(
            f"the login gate of database {marker.database} is not what was installed; put it right, or {cure} "
            "once no attempt is open, and enrol again"
        )
