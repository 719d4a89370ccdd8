"""Who is asking: the coordinates of a running task instance and the identity of its one attempt."""

from __future__ import annotations

import uuid
from typing import Annotated, Literal

from pydantic import Field, model_validator

from airflow_provider_dpone.contracts.canonical import (
    Counter,
    Digest,
    Document,
    Epoch,
    Text,
    Uuid,
    digest_of,
    require_sorted_unique,
)
from airflow_provider_dpone.contracts.states import Family

NameText = Annotated[str, Field(min_length=1, max_length=1024, strict=True, pattern=r"^[^\x00-\x1f\x7f]+$")]


class TaskCoordinates(Document):
    """A task instance as Airflow names it. ``task_instance_id`` is new for every try and every clear."""

    schema_name: Literal["dpone.task_coordinates.v1"] = Field(default="dpone.task_coordinates.v1")
    dag_id: Text
    run_id: Text
    task_id: Text
    map_index: Annotated[int, Field(ge=-1, le=2**31 - 1, strict=True)]
    try_number: Annotated[Counter, Field(ge=1)]
    max_tries: Counter
    """Airflow's ``max_tries``: grows when a task is cleared, so a retry and a clear can be told apart."""
    task_instance_id: Uuid

    def task(self) -> tuple[str, str, str, int]:
        """The task of the run, whichever try."""
        return self.dag_id, self.run_id, self.task_id, self.map_index

    def superseded_by(self, other: TaskCoordinates) -> bool:
        """Whether the other is a later instance of the same task.

        Airflow's instance UUIDs (version 7) are ordered by time. Tries alone are not: a run that was deleted and made
        again counts them anew.
        """
        mine, theirs = uuid.UUID(self.task_instance_id), uuid.UUID(other.task_instance_id)
        later = mine.version == theirs.version == 7 and mine.int < theirs.int
        return later and self.task() == other.task() and self.try_number <= other.try_number


class GuardEpoch(Document):
    """One guard and the epoch under which it is held."""

    guard_id: Digest
    epoch: Epoch

    def __lt__(self, other: GuardEpoch) -> bool:
        return self.guard_id < other.guard_id


class CompositionAttemptIdentity(Document):
    """Everything an admission binds; its digest is the attempt's identity everywhere.

    ``plan_sha256`` covers the rendered values of the operator (source, columns, limits), so that two tries with
    different values are never taken for the same work.
    """

    schema_name: Literal["dpone.attempt.v1"] = Field(default="dpone.attempt.v1")
    family: Family
    activation_sha256: Digest
    constituent: Literal["native", "standalone"]
    cell: Text
    workload_id: Text
    pack_sha256: Digest
    plan_sha256: Digest
    coordinates: TaskCoordinates
    guard_epochs: Annotated[tuple[GuardEpoch, ...], Field(min_length=1, max_length=8192)]

    @model_validator(mode="after")
    def _guards_are_a_set(self) -> CompositionAttemptIdentity:
        require_sorted_unique(self.guard_epochs, "guard_epochs")
        return self

    def scheduler_key(self) -> str:
        """Digest of the activation and the task instance: an instance is admitted at most once."""
        return digest_of(f"{self.activation_sha256}\n{self.coordinates.digest()}".encode())


def guard_id(connector: str, service_id: str, subject: str) -> str:
    """Identity of a guard: connector, service incarnation and the physical subject (never an alias or host)."""
    return digest_of("\n".join(("dpone.guard.v1", connector, service_id, subject)).encode())


def generation_name(attempt_sha256: str) -> str:
    """Name of the table an attempt builds; unique to the attempt, recognisable by its prefix."""
    return f"dpone_g_{attempt_sha256.removeprefix('sha256:')[:32]}"


def retired_prefix(attempt_sha256: str) -> str:
    """How the names begin to which a retention attempt moves the tables it is about to drop (24 characters)."""
    return f"dpone_r_{attempt_sha256.removeprefix('sha256:')[:16]}"


def retired_name(attempt_sha256: str, table_uuid: str) -> str:
    """Name of a table about to be dropped; says which UUID it must carry, so that a broken-off removal is resumed."""
    return f"{retired_prefix(attempt_sha256)}_{uuid.UUID(table_uuid).hex}"


def staging_name(attempt_sha256: str) -> str:
    """Name of the table a load fills before its one transaction; unique to the attempt."""
    return f"dpone_s_{attempt_sha256.removeprefix('sha256:')[:32]}"
