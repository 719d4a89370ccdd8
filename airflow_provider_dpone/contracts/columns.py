"""What a source table looks like and what its columns add up to, in terms no engine owns.

An engine's catalog fills these documents; the transfer plans a conversion from them. How a value is read from a
server, or written to one, is not said here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from airflow_provider_dpone.contracts.canonical import Counter, Document, Text

ColumnName = Annotated[str, Field(min_length=1, strict=True)]
#: Canonical text of an aggregate: a whole number, a decimal without trailing zeros, or a value's own text form.
AggregateText = Annotated[str, Field(strict=True)]


class ValueKind(StrEnum):
    """What the values of a source column are, whatever the engine calls the type."""

    BOOL = "bool"
    INTEGER = "integer"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    DECIMAL = "decimal"
    TEXT = "text"
    BYTES = "bytes"
    UUID = "uuid"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    """A wall clock without a zone, in microseconds or finer."""
    INSTANT = "instant"
    """A point in time, read as UTC."""
    ADDRESS = "address"
    """A host or network address, read in its text form."""
    OTHER = "other"
    """Anything that only has a text form."""


class SourceColumn(Document):
    """One column as the source's catalog gives it.

    A kind of ``None`` means the type is refused, and ``refusal`` says why. ``array`` wraps the kind: the column holds
    one-dimensional lists of it.
    """

    name: ColumnName
    declared: ColumnName
    """The type as the source prints it, with its modifiers."""
    kind: ValueKind | None
    nullable: bool
    array: bool = False
    precision: Counter | None = None
    scale: Annotated[int, Field(ge=-1000, le=16383, strict=True)] | None = None
    """Fraction digits of a decimal. Null with kind DECIMAL: any number of digits."""
    native_read: ColumnName = "{c}"
    """How the source's engine reads the value itself, over the quoted column ``{c}``."""
    text_read: str | None = None
    """How it reads the value in its own lossless text form, which a String column may take; None: it has none."""
    attributes: tuple[ColumnName, ...] = ()
    """What else the catalog says, such as ``collation:C``, ``generated:stored``, ``domain:public.email``."""
    refusal: str | None = None


class SourceTable(Document):
    """One relation of a source database, identified physically and described completely; comparable by value."""

    schema_name: Literal["dpone.source_table.v1"] = Field(default="dpone.source_table.v1")
    connector: Text
    service_id: Text
    """The server's own identity, never its host name."""
    database: Text
    database_id: Text
    namespace: ColumnName
    name: ColumnName
    relation_id: Text
    relation_kind: Text
    columns: Annotated[tuple[SourceColumn, ...], Field(min_length=1, max_length=8192)]


class ColumnAggregate(Document):
    """What one column adds up to; a null member means the pair of types has no such aggregate, on either side."""

    name: ColumnName
    nulls: Counter
    low: AggregateText | None
    high: AggregateText | None
    total: AggregateText | None
    """Exact sum of numbers, number of true values, or sum of lengths in bytes (elements for arrays)."""


class TableAggregates(Document):
    """Aggregates of all transferred columns in the target's column order, computed by an engine itself."""

    schema_name: Literal["dpone.table_aggregates.v1"] = Field(default="dpone.table_aggregates.v1")
    rows: Counter
    columns: tuple[ColumnAggregate, ...]

    def difference(self, other: TableAggregates) -> str | None:
        """The first difference in words, or None when both are equal."""
        if self.rows != other.rows:
            return f"{self.rows} rows against {other.rows}"
        for mine, theirs in zip(self.columns, other.columns, strict=True):
            for member in ("name", "nulls", "low", "high", "total"):
                left, right = getattr(mine, member), getattr(theirs, member)
                if left != right:
                    return f"column {mine.name!r}: {member} is {left!r} against {right!r}"
        return None
