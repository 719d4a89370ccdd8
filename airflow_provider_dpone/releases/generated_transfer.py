"""Transfers that a native project generates: they keep what their producer says, member by member.

A generated transfer is not an ordinary manifest with more in it. Its runtime, quality, gitops, sink mode, options and
byte budget are typed, bound into the declaration that the release pins, and each has exactly the effect written here;
whatever has none is refused where it stands.
"""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.releases.endpoint import Ceilings, Endpoint, Environment, Name, Plain

_STRICT: Final = ConfigDict(extra="forbid", frozen=True)


class SourceOptions(BaseModel):
    """How the source is read; there is one way."""

    model_config = _STRICT

    extraction: Literal["table"] = "table"
    """A whole table, never a query."""
    isolation: Literal["snapshot"] = "snapshot"
    """One consistent snapshot."""


class SinkOptions(BaseModel):
    """How the target is replaced; there is one way."""

    model_config = _STRICT

    publication: Literal["exchange_tables"] = "exchange_tables"
    """One ``EXCHANGE TABLES``."""
    previous: Literal["retain"] = "retain"
    """The table before stays until a retention task removes it."""


class GeneratedSource(Endpoint):
    """The source table."""

    options: SourceOptions = SourceOptions()


class Sink(Endpoint):
    """The target table."""

    mode: Literal["full_refresh"]
    """Rows that the source has no more disappear; nothing else is supported on this route."""
    options: SinkOptions = SinkOptions()


class Runtime(BaseModel):
    """Where and when it runs."""

    model_config = _STRICT

    environment: Environment = "default"
    control_conn_id: Plain = "dpone_control"
    schedule: Annotated[str, Field(max_length=512)] | None = None
    retries: Annotated[int, Field(ge=0, le=100)] = 2


class Quality(BaseModel):
    """What must hold before anything is published."""

    model_config = _STRICT

    min_rows: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    reconciliation: Literal["content_and_aggregates"] = "content_and_aggregates"
    """Both proofs, always."""


class GitOps(BaseModel):
    """Which source the producer generated it from; kept with the release, read by people."""

    model_config = _STRICT

    repository: Plain
    revision: Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]
    path: Plain


class GeneratedTransfer(BaseModel):
    """One transfer that a native project generated: a complete refresh of one ClickHouse table."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="dpone native-generated transfer")

    version: Literal[1]
    producer: Literal["native"]
    id: Name
    """Becomes the DAG's id; its one task is called ``transfer``."""
    source: GeneratedSource
    sink: Sink
    runtime: Runtime = Runtime()
    quality: Quality = Quality()
    gitops: GitOps
    budget: Ceilings
    """Ceilings by name, as ``SnapshotLimits`` takes them; ``max_source_bytes`` is required and positive."""

    kind: Literal["snapshot"] = Field(default="snapshot", exclude=True)
    sql_files: tuple[()] = Field(default=(), exclude=True)

    @property
    def workload_id(self) -> str:
        return f"{self.id}.transfer"

    @property
    def target(self) -> Endpoint:
        return self.sink

    @property
    def limits(self) -> dict[str, int | str]:
        return self.budget

    def written(self) -> bytes:
        """The same content as the scheduler reads it."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()

    def members(self) -> dict[str, str | int | bool | None]:
        """Every member beside the ordinary ones, by its dotted name, as the declaration binds it."""
        groups = {
            "source.options": self.source.options,
            "sink.options": self.sink.options,
            "runtime": self.runtime,
            "quality": self.quality,
            "gitops": self.gitops,
        }
        bound: dict[str, str | int | bool | None] = {"producer": self.producer, "sink.mode": self.sink.mode}
        for group, model in groups.items():
            bound |= {f"{group}.{name}": value for name, value in model.model_dump(mode="json").items()}
        return bound

    def declaration(self) -> WorkloadDeclaration:
        """What the transfer declares to a release: the same as its operator would."""
        limits = SnapshotLimits(**self.budget).effective().model_dump(exclude={"schema_name"})  # type: ignore[arg-type]
        return WorkloadDeclaration(
            workload_id=self.workload_id,
            constituent="native",
            kind="snapshot",
            source_conn_id=self.source.conn_id,
            source_relation=self.source.table,
            target_conn_id=self.sink.conn_id,
            target_relation=self.sink.table,
            control_conn_id=self.runtime.control_conn_id,
            options={"min_rows": str(self.quality.min_rows), **limits, **self.members()},
        )


#: Values that the members of a generated transfer must have to be admitted: nothing else has an effect on this route.
EFFECTS: Final[dict[str, tuple[str, ...]]] = {
    "producer": ("native",),
    "sink.mode": ("full_refresh",),
    "source.options.extraction": ("table",),
    "source.options.isolation": ("snapshot",),
    "sink.options.publication": ("exchange_tables",),
    "sink.options.previous": ("retain",),
    "quality.reconciliation": ("content_and_aggregates",),
}
_BOUND: Final = frozenset(
    {"runtime.environment", "runtime.control_conn_id", "runtime.schedule", "runtime.retries", "quality.min_rows"}
    | {"gitops.repository", "gitops.revision", "gitops.path"}
)


def unsupported_members(declaration: WorkloadDeclaration) -> list[str]:
    """What a declaration says about being generated that has no effect here, or is missing; each in words."""
    dotted = {name: value for name, value in declaration.options.items() if "." in name or name == "producer"}
    if not dotted:
        return []
    problems = [f"{name} is missing" for name in sorted((EFFECTS.keys() | _BOUND) - dotted.keys())]
    for name, value in sorted(dotted.items()):
        if name not in EFFECTS and name not in _BOUND:
            problems.append(f"{name} has no effect on this route")
        elif name in EFFECTS and value not in EFFECTS[name]:
            problems.append(f"{name} is {value!r}; only {', '.join(EFFECTS[name])} is supported")
    if (declaration.constituent, declaration.kind) != ("native", "snapshot"):
        problems.append(f"a {declaration.constituent} {declaration.kind} cannot be native-generated")
    return problems
