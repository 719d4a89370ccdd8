"""Small valid documents for tests: an enrolled guard, an active release and an attempt on it."""

from __future__ import annotations

import hashlib
import secrets
import time
import uuid
from dataclasses import dataclass

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.enrolment import ColumnDesign, DatabaseMarker, TableDesign, TargetEnrolment
from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity, TaskCoordinates
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.proofs import GateClosure, Outcome, QuiescenceObservation
from airflow_provider_dpone.contracts.publication import (
    Content,
    GenerationRecord,
    IssuedPrincipal,
    SnapshotIntent,
    SnapshotTarget,
    SourceSnapshotRef,
)
from airflow_provider_dpone.contracts.receipts import RetentionReceipt
from airflow_provider_dpone.contracts.release import (
    ActivationRequest,
    Deployment,
    PhysicalObservation,
    PhysicalResource,
    Release,
    WorkloadAdmission,
    WorkloadDeclaration,
)
from airflow_provider_dpone.contracts.states import ActivationState, AttemptState, Connector, Family
from airflow_provider_dpone.ledger.activations import CompositionActivationStore, StoredActivation
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore, StoredAttempt
from airflow_provider_dpone.ledger.schema import EvidenceKind
from airflow_provider_dpone.ledger.transaction import Ledger

NOW = "2026-01-01T00:00:00Z"
SERVICE = "00000000-0000-4000-8000-000000000001"
CELL = "mssql_clickhouse_full_refresh"
ALL_STATES = tuple(ActivationState)
ROW_SUM = hashlib.sha256(b"content").hexdigest()


def new_uuid() -> str:
    return str(uuid.uuid4())


