"""What the tests of the ClickHouse engine stand on: a controller, a pair of tables, and ports that inject faults."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from clickhouse_driver import Client

from airflow_provider_dpone.contracts.canonical import Document, digest_of
from airflow_provider_dpone.contracts.enrolment import DatabaseMarker, TargetEnrolment
from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity, GuardEpoch, TaskCoordinates
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.ports import IssuedCredential, JournaledPrincipal, OpenedGeneration
from airflow_provider_dpone.contracts.publication import (
    GenerationRecord,
    PublicationRecord,
    PublisherClosure,
    SnapshotIntent,
    SnapshotTarget,
    SourceSnapshotRef,
)
from airflow_provider_dpone.contracts.states import (
    Connector,
    DispatchState,
    Family,
    GateState,
    PublicationState,
    Purpose,
)
from airflow_provider_dpone.engines.clickhouse.catalog import CatalogView, read_catalog
from airflow_provider_dpone.engines.clickhouse.content import read_content, stored_columns
from airflow_provider_dpone.engines.clickhouse.control import NativeControl
from airflow_provider_dpone.engines.clickhouse.design import render_create
from airflow_provider_dpone.engines.clickhouse.executor import ClickHouseExchangeExecutor
from airflow_provider_dpone.engines.clickhouse.gate import ClickHouseGate
from airflow_provider_dpone.engines.clickhouse.observer import SnapshotCatalog
from airflow_provider_dpone.engines.clickhouse.rights import GatePolicy, publisher_rights
from airflow_provider_dpone.engines.clickhouse.wire import ClickHouseHttp
from airflow_provider_dpone.errors import AlreadyClaimed, Fenced, LedgerUnavailable, ServerUnreachable
from airflow_provider_dpone.publication.publisher import ClickHouseAtomicSnapshotPublisher
from tests.servers import ClickHouseUnderTest

ATTEMPT = digest_of(b"attempt")


@dataclass(frozen=True)
class Login:
    """A name and password for the HTTP end."""

    name: str
    password: str = field(repr=False)


class Journal:
    """The port of the attempt's journal, in memory; ``fail_at`` makes a step fail as a lost ledger would."""

    def __init__(self) -> None:
        self.rows: dict[str, JournaledPrincipal] = {}
        self.evidence: dict[str, Sequence[Document]] = {}
        self.fail_at: set[str] = set()

    def _step(self, step: str) -> None:
        if step in self.fail_at:
            raise LedgerUnavailable(f"the ledger is away at {step}")

    def journal(self, *, connector: Connector, service_id: str, name: str, purpose: Purpose) -> None:
        self._step("journal")
        self.rows[name] = JournaledPrincipal(
            connector, service_id, name, purpose, ATTEMPT, GateState.JOURNALED, None, ()
        )

    def ready(self, *, name: str, principal_uuid: str) -> None:
        self._step("ready")
        if self.rows[name].state is not GateState.JOURNALED:
            raise Fenced("the gate is closing")
        self._set(name, state=GateState.READY, principal_uuid=principal_uuid)

    def closing(self, *, name: str) -> JournaledPrincipal:
        self._step("closing")
        if self.rows[name].state is not GateState.CLOSED:
            self._set(name, state=GateState.CLOSING)
        return self.rows[name]

    def closed(self, *, name: str, evidence: Sequence[Document]) -> bool:
        self._step("closed")
        self._set(name, state=GateState.CLOSED)
        self.evidence[name] = evidence
        return True

    def principals(self) -> list[JournaledPrincipal]:
        return list(self.rows.values())

    def claim_dispatch(self, *, dispatch_id: str, name: str, kind: str, statement: str) -> None:
        self._set(name, dispatch_ids=(*self.rows[name].dispatch_ids, dispatch_id))

    def end_dispatch(self, *, dispatch_id: str, state: DispatchState, note: str) -> None: ...

    def _set(self, name: str, **changes: Any) -> None:
        self.rows[name] = dataclasses.replace(self.rows[name], **changes)


class Store:
    """The port of the publication store, in memory: what the publisher's policy does with it is under test."""

    def __init__(self) -> None:
        self.intent: SnapshotIntent | None = None
        self.history: list[PublicationRecord] = []

    def persist_prepared(self, intent: SnapshotIntent) -> PublicationRecord:
        self.intent = intent
        self.history = [
            PublicationRecord(
                intent_sha256=intent.digest(),
                state=PublicationState.PREPARED,
                revision=1,
                closure=None,
                observation=None,
                reason=None,
            )
        ]
        return self.history[-1]

    def read(self, intent_sha256: str) -> tuple[SnapshotIntent, PublicationRecord]:
        assert self.intent is not None
        assert self.intent.digest() == intent_sha256
        return self.intent, self.history[-1]

    def claim(self, intent: SnapshotIntent, before: PublicationRecord) -> PublicationRecord:
        if self.history[-1] != before:
            raise AlreadyClaimed("another caller won")
        self.history.append(before.next(PublicationState.EXCHANGE_INTENT))
        return self.history[-1]

    def resolve(self, intent: SnapshotIntent, before: PublicationRecord, after: PublicationRecord) -> PublicationRecord:
        assert self.history[-1] == before
        self.history.append(after)
        return after


