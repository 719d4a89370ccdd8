"""What a dbt attempt plans, what dbt says about it, and what the controller read back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from airflow_provider_dpone.contracts.canonical import Counter, Digest, Document, Text, require_sorted_unique
from airflow_provider_dpone.contracts.states import Family

RelationKind = Literal["table", "view", "materialized_view"]
RelationRole = Literal["model", "seed", "snapshot", "failures", "helper", "pattern"]
_ANY_TEXT = Annotated[str, Field(max_length=512, strict=True)]


class PlannedRelation(Document):
    """One relation a run may write, and the node it belongs to."""

    name: Text
    """Identifier within the managed schema; for a pattern, a prefix followed by ``*``."""
    kind: RelationKind
    role: RelationRole
    """``helper``: a name dbt uses for a moment beside a relation. ``pattern``: a prefix of random names."""
    node: Text
    selected: bool
    """Whether the node is among those this run builds."""

    def __lt__(self, other: PlannedRelation) -> bool:
        return (self.name, self.node) < (other.name, other.node)


class SourceRelation(Document):
    """A relation the project reads and does not write (dbt calls it a source)."""

    schema_of: Text
    name: Text

    def __lt__(self, other: SourceRelation) -> bool:
        return (self.schema_of, self.name) < (other.schema_of, other.name)


class DbtPlan(Document):
    """Everything a run may write and build, computed by dbt's own parser before anything is admitted."""

    schema_name: Literal["dpone.dbt_plan.v1"] = Field(default="dpone.dbt_plan.v1")
    project: Text
    project_sha256: Digest
    adapter: Text
    versions: dict[str, Text]
    """Installed dbt distributions."""
    target_schema: Text
    full_refresh: bool
    selected: tuple[Text, ...]
    """dbt's unique ids of what this run builds, tests included; ephemeral models are part of others and are not."""
    relations: tuple[PlannedRelation, ...]
    reads: tuple[SourceRelation, ...]

    @model_validator(mode="after")
    def _sets(self) -> DbtPlan:
        require_sorted_unique(self.selected, "selected")
        require_sorted_unique(self.relations, "relations")
        require_sorted_unique(self.reads, "reads")
        return self

    def expected(self) -> dict[str, RelationKind]:
        """Names and kinds that must be there after a successful run."""
        return {r.name: r.kind for r in self.relations if r.selected and r.role not in ("helper", "pattern")}

    def permanent(self) -> dict[str, RelationKind]:
        """Names and kinds of every relation of the project, selected or not, without helpers."""
        return {r.name: r.kind for r in self.relations if r.role not in ("helper", "pattern")}

    def writes(self) -> tuple[str, ...]:
        """Every relation this run may write, helpers included, as ``schema.name``, sorted; random names are not."""
        chosen = {r.name for r in self.relations if r.selected and r.role != "pattern"}
        return tuple(sorted(f"{self.target_schema}.{name}" for name in chosen))

    def is_helper(self, name: str) -> bool:
        """Whether a name is one that dbt uses only for a moment."""
        return any(
            (r.role == "helper" and r.name == name) or (r.role == "pattern" and name.startswith(r.name[:-1]))
            for r in self.relations
        )

    def helped(self, name: str) -> str | None:
        """The node a helper belongs to."""
        return next((r.node for r in self.relations if r.role == "helper" and r.name == name), None)


class NodeResult(Document):
    """What dbt says about one node."""

    unique_id: Text
    status: Text
    message: _ANY_TEXT
    failures: Counter | None
    milliseconds: Counter

    def __lt__(self, other: NodeResult) -> bool:
        return self.unique_id < other.unique_id


class DbtRun(Document):
    """How the process ended and what its artifacts say; a hint, never the outcome."""

    schema_name: Literal["dpone.dbt_run.v1"] = Field(default="dpone.dbt_run.v1")
    attempt_sha256: Digest
    plan_sha256: Digest
    exit_code: int
    """Negative when a signal ended the process."""
    manifest_sha256: Digest | None
    run_results_sha256: Digest | None
    results: tuple[NodeResult, ...] | None
    """Null when dbt left no complete ``run_results.json`` of this run."""


class FoundRelation(Document):
    """One relation of the managed schema as the catalog shows it."""

    name: Text
    kind: Text
    rows: Counter | None
    """Rows counted; null for what this run did not build, for views and for helpers."""

    def __lt__(self, other: FoundRelation) -> bool:
        return self.name < other.name


class DbtBaseline(Document):
    """What an attempt set out to do, and the managed schema before its login was issued and after it was tidied."""

    schema_name: Literal["dpone.dbt_baseline.v1"] = Field(default="dpone.dbt_baseline.v1")
    attempt_sha256: Digest
    plan: DbtPlan
    found: tuple[FoundRelation, ...]
    restored: tuple[Text, ...]
    """Relations a killed run had renamed away, renamed back from ``__dbt_backup``."""
    removed: tuple[Text, ...]
    """Leftovers that were dropped."""


class DbtReadBack(Document):
    """The managed schema after the gate was closed and quiet, compared with the plan and the baseline."""

    schema_name: Literal["dpone.dbt_read_back.v1"] = Field(default="dpone.dbt_read_back.v1")
    attempt_sha256: Digest
    plan_sha256: Digest
    observed_at: Text
    found: tuple[FoundRelation, ...]
    missing: tuple[Text, ...]
    """Relations this run builds that are not there, or there as another kind."""
    lost: tuple[Text, ...]
    """Relations of the project that were there before the run and are gone, whatever built or dropped them."""
    leftovers: tuple[Text, ...]
    """``__dbt_tmp``, ``__dbt_backup`` and other helpers that are still there."""
    undeclared: tuple[Text, ...]
    """Relations that appeared during the run and belong to no node, for example made by a hook."""


class DbtReceipt(Document):
    """Receipt of a dbt run that succeeded."""

    schema_name: Literal["dpone.dbt_receipt.v1"] = Field(default="dpone.dbt_receipt.v1")
    family: Family
    state: Literal["SUCCEEDED"]
    reused: bool
    """True when this try found the finished run of its own earlier try and built nothing."""
    workload_id: Text
    attempt_sha256: Digest
    target: Text
    project: Text
    plan_sha256: Digest
    project_sha256: Digest
    manifest_sha256: Digest
    run_results_sha256: Digest
    read_back_sha256: Digest
    versions: dict[str, Text]
    models: Counter
    seeds: Counter
    snapshots: Counter
    tests: Counter
    warnings: tuple[Text, ...]
    """Nodes that ended with a warning."""
    rows: dict[str, Counter]
    """Rows per table this run built."""
    restored: tuple[Text, ...]
    removed: tuple[Text, ...]
    undeclared: tuple[Text, ...]
    milliseconds: dict[str, Counter]
