"""A whole small world for snapshot attempts: ledger, source, target and an active release, on real engines."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_dpone.attempts.cells.retention import RetentionCell, RetentionWork
from airflow_provider_dpone.attempts.cells.snapshot import SnapshotCell, SnapshotWork
from airflow_provider_dpone.attempts.clickhouse import ClickHouseTarget, ClickHouseWorld
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.contracts.choice import ColumnChoice
from airflow_provider_dpone.contracts.identity import TaskCoordinates
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.release import (
    ActivationRequest,
    Deployment,
    PhysicalObservation,
    PhysicalResource,
    Release,
    WorkloadAdmission,
    WorkloadDeclaration,
)
from airflow_provider_dpone.contracts.states import Connector, Family
from airflow_provider_dpone.engines.clickhouse.control import NativeControl
from airflow_provider_dpone.engines.clickhouse.rights import GatePolicy
from airflow_provider_dpone.engines.clickhouse.wire import ClickHouseHttp
from airflow_provider_dpone.engines.postgres.session import PostgresParams
from airflow_provider_dpone.engines.postgres.snapshot import PostgresSource
from airflow_provider_dpone.enrolment.clickhouse import enrol
from airflow_provider_dpone.hooks.clickhouse import ControllerLogin
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.transfer.source import Source
from tests.builders import instance_id
from tests.ledger_database import LedgerDatabase
from tests.servers import ClickHouseUnderTest, PostgresUnderTest

CELL = "mssql_clickhouse_full_refresh"


@dataclass
class SnapshotWorld:
    """Everything one test needs; each test has databases of its own."""

    clickhouse: ClickHouseUnderTest
    postgres: PostgresUnderTest
    ledger: LedgerDatabase
    database: str = field(default_factory=lambda: f"mart_{secrets.token_hex(4)}")
    source_db: str = ""
    declarations: dict[str, WorkloadDeclaration] = field(default_factory=dict)
    other_source: Source | None = None
    """A source of another kind, in place of the PostgreSQL one."""
    source_schema: str = "public"
    declared_source_bytes: int = 1 << 32

    def __post_init__(self) -> None:
        self.source_db = self.postgres.fresh_database("source")
        self.clickhouse.execute(f"CREATE DATABASE {self.database} ENGINE = Atomic")

    # --- engines ---

    def pg(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        with self.postgres.connect(self.source_db) as connection:
            cursor = connection.execute(sql.encode(), params or None)
            return cursor.fetchall() if cursor.description else []

    def ch(self, sql: str) -> Any:
        return self.clickhouse.execute(sql)

    def control(self, host: str | None = None, port: int | None = None) -> NativeControl:
        server = self.clickhouse
        import clickhouse_driver

        return NativeControl(
            lambda: clickhouse_driver.Client(
                host or server.host, port or server.native_port, user=server.controller_user,
                password=server.controller_password,
            )
        )  # fmt: skip

    def admin_control(self) -> NativeControl:
        return NativeControl(self.clickhouse.client)

    def target(self, *, http_port: int | None = None, native_port: int | None = None) -> ClickHouseTarget:
        server = self.clickhouse
        return ClickHouseTarget(
            control=self.control(port=native_port),
            http=ClickHouseHttp(server.host, http_port or server.http_port),
            login=ControllerLogin(server.controller_user, server.controller_password),
            policy=GatePolicy(),
        )

    @property
    def source(self) -> PostgresParams:
        su = self.postgres.superuser
        return PostgresParams(
            host=su["host"], port=int(su["port"]), dbname=self.source_db, user=su["user"], password=su.get("password")
        )

    # --- enrolment and release ---

    @property
    def administrators(self) -> list[str]:
        return sorted({self.clickhouse.admin_user, self.clickhouse.controller_user, "default"})

    def enrol(self, table: str, accepted_features: tuple[str, ...] = ()) -> str:
        guard, _ = enrol(
            self.admin_control(), self.ledger.admin(), database=self.database, target_table=table,
            administrators=self.administrators, accepted_features=accepted_features, accepted_by="tester",
        )  # fmt: skip
        return guard

    def declare(self, table: str, source: str | None = None) -> WorkloadDeclaration:
        return WorkloadDeclaration(
            workload_id=f"dag.{table}", constituent="native", kind="snapshot", source_conn_id="src",
            source_relation=source or f"{self.source_schema}.{table}", target_conn_id="dwh",
            target_relation=f"{self.database}.{table}", control_conn_id="control", options={"max_source_bytes": self.declared_source_bytes},
        )  # fmt: skip

    def activate(self, *tables: str) -> None:
        """Enrol every table as it is, and make a release of a snapshot and a retention step of each current."""
        self.declarations = {t: self.declare(t) for t in tables} | {
            f"{t}_keep": self.declare_retention(t) for t in tables
        }
        release = Release(native=tuple(sorted(self.declarations.values())), standalone=())
        guards = {t: self.enrol(t) for t in tables}
        store = CompositionActivationStore(self.ledger.runtime())
        found = {g: store.guard(g) for g in guards.values()}
        deployment = Deployment(release_id=release.digest(), environment="test", bindings=())
        observation = PhysicalObservation(deployment_id=deployment.digest(), writes=(), reads=())
        request = ActivationRequest(
            family=Family.NONPRODUCTION, occurrence_id=str(uuid.uuid4()), environment="test",
            release_id=release.digest(), deployment_id=deployment.digest(), observation_sha256=observation.digest(),
            previous_activation_sha256=None,
            workloads=tuple(sorted(
                WorkloadAdmission(
                    workload_id=d.workload_id, constituent="native", cell=CELL, pack_sha256=d.digest(), guard_id=guards[t]
                )
                for t, d in ((n.removesuffix("_keep"), d) for n, d in self.declarations.items())
            )),
            resources=tuple(sorted(
                PhysicalResource(
                    guard_id=g.guard_id, connector=Connector.CLICKHOUSE, service_id=g.service_id, subject=g.subject,
                    enrolment_sha256=g.enrolment_sha256,
                )
                for g in found.values() if g is not None
            )),
        )  # fmt: skip
        store.activate(store.prepare(request, release, deployment, observation).sha256)

    def declare_retention(self, table: str) -> WorkloadDeclaration:
        return WorkloadDeclaration(
            workload_id=f"dag.{table}_keep", constituent="native", kind="retention", source_conn_id=None,
            source_relation=None, target_conn_id="dwh", target_relation=f"{self.database}.{table}",
            control_conn_id="control", options={},
        )  # fmt: skip

    # --- attempts ---

    def retention(self, table: str, keep: int, *, run_id: str = "run", try_number: int = 1) -> RetentionCell:
        """A retention step for one task try."""
        stop = StopFlag()
        target = self.target()
        world = ClickHouseWorld(self.ledger.runtime(), target, target.service_id(), stop.check)
        work = RetentionWork(
            declaration=self.declarations[f"{table}_keep"],
            environment="test",
            coordinates=TaskCoordinates(
                dag_id="dag", run_id=run_id, task_id=f"{table}_keep", map_index=-1, try_number=try_number, max_tries=3,
                task_instance_id=instance_id(),
            ),
            keep=keep,
        )  # fmt: skip
        return RetentionCell(world, work, stop, lambda coordinates: False)

    def generations(self) -> list[str]:
        """Generation tables that exist, by name."""
        sql = f"SELECT name FROM system.tables WHERE database = '{self.database}' AND name LIKE 'dpone\\\\__\\\\_%' ORDER BY name"
        return [str(name) for (name,) in self.ch(sql)]

    def cell(
        self,
        table: str,
        *,
        run_id: str = "run",
        try_number: int = 1,
        max_tries: int = 3,
        limits: SnapshotLimits | None = None,
        min_rows: int = 0,
        stop: StopFlag | None = None,
        finished: Callable[[TaskCoordinates], bool] = lambda coordinates: False,
        ledger_port: int | None = None,
        http_port: int | None = None,
        native_port: int | None = None,
        source_port: int | None = None,
        task_instance_id: str | None = None,
        choice: ColumnChoice | None = None,
    ) -> SnapshotCell:
        """A cell for one task try, wired like the operator wires it; ports lead through a proxy when given."""
        instance = task_instance_id or instance_id()  # Airflow gives it before the task says its first word
        stop = stop or StopFlag()
        target = self.target(http_port=http_port, native_port=native_port)
        world = ClickHouseWorld(self.ledger.runtime(ledger_port), target, target.service_id(), stop.check)
        source = self.source
        work = SnapshotWork(
            declaration=self.declarations[table],
            environment="test",
            coordinates=TaskCoordinates(
                dag_id="dag", run_id=run_id, task_id=table, map_index=-1, try_number=try_number, max_tries=max_tries,
                task_instance_id=instance,
            ),
            limits=(limits or SnapshotLimits(max_source_bytes="4 GiB")).effective(),
            min_rows=min_rows,
            source=self.other_source or PostgresSource(source if source_port is None else PostgresParams(
                host=source.host, port=source_port, dbname=source.dbname, user=source.user, password=source.password
            )),
            source_schema=self.source_schema,
            source_name=table,
            choice=choice,
        )  # fmt: skip
        return SnapshotCell(world, work, stop, finished)

    # --- what a checker sees ---

    def uuid_of(self, table: str) -> str:
        [(found,)] = self.ch(
            f"SELECT toString(uuid) FROM system.tables WHERE database = '{self.database}' AND name = '{table}'"
        )
        return str(found)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return self.ch(f"SELECT * FROM {self.database}.`{table}` ORDER BY 1")  # type: ignore[no-any-return]

    def exchanges(self) -> int:
        """EXCHANGE statements on this database that had an effect, counted by the server.

        One that was killed after its access check (code 394) has its effect all the same.
        """
        self.ch("SYSTEM FLUSH LOGS")
        [(count,)] = self.ch(
            "SELECT uniqExact(query_id) FROM system.query_log WHERE (type = 'QueryFinish' OR exception_code = 394)"
            f" AND query ILIKE 'EXCHANGE TABLES%' AND query LIKE '%{self.database}%'"
        )
        return int(count)

    def issued_users(self) -> list[str]:
        """Issued users that could still log in."""
        return [
            name for name, hosts in self.ch("SELECT name, host_ip FROM system.users WHERE startsWith(name, 'dpone_')")
            if hosts and name != self.clickhouse.controller_user
        ]  # fmt: skip

    def ledger_counts(self) -> dict[str, int]:
        wanted = {
            **{f"attempt WHERE state = {code}": name for code, name in enumerate(
                ("running", "succeeded", "failed", "commit_unknown"), start=1)},
            "attempt_guard WHERE is_open = '1'": "open_guards",
            "principal WHERE state <> 4": "open_gates",
        }  # fmt: skip
        counts = ", ".join(f"(SELECT count(*) FROM dpone.{what})" for what in wanted)
        [row] = self.ledger.as_admin(f"SELECT {counts}")
        return {name: int(str(count)) for name, count in zip(wanted.values(), row, strict=True)}