class Authority:
    """The port of the authority over one sealed generation: closes through the real gate."""

    def __init__(self, opened: OpenedGeneration, gate: ClickHouseGate) -> None:
        self.opened, self.gate = opened, gate
        self.current = True
        self.retained = True

    def open_generation(self, attempt: CompositionAttemptIdentity, generation_ref: str) -> OpenedGeneration:
        return self.opened

    def require_current(self, intent: SnapshotIntent) -> None:
        if not self.current:
            raise Fenced("fenced")

    def require_retained(self, intent: SnapshotIntent) -> None:
        if not self.retained:
            raise Fenced("released")

    def close_publisher(self, intent: SnapshotIntent) -> PublisherClosure:
        self.gate.close(intent.publisher.name)
        closure, quiet = self.gate._journal.evidence[intent.publisher.name]  # type: ignore[attr-defined]
        return PublisherClosure(
            intent_sha256=intent.digest(), closed_gates_sha256=closure.digest(), quiescence_sha256=quiet.digest()
        )


@dataclass
class Product:
    """The engine's ends of one server."""

    server: ClickHouseUnderTest
    service_id: str = ""
    restart: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.service_id = str(self.admin.query("SELECT serverUUID()")[0][0])

    @property
    def admin(self) -> NativeControl:
        return NativeControl(lambda: self.server.client())

    @property
    def control(self) -> NativeControl:
        return NativeControl(lambda: self.server.client(self.server.controller_user, self.server.controller_password))

    def meddled(self, marker: str, meddle: Callable[[], object], times: int) -> Meddled:
        """A controller before whose statements with ``marker`` something happens."""
        connect = self.control._connect
        return Meddled(connect, marker, meddle, [times])

    @property
    def http(self) -> ClickHouseHttp:
        return ClickHouseHttp(self.server.host, self.server.http_port, answer_within=60)

    @property
    def administrators(self) -> tuple[str, ...]:
        return tuple(sorted({self.server.admin_user, self.server.controller_user}))

    def wait(self, seconds: float = 60.0) -> None:
        """Until the server answers again."""
        end = time.monotonic() + seconds
        while True:
            try:
                self.rows("SELECT 1")
                return
            except ServerUnreachable:
                if time.monotonic() > end:
                    raise
                time.sleep(0.3)

    def run(self, *statements: str) -> None:
        with self.admin as admin:
            for statement in statements:
                admin.command(statement)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self.admin as admin:
            return admin.query(sql)

    @contextmanager
    def database(self, engine: str = "Atomic") -> Iterator[str]:
        name = f"mart_{uuid.uuid4().hex[:12]}"
        self.run(f"CREATE DATABASE {name} ENGINE = {engine}")
        try:
            yield name
        finally:
            self.run(f"DROP DATABASE {name} SYNC")

    def gate(self, journal: Journal, *tables: tuple[str, str], receive_timeout: int = 5) -> ClickHouseGate:
        return ClickHouseGate(
            self.control,
            self.service_id,
            journal,
            GatePolicy(receive_timeout=receive_timeout),
            tables=tables,
        )

    def view(self, database: str, *tables: str) -> CatalogView:
        with self.control as control:
            return read_catalog(control, database, tables, administrators=self.administrators)

    def send(self, login: Login | IssuedCredential, statement: str, *body: bytes, query_id: str | None = None) -> bytes:
        dispatch = self.http.dispatch(statement, login, query_id=query_id or str(uuid.uuid4()))
        return dispatch.send(iter(body) if body else None).body

    def client(self, login: IssuedCredential) -> Client:
        return self.server.client(login.name, login.password)


