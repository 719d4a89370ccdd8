"""What an administrator signs off: the marker of a target database and the accepted design of a target table."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from airflow_provider_dpone.contracts.canonical import Digest, Document, Text, Uuid, require_sorted_unique
from airflow_provider_dpone.contracts.states import Family

MARKER_TABLE = "dpone_marker"


class ColumnDesign(Document):
    """A column exactly as the server's catalog gives it."""

    name: Annotated[str, Field(min_length=1, strict=True)]
    type: Text
    default_kind: str
    default_expression: str
    codec: str
    comment: str


class TableDesign(Document):
    """Complete physical design of a ClickHouse table; the generation is created to carry exactly this."""

    schema_name: Literal["dpone.table_design.v1"] = Field(default="dpone.table_design.v1")
    engine: Text
    columns: Annotated[tuple[ColumnDesign, ...], Field(min_length=1, max_length=8192)]
    partition_key: str
    sorting_key: str
    primary_key: str
    sampling_key: str
    settings: str
    """The SETTINGS clause of ``engine_full``, as the server prints it."""
    ttl: str
    """Move and recompress rules only, as the server prints them."""
    indices: tuple[Text, ...]
    constraints: tuple[Text, ...]
    comment: str


class DatabaseMarker(Document):
    """Stored in the target database: the one ledger that may own it."""

    schema_name: Literal["dpone.marker.v1"] = Field(default="dpone.marker.v1")
    family: Family
    ledger_service_id: Uuid
    connector: Text
    service_id: Text
    database_id: Uuid
    database: Text


class TargetEnrolment(Document):
    """The accepted target: where it is, its design, and who besides an issued user may write it."""

    schema_name: Literal["dpone.enrolment.v1"] = Field(default="dpone.enrolment.v1")
    marker: DatabaseMarker
    target_table: Text
    target_uuid: Uuid
    """UUID of the table under the name when it was accepted."""
    design: TableDesign
    administrators: tuple[Text, ...]
    """Names of users and roles that may hold write rights; any other writer refuses admission."""
    accepted_features: tuple[Text, ...]
    """Side effects the administrator accepts by name, for example ``outgoing_view:mart.daily``."""
    accepted_by: Text
    accepted_at: Text

    @model_validator(mode="after")
    def _sets(self) -> TargetEnrolment:
        require_sorted_unique(self.administrators, "administrators")
        require_sorted_unique(self.accepted_features, "accepted_features")
        return self

    def guard_subject(self) -> str:
        """The physical subject of the guard: the database's UUID and the target name."""
        return f"{self.marker.database_id}/{self.target_table}"


class SchemaMarker(Document):
    """Stored in a SQL target database when its gate is installed: the one ledger that may own it, and which it is."""

    schema_name: Literal["dpone.schema_marker.v1"] = Field(default="dpone.schema_marker.v1")
    family: Family
    ledger_service_id: Uuid
    connector: Text
    service_id: Text
    """The server's own identity; a copy of its files has the same."""
    database_oid: Text
    database_id: Uuid
    """Made at random when the gate was installed; tells two databases of one name apart."""
    database: Text
    controller: Text
    """The login that issues and closes one-time logins in this database."""


class SchemaEnrolment(Document):
    """An accepted managed schema of a SQL target: where it is, who owns it, and who besides a worker may write it."""

    schema_name: Literal["dpone.schema_enrolment.v1"] = Field(default="dpone.schema_enrolment.v1")
    marker: SchemaMarker
    managed_schema: Text
    schema_oid: Text
    owner_role: Text
    gate_layout: Digest
    """Fingerprint of the installed gate: functions, triggers, tables and rights."""
    administrators: tuple[Text, ...]
    """Names of logins that may hold write rights in the schema; any other writer refuses admission."""
    accepted_features: tuple[Text, ...]
    """Side effects the administrator accepts by name, for example ``trigger:mart.rates.audit``."""
    accepted_by: Text
    accepted_at: Text

    @model_validator(mode="after")
    def _sets(self) -> SchemaEnrolment:
        require_sorted_unique(self.administrators, "administrators")
        require_sorted_unique(self.accepted_features, "accepted_features")
        return self

    def guard_subject(self) -> str:
        """The physical subject of the guard: the database's identity and the managed schema."""
        return f"{self.marker.database_id}/{self.managed_schema}"
