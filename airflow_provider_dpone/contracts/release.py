"""A release: the verified inventory of workloads with their declarations, and one activation of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from airflow_provider_dpone.contracts.canonical import Digest, Document, Text, Uuid, digest_of, require_sorted_unique
from airflow_provider_dpone.contracts.states import Connector, Family

Constituent = Literal["native", "standalone"]


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

    def __lt__(self, other: WorkloadDeclaration) -> bool:
        return self.workload_id < other.workload_id


class Release(Document):
    """Immutable inventory; both constituents are always listed, one may be empty."""

    schema_name: Literal["dpone.release.v1"] = Field(default="dpone.release.v1")
    native: tuple[WorkloadDeclaration, ...]
    standalone: tuple[WorkloadDeclaration, ...]

    @model_validator(mode="after")
    def _sets(self) -> Release:
        require_sorted_unique(self.native, "native")
        require_sorted_unique(self.standalone, "standalone")
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
    occurrence_id: Uuid
    environment: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", strict=True)]
    release_id: Digest
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


def deployment_id(release_id: str, environment: str) -> str:
    """Identity of a release in an environment."""
    return digest_of(f"dpone.deployment.v1\n{release_id}\n{environment}".encode())