def instance_id(nanoseconds: int | None = None) -> str:
    """UUID of a task instance as Airflow makes it: version 7, ordered by time."""
    at = time.time_ns() if nanoseconds is None else nanoseconds
    fraction = at % 1_000_000 * 4096 // 1_000_000
    return str(uuid.UUID(int=at // 1_000_000 << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62)))


def design() -> TableDesign:
    column = ColumnDesign(name="id", type="Int64", default_kind="", default_expression="", codec="", comment="")
    return TableDesign(
        engine="MergeTree",
        columns=(column,),
        partition_key="",
        sorting_key="id",
        primary_key="id",
        sampling_key="",
        settings="index_granularity = 8192",
        ttl="",
        indices=(),
        constraints=(),
        comment="",
    )


def enrolment(ledger: Ledger, table: str, *, target_uuid: str | None = None) -> TargetEnrolment:
    marker = DatabaseMarker(
        family=Family.NONPRODUCTION,
        ledger_service_id=str(ledger.service_id),
        connector="clickhouse",
        service_id=SERVICE,
        database_id="00000000-0000-4000-8000-000000000002",
        database="mart",
    )
    return TargetEnrolment(
        marker=marker,
        target_table=table,
        target_uuid=target_uuid or new_uuid(),
        design=design(),
        administrators=("default",),
        accepted_features=(),
        accepted_by="tester",
        accepted_at=NOW,
    )


def declaration(table: str) -> WorkloadDeclaration:
    return WorkloadDeclaration(
        workload_id=f"dag.{table}",
        constituent="native",
        kind="snapshot",
        source_conn_id="src",
        source_relation=f"public.{table}",
        target_conn_id="dwh",
        target_relation=f"mart.{table}",
        control_conn_id="control",
        options={},
    )


@dataclass
class Activated:
    """An ACTIVE activation with one guard per table."""

    ledger: Ledger
    store: CompositionActivationStore
    stored: StoredActivation
    enrolments: dict[str, TargetEnrolment]

    def attempt(
        self, table: str, *, run_id: str = "run", try_number: int = 1, max_tries: int = 3, plan: str = "plan"
    ) -> CompositionAttemptIdentity:
        work = next(w for w in self.stored.request.workloads if w.workload_id == f"dag.{table}")
        return CompositionAttemptIdentity(
            family=Family.NONPRODUCTION,
            activation_sha256=self.stored.sha256,
            constituent="native",
            cell=CELL,
            workload_id=work.workload_id,
            pack_sha256=work.pack_sha256,
            plan_sha256=digest_of(plan.encode()),
            coordinates=TaskCoordinates(
                dag_id="dag",
                run_id=run_id,
                task_id=table,
                map_index=-1,
                try_number=try_number,
                max_tries=max_tries,
                task_instance_id=new_uuid(),
            ),
            guard_epochs=tuple(e for e in self.stored.epochs if e.guard_id == work.guard_id),
        )


def prepare_request(
    ledger: Ledger, store: CompositionActivationStore, enrolments: dict[str, TargetEnrolment], environment: str = "test"
) -> tuple[ActivationRequest, Release, Deployment, PhysicalObservation]:
    release = Release(native=tuple(sorted(declaration(t) for t in enrolments)), standalone=())
    workloads, resources = [], []
    for table, accepted in enrolments.items():
        guard_id = store.enrol(accepted)
        workloads.append(
            WorkloadAdmission(
                workload_id=f"dag.{table}",
                constituent="native",
                cell=CELL,
                pack_sha256=declaration(table).digest(),
                guard_id=guard_id,
            )
        )
        resources.append(
            PhysicalResource(
                guard_id=guard_id,
                connector=Connector.CLICKHOUSE,
                service_id=accepted.marker.service_id,
                subject=accepted.guard_subject(),
                enrolment_sha256=accepted.digest(),
            )
        )
    deployment = Deployment(release_id=release.digest(), environment=environment, bindings=())
    observation = PhysicalObservation(deployment_id=deployment.digest(), writes=(), reads=())
    request = ActivationRequest(
        family=Family.NONPRODUCTION,
        occurrence_id=new_uuid(),
        environment=environment,
        release_id=release.digest(),
        deployment_id=deployment.digest(),
        observation_sha256=observation.digest(),
        previous_activation_sha256=None,
        workloads=tuple(sorted(workloads)),
        resources=tuple(sorted(resources)),
    )
    return request, release, deployment, observation


def activate(admin: Ledger, runtime: Ledger, *tables: str, environment: str = "test") -> Activated:
    """Enrol the tables as administrator and activate a release of them as the runtime role."""
    admin.read(lambda c: None)
    enrolments = {t: enrolment(admin, t) for t in tables}
    store = CompositionActivationStore(runtime)
    prepared = store.prepare(*prepare_request(admin, CompositionActivationStore(admin), enrolments, environment))
    stored = store.activate(prepared.sha256)
    return Activated(runtime, store, stored, enrolments)


def closure(name: str) -> tuple[GateClosure, QuiescenceObservation]:
    service = SERVICE
    return (
        GateClosure(
            connector=Connector.CLICKHOUSE,
            service_id=service,
            name=name,
            principal_uuid=None,
            tombstone_uuid=new_uuid(),
            steps=("tombstone created",),
            server_started_at=NOW,
            server_uptime_seconds=1,
            closed_at=NOW,
        ),
        QuiescenceObservation(
            connector=Connector.CLICKHOUSE,
            service_id=service,
            name=name,
            queries=0,
            pending_inserts=0,
            unfinished_mutations=0,
            control_seen="self",
            observed_at=NOW,
        ),
    )


def outcome(attempt_sha256: str, state: AttemptState) -> Outcome:
    return Outcome(
        attempt_sha256=attempt_sha256,
        state=state,
        code=None,
        reason="test",
        publication_sha256=None,
        observed_at=NOW,
    )


def receipt(attempt_sha256: str) -> RetentionReceipt:
    """The receipt of work that publishes nothing."""
    return RetentionReceipt(
        family=Family.NONPRODUCTION,
        workload_id="dag.orders",
        attempt_sha256=attempt_sha256,
        target="mart.orders",
        removed=(),
        kept=(),
        freed_bytes=0,
    )


def end(
    store: CompositionAttemptStore,
    attempt_sha256: str,
    state: AttemptState,
    before: AttemptState = AttemptState.RUNNING,
) -> StoredAttempt:
    """End an attempt as its observation would: SUCCEEDED with a receipt."""
    kept = receipt(attempt_sha256) if state is AttemptState.SUCCEEDED else None
    return store.end(attempt_sha256, before, outcome(attempt_sha256, state), kept)


def generation(activated: Activated, table: str, attempt_sha256: str) -> GenerationRecord:
    """A sealed generation of an attempt."""
    accepted = activated.enrolments[table]
    return GenerationRecord(
        family=Family.NONPRODUCTION,
        attempt_sha256=attempt_sha256,
        target=_target(activated, table),
        source=SourceSnapshotRef(
            connector="postgres", service_id="s", relation=f"public.{table}", snapshot_id="1", taken_at=NOW
        ),
        old_target_uuid=accepted.target_uuid,
        generation_uuid=new_uuid(),
        design_sha256=accepted.design.digest(),
        content=Content(rows=1, row_sum=ROW_SUM),
        parts_sha256=digest_of(b"parts"),
        source_aggregates_sha256=digest_of(b"aggregates"),
        target_aggregates_sha256=digest_of(b"aggregates"),
        limits=SnapshotLimits(max_source_bytes="1 GiB").effective(),
        source_bytes=1,
        wire_bytes=1,
        generation_bytes=1,
        old_target_bytes=1,
        retained_bytes=0,
        ingest=IssuedPrincipal(name="dpone_i_1", uuid=new_uuid()),
        closed_ingest_sha256=digest_of(b"closed"),
    )


def _target(activated: Activated, table: str) -> SnapshotTarget:
    accepted = activated.enrolments[table]
    return SnapshotTarget(
        service_id=accepted.marker.service_id,
        database_id=accepted.marker.database_id,
        database="mart",
        target_table=table,
        generation_table="dpone_g_1",
        guard_id=next(w.guard_id for w in activated.stored.request.workloads if w.workload_id == f"dag.{table}"),
        enrolment_sha256=accepted.digest(),
    )


def intent(
    activated: Activated, table: str, attempt_sha256: str, publisher: str = "dpone_p_1", *, sealed: bool = True
) -> SnapshotIntent:
    """The plan of one EXCHANGE.

    :param sealed: keep the generation it swaps in first, as the cell does.
    """
    record = generation(activated, table, attempt_sha256)
    if sealed:
        CompositionAttemptStore(activated.ledger).record(attempt_sha256, (EvidenceKind.GENERATION, record))
    return SnapshotIntent(
        family=Family.NONPRODUCTION,
        activation_sha256=activated.stored.sha256,
        attempt_sha256=attempt_sha256,
        generation_sha256=record.digest(),
        target=record.target,
        old_target_uuid=record.old_target_uuid,
        generation_uuid=record.generation_uuid,
        design_sha256=record.design_sha256,
        content=record.content,
        parts_sha256=record.parts_sha256,
        limits=record.limits,
        ingest=record.ingest,
        publisher=IssuedPrincipal(name=publisher, uuid=new_uuid()),
        closed_ingest_sha256=record.closed_ingest_sha256,
    )
