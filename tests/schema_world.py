"""A managed schema of a PostgreSQL database with its login gate, a ledger, and an active release over it."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import psycopg

from airflow_provider_dpone.attempts.cells.load import LoadCell
from airflow_provider_dpone.attempts.cells.snapshot import SnapshotWork
from airflow_provider_dpone.attempts.sql import SqlTarget, SqlWorld
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.contracts.choice import ColumnChoice
from airflow_provider_dpone.contracts.enrolment import SchemaEnrolment
from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity, TaskCoordinates
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.ports import GateKey
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
from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.engines.postgres.gate import PostgresGate
from airflow_provider_dpone.engines.postgres.load_target import PostgresTarget
from airflow_provider_dpone.engines.postgres.rights import GatePolicy, owner_rights
from airflow_provider_dpone.engines.postgres.session import PostgresParams
from airflow_provider_dpone.engines.postgres.snapshot import PostgresSource
from airflow_provider_dpone.engines.sql.rights import WorkerRights
from airflow_provider_dpone.enrolment.postgres import enrol_schema
from airflow_provider_dpone.ledger.activations import CompositionActivationStore, Guard, StoredActivation
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.journal import LedgerJournal
from tests.builders import instance_id
from tests.ledger_database import LedgerDatabase
from tests.servers import PostgresUnderTest

CELLS = {"load": ("standalone", "postgres_mssql_full_refresh"), "dbt": ("native", "dbt_native")}


@dataclass
class SchemaWorld:
    """Everything a test of one-time logins needs; each test has a database and roles of its own."""

    connector: ClassVar[Connector] = Connector.POSTGRES
    postgres: PostgresUnderTest
    ledger: LedgerDatabase
    schema: str = "mart"
    database: str = ""
    source_db: str = ""
    tag: str = field(default_factory=lambda: secrets.token_hex(4))
    controller_password: str = field(default_factory=lambda: secrets.token_hex(16))
    guard: Guard | None = None
    activation: StoredActivation | None = None
    declarations: dict[str, WorkloadDeclaration] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.database = self.postgres.fresh_database("target")
        with self.postgres.connect() as connection:
            connection.execute(f"CREATE ROLE {self.owner} NOLOGIN".encode())
            connection.execute(
                f"CREATE ROLE {self.controller} LOGIN CREATEROLE PASSWORD '{self.controller_password}'".encode()
            )
            connection.execute(f"REVOKE CONNECT ON DATABASE {self.database} FROM PUBLIC".encode())
        self.sql(f"CREATE SCHEMA {self.schema} AUTHORIZATION {self.owner}")

    @property
    def owner(self) -> str:
        return f"owner_{self.tag}"

    @property
    def controller(self) -> str:
        return f"controller_{self.tag}"

    # --- connections ---

    def sql(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        """As superuser in the target database."""
        with self.postgres.connect(self.database) as connection:
            cursor = connection.execute(statement.encode(), params or None)
            return cursor.fetchall() if cursor.description else []

    def admin_control(self) -> PostgresControl:
        return PostgresControl(self._params(self.postgres.superuser["user"], self.postgres.superuser["password"]))

    def params(self, port: int | None = None) -> PostgresParams:
        """The controller's connection, through a proxy when a port is given."""
        return self._params(self.controller, self.controller_password, port)

    def control(self, port: int | None = None) -> PostgresControl:
        return PostgresControl(self.params(port))

    def _params(self, user: str, password: str, port: int | None = None) -> PostgresParams:
        return PostgresParams(
            host=self.postgres.host, port=port or self.postgres.port, dbname=self.database, user=user,
            password=password, sslmode="disable", options=(("gssencmode", "disable"),),
        )  # fmt: skip

    def login(self, credential: Any, dbname: str | None = None, **options: Any) -> psycopg.Connection[Any]:
        """A session as an issued login."""
        return psycopg.connect(
            **{
                "host": self.postgres.host, "port": self.postgres.port, "dbname": dbname or self.database,
                "user": credential.name, "password": credential.password, "autocommit": True, "connect_timeout": 10,
                **options,
            }
        )  # fmt: skip

    # --- enrolment and release ---

    @property
    def administrators(self) -> list[str]:
        return [str(self.postgres.superuser["user"])]

    def enrol(self, accepted: Sequence[str] = (), schema: str | None = None) -> SchemaEnrolment:
        identity, enrolment = enrol_schema(
            self.admin_control(), self.ledger.admin(), schema=schema or self.schema, controller=self.controller,
            administrators=self.administrators, accepted_features=accepted, accepted_by="tester",
        )  # fmt: skip
        self.guard = CompositionActivationStore(self.ledger.runtime()).guard(identity)
        return enrolment

    def declare(self, task: str, kind: str = "load", **values: Any) -> WorkloadDeclaration:
        return WorkloadDeclaration(**{
            "workload_id": f"dag.{task}", "constituent": CELLS[kind][0], "kind": kind,
            "source_conn_id": "src" if kind == "load" else None,
            "source_relation": f"public.{task}" if kind == "load" else None, "target_conn_id": "dwh",
            "target_relation": f"{self.schema}.{task}" if kind == "load" else self.schema,
            "control_conn_id": "control", "options": {}, **values,
        })  # fmt: skip

    def activate(self, *declarations: WorkloadDeclaration) -> StoredActivation:
        """Enrol the schema unless it is, and make a release of these workloads current."""
        if self.guard is None:
            self.enrol()
        guard = self.guard
        assert guard is not None
        self.declarations = {d.workload_id.removeprefix("dag."): d for d in declarations}
        release = Release(
            native=tuple(sorted(d for d in declarations if d.constituent == "native")),
            standalone=tuple(sorted(d for d in declarations if d.constituent == "standalone")),
        )
        deployment = Deployment(release_id=release.digest(), environment="test", bindings=())
        observation = PhysicalObservation(deployment_id=deployment.digest(), writes=(), reads=())
        request = ActivationRequest(
            family=Family.NONPRODUCTION, occurrence_id=str(uuid.uuid4()), environment="test",
            release_id=release.digest(), deployment_id=deployment.digest(), observation_sha256=observation.digest(),
            previous_activation_sha256=None,
            workloads=tuple(sorted(
                WorkloadAdmission(
                    workload_id=d.workload_id, constituent=d.constituent, cell=CELLS[d.kind][1],
                    pack_sha256=d.digest(), guard_id=guard.guard_id,
                )
                for d in declarations
            )),
            resources=(PhysicalResource(
                guard_id=guard.guard_id, connector=self.connector, service_id=guard.service_id,
                subject=guard.subject, enrolment_sha256=guard.enrolment_sha256,
            ),),
        )  # fmt: skip
        store = CompositionActivationStore(self.ledger.runtime())
        self.activation = store.activate(store.prepare(request, release, deployment, observation).sha256)
        return self.activation

    # --- loads ---

    def source_sql(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        """As superuser in the source database, made at the first call."""
        with self.postgres.connect(self.source.dbname) as connection:
            cursor = connection.execute(statement.encode(), params or None)
            return cursor.fetchall() if cursor.description else []

    @property
    def source(self) -> PostgresParams:
        if not self.source_db:
            self.source_db = self.postgres.fresh_database("source")
        return replace(
            self._params(self.postgres.superuser["user"], self.postgres.superuser["password"]), dbname=self.source_db
        )

    def make_load(self, task: str, columns: str, rows: str, target_columns: str = "") -> None:
        """A source table, the target of the same or other columns, and a release that loads one into the other."""
        self.source_sql(f"CREATE TABLE {task} ({columns})")
        self.source_sql(f"INSERT INTO {task} {rows}")
        self.sql(f"SET ROLE {self.owner}; CREATE TABLE {self.schema}.{task} ({target_columns or columns})")
        self.activate(self.declare(task))

    def cell(
        self, task: str, *, run_id: str = "run", try_number: int = 1, max_tries: int = 3, min_rows: int = 0,
        limits: SnapshotLimits | None = None, stop: StopFlag | None = None, port: int | None = None,
        ledger_port: int | None = None, source_port: int | None = None, policy: Any = None,
        finished: Callable[[TaskCoordinates], bool] = lambda coordinates: False, choice: ColumnChoice | None = None,
    ) -> LoadCell:  # fmt: skip
        """A load cell for one task try, wired like the operator wires it; ports lead through a proxy when given."""
        coordinates = self.coordinates(task, run_id=run_id, try_number=try_number, max_tries=max_tries)
        stop = stop or StopFlag()
        target = self.target(port, policy)
        world = SqlWorld(self.ledger.runtime(ledger_port), target, target.service_id(), stop.check)
        source = self.source
        work = SnapshotWork(
            declaration=self.declarations[task], environment="test",
            coordinates=coordinates, limits=(limits or SnapshotLimits(max_source_bytes="4 GiB")).effective(), min_rows=min_rows,
            source=PostgresSource(source if source_port is None else replace(source, port=source_port)), source_schema="public",
            source_name=task, choice=choice,
        )  # fmt: skip
        return LoadCell(world, work, stop, finished)

    def target(self, port: int | None = None, policy: Any = None) -> SqlTarget:
        return PostgresTarget(self.control(port), policy or GatePolicy(quiet_timeout=10.0))

    def rows(self, task: str) -> list[tuple[Any, ...]]:
        return self.sql(f"SELECT * FROM {self.schema}.{task} ORDER BY 1")

    def receipts(self) -> int:
        [(count,)] = self.sql("SELECT count(*) FROM dpone_gate.receipt")
        return int(count)

    def stagings(self) -> list[str]:
        rows = self.sql("SELECT relname FROM pg_class WHERE relname LIKE 'dpone\\_s\\_%' AND relkind = 'r'")
        return [str(name) for (name,) in rows]

    def ledger_counts(self) -> dict[str, int]:
        """Attempts by state, open guards and gates, as the ledger has them."""
        with psycopg.connect(
            **{**self.postgres.superuser, "dbname": self.ledger.dbname}  # type: ignore[arg-type]
        ) as connection:
            row = connection.execute(
                "SELECT count(*) FILTER (WHERE state = 1), count(*) FILTER (WHERE state = 2),"
                " count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 4),"
                " (SELECT count(*) FROM dpone.attempt_guard WHERE is_open),"
                " (SELECT count(*) FROM dpone.principal WHERE state <> 4) FROM dpone.attempt"
            ).fetchone()
        assert row is not None
        names = ("running", "succeeded", "failed", "commit_unknown", "open_guards", "open_gates")
        return dict(zip(names, row, strict=True))

    # --- attempts and gates ---

    def coordinates(
        self, task: str, *, run_id: str = "run", try_number: int = 1, max_tries: int = 3
    ) -> TaskCoordinates:
        return TaskCoordinates(
            dag_id="dag", run_id=run_id, task_id=task, map_index=-1, try_number=try_number, max_tries=max_tries,
            task_instance_id=instance_id(),
        )  # fmt: skip

    def admit(self, task: str = "work", **coordinates: Any) -> str:
        """An admitted attempt of a workload, made current when there is no release yet."""
        if self.activation is None:
            self.activate(self.declare(task))
        activation = self.activation
        assert activation is not None
        declaration = self.declarations[task]
        return CompositionAttemptStore(self.ledger.runtime()).admit_once(
            CompositionAttemptIdentity(
                family=Family.NONPRODUCTION, activation_sha256=activation.sha256,
                constituent=declaration.constituent, cell=CELLS[declaration.kind][1],
                workload_id=declaration.workload_id, pack_sha256=declaration.digest(),
                plan_sha256="sha256:" + "0" * 64, coordinates=self.coordinates(task, **coordinates),
                guard_epochs=activation.epochs,
            )
        )  # fmt: skip

    def gate(
        self, attempt: str, *, port: int | None = None, ledger_port: int | None = None, policy: GatePolicy | None = None,
        epoch: int | None = None, **options: Any,
    ) -> PostgresGate:  # fmt: skip
        """The gate of an attempt as a process of its own has it."""
        assert self.guard is not None
        assert self.activation is not None
        return PostgresGate(
            self.control(port), self.guard.schema, GateKey(
                guard_id=self.guard.guard_id, epoch=epoch or self.activation.epochs[0].epoch, attempt_sha256=attempt,
            ),
            LedgerJournal(self.ledger.runtime(ledger_port), attempt), policy or GatePolicy(quiet_timeout=10.0), **options,
        )  # fmt: skip

    def rights(self) -> WorkerRights:
        """Rights of a worker that makes relations."""
        return replace(owner_rights(self.schema, self.owner))

    def roles(self) -> list[str]:
        """Issued roles that exist on the server and belong to this database's gate."""
        rows = self.sql("SELECT rolname FROM pg_roles JOIN dpone_gate.gate ON name = rolname ORDER BY 1")
        return [str(name) for (name,) in rows]

    def gate_state(self, name: str) -> int | None:
        rows = self.sql("SELECT state FROM dpone_gate.gate WHERE name = %s", name)
        return int(rows[0][0]) if rows else None
