"""Enrolment of a ClickHouse target: the database's marker, the accepted design, and the same looked at again.

An administrator enrols; the runtime only compares. The marker is one row in a small table of the target database and
names the one ledger that may own it, so that two ledgers can never own one database.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.enrolment import MARKER_TABLE, DatabaseMarker, TargetEnrolment
from airflow_provider_dpone.contracts.identity import guard_id
from airflow_provider_dpone.contracts.ports import ClickHouseControl
from airflow_provider_dpone.contracts.states import Connector, Family
from airflow_provider_dpone.engines.clickhouse.catalog import CatalogView, TableFacts, read_catalog, read_tables
from airflow_provider_dpone.engines.clickhouse.design import render_create
from airflow_provider_dpone.engines.clickhouse.quoting import identifier, literal, table
from airflow_provider_dpone.errors import (
    EnrolledElsewhere,
    NotEnrolled,
    ServerRefused,
    TableNotKept,
    TargetChanged,
    TargetUnsupported,
)
from airflow_provider_dpone.ledger.activations import CompositionActivationStore, Guard
from airflow_provider_dpone.ledger.transaction import Ledger

_UNKNOWN_TABLE = (60, 81)


def read_marker(control: ClickHouseControl, database: str) -> DatabaseMarker | None:
    """The database's marker; None when there is none.

    :raises EnrolledElsewhere: the marker table does not hold exactly one of our documents.
    """
    try:
        rows = control.query(f"SELECT document, toString(sha256) FROM {table(database, MARKER_TABLE)}")  # noqa: S608
    except ServerRefused as error:
        if error.details.get("server_code") in _UNKNOWN_TABLE:
            return None
        raise
    if len(rows) != 1 or digest_of(str(rows[0][0]).encode()) != rows[0][1]:
        raise EnrolledElsewhere(
            f"{database}.{MARKER_TABLE} does not hold exactly one unaltered marker; ask who wrote it"
        )
    return DatabaseMarker.parse(str(rows[0][0]).encode())


def require_marker(control: ClickHouseControl, enrolment: TargetEnrolment) -> None:
    """The database still carries exactly the marker of the enrolment.

    :raises NotEnrolled: it carries none. :raises EnrolledElsewhere: it carries another.
    """
    database = enrolment.marker.database
    found = read_marker(control, database)
    if found is None:
        raise NotEnrolled(f"database {database} carries no marker any more; enrol it again")
    if found != enrolment.marker:
        raise EnrolledElsewhere(
            f"database {database} carries the marker of ledger {found.ledger_service_id}; one database has one ledger"
        )


def require_as_enrolled(view: CatalogView, guard: Guard, *, generation: str | None = None) -> None:
    """What the catalog shows is what was accepted: same database, design and table, nothing new attached.

    :raises TargetChanged: another table or design under the name. :raises TargetUnsupported, AmbientWriter: see there.
    """
    enrolment = guard.table
    where = f"{enrolment.marker.database}.{enrolment.target_table}"
    if view.start.service_id != enrolment.marker.service_id or view.database_uuid != enrolment.marker.database_id:
        raise TargetChanged(f"{where} lies on another server or in another database than the enrolled one")
    view.require_supported(enrolment.accepted_features)
    facts = view.table(enrolment.target_table)
    if facts.uuid != guard.target_uuid:
        raise TargetChanged(
            f"{where} is another table ({facts.uuid}) than the one last published or enrolled ({guard.target_uuid}); "
            "somebody replaced it. Look at it, then run `dpone-airflow enroll` again to accept it",
            seen=facts.uuid,
            expected=guard.target_uuid,
        )
    for name in (enrolment.target_table, *([generation] if generation else [])):
        if view.table(name).design != enrolment.design:
            raise TargetChanged(
                f"the design of {enrolment.marker.database}.{name} is not the accepted one; "
                "run `dpone-airflow enroll` again to accept a new design of the target"
            )


def require_target(control: ClickHouseControl, guard: Guard, *, generation: str | None = None) -> None:
    """The target is as enrolled, the generation of its design, and nothing new is attached, seen now.

    :raises Refused: it is not; nothing was changed.
    """
    enrolment = guard.table
    names = [enrolment.target_table, *([generation] if generation else [])]
    with control.fresh() as fresh:
        require_marker(fresh, enrolment)
        view = read_catalog(fresh, enrolment.marker.database, names, administrators=enrolment.administrators)
    require_as_enrolled(view, guard, generation=generation)


def make_generation(control: ClickHouseControl, guard: Guard, generation: str) -> None:
    """Make an empty table in the target's design, and see both as they should be.

    A server without room on its disk says yes and keeps an empty definition, with which it would not start again
    (ClickHouse 26.9, tried). Such a table is dropped at once: no login for it exists.

    :raises TableNotKept: the table is not as it was told; it was dropped. :raises Refused: see :func:`require_target`.
    """
    database = guard.table.marker.database
    control.command(render_create(database, generation, guard.table.design))
    try:
        require_target(control, guard, generation=generation)
    except (TargetUnsupported, TargetChanged) as refusal:
        with control.fresh() as fresh:
            kept = read_tables(fresh, database, [generation]).tables.get(generation)
        if kept is not None and kept.design == guard.table.design:
            raise
        control.command(f"DROP TABLE IF EXISTS {table(database, generation)} SYNC")
        raise TableNotKept(
            f"ClickHouse said it made {database}.{generation} but does not show the design it was given; dropped "
            "again. Its disk may be full: make room, then run the task again"
        ) from refusal


def generation_facts(control: ClickHouseControl, guard: Guard, generation: str) -> TableFacts:
    """The generation as the catalog shows it now beside the target as enrolled; what surrounds them is not read.

    :raises Refused: either is otherwise.
    """
    enrolment = guard.table
    view = read_tables(control, enrolment.marker.database, [enrolment.target_table, generation])
    require_as_enrolled(view, guard, generation=generation)
    return view.table(generation)


def enrol(
    control: ClickHouseControl,
    ledger: Ledger,
    *,
    database: str,
    target_table: str,
    administrators: Collection[str],
    accepted_features: Collection[str] = (),
    accepted_by: str,
    dry_run: bool = False,
) -> tuple[str, TargetEnrolment]:
    """Accept a target as it is now (again), as administrator; return the guard's id and the enrolment.

    :param control: a session of an administrator of the target server.
    :param ledger: the ledger, on a connection of its owner.
    :param dry_run: look at everything and write nothing.
    :raises EnrolledElsewhere: the database belongs to another ledger.
    :raises TargetUnsupported, AmbientWriter: it cannot be swapped exactly, or somebody else can write it.
    """
    if target_table.startswith("dpone_"):
        raise TargetUnsupported(
            f"{database}.{target_table}: names that begin with dpone_ are reserved for our own tables"
        )
    ledger.read(lambda connection: None)
    view = read_catalog(control, database, [target_table], administrators=administrators)
    if target_table not in view.tables:
        raise TargetUnsupported(
            f"table {database}.{target_table} does not exist; create it, then enrol it "
            "(`dpone-airflow enroll --print-ddl` suggests a statement)"
        )
    view.require_supported(accepted_features)
    facts = view.table(target_table)
    if view.database_uuid is None or facts.design is None:
        raise TargetUnsupported(f"{database}.{target_table} cannot be identified or its design cannot be read")
    marker = DatabaseMarker(
        family=Family(ledger.family),
        ledger_service_id=str(ledger.service_id),
        connector=Connector.CLICKHOUSE.value,
        service_id=view.start.service_id,
        database_id=view.database_uuid,
        database=database,
    )
    found = read_marker(control, database)
    if found is None and not dry_run:
        _write_marker(control, marker)
        found = read_marker(control, database)
    if found != marker and not (found is None and dry_run):
        owner = found.ledger_service_id if found else "nobody"
        raise EnrolledElsewhere(
            f"database {database} carries the marker of ledger {owner}; one database has one ledger"
        )
    enrolment = TargetEnrolment(
        marker=marker,
        target_table=target_table,
        target_uuid=facts.uuid,
        design=facts.design,
        administrators=tuple(sorted(set(administrators))),
        accepted_features=tuple(sorted(set(accepted_features))),
        accepted_by=accepted_by,
        accepted_at=datetime.now(UTC).isoformat(timespec="microseconds"),
    )
    if dry_run:
        return guard_id(marker.connector, marker.service_id, enrolment.guard_subject()), enrolment
    return CompositionActivationStore(ledger).enrol(enrolment), enrolment


def _write_marker(control: ClickHouseControl, marker: DatabaseMarker) -> None:
    name = f"{identifier(marker.database)}.{identifier(MARKER_TABLE)}"
    document = marker.wire().decode()
    control.command(f"CREATE TABLE {name} (document String, sha256 String) ENGINE = MergeTree ORDER BY tuple()")
    control.command(f"INSERT INTO {name} SELECT {literal(document)}, {literal(marker.digest())}")