@dataclass
class Slot:
    """Target A and sealed generation B of one attempt, with a publisher over in-memory ledger ports."""

    product: Product
    database: str
    target: str = "orders"
    generation: str = "dpone_g_1"
    journal: Journal = field(default_factory=Journal)
    store: Store = field(default_factory=Store)

    def seal(self) -> None:
        """Seal B as it is, issue the publisher, prepare."""
        product, at = self.product, self.database
        view = product.view(at, self.target, self.generation)
        a, b = view.table(self.target), view.table(self.generation)
        assert a.design is not None
        with product.control as control:
            content = read_content(control, at, self.generation, stored_columns(a.design))
        self.enrolment = TargetEnrolment(
            marker=DatabaseMarker(
                family=Family.NONPRODUCTION,
                ledger_service_id=str(uuid.uuid4()),
                connector="clickhouse",
                service_id=product.service_id,
                database_id=str(view.database_uuid),
                database=at,
            ),
            target_table=self.target,
            target_uuid=a.uuid,
            design=a.design,
            administrators=product.administrators,
            accepted_features=(),
            accepted_by="tester",
            accepted_at="2026-01-01T00:00:00Z",
        )
        attempt = CompositionAttemptIdentity(
            family=Family.NONPRODUCTION,
            activation_sha256=digest_of(b"activation"),
            constituent="native",
            cell="mssql_clickhouse_full_refresh",
            workload_id="dag.orders",
            pack_sha256=digest_of(b"pack"),
            plan_sha256=digest_of(b"plan"),
            coordinates=TaskCoordinates(
                dag_id="dag",
                run_id="run",
                task_id="orders",
                map_index=-1,
                try_number=1,
                max_tries=1,
                task_instance_id=str(uuid.uuid4()),
            ),
            guard_epochs=(GuardEpoch(guard_id=digest_of(b"guard"), epoch=1),),
        )
        self.gate = product.gate(self.journal, (at, self.target), (at, self.generation))
        self.credential = self.gate.issue_once(Purpose.PUBLISHER, publisher_rights(at, self.target, self.generation))
        record = GenerationRecord(
            family=Family.NONPRODUCTION,
            attempt_sha256=attempt.digest(),
            target=SnapshotTarget(
                service_id=product.service_id,
                database_id=str(view.database_uuid),
                database=at,
                target_table=self.target,
                generation_table=self.generation,
                guard_id=digest_of(b"guard"),
                enrolment_sha256=self.enrolment.digest(),
            ),
            source=SourceSnapshotRef(
                connector="postgres", service_id="s", relation="public.orders", snapshot_id="1", taken_at="2026-01-01"
            ),
            old_target_uuid=a.uuid,
            generation_uuid=b.uuid,
            design_sha256=a.design.digest(),
            content=content,
            parts_sha256=b.parts_sha256,
            source_aggregates_sha256=digest_of(b"aggregates"),
            target_aggregates_sha256=digest_of(b"aggregates"),
            limits=SnapshotLimits(max_source_bytes="1 GiB").effective(),
            source_bytes=1,
            wire_bytes=1,
            generation_bytes=b.bytes or 0,
            old_target_bytes=a.bytes or 0,
            retained_bytes=0,
            ingest={"name": "dpone_ingest_" + "0" * 32, "uuid": str(uuid.uuid4())},  # type: ignore[arg-type]
            closed_ingest_sha256=digest_of(b"closed"),
        )
        self.authority = Authority(OpenedGeneration(attempt, record, self.credential.principal), self.gate)
        self.publisher = self.new_publisher()
        self.intent_sha256 = self.publisher.prepare(attempt, record.digest()).intent_sha256

    def new_publisher(self, http: ClickHouseHttp | None = None) -> ClickHouseAtomicSnapshotPublisher:
        return ClickHouseAtomicSnapshotPublisher(
            authority=self.authority,
            store=self.store,
            catalog=self.catalog(),
            executor=ClickHouseExchangeExecutor(http or self.product.http, self.credential),
        )

    def catalog(self) -> SnapshotCatalog:
        since = self.gate.start_at_issue(self.credential.name)
        return SnapshotCatalog(self.product.control, self.enrolment, budget_since=since)

    @property
    def record(self) -> PublicationRecord:
        return self.store.history[-1]

    @property
    def intent(self) -> SnapshotIntent:
        assert self.store.intent is not None
        return self.store.intent

    def uuids(self) -> tuple[str, str]:
        found = dict(
            self.product.rows(f"SELECT name, toString(uuid) FROM system.tables WHERE database = '{self.database}'")
        )
        return found.get(self.target, ""), found.get(self.generation, "")

    def exchanges(self) -> int:
        """EXCHANGE statements under the intent's query id, from the server's own log."""
        self.product.run("SYSTEM FLUSH LOGS")
        sql = (
            "SELECT count() FROM system.query_log WHERE type IN ('QueryFinish', 'ExceptionWhileProcessing') "
            f"AND query_id = '{self.intent.query_id()}'"
        )
        return int(self.product.rows(sql)[0][0])


class Meddled(NativeControl):
    """A control session that lets something happen before a statement that contains ``marker``, ``times`` times."""

    def __init__(self, connect: Callable[[], Any], marker: str, meddle: Callable[[], object], times: list[int]) -> None:
        super().__init__(connect)
        self._marker, self._meddle, self._times = marker, meddle, times

    def fresh(self) -> Meddled:
        return Meddled(self._connect, self._marker, self._meddle, self._times)

    def query(self, sql: str, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        if self._marker in sql and self._times[0]:
            self._times[0] -= 1
            self._meddle()
        return super().query(sql, params)


@contextmanager
def slot(
    product: Product, *, old: int = 3, new: int = 5, design: str = "id Int64, name Nullable(String)"
) -> Iterator[Slot]:
    """A pair of tables with ``old`` and ``new`` rows, not sealed yet."""
    with product.database() as database:
        made = Slot(product, database)
        product.run(f"CREATE TABLE {database}.{made.target} ({design}) ENGINE = MergeTree ORDER BY tuple()")
        found = product.view(database, made.target).table(made.target).design
        assert found is not None
        product.run(render_create(database, made.generation, found))
        for name, rows in ((made.target, old), (made.generation, new)):
            product.run(f"INSERT INTO {database}.{name} SELECT number, toString(number + {rows}) FROM numbers({rows})")
        try:
            yield made
        finally:
            for name in made.journal.rows:
                product.run(f"DROP USER IF EXISTS {name}", f"DROP QUOTA IF EXISTS {name}")
