"""What an administrator signs off: the marker of a target database, and the accepted table or schema in it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from airflow_provider_dpone.contracts.canonical import Digest, Document, Text, Uuid, require_sorted_unique
from airflow_provider_dpone.contracts.states import Connector, Family

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


class SchemaEnrolment(Document):
    """The accepted managed schema of a SQL database: what an issued login may be confined to.

    On SQL Server the guard is the whole dedicated database, and ``managed_schemas`` names all of its schemas that are
    managed; on PostgreSQL it is one schema.
    """

    schema_name: Literal["dpone.schema_enrolment.v1"] = Field(default="dpone.schema_enrolment.v1")
    marker: DatabaseMarker
    managed_schemas: Annotated[tuple[Text, ...], Field(min_length=1)]
    owner: Text
    """The role that owns what is in the managed schemas."""
    controller: Text
    """The login that issues and closes one-time logins in this database."""
    gate_layout: Digest
    """Fingerprint of the installed login gate: functions, triggers, tables and rights."""
    administrators: tuple[Text, ...]
    """Names of roles that may hold write rights there; any other writer refuses admission."""
    accepted_features: tuple[Text, ...]
    """Side effects the administrator accepts by name, for example ``trigger:mart.rates.audit``."""
    accepted_by: Text
    accepted_at: Text

    @model_validator(mode="after")
    def _sets(self) -> SchemaEnrolment:
        require_sorted_unique(self.managed_schemas, "managed_schemas")
        require_sorted_unique(self.administrators, "administrators")
        require_sorted_unique(self.accepted_features, "accepted_features")
        if self.marker.connector == Connector.POSTGRES and len(self.managed_schemas) != 1:
            raise ValueError("on PostgreSQL a guard is one schema")
        return self

    def guard_subject(self) -> str:
        """The physical subject of the guard: the database, on PostgreSQL with its schema."""
        if self.marker.connector == Connector.POSTGRES:
            return f"{self.marker.database_id}/{self.managed_schemas[0]}"
        return self.marker.database_id


Enrolment = TargetEnrolment | SchemaEnrolment


def parse_enrolment(raw: bytes) -> Enrolment:
    """The enrolment document of either kind from its complete canonical bytes."""
    kind = SchemaEnrolment if b'"dpone.schema_enrolment.v1"' in raw else TargetEnrolment
    return kind.parse(raw)
