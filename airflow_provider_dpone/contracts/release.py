"""A release: the verified inventory of workloads with their declarations; its deployment; one activation of it."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from airflow_provider_dpone.contracts.canonical import Counter, Digest, Document, Text, Uuid4, require_sorted_unique
from airflow_provider_dpone.contracts.states import Connector, Family

Constituent = Literal["native", "standalone"]
#: The constituent each cell belongs to: a cell's name makes no other declaration eligible for it.
CELL_CONSTITUENTS: Final[dict[str, Constituent]] = {
    "dbt_native": "native",
    "mssql_clickhouse_full_refresh": "native",
    "postgres_mssql_full_refresh": "standalone",
}


class WorkloadDeclaration(Document):
    """One workload as its author declared it: literal target, connections and options; templated texts as written."""

    schema_name: Literal["dpone.workload.v1"] = Field(default="dpone.workload.v1")
    workload_id: Text
    """``dag_id.task_id`` plus ``[index]`` for a literal ``.expand()``."""
    constituent: Constituent
    kind: Literal["snapshot", "retention", "load", "dbt"]
    source_conn_id: Text | None
    source_relation: Text | None
    target_conn_id: Text
    target_relation: Text
    control_conn_id: Text
    options: dict[str, Text | int | bool | None]
    writes: tuple[Text, ...] = ()
    """Every other relation it can write below its target: models, intermediate, backup and helper names, sorted."""
    reads: tuple[Text, ...] = ()
    """Relations it reads besides its source; recorded, they admit nothing."""

    @model_validator(mode="after")
    def _sets(self) -> WorkloadDeclaration:
        require_sorted_unique(self.writes, "writes")
        require_sorted_unique(self.reads, "reads")
        return self

    def relations(self) -> tuple[str, ...]:
        """Every relation it can write. The target of a dbt project is a schema, which is none."""
        return self.writes if self.kind == "dbt" else (self.target_relation, *self.writes)

    def __lt__(self, other: WorkloadDeclaration) -> bool:
        return self.workload_id < other.workload_id


class ReleaseFile(Document):
    """One file of a release directory, by its exact bytes."""

    path: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f\\]+$", max_length=512, strict=True)]
    """Relative, with ``/``, below the release directory."""
    sha256: Digest
    bytes: Counter

    @model_validator(mode="after")
    def _below(self) -> ReleaseFile:
        if any(part in ("", ".", "..") for part in self.path.split("/")):
            raise ValueError("a path of a release leads out of its directory")
        return self

    def __lt__(self, other: ReleaseFile) -> bool:
        return self.path < other.path


class Release(Document):
    """Immutable inventory; both constituents are always listed, one may be empty.

    The digest of its bytes is the release's id. ``files`` lists everything else in the release directory; it is empty
    for workloads that are declared by a folder of DAG files nobody materialised.
    """

    schema_name: Literal["dpone.release.v1"] = Field(default="dpone.release.v1")
    native: tuple[WorkloadDeclaration, ...]
    standalone: tuple[WorkloadDeclaration, ...]
    dags: tuple[Text, ...] = ()
    """Ids of every DAG its files define, sorted."""
    files: tuple[ReleaseFile, ...] = ()

    @model_validator(mode="after")
    def _sets(self) -> Release:
        require_sorted_unique(self.native, "native")
        require_sorted_unique(self.standalone, "standalone")
        require_sorted_unique(self.dags, "dags")
        require_sorted_unique(self.files, "files")
        if {w.workload_id for w in self.native} & {w.workload_id for w in self.standalone}:
            raise ValueError("a workload is in both constituents")
        if any(w.constituent != "native" for w in self.native) or any(
            w.constituent != "standalone" for w in self.standalone
        ):
            raise ValueError("a workload is listed under another constituent than it declares")
        return self

    def workloads(self) -> tuple[WorkloadDeclaration, ...]:
        return tuple(sorted(self.native + self.standalone))


class WorkloadAdmission(Document):
    """A workload of an activation: its pinned declaration, its cell and the guard it writes to."""

    workload_id: Text
    constituent: Constituent
    cell: Text
    pack_sha256: Digest
    guard_id: Digest

    @model_validator(mode="after")
    def _eligible(self) -> WorkloadAdmission:
        if CELL_CONSTITUENTS.get(self.cell, self.constituent) != self.constituent:
            raise ValueError(f"cell {self.cell} is not for a {self.constituent} workload")
        return self

    def __lt__(self, other: WorkloadAdmission) -> bool:
        return self.workload_id < other.workload_id


class PhysicalResource(Document):
    """A guard as physical admission resolved it."""

    guard_id: Digest
    connector: Connector
    service_id: Text
    subject: Text
    enrolment_sha256: Digest

    def __lt__(self, other: PhysicalResource) -> bool:
        return self.guard_id < other.guard_id


class ActivationRequest(Document):
    """The immutable request of one activation; its digest names the activation in the ledger."""

    schema_name: Literal["dpone.activation.v1"] = Field(default="dpone.activation.v1")
    family: Family
    occurrence_id: Uuid4
    environment: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", strict=True)]
    release_id: Digest
    deployment_id: Digest
    observation_sha256: Digest
    """Digest of the :class:`PhysicalObservation` the admission rests on."""
    previous_activation_sha256: Digest | None
    workloads: tuple[WorkloadAdmission, ...]
    resources: tuple[PhysicalResource, ...]

    @model_validator(mode="after")
    def _closed(self) -> ActivationRequest:
        require_sorted_unique(self.workloads, "workloads")
        require_sorted_unique(self.resources, "resources")
        if {w.guard_id for w in self.workloads} != {r.guard_id for r in self.resources}:
            raise ValueError("workloads and resources name different guards")
        return self


class Binding(Document):
    """What a connection id of a release physically is in one environment: never a host name, login or version."""

    conn_id: Text
    connector: Connector
    service_id: Text
    database_id: Text

    def __lt__(self, other: Binding) -> bool:
        return self.conn_id < other.conn_id


class Deployment(Document):
    """A release plus its sealed runtime context; its digest is the deployment's id."""

    schema_name: Literal["dpone.deployment.v1"] = Field(default="dpone.deployment.v1")
    release_id: Digest
    environment: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", strict=True)]
    bindings: tuple[Binding, ...]

    @model_validator(mode="after")
    def _sets(self) -> Deployment:
        require_sorted_unique(self.bindings, "bindings")
        return self


class WriteClass(Document):
    """One relation a workload can write, and its equivalence class among all writes of its physical database."""

    guard_id: Digest
    workload_id: Text
    relation: Text
    equivalence: Counter
    """Equal numbers within one database: the server takes the names for one."""

    def __lt__(self, other: WriteClass) -> bool:
        return (self.guard_id, self.workload_id, self.relation) < (other.guard_id, other.workload_id, other.relation)


class PhysicalObservation(Document):
    """What the servers said of every write of a release. Carries no time: table timestamps are no identity."""

    schema_name: Literal["dpone.physical_observation.v1"] = Field(default="dpone.physical_observation.v1")
    deployment_id: Digest
    writes: tuple[WriteClass, ...]
    reads: tuple[Text, ...]
    """Relations read, as ``workload_id: relation``; they admit nothing."""

    @model_validator(mode="after")
    def _sets(self) -> PhysicalObservation:
        require_sorted_unique(self.writes, "writes")
        require_sorted_unique(self.reads, "reads")
        return self
